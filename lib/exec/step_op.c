/* The operations of the step loop: one function and one row (rule) for each kind.
 *
 * Between ranks of one host a message is written into the receiver's place, in its arena (runtime.c): by one
 * copy or, if no op of this rank reads the tensor and the place is posted in time, by the kernel itself.
 * Stores to cache lines that another core holds may take longer than local stores and a copy (comm/shared.h).
 * So both ways are timed a few times, at intervals, and the faster one is used. A tensor that another op
 * reads too, here or on a third rank, may be read in the sender's memory (program.h: zero-copy). The kernel
 * then overwrites lines that the reader's core holds; the same timing chooses between this way and a copy.
 *
 * Times are taken around each kernel and each wait that is not over at once (about 25 ns per reading). If
 * kernels are queued on a device, marks between them take the device's own times, which are read at the end
 * of the iteration; the host does not wait for the kernels. */
#include <math.h>
#include <string.h>
#include "exec/offload_store.h"
#include "exec/runtime.h"
#include "exec/slow.h"
#include "exec/step_ops.h"
#include "plan/timeline.h"
#include "util/clock.h"
#include "util/mem.h"

/* tries of each way; sends after which the tries are repeated, since virtual cores move */
enum { TRIES = 4, TRY_AGAIN = 512 };

static void choose_place(struct dest_choice *w)
{
	bool there = w->n_tried[1] < TRIES ? w->n_tried[1] <= w->n_tried[0] :
		     w->n_tried[0] < TRIES ? false : w->best_s[1] <= w->best_s[0];

	w->is_there = there && dlb_channel_ready(w->channel);
	*w->out = w->is_there ? w->there : w->here;
}

int dlb_step_op_mark(int compute, bool end)
{
	return 2 * compute + 1 + end;
}

static int mark_of_post(const struct dlb_engine *e, int step_op)
{
	return 2 * e->view.n_computes + 1 + step_op;
}

bool dlb_step_ops_queue(const struct dlb_engine *e)
{
	return e->runtime->be->ops->mark && e->runtime->slow.factor <= 1;
}

int dlb_step_op_begin(struct op_pass *t, struct dlb_error *err)
{
	struct dlb_engine *e = t->e;

	e->first_outgoing = e->n_outgoing = 0;
	t->replays = dlb_segments_replay(t);
	if (!dlb_step_ops_queue(e))
		return 0;
	memset(e->queued, 0, (size_t)e->view.n_computes * sizeof *e->queued);
	return e->runtime->be->ops->mark(e->runtime->be, 0, err);
}

/* Reads the counts of values that are not finite from queued kernels. */
static void count(struct op_pass *t)
{
	struct dlb_engine *e = t->e;

	for (int i = 0; i < e->n_step_ops; i++) {
		const struct step_op *a = &e->step_op[i];
		int64_t not_finite = 0;

		if (!a->kernel || !a->kernel->count)
			continue;
		t->run.not_finite = &not_finite;
		dlb_kernel_count(a->kernel, &t->run);
		if (not_finite && a->watched >= 0 && e->view.not_finite < 0)
			e->view.not_finite = a->watched;
	}
}

int dlb_step_op_end(struct op_pass *t, struct dlb_error *err)
{
	struct dlb_engine *e = t->e;
	struct dlb_backend *be = e->runtime->be;

	if (dlb_transfers_finish(e, err) || be->ops->sync(be, err))
		return -1;
	count(t);
	e->warm = true;
	if (!dlb_step_ops_queue(e))
		return 0;
	e->view.replayed.steps += t->replays;
	for (int i = 0; i < e->n_segments; i++)
		if (e->segment[i].replayed) {
			e->view.times.busy_s += dlb_segment_seconds(e, &e->segment[i]);
			if (t->w->step->timed)
				dlb_segment_times(e, &e->segment[i]);
		}
	for (int i = 0; i < e->view.n_computes; i++) {
		if (!e->queued[i])
			continue;
		e->view.start_s[i] = be->ops->seconds(be, 0, dlb_step_op_mark(i, false));
		e->view.end_s[i] = be->ops->seconds(be, 0, dlb_step_op_mark(i, true));
		e->took_s[i] = e->view.end_s[i] - e->view.start_s[i];
		e->view.times.busy_s += e->took_s[i];
	}
	return 0;
}

/* Queues a kernel between two marks. -1 with err: the device reports a failure. */
static int queue_kernel(struct op_pass *t, const struct step_op *a, const struct dlb_run *r, struct dlb_error *err)
{
	struct dlb_backend *be = t->e->runtime->be;

	if (be->ops->mark(be, dlb_step_op_mark(a->compute, false), err))
		return -1;
	a->kernel->run(a->kernel, r);
	t->e->queued[a->compute] = true;
	return be->ops->mark(be, dlb_step_op_mark(a->compute, true), err);
}

/* Runs or queues a kernel. -1 with err, which names the op: the device reports a failure. */
static int run_kernel(struct op_pass *t, const struct step_op *a, struct dlb_run *r, struct dlb_error *err)
{
	struct dlb_engine *e = t->e;
	struct dlb_runtime *g = e->runtime;
	const char *op_name = e->graph->op[e->view.compute_op[a->compute]].name;
	struct dlb_op_time time;

	if (dlb_step_ops_queue(e))
		return queue_kernel(t, a, r, err) ? dlb_error_at(err, op_name) : 0;
	time = dlb_slow_start(&g->slow);
	if (a->dest_choice)
		choose_place(a->dest_choice);
	a->kernel->run(a->kernel, r);
	if (g->be->ops->sync(g->be, err))
		return dlb_error_at(err, op_name);
	dlb_slow_end(&g->slow, &time, &e->least[a->compute]);
	e->view.start_s[a->compute] = time.start_s - t->origin_s;
	e->view.end_s[a->compute] = time.end_s - t->origin_s;
	e->view.times.busy_s += time.end_s - time.start_s;
	e->took_s[a->compute] = time.took_s;
	if (a->dest_choice)
		a->dest_choice->kernel_s = time.took_s;
	return 0;
}

/* Whether the next message is read in place. s: seconds of the last message's copy and of the kernel after
 * it. */
static bool choose_in_place(struct zero_copy *w, double s)
{
	if (w->n > 0 && (!w->n_tried[w->in_place]++ || s < w->best_s[w->in_place]))
		w->best_s[w->in_place] = s;
	if (++w->n == TRY_AGAIN)
		w->n = w->n_tried[0] = w->n_tried[1] = 0;
	return w->n_tried[1] < TRIES || (w->n_tried[0] >= TRIES && w->best_s[1] <= w->best_s[0]);
}

static void send_zero_copy(struct op_pass *t, const struct step_op *a)
{
	struct dlb_engine *e = t->e;
	struct zero_copy *w = a->zero_copy;
	double kernel_s = w->compute < 0 ? 0 : e->took_s[w->compute];

	w->in_place = w->compute < 0 || choose_in_place(w, kernel_s + a->channel->copied_s - w->copied_s);
	w->copied_s = a->channel->copied_s;
	const struct dlb_message m = { a->p, a->there, a->bytes, a->peer };
	dlb_channel_send_zero_copy(e->runtime->comm, a->channel, &m, w->in_place, t->request);
	if (w->in_place)
		e->view.times.in_place_bytes += (double)a->bytes;
}

/* Sends by a channel without zero-copy; the destination of the kernel's output has been chosen. */
static void send_made(struct op_pass *t, const struct step_op *a)
{
	struct dest_choice *w = a->dest_choice;
	double start_s = w ? dlb_clock_s() : 0.0, s;

	const struct dlb_message m = { w ? *w->out : a->p, a->there, a->bytes, a->peer };
	dlb_channel_send(t->e->runtime->comm, a->channel, &m, t->request);
	if (w && w->is_there)
		t->e->view.times.in_place_bytes += (double)a->bytes;
	if (!w || t->request->active)
		return;
	s = w->kernel_s + dlb_clock_s() - start_s;
	if (!w->n_tried[w->is_there]++ || s < w->best_s[w->is_there])
		w->best_s[w->is_there] = s;
	if (w->n_tried[0] + w->n_tried[1] == TRY_AGAIN)
		w->n_tried[0] = w->n_tried[1] = 0;
}

static int run_send(struct op_pass *t, const struct step_op *a, struct dlb_error *err)
{
	(void)err;
	if (a->mirror)
		dlb_transfers_send(t, a);
	else if (!a->channel)
		dlb_comm_isend(t->e->runtime->comm, a->p, a->bytes, a->peer, a->tag, t->request);
	else if (a->zero_copy)
		send_zero_copy(t, a);
	else
		send_made(t, a);
	return 0;
}

static int run_post(struct op_pass *t, const struct step_op *a, struct dlb_error *err)
{
	struct dlb_engine *e = t->e;
	struct dlb_backend *be = e->runtime->be;
	char *mirror = dlb_transfers_mirror(t, a);

	if (a->channel)
		dlb_channel_post(a->channel, a->peer, t->request);
	else
		dlb_comm_irecv(e->runtime->comm, mirror ? mirror : a->p, a->bytes, a->peer, a->tag, t->request);
	return mirror ? be->ops->mark(be, mark_of_post(e, (int)(a - e->step_op)), err) : 0;
}

static int run_return(struct op_pass *t, const struct step_op *a, struct dlb_error *err)
{
	(void)t, (void)err;
	if (a->channel)
		dlb_channel_return(a->channel);
	return 0;
}

static int run_wait(struct op_pass *t, const struct step_op *a, struct dlb_error *err)
{
	struct dlb_runtime *g = t->e->runtime;
	struct dlb_step_times *times = &t->e->view.times;
	double start_s, waited_s = 0.0;

	if (t->request->active && !dlb_comm_test(g->comm, t->request)) {
		start_s = dlb_clock_s();
		if (dlb_comm_wait(g->comm, t->request, err))
			return -1;
		waited_s = dlb_slow_waited(&g->slow, dlb_clock_s() - start_s);
		times->waits_s[a->kind == STEP_WAIT ? DLB_WAIT_STARVED : DLB_WAIT_BACKPRESSURE] += waited_s;
		t->e->view.wait_for_s[a->peer] += waited_s;
	}
	if (a->xfer_s > 0.0 && !t->request->channel) {
		times->comm_s += a->xfer_s;
		times->comm_hidden_s += waited_s < a->xfer_s ? a->xfer_s - waited_s : 0.0;
	}
	if (a->kind == STEP_WAIT && a->mirror)
		dlb_transfers_in(t, a, dlb_transfers_mirror(t, a), a->bytes, mark_of_post(t->e, a->post));
	if (a->remote_src)
		a->remote_src->in_place[(t->request - a->request) % t->e->ring] = dlb_channel_is_in_place(
			t->request);
	return 0;
}

/* The mark after which a's place is free; without marks, after all that is queued. */
static int mark_before(const struct op_pass *t, const struct step_op *a)
{
	return a->after < 0		  ? a->after :
	       dlb_step_ops_queue(t->e) ? dlb_segments_mark_after(t, a->after) :
					  DLB_AFTER_ALL;
}

static int run_copy(struct op_pass *t, const struct step_op *a, struct dlb_error *err)
{
	struct dlb_backend *be = t->e->runtime->be;
	const char *from = t->s->fed->base + a->offset;

	(void)err;
	if (!dlb_is_host_memory(be))
		dlb_transfers_in(t, a, from, a->bytes, mark_before(t, a));
	else
		be->ops->upload(be, a->p, from, a->bytes);
	return 0;
}

static int run_seed(struct op_pass *t, const struct step_op *a, struct dlb_error *err)
{
	struct dlb_backend *be = t->e->runtime->be;
	double seed = 0.0;	/* eight zero bytes are 0 in every float type */
	void *value = a->mirror ? dlb_transfers_mirror(t, a) : (void *)&seed;

	(void)err;
	dlb_value_set(value, a->dtype, 0, t->s->fed->seed[a->m]);
	if (a->mirror)
		dlb_transfers_in(t, a, value, a->bytes, mark_before(t, a));
	else
		be->ops->upload(be, a->p, value, dlb_dtype_bytes(a->dtype));
	return 0;
}

/* Starts the copies of offloaded tensors: out, to the other memory; else from it. */
static void copy_offloaded(struct op_pass *t, const struct step_op *a, bool out)
{
	struct dlb_runtime *g = t->e->runtime;
	struct offloaded *x = a->offloaded;

	if (!dlb_is_host_memory(g->be)) {
		dlb_transfers_offloaded(t, a, out);
		return;
	}
	for (int k = 0; k < x->n; k++)
		x->copy = out ? dlb_offload_store_put(g->state->store, x->far[k], x->near[k], x->bytes) :
				dlb_offload_store_fetch(g->state->store, x->near[k], x->far[k], x->bytes);
}

static int run_fetch(struct op_pass *t, const struct step_op *a, struct dlb_error *err)
{
	(void)err;
	copy_offloaded(t, a, false);
	return 0;
}

static int run_store(struct op_pass *t, const struct step_op *a, struct dlb_error *err)
{
	(void)err;
	copy_offloaded(t, a, true);
	return 0;
}

/* Waits for the last copies of these tensors. */
static int run_copied(struct op_pass *t, const struct step_op *a, struct dlb_error *err)
{
	struct dlb_runtime *g = t->e->runtime;
	double start_s;

	if (!dlb_is_host_memory(g->be)) { /* only kernels queued from now on wait */
		g->be->ops->join(g->be, (int)a->offloaded->copy);
		return 0;
	}
	if (dlb_offload_store_is_done(g->state->store, a->offloaded->copy))
		return dlb_offload_store_wait(g->state->store, a->offloaded->copy, err);
	dlb_slow_settle(&g->slow);
	start_s = dlb_clock_s();
	if (dlb_offload_store_wait(g->state->store, a->offloaded->copy, err))
		return -1;
	t->e->view.times.offload_s += dlb_slow_waited(&g->slow, dlb_clock_s() - start_s);
	return 0;
}

/* Counts the time since *time was taken as this node's work. */
static void end_work(struct dlb_engine *e, struct dlb_op_time *time)
{
	dlb_slow_end(&e->runtime->slow, time, NULL);
	e->view.times.busy_s += time->end_s - time->start_s;
}

/* Asynchronous programs: starts the sum over all ranks of a step's squared gradients. */
static int run_squares(struct op_pass *t, const struct step_op *a, struct dlb_error *err)
{
	struct dlb_engine *e = t->e;
	struct dlb_op_time time = dlb_slow_start(&e->runtime->slow);

	(void)a, (void)err;
	dlb_clip_start(&e->clip, e->runtime->comm, e->runtime->norms, e->view.program->replica == 0, t->step);
	end_work(e, &time);
	return 0;
}

/* Computes the factor that updates multiply gradients by. */
static int run_norm(struct op_pass *t, const struct step_op *a, struct dlb_error *err)
{
	struct dlb_engine *e = t->e;
	double *collective_s = &e->view.times.waits_s[DLB_WAIT_COLLECTIVE], sum_s;
	struct dlb_op_time time = dlb_slow_start(&e->runtime->slow);

	(void)a;
	if (e->view.program->async)
		return dlb_clip_wait(&e->clip, e->runtime->comm, t->step, &e->grad_scale[t->step % e->ring],
				     collective_s, err);
	dlb_clip_here(&e->clip, t->step);
	end_work(e, &time);
	dlb_slow_settle(&e->runtime->slow);
	sum_s = dlb_clock_s();
	if (dlb_clip_scale(&e->clip, e->runtime->comm,
			   e->clip.way[0].square.n_sets > 1 || e->view.program->replica == 0, t->step,
			   &t->run.grad_scale, err))
		return -1;
	*collective_s += dlb_clock_s() - sum_s;
	return 0;
}

/* Computes the further factor that updates multiply preconditioned gradients by. */
static int run_trust(struct op_pass *t, const struct step_op *a, struct dlb_error *err)
{
	struct dlb_engine *e = t->e;
	const struct dlb_run *r = &t->run;
	const double start_s = dlb_clock_s(), rate = r->rate * (r->grad_scale > 0 ? r->grad_scale : 1);
	int rc = dlb_trust_region_scale(&e->trust, e->runtime->kfac, e->runtime->comm,
					e->view.program->replica == 0, rate, &t->trust, err);

	(void)a;
	e->view.times.waits_s[DLB_WAIT_COLLECTIVE] += dlb_clock_s() - start_s;
	return rc;
}

/* Sets operation a's dynamic operands for `step` of a run of steps that began with step `first` and an empty
 * pipeline. Returns a version number of the weights that a reads: 2 v + 2 after v updates, 2 v + 3 for a
 * prediction of these; 2 step + 2 if a reads no weight of this node. */
static uint64_t set_dynamic_operands(struct dlb_engine *e, const struct step_op *a, int64_t step,
				     int64_t first)
{
	uint64_t version = 2 * (uint64_t)step + 2;

	for (int i = a->dynamic; i >= 0; i = e->dynamic[i].next) {
		const struct dynamic_operand *p = &e->dynamic[i];
		int64_t live = step - p->live, want = step - p->version;

		if (!p->weight) {
			const struct remote_src *l = p->remote_src &&
								     p->remote_src->in_place[step % e->ring] ?
							     p->remote_src :
							     NULL;

			*p->at = l ? l->there + (size_t)(step % l->copies) * l->stride :
				     p->base + (size_t)(step % p->copies) * p->stride;
			continue;
		}
		live = live < first ? first : live;
		want = p->expected && live < step ? step : want < first ? first : want;
		*p->at = want == live || !p->copies ? p->now :
						      p->base + (size_t)(want % p->copies) * p->stride;
		version = 2 * (uint64_t)(p->copies ? want : live) + 2 + (p->expected && live < step);
	}
	return version;
}

/* Predicts weights r.distance steps later, from the current smoothed gradient. */
static int predict(struct op_pass *t, const struct step_op *a, struct dlb_error *err)
{
	int64_t live = t->step - a->predict < t->w->first ? t->w->first : t->step - a->predict;
	struct dlb_run r = t->run;

	if (live == t->step)		/* nothing to predict: the weight is read as it is */
		return 0;
	r.distance = (double)(t->step - live);
	r.step = live > 0 ? (uint64_t)live : 1;
	return run_kernel(t, a, &r, err);
}

static int add_loss(struct dlb_engine *e, const struct step_op *a, const struct dlb_step *s,
		    struct dlb_error *err)
{
	struct dlb_backend *be = e->runtime->be;
	double *sum = &e->loss_sum[s->step % e->ring];
	char raw[8] = { 0 };

	be->ops->download(be, raw, a->out[a->loss], dlb_dtype_bytes(e->loss_dtype));
	*sum = (a->m ? *sum : 0.0) + s->fed->seed[a->m] * dlb_value_real(raw, e->loss_dtype, 0);
	return be->ops->sync(be, err);
}

int dlb_step_op_beside(struct op_pass *t, struct dlb_error *err)
{
	struct dlb_engine *e = t->e;

	/* otherwise a long kernel would delay a transfer */
	dlb_comm_progress(e->runtime->comm);
	if (e->sync)
		dlb_sync_nudge(e->sync);
	return e->n_outgoing ? dlb_transfers_start(e, err) : 0;
}

static int run_op(struct op_pass *t, const struct step_op *a, struct dlb_error *err)
{
	struct dlb_engine *e = t->e;
	const double clip = t->run.grad_scale;
	int rc;

	if (a->preconditioned)
		t->run.grad_scale = t->trust * (clip > 0 ? clip : 1);
	if (a->update && e->view.program->async && e->clip.n_ways)
		t->run.grad_scale = e->grad_scale[t->step % e->ring];
	rc = a->predict ? predict(t, a, err) : run_kernel(t, a, &t->run, err);
	t->run.grad_scale = clip;
	if (rc)
		return -1;
	if (t->not_finite && e->view.not_finite < 0)
		e->view.not_finite = a->watched;
	if (e->view.program->async && a->loss >= 0 && add_loss(e, a, t->s, err))
		return -1;
	return dlb_step_op_beside(t, err);
}

/* Computes the moments of one update; zeros, if there are any, in place of them. */
static void make_half(struct dlb_backend *be, struct first_half *h, const void *zeros, struct dlb_run *r)
{
	r->in = h->in;
	r->out = h->out;
	if (zeros)
		be->ops->upload(be, h->moments, zeros, 2 * h->bytes);
	else
		h->kernel->run(h->kernel, r);
}

/* Computes this replica's moments for the sum of bucket b. A replica without samples adds zeros and keeps its
 * own moments. */
static int make_halves(struct dlb_engine *e, int b, struct dlb_run r, int64_t step, struct dlb_error *err)
{
	const struct dlb_bucket *k = &e->np->bucket[b];
	const int n = k->cls == DLB_SUM_STATISTICS ? 0 : k->n_ops;
	struct dlb_op_time time = dlb_slow_start(&e->runtime->slow);
	struct dlb_backend *be = e->runtime->be;
	size_t most = 0;

	r.step = (uint64_t)step + 1;
	r.not_finite = NULL;
	for (int i = 0; i < n && e->view.program->weightless; i++)
		most = e->half[k->op[i]].bytes > most ? e->half[k->op[i]].bytes : most;
	void *zeros = most ? dlb_xcalloc(2, most) : NULL;
	for (int i = 0; i < n; i++)
		make_half(be, &e->half[k->op[i]], zeros, &r);
	const int rc = be->ops->sync(be, err);
	free(zeros);
	if (rc)
		return -1;
	for (int i = 0; i < n; i++)
		dlb_kernel_count(e->half[k->op[i]].kernel, &r);
	end_work(e, &time);
	return 0;
}

/* --sync: tells rank 0 that this node has computed, and waits for its command to continue. */
static int run_computed(struct op_pass *t, const struct step_op *a, struct dlb_error *err)
{
	struct dlb_step_times *times = &t->e->view.times;
	struct dlb_comm *c = t->e->runtime->comm;
	const double start_s = dlb_clock_s();
	char word = 0, *reports = a->p;			/* [rank] on rank 0 */
	const int rc = dlb_comm_gather(c, &word, 1, reports, 0, err) || dlb_comm_bcast(c, &word, 1, 0, err) ?
			       -1 :
			       0;
	const double s = dlb_clock_s() - start_s;

	times->waits_s[DLB_WAIT_COLLECTIVE] += s;
	times->command_s += s;
	return rc;
}

static int run_reduce(struct op_pass *t, const struct step_op *a, struct dlb_error *err)
{
	if (t->e->half && make_halves(t->e, a->tag, t->run, t->step, err))
		return -1;
	if (t->e->mirrored) {
		dlb_transfers_reduce(t, a);
		return 0;
	}
	dlb_slow_settle(&t->e->runtime->slow);
	dlb_sync_start(t->e->sync, a->tag, t->step);
	return 0;
}

/* Copies this replica's shares of bucket b's gradients: other tensors may take the gradients' places from now
 * on. */
static void keep_shares(struct op_pass *t, int b)
{
	struct dlb_engine *e = t->e;
	const struct dlb_bucket *k = &e->np->bucket[b];

	for (int i = 0; i < k->n_ops && (k->cls == DLB_SUM_GRADIENT || k->cls == DLB_SUM_SMALL); i++) {
		const struct kept_share *s = &e->kept[k->op[i]];

		if (!s->to)
			continue;
		if (e->clip.n_ways)
			dlb_clip_early(&e->clip, k->op[i], t->step);
		memcpy(s->to, s->gradient + s->first_byte, s->bytes);
	}
}

static int run_reduced(struct op_pass *t, const struct step_op *a, struct dlb_error *err)
{
	if (dlb_sync_wait(t->e->sync, a->tag, &t->e->view.times.waits_s[DLB_WAIT_COLLECTIVE], err))
		return -1;
	if (t->e->mirrored)
		dlb_transfers_reduced(t, a);
	else if (t->e->kept)
		keep_shares(t, a->tag);
	return 0;
}

/* settles: other ranks can notice when the operation begins (slow.h). waits: the operation waits for other
 * ranks, which may wait for transfers that this rank has not started yet. */
static const struct {
	int (*run)(struct op_pass *t, const struct step_op *a, struct dlb_error *err);
	bool settles, waits;
} rule[] = {
	[STEP_POST] = { .run = run_post },
	[STEP_WAIT] = { .run = run_wait, .waits = true },
	[STEP_WAIT_SENT] = { .run = run_wait, .waits = true },
	[STEP_SEND] = { .run = run_send, .settles = true },
	[STEP_RETURN] = { .run = run_return, .settles = true },
	[STEP_RUN] = { .run = run_op },
	[STEP_COPY] = { .run = run_copy },
	[STEP_SEED] = { .run = run_seed },
	[STEP_FETCH] = { .run = run_fetch },
	[STEP_STORE] = { .run = run_store },
	[STEP_COPIED] = { .run = run_copied },
	[STEP_SQUARES] = { .run = run_squares, .settles = true, .waits = true },
	[STEP_NORM] = { .run = run_norm, .waits = true },
	[STEP_TRUST] = { .run = run_trust, .settles = true, .waits = true },
	[STEP_COMPUTED] = { .run = run_computed, .settles = true, .waits = true },
	[STEP_REDUCE] = { .run = run_reduce },
	[STEP_REDUCED] = { .run = run_reduced, .settles = true, .waits = true },
};

void dlb_step_op_set_run(struct op_pass *t, const struct step_op *a, int64_t step, uint64_t version)
{
	const struct dlb_step *s = t->s;
	const double scale = a->update || a->predict ? a->rate_scale : 1.0;

	t->run.in = a->in;
	t->run.out = a->out;
	t->run.vertex = a->vertex;
	t->run.first_sample = a->first_sample;
	/* updates count from 1 (bias correction) */
	t->run.step = (uint64_t)step + (a->update ? 1 : 0);
	t->run.not_finite = a->update && a->watched >= 0 ? &t->not_finite : NULL;
	t->run.seed = s->seed;
	t->run.rate = s->rate * scale;
	t->run.rate_before = s->rate_before * scale;
	t->run.has_rate = s->has_rate;
	t->run.weight_version = version;
}

int dlb_step_op_run(struct op_pass *t, const struct step_op *a, int64_t step, struct dlb_error *err)
{
	struct dlb_engine *e = t->e;
	const struct dlb_step *s = &t->w->step[step > 0 ? step % t->w->n : 0];
	const bool several = e->view.program->depth > 0;	/* steps under way */
	uint64_t version = s->version;

	if (several)
		version = set_dynamic_operands(e, a, step, t->w->first);
	else if (a->dynamic >= 0)					/* operands of messages only */
		set_dynamic_operands(e, a, step, t->w->first);
	t->s = s;
	t->step = step;
	t->request = a->request ? a->request + (several ? step % e->ring : 0) : NULL;
	dlb_step_op_set_run(t, a, step, version);
	if (rule[a->kind].waits && dlb_transfers_finish(e, err))
		return -1;
	if (rule[a->kind].settles)
		dlb_slow_settle(&e->runtime->slow);
	return rule[a->kind].run(t, a, err);
}
