/* Loops compiled once for each level of the instruction set.
 *
 * The Makefile compiles the files with loops in this folder without a level (for every processor of the
 * architecture), and on x86-64 again with DLB_LEVEL=v3 (AVX2, FMA) and v4 (AVX-512), the levels of the System
 * V ABI. So one binary runs everywhere and is fast: dlb_cpu_open uses the highest level of the processor.
 * Each level has its own kernel table (table.c) and its own names by the macros below. A file with loops must
 * list its exported names here, else linking fails with "multiple definition". Contraction to FMA is off
 * except where a loop requests it (real_math.h), so all loops on one machine round the same with any
 * compiler; bits may differ between levels. */
#ifndef DLB_TENSOR_CPU_LEVEL_H
#define DLB_TENSOR_CPU_LEVEL_H
struct dlb_backend_ops;

/* The ith level that this processor can run, highest first; NULL after the last. */
const struct dlb_backend_ops *dlb_cpu_level(int i);

/* Bytes of a vector register of the level that is compiled. */
#if defined __AVX512F__
#define VECTOR_BYTES 64
#elif defined __AVX2__
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif

#ifdef DLB_LEVEL
#define LEVEL_PASTE(name, level) name##_##level
#define LEVEL_EXPAND(name, level) LEVEL_PASTE(name, level)
#define LEVEL(name) LEVEL_EXPAND(name, DLB_LEVEL)
#define dlb_cpu_ops LEVEL(dlb_cpu_ops)
#define dlb_cpu_skinny LEVEL(dlb_cpu_skinny)
#define dlb_cpu_sgemm LEVEL(dlb_cpu_sgemm)
#define dlb_cpu_dgemm LEVEL(dlb_cpu_dgemm)
#define dlb_cpu_openblas_sgemm LEVEL(dlb_cpu_openblas_sgemm)
#define dlb_cpu_gemm LEVEL(dlb_cpu_gemm)
#define dlb_cpu_product LEVEL(dlb_cpu_product)
#define dlb_cpu_conv LEVEL(dlb_cpu_conv)
#define dlb_cpu_im2col LEVEL(dlb_cpu_patches)
#define dlb_cpu_pool LEVEL(dlb_cpu_pool)
#define dlb_cpu_batch_norm LEVEL(dlb_cpu_batch_norm)
#define dlb_cpu_softmax LEVEL(dlb_cpu_softmax)
#define dlb_cpu_norm LEVEL(dlb_cpu_norm)
#define dlb_cpu_attention LEVEL(dlb_cpu_attention)
#define dlb_cpu_dropout LEVEL(dlb_cpu_dropout)
#define dlb_cpu_cell LEVEL(dlb_cpu_cell)
#define dlb_cpu_loss LEVEL(dlb_cpu_loss)
#define dlb_cpu_rotary LEVEL(dlb_cpu_rotary)
#define dlb_cpu_map LEVEL(dlb_cpu_map)
#define dlb_cpu_reduce LEVEL(dlb_cpu_reduce)
#define dlb_cpu_copy LEVEL(dlb_cpu_copy)
#define dlb_cpu_accumulate LEVEL(dlb_cpu_accumulate)
#define dlb_cpu_square_sum LEVEL(dlb_cpu_square_sum)
#define dlb_cpu_update LEVEL(dlb_cpu_update)
#define dlb_cpu_narrow LEVEL(dlb_cpu_narrow)
#define dlb_cpu_narrow_block LEVEL(dlb_cpu_narrow_block)
#define dlb_cpu_mixed_map LEVEL(dlb_cpu_mixed_map)
#define dlb_cpu_mixed_softmax LEVEL(dlb_cpu_mixed_softmax)
#define dlb_cpu_mixed_norm LEVEL(dlb_cpu_mixed_norm)
#define dlb_cpu_mixed_dropout LEVEL(dlb_cpu_mixed_dropout)
#define dlb_cpu_mixed_pool LEVEL(dlb_cpu_mixed_pool)
#define dlb_cpu_mixed_reduce LEVEL(dlb_cpu_mixed_reduce)
#endif
#endif
