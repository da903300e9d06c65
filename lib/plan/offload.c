/* Optimizer states, weights and activations in another memory of their node. See offload.h. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "graph/slice.h"
#include "optim/kfac.h"
#include "plan/again.h"
#include "plan/async.h"
#include "plan/compile.h"
#include "plan/offload.h"
#include "plan/program_verify.h"
#include "plan/replica.h"
#include "plan/shares.h"
#include "plan/sharing.h"
#include "plan/small_states.h"
#include "plan/tensors.h"
#include "util/patterns.h"

/* actions between the first FETCH of a step and the action that reads the copy */
enum { FIRST_FETCH_AHEAD = 8 };

bool dlb_offload_is_frozen_weight(const struct dlb_graph *g, int t)
{
	const struct dlb_tensor *x = &g->tensor[t];

	return x->kind == DLB_T_CONSTANT && (x->in_model || x->in_state) && dlb_dtype_is_float(x->dtype) &&
	       !dlb_tensor_follows_batch(x) && dlb_tensor_bytes(x, 1) >= DLB_LEAST_GATHERED_BYTES;
}

const char *dlb_offload_name(const struct dlb_graph *g, enum dlb_offload_kind kind, int t)
{
	const struct dlb_tensor *x = &g->tensor[t];
	const int home = x->kind == DLB_T_WEIGHT ? dlb_graph_home(g, t) : -1;
	const bool is_trained = home >= 0 && g->op[home].phase == DLB_UPDATE;

	if (!is_trained && (kind != DLB_OFFLOAD_WEIGHTS || !dlb_offload_is_frozen_weight(g, t)))
		return NULL;
	return x->slice ? x->slice->of : x->name;
}

int dlb_offload_rule_of(const struct dlb_offload *x, enum dlb_offload_kind kind, const struct dlb_graph *g,
			int t)
{
	const char *name = dlb_offload_name(g, kind, t);

	for (int i = 0; name && i < x->n; i++)
		if (x->rule[i].kind == kind && dlb_pattern_matches(x->rule[i].pattern, name))
			return i;
	return -1;
}

int dlb_offload_rule_of_op(const struct dlb_offload *x, const struct dlb_graph *g, int op)
{
	if (g->op[op].phase != DLB_FORWARD || dlb_graph_is_view(g, op) || !dlb_op_has_backward_use(g, op))
		return -1;
	for (int i = 0; i < x->n; i++)
		if (x->rule[i].kind == DLB_OFFLOAD_ACTIVATIONS && dlb_op_is_named(g, op, x->rule[i].pattern))
			return i;
	return -1;
}

int dlb_offload_weight_rule(const struct dlb_offload *x, const struct dlb_graph *g, const int *placement,
			    int t)
{
	if (!dlb_weight_may_be_gathered(g, t) && !dlb_offload_is_frozen_weight(g, t))
		return -1;
	return !placement || dlb_weight_has_one_node(g, placement, t) ?
		       dlb_offload_rule_of(x, DLB_OFFLOAD_WEIGHTS, g, t) :
		       -1;
}

int dlb_offload_count(const struct dlb_offload *x, enum dlb_offload_kind kind)
{
	int n = 0;

	for (int i = 0; i < x->n; i++)
		n += x->rule[i].kind == kind;
	return n;
}

void dlb_offload_mark(struct dlb_plan *p, const struct dlb_graph *g)
{
	int *far;

	p->far = NULL;
	if (!dlb_offload_count(&p->offload, DLB_OFFLOAD_ACTIVATIONS))
		return;
	p->far = far = dlb_arena_array(&p->arena, (size_t)g->n_ops + 1, sizeof *far);
	for (int i = 0; i < g->n_ops; i++) {
		const int from = g->op[i].phase == DLB_FORWARD && dlb_graph_is_view(g, i) ?
					 g->tensor[g->op[i].in[0]].producer :
					 -1;

		far[i] = from >= 0 && far[from] != DLB_FAR_NONE ? DLB_FAR_VIEW :
								  dlb_offload_rule_of_op(&p->offload, g, i);
	}
}

bool dlb_plan_keeps_far(const struct dlb_plan *p, const struct dlb_graph *g, int t)
{
	const int from = dlb_tensor_is_state(&g->tensor[t]) ? -1 : g->tensor[t].producer;

	return from >= 0 && dlb_plan_is_far(p, from) && dlb_plan_is_read_again(p, g, t);
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

	if (!dlb_offload_count(&g->plan->offload, DLB_OFFLOAD_STATES) || !g->n_state)
		return NULL;
	rule = dlb_arena_array(&g->arena, (size_t)g->graph->n_tensors + 1, sizeof *rule);
	for (int t = 0; t < g->graph->n_tensors; t++)
		rule[t] = dlb_offload_rule_of(&g->plan->offload, DLB_OFFLOAD_STATES, g->graph, t);
	return rule;
}

int *dlb_offload_find_weights(struct dlb_program *g)
{
	const size_t n = (size_t)g->graph->n_tensors + 1;
	int *rule, found = 0;
	bool *gathered;

	if (!dlb_offload_count(&g->plan->offload, DLB_OFFLOAD_WEIGHTS))
		return NULL;
	rule = dlb_arena_array(&g->arena, n, sizeof *rule);
	gathered = dlb_arena_array(&g->arena, n, sizeof *gathered);
	for (int t = 0; t < g->graph->n_tensors; t++) {
		rule[t] = dlb_offload_weight_rule(&g->plan->offload, g->graph, g->plan->placement, t);
		gathered[t] = rule[t] >= 0;
		found += rule[t] >= 0;
	}
	if (!found)
		return NULL;
	g->gathered = gathered;
	return rule;
}

/* The offloaded data of one kind that belong to a tensor: the node (-1: there are none), the memory, the
 * bytes. */
struct far {
	int node;
	const char *memory;
	double bytes;
};
static struct far far_of(const struct dlb_program *g, enum dlb_offload_kind kind, int t)
{
	const struct dlb_tensor *x = &g->graph->tensor[t];
	struct far f = { .node = -1 };
	int rule = -1;

	if (kind == DLB_OFFLOAD_STATES && dlb_program_is_offloaded(g, t)) {
		rule = g->offload[t];
		f.bytes = dlb_program_far_bytes(g, t);
	} else if (kind == DLB_OFFLOAD_WEIGHTS && dlb_program_weight_is_far(g, t)) {
		rule = g->far_weight[t];
		f.bytes = dlb_tensor_bytes(x, 1);
	} else if (kind == DLB_OFFLOAD_ACTIVATIONS && dlb_plan_keeps_far(g->plan, g->graph, t)) {
		rule = g->plan->far[x->producer];
		for (int m = 0; m < g->micro_batches; m++)
			f.bytes += dlb_tensor_bytes(x, g->size[m]);
	}
	if (rule < 0)
		return f;
	f.memory = g->plan->offload.rule[rule].memory;
	f.node = kind == DLB_OFFLOAD_ACTIVATIONS ? g->plan->placement[x->producer] :
						   dlb_weight_node(g->graph, g->plan->placement, t);
	return f;
}

/* The reason why states cannot be offloaded under the plan, and the cure; NULL: they can. */
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

/* Whether a weight that is trained is offloaded. */
static bool trains_far_weights(const struct dlb_program *g)
{
	for (int t = 0; t < g->graph->n_tensors; t++)
		if (dlb_program_weight_is_far(g, t) && g->graph->tensor[t].kind == DLB_T_WEIGHT)
			return true;
	return false;
}

/* The reason why weights cannot be offloaded under the plan, and the cure; NULL: they can. */
static const char *keeps_weights_near(const struct dlb_program *g, const char **cure)
{
	*cure = "leave offload of weights out, or take another optimizer";
	for (int i = 0; i < g->graph->n_ops; i++)
		if (dlb_kfac_layer_of(g->graph, i) >= 0)
			return "K-FAC reads weights after its sums";
	*cure = "leave offload of weights out, or take a synchronous schedule";
	if (g->async)
		return "an asynchronous schedule keeps several versions of a weight";
	*cure = "leave offload of weights out, or --zero and averages of weights";
	const struct dlb_sharing *s = &g->plan->sharing;
	const bool exchanges = g->replicated && (g->plan->n_shares > 1 || dlb_sharing_averages(s));

	return exchanges && (s->zero == 3 || trains_far_weights(g)) ? "the replicas exchange weights" : NULL;
}

/* Checks that the node has the memory, and can copy to and from it. */
static int check_memory(const struct dlb_cluster *c, const struct far *x, enum dlb_offload_kind kind,
			const char *name, struct dlb_error *err)
{
	const int memory = dlb_offload_memory(c, x->node, x->memory);
	const char *of = kind == DLB_OFFLOAD_STATES ? "the states of " : "";

	if (memory < 0)
		return dlb_refuse(err, "/plan/offload",
				  "dlb-profile --cluster --memory NAME=FOLDER adds one that is a file",
				  "node %d has no memory '%s' for %s'%s'", x->node, x->memory, of, name);
	if (!dlb_cluster_is_cpu(c, x->node) && c->memory[memory].folder)
		return dlb_refuse(err, "/plan/offload", "name a memory of its host, or leave its tensors out",
				  "node %d is no CPU, and only CPUs fetch %s'%s' from the file '%s'", x->node,
				  of, name, x->memory);
	return 0;
}

int dlb_offload_check(const struct dlb_program *g, const struct dlb_cost *c, struct dlb_error *err)
{
	const char *cure, *why = g->offload ? keeps_near(g, &cure) : NULL;

	why = !why && g->far_weight ? keeps_weights_near(g, &cure) : why;
	if (why)
		return dlb_refuse(err, "/plan/offload", cure, "%s", why);
	if (g->async && g->plan->far)
		return dlb_refuse(err, "/plan/offload", "leave offload out, or take a synchronous schedule",
				  "under an asynchronous schedule activations of several steps overlap");
	for (int t = 0; dlb_program_offloads(g) && c && c->cluster && t < g->graph->n_tensors; t++)
		for (int kind = 0; kind < DLB_N_OFFLOAD_KINDS; kind++) {
			const struct far x = far_of(g, kind, t);

			if (x.node >= 0 && check_memory(c->cluster, &x, kind, g->graph->tensor[t].name, err))
				return -1;
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

	for (int t = 0; dlb_program_offloads(g) && t < g->graph->n_tensors; t++)
		for (int kind = 0; kind < DLB_N_OFFLOAD_KINDS; kind++) {
			const struct far x = far_of(g, kind, t);

			if (x.node != node)
				continue;
			sum += x.bytes;
			if (per_memory)
				per_memory[dlb_offload_memory(c, node, x.memory)] += x.bytes;
		}
	return sum;
}

struct dlb_offload_copy dlb_offload_copy_of(const struct dlb_program *g, int node, const struct dlb_instr *in)
{
	const bool is_weight = dlb_tensor_is_state(&g->graph->tensor[in->tensor]);
	const enum dlb_offload_kind kind = !is_weight ? DLB_OFFLOAD_ACTIVATIONS :
					   in->again  ? DLB_OFFLOAD_STATES :
							DLB_OFFLOAD_WEIGHTS;
	const struct far x = far_of(g, kind, in->tensor);
	const int m = in->again ? dlb_second_life(g, in->micro_batch) : in->micro_batch;

	return (struct dlb_offload_copy){ dlb_program_find_place(&g->node[node], in->tensor, m), x.memory,
					  is_weight ? x.bytes :
						      (double)dlb_tensor_bytes(&g->graph->tensor[in->tensor],
									       g->size[in->micro_batch]) };
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
					 "the tensors offloaded to memory '%s' take %.4g MB of %.4g MB",
					 c->memory[i].name, bytes[i] / 1e6,
					 c->memory[i].bytes * c->memory[i].count / 1e6);
	free(bytes);
	return rc;
}

/* ---- pass 3 of the compiler ---- */

static int at_least(int a, int least) { return a < least ? least : a; }

/* Makes the place of the states of weight t live from action `from` to before action `to`, and adds its
 * copies. */
static void live(struct compiler *c, int node, int t, int update, int from, int to)
{
	const int inst = dlb_compile_instance(c, t, node, true), slot = inst * c->M;
	const struct {
		int action, type;
	} hook[] = {
		{ from, HOOK_FETCH }, { update, HOOK_FETCHED }, { update, HOOK_STORE }, { to, HOOK_STORED }
	};

	c->slot[slot].first = from;
	c->slot[slot].last = update;
	c->slot[slot].sent = to;
	for (int i = 0; i < DLB_LEN(hook); i++)
		dlb_compile_add_hook(c, node,
				     (struct hook){ hook[i].action, hook[i].type, slot, t, 0, -1, -1, false,
						    true });
}

static void hook_states(struct compiler *c, int node)
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

/* An offloaded activation of a micro-batch: the instances of its two lives, the action that computes it
 * (made), the first action that reads its second life (read), and the action before which FETCH starts
 * (fetch). */
struct kept {
	int tensor, m, first, second, made, read, fetch;
};

static int by_read(const void *a, const void *b)
{
	const struct kept *x = a, *y = b;

	return x->read != y->read     ? (x->read < y->read ? -1 : 1) :
	       x->second != y->second ? x->second - y->second :
					x->m - y->m;
}

static int by_made(const void *a, const void *b)
{
	const struct kept *x = a, *y = b;

	return x->made != y->made   ? (x->made < y->made ? -1 : 1) :
	       x->first != y->first ? x->first - y->first :
				      x->m - y->m;
}

/* Lists the offloaded activations of the node. Returns their number. */
static int list_kept(const struct compiler *c, int node, struct kept *list)
{
	int n = 0;

	for (int t = 0; t < c->g->n_tensors; t++) {
		const int from = c->g->tensor[t].producer;

		if (from < 0 || c->p->placement[from] != node || !dlb_plan_keeps_far(c->p, c->g, t))
			continue;
		const int first = dlb_compile_instance(c, t, node, false),
			  second = dlb_compile_instance(c, t, node, true);

		for (int m = 0; m < c->M; m++)
			list[n++] = (struct kept){ .tensor = t,
						   .m = m,
						   .first = first,
						   .second = second,
						   .made = c->slot[first * c->M + m].first,
						   .read = c->slot[second * c->M + m].first };
	}
	return n;
}

static void hook_activations(struct compiler *c, int node)
{
	struct kept *list = dlb_xcalloc((size_t)c->g->n_tensors * (size_t)c->M + 1, sizeof *list);
	const int n = list_kept(c, node, list);

	qsort(list, (size_t)n, sizeof *list, by_read);
	for (int i = 0, before = n ? at_least(list[0].read - FIRST_FETCH_AHEAD, 0) : 0; i < n; i++) {
		struct kept *x = &list[i];
		const int slot = x->second * c->M + x->m;

		if (i && list[i - 1].read < x->read)
			before = list[i - 1].read;
		x->fetch = at_least(before, x->made + 1);
		c->slot[slot].first = x->fetch;
		dlb_compile_add_hook(c, node,
				     (struct hook){ x->fetch, HOOK_FETCH, slot, x->tensor, x->m, -1, -1,
						    false, true });
		dlb_compile_add_hook(c, node,
				     (struct hook){ x->read, HOOK_FETCHED, slot, x->tensor, x->m, -1, -1,
						    false, true });
	}
	qsort(list, (size_t)n, sizeof *list, by_made);
	for (int i = n - 1, next = INT_MAX, second = INT_MAX; i >= 0; i--) { /* next actions that store */
		const struct kept *x = &list[i];

		if (i + 1 < n && list[i + 1].made > x->made) {
			second = next;
			next = list[i + 1].made;
		}
		const int slot = x->first * c->M + x->m, stop = second < x->fetch ? second : x->fetch;
		struct slot *root = &c->slot[c->root[x->first] * c->M + x->m];

		root->sent = at_least(root->sent, stop);
		dlb_compile_add_hook(c, node,
				     (struct hook){ x->made, HOOK_STORE, slot, x->tensor, x->m, -1, -1, false,
						    false });
		dlb_compile_add_hook(c, node,
				     (struct hook){ stop, HOOK_STORED, slot, x->tensor, x->m, -1, -1, false,
						    false });
	}
	free(list);
}

void dlb_compile_hook_offload(struct compiler *c)
{
	for (int node = 0; node < c->p->n_nodes; node++) {
		if (c->out->offload)
			hook_states(c, node);
		if (c->p->far && dlb_compile_is_for(c, node))
			hook_activations(c, node);
	}
}
