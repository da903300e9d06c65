/* Keeps the newest content in a file. See latest.h. */
#include "util/latest.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "util/mem.h"
#include "util/thread.h"
#include "util/output.h"

struct latest_text { char *at; size_t n; };

struct dlb_latest {
	char *path;
	pthread_mutex_t lock;
	pthread_cond_t more, idle;
	pthread_t thread;
	struct latest_text waiting;	/* at NULL: none */
	bool threaded, writing, stop, left;	/* left: the thread releases this struct */
	struct dlb_error wrong;		/* what empty: the newest write succeeded */
};

static void release(struct dlb_latest *l)
{
	pthread_cond_destroy(&l->more);
	pthread_cond_destroy(&l->idle);
	pthread_mutex_destroy(&l->lock);
	free(l->waiting.at);
	free(l->path);
	free(l);
}

/* Writes text t to `path` and frees it. */
static int write_now(const char *path, struct latest_text t, struct dlb_error *err)
{
	struct dlb_output o;
	int rc = dlb_output_open(&o, path, err);

	if (!rc) {
		fwrite(t.at, 1, t.n, o.f);	/* _place reports its errors */
		rc = dlb_output_place(&o, err);
		dlb_output_abort(&o);
	}
	free(t.at);
	return rc;
}

static void *run(void *arg)
{
	struct dlb_latest *l = arg;
	bool left;

	pthread_mutex_lock(&l->lock);
	while (!l->left) {
		const struct latest_text mine = l->waiting;
		struct dlb_error err = { .what = "" };

		if (!mine.at && l->stop)
			break;
		if (!mine.at) {
			pthread_cond_wait(&l->more, &l->lock);
			continue;
		}
		l->waiting.at = NULL;
		l->writing = true;
		pthread_mutex_unlock(&l->lock);
		write_now(l->path, mine, &err);
		pthread_mutex_lock(&l->lock);
		l->writing = false;
		l->wrong = err;
		pthread_cond_signal(&l->idle);
	}
	left = l->left;
	pthread_mutex_unlock(&l->lock);
	if (left)
		release(l);
	return NULL;
}

int dlb_latest_new(struct dlb_latest **out, const char *path, struct dlb_error *err)
{
	struct dlb_latest *l;

	if (dlb_output_check(path, err))
		return -1;
	l = *out = dlb_xcalloc(1, sizeof *l);
	l->path = dlb_xstrdup(path);
	pthread_mutex_init(&l->lock, NULL);
	pthread_cond_init(&l->more, NULL);
	pthread_cond_init(&l->idle, NULL);
	l->threaded = !dlb_thread_start(&l->thread, NULL, run, l);
	return 0;
}

void dlb_latest_put(struct dlb_latest *l, const char *text, size_t n)
{
	struct latest_text t = { dlb_xmalloc(n + 1), n };

	memcpy(t.at, text, n);
	if (!l->threaded) {
		l->wrong.what[0] = '\0';
		write_now(l->path, t, &l->wrong);
		return;
	}
	pthread_mutex_lock(&l->lock);
	free(l->waiting.at);
	l->waiting = t;
	pthread_cond_signal(&l->more);
	pthread_mutex_unlock(&l->lock);
}

int dlb_latest_failed(struct dlb_latest *l, struct dlb_error *err)
{
	int rc;

	pthread_mutex_lock(&l->lock);
	rc = l->wrong.what[0] ? -1 : 0;
	if (rc && err)
		*err = l->wrong;
	pthread_mutex_unlock(&l->lock);
	return rc;
}

int dlb_latest_free(struct dlb_latest *l, double wait_s, struct dlb_error *err)
{
	struct timespec until;
	bool left;
	int rc = 0;

	if (!l)
		return 0;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += (time_t)(wait_s < 1e6 ? wait_s : 1e6) + 1;
	pthread_mutex_lock(&l->lock);
	l->stop = true;
	pthread_cond_signal(&l->more);
	while (l->threaded && (l->waiting.at || l->writing) && !rc)
		rc = pthread_cond_timedwait(&l->idle, &l->lock, &until);
	left = l->left = l->threaded && (l->waiting.at || l->writing);
	if (left) {
		pthread_detach(l->thread);
		dlb_fail(err, NULL, "cannot write '%s': its disk does not take it", l->path);
	}
	pthread_mutex_unlock(&l->lock);		/* if left, the thread owns l from here on */
	if (left)
		return -1;
	if (l->threaded)
		pthread_join(l->thread, NULL);
	rc = dlb_latest_failed(l, err);
	release(l);
	return rc;
}
