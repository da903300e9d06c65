/* The step loop. A compiled program becomes a flat list of acts in which nothing is left to look up:
 * kernels are prepared once for each (op, size of micro-batch), operands are pointers into the arena or
 * the state, requests have their place by tag. Running it is one pass over the list.
 *
 * Between two kernels messages are given the chance to move: a long kernel would otherwise hold up a transfer
 * that only needs a nudge.
 *
 * Between ranks of one host a message is written into the receiver's place, in its arena (ground.c): copied there
 * once, or where nobody here reads the tensor and the place is posted in time, made there by the kernel itself. Stores
 * to lines that another core's cache holds may take longer than making it here and copying (comm/shared.h), so each
 * way is tried a few times now and then, and the faster one kept. What somebody else reads too, this rank or a third one, may
 * stay where it was made and be read there (program.h: lent); what the sender's kernel then takes to write over lines that the
 * reader's core has decides, in the same manner, whether it does or is copied.
 *
 * Asynchronous programs (plan/async.c): an iteration of the loop holds acts of several steps. Each one works for the
 * step it belongs to; where that is none, it is left out. What differs from step to step, the copy of a place or the
 * version of a weight, is set right before the act is run: its picks.
 *
 * Time is taken around each kernel and each wait that really waits (about 25 ns a reading). --slow
 * stretches a kernel by (factor - 1) times the CPU time it took, so that a descheduled rank is not
 * stretched for time it did not have: by spinning where every rank has a core, else by sleeping, where
 * what the sleep took too long (or what was too short to sleep for) is carried over as a debt. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "exec/acts.h"
#include "util/clock.h"
#include "util/mem.h"

#define LEAST_SLEEP_S 20e-6			/* about what it takes to fall asleep and wake */
#define MOST_CREDIT_S 1e-3
enum { TRIES = 4, TRY_AGAIN = 512 };		/* each way; after so many sends: virtual cores move */
enum { LEAST_OF = 128 };			/* runs of a kernel; and as many before them */

int dlb_engine_new(struct dlb_engine **out, struct dlb_ground *ground, const struct dlb_program *p, int node,
		   const struct dlb_optimizer_choice *optimizer, const int *tensor_of, struct dlb_error *err)
{
	static const struct dlb_optimizer_choice none = { .rule = 0 };
	struct dlb_engine *e = dlb_xcalloc(1, sizeof *e);
	const struct dlb_graph *g = p->graph;
	size_t n = (size_t)p->node[node].n_instr + 1;
	struct dlb_error ignored;

	assert(ground->arena || !p->node[node].arena_bytes);
	/* kernels trust shapes; micro-batches have at most two sizes */
	if (dlb_graph_check_runnable(g, p->size[0], err) ||
	    (p->size[p->micro_batches - 1] != p->size[0] && dlb_graph_check_runnable(g, p->size[p->micro_batches - 1], err))) {
		free(e);
		return -1;
	}
	e->ground = ground;
	e->graph = g;
	e->np = &p->node[node];
	e->tensor_of = tensor_of;
	e->view.program = p;
	e->view.node = node;
	e->view.not_finite = -1;
	e->size[0].n = p->size[0];
	e->cell = dlb_ground_first_cell(ground, p, node);
	e->channel = dlb_xcalloc(n, sizeof *e->channel);
	e->act = dlb_xcalloc(n, sizeof *e->act);
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
	dlb_acts_make_sums(e);
	e->loss = dlb_xcalloc((size_t)p->micro_batches + 1, sizeof *e->loss);
	e->view.feed = dlb_xcalloc(n, sizeof *e->view.feed);
	e->view.compute_op = dlb_xcalloc(n, sizeof *e->view.compute_op);
	e->view.compute_m = dlb_xcalloc(n, sizeof *e->view.compute_m);
	e->view.compute_is_op = dlb_xcalloc(n, sizeof *e->view.compute_is_op);
	e->view.start_s = dlb_xcalloc(n, sizeof *e->view.start_s);
	e->view.end_s = dlb_xcalloc(n, sizeof *e->view.end_s);
	e->least = dlb_xcalloc(n, sizeof *e->least);
	if (dlb_acts_prepare(e, optimizer ? optimizer : &none, err)) {
		dlb_engine_free(e);
		return -1;
	}
	if (dlb_acts_open_exchange(e, err)) {
		dlb_engine_free(e);
		return -1;
	}
	if (g->loss >= 0 && g->tensor[g->loss].producer >= 0 && p->plan->placement[g->tensor[g->loss].producer] == node) {
		e->loss_dtype = g->tensor[g->loss].dtype;
		for (int m = 0; m < p->micro_batches; m++)
			e->loss[m] = dlb_act_resolve(e, g->loss, m, &ignored);
	}
	for (int i = 0; i < e->n_acts; i++)
		if (e->act[i].kind == ACT_SEND)
			e->view.times.bytes_sent += (double)e->act[i].bytes;
	*out = e;
	return 0;
}

void dlb_engine_free(struct dlb_engine *e)
{
	if (!e)
		return;
	for (int i = 0; i < e->n_kernels; i++)
		dlb_kernel_free(e->kernel[i]);
	dlb_clip_release(&e->clip);
	free(e->act);
	free(e->request);
	free(e->loss_sum);
	free(e->grad_scale);
	free(e->update_at);
	free(e->pick);
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
	free(e->view.start_s);
	free(e->view.end_s);
	free(e->least);
	dlb_exchange_free(e->exchange);
	dlb_arena_release(&e->arena);
	free(e);
}

struct dlb_engine_program *dlb_engine_view(struct dlb_engine *e)
{
	return &e->view;
}

const struct dlb_kernel *dlb_engine_kernel(const struct dlb_engine *e, int i)
{
	for (int k = 0; k < e->n_acts; k++)
		if (e->act[k].kind == ACT_RUN && e->act[k].compute == i)
			return e->act[k].kernel;
	dlb_bug("no compute %d", i);
}

/* Scratch grows while engines are prepared; it is taken when the first step needs it. */
static int scratch_ready(struct dlb_ground *g, struct dlb_error *err)
{
	if (g->scratch || !g->scratch_bytes)
		return 0;
	g->scratch = g->be->ops->alloc(g->be, g->scratch_bytes);
	if (!g->scratch)
		return dlb_fail(err, NULL, "no memory for %zu bytes of scratch on this device", g->scratch_bytes);
	return dlb_memories_put(g->memories, DLB_BUF_ACTIVATIONS, g->scratch, g->scratch_bytes, err);
}

/* ---- running ---- */

/* What began at start_s and takes cpu_s of a core is to last slow times that. Where ranks share cores, waiting for one, or
 * for a cache that another rank has filled, is part of it: a node of its own would have had its core to itself. What took too
 * long even so, since sleeps end late, is taken off what comes next, up to a limit: a node that was held up does not race. */
static void stretch(struct dlb_ground *g, double start_s, double cpu_s)
{
	double from, extra_s = cpu_s * (g->slow - 1.0);

	if (g->sleep) {
		from = dlb_clock_s();
		g->debt_s += cpu_s + extra_s - (from - start_s);
		if (g->debt_s < -MOST_CREDIT_S)
			g->debt_s = -MOST_CREDIT_S;
		if (g->debt_s < LEAST_SLEEP_S)
			return;
		dlb_sleep_s(g->debt_s);
		g->debt_s -= dlb_clock_s() - from;
		return;
	}
	g->debt_s += extra_s;
	from = dlb_clock_thread_cpu_s();
	while (dlb_clock_thread_cpu_s() - from < g->debt_s)
		;
	g->debt_s = 0.0;
}

/* The CPU time that a kernel takes of its own: where ranks share cores, the least of its last runs. */
static double own_cpu_s(struct dlb_engine *e, int compute, double cpu_s)
{
	struct least *l = &e->least[compute];

	if (!e->ground->sleep)
		return cpu_s;
	if (l->n++ % LEAST_OF == 0) {			/* machines slow down for good, too */
		l->before_s = l->now_s;
		l->now_s = cpu_s;
	}
	l->now_s = cpu_s < l->now_s ? cpu_s : l->now_s;
	return l->n > LEAST_OF && l->before_s < l->now_s ? l->before_s : l->now_s;
}

static void choose_place(struct making *w)
{
	bool there = w->n_tried[1] < TRIES ? w->n_tried[1] <= w->n_tried[0] :
		     w->n_tried[0] < TRIES ? false : w->best_s[1] <= w->best_s[0];

	w->is_there = there && dlb_channel_ready(w->channel);
	*w->out = w->is_there ? w->there : w->here;
}

static void run_kernel(struct dlb_engine *e, const struct act *a, struct dlb_run *r, double origin_s)
{
	struct dlb_ground *g = e->ground;
	double cpu_s = 0.0, start_s = dlb_clock_s(), end_s;

	if (a->making)
		choose_place(a->making);
	r->in = a->in;
	r->out = a->out;
	r->vertex = a->vertex;
	r->first_sample = a->first_sample;
	if (g->slow > 1.0)
		cpu_s = dlb_clock_thread_cpu_s();
	a->kernel->run(a->kernel, r);
	g->be->ops->sync(g->be);
	if (g->slow > 1.0)
		stretch(g, start_s, own_cpu_s(e, a->compute, dlb_clock_thread_cpu_s() - cpu_s));
	end_s = dlb_clock_s();
	e->view.start_s[a->compute] = start_s - origin_s;
	e->view.end_s[a->compute] = end_s - origin_s;
	e->view.times.busy_s += end_s - start_s;
	if (a->making)
		a->making->kernel_s = end_s - start_s;
}

/* Both the copy of the last message and what its way made of this kernel are known now. */
static bool choose_to_stay(struct lending *w, double s)
{
	if (w->n > 0 && (!w->n_tried[w->stays]++ || s < w->best_s[w->stays]))
		w->best_s[w->stays] = s;
	if (++w->n == TRY_AGAIN)
		w->n = w->n_tried[0] = w->n_tried[1] = 0;
	return w->n_tried[1] < TRIES || (w->n_tried[0] >= TRIES && w->best_s[1] <= w->best_s[0]);
}

static void run_lend(struct dlb_engine *e, const struct act *a, struct dlb_request *request)
{
	struct lending *w = a->lending;
	double kernel_s = w->compute < 0 ? 0 : e->view.end_s[w->compute] - e->view.start_s[w->compute];

	w->stays = w->compute < 0 || choose_to_stay(w, kernel_s + a->channel->copied_s - w->copied_s);
	w->copied_s = a->channel->copied_s;
	dlb_channel_lend(e->ground->comm, a->channel, a->p, a->there, a->bytes, a->peer, w->stays, request);
	if (w->stays)
		e->view.times.in_place_bytes += (double)a->bytes;
}

static void run_send(struct dlb_engine *e, const struct act *a, struct dlb_request *request)
{
	struct making *w = a->making;
	double start_s = w ? dlb_clock_s() : 0.0, s;

	if (!a->channel) {
		dlb_comm_isend(e->ground->comm, a->p, a->bytes, a->peer, a->tag, request);
		return;
	}
	if (a->lending) {
		run_lend(e, a, request);
		return;
	}
	dlb_channel_send(e->ground->comm, a->channel, w ? *w->out : a->p, a->there, a->bytes, a->peer, request);
	if (w && w->is_there)
		e->view.times.in_place_bytes += (double)a->bytes;
	if (!w || request->active)
		return;
	s = w->kernel_s + dlb_clock_s() - start_s;
	if (!w->n_tried[w->is_there]++ || s < w->best_s[w->is_there])
		w->best_s[w->is_there] = s;
	if (w->n_tried[0] + w->n_tried[1] == TRY_AGAIN)
		w->n_tried[0] = w->n_tried[1] = 0;
}

static int run_wait(struct dlb_engine *e, const struct act *a, struct dlb_request *request, enum dlb_wait kind, struct dlb_error *err)
{
	struct dlb_step_times *t = &e->view.times;
	double start_s, waited_s = 0.0;

	if (request->active && !dlb_comm_test(e->ground->comm, request)) {
		start_s = dlb_clock_s();
		if (dlb_comm_wait(e->ground->comm, request, err))
			return -1;
		waited_s = dlb_clock_s() - start_s;
		t->waits_s[kind] += waited_s;
		if (e->ground->debt_s < 0.0)		/* being late has cost nothing so far */
			e->ground->debt_s = fmin(0.0, e->ground->debt_s + waited_s);
	}
	if (a->xfer_s > 0.0 && !request->channel) {
		t->comm_s += a->xfer_s;
		t->comm_hidden_s += waited_s < a->xfer_s ? a->xfer_s - waited_s : 0.0;
	}
	if (a->landing)
		a->landing->stays[(request - a->request) % e->ring] = dlb_channel_stays(request);
	return 0;
}

static double copied_s(const struct dlb_engine *e)
{
	double s = 0.0;

	for (int i = 0; i < e->n_acts; i++)
		s += e->channel[i].copied_s;
	return s;
}

/* Squares of a step's gradients, on their way to all; asynchronous programs. */
static void run_squares(struct dlb_engine *e, int64_t step)
{
	double start_s = dlb_clock_s(), cpu_s = dlb_clock_thread_cpu_s();

	dlb_clip_start(&e->clip, e->ground->comm, e->ground->norms, e->view.program->replica == 0, step);
	if (e->ground->slow > 1.0)
		stretch(e->ground, start_s, dlb_clock_thread_cpu_s() - cpu_s);
	e->view.times.busy_s += dlb_clock_s() - start_s;
}

/* What the updates multiply gradients by. */
static int run_norm(struct dlb_engine *e, struct dlb_run *r, int64_t step, struct dlb_error *err)
{
	struct dlb_step_times *t = &e->view.times;
	double start_s = dlb_clock_s(), cpu_s = dlb_clock_thread_cpu_s(), sum_s;

	if (e->view.program->async)
		return dlb_clip_wait(&e->clip, e->ground->comm, step, &e->grad_scale[step % e->ring], &t->waits_s[DLB_WAIT_COLLECTIVE], err);
	dlb_clip_here(&e->clip, step);
	if (e->ground->slow > 1.0)
		stretch(e->ground, start_s, dlb_clock_thread_cpu_s() - cpu_s);
	sum_s = dlb_clock_s();
	t->busy_s += sum_s - start_s;
	if (dlb_clip_scale(&e->clip, e->ground->comm, e->clip.way[0].square.n_sets > 1 || e->view.program->replica == 0, step, &r->grad_scale, err))
		return -1;
	t->waits_s[DLB_WAIT_COLLECTIVE] += dlb_clock_s() - sum_s;
	return 0;
}

/* What updates multiply by what was preconditioned, beside that. */
static int run_trust(struct dlb_engine *e, const struct dlb_run *r, double *scale, struct dlb_error *err)
{
	const double start_s = dlb_clock_s(), rate = r->rate * (r->grad_scale > 0 ? r->grad_scale : 1);
	int rc = dlb_trust_scale(&e->trust, e->ground->kfac, e->ground->comm, e->view.program->replica == 0, rate, scale, err);

	e->view.times.waits_s[DLB_WAIT_COLLECTIVE] += dlb_clock_s() - start_s;
	return rc;
}

/* Points act a's pointers at what they are in `step` of a run (or what followed a drain) that began with step `first`. Returns
 * a number for the weights read, another one for other values: 2 v + 2 for those that v updates made, 2 v + 3 for those
 * expected of them; that of the step's own where it reads none of here. */
static uint64_t set_picks(struct dlb_engine *e, const struct act *a, int64_t step, int64_t first)
{
	uint64_t version = 2 * (uint64_t)step + 2;

	for (int i = a->pick; i >= 0; i = e->pick[i].next) {
		const struct pick *p = &e->pick[i];
		int64_t live = step - p->live, want = step - p->version;

		if (!p->weight) {
			const struct landing *l = p->landing && p->landing->stays[step % e->ring] ? p->landing : NULL;

			*p->at = l ? l->there + (size_t)(step % l->copies) * l->stride : p->base + (size_t)(step % p->copies) * p->stride;
			continue;
		}
		live = live < first ? first : live;
		want = p->expected && live < step ? step : want < first ? first : want;
		*p->at = want == live || !p->copies ? p->now : p->base + (size_t)(want % p->copies) * p->stride;
		version = 2 * (uint64_t)(p->copies ? want : live) + 2 + (p->expected && live < step);
	}
	return version;
}

/* Weights `distance` steps on: by the smoothed gradient as it is now. */
static void predict(struct dlb_engine *e, const struct act *a, const struct dlb_step *s, int64_t first, struct dlb_run r, double origin_s)
{
	int64_t live = s->step - a->predict < first ? first : s->step - a->predict;

	if (live == s->step)		/* nothing to foresee: it is read as it is */
		return;
	r.distance = (double)(s->step - live);
	r.step = live > 0 ? (uint64_t)live : 1;
	run_kernel(e, a, &r, origin_s);
}

static void add_loss(struct dlb_engine *e, const struct act *a, const struct dlb_step *s)
{
	double *sum = &e->loss_sum[s->step % e->ring];
	char raw[8] = { 0 };

	e->ground->be->ops->download(e->ground->be, raw, a->out[a->loss], dlb_dtype_bytes(e->loss_dtype));
	*sum = (a->m ? *sum : 0.0) + s->fed->seed[a->m] * dlb_value_real(raw, e->loss_dtype, 0);
}

/* What this replica adds of bucket b's moments; with no samples nothing, and its own stay. */
static void run_halves(struct dlb_engine *e, int b, struct dlb_run r, const struct dlb_step *s)
{
	const struct dlb_bucket *k = &e->np->bucket[b];
	double start_s = dlb_clock_s(), cpu_s = dlb_clock_thread_cpu_s();

	r.step = (uint64_t)s->step + 1;
	r.not_finite = NULL;
	for (int i = 0; i < k->n_ops && k->cls != DLB_SUM_STATISTICS; i++) {
		struct first_half *h = &e->half[k->op[i]];

		r.in = h->in;
		r.out = h->out;
		if (e->view.program->weightless)
			memset(h->moments, 0, 2 * h->bytes);
		else
			h->kernel->run(h->kernel, &r);
	}
	e->ground->be->ops->sync(e->ground->be);
	if (e->ground->slow > 1.0)
		stretch(e->ground, start_s, dlb_clock_thread_cpu_s() - cpu_s);
	e->view.times.busy_s += dlb_clock_s() - start_s;
}

int dlb_engine_run(struct dlb_engine *e, const struct dlb_step *s, struct dlb_error *err)
{
	const struct dlb_window w = { .iteration = s->step, .first = s->step, .end = s->step + 1, .step = s, .n = 1 };

	return dlb_engine_run_iteration(e, &w, err);
}

int dlb_engine_run_iteration(struct dlb_engine *e, const struct dlb_window *w, struct dlb_error *err)
{
	struct dlb_ground *g = e->ground;
	struct dlb_step_times *t = &e->view.times;
	double origin_s = dlb_clock_s(), copied_before_s, trust = 1, clip;
	int64_t not_finite = 0;
	struct dlb_run r = { .shrunk = &e->view.shrunk };
	bool several = e->view.program->depth > 0;

	if (scratch_ready(g, err))
		return -1;
	r.scratch = g->scratch;
	t->busy_s = t->comm_s = t->comm_hidden_s = t->in_place_bytes = 0.0;
	copied_before_s = copied_s(e);
	memset(t->waits_s, 0, sizeof t->waits_s);
	t->command_s = 0.0;
	if (e->exchange)
		dlb_exchange_begin(e->exchange, w->iteration);
	for (int i = 0; i < e->n_acts; i++) {
		const struct act *a = &e->act[i];
		const int64_t step = w->iteration - a->iteration;
		const struct dlb_step *s = &w->step[step > 0 ? step % w->n : 0];
		struct dlb_request *request;

		if (step < w->first || step >= w->end)
			continue;
		request = a->request ? a->request + (several ? step % e->ring : 0) : NULL;
		r.seed = s->seed;
		r.rate = s->rate * (a->update ? a->rate_scale : 1.0);
		r.rate_before = s->rate_before * (a->update ? a->rate_scale : 1.0);
		r.has_rate = s->has_rate;
		r.weight_version = s->version;
		if (several)
			r.weight_version = set_picks(e, a, step, w->first);
		else if (a->pick >= 0)		/* of messages alone */
			set_picks(e, a, step, w->first);
		switch (a->kind) {
		case ACT_POST:
			if (a->channel)
				dlb_channel_post(a->channel, a->peer, request);
			else
				dlb_comm_irecv(g->comm, a->p, a->bytes, a->peer, a->tag, request);
			break;
		case ACT_SEND:
			run_send(e, a, request);
			break;
		case ACT_RETURN:
			if (a->channel)
				dlb_channel_return(a->channel);
			break;
		case ACT_WAIT:
			if (run_wait(e, a, request, DLB_WAIT_STARVED, err))
				return -1;
			break;
		case ACT_WAIT_SENT:
			if (run_wait(e, a, request, DLB_WAIT_BACKPRESSURE, err))
				return -1;
			break;
		case ACT_COPY:
			g->be->ops->upload(g->be, a->p, s->fed->base + a->offset, a->bytes);
			break;
		case ACT_SEED:
			{
				double seed = 0.0;	/* bytes for any float type */

				dlb_value_set(&seed, a->dtype, 0, s->fed->seed[a->m]);
				g->be->ops->upload(g->be, a->p, &seed, dlb_dtype_bytes(a->dtype));
			}
			break;
		case ACT_SQUARES:
			run_squares(e, step);
			break;
		case ACT_NORM:
			if (run_norm(e, &r, step, err))
				return -1;
			break;
		case ACT_TRUST:
			if (run_trust(e, &r, &trust, err))
				return -1;
			break;
		case ACT_RUN:
			clip = r.grad_scale;
			if (a->preconditioned)
				r.grad_scale = trust * (clip > 0 ? clip : 1);
			/* Updates count steps from 1 (bias correction). */
			r.step = (uint64_t)s->step + (a->update ? 1 : 0);
			if (a->update && e->view.program->async && e->clip.n_ways)
				r.grad_scale = e->grad_scale[step % e->ring];
			r.not_finite = a->update && a->watched >= 0 ? &not_finite : NULL;
			if (a->predict)
				predict(e, a, s, w->first, r, origin_s);
			else
				run_kernel(e, a, &r, origin_s);
			r.grad_scale = clip;
			if (not_finite && e->view.not_finite < 0)
				e->view.not_finite = a->watched;
			if (e->view.program->async && a->loss >= 0)
				add_loss(e, a, s);
			dlb_comm_progress(g->comm);
			if (e->exchange)
				dlb_exchange_nudge(e->exchange);
			break;
		case ACT_COMPUTED:
			if (dlb_exchange_command(g->comm, a->p, &t->waits_s[DLB_WAIT_COLLECTIVE], &t->command_s, err))
				return -1;
			break;
		case ACT_REDUCE:
			if (e->half)
				run_halves(e, a->tag, r, s);
			dlb_exchange_start(e->exchange, a->tag, step);
			break;
		case ACT_REDUCED:
			if (dlb_exchange_wait(e->exchange, a->tag, &t->waits_s[DLB_WAIT_COLLECTIVE], err))
				return -1;
			break;
		}
	}
	t->comm_s += copied_s(e) - copied_before_s;
	if (e->exchange) {
		if (dlb_exchange_settle(e->exchange, err))
			return -1;
		const struct dlb_exchange_times *x = dlb_exchange_times(e->exchange);

		t->sum_s = x->time_s;
		t->sum_hidden_s = x->hidden_s;
		memcpy(t->class_s, x->class_s, sizeof t->class_s);
		memcpy(t->class_hidden_s, x->class_hidden_s, sizeof t->class_hidden_s);
	}
	return 0;
}

const struct dlb_exchange *dlb_engine_exchange(const struct dlb_engine *e)
{
	return e->exchange;
}

double dlb_engine_loss_of(const struct dlb_engine *e, const struct dlb_step *s)
{
	return e->view.program->async ? e->loss_sum[s->step % e->ring] : dlb_engine_loss(e, s->fed->seed);
}

double dlb_engine_loss(const struct dlb_engine *e, const double *seed)
{
	double sum = 0.0;

	for (int m = 0; m < e->view.program->micro_batches; m++) {
		double value = 0.0;
		char raw[8] = { 0 };

		if (!e->loss[m])
			return 0.0;
		e->ground->be->ops->download(e->ground->be, raw, e->loss[m], dlb_dtype_bytes(e->loss_dtype));
		value = dlb_value_real(raw, e->loss_dtype, 0);
		sum += seed[m] * value;
	}
	return sum;
}

const void *dlb_engine_at(const struct dlb_engine *e, int tensor, int m)
{
	struct dlb_error ignored;

	/* resolve only reads, but for constants, which nobody asks for here */
	return dlb_act_resolve((struct dlb_engine *)(uintptr_t)e, tensor, m, &ignored);
}
