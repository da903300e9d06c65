/* Attention of bf16 for heads of up to 64 columns (attention_bf16.cuh). */
extern "C" {
#include "tensor/cuda/attention.h"
}

enum { TILE = ATTENTION_TILE_BF16, D = ATTENTION_WIDTH_BF16, STEP = 64 };
enum { FORWARD_CHUNK = 32, DQ_CHUNK = 16, DKV_CHUNK = 32 };
#include "tensor/cuda/attention_bf16.cuh"

/* Kernels for operands that copies of 16 bytes can take, without masks, cap and outputs of scores; then
 * kernels for any operands. */
PAIR_KERNEL(attention_forward_bf16, cuda_attention) { forward<false>(a); }
PAIR_KERNEL(attention_dq_bf16, cuda_attention) { dq<false>(a); }
BLOCK_KERNEL(attention_dkv_bf16, cuda_attention) { dkv<false>(a); }
BLOCK_KERNEL(attention_forward_any_bf16, cuda_attention) { forward<true>(a); }
BLOCK_KERNEL(attention_dq_any_bf16, cuda_attention) { dq<true>(a); }
BLOCK_KERNEL(attention_dkv_any_bf16, cuda_attention) { dkv<true>(a); }
