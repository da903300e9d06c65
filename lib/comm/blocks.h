/* Blocks of numbers on the wire: DLB_BLOCK floats as one scale (bf16) and a code of 4 bits for each, the
 * nearest of 16 levels: quantiles of the normal distribution (NF4: T. Dettmers et al., QLoRA, NeurIPS 2023),
 * rounded to 128ths of the scale; -1, 0 and 1 are among them.
 *
 * The scale is the least bf16 that is not below the largest magnitude in the block. A level times the scale
 * is exact in float32, so that a product fused with an addition has the same bits as one that is not. Numbers
 * read from a block are written as the same block again. A block with a number that is not finite is read as
 * numbers that are not finite; a block whose numbers are all below 2^-120 is read as zeros. */
#ifndef DLB_COMM_BLOCKS_H
#define DLB_COMM_BLOCKS_H
#include <stdint.h>

enum { DLB_BLOCK = 64, DLB_PACKED_BLOCK_BYTES = 2 + DLB_BLOCK / 2 };
/* Writes n blocks of x to w (n * DLB_PACKED_BLOCK_BYTES); reads them; adds them to x. */
void dlb_blocks_write(const float *x, uint8_t *w, int64_t n);
void dlb_blocks_read(const uint8_t *w, float *x, int64_t n);
void dlb_blocks_add(const uint8_t *w, float *x, int64_t n);
#endif
