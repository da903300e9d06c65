/* Which sums over the shards of a split are added in pairs, on both sides of the bound that arithmetic gives: a
 * sum of four parts on four hosts, of two parts each of two shards, and in a backward phase whose nodes are busy.
 * With the seconds t of a part on a link, its latency l and a of adding one tensor:
 *
 *     one op  l + 3 t + 5 a		in pairs  2 (l + t + 3 a) + wait */
#include "fork.h"
#include "cost/pair_sums.h"
#include "graph/split.h"

enum { MOST_PARTS = 8 };
static const double part_bytes = 1e6, t = 1e-3, l = 1e-4; /* 1e9 bytes a second */
static const char hosts[] = "cpu:1 host cpu:1 host cpu:1 host cpu:1 host cpu:1 link=rack:1e-4,1e9";

struct sum {
	struct dlb_graph g;
	struct dlb_cluster cl;
	struct dlb_cost c;
	int sum, other[MOST_PARTS];
};

static int add(struct dlb_graph *g, enum dlb_phase phase, const char *type, const char *what, int i, int of,
	       const int *in, int n_in, double bytes)
{
	char name[32];

	snprintf(name, sizeof name, i < 0 ? "%s" : "%s@%d", what, i);
	const int out = fork_tensor(g, "a", g->n_tensors, DLB_T_ACTIVATION, bytes);
	const int op = dlb_graph_add_op(g, phase,
					&(struct dlb_op_spec){ .name = name,
							       .type = type,
							       .in = in,
							       .n_in = n_in,
							       .out = &out,
							       .n_out = 1 });
	g->op[op].of = of;
	return op;
}

/* A sum of n parts of `bytes`, of `shards` shards of an op "fc": of forward ops or, else, of one of two
 * backward ops that each shard has. */
static void start(struct sum *s, enum dlb_phase phase, int n, int shards, double bytes, const char *type,
		  const char *cluster)
{
	struct dlb_graph *g = &s->g;
	struct dlb_error err = { .what = "" };
	int part[MOST_PARTS], forward[MOST_PARTS];

	memset(s, 0, sizeof *s);
	dlb_graph_init(g);
	g->batch = FORK_BATCH;
	const int x = fork_tensor(g, "x", 0, DLB_T_INPUT, 16);
	g->input = dlb_arena_array(&g->arena, 1, sizeof(int));
	g->input[g->n_inputs++] = x;
	for (int i = 0; i < n; i++)
		forward[i] = add(g, DLB_FORWARD, "Gemm", i < shards ? "fc" : "fc@9", i % shards, -1, &x, 1,
				 bytes);
	for (int i = 0; i < n; i++) {
		part[i] = g->op[forward[i]].out[0];
		if (phase == DLB_FORWARD)
			continue;
		const int op = add(g, phase, "MatMul", "back", i, forward[i], &part[i], 1, bytes);
		s->other[i] = add(g, phase, "MatMul", "other", i, forward[i], &part[i], 1, 16);
		part[i] = g->op[op].out[0];
	}
	s->sum = add(g, phase, type, "sum", -1, -1, part, n, bytes);
	g->output = dlb_arena_array(&g->arena, 1, sizeof(int));
	g->output[g->n_outputs++] = g->op[s->sum].out[0];
	g->was_split = dlb_arena_array(&g->arena, 2, sizeof *g->was_split);
	g->was_split[0] = (struct dlb_was_split){ .op = "fc", .axis = "input", .parts = shards };
	g->was_split[1] = (struct dlb_was_split){ .op = "fc@9", .axis = "input", .parts = shards };
	g->n_was_split = n > shards ? 2 : 1;
	fork_must(dlb_graph_index(g), &err);
	fork_must(dlb_cluster_parse(cluster, &s->cl, &err) || dlb_cost_fit(&s->c, g, NULL, &s->cl, &err),
		  &err);
	for (int i = 0; i < g->n_ops; i++)
		fork_time(&s->c, 0, i, 1e-9);
}

static void end(struct sum *s)
{
	dlb_cost_release(&s->c);
	dlb_cluster_release(&s->cl);
	dlb_graph_release(&s->g);
}

/* The number of splits that are marked, if it is the number that says so. */
static int marked(struct sum *s)
{
	const int n = dlb_cost_choose_pairs(&s->c, &s->g);
	int pairs = 0;

	for (int i = 0; i < s->g.n_was_split; i++)
		pairs += s->g.was_split[i].pairs;
	assert(IS(pairs, ==, n));
	return n;
}

/* Four parts: t - l - a - wait against 2 % of one op's seconds. */
static void test_four(void)
{
	for (int way = 0; way < 2; way++) {
		struct sum s;
		/* t - l - a = .02 (l + 3 t + 5 a) */
		const double a = (0.94 * t - 1.02 * l) / 1.1 * (way ? 0.99 : 1.01);

		start(&s, DLB_FORWARD, 4, 4, part_bytes, "Sum", hosts);
		fork_time(&s.c, 0, s.sum, 5 * a);
		assert(IS(marked(&s), ==, way));
		end(&s);
	}
}

/* Five parts: a third step for one of them. l + 4 t + 6 a against 3 (l + t + 3 a). */
static void test_five(void)
{
	for (int way = 0; way < 2; way++) {
		struct sum s;
		/* t - 2 l - 3 a = .02 (l + 4 t + 6 a) */
		const double a = (0.92 * t - 2.02 * l) / 3.12 * (way ? 0.99 : 1.01);

		start(&s, DLB_FORWARD, 5, 5, part_bytes, "Sum", hosts);
		fork_time(&s.c, 0, s.sum, 6 * a);
		assert(IS(marked(&s), ==, way));
		end(&s);
	}
}

/* Backward: the node of a part may be busy with another op, half of the longest of which delays all steps but
 * the last. The longest is that of its own phase and shards alone. */
static void test_wait(void)
{
	for (int way = 0; way < 3; way++) {
		struct sum s;
		const double a = 1e-4, wait = 0.94 * t - 1.02 * l - 1.1 * a;

		start(&s, DLB_BACKWARD, 4, 4, part_bytes, "Sum", hosts);
		fork_time(&s.c, 0, s.sum, 5 * a);
		fork_time(&s.c, 0, s.other[way ? 3 : 0], 2 * wait * (way % 2 ? 0.99 : 1.01));
		if (way == 2) /* of another op: it does not count */
			s.g.op[s.other[3]].of = -1;
		assert(IS(marked(&s), ==, way > 0));
		end(&s);
	}
}

/* Two parts of each of two shards: first each adds its own. l + 2 t + 5 a against 3 a + l + t + 3 a. */
static void test_shards(void)
{
	for (int way = 0; way < 2; way++) {
		struct sum s;
		/* t - a = .02 (l + 2 t + 5 a) */
		const double a = (0.96 * t - 0.02 * l) / 1.1 * (way ? 0.99 : 1.01);

		start(&s, DLB_FORWARD, 4, 2, part_bytes, "Sum", hosts);
		fork_time(&s.c, 0, s.sum, 5 * a);
		assert(IS(marked(&s), ==, 2 * way));
		end(&s);
	}
}

/* Sums that are always added by one op. */
static void test_never(void)
{
	static const struct {
		int n;
		double bytes;
		const char *type, *cluster;
		bool port, whole;
		int marked;
	} rows[] = {
		{ 4, 65536, "Sum", hosts, false, false, 0 }, /* latency dominates */
		{ 4, 65536 * 8, "Sum", hosts, false, false, 1 },
		{ 4, 65535, "Sum", "cpu:1 host cpu:1 host cpu:1 host cpu:1 link=rack:1e-9,1e6", false, false,
		  0 },
		{ 4, 65536, "Sum", "cpu:1 host cpu:1 host cpu:1 host cpu:1 link=rack:1e-9,1e6", false, false,
		  1 },
		{ 4, 1e6, "Max", hosts, false, false, 0 },
		{ 2, 1e6, "Sum", hosts, false, false, 0 }, /* nothing to choose */
		{ 4, 1e6, "Sum", hosts, true, false, 0 },
		{ 4, 1e6, "Sum", hosts, false, true, 0 }, /* a part is of no shard */
		{ 4, 1e6, "Sum", hosts, false, false, 1 },
	};

	for (int i = 0; i < DLB_LEN(rows); i++) {
		struct sum s;

		start(&s, DLB_FORWARD, rows[i].n, rows[i].n, rows[i].bytes, rows[i].type, rows[i].cluster);
		if (rows[i].port)
			s.cl.link_model = DLB_LINKS_PORT;
		if (rows[i].whole)
			s.g.op[s.g.tensor[s.g.op[s.sum].in[1]].producer].name = "whole";
		assert(IS(marked(&s), ==, rows[i].marked));
		end(&s);
	}
}

/* Nodes by the seconds of the whole graph; equal ones as they are. */
static void test_fastest(void)
{
	static const int want[] = { 2, 1, 4, 0, 3 };
	struct sum s;
	struct dlb_arena a = { 0 };

	start(&s, DLB_FORWARD, 4, 4, part_bytes, "Sum", "cpu:1*0.5 cpu:1 cpu:1*2 cpu:1*0.25 cpu:1");
	const int *fastest = dlb_cost_fastest_nodes(&s.c, &a);
	for (int i = 0; i < DLB_LEN(want); i++)
		assert(IS(fastest[i], ==, want[i]));
	dlb_arena_release(&a);
	end(&s);
}

int main(void)
{
	test_four();
	test_five();
	test_wait();
	test_shards();
	test_never();
	test_fastest();
	puts("test_pair_sums: bounds of sums of four and five parts, busy nodes, shards of two parts, what "
	     "is never paired");
	return 0;
}
