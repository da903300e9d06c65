/* Copies of rows to rows of bf16 with another distance between rows (rows.cu). */
#include "tensor/cuda/cuda.h"
#include "tensor/cuda/rows.h"

int dlb_cuda_rows(struct dlb_backend *b, const struct cuda_row_copy *d, struct dlb_kernel **k,
		  struct dlb_error *err)
{
	const struct cuda_rows a = { .rows = d->rows,
				     .n = d->n,
				     .in_ld = d->in_ld,
				     .out_ld = d->out_ld,
				     .parts = (d->n + ROWS_PART - 1) / ROWS_PART };
	struct cuda_launch l = { .n_in = 1, .n_out = 1, .count = a.rows * a.parts, .rows = true };

	l.f = dlb_cuda_find(cuda_of(b), d->from == DLB_F32 ? "rows_f32_bf16" : "rows_bf16", err);
	if (!l.f)
		return -1;
	dlb_cuda_simple(b, &l, &a, sizeof a, k);
	return 0;
}
