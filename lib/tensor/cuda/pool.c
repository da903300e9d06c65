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

/* Whether offsets, coordinates and sums of a few of them fit 32 bits. */
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
		const int j = i - (3 - n_sp); /* missing dimensions come first, with size 1 */

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
	return a;
}

struct pool_kernel {
	struct dlb_kernel k;
	struct cuda *c;
	int n_in, n_out;
	cudaKernel_t f, runs_f; /* runs_f: NULL where channels are no runs */
	struct cuda_pool a, runs;
};

static void pool_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	struct pool_kernel *p = (struct pool_kernel *)k;
	struct cuda_operands o = { .scratch = NULL };

	dlb_cuda_operands(&o, r, p->n_in, p->n_out);
	if (p->runs_f && dlb_cuda_aligned(&o, p->n_in, p->n_out)) {
		p->runs.p = o;
		dlb_cuda_launch(p->c, p->runs_f, &p->runs, p->runs.count);
	} else {
		p->a.p = o;
		dlb_cuda_launch(p->c, p->f, &p->a, p->a.count);
	}
}

static cudaKernel_t find_form(struct cuda *c, const char *form, const struct dlb_pool_desc *d)
{
	char stem[48];

	snprintf(stem, sizeof stem, "pool_%s%s%s%s", form, d->max ? "max" : "average",
		 d->backward ? "_grad" : "",
		 !d->max          ? "" :
		 d->pos == DLB_U8 ? "_u8" :
				    "_i32");
	return dlb_cuda_find_typed(c, stem, d->x.dtype);
}

PREPARE(pool)
{
	const int n_sp = d->x.n_dims - 2;
	struct pool_kernel *p;
	struct cuda_pool a;
	int64_t window;
	bool narrow;
	cudaKernel_t f;

	if (n_sp < 1 || n_sp > 3 || (d->max && d->pos != DLB_U8 && d->pos != DLB_I32))
		return DLB_NO_KERNEL;
	if (window_of(d, n_sp, &window, err))
		return -1;
	a = args_of(d, n_sp);
	narrow = is_narrow(d, &a);
	if (!(f = find_form(cuda_of(b), narrow ? "" : "far_", d)))
		return DLB_NO_KERNEL;
	p = dlb_xcalloc(1, sizeof *p);
	*p = (struct pool_kernel){ .k = { .run = pool_run, .free = dlb_cuda_kernel_free, .impl = "cuda" },
				   .c = cuda_of(b),
				   .n_in = d->max && d->backward ? 2 : 1,
				   .n_out = d->max && !d->backward ? 2 : 1,
				   .f = f,
				   .a = a,
				   .runs = a };
	if (narrow && a.channels_last && a.dim[1] % POOL_RUN == 0) {
		p->runs_f = find_form(p->c, "runs_", d);
		p->runs.dim[1] /= POOL_RUN;
		p->runs.count /= POOL_RUN;
	}
	*k = &p->k;
	return 0;
}
