/* The description of losses in --loss (private to lib/graph), one item per loss:
 *     [OUTPUT=]NAME[:NUMBER][,smoothing=E][,weights=A/B/...][,pos-weight=A/B/...][*FACTOR]
 * The model's loss is the sum of FACTOR times the loss of each item. */
#ifndef DLB_GRAPH_LOSS_H
#define DLB_GRAPH_LOSS_H
#include "graph/graph.h"

enum dlb_loss_kind {
	DLB_LOSS_OFF,
	DLB_LOSS_AUTO,
	DLB_LOSS_CROSS_ENTROPY,
	DLB_LOSS_NEXT_TOKEN,
	DLB_LOSS_BCE,
	DLB_LOSS_MSE,
	DLB_LOSS_L1,
	DLB_LOSS_HUBER,
	DLB_LOSS_SMOOTH_L1,
	DLB_LOSS_KL,
	DLB_LOSS_SUM,
	DLB_N_LOSSES
};
struct dlb_loss_choice {
	enum dlb_loss_kind kind;
	int output;			/* tensor id, -1: the first float output */
	bool has_number;
	double number;			/* class axis, delta or beta, depending on the loss */
	double smoothing, factor;
	const double *weight;		/* one per class, or of positive labels; in the arena */
	int n_weights;
};
/* Parses `text` (NULL: "auto"). Outputs are those of g; lists live in g's arena. */
int dlb_loss_parse(struct dlb_graph *g, const char *text, struct dlb_loss_choice *c, struct dlb_error *err);
#endif
