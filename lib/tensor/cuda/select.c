/* Elements chosen by value (select.cu). */
#include <stdio.h>

#include "tensor/cuda/cuda.h"
#include "tensor/cuda/select.h"

/* most elements of TOP that a block finds one after the other */
enum { FEW = 64 };

static int prepare_one_hot(struct dlb_backend *b, const struct dlb_select_desc *d, struct dlb_kernel **k)
{
	const struct cuda_select a = { .d = *d };
	struct cuda_launch l = { .n_in = 2, .n_out = 1, .count = d->outer * d->n * d->inner };
	char name[32];

	snprintf(name, sizeof name, "select_one_hot_%zu", dlb_dtype_bytes(d->dtype));
	l.f = dlb_cuda_find(cuda_of(b), name, NULL);
	if (!l.f || (d->index != DLB_I32 && d->index != DLB_I64 && d->index != DLB_F32 && d->index != DLB_F64))
		return DLB_NO_KERNEL;
	dlb_cuda_simple(b, &l, &a, sizeof a, k);
	return 0;
}

PREPARE(select)
{
	const bool is_top = d->fn == DLB_SELECT_TOP, few = d->m <= FEW;
	const int64_t lines = d->outer * d->inner;
	const struct cuda_select a = { .d = *d, .width = dlb_cuda_row_width(d->n, d->inner) };
	struct cuda_launch l = { .n_in = 1,
				 .n_out = is_top ? 2 : 1,
				 .count = is_top && !few ? lines * d->n : lines,
				 .rows = is_top ? few : a.width > 1 };

	(void)err;
	if (d->fn == DLB_SELECT_ONE_HOT)
		return prepare_one_hot(b, d, k);
	l.f = dlb_cuda_find_typed(cuda_of(b), is_top	   ? few ? "select_top" : "select_rank" :
					      a.width > 1 ? "select_best_group" :
							    "select_best", d->dtype);
	if (!l.f)
		return DLB_NO_KERNEL;
	if (!is_top && l.rows)
		l.count = (lines + CUDA_THREADS / a.width - 1) / (CUDA_THREADS / a.width);
	dlb_cuda_simple(b, &l, &a, sizeof a, k);
	return 0;
}
