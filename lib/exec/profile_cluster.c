/* dlb-profile --cluster and --check: the machine it runs on. */
#include <string.h>
#include "cluster/cluster.h"
#include "exec/machine_check.h"
#include "exec/probe.h"
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

/* Adds the devices that -d names besides CPUs; without a CPU among them the cluster has none. */
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
	rc = rc || add_devices(w, &c, err) || dlb_cluster_check(&c, err) ? -1 : 0;
	if (!rc)
		dlb_doc_set(doc, "cluster", dlb_cluster_write(&c));
	dlb_cluster_release(&c);
	return rc;
}

/* Writes nothing; what differs is a line each. */
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
	if (!rc && (rc = dlb_machine_check(doc, w->comm, &m, err)) != 0)
		dlb_error_at(err, doc->name);
	for (int i = 0; i < m.n_lines && !rc && !dlb_profile_rank(w); i++)
		(m.line[i].verdict == DLB_MACHINE_EQUAL ? dlb_cli_say : dlb_cli_warn)(w->cli, "%s",
										      m.line[i].text);
	w->differs = m.n_differences > 0;
	dlb_machine_check_release(&m);
	return rc;
}
