/* cluster: synthetic strings, routes and transfers, discovery by hwloc, reading and writing the section, bad
 * input. */
#define _DEFAULT_SOURCE		/* MAP_ANONYMOUS */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cluster/cluster.h"
#include "util/rng.h"
#include "check.h"

static void parse(const char *text, struct dlb_cluster *c)
{
	struct dlb_error err = { .status = 0 };

	if (dlb_cluster_parse(text, c, &err)) {
		dlb_error_print(stderr, text, -1, &err);
		abort();
	}
}

static void bad(const char *text, const char *what)
{
	struct dlb_error err = { .status = 0 };
	struct dlb_cluster c;

	if (dlb_cluster_parse(text, &c, &err) != -1 || err.status != 2 || !strstr(err.what, what)) {
		dlb_error_print(stderr, text, -1, &err);
		abort();
	}
}

/* Random strings of the grammar's tokens: parsed into a valid cluster, or refused in one line. */
static void test_random_strings(void)
{
	static const char *const piece[] = { "cpu",     "cuda", ":",    "/",     "*",     "@",   "=",
					     ",",       " ",    "host", "rack",  "link=", "shm", "site",
					     "2",       "0",    "1e-6", "1e999", "-",     "GB",  "h0",
					     "9999999", ".",    "\t",   "\x80",  "x" };
	struct dlb_rng r;
	int parsed = 0;

	dlb_rng_init(&r, 5);
	for (int i = 0; i < 20000; i++) {
		struct dlb_error err = { .status = 0 };
		struct dlb_cluster c;
		char text[256] = "";
		for (uint64_t n = dlb_rng_below(&r, 12); n; n--)
			strcat(text, piece[dlb_rng_below(&r, DLB_LEN(piece))]);
		if (dlb_cluster_parse(text, &c, &err)) {
			assert(IS(err.status, ==, 2) && *err.what && !strchr(err.what, '\n'));
			continue;
		}
		assert(!dlb_cluster_check(&c, &err));
		parsed++;
		dlb_cluster_release(&c);
	}
	assert(IS(parsed, >, 100));
}

static bool near(double a, double b)
{
	return fabs(a - b) <= 1e-12 * fabs(b);
}

static void test_words(void)
{
	struct dlb_cluster c;

	parse("cpu:2", &c);
	assert(IS(c.n_nodes, ==, 2) && IS(c.n_kinds, ==, 1) && IS(c.n_groups, ==, 1) && IS(c.n_links, ==, 1));
	assert(SAME(c.kind[0].name, "cpu") && IS(c.kind[0].threads, ==, 1) && SAME(c.node[1].host, "h0"));
	assert(IS(c.node[1].device, ==, 1) && isinf(dlb_cluster_node_memory(&c, 0)));
	dlb_cluster_release(&c);

	parse("cpu/4:1, cpu:1*0.5@8GB cpu/1@512MiB", &c);
	assert(IS(c.n_nodes, ==, 3) && IS(c.n_kinds, ==, 2) && SAME(c.kind[0].name, "cpu/4") &&
	       IS(c.kind[0].threads, ==, 4));
	assert(SAME(c.kind[0].backend, "cpu") && IS(c.node[1].speed, ==, 0.5) &&
	       IS(c.node[1].memory_bytes, ==, 8e9));
	assert(IS(c.node[2].kind, ==, c.node[1].kind) && IS(c.node[2].memory_bytes, ==, 512.0 * 1048576));
	dlb_cluster_release(&c);

	parse("cpu/4:2 cpu cuda:3", &c);
	assert(IS(dlb_cluster_cores(&c), ==, 2 * 4 + 1));
	dlb_cluster_release(&c);

	parse("cuda:4", &c);
	assert(IS(c.n_nodes, ==, 4) && IS(c.kind[0].peak_flops, >, 0) &&
	       IS(dlb_cluster_node_memory(&c, 3), ==, 16e9));
	dlb_cluster_release(&c);

	parse("host a=cpu:2 b=cpu:2 link=socket:1e-6,2e9 link=shm:2e-6,1e9", &c);
	assert(IS(c.n_groups, ==, 3) && IS(c.node[0].group, !=, c.node[2].group));
	assert(near(dlb_cluster_transfer_s(&c, 1e6, 0, 1), 1e-6 + 1e6 / 2e9));
	assert(near(dlb_cluster_transfer_s(&c, 1e6, 0, 2), 2e-6 + 1e6 / 1e9));
	dlb_cluster_release(&c);

	parse("x_1-a.b+c:2 g_0=x_1-a.b+c", &c);
	assert(IS(c.n_nodes, ==, 3) && IS(c.n_kinds, ==, 1) && SAME(c.kind[0].name, "x_1-a.b+c") &&
	       SAME(c.group[c.node[2].group].name, "h0.g_0"));
	dlb_cluster_release(&c);

	/* brackets in each other: the nodes multiply */
	parse("2(cpu 3(cuda 1(cpu/2)))", &c);
	assert(IS(c.n_nodes, ==, 2 * (1 + 3 * 2)) && SAME(c.kind[c.node[6].kind].name, "cpu/2") &&
	       SAME(c.kind[c.node[7].kind].name, "cpu"));
	dlb_cluster_release(&c);
	parse("1(1(1(1(1(1(1(1(cpu))))))))", &c);
	assert(IS(c.n_nodes, ==, 1));
	dlb_cluster_release(&c);
	bad("1(1(1(1(1(1(1(1(1(cpu)))))))))", "at most 8 brackets in each other");
	bad("2(cpu", "')'");
	bad("2(cpu))", "a blank or ','");
	bad("2(cpu 3())", "a kind of node");

	bad("", "a kind of node");
	bad("  ,", "a kind of node");
	bad("cpu:", "a number of nodes");
	bad("cpu:0", "a number of nodes");
	bad("cpu:-1", "a number of nodes");
	bad("cpu:99999999999999999999", "a number of nodes");
	bad("cpu/0", "a number of threads");
	bad("cpu*0", "a positive speed");
	bad("cpu*inf", "a positive speed");
	bad("cpu*1e999", "a positive speed");
	bad("cpu@", "an amount of memory");
	bad("cpu:2;", "a blank or ','");
	bad("link=shm", "a latency");
	bad("link=shm:1e-6", "',' and a bandwidth");
	bad("link=shm:1e-6,0 cpu", "a bandwidth");
	bad("link=foo:1,1", "a class of link");
	bad("4:cpu", "'(' behind a number of times");
	bad(":cpu", "a name");
	bad("cpu:1048576 cpu:1", "more than");
}

/* Words may name the given kinds only, however many there are. */
static void test_given_kinds(void)
{
	struct dlb_error err = { .what = "" };
	struct dlb_cluster c;
	char name[16];

	for (int known = 0; known < 2; known++) {
		dlb_cluster_init(&c);
		for (int i = 0; i < 80; i++) {
			snprintf(name, sizeof name, "kind%02d", i);
			dlb_cluster_add_kind(&c, name, 1);
		}
		assert(IS(c.n_kinds, ==, 80));
		if (known) {
			assert(IS(dlb_cluster_build(&c, "kind00:2 kind79", &err), ==, 0) &&
			       IS(c.n_kinds, ==, 80));
			assert(IS(c.n_nodes, ==, 3) && SAME(c.kind[c.node[1].kind].name, "kind00") &&
			       SAME(c.kind[c.node[2].kind].name, "kind79"));
		} else {
			assert(IS(dlb_cluster_build(&c, "kind00 knd63", &err), ==, -1) &&
			       SAME(err.what, "no kind 'knd63'") && HAS(err.hint, "kind63"));
		}
		dlb_cluster_release(&c);
	}
}

static void test_hosts(void)
{
	struct dlb_cluster c;
	int link[DLB_MAX_ROUTE];

	parse("cpu:2 host cpu:2*0.5 link=rack:5e-6,1.25e9", &c);
	/* links: within and out of two hosts */
	assert(IS(c.n_links, ==, 4));
	assert(IS(c.n_nodes, ==, 4) && IS(c.n_groups, ==, 3) && SAME(c.node[2].host, "h1") &&
	       IS(c.node[2].device, ==, 0));
	assert(IS(dlb_cluster_route(&c, 0, 1, link), ==, 1) && SAME(c.link[link[0]].cls, "shm"));
	assert(IS(dlb_cluster_route(&c, 0, 0, link), ==, 0) &&
	       IS(dlb_cluster_transfer_s(&c, 1e9, 1, 1), ==, 0));
	assert(IS(dlb_cluster_route(&c, 0, 3, link), ==, 2) && SAME(c.link[link[0]].name, "rack:h0"));
	assert(near(dlb_cluster_transfer_s(&c, 1.25e6, 0, 3), 5e-6 + 1e-3));
	dlb_cluster_release(&c);

	parse("cpu host cpu rack cpu host cpu link=rack:1e-5,1e9 link=site:1e-3,1e8", &c);
	assert(IS(c.n_groups, ==, 7) && IS(c.n_nodes, ==, 4) && IS(c.n_links, ==, 10));
	assert(near(dlb_cluster_transfer_s(&c, 1e6, 0, 1), 1e-5 + 1e-3));
	assert(IS(dlb_cluster_route(&c, 0, 3, link), ==, 4) && SAME(c.link[link[0]].name, "rack:h0") &&
	       SAME(c.link[link[1]].name, "site:r0") && SAME(c.link[link[3]].name, "rack:h3"));
	assert(near(dlb_cluster_transfer_s(&c, 1e6, 0, 3), 1e-5 + 1e-3 + 1e-2));
	for (int a = 0; a < 4; a++)
		for (int b = 0; b < 4; b++)
			assert(near(dlb_cluster_transfer_s(&c, 77, a, b),
				    dlb_cluster_transfer_s(&c, 77, b, a)) ||
			       a == b);
	dlb_cluster_release(&c);

	/* a rack starts with a host of its own, whatever words "host" stand beside it */
	static const char *const two_racks[] = { "cpu:2 rack cpu:2", "cpu:2 host rack cpu:2",
						 "cpu:2 rack host cpu:2", "rack cpu:2 rack cpu:2",
						 "host cpu:2 host, link=shm:1e-6,1e9 rack cpu:2" };
	for (int i = 0; i < DLB_LEN(two_racks); i++) {
		parse(two_racks[i], &c);
		assert(IS(c.n_nodes, ==, 4) && IS(c.n_groups, ==, 5) &&
		       SAME(c.group[c.node[0].group].name, "h0"));
		assert(SAME(c.node[2].host, "h1") && IS(dlb_cluster_route(&c, 0, 2, link), ==, 4));
		assert(SAME(c.link[link[1]].name, "site:r0") && SAME(c.link[link[2]].name, "site:r1"));
		dlb_cluster_release(&c);
	}
	bad("cpu:2 host", "a host without nodes at the end");
	bad("cpu:2 host host cpu:2", "a host without nodes before 'host cpu:2'");
	bad("cpu:2 host rack host cpu:2", "a host without nodes before 'host cpu:2'");
	bad("cpu:2 rack", "a rack without nodes at the end");
	bad("cpu:2 rack host rack cpu:2", "a rack without nodes before 'rack cpu:2'");
	bad("cpu:2 host link=shm:1e-6,1e9", "a host without nodes at the end");

	parse("cpu:1024", &c);
	assert(IS(c.n_nodes, ==, 1024) && IS(c.node[1023].device, ==, 1023));
	dlb_cluster_release(&c);
}

/* write, read, write again: the same text. */
static void round_trip(const struct dlb_cluster *c)
{
	struct dlb_error err = { .status = 0 };
	struct dlb_cluster back;
	struct dlb_doc d;
	char *a, *b;

	dlb_doc_init(&d, "f.json");
	dlb_doc_set(&d, "cluster", dlb_cluster_write(c));
	if (dlb_cluster_read(&d, &back, &err)) {
		dlb_error_print(stderr, "round trip", -1, &err);
		abort();
	}
	json_t *again = dlb_cluster_write(&back);
	a = json_dumps(dlb_doc_section(&d, "cluster"), JSON_COMPACT);
	b = json_dumps(again, JSON_COMPACT);
	assert(SAME(a, b) && IS(back.n_nodes, ==, c->n_nodes));
	for (int l = 0; l < c->n_links; l++)
		assert(IS(back.link[l].overlap, ==, c->link[l].overlap) &&
		       IS(back.link[l].duplex, ==, c->link[l].duplex));
	free(a);
	free(b);
	json_decref(again);
	dlb_cluster_release(&back);
	dlb_doc_release(&d);
}

static void test_round_trips(void)
{
	static const char *const texts[] = { "cpu:2", "cpu/4:1 cpu:1*0.5@8GB",
					     "s0=cpu:2 s1=cpu:2 host cuda:4 rack cpu:3",
					     "cpu:64*0.123456789012345 host cpu:64 link=rack:1e-6,3e9" };
	struct dlb_cluster c;

	for (int i = 0; i < DLB_LEN(texts); i++) {
		parse(texts[i], &c);
		round_trip(&c);
		for (int l = 0; l < c.n_links; l++)
			c.link[l].duplex = !c.link[l].duplex;
		c.group[0].processor = "a \"model\"";
		c.group[0].cores = 3;
		round_trip(&c);
		dlb_cluster_release(&c);
	}
}

static void bad_section(const char *section, const char *where, const char *what)
{
	struct dlb_error err = { .status = 0 };
	struct dlb_cluster c;
	struct dlb_doc d;
	char *text = dlb_xprintf("{\"dlb\":\"1.0\",\"cluster\":%s}", section);

	assert(!dlb_doc_parse(&d, text, strlen(text), "f.json", &err));
	if (dlb_cluster_read(&d, &c, &err) != -1 || err.status != 2 || !strstr(err.where, where) ||
	    !strstr(err.what, what)) {
		dlb_error_print(stderr, section, -1, &err);
		abort();
	}
	dlb_doc_release(&d);
	free(text);
}

#define KINDS "\"kinds\":[{\"name\":\"cpu\"}]"
#define LINKS "\"links\":[{\"name\":\"l\",\"latency_s\":0,\"bandwidth_Bps\":1}]"

static void test_bad_sections(void)
{
	bad_section("{}", "/cluster", "");
	bad_section("{\"nodse\":[]}", "/cluster", "nodse");
	bad_section("{" KINDS ",\"groups\":[{\"name\":\"g\"}],\"nodes\":[5]}", "/cluster/nodes/0",
		    "an object");
	bad_section("{" KINDS ",\"groups\":[{\"name\":\"g\"}],\"nodes\":[]}", "/cluster/nodes",
		    "at least one node");
	bad_section("{" KINDS
		    ",\"groups\":[{\"name\":\"g\"}],\"nodes\":[{\"kind\":\"cup\",\"group\":\"g\"}]}",
		    "/cluster/nodes/0/kind", "no kind 'cup'");
	bad_section("{" KINDS
		    ",\"groups\":[{\"name\":\"g\"}],\"nodes\":[{\"kind\":\"cpu\",\"group\":\"h\"}]}",
		    "/cluster/nodes/0/group", "no group 'h'");
	bad_section("{" KINDS
		    ",\"groups\":[{\"name\":\"g\"}],\"nodes\":[{\"id\":3,\"kind\":\"cpu\",\"group\":\"g\"}]}",
		    "/cluster/nodes/0/id", "count from 0");
	bad_section(
		"{" KINDS
		",\"groups\":[{\"name\":\"g\"}],\"nodes\":[{\"kind\":\"cpu\",\"group\":\"g\",\"speed\":-1}]}",
		"/cluster/nodes/0/speed", "below");
	bad_section(
		"{" KINDS
		",\"groups\":[{\"name\":\"g\",\"cores\":0}],\"nodes\":[{\"kind\":\"cpu\",\"group\":\"g\"}]}",
		"/cluster/groups/0/cores", "");
	bad_section("{" KINDS ",\"groups\":[{\"name\":\"g\"},{\"name\":\"g\"}],\"nodes\":[]}",
		    "/cluster/groups/1", "taken");
	bad_section("{" KINDS
		    ",\"groups\":[{\"name\":\"a\",\"parent\":\"b\"},{\"name\":\"b\",\"parent\":\"a\"}],"
		    "\"nodes\":[{\"kind\":\"cpu\",\"group\":\"a\"}]}",
		    "/cluster/groups/0", "cycle");
	bad_section("{" KINDS ",\"groups\":[{\"name\":\"a\"},{\"name\":\"b\"}],\"nodes\":[{\"kind\":\"cpu\","
			      "\"group\":\"a\"}]}",
		    "/cluster/groups/1", "second group without parent");
	bad_section(
		"{" KINDS "," LINKS
		",\"groups\":[{\"name\":\"a\",\"up\":\"m\"}],\"nodes\":[{\"kind\":\"cpu\",\"group\":\"a\"}]}",
		"/cluster/groups/0/up", "no link 'm'");
	bad_section("{\"kinds\":[{\"name\":\"cpu\",\"threads\":0}],\"groups\":[],\"nodes\":[]}",
		    "/cluster/kinds/0/threads", "below");
	bad_section("{\"kinds\":[{\"name\":\"cpu\",\"without\":[3]}],\"groups\":[],\"nodes\":[]}",
		    "/cluster/kinds/0/without/0", "");
}

/* Sets *at to a value that no cluster may have, checks the cluster, and puts it back. */
static void bad_index(struct dlb_cluster *c, int *at, int value, const char *where, const char *what)
{
	struct dlb_error err = { .status = 0 };
	const int before = *at;

	*at = value;
	assert(IS(dlb_cluster_check(c, &err), ==, -1) && HAS(err.where, where) && HAS(err.what, what));
	*at = before;
}

static void bad_number(struct dlb_cluster *c, double *at, double value, const char *where)
{
	struct dlb_error err = { .status = 0 };
	const double before = *at;

	*at = value;
	assert(IS(dlb_cluster_check(c, &err), ==, -1) && HAS(err.where, where));
	*at = before;
}

/* Indices before the first and beyond the last one, and numbers out of range. */
static void test_check(void)
{
	struct dlb_error err = { .status = 0 };
	struct dlb_cluster c;

	parse("2(host cpu:2)", &c);
	dlb_cluster_add_memory(&c, 0, "dram", "dram", 1e9);
	assert(!dlb_cluster_check(&c, &err));
	for (int beyond = 0; beyond < 2; beyond++) {
		bad_index(&c, &c.group[1].parent, beyond ? c.n_groups : -2, "/cluster/groups/1/parent",
			  "no such group");
		bad_index(&c, &c.group[1].inside, beyond ? c.n_links : -2, "/cluster/groups/1/inside",
			  "no such link");
		bad_index(&c, &c.group[1].up, beyond ? c.n_links : -2, "/cluster/groups/1/up",
			  "no such link");
		bad_index(&c, &c.node[1].kind, beyond ? c.n_kinds : -1, "/cluster/nodes/1/kind",
			  "no such kind");
		bad_index(&c, &c.node[1].group, beyond ? c.n_groups : -1, "/cluster/nodes/1/group",
			  "no such group");
		bad_index(&c, &c.memory[0].group, beyond ? c.n_groups : -1, "/cluster/memories/0",
			  "out of range");
		bad_number(&c, &c.node[1].speed, beyond ? INFINITY : 0, "/cluster/nodes/1/speed");
		bad_number(&c, &c.node[1].memory_bytes, beyond ? INFINITY : -1,
			   "/cluster/nodes/1/memory_bytes");
		bad_number(&c, &c.memory[0].bytes, beyond ? NAN : -1, "/cluster/memories/0");
		bad_number(&c, &c.memory[0].bandwidth_Bps, beyond ? NAN : -1, "/cluster/memories/0");
		bad_number(&c, &c.kind[0].peak_flops, beyond ? NAN : -1, "/cluster/kinds/0");
		bad_number(&c, &c.kind[0].bandwidth_Bps, beyond ? NAN : -1, "/cluster/kinds/0");
		bad_number(&c, &c.kind[0].memory_bytes, beyond ? NAN : -1, "/cluster/kinds/0");
		bad_number(&c, &c.link[0].latency_s, beyond ? INFINITY : -1, "/cluster/links/0");
		bad_number(&c, &c.link[0].bandwidth_Bps, beyond ? INFINITY : 0, "/cluster/links/0");
	}
	bad_index(&c, &c.kind[0].threads, 0, "/cluster/kinds/0/threads", "at least one thread");
	bad_index(&c, &c.group[1].parent, 1, "/cluster/groups/1/parent", "no such group");
	bad_index(&c, &c.group[1].parent, -1, "/cluster/groups/1", "a second group without parent");
	bad_index(&c, &c.group[0].parent, 1, "/cluster/groups/0/parent", "form a cycle");
	assert(!dlb_cluster_check(&c, &err));
	dlb_cluster_release(&c);
}

/* Two packages with two NUMA domains of two cores each, and a memory without cores, in hwloc's text
 * format. */
static void test_topology(void)
{
	struct dlb_error err = { .status = 0 };
	struct dlb_cluster c;
	int cxl = 0;

	if (dlb_cluster_discover(&c, NULL, 1, &err)) {
		dlb_error_print(stderr, "discover", -1, &err);
		abort();
	}
	assert(IS(c.n_nodes, >=, 1) && IS(c.n_memories, >=, 1) && IS(c.n_groups, >=, 1));
	round_trip(&c);
	printf("this host: %d nodes, %d groups, %d memories\n", c.n_nodes, c.n_groups, c.n_memories);
	dlb_cluster_release(&c);

	const char *file = "tests/data/topology-2x2-cxl.xml";
	if (access(file, R_OK)) {
		printf("skip: no %s from here\n", file);
		return;
	}
	if (dlb_cluster_discover(&c, file, 2, &err)) {
		dlb_error_print(stderr, file, -1, &err);
		abort();
	}
	for (int i = 0; i < c.n_memories; i++)
		cxl += !strcmp(c.memory[i].cls, "cxl");
	assert(IS(c.n_nodes, ==, 4) && IS(c.n_groups, ==, 7) && IS(cxl, ==, 1) &&
	       SAME(c.kind[0].name, "cpu/2") && SAME(c.group[0].name, "twosocket"));
	/* memory is that of the smallest group which holds all cores near it: of no core, the host's */
	for (int i = 0; i < c.n_memories; i++) {
		const struct dlb_group *g = &c.group[c.memory[i].group];

		if (!strcmp(c.memory[i].cls, "cxl"))
			assert(IS(g->parent, ==, -1));
		else
			assert(HAS(g->name, ".numa") && IS(c.group[g->parent].parent, >=, 0));
	}
	/* the 4 nodes share 4 x 8 GiB of DRAM; neither the memory without cores nor caches count */
	for (int i = 0; i < c.n_nodes; i++)
		assert(IS(c.node[i].memory_bytes, ==, 8589934592.0));
	round_trip(&c);
	dlb_cluster_release(&c);
	assert(IS(dlb_cluster_discover(&c, "/dev/null", 1, &err), ==, -1) &&
	       HAS(err.what, "is not a file but a device"));
	assert(IS(dlb_cluster_discover(&c, "no/such/file.xml", 1, &err), ==, -1) &&
	       HAS(err.what, "cannot open"));
}

/* The kernel's memory policy of the page at p; NULL: unknown. */
static const char *policy_at(const void *p, char *line, int size)
{
	FILE *f = fopen("/proc/self/numa_maps", "r");
	char start[32];
	const char *found = NULL;

	snprintf(start, sizeof start, "%lx ", (unsigned long)p);
	while (f && !found && fgets(line, size, f))
		found = !strncmp(line, start, strlen(start)) ? line + strlen(start) : NULL;
	if (f)
		fclose(f);
	return found;
}

/* Several nodes share a memory; and a bound area has its policy, its neighbour another. */
static void test_memories(void)
{
	struct dlb_error err = { .status = 0 };
	struct dlb_cluster c;
	struct dlb_memory_share s;
	struct dlb_binder *b;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char line[4096], *p;
	const char *policy;
	int m;

	parse("cpu:2", &c);
	m = dlb_cluster_add_memory(&c, 0, "far", "cxl", 8e9);
	assert(isinf(dlb_cluster_node_memory(&c, 0)) || c.node[0].memory_bytes > 0 ||
	       c.kind[0].memory_bytes > 0);
	c.memory[m].bandwidth_Bps = 6e9;
	c.memory[m].latency_s = 1e-7;
	c.memory[m].os_index = 0;
	c.memory[m].users = 2;
	for (int i = 0; i < 2; i++) {
		c.node[i].memory[0] = m;
		c.node[i].n_memories = 1;
	}
	s = dlb_cluster_memory_share(&c, m);
	assert(IS(s.bytes, ==, 4e9) && IS(s.bandwidth_Bps, ==, 3e9) && IS(s.latency_s, ==, 1e-7));
	c.memory[m].link = dlb_cluster_add_link(&c, "lane", "cxl");
	c.link[c.memory[m].link].bandwidth_Bps = 2e9;
	c.link[c.memory[m].link].latency_s = 3e-7;
	s = dlb_cluster_memory_share(&c, m);
	assert(IS(s.bandwidth_Bps, ==, 1e9) && IS(fabs(s.latency_s - 4e-7), <, 1e-15));
	assert(IS(dlb_cluster_node_memory(&c, 1), ==, 4e9));
	p = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert(IS(p, !=, MAP_FAILED));
	memset(p, 1, 4 * page);
	if (dlb_binder_new(&b, &c, 0, &err)) {
		assert(HAS(err.what, "cannot bind"));	/* the system does not permit it */
	} else {
		assert(IS(dlb_binder_bind(b, 0, p + page, 2 * page, &err), ==, 0) &&
		       IS(dlb_binder_bind(b, 0, p, 0, &err), ==, 0));
		policy = policy_at(p + page, line, sizeof line);
		assert(!policy || strncmp(policy, "default", 7));
		assert(IS(p[page], ==, 1) && IS(p[3 * page - 1], ==, 1));
		dlb_binder_free(b);
		c.memory[m].os_index = 77;
		assert(IS(dlb_binder_new(&b, &c, 0, &err), ==, -1) && HAS(err.what, "NUMA node 77"));
		c.memory[m].os_index = -1;
		assert(IS(dlb_binder_new(&b, &c, 0, &err), ==, -1) && HAS(err.what, "no os_index"));
	}
	munmap(p, 4 * page);
	dlb_cluster_release(&c);
}

int main(void)
{
	test_words();
	test_given_kinds();
	test_random_strings();
	test_hosts();
	test_round_trips();
	test_bad_sections();
	test_check();
	test_topology();
	test_memories();
	puts("cluster: synthetic strings, routes, hwloc, section both ways, memories shared and bound, bad "
	     "input");
	return 0;
}
