/* Ranks on several hosts: see hosts.h. */
#define _XOPEN_SOURCE 700
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "comm/comm.h"
#include "exec/hosts.h"
#include "util/input.h"
#include "util/mem.h"

extern char **environ;

#define TICK_S 0.05			/* between two looks at requests to stop */
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

static const struct dlb_host *host_named(const struct dlb_cluster *c, const char *name)
{
	for (int i = 0; i < c->n_hosts; i++)
		if (!strcmp(c->host[i].name, name))
			return &c->host[i];
	return NULL;
}

int dlb_hosts_of(const struct dlb_doc *doc, struct dlb_cluster *c, const struct dlb_host ***host,
		 struct dlb_error *err)
{
	char own[256] = "";
	bool elsewhere = false;

	*host = NULL;
	if (dlb_cluster_read(doc, c, err))
		return -1;
	gethostname(own, sizeof own - 1);
	const struct dlb_host **h = dlb_xcalloc((size_t)c->n_nodes + 1, sizeof *h);
	for (int i = 0; i < c->n_nodes && c->n_hosts; i++) {
		h[i] = host_named(c, c->node[i].host);
		if (!h[i]) {
			free(h);
			return dlb_refuse(err, "/cluster/hosts", "add it, or remove the list",
					  "node %d is on host '%.80s', which is not in the list", i,
					  c->node[i].host);
		}
		elsewhere |= strcmp(c->node[i].host, own) != 0;
	}
	if (elsewhere)
		*host = h;
	else
		free(h);
	return 0;
}

/* -- starting -- */

/* A temporary file without a name; -1 with err. */
static int scratch_file(struct dlb_error *err)
{
	FILE *f = tmpfile();
	const int fd = f ? dup(fileno(f)) : -1;

	if (f)
		fclose(f);
	if (fd < 0)
		dlb_fail(err, NULL, "cannot make a temporary file: %s", strerror(errno));
	return fd;
}

static int input_of(const struct dlb_hosts_job *j, struct dlb_error *err)
{
	const int fd = j->doc ? scratch_file(err) : open("/dev/null", O_RDONLY);
	FILE *f = fd >= 0 && j->doc ? fdopen(dup(fd), "w") : NULL;

	if (!j->doc || fd < 0)
		return fd;
	int rc = f ? dlb_doc_write(j->doc, f, err) : dlb_fail(err, NULL, "cannot write: %s", strerror(errno));
	if (f && fclose(f) && !rc)
		rc = dlb_fail(err, NULL, "cannot write a temporary file: %s", strerror(errno));
	lseek(fd, 0, SEEK_SET);
	if (!rc)
		return fd;
	close(fd);
	return -1;
}

/* All ranks are on one host. */
static bool is_one_host(const struct dlb_hosts_job *j)
{
	for (int r = 1; r < j->n_ranks; r++)
		if (strcmp(j->host[r]->address, j->host[0]->address))
			return false;
	return true;
}

/* mpiexec's host file: a line for each rank, in their order, or one host with its slots (mpiexec cannot map ranks
 * one by one to "localhost"). Returns its path (new); NULL with err. */
static char *write_ranks(const struct dlb_hosts_job *j, struct dlb_error *err)
{
	const char *folder = getenv("TMPDIR");
	char *path = dlb_xprintf("%s/dlb-hosts-XXXXXX", folder && *folder ? folder : "/tmp");
	const int fd = mkstemp(path);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "w");

	const bool one = is_one_host(j);

	for (int r = 0; f && r < (one ? 1 : j->n_ranks); r++) {
		fprintf(f, "%s%s%s", j->host[r]->address, j->host[r]->user ? " username=" : "",
			j->host[r]->user ? j->host[r]->user : "");
		if (one)
			fprintf(f, " slots=%d", j->n_ranks);
		fputc('\n', f);
	}
	if (f && !fclose(f))
		return path;
	dlb_fail(err, NULL, "cannot write '%s': %s", path, strerror(errno));
	free(path);
	return NULL;
}

/* In the child; never returns. Variables of dlb's own go to all ranks. */
static void exec_mpiexec(const struct dlb_hosts_job *j, const char *self, const char *hostfile, int in,
			 int messages)
{
	char n[16];
	int k = 0, count = 0;

	while (j->argv[count])
		count++;
	for (char **e = environ; *e; e++)
		count += 2 * !strncmp(*e, "DLB_", 4);
	const char **argv = dlb_xcalloc((size_t)count + 24, sizeof *argv);

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	setpgid(0, 0);		/* a terminal's ^C reaches the parent alone */
	dup2(in, 0);
	dup2(messages, 2);
	if (j->out)
		dup2(fileno(j->out), 1);
	if (geteuid() == 0) {
		setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
		setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
	}
	snprintf(n, sizeof n, "%d", j->n_ranks);
	const char *const first[] = { "mpiexec", "-n", n, "--hostfile", hostfile, "--map-by",
				      is_one_host(j) ? "slot" : "seq",
				      "--bind-to", "none" };
	for (size_t i = 0; i < sizeof first / sizeof *first; i++)
		argv[k++] = first[i];
	for (char **e = environ; *e; e++) {
		if (strncmp(*e, "DLB_", 4))
			continue;
		argv[k++] = "-x";
		argv[k++] = dlb_xprintf("%.*s", (int)strcspn(*e, "="), *e);
	}
	argv[k++] = self;
	for (int i = 0; j->argv[i]; i++)
		argv[k++] = j->argv[i];
	argv[k] = NULL;
	execvp("mpiexec.openmpi", (char *const *)argv);
	execvp("mpiexec", (char *const *)argv);
	dprintf(2, "%s: cannot start mpiexec: %s\n", j->tool, strerror(errno));
	_exit(2);
}

/* -- messages -- */

/* What the children print on standard error. The tool's own lines are passed on; those of mpiexec and ssh
 * only if asked for, or the first of them if there is no other reason. */
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

/* Reads what is there within TICK_S; false: the children have closed the pipe. */
static bool listen_to(struct told *t, int in)
{
	struct pollfd p = { .fd = in, .events = POLLIN };
	char buf[4096];

	if (poll(&p, 1, (int)(TICK_S * 1e3)) <= 0)
		return true;
	const ssize_t n = read(in, buf, sizeof buf);
	for (ssize_t i = 0; i < n; i++) {
		if (buf[i] == '\r')
			continue;
		if (buf[i] != '\n' && t->n < sizeof t->line - 1) {
			t->line[t->n++] = buf[i];
			continue;
		}
		t->line[t->n] = '\0';
		hear(t);
		t->n = 0;
	}
	return n > 0 || (n < 0 && errno == EINTR);
}

/* The first request lets the ranks stop after their step, the second ends them. */
static int wait_for(struct told *t, pid_t pid, int messages)
{
	int passed = 0, status = 0;

	while (listen_to(t, messages)) {
		const int told = t->j->stop ? (int)*t->j->stop : 0;
		if (told != passed)
			kill(pid, passed ? SIGTERM : SIGUSR1);	/* mpiexec forwards SIGUSR1 to every rank */
		passed = told;
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) && WEXITSTATUS(status) <= 2 ? WEXITSTATUS(status) : 2;
}

static int run_mpiexec(const struct dlb_hosts_job *j, const char *self, const char *hostfile, int in,
		       struct dlb_error *err)
{
	struct told t = { .j = j };
	int messages[2];

	if (pipe(messages))
		return dlb_fail(err, NULL, "cannot make a pipe: %s", strerror(errno));
	const pid_t pid = fork();
	if (pid == 0) {
		close(messages[0]);
		exec_mpiexec(j, self, hostfile, in, messages[1]);
	}
	close(messages[1]);
	const int status = pid < 0 ? -1 : wait_for(&t, pid, messages[0]);
	close(messages[0]);
	if (pid < 0)
		return dlb_fail(err, NULL, "cannot start mpiexec: %s", strerror(errno));
	if (!status || t.said)
		return status;
	return dlb_refuse(err, NULL,
			  "-v shows all messages; ssh must reach the hosts without a password, and the tool "
			  "have the same path there",
			  "the %d ranks ended without a result, or did not start: %s", j->n_ranks,
			  *t.first ? t.first : "mpiexec gives no reason");
}

int dlb_hosts_run(const struct dlb_hosts_job *j, struct dlb_error *err)
{
	char self[4096] = "";

	if (!dlb_comm_is_open_mpi())
		return dlb_refuse(err, NULL, "start the ranks with its mpiexec",
				  "Open MPI starts ranks on other hosts, and this is built with another MPI");
	if (readlink("/proc/self/exe", self, sizeof self - 1) <= 0)
		return dlb_fail(err, NULL, "cannot find this program: %s", strerror(errno));
	const int in = input_of(j, err);
	char *hostfile = in < 0 ? NULL : write_ranks(j, err);
	const int status = hostfile ? run_mpiexec(j, self, hostfile, in, err) : -1;
	if (hostfile)
		unlink(hostfile);
	free(hostfile);
	if (in >= 0)
		close(in);
	return status;
}
