/* Arguments of dropout.cu. */
#ifndef DLB_TENSOR_CUDA_DROPOUT_H
#define DLB_TENSOR_CUDA_DROPOUT_H
#include "tensor/cuda/kernels.h"

struct cuda_draw { uint64_t seed, stream; };	/* of the step */
/* dropout_TYPE: a thread for each of samples x `counters` counters; a counter gives four elements of a
 * sample.
 * dropout_part_TYPE: a thread for each element of a part (see dlb_dropout_desc). first_sample: sample 0's
 * index in the global batch. */
struct cuda_dropout {
	struct cuda_operands p;
	int64_t samples, per_sample, counters, first_sample;
	int64_t part, whole, first, per_whole;
	struct cuda_draw draw;
	uint32_t least;			/* the least random word that keeps its element */
	double scale;
};
#endif
