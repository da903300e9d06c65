/* Declarations shared by the rules for splitting operators (split_rules.c). Private to lib/graph. */
#ifndef DLB_GRAPH_SPLIT_RULES_H
#define DLB_GRAPH_SPLIT_RULES_H
#include "graph/order.h"
#include "graph/split.h"

/* The last row of each table has no type. */
extern const struct dlb_split_rule dlb_split_compute[], dlb_split_move[], dlb_split_attention[];

/* Operand i, inputs before outputs; NULL: absent. */
const struct dlb_tensor *dlb_split_operand(const struct dlb_graph *g, const struct dlb_op *o, int i);
bool dlb_split_is_one(struct dlb_dim d);
/* The attribute "axis" of o, counted from the front of its first input. */
int dlb_split_axis_attr(const struct dlb_graph *g, const struct dlb_op *o, int64_t otherwise);

void dlb_loop_clear(struct dlb_loop *l, const char *name); /* no operand has an axis of the loop */
int *dlb_loop_axis(struct dlb_loop *l, const struct dlb_op *o, int i); /* the loop's axis in operand i */

void dlb_shard_set_int(struct dlb_shard *s, const char *name, int64_t v);
void dlb_shard_drop_attr(struct dlb_shard *s, const char *name);
#endif
