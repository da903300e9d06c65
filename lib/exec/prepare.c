/* A compiled program made ready to run (engine.c says what that is): kernels are prepared, and every operand, message and
 * weight copy gets its pointer. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "exec/acts.h"
#include "exec/kfac.h"
#include "util/mem.h"

static int size_class(const struct dlb_engine *e, int m)
{
	return e->view.program->size[m < 0 ? 0 : m] != e->size[0].n;
}

static bool lives_here(const struct dlb_engine *e, int t)
{
	const struct dlb_tensor *x = &e->graph->tensor[t];
	int own = e->tensor_of ? e->tensor_of[t] : t;

	return (x->kind == DLB_T_WEIGHT || x->kind == DLB_T_BUFFER) && own >= 0 && e->ground->state->value[own];
}

/* The place of tensor t of micro-batch m (-1: of the step), or -1. */
static int place_of(const struct dlb_engine *e, int t, int m)
{
	const struct dlb_tensor *x = &e->graph->tensor[t];
	int at;

	if (x->kind == DLB_T_WEIGHT || x->kind == DLB_T_BUFFER)
		m = -1;
	at = dlb_program_find_place(e->np, t, m);
	if (at < 0 && m >= 0)
		at = dlb_program_find_place(e->np, t, -1);
	if (at < 0 && dlb_graph_view_of(e->graph, t) >= 0)
		at = place_of(e, dlb_graph_view_of(e->graph, t), m);
	return at;
}

/* Where tensor t of micro-batch m (-1: of the step) lies on this node. */
void *dlb_act_resolve(struct dlb_engine *e, int t, int m, struct dlb_error *err)
{
	const struct dlb_tensor *x = &e->graph->tensor[t];
	struct dlb_state *s = e->ground->state;
	int at;

	if (x->kind == DLB_T_CONSTANT)
		return dlb_state_constant(s, e->graph, t, e->view.program->size[m < 0 ? 0 : m], err);
	if (lives_here(e, t))
		return s->value[e->tensor_of ? e->tensor_of[t] : t];
	at = place_of(e, t, m);
	if (at >= 0)
		return e->ground->arena + e->np->place[at].offset;
	dlb_fail(err, NULL, "tensor '%s' of micro-batch %d has no place on node %d", x->name, m, e->view.node);
	return NULL;
}

static struct pick *add_pick(struct dlb_engine *e, struct act *a, void **at)
{
	DLB_GROW(e->pick, e->n_picks, e->cap_picks);
	e->pick[e->n_picks] = (struct pick){ .at = at, .next = a->pick };
	a->pick = e->n_picks;
	return &e->pick[e->n_picks++];
}

/* *at is in a place of np whose arena begins at `arena`; landing: or on another node; NULL. */
static void pick_place(struct dlb_engine *e, struct act *a, void **at, const struct dlb_node_program *np, int place, char *arena,
		       const struct landing *landing)
{
	struct pick *p;

	if (place < 0 || (np->place[place].copies < 2 && !landing))
		return;
	p = add_pick(e, a, at);
	p->landing = landing;
	p->base = arena + np->place[place].offset;
	p->stride = dlb_place_bytes(np->place[place].bytes);
	p->copies = np->place[place].copies;
}

static void pick_copy(struct dlb_engine *e, struct act *a, void **at, const struct dlb_node_program *np, int place, char *arena)
{
	pick_place(e, a, at, np, place, arena, NULL);
}

/* Where what lies in that place here may lie instead; NULL: nowhere. */
static const struct landing *landing_of(const struct dlb_engine *e, int place)
{
	const struct dlb_place *p = e->np->place;

	while (e->landing && place >= 0 && p[place].of >= 0)
		place = dlb_program_find_place(e->np, p[place].of, p[place].micro_batch);
	return e->landing && place >= 0 ? e->landing[place] : NULL;
}

static const struct dlb_weight_copies *copies_of(const struct dlb_engine *e, int t)
{
	for (int k = 0; k < e->np->n_weights; k++)
		if (e->np->weight[k].tensor == t)
			return &e->np->weight[k];
	return NULL;
}

/* *at is tensor t of instruction `in`'s micro-batch; what of it follows the step? */
static void pick_tensor(struct dlb_engine *e, struct act *a, void **at, int t, const struct dlb_instr *in)
{
	const struct dlb_program *p = e->view.program;
	const struct dlb_weight_copies *w;
	struct pick *k;
	int i = (int)(in - e->np->instr);

	if (e->graph->tensor[t].kind == DLB_T_CONSTANT)
		return;
	if (!lives_here(e, t)) {
		int place = place_of(e, t, in->micro_batch);

		pick_place(e, a, at, e->np, place, e->ground->arena, landing_of(e, place));
		return;
	}
	if (!p->depth || e->update_at[t] < 0 || !(w = copies_of(e, t)))
		return;
	k = add_pick(e, a, at);
	k->weight = true;
	k->now = *at;
	k->live = e->np->instr[e->update_at[t]].iteration - in->iteration - (i > e->update_at[t]);
	k->version = p->staleness == DLB_STALE_STASH || p->staleness == DLB_STALE_2BW ? in->version : k->live;
	k->expected = p->staleness == DLB_STALE_PREDICT && k->live > 0 && e->graph->op[in->op].phase == DLB_FORWARD;
	k->base = e->ground->state->copy[t];
	k->copies = w->n;
	k->stride = dlb_place_bytes((size_t)dlb_tensor_bytes(&e->graph->tensor[t], 1));
}

static int kept(struct dlb_engine *e, struct dlb_kernel *k)
{
	if (k->scratch_bytes > e->ground->scratch_bytes)
		e->ground->scratch_bytes = k->scratch_bytes;
	e->kernel[e->n_kernels++] = k;
	return 0;
}

static int lacks(const struct dlb_engine *e, int op, struct dlb_error *err)
{
	const struct dlb_op *o = &e->graph->op[op];

	return dlb_fail(err, NULL, "no kernel for %s '%s' on node %d", o->type, o->name, e->view.node);
}

/* ---- preparing ---- */

static int prepare_op(struct dlb_engine *e, const struct dlb_instr *in, struct act *a, struct dlb_error *err)
{
	const struct dlb_op *o = &e->graph->op[in->op];
	const bool halves = e->view.program->statistics && e->view.program->statistics[in->op] >= 0, first = in->what == DLB_RUN_SUMS;
	struct dlb_kernel **k = &e->of_op[2 * (in->op + (first ? e->graph->n_ops : 0)) + size_class(e, in->micro_batch)];
	struct dlb_backend *be = e->ground->be;
	int rc = 0;

	if (!*k) {
		struct dlb_op_io *io = dlb_arena_alloc(&e->arena, sizeof *io);

		if (o->kind < 0)
			return dlb_fail(err, NULL, "op %d of type %s ('%s') can be planned, not run", in->op, o->type, o->name);
		dlb_graph_io(e->graph, in->op, e->view.program->size[in->micro_batch < 0 ? 0 : in->micro_batch], &e->arena, io);
		rc = halves ? io->cls->half(be, io, !first, k, err) : io->cls->kernel ? io->cls->kernel(be, io, k, err) : DLB_NO_KERNEL;
		if (rc == DLB_NO_KERNEL)
			return lacks(e, in->op, err);
		if (rc || kept(e, *k))
			return -1;
	}
	a->kernel = *k;
	a->op = in->op;
	const int drawn = o->phase == DLB_BACKWARD && o->of >= 0 ? o->of : in->op;
	a->vertex = (uint64_t)dlb_attr_int(e->graph->op[drawn].attr, e->graph->op[drawn].n_attr, DLB_ATTR_VERTEX, drawn);
	a->first_sample = e->view.program->first[in->micro_batch < 0 ? 0 : in->micro_batch];
	a->in = dlb_arena_array(&e->arena, (size_t)o->n_in + 1, sizeof *a->in);
	a->out = dlb_arena_array(&e->arena, (size_t)o->n_out + 1, sizeof *a->out);
	for (int i = 0; i < o->n_out && !first; i++) {
		if (o->out[i] < 0)
			continue;
		if (!(a->out[i] = dlb_act_resolve(e, o->out[i], in->micro_batch, err)))
			return -1;
		pick_tensor(e, a, &a->out[i], o->out[i], in);
	}
	if (halves)
		*(first ? a->out : a->in + o->n_in) = e->sums[in->op];
	for (int i = 0; i < o->n_in; i++) {	/* the first weight's pick is set last, and says which version is packed */
		if (o->in[i] < 0)
			continue;
		if (!(a->in[i] = dlb_act_resolve(e, o->in[i], in->micro_batch, err)))
			return -1;
		pick_tensor(e, a, &a->in[i], o->in[i], in);
	}
	return 0;
}

/* K-FAC: an operand of an update beyond its gradient. */
static int prepare_moment(struct dlb_engine *e, const struct dlb_instr *in, int moment, struct act *a, struct dlb_error *err)
{
	if (dlb_kfac_prepare_sum(e->ground->kfac, e->view.program, in->op, moment, in->micro_batch, &a->kernel, err))
		return -1;
	kept(e, a->kernel);
	a->in = dlb_arena_array(&e->arena, 1, sizeof *a->in);
	return (a->in[0] = dlb_act_resolve(e, in->tensor, in->micro_batch, err)) ? 0 : -1;
}

static int prepare_precondition(struct dlb_engine *e, const struct dlb_instr *in, struct act *a, struct dlb_error *err)
{
	const struct dlb_kfac_layer l = dlb_kfac_layer_at(e->graph, in->op);

	if (dlb_kfac_prepare_apply(e->ground->kfac, in->op, &a->kernel, err))
		return -1;
	kept(e, a->kernel);
	a->out = dlb_arena_array(&e->arena, 2, sizeof *a->out);
	a->out[0] = e->ground->state->sum[l.update];
	a->out[1] = l.bias_update < 0 ? NULL : e->ground->state->sum[l.bias_update];
	assert(a->out[0] && (l.bias_update < 0 || a->out[1]));
	return 0;
}

/* *at is in the sum of update op's gradient. */
static void pick_sum(struct dlb_engine *e, struct act *a, void **at, int op)
{
	const int places = dlb_program_sum_places(e->np, op), weight = e->graph->op[op].in[0];
	struct pick *p;

	if (places < 2)
		return;
	p = add_pick(e, a, at);
	p->base = e->ground->state->sum[op];
	p->stride = dlb_place_bytes((size_t)dlb_tensor_bytes(&e->graph->tensor[weight], 1));
	p->copies = places;
}

static int prepare_accumulate(struct dlb_engine *e, const struct dlb_instr *in, struct act *a, struct dlb_error *err)
{
	const struct dlb_tensor *x = &e->graph->tensor[in->tensor];
	struct dlb_desc d = dlb_tensor_desc(x, e->view.program->batch);
	const struct dlb_accumulate_desc desc = { .dtype = d.dtype, .count = dlb_desc_count(&d), .first = in->micro_batch == 0 };
	int rc = e->ground->be->ops->accumulate(e->ground->be, &desc, &a->kernel, err);

	if (rc)
		return rc == DLB_NO_KERNEL ? lacks(e, in->op, err) : -1;
	kept(e, a->kernel);
	a->in = dlb_arena_array(&e->arena, 1, sizeof *a->in);
	a->out = dlb_arena_array(&e->arena, 1, sizeof *a->out);
	a->out[0] = e->ground->state->sum[in->op];
	assert(a->out[0]);
	pick_sum(e, a, &a->out[0], in->op);
	if (!(a->in[0] = dlb_act_resolve(e, in->tensor, in->micro_batch, err)))
		return -1;
	pick_tensor(e, a, &a->in[0], in->tensor, in);
	return 0;
}

/* The weight that an update op changes, and its gradient. */
static void update_operands(const struct dlb_graph *g, const struct dlb_op *o, int *weight, int *gradient)
{
	*weight = *gradient = -1;
	for (int i = 0; i < o->n_in; i++) {
		if (o->in[i] < 0)
			continue;
		if (g->tensor[o->in[i]].kind == DLB_T_WEIGHT && *weight < 0)
			*weight = o->in[i];
		else if (*gradient < 0)
			*gradient = o->in[i];
	}
}

/* Where the gradient of an update of this node lies: its sum, or the one micro-batch's. */
static void *gradient_at(struct dlb_engine *e, int op, struct dlb_error *err)
{
	int weight, gradient;

	if (dlb_program_sums(e->view.program, op))
		return e->ground->state->sum[op];
	update_operands(e->graph, &e->graph->op[op], &weight, &gradient);
	return dlb_act_resolve(e, gradient, 0, err);
}

/* Whether what is made of the weight may be a number though the weight is none: oneDNN's convolution with Relu makes 0 of
 * NaN. Data of NaN leave it in the weight's gradient all the same. Anywhere else NaN goes on to the loss. */
static bool hides_nan(const struct dlb_graph *g, int weight)
{
	for (int i = g->reader_start[weight]; i < g->reader_start[weight + 1]; i++) {
		const struct dlb_op *o = &g->op[g->reader[i]];

		if (!strcmp(o->type, "Conv") && dlb_attr_find(o->attr, o->n_attr, "activation"))
			return true;
	}
	return false;
}

static bool sums_moments(const struct dlb_engine *e)
{
	return e->view.program->n_replicas > 1 && dlb_sharing_tensors(&e->view.program->whole->sharing) > 1;
}

/* A replica's own moments are of its own gradient; `a` is left to go on from what comes back. */
static int prepare_half(struct dlb_engine *e, int op, int weight, const struct dlb_optimizer_choice *c, struct act *a, struct dlb_error *err)
{
	const struct dlb_program *p = e->view.program;
	const struct dlb_state *s = e->ground->state;
	const struct dlb_desc d = dlb_tensor_desc(&e->graph->tensor[weight], 1);
	struct first_half *h = &e->half[op];
	struct dlb_optimizer_exchange x;
	struct dlb_update_desc desc;

	dlb_optimizer_exchange(c, (double)p->batch / (double)p->step_batch, &x);
	x.in = 1;			/* what is fed sees to it that the gradient is that of the own samples' mean */
	desc = dlb_optimizer_desc(c, d.dtype, dlb_desc_count(&d), DLB_UPDATE_LOCAL, &x);
	if (e->ground->be->ops->update(e->ground->be, &desc, &h->kernel, err))
		return -1;
	kept(e, h->kernel);
	h->bytes = (size_t)dlb_desc_bytes(&d);
	h->moments = dlb_arena_alloc(&e->arena, 2 * h->bytes);
	h->in[0] = a->in[0];
	h->out[0] = h->moments;
	h->out[1] = h->moments + h->bytes;
	for (int k = 0; k < s->n_slots; k++)
		h->out[2 + k] = s->slot[k][weight];
	a->in = dlb_arena_array(&e->arena, 2, sizeof *a->in);
	a->in[0] = h->out[0];
	a->in[1] = h->out[1];
	return 0;
}

/* What is foreseen is not late. */
static double rate_scale(const struct dlb_engine *e, const struct dlb_optimizer_choice *c, int weight)
{
	const struct dlb_weight_copies *w = copies_of(e, weight);

	return c->delay_discount && w && w->most > 1 && e->view.program->staleness != DLB_STALE_PREDICT ? 2.0 / (1.0 + w->most) : 1.0;
}

static int prepare_update(struct dlb_engine *e, const struct dlb_instr *in, const struct dlb_optimizer_choice *c,
			  struct act *a, struct dlb_error *err)
{
	const struct dlb_op *o = &e->graph->op[in->op];
	struct dlb_state *s = e->ground->state;
	struct dlb_update_desc desc;
	struct dlb_desc d;
	int weight, gradient, rc;

	update_operands(e->graph, o, &weight, &gradient);
	if (weight < 0 || gradient < 0 || !s->value[weight])
		return dlb_fail(err, NULL, "update '%s' has no weight and gradient on node %d", o->name, e->view.node);
	d = dlb_tensor_desc(&e->graph->tensor[weight], 1);
	desc = dlb_optimizer_desc(c, d.dtype, dlb_desc_count(&d), sums_moments(e) ? DLB_UPDATE_APPLY : DLB_UPDATE_WHOLE, NULL);
	rc = e->ground->be->ops->update(e->ground->be, &desc, &a->kernel, err);
	if (rc)
		return rc == DLB_NO_KERNEL ? lacks(e, in->op, err) : -1;
	kept(e, a->kernel);
	a->update = true;
	a->rate_scale = rate_scale(e, c, weight);
	a->preconditioned = dlb_kfac_layer_of(e->graph, in->op) >= 0;
	a->watched = hides_nan(e->graph, weight) ? weight : -1;
	a->in = dlb_arena_array(&e->arena, 1, sizeof *a->in);
	a->out = dlb_arena_array(&e->arena, 1 + DLB_MAX_STATES, sizeof *a->out);
	a->out[0] = s->value[weight];
	for (int k = 0; k < s->n_slots; k++)
		a->out[1 + k] = s->slot[k][weight];
	if (!(a->in[0] = gradient_at(e, in->op, err)))
		return -1;
	if (dlb_program_sums(e->view.program, in->op))
		pick_sum(e, a, &a->in[0], in->op);
	else
		pick_copy(e, a, &a->in[0], e->np, place_of(e, gradient, 0), e->ground->arena);
	return sums_moments(e) ? prepare_half(e, in->op, weight, c, a, err) : 0;
}

/* A copy of a weight before its update, or of what it is expected to be. */
static int prepare_copy_of_weight(struct dlb_engine *e, const struct dlb_instr *in, const struct dlb_optimizer_choice *c,
				  struct act *a, struct dlb_error *err)
{
	const struct dlb_op *o = &e->graph->op[in->op];
	struct dlb_state *s = e->ground->state;
	const struct dlb_backend_ops *ops = e->ground->be->ops;
	bool predict = in->what == DLB_RUN_PREDICT;
	int weight, gradient, rc;
	struct dlb_desc d;
	struct pick *p;

	update_operands(e->graph, o, &weight, &gradient);
	if (weight < 0 || !s->value[weight] || !s->copy[weight])
		return dlb_fail(err, NULL, "update '%s' has no weight with copies on node %d", o->name, e->view.node);
	d = dlb_tensor_desc(&e->graph->tensor[weight], 1);
	if (predict) {
		const struct dlb_update_desc desc = dlb_optimizer_desc(c, d.dtype, dlb_desc_count(&d), DLB_UPDATE_PREDICT, NULL);

		rc = ops->update(e->ground->be, &desc, &a->kernel, err);
		if (rc == DLB_NO_KERNEL)
			return dlb_fail(err, "/plan/staleness", "predict needs an optimizer that keeps a smoothed gradient, not %s",
					dlb_optimizers[c->rule].name);
	} else {
		const struct dlb_accumulate_desc desc = { .dtype = d.dtype, .count = dlb_desc_count(&d), .first = true };

		rc = ops->accumulate(e->ground->be, &desc, &a->kernel, err);
	}
	if (rc)
		return rc == DLB_NO_KERNEL ? lacks(e, in->op, err) : -1;
	kept(e, a->kernel);
	a->predict = predict ? in->version : 0;
	a->in = dlb_arena_array(&e->arena, 1 + DLB_MAX_STATES, sizeof *a->in);
	a->out = dlb_arena_array(&e->arena, 1, sizeof *a->out);
	a->in[0] = s->value[weight];
	for (int k = 0; k < s->n_slots && predict; k++)
		a->in[1 + k] = s->slot[k][weight];
	a->out[0] = s->copy[weight];
	p = add_pick(e, a, &a->out[0]);
	p->base = s->copy[weight];
	p->stride = dlb_place_bytes(dlb_desc_bytes(&d));
	p->copies = copies_of(e, weight)->n;
	return 0;
}

/* Which output of op is the loss, or what the loss is a view of; -1: none. */
static int loss_output(const struct dlb_engine *e, int op)
{
	int t = e->graph->loss;

	while (t >= 0 && dlb_graph_view_of(e->graph, t) >= 0)
		t = dlb_graph_view_of(e->graph, t);
	for (int k = 0; k < e->graph->op[op].n_out && t >= 0; k++)
		if (e->graph->op[op].out[k] == t)
			return k;
	return -1;
}

static int prepare_compute(struct dlb_engine *e, const struct dlb_instr *in, const struct dlb_optimizer_choice *c,
			   struct dlb_error *err)
{
	struct act *a = &e->act[e->n_acts];
	struct dlb_engine_program *v = &e->view;
	const int moment = in->what == DLB_RUN_ACCUMULATE ? dlb_kfac_moment_of(e->graph, in->op, in->tensor) : -1;

	if (in->what == DLB_RUN_STEP_END || (in->what == DLB_RUN_OP && dlb_graph_is_view(e->graph, in->op)))
		return 0;
	a->kind = ACT_RUN;
	a->m = in->micro_batch;
	a->op = -1;
	a->loss = in->what == DLB_RUN_OP ? loss_output(e, in->op) : -1;
	if (in->what == DLB_RUN_KEEP || in->what == DLB_RUN_PREDICT ? prepare_copy_of_weight(e, in, c, a, err) :
	    in->what == DLB_RUN_OP || in->what == DLB_RUN_SUMS ? prepare_op(e, in, a, err) :
	    in->what == DLB_RUN_PRECONDITION ? prepare_precondition(e, in, a, err) :
	    moment >= 0 ? prepare_moment(e, in, moment, a, err) :
	    in->what == DLB_RUN_ACCUMULATE ? prepare_accumulate(e, in, a, err) : prepare_update(e, in, c, a, err))
		return -1;
	a->compute = v->n_computes++;
	v->compute_op[a->compute] = in->op;
	v->compute_m[a->compute] = in->micro_batch;
	v->compute_is_op[a->compute] = in->what == DLB_RUN_OP || in->what == DLB_RUN_UPDATE;
	e->n_acts++;
	return 0;
}

static int prepare_norm(struct dlb_engine *e, const struct dlb_instr *in, const struct dlb_optimizer_choice *c, struct dlb_error *err)
{
	const struct dlb_graph *g = e->graph;
	const struct dlb_program *p = e->view.program;
	const bool own = p->n_replicas > 1 && dlb_sharing_averages(&p->whole->sharing);
	struct dlb_gradient_places *gradient;

	e->act[e->n_acts++].kind = in->what == DLB_RUN_SQUARES ? ACT_SQUARES : ACT_NORM;
	if (e->clip.n_ways)			/* of the other half */
		return 0;
	gradient = dlb_arena_array(&e->arena, (size_t)g->n_ops + 1, sizeof *gradient);
	for (int op = 0; op < g->n_ops; op++) {
		struct dlb_gradient_places *x = &gradient[op];

		if (g->op[op].phase != DLB_UPDATE || p->plan->placement[op] != e->view.node)
			continue;
		*x = (struct dlb_gradient_places){ gradient_at(e, op, err), 0, dlb_program_sum_places(e->np, op) };
		x->stride = dlb_place_bytes((size_t)dlb_tensor_bytes(&g->tensor[g->op[op].in[0]], 1));
		if (!x->p)
			return -1;
	}
	return dlb_clip_init(&e->clip, g, e->ground->be, c->clip_norm, gradient, own ? p->n_replicas : 1, own ? p->replica : 0, e->ring,
			     &e->arena, err);
}

static int prepare_trust(struct dlb_engine *e, const struct dlb_optimizer_choice *c)
{
	e->act[e->n_acts++].kind = ACT_TRUST;
	dlb_trust_init(&e->trust, e->graph, c->hyper[DLB_HYPER_KL_CLIP], e->view.program->plan->placement, e->view.node, &e->arena);
	return 0;
}

/* A fed tensor: seeds are computed, the rest is copied from what the feeder laid out at `offset`. */
static int prepare_copy(struct dlb_engine *e, const struct dlb_instr *in, struct dlb_error *err)
{
	const struct dlb_program *p = e->view.program;
	const struct dlb_tensor *x = &e->graph->tensor[in->tensor];
	struct act *a = &e->act[e->n_acts];
	int m = in->micro_batch < 0 ? 0 : in->micro_batch;
	struct dlb_feed_item *f;

	if (!(a->p = dlb_act_resolve(e, in->tensor, in->micro_batch, err)))
		return -1;
	pick_tensor(e, a, &a->p, in->tensor, in);
	a->m = m;
	e->n_acts++;
	if (x->kind == DLB_T_SEED || in->tensor == e->graph->seed) {
		a->kind = ACT_SEED;
		a->dtype = x->dtype;
		return 0;
	}
	a->kind = ACT_COPY;
	a->bytes = (size_t)dlb_tensor_bytes(x, p->size[m]);
	a->offset = e->view.feed_bytes;
	f = &e->view.feed[e->view.n_feed++];
	*f = (struct dlb_feed_item){ .tensor = in->tensor, .micro_batch = m, .first = p->first[m], .n = p->size[m],
				     .bytes = a->bytes, .offset = a->offset };
	e->view.feed_bytes += (a->bytes + 63) / 64 * 64;
	return 0;
}

/* The kernel that has just made what act a sends may write it over there. */
static void make_there(struct dlb_engine *e, struct act *a, int t, const struct dlb_node_program *there, int place, char *arena)
{
	const struct dlb_op *o;
	struct act *made = a;

	while (made > e->act && made->kind == ACT_SEND)
		made--;
	if (made->kind != ACT_RUN || made->update || made->op != e->graph->tensor[t].producer || made->m != a->m || made->making ||
	    !dlb_tensor_goes_only_to(e->graph, e->view.program->plan->placement, t, a->peer))
		return;
	o = &e->graph->op[made->op];
	for (int k = 0; k < o->n_out; k++)
		if (o->out[k] == t && made->out[k] == a->p) {
			made->making = a->making = dlb_arena_alloc(&e->arena, sizeof *a->making);
			*a->making = (struct making){ .out = &made->out[k], .here = a->p, .there = a->there, .channel = a->channel };
			pick_copy(e, made, &made->making->here, e->np, place_of(e, t, a->m), e->ground->arena);
			pick_copy(e, made, &made->making->there, there, place, arena);
		}
}

/* What act a sends stays here, or is copied. */
static void lend(struct dlb_engine *e, struct act *a, int t)
{
	const struct act *made = a;

	while (made > e->act && made->kind == ACT_SEND)
		made--;
	a->lending = dlb_arena_alloc(&e->arena, sizeof *a->lending);
	*a->lending = (struct lending){ .compute = made->kind == ACT_RUN && !made->update && made->op == e->graph->tensor[t].producer &&
		made->m == a->m ? made->compute : -1 };
}

/* The places of messages that the sender may leave where they are. */
static void find_landings(struct dlb_engine *e)
{
	const struct dlb_ground *g = e->ground;

	for (int i = 0; i < e->np->n_instr && e->cell >= 0; i++) {
		const struct dlb_instr *in = &e->np->instr[i];
		const struct dlb_node_program *from;
		struct landing *l;
		int place;

		if (in->verb != DLB_POST || !in->lent || !g->cell_of[in->peer])
			continue;
		if (!e->landing)
			e->landing = dlb_arena_array(&e->arena, (size_t)e->np->n_places + 1, sizeof *e->landing);
		from = &e->view.program->node[in->peer];
		place = dlb_program_find_place(from, in->tensor, in->micro_batch);
		assert(place >= 0);
		l = dlb_arena_alloc(&e->arena, sizeof *l);
		*l = (struct landing){ g->arena_of[in->peer] + from->place[place].offset, dlb_place_bytes(from->place[place].bytes),
			from->place[place].copies, dlb_arena_array(&e->arena, (size_t)e->ring, sizeof(bool)) };
		e->landing[dlb_program_find_place(e->np, in->tensor, in->micro_batch)] = l;
	}
}

/* Gives a message that is started its channel, where there is one. */
static void find_channel(struct dlb_engine *e, const struct dlb_instr *in, struct act *a)
{
	struct dlb_ground *g = e->ground;
	int at = e->newest[in->tag], post = in->verb == DLB_POST, place;
	const struct dlb_node_program *np = &e->view.program->node[in->peer];

	if (e->cell < 0 || !g->cell_of[in->peer])
		return;
	while (at >= 0 && (e->act[at].peer != in->peer || e->act[at].kind != a->kind))
		at = e->older[at];
	a->channel = at >= 0 ? e->act[at].channel : &e->channel[e->n_acts];
	a->channel->cell = g->cell_of[post ? e->view.node : in->peer] + e->cell + in->tag;
	if (post) {
		if (e->landing)
			a->landing = e->landing[dlb_program_find_place(e->np, in->tensor, in->micro_batch)];
		return;
	}
	place = dlb_program_find_place(np, in->tensor, in->micro_batch);
	assert(place >= 0);
	a->there = g->arena_of[in->peer] + np->place[place].offset;
	pick_copy(e, a, &a->there, np, place, g->arena_of[in->peer]);
	if (in->lent)
		lend(e, a, in->tensor);
	else
		make_there(e, a, in->tensor, np, place, g->arena_of[in->peer]);
}

static int prepare_message(struct dlb_engine *e, const struct dlb_instr *in, struct dlb_error *err)
{
	struct act *a = &e->act[e->n_acts];

	a->kind = in->verb == DLB_POST ? ACT_POST : in->verb == DLB_SEND ? ACT_SEND : in->sent ? ACT_WAIT_SENT : ACT_WAIT;
	a->peer = in->peer;
	a->tag = in->tag;
	a->m = in->micro_batch;
	if (in->verb == DLB_WAIT) {
		if (!in->sent && e->ground->cost)
			a->xfer_s = dlb_cost_xfer_s(e->ground->cost, dlb_tensor_bytes(&e->graph->tensor[in->tensor],
						    e->view.program->size[in->micro_batch < 0 ? 0 : in->micro_batch]), in->peer, e->view.node);
	} else {
		int64_t n = e->view.program->size[in->micro_batch < 0 ? 0 : in->micro_batch];

		a->bytes = (size_t)dlb_tensor_bytes(&e->graph->tensor[in->tensor], n);
		if (!(a->p = dlb_act_resolve(e, in->tensor, in->micro_batch, err)))
			return -1;
		if (in->micro_batch >= 0 || in->verb == DLB_POST)
			pick_tensor(e, a, &a->p, in->tensor, in);
		a->request = &e->request[(size_t)e->n_acts * (size_t)e->ring];
		find_channel(e, in, a);
		e->older[e->n_acts] = e->newest[in->tag];
		e->newest[in->tag] = e->n_acts;
	}
	e->n_acts++;
	return 0;
}

/* Of the replicas; the end of the step is run.c's. */
static int prepare_collective(struct dlb_engine *e, const struct dlb_instr *in)
{
	static const enum act_kind kind[] = { [DLB_RUN_COMPUTED] = ACT_COMPUTED, [DLB_RUN_REDUCE] = ACT_REDUCE,
					      [DLB_RUN_REDUCED] = ACT_REDUCED };

	if (in->what == DLB_RUN_STEP_END)
		return 0;
	e->act[e->n_acts] = (struct act){ .kind = kind[in->what], .tag = in->tag, .iteration = in->iteration, .pick = -1 };
	if (in->what == DLB_RUN_COMPUTED)
		e->act[e->n_acts].p = dlb_arena_alloc(&e->arena, (size_t)dlb_comm_size(e->ground->comm));
	e->n_acts++;
	return 0;
}

/* Waits come before what they wait for where that is of an earlier iteration, so they are matched when all is there. */
static int match_waits(struct dlb_engine *e, struct dlb_error *err)
{
	for (int i = 0; i < e->n_acts; i++) {
		struct act *a = &e->act[i];
		int at;

		if (a->kind != ACT_WAIT && a->kind != ACT_WAIT_SENT && a->kind != ACT_RETURN)
			continue;
		/* One tensor may go to several nodes under one tag: the peer tells them apart. */
		for (at = e->newest[a->tag]; at >= 0; at = e->older[at])
			if (e->act[at].peer == a->peer && (e->act[at].kind == ACT_SEND) == (a->kind == ACT_WAIT_SENT))
				break;
		if (at < 0)
			return dlb_fail(err, NULL, "node %d waits for a message that it never starts", e->view.node);
		if (a->kind == ACT_RETURN) {
			a->channel = e->act[at].channel;
			continue;
		}
		a->request = e->act[at].request;
		a->landing = a->kind == ACT_WAIT ? e->act[at].landing : NULL;
	}
	return 0;
}

static void find_updates(struct dlb_engine *e)
{
	for (int t = 0; t < e->graph->n_tensors; t++)
		e->update_at[t] = -1;
	for (int i = 0; i < e->np->n_instr; i++) {
		int weight, gradient;

		if (e->np->instr[i].verb != DLB_COMPUTE || e->np->instr[i].what != DLB_RUN_UPDATE)
			continue;
		update_operands(e->graph, &e->graph->op[e->np->instr[i].op], &weight, &gradient);
		if (weight >= 0)
			e->update_at[weight] = i;
	}
}

int dlb_acts_prepare(struct dlb_engine *e, const struct dlb_optimizer_choice *c, struct dlb_error *err)
{
	if (e->view.program->depth)
		find_updates(e);
	find_landings(e);
	for (int i = 0; i < e->np->n_instr; i++) {
		const struct dlb_instr *in = &e->np->instr[i];
		int rc = 0;

		e->act[e->n_acts].iteration = in->iteration;
		e->act[e->n_acts].pick = -1;

		switch (in->verb) {
		case DLB_POST:
		case DLB_WAIT:
		case DLB_SEND:
			rc = prepare_message(e, in, err);
			break;
		case DLB_COMPUTE:
			rc = prepare_compute(e, in, c, err);
			break;
		case DLB_COPY:
			rc = prepare_copy(e, in, err);
			break;
		case DLB_COLLECTIVE:		/* the step's end is run.c's */
			rc = in->what == DLB_RUN_NORM || in->what == DLB_RUN_SQUARES ? prepare_norm(e, in, c, err) :
				in->what == DLB_RUN_TRUST ? prepare_trust(e, c) : prepare_collective(e, in);
			break;
		default:			/* FREE: places were fixed when the program was compiled; who lent this one is told */
			if (in->verb == DLB_FREE && in->lent)
				e->act[e->n_acts++] = (struct act){ .kind = ACT_RETURN, .iteration = in->iteration, .pick = -1, .peer = in->peer,
					.tag = in->tag };
			break;
		}
		if (rc)
			return -1;
	}
	return match_waits(e, err);
}

/* Room for the sums of ops that run in halves. */
void dlb_acts_make_sums(struct dlb_engine *e)
{
	if (sums_moments(e))
		e->half = dlb_arena_array(&e->arena, (size_t)e->graph->n_ops + 1, sizeof *e->half);
	if (!e->view.program->statistics)
		return;
	e->sums = dlb_arena_array(&e->arena, (size_t)e->graph->n_ops + 1, sizeof *e->sums);
	for (int i = 0; i < e->np->n_buckets; i++) {
		const struct dlb_bucket *b = &e->np->bucket[i];

		if (b->cls == DLB_SUM_STATISTICS)
			e->sums[b->op[0]] = dlb_arena_array(&e->arena, (size_t)(b->n + b->n_own), sizeof(double));
	}
}

/* What the buckets sum, where it lies. */
int dlb_acts_open_exchange(struct dlb_engine *e, struct dlb_error *err)
{
	const struct dlb_program *p = e->view.program;
	void **summand = dlb_arena_array(&e->arena, (size_t)e->graph->n_ops + 1, sizeof *summand);

	for (int b = 0; b < e->np->n_buckets; b++) {
		for (int i = 0; i < e->np->bucket[b].n_ops && e->np->bucket[b].cls != DLB_SUM_FACTOR; i++) {
			int op = e->np->bucket[b].op[i];

			summand[op] = e->np->bucket[b].cls == DLB_SUM_STATISTICS ? e->sums[op] : e->half ? e->half[op].moments :
				      dlb_program_sums(p, op) ? e->ground->state->sum[op] :
				      dlb_act_resolve(e, dlb_update_gradient(e->graph, op), 0, err);
			if (!summand[op])
				return -1;
		}
	}
	return dlb_exchange_new(&e->exchange, e->ground->comm, p, e->view.node, e->ground->cluster, summand, e->ground->kfac, e->ground->average,
				e->ground->kept, e->ground->last_step, err);
}
