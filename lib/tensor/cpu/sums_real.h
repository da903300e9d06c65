/* Sums and maxima over contiguous memory for type T, in a fixed order: LANES partial results (lane i takes
 * elements i, i + LANES, ...), then the lanes by halves. */
#include "tensor/cpu/level.h"
#ifndef LANES
#define LANES 16
/* Explicit vectors: gcc keeps an array of lanes in memory, and clears it by a string instruction, which takes
 * longer to start than a short row to sum. */
typedef double pair_t __attribute__((vector_size(16)));
typedef double lanes_t __attribute__((vector_size(VECTOR_BYTES)));
enum { LANES_VECTOR = VECTOR_BYTES / sizeof(double), LANES_VECTORS = LANES / LANES_VECTOR };

static inline double join_lanes(const double *lane)
{
	pair_t v[LANES / 2];

	memcpy(v, lane, sizeof v);
	for (int w = LANES / 4; w; w /= 2)
#pragma GCC unroll 4
		for (int j = 0; j < w; j++)
			v[j] += v[j + w];
	return v[0][0] + v[0][1];
}
#endif

/* A vector of this level (an extension that gcc and clang share): gcc compares wider ones element by
 * element. */
typedef T S(vector_t) __attribute__((vector_size(VECTOR_BYTES)));
typedef T_INT S(vector_mask) __attribute__((vector_size(VECTOR_BYTES)));

/* As many elements as a vector has doubles. */
typedef T S(part_t) __attribute__((vector_size(VECTOR_BYTES / sizeof(double) * sizeof(T))));

static inline lanes_t S(lanes_of)(const T *x)
{
	S(part_t) v;

	memcpy(&v, x, sizeof v);
	return __builtin_convertvector(v, lanes_t);
}

/* Partial sums in double, exact enough for any length in training. */
static inline double S(sum)(const T *x, int64_t n)
{
	lanes_t v[LANES_VECTORS];
	double lane[LANES];
	int64_t i = 0;

#pragma GCC unroll 8
	for (int k = 0; k < LANES_VECTORS; k++)
		v[k] = (lanes_t){ 0 };
	for (; i + LANES <= n; i += LANES)
#pragma GCC unroll 8
		for (int k = 0; k < LANES_VECTORS; k++)
			v[k] += S(lanes_of)(x + i + k * LANES_VECTOR);
	memcpy(lane, v, sizeof lane);
	for (int j = 0; i + j < n; j++)
		lane[j] += x[i + j];
	return join_lanes(lane);
}

static inline double S(dot)(const T *x, const T *y, int64_t n)
{
	lanes_t v[LANES_VECTORS];
	double lane[LANES];
	int64_t i = 0;

#pragma GCC unroll 8
	for (int k = 0; k < LANES_VECTORS; k++)
		v[k] = (lanes_t){ 0 };
	for (; i + LANES <= n; i += LANES)
#pragma GCC unroll 8
		for (int k = 0; k < LANES_VECTORS; k++)
			v[k] += S(lanes_of)(x + i + k * LANES_VECTOR) * S(lanes_of)(y + i + k * LANES_VECTOR);
	memcpy(lane, v, sizeof lane);
	for (int j = 0; i + j < n; j++)
		lane[j] += (double)x[i + j] * y[i + j];
	return join_lanes(lane);
}

/* The shortest vector of any level, to join the lanes of a longer one. */
typedef T S(short_t) __attribute__((vector_size(16)));
typedef T_INT S(short_mask) __attribute__((vector_size(16)));

static inline S(vector_t) S(larger)(S(vector_t) v, S(vector_t) than)
{
	const S(vector_mask) is = (v > than) | (v != v);

	return (S(vector_t))((is & (S(vector_mask))v) | (~is & (S(vector_mask))than));
}

static inline S(short_t) S(larger_short)(S(short_t) v, S(short_t) than)
{
	const S(short_mask) is = (v > than) | (v != v);

	return (S(short_t))((is & (S(short_mask))v) | (~is & (S(short_mask))than));
}

/* Maximum of n elements, -infinity if n is 0; NaN if any element is NaN. */
static inline T S(largest)(const T *x, int64_t n)
{
	enum { WIDTH = VECTOR_BYTES / sizeof(T), VECTORS = LANES / WIDTH, SHORT = 16 / sizeof(T) };
	S(vector_t) most[VECTORS], v;
	S(short_t) lane[LANES / SHORT];
	T m;
	int64_t i = 0;

	if (n <= 0)
		return -INFINITY;
	for (int k = 0; k < VECTORS; k++)
		most[k] = (S(vector_t)){ 0 } + x[0];
	for (; i + LANES <= n; i += LANES)
#pragma GCC unroll 8
		for (int k = 0; k < VECTORS; k++) {
			memcpy(&v, x + i + k * WIDTH, sizeof v);
			most[k] = S(larger)(v, most[k]);
		}
	for (int k = 0; k < VECTORS; k++)
		memcpy((T *)lane + k * WIDTH, &most[k], sizeof most[k]);
	for (int w = LANES / SHORT / 2; w; w /= 2)
#pragma GCC unroll 4
		for (int j = 0; j < w; j++)
			lane[j] = S(larger_short)(lane[j + w], lane[j]);
	m = lane[0][0];
	for (int j = 1; j < SHORT; j++)
		m = (lane[0][j] > m || lane[0][j] != lane[0][j]) ? lane[0][j] : m;
	for (; i < n; i++)
		m = (x[i] > m || x[i] != x[i]) ? x[i] : m;
	return m;
}
