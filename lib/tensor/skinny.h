/* Products of a large matrix with r thin vectors, limited by memory bandwidth: the three
 * passes of low-rank compression over an (n, m) float32 matrix (lib/comm/lowrank.c). Each pass
 * reads and writes every number once.
 *
 * Vectors of length m are in `qt` (r, dlb_skinny_stride(m)), zero beyond m; those of length n are the columns
 * of p (n, r). The order of sums depends only on the shape. `restore` gives the same bits at every level of
 * the instruction set, because every rank must compute the same matrix from the same p and qt. */
#ifndef DLB_TENSOR_SKINNY_H
#define DLB_TENSOR_SKINNY_H
#include <stdint.h>

enum { DLB_SKINNY_LANES = 16 };
static inline int64_t dlb_skinny_stride(int64_t m)
{
	return (m + DLB_SKINNY_LANES - 1) / DLB_SKINNY_LANES * DLB_SKINNY_LANES;
}

struct dlb_skinny_shape { int64_t n, m; int r; };
struct dlb_skinny {
	/* x += e (if e is not NULL), p = x q. */
	void (*project)(const struct dlb_skinny_shape *s, float *x, const float *e, const float *qt,
			float *p);
	/* qt = x^T p, transposed. */
	void (*project_back)(const struct dlb_skinny_shape *s, const float *x, const float *p, float *qt);
	/* y = p q^T;  e = x - share y (if e is not NULL);  x = y. */
	void (*restore)(const struct dlb_skinny_shape *s, float *x, float *e, const float *p, const float *qt,
			float share);
};
/* The functions for the highest level of this processor. */
const struct dlb_skinny *dlb_skinny(void);
#endif
