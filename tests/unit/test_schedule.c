/* Schedules of simple pipelines: S stages, each with a forward op, an op for the gradient of its input and
 * one for the gradient of its weight, of F, B and W seconds per micro-batch; messages are free. Step times
 * are those of the literature; limits of micro-batches in flight hold; every order gives a program that is
 * verified and simulated. An order that may end where it takes too long does so only then, and is the same
 * otherwise. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cost/cost.h"
#include "graph/order.h"
#include "plan/program.h"
#include "plan/program_verify.h"
#include "plan/schedule.h"
#include "plan/timeline.h"
#include "check.h"

enum { BATCH = 64 };
struct pipeline { struct dlb_graph g; struct dlb_cluster cl; struct dlb_cost c; int stages; };
static int orders, shorter;

static int tensor(struct dlb_graph *g, const char *what, int i, enum dlb_tensor_kind kind, double mul,
		  double add)
{
	char name[64];
	snprintf(name, sizeof name, "%s%d", what, i);
	int t = dlb_graph_add_tensor(g, name, kind);
	g->tensor[t].size_mul = mul;
	g->tensor[t].size_add = add;
	return t;
}

static int op(struct dlb_graph *g, const char *type, int i, enum dlb_phase phase, const int *in, int n_in,
	      int out)
{
	char name[64];
	snprintf(name, sizeof name, "%s%d", type, i);
	return dlb_graph_add_op(g, phase,
				&(struct dlb_op_spec){ .name = name, .type = type, .domain = "test", .in = in,
						       .n_in = n_in, .out = &out, .n_out = out >= 0 });
}

static void build(struct pipeline *x, int stages)
{
	struct dlb_graph *g = &x->g;
	int a[32], w[32], dy = -1;
	dlb_graph_init(g);
	g->batch = BATCH;
	g->training = true;
	g->input = dlb_arena_array(&g->arena, 1, sizeof(int));
	g->input[0] = a[0] = tensor(g, "x", 0, DLB_T_INPUT, 4, 0);
	g->n_inputs = 1;
	g->seed = tensor(g, "seed", 0, DLB_T_SEED, 0, 4);
	for (int i = 0; i < stages; i++) {
		w[i] = tensor(g, "w", i, DLB_T_WEIGHT, 0, 64);
		a[i + 1] = tensor(g, "a", i, DLB_T_ACTIVATION, i == stages - 1 ? 0 : 1024,
				  i == stages - 1 ? 4 : 0);
		op(g, "F", i, DLB_FORWARD, (int[]){ a[i], w[i] }, 2, a[i + 1]);
	}
	g->loss = a[stages];
	dy = g->seed;
	for (int i = stages - 1; i >= 0; i--) {
		int dw = tensor(g, "dw", i, DLB_T_WEIGHT_GRADIENT, 0, 64),
		    dx = tensor(g, "dx", i, DLB_T_GRADIENT, 1024, 0);
		g->tensor[dw].of = w[i];
		int b = op(g, "B", i, DLB_BACKWARD, (int[]){ dy, w[i], a[i + 1] }, 3, dx);
		int gw = op(g, "W", i, DLB_BACKWARD, (int[]){ dy, a[i] }, 2, dw);
		g->op[b].of = g->op[gw].of = i;
		int u = op(g, "U", i, DLB_UPDATE, (int[]){ w[i], dw }, 2, -1);
		g->op[u].of = g->op[u].colocate = i;
		g->tensor[w[i]].home = u;
		dy = dx;
	}
}

/* Stage i's forward takes f[i] seconds for a whole batch of BATCH / M samples with M micro-batches. */
static void pipeline_init(struct pipeline *x, int stages, const char *cluster, double f, double b, double w,
			  int M)
{
	struct dlb_error err;
	x->stages = stages;
	build(x, stages);
	int bad = dlb_graph_index(&x->g) || dlb_cluster_parse(cluster, &x->cl, &err) ||
		  dlb_cost_fit(&x->c, &x->g, NULL, &x->cl, &err);
	assert(!bad);
	for (int i = 0; i < x->cl.n_links; i++) {
		x->cl.link[i].latency_s = 0;
		x->cl.link[i].bandwidth_Bps = 1e30;
	}
	for (int k = 0; k < x->c.n_kinds; k++)
		x->c.accumulate_Bps[k] = 1e30;
	for (int i = 0; i < x->g.n_ops; i++) {
		double s = x->g.op[i].name[0] == 'F' ? f :
			   x->g.op[i].name[0] == 'B' ? b :
			   x->g.op[i].name[0] == 'W' ? w :
						       0;
		for (int k = 0; k < x->c.n_batches; k++)
			x->c.op_s[i * x->c.n_batches + k] = s * (double)x->c.batch[k] * M / BATCH;
	}
}

static void pipeline_release(struct pipeline *x)
{
	dlb_cost_release(&x->c);
	dlb_cluster_release(&x->cl);
	dlb_graph_release(&x->g);
}

/* The most micro-batches that the node has begun and not finished, with all their backward ops. */
static int most_in_flight(const struct pipeline *x, const struct dlb_plan *p, int node, int M)
{
	int *left = calloc((size_t)M, sizeof *left), now = 0, most = 0;
	bool *begun = calloc((size_t)M, sizeof *begun);
	for (int i = 0; i < x->g.n_ops; i++)
		for (int m = 0; m < M; m++)
			left[m] += p->placement[i] == node && x->g.op[i].phase == DLB_BACKWARD;
	for (int i = 0; i < p->node[node].n_order; i++) {
		const struct dlb_item *it = &p->node[node].order[i];
		if (it->micro_batch < 0)
			continue;
		if (!begun[it->micro_batch]) {
			begun[it->micro_batch] = true;
			now++;
		}
		most = now > most ? now : most;
		if (x->g.op[it->op].phase == DLB_BACKWARD && --left[it->micro_batch] == 0)
			now--;
	}
	free(left);
	free(begun);
	return most;
}

/* Orders the plan; the makespan. */
static double check_limits(struct dlb_plan *p, const struct dlb_cost *c, const struct dlb_schedule *rule)
{
	static const double part[] = { 0.5, 0.9, 0.999, 1, 1.001 };
	double s = dlb_schedule_order(p, c, rule, NULL);
	int n = 0, got;

	for (int node = 0; node < p->n_nodes; node++)
		n += p->node[node].n_order;
	for (int i = 0; i < DLB_LEN(part); i++) {
		p->order_below_s = part[i] * s;
		const double limited_s = dlb_schedule_order(p, c, rule, NULL);
		got = 0;
		for (int node = 0; node < p->n_nodes; node++)
			got += p->node[node].n_order;
		if (part[i] > 1)
			assert(IS(limited_s, ==, s) && IS(got, ==, n));
		assert(IS(limited_s, >=, fmin(s, p->order_below_s)));
		shorter += got < n;
	}
	p->order_below_s = 0;
	return dlb_schedule_order(p, c, rule, NULL);
}

/* The simulated step with stages assigned to nodes in turn. *in_flight: the most of any node. */
static double step_s(const struct pipeline *x, const char *schedule, int M, int limit, int *in_flight)
{
	struct dlb_plan p;
	struct dlb_program g;
	struct dlb_timeline t;
	struct dlb_error err = { .what = "" };
	dlb_plan_init(&p, x->g.n_ops, x->cl.n_nodes);
	p.graph = &x->g;
	p.batch = BATCH;
	p.micro_batches = M;
	p.in_flight = limit;
	for (int i = 0; i < x->g.n_ops; i++)
		p.placement[i] = (x->g.op[i].phase == DLB_FORWARD ? i : x->g.op[i].of) % x->cl.n_nodes;
	double end = check_limits(&p, &x->c, dlb_schedule_find(schedule));
	if (dlb_plan_check(&p, &x->c, &err) || dlb_program_compile(&p, &x->c, BATCH, 0, &g, &err) ||
	    dlb_program_verify(&g, &x->c, &err) ||
	    dlb_program_simulate(&g, &x->c, &(struct dlb_simulate_choice){ .keep_spans = false }, &t, &err)) {
		fprintf(stderr, "%s: %s: %s\n", schedule, err.where, err.what);
		abort();
	}
	double step = t.step_s;
	/* messages are free, so the simulated step equals the scheduled one */
	assert(IS(step, <=, end * (1 + 1e-6)));
	int most = 0;
	for (int n = 0; n < x->cl.n_nodes; n++) {
		int k = most_in_flight(x, &p, n, M);
		most = k > most ? k : most;
	}
	if (in_flight)
		*in_flight = most;
	dlb_timeline_release(&t, x->cl.n_nodes);
	dlb_program_release(&g);
	dlb_plan_release(&p);
	orders++;
	return step;
}

static void expect(const char *what, double got, double want)
{
	if (fabs(got - want) <= 1e-6 * want)
		return;
	fprintf(stderr, "%s: %g s, not %g s\n", what, got, want);
	abort();
}

/* 4 equal stages, F = B = W = 1, M = 8. */
static void test_four_stages(void)
{
	enum { P = 4, M = 8 };
	struct pipeline x;
	int flight;
	pipeline_init(&x, P, "cpu:4", 1, 1, 1, M);
	/* W runs beside the next B; the first stage's last */
	expect("none", step_s(&x, "none", M, 0, &flight), M * (2 * P + 1));
	assert(IS(flight, ==, 1));
	double gpipe = step_s(&x, "gpipe", M, 0, &flight);
	assert(IS(flight, ==, M) && IS(gpipe, <=, 3 * (M + P - 1)));
	double one = step_s(&x, "1f1b", M, 0, &flight);
	assert(IS(flight, ==, P) && IS(one, <=, 3 * (M + P - 1)));
	double h1 = step_s(&x, "zero-bubble", M, 0, &flight);
	assert(IS(flight, <=, P));						/* no more memory than 1f1b */
	/* ZB-H1: (p - 1) (F + B - W) */
	assert(IS(h1, <, one) && IS(h1, <=, 3 * M + (P - 1) + 1e-6));
	double h2 = step_s(&x, "zero-bubble", M, 2 * P - 1, &flight);
	assert(IS(flight, <=, 2 * P - 1) && IS(h2, <=, h1));
	/* the last stage begins p - 1 later, and never waits */
	expect("zero-bubble, 2 p - 1 in flight", h2, 3 * M + P - 1);
	for (int limit = 1; limit < P; limit++) {			/* less memory, more time */
		double s = step_s(&x, "1f1b", M, limit, &flight),
		       z = step_s(&x, "zero-bubble", M, limit, NULL);
		assert(IS(flight, <=, limit) && IS(s, >=, one - 1e-9) && IS(z, >=, h1 - 1e-9));
	}
	pipeline_release(&x);
}

/* 8 stages assigned to 2 and 4 nodes in turn: interleaving divides the time to fill and drain by the chunks
 * per node. */
static void test_chunks(void)
{
	for (int nodes = 2; nodes <= 4; nodes += 2) {
		for (int M = nodes; M <= 16; M *= 2) {
			char cluster[16];
			struct pipeline x;
			int v = 8 / nodes;
			snprintf(cluster, sizeof cluster, "cpu:%d", nodes);
			pipeline_init(&x, 8, cluster, 1, 1, 1, M);
			double s = step_s(&x, "interleaved", M, 0, NULL), ideal = 3 * v * M + 3 * (nodes - 1);
			double one = step_s(&x, "1f1b", M, 0, NULL);
			if (s > 1.01 * ideal || s > one + 1e-9) {
				fprintf(stderr, "interleaved, %d nodes, M = %d: %g s (1f1b %g), ideal %g\n",
					nodes, M, s, one, ideal);
				abort();
			}
			pipeline_release(&x);
		}
	}
}

/* Unequal stages and nodes: never slower than one micro-batch at a time, for any times. */
static void test_unequal(void)
{
	for (int k = 0; k < 20; k++) {
		struct pipeline x;
		int M = 1 + k % 9;
		pipeline_init(&x, 3 + k % 4, k % 2 ? "cpu:2 cpu:1*0.5" : "cpu:1 cpu:2*0.3", 1 + k % 3,
			      1 + k % 5, 0.5 * (k % 4), M);
		double none = step_s(&x, "none", M, 0, NULL);
		/* async has other orders: test_program */
		for (const struct dlb_schedule *s = dlb_schedules; s->name; s++)
			assert(s->async || step_s(&x, s->name, M, 0, NULL) <= none * (1 + 1e-9));
		pipeline_release(&x);
	}
}

/* Updates can come first in a synchronous plan of one replica on several nodes, where they do not already. */
static void test_updates_first(void)
{
	struct pipeline x;
	struct dlb_plan p;

	pipeline_init(&x, 2, "cpu:2", 1, 2, 1, 0);
	dlb_plan_init(&p, x.g.n_ops, 2);
	p.graph = &x.g;
	for (int k = 0; k < 24; k++) {
		const bool first = k % 2, async = k / 2 % 2, one_node = k / 4 % 2;

		p.updates_first = first;
		p.schedule = async ? "async" : "1f1b";
		p.n_replicas = k / 8 + 1;
		for (int i = 0; i < p.n_ops; i++)
			p.placement[i] = !one_node && i == p.n_ops - 1;
		assert(IS(dlb_schedule_can_update_first(&p), ==, !first && !async && !one_node && k < 8));
	}
	dlb_plan_release(&p);
	pipeline_release(&x);
}

int main(void)
{
	test_updates_first();
	test_four_stages();
	test_chunks();
	test_unequal();
	assert(shorter > 0);
	printf("test_schedule: %d orders, %d ended before their time\n", orders, shorter);
	return 0;
}
