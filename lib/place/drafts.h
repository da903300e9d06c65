/* Steps of drafts of divisions into replicas and values of placements, by content: searches of schedules, and
 * with and without ops that run again, come to the same ones again and again. Private to lib/place. */
#ifndef DLB_PLACE_DRAFTS_H
#define DLB_PLACE_DRAFTS_H
#include "place/place.h"
#include "place/recompute.h"

/* ranked_s: INFINITY if it does not fit. most_samples: of a replica, in all plans that were made for it.
 * scarce: memory kept some plan or op from where it would be without limits; if not, ways to save memory
 * change nothing. */
struct dlb_draft {
	uint64_t key, kin, division; /* kin: the same for all numbers of micro-batches */
	int micro_batches;
	int64_t most_samples;
	double ranked_s;
	double outline_s; /* what it was about; NAN: not known */
	bool again; /* ops that run again were chosen */
	bool scarce;
};
/* The value of a placement, judged where only values below below_s counted; exact: it is the value for any
 * limit. key 0: none. */
struct dlb_known_value {
	uint64_t key;
	double value_s, below_s;
	bool exact, scarce;
};
/* The outline of a draft (outline.h), by the hash of its inputs. */
struct dlb_known_outline {
	uint64_t key;
	double s;
};
/* memo: of the ops that run again. */
struct dlb_drafts {
	struct dlb_draft *at;
	int n, cap;
	int64_t work; /* ops times micro-batches ordered and compiled so far */
	struct dlb_known_outline *outline;
	int n_outlines, cap_outlines;
	struct dlb_known_value *value;
	struct dlb_recompute_memo memo;
};
/* Hash of what a plan is made from, but for its placement. */
uint64_t dlb_problem_key(const struct dlb_problem *p);
/* The value of a placement that is known for the limit; NULL: none is, or p keeps none. key: of the problem
 * and the placement. Of values whose keys share a place in the table the latest is kept. */
const struct dlb_known_value *dlb_value_find(const struct dlb_problem *p, uint64_t key, double below_s);
void dlb_value_keep(const struct dlb_problem *p, const struct dlb_known_value *x);
/* What is known of a draft, also of p with and without ops chosen to run again if memory is not scarce, and
 * with fewer micro-batches if no replica has samples for more: that is kept for p's number too. NULL:
 * nothing, or p keeps no drafts. division: hash of nodes and placers. Holds until another draft is kept. */
const struct dlb_draft *dlb_draft_recall(const struct dlb_problem *p, uint64_t division);
/* The drafts of the division with the next lower and the next higher number of micro-batches; NULL: none. */
void dlb_draft_beside(const struct dlb_problem *p, uint64_t division, const struct dlb_draft **fewer,
		      const struct dlb_draft **more);
void dlb_draft_keep(const struct dlb_problem *p, uint64_t division, double ranked_s, int64_t most_samples,
		    bool scarce);
/* The shortest draft of a division (0: of all) with p's micro-batches, of any schedule; INFINITY: none. */
double dlb_draft_least_s(const struct dlb_problem *p, uint64_t division);
/* The shortest of all drafts, whatever they are of; INFINITY: none. */
double dlb_draft_best_s(const struct dlb_problem *p);
/* The least ratio of the division's drafts to their outlines; without drafts, of all drafts with other numbers
 * of micro-batches. 1: nothing is known. */
double dlb_draft_took(const struct dlb_problem *p, uint64_t division);
/* The outline of a draft; NAN: it is not known. */
double dlb_draft_outline_s(const struct dlb_problem *p, uint64_t division);
void dlb_draft_keep_outline(const struct dlb_problem *p, uint64_t division, double outline_s);
/* Whether the search of a graph of many ops has done this part of the work that its effort allows: then it
 * ends with the best plan so far. */
bool dlb_drafts_are_spent(const struct dlb_problem *p, double part);
void dlb_drafts_release(struct dlb_drafts *d);
/* Whether by placers' estimates memory may keep an op from a node: all ops exceed the least memory. */
bool dlb_draft_may_lack(const struct dlb_problem *p);
#endif
