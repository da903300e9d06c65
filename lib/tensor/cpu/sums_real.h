/* Sums, maxima and the like over contiguous memory for type T, in a fixed order: LANES partial results (lane
 * i takes elements i, i + LANES, ...), then the lanes from left to right. */
#ifndef LANES
#define LANES 16
#endif

/* Double partial sums: exact enough for any length that training meets. */
static inline double S(sum)(const T *x, int64_t n)
{
	double lane[LANES] = { 0 }, s = 0;
	int64_t i = 0;

	for (; i + LANES <= n; i += LANES)
#pragma omp simd
		for (int j = 0; j < LANES; j++)
			lane[j] += x[i + j];
	for (int j = 0; i + j < n; j++)
		lane[j] += x[i + j];
	for (int j = 0; j < LANES; j++)
		s += lane[j];
	return s;
}

static inline double S(dot)(const T *x, const T *y, int64_t n)
{
	double lane[LANES] = { 0 }, s = 0;
	int64_t i = 0;

	for (; i + LANES <= n; i += LANES)
#pragma omp simd
		for (int j = 0; j < LANES; j++)
			lane[j] += (double)x[i + j] * y[i + j];
	for (int j = 0; i + j < n; j++)
		lane[j] += (double)x[i + j] * y[i + j];
	for (int j = 0; j < LANES; j++)
		s += lane[j];
	return s;
}

/* n >= 1; NaN when there is one. */
static inline T S(largest)(const T *x, int64_t n)
{
	T lane[LANES], m;
	int64_t i = 0;

	for (int j = 0; j < LANES; j++)
		lane[j] = x[0];
	for (; i + LANES <= n; i += LANES)
#pragma omp simd
		for (int j = 0; j < LANES; j++) {
			T v = x[i + j], l = lane[j];

			lane[j] = (v > l || v != v) ? v : l;
		}
	m = lane[0];
	for (int j = 1; j < LANES; j++)
		m = (lane[j] > m || lane[j] != lane[j]) ? lane[j] : m;
	for (; i < n; i++)
		m = (x[i] > m || x[i] != x[i]) ? x[i] : m;
	return m;
}
