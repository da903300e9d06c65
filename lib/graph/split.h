/* Splitting an op over nodes: what the rules of the operators (split_rules.c), the choice of what is split how (split.c)
 * and the making of the shards (split_make.c) share. Private to lib/graph, and to lib/cost, which
 * asks the rules what can be split.
 *
 * A split of a region of ops into `parts` shards has `units` units, dealt out in order, the first shards getting one more
 * where they do not come out even. A cut says where these units lie in one tensor: along `axis`, `unit` elements each,
 * and if the axis is longer than units * unit, again and again:
 *
 *     4 heads of 32 in the 384 columns that hold queries, keys and values:   axis 1, unit 32, three times over
 *     the same 4 heads after Reshape to (N, 64, 4, 32):                      axis 2, unit 1
 *
 * So one region runs through Reshape, Split and products without anything being put together on the way.
 *
 * A region of 0 units is split by samples: the units are those of the batch, as many as a micro-batch has, and `unit` is
 * what a sample adds to the axis. A shard's tensors have the dimensions of the whole's, with N standing for the number of its
 * samples (struct dlb_samples); weights are whole, and all shards read them. */
#ifndef DLB_GRAPH_SPLIT_H
#define DLB_GRAPH_SPLIT_H
#include "graph/rewrite.h"

enum { DLB_SPLIT_OPERANDS = 16 };		/* more inputs or outputs than that: the op is not split */

struct dlb_cut { int axis; int64_t unit; };	/* axis -1: the operand is whole, the same for all shards */
struct dlb_share { int64_t units, first, count; int parts, index; };	/* of one shard */

/* How one op is split: the cut of each operand. */
struct dlb_spread {
	struct dlb_cut in[DLB_SPLIT_OPERANDS], out[DLB_SPLIT_OPERANDS];
	const char *axis;			/* its name, for people */
	bool sum;				/* the shards' outputs 0 are to be added up, not put side by side */
};

/* One index that an op loops over, and the axis that stands for it in each operand, -1: none. An index that is in no
 * output is summed over. */
struct dlb_loop { const char *name; int in[DLB_SPLIT_OPERANDS], out[DLB_SPLIT_OPERANDS]; };

struct dlb_split_rule {
	const char *type;			/* of an operator of ONNX's or ours */
	bool alone;				/* worth splitting for itself; the others follow what stands around them */
	int bias;				/* input that is added to the output, -1: none */
	/* Either: the indices, at most DLB_SPLIT_OPERANDS; the number of them. */
	int (*loops)(const struct dlb_graph *g, const struct dlb_op *o, struct dlb_loop *l);
	/* Or, or as well, where not every number of units will do: the cuts that follow from that of operand i (inputs, then outputs); false: it cannot be split so. */
	bool (*carry)(const struct dlb_graph *g, const struct dlb_op *o, int i, struct dlb_cut cut, int64_t units,
		      struct dlb_spread *s);
	/* Shards are ops of another type, what they make is for another op to put together (graph/split_make.c); NULL: not so */
	const char *part, *join;
	/* Changes what in the shard's attributes and operands is not the op's: attr has room for two more, in[] for
	 * DLB_SPLIT_OPERANDS. NULL: nothing. */
	int (*fix)(struct dlb_graph *g, int op, const struct dlb_spread *s, const struct dlb_share *share,
		   struct dlb_attr *attr, int *n_attr, int *in, int *n_in, struct dlb_error *err);
};
extern const struct dlb_split_rule dlb_split_rules[];	/* ends with a row without a type */
const struct dlb_split_rule *dlb_split_rule_of(const struct dlb_op *o);		/* NULL: none */
/* Units that the loops over channels of an op have at most: they are not cut within a group, or a head of attention. */
int64_t dlb_split_groups(const struct dlb_graph *g, const struct dlb_op *o);
/* Loop l of op o with this many units: the spread. false: some axis does not divide into them. */
bool dlb_split_loop(const struct dlb_graph *g, const struct dlb_op *o, const struct dlb_loop *l, int reference,
		    struct dlb_cut cut, int64_t units, struct dlb_spread *s);
/* What rule->carry or the rule's loops say. */
bool dlb_split_carry(const struct dlb_graph *g, const struct dlb_op *o, int operand, struct dlb_cut cut, int64_t units,
		     struct dlb_spread *s);
/* Split by samples, nothing of op o follows the batch but the axes that are cut, and these wholly. */
bool dlb_split_by_samples(const struct dlb_graph *g, const struct dlb_op *o, const struct dlb_spread *s);
/* The dimension divides into whole rows of units * unit; 0 units: into samples of `unit`. */
bool dlb_split_divides(struct dlb_dim d, int64_t units, int64_t unit);
struct dlb_dim dlb_split_dim(struct dlb_dim d, const struct dlb_share *s);	/* the shard's part of it */

/* One op that is to be split. */
struct dlb_region { int64_t units; int parts; };		/* units 0: by samples */
struct dlb_assigned { int region; struct dlb_spread spread; };		/* region -1: it stays whole */
/* Makes the shards of the forward graph g; assigned[n_ops]. (split_make.c) */
int dlb_split_make(struct dlb_graph *g, const struct dlb_assigned *assigned, const struct dlb_region *region,
		   struct dlb_error *err);

/* Begins a change of forward ops: backward ops and updates go, and ops that draw random numbers keep the ids that they draw by.
 * -1: an operator is not known; the message says that the graph cannot be `what` ("split"). (split.c) */
int dlb_split_start(struct dlb_graph *g, const char *what, struct dlb_error *err);
/* The forward graph is made: the backward one of it, work, homes. (split.c) */
int dlb_split_finish(struct dlb_graph *g, bool trains, struct dlb_error *err);

/* -- sums over shards --
 *
 * What K shards made for one sum, their parts of an output or of a gradient, is added by one op. Or, for the shards of an op
 * that is marked so (struct dlb_was_split), in pairs, in an order that the graph fixes, whatever runs where; what
 * the shards of one index made is added first:
 *
 *     x@0 --.
 *     x@1 ---+-> Sum --.
 *     x@2 --.           +-> Sum            one op takes all parts but its own in over its node's link; here no
 *     x@3 ---+-> Sum --'                   node takes more than log2 K, and pairs are on their way at the same time
 *
 * What is hardly worth a message's latency is added by one op in any case. */
enum { DLB_SPLIT_PAIRS_BYTES = 65536 };
int dlb_split_shard(const char *name);		/* of an op NAME@k: k; -1: it is whole */
/* The op that NAME@k is a shard of; NULL: it is none. */
struct dlb_was_split *dlb_split_of_shard(const struct dlb_graph *g, const char *name);
/* Are n parts of tensor t's size, made by these forward ops or for them, to be added in pairs? */
bool dlb_split_in_pairs(const struct dlb_graph *g, int t, const int *op, int n);
#endif
