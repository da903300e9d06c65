/* A small model whose best plans are known by arithmetic: n ops that read one input and do not depend on each
 * other, and an op that joins their outputs. Each of the n takes a millisecond on a node of speed 1 and has a
 * weight of 4000 bytes; joining and messages take almost nothing. So a step takes as long as the node with
 * the most ops. */
#ifndef DLB_TESTS_FORK_H
#define DLB_TESTS_FORK_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "check.h"
#include "cluster/cluster.h"
#include "cost/cost.h"
#include "graph/graph_json.h"
#include "graph/order.h"
#include "util/mem.h"

#define FORK_MS 1e-3
enum { FORK_BATCH = 8 };
struct fork {
	struct dlb_graph g;
	struct dlb_cluster cl;
	struct dlb_cost c;
	int n;
};

static inline void fork_must(int failed, const struct dlb_error *err)
{
	if (failed) {
		fprintf(stderr, "%s: %s\n", err->where, err->what);
		abort();
	}
}

static inline int fork_tensor(struct dlb_graph *g, const char *what, int i, enum dlb_tensor_kind kind,
			      double bytes)
{
	char name[32];

	snprintf(name, sizeof name, "%s%d", what, i);
	const int t = dlb_graph_add_tensor(g, name, kind);
	g->tensor[t].size_add = bytes;
	return t;
}

static inline void fork_op(struct dlb_graph *g, const char *what, int i, const int *in, int n_in, int out)
{
	char name[32];

	snprintf(name, sizeof name, "%s%d", what, i);
	dlb_graph_add_op(g, DLB_FORWARD,
			 &(struct dlb_op_spec){ .name = name,
						.type = what,
						.domain = "test",
						.in = in,
						.n_in = n_in,
						.out = &out,
						.n_out = 1 });
}

/* Sets the time of op i on kind k, s for FORK_BATCH samples and in proportion for others. */
static inline void fork_time(struct dlb_cost *c, int k, int i, double s)
{
	for (int b = 0; b < c->n_batches; b++)
		c->op_s[((size_t)k * (size_t)c->n_ops + (size_t)i) * (size_t)c->n_batches +
			(size_t)b] = s * (double)c->batch[b] / FORK_BATCH;
}

static inline void fork_init(struct fork *f, int n, const char *cluster)
{
	struct dlb_graph *g = &f->g;
	struct dlb_error err = { .what = "" };
	int *made = dlb_xcalloc((size_t)n, sizeof *made);

	f->n = n;
	dlb_graph_init(g);
	g->batch = FORK_BATCH;
	const int x = fork_tensor(g, "x", 0, DLB_T_INPUT, 16);
	g->input = dlb_arena_array(&g->arena, 1, sizeof(int));
	g->input[0] = x;
	g->n_inputs = 1;
	for (int i = 0; i < n; i++) {
		const int in[2] = { x, fork_tensor(g, "w", i, DLB_T_WEIGHT, 4000) };

		made[i] = fork_tensor(g, "a", i, DLB_T_ACTIVATION, 16);
		fork_op(g, "f", i, in, 2, made[i]);
	}
	g->output = dlb_arena_array(&g->arena, 1, sizeof(int));
	g->output[0] = fork_tensor(g, "y", 0, DLB_T_ACTIVATION, 16);
	g->n_outputs = 1;
	fork_op(g, "join", 0, made, n, g->output[0]);
	free(made);
	fork_must(dlb_graph_index(g) || dlb_graph_check(g, &err), &err);
	fork_must(dlb_cluster_parse(cluster, &f->cl, &err) || dlb_cost_fit(&f->c, g, NULL, &f->cl, &err),
		  &err);
	for (int k = 0; k < f->c.n_kinds; k++)
		for (int i = 0; i <= n; i++)
			fork_time(&f->c, k, i, i < n ? FORK_MS : 1e-9);
}

static inline void fork_release(struct fork *f)
{
	dlb_cost_release(&f->c);
	dlb_cluster_release(&f->cl);
	dlb_graph_release(&f->g);
}

/* A document of the three sections. */
static inline void fork_doc(const struct fork *f, struct dlb_doc *d)
{
	static const char *const inputs[] = { "graph", "cluster", NULL };

	dlb_doc_init(d, "fork.json");
	dlb_doc_set(d, "graph", dlb_graph_write(&f->g));
	dlb_doc_set(d, "cluster", dlb_cluster_write(&f->cl));
	json_t *cost = dlb_cost_write(&f->c);
	json_object_set_new(cost, "inputs", dlb_doc_input_hashes(d, inputs));
	dlb_doc_set(d, "cost", cost);
}
#endif
