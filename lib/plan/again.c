/* Ops that run again. See again.h. */
#include <stdio.h>
#include "plan/again.h"
#include "plan/replica.h"
#include "plan/schedule.h"
#include "plan/tensors.h"
#include "util/patterns.h"

/* Whether tensor t is an output of an op whose outputs are offloaded, and large enough to be offloaded. */
static bool is_far(const struct dlb_plan *p, const struct dlb_graph *g, int t)
{
	const int64_t n = dlb_micro_batch_size(p->batch, p->micro_batches, 0);
	return dlb_plan_is_far(p, g->tensor[t].producer) &&
	       dlb_tensor_bytes(&g->tensor[t], n) >= DLB_FAR_LEAST;
}

bool dlb_plan_reads_again(const struct dlb_plan *p, const struct dlb_graph *g, int op, bool again, int t)
{
	const int from = t < 0 || !dlb_plan_has_again(p) ? -1 : g->tensor[t].producer;
	return from >= 0 && (dlb_plan_runs_again(p, from) || is_far(p, g, t)) &&
	       (again || g->op[op].phase == DLB_BACKWARD) && p->placement[from] == p->placement[op] &&
	       !dlb_tensor_is_state(&g->tensor[t]);
}

bool dlb_op_is_named(const struct dlb_graph *g, int op, const char *pattern)
{
	bool yes = dlb_pattern_matches(pattern, g->op[op].name);
	for (int k = 0; k < g->op[op].n_out && !yes; k++)
		yes = g->op[op].out[k] >= 0 && dlb_pattern_matches(pattern, g->tensor[g->op[op].out[k]].name);
	return yes;
}

bool dlb_op_has_backward_use(const struct dlb_graph *g, int op)
{
	for (int k = 0; k < g->op[op].n_out; k++) {
		int t = g->op[op].out[k];
		for (int r = t < 0 ? 0 : g->reader_start[t]; t >= 0 && r < g->reader_start[t + 1]; r++) {
			int to = g->reader[r];
			if (g->op[to].phase == DLB_BACKWARD ||
			    (g->op[to].phase == DLB_FORWARD && dlb_graph_is_view(g, to) &&
			     dlb_op_has_backward_use(g, to)))
				return true;
		}
	}
	return false;
}

bool dlb_op_updates_input(const struct dlb_graph *g, int op, int i)
{
	const struct dlb_op *o = &g->op[op];
	int64_t n_own;
	return o->kind >= 0 && o->in[i] >= 0 && dlb_op_class_of(o->kind)->flags & DLB_OP_BUFFERS &&
	       g->tensor[o->in[i]].kind == DLB_T_BUFFER && dlb_graph_sums(g, op, &n_own) > 0;
}

const char *dlb_plan_keeps_op(const struct dlb_plan *p, const struct dlb_graph *g, int op)
{
	const struct dlb_op *o = &g->op[op];
	int64_t n_own;
	if (o->phase != DLB_FORWARD)
		return "is not an op of the forward phase";
	if (dlb_plan_is_far(p, op))
		return "is offloaded";
	if (p->n_replicas > 1 && p->sharing.sync_batchnorm && dlb_graph_sums(g, op, &n_own) > 0)
		return "sums its statistics over the replicas, which is not done twice";
	for (int i = 0; i < o->n_in; i++) {
		int t = o->in[i], n = 0;
		if (t < 0 || !dlb_op_updates_input(g, op, i))
			continue;
		for (int r = g->reader_start[t]; r < g->reader_start[t + 1]; r++)
			n += g->op[g->reader[r]].phase == DLB_FORWARD;
		if (n > 1)
			return "shares its running statistics with another op";
	}
	return NULL;
}

bool dlb_plan_is_read_again(const struct dlb_plan *p, const struct dlb_graph *g, int t)
{
	for (int r = g->reader_start[t]; r < g->reader_start[t + 1]; r++) {
		const int to = g->reader[r];
		if (dlb_plan_reads_again(p, g, to, dlb_plan_runs_again(p, to), t) &&
		    (!p->far || p->far[to] != DLB_FAR_VIEW || dlb_plan_needs_again(p, g, to)))
			return true;
	}
	return false;
}

bool dlb_plan_needs_again(const struct dlb_plan *p, const struct dlb_graph *g, int op)
{
	for (int k = 0; k < g->op[op].n_out; k++)
		if (g->op[op].out[k] >= 0 && dlb_plan_is_read_again(p, g, g->op[op].out[k]))
			return true;
	return false;
}

int dlb_plan_check_again(const struct dlb_plan *p, const struct dlb_graph *g, struct dlb_error *err)
{
	static const char *const where = "/plan/recompute/ops";
	bool any = false;
	for (int i = 0; p->again && i < p->n_ops; i++) {
		const char *why = p->again[i] ? dlb_plan_keeps_op(p, g, i) : NULL;
		any |= p->again[i];
		if (why)
			return dlb_fail(err, where, "op %d '%s' %s", i, g->op[i].name, why);
		if (p->again[i] && !dlb_plan_needs_again(p, g, i)) {
			dlb_fail(err, where,
				 "op %d '%s' runs again on node %d, where nothing of the backward phase "
				 "needs it",
				 i, g->op[i].name, p->placement[i]);
			return dlb_hint(err, "take it out of the list, or plan with dlb-place --recompute");
		}
	}
	if (any && dlb_plan_is_async(p))
		return dlb_fail(err, where, "under an asynchronous schedule no op runs again");
	return 0;
}

int dlb_instr_life(const struct dlb_program *g, const struct dlb_instr *in, int t, bool out)
{
	const struct dlb_graph *gr = g->graph;
	bool second = in->again && out;
	if (!out && in->verb == DLB_COMPUTE && in->op >= 0 &&
	    (in->what == DLB_RUN_OP || in->what == DLB_RUN_SUMS))
		second = dlb_plan_reads_again(g->plan, gr, in->op, in->again, t);
	if (in->again && !out && in->verb == DLB_COMPUTE && gr->tensor[t].kind == DLB_T_BUFFER)
		for (int i = 0; i < gr->op[in->op].n_in; i++)
			second |= gr->op[in->op].in[i] == t && dlb_op_updates_input(gr, in->op, i);
	if (in->verb != DLB_COMPUTE)
		second = in->again;
	return second ? dlb_second_life(g, in->micro_batch) : in->micro_batch;
}
