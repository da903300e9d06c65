/* Arguments of update.cu. */
#ifndef DLB_TENSOR_CUDA_UPDATE_H
#define DLB_TENSOR_CUDA_UPDATE_H
#include "tensor/cuda/kernels.h"

/* Scalars are rounded to the kernel's type when they are read; each rule reads those of its formula
 * (update.cu). */
struct cuda_scalars {
	double c, lr, decay, shrink, mu, alpha, beta1, rest1, beta2, rest2, eps, step_size, root_bias2;
	double over_bias1, over_bias2, seps, q, q_before, scale[3];	/* max-adabelief */
};
/* update_TYPE: operands as in dlb_update_desc; scratch: two counters to which the kernel adds, each only if
 * wanted: threads with a result that is not finite, and shrunk quotients. */
struct cuda_update {
	struct cuda_operands p;
	int64_t count;
	int rule;			/* enum dlb_update_rule */
	int stage;			/* enum dlb_update_stage */
	bool keep_local, count_not_finite, count_shrunk;
	struct cuda_scalars s;
	/* update_small, a block of threads for each block of the states (tensor/state_codec.h): out {w, states} */
	int64_t blocks;
	int n_chunks;
	int code[2];			/* [state] enum dlb_state_code */
};
#endif
