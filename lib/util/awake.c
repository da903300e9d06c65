#define _GNU_SOURCE	/* SCHED_IDLE, CPU_SET */
#include "util/awake.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "util/cores.h"
#include "util/mem.h"

struct dlb_awake { pthread_t thread; int core; atomic_bool over; };

/* A file of a control group that begins with how much of a period it may run: "max", or -1 in the older version, for all. */
static bool is_quota(const char *path)
{
	char line[64];
	FILE *f = fopen(path, "r");
	bool quota = f && fgets(line, sizeof line, f) && strncmp(line, "max", 3) != 0 && strncmp(line, "-1", 2) != 0;

	if (f)
		fclose(f);
	return quota;
}

/* That of the group which /proc/self/cgroup names ("0::/a/b"), and that of a container, which sees its own as the top. */
static bool has_quota(void)
{
	char line[512], path[600] = "";
	FILE *f = fopen("/proc/self/cgroup", "r");

	while (f && fgets(line, sizeof line, f))
		if (strncmp(line, "0::", 3) == 0)
			snprintf(path, sizeof path, "/sys/fs/cgroup%.*s/cpu.max", (int)strcspn(line + 3, "\n"), line + 3);
	if (f)
		fclose(f);
	return is_quota(path) || is_quota("/sys/fs/cgroup/cpu.max") || is_quota("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
}

/* Spins: whatever gave the core back would let it sleep. */
static void *stay_awake(void *arg)
{
	struct dlb_awake *a = arg;
	struct sched_param none = { .sched_priority = 0 };
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(a->core, &set);
	if (sched_setscheduler(0, SCHED_IDLE, &none) || sched_setaffinity(0, sizeof set, &set))
		return NULL;
	while (!atomic_load_explicit(&a->over, memory_order_relaxed))
		;
	return NULL;
}

struct dlb_awake *dlb_awake_new(int nth)
{
	struct dlb_awake *a;
	sigset_t all, before;
	int core = dlb_core(nth), rc;

	if (core < 0 || has_quota())
		return NULL;
	a = dlb_xcalloc(1, sizeof *a);
	a->core = core;
	atomic_init(&a->over, false);
	sigfillset(&all);			/* signals are the main thread's */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&a->thread, NULL, stay_awake, a);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc) {
		free(a);
		return NULL;
	}
	return a;
}

void dlb_awake_free(struct dlb_awake *a)
{
	if (!a)
		return;
	atomic_store(&a->over, true);
	pthread_join(a->thread, NULL);
	free(a);
}
