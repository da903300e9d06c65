/* Pooling (pool.cu). */
#include <stdio.h>

#include "tensor/cuda/cuda.h"
#include "tensor/cuda/pool.h"

/* Checks the descriptor, and computes the elements of a window. */
static int window_of(const struct dlb_pool_desc *d, int n_sp, int64_t *window, struct dlb_error *err)
{
	if (d->y.n_dims != d->x.n_dims || d->y.dim[0] != d->x.dim[0] || d->y.dim[1] != d->x.dim[1])
		return dlb_fail(err, NULL, "pooling keeps batch and channels");
	*window = 1;
	for (int i = 0; i < n_sp; i++) {
		if (d->kernel[i] < 1 || d->stride[i] < 1 || d->dilation[i] < 1)
			return dlb_fail(err, NULL, "pooling needs kernel, stride and dilation of at least 1");
		if (*window > INT32_MAX / d->kernel[i])
			return dlb_fail(err, NULL, "a pooling window of more than 2^31 elements");
		*window *= d->kernel[i];
	}
	if (d->max && d->pos == DLB_U8 && *window > 255)
		return dlb_fail(err, NULL, "a window of %lld elements does not fit u8 positions",
				(long long)*window);
	return 0;
}

/* Order of the dimensions of d in memory, innermost first. */
static void order_of(const struct dlb_desc *d, int order[POOL_DIMS])
{
	static const int plain[POOL_DIMS] = { 4, 3, 2, 1, 0 }, last[POOL_DIMS] = { 1, 4, 3, 2, 0 };

	for (int i = 0; i < POOL_DIMS; i++)
		order[i] = d->layout == DLB_CHANNELS_LAST ? last[i] : plain[i];
}

static struct cuda_pool args_of(const struct dlb_pool_desc *d, int n_sp)
{
	const struct dlb_desc *result = d->backward ? &d->x : &d->y;
	struct cuda_pool a = { .count = dlb_desc_count(result), .include_pad = d->count_include_pad };
	int64_t sx[DLB_MAX_DIMS], sy[DLB_MAX_DIMS];

	dlb_desc_strides(&d->x, sx);
	dlb_desc_strides(&d->y, sy);
	for (int i = 0; i < 2; i++) {
		a.dim[i] = d->x.dim[i];
		a.x[i] = sx[i];
		a.y[i] = sy[i];
	}
	for (int i = 0; i < 3; i++) {
		const int j = i - (3 - n_sp); /* missing dimensions are 1, first */

		a.in[i] = j < 0 ? 1 : d->x.dim[j + 2];
		a.out[i] = j < 0 ? 1 : d->y.dim[j + 2];
		a.dim[i + 2] = d->backward ? a.in[i] : a.out[i];
		a.x[i + 2] = j < 0 ? 0 : sx[j + 2];
		a.y[i + 2] = j < 0 ? 0 : sy[j + 2];
		a.size[i] = j < 0 ? 1 : d->kernel[j];
		a.step[i] = j < 0 ? 1 : d->stride[j];
		a.dil[i] = j < 0 ? 1 : d->dilation[j];
		a.pad[i] = j < 0 ? 0 : d->pad_begin[j];
		a.pad_end[i] = j < 0 ? 0 : d->pad_end[j];
	}
	order_of(result, a.order);
	return a;
}

PREPARE(pool)
{
	const int n_sp = d->x.n_dims - 2;
	struct cuda_launch l = { .n_in = 1, .n_out = 1 };
	int64_t window;
	char stem[32];

	if (n_sp < 1 || n_sp > 3 || (d->max && d->pos != DLB_U8 && d->pos != DLB_I32))
		return DLB_NO_KERNEL;
	if (window_of(d, n_sp, &window, err))
		return -1;
	snprintf(stem, sizeof stem, "pool_%s%s%s", d->max ? "max" : "average", d->backward ? "_grad" : "",
		 !d->max          ? "" :
		 d->pos == DLB_U8 ? "_u8" :
				    "_i32");
	l.f = dlb_cuda_find_typed(cuda_of(b), stem, d->x.dtype);
	if (!l.f)
		return DLB_NO_KERNEL;
	if (d->max && d->backward)
		l.n_in = 2;
	else if (d->max)
		l.n_out = 2;
	const struct cuda_pool a = args_of(d, n_sp);
	l.count = a.count;
	dlb_cuda_simple(b, &l, &a, sizeof a, k);
	return 0;
}
