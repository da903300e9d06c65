/* Tests of rewrites that fuse: builds a graph with the rewrite, with all rewrites off, and with this one off;
 * the loss and every gradient of the first must equal those of the second (in f64, to 1e-11). The text of the
 * first is kept; kept.h says how the lines are replaced. */
#ifndef DLB_TEST_REWRITE_CASES_H
#define DLB_TEST_REWRITE_CASES_H
#include <math.h>
#include "graph/graph.h"
#include "graph/graph_json.h"
#include "graph/order.h"
#include "graph/passes.h"
#include "graph/rewrite.h"
#include "graph/rewrites.h"
#include "check.h"
#include "run_graph.h"
#include "util/rng.h"
#include "by_hand.h"
#include "kept.h"

static struct dlb_backend be;
static const uint64_t seed = 20260202;
static uint64_t drawn;
static int n_checked;

/* -- graphs made by hand -- */

static inline int constant(struct dlb_graph *g, const char *name, const int64_t *dim, int n, bool initial)
{
	return drawn_constant(g, name, dim, n, initial, seed, &drawn);
}
#define W(name, ...) constant(g, name, (const int64_t[]){ __VA_ARGS__ }, \
			      (int)(sizeof((const int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), true)

static inline int scalar(struct dlb_graph *g, double v)
{
	char name[40];
	snprintf(name, sizeof name, "scalar%d", g->n_tensors);
	const int t = constant(g, name, NULL, 0, false);
	*(double *)g->tensor[t].data = v;
	return t;
}
#define C(v) scalar(g, v)

#define OP(type, ...) op(g, type, (const int[]){ __VA_ARGS__ }, (int)(sizeof((const int[]){ __VA_ARGS__ }) / sizeof(int)), NULL, 0)

static inline int with_ints(struct dlb_graph *g, const char *type, int x, const char *name, const int64_t *v, int n)
{
	const struct dlb_attr a = { .name = name, .type = DLB_ATTR_INTS, .ints = v, .n = n };
	return op(g, type, &x, 1, &a, 1);
}
#define INTS(type, x, name, ...) with_ints(g, type, x, name, (const int64_t[]){ __VA_ARGS__ }, \
					   (int)(sizeof((const int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)))

static inline int with_int(struct dlb_graph *g, const char *type, int x, int w, const char *name, int64_t v)
{
	const struct dlb_attr a = { .name = name, .type = DLB_ATTR_INT, .i = v };
	const int in[2] = { x, w };
	return op(g, type, in, w < 0 ? 1 : 2, &a, 1);
}

static inline int start(struct dlb_graph *g, int opset, const int64_t *dim, int n)
{
	begin_graph(g, opset);
	return sample_input(g, DLB_F64, dim, n);
}

static inline void output(struct dlb_graph *g, int t)
{
	g->output[g->n_outputs++] = t;
}

/* A constant of dimensions; a dimension 0 stands for per_sample times the batch. */
static inline int shape(struct dlb_graph *g, int64_t per_sample, int n, const int64_t *dim)
{
	const struct dlb_desc d = { .dtype = DLB_I64, .n_dims = 1, .dim = { n } };
	int64_t mul[5] = { 0 }, add[5] = { 0 };
	for (int i = 0; i < n; i++)
		*(dim[i] ? &add[i] : &mul[i]) = dim[i] ? dim[i] : per_sample;
	return dlb_graph_add_constant(g, "to", &d, add, mul);
}
#define SHAPE(per_sample, ...) shape(g, per_sample, (int)(sizeof((const int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), \
				     (const int64_t[]){ __VA_ARGS__ })
#define RESHAPE(x, per_sample, ...) OP("Reshape", x, SHAPE(per_sample, __VA_ARGS__))

/* -- comparison of both graphs -- */

typedef int build_fn(struct dlb_graph *g, int x, int variant);

static inline int64_t applied(const struct dlb_graph *g, const char *name)
{
	for (int i = 0; i < g->n_rewritten; i++)
		if (!strcmp(g->rewritten[i].name, name))
			return g->rewritten[i].count;
	return -1;
}

static inline void make(struct dlb_graph *g, build_fn *build, int variant, const int64_t *dim, int n,
		 const char *off)
{
	struct dlb_error err = { .what = "" };
	drawn = 0;
	const int x = start(g, 13 + variant % 2 * 4, dim, n), y = build(g, x, variant);
	/* outputs that a variant has named already come after: the loss belongs to the first */
	for (int i = g->n_outputs++; i > 0; i--)
		g->output[i] = g->output[i - 1];
	g->output[0] = y;
	if ((off && dlb_graph_no_rewrite(g, off, &err)) || dlb_graph_fold(g, 3, &be, &err) ||
	    dlb_graph_find_parameters(g, &err) || dlb_graph_attach_loss(g, "mse", &err) ||
	    dlb_graph_rewrite(g, &err) || dlb_graph_choose_layout(g, &err) ||
	    dlb_graph_differentiate(g, &err) || dlb_graph_check(g, &err) ||
	    dlb_graph_check_runnable(g, 3, &err) || dlb_graph_check_runnable(g, 5, &err))
		test_die(&err);
}

static inline int gradient_of(const struct dlb_graph *g, const char *weight)
{
	for (int i = 0; i < g->n_ops; i++)
		if (g->op[i].phase == DLB_UPDATE && !strcmp(g->tensor[g->op[i].in[0]].name, weight))
			return g->op[i].in[1];
	return -1;
}

static inline void same(const char *what, const struct test_run *a, int s, const struct test_run *b, int t)
{
	const struct dlb_desc d = dlb_tensor_desc(&a->g->tensor[s], a->n),
			      e = dlb_tensor_desc(&b->g->tensor[t], b->n);
	assert(dlb_desc_same_shape(&d, &e));
	for (int64_t i = 0; i < dlb_desc_count(&d); i++) {
		const double u = ((double *)a->value[s])[i], v = ((double *)b->value[t])[i];
		if (!(fabs(u - v) <= 1e-11 + 1e-11 * fabs(v))) {
			fprintf(stderr, "%s, %s[%lld]: fused %.17g, spelt out %.17g\n", what,
				b->g->tensor[t].name, (long long)i, u, v);
			abort();
		}
		n_checked++;
	}
}

static inline void compare(const char *what, const struct dlb_graph *fused, const struct dlb_graph *spelt, int64_t n)
{
	struct test_run a, b;
	int weights = 0;

	test_run_init(&a, fused, &be, n);
	test_run_init(&b, spelt, &be, n);
	test_fill_inputs(&a, seed);
	test_run_phase(&a, DLB_BACKWARD);
	test_fill_inputs(&b, seed);
	test_run_phase(&b, DLB_BACKWARD);
	same(what, &a, fused->loss, &b, spelt->loss);
	for (int t = 0; t < spelt->n_tensors; t++) {
		if (spelt->tensor[t].kind == DLB_T_BUFFER)
			same(what, &a, test_tensor(fused, spelt->tensor[t].name), &b, t);
		if (spelt->tensor[t].kind != DLB_T_WEIGHT)
			continue;
		const int s = gradient_of(fused, spelt->tensor[t].name);
		assert(IS(s, >=, 0));
		same(what, &a, s, &b, gradient_of(spelt, spelt->tensor[t].name));
		weights++;
	}
	assert(IS(weights, >, 0));
	for (int i = 0; i < spelt->n_outputs; i++)
		same(what, &a, fused->output[i], &b, spelt->output[i]);
	test_run_release(&a);
	test_run_release(&b);
}

/* Builds the variant with the rewrite and without any; it must apply `times` times, and change no result. */
static inline void check(const char *rewrite, build_fn *build, int variant, const int64_t *dim, int n, int64_t times)
{
	struct dlb_graph fused, spelt, without;
	char what[80];

	snprintf(what, sizeof what, "%s, variant %d", rewrite, variant);
	make(&fused, build, variant, dim, n, NULL);
	make(&spelt, build, variant, dim, n, "all");
	make(&without, build, variant, dim, n, rewrite);
	if (applied(&fused, rewrite) != times) {
		fprintf(stderr, "%s: applied %lld times, not %lld\n", what,
			(long long)applied(&fused, rewrite), (long long)times);
		abort();
	}
	assert(IS(applied(&without, rewrite), ==, -1) && IS(spelt.n_rewritten, ==, 0));
	json_t *text = dlb_graph_write(&fused);
	kept_json(text);
	json_decref(text);
	kept_line(what, "%d ops, %d without", fused.n_ops, without.n_ops);
	compare(what, &fused, &spelt, 3);
	compare(what, &fused, &spelt, 5);
	dlb_graph_release(&fused);
	dlb_graph_release(&spelt);
	dlb_graph_release(&without);
}
#endif
