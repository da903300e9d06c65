/* The log of steps (--step-log): a JSON object per line (share/schemas/step-log.json), written as soon as it
 * is complete, so that `tail -f FILE | jq .loss` follows a run.
 *
 *     {"step":12,"epoch":0,"loss":0.52,"lr":0.01,"wall_s":0.31,"step_s":0.0125,"bytes":1920,"nodes":[{"busy_s":0.0119,
 *      "waits":{"starved":0.0004,"backpressure":0,"collective":0.0001,"structural":0},"waited_for":1,"waited_for_s":0.0004,
 *      "data_wait_s":0,"bytes_sent":960,"sum_bytes":0}, ...],"test_loss":0.6,"accuracy":0.8,"eval_s":0.2,"decision":"..."}
 *
 * A run resumed from a checkpoint cuts the log back to the checkpoint's step. A thread writes the lines
 * (util/lines.h); a partial line that a full disk left is cut off. */
#ifndef DLB_EXEC_STEP_LOG_H
#define DLB_EXEC_STEP_LOG_H
#include <stdbool.h>
#include <stdint.h>
#include "plan/program.h"
#include "plan/timeline.h"
#include "util/error.h"

/* A node's figures of a step: numbers alone, so that the nodes' fit in one sum over ranks (watch.c). */
struct dlb_node_step {
	double busy_s, waits_s[DLB_N_WAITS], data_wait_s, bytes_sent, sum_bytes;
	/* 1 + the node whose messages it waited longest for, 0: none; and for how long */
	double waited_for, waited_for_s;
};
struct dlb_step_row {
	/* step: steps done, this one included, counted from the first start; epoch from 0 */
	int64_t step, epoch;
	bool simulated, has_loss;
	double loss, rate, wall_s, step_s;	/* wall_s: since training began in this run */
	const struct dlb_node_step *node; int n_nodes;
	double test_loss, accuracy, eval_s;	/* NAN: not measured after this step; accuracy: or not defined */
	/* after the last step of a round (exec.h), without quotes and control characters; NULL: no round ended */
	const char *decision;
};

struct dlb_step_log;
/* Opens the log to continue after `step` steps; 0: empties it. Rows have up to n_nodes nodes. */
int dlb_step_log_open(struct dlb_step_log **out, const char *path, int64_t step, int n_nodes,
		      struct dlb_error *err);
/* Adds a row, without waiting for the disk. */
void dlb_step_log_write(struct dlb_step_log *l, const struct dlb_step_row *row);
/* -1 with err (may be NULL) if a line could not be written so far. _drain first waits, without limit, until
 * the disk has all lines. */
int dlb_step_log_wrong(const struct dlb_step_log *l, struct dlb_error *err);
int dlb_step_log_drain(struct dlb_step_log *l, struct dlb_error *err);
/* Waits at most wait_s seconds for the disk. l NULL: does nothing. */
void dlb_step_log_close(struct dlb_step_log *l, double wait_s);
#endif
