/* Cells of recurrent networks (cell.cu). */
#include "tensor/cuda/cell.h"
#include "tensor/cuda/cuda.h"

PREPARE(cell)
{
	const bool grad = d->loop == DLB_CELL_RNN_GRAD || d->loop == DLB_CELL_GRU_GRAD ||
			  d->loop == DLB_CELL_GRU_GRAD_RESET || d->loop == DLB_CELL_LSTM_GRAD;
	const struct cuda_cell a = { .d = *d };
	/* operands beyond these are not read, and their pointers may be missing */
	const int n_in = d->loop == DLB_CELL_LSTM || d->loop == DLB_CELL_LSTM_GRAD ? grad ? 4 : 6 : 5;
	const struct cuda_launch l = { .f = dlb_cuda_find_typed(cuda_of(b), "cell", d->dtype),
				       .n_in = n_in,
				       .n_out = grad ? 4 : 1,
				       .count = d->h };

	(void)err;
	if (!l.f)
		return DLB_NO_KERNEL;
	dlb_cuda_simple(b, &l, &a, sizeof a, k);
	return 0;
}
