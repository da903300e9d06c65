/* The cost model: predicted seconds of each op on each kind of device and of each transfer, and bytes of each
 * tensor.
 *
 * An op's times are the measurements in the profile if there are any (linear interpolation between batch
 * sizes, per kind), else a roofline: launch + max(flop / (peak * e), bytes / (bandwidth * e)). The
 * efficiencies e of each class of work are fitted to the measured ops by least squares (Williams, Waterman,
 * Patterson, CACM 52(4), 2009). If an op was measured on another kind, its time is that measurement times the
 * ratio of both kinds' rooflines, which keeps the op's deviation from the roofline.
 *
 * Times of updates are for plain SGD; dlb_cost_set_optimizer scales them by memory traffic. */
#ifndef DLB_COST_COST_H
#define DLB_COST_COST_H
#include "cluster/cluster.h"
#include "cost/profile.h"

/* A fitted roofline of one kind of device and one class of work. */
struct dlb_cost_fit {
	const char *kind, *work;
	int n;					/* samples: signatures x batch sizes */
	double launch_s, flop_efficiency, bytes_efficiency;
	/* median relative errors: of the fit on its samples; of predicting each signature by a fit to the
	 * others */
	double median_error, blind_error;
	const char *worst;			/* op type with the largest error */
	double worst_error;
};
/* Classes of a node's buffers, and the bytes of each class in each memory that the node names.
 * Activations are the arena: outputs of ops, received messages, and scratch. State: optimizer state, sums of
 * gradients, and fusion buffers. */
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
	/* [op] DLB_LINKS_PORT: seconds to transfer its output, if given; NAN: latency + bytes / bandwidth */
	double *output_s;
	/* [op] all bytes that the op occupies, if given; NAN: use the memory model */
	double *resident_bytes;
	/* [kind] memory traffic in bytes per second while gradients are summed and packed */
	double *accumulate_Bps;
	/* [kind] median relative error of the roofline on measured ops; NAN: none */
	double *fit_error;
	/* [kind] measured seconds of a whole step, printed by -v; NAN: not measured */
	double *profile_step_s;
	/* [kind] relative standard deviation of that time between turns of its measurement; NAN: unknown */
	double *step_spread;
	/* [kind] measured seconds of a step in addition to its ops (profile.h); NAN: unknown */
	double *step_overhead_s;
	/* [kind][tensor] seconds to prepare one sample of a fed tensor, as the last run measured them; a kind
	 * without a measurement has the mean of the others; NULL: nothing measured (samples.c) */
	double **sample_s;
	struct dlb_cost_fit *fit; int n_fits;
	double update_scale;			/* factor of update times (dlb_cost_set_optimizer) */
	double inverse_every;			/* K-FAC: steps between inversions; 0: another optimizer */
	/* [kind] FLOP/s of the fastest large op on it; the rate of K-FAC's matrix operations */
	double *matrix_flops;
	const struct dlb_cluster *cluster;	/* borrowed */
	const struct dlb_graph *graph;		/* borrowed */
};
/* Fits the costs. profile may be NULL (roofline with default efficiencies). Borrows
 * graph and cluster. -1 with err. */
int dlb_cost_fit(struct dlb_cost *c, const struct dlb_graph *g, const struct dlb_profile *p,
		 const struct dlb_cluster *cl, struct dlb_error *err);
/* As dlb_cost_fit without fit[], the quality of the rooflines: for searches over many graphs. */
int dlb_cost_estimate(struct dlb_cost *c, const struct dlb_graph *g, const struct dlb_profile *p,
		      const struct dlb_cluster *cl, struct dlb_error *err);
/* Allocates the arrays per kind, op and batch, zeroed; n_ops, n_kinds and n_batches must be set. */
void dlb_cost_make_arrays(struct dlb_cost *c);
void dlb_cost_release(struct dlb_cost *c);
json_t *dlb_cost_write(const struct dlb_cost *c);
/* Reads the cost section and checks that its inputs have not changed; sets the document's optimizer. */
int dlb_cost_read(const struct dlb_doc *d, const struct dlb_graph *g, const struct dlb_cluster *cl,
		  struct dlb_cost *c, struct dlb_error *err);
/* Scales update times by the memory traffic of row `rule` of dlb_optimizers[] relative to plain SGD. Adds
 * preconditioning to updates of K-FAC's layers (in a bound graph), with the default inverse_every, which the
 * caller may change afterwards. Can be called again. */
void dlb_cost_set_optimizer(struct dlb_cost *c, int rule);
/* K-FAC: seconds on a kind to precondition the gradients of a layer's weight, per step, with inversions
 * spread over the steps (kfac.c). factored: the matrices are given as Cholesky factors. 0 for other
 * updates. */
double dlb_cost_precondition_s(const struct dlb_cost *c, int update, int kind, bool factored);
/* K-FAC: seconds to sum moment k over n samples. */
double dlb_cost_moment_s(const struct dlb_cost *c, int update, int k, int kind, int64_t n);
/* Seconds of op for n samples on a kind (piecewise linear in n, extended beyond the measured sizes), and on a
 * node (divided by its speed). INFINITY: no kernel. */
double dlb_cost_kind_s(const struct dlb_cost *c, int op, int kind, double n);
double dlb_cost_op_s(const struct dlb_cost *c, int op, int node, double n);
/* Bytes of scratch and of packed weights of op for n samples on a kind. Between two measured batch sizes it
 * is the larger of their bytes, because the kernel may change its algorithm between them. */
double dlb_cost_scratch_bytes(const struct dlb_cost *c, int op, int kind, double n);
double dlb_cost_packed_bytes(const struct dlb_cost *c, int op, int kind, double n);
/* Mean seconds in which a node prepared one sample of a fed tensor, without those of the first step: a row of
 * the lists in the report and in the balance section. */
struct dlb_sample_time {
	int node;
	const char *tensor;
	double time_s;
};
json_t *dlb_sample_times_write(const struct dlb_sample_time *sample, int n);
/* The list of a section; nodes are less than n_nodes. *sample: memory in a; *n 0: none. */
int dlb_sample_times_read(const struct dlb_ref *section, int n_nodes, struct dlb_arena *a,
			  struct dlb_sample_time **sample, int *n, struct dlb_error *err);
/* Reads the seconds to prepare samples from the balance section or, if `reported` and the report has them,
 * from the report. *sample_s: c->sample_s, as dlb_cost_read does, or another array [kind][tensor] in c's arena;
 * NULL: becomes a new one if the document has any. Ignores tensors that the graph lacks and nodes that the
 * cluster lacks: the report may be of an earlier model. */
int dlb_cost_read_samples(const struct dlb_doc *d, bool reported, struct dlb_cost *c, double ***sample_s,
			  struct dlb_error *err);
/* Seconds in which a node prepares one sample of a fed tensor; 0: not measured. */
double dlb_cost_sample_s(const struct dlb_cost *c, int tensor, int node);
/* Bytes that op moves to and from each class of buffers. */
void dlb_cost_traffic(const struct dlb_cost *c, int op, double n, double bytes[DLB_N_BUFFERS]);
/* As dlb_cost_op_s for buffers in the memories of `use`. If the node names memories, an op takes at least as
 * long as its traffic to each of them takes at the node's share of that memory and its link. use NULL (as in
 * dlb_cost_op_s): all buffers are in the fastest memory. */
double dlb_cost_use_s(const struct dlb_cost *c, int op, int node, double n, const struct dlb_memory_use *use);
/* Seconds on a node of a kind (speed 1) to start (first) or continue the sum of gradient t over
 * micro-batches. Adding a gradient reads two tensors of its size and writes one, as sgd's update does. So it
 * takes the measured time of that update, which shows whether the tensors fit in cache (several times faster
 * than memory). If no update reads t, accumulate_Bps is used. */
double dlb_cost_accumulate_s(const struct dlb_cost *c, int t, double n, int kind, bool first);
double dlb_cost_xfer_s(const struct dlb_cost *c, double bytes, int src, int dst);
/* Bytes on a node for weight tensor t: the weight, its gradient sum (if summed), n_state optimizer states (a
 * fraction if replicas divide them), and K-FAC's factors in a bound graph. */
double dlb_cost_weight_bytes(const struct dlb_graph *g, int t, double n_state, bool summed);

/* Communication inside one op that is split evenly over k nodes, in seconds:
 *   DLB_SPLIT_OUTPUT   each node computes 1/k of the output: all nodes receive the input, and the parts are
 *                      gathered (ring: every node forwards (k-1)/k of the output)
 *   DLB_SPLIT_SUM      each node has 1/k of the summed dimension: the partial outputs are summed and all
 *                      nodes receive the sum (ring allreduce: 2 (k-1)/k of the output)
 * The slowest route between neighbours of the ring decides. 0 for k < 2. */
enum dlb_split { DLB_SPLIT_OUTPUT, DLB_SPLIT_SUM };
double dlb_cost_split_s(const struct dlb_cost *c, int op, int64_t n, const int *node, int k,
			enum dlb_split how);
/* Bytes of all present inputs of an op, and of all its outputs, at n samples. */
double dlb_cost_in_bytes(const struct dlb_graph *g, int op, int64_t n);
double dlb_cost_out_bytes(const struct dlb_graph *g, int op, int64_t n);
void dlb_cost_print_fit(const struct dlb_cost *c, FILE *f);	/* output of -v */

/* ---- the roofline (fit.c) ---- */
/* seconds per FLOP and per byte, efficiencies included */
struct dlb_roofline { double launch_s, flop_s, byte_s; };
double dlb_roofline_s(const struct dlb_roofline *r, double flop, double bytes);
/* n measured samples; weight 0 omits a sample; weight NULL: all weights are 1. */
struct dlb_roofline_samples { const double *flop, *bytes, *time_s, *weight; int n; };
/* Minimises the sum of squared relative errors over the samples. A coefficient that the samples do not
 * determine (for example if no sample is bound by memory) keeps its value in *r. */
void dlb_roofline_fit(struct dlb_roofline *r, const struct dlb_roofline_samples *s);
#endif
