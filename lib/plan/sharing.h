/* How replicas combine gradients or weights: options, names and checks of struct dlb_sharing.
 * sharing_unused.c finds options without effect. */
#ifndef DLB_PLAN_SHARING_H
#define DLB_PLAN_SHARING_H
#include "plan/plan.h"

/* Options of dlb-place and dlb-run; NULL, false: not given. */
struct dlb_sharing_options {
	const char *allreduce, *compress; bool sync, async, sync_batchnorm;
	double gossip, exchange_data; bool gossip_given, exchange_data_given;
	int64_t sync_every; bool sync_every_given;
	const char *param_server, *shards, *feed, *reduce, *max_state;
	int64_t zero; bool zero_given;		/* of dlb-place */
};
/* Rows for dlb_cli_parse that fill o, a struct dlb_sharing_options *. */
/* clang-format off */
#define DLB_SHARING_OPTS(o) \
	{ 0, "allreduce", DLB_OPT_STR, &(o)->allreduce, "NAME", \
	  "algorithm that sums gradients over replicas: auto (default), ring, tree, host, hierarchical, " \
	  "doubling or mpi", NULL, 0, 0 }, \
	{ 0, "compress", DLB_OPT_STR, &(o)->compress, "HOW", \
	  "compression of these sums: none (default), bf16, cholesky[:TOL], cholesky:R, cholesky:per-hop, " \
	  "lowrank:R or auto", NULL, 0, 0 }, \
	{ 0, "reduce", DLB_OPT_STR, &(o)->reduce, "WHAT", \
	  "tensors that replicas sum: gradients or moments, :mean (default) or :sum", NULL, 0, 0 }, \
	{ 0, "max-state", DLB_OPT_STR, &(o)->max_state, "WHOSE", \
	  "running maximum of moments: merged (default) or local, each replica's own", NULL, 0, 0 }, \
	{ 0, "sync", DLB_OPT_FLAG, &(o)->sync, NULL, \
	  "sum gradients when every node has computed its step", NULL, 0, 0 }, \
	{ 0, "async-allreduce", DLB_OPT_FLAG, &(o)->async, NULL, \
	  "sum each gradient as soon as it is computed (default)", NULL, 0, 0 }, \
	{ 0, "sync-batchnorm", DLB_OPT_FLAG, &(o)->sync_batchnorm, NULL, \
	  "normalise by the statistics of all replicas together", NULL, 0, 0 }, \
	{ 0, "gossip", DLB_OPT_REAL, &(o)->gossip, "RHO", \
	  "average this share of the weights with two neighbours instead of summing gradients", \
	  &(o)->gossip_given, 0, 1 }, \
	{ 0, "param-server", DLB_OPT_STR, &(o)->param_server, "NODE", \
	  "node that holds the weights: replicas push theirs to it and pull the mean; none: no server", \
	  NULL, 0, 0 }, \
	{ 0, "sync-every", DLB_OPT_INT, &(o)->sync_every, "N", \
	  "steps from one mean of all replicas to the next (gossip 25, sorted 2; server 1)", \
	  &(o)->sync_every_given, 0, 1000000000 }, \
	{ 0, "shards", DLB_OPT_STR, &(o)->shards, "HOW", \
	  "each replica draws from its own samples: even, sorted (by label) or none", NULL, 0, 0 }, \
	{ 0, "exchange-data", DLB_OPT_REAL, &(o)->exchange_data, "RHO", \
	  "share of each replica's samples that are exchanged after an epoch", &(o)->exchange_data_given, 0, 1 }, \
	{ 0, "feed", DLB_OPT_STR, &(o)->feed, "WHO", \
	  "rank that reads samples: local, each node its own, or host, rank 0 for all", NULL, 0, 0 }
/* clang-format on */
/* Fills rows for dlb_cli_warn_unused (sharing_unused.c): the options above that have no effect under s.
 * optimizer: of the plan or run; statistics: batch normalizations use statistics of the batch. */
struct dlb_unused;				/* row[DLB_SHARING_UNUSED] */
enum { DLB_SHARING_UNUSED = 24 };
void dlb_sharing_unused(const struct dlb_sharing *s, int n_replicas, const char *optimizer, bool statistics,
			struct dlb_unused *row);
void dlb_sharing_init(struct dlb_sharing *s);			/* the defaults */
/* Applies options to s; -1 with err for bad options. */
int dlb_sharing_apply(const struct dlb_sharing_options *o, struct dlb_sharing *s, struct dlb_error *err);
bool dlb_sharing_asks(const struct dlb_sharing_options *o);	/* whether an option needs replicas */
/* Whether weights are averaged instead of summing gradients; the algorithm's name for reports. */
bool dlb_sharing_averages(const struct dlb_sharing *s);
const char *dlb_sharing_name(const struct dlb_sharing *s);
/* The algorithm of a sum of so many bytes; the algorithms of all sums as text: "ring", "auto: doubling, ring
 * from 65536 bytes". */
struct dlb_allreduce;
const struct dlb_allreduce *dlb_sharing_sum(const struct dlb_sharing *s, double bytes);
const char *dlb_sharing_sums(const struct dlb_sharing *s, char *text, size_t size);
/* Whether step `step` ends with a mean over all replicas. */
bool dlb_sharing_meets(const struct dlb_sharing *s, int64_t step);
/* Whether replicas divide the optimizer's state; into how many shares, 0: they do not; why they cannot under
 * these options, NULL: they can. */
bool dlb_sharing_divides(const struct dlb_sharing *s);
static inline int dlb_sharing_shares(const struct dlb_sharing *s, int n_replicas)
{
	return dlb_sharing_divides(s) ? n_replicas : 0;
}
const char *dlb_sharing_undivided(const struct dlb_sharing *s);
/* -1 with err, at /plan/zero: they divide it although they cannot. */
int dlb_sharing_check_shares(const struct dlb_sharing *s, struct dlb_error *err);
/* Tensors sent per weight: 2 if moments are summed instead of the gradient. */
int dlb_sharing_tensors(const struct dlb_sharing *s);
/* Whether each replica's gradient is that of the mean loss of its own samples, and not that of its part of
 * the batch's loss. */
bool dlb_sharing_own_mean(const struct dlb_sharing *s);
/* Steps between means over all replicas, as given or by default; 0: never. */
int64_t dlb_sharing_every(const struct dlb_sharing *s);
/* A warning line if the options are known to cost accuracy; else NULL. */
const char *dlb_sharing_advice(const struct dlb_sharing *s);
/* Refuses incompatible options and unknown nodes. */
int dlb_sharing_check(const struct dlb_plan *p, struct dlb_error *err);
void dlb_sharing_write(const struct dlb_sharing *s, json_t *plan);
int dlb_sharing_read(const struct dlb_ref *plan, struct dlb_sharing *s, struct dlb_error *err);
/* Applies options to the document's plan section, if it has replicas; *advice: dlb_sharing_advice of the
 * result. */
int dlb_sharing_edit(struct dlb_doc *doc, const struct dlb_sharing_options *o, const char **advice,
		     struct dlb_error *err);
#endif
