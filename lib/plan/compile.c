/* The compiler: a plan's order becomes one program per node. See program.h for what a program is.
 *
 * It has five passes (actions.c, hooks.c, buckets.c, emit.c; this file lays out the places at the end).
 *
 *   1. dlb_flow_walk gives every (op, m) a position in one legal order of the whole cluster, close to time order,
 *      and finds orders that deadlock.
 *   2. Each node's actions: its items, and the sums of gradients. A gradient computed on the node is summed
 *      at once; a received one is summed before the first item that starts after its expected arrival. Every
 *      action has a key, its position in the order of the whole cluster.
 *   3. Hooks: instructions that run just before or after an action.
 *          before   WAIT sent, STORED, FREE, FETCH, POST, COPY, WAIT, FETCHED, reduced     (in this order)
 *          after    SEND, STORE, FREE, computed, reduce
 *      A receive is posted when the node waits for the receive that comes DLB_LOOK_AHEAD receives before it,
 *      so that at most that many receives are open on a node. The sender waits for its send, and frees the
 *      place, before its first action whose key is greater than that of the receiver's action that reads the
 *      message of DLB_SEND_SLACK micro-batches later (at the end of the step if there is none). So a sender
 *      ahead of the plan does not stop for a reader that is still computing.
 *   4. Outputs that may overwrite an input take over its place (share_places). Messages between nodes that share
 *      memory are read in place where that is safe (zero_copy.c).
 *      (Under an asynchronous schedule the passes compile one step by itself, with keys in half-slots; then the step
 *      is folded into a loop, async.c.)
 *   5. Hooks and actions in order are the program. Intervals in it are the lifetimes of places (arena.c).
 *
 * No plan deadlocks. Run all actions in the order of their keys. POST comes before its WAIT on the same node.
 * SEND comes after an action of a lower key than the action that waits for the message. WAIT sent comes
 * before an action of a higher key than the action that has received the message. So this order completes. A
 * network of such programs, in which nothing depends on relative speed, completes in every order if it
 * completes in one. For asynchronous programs the order of half-slots over all steps is such an order: a
 * receive is posted when the half-slot before its use begins, and its send is waited for when the half-slot
 * after its use begins. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "optim/kfac.h"
#include "plan/buckets.h"
#include "plan/compile.h"
#include "plan/offload.h"
#include "plan/replica.h"
#include "plan/shares.h"
#include "plan/schedule.h"
#include "plan/small_states.h"
#include "plan/tensors.h"

/* ---- which nodes have which tensor ---- */


int dlb_compile_instance(const struct compiler *c, int t, int node, bool second)
{
	for (int i = c->inst_start[t]; i < c->inst_start[t + 1]; i++)
		if (c->inst_node[i] == node && c->second[i] == second)
			return i;
	dlb_bug("tensor %d is not on node %d", t, node);
}

/* The node on which tensor t has a second life: its producer's, or that of the op that would update it; -1:
 * none. */
static int second_life_at(const struct compiler *c, int t)
{
	const struct dlb_graph *g = c->g;
	int from = dlb_tensor_is_state(&g->tensor[t]) ? -1 : g->tensor[t].producer;
	if (dlb_program_share_reader(c->out, t) >= 0)
		return c->p->placement[from];
	if (dlb_program_is_offloaded(c->out, t))
		return c->p->placement[dlb_graph_home(g, t)];
	if (!dlb_plan_has_again(c->p))
		return -1;
	if (from >= 0)
		return (c->p->again && c->p->again[from]) || dlb_plan_is_read_again(c->p, g, t) ?
			       c->p->placement[from] :
			       -1;
	for (int r = g->reader_start[t]; g->tensor[t].kind == DLB_T_BUFFER && r < g->reader_start[t + 1];
	     r++) {
		const struct dlb_op *o = &g->op[g->reader[r]];
		for (int i = 0; dlb_plan_runs_again(c->p, g->reader[r]) && i < o->n_in; i++)
			if (o->in[i] == t && dlb_op_updates_input(g, g->reader[r], i))
				return c->p->placement[g->reader[r]];
	}
	return -1;
}

/* Finds the instances whose places views share. */
static void find_roots(struct compiler *c)
{
	const struct dlb_graph *g = c->g;
	for (int t = 0; t < g->n_tensors; t++) {
		for (int i = c->inst_start[t]; i < c->inst_start[t + 1]; i++) {
			const int op = g->tensor[t].producer, from = dlb_graph_view_of(g, t);
			const bool is_share = c->second[i] && dlb_program_share_reader(c->out, t) >= 0,
				   is_view = from >= 0 && c->p->placement[op] == c->inst_node[i] && !is_share;
			c->inst_tensor[i] = t;
			c->of[i] = is_view ? dlb_compile_read_instance(c, op, c->second[i], from) : -1;
			c->root[i] = i;
		}
	}
	for (int i = 0; i < c->inst_start[g->n_tensors]; i++)
		while (c->of[c->root[i]] >= 0)
			c->root[i] = c->of[c->root[i]];
}

static void find_instances(struct compiler *c)
{
	const struct dlb_graph *g = c->g;
	size_t most = (size_t)g->n_tensors + 1;
	for (int t = 0; t < g->n_tensors; t++)
		most += (size_t)(g->reader_start[t + 1] - g->reader_start[t]) +
			(dlb_plan_has_again(c->p) || c->out->kept || c->out->offload);
	c->second = dlb_xcalloc(most, sizeof *c->second);
	c->inst_tensor = dlb_xcalloc(most, sizeof(int));
	c->inst_start = dlb_xcalloc((size_t)g->n_tensors + 1, sizeof(int));
	c->inst_node = dlb_xcalloc(most, sizeof(int));
	c->root = dlb_xcalloc(most, sizeof(int));
	c->of = dlb_xcalloc(most, sizeof(int));
	c->tag = dlb_xcalloc((size_t)g->n_tensors + 1, sizeof(int));
	int *stamp = dlb_xmalloc((size_t)c->p->n_nodes * sizeof(int)), n = 0;
	for (int i = 0; i < c->p->n_nodes; i++)
		stamp[i] = -1;
	for (int t = 0; t < g->n_tensors; t++) {
		const struct dlb_tensor *x = &g->tensor[t];
		c->inst_start[t] = n;
		c->tag[t] = -1;
		if (x->kind == DLB_T_CONSTANT)
			continue;
		int source = dlb_tensor_is_fed(x) ? -1 : once_a_step(x) ? dlb_graph_home(g, t) : x->producer;
		if (source < 0 && !dlb_tensor_is_fed(x))
			continue;
		if (source >= 0) {
			c->inst_node[n++] = c->p->placement[source];
			stamp[c->p->placement[source]] = t;
		}
		for (int r = g->reader_start[t]; r < g->reader_start[t + 1]; r++) {
			int node = c->p->placement[g->reader[r]];
			if (stamp[node] != t)
				c->inst_node[n++] = node;
			stamp[node] = t;
		}
		if (source >= 0 && n - c->inst_start[t] > 1) {
			c->tag[t] = c->out->n_messages;
			c->out->n_messages += once_a_step(x) ? 1 : c->M;
		}
		int again_at = second_life_at(c, t);
		if (again_at >= 0) {
			c->second[n] = true;
			c->inst_node[n++] = again_at;
		}
	}
	c->inst_start[g->n_tensors] = n;
	find_roots(c);
	const size_t n_slots = (size_t)n * (size_t)c->M + (size_t)c->n_gathers;
	c->slot = dlb_xmalloc((n_slots + 1) * sizeof *c->slot);
	for (size_t i = 0; i < n_slots; i++)
		c->slot[i] = (struct slot){ -1, -1, -1, -1, -1, 0, 0, -1, -1 };
	free(stamp);
}

/* Size in bytes below which a node's arena need not be reduced. */
static size_t arena_enough(const struct dlb_plan *p, int node)
{
	if (!p->arena_room)
		return p->draft ? SIZE_MAX : 0;
	if (p->arena_room[node] >= (double)(SIZE_MAX / 2))
		return SIZE_MAX;
	return p->arena_room[node] > 1 ? (size_t)p->arena_room[node] : 1;
}

/* Bytes of the place of tensor t of micro-batch m; second: of the place of its second life. */
static size_t place_bytes(const struct compiler *c, int t, bool second, int m)
{
	if (second && dlb_program_is_offloaded(c->out, t))
		return dlb_program_near_bytes(c->out, t);
	const int update = second ? dlb_program_share_reader(c->out, t) : -1;
	return update < 0 ? (size_t)dlb_tensor_bytes(&c->g->tensor[t], c->out->size[m]) :
			    dlb_program_share_bytes(c->out, dlb_update_weight(c->g, update));
}

static void lay_out(struct compiler *c)
{
	const struct dlb_graph *g = c->g;
	int *n = dlb_xcalloc((size_t)c->p->n_nodes, sizeof(int));
	for (int i = 0; i < c->inst_start[g->n_tensors]; i++)
		n[c->inst_node[i]] += c->M;
	for (int i = 0; i < c->n_gathers; i++)
		n[c->gather[i].node]++;
	for (int node = 0; node < c->p->n_nodes; node++)
		if (dlb_compile_is_for(c, node))
			c->out->node[node].place = dlb_arena_array(&c->out->arena, (size_t)n[node] + 1,
								   sizeof(struct dlb_place));
	for (int t = 0; t < g->n_tensors; t++) {
		for (int i = c->inst_start[t]; i < c->inst_start[t + 1]; i++) {
			struct dlb_node_program *np = &c->out->node[c->inst_node[i]];
			for (int m = 0; m < c->M; m++) {
				struct slot *s = &c->slot[i * c->M + m],
					    *root = &c->slot[c->root[i] * c->M + m];
				if (s->begin < 0)
					continue;
				bool step = once_a_step(&g->tensor[t]) && !c->second[i];
				int of = c->of[i];
				s->place = np->n_places;
				int instrs = (root->end_at - root->begin_at) * np->n_loop + root->end -
					     root->begin;
				np->place[np->n_places++] = (struct dlb_place){
					t,
					step         ? -1 :
					c->second[i] ? dlb_second_life(c->out, m) :
						       m,
					s == root ? 0 : SIZE_MAX,
					place_bytes(c, t, c->second[i], m),
					s->begin,
					root->end,
					of < 0 ? -1 : c->inst_tensor[of],
					of >= 0 && c->second[of] ? dlb_second_life(c->out, m) : m,
					1 + instrs / np->n_loop
				};
			}
		}
		if (dlb_program_gathers(c->out, t))
			dlb_compile_lay_out_gathers(c, t);
	}
	for (int node = 0; node < c->p->n_nodes; node++) {
		struct dlb_node_program *np = &c->out->node[node];
		if (dlb_compile_is_for(c, node))
			np->arena_bytes = dlb_memory_plan(np->place, np->n_places, np->n_instr,
							  arena_enough(c->p, node), &np->bound_bytes);
	}
	for (int i = 0; i < c->inst_start[g->n_tensors]; i++) {
		for (int m = 0; m < c->M; m++) {
			const struct slot *s = &c->slot[i * c->M + m],
					  *root = &c->slot[c->root[i] * c->M + m];
			struct dlb_node_program *np = &c->out->node[c->inst_node[i]];
			if (s != root && s->place >= 0)
				np->place[s->place].offset = np->place[root->place].offset;
		}
	}
	free(n);
}

/* Adds a tensor to the node's state. weights: the bytes that count as weights; of a trained weight these are
 * only its value, and its other bytes are state of another kind. */
static void count_tensor(struct dlb_node_program *np, double bytes, double weights)
{
	np->state_bytes += (size_t)bytes;
	np->weights_bytes += (size_t)weights;
}

/* Bytes of a trained weight with its optimizer states and the sum of its gradient. */
static double weight_bytes(const struct compiler *c, int t, int n_state)
{
	return dlb_cost_weight_bytes(c->g, t, 0, dlb_program_sums(c->out, dlb_graph_home(c->g, t))) -
	       dlb_tensor_bytes(&c->g->tensor[t], 1) + (double)dlb_program_weight_bytes(c->out, t) +
	       (dlb_program_is_offloaded(c->out, t) ? 0 :
						      (double)dlb_program_state_bytes(c->out, t) * n_state);
}

/* Counts the bytes that each node holds from step to step, and the largest scratch that one of its kernels
 * needs. */
static void count_state(struct compiler *c, const struct dlb_cost *cost, int n_state)
{
	const struct dlb_graph *g = c->g;
	int *stamp = dlb_xmalloc((size_t)c->p->n_nodes * sizeof(int));
	for (int i = 0; i < c->p->n_nodes; i++)
		stamp[i] = -1;
	for (int i = 0; i < c->p->n_nodes; i++) {
		struct dlb_node_program *np = &c->out->node[i];
		for (int k = 0; k < np->n_weights; k++) {
			double bytes = dlb_tensor_bytes(&g->tensor[np->weight[k].tensor], 1);
			int sums = dlb_program_sums(c->out, np->weight[k].update) ? np->weight[k].sums - 1 :
										    0;
			count_tensor(np, (np->weight[k].n + sums) * bytes,
				     np->weight[k].n * bytes);
		}
	}
	for (int t = 0; t < g->n_tensors; t++) {
		const struct dlb_tensor *x = &g->tensor[t];
		int home = dlb_graph_home(g, t);
		double bytes = dlb_tensor_bytes(x, c->f.size[0]);
		if (once_a_step(x) && home >= 0)
			count_tensor(&c->out->node[c->p->placement[home]],
				     x->kind == DLB_T_WEIGHT && g->op[home].phase == DLB_UPDATE ?
					     weight_bytes(c, t, n_state) :
					     bytes,
				     x->kind == DLB_T_WEIGHT ? (double)dlb_program_weight_bytes(c->out, t) :
							       bytes);
		for (int r = g->reader_start[t]; r < g->reader_start[t + 1] && x->kind == DLB_T_CONSTANT;
		     r++) {
			int node = c->p->placement[g->reader[r]];
			if (stamp[node] != t && !dlb_program_weight_is_far(c->out, t))
				count_tensor(&c->out->node[node], bytes, bytes);
			stamp[node] = t;
		}
	}
	for (int i = 0; i < g->n_ops && cost && cost->scratch_bytes; i++) {
		struct dlb_node_program *np = &c->out->node[c->p->placement[i]];
		const int kind = cost->cluster->node[c->p->placement[i]].kind;
		double scratch = 0, packed = 0;
		/* there is a kernel for each size of micro-batch */
		for (int k = 0; k < 1 + (c->f.n_large < c->M); k++) {
			const double n = (double)c->f.size[k];
			packed += dlb_cost_packed_bytes(cost, i, kind, n);
			scratch = fmax(scratch, dlb_cost_scratch_bytes(cost, i, kind, n));
		}
		if (packed > 0 && dlb_program_packs_once(c->out, i))
			scratch += 63 + packed;		/* packed begins at a multiple of 64 */
		else
			count_tensor(np, packed, packed);
		if (scratch > (double)np->scratch_bytes)
			np->scratch_bytes = (size_t)scratch;
	}
	if (!c->out->replicated && !c->out->far_weight)
		dlb_compile_count_gathers(c);
	free(stamp);
}

static void compiler_release(struct compiler *c)
{
	for (int i = 0; i < c->p->n_nodes; i++) {
		free(c->code[i].action);
		free(c->code[i].hook);
		free(c->code[i].recv);
		free(c->code[i].tick);
		free(c->code[i].fold);
		free(c->code[i].sum);
		if (c->item_of) {
			free(c->item_of[i]);
			free(c->versions[i].item);
			free(c->versions[i].weight);
		}
	}
	free(c->item_of);
	free(c->versions);
	free(c->lag);
	free(c->code);
	free(c->inst_start);
	free(c->inst_node);
	free(c->root);
	free(c->of);
	free(c->second);
	free(c->inst_tensor);
	free(c->gather);
	free(c->again_key);
	free(c->again_of);
	free(c->tag);
	free(c->slot);
	free(c->start);
	free(c->seq);
	free(c->action_of);
	dlb_flow_release(&c->f);
}

/* The order of replicas that wait for each other in the middle of a step. They must have their instructions
 * in the same order. So all take the order from replica 0, which is compiled first, whatever their own
 * speeds. If all of them run that order side by side, none waits for ever. */
struct legal_order { double *start; int *seq; };

static void take_walk(struct compiler *c, struct legal_order *w, size_t n_items)
{
	bool first = !w->seq;
	w->start = first ? dlb_xcalloc(n_items, sizeof *w->start) : w->start;
	w->seq = first ? dlb_xcalloc(n_items, sizeof *w->seq) : w->seq;
	memcpy(first ? w->start : c->start, first ? c->start : w->start, n_items * sizeof *w->start);
	memcpy(first ? w->seq : c->seq, first ? c->seq : w->seq, n_items * sizeof *w->seq);
}

static void find_halves(struct dlb_program *out)
{
	const struct dlb_graph *g = out->graph;
	int64_t n_own;
	out->statistics = dlb_arena_array(&out->arena, (size_t)g->n_ops + 1, sizeof *out->statistics);
	for (int i = 0; i < g->n_ops; i++)
		out->statistics[i] = dlb_graph_sums(g, i, &n_own) ? 0 :
								    -1; /* 0: until its bucket has a number */
}

static void set_lags(struct compiler *c)
{
	int most = 0;
	c->lag = dlb_async_lags(&c->f, c->p->clip);
	for (int i = 0; i < c->g->n_ops; i++)
		most = c->lag[i] > most ? c->lag[i] : most;
	c->slot_keys = 4 * ((int64_t)c->g->n_ops + 2);		/* updates have the second half */
	c->n_ticks = 2 * (c->M - 1) + most + 3;
	for (int i = 0; i < c->p->n_nodes; i++)
		c->code[i].tick = dlb_xcalloc((size_t)c->n_ticks, sizeof(int));
}

/* One pipeline: the whole of a plan without replicas (member NULL), or one replica. */
struct pipeline {
	const bool *member;			/* [node] whether the program is made for it */
	int64_t first;				/* its first sample */
	struct legal_order *walk;		/* the order of all replicas; NULL: they need no common one */
	bool longer;				/* see zero_copy.c */
};

/* Sets the members of the program that do not depend on its code; allocates the compiler's tables. */
static void begin(struct compiler *c, int64_t batch, int n_state, int64_t first_sample)
{
	const struct dlb_plan *p = c->p;
	const size_t n_items = (size_t)c->g->n_ops * (size_t)c->M + 1;
	struct dlb_program *out = c->out;

	*out = (struct dlb_program){ .n_nodes = p->n_nodes,
				     .micro_batches = c->M,
				     .batch = batch,
				     .graph = c->g,
				     .plan = p,
				     .async = dlb_plan_is_async(p),
				     .steps = 1,
				     .staleness = p->staleness,
				     .replicated = c->member != NULL,
				     .n_replicas = 1,
				     .step_batch = batch,
				     .n_state = n_state,
				     .whole = p };
	out->offload = dlb_offload_find(out);
	out->gathered = dlb_program_find_gathered(out);
	out->far_weight = dlb_offload_find_weights(out);
	out->most_rank = dlb_compile_most_rank(c);
	out->node = dlb_arena_array(&out->arena, (size_t)p->n_nodes, sizeof *out->node);
	out->size = dlb_arena_array(&out->arena, (size_t)c->M, sizeof *out->size);
	out->first = dlb_arena_array(&out->arena, (size_t)c->M, sizeof *out->first);
	for (int m = 0; m < c->M; m++) {
		out->size[m] = dlb_micro_batch_size(batch, c->M, m);
		out->first[m] = m ? out->first[m - 1] + out->size[m - 1] : first_sample;
	}
	c->start = dlb_xcalloc(n_items, sizeof(double));
	c->seq = dlb_xcalloc(n_items, sizeof(int));
	c->action_of = dlb_xcalloc(n_items, sizeof(int));
	c->code = dlb_xcalloc((size_t)p->n_nodes, sizeof *c->code);
}

/* Pass 1; also refuses plans that no program can carry out. */
static int find_order(struct compiler *c, const struct dlb_cost *cost, struct legal_order *walk,
		      struct dlb_error *err)
{
	if (c->out->async && c->kfac)
		return dlb_fail(err, "/plan/schedule",
				"async: K-FAC's averages would be of other weights than its gradients; take "
				"another optimizer");
	if (c->out->async)
		set_lags(c);
	else if (dlb_flow_walk(&c->f, c->p, c->start, c->seq, err))
		return -1;
	if (c->kfac && c->p->n_shares > 1)
		return dlb_fail(err, "/plan/zero",
				"the state of K-FAC is of matrices, which are not divided by elements; leave "
				"zero out, or take another optimizer");
	if (dlb_offload_check(c->out, cost, err) || dlb_small_states_check(c->out, err))
		return -1;
	if (walk)
		take_walk(c, walk, (size_t)c->g->n_ops * (size_t)c->M + 1);
	if (walk && c->p->sharing.sync_batchnorm)
		find_halves(c->out);
	return 0;
}

/* Passes 2 to 4. */
static int find_code(struct compiler *c, const struct dlb_cost *cost, bool longer, struct dlb_error *err)
{
	dlb_compile_actions(c);
	if (c->member || c->out->far_weight)
		dlb_compile_find_gathers(c);
	for (int node = 0; node < c->p->n_nodes && c->member; node++)
		if (c->member[node])
			dlb_compile_find_sums(c, node);
	find_instances(c);
	dlb_compile_find_uses(c);
	dlb_compile_hook_messages(c);
	dlb_compile_hook_offload(c);
	dlb_compile_hook_gathers(c);
	if (c->p->in_place) {
		dlb_compile_share_places(c);
		dlb_compile_zero_copy(c, cost ? cost->cluster : NULL, longer);
	}
	dlb_compile_hook_frees(c);
	return c->lag ? dlb_compile_async(c, c->out->n_state, err) : 0;
}

/* Pass 5. */
static void emit(struct compiler *c, const struct dlb_cost *cost)
{
	for (int node = 0; node < c->p->n_nodes; node++) {
		if (c->member && c->member[node])
			dlb_compile_hook_reductions(c, node);
		if (dlb_compile_is_for(c, node))
			dlb_compile_emit(c, node);
	}
	lay_out(c);
	count_state(c, cost, c->out->n_state);
}

static int compile(const struct dlb_plan *p, const struct dlb_cost *cost, int64_t batch, int n_state,
		   const struct pipeline *pipeline, struct dlb_program *out, struct dlb_error *err)
{
	struct compiler c = { .p = p,
			      .out = out,
			      .member = pipeline->member,
			      .updates_last = !dlb_plan_is_async(p) && (pipeline->member || p->clip) };

	dlb_flow_init(&c.f, p, cost, batch);
	c.g = c.f.g;
	for (int i = 0; i < c.g->n_ops && !c.kfac; i++)
		c.kfac = dlb_kfac_layer_of(c.g, i) >= 0;
	c.updates_last |= c.kfac && !dlb_plan_is_async(p);
	c.M = c.f.M;
	begin(&c, batch, n_state, pipeline->first);
	const int rc = find_order(&c, cost, pipeline->walk, err) ||
				       find_code(&c, cost, pipeline->longer, err) ?
			       -1 :
			       0;
	if (!rc)
		emit(&c, cost);
	compiler_release(&c);
	if (rc)
		dlb_program_release(out);
	return rc;
}

/* Gives consecutive samples to micro-batch m of all replicas together. */
static void interleave(struct dlb_program *g, int R, const int64_t *share)
{
	int64_t at = 0;
	for (int m = 0; m < g->micro_batches; m++) {
		for (int r = 0; r < R; r++) {
			struct dlb_program *x = r ? &g->other[r - 1] : g;
			if (share[r]) {
				x->first[m] = at;
				at += x->size[m];
			}
		}
	}
}

static int compile_replicas(const struct dlb_plan *p, const struct dlb_cost *cost, int64_t batch, int n_state,
			    bool longer, struct dlb_program *out, struct dlb_error *err)
{
	int R = p->n_replicas, rc = 0, *replica_of = dlb_xcalloc((size_t)p->n_nodes, sizeof *replica_of);
	int64_t *share = dlb_xcalloc((size_t)R, sizeof *share), first = 0;
	int *like = dlb_xcalloc((size_t)R, sizeof *like);
	bool *member = dlb_xcalloc((size_t)p->n_nodes, sizeof *member);
	struct dlb_program *other = dlb_xcalloc((size_t)R, sizeof *other);
	struct legal_order walk = { .start = NULL };
	int M = dlb_plan_micro_batches(p, batch);
	dlb_plan_shares(p, batch, share);
	for (int node = 0; node < p->n_nodes; node++)
		replica_of[node] = dlb_plan_replica_of(p, node);
	dlb_compile_find_like(p, cost, share, like);
	for (int r = 0; r < R && rc == 0; r++) {
		struct dlb_program *g = r ? &other[r - 1] : out;
		struct dlb_plan *part = dlb_xcalloc(1, sizeof *part);
		dlb_plan_of_replica(p, r, share[r] ? share[r] : 1, part);
		part->micro_batches = M < part->micro_batches ? M : part->micro_batches;
		/* nodes of no replica belong to replica 0's program, in which they only end the step */
		for (int node = 0; node < p->n_nodes; node++)
			member[node] = replica_of[node] == r;
		const struct pipeline one = {
			.member = member,
			.first = share[r] ? first : batch - 1,
			.walk = p->sharing.sync_batchnorm || p->sharing.zero == 3 ||
						(p->sharing.zero == 2 && M == 1) ?
					&walk :
					NULL,
			.longer = longer
		};
		if (like[r] < r)
			dlb_compile_copy_replica(p, like[r] ? &other[like[r] - 1] : out, like[r], r, part,
						 one.first, g);
		else
			rc = compile(part, cost, part->batch, n_state, &one, g, err);
		if (rc) {
			dlb_plan_release(part);
			free(part);
			break;
		}
		g->part = part;
		g->whole = p;
		g->replica = r;
		g->step_batch = batch;
		g->weightless = share[r] == 0;
		first += share[r];
	}
	out->n_replicas = R;
	out->other = other;
	out->replica_of = replica_of;
	for (int r = 1; r < R; r++) {
		/* tags of collectives follow those of messages, and must be the same in all replicas */
		if (out->n_messages < other[r - 1].n_messages)
			out->n_messages = other[r - 1].n_messages;
		/* also if the replica was not compiled, because replica 0 releases the list */
		other[r - 1].replica = r;
		other[r - 1].n_replicas = R;
		other[r - 1].replica_of = replica_of;
	}
	for (int r = 1; r < R; r++)
		other[r - 1].n_messages = out->n_messages;
	/* Samples of a shard stay with its replica. Asynchronous: the samples of one micro-batch of all
	 * replicas are computed with weights of the same age. */
	if (rc == 0 && (p->sharing.sync_batchnorm || out->depth) && !p->sharing.shards)
		interleave(out, R, share);
	if (rc == 0)
		dlb_compile_count_sums(out);
	free(walk.start);
	free(walk.seq);
	free(share);
	free(like);
	free(member);
	return rc;
}

static int compile_all(const struct dlb_plan *p, const struct dlb_cost *cost, int64_t batch, int n_state,
		       bool longer, struct dlb_program *out, struct dlb_error *err)
{
	int rc;

	if (p->n_replicas < 2)
		return compile(p, cost, batch, n_state, &(struct pipeline){ .longer = longer }, out, err);
	memset(out, 0, sizeof *out);
	rc = compile_replicas(p, cost, batch, n_state, longer, out, err);
	if (rc)
		dlb_program_release(out);
	return rc;
}

/* Whether senders keep places longer for zero-copy readers, and some node lacks the memory for that. */
static bool keeps_too_much(const struct dlb_program *g, const struct dlb_cost *cost)
{
	bool keeps = false, lacks = false;
	for (int r = 0; r < g->n_replicas; r++)
		keeps |= dlb_program_replica(g, r)->keeps_longer;
	for (int node = 0; node < g->n_nodes && keeps && !lacks; node++) {
		const struct dlb_node_program *np = &dlb_program_of(g, node)->node[node];
		lacks = (double)np->arena_bytes + (double)np->scratch_bytes + (double)np->state_bytes >
			dlb_cluster_node_memory(cost->cluster, node);
	}
	return lacks;
}

int dlb_program_compile(const struct dlb_plan *p, const struct dlb_cost *cost, int64_t batch, int n_state,
			struct dlb_program *out, struct dlb_error *err)
{
	if (p->graph->fixed_batch && batch != p->graph->batch) {
		dlb_fail(err, "/graph/fixed_batch",
			 "%lld samples for a model that was exported for %lld and holds that number",
			 (long long)batch, (long long)p->graph->batch);
		return dlb_hint(err, "give a number of samples that is a multiple of it, or export the model "
				     "with its batch open");
	}
	int rc = compile_all(p, cost, batch, n_state, true, out, err);

	if (!rc && keeps_too_much(out, cost)) {
		dlb_program_release(out);
		rc = compile_all(p, cost, batch, n_state, false, out, err);
	}
	if (!rc)
		dlb_compile_put(out, cost);
	return rc;
}

void dlb_program_release(struct dlb_program *g)
{
	for (int r = 1; r < g->n_replicas && g->replica == 0 && g->other; r++)
		dlb_program_release(&g->other[r - 1]);
	if (g->replica == 0) {
		free(g->other);
		free((void *)g->replica_of);
	}
	if (g->part) {
		dlb_plan_release(g->part);
		free(g->part);
	}
	dlb_arena_release(&g->arena);
	memset(g, 0, sizeof *g);
}
