/* Checks which hosts answer. See host_probe.h. */
#define _XOPEN_SOURCE 700
#include "exec/host_probe.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "exec/mpiexec.h"
#include "exec/run_folder.h"
#include "util/clock.h"
#include "util/mem.h"
#include "util/process.h"

#define POLL_S 0.02
#define LAST_S 0.5			/* time for an mpiexec to end after SIGTERM */

/* The probe of one host. pid: of its mpiexec; 0: it has ended. again: this is the second attempt. */
struct probed_host {
	const struct dlb_host *host;
	pid_t pid;
	int messages;
	double limit_s;
	bool again, answers;
	char why[300];
};

/* The command for each host: our own program, which removes the remains of these jobs there. */
struct question {
	char *tool, *self, *jobs;
	bool allocated;
};

struct dlb_host_probe {
	char *folder; int lock;		/* run_folder.h */
	struct question question;
	struct probed_host *host;
	int n;
	double start_s;
};

/* Starts the process for a host. -1 with err. */
static int ask(const struct dlb_host_probe *p, struct probed_host *a, struct dlb_error *err)
{
	const struct question *q = &p->question;
	struct dlb_mpiexec m = {
		.tool = q->tool, .in = -1, .folder = p->folder, .temporary = dlb_run_folder_parent()
	};
	char *hostfile = dlb_mpiexec_write_hosts(p->folder, &a->host, 1, err), *path;

	if (!hostfile)
		return -1;
	path = dlb_xprintf("%s.said", hostfile);
	a->messages = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (a->messages < 0) {
		dlb_fail(err, NULL, "cannot open '%s': %s", path, strerror(errno));
	} else {
		m.out = m.err = a->messages;
		dlb_mpiexec_add_hosts(&m, &a->host, 1, hostfile, q->allocated);
		dlb_mpiexec_add(&m, q->self);
		dlb_mpiexec_add(&m, DLB_HOST_CLEAN);
		dlb_mpiexec_add(&m, q->jobs);
		a->pid = dlb_mpiexec_start(&m, err);
		dlb_mpiexec_release(&m);
	}
	free(path);
	free(hostfile);
	return a->messages < 0 || a->pid < 0 ? -1 : 0;
}

/* Probes a host a second time after a failure. Open MPI's processes of one user on a host share the folder
 * ompi.HOST.UID. A process that ends may remove it while another process is about to make its own folder in
 * it; the second process then fails, although the host works. A single connection may be refused, too.
 * Returns whether a second attempt was started. */
static bool ask_again(const struct dlb_host_probe *p, struct probed_host *a)
{
	struct dlb_error ignored;

	if (a->again)
		return false;
	a->again = true;
	close(a->messages);
	if (ask(p, a, &ignored) == 0)
		return true;
	a->pid = 0;
	return false;
}

struct dlb_host_probe *dlb_host_probe_new(const char *tool, const struct dlb_host *const *host,
					  const double *limit_s, int n, bool allocated, const char *jobs,
					  struct dlb_error *err)
{
	struct dlb_host_probe *p = dlb_xcalloc(1, sizeof *p);
	char self[4096];
	int rc = dlb_mpiexec_self(self, err);

	p->question = (struct question){ dlb_xstrdup(tool), rc ? NULL : dlb_xstrdup(self), dlb_xstrdup(jobs),
					 allocated };
	p->host = dlb_xcalloc((size_t)n + 1, sizeof *p->host);
	p->folder = rc ? NULL : dlb_run_folder_new(tool, &p->lock, err);
	p->start_s = dlb_clock_s();
	for (; p->folder && p->n < n && !rc; p->n++) {
		p->host[p->n].host = host[p->n];
		p->host[p->n].limit_s = limit_s[p->n];
		rc = ask(p, &p->host[p->n], err);
	}
	if (!rc && p->folder)
		return p;
	dlb_host_probe_free(p);
	return NULL;
}

/* Sets a->why to the first line that gives a reason; mpiexec prints a line of dashes before it. */
static void read_reason(struct probed_host *a)
{
	char text[4096], *rest, *line;
	const ssize_t n = pread(a->messages, text, sizeof text - 1, 0);

	text[n < 0 ? 0 : n] = '\0';
	for (line = strtok_r(text, "\r\n", &rest); line && (*line == '-' || !*line);
	     line = strtok_r(NULL, "\r\n", &rest))
		;
	snprintf(a->why, sizeof a->why, "it does not answer: %.250s",
		 line ? line : "mpiexec gives no reason");
}

/* Ends the mpiexec of a probe, which removes its own files and ends its daemons. */
static void end(struct probed_host *a)
{
	dlb_process_end(a->pid, LAST_S);
	a->pid = 0;
}

bool dlb_host_probe_poll(struct dlb_host_probe *p)
{
	const double passed_s = dlb_clock_s() - p->start_s;
	bool all = true;

	for (int i = 0; i < p->n; i++) {
		struct probed_host *a = &p->host[i];
		int status = 1;

		if (!a->pid)
			continue;
		if (waitpid(a->pid, &status, WNOHANG)) {
			a->pid = 0;
			a->answers = WIFEXITED(status) && WEXITSTATUS(status) == 0;
			if (a->answers)
				continue;
			read_reason(a);
			all &= !ask_again(p, a);
		} else if (passed_s > a->limit_s) {
			end(a);
			snprintf(a->why, sizeof a->why, "it does not answer within %g s", a->limit_s);
		} else {
			all = false;
		}
	}
	return all;
}

void dlb_host_probe_wait(struct dlb_host_probe *p)
{
	while (!dlb_host_probe_poll(p))
		dlb_sleep_s(POLL_S);
}

bool dlb_host_probe_answers(const struct dlb_host_probe *p, int i, const char **why)
{
	*why = p->host[i].why;
	return p->host[i].answers;
}

void dlb_host_probe_free(struct dlb_host_probe *p)
{
	if (!p)
		return;
	for (int i = 0; i < p->n; i++) {
		if (p->host[i].pid > 0)
			end(&p->host[i]);
		if (p->host[i].messages > 0)
			close(p->host[i].messages);
	}
	if (p->folder)
		dlb_run_folder_free(p->folder, p->lock);
	free(p->question.tool);
	free(p->question.self);
	free(p->question.jobs);
	free(p->host);
	free(p);
}
