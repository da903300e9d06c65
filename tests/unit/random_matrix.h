/* Random numbers and matrices for tests; the test seeds the generator. */
#ifndef DLB_TESTS_RANDOM_MATRIX_H
#define DLB_TESTS_RANDOM_MATRIX_H
#include <math.h>
#include "util/rng.h"

/* Of N(0, 1). */
static inline double normal(struct dlb_rng *rng)
{
	return sqrt(-2 * log(1 - dlb_rng_uniform(rng))) * cos(6.283185307179586 * dlb_rng_uniform(rng));
}

/* a = random symmetric (n, n); a larger `least` makes it more positive definite. */
static inline void spd(struct dlb_rng *rng, float *a, int n, double least)
{
	for (int i = 0; i < n; i++)
		for (int j = 0; j <= i; j++)
			a[i * n + j] = a[j * n + i] = (float)(normal(rng) / sqrt(n) * 0.3);
	for (int i = 0; i < n; i++)
		a[i * n + i] = (float)(1 + least + fabs(normal(rng)));
}
#endif
