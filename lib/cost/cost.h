/* The cost model: predicted seconds of each op on each kind of device, of each
 * transfer, and bytes of each tensor.
 *
 * Op times are measurements in the profile if they exist (linear interpolation between batch sizes, per
 * kind), else a roofline: launch + max(flop / (peak * e), bytes / (bandwidth * e)), with efficiencies e per
 * class of work fitted to the measured ops by least squares (Williams, Waterman, Patterson, CACM 52(4),
 * 2009). If an op was measured on another kind, its time is that measurement times the ratio of both kinds'
 * rooflines, which keeps the op's deviation from the roofline.
 *
 * Times are for updates by plain SGD; dlb_cost_set_optimizer scales updates by memory traffic. */
#ifndef DLB_COST_COST_H
#define DLB_COST_COST_H
#include "cluster/cluster.h"
#include "cost/profile.h"

/* A fitted roofline of one kind of device and one class of work. */
struct dlb_cost_fit {
	const char *kind, *work;
	int n;					/* samples: signatures x batch sizes */
	double launch_s, flop_efficiency, bytes_efficiency;
	/* relative: on its samples; on each signature when left out of the fit */
	double median_error, blind_error;
	const char *worst;			/* op type with the largest error */
	double worst_error;
};
/* Classes of a node's buffers, and the bytes of each class in each memory that the node names.
 * Activations are the arena: outputs of ops, received messages, and scratch. State: of the optimizer,
 * gradient sums, and buffers packed for sums. */
enum dlb_buffers { DLB_BUF_WEIGHTS, DLB_BUF_STATE, DLB_BUF_ACTIVATIONS, DLB_N_BUFFERS };
extern const char *const dlb_buffers_names[DLB_N_BUFFERS];
struct dlb_memory_use { double bytes[DLB_MAX_MEMORIES][DLB_N_BUFFERS]; };
struct dlb_cost {
	struct dlb_arena arena;
	int n_ops, n_kinds, n_batches;
	int64_t *batch;				/* descending */
	double *op_s;				/* [kind][op][batch]; INFINITY: no kernel */
	bool *measured;				/* [kind][op] */
	double *workspace_bytes;		/* [kind][op] */
	double *scratch_bytes, *packed_bytes;	/* [kind][op][batch] */
	/* [op] port model: seconds of its output, if given; NAN: latency + bytes/bandwidth */
	double *output_s;
	/* [op] all memory it occupies, if given; NAN: by the memory model */
	double *resident_bytes;
	/* [kind] memory traffic per second when summing gradients and packing */
	double *accumulate_Bps;
	/* [kind] median relative error of the roofline on measured ops; NAN: none */
	double *fit_error;
	/* [kind] measured seconds of a whole step; NAN: not measured; for -v */
	double *profile_step_s;
	/* [kind] its relative standard deviation between turns of that measurement; NAN: not known */
	double *step_spread;
	/* [kind] seconds of a step beside its ops, measured (profile.h); NAN: not known */
	double *step_overhead_s;
	/* [kind][tensor] seconds to prepare one sample of a fed tensor, as the last run measured them; a kind
	 * without a measurement has the mean of the others; NULL: nothing measured (samples.c) */
	double **sample_s;
	struct dlb_cost_fit *fit; int n_fits;
	double update_scale;			/* factor of update times (dlb_cost_set_optimizer) */
	double inverse_every;			/* K-FAC: steps between inversions; 0: another optimizer */
	/* [kind] FLOP/s of the fastest large op there; for K-FAC's matrices */
	double *matrix_flops;
	const struct dlb_cluster *cluster;	/* borrowed */
	const struct dlb_graph *graph;		/* borrowed */
};
/* Fits the costs. profile may be NULL (roofline with default efficiencies). Borrows
 * graph and cluster. -1 with err. */
int dlb_cost_fit(struct dlb_cost *c, const struct dlb_graph *g, const struct dlb_profile *p,
		 const struct dlb_cluster *cl, struct dlb_error *err);
/* As above without fit[], the quality of the rooflines: for searches that price many graphs. */
int dlb_cost_estimate(struct dlb_cost *c, const struct dlb_graph *g, const struct dlb_profile *p,
		      const struct dlb_cluster *cl, struct dlb_error *err);
/* Allocates the arrays per kind, op and batch, zeroed; n_ops, n_kinds and n_batches must be set. */
void dlb_cost_make_arrays(struct dlb_cost *c);
void dlb_cost_release(struct dlb_cost *c);
json_t *dlb_cost_write(const struct dlb_cost *c);
/* Reads the cost section and checks its inputs; sets the optimizer of the document's run section. */
int dlb_cost_read(const struct dlb_doc *d, const struct dlb_graph *g, const struct dlb_cluster *cl,
		  struct dlb_cost *c, struct dlb_error *err);
/* Scales update times by the memory traffic of this row of dlb_optimizers[] relative to plain SGD. For
 * K-FAC's layers (of a bound graph) adds preconditioning, with the default inverse_every, which may be
 * changed afterwards. Can be called again. */
void dlb_cost_set_optimizer(struct dlb_cost *c, int rule);
/* K-FAC: seconds on a kind to precondition the gradients of a layer's weight, per step, with inversions
 * spread over the steps (kfac.c). factored: the matrices come as Cholesky factors. 0 for other updates. */
double dlb_cost_precondition_s(const struct dlb_cost *c, int update, int kind, bool factored);
/* K-FAC: seconds to sum moment k for n samples. */
double dlb_cost_moment_s(const struct dlb_cost *c, int update, int k, int kind, int64_t n);
/* Seconds of op for n samples on a kind (piecewise linear in n; below the smallest measured size by the
 * line's fixed part), and on a node (divided by its speed). INFINITY: no kernel. */
double dlb_cost_kind_s(const struct dlb_cost *c, int op, int kind, double n);
double dlb_cost_op_s(const struct dlb_cost *c, int op, int node, double n);
/* Scratch and packed weights of op for n samples on a kind: the larger of those measured at the next
 * larger and the next smaller batch size, between which the kernel may choose another algorithm. */
double dlb_cost_scratch_bytes(const struct dlb_cost *c, int op, int kind, double n);
double dlb_cost_packed_bytes(const struct dlb_cost *c, int op, int kind, double n);
/* Reads sample_s again from the document's report or balance section, as dlb_cost_read does. Tensors that the graph has not, and
 * nodes that the cluster has not, are passed over: the report may be of an earlier model. */
int dlb_cost_read_samples(const struct dlb_doc *d, struct dlb_cost *c, struct dlb_error *err);
/* Seconds in which a node prepares one sample of a fed tensor; 0: not measured. */
double dlb_cost_sample_s(const struct dlb_cost *c, int tensor, int node);
/* Bytes that op moves to and from each class of buffers. */
void dlb_cost_traffic(const struct dlb_cost *c, int op, double n, double bytes[DLB_N_BUFFERS]);
/* If the node names memories, an op takes at least the time of its traffic to any one of them, at the
 * node's share of that memory and its link. use NULL (as in dlb_cost_op_s): all buffers are in the fastest
 * memory. */
double dlb_cost_use_s(const struct dlb_cost *c, int op, int node, double n, const struct dlb_memory_use *use);
/* Seconds on a node of a kind (speed 1) to start (first) or add to the sum of gradient t over
 * micro-batches. Adding reads two tensors of its size and writes one, as sgd's update does, so it takes the
 * measured time of that update: a gradient in cache is several times faster than in memory. If no update
 * reads t, accumulate_Bps is used. */
double dlb_cost_accumulate_s(const struct dlb_cost *c, int t, double n, int kind, bool first);
double dlb_cost_xfer_s(const struct dlb_cost *c, double bytes, int src, int dst);
/* Bytes on a node for weight tensor t: weight, gradient sum (if summed), n_state states, of which replicas
 * that divide them have a fraction, and K-FAC's factors in a bound graph. */
double dlb_cost_weight_bytes(const struct dlb_graph *g, int t, double n_state, bool summed);

/* Communication inside one op that is split evenly over k nodes, in seconds:
 *   DLB_SPLIT_OUTPUT   each node makes 1/k of the output: all get the input, the parts are gathered
 *                      (ring: (k-1)/k of the output passes every node)
 *   DLB_SPLIT_SUM      each node has 1/k of the summed dimension: the partial outputs are summed and all
 *                      nodes get the sum (ring allreduce: 2 (k-1)/k of the output)
 * The slowest route between neighbours of the ring decides. 0 for k < 2. */
enum dlb_split { DLB_SPLIT_OUTPUT, DLB_SPLIT_SUM };
double dlb_cost_split_s(const struct dlb_cost *c, int op, int64_t n, const int *node, int k,
			enum dlb_split how);
/* Sums over an op's tensors at n samples: all present inputs, all outputs. */
double dlb_cost_in_bytes(const struct dlb_graph *g, int op, int64_t n);
double dlb_cost_out_bytes(const struct dlb_graph *g, int op, int64_t n);
void dlb_cost_print_fit(const struct dlb_cost *c, FILE *f);	/* output of -v */

/* ---- the roofline (fit.c) ---- */
/* seconds per FLOP and per byte, efficiencies included */
struct dlb_roofline { double launch_s, flop_s, byte_s; };
double dlb_roofline_s(const struct dlb_roofline *r, double flop, double bytes);
/* n measured ops; weight 0 omits a sample, weight NULL: 1 for all. */
struct dlb_roofline_samples { const double *flop, *bytes, *time_s, *weight; int n; };
/* Least squares of relative errors over the samples. Coefficients that the samples do not determine (if none
 * is bound by memory, for example) keep their values in *r. */
void dlb_roofline_fit(struct dlb_roofline *r, const struct dlb_roofline_samples *s);
#endif
