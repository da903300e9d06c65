/* Symmetric positive definite matrices on the wire: computation only, no messages.
 *
 * Triangles add up, so half of a matrix is what has to travel for a sum (RFP: tensor/spd.h). A factor L of
 * the sum travels in the same room, or, since 16 bits keep a factor's product definite where 16 bits of the
 * matrix itself do not, in half of that. So the sum goes to one owner, who factors once, and L comes back.
 * L(sum) is not the sum of L: what is to be added has to be restored first, which is the scheme as first
 * published ("per hop").
 *
 * Low rank instead: pivoted Cholesky stops where the rest of the diagonal is small; the trace of the rest
 * bounds the error in the 2-norm (N. Higham, Analysis of the Cholesky decomposition of a semi-definite
 * matrix, 1990). */
#ifndef DLB_COMM_CHOLESKY_H
#define DLB_COMM_CHOLESKY_H
#include <stdint.h>

/* Factors s + damping I (RFP of order n, in place); when it is not positive definite, with 1e-7, 1e-5 and
 * 1e-3 of the mean diagonal added to it. *added: what was added to the diagonal, damping counted. Returns the
 * number of retries, or -1: not positive definite; s holds the sum then, untouched. work: as large as s. */
int dlb_spd_factor(int n, float *s, double damping, float *work, double *added);
/* *added of dlb_spd_factor after `tries` retries, -1 to 3. */
double dlb_spd_added(double damping, double mean_diagonal, int tries);

/* n numbers as bf16, rounded to nearest, two per float word: (n + 1) / 2 words. */
static inline int64_t dlb_bf16_words(int64_t n) { return (n + 1) / 2; }
void dlb_bf16_pack(float *words, const float *x, int64_t n);
void dlb_bf16_unpack(float *x, const float *words, int64_t n);

/* Pivoted Cholesky of a (n, n; row-major), until the largest diagonal left is at most `tolerance`, all that
 * is left of the diagonal together at most `trace` (both absolute; -INFINITY: no bound), or the rank is
 * `most`: a ~ L L^T, L (n, rank) in the rows' own order by rows of `l` (ld >= most), pivot[k] the row that
 * was taken k-th (the first `rank` of n places). Returns the rank. *rest: the trace of what is left; *least:
 * its least diagonal, which for a semidefinite matrix is negative by rounding only. */
int dlb_pivoted_cholesky(int n, const float *a, double tolerance, double trace, int most, float *l, int ld, int *pivot, double *rest, double *least);
/* Numbers in a pivoted factor of that rank on the wire, without the pivots. */
static inline int64_t dlb_pivoted_count(int n, int rank) { return (int64_t)n * rank - (int64_t)rank * (rank - 1) / 2; }
#endif
