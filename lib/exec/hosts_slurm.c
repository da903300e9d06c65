/* The hosts of a Slurm allocation (salloc, sbatch) in which this process runs, for the ranks of a plan whose cluster names
 * none. See hosts.h.
 *
 * Node i of the plan is on the host of task i of the allocation, as Slurm numbers tasks: SLURM_TASKS_PER_NODE is "2(x3),1"
 * for three hosts of two tasks and one of one. A plan of more nodes puts the same share of the rest on every host. */
#define _XOPEN_SOURCE 700
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/hosts.h"
#include "util/mem.h"

/* Tasks of the next host; *text: what follows. The last host's, where the text ends. */
static int next_tasks(const char **text, int *times, int last)
{
	int tasks = last, n = 0;

	if (*times > 0) {
		--*times;
		return last;
	}
	if (sscanf(*text, "%d%n", &tasks, &n) == 1) {
		*text += n;
		n = 0;
		if (sscanf(*text, "(x%d)%n", times, &n) == 1 && n)
			*text += n;
		*times -= *times > 0;
		*text += **text == ',';
	}
	return tasks < 1 ? 1 : tasks;
}

/* Adds the hosts with their tasks as slots; returns the sum of these. */
static int add_hosts(struct dlb_cluster *c, const char *list)
{
	const char *text = getenv("SLURM_TASKS_PER_NODE");
	char line[256], *command;
	int times = 0, tasks = 1, sum = 0;
	FILE *f;

	if (strchr(list, '\''))
		return 0;
	command = dlb_xprintf("scontrol show hostnames '%s'", list);
	f = popen(command, "r");
	free(command);
	while (f && fgets(line, sizeof line, f)) {
		line[strcspn(line, "\n")] = '\0';
		tasks = next_tasks(text ? &text : &(const char *){ "" }, &times, tasks);
		dlb_cluster_add_host(c, line, line, NULL, tasks);
		sum += tasks;
	}
	if (f)
		pclose(f);
	return sum;
}

void dlb_hosts_take_allocation(struct dlb_hosts *h)
{
	const char *list = getenv("SLURM_JOB_NODELIST");
	struct dlb_cluster *c = &h->cluster;
	const int n = c->n_nodes, tasks = getenv("SLURM_JOB_ID") && list && n > 1 ? add_hosts(c, list) : 0;
	int rank = 0, left = n > tasks ? n - tasks : 0;

	if (!tasks || c->n_hosts < 2)
		return;
	h->rank = dlb_xcalloc((size_t)n + 1, sizeof *h->rank);
	h->allocated = true;
	for (int i = 0; i < c->n_hosts; i++) {
		const int more = left / (c->n_hosts - i);

		left -= more;
		for (int k = 0; k < c->host[i].slots + more && rank < n; k++)
			h->rank[rank++] = &c->host[i];
	}
}
