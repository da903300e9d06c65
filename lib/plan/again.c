/* Ops that run again. See again.h. */
#include <stdio.h>
#include "plan/again.h"
#include "plan/replica.h"
#include "plan/schedule.h"
#include "plan/tensors.h"

bool dlb_plan_reads_again(const struct dlb_plan *p, const struct dlb_graph *g, int op, bool again, int t)
{
	const int from = t < 0 || !p->again ? -1 : g->tensor[t].producer;
	return from >= 0 && p->again[from] && (again || g->op[op].phase == DLB_BACKWARD) &&
	       p->placement[from] == p->placement[op] && !dlb_tensor_is_state(&g->tensor[t]);
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

bool dlb_plan_needs_again(const struct dlb_plan *p, const struct dlb_graph *g, int op)
{
	for (int k = 0; k < g->op[op].n_out; k++) {
		int t = g->op[op].out[k];
		for (int r = t < 0 ? 0 : g->reader_start[t]; t >= 0 && r < g->reader_start[t + 1]; r++)
			if (dlb_plan_reads_again(p, g, g->reader[r], p->again[g->reader[r]], t))
				return true;
	}
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
