/* Threads that fill samples in parallel. Each thread takes one sample of the batch at a time, so a slow image
 * delays no other. Each sample has its own destination, so the order of the batch does not change. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include "data/readers.h"
#include "data/source.h"
#include "util/mem.h"
#include "util/thread.h"

void *dlb_scratch(struct dlb_scratch *s, enum dlb_scratch_use use, size_t bytes)
{
	if (bytes > s->cap[use]) {
		free(s->p[use]);
		s->p[use] = dlb_xmalloc(bytes + bytes / 4 + 64);
		s->cap[use] = bytes + bytes / 4 + 64;
	}
	return s->p[use];
}

void dlb_scratch_release(struct dlb_scratch *s)
{
	for (int i = 0; i < DLB_N_SCRATCH; i++)
		free(s->p[i]);
	memset(s, 0, sizeof *s);
}

struct dlb_readers {
	int n_threads;				/* besides the caller */
	pthread_t *thread;
	struct dlb_scratch *scratch;		/* [n_threads + 1]; the last is the caller's */
	pthread_mutex_t lock;
	pthread_cond_t work, done;
	bool stop;
	int started, busy;
	int64_t next, n;
	void (*fn)(void *ctx, int64_t i, struct dlb_scratch *s);
	void *ctx;
};

/* Takes samples until all are taken. The caller holds the lock, which is released during fn. */
static void take(struct dlb_readers *r, struct dlb_scratch *s)
{
	while (r->next < r->n) {
		int64_t i = r->next++;

		pthread_mutex_unlock(&r->lock);
		r->fn(r->ctx, i, s);
		pthread_mutex_lock(&r->lock);
	}
}

static void *reader(void *arg)
{
	struct dlb_readers *r = arg;
	struct dlb_scratch *s;

	pthread_mutex_lock(&r->lock);
	s = &r->scratch[r->started++];
	while (!r->stop) {
		if (r->next < r->n) {
			r->busy++;
			take(r, s);
			if (--r->busy == 0)
				pthread_cond_signal(&r->done);
		} else {
			pthread_cond_wait(&r->work, &r->lock);
		}
	}
	pthread_mutex_unlock(&r->lock);
	return NULL;
}

int dlb_readers_new(struct dlb_readers **out, int n, struct dlb_error *err)
{
	struct dlb_readers *r = dlb_xcalloc(1, sizeof *r);
	int failed = 0;

	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->work, NULL);
	pthread_cond_init(&r->done, NULL);
	r->thread = dlb_xcalloc((size_t)n, sizeof *r->thread);
	r->scratch = dlb_xcalloc((size_t)n, sizeof *r->scratch);
	while (r->n_threads < n - 1 && !failed) {
		failed = dlb_thread_start(&r->thread[r->n_threads], NULL, reader, r);
		r->n_threads += !failed;
	}
	if (failed) {
		dlb_readers_free(r);
		return dlb_fail(err, NULL, "cannot start %d threads that read: %s; try --readers 1", n,
				strerror(failed));
	}
	*out = r;
	return 0;
}

void dlb_readers_free(struct dlb_readers *r)
{
	if (!r)
		return;
	pthread_mutex_lock(&r->lock);
	r->stop = true;
	pthread_cond_broadcast(&r->work);
	pthread_mutex_unlock(&r->lock);
	for (int i = 0; i < r->n_threads; i++)
		pthread_join(r->thread[i], NULL);
	for (int i = 0; i <= r->n_threads; i++)
		dlb_scratch_release(&r->scratch[i]);
	pthread_cond_destroy(&r->work);
	pthread_cond_destroy(&r->done);
	pthread_mutex_destroy(&r->lock);
	free(r->thread);
	free(r->scratch);
	free(r);
}

void dlb_readers_run(struct dlb_readers *r, int64_t n,
		     void (*fn)(void *ctx, int64_t i, struct dlb_scratch *s), void *ctx)
{
	pthread_mutex_lock(&r->lock);
	r->fn = fn;
	r->ctx = ctx;
	r->next = 0;
	r->n = n;
	pthread_cond_broadcast(&r->work);
	take(r, &r->scratch[r->n_threads]);
	while (r->busy)
		pthread_cond_wait(&r->done, &r->lock);
	r->n = r->next = 0;
	pthread_mutex_unlock(&r->lock);
}
