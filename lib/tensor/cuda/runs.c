/* Nests by runs (runs.h). */
#include "tensor/cuda/cuda.h"

/* Whether the outer loops move operand o by multiples of the width. */
static bool is_whole(const struct dlb_nest *n, int o, int width)
{
	bool whole = true;

	for (int i = 0; i + 1 < n->n_dims; i++)
		whole = whole && n->stride[o][i] % width == 0;
	return whole;
}

struct cuda_runs dlb_cuda_runs(const struct dlb_nest *n, int width)
{
	const int last = n->n_dims - 1;
	const struct cuda_nest elements = dlb_cuda_nest(n);
	const struct cuda_runs by_element = { .nest = elements, .count = elements.count, .width = 1 };
	struct cuda_runs r = { .nest = elements, .count = elements.count, .width = width };

	if (width == 1 || last < 0 || n->stride[0][last] != 1 || (last && n->dim[last] % width))
		return by_element;
	for (int o = 0; o < n->n_operands; o++) {
		const int64_t stride = n->stride[o][last];

		if (stride != 0 && stride != 1)
			return by_element;
		r.dense |= (unsigned)stride << o;
		r.whole |= (unsigned)(stride && is_whole(n, o, width)) << o;
		r.nest.stride[o][last] *= width;
	}
	r.nest.dim[last] = (n->dim[last] + width - 1) / width;
	r.nest.count = 1;
	for (int i = 0; i <= last; i++)
		r.nest.count *= r.nest.dim[i];
	return r.nest.count <= INT32_MAX ? r : by_element;
}
