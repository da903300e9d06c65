/* Compression. The mathematics: orthonormal bases for any condition and rank, the low-rank step with error feedback,
 * triangles in RFP, factors and their retries, bf16, pivoted Cholesky; properties always, and (when the shared data
 * are there: DLB_TEST_DATA, else ../shared/data) vectors made elsewhere. Then sums under mpiexec with 1 to 4 ranks: what
 * arrives, the same bits everywhere, bytes as predicted, every failure of one rank known to all. */
#include <assert.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "comm/cholesky.h"
#include "comm/compress.h"
#include "comm/lowrank.h"
#include "tensor/skinny.h"
#include "tensor/spd.h"
#include "util/mem.h"
#include "util/rng.h"

#define TAU_F64 ((8 * 2.220446049250313e-16) * (8 * 2.220446049250313e-16))

static struct dlb_rng rng;
static long n_checks;

static double normal(void)
{
	return sqrt(-2 * log(1 - dlb_rng_uniform(&rng))) * cos(6.283185307179586 * dlb_rng_uniform(&rng));
}

/* ---- bases ---- */

/* The 2-norm of the symmetric a (r, r), by Jacobi rotations. */
static double norm2(double *a, int r)
{
	double most = 0;

	for (int sweep = 0; sweep < 30; sweep++)
		for (int p = 0; p < r; p++)
			for (int q = p + 1; q < r; q++) {
				double d = a[q * r + q] - a[p * r + p], b = a[p * r + q], t, c, s;

				if (b == 0)
					continue;
				t = (d < 0 ? -1 : 1) * 2 * b / (fabs(d) + sqrt(d * d + 4 * b * b));
				c = 1 / sqrt(1 + t * t);
				s = t * c;
				for (int k = 0; k < r; k++) {
					double x = a[k * r + p], y = a[k * r + q];

					a[k * r + p] = c * x - s * y;
					a[k * r + q] = s * x + c * y;
				}
				for (int k = 0; k < r; k++) {
					double x = a[p * r + k], y = a[q * r + k];

					a[p * r + k] = c * x - s * y;
					a[q * r + k] = s * x + c * y;
				}
			}
	for (int k = 0; k < r; k++)
		most = fabs(a[k * r + k]) > most ? fabs(a[k * r + k]) : most;
	return most;
}

/* || Q^T Q - I ||_2 */
static double off_orthonormal(const float *q, int n, int r)
{
	double *g = dlb_xcalloc((size_t)(r * r), sizeof *g), most;

	for (int i = 0; i < n; i++)
		for (int a = 0; a < r; a++)
			for (int b = 0; b < r; b++)
				g[a * r + b] += (double)q[i * r + a] * (double)q[i * r + b];
	for (int a = 0; a < r; a++)
		g[a * r + a] -= 1;
	most = norm2(g, r);
	free(g);
	return most;
}

/* How far p is from the span of q, relative. */
static double off_span(const float *q, const float *p, int n, int r)
{
	double rest = 0, all = 0;

	for (int b = 0; b < r; b++) {
		double c[DLB_MOST_RANK] = { 0 };

		for (int a = 0; a < r; a++)
			for (int i = 0; i < n; i++)
				c[a] += (double)q[i * r + a] * (double)p[i * r + b];
		for (int i = 0; i < n; i++) {
			double d = (double)p[i * r + b];

			all += d * d;
			for (int a = 0; a < r; a++)
				d -= c[a] * (double)q[i * r + a];
			rest += d * d;
		}
	}
	return all > 0 ? sqrt(rest / all) : 0;
}

/* (n, r) with singular values from 1 to 1/kappa, log-spaced, between random bases; the first `rank` of them. */
static void conditioned(float *p, int n, int r, double kappa, int rank)
{
	double *u = dlb_xcalloc((size_t)(n * r), sizeof *u), *v = dlb_xcalloc((size_t)(r * r), sizeof *v);

	for (int i = 0; i < n * r; i++)
		u[i] = normal();
	for (int i = 0; i < r * r; i++)
		v[i] = normal();
	assert(dlb_orthonormal(u, n, r, 1, TAU_F64, NULL, NULL) > 0 && dlb_orthonormal(v, r, r, 2, TAU_F64, NULL, NULL) > 0);
	for (int i = 0; i < n; i++)
		for (int b = 0; b < r; b++) {
			double sum = 0;

			for (int a = 0; a < rank; a++)
				sum += u[i * r + a] * pow(kappa, r > 1 ? -(double)a / (r - 1) : 0) * v[b * r + a];
			p[i * r + b] = (float)sum;
		}
	free(u);
	free(v);
}

static int basis(const float *p, float *q, int n, int r, int *n_replaced)
{
	double *work = dlb_xmalloc((size_t)(n * r) * sizeof *work);
	float *again = dlb_xmalloc((size_t)(n * r) * sizeof *again);
	int passes;

	memcpy(q, p, (size_t)(n * r) * sizeof *q);
	memcpy(again, p, (size_t)(n * r) * sizeof *q);
	passes = dlb_orthonormal_f32(q, n, r, dlb_lowrank_key(7, 3), work, n_replaced);
	assert(dlb_orthonormal_f32(again, n, r, dlb_lowrank_key(7, 3), work, NULL) == passes);
	assert(!memcmp(q, again, (size_t)(n * r) * sizeof *q));
	free(work);
	free(again);
	n_checks++;
	return passes;
}

static void bases(void)
{
	enum { N = 1024 };
	float *p = dlb_xmalloc(N * DLB_MOST_RANK * sizeof *p), *q = dlb_xmalloc(N * DLB_MOST_RANK * sizeof *q);
	static const int rows[] = { 1, 2, 3, 8, 17, 64, 100, N }, ranks[] = { 1, 2, 3, 4, 8, 16, 33, 64 };
	double worst = 0;
	int replaced;

	for (size_t a = 0; a < sizeof rows / sizeof *rows; a++)
		for (size_t b = 0; b < sizeof ranks / sizeof *ranks; b++) {
			int n = rows[a], r = ranks[b];
			double off;

			if (r > n)
				continue;
			for (int e = 0; e <= 12; e++) {					/* condition 1 .. 1e12 */
				conditioned(p, n, r, pow(10, e), r);
				assert(basis(p, q, n, r, &replaced) > 0);
				off = off_orthonormal(q, n, r);
				worst = off > worst ? off : worst;
				assert(off <= 1e-7);
				assert(off_span(q, p, n, r) <= 2e-6);		/* what counts as spanned: tau */
			}
			for (int rank = 0; rank < r; rank += 1 + rank / 4) {		/* every kind of deficiency */
				conditioned(p, n, r, 10, rank);
				assert(basis(p, q, n, r, &replaced) > 0);
				assert(replaced > 0);
				off = off_orthonormal(q, n, r);
				worst = off > worst ? off : worst;
				assert(off <= 1e-7);
				assert(off_span(q, p, n, r) <= 2e-6);		/* what counts as spanned: tau */
			}
			for (int zero = 0; zero < r; zero += 1 + r / 4) {		/* zero columns, columns of any size */
				for (int i = 0; i < n; i++)
					for (int k = 0; k < r; k++)
						p[i * r + k] = k % (zero + 1) == zero ? 0.0f : (float)(normal() * pow(10, k % 60 - 30));
				assert(basis(p, q, n, r, &replaced) > 0);
				assert(off_orthonormal(q, n, r) <= 1e-7);
			}
			for (int i = 0; i < n * r; i++)					/* equal columns */
				p[i] = (float)(i / r + 1);
			assert(basis(p, q, n, r, &replaced) > 0 && replaced == r - 1 && off_orthonormal(q, n, r) <= 1e-7);
			p[n * r / 2] = NAN;
			assert(basis(p, q, n, r, &replaced) == -1);
			p[n * r / 2] = INFINITY;
			assert(basis(p, q, n, r, &replaced) == -1);
		}
	printf("bases: at most %.2g from orthonormal\n", worst);
	free(p);
	free(q);
}

/* ---- the three passes ---- */

static void passes(void)
{
	static const int shape[][3] = { { 1, 1, 1 }, { 3, 5, 2 }, { 16, 8, 2 }, { 7, 100, 5 }, { 129, 65, 8 }, { 40, 96, 16 }, { 37, 31, 31 } };
	const struct dlb_skinny *k = dlb_skinny();

	for (size_t s = 0; s < sizeof shape / sizeof *shape; s++) {
		int n = shape[s][0], m = shape[s][1], r = shape[s][2];
		int64_t stride = dlb_skinny_stride(m);
		float *x = dlb_xmalloc((size_t)(4 * n * m + n * r) * sizeof *x), *e = x + n * m, *g = e + n * m, *kept = g + n * m, *p = kept + n * m;
		float *qt = dlb_xmalloc((size_t)(r * stride) * sizeof *qt);

		for (int i = 0; i < n * m; i++) {
			g[i] = x[i] = (float)normal();
			kept[i] = e[i] = (float)normal();
		}
		dlb_lowrank_first_q(qt, m, r, 5);
		k->project(n, m, r, x, e, qt, p);
		for (int i = 0; i < n; i++)
			for (int c = 0; c < r; c++) {
				double want = 0;

				for (int j = 0; j < m; j++)
					want += (double)x[i * m + j] * (double)qt[c * stride + j];
				assert(fabs(want - (double)p[i * r + c]) <= 1e-5 * sqrt(m) * 4);
			}
		for (int i = 0; i < n * m; i++)
			assert(x[i] == g[i] + e[i]);
		assert(!memcmp(e, kept, (size_t)(n * m) * sizeof *e));
		k->project_back(n, m, r, x, p, qt);
		for (int c = 0; c < r; c++)
			for (int64_t j = 0; j < stride; j++) {
				double want = 0, size = 0;

				for (int i = 0; i < n && j < m; i++) {
					want += (double)x[i * m + j] * (double)p[i * r + c];
					size += fabs((double)x[i * m + j] * (double)p[i * r + c]);
				}
				assert(fabs(want - (double)qt[c * stride + j]) <= 1e-6 * size);
			}
		memcpy(g, x, (size_t)(n * m) * sizeof *g);
		k->restore(n, m, r, x, e, p, qt, 0.25f);
		for (int i = 0; i < n; i++)
			for (int j = 0; j < m; j++) {
				float want = 0;

				for (int c = 0; c < r; c++)
					want += qt[c * stride + j] * p[i * r + c];
				assert(x[i * m + j] == want);			/* these very bits on any machine */
				assert(e[i * m + j] == g[i * m + j] - want * 0.25f);
			}
		n_checks++;
		free(x);
		free(qt);
	}
}

/* ---- triangles ---- */

static void spd(float *a, int n, double least)
{
	for (int i = 0; i < n; i++)
		for (int j = 0; j <= i; j++)
			a[i * n + j] = a[j * n + i] = (float)(normal() / sqrt(n) * 0.3);
	for (int i = 0; i < n; i++)
		a[i * n + i] = (float)(1 + least + fabs(normal()));
}

static void triangles(void)
{
	for (int n = 1; n < 70; n += n < 12 ? 1 : 7) {
		int64_t count = dlb_rfp_count(n);
		float *a = dlb_xmalloc((size_t)(3 * n * n) * sizeof *a), *b = a + n * n, *c = b + n * n, largest;
		float *s = dlb_xmalloc((size_t)(3 * count) * sizeof *s), *work = s + count, *t = work + count;
		bool *seen = dlb_xcalloc((size_t)count, sizeof *seen), finite;
		double added;

		for (int i = 0; i < n; i++)
			for (int j = 0; j <= i; j++) {
				assert(!seen[dlb_rfp_at(n, i, j)]);
				seen[dlb_rfp_at(n, i, j)] = true;
			}
		spd(a, n, 0.5);
		for (int reversed = 0; reversed < 2; reversed++) {
			dlb_rfp_pack(n, a, reversed, s);
			for (int i = 0; i < n; i++)
				for (int j = 0; j <= i; j++)
					assert(s[dlb_rfp_at(n, i, j)] == (reversed ? a[(n - 1 - i) * n + n - 1 - j] : a[i * n + j]));
			memset(b, 0, (size_t)(n * n) * sizeof *b);
			dlb_rfp_unpack(n, s, reversed, b);
			assert(!memcmp(a, b, (size_t)(n * n) * sizeof *a));
		}
		assert(dlb_asymmetry(n, a, &largest, &finite) == 0 && finite && largest >= 1.5f);
		dlb_rfp_pack(n, a, true, s);
		assert(dlb_spd_factor(n, s, 0, work, &added) == 0 && added == 0);
		dlb_rfp_restore(n, s, b);
		for (int i = 0; i < n * n; i++)
			assert(fabsf(a[i] - b[i]) <= 4e-6f);
		dlb_bf16_pack(t, s, count);
		dlb_bf16_unpack(work, t, count);
		for (int64_t i = 0; i < count; i++)
			assert(fabsf(work[i] - s[i]) <= fabsf(s[i]) / 256);
		for (int i = 0; i < n * n; i++)						/* X X^T by syrk is X X^T */
			c[i] = (float)normal();
		dlb_rfp_syrk(n, n, 0.5f, c, 0, s);
		dlb_rfp_unpack(n, s, false, b);
		for (int i = 0; i < n; i++)
			for (int j = 0; j < n; j++) {
				double want = 0;

				for (int k = 0; k < n; k++)
					want += 0.5 * (double)c[i * n + k] * (double)c[j * n + k];
				assert(fabs(want - (double)b[i * n + j]) <= 1e-5 * n);
			}
		if (n > 1) {
			a[n] += 1;
			assert(fabsf(dlb_asymmetry(n, a, &largest, &finite) - 1) < 1e-5f);
			a[1] = NAN;
			dlb_asymmetry(n, a, &largest, &finite);
			assert(!finite);
		}
		n_checks++;
		free(a);
		free(s);
		free(seen);
	}
}

/* Singular by a hair: the retries help; indefinite: they do not, and the sum is as it was. */
static void retries(void)
{
	enum { N = 40 };
	float s[N * (N + 1) / 2], work[N * (N + 1) / 2], before[N * (N + 1) / 2], x[N * 4], a[N * N];
	double added;

	for (int i = 0; i < N * 4; i++)
		x[i] = (float)normal();
	dlb_rfp_syrk(N, 4, 1, x, 0, s);				/* rank 4 */
	memcpy(before, s, sizeof s);
	assert(dlb_spd_factor(N, s, 0, work, &added) > 0 && added > 0);
	memcpy(s, before, sizeof s);
	assert(dlb_spd_factor(N, s, 0.1, work, &added) == 0 && added == 0.1);
	dlb_rfp_restore(N, s, a);
	for (int i = 0; i < N; i++)				/* what was factored was not reversed: read backwards */
		for (int j = 0; j <= i; j++)
			assert(fabsf(a[(N - 1 - i) * N + N - 1 - j] - before[dlb_rfp_at(N, i, j)] - (i == j ? 0.1f : 0)) < 1e-4f);
	spd(a, N, 0);
	a[5 * N + 5] = -3;
	dlb_rfp_pack(N, a, true, s);
	memcpy(before, s, sizeof s);
	assert(dlb_spd_factor(N, s, 1e-3, work, &added) == -1 && added == 0 && !memcmp(s, before, sizeof s));
	n_checks += 3;
}

static void pivoted(void)
{
	for (int n = 1; n < 60; n += 9)
		for (int rank = 0; rank <= n; rank += 3) {
			float *x = dlb_xcalloc((size_t)(n * rank + 1), sizeof *x), *a = dlb_xcalloc((size_t)(n * n), sizeof *a);
			float *l = dlb_xcalloc((size_t)(n * n), sizeof *l);
			int *pivot = dlb_xcalloc((size_t)n, sizeof *pivot), got;
			double rest, least, worst = 0;

			for (int i = 0; i < n * rank; i++)
				x[i] = (float)normal();
			for (int i = 0; i < n; i++)
				for (int j = 0; j < n; j++)
					for (int k = 0; k < rank; k++)
						a[i * n + j] += x[i * rank + k] * x[j * rank + k];
			got = dlb_pivoted_cholesky(n, a, 1e-4, n, l, n, pivot, &rest, &least);
			assert(got == rank && least > -1e-4);
			for (int i = 0; i < n; i++)
				for (int j = 0; j < n; j++) {
					double v = (double)a[i * n + j];

					for (int k = 0; k < got; k++)
						v -= (double)l[i * n + k] * (double)l[j * n + k];
					worst = fabs(v) > worst ? fabs(v) : worst;
				}
			assert(worst <= 1e-3);
			got = dlb_pivoted_cholesky(n, a, 0, rank / 2, l, n, pivot, &rest, &least);	/* cut short */
			assert(got == rank / 2 && (rank < 2 || rest > 0));
			n_checks++;
			free(x);
			free(a);
			free(l);
			free(pivot);
		}
}

/* ---- vectors ---- */

static json_t *load(const char *file)
{
	const char *data = getenv("DLB_TEST_DATA");
	char *path = dlb_xprintf("%s/vectors/%s", data ? data : "../shared/data", file);
	json_t *root = json_load_file(path, 0, NULL);

	free(path);
	return root;
}

static const json_t *at(const json_t *a, int i) { return json_array_get(a, (size_t)i); }
static const json_t *of(const json_t *o, const char *name) { return json_object_get(o, name); }
static double number(const json_t *a, int i, int j) { return json_number_value(at(at(a, i), j)); }

static void near(double got, double want, double tolerance)
{
	if (!(fabs(got - want) <= tolerance * (1 + fabs(want)))) {
		fprintf(stderr, "got %.17g, want %.17g\n", got, want);
		assert(!"near");
	}
	n_checks++;
}

/* Steps of the vectors in double, through dlb_orthonormal; `local`: each worker keeps what it did not send itself. */
static void steps_f64(const json_t *root, const json_t *gradients, const json_t *steps, bool local, bool replaces)
{
	enum { N = 16, M = 8, R = 2, W = 3 };
	double e[W][N][M] = { { { 0 } } }, q[M][R], p[N][R], m[W][N][M];

	for (int j = 0; j < M; j++)
		for (int k = 0; k < R; k++)
			q[j][k] = number(of(root, "Q0"), j, k);
	for (int s = 0; s < (int)json_array_size(steps); s++) {
		const json_t *want = at(steps, s);
		double norm[R], qw[W][M][R] = { { { 0 } } };
		int replaced, passes_taken;

		memset(p, 0, sizeof p);
		for (int w = 0; w < W; w++)
			for (int i = 0; i < N; i++)
				for (int j = 0; j < M; j++) {
					m[w][i][j] = number(at(at(gradients, s), w), i, j) + e[w][i][j];
					for (int k = 0; k < R; k++)
						p[i][k] += m[w][i][j] * q[j][k] / W;
				}
		for (int i = 0; i < N; i++)
			for (int k = 0; k < R; k++)
				near(p[i][k], number(of(want, "P_mean"), i, k), 1e-9);
		passes_taken = dlb_orthonormal(&p[0][0], N, R, (uint64_t)s, TAU_F64, norm, &replaced);
		assert(replaced == json_integer_value(of(want, "replaced")) || s == 1);
		assert(passes_taken == json_integer_value(of(want, "passes")) || (replaces && s));
		for (int k = 0; k < R; k++)
			near(norm[k], json_number_value(at(of(want, "column_norms"), k)), 1e-9);
		memset(q, 0, sizeof q);
		for (int w = 0; w < W; w++)
			for (int i = 0; i < N; i++)
				for (int j = 0; j < M; j++)
					for (int k = 0; k < R; k++) {
						qw[w][j][k] += m[w][i][j] * p[i][k];
						q[j][k] += m[w][i][j] * p[i][k] / W;
					}
		for (int i = 0; i < N; i++)
			for (int k = 0; k < R && !replaces; k++)
				near(p[i][k], number(of(want, "P_hat"), i, k), 1e-9);
		for (int i = 0; i < N; i++)
			for (int j = 0; j < M && !(replaces && s == 2); j++) {		/* from there on a replaced column counts */
				double y = 0;

				for (int k = 0; k < R; k++)
					y += p[i][k] * q[j][k];
				near(y, number(of(want, "approx"), i, j), replaces ? 1e-12 : 1e-9);
				for (int w = 0; w < W; w++) {
					double mine = 0;

					for (int k = 0; k < R; k++)
						mine += p[i][k] * qw[w][j][k];
					e[w][i][j] = m[w][i][j] - (local ? mine : y);
					near(e[w][i][j], number(at(of(want, "errors"), w), i, j), 1e-9);
				}
			}
	}
}

/* The same in float32 through the passes that run. */
static void steps_f32(const json_t *root, const json_t *steps, bool local)
{
	enum { N = 16, M = 8, R = 2, W = 3 };
	const struct dlb_skinny *kernel = dlb_skinny();
	const json_t *gradients = of(root, "gradients");
	int64_t stride = dlb_skinny_stride(M);
	float e[W][N * M] = { { 0 } }, x[W][N * M], p[N * R], one[N * R], qt[R * 16] = { 0 }, mine[W][R * 16];
	double work[N * R];

	for (int j = 0; j < M; j++)
		for (int k = 0; k < R; k++)
			qt[k * stride + j] = (float)number(of(root, "Q0"), j, k);
	for (int s = 0; s < (int)json_array_size(steps); s++) {
		const json_t *want = at(steps, s);

		memset(p, 0, sizeof p);
		for (int w = 0; w < W; w++) {
			for (int i = 0; i < N * M; i++)
				x[w][i] = (float)number(at(at(gradients, s), w), i / M, i % M);
			kernel->project(N, M, R, x[w], e[w], qt, one);
			for (int i = 0; i < N * R; i++)
				p[i] += one[i];
		}
		assert(dlb_orthonormal_f32(p, N, R, 0, work, NULL) == 1);
		memset(qt, 0, sizeof qt);
		for (int w = 0; w < W; w++) {
			kernel->project_back(N, M, R, x[w], p, mine[w]);
			for (int i = 0; i < R * 16; i++)
				qt[i] += mine[w][i] / W;
		}
		for (int j = 0; j < M; j++)
			for (int k = 0; k < R; k++)
				near((double)qt[k * stride + j], number(of(want, "Q_mean"), j, k), 1e-4);
		for (int w = 0; w < W; w++) {
			float kept[N * M];

			memcpy(kept, x[w], sizeof kept);
			kernel->restore(N, M, R, x[w], e[w], p, qt, 1);
			for (int i = 0; i < N * M; i++)
				near((double)x[w][i], number(of(want, "approx"), i / M, i % M), 1e-4);
			if (local) {
				memcpy(x[w], kept, sizeof kept);
				kernel->restore(N, M, R, x[w], e[w], p, mine[w], 1);
			}
			for (int i = 0; i < N * M; i++)
				near((double)e[w][i], number(at(of(want, "errors"), w), i / M, i % M), 1e-4);
		}
	}
}

static bool lowrank_vectors(void)
{
	json_t *root = load("cholqr_lowrank.json");
	const json_t *deficient = of(root, "rank_deficient"), *seed = of(root, "reseed_example");
	double first[4];

	if (!root)
		return false;
	dlb_splitmix_fill(first, 4, 1, (uint64_t)json_integer_value(of(seed, "key")));
	for (int i = 0; i < 4; i++)
		assert(first[i] == json_number_value(at(of(seed, "first4"), i)));
	steps_f64(root, of(root, "gradients"), of(root, "ef_global"), false, false);
	steps_f64(root, of(root, "gradients"), of(root, "ef_local"), true, false);
	steps_f64(root, of(deficient, "gradients"), of(deficient, "steps"), false, true);
	steps_f32(root, of(root, "ef_global"), false);
	steps_f32(root, of(root, "ef_local"), true);
	json_decref(root);
	return true;
}

static bool triangle_vectors(void)
{
	enum { N = 6, T = 21, W = 3 };
	json_t *root = load("spd_triangle.json");
	float a[N * N], s[T], sum[T] = { 0 }, rev[T], work[T], words[T], back[N * N];
	double added;

	if (!root)
		return false;
	assert(json_integer_value(of(root, "packed_bytes")) == 4 * dlb_rfp_count(N) && json_integer_value(of(root, "dense_bytes")) == 4 * N * N);
	for (int w = 0; w < W; w++) {
		for (int i = 0; i < N * N; i++)
			a[i] = (float)number(at(of(root, "D"), w), i / N, i % N);
		dlb_rfp_pack(N, a, false, s);
		for (int j = 0, k = 0; j < N; j++)
			for (int i = j; i < N; i++, k++)
				near((double)s[dlb_rfp_at(N, i, j)], number(of(root, "packed"), w, k), 1e-6);
		for (int i = 0; i < T; i++)
			sum[i] += s[i];
		assert(dlb_spd_factor(N, s, 0, work, &added) == 0);
		for (int i = 0; i < N; i++)
			for (int j = 0; j <= i; j++)
				near((double)s[dlb_rfp_at(N, i, j)], number(at(of(root, "L_each"), w), i, j), 1e-5);
	}
	for (int i = 0; i < T; i++)
		near((double)sum[i], json_number_value(at(of(root, "rfp_sum"), i)), 1e-6);
	dlb_rfp_unpack(N, sum, false, a);
	dlb_rfp_pack(N, a, true, rev);
	assert(dlb_spd_factor(N, sum, 0, work, &added) == 0 && dlb_spd_factor(N, rev, 0, work, &added) == 0);
	for (int i = 0; i < N; i++)
		for (int j = 0; j <= i; j++) {
			near((double)sum[dlb_rfp_at(N, i, j)], number(of(root, "L_sum"), i, j), 1e-5);
			near((double)rev[dlb_rfp_at(N, i, j)], number(of(root, "U_reverse"), N - 1 - i, N - 1 - j), 1e-5);
		}
	dlb_rfp_restore(N, rev, back);
	for (int i = 0; i < N * N; i++)
		near((double)back[i], (double)a[i], 1e-5);
	dlb_bf16_pack(words, sum, T);
	dlb_bf16_unpack(s, words, T);
	for (int i = 0; i < N; i++)
		for (int j = 0; j <= i; j++) {
			double v = 0;

			assert((double)s[dlb_rfp_at(N, i, j)] == number(of(root, "bf16_L"), i, j));
			for (int k = 0; k <= j; k++)
				v += (double)s[dlb_rfp_at(N, i, k)] * (double)s[dlb_rfp_at(N, j, k)];
			near(v, number(of(root, "bf16_L_restored"), i, j), 1e-12);
		}
	for (int i = 0; i < 4; i++)
		a[i] = (float)number(of(of(root, "not_pd"), "D"), i / 2, i % 2);
	dlb_rfp_pack(2, a, false, s);
	assert(dlb_rfp_factor(2, s) == 2);
	dlb_rfp_pack(2, a, false, s);
	assert(dlb_spd_factor(2, s, 0, work, &added) == -1);
	json_decref(root);
	return true;
}

static bool pivoted_vectors(void)
{
	enum { N = 8 };
	json_t *root = load("pivoted_cholesky.json");
	const json_t *cases = of(root, "cases"), *bad = of(of(root, "indefinite"), "A");
	float a[N * N], l[N * N];
	double rest, least, most = 0;
	int pivot[N];

	if (!root)
		return false;
	for (int i = 0; i < N * N; i++)
		a[i] = (float)number(of(root, "A"), i / N, i % N);
	for (int i = 0; i < N; i++)
		most = (double)a[i * N + i] > most ? (double)a[i * N + i] : most;
	for (int c = 0; c < (int)json_array_size(cases); c++) {
		const json_t *want = at(cases, c);
		double relative = json_number_value(of(want, "tol_relative"));
		/* What is left below 1e-6 of the diagonal is rounding in float32. */
		int rank = dlb_pivoted_cholesky(N, a, relative * most, N, l, N, pivot, &rest, &least);

		if (relative < 1e-6)
			continue;
		assert(rank == json_integer_value(of(want, "rank")));
		assert(dlb_pivoted_count(N, rank) == json_integer_value(of(want, "elements_sent")));
		near(rest, json_number_value(of(want, "trace_error")), 1e-5);
		for (int k = 0; k < rank; k++)
			assert(pivot[k] == json_integer_value(at(of(want, "pivots_0based"), k)));
		for (int i = 0; i < N; i++)
			for (int j = 0; j < N; j++) {
				double v = 0;

				for (int k = 0; k < rank; k++)
					v += (double)l[i * N + k] * (double)l[j * N + k];
				near(v, number(of(want, "restored"), i, j), 1e-5);
			}
	}
	memset(a, 0, sizeof a);
	assert(dlb_pivoted_cholesky(N, a, 0, N, l, N, pivot, &rest, &least) == json_integer_value(of(of(root, "zero_matrix"), "expect_rank")));
	for (int i = 0; i < 9; i++)
		a[i] = (float)number(bad, i / 3, i % 3);
	assert(dlb_pivoted_cholesky(3, a, 0, 3, l, 3, pivot, &rest, &least) == 2 && least == -1);	/* not semidefinite */
	json_decref(root);
	return true;
}

/* ---- names ---- */

static void names(void)
{
	static const char *const bad[] = { "", "lowrank", "lowrank:", "lowrank:0", "lowrank:65", "lowrank:4x", "lowrank:-1", "lowrank:99999999999999", "chol",
					   "none,start=1", "lowrank:4,start=", "lowrank:4,wire=fp16", "bf16,wire=f32", "lowrank:4,", "cholesky:hop" };
	struct dlb_compress_choice c;
	struct dlb_error err;

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert(dlb_compress_parse(bad[i], &c, &err) == -1 && err.what[0] && err.hint[0] && !strchr(err.what, '\n'));
	assert(!dlb_compress_parse(NULL, &c, &err) && c.how == DLB_COMPRESS_NONE);
	for (int i = 0; i < DLB_COMPRESS_LOWRANK; i++)
		assert(!dlb_compress_parse(dlb_compress_names[i].name, &c, &err) && (int)c.how == i && dlb_compress_names[i].summary);
	assert(!dlb_compress_parse("lowrank:8", &c, &err) && c.how == DLB_COMPRESS_LOWRANK && c.rank == 8 && c.start == -1 && c.wire == DLB_WIRE_BF16);
	dlb_compress_settle(&c, 5000);
	assert(c.start == 500);
	dlb_compress_settle(&c, 50);
	assert(c.start == 500);
	assert(!dlb_compress_parse("lowrank:64,wire=f32,start=0,error=local", &c, &err) && c.rank == 64 && !c.start && c.wire == DLB_WIRE_PLAIN && c.local_error);
	n_checks += 8;
}

/* ---- on ranks ---- */

enum { N_ADDENDS = 8 };
static const struct { int rows, cols; bool factor; } shape[N_ADDENDS] = {
	{ 96, 64, false }, { 40, 150, false }, { 7, 1, false }, { 1, 333, false }, { 10, 10, false },
	{ 64, 64, true }, { 33, 33, true }, { 1, 1, true },
};
static const char *const tensor_names[N_ADDENDS] = { "w0", "w1", "b0", "b1", "w2", "f0", "f1", "f2" };

/* What rank adds at a step: gradients of low rank and some noise, factors positive definite. */
static void give(float *const *x, int rank, int64_t step)
{
	struct dlb_rng saved = rng;

	dlb_rng_init(&rng, (uint64_t)(rank * 1000 + step));
	for (int i = 0; i < N_ADDENDS; i++) {
		int n = shape[i].rows, m = shape[i].cols;

		if (shape[i].factor) {
			spd(x[i], n, 0.5);
			continue;
		}
		for (int r = 0; r < n; r++)
			for (int c = 0; c < m; c++)
				x[i][r * m + c] = (float)(sin(r * 0.1 + i) * cos(c * 0.05) + 0.3 * (rank + 1) * cos(r * 0.3) * sin(c * 0.2 + i) + 0.01 * normal());
	}
	rng = saved;
}

static void dense_sum(double **want, float *const *x, int size, int64_t step)
{
	for (int i = 0; i < N_ADDENDS; i++)
		memset(want[i], 0, (size_t)(shape[i].rows * shape[i].cols) * sizeof **want);
	for (int r = 0; r < size; r++) {
		give(x, r, step);
		for (int i = 0; i < N_ADDENDS; i++)
			for (int j = 0; j < shape[i].rows * shape[i].cols; j++)
				want[i][j] += (double)x[i][j];
	}
}

static double distance(const float *x, const double *want, int n)
{
	double d = 0, all = 0;

	for (int j = 0; j < n; j++) {
		d += ((double)x[j] - want[j]) * ((double)x[j] - want[j]);
		all += want[j] * want[j];
	}
	return sqrt(d / (all > 0 ? all : 1));
}

static void same_everywhere(struct dlb_comm *c, const void *p, size_t bytes)
{
	char *first = dlb_xmalloc(bytes + 1);
	struct dlb_error err;

	memcpy(first, p, bytes);
	assert(dlb_comm_bcast(c, first, bytes, 0, &err) == 0);
	assert(!memcmp(first, p, bytes));
	free(first);
}

static int64_t state_bytes(struct dlb_kept *k, char *to)
{
	struct dlb_kept_state s;
	int64_t n = 0;

	for (int i = 0; dlb_kept_state(k, i, &s); i++) {
		if (to)
			memcpy(to + n, s.p, (size_t)s.n * sizeof(float));
		n += s.n * (int64_t)sizeof(float);
	}
	return n;
}

struct trial {
	struct dlb_comm *c;
	struct dlb_compressor *k;
	struct dlb_kept *kept;
	struct dlb_addend addend[N_ADDENDS];
	float *x[N_ADDENDS];
	double *want[N_ADDENDS];
	struct dlb_compress_choice choice;
	const struct dlb_allreduce *how;
	int rank, size;
};

enum { AS_FACTOR = 6 };			/* is left as L where it comes so */

/* The sum that L, in x, stands for. */
static void multiply_out(struct trial *t)
{
	const int n = shape[AS_FACTOR].rows;
	float *l = dlb_xmalloc((size_t)dlb_rfp_count(n) * sizeof *l), *x = t->x[AS_FACTOR];

	same_everywhere(t->c, x, (size_t)dlb_rfp_count(n) * sizeof *x);
	memcpy(l, x, (size_t)dlb_rfp_count(n) * sizeof *l);
	dlb_rfp_restore(n, l, x);
	for (int i = 0; i < n; i++)
		x[i * n + i] -= (float)t->addend[AS_FACTOR].damping;
	free(l);
}

static void run(struct trial *t, int64_t step)
{
	const struct dlb_verdict *v = dlb_compressor_verdict(t->k);
	struct dlb_error err;

	dlb_compressor_start(t->k, step);
	if (step % 2 && t->choice.how != DLB_COMPRESS_PER_HOP)
		while (!dlb_compressor_test(t->k))
			;
	assert(dlb_compressor_wait(t->k, &err) == 0);
	assert(dlb_compressor_factored(t->k, AS_FACTOR) ==
	       (t->choice.how == DLB_COMPRESS_CHOLESKY && t->size > 1 && !v->not_finite && !v->n_asymmetric));
	assert(!dlb_compressor_factored(t->k, AS_FACTOR - 1));
	if (dlb_compressor_factored(t->k, AS_FACTOR))
		multiply_out(t);
}

/* Tensor `which` of the last rank is spoilt: all ranks say so, and nothing of this step stays. */
static void spoilt(struct trial *t, int which, float by)
{
	struct dlb_compress_choice *c = &t->choice;
	const struct dlb_verdict *v = dlb_compressor_verdict(t->k);
	char *before = dlb_xmalloc((size_t)state_bytes(t->kept, NULL) + 1), *after = dlb_xmalloc((size_t)state_bytes(t->kept, NULL) + 1);
	struct dlb_error err;

	if (t->size < 2)
		goto out;
	state_bytes(t->kept, before);
	give(t->x, t->rank, 50);
	if (t->rank == t->size - 1)
		t->x[which][shape[which].rows * shape[which].cols / 2] = by;
	run(t, 50);
	assert(v->not_finite == tensor_names[which] && v->rank == t->size - 1);
	assert(dlb_verdict_error(v, &err) == -1 && strstr(err.what, tensor_names[which]));
	same_everywhere(t->c, err.what, sizeof err.what);
	state_bytes(t->kept, after);
	assert(!memcmp(before, after, (size_t)state_bytes(t->kept, NULL)));
	/* The next one is as if nothing had been. */
	give(t->x, t->rank, 51);
	run(t, 51);
	assert(!v->not_finite && dlb_verdict_error(v, &err) == 0);
	assert(c->how != DLB_COMPRESS_CHOLESKY || !v->n_not_definite);
out:
	free(before);
	free(after);
}

/* Factors that are not what they should be, on one rank: all take the same way out, and the sum is right. */
static void odd_factors(struct trial *t)
{
	const struct dlb_verdict *v = dlb_compressor_verdict(t->k);
	const int f = 5, n = shape[f].rows;

	if (t->size < 2)
		return;
	for (int kind = 0; kind < 2; kind++) {
		dense_sum(t->want, t->x, t->size, 60 + kind);
		give(t->x, t->rank, 60 + kind);
		if (kind == 0) {				/* not symmetric */
			if (t->rank == 0)
				t->x[f][3] += 7;
			t->want[f][3] += 7;
		} else {					/* far from positive definite */
			if (t->rank == 0)
				t->x[f][4 * n + 4] -= 1000;
			t->want[f][4 * n + 4] -= 1000;
		}
		run(t, 60 + kind);
		assert(kind == 0 ? v->n_asymmetric == 1 : v->n_asymmetric == 0 && v->n_not_definite == 1);
		for (int i = f; i < N_ADDENDS; i++) {
			int count = shape[i].rows * shape[i].cols;

			assert(distance(t->x[i], t->want[i], count) <= (kind == 0 || i == f ? 1e-6 : t->choice.wire == DLB_WIRE_BF16 ? 8e-3 : 1e-5));
			same_everywhere(t->c, t->x[i], (size_t)count * sizeof(float));
		}
	}
}

static void trial(struct dlb_comm *c, const char *name, const struct dlb_allreduce *how)
{
	struct trial t = { .c = c, .how = how, .rank = dlb_comm_rank(c), .size = dlb_comm_size(c) };
	const int group[] = { 0, 1, 0, 1 };
	double predicted[DLB_N_TRAFFIC], dense[DLB_N_TRAFFIC], sum_want = 0, sum_error = 0;
	double *given[2] = { NULL }, *got[2] = { NULL };
	struct dlb_compressor_desc d = { .how = how, .ranks = { .n = t.size, .group = group }, .n_addends = N_ADDENDS, .tag = 40 };
	struct dlb_error err;

	assert(!dlb_compress_parse(name, &t.choice, &err));
	for (int i = 0; i < N_ADDENDS; i++) {
		size_t n = (size_t)(shape[i].rows * shape[i].cols);

		t.x[i] = dlb_xcalloc(n, sizeof(float));
		t.want[i] = dlb_xcalloc(n, sizeof(double));
		t.addend[i] = (struct dlb_addend){ t.x[i], shape[i].rows, shape[i].cols, 100 + i, tensor_names[i], shape[i].factor, 0.01, i == AS_FACTOR };
	}
	for (int i = 0; i < 2; i++) {
		given[i] = dlb_xcalloc((size_t)(shape[i].rows * shape[i].cols), sizeof(double));
		got[i] = dlb_xcalloc((size_t)(shape[i].rows * shape[i].cols), sizeof(double));
	}
	d.choice = t.choice;
	d.addend = t.addend;
	d.kept = t.kept = dlb_kept_new();
	assert(dlb_compressor_new(&t.k, c, &d, &err) == 0);
	for (int64_t step = 0; step < 8; step++) {
		const struct dlb_traffic *traffic = dlb_compressor_traffic(t.k);

		dense_sum(t.want, t.x, t.size, step);
		give(t.x, t.rank, step);
		run(&t, step);
		assert(!dlb_compressor_verdict(t.k)->not_finite);
		for (int i = 0; i < N_ADDENDS; i++) {
			int n = shape[i].rows * shape[i].cols, rank = dlb_compress_rank(&t.choice, &t.addend[i]);
			double off = distance(t.x[i], t.want[i], n);
			bool triangle = shape[i].factor && (t.choice.how == DLB_COMPRESS_CHOLESKY || t.choice.how == DLB_COMPRESS_PER_HOP);

			assert(t.size == 1 ? off < 1e-7 : rank && step >= t.choice.start ? off < 0.9 :
			       t.choice.wire == DLB_WIRE_BF16 && (triangle || t.choice.how == DLB_COMPRESS_BF16) ? off < 8e-3 : off < 2e-6);
			same_everywhere(c, t.x[i], (size_t)n * sizeof(float));
			for (int j = 0; i < 2 && j < n; j++) {
				given[i][j] += t.want[i][j];
				got[i][j] += (double)t.x[i][j];
			}
		}
		dlb_compress_bytes(&t.choice, how, &d.ranks, t.rank, t.addend, N_ADDENDS, predicted, dense);
		for (int class = 0; class < DLB_N_TRAFFIC && step >= t.choice.start && t.size > 1; class++) {
			/* The flags come on top. Per hop, the matrices of a chunk are not cut: exact for the ring. */
			double flags = class == DLB_TRAFFIC_SMALL ? 64.0 * t.size : 1;

			assert(traffic->dense_bytes[class] == dense[class]);
			assert((t.choice.how == DLB_COMPRESS_PER_HOP && how != &dlb_allreduce_ring) ||
			       fabs(traffic->bytes[class] - predicted[class]) <= flags + 0.2 * predicted[class] / t.size);
		}
	}
	/* What was not sent yet is what the errors hold: nothing is lost. */
	for (int i = 0; i < 2 && t.choice.how == DLB_COMPRESS_LOWRANK && t.size > 1; i++) {
		int n = shape[i].rows * shape[i].cols;
		struct dlb_kept_state s;
		double *rest = dlb_xcalloc((size_t)n, sizeof *rest);

		assert(dlb_kept_state(t.kept, 2 * i, &s) && s.name == tensor_names[i] && s.summed && s.n == n);
		for (int j = 0; j < n; j++)
			rest[j] = (double)((const float *)s.p)[j];
		assert(dlb_comm_allreduce_f64(c, rest, n, DLB_COMM_SUM, &err) == 0);
		for (int j = 0; j < n; j++) {
			double lost = given[i][j] - got[i][j] - rest[j];

			sum_want += given[i][j] * given[i][j];
			sum_error += lost * lost;
		}
		assert(sqrt(sum_error / sum_want) <= (t.choice.local_error && t.choice.wire == DLB_WIRE_BF16 ? 1e-2 : 1e-5));
		assert(dlb_kept_state(t.kept, 2 * i + 1, &s));
		same_everywhere(c, s.p, (size_t)s.n * sizeof(float));
		/* The gradients' two strong directions are caught: what stays behind is not growing with the steps. */
		sum_error = 0;
		for (int j = 0; j < n; j++)
			sum_error += rest[j] * rest[j];
		assert(sqrt(sum_error / sum_want) < 0.05);
		sum_want = sum_error = 0;
		free(rest);
	}
	spoilt(&t, 0, NAN);
	spoilt(&t, 1, INFINITY);
	spoilt(&t, 2, -INFINITY);
	spoilt(&t, 5, NAN);
	if (t.choice.how == DLB_COMPRESS_CHOLESKY || t.choice.how == DLB_COMPRESS_PER_HOP)
		odd_factors(&t);
	dlb_compressor_free(t.k);
	dlb_kept_free(t.kept);
	for (int i = 0; i < N_ADDENDS; i++) {
		free(t.x[i]);
		free(t.want[i]);
	}
	for (int i = 0; i < 2; i++) {
		free(given[i]);
		free(got[i]);
	}
}

static int rank_main(void)
{
	static const char *const choice[] = { "none", "lowrank:2,start=2", "cholesky", "bf16", "cholesky,wire=f32", "cholesky:per-hop",
					      "lowrank:4,start=0,wire=f32", "lowrank:3,start=0,error=local" };	/* every fourth: all algorithms */
	struct dlb_comm *c;
	struct dlb_error err;

	if (dlb_comm_new(&c, 30, &err))
		return 1;
	for (size_t i = 0; i < sizeof choice / sizeof *choice; i++)
		for (int a = 0; dlb_allreduces[a]; a++)
			if (!dlb_allreduces[a]->foreign && (i % 4 == 1 || dlb_allreduces[a] == &dlb_allreduce_ring))
				trial(c, choice[i], dlb_allreduces[a]);
	dlb_comm_free(c);
	return 0;
}

/* 1 to 4 ranks; false: no mpiexec. */
static bool ranks(const char *self)
{
	if (!dlb_comm_is_open_mpi() || system("mpiexec --version >/dev/null 2>&1"))
		return false;
	setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
	setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
	for (int n = 1; n <= 4; n++) {
		char command[1024];
		int status;

		snprintf(command, sizeof command, "mpiexec -n %d --oversubscribe --bind-to none '%s' rank >&2", n, self);
		status = system(command);
		assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
		n_checks++;
	}
	return true;
}

int main(int argc, char **argv)
{
	bool shared, mpi;

	if (argc > 1)
		return rank_main();

	dlb_rng_init(&rng, 1);
	bases();
	passes();
	triangles();
	retries();
	pivoted();
	names();
	mpi = ranks(argv[0]);
	shared = lowrank_vectors() && triangle_vectors() && pivoted_vectors();
	printf("%ld checks of compression%s%s\n", n_checks, mpi ? ", 1 to 4 ranks" : "; skipped ranks: no mpiexec of Open MPI", shared ? ", shared vectors included" : "; skipped the shared vectors: not found");
	return 0;
}
