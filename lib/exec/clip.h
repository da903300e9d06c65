/* Clipping by the global norm, as torch.nn.utils.clip_grad_norm_: gradients are multiplied by
 * min(1, clip / (norm + 1e-6)).
 *
 * The norm is the root of one sum of squares a parameter, each added in double by the node that has the gradient, summed by
 * the parameter's tensor id. Each of those sums comes from one rank only (the others have 0 there), so the sum over ranks is
 * exact, and the norm has the same bits on any placement. */
#ifndef DLB_EXEC_CLIP_H
#define DLB_EXEC_CLIP_H
#include "exec/engine.h"

struct dlb_clip {
	double norm;			/* largest */
	int n, n_sets, set; double *square;	/* [set][n] of all parameters, by tensor id; whose norm is ours */
	int n_here; int *slot;		/* of those here: where in square */
	struct dlb_kernel **kernel;
	void **gradient;
};
/* gradient[op]: where the gradient of update op lies, NULL: on another node. n_sets: replicas with gradients of their own, each
 * of which has a norm of its own (1: all have the same gradients). Allocated from a; kernels are c's. */
int dlb_clip_init(struct dlb_clip *c, const struct dlb_graph *g, struct dlb_backend *be, double norm, void *const *gradient,
		  int n_sets, int set, struct dlb_arena *a, struct dlb_error *err);
void dlb_clip_release(struct dlb_clip *c);
/* Sums of squares of the gradients here. */
void dlb_clip_here(struct dlb_clip *c);
/* All ranks: the factor for gradients. contributes: false on replicas that hold what another one has told. */
int dlb_clip_scale(struct dlb_clip *c, struct dlb_comm *comm, bool contributes, double *scale, struct dlb_error *err);
#endif
