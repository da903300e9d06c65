/* machine: the cores, hosts and memory that a host lacks for a plan. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/cluster.h"
#include "exec/host_differs.h"

static void read_doc(struct dlb_doc *d, const char *cluster, const char *plan)
{
	struct dlb_error err = { .status = 0 };
	struct dlb_cluster c;

	if (dlb_cluster_parse(cluster, &c, &err)) {
		dlb_error_print(stderr, cluster, -1, &err);
		abort();
	}
	char *text = dlb_xprintf("{\"dlb\":\"1.0\",\"plan\":{\"nodes\":%s}}", plan);
	assert(!dlb_doc_parse(d, text, strlen(text), "f.json", &err));
	dlb_doc_put(d, "cluster", dlb_cluster_write(&c));	/* the plan stays */
	dlb_cluster_release(&c);
	free(text);
}

/* A host of so many cores and so much memory, and the line that it gets for the plan; "": none. */
static void lacks(const char *cluster, const char *plan, int cores, double memory_bytes, const char *line)
{
	const struct dlb_host_has has = { .cores = cores, .memory_bytes = memory_bytes };
	struct dlb_doc d;
	char text[512];

	read_doc(&d, cluster, plan);
	assert(dlb_host_differs(&d, has, text, sizeof text) == (*line != '\0'));
	if (strcmp(text, line)) {
		fprintf(stderr, "'%s', not '%s'\n", text, line);
		abort();
	}
	dlb_doc_release(&d);
}

static void plans_and_hosts(void)
{
	static const char two[] = "[{\"peak_bytes\":3e9},{\"peak_bytes\":2e9}]", three[] = "[{\"peak_bytes\":3e9},{\"peak_bytes\":2e9},{\"peak_bytes\":64e9}]";
	struct dlb_doc d;

	lacks("cpu:2", two, 2, 5e9, "");
	lacks("cpu:2", two, 2, 4.9e9, "the plan needs 5 GB of memory, this host has 4.9: expect swapping, or the end of a rank");
	lacks("cpu:2", two, 2, 0, "");			/* how much there is, nobody knows */
	lacks("cpu:2 cuda:1", three, 2, 5e9, "");	/* a GPU has cores and memory of its own */
	lacks("cpu/4:2", two, 4, 5e9,
	      "the plan has 2 nodes of 8 cores in all, this host has 4: expect steps up to about 2 times the predicted");
	lacks("cpu:1 host cpu:1", two, 1, 1e9,
	      "the plan has 2 nodes of 2 cores in all, this host has 1: expect steps up to about 2 times the predicted; it has 2 hosts, "
	      "all nodes run on this one: expect other times of transfers than predicted; it needs 5 GB of memory, this host has 1: "
	      "expect swapping, or the end of a rank");
	read_doc(&d, "cpu:2 cpu/3:2 cuda:1", "[]");
	assert(dlb_host_planned_cores(&d) == 8);
	dlb_doc_release(&d);
}

int main(void)
{
	plans_and_hosts();
	puts("machine: cores, hosts and memory that a plan wants");
	return 0;
}
