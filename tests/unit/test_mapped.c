/* Mapped files: a file that is cut short while it is mapped gives zeros and an error, never a signal. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "util/mapped.h"
#include "util/mem.h"
#include "check.h"

enum { BYTES = 5 * 4096 + 100 };

static char path[] = "/tmp/dlb-test-mapped-XXXXXX";
static struct dlb_error err;

/* A file of BYTES ones, open. */
static int new_file(void)
{
	static char ones[BYTES];
	const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);

	memset(ones, 1, sizeof ones);
	assert(fd >= 0 && write(fd, ones, sizeof ones) == BYTES);
	return fd;
}

/* In a process of its own: a lost file is never forgotten. */
static void apart(void (*test)(void))
{
	const pid_t pid = fork();
	int status;

	if (!pid) {
		test();
		_exit(0);
	}
	assert(waitpid(pid, &status, 0) == pid && IS(status, ==, 0));
}

static void test_whole(void)
{
	struct dlb_arena a = { 0 }, b = { 0 };
	const int fd = new_file();
	char *text = dlb_arena_strdup(&a, "text"), *p = dlb_arena_map(&a, fd, BYTES, path);

	assert(p && p[0] == 1 && p[BYTES - 1] == 1);
	assert(dlb_arena_maps(&a, p + BYTES - 1) && !dlb_arena_maps(&a, p + BYTES));
	assert(!dlb_arena_maps(&a, text));
	dlb_arena_give_mapped(&a, &b);
	assert(dlb_arena_maps(&b, p) && !dlb_arena_maps(&a, p));
	dlb_arena_release(&a);
	assert(p[BYTES / 2] == 1 && IS(dlb_mapped_check(&err), ==, 0));
	/* another file in its place, shorter: the mapped one is whole */
	unlink(path);
	close(new_file());
	assert(truncate(path, 10) == 0 && p[BYTES - 1] == 1 && IS(dlb_mapped_check(&err), ==, 0));
	dlb_arena_release(&b);
	close(fd);
}

static void test_cut(void)
{
	const int fd = new_file();
	char *p = dlb_mapped_new(fd, BYTES, path);
	int sum = 0;

	assert(p && ftruncate(fd, 4096) == 0);
	for (int i = 0; i < BYTES; i++)
		sum += p[i];
	assert(IS(sum, ==, 4096));
	dlb_mapped_free(p, BYTES);
	/* also after it is unmapped, and whatever size it has by then */
	assert(ftruncate(fd, BYTES) == 0);
	assert(IS(dlb_mapped_check(&err), ==, -1));
	assert(SAME(err.where, path) && HAS(err.what, "became shorter"));
	close(fd);
}

/* No signal: the end is within a page. */
static void test_cut_within_page(void)
{
	const int fd = new_file();
	char *p = dlb_mapped_new(fd, BYTES, path);

	assert(p && ftruncate(fd, BYTES - 50) == 0 && p[BYTES - 1] == 0);
	assert(IS(dlb_mapped_check(&err), ==, -1) && HAS(err.what, "became shorter"));
	dlb_mapped_free(p, BYTES);
	assert(IS(dlb_mapped_check(&err), ==, 0));
	close(fd);
}

/* A fault elsewhere still ends the process by that signal. */
static void test_other_fault(void)
{
	const pid_t pid = fork();
	int status;

	if (!pid) {
		dlb_mapped_new(new_file(), BYTES, path);
		raise(SIGBUS);		/* ignored once: the handler returns ... */
		raise(SIGBUS);		/* ... and has put back the default */
		_exit(0);
	}
	assert(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && IS(WTERMSIG(status), ==, SIGBUS));
}

int main(void)
{
	const int fd = mkstemp(path);

	assert(fd >= 0);
	close(fd);
	apart(test_whole);
	apart(test_cut);
	apart(test_cut_within_page);
	test_other_fault();
	unlink(path);
	printf("test_mapped: whole, cut at a page and within one, other faults\n");
	return 0;
}
