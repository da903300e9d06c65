/* Who shares a link: lanes of routes, transfers that are simulated, and prices of sums, in clusters made by hand whose links
 * carry 1e6 bytes/s at no latency, so that a message of 1e6 bytes takes a second alone. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/allreduce.h"
#include "cost/cost.h"
#include "plan/program.h"

#define LINK(name, more) "{\"name\":\"" name "\",\"latency_s\":0,\"bandwidth_Bps\":1e6" more "}"
#define IN(group) "{\"kind\":\"cpu\",\"group\":\"" group "\"}"
#define CLUSTER(links, groups, nodes) "{\"kinds\":[{\"name\":\"cpu\"}],\"links\":[" links "],\"groups\":[" groups "],\"nodes\":[" nodes "]}"
#define HOST(name) "{\"name\":\"" name "\",\"parent\":\"r\",\"up\":\"" name "\"}"
#define FOUR IN("g") "," IN("g") "," IN("g") "," IN("g")

static const char
	*const hosts = CLUSTER(LINK("a", "") "," LINK("b", "") "," LINK("c", "") "," LINK("d", ""),
		"{\"name\":\"r\"}," HOST("a") "," HOST("b") "," HOST("c") "," HOST("d"), IN("a") "," IN("b") "," IN("c") "," IN("d")),
	*const two_hosts = CLUSTER(LINK("a", "") "," LINK("b", ""), "{\"name\":\"r\"}," HOST("a") "," HOST("b"),
		IN("a") "," IN("a") "," IN("b") "," IN("b")),
	*const taking_turns = CLUSTER(LINK("a", ",\"duplex\":false") "," LINK("b", ",\"duplex\":false"), "{\"name\":\"r\"}," HOST("a") "," HOST("b"),
		IN("a") "," IN("a") "," IN("b") "," IN("b")),
	*const a_switch = CLUSTER(LINK("l", ""), "{\"name\":\"g\",\"inside\":\"l\"}", FOUR),
	*const bus = CLUSTER(LINK("l", ",\"duplex\":false"), "{\"name\":\"g\",\"inside\":\"l\"}", FOUR),
	*const memory = CLUSTER(LINK("l", ",\"overlap\":false"), "{\"name\":\"g\",\"inside\":\"l\"}", FOUR),
	*const memory_of_two_ways = CLUSTER(LINK("l", ",\"overlap\":false,\"duplex\":true"), "{\"name\":\"g\",\"inside\":\"l\"}", FOUR),
	/* the trunk between two groups; and one bus that is the way out of both */
	*const trunk = CLUSTER(LINK("l", ""), "{\"name\":\"g\",\"inside\":\"l\"},{\"name\":\"a\",\"parent\":\"g\"},{\"name\":\"b\",\"parent\":\"g\"}",
		IN("a") "," IN("a") "," IN("b") "," IN("b")),
	*const one_bus = CLUSTER(LINK("l", ",\"duplex\":false"), "{\"name\":\"g\"},{\"name\":\"a\",\"parent\":\"g\",\"up\":\"l\"},"
		"{\"name\":\"b\",\"parent\":\"g\",\"up\":\"l\"}", IN("a") "," IN("a") "," IN("b") "," IN("b"));

static void read_cluster(const char *section, struct dlb_cluster *c)
{
	struct dlb_error err = { .status = 0 };
	struct dlb_doc d;
	char *text = dlb_xprintf("{\"dlb\":\"1.0\",\"cluster\":%s}", section);
	if (dlb_doc_parse(&d, text, strlen(text), "f.json", &err) || dlb_cluster_read(&d, c, &err)) {
		dlb_error_print(stderr, section, -1, &err);
		abort();
	}
	dlb_doc_release(&d);
	free(text);
}

static int tensor(struct dlb_graph *g, const char *what, int i, enum dlb_tensor_kind kind, double bytes)
{
	char name[32];
	snprintf(name, sizeof name, "%s%d", what, i);
	int t = dlb_graph_add_tensor(g, name, kind);
	g->tensor[t].size_add = bytes;
	return t;
}

static void op(struct dlb_graph *g, const char *type, int i, int in, int out)
{
	char name[32];
	snprintf(name, sizeof name, "%s%d", type, i);
	dlb_graph_add_op(g, name, type, "test", DLB_FORWARD, &in, 1, &out, 1, NULL, 0);
}

enum { MOST = 4, EVEN = 1000000 };
struct message { int from, to; double bytes; };

/* Seconds until n messages have arrived that are all sent at once: each an op's output that an op elsewhere reads; ops take
 * no time. */
static double simulated(const char *section, const struct message *m, int n)
{
	struct dlb_graph g;
	struct dlb_cluster cl;
	struct dlb_cost c;
	struct dlb_plan p;
	struct dlb_program program;
	struct dlb_timeline t;
	struct dlb_error err = { .status = 0 };
	dlb_graph_init(&g);
	g.batch = 1;
	g.input = dlb_arena_array(&g.arena, 1, sizeof *g.input);
	g.output = dlb_arena_array(&g.arena, MOST, sizeof *g.output);
	g.input[g.n_inputs++] = tensor(&g, "x", 0, DLB_T_INPUT, 4);
	for (int i = 0; i < n; i++) {
		int sent = tensor(&g, "sent", i, DLB_T_ACTIVATION, m[i].bytes);
		op(&g, "Make", i, g.input[0], sent);
		g.output[g.n_outputs++] = tensor(&g, "read", i, DLB_T_ACTIVATION, 4);
		op(&g, "Read", i, sent, g.output[i]);
	}
	read_cluster(section, &cl);
	int bad = dlb_graph_index(&g) || dlb_cost_fit(&c, &g, NULL, &cl, &err);
	assert(!bad);
	memset(c.op_s, 0, (size_t)g.n_ops * (size_t)c.n_batches * (size_t)cl.n_kinds * sizeof *c.op_s);
	dlb_plan_init(&p, g.n_ops, cl.n_nodes);
	p.graph = &g;
	p.batch = 1;
	for (int i = 0; i < n; i++) {
		p.placement[2 * i] = m[i].from;
		p.placement[2 * i + 1] = m[i].to;
	}
	dlb_schedule_order(&p, &c, dlb_schedule_find("1f1b"), NULL);
	bad = dlb_program_compile(&p, &c, 1, 0, &program, &err) || dlb_program_verify(&program, &c, &err) ||
		dlb_program_simulate(&program, &c, NULL, 0, 0, false, &t, &err);
	if (bad) {
		dlb_error_print(stderr, section, -1, &err);
		abort();
	}
	double s = t.step_s;
	dlb_timeline_release(&t, cl.n_nodes);
	dlb_program_release(&program);
	dlb_plan_release(&p);
	dlb_cost_release(&c);
	dlb_cluster_release(&cl);
	dlb_graph_release(&g);
	return s;
}

static void expect(const char *section, const char *what, double got, double want)
{
	if (fabs(got - want) <= 1e-9 * want)
		return;
	fprintf(stderr, "%s: %s: %g s, not %g s\n", section, what, got, want);
	abort();
}

static void test_messages(void)
{
	static const struct { const char *what; int n; struct message m[MOST]; double hosts, a_switch, bus, memory, memory_of_two_ways; } rows[] = {
		{ "one", 1, { { 0, 1, EVEN } }, 1, 1, 1, 1, 1 },
		{ "opposite ways", 2, { { 0, 1, EVEN }, { 1, 0, EVEN } }, 1, 1, 2, 2, 1 },
		{ "the same way", 2, { { 0, 1, EVEN }, { 0, 1, EVEN } }, 2, 2, 2, 2, 2 },
		{ "from one", 2, { { 0, 1, EVEN }, { 0, 2, EVEN } }, 2, 2, 2, 2, 2 },
		{ "to one", 2, { { 0, 1, EVEN }, { 2, 1, EVEN } }, 2, 2, 2, 2, 2 },
		{ "through one", 2, { { 0, 1, EVEN }, { 1, 2, EVEN } }, 1, 1, 2, 2, 1 },
		{ "apart", 2, { { 0, 1, EVEN }, { 2, 3, EVEN } }, 1, 1, 2, 2, 1 },
		{ "around", 4, { { 0, 1, EVEN }, { 1, 2, EVEN }, { 2, 3, EVEN }, { 3, 0, EVEN } }, 1, 1, 4, 4, 1 },
		/* the small one has half of its lane until it is through: .5 s; then the other has it all */
		{ "unequal, the same way", 2, { { 0, 1, EVEN }, { 0, 2, EVEN / 4 } }, 1.25, 1.25, 1.25, 1.25, 1.25 },
		{ "unequal, opposite ways", 2, { { 0, 1, EVEN }, { 1, 0, EVEN / 4 } }, 1, 1, 1.25, 1.25, 1 },
	};
	for (int i = 0; i < DLB_LEN(rows); i++) {
		expect(hosts, rows[i].what, simulated(hosts, rows[i].m, rows[i].n), rows[i].hosts);
		expect(a_switch, rows[i].what, simulated(a_switch, rows[i].m, rows[i].n), rows[i].a_switch);
		expect(bus, rows[i].what, simulated(bus, rows[i].m, rows[i].n), rows[i].bus);
		expect(memory, rows[i].what, simulated(memory, rows[i].m, rows[i].n), rows[i].memory);
		expect(memory_of_two_ways, rows[i].what, simulated(memory_of_two_ways, rows[i].m, rows[i].n), rows[i].memory_of_two_ways);
	}
}

/* Nodes 0 and 1 here, 2 and 3 there. */
static void test_between_groups(void)
{
	static const struct { const char *what; int n; struct message m[MOST]; double duplex, turns; } rows[] = {
		{ "one", 1, { { 0, 2, EVEN } }, 1, 1 },
		{ "opposite ways", 2, { { 0, 2, EVEN }, { 3, 1, EVEN } }, 1, 2 },
		{ "the same way", 2, { { 0, 2, EVEN }, { 1, 3, EVEN } }, 2, 2 },
		{ "two each way", 4, { { 0, 2, EVEN }, { 1, 3, EVEN }, { 2, 0, EVEN }, { 3, 1, EVEN } }, 2, 4 },
	};
	for (int i = 0; i < DLB_LEN(rows); i++) {
		expect(two_hosts, rows[i].what, simulated(two_hosts, rows[i].m, rows[i].n), rows[i].duplex);
		expect(trunk, rows[i].what, simulated(trunk, rows[i].m, rows[i].n), rows[i].duplex);
		expect(taking_turns, rows[i].what, simulated(taking_turns, rows[i].m, rows[i].n), rows[i].turns);
		expect(one_bus, rows[i].what, simulated(one_bus, rows[i].m, rows[i].n), rows[i].turns);
	}
}

/* A message alone takes what dlb_cluster_transfer_s says, over whatever links; lanes are of the route's links, none twice. */
static void test_lanes(void)
{
	static const char *const *const all[] = { &hosts, &two_hosts, &taking_turns, &a_switch, &bus, &trunk, &one_bus };
	for (int i = 0; i < DLB_LEN(all); i++) {
		struct dlb_cluster c;
		read_cluster(*all[i], &c);
		for (int a = 0; a < 4; a++) {
			for (int b = 0; b < 4; b++) {
				struct dlb_lane lane[DLB_MAX_ROUTE];
				int link[DLB_MAX_ROUTE], n_links = dlb_cluster_route(&c, a, b, link), n = dlb_cluster_lanes(&c, a, b, lane);
				for (int k = 0; k < n; k++) {
					int on = 0;
					for (int j = 0; j < n_links; j++)
						on += link[j] == lane[k].link;
					for (int j = 0; j < k; j++)
						assert(lane[j].id != lane[k].id);
					assert(on && lane[k].id >= 0 && lane[k].id < dlb_cluster_n_lanes(&c));
				}
				assert(n || !n_links);
				if (a != b)
					expect(*all[i], "alone", simulated(*all[i], &(struct message){ a, b, EVEN }, 1), dlb_cluster_transfer_s(&c, EVEN, a, b));
			}
		}
		dlb_cluster_release(&c);
	}
}

/* Rings of 4 (1 - 1/4) 2 times the bytes each; a bus carries all that, four ranks' in turn; adding is free. */
static void test_sums(void)
{
	static const struct { const char *const *section; double ring_s; } rows[] = {
		{ &hosts, 1.5 }, { &a_switch, 1.5 }, { &bus, 6 }, { &memory, 1.5 }, { &two_hosts, 1.5 }, { &taking_turns, 3 }, { &one_bus, 3 },
	};
	static const int each[] = { 0, -1, -1, -1, 1, -1, -1, -1, 2, -1, -1, -1, 3, -1, -1, -1 };
	for (int i = 0; i < DLB_LEN(rows); i++) {
		struct dlb_cluster cl;
		struct dlb_plan p;
		read_cluster(*rows[i].section, &cl);
		struct dlb_cost c = { .cluster = &cl };
		dlb_plan_init(&p, 0, 4);
		dlb_plan_set_replicas(&p, 4, each);
		dlb_sharing_init(&p.sharing);
		expect(*rows[i].section, "ring", dlb_plan_sum_s(&p, &c, dlb_allreduce_find("ring"), 0, EVEN / 4, 4), rows[i].ring_s);
		dlb_plan_release(&p);
		dlb_cluster_release(&cl);
	}
}

int main(void)
{
	test_messages();
	test_between_groups();
	test_lanes();
	test_sums();
	puts("links: lanes, messages both ways and one way, rings");
	return 0;
}
