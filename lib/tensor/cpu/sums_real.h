/* Sums and maxima over contiguous memory for type T, in a fixed order: LANES partial results (lane i takes
 * elements i, i + LANES, ...), then the lanes by halves. */
#include "tensor/cpu/level.h"
#ifndef LANES
#define LANES 16
static inline double join_lanes(double *lane)
{
	for (int w = LANES / 2; w; w /= 2)
		for (int j = 0; j < w; j++)
			lane[j] += lane[j + w];
	return lane[0];
}
#endif

/* A vector of this level (an extension that gcc and clang share): gcc compares wider ones element by
 * element. */
typedef T S(vector_t) __attribute__((vector_size(VECTOR_BYTES)));
typedef T_INT S(vector_mask) __attribute__((vector_size(VECTOR_BYTES)));

/* Partial sums in double, exact enough for any length in training. */
static inline double S(sum)(const T *x, int64_t n)
{
	double lane[LANES] = { 0 };
	int64_t i = 0;

	for (; i + LANES <= n; i += LANES)
#pragma omp simd
		for (int j = 0; j < LANES; j++)
			lane[j] += x[i + j];
	for (int j = 0; i + j < n; j++)
		lane[j] += x[i + j];
	return join_lanes(lane);
}

static inline double S(dot)(const T *x, const T *y, int64_t n)
{
	double lane[LANES] = { 0 };
	int64_t i = 0;

	for (; i + LANES <= n; i += LANES)
#pragma omp simd
		for (int j = 0; j < LANES; j++)
			lane[j] += (double)x[i + j] * y[i + j];
	for (int j = 0; i + j < n; j++)
		lane[j] += (double)x[i + j] * y[i + j];
	return join_lanes(lane);
}

/* Maximum of n elements, -infinity if n is 0; NaN if any element is NaN. */
static inline T S(largest)(const T *x, int64_t n)
{
	enum { WIDTH = VECTOR_BYTES / sizeof(T), VECTORS = LANES / WIDTH };
	S(vector_t) most[VECTORS], v;
	T lane[LANES], m;
	int64_t i = 0;

	if (n <= 0)
		return -INFINITY;
	for (int j = 0; j < LANES; j++)
		lane[j] = x[0];
	memcpy(most, lane, sizeof most);
	for (; i + LANES <= n; i += LANES)
#pragma GCC unroll 8
		for (int k = 0; k < VECTORS; k++) {
			S(vector_mask) better;

			memcpy(&v, x + i + k * WIDTH, sizeof v);
			better = (v > most[k]) | (v != v);
			most[k] = (S(vector_t))((better & (S(vector_mask))v) |
						(~better & (S(vector_mask))most[k]));
		}
	memcpy(lane, most, sizeof lane);
	m = lane[0];
	for (int j = 1; j < LANES; j++)
		m = (lane[j] > m || lane[j] != lane[j]) ? lane[j] : m;
	for (; i < n; i++)
		m = (x[i] > m || x[i] != x[i]) ? x[i] : m;
	return m;
}
