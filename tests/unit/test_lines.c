/* util/lines: all lines in order, no wait for a reader that does not read, whole lines only on a disk that
 * fills up. */
#define _XOPEN_SOURCE 700	/* mkdtemp */
#include <assert.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/lines.h"

enum { N = 20000 };

static void in_order(void)
{
	int fd = open("log", O_RDWR | O_CREAT | O_TRUNC, 0666), n = 0;
	struct dlb_lines *l;
	char line[32];
	FILE *f;

	assert(write(fd, "before\n", 7) == 7);
	l = dlb_lines_new(fd, "log");
	close(fd);				/* dlb_lines has duplicated it */
	for (int i = 0; i < N; i++) {
		dlb_lines_put(l, line, (size_t)snprintf(line, sizeof line, "line %d\n", i));
		if (i % 997 == 0)
			assert(!dlb_lines_drain(l, NULL));
	}
	assert(!dlb_lines_wrong(l, NULL));
	dlb_lines_free(l, 100);
	f = fopen("log", "r");
	assert(f && fgets(line, sizeof line, f) && !strcmp(line, "before\n"));
	for (int at; n < N && fscanf(f, "line %d\n", &at) == 1; n++)
		assert(at == n);
	assert(n == N && fgetc(f) == EOF);
	fclose(f);
	dlb_lines_free(NULL, 0);
	assert(!dlb_lines_wrong(NULL, NULL) && !dlb_lines_drain(NULL, NULL));
}

/* A pipe without a reader acts like a disk that never completes a write. */
static void does_not_wait(void)
{
	static char line[1 << 16];
	struct dlb_error err = { .what = "" };
	int fd[2];
	struct dlb_lines *l;
	double start_s;
	int n = 0;

	memset(line, 'x', sizeof line);
	line[sizeof line - 1] = '\n';
	assert(!pipe(fd));
	l = dlb_lines_new(fd[1], "the pipe");
	for (; n < 100; n++)
		dlb_lines_put(l, line, sizeof line);
	assert(!dlb_lines_wrong(l, &err));
	/* at most 64 MiB wait, besides the lines that the thread is writing */
	for (; n < 3000 && !dlb_lines_wrong(l, &err); n++)
		dlb_lines_put(l, line, sizeof line);
	assert(n > 1024 && n <= 2 * 1024 + 1 && strstr(err.what, "the pipe") && strstr(err.what, "64 MiB"));
	dlb_lines_free(l, 0);

	l = dlb_lines_new(fd[1], "the pipe");
	dlb_lines_put(l, line, sizeof line);
	start_s = dlb_clock_s();
	dlb_lines_free(l, 0);			/* the thread releases l */
	assert(dlb_clock_s() - start_s < 30);
	close(fd[0]);
	close(fd[1]);
}

static void full(void)
{
	struct dlb_error err = { .what = "" };
	struct rlimit was, limit;
	int fd = open("/dev/full", O_WRONLY);
	struct dlb_lines *l = dlb_lines_new(fd, "/dev/full");

	dlb_lines_put(l, "a\n", 2);
	assert(dlb_lines_drain(l, &err) && strstr(err.what, "cannot write '/dev/full': No space left"));
	dlb_lines_put(l, "b\n", 2);
	assert(dlb_lines_drain(l, &err) && dlb_lines_wrong(l, &err));
	dlb_lines_free(l, 0);
	close(fd);

	/* 10 bytes: three lines of three bytes, and one byte of the next */
	signal(SIGXFSZ, SIG_IGN);
	assert(!getrlimit(RLIMIT_FSIZE, &was));
	limit = was;
	limit.rlim_cur = 10;
	fd = open("small", O_RDWR | O_CREAT | O_TRUNC, 0666);
	l = dlb_lines_new(fd, "small");
	assert(!setrlimit(RLIMIT_FSIZE, &limit));
	for (int i = 0; i < 5; i++)
		dlb_lines_put(l, "12\n", 3);
	assert(dlb_lines_drain(l, &err) && strstr(err.what, "cannot write 'small'"));
	dlb_lines_free(l, 0);
	assert(!setrlimit(RLIMIT_FSIZE, &was));
	assert(lseek(fd, 0, SEEK_END) == 9);
	close(fd);
}

int main(void)
{
	char folder[] = "/tmp/dlb-lines-XXXXXX";

	signal(SIGPIPE, SIG_IGN);
	assert(mkdtemp(folder) && !chdir(folder));
	in_order();
	does_not_wait();
	full();
	unlink("log");
	unlink("small");
	assert(!chdir("/") && !rmdir(folder));
	return 0;
}
