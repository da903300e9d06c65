/* machine: the cores and hosts that a host lacks for a plan; how a machine differs from that of a
 * document. Nothing is measured here. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/cluster.h"
#include "exec/host_differs.h"
#include "exec/machine_check.h"

static void read_doc(struct dlb_doc *d, const char *cluster)
{
	static const char text[] = "{\"dlb\":\"1.0\",\"plan\":{}}";
	struct dlb_error err = { .status = 0 };
	struct dlb_cluster c;

	if (dlb_cluster_parse(cluster, &c, &err)) {
		dlb_error_print(stderr, cluster, -1, &err);
		abort();
	}
	assert(!dlb_doc_parse(d, text, strlen(text), "f.json", &err));
	dlb_doc_put(d, "cluster", dlb_cluster_write(&c));	/* the plan stays */
	dlb_cluster_release(&c);
}

/* A host of so many cores, and the line that it gets for a plan on that cluster; "": none. */
static void lacks(const char *cluster, int cores, const char *line)
{
	struct dlb_doc d;
	char text[512];

	read_doc(&d, cluster);
	assert(dlb_host_differs(&d, cores, text, sizeof text) == (*line != '\0'));
	if (strcmp(text, line)) {
		fprintf(stderr, "'%s', not '%s'\n", text, line);
		abort();
	}
	dlb_doc_release(&d);
}

static void plans_and_hosts(void)
{
	struct dlb_doc d;

	lacks("cpu:2", 2, "");
	lacks("cpu:2 cuda:1", 2, ""); /* a GPU has cores of its own */
	lacks("cpu/4:2", 4,
	      "the plan has 2 nodes of 8 cores in all, this host has 4: expect steps up to about 2 times the "
	      "predicted");
	lacks("cpu:1 host cpu:1", 1,
	      "the plan has 2 nodes of 2 cores in all, this host has 1: expect steps up to about 2 times the "
	      "predicted; it has 2 hosts, "
	      "all nodes run on this one: expect other times of transfers than predicted");
	read_doc(&d, "cpu:2 cpu/3:2 cuda:1");
	assert(dlb_host_planned_cores(&d) == 8);
	dlb_doc_release(&d);
}

/* A measured cluster: every host of the text gets a processor, cores and memory, every CPU kind its
 * figures. */
static void measured(struct dlb_cluster *c, const char *text, const char *processor, int cores, double memory,
		     double flops)
{
	struct dlb_error err = { .status = 0 };

	assert(!dlb_cluster_parse(text, c, &err));
	for (int g = 0; g < c->n_groups; g++)
		if (!strcmp(c->group[g].cls, "host")) {
			c->group[g].processor = processor;
			c->group[g].cores = cores;
			dlb_cluster_add_memory(c, g, "dram0", "dram", memory);
		}
	for (int k = 0; k < c->n_kinds; k++) {
		c->kind[k].peak_flops = flops;
		c->kind[k].bandwidth_Bps = 1e10;
	}
}

static void rename_host(struct dlb_cluster *c, const char *from, const char *to)
{
	for (int i = 0; i < c->n_nodes; i++)
		if (!strcmp(c->node[i].host, from))
			c->node[i].host = to;
}

/* The lines of that verdict, one after another. */
static const char *lines(const struct dlb_machine_check *m, enum dlb_machine_verdict verdict)
{
	static char text[2000];

	*text = '\0';
	for (int i = 0; i < m->n_lines; i++)
		if (m->line[i].verdict == verdict)
			snprintf(text + strlen(text), sizeof text - strlen(text), "%s\n", m->line[i].text);
	return text;
}

static void compare(struct dlb_cluster *stored, struct dlb_cluster *here, const char *differs,
		    const char *unchecked)
{
	struct dlb_machine_check m = { .n_lines = 0 };
	int n = 0;

	dlb_machine_compare_hosts(stored, here, &m);
	dlb_machine_compare_speed(stored, 0, here, &m);
	for (const char *p = differs; *p; p++)
		n += *p == '\n';
	if (strcmp(lines(&m, DLB_MACHINE_DIFFERS), differs) ||
	    strcmp(lines(&m, DLB_MACHINE_UNCHECKED), unchecked) || m.n_differences != n) {
		fprintf(stderr, "differs:\n%snot checked:\n%s", lines(&m, DLB_MACHINE_DIFFERS),
			lines(&m, DLB_MACHINE_UNCHECKED));
		abort();
	}
	dlb_machine_check_release(&m);
	dlb_cluster_release(stored);
	dlb_cluster_release(here);
}

static void one_host(void)
{
	struct dlb_cluster a, b;

	measured(&a, "cpu:4", "P", 4, 16e9, 1e11);
	measured(&b, "cpu:4", "P", 4, 16e9, 1e11);
	compare(&a, &b, "", "");
	/* 19 % of speed and 1 % of memory are noise */
	measured(&a, "cpu:4", "P", 4, 16e9, 1e11);
	measured(&b, "cpu:4", "P", 4, 16.1e9, 1.19e11);
	compare(&a, &b, "", "");
	measured(&a, "cpu:4", "P", 4, 16e9, 1e11);
	measured(&b, "cpu:2", "Q", 2, 8e9, 5e10);
	rename_host(&b, "h0", "other");
	compare(&a, &b,
		"host 'other' here, 'h0' in the document\nhost 'other': processor 'Q' here, 'P' in the "
		"document\n"
		"host 'other': 2 cores here, 4 in the document\nhost 'other': 8 GB of memory here, 16 in the "
		"document (0.50 times)\n"
		"host 'other': kind cpu: 50 GFLOP/s here, 100 in the document (0.50 times)\n",
		"");
	/* a node that was taken out of the document took nothing from the machine; the speed of a node
	 * counts */
	measured(&a, "cpu:1*0.25", "P", 4, 16e9, 1e11);
	measured(&b, "cpu:4", "P", 4, 16e9, 1e11);
	compare(&a, &b, "host 'h0': kind cpu: 100 GFLOP/s here, 25 in the document (4.00 times)\n", "");
	/* where cores are not known, nodes tell the least that there were; shares of memory tell its size */
	measured(&a, "cpu/3:2@4GB", NULL, 0, 0, 0);
	measured(&b, "cpu/3:1@8GB", "P", 4, 0, 1e11);
	a.kind[0].bandwidth_Bps = 0;
	compare(&a, &b, "host 'h0': 4 cores here, nodes of 6 threads in all in the document\n", "");
	measured(&a, "cpu:1", NULL, 0, 8e9, 0);
	measured(&b, "cpu:4@4GB", "P", 4, 0, 0);
	compare(&a, &b, "host 'h0': 16 GB of memory here, 8 in the document (2.00 times)\n", "");
}

static void several_hosts(void)
{
	struct dlb_cluster a, b;

	measured(&a, "cpu:2 host cpu:2 host cpu:2", "P", 2, 8e9, 1e11);
	measured(&b, "cpu:2", "P", 2, 8e9, 1e11);
	rename_host(&b, "h0", "h1");
	compare(&a, &b, "", "2 hosts of the document ('h0' ...) are not checked: this does not run there\n");
	/* h1 is compared with itself, and x with the one that is left */
	measured(&a, "cpu:2 host cpu:2", "P", 2, 8e9, 1e11);
	measured(&b, "cpu:2 host cpu:2", "P", 2, 8e9, 1e11);
	rename_host(&b, "h0", "x");
	compare(&a, &b, "host 'x' here, 'h0' in the document\n", "");
	measured(&a, "cpu:2", "P", 2, 8e9, 1e11);
	measured(&b, "cpu:2 host cpu:2", "P", 2, 8e9, 1e11);
	compare(&a, &b, "host 'h1' is one more than the document has\n", "");
}

static void no_machine(void)
{
	struct dlb_machine_check m = { .n_lines = 0 };
	struct dlb_error err = { .status = 0 };
	struct dlb_doc d;

	read_doc(&d, "cpu:2");
	assert(dlb_machine_check(&d, NULL, &m, &err) == -1 && err.status == 2 &&
	       strstr(err.what, "no machine was measured") && *err.hint);
	dlb_doc_release(&d);
	dlb_machine_check_release(&m);
}

int main(void)
{
	plans_and_hosts();
	one_host();
	several_hosts();
	no_machine();
	puts("machine: cores and hosts that a plan wants; hosts, processors, cores, memory and speed "
	     "beside a document's");
	return 0;
}
