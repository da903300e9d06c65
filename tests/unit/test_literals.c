/* A model in double precision: constants and attributes get the literals that the exporter rounded to
 * single precision, weights and lists keep the file's values; types that attributes name are changed. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "graph/passes.h"
#include "check.h"

#define PI 3.14159265358979323846

static int scalar(struct dlb_graph *g, const char *name, float v)
{
	const int t = dlb_graph_add_tensor(g, name, DLB_T_CONSTANT);
	float *data = dlb_arena_array(&g->arena, 1, sizeof *data);

	*data = v;
	g->tensor[t].n_dims = 0;
	g->tensor[t].data = data;
	return t;
}

static void vertex(struct dlb_graph *g, const char *type, const char *name, const int *in, int n_in,
		   const struct dlb_attr *attr, int n_attr)
{
	const int out = dlb_graph_add_tensor(g, name, DLB_T_ACTIVATION);

	dlb_graph_add_op(g, DLB_FORWARD,
			 &(struct dlb_op_spec){ .name = name,
						.type = type,
						.in = in,
						.n_in = n_in,
						.out = &out,
						.n_out = 1,
						.attr = attr,
						.n_attr = n_attr });
}

/* `v` in single precision becomes `want` as a constant and as an attribute. */
static void widens(double v, double want)
{
	const struct dlb_attr alpha = { .name = "alpha", .type = DLB_ATTR_REAL, .f = (double)(float)v };
	struct dlb_graph g;

	dlb_graph_init(&g);
	const int x = dlb_graph_add_tensor(&g, "x", DLB_T_INPUT), c = scalar(&g, "c", (float)v),
		  in[2] = { x, c };
	vertex(&g, "Mul", "m", in, 2, NULL, 0);
	vertex(&g, "Elu", "e", in, 1, &alpha, 1);
	dlb_graph_widen(&g);
	const double constant = *(const double *)g.tensor[c].data, attribute = g.op[1].attr[0].f;
	assert(IS(g.tensor[c].dtype, ==, DLB_F64) && IS(g.tensor[x].dtype, ==, DLB_F64) &&
	       IS(g.dtype, ==, DLB_F64));
	/* roots may differ in the last digit */
	if (isfinite(want) && (!(fabs(constant - want) <= 1e-14 * fabs(want)) ||
			       !(fabs(attribute - want) <= 1e-14 * fabs(want)))) {
		fprintf(stderr, "%.17g: %.17g, %.17g, not %.17g\n", v, constant, attribute, want);
		abort();
	}
	assert(isfinite(want) || (IS(constant, ==, want) && IS(attribute, ==, want)));
	dlb_graph_release(&g);
}

static void test_literals(void)
{
	static const double decimals[] = { 1e-5,  .1,   -.3,    .044715, 1e-12, .123456, -9.87654e10,
					   65504, -1e9, 3.3e38, 0,       1,     .5 };
	const double known[] = { sqrt(2 / PI), 1 / sqrt(2 * PI), PI, 2 * PI, PI / 2 };
	static const int whole[] = { 2, 3, 5, 7, 80, 96, 768, 65530 };
	static const double other[] = { .1234567, 1.2345678, 16777217.0 / 3, 2.0 / 7 };

	for (size_t i = 0; i < sizeof decimals / sizeof *decimals; i++)
		widens(decimals[i], decimals[i]);
	for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
		widens(known[i], known[i]);
		widens(-known[i], -known[i]);
	}
	for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
		for (int degree = 2; degree <= 4; degree += 2)
			for (int sign = -1; sign <= 1; sign += 2) {
				const double root = pow(whole[i], sign * 1. / degree);
				widens(root, root);
				widens(-root, -root);
			}
	for (size_t i = 0; i < sizeof other / sizeof *other; i++)
		widens(other[i], (double)(float)other[i]);
	widens(1. / 3, 1. / 3); /* the root of 9 */
	widens(sqrt(65537), (double)(float)sqrt(65537));
	widens(pow(3, 1. / 3), (double)(float)pow(3, 1. / 3));
	widens(INFINITY, INFINITY);
	widens(-INFINITY, -INFINITY);
}

/* What else changes, and what does not. */
static void test_kept(void)
{
	static const float third[2] = { .1f, .2f };
	static const double exact = .1 + 1e-12;
	const int64_t f32 = dlb_dtype_to_onnx(DLB_F32), f64 = dlb_dtype_to_onnx(DLB_F64),
		      i64 = dlb_dtype_to_onnx(DLB_I64);
	const struct dlb_attr cast = { .name = "to", .type = DLB_ATTR_INT, .i = f32 };
	const struct dlb_attr type = { .name = "dtype", .type = DLB_ATTR_INT, .i = f32 };
	const struct dlb_attr whole = { .name = "dtype", .type = DLB_ATTR_INT, .i = i64 };
	const struct dlb_attr one = { .name = "value_float", .type = DLB_ATTR_REAL, .f = (double).1f };
	const struct dlb_attr many = {
		.name = "value_floats", .type = DLB_ATTR_REALS, .reals = (const double[]){ .25, 3 }, .n = 2
	};
	const struct dlb_attr tensor = { .name = "value",
					 .type = DLB_ATTR_TENSOR,
					 .data = third,
					 .desc = { .dtype = DLB_F32, .n_dims = 1, .dim = { 2 } } };
	const struct dlb_attr wide = { .name = "alpha", .type = DLB_ATTR_REAL, .f = exact };
	const struct dlb_listed listed = { "scale", "b_scale", DLB_LISTED_BUFFER, true };
	struct dlb_graph g;

	dlb_graph_init(&g);
	g.listed = dlb_arena_array(&g.arena, 1, sizeof listed);
	g.listed[0] = listed;
	g.n_listed = 1;
	const int x = dlb_graph_add_tensor(&g, "x", DLB_T_INPUT), w = scalar(&g, "w", .1f),
		  scale = scalar(&g, "scale", .1f);
	const int n = dlb_graph_add_tensor(&g, "n", DLB_T_INPUT), in[3] = { x, w, scale },
		  pair = scalar(&g, "pair", 0);
	g.tensor[w].initial = true;
	g.tensor[n].dtype = DLB_I64;
	g.tensor[pair].n_dims = 1;
	g.tensor[pair].dim[0].add = 2;
	g.tensor[pair].data = third;
	vertex(&g, "Sum", "sum", in, 3, NULL, 0);
	vertex(&g, "Cast", "cast", in, 1, &cast, 1);
	vertex(&g, "RandomNormalLike", "random", in, 1, &type, 1);
	vertex(&g, "EyeLike", "eye", in, 1, &whole, 1);
	vertex(&g, "Loop", "other", in, 1, &cast, 1); /* no type */
	vertex(&g, "Constant", "one", NULL, 0, &one, 1);
	vertex(&g, "Constant", "many", NULL, 0, &many, 1);
	vertex(&g, "Constant", "tensor", NULL, 0, &tensor, 1);
	vertex(&g, "Elu", "elu", in, 1, &wide, 1);
	vertex(&g, "ConstantOfShape", "zeros", &n, 1, NULL, 0);
	vertex(&g, "Mul", "mul", (int[]){ x, pair }, 2, NULL, 0);
	dlb_graph_widen(&g);
	assert(IS(*(const double *)g.tensor[w].data, ==, (double).1f) &&
	       IS(*(const double *)g.tensor[scale].data, ==, (double).1f));
	assert(IS(g.tensor[n].dtype, ==, DLB_I64) &&
	       IS(((const double *)g.tensor[pair].data)[1], ==, (double).2f));
	assert(IS(g.op[1].attr[0].i, ==, f64) && IS(g.op[2].attr[0].i, ==, f64) &&
	       IS(g.op[3].attr[0].i, ==, i64) && IS(g.op[4].attr[0].i, ==, f32));
	for (int i = 5; i < 8; i++) {
		const struct dlb_attr *a = &g.op[i].attr[0];
		const double *v = a->data;
		assert(SAME(a->name, "value") && IS(a->type, ==, DLB_ATTR_TENSOR) &&
		       IS(a->desc.dtype, ==, DLB_F64));
		assert(IS(a->desc.n_dims, ==, i == 5 ? 0 : 1) && (i == 5 || IS(a->desc.dim[0], ==, 2)));
		assert(IS(v[0], ==,
			  i == 5 ? .1 :
			  i == 6 ? .25 :
				   (double).1f) &&
		       (i == 5 || IS(v[1], ==, i == 6 ? 3 : (double).2f)));
	}
	assert(IS(g.op[8].attr[0].f, ==, exact));
	const struct dlb_attr *zero = &g.op[9].attr[0];
	assert(IS(g.op[9].n_attr, ==, 1) && SAME(zero->name, "value") && IS(zero->desc.dtype, ==, DLB_F64) &&
	       IS(*(const double *)zero->data, ==, 0) && IS(g.op[0].n_attr, ==, 0));
	dlb_graph_release(&g);
}

int main(void)
{
	test_literals();
	test_kept();
	return 0;
}
