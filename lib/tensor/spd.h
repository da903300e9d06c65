/* Symmetric positive definite matrices of float32 (the factors of K-FAC) in half the room.
 *
 * RFP (rectangular full packed) holds a triangle of n (n + 1) / 2 numbers such that LAPACK still works in blocks:
 * what is sent is what is factored, and two of them add up number by number. Here always the lower triangle,
 * not transposed: for n even an (n + 1) x n/2 array by columns, for n odd n x (n + 1)/2; the columns from the
 * second half of the matrix lie transposed above those of the first.
 *   F. Gustavson et al., Rectangular full packed format for Cholesky's algorithm, ACM TOMS 37(2), 2010.
 *
 * Full matrices are row-major and hold both triangles. "Reversed" is the matrix with rows and columns in the
 * opposite order: D = U U^T with U upper triangular when L of the reversed D, read backwards, is U; and that
 * product has a routine of its own (lauum, n^3/3), which is why what is to be restored is factored so. */
#ifndef DLB_TENSOR_SPD_H
#define DLB_TENSOR_SPD_H
#include <stdbool.h>
#include <stdint.h>

static inline int64_t dlb_rfp_count(int n) { return (int64_t)n * (n + 1) / 2; }
/* Where element (i, j), i >= j, of the lower triangle lies. */
static inline int64_t dlb_rfp_at(int n, int i, int j)
{
	int k = n / 2, first = n - k;			/* columns [0, first) lie as they are */
	int64_t stride = n % 2 ? n : n + 1;
	int down = n % 2 ? 0 : 1;

	if (j < first)
		return (int64_t)j * stride + down + i;
	return (int64_t)(i - first + 1 - down) * stride + (j - first);
}
void dlb_rfp_pack(int n, const float *a, bool reversed, float *rfp);
/* Both triangles of a. */
void dlb_rfp_unpack(int n, const float *rfp, bool reversed, float *a);
/* The largest |a_ij - a_ji| and the largest |a_ij|; *finite tells whether all of a is. */
float dlb_asymmetry(int n, const float *a, float *largest, bool *finite);
/* In place, S = L L^T. 0, or the order of the leading minor that is not positive (S is lost then). */
int dlb_rfp_factor(int n, float *s);
/* rfp = alpha X X^T + beta rfp; X (n,k) row-major. */
void dlb_rfp_syrk(int n, int k, float alpha, const float *x, float beta, float *rfp);
/* a = U U^T, both triangles, where `l` holds L of the reversed matrix. */
void dlb_rfp_restore(int n, const float *l, float *a);
#endif
