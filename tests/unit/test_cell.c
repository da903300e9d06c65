/* One step of recurrent cells against its definition (ONNX's RNN, GRU and LSTM), and its gradients against
 * central differences of the definition. The recurrent weights are a diagonal matrix, so that a unit
 * depends on itself. */
#include "check.h"
#include "kernels.h"

enum { H = 300, PLANE = 311, GATES = 4, PLANES = 6, N_LISTS = 3 }; /* more units than threads of a block */

/* Inputs of all units: gates' parts from the input and from the state, biases, peepholes, states; and the
 * gradients of the states after the step. */
struct cell {
	struct dlb_cell_desc d;
	double x[GATES * H], rec[GATES * H], b[GATES * H], peep[N_LISTS * H], hp[H], cp[H], w[H], dh[H],
		dc[H];
};
/* Planes of one unit, as the kernel writes them. */
struct unit {
	double s[PLANES];
};

static double act(int f, double x)
{
	return f == DLB_CELL_RELU ? fmax(x, 0) : f == DLB_CELL_TANH ? tanh(x) : 1 / (1 + exp(-x));
}

/* ---- definition ---- */
static bool is_gru(const struct cell *c) { return c->d.loop == DLB_CELL_GRU; }

static struct unit define(const struct cell *c, int j)
{
	const int *f = c->d.act;
	struct unit u = { { 0 } };
	double v[GATES];

	for (int g = 0; g < GATES; g++)
		v[g] = c->x[g * H + j] + c->rec[g * H + j] + c->b[g * H + j];
	if (c->d.loop == DLB_CELL_RNN) {
		u.s[0] = act(f[0], v[0]);
	} else if (is_gru(c)) {
		const double z = act(f[0], v[0]), r = act(f[0], v[1]);
		const double more = c->d.joint ? r * (c->rec[2 * H + j] + c->b[3 * H + j]) :
						 r * c->hp[j] * c->w[j] + c->b[3 * H + j];
		const double n = act(f[1], c->x[2 * H + j] + c->b[2 * H + j] + more);

		u = (struct unit){ { z, r, n, c->d.joint ? c->rec[2 * H + j] + c->b[3 * H + j] : r * c->hp[j],
				     (1 - z) * n + z * c->hp[j] } };
	} else {
		const bool p = c->d.peepholes;
		const double cp = c->cp[j], i = act(f[0], v[0] + (p ? c->peep[j] * cp : 0));
		const double keep = c->d.coupled ? 1 - i :
						   act(f[0], v[2] + (p ? c->peep[2 * H + j] * cp : 0));
		const double g = act(f[1], v[3]), now = keep * cp + i * g;
		const double o = act(f[0], v[1] + (p ? c->peep[H + j] * now : 0));

		u = (struct unit){ { i, o, keep, g, now, o * act(f[2], now) } };
	}
	return u;
}

static double loss(const struct cell *c, int j)
{
	const struct unit u = define(c, j);

	return c->d.loop == DLB_CELL_RNN ? c->dh[j] * u.s[0] :
	       is_gru(c)                 ? c->dh[j] * u.s[4] :
					   c->dh[j] * u.s[5] + c->dc[j] * u.s[4];
}

/* Derivative of unit j's loss by a number of the cell. */
static double slope(struct cell *c, double *of, int j)
{
	const double old = *of, h = 1e-5;
	double most, least;

	*of = old + h;
	most = loss(c, j);
	*of = old - h;
	least = loss(c, j);
	*of = old;
	return (most - least) / (2 * h);
}

/* ---- kernels ---- */
/* An operand of type t in memory. */
static void *given(enum dlb_dtype t, const double *v, int n)
{
	unsigned char *base, *p = buffer((size_t)n * 8, 0, &base);

	for (int i = 0; i < n && v; i++)
		dlb_value_set(p, t, i, v[i]);
	return p;
}

static void run(const struct cell *c, enum dlb_cell_loop loop, void *const *in, void *const *out)
{
	struct dlb_cell_desc d = c->d;
	struct dlb_kernel *k;

	d.loop = loop;
	MUST(be.ops->cell(&be, &d, &k, &err_));
	k->run(k, &(struct dlb_run){ .in = in, .out = out });
	MUST(be.ops->sync(&be, &err_));
	dlb_kernel_free(k);
	n_checks++;
}

static void near(const struct cell *c, const char *what, int i, const void *p, int at, double want,
		 double tolerance)
{
	const double got = dlb_value_real(p, c->d.dtype, at);

	if (fabs(got - want) <= tolerance * (1 + fabs(want)))
		return;
	fprintf(stderr,
		"cell loop %d of %s, activations %d %d %d, coupled %d, joint %d, peepholes %d: %s %d at %d "
		"is "
		"%.17g, expected %.17g\n",
		c->d.loop, dlb_dtype_name(c->d.dtype), c->d.act[0], c->d.act[1], c->d.act[2], c->d.coupled,
		c->d.joint, c->d.peepholes, what, i, at, got, want);
	abort();
}

/* The product of a list in memory with the diagonal of recurrent weights. */
static void diagonal(const struct cell *c, const void *from, int at, void *to)
{
	for (int j = 0; j < H; j++)
		dlb_value_set(to, c->d.dtype, j, dlb_value_real(from, c->d.dtype, at + j) * c->w[j]);
}

static void forward(const struct cell *c, void *const *in, void *s)
{
	const double tolerance = c->d.dtype == DLB_F32 ? 3e-6 : 1e-13;
	const int planes = c->d.loop == DLB_CELL_RNN ? 1 : is_gru(c) ? 5 : 6;

	run(c, c->d.loop, in, (void *const[]){ s, NULL });
	if (is_gru(c)) {
		void *rec = given(c->d.dtype, NULL, H);
		void *then[] = { NULL, rec, in[2], NULL, in[4], NULL, NULL };

		diagonal(c, s, 3 * PLANE, rec);
		run(c, DLB_CELL_GRU_CANDIDATE, then, (void *const[]){ s, NULL });
		free(rec);
	}
	for (int j = 0; j < H; j++)
		for (int p = 0; p < planes; p++)
			near(c, "plane", p, s, p * PLANE + j, define(c, j).s[p], tolerance);
}

/* The gradients of x, of the previous state, and for GRU of rec. */
static void backward(struct cell *c, void *s, void *const *in)
{
	const enum dlb_dtype t = c->d.dtype;
	const double tolerance = t == DLB_F32 ? 2e-5 : 1e-8;
	const bool rnn = c->d.loop == DLB_CELL_RNN, gru = is_gru(c);
	const int gates = rnn ? 1 : gru ? 3 : 4;
	void *dh = given(t, c->dh, H), *dc = given(t, c->dc, H), *dx = given(t, NULL, GATES * H),
	     *dr = given(t, NULL, GATES * H), *drh = given(t, NULL, H);
	void *from[] = { s, in[4], in[5], in[3], drh, NULL, NULL }, *out[] = { dh, dc, dx, dr, NULL };

	run(c, rnn ? DLB_CELL_RNN_GRAD : gru ? DLB_CELL_GRU_GRAD : DLB_CELL_LSTM_GRAD, from, out);
	if (gru && !c->d.joint) {
		diagonal(c, dx, 2 * H, drh);
		run(c, DLB_CELL_GRU_GRAD_RESET, from, out);
	}
	for (int j = 0; j < H; j++) {
		for (int g = 0; g < gates; g++)
			near(c, "dx of gate", g, dx, g * H + j, slope(c, &c->x[g * H + j], j), tolerance);
		for (int g = 0; gru && g < (c->d.joint ? 3 : 2); g++)
			near(c, "dr of gate", g, dr, g * H + j, slope(c, &c->rec[g * H + j], j), tolerance);
		near(c, "dh", 0, dh, j, gru ? slope(c, &c->hp[j], j) : 0, tolerance);
		if (!rnn && !gru)
			near(c, "dc", 0, dc, j, slope(c, &c->cp[j], j), tolerance);
	}
	free(dh), free(dc), free(dx), free(dr), free(drh);
}

static void one(struct dlb_cell_desc d)
{
	struct cell *c = dlb_xcalloc(1, sizeof *c);
	double *const list[] = { c->x, c->rec, c->b, c->peep, c->hp, c->cp, c->w, c->dh, c->dc };
	const int n[] = { GATES * H, GATES * H, GATES * H, N_LISTS * H, H, H, H, H, H };
	unsigned char *base, *s = buffer((size_t)PLANES * PLANE * 8, 0, &base);

	c->d = d;
	for (int l = 0; l < DLB_LEN(list); l++)
		for (int i = 0; i < n[l]; i++)
			list[l][i] = rounded(d.dtype, 2 * dlb_rng_uniform(&rng) - 1);
	void *in[7] = { NULL };
	for (int i = 0; i < 6; i++)
		in[i] = i == 3 && !d.peepholes ? NULL : given(d.dtype, list[i], n[i]);
	forward(c, in, s);
	backward(c, s, in);
	for (int i = 0; i < 6; i++)
		free(in[i]);
	free(base);
	free(c);
}

/* Three samples at time 1, of which one has ended, have the bits of a run for each; the ended one keeps its state and
 * adds nothing to the gradients. */
static void together(enum dlb_cell_loop loop, bool back)
{
	enum { N = 3, ALL = N * GATES * H };
	const int32_t length[N] = { 2, 1, 3 };
	const bool lstm = loop == DLB_CELL_LSTM || loop == DLB_CELL_LSTM_GRAD;
	const int64_t row_in[6] = { back ? H : 4 * H, back ? H : 4 * H, back ? H : 0, 0, H, H },
		      row_out[5] = { H, H, 4 * H, 4 * H, 0 };
	struct dlb_cell_desc d = { .dtype = DLB_F64, .length = DLB_I32, .loop = loop, .n = N, .h = H, .plane = N * H,
				   .x_row = 4 * H, .rec_row = 4 * H, .y_row = H, .peepholes = lstm,
				   .act = { DLB_CELL_SIGMOID, DLB_CELL_TANH, DLB_CELL_TANH } };
	double *in[7] = { NULL }, *one[5], *all[5];
	struct dlb_kernel *k;

	for (int i = 0; i < 6 + 5; i++) {
		double *v = dlb_xcalloc(2 * ALL, sizeof *v);

		for (int j = 0; j < 2 * ALL; j++)
			v[j] = 2 * dlb_rng_uniform(&rng) - 1;
		*(i < 6 ? &in[i] : &all[i - 6]) = v;
		if (i >= 6)
			one[i - 6] = memcpy(dlb_xcalloc(2 * ALL, sizeof *v), v, 2 * ALL * sizeof *v);
	}
	void *const lens = (void *)length;
	for (int n = -1; n < N; n++) {			/* all, then each */
		void *from[7], *to[5];
		const int s = n < 0 ? 0 : n;

		d.n = n < 0 ? N : 1;
		for (int i = 0; i < 6; i++)
			from[i] = i == 3 && !lstm ? NULL : in[i] + s * row_in[i];
		from[6] = n < 0 ? lens : NULL;
		for (int i = 0; i < 5; i++)
			to[i] = i == 4 && !(lstm && back) ? NULL : (n < 0 ? all : one)[i] + s * row_out[i];
		if (n == 1)
			continue;
		MUST(be.ops->cell(&be, &d, &k, &err_));
		k->run(k, &(struct dlb_run){ .in = from, .out = to, .step = 1 });
		MUST(be.ops->sync(&be, &err_));
		dlb_kernel_free(k);
		n_checks++;
	}
	for (int i = 0; i < (back ? 4 : 2); i++)
		for (int n = 0; n < N; n += 2)
			if (memcmp(all[i] + n * row_out[i], one[i] + n * row_out[i], H * sizeof(double)))
				abort();
	for (int j = 0; j < H; j++) {
		if (back ? all[2][4 * H + j] != 0 || all[0][H + j] != one[0][H + j] : all[1][H + j] != 0)
			abort();
		if (back && lstm && all[4][j] != one[4][j])
			abort();
		if (!back && all[0][(loop == DLB_CELL_RNN ? 0 : 5) * N * H + H + j] != in[4][H + j])
			abort();
	}
	for (int i = 0; i < 6 + 5; i++)
		free(i < 6 ? in[i] : all[i - 6]);
	for (int i = 0; i < 5; i++)
		free(one[i]);
}

int main(void)
{
	static const enum dlb_cell_loop loops[] = { DLB_CELL_RNN, DLB_CELL_GRU, DLB_CELL_LSTM };
	static const int acts[][3] = { { DLB_CELL_SIGMOID, DLB_CELL_TANH, DLB_CELL_TANH },
				       { DLB_CELL_TANH, DLB_CELL_SIGMOID, DLB_CELL_SIGMOID },
				       { DLB_CELL_RELU, DLB_CELL_RELU, DLB_CELL_RELU } };

	begin_tests(20261121);
	for (int i = 0; use_level(i); i++)
		for (int t = DLB_F32; t <= DLB_F64; t++)
			for (int l = 0; l < DLB_LEN(loops); l++)
				for (int f = 0; f < DLB_LEN(acts); f++)
					for (int option = 0; option < 4; option++)
						one((struct dlb_cell_desc){
							.dtype = t,
							.loop = loops[l],
							.length = DLB_I32,
							.n = 1,
							.h = H,
							.plane = PLANE,
							.act = { acts[f][0], acts[f][1], acts[f][2] },
							.coupled = option & 1,
							.joint = option & 1,
							.peepholes = option & 2 &&
								     loops[l] == DLB_CELL_LSTM });
	for (int i = 0; i < 4; i++)
		together((enum dlb_cell_loop[]){ DLB_CELL_RNN, DLB_CELL_RNN_GRAD, DLB_CELL_LSTM,
						 DLB_CELL_LSTM_GRAD }[i], i & 1);
	be.ops->close(&be);
	printf("%ld steps of cells agree with their definition\n", n_checks);
	return 0;
}
