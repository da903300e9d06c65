/* Passes 3 and 4 of the compiler (compile.c): hooks, the instructions that run just before or after an
 * action (messages, copies, frees), and outputs that take over the place of an input. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "optim/kfac.h"
#include "plan/buckets.h"
#include "plan/compile.h"
#include "plan/shares.h"
#include "plan/tensors.h"

enum { DLB_LOOK_AHEAD = 4, DLB_SEND_SLACK = 2 };

void dlb_compile_add_hook(struct compiler *c, int node, struct hook x)
{
	struct node_code *l = &c->code[node];
	DLB_GROW(l->hook, l->n_hooks, l->cap_hooks);
	l->hook[l->n_hooks++] = x;
}

/* Marks that an action of the node reads tensor t of micro-batch m. second: it reads the second life of t,
 * which an op of this node computes or which is fetched. */
static void use(struct compiler *c, int node, int t, int m, int action, bool second)
{
	const struct dlb_tensor *x = &c->g->tensor[t];
	struct node_code *l = &c->code[node];
	if (x->kind == DLB_T_CONSTANT)
		return;
	if (once_a_step(x)) {
		if (c->p->placement[dlb_graph_home(c->g, t)] == node)
			return;
		m = -1;
	}
	int inst = dlb_compile_instance(c, t, node, second), slot = inst * c->M + (m < 0 ? 0 : m);
	struct slot *s = &c->slot[slot], *root = &c->slot[c->root[inst] * c->M + (m < 0 ? 0 : m)];
	if (s->first < 0) {
		s->first = action;
		if (dlb_tensor_is_fed(x)) {
			dlb_compile_add_hook(c, node,
					     (struct hook){ action, HOOK_COPY, slot, t, m, -1, -1, false,
							    false });
		} else if (!second) { /* else it is fetched: offload.c */
			DLB_GROW(l->recv, l->n_recv, l->cap_recv);
			l->recv[l->n_recv++] = (struct received){ .slot = slot,
								  .tensor = t,
								  .m = m,
								  .action = action,
								  .from = c->inst_node[c->inst_start[t]] };
		}
	}
	root->last = action;
}

/* Marks that the action writes instance i. */
static void make(struct compiler *c, int i, int m, int action)
{
	c->slot[i * c->M + m].first = action;
	if (c->slot[c->root[i] * c->M + m].last < action)
		c->slot[c->root[i] * c->M + m].last = action;
}

/* Marks the gradients that the norm reads in their places: those of this node's updates that are not summed
 * into state and do not leave their places. */
static void use_gradients(struct compiler *c, int node, int action)
{
	const struct dlb_graph *g = c->g;
	for (int i = 0; i < g->n_ops; i++) {
		if (g->op[i].phase != DLB_UPDATE || c->p->placement[i] != node ||
		    dlb_program_sums(c->out, i) || dlb_program_leaves(c->out, i))
			continue;
		for (int j = 0; j < g->op[i].n_in; j++) {
			int t = g->op[i].in[j];
			if (t >= 0 && !dlb_tensor_is_state(&g->tensor[t]) &&
			    !dlb_tensor_is_fed(&g->tensor[t]))
				use(c, node, t, 0, action, false);
		}
	}
}

/* Marks the instances that action a, a run of an op, reads and writes. */
static void find_uses_of_op(struct compiler *c, int node, int a)
{
	const struct dlb_graph *g = c->g;
	const struct action *x = &c->code[node].action[a];
	const struct dlb_op *o = &g->op[x->op];
	const bool update = o->phase == DLB_UPDATE,
		   summed = update && (dlb_program_sums(c->out, x->op) || dlb_program_leaves(c->out, x->op));
	const int m = update ? 0 : x->m;
	for (int j = 0; j < o->n_in; j++) {
		int t = o->in[j];
		bool fed = t >= 0 && dlb_tensor_is_fed(&g->tensor[t]) && !dlb_kfac_operand(o, j);
		if (t >= 0 && x->again && dlb_op_updates_input(g, x->op, j))
			make(c, dlb_compile_instance(c, t, node, true), m, a);
		else if (t >= 0 && !(summed && !dlb_tensor_is_state(&g->tensor[t]) && !fed))
			use(c, node, t, m, a, dlb_plan_reads_again(c->p, g, x->op, x->again, t));
	}
	for (int j = 0; j < o->n_out; j++)
		if (o->out[j] >= 0)
			make(c, dlb_compile_instance(c, o->out[j], node, x->again), m, a);
}

/* Marks the last reads of gradients that leave their places: the end of their sum, or the copy to the
 * bucket's buffer. */
static void find_uses_of_sums(struct compiler *c, int node)
{
	const struct dlb_node_program *np = &c->out->node[node];
	for (int b = 0; b < np->n_buckets && np->bucket[b].cls != DLB_SUM_STATISTICS; b++) {
		const struct dlb_bucket *k = &np->bucket[b];
		const struct bucket_sum *sum = &c->code[node].sum[b];
		/* the sum starts after action sum->start and the frees that follow it */
		const int in_buffer = sum->start + 1 < sum->end ? sum->start + 1 : sum->end;
		for (int i = 0; i < k->n_ops && k->cls != DLB_SUM_WEIGHTS; i++)
			if (dlb_program_leaves(c->out, k->op[i]))
				use(c, node, dlb_update_gradient(c->g, k->op[i]), 0,
				    dlb_program_has_share_place(c->out, k->op[i]) ? sum->end : in_buffer,
				    false);
	}
}

/* Sets the lifetimes of shares of gradients: from the end of their sums to their updates. */
static void find_share_places(struct compiler *c, int node)
{
	const struct dlb_node_program *np = &c->out->node[node];
	for (int b = 0; b < np->n_buckets && np->bucket[b].cls != DLB_SUM_STATISTICS; b++)
		for (int i = 0; i < np->bucket[b].n_ops && np->bucket[b].cls != DLB_SUM_WEIGHTS; i++) {
			const int op = np->bucket[b].op[i];
			if (!dlb_program_has_share_place(c->out, op))
				continue;
			const int share = dlb_compile_instance(c, dlb_update_gradient(c->g, op), node, true);
			make(c, share, 0, c->code[node].sum[b].end);
			make(c, share, 0, c->action_of[op * c->M]);
			c->slot[share * c->M].first = c->code[node].sum[b].end;
		}
}

void dlb_compile_find_uses(struct compiler *c)
{
	for (int node = 0; node < c->p->n_nodes; node++) {
		for (int a = 0; a < c->code[node].n_actions; a++) {
			const struct action *x = &c->code[node].action[a];
			if (x->norm)
				use_gradients(c, node, a);
			if (x->op >= 0 && x->tensor >= 0)
				use(c, node, x->tensor, x->m, a, false);
			else if (x->op >= 0)
				find_uses_of_op(c, node, a);
		}
		find_uses_of_sums(c, node);
		find_share_places(c, node);
	}
}

int dlb_compile_first_after(const struct node_code *l, int64_t key)
{
	/* the last action, the end of the step, always has a greater key */
	int lo = 0, hi = l->n_actions - 1;
	while (lo < hi) {
		int mid = (lo + hi) / 2;
		if (l->action[mid].key > key)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

/* The first action of t's home that changes state t: sends of t must end before it. */
static int first_write(const struct compiler *c, int t)
{
	int home = dlb_graph_home(c->g, t);
	bool writes = c->g->op[home].phase == DLB_UPDATE || c->g->tensor[t].kind == DLB_T_BUFFER;
	return writes ? c->action_of[home * c->M] : c->code[c->p->placement[home]].n_actions - 1;
}

/* Whether the send of weight t must end at once, because an update of t, of any step, follows within two
 * half-slots. */
static bool leaves_at_once(const struct compiler *c, int t, int send_slot)
{
	int home = dlb_graph_home(c->g, t), period = 2 * c->M, next;
	if (c->g->tensor[t].kind == DLB_T_BUFFER)
		return true;
	if (c->g->op[home].phase != DLB_UPDATE)
		return false;
	next = (int)(dlb_compile_key(c, home, -1) / c->slot_keys) - send_slot;
	return ((next % period) + period) % period <= 2;
}

/* Adds the hooks of both ends of a message. */
static void hook_message(struct compiler *c, int node, struct received *r, int post, int send, int sent,
			 int type)
{
	int tag = c->tag[r->tensor] + (r->m < 0 ? 0 : r->m);
	r->hook_post = c->code[node].n_hooks;
	dlb_compile_add_hook(c, node,
			     (struct hook){ post, HOOK_POST, r->slot, r->tensor, r->m, r->from, tag, false,
					    false });
	r->hook_wait = c->code[node].n_hooks;
	dlb_compile_add_hook(c, node,
			     (struct hook){ r->action, HOOK_WAIT, r->slot, r->tensor, r->m, r->from, tag,
					    false, false });
	r->hook_send = c->code[r->from].n_hooks;
	dlb_compile_add_hook(c, r->from,
			     (struct hook){ send, HOOK_SEND, -1, r->tensor, r->m, node, tag, false, false });
	r->hook_sent = c->code[r->from].n_hooks;
	dlb_compile_add_hook(c, r->from,
			     (struct hook){ sent, type, -1, r->tensor, r->m, node, tag, false, false });
	if (r->m >= 0) {
		struct slot *root = &c->slot[c->root[c->inst_start[r->tensor]] * c->M + r->m];
		root->sent = root->sent < sent ? sent : root->sent;
	}
}

static void hook_message_async(struct compiler *c, int node, struct received *r)
{
	int m = r->m < 0 ? 0 : r->m, used = dlb_compile_half_slot(c, node, r->action), type = HOOK_WAIT_SENT;
	struct node_code *from = &c->code[r->from];
	int source = c->inst_start[r->tensor],
	    send = r->m < 0 ? from->tick[used - 1] : c->slot[source * c->M + m].first;
	int sent = from->tick[used + 1];
	if (r->m < 0 && leaves_at_once(c, r->tensor, used - 1)) {
		type = HOOK_SENT_AFTER;
		sent = send;
	}
	hook_message(c, node, r, c->code[node].tick[used - 1], send, sent, type);
}

void dlb_compile_hook_messages(struct compiler *c)
{
	for (int node = 0; node < c->p->n_nodes; node++) {
		struct node_code *l = &c->code[node];
		for (int i = 0, open = 0; i < l->n_recv; i++) {
			struct received *r = &l->recv[i];
			if (c->lag) {
				hook_message_async(c, node, r);
				continue;
			}
			struct node_code *from = &c->code[r->from];
			int m = r->m < 0 ? 0 : r->m, post = 0, send = 0, limit = from->n_actions - 1;
			/* receives of weights are posted at the start of the step */
			if (r->m >= 0) {
				static const int ahead = DLB_LOOK_AHEAD;
				for (int k = i, seen = 0; open >= ahead && k >= 0; k--) {
					if (k < i && l->recv[k].m >= 0 && ++seen == ahead) {
						post = l->recv[k].action;
						break;
					}
				}
				open++;
				send = c->slot[c->inst_start[r->tensor] * c->M + m].first;
			} else {
				limit = first_write(c, r->tensor);
			}
			int sent = limit;
			if (r->m < 0)
				sent = dlb_compile_first_after(from, l->action[r->action].key);
			else if (r->m + DLB_SEND_SLACK < c->M)
				sent = dlb_compile_first_after(
					from, l->action[c->slot[r->slot + DLB_SEND_SLACK].first].key);
			if (sent <= send)
				sent = send + 1;
			if (sent > limit)
				sent = limit;
			hook_message(c, node, r, post, send, sent, HOOK_WAIT_SENT);
		}
	}
}

bool *dlb_compile_live_at_end(const struct compiler *c)
{
	const struct dlb_graph *g = c->g;
	bool *keep = dlb_xcalloc((size_t)c->inst_start[g->n_tensors] + 1, sizeof *keep), trains = false;
	for (int i = 0; i < g->n_ops; i++)
		trains |= g->op[i].phase != DLB_FORWARD;
	for (int i = -1; i < (trains ? 0 : g->n_outputs) && !c->lag; i++) {
		int t = i < 0 ? g->loss : g->output[i];
		for (int k = t < 0 ? 0 : c->inst_start[t]; t >= 0 && k < c->inst_start[t + 1]; k++)
			keep[c->root[k]] |= !c->second[k];
	}
	return keep;
}

/* Whether for every micro-batch a run of an op is the last reader of the place of instance x, and the sends
 * from that place have ended before. action: [m] of the op's run. */
static bool reads_last(const struct compiler *c, const int *action, int x)
{
	for (int m = 0; m < c->M; m++) {
		const struct slot *s = &c->slot[x * c->M + m];
		if (s->first < 0 || s->last != action[m] || s->sent > action[m])
			return false;
	}
	return true;
}

/* Gives instance i, and its views on the node, the place of instance x. */
static void move_views(struct compiler *c, int i, int x)
{
	const struct dlb_graph *g = c->g;
	const int t = c->inst_tensor[i], node = c->inst_node[i];
	c->root[i] = x;
	for (int r = g->reader_start[t]; r < g->reader_start[t + 1]; r++) {
		int op = g->reader[r];
		if (c->p->placement[op] != node || !dlb_graph_is_view(g, op) || g->op[op].in[0] != t)
			continue;
		const bool runs_again = dlb_plan_runs_again(c->p, op) && dlb_plan_needs_again(c->p, g, op);
		for (int again = 0; again <= runs_again; again++)
			if (dlb_compile_read_instance(c, op, again, t) == i)
				move_views(c, dlb_compile_instance(c, g->op[op].out[0], node, again), x);
	}
}

/* Moves instance y, an output, and its views into the place of x, which is the place of the input. */
static void take_over(struct compiler *c, int x, int y, int input)
{
	for (int m = 0; m < c->M; m++) {
		struct slot *to = &c->slot[x * c->M + m], *from = &c->slot[y * c->M + m];
		to->last = from->last;
		to->sent = from->sent > to->sent ? from->sent : to->sent;
	}
	c->of[y] = input;
	move_views(c, y, x);
}

/* Puts output 0 of op (of its second run with `again`) over an input that nothing reads later. */
static void share_place(struct compiler *c, int op, bool again, bool *keep)
{
	const struct dlb_graph *g = c->g;
	const struct dlb_op *o = &g->op[op];
	const int *action = (again ? c->again_of : c->action_of) + op * c->M;
	if (o->phase == DLB_UPDATE || o->n_out < 1 || o->out[0] < 0 || dlb_graph_is_view(g, op))
		return;
	for (int k = 0; k < o->n_in; k++) {
		if (!dlb_graph_may_overwrite(g, op, k))
			continue;
		int input = dlb_compile_read_instance(c, op, again, o->in[k]), x = c->root[input],
		    y = dlb_compile_instance(c, o->out[0], c->p->placement[op], again);
		bool alone = true; /* no other input is a view of this one */
		for (int j = 0; j < o->n_in; j++)
			if (j != k && o->in[j] >= 0 && !dlb_tensor_is_state(&g->tensor[o->in[j]]))
				alone &= c->root[dlb_compile_read_instance(c, op, again, o->in[j])] != x;
		if (alone && !keep[x] && c->root[y] == y && reads_last(c, action, x)) {
			take_over(c, x, y, input);
			keep[x] |= keep[y];
			return;
		}
	}
}

void dlb_compile_share_places(struct compiler *c)
{
	const struct dlb_graph *g = c->g;
	bool *keep = dlb_compile_live_at_end(c);
	/* in the order of data flow: forward, again, backward */
	for (int op = 0; op < g->n_ops; op++)
		if (!c->p->again || g->op[op].phase == DLB_FORWARD)
			share_place(c, op, false, keep);
	for (int op = 0; op < g->n_ops; op++)
		if (dlb_plan_runs_again(c->p, op))
			share_place(c, op, true, keep);
	for (int op = 0; op < g->n_ops; op++)
		if (c->p->again && g->op[op].phase != DLB_FORWARD)
			share_place(c, op, false, keep);
	free(keep);
}

void dlb_compile_hook_frees(struct compiler *c)
{
	const struct dlb_graph *g = c->g;
	bool *keep = dlb_compile_live_at_end(c);
	for (int t = 0; t < g->n_tensors; t++) {
		for (int i = c->inst_start[t]; i < c->inst_start[t + 1]; i++) {
			for (int m = 0; m < c->M; m++) {
				struct slot *s = &c->slot[i * c->M + m];
				int node = c->inst_node[i], end = c->code[node].n_actions - 1,
				    m_or_step = once_a_step(&g->tensor[t]) && !c->second[i] ? -1 : m;
				if (c->root[i] != i || s->first < 0)
					continue;
				bool zero_copy = s->source_node >= 0;
				struct hook x = { s->last,
						  HOOK_FREE_AFTER,
						  i * c->M + m,
						  t,
						  m_or_step,
						  s->source_node,
						  zero_copy ? c->tag[t] + m : -1,
						  zero_copy,
						  c->second[i] };
				if (keep[i])
					x.action = end;
				else if (s->sent > s->last)
					x.action = s->sent, x.type = HOOK_FREE_BEFORE;
				dlb_compile_add_hook(c, node, x);
			}
		}
	}
	free(keep);
}
