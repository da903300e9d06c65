/* Loop nests over strided operands, for the kernels of any back end. */
#ifndef DLB_TENSOR_NEST_H
#define DLB_TENSOR_NEST_H
#include "tensor/tensor.h"

/* A loop nest in canonical form: loops of length 1 dropped, neighbours merged if the strides of every operand
 * allow it, the loop with the smallest strides (first operand first) innermost. stride[operand][loop]. */
#define DLB_NEST_OPERANDS 4
struct dlb_nest {
	int n_dims, n_operands;
	int64_t dim[DLB_MAX_DIMS];
	int64_t stride[DLB_NEST_OPERANDS][DLB_MAX_DIMS];
};
void dlb_nest_simplify(struct dlb_nest *n);
/* Number of iterations of loops [0, n_loops); and the odometer (see dlb_nest_step) at iteration `index`. */
static inline int64_t dlb_nest_count(const struct dlb_nest *n, int n_loops)
{
	int64_t count = 1;

	for (int i = 0; i < n_loops; i++)
		count *= n->dim[i];
	return count;
}
static inline void dlb_nest_seek(const struct dlb_nest *n, int n_loops, int64_t index, int64_t *pos, int64_t *at)
{
	for (int i = n_loops - 1; i >= 0; i--) {
		pos[i] = index % n->dim[i];
		index /= n->dim[i];
		for (int o = 0; o < n->n_operands; o++)
			at[o] += n->stride[o][i] * pos[i];
	}
}
/* Steps the odometer over loops [0, n_loops): pos[] counts, at[] are the operands' offsets in
 * elements. False: it wrapped around. */
static inline bool dlb_nest_step(const struct dlb_nest *n, int n_loops, int64_t *pos, int64_t *at)
{
	for (int i = n_loops - 1; i >= 0; i--) {
		for (int o = 0; o < n->n_operands; o++)
			at[o] += n->stride[o][i];
		if (++pos[i] < n->dim[i])
			return true;
		for (int o = 0; o < n->n_operands; o++)
			at[o] -= n->stride[o][i] * n->dim[i];
		pos[i] = 0;
	}
	return false;
}
#endif
