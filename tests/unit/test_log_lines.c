/* Logs that a thread writes: order, files that may not grow, whose last whole line is kept, more than may
 * wait, and a reader that does not read. */
#define _XOPEN_SOURCE 700
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include "util/lines.h"
#include "check.h"

enum { LINES = 2000, MOST_WAITING = 64 << 20 };

static char path[] = "/tmp/dlb-test-XXXXXX", text[40 * LINES], got[40 * LINES];

static void put(struct dlb_lines *l, const char *s) { dlb_lines_put(l, s, strlen(s)); }

static size_t content(void)
{
	FILE *f = fopen(path, "rb");
	const size_t n = f ? fread(got, 1, sizeof got - 1, f) : 0;

	assert(f && !fclose(f));
	got[n] = '\0';
	return n;
}

static int begin(const char *before)
{
	const int fd = open(path, O_RDWR | O_TRUNC);

	assert(IS(fd, >=, 0) && IS(write(fd, before, strlen(before)), ==, (ssize_t)strlen(before)));
	return fd;
}

static struct dlb_lines *log_of(int fd, const char *name)
{
	struct dlb_lines *l = dlb_lines_new(fd, name);

	close(fd); /* it has a duplicate */
	return l;
}

static void order(void)
{
	struct dlb_lines *l = log_of(begin("before\n"), "log");
	size_t n = (size_t)snprintf(text, sizeof text, "before\n");

	for (int i = 0; i < LINES; i++) {
		char line[40];

		snprintf(line, sizeof line, "%*d\n", 1 + i % 30, i);
		put(l, line);
		n += (size_t)snprintf(text + n, sizeof text - n, "%s", line);
		if (i % 500 == 0)
			assert(IS(dlb_lines_drain(l, NULL), ==, 0) && IS(content(), ==, n));
	}
	assert(IS(dlb_lines_drain(l, NULL), ==, 0) && IS(dlb_lines_failed(l, NULL), ==, 0));
	content();
	assert(SAME(got, text));
	put(l, "last\n");
	dlb_lines_free(l, 60); /* writes what waits */
	assert(IS(content(), ==, n + 5) && SAME(got + n, "last\n"));
	assert(IS(dlb_lines_drain(NULL, NULL), ==, 0) && IS(dlb_lines_failed(NULL, NULL), ==, 0));
	dlb_lines_free(NULL, 0);
}

/* Of a file that may have `most` bytes, the whole lines are kept. */
static void no_room(rlim_t most, const char *add, const char *want)
{
	struct dlb_error err = { .what = "" };
	struct rlimit was, now;

	struct dlb_lines *l = log_of(begin("one\n"), "log");
	assert(!getrlimit(RLIMIT_FSIZE, &was));
	now = was;
	now.rlim_cur = most;
	assert(!setrlimit(RLIMIT_FSIZE, &now));
	put(l, add);
	const int rc = dlb_lines_drain(l, &err), again = dlb_lines_failed(l, NULL);
	assert(!setrlimit(RLIMIT_FSIZE, &was));
	content();
	assert(SAME(got, want) && IS(rc, ==, again));
	if (strlen(want) == 4 + strlen(add)) {
		assert(IS(rc, ==, 0));
	} else {
		assert(IS(rc, ==, -1) && SAME(err.what, "cannot write 'log': File too large") &&
		       SAME(err.hint, ""));
		put(l, "more\n"); /* nothing is written any more */
		assert(IS(dlb_lines_drain(l, &err), ==, -1));
		content();
		assert(SAME(got, want));
	}
	dlb_lines_free(l, 60);
}

/* A pipe that is full. */
static void full_pipe(int fd[2])
{
	static const char zeros[4096];

	assert(!pipe(fd));
	assert(!fcntl(fd[1], F_SETFL, O_NONBLOCK));
	while (write(fd[1], zeros, sizeof zeros) > 0 || write(fd[1], zeros, 1) > 0)
		;
	assert(!fcntl(fd[1], F_SETFL, 0));
}

/* Reads the pipe up to its end; returns its last bytes. */
static const char *rest_of(int fd, size_t n)
{
	static char end[16], bytes[4096];

	for (ssize_t k; (k = read(fd, bytes, sizeof bytes)) > 0;)
		for (ssize_t i = 0; i < k; i++) {
			memmove(end, end + 1, n - 1);
			end[n - 1] = bytes[i];
		}
	close(fd);
	return end;
}

static void too_much(void)
{
	struct dlb_error err = { .what = "" };
	char *large = calloc(MOST_WAITING + 1, 1);
	int fd[2];

	full_pipe(fd);
	struct dlb_lines *l = log_of(fd[1], "pipe");
	assert(large && IS(dlb_lines_failed(l, NULL), ==, 0));
	dlb_lines_put(l, large, MOST_WAITING + 1);
	free(large);
	assert(IS(dlb_lines_failed(l, &err), ==, -1));
	assert(SAME(err.what, "cannot write 'pipe': its disk has not taken the last 64 MiB"));
	put(l, "more\n");
	assert(IS(dlb_lines_drain(l, NULL), ==, -1)); /* does not wait for what it has dropped */
	dlb_lines_free(l, 60);
	assert(IS(rest_of(fd[0], 5)[4], ==, 0));
}

/* A log that cannot be written in time is left to its thread, which writes it when it can. */
static void left(void)
{
	int fd[2];

	full_pipe(fd);
	struct dlb_lines *l = log_of(fd[1], "pipe");
	put(l, "late\n");
	dlb_lines_free(l, 0);
	assert(!memcmp(rest_of(fd[0], 6), "\0late\n", 6));
}

int main(void)
{
	const int fd = mkstemp(path);

	assert(IS(fd, >=, 0));
	close(fd);
	signal(SIGXFSZ, SIG_IGN);
	order();
	no_room(12, "two\nfour\n", "one\ntwo\n");
	no_room(13, "two\nfour\n", "one\ntwo\nfour\n");
	no_room(8, "two\nfour\n", "one\ntwo\n");
	no_room(7, "two\nfour\n", "one\n");
	no_room(4, "two\nfour\n", "one\n");
	too_much();
	left();
	unlink(path);
	printf("logs are written in order, and cut to whole lines\n");
	return 0;
}
