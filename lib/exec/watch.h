/* What a run tells while it runs: the line of -v (status.h) and the log of steps (step_log.h).
 *
 * Rank 0 tells; it learns the other nodes' times from the sum that ends every step anyway (run.c), in which each node has places
 * of its own, so that measuring costs no message. What a node knows of a step is whole only after that sum. So each sum brings
 * the times of the step before, and a row of the log is written one step late; before a checkpoint and at the end the last one
 * is fetched (dlb_watch_fetch). Nothing of this is in what is computed. */
#ifndef DLB_EXEC_WATCH_H
#define DLB_EXEC_WATCH_H
#include "comm/comm.h"
#include "exec/engine.h"
#include "exec/exec.h"
#include "exec/step_log.h"

struct run;
struct dlb_watch;

/* Places in the sum at the end of a step: all nodes' times, or none when nobody wants them. The same on all ranks. */
int dlb_watch_length(const struct dlb_exec_options *o, int n_nodes);

/* Opens the log at the step where the run stands, on rank 0. Every rank has a watch. */
int dlb_watch_new(struct dlb_watch **out, const struct run *r, struct dlb_error *err);
void dlb_watch_free(struct dlb_watch *w);			/* NULL: nothing */
/* Training begins. */
void dlb_watch_start(struct dlb_watch *w);
/* The end of a step. Puts this node's times of the step before into x[]; reads all nodes' out of the sum. */
void dlb_watch_put(struct dlb_watch *w, double *x);
void dlb_watch_take(struct dlb_watch *w, const double *x);
/* Times of the step that has ended here; of how many samples; the run's loss and place (r->at) stand already, on rank 0. */
void dlb_watch_times(struct dlb_watch *w, struct dlb_engine *e);
void dlb_watch_step(struct dlb_watch *w, int64_t samples, double loss);
/* All ranks: what was measured after the last step, for its row; and the line of an event, for -v. */
void dlb_watch_measured(struct dlb_watch *w, double test_loss, double accuracy, double eval_s);
void dlb_watch_event(struct dlb_watch *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Collective: the last row is written. */
int dlb_watch_fetch(struct dlb_watch *w, struct dlb_comm *comm, struct dlb_error *err);
/* Whether the log could not be written, on rank 0: -1 with err. Rows are left out from then on. */
int dlb_watch_wrong(const struct dlb_watch *w, struct dlb_error *err);
#endif
