/* Rows taken from tables, and their gradients (gather.cu). */
#include <stdio.h>

#include "tensor/cuda/cuda.h"
#include "tensor/cuda/gather.h"
#include "util/mem.h"

struct gather_kernel { struct dlb_kernel k; struct cuda *c; struct cuda_gather a; cudaKernel_t f; size_t bytes; bool fast; };

static void gather_grad_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	struct gather_kernel *g = (struct gather_kernel *)k;

	dlb_cuda_operands(&g->a.p, r, 2, 1);
	dlb_cuda_note(g->c, "cudaMemsetAsync", cudaMemsetAsync(r->out[0], 0, g->bytes, g->c->stream));
	if (g->fast)
		dlb_cuda_launch(g->c, g->f, &g->a, g->a.d.outer * g->a.d.n_index * g->a.d.width);
	else
		dlb_cuda_launch_rows(g->c, g->f, &g->a, g->a.d.outer * g->a.d.n_index);
}

static int prepare_gradient(struct dlb_backend *b, const struct cuda_gather *a, struct dlb_kernel **k)
{
	const bool fast = b->numerics.fast;
	cudaKernel_t f = dlb_cuda_find_typed(cuda_of(b), fast ? "gather_grad_fast" : "gather_grad", a->d.dtype);
	struct gather_kernel *g;

	if (!f)
		return DLB_NO_KERNEL;
	g = dlb_xcalloc(1, sizeof *g);
	*g = (struct gather_kernel){ .k = { .run = gather_grad_run, .free = dlb_cuda_kernel_free, .impl = "cuda" },
				     .c = cuda_of(b),
				     .a = *a,
				     .f = f,
				     .fast = fast,
				     .bytes = (size_t)(a->d.outer * a->d.rows * a->d.width) *
					      dlb_dtype_bytes(a->d.dtype) };
	*k = &g->k;
	return 0;
}

PREPARE(gather)
{
	const struct cuda_gather a = { .d = *d };
	struct cuda_launch l = { .n_in = 2, .n_out = 1, .count = d->outer * d->n_index * d->width };
	char name[32];

	if (d->index != DLB_I32 && d->index != DLB_I64)
		return DLB_NO_KERNEL;
	if (d->backward)
		return prepare_gradient(b, &a, k);
	snprintf(name, sizeof name, "gather_%zu", dlb_dtype_bytes(d->dtype));
	if (!(l.f = dlb_cuda_find(cuda_of(b), name, err)))
		return -1;
	dlb_cuda_simple(b, &l, &a, sizeof a, k);
	return 0;
}
