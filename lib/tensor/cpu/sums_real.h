/* Sums, maxima and the like over contiguous memory for type T, in a fixed order: LANES partial results (lane
 * i takes elements i, i + LANES, ...), then the lanes, halves to halves. */
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

/* LANES elements as one vector (an extension that gcc and clang share). */
typedef T S(lanes_t) __attribute__((vector_size(LANES * sizeof(T))));
typedef T_INT S(lanes_mask) __attribute__((vector_size(LANES * sizeof(T))));

/* Double partial sums: exact enough for any length that training meets. */
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

/* Of n elements, -infinity of none; NaN when there is one. */
static inline T S(largest)(const T *x, int64_t n)
{
	S(lanes_t) most, v;
	T lane[LANES], m;
	int64_t i = 0;

	if (n <= 0)
		return -INFINITY;
	for (int j = 0; j < LANES; j++)
		lane[j] = x[0];
	memcpy(&most, lane, sizeof most);
	for (; i + LANES <= n; i += LANES) {
		S(lanes_mask) better;

		memcpy(&v, x + i, sizeof v);
		better = (v > most) | (v != v);
		most = (S(lanes_t))((better & (S(lanes_mask))v) | (~better & (S(lanes_mask))most));
	}
	memcpy(lane, &most, sizeof lane);
	m = lane[0];
	for (int j = 1; j < LANES; j++)
		m = (lane[j] > m || lane[j] != lane[j]) ? lane[j] : m;
	for (; i < n; i++)
		m = (x[i] > m || x[i] != x[i]) ? x[i] : m;
	return m;
}
