/* What K-FAC computes with matrices (lib/optim/kfac.h says what for), in host memory, f32 or f64.
 *
 * Sums and averages of second moments are symmetric, of order n, row-major, and only their lower triangle is filled; the
 * inverses are full. Inverses are made in double: the damping is small beside the largest eigenvalue. */
#ifndef DLB_TENSOR_KFAC_H
#define DLB_TENSOR_KFAC_H
#include "tensor/tensor.h"

/* sum = [x 1]^T [x 1] (first), or that is added. x (rows, n - bias); the last row and column belong to the bias. */
void dlb_kfac_factor(enum dlb_dtype t, int64_t rows, int n, bool bias, bool first, const void *x, void *sum);
/* average = keep average + (1 - keep) scale sum. -1: the sum is not finite, the average stays what it was. */
int dlb_kfac_average(enum dlb_dtype t, int n, double keep, double scale, const void *sum, void *average);
/* inverse = (average + damping I)^-1; where that is not positive definite, with 1e-7, 1e-5 and 1e-3 of the mean diagonal
 * added. Returns how many of those it took, or -1: none was enough (or something is not finite), and the inverse stays what
 * it was. work: n * n. */
int dlb_kfac_invert(enum dlb_dtype t, int n, double damping, const void *average, void *inverse, double *work);
/* The same (f32) of what comes as its Cholesky factor, damping and all: L of the reversed matrix in RFP (spd.h). 0 or -1. */
int dlb_kfac_invert_factor(int n, const float *l, float *inverse, double *work);
/* [dw db] = G^-1 [dw db] A^-1 in place, outputs as rows. n_a: order of A, with the bias where db is not NULL; n_g: outputs.
 * dw (n_g, inputs), or by_input (inputs, n_g). work: 2 * n_a * n_g elements. */
void dlb_kfac_precondition(enum dlb_dtype t, int n_a, int n_g, bool by_input, const void *a_inverse, const void *g_inverse, void *dw,
			   void *db, void *work);
#endif
