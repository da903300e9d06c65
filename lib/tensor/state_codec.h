/* Optimizer states in fewer bits than the weights: the formats, and their encoding and decoding.
 *
 * An update decodes a block of a state to f32, computes, and encodes the result; no other copy of the state
 * is kept. Formats:
 *
 *   bf16       rounded to nearest, ties to even
 *   8 bits     blocks of DLB_STATE_BLOCK values with one f32 scale s each, the largest magnitude of the block
 *              (Dettmers, Lewis, Shleifer, Zettlemoyer, "8-bit Optimizers via Block-wise Quantization", ICLR
 *              2022):  x = s (q / Q)^4, with its sign. q is rounded to nearest in the fourth root.
 *                signed    Q = 127, for averages of gradients
 *                unsigned  Q = 255, for averages of squares. Only 0 becomes 0: a divisor rounded to 0 makes
 *                          steps without bound (the zero point of Li, Chen, Zhu, "Memory Efficient Optimizers
 *                          with 4-bit States", NeurIPS 2023)
 *
 * With scales by block a large value coarsens its own block alone. A power is a compander (Bennett,
 * "Spectra of quantized signals", Bell System Technical Journal 27, 1948): the error relative to x is at most
 * 2 / q, so a value of a hundredth of the largest is off by 5 %, of a millionth by half. The map of
 * Dettmers et al. has 1 % to 14 % in the top two decades, and needs a table.
 *
 * A block with a value that is not finite becomes NaN. A scale is at least 2^-94, so that no decoded value is
 * denormal. Decoding and encoding again gives the same codes and scales: so states may travel as f32 (in a
 * checkpoint) without a change of bits.
 *
 * An array is cut into chunks (util/chunk.h), and each chunk into blocks, so that a replica's share of it,
 * which is one chunk, has the blocks that the whole array has there. */
#ifndef DLB_TENSOR_STATE_CODEC_H
#define DLB_TENSOR_STATE_CODEC_H
#include "tensor/tensor.h"

enum dlb_state_dtype { DLB_STATE_F32, DLB_STATE_BF16, DLB_STATE_8BIT, DLB_N_STATE_DTYPES };
/* How one state of an optimizer is kept. */
enum dlb_state_code {
	DLB_CODE_F32,
	DLB_CODE_BF16,
	DLB_CODE_SIGNED_8,
	DLB_CODE_UNSIGNED_8,
	DLB_N_STATE_CODES
};
enum { DLB_STATE_BLOCK = 256 };

extern const char *const dlb_state_dtypes[DLB_N_STATE_DTYPES + 1]; /* "f32", "bf16", "8bit"; ends with NULL */
int dlb_state_dtype_find(const char *name); /* -1: none */

/* Blocks and bytes of a state of n elements, cut into n_chunks, whose weights have weight_bytes bytes an
 * element. 8bit: n codes, then from a multiple of 4 the scales. */
int64_t dlb_state_blocks(int64_t n, int n_chunks);
size_t dlb_state_bytes(enum dlb_state_dtype d, size_t weight_bytes, int64_t n, int n_chunks);
/* The bytes of a large state relative to those in f32: 1, 0.5, 0.254. */
double dlb_state_ratio(enum dlb_state_dtype d);

/* Decode and encode whole states. `code` is not F32. */
void dlb_state_decode(enum dlb_state_code code, int64_t n, int n_chunks, const void *from, float *to);
void dlb_state_encode(enum dlb_state_code code, int64_t n, int n_chunks, const float *from, void *to);

/* ---- one block ---- */

/* first: its first element; block: its number; n: its number of elements; chunk: the chunk that it is in;
 * end: the end of that chunk. */
struct dlb_state_span {
	int64_t first, block;
	int n, chunk;
	int64_t end;
};
/* Block number `block`, from 0, of a state of n elements. O(n_chunks). n: 0 if there is none. */
struct dlb_state_span dlb_state_span_at(int64_t n, int n_chunks, int64_t block);
/* Moves *s to the next block. */
void dlb_state_next(int64_t n, int n_chunks, struct dlb_state_span *s);
#endif
