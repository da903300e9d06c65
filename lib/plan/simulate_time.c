/* Compute times of a node by the cost model (simulate.h). */
#include <math.h>
#include "optim/kfac.h"
#include "plan/bucket_cost.h"
#include "plan/replica.h"
#include "plan/shares.h"
#include "plan/simulate.h"
#include "util/rng.h"

/* The factor of the node's compute times. */
static double scale_of(const struct sim *s, int node)
{
	return s->choice->node_scale ? s->choice->node_scale[node] : 1;
}

/* Seconds of a copy of a weight, which reads and writes it; a prediction also reads the optimizer's state. */
static double copy_s(const struct sim *s, int node, const struct dlb_instr *in)
{
	const struct dlb_op *o = &s->g->graph->op[in->op];
	double bytes = 0, Bps = s->c && s->c->accumulate_Bps ?
					s->c->accumulate_Bps[s->c->cluster->node[node].kind] *
						s->c->cluster->node[node].speed :
					0;
	for (int i = 0; i < o->n_in; i++)
		if (o->in[i] >= 0 && s->g->graph->tensor[o->in[i]].kind == DLB_T_WEIGHT)
			bytes = dlb_tensor_bytes(&s->g->graph->tensor[o->in[i]], 1);
	return Bps > 0 ? (in->what == DLB_RUN_KEEP ? 2 : 4) * bytes / Bps : 0;
}

/* K-FAC: seconds of summing a factor for n samples, or of preconditioning. */
static double kfac_s(const struct sim *s, int node, const struct dlb_instr *in, int64_t n)
{
	if (!s->c || !s->c->cluster)
		return 0;
	const struct dlb_node *at = &s->c->cluster->node[node];
	double t = in->what == DLB_RUN_PRECONDITION ?
			   dlb_cost_precondition_s(s->c, in->op, at->kind,
						   dlb_plan_factors_come_factored(s->g->whole)) :
			   dlb_cost_moment_s(s->c, in->op,
					     dlb_kfac_moment_of(s->g->graph, in->op, in->tensor), at->kind,
					     n);
	return t / at->speed;
}

/* The fraction of its weight's elements that an update changes. */
static double share_of(const struct dlb_program *g, int update)
{
	const int t = g->plan->n_shares > 1 ? dlb_update_weight(g->graph, update) : -1;
	const struct dlb_desc d = t < 0 ? (struct dlb_desc){ .n_dims = 0 } :
					  dlb_tensor_desc(&g->graph->tensor[t], 1);
	const int64_t n = dlb_desc_count(&d);
	return t >= 0 && n > 0 ? (double)dlb_program_share(g, t).n / (double)n : 1;
}

double dlb_sim_compute_s(const struct sim *s, int node, const struct dlb_instr *in)
{
	const struct dlb_program *own = dlb_program_of(s->g, node);
	int m = in->micro_batch < 0 ? 0 : in->micro_batch % s->f[own->replica].M;
	double t;
	int moment = in->what == DLB_RUN_ACCUMULATE ? dlb_kfac_moment_of(s->g->graph, in->op, in->tensor) :
						      -1;
	if (moment >= 0) {
		t = kfac_s(s, node, in, own->size[m]);
	} else if (in->what == DLB_RUN_ACCUMULATE) {
		if (!s->c || !s->c->cluster)
			return 0;
		const struct dlb_node *n = &s->c->cluster->node[node];
		t = dlb_cost_accumulate_s(s->c, in->tensor, (double)own->size[m], n->kind, !m) / n->speed;
	} else if (in->what == DLB_RUN_PRECONDITION) {
		t = kfac_s(s, node, in, 0);
	} else if (in->what == DLB_RUN_KEEP || in->what == DLB_RUN_PREDICT) {
		t = copy_s(s, node, in);
	} else {
		t = dlb_flow_s(&s->f[own->replica], in->op, m);
		if (own->statistics && own->statistics[in->op] >= 0)
			t /= 2;				/* each of its two halves */
		if (in->what == DLB_RUN_UPDATE)
			t *= share_of(own, in->op);
		if (in->what == DLB_RUN_UPDATE && s->c)		/* PRECONDITION has its own time */
			t -= dlb_cost_precondition_s(s->c, in->op, s->c->cluster->node[node].kind, false) /
			     s->c->cluster->node[node].speed;
	}
	if (s->choice->jitter > 0) {
		uint64_t i = ((uint64_t)in->op * (uint64_t)s->g->micro_batches + (uint64_t)m) * 2 +
			     (in->what == DLB_RUN_ACCUMULATE);
		double factor = 1 + s->choice->jitter * dlb_philox_normal(s->choice->seed, 0x6a697474, i);
		t *= factor > 0.05 ? factor : 0.05;
	}
	return t * scale_of(s, node);
}

double dlb_sim_square_sum_s(const struct sim *s, int node)
{
	const struct dlb_graph *g = s->g->graph;
	double bytes = 0, Bps;
	if (!s->c || !s->c->accumulate_Bps)
		return 0;
	for (int i = 0; i < g->n_ops; i++)
		for (int j = 0; j < g->op[i].n_in && g->op[i].phase == DLB_UPDATE &&
				dlb_program_of(s->g, node)->plan->placement[i] == node;
		     j++)
			if (g->op[i].in[j] >= 0 && g->tensor[g->op[i].in[j]].kind == DLB_T_WEIGHT)
				bytes += dlb_tensor_bytes(&g->tensor[g->op[i].in[j]], s->g->size[0]);
	Bps = s->c->accumulate_Bps[s->c->cluster->node[node].kind] * s->c->cluster->node[node].speed;
	return Bps > 0 ? bytes / Bps * scale_of(s, node) : 0;
}

double dlb_sim_norm_s(const struct sim *s)
{
	double bytes = 0, longest = 0;
	int depth = 0;
	for (int i = 0; i < s->g->graph->n_ops; i++)
		bytes += 8 * (s->g->graph->op[i].phase == DLB_UPDATE);
	for (int i = 1; i < s->g->n_nodes && s->c && s->c->cluster; i++)
		longest = fmax(longest, dlb_cost_xfer_s(s->c, bytes, i, 0));
	while (1 << depth < s->g->n_nodes)
		depth++;
	return 2 * depth * longest;
}
