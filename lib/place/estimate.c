/* See estimate.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "place/estimate.h"
#include "plan/replica.h"
#include "plan/schedule.h"
#include "plan/tensors.h"

enum { MOST_NODES = 256 };				/* the table of routes has an entry per pair */

static double op_s(const struct dlb_estimate *e, int op, int node)
{
	size_t n_kinds = (size_t)e->p->cluster->n_kinds;
	return e->time_s[(size_t)op * n_kinds + (size_t)e->p->cluster->node[node].kind] * e->scale[node];
}

static double message_s(const struct dlb_estimate *e, double bytes, int from, int to)
{
	const struct dlb_way *w = &e->way[from * e->p->cluster->n_nodes + to];
	return w->latency_s + bytes / w->Bps;
}

/* Seconds per step that a core spends on copying messages of `bytes` per micro-batch. */
static double copying_s(const struct dlb_estimate *e, double bytes, int from, int to)
{
	bool copies = from != to && e->way[from * e->p->cluster->n_nodes + to].copies;
	return copies ? message_s(e, bytes, from, to) * e->p->micro_batches : 0;
}

static int node_of(const struct dlb_estimate *e, int op) { return e->at[e->p->group_of[op]]; }

static int node_before(const struct dlb_estimate *e, int op)
{
	int was = e->was[e->p->group_of[op]];
	return was >= 0 ? was : node_of(e, op);
}

/* ---- dependencies ---- */

static void find_arcs(struct dlb_estimate *e)
{
	const struct dlb_graph *g = e->p->graph;
	int64_t size = dlb_micro_batch_size(e->p->batch, e->p->micro_batches, 0);
	size_t n = (size_t)g->n_ops, n_arcs = 0;
	int *fill = dlb_xcalloc(n + 1, sizeof *fill), *seen = dlb_xcalloc(n + 1, sizeof *seen), at = 0;

	for (size_t i = 0; i < n; i++)
		n_arcs += (size_t)g->op[i].n_in;
	e->pred = dlb_arena_array(&e->arena, n_arcs + 1, sizeof *e->pred);
	e->succ = dlb_arena_array(&e->arena, n_arcs + 1, sizeof *e->succ);
	e->pred_start = dlb_arena_array(&e->arena, n + 2, sizeof *e->pred_start);
	e->succ_start = dlb_arena_array(&e->arena, n + 2, sizeof *e->succ_start);
	for (int i = 0; i < g->n_ops; i++) {
		e->pred_start[i] = at;
		for (int k = 0; k < g->op[i].n_in; k++) {
			int t = g->op[i].in[k],
			    from = t < 0 || dlb_tensor_is_state(&g->tensor[t]) ? -1 : g->tensor[t].producer;

			if (from < 0)
				continue;
			if (seen[from] <= e->pred_start[i]) {	/* seen[from]: the arc's index plus 1 */
				e->pred[at++] = (struct dlb_estimate_arc){ .to = from };
				seen[from] = at;
				e->succ_start[from + 1]++;
			}
			e->pred[seen[from] - 1].bytes += dlb_tensor_bytes(&g->tensor[t], size);
		}
	}
	e->pred_start[n] = at;
	for (size_t i = 0; i < n; i++)
		e->succ_start[i + 1] += e->succ_start[i];
	for (int i = 0; i < g->n_ops; i++) {
		for (int k = e->pred_start[i]; k < e->pred_start[i + 1]; k++) {
			int from = e->pred[k].to;
			e->succ[e->succ_start[from] + fill[from]++] = (struct dlb_estimate_arc){
				i, e->pred[k].bytes
			};
		}
	}
	free(fill);
	free(seen);
}

static void find_times(struct dlb_estimate *e)
{
	const struct dlb_problem *p = e->p;
	size_t n_kinds = (size_t)p->cluster->n_kinds, D = (size_t)p->cluster->n_nodes;
	double size = (double)dlb_micro_batch_size(p->batch, p->micro_batches, 0);

	e->time_s = dlb_arena_array(&e->arena, (size_t)p->graph->n_ops * n_kinds + 1, sizeof *e->time_s);
	e->scale = dlb_arena_array(&e->arena, D, sizeof *e->scale);
	for (size_t d = 0; d < D; d++)
		e->scale[d] = p->ranked_scale[d] / p->cluster->node[d].speed;
	for (int i = 0; i < p->graph->n_ops; i++) {
		for (size_t k = 0; k < n_kinds && !dlb_graph_is_view(p->graph, i); k++) {
			double s = dlb_cost_kind_s(p->cost, i, (int)k, size);
			/* no kernel: never placed there */
			e->time_s[(size_t)i * n_kinds + k] = isfinite(s) ? s : 0;
		}
	}
}

bool dlb_estimate_init(struct dlb_estimate *e, const struct dlb_problem *p, const int *at)
{
	size_t D = (size_t)p->cluster->n_nodes, n = (size_t)p->graph->n_ops;
	double M = p->micro_batches;
	bool alone = !strcmp(p->schedule->name, "none"), endless = p->schedule->async;

	*e = (struct dlb_estimate){ .p = p, .at = at };
	if (D > MOST_NODES)
		return false;
	e->chains = endless ? 0 : alone ? M : 1;
	e->share = endless ? 1 : alone ? 0 : (M - 1) / M;
	e->way = dlb_arena_array(&e->arena, D * D, sizeof *e->way);
	for (size_t i = 0; i < D * D; i++)
		e->way[i] = dlb_cluster_way(p->cluster, (int)(i / D), (int)(i % D));
	find_arcs(e);
	find_times(e);
	double **per_op[] = { &e->head, &e->tail, &e->new_head, &e->through, &e->through_new };
	for (int i = 0; i < DLB_LEN(per_op); i++)
		*per_op[i] = dlb_arena_array(&e->arena, n + 1, sizeof **per_op[i]);
	e->load = dlb_arena_array(&e->arena, D, sizeof *e->load);
	e->op = dlb_arena_array(&e->arena, n + 1, sizeof *e->op);
	e->piece = dlb_arena_array(&e->arena, n + 1, sizeof *e->piece);
	e->was = dlb_arena_array(&e->arena, (size_t)p->n_groups + 1, sizeof *e->was);
	for (size_t i = 0; i < n; i++)
		e->piece[i] = -1;
	for (int g = 0; g < p->n_groups; g++)
		e->was[g] = -1;
	dlb_estimate_take(e);
	return true;
}

void dlb_estimate_release(struct dlb_estimate *e)
{
	dlb_arena_release(&e->arena);
}

/* ---- the whole step ---- */

static double value(const struct dlb_estimate *e, double path_s)
{
	double most = 0;
	for (int d = 0; d < e->p->cluster->n_nodes; d++)
		most = fmax(most, e->load[d]);
	return fmax(most, e->chains * path_s + e->share * most);
}

/* The longest path of the current placement. */
static double walk(struct dlb_estimate *e, double *head)
{
	double path = 0;
	for (int i = 0; i < e->p->graph->n_ops; i++) {
		int here = node_of(e, i);
		head[i] = 0;
		for (int k = e->pred_start[i]; k < e->pred_start[i + 1]; k++) {
			int q = e->pred[k].to, from = node_of(e, q);
			head[i] = fmax(head[i], head[q] + op_s(e, q, from) +
							message_s(e, e->pred[k].bytes, from, here));
		}
		path = fmax(path, head[i] + op_s(e, i, here));
	}
	return path;
}

void dlb_estimate_take(struct dlb_estimate *e)
{
	const struct dlb_problem *p = e->p;
	int D = p->cluster->n_nodes;

	memset(e->load, 0, (size_t)D * sizeof *e->load);
	for (int g = 0; g < p->n_groups; g++)
		e->load[e->at[g]] += dlb_time_s(p, g, e->at[g]);
	for (int i = 0; i < p->graph->n_ops; i++)
		for (int k = e->pred_start[i]; k < e->pred_start[i + 1]; k++) {
			int from = node_of(e, e->pred[k].to);
			e->load[from] += copying_s(e, e->pred[k].bytes, from, node_of(e, i));
		}
	e->path_s = walk(e, e->head);
	for (int i = p->graph->n_ops - 1; i >= 0; i--) {
		int here = node_of(e, i);
		e->tail[i] = 0;
		for (int k = e->succ_start[i]; k < e->succ_start[i + 1]; k++) {
			int q = e->succ[k].to, to = node_of(e, q);
			e->tail[i] = fmax(e->tail[i], message_s(e, e->succ[k].bytes, here, to) +
							      op_s(e, q, to) + e->tail[q]);
		}
	}
	e->value_s = value(e, e->path_s);
}

/* ---- a move ---- */

static int by_number(const void *a, const void *b)
{
	const int *x = a, *y = b;
	return (*x > *y) - (*x < *y);
}

static bool moves(const struct dlb_estimate *e, int op) { return e->was[e->p->group_of[op]] >= 0; }

/* Subtracts (sign -1, placement before the move) or adds (1, after) the loads of moved groups and their
 * messages. An arc between two moved ops is counted once, at its first op. */
static void change_loads(struct dlb_estimate *e, const int *group, int n, double sign,
			 int (*at)(const struct dlb_estimate *, int))
{
	const struct dlb_problem *p = e->p;
	for (int i = 0; i < n; i++) {
		int d = at(e, p->group_op[p->group_start[group[i]]]);
		e->load[d] += sign * dlb_time_s(p, group[i], d);
	}
	for (int i = 0; i < e->n_op; i++) {
		int op = e->op[i], here = at(e, op);
		for (int k = e->succ_start[op]; k < e->succ_start[op + 1]; k++)
			e->load[here] += sign * copying_s(e, e->succ[k].bytes, here, at(e, e->succ[k].to));
		for (int k = e->pred_start[op]; k < e->pred_start[op + 1]; k++) {
			int from = at(e, e->pred[k].to);
			if (!moves(e, e->pred[k].to))
				e->load[from] += sign * copying_s(e, e->pred[k].bytes, from, here);
		}
	}
}

/* Finds the piece of moved op i, and updates the piece's longest paths before and after the move. head
 * counts all predecessors of i; tail only unmoved successors, since moved ones come later. */
static void look_through(struct dlb_estimate *e, int i)
{
	int here = node_of(e, i);
	double head = 0, tail = 0;

	e->piece[i] = i;
	for (int k = e->pred_start[i]; k < e->pred_start[i + 1]; k++) {
		int q = e->pred[k].to, from = node_of(e, q);
		head = fmax(head, (moves(e, q) ? e->new_head[q] : e->head[q]) + op_s(e, q, from) +
			    message_s(e, e->pred[k].bytes, from, here));
		if (moves(e, q))
			e->piece[i] = e->piece[q];
	}
	for (int k = e->succ_start[i]; k < e->succ_start[i + 1]; k++) {
		int q = e->succ[k].to, to = node_of(e, q);
		if (!moves(e, q))
			tail = fmax(tail,
				    message_s(e, e->succ[k].bytes, here, to) + op_s(e, q, to) + e->tail[q]);
	}
	int piece = e->piece[i];
	if (piece == i)
		e->through[i] = e->through_new[i] = 0;
	e->new_head[i] = head;
	e->through[piece] = fmax(e->through[piece], e->head[i] + op_s(e, i, node_before(e, i)) + e->tail[i]);
	e->through_new[piece] = fmax(e->through_new[piece], head + op_s(e, i, here) + tail);
}

static double changed_path(struct dlb_estimate *e)
{
	double path = e->path_s;
	for (int i = 0; i < e->n_op; i++)
		look_through(e, e->op[i]);
	for (int i = 0; i < e->n_op; i++) {
		int op = e->op[i];
		if (e->piece[op] != op)
			continue;
		double change = e->through_new[op] - e->path_s;
		if (change > 0 || e->through[op] >= e->path_s * (1 - 1e-9))
			path += change;
	}
	return fmax(path, 0);
}

static double change(struct dlb_estimate *e, const int *group, const int *before, int n, bool whole)
{
	const struct dlb_problem *p = e->p;
	double changed;

	e->n_op = 0;
	for (int i = 0; i < n; i++) {
		e->was[group[i]] = before[i];
		for (int k = p->group_start[group[i]]; k < p->group_start[group[i] + 1]; k++)
			e->op[e->n_op++] = p->group_op[k];
	}
	qsort(e->op, (size_t)e->n_op, sizeof *e->op, by_number);
	change_loads(e, group, n, -1, node_before);
	change_loads(e, group, n, 1, node_of);
	changed = value(e, whole ? walk(e, e->new_head) : changed_path(e)) - e->value_s;
	change_loads(e, group, n, -1, node_of);
	change_loads(e, group, n, 1, node_before);
	for (int i = 0; i < n; i++)
		e->was[group[i]] = -1;
	return changed;
}

double dlb_estimate_change_s(struct dlb_estimate *e, const int *group, const int *before, int n)
{
	return change(e, group, before, n, false);
}

double dlb_estimate_walk_s(struct dlb_estimate *e, const int *group, const int *before, int n)
{
	return change(e, group, before, n, true);
}
