/* The cost model: what each op would take on each kind of device, what each transfer would take, and
 * what each tensor occupies.
 *
 * Op times come from the profile where measured (linear interpolation between batch sizes, per node
 * kind), else from a roofline: launch + max(flop / (peak * e), bytes / (bandwidth * e)) with
 * efficiencies e per class of work, fitted by least squares to the measured ops (Williams, Waterman,
 * Patterson, CACM 52(4), 2009). An op that was measured on another kind is that measurement times
 * the ratio of the two kinds' rooflines, so that what is peculiar to the op is kept.
 *
 * Times are of plain SGD's updates; dlb_cost_set_optimizer scales updates by memory traffic. */
#ifndef DLB_COST_COST_H
#define DLB_COST_COST_H
#include "cluster/cluster.h"
#include "cost/profile.h"

/* One fitted roofline: a kind of device and a class of work. */
struct dlb_cost_fit {
	const char *kind, *work;
	int n;					/* samples: signatures x batch sizes */
	double launch_s, flop_efficiency, bytes_efficiency;
	double median_error, blind_error;	/* relative: on its samples; on each signature when fitted without it */
	const char *worst;			/* type of the op that fits worst */
	double worst_error;
};
/* What a node's buffers are for, and how many bytes of each lie in which of the memories that it names. Activations are
 * the arena: all that ops make and messages bring, and scratch. State: the optimizer's, gradient sums, what is packed for sums. */
enum dlb_buffers { DLB_BUF_WEIGHTS, DLB_BUF_STATE, DLB_BUF_ACTIVATIONS, DLB_N_BUFFERS };
extern const char *const dlb_buffers_names[DLB_N_BUFFERS];
struct dlb_memory_use { double bytes[DLB_MAX_MEMORIES][DLB_N_BUFFERS]; };
struct dlb_cost {
	struct dlb_arena arena;
	int n_ops, n_kinds, n_batches;
	int64_t *batch;				/* descending */
	double *op_s;				/* [kind][op][batch]; INFINITY: no kernel */
	bool *measured;				/* [kind][op] */
	double *scratch_bytes, *packed_bytes, *workspace_bytes;	/* [kind][op] */
	double *output_s;			/* [op] the port model's seconds for its output, given; NAN: latency + bytes/bandwidth */
	double *resident_bytes;			/* [op] all that it occupies, given; NAN: the memory model's own */
	double *accumulate_Bps;			/* [kind]: summing gradients, packing: memory traffic per second */
	double *fit_error;			/* [kind]: median relative error of the roofline on the measured ops; NAN: none */
	double *profile_step_s;			/* [kind]: a whole step as profiled, NAN: not; for -v */
	struct dlb_cost_fit *fit; int n_fits;
	double update_scale;			/* times of update ops are multiplied by this (dlb_cost_set_optimizer) */
	double inverse_every;			/* K-FAC: steps from one inversion to the next; 0: another optimizer */
	double *matrix_flops;			/* [kind] FLOP/s of the fastest large op there; for K-FAC's matrices */
	const struct dlb_cluster *cluster;	/* borrowed */
	const struct dlb_graph *graph;		/* borrowed */
};
/* profile may be NULL (roofline with default efficiencies). Borrows graph and cluster. */
int dlb_cost_fit(struct dlb_cost *c, const struct dlb_graph *g, const struct dlb_profile *p,
		 const struct dlb_cluster *cl, struct dlb_error *err);
/* The same costs without fit[], how well the rooflines fit: for searches that price many graphs. */
int dlb_cost_estimate(struct dlb_cost *c, const struct dlb_graph *g, const struct dlb_profile *p,
		      const struct dlb_cluster *cl, struct dlb_error *err);
/* Takes the arrays per kind, op and batch, zeroed, once n_ops, n_kinds and n_batches are known. */
void dlb_cost_make_arrays(struct dlb_cost *c);
void dlb_cost_release(struct dlb_cost *c);
json_t *dlb_cost_write(const struct dlb_cost *c);
/* Checks the section's inputs; sets the optimizer of the document's run section. */
int dlb_cost_read(const struct dlb_doc *d, const struct dlb_graph *g, const struct dlb_cluster *cl,
		  struct dlb_cost *c, struct dlb_error *err);
/* Updates cost what this row of dlb_optimizers[] moves through memory, against plain SGD; those of K-FAC's layers (of a
 * bound graph) what preconditioning takes too, with the usual inverse_every, which may be set after. May be called again. */
void dlb_cost_set_optimizer(struct dlb_cost *c, int rule);
/* K-FAC: seconds on a kind of what an update of a layer's weight does to gradients, once a step, inversions shared out
 * (kfac.c). factored: what is inverted comes as its Cholesky factor. 0 of other updates. */
double dlb_cost_precondition_s(const struct dlb_cost *c, int update, int kind, bool factored);
/* Of summing its factor k for n samples. */
double dlb_cost_moment_s(const struct dlb_cost *c, int update, int k, int kind, int64_t n);
/* Seconds of op for n samples on a kind (piecewise linear in n, through the fixed part below the least
 * measured size); and on a node (divided by its speed). INFINITY: no kernel. */
double dlb_cost_kind_s(const struct dlb_cost *c, int op, int kind, double n);
double dlb_cost_op_s(const struct dlb_cost *c, int op, int node, double n);
/* Bytes that op moves to and from buffers of each kind. */
void dlb_cost_traffic(const struct dlb_cost *c, int op, double n, double bytes[DLB_N_BUFFERS]);
/* Where the node names memories, no op takes less time than what it moves to and from any one of them, at the node's share
 * of that memory and of the link to it. use NULL (as in dlb_cost_op_s): all lie in the fastest. */
double dlb_cost_use_s(const struct dlb_cost *c, int op, int node, double n, const struct dlb_memory_use *use);
/* Seconds on a node of kind (of speed 1) to make (first) or add to the sum of tensor t, a gradient, over micro-batches. Adding
 * reads two and writes one of its size, as sgd's update does, so it takes what that was measured to take: where caches hold a
 * gradient that is several times faster than memory. What no update reads moves at accumulate_Bps. */
double dlb_cost_accumulate_s(const struct dlb_cost *c, int t, double n, int kind, bool first);
double dlb_cost_xfer_s(const struct dlb_cost *c, double bytes, int src, int dst);
/* Bytes that stay on a node for owning weight tensor t: weight + gradient sum + n_state states, and K-FAC's factors where the
 * graph is bound. */
double dlb_cost_weight_bytes(const struct dlb_graph *g, int t, int n_state);

/* Communication inside one op that is split evenly over k nodes, in seconds:
 *   DLB_SPLIT_OUTPUT   each makes 1/k of the output: all get the input, the parts are brought together
 *                      (ring: (k-1)/k of the output past every node)
 *   DLB_SPLIT_SUM      each takes 1/k of what is summed over: the partial outputs are added up and
 *                      everyone gets the sum (ring allreduce: 2 (k-1)/k of the output)
 * The slowest route between neighbours of the ring sets the pace. 0 for k < 2. */
enum dlb_split { DLB_SPLIT_OUTPUT, DLB_SPLIT_SUM };
double dlb_cost_split_s(const struct dlb_cost *c, int op, int64_t n, const int *node, int k, enum dlb_split how);
/* Sums over an op's tensors at n samples: all present inputs, all outputs. */
double dlb_cost_in_bytes(const struct dlb_graph *g, int op, int64_t n);
double dlb_cost_out_bytes(const struct dlb_graph *g, int op, int64_t n);
void dlb_cost_print_fit(const struct dlb_cost *c, FILE *f);	/* what -v shows */

/* ---- the roofline (fit.c) ---- */
struct dlb_roofline { double launch_s, flop_s, byte_s; };	/* seconds per FLOP and per byte, efficiencies included */
double dlb_roofline_s(const struct dlb_roofline *r, double flop, double bytes);
/* Least squares of relative errors over n samples; weight 0 leaves one out. What the samples do not
 * determine (no sample bound by memory, say) stays as *r has it. */
void dlb_roofline_fit(struct dlb_roofline *r, const double *flop, const double *bytes, const double *time_s,
		      const double *weight, int n);
#endif
