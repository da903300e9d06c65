/* Prints the GFLOP/s of independent multiply-adds of float32 on all threads of OpenMP: the processor's peak,
 * from which tests/bench/step computes its floor. Build with -O2 -march=native -fopenmp. */
#include <stdio.h>
#include <time.h>

#if defined(__AVX512F__)
#define WIDTH 16
#elif defined(__AVX__)
#define WIDTH 8
#else
#define WIDTH 4
#endif
enum { CHAINS = 12, TURNS = 4000000, PASSES = 9 };

typedef float vec __attribute__((vector_size(4 * WIDTH)));

static float chains(long turns)
{
	vec a[CHAINS], x, y;
	float sum = 0;

	for (int i = 0; i < WIDTH; i++) {
		x[i] = 0.999f;
		y[i] = 0.001f;
	}
	for (int c = 0; c < CHAINS; c++)
		a[c] = y * (float)c;
	for (long t = 0; t < turns; t++)
#pragma GCC unroll 12
		for (int c = 0; c < CHAINS; c++)
			a[c] = a[c] * x + y;
	for (int c = 0; c < CHAINS; c++)
		for (int i = 0; i < WIDTH; i++)
			sum += a[c][i];
	return sum;
}

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(void)
{
	double best = 0;
	float sum = 0;

	for (int pass = 0; pass < PASSES; pass++) {
		int threads = 0;
		double start = now_s(), rate;

#pragma omp parallel reduction(+ : sum, threads)
		{
			sum += chains(TURNS);
			threads++;
		}
		rate = 2e-9 * CHAINS * WIDTH * (double)TURNS * threads / (now_s() - start);
		best = rate > best ? rate : best;
	}
	printf("%.1f\n", best);
	return sum == 0.0f;	/* uses the sum, so that the compiler keeps the loops */
}
