/* The profile: measured times. It has one row per distinct op signature, with seconds per kind of device at
 * each measured batch size (N, N/2, N/4, N/8, N/16).
 *
 *     struct dlb_profile p;
 *     dlb_profile_init(&p, &graph, graph.batch);		rows and batch sizes, no times
 *     int k = dlb_profile_add_kind(&p, "cpu");		times of this kind: all NAN
 *     p.row[r].time_s[k][b] = ...;				the measured times
 *
 * Updates are measured with plain SGD; dlb_cost_set_optimizer scales them. */
#ifndef DLB_COST_PROFILE_H
#define DLB_COST_PROFILE_H
#include "cluster/cluster.h"
#include "graph/graph.h"

struct dlb_profile_row {
	const char *key, *type;
	/* hash of the signatures at two batch sizes, set by dlb_profile_init; 0: unknown */
	uint64_t hash;
	int *op, n_ops;				/* ops of this signature, ascending */
	double **time_s;			/* [kind][batch]; NAN: not measured, INFINITY: no kernel */
	double *workspace_bytes;		/* [kind] at the largest batch */
	double **scratch_bytes, **packed_bytes;	/* [kind][batch]; 0: none, or not measured */
};
struct dlb_profile {
	struct dlb_arena arena;
	const char **kind; int n_kinds;		/* names of measured kinds of device */
	double *peak_flops, *bandwidth_Bps;	/* [kind] measured; 0: not measured */
	int64_t *batch; int n_batches;		/* descending */
	struct dlb_profile_row *row; int n_rows;
	/* [kind] seconds of a whole real step at batch[0]; NAN: not measured */
	double *step_s;
	/* [kind] relative standard deviation of that time between turns of its measurement; NAN: unknown */
	double *step_spread;
	/* [kind] seconds of a step at batch[0] in addition to its ops: taking samples, waking the thread that
	 * reads ahead, bookkeeping; NAN: not measured */
	double *step_overhead_s;
};
void dlb_profile_release(struct dlb_profile *p);
json_t *dlb_profile_write(const struct dlb_profile *p);
int dlb_profile_read(const struct dlb_doc *d, const struct dlb_graph *g, struct dlb_profile *p,
		     struct dlb_error *err);
/* Makes a row for each distinct signature of g, batches N..N/16 (distinct, at least 1), without times. */
void dlb_profile_init(struct dlb_profile *p, const struct dlb_graph *g, int64_t batch);
/* Returns the index of a kind of device; adds the kind if it is new, with times NAN and sizes 0. */
int dlb_profile_add_kind(struct dlb_profile *p, const char *name);
/* Writes the profile of g to *out, which is overwritten. A rewrite (such as a split) made g from `was`, the
 * graph of profile p. Ops with measured signatures keep their times; the others have none. */
void dlb_profile_carry(const struct dlb_profile *p, const struct dlb_graph *was, const struct dlb_graph *g,
		       struct dlb_profile *out);
/* Puts g, which a rewrite made from `was` (the document's graph), into the document. Replaces *p and the
 * document's profile by the profile of g (p NULL: no profile). Unknown members of the graph section are
 * kept. */
void dlb_profile_put_graph(struct dlb_doc *doc, const struct dlb_graph *was, const struct dlb_graph *g,
			   struct dlb_profile *p);
/* Sets the bandwidths of links of class shm that have default figures (dlb_link.usual). The sender copies a
 * message between nodes of one host. So such a link gets half the smallest memory bandwidth measured on the
 * kinds of the group's nodes: a measured bandwidth counts both reads and writes. Returns the number of links
 * changed. */
int dlb_profile_price_copies(const struct dlb_profile *p, struct dlb_cluster *c);
/* Bytes at each batch size (new): a number if all are equal, else an array. NULL: all are 0. */
json_t *dlb_batch_sizes_write(const double *x, int n_batches);
/* Reads member `key` of o into x [n_batches]; an absent member gives zeros. */
int dlb_batch_sizes_read(const struct dlb_ref *o, const char *key, int n_batches, double *x,
			 struct dlb_error *err);
int dlb_profile_find_kind(const struct dlb_profile *p, const char *name);	/* -1: none */
#endif
