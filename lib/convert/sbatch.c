/* Exports a batch script for Slurm that runs the document's plan: a task for each node, on as many hosts as
 * the cluster has.
 *
 * Slurm gives every task the same number of cores: that of the node with most threads. The hosts of the
 * allocation take the places of the cluster's hosts: by name if all names are allocated, else in order. */
#include <stdlib.h>
#include <string.h>
#include "convert/formats.h"
#include "convert/planned.h"

/* Texts of a script that differ between the two ways to start the ranks. */
struct way { const char *about, *rules, *places, *start; };

static const char head[] =
	"#!/bin/bash\n"
	"# A plan for %d node%s on %d host%s, run by Slurm: task i is node i of the plan.\n"
	"#\n"
	"#     sbatch [SBATCH OPTION...] SCRIPT DOCUMENT --data SPEC --until-step N [DLB-RUN OPTION...]\n"
	"#\n"
	"%s"
	"#SBATCH --job-name=dlb\n"
	"#SBATCH --nodes=%d\n"
	"#SBATCH --ntasks=%d\n"
	"#SBATCH --cpus-per-task=%d\n";

static const char usage[] =
	"[ $# -gt 0 ] || { echo 'usage: sbatch SCRIPT DOCUMENT [DLB-RUN OPTION...]' >&2; exit 2; }\n"
	"document=$1 report=report-$SLURM_JOB_ID.json checkpoint=${DLB_CHECKPOINT:-checkpoint-$SLURM_JOB_ID}\n"
	"shift\n"
	"\n";

static const char last[] =
	"mv \"$report.part\" \"$report\"\n"
	"if grep -q '\"stopped\": *\"signal\"' \"$report\"; then scontrol requeue \"$SLURM_JOB_ID\"; fi\n";

/* srun starts the ranks, and ends all of them when one fails. */
static const struct way by_srun = {
	.about =
	"# Before its time limit the run writes a checkpoint, and the job is queued again, until it ends\n"
	"# by itself; scontrol requeue JOB does the same at any time. DLB_CHECKPOINT is the folder of\n"
	"# checkpoints, on a file system that all hosts have (default: checkpoint-JOB). The document with\n"
	"# the report becomes report-JOB.json.\n",
	.rules =
	"#SBATCH --requeue\n"
	"#SBATCH --open-mode=append\n"
	"#SBATCH --signal=TERM@120\n"
	"set -euo pipefail\n",
	.places =
	"# The allocated hosts take the places of the plan's: those of the same names if all are there,\n"
	"# else in order.\n"
	"mapfile -t given < <(scontrol show hostnames \"$SLURM_JOB_NODELIST\")\n"
	"for host in \"${hosts[@]}\"; do\n"
	"\t[[ \" ${given[*]} \" = *\" $host \"* ]] || { hosts=(\"${given[@]}\"); break; }\n"
	"done\n"
	"SLURM_HOSTFILE=$(mktemp)\n"
	"export SLURM_HOSTFILE\n"
	"trap 'rm -f \"$SLURM_HOSTFILE\"' EXIT\n"
	"for i in \"${host_of[@]}\"; do echo \"${hosts[i]}\"; done >\"$SLURM_HOSTFILE\"\n"
	"\n",
	.start =
	"srun --mpi=pmix --distribution=arbitrary --kill-on-bad-exit=1 \\\n"
	"\tdlb-run --checkpoint \"$checkpoint\" \"$@\" \"$document\" >\"$report.part\"\n"
};

/* With --replan the script runs dlb-run, which starts the ranks and matches the allocated hosts with the
 * plan's hosts itself (exec/hosts_slurm.c). */
static const struct way by_itself = {
	.about =
	"# A host that is lost does not end the job (--no-kill): the run goes on from its last checkpoint on\n"
	"# the hosts that are left, and puts the host back when it answers again (dlb-run --rejoin). If the\n"
	"# first host is lost, on which this script runs, Slurm queues the job again.\n"
	"#\n"
	"# Before its time limit the run writes a checkpoint, and the job is queued again, until it ends by\n"
	"# itself. scontrol requeue JOB ends all ranks at once, before they can write one: the job then goes\n"
	"# on from the checkpoint before. A checkpoint is written after every DLB_CHECKPOINT_EVERY steps\n"
	"# (default 100). DLB_CHECKPOINT is the folder of checkpoints, on a file system that all hosts have\n"
	"# (default: checkpoint-JOB). The document with the report becomes report-JOB.json.\n",
	.rules =
	"#SBATCH --no-kill\n"
	"#SBATCH --requeue\n"
	"#SBATCH --open-mode=append\n"
	"#SBATCH --signal=B:TERM@120\n"
	"set -euo pipefail\n",
	.places = "",
	.start =
	"dlb-run --on-failure replan --checkpoint \"$checkpoint\" --checkpoint-every \"${DLB_CHECKPOINT_EVERY:-100}\" \\\n"
	"\t\"$@\" \"$document\" >\"$report.part\" &\n"
	"run=$!\n"
	"trap 'kill -TERM \"$run\"' TERM\n"
	"until wait \"$run\"; do\t# a signal ends the waiting too\n"
	"\tstatus=$?\n"
	"\tkill -0 \"$run\" 2>/dev/null || exit \"$status\"\n"
	"done\n"
};

/* Resources that the plan's nodes need. host_of: [node]; host: names, in the order of their first nodes;
 * threads: of the node with most; gpus: of the host with most. */
struct needs { const char **host; int *host_of; int n_hosts, threads, gpus; };

static int find_needs(const struct dlb_cluster *cl, struct needs *x, struct dlb_error *err)
{
	static const char good[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
	int *gpus = dlb_xcalloc((size_t)cl->n_nodes + 1, sizeof *gpus);	/* [host] */
	int rc = 0;

	for (int i = 0; i < cl->n_nodes && !rc; i++) {
		const struct dlb_device_kind *kind = &cl->kind[cl->node[i].kind];
		const char *name = cl->node[i].host;
		int h = 0;

		if (!*name || strspn(name, good) != strlen(name))
			rc = dlb_refuse(err, "/cluster/nodes", "name the host as Slurm does",
					"node %d: '%.80s' is no name of a host", i, name);
		while (h < x->n_hosts && strcmp(x->host[h], name))
			h++;
		if (h == x->n_hosts)
			x->host[x->n_hosts++] = name;
		x->host_of[i] = h;
		gpus[h] += !strcmp(kind->backend, "cuda");
		x->gpus = gpus[h] > x->gpus ? gpus[h] : x->gpus;
		x->threads = kind->threads > x->threads ? kind->threads : x->threads;
	}
	free(gpus);
	return rc;
}

static void write_script(const struct dlb_cluster *cl, const struct needs *x, const struct way *w,
			 struct dlb_text *t)
{
	const int n = cl->n_nodes, hosts = x->n_hosts;

	dlb_text_add(t, head, n, n == 1 ? "" : "s", hosts, hosts == 1 ? "" : "s", w->about, hosts, n,
		     x->threads);
	if (x->gpus)
		dlb_text_add(t, "#SBATCH --gpus-per-node=%d\n", x->gpus);
	dlb_text_add(t, "%s\n", w->rules);
	for (int h = 0; h < hosts && *w->places; h++)
		dlb_text_add(t, "%s%s", h ? " " : "hosts=(", x->host[h]);
	for (int i = 0; i < n && *w->places; i++)
		dlb_text_add(t, "%s%d", i ? " " : ")\nhost_of=(", x->host_of[i]);
	dlb_text_add(t, "%s%s%s%s%s", *w->places ? ")\n" : "", usage, w->places, w->start, last);
}

char *dlb_export_sbatch(const struct dlb_doc *d, const struct dlb_convert_options *o, size_t *n,
			struct dlb_error *err)
{
	struct dlb_text t = { .n = 0 };
	struct needs x = { .threads = 1 };
	struct dlb_cluster cl;

	if (dlb_cluster_read(d, &cl, err))
		return NULL;
	x.host = dlb_xcalloc((size_t)cl.n_nodes + 1, sizeof *x.host);
	x.host_of = dlb_xcalloc((size_t)cl.n_nodes + 1, sizeof *x.host_of);
	if (!find_needs(&cl, &x, err))
		write_script(&cl, &x, o->replan ? &by_itself : &by_srun, &t);
	free(x.host);
	free(x.host_of);
	dlb_cluster_release(&cl);
	*n = t.n;
	return t.s;
}
