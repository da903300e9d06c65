/* Which ops run again (plan/again.h), so that their outputs need not be kept from the forward to the backward
 * phase. An op that runs again reads its inputs a second time. Each input is either kept until then or, if
 * nothing else keeps it, computed again too. So the ops that run again begin at the nearest tensors that are
 * kept. */
#ifndef DLB_PLACE_RECOMPUTE_H
#define DLB_PLACE_RECOMPUTE_H
#include "place/place.h"

/* Checks p->recompute. p->drop becomes the forward ops that its patterns name, by their own names or by those of
 * their outputs. Refuses a pattern without effect. 0, or -1 with err. */
int dlb_recompute_find(struct dlb_problem *p, struct dlb_error *err);
/* Sets plan->again for its placement: the ops of p->drop, and the ops that these need again. */
void dlb_recompute_named(const struct dlb_problem *p, struct dlb_plan *plan);
/* Adds to plan->again the ops, with views, whose outputs are read again and not kept otherwise; removes ops
 * whose second outputs nothing reads. */
void dlb_recompute_complete(const struct dlb_graph *g, struct dlb_plan *plan);

/* ---- recompute_choose.c ---- */
/* A cache of the choices made for a problem and its copies: placers often reach the same placement again. */
struct dlb_recompute_memo {
	struct dlb_arena arena;
	/* key: of the placement, the nodes' memory and the schedule */
	struct dlb_recompute_choice { uint64_t key; int rc; bool draft, *again; } *choice;
	int n, next; /* choices; the next one to replace */
	bool is_borrowed; /* part of struct dlb_drafts, which releases it */
	int64_t n_compiled;			/* programs compiled to make choices */
};
void dlb_recompute_forget(struct dlb_recompute_memo *memo);
/* Whether the plan may fit the nodes' memory in an order with in_flight micro-batches, by a lower bound for
 * every choice of ops that run again: a dropped tensor takes memory only while an instruction uses it. 1: it
 * may; 0: it does not, and plan has that order with every op running again that may; -1 with err. */
int dlb_recompute_may_fit(const struct dlb_problem *p, struct dlb_plan *plan, int in_flight,
			  struct dlb_error *err);
/* Sets plan->again and orders the plan with in_flight micro-batches (0: the schedule's limit), for the least
 * time with which it fits the nodes' memory. draft: less effort, for a search. below_s: in a draft only a
 * plan of fewer seconds is useful. 1: it fits; 0: it does not fit, and plan needs little memory; 2: a plan
 * that fits takes below_s or more; -1 with err. */
int dlb_recompute_choose(const struct dlb_problem *p, struct dlb_plan *plan, int in_flight, bool draft,
			 double below_s, struct dlb_error *err);
#endif
