/* A cache, by content, of the steps of drafts (of divisions into replicas) and of the values of placements.
 * Searches over schedules, with and without ops that run again, meet the same ones repeatedly. Private to
 * lib/place. */
#ifndef DLB_PLACE_DRAFTS_H
#define DLB_PLACE_DRAFTS_H
#include "place/place.h"
#include "place/recompute.h"

/* ranked_s: INFINITY if it does not fit. most_samples: the largest share of a replica in all plans made
 * for the draft. scarce: a memory limit excluded some plan, or a node for an op; if false, ways to save
 * memory change nothing. */
struct dlb_draft {
	uint64_t key, kin, division; /* kin: the same for all numbers of micro-batches */
	int micro_batches;
	int64_t most_samples;
	double ranked_s;
	double outline_s; /* its outline; NAN: unknown */
	bool again; /* ops that run again were chosen */
	bool scarce;
};
/* The value of a placement, found when only values below below_s mattered. exact: it is the value for any
 * below_s. key 0: none. */
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
/* memo: choices of ops that run again. */
struct dlb_drafts {
	struct dlb_draft *at;
	int n, cap;
	int64_t work; /* ops times micro-batches ordered or compiled so far */
	struct dlb_known_outline *outline;
	int n_outlines, cap_outlines;
	struct dlb_known_value *value;
	struct dlb_recompute_memo memo;
};
/* Hash of the inputs of a plan, without its placement. */
uint64_t dlb_problem_key(const struct dlb_problem *p);
/* The cached value of a placement that holds for below_s; NULL: none, or p has no cache. key: hash of problem
 * and placement. Of values whose keys share an entry of the table, the latest is kept. */
const struct dlb_known_value *dlb_value_find(const struct dlb_problem *p, uint64_t key, double below_s);
void dlb_value_keep(const struct dlb_problem *p, const struct dlb_known_value *x);
/* The cached draft of a division; NULL: none, or p has no cache. division: hash of nodes and placers. If
 * memory is not scarce, a draft holds both with and without ops chosen to run again. If no replica has
 * samples for more micro-batches, a draft with fewer of them holds too, and is then stored under p's
 * number as well. The pointer is valid until another draft is kept. */
const struct dlb_draft *dlb_draft_recall(const struct dlb_problem *p, uint64_t division);
/* The drafts of the division with the next lower and the next higher number of micro-batches; NULL: none. */
void dlb_draft_beside(const struct dlb_problem *p, uint64_t division, const struct dlb_draft **fewer,
		      const struct dlb_draft **more);
void dlb_draft_keep(const struct dlb_problem *p, uint64_t division, double ranked_s, int64_t most_samples,
		    bool scarce);
/* The shortest draft of a division (0: of all) with p's micro-batches, of any schedule; INFINITY: none. */
double dlb_draft_least_s(const struct dlb_problem *p, uint64_t division);
/* The shortest of all drafts of all problems; INFINITY: none. */
double dlb_draft_best_s(const struct dlb_problem *p);
/* The least ratio of step to outline over the division's drafts; if it has none, over all drafts with other
 * numbers of micro-batches; 1 if there are none either. */
double dlb_draft_ratio(const struct dlb_problem *p, uint64_t division);
/* The outline of a draft; NAN: it is not known. */
double dlb_draft_outline_s(const struct dlb_problem *p, uint64_t division);
void dlb_draft_keep_outline(const struct dlb_problem *p, uint64_t division, double outline_s);
/* Whether the search, of a graph with many ops, has spent the fraction `part` of the work that its effort
 * allows. Then it ends with the best plan so far. */
bool dlb_drafts_are_spent(const struct dlb_problem *p, double part);
void dlb_drafts_release(struct dlb_drafts *d);
/* Whether memory may exclude a node for an op, by placers' estimates: all ops together exceed the memory
 * of the smallest node. */
bool dlb_draft_may_lack(const struct dlb_problem *p);
#endif
