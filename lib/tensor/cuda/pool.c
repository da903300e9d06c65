/* Pooling (pool.cu). */
#include <stdio.h>

#include "tensor/cuda/columns.h"
#include "tensor/cuda/cuda.h"
#include "tensor/cuda/pool.h"
#include "util/mem.h"

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

/* Offsets, coordinates and sums of a few of them fit 32 bits. */
static bool is_narrow(const struct dlb_pool_desc *d, const struct cuda_pool *a)
{
	const int64_t most = INT32_MAX / 8;

	for (int i = 0; i < 3; i++)
		if (a->in[i] > most || a->out[i] > most / a->step[i] || a->size[i] > most / a->dil[i] ||
		    a->dil[i] > most || a->pad[i] > most || a->pad_end[i] > most)
			return false;
	return dlb_desc_count(&d->x) <= INT32_MAX && dlb_desc_count(&d->y) <= INT32_MAX;
}

static struct cuda_pool args_of(const struct dlb_pool_desc *d, int n_sp)
{
	const struct dlb_desc *result = d->backward ? &d->x : &d->y;
	struct cuda_pool a = { .count = dlb_desc_count(result),
			       .each = 1,
			       .channels_last = result->layout == DLB_CHANNELS_LAST,
			       .include_pad = d->count_include_pad };
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
	a.narrow = is_narrow(d, &a);
	return a;
}

struct pool_kernel {
	struct dlb_kernel k;
	struct cuda *c;
	cudaKernel_t f;
	int n_in, n_out;
	struct cuda_pool one, runs; /* for single elements, and for runs of channels; runs.each 1: there is no such */
};

static void pool_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	struct pool_kernel *p = (struct pool_kernel *)k;
	struct cuda_pool *a = &p->runs;

	dlb_cuda_operands(&a->p, r, p->n_in, p->n_out);
	if (a->each == 1 || !dlb_cuda_aligned(&a->p, p->n_in, p->n_out)) {
		a = &p->one;
		dlb_cuda_operands(&a->p, r, p->n_in, p->n_out);
	}
	dlb_cuda_launch(p->c, p->f, a, a->count);
}

static struct cuda_pool runs_of(struct cuda_pool a)
{
	if (a.channels_last && a.narrow && a.dim[1] % POOL_RUN == 0) {
		a.each = POOL_RUN;
		a.dim[1] /= POOL_RUN;
		a.count /= POOL_RUN;
	}
	return a;
}

PREPARE(pool)
{
	const int n_sp = d->x.n_dims - 2;
	struct pool_kernel *p;
	cudaKernel_t f;
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
	f = dlb_cuda_find_typed(cuda_of(b), stem, d->x.dtype);
	if (!f)
		return DLB_NO_KERNEL;
	p = dlb_xcalloc(1, sizeof *p);
	*p = (struct pool_kernel){ .k = { .run = pool_run, .free = dlb_cuda_kernel_free, .impl = "cuda" },
				   .c = cuda_of(b),
				   .f = f,
				   .n_in = d->max && d->backward ? 2 : 1,
				   .n_out = d->max && !d->backward ? 2 : 1,
				   .one = args_of(d, n_sp) };
	p->runs = runs_of(p->one);
	*k = &p->k;
	return 0;
}
