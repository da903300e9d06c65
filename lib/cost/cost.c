/* Looks up costs: seconds of ops, transfers and communication inside a split op; bytes of weights. */
#include "cost/cost.h"
#include "optim/kfac.h"
#include "optim/optim.h"
#include <math.h>
#include <string.h>

void dlb_cost_release(struct dlb_cost *c)
{
	if (!c)
		return;
	dlb_arena_release(&c->arena);
	memset(c, 0, sizeof *c);
}

/* Finds, for each kind, the FLOP/s of the fastest op with at least a tenth of the largest op's FLOP. */
static void find_matrix_flops(struct dlb_cost *c)
{
	double n = (double)c->batch[0], most = 0;

	c->matrix_flops = dlb_arena_array(&c->arena, (size_t)c->n_kinds + 1, sizeof *c->matrix_flops);
	for (int i = 0; i < c->n_ops; i++)
		most = fmax(most, c->graph->op[i].phase == DLB_UPDATE ?
					  0 :
					  dlb_op_flop_at(c->graph, i, (int64_t)n));
	for (int k = 0; k < c->n_kinds; k++) {
		for (int i = 0; i < c->n_ops; i++) {
			double flop = dlb_op_flop_at(c->graph, i, (int64_t)n),
			       s = dlb_cost_kind_s(c, i, k, n);

			if (c->graph->op[i].phase != DLB_UPDATE && flop >= most / 10 && s > 0 && isfinite(s))
				c->matrix_flops[k] = fmax(c->matrix_flops[k], flop / s);
		}
	}
}

void dlb_cost_set_optimizer(struct dlb_cost *c, int rule)
{
	int sgd = dlb_optimizer_find("sgd");

	c->update_scale = 1;
	c->inverse_every = rule >= 0 ? dlb_optimizers[rule].hyper[DLB_HYPER_INVERSE_EVERY] : 0;
	if (c->inverse_every > 0 && !c->matrix_flops)
		find_matrix_flops(c);
	if (rule >= 0 && sgd >= 0 && dlb_optimizers[sgd].bytes_per_element > 0)
		c->update_scale = dlb_optimizers[rule].bytes_per_element /
				  dlb_optimizers[sgd].bytes_per_element;
}

/* Extends the line through (n0, t0) and (n1, t1), n1 > n0, to an n outside of n0..n1. Below n0, a line that
 * would be negative at n = 0 is replaced by the proportional cost t0 n / n0. A line that falls because of
 * noise is made flat. */
static double outside(double n, double n0, double t0, double n1, double t1)
{
	double slope = (t1 - t0) / (n1 - n0);

	if (slope <= 0)
		return n < n0 ? t0 : t1;
	if (n > n1)
		return t1 + slope * (n - n1);
	return t0 - slope * n0 >= 0 ? t0 + slope * (n - n0) : t0 * n / n0;
}

/* Seconds for n samples if t was measured at the only batch size: scaled by the op's memory traffic. */
static double scaled(const struct dlb_cost *c, int op, double n, double t)
{
	const struct dlb_op *o = &c->graph->op[op];
	double fixed = o->bytes > 0 ? fmin(1, fmax(0, o->bytes_fixed / o->bytes)) : o->phase == DLB_UPDATE;

	return t * (fixed + (1 - fixed) * n / (double)c->batch[0]);
}

double dlb_cost_kind_s(const struct dlb_cost *c, int op, int kind, double n)
{
	const double *t = &c->op_s[((size_t)kind * (size_t)c->n_ops + (size_t)op) * (size_t)c->n_batches];
	const int64_t *size = c->batch;
	int last = c->n_batches - 1, b = 0;
	double s;

	if (isinf(t[0]) || isinf(t[last]))
		return INFINITY;
	if (last == 0) {
		s = n == (double)size[0] ? t[0] : scaled(c, op, n, t[0]);
	} else if (n > (double)size[0]) {
		s = outside(n, (double)size[1], t[1], (double)size[0], t[0]);
	} else if (n < (double)size[last]) {
		s = outside(n, (double)size[last], t[last], (double)size[last - 1], t[last - 1]);
	} else {
		while (b < last && n < (double)size[b])
			b++;
		/* size[b] <= n, and n < size[b-1] unless b is 0 */
		s = t[b];
		if (n > (double)size[b])
			s += (t[b - 1] - t[b]) * (n - (double)size[b]) / (double)(size[b - 1] - size[b]);
	}
	if (c->graph->op[op].phase == DLB_UPDATE)
		s = s * c->update_scale + dlb_cost_precondition_s(c, op, kind, false);
	return s > 0 ? s : 0;
}

/* Seconds of the SGD update that reads gradient t; 0: none. A gradient sum moves as many bytes as this
 * update, and the same part of them is in cache. */
static double plain_update_s(const struct dlb_cost *c, int t, int kind)
{
	const struct dlb_graph *g = c->graph;

	for (int i = g->reader_start[t]; i < g->reader_start[t + 1]; i++)
		if (g->op[g->reader[i]].phase == DLB_UPDATE)
			return c->op_s[((size_t)kind * (size_t)c->n_ops + (size_t)g->reader[i]) *
				       (size_t)c->n_batches];
	return 0;
}

double dlb_cost_accumulate_s(const struct dlb_cost *c, int t, double n, int kind, bool first)
{
	double s = plain_update_s(c, t, kind), Bps = c->accumulate_Bps ? c->accumulate_Bps[kind] : 0;

	if (s > 0 && isfinite(s))
		return first ? s * 2 / 3 : s;
	return Bps > 0 ? (first ? 2 : 3) * dlb_tensor_bytes(&c->graph->tensor[t], (int64_t)n) / Bps : 0;
}

const char *const dlb_buffers_names[DLB_N_BUFFERS] = {
	[DLB_BUF_WEIGHTS] = "weights", [DLB_BUF_STATE] = "state", [DLB_BUF_ACTIVATIONS] = "activations",
};

/* An update reads and writes its weight and reads a gradient of the same size; the rest of its traffic is
 * state. */
void dlb_cost_traffic(const struct dlb_cost *c, int op, double n, double bytes[DLB_N_BUFFERS])
{
	const struct dlb_op *o = &c->graph->op[op];
	bool update = o->phase == DLB_UPDATE;
	double all = (o->bytes_fixed + (o->bytes - o->bytes_fixed) * n / (double)c->batch[0]) *
		     (update ? c->update_scale : 1);
	double weights = 0;

	for (int i = 0; i < o->n_in; i++) {
		const struct dlb_tensor *x = o->in[i] >= 0 ? &c->graph->tensor[o->in[i]] : NULL;

		if (x && (x->kind == DLB_T_WEIGHT || x->kind == DLB_T_BUFFER || x->kind == DLB_T_CONSTANT))
			weights += dlb_tensor_bytes(x, 1);
	}
	bytes[DLB_BUF_WEIGHTS] = fmin(update ? 2 * weights : weights, all);
	bytes[DLB_BUF_ACTIVATIONS] = update ? fmin(weights, all - bytes[DLB_BUF_WEIGHTS]) :
					      all - bytes[DLB_BUF_WEIGHTS];
	bytes[DLB_BUF_STATE] = all - bytes[DLB_BUF_WEIGHTS] - bytes[DLB_BUF_ACTIVATIONS];
}

/* Seconds to move `bytes` to and from a node's share of a memory. */
static double moved_s(const struct dlb_memory_share *m, double bytes)
{
	return m->bandwidth_Bps > 0 && bytes > 0 ? m->latency_s + bytes / m->bandwidth_Bps : 0;
}

static double memory_s(const struct dlb_cost *c, int op, const struct dlb_node *d, double n,
		       const struct dlb_memory_use *use)
{
	double traffic[DLB_N_BUFFERS], room[DLB_N_BUFFERS] = { 0 }, all = 0, longest = 0, least = INFINITY;

	dlb_cost_traffic(c, op, n, traffic);
	for (int b = 0; b < DLB_N_BUFFERS; b++) {
		all += traffic[b];
		for (int i = 0; use && i < d->n_memories; i++)
			room[b] += use->bytes[i][b];
	}
	for (int i = 0; i < d->n_memories; i++) {
		struct dlb_memory_share m = dlb_cluster_memory_share(c->cluster, d->memory[i]);
		double here = 0;

		for (int b = 0; use && b < DLB_N_BUFFERS; b++)
			here += room[b] > 0 ? traffic[b] * use->bytes[i][b] / room[b] : 0;
		longest = fmax(longest, moved_s(&m, here));
		least = fmin(least, moved_s(&m, all));
	}
	return use ? longest : least;
}

double dlb_cost_use_s(const struct dlb_cost *c, int op, int node, double n, const struct dlb_memory_use *use)
{
	const struct dlb_node *d = &c->cluster->node[node];
	const double s = dlb_cost_kind_s(c, op, d->kind, n) / d->speed;

	return d->n_memories ? fmax(s, memory_s(c, op, d, n, use)) : s;
}

double dlb_cost_op_s(const struct dlb_cost *c, int op, int node, double n)
{
	return dlb_cost_use_s(c, op, node, n, NULL);
}

double dlb_cost_xfer_s(const struct dlb_cost *c, double bytes, int src, int dst)
{
	return dlb_cluster_transfer_s(c->cluster, bytes, src, dst);
}

double dlb_cost_weight_bytes(const struct dlb_graph *g, int t, double n_state, bool summed)
{
	int home = g->tensor[t].kind == DLB_T_WEIGHT ? g->tensor[t].home : -1;
	double factors = home >= 0 && g->op[home].phase == DLB_UPDATE && g->op[home].n_in > 2 ?
				 dlb_kfac_state_bytes(g, home) :
				 0;

	return dlb_tensor_bytes(&g->tensor[t], 1) * (1 + n_state + summed) + factors;
}

static double sum_bytes(const struct dlb_graph *g, const int *t, int n_t, int64_t n)
{
	double sum = 0;

	for (int i = 0; i < n_t; i++)
		if (t[i] >= 0)
			sum += dlb_tensor_bytes(&g->tensor[t[i]], n);
	return sum;
}

double dlb_cost_in_bytes(const struct dlb_graph *g, int op, int64_t n)
{
	return sum_bytes(g, g->op[op].in, g->op[op].n_in, n);
}

double dlb_cost_out_bytes(const struct dlb_graph *g, int op, int64_t n)
{
	return sum_bytes(g, g->op[op].out, g->op[op].n_out, n);
}

double dlb_cost_split_s(const struct dlb_cost *c, int op, int64_t n, const int *node, int k,
			enum dlb_split how)
{
	const struct dlb_op *o = &c->graph->op[op];
	double out = dlb_cost_out_bytes(c->graph, op, n), in = 0, worst = 0;

	if (k < 2)
		return 0;
	for (int i = 0; i < o->n_in; i++)	/* weights are split, not sent */
		if (o->in[i] >= 0 && c->graph->tensor[o->in[i]].kind != DLB_T_WEIGHT)
			in += dlb_tensor_bytes(&c->graph->tensor[o->in[i]], n);
	for (int i = 0; i < k; i++) {
		int to = node[(i + 1) % k];
		double piece = dlb_cost_xfer_s(c, out / k, node[i], to), s;
		if (how == DLB_SPLIT_SUM)
			s = 2 * (k - 1) * piece;
		else
			s = dlb_cost_xfer_s(c, in, node[i], to) + (k - 1) * piece;
		worst = fmax(worst, s);
	}
	return worst;
}

/* all: [kind][op][batch]; NULL: none known */
static double bytes_at(const struct dlb_cost *c, const double *all, int op, int kind, double n)
{
	const size_t at = (size_t)kind * (size_t)c->n_ops + (size_t)op;
	const double *x = all ? &all[at * (size_t)c->n_batches] : NULL;
	int b = 0;

	if (!x)
		return 0;
	while (b + 1 < c->n_batches && (double)c->batch[b + 1] >= n)
		b++;
	return b + 1 < c->n_batches && (double)c->batch[b] > n && x[b + 1] > x[b] ? x[b + 1] : x[b];
}

double dlb_cost_scratch_bytes(const struct dlb_cost *c, int op, int kind, double n)
{
	return bytes_at(c, c->scratch_bytes, op, kind, n);
}

double dlb_cost_packed_bytes(const struct dlb_cost *c, int op, int kind, double n)
{
	return bytes_at(c, c->packed_bytes, op, kind, n);
}

void dlb_cost_make_arrays(struct dlb_cost *c)
{
	struct dlb_arena *a = &c->arena;
	size_t n = (size_t)c->n_ops + 1, k = (size_t)c->n_kinds + 1;

	c->op_s = dlb_arena_array(a, n * k * (size_t)c->n_batches, sizeof *c->op_s);
	c->measured = dlb_arena_array(a, n * k, sizeof *c->measured);
	c->scratch_bytes = dlb_arena_array(a, n * k * (size_t)c->n_batches, sizeof *c->scratch_bytes);
	c->packed_bytes = dlb_arena_array(a, n * k * (size_t)c->n_batches, sizeof *c->packed_bytes);
	c->workspace_bytes = dlb_arena_array(a, n * k, sizeof *c->workspace_bytes);
	c->output_s = dlb_arena_array(a, n, sizeof *c->output_s);
	c->resident_bytes = dlb_arena_array(a, n, sizeof *c->resident_bytes);
	for (size_t i = 0; i < n; i++)
		c->output_s[i] = c->resident_bytes[i] = NAN;
	c->accumulate_Bps = dlb_arena_array(a, k, sizeof *c->accumulate_Bps);
	c->fit_error = dlb_arena_array(a, k, sizeof *c->fit_error);
	c->profile_step_s = dlb_arena_array(a, k, sizeof *c->profile_step_s);
	c->step_spread = dlb_arena_array(a, k, sizeof *c->step_spread);
	c->step_overhead_s = dlb_arena_array(a, k, sizeof *c->step_overhead_s);
}
