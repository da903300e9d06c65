/* test_tags=slow */
/* Low rank: orthonormal bases for any condition and rank, the three passes over a gradient, the step with
 * error feedback. Properties, and the shared vectors if they are there. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/lowrank.h"
#include "tensor/skinny.h"
#include "check.h"
#include "random_matrix.h"
#include "vectors.h"

#define TAU_F64 ((8 * 2.220446049250313e-16) * (8 * 2.220446049250313e-16))

static struct dlb_rng rng;

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

/* Relative distance of p from the span of q. */
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

/* (n, r) with singular values from 1 to 1/kappa, log-spaced, between random bases; the first `rank` of
 * them. */
static void conditioned(float *p, int n, int r, double kappa, int rank)
{
	double *u = dlb_xcalloc((size_t)(n * r), sizeof *u), *v = dlb_xcalloc((size_t)(r * r), sizeof *v);

	for (int i = 0; i < n * r; i++)
		u[i] = normal(&rng);
	for (int i = 0; i < r * r; i++)
		v[i] = normal(&rng);
	assert(IS(dlb_orthonormal(u, n, r, 1, TAU_F64, NULL, NULL), >, 0) &&
	       IS(dlb_orthonormal(v, r, r, 2, TAU_F64, NULL, NULL), >, 0));
	for (int i = 0; i < n; i++)
		for (int b = 0; b < r; b++) {
			double sum = 0;

			for (int a = 0; a < rank; a++)
				sum += u[i * r + a] * pow(kappa, r > 1 ? -(double)a / (r - 1) : 0) *
				       v[b * r + a];
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
	assert(IS(dlb_orthonormal_f32(again, n, r, dlb_lowrank_key(7, 3), work, NULL), ==, passes));
	assert(!memcmp(q, again, (size_t)(n * r) * sizeof *q));
	free(work);
	free(again);
	n_checks++;
	return passes;
}

static void bases(void)
{
	enum { N = 1024 };
	float *p = dlb_xmalloc(N * DLB_MOST_RANK * sizeof *p),
	      *q = dlb_xmalloc(N * DLB_MOST_RANK * sizeof *q);
	static const int rows[] = { 1, 2, 3, 8, 17, 64, 100, N }, ranks[] = { 1, 2, 3, 4, 8, 16, 33, 64 };
	double worst = 0;
	int replaced;

	for (size_t a = 0; a < sizeof rows / sizeof *rows; a++)
		for (size_t b = 0; b < sizeof ranks / sizeof *ranks; b++) {
			int n = rows[a], r = ranks[b];
			double off;

			if (r > n)
				continue;
			for (int e = 0; e <= 12; e++) {	/* condition 1 .. 1e12 */
				conditioned(p, n, r, pow(10, e), r);
				assert(IS(basis(p, q, n, r, &replaced), >, 0));
				off = off_orthonormal(q, n, r);
				worst = off > worst ? off : worst;
				assert(IS(off, <=, 1e-7));
				/* what counts as spanned: tau */
				assert(IS(off_span(q, p, n, r), <=, 2e-6));
			}
			for (int rank = 0; rank < r; rank += 1 + rank / 4) {	/* every kind of deficiency */
				conditioned(p, n, r, 10, rank);
				assert(IS(basis(p, q, n, r, &replaced), >, 0));
				assert(IS(replaced, >, 0));
				off = off_orthonormal(q, n, r);
				worst = off > worst ? off : worst;
				assert(IS(off, <=, 1e-7));
				/* what counts as spanned: tau */
				assert(IS(off_span(q, p, n, r), <=, 2e-6));
			}
			/* zero columns, columns of any length */
			for (int zero = 0; zero < r; zero += 1 + r / 4) {
				for (int i = 0; i < n; i++)
					for (int k = 0; k < r; k++)
						p[i * r + k] = k % (zero + 1) == zero ?
								       0.0f :
								       (float)(normal(&rng) *
									       pow(10, k % 60 - 30));
				assert(IS(basis(p, q, n, r, &replaced), >, 0));
				assert(IS(off_orthonormal(q, n, r), <=, 1e-7));
			}
			for (int i = 0; i < n * r; i++)					/* equal columns */
				p[i] = (float)(i / r + 1);
			assert(IS(basis(p, q, n, r, &replaced), >, 0) && IS(replaced, ==, r - 1) &&
			       IS(off_orthonormal(q, n, r), <=, 1e-7));
			p[n * r / 2] = NAN;
			assert(IS(basis(p, q, n, r, &replaced), ==, -1));
			p[n * r / 2] = INFINITY;
			assert(IS(basis(p, q, n, r, &replaced), ==, -1));
		}
	printf("bases: at most %.2g from orthonormal\n", worst);
	free(p);
	free(q);
}

/* ---- the three passes ---- */

static void passes(void)
{
	static const int shapes[][3] = { { 1, 1, 1 },	 { 3, 5, 2 },	 { 16, 8, 2 },	{ 7, 100, 5 },
					 { 129, 65, 8 }, { 40, 96, 16 }, { 37, 31, 31 } };
	const struct dlb_skinny *k = dlb_skinny();

	for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
		int n = shapes[s][0], m = shapes[s][1], r = shapes[s][2];
		const struct dlb_skinny_shape shape = { n, m, r };
		int64_t stride = dlb_skinny_stride(m);
		float *x = dlb_xmalloc((size_t)(4 * n * m + n * r) * sizeof *x), *e = x + n * m,
		      *g = e + n * m, *kept = g + n * m, *p = kept + n * m;
		float *qt = dlb_xmalloc((size_t)(r * stride) * sizeof *qt);

		for (int i = 0; i < n * m; i++) {
			g[i] = x[i] = (float)normal(&rng);
			kept[i] = e[i] = (float)normal(&rng);
		}
		dlb_lowrank_first_q(qt, m, r, 5);
		k->project(&shape, x, e, qt, p);
		for (int i = 0; i < n; i++)
			for (int c = 0; c < r; c++) {
				double want = 0;

				for (int j = 0; j < m; j++)
					want += (double)x[i * m + j] * (double)qt[c * stride + j];
				assert(IS(fabs(want - (double)p[i * r + c]), <=, 1e-5 * sqrt(m) * 4));
			}
		for (int i = 0; i < n * m; i++)
			assert(IS(x[i], ==, g[i] + e[i]));
		assert(!memcmp(e, kept, (size_t)(n * m) * sizeof *e));
		k->project_back(&shape, x, p, qt);
		for (int c = 0; c < r; c++)
			for (int64_t j = 0; j < stride; j++) {
				double want = 0, size = 0;

				for (int i = 0; i < n && j < m; i++) {
					want += (double)x[i * m + j] * (double)p[i * r + c];
					size += fabs((double)x[i * m + j] * (double)p[i * r + c]);
				}
				assert(IS(fabs(want - (double)qt[c * stride + j]), <=, 1e-6 * size));
			}
		memcpy(g, x, (size_t)(n * m) * sizeof *g);
		k->restore(&shape, x, e, p, qt, 0.25f);
		for (int i = 0; i < n; i++)
			for (int j = 0; j < m; j++) {
				float want = 0;

				for (int c = 0; c < r; c++)
					want += qt[c * stride + j] * p[i * r + c];
				assert(IS(x[i * m + j], ==, want));	/* the same bits on any machine */
				assert(IS(e[i * m + j], ==, g[i * m + j] - want * 0.25f));
			}
		n_checks++;
		free(x);
		free(qt);
	}
}

/* ---- vectors ---- */

/* Steps of the vectors in double, through dlb_orthonormal; `local`: each worker keeps its own residual. */
static void steps_f64(const json_t *root, const json_t *gradients, const json_t *steps, bool local,
		      bool replaces)
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
			/* from there on results depend on a replaced column */
			for (int j = 0; j < M && !(replaces && s == 2); j++) {
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

/* The same in float32 through the passes of the executor. */
static void steps_f32(const json_t *root, const json_t *steps, bool local)
{
	enum { N = 16, M = 8, R = 2, W = 3 };
	const struct dlb_skinny *kernel = dlb_skinny();
	const struct dlb_skinny_shape shape = { N, M, R };
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
			kernel->project(&shape, x[w], e[w], qt, one);
			for (int i = 0; i < N * R; i++)
				p[i] += one[i];
		}
		assert(IS(dlb_orthonormal_f32(p, N, R, 0, work, NULL), ==, 1));
		memset(qt, 0, sizeof qt);
		for (int w = 0; w < W; w++) {
			kernel->project_back(&shape, x[w], p, mine[w]);
			for (int i = 0; i < R * 16; i++)
				qt[i] += mine[w][i] / W;
		}
		for (int j = 0; j < M; j++)
			for (int k = 0; k < R; k++)
				near((double)qt[k * stride + j], number(of(want, "Q_mean"), j, k), 1e-4);
		for (int w = 0; w < W; w++) {
			float kept[N * M];

			memcpy(kept, x[w], sizeof kept);
			kernel->restore(&shape, x[w], e[w], p, qt, 1);
			for (int i = 0; i < N * M; i++)
				near((double)x[w][i], number(of(want, "approx"), i / M, i % M), 1e-4);
			if (local) {
				memcpy(x[w], kept, sizeof kept);
				kernel->restore(&shape, x[w], e[w], p, mine[w], 1);
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
		assert(IS(first[i], ==, json_number_value(at(of(seed, "first4"), i))));
	steps_f64(root, of(root, "gradients"), of(root, "ef_global"), false, false);
	steps_f64(root, of(root, "gradients"), of(root, "ef_local"), true, false);
	steps_f64(root, of(deficient, "gradients"), of(deficient, "steps"), false, true);
	steps_f32(root, of(root, "ef_global"), false);
	steps_f32(root, of(root, "ef_local"), true);
	json_decref(root);
	return true;
}

static int by_size(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Keys of columns differ from gradient to gradient and from step to step; the numbers are those of splitmix64, of
 * which Rosetta Code, "Pseudo-random numbers/Splitmix64", has the first five for the seed 1234567. */
static void keys(void)
{
	static const uint64_t known[] = { UINT64_C(6457827717110365317), UINT64_C(3203168211198807973),
					  UINT64_C(9817491932198370423), UINT64_C(4593380528125082431),
					  UINT64_C(16408922859458223821) };
	enum { IDS = 40, STEPS = 50 };
	uint64_t key[IDS * STEPS];
	double x[2 * DLB_LEN(known)];

	dlb_splitmix_fill(x, DLB_LEN(known), 2, 1234567);
	for (int i = 0; i < DLB_LEN(known); i++)
		assert(IS(x[2 * i], ==, (double)(known[i] >> 11) * 0x1p-52 - 1));
	for (int i = 0; i < IDS * STEPS; i++)
		key[i] = dlb_lowrank_key((uint64_t)(i / STEPS), (uint64_t)(i % STEPS));
	qsort(key, IDS * STEPS, sizeof *key, by_size);
	for (int i = 1; i < IDS * STEPS; i++)
		assert(IS(key[i - 1], !=, key[i]));
}

int main(void)
{
	dlb_rng_init(&rng, 1);
	bases();
	passes();
	keys();
	const bool shared = lowrank_vectors();
	printf("%ld checks of low rank%s\n", n_checks,
	       shared ? ", shared vectors included" : "; skipped the shared vectors: not found");
	return 0;
}
