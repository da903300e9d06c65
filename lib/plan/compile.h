/* Data of the compiler's passes; compile.c explains the passes. Private to lib/plan. */
#ifndef DLB_PLAN_COMPILE_H
#define DLB_PLAN_COMPILE_H
#include "plan/again.h"
#include "plan/flow.h"

/* Instructions around an action, in their order; those from HOOK_SEND on run after it. */
enum {
	HOOK_WAIT_SENT,
	HOOK_STORED,
	HOOK_FREE_BEFORE,
	HOOK_FETCH,
	HOOK_POST,
	HOOK_COPY,
	HOOK_WAIT,
	HOOK_FETCHED,
	HOOK_REDUCED,
	HOOK_SEND,
	HOOK_SENT_AFTER,
	HOOK_STORE,
	HOOK_FREE_AFTER,
	HOOK_COMPUTED,
	HOOK_REDUCE,
	N_HOOKS
};

/* Actions that involve all nodes: NORM waits for the global norm (and computes it, under synchronous
 * schedules), SQUARES sums the squares of this node's gradients, TRUST computes K-FAC's trust region. */
enum { NO_NORM, NORM, SQUARES, TRUST };
/* tensor >= 0: accumulate; op < 0: start, norm, end of the step, or start of a half-slot */
struct action { int64_t key; int op, m, tensor, norm; bool again; };	/* again: the second run of op */
struct hook { int action, type; int slot, tensor, m, peer, tag; bool zero_copy, again; };
struct slot {						/* (tensor, node, m) */
	int first, last, sent;				/* actions; -1: none */
	int begin, end;					/* instructions */
	int begin_at, end_at;				/* their iterations */
	int place;
	/* the sender's node if the tensor is received and read in place; else -1 */
	int source_node;
};
/* hook_post, hook_wait: hooks of the receiver; hook_send, hook_sent: hooks of node `from` */
struct received { int slot, tensor, m, action, from, hook_post, hook_wait, hook_send, hook_sent; };
/* A bucket's sum: action `start` computes its last summand, and the sum is complete before action `end`. */
struct bucket_sum { int start, end; };
/* A whole weight in the arena of node: its gather begins after action `start`, and actions `first` to `last`
 * read it; update: the last action, if it updates the weight there (offload.h), else -1. */
struct gathered {
	int node, tensor, life, bucket, start, first, last, update;
};
struct node_code {						/* one node */
	struct action *action; int n_actions;
	struct hook *hook; int n_hooks, cap_hooks;
	struct received *recv; int n_recv, cap_recv;
	/* asynchronous: [half-slot] action at its beginning */
	int *tick;
	int *fold;					/* actions in the order of the loop */
	struct bucket_sum *sum;				/* [bucket], without statistics */
};
struct compiler {
	struct dlb_flow f;
	const struct dlb_plan *p;
	const struct dlb_graph *g;
	struct dlb_program *out;
	int M;
	const bool *member; /* [node] whether the program is made for it; NULL: for all nodes */
	bool kfac;					/* K-FAC optimizes some layer */
	/* updates wait for other replicas or the global norm, so they come last on every node: a legal order,
	 * since nothing in the step depends on them */
	bool updates_last;
	/* An instance is a tensor on a node that has it, or the second life of the tensor there. A tensor's
	 * first instance is the first life on its home. root: the instance whose place an instance shares. */
	int *inst_start, *inst_node, *root;
	bool *second;
	/* instance -> the instance of the input that it is a view of or overwrites; -1: none */
	int *of;
	int *inst_tensor;
	int *tag;					/* [tensor] tag of micro-batch 0; -1: never sent */
	/* zero stage 3 and offloaded weights: by node and first use; their slots follow those of instances */
	struct gathered *gather; int n_gathers, cap_gathers;
	struct slot *slot;				/* [instance * M + m] */
	double *start; int *seq, *action_of;		/* [item] */
	int64_t *again_key; int *again_of;		/* [item] of the second run; NULL: no op runs again */
	struct node_code *code;
	int *lag, n_ticks;				/* asynchronous, else NULL: [op] in half-slots */
	int64_t slot_keys;				/* keys in a half-slot */
	struct dlb_async_node *versions;		/* [node] */
	int **item_of;					/* [node][action] -> item of versions; -1: none */
};

static inline bool once_a_step(const struct dlb_tensor *t)
{
	return t->kind == DLB_T_WEIGHT || t->kind == DLB_T_BUFFER;
}

static inline bool dlb_compile_is_for(const struct compiler *c, int node)
{
	return !c->member || c->member[node];
}

/* compile.c: the instance of tensor t on the node, which must have it; second: of its second life there. */
int dlb_compile_instance(const struct compiler *c, int t, int node, bool second);
/* The instance of tensor t that op (its second run with `again`) reads. */
static inline int dlb_compile_read_instance(const struct compiler *c, int op, bool again, int t)
{
	return dlb_compile_instance(c, t, c->p->placement[op],
				    dlb_plan_reads_again(c->p, c->g, op, again, t));
}

/* ---- actions.c ---- */
/* The key of (op, m) in the order of the cluster; m -1: of an update. */
int64_t dlb_compile_key(const struct compiler *c, int op, int m);
int dlb_compile_half_slot(const struct compiler *c, int node, int action);
void dlb_compile_actions(struct compiler *c);

/* ---- hooks.c ---- */
void dlb_compile_add_hook(struct compiler *c, int node, struct hook x);
void dlb_compile_find_uses(struct compiler *c);
void dlb_compile_hook_messages(struct compiler *c);
void dlb_compile_share_places(struct compiler *c);
void dlb_compile_hook_frees(struct compiler *c);
/* The first action of a greater key; at most the last action, the end of the step. */
int dlb_compile_first_after(const struct node_code *l, int64_t key);
/* [instance] Whether its place is read after the step. Returns new. */
bool *dlb_compile_live_at_end(const struct compiler *c);

/* ---- offload.c ---- */
/* Adds FETCH, STORE and their ends for offloaded tensors, and the lifetimes of their places in the arena. */
void dlb_compile_hook_offload(struct compiler *c);

/* ---- gathers.c ---- */
/* Finds the intervals in which weights are whole in the arena. */
void dlb_compile_find_gathers(struct compiler *c);
/* The number of gathers of the node; dlb_compile_add_gathers adds a bucket for each of them to the node. */
int dlb_compile_count_gathers_of(const struct compiler *c, int node);
void dlb_compile_add_gathers(struct compiler *c, int node);
void dlb_compile_hook_gathers(struct compiler *c);
/* Adds the places in which weight t is whole. */
void dlb_compile_lay_out_gathers(struct compiler *c, int t);
/* In a program without other replicas to gather from, counts as state the whole weights that are alive at
 * once. */
void dlb_compile_count_gathers(struct compiler *c);

/* ---- zero_copy.c ---- */
/* Marks messages that are read in place. longer: also messages for which the sender must keep its place
 * longer. */
void dlb_compile_zero_copy(struct compiler *c, const struct dlb_cluster *cluster, bool longer);

/* ---- copy_replica.c ---- */
/* like[r]: the first replica that has the program of r, on other nodes; r: none. share: [replica] samples. */
void dlb_compile_find_like(const struct dlb_plan *p, const struct dlb_cost *c, const int64_t *share,
			   int *like);
/* Makes the program of replica r a copy of `from`, the program of replica q. part: the plan of r; first: its
 * first sample. The copy borrows from the arena of `from`. */
void dlb_compile_copy_replica(const struct dlb_plan *p, const struct dlb_program *from, int q, int r,
			      const struct dlb_plan *part, int64_t first, struct dlb_program *out);

/* ---- buckets.c ---- */
/* The number of the node's ops whose statistics over a batch are summed over replicas. */
int dlb_compile_count_statistics(const struct compiler *c, int node);
/* Finds the node's buckets, and the actions between which their sums run. */
void dlb_compile_find_sums(struct compiler *c, int node);
void dlb_compile_hook_reductions(struct compiler *c, int node);
/* Adds to each node's state the buffers of its sums and the state of compression. g: replica 0's program. */
void dlb_compile_count_sums(struct dlb_program *g);
int dlb_compile_most_rank(const struct compiler *c);		/* see dlb_program.most_rank */

/* The node's first action that changes or reads the sum of update's gradient. */
int dlb_compile_first_use(const struct compiler *c, int update);

/* ---- emit.c ---- */
/* Folds the step into the loop of an asynchronous schedule, and finds the copies of weights that it needs.
 * -1 with err. */
int dlb_compile_async(struct compiler *c, int n_state, struct dlb_error *err);
void dlb_compile_emit(struct compiler *c, int node);
#endif
