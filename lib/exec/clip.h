/* Factors for gradients that depend on all gradients, on whatever nodes they are.
 *
 * Clipping by the global norm, as torch.nn.utils.clip_grad_norm_: gradients are multiplied by min(1, clip /
 * (norm + 1e-6)).
 *
 * K-FAC's trust region: preconditioned gradients u of gradients g are multiplied by min(1, sqrt(kl_clip /
 * (lr^2 sum u . g))). The bound limits the KL divergence between the model's predictions before and after a
 * step (Ba, Grosse, Martens, ICLR 2017, section 5; the constant 0.001 is that of kfac_pytorch and KAISA).
 *
 * Each factor is made of one number per parameter (layer). The node that has the parameter adds it up in
 * double; the numbers are summed in the order of parameter ids. Each number comes from one rank only (the
 * others have 0), so the sum over ranks is exact and has the same bits on any placement. Where several steps
 * are under way (asynchronous schedules), each has its own sums, and no rank waits while they travel. */
#ifndef DLB_EXEC_CLIP_H
#define DLB_EXEC_CLIP_H
#include "exec/engine.h"

/* One number per parameter, of which each rank has some. n_sets: replicas with numbers of their own (1: all
 * have the same); set: this rank's. */
struct dlb_partial_sums { int n, n_sets, set; double *part; };		/* part[set][n] */
/* Sums over all ranks; collective. contributes: false on replicas whose numbers another replica
 * contributes. */
int dlb_partial_sums_add(struct dlb_partial_sums *t, struct dlb_comm *comm, bool contributes, double *sum,
			 struct dlb_error *err);

struct dlb_clip {
	double norm;			/* largest */
	int n_here; int *slot;	/* n_here parameters are on this node; slot: their numbers in `square` */
	struct dlb_kernel **kernel;
	struct dlb_gradient_places *gradient;
	int *update;			/* [n_here] the update op of each */
	double *early;			/* [n_here] sums of squares of gradients that leave their places */
	/* [step mod n_ways]; [parameter] by tensor id */
	struct { struct dlb_partial_sums square; struct dlb_request sum; } *way; int n_ways;
};
/* The gradient of an update. In step s it lies at p + (s mod n) * stride. early: other arrays may lie there
 * when the norm is taken (dlb_clip_early). */
struct dlb_gradient_places { char *p; size_t stride; int n; bool early; };
/* n_sets: replicas with gradients of their own, each clipped by its own norm (1: all have the same
 * gradients); set: this rank's. steps: that may be under way. */
struct dlb_clip_choice { double norm; int n_sets, set, steps; };
/* gradient[op]: of update op, p NULL: on another node. Allocated from a; kernels are c's. */
int dlb_clip_init(struct dlb_clip *c, const struct dlb_graph *g, struct dlb_backend *be,
		  const struct dlb_clip_choice *choice, const struct dlb_gradient_places *gradient,
		  struct dlb_arena *a, struct dlb_error *err);
void dlb_clip_release(struct dlb_clip *c);
/* Computes the sum of squares of the gradient of that update op, which leaves its place before the norm is
 * taken. */
void dlb_clip_early(struct dlb_clip *c, int update, int64_t step);
/* Computes the sums of squares of this node's gradients. */
void dlb_clip_here(struct dlb_clip *c, int64_t step);
/* Computes the factor for gradients; collective. contributes: false on replicas whose numbers another replica
 * contributes. */
int dlb_clip_scale(struct dlb_clip *c, struct dlb_comm *comm, bool contributes, int64_t step, double *scale,
		   struct dlb_error *err);
/* The same in two halves, step by step in one order on all ranks. norms: all ranks, NULL: alone. *waited_s
 * grows. */
void dlb_clip_start(struct dlb_clip *c, struct dlb_comm *comm, struct dlb_subset *norms, bool contributes,
		    int64_t step);
int dlb_clip_wait(struct dlb_clip *c, struct dlb_comm *comm, int64_t step, double *scale, double *waited_s,
		  struct dlb_error *err);

struct dlb_trust_region {
	double kl_clip;			/* 0: no trust region */
	struct dlb_partial_sums along;		/* [layer], by the op of its weight's update: u . g */
	int *update;			/* [along.n] that op; -1: on another node */
};
void dlb_trust_region_init(struct dlb_trust_region *t, const struct dlb_graph *g, double kl_clip,
			   const int *placement, int node, struct dlb_arena *a);
/* Computes the factor for preconditioned gradients; collective. rate: lr, times the other factors of
 * gradients. kfac: this node's layers, which count the step when the factor is less than 1. */
int dlb_trust_region_scale(struct dlb_trust_region *t, struct dlb_kfac *kfac, struct dlb_comm *comm,
			   bool contributes, double rate, double *scale, struct dlb_error *err);
#endif
