/* Arguments of scores.cu. */
#ifndef DLB_TENSOR_CUDA_SCORES_H
#define DLB_TENSOR_CUDA_SCORES_H
#include "tensor/cuda/kernels.h"

/* Rows of scores (heads, queries) x keys, of some samples; `width` threads a row (row_runs.cuh). A query sees
 * keys [from, end) by its position, as struct dlb_attention_desc says without lengths.
 *   scores_softmax_TYPE: out[0] = softmax of the scores in[0], 0 where not seen; out[1] = log of the row's sum
 *                        of exp, or NULL
 *   scores_grad_TYPE:    out[0] = p (dp - sum p dp) with dp = in[0] and p = in[1]. If in[2], the logs of the
 *                        rows' sums, is not NULL, in[1] has scores, and their probabilities p are
 *                        written to out[1] */
struct cuda_scores {
	struct cuda_operands p;
	int64_t n, rows, keys, past, left, right; /* n: rows of all heads and samples */
	int causal, width;
};
#endif
