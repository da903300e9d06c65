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
	/* n_shares: replicas that divide optimizer states (plan/shares.h), 0: each has all; share: this
	 * node's replica */
	int n_shares, share;
	enum dlb_state_dtype dtype;		/* the type of stored optimizer states */
	int n_chunks;				/* of those states, without shares (tensor/state_codec.h) */
	int *const *replica;			/* the plan's, with n_shares > 1: [r][k] */
	/* [tensor] weights of which this node has a share and gathers the rest (plan/shares.h); NULL: none */
	bool *gathered;
	void **value;	/* [tensor] weights, or their shares, and buffers of this node, else NULL */
	void **slot[DLB_MAX_STATES]; /* [tensor] optimizer states of the share of this node's weights */
	void **sum;	/* [op] gradient sums of this node's updates; dlb_program_sum_places places each */
	char **copy;	/* [tensor] copies of weights for asynchronous programs, dlb_place_bytes apart */
	size_t *sum_bytes, *copy_bytes;		/* bytes of each, with all places */
	struct dlb_offload_store *store; /* holds the offloaded tensors; borrowed; NULL: none */
	/* its ranks on this host can access the sums; NULL: none can */
	struct dlb_comm *comm;
	struct dlb_state_constant {
		int tensor;
		int64_t n;
		void *p;
	} * constant;
	int n_constants, cap_constants;
	struct dlb_arena arena;
};
/* The graph and a node, whose ops are those with placement[op] == node. be: the node's device. */
struct dlb_local_graph {
	const struct dlb_graph *graph;
	struct dlb_backend *be;
	const int *placement;
	int node;
	struct dlb_state *before;		/* the state under another plan; NULL: none */
	int n_shares, share;
	/* gives the replicas, the type of optimizer states, and the rules by which `store` holds tensors;
	 * NULL: one replica, f32, all tensors in the device's memory */
	const struct dlb_plan *plan;
	struct dlb_offload_store *store;
};
/* Allocates zeroed arrays; takes over from l->before the weights, buffers and optimizer states that stay on
 * the node, unless the node belonged to another replica. all_sums: makes a sum for every gradient; else only
 * for K-FAC's layers and, with replicas (their comm; NULL: none), for the gradients that cannot be summed in
 * place. */
int dlb_state_init(struct dlb_state *s, const struct dlb_local_graph *l, int rule, bool all_sums,
		   struct dlb_comm *replicas, struct dlb_error *err);
/* Renumbers s for graph `to`, which dlb_graph_freeze made from the graph of s. Keeps weights and buffers, and
 * the optimizer states of weights that are still trained; releases all else. */
void dlb_state_follow(struct dlb_state *s, const struct dlb_graph *to);
/* Placements, [op], between which a rank's state moves when the plan changes; the rank may change its
 * replica. was: its new replica in the old plan, from whose nodes it receives. is: its old replica in the new
 * plan, to whose nodes it sends. held: its old replica in the old plan, which tells the state that it had.
 * holds: its new replica in the new plan, which tells the state that it has. With one replica, held equals
 * was and holds equals is. Both plans have equally many replicas. before, after: the plans; NULL: one replica. */
struct dlb_placements {
	const int *was, *is, *held, *holds;
	const struct dlb_plan *before, *after;
};
/* move.c: moves the weights, buffers and optimizer states whose node has changed, in each replica, from the
 * state `from` of the old plan to the state `to` of the new plan, directly from node to node. A weight that
 * replicas divide under one of the plans only is put together from the shares of all replicas, or cut.
 * Collective; -1: the comm broke. */
int dlb_state_move(struct dlb_state *to, const struct dlb_state *from, const struct dlb_placements *p,
		   struct dlb_comm *comm, struct dlb_error *err);
struct dlb_compress_state;
/* The same for k, the state of the compressed sums of the gradients on `node`. Called when the compressors of
 * the new plan have been made, whose memory receives the state, and those of the old plan are freed. */
int dlb_compress_move(struct dlb_compress_state *k, const struct dlb_graph *g, int node,
		      const struct dlb_placements *p, struct dlb_comm *comm, struct dlb_error *err);
/* Whether replicas divide the optimizer states of tensor t, whichever nodes hold it. */
bool dlb_state_is_divided(const struct dlb_state *s, int t);
/* The share of weight t whose optimizer state this node has; its bytes in each state; its chunks
 * (tensor/state_codec.h). */
struct dlb_share dlb_state_share(const struct dlb_state *s, int t);
size_t dlb_state_slot_bytes(const struct dlb_state *s, int t);
int dlb_state_chunks(const struct dlb_state *s);
/* Whether this node, like its peers in other replicas, has only a share of weight t; the elements in
 * value[t]; their bytes. */
static inline bool dlb_state_gathers(const struct dlb_state *s, int t)
{
	return s->gathered && s->gathered[t];
}
struct dlb_share dlb_state_held(const struct dlb_state *s, int t);
size_t dlb_state_value_bytes(const struct dlb_state *s, int t);
/* Whether this rank belongs to replica 0, whose copy checkpoints and saved weights hold. */
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
/* The values of a constant of the state's graph for n samples; made at the first call, in the back end's
 * memory or, with `memory`, in that memory of the store. NULL with err: no memory, or no values. */
void *dlb_state_constant(struct dlb_state *s, int tensor, int64_t n, const char *memory,
			 struct dlb_error *err);
/* init.c: fresh values of weight t, by the op that reads it: He for convolutions and dense layers (uniform,
 * PyTorch's default bound), ones and zeros for normalization, zeros for biases. Element i depends on (seed,
 * name, i) alone. */
void dlb_weight_draw(const struct dlb_graph *g, int t, uint64_t seed, void *dst);
#endif
