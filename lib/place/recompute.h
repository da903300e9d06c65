/* Which ops run again (plan/again.h), so that their outputs need not be kept from the forward to the backward
 * phase. An op that runs again reads its inputs a second time. Its input is either kept until then or, if nothing
 * else keeps it, computed again too: so what runs again begins at the nearest tensors that are kept. */
#ifndef DLB_PLACE_RECOMPUTE_H
#define DLB_PLACE_RECOMPUTE_H
#include "place/place.h"

/* Checks p->recompute. p->drop becomes the forward ops that its patterns name, by their own names or by those of
 * their outputs. Refuses a pattern without effect. 0, or -1 with err. */
int dlb_recompute_find(struct dlb_problem *p, struct dlb_error *err);
/* Sets plan->again for its placement: the ops of p->drop, and those that they need again. */
void dlb_recompute_named(const struct dlb_problem *p, struct dlb_plan *plan);
/* Adds to again[] the ops whose outputs nothing else keeps and that are read again, with views; removes those that
 * nothing needs. */
void dlb_recompute_complete(const struct dlb_graph *g, struct dlb_plan *plan);

/* ---- recompute_choose.c ---- */
/* Choices made for a problem and its copies: placers often come to the same placement. */
struct dlb_recompute_memo {
	struct dlb_arena arena;
	/* key: of the placement, the nodes' memory and the schedule */
	struct dlb_recompute_choice { uint64_t key; int rc; bool draft, *again; } *choice;
	int n, next; /* choices; the one to replace */
	bool is_borrowed; /* of drafts, which release it */
	int64_t n_compiled;			/* programs, to make choices */
};
void dlb_recompute_forget(struct dlb_recompute_memo *memo);
/* Whether the plan may fit the nodes' memory in an order with in_flight micro-batches, by a bound for any ops
 * that run again: what is dropped is there while an instruction uses it. 1: it may; 0: it does not, and plan
 * has that order with all ops again that may; -1 with err. */
int dlb_recompute_may_fit(const struct dlb_problem *p, struct dlb_plan *plan, int in_flight,
			  struct dlb_error *err);
/* Sets plan->again and orders the plan, with in_flight micro-batches (0: the schedule's limit): for the least time
 * with which it fits the nodes' memory. draft: less effort, for a search. below_s: of a draft, only a plan of fewer
 * seconds counts. 1: it fits; 0: it does not, with little memory; 2: one that fits takes below_s or more; -1 with
 * err. */
int dlb_recompute_choose(const struct dlb_problem *p, struct dlb_plan *plan, int in_flight, bool draft,
			 double below_s, struct dlb_error *err);
#endif
