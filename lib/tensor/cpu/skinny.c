/* Products with thin vectors: see tensor/skinny.h. Several rows at a time share each load of qt; partial sums
 * are in registers: of ROWS rows x COLUMNS vectors of DLB_SKINNY_LANES numbers. */
#include <string.h>

#include "tensor/cpu/level.h"
#include "tensor/skinny.h"

enum {
	LANES = DLB_SKINNY_LANES,
	WIDTH = VECTOR_BYTES / (int)sizeof(float),
	PARTS = LANES / WIDTH,			/* vectors of the level that hold LANES numbers */
	ROWS = VECTOR_BYTES > 16 ? 4 : 2,
	COLUMNS = VECTOR_BYTES > 32 ? 4 : 1
};
typedef float vector __attribute__((vector_size(VECTOR_BYTES)));

extern const struct dlb_skinny dlb_cpu_skinny;

/* n_left < WIDTH: the rest is zero. */
#define LOAD(v, p, n_left) \
	do { \
		if ((n_left) >= WIDTH) \
			memcpy(&(v), (p), sizeof(vector)); \
		else { \
			(v) = (vector){ 0 }; \
			if ((n_left) > 0) \
				memcpy(&(v), (p), (size_t)(n_left) * sizeof(float)); \
		} \
	} while (0)
#define STORE(p, v, n_left) \
	memcpy((p), &(v), (n_left) >= WIDTH ? sizeof(vector) : (size_t)(n_left) * sizeof(float))

static void add_row(int64_t m, float *restrict x, const float *restrict e)
{
	for (int64_t j = 0; j < m; j++)
		x[j] += e[j];
}

/* Sums LANES numbers in a fixed order, by halves. */
static float total(const vector *v)
{
	float t[LANES];

	memcpy(t, v, sizeof t);
	for (int n = LANES / 2; n; n /= 2)
		for (int i = 0; i < n; i++)
			t[i] += t[i + n];
	return t[0];
}

static inline __attribute__((always_inline)) void project_block(int rows, int columns,
								const struct dlb_skinny_shape *s,
								const float *x, const float *qt, float *p)
{
	const int64_t m = s->m, stride = dlb_skinny_stride(m);
	const int r = s->r;
	vector sum[ROWS][COLUMNS][PARTS] = { 0 };

	for (int64_t j = 0; j < m; j += LANES)
#pragma GCC unroll 4
		for (int l = 0; l < PARTS; l++) {
			vector a[ROWS], b;
			const int64_t at = j + l * WIDTH;

#pragma GCC unroll 4
			for (int i = 0; i < rows; i++)
				LOAD(a[i], x + i * m + at, m - at);
#pragma GCC unroll 4
			for (int k = 0; k < columns; k++) {
				memcpy(&b, qt + k * stride + at, sizeof b);
#pragma GCC unroll 4
				for (int i = 0; i < rows; i++)
					sum[i][k][l] += a[i] * b;
			}
		}
	for (int i = 0; i < rows; i++)
		for (int k = 0; k < columns; k++)
			p[i * r + k] = total(sum[i][k]);
}

static void project(const struct dlb_skinny_shape *s, float *x, const float *e, const float *qt, float *p)
{
	const int64_t n = s->n, m = s->m, stride = dlb_skinny_stride(m);
	const int r = s->r;

	for (int64_t i = 0; i < n; i += ROWS) {
		int rows = n - i < ROWS ? (int)(n - i) : ROWS;

		if (e)
			add_row(rows * m, x + i * m, e + i * m);
		for (int k = 0; k < r; k += COLUMNS) {
			const float *q = qt + k * stride;
			int columns = r - k < COLUMNS ? r - k : COLUMNS;

			if (rows == ROWS && columns == COLUMNS) {
				project_block(ROWS, COLUMNS, s, x + i * m, q, p + i * r + k);
				continue;
			}
			for (int kk = 0; kk < columns; kk++)
				if (rows == ROWS)
					project_block(ROWS, 1, s, x + i * m, q + kk * stride,
						      p + i * r + k + kk);
				else
					for (int ii = 0; ii < rows; ii++)
						project_block(1, 1, s, x + (i + ii) * m, q + kk * stride,
							      p + (i + ii) * r + k + kk);
		}
	}
}

static inline __attribute__((always_inline)) void back_block(int rows, int64_t m, int r, const float *x,
							     const float *p, float *qt, int64_t stride)
{
	for (int64_t j = 0; j < m; j += WIDTH) {
		vector a[2 * ROWS], q;

#pragma GCC unroll 8
		for (int i = 0; i < rows; i++)
			LOAD(a[i], x + i * m + j, m - j);
		for (int k = 0; k < r; k++) {
			memcpy(&q, qt + k * stride + j, sizeof q);
#pragma GCC unroll 8
			for (int i = 0; i < rows; i++)
				q += a[i] * p[i * r + k];
			memcpy(qt + k * stride + j, &q, sizeof q);
		}
	}
}

static void project_back(const struct dlb_skinny_shape *s, const float *x, const float *p, float *qt)
{
	const int64_t n = s->n, m = s->m, stride = dlb_skinny_stride(m);
	const int r = s->r;
	int64_t i = 0;

	memset(qt, 0, (size_t)(r * stride) * sizeof *qt);
	for (; i + 2 * ROWS <= n; i += 2 * ROWS)
		back_block(2 * ROWS, m, r, x + i * m, p + i * r, qt, stride);
	for (; i < n; i++)
		back_block(1, m, r, x + i * m, p + i * r, qt, stride);
}

static inline __attribute__((always_inline)) void restore_block(int rows,
								const struct dlb_skinny_shape *s, float *x,
								float *e, const float *p, const float *qt,
								float share)
{
	const int64_t m = s->m, stride = dlb_skinny_stride(m);
	const int r = s->r;

	for (int64_t j = 0; j < m; j += WIDTH) {
		vector y[ROWS] = { 0 }, q;

		for (int k = 0; k < r; k++) {
			memcpy(&q, qt + k * stride + j, sizeof q);
#pragma GCC unroll 4
			for (int i = 0; i < rows; i++)
				y[i] += q * p[i * r + k];
		}
#pragma GCC unroll 4
		for (int i = 0; i < rows; i++) {
			if (e) {
				vector left;

				LOAD(left, x + i * m + j, m - j);
				left -= y[i] * share;
				STORE(e + i * m + j, left, m - j);
			}
			STORE(x + i * m + j, y[i], m - j);
		}
	}
}

static void restore(const struct dlb_skinny_shape *s, float *x, float *e, const float *p, const float *qt,
		    float share)
{
	const int64_t n = s->n, m = s->m;
	const int r = s->r;
	int64_t i = 0;

	for (; i + ROWS <= n; i += ROWS)
		restore_block(ROWS, s, x + i * m, e ? e + i * m : NULL, p + i * r, qt, share);
	for (; i < n; i++)
		restore_block(1, s, x + i * m, e ? e + i * m : NULL, p + i * r, qt, share);
}

const struct dlb_skinny dlb_cpu_skinny = { .project = project,
					   .project_back = project_back,
					   .restore = restore };
