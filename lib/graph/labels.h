/* How the model's loss reads the labels: which count, in which range, with which weights. lib/data checks
 * labels against it and weighs micro-batches by their counted labels. */
#ifndef DLB_GRAPH_LABELS_H
#define DLB_GRAPH_LABELS_H
#include "graph/graph.h"

struct dlb_label_use {
	bool has_ignore;
	int64_t ignore;			/* the label that the loss ignores */
	int64_t classes;		/* labels lie in [0, classes); 0: unknown */
	const double *weight;		/* [classes] weight of each class; NULL: 1 each */
	const bool *counted;		/* [n] elements of a sample that the loss reads; NULL: all */
	int64_t n;			/* elements of a sample */
	bool next_token;		/* the graph shifts them by one (NextToken): the
					 * input's tokens are the labels */
	bool shifted;			/* they are shifted by the graph or the model: a
					 * sample's first element is no label */
};
/* Fills *use for fed tensor t. Follows t to the loss through ops that only move elements; if another
 * op is between, all elements count. false: t does not reach a loss as labels, and only use->n is
 * set. Arrays live in `a`. */
bool dlb_graph_label_use(const struct dlb_graph *g, int t, struct dlb_arena *a, struct dlb_label_use *use);
/* Sets `bound` of each integer input, from the Gather or loss that reads it, directly or through
 * ops that move elements. */
void dlb_graph_set_bounds(struct dlb_graph *g);
int dlb_graph_count_losses(const struct dlb_graph *g);		/* forward ops that are losses */
#endif
