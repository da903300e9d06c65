/* dlb-profile --cluster and --check: measure or check the machine that it runs on. */
#include <stdlib.h>
#include <string.h>
#include "cluster/cluster.h"
#include "exec/hosts.h"
#include "exec/machine_check.h"
#include "exec/probe.h"
#include "exec/probe_folder.h"
#include "exec/profile_command.h"

static int check_devices(const struct dlb_profile_command *w, struct dlb_error *err)
{
	for (int i = 0; i < w->n_devices; i++) {
		const struct dlb_backend_ops *ops = w->device[i].be.ops;

		if (!ops->is_host_memory && (w->o->topology || (w->comm && dlb_comm_size(w->comm) > 1)))
			return dlb_refuse(err, NULL, "measure each host by one process without --topology",
					  "devices of back end '%s' are measured on this host alone", ops->name);
	}
	return 0;
}

/* Adds the devices other than CPUs that -d names; if -d names no CPU, the cluster has no CPU nodes. */
static int add_devices(const struct dlb_profile_command *w, struct dlb_cluster *c, struct dlb_error *err)
{
	bool has_cpu = false;

	for (int i = 0; i < w->n_devices; i++)
		has_cpu |= w->device[i].be.ops->is_host_memory;
	c->n_nodes = has_cpu ? c->n_nodes : 0;
	for (int i = 0; i < w->n_devices; i++) {
		if (!w->device[i].be.ops->is_host_memory && dlb_cluster_add_devices(c, w->device[i].name, err))
			return -1;
	}
	return 0;
}

int dlb_profile_cluster(struct dlb_profile_command *w, const char *path, struct dlb_doc *doc,
			struct dlb_error *err)
{
	const char *topology = w->o->topology;
	struct dlb_cluster c;
	int rc = 0;

	if (path)
		rc = dlb_doc_read(doc, path, err);
	else
		dlb_doc_init(doc, "cluster");
	dlb_cluster_init(&c);
	rc = rc || dlb_profile_open_devices(w, err) || check_devices(w, err) ? -1 : 0;
	if (w->comm)
		rc = dlb_comm_agree(w->comm, rc, err, &w->who);
	if (!rc)
		rc = topology ? dlb_cluster_discover(&c, topology, w->device[0].be.n_threads, err)
			: dlb_cluster_probe(w->comm, w->device[0].be.n_threads, &c, err);
	rc = rc || add_devices(w, &c, err) ||
			     dlb_cluster_add_folders(&c, w->o->memories.item, w->o->memories.n, err) ||
			     dlb_cluster_check(&c, err) ?
		     -1 :
		     0;
	if (!rc)
		dlb_doc_set(doc, "cluster", dlb_cluster_write(&c));
	dlb_cluster_release(&c);
	return rc;
}

/* The host of each rank, [*n] (new): hosts in the order of the file, each with as many ranks as slots. */
static const struct dlb_host **ranks_of(const struct dlb_cluster *c, int *n)
{
	const struct dlb_host **host;

	*n = 0;
	for (int i = 0; i < c->n_hosts; i++)
		*n += c->host[i].slots;
	host = dlb_xcalloc((size_t)*n + 1, sizeof *host);
	for (int i = 0, r = 0; i < c->n_hosts; i++)
		for (int k = 0; k < c->host[i].slots; k++)
			host[r++] = &c->host[i];
	return host;
}

/* Reads the cluster that the ranks have written, and adds its hosts by the names that they report for
 * themselves: node r is rank r. */
static int take_cluster(FILE *out, const struct dlb_host *const *host, int n, struct dlb_cluster *c,
			struct dlb_error *err)
{
	struct dlb_doc written = { .root = NULL };
	char *text = NULL;
	long size;
	int rc;

	fseek(out, 0, SEEK_END);
	size = ftell(out);
	rewind(out);
	text = dlb_xmalloc((size_t)size + 1);
	if (fread(text, 1, (size_t)size, out) != (size_t)size)
		rc = dlb_fail(err, NULL, "the ranks' document cannot be read");
	else
		rc = dlb_doc_parse(&written, text, (size_t)size, "the ranks", err);
	if (!rc)
		rc = dlb_cluster_read(&written, c, err);
	if (!rc && c->n_nodes != n) {
		rc = dlb_fail(err, NULL, "%d ranks have written %d nodes", n, c->n_nodes);
		dlb_cluster_release(c);
	}
	for (int i = 0; i < n && !rc; i++)
		if (!i || host[i] != host[i - 1])
			dlb_cluster_add_host(c, c->node[i].host, host[i]->address, host[i]->user,
					     host[i]->slots);
	dlb_doc_release(&written);
	free(text);
	return rc;
}

int dlb_profile_hosts(struct dlb_profile_command *w, const char *const *argv, const char *path,
		      struct dlb_doc *doc, int *status, struct dlb_error *err)
{
	struct dlb_hosts_job j = { .tool = w->cli->tool, .argv = argv, .out = tmpfile(),
				   .verbose = w->cli->verbose };
	struct dlb_cluster given, measured;
	int rc;

	*status = 0;
	dlb_cluster_init(&given);
	if (path)
		rc = dlb_doc_read(doc, path, err);
	else
		rc = (dlb_doc_init(doc, "cluster"), 0);
	rc = rc || dlb_hosts_read(w->o->hosts, &given, err) ? -1 : 0;
	const struct dlb_host **host = ranks_of(&given, &j.n_ranks);
	j.host = host;
	if (!rc && !j.out)
		rc = dlb_fail(err, NULL, "cannot make a temporary file");
	if (!rc)
		*status = dlb_hosts_run(&j, err);
	rc = rc || *status ? -1 : 0;
	if (!rc && !take_cluster(j.out, host, j.n_ranks, &measured, err)) {
		dlb_doc_set(doc, "cluster", dlb_cluster_write(&measured));
		dlb_cluster_release(&measured);
	} else {
		rc = -1;
	}
	free(host);
	if (j.out)
		fclose(j.out);
	dlb_cluster_release(&given);
	return rc;
}

/* Writes no document; prints a line for each comparison. */
int dlb_profile_check_machine(struct dlb_profile_command *w, const char *path, struct dlb_doc *doc,
			      struct dlb_error *err)
{
	struct dlb_machine_check m = { .n_lines = 0 };
	int rc;

	if (w->comm && dlb_comm_size(w->comm) > 1 && (!path || !strcmp(path, "-")))
		rc = dlb_refuse(err, "<stdin>", "name its file",
				"--check by several ranks needs a document that each can read");
	else
		rc = dlb_doc_read(doc, path, err);
	if (w->comm)
		rc = dlb_comm_agree(w->comm, rc, err, &w->who);
	if (!rc)
		rc = dlb_machine_check(doc, w->comm, &m, err);
	for (int i = 0; i < m.n_lines && !rc && !dlb_profile_rank(w); i++)
		(m.line[i].verdict == DLB_MACHINE_EQUAL ? dlb_cli_say : dlb_cli_warn)(w->cli, "%s",
										      m.line[i].text);
	w->differs = m.n_differences > 0;
	dlb_machine_check_release(&m);
	return rc;
}
