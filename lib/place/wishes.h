/* What a plan has to respect beside costs and limits, as a user writes it: ops pinned to nodes, nodes left out, the
 * order in which ready ops are taken, and how far the plan may be from one that stands already.
 *
 * Pins and excluded nodes are part of the plan and hold for the next one; "none" clears them. */
#ifndef DLB_PLACE_WISHES_H
#define DLB_PLACE_WISHES_H
#include "place/place.h"
#include "util/cli.h"

struct dlb_wishes {
	/* options, as given; NULL, 0 or -1: not given */
	struct dlb_strlist pin, exclude;		/* "OP=NODE", by id or name; "NODE" */
	const char *priority, *affinity, *rewrites, *from;
	int64_t max_moves;				/* ops; -1: any number */
	double serve_steps;				/* what moving costs is spread over so many; 0: it costs nothing */
	/* made by dlb_wishes_read */
	int *op_node, *before;				/* [op]; NULL: none */
	bool *excluded;					/* [node]; NULL: none */
	double *number;					/* [op]; NULL: none */
	struct dlb_affinity *table;
};
/* Resolves the options against the document (whose graph and cluster these are) and the plan there is (NULL: none;
 * its pins hold unless told otherwise, and its placement is the one moved from), and sets p's members. What p
 * borrows lives until release. */
int dlb_wishes_read(struct dlb_wishes *w, const struct dlb_doc *d, const struct dlb_plan *there_is, struct dlb_problem *p,
		    struct dlb_error *err);
/* "keep-affinity" or "all": as asked for, else as in the plan there is, else the former. */
const char *dlb_wishes_rewrites(const struct dlb_wishes *w, const struct dlb_plan *there_is);
void dlb_wishes_release(struct dlb_wishes *w);
/* What the next plan has to know of them. */
void dlb_wishes_keep(const struct dlb_wishes *w, struct dlb_plan *plan);
#endif
