/* Keys that a query of attention sees by its position. */
#ifndef DLB_TENSOR_CUDA_SPAN_CUH
#define DLB_TENSOR_CUDA_SPAN_CUH
#include "tensor/cuda/device.cuh"

struct span {
	int64_t lo, hi;		/* [lo, hi) */
};
/* Keys that a query at position `at` among `keys` keys sees, if only keys below `end` can be seen. causal,
 * left, right: as in struct dlb_attention_desc. */
static __device__ inline span span_at(int64_t at, int64_t keys, int64_t end, bool causal, int64_t left, int64_t right)
{
	int64_t from = 0;

	if (causal && end > at + 1)
		end = at + 1;
	if (right >= 0 && end > at + right + 1)
		end = at + right + 1;
	if (left >= 0 && at > left)
		from = at - left < keys ? at - left : keys;
	return { from, end > from ? end : from };
}
#endif
