/* Matrix operations of K-FAC (lib/optim/kfac.h), in host memory, f32 or f64.
 *
 * Sums and averages of second moments are symmetric matrices of order n, row-major, with only the lower
 * triangle filled; inverses are full. Inverses are computed in double, because the damping is small
 * compared to the largest eigenvalue. */
#ifndef DLB_TENSOR_KFAC_H
#define DLB_TENSOR_KFAC_H
#include "tensor/backend.h"

/* Vectors whose second moments are summed, and their arrangement in x: rows (rows, width), as in dense layers
 * and channels-last activations; columns (images, width, positions), as in plain activations; or the patch
 * that a convolution (with x's layout) reads at each output position, taps in the weight's order. Order n of
 * the sum: width, plus one for a bias, whose input is 1. A convolution in groups has one sum per group, one
 * behind the other, each over its share of the width. */
enum dlb_kfac_lie { DLB_KFAC_ROWS, DLB_KFAC_COLUMNS, DLB_KFAC_PATCHES };
struct dlb_kfac_vectors {
	enum dlb_kfac_lie lie;
	enum dlb_dtype dtype;
	int64_t images, positions;	/* number of vectors: their product (rows: 1 position) */
	int n, groups;			/* order of a sum; groups, at least 1 */
	bool bias;			/* not with columns, nor with rows in groups */
	struct dlb_conv_desc conv;	/* for patches */
};
/* sum = [x 1]^T [x 1] (first), or sum += that; the last row and column belong to the bias. Patches are built
 * for a few images at a time in `work`, of dlb_kfac_sum_bytes. */
void dlb_kfac_sum(const struct dlb_kfac_vectors *v, bool first, const void *x, void *sum, void *work);
size_t dlb_kfac_sum_bytes(const struct dlb_kfac_vectors *v);
/* to += from, lower triangles. */
void dlb_kfac_add(enum dlb_dtype t, int n, const void *from, void *to);
/* average = keep average + (1 - keep) scale sum. Returns -1 if the sum is not finite;
 * the average is then unchanged. */
int dlb_kfac_average(enum dlb_dtype t, int n, double keep, double scale, const void *sum, void *average);
/* inverse = (average + damping I)^-1. If that is not positive definite, adds 1e-7, 1e-5, then 1e-3 of the
 * mean diagonal. Returns the number of these attempts; -1: none succeeded, or a value is not finite, and the
 * inverse is unchanged. work: n * n. */
int dlb_kfac_invert(enum dlb_dtype t, int n, double damping, const void *average, void *inverse,
		    double *work);
/* As above (f32), from the Cholesky factor of the damped matrix: L of the reversed matrix
 * in RFP (spd.h). Returns 0 or -1. */
int dlb_kfac_invert_factor(int n, const float *l, float *inverse, double *work);
/* The inverses that precondition the gradient of a weight. n_a: order of A, with the bias if there is one;
 * n_g: outputs. The weight is (n_g, inputs), or (inputs, n_g) with by_input. */
struct dlb_kfac_inverses {
	enum dlb_dtype dtype;
	int n_a, n_g;
	bool by_input;
	const void *a, *g;
};
/* [dw db] = G^-1 [dw db] A^-1 in place, outputs as rows. db NULL: A has no row for a bias. work:
 * 2 * n_a * n_g elements. Returns the inner product of result and input, in double. */
double dlb_kfac_precondition(const struct dlb_kfac_inverses *v, void *dw, void *db, void *work);
#endif
