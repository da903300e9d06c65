/* Optimizer states in another memory of their node. See offload.h. */
#include <stdlib.h>
#include <string.h>
#include "graph/slice.h"
#include "optim/kfac.h"
#include "plan/async.h"
#include "plan/compile.h"
#include "plan/offload.h"
#include "plan/replica.h"
#include "plan/shares.h"
#include "plan/sharing.h"
#include "plan/small_states.h"
#include "plan/tensors.h"
#include "util/patterns.h"

/* actions between the first FETCH of a step and its update */
enum { FIRST_FETCH_AHEAD = 8 };

const char *dlb_offload_name(const struct dlb_graph *g, int t)
{
	const struct dlb_tensor *x = &g->tensor[t];
	const int home = x->kind == DLB_T_WEIGHT ? dlb_graph_home(g, t) : -1;

	return home < 0 || g->op[home].phase != DLB_UPDATE ? NULL : x->slice ? x->slice->of : x->name;
}

int dlb_offload_rule_of(const struct dlb_offload *x, const struct dlb_graph *g, int t)
{
	const char *name = dlb_offload_name(g, t);

	for (int i = 0; name && i < x->n; i++)
		if (dlb_pattern_matches(x->rule[i].pattern, name))
			return i;
	return -1;
}

int dlb_offload_memory(const struct dlb_cluster *c, int node, const char *name)
{
	for (int g = c->node[node].group; g >= 0; g = c->group[g].parent)
		for (int i = 0; i < c->n_memories; i++)
			if (c->memory[i].group == g && !strcmp(c->memory[i].name, name))
				return i;
	return -1;
}

bool dlb_offload_takes(const struct dlb_cluster *c, int node, const struct dlb_memory *m)
{
	if (dlb_offload_memory(c, node, m->name) < 0)
		return false;
	return dlb_cluster_is_cpu(c, node) ?
		       m->folder || (!m->users && !strcmp(m->cls, "cxl")) :
		       !strcmp(m->cls, "dram") || (!m->folder && !strcmp(m->cls, "cxl"));
}

double dlb_offload_copy_s(const struct dlb_cluster *c, int node, int memory, double bytes)
{
	const struct dlb_memory *m = &c->memory[memory];
	double latency_s = m->latency_s, Bps = m->bandwidth_Bps;

	for (int g = c->node[node].group; g >= 0 && g != m->group && !dlb_cluster_is_cpu(c, node);
	     g = c->group[g].parent) {
		const struct dlb_link *up = c->group[g].up < 0 ? NULL : &c->link[c->group[g].up];

		if (!up)
			continue;
		latency_s += up->latency_s;
		Bps = Bps > 0 && Bps < up->bandwidth_Bps ? Bps : up->bandwidth_Bps;
	}
	return latency_s + (Bps > 0 ? bytes / Bps : 0);
}

int *dlb_offload_find(struct dlb_program *g)
{
	int *rule;

	if (!g->plan->offload.n || !g->n_state)
		return NULL;
	rule = dlb_arena_array(&g->arena, (size_t)g->graph->n_tensors + 1, sizeof *rule);
	for (int t = 0; t < g->graph->n_tensors; t++)
		rule[t] = dlb_offload_rule_of(&g->plan->offload, g->graph, t);
	return rule;
}

/* What of the plan keeps states near, and the cure; NULL: nothing. */
static const char *keeps_near(const struct dlb_program *g, const char **cure)
{
	*cure = "leave offload out, or take another optimizer";
	for (int i = 0; i < g->graph->n_ops; i++)
		if (dlb_kfac_layer_of(g->graph, i) >= 0)
			return "the state of K-FAC is of matrices that all its layers share in a step";
	*cure = "leave offload out, or take a synchronous schedule";
	if (g->async)
		return "under an asynchronous schedule updates of several steps overlap";
	*cure = "leave offload out, or reduce gradients";
	return g->replicated && dlb_sharing_tensors(&g->plan->sharing) > 1 ?
		       "the replicas sum moments, which are states" :
		       NULL;
}

int dlb_offload_check(const struct dlb_program *g, const struct dlb_cost *c, struct dlb_error *err)
{
	const char *cure, *why = g->offload ? keeps_near(g, &cure) : NULL;

	if (why)
		return dlb_refuse(err, "/plan/offload", cure, "%s", why);
	for (int t = 0; g->offload && c && c->cluster && t < g->graph->n_tensors; t++) {
		const int node = g->offload[t] < 0 ? -1 : g->plan->placement[dlb_graph_home(g->graph, t)];
		const char *name = node < 0 ? NULL : g->plan->offload.rule[g->offload[t]].memory;

		if (node < 0)
			continue;
		const int memory = dlb_offload_memory(c->cluster, node, name);

		if (memory < 0)
			return dlb_refuse(
				err, "/plan/offload",
				"dlb-profile --cluster --memory NAME=FOLDER adds one that is a file",
				"node %d has no memory '%s' for the states of '%s'", node, name,
				g->graph->tensor[t].name);
		if (!dlb_cluster_is_cpu(c->cluster, node) && c->cluster->memory[memory].folder)
			return dlb_refuse(
				err, "/plan/offload", "name a memory of its host, or leave its weights out",
				"node %d is no CPU, and only CPUs fetch states of '%s' from the file '%s'",
				node, g->graph->tensor[t].name, name);
	}
	return 0;
}

size_t dlb_program_near_bytes(const struct dlb_program *g, int t)
{
	return (size_t)g->n_state * dlb_place_bytes(dlb_program_state_bytes(g, t));
}

double dlb_program_far_bytes(const struct dlb_program *g, int t)
{
	return dlb_program_is_offloaded(g, t) ? (double)g->n_state * (double)dlb_program_state_bytes(g, t) :
						0;
}

double dlb_program_offloaded_bytes(const struct dlb_program *g, int node, const struct dlb_cluster *c,
				   double *per_memory)
{
	double sum = 0;

	for (int t = 0; g->offload && t < g->graph->n_tensors; t++) {
		if (g->offload[t] < 0 || g->plan->placement[dlb_graph_home(g->graph, t)] != node)
			continue;
		sum += dlb_program_far_bytes(g, t);
		if (per_memory)
			per_memory[dlb_offload_memory(c, node,
						      g->plan->offload.rule[g->offload[t]].memory)] +=
				dlb_program_far_bytes(g, t);
	}
	return sum;
}

int dlb_offload_check_room(const struct dlb_program *g, const struct dlb_cluster *c, struct dlb_error *err)
{
	double *bytes = dlb_xcalloc((size_t)c->n_memories + 1, sizeof *bytes);
	int rc = 0;

	for (int node = 0; node < g->n_nodes; node++)
		dlb_program_offloaded_bytes(dlb_program_of(g, node), node, c, bytes);
	for (int i = 0; i < c->n_memories && !rc; i++)
		if (c->memory[i].bytes > 0 && bytes[i] > c->memory[i].bytes * c->memory[i].count)
			rc = dlb_fail_no(err, NULL,
					 "the states offloaded to memory '%s' take %.4g MB of %.4g MB",
					 c->memory[i].name, bytes[i] / 1e6,
					 c->memory[i].bytes * c->memory[i].count / 1e6);
	free(bytes);
	return rc;
}

/* ---- pass 3 of the compiler ---- */

static int at_least(int a, int least) { return a < least ? least : a; }

/* The place of the states of weight t is alive from action `from` to before action `to`. */
static void live(struct compiler *c, int node, int t, int update, int from, int to)
{
	const int inst = dlb_compile_instance(c, t, node, true), slot = inst * c->M;

	c->slot[slot].first = from;
	c->slot[slot].last = update;
	c->slot[slot].sent = to;
	dlb_compile_add_hook(c, node, (struct hook){ from, HOOK_FETCH, slot, t, 0, -1, -1, false, true });
	dlb_compile_add_hook(c, node, (struct hook){ update, HOOK_STORE, slot, t, 0, -1, -1, false, true });
}

static void hook_node(struct compiler *c, int node)
{
	const struct node_code *l = &c->code[node];
	int *at = dlb_xcalloc((size_t)l->n_actions + 1, sizeof *at), *weight, n = 0;

	weight = dlb_xcalloc((size_t)l->n_actions + 1, sizeof *weight);
	for (int a = 0; a < l->n_actions; a++) {
		const struct action *x = &l->action[a];
		const int t = x->op >= 0 && x->tensor < 0 && c->g->op[x->op].phase == DLB_UPDATE ?
				      dlb_update_weight(c->g, x->op) :
				      -1;

		if (t < 0 || !dlb_program_is_offloaded(c->out, t))
			continue;
		at[n] = a;
		weight[n++] = t;
	}
	for (int i = 0; i < n; i++)
		live(c, node, weight[i], at[i], i ? at[i - 1] : at_least(at[0] - FIRST_FETCH_AHEAD, 0),
		     i + 2 < n ? at[i + 2] : l->n_actions - 1);
	free(at);
	free(weight);
}

void dlb_compile_hook_offload(struct compiler *c)
{
	for (int node = 0; c->out->offload && node < c->p->n_nodes; node++)
		hook_node(c, node);
}
