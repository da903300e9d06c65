/* Builds forward graphs for tests: ops of ONNX's domain with one output, float64 constants with random
 * values. */
#ifndef DLB_TEST_BY_HAND_H
#define DLB_TEST_BY_HAND_H
#include <stdio.h>
#include "graph/graph.h"
#include "graph/rewrite.h"
#include "util/rng.h"

static inline int op(struct dlb_graph *g, const char *type, const int *in, int n_in,
		     const struct dlb_attr *attr, int n_attr)
{
	char name[40];
	snprintf(name, sizeof name, "%s%d", type, g->n_ops);
	const int t = dlb_graph_add_tensor(g, name, DLB_T_ACTIVATION);
	dlb_graph_add_op(g, DLB_FORWARD,
			 &(struct dlb_op_spec){ .name = name, .type = type, .in = in, .n_in = n_in, .out = &t,
						.n_out = 1, .attr = attr, .n_attr = n_attr });
	return t;
}

/* An empty training graph in float64, with room for 4 inputs and outputs. */
static inline void begin_graph(struct dlb_graph *g, int opset)
{
	dlb_graph_init(g);
	g->opset = opset;
	g->dtype = DLB_F64;
	g->training = true;
	g->input = dlb_arena_array(&g->arena, 4, sizeof *g->input);
	g->output = dlb_arena_array(&g->arena, 4, sizeof *g->output);
}

/* Input "x" of N samples of dim[1 .. n). */
static inline int sample_input(struct dlb_graph *g, enum dlb_dtype dtype, const int64_t *dim, int n)
{
	const int t = dlb_graph_add_tensor(g, "x", DLB_T_INPUT);
	g->tensor[t].dtype = dtype;
	g->tensor[t].n_dims = n;
	g->tensor[t].dim[0] = (struct dlb_dim){ 1, 0 };
	for (int i = 1; i < n; i++)
		g->tensor[t].dim[i].add = dim[i];
	return g->input[g->n_inputs++] = t;
}

/* A constant with these values, under a new name. */
static inline int add_constant(struct dlb_graph *g, enum dlb_dtype type, const int64_t *dim, int n,
			       const void *data)
{
	struct dlb_desc d = { .dtype = type, .n_dims = n };
	for (int k = 0; k < n; k++)
		d.dim[k] = dim[k];
	return dlb_graph_add_constant(g, "constant", &d, data, NULL);
}

static inline int whole_numbers(struct dlb_graph *g, const int64_t *v, int64_t n)
{
	return add_constant(g, DLB_I64, &n, 1, v);
}

/* The next number of stream 1 of `seed`, standard normal times 1/2; *drawn counts the numbers. */
static inline int drawn_constant(struct dlb_graph *g, const char *name, const int64_t *dim, int n,
				 bool initial, uint64_t seed, uint64_t *drawn)
{
	const int t = dlb_graph_add_tensor(g, name, DLB_T_CONSTANT);
	struct dlb_tensor *x = &g->tensor[t];
	int64_t count = 1;
	for (int i = 0; i < n; i++) {
		x->dim[i].add = dim[i];
		count *= dim[i];
	}
	double *v = dlb_arena_array(&g->arena, (size_t)count, sizeof *v);
	for (int64_t i = 0; i < count; i++)
		v[i] = 0.5 * dlb_philox_normal(seed, 1, (*drawn)++);
	x->dtype = DLB_F64;
	x->n_dims = n;
	x->data = v;
	x->initial = initial;
	return t;
}
#endif
