/* Low-rank compression of gradients: computation only, no messages.
 *
 * A gradient G (n, m) is sent as P (n, r) and Q (m, r), r small. E is the residual of earlier steps on this
 * rank:
 *
 *     M = G + E          x holds M from here on; E is unchanged until the step is known to count
 *     P = sum M Q        Q of the step before (warm start)
 *     P^ = an orthonormal basis of P's columns
 *     Q = sum M^T P^
 *     G^ = P^ Q^T        every rank's result: the approximate sum of all G
 *     E = M - G^ / N     new residual, an Nth of the error on each of N ranks ("global");
 *                        or M - P^ (M^T P^)^T, each rank's own error ("local"): one more product, the same sum
 *
 * The weight of a convolution, (out, in, s, t), is taken as (out s, in t), with n and m as near as they can be
 * (plan/bucket_tensors.c). After 200 steps of resnet20 on Fashion-MNIST with Adam, that left out about 10 % of the
 * squared Frobenius norm of the gradients of layers with 16 and 32 channels, where (out, in s t) left out about 20 % at
 * equal bytes.
 *
 * T. Vogels, S. P. Karimireddy, M. Jaggi, PowerSGD, NeurIPS 2019; error feedback: F. Seide et al.,
 * Interspeech 2014. PowerSGD's Gram-Schmidt silently returns columns that are not orthogonal when P's rank is
 * below r. The basis here is orthonormal for any P, and equal bits of P give equal bits of the basis. */
#ifndef DLB_COMM_LOWRANK_H
#define DLB_COMM_LOWRANK_H
#include <stdint.h>

enum { DLB_MOST_RANK = 64 };

/* Rank-revealing CholeskyQR, in place: the columns of p (n, r; by rows, r <= n, r <= DLB_MOST_RANK) become an
 * orthonormal basis whose span contains theirs. The Gram matrix, scaled to unit diagonal, is computed and
 * factored in double. A column that lies in the span of others (pivot below tau) is replaced by a
 * pseudo-random one drawn from (key, column, pass); then, or if the trace of the inverse of the scaled Gram
 * matrix is beyond 1e6, there is another pass. One pass is usual, two or three otherwise, at most
 * `DLB_MOST_PASSES`. tau is (8 eps)^2 of the precision that p came in. norm[j] (norm may be NULL): norm of
 * column j on entry. *n_replaced (may be NULL): number of replaced columns. Returns the number of passes; -1:
 * p is not finite (p is overwritten). */
enum { DLB_MOST_PASSES = 4 };
int dlb_orthonormal(double *p, int64_t n, int r, uint64_t key, double tau, double *norm, int *n_replaced);
#define DLB_TAU_F32 9.094947017729282e-13		/* (8 * 2^-23)^2 */
/* The same for float32; p is unchanged after -1. work: n * r elements. */
int dlb_orthonormal_f32(float *p, int64_t n, int r, uint64_t key, double *work, int *n_replaced);
/* A basis of the span of p's columns (n, width; by rows) from as few columns as needed: pivoted Cholesky of
 * their Gram matrix takes columns until at most `tolerance` of its trace remains; at least one, at most
 * `most` and n. p becomes (n, rank), orthonormal as by dlb_orthonormal_f32 with `key`. work: n * width
 * elements. Returns the rank; -1: p is not finite, and is unchanged. */
struct dlb_basis_choice { double tolerance; int most; uint64_t key; };
int dlb_pivoted_basis(float *p, int64_t n, int width, const struct dlb_basis_choice *c, double *work);
/* Fills x with the first n numbers, in [-1, 1), of the pseudo-random sequence of key. */
void dlb_splitmix_fill(double *x, int64_t n, int64_t stride, uint64_t key);
/* Key of the sequence that replaces columns of tensor `id` at a step; the same on all ranks. */
uint64_t dlb_lowrank_key(uint64_t id, uint64_t step);
/* Writes the first Q^T of tensor `id`, (r, dlb_skinny_stride(m)); the same on all ranks. */
void dlb_lowrank_first_q(float *qt, int64_t m, int r, uint64_t id);
#endif
