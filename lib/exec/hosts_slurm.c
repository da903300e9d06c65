/* The hosts of a Slurm allocation (salloc, sbatch) in which this process runs, for the ranks of a plan. See
 * hosts.h.
 *
 * If the plan has several hosts, and the allocation has at least as many, nodes are placed by host: on the
 * allocated hosts of the same names or, if a name is not allocated, on the first, second ... allocated host
 * in place of the plan's first, second ... host. Otherwise node i is placed on the host of task i of the
 * allocation (SLURM_TASKS_PER_NODE is "2(x3),1" for three hosts of two tasks and one of one); if the plan has
 * more nodes than tasks, every host gets the same share of the remaining nodes. */
#define _XOPEN_SOURCE 700
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/hosts.h"
#include "util/mem.h"

/* Returns the number of tasks of the next host, and advances *text. *times: how many further hosts have this
 * number. last: the number of the previous host, which is also the result at the end of the text. */
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

/* Adds the hosts of Slurm's list to c, with their tasks as slots. Returns the number of all tasks. */
static int add_hosts(struct dlb_cluster *c, const char *list)
{
	const char *given = getenv("SLURM_TASKS_PER_NODE"), *text = given ? given : "";
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
		tasks = next_tasks(&text, &times, tasks);
		dlb_cluster_add_host(c, line, line, NULL, tasks);
		sum += tasks;
	}
	if (f)
		pclose(f);
	return sum;
}

/* Assigns allocated hosts, which begin at row `first` of c->host, to the plan's hosts, which are numbered in
 * the order of the plan's nodes. place[h]: the row for the plan's host h, by name if all names are allocated,
 * else in order. of_node[i]: the number h of node i's host. Returns the number of the plan's hosts; -1: there
 * are more than allocated hosts. */
static int match_hosts(const struct dlb_cluster *c, int first, int *of_node, int *place)
{
	const char **name = dlb_xcalloc((size_t)c->n_nodes + 1, sizeof *name);
	int n = 0, named = 0;

	for (int i = 0; i < c->n_nodes; i++) {
		int h = 0;

		while (h < n && strcmp(name[h], c->node[i].host))
			h++;
		name[h] = c->node[i].host;
		n += h == n;
		of_node[i] = h;
	}
	for (int h = 0; h < n && n <= c->n_hosts - first; h++) {
		int k = first;

		while (k < c->n_hosts && strcmp(c->host[k].name, name[h]))
			k++;
		place[h] = k;
		named += k < c->n_hosts;
	}
	for (int h = 0; h < n && named < n && n <= c->n_hosts - first; h++)
		place[h] = first + h;
	free(name);
	return n <= c->n_hosts - first ? n : -1;
}

/* Places node i on the host of task i; the hosts begin at row `first` and have `tasks` tasks in all. */
static void fill_tasks(struct dlb_hosts *h, int first, int tasks)
{
	const struct dlb_cluster *c = &h->cluster;
	int rank = 0, left = c->n_nodes > tasks ? c->n_nodes - tasks : 0;

	for (int i = first; i < c->n_hosts; i++) {
		const int more = left / (c->n_hosts - i);

		left -= more;
		for (int k = 0; k < c->host[i].slots + more && rank < c->n_nodes; k++)
			h->rank[rank++] = &c->host[i];
	}
}

bool dlb_hosts_take_allocation(struct dlb_hosts *h)
{
	const char *list = getenv("SLURM_JOB_NODELIST");
	struct dlb_cluster *c = &h->cluster;
	const int first = c->n_hosts,
		  tasks = getenv("SLURM_JOB_ID") && list && c->n_nodes > 1 ? add_hosts(c, list) : 0;
	int *of_node, *place;

	/* the cluster takes no host of an allocation that ranks need not be told */
	if (!tasks || c->n_hosts - first < 2) {
		c->n_hosts = first;
		return false;
	}
	h->rank = dlb_xcalloc((size_t)c->n_nodes + 1, sizeof *h->rank);
	h->allocated = true;
	of_node = dlb_xcalloc((size_t)c->n_nodes + 1, sizeof *of_node);
	place = dlb_xcalloc((size_t)c->n_nodes + 1, sizeof *place);
	if (match_hosts(c, first, of_node, place) > 1)
		for (int i = 0; i < c->n_nodes; i++)
			h->rank[i] = &c->host[place[of_node[i]]];
	else
		fill_tasks(h, first, tasks);
	free(of_node);
	free(place);
	return true;
}
