/* Products with thin vectors: see tensor/skinny.h. Four rows at a time share each load of qt; partial sums
 * are in registers: 4 rows x 4 vectors of DLB_SKINNY_LANES. */
#include <string.h>

#include "tensor/cpu/level.h"
#include "tensor/skinny.h"

enum { ROWS = 4, VECTORS = 4, LANES = DLB_SKINNY_LANES };
typedef float lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(sizeof(float))));

extern const struct dlb_skinny dlb_cpu_skinny;

/* n_left < LANES: the rest is zero. */
#define LOAD(v, p, n_left) \
	do { if ((n_left) >= LANES) memcpy(&(v), (p), sizeof(lanes)); \
		else { (v) = (lanes){ 0 }; memcpy(&(v), (p), (size_t)(n_left) * sizeof(float)); } } while (0)
#define STORE(p, v, n_left) memcpy((p), &(v), (n_left) >= LANES ? sizeof(lanes) : (size_t)(n_left) * sizeof(float))

static void add_row(int64_t m, float *restrict x, const float *restrict e)
{
	for (int64_t j = 0; j < m; j++)
		x[j] += e[j];
}

/* Sums the lanes in a fixed order, by halves. */
static float total(const lanes *v)
{
	float t[LANES];

	memcpy(t, v, sizeof t);
	for (int n = LANES / 2; n; n /= 2)
		for (int i = 0; i < n; i++)
			t[i] += t[i + n];
	return t[0];
}

static inline __attribute__((always_inline)) void project_block(int rows, int vectors,
								const struct dlb_skinny_shape *s,
								const float *x, const float *qt, float *p)
{
	const int64_t m = s->m, stride = dlb_skinny_stride(m);
	const int r = s->r;
	lanes sum[ROWS][VECTORS] = { 0 };

	for (int64_t j = 0; j < m; j += LANES) {
		lanes a[ROWS], b;

		for (int i = 0; i < rows; i++)
			LOAD(a[i], x + i * m + j, m - j);
		for (int k = 0; k < vectors; k++) {
			memcpy(&b, qt + k * stride + j, sizeof b);
			for (int i = 0; i < rows; i++)
				sum[i][k] += a[i] * b;
		}
	}
	for (int i = 0; i < rows; i++)
		for (int k = 0; k < vectors; k++)
			p[i * r + k] = total(&sum[i][k]);
}

static void project(const struct dlb_skinny_shape *s, float *x, const float *e, const float *qt, float *p)
{
	const int64_t n = s->n, m = s->m, stride = dlb_skinny_stride(m);
	const int r = s->r;

	for (int64_t i = 0; i < n; i += ROWS) {
		int rows = n - i < ROWS ? (int)(n - i) : ROWS;

		if (e)
			add_row(rows * m, x + i * m, e + i * m);
		for (int k = 0; k < r; k += VECTORS) {
			const float *q = qt + k * stride;
			int vectors = r - k < VECTORS ? r - k : VECTORS;

			if (rows == ROWS && vectors == VECTORS) {
				project_block(ROWS, VECTORS, s, x + i * m, q, p + i * r + k);
				continue;
			}
			for (int ii = 0; ii < rows; ii++)
				for (int kk = 0; kk < vectors; kk++)
					project_block(1, 1, s, x + (i + ii) * m, q + kk * stride,
						      p + (i + ii) * r + k + kk);
		}
	}
}

static inline __attribute__((always_inline)) void back_block(int rows, int64_t m, int r, const float *x,
							     const float *p, float *qt, int64_t stride)
{
	for (int64_t j = 0; j < m; j += LANES) {
		lanes a[2 * ROWS], q;

		for (int i = 0; i < rows; i++)
			LOAD(a[i], x + i * m + j, m - j);
		for (int k = 0; k < r; k++) {
			memcpy(&q, qt + k * stride + j, sizeof q);
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

	for (int64_t j = 0; j < m; j += LANES) {
		lanes y[ROWS] = { 0 }, q;

		for (int k = 0; k < r; k++) {
			memcpy(&q, qt + k * stride + j, sizeof q);
			for (int i = 0; i < rows; i++)
				y[i] += q * p[i * r + k];
		}
		for (int i = 0; i < rows; i++) {
			if (e) {
				lanes left;

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
