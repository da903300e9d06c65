/* Observes a running run: the progress line (status.h), the log of steps (step_log.h) and the metrics
 * (metrics.h).
 *
 * Rank 0 writes them. It learns the other nodes' times from the sum that ends every step (step_end.c), in
 * which each node has places of its own, so measuring costs no message. A node's figures of a step are
 * complete only after that sum. So each sum carries the times of the step before, and a row of the log is
 * written one step late; before a checkpoint and at the end the last row is fetched (dlb_watch_fetch). None
 * of this changes the results of a run. */
#ifndef DLB_EXEC_WATCH_H
#define DLB_EXEC_WATCH_H
#include "comm/comm.h"
#include "exec/engine.h"
#include "exec/exec.h"
#include "exec/step_log.h"

struct run;
struct dlb_watch;

/* Number of places in the sum at the end of a step: all nodes' times, or 0 if neither line, log nor metrics are
 * wanted. Equal on all ranks. */
int dlb_watch_length(const struct dlb_exec_options *o, int n_nodes);

/* Opens log and metrics at the step where the run stands, on rank 0. Every rank has a watch. */
int dlb_watch_new(struct dlb_watch **out, const struct run *r, struct dlb_error *err);
/* Waits at most wait_s seconds for the disk of log and metrics. w NULL: does nothing. */
void dlb_watch_free(struct dlb_watch *w, double wait_s);
/* Called when training begins. */
void dlb_watch_start(struct dlb_watch *w);
/* Called at the end of a step. put: writes this node's times of the previous step to x[]. take: reads all
 * nodes' times from the sum. */
void dlb_watch_put(struct dlb_watch *w, double *x);
void dlb_watch_take(struct dlb_watch *w, const double *x);
/* Called after a step. times: records its times. step: records its samples and loss, with r->at already
 * advanced. */
void dlb_watch_times(struct dlb_watch *w, struct dlb_engine *e);
void dlb_watch_step(struct dlb_watch *w, int64_t samples, double loss);
/* Called on all ranks. measured: adds the evaluation after the last step to the row of that step. event:
 * shows an event in the line of -v. */
void dlb_watch_measured(struct dlb_watch *w, double test_loss, double accuracy, double eval_s);
void dlb_watch_event(struct dlb_watch *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Adds the decision after a round to the row of the last step and to the line of -v. */
void dlb_watch_decided(struct dlb_watch *w, const char *text);
/* Called when the plan has changed; shows the new plan's prediction from here on. -1 with err. */
int dlb_watch_replanned(struct dlb_watch *w, struct dlb_error *err);
/* Collective: completes and writes the last row. */
int dlb_watch_fetch(struct dlb_watch *w, struct dlb_comm *comm, struct dlb_error *err);
/* On rank 0, -1 with err (may be NULL) if the log could not be written so far; later rows are left out.
 * _drain first waits, without limit, until the disk has all rows. */
int dlb_watch_wrong(const struct dlb_watch *w, struct dlb_error *err);
int dlb_watch_drain(struct dlb_watch *w, struct dlb_error *err);
#endif
