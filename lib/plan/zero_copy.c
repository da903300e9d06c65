/* Zero-copy messages, at the end of pass 4 of the compiler (compile.c): messages between nodes that share
 * memory, of tensors that other ops read too, on the sender or on a third node. The kernel cannot write such
 * a tensor only to the receiver's place. Instead, the receiver reads it in the sender's memory, and the
 * receiver's FREE returns it to the sender, which waits for the return before it frees or overwrites the
 * place. (The receiver also has a place of its own, because at run time memory may not be shared, or a copy
 * may be faster.)
 *
 * The sender waits for the return before the place is overwritten, else after its own last use, provided that
 * by plan the receiver's last use is before that. Otherwise the sender keeps the place longer, which needs
 * memory: `longer` allows this. Always copied are messages that the receiver overwrites, gradients that an
 * update reads, and tensors that the sender has itself received. */
#include <limits.h>
#include <stdlib.h>
#include "plan/compile.h"
#include "plan/tensors.h"

/* Whether nodes a and b share memory: no link between them overlaps with work, that is, a core copies
 * messages. */
static bool share_memory(const struct dlb_cluster *c, int a, int b)
{
	int link[16], n = dlb_cluster_route(c, a, b, link);
	for (int i = 0; i < n; i++)
		if (c->link[link[i]].overlap)
			return false;
	return n > 0;
}

/* Instances listed by their place. */
struct by_place {
	int *head, *next;
	bool *received, *live_at_end;
};

static void by_place_init(struct by_place *l, const struct compiler *c)
{
	int n = c->inst_start[c->g->n_tensors];
	l->head = dlb_xmalloc(((size_t)n + 1) * sizeof(int));
	l->next = dlb_xcalloc((size_t)n + 1, sizeof(int));
	l->received = dlb_xcalloc((size_t)n + 1, sizeof(bool));
	l->live_at_end = dlb_compile_live_at_end(c);
	for (int i = 0; i < n; i++)
		l->head[i] = -1;
	for (int i = 0; i < n; i++) {
		l->next[i] = l->head[c->root[i]];
		l->head[c->root[i]] = i;
	}
	for (int node = 0; node < c->p->n_nodes; node++)
		for (int k = 0; k < c->code[node].n_recv; k++)
			l->received[c->code[node].recv[k].slot / c->M] = true;
}

static void by_place_release(struct by_place *l)
{
	free(l->head);
	free(l->next);
	free(l->received);
	free(l->live_at_end);
}

/* Whether instance i overwrote the earlier contents of its place. */
static bool overwrites(const struct compiler *c, int i)
{
	return c->root[i] != i && c->of[i] >= 0 &&
	       dlb_graph_view_of(c->g, c->inst_tensor[i]) != c->inst_tensor[c->of[i]];
}

/* Whether the receiver's instance y of a message is only read, and not by updates or after the step. */
static bool is_only_read(const struct compiler *c, const struct by_place *l, int y)
{
	const struct dlb_graph *g = c->g;
	if (c->root[y] != y || l->live_at_end[y])
		return false;
	for (int i = l->head[y]; i >= 0; i = l->next[i]) {
		if (c->inst_tensor[i] == g->loss || overwrites(c, i))
			return false;
		for (int r = g->reader_start[c->inst_tensor[i]]; r < g->reader_start[c->inst_tensor[i] + 1];
		     r++)
			if (g->op[g->reader[r]].phase == DLB_UPDATE &&
			    c->p->placement[g->reader[r]] == c->inst_node[y])
				return false;
	}
	return true;
}

/* The first action after `send` that overwrites the place of instance x; INT_MAX: none. */
static int overwritten_at(const struct compiler *c, const struct by_place *l, int x, int m, int send)
{
	int first = INT_MAX;
	for (int i = l->head[x]; i >= 0; i = l->next[i]) {
		int at = overwrites(c, i) ? c->slot[i * c->M + m].first : -1;
		if (at > send && at < first)
			first = at;
	}
	return first;
}

/* The start of an action, in seconds. A second run has the start of the backward op that follows it. */
static double start_of(const struct compiler *c, const struct action *x)
{
	for (bool again = x->again; again && (x->again || x->op < 0 || x->tensor >= 0);)
		x++;
	return c->start[x->op * c->M + (x->m < 0 ? 0 : x->m)];
}

/* The sender's first action at which, by plan, the receiver is done with the message; -1: none in the step.
 * The action comes after the receiver's last use in the order of the cluster and starts after the end of the
 * receiver's last op, so no node waits if the plan holds. If the receiver has the message until the end of
 * the step (because it sends on a view of it), there is none: the ends of all nodes are equal in that order,
 * and might wait for one another. Asynchronous: one half-slot lies between. */
static int is_returned_at(const struct compiler *c, int node, const struct received *r)
{
	const struct slot *s = &c->slot[r->slot];
	const struct node_code *from = &c->code[r->from];
	const struct action *through = &c->code[node].action[s->sent > s->last ? s->sent : s->last];
	int at = dlb_compile_first_after(from, through->key);
	double end_s;
	if (c->lag) {
		int half_slot = (int)(through->key / c->slot_keys) + 2;
		return half_slot < c->n_ticks ? from->tick[half_slot] : -1;
	}
	if (through == &c->code[node].action[c->code[node].n_actions - 1])
		return -1;
	if (through->op < 0)
		return at;
	end_s = start_of(c, through) + dlb_flow_s(&c->f, through->op, through->m < 0 ? 0 : through->m);
	while (at < from->n_actions - 1 && (from->action[at].op < 0 || from->action[at].tensor >= 0 ||
					    start_of(c, &from->action[at]) < end_s))
		at++;
	return at;
}

static void mark_zero_copy(struct compiler *c, const struct by_place *l, int node, struct received *r,
			   bool longer)
{
	int source = c->inst_start[r->tensor], x = c->root[source], back = is_returned_at(c, node, r),
	    type = HOOK_WAIT_SENT;
	int over = overwritten_at(c, l, x, r->m, c->slot[source * c->M + r->m].first), wait = over;
	struct slot *place = &c->slot[x * c->M + r->m];
	if (back < 0 || back > over)
		return;
	if (over == INT_MAX && back <= place->last) {
		wait = place->last;
		type = HOOK_SENT_AFTER;
	} else if (over == INT_MAX) {
		if (!longer && back > place->sent)
			return;
		c->out->keeps_longer |= back > place->sent;
		wait = back > place->sent ? back : place->sent;
		place->sent = wait;
	}
	struct hook *sent = &c->code[r->from].hook[r->hook_sent];
	sent->action = wait;
	sent->type = type;
	sent->zero_copy = c->code[r->from].hook[r->hook_send].zero_copy = true;
	c->code[node].hook[r->hook_post].zero_copy = c->code[node].hook[r->hook_wait].zero_copy = true;
	c->slot[r->slot].source_node = r->from;
}

void dlb_compile_zero_copy(struct compiler *c, const struct dlb_cluster *cluster, bool longer)
{
	struct by_place l;
	if (!cluster || !c->p->in_place)
		return;
	by_place_init(&l, c);
	for (int node = 0; node < c->p->n_nodes; node++) {
		for (int k = 0; k < c->code[node].n_recv; k++) {
			struct received *r = &c->code[node].recv[k];
			if (r->m >= 0 && share_memory(cluster, r->from, node) &&
			    !l.received[c->root[c->inst_start[r->tensor]]] &&
			    !dlb_tensor_goes_only_to(c->g, c->p->placement, r->tensor, node) &&
			    is_only_read(c, &l, r->slot / c->M))
				mark_zero_copy(c, &l, node, r, longer);
		}
	}
	by_place_release(&l);
}
