/* Factors for gradients that follow from all of them, on whatever nodes they are.
 *
 * Clipping by the global norm, as torch.nn.utils.clip_grad_norm_: gradients are multiplied by
 * min(1, clip / (norm + 1e-6)).
 *
 * K-FAC's trust region: preconditioned gradients u of gradients g are multiplied by
 * min(1, sqrt(kl_clip / (lr^2 sum u . g))): about how far, in the KL divergence of its predictions, a step may take the model
 * (Ba, Grosse, Martens, ICLR 2017, section 5; the constant 0.001 is that of kfac_pytorch and KAISA).
 *
 * Each is made of one number a parameter (layer), added in double by the node that has it, summed in the order of their ids.
 * Each of those comes from one rank only (the others have 0 there), so the sum over ranks is exact, and has the same bits
 * on any placement. Where several steps are under way (asynchronous schedules), each has sums of its own, and nobody waits
 * while they travel. */
#ifndef DLB_EXEC_CLIP_H
#define DLB_EXEC_CLIP_H
#include "exec/engine.h"

/* Numbers of which each rank has some. n_sets: replicas that have numbers of their own (1: all have the same), ours is `set`. */
struct dlb_partial_sums { int n, n_sets, set; double *part; };		/* part[set][n] */
/* The sum of ours over all ranks, which call it together. contributes: false on replicas that hold what another one has told. */
int dlb_partial_sums_add(struct dlb_partial_sums *t, struct dlb_comm *comm, bool contributes, double *sum, struct dlb_error *err);

struct dlb_clip {
	double norm;			/* largest */
	int n_here; int *slot;		/* of those here: where in square */
	struct dlb_kernel **kernel;
	struct dlb_gradient_places *gradient;
	struct { struct dlb_partial_sums square; struct dlb_request sum; } *way; int n_ways;	/* [step mod n_ways]; of all parameters, by tensor id */
};
/* Where the gradient of an update lies: of step s at p + s mod n * stride. */
struct dlb_gradient_places { char *p; size_t stride; int n; };
/* gradient[op]: of update op, p NULL: on another node. n_sets: replicas with gradients of their own, each of which has a norm of
 * its own (1: all have the same gradients). steps: that may be under way. Allocated from a; kernels are c's. */
int dlb_clip_init(struct dlb_clip *c, const struct dlb_graph *g, struct dlb_backend *be, double norm, const struct dlb_gradient_places *gradient,
		  int n_sets, int set, int steps, struct dlb_arena *a, struct dlb_error *err);
void dlb_clip_release(struct dlb_clip *c);
/* Sums of squares of the gradients here. */
void dlb_clip_here(struct dlb_clip *c, int64_t step);
/* All ranks: the factor for gradients. contributes: false on replicas that hold what another one has told. */
int dlb_clip_scale(struct dlb_clip *c, struct dlb_comm *comm, bool contributes, int64_t step, double *scale, struct dlb_error *err);
/* The same in two halves, step by step in one order on all ranks (norms: all of them, NULL: alone); *waited_s grows. */
void dlb_clip_start(struct dlb_clip *c, struct dlb_comm *comm, struct dlb_subset *norms, bool contributes, int64_t step);
int dlb_clip_wait(struct dlb_clip *c, struct dlb_comm *comm, int64_t step, double *scale, double *waited_s, struct dlb_error *err);

struct dlb_trust_region {
	double kl_clip;			/* 0: no trust region */
	struct dlb_partial_sums along;		/* of all layers, by the op of their weight's update: u . g */
	int *update;			/* [along.n] that op; -1: it is on another node */
};
void dlb_trust_region_init(struct dlb_trust_region *t, const struct dlb_graph *g, double kl_clip, const int *placement, int node,
			   struct dlb_arena *a);
/* All ranks: the factor for what was preconditioned. rate: lr, times what gradients are multiplied by otherwise. kfac: the
 * layers here, which count it when the factor is less than 1. */
int dlb_trust_region_scale(struct dlb_trust_region *t, struct dlb_kfac *kfac, struct dlb_comm *comm, bool contributes, double rate, double *scale,
		    struct dlb_error *err);
#endif
