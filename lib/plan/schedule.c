/* Schedules: the order in which (op, micro-batch) pairs enter the programs.
 *
 * One list scheduler; a schedule is a rule of what a free node takes first. Events are ends of items and
 * arrivals of messages. A node never rests while something it may take has arrived.
 *
 *     gpipe   forward of every micro-batch first, then backward    (Huang et al., NeurIPS 2019)
 *     1f1b    backward before forward of later micro-batches; a new micro-batch enters a node only while it
 *             has fewer than `limit` in flight (PipeDream-flush: Narayanan et al., ICML 2021)
 *
 *        gpipe, 2 nodes, M = 4                    1f1b
 *     0  F0 F1 F2 F3 .  B0 . B1 . B2 . B3      0  F0 F1 .  B0 F2 B1 F3 B2 .  B3
 *     1  .  F0 B0 F1 B1 ...                    1  .  F0 B0 F1 B1 F2 B2 F3 B3
 *
 * The limit is the number of stages from the node to the last, and more where messages or unlike nodes make
 * the round trip longer: by Little's law round trip / slowest node's time per micro-batch keep that node busy.
 * When nothing could run, one node's limit is raised by one (scattered placements need it).
 *
 * Within a phase the lower micro-batch goes first, then ops that another node waits for (directly or through
 * ops of the same phase on this node), then the graph's order. Updates come when nothing else can. Each op
 * runs its micro-batches in index order: an edge (op, m-1) -> (op, m). */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "plan/flow.h"

enum { RULE_1F1B, RULE_GPIPE };
const struct dlb_schedule dlb_schedules[] = {
	{ .name = "1f1b", .summary = "one forward, one backward: few micro-batches in flight", .rule = RULE_1F1B },
	{ .name = "gpipe", .summary = "all forward, then all backward", .rule = RULE_GPIPE },
	{ .name = NULL },
};

const struct dlb_schedule *dlb_schedule_find(const char *name)
{
	for (const struct dlb_schedule *s = dlb_schedules; s->name; s++)
		if (!strcmp(s->name, name))
			return s;
	return NULL;
}

struct lane {
	struct dlb_heap forward, other;		/* arrived; key: see priority() */
	int limit, in_flight, begun, n_backward;	/* begun: micro-batches 0 .. begun-1 have entered */
	bool busy, touched;
};
struct sched {
	struct dlb_flow f;
	struct dlb_plan *p;
	const double *scale;
	int rule;
	struct lane *lane;
	bool *awaited;				/* [op] another node waits for it */
	int *unmet, *left;			/* [item]; [node * M + m] backward items to go */
	double *ready;				/* [item] */
	struct dlb_heap event;			/* id: item << 1 | 0 it arrives, 1 it ends */
	int *touched, n_touched;
	double end;
};

static double seconds(const struct sched *s, int op, int m)
{
	return dlb_flow_s(&s->f, op, m) * (s->scale ? s->scale[s->p->placement[op]] : 1);
}

/* Lower is sooner. An exact double: updates after all, micro-batch, awaited first, op. */
static double priority(const struct sched *s, int op, int m)
{
	double n = s->f.g->n_ops;
	if (s->f.g->op[op].phase == DLB_UPDATE)
		return 2.0 * n * s->f.M + op;
	return (2.0 * m + !s->awaited[op]) * n + op;
}

static void find_awaited(struct sched *s)
{
	const struct dlb_graph *g = s->f.g;
	for (int i = g->n_ops - 1; i >= 0; i--) {
		for (int k = s->f.succ_start[i]; k < s->f.succ_start[i + 1] && !s->awaited[i]; k++) {
			int o = s->f.succ[k];
			if (g->op[o].phase == DLB_UPDATE)
				continue;
			s->awaited[i] = s->p->placement[o] != s->p->placement[i] ||
				(s->awaited[o] && g->op[o].phase == g->op[i].phase);
		}
	}
}

/* Stages are nodes in the order of their first forward op; stage[node], returns their number. */
static int find_stages(const struct sched *s, int *stage)
{
	int n = 0;
	for (int i = 0; i < s->p->n_nodes; i++)
		stage[i] = -1;
	for (int i = 0; i < s->f.g->n_ops; i++)
		if (s->f.g->op[i].phase == DLB_FORWARD && stage[s->p->placement[i]] < 0)
			stage[s->p->placement[i]] = n++;
	for (int i = 0; i < s->p->n_nodes; i++)
		if (stage[i] < 0)
			stage[i] = n ? n - 1 : 0;
	return n ? n : 1;
}

static void set_limits(struct sched *s)
{
	const struct dlb_graph *g = s->f.g;
	int n_nodes = s->p->n_nodes, *stage = dlb_xcalloc((size_t)n_nodes, sizeof(int)), n = find_stages(s, stage);
	double *own = dlb_xcalloc((size_t)n_nodes, sizeof(double)), *at = dlb_xcalloc((size_t)n + 1, sizeof(double)), most = 0;
	for (int i = 0; i < g->n_ops; i++) {
		int node = s->p->placement[i];
		if (g->op[i].phase == DLB_UPDATE)
			continue;
		own[node] += seconds(s, i, 0);
		at[stage[node]] += seconds(s, i, 0);
		for (int e = s->f.pred_start[i]; e < s->f.pred_start[i + 1]; e++) {
			int from = stage[s->p->placement[s->f.pred[e]]], to = stage[node];
			at[from < to ? from : to] += s->f.pred_s[2 * e];
		}
		if (g->op[i].phase == DLB_BACKWARD)
			s->lane[node].n_backward++;
	}
	for (int i = 0; i < n_nodes; i++)
		if (own[i] > most)
			most = own[i];
	for (int i = n - 2; i >= 0; i--)
		at[i] += at[i + 1];
	for (int i = 0; i < n_nodes; i++) {
		int stages = n - stage[i], limit = stages;
		double wanted = most > 0 ? ceil(at[stage[i]] / most - 1e-6) : 0;
		if (wanted > limit)
			limit = wanted < 2 * stages ? (int)wanted : 2 * stages;
		s->lane[i].limit = s->rule == RULE_GPIPE || !s->lane[i].n_backward ? s->f.M : limit;
		for (int m = 0; m < s->f.M; m++)
			s->left[i * s->f.M + m] = s->lane[i].n_backward;
	}
	free(stage);
	free(own);
	free(at);
}

static void touch(struct sched *s, int node)
{
	if (!s->lane[node].touched) {
		s->lane[node].touched = true;
		s->touched[s->n_touched++] = node;
	}
}

static void arrive(struct sched *s, int item)
{
	int op = item / s->f.M, m = item % s->f.M, node = s->p->placement[op];
	struct lane *l = &s->lane[node];
	dlb_heap_push(s->f.g->op[op].phase == DLB_FORWARD ? &l->forward : &l->other, priority(s, op, m), item);
	touch(s, node);
}

/* One thing less that `item` waits for, done at time t. */
static void met(struct sched *s, int item, double t)
{
	if (s->ready[item] < t)
		s->ready[item] = t;
	if (--s->unmet[item] == 0)
		dlb_heap_push(&s->event, s->ready[item], item << 1);
}

static void finish(struct sched *s, int item, double t)
{
	const struct dlb_flow *f = &s->f;
	int op = item / f->M, m = item % f->M, node = s->p->placement[op];
	struct lane *l = &s->lane[node];
	l->busy = false;
	touch(s, node);
	if (f->g->op[op].phase == DLB_BACKWARD && --s->left[node * f->M + m] == 0 && m < l->begun)
		l->in_flight--;
	if (m + 1 < dlb_flow_items(f, op))
		met(s, item + 1, t);
	for (int k = f->succ_start[op]; k < f->succ_start[op + 1]; k++) {
		int to = f->succ[k];
		double at = t + f->pred_s[2 * f->succ_edge[k] + dlb_flow_class(f, m)];
		if (f->g->op[to].phase != DLB_UPDATE)
			met(s, to * f->M + m, at);
		else if (m == dlb_flow_items(f, op) - 1)
			met(s, to * f->M, at);
	}
}

static void run(struct sched *s, int node, int item, double t)
{
	int op = item / s->f.M, m = item % s->f.M;
	struct dlb_node_plan *np = &s->p->node[node];
	struct lane *l = &s->lane[node];
	if (s->f.g->op[op].phase == DLB_FORWARD && m >= l->begun) {
		l->begun = m + 1;
		l->in_flight += s->left[node * s->f.M + m] > 0;	/* scattered placements may have its backward behind them */
	}
	np->order[np->n_order++] = (struct dlb_item){ op, s->f.g->op[op].phase == DLB_UPDATE ? -1 : m };
	l->busy = true;
	double end = t + seconds(s, op, m);
	if (end > s->end)
		s->end = end;
	dlb_heap_push(&s->event, end, item << 1 | 1);
}

static bool may_enter(const struct sched *s, const struct lane *l)
{
	return l->forward.item[0].id % s->f.M < l->begun || l->in_flight < l->limit;
}

static void dispatch(struct sched *s, int node, double t)
{
	struct lane *l = &s->lane[node];
	if (l->busy)
		return;
	bool forward = l->forward.n && may_enter(s, l), other = l->other.n;
	bool update = other && s->f.g->op[l->other.item[0].id / s->f.M].phase == DLB_UPDATE;
	bool older = forward && other && l->forward.item[0].id % s->f.M <= l->other.item[0].id % s->f.M;
	if (forward && (s->rule == RULE_GPIPE || !other || update || older))
		run(s, node, dlb_heap_pop(&l->forward).id, t);
	else if (other)
		run(s, node, dlb_heap_pop(&l->other).id, t);
}

/* Nothing is under way and items are left: one more micro-batch may enter where the lowest one waits. */
static bool loosen(struct sched *s, double t)
{
	int best = -1;
	for (int i = 0; i < s->p->n_nodes; i++) {
		const struct dlb_heap *h = &s->lane[i].forward;
		if (h->n && (best < 0 || h->item[0].key < s->lane[best].forward.item[0].key))
			best = i;
	}
	if (best < 0)
		return false;
	s->lane[best].limit = s->lane[best].in_flight + 1;
	dispatch(s, best, t);
	return true;
}

double dlb_schedule_order(struct dlb_plan *p, const struct dlb_cost *c, const struct dlb_schedule *rule,
			  const double *node_scale)
{
	struct sched s = { .p = p, .scale = node_scale, .rule = rule->rule };
	dlb_flow_init(&s.f, p, c, p->batch);
	const struct dlb_graph *g = s.f.g;
	size_t n_items = (size_t)g->n_ops * (size_t)s.f.M, n_nodes = (size_t)p->n_nodes;
	int *n = dlb_xcalloc(n_nodes, sizeof(int));
	s.lane = dlb_xcalloc(n_nodes, sizeof *s.lane);
	s.left = dlb_xcalloc(n_nodes * (size_t)s.f.M, sizeof(int));
	s.touched = dlb_xcalloc(n_nodes, sizeof(int));
	s.awaited = dlb_xcalloc((size_t)g->n_ops + 1, sizeof(bool));
	s.unmet = dlb_xcalloc(n_items + 1, sizeof(int));
	s.ready = dlb_xcalloc(n_items + 1, sizeof(double));
	find_awaited(&s);
	set_limits(&s);
	for (int i = 0; i < g->n_ops; i++)
		n[p->placement[i]] += dlb_flow_items(&s.f, i);
	for (int i = 0; i < p->n_nodes; i++) {
		p->node[i].order = dlb_arena_array(&p->arena, (size_t)n[i] + 1, sizeof(struct dlb_item));
		p->node[i].n_order = 0;
	}
	for (int i = 0; i < g->n_ops; i++) {
		for (int m = 0; m < dlb_flow_items(&s.f, i); m++) {
			s.unmet[i * s.f.M + m] = s.f.pred_start[i + 1] - s.f.pred_start[i] + (m > 0);
			if (!s.unmet[i * s.f.M + m])
				dlb_heap_push(&s.event, 0, (i * s.f.M + m) << 1);
		}
	}
	for (double t = 0; s.event.n || loosen(&s, t);) {
		if (!s.event.n)
			continue;
		t = s.event.item[0].key;
		while (s.event.n && s.event.item[0].key <= t) {
			int id = dlb_heap_pop(&s.event).id;
			if (id & 1)
				finish(&s, id >> 1, t);
			else
				arrive(&s, id >> 1);
		}
		for (int i = 0; i < s.n_touched; i++) {
			s.lane[s.touched[i]].touched = false;
			dispatch(&s, s.touched[i], t);
		}
		s.n_touched = 0;
	}
	for (int i = 0; i < p->n_nodes; i++) {
		dlb_heap_release(&s.lane[i].forward);
		dlb_heap_release(&s.lane[i].other);
	}
	dlb_heap_release(&s.event);
	free(n);
	free(s.lane);
	free(s.left);
	free(s.touched);
	free(s.awaited);
	free(s.unmet);
	free(s.ready);
	dlb_flow_release(&s.f);
	return s.end;
}
