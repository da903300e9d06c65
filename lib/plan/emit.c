/* Pass 5 of the compiler (compile.c): emits hooks and actions in order as the program of a node; under an
 * asynchronous schedule in the order of the loop (async.c). */
#include <stdlib.h>
#include <string.h>
#include "optim/kfac.h"
#include "plan/buckets.h"
#include "plan/compile.h"
#include "plan/shares.h"

/* ---- instructions ---- */

static const struct { unsigned char verb; bool sent;
} of_hook[N_HOOKS] = {
	[HOOK_WAIT_SENT] = { DLB_WAIT, true },      [HOOK_FREE_BEFORE] = { DLB_FREE, false },
	[HOOK_FETCH] = { DLB_FETCH, false },        [HOOK_STORE] = { DLB_STORE, false },
	[HOOK_FETCHED] = { DLB_FETCHED, false },    [HOOK_STORED] = { DLB_STORED, false },
	[HOOK_POST] = { DLB_POST, false },          [HOOK_COPY] = { DLB_COPY, false },
	[HOOK_WAIT] = { DLB_WAIT, false },          [HOOK_SEND] = { DLB_SEND, false },
	[HOOK_SENT_AFTER] = { DLB_WAIT, true },     [HOOK_FREE_AFTER] = { DLB_FREE, false },
	[HOOK_REDUCED] = { DLB_COLLECTIVE, false }, [HOOK_COMPUTED] = { DLB_COLLECTIVE, false },
	[HOOK_REDUCE] = { DLB_COLLECTIVE, false },
};

/* Begins the lifetime of an instance that the instruction writes. */
static void begin_life(struct compiler *c, int instance, int m, const struct dlb_instr *in, int at)
{
	struct slot *s = &c->slot[instance * c->M + (m < 0 ? 0 : m)];
	s->begin = at;
	s->begin_at = in->iteration;
}

/* Begins the lifetimes of the shares of gradients that the end of the bucket's sum copies to places. */
static void begin_shares(struct compiler *c, const struct dlb_node_program *np, int node,
			 const struct dlb_bucket *b)
{
	for (int i = 0; i < b->n_ops && b->cls != DLB_SUM_WEIGHTS; i++)
		if (dlb_program_has_share_place(c->out, b->op[i]))
			begin_life(c,
				   dlb_compile_instance(c, dlb_update_gradient(c->g, b->op[i]), node, true),
				   0, &np->instr[np->n_instr - 1], np->n_instr - 1);
}

static void emit_hook(struct compiler *c, int node, const struct hook *x, int iteration)
{
	struct dlb_node_program *np = &c->out->node[node];
	if (x->type == HOOK_POST || x->type == HOOK_COPY || x->type == HOOK_FETCH ||
	    (x->type == HOOK_REDUCE && x->slot >= 0)) {
		c->slot[x->slot].begin = np->n_instr;
		c->slot[x->slot].begin_at = iteration;
	}
	if (x->type == HOOK_FREE_BEFORE || x->type == HOOK_FREE_AFTER) {
		c->slot[x->slot].end = np->n_instr;
		c->slot[x->slot].end_at = iteration;
	}
	bool old = c->out->depth && c->out->staleness == DLB_STALE_2BW && x->m < 0 &&
		   (of_hook[x->type].sent || x->type == HOOK_SEND);
	np->instr[np->n_instr++] = (struct dlb_instr){ .verb = of_hook[x->type].verb,
						       .sent = of_hook[x->type].sent,
						       .op = -1,
						       .what = x->type == HOOK_REDUCED  ? DLB_RUN_REDUCED :
							       x->type == HOOK_REDUCE   ? DLB_RUN_REDUCE :
							       x->type == HOOK_COMPUTED ? DLB_RUN_COMPUTED :
											  0,
						       .zero_copy = x->zero_copy,
						       .again = x->again,
						       .tensor = x->tensor,
						       .micro_batch = x->m,
						       .iteration = iteration,
						       .version = old,
						       .peer = x->peer,
						       .tag = x->tag };
	if (x->type == HOOK_REDUCED)
		begin_shares(c, np, node, &np->bucket[x->tag]);
}

/* Emits the first half of an op that runs in two halves, and the sum of its statistics over the replicas. */
static void emit_sums(struct compiler *c, struct dlb_node_program *np, const struct action *x, int iteration)
{
	static const struct { unsigned char verb, what;
	} steps[] = { { DLB_COMPUTE, DLB_RUN_SUMS },
		      { DLB_COLLECTIVE, DLB_RUN_REDUCE },
		      { DLB_COLLECTIVE, DLB_RUN_REDUCED } };
	for (int i = 0; i < 3; i++)
		np->instr[np->n_instr++] = (struct dlb_instr){ .verb = steps[i].verb,
							       .what = steps[i].what,
							       .op = x->op,
							       .tensor = -1,
							       .micro_batch = x->m,
							       .iteration = iteration,
							       .peer = -1,
							       .tag = i ? c->out->statistics[x->op] : -1 };
}

static void emit_step_end(struct compiler *c, struct dlb_node_program *np)
{
	np->instr[np->n_instr++] = (struct dlb_instr){ .verb = DLB_COLLECTIVE,
						       .what = DLB_RUN_STEP_END,
						       .op = -1,
						       .tensor = -1,
						       .iteration = c->out->depth,
						       .peer = -1,
						       .tag = -1 };
}

/* K-FAC: emits the preconditioning of the gradients of the node's layers. */
static void emit_preconditions(struct compiler *c, int node)
{
	struct dlb_node_program *np = &c->out->node[node];
	for (int i = 0; i < c->g->n_ops; i++)
		if (c->p->placement[i] == node && dlb_kfac_layer_of(c->g, i) == i)
			np->instr[np->n_instr++] = (struct dlb_instr){ .verb = DLB_COMPUTE,
								       .what = DLB_RUN_PRECONDITION,
								       .op = i,
								       .tensor = -1,
								       .micro_batch = -1,
								       .peer = -1,
								       .tag = -1 };
}

static int count_layers(const struct compiler *c, int node)
{
	int n = 0;
	for (int i = 0; i < c->g->n_ops; i++)
		n += c->p->placement[i] == node && dlb_kfac_layer_of(c->g, i) == i;
	return n;
}

static void emit_action(struct compiler *c, int node, const struct action *x, bool end, int iteration)
{
	struct dlb_node_program *np = &c->out->node[node];
	struct dlb_instr in = { .verb = DLB_COMPUTE,
				.op = x->op,
				.tensor = -1,
				.micro_batch = x->m,
				.iteration = iteration,
				.again = x->again,
				.peer = -1,
				.tag = -1 };
	const struct dlb_op *o = x->op < 0 || x->tensor >= 0 ? NULL : &c->g->op[x->op];
	if (x->op < 0) {
		if (end)
			emit_step_end(c, np);
		if (x->norm == TRUST)
			emit_preconditions(c, node);
		if (x->norm == NO_NORM)
			return;
		in.verb = DLB_COLLECTIVE;
		in.what = x->norm == SQUARES ? DLB_RUN_SQUARES :
			  x->norm == TRUST   ? DLB_RUN_TRUST :
					       DLB_RUN_NORM;
	} else if (x->tensor >= 0) {
		in.what = DLB_RUN_ACCUMULATE;
		in.tensor = x->tensor;
	} else if (c->g->op[x->op].phase == DLB_UPDATE) {
		in.what = DLB_RUN_UPDATE;
		in.micro_batch = -1;
	} else {
		in.what = DLB_RUN_OP;
		if (c->out->statistics && c->out->statistics[x->op] >= 0)
			emit_sums(c, np, x, iteration);
	}
	for (int j = 0; o && j < o->n_out; j++)
		if (o->out[j] >= 0)
			begin_life(c, dlb_compile_instance(c, o->out[j], node, x->again), x->m, &in,
				   np->n_instr);
	for (int j = 0; o && x->again && j < o->n_in; j++)
		if (dlb_op_updates_input(c->g, x->op, j))
			begin_life(c, dlb_compile_instance(c, o->in[j], node, true), x->m, &in, np->n_instr);
	np->instr[np->n_instr++] = in;
}

/* ---- asynchronous: one step, folded ---- */

static int iteration_of(const struct compiler *c, const struct action *x)
{
	return c->lag ? (int)(x->key / c->slot_keys) / (2 * c->M) : 0;
}

/* Position of an action in the loop; at equal positions older steps come first. */
struct folded { int64_t key; int iteration, action; };
static int by_fold(const void *a, const void *b)
{
	const struct folded *x = a, *y = b;
	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return x->iteration != y->iteration ? y->iteration - x->iteration : x->action - y->action;
}

static void fold(struct compiler *c, int node)
{
	struct node_code *l = &c->code[node];
	struct folded *list = dlb_xcalloc((size_t)l->n_actions + 1, sizeof *list);
	bool *used = dlb_xcalloc((size_t)l->n_actions + 1, sizeof *used);
	int64_t period = 2 * c->M * c->slot_keys;
	for (int i = 0; i < l->n_hooks; i++)
		used[l->hook[i].action] = true;
	for (int a = 0; a < l->n_actions; a++) {
		list[a] = (struct folded){ l->action[a].key % period, iteration_of(c, &l->action[a]), a };
		if ((used[a] || l->action[a].op >= 0 || l->action[a].norm) &&
		    list[a].iteration > c->out->depth)
			c->out->depth = list[a].iteration;
	}
	qsort(list, (size_t)l->n_actions, sizeof *list, by_fold);
	l->fold = dlb_xcalloc((size_t)l->n_actions + 1, sizeof(int));
	for (int a = 0; a < l->n_actions; a++)
		l->fold[a] = list[a].action;
	free(list);
	free(used);
}

/* Lists the items that read or change weights, in the order of the loop. */
static void list_items(struct compiler *c, int node, struct dlb_async_node *v)
{
	struct node_code *l = &c->code[node];
	v->node = node;
	v->item = dlb_xcalloc((size_t)(l->n_actions + l->n_hooks) + 1, sizeof *v->item);
	v->weight = dlb_xcalloc((size_t)c->g->n_tensors + 1, sizeof *v->weight);
	c->item_of[node] = dlb_xcalloc((size_t)l->n_actions + 1, sizeof(int));
	int *send = dlb_xcalloc((size_t)l->n_hooks + 1, sizeof(int)), n_sends = 0;
	for (int k = 0; k < l->n_hooks; k++)
		if (l->hook[k].type == HOOK_SEND && l->hook[k].m < 0)
			send[n_sends++] = k;
	for (int i = 0; i < l->n_actions; i++) {
		int a = l->fold[i];
		const struct action *x = &l->action[a];
		c->item_of[node][a] = v->n;
		if (x->op >= 0 && x->tensor < 0)
			v->item[v->n++] = (struct dlb_async_item){
				x->op, x->m < 0 ? 0 : x->m, -1, iteration_of(c, x), 0, -1, false
			};
		for (int k = 0; k < n_sends && x->op < 0; k++)
			if (l->hook[send[k]].action == a)
				v->item[v->n++] = (struct dlb_async_item){
					-1, 0, l->hook[send[k]].tensor, iteration_of(c, x), 0, -1, false
				};
	}
	free(send);
}

/* The number of steps whose sums of update's gradient are alive at once; above 1 if the next step's sum
 * begins before this step's sum is used. */
static int sum_places(const struct compiler *c, int update)
{
	int t = dlb_update_gradient(c->g, update), from = t < 0 ? -1 : c->g->tensor[t].producer;
	if (from < 0)
		return 1;
	int begins = c->lag[from] + (c->p->placement[from] != c->p->placement[update]);
	return 1 + (2 * (c->M - 1) + c->lag[update] - begins) / (2 * c->M);
}

int dlb_compile_async(struct compiler *c, int n_state, struct dlb_error *err)
{
	c->versions = dlb_xcalloc((size_t)c->p->n_nodes, sizeof *c->versions);
	c->item_of = dlb_xcalloc((size_t)c->p->n_nodes, sizeof *c->item_of);
	for (int node = 0; node < c->p->n_nodes; node++)
		fold(c, node);
	for (int node = 0; node < c->p->n_nodes; node++)
		list_items(c, node, &c->versions[node]);
	if (dlb_async_versions(&c->f, c->versions, c->out->depth, n_state, &c->out->staleness, err))
		return -1;
	for (int node = 0; node < c->p->n_nodes; node++) {
		struct dlb_async_node *v = &c->versions[node];
		struct dlb_node_program *np = &c->out->node[node];
		np->n_weights = v->n_weights;
		np->weight = dlb_arena_array(&c->out->arena, (size_t)v->n_weights + 1, sizeof *np->weight);
		if (v->n_weights)
			memcpy(np->weight, v->weight, (size_t)v->n_weights * sizeof *np->weight);
		for (int k = 0; k < v->n_weights; k++)
			np->weight[k].sums = sum_places(c, np->weight[k].update);
	}
	return 0;
}

static void emit_copy_of_weight(struct dlb_node_program *np, int what, int update, int iteration, int version)
{
	np->instr[np->n_instr++] = (struct dlb_instr){ .verb = DLB_COMPUTE,
						       .what = (unsigned char)what,
						       .op = update,
						       .tensor = -1,
						       .micro_batch = -1,
						       .iteration = iteration,
						       .version = version,
						       .peer = -1,
						       .tag = -1 };
}

/* Emits an item, after the copies of weights that precede it. */
static void emit_item(struct compiler *c, int node, int a, bool end)
{
	const struct action *x = &c->code[node].action[a];
	struct dlb_node_program *np = &c->out->node[node];
	int iteration = iteration_of(c, x), at;
	if (!c->lag || x->op < 0 || x->tensor >= 0) {
		emit_action(c, node, x, end, iteration);
		return;
	}
	const struct dlb_async_node *v = &c->versions[node];
	const struct dlb_async_item *item = &v->item[c->item_of[node][a]];
	if (item->keep)
		emit_copy_of_weight(np, DLB_RUN_KEEP, item->op, iteration, 0);
	for (int k = item->predict; k >= 0; k = v->weight[k].next)
		emit_copy_of_weight(np, DLB_RUN_PREDICT, v->weight[k].update, iteration,
				    v->weight[k].distance);
	at = np->n_instr;
	emit_action(c, node, x, end, iteration);
	for (; at < np->n_instr; at++)		/* both halves of an op that runs in two */
		if (np->instr[at].verb == DLB_COMPUTE)
			np->instr[at].version = item->version;
}

/* Sorts the node's hooks by action, then by type. by: [hook]; start: [action + 2], zeroed: start[a] becomes
 * the index in by[] of the first hook of action a. */
static void sort_hooks(const struct node_code *l, int *start, int *by)
{
	int of_type[N_HOOKS + 1] = { 0 }, *by_type = dlb_xmalloc(((size_t)l->n_hooks + 1) * sizeof(int));

	for (int i = 0; i < l->n_hooks; i++) {
		of_type[l->hook[i].type + 1]++;
		start[l->hook[i].action + 2]++;
	}
	for (int t = 0; t < N_HOOKS; t++)
		of_type[t + 1] += of_type[t];
	for (int a = 0; a < l->n_actions; a++)
		start[a + 2] += start[a + 1];
	for (int i = 0; i < l->n_hooks; i++)
		by_type[of_type[l->hook[i].type]++] = i;
	for (int i = 0; i < l->n_hooks; i++)
		by[start[l->hook[by_type[i]].action + 1]++] = by_type[i];
	free(by_type);
}

void dlb_compile_emit(struct compiler *c, int node)
{
	struct node_code *l = &c->code[node];
	struct dlb_node_program *np = &c->out->node[node];
	int *start = dlb_xcalloc((size_t)l->n_actions + 2, sizeof(int)),
	    *by = dlb_xmalloc(((size_t)l->n_hooks + 1) * sizeof(int));
	sort_hooks(l, start, by);
	np->instr = dlb_arena_array(&c->out->arena,
				    (size_t)l->n_hooks + (size_t)l->n_actions + 2 * (size_t)np->n_weights +
					    (size_t)count_layers(c, node) +
					    3 * (size_t)dlb_compile_count_statistics(c, node) * (size_t)c->M +
					    2,
				    sizeof *np->instr);
	for (int i = 0; i < l->n_actions; i++) {
		int a = l->fold ? l->fold[i] : i, k = start[a], iteration = iteration_of(c, &l->action[a]);
		for (; k < start[a + 1] && l->hook[by[k]].type < HOOK_SEND; k++)
			emit_hook(c, node, &l->hook[by[k]], iteration);
		emit_item(c, node, a, a == l->n_actions - 1 && !c->lag);
		for (; k < start[a + 1]; k++)
			emit_hook(c, node, &l->hook[by[k]], iteration);
	}
	if (c->lag)
		emit_step_end(c, np);
	np->n_loop = np->n_instr;
	free(start);
	free(by);
}
