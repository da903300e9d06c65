/* Reading ahead: a thread prepares the samples of the next step while this one computes.
 *
 * A few slots (two, more where several steps are in flight), filled in turn in the order asked for. A slot is laid out as its engine wants it: each (fed
 * tensor, micro-batch) at its offset, and the seeds (weights of the micro-batches in the loss: labels
 * that count over all that count, in all replicas; where each replica updates by its own gradient, in it alone). Nothing that a node does not read is prepared on it. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "exec/engine.h"
#include "util/mem.h"

struct slot { struct dlb_fed fed; int which, rc; int64_t epoch, first; struct dlb_error err; };

struct dlb_feed {
	struct dlb_data *data;
	struct dlb_engine *const *engine;
	struct slot *slot; int n_slots;
	int64_t asked, filled, taken;		/* counts; slot = count % n_slots */
	bool stop, started;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
};

static void fill(struct dlb_feed *f, struct slot *s)
{
	const struct dlb_engine_program *v = dlb_engine_view(f->engine[s->which]);
	const struct dlb_program *p = v->program;
	struct dlb_error err;
	double total = dlb_data_counted(f->data, s->epoch, s->first, p->step_batch);

	s->rc = 0;
	for (int i = 0; i < v->n_feed; i++) {
		const struct dlb_feed_item *x = &v->feed[i];

		if (!dlb_data_fill(f->data, x->tensor, s->epoch, s->first + x->first, x->n, s->fed.base + x->offset, &err) || s->rc)
			continue;
		s->rc = -1;
		s->err = err;
	}
	for (int m = 0; m < p->micro_batches; m++)
		s->fed.seed[m] = p->weightless ? 0.0 : dlb_data_counted(f->data, s->epoch, s->first + p->first[m], p->size[m]);
	s->fed.weight = 1.0;
	if (p->n_replicas > 1 && dlb_sharing_own_mean(&p->whole->sharing)) {
		double own = 0.0;

		for (int m = 0; m < p->micro_batches; m++)
			own += s->fed.seed[m];
		s->fed.weight = total > 0.0 ? own / total : 0.0;
		total = own;
	}
	for (int m = 0; m < p->micro_batches; m++)
		s->fed.seed[m] = total > 0.0 ? s->fed.seed[m] / total : 0.0;
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
		fill(f, &f->slot[f->filled % f->n_slots]);
		pthread_mutex_lock(&f->lock);
		f->filled++;
		pthread_cond_broadcast(&f->changed);
	}
	pthread_mutex_unlock(&f->lock);
	return NULL;
}

int dlb_feed_new(struct dlb_feed **out, struct dlb_data *data, struct dlb_engine *const *e, int n, int slots, struct dlb_error *err)
{
	struct dlb_feed *f = dlb_xcalloc(1, sizeof *f);
	size_t bytes = 64, seeds = 1;
	bool any = false;

	f->data = data;
	f->engine = e;
	f->n_slots = slots;
	f->slot = dlb_xcalloc((size_t)slots, sizeof *f->slot);
	for (int i = 0; i < n; i++) {
		const struct dlb_engine_program *v = dlb_engine_view(e[i]);

		bytes = v->feed_bytes > bytes ? v->feed_bytes : bytes;
		seeds = (size_t)v->program->micro_batches > seeds ? (size_t)v->program->micro_batches : seeds;
		any = any || v->n_feed;
	}
	for (int i = 0; i < slots; i++) {
		f->slot[i].fed.base = dlb_xcalloc(bytes, 1);
		f->slot[i].fed.seed = dlb_xcalloc(seeds, sizeof(double));
	}
	pthread_mutex_init(&f->lock, NULL);
	pthread_cond_init(&f->changed, NULL);
	/* A node that reads no samples only counts labels: not worth a thread. */
	if (any && pthread_create(&f->thread, NULL, work, f)) {
		dlb_feed_free(f);
		return dlb_fail(err, NULL, "cannot start the thread that reads ahead");
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
	for (int i = 0; i < f->n_slots; i++) {
		free(f->slot[i].fed.base);
		free(f->slot[i].fed.seed);
	}
	free(f->slot);
	free(f);
}

void dlb_feed_ask(struct dlb_feed *f, int which, int64_t epoch, int64_t first)
{
	struct slot *s = &f->slot[f->asked % f->n_slots];

	pthread_mutex_lock(&f->lock);
	s->which = which;
	s->epoch = epoch;
	s->first = first;
	f->asked++;
	if (f->started)
		pthread_cond_broadcast(&f->changed);
	pthread_mutex_unlock(&f->lock);
}

const struct dlb_fed *dlb_feed_take(struct dlb_feed *f, int *rc, struct dlb_error *err)
{
	struct slot *s = &f->slot[f->taken % f->n_slots];

	pthread_mutex_lock(&f->lock);
	if (!f->started) {
		fill(f, s);
		f->filled++;
	}
	while (f->filled <= f->taken)
		pthread_cond_wait(&f->changed, &f->lock);
	f->taken++;
	pthread_mutex_unlock(&f->lock);
	*rc = s->rc;
	if (s->rc)
		*err = s->err;
	return &s->fed;
}
