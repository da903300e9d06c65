/* Random training graphs with costs, for property tests of plans and placements. Ops have unknown types, so
 * they can be planned, not run.
 *
 * n_forward ops form a random DAG: each reads one to three earlier activations, mostly recent ones, or the
 * input; half of them have a weight. A loss follows. If `training`, there is one backward op per forward op,
 * in reverse order, which makes the gradients of its inputs and of its weight, and an update per weight. */
#ifndef DLB_TESTS_RANDOM_DAG_H
#define DLB_TESTS_RANDOM_DAG_H
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cost/cost.h"
#include "graph/order.h"
#include "util/rng.h"

struct dag { struct dlb_graph g; struct dlb_cluster cl; struct dlb_cost c; };
struct dag_options {
	uint64_t seed;
	int n_forward;
	bool training, chain;		/* chain: every op reads the one before */
	double colocate;		/* share of backward ops colocated with their forward op */
	double no_kernel;		/* share of op types that one kind lacks */
	const char *cluster;
	int64_t batch;
};

static int dag_tensor(struct dlb_graph *g, const char *what, int i, enum dlb_tensor_kind kind, double mul,
		      double add)
{
	char name[64];
	snprintf(name, sizeof name, "%s%d", what, i);
	int t = dlb_graph_add_tensor(g, name, kind);
	g->tensor[t].size_mul = mul;
	g->tensor[t].size_add = add;
	return t;
}

static void dag_backward(struct dlb_graph *g, const struct dag_options *o, struct dlb_rng *r, int op,
			 int *grad_of, int *sum_of)
{
	int in[16], out[16], n_in = 0, n_out = 0;
	char name[64];
	struct dlb_op f = g->op[op];
	int y = f.out[0];
	if (f.phase == DLB_FORWARD && grad_of[y] < 0 && y != g->loss)
		return;					/* nothing depends on it */
	if (y == g->loss)
		in[n_in++] = g->seed;
	else
		in[n_in++] = grad_of[y];
	int weight = -1;
	for (int i = 0; i < f.n_in; i++) {
		int t = f.in[i];
		in[n_in++] = t;
		if (g->tensor[t].kind == DLB_T_WEIGHT)
			weight = t;
	}
	if (weight >= 0) {
		int w = dag_tensor(g, "dw", op, DLB_T_WEIGHT_GRADIENT, 0, g->tensor[weight].size_add);
		g->tensor[w].of = weight;
		sum_of[weight] = w;
		out[n_out++] = w;
	}
	for (int i = 0; i < f.n_in; i++) {
		int t = f.in[i];
		if (g->tensor[t].kind != DLB_T_ACTIVATION || grad_of[t] >= 0)
			continue;			/* the last reader's gradient stands for the sum */
		char made[32];
		snprintf(made, sizeof made, "d%d_", op);
		int d = dag_tensor(g, made, t, DLB_T_GRADIENT, g->tensor[t].size_mul, g->tensor[t].size_add);
		g->tensor[d].of = t;
		grad_of[t] = d;
		out[n_out++] = d;
	}
	if (!n_out)
		return;
	snprintf(name, sizeof name, "b%d", op);
	int b = dlb_graph_add_op(g, DLB_BACKWARD,
				 &(struct dlb_op_spec){ .name = name, .type = "B", .domain = "test", .in = in,
							.n_in = n_in, .out = out, .n_out = n_out });
	g->op[b].of = op;
	if (dlb_rng_uniform(r) < o->colocate)
		g->op[b].colocate = op;
}

static void dag_graph(struct dlb_graph *g, const struct dag_options *o, struct dlb_rng *r)
{
	char name[64];
	dlb_graph_init(g);
	g->batch = o->batch;
	g->training = o->training;
	int x = dag_tensor(g, "x", 0, DLB_T_INPUT, 400, 0),
	    *act = calloc((size_t)o->n_forward + 1, sizeof *act);
	int *weight_op = malloc(((size_t)o->n_forward + 1) * sizeof *weight_op);
	g->seed = dag_tensor(g, "seed", 0, DLB_T_SEED, 0, 4);
	g->input = dlb_arena_array(&g->arena, 1, sizeof(int));
	g->input[0] = x;
	g->n_inputs = 1;
	for (int i = 0; i < o->n_forward; i++) {
		int in[8], n_in = 0, out[1];
		int n = i == 0 ? 0 : o->chain ? 1 : 1 + (int)dlb_rng_below(r, 3);
		for (int k = 0; k < n; k++) {
			int back = o->chain || dlb_rng_uniform(r) < 0.7 ?
					   0 :
					   (int)dlb_rng_below(r, (uint64_t)(i < 6 ? i : 6));
			int t = act[i - 1 - back];
			bool twice = false;
			for (int j = 0; j < n_in; j++)
				twice |= in[j] == t;
			if (!twice)
				in[n_in++] = t;
		}
		if (!n)
			in[n_in++] = x;
		weight_op[i] = -1;
		if (dlb_rng_uniform(r) < 0.5) {
			weight_op[i] = dag_tensor(g, "w", i, DLB_T_WEIGHT, 0,
						  4.0 * (double)(1 + dlb_rng_below(r, 5000)));
			in[n_in++] = weight_op[i];
		}
		bool last = i == o->n_forward - 1;
		out[0] = act[i] = last ? dag_tensor(g, "loss", i, DLB_T_ACTIVATION, 0, 4) :
					 dag_tensor(g, "a", i, DLB_T_ACTIVATION,
						    4.0 * (double)(1 + dlb_rng_below(r, 2000)), 0);
		if (last)
			g->loss = out[0];
		snprintf(name, sizeof name, "f%d", i);
		dlb_graph_add_op(g, DLB_FORWARD,
				 &(struct dlb_op_spec){ .name = name, .type = i % 3 ? "F" : "G",
							.domain = "test", .in = in, .n_in = n_in, .out = out,
							.n_out = 1 });
	}
	if (o->training) {
		size_t n = (size_t)g->n_tensors + 1;
		int *grad_of = malloc(n * sizeof *grad_of), *sum_of = malloc(n * sizeof *sum_of);
		for (size_t i = 0; i < n; i++)
			grad_of[i] = sum_of[i] = -1;
		for (int i = o->n_forward - 1; i >= 0; i--)
			dag_backward(g, o, r, i, grad_of, sum_of);
		for (int i = 0; i < o->n_forward; i++) {
			if (weight_op[i] < 0)
				continue;
			int in[2] = { weight_op[i], sum_of[weight_op[i]] };
			snprintf(name, sizeof name, "u%d", i);
			int u = dlb_graph_add_op(g, DLB_UPDATE,
						 &(struct dlb_op_spec){ .name = name, .type = "Update",
							 .domain = "test", .in = in,
							 .n_in = in[1] >= 0 ? 2 : 1 });
			g->tensor[weight_op[i]].home = u;
			g->op[u].of = g->op[u].colocate = i;
		}
		free(grad_of);
		free(sum_of);
	}
	free(act);
	free(weight_op);
	struct dlb_error err;
	if (dlb_graph_index(g) || dlb_graph_check(g, &err)) {
		fprintf(stderr, "%s: %s\n", err.where, err.what);
		abort();
	}
}

static void dag_init(struct dag *d, const struct dag_options *o)
{
	struct dlb_rng r;
	struct dlb_error err;
	dlb_rng_init(&r, o->seed);
	dag_graph(&d->g, o, &r);
	int bad = dlb_cluster_parse(o->cluster, &d->cl, &err) ||
		  dlb_cost_fit(&d->c, &d->g, NULL, &d->cl, &err);
	if (bad) {
		fprintf(stderr, "%s: %s\n", err.where, err.what);
		abort();
	}
	/* times with a part proportional to the batch and a constant part */
	for (int i = 0; i < d->g.n_ops; i++) {
		double each = exp(3 * dlb_rng_uniform(&r)) * 1e-5, fixed = 1e-5 * dlb_rng_uniform(&r);
		bool lacks = dlb_rng_uniform(&r) < o->no_kernel;
		int without = d->cl.n_kinds > 1 ? 1 + (int)dlb_rng_below(&r, (uint64_t)(d->cl.n_kinds - 1)) :
						  -1;
		if (d->g.op[i].phase == DLB_BACKWARD)
			each *= 2;
		for (int k = 0; k < d->cl.n_kinds; k++) {
			double factor = k ? 0.5 + dlb_rng_uniform(&r) : 1;
			for (int b = 0; b < d->c.n_batches; b++)
				d->c.op_s[((size_t)k * (size_t)d->c.n_ops + (size_t)i) *
						  (size_t)d->c.n_batches +
					  (size_t)b] = lacks && k == without ?
							       INFINITY :
							       factor * (fixed +
									 (d->g.op[i].phase == DLB_UPDATE ?
										  0 :
										  each * (double)d->c
												  .batch[b]));
		}
	}
}

static void dag_release(struct dag *d)
{
	dlb_cost_release(&d->c);
	dlb_cluster_release(&d->cl);
	dlb_graph_release(&d->g);
}
#endif
