/* Affinity: the preferred kinds of device of each class of work. A table is a JSON file,
 *
 *     {"classes": {"dense": ["gpu"], "conv": ["fpga", "gpu"], "MatMul": ["tpu"]}}
 *
 * A row's name is an op type or a class of work (dlb_op_work); a type wins over its class. An op with a
 * fused activation (dlb_graph_fused) uses the row of both types, "ConvRelu", if there is one, else the row
 * of the op alone. Kinds are tried in the order given; a word matches a kind's name, the part of its name
 * before the slash, or its back end. */
#ifndef DLB_PLACE_AFFINITY_H
#define DLB_PLACE_AFFINITY_H
#include "cluster/cluster.h"
#include "graph/graph.h"

struct dlb_affinity_row { const char *work; const char **kind; int n; };
struct dlb_affinity { struct dlb_arena arena; struct dlb_affinity_row *row; int n; };
/* `name`: a file, or the name of a table that comes with the tools (share/affinity/NAME.json). */
int dlb_affinity_read(struct dlb_affinity *a, const char *name, struct dlb_error *err);
void dlb_affinity_release(struct dlb_affinity *a);
/* The row for an op type; the row for an op with its fused activation. NULL: none. */
const struct dlb_affinity_row *dlb_affinity_find(const struct dlb_affinity *a, const char *type);
const struct dlb_affinity_row *dlb_affinity_find_fused(const struct dlb_affinity *a, const struct dlb_op *o);
/* Whether the word matches the kind of device. */
bool dlb_affinity_means(const char *word, const struct dlb_device_kind *kind);
/* The first kind of the row that a node of the cluster has and that has a kernel for the type; NULL: none. */
const struct dlb_device_kind *dlb_affinity_home(const struct dlb_affinity_row *row, const char *type,
						const struct dlb_cluster *c);

/* -- fused ops whose activation prefers another kind than the op (keep_affinity.c) -- */
/* The number of such forward ops of g, and the kinds of the first one; n 0: none. Ops with a row for both
 * types ("ConvRelu") do not count. */
struct dlb_fused_elsewhere { int n; const char *op, *kind, *activation_kind; };
struct dlb_fused_elsewhere dlb_affinity_fused_elsewhere(const struct dlb_affinity *a,
							const struct dlb_graph *g,
							const struct dlb_cluster *c);
/* Makes each of these activations an op of its own in the document (dlb_graph_part_activations). The
 * profile keeps the other ops' measurements, the costs are fitted again, and the plan stays, but is stale.
 * *n_unmeasured: op signatures without times, if the profile has any times. Refuses costs that differ from
 * those that dlb-costmodel would fit to the document. */
int dlb_affinity_part(struct dlb_doc *doc, const struct dlb_affinity *a, int *n_unmeasured,
		      struct dlb_error *err);
#endif
