/* The file of --metrics: the state of a running run in Prometheus' text format, for the textfile collector of
 * node_exporter. It is replaced about once a second and at the end, and has no timestamps.
 *
 *     # HELP dlb_step_seconds Seconds of a step, mean over the last seconds.
 *     # TYPE dlb_step_seconds gauge
 *     dlb_step_seconds 0.0349
 *     dlb_node_busy_seconds_total{node="1"} 812.5
 *
 * Counters begin at 0 with each start, except the steps. */
#ifndef DLB_EXEC_METRICS_H
#define DLB_EXEC_METRICS_H
#include "cluster/cluster.h"
#include "exec/step_log.h"

/* The values to write. NAN: unknown, omitted from the file. */
struct dlb_metrics_now {
	bool running;
	/* step: steps done, counted from the first start; epoch: from 0; samples and rounds: since this
	 * start */
	int64_t step, epoch, samples, rounds;
	double loss, rate, samples_per_s, step_s, predicted_s;
	const double *weight;		/* [n_nodes] node weights; NULL: balancing has not set any */
};

struct dlb_metrics;
/* Checks that path can be written. Borrows cluster. -1 with err. */
int dlb_metrics_new(struct dlb_metrics **out, const char *path, const struct dlb_cluster *cluster,
		    struct dlb_error *err);
/* Adds a step's figures of all nodes to the counters. */
void dlb_metrics_add(struct dlb_metrics *m, const struct dlb_node_step *node);
/* Whether it is time to replace the file's content. */
bool dlb_metrics_is_due(const struct dlb_metrics *m);
/* Replaces the file's content, without waiting for the disk. */
void dlb_metrics_put(struct dlb_metrics *m, const struct dlb_metrics_now *now);
/* Returns true once, with err: at the first failed write since the start. Training and further writes
 * continue. */
bool dlb_metrics_failed(struct dlb_metrics *m, struct dlb_error *err);
/* Waits at most wait_s seconds for the disk. Returns whether the last content could not be written, with err,
 * unless a failure was reported before. m NULL: does nothing. */
bool dlb_metrics_free(struct dlb_metrics *m, double wait_s, struct dlb_error *err);
#endif
