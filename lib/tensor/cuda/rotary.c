/* Rotation of pairs by position (rotary.cu). */
#include "tensor/cuda/cuda.h"
#include "tensor/cuda/rotary.h"

PREPARE(rotary)
{
	const struct cuda_rotary a = { .d = *d };
	const struct cuda_launch l = { .f = dlb_cuda_find_typed(cuda_of(b), "rotary", d->dtype),
				       .n_in = 4,
				       .n_out = 1,
				       .count = d->batch * d->heads * d->rows * (d->width - d->half) };

	(void)err;
	if (!l.f)
		return DLB_NO_KERNEL;
	dlb_cuda_simple(b, &l, &a, sizeof a, k);
	return 0;
}
