/* Ops that run again because their names are given, and the ops that they need. See recompute.h. */
#include <stdlib.h>
#include <string.h>
#include "place/drafts.h"
#include "place/recompute.h"
#include "plan/again.h"
#include "plan/schedule.h"
#include "plan/tensors.h"
#include "util/patterns.h"

/* ---- by names ---- */

/* The op whose output `op` is a view of; `op` itself if it is no view. */
static int source_of(const struct dlb_graph *g, int op)
{
	for (int from; dlb_graph_is_view(g, op) && (from = g->tensor[g->op[op].in[0]].producer) >= 0;)
		op = from;
	return op;
}

static int refuse_pattern(const struct dlb_problem *p, const char *pattern, const char *kept, int n,
			  struct dlb_error *err)
{
	const struct dlb_graph *g = p->graph;
	if (kept)
		return dlb_fail(err, NULL, "--recompute '%s': without effect: an op that it names %s",
				pattern, kept);
	if (n)
		return dlb_fail(err, NULL,
				"--recompute '%s': without effect: no op of the backward phase reads an "
				"output of the "
				"%d op%s that it names",
				pattern, n, n > 1 ? "s" : "");
	dlb_fail(err, NULL, "--recompute: no op or tensor of the forward phase matches '%s'", pattern);
	const char **name = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *name);
	int n_names = 0;
	for (int i = 0; i < g->n_ops; i++)
		if (g->op[i].phase == DLB_FORWARD)
			name[n_names++] = g->op[i].name;
	dlb_hint_nearest(err, pattern, name, n_names, NULL);
	free(name);
	return -1;
}

/* Marks the ops that a pattern names; refuses a pattern without effect. */
static int find_named(struct dlb_problem *p, const struct dlb_plan *shared, bool *drop, const char *pattern,
		      struct dlb_error *err)
{
	const struct dlb_graph *g = p->graph;
	const char *kept = NULL;
	int n = 0, n_used = 0;
	for (int i = 0; i < g->n_ops; i++) {
		if (g->op[i].phase != DLB_FORWARD || !dlb_op_is_named(g, i, pattern))
			continue;
		const int op = source_of(g, i);
		const char *why = dlb_plan_keeps_op(shared, g, op);
		n++;
		if (!dlb_op_has_backward_use(g, op))
			continue;
		kept = why ? why : kept;
		n_used += !why;
		drop[op] |= !why;
	}
	return n_used ? 0 : refuse_pattern(p, pattern, kept, n, err);
}

int dlb_recompute_find(struct dlb_problem *p, struct dlb_error *err)
{
	const struct dlb_recompute *x = p->recompute;
	struct dlb_plan shared = { .n_replicas = 1 };
	bool backward = false;
	if (!x || (!x->chosen && !x->n))
		return 0;
	if (p->objective != DLB_STEP)
		return dlb_fail(err, NULL,
				"--recompute: objective %s keeps no activations for a backward phase",
				dlb_objectives[p->objective]);
	if (p->schedule->async) {
		dlb_fail(err, NULL, "--recompute: no op runs again under an asynchronous schedule");
		return dlb_hint(err, "choose another schedule, or --recompute none");
	}
	for (int i = 0; i < p->graph->n_ops; i++)
		backward |= p->graph->op[i].phase == DLB_BACKWARD;
	if (!backward)
		return dlb_fail(err, NULL, "--recompute: without effect: the graph has no backward phase");
	bool *drop = dlb_arena_array(&p->arena, (size_t)p->graph->n_ops + 1, sizeof *drop);
	for (int i = 0; i < x->n; i++)
		if (find_named(p, p->replicas ? p->replicas : &shared, drop, x->pattern[i], err))
			return -1;
	p->drop = x->n ? drop : NULL;
	if (x->chosen && p->drafts) {
		p->memo = &p->drafts->memo;
		p->memo->is_borrowed = true;
	} else if (x->chosen) {
		p->memo = dlb_arena_alloc(&p->arena, sizeof *p->memo);
	}
	return 0;
}

/* ---- ops needed by ops that run again ---- */

/* Whether the bytes of tensor t are kept for the backward phase on the node of its producer. */
static bool is_kept(const struct dlb_graph *g, const struct dlb_plan *plan, int t)
{
	const int from = g->tensor[t].producer, node = plan->placement[from];
	for (int r = g->reader_start[t]; r < g->reader_start[t + 1]; r++) {
		int to = g->reader[r];
		if (plan->placement[to] != node)
			continue;
		if (g->op[to].phase == DLB_BACKWARD ||
		    (g->op[to].phase == DLB_FORWARD && !plan->again[to] && dlb_graph_is_view(g, to) &&
		     g->op[to].in[0] == t && is_kept(g, plan, g->op[to].out[0])))
			return true;
	}
	return false;
}

void dlb_recompute_complete(const struct dlb_graph *g, struct dlb_plan *plan)
{
	bool *again = plan->again;
	for (int i = g->n_ops - 1; i >= 0; i--) {
		for (int k = 0; again[i] && k < g->op[i].n_in; k++) {
			int t = g->op[i].in[k],
			    from = t < 0 || dlb_tensor_is_state(&g->tensor[t]) ? -1 : g->tensor[t].producer;
			if (from < 0 || again[from] || plan->placement[from] != plan->placement[i] ||
			    dlb_plan_keeps_op(plan, g, from))
				continue;
			again[from] = dlb_graph_is_view(g, from) || !is_kept(g, plan, t);
		}
	}
	for (int i = 0; i < g->n_ops; i++) { /* a view lies where its source does */
		int from = dlb_graph_is_view(g, i) ? g->tensor[g->op[i].in[0]].producer : -1;
		if (from >= 0 && again[from] && g->op[i].phase == DLB_FORWARD &&
		    plan->placement[from] == plan->placement[i])
			again[i] = true;
	}
	for (int i = g->n_ops - 1; i >= 0; i--)
		again[i] = again[i] && dlb_plan_needs_again(plan, g, i);
}

void dlb_recompute_named(const struct dlb_problem *p, struct dlb_plan *plan)
{
	plan->again = dlb_arena_array(&plan->arena, (size_t)plan->n_ops + 1, sizeof *plan->again);
	for (int i = 0; i < plan->n_ops; i++)
		plan->again[i] = p->drop[i] && !dlb_plan_keeps_op(plan, p->graph, i);
	dlb_recompute_complete(p->graph, plan);
}
