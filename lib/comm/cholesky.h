/* Symmetric positive definite matrices on the wire: computation only, no messages.
 *
 * Triangles can be added, so a sum needs only half of a matrix (RFP: tensor/spd.h). A factor L of the sum
 * needs the same space, or half of it in bf16: L L^T stays definite when L is rounded to 16 bits, unlike the
 * matrix itself. So the triangles are summed at one owner, who factors once and sends L back. L of a sum is
 * not the sum of L: to add factors, matrices must first be restored, as in the scheme first published ("per
 * hop").
 *
 * Low rank: pivoted Cholesky stops when the remaining diagonal is small; the trace of the remainder bounds
 * the error in the 2-norm (N. Higham, Analysis of the Cholesky decomposition of a semi-definite matrix,
 * 1990). */
#ifndef DLB_COMM_CHOLESKY_H
#define DLB_COMM_CHOLESKY_H
#include <stdint.h>

/* Factors s + damping I (RFP of order n, in place). If it is not positive definite, retries with 1e-7, 1e-5
 * and 1e-3 of the mean diagonal added. *added: the number that was added to each diagonal element, damping
 * included. Returns the number of retries; -1: not positive definite, s is unchanged. work: as large as s. */
int dlb_spd_factor(int n, float *s, double damping, float *work, double *added);
/* *added of dlb_spd_factor after `tries` retries, -1 to 3. */
double dlb_spd_added(double damping, double mean_diagonal, int tries);

/* n numbers as bf16, rounded to nearest, two per float word: (n + 1) / 2 words. */
static inline int64_t dlb_bf16_words(int64_t n) { return (n + 1) / 2; }
void dlb_bf16_pack(float *words, const float *x, int64_t n);
void dlb_bf16_unpack(float *x, const float *words, int64_t n);

/* When pivoted Cholesky stops: the largest remaining diagonal element is at most `tolerance`, or the trace of
 * the remainder at most `trace` (both absolute; -INFINITY: no bound), or the rank is `most`. */
struct dlb_pivot_stop { double tolerance, trace; int most; };
/* The result of pivoted Cholesky. l: L (n, rank) in the order of a's rows, row stride ld >= most. pivot[k], n
 * elements: the row taken k-th, for k < rank. The caller provides l and pivot. rest: trace of the remainder;
 * least: its smallest diagonal element, which for a semidefinite matrix is negative by rounding only. */
struct dlb_pivoted { float *l; int ld, *pivot; double rest, least; };
/* Pivoted Cholesky a ~ L L^T of a (n, n; row-major). Returns the rank. */
int dlb_pivoted_cholesky(int n, const float *a, const struct dlb_pivot_stop *stop, struct dlb_pivoted *f);
/* Numbers in a pivoted factor of that rank on the wire, without the pivots. */
static inline int64_t dlb_pivoted_count(int n, int rank)
{
	return (int64_t)n * rank - (int64_t)rank * (rank - 1) / 2;
}
#endif
