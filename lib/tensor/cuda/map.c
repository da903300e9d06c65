/* Elementwise functions (map.cu). */
#include "tensor/cuda/cuda.h"
#include "tensor/cuda/map.h"
#include "tensor/loops.h"

/* d with its bf16 operands as f32; returns which they are, by operand of the nest. */
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

PREPARE(map)
{
	struct dlb_map_desc wide;
	struct cuda_map a = { .fn = d->fn, .alpha = d->alpha, .beta = d->beta, .narrow = widened(d, &wide) };
	struct dlb_nest nest;
	enum dlb_dtype of;
	struct cuda_launch l = { .n_in = d->n_in, .n_out = 1 };
	const int rc = dlb_map_loops(&wide, &of, &nest, err);

	if (rc)
		return rc;
	l.f = dlb_cuda_find_typed(cuda_of(b), "map", a.narrow ? DLB_BF16 : of);
	if (!l.f || (a.narrow && of != DLB_F32))
		return DLB_NO_KERNEL;
	a.nest = dlb_cuda_nest(&nest);
	l.count = dlb_desc_count(&d->out);
	dlb_cuda_simple(b, &l, &a, sizeof a, k);
	return 0;
}
