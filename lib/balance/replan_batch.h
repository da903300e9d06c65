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
/* err says that no plan fits: says in its hint which number of micro-batches and which batch would, by
 * plans made for them. Left as it is for large graphs, and where none would. */
void dlb_replan_suggest(struct replan_input *in, const struct dlb_problem *p, struct dlb_error *err);

/* Ops times nodes up to which plans are made to find what would fit; micro-batches tried. */
enum { DLB_SUGGEST_ITEMS = 20000, DLB_SUGGEST_MICRO_BATCHES = 64 };
/* The number of micro-batches to try after `tried` of them (0: first), where a plan of `now` does not fit:
 * one, which needs no sums of gradients and keeps no packed weights, then twice as many as before, from
 * `now` on. 0: no more. */
int64_t dlb_replan_next_micro_batches(int64_t now, int64_t tried, int64_t batch);

/* ---- replan.c ---- */

/* Schedule and micro-batches where they are to be chosen, then the plan. trial: owned by the caller. */
int dlb_replan_make(struct replan_input *in, struct dlb_problem *p, struct dlb_plan *plan,
		    struct dlb_trial **trial, int *n_trials, struct dlb_error *err);
/* The options of replicas, else those of the plan that is there. n: 1 without. */
struct dlb_replicas_choice dlb_replan_replicas(const struct replan_input *in);
#endif
