/* The sections that dlb-place reads, and the problem made of them; private to replan*.c. */
#ifndef DLB_BALANCE_REPLAN_INPUT_H
#define DLB_BALANCE_REPLAN_INPUT_H
#include "balance/replan.h"

struct replan_input {
	struct dlb_graph graph;
	struct dlb_cluster cluster;
	struct dlb_cost cost;
	struct dlb_balance balance;
	struct dlb_plan plan;				/* the existing plan */
	struct dlb_recompute recompute; /* as asked for */
	struct dlb_offload offload; /* as asked for */
	struct dlb_arena arena; /* of the rules of offload */
	/* stale: made from other sections, only its options hold */
	bool has_balance, has_plan, stale;
	int optimizer, inverse_every; bool clip; double clip_norm;
	/* ops whose fused activation the table has on another kind */
	int n_fused_elsewhere;
	const struct dlb_replan *options;		/* for the functions that the search calls */
	bool quiet;					/* no warnings: the plan is only compared */
	struct dlb_progress progress;
};
/* Makes a plan for the problem; 0, or -1 with err. */
typedef int dlb_replan_maker(const struct replan_input *in, const struct dlb_problem *p,
			     struct dlb_plan *plan, struct dlb_error *err);
/* Reads all sections; parts fused activations if the table of affinity wants that. in: zeroed; to be released
 * in any case. */
int dlb_replan_read(struct dlb_doc *doc, const struct dlb_replan *o, struct replan_input *in,
		    struct dlb_error *err);
/* Sets up the problem; p borrows `in`, which must not move. Writes the table of affinity that applies into
 * o->constraints. */
int dlb_replan_problem(const struct dlb_doc *doc, struct dlb_replan *o, struct replan_input *in,
		       struct dlb_problem *p, struct dlb_error *err);
void dlb_replan_release(struct replan_input *in);
int dlb_replan_find_objective(const char *name);	/* -1: none */
bool dlb_replan_is_any(const char *name, const char *const *list);	/* list: ends with NULL */
#endif
