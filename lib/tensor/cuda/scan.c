/* Running sums and products, and their gradients (scan.cu). */
#include "tensor/cuda/cuda.h"
#include "tensor/cuda/scan.h"

enum { FEW_LINES = 4096, LONG_LINE = 512 };

PREPARE(scan)
{
	const bool gradient = d->fn == DLB_SCAN_PRODUCT_GRAD || d->fn == DLB_SCAN_OTHERS;
	const int64_t lines = d->outer * d->inner;
	const bool by_block = !gradient && lines < FEW_LINES && d->n >= LONG_LINE;
	const struct cuda_scan a = { .d = *d };
	const struct cuda_launch l = {
		.f = dlb_cuda_find_typed(cuda_of(b), gradient ? "scan_grad" : by_block ? "scan_line" : "scan", d->dtype),
		.n_in = gradient ? 2 : 1,
		.n_out = 1,
		.count = lines,
		.rows = by_block,
		.scratch_bytes = gradient ? (size_t)(lines * d->n) * sizeof(double) : 0
	};

	(void)err;
	if (!l.f)
		return DLB_NO_KERNEL;
	dlb_cuda_simple(b, &l, &a, sizeof a, k);
	return 0;
}
