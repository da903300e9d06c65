/* Finds and signals other processes: see process.h. Linux only: /proc, PR_SET_CHILD_SUBREAPER. */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include "util/clock.h"
#include "util/mem.h"
#include "util/process.h"

#define POLL_S 0.02

struct proc_entry { pid_t pid, parent; char state; };

/* Parses "PID (NAME) STATE PARENT ...", where NAME may contain anything. */
static int read_file(const char *path, struct proc_entry *e)
{
	char line[1024], *after;
	FILE *f;
	size_t n;
	int parent;

	f = fopen(path, "r");
	if (!f)
		return -1;
	n = fread(line, 1, sizeof line - 1, f);
	fclose(f);
	line[n] = '\0';
	after = strrchr(line, ')');
	if (!after || sscanf(after + 1, " %c %d", &e->state, &parent) != 2)
		return -1;
	e->parent = (pid_t)parent;
	return 0;
}

static int read_entry(const char *pid, struct proc_entry *e)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
	e->pid = (pid_t)atoi(pid);
	return read_file(path, e);
}

char dlb_process_state(pid_t pid)
{
	struct proc_entry e;
	char text[24];

	snprintf(text, sizeof text, "%lld", (long long)pid);
	return read_entry(text, &e) ? '\0' : e.state;
}

char dlb_thread_state(pid_t pid, pid_t tid)
{
	struct proc_entry e;
	char path[64];

	snprintf(path, sizeof path, "/proc/%lld/task/%lld/stat", (long long)pid, (long long)tid);
	return read_file(path, &e) ? '\0' : e.state;
}

void dlb_process_adopt(void)
{
	prctl(PR_SET_CHILD_SUBREAPER, 1UL, 0UL, 0UL, 0UL);
}

static struct proc_entry *read_all(int *n)
{
	struct proc_entry *all = NULL;
	DIR *dir = opendir("/proc");
	int cap = 0;

	*n = 0;
	for (struct dirent *d; dir && (d = readdir(dir));) {
		if (!isdigit((unsigned char)d->d_name[0]))
			continue;
		DLB_GROW(all, *n, cap);
		*n += read_entry(d->d_name, &all[*n]) == 0;
	}
	if (dir)
		closedir(dir);
	return all;
}

/* Returns the *n descendants of pid, without spared and its descendants: new. */
static struct proc_entry *read_descendants(pid_t pid, pid_t spared, int *n)
{
	int n_all;
	struct proc_entry *all = read_all(&n_all), *found = dlb_xcalloc((size_t)n_all + 1, sizeof *found);

	*n = 0;
	for (int i = -1; i < *n; i++)
		for (int k = 0; k < n_all && *n < n_all; k++)
			if (all[k].parent == (i < 0 ? pid : found[i].pid) && all[k].pid != spared)
				found[(*n)++] = all[k];
	free(all);
	return found;
}

int dlb_process_signal_descendants(pid_t pid, int sig, pid_t spared)
{
	int n, n_living = 0;
	struct proc_entry *e = read_descendants(pid, spared, &n);

	for (int i = 0; i < n; i++)
		n_living += e[i].state != 'Z' && kill(e[i].pid, sig) == 0;
	free(e);
	return n_living;
}

static int count_living(const struct proc_entry *e, int n)
{
	int living = 0;

	for (int i = 0; i < n; i++) {
		const char state = dlb_process_state(e[i].pid);

		living += state && state != 'Z';
	}
	return living;
}

void dlb_process_end(pid_t pid, double wait_s)
{
	int n = 0, status;
	struct proc_entry *e;

	if (waitpid(pid, &status, WNOHANG))
		return;
	/* listed before any of them ends: a process whose parent has ended is no descendant any more */
	e = read_descendants(pid, 0, &n);
	e[n++].pid = pid;		/* there is room: read_all also counted this process */
	for (int i = 0; i < n; i++)
		kill(e[i].pid, SIGTERM);
	for (double s = 0; s < wait_s && count_living(e, n); s += POLL_S)
		dlb_sleep_s(POLL_S);
	dlb_process_signal_descendants(pid, SIGKILL, 0);
	for (int i = 0; i < n; i++)
		if (count_living(&e[i], 1))
			kill(e[i].pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	free(e);
}

bool dlb_process_has_stopped(pid_t pid)
{
	int n;
	struct proc_entry *e = read_descendants(pid, 0, &n);
	bool stopped = false;

	for (int i = 0; i < n; i++)
		stopped = stopped || e[i].state == 'T';
	free(e);
	return stopped;
}

/* Adds the kilobytes of line `key` of /proc/self/status to *bytes, if it is that line. */
static void add_line(const char *line, const char *key, double *bytes)
{
	const size_t n = strlen(key);

	if (!strncmp(line, key, n) && line[n] == ':')
		*bytes += 1024 * strtod(line + n + 1, NULL);
}

double dlb_process_own_bytes(void)
{
	FILE *f = fopen("/proc/self/status", "r");
	char line[256];
	double bytes = 0;

	while (f && fgets(line, sizeof line, f)) {
		add_line(line, "RssAnon", &bytes);
		add_line(line, "RssShmem", &bytes);
	}
	if (f)
		fclose(f);
	return bytes;
}
