/* K-FAC: its matrices against plain sums and solutions in double, its rules for matrices that cannot be
 * inverted, and the layers of a model that it supports. */
#include "check.h"
#include "kernels.h"

#include "graph/graph.h"
#include "optim/kfac.h"
#include "tensor/kfac.h"
#include "tensor/spd.h"

enum { MOST = 12 };

static double uniform(void) { return 2 * dlb_rng_uniform(&rng) - 1; }

/* M (n,n) full from a lower triangle of type t. */
static void full(enum dlb_dtype t, int n, const void *lower, double *m)
{
	for (int i = 0; i < n; i++)
		for (int j = 0; j <= i; j++)
			m[i * n + j] = m[j * n + i] = dlb_value_real(lower, t, i * n + j);
}

static double tolerance(enum dlb_dtype t) { return t == DLB_F64 ? 1e-11 : 2e-3; }

/* Two micro-batches of random inputs: sums, average, inverse, product, each against its definition. */
static void definitions(enum dlb_dtype t, bool bias, bool by_input)
{
	enum { ROWS = 40, W = 6, G = 5 };
	const int n = W + bias;
	double x[2][ROWS * W], gy[ROWS * G], store[7][MOST * MOST] = { { 0 } }, work[2 * MOST * MOST],
							     a[MOST * MOST], g[MOST * MOST];
	void *xs[2] = { malloc(sizeof x[0]), malloc(sizeof x[0]) }, *gs = malloc(sizeof gy);
	void *sum = store[0], *average = store[1], *ai = store[2], *gsum = store[3], *gaverage = store[4],
	     *gi = store[5];
	double dw[W * G], db[G], want[G * MOST];
	void *dws = malloc(sizeof dw), *dbs = malloc(sizeof db);

	for (int m = 0; m < 2; m++) {
		for (int i = 0; i < ROWS * W; i++)
			dlb_value_set(xs[m], t, i, x[m][i] = rounded(t, uniform()));
		dlb_kfac_sum(&(struct dlb_kfac_vectors){ .dtype = t,
							 .images = ROWS,
							 .positions = 1,
							 .n = n,
							 .groups = 1,
							 .bias = bias },
			     m == 0, xs[m], sum, NULL);
	}
	for (int i = 0; i < ROWS * G; i++)
		dlb_value_set(gs, t, i, gy[i] = rounded(t, uniform()));
	dlb_kfac_sum(&(struct dlb_kfac_vectors){ .dtype = t,
						 .images = ROWS,
						 .positions = 1,
						 .n = G,
						 .groups = 1 },
		     true, gs, gsum, NULL);
	full(t, n, sum, a);
	for (int i = 0; i < n; i++)
		for (int j = 0; j < n; j++) {
			double s = 0;

			for (int r = 0; r < 2 * ROWS; r++)
				s += (i < W ? x[r / ROWS][r % ROWS * W + i] : 1) *
				     (j < W ? x[r / ROWS][r % ROWS * W + j] : 1);
			assert(IS(fabs(a[i * n + j] - s), <, tolerance(t) * ROWS / 10));
		}
	/* the first average is the sum, the second one a mixture */
	assert(!dlb_kfac_average(t, n, 0, 1.0 / (2 * ROWS), sum, average) &&
	       !dlb_kfac_average(t, n, 0.75, 2.0 / (2 * ROWS), sum, average));
	full(t, n, average, g);
	for (int i = 0; i < n * n; i++)
		assert(IS(fabs(g[i] - a[i] * 1.25 / (2 * ROWS)), <, tolerance(t)));
	memcpy(a, g, sizeof a);
	assert(!dlb_kfac_average(t, G, 0, 1.0 / ROWS, gsum, gaverage));
	full(t, G, gaverage, g);
	assert(IS(dlb_kfac_invert(t, n, 0.01, average, ai, work), ==, 0) &&
	       IS(dlb_kfac_invert(t, G, 0.01, gaverage, gi, work), ==, 0));
	for (int i = 0; i < n; i++)		/* inverse times (A + damping I) */
		for (int j = 0; j < n; j++) {
			double s = 0;

			for (int k = 0; k < n; k++)
				s += dlb_value_real(ai, t, i * n + k) * (a[k * n + j] + (k == j) * 0.01);
			assert(IS(fabs(s - (i == j)), <, tolerance(t)));
		}
	for (int i = 0; i < W * G; i++)
		dlb_value_set(dws, t, i, dw[i] = rounded(t, uniform()));
	for (int i = 0; i < G; i++)
		dlb_value_set(dbs, t, i, db[i] = rounded(t, uniform()));
	for (int i = 0; i < G; i++)
		for (int j = 0; j < n; j++) {
			want[i * n + j] = 0;
			for (int p = 0; p < G; p++)
				for (int q = 0; q < n; q++)
					want[i * n + j] += dlb_value_real(gi, t, i * G + p) *
							   dlb_value_real(ai, t, q * n + j) *
							   (q == W ? db[p] :
								     dw[by_input ? q * G + p : p * W + q]);
		}
	const struct dlb_kfac_inverses inverses = { t, n, G, by_input, ai, gi };
	dlb_kfac_precondition(&inverses, dws, bias ? dbs : NULL, work);
	for (int i = 0; i < G; i++)
		for (int j = 0; j < n; j++) {
			double got = j == W ? dlb_value_real(dbs, t, i) :
					      dlb_value_real(dws, t, by_input ? j * G + i : i * W + j);

			assert(IS(fabs(got - want[i * n + j]), <=,
				  tolerance(t) * (1 + fabs(want[i * n + j]))));
		}
	free(xs[0]);
	free(xs[1]);
	free(gs);
	free(dws);
	free(dbs);
	n_checks++;
}

/* Sums over patches of a convolution, and over rows or columns, against loops over images and positions, for
 * two micro-batches, each group separately. Shape: images, channels of a group, height, width; kernel,
 * stride, dilation, padding before and after. */
static void positions(enum dlb_dtype t, enum dlb_layout layout, bool bias, int groups, const int64_t *s)
{
	const int64_t images = s[0], c = s[1], k = s[4],
		      out[2] = { (s[2] + s[7] + s[8] - (k - 1) * s[6] - 1) / s[5] + 1,
				 (s[3] + s[7] + s[8] - (k - 1) * s[6] - 1) / s[5] + 1 };
	const int taps = (int)(c * k * k), n = taps + bias;
	struct dlb_conv_desc d = { .x = desc(t, layout, 4, DIMS(images, groups * c, s[2], s[3])),
				   .y = desc(t, layout, 4, DIMS(images, groups * 3, out[0], out[1])),
				   .w = desc(t, DLB_PLAIN, 4, DIMS(groups * 3, c, k, k)),
				   .groups = groups,
				   .stride = { s[5], s[5] },
				   .dilation = { s[6], s[6] },
				   .pad_begin = { s[7], s[7] },
				   .pad_end = { s[8], s[8] } };
	struct dlb_kfac_vectors v = { .lie = DLB_KFAC_PATCHES,
				      .dtype = t,
				      .images = images,
				      .positions = out[0] * out[1],
				      .n = n,
				      .groups = groups,
				      .bias = bias,
				      .conv = d };
	const int64_t count = dlb_desc_count(&d.x);
	double *want = zeros(groups * n * n), *row = zeros(n);
	void *x = malloc((size_t)count * 8), *sum = calloc((size_t)(groups * n * n), 8),
	     *work = malloc(dlb_kfac_sum_bytes(&v) + 1);
	int64_t stride[DLB_MAX_DIMS];

	dlb_desc_strides(&d.x, stride);
	for (int m = 0; m < 2; m++) {
		for (int64_t i = 0; i < count; i++)
			dlb_value_set(x, t, i, uniform());
		dlb_kfac_sum(&v, m == 0, x, sum, work);
		for (int64_t p = 0; p < groups * images * v.positions; p++) {
			const int64_t y = p % v.positions / out[1] * s[5] - s[7],
				      z = p % out[1] * s[5] - s[7];
			const int64_t image = p / v.positions % images, group = p / v.positions / images;
			row[taps] = 1;
			for (int i = 0; i < taps; i++) {
				const int64_t h = y + i / k % k * s[6], w = z + i % k * s[6];
				const bool inside = h >= 0 && h < s[2] && w >= 0 && w < s[3];
				row[i] = inside ? dlb_value_real(x, t,
								 image * stride[0] +
									 (group * c + i / (k * k)) *
										 stride[1] +
									 h * stride[2] + w * stride[3]) :
						  0;
			}
			for (int i = 0; i < n; i++)
				for (int j = 0; j <= i; j++)
					want[(group * n + i) * n + j] += row[i] * row[j];
		}
	}
	for (int i = 0; i < groups * n; i++)
		for (int j = 0; j <= i % n; j++)
			assert(IS(fabs(dlb_value_real(sum, t, i * n + j) - want[i * n + j]), <=,
				  (t == DLB_F64 ? 1e-12 : 1e-5) * (1 + fabs(want[i * n + j])) * 10));
	/* The same x as vectors of c numbers per group, in its layout. */
	v = (struct dlb_kfac_vectors){ .lie = layout == DLB_CHANNELS_LAST ? DLB_KFAC_ROWS : DLB_KFAC_COLUMNS,
				       .dtype = t,
				       .images = images,
				       .positions = s[2] * s[3],
				       .n = (int)c,
				       .groups = groups };
	dlb_kfac_sum(&v, true, x, sum, NULL);
	for (int i = 0; i < groups * c; i++)
		for (int j = 0; j <= i % c; j++) {
			const int64_t other = i / c * c + j;
			double e = 0;

			for (int64_t p = 0; p < images * v.positions; p++) {
				const int64_t at = p / v.positions * stride[0] +
						   p % v.positions / s[3] * stride[2] + p % s[3] * stride[3];
				e += dlb_value_real(x, t, at + i * stride[1]) *
				     dlb_value_real(x, t, at + other * stride[1]);
			}
			assert(IS(fabs(dlb_value_real(sum, t, i * c + j) - e), <=,
				  (t == DLB_F64 ? 1e-12 : 1e-5) * (1 + fabs(e)) * 10));
		}
	free(want);
	free(row);
	free(x);
	free(sum);
	free(work);
	n_checks++;
}

/* From the Cholesky factor of the reversed matrix, K-FAC computes the inverse of the matrix. */
static void from_factor(int n)
{
	float *a = calloc((size_t)(n * n), sizeof *a), *l = calloc((size_t)dlb_rfp_count(n), sizeof *l),
	      *x = calloc((size_t)(n * n), sizeof *x);
	float *inverse = calloc((size_t)(n * n), sizeof *a), *want = calloc((size_t)(n * n), sizeof *a);
	double *work = calloc((size_t)(n * n), sizeof *work);

	for (int i = 0; i < n * n; i++)
		x[i] = (float)uniform();
	for (int i = 0; i < n; i++)
		for (int j = 0; j < n; j++)
			for (int k = 0; k < n; k++)
				a[i * n + j] += x[i * n + k] * x[j * n + k] / (float)n + (k == i && i == j);
	assert(IS(dlb_kfac_invert(DLB_F32, n, 0, a, want, work), ==, 0));
	dlb_rfp_pack(n, a, true, l);
	assert(IS(dlb_rfp_factor(n, l), ==, 0) && IS(dlb_kfac_invert_factor(n, l, inverse, work), ==, 0));
	for (int i = 0; i < n * n; i++)
		assert(IS(fabsf(inverse[i] - want[i]), <, 1e-5f));
	memcpy(x, inverse, (size_t)(n * n) * sizeof *x);
	l[dlb_rfp_at(n, n - 1, 0)] = NAN;
	assert(IS(dlb_kfac_invert_factor(n, l, inverse, work), ==, -1) &&
	       !memcmp(x, inverse, (size_t)(n * n) * sizeof *x));
	free(a);
	free(l);
	free(x);
	free(inverse);
	free(want);
	free(work);
	n_checks++;
}

/* Not positive definite: the shift of the diagonal; not finite: nothing changes. */
static void failures(void)
{
	enum { N = 4 };
	double a[N * N] = { 0 }, inverse[N * N], before[N * N], work[N * N], sum[N * N] = { 0 };

	for (int i = 0; i < N * N; i++)
		inverse[i] = before[i] = uniform();
	for (int i = 0; i < N; i++)
		a[i * N + i] = 1;
	/* eigenvalue -e: only a shift beyond e helps; the mean diagonal is about 1 */
	static const struct {
		double e;
		int shifts;
	} row[] = { { -0.5, 0 }, { 5e-8, 1 }, { 5e-6, 2 }, { 5e-4, 3 }, { 0.5, -1 } };
	for (int k = 0; k < DLB_LEN(row); k++) {
		a[N * N - 1] = -row[k].e * 0.7;		/* the mean diagonal is at least 0.65 */
		memcpy(inverse, before, sizeof inverse);
		assert(IS(dlb_kfac_invert(DLB_F64, N, 0, a, inverse, work), ==, row[k].shifts));
		assert(!memcmp(inverse, before, sizeof inverse) == (row[k].shifts < 0));
		n_checks++;
	}
	a[N * N - 1] = 1;
	a[N] = NAN;
	assert(IS(dlb_kfac_invert(DLB_F64, N, 0, a, before, work), ==, -1));
	memcpy(before, a, sizeof a);
	a[N] = 0;
	memcpy(inverse, a, sizeof a);
	sum[N + 1] = INFINITY;
	assert(IS(dlb_kfac_average(DLB_F64, N, 0.5, 1, sum, a), ==, -1) && !memcmp(a, inverse, sizeof a));
	sum[N + 1] = 3;
	assert(IS(dlb_kfac_average(DLB_F64, N, 0.5, 1, sum, a), ==, 0) && IS(a[N + 1], ==, 2));
	n_checks += 3;
}

/* h = Relu(x); y = Gemm(h, w, b), or y = Gemm(Gemm(h, w), w) if the weight is shared; the gradients, two
 * updates. */
static int tensor(struct dlb_graph *g, const char *name, enum dlb_tensor_kind kind, int n_dims, int64_t mul,
		  int64_t rows, int64_t columns)
{
	const int t = dlb_graph_add_tensor(g, name, kind);

	g->tensor[t].dtype = DLB_F32;
	g->tensor[t].n_dims = n_dims;
	g->tensor[t].dim[0] = (struct dlb_dim){ mul, rows };
	g->tensor[t].dim[1] = (struct dlb_dim){ 0, columns };
	return t;
}

static int add(struct dlb_graph *g, const char *name, const char *type, enum dlb_phase phase, int a, int b,
	       int c, int out, int of)
{
	const struct dlb_attr trans_b = { .name = "transB", .type = DLB_ATTR_INT, .i = 1 };
	const int in[3] = { a, b, c };
	const bool dense = phase == DLB_FORWARD && !strcmp(type, "Gemm");
	const int op = dlb_graph_add_op(g, phase,
					&(struct dlb_op_spec){ .name = name, .type = type,
							       .domain = phase == DLB_UPDATE ? "dlb" : "",
							       .in = in, .n_in = c >= 0 ? 3 : b >= 0 ? 2 : 1,
							       .out = &out, .n_out = out >= 0,
							       .attr = &trans_b, .n_attr = dense });

	g->op[op].of = of;
	return op;
}

static void layers(bool shared, bool fed)
{
	struct dlb_graph g;
	struct dlb_kfac_layer *l;
	int n, x, h, w, b, y, dy, dw, db, dense;

	dlb_graph_init(&g);
	x = tensor(&g, "x", DLB_T_INPUT, 2, 1, 0, 6);
	h = fed ? x : tensor(&g, "h", DLB_T_ACTIVATION, 2, 1, 0, 6);
	w = tensor(&g, "w", DLB_T_WEIGHT, 2, 0, 5, 6);
	b = tensor(&g, "b", DLB_T_WEIGHT, 1, 0, 5, 0);
	y = tensor(&g, "y", DLB_T_ACTIVATION, 2, 1, 0, 5);
	dy = tensor(&g, "dy", DLB_T_GRADIENT, 2, 1, 0, 5);
	dw = tensor(&g, "dw", DLB_T_WEIGHT_GRADIENT, 2, 0, 5, 6);
	db = tensor(&g, "db", DLB_T_WEIGHT_GRADIENT, 1, 0, 5, 0);
	if (!fed)
		add(&g, "relu", "Relu", DLB_FORWARD, x, -1, -1, h, -1);
	dense = add(&g, "dense", "Gemm", DLB_FORWARD, h, w, b, y, -1);
	if (shared)
		add(&g, "again", "Gemm", DLB_FORWARD, h, w, b, tensor(&g, "z", DLB_T_ACTIVATION, 2, 1, 0, 5),
		    -1);
	add(&g, "loss", "Relu", DLB_BACKWARD, y, -1, -1, dy, -1);
	add(&g, "dense.dw", "Gemm", DLB_BACKWARD, dy, h, -1, dw, dense);
	add(&g, "dense.db", "ReduceSum", DLB_BACKWARD, dy, -1, -1, db, dense);
	g.tensor[w].home = add(&g, "w.update", "Update", DLB_UPDATE, w, dw, -1, -1, dense);
	g.tensor[b].home = add(&g, "b.update", "Update", DLB_UPDATE, b, db, -1, -1, dense);
	for (int again = 0; again < 2; again++) {
		const struct dlb_op *u = &g.op[g.tensor[w].home];

		dlb_kfac_bind(&g);
		l = dlb_kfac_layers(&g, &n);
		assert(n == !shared && IS(u->n_in, ==, (n ? 4 : 2)));
		if (n) {
			assert(IS(l->update, ==, g.tensor[w].home) &&
			       IS(l->bias_update, ==, g.tensor[b].home) && !l->by_input);
			assert(IS(l->n_uses, ==, 1) && IS(l->use[0].x[0], ==, h) &&
			       IS(l->use[0].x[1], ==, dy) && IS(l->n[0], ==, 7) && IS(l->n[1], ==, 5));
			assert(IS(u->in[0], ==, w) && IS(u->in[1], ==, dw) && IS(u->in[2], ==, h) &&
			       IS(u->in[3], ==, dy));
			assert(IS(dlb_kfac_layer_of(&g, l->update), ==, l->update) &&
			       IS(dlb_kfac_layer_of(&g, l->bias_update), ==, l->update));
			assert(IS(dlb_kfac_layer_of(&g, dense), ==, -1) &&
			       IS(dlb_kfac_moment_of(&g, l->update, dy), ==, DLB_KFAC_G));
			assert(IS(dlb_kfac_moment_of(&g, l->update, h), ==, DLB_KFAC_A) &&
			       IS(dlb_kfac_moment_of(&g, l->update, dw), ==, -1));
			assert(IS(dlb_kfac_layer_at(&g, l->update).n[0], ==, 7) &&
			       IS(dlb_kfac_state_bytes(&g, l->update), ==, 4 * 3 * (49 + 25)));
			assert(!dlb_kfac_operand(u, 1) && dlb_kfac_operand(u, 2) &&
			       IS(g.op[g.tensor[b].home].n_in, ==, 2));
		}
		free(l);
	}
	dlb_graph_release(&g);
	n_checks++;
}

/* (batch, 4, 6) times (6, 5) plus a bias; or a convolution of 6 channels with 5 kernels of 2 x 3, or with 2
 * kernels per group. fed: its input is the model's. n: number of layers that K-FAC finds; why: its reason for
 * leaving the weight. */
static void other_layers(bool conv, int64_t groups, bool fed, const char *why)
{
	struct dlb_graph g;
	struct dlb_kfac_layer *all;
	int n, x, h, w, b, y, z, dz, dw, db, product;
	const int64_t outs = groups == 1 ? 5 : 2 * groups;
	struct dlb_attr group = { .name = "group", .type = DLB_ATTR_INT, .i = groups };

	dlb_graph_init(&g);
	x = tensor(&g, "x", DLB_T_INPUT, 2, 1, 0, conv ? 6 : 4);
	h = fed ? x : tensor(&g, "h", DLB_T_ACTIVATION, 2, 1, 0, conv ? 6 : 4);
	w = tensor(&g, "w", DLB_T_WEIGHT, 2, 0, conv ? outs : 6, conv ? 6 / groups : 5);
	b = tensor(&g, "b", DLB_T_WEIGHT, 1, 0, outs, 0);
	y = tensor(&g, "y", DLB_T_ACTIVATION, 2, 1, 0, conv ? outs : 4);
	z = conv ? y : tensor(&g, "z", DLB_T_ACTIVATION, 2, 1, 0, 4);
	dz = tensor(&g, "dz", DLB_T_GRADIENT, 2, 1, 0, conv ? outs : 4);
	dw = tensor(&g, "dw", DLB_T_WEIGHT_GRADIENT, 2, 0, conv ? outs : 6, conv ? 6 / groups : 5);
	db = tensor(&g, "db", DLB_T_WEIGHT_GRADIENT, 1, 0, outs, 0);
	const struct { int t; int64_t last[2];
	} more[] = {
		{ x, { conv ? 7 : 6, 8 } }, { h, { conv ? 7 : 6, 8 } },  { y, { conv ? 6 : 5, 6 } },
		{ z, { conv ? 6 : 5, 6 } }, { dz, { conv ? 6 : 5, 6 } }, { w, { 2, 3 } },
		{ dw, { 2, 3 } },
	};
	for (int i = 0; i < (conv ? 7 : 5); i++) {
		struct dlb_tensor *t = &g.tensor[more[i].t];

		t->n_dims = conv ? 4 : 3;
		for (int k = 0; k < 1 + conv; k++)
			t->dim[2 + k] = (struct dlb_dim){ 0, more[i].last[k] };
	}
	if (!fed)
		add(&g, "relu", "Relu", DLB_FORWARD, x, -1, -1, h, -1);
	product = add(&g, "product", conv ? "Conv" : "MatMul", DLB_FORWARD, h, w, conv ? b : -1, y, -1);
	g.op[product].attr = &group;
	g.op[product].n_attr = conv;
	if (!conv)
		add(&g, "bias", "Add", DLB_FORWARD, y, b, -1, z, -1);
	add(&g, "loss", "Relu", DLB_BACKWARD, z, -1, -1, dz, -1);
	if (conv)
		add(&g, "product.dw", "ConvGradWeight", DLB_BACKWARD, dz, h, -1, dw, product);
	else
		add(&g, "product.dw", "MatMulT", DLB_BACKWARD, h, dz, -1, dw, product);
	add(&g, "product.db", "ReduceSum", DLB_BACKWARD, dz, -1, -1, db, product);
	g.tensor[w].home = add(&g, "w.update", "Update", DLB_UPDATE, w, dw, -1, -1, product);
	g.tensor[b].home = add(&g, "b.update", "Update", DLB_UPDATE, b, db, -1, -1, product);
	dlb_kfac_bind(&g);
	all = dlb_kfac_layers(&g, &n);
	assert(n == !why && IS(dlb_kfac_left(&g, g.tensor[b].home), ==, NULL));
	assert(why ? strcmp(dlb_kfac_left(&g, g.tensor[w].home), why) == 0 :
		     dlb_kfac_left(&g, g.tensor[w].home) == NULL);
	assert(IS(dlb_kfac_layer_of(&g, g.tensor[b].home), ==, (why ? -1 : g.tensor[w].home)));
	if (n) {
		const struct dlb_kfac_vectors v = dlb_kfac_vectors(&g, all, DLB_KFAC_A, 3),
					      u = dlb_kfac_vectors(&g, all, DLB_KFAC_G, 3);

		assert(IS(all->use[0].x[0], ==, h) && IS(all->use[0].x[1], ==, dz) &&
		       IS(all->groups, ==, groups) && IS(all->n[0], ==, (conv ? 36 / groups + 1 : 7)) &&
		       IS(all->n[1], ==, outs / groups) && all->by_input == !conv);
		assert(IS(all->bias_update, ==, g.tensor[b].home) &&
		       IS(dlb_kfac_rows(&g, all, 3), ==, (conv ? 3 * 36 : 3 * 4)) &&
		       IS(dlb_kfac_terms(&g, 3), ==, 3));
		assert(v.bias && IS(v.n, ==, all->n[0]) && !u.bias && IS(u.n, ==, outs / groups) &&
		       IS(u.groups, ==, groups) && IS(u.images * u.positions, ==, dlb_kfac_rows(&g, all, 3)));
		assert(IS(v.lie, ==, (conv ? DLB_KFAC_PATCHES : DLB_KFAC_ROWS)) &&
		       IS(u.lie, ==, (conv ? DLB_KFAC_COLUMNS : DLB_KFAC_ROWS)));
	}
	free(all);
	dlb_graph_release(&g);
	n_checks++;
}

int main(void)
{
	struct dlb_error err;

	dlb_rng_init(&rng, 7);
	if (dlb_backend_find("cpu")->open(0, 1, &be, &err))
		return 1;
	for (int t = DLB_F32; t <= DLB_F64; t++)
		for (int k = 0; k < 4; k++)
			definitions((enum dlb_dtype)t, k & 1, k & 2);
	static const int64_t shapes[][9] = {
		{ 3, 2, 5, 6, 3, 1, 1, 1, 1 },   { 2, 3, 7, 5, 3, 2, 1, 0, 1 },
		{ 5, 1, 6, 6, 2, 1, 2, 0, 0 },   { 2, 2, 9, 9, 3, 2, 2, 2, 1 },
		{ 150, 2, 3, 2, 1, 1, 1, 0, 0 }, { 1, 4, 30, 28, 5, 1, 1, 2, 2 },
	};
	for (int t = DLB_F32; t <= DLB_F64; t++)
		for (int i = 0; i < DLB_LEN(shapes); i++)
			for (int k = 0; k < 12; k++)
				positions((enum dlb_dtype)t, k & 1 ? DLB_CHANNELS_LAST : DLB_PLAIN, k & 2,
					  1 + k / 4, shapes[i]);
	for (int n = 1; n <= 9; n++)
		from_factor(n);
	failures();
	layers(false, false);
	layers(true, false);
	layers(false, true);
	other_layers(false, 1, false, NULL);
	other_layers(false, 1, true, NULL);
	for (int groups = 1; groups <= 3; groups++)
		other_layers(true, groups, groups == 2, NULL);
	be.ops->close(&be);
	printf("%ld checks of K-FAC: its matrices, their failures, its layers\n", n_checks);
	return 0;
}
