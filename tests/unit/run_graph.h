/* Runs a graph op by op on the cpu back end, each tensor in its own memory: a step without programs, arenas
 * or messages. For tests of rewrites and operators. Updates are not run. */
#ifndef DLB_TEST_RUN_GRAPH_H
#define DLB_TEST_RUN_GRAPH_H
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "graph/graph.h"
#include "tensor/backend.h"
#include "util/rng.h"
#include "check.h"

struct test_run { const struct dlb_graph *g; struct dlb_backend *be; int64_t n; void **value; };

static inline void test_die(const struct dlb_error *err)
{
	dlb_error_print(stderr, "test", -1, err);
	abort();
}

static inline size_t test_bytes(const struct test_run *r, int t)
{
	const struct dlb_desc d = dlb_tensor_desc(&r->g->tensor[t], r->n);
	return dlb_desc_bytes(&d);
}

/* Allocates every tensor; fills constants, weights and buffers. */
static inline void test_run_init(struct test_run *r, const struct dlb_graph *g, struct dlb_backend *be,
				 int64_t n)
{
	*r = (struct test_run){
		.g = g, .be = be, .n = n, .value = calloc((size_t)g->n_tensors + 1, sizeof(void *))
	};
	for (int t = 0; t < g->n_tensors; t++) {
		const struct dlb_tensor *x = &g->tensor[t];
		const struct dlb_desc d = dlb_tensor_desc(x, n);
		struct dlb_arena a = { 0 };
		r->value[t] = be->ops->alloc(be, test_bytes(r, t) + 1);
		assert(r->value[t]);
		if (x->is_fill)
			for (int64_t i = 0; i < dlb_desc_count(&d); i++)
				dlb_value_set(r->value[t], x->dtype, i, x->fill);
		else if (x->data)
			memcpy(r->value[t], dlb_tensor_value(x, n, &a), test_bytes(r, t));
		dlb_arena_release(&a);
	}
	if (g->seed >= 0)
		dlb_value_set(r->value[g->seed], g->tensor[g->seed].dtype, 0, 1);
}

/* Fills the inputs with numbers of `seed`: integers below their bounds, reals standard normal. */
static inline void test_fill_inputs(struct test_run *r, uint64_t seed)
{
	const struct dlb_graph *g = r->g;
	for (int i = 0; i < g->n_inputs; i++) {
		const struct dlb_tensor *t = &g->tensor[g->input[i]];
		const struct dlb_desc d = dlb_tensor_desc(t, r->n);
		for (int64_t k = 0; k < dlb_desc_count(&d); k++)
			dlb_value_set(r->value[g->input[i]], t->dtype, k,
				      dlb_dtype_is_int(t->dtype) ?
					      floor(dlb_philox_uniform(seed, 2 + (uint64_t)i, (uint64_t)k) *
						    (double)t->bound) :
					      dlb_philox_normal(seed, 2 + (uint64_t)i, (uint64_t)k));
	}
}

static inline void test_run_release(struct test_run *r)
{
	for (int t = 0; t < r->g->n_tensors; t++)
		r->be->ops->free(r->be, r->value[t]);
	free(r->value);
}

static inline void test_run_op(struct test_run *r, int op)
{
	const struct dlb_op *o = &r->g->op[op];
	struct dlb_arena a = { 0 };
	struct dlb_op_io io;
	struct dlb_kernel *k = NULL;
	struct dlb_error err = { .what = "" };
	void *in[64], *out[64], *scratch;

	assert(IS(o->n_in, <=, 64) && IS(o->n_out, <=, 64));
	for (int i = 0; i < o->n_in; i++)
		in[i] = o->in[i] < 0 ? NULL : r->value[o->in[i]];
	for (int i = 0; i < o->n_out; i++)
		out[i] = o->out[i] < 0 ? NULL : r->value[o->out[i]];
	dlb_graph_io(r->g, op, r->n, &a, &io);
	if (dlb_op_kernel(r->be, &io, &k, &err)) {
		fprintf(stderr, "no kernel: %s '%s'\n", o->type, o->name);
		test_die(&err);
	}
	scratch = r->be->ops->alloc(r->be, k->scratch_bytes + 1);
	const struct dlb_run run = { .in = in,
				     .out = out,
				     .scratch = scratch,
				     .seed = 1,
				     .vertex = (uint64_t)dlb_attr_int(o->attr, o->n_attr, DLB_ATTR_VERTEX,
								      op) };
	k->run(k, &run);
	r->be->ops->free(r->be, scratch);
	dlb_kernel_free(k);
	dlb_arena_release(&a);
}

static inline void test_run_phase(struct test_run *r, enum dlb_phase last)
{
	for (int i = 0; i < r->g->n_ops; i++)
		if (r->g->op[i].phase <= last && r->g->op[i].phase != DLB_UPDATE)
			test_run_op(r, i);
	assert(!r->be->ops->sync(r->be, NULL));
}

static inline int test_tensor(const struct dlb_graph *g, const char *name)
{
	for (int t = 0; t < g->n_tensors; t++)
		if (!strcmp(g->tensor[t].name, name))
			return t;
	return -1;
}

static inline void test_backend(struct dlb_backend *be)
{
	struct dlb_error err = { .what = "" };
	const struct dlb_backend_ops *ops = dlb_backend_find("cpu");
	assert(ops);
	if (ops->open(0, 1, be, &err))
		test_die(&err);
}

/* Folder of the shared test data, or NULL. */
static inline const char *test_data(void)
{
	const char *dir = getenv("DLB_TEST_DATA");
	FILE *f;
	char path[600];
	dir = dir && *dir ? dir : "../shared/data";
	snprintf(path, sizeof path, "%s/onnx/MODELS.tsv", dir);
	if (!(f = fopen(path, "r")))
		return NULL;
	fclose(f);
	return dir;
}
#endif
