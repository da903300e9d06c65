/* DFT and STFT against the sums that define them: real and complex, one-sided, inverse, cut, padded, along an
 * inner axis, of frames with a window; and the tables of spectrograms. */
#include <complex.h>
#include <math.h>
#include "check.h"
#include "run_graph.h"
#include "by_hand.h"
#include "graph/passes.h"

enum { SAMPLES = 3 };
static const double two_pi = 6.28318530717958647693;

struct transform { int n, inner, parts, length; bool inverse, onesided; };
static const struct transform transforms[] = {
	{ 5, 1, 1, 0, false, false }, { 5, 1, 2, 0, false, false }, { 6, 3, 2, 0, true, false },
	{ 6, 3, 1, 4, false, false }, { 4, 2, 2, 9, false, false }, { 8, 1, 1, 0, false, true },
	{ 7, 2, 1, 0, false, true },  { 5, 2, 1, 8, false, true },  { 5, 1, 2, 0, true, true },
	{ 4, 3, 2, 7, true, true },   { 5, 2, 2, 6, true, true },   { 1, 1, 1, 0, false, false },
};

/* Number `at` of x, whose numbers have so many parts. */
static double complex number(const double *x, int64_t at, int parts)
{
	return parts == 1 ? x[at] : x[2 * at] + I * x[2 * at + 1];
}

/* Value j of a signal, which is that of all bins if x has only those to length/2. */
static double complex value(const double *x, const struct transform *t, int64_t first, int64_t j, int64_t length)
{
	const bool mirrored = t->inverse && t->onesided && j > length / 2;
	const int64_t at = mirrored ? length - j : j;
	const double complex v = at < t->n ? number(x, first + at * t->inner, t->parts) : 0;

	return mirrored ? conj(v) : v;
}

static double complex defined(const double *x, const struct transform *t, int64_t first, int64_t k, int64_t length)
{
	double complex sum = 0;

	for (int64_t j = 0; j < length; j++)
		sum += value(x, t, first, j, length) *
		       cexp(I * (t->inverse ? two_pi : -two_pi) * (double)(j * k) / (double)length);
	return t->inverse ? sum / (double)length : sum;
}

static void agrees(const struct transform *t, const double *x, const double *y)
{
	const bool to_real = t->inverse && t->onesided;
	const int64_t length = t->length ? t->length : to_real ? 2 * (t->n - 1) : t->n,
		      bins = t->onesided && !t->inverse ? length / 2 + 1 : length, out_parts = to_real ? 1 : 2;

	for (int64_t i = 0; i < SAMPLES * t->inner; i++)
		for (int64_t k = 0; k < bins; k++) {
			const int64_t sample = i / t->inner, inside = i % t->inner,
				      first = sample * t->n * t->inner + inside,
				      at = (sample * bins + k) * t->inner + inside;
			const double complex want = defined(x, t, first, k, length),
					     got = number(y, at, (int)out_parts);

			assert(cabs(got - (to_real ? creal(want) : want)) < 1e-13);
		}
}

static struct dlb_backend be;

/* Runs the graph of input x and output y, which are returned; the caller releases r and g. */
static void run(struct test_run *r, struct dlb_graph *g, const double **x, const double **y)
{
	struct dlb_error err = { .what = "" };

	if (dlb_graph_fold(g, SAMPLES, &be, &err))
		test_die(&err);
	test_run_init(r, g, &be, SAMPLES);
	test_fill_inputs(r, 1);
	test_run_phase(r, DLB_FORWARD);
	*x = r->value[g->input[0]];
	*y = r->value[g->output[0]];
}

static void dft(const struct transform *t)
{
	const struct dlb_attr attr[] = { { .name = "inverse", .type = DLB_ATTR_INT, .i = t->inverse },
					 { .name = "onesided", .type = DLB_ATTR_INT, .i = t->onesided } };
	const int64_t length = t->length;
	struct dlb_graph g;
	struct test_run r;
	const double *x, *y;

	begin_graph(&g, 20);
	const int in[] = { sample_input(&g, DLB_F64, (int64_t[]){ 0, t->n, t->inner, t->parts }, 4),
			   length ? whole_numbers(&g, &length, 1) : -1, whole_numbers(&g, (int64_t[]){ 1 }, 1) };
	g.output[g.n_outputs++] = op(&g, "DFT", in, 3, attr, 2);
	run(&r, &g, &x, &y);
	agrees(t, x, y);
	if (!t->length && !t->onesided) { /* a product and a sum per number that is read and written */
		struct dlb_op_io io;
		struct dlb_arena a = { 0 };

		dlb_graph_io(&g, 0, SAMPLES, &a, &io);
		assert(IS(io.cls->flops(&io), ==, 2 * SAMPLES * t->inner * t->n * t->parts * t->n * 2));
		dlb_arena_release(&a);
	}
	test_run_release(&r);
	dlb_graph_release(&g);
}

/* Frames of 6 of 17 values, 4 apart, each a one-sided transform of values times a window: given, or `type`'s,
 * which is a0 - a1 cos + a2 cos of the double angle. */
static void stft(const char *type, double a0, double a1, double a2)
{
	enum { N = 17, STEP = 4, LENGTH = 6, FRAMES = (N - LENGTH) / STEP + 1, BINS = LENGTH / 2 + 1 };
	const struct dlb_attr attr = { .name = "output_datatype",
				       .type = DLB_ATTR_INT,
				       .i = dlb_dtype_to_onnx(DLB_F64) };
	const struct transform t = { .n = LENGTH, .inner = 1, .parts = 1, .onesided = true };
	double window[LENGTH] = { .1, .5, 1, .9, .4, -.2 };
	struct dlb_graph g;
	struct test_run r;
	const double *x, *y;

	for (int j = 0; type && j < LENGTH; j++)
		window[j] = a0 - a1 * cos(two_pi * j / LENGTH) + a2 * cos(2 * two_pi * j / LENGTH);
	begin_graph(&g, 17);
	const int length = whole_numbers(&g, (int64_t[]){ LENGTH }, 1);
	const int in[] = { sample_input(&g, DLB_F64, (int64_t[]){ 0, N, 1 }, 3),
			   whole_numbers(&g, (int64_t[]){ STEP }, 1),
			   type ? op(&g, type, &length, 1, &attr, 1) :
				  add_constant(&g, DLB_F64, (int64_t[]){ LENGTH }, 1, window) };
	g.output[g.n_outputs++] = op(&g, "STFT", in, 3, NULL, 0);
	run(&r, &g, &x, &y);
	for (int i = 0; i < SAMPLES * FRAMES * BINS; i++) {
		const double *from = x + i / BINS / FRAMES * N + i / BINS % FRAMES * STEP;
		double frame[LENGTH];

		for (int j = 0; j < LENGTH; j++)
			frame[j] = from[j] * window[j];
		assert(cabs(number(y, i, 2) - defined(frame, &t, 0, i % BINS, LENGTH)) < 1e-13);
	}
	test_run_release(&r);
	dlb_graph_release(&g);
}

/* Three bands of a transform of 16 values at 8 kHz, as ONNX's reference implementation gives them. */
static void mel(void)
{
	enum { BINS = 9, BANDS = 3 };
	static const double bands[BINS][BANDS] = {
		{ 1, 0, 0 }, { 0, 1, 0 }, { 0, .5, .5 }, { 0, 0, 1 }, { 0, 0, .5 }
	};
	const struct dlb_attr attr = { .name = "output_datatype",
				       .type = DLB_ATTR_INT,
				       .i = dlb_dtype_to_onnx(DLB_F64) };
	const double edge[] = { 0, 4000 };
	struct dlb_graph g;
	struct test_run r;
	const double *x, *y;

	begin_graph(&g, 17);
	const int of[] = { whole_numbers(&g, (int64_t[]){ BANDS }, 1),
			   whole_numbers(&g, (int64_t[]){ 16 }, 1), whole_numbers(&g, (int64_t[]){ 8000 }, 1),
			   add_constant(&g, DLB_F64, (int64_t[]){ 1 }, 1, &edge[0]),
			   add_constant(&g, DLB_F64, (int64_t[]){ 1 }, 1, &edge[1]) };
	const int in[] = { sample_input(&g, DLB_F64, (int64_t[]){ 0, BINS }, 2),
			   op(&g, "MelWeightMatrix", of, 5, &attr, 1) };
	g.output[g.n_outputs++] = op(&g, "MatMul", in, 2, NULL, 0);
	run(&r, &g, &x, &y);
	for (int i = 0; i < SAMPLES * BANDS; i++) {
		double sum = 0;

		for (int k = 0; k < BINS; k++)
			sum += x[i / BANDS * BINS + k] * bands[k][i % BANDS];
		assert(fabs(sum - y[i]) < 1e-13);
	}
	test_run_release(&r);
	dlb_graph_release(&g);
}

/* What a transform cannot be. */
static void refused(void)
{
	static const struct { int64_t n, parts, length; bool onesided; const char *why; } cases[] = {
		{ 5, 3, 0, false, "the last dimension is 3, not 1 (real) or 2 (complex)" },
		{ 5, 2, 0, true, "onesided: the input should be real" },
		{ 5, 1, -2, false, "dft_length is -2" },
		{ 5, 1, 1 << 28, false, "is computed by a matrix, which would have more than" },
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		const struct dlb_attr attr = { .name = "onesided", .type = DLB_ATTR_INT, .i = cases[i].onesided };
		struct dlb_error err = { .what = "" };
		struct dlb_graph g;

		begin_graph(&g, 20);
		const int in[] = { sample_input(&g, DLB_F64, (int64_t[]){ 0, cases[i].n, cases[i].parts }, 3),
				   cases[i].length ? whole_numbers(&g, &cases[i].length, 1) : -1 };
		g.output[g.n_outputs++] = op(&g, "DFT", in, 2, &attr, 1);
		assert(IS(dlb_graph_fold(&g, SAMPLES, &be, &err), ==, -1) && HAS(err.what, cases[i].why));
		dlb_graph_release(&g);
	}
}

int main(void)
{
	const char *name = getenv("DLB_TEST_BACKEND");	/* see kernels.h */
	const int n = (int)(sizeof transforms / sizeof *transforms);
	struct dlb_error err = { .what = "" };

	if (dlb_backend_open(name ? name : "cpu", 0, 1, &be, &err))
		test_die(&err);
	for (int i = 0; i < n; i++)
		dft(&transforms[i]);
	stft(NULL, 0, 0, 0);
	stft("HannWindow", .5, .5, 0);
	stft("HammingWindow", 25.0 / 46, 21.0 / 46, 0);
	stft("BlackmanWindow", .42, .5, .08);
	mel();
	refused();
	be.ops->close(&be);
	printf("%d transforms, and frames of a signal with four windows, agree with their sums\n", n);
	return 0;
}
