/* Batches that fit; private to replan*.c. */
#ifndef DLB_BALANCE_REPLAN_BATCH_H
#define DLB_BALANCE_REPLAN_BATCH_H
#include "balance/replan_input.h"
#include "place/batches.h"
#include "place/replicas.h"
#include "place/schedules.h"

/* --batch auto: sets the problem's batch; s keeps the trials. -1 with err. */
int dlb_replan_batch(struct replan_input *in, struct dlb_problem *p, struct dlb_batch_search *s,
		     struct dlb_error *err);
json_t *dlb_replan_write_batches(const struct dlb_batch_search *s);	/* plan member batches_tried */
/* For an err that says that no plan fits: its hint receives the number of micro-batches and the batch that
 * would fit, by plans made for them. The hint is unchanged for large graphs, and if none would fit. */
void dlb_replan_suggest(struct replan_input *in, const struct dlb_problem *p, struct dlb_error *err);

/* The largest number of ops times nodes for which plans are made to suggest a cure; the most micro-batches
 * tried. */
enum { DLB_SUGGEST_ITEMS = 20000, DLB_SUGGEST_MICRO_BATCHES = 64 };
/* The number of micro-batches to try after `tried` (0: the first trial), if a plan with `now` of them does
 * not fit: first 1 (unless `now` is 1), which needs no sums of gradients and keeps no packed weights; then
 * 2 now, 4 now and so on. 0: none is left. */
int64_t dlb_replan_next_micro_batches(int64_t now, int64_t tried, int64_t batch);

/* ---- replan.c ---- */

/* Chooses schedule and micro-batches, if the options leave them free, and makes the plan. trial: owned by the
 * caller. */
int dlb_replan_make(struct replan_input *in, struct dlb_problem *p, struct dlb_plan *plan,
		    struct dlb_trial **trial, int *n_trials, struct dlb_error *err);
/* The options of replicas, else those of the existing plan. n 1: no replicas. */
struct dlb_replicas_choice dlb_replan_replicas(const struct replan_input *in);
#endif
