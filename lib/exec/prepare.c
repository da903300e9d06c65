/* Prepares the kernels of ops, copies of samples, and collectives. See prepare.h. */
#include <string.h>
#include "exec/kfac.h"
#include "exec/prepare.h"
#include "exec/runtime.h"
#include "plan/again.h"
#include "plan/buckets.h"
#include "plan/offload.h"
#include "plan/program_verify.h"
#include "plan/shares.h"
#include "plan/sharing.h"
#include "plan/tensors.h"
#include "util/mem.h"

static int size_class(const struct dlb_engine *e, int m)
{
	return e->view.program->size[m < 0 ? 0 : m] != e->size[0].n;
}

int dlb_step_op_keep_kernel(struct dlb_engine *e, struct dlb_kernel *k)
{
	if (k->scratch_bytes > e->runtime->scratch_bytes)
		e->runtime->scratch_bytes = k->scratch_bytes;
	e->kernel[e->n_kernels++] = k;
	return 0;
}

int dlb_step_op_no_kernel(const struct dlb_engine *e, int op, struct dlb_error *err)
{
	const struct dlb_op *o = &e->graph->op[op];

	return dlb_fail(err, NULL, "no kernel for %s '%s' on node %d", o->type, o->name, e->view.node);
}

/* The address of tensor t that the instruction reads or, with `out`, writes. Gathered weights, and the
 * running statistics that a second run writes, have places of their own. */
static void *operand(struct dlb_engine *e, const struct dlb_instr *in, int t, bool out, struct dlb_error *err)
{
	const int m = dlb_instr_life(e->view.program, in, t, out);
	const int own = dlb_program_gathers(e->view.program, t) ? e->whole[t] :
			in->again ? dlb_program_find_place(e->np, t, m) :
				    -1;

	return own >= 0 ? e->runtime->arena + e->np->place[own].offset : dlb_step_op_resolve(e, t, m, err);
}

/* Returns DLB_NO_KERNEL only in a partial runtime. */
static int prepare_op(struct dlb_engine *e, const struct dlb_instr *in, struct step_op *a,
		      struct dlb_error *err)
{
	const struct dlb_op *o = &e->graph->op[in->op];
	const bool halves = e->view.program->statistics && e->view.program->statistics[in->op] >= 0,
		   first = in->what == DLB_RUN_SUMS;
	struct dlb_kernel *
		*k = &e->of_op[2 * (in->op + (first ? e->graph->n_ops : 0)) + size_class(e, in->micro_batch)];
	struct dlb_backend *be = e->runtime->be;
	int rc = 0;

	if (!*k) {
		struct dlb_op_io *io = dlb_arena_alloc(&e->arena, sizeof *io);

		if (o->kind < 0)
			return dlb_fail(err, NULL, "op %d of type %s ('%s') can be planned, not run", in->op,
					o->type, o->name);
		dlb_graph_io(e->graph, in->op,
			     e->view.program->size[in->micro_batch < 0 ? 0 : in->micro_batch], &e->arena, io);
		/* a partial runtime measures kernels for any number of micro-batches */
		io->once = !e->runtime->partial && dlb_program_packs_once(e->view.program, in->op);
		rc = halves ? io->cls->half(be, io, !first, k, err) : dlb_op_kernel(be, io, k, err);
		if (rc == DLB_NO_KERNEL && e->runtime->partial)
			return DLB_NO_KERNEL;
		if (rc == DLB_NO_KERNEL)
			return dlb_step_op_no_kernel(e, in->op, err);
		if (rc || dlb_step_op_keep_kernel(e, *k))
			return -1;
	}
	a->kernel = *k;
	a->op = in->op;
	const int drawn = o->phase == DLB_BACKWARD && o->of >= 0 ? o->of : in->op;
	a->vertex = (uint64_t)dlb_attr_int(e->graph->op[drawn].attr, e->graph->op[drawn].n_attr,
					   DLB_ATTR_VERTEX, drawn);
	a->first_sample = e->view.program->first[in->micro_batch < 0 ? 0 : in->micro_batch];
	a->in = dlb_arena_array(&e->arena, (size_t)o->n_in + 1, sizeof *a->in);
	a->out = dlb_arena_array(&e->arena, (size_t)o->n_out + 1, sizeof *a->out);
	for (int i = 0; i < o->n_out && !first; i++) {
		if (o->out[i] < 0)
			continue;
		if (!(a->out[i] = operand(e, in, o->out[i], true, err)))
			return -1;
		dlb_step_op_dynamic_tensor(e, a, &a->out[i], o->out[i], in, true);
	}
	if (halves)
		*(first ? a->out : a->in + o->n_in) = e->sums[in->op];
	/* the first weight is set last: its version decides whether the packed form is current */
	for (int i = 0; i < o->n_in; i++) {
		if (o->in[i] < 0)
			continue;
		if (!(a->in[i] = operand(e, in, o->in[i], false, err)))
			return -1;
		dlb_step_op_dynamic_tensor(e, a, &a->in[i], o->in[i], in, false);
	}
	return 0;
}

/* The output of op that is the loss, or of which the loss is a view; -1: none. */
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

static int prepare_compute(struct dlb_engine *e, const struct dlb_instr *in,
			   const struct dlb_optimizer_choice *c, struct dlb_error *err)
{
	struct step_op *a = &e->step_op[e->n_step_ops];
	struct dlb_engine_program *v = &e->view;
	const int moment = in->what == DLB_RUN_ACCUMULATE ? dlb_kfac_moment_of(e->graph, in->op, in->tensor) :
							    -1;

	if (in->what == DLB_RUN_STEP_END || (in->what == DLB_RUN_OP && dlb_graph_is_view(e->graph, in->op)))
		return 0;
	a->kind = STEP_RUN;
	a->m = in->micro_batch;
	a->op = -1;
	a->loss = in->what == DLB_RUN_OP && !in->again ? loss_output(e, in->op) : -1;
	const int rc = in->what == DLB_RUN_KEEP || in->what == DLB_RUN_PREDICT ?
			       dlb_prepare_copy_of_weight(e, in, c, a, err) :
		       in->what == DLB_RUN_OP || in->what == DLB_RUN_SUMS ? prepare_op(e, in, a, err) :
		       in->what == DLB_RUN_PRECONDITION ? dlb_prepare_precondition(e, in, a, err) :
		       moment >= 0			? dlb_prepare_moment(e, in, moment, a, err) :
		       in->what == DLB_RUN_ACCUMULATE	? dlb_prepare_accumulate(e, in, a, err) :
							  dlb_prepare_update(e, in, c, a, err);
	if (rc == DLB_NO_KERNEL && e->runtime->partial) {
		*a = (struct step_op){ .kind = STEP_RUN };
		v->left_out[in->op] = true;
		return 0;
	}
	if (rc)
		return -1;
	a->compute = v->n_computes++;
	a->instr = (int)(in - e->np->instr);
	v->compute_op[a->compute] = in->op;
	v->compute_m[a->compute] = in->micro_batch;
	v->compute_again[a->compute] = in->again;
	v->compute_is_op[a->compute] = in->what == DLB_RUN_OP || in->what == DLB_RUN_UPDATE;
	e->n_step_ops++;
	return 0;
}

static int prepare_norm(struct dlb_engine *e, const struct dlb_instr *in,
			const struct dlb_optimizer_choice *c, struct dlb_error *err)
{
	const struct dlb_graph *g = e->graph;
	const struct dlb_program *p = e->view.program;
	const bool own = p->n_replicas > 1 && dlb_sharing_averages(&p->whole->sharing);
	struct dlb_gradient_places *gradient;

	e->step_op[e->n_step_ops++].kind = in->what == DLB_RUN_SQUARES ? STEP_SQUARES : STEP_NORM;
	if (e->clip.n_ways)			/* made by the other instruction, SQUARES or NORM */
		return 0;
	gradient = dlb_arena_array(&e->arena, (size_t)g->n_ops + 1, sizeof *gradient);
	for (int op = 0; op < g->n_ops; op++) {
		struct dlb_gradient_places *x = &gradient[op];

		if (g->op[op].phase != DLB_UPDATE || p->plan->placement[op] != e->view.node)
			continue;
		*x = (struct dlb_gradient_places){ dlb_step_op_gradient_at(e, op, err), 0,
						   dlb_program_sum_places(e->np, op),
						   dlb_program_leaves(p, op) };
		x->stride = dlb_place_bytes((size_t)dlb_tensor_bytes(&g->tensor[g->op[op].in[0]], 1));
		if (!x->p)
			return -1;
	}
	const struct dlb_clip_choice choice = { .norm = c->clip_norm,
						.n_sets = own ? p->n_replicas : 1,
						.set = own ? p->replica : 0,
						.steps = e->ring };
	return dlb_clip_init(&e->clip, g, e->runtime->be, &choice, gradient, &e->arena, err);
}

static int prepare_trust(struct dlb_engine *e, const struct dlb_optimizer_choice *c)
{
	e->step_op[e->n_step_ops++].kind = STEP_TRUST;
	dlb_trust_region_init(&e->trust, e->graph, c->hyper[DLB_HYPER_KL_CLIP],
			      e->view.program->plan->placement, e->view.node, &e->arena);
	return 0;
}

/* The step operation that a copy into the instruction's place waits for: the last kernel so far that uses
 * bytes of the place, for the tensors that had them before. A place that is sent stays in use until the host
 * has seen the send end. */
static int last_user(const struct dlb_engine *e, const struct dlb_instr *in)
{
	const int here = (int)(in - e->np->instr), own = dlb_step_op_place_of(e, in->tensor, in->micro_batch);
	int last = -1;

	/* steps overlap, or copies to host memory read places that kernels no longer use */
	if (e->view.program->depth || own < 0 || dlb_program_offloads(e->view.program))
		return DLB_AFTER_ALL;
	for (int i = 0; i < e->np->n_places; i++) {
		const struct dlb_place *p = &e->np->place[i], *mine = &e->np->place[own];

		if (p->last < here && p->last > last && p->offset < mine->offset + mine->bytes &&
		    mine->offset < p->offset + p->bytes)
			last = p->last;
	}
	for (int i = e->n_step_ops - 1; i >= 0; i--)
		if (e->step_op[i].kind == STEP_RUN && e->step_op[i].instr <= last)
			return i;
	return DLB_AFTER_NOTHING;
}

/* A fed tensor: seeds are computed, all else is copied from the feed's buffer at `offset`. */
static int prepare_copy(struct dlb_engine *e, const struct dlb_instr *in, struct dlb_error *err)
{
	const struct dlb_program *p = e->view.program;
	const struct dlb_tensor *x = &e->graph->tensor[in->tensor];
	struct step_op *a = &e->step_op[e->n_step_ops];
	int m = in->micro_batch < 0 ? 0 : in->micro_batch;
	struct dlb_feed_item *f;

	if (!(a->p = dlb_step_op_resolve(e, in->tensor, in->micro_batch, err)))
		return -1;
	dlb_step_op_dynamic_tensor(e, a, &a->p, in->tensor, in, false);
	a->m = m;
	a->after = last_user(e, in);
	e->n_step_ops++;
	if (x->kind == DLB_T_SEED || in->tensor == e->graph->seed) {
		a->kind = STEP_SEED;
		a->dtype = x->dtype;
		a->bytes = dlb_dtype_bytes(x->dtype);
		if (!dlb_is_host_memory(e->runtime->be) &&
		    !(a->mirror = dlb_transfers_alloc(e, (size_t)e->ring * a->bytes, err)))
			return -1;
		return 0;
	}
	a->kind = STEP_COPY;
	a->bytes = (size_t)dlb_tensor_bytes(x, p->size[m]);
	a->offset = e->view.feed_bytes;
	f = &e->view.feed[e->view.n_feed++];
	*f = (struct dlb_feed_item){ .tensor = in->tensor,
				     .micro_batch = m,
				     .first = p->first[m],
				     .n = p->size[m],
				     .bytes = a->bytes,
				     .offset = a->offset };
	e->view.feed_bytes += (a->bytes + 63) / 64 * 64;
	return 0;
}

/* A collective of the replicas. step_end.c does the sum at the end of a step. */
static int prepare_collective(struct dlb_engine *e, const struct dlb_instr *in)
{
	static const enum step_op_kind kind[] = { [DLB_RUN_COMPUTED] = STEP_COMPUTED,
						  [DLB_RUN_REDUCE] = STEP_REDUCE,
						  [DLB_RUN_REDUCED] = STEP_REDUCED };

	if (in->what == DLB_RUN_STEP_END)
		return 0;
	if (in->what == DLB_RUN_REDUCED && e->np->bucket[in->tag].ahead) {
		const struct dlb_bucket *b = &e->np->bucket[in->tag];

		e->whole[b->weight] = dlb_program_find_place(e->np, b->weight, b->life);
	}
	e->step_op[e->n_step_ops] = (struct step_op){
		.kind = kind[in->what], .tag = in->tag, .iteration = in->iteration, .dynamic = -1
	};
	if (in->what == DLB_RUN_COMPUTED)
		e->step_op[e->n_step_ops].p = dlb_arena_alloc(&e->arena,
							      (size_t)dlb_comm_size(e->runtime->comm));
	e->n_step_ops++;
	return 0;
}

int dlb_step_ops_prepare(struct dlb_engine *e, const struct dlb_optimizer_choice *c, struct dlb_error *err)
{
	if (e->view.program->depth)
		dlb_prepare_find_updates(e);
	dlb_prepare_find_remote_srcs(e);
	if (e->view.program->gathered)
		e->whole = dlb_arena_array(&e->arena, (size_t)e->graph->n_tensors + 1, sizeof *e->whole);
	for (int i = 0; i < e->np->n_instr; i++) {
		const struct dlb_instr *in = &e->np->instr[i];
		int rc = 0;

		e->step_op[e->n_step_ops].iteration = in->iteration;
		e->step_op[e->n_step_ops].dynamic = -1;

		switch (in->verb) {
		case DLB_POST:
		case DLB_WAIT:
		case DLB_SEND:
			rc = dlb_prepare_message(e, in, err);
			break;
		case DLB_COMPUTE:
			rc = prepare_compute(e, in, c, err);
			break;
		case DLB_COPY:
			rc = prepare_copy(e, in, err);
			break;
		case DLB_COLLECTIVE:		/* step_end.c handles the end of a step */
			rc = in->what == DLB_RUN_NORM || in->what == DLB_RUN_SQUARES ?
				     prepare_norm(e, in, c, err) :
			     in->what == DLB_RUN_TRUST ? prepare_trust(e, c) :
							 prepare_collective(e, in);
			break;
		case DLB_FETCH:
		case DLB_FETCHED:
		case DLB_STORE:
		case DLB_STORED:
			rc = dlb_prepare_offload(e, in, err);
			break;
		/* FREE only notifies the sender of a zero-copy message: places are fixed at compile time */
		default:
			if (in->verb == DLB_FREE && in->zero_copy)
				e->step_op[e->n_step_ops++] = (struct step_op){ .kind = STEP_RETURN,
										.iteration = in->iteration,
										.dynamic = -1,
										.peer = in->peer,
										.tag = in->tag };
			break;
		}
		if (rc)
			return -1;
	}
	return dlb_prepare_match_waits(e, err);
}

/* Finds the shares of bucket b's gradients that updates read elsewhere than in the gradients' places. */
static void make_kept_shares(struct dlb_engine *e, const struct dlb_bucket *b)
{
	const struct dlb_program *p = e->view.program;

	for (int i = 0; i < b->n_ops; i++) {
		const int op = b->op[i], weight = dlb_update_weight(e->graph, op);
		struct kept_share *s;

		if (!dlb_bucket_keeps_shares(b) && !dlb_program_leaves(p, op))
			continue;
		if (!e->kept)
			e->kept = dlb_arena_array(&e->arena, (size_t)e->graph->n_ops + 1, sizeof *e->kept);
		s = &e->kept[op];
		*s = (struct kept_share){ .bytes = dlb_program_share_bytes(p, weight),
					  .first_byte = dlb_program_share_offset(p, weight) };
		if (dlb_program_has_share_place(p, op))
			s->to = dlb_step_op_resolve(e, dlb_update_gradient(e->graph, op),
						    dlb_second_life(p, 0), NULL);
	}
}

void *dlb_step_op_alloc(struct dlb_engine *e, size_t bytes)
{
	struct dlb_backend *be = e->runtime->be;

	if (dlb_is_host_memory(be))
		return dlb_arena_alloc(&e->arena, bytes);
	DLB_GROW(e->own, e->n_own, e->cap_own);
	e->own[e->n_own] = be->ops->alloc(be, bytes);
	return e->own[e->n_own++];
}

void dlb_step_ops_free(struct dlb_engine *e)
{
	struct dlb_backend *be = e->runtime->be;

	for (int i = 0; i < e->n_own; i++)
		be->ops->free(be, e->own[i]);
	free(e->own);
}

/* Allocates the sums of ops that run in halves. */
static int make_statistics(struct dlb_engine *e, struct dlb_error *err)
{
	e->sums = dlb_arena_array(&e->arena, (size_t)e->graph->n_ops + 1, sizeof *e->sums);
	for (int i = 0; i < e->np->n_buckets; i++) {
		const struct dlb_bucket *b = &e->np->bucket[i];
		const size_t bytes = (size_t)(b->n + b->n_own) * sizeof(double);

		if (b->cls == DLB_SUM_STATISTICS && !(e->sums[b->op[0]] = dlb_step_op_alloc(e, bytes)))
			return dlb_no_memory(e->runtime->be, bytes, "statistics", err);
	}
	return 0;
}

int dlb_step_ops_make_sums(struct dlb_engine *e, struct dlb_error *err)
{
	if (dlb_step_op_sums_moments(e))
		e->half = dlb_arena_array(&e->arena, (size_t)e->graph->n_ops + 1, sizeof *e->half);
	for (int i = 0; i < e->np->n_buckets; i++)
		if (e->np->bucket[i].cls == DLB_SUM_GRADIENT || e->np->bucket[i].cls == DLB_SUM_SMALL)
			make_kept_shares(e, &e->np->bucket[i]);
	return e->view.program->statistics ? make_statistics(e, err) : 0;
}

/* Lets updates read the shares that buckets keep. */
static void aim_at_buckets(struct dlb_engine *e)
{
	for (int b = 0; b < e->np->n_buckets && e->kept; b++)
		for (int i = 0; i < e->np->bucket[b].n_ops && dlb_bucket_keeps_shares(&e->np->bucket[b]); i++)
			*e->kept[e->np->bucket[b].op[i]].in = dlb_sync_share(e->sync, b, i);
}

int dlb_step_ops_open_sync(struct dlb_engine *e, struct dlb_error *err)
{
	const struct dlb_program *p = e->view.program;
	struct dlb_runtime *g = e->runtime;
	void **summand = dlb_arena_array(&e->arena, (size_t)e->graph->n_ops + 1, sizeof *summand);
	void **weight = dlb_is_host_memory(g->be) ?
				NULL :
				dlb_arena_array(&e->arena, (size_t)e->graph->n_tensors + 1, sizeof *weight);
	const struct dlb_sync_desc d = { .comm = g->comm,
					 .program = p,
					 .node = e->view.node,
					 .cluster = g->cluster,
					 .summand = summand,
					 .weight = weight,
					 .kfac = g->kfac,
					 .compress = g->compress,
					 .state = g->state,
					 .tensor_of = e->tensor_of,
					 .arena = g->arena,
					 .last_step = g->last_step };

	if (p->whole->n_replicas > 1 && dlb_sharing_averages(&p->whole->sharing)) {
		e->sync = g->averages;
		if (g->averaged)
			dlb_mirrors_open_averages(e);
		return 0;
	}
	for (int b = 0; b < e->np->n_buckets; b++) {
		for (int i = 0; i < e->np->bucket[b].n_ops && e->np->bucket[b].cls != DLB_SUM_FACTOR; i++) {
			int op = e->np->bucket[b].op[i];

			summand[op] = e->np->bucket[b].cls == DLB_SUM_STATISTICS ? e->sums[op] :
				      e->half                                    ? e->half[op].moments :
				      dlb_program_sums(p, op) ?
						g->state->sum[op] :
						dlb_step_op_resolve(e, dlb_update_gradient(e->graph, op), 0,
								    err);
			if (!summand[op])
				return -1;
			if (e->kept)
				e->kept[op].gradient = summand[op];
		}
	}
	if (!dlb_is_host_memory(g->be) && dlb_mirrors_open(e, summand, weight, err))
		return -1;
	if (dlb_sync_new(&e->own_sync, &d, err))
		return -1;
	e->sync = e->own_sync;
	if (e->mirrored)
		dlb_mirrors_find_shares(e);
	else
		aim_at_buckets(e);
	return 0;
}
