/* The simulator: the second interpreter of programs. It walks the same instructions as the executor, with the
 * cost model for a clock.
 *
 * A node's own clock runs ahead through COMPUTEs; at every instruction that others can see it steps into the
 * event queue, so that messages meet in order of time. A transfer starts when it is sent and posted; where a
 * link on its route does not overlap with work (shared memory: the sender writes into the receiver's place), also not
 * before the sender waits or stands between two ops, and the sender does nothing else until it has ended. It first takes
 * the latencies of its route, then its bytes flow at the least of bandwidth / flows over its links; whenever a flow begins
 * or ends on a link, the flows of that link are reckoned anew.
 *
 * busy is the time in COMPUTE (ops, sums of gradients, updates); everything else in the step but what the node copies
 * is waiting: starved (in WAIT for a message), back-pressure (in WAIT sent), collective (at the step's end).
 * An asynchronous program is unrolled to so many steps that there are some between the filled pipeline and its
 * draining; times are means over these.
 *
 * Where rank 0 reads for all, shares of later steps are on their way beside the step's own messages: who sends them
 * copies them first where links do not overlap with work, and no step is shorter than the busiest link needs for them.
 *
 * Summing gradients takes memory traffic / accumulate_Bps: three times the bytes, twice for the first. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "optim/kfac.h"
#include "plan/flow.h"
#include "util/rng.h"

enum { MAX_ROUTE = 16 };
enum { EV_NODE, EV_FLOW, EV_END };			/* event id: index * 4 + one of these */

struct route { int from, to, n, link[MAX_ROUTE]; double latency_s; bool copies; };
struct message {
	int from, to, route;
	double bytes, rate, since, end_s;		/* bytes: still to flow at time `since` */
	double begin_s;
	double event_s;					/* when its one valid EV_END comes: not after end_s */
	bool sent, posted, started, done;
	int pos[MAX_ROUTE];				/* position in each link's list of flows */
	int next;					/* in the sender's list of what it must copy */
};
struct link { int *flow; int n, cap; };
struct sum { int started, waiting; bool needs_cores; double end_s; };
struct squares { int n; double at_s; };			/* nodes that have made them; the last one */
struct sim_node {
	int pc, ends;
	struct dlb_node_times from;			/* asynchronous: up to the first step that counts */
	double now, wait_from;
	int wait_kind, waits_for;			/* enum dlb_wait, -1: it copies; message, -1 */
	int copies, copying;				/* list of messages to copy; the last one begun, -1 */
	bool stands;					/* in a collective */
};
struct sim {
	const struct dlb_program *g;
	struct dlb_flow *f;				/* [replica] */
	const struct dlb_cost *c;
	const double *scale;
	int *part; struct sum **sum;			/* [node] its part; [part][bucket * M + m], m 0 for gradients */
	int *waits_for_sum;				/* [node] index of it, -1 */
	double *sum_busy_until;				/* [part] its sums go one after another */
	int at_command, n_commands; bool *commanded; double command_s;	/* sync: nodes that have computed, of how many */
	double jitter; uint64_t seed;
	struct message *msg; int n_msgs;
	int *tag_start;					/* messages of tag k: tag_start[k] .. tag_start[k+1] */
	struct route *route; int n_routes, cap_routes; int *route_of;	/* [from * nodes + to]: index + 1 */
	struct link *link;
	struct sim_node *node;
	struct dlb_heap event;
	struct dlb_timeline *t; int *span_cap;
	int at_end, at_norm; double end_s;
	struct squares *squares; int *waits_for_norm;	/* asynchronous: [step]; [node] step, -1 */
	int from, to; double from_s, to_s;		/* asynchronous: times count from the end of step `from` to that of `to` */
	struct dlb_feed_load feed;
};

/* ---- set-up ---- */

static int route(struct sim *s, int from, int to)
{
	int *slot = &s->route_of[(size_t)from * (size_t)s->g->n_nodes + (size_t)to];
	if (*slot)
		return *slot - 1;
	DLB_GROW(s->route, s->n_routes, s->cap_routes);
	struct route *r = &s->route[s->n_routes];
	*r = (struct route){ .from = from, .to = to };
	if (s->c && s->c->cluster) {
		r->n = dlb_cluster_route(s->c->cluster, from, to, r->link);
		for (int i = 0; i < r->n; i++) {
			const struct dlb_link *l = &s->c->cluster->link[r->link[i]];
			r->latency_s += l->latency_s;
			r->copies |= !l->overlap;
		}
	}
	*slot = ++s->n_routes;
	return *slot - 1;
}

static void find_messages(struct sim *s)
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
	for (int n = 0; n < g->n_nodes; n++) {
		const struct dlb_program *own = dlb_program_of(g, n);
		for (int i = 0; i < own->node[n].n_instr; i++) {
			const struct dlb_instr *in = &own->node[n].instr[i];
			if (in->verb != DLB_POST)
				continue;
			struct message *m = &s->msg[s->tag_start[in->tag + 1]++];
			*m = (struct message){ .from = in->peer, .to = n, .route = route(s, in->peer, n), .next = -1 };
			m->bytes = dlb_tensor_bytes(&g->graph->tensor[in->tensor], own->size[in->micro_batch < 0 ? 0 : in->micro_batch]);
		}
	}
}

static int find_message(const struct sim *s, int from, int to, int tag)
{
	for (int i = s->tag_start[tag]; i < s->tag_start[tag + 1]; i++)
		if (s->msg[i].from == from && s->msg[i].to == to)
			return i;
	return -1;
}

/* ---- transfers ---- */

static double rate_of(const struct sim *s, const struct message *m)
{
	const struct route *r = &s->route[m->route];
	double rate = INFINITY;
	for (int i = 0; i < r->n; i++) {
		double b = s->c->cluster->link[r->link[i]].bandwidth_Bps / s->link[r->link[i]].n;
		if (b > 0 && b < rate)
			rate = b;
	}
	return rate;
}

static void expect_end(struct sim *s, int k)
{
	s->msg[k].event_s = s->msg[k].end_s;
	dlb_heap_push(&s->event, s->msg[k].end_s, k * 4 + EV_END);
}

/* A flow began or ended on link l: what flows there goes on at its new rate. Of flows that use this link alone
 * only the one that ends first needs an event: its end leads back here. */
static void reckon(struct sim *s, int l, double now)
{
	int first = -1;
	for (int i = 0; i < s->link[l].n; i++) {
		int k = s->link[l].flow[i];
		struct message *m = &s->msg[k];
		bool alone = s->route[m->route].n == 1;
		double rate = rate_of(s, m);
		if (rate != m->rate) {
			m->bytes -= m->rate * (now - m->since);
			if (m->bytes < 0)
				m->bytes = 0;
			m->since = now;
			m->rate = rate;
			m->end_s = now + m->bytes / rate;
			if (!alone && m->end_s < m->event_s)	/* a later end is found out when the event comes */
				expect_end(s, k);
		}
		if (alone && (first < 0 || m->end_s < s->msg[first].end_s))
			first = k;
	}
	if (first >= 0 && s->msg[first].end_s < s->msg[first].event_s)
		expect_end(s, first);
}

static void start(struct sim *s, int k, double now)
{
	s->msg[k].started = true;
	s->msg[k].begin_s = now;
	dlb_heap_push(&s->event, now + s->route[s->msg[k].route].latency_s, k * 4 + EV_FLOW);
}

static void flow(struct sim *s, int k, double now)
{
	struct message *m = &s->msg[k];
	const struct route *r = &s->route[m->route];
	m->since = now;
	for (int i = 0; i < r->n; i++) {
		struct link *l = &s->link[r->link[i]];
		DLB_GROW(l->flow, l->n, l->cap);
		m->pos[i] = l->n;
		l->flow[l->n++] = k;
	}
	m->rate = rate_of(s, m);
	m->end_s = now + (r->n ? m->bytes / m->rate : 0);
	m->event_s = INFINITY;
	if (r->n != 1)
		expect_end(s, k);
	for (int i = 0; i < r->n; i++)
		reckon(s, r->link[i], now);
}

/* Message k, m, has come. What the sender must copy itself is never hidden. */
static void count_communication(struct sim *s, const struct message *m, int k, double now)
{
	double exposed = s->route[m->route].copies ? now - m->begin_s : 0;
	for (int i = 0; i < 2; i++) {
		const struct sim_node *n = &s->node[i ? m->from : m->to];
		double since = n->wait_from > m->begin_s ? n->wait_from : m->begin_s;
		if (n->waits_for == k && now - since > exposed)
			exposed = now - since;
	}
	s->t->node[m->from].comm_s += now - m->begin_s;
	s->t->node[m->from].comm_hidden_s += now - m->begin_s - exposed;
}

static void end(struct sim *s, int k, double now)
{
	struct message *m = &s->msg[k];
	const struct route *r = &s->route[m->route];
	if (m->done || m->event_s != now)		/* an earlier end was expected after this event was made */
		return;
	if (m->end_s > now) {				/* it was slowed down since */
		expect_end(s, k);
		return;
	}
	m->done = true;
	for (int i = 0; i < r->n; i++) {
		struct link *l = &s->link[r->link[i]];
		int last = l->flow[--l->n];
		l->flow[m->pos[i]] = last;
		const struct route *lr = &s->route[s->msg[last].route];
		for (int j = 0; j < lr->n; j++)
			if (lr->link[j] == r->link[i])
				s->msg[last].pos[j] = m->pos[i];
	}
	for (int i = 0; i < r->n; i++)
		reckon(s, r->link[i], now);
	count_communication(s, m, k, now);
	for (int i = 0; i < 2; i++) {			/* the receiver and the sender may both be waiting */
		int node = i ? m->from : m->to;
		struct sim_node *n = &s->node[node];
		if (n->waits_for != k)
			continue;
		n->waits_for = -1;
		*(n->wait_kind < 0 ? &s->t->node[node].copy_s : &s->t->node[node].waits_s[n->wait_kind]) += now - n->wait_from;
		n->now = now;
		dlb_heap_push(&s->event, now, node * 4 + EV_NODE);
	}
}

static bool waits(const struct sim_node *n)
{
	return n->stands || (n->waits_for >= 0 && n->wait_kind >= 0);
}

/* The sender begins to copy message k. */
static void begin_copy(struct sim *s, int k, double now)
{
	s->node[s->msg[k].from].copying = k;
	start(s, k, now);
}

/* Sent and posted: on its way, or in the sender's list of what it will copy when it waits or has ended an op. */
static void meet(struct sim *s, int k, double now)
{
	struct message *m = &s->msg[k];
	if (!m->sent || !m->posted || m->started)
		return;
	struct sim_node *from = &s->node[m->from];
	if (!s->route[m->route].copies) {
		start(s, k, now);
	} else if (waits(from)) {
		begin_copy(s, k, now);
	} else {
		m->next = from->copies;
		from->copies = k;
	}
}

/* ---- nodes ---- */

/* A copy of a weight: read and written; a prediction reads the optimizer's state too. */
static double copy_s(const struct sim *s, int node, const struct dlb_instr *in)
{
	const struct dlb_op *o = &s->g->graph->op[in->op];
	double bytes = 0, Bps = s->c && s->c->accumulate_Bps ? s->c->accumulate_Bps[s->c->cluster->node[node].kind] *
		s->c->cluster->node[node].speed : 0;
	for (int i = 0; i < o->n_in; i++)
		if (o->in[i] >= 0 && s->g->graph->tensor[o->in[i]].kind == DLB_T_WEIGHT)
			bytes = dlb_tensor_bytes(&s->g->graph->tensor[o->in[i]], 1);
	return Bps > 0 ? (in->what == DLB_RUN_KEEP ? 2 : 4) * bytes / Bps : 0;
}

/* K-FAC: the sum of a factor for n samples, or what preconditioning takes. */
static double kfac_s(const struct sim *s, int node, const struct dlb_instr *in, int64_t n)
{
	if (!s->c || !s->c->cluster)
		return 0;
	const struct dlb_node *at = &s->c->cluster->node[node];
	double t = in->what == DLB_RUN_PRECONDITION ?
		dlb_cost_precondition_s(s->c, in->op, at->kind, dlb_plan_factors_come_factored(s->g->whole)) :
		dlb_cost_moment_s(s->c, in->op, dlb_kfac_factor_of(s->g->graph, in->op, in->tensor), at->kind, n);
	return t / at->speed;
}

static double compute_s(const struct sim *s, int node, const struct dlb_instr *in)
{
	const struct dlb_program *own = dlb_program_of(s->g, node);
	int m = in->micro_batch < 0 ? 0 : in->micro_batch % s->f[own->replica].M;
	double t;
	int moment = in->what == DLB_RUN_ACCUMULATE ? dlb_kfac_factor_of(s->g->graph, in->op, in->tensor) : -1;
	if (moment >= 0) {
		t = kfac_s(s, node, in, own->size[m]);
	} else if (in->what == DLB_RUN_ACCUMULATE) {
		double bytes = dlb_tensor_bytes(&s->g->graph->tensor[in->tensor], own->size[m]);
		if (!s->c || !s->c->accumulate_Bps)
			return 0;
		const struct dlb_node *n = &s->c->cluster->node[node];
		double Bps = s->c->accumulate_Bps[n->kind] * n->speed;
		t = Bps > 0 ? (m ? 3 : 2) * bytes / Bps : 0;
	} else if (in->what == DLB_RUN_PRECONDITION) {
		t = kfac_s(s, node, in, 0);
	} else if (in->what == DLB_RUN_KEEP || in->what == DLB_RUN_PREDICT) {
		t = copy_s(s, node, in);
	} else {
		t = dlb_flow_s(&s->f[own->replica], in->op, m);
		if (own->statistics && own->statistics[in->op] >= 0)
			t /= 2;				/* each half reads what the op reads once */
		if (in->what == DLB_RUN_UPDATE && s->c)		/* has an instruction of its own */
			t -= dlb_cost_precondition_s(s->c, in->op, s->c->cluster->node[node].kind, false) / s->c->cluster->node[node].speed;
	}
	if (s->jitter > 0) {
		uint64_t i = ((uint64_t)in->op * (uint64_t)s->g->micro_batches + (uint64_t)m) * 2 + (in->what == DLB_RUN_ACCUMULATE);
		double factor = 1 + s->jitter * dlb_philox_normal(s->seed, 0x6a697474, i);
		t *= factor > 0.05 ? factor : 0.05;
	}
	return t * (s->scale ? s->scale[node] : 1);
}

static void keep_span(struct sim *s, int node, const struct dlb_instr *in, double from, double to)
{
	struct dlb_timeline *t = s->t;
	int m = in->micro_batch < 0 ? -1 : in->micro_batch % s->f[0].M;
	if (s->g->depth && s->node[node].ends != s->to)		/* the last iteration of those that count */
		return;
	DLB_GROW(t->span[node], t->n_spans[node], s->span_cap[node]);
	t->span[node][t->n_spans[node]++] = (struct dlb_span){ in->op, m, from, to };
}

/* What the node has to copy now: true while it does. */
static bool copy(struct sim *s, int node)
{
	struct sim_node *n = &s->node[node];
	for (int k; (k = n->copies) >= 0;) {
		n->copies = s->msg[k].next;
		begin_copy(s, k, n->now);
	}
	if (n->copying < 0 || s->msg[n->copying].done)
		return false;
	n->wait_from = n->now;
	n->waits_for = n->copying;
	n->wait_kind = -1;
	return true;
}

/* Seconds of the sums of squares here: the gradients are read once. */
static double square_sum_s(const struct sim *s, int node)
{
	const struct dlb_graph *g = s->g->graph;
	double bytes = 0, Bps;
	if (!s->c || !s->c->accumulate_Bps)
		return 0;
	for (int i = 0; i < g->n_ops; i++)
		for (int j = 0; j < g->op[i].n_in && g->op[i].phase == DLB_UPDATE && dlb_program_of(s->g, node)->plan->placement[i] == node; j++)
			if (g->op[i].in[j] >= 0 && g->tensor[g->op[i].in[j]].kind == DLB_T_WEIGHT)
				bytes += dlb_tensor_bytes(&g->tensor[g->op[i].in[j]], s->g->size[0]);
	Bps = s->c->accumulate_Bps[s->c->cluster->node[node].kind] * s->c->cluster->node[node].speed;
	return Bps > 0 ? bytes / Bps * (s->scale ? s->scale[node] : 1) : 0;
}

/* Seconds of the allreduce of a number a parameter, as a tree up and down. */
static double norm_s(const struct sim *s)
{
	double bytes = 0, longest = 0;
	int depth = 0;
	for (int i = 0; i < s->g->graph->n_ops; i++)
		bytes += 8 * (s->g->graph->op[i].phase == DLB_UPDATE);
	for (int i = 1; i < s->g->n_nodes && s->c && s->c->cluster; i++)
		longest = fmax(longest, dlb_cost_xfer_s(s->c, bytes, i, 0));
	while (1 << depth < s->g->n_nodes)
		depth++;
	return 2 * depth * longest;
}

/* The global norm, or K-FAC's trust region: all wait for all. True while node must; the last one sends all on their way. */
static bool norm(struct sim *s, int node, bool trust)
{
	struct sim_node *n = &s->node[node];
	double t = trust ? 0 : square_sum_s(s, node), end_s = 0;
	n->now += t;
	s->t->node[node].busy_s += t;
	n->wait_from = n->now;
	n->stands = true;
	if (++s->at_norm < s->g->n_nodes)
		return true;
	s->at_norm = 0;
	for (int i = 0; i < s->g->n_nodes; i++)
		end_s = fmax(end_s, s->node[i].now);
	end_s += norm_s(s);
	for (int i = 0; i < s->g->n_nodes; i++) {
		struct sim_node *x = &s->node[i];
		x->stands = false;
		s->t->node[i].waits_s[DLB_WAIT_COLLECTIVE] += end_s - x->wait_from;
		x->now = end_s;
		x->pc++;
		dlb_heap_push(&s->event, end_s, i * 4 + EV_NODE);
	}
	return true;
}

/* Asynchronous: the sum of squares is under way from when the last node has made its own. True when node stands. */
static bool norm_of_step(struct sim *s, int node, const struct dlb_instr *in)
{
	struct sim_node *n = &s->node[node];
	struct squares *x = &s->squares[in->iteration];
	if (in->what == DLB_RUN_SQUARES) {
		double t = square_sum_s(s, node);
		n->now += t;
		s->t->node[node].busy_s += t;
		x->at_s = fmax(x->at_s, n->now);
		x->n++;
	} else {
		n->wait_from = n->now;
		n->stands = true;
		n->pc++;
		s->waits_for_norm[node] = in->iteration;
	}
	for (int i = 0; i < s->g->n_nodes && x->n == s->g->n_nodes; i++) {
		struct sim_node *w = &s->node[i];
		if (s->waits_for_norm[i] != in->iteration)
			continue;
		s->waits_for_norm[i] = -1;
		w->stands = false;
		w->now = fmax(w->now, x->at_s + norm_s(s));
		s->t->node[i].waits_s[DLB_WAIT_COLLECTIVE] += w->now - w->wait_from;
		dlb_heap_push(&s->event, w->now, i * 4 + EV_NODE);
	}
	return in->what == DLB_RUN_NORM;
}

static bool wait_for(struct sim *s, int node, const struct dlb_instr *in)
{
	int k = in->sent ? find_message(s, node, in->peer, in->tag) : find_message(s, in->peer, node, in->tag);
	if (k < 0 || s->msg[k].done)
		return false;
	s->node[node].wait_from = s->node[node].now;
	s->node[node].waits_for = k;
	s->node[node].wait_kind = in->sent ? DLB_WAIT_BACKPRESSURE : DLB_WAIT_STARVED;
	return true;
}

/* ---- sums over replicas ---- */

/* The bucket that sum `index` of a part is of. */
static const struct dlb_bucket *bucket_of(const struct sim *s, int part, int index)
{
	return &dlb_program_of(s->g, part)->node[part].bucket[index / s->g->micro_batches];
}

/* How long a sum takes once it may run: hop by hop, the slowest rank sets the pace. */
static double sum_s(const struct sim *s, int part, int index)
{
	return s->c && s->c->cluster ? dlb_plan_bucket_s(s->g, s->c, part, index / s->g->micro_batches) : 0;
}

/* Sums whose bytes the nodes' own cores move (shared memory) go on only while all of them wait. */
static bool sum_needs_cores(struct sim *s, int part)
{
	const struct dlb_plan *p = s->g->whole;
	bool copies = false;
	for (int r = 1; r < p->n_replicas && s->c && s->c->cluster; r++) {
		int k = route(s, p->replica[r - 1][part], p->replica[r][part]);
		copies |= s->route[k].copies;
	}
	return copies;
}

static void release_peers(struct sim *s, int part, int index)
{
	const struct dlb_plan *p = s->g->whole;
	struct sum *x = &s->sum[part][index];
	for (int r = 0; r < p->n_replicas; r++) {
		int node = p->replica[r][part];
		struct sim_node *n = &s->node[node];
		if (s->waits_for_sum[node] != index)
			continue;
		s->waits_for_sum[node] = -1;
		n->stands = false;
		if (x->end_s > n->now) {
			s->t->node[node].waits_s[DLB_WAIT_COLLECTIVE] += x->end_s - n->now;
			s->t->node[node].sum_wait_s[bucket_of(s, part, index)->cls] += x->end_s - n->now;
			n->now = x->end_s;
		}
		dlb_heap_push(&s->event, n->now, node * 4 + EV_NODE);
	}
}

/* Statistics are small: they slip in between the segments of gradients that are under way. */
static void begin_sum(struct sim *s, int part, int index, double now)
{
	struct sum *x = &s->sum[part][index];
	enum dlb_sum_class cls = bucket_of(s, part, index)->cls;
	double start = now > s->sum_busy_until[part] || cls == DLB_SUM_STATISTICS ? now : s->sum_busy_until[part];
	x->end_s = start + sum_s(s, part, index);
	if (cls != DLB_SUM_STATISTICS)
		s->sum_busy_until[part] = x->end_s;
	for (int r = 0; r < s->g->n_replicas; r++) {
		int node = s->g->whole->replica[r][part];
		s->t->node[node].sum_s[cls] += x->end_s - start;
	}
}

/* COLLECTIVE of the replicas: true when node stands and will be called again. */
static bool meet_others(struct sim *s, int node, const struct dlb_instr *in)
{
	int R = s->g->n_replicas, part = s->part[node];
	struct sim_node *n = &s->node[node];
	if (in->what == DLB_RUN_COMPUTED) {
		n->wait_from = n->now;
		n->stands = true;
		if (n->now > s->command_s)
			s->command_s = n->now;
		if (++s->at_command < s->n_commands) {
			n->pc++;
			return true;
		}
		for (int i = 0; i < s->g->n_nodes; i++) {	/* this one's event is made below, like the others' */
			if (!s->commanded[i])
				continue;
			s->t->node[i].waits_s[DLB_WAIT_COLLECTIVE] += s->command_s - s->node[i].wait_from;
			s->node[i].now = s->command_s;
			s->node[i].stands = false;
			if (i != node)
				dlb_heap_push(&s->event, s->command_s, i * 4 + EV_NODE);
		}
		return false;
	}
	int index = in->tag * s->g->micro_batches + (in->micro_batch < 0 ? in->iteration : in->micro_batch);
	struct sum *x = &s->sum[part][index];
	if (in->what == DLB_RUN_REDUCE) {
		if (++x->started == R && !x->needs_cores)
			begin_sum(s, part, index, n->now);
		if (x->started == R && !x->needs_cores)
			release_peers(s, part, index);
		return false;
	}
	x->waiting++;
	if (x->needs_cores && x->waiting == R)
		begin_sum(s, part, index, n->now);
	n->pc++;
	s->waits_for_sum[node] = index;
	n->stands = true;
	if (x->started == R && (!x->needs_cores || x->waiting == R))
		release_peers(s, part, index);
	return true;
}

/* All that is counted, of t less `from` and over steps. */
static void count_from(struct dlb_node_times *t, const struct dlb_node_times *from, double steps)
{
	double *x = (double *)t;
	const double *y = (const double *)from;
	for (size_t i = 0; i < sizeof *t / sizeof *x; i++)
		x[i] = (x[i] - y[i]) / steps;
}

/* An iteration of an asynchronous loop: rank 0 feeds the next step. */
static void feed_on(struct sim *s, int node)
{
	s->node[node].now += s->feed.copy_s[node];
	s->t->node[node].copy_s += s->feed.copy_s[node];
	s->t->node[node].bytes_sent += s->feed.bytes[node];
}

static void step_end(struct sim *s, int node)
{
	struct sim_node *n = &s->node[node];
	struct dlb_node_times *t = &s->t->node[node];
	int step = n->ends++;
	if (step == s->g->steps - 1) {
		s->at_end++;
		n->wait_from = n->now;
		s->end_s = n->now > s->end_s ? n->now : s->end_s;
	}
	if (!s->g->depth)
		return;
	if (s->feed.bytes)
		feed_on(s, node);
	if (step == s->from) {
		n->from = *t;
		s->from_s = n->now > s->from_s ? n->now : s->from_s;
	} else if (step == s->to) {
		struct dlb_node_times counted = *t;
		count_from(&counted, &n->from, s->to - s->from);
		n->from = counted;
		s->to_s = n->now > s->to_s ? n->now : s->to_s;
	}
}

/* Runs node from its own clock until it waits or something others can see lies ahead of the event queue. */
static void advance(struct sim *s, int node)
{
	const struct dlb_node_program *np = &dlb_program_of(s->g, node)->node[node];
	struct sim_node *n = &s->node[node];
	while (n->pc < np->n_instr) {
		const struct dlb_instr *in = &np->instr[n->pc];
		if (copy(s, node))
			return;
		if (in->verb == DLB_COMPUTE) {
			double t = compute_s(s, node, in);
			if (s->t->span && t > 0)
				keep_span(s, node, in, n->now, n->now + t);
			n->now += t;
			s->t->node[node].busy_s += t;
		} else if (in->verb != DLB_COPY && in->verb != DLB_FREE) {
			if (s->event.n && s->event.item[0].key < n->now) {	/* let the others catch up */
				dlb_heap_push(&s->event, n->now, node * 4 + EV_NODE);
				return;
			}
			if (in->verb == DLB_WAIT) {
				if (wait_for(s, node, in))
					return;
			} else if (in->verb == DLB_COLLECTIVE &&
				   (in->what == DLB_RUN_NORM || in->what == DLB_RUN_SQUARES || in->what == DLB_RUN_TRUST)) {
				if (s->g->async ? norm_of_step(s, node, in) : norm(s, node, in->what == DLB_RUN_TRUST))
					return;
			} else if (in->verb == DLB_COLLECTIVE && in->what != DLB_RUN_STEP_END) {
				if (meet_others(s, node, in))
					return;
			} else if (in->verb == DLB_COLLECTIVE) {
				step_end(s, node);
			} else {
				bool ours = in->verb == DLB_SEND;
				int k = ours ? find_message(s, node, in->peer, in->tag) : find_message(s, in->peer, node, in->tag);
				if (k >= 0) {
					*(ours ? &s->msg[k].sent : &s->msg[k].posted) = true;
					if (ours)
						s->t->node[node].bytes_sent += s->msg[k].bytes;
					meet(s, k, n->now);
				}
			}
		}
		n->pc++;
	}
}

static void find_sums(struct sim *s)
{
	const struct dlb_program *g = s->g;
	size_t n_nodes = (size_t)g->n_nodes;
	s->part = dlb_xcalloc(n_nodes, sizeof *s->part);
	s->sum = dlb_xcalloc(n_nodes, sizeof *s->sum);
	s->waits_for_sum = dlb_xcalloc(n_nodes, sizeof *s->waits_for_sum);
	s->sum_busy_until = dlb_xcalloc(n_nodes, sizeof *s->sum_busy_until);
	s->commanded = dlb_xcalloc(n_nodes, sizeof *s->commanded);
	for (int i = 0; i < g->n_nodes; i++) {
		const struct dlb_node_program *np = &dlb_program_of(g, i)->node[i];
		s->part[i] = dlb_plan_part_of(g->whole, i);
		s->waits_for_sum[i] = -1;
		int n_sums = np->n_buckets * g->micro_batches;
		s->sum[i] = dlb_xcalloc((size_t)n_sums + 1, sizeof *s->sum[i]);
		bool needs_cores = s->part[i] == i && n_sums && sum_needs_cores(s, i);
		for (int b = 0; b < n_sums; b++)
			s->sum[i][b].needs_cores = needs_cores;
		for (int k = 0; k < np->n_instr; k++)
			s->commanded[i] |= np->instr[k].verb == DLB_COLLECTIVE && np->instr[k].what == DLB_RUN_COMPUTED;
		s->n_commands += s->commanded[i];
	}
}

/* Steps that times are means over: at least a dozen micro-batches. */
static int steps_counted(const struct dlb_program *g)
{
	int M = g->micro_batches / g->steps;
	return M >= 6 ? 2 : (12 + M - 1) / M;
}

/* What the steps that count took, a step. */
static void conclude_async(struct sim *s)
{
	struct dlb_timeline *t = s->t;
	int steps = s->to - s->from;
	double origin = INFINITY;
	t->step_s = (s->to_s - s->from_s) / steps;
	t->feed_wait_s = fmax(0, s->feed.least_s - t->step_s);
	t->step_s += t->feed_wait_s;
	t->fill_s = s->end_s - s->g->steps * t->step_s;
	for (int i = 0; i < s->g->n_nodes; i++) {
		struct dlb_node_times *n = &t->node[i];
		*n = s->node[i].from;
		double waits_s = n->waits_s[DLB_WAIT_STARVED] + n->waits_s[DLB_WAIT_BACKPRESSURE];
		n->waits_s[DLB_WAIT_COLLECTIVE] = fmax(0, t->step_s - n->busy_s - n->copy_s - waits_s);
		n->wait_s = waits_s + n->waits_s[DLB_WAIT_COLLECTIVE];
		if (t->span && t->n_spans[i])
			origin = fmin(origin, t->span[i][0].start_s);
	}
	for (int i = 0; t->span && i < s->g->n_nodes; i++) {
		for (int k = 0; k < t->n_spans[i]; k++) {
			t->span[i][k].start_s -= origin;
			t->span[i][k].end_s -= origin;
		}
	}
}

static void begin_feed(struct sim *s)
{
	dlb_feed_load_init(&s->feed, s->g, s->c->cluster);
	for (int i = 0; i < s->g->n_nodes; i++) {
		s->node[i].now = s->feed.copy_s[i];
		s->t->node[i].copy_s += s->feed.copy_s[i];
		s->t->node[i].bytes_sent += s->feed.bytes[i];
		s->t->feed_bytes += s->feed.bytes[i];
	}
}

static void end_feed(struct sim *s)
{
	s->t->feed_wait_s = fmax(0, s->feed.least_s - s->end_s);
	s->end_s += s->t->feed_wait_s;
}

static int simulate(const struct dlb_program *g, const struct dlb_cost *c, const double *node_scale,
			 double jitter, uint64_t seed, bool keep_spans, struct dlb_timeline *t, struct dlb_error *err)
{
	struct sim s = { .g = g, .scale = node_scale, .jitter = jitter, .seed = seed, .t = t };
	size_t n_nodes = (size_t)g->n_nodes;
	int rc = 0;
	s.f = dlb_xcalloc((size_t)g->n_replicas, sizeof *s.f);
	for (int r = 0; r < g->n_replicas; r++) {
		dlb_flow_init(&s.f[r], dlb_program_replica(g, r)->plan, c, dlb_program_replica(g, r)->batch);
		dlb_flow_put(&s.f[r], dlb_program_replica(g, r));
	}
	s.c = s.f[0].c;
	/* a pipeline that is full, then enough slots for what a slow link or a long op holds up to show */
	s.from = 2 * g->depth;
	s.to = s.from + steps_counted(g);
	*t = (struct dlb_timeline){ .node = dlb_xcalloc(n_nodes, sizeof *t->node) };
	if (keep_spans) {
		t->span = dlb_xcalloc(n_nodes, sizeof *t->span);
		t->n_spans = dlb_xcalloc(n_nodes, sizeof *t->n_spans);
	}
	s.span_cap = dlb_xcalloc(n_nodes, sizeof(int));
	s.route_of = dlb_xcalloc(n_nodes * n_nodes, sizeof(int));
	s.link = dlb_xcalloc(s.c && s.c->cluster ? (size_t)s.c->cluster->n_links + 1 : 1, sizeof *s.link);
	s.node = dlb_xcalloc(n_nodes, sizeof *s.node);
	find_messages(&s);
	find_sums(&s);
	s.squares = dlb_xcalloc((size_t)g->steps, sizeof *s.squares);
	s.waits_for_norm = dlb_xcalloc(n_nodes, sizeof *s.waits_for_norm);
	bool feeds = g->whole->sharing.feed_host && s.c && s.c->cluster;
	if (feeds)
		begin_feed(&s);
	for (int i = 0; i < g->n_nodes; i++) {
		s.node[i].waits_for = s.node[i].copies = s.node[i].copying = -1;
		s.waits_for_norm[i] = -1;
		dlb_heap_push(&s.event, s.node[i].now, i * 4 + EV_NODE);
	}
	while (s.event.n) {
		struct dlb_heap_item x = dlb_heap_pop(&s.event);
		if (x.id % 4 == EV_NODE)
			advance(&s, x.id / 4);
		else if (x.id % 4 == EV_FLOW)
			flow(&s, x.id / 4, x.key);
		else
			end(&s, x.id / 4, x.key);
	}
	if (feeds && !g->depth)
		end_feed(&s);
	t->step_s = s.end_s;
	free(s.squares);
	free(s.waits_for_norm);
	for (int i = 0; i < g->n_nodes && !g->depth; i++) {
		struct dlb_node_times *n = &t->node[i];
		n->waits_s[DLB_WAIT_COLLECTIVE] += s.end_s - s.node[i].wait_from;
		n->wait_s = fmax(0, s.end_s - n->busy_s - n->copy_s);
	}
	if (g->depth)
		conclude_async(&s);
	dlb_feed_load_release(&s.feed);
	if (s.at_end < g->n_nodes) {
		rc = dlb_fail(err, NULL, "the programs deadlock: %d of %d nodes reach the end of the step", s.at_end, g->n_nodes);
		dlb_timeline_release(t, g->n_nodes);
	}
	for (int i = 0; s.c && s.c->cluster && i < s.c->cluster->n_links; i++)
		free(s.link[i].flow);
	free(s.link);
	free(s.msg);
	free(s.tag_start);
	free(s.route);
	free(s.route_of);
	free(s.node);
	free(s.span_cap);
	dlb_heap_release(&s.event);
	for (int r = 0; r < g->n_replicas; r++)
		dlb_flow_release(&s.f[r]);
	free(s.f);
	for (int i = 0; i < g->n_nodes; i++)
		free(s.sum[i]);
	free(s.sum);
	free(s.part);
	free(s.waits_for_sum);
	free(s.sum_busy_until);
	free(s.commanded);
	return rc;
}

int dlb_program_simulate(const struct dlb_program *g, const struct dlb_cost *c, const double *node_scale,
			 double jitter, uint64_t seed, bool keep_spans, struct dlb_timeline *t, struct dlb_error *err)
{
	struct dlb_program steps;
	int rc;
	if (!g->depth)
		return simulate(g, c, node_scale, jitter, seed, keep_spans, t, err);
	dlb_program_unroll(g, 3 * g->depth + steps_counted(g) + 1, &steps);
	rc = simulate(&steps, c, node_scale, jitter, seed, keep_spans, t, err);
	dlb_program_release(&steps);
	return rc;
}

void dlb_timeline_release(struct dlb_timeline *t, int n_nodes)
{
	for (int i = 0; t->span && i < n_nodes; i++)
		free(t->span[i]);
	free(t->span);
	free(t->n_spans);
	free(t->node);
	memset(t, 0, sizeof *t);
}
