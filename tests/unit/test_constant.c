/* The operator Constant by its own kernel, with each of its attributes; and without one. */
#include <math.h>
#include "graph/rewrite.h"
#include "check.h"
#include "run_graph.h"
#include "by_hand.h"

static struct dlb_backend be;

/* Runs Constant with attribute a: n_dims, type and elements of its output. */
static void gives(const struct dlb_attr *a, enum dlb_dtype type, int n_dims, const double *want, int n)
{
	struct dlb_error err = { .what = "" };
	struct dlb_graph g;
	struct test_run r;

	begin_graph(&g, 17);
	const int t = op(&g, "Constant", NULL, 0, a, 1);
	g.tensor[t].producer = 0;
	if (dlb_graph_infer_new(&g, 0, &err))
		test_die(&err);
	assert(IS(g.tensor[t].dtype, ==, type) && IS(g.tensor[t].n_dims, ==, n_dims) &&
	       IS(g.tensor[t].dim[0].add, ==, (n_dims ? n : 0)) && IS(g.tensor[t].dim[0].mul, ==, 0));
	test_run_init(&r, &g, &be, 3);
	test_run_op(&r, 0);
	assert(!be.ops->sync(&be, NULL));
	for (int i = 0; i < n; i++)
		assert(IS(dlb_value_real(r.value[t], type, i), ==, want[i]));
	test_run_release(&r);
	dlb_graph_release(&g);
}

static void refused(const struct dlb_attr *a)
{
	struct dlb_error err = { .what = "" };
	struct dlb_graph g;

	begin_graph(&g, 17);
	const int t = op(&g, "Constant", NULL, 0, a, 1);
	g.tensor[t].producer = 0;
	assert(IS(dlb_graph_infer_new(&g, 0, &err), ==, -1));
	assert(HAS(err.what, "no value that is a tensor, a number or a list of numbers"));
	dlb_graph_release(&g);
}

int main(void)
{
	static const int64_t whole[] = { 7, -3, 11 };
	static const double reals[] = { 0.5, -2.25 }, small[] = { 3, 4 };
	const struct dlb_attr tensor = { .name = "value",
					 .type = DLB_ATTR_TENSOR,
					 .data = small,
					 .desc = { .dtype = DLB_F64, .n_dims = 1, .dim = { 2 } } };

	test_backend(&be);
	gives(&tensor, DLB_F64, 1, small, 2);
	gives(&(struct dlb_attr){ .name = "value_float", .type = DLB_ATTR_REAL, .f = 0.75 }, DLB_F32, 0,
	      (const double[]){ 0.75 }, 1);
	gives(&(struct dlb_attr){ .name = "value_int", .type = DLB_ATTR_INT, .i = -9 }, DLB_I64, 0,
	      (const double[]){ -9 }, 1);
	gives(&(struct dlb_attr){ .name = "value_floats", .type = DLB_ATTR_REALS, .reals = reals, .n = 2 },
	      DLB_F32, 1, reals, 2);
	gives(&(struct dlb_attr){ .name = "value_ints", .type = DLB_ATTR_INTS, .ints = whole, .n = 3 },
	      DLB_I64, 1, (const double[]){ 7, -3, 11 }, 3);
	refused(&(struct dlb_attr){ .name = "value_string", .type = DLB_ATTR_STR, .s = "x" });
	refused(&(struct dlb_attr){ .name = "value", .type = DLB_ATTR_STR, .s = "x" });
	be.ops->close(&be);
	puts("constants of all attributes");
	return 0;
}
