/* Softmax of f16: differences, powers and sums are rounded to f16, along any axis, for inputs of any size. */
#include <math.h>
#include "graph/rewrite.h"
#include "check.h"
#include "run_graph.h"
#include "by_hand.h"

static struct dlb_backend be;
static int n_checked;

static double half(double v)
{
	uint16_t bits;

	dlb_value_set(&bits, DLB_F16, 0, v);
	return dlb_value_real(&bits, DLB_F16, 0);
}

/* The softmax of n values, `step` apart. */
static void expected(const double *x, double *y, int64_t n, int64_t step)
{
	double most = -INFINITY, sum = 0;

	for (int64_t i = 0; i < n; i++)
		most = fmax(most, x[i * step]);
	for (int64_t i = 0; i < n; i++)
		sum += y[i * step] = half(exp(half(x[i * step] - most)));
	for (int64_t i = 0; i < n; i++)
		y[i * step] = half(y[i * step] / half(sum));
}

static void check(int opset, int64_t axis, const int64_t *dim, int n, double scale)
{
	const struct dlb_attr a = { .name = "axis", .type = DLB_ATTR_INT, .i = axis };
	struct dlb_error err = { .what = "" };
	struct dlb_graph g;
	struct test_run r;
	int64_t along = 1, behind = 1, count = 1;
	double x[400], want[400];

	begin_graph(&g, opset);
	const int in = dlb_graph_add_tensor(&g, "x", DLB_T_INPUT);
	g.tensor[in].dtype = DLB_F16;
	g.tensor[in].n_dims = n;
	for (int i = 0; i < n; i++)
		g.tensor[in].dim[i].add = dim[i];
	const int out = op(&g, "Softmax", &in, 1, &a, 1), at = (int)(axis < 0 ? axis + n : axis);
	g.tensor[out].producer = 0;
	if (dlb_graph_infer_new(&g, 0, &err))
		test_die(&err);
	test_run_init(&r, &g, &be, 1);
	for (int i = 0; i < n; i++) {
		count *= dim[i];
		if (i == at || (i > at && opset < 13))
			along *= dim[i];
		else if (i > at)
			behind *= dim[i];
	}
	assert(IS(count, <=, 400));
	for (int64_t i = 0; i < count; i++) {
		x[i] = half(scale * dlb_philox_normal(7, 1, (uint64_t)i));
		dlb_value_set(r.value[in], DLB_F16, i, x[i]);
	}
	for (int64_t o = 0; o < count / (along * behind); o++)
		for (int64_t i = 0; i < behind; i++)
			expected(x + o * along * behind + i, want + o * along * behind + i, along, behind);
	test_run_op(&r, 0);
	assert(!be.ops->sync(&be, NULL));
	for (int64_t i = 0; i < count; i++, n_checked++)
		assert(IS(dlb_value_real(r.value[out], DLB_F16, i), ==, want[i]));
	test_run_release(&r);
	dlb_graph_release(&g);
}

int main(void)
{
	static const int64_t three[] = { 3, 5, 4 }, one[] = { 7 }, wide[] = { 2, 130 };

	test_backend(&be);
	for (int64_t axis = -3; axis < 3; axis++)
		for (int opset = 11; opset <= 17; opset += 6)
			check(opset, axis, three, 3, 3);
	check(17, 0, one, 1, 20);
	check(17, 1, wide, 2, 8);
	check(17, 0, wide, 2, 8);
	check(11, 1, wide, 2, 0.1);
	be.ops->close(&be);
	printf("%d elements are rounded as defined\n", n_checked);
	return 0;
}
