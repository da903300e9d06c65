/* Factors for gradients that depend on the gradients of all nodes.
 *
 * Clipping by the global norm, as torch.nn.utils.clip_grad_norm_: gradients are multiplied by min(1, clip /
 * (norm + 1e-6)), where norm is that of all gradients together.
 *
 * K-FAC's trust region: preconditioned gradients u of gradients g are multiplied by min(1, sqrt(kl_clip /
 * (lr^2 sum u . g))). The bound limits the KL divergence between the model's predictions before and after a
 * step (Ba, Grosse, Martens, ICLR 2017, section 5; the constant 0.001 is that of kfac_pytorch and KAISA).
 *
 * Each factor is computed from one number per parameter (layer). The node that has the parameter computes its
 * number in double; the numbers are summed in the order of parameter ids. Each number comes from one rank
 * only (the others have 0), so the sum over ranks is exact and has the same bits for any placement. If
 * several steps are in flight (asynchronous schedules), each has its own sums, and no rank waits while they
 * are exchanged. */
#ifndef DLB_EXEC_CLIP_H
#define DLB_EXEC_CLIP_H
#include "exec/engine.h"

/* One number per parameter; each rank computes some of them. n_sets: replicas with numbers of their own (1:
 * all have the same numbers); set: this rank's set. */
struct dlb_partial_sums { int n, n_sets, set; double *part; };		/* part[set][n] */
/* Sums the numbers over all ranks, then over the parameters of this rank's set; collective. contributes:
 * false on replicas whose numbers another replica contributes. */
int dlb_partial_sums_add(struct dlb_partial_sums *t, struct dlb_comm *comm, bool contributes, double *sum,
			 struct dlb_error *err);

struct dlb_clip {
	double norm;			/* largest norm without clipping */
	int n_here; int *slot;	/* n_here parameters are on this node; slot: their indices in `square` */
	struct dlb_kernel **kernel;
	struct dlb_gradient_places *gradient;
	int *update;			/* [n_here] the update op of each */
	/* [n_here] sums of squares of gradients whose memory is reused before the norm is computed */
	double *early;
	/* [step mod n_ways] square: sums of squares, [parameter] in the order of tensor ids; sum: their
	 * exchange */
	struct { struct dlb_partial_sums square; struct dlb_request sum; } *way; int n_ways;
};
/* The gradient of an update. In step s it lies at p + (s mod n) * stride. early: its memory may hold other
 * arrays when the norm is computed (dlb_clip_early). */
struct dlb_gradient_places { char *p; size_t stride; int n; bool early; };
/* n_sets: replicas with gradients of their own, each clipped by its own norm (1: all have the same
 * gradients); set: this rank's set. steps: the number of steps that may be in flight. */
struct dlb_clip_choice { double norm; int n_sets, set, steps; };
/* gradient[op]: the gradient of update op; p NULL: on another node. Arrays are allocated from a; c owns the
 * kernels. */
int dlb_clip_init(struct dlb_clip *c, const struct dlb_graph *g, struct dlb_backend *be,
		  const struct dlb_clip_choice *choice, const struct dlb_gradient_places *gradient,
		  struct dlb_arena *a, struct dlb_error *err);
void dlb_clip_release(struct dlb_clip *c);
/* Computes the sum of squares of the gradient of op `update`, if its memory is reused before the norm is
 * computed. */
void dlb_clip_early(struct dlb_clip *c, int update, int64_t step);
/* Computes the sums of squares of this node's gradients. */
void dlb_clip_here(struct dlb_clip *c, int64_t step);
/* Computes the factor for gradients; collective. contributes: false on replicas whose numbers another replica
 * contributes. */
int dlb_clip_scale(struct dlb_clip *c, struct dlb_comm *comm, bool contributes, int64_t step, double *scale,
		   struct dlb_error *err);
/* dlb_clip_scale in two halves; all ranks call them for steps in the same order. norms: all ranks; NULL:
 * there is only this rank. Adds the seconds of waiting to *waited_s. */
void dlb_clip_start(struct dlb_clip *c, struct dlb_comm *comm, struct dlb_subset *norms, bool contributes,
		    int64_t step);
int dlb_clip_wait(struct dlb_clip *c, struct dlb_comm *comm, int64_t step, double *scale, double *waited_s,
		  struct dlb_error *err);

struct dlb_trust_region {
	double kl_clip;			/* 0: no trust region */
	/* [layer], in the order of the update ops of the layers' weights: u . g */
	struct dlb_partial_sums along;
	int *update;			/* [along.n] the layer's update op; -1: on another node */
};
void dlb_trust_region_init(struct dlb_trust_region *t, const struct dlb_graph *g, double kl_clip,
			   const int *placement, int node, struct dlb_arena *a);
/* Computes the factor for preconditioned gradients; collective. rate: lr, times the other factors of
 * gradients. kfac: this node's layers; it counts the step if the factor is less than 1. */
int dlb_trust_region_scale(struct dlb_trust_region *t, struct dlb_kfac *kfac, struct dlb_comm *comm,
			   bool contributes, double rate, double *scale, struct dlb_error *err);
#endif
