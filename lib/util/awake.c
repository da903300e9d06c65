/* Keeps a core awake by a spinning process of lowest priority: see awake.h. */
#define _GNU_SOURCE	/* SCHED_IDLE, CPU_SET, SYS_clone */
#include "util/awake.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "util/cores.h"
#include "util/mem.h"

#ifndef SYS_close_range
#define SYS_close_range 436	/* Linux 5.9 and later, on all processors */
#endif

struct dlb_awake { pid_t pid; int tell; bool keeps; };	/* tell: socket for the number of the core */

/* True if a control group's file begins with a CPU limit. No limit is "max", or -1 in version 1. */
static bool is_quota(const char *path)
{
	char line[64];
	FILE *f = fopen(path, "r");
	bool quota = f && fgets(line, sizeof line, f) && strncmp(line, "max", 3) != 0 &&
		     strncmp(line, "-1", 2) != 0;

	if (f)
		fclose(f);
	return quota;
}

/* Checks the group in /proc/self/cgroup ("0::/a/b"), and the root, which in a container is its own group. */
static bool has_quota(void)
{
	char line[512], path[600] = "";
	FILE *f = fopen("/proc/self/cgroup", "r");

	while (f && fgets(line, sizeof line, f))
		if (strncmp(line, "0::", 3) == 0)
			snprintf(path, sizeof path, "/sys/fs/cgroup%.*s/cpu.max",
				 (int)strcspn(line + 3, "\n"), line + 3);
	if (f)
		fclose(f);
	return is_quota(path) || is_quota("/sys/fs/cgroup/cpu.max") ||
	       is_quota("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
}

/* Spins for a millisecond, then sleeps for an instant. Without the sleep Linux 6.18 once ran two such processes
 * for 14 minutes and hardly any program or thread of its own ("workqueue lockup"). What the scheduler owes a
 * process grows while it stays in the queue, and is bounded only when it sleeps. */
static void spin(void)
{
	struct timespec t;
	int64_t start, now;

	clock_gettime(CLOCK_MONOTONIC, &t);
	start = now = t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
	while (now - start < 1000000) {
		clock_gettime(CLOCK_MONOTONIC, &t);
		now = t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
	}
	nanosleep(&(struct timespec){ .tv_nsec = 1 }, NULL);
}

/* The child process: waits for the number of a core, then spins there. It closes all inherited files but the
 * socket; an inherited pipe end would keep the parent's readers waiting. */
static _Noreturn void stay_awake(pid_t parent, int told)
{
	struct sched_param none = { .sched_priority = 0 };
	cpu_set_t set;
	int core;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, "dlb-awake");
	prctl(PR_SET_TIMERSLACK, 1UL);		/* nanoseconds */
	if (getppid() != parent || dup2(told, 0) || syscall(SYS_close_range, 1U, ~0U, 0U))
		_exit(0);
	if (read(0, &core, sizeof core) != sizeof core)
		_exit(0);
	CPU_ZERO(&set);
	CPU_SET(core, &set);
	if (sched_setaffinity(0, sizeof set, &set) || sched_setscheduler(0, SCHED_IDLE, &none))
		_exit(0);
	for (;;)
		spin();
}

/* Does not use fork(): its handlers in libraries (OpenBLAS ends its threads) are useless for a child that
 * calls no library. The child sends no signal when it ends, so a plain wait() ignores it. */
static pid_t start(int told)
{
	const pid_t parent = getpid();
	sigset_t all, before;
	pid_t pid;

	sigfillset(&all);			/* signals to the process group are for the parent */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pid = (pid_t)syscall(SYS_clone, 0UL, NULL, NULL, NULL, 0UL);
	if (pid == 0)
		stay_awake(parent, told);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return pid;
}

struct dlb_awake *dlb_awake_new(void)
{
	struct dlb_awake *a;
	int ends[2];

	if (has_quota() || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		return NULL;
	a = dlb_xcalloc(1, sizeof *a);
	a->tell = ends[1];
	a->pid = start(ends[0]);
	close(ends[0]);
	if (a->pid > 0)
		return a;
	close(a->tell);
	free(a);
	return NULL;
}

bool dlb_awake_keep(struct dlb_awake *a, int nth)
{
	const int core = dlb_core(nth);

	if (!a || core < 0)
		return false;
	a->keeps = true;
	return send(a->tell, &core, sizeof core, MSG_NOSIGNAL) == sizeof core;
}

/* A child of the lowest priority ends only when its core is free, so it is not waited for. */
void dlb_awake_free(struct dlb_awake *a)
{
	if (!a)
		return;
	close(a->tell);
	kill(a->pid, SIGKILL);
	while (waitpid(a->pid, NULL, __WALL | (a->keeps ? WNOHANG : 0)) < 0 && errno == EINTR)
		;
	free(a);
}
