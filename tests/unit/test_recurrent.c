/* Directions of RNN, GRU and LSTM: the reverse direction is the forward one on the steps in reverse order,
 * and a bidirectional op is one of each, with the second of the weights. In f64. */
#include <math.h>
#include "check.h"
#include "run_graph.h"
#include "by_hand.h"
#include "graph/passes.h"

enum { SAMPLES = 3, STEPS = 4, IN = 3, H = 2 };
enum { BOTH, FORWARD, REVERSE, TURNED, N_NETS };

static struct dlb_backend be;

static struct dlb_attr text(const char *name, const char *s)
{
	return (struct dlb_attr){ .name = name, .type = DLB_ATTR_STR, .s = s };
}

static struct dlb_attr number(const char *name, int64_t i)
{
	return (struct dlb_attr){ .name = name, .type = DLB_ATTR_INT, .i = i };
}

/* Directions first .. first + n of the weights (2, rows, columns), or of biases (columns 0). */
static int weights(struct dlb_graph *g, uint64_t seed, int first, int n, int64_t rows, int64_t columns)
{
	const int64_t count = rows * (columns ? columns : 1);
	double v[2 * 4 * H * 8];

	assert(IS(2 * count, <=, DLB_LEN(v)));
	for (int64_t i = 0; i < n * count; i++)
		v[i] = 0.5 * dlb_philox_normal(7, seed, (uint64_t)(first * count + i));
	return add_constant(g, DLB_F64, (int64_t[]){ n, rows, columns }, columns ? 3 : 2, v);
}

/* The op of these directions on x; `turned`: on x with its steps in reverse order. Y is (N, steps,
 * directions, H). */
static int net(struct dlb_graph *g, int x, const char *type, int gates, int what)
{
	static const char *const name[N_NETS] = { "bidirectional", "forward", "reverse", "forward" };
	const int first = what == REVERSE || what == TURNED, n = what == BOTH ? 2 : 1;
	const struct dlb_attr attr[] = { text("direction", name[what]), number("hidden_size", H),
					 number("layout", 1) },
			      axis = number("axis", 1);

	if (what == TURNED)
		x = op(g, "Gather", (int[]){ x, whole_numbers(g, (int64_t[]){ 3, 2, 1, 0 }, STEPS) }, 2,
		       &axis, 1);
	const int in[] = { x,
			   weights(g, 1, first, n, gates * H, IN),
			   weights(g, 2, first, n, gates * H, H),
			   weights(g, 3, first, n, 2 * gates * H, 0),
			   -1,
			   -1,
			   -1,
			   weights(g, 4, first, n, 3 * H, 0) }; /* peepholes */
	return op(g, type, in, strcmp(type, "LSTM") ? 4 : 8, attr, 3);
}

static void directions(const char *type, int gates)
{
	struct dlb_error err = { .what = "" };
	struct dlb_graph g;
	struct test_run r;
	const double *y[N_NETS];

	begin_graph(&g, 17);
	const int x = sample_input(&g, DLB_F64, (int64_t[]){ 0, STEPS, IN }, 3);
	for (int what = 0; what < N_NETS; what++)
		g.output[g.n_outputs++] = net(&g, x, type, gates, what);
	if (dlb_graph_fold(&g, SAMPLES, &be, &err))
		test_die(&err);
	test_run_init(&r, &g, &be, SAMPLES);
	test_fill_inputs(&r, 1);
	test_run_phase(&r, DLB_FORWARD);
	for (int what = 0; what < N_NETS; what++)
		y[what] = r.value[g.output[what]];
	for (int s = 0; s < SAMPLES; s++)
		for (int t = 0; t < STEPS; t++)
			for (int h = 0; h < H; h++) {
				const int row = s * STEPS + t, from_end = s * STEPS + STEPS - 1 - t;
				const double *both = y[BOTH] + row * 2 * H + h;

				assert(IS(fabs(both[0] - y[FORWARD][row * H + h]), <, 1e-14));
				assert(IS(fabs(both[H] - y[REVERSE][row * H + h]), <, 1e-14));
				assert(IS(fabs(both[H] - y[TURNED][from_end * H + h]), <, 1e-14));
			}
	test_run_release(&r);
	dlb_graph_release(&g);
}

int main(void)
{
	test_backend(&be);
	directions("RNN", 1);
	directions("GRU", 3);
	directions("LSTM", 4);
	be.ops->close(&be);
	printf("recurrent: forward, reverse and both\n");
	return 0;
}
