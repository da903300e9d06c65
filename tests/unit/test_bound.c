/* Lower bounds of a step, on random training graphs and random times:
 *   the longest chain of ops, with the micro-batches of one of them, against all chains one by one;
 *   the load of two nodes, against the best division of fractions of groups, with and without memory limits;
 *   the bound of the sums of gradients, with two directions that several parts share, against their sums. */
#include "check.h"
#include "place_cases.h"
#include "place/bound.h"
#include "plan/sharing.h"
#include "plan/sums.h"

enum { NODES = 24, GROUPS = 9 };

struct chains {
	const struct dlb_problem *p;
	double *first, *last; /* [op] seconds of the first and the last micro-batch */
	double best;
};

static double least_s(const struct dlb_problem *p, int op, double n)
{
	double s = INFINITY;

	for (int d = 0; d < p->cluster->n_nodes; d++)
		s = fmin(s, dlb_cost_op_s(p->cost, op, d, n) * (p->kappa ? p->kappa[d] : 1));
	return s;
}

static bool reads(const struct dlb_graph *g, int op, int from)
{
	for (int k = 0; k < g->op[op].n_in; k++) {
		const int t = g->op[op].in[k];

		if (g->tensor[t].producer == from && g->tensor[t].kind != DLB_T_WEIGHT)
			return true;
	}
	return false;
}

/* Continues a chain behind op: `s` seconds so far, all: one op of it has run all its micro-batches. */
static void follow(struct chains *c, int op, double s, bool all)
{
	const struct dlb_problem *p = c->p;
	const int M = p->micro_batches, n_large = p->batch % M ? (int)(p->batch % M) : M;
	const bool update = p->graph->op[op].phase == DLB_UPDATE;
	double now[2] = { s + c->last[op], -1 };

	if (!all) {
		now[0] = s + (update ? c->first[op] : n_large * c->first[op] + (M - n_large) * c->last[op]);
		now[1] = s + c->first[op];
	}
	c->best = fmax(c->best, now[0]);
	for (int i = op + 1; i < p->graph->n_ops; i++) {
		if (!reads(p->graph, i, op))
			continue;
		follow(c, i, now[0], true);
		if (!all)
			follow(c, i, now[1], false);
	}
}

static int n_by_chain;

static void test_chain(uint64_t seed)
{
	struct dag_options o = { .seed = seed,
				 .n_forward = 3 + (int)(seed % 4),
				 .training = seed % 3 != 0,
				 .chain = seed % 2,
				 .colocate = 0,
				 .no_kernel = .2,
				 .cluster = "cpu:12 cpu/2:8*2 cpu:4*0.5",
				 .batch = 13 };
	double kappa[NODES];
	struct dag d;
	struct dlb_problem p;
	struct dlb_error err;

	dag_init(&d, &o);
	for (int i = 0; i < NODES; i++)
		kappa[i] = seed % 5 && i % 7 == 3 ? 0.75 : 1.25;
	for (int i = 0; i < d.g.n_ops; i++) /* updates take time for the samples of one micro-batch too */
		for (int k = 0; d.g.op[i].phase == DLB_UPDATE && k < d.cl.n_kinds; k++)
			for (int b = 0; b < d.c.n_batches; b++)
				d.c.op_s[(k * d.c.n_ops + i) * d.c.n_batches + b] += d.c.batch[b] * 1e-6;
	problem(&p, &d, 1 + (int)(seed % 6), "1f1b", NULL, seed);
	dlb_problem_release(&p);
	p.kappa = kappa;
	if (dlb_problem_init(&p, &err))
		die("problem", seed, &err);
	const int M = p.micro_batches;
	struct chains c = { .p = &p,
			    .first = calloc((size_t)d.g.n_ops, sizeof(double)),
			    .last = calloc((size_t)d.g.n_ops, sizeof(double)) };
	for (int i = 0; i < d.g.n_ops; i++) {
		c.first[i] = least_s(&p, i, (double)((13 + M - 1) / M));
		c.last[i] = d.g.op[i].phase == DLB_UPDATE ? c.first[i] : least_s(&p, i, (double)(13 / M));
	}
	for (int i = 0; i < d.g.n_ops; i++)
		follow(&c, i, 0, false);
	const double bound = dlb_lower_bound_s(&p);
	/* the load of 24 nodes is mostly less */
	assert(IS(bound, >=, c.best * (1 - 1e-8)));
	n_by_chain += bound <= c.best;
	if (c.best > bound * (1 + 1e-8))
		die("chain", seed, &err);
	p.schedule = dlb_schedule_find("async"); /* steps overlap */
	assert(IS(dlb_lower_bound_s(&p), <, bound * (1 + 1e-12)));
	free(c.first);
	free(c.last);
	dlb_problem_release(&p);
	dag_release(&d);
}

/* The least largest load of two nodes that take fractions of groups: those that node 0 does best, in
 * comparison, come first, and one group is divided. */
static double best_of_two(double (*t)[2], int n)
{
	int order[GROUPS];
	double all = 0, load = 0;

	for (int i = 0; i < n; i++) {
		int k = i;

		for (; k > 0 && t[order[k - 1]][0] * t[i][1] > t[i][0] * t[order[k - 1]][1]; k--)
			order[k] = order[k - 1];
		order[k] = i;
		all += t[i][1];
	}
	for (int i = 0; i < n; i++) {
		const double a = t[order[i]][0], b = t[order[i]][1];

		if (load + a >= all - b) /* load + x a = all - x b */
			return load + (all - load) / (a + b) * a;
		load += a;
		all -= b;
	}
	return load;
}

static void test_load(uint64_t seed)
{
	double t[GROUPS][2], bytes[GROUPS], room[2] = { 1e9, 1e9 }, heaviest = 0, sum = 0, prices[2];
	struct dlb_rng r;
	const int n = 1 + (int)(seed % GROUPS);

	dlb_rng_init(&r, seed);
	for (int i = 0; i < n; i++) {
		bytes[i] = 1 + (double)dlb_rng_below(&r, 100);
		for (int d = 0; d < 2; d++)
			t[i][d] = 0.1 + dlb_rng_uniform(&r);
		heaviest = fmax(heaviest, fmin(t[i][0], t[i][1]));
		sum += bytes[i];
	}
	const double best = fmax(best_of_two(t, n), heaviest),
		     bound = dlb_load_bound_s(t[0], bytes, room, n, 2);
	assert(IS(bound, <=, best * (1 + 1e-9)) && IS(bound, >=, best * 0.995));
	/* prices certify the bound */
	const double by_prices = dlb_load_prices(t[0], n, (const int[]){ 1, 1 }, 2, prices);
	double certified = 0;
	for (int i = 0; i < n; i++)
		certified += fmin(prices[0] * t[i][0], prices[1] * t[i][1]);
	assert(IS(fabs(prices[0] + prices[1] - 1), <, 1e-9) && IS(fabs(certified - by_prices), <, 1e-9) &&
	       IS(by_prices, <=, best * (1 + 1e-9)));
	/* no room on node 0: node 1 does all; room for a half of all on either: a half at least */
	room[0] = 0.5;
	double alone = 0;
	for (int i = 0; i < n; i++)
		alone += t[i][1];
	const double one = dlb_load_bound_s(t[0], bytes, room, n, 2);
	assert(IS(fabs(one - alone), <, alone * 0.01));
	room[0] = sum * 0.25;
	const double less = dlb_load_bound_s(t[0], bytes, room, n, 2);
	assert(IS(less, >=, bound * (1 - 1e-9)) && IS(less, <=, alone * (1 + 1e-9)));
}

/* Equal nodes count as one class; four nodes of two kinds share what two nodes would take twice as long for. */
static void test_classes(uint64_t seed)
{
	double two[GROUPS][2], four[GROUPS][4], three[GROUPS][3], bytes[GROUPS] = { 0 }, heaviest = 0;
	const double room[4] = { 1, 1, 1, 1 };
	struct dlb_rng r;

	dlb_rng_init(&r, seed);
	for (int i = 0; i < GROUPS; i++) {
		for (int d = 0; d < 2; d++)
			two[i][d] = 0.1 + dlb_rng_uniform(&r);
		heaviest = fmax(heaviest, fmin(two[i][0], two[i][1]));
		for (int d = 0; d < 4; d++)
			four[i][d] = two[i][d == 1 || d == 2];
		memcpy(three[i], (const double[]){ two[i][0], INFINITY, two[i][1] }, sizeof *three);
	}
	const double s = dlb_load_bound_s(two[0], bytes, room, GROUPS, 2);
	assert(IS(fabs(dlb_load_bound_s(four[0], bytes, room, GROUPS, 4) - fmax(s / 2, heaviest)), <,
		  s * 0.005) &&
	       IS(fabs(dlb_load_bound_s(three[0], bytes, room, GROUPS, 3) - s), <, s * 0.005));
}

/* Two parts on either side of one link: what they sum over it adds up. */
static void test_sums(const char *algorithm)
{
	const struct dag_options o = { .seed = 4,
				       .n_forward = 8,
				       .training = true,
				       .chain = true,
				       .colocate = 1,
				       .cluster = "2(host cpu:2) link=shm:1e-6,1e11 link=rack:1e-6,1e8" };
	struct dag d;
	struct dlb_plan plan;
	int team[2][2] = { { 0, 1 }, { 2, 3 } }, *replica[2] = { team[0], team[1] };
	double bound[3];

	dag_init(&d, &o);
	dlb_plan_init(&plan, d.g.n_ops, 2);
	plan.graph = &d.g;
	plan.n_nodes = 2;
	plan.n_replicas = 2;
	plan.replica = replica;
	dlb_sharing_init(&plan.sharing);
	plan.sharing.allreduce = algorithm;
	int *at = calloc((size_t)d.g.n_ops, sizeof *at), half = 0;
	for (int way = 0; way < 3; way++) {
		for (int i = 0; i < d.g.n_ops; i++)
			at[i] = way < 2 ? way : d.g.op[i].phase == DLB_UPDATE ? half++ % 2 : 0;
		bound[way] = dlb_plan_sums_bound_s(&plan, &d.c, at);
	}
	/* nodes 0 and 1 send over the same link: wherever the gradients are, the link takes as long,
	 * but for the latency of messages */
	assert(IS(bound[0], >, 0) && IS(half, >, 1) && IS(fabs(bound[1] / bound[0] - 1), <, 1e-6) &&
	       IS(fabs(bound[2] / bound[0] - 1), <, 0.03));
	free(at);
	dlb_plan_release(&plan);
	dag_release(&d);
}

int main(void)
{
	for (uint64_t seed = 0; seed < 60; seed++)
		test_chain(seed);
	assert(IS(n_by_chain, >, 40));
	for (uint64_t seed = 0; seed < 40; seed++) {
		test_load(seed);
		test_classes(seed);
	}
	test_sums("ring");
	test_sums("doubling");
	printf("%d bounds by chains\n", n_by_chain);
	return 0;
}
