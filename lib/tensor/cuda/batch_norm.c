/* Batch normalization (batch_norm.cu): the launches over sums, channels and elements that direction and half
 * need. */
#include <stdlib.h>

#include "tensor/cuda/batch_norm.h"
#include "tensor/cuda/cuda.h"
#include "util/mem.h"

struct bn_kernel {
	struct dlb_kernel k;
	struct cuda *c;
	struct cuda_bn a;
	int n_in, n_out;
	cudaKernel_t sums, channels, elements; /* NULL: not in this half */
};

/* Whether all arrays that are accessed in runs are aligned: operands of x's shape, coefficients, the
 * gradient's means. */
static bool aligned(const struct cuda_bn *a)
{
	const bool grad = a->dir == DLB_BN_GRAD || a->dir == DLB_BN_GRAD_INFER;
	struct cuda_operands p = { .in = { a->p.in[0], a->p.scratch },
				   .out = { a->half == DLB_BN_SUMS ? NULL : a->p.out[0] } };

	if (grad) {
		p.in[2] = a->p.in[1];
		p.in[3] = a->p.in[3];
		p.in[4] = a->relu ? a->p.in[5] : NULL;
	}
	return dlb_cuda_aligned(&p, 5, 1);
}

static void bn_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct bn_kernel *n = (const struct bn_kernel *)k;
	struct cuda_bn a = n->a;

	dlb_cuda_operands(&a.p, r, n->n_in, n->n_out);
	a.aligned = aligned(&a);
	if (n->sums)
		dlb_cuda_launch_rows(n->c, n->sums, &a, a.m.groups * a.m.chunks);
	if (a.dir == DLB_BN_INFER)
		dlb_cuda_launch(n->c, n->channels, &a, a.m.channels);
	else
		dlb_cuda_launch_rows(n->c, n->channels, &a, a.m.join_blocks);
	if (n->elements && a.p.out[0] && a.m.each > 1)
		dlb_cuda_launch_rows(n->c, n->elements, &a, a.pieces);
	else if (n->elements && a.p.out[0])
		dlb_cuda_launch(n->c, n->elements, &a, a.count);
}

/* Finds the kernels; false if one is missing. */
static bool find_kernels(struct bn_kernel *n, enum dlb_dtype type)
{
	const int dir = n->a.dir, half = n->a.half;
	const bool grad = dir == DLB_BN_GRAD || dir == DLB_BN_GRAD_INFER, infer = dir == DLB_BN_INFER;
	const enum dlb_dtype channel_type = type == DLB_BF16 ? DLB_F32 : type;

	n->channels = dlb_cuda_find_typed(n->c,
					  grad  ? "bn_grad" :
					  infer ? "bn_infer" :
						  "bn_train",
					  channel_type);
	if (!infer && half != DLB_BN_REST) {
		n->sums = dlb_cuda_find_typed(n->c, grad ? "bn_grad_sums" : "bn_moments", type);
		if (!n->sums)
			return false;
	}
	if (half != DLB_BN_SUMS) {
		n->elements = dlb_cuda_find_typed(n->c, grad ? "bn_grad_apply" : "bn_apply", type);
		if (!n->elements)
			return false;
	}
	return n->channels != NULL;
}

int dlb_cuda_batch_norm(struct dlb_backend *b, const struct dlb_bn_desc *d, struct dlb_kernel **k,
			struct dlb_error *err)
{
	const bool grad = d->dir == DLB_BN_GRAD || d->dir == DLB_BN_GRAD_INFER;
	const int64_t run = dlb_cuda_run_of(d->x.dtype);
	struct bn_kernel *n;
	int64_t s = 1;

	if (d->x.n_dims < 2)
		return dlb_fail(err, NULL, "batch normalization needs at least 2 dimensions");
	for (int i = 2; i < d->x.n_dims; i++)
		s *= d->x.dim[i];
	n = dlb_xcalloc(1, sizeof *n);
	n->c = cuda_of(b);
	n->a = (struct cuda_bn){ .count = dlb_desc_count(&d->x),
				 .dir = d->dir,
				 .half = d->half,
				 .relu = d->relu,
				 .unbiased = d->unbiased,
				 .epsilon = d->epsilon,
				 .momentum = d->momentum };
	n->n_in = 5 + (grad && d->relu) + (d->half == DLB_BN_REST);
	n->n_out = d->half == DLB_BN_SUMS ? 1 : grad ? 3 : d->dir == DLB_BN_TRAIN ? 5 : 1;
	n->a.m = d->x.layout == DLB_CHANNELS_LAST && d->x.n_dims > 2 ?
			 dlb_cuda_columns(d->x.dim[0] * s, d->x.dim[1], 1, run) :
			 dlb_cuda_columns(d->x.dim[0], d->x.dim[1], s, run);
	n->a.plane = n->a.m.s;
	n->a.planes = n->a.count / n->a.plane;
	n->a.pieces = n->a.m.groups * n->a.m.chunks;
	if (!find_kernels(n, d->x.dtype)) {
		free(n);
		return DLB_NO_KERNEL;
	}
	if (!n->sums)
		n->a.m.chunks = 0;
	n->k = (struct dlb_kernel){ .run = bn_run,
				    .free = dlb_cuda_kernel_free,
				    .impl = "cuda",
				    .scratch_bytes = (size_t)d->x.dim[1] *
						     (BN_COEFFICIENTS * sizeof(double) +
						      (size_t)n->a.m.chunks * BN_CHUNK) };
	*k = &n->k;
	return 0;
}
