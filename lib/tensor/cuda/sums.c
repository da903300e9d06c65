/* Sums of gradients, and the sum of their squares (sums.cu). */
#include <stdlib.h>

#include "tensor/cuda/cuda.h"
#include "tensor/cuda/sums.h"
#include "util/mem.h"

/* ---- acc = x, acc += x ---- */
struct first_kernel { struct dlb_kernel k; struct cuda *c; size_t bytes; };

static void first_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	struct first_kernel *f = (struct first_kernel *)k;

	if (f->bytes && r->out[0] != r->in[0])
		dlb_cuda_note(f->c, "cudaMemcpyAsync",
			      cudaMemcpyAsync(r->out[0], r->in[0], f->bytes, cudaMemcpyDeviceToDevice,
					      f->c->stream));
}

PREPARE(accumulate)
{
	const struct cuda_sums args = { .count = d->count };
	struct cuda_launch l = { .n_in = 1, .n_out = 1, .count = d->count };
	struct first_kernel *f;

	(void)err;
	if (!d->first) {
		l.f = dlb_cuda_find_typed(cuda_of(b), "accumulate", d->dtype);
		if (!l.f)
			return DLB_NO_KERNEL;
		dlb_cuda_simple(b, &l, &args, sizeof args, k);
		return 0;
	}
	f = dlb_xcalloc(1, sizeof *f);
	f->c = cuda_of(b);
	f->bytes = (size_t)d->count * dlb_dtype_bytes(d->dtype);
	f->k = (struct dlb_kernel){ .run = first_run, .free = dlb_cuda_kernel_free, .impl = "cuda" };
	*k = &f->k;
	return 0;
}

/* ---- sum of squares ---- */
enum { LEAST_OF_PART = 1 << 13, MOST_PARTS = 1 << 10 };		/* elements; blocks */

/* The result goes to host memory, so a run waits for it. The kernel owns its device memory, so callers need
 * not give scratch. */
struct square_sum_kernel {
	struct dlb_kernel k;
	struct cuda *c;
	struct cuda_sums args;
	cudaKernel_t f, join;
	void *memory;			/* 1 + parts doubles */
};

static void square_sum_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	struct square_sum_kernel *s = (struct square_sum_kernel *)k;

	s->args.p.in[0] = r->in[0];
	dlb_cuda_launch_rows(s->c, s->f, &s->args, s->args.parts);
	dlb_cuda_launch_rows(s->c, s->join, &s->args, 1);
	dlb_cuda_note(s->c, "cudaMemcpyAsync", cudaMemcpyAsync(r->out[0], s->memory, sizeof(double),
							       cudaMemcpyDeviceToHost, s->c->stream));
	dlb_cuda_note(s->c, "cudaStreamSynchronize", cudaStreamSynchronize(s->c->stream));
}

static void square_sum_free(struct dlb_kernel *k)
{
	struct square_sum_kernel *s = (struct square_sum_kernel *)k;

	if (s->memory)
		dlb_cuda_note(s->c, "cudaFree", cudaFree(s->memory));
	free(s);
}

PREPARE(square_sum)
{
	struct cuda *c = cuda_of(b);
	cudaKernel_t f = dlb_cuda_find_typed(c, "square_sum", d->dtype);
	struct square_sum_kernel *s;
	cudaError_t status;
	int64_t parts = (d->count + LEAST_OF_PART - 1) / LEAST_OF_PART;

	if (!f)
		return DLB_NO_KERNEL;
	s = dlb_xcalloc(1, sizeof *s);
	s->c = c;
	s->k = (struct dlb_kernel){ .run = square_sum_run, .free = square_sum_free, .impl = "cuda" };
	s->f = f;
	parts = parts > MOST_PARTS ? MOST_PARTS : parts;
	s->args.count = d->count;
	s->args.chunk = parts ? (d->count + parts - 1) / parts : 0;
	s->args.parts = parts ? (d->count + s->args.chunk - 1) / s->args.chunk : 0;
	s->join = dlb_cuda_find(c, "square_sum_join", err);
	if (!s->join) {
		square_sum_free(&s->k);
		return -1;
	}
	status = cudaMalloc(&s->memory, (size_t)(1 + s->args.parts) * sizeof(double));
	if (status != cudaSuccess) {
		square_sum_free(&s->k);
		return dlb_fail(err, NULL, "device cuda:%d: no memory for a sum of squares: %s", c->device,
				cudaGetErrorString(status));
	}
	s->args.p.scratch = s->memory;
	*k = &s->k;
	return 0;
}
