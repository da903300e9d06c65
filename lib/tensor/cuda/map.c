/* Elementwise functions (map.cu). */
#include <stdio.h>

#include "tensor/cuda/cuda.h"
#include "tensor/cuda/map.h"
#include "tensor/loops.h"

/* Sets *wide to d with its bf16 operands as f32. Returns a bit for each of them, by operand of the nest. */
static unsigned widened(const struct dlb_map_desc *d, struct dlb_map_desc *wide)
{
	unsigned narrow = d->out.dtype == DLB_BF16;

	*wide = *d;
	for (int i = 0; i < d->n_in; i++)
		if (d->in[i].dtype == DLB_BF16) {
			narrow |= 2u << i;
			wide->in[i].dtype = DLB_F32;
		}
	if (narrow & 1)
		wide->out.dtype = DLB_F32;
	return narrow;
}

static const char *const names[] = {
#define MAP(name, n, expr) #name,
#include "tensor/map_list.h"
#undef MAP
};

/* The kernel by runs: of this function alone, or of any. NULL: there is none for the type. */
static cudaKernel_t find_runs(struct cuda *c, enum dlb_map_fn fn, enum dlb_dtype type)
{
	char stem[48];
	cudaKernel_t f;

	snprintf(stem, sizeof stem, "map_%s", names[fn]);
	f = dlb_cuda_find_typed(c, stem, type);
	return f ? f : dlb_cuda_find_typed(c, "map_runs", type);
}

PREPARE(map)
{
	struct dlb_map_desc wide;
	struct cuda_map a = { .fn = d->fn, .alpha = d->alpha, .beta = d->beta, .narrow = widened(d, &wide) };
	struct dlb_nest nest;
	enum dlb_dtype of, type;
	struct cuda_launch l = { .n_in = d->n_in, .n_out = 1 };
	const int rc = dlb_map_loops(&wide, &of, &nest, err);

	if (rc)
		return rc;
	type = a.narrow ? DLB_BF16 : of;
	l.f = find_runs(cuda_of(b), d->fn, type);
	a.runs = dlb_cuda_runs(&nest, l.f ? RUN_BYTES / (int)dlb_dtype_bytes(type) : 1);
	if (a.runs.width == 1)
		l.f = dlb_cuda_find_typed(cuda_of(b), "map", type);
	if (!l.f || (a.narrow && of != DLB_F32))
		return DLB_NO_KERNEL;
	l.count = a.runs.nest.count;
	dlb_cuda_simple(b, &l, &a, sizeof a, k);
	return 0;
}
