/* Messages and sums over links (simulate.h). A transfer starts when it is sent and posted. If a link on its
 * route does not overlap with work (shared memory: the sender writes into the receiver's place), the transfer
 * starts only when, in addition, the sender waits or is between two ops, and the sender does nothing else
 * until the transfer has ended. A transfer first takes the latencies of its route. Then its bytes flow at the
 * least of bandwidth / flows over its directions (cluster.h). Whenever a flow begins or ends on a direction,
 * the rates of that direction's flows are computed again.
 *
 * A sum uses each of its directions for a fraction u of its time (load). With n other flows on a direction,
 * that fraction takes 1 + n times as long, so the sum takes 1 + u n times as long in total. The rest of the
 * direction, 1 - u / (1 + u n), is shared evenly by the messages. With several sums on a direction, u is the
 * mean of their loads, weighted by load. Many sums of low load leave at least as much to messages as the same
 * number of flows would. */
#include <math.h>
#include <stdlib.h>
#include "plan/replica.h"
#include "plan/simulate.h"
#include "plan/timeline.h"
#include "util/hash.h"

/* The slot of the table that has the route, else a free slot. */
static int *slot_of(const struct sim *s, int from, int to)
{
	uint64_t i = dlb_hash_u64(DLB_HASH_INIT, (uint64_t)from << 32 | (uint64_t)to);

	for (;; i++) {
		int *slot = &s->route_of[i & (uint64_t)(s->n_slots - 1)];

		if (!*slot || (s->route[*slot - 1].from == from && s->route[*slot - 1].to == to))
			return slot;
	}
}

/* Keeps at least half of the slots free. A table is used because most pairs of nodes never exchange
 * messages. */
static void grow_table(struct sim *s)
{
	if (2 * s->n_routes < s->n_slots)
		return;
	free(s->route_of);
	s->n_slots = s->n_slots ? 2 * s->n_slots : 64;
	s->route_of = dlb_xcalloc((size_t)s->n_slots, sizeof *s->route_of);
	for (int i = 0; i < s->n_routes; i++)
		*slot_of(s, s->route[i].from, s->route[i].to) = i + 1;
}

int dlb_sim_route(struct sim *s, int from, int to)
{
	grow_table(s);
	int *slot = slot_of(s, from, to);
	if (*slot)
		return *slot - 1;
	DLB_GROW(s->route, s->n_routes, s->cap_routes);
	struct route *r = &s->route[s->n_routes];
	*r = (struct route){ .from = from, .to = to };
	if (s->c && s->c->cluster) {
		struct dlb_way way;
		r->n = dlb_cluster_directions(s->c->cluster, from, to, r->direction, &way);
		r->latency_s = way.latency_s;
		r->copies = way.copies;
	}
	*slot = ++s->n_routes;
	return *slot - 1;
}

void dlb_sim_find_messages(struct sim *s)
{
	const struct dlb_program *g = s->g;
	s->tag_start = dlb_xcalloc((size_t)g->n_messages + 3, sizeof(int));
	for (int n = 0; n < g->n_nodes; n++) {
		const struct dlb_node_program *np = &dlb_program_of(g, n)->node[n];
		for (int i = 0; i < np->n_instr; i++)
			if (np->instr[i].verb == DLB_POST)
				s->tag_start[np->instr[i].tag + 2]++, s->n_msgs++;
	}
	for (int i = 0; i < g->n_messages; i++)
		s->tag_start[i + 2] += s->tag_start[i + 1];
	s->msg = dlb_xcalloc((size_t)s->n_msgs + 1, sizeof *s->msg);
	size_t n_passages = 0;
	for (int n = 0; n < g->n_nodes; n++) {
		const struct dlb_program *own = dlb_program_of(g, n);
		for (int i = 0; i < own->node[n].n_instr; i++) {
			const struct dlb_instr *in = &own->node[n].instr[i];
			if (in->verb != DLB_POST)
				continue;
			struct message *m = &s->msg[s->tag_start[in->tag + 1]++];
			*m = (struct message){ .from = in->peer,
					       .to = n,
					       .route = dlb_sim_route(s, in->peer, n),
					       .next = -1,
					       .returned = !in->zero_copy };
			m->flow.bytes = dlb_tensor_bytes(&g->graph->tensor[in->tensor],
							 own->size[in->micro_batch < 0 ? 0 :
											 in->micro_batch]);
			n_passages += (size_t)s->route[m->route].n;
		}
	}
	s->passage = dlb_xcalloc(n_passages + 1, sizeof *s->passage);
	struct passage *next = s->passage;
	for (int k = 0; k < s->n_msgs; k++) {
		s->msg[k].flow.passage = next;
		next += s->route[s->msg[k].route].n;
	}
}

int dlb_sim_find_message(const struct sim *s, int from, int to, int tag)
{
	for (int i = s->tag_start[tag]; i < s->tag_start[tag + 1]; i++)
		if (s->msg[i].from == from && s->msg[i].to == to)
			return i;
	return -1;
}

/* Flows are numbered: messages, then sums. */
static struct flow *flow_of(struct sim *s, int k)
{
	return k < s->n_msgs ? &s->msg[k].flow : &s->all_sums[k - s->n_msgs].flow;
}

/* The factor by which other flows on direction l lengthen a sum of load u. */
static double stretch(const struct flows *l, double u)
{
	return fmax(1 + u * fmax(0, l->n - l->n_sums + l->sums_load - u), l->sums_load);
}

static double rate_of(const struct sim *s, const struct flow *f)
{
	double rate = f->is_sum ? 1 : INFINITY;
	for (int i = 0; i < f->n; i++) {
		const struct passage *p = &f->passage[i];
		const struct flows *l = &s->direction[p->direction.id];
		rate = fmin(rate, f->is_sum ? 1 / stretch(l, p->load) : l->share);
	}
	return rate;
}

static void expect_end(struct sim *s, int k)
{
	struct flow *f = flow_of(s, k);
	f->event_s = f->end_s;
	dlb_heap_push(&s->event, f->end_s, k * 4 + EV_END);
}

static void share_out(struct sim *s, const struct dlb_direction *direction)
{
	struct flows *l = &s->direction[direction->id];
	double n = l->n - l->n_sums, left = 1;
	if (l->n_sums)
		left = fmax(1 - l->sums_load / stretch(l, l->sums_squares / l->sums_load), n / l->n);
	double share = s->c->cluster->link[direction->link].bandwidth_Bps / n * left;
	l->share = share > 0 ? share : INFINITY;
}

/* Updates the remaining bytes of messages that use only this direction, with the old rate until now. */
static void settle(struct flows *l, double now)
{
	if (l->share == l->rate)
		return;
	double flowed = l->rate * (now - l->since);
	for (int i = 0; i < l->n; i++)
		l->bytes[i] = l->bytes[i] - flowed < 0 ? 0 : l->bytes[i] - flowed;
	l->rate = l->share;
	l->since = now;
}

static double end_on(const struct flows *l, int i) { return l->since + l->bytes[i] / l->rate; }

/* The first flow to end among the messages that use only direction l; -1: none. The flow with the fewest
 * bytes ends first. After rounding, flows with slightly more bytes may end at the same time; the first of
 * them is returned. */
static int first_to_end(const struct flows *l)
{
	enum { WIDE = 8 };
	double least[WIDE];
	int i = 0;
	for (int k = 0; k < WIDE; k++)
		least[k] = INFINITY;
	for (; i + WIDE <= l->n; i += WIDE)
		for (int k = 0; k < WIDE; k++)
			least[k] = l->bytes[i + k] < least[k] ? l->bytes[i + k] : least[k];
	for (; i < l->n; i++)
		least[0] = l->bytes[i] < least[0] ? l->bytes[i] : least[0];
	for (int k = 1; k < WIDE; k++)
		least[0] = least[k] < least[0] ? least[k] : least[0];
	double end_s = l->since + least[0] / l->rate, most = least[0] * (1 + 1e-15) + l->rate * end_s * 1e-15;
	for (i = 0; i < l->n && isfinite(least[0]); i++)
		if (l->bytes[i] <= most && end_on(l, i) == end_s)
			return i;
	return -1;
}

/* Sets the new rates after a flow began or ended on direction `id`. Among messages that use only this
 * direction, only the first to end needs an event, because its end calls this function again. */
static void reckon(struct sim *s, int id, double now)
{
	struct flows *l = &s->direction[id];
	settle(l, now);
	for (int i = 0; i < l->n && l->n_wide; i++) {
		if (isfinite(l->bytes[i]))
			continue;
		int k = l->flow[i];
		struct flow *f = flow_of(s, k);
		double rate = rate_of(s, f);
		if (rate == f->rate)
			continue;
		f->bytes -= f->rate * (now - f->since);
		if (f->bytes < 0)
			f->bytes = 0;
		f->since = now;
		f->rate = rate;
		f->end_s = now + f->bytes / rate;
		if (f->end_s < f->event_s)		/* a later end is found when the event fires */
			expect_end(s, k);
	}
	int first = first_to_end(l);
	if (first < 0)
		return;
	struct flow *f = flow_of(s, l->flow[first]);
	f->end_s = end_on(l, first);
	if (f->end_s < f->event_s)
		expect_end(s, l->flow[first]);
}

static void start(struct sim *s, int k, double now)
{
	s->msg[k].started = true;
	s->msg[k].flow.begin_s = now;
	dlb_heap_push(&s->event, now + s->route[s->msg[k].route].latency_s, k * 4 + EV_FLOW);
}

static void join(struct flows *l, int k, const struct flow *f, double load)
{
	if (l->n == l->cap) {
		l->cap = l->cap ? 2 * l->cap : 16;
		l->flow = dlb_xrealloc(l->flow, (size_t)l->cap, sizeof *l->flow);
		l->bytes = dlb_xrealloc(l->bytes, (size_t)l->cap, sizeof *l->bytes);
	}
	l->flow[l->n] = k;
	l->bytes[l->n++] = INFINITY;
	l->n_wide++;
	if (f->is_sum) {
		l->n_sums++;
		l->sums_load += load;
		l->sums_squares += load * load;
	}
}

/* Removes the flow at i; the last one takes its position. */
static void leave(struct sim *s, int id, int i, const struct flow *f, double load)
{
	struct flows *l = &s->direction[id];
	struct flow *last = flow_of(s, l->flow[--l->n]);
	l->n_wide -= isinf(l->bytes[i]);
	l->flow[i] = l->flow[l->n];
	l->bytes[i] = l->bytes[l->n];
	/* differences are not exact, so the sums become 0 when no sum is left */
	if (f->is_sum) {
		l->n_sums--;
		l->sums_load = l->n_sums ? l->sums_load - load : 0;
		l->sums_squares = l->n_sums ? l->sums_squares - load * load : 0;
	}
	for (int j = 0; j < last->n; j++)
		if (last->passage[j].direction.id == id)
			last->passage[j].pos = i;
}

/* Begins flow k, whose passages are set. For a message that uses only one direction, the direction keeps the
 * remaining bytes. */
static void begin_flow(struct sim *s, int k, double now)
{
	struct flow *f = flow_of(s, k);
	bool alone = f->n == 1 && !f->is_sum;
	f->since = now;
	f->event_s = INFINITY;
	for (int i = 0; i < f->n; i++) {
		struct passage *p = &f->passage[i];
		struct flows *l = &s->direction[p->direction.id];
		p->pos = l->n;
		join(l, k, f, p->load);
		share_out(s, &p->direction);
	}
	if (alone) {
		struct flows *l = &s->direction[f->passage[0].direction.id];
		settle(l, now);
		l->bytes[f->passage[0].pos] = f->bytes;
		l->n_wide--;
	} else {
		f->rate = rate_of(s, f);
		f->end_s = now + (f->n || f->is_sum ? f->bytes / f->rate : 0);
		expect_end(s, k);
	}
	for (int i = 0; i < f->n; i++)
		reckon(s, f->passage[i].direction.id, now);
}

static void end_flow(struct sim *s, struct flow *f, double now)
{
	f->done = true;
	for (int i = 0; i < f->n; i++) {
		leave(s, f->passage[i].direction.id, f->passage[i].pos, f, f->passage[i].load);
		share_out(s, &f->passage[i].direction);
	}
	for (int i = 0; i < f->n; i++)
		reckon(s, f->passage[i].direction.id, now);
}

void dlb_sim_flow(struct sim *s, int k, double now)
{
	struct flow *f = &s->msg[k].flow;
	const struct route *r = &s->route[s->msg[k].route];
	f->n = r->n;
	for (int i = 0; i < r->n; i++)
		f->passage[i] = (struct passage){ .direction = r->direction[i], .load = 1 };
	begin_flow(s, k, now);
}

void dlb_sim_begin_sum(struct sim *s, struct sum *x, double now)
{
	x->flow.begin_s = now;
	begin_flow(s, s->n_msgs + (int)(x - s->all_sums), now);
}

/* Counts the communication of message m, number k, at its arrival. Copies by the sender are never hidden. */
static void count_communication(struct sim *s, const struct message *m, int k, double now)
{
	double begin_s = m->flow.begin_s, exposed = s->route[m->route].copies ? now - begin_s : 0;
	for (int i = 0; i < 2; i++) {
		const struct sim_node *n = &s->node[i ? m->from : m->to];
		double since = n->wait_from > begin_s ? n->wait_from : begin_s;
		if (n->waits_for == k && now - since > exposed)
			exposed = now - since;
	}
	s->t->node[m->from].comm_s += now - begin_s;
	s->t->node[m->from].comm_hidden_s += now - begin_s - exposed;
}

/* Wakes the node if it waits for message k. */
static void wake(struct sim *s, int node, int k, double now)
{
	struct sim_node *n = &s->node[node];
	if (n->waits_for != k)
		return;
	n->waits_for = -1;
	*(n->wait_kind < 0 ? &s->t->node[node].copy_s :
			     &s->t->node[node].waits_s[n->wait_kind]) += now - n->wait_from;
	n->now = now;
	dlb_heap_push(&s->event, now, node * 4 + EV_NODE);
}

void dlb_sim_end(struct sim *s, int k, double now)
{
	struct flow *f = flow_of(s, k);
	/* obsolete: an earlier end was expected after this event was made */
	if (f->done || f->event_s != now)
		return;
	if (f->n == 1 && !f->is_sum)
		f->end_s = end_on(&s->direction[f->passage[0].direction.id], f->passage[0].pos);
	if (f->end_s > now) {				/* the flow was slowed down */
		expect_end(s, k);
		return;
	}
	end_flow(s, f, now);
	if (f->is_sum) {
		dlb_sim_sum_ended(s, &s->all_sums[k - s->n_msgs], now);
		return;
	}
	struct message *m = &s->msg[k];
	count_communication(s, m, k, now);
	wake(s, m->to, k, now);				/* the receiver and the sender may both be waiting */
	if (m->returned || s->node[m->from].wait_kind != DLB_WAIT_BACKPRESSURE)
		wake(s, m->from, k, now);
}

void dlb_sim_return(struct sim *s, int k, double now)
{
	if (k < 0)
		return;
	s->msg[k].returned = true;
	if (s->msg[k].flow.done)
		wake(s, s->msg[k].from, k, now);
}

static bool waits(const struct sim_node *n)
{
	return n->stands || (n->waits_for >= 0 && n->wait_kind >= 0);
}

void dlb_sim_begin_copy(struct sim *s, int k, double now)
{
	s->node[s->msg[k].from].copying = k;
	start(s, k, now);
}

void dlb_sim_meet(struct sim *s, int k, double now)
{
	struct message *m = &s->msg[k];
	if (!m->sent || !m->posted || m->started)
		return;
	struct sim_node *from = &s->node[m->from];
	if (!s->route[m->route].copies) {
		start(s, k, now);
	} else if (waits(from)) {
		dlb_sim_begin_copy(s, k, now);
	} else {
		m->next = from->copies;
		from->copies = k;
	}
}
