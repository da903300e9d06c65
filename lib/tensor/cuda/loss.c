/* Classification losses (loss.cu): a kernel over samples or elements; before it the divisor of a gradient, or
 * after it the sum of a loss. */
#include <stdio.h>

#include "tensor/cuda/cuda.h"
#include "tensor/cuda/loss.h"
#include "util/mem.h"

struct loss_kernel {
	struct dlb_kernel k;
	struct cuda *c;
	struct cuda_loss args;
	cudaKernel_t first, f, last;	/* first, last: one block; NULL: none */
	int64_t count;			/* threads of f, or blocks if width > 1 */
	int n_in, n_out;
};

static void loss_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	struct loss_kernel *l = (struct loss_kernel *)k;

	dlb_cuda_operands(&l->args.p, r, l->n_in, l->n_out);
	if (l->first)
		dlb_cuda_launch_rows(l->c, l->first, &l->args, 1);
	(l->args.width > 1 ? dlb_cuda_launch_rows : dlb_cuda_launch)(l->c, l->f, &l->args, l->count);
	if (l->last)
		dlb_cuda_launch_rows(l->c, l->last, &l->args, 1);
}

/* Kernels of each stage and direction. rows: samples are rows of classes, which threads may share. */
static const struct { const char *first, *f, *last; bool rows; int n_in, n_out; } table[][2] = {
	[DLB_LOSS_WHOLE] = { { NULL, "loss_forward", "loss_sum", true, 2, 1 },
			     { "loss_divisor", "loss_grad", NULL, false, 3, 1 } },
	[DLB_LOSS_PART] = { { NULL, "loss_part", NULL, true, 2, 1 },
			    { NULL, "loss_part_grad", NULL, true, 4, 1 } },
	[DLB_LOSS_JOIN] = { { NULL, "loss_join", "loss_sum", false, 1, 2 },
			    { "loss_join_divisor", "loss_join_grad", NULL, false, 4, 1 } },
};

PREPARE(loss)
{
	const int64_t rows = d->n * d->inner;
	const bool whole = d->stage == DLB_LOSS_WHOLE, whole_grad = whole && d->backward;
	struct loss_kernel *l;
	struct cuda *c = cuda_of(b);
	char group[32];

	(void)err;
	if ((d->dtype != DLB_F32 && d->dtype != DLB_F64) || (d->label != DLB_I32 && d->label != DLB_I64))
		return DLB_NO_KERNEL;
	if (d->stage == DLB_LOSS_JOIN && d->n_parts > CUDA_IN - 1)	/* the labels are an operand too */
		return DLB_NO_KERNEL;
	l = dlb_xcalloc(1, sizeof *l);
	l->c = c;
	l->k = (struct dlb_kernel){ .run = loss_run, .free = dlb_cuda_kernel_free, .impl = "cuda" };
	l->args = (struct cuda_loss){ .first = d->first, .n = d->n, .classes = d->classes, .inner = d->inner,
				      .ignore = d->ignore, .smoothing = d->smoothing, .n_parts = d->n_parts,
				      .reduction = (int)d->reduction, .softmax = d->softmax,
				      .has_weight = d->has_weight, .has_ignore = d->has_ignore,
				      .label_is_i64 = d->label == DLB_I64, .width = 1 };
	l->n_in = table[d->stage][d->backward].n_in + (whole && d->has_weight) +
		  (d->stage == DLB_LOSS_JOIN && !d->backward ? d->n_parts : 0);
	l->n_out = table[d->stage][d->backward].n_out + (whole && !d->backward && d->softmax);
	l->count = whole_grad ? rows * d->classes : rows;
	if (table[d->stage][d->backward].rows)
		l->args.width = dlb_cuda_row_width(d->classes, d->inner);
	if (l->args.width > 1)
		l->count = (rows + CUDA_THREADS / l->args.width - 1) / (CUDA_THREADS / l->args.width);
	snprintf(group, sizeof group, "%s%s", table[d->stage][d->backward].f,
		 l->args.width > 1 ? "_group" : "");
	l->f = dlb_cuda_find_typed(c, group, d->dtype);
	if (table[d->stage][d->backward].first) {
		l->first = dlb_cuda_find_typed(c, table[d->stage][d->backward].first, d->dtype);
		l->k.scratch_bytes = 2 * sizeof(double);
	}
	if (table[d->stage][d->backward].last && d->reduction != DLB_REDUCE_NONE) {
		l->last = dlb_cuda_find_typed(c, table[d->stage][d->backward].last, d->dtype);
		l->k.scratch_bytes = (size_t)(2 * rows) * sizeof(double);
	}
	*k = &l->k;
	return 0;
}
