/* Products of a large matrix with r thin vectors, at the speed of the memory: the three passes of low-rank compression
 * over an (n, m) float32 matrix (lib/comm/lowrank.c), each of which reads and writes every number once.
 *
 * Vectors of length m lie one after the other in `qt` (r, dlb_skinny_stride(m)), zero beyond m; those of length n
 * by rows in p (n, r). Sums run in an order that depends on the shape alone; `restore` gives the same bits at
 * every level of the instruction set, for every rank has to make the same matrix of the same p and qt. */
#ifndef DLB_TENSOR_SKINNY_H
#define DLB_TENSOR_SKINNY_H
#include <stdint.h>

enum { DLB_SKINNY_LANES = 16 };
static inline int64_t dlb_skinny_stride(int64_t m) { return (m + DLB_SKINNY_LANES - 1) / DLB_SKINNY_LANES * DLB_SKINNY_LANES; }

struct dlb_skinny {
	/* x += e (NULL: nothing), p = x q. */
	void (*project)(int64_t n, int64_t m, int r, float *x, const float *e, const float *qt, float *p);
	/* qt = x^T p, transposed. */
	void (*project_back)(int64_t n, int64_t m, int r, const float *x, const float *p, float *qt);
	/* y = p q^T;  e (NULL: none) = x - share y;  x = y. */
	void (*restore)(int64_t n, int64_t m, int r, float *x, float *e, const float *p, const float *qt, float share);
};
/* Those of the highest level that the processor has. */
const struct dlb_skinny *dlb_skinny(void);
#endif
