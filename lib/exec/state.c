/* The state of a node from step to step: weights, running statistics, gradient sums, optimizer state.
 *
 * A weight is on the node of its home op (its update). Every node computes this from graph and placement, so
 * no messages are needed. */
#include <stdlib.h>
#include <string.h>
#include "exec/engine.h"
#include "exec/offload_store.h"
#include "exec/runtime.h"
#include "exec/state.h"
#include "graph/passes.h"
#include "model/onnx.h"
#include "optim/kfac.h"
#include "plan/buckets.h"
#include "plan/offload.h"
#include "plan/replica.h"
#include "plan/tensors.h"

int dlb_state_home(const struct dlb_graph *g, const int *placement, int tensor)
{
	int op = dlb_graph_home(g, tensor);

	return op < 0 ? -1 : placement[op];
}

/* Allocates the array of tensor `name`. comm: its ranks on this host can access the array; NULL: only this
 * rank can. */
static void *take(struct dlb_backend *be, struct dlb_comm *comm, const char *name, size_t bytes,
		  struct dlb_error *err)
{
	void *p = dlb_visible_alloc(comm, be, bytes ? bytes : 1);

	char quoted[200];

	if (!p) {
		snprintf(quoted, sizeof quoted, "'%s'", name);
		dlb_no_memory(be, bytes, quoted, err);
	}
	return p;
}

/* As take, but returns the array *before if there is one, and sets *before to NULL. */
static void *take_over(struct dlb_backend *be, void **before, const char *name, size_t bytes,
		       struct dlb_error *err)
{
	void *p = before ? *before : NULL;

	if (!p)
		return take(be, NULL, name, bytes, err);
	*before = NULL;
	return p;
}

static void release_slot(struct dlb_state *s, void *p)
{
	if (!dlb_offload_store_release_room(s->store, p))
		s->be->ops->free(s->be, p);
}

/* Room for `bytes` bytes of tensor t: in the memory that a rule of the plan names, or near (rule -1).
 * *before, if there is one, is taken over if it is in that memory; else it is copied and released. */
static void *take_slot(struct dlb_state *s, const struct dlb_local_graph *l, int rule, int t, size_t bytes,
		       void **before, struct dlb_error *err)
{
	const char *name = l->graph->tensor[t].name,
		   *memory = rule < 0 ? NULL : l->plan->offload.rule[rule].memory;
	void *p;

	if (before && *before && dlb_offload_store_is_in(l->store, *before, memory))
		return take_over(l->be, before, name, bytes, err);
	p = memory ? dlb_offload_store_alloc(l->store, memory, bytes, name, err) :
		     take(l->be, NULL, name, bytes, err);
	if (p && before && *before) {
		l->be->ops->upload(l->be, p, *before, bytes);
		release_slot(s, *before);
		*before = NULL;
	}
	return p;
}

/* The rule of the plan by which the states of weight t, or its value, are kept in another memory; -1:
 * near. */
static int rule_of(const struct dlb_local_graph *l, enum dlb_offload_kind kind, int t)
{
	if (!l->store)
		return -1;
	return kind == DLB_OFFLOAD_WEIGHTS ?
		       dlb_offload_weight_rule(&l->plan->offload, l->graph, l->placement, t) :
		       dlb_offload_rule_of(&l->plan->offload, kind, l->graph, t);
}

bool dlb_state_is_divided(const struct dlb_state *s, int t)
{
	const struct dlb_tensor *x = &s->graph->tensor[t];

	return s->n_shares > 1 && s->n_slots && x->kind == DLB_T_WEIGHT && x->home >= 0 &&
	       s->graph->op[x->home].phase == DLB_UPDATE;
}

struct dlb_share dlb_state_share(const struct dlb_state *s, int t)
{
	const struct dlb_desc d = dlb_tensor_desc(&s->graph->tensor[t], 1);

	return dlb_share_of(dlb_desc_count(&d), s->n_shares, s->share);
}

int dlb_state_chunks(const struct dlb_state *s)
{
	return s->n_shares > 1 || s->n_chunks < 2 ? 1 : s->n_chunks;
}

struct dlb_share dlb_state_held(const struct dlb_state *s, int t)
{
	const struct dlb_desc d = dlb_tensor_desc(&s->graph->tensor[t], 1);
	const struct dlb_share all = { 0, dlb_desc_count(&d) };

	return dlb_state_gathers(s, t) ? dlb_state_share(s, t) : all;
}

size_t dlb_state_value_bytes(const struct dlb_state *s, int t)
{
	return (size_t)dlb_state_held(s, t).n * dlb_dtype_bytes(s->graph->tensor[t].dtype);
}

size_t dlb_state_slot_bytes(const struct dlb_state *s, int t)
{
	return dlb_state_bytes(s->dtype, dlb_dtype_bytes(s->graph->tensor[t].dtype), dlb_state_share(s, t).n,
			       dlb_state_chunks(s));
}

/* Finds the weights of which each replica keeps a share only. */
static void find_gathered(struct dlb_state *s, const struct dlb_local_graph *l)
{
	if (l->n_shares < 2 || !l->plan || l->plan->sharing.zero != 3)
		return;
	s->gathered = dlb_arena_array(&s->arena, (size_t)s->graph->n_tensors + 1, sizeof *s->gathered);
	for (int t = 0; t < s->graph->n_tensors; t++)
		s->gathered[t] = dlb_weight_is_gathered(s->graph, s->placement, t);
}

int dlb_state_init(struct dlb_state *s, const struct dlb_local_graph *l, int rule, bool all_sums,
		   struct dlb_comm *replicas, struct dlb_error *err)
{
	const struct dlb_graph *g = l->graph;
	struct dlb_backend *be = l->be;
	const int *placement = l->placement;
	struct dlb_state *was = l->before && l->before->share == l->share ? l->before : NULL;
	size_t n = (size_t)g->n_tensors + 1;

	memset(s, 0, sizeof *s);
	s->graph = g;
	s->be = be;
	s->comm = replicas;
	s->store = l->store;
	s->placement = s->first_placement = placement;
	s->node = l->node;
	s->rule = rule;
	s->n_slots = rule >= 0 ? dlb_optimizers[rule].n_state : 0;
	s->n_shares = l->n_shares;
	s->share = l->share;
	s->dtype = l->plan ? l->plan->state_dtype : DLB_STATE_F32;
	s->n_chunks = l->plan ? l->plan->n_replicas : 1;
	s->value = dlb_arena_array(&s->arena, n, sizeof *s->value);
	s->copy = dlb_arena_array(&s->arena, n, sizeof *s->copy);
	s->sum = dlb_arena_array(&s->arena, (size_t)g->n_ops + 1, sizeof *s->sum);
	s->sum_bytes = dlb_arena_array(&s->arena, (size_t)g->n_ops + 1, sizeof *s->sum_bytes);
	s->copy_bytes = dlb_arena_array(&s->arena, n, sizeof *s->copy_bytes);
	for (int k = 0; k < s->n_slots; k++)
		s->slot[k] = dlb_arena_array(&s->arena, n, sizeof *s->slot[k]);
	find_gathered(s, l);
	for (int t = 0; t < g->n_tensors; t++) {
		const struct dlb_tensor *x = &g->tensor[t];
		size_t bytes;

		if ((x->kind != DLB_T_WEIGHT && x->kind != DLB_T_BUFFER) ||
		    dlb_state_home(g, placement, t) != l->node)
			continue;
		bytes = (size_t)dlb_tensor_bytes(x, 1);
		const int weight_rule = rule_of(l, DLB_OFFLOAD_WEIGHTS, t),
			  state_rule = rule_of(l, DLB_OFFLOAD_STATES, t);

		/* a whole weight and a share of it are different arrays: move.c */
		const bool same = was && dlb_state_gathers(was, t) == dlb_state_gathers(s, t);

		if (!(s->value[t] = take_slot(s, l, weight_rule, t, dlb_state_value_bytes(s, t),
					      same ? &was->value[t] : NULL, err)))
			return -1;
		if (x->kind != DLB_T_WEIGHT || x->home < 0 || g->op[x->home].phase != DLB_UPDATE)
			continue;
		for (int k = 0; k < s->n_slots; k++)
			if (!(s->slot[k][t] = take_slot(s, l, state_rule, t, dlb_state_slot_bytes(s, t),
							was ? &was->slot[k][t] : NULL, err)))
				return -1;
		if ((all_sums || dlb_kfac_layer_of(g, x->home) >= 0 ||
		     (replicas && !dlb_gradient_is_own(g, placement, x->home))) &&
		    !(s->sum[x->home] = take(be, s->comm, x->name, bytes, err)))
			return -1;
		s->sum_bytes[x->home] = bytes;
	}
	return 0;
}

/* Moves array[was] to now[is], or releases it. */
static void carry(struct dlb_state *s, void **array, int was, void **now, int is, bool keeps)
{
	if (keeps)
		now[is] = array[was];
	else
		release_slot(s, array[was]);
	array[was] = NULL;
}

/* Makes the arrays of `now`, empty, for graph `to`. */
static void number_as(struct dlb_state *now, const struct dlb_graph *to)
{
	const size_t n = (size_t)to->n_tensors + 1;

	now->graph = to;
	now->value = dlb_arena_array(&now->arena, n, sizeof *now->value);
	now->copy = dlb_arena_array(&now->arena, n, sizeof *now->copy);
	now->sum = dlb_arena_array(&now->arena, (size_t)to->n_ops + 1, sizeof *now->sum);
	for (int k = 0; k < now->n_slots; k++)
		now->slot[k] = dlb_arena_array(&now->arena, n, sizeof *now->slot[k]);
}

void dlb_state_follow(struct dlb_state *s, const struct dlb_graph *to)
{
	const struct dlb_graph *was = s->graph;
	struct dlb_state now = { .be = s->be,
				 .node = s->node,
				 .rule = s->rule,
				 .n_slots = s->n_slots,
				 .n_shares = s->n_shares,
				 .share = s->share,
				 .store = s->store,
				 .dtype = s->dtype,
				 .n_chunks = s->n_chunks };
	struct dlb_name_map id = { 0 };
	int *before = dlb_xcalloc((size_t)to->n_ops + 1, sizeof *before), *where;

	number_as(&now, to);
	for (int t = 0; t < to->n_tensors; t++)
		dlb_name_map_add(&id, to->tensor[t].name, t);
	for (int t = 0; t < was->n_tensors; t++) {
		const int is = dlb_name_map_get(&id, was->tensor[t].name),
			  home = is < 0 ? -1 : to->tensor[is].home;

		carry(s, s->value, t, now.value, is, is >= 0);
		for (int k = 0; k < s->n_slots; k++)
			carry(s, s->slot[k], t, now.slot[k], is,
			      home >= 0 && to->op[home].phase == DLB_UPDATE);
	}
	dlb_name_map_release(&id);
	dlb_graph_ops_before(was, to, before);
	where = dlb_arena_array(&now.arena, (size_t)to->n_ops + 1, sizeof *where);
	for (int i = 0; i < to->n_ops; i++)
		where[i] = s->placement[before[i]];
	now.placement = now.first_placement = where;
	free(before);
	dlb_state_release(s);
	*s = now;
}

int dlb_state_add_copies(struct dlb_state *s, const struct dlb_program *p, int n_programs,
			 struct dlb_error *err)
{
	int *most = dlb_xcalloc((size_t)s->graph->n_tensors + 1, sizeof *most),
	    *sums = dlb_xcalloc((size_t)s->graph->n_tensors + 1, sizeof *sums);
	int rc = 0;

	for (int i = 0; i < n_programs; i++) {
		const struct dlb_node_program *np = &dlb_program_of(&p[i], s->node)->node[s->node];

		for (int k = 0; k < np->n_weights; k++) {
			const struct dlb_weight_copies *w = &np->weight[k];

			most[w->tensor] = w->n > most[w->tensor] ? w->n : most[w->tensor];
			if (dlb_program_sums(dlb_program_of(&p[i], s->node), w->update))
				sums[w->tensor] = w->sums > sums[w->tensor] ? w->sums : sums[w->tensor];
		}
	}
	for (int t = 0; t < s->graph->n_tensors && !rc; t++) {
		const struct dlb_tensor *x = &s->graph->tensor[t];
		const size_t bytes = dlb_place_bytes((size_t)dlb_tensor_bytes(x, 1));

		s->copy_bytes[t] = (size_t)most[t] * bytes;
		if (most[t] && !(s->copy[t] = take(s->be, NULL, x->name, s->copy_bytes[t], err)))
			rc = -1;
		if (sums[t] < 2 || rc)
			continue;
		/* several places replace the single place of synchronous schedules */
		dlb_visible_free(s->comm, s->be, s->sum[x->home]);
		s->sum_bytes[x->home] = (size_t)sums[t] * bytes;
		if (!(s->sum[x->home] = take(s->be, s->comm, x->name, s->sum_bytes[x->home], err)))
			rc = -1;
	}
	free(most);
	free(sums);
	return rc;
}

void dlb_state_release(struct dlb_state *s)
{
	if (!s->be)
		return;
	for (int t = 0; t < s->graph->n_tensors; t++) {
		release_slot(s, s->value[t]);
		s->be->ops->free(s->be, s->copy[t]);
		for (int k = 0; k < s->n_slots; k++)
			release_slot(s, s->slot[k][t]);
	}
	for (int o = 0; o < s->graph->n_ops; o++)
		dlb_visible_free(s->comm, s->be, s->sum[o]);
	for (int i = 0; i < s->n_constants; i++)
		release_slot(s, s->constant[i].p);
	free(s->constant);
	dlb_arena_release(&s->arena);
	memset(s, 0, sizeof *s);
}

int dlb_state_load_graph(struct dlb_state *s, bool init, uint64_t seed, uint64_t start_seed,
			 struct dlb_error *err)
{
	const struct dlb_graph *g = s->graph;

	for (int t = 0; t < g->n_tensors; t++) {
		const struct dlb_tensor *x = &g->tensor[t];
		const size_t first_byte = (size_t)dlb_state_held(s, t).first * dlb_dtype_bytes(x->dtype);
		struct dlb_desc d;
		void *fresh;

		if (!s->value[t])
			continue;
		/* fresh weights get fresh statistics: the old ones belong to other activations */
		const bool drawn = x->start == DLB_START_DRAWN ||
				   (init && x->start == DLB_START_MODEL &&
				    (x->kind == DLB_T_WEIGHT || x->kind == DLB_T_BUFFER));
		d = dlb_tensor_desc(x, 1);
		if (x->data && !drawn) {
			/* the file's values have not been read before now */
			if (g->external_unread && dlb_arena_maps(&g->arena, x->data) &&
			    dlb_onnx_check_finite(g->model_path, &d, x->data, x->name, err))
				return -1;
			s->be->ops->upload(s->be, s->value[t], (const char *)x->data + first_byte,
					   dlb_state_value_bytes(s, t));
			continue;
		}
		if (!init && !drawn && x->kind == DLB_T_WEIGHT && !x->is_fill)
			return dlb_hint((dlb_fail(err, NULL, "weight '%s' has no values", x->name), err),
					"--init SEED draws fresh ones");
		fresh = dlb_xmalloc(dlb_desc_bytes(&d) + 1);
		if (x->is_fill && !drawn) {
			for (int64_t i = 0; i < dlb_desc_count(&d); i++)
				dlb_value_set(fresh, d.dtype, i, x->fill);
		} else {
			dlb_weight_draw(g, t, init ? seed : start_seed, fresh);
		}
		s->be->ops->upload(s->be, s->value[t], (char *)fresh + first_byte,
				   dlb_state_value_bytes(s, t));
		free(fresh);
	}
	return s->be->ops->sync(s->be, err);
}

void *dlb_state_constant(struct dlb_state *s, int tensor, int64_t n, const char *memory,
			 struct dlb_error *err)
{
	const struct dlb_tensor *x = &s->graph->tensor[tensor];
	struct dlb_state_constant *c;
	struct dlb_desc d;
	const void *value;
	void *p, *spelt = NULL;

	if (!dlb_tensor_follows_batch(x))
		n = 1;
	for (int i = 0; i < s->n_constants; i++)
		if (s->constant[i].tensor == tensor && s->constant[i].n == n)
			return s->constant[i].p;
	d = dlb_tensor_desc(x, n);
	value = dlb_tensor_value(x, n, &s->arena);
	if (!value && x->is_fill) {	/* too large for dlb_tensor_value to expand, but a kernel reads it */
		value = spelt = dlb_xmalloc(dlb_desc_bytes(&d) + 1);
		for (int64_t i = 0, count = dlb_desc_count(&d); i < count; i++)
			dlb_value_set(spelt, d.dtype, i, x->fill);
	}
	if (!value) {
		dlb_fail(err, NULL, "constant '%s' has no values", x->name);
		return NULL;
	}
	p = memory ? dlb_offload_store_alloc(s->store, memory, dlb_desc_bytes(&d), x->name, err) :
		     take(s->be, NULL, x->name, dlb_desc_bytes(&d), err);
	if (p)
		s->be->ops->upload(s->be, p, value, dlb_desc_bytes(&d));
	free(spelt);
	if (p && s->be->ops->sync(s->be, err)) {
		release_slot(s, p);
		p = NULL;
	}
	if (!p)
		return NULL;
	DLB_GROW(s->constant, s->n_constants, s->cap_constants);
	c = &s->constant[s->n_constants++];
	c->tensor = tensor;
	c->n = n;
	c->p = p;
	return p;
}
