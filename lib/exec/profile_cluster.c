/* dlb-profile --cluster and --check: the machine it runs on. */
#include <string.h>
#include "cluster/cluster.h"
#include "exec/machine_check.h"
#include "exec/probe.h"
#include "exec/profile_command.h"

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
	rc = rc || dlb_profile_open_devices(w, err) ? -1 : 0;
	if (w->comm)
		rc = dlb_comm_agree(w->comm, rc, err, &w->who);
	if (!rc)
		rc = topology ? dlb_cluster_discover(&c, topology, w->device[0].be.n_threads, err)
			: dlb_cluster_probe(w->comm, w->device[0].be.n_threads, &c, err);
	if (!rc)
		rc = dlb_cluster_check(&c, err);
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
