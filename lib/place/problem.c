/* Builds a placement problem from graph, costs and node weights: groups of colocated ops, their time on
 * each node, and their memory. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "graph/order.h"
#include "place/place.h"
#include "place/problem.h"
#include "place/recompute.h"
#include "plan/replica.h"
#include "plan/offload.h"
#include "plan/schedule.h"
#include "plan/shares.h"
#include "plan/tensors.h"

const char *const dlb_objectives[] = {
	[DLB_STEP] = "step", [DLB_THROUGHPUT] = "throughput", [DLB_LATENCY] = "latency", NULL
};

/* Groups are numbered by their first op; ops are in topological order, so groups are too. */
static void find_groups(struct dlb_problem *p)
{
	const struct dlb_graph *g = p->graph;
	int *least = dlb_xcalloc((size_t)g->n_ops + 1, sizeof(int));
	dlb_graph_groups(g, least);
	p->group_of = dlb_arena_array(&p->arena, (size_t)g->n_ops + 1, sizeof(int));
	p->group_start = dlb_arena_array(&p->arena, (size_t)g->n_ops + 2, sizeof(int));
	p->group_op = dlb_arena_array(&p->arena, (size_t)g->n_ops + 1, sizeof(int));
	for (int i = 0; i < g->n_ops; i++)
		p->group_of[i] = least[i] == i ? p->n_groups++ : p->group_of[least[i]];
	for (int i = 0; i < g->n_ops; i++)
		p->group_start[p->group_of[i] + 1]++;
	for (int i = 0; i < p->n_groups; i++)
		p->group_start[i + 1] += p->group_start[i];
	int *at = dlb_xcalloc((size_t)p->n_groups + 1, sizeof(int));
	for (int i = 0; i < g->n_ops; i++)
		p->group_op[p->group_start[p->group_of[i]] + at[p->group_of[i]]++] = i;
	free(at);
	free(least);
}

int *dlb_place_groups_at(const struct dlb_problem *p, const int *placement)
{
	int *at = dlb_xcalloc((size_t)p->n_groups + 1, sizeof *at);
	for (int i = 0; i < p->graph->n_ops; i++)
		at[p->group_of[i]] = placement[i];
	return at;
}

double dlb_place_update_part(const struct dlb_problem *p, int op)
{
	if (p->n_shares < 2 || p->graph->op[op].phase != DLB_UPDATE)
		return 1;
	const int t = dlb_update_weight(p->graph, op);
	if (t < 0)
		return 1;
	const struct dlb_desc d = dlb_tensor_desc(&p->graph->tensor[t], 1);
	const int64_t n = dlb_desc_count(&d);
	return n > 0 ? (double)(n / p->n_shares) / (double)n : 1;
}

/* Seconds of op for all its micro-batches. seconds_s(cost, op, on, n): seconds for n samples on `on`, a kind
 * of device or a node. */
static double all_micro_batches_s(const struct dlb_problem *p, int op,
				  double (*seconds_s)(const struct dlb_cost *c, int op, int on, double n),
				  int on)
{
	int M = p->micro_batches;
	int64_t small = dlb_micro_batch_size(p->batch, M, M - 1),
		large = dlb_micro_batch_size(p->batch, M, 0);
	double n_large = p->batch % M ? (double)(p->batch % M) : M,
	       s = seconds_s(p->cost, op, on, (double)large);
	if (isinf(s))
		return s;
	if (dlb_graph_is_view(p->graph, op))
		return 0;
	if (p->graph->op[op].phase == DLB_UPDATE)
		return s * dlb_place_update_part(p, op);
	return n_large * s + (M - n_large) * (small == large ? s : seconds_s(p->cost, op, on, (double)small));
}

/* Times are stored once per class of nodes with equal times: a thousand nodes mostly have a few kinds, and
 * a time per op and node would need more memory than all else. A node that names memories, or has pins, is
 * a class by itself. */
static void find_classes(struct dlb_problem *p)
{
	const struct dlb_cluster *cl = p->cluster;
	size_t n_nodes = (size_t)cl->n_nodes;
	int *first = dlb_xcalloc(n_nodes + 1, sizeof *first);
	bool *alone = dlb_xcalloc(n_nodes + 1, sizeof *alone);
	p->class_of = dlb_arena_array(&p->arena, n_nodes + 1, sizeof(int));
	p->class_count = dlb_arena_array(&p->arena, n_nodes + 1, sizeof(int));
	p->n_classes = 0;
	for (int i = 0; p->pin && i < p->graph->n_ops; i++)
		if (p->pin[i] >= 0)
			alone[p->pin[i]] = true;
	for (int d = 0; d < cl->n_nodes; d++) {
		int k = 0;
		alone[d] |= cl->node[d].n_memories > 0;
		for (; k < p->n_classes && !alone[d]; k++) {
			int q = first[k];
			if (!alone[q] && cl->node[q].kind == cl->node[d].kind &&
			    cl->node[q].speed == cl->node[d].speed &&
			    p->ranked_scale[q] == p->ranked_scale[d] &&
			    p->stated_scale[q] == p->stated_scale[d] &&
			    (!p->excluded || p->excluded[q] == p->excluded[d]))
				break;
		}
		if (alone[d] || k == p->n_classes)
			first[k = p->n_classes++] = d;
		p->class_of[d] = k;
		p->class_count[k]++;
	}
	free(first);
	free(alone);
}

static void find_times(struct dlb_problem *p)
{
	const struct dlb_cluster *cl = p->cluster;
	size_t n_kinds = (size_t)cl->n_kinds, n_nodes = (size_t)cl->n_nodes, n_classes = (size_t)p->n_classes;
	double *kind_s = dlb_xcalloc((size_t)p->n_groups * n_kinds + 1, sizeof(double));
	for (int i = 0; i < p->graph->n_ops; i++)
		for (size_t k = 0; k < n_kinds; k++)
			kind_s[(size_t)p->group_of[i] * n_kinds + k] += all_micro_batches_s(p, i,
											    dlb_cost_kind_s,
											    (int)k);
	p->time_s = dlb_arena_array(&p->arena, (size_t)p->n_groups * n_classes + 1, sizeof(double));
	p->free_node = dlb_arena_array(&p->arena, n_nodes + 1, sizeof(bool));
	bool *able = dlb_xcalloc(n_classes + 1, sizeof *able);
	for (size_t d = 0, c, n_done = 0; d < n_nodes; d++) {
		c = (size_t)p->class_of[d];
		/* the first node of each class */
		for (size_t g = 0; g < (size_t)p->n_groups && c == n_done; g++) {
			double s = kind_s[g * n_kinds + (size_t)cl->node[d].kind];
			p->time_s[g * n_classes + c] = isinf(s) ? s :
								  s / cl->node[d].speed * p->ranked_scale[d];
			able[c] |= !isinf(s);
		}
		n_done += c == n_done;
		p->free_node[d] = able[c];
	}
	free(able);
	free(kind_s);
	/* nodes that name memories are classes by themselves */
	for (size_t d = 0; d < n_nodes; d++) {
		double *s = &p->time_s[p->class_of[d]];
		for (size_t g = 0; g < (size_t)p->n_groups && cl->node[d].n_memories; g++)
			s[g * n_classes] = isinf(s[g * n_classes]) ? s[g * n_classes] : 0;
		for (int i = 0; i < p->graph->n_ops && cl->node[d].n_memories; i++)
			s[(size_t)p->group_of[i] * n_classes] += all_micro_batches_s(p, i, dlb_cost_op_s,
										     (int)d) *
								 p->ranked_scale[d];
	}
}

/* Forbidden nodes get time INFINITY, like nodes without a kernel. */
static int restrict_times(struct dlb_problem *p, struct dlb_error *err)
{
	size_t n_nodes = (size_t)p->cluster->n_nodes, n_classes = (size_t)p->n_classes;
	for (size_t d = 0; p->excluded && d < n_nodes; d++) {
		for (size_t g = 0; p->excluded[d] && g < (size_t)p->n_groups; g++)
			p->time_s[g * n_classes + (size_t)p->class_of[d]] = INFINITY;
		p->free_node[d] &= !p->excluded[d];
	}
	for (int i = 0; p->pin && i < p->graph->n_ops; i++) {
		int g = p->group_of[i], d = p->pin[i];
		if (d < 0)
			continue;
		const char *name = p->graph->op[i].name,
			   *kind = p->cluster->kind[p->cluster->node[d].kind].name;
		if (p->excluded && p->excluded[d])
			return dlb_fail_no(err, NULL,
					   "no plan fits: op '%s' is pinned to node %d, which is left out",
					   name, d);
		for (int k = p->group_start[g]; k < p->group_start[g + 1]; k++)
			if (p->pin[p->group_op[k]] >= 0 && p->pin[p->group_op[k]] != d)
				return dlb_fail_no(
					err, NULL,
					"no plan fits: ops '%s' and '%s' share a node and are pinned to two",
					name, p->graph->op[p->group_op[k]].name);
		if (isinf(dlb_time_s(p, g, d)))
			return dlb_fail_no(err, NULL,
					   "no plan fits: node %d (%s) has no kernel for op '%s' (%s), which "
					   "is pinned to it, or for what is bound to it",
					   d, kind, name, p->graph->op[i].type);
		for (int other = 0; other < p->n_classes; other++)
			if (other != p->class_of[d])
				p->time_s[(size_t)g * n_classes + (size_t)other] = INFINITY;
	}
	return 0;
}

/* Bytes of weight t that are kept by other replicas or in another memory. */
static double elsewhere_bytes(const struct dlb_problem *p, int t)
{
	const double bytes = dlb_tensor_bytes(&p->graph->tensor[t], 1);
	if (p->offload && dlb_offload_weight_rule(p->offload, p->graph, NULL, t) >= 0)
		return bytes;
	return p->zero == 3 && p->n_shares > 1 && dlb_weight_may_be_gathered(p->graph, t) ?
		       bytes - bytes / p->n_shares :
		       0;
}

static void find_bytes(struct dlb_problem *p)
{
	const struct dlb_graph *g = p->graph;
	const double n_state = p->n_state * dlb_state_ratio(p->state_dtype) /
			       (p->n_shares > 1 ? p->n_shares : 1);
	int64_t n = dlb_micro_batch_size(p->batch, p->micro_batches, 0);
	p->state_bytes = dlb_arena_array(&p->arena, (size_t)p->n_groups + 1, sizeof(double));
	p->activation_bytes = dlb_arena_array(&p->arena, (size_t)p->n_groups + 1, sizeof(double));
	for (int t = 0; t < g->n_tensors; t++) {
		const struct dlb_tensor *x = &g->tensor[t];
		int home = dlb_tensor_is_state(x) ? dlb_graph_home(g, t) : -1;
		const bool is_near = !p->offload ||
				     dlb_offload_rule_of(p->offload, DLB_OFFLOAD_STATES, g, t) < 0;
		if (home >= 0 && x->kind == DLB_T_WEIGHT && g->op[home].phase == DLB_UPDATE)
			p->state_bytes[p->group_of[home]] +=
				dlb_cost_weight_bytes(g, t, is_near ? n_state : 0, p->micro_batches > 1) -
				elsewhere_bytes(p, t);
		else if (home >= 0)
			p->state_bytes[p->group_of[home]] += dlb_tensor_bytes(x, n);
		else if (x->kind == DLB_T_CONSTANT && g->reader_start[t] < g->reader_start[t + 1])
			p->state_bytes[p->group_of[g->reader[g->reader_start[t]]]] +=
				dlb_tensor_bytes(x, n) - elsewhere_bytes(p, t);
		if (x->producer < 0 || g->op[x->producer].phase != DLB_FORWARD ||
		    dlb_graph_view_of(g, t) >= 0 || (p->drop && p->drop[x->producer]) ||
		    (p->recompute && p->recompute->chosen) ||
		    (p->offload && dlb_offload_rule_of_op(p->offload, g, x->producer) >= 0))
			continue;
		for (int r = g->reader_start[t]; r < g->reader_start[t + 1]; r++) {
			if (g->op[g->reader[r]].phase != DLB_FORWARD) {
				p->activation_bytes[p->group_of[x->producer]] += dlb_tensor_bytes(x, n);
				break;
			}
		}
	}
	for (int i = 0; i < g->n_ops; i++) {		/* given resident bytes include activations */
		if (isnan(p->cost->resident_bytes[i]))
			continue;
		p->state_bytes[p->group_of[i]] += p->cost->resident_bytes[i];
		p->activation_bytes[p->group_of[i]] = 0;
	}
	p->memory_bytes = dlb_arena_array(&p->arena, (size_t)p->cluster->n_nodes + 1, sizeof(double));
	for (int d = 0; d < p->cluster->n_nodes; d++)
		p->memory_bytes[d] = dlb_cluster_node_memory(p->cluster, d);
}

int dlb_problem_init(struct dlb_problem *p, struct dlb_error *err)
{
	int n_nodes = p->cluster->n_nodes;
	double sum = 0;
	memset(&p->arena, 0, sizeof p->arena);		/* the arena of a copy belongs to the original */
	p->drop = NULL;
	p->memo = NULL;
	p->n_groups = 0;
	if (p->objective == DLB_STEP && p->cluster->link_model == DLB_LINKS_PORT) {
		dlb_fail(err, "/cluster/link_model", "a step is not simulated under the port model");
		return dlb_hint(err, "choose --objective throughput or latency");
	}
	if (p->objective != DLB_STEP && p->cluster->link_model != DLB_LINKS_PORT) {
		dlb_fail(err, "/cluster/link_model",
			 "throughput and latency are judged under the port model");
		return dlb_hint(err, "choose --objective step, or a cluster whose link_model is port");
	}
	if (n_nodes < 1)
		return dlb_fail(err, "/cluster/nodes", "there are no nodes");
	if (p->graph->n_ops < 1)
		return dlb_fail(err, "/graph/ops", "there are no ops");
	if (p->micro_batches < 1 || p->batch < 1)
		return dlb_fail(err, NULL, "%d micro-batches of a batch of %lld", p->micro_batches,
				(long long)p->batch);
	if (p->graph->fixed_batch && (p->micro_batches > 1 || p->batch != p->graph->batch)) {
		dlb_fail(err, "/graph/fixed_batch",
			 "the model takes its batch of %lld in one micro-batch and one replica, as it holds "
			 "that batch or mixes its samples",
			 (long long)p->graph->batch);
		return dlb_hint(err, "dlb-profile says which vertex does; if it holds the batch, export the "
				     "model with the batch open");
	}
	if (p->micro_batches > p->batch)
		p->micro_batches = (int)p->batch;
	p->stated_scale = dlb_arena_array(&p->arena, (size_t)n_nodes, sizeof(double));
	p->ranked_scale = dlb_arena_array(&p->arena, (size_t)n_nodes, sizeof(double));
	for (int d = 0; d < n_nodes; d++)
		sum += p->weight ? p->weight[d] : 1;
	for (int d = 0; d < n_nodes; d++) {
		p->stated_scale[d] = p->kappa ? p->kappa[d] : 1;
		p->ranked_scale[d] = p->stated_scale[d] / (p->weight ? p->weight[d] * n_nodes / sum : 1);
		if (!(p->ranked_scale[d] > 0) || !isfinite(p->ranked_scale[d])) {
			dlb_problem_release(p);
			return dlb_fail(err, "/balance", "weight and kappa of node %d must be positive", d);
		}
	}
	find_groups(p);
	find_classes(p);
	find_times(p);
	if (restrict_times(p, err)) {
		dlb_problem_release(p);
		return -1;
	}
	if (dlb_recompute_find(p, err)) {
		dlb_problem_release(p);
		return -1;
	}
	find_bytes(p);
	return 0;
}

void dlb_problem_release(struct dlb_problem *p)
{
	dlb_recompute_forget(p->memo);
	p->memo = NULL;
	dlb_arena_release(&p->arena);
}

double dlb_group_bytes(const struct dlb_problem *p, int group)
{
	int M = p->micro_batches, in_flight = M;
	if (!strcmp(p->schedule->name, "none"))
		in_flight = 1;
	else if (p->schedule->async)
		in_flight = p->cluster->n_nodes;
	else if (dlb_schedule_bounded(p->schedule) && p->cluster->n_nodes < M)
		in_flight = p->cluster->n_nodes;
	return p->state_bytes[group] + in_flight * p->activation_bytes[group];
}

bool dlb_problem_states_exceed(const struct dlb_problem *p, double have, const char *whose, char *text,
			       size_t size)
{
	double need = 0;

	if (p->zero >= 2) /* gradients are divided as they come */
		return false;
	for (int g = 0; g < p->n_groups; g++)
		need += p->state_bytes[g];
	snprintf(text, size, "the weights, gradients and states take %.4g MB, %s have %.4g MB", need / 1e6,
		 whose, have / 1e6);
	return need > have;
}

int dlb_no_room(const struct dlb_problem *p, int group, struct dlb_error *err)
{
	const struct dlb_op *o = &p->graph->op[p->group_op[p->group_start[group]]];
	bool kernel = false;
	for (int d = 0; d < p->cluster->n_nodes; d++)
		kernel |= !isinf(dlb_time_s(p, group, d));
	if (!kernel)
		return dlb_fail_no(
			err, NULL,
			"no plan fits: no node%s has a kernel for op '%s' (%s) and what is bound to it",
			p->excluded ? " that is not left out" : "", o->name, o->type);
	dlb_fail_no(err, NULL, "no plan fits: no node has room left for op '%s' (%s), which needs %.4g MB",
		    o->name, o->type, dlb_group_bytes(p, group) / 1e6);
	return dlb_hint(err, "try --micro-batches %d", p->micro_batches * 2);
}
