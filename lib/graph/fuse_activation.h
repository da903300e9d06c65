/* Ops that are fused with their activation. */
#ifndef DLB_GRAPH_FUSE_ACTIVATION_H
#define DLB_GRAPH_FUSE_ACTIVATION_H
#include "graph/graph.h"

/* The parts of a forward op that was fused with its activation (fuse_activation.c): the op computes
 * `activation` of an op of `type`. type NULL: it was not fused. */
struct dlb_fused { const char *type, *activation, *rewrite; };
struct dlb_fused dlb_graph_fused(const struct dlb_op *o);
/* Separates the activations of the forward ops for which `apart` returns true: each becomes an op OP.relu;
 * backward and update ops are made anew, and the counts of `rewritten` are updated. Losses stay bit-equal,
 * except that the kernel library may choose other code for a convolution without activation. Ids change.
 * Returns how many were separated, -1 with err. */
int dlb_graph_part_activations(struct dlb_graph *g, bool (*apart)(const void *ctx, const struct dlb_op *o),
			       const void *ctx, struct dlb_error *err);
#endif
