/* How the model's loss reads labels that are fed: which count, in which range, with which weights. Data check labels
 * against it, and weigh micro-batches by the labels that count in them. */
#ifndef DLB_GRAPH_LABELS_H
#define DLB_GRAPH_LABELS_H
#include "graph/graph.h"

struct dlb_label_use {
	bool has_ignore;
	int64_t ignore;			/* the label that the loss does not count */
	int64_t classes;		/* labels lie in [0, classes); 0: not known */
	const double *weight;		/* [classes] what a label of each class counts; NULL: 1 each */
	const bool *counted;		/* [n] which elements of a sample the loss reads at all; NULL: all */
	int64_t n;			/* elements of a sample */
	bool next_token;		/* the graph moves them by one (NextToken): the tokens of the input are labels */
	bool shifted;			/* likewise, or the model does so itself: a sample's first element is no label */
};
/* Of fed tensor t. Looks from t through ops that only move elements to the loss; where another kind of op stands between,
 * all elements count. false: t does not reach a loss as labels, *use has n alone. Arrays live in `a`. */
bool dlb_graph_label_use(const struct dlb_graph *g, int t, struct dlb_arena *a, struct dlb_label_use *use);
/* Sets `bound` of each integer input: by the Gather or the loss that reads it, directly or through ops that move elements. */
void dlb_graph_set_bounds(struct dlb_graph *g);
int dlb_graph_count_losses(const struct dlb_graph *g);		/* forward ops that are losses */
#endif
