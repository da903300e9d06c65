/* Loops of a nest by runs of neighbours, one thread a run, for kernels whose operands are dense or broadcast
 * along the innermost loop: one calculation of the offsets and one access of 16 bytes for several elements
 * (runs.cuh). */
#ifndef DLB_TENSOR_CUDA_RUNS_H
#define DLB_TENSOR_CUDA_RUNS_H
#include "tensor/cuda/kernels.h"

enum { RUN_BYTES = 16 }; /* bytes of the narrowest operand of a run */
struct cuda_runs {
	struct cuda_nest nest; /* of runs, fewer than 2^31; its offsets are those of a run's first element */
	int64_t count; /* elements; a nest of one loop may have a shorter last run */
	int width; /* elements of a run; 1: `nest` is the nest of elements */
	/* bit o of dense: operand o advances along a run, else it is broadcast; of whole: its runs begin at
	 * multiples of the width */
	unsigned dense, whole;
};
#endif
