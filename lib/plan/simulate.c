/* The simulator: the second interpreter of programs. It walks the same instructions as the executor, with
 * times from the cost model.
 *
 * A node's own clock runs ahead through COMPUTEs. At every instruction that other nodes can see, the node
 * enters the event queue, so that messages meet in order of time.
 *
 * A zero-copy message (program.h) costs as much as a copy: the executor chooses the faster of the two.
 *
 * busy is the time in COMPUTE (ops, sums of gradients, updates). A node with ops begins a step with its
 * overhead, if that was measured (cost.h). The rest of the step, except copies by the node, is waiting:
 * starved (in WAIT for a message), back-pressure (in WAIT sent), collective (at the step's end). An
 * asynchronous program is unrolled to several steps between the filling and the draining of the pipeline;
 * times are means over these.
 *
 * If rank 0 reads for all nodes, it sends shares of later steps while the step runs. Over links that do not
 * overlap with work the sender copies these shares first. A step is at least as long as the busiest direction
 * needs for them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "plan/async.h"
#include "plan/feed_load.h"
#include "plan/replica.h"
#include "plan/shares.h"
#include "plan/simulate.h"
#include "plan/timeline.h"

static void keep_span(struct sim *s, int node, const struct dlb_instr *in, double from, double to)
{
	struct dlb_timeline *t = s->t;
	int m = in->micro_batch < 0 ? -1 : in->micro_batch % s->f[0].M;
	if (s->g->depth && s->node[node].ends != s->to)		/* only of the last iteration that counts */
		return;
	DLB_GROW(t->span[node], t->n_spans[node], s->span_cap[node]);
	t->span[node][t->n_spans[node]++] = (struct dlb_span){ in->op, m, from, to, in->again };
}

/* Copies the messages that the node has to copy now; true while it copies. */
static bool copy(struct sim *s, int node)
{
	struct sim_node *n = &s->node[node];
	for (int k; (k = n->copies) >= 0;) {
		n->copies = s->msg[k].next;
		dlb_sim_begin_copy(s, k, n->now);
	}
	if (n->copying < 0 || s->msg[n->copying].flow.done)
		return false;
	n->wait_from = n->now;
	n->waits_for = n->copying;
	n->wait_kind = -1;
	return true;
}

static bool wait_for(struct sim *s, int node, const struct dlb_instr *in)
{
	int k = in->sent ? dlb_sim_find_message(s, node, in->peer, in->tag) :
			   dlb_sim_find_message(s, in->peer, node, in->tag);
	if (k < 0 || (s->msg[k].flow.done && (!in->sent || s->msg[k].returned)))
		return false;
	s->node[node].wait_from = s->node[node].now;
	s->node[node].waits_for = k;
	s->node[node].wait_kind = in->sent ? DLB_WAIT_BACKPRESSURE : DLB_WAIT_STARVED;
	return true;
}

/* Subtracts the counts of `from` from t, and divides by steps. */
static void count_from(struct dlb_node_times *t, const struct dlb_node_times *from, double steps)
{
	double *x = (double *)t;
	const double *y = (const double *)from;
	for (size_t i = 0; i < sizeof *t / sizeof *x; i++)
		x[i] = (x[i] - y[i]) / steps;
}

/* Counts the node's share of feeding the next step, in an iteration of an asynchronous loop. */
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
	n->now += n->overhead_s;
	t->overhead_s += n->overhead_s;
	if (s->g->whole->sharing.feed_host && s->feed.bytes)
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

/* Runs node from its own clock until it waits, or until an instruction visible to others is later than the
 * next event. */
static void advance(struct sim *s, int node)
{
	const struct dlb_node_program *np = &dlb_program_of(s->g, node)->node[node];
	struct sim_node *n = &s->node[node];
	while (n->pc < np->n_instr) {
		const struct dlb_instr *in = &np->instr[n->pc];
		if (copy(s, node))
			return;
		if (in->verb == DLB_FETCHED || in->verb == DLB_STORED) {
			dlb_sim_wait_offloaded(s, node, in);
		} else if (in->verb == DLB_COMPUTE) {
			double t = dlb_sim_compute_s(s, node, in);
			if (s->t->span && t > 0)
				keep_span(s, node, in, n->now, n->now + t);
			n->now += t;
			s->t->node[node].busy_s += t;
		} else if (in->verb != DLB_COPY && (in->verb != DLB_FREE || in->zero_copy)) {
			if (s->event.n && s->event.item[0].key < n->now) {	/* other nodes run first */
				dlb_heap_push(&s->event, n->now, node * 4 + EV_NODE);
				return;
			}
			if (in->verb == DLB_WAIT) {
				if (wait_for(s, node, in))
					return;
			} else if (in->verb == DLB_COLLECTIVE &&
				   (in->what == DLB_RUN_NORM || in->what == DLB_RUN_SQUARES ||
				    in->what == DLB_RUN_TRUST)) {
				if (!s->g->async) {
					dlb_sim_norm(s, node, in->what == DLB_RUN_TRUST);
					return;
				}
				if (dlb_sim_norm_of_step(s, node, in))
					return;
			} else if (in->verb == DLB_COLLECTIVE && in->what != DLB_RUN_STEP_END) {
				if (dlb_sim_meet_others(s, node, in))
					return;
			} else if (in->verb == DLB_COLLECTIVE) {
				step_end(s, node);
			} else if (in->verb == DLB_FETCH || in->verb == DLB_STORE) {
				dlb_sim_copy_offloaded(s, node, in);
			} else if (in->verb == DLB_FREE) {
				dlb_sim_return(s, dlb_sim_find_message(s, in->peer, node, in->tag), n->now);
			} else {
				bool ours = in->verb == DLB_SEND;
				int k = ours ? dlb_sim_find_message(s, node, in->peer, in->tag) :
					       dlb_sim_find_message(s, in->peer, node, in->tag);
				if (k >= 0) {
					*(ours ? &s->msg[k].sent : &s->msg[k].posted) = true;
					if (ours)
						s->t->node[node].bytes_sent += s->msg[k].flow.bytes;
					dlb_sim_meet(s, k, n->now);
				}
			}
		}
		n->pc++;
	}
}

/* The number of steps that count: at least a dozen micro-batches. */
static int steps_counted(const struct dlb_program *g)
{
	int M = g->micro_batches / g->steps;
	return M >= 6 ? 2 : (12 + M - 1) / M;
}

/* Times per step over the steps that count. */
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
		n->data_wait_s = fmax(0, (s->feed.ready_s ? s->feed.ready_s[i] : 0) -
						 (t->step_s - t->feed_wait_s));
		n->waits_s[DLB_WAIT_COLLECTIVE] = fmax(0, t->step_s - n->busy_s - n->copy_s - n->overhead_s -
								  n->data_wait_s - waits_s);
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

/* Seconds that node spends in a step in addition to its ops; 0: it has no ops, or the time is unknown. */
static double overhead_s(const struct sim *s, int node)
{
	const struct dlb_node_program *np = &dlb_program_of(s->g, node)->node[node];
	const struct dlb_node *at;
	double t;
	if (!s->c || !s->c->cluster || !s->c->step_overhead_s)
		return 0;
	at = &s->c->cluster->node[node];
	t = s->c->step_overhead_s[at->kind] / at->speed;
	for (int i = 0; i < np->n_instr && isfinite(t); i++)
		if (np->instr[i].verb == DLB_COMPUTE)
			return t;
	return 0;
}

static void begin_step(struct sim *s)
{
	for (int i = 0; i < s->g->n_nodes; i++) {
		s->node[i].overhead_s = overhead_s(s, i);
		s->node[i].now += s->node[i].overhead_s;
		s->t->node[i].overhead_s += s->node[i].overhead_s;
	}
}

static void begin_feed(struct sim *s)
{
	for (int i = 0; i < s->g->n_nodes; i++) {
		s->node[i].now = s->feed.copy_s[i];
		s->t->node[i].copy_s += s->feed.copy_s[i];
		s->t->node[i].bytes_sent += s->feed.bytes[i];
		s->t->feed_bytes += s->feed.bytes[i];
	}
}

static void end_feed(struct sim *s)
{
	for (int i = 0; i < s->g->n_nodes; i++)
		s->t->node[i].data_wait_s = fmax(0, s->feed.ready_s[i] - s->end_s);
	s->t->feed_wait_s = fmax(0, s->feed.least_s - s->end_s);
	s->end_s += s->t->feed_wait_s;
}

static void release(struct sim *s)
{
	for (int i = 0; i < s->n_directions; i++) {
		free(s->direction[i].flow);
		free(s->direction[i].bytes);
	}
	free(s->direction);
	free(s->msg);
	free(s->passage);
	free(s->tag_start);
	free(s->route);
	free(s->route_of);
	free(s->span_cap);
	dlb_heap_release(&s->event);
	for (int r = 0; r < s->g->n_replicas; r++)
		dlb_flow_release(&s->f[r]);
	free(s->f);
	dlb_sim_release_sums(s);
	dlb_sim_release_offloaded(s);
	free(s->node);
}

static int simulate(const struct dlb_program *g, const struct dlb_cost *c,
		    const struct dlb_simulate_choice *choice, struct dlb_timeline *t, struct dlb_error *err)
{
	struct sim s = { .g = g, .choice = choice, .t = t };
	size_t n_nodes = (size_t)g->n_nodes;
	int rc = 0;
	s.f = dlb_xcalloc((size_t)g->n_replicas, sizeof *s.f);
	for (int r = 0; r < g->n_replicas; r++) {
		dlb_flow_init(&s.f[r], dlb_program_replica(g, r)->plan, c, dlb_program_replica(g, r)->batch);
		dlb_flow_put(&s.f[r], dlb_program_replica(g, r));
	}
	s.c = s.f[0].c;
	/* Counts begin with a full pipeline, after enough steps for delays by slow links and long ops to
	 * appear. */
	s.from = 2 * g->depth;
	s.to = s.from + steps_counted(g);
	*t = (struct dlb_timeline){ .node = dlb_xcalloc(n_nodes, sizeof *t->node) };
	if (choice->keep_spans) {
		t->span = dlb_xcalloc(n_nodes, sizeof *t->span);
		t->n_spans = dlb_xcalloc(n_nodes, sizeof *t->n_spans);
	}
	s.span_cap = dlb_xcalloc(n_nodes, sizeof(int));
	s.n_directions = s.c && s.c->cluster ? dlb_cluster_n_directions(s.c->cluster) : 0;
	s.direction = dlb_xcalloc((size_t)s.n_directions + 1, sizeof *s.direction);
	s.node = dlb_xcalloc(n_nodes, sizeof *s.node);
	dlb_sim_find_messages(&s);
	dlb_sim_find_sums(&s);
	dlb_sim_find_offloaded(&s);
	s.squares = dlb_xcalloc((size_t)g->steps, sizeof *s.squares);
	s.waits_for_norm = dlb_xcalloc(n_nodes, sizeof *s.waits_for_norm);
	const bool feeds = s.c && s.c->cluster && (g->whole->sharing.feed_host || s.c->sample_s);
	if (feeds)
		dlb_feed_load_init(&s.feed, g, s.c);
	if (feeds && g->whole->sharing.feed_host)
		begin_feed(&s);
	begin_step(&s);
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
			dlb_sim_flow(&s, x.id / 4, x.key);
		else
			dlb_sim_end(&s, x.id / 4, x.key);
	}
	if (feeds && !g->depth)
		end_feed(&s);
	t->step_s = s.end_s;
	free(s.squares);
	free(s.waits_for_norm);
	for (int i = 0; i < g->n_nodes && !g->depth; i++) {
		struct dlb_node_times *n = &t->node[i];
		n->waits_s[DLB_WAIT_COLLECTIVE] += s.end_s - s.node[i].wait_from - n->data_wait_s;
		n->wait_s = fmax(0, s.end_s - n->busy_s - n->copy_s - n->offload_s - n->overhead_s -
					    n->data_wait_s);
	}
	if (g->depth)
		conclude_async(&s);
	dlb_feed_load_release(&s.feed);
	if (s.at_end < g->n_nodes) {
		rc = dlb_fail(err, NULL, "the programs deadlock: %d of %d nodes reach the end of the step",
			      s.at_end, g->n_nodes);
		dlb_timeline_release(t, g->n_nodes);
	}
	release(&s);
	return rc;
}

int dlb_program_simulate(const struct dlb_program *g, const struct dlb_cost *c,
			 const struct dlb_simulate_choice *choice, struct dlb_timeline *t,
			 struct dlb_error *err)
{
	struct dlb_program steps;
	int rc;
	if (!g->depth)
		return simulate(g, c, choice, t, err);
	dlb_program_unroll(g, 3 * g->depth + steps_counted(g) + 1, &steps);
	rc = simulate(&steps, c, choice, t, err);
	dlb_program_release(&steps);
	return rc;
}

int dlb_program_step_s(const struct dlb_program *g, const struct dlb_cost *c, const double *node_scale,
		       double *step_s, struct dlb_error *err)
{
	struct dlb_timeline t;

	if (dlb_program_simulate(g, c, &(struct dlb_simulate_choice){ .node_scale = node_scale }, &t, err))
		return -1;
	*step_s = t.step_s;
	dlb_timeline_release(&t, g->n_nodes);
	return 0;
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
