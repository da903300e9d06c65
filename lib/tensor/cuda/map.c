/* Elementwise functions (map.cu). */
#include "tensor/cuda/cuda.h"
#include "tensor/cuda/map.h"
#include "tensor/loops.h"

PREPARE(map)
{
	struct cuda_map a = { .fn = d->fn, .alpha = d->alpha, .beta = d->beta };
	struct dlb_nest nest;
	enum dlb_dtype of;
	struct cuda_launch l = { .n_in = d->n_in, .n_out = 1 };
	const int rc = dlb_map_loops(d, &of, &nest, err);

	if (rc)
		return rc;
	l.f = dlb_cuda_find_typed(cuda_of(b), "map", of);
	if (!l.f)
		return DLB_NO_KERNEL;
	a.nest = dlb_cuda_nest(&nest);
	l.count = dlb_desc_count(&d->out);
	dlb_cuda_simple(b, &l, &a, sizeof a, k);
	return 0;
}
