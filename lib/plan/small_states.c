/* Optimizer states in bf16 or 8 bits. See small_states.h. */
#include <string.h>
#include "plan/shares.h"
#include "plan/sharing.h"
#include "plan/small_states.h"

static const char where[] = "/plan/state_dtype", cure[] = "take --state-dtype f32";

size_t dlb_program_state_bytes(const struct dlb_program *g, int t)
{
	const struct dlb_plan *p = g->plan;

	return dlb_state_bytes(p->state_dtype, dlb_dtype_bytes(g->graph->tensor[t].dtype),
			       dlb_program_share(g, t).n,
			       p->n_shares > 1 || p->of_replicas < 2 ? 1 : p->of_replicas);
}

const char *dlb_small_states_excluded(bool async, const struct dlb_sharing *s)
{
	return async ? "an asynchronous schedule predicts weights from states in f32" :
	       s && dlb_sharing_averages(s) ?
		       "replicas that average their weights average their states too, which are f32" :
	       s && dlb_sharing_tensors(s) > 1 ? "replicas that sum moments sum them as f32" :
						 NULL;
}

int dlb_small_states_refuse(const char *why, struct dlb_error *err)
{
	return dlb_refuse(err, where, cure, "%s", why);
}

int dlb_small_states_check(const struct dlb_program *g, struct dlb_error *err)
{
	const struct dlb_graph *graph = g->graph;
	const char *why = dlb_small_states_excluded(g->async, g->replicated ? &g->plan->sharing : NULL);

	if (g->plan->state_dtype == DLB_STATE_F32)
		return 0;
	if (why)
		return dlb_small_states_refuse(why, err);
	for (int i = 0; i < graph->n_ops; i++) {
		const int t = graph->op[i].phase == DLB_UPDATE ? dlb_update_weight(graph, i) : -1,
			  node = t < 0 ? -1 : g->plan->placement[i];

		if (node < 0)
			continue;
		if (graph->tensor[t].dtype != DLB_F32)
			return dlb_refuse(err, where, cure,
					  "weight '%s' is %s; only states of f32 weights are kept as %s",
					  graph->tensor[t].name, dlb_dtype_name(graph->tensor[t].dtype),
					  dlb_state_dtypes[g->plan->state_dtype]);
	}
	return 0;
}
