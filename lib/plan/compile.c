/* The compiler: a plan's order becomes one program per node. See program.h for what a program is.
 *
 * It goes in five passes.
 *
 *   1. dlb_flow_walk gives every (op, m) a rank in one legal order of the whole cluster, close to time order,
 *      and finds orders that wait for each other for ever.
 *   2. Each node's actions: its items, and the sums of gradients. A gradient made here is summed at once; one
 *      made elsewhere before the first item that starts after it is expected. Every action carries its key,
 *      its place in the order of the whole cluster.
 *   3. Notes: what must happen just before or after an action.
 *          before   WAIT sent, FREE, POST, COPY, WAIT, reduced        (in this order)
 *          after    SEND, FREE, computed, reduce
 *      A receive is posted when the receive DLB_LOOK_AHEAD before it is waited for, so that at most so many
 *      places stand open on a node. The send is waited for, and its place freed, before the first action whose
 *      key is greater than that of the action that reads the message of DLB_SEND_SLACK micro-batches later over
 *      there (at the end of the step where there is none): a sender that is ahead of the plan does not stop
 *      for a reader that is still computing.
 *   4. Outputs that may overwrite an input take over its place (share_places).
 *      (Under an asynchronous schedule the five passes are made for one step by itself, whose actions have keys by
 *      half-slot; then it is folded: emission goes round the loop once, async.c.)
 *   5. Notes and actions in order are the program; intervals in it are the lifetimes of places (memory.c).
 *
 * No deadlock, whatever the plan: run all actions in the order of their keys. POST stands before the WAIT it
 * belongs to on the same node, SEND after an action of a lower key than the one that waits for it, WAIT sent
 * before one of a higher key than the one that has the message. So that order completes, and a network of
 * such programs, where nothing depends on who is faster, completes in every order if it does in one. The order of
 * half-slots is such an order for asynchronous programs, over all steps: a message is posted when the half-slot
 * before its use begins, and its send waited for when the one after its use begins. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "plan/flow.h"

enum { DLB_LOOK_AHEAD = 4, DLB_SEND_SLACK = 2 };
enum { RANK_WAIT_SENT, RANK_FREE_BEFORE, RANK_POST, RANK_COPY, RANK_WAIT, RANK_REDUCED, RANK_SEND, RANK_SENT_AFTER, RANK_FREE_AFTER,
       RANK_COMPUTED, RANK_REDUCE, N_RANKS };

struct action { int64_t key; int op, m, tensor; bool norm; };	/* tensor >= 0: accumulate; op < 0: start, norm, end of the step, or
								 * start of a half-slot */
struct note { int action, rank; int slot, tensor, m, peer, tag; };
struct slot {						/* (tensor, node, m) */
	int first, last, sent;				/* actions; -1: none */
	int begin, end;					/* instructions */
	int begin_at, end_at;				/* their iterations */
	int place;
};
struct received { int slot, tensor, m, action, from; };
struct lane {						/* one node */
	struct action *act; int n_act;
	struct note *note; int n_notes, cap_notes;
	struct received *recv; int n_recv, cap_recv;
	int *tick;					/* asynchronous: [half-slot] action at its beginning */
	int *fold;					/* actions in the order of the loop */
};
struct compiler {
	struct dlb_flow f;
	const struct dlb_plan *p;
	const struct dlb_graph *g;
	struct dlb_program *out;
	int M;
	bool updates_last;				/* they wait for other replicas, or the global norm: behind all else on every node, which is
							 * a legal order since nothing of the step depends on them */
	int *inst_start, *inst_node, *root;		/* instances of a tensor: nodes that have it; root: instance whose place it has */
	int *of;					/* instance -> tensor whose place it shares at once; -1: its own */
	int *tag;					/* [tensor] tag of micro-batch 0; -1: never sent */
	struct slot *slot;				/* [instance * M + m] */
	double *start; int *seq, *act_of;		/* [item] */
	struct lane *lane;
	int *lag, n_ticks;				/* asynchronous, else NULL: [op] in half-slots */
	int64_t slot_keys;				/* keys in a half-slot */
	struct dlb_async_lane *versions;		/* [node] */
	int **item_of;					/* [node][action] -> item of versions, -1 */
};

/* ---- which nodes have which tensor ---- */

static bool once_a_step(const struct dlb_tensor *t) { return t->kind == DLB_T_WEIGHT || t->kind == DLB_T_BUFFER; }

static int find_instance(const struct compiler *c, int t, int node)
{
	for (int i = c->inst_start[t]; i < c->inst_start[t + 1]; i++)
		if (c->inst_node[i] == node)
			return i;
	dlb_bug("tensor %d is not on node %d", t, node);
}

static void find_instances(struct compiler *c)
{
	const struct dlb_graph *g = c->g;
	size_t most = (size_t)g->n_tensors + 1;
	for (int t = 0; t < g->n_tensors; t++)
		most += (size_t)(g->reader_start[t + 1] - g->reader_start[t]);
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
	}
	c->inst_start[g->n_tensors] = n;
	for (int t = 0; t < g->n_tensors; t++) {
		for (int i = c->inst_start[t]; i < c->inst_start[t + 1]; i++) {
			int x = t, from;
			while ((from = dlb_graph_view_of(g, x)) >= 0 && c->p->placement[g->tensor[x].producer] == c->inst_node[i])
				x = from;
			c->root[i] = x == t ? i : find_instance(c, x, c->inst_node[i]);
			c->of[i] = x == t ? -1 : dlb_graph_view_of(g, t);
		}
	}
	c->slot = dlb_xcalloc((size_t)n * (size_t)c->M + 1, sizeof *c->slot);
	for (size_t i = 0; i < (size_t)n * (size_t)c->M; i++)
		c->slot[i] = (struct slot){ -1, -1, -1, -1, -1, 0, 0, -1 };
	free(stamp);
}

/* ---- actions ---- */

static int by_key(const void *a, const void *b)
{
	const struct action *x = a, *y = b;
	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return x->op != y->op ? (x->op > y->op) - (x->op < y->op) : x->m - y->m;
}

static int64_t key_of(const struct compiler *c, int op, int m)		/* m -1: an update */
{
	if (!c->lag)
		return 2 * (int64_t)c->seq[op * c->M + (m < 0 ? 0 : m)];
	return (2 * (int64_t)(m < 0 ? c->M - 1 : m) + c->lag[op]) * c->slot_keys + 2 * (op + 1);
}

static int half_slot(const struct compiler *c, int node, int action)
{
	return (int)(c->lane[node].act[action].key / c->slot_keys);
}

/* The key for the sum of gradient t of micro-batch m into update op u: before the first item of u's node that
 * starts when the gradient is expected there, no earlier than `least`. items: the node's items, `n` up to u. */
static int64_t key_of_arrival(const struct compiler *c, const struct action *items, int n, int edge, int m, int64_t least)
{
	int from = c->f.pred[edge] * c->M + m, lo = 0, hi = n;
	double arrival = c->start[from] + dlb_flow_s(&c->f, c->f.pred[edge], m) + c->f.pred_s[2 * edge + dlb_flow_class(&c->f, m)];
	while (lo < hi) {
		int mid = (lo + hi) / 2;
		const struct action *a = &items[mid];
		double start = c->start[a->op * c->M + (a->m < 0 ? 0 : a->m)];
		if (start >= arrival && a->key > 2 * (int64_t)c->seq[from] && a->key - 1 >= least)
			hi = mid;
		else
			lo = mid + 1;
	}
	assert(n > 0);
	return items[lo < n ? lo : n - 1].key - 1;
}

/* Asynchronous: in the half-slot after the one that made it, before anything of an update. */
static int64_t key_of_arrival_async(const struct compiler *c, int from, int m, int update)
{
	return (key_of(c, from, m) / c->slot_keys + 1) * c->slot_keys + 2 * (update + 1) - 1;
}

static int edge_from(const struct dlb_flow *f, int op, int pred)
{
	for (int e = f->pred_start[op]; e < f->pred_start[op + 1]; e++)
		if (f->pred[e] == pred)
			return e;
	dlb_bug("op %d does not read from op %d", op, pred);
}

/* Where updates stand last: what is added to their places in the order of the cluster; the key between them and all else. */
static int64_t late(const struct compiler *c) { return (int64_t)c->g->n_ops * c->M + 2; }
static int64_t norm_key(const struct compiler *c) { return 2 * late(c) - 2; }

/* The node's items, updates after the others where they stand last: *n_before of them, then. Returns how many. */
static int find_items(const struct compiler *c, int node, struct action *items, int *n_before)
{
	const struct dlb_node_plan *np = &c->p->node[node];
	int n = 0;
	for (int last = 0; last <= c->updates_last; last++) {
		*n_before = n;
		for (int i = 0; i < np->n_order; i++) {
			int op = np->order[i].op, m = np->order[i].micro_batch;
			if (m >= c->M || (c->updates_last && (m < 0) != last))
				continue;
			items[n++] = (struct action){ key_of(c, op, m) + (last ? 2 * late(c) : 0), op, m, -1, false };
		}
	}
	return n;
}

static void find_actions(struct compiler *c)
{
	const struct dlb_graph *g = c->g;
	for (int node = 0; node < c->p->n_nodes; node++) {
		const struct dlb_node_plan *np = &c->p->node[node];
		struct lane *l = &c->lane[node];
		size_t most = (size_t)np->n_order + 3 + (size_t)c->n_ticks;
		for (int i = 0; i < np->n_order; i++)
			if (g->op[np->order[i].op].phase == DLB_UPDATE)
				most += (size_t)g->op[np->order[i].op].n_in * (size_t)c->M;
		struct action *items = dlb_xcalloc((size_t)np->n_order + 1, sizeof *items);
		l->act = dlb_xcalloc(most, sizeof *l->act);
		if (!c->lag)
			l->act[l->n_act++] = (struct action){ -1, -1, -1, -1, false };
		for (int i = 0; i < c->n_ticks; i++)
			l->act[l->n_act++] = (struct action){ i * c->slot_keys, -1, -1, -1, false };
		if (c->p->clip)
			l->act[l->n_act++] = (struct action){ norm_key(c), -1, -1, -1, true };
		int n_before, n_items = find_items(c, node, items, &n_before);
		for (int i = 0; i < n_items; i++) {
			int op = items[i].op;
			l->act[l->n_act++] = items[i];
			for (int j = 0; j < g->op[op].n_in && g->op[op].phase == DLB_UPDATE && dlb_program_sums(c->out, op); j++) {
				int t = g->op[op].in[j];
				if (t < 0 || dlb_tensor_is_state(&g->tensor[t]) || dlb_tensor_is_fed(&g->tensor[t]))
					continue;
				int from = g->tensor[t].producer, edge = edge_from(&c->f, op, from);
				int64_t key = 0;
				for (int m = 0; m < c->M; m++) {
					key = c->p->placement[from] == node ? key_of(c, from, m) + 1 :
						c->lag ? key_of_arrival_async(c, from, m, op) :
						key_of_arrival(c, items, c->updates_last ? n_before + 1 : i + 1, edge, m, key);
					if (c->updates_last && key >= norm_key(c))
						key = norm_key(c) - 1;
					l->act[l->n_act++] = (struct action){ key, op, m, t, false };
				}
			}
		}
		if (!c->lag)
			l->act[l->n_act++] = (struct action){ INT64_MAX, -1, -1, -1, false };
		qsort(l->act, (size_t)l->n_act, sizeof *l->act, by_key);
		for (int a = 0, i = 0; a < l->n_act && c->lag; a++)
			if (l->act[a].op < 0)
				l->tick[i++] = a;
		for (int a = 0; a < l->n_act; a++)
			if (l->act[a].op >= 0 && l->act[a].tensor < 0)
				c->act_of[l->act[a].op * c->M + (l->act[a].m < 0 ? 0 : l->act[a].m)] = a;
		free(items);
	}
}

/* ---- notes ---- */

static void note(struct compiler *c, int node, struct note x)
{
	struct lane *l = &c->lane[node];
	DLB_GROW(l->note, l->n_notes, l->cap_notes);
	l->note[l->n_notes++] = x;
}

static void use(struct compiler *c, int node, int t, int m, int action)
{
	const struct dlb_tensor *x = &c->g->tensor[t];
	struct lane *l = &c->lane[node];
	if (x->kind == DLB_T_CONSTANT)
		return;
	if (once_a_step(x)) {
		if (c->p->placement[dlb_graph_home(c->g, t)] == node)
			return;
		m = -1;
	}
	int inst = find_instance(c, t, node), slot = inst * c->M + (m < 0 ? 0 : m);
	struct slot *s = &c->slot[slot], *root = &c->slot[c->root[inst] * c->M + (m < 0 ? 0 : m)];
	if (s->first < 0) {
		s->first = action;
		if (dlb_tensor_is_fed(x)) {
			note(c, node, (struct note){ action, RANK_COPY, slot, t, m, -1, -1 });
		} else {
			DLB_GROW(l->recv, l->n_recv, l->cap_recv);
			l->recv[l->n_recv++] = (struct received){ slot, t, m, action, c->inst_node[c->inst_start[t]] };
		}
	}
	root->last = action;
}

/* What the norm reads where gradients are not summed into state: those of the updates here. */
static void use_gradients(struct compiler *c, int node, int action)
{
	const struct dlb_graph *g = c->g;
	for (int i = 0; i < g->n_ops; i++) {
		if (g->op[i].phase != DLB_UPDATE || c->p->placement[i] != node || dlb_program_sums(c->out, i))
			continue;
		for (int j = 0; j < g->op[i].n_in; j++) {
			int t = g->op[i].in[j];
			if (t >= 0 && !dlb_tensor_is_state(&g->tensor[t]) && !dlb_tensor_is_fed(&g->tensor[t]))
				use(c, node, t, 0, action);
		}
	}
}

static void note_uses(struct compiler *c)
{
	const struct dlb_graph *g = c->g;
	for (int node = 0; node < c->p->n_nodes; node++) {
		for (int a = 0; a < c->lane[node].n_act; a++) {
			const struct action *x = &c->lane[node].act[a];
			if (x->norm)
				use_gradients(c, node, a);
			if (x->op < 0)
				continue;
			if (x->tensor >= 0) {
				use(c, node, x->tensor, x->m, a);
				continue;
			}
			const struct dlb_op *o = &g->op[x->op];
			bool update = o->phase == DLB_UPDATE, summed = update && dlb_program_sums(c->out, x->op);
			for (int j = 0; j < o->n_in; j++) {
				int t = o->in[j];
				if (t >= 0 && !(summed && !dlb_tensor_is_state(&g->tensor[t]) && !dlb_tensor_is_fed(&g->tensor[t])))
					use(c, node, t, update ? 0 : x->m, a);
			}
			for (int j = 0; j < o->n_out; j++) {
				if (o->out[j] < 0)
					continue;
				int inst = find_instance(c, o->out[j], node), m = update ? 0 : x->m;
				c->slot[inst * c->M + m].first = a;
				if (c->slot[c->root[inst] * c->M + m].last < a)
					c->slot[c->root[inst] * c->M + m].last = a;
			}
		}
	}
}

static int first_after(const struct lane *l, int64_t key)
{
	int lo = 0, hi = l->n_act - 1;			/* the last one, the end of the step, always is */
	while (lo < hi) {
		int mid = (lo + hi) / 2;
		if (l->act[mid].key > key)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

/* State must have left before its owner changes it: the action that does. */
static int first_write(const struct compiler *c, int t)
{
	int home = dlb_graph_home(c->g, t);
	bool writes = c->g->op[home].phase == DLB_UPDATE || c->g->tensor[t].kind == DLB_T_BUFFER;
	return writes ? c->act_of[home * c->M] : c->lane[c->p->placement[home]].n_act - 1;
}

/* Weights leave before their owner's next update, whatever step that is of. */
static bool leaves_at_once(const struct compiler *c, int t, int send_slot)
{
	int home = dlb_graph_home(c->g, t), period = 2 * c->M, next;
	if (c->g->tensor[t].kind == DLB_T_BUFFER)
		return true;
	if (c->g->op[home].phase != DLB_UPDATE)
		return false;
	next = (int)(key_of(c, home, -1) / c->slot_keys) - send_slot;
	return ((next % period) + period) % period <= 2;
}

static void note_message_async(struct compiler *c, int node, const struct received *r)
{
	int m = r->m < 0 ? 0 : r->m, tag = c->tag[r->tensor] + m, used = half_slot(c, node, r->action), rank = RANK_WAIT_SENT;
	struct lane *from = &c->lane[r->from];
	int source = c->inst_start[r->tensor], send = r->m < 0 ? from->tick[used - 1] : c->slot[source * c->M + m].first;
	int sent = from->tick[used + 1];
	if (r->m < 0 && leaves_at_once(c, r->tensor, used - 1)) {
		rank = RANK_SENT_AFTER;
		sent = send;
	}
	note(c, node, (struct note){ c->lane[node].tick[used - 1], RANK_POST, r->slot, r->tensor, r->m, r->from, tag });
	note(c, node, (struct note){ r->action, RANK_WAIT, r->slot, r->tensor, r->m, r->from, tag });
	note(c, r->from, (struct note){ send, RANK_SEND, -1, r->tensor, r->m, node, tag });
	note(c, r->from, (struct note){ sent, rank, -1, r->tensor, r->m, node, tag });
	if (r->m >= 0) {
		struct slot *root = &c->slot[c->root[source] * c->M + m];
		root->sent = root->sent < sent ? sent : root->sent;
	}
}

static void note_messages(struct compiler *c)
{
	for (int node = 0; node < c->p->n_nodes; node++) {
		struct lane *l = &c->lane[node];
		for (int i = 0, open = 0; i < l->n_recv; i++) {
			const struct received *r = &l->recv[i];
			if (c->lag) {
				note_message_async(c, node, r);
				continue;
			}
			const struct dlb_tensor *x = &c->g->tensor[r->tensor];
			struct lane *from = &c->lane[r->from];
			int m = r->m < 0 ? 0 : r->m, tag = c->tag[r->tensor] + m, post = 0, send = 0, limit = from->n_act - 1;
			if (r->m >= 0) {			/* weights are posted at the start of the step */
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
			int source = c->inst_start[r->tensor], sent = limit;
			if (r->m < 0)
				sent = first_after(from, l->act[r->action].key);
			else if (r->m + DLB_SEND_SLACK < c->M)
				sent = first_after(from, l->act[c->slot[r->slot + DLB_SEND_SLACK].first].key);
			if (sent <= send)
				sent = send + 1;
			if (sent > limit)
				sent = limit;
			note(c, node, (struct note){ post, RANK_POST, r->slot, r->tensor, r->m, r->from, tag });
			note(c, node, (struct note){ r->action, RANK_WAIT, r->slot, r->tensor, r->m, r->from, tag });
			note(c, r->from, (struct note){ send, RANK_SEND, -1, r->tensor, r->m, node, tag });
			note(c, r->from, (struct note){ sent, RANK_WAIT_SENT, -1, r->tensor, r->m, node, tag });
			if (!once_a_step(x)) {
				struct slot *root = &c->slot[c->root[source] * c->M + m];
				if (root->sent < sent)
					root->sent = sent;
			}
		}
	}
}

/* [instance] Places that are read when the step is over. Returns new. */
static bool *find_kept(const struct compiler *c)
{
	const struct dlb_graph *g = c->g;
	bool *keep = dlb_xcalloc((size_t)c->inst_start[g->n_tensors] + 1, sizeof *keep), trains = false;
	for (int i = 0; i < g->n_ops; i++)
		trains |= g->op[i].phase != DLB_FORWARD;
	for (int i = -1; i < (trains ? 0 : g->n_outputs) && !c->lag; i++) {
		int t = i < 0 ? g->loss : g->output[i];
		for (int k = t < 0 ? 0 : c->inst_start[t]; t >= 0 && k < c->inst_start[t + 1]; k++)
			keep[c->root[k]] = true;
	}
	return keep;
}

/* Whether for every micro-batch op is the last to read what lies in the place of instance x, whose messages have
 * left before. */
static bool reads_last(const struct compiler *c, int op, int x)
{
	for (int m = 0; m < c->M; m++) {
		const struct slot *s = &c->slot[x * c->M + m];
		int action = c->act_of[op * c->M + m];
		if (s->first < 0 || s->last != action || s->sent > action)
			return false;
	}
	return true;
}

/* The place of tensor t on node, and of what is a view of it there, is that of instance x. */
static void move_views(struct compiler *c, int t, int node, int x)
{
	const struct dlb_graph *g = c->g;
	c->root[find_instance(c, t, node)] = x;
	for (int r = g->reader_start[t]; r < g->reader_start[t + 1]; r++) {
		int op = g->reader[r];
		if (c->p->placement[op] == node && dlb_graph_is_view(g, op) && g->op[op].in[0] == t)
			move_views(c, g->op[op].out[0], node, x);
	}
}

/* Output 0 of op, instance y, with all that are views of it, moves into the place of x. */
static void take_over(struct compiler *c, int op, int x, int y, int input)
{
	for (int m = 0; m < c->M; m++) {
		struct slot *to = &c->slot[x * c->M + m], *from = &c->slot[y * c->M + m];
		to->last = from->last;
		to->sent = from->sent > to->sent ? from->sent : to->sent;
	}
	c->of[y] = input;
	move_views(c, c->g->op[op].out[0], c->inst_node[y], x);
}

static void share_places(struct compiler *c)
{
	const struct dlb_graph *g = c->g;
	bool *keep = find_kept(c);
	for (int op = 0; op < g->n_ops; op++) {
		const struct dlb_op *o = &g->op[op];
		int node = c->p->placement[op];
		if (o->phase == DLB_UPDATE || o->n_out < 1 || o->out[0] < 0 || dlb_graph_is_view(g, op))
			continue;
		for (int k = 0; k < o->n_in; k++) {
			if (!dlb_graph_may_overwrite(g, op, k))
				continue;
			int x = c->root[find_instance(c, o->in[k], node)], y = find_instance(c, o->out[0], node);
			bool alone = true;			/* another input may be a view of this one */
			for (int j = 0; j < o->n_in; j++)
				if (j != k && o->in[j] >= 0 && !dlb_tensor_is_state(&g->tensor[o->in[j]]))
					alone &= c->root[find_instance(c, o->in[j], node)] != x;
			if (alone && !keep[x] && c->root[y] == y && reads_last(c, op, x)) {
				take_over(c, op, x, y, o->in[k]);
				keep[x] |= keep[y];
				break;
			}
		}
	}
	free(keep);
}

static void note_frees(struct compiler *c)
{
	const struct dlb_graph *g = c->g;
	bool *keep = find_kept(c);
	for (int t = 0; t < g->n_tensors; t++) {
		for (int i = c->inst_start[t]; i < c->inst_start[t + 1]; i++) {
			for (int m = 0; m < c->M; m++) {
				struct slot *s = &c->slot[i * c->M + m];
				int node = c->inst_node[i], end = c->lane[node].n_act - 1, m_or_step = once_a_step(&g->tensor[t]) ? -1 : m;
				if (c->root[i] != i || s->first < 0)
					continue;
				struct note x = { s->last, RANK_FREE_AFTER, i * c->M + m, t, m_or_step, -1, -1 };
				if (keep[i])
					x.action = end;
				else if (s->sent > s->last)
					x.action = s->sent, x.rank = RANK_FREE_BEFORE;
				note(c, node, x);
			}
		}
	}
	free(keep);
}

/* ---- sums over replicas ---- */

int dlb_update_gradient(const struct dlb_graph *g, int update)
{
	const struct dlb_op *o = &g->op[update];
	for (int j = 0; j < o->n_in; j++)
		if (o->in[j] >= 0 && !dlb_tensor_is_state(&g->tensor[o->in[j]]) && !dlb_tensor_is_fed(&g->tensor[o->in[j]]))
			return o->in[j];
	return -1;
}

bool dlb_gradient_is_own(const struct dlb_graph *g, const int *placement, int update)
{
	int t = dlb_update_gradient(g, update);
	if (t < 0 || placement[g->tensor[t].producer] != placement[update])
		return false;
	for (; t >= 0; t = dlb_graph_view_of(g, t)) {
		if (g->reader_start[t + 1] - g->reader_start[t] != 1 || dlb_tensor_is_fed(&g->tensor[t]) || t == g->loss)
			return false;
		for (int k = 0; k < g->n_outputs; k++)
			if (g->output[k] == t)
				return false;
	}
	return true;
}

bool dlb_program_sums(const struct dlb_program *g, int update)
{
	return g->micro_batches > g->steps || (g->replicated && !dlb_gradient_is_own(g->graph, g->plan->placement, update));
}

struct ready { int producer, op; };

static int by_producer(const void *a, const void *b)
{
	const struct ready *x = a, *y = b;
	return x->producer != y->producer ? (x->producer > y->producer) - (x->producer < y->producer) : (x->op > y->op) - (x->op < y->op);
}

static int count_statistics(const struct compiler *c, int node)
{
	int n = 0;
	for (int i = 0; i < c->g->n_ops && c->out->statistics; i++)
		n += c->p->placement[i] == node && c->out->statistics[i] >= 0;
	return n;
}

/* One bucket for each op here that runs in halves. */
static void find_statistics(struct compiler *c, int node)
{
	struct dlb_node_program *np = &c->out->node[node];
	for (int i = 0; i < c->g->n_ops && c->out->statistics; i++) {
		if (c->p->placement[i] != node || c->out->statistics[i] < 0)
			continue;
		struct dlb_bucket *b = &np->bucket[np->n_buckets];
		int *op = dlb_arena_array(&c->out->arena, 1, sizeof *op);
		*op = i;
		*b = (struct dlb_bucket){ .op = op, .n_ops = 1, .cls = DLB_SUM_STATISTICS, .element_bytes = sizeof(double) };
		b->n = dlb_graph_sums(c->g, i, &b->n_own);
		np->state_bytes += (size_t)(b->n + b->n_own) * sizeof(double);
		c->out->statistics[i] = np->n_buckets++;
	}
}

/* Buckets are made of the graph and of who holds what, so that all replicas make the same. */
static void find_buckets(struct compiler *c, int node)
{
	const struct dlb_graph *g = c->g;
	struct dlb_node_program *np = &c->out->node[node];
	const struct dlb_node_plan *plan = &c->p->node[node];
	struct ready *ready = dlb_xcalloc((size_t)plan->n_order + 1, sizeof *ready);
	int n = 0;
	for (int i = 0; i < plan->n_order; i++) {
		int op = plan->order[i].op, t = g->op[op].phase == DLB_UPDATE ? dlb_update_gradient(g, op) : -1;
		if (t >= 0)
			ready[n++] = (struct ready){ g->tensor[t].producer, op };
	}
	qsort(ready, (size_t)n, sizeof *ready, by_producer);
	int *op = dlb_arena_array(&c->out->arena, (size_t)n + 1, sizeof *op), open = -1;
	np->bucket = dlb_arena_array(&c->out->arena, (size_t)n + (size_t)count_statistics(c, node) + 1, sizeof *np->bucket);
	double open_bytes = 0;
	for (int large = 1, at = 0; large >= 0; large--) {	/* small ones are gathered after all large ones have a bucket */
		for (int i = 0; i < n; i++) {
			const struct dlb_tensor *x = &g->tensor[dlb_update_gradient(g, ready[i].op)];
			double bytes = dlb_tensor_bytes(x, 1);
			if ((bytes >= DLB_BUCKET_BYTES) != large)
				continue;
			if (large || open < 0 || open_bytes + bytes > DLB_BUCKET_BYTES) {
				open = np->n_buckets++;
				open_bytes = 0;
				np->bucket[open].op = op + at;
				np->bucket[open].cls = large ? DLB_SUM_GRADIENT : DLB_SUM_SMALL;
				np->bucket[open].element_bytes = (int)dlb_dtype_bytes(x->dtype);
			}
			op[at++] = ready[i].op;
			open_bytes += bytes;
			np->bucket[open].n_ops++;
			struct dlb_desc d = dlb_tensor_desc(x, 1);
			np->bucket[open].n += dlb_desc_count(&d);
		}
		open = -1;
	}
	free(ready);
	find_statistics(c, node);
}

/* The action that sums the last micro-batch of update op's gradient, or makes the only one. */
static int last_sum(const struct compiler *c, int node, int op)
{
	const struct lane *l = &c->lane[node];
	int last = c->act_of[c->g->tensor[dlb_update_gradient(c->g, op)].producer * c->M];
	if (!dlb_program_sums(c->out, op))
		return last;
	for (int a = 0; a < l->n_act; a++)
		if (l->act[a].op == op && l->act[a].tensor >= 0)
			last = a;
	return last;
}

static void note_reductions(struct compiler *c, int node)
{
	struct dlb_node_program *np = &c->out->node[node];
	const struct lane *l = &c->lane[node];
	bool averages = dlb_sharing_averages(&c->p->sharing);
	int computed = 0, norm = -1;
	find_buckets(c, node);
	for (int a = 0; a < l->n_act; a++)
		norm = l->act[a].norm ? a : norm;
	for (int a = 0; a < l->n_act; a++)
		if (l->act[a].op >= 0 && (l->act[a].tensor >= 0 || c->g->op[l->act[a].op].phase != DLB_UPDATE))
			computed = a;
	if (c->p->sharing.sync)
		note(c, node, (struct note){ computed, RANK_COMPUTED, -1, -1, -1, -1, -1 });
	for (int b = 0; b < np->n_buckets && np->bucket[b].cls != DLB_SUM_STATISTICS; b++) {
		int start = 0, first = l->n_act - 1;
		for (int i = 0; i < np->bucket[b].n_ops; i++) {
			int op = np->bucket[b].op[i], sum = last_sum(c, node, op), update = c->act_of[op * c->M];
			start = sum > start ? sum : start;
			if (averages)
				start = update > start ? update : start;
			else
				first = update < first ? update : first;
		}
		if (norm >= 0 && !averages)
			first = norm;
		note(c, node, (struct note){ c->p->sharing.sync ? computed : start, RANK_REDUCE, -1, -1, -1, -1, b });
		note(c, node, (struct note){ first, RANK_REDUCED, -1, -1, -1, -1, b });
	}
}

/* ---- the program ---- */

static const struct { unsigned char verb; bool sent; } of_rank[N_RANKS] = {
	[RANK_WAIT_SENT] = { DLB_WAIT, true }, [RANK_FREE_BEFORE] = { DLB_FREE, false }, [RANK_POST] = { DLB_POST, false },
	[RANK_COPY] = { DLB_COPY, false }, [RANK_WAIT] = { DLB_WAIT, false }, [RANK_SEND] = { DLB_SEND, false },
	[RANK_SENT_AFTER] = { DLB_WAIT, true }, [RANK_FREE_AFTER] = { DLB_FREE, false }, [RANK_REDUCED] = { DLB_COLLECTIVE, false },
	[RANK_COMPUTED] = { DLB_COLLECTIVE, false }, [RANK_REDUCE] = { DLB_COLLECTIVE, false },
};

static void emit_note(struct compiler *c, struct dlb_node_program *np, const struct note *x, int iteration)
{
	if (x->rank == RANK_POST || x->rank == RANK_COPY) {
		c->slot[x->slot].begin = np->n_instr;
		c->slot[x->slot].begin_at = iteration;
	}
	if (x->rank == RANK_FREE_BEFORE || x->rank == RANK_FREE_AFTER) {
		c->slot[x->slot].end = np->n_instr;
		c->slot[x->slot].end_at = iteration;
	}
	bool old = c->out->depth && c->out->staleness == DLB_STALE_2BW && x->m < 0 && (of_rank[x->rank].sent || x->rank == RANK_SEND);
	np->instr[np->n_instr++] = (struct dlb_instr){ .verb = of_rank[x->rank].verb, .sent = of_rank[x->rank].sent, .op = -1,
		.what = x->rank == RANK_REDUCED ? DLB_RUN_REDUCED : x->rank == RANK_REDUCE ? DLB_RUN_REDUCE :
			x->rank == RANK_COMPUTED ? DLB_RUN_COMPUTED : 0,
		.tensor = x->tensor, .micro_batch = x->m, .iteration = iteration, .version = old, .peer = x->peer, .tag = x->tag };
}

/* The first half of an op, and the sum of what it made over the replicas. */
static void emit_sums(struct compiler *c, struct dlb_node_program *np, const struct action *x)
{
	static const struct { unsigned char verb, what; } steps[] = {
		{ DLB_COMPUTE, DLB_RUN_SUMS }, { DLB_COLLECTIVE, DLB_RUN_REDUCE }, { DLB_COLLECTIVE, DLB_RUN_REDUCED } };
	for (int i = 0; i < 3; i++)
		np->instr[np->n_instr++] = (struct dlb_instr){ .verb = steps[i].verb, .what = steps[i].what, .op = x->op, .tensor = -1,
			.micro_batch = x->m, .peer = -1, .tag = i ? c->out->statistics[x->op] : -1 };
}

static void emit_step_end(struct compiler *c, struct dlb_node_program *np)
{
	np->instr[np->n_instr++] = (struct dlb_instr){ .verb = DLB_COLLECTIVE, .what = DLB_RUN_STEP_END, .op = -1, .tensor = -1,
		.iteration = c->out->depth, .peer = -1, .tag = -1 };
}

static void emit_action(struct compiler *c, int node, const struct action *x, bool end, int iteration)
{
	struct dlb_node_program *np = &c->out->node[node];
	struct dlb_instr in = { .verb = DLB_COMPUTE, .op = x->op, .tensor = -1, .micro_batch = x->m, .iteration = iteration, .peer = -1,
		.tag = -1 };
	if (x->op < 0) {
		if (end)
			emit_step_end(c, np);
		if (!x->norm)
			return;
		in.verb = DLB_COLLECTIVE;
		in.what = DLB_RUN_NORM;
	} else if (x->tensor >= 0) {
		in.what = DLB_RUN_ACCUMULATE;
		in.tensor = x->tensor;
	} else if (c->g->op[x->op].phase == DLB_UPDATE) {
		in.what = DLB_RUN_UPDATE;
		in.micro_batch = -1;
	} else {
		in.what = DLB_RUN_OP;
		if (c->out->statistics && c->out->statistics[x->op] >= 0)
			emit_sums(c, np, x);
	}
	for (int j = 0; x->op >= 0 && x->tensor < 0 && j < c->g->op[x->op].n_out; j++) {
		int t = c->g->op[x->op].out[j];
		if (t >= 0) {
			struct slot *s = &c->slot[find_instance(c, t, node) * c->M + (x->m < 0 ? 0 : x->m)];
			s->begin = np->n_instr;
			s->begin_at = iteration;
		}
	}
	np->instr[np->n_instr++] = in;
}

/* ---- asynchronous: one step, folded ---- */

static int iteration_of(const struct compiler *c, const struct action *x)
{
	return c->lag ? (int)(x->key / c->slot_keys) / (2 * c->M) : 0;
}

/* Where the action stands in the loop; older steps first where several do at the same place. */
struct folded { int64_t key; int iteration, action; };
static int by_fold(const void *a, const void *b)
{
	const struct folded *x = a, *y = b;
	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return x->iteration != y->iteration ? y->iteration - x->iteration : x->action - y->action;
}

static void fold(struct compiler *c, int node)
{
	struct lane *l = &c->lane[node];
	struct folded *list = dlb_xcalloc((size_t)l->n_act + 1, sizeof *list);
	bool *used = dlb_xcalloc((size_t)l->n_act + 1, sizeof *used);
	int64_t period = 2 * c->M * c->slot_keys;
	for (int i = 0; i < l->n_notes; i++)
		used[l->note[i].action] = true;
	for (int a = 0; a < l->n_act; a++) {
		list[a] = (struct folded){ l->act[a].key % period, iteration_of(c, &l->act[a]), a };
		if ((used[a] || l->act[a].op >= 0) && list[a].iteration > c->out->depth)
			c->out->depth = list[a].iteration;
	}
	qsort(list, (size_t)l->n_act, sizeof *list, by_fold);
	l->fold = dlb_xcalloc((size_t)l->n_act + 1, sizeof(int));
	for (int a = 0; a < l->n_act; a++)
		l->fold[a] = list[a].action;
	free(list);
	free(used);
}

/* What reads and changes weights, in the order of the loop. */
static void list_items(struct compiler *c, int node, struct dlb_async_lane *v)
{
	struct lane *l = &c->lane[node];
	v->node = node;
	v->item = dlb_xcalloc((size_t)(l->n_act + l->n_notes) + 1, sizeof *v->item);
	v->weight = dlb_xcalloc((size_t)c->g->n_tensors + 1, sizeof *v->weight);
	c->item_of[node] = dlb_xcalloc((size_t)l->n_act + 1, sizeof(int));
	int *send = dlb_xcalloc((size_t)l->n_notes + 1, sizeof(int)), n_sends = 0;
	for (int k = 0; k < l->n_notes; k++)
		if (l->note[k].rank == RANK_SEND && l->note[k].m < 0)
			send[n_sends++] = k;
	for (int i = 0; i < l->n_act; i++) {
		int a = l->fold[i];
		const struct action *x = &l->act[a];
		c->item_of[node][a] = v->n;
		if (x->op >= 0 && x->tensor < 0)
			v->item[v->n++] = (struct dlb_async_item){ x->op, x->m < 0 ? 0 : x->m, -1, iteration_of(c, x), 0, -1, false };
		for (int k = 0; k < n_sends && x->op < 0; k++)
			if (l->note[send[k]].action == a)
				v->item[v->n++] = (struct dlb_async_item){ -1, 0, l->note[send[k]].tensor, iteration_of(c, x), 0, -1, false };
	}
	free(send);
}

static int make_async(struct compiler *c, int n_state, struct dlb_error *err)
{
	c->versions = dlb_xcalloc((size_t)c->p->n_nodes, sizeof *c->versions);
	c->item_of = dlb_xcalloc((size_t)c->p->n_nodes, sizeof *c->item_of);
	for (int node = 0; node < c->p->n_nodes; node++)
		fold(c, node);
	for (int node = 0; node < c->p->n_nodes; node++)
		list_items(c, node, &c->versions[node]);
	if (dlb_async_versions(&c->f, c->versions, c->out->depth, n_state, &c->out->staleness, err))
		return -1;
	for (int node = 0; node < c->p->n_nodes; node++) {
		struct dlb_async_lane *v = &c->versions[node];
		struct dlb_node_program *np = &c->out->node[node];
		np->n_weights = v->n_weights;
		np->weight = dlb_arena_array(&c->out->arena, (size_t)v->n_weights + 1, sizeof *np->weight);
		if (v->n_weights)
			memcpy(np->weight, v->weight, (size_t)v->n_weights * sizeof *np->weight);
	}
	return 0;
}

static void emit_copy_of_weight(struct dlb_node_program *np, int what, int update, int iteration, int version)
{
	np->instr[np->n_instr++] = (struct dlb_instr){ .verb = DLB_COMPUTE, .what = (unsigned char)what, .op = update, .tensor = -1,
		.micro_batch = -1, .iteration = iteration, .version = version, .peer = -1, .tag = -1 };
}

/* An item with the copies of weights that are made before it. */
static void emit_item(struct compiler *c, int node, int a, bool end)
{
	const struct action *x = &c->lane[node].act[a];
	struct dlb_node_program *np = &c->out->node[node];
	int iteration = iteration_of(c, x), at;
	if (!c->lag || x->op < 0 || x->tensor >= 0) {
		emit_action(c, node, x, end, iteration);
		return;
	}
	const struct dlb_async_lane *v = &c->versions[node];
	const struct dlb_async_item *item = &v->item[c->item_of[node][a]];
	if (item->keep)
		emit_copy_of_weight(np, DLB_RUN_KEEP, item->op, iteration, 0);
	for (int k = item->predict; k >= 0; k = v->weight[k].next)
		emit_copy_of_weight(np, DLB_RUN_PREDICT, v->weight[k].update, iteration, v->weight[k].distance);
	at = np->n_instr;
	emit_action(c, node, x, end, iteration);
	if (np->n_instr > at)
		np->instr[at].version = item->version;
}

static void emit(struct compiler *c, int node)
{
	struct lane *l = &c->lane[node];
	struct dlb_node_program *np = &c->out->node[node];
	int n_keys = l->n_act * N_RANKS;
	int *start = dlb_xcalloc((size_t)n_keys + 2, sizeof(int)), *by = dlb_xcalloc((size_t)l->n_notes + 1, sizeof(int));
	for (int i = 0; i < l->n_notes; i++)
		start[l->note[i].action * N_RANKS + l->note[i].rank + 2]++;
	for (int i = 0; i < n_keys; i++)
		start[i + 2] += start[i + 1];
	for (int i = 0; i < l->n_notes; i++)
		by[start[l->note[i].action * N_RANKS + l->note[i].rank + 1]++] = i;
	np->instr = dlb_arena_array(&c->out->arena, (size_t)l->n_notes + (size_t)l->n_act + 2 * (size_t)np->n_weights +
				    3 * (size_t)count_statistics(c, node) * (size_t)c->M + 2, sizeof *np->instr);
	for (int i = 0; i < l->n_act; i++) {
		int a = l->fold ? l->fold[i] : i, k = start[a * N_RANKS], iteration = iteration_of(c, &l->act[a]);
		for (; k < start[a * N_RANKS + RANK_SEND]; k++)
			emit_note(c, np, &l->note[by[k]], iteration);
		emit_item(c, node, a, a == l->n_act - 1 && !c->lag);
		for (; k < start[(a + 1) * N_RANKS]; k++)
			emit_note(c, np, &l->note[by[k]], iteration);
	}
	if (c->lag)
		emit_step_end(c, np);
	np->n_loop = np->n_instr;
	free(start);
	free(by);
}

static void lay_out(struct compiler *c)
{
	const struct dlb_graph *g = c->g;
	int *n = dlb_xcalloc((size_t)c->p->n_nodes, sizeof(int));
	for (int i = 0; i < c->inst_start[g->n_tensors]; i++)
		n[c->inst_node[i]] += c->M;
	for (int node = 0; node < c->p->n_nodes; node++)
		c->out->node[node].place = dlb_arena_array(&c->out->arena, (size_t)n[node] + 1, sizeof(struct dlb_place));
	for (int t = 0; t < g->n_tensors; t++) {
		for (int i = c->inst_start[t]; i < c->inst_start[t + 1]; i++) {
			struct dlb_node_program *np = &c->out->node[c->inst_node[i]];
			for (int m = 0; m < c->M; m++) {
				struct slot *s = &c->slot[i * c->M + m], *root = &c->slot[c->root[i] * c->M + m];
				if (s->begin < 0)
					continue;
				bool step = once_a_step(&g->tensor[t]);
				s->place = np->n_places;
				int instrs = (root->end_at - root->begin_at) * np->n_loop + root->end - root->begin;
				np->place[np->n_places++] = (struct dlb_place){ t, step ? -1 : m, s == root ? 0 : SIZE_MAX,
					(size_t)dlb_tensor_bytes(&g->tensor[t], c->out->size[m]), s->begin, root->end, c->of[i],
					1 + instrs / np->n_loop };
			}
		}
	}
	for (int node = 0; node < c->p->n_nodes; node++) {
		struct dlb_node_program *np = &c->out->node[node];
		np->arena_bytes = dlb_memory_plan(np->place, np->n_places, np->n_instr, c->p->draft, &np->bound_bytes);
	}
	for (int i = 0; i < c->inst_start[g->n_tensors]; i++) {
		for (int m = 0; m < c->M; m++) {
			const struct slot *s = &c->slot[i * c->M + m], *root = &c->slot[c->root[i] * c->M + m];
			struct dlb_node_program *np = &c->out->node[c->inst_node[i]];
			if (s != root && s->place >= 0)
				np->place[s->place].offset = np->place[root->place].offset;
		}
	}
	free(n);
}

/* What stays on each node from step to step, and the largest scratch a kernel of its asks for. */
static void count_state(struct compiler *c, const struct dlb_cost *cost, int n_state)
{
	const struct dlb_graph *g = c->g;
	int *stamp = dlb_xmalloc((size_t)c->p->n_nodes * sizeof(int));
	for (int i = 0; i < c->p->n_nodes; i++)
		stamp[i] = -1;
	for (int i = 0; i < c->p->n_nodes; i++)
		for (int k = 0; k < c->out->node[i].n_weights; k++)
			c->out->node[i].state_bytes += (size_t)c->out->node[i].weight[k].n *
				(size_t)dlb_tensor_bytes(&g->tensor[c->out->node[i].weight[k].tensor], 1);
	for (int t = 0; t < g->n_tensors; t++) {
		const struct dlb_tensor *x = &g->tensor[t];
		int home = dlb_graph_home(g, t);
		if (once_a_step(x) && home >= 0)
			c->out->node[c->p->placement[home]].state_bytes += (size_t)
				(x->kind == DLB_T_WEIGHT && g->op[home].phase == DLB_UPDATE ? dlb_cost_weight_bytes(g, t, n_state) :
				 dlb_tensor_bytes(x, c->f.size[0]));
		for (int r = g->reader_start[t]; r < g->reader_start[t + 1] && x->kind == DLB_T_CONSTANT; r++) {
			int node = c->p->placement[g->reader[r]];
			if (stamp[node] != t)
				c->out->node[node].state_bytes += (size_t)dlb_tensor_bytes(x, c->f.size[0]);
			stamp[node] = t;
		}
	}
	for (int i = 0; i < g->n_ops && cost && cost->scratch_bytes; i++) {
		struct dlb_node_program *np = &c->out->node[c->p->placement[i]];
		size_t at = (size_t)cost->cluster->node[c->p->placement[i]].kind * (size_t)g->n_ops + (size_t)i;
		if (cost->scratch_bytes[at] > (double)np->scratch_bytes)
			np->scratch_bytes = (size_t)cost->scratch_bytes[at];
		if (cost->packed_bytes)
			np->state_bytes += (size_t)cost->packed_bytes[at];
	}
	free(stamp);
}

static void compiler_release(struct compiler *c)
{
	for (int i = 0; i < c->p->n_nodes; i++) {
		free(c->lane[i].act);
		free(c->lane[i].note);
		free(c->lane[i].recv);
		free(c->lane[i].tick);
		free(c->lane[i].fold);
		if (c->item_of) {
			free(c->item_of[i]);
			free(c->versions[i].item);
			free(c->versions[i].weight);
		}
	}
	free(c->item_of);
	free(c->versions);
	free(c->lag);
	free(c->lane);
	free(c->inst_start);
	free(c->inst_node);
	free(c->root);
	free(c->of);
	free(c->tag);
	free(c->slot);
	free(c->start);
	free(c->seq);
	free(c->act_of);
	dlb_flow_release(&c->f);
}

/* Replicas that wait for each other in the middle of a step must place every instruction alike: they take the order of
 * the whole from replica 0, the first one compiled, whatever their own speeds. Run all of them in that order, step by step
 * side by side: none waits for ever. */
struct walk { double *start; int *seq; };

static void take_walk(struct compiler *c, struct walk *w, size_t n_items)
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
		out->statistics[i] = dlb_graph_sums(g, i, &n_own) ? 0 : -1;	/* 0: until its bucket has a number */
}

static void set_lags(struct compiler *c)
{
	int most = 0;
	c->lag = dlb_async_lags(&c->f);
	for (int i = 0; i < c->g->n_ops; i++)
		most = c->lag[i] > most ? c->lag[i] : most;
	c->slot_keys = 2 * ((int64_t)c->g->n_ops + 2);
	c->n_ticks = 2 * (c->M - 1) + most + 3;
	for (int i = 0; i < c->p->n_nodes; i++)
		c->lane[i].tick = dlb_xcalloc((size_t)c->n_ticks, sizeof(int));
}

/* One pipeline: of a plan without replicas, or of one replica (member: whose nodes it is made for; first: its first
 * sample; walk: where replicas wait for each other). */
static int compile(const struct dlb_plan *p, const struct dlb_cost *cost, int64_t batch, int n_state, const bool *member,
		   int64_t first, struct walk *walk, struct dlb_program *out, struct dlb_error *err)
{
	struct compiler c = { .p = p, .out = out, .updates_last = member || p->clip };
	dlb_flow_init(&c.f, p, cost, batch);
	c.g = c.f.g;
	c.M = c.f.M;
	*out = (struct dlb_program){ .n_nodes = p->n_nodes, .micro_batches = c.M, .batch = batch, .graph = c.g, .plan = p,
		.steps = 1, .staleness = p->staleness, .replicated = member != NULL, .n_replicas = 1, .step_batch = batch, .whole = p };
	size_t n_items = (size_t)c.g->n_ops * (size_t)c.M + 1;
	c.start = dlb_xcalloc(n_items, sizeof(double));
	c.seq = dlb_xcalloc(n_items, sizeof(int));
	c.act_of = dlb_xcalloc(n_items, sizeof(int));
	c.lane = dlb_xcalloc((size_t)p->n_nodes, sizeof *c.lane);
	out->node = dlb_arena_array(&out->arena, (size_t)p->n_nodes, sizeof *out->node);
	out->size = dlb_arena_array(&out->arena, (size_t)c.M, sizeof *out->size);
	out->first = dlb_arena_array(&out->arena, (size_t)c.M, sizeof *out->first);
	for (int m = 0; m < c.M; m++) {
		out->size[m] = dlb_micro_batch_size(batch, c.M, m);
		out->first[m] = m ? out->first[m - 1] + out->size[m - 1] : first;
	}
	const struct dlb_schedule *schedule = p->schedule ? dlb_schedule_find(p->schedule) : NULL;
	int rc = 0;
	out->async = schedule && schedule->async;
	if (out->async && p->clip)
		rc = dlb_fail(err, "/plan/schedule", "async: gradients cannot be clipped by their global norm, which all nodes would wait for");
	else if (out->async)
		set_lags(&c);
	if (!out->async)
		rc = dlb_flow_walk(&c.f, p, c.start, c.seq, err);
	if (rc == 0 && walk) {
		take_walk(&c, walk, n_items);
		find_halves(out);
	}
	if (rc == 0) {
		find_instances(&c);
		find_actions(&c);
		note_uses(&c);
		note_messages(&c);
		if (p->in_place)
			share_places(&c);
		note_frees(&c);
		rc = c.lag ? make_async(&c, n_state, err) : 0;
	}
	if (rc == 0) {
		for (int node = 0; node < p->n_nodes; node++) {
			if (member && member[node])
				note_reductions(&c, node);
			if (!member || member[node])
				emit(&c, node);
		}
		lay_out(&c);
		count_state(&c, cost, n_state);
	}
	compiler_release(&c);
	if (rc)
		dlb_program_release(out);
	return rc;
}

/* Micro-batch m of all replicas together are samples that follow one another. */
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
			    struct dlb_program *out, struct dlb_error *err)
{
	int R = p->n_replicas, rc = 0, *replica_of = dlb_xcalloc((size_t)p->n_nodes, sizeof *replica_of);
	int64_t *share = dlb_xcalloc((size_t)R, sizeof *share), first = 0;
	bool *member = dlb_xcalloc((size_t)p->n_nodes, sizeof *member);
	struct dlb_program *other = dlb_xcalloc((size_t)R, sizeof *other);
	struct walk walk = { .start = NULL };
	int M = dlb_plan_micro_batches(p, batch);
	dlb_plan_shares(p, batch, share);
	for (int node = 0; node < p->n_nodes; node++)
		replica_of[node] = dlb_plan_replica_of(p, node);
	for (int r = 0; r < R && rc == 0; r++) {
		struct dlb_program *g = r ? &other[r - 1] : out;
		struct dlb_plan *part = dlb_xcalloc(1, sizeof *part);
		dlb_plan_of_replica(p, r, share[r] ? share[r] : 1, part);
		part->micro_batches = M < part->micro_batches ? M : part->micro_batches;
		for (int node = 0; node < p->n_nodes; node++)	/* nodes of no replica only end their steps, in replica 0 */
			member[node] = replica_of[node] == r;
		rc = compile(part, cost, part->batch, n_state, member, share[r] ? first : batch - 1,
			     p->sharing.sync_batchnorm ? &walk : NULL, g, err);
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
		if (out->n_messages < other[r - 1].n_messages)	/* tags of collectives follow those of messages, in all alike */
			out->n_messages = other[r - 1].n_messages;
		other[r - 1].n_replicas = R;
		other[r - 1].replica_of = replica_of;
	}
	for (int r = 1; r < R; r++)
		other[r - 1].n_messages = out->n_messages;
	if (rc == 0 && p->sharing.sync_batchnorm && !p->sharing.shards)		/* a shard's samples are its replica's own */
		interleave(out, R, share);
	free(walk.start);
	free(walk.seq);
	free(share);
	free(member);
	return rc;
}

int dlb_program_compile(const struct dlb_plan *p, const struct dlb_cost *cost, int64_t batch, int n_state,
			struct dlb_program *out, struct dlb_error *err)
{
	if (p->n_replicas < 2)
		return compile(p, cost, batch, n_state, NULL, 0, NULL, out, err);
	memset(out, 0, sizeof *out);
	if (p->schedule && dlb_schedule_find(p->schedule)->async)
		return dlb_fail(err, "/plan/schedule", "async is for one replica; the plan has %d", p->n_replicas);
	if (!compile_replicas(p, cost, batch, n_state, out, err))
		return 0;
	dlb_program_release(out);
	return -1;
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
