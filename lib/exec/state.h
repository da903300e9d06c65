/* The state of a node from step to step: weights, buffers, sums of gradients, optimizer state, constants. */
#ifndef DLB_EXEC_STATE_H
#define DLB_EXEC_STATE_H
#include "comm/comm.h"
#include "plan/shares.h"

enum { DLB_MAX_STATES = 3 };
struct dlb_state {
	const struct dlb_graph *graph;
	struct dlb_backend *be;
	const int *placement;			/* of this node's replica */
	const int *first_placement;	/* of replica 0, whose copy checkpoints and saved weights hold */
	int node, rule, n_slots;
	/* replicas that divide optimizer states (plan/shares.h), 0: each has all; the number of this node's
	 * replica */
	int n_shares, share;
	enum dlb_state_dtype dtype;		/* in which optimizer states are kept */
	int n_chunks;				/* of those, without shares (tensor/state_codec.h) */
	int *const *replica;			/* the plan's, with n_shares > 1: [r][k] */
	/* [tensor] weights of which this node has a share and gathers the rest (plan/shares.h); NULL: none */
	bool *gathered;
	void **value;	/* [tensor] weights, or their shares, and buffers of this node, else NULL */
	void **slot[DLB_MAX_STATES]; /* [tensor] optimizer states of the share of this node's weights */
	void **sum;	/* [op] gradient sums of this node's updates; dlb_program_sum_places places each */
	char **copy;	/* [tensor] copies of weights for asynchronous programs, dlb_place_bytes apart */
	size_t *sum_bytes, *copy_bytes;		/* bytes of each, with all places */
	struct dlb_offload_store *store; /* has what is offloaded; borrowed; NULL: nothing is */
	struct dlb_comm *comm;			/* whose ranks of this host see the sums; NULL: none does */
	struct dlb_state_constant {
		int tensor;
		int64_t n;
		void *p;
	} * constant;
	int n_constants, cap_constants;
	struct dlb_arena arena;
};
/* The graph as one node sees it, whose ops are those with placement[op] == node. be: its device. */
struct dlb_local_graph {
	const struct dlb_graph *graph;
	struct dlb_backend *be;
	const int *placement;
	int node;
	struct dlb_state *before;		/* under another plan of the graph; NULL: none */
	int n_shares, share;
	/* whose replicas, and how optimizer states are kept: those that its rules name in `store`; NULL: one
	 * replica, as f32, and all are the device's */
	const struct dlb_plan *plan;
	struct dlb_offload_store *store;
};
/* Allocates and zeroes; takes weights, buffers and optimizer states that stay on the node from l->before,
 * unless the node belonged to another replica. all_sums: a sum for every gradient, else for K-FAC's layers
 * and, with replicas (their comm, or NULL), for the gradients that cannot be summed where they lie. */
int dlb_state_init(struct dlb_state *s, const struct dlb_local_graph *l, int rule, bool all_sums,
		   struct dlb_comm *replicas, struct dlb_error *err);
/* The graph of s has become `to`, made by dlb_graph_freeze: numbers s as `to` does. Keeps weights and
 * buffers, and the optimizer's states of weights that are trained; releases all else. */
void dlb_state_follow(struct dlb_state *s, const struct dlb_graph *to);
/* Placements, [op], between which a rank's state moves: the plan before of the replica that the rank belongs to
 * now, from whose nodes it receives, and the new plan of the replica that it belonged to, to whose nodes it
 * sends. With one replica: the plan before, and the new one. Both plans have as many replicas. held, holds: the plan
 * before of the replica that it belonged to, and the new plan of that which it belongs to now: what it had and has. */
struct dlb_placements {
	const int *was, *is, *held, *holds;
};
/* move.c: sends the weights, buffers and optimizer states of each replica whose node has changed from the state
 * `from` under the plan before straight to the nodes whose state `to` wants them. Collective; -1: the comm
 * broke. */
int dlb_state_move(struct dlb_state *to, const struct dlb_state *from, const struct dlb_placements *p,
		   struct dlb_comm *comm, struct dlb_error *err);
struct dlb_compress_state;
/* The same for what compressed sums remember of each gradient, in k, where `node` keeps it: after the compressors of the
 * plan that is have been made, which hold what it gets, and those of the plan that was are gone. */
int dlb_compress_move(struct dlb_compress_state *k, const struct dlb_graph *g, int node,
		      const struct dlb_placements *p, struct dlb_comm *comm, struct dlb_error *err);
/* Whether replicas divide the optimizer states of tensor t, on whatever nodes it is. */
bool dlb_state_is_divided(const struct dlb_state *s, int t);
/* The share of weight t whose optimizer state this node has; its bytes in each state; its chunks
 * (tensor/state_codec.h). */
struct dlb_share dlb_state_share(const struct dlb_state *s, int t);
size_t dlb_state_slot_bytes(const struct dlb_state *s, int t);
int dlb_state_chunks(const struct dlb_state *s);
/* Whether this node, and its peers, have a share of weight t only; the elements that value[t] has; their
 * bytes. */
static inline bool dlb_state_gathers(const struct dlb_state *s, int t)
{
	return s->gathered && s->gathered[t];
}
struct dlb_share dlb_state_held(const struct dlb_state *s, int t);
size_t dlb_state_value_bytes(const struct dlb_state *s, int t);
/* Whether this rank is of replica 0, whose copy checkpoints and saved weights hold. */
static inline bool dlb_state_is_kept(const struct dlb_state *s) { return s->placement == s->first_placement; }
void dlb_state_release(struct dlb_state *s);
/* The node that holds a weight or buffer; -1: no op reads it. */
int dlb_state_home(const struct dlb_graph *g, const int *placement, int tensor);
/* Allocates the copies of weights and the places of gradient sums that these programs need on this node. */
int dlb_state_add_copies(struct dlb_state *s, const struct dlb_program *p, int n_programs,
			 struct dlb_error *err);
/* Sets weights and buffers to the graph's data; those without data, or all with init, are drawn from seed.
 * Weights that no model has (enum dlb_start) are drawn from start_seed without init. */
int dlb_state_load_graph(struct dlb_state *s, bool init, uint64_t seed, uint64_t start_seed,
			 struct dlb_error *err);
/* A constant at n samples in the back end's memory, made at the first call. NULL with err: no memory. */
void *dlb_state_constant(struct dlb_state *s, const struct dlb_graph *g, int tensor, int64_t n,
			 struct dlb_error *err);
/* init.c: fresh values of weight t, by the op that reads it: He for convolutions and dense layers (uniform,
 * PyTorch's default bound), ones and zeros for normalization, zeros for biases. Element i depends on (seed,
 * name, i) alone. */
void dlb_weight_draw(const struct dlb_graph *g, int t, uint64_t seed, void *dst);
#endif
