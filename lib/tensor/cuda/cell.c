/* Cells of recurrent networks (cell.cu). */
#include "tensor/cuda/cell.h"
#include "tensor/cuda/cuda.h"
#include "util/mem.h"

struct cell_kernel { struct dlb_kernel k; struct cuda *c; struct cuda_cell a; cudaKernel_t f; };

static void cell_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	struct cell_kernel *x = (struct cell_kernel *)k;

	dlb_cuda_operands(&x->a.p, r, 7, x->a.gradient ? 5 : 2);
	x->a.step = (int64_t)r->step;
	dlb_cuda_launch(x->c, x->f, &x->a,
			x->a.gradient && r->out[4] ? x->a.d.h : x->a.d.n * x->a.d.h);
}

PREPARE(cell)
{
	const bool gradient = d->loop == DLB_CELL_RNN_GRAD || d->loop == DLB_CELL_GRU_GRAD ||
			      d->loop == DLB_CELL_GRU_GRAD_RESET || d->loop == DLB_CELL_LSTM_GRAD;
	const cudaKernel_t f = dlb_cuda_find_typed(cuda_of(b), "cell", d->dtype);
	struct cell_kernel *x;

	(void)err;
	if (!f || (d->length != DLB_I32 && d->length != DLB_I64))
		return DLB_NO_KERNEL;
	x = dlb_xcalloc(1, sizeof *x);
	*x = (struct cell_kernel){ .k = { .run = cell_run, .free = dlb_cuda_kernel_free, .impl = "cuda" },
				   .c = cuda_of(b),
				   .a = { .d = *d, .gradient = gradient },
				   .f = f };
	*k = &x->k;
	return 0;
}
