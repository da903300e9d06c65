/* test_tags=slow */
/* Low rank: orthonormal bases of large matrices, the step with error feedback. Properties, and the shared vectors if
 * they are there. test_bases.c has small ones. */
#include "bases.h"
#include "vectors.h"

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

int main(void)
{
	dlb_rng_init(&rng, 1);
	bases(1024, DLB_MOST_RANK);
	const bool shared = lowrank_vectors();
	printf("%ld checks of low rank%s\n", n_checks,
	       shared ? ", shared vectors included" : "; skipped the shared vectors: not found");
	return 0;
}
