/* Symmetric positive definite matrices of float32 (the factors of K-FAC) in half the memory.
 *
 * RFP (rectangular full packed) stores a triangle of n (n + 1) / 2 numbers so that LAPACK still works in
 * blocks. The factored array can be sent as it is, and two arrays can be added element by element. Here it is
 * always the lower triangle, not transposed: for even n an (n + 1) x n/2 array by columns, for odd n n x (n +
 * 1)/2; the columns of the second half of the matrix are stored transposed above those of the first.
 *   F. Gustavson et al., Rectangular full packed format for Cholesky's algorithm, ACM TOMS 37(2), 2010.
 *
 * Full matrices are row-major with both triangles. "Reversed" means rows and columns in opposite order. D = U
 * U^T with U upper triangular if L of the reversed D, read backwards, is U. LAPACK has a routine for that
 * product (lauum, n^3/3), so matrices to be restored are factored this way. */
#ifndef DLB_TENSOR_SPD_H
#define DLB_TENSOR_SPD_H
#include <stdbool.h>
#include <stdint.h>

static inline int64_t dlb_rfp_count(int n) { return (int64_t)n * (n + 1) / 2; }
/* Index of element (i, j), i >= j, of the lower triangle. */
static inline int64_t dlb_rfp_at(int n, int i, int j)
{
	int k = n / 2, first = n - k;			/* columns [0, first) are stored unchanged */
	int64_t stride = n % 2 ? n : n + 1;
	int down = n % 2 ? 0 : 1;

	if (j < first)
		return (int64_t)j * stride + down + i;
	return (int64_t)(i - first + 1 - down) * stride + (j - first);
}
void dlb_rfp_pack(int n, const float *a, bool reversed, float *rfp);
/* Writes both triangles of a. */
void dlb_rfp_unpack(int n, const float *rfp, bool reversed, float *a);
/* Returns the largest |a_ij - a_ji|; *largest: the largest |a_ij|; *finite: all of a is finite. */
float dlb_asymmetry(int n, const float *a, float *largest, bool *finite);
/* In place, S = L L^T. Returns 0, or the order of the leading minor that is not
 * positive (S is then destroyed). */
int dlb_rfp_factor(int n, float *s);
/* rfp = alpha X X^T + beta rfp; X (n,k) row-major. */
void dlb_rfp_syrk(int n, int k, float alpha, const float *x, float beta, float *rfp);
/* a = U U^T, both triangles; `l` holds L of the reversed matrix. */
void dlb_rfp_restore(int n, const float *l, float *a);
#endif
