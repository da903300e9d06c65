/* Kernels whose operands lie in memory as bf16, made of the kernels for f32: operands are widened into scratch, the f32
 * kernel runs, results are rounded. By blocks of rows, so that what is widened stays in the cache; a row is whatever the
 * kernel treats alone (a row of a softmax, an image of a pool, an element of a map). Operands that are f32 or something
 * else in memory are passed on. */
#ifndef DLB_TENSOR_CPU_NARROW_H
#define DLB_TENSOR_CPU_NARROW_H
#include "tensor/cpu/cpu.h"

enum { NARROW_MOST = 8 };
struct narrow_operand {
	enum dlb_dtype dtype;		/* in memory; the f32 kernel sees bf16 as f32 */
	int64_t per_row;		/* elements; 0: the same for all rows, or a sum over them */
	int64_t count;			/* elements of one that is the same for all rows */
	bool sum;			/* result (f32): the blocks' results are added up, in order */
	bool absent;
};
struct narrow_desc {
	int64_t rows, block;		/* of all; of one run of the f32 kernel */
	int n_in, n_out;
	struct narrow_operand in[NARROW_MOST], out[NARROW_MOST];
	/* Prepares the f32 kernel for so many rows; ctx is used while preparing only. */
	int (*prepare)(struct dlb_backend *b, const void *ctx, int64_t rows, struct dlb_kernel **k, struct dlb_error *err);
	const void *ctx;
};
/* Rows a block that have about `elements` elements in all operands, `per_row` each: few enough for the first cache, or, where
 * a block costs something more than its rows (sums), for the second. */
enum { NARROW_L1 = 1 << 12, NARROW_L2 = 1 << 15 };
int64_t dlb_cpu_narrow_block(int64_t rows, int64_t per_row, int64_t elements);
int dlb_cpu_narrow(struct dlb_backend *b, const struct narrow_desc *d, struct dlb_kernel **k, struct dlb_error *err);
#endif
