/* Affinity: which kinds of device a class of work is at home on. A table is a JSON file,
 *
 *     {"classes": {"dense": ["gpu"], "conv": ["fpga", "gpu"], "MatMul": ["tpu"]}}
 *
 * A row's name is an op type or a class of work (dlb_op_work); a type wins over its class. An op that has taken an
 * activation in (dlb_graph_fused) goes by the row of both types, "ConvRelu", where there is one, else as without the
 * activation. Kinds are tried in the order given; one is meant by its name, by what stands before the slash of its name, or
 * by its back end. */
#ifndef DLB_PLACE_AFFINITY_H
#define DLB_PLACE_AFFINITY_H
#include "cluster/cluster.h"
#include "graph/graph.h"

struct dlb_affinity_row { const char *work; const char **kind; int n; };
struct dlb_affinity { struct dlb_arena arena; struct dlb_affinity_row *row; int n; };
/* `name`: a file, or the name of a table that comes with the tools (share/affinity/NAME.json). */
int dlb_affinity_read(struct dlb_affinity *a, const char *name, struct dlb_error *err);
void dlb_affinity_release(struct dlb_affinity *a);
/* The row for an op type; the row that names an op with the activation that it has taken in. NULL: none. */
const struct dlb_affinity_row *dlb_affinity_find(const struct dlb_affinity *a, const char *type);
const struct dlb_affinity_row *dlb_affinity_find_fused(const struct dlb_affinity *a, const struct dlb_op *o);
/* Is a kind of device meant by this word? */
bool dlb_affinity_means(const char *word, const struct dlb_device_kind *kind);
/* The first kind of the row that a node of the cluster has and that has a kernel for the type; NULL: none. */
const struct dlb_device_kind *dlb_affinity_home(const struct dlb_affinity_row *row, const char *type, const struct dlb_cluster *c);

/* -- ops whose activation is at home on another kind than they are (keep_affinity.c) -- */
/* Forward ops of g that are fused so: how many, and the kinds of the first one; n 0: none. Ops that a row of the table names
 * with their activation ("ConvRelu") are not among them. */
struct dlb_fused_elsewhere { int n; const char *op, *kind, *activation_kind; };
struct dlb_fused_elsewhere dlb_affinity_fused_elsewhere(const struct dlb_affinity *a, const struct dlb_graph *g, const struct dlb_cluster *c);
/* In the document each of their activations becomes an op by itself (dlb_graph_part_activations). The profile keeps what was measured
 * of the other ops, the costs are made anew, the plan is left as it was: for another graph. *n_unmeasured: op signatures that the
 * profile has no times of though it has some of others. Refuses costs that dlb-costmodel would not make of the document. */
int dlb_affinity_part(struct dlb_doc *doc, const struct dlb_affinity *a, int *n_unmeasured, struct dlb_error *err);
#endif
