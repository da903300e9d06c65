/* Units, the parts into which placers cut the forward order. Backward and update ops belong to their
 * forward op's unit, and colocated ops to the unit of the first of them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "place/contiguous.h"
#include "place/place.h"
#include "place/problem.h"
#include "plan/replica.h"
#include "plan/tensors.h"

/* The forward op to which `op` belongs: `op` itself, the op that it differentiates, or the forward op of its
 * latest input. */
static int forward_of(const struct dlb_graph *g, int op, const int *of)
{
	const struct dlb_op *o = &g->op[op];
	if (o->phase == DLB_FORWARD)
		return op;
	if (o->of >= 0)
		return of[o->of] >= 0 ? of[o->of] : o->of;
	int last = 0;
	for (int i = 0; i < o->n_in; i++) {
		int from = o->in[i] < 0 ? -1 : g->tensor[o->in[i]].producer;
		if (from >= 0 && of[from] > last)
			last = of[from];
	}
	return last;
}

static void find_crossings(struct dlb_units *u, const struct dlb_problem *p)
{
	const struct dlb_graph *g = p->graph;
	int64_t n = dlb_micro_batch_size(p->batch, p->micro_batches, 0);
	for (int t = 0; t < g->n_tensors; t++) {
		if (g->tensor[t].producer < 0 || dlb_tensor_is_state(&g->tensor[t]))
			continue;
		int at = u->of_group[p->group_of[g->tensor[t].producer]], low = at, high = at;
		for (int r = g->reader_start[t]; r < g->reader_start[t + 1]; r++) {
			int to = u->of_group[p->group_of[g->reader[r]]];
			low = to < low ? to : low;
			high = to > high ? to : high;
		}
		double bytes = dlb_tensor_bytes(&g->tensor[t], n);	/* as differences, summed below */
		u->forward_bytes[at + 1] += bytes;
		u->forward_bytes[high + 1] -= bytes;
		u->backward_bytes[low + 1] += bytes;
		u->backward_bytes[at + 1] -= bytes;
	}
	for (int i = 0; i <= u->n; i++) {
		u->forward_bytes[i + 1] += u->forward_bytes[i];
		u->backward_bytes[i + 1] += u->backward_bytes[i];
	}
}

void dlb_units_init(struct dlb_units *u, const struct dlb_problem *p)
{
	const struct dlb_graph *g = p->graph;
	size_t n_ops = (size_t)g->n_ops, n_classes = (size_t)p->n_classes;
	int *of = dlb_xmalloc((n_ops + 1) * sizeof(int)), *number = dlb_xcalloc(n_ops + 1, sizeof(int));
	*u = (struct dlb_units){ .of_group = dlb_xcalloc((size_t)p->n_groups + 1, sizeof(int)) };
	for (int i = 0; i < g->n_ops; i++)
		of[i] = -1;
	for (int i = 0; i < g->n_ops; i++) {		/* a group's first op comes before its others */
		int first = p->group_op[p->group_start[p->group_of[i]]];
		of[i] = first < i ? of[first] : forward_of(g, i, of);
	}
	for (int i = 0; i < g->n_ops; i++)
		number[of[i]] = 1;
	for (int i = 0; i < g->n_ops; i++)
		number[i] = number[i] ? u->n++ : -1;
	u->time_s = dlb_xcalloc((size_t)u->n * n_classes + 1, sizeof(double));
	u->bytes = dlb_xcalloc((size_t)u->n + 1, sizeof(double));
	u->forward_bytes = dlb_xcalloc((size_t)u->n + 3, sizeof(double));
	u->backward_bytes = dlb_xcalloc((size_t)u->n + 3, sizeof(double));
	for (int k = 0; k < p->n_groups; k++) {
		int unit = u->of_group[k] = number[of[p->group_op[p->group_start[k]]]];
		for (size_t c = 0; c < n_classes; c++)
			u->time_s[(size_t)unit * n_classes + c] += p->time_s[(size_t)k * n_classes + c];
		u->bytes[unit] += dlb_group_bytes(p, k);
	}
	find_crossings(u, p);
	free(of);
	free(number);
}

void dlb_units_release(struct dlb_units *u)
{
	free(u->of_group);
	free(u->time_s);
	free(u->bytes);
	free(u->forward_bytes);
	free(u->backward_bytes);
	memset(u, 0, sizeof *u);
}

void dlb_units_place(const struct dlb_units *u, const struct dlb_problem *p, int n_parts, const int *start,
		     const int *node, int *placement)
{
	int *to = dlb_xcalloc((size_t)u->n + 1, sizeof(int));
	for (int k = 0; k < n_parts; k++)
		for (int i = start[k]; i < start[k + 1]; i++)
			to[i] = node[k];
	for (int i = 0; i < p->graph->n_ops; i++)
		placement[i] = to[u->of_group[p->group_of[i]]];
	free(to);
}

bool dlb_units_fill(const struct dlb_units *u, const struct dlb_problem *p, const struct dlb_parts *parts,
		    double most_s, bool from_end, int *start)
{
	int i = from_end ? u->n : 0;

	for (int turn = 0; turn < parts->n; turn++) {
		const int k = from_end ? parts->n - 1 - turn : turn;
		const double room = parts->any_size ? INFINITY : p->memory_bytes[parts->node[k]];
		double time = 0, bytes = 0;

		start[from_end ? k + 1 : k] = i;
		for (; from_end ? i > 0 : i < u->n; i += from_end ? -1 : 1) {
			time += dlb_unit_s(u, p, i - from_end, parts->node[k]);
			bytes += u->bytes[i - from_end];
			if (time > most_s || bytes > room)
				break;
		}
	}
	start[from_end ? 0 : parts->n] = i;
	return i == (from_end ? 0 : u->n);
}

double dlb_units_balance(const struct dlb_units *u, const struct dlb_problem *p,
			 const struct dlb_parts *parts, int *start)
{
	double low = 0, high = 0;

	for (int i = 0; i < u->n; i++) {
		double most = 0;

		for (int k = 0; k < parts->n; k++)
			if (isfinite(dlb_unit_s(u, p, i, parts->node[k])))
				most = fmax(most, dlb_unit_s(u, p, i, parts->node[k]));
		high += most;
	}
	if (!dlb_units_fill(u, p, parts, high, false, start))
		return INFINITY;
	for (int k = 0; k < 60 && high - low > 1e-6 * high; k++) {
		const double mid = (low + high) / 2;

		if (dlb_units_fill(u, p, parts, mid, false, start))
			high = mid;
		else
			low = mid;
	}
	dlb_units_fill(u, p, parts, high, false, start);
	return high;
}

static double message_s(const struct dlb_problem *p, double bytes, int from, int to)
{
	return bytes > 0 ? dlb_cost_xfer_s(p->cost, bytes, from, to) : 0;
}

double dlb_units_step_s(const struct dlb_units *u, const struct dlb_problem *p, int n_parts, const int *start,
			const int *node)
{
	double most = 0, sum = 0, messages = 0;
	int before = -1;

	for (int k = 0; k < n_parts; k++) {
		double part = 0;

		if (start[k] == start[k + 1])
			continue;
		for (int i = start[k]; i < start[k + 1]; i++)
			part += dlb_unit_s(u, p, i, node[k]);
		if (before >= 0)
			messages += message_s(p, u->forward_bytes[start[k]], node[before], node[k]) +
				    message_s(p, u->backward_bytes[start[k]], node[k], node[before]);
		before = k;
		sum += part;
		most = part > most ? part : most;
	}
	return most + (sum - most) / p->micro_batches + messages;
}
