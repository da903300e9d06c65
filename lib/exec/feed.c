/* Reads ahead: a thread prepares the samples of the next step while this one computes.
 *
 * A few slots (two, more with several steps in flight) are filled in turn, in the order of the requests. The
 * share of a node in a step has the weight, the seeds, then each (fed tensor, micro-batch) at the engine's
 * offset. The seed of a micro-batch is its weight in the loss: the number of its counted labels divided by
 * the number of all counted labels, over all replicas or, if replicas use their own means
 * (dlb_sharing_own_mean), over its own replica. A node's share has only tensors that the node reads.
 *
 * Each node reads its own shares, or rank 0 reads all shares and sends them (dispatch.c); the other ranks
 * then have no thread. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "data/data.h"
#include "exec/dispatch.h"
#include "exec/feed.h"
#include "exec/runtime.h"
#include "plan/feed_load.h"
#include "plan/sharing.h"
#include "util/clock.h"
#include "util/mem.h"

struct feed_slot { struct dlb_fed fed; int which, rc; int64_t epoch, first; struct dlb_error err; };

struct dlb_feed {
	struct dlb_data *data;
	struct dlb_engine *const *engine;
	struct dlb_dispatch *dispatch;		/* NULL: each node reads its own shares */
	struct dlb_backend *be;
	struct feed_slot *slot; int n_slots;
	char **own;				/* [slot] this node's share */
	int64_t asked, filled, taken;		/* numbers of shares so far; slot = number % n_slots */
	bool stop, started;
	struct dlb_feed_time *time;
	int n_times, cap_times;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
};

/* seed[m]: the share of micro-batch m in a loss that counts the labels of tensor `label` (-1: samples).
 * Returns the weight of this replica's loss in the step's loss: 1, unless replicas use their own means. */
static double shares(struct dlb_feed *f, const struct feed_slot *s, const struct dlb_program *p, int label,
		     double *seed)
{
	double total = dlb_data_counted(f->data, label, s->epoch, s->first, p->step_batch), weight = 1.0;

	for (int m = 0; m < p->micro_batches; m++)
		seed[m] = p->weightless ? 0.0 :
					  dlb_data_counted(f->data, label, s->epoch, s->first + p->first[m],
							   p->size[m]);
	if (p->n_replicas > 1 && dlb_sharing_own_mean(&p->whole->sharing)) {
		double own = 0.0;

		for (int m = 0; m < p->micro_batches; m++)
			own += seed[m];
		weight = total > 0.0 ? own / total : 0.0;
		total = own;
	}
	for (int m = 0; m < p->micro_batches; m++)
		seed[m] = total > 0.0 ? seed[m] / total : 0.0;
	return weight;
}

/* All losses share one seed of the gradient. So every loss must count labels in proportion to the samples of
 * the micro-batches. */
static void check_shares(struct dlb_feed *f, struct feed_slot *s, const struct dlb_program *p,
			 const struct dlb_fed *fed)
{
	double *seed = dlb_xcalloc((size_t)p->micro_batches + 1, sizeof *seed);
	int label;

	for (int k = 0; (label = dlb_data_label(f->data, k)) >= 0 && !s->rc; k++) {
		const double weight = shares(f, s, p, label, seed);

		for (int m = 0; m < p->micro_batches && !s->rc; m++) {
			if (fabs(seed[m] - fed->seed[m]) <= 1e-12 && fabs(weight - fed->weight) <= 1e-12)
				continue;
			s->rc = dlb_fail(&s->err, p->graph->tensor[label].name,
					 "micro-batch %d has %.6g of the samples of its step but %.6g "
					 "of the labels that count, and the model has several losses",
					 m, fed->seed[m], seed[m]);
			dlb_hint(&s->err, "take one micro-batch and one replica, or labels without ignored "
					  "ones and class weights");
		}
	}
	free(seed);
}

static void set_seeds(struct dlb_feed *f, struct feed_slot *s, const struct dlb_program *p,
		      struct dlb_fed *fed)
{
	const bool several = dlb_data_losses(f->data) > 1;

	fed->weight = shares(f, s, p, several ? -1 : dlb_data_label(f->data, 0), fed->seed);
	if (several && !s->rc)
		check_shares(f, s, p, fed);
}

static struct dlb_fed fed_at(char *share, const struct dlb_program *p)
{
	return (struct dlb_fed){ .base = share + dlb_feed_header_bytes(p),
				 .seed = (double *)(void *)share + 1,
				 .weight = *(const double *)(const void *)share };
}

static void count_time(struct dlb_feed *f, const struct dlb_feed_item *t, double time_s)
{
	int i = 0;

	pthread_mutex_lock(&f->lock);
	while (i < f->n_times && f->time[i].tensor != t->tensor)
		i++;
	if (i == f->n_times) {
		DLB_GROW(f->time, f->n_times, f->cap_times);
		f->time[f->n_times++] = (struct dlb_feed_time){ .tensor = t->tensor };
	}
	f->time[i].time_s += time_s;
	f->time[i].samples += (double)t->n;
	pthread_mutex_unlock(&f->lock);
}

/* first: of the feed; it opens files and fills caches. */
static void fill_share(struct dlb_feed *f, struct feed_slot *s, const struct dlb_dispatch_share *x,
		       char *share, bool first)
{
	struct dlb_fed fed = fed_at(share, x->program);
	struct dlb_error err;

	for (int i = 0; i < x->n_items; i++) {
		const struct dlb_feed_item *t = &x->item[i];
		const double begin_s = dlb_clock_s();
		const int rc = dlb_data_fill(f->data, t->tensor, s->epoch, s->first + t->first, t->n,
					     fed.base + t->offset, &err);

		if (!first)
			count_time(f, t, dlb_clock_s() - begin_s);
		if (!rc || s->rc)
			continue;
		s->rc = -1;
		s->err = err;
	}
	set_seeds(f, s, x->program, &fed);
	*(double *)(void *)share = fed.weight;
}

static struct dlb_dispatch_share own_share(const struct dlb_feed *f, int which)
{
	const struct dlb_engine_program *v = dlb_engine_view(f->engine[which]);

	return (struct dlb_dispatch_share){
		.program = v->program, .item = v->feed, .n_items = v->n_feed, .bytes = v->feed_bytes
	};
}

static void fill(struct dlb_feed *f, int64_t n)
{
	const int at = (int)(n % f->n_slots);
	struct feed_slot *s = &f->slot[at];
	const struct dlb_dispatch_share own = own_share(f, s->which);

	s->rc = 0;
	fill_share(f, s, &own, f->own[at], n == 0);
	for (int k = 1; f->dispatch && k < dlb_dispatch_nodes(f->dispatch); k++)
		fill_share(f, s, dlb_dispatch_share(f->dispatch, k, s->which),
			   dlb_dispatch_place(f->dispatch, k, at), n == 0);
}

static void *work(void *arg)
{
	struct dlb_feed *f = arg;

	pthread_mutex_lock(&f->lock);
	for (;;) {
		while (!f->stop && f->filled == f->asked)
			pthread_cond_wait(&f->changed, &f->lock);
		if (f->stop)
			break;
		pthread_mutex_unlock(&f->lock);
		fill(f, f->filled);
		pthread_mutex_lock(&f->lock);
		f->filled++;
		pthread_cond_broadcast(&f->changed);
	}
	pthread_mutex_unlock(&f->lock);
	return NULL;
}

int dlb_feed_new(struct dlb_feed **out, struct dlb_data *data, const struct dlb_fed_engines *fed,
		 struct dlb_dispatch *dispatch, struct dlb_error *err)
{
	struct dlb_engine *const *e = fed->engine;
	const int n = fed->n, slots = fed->slots;
	struct dlb_feed *f = dlb_xcalloc(1, sizeof *f);
	size_t bytes = 64;
	bool any = dispatch != NULL;

	f->data = data;
	f->engine = e;
	f->dispatch = dispatch;
	f->be = fed->be;
	f->n_slots = slots;
	f->slot = dlb_xcalloc((size_t)slots, sizeof *f->slot);
	f->own = dlb_xcalloc((size_t)slots, sizeof *f->own);
	for (int i = 0; i < n; i++) {
		const struct dlb_dispatch_share own = own_share(f, i);
		const size_t b = dlb_feed_header_bytes(own.program) + own.bytes;

		bytes = b > bytes ? b : bytes;
		any = any || own.n_items;
	}
	pthread_mutex_init(&f->lock, NULL);
	pthread_cond_init(&f->changed, NULL);
	for (int i = 0; i < slots; i++) {
		f->own[i] = dispatch ? dlb_dispatch_own(dispatch, i) : dlb_samples_alloc(f->be, bytes, err);
		if (!f->own[i]) {
			dlb_feed_free(f);
			return -1;
		}
	}
	/* A node that reads no samples only counts labels; it needs no thread. */
	any = any && data;
	if (any && pthread_create(&f->thread, NULL, work, f)) {
		dlb_feed_free(f);
		return dlb_fail(
			err, NULL,
			"cannot start the thread that reads ahead: too little memory, or too many threads");
	}
	f->started = any;
	*out = f;
	return 0;
}

void dlb_feed_free(struct dlb_feed *f)
{
	if (!f)
		return;
	if (f->started) {
		pthread_mutex_lock(&f->lock);
		f->stop = true;
		pthread_cond_broadcast(&f->changed);
		pthread_mutex_unlock(&f->lock);
		pthread_join(f->thread, NULL);
	}
	pthread_mutex_destroy(&f->lock);
	pthread_cond_destroy(&f->changed);
	for (int i = 0; i < f->n_slots && !f->dispatch; i++)
		dlb_samples_free(f->be, f->own[i]);
	free(f->time);
	free(f->own);
	free(f->slot);
	free(f);
}

int dlb_feed_ahead(const struct dlb_feed *f)
{
	return f->dispatch ? dlb_dispatch_levels(f->dispatch) + 1 : 1;
}

int dlb_feed_ask(struct dlb_feed *f, int which, int64_t epoch, int64_t first, struct dlb_error *err)
{
	struct feed_slot *s = &f->slot[f->asked % f->n_slots];

	/* waits until the slot's previous share was sent */
	if (f->dispatch && dlb_dispatch_ask(f->dispatch, which, err))
		return -1;
	pthread_mutex_lock(&f->lock);
	s->which = which;
	s->epoch = epoch;
	s->first = first;
	f->asked++;
	if (f->started)
		pthread_cond_broadcast(&f->changed);
	pthread_mutex_unlock(&f->lock);
	return 0;
}

/* Waits until n shares are prepared; returns the number of prepared shares. */
static int64_t prepared(struct dlb_feed *f, int64_t n)
{
	pthread_mutex_lock(&f->lock);
	while (f->filled < n)
		pthread_cond_wait(&f->changed, &f->lock);
	n = f->filled;
	pthread_mutex_unlock(&f->lock);
	return n;
}

int dlb_feed_take(struct dlb_feed *f, const struct dlb_fed **fed, int *wrong, struct dlb_error *why,
		  struct dlb_error *err)
{
	const int at = (int)(f->taken % f->n_slots);
	struct feed_slot *s = &f->slot[at];
	int64_t filled = 0;

	if (!f->dispatch && !f->started) {
		fill(f, f->taken);
		f->filled++;
	} else if (f->started) {
		filled = prepared(f, f->taken + 1);
	}
	if (f->dispatch && dlb_dispatch_take(f->dispatch, f->taken, filled, err))
		return -1;
	f->taken++;
	*wrong = s->rc;
	if (s->rc)
		*why = s->err;
	s->fed = fed_at(f->own[at], own_share(f, s->which).program);
	*fed = &s->fed;
	return 0;
}

struct dlb_feed_time *dlb_feed_take_times(struct dlb_feed *f, int *n)
{
	struct dlb_feed_time *taken;

	pthread_mutex_lock(&f->lock);
	taken = f->time;
	*n = f->n_times;
	f->time = NULL;
	f->n_times = f->cap_times = 0;
	pthread_mutex_unlock(&f->lock);
	return taken;
}

int dlb_feed_settle(struct dlb_feed *f, struct dlb_error *err)
{
	return f && f->dispatch ?
		       dlb_dispatch_settle(f->dispatch, f->started ? prepared(f, f->asked) : 0, err) :
		       0;
}
