/* Processes that end others: a child with its descendants, also those that ignore SIGTERM; a child that has
 * ended already; others are left alone. Memory of a process. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "util/clock.h"
#include "util/process.h"
#include "check.h"

/* A child that waits, with a child of its own if deep, and so on; each writes its id into the pipe. */
static pid_t start(int deep, bool deaf, int to)
{
	const pid_t pid = fork();

	assert(IS(pid, >=, 0));
	if (pid)
		return pid;
	if (deaf)
		signal(SIGTERM, SIG_IGN);
	if (deep)
		start(deep - 1, deaf, to);
	const pid_t own = getpid();
	if (write(to, &own, sizeof own) != (ssize_t)sizeof own)
		_exit(1);
	for (;;)
		pause();
}

static bool lives(pid_t pid)
{
	const char state = dlb_process_state(pid);

	return state && state != 'Z';
}

/* Ends a chain of processes; the first and those that it leaves to this process are reaped. */
static void chain(int deep, bool deaf, double wait_s)
{
	pid_t pid[8];
	int fd[2];

	assert(!pipe(fd));
	const pid_t first = start(deep, deaf, fd[1]), other = start(0, false, fd[1]);
	for (int i = 0; i < deep + 2; i++)
		assert(IS(read(fd[0], &pid[i], sizeof pid[i]), ==, (ssize_t)sizeof pid[i]));
	for (int i = 0; i < deep + 2; i++)
		assert(lives(pid[i]));
	dlb_process_end(first, wait_s);
	for (int i = 0; i < deep + 2; i++)
		for (int k = 0; k < 500 && pid[i] != other && lives(pid[i]); k++)
			dlb_sleep_s(0.01); /* signals take a moment */
	for (int i = 0; i < deep + 2; i++)
		assert(IS(lives(pid[i]), ==, pid[i] == other));
	assert(IS(waitpid(first, NULL, WNOHANG), ==, -1) && IS(errno, ==, ECHILD));
	dlb_process_end(other, 5);
	assert(!lives(other));
	while (waitpid(-1, NULL, 0) > 0)
		;
	close(fd[0]);
	close(fd[1]);
}

static void ended_already(void)
{
	siginfo_t how;
	const pid_t pid = fork();

	if (!pid)
		_exit(3);
	assert(!waitid(P_PID, (id_t)pid, &how, WEXITED | WNOWAIT));
	assert(IS(dlb_process_state(pid), ==, 'Z'));
	dlb_process_end(pid, 60);
	assert(IS(waitpid(pid, NULL, WNOHANG), ==, -1));
	assert(IS(dlb_process_state(pid), ==, 0));
}

/* Those below the spared one are spared too. */
static void spared(void)
{
	pid_t pid[5];
	int fd[2];

	assert(!pipe(fd));
	const pid_t first = start(1, false, fd[1]), second = start(2, false, fd[1]);
	for (int i = 0; i < 5; i++)
		assert(IS(read(fd[0], &pid[i], sizeof pid[i]), ==, (ssize_t)sizeof pid[i]));
	assert(IS(dlb_process_signal_descendants(getpid(), 0, 0), ==, 5));
	assert(IS(dlb_process_signal_descendants(getpid(), 0, first), ==, 3));
	assert(IS(dlb_process_signal_descendants(getpid(), 0, second), ==, 2));
	assert(IS(dlb_process_signal_descendants(first, 0, 0), ==, 1));
	assert(IS(dlb_process_signal_descendants(second, 0, 0), ==, 2));
	dlb_process_end(first, 5);
	assert(IS(dlb_process_signal_descendants(getpid(), 0, 0), ==, 3));
	dlb_process_end(second, 5);
	while (waitpid(-1, NULL, 0) > 0)
		;
	assert(IS(dlb_process_signal_descendants(getpid(), 0, 0), ==, 0));
	close(fd[0]);
	close(fd[1]);
}

static void memory(void)
{
	enum { BYTES = 64 << 20 };
	const double before = dlb_process_own_bytes();
	char *p = malloc(BYTES);

	assert(p && IS(before, >, 0));
	for (int i = 0; i < BYTES; i += 512)
		*(volatile char *)(p + i) = 1;
	const double more = dlb_process_own_bytes() - before;
	assert(IS(more, >=, BYTES - (1 << 20)) && IS(more, <, 1.5 * BYTES));
	free(p);
}

int main(void)
{
	memory();
	dlb_process_adopt();
	ended_already();
	chain(0, false, 60);
	chain(2, false, 60);
	chain(0, true, 0.05);
	chain(3, true, 0.05);
	spared();
	printf("processes end with their descendants\n");
	return 0;
}
