/* The cost model: what each op would take on each kind of device, what each transfer would take, and
 * what each tensor occupies.
 *
 * Op times come from the profile where measured (linear interpolation between batch sizes, per node
 * kind), else from a roofline: launch + max(flop / (peak * e), bytes / (bandwidth * e)) with
 * efficiencies e per class of work, fitted by least squares to the measured ops (Williams, Waterman,
 * Patterson, CACM 52(4), 2009). */
#ifndef DLB_COST_COST_H
#define DLB_COST_COST_H
#include "cluster/cluster.h"
#include "cost/profile.h"

struct dlb_cost {
	struct dlb_arena arena;
	int n_ops, n_kinds, n_batches;
	int64_t *batch;				/* descending */
	double *op_s;				/* [kind][op][batch]; INFINITY: no kernel */
	bool *measured;				/* [kind][op] */
	double *scratch_bytes, *packed_bytes;	/* [kind][op] */
	double *accumulate_Bps;			/* [kind]: summing gradients, packing: memory traffic per second */
	double *fit_error;			/* [kind]: median relative error of the roofline on the measured ops */
	const struct dlb_cluster *cluster;	/* borrowed */
	const struct dlb_graph *graph;		/* borrowed */
};
/* profile may be NULL (roofline with default efficiencies). Borrows graph and cluster. */
int dlb_cost_fit(struct dlb_cost *c, const struct dlb_graph *g, const struct dlb_profile *p,
		 const struct dlb_cluster *cl, struct dlb_error *err);
void dlb_cost_release(struct dlb_cost *c);
json_t *dlb_cost_write(const struct dlb_cost *c);
int dlb_cost_read(const struct dlb_doc *d, const struct dlb_graph *g, const struct dlb_cluster *cl,
		  struct dlb_cost *c, struct dlb_error *err);
/* Seconds of op for n samples on a kind (piecewise linear in n, through the fixed part below the least
 * measured size); and on a node (divided by its speed). INFINITY: no kernel. */
double dlb_cost_kind_s(const struct dlb_cost *c, int op, int kind, double n);
double dlb_cost_op_s(const struct dlb_cost *c, int op, int node, double n);
double dlb_cost_xfer_s(const struct dlb_cost *c, double bytes, int src, int dst);
/* Bytes that stay on a node for owning weight tensor t: weight + gradient sum + n_state states. */
double dlb_cost_weight_bytes(const struct dlb_graph *g, int t, int n_state);
void dlb_cost_print_fit(const struct dlb_cost *c, FILE *f);	/* what -v shows */
#endif
