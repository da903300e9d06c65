/* Schedules: the order in which (op, micro-batch) pairs enter the programs.
 *
 * There is one list scheduler. A schedule is a priority rule for idle nodes, with a limit of micro-batches
 * in flight. Events are ends of items and arrivals of messages. A node is never idle while it has an item
 * that may run.
 *
 *     none         one micro-batch at a time: the next one begins when all ops of the current one are done
 *     gpipe        all forward micro-batches, then backward    (Huang et al., NeurIPS 2019)
 *     1f1b         backward before forward of later micro-batches; a new micro-batch enters a node only
 *                  while it has fewer than `limit` in flight (PipeDream-flush: Narayanan et al., ICML 2021)
 *     interleaved  1f1b for nodes with several stages (chunks): micro-batches pass all chunks in groups, one
 *                  micro-batch per node in a group; the limit counts (chunk, micro-batch) (Narayanan et al.,
 *                  SC 2021)
 *     zero-bubble  1f1b with delayed weight gradients: input gradients first, then forward; weight gradients
 *                  fill idle time (Qi et al., ICLR 2024)
 *
 *        gpipe, 2 nodes, M = 4                    1f1b                         zero-bubble
 *     0  F0 F1 F2 F3 .  B0 . B1 . B2 . B3      0  F0 F1 .  B0 F2 B1 F3 ...   0  F0 F1 F2 B0 F3 W0 B1 ...
 *     1  .  F0 B0 F1 B1 ...                    1  .  F0 B0 F1 B1 F2 B2 ...   1  .  F0 B0 F1 B1 W0 F2 ...
 *
 * Limits. 1f1b: the number of stages from the node to the last, and more if messages or slow nodes make the
 * round trip longer: by Little's law, round trip / slowest node's time per micro-batch keeps that node busy.
 * interleaved: 2 (nodes after this one) + (chunks - 1) nodes + 2. zero-bubble: on every node the largest
 * limit of 1f1b, which needs at most the memory of 1f1b's fullest node (ZB-H1); a micro-batch is in flight
 * until its last weight gradient is computed. plan->in_flight replaces these limits: a higher limit fills
 * more bubbles (ZB-H2), a lower limit needs less memory. When no item may run, one node's limit is raised by
 * one (scattered placements need this).
 *
 * The graph distinguishes weight gradients from input gradients: a backward op that no other node waits
 * for, directly or through backward ops of its own node, computes only inputs of updates. The chunks of a
 * node are the distinct depths of its forward ops, where an edge between two nodes adds one; a backward op
 * is in the chunk of its forward op.
 *
 * A pipeline of k equal stages takes (M + k - 1) / M of a stage's work for M micro-batches under gpipe and
 * 1f1b: each further stage adds the time of one micro-batch (stage_delay 1). Under zero-bubble it adds only
 * the forward phase, a third (ZB-H1). Under interleaved it adds 1 / chunks, and the number of chunks is
 * unlimited if ops can be divided at will (stage_delay 0).
 *
 * Within a phase the lower micro-batch comes first (interleaved: the lower group, then the chunk), then
 * ops that another node waits for, then the graph's order. Updates run when nothing else can. Each op runs
 * its micro-batches in index order: an edge (op, m-1) -> (op, m). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "plan/again.h"
#include "plan/flow.h"
#include "plan/schedule.h"

enum {
	RULE_FORWARD_FIRST = 1,		/* without a limit */
	RULE_ALONE = 2,			/* one micro-batch at a time */
	RULE_CHUNKS = 4,		/* the limit counts (chunk, micro-batch) */
	RULE_WEIGHTS_LATE = 8,
};
const struct dlb_schedule dlb_schedules[] = {
	{ .name = "1f1b",
	  .summary = "one forward, one backward: few micro-batches in flight",
	  .stage_delay = 1 },
	{ .name = "gpipe",
	  .summary = "all forward, then all backward",
	  .rule = RULE_FORWARD_FIRST,
	  .stage_delay = 1 },
	{ .name = "interleaved",
	  .summary = "1f1b over nodes that hold several stages each",
	  .rule = RULE_CHUNKS },
	{ .name = "zero-bubble",
	  .summary = "weight gradients fill what 1f1b leaves idle",
	  .rule = RULE_WEIGHTS_LATE,
	  .stage_delay = 1.0 / 3 },
	{ .name = "none", .summary = "one micro-batch at a time", .rule = RULE_ALONE },
	{ .name = "async",
	  .summary = "steps follow each other without a flush; gradients come late",
	  .async = true },
	{ .name = NULL },
};

const struct dlb_schedule *dlb_schedule_find(const char *name)
{
	for (const struct dlb_schedule *s = dlb_schedules; s->name; s++)
		if (!strcmp(s->name, name))
			return s;
	return NULL;
}

double dlb_schedule_pipeline_factor(const struct dlb_schedule *s, int stages, int micro_batches)
{
	return s->rule & RULE_ALONE ? stages : 1 + (stages - 1) * s->stage_delay / micro_batches;
}

bool dlb_plan_is_async(const struct dlb_plan *p)
{
	const struct dlb_schedule *s = p->schedule ? dlb_schedule_find(p->schedule) : NULL;

	return s && s->async;
}

bool dlb_schedule_bounded(const struct dlb_schedule *s)
{
	return !s->async && !(s->rule & (RULE_FORWARD_FIRST | RULE_ALONE));
}
bool dlb_schedule_in_parts(const struct dlb_schedule *s)
{
	return s->rule & (RULE_CHUNKS | RULE_WEIGHTS_LATE);
}
bool dlb_schedule_fills(const struct dlb_schedule *s) { return s->rule & RULE_WEIGHTS_LATE; }

const char *dlb_schedule_names(char *out, size_t size)
{
	size_t n = 0;
	out[0] = '\0';
	for (const struct dlb_schedule *s = dlb_schedules; s->name && n < size; s++)
		n += (size_t)snprintf(out + n, size - n, "%s%s",
				      s == dlb_schedules ? "" :
				      s[1].name          ? ", " :
							   " and ",
				      s->name);
	return out;
}

/* Items that have arrived on a node and wait for their turn. Keys: see priority(). */
struct node_queues {
	struct dlb_heap forward, entering;	/* of units that have entered; of units that have not */
	/* late: weight gradients that fill idle time */
	struct dlb_heap backward, late, update;
	int limit, in_flight;			/* in units; a unit is (chunk, micro-batch) */
	int first_chunk, n_chunks;
	int n_entered;				/* units */
	bool busy, touched;
};
struct sched {
	struct dlb_flow f;
	struct dlb_plan *p;
	const double *scale;
	int rule;
	struct node_queues *node;
	bool *awaited;				/* [op] another node waits for it */
	int *chunk, n_chunks;			/* [op] its chunk, numbered over all nodes */
	int n_stages;				/* nodes with forward ops */
	bool *entered; int *left;		/* [unit] = [chunk * M + m]; left: backward items to run */
	int *unmet;				/* [item] number of predecessors that are not done */
	double *ready;				/* [item] latest arrival from its predecessors so far */
	struct dlb_heap event;			/* id: item << 1 | 0 it arrives, 1 it ends */
	int *touched, n_touched;
	int *undone, alone;			/* [m] items to run; the lowest micro-batch with such items */
	/* [op] of ops that update the same running statistics: the next one; of the last one: the first one,
	 * whose next micro-batch follows; else -1 */
	int *next_writer, *first_writer;
	double now, end;
	bool updates_first;
	double *left_s; /* [node] seconds of its items that have not begun; NULL: no makespan is too long */
};

static double seconds(const struct sched *s, int op, int m)
{
	return dlb_flow_item_s(&s->f, op, m) * (s->scale ? s->scale[s->p->placement[op]] : 1);
}

static int unit_of(const struct sched *s, int op, int m) { return s->chunk[op] * s->f.M + m; }

/* Position of op's unit among those of its node and phase: micro-batch by micro-batch or, with several
 * chunks, in groups of as many micro-batches as stages, one chunk after the other. The last group may be
 * smaller. */
static double turn_of(const struct sched *s, int op, int m)
{
	const struct node_queues *l = &s->node[s->p->placement[op]];
	int p = s->n_stages, group = m / p, chunk = s->chunk[op] - l->first_chunk, v = l->n_chunks;
	if (v < 2)
		return m;
	if (s->f.g->op[op].phase != DLB_FORWARD)
		chunk = v - 1 - chunk;
	int size = (group + 1) * p <= s->f.M ? p : s->f.M - group * p;
	return (double)group * v * p + (double)chunk * size + m % p;
}

/* The key of an item; lower keys run earlier: updates last, then by turn, awaited ops first, then by op. The
 * double is exact. */
static double priority(const struct sched *s, int op, int m)
{
	double n = s->f.g->n_ops;
	if (s->f.g->op[op].phase == DLB_UPDATE)
		return 2.0 * n * s->f.M * s->n_chunks + op;
	return (2.0 * turn_of(s, op, m) + !s->awaited[op]) * n + op;
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

/* ---- chunks ---- */

/* depth[op]: number of edges between nodes on the longest path to its forward op. */
static void find_depths(const struct sched *s, int *depth)
{
	const struct dlb_graph *g = s->f.g;
	for (int i = 0; i < g->n_ops; i++) {
		depth[i] = 0;
		if (g->op[i].phase != DLB_FORWARD && g->op[i].of >= 0) {
			depth[i] = depth[g->op[i].of];
			continue;
		}
		for (int e = s->f.pred_start[i]; e < s->f.pred_start[i + 1]; e++) {
			int p = s->f.pred[e], d = depth[p];
			d += g->op[i].phase == DLB_FORWARD && s->p->placement[p] != s->p->placement[i];
			if (d > depth[i])
				depth[i] = d;
		}
	}
}

struct node_depth { int node, depth, op; };
static int by_place(const void *a, const void *b)
{
	const struct node_depth *x = a, *y = b;
	return x->node != y->node   ? (x->node > y->node ? 1 : -1) :
	       x->depth != y->depth ? (x->depth > y->depth ? 1 : -1) :
				      x->op - y->op;
}

/* Without depths each node that has ops is one chunk, numbered in order of nodes. */
static void find_whole_nodes(struct sched *s)
{
	for (int i = 0; i < s->f.g->n_ops; i++)
		s->node[s->p->placement[i]].n_chunks = 1;
	for (int node = 0; node < s->p->n_nodes; node++) {
		s->node[node].first_chunk = s->n_chunks;
		s->n_chunks += s->node[node].n_chunks;
	}
	for (int i = 0; i < s->f.g->n_ops; i++)
		s->chunk[i] = s->node[s->p->placement[i]].first_chunk;
}

/* Forward ops of one depth on one node are a chunk; ops without a forward op of their depth there join the
 * previous chunk. */
static void find_chunks(struct sched *s)
{
	const struct dlb_graph *g = s->f.g;
	s->chunk = dlb_xcalloc((size_t)g->n_ops + 1, sizeof(int));
	if (!(s->rule & RULE_CHUNKS)) {
		find_whole_nodes(s);
		return;
	}
	struct node_depth *at = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *at);
	int *depth = dlb_xcalloc((size_t)g->n_ops + 1, sizeof(int)), node = -1, deepest = -1;
	find_depths(s, depth);
	for (int i = 0; i < g->n_ops; i++)		/* forward first: 2 depth, else 2 depth + 1 */
		at[i] = (struct node_depth){ s->p->placement[i],
					     2 * depth[i] + (g->op[i].phase != DLB_FORWARD), i };
	qsort(at, (size_t)g->n_ops, sizeof *at, by_place);
	for (int i = 0; i < g->n_ops; i++) {
		struct node_queues *l = &s->node[at[i].node];
		if (at[i].node != node || (at[i].depth % 2 == 0 && at[i].depth > deepest)) {
			if (at[i].node != node)
				l->first_chunk = s->n_chunks;
			node = at[i].node;
			deepest = at[i].depth;
			l->n_chunks++;
			s->n_chunks++;
		}
		s->chunk[at[i].op] = s->n_chunks - 1;
	}
	free(at);
	free(depth);
}

/* ---- limits ---- */

/* Numbers the nodes in the order of their first forward op: stage[node]. Returns the number of stages. */
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

/* For Little's law: round[stage] is the time from a micro-batch's first op on the stage to its last op there,
 * if it is the only micro-batch; most: the slowest node's time for a micro-batch. */
static void find_round_trips(struct sched *s, const int *stage, double *round, double *most)
{
	const struct dlb_graph *g = s->f.g;
	double *own = dlb_xcalloc((size_t)s->p->n_nodes, sizeof(double));
	for (int i = 0; i < g->n_ops; i++) {
		int node = s->p->placement[i];
		if (g->op[i].phase == DLB_UPDATE)
			continue;
		own[node] += seconds(s, i, 0);
		round[stage[node]] += seconds(s, i, 0);
		for (int e = s->f.pred_start[i]; e < s->f.pred_start[i + 1]; e++) {
			int from = stage[s->p->placement[s->f.pred[e]]], to = stage[node];
			round[from < to ? from : to] += s->f.pred_s[2 * e];
		}
	}
	*most = 0;
	for (int i = 0; i < s->p->n_nodes; i++)
		if (own[i] > *most)
			*most = own[i];
	for (int i = s->n_stages - 2; i >= 0; i--)
		round[i] += round[i + 1];
	free(own);
}

static int own_limit(const struct sched *s, const struct node_queues *l, int stage, double round_s,
		     double most_s)
{
	int stages = s->n_stages - stage, limit = stages;
	double wanted = most_s > 0 ? ceil(round_s / most_s - 1e-6) : 0;
	if (s->rule & RULE_CHUNKS)
		return 2 * (stages - 1) + (l->n_chunks - 1) * s->n_stages + 2;
	if (wanted > limit)
		limit = wanted < 2 * stages ? (int)wanted : 2 * stages;
	return limit;
}

static void set_limits(struct sched *s)
{
	const struct dlb_graph *g = s->f.g;
	int n_nodes = s->p->n_nodes, *stage = dlb_xcalloc((size_t)n_nodes, sizeof(int)), largest = 1;
	s->n_stages = find_stages(s, stage);
	double *round = dlb_xcalloc((size_t)s->n_stages + 1, sizeof(double)), most;
	find_round_trips(s, stage, round, &most);
	for (int i = 0; i < g->n_ops; i++)
		for (int m = 0; m < s->f.M && g->op[i].phase == DLB_BACKWARD; m++)
			s->left[unit_of(s, i, m)]++;
	for (int i = 0; i < n_nodes; i++) {
		struct node_queues *l = &s->node[i];
		l->limit = own_limit(s, l, stage[i], round[stage[i]], most);
		int batches = (l->limit + (l->n_chunks ? l->n_chunks : 1) - 1) /
			      (l->n_chunks ? l->n_chunks : 1);
		if (batches > largest)
			largest = batches;
	}
	if (s->rule & RULE_FORWARD_FIRST || largest > s->f.M)
		largest = s->f.M;
	for (int i = 0; i < n_nodes; i++) {
		struct node_queues *l = &s->node[i];
		int given = s->p->in_flight > 0 ? s->p->in_flight : s->rule & RULE_WEIGHTS_LATE ? largest : 0;
		if (s->rule & RULE_FORWARD_FIRST)
			l->limit = s->f.M;
		if (given && (s->rule & RULE_WEIGHTS_LATE || given * l->n_chunks < l->limit))
			l->limit = given * l->n_chunks;
	}
	s->p->most_in_flight = s->p->in_flight > 0 && s->p->in_flight < largest ? s->p->in_flight : largest;
	free(stage);
	free(round);
}

/* ---- events ---- */

static void touch(struct sched *s, int node)
{
	if (!s->node[node].touched) {
		s->node[node].touched = true;
		s->touched[s->n_touched++] = node;
	}
}

static void arrive(struct sched *s, int item)
{
	int op = item / s->f.M, m = item % s->f.M, node = s->p->placement[op], phase = s->f.g->op[op].phase;
	struct node_queues *l = &s->node[node];
	bool late = phase == DLB_BACKWARD && s->rule & RULE_WEIGHTS_LATE && !s->awaited[op];
	struct dlb_heap *h = phase == DLB_UPDATE ? &l->update : late ? &l->late :
			     phase == DLB_BACKWARD ? &l->backward :
			     s->entered[unit_of(s, op, m)] ? &l->forward : &l->entering;
	dlb_heap_push(h, priority(s, op, m), item);
	touch(s, node);
}

/* A predecessor of `item` is done at time t. */
static void met(struct sched *s, int item, double t)
{
	if (s->ready[item] < t)
		s->ready[item] = t;
	if (--s->unmet[item])
		return;
	if (s->ready[item] <= s->now) /* as an event at this time would do */
		arrive(s, item);
	else
		dlb_heap_push(&s->event, s->ready[item], item << 1);
}

/* An item of micro-batch m is done. With RULE_ALONE, after its last item, the next micro-batch may begin on
 * all nodes. */
static void leave(struct sched *s, int m)
{
	if (--s->undone[m] || !(s->rule & RULE_ALONE))
		return;
	while (s->alone < s->f.M && !s->undone[s->alone])
		s->alone++;
	for (int i = 0; i < s->p->n_nodes; i++)
		touch(s, i);
}

static void finish(struct sched *s, int item, double t)
{
	const struct dlb_flow *f = &s->f;
	int op = item / f->M, m = item % f->M, node = s->p->placement[op], unit = unit_of(s, op, m);
	struct node_queues *l = &s->node[node];
	l->busy = false;
	touch(s, node);
	if (f->g->op[op].phase == DLB_BACKWARD && --s->left[unit] == 0 && s->entered[unit])
		l->in_flight--;
	if (f->g->op[op].phase != DLB_UPDATE)
		leave(s, m);
	if (m + 1 < dlb_flow_items(f, op))
		met(s, item + 1, t);
	if (s->next_writer[op] >= 0)
		met(s, s->next_writer[op] * f->M + m, t);
	if (s->first_writer[op] >= 0 && m + 1 < f->M)
		met(s, s->first_writer[op] * f->M + m + 1, t);
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
	np->order[np->n_order++] = (struct dlb_item){ op, s->f.g->op[op].phase == DLB_UPDATE ? -1 : m };
	s->node[node].busy = true;
	double took_s = seconds(s, op, m), end = t + took_s;
	if (s->left_s)
		s->left_s[node] -= took_s;
	if (end > s->end)
		s->end = end;
	dlb_heap_push(&s->event, end, item << 1 | 1);
}

/* Lets the unit of the first waiting item enter: its items that have arrived may run. */
static void enter(struct sched *s, struct node_queues *l)
{
	int first = l->entering.item[0].id, unit = unit_of(s, first / s->f.M, first % s->f.M),
	    n = l->entering.n;
	struct dlb_heap rest = { 0 };
	s->entered[unit] = true;
	l->n_entered++;
	/* with scattered placements its backward items may already be done */
	l->in_flight += s->left[unit] > 0;
	for (int i = 0; i < n; i++) {
		struct dlb_heap_item x = l->entering.item[i];
		dlb_heap_push(unit_of(s, x.id / s->f.M, x.id % s->f.M) == unit ? &l->forward : &rest, x.key,
			      x.id);
	}
	dlb_heap_release(&l->entering);
	l->entering = rest;
}

/* Whether the limit lets the unit of the first waiting item enter. If earlier units have not arrived yet,
 * a unit may enter one group early, provided that the deeper chunks can still follow. */
static bool has_room(const struct sched *s, const struct node_queues *l)
{
	int item = l->entering.item[0].id, v = l->n_chunks;
	double ahead = v < 2 ? 0 : turn_of(s, item / s->f.M, item % s->f.M) - l->n_entered;
	return ahead > 0 ? ahead <= s->n_stages && l->in_flight < l->limit - (v - 1) :
			   l->in_flight < l->limit;
}

/* Whether the rule lets the micro-batch of h's first item run now. */
static bool open(const struct sched *s, const struct dlb_heap *h)
{
	return h->n && (!(s->rule & RULE_ALONE) || h->item[0].id % s->f.M <= s->alone);
}

static void dispatch(struct sched *s, int node, double t)
{
	struct node_queues *l = &s->node[node];
	if (l->busy)
		return;
	if (s->updates_first && l->update.n) {
		run(s, node, dlb_heap_pop(&l->update).id, t);
		return;
	}
	if (open(s, &l->entering) && has_room(s, l) &&
	    (!l->forward.n || l->entering.item[0].key < l->forward.item[0].key)) {
		int m = l->entering.item[0].id % s->f.M;
		if (!open(s, &l->backward) || s->rule & RULE_FORWARD_FIRST ||
		    m <= l->backward.item[0].id % s->f.M)
			enter(s, l);
	}
	bool forward = open(s, &l->forward), backward = open(s, &l->backward);
	bool older = forward && backward && l->forward.item[0].id % s->f.M <= l->backward.item[0].id % s->f.M;
	if (forward && (!backward || older || s->rule & RULE_FORWARD_FIRST))
		run(s, node, dlb_heap_pop(&l->forward).id, t);
	else if (backward)
		run(s, node, dlb_heap_pop(&l->backward).id, t);
	else if (open(s, &l->late))
		run(s, node, dlb_heap_pop(&l->late).id, t);
	else if (l->update.n)
		run(s, node, dlb_heap_pop(&l->update).id, t);
}

/* Used when nothing runs and items are left: lets one more unit enter, on the node where the lowest unit
 * waits. False: no unit waits. */
static bool raise_limit(struct sched *s, double t)
{
	int best = -1;
	for (int i = 0; i < s->p->n_nodes; i++) {
		const struct dlb_heap *h = &s->node[i].entering;
		if (h->n && (best < 0 || h->item[0].key < s->node[best].entering.item[0].key))
			best = i;
	}
	if (best < 0)
		return false;
	enter(s, &s->node[best]);
	dispatch(s, best, t);
	return true;
}

/* ---- makespans that are too long ---- */

/* Whether a node that is idle at time t cannot end in time. It runs one item after the other, so it ends no
 * sooner than t plus the seconds of its items that have not begun. The factor is a margin for rounding. */
static bool is_late(const struct sched *s, int node, double t)
{
	return s->left_s && !s->node[node].busy && (t + s->left_s[node]) * (1 - 1e-9) >= s->p->order_below_s;
}

/* The same for any node before the first item runs: no node begins before its first micro-batch can
 * arrive. */
static bool any_late(const struct sched *s)
{
	const struct dlb_flow *f = &s->f;
	double *ready = dlb_xcalloc((size_t)f->g->n_ops + 1, sizeof *ready),
	       *first = dlb_xcalloc((size_t)s->p->n_nodes, sizeof *first);
	bool late = false;

	for (int node = 0; node < s->p->n_nodes; node++)
		first[node] = INFINITY;
	for (int i = 0; i < f->g->n_ops; i++) {
		for (int e = f->pred_start[i]; e < f->pred_start[i + 1]; e++) {
			const int from = f->pred[e];
			const double s_of = fmin(seconds(s, from, 0), seconds(s, from, f->M - 1)),
				     message_s = fmin(f->pred_s[2 * e], f->pred_s[2 * e + 1]);

			ready[i] = fmax(ready[i], ready[from] + s_of + message_s);
		}
		first[s->p->placement[i]] = fmin(first[s->p->placement[i]], ready[i]);
	}
	for (int node = 0; node < s->p->n_nodes && !late; node++)
		late = isfinite(first[node]) && is_late(s, node, first[node]);
	free(ready);
	free(first);
	return late;
}

static void find_left(struct sched *s)
{
	s->left_s = dlb_xcalloc((size_t)s->p->n_nodes, sizeof *s->left_s);
	for (int i = 0; i < s->f.g->n_ops; i++)
		for (int m = 0; m < dlb_flow_items(&s->f, i); m++)
			s->left_s[s->p->placement[i]] += seconds(s, i, m);
}

/* Whether forward op `op` updates buffer t. */
static bool writes(const struct dlb_graph *g, int op, int t)
{
	for (int i = 0; g->op[op].phase == DLB_FORWARD && i < g->op[op].n_in; i++)
		if (g->op[op].in[i] == t && dlb_op_updates_input(g, op, i))
			return true;
	return false;
}

/* Ops that update the same running statistics, as of a module that is called twice, do so in the order of their
 * numbers, micro-batch by micro-batch, under every plan: then the statistics are the same too. */
static void find_writers(struct sched *s)
{
	const struct dlb_graph *g = s->f.g;

	s->next_writer = dlb_xmalloc(((size_t)g->n_ops + 1) * sizeof(int));
	s->first_writer = dlb_xmalloc(((size_t)g->n_ops + 1) * sizeof(int));
	memset(s->next_writer, -1, ((size_t)g->n_ops + 1) * sizeof(int));
	memset(s->first_writer, -1, ((size_t)g->n_ops + 1) * sizeof(int));
	for (int t = 0; t < g->n_tensors; t++) {
		int first = -1, last = -1;

		if (g->tensor[t].kind != DLB_T_BUFFER || g->reader_start[t + 1] - g->reader_start[t] < 2)
			continue;
		for (int r = g->reader_start[t]; r < g->reader_start[t + 1]; r++) {
			const int op = g->reader[r];

			if (!writes(g, op, t) || (last >= 0 && s->p->placement[op] != s->p->placement[last]))
				continue;
			if (last >= 0)
				s->next_writer[last] = op;
			first = first < 0 ? op : first;
			last = op;
		}
		if (first != last)
			s->first_writer[last] = first;
	}
}

/* Sets the number of items that each item waits for beside its operands: of other micro-batches and writers. */
static void count_turns(struct sched *s)
{
	const int M = s->f.M;

	for (int i = 0; i < s->f.g->n_ops; i++)
		for (int m = 0; m < dlb_flow_items(&s->f, i); m++) {
			s->unmet[i * M + m] += m > 0;
			if (s->next_writer[i] >= 0)
				s->unmet[s->next_writer[i] * M + m]++;
			if (s->first_writer[i] >= 0 && m + 1 < M)
				s->unmet[s->first_writer[i] * M + m + 1]++;
		}
}

/* ---- the scheduler ---- */

static void sched_init(struct sched *s, const struct dlb_cost *c)
{
	struct dlb_plan *p = s->p;
	dlb_flow_init(&s->f, p, c, p->batch);
	size_t n_ops = (size_t)s->f.g->n_ops, M = (size_t)s->f.M, n_nodes = (size_t)p->n_nodes;
	int *n = dlb_xcalloc(n_nodes, sizeof(int));
	s->node = dlb_xcalloc(n_nodes, sizeof *s->node);
	s->touched = dlb_xcalloc(n_nodes, sizeof(int));
	s->awaited = dlb_xcalloc(n_ops + 1, sizeof(bool));
	s->unmet = dlb_xcalloc(n_ops * M + 1, sizeof(int));
	s->ready = dlb_xcalloc(n_ops * M + 1, sizeof(double));
	s->undone = dlb_xcalloc(M, sizeof(int));
	find_awaited(s);
	find_writers(s);
	find_chunks(s);
	s->entered = dlb_xcalloc((size_t)s->n_chunks * M + 1, sizeof(bool));
	s->left = dlb_xcalloc((size_t)s->n_chunks * M + 1, sizeof(int));
	set_limits(s);
	for (int i = 0; i < s->f.g->n_ops; i++) {
		n[p->placement[i]] += dlb_flow_items(&s->f, i);
		for (int m = 0; m < s->f.M && s->f.g->op[i].phase != DLB_UPDATE; m++)
			s->undone[m]++;
	}
	for (int i = 0; i < p->n_nodes; i++) {
		p->node[i].order = dlb_arena_array(&p->arena, (size_t)n[i] + 1, sizeof(struct dlb_item));
		p->node[i].n_order = 0;
	}
	free(n);
}

static void sched_release(struct sched *s)
{
	for (int i = 0; i < s->p->n_nodes; i++) {
		dlb_heap_release(&s->node[i].forward);
		dlb_heap_release(&s->node[i].entering);
		dlb_heap_release(&s->node[i].backward);
		dlb_heap_release(&s->node[i].late);
		dlb_heap_release(&s->node[i].update);
	}
	dlb_heap_release(&s->event);
	free(s->node);
	free(s->chunk);
	free(s->entered);
	free(s->left);
	free(s->touched);
	free(s->left_s);
	free(s->next_writer);
	free(s->first_writer);
	free(s->awaited);
	free(s->unmet);
	free(s->ready);
	free(s->undone);
	dlb_flow_release(&s->f);
}

/* Whether all ops are on one node. Then the order of updates changes no time. */
static bool is_on_one_node(const struct dlb_plan *p)
{
	for (int i = 1; i < p->n_ops; i++)
		if (p->placement[i] != p->placement[0])
			return false;
	return true;
}

bool dlb_schedule_can_update_first(const struct dlb_plan *p)
{
	return !p->updates_first && p->n_replicas < 2 && !dlb_plan_is_async(p) && !is_on_one_node(p);
}

double dlb_schedule_order(struct dlb_plan *p, const struct dlb_cost *c, const struct dlb_schedule *rule,
			  const double *node_scale)
{
	struct sched s = { .p = p,
			   .scale = node_scale,
			   .rule = rule->rule,
			   .updates_first = p->updates_first || is_on_one_node(p) };
	if (rule->async)
		return dlb_async_order(p, c, node_scale);
	sched_init(&s, c);
	if (p->order_below_s > 0)
		find_left(&s);
	bool late = s.left_s && any_late(&s);
	count_turns(&s);
	for (int i = 0; i < s.f.g->n_ops && !late; i++) {
		for (int m = 0; m < dlb_flow_items(&s.f, i); m++) {
			s.unmet[i * s.f.M + m] += s.f.pred_start[i + 1] - s.f.pred_start[i];
			if (!s.unmet[i * s.f.M + m])
				dlb_heap_push(&s.event, 0, (i * s.f.M + m) << 1);
		}
	}
	for (double t = 0; !late && (s.event.n || raise_limit(&s, t));) {
		if (!s.event.n)
			continue;
		s.now = t = s.event.item[0].key;
		while (s.event.n && s.event.item[0].key <= t) {
			int id = dlb_heap_pop(&s.event).id;
			if (id & 1)
				finish(&s, id >> 1, t);
			else
				arrive(&s, id >> 1);
		}
		for (int i = 0; i < s.n_touched; i++) {
			s.node[s.touched[i]].touched = false;
			dispatch(&s, s.touched[i], t);
			late |= is_late(&s, s.touched[i], t);
		}
		s.n_touched = 0;
	}
	sched_release(&s);
	return late ? fmax(s.end, p->order_below_s) : s.end;
}
