/* Rows taken from tables, and their gradients (gather.cu). */
#include <stdio.h>
#include <stdlib.h>

#include "tensor/cuda/columns.h"
#include "tensor/cuda/cuda.h"
#include "tensor/cuda/gather.h"
#include "util/mem.h"

/* Least indices and row width for which indices are sorted. Fewer indices are compared each with all others;
 * for narrower rows, the scratch of the sort would be as large as the table. */
enum { LEAST_SORTED = 512, LEAST_SORTED_WIDTH = 8, SORT_STEPS = 4 };

struct gather_kernel {
	struct dlb_kernel k;
	struct cuda *c;
	struct cuda_gather a;
	cudaKernel_t f, sort[SORT_STEPS];
	size_t bytes;
	bool fast, sorted;
};

static void sort_run(struct gather_kernel *g)
{
	dlb_cuda_note(g->c, "cudaMemsetAsync",
		      cudaMemsetAsync(g->a.p.scratch, 0, dlb_cuda_gather_zeroed(&g->a.d), g->c->stream));
	for (int i = 0; i < SORT_STEPS; i++)
		dlb_cuda_launch(g->c, g->sort[i], &g->a, g->a.d.outer * g->a.d.n_index);
}

static void gather_grad_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	struct gather_kernel *g = (struct gather_kernel *)k;
	const int64_t n = g->a.d.outer * g->a.d.n_index, run = dlb_cuda_run_of(g->a.d.dtype);

	dlb_cuda_operands(&g->a.p, r, 2, 1);
	g->a.aligned = g->a.d.width % run == 0 &&
		       dlb_cuda_aligned(&(struct cuda_operands){ .in = { r->in[0] }, .out = { r->out[0] } },
					1, 1);
	dlb_cuda_note(g->c, "cudaMemsetAsync", cudaMemsetAsync(r->out[0], 0, g->bytes, g->c->stream));
	if (g->sorted)
		sort_run(g);
	if (g->fast)
		dlb_cuda_launch(g->c, g->f, &g->a, n * g->a.d.width);
	else
		dlb_cuda_launch_rows(g->c, g->f, &g->a, n);
}

static bool is_sorted(const struct dlb_gather_desc *d)
{
	const int64_t n = d->outer * d->n_index;

	return n >= LEAST_SORTED && n <= INT32_MAX && d->outer * d->rows <= INT32_MAX &&
	       d->width >= LEAST_SORTED_WIDTH;
}

static int prepare_gradient(struct dlb_backend *b, const struct cuda_gather *a, struct dlb_kernel **k,
			    struct dlb_error *err)
{
	static const char *const step[SORT_STEPS] = { "gather_count", "gather_base", "gather_list",
						      "gather_rank" };
	const bool fast = b->numerics.fast, sorted = !fast && is_sorted(&a->d);
	cudaKernel_t f = dlb_cuda_find_typed(cuda_of(b),
					     fast   ? "gather_grad_fast" :
					     sorted ? "gather_grad_sorted" :
						      "gather_grad",
					     a->d.dtype);
	struct gather_kernel *g;

	if (!f)
		return DLB_NO_KERNEL;
	g = dlb_xcalloc(1, sizeof *g);
	*g = (struct gather_kernel){
		.k = { .run = gather_grad_run, .free = dlb_cuda_kernel_free, .impl = "cuda" },
		.c = cuda_of(b),
		.a = *a,
		.f = f,
		.fast = fast,
		.sorted = sorted,
		.bytes = (size_t)(a->d.outer * a->d.rows * a->d.width) * dlb_dtype_bytes(a->d.dtype)
	};
	if (sorted)
		g->k.scratch_bytes = dlb_cuda_gather_scratch(&a->d);
	for (int i = 0; sorted && i < SORT_STEPS; i++)
		if (!(g->sort[i] = dlb_cuda_find(g->c, step[i], err))) {
			free(g);
			return -1;
		}
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
		return prepare_gradient(b, &a, k, err);
	snprintf(name, sizeof name, "gather_%zu", dlb_dtype_bytes(d->dtype));
	if (!(l.f = dlb_cuda_find(cuda_of(b), name, err)))
		return -1;
	dlb_cuda_simple(b, &l, &a, sizeof a, k);
	return 0;
}
