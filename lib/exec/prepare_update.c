/* Prepares sums of gradients, updates and copies of weights. See prepare.h. */
#include <assert.h>
#include <string.h>
#include "exec/kfac.h"
#include "exec/prepare.h"
#include "exec/runtime.h"
#include "exec/state.h"
#include "graph/slice.h"
#include "plan/again.h"
#include "plan/buckets.h"
#include "plan/offload.h"
#include "plan/program_verify.h"
#include "plan/sharing.h"
#include "util/mem.h"

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

void dlb_prepare_find_updates(struct dlb_engine *e)
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

void *dlb_step_op_gradient_at(struct dlb_engine *e, int op, struct dlb_error *err)
{
	int weight, gradient;

	if (dlb_program_sums(e->view.program, op))
		return e->runtime->state->sum[op];
	update_operands(e->graph, &e->graph->op[op], &weight, &gradient);
	return dlb_step_op_resolve(e, gradient, 0, err);
}

int dlb_prepare_moment(struct dlb_engine *e, const struct dlb_instr *in, int moment, struct step_op *a,
		       struct dlb_error *err)
{
	if (dlb_kfac_prepare_sum(e->runtime->kfac, e->view.program, in->op, moment, in->micro_batch,
				 &a->kernel, err))
		return -1;
	dlb_step_op_keep_kernel(e, a->kernel);
	a->in = dlb_arena_array(&e->arena, 1, sizeof *a->in);
	return (a->in[0] = dlb_step_op_resolve(e, in->tensor, in->micro_batch, err)) ? 0 : -1;
}

int dlb_prepare_precondition(struct dlb_engine *e, const struct dlb_instr *in, struct step_op *a,
			     struct dlb_error *err)
{
	const struct dlb_kfac_layer l = dlb_kfac_layer_at(e->graph, in->op);

	if (dlb_kfac_prepare_apply(e->runtime->kfac, in->op, &a->kernel, err))
		return -1;
	dlb_step_op_keep_kernel(e, a->kernel);
	a->out = dlb_arena_array(&e->arena, 2, sizeof *a->out);
	a->out[0] = e->runtime->state->sum[l.update];
	a->out[1] = l.bias_update < 0 ? NULL : e->runtime->state->sum[l.bias_update];
	assert(a->out[0] && (l.bias_update < 0 || a->out[1]));
	return 0;
}

int dlb_prepare_accumulate(struct dlb_engine *e, const struct dlb_instr *in, struct step_op *a,
			   struct dlb_error *err)
{
	const struct dlb_tensor *x = &e->graph->tensor[in->tensor];
	struct dlb_desc d = dlb_tensor_desc(x, e->view.program->batch);
	const struct dlb_accumulate_desc desc = { .dtype = d.dtype,
						  .count = dlb_desc_count(&d),
						  .first = in->micro_batch == 0 };
	int rc = e->runtime->be->ops->accumulate(e->runtime->be, &desc, &a->kernel, err);

	if (rc)
		return rc == DLB_NO_KERNEL ? dlb_step_op_no_kernel(e, in->op, err) : -1;
	dlb_step_op_keep_kernel(e, a->kernel);
	a->in = dlb_arena_array(&e->arena, 1, sizeof *a->in);
	a->out = dlb_arena_array(&e->arena, 1, sizeof *a->out);
	a->out[0] = e->runtime->state->sum[in->op];
	assert(a->out[0]);
	dlb_step_op_dynamic_sum(e, a, &a->out[0], in->op);
	if (!(a->in[0] = dlb_step_op_resolve(e, in->tensor, in->micro_batch, err)))
		return -1;
	dlb_step_op_dynamic_tensor(e, a, &a->in[0], in->tensor, in, false);
	return 0;
}

/* Whether an op may return finite numbers for a weight that is not finite: oneDNN's convolution with Relu
 * turns NaN into 0. NaN in the data still reaches the weight's gradient. All other ops pass NaN on to the
 * loss. */
static bool hides_nan(const struct dlb_graph *g, int weight)
{
	for (int i = g->reader_start[weight]; i < g->reader_start[weight + 1]; i++) {
		const struct dlb_op *o = &g->op[g->reader[i]];

		if (!strcmp(o->type, "Conv") && dlb_attr_find(o->attr, o->n_attr, "activation"))
			return true;
	}
	return false;
}

bool dlb_step_op_sums_moments(const struct dlb_engine *e)
{
	return e->view.program->n_replicas > 1 && dlb_sharing_tensors(&e->view.program->whole->sharing) > 1;
}

/* Prepares an update whose moments are summed over the replicas. Its first half computes this replica's
 * moments from its own gradient; `a` becomes the second half, which reads the sums. */
static int prepare_half(struct dlb_engine *e, int op, int weight, const struct dlb_optimizer_choice *c,
			struct step_op *a, struct dlb_error *err)
{
	const struct dlb_program *p = e->view.program;
	const struct dlb_state *s = e->runtime->state;
	const struct dlb_desc d = dlb_tensor_desc(&e->graph->tensor[weight], 1);
	struct first_half *h = &e->half[op];
	struct dlb_optimizer_exchange x;
	struct dlb_update_desc desc;

	dlb_optimizer_exchange(c, (double)p->batch / (double)p->step_batch, &x);
	x.in = 1;	/* due to the seeds, the gradient is that of the mean over this replica's samples */
	desc = dlb_optimizer_desc(c, d.dtype, dlb_desc_count(&d), DLB_UPDATE_LOCAL, &x);
	if (e->runtime->be->ops->update(e->runtime->be, &desc, &h->kernel, err))
		return -1;
	dlb_step_op_keep_kernel(e, h->kernel);
	h->bytes = (size_t)dlb_desc_bytes(&d);
	h->moments = dlb_step_op_alloc(e, 2 * h->bytes);
	if (!h->moments)
		return dlb_no_memory(e->runtime->be, 2 * h->bytes, "moments", err);
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

/* The factor --delay-discount. Predicted weights need no discount. */
static double rate_scale(const struct dlb_engine *e, const struct dlb_optimizer_choice *c, int weight)
{
	const struct dlb_weight_copies *w = dlb_step_op_copies_of(e, weight);

	return c->delay_discount && w && w->most > 1 && e->view.program->staleness != DLB_STALE_PREDICT ?
		       2.0 / (1.0 + w->most) :
		       1.0;
}

/* The optimizer of the weight's group, in the engine's arena. *scale: the group's learning rate divided by
 * the optimizer's. */
static const struct dlb_optimizer_choice *of_group(struct dlb_engine *e, const struct dlb_optimizer_choice *c,
						   int weight, double *scale)
{
	const struct dlb_tensor *t = &e->graph->tensor[weight];

	*scale = 1;
	if (!c->n_groups)
		return c;
	struct dlb_optimizer_choice *own = dlb_arena_alloc(&e->arena, sizeof *own);
	*scale = dlb_optimizer_for(c, t->slice ? t->slice->of : t->name, own);
	return own;
}

int dlb_prepare_update(struct dlb_engine *e, const struct dlb_instr *in, const struct dlb_optimizer_choice *c,
			  struct step_op *a, struct dlb_error *err)
{
	const struct dlb_op *o = &e->graph->op[in->op];
	struct dlb_state *s = e->runtime->state;
	struct dlb_update_desc desc;
	struct dlb_desc d;
	int weight, gradient, rc;
	double scale;

	update_operands(e->graph, o, &weight, &gradient);
	if (weight < 0 || gradient < 0 || !s->value[weight])
		return dlb_fail(err, NULL, "update '%s' has no weight and gradient on node %d", o->name,
				e->view.node);
	c = of_group(e, c, weight, &scale);
	d = dlb_tensor_desc(&e->graph->tensor[weight], 1);
	const struct dlb_share share = dlb_state_share(s, weight);
	const size_t first_byte = (size_t)share.first * dlb_dtype_bytes(d.dtype);
	desc = dlb_optimizer_desc(c, d.dtype, share.n,
				  dlb_step_op_sums_moments(e) ? DLB_UPDATE_APPLY : DLB_UPDATE_WHOLE, NULL);
	desc.n_chunks = dlb_state_chunks(s);
	rc = e->runtime->be->ops->update(e->runtime->be, &desc, &a->kernel, err);
	if (rc)
		return rc == DLB_NO_KERNEL ? dlb_step_op_no_kernel(e, in->op, err) : -1;
	dlb_step_op_keep_kernel(e, a->kernel);
	a->update = true;
	a->rate_scale = scale * rate_scale(e, c, weight);
	a->preconditioned = dlb_kfac_layer_of(e->graph, in->op) >= 0;
	a->watched = hides_nan(e->graph, weight) ? weight : -1;
	a->in = dlb_arena_array(&e->arena, 1, sizeof *a->in);
	a->out = dlb_arena_array(&e->arena, 1 + DLB_MAX_STATES, sizeof *a->out);
	a->out[0] = dlb_program_weight_is_far(e->view.program, weight) ?
			    e->runtime->arena + e->np->place[e->whole[weight]].offset :
			    (char *)s->value[weight] + (dlb_state_gathers(s, weight) ? 0 : first_byte);
	struct offloaded *states = dlb_prepare_states(e, weight);
	for (int k = 0; k < s->n_slots; k++)
		a->out[1 + k] = states ? states->near[k] : s->slot[k][weight];
	if (!(a->in[0] = dlb_step_op_gradient_at(e, in->op, err)))
		return -1;
	if (s->n_shares > 1) {
		a->in[0] = e->kept && e->kept[in->op].to ? e->kept[in->op].to : (char *)a->in[0] + first_byte;
		if (e->kept)
			e->kept[in->op].in = &a->in[0];
		return 0;
	}
	if (dlb_program_sums(e->view.program, in->op))
		dlb_step_op_dynamic_sum(e, a, &a->in[0], in->op);
	else
		dlb_step_op_dynamic_copy(e, a, &a->in[0], e->np, dlb_step_op_place_of(e, gradient, 0),
					 e->runtime->arena);
	return dlb_step_op_sums_moments(e) ? prepare_half(e, in->op, weight, c, a, err) : 0;
}

int dlb_prepare_copy_of_weight(struct dlb_engine *e, const struct dlb_instr *in,
			       const struct dlb_optimizer_choice *c, struct step_op *a, struct dlb_error *err)
{
	const struct dlb_op *o = &e->graph->op[in->op];
	struct dlb_state *s = e->runtime->state;
	const struct dlb_backend_ops *ops = e->runtime->be->ops;
	bool predict = in->what == DLB_RUN_PREDICT;
	int weight, gradient, rc;
	struct dlb_desc d;
	struct dynamic_operand *p;

	update_operands(e->graph, o, &weight, &gradient);
	if (weight < 0 || !s->value[weight] || !s->copy[weight])
		return dlb_fail(err, NULL, "update '%s' has no weight with copies on node %d", o->name,
				e->view.node);
	c = of_group(e, c, weight, &a->rate_scale);
	d = dlb_tensor_desc(&e->graph->tensor[weight], 1);
	if (predict) {
		const struct dlb_update_desc desc = dlb_optimizer_desc(c, d.dtype, dlb_desc_count(&d),
								       DLB_UPDATE_PREDICT, NULL);

		rc = ops->update(e->runtime->be, &desc, &a->kernel, err);
		if (rc == DLB_NO_KERNEL)
			return dlb_fail(err, "/plan/staleness",
					"predict needs an optimizer that keeps a smoothed gradient, not %s",
					dlb_optimizers[c->rule].name);
	} else {
		const struct dlb_accumulate_desc desc = { .dtype = d.dtype,
							  .count = dlb_desc_count(&d),
							  .first = true };

		rc = ops->accumulate(e->runtime->be, &desc, &a->kernel, err);
	}
	if (rc)
		return rc == DLB_NO_KERNEL ? dlb_step_op_no_kernel(e, in->op, err) : -1;
	dlb_step_op_keep_kernel(e, a->kernel);
	a->predict = predict ? in->version : 0;
	a->in = dlb_arena_array(&e->arena, 1 + DLB_MAX_STATES, sizeof *a->in);
	a->out = dlb_arena_array(&e->arena, 1, sizeof *a->out);
	a->in[0] = s->value[weight];
	for (int k = 0; k < s->n_slots && predict; k++)
		a->in[1 + k] = s->slot[k][weight];
	a->out[0] = s->copy[weight];
	p = dlb_step_op_add_dynamic(e, a, &a->out[0]);
	p->base = s->copy[weight];
	p->stride = dlb_place_bytes(dlb_desc_bytes(&d));
	p->copies = dlb_step_op_copies_of(e, weight)->n;
	return 0;
}
