/* The user's constraints on a plan, beside costs and memory limits: ops pinned to nodes, excluded nodes,
 * the order in which ready ops are taken, and how many ops may move from an earlier plan.
 *
 * Pins and excluded nodes are part of the plan and hold for the next one; "none" clears them. */
#ifndef DLB_PLACE_CONSTRAINTS_H
#define DLB_PLACE_CONSTRAINTS_H
#include "place/place.h"
#include "util/cli.h"

struct dlb_constraints {
	/* options, as given; NULL, 0 or -1: not given */
	struct dlb_strlist pin, exclude;		/* "OP=NODE", by id or name; "NODE" */
	const char *priority, *affinity, *rewrites, *from;
	int64_t max_moves;				/* ops; -1: any number */
	/* steps over which the cost of migration is spread; 0: 1000, if there is a placement to move from */
	double serve_steps;
	/* made by dlb_constraints_read */
	int *op_node, *before;				/* [op]; NULL: none */
	bool *excluded;					/* [node]; NULL: none */
	double *number;					/* [op]; NULL: none */
	struct dlb_affinity *table;
};
/* Resolves the options against document d (p's graph and cluster come from it) and the previous plan
 * (NULL: none), and sets p's members. The previous plan's constraints hold unless an option replaces them.
 * Ops move from its placement, or from that of --from. p borrows from c until dlb_constraints_release. */
int dlb_constraints_read(struct dlb_constraints *c, const struct dlb_doc *d, const struct dlb_plan *previous,
			 struct dlb_problem *p, struct dlb_error *err);
/* "keep-affinity" or "all": the option's value, else the previous plan's, else "keep-affinity". */
const char *dlb_constraints_rewrites(const struct dlb_constraints *c, const struct dlb_plan *previous);
void dlb_constraints_release(struct dlb_constraints *c);
/* Records in the plan the constraints that hold for the next one too. */
void dlb_constraints_keep(const struct dlb_constraints *c, struct dlb_plan *plan);
#endif
