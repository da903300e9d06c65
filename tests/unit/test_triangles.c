/* Symmetric matrices as triangles: RFP, factors and their retries, bf16, pivoted Cholesky. Properties, and
 * the shared vectors if they are there. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/cholesky.h"
#include "tensor/spd.h"
#include "check.h"
#include "random_matrix.h"
#include "vectors.h"

static struct dlb_rng rng;

/* ---- triangles ---- */

static void triangles(void)
{
	for (int n = 1; n < 70; n += n < 12 ? 1 : 7) {
		int64_t count = dlb_rfp_count(n);
		float *a = dlb_xmalloc((size_t)(3 * n * n) * sizeof *a), *b = a + n * n, *c = b + n * n,
		      largest;
		float *s = dlb_xmalloc((size_t)(3 * count) * sizeof *s), *work = s + count, *t = work + count;
		bool *seen = dlb_xcalloc((size_t)count, sizeof *seen), finite;
		double added;

		for (int i = 0; i < n; i++)
			for (int j = 0; j <= i; j++) {
				assert(!seen[dlb_rfp_at(n, i, j)]);
				seen[dlb_rfp_at(n, i, j)] = true;
			}
		spd(&rng, a, n, 0.5);
		for (int reversed = 0; reversed < 2; reversed++) {
			dlb_rfp_pack(n, a, reversed, s);
			for (int i = 0; i < n; i++)
				for (int j = 0; j <= i; j++)
					assert(IS(s[dlb_rfp_at(n, i, j)], ==,
						  (reversed ? a[(n - 1 - i) * n + n - 1 - j] :
							      a[i * n + j])));
			memset(b, 0, (size_t)(n * n) * sizeof *b);
			dlb_rfp_unpack(n, s, reversed, b);
			assert(!memcmp(a, b, (size_t)(n * n) * sizeof *a));
		}
		assert(IS(dlb_asymmetry(n, a, &largest, &finite), ==, 0) && finite && IS(largest, >=, 1.5f));
		dlb_rfp_pack(n, a, true, s);
		assert(IS(dlb_spd_factor(n, s, 0, work, &added), ==, 0) && IS(added, ==, 0));
		dlb_rfp_restore(n, s, b);
		for (int i = 0; i < n * n; i++)
			assert(IS(fabsf(a[i] - b[i]), <=, 4e-6f));
		dlb_bf16_pack(t, s, count);
		dlb_bf16_unpack(work, t, count);
		for (int64_t i = 0; i < count; i++)
			assert(IS(fabsf(work[i] - s[i]), <=, fabsf(s[i]) / 256));
		for (int i = 0; i < n * n; i++)	/* X X^T by syrk is X X^T */
			c[i] = (float)normal(&rng);
		dlb_rfp_syrk(n, n, 0.5f, c, 0, s);
		dlb_rfp_unpack(n, s, false, b);
		for (int i = 0; i < n; i++)
			for (int j = 0; j < n; j++) {
				double want = 0;

				for (int k = 0; k < n; k++)
					want += 0.5 * (double)c[i * n + k] * (double)c[j * n + k];
				assert(IS(fabs(want - (double)b[i * n + j]), <=, 1e-5 * n));
			}
		if (n > 1) {
			a[n] += 1;
			assert(IS(fabsf(dlb_asymmetry(n, a, &largest, &finite) - 1), <, 1e-5f));
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

/* Nearly singular: the retries help; indefinite: they do not, and the sum is unchanged. */
static void retries(void)
{
	enum { N = 40 };
	float s[N * (N + 1) / 2], work[N * (N + 1) / 2], before[N * (N + 1) / 2], x[N * 4], a[N * N];
	double added;

	for (int i = 0; i < N * 4; i++)
		x[i] = (float)normal(&rng);
	dlb_rfp_syrk(N, 4, 1, x, 0, s);				/* rank 4 */
	memcpy(before, s, sizeof s);
	assert(IS(dlb_spd_factor(N, s, 0, work, &added), >, 0) && IS(added, >, 0));
	memcpy(s, before, sizeof s);
	assert(IS(dlb_spd_factor(N, s, 0.1, work, &added), ==, 0) && IS(added, ==, 0.1));
	dlb_rfp_restore(N, s, a);
	for (int i = 0; i < N; i++)	/* the factored matrix was not reversed: compare backwards */
		for (int j = 0; j <= i; j++)
			assert(IS(fabsf(a[(N - 1 - i) * N + N - 1 - j] - before[dlb_rfp_at(N, i, j)] -
					(i == j ? 0.1f : 0)),
				  <, 1e-4f));
	spd(&rng, a, N, 0);
	a[5 * N + 5] = -3;
	dlb_rfp_pack(N, a, true, s);
	memcpy(before, s, sizeof s);
	assert(IS(dlb_spd_factor(N, s, 1e-3, work, &added), ==, -1) && IS(added, ==, 0) &&
	       !memcmp(s, before, sizeof s));
	n_checks += 3;
}

static void pivoted(void)
{
	for (int n = 1; n < 60; n += 9)
		for (int rank = 0; rank <= n; rank += 3) {
			float *x = dlb_xcalloc((size_t)(n * rank + 1), sizeof *x),
			      *a = dlb_xcalloc((size_t)(n * n), sizeof *a);
			float *l = dlb_xcalloc((size_t)(n * n), sizeof *l);
			int *pivot = dlb_xcalloc((size_t)n, sizeof *pivot), got;
			struct dlb_pivoted f = { .l = l, .ld = n, .pivot = pivot };
			double worst = 0;

			for (int i = 0; i < n * rank; i++)
				x[i] = (float)normal(&rng);
			for (int i = 0; i < n; i++)
				for (int j = 0; j < n; j++)
					for (int k = 0; k < rank; k++)
						a[i * n + j] += x[i * rank + k] * x[j * rank + k];
			got = dlb_pivoted_cholesky(n, a, &(struct dlb_pivot_stop){ 1e-4, -INFINITY, n }, &f);
			assert(IS(got, ==, rank) && IS(f.least, >, -1e-4));
			for (int i = 0; i < n; i++)
				for (int j = 0; j < n; j++) {
					double v = (double)a[i * n + j];

					for (int k = 0; k < got; k++)
						v -= (double)l[i * n + k] * (double)l[j * n + k];
					worst = fabs(v) > worst ? fabs(v) : worst;
				}
			assert(IS(worst, <=, 1e-3));
			/* stops at the given rank */
			got = dlb_pivoted_cholesky(n, a, &(struct dlb_pivot_stop){ 0, -INFINITY, rank / 2 },
						   &f);
			assert(IS(got, ==, rank / 2) && (rank < 2 || f.rest > 0));
			n_checks++;
			free(x);
			free(a);
			free(l);
			free(pivot);
		}
}

/* ---- vectors ---- */

static bool triangle_vectors(void)
{
	enum { N = 6, T = 21, W = 3 };
	json_t *root = load("spd_triangle.json");
	float a[N * N], s[T], sum[T] = { 0 }, rev[T], work[T], words[T], back[N * N];
	double added;

	if (!root)
		return false;
	assert(IS(json_integer_value(of(root, "packed_bytes")), ==, 4 * dlb_rfp_count(N)) &&
	       IS(json_integer_value(of(root, "dense_bytes")), ==, 4 * N * N));
	for (int w = 0; w < W; w++) {
		for (int i = 0; i < N * N; i++)
			a[i] = (float)number(at(of(root, "D"), w), i / N, i % N);
		dlb_rfp_pack(N, a, false, s);
		for (int j = 0, k = 0; j < N; j++)
			for (int i = j; i < N; i++, k++)
				near((double)s[dlb_rfp_at(N, i, j)], number(of(root, "packed"), w, k), 1e-6);
		for (int i = 0; i < T; i++)
			sum[i] += s[i];
		assert(IS(dlb_spd_factor(N, s, 0, work, &added), ==, 0));
		for (int i = 0; i < N; i++)
			for (int j = 0; j <= i; j++)
				near((double)s[dlb_rfp_at(N, i, j)], number(at(of(root, "L_each"), w), i, j),
				     1e-5);
	}
	for (int i = 0; i < T; i++)
		near((double)sum[i], json_number_value(at(of(root, "rfp_sum"), i)), 1e-6);
	dlb_rfp_unpack(N, sum, false, a);
	dlb_rfp_pack(N, a, true, rev);
	assert(IS(dlb_spd_factor(N, sum, 0, work, &added), ==, 0) &&
	       IS(dlb_spd_factor(N, rev, 0, work, &added), ==, 0));
	for (int i = 0; i < N; i++)
		for (int j = 0; j <= i; j++) {
			near((double)sum[dlb_rfp_at(N, i, j)], number(of(root, "L_sum"), i, j), 1e-5);
			near((double)rev[dlb_rfp_at(N, i, j)],
			     number(of(root, "U_reverse"), N - 1 - i, N - 1 - j), 1e-5);
		}
	dlb_rfp_restore(N, rev, back);
	for (int i = 0; i < N * N; i++)
		near((double)back[i], (double)a[i], 1e-5);
	dlb_bf16_pack(words, sum, T);
	dlb_bf16_unpack(s, words, T);
	for (int i = 0; i < N; i++)
		for (int j = 0; j <= i; j++) {
			double v = 0;

			assert(IS((double)s[dlb_rfp_at(N, i, j)], ==, number(of(root, "bf16_L"), i, j)));
			for (int k = 0; k <= j; k++)
				v += (double)s[dlb_rfp_at(N, i, k)] * (double)s[dlb_rfp_at(N, j, k)];
			near(v, number(of(root, "bf16_L_restored"), i, j), 1e-12);
		}
	for (int i = 0; i < 4; i++)
		a[i] = (float)number(of(of(root, "not_pd"), "D"), i / 2, i % 2);
	dlb_rfp_pack(2, a, false, s);
	assert(IS(dlb_rfp_factor(2, s), ==, 2));
	dlb_rfp_pack(2, a, false, s);
	assert(IS(dlb_spd_factor(2, s, 0, work, &added), ==, -1));
	json_decref(root);
	return true;
}

static bool pivoted_vectors(void)
{
	enum { N = 8 };
	json_t *root = load("pivoted_cholesky.json");
	const json_t *cases = of(root, "cases"), *bad = of(of(root, "indefinite"), "A");
	float a[N * N], l[N * N];
	double most = 0;
	int pivot[N];
	struct dlb_pivoted f = { .l = l, .ld = N, .pivot = pivot };

	if (!root)
		return false;
	for (int i = 0; i < N * N; i++)
		a[i] = (float)number(of(root, "A"), i / N, i % N);
	for (int i = 0; i < N; i++)
		most = (double)a[i * N + i] > most ? (double)a[i * N + i] : most;
	for (int c = 0; c < (int)json_array_size(cases); c++) {
		const json_t *want = at(cases, c);
		double relative = json_number_value(of(want, "tol_relative"));
		/* A remainder below 1e-6 of the diagonal is rounding in float32. */
		int rank = dlb_pivoted_cholesky(N, a,
						&(struct dlb_pivot_stop){ relative * most, -INFINITY, N },
						&f);

		if (relative < 1e-6)
			continue;
		assert(IS(rank, ==, json_integer_value(of(want, "rank"))));
		assert(IS(dlb_pivoted_count(N, rank), ==, json_integer_value(of(want, "elements_sent"))));
		near(f.rest, json_number_value(of(want, "trace_error")), 1e-5);
		for (int k = 0; k < rank; k++)
			assert(IS(pivot[k], ==, json_integer_value(at(of(want, "pivots_0based"), k))));
		for (int i = 0; i < N; i++)
			for (int j = 0; j < N; j++) {
				double v = 0;

				for (int k = 0; k < rank; k++)
					v += (double)l[i * N + k] * (double)l[j * N + k];
				near(v, number(of(want, "restored"), i, j), 1e-5);
			}
	}
	memset(a, 0, sizeof a);
	assert(IS(dlb_pivoted_cholesky(N, a, &(struct dlb_pivot_stop){ 0, -INFINITY, N }, &f), ==,
		  json_integer_value(of(of(root, "zero_matrix"), "expect_rank"))));
	for (int i = 0; i < 9; i++)
		a[i] = (float)number(bad, i / 3, i % 3);
	/* not semidefinite */
	f.ld = 3;
	assert(IS(dlb_pivoted_cholesky(3, a, &(struct dlb_pivot_stop){ 0, -INFINITY, 3 }, &f), ==, 2) &&
	       IS(f.least, ==, -1));
	json_decref(root);
	return true;
}

int main(void)
{
	dlb_rng_init(&rng, 1);
	triangles();
	retries();
	pivoted();
	const bool shared = triangle_vectors() && pivoted_vectors();
	printf("%ld checks of triangles%s\n", n_checks,
	       shared ? ", shared vectors included" : "; skipped the shared vectors: not found");
	return 0;
}
