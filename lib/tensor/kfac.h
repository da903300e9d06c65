/* What K-FAC computes with matrices (lib/optim/kfac.h says what for), in host memory, f32 or f64.
 *
 * Sums and averages of second moments are symmetric, of order n, row-major, and only their lower triangle is filled; the
 * inverses are full. Inverses are made in double: the damping is small beside the largest eigenvalue. */
#ifndef DLB_TENSOR_KFAC_H
#define DLB_TENSOR_KFAC_H
#include "tensor/backend.h"

/* Vectors whose second moments are summed, and how they lie in x: as rows (rows, width), as dense layers and channels-last
 * activations have them; as columns, (images, width, positions), as plain activations do; or as what a convolution (with
 * x's layout) reads at each position of its output, taps in the weight's order. Order n of the sum: width, and one more
 * with a bias, whose input is 1. Of a convolution in groups each has a sum of its own, one behind the other, of its share
 * of the width. */
enum dlb_kfac_lie { DLB_KFAC_ROWS, DLB_KFAC_COLUMNS, DLB_KFAC_PATCHES };
struct dlb_kfac_vectors {
	enum dlb_kfac_lie lie;
	enum dlb_dtype dtype;
	int64_t images, positions;	/* vectors: their product (rows: 1 position) */
	int n, groups;			/* order; groups, 1 and more */
	bool bias;			/* with columns, and rows in groups: not there */
	struct dlb_conv_desc conv;	/* of patches */
};
/* sum = [x 1]^T [x 1] (first), or that is added; the last row and column belong to the bias. Patches are made of a few
 * images at a time, in work of dlb_kfac_sum_bytes. */
void dlb_kfac_sum(const struct dlb_kfac_vectors *v, bool first, const void *x, void *sum, void *work);
size_t dlb_kfac_sum_bytes(const struct dlb_kfac_vectors *v);
/* to += from, lower triangles. */
void dlb_kfac_add(enum dlb_dtype t, int n, const void *from, void *to);
/* average = keep average + (1 - keep) scale sum. -1: the sum is not finite, the average stays what it was. */
int dlb_kfac_average(enum dlb_dtype t, int n, double keep, double scale, const void *sum, void *average);
/* inverse = (average + damping I)^-1; where that is not positive definite, with 1e-7, 1e-5 and 1e-3 of the mean diagonal
 * added. Returns how many of those it took, or -1: none was enough (or something is not finite), and the inverse stays what
 * it was. work: n * n. */
int dlb_kfac_invert(enum dlb_dtype t, int n, double damping, const void *average, void *inverse, double *work);
/* The same (f32) of what comes as its Cholesky factor, damping and all: L of the reversed matrix in RFP (spd.h). 0 or -1. */
int dlb_kfac_invert_factor(int n, const float *l, float *inverse, double *work);
/* [dw db] = G^-1 [dw db] A^-1 in place, outputs as rows. n_a: order of A, with the bias where db is not NULL; n_g: outputs.
 * dw (n_g, inputs), or by_input (inputs, n_g). work: 2 * n_a * n_g elements. Returns the product of what comes out and what
 * went in, in double. */
double dlb_kfac_precondition(enum dlb_dtype t, int n_a, int n_g, bool by_input, const void *a_inverse, const void *g_inverse, void *dw,
			     void *db, void *work);
#endif
