/* Shared by all kernels of attention: the keys that a query sees, the places of rows, masks and the cap. */
#ifndef DLB_TENSOR_CUDA_ATTENTION_CUH
#define DLB_TENSOR_CUDA_ATTENTION_CUH
#include <math.h>
#include "tensor/cuda/span.cuh"
extern "C" {
#include "tensor/cuda/attention.h"
}

/* Queries [row, row + n) of one head. `part` of the result's columns starts at `column`. */
struct queries {
	int64_t batch, head, kv_head, row, n, part, column;
};

/* Keys that query i sees. Neither bound decreases from one query to the next. */
static __device__ span span_of(const struct cuda_attention &a, int64_t batch, int64_t i)
{
	const struct dlb_attention_desc &d = a.d;
	const int64_t *lengths = (const int64_t *)a.p.in[4];
	int64_t end = a.p.in[3] ? d.mask_keys : d.keys, at = i + d.past;

	if (lengths) {
		int64_t length = lengths[batch] < 0 ? 0 : lengths[batch];

		length = length < d.keys ? length : d.keys;
		at = i + length - d.rows;
		end = end < length ? end : length;
	}
	return span_at(at, d.keys, end, d.causal, d.left, d.right);
}

/* Keys that at least one of n queries from `row` on sees. */
static __device__ inline span seen_by(const struct cuda_attention &a, int64_t batch, int64_t row, int64_t n)
{
	return { span_of(a, batch, row).lo, span_of(a, batch, row + n - 1).hi };
}

/* The first element of a head of operand p, with strides {batch, head, row}. */
template <typename T>
static __device__ inline T *head_of(const void *p, const int64_t stride[3], int64_t batch, int64_t head)
{
	return (T *)p + batch * stride[0] + head * stride[1];
}

/* Index of a row in (batch, heads, rows). */
static __device__ inline int64_t row_index(const struct cuda_attention &a, const queries &x, int row)
{
	return (x.batch * a.d.heads + x.head) * a.d.rows + x.row + row;
}

/* s with the mask added, for one query and key; -inf: not seen, whatever the score. */
template <typename T>
static __device__ inline T masked(const struct cuda_attention &a, const queries &x, int row, span seen,
				  int64_t key, T s)
{
	if (key < seen.lo || key >= seen.hi)
		return (T)-INFINITY;
	if (!a.p.in[3])
		return s;
	const int64_t at = x.batch * a.d.mask[0] + x.head * a.d.mask[1] + (x.row + row) * a.d.mask[2] + key;
	if (a.d.mask_type == DLB_BOOL)
		return ((const uint8_t *)a.p.in[3])[at] ? s : (T)-INFINITY;
	const T m = ((const T *)a.p.in[3])[at];
	return m == (T)-INFINITY ? m : s + m;
}

/* cap tanh(s / cap); *slope: its derivative. */
template <typename T> static __device__ inline T capped(const struct cuda_attention &a, T s, T *slope)
{
	if (!(a.d.softcap > 0)) {
		*slope = 1;
		return s;
	}
	const T t = F(tanh)(s * (1 / (T)a.d.softcap));

	*slope = 1 - t * t;
	return (T)a.d.softcap * t;
}
#endif
