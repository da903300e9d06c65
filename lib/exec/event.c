/* The command of --on-event. See event.h. */
#define _GNU_SOURCE			/* POSIX_SPAWN_SETSID, environ */
#include "exec/event.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/mem.h"

#define POLL_S 0.02

enum { VARIABLES = 4 };
struct event { char *variable[VARIABLES]; };

struct dlb_events {
	const char *tool, *command;
	pid_t pid;			/* of the running command; 0: none runs */
	bool failed;			/* a failure was reported */
	struct event *waiting; int n, cap;
};

struct dlb_events *dlb_events_new(const char *tool, const char *command)
{
	struct dlb_events *e = command ? dlb_xcalloc(1, sizeof *e) : NULL;

	if (e) {
		e->tool = tool;
		e->command = command;
	}
	return e;
}

/* Whether an entry of the environment sets one of the event's variables, which happens if a command of
 * --on-event starts dlb-run. */
static bool is_own(const struct event *v, const char *entry)
{
	for (int i = 0; i < VARIABLES; i++)
		if (!strncmp(entry, v->variable[i], strcspn(v->variable[i], "=") + 1))
			return true;
	return false;
}

/* The environment with the event's variables in front of it; new, the strings borrowed. */
static char **environment(const struct event *v)
{
	int n = 0;
	char **env;

	while (environ[n])
		n++;
	env = dlb_xcalloc((size_t)n + VARIABLES + 1, sizeof *env);
	memcpy(env, v->variable, sizeof v->variable);
	for (int i = 0, k = VARIABLES; i < n; i++)
		if (!is_own(v, environ[i]))
			env[k++] = environ[i];
	return env;
}

static void fail(struct dlb_events *e, const char *why, int number)
{
	if (!e->failed)
		fprintf(stderr, "%s: --on-event: the command %s %d\n", e->tool, why, number);
	e->failed = true;
}

static void start_next(struct dlb_events *e)
{
	const struct event v = e->waiting[0];
	char *argv[] = { "sh", "-c", (char *)(uintptr_t)e->command, NULL }, **env = environment(&v);
	posix_spawn_file_actions_t files;
	posix_spawnattr_t how;
	sigset_t none;
	int rc;

	sigemptyset(&none);
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&files, 2, 1);
#if __GLIBC_PREREQ(2, 34)		/* closes above all the lock of the run's folder (run_folder.h) */
	posix_spawn_file_actions_addclosefrom_np(&files, 3);
#endif
	posix_spawnattr_init(&how);
	posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
	posix_spawnattr_setsigmask(&how, &none);
	rc = posix_spawn(&e->pid, "/bin/sh", &files, &how, argv, env);
	if (rc) {
		e->pid = 0;
		fail(e, "cannot be started: error", rc);
	}
	posix_spawnattr_destroy(&how);
	posix_spawn_file_actions_destroy(&files);
	free(env);
	for (int i = 0; i < VARIABLES; i++)
		free(v.variable[i]);
	memmove(e->waiting, e->waiting + 1, (size_t)--e->n * sizeof *e->waiting);
}

void dlb_events_happened(struct dlb_events *e, const char *event, int node, int64_t step, const char *message)
{
	if (!e)
		return;
	DLB_GROW(e->waiting, e->n, e->cap);
	e->waiting[e->n++] = (struct event){ { dlb_xprintf("DLB_EVENT=%s", event),
					       dlb_xprintf("DLB_NODE=%d", node),
					       dlb_xprintf("DLB_STEP=%lld", (long long)step),
					       dlb_xprintf("DLB_MESSAGE=%s", message) } };
	dlb_events_poll(e);
}

pid_t dlb_events_process(const struct dlb_events *e)
{
	return e ? e->pid : 0;
}

void dlb_events_reaped(struct dlb_events *e, pid_t pid, int status)
{
	if (!e || pid != e->pid)
		return;
	e->pid = 0;
	if (WIFSIGNALED(status))
		fail(e, "was killed by signal", WTERMSIG(status));
	else if (WEXITSTATUS(status))
		fail(e, "ended with status", WEXITSTATUS(status));
}

void dlb_events_poll(struct dlb_events *e)
{
	int status;

	if (!e)
		return;
	if (e->pid && waitpid(e->pid, &status, WNOHANG) == e->pid)
		dlb_events_reaped(e, e->pid, status);
	while (!e->pid && e->n)
		start_next(e);
}

/* Kills the command and all processes of its process group. */
static void end(struct dlb_events *e, double wait_s)
{
	int status;

	if (!e->failed)
		fprintf(stderr, "%s: --on-event: the command did not end in %g s and was killed\n", e->tool, wait_s);
	e->failed = true;
	kill(-e->pid, SIGKILL);
	while (waitpid(e->pid, &status, 0) < 0 && errno == EINTR)
		;
	e->pid = 0;
}

void dlb_events_free(struct dlb_events *e, double wait_s)
{
	if (!e)
		return;
	for (dlb_events_poll(e); e->pid; dlb_events_poll(e)) {
		const pid_t pid = e->pid;
		double s = 0;

		for (; e->pid == pid && s < wait_s; s += POLL_S) {
			dlb_sleep_s(POLL_S);
			dlb_events_poll(e);
		}
		if (e->pid == pid)
			end(e, wait_s);
	}
	free(e->waiting);
	free(e);
}
