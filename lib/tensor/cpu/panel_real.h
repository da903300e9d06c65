/* Small matrix products for type T with an operand that is packed once and used many times:
 *     y (m, n) = alpha a b, or y += alpha a b
 * b (k, n) is stored in panels of PANEL columns, [panel][row][column], the last one padded with
 * zeros; a has any two strides. A tile of TILE rows of y by one panel is summed in registers over
 * PANEL_DEPTH rows of b, so that this part of the panel stays in the L1 cache. Each element is summed
 * in the order of k for any m and n. */
#include "tensor/cpu/panel.h"
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

/* Restricts the job, which has terms [from, from + k) of all, to the band of y's rows [i, i + rows). False:
 * the job has no term in the band, and another part of the terms writes these rows. */
static inline bool S(panel_narrow)(const struct panel_band *band, int64_t i, int64_t rows, int64_t from,
				   struct S(panel_job) *p)
{
	const int64_t lo = band->lo[i], hi = band->hi[i + rows - 1], end = from + p->k;
	const int64_t first = lo > from ? lo : from, skip = first - from;

	if (hi <= lo) {			/* no terms: zeros */
		p->k = 0;
		return from == 0;
	}
	if (first >= end || hi <= from)
		return false;
	p->k = (hi < end ? hi : end) - first;
	p->a += skip * p->column;
	p->b += skip * PANEL;
	p->add |= lo < from;
	return true;
}

/* Computes `rows` rows of y, from row `first` on, by `vectors` halves of one panel; both numbers are constant
 * after inlining. */
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

/* Computes rows [top, end) of y by one panel, in tiles of nearly equal size. terms (NULL: all): the band of
 * a, of which the job has the columns from `from` on. */
static PANEL_FUSED void S(panel_rows)(int64_t top, int64_t end, int64_t from, const struct panel_band *terms,
				      const struct S(panel_job) * p)
{
	const int tiles = (int)((end - top + TILE - 1) / TILE);

	for (int t = 0; t < tiles; t++) {
		const int64_t i = top + cpu_cut(end - top, t, tiles),
			      rows = top + cpu_cut(end - top, t + 1, tiles) - i;
		const struct S(panel_job) *job = p;
		struct S(panel_job) narrow;

		if (terms) {
			narrow = *p;
			job = &narrow;
			if (!S(panel_narrow)(terms, i, rows, from, &narrow))
				continue;
		}
		if (p->columns > PANEL_HALF)
			S(panel_tiles)(rows, 2, i, job);
		else
			S(panel_tiles)(rows, 1, i, job);
	}
}

/* A product: a (m, k) has element (i, l) at a[i * row + l * column]; b has k_all rows per panel, of which k
 * are read. wanted (NULL: all): the band of y to compute; terms (NULL: all): the band of a that is not
 * zero. */
struct S(panel_operands) {
	int64_t m, n, k;
	T alpha;
	const T *a;
	int64_t row, column;
	const T *b;
	int64_t k_all;
	T *y;
	int64_t ldy;
	bool add;
	const struct panel_band *wanted, *terms;
};

static void S(panel_product)(const struct S(panel_operands) *o)
{
	for (int64_t l = 0; l == 0 || l < o->k; l += PANEL_DEPTH) {
		int64_t top = 0, end = o->wanted ? 0 : o->m;

		for (int64_t at = 0; at < o->n; at += PANEL) {
			const struct S(panel_job) p = { .k = o->k - l < PANEL_DEPTH ? o->k - l : PANEL_DEPTH,
							.row = o->row,
							.column = o->column,
							.ldy = o->ldy,
							.columns = o->n - at < PANEL ? o->n - at : PANEL,
							.alpha = o->alpha,
							.a = o->a + l * o->column,
							.b = o->b + at * o->k_all + l * PANEL,
							.y = o->y + at,
							.add = o->add || (l && !o->terms) };

			while (o->wanted && end < o->m && o->wanted->lo[end] < at + PANEL)
				end++;
			while (o->wanted && top < end && o->wanted->hi[top] <= at)
				top++;
			S(panel_rows)(top, end, l, o->terms, &p);
		}
	}
}
