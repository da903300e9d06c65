/* Orthonormal bases for any condition and rank: for test_bases.c and test_lowrank.c. */
#ifndef DLB_TEST_BASES_H
#define DLB_TEST_BASES_H
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/lowrank.h"
#include "tensor/skinny.h"
#include "util/mem.h"
#include "check.h"
#include "random_matrix.h"

#define TAU_F64 ((8 * 2.220446049250313e-16) * (8 * 2.220446049250313e-16))

static struct dlb_rng rng;
static long n_checks;

/* The 2-norm of the symmetric a (r, r), by Jacobi rotations. */
static double norm2(double *a, int r)
{
	double most = 0;

	for (int sweep = 0; sweep < 30; sweep++)
		for (int p = 0; p < r; p++)
			for (int q = p + 1; q < r; q++) {
				double d = a[q * r + q] - a[p * r + p], b = a[p * r + q], t, c, s;

				if (b == 0)
					continue;
				t = (d < 0 ? -1 : 1) * 2 * b / (fabs(d) + sqrt(d * d + 4 * b * b));
				c = 1 / sqrt(1 + t * t);
				s = t * c;
				for (int k = 0; k < r; k++) {
					double x = a[k * r + p], y = a[k * r + q];

					a[k * r + p] = c * x - s * y;
					a[k * r + q] = s * x + c * y;
				}
				for (int k = 0; k < r; k++) {
					double x = a[p * r + k], y = a[q * r + k];

					a[p * r + k] = c * x - s * y;
					a[q * r + k] = s * x + c * y;
				}
			}
	for (int k = 0; k < r; k++)
		most = fabs(a[k * r + k]) > most ? fabs(a[k * r + k]) : most;
	return most;
}

/* || Q^T Q - I ||_2 */
static double off_orthonormal(const float *q, int n, int r)
{
	double *g = dlb_xcalloc((size_t)(r * r), sizeof *g), most;

	for (int i = 0; i < n; i++)
		for (int a = 0; a < r; a++)
			for (int b = 0; b < r; b++)
				g[a * r + b] += (double)q[i * r + a] * (double)q[i * r + b];
	for (int a = 0; a < r; a++)
		g[a * r + a] -= 1;
	most = norm2(g, r);
	free(g);
	return most;
}

/* Relative distance of p from the span of q. */
static double off_span(const float *q, const float *p, int n, int r)
{
	double rest = 0, all = 0;

	for (int b = 0; b < r; b++) {
		double c[DLB_MOST_RANK] = { 0 };

		for (int a = 0; a < r; a++)
			for (int i = 0; i < n; i++)
				c[a] += (double)q[i * r + a] * (double)p[i * r + b];
		for (int i = 0; i < n; i++) {
			double d = (double)p[i * r + b];

			all += d * d;
			for (int a = 0; a < r; a++)
				d -= c[a] * (double)q[i * r + a];
			rest += d * d;
		}
	}
	return all > 0 ? sqrt(rest / all) : 0;
}

/* (n, r) with singular values from 1 to 1/kappa, log-spaced, between random bases; the first `rank` of
 * them. */
static void conditioned(float *p, int n, int r, double kappa, int rank)
{
	double *u = dlb_xcalloc((size_t)(n * r), sizeof *u), *v = dlb_xcalloc((size_t)(r * r), sizeof *v);

	for (int i = 0; i < n * r; i++)
		u[i] = normal(&rng);
	for (int i = 0; i < r * r; i++)
		v[i] = normal(&rng);
	assert(IS(dlb_orthonormal(u, n, r, 1, TAU_F64, NULL, NULL), >, 0) &&
	       IS(dlb_orthonormal(v, r, r, 2, TAU_F64, NULL, NULL), >, 0));
	for (int i = 0; i < n; i++)
		for (int b = 0; b < r; b++) {
			double sum = 0;

			for (int a = 0; a < rank; a++)
				sum += u[i * r + a] * pow(kappa, r > 1 ? -(double)a / (r - 1) : 0) *
				       v[b * r + a];
			p[i * r + b] = (float)sum;
		}
	free(u);
	free(v);
}

static int basis(const float *p, float *q, int n, int r, int *n_replaced)
{
	double *work = dlb_xmalloc((size_t)(n * r) * sizeof *work);
	float *again = dlb_xmalloc((size_t)(n * r) * sizeof *again);
	int passes;

	memcpy(q, p, (size_t)(n * r) * sizeof *q);
	memcpy(again, p, (size_t)(n * r) * sizeof *q);
	passes = dlb_orthonormal_f32(q, n, r, dlb_lowrank_key(7, 3), work, n_replaced);
	assert(IS(dlb_orthonormal_f32(again, n, r, dlb_lowrank_key(7, 3), work, NULL), ==, passes));
	assert(!memcmp(q, again, (size_t)(n * r) * sizeof *q));
	free(work);
	free(again);
	n_checks++;
	return passes;
}

/* All conditions and deficiencies of matrices of up to so many rows and columns. */
static void bases(int most_rows, int most_rank)
{
	enum { N = 1024 };
	float *p = dlb_xmalloc(N * DLB_MOST_RANK * sizeof *p),
	      *q = dlb_xmalloc(N * DLB_MOST_RANK * sizeof *q);
	static const int rows[] = { 1, 2, 3, 8, 17, 64, 100, N }, ranks[] = { 1, 2, 3, 4, 8, 16, 33, 64 };
	double worst = 0;
	int replaced;

	for (size_t a = 0; a < sizeof rows / sizeof *rows; a++)
		for (size_t b = 0; b < sizeof ranks / sizeof *ranks; b++) {
			int n = rows[a], r = ranks[b];
			double off;

			if (r > n || n > most_rows || r > most_rank)
				continue;
			for (int e = 0; e <= 12; e++) { /* condition 1 .. 1e12 */
				conditioned(p, n, r, pow(10, e), r);
				assert(IS(basis(p, q, n, r, &replaced), >, 0));
				off = off_orthonormal(q, n, r);
				worst = off > worst ? off : worst;
				assert(IS(off, <=, 1e-7));
				/* what counts as spanned: tau */
				assert(IS(off_span(q, p, n, r), <=, 2e-6));
			}
			for (int rank = 0; rank < r; rank += 1 + rank / 4) { /* every kind of deficiency */
				conditioned(p, n, r, 10, rank);
				assert(IS(basis(p, q, n, r, &replaced), >, 0));
				assert(IS(replaced, >, 0));
				off = off_orthonormal(q, n, r);
				worst = off > worst ? off : worst;
				assert(IS(off, <=, 1e-7));
				/* what counts as spanned: tau */
				assert(IS(off_span(q, p, n, r), <=, 2e-6));
			}
			/* zero columns, columns of any length */
			for (int zero = 0; zero < r; zero += 1 + r / 4) {
				for (int i = 0; i < n; i++)
					for (int k = 0; k < r; k++)
						p[i * r + k] = k % (zero + 1) == zero ?
								       0.0f :
								       (float)(normal(&rng) *
									       pow(10, k % 60 - 30));
				assert(IS(basis(p, q, n, r, &replaced), >, 0));
				assert(IS(off_orthonormal(q, n, r), <=, 1e-7));
			}
			for (int i = 0; i < n * r; i++) /* equal columns */
				p[i] = (float)(i / r + 1);
			assert(IS(basis(p, q, n, r, &replaced), >, 0) && IS(replaced, ==, r - 1) &&
			       IS(off_orthonormal(q, n, r), <=, 1e-7));
			p[n * r / 2] = NAN;
			assert(IS(basis(p, q, n, r, &replaced), ==, -1));
			p[n * r / 2] = INFINITY;
			assert(IS(basis(p, q, n, r, &replaced), ==, -1));
		}
	printf("bases: at most %.2g from orthonormal\n", worst);
	free(p);
	free(q);
}
#endif
