/* Automatic differentiation: what autodiff.c (the walk) and builder.c (what gradient functions call) share. */
#ifndef DLB_GRAPH_AUTODIFF_H
#define DLB_GRAPH_AUTODIFF_H
#include "graph/rewrite.h"

struct dlb_contribution { int grad, op; };	/* a gradient, and the forward op that gave it */
struct dlb_contributions { struct dlb_contribution *c; int n, cap; };

struct dlb_autodiff {
	struct dlb_graph *g;
	struct dlb_arena a;
	int n_forward;				/* ops before the walk */
	int n_known;				/* tensors before the walk: the tables below are that long */
	bool *needs;				/* [tensor] a gradient is wanted */
	struct dlb_contributions *of;		/* [tensor] */
	int *first_reader;			/* [tensor] */
	int *extra, n_extra, cap_extra;		/* further outputs of forward ops, added for backward */
	bool failed;
};
#endif
