/* See await.h. */
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include "comm/await.h"
#include "util/mem.h"
#include "util/thread.h"

#define BEATS 4				/* signs of life per time-out */
#define LONGEST_S 5.0			/* the longest time between two signs of life */

struct worker {
	int (*work)(void *ctx, struct dlb_error *err);
	void *ctx;
	struct dlb_error err;
	int rc;
	bool done;
	pthread_mutex_t lock;
	pthread_cond_t changed;
};

static void *run(void *arg)
{
	struct worker *w = arg;
	int rc = w->work(w->ctx, &w->err);

	pthread_mutex_lock(&w->lock);
	w->rc = rc;
	w->done = true;
	pthread_cond_signal(&w->changed);
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

/* Waits for w, at most s seconds. Returns whether it is done. */
static bool wait_for(struct worker *w, double s)
{
	struct timespec until;
	bool done;
	int rc = 0;

	clock_gettime(CLOCK_REALTIME, &until);
	s += (double)until.tv_nsec * 1e-9;
	until.tv_sec += (time_t)s;
	until.tv_nsec = (long)((s - (double)(time_t)s) * 1e9);
	pthread_mutex_lock(&w->lock);
	while (!w->done && rc == 0)
		rc = pthread_cond_timedwait(&w->changed, &w->lock, &until);
	done = w->done;
	pthread_mutex_unlock(&w->lock);
	return done;
}

/* Runs the work in a thread, and tells the other ranks every every_s seconds whether it is done. If another
 * rank is lost, the thread is detached, because it may block on its pipe for ever. */
static int work_and_tell(struct dlb_comm *c, double every_s, struct worker *w, struct dlb_error *err)
{
	const bool alone = dlb_comm_size(c) == 1;
	bool done = false;
	pthread_t thread;
	int rc;

	if (alone || dlb_thread_start(&thread, NULL, run, w)) {
		rc = w->work(w->ctx, &w->err);
		done = true;
		if (!alone && dlb_comm_bcast(c, &done, sizeof done, 0, err))
			return -1;
	} else {
		while (!done) {
			done = wait_for(w, every_s);
			if (dlb_comm_bcast(c, &done, sizeof done, 0, err)) {
				pthread_detach(thread);
				return -1;
			}
		}
		pthread_join(thread, NULL);
		rc = w->rc;
	}
	if (rc)
		*err = w->err;
	return rc;
}

static struct worker *worker_new(int (*work)(void *ctx, struct dlb_error *err), void *ctx)
{
	struct worker *w = dlb_xcalloc(1, sizeof *w);

	w->work = work;
	w->ctx = ctx;
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->changed, NULL);
	return w;
}

static double beat_s(double timeout_s)
{
	return timeout_s > 0 && timeout_s / BEATS < LONGEST_S ? timeout_s / BEATS : LONGEST_S;
}

int dlb_comm_await_all(struct dlb_comm *c, int (*work)(void *ctx, struct dlb_error *err), void *ctx,
		       struct dlb_error *err)
{
	struct worker *w = worker_new(work, ctx);
	pthread_t thread;
	const bool threaded = dlb_comm_size(c) > 1 && !dlb_thread_start(&thread, NULL, run, w);
	double all_done = 0;
	int rc = 0;

	if (!threaded) {
		w->rc = work(ctx, &w->err);
		w->done = true;
	}
	while (!rc && all_done < 1) {
		all_done = wait_for(w, beat_s(dlb_comm_timeout_s(c)));
		rc = dlb_comm_allreduce_f64(c, &all_done, 1, DLB_COMM_MIN, err);
	}
	if (threaded)
		pthread_join(thread, NULL);	/* it uses the caller's data */
	if (!rc && w->rc) {
		rc = w->rc;
		*err = w->err;
	}
	free(w);
	return rc;
}

int dlb_comm_await(struct dlb_comm *c, double timeout_s, int (*work)(void *ctx, struct dlb_error *err),
		   void *ctx, struct dlb_error *err)
{
	struct worker *w;
	bool done = false;
	int rc;

	while (dlb_comm_rank(c) && !done)
		if (dlb_comm_bcast(c, &done, sizeof done, 0, err))
			return -1;
	if (dlb_comm_rank(c))
		return 0;
	w = worker_new(work, ctx);
	rc = work_and_tell(c, beat_s(timeout_s), w, err);
	if (!dlb_comm_broken(c))	/* else the thread may still use it */
		free(w);
	return rc;
}
