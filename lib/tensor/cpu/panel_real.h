/* Small matrix products for type T with an operand that is packed once and used many times:
 *     y (m, n) = alpha a b, or y += alpha a b
 * b (k, n) is stored in panels of PANEL columns, [panel][row][column], the last one padded with
 * zeros; a has any two strides. A tile of TILE rows of y by one panel is summed in registers over
 * PANEL_DEPTH rows of b, so that this part of the panel stays in the L1 cache. Each element is summed
 * in the order of k for any m and n. */
#include "tensor/cpu/level.h"
#ifndef PANEL_DEPTH
#define PANEL_DEPTH 256
/* Rows per tile: as many as fit the registers, two vectors each, besides those for b and a. */
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
#endif
#undef PANEL
#undef PANEL_HALF
#define PANEL_HALF ((int64_t)(VECTOR_BYTES / sizeof(T)))
#define PANEL (2 * PANEL_HALF)

typedef T S(panel_t) __attribute__((vector_size(VECTOR_BYTES)));

/* elements of b in panels */
static int64_t S(panel_count)(int64_t k, int64_t n)
{
	return (n + PANEL - 1) / PANEL * PANEL * k;
}

/* b = x, rows `stride` apart. */
static void S(panel_pack)(int64_t k, int64_t n, const T *x, int64_t stride, T *b)
{
	for (int64_t at = 0; at < n; at += PANEL)
		for (int64_t i = 0; i < k; i++, b += PANEL) {
			const int64_t len = n - at < PANEL ? n - at : PANEL;

			if (len == PANEL) {
				memcpy(b, x + i * stride + at, PANEL * sizeof *b);
				continue;
			}
			for (int64_t j = 0; j < PANEL; j++)
				b[j] = j < len ? x[i * stride + at + j] : 0;
		}
}

typedef T S(panel_quad_t) __attribute__((vector_size(4 * sizeof(T))));

/* Transposes four rows of four elements, `stride` apart, into columns of a panel. */
static inline __attribute__((always_inline)) void S(panel_turn)(const T *x, int64_t stride, T *b)
{
	S(panel_quad_t) r[4], u[4];

	for (int i = 0; i < 4; i++)
		memcpy(&r[i], x + i * stride, sizeof r[i]);
	u[0] = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5);
	u[1] = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
	u[2] = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
	u[3] = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
	r[0] = __builtin_shufflevector(u[0], u[2], 0, 1, 4, 5);
	r[1] = __builtin_shufflevector(u[0], u[2], 2, 3, 6, 7);
	r[2] = __builtin_shufflevector(u[1], u[3], 0, 1, 4, 5);
	r[3] = __builtin_shufflevector(u[1], u[3], 2, 3, 6, 7);
	for (int i = 0; i < 4; i++)
		memcpy(b + i * PANEL, &r[i], sizeof r[i]);
}

/* b = the transpose of x (n, k), rows `stride` apart. */
static void S(panel_pack_transposed)(int64_t k, int64_t n, const T *x, int64_t stride, T *b)
{
	for (int64_t at = 0; at < n; at += PANEL, b += k * PANEL) {
		const int64_t len = n - at < PANEL ? n - at : PANEL, fours = len / 4 * 4, deep = k / 4 * 4;

		for (int64_t j = 0; j < fours; j += 4)
			for (int64_t i = 0; i < deep; i += 4)
				S(panel_turn)(x + (at + j) * stride + i, stride, b + i * PANEL + j);
		for (int64_t i = 0; i < k; i++)
			for (int64_t j = i < deep ? fours : 0; j < PANEL; j++)
				b[i * PANEL + j] = j < len ? x[(at + j) * stride + i] : 0;
	}
}

struct S(panel_job) { int64_t k, row, column, ldy, columns; T alpha; const T *a, *b; T *y; bool add; };

/* `rows` rows of y from row `first` on by `vectors` halves of one panel; both are constant after inlining. */
static inline __attribute__((always_inline)) PANEL_FUSED void S(panel_tile)(int rows, int vectors,
									    int64_t first,
									    const struct S(panel_job) * p)
{
	PANEL_FUSED_BODY
	S(panel_t) sum[TILE][2];
	const int64_t row = p->row, column = p->column, ldy = p->ldy, columns = p->columns;
	const T *a = p->a + first * row, *b = p->b, alpha = p->alpha;
	T *y = p->y + first * ldy, part[2 * VECTOR_BYTES / sizeof(T)] = { 0 };
	const bool whole = columns == PANEL, add = p->add;

#pragma GCC unroll 12
	for (int i = 0; i < rows; i++)
		sum[i][0] = sum[i][1] = (S(panel_t)){ 0 };
	for (int64_t l = p->k; l > 0; l--, a += column, b += PANEL) {
		S(panel_t) u, v;

		memcpy(&u, b, sizeof u);
		memcpy(&v, b + PANEL_HALF, sizeof v);
#pragma GCC unroll 12
		for (int i = 0; i < rows; i++) {
			sum[i][0] += a[i * row] * u;
			if (vectors > 1)
				sum[i][1] += a[i * row] * v;
		}
	}
#pragma GCC unroll 12
	for (int i = 0; i < rows; i++, y += ldy) {
		S(panel_t) old[2] = { { 0 }, { 0 } };

		if (add && whole) {
			memcpy(&old[0], y, sizeof old[0]);
			memcpy(&old[1], y + PANEL_HALF, sizeof old[1]);
		} else if (add) {
			for (int64_t j = 0; j < columns; j++)
				part[j] = y[j];
			memcpy(old, part, sizeof old);
		}
		old[0] += alpha * sum[i][0];
		old[1] += alpha * sum[i][1];
		if (whole) {
			memcpy(y, &old[0], sizeof old[0]);
			memcpy(y + PANEL_HALF, &old[1], sizeof old[1]);
			continue;
		}
		memcpy(part, old, sizeof part);
		for (int64_t j = 0; j < columns; j++)
			y[j] = part[j];
	}
}

#define PANEL_CASE(rows) case rows: S(panel_tile)(rows, vectors, i, p); break
static inline __attribute__((always_inline)) PANEL_FUSED void S(panel_tiles)(int64_t rows, int vectors,
									     int64_t i,
									     const struct S(panel_job) * p)
{
	switch (rows) {
#if TILE > 6
	PANEL_CASE(12); PANEL_CASE(11); PANEL_CASE(10); PANEL_CASE(9); PANEL_CASE(8); PANEL_CASE(7);
#endif
#if TILE > 4
	PANEL_CASE(6); PANEL_CASE(5);
#endif
	PANEL_CASE(4); PANEL_CASE(3); PANEL_CASE(2); PANEL_CASE(1);
	}
}
#undef PANEL_CASE

/* m rows of y by one panel, in tiles of nearly equal size. */
static PANEL_FUSED void S(panel_rows)(int64_t m, const struct S(panel_job) *p)
{
	const int tiles = (int)((m + TILE - 1) / TILE);

	for (int t = 0; t < tiles; t++) {
		const int64_t i = cpu_cut(m, t, tiles), rows = cpu_cut(m, t + 1, tiles) - i;

		if (p->columns > PANEL_HALF)
			S(panel_tiles)(rows, 2, i, p);
		else
			S(panel_tiles)(rows, 1, i, p);
	}
}

/* a: element (i, l) at a[i * row + l * column]. b has k_all rows per panel, of which k are read. */
static void S(panel_product)(int64_t m, int64_t n, int64_t k, T alpha, const T *a, int64_t row,
			     int64_t column, const T *b, int64_t k_all, T *y, int64_t ldy, bool add)
{
	for (int64_t l = 0; l < k; l += PANEL_DEPTH)
		for (int64_t at = 0; at < n; at += PANEL) {
			const struct S(panel_job) p = { .k = k - l < PANEL_DEPTH ? k - l : PANEL_DEPTH,
							.row = row,
							.column = column,
							.ldy = ldy,
							.columns = n - at < PANEL ? n - at : PANEL,
							.alpha = alpha,
							.a = a + l * column,
							.b = b + at * k_all + l * PANEL,
							.y = y + at,
							.add = add || l };

			S(panel_rows)(m, &p);
		}
}
