/* Ranks on several hosts: see hosts.h. */
#define _XOPEN_SOURCE 700
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "comm/comm.h"
#include "exec/hosts.h"
#include "exec/mpiexec.h"
#include "util/input.h"
#include "util/mem.h"

enum { MOST_SLOTS = 1 << 16 };

/* -- host files -- */

/* One line, cut into words: the address, then slots=N and user=NAME. */
static int read_line(char *line, const char *where, struct dlb_cluster *c, struct dlb_error *err)
{
	char *rest, *address = strtok_r(line, " \t\r", &rest), *user = NULL, *word, *end = "";
	long slots = 1;

	if (!address || *address == '#')
		return 0;
	while ((word = strtok_r(NULL, " \t\r", &rest)) && *word != '#') {
		char *value = strchr(word, '=');
		if (value)
			*value++ = '\0';
		if (value && !strcmp(word, "slots"))
			slots = strtol(value, &end, 10);
		else if (value && (!strcmp(word, "user") || !strcmp(word, "username")))
			user = value;
		else
			end = "?";
		if (*end || slots < 1 || slots > MOST_SLOTS)
			return dlb_refuse(err, where, "lines are ADDRESS [slots=N] [user=NAME]",
					  "'%.80s%s%.80s' is not understood", word, value ? "=" : "",
					  value ? value : "");
	}
	dlb_cluster_add_host(c, address, address, user, (int)slots);
	return 0;
}

int dlb_hosts_read(const char *path, struct dlb_cluster *c, struct dlb_error *err)
{
	char *text, *rest, where[300];
	size_t n;
	int line = 0;

	if (dlb_input_read_text(path, 0, &text, &n, err))
		return -1;
	for (char *p = text; p; p = rest) {
		rest = strchr(p, '\n');
		if (rest)
			*rest++ = '\0';
		snprintf(where, sizeof where, "%.250s:%d", path, ++line);
		if (read_line(p, where, c, err)) {
			free(text);
			return -1;
		}
	}
	free(text);
	return c->n_hosts ? 0 : dlb_refuse(err, path, "lines are ADDRESS [slots=N] [user=NAME]", "no host");
}

/* -- hosts of a plan -- */

int dlb_hosts_supported(struct dlb_error *err)
{
	return dlb_comm_is_open_mpi() ? 0 :
	       dlb_refuse(err, NULL, "start the ranks with its mpiexec",
			  "Open MPI starts ranks on other hosts, and this is built with another MPI");
}

/* dlb_cluster_read has checked that the list has every node's host. */
static const struct dlb_host *host_named(const struct dlb_cluster *c, const char *name)
{
	int i = 0;

	while (strcmp(c->host[i].name, name))
		i++;
	return &c->host[i];
}

/* Takes the hosts that the cluster names, unless all nodes are on this host. */
static void take_named(struct dlb_hosts *h)
{
	const struct dlb_cluster *c = &h->cluster;
	char own[256] = "";
	bool elsewhere = false;

	gethostname(own, sizeof own - 1);
	for (int i = 0; i < c->n_nodes; i++)
		elsewhere |= strcmp(c->node[i].host, own) != 0;
	if (!elsewhere)
		return;
	h->rank = dlb_xcalloc((size_t)c->n_nodes + 1, sizeof *h->rank);
	for (int i = 0; i < c->n_nodes; i++)
		h->rank[i] = host_named(c, c->node[i].host);
}

int dlb_hosts_of(const struct dlb_doc *doc, struct dlb_hosts *h, struct dlb_error *err)
{
	*h = (struct dlb_hosts){ .rank = NULL };
	if (dlb_cluster_read(doc, &h->cluster, err))
		return -1;
	if (!dlb_hosts_take_allocation(h) && h->cluster.n_hosts)
		take_named(h);
	if (!h->rank || !dlb_hosts_supported(err))
		return 0;
	dlb_hosts_release(h);
	return -1;
}

void dlb_hosts_release(struct dlb_hosts *h)
{
	free(h->rank);
	h->rank = NULL;
	dlb_cluster_release(&h->cluster);
}

/* -- messages -- */

/* The children's output on standard error. The tool's own lines are passed on. Lines of mpiexec and ssh are
 * passed on only with j->verbose; the first of them is kept in case no other reason is known. */
struct told {
	const struct dlb_hosts_job *j;
	char line[4096], first[200];
	size_t n;
	bool said;
};

static void hear(struct told *t)
{
	const bool own = !strncmp(t->line, t->j->tool, strlen(t->j->tool));

	if (own || t->j->verbose)
		fprintf(stderr, "%s\n", t->line);
	t->said |= own;
	if (!own && !*t->first && *t->line && *t->line != '-')
		snprintf(t->first, sizeof t->first, "%.199s", t->line);
}

/* Reads available bytes; false: the children have closed the pipe. */
static bool listen_to(struct told *t, int in)
{
	char buf[4096];
	const ssize_t n = read(in, buf, sizeof buf);
	for (ssize_t i = 0; i < n; i++) {
		if (buf[i] == '\r')
			continue;
		if (buf[i] == '\n' || t->n == sizeof t->line - 1) {
			t->line[t->n] = '\0';
			hear(t);
			t->n = 0;
		}
		if (buf[i] != '\n')
			t->line[t->n++] = buf[i];
	}
	return n > 0 || (n < 0 && errno == EINTR);
}

static int wait_for(struct told *t, pid_t pid, int messages)
{
	int status = 0;

	while (listen_to(t, messages))
		;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) && WEXITSTATUS(status) <= 2 ? WEXITSTATUS(status) : 2;
}

static int run_mpiexec(const struct dlb_hosts_job *j, const char *self, const char *hostfile,
		       struct dlb_error *err)
{
	struct dlb_mpiexec m = { .tool = j->tool, .in = -1, .out = fileno(j->out) };
	struct told t = { .j = j };
	int messages[2];

	if (pipe(messages))
		return dlb_fail(err, NULL, "cannot make a pipe: %s", strerror(errno));
	m.close_fd = messages[0];
	m.err = messages[1];
	dlb_mpiexec_add_hosts(&m, j->host, j->n_ranks, hostfile, false);
	dlb_mpiexec_add(&m, self);
	for (int i = 0; j->argv[i]; i++)
		dlb_mpiexec_add(&m, j->argv[i]);
	const pid_t pid = dlb_mpiexec_start(&m, err);
	dlb_mpiexec_release(&m);
	close(messages[1]);
	const int status = pid < 0 ? -1 : wait_for(&t, pid, messages[0]);
	close(messages[0]);
	if (status <= 0 || t.said)
		return status;
	return dlb_refuse(err, NULL,
			  "-v shows all messages; ssh must reach the hosts without a password, and the tool "
			  "have the same path there",
			  "the %d ranks ended without a result, or did not start: %s", j->n_ranks,
			  *t.first ? t.first : "mpiexec gives no reason");
}

int dlb_hosts_run(const struct dlb_hosts_job *j, struct dlb_error *err)
{
	const char *folder = getenv("TMPDIR");
	char self[4096];

	if (dlb_hosts_supported(err) || dlb_mpiexec_self(self, err))
		return -1;
	char *hostfile = dlb_mpiexec_write_hosts(folder && *folder ? folder : "/tmp", j->host, j->n_ranks,
						 err);
	const int status = hostfile ? run_mpiexec(j, self, hostfile, err) : -1;
	if (hostfile)
		unlink(hostfile);
	free(hostfile);
	return status;
}
