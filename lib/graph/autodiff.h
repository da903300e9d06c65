/* Automatic differentiation: declarations shared by autodiff.c (the visit of all ops) and builder.c (the
 * functions that gradient functions call). */
#ifndef DLB_GRAPH_AUTODIFF_H
#define DLB_GRAPH_AUTODIFF_H
#include "graph/rewrite.h"

/* a gradient, and the forward op whose backward ops computed it */
struct dlb_contribution { int grad, op; };
struct dlb_contributions { struct dlb_contribution *c; int n, cap; };

struct dlb_autodiff {
	struct dlb_graph *g;
	struct dlb_arena a;
	int n_forward;				/* ops before differentiation */
	/* tensors before differentiation: the length of the tables below */
	int n_known;
	bool *needs;				/* [tensor] its gradient is needed */
	struct dlb_contributions *of;		/* [tensor] contributions to its gradient */
	int *first_reader;			/* [tensor] first op that reads it; -1: none */
	int *extra, n_extra, cap_extra;		/* extra outputs of forward ops, saved for backward ops */
	bool failed;
};
#endif
