/* Splitting an op over nodes: declarations shared by the rules of the operators (split_rules.c), the choice
 * of splits (split.c) and the making of shards (split_make.c). Private to lib/graph, and to lib/cost, which
 * asks the rules which ops can be split.
 *
 * A region is a set of ops that are split alike into `parts` shards. It has `units` units, dealt out in
 * order; the first shards get one more if `units` is not divisible by `parts`. A cut says where the units lie
 * in a tensor: along `axis`, `unit` elements each; if the axis is longer than units * unit, the pattern
 * repeats:
 *
 *     4 heads of 32 in the 384 columns that hold queries, keys and values:   axis 1, unit 32, three times over
 *     the same 4 heads after Reshape to (N, 64, 4, 32):                      axis 2, unit 1
 *
 * So a region can contain Reshape, Split and products, and no tensor between them has to be assembled.
 *
 * A region of 0 units is split by samples: its units are the samples of a micro-batch, and `unit` is the
 * number of indices of the axis per sample. A shard's tensors have the dimensions of the whole, with N being
 * its number of samples (struct dlb_samples); weights are whole, and all shards read them. */
#ifndef DLB_GRAPH_SPLIT_H
#define DLB_GRAPH_SPLIT_H
#include "graph/rewrite.h"

enum { DLB_SPLIT_OPERANDS = 16 };		/* an op with more inputs or outputs is not split */

struct dlb_split_axis { int axis; int64_t unit; };	/* axis -1: not cut, the same for all shards */
struct dlb_split_share { int64_t units, first, count; int parts, index; };	/* of one shard */

/* How one op is split: the cut of each operand. */
struct dlb_op_split {
	struct dlb_split_axis in[DLB_SPLIT_OPERANDS], out[DLB_SPLIT_OPERANDS];
	const char *axis;			/* its name, for messages */
	bool sum;				/* the shards' outputs 0 are summed, not concatenated */
};

/* An index that an op loops over, and its axis in each operand (-1: none). An index without an axis in the
 * outputs is summed over. */
struct dlb_loop { const char *name; int in[DLB_SPLIT_OPERANDS], out[DLB_SPLIT_OPERANDS]; };

/* A shard of an op that is being made: its share of the units, its attributes (with room for two more) and
 * its operands. */
struct dlb_shard {
	const struct dlb_op_split *split;
	struct dlb_split_share share;
	struct dlb_attr *attr;			/* of the graph's arena */
	int n_attr, n_in, in[DLB_SPLIT_OPERANDS];
};

struct dlb_split_rule {
	const char *type;			/* of an operator in ONNX's domain or dlb's */
	/* worth splitting by itself; other ops follow their neighbours */
	bool alone;
	int bias;				/* the input that is added to the output, -1: none */
	/* Lists the op's loops, at most DLB_SPLIT_OPERANDS; returns their number. May be
	 * NULL if `carry` is given. */
	int (*loops)(const struct dlb_graph *g, const struct dlb_op *o, struct dlb_loop *l);
	/* For ops that restrict the number of units: sets the cuts that follow from the cut of operand i
	 * (inputs, then outputs); false: it cannot be split in this way. NULL: `loops` alone decides. */
	bool (*carry)(const struct dlb_graph *g, const struct dlb_op *o, int i, struct dlb_split_axis cut,
		      int64_t units, struct dlb_op_split *s);
	/* The largest number of units of its loops over channels, since groups and heads are not divided.
	 * NULL: 1. */
	int64_t (*groups)(const struct dlb_graph *g, const struct dlb_op *o);
	/* shards are ops of type `part`, and an op of type `join` computes the output from theirs
	 * (split_make.c); NULL: shards have the type of the op */
	const char *part, *join;
	/* Adapts attributes and operands of a shard of `op`. NULL: nothing to adapt. */
	int (*fix)(struct dlb_graph *g, int op, struct dlb_shard *s, struct dlb_error *err);
};
extern const struct dlb_split_rule *const dlb_split_rules[]; /* tables (split_rules.h), then NULL */
const struct dlb_split_rule *dlb_split_rule_of(const struct dlb_op *o);		/* NULL: no rule */
int64_t dlb_split_groups(const struct dlb_graph *g, const struct dlb_op *o); /* `groups` of its rule, or 1 */
/* Sets *s to the split of op o by loop l, which is cut into units; false: some axis is not divisible. */
bool dlb_split_loop(const struct dlb_graph *g, const struct dlb_op *o, const struct dlb_loop *l,
		    int reference, struct dlb_split_axis cut, int64_t units, struct dlb_op_split *s);
/* Sets *s to the split of op o that follows from the cut of one operand, by the `carry` or the loops of its
 * rule; false: there is none. */
bool dlb_split_carry(const struct dlb_graph *g, const struct dlb_op *o, int operand,
		     struct dlb_split_axis cut, int64_t units, struct dlb_op_split *s);
/* Can op o be split by samples: do the cut axes, and only they, follow the batch, without a fixed part? */
bool dlb_split_by_samples(const struct dlb_graph *g, const struct dlb_op *o, const struct dlb_op_split *s);
/* Is the dimension a multiple of units * unit; for 0 units, of `unit` per sample? */
bool dlb_split_divides(struct dlb_dim d, int64_t units, int64_t unit);
/* the shard's part of d */
struct dlb_dim dlb_split_dim(struct dlb_dim d, const struct dlb_split_share *s);

/* dlb_split_region: a set of ops that are split alike. dlb_assigned: the split of one op. */
struct dlb_split_region { int64_t units; int parts; };		/* units 0: by samples */
struct dlb_assigned { int region; struct dlb_op_split spread; };		/* region -1: not split */
/* Replaces the split ops of the forward graph g by shards; assigned[n_ops]. (split_make.c) */
int dlb_split_make(struct dlb_graph *g, const struct dlb_assigned *assigned,
		   const struct dlb_split_region *region, struct dlb_error *err);

/* Begins a change of forward ops: removes backward ops and updates; ops that draw random numbers record the
 * ids on which their numbers depend. -1 if an operator is unknown: the message says that the graph cannot be
 * `what` ("split"). (split.c) */
int dlb_split_start(struct dlb_graph *g, const char *what, struct dlb_error *err);
/* Completes the changed forward graph: backward ops and updates (if it trains), work, homes. (split.c) */
int dlb_split_finish(struct dlb_graph *g, bool trains, struct dlb_error *err);

/* -- sums over shards --
 *
 * Contributions of K shards to one sum, of an output or of a gradient, are added by one op. For shards of an
 * op that is marked (struct dlb_was_split) they are added in pairs, in an order that is part of the graph and
 * so the same for every placement. Contributions of the same shard index are summed first:
 *
 *     x@0 --.
 *     x@1 ---+-> Sum --.
 *     x@2 --.           +-> Sum       one op receives all other parts over its node's link; in pairs no
 *     x@3 ---+-> Sum --'              node receives more than log2 K, and pairs are sent at the same time
 *
 * Tensors below DLB_SPLIT_PAIRS_BYTES, where latency dominates, are always added by one op. */
enum { DLB_SPLIT_PAIRS_BYTES = 65536 };
int dlb_split_shard(const char *name);		/* k of an op NAME@k; -1: the op is no shard */
/* The split op that NAME@k is a shard of; NULL: none. */
struct dlb_was_split *dlb_split_of_shard(const struct dlb_graph *g, const char *name);
/* Are n parts of tensor t's size, computed by these forward ops or by their backward
 * ops, to be added in pairs? */
bool dlb_split_in_pairs(const struct dlb_graph *g, int t, const int *op, int n);
#endif
