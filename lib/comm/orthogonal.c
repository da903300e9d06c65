/* Rank-revealing CholeskyQR in double. See lowrank.h. Plain loops in a fixed order: the bits depend on the
 * input alone, on any machine (double products of floats, and sums without contraction, round the same
 * everywhere). */
#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "comm/lowrank.h"
#include "tensor/skinny.h"
#include "util/mem.h"
#include "util/rng.h"

enum { R = DLB_MOST_RANK };
/* Greatest trace of G^-1 at which columns are orthonormal to float precision. The least pivot is no measure:
 * two small pivots amplify each other (a pivot of 6e-6, at condition 1e5, was seen to leave an error of
 * 4e-7). */
static const double enough = 1e6;

static uint64_t mix(uint64_t z)
{
	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

/* splitmix64: G. Steele, D. Lea, C. Flood, Fast splittable pseudorandom number generators, OOPSLA 2014. */
void dlb_splitmix_fill(double *x, int64_t n, int64_t stride, uint64_t key)
{
	for (int64_t i = 0; i < n; i++)
		x[i * stride] = (double)(mix(key += UINT64_C(0x9e3779b97f4a7c15)) >> 11) * 0x1p-52 - 1;
}

uint64_t dlb_lowrank_key(uint64_t id, uint64_t step)
{
	return mix(mix(id + 1) + step);
}

void dlb_lowrank_first_q(float *qt, int64_t m, int r, uint64_t id)
{
	int64_t stride = dlb_skinny_stride(m);

	memset(qt, 0, (size_t)(r * stride) * sizeof *qt);
	for (int k = 0; k < r; k++)
		for (int64_t j = 0; j < m; j++)
			qt[k * stride + j] = (float)dlb_philox_normal(0x10e4a4c, id, (uint64_t)(j * r + k));
}

/* g = p^T p, lower triangle. */
static void gram(const double *p, int64_t n, int r, double g[R][R])
{
	for (int a = 0; a < r; a++)
		for (int b = 0; b <= a; b++)
			g[a][b] = 0;
	for (int64_t i = 0; i < n; i++)
		for (int a = 0; a < r; a++) {
			double v = p[i * r + a];

			for (int b = 0; b <= a; b++)
				g[a][b] += v * p[i * r + b];
		}
}

/* l = Cholesky factor of g scaled to unit diagonal, left-looking. replaced[j]: column j lies in the span of
 * those before it, and its row and column are skipped. */
static void factor(double g[R][R], const double *norm, int r, double tau, double l[R][R], bool *replaced)
{
	for (int j = 0; j < r; j++) {
		double pivot = 1;

		replaced[j] = norm[j] == 0;
		for (int k = 0; k < j; k++)
			pivot -= replaced[k] ? 0 : l[j][k] * l[j][k];
		if (replaced[j] || !(pivot >= tau)) {
			replaced[j] = true;
			for (int i = j; i < r; i++)
				l[i][j] = 0;
			continue;
		}
		l[j][j] = sqrt(pivot);
		for (int i = j + 1; i < r; i++) {
			double v = norm[i] == 0 ? 0 : g[i][j] / (norm[i] * norm[j]);

			for (int k = 0; k < j; k++)
				v -= replaced[k] ? 0 : l[i][k] * l[j][k];
			l[i][j] = v / l[j][j];
		}
	}
}

/* The trace of (l l^T)^-1, column by column of l's inverse. */
static double inverse_trace(double l[R][R], int r)
{
	double sum = 0, x[R];

	for (int c = 0; c < r; c++)
		for (int i = c; i < r; i++) {
			double v = i == c;

			for (int k = c; k < i; k++)
				v -= l[i][k] * x[k];
			x[i] = v / l[i][i];
			sum += x[i] * x[i];
		}
	return sum;
}

/* p = p D^-1 L^-T, row by row; replaced columns become zero. */
static void solve(double *p, int64_t n, int r, const double *norm, double l[R][R], const bool *replaced)
{
	for (int64_t i = 0; i < n; i++) {
		double *row = p + i * r;

		for (int j = 0; j < r; j++) {
			double v = replaced[j] ? 0 : row[j] / norm[j];

			for (int k = 0; k < j; k++)
				v -= l[j][k] * row[k];
			row[j] = replaced[j] ? 0 : v / l[j][j];
		}
	}
}

/* Norms of columns. A column whose squares would overflow or underflow is first scaled by a power of two. -1:
 * not finite. */
static int column_norms(double *p, int64_t n, int r, double *norm)
{
	double most[R] = { 0 }, sum[R] = { 0 };

	for (int64_t i = 0; i < n; i++)
		for (int j = 0; j < r; j++) {
			double v = fabs(p[i * r + j]);

			most[j] = v > most[j] || isnan(v) ? v : most[j];
		}
	for (int j = 0; j < r; j++) {
		if (!isfinite(most[j]))
			return -1;
		if (most[j] > 0 && (most[j] < 1e-100 || most[j] > 1e100)) {
			int e;

			frexp(most[j], &e);
			for (int64_t i = 0; i < n; i++)
				p[i * r + j] = ldexp(p[i * r + j], -e);
		}
	}
	for (int64_t i = 0; i < n; i++)
		for (int j = 0; j < r; j++)
			sum[j] += p[i * r + j] * p[i * r + j];
	for (int j = 0; j < r; j++)
		norm[j] = sqrt(sum[j]);
	return 0;
}

int dlb_orthonormal(double *p, int64_t n, int r, uint64_t key, double tau, double *norm_out, int *n_replaced)
{
	double (*g)[R] = dlb_xmalloc(2 * R * sizeof *g), (*l)[R] = g + R, norm[R];
	bool replaced[R];
	int pass, total = 0;

	assert(r <= R && r <= n);
	for (pass = 1; pass <= DLB_MOST_PASSES; pass++) {
		int some = 0;

		if (column_norms(p, n, r, norm)) {
			pass = -1;
			break;
		}
		if (pass == 1 && norm_out)
			memcpy(norm_out, norm, (size_t)r * sizeof *norm);
		gram(p, n, r, g);
		factor(g, norm, r, tau, l, replaced);
		solve(p, n, r, norm, l, replaced);
		for (int j = 0; j < r; j++)
			if (replaced[j]) {
				dlb_splitmix_fill(p + j, n, r, mix(key + (uint64_t)(pass * R + j)));
				some++;
			}
		total += some;
		if (!some && inverse_trace(l, r) <= enough)
			break;
	}
	free(g);
	if (n_replaced)
		*n_replaced = total;
	return pass > DLB_MOST_PASSES ? DLB_MOST_PASSES : pass;
}

int dlb_orthonormal_f32(float *p, int64_t n, int r, uint64_t key, double *work, int *n_replaced)
{
	int passes;

	for (int64_t i = 0; i < n * r; i++)
		work[i] = (double)p[i];
	passes = dlb_orthonormal(work, n, r, key, DLB_TAU_F32, NULL, n_replaced);
	for (int64_t i = 0; i < n * r && passes > 0; i++)
		p[i] = (float)work[i];
	return passes;
}
