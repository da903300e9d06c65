/* Shares of the optimizer's state: see shares.h. */
#include "comm/allreduce.h"
#include "plan/buckets.h"
#include "plan/offload.h"
#include "plan/shares.h"
#include "plan/tensors.h"

struct dlb_share dlb_share_of(int64_t n, int n_shares, int share)
{
	if (n_shares < 2)
		return (struct dlb_share){ 0, n };
	const int chunk = dlb_ring_chunk(share, n_shares);
	const int64_t first = dlb_chunk_at(n, n_shares, chunk);
	return (struct dlb_share){ first, dlb_chunk_at(n, n_shares, chunk + 1) - first };
}

struct dlb_share dlb_program_share(const struct dlb_program *g, int t)
{
	const struct dlb_tensor *x = &g->graph->tensor[t];
	const struct dlb_desc d = dlb_tensor_desc(x, 1);
	const int64_t n = x->n_dims >= 0 ?
				  dlb_desc_count(&d) :
				  (int64_t)(dlb_tensor_bytes(x, 1) / (double)dlb_dtype_bytes(x->dtype));

	return dlb_share_of(n, g->plan->n_shares, g->plan->share);
}

int dlb_update_weight(const struct dlb_graph *g, int update)
{
	const struct dlb_op *o = &g->op[update];
	for (int i = 0; i < o->n_in; i++)
		if (o->in[i] >= 0 && g->tensor[o->in[i]].kind == DLB_T_WEIGHT)
			return o->in[i];
	return -1;
}

bool dlb_program_leaves(const struct dlb_program *g, int update)
{
	return g->kept && g->kept[update] != DLB_KEPT_WHOLE;
}

bool dlb_program_has_share_place(const struct dlb_program *g, int update)
{
	return g->kept && g->kept[update] == DLB_KEPT_IN_PLACE;
}

int dlb_program_share_reader(const struct dlb_program *g, int t)
{
	const struct dlb_graph *graph = g->graph;
	const int reader = graph->reader_start[t + 1] == graph->reader_start[t] + 1 ?
				   graph->reader[graph->reader_start[t]] :
				   -1;
	return reader >= 0 && dlb_program_has_share_place(g, reader) &&
			       dlb_update_gradient(graph, reader) == t ?
		       reader :
		       -1;
}

bool dlb_bucket_keeps_shares(const struct dlb_bucket *b)
{
	return b->how == &dlb_ring_scatter && b->n_ops > 1;
}

size_t dlb_program_share_bytes(const struct dlb_program *g, int t)
{
	return (size_t)dlb_program_share(g, t).n * dlb_dtype_bytes(g->graph->tensor[t].dtype);
}

size_t dlb_program_share_offset(const struct dlb_program *g, int t)
{
	return (size_t)dlb_program_share(g, t).first * dlb_dtype_bytes(g->graph->tensor[t].dtype);
}

bool dlb_weight_may_be_gathered(const struct dlb_graph *g, int t)
{
	const struct dlb_tensor *x = &g->tensor[t];
	const int home = x->kind == DLB_T_WEIGHT ? x->home : -1;

	return home >= 0 && g->op[home].phase == DLB_UPDATE && x->dtype == DLB_F32 &&
	       dlb_tensor_bytes(x, 1) >= DLB_LEAST_GATHERED_BYTES;
}

int dlb_weight_node(const struct dlb_graph *g, const int *placement, int t)
{
	const int home = dlb_graph_home(g, t),
		  reader = g->reader_start[t] < g->reader_start[t + 1] ? g->reader[g->reader_start[t]] : -1;

	return home >= 0 ? placement[home] : reader >= 0 ? placement[reader] : -1;
}

bool dlb_weight_has_one_node(const struct dlb_graph *g, const int *placement, int t)
{
	const int node = dlb_weight_node(g, placement, t);

	for (int r = g->reader_start[t]; r < g->reader_start[t + 1]; r++)
		if (placement[g->reader[r]] != node)
			return false;
	return true;
}

bool dlb_weight_is_gathered(const struct dlb_graph *g, const int *placement, int t)
{
	return dlb_weight_may_be_gathered(g, t) && dlb_weight_has_one_node(g, placement, t);
}

bool dlb_plan_divides(const struct dlb_plan *p, const struct dlb_graph *g, int t)
{
	return p->n_replicas > 1 && p->sharing.zero == 3 && dlb_weight_is_gathered(g, p->placement, t);
}

bool dlb_plan_gathers(const struct dlb_plan *p, const struct dlb_graph *g)
{
	for (int t = 0; t < g->n_tensors; t++)
		if (dlb_plan_divides(p, g, t))
			return true;
	return false;
}

const bool *dlb_program_find_gathered(struct dlb_program *g)
{
	const struct dlb_plan *p = g->plan;
	bool *gathered;

	if (p->gathered || p->n_shares < 2 || p->sharing.zero != 3)
		return p->gathered;
	gathered = dlb_arena_array(&g->arena, (size_t)g->graph->n_tensors + 1, sizeof *gathered);
	for (int t = 0; t < g->graph->n_tensors; t++)
		gathered[t] = dlb_weight_is_gathered(g->graph, p->placement, t);
	return gathered;
}

bool dlb_program_reads_gathered(const struct dlb_program *g, int op)
{
	const struct dlb_op *o = &g->graph->op[op];

	for (int i = 0; i < o->n_in; i++)
		if (o->in[i] >= 0 && dlb_program_gathers(g, o->in[i]))
			return true;
	return false;
}

size_t dlb_program_weight_bytes(const struct dlb_program *g, int t)
{
	return dlb_program_weight_is_far(g, t) ? 0 :
	       dlb_program_gathers(g, t)       ? dlb_program_share_bytes(g, t) :
						 (size_t)dlb_tensor_bytes(&g->graph->tensor[t], 1);
}
