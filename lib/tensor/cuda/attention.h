/* Arguments of attention.cu. */
#ifndef DLB_TENSOR_CUDA_ATTENTION_H
#define DLB_TENSOR_CUDA_ATTENTION_H
#include "tensor/cuda/kernels.h"

/* A block computes a tile of queries (attention_forward, _mean, _dq) or of keys (_dkv) of one head, and at
 * most ATTENTION_COLUMNS or, wide, ATTENTION_WIDE_COLUMNS columns of the result. Names of kernels end in
 * _f32, _wide_f32 or _f64. */
enum {
	ATTENTION_TILE_F32 = 64,
	ATTENTION_TILE_F64 = 32,
	ATTENTION_COLUMNS = 64,
	ATTENTION_WIDE_COLUMNS = 128
};
/* For bf16 (attention_bf16.cuh): rows of a block's tile, the most columns of a head (also wide), and columns
 * that are copied at once. Names of kernels end in _bf16 or _wide_bf16, or, for any operands, in _any_bf16 or
 * _any_wide_bf16. */
enum {
	ATTENTION_TILE_BF16 = 128,
	ATTENTION_WIDTH_BF16 = 64,
	ATTENTION_WIDE_WIDTH_BF16 = 128,
	ATTENTION_RUN_BF16 = 8
};

/* Operands are those of struct dlb_attention_desc. Scratch of the backward pass: sum p dp of each row (batch,
 * heads, rows), in f32 for bf16. */
struct cuda_attention {
	struct cuda_operands p;
	struct dlb_attention_desc d;
	int64_t row_tiles, key_tiles;
	/* parts of the columns of y, of dq, or of dv and dk; the first v_parts are those of dv */
	int64_t v_parts, parts;
	int64_t blocks;
};
#endif
