/* What the products of panel_real.h have in common for all types: sizes of tiles, and bands. */
#ifndef DLB_TENSOR_CPU_PANEL_H
#define DLB_TENSOR_CPU_PANEL_H
#include "tensor/cpu/level.h"

#define PANEL_DEPTH 256
/* Rows per tile: as many as fit the registers, two vectors each, besides the registers for b and a. */
#if VECTOR_BYTES == 64
#define TILE 12
#elif VECTOR_BYTES == 32
#define TILE 6
#else
#define TILE 4
#endif
/* Here a product and the following sum are fused (FMA) if the processor has it. */
#ifdef __clang__
#define PANEL_FUSED
#define PANEL_FUSED_BODY _Pragma("clang fp contract(fast)")
#else
#define PANEL_FUSED __attribute__((optimize("fp-contract=fast")))
#define PANEL_FUSED_BODY
#endif

/* The part of a matrix that is not zero: row i has columns [lo[i], hi[i]), and neither lo nor hi decreases.
 * Products skip most of the other elements; they may read up to PANEL_MARGIN of them on both sides of a row
 * if neighbouring rows differ by at most one. */
struct panel_band { const int32_t *lo, *hi; };
enum { PANEL_MARGIN = TILE - 1 };
#endif
