/* Writes the lines of a log in a thread. See lines.h. */
#define _XOPEN_SOURCE 700
#include "util/lines.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "util/mem.h"
#include "util/thread.h"

#define MOST_WAITING ((size_t)64 << 20)

struct line_buffer { char *at; size_t n, cap; };

struct dlb_lines {
	int fd;				/* a duplicate, open until the last line is written */
	bool regular;
	off_t end;			/* end of the last whole line */
	char *path;
	pthread_mutex_t lock;
	pthread_cond_t more, idle;
	pthread_t thread;
	bool threaded;
	struct line_buffer waiting;
	bool writing, stop, left;	/* left: the thread releases this struct */
	struct dlb_error wrong;		/* what empty: no error */
};

static void append(struct line_buffer *t, const char *text, size_t n)
{
	if (t->n + n > t->cap) {
		t->cap = 2 * (t->n + n);
		t->at = dlb_xrealloc(t->at, t->cap, 1);
	}
	memcpy(t->at + t->n, text, n);
	t->n += n;
}

/* If a write fails, cuts the file back to its last whole line. */
static int write_text(struct dlb_lines *l, const struct line_buffer *t, struct dlb_error *err)
{
	size_t at = 0, whole;

	while (at < t->n) {
		const ssize_t n = write(l->fd, t->at + at, t->n - at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		at += (size_t)n;
	}
	if (at == t->n) {
		l->end += (off_t)at;
		return 0;
	}
	dlb_fail(err, NULL, "cannot write '%s': %s", l->path, strerror(errno));
	for (whole = at; whole && t->at[whole - 1] != '\n'; whole--)
		;
	l->end += (off_t)whole;
	if (l->regular && ftruncate(l->fd, l->end))
		dlb_hint(err, "its last line is not whole");
	return -1;
}

static void release(struct dlb_lines *l)
{
	if (l->fd >= 0)
		close(l->fd);
	pthread_cond_destroy(&l->more);
	pthread_cond_destroy(&l->idle);
	pthread_mutex_destroy(&l->lock);
	free(l->waiting.at);
	free(l->path);
	free(l);
}

static void *run(void *arg)
{
	struct dlb_lines *l = arg;
	struct line_buffer mine = { .at = NULL };
	bool left;

	pthread_mutex_lock(&l->lock);
	while (!l->left) {
		struct dlb_error err = { .what = "" };
		const struct line_buffer empty = mine;

		if (!l->waiting.n && l->stop)
			break;
		if (!l->waiting.n) {
			pthread_cond_wait(&l->more, &l->lock);
			continue;
		}
		mine = l->waiting;
		l->waiting = empty;
		l->writing = true;
		pthread_mutex_unlock(&l->lock);
		write_text(l, &mine, &err);
		mine.n = 0;
		pthread_mutex_lock(&l->lock);
		l->writing = false;
		if (err.what[0]) {
			l->wrong = err;
			l->waiting.n = 0;
		}
		pthread_cond_signal(&l->idle);
	}
	left = l->left;
	pthread_mutex_unlock(&l->lock);
	free(mine.at);
	if (left)
		release(l);
	return NULL;
}

struct dlb_lines *dlb_lines_new(int fd, const char *path)
{
	struct dlb_lines *l = dlb_xcalloc(1, sizeof *l);
	struct stat st;

	l->fd = dup(fd);
	l->path = dlb_xstrdup(path);
	l->regular = !fstat(l->fd, &st) && S_ISREG(st.st_mode);
	l->end = lseek(l->fd, 0, SEEK_CUR);
	pthread_mutex_init(&l->lock, NULL);
	pthread_cond_init(&l->more, NULL);
	pthread_cond_init(&l->idle, NULL);
	l->threaded = !dlb_thread_start(&l->thread, NULL, run, l);
	return l;
}

void dlb_lines_put(struct dlb_lines *l, const char *text, size_t n)
{
	pthread_mutex_lock(&l->lock);
	if (!l->wrong.what[0] && l->waiting.n + n > MOST_WAITING) {
		dlb_fail(&l->wrong, NULL, "cannot write '%s': its disk has not taken the last %zu MiB",
			 l->path, MOST_WAITING >> 20);
		l->waiting.n = 0;
	}
	if (!l->wrong.what[0]) {
		append(&l->waiting, text, n);
		if (l->threaded && !l->writing)
			pthread_cond_signal(&l->more);
		if (!l->threaded)
			write_text(l, &l->waiting, &l->wrong);
		if (!l->threaded)
			l->waiting.n = 0;
	}
	pthread_mutex_unlock(&l->lock);
}

int dlb_lines_failed(struct dlb_lines *l, struct dlb_error *err)
{
	int rc;

	if (!l)
		return 0;
	pthread_mutex_lock(&l->lock);
	rc = l->wrong.what[0] ? -1 : 0;
	if (rc && err)
		*err = l->wrong;
	pthread_mutex_unlock(&l->lock);
	return rc;
}

int dlb_lines_drain(struct dlb_lines *l, struct dlb_error *err)
{
	if (!l)
		return 0;
	pthread_mutex_lock(&l->lock);
	while (l->waiting.n || l->writing)
		pthread_cond_wait(&l->idle, &l->lock);
	pthread_mutex_unlock(&l->lock);
	return dlb_lines_failed(l, err);
}

void dlb_lines_free(struct dlb_lines *l, double wait_s)
{
	struct timespec until;
	int rc = 0;

	if (!l)
		return;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += (time_t)(wait_s < 1e6 ? wait_s : 1e6) + 1;
	pthread_mutex_lock(&l->lock);
	l->stop = true;
	pthread_cond_signal(&l->more);
	while ((l->waiting.n || l->writing) && !rc)
		rc = pthread_cond_timedwait(&l->idle, &l->lock, &until);
	l->left = l->threaded && (l->waiting.n || l->writing);
	const bool left = l->left;
	if (left)
		pthread_detach(l->thread);
	pthread_mutex_unlock(&l->lock);		/* if left, the thread owns l from here on */
	if (left)
		return;
	if (l->threaded)
		pthread_join(l->thread, NULL);
	release(l);
}
