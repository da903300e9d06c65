/* Softmax (softmax.cu). */
#include "tensor/cuda/cuda.h"
#include "tensor/cuda/softmax.h"

PREPARE(softmax)
{
	/* with many neighbours a thread per row reads whole lines; else threads share a row */
	const int by_row = d->inner == 1 ? dlb_cuda_row_threads(d->axis, d->dtype) : 0,
		  width = by_row ? by_row : dlb_cuda_row_width(d->axis, d->inner);
	const struct cuda_softmax a = { .outer = d->outer, .axis = d->axis, .inner = d->inner, .log = d->log,
					.backward = d->backward, .width = width };
	struct cuda_launch l = { .n_in = d->backward ? 2 : 1, .n_out = 1, .rows = by_row || width > 1 };

	(void)err;
	l.f = dlb_cuda_find_typed(cuda_of(b),
				  by_row    ? "softmax_row" :
				  width > 1 ? "softmax_group" :
					      "softmax",
				  d->dtype);
	if (!l.f)
		return DLB_NO_KERNEL;
	l.count = d->outer * d->inner;
	if (l.rows)
		l.count = (l.count + CUDA_THREADS / width - 1) / (CUDA_THREADS / width);
	dlb_cuda_simple(b, &l, &a, sizeof a, k);
	return 0;
}
