/* The profile: what was measured. One row per distinct op signature; seconds per device kind at each
 * batch size measured (N, N/2, N/4, N/8, N/16).
 *
 *     struct dlb_profile p;
 *     dlb_profile_init(&p, &graph, graph.batch);		rows and batch sizes, no times
 *     int k = dlb_profile_add_kind(&p, "cpu");		times of this kind: all NAN
 *     p.row[r].time_s[k][b] = ...;				as they are measured
 *
 * Update ops are measured with plain SGD; dlb_cost_set_optimizer scales them. */
#ifndef DLB_COST_PROFILE_H
#define DLB_COST_PROFILE_H
#include "cluster/cluster.h"
#include "graph/graph.h"

struct dlb_profile_row {
	const char *key, *type;
	uint64_t hash;				/* of the signatures at two batch sizes, by dlb_profile_init; 0: not known */
	int *op, n_ops;				/* ops of this signature, ascending */
	double **time_s;			/* [kind][batch]; NAN: not measured, INFINITY: no kernel */
	double *workspace_bytes, *scratch_bytes, *packed_bytes;	/* [kind], at the largest batch */
};
struct dlb_profile {
	struct dlb_arena arena;
	const char **kind; int n_kinds;		/* names of device kinds measured */
	double *peak_flops, *bandwidth_Bps;	/* [kind], measured; 0: not */
	int64_t *batch; int n_batches;		/* descending */
	struct dlb_profile_row *row; int n_rows;
	double *step_s;				/* [kind] seconds of a whole real step at batch[0]; NAN: not run */
};
void dlb_profile_release(struct dlb_profile *p);
json_t *dlb_profile_write(const struct dlb_profile *p);
int dlb_profile_read(const struct dlb_doc *d, const struct dlb_graph *g, struct dlb_profile *p, struct dlb_error *err);
/* Rows for every distinct signature of g, batches N..N/16 (those >= 1, distinct), no times yet. */
void dlb_profile_init(struct dlb_profile *p, const struct dlb_graph *g, int64_t batch);
/* Adds a device kind (or finds it) and returns its index; every time NAN, every size 0. */
int dlb_profile_add_kind(struct dlb_profile *p, const char *name);
/* The profile of g, which has come of `was` by a rewrite (a split, say), from p, the profile of `was`: ops of signatures
 * that were measured have their times, the others none. Overwrites *out. */
void dlb_profile_carry(const struct dlb_profile *p, const struct dlb_graph *was, const struct dlb_graph *g, struct dlb_profile *out);
/* Puts g, which has come of `was` (the document's graph) by a rewrite, into the document, with what of the profile *p still holds
 * (p NULL: there is none), which *p becomes. Members of the graph section that are not ours stay. */
void dlb_profile_put_graph(struct dlb_doc *doc, const struct dlb_graph *was, const struct dlb_graph *g, struct dlb_profile *p);
/* A message between nodes of one host is copied by its sender: links of such hosts that nobody stated or measured
 * (dlb_link.usual) carry half the memory bandwidth measured of the slowest kind of device there, since that counts what is
 * read and what is written. Returns how many links changed. */
int dlb_profile_price_copies(const struct dlb_profile *p, struct dlb_cluster *c);
int dlb_profile_find_kind(const struct dlb_profile *p, const char *name);	/* -1: none */
#endif
