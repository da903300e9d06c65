/* Kernels with bf16 operands in memory, made from f32 kernels: operands are converted in scratch, the f32
 * kernel runs, and results are rounded. This is done in blocks of rows, so that converted data stay in cache.
 * A row is the unit that the kernel treats independently (a row of a softmax, an image of a pool, an element
 * of a map). Operands of other types are passed on unchanged. */
#ifndef DLB_TENSOR_CPU_NARROW_H
#define DLB_TENSOR_CPU_NARROW_H
#include "tensor/cpu/cpu.h"

enum { NARROW_MOST = 8 };
struct narrow_operand {
	enum dlb_dtype dtype;		/* in memory; the f32 kernel sees bf16 as f32 */
	int64_t per_row;		/* elements; 0: shared by all rows, or a sum over them */
	int64_t count;			/* elements of an operand shared by all rows */
	bool sum;			/* result (f32): blocks' results are added in order */
	bool absent;
};
struct narrow_desc {
	int64_t rows, block;		/* total; per run of the f32 kernel */
	int n_in, n_out;
	struct narrow_operand in[NARROW_MOST], out[NARROW_MOST];
	/* Prepares the f32 kernel for so many rows; ctx is used only while preparing. */
	int (*prepare)(struct dlb_backend *b, const void *ctx, int64_t rows, struct dlb_kernel **k,
		       struct dlb_error *err);
	const void *ctx;
};
/* Rows per block, for about `elements` elements in all operands, `per_row` each: few enough for the L1 cache,
 * or for L2 if a block has a fixed cost (sums). */
enum { NARROW_L1 = 1 << 12, NARROW_L2 = 1 << 15 };
int64_t dlb_cpu_narrow_block(int64_t rows, int64_t per_row, int64_t elements);
int dlb_cpu_narrow(struct dlb_backend *b, const struct narrow_desc *d, struct dlb_kernel **k,
		   struct dlb_error *err);
#endif
