/* Steps of drafts of divisions into replicas, by content: searches of schedules, and with and without ops
 * that run again, come to the same ones again and again. Private to lib/place. */
#ifndef DLB_PLACE_DRAFTS_H
#define DLB_PLACE_DRAFTS_H
#include "place/place.h"

/* ranked_s: INFINITY if it does not fit. scarce: memory kept some plan or op from where it would be without
 * limits; if not, ways to save memory change nothing. */
struct dlb_draft {
	uint64_t key, division;
	int micro_batches;
	double ranked_s;
	bool again; /* ops that run again were chosen */
	bool scarce;
};
struct dlb_drafts {
	struct dlb_draft *at;
	int n, cap;
};
/* Hash of what a draft of p is made from, but for ops that run again. division: hash of nodes and placers. */
uint64_t dlb_draft_key(const struct dlb_problem *p, uint64_t division);
/* What is known of a draft, also of p with and without ops chosen to run again if memory is not scarce. NULL:
 * nothing, or p keeps no drafts. */
const struct dlb_draft *dlb_draft_find(const struct dlb_problem *p, uint64_t key);
void dlb_draft_keep(const struct dlb_problem *p, uint64_t division, double ranked_s, bool scarce);
/* The shortest draft of a division (0: of all) with p's micro-batches, of any schedule; INFINITY: none. */
double dlb_draft_least_s(const struct dlb_problem *p, uint64_t division);
void dlb_drafts_release(struct dlb_drafts *d);
/* Whether by placers' estimates memory may keep an op from a node: all ops exceed the least memory. */
bool dlb_draft_may_lack(const struct dlb_problem *p);
#endif
