/* The engine. It turns a compiled program into a flat list of step ops that need no look-up at run time: a
 * kernel is prepared once for each (op, size of micro-batch), operands are pointers into the arena or the
 * state, and each message has its request. Running a step is one pass over the list (step_op.c has a function
 * for each kind of step op).
 *
 * Asynchronous programs (plan/async.c): an iteration of the loop runs step ops of several steps. Each step op
 * belongs to one step; a step op whose step is not among the loop's steps is skipped. Pointers that differ
 * between steps (the copy of an arena place, the version of a weight) are set right before the step op runs:
 * they are its dynamic operands. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "exec/memories.h"
#include "exec/prepare.h"
#include "exec/runtime.h"
#include "exec/slow.h"
#include "exec/step_ops.h"
#include "graph/passes.h"
#include "util/clock.h"
#include "util/mem.h"

int dlb_engine_new(struct dlb_engine **out, struct dlb_runtime *runtime, const struct dlb_program *p,
		   int node, const struct dlb_optimizer_choice *optimizer, const int *tensor_of,
		   struct dlb_error *err)
{
	static const struct dlb_optimizer_choice none = { .rule = 0 };
	struct dlb_engine *e = dlb_xcalloc(1, sizeof *e);
	const struct dlb_graph *g = p->graph;
	size_t n = (size_t)p->node[node].n_instr + 1;
	struct dlb_error ignored;

	assert(runtime->arena || !p->node[node].arena_bytes);
	/* kernels do not check shapes; micro-batches have at most two sizes */
	if (dlb_graph_check_runnable(g, p->size[0], err) ||
	    (p->size[p->micro_batches - 1] != p->size[0] &&
	     dlb_graph_check_runnable(g, p->size[p->micro_batches - 1], err))) {
		free(e);
		return -1;
	}
	e->runtime = runtime;
	e->graph = g;
	e->np = &p->node[node];
	e->tensor_of = tensor_of;
	e->view.program = p;
	e->view.node = node;
	e->view.not_finite = -1;
	e->size[0].n = p->size[0];
	e->cell = dlb_runtime_first_cell(runtime, p, node);
	e->channel = dlb_xcalloc(n, sizeof *e->channel);
	e->step_op = dlb_xcalloc(n, sizeof *e->step_op);
	e->ring = p->depth + 1;
	e->request = dlb_xcalloc(n * (size_t)e->ring, sizeof *e->request);
	e->loss_sum = dlb_xcalloc((size_t)e->ring, sizeof *e->loss_sum);
	e->grad_scale = dlb_xcalloc((size_t)e->ring, sizeof *e->grad_scale);
	e->update_at = dlb_xcalloc((size_t)g->n_tensors + 1, sizeof *e->update_at);
	e->older = dlb_xcalloc(n, sizeof *e->older);
	e->newest = dlb_xcalloc((size_t)p->n_messages + 1, sizeof *e->newest);
	for (int i = 0; i < p->n_messages; i++)
		e->newest[i] = -1;
	e->kernel = dlb_xcalloc(n, sizeof *e->kernel);
	e->of_op = dlb_xcalloc(4 * (size_t)g->n_ops + 1, sizeof *e->of_op);
	e->loss = dlb_xcalloc((size_t)p->micro_batches + 1, sizeof *e->loss);
	e->view.feed = dlb_xcalloc(n, sizeof *e->view.feed);
	e->view.compute_op = dlb_xcalloc(n, sizeof *e->view.compute_op);
	e->view.compute_m = dlb_xcalloc(n, sizeof *e->view.compute_m);
	e->view.compute_is_op = dlb_xcalloc(n, sizeof *e->view.compute_is_op);
	e->view.compute_again = dlb_xcalloc(n, sizeof *e->view.compute_again);
	e->queued = dlb_xcalloc(n, sizeof *e->queued);
	e->view.left_out = dlb_xcalloc((size_t)e->graph->n_ops + 1, sizeof *e->view.left_out);
	e->view.start_s = dlb_xcalloc(n, sizeof *e->view.start_s);
	e->view.end_s = dlb_xcalloc(n, sizeof *e->view.end_s);
	e->view.n_peers = dlb_comm_size(runtime->comm);
	e->view.wait_for_s = dlb_xcalloc((size_t)e->view.n_peers, sizeof *e->view.wait_for_s);
	e->least = dlb_xcalloc(n, sizeof *e->least);
	e->took_s = dlb_xcalloc(n, sizeof *e->took_s);
	if (dlb_step_ops_make_sums(e, err) || dlb_step_ops_prepare(e, optimizer ? optimizer : &none, err)) {
		dlb_engine_free(e);
		return -1;
	}
	if (dlb_step_ops_open_sync(e, err)) {
		dlb_engine_free(e);
		return -1;
	}
	if (g->loss >= 0 && g->tensor[g->loss].producer >= 0 &&
	    p->plan->placement[g->tensor[g->loss].producer] == node) {
		e->loss_dtype = g->tensor[g->loss].dtype;
		for (int m = 0; m < p->micro_batches; m++)
			e->loss[m] = dlb_step_op_resolve(e, g->loss, m, &ignored);
	}
	for (int i = 0; i < e->n_step_ops; i++)
		if (e->step_op[i].kind == STEP_SEND)
			e->view.times.bytes_sent += (double)e->step_op[i].bytes;
	dlb_segments_find(e);
	*out = e;
	return 0;
}

void dlb_engine_free(struct dlb_engine *e)
{
	if (!e)
		return;
	dlb_segments_free(e);
	dlb_prepare_offload_release(e);
	for (int i = 0; i < e->n_kernels; i++)
		dlb_kernel_free(e->kernel[i]);
	dlb_clip_release(&e->clip);
	free(e->step_op);
	free(e->request);
	free(e->loss_sum);
	free(e->grad_scale);
	free(e->update_at);
	free(e->dynamic);
	free(e->channel);
	free(e->older);
	free(e->newest);
	free(e->kernel);
	free(e->of_op);
	free(e->loss);
	free(e->view.feed);
	free(e->view.compute_op);
	free(e->view.compute_m);
	free(e->view.compute_is_op);
	free(e->view.compute_again);
	free(e->view.left_out);
	free(e->queued);
	free(e->view.start_s);
	free(e->view.end_s);
	free(e->view.wait_for_s);
	free(e->least);
	free(e->took_s);
	dlb_sync_free(e->own_sync);
	dlb_transfers_free(e);
	dlb_step_ops_free(e);
	dlb_arena_release(&e->arena);
	free(e);
}

struct dlb_engine_program *dlb_engine_view(struct dlb_engine *e)
{
	return &e->view;
}

const struct dlb_kernel *dlb_engine_kernel(const struct dlb_engine *e, int i)
{
	for (int k = 0; k < e->n_step_ops; k++)
		if (e->step_op[k].kind == STEP_RUN && e->step_op[k].compute == i)
			return e->step_op[k].kernel;
	dlb_bug("no compute %d", i);
}

/* Allocates scratch at the first step, since preparing an engine may increase its size. */
static int scratch_ready(struct dlb_runtime *g, struct dlb_error *err)
{
	if (!g->be->ops->is_host_memory && !g->scratch_bytes)
		g->scratch_bytes = 64;	/* so that no device kernel gets a host address as scratch */
	if (g->scratch || !g->scratch_bytes)
		return 0;
	g->scratch = g->be->ops->alloc(g->be, g->scratch_bytes);
	if (!g->scratch)
		return dlb_no_memory(g->be, g->scratch_bytes, "scratch", err);
	return dlb_memories_put(g->memories, DLB_BUF_ACTIVATIONS, g->scratch, g->scratch_bytes, err);
}

/* ---- running ---- */

static double copied_s(const struct dlb_engine *e)
{
	double s = 0.0;

	for (int i = 0; i < e->n_step_ops; i++)
		s += e->channel[i].copied_s;
	return s;
}

int dlb_engine_run(struct dlb_engine *e, const struct dlb_step *s, struct dlb_error *err)
{
	const struct dlb_iteration w = {
		.iteration = s->step, .first = s->step, .end = s->step + 1, .step = s, .n = 1
	};

	return dlb_engine_run_iteration(e, &w, err);
}

static void begin_times(struct dlb_step_times *t)
{
	t->busy_s = t->comm_s = t->comm_hidden_s = t->in_place_bytes = t->command_s = t->offload_s = 0.0;
	memset(t->waits_s, 0, sizeof t->waits_s);
}

/* Ends the iteration's synchronisation of replicas and takes its times. */
static int end_sync(struct dlb_engine *e, struct dlb_error *err)
{
	struct dlb_step_times *t = &e->view.times;
	const struct dlb_sync_times *x;

	if (dlb_sync_settle(e->sync, err))
		return -1;
	x = dlb_sync_times(e->sync);
	t->sum_s = x->time_s;
	t->sum_hidden_s = x->hidden_s;
	memcpy(t->class_s, x->class_s, sizeof t->class_s);
	memcpy(t->class_hidden_s, x->class_hidden_s, sizeof t->class_hidden_s);
	return 0;
}

/* passed as scratch to kernels that need none, so that they never get NULL */
static _Alignas(64) char nothing[64];

static int run_iteration(struct dlb_engine *e, const struct dlb_iteration *w, struct dlb_error *err)
{
	struct dlb_runtime *g = e->runtime;
	struct op_pass turn = {
		.e = e, .w = w, .trust = 1.0, .origin_s = dlb_clock_s(), .run = { .shrunk = &e->view.shrunk }
	};
	double copied_before_s;
	int next = 0;

	if (scratch_ready(g, err))
		return -1;
	turn.run.scratch = g->scratch ? g->scratch : nothing;
	begin_times(&e->view.times);
	memset(e->view.wait_for_s, 0, (size_t)e->view.n_peers * sizeof *e->view.wait_for_s);
	copied_before_s = copied_s(e);
	if (e->sync)
		dlb_sync_begin(e->sync, e->view.program, w->iteration);
	if (dlb_step_op_begin(&turn, err))
		return -1;
	for (int i = 0; i < e->n_step_ops; i++) {
		const int64_t step = w->iteration - e->step_op[i].iteration;

		if (turn.replays && next < e->n_segments && e->segment[next].first == i) {
			if (dlb_segment_run(&turn, &e->segment[next], err))
				return -1;
			i = e->segment[next++].end - 1;
			continue;
		}
		if (step >= w->first && step < w->end && dlb_step_op_run(&turn, &e->step_op[i], step, err))
			return -1;
	}
	dlb_slow_settle(&g->slow);
	if (dlb_step_op_end(&turn, err))
		return -1;
	e->view.times.comm_s += copied_s(e) - copied_before_s;
	return e->sync ? end_sync(e, err) : 0;
}

int dlb_engine_run_iteration(struct dlb_engine *e, const struct dlb_iteration *w, struct dlb_error *err)
{
	struct dlb_comm *c = e->runtime->comm;

	if (!run_iteration(e, w, err))
		return 0;
	/* the other ranks wait for this rank's messages, so the ranks cannot agree on the error */
	if (dlb_comm_size(c) > 1)
		dlb_comm_break(c, "%s", err->what);
	return -1;
}

const struct dlb_sync *dlb_engine_sync(const struct dlb_engine *e)
{
	return e->sync;
}

int dlb_engine_loss_of(const struct dlb_engine *e, const struct dlb_step *s, double *loss,
		       struct dlb_error *err)
{
	if (!e->view.program->async)
		return dlb_engine_loss(e, s->fed->seed, loss, err);
	*loss = e->loss_sum[s->step % e->ring];
	return 0;
}

int dlb_engine_loss(const struct dlb_engine *e, const double *seed, double *loss, struct dlb_error *err)
{
	struct dlb_backend *be = e->runtime->be;

	*loss = 0.0;
	for (int m = 0; m < e->view.program->micro_batches && e->loss[m]; m++) {
		char raw[8] = { 0 };

		be->ops->download(be, raw, e->loss[m], dlb_dtype_bytes(e->loss_dtype));
		*loss += seed[m] * dlb_value_real(raw, e->loss_dtype, 0);
	}
	return be->ops->sync(be, err);
}

const void *dlb_engine_read(const struct dlb_engine *e, int tensor, int m, void **copy)
{
	const struct dlb_desc d = dlb_tensor_desc(&e->graph->tensor[tensor], e->view.program->size[m]);
	struct dlb_backend *be = e->runtime->be;
	struct dlb_error ignored;
	/* dlb_step_op_resolve allocates only for constants, and this function is not called for constants */
	const void *p = dlb_step_op_resolve((struct dlb_engine *)(uintptr_t)e, tensor, m, &ignored);

	*copy = NULL;
	if (dlb_is_host_memory(be))
		return p;
	*copy = dlb_xcalloc(1, dlb_desc_bytes(&d) + 1);
	be->ops->download(be, *copy, p, dlb_desc_bytes(&d));
	return *copy;
}
