/* Attention of bf16 (attention.cu has the formulas) by tensor cores, for heads of up to D columns. The
 * including file first defines TILE, D, STEP, and the columns of scores that a thread computes at once, as
 * many as its registers allow: FORWARD_CHUNK, DQ_CHUNK and DKV_CHUNK.
 *
 * A block computes TILE queries, or TILE keys, whose operands stay in registers as fragments, 16 rows a warp.
 * Rows of the other side are copied to shared memory in steps of STEP rows, each while the step before it is
 * used. Scores, sums and results are f32; probabilities and gradients of scores are rounded to bf16 for the
 * products that take them. exp(s) is computed as 2^(s log2(e)). Steps of which no query sees a key are
 * skipped; in steps of which each query sees each key, positions are not compared. Backward, _dq first passes
 * over the keys to compute sum p dp of its queries, which _dq and _dkv need. */
#ifndef DLB_TENSOR_CUDA_ATTENTION_BF16_CUH
#define DLB_TENSOR_CUDA_ATTENTION_BF16_CUH
#include "tensor/cuda/attention.cuh"
#include "tensor/cuda/runs.cuh"
#include "tensor/cuda/warp.cuh"

/* Padding of the rows of a step: eight neighbouring rows begin in different banks. */
enum { PAD = 8 };
static_assert(TILE == CUDA_THREADS / WARP * 16, "16 rows a warp");
constexpr float LOG2_E = 1.44269504f, LN_2 = 0.693147181f;

/* Stands before a loop over chunks, which would need more registers if it were unrolled. */
#ifdef __CUDACC__
#define ONE_BY_ONE _Pragma("unroll 1")
#else
#define ONE_BY_ONE
#endif

typedef bf16 step_rows[STEP][D + PAD];
typedef uint32_t operand_fragments[D / 16][4];
typedef float result_fragments[D / 8][4];

/* ---- operands ---- */
/* A head of an operand: `n` rows of `width` elements, `stride` apart; elements beyond them are read as 0. */
struct rows_at {
	const bf16 *first;
	int64_t stride;
	int n, width;
};

static __device__ inline rows_at rows_of(const void *p, const int64_t stride[3], int64_t batch, int64_t head,
					 int64_t n, int64_t width)
{
	return { head_of<const bf16>(p, stride, batch, head), stride[2], (int)n, (int)width };
}
static __device__ inline rows_at query_rows(const struct cuda_attention &a, const queries &x)
{
	return rows_of(a.p.in[0], a.d.q, x.batch, x.head, a.d.rows, a.d.width);
}
static __device__ inline rows_at slope_rows(const struct cuda_attention &a, const queries &x)
{
	return rows_of(a.p.in[5], a.d.y, x.batch, x.head, a.d.rows, a.d.v_width);
}
static __device__ inline rows_at key_rows(const struct cuda_attention &a, const queries &x)
{
	return rows_of(a.p.in[1], a.d.k, x.batch, x.kv_head, a.d.keys, a.d.width);
}
static __device__ inline rows_at value_rows(const struct cuda_attention &a, const queries &x)
{
	return rows_of(a.p.in[2], a.d.v, x.batch, x.kv_head, a.d.keys, a.d.v_width);
}

/* Begins to copy STEP rows from `row` on to shared memory. */
template <bool any>
static __device__ inline void stage(step_rows to, const rows_at &r, int row)
{
	const bool whole =
		!any || ((uintptr_t)r.first | (uintptr_t)(r.stride * 2) | (uintptr_t)(r.width * 2)) % 16 == 0;

	UNROLL
	for (int i = 0; i < STEP * D / 8 / CUDA_THREADS; i++) {
		const int thread = i * CUDA_THREADS + (int)threadIdx.x, at = thread / (D / 8), c = thread % (D / 8) * 8;
		const bool absent = row + at >= r.n || c >= r.width;
		const bf16 *from = absent ? r.first : r.first + (row + at) * r.stride + c;

		if (whole)
			copy_later<16>(&to[at][c], from, absent);
		else
			for (int j = 0; j < 8; j++)
				to[at][c + j] = absent || c + j >= r.width ? bf16(0.f) : from[j];
	}
}

/* Reads this thread's share of 16 rows from `row` on, as operand a of products. */
template <bool any>
static __device__ inline void read_fragments(operand_fragments &to, const rows_at &r, int row)
{
	UNROLL
	for (int i = 0; i < D / 4; i++) {
		const int at = row + fragment_row() + i % 2 * 8, c = i / 4 * 16 + i / 2 % 2 * 8 + fragment_column();
		const bf16 *from = r.first + at * r.stride + c;
		neighbours<bf16, 2> v = { { bf16(0.f), bf16(0.f) } };

		if (at < r.n && c + 1 < r.width && (!any || (uintptr_t)from % 4 == 0)) {
			v = *(const neighbours<bf16, 2> *)from;
		} else if (any && at < r.n) {
			v.v[0] = c < r.width ? from[0] : v.v[0];
			v.v[1] = c + 1 < r.width ? from[1] : v.v[1];
		}
		to[i / 4][i % 4] = v.v[0].bits | (uint32_t)v.v[1].bits << 16;
	}
}

/* Writes the warp's 16 rows from `row` on: the first eight times by[0], the others times by[1]. */
template <bool any>
static __device__ inline void put_fragments(const rows_at &r, int row, const result_fragments &v,
					    const float (&by)[2])
{
	UNROLL
	for (int i = 0; i < D / 4; i++) {
		const int at = row + fragment_row() + i % 2 * 8, c = i / 2 * 8 + fragment_column();
		bf16 *to = (bf16 *)r.first + at * r.stride + c;
		const uint32_t pair = pair_of(v[i / 2][i % 2 * 2] * by[i % 2], v[i / 2][i % 2 * 2 + 1] * by[i % 2]);
		neighbours<bf16, 2> both;

		both.v[0].bits = (uint16_t)pair;
		both.v[1].bits = (uint16_t)(pair >> 16);
		if (at < r.n && c + 1 < r.width && (!any || (uintptr_t)to % 4 == 0)) {
			*(neighbours<bf16, 2> *)to = both;
		} else if (any && at < r.n) {
			if (c < r.width)
				to[0] = both.v[0];
			if (c + 1 < r.width)
				to[1] = both.v[1];
		}
	}
}

/* ---- products ---- */
/* c += a b^T: c (16 x 8 N), b: rows [first, first + 8 N) of the step. */
template <int N>
static __device__ inline void by_rows(float (&c)[N][4], const operand_fragments &a, const step_rows b,
				      int first)
{
	const bf16 *row = &b[first + lane_of() % 8 + lane_of() / 16 * 8][lane_of() / 8 % 2 * 8];

	UNROLL
	for (int k = 0; k < D / 16; k++)
		UNROLL
		for (int j = 0; j < N; j += 2) {
			uint32_t v[4];

			read_matrices<false>(v, row + j * 8 * (D + PAD) + k * 16);
			multiply_add(c[j], a[k], v[0], v[1]);
			multiply_add(c[j + 1], a[k], v[2], v[3]);
		}
}

/* c += a b: a (16 x 8 N), as results of products, b: rows [first, first + 8 N) of the step. */
template <int N>
static __device__ inline void by_columns(result_fragments &c, const float (&a)[N][4], const step_rows b,
					 int first)
{
	const bf16 *row = &b[first + lane_of() % 16][lane_of() / 16 * 8];

	UNROLL
	for (int k = 0; k < N; k += 2) {
		const uint32_t pairs[4] = { pair_of(a[k][0], a[k][1]), pair_of(a[k][2], a[k][3]),
					    pair_of(a[k + 1][0], a[k + 1][1]), pair_of(a[k + 1][2], a[k + 1][3]) };

		UNROLL
		for (int j = 0; j < D / 8; j += 2) {
			uint32_t v[4];

			read_matrices<true>(v, row + k * 8 * (D + PAD) + j * 8);
			multiply_add(c[j], pairs, v[0], v[1]);
			multiply_add(c[j + 1], pairs, v[2], v[3]);
		}
	}
}

/* ---- scores ---- */
/* Keys [lo, hi) that a query sees: struct span with narrower integers. */
struct narrow_span {
	int lo, hi;
};
static __device__ inline narrow_span narrow_span_of(const struct cuda_attention &a, const queries &x, int row)
{
	if (row >= x.n)
		return { 0, 0 };
	const span s = span_of(a, x.batch, x.row + row);
	return { (int)s.lo, (int)s.hi };
}

/* How the scores of a step are changed besides the scale: NOTHING, if each query sees each key. Masks, cap
 * and outputs of scores or of their gradients have kernels of their own (`any`), because they need more
 * registers. */
enum scoring { NOTHING, POSITIONS, MASK, EVERYTHING };

/* Keys that at least one of a block's queries sees, and keys that all of them see. */
static __device__ inline narrow_span seen_by_any(const struct cuda_attention &a, const queries &x)
{
	const span s = seen_by(a, x.batch, x.row, x.n);
	return { (int)s.lo, (int)s.hi };
}
static __device__ inline narrow_span seen_by_all(const struct cuda_attention &a, const queries &x)
{
	return { (int)span_of(a, x.batch, x.row + x.n - 1).lo, (int)span_of(a, x.batch, x.row).hi };
}

/* The scoring of n keys from c0 on. all: keys that each query of the block sees; tells: scores are an
 * output. */
template <bool any>
static __device__ inline scoring scoring_of(const struct cuda_attention &a, narrow_span all, int c0, int n,
					    bool tells)
{
	if (any && (tells || a.d.softcap > 0))
		return EVERYTHING;
	if (any && a.p.in[3])
		return MASK;
	return c0 >= all.lo && c0 + n <= all.hi ? NOTHING : POSITIONS;
}

/* Writes v to output `scores` if `stage` is the requested one. */
static __device__ inline void tell(const struct cuda_attention &a, const queries &x, enum dlb_scores stage,
				   int row, int64_t key, float v)
{
	if (row < x.n && key < a.d.keys && a.d.scores == stage)
		((bf16 *)a.p.out[2])[row_index(a, x, row) * a.d.keys + key] = bf16(v);
}

/* a * b, rounded before it is added to anything, so that kernels for aligned and for any operands give the
 * same bits. */
static __device__ inline float product(float a, float b)
{
#ifdef __CUDACC__
	return __fmul_rn(a, b);
#else
	return a * b;
#endif
}

/* Factor that turns a sum s, without scale, into an exponent of 2. */
static __device__ inline float factor_of(const struct cuda_attention &a) { return (float)a.d.scale * LOG2_E; }

/* Returns the score of one query and key as an exponent of 2, from s without scale; *slope: derivative of the
 * cap. Not inline: a thread has many scores, and each would have a copy of the code. */
static __device__ __attribute__((noinline)) float
whole_score(const struct cuda_attention &a, const queries &x, int row, narrow_span seen, int64_t key, float s,
	    bool tells, float *slope)
{
	const bool is_product = !a.p.in[3] && !(a.d.softcap > 0);
	float v = s * (float)a.d.scale;

	if (tells)
		tell(a, x, DLB_SCORES_RAW, row, key, v);
	v = capped(a, v, slope);
	if (tells)
		tell(a, x, DLB_SCORES_CAPPED, row, key, v);
	v = masked(a, x, row, span{ seen.lo, seen.hi }, key, v);
	if (tells)
		tell(a, x, DLB_SCORES_MASKED, row, key, v);
	return is_product && v > -INFINITY ? product(s, factor_of(a)) : v * LOG2_E;
}

/* Identifies a score: its query, a row of the block; the keys that the query sees; and its key, base + i. */
struct score_place {
	int row;
	narrow_span seen;
	int base, i;

	__device__ inline bool is_seen() const { return i >= seen.lo - base && i < seen.hi - base; }
};

/* The value that the mask adds to the score of a key that is visible by its position; -inf: not seen. */
static __device__ inline float mask_of(const struct cuda_attention &a, const queries &x, const score_place &p)
{
	const int64_t at = x.batch * a.d.mask[0] + x.head * a.d.mask[1] + (x.row + p.row) * a.d.mask[2] +
			   p.base + p.i;

	if (a.d.mask_type == DLB_BOOL)
		return ((const uint8_t *)a.p.in[3])[at] ? 0 : -INFINITY;
	return ((const float *)a.p.in[3])[at];
}

template <int N> static __device__ inline void no_cap(float (&slope)[N][4])
{
	UNROLL
	for (int i = 0; i < 4 * N; i++)
		slope[i / 4][i % 4] = 1;
}

/* Turns the sums s, without scale, into scores as exponents of 2 (-inf: not seen), and sets the slopes of the
 * cap. place(j, i) identifies score s[j][i]. */
template <bool any, int N, typename Place>
static __device__ inline void finish_scores(const struct cuda_attention &a, const queries &x, scoring how,
					    bool tells, float (&s)[N][4], float (&slope)[N][4], Place place)
{
	if (any && how == EVERYTHING) {
		UNROLL
		for (int i = 0; i < 4 * N; i++) {
			const score_place p = place(i / 4, i % 4);

			s[i / 4][i % 4] = whole_score(a, x, p.row, p.seen, p.base + p.i, s[i / 4][i % 4], tells,
						      &slope[i / 4][i % 4]);
		}
	} else if (any && how == MASK) {
		no_cap(slope);
		float m[N][4];

		UNROLL
		for (int i = 0; i < 4 * N; i++) {	/* all loads begin before one is used */
			const score_place p = place(i / 4, i % 4);

			m[i / 4][i % 4] = p.is_seen() ? mask_of(a, x, p) : -INFINITY;
		}
		UNROLL
		for (int i = 0; i < 4 * N; i++)
			s[i / 4][i % 4] = m[i / 4][i % 4] == -INFINITY ?
						  -INFINITY :
						  (s[i / 4][i % 4] * (float)a.d.scale + m[i / 4][i % 4]) * LOG2_E;
	} else {
		no_cap(slope);
		UNROLL
		for (int i = 0; i < 4 * N; i++)
			s[i / 4][i % 4] = how == NOTHING || place(i / 4, i % 4).is_seen() ?
						  product(s[i / 4][i % 4], factor_of(a)) :
						  -INFINITY;
	}
}

/* ---- blocks ---- */
/* The queries of block r. The last tiles begin first: if later keys are hidden, they see most keys. */
static __device__ inline queries block_queries(const struct cuda_attention &a, int64_t r)
{
	const int64_t tile = a.row_tiles - 1 - r / (a.d.batch * a.d.heads);
	queries x = {};

	r %= a.d.batch * a.d.heads;
	x.row = tile * TILE;
	x.head = r % a.d.heads;
	x.batch = r / a.d.heads;
	x.kv_head = x.head / (a.d.heads / a.d.kv_heads);
	x.n = a.d.rows - x.row < TILE ? a.d.rows - x.row : (int64_t)TILE;
	return x;
}

/* A tile of queries, in shared memory: the keys that each sees, and those that all see. */
struct query_block {
	queries x;
	narrow_span seen[TILE], all;
};

/* Fills b for block r. Barriers before and after. */
static __device__ inline void find_block(query_block &b, const struct cuda_attention &a, int64_t r)
{
	const queries x = block_queries(a, r);

	__syncthreads();
	if (threadIdx.x == 0) {
		b.x = x;
		b.all = seen_by_all(a, x);
	}
	if (threadIdx.x < TILE)
		b.seen[threadIdx.x] = narrow_span_of(a, x, (int)threadIdx.x);
	__syncthreads();
}

/* The first of this warp's rows of a tile. */
static __device__ inline int warp_row() { return (int)threadIdx.x / WARP * 16; }

/* Calls visit(c0, step of keys, step of values) for each step of keys [lo, hi). If `values` is false, the
 * step of values is undefined. */
template <bool any, typename Visit>
static __device__ inline void each_step(const struct cuda_attention &a, const queries &x, narrow_span keys,
					bool values, step_rows k[2], step_rows v[2], Visit visit)
{
	const rows_at all_k = key_rows(a, x), all_v = value_rows(a, x);
	int now = 0;

	__syncthreads();	/* other threads may still read the last steps */
	for (int c0 = keys.lo - STEP; c0 < keys.hi; c0 += STEP, now ^= 1) {
		wait_copies();
		__syncthreads();
		if (c0 + STEP < keys.hi) {
			stage<any>(k[now ^ 1], all_k, c0 + STEP);
			if (values)
				stage<any>(v[now ^ 1], all_v, c0 + STEP);
		}
		if (c0 >= keys.lo)
			visit(c0, k[now], v[now]);
	}
}

/* ---- forward ---- */
/* A thread's two rows: the largest score, and this thread's part of the sum of 2^(score - most). */
struct forward_rows {
	float most[2], total[2];
};

/* Adds scores s to the rows' maxima and sums, replaces them by 2^(s - most), and rescales y to the new
 * maxima. */
static __device__ inline void take_scores(forward_rows &rows, float (&s)[FORWARD_CHUNK / 8][4],
					  result_fragments &y)
{
	UNROLL
	for (int h = 0; h < 2; h++) {
		float m = rows.most[h];

		UNROLL
		for (int j = 0; j < FORWARD_CHUNK / 8; j++)
			m = fmaxf(m, fmaxf(s[j][2 * h], s[j][2 * h + 1]));
		m = most_of_row(m);
		const float base = m == -INFINITY ? 0 : m, grow = power_of_2(rows.most[h] - base);
		float sum = 0;

		UNROLL
		for (int j = 0; j < FORWARD_CHUNK / 8; j++)
			UNROLL
			for (int i = 2 * h; i < 2 * h + 2; i++) {
				s[j][i] = power_of_2(s[j][i] - base);
				sum += s[j][i];
			}
		if (any_of_warp(grow != 1)) {
			UNROLL
			for (int j = 0; j < D / 8; j++) {
				y[j][2 * h] *= grow;
				y[j][2 * h + 1] *= grow;
			}
		}
		rows.most[h] = m;
		rows.total[h] = rows.total[h] * grow + sum;
	}
}

/* Sets s to the block's scores for keys from c0 + first on, which are rows [first, ...) of the step. */
template <bool any>
static __device__ inline void find_scores(const struct cuda_attention &a, const query_block &b, scoring how,
					  int c0, int first, bool tells, const operand_fragments &q,
					  const step_rows k, float (&s)[FORWARD_CHUNK / 8][4])
{
	float slope[FORWARD_CHUNK / 8][4];

	by_rows<FORWARD_CHUNK / 8>(s, q, k, first);
	finish_scores<any>(a, b.x, how, tells, s, slope, [&](int j, int i) {
		const int row = warp_row() + fragment_row() + i / 2 * 8;

		return score_place{ row, b.seen[row], c0 + first + fragment_column(), j * 8 + i % 2 };
	});
}

/* Writes the output of probabilities: of a tile's queries for all keys. */
template <bool any>
static __device__ inline void put_probabilities(const struct cuda_attention &a, const query_block &b,
						const forward_rows &rows, const float (&by)[2],
						const operand_fragments &q, step_rows k[2])
{
	const narrow_span all = { 0, (int)a.d.keys };

	each_step<any>(a, b.x, all, false, k, k, [&](int c0, const step_rows keys, const step_rows) {
		ONE_BY_ONE
		for (int first = 0; first < STEP; first += FORWARD_CHUNK) {
			float s[FORWARD_CHUNK / 8][4] = {};

			find_scores<any>(a, b, scoring_of<any>(a, b.all, c0, STEP, false), c0, first, false, q, keys, s);
			UNROLL
			for (int i = 0; i < FORWARD_CHUNK / 2; i++) {
				const int h = i / 2 % 2;
				const float most = rows.most[h],
					    p = most == -INFINITY ? 0 : power_of_2(s[i / 4][i % 4] - most) * by[h];

				tell(a, b.x, DLB_SCORES_SOFTMAX, warp_row() + fragment_row() + h * 8,
				     c0 + first + i / 4 * 8 + fragment_column() + i % 2, p);
			}
		}
	});
}

template <bool any> static __device__ inline void forward(const struct cuda_attention &a)
{
	alignas(16) __shared__ step_rows k[2], v[2];
	__shared__ query_block b;

	for (EACH_ROW(r, a.blocks)) {
		find_block(b, a, r);
		const queries &x = b.x;
		const bool tells = any && a.p.out[2];
		forward_rows rows = { { -INFINITY, -INFINITY }, { 0, 0 } };
		operand_fragments q;
		result_fragments y = {};
		float by[2];

		read_fragments<any>(q, query_rows(a, x), (int)x.row + warp_row());
		each_step<any>(a, x, tells ? narrow_span{ 0, (int)a.d.keys } : seen_by_any(a, x), true, k, v,
			  [&](int c0, const step_rows keys, const step_rows values) {
				  const scoring how = scoring_of<any>(a, b.all, c0, STEP, tells);

				  ONE_BY_ONE
				  for (int first = 0; first < STEP; first += FORWARD_CHUNK) {
					  float s[FORWARD_CHUNK / 8][4] = {};

					  find_scores<any>(a, b, how, c0, first, tells, q, keys, s);
					  take_scores(rows, s, y);
					  by_columns<FORWARD_CHUNK / 8>(y, s, values, first);
				  }
			  });
		for (int h = 0; h < 2; h++) {
			const int row = warp_row() + fragment_row() + h * 8;
			const bool none = rows.most[h] == -INFINITY;

			rows.total[h] = sum_of_row(rows.total[h]);
			by[h] = none ? 0 : 1 / rows.total[h];
			if (a.p.out[1] && row < x.n && fragment_column() == 0)
				((float *)a.p.out[1])[row_index(a, x, row)] =
					none ? INFINITY : rows.most[h] * LN_2 + logf(rows.total[h]);
		}
		put_fragments<any>(rows_of(a.p.out[0], a.d.y, x.batch, x.head, a.d.rows, a.d.v_width),
				   (int)x.row + warp_row(), y, by);
		if (tells && a.d.scores == DLB_SCORES_SOFTMAX)
			put_probabilities<any>(a, b, rows, by, q, k);
	}
}

/* ---- backward ---- */
/* A thread's two queries: log2 of the sum of exp(score), and the sum of p dp. */
struct backward_rows {
	float log_sum[2], mean[2];
};

/* Sets p to the probabilities of the block's queries for DQ_CHUNK keys, which are rows [first, ...) of the
 * step from c0 on, dp to their gradients, and slope to the slopes of the cap. */
template <bool any>
static __device__ inline void find_probabilities(const struct cuda_attention &a, const query_block &b,
						 const backward_rows &rows, scoring how, int c0, int first,
						 const operand_fragments &q, const operand_fragments &dy,
						 const step_rows k, const step_rows v, float (&p)[DQ_CHUNK / 8][4],
						 float (&dp)[DQ_CHUNK / 8][4], float (&slope)[DQ_CHUNK / 8][4])
{
	by_rows<DQ_CHUNK / 8>(p, q, k, first);
	by_rows<DQ_CHUNK / 8>(dp, dy, v, first);
	finish_scores<any>(a, b.x, how, false, p, slope, [&](int j, int i) {
		const int row = warp_row() + fragment_row() + i / 2 * 8;

		return score_place{ row, b.seen[row], c0 + first + fragment_column(), j * 8 + i % 2 };
	});
	UNROLL
	for (int i = 0; i < DQ_CHUNK / 2; i++)
		p[i / 4][i % 4] = power_of_2(p[i / 4][i % 4] - rows.log_sum[i / 2 % 2]);
}

/* Computes sum p dp of the queries; writes it to scratch for _dkv. */
template <bool any>
static __device__ inline void find_means(const struct cuda_attention &a, const query_block &b, backward_rows &rows,
					 const operand_fragments &q, const operand_fragments &dy, step_rows k[2],
					 step_rows v[2])
{
	const queries &x = b.x;

	rows.mean[0] = rows.mean[1] = 0;
	each_step<any>(a, x, seen_by_any(a, x), true, k, v,
		  [&](int c0, const step_rows keys, const step_rows values) {
			  const scoring how = scoring_of<any>(a, b.all, c0, STEP, false);

			  ONE_BY_ONE
			  for (int first = 0; first < STEP; first += DQ_CHUNK) {
				  float p[DQ_CHUNK / 8][4] = {}, dp[DQ_CHUNK / 8][4] = {}, slope[DQ_CHUNK / 8][4];

				  find_probabilities<any>(a, b, rows, how, c0, first, q, dy, keys, values, p, dp, slope);
				  UNROLL
				  for (int i = 0; i < DQ_CHUNK / 2; i++)
					  rows.mean[i / 2 % 2] += p[i / 4][i % 4] * dp[i / 4][i % 4];
			  }
		  });
	for (int h = 0; h < 2; h++) {
		const int row = warp_row() + fragment_row() + h * 8;

		rows.mean[h] = sum_of_row(rows.mean[h]);
		if (row < x.n && fragment_column() == 0)
			((float *)a.p.scratch)[row_index(a, x, row)] = rows.mean[h];
	}
}

/* Writes the gradient of the mask for one query and key. */
static __device__ inline void put_mask_gradient(const struct cuda_attention &a, const queries &x, int row,
						int64_t key, float v)
{
	if (row < x.n && key < a.d.mask_keys)
		((float *)a.p.out[3])[row_index(a, x, row) * a.d.mask_keys + key] = v;
}

template <bool any> static __device__ inline void dq(const struct cuda_attention &a)
{
	alignas(16) __shared__ step_rows k[2], v[2];
	__shared__ query_block b;

	for (EACH_ROW(r, a.blocks)) {
		find_block(b, a, r);
		const queries &x = b.x;
		narrow_span keys = seen_by_any(a, x);
		backward_rows rows;
		operand_fragments q, dy;
		result_fragments dq = {};

		read_fragments<any>(q, query_rows(a, x), (int)x.row + warp_row());
		read_fragments<any>(dy, slope_rows(a, x), (int)x.row + warp_row());
		for (int h = 0; h < 2; h++) {
			const int row = warp_row() + fragment_row() + h * 8;

			rows.log_sum[h] = row < x.n ? ((const float *)a.p.in[6])[row_index(a, x, row)] * LOG2_E : 0;
		}
		find_means<any>(a, b, rows, q, dy, k, v);
		if (!a.p.out[0] && !a.p.out[3])
			continue;
		if (any && a.p.out[3])		/* also the gradients of keys that are not seen, which are 0 */
			keys = { 0, keys.hi > a.d.mask_keys ? keys.hi : (int)a.d.mask_keys };
		each_step<any>(a, x, keys, true, k, v, [&](int c0, const step_rows of_k, const step_rows of_v) {
			const scoring how = scoring_of<any>(a, b.all, c0, STEP, false);

			ONE_BY_ONE
			for (int first = 0; first < STEP; first += DQ_CHUNK) {
				float g[DQ_CHUNK / 8][4] = {}, dp[DQ_CHUNK / 8][4] = {}, slope[DQ_CHUNK / 8][4];

				find_probabilities<any>(a, b, rows, how, c0, first, q, dy, of_k, of_v, g, dp, slope);
				UNROLL
				for (int j = 0; j < DQ_CHUNK / 8; j++)
					UNROLL
					for (int i = 0; i < 4; i++) {
						g[j][i] *= dp[j][i] - rows.mean[i / 2];
						if (any && a.p.out[3])
							put_mask_gradient(a, x,
									  warp_row() + fragment_row() + i / 2 * 8,
									  c0 + first + j * 8 + fragment_column() + i % 2,
									  g[j][i]);
						g[j][i] *= slope[j][i];
					}
				by_columns<DQ_CHUNK / 8>(dq, g, of_k, first);
			}
		});
		const float by[2] = { (float)a.d.scale, (float)a.d.scale };
		if (a.p.out[0])
			put_fragments<any>(rows_of(a.p.out[0], a.d.q, x.batch, x.head, a.d.rows, a.d.width),
					   (int)x.row + warp_row(), dq, by);
	}
}

/* A step of queries in shared memory: operands, natural logs of the sums of exp(score), sums of p dp, and the
 * keys that they see. */
struct alignas(16) query_step {
	step_rows q, dy;
	float log_sum[STEP], mean[STEP];
	narrow_span seen[STEP], all;
	queries x;
};

template <bool any>
static __device__ inline void stage_queries(query_step &to, const struct cuda_attention &a, const queries &x)
{
	const int i = (int)threadIdx.x;

	stage<any>(to.q, query_rows(a, x), (int)x.row);
	stage<any>(to.dy, slope_rows(a, x), (int)x.row);
	if (i >= STEP)
		return;
	const int64_t at = row_index(a, x, i < x.n ? i : 0);
	copy_later<4>(&to.log_sum[i], (const float *)a.p.in[6] + at, i >= x.n);
	copy_later<4>(&to.mean[i], (const float *)a.p.scratch + at, i >= x.n);
	to.seen[i] = narrow_span_of(a, x, i);
	if (i == 0) {
		to.all = seen_by_all(a, x);
		to.x = x;
	}
}

/* The step of queries from `row` of `head` on. */
static __device__ inline queries step_queries(const struct cuda_attention &a, int batch, int kv_head, int head,
					      int row)
{
	return { batch, head, kv_head, row, a.d.rows - row < STEP ? a.d.rows - row : (int64_t)STEP, 0, 0 };
}

/* Moves *head and *row forward to a step of queries, of a head below `end`, that sees any of the TILE keys
 * from c0 on. False: there is none. */
static __device__ inline bool find_queries(const struct cuda_attention &a, int batch, int end, int c0, int *head,
					   int *row)
{
	for (; *head < end; (*head)++, *row = 0)
		for (; *row < a.d.rows; *row += STEP) {
			const narrow_span keys = seen_by_any(a, step_queries(a, batch, 0, 0, *row));

			if (keys.hi > c0 && keys.lo < c0 + TILE)
				return true;
		}
	return false;
}

/* Adds the contribution of a step of queries to dk and dv of the TILE keys from c0 on. */
template <bool any>
static __device__ inline void add_queries(const struct cuda_attention &a, const query_step &step, int c0,
					  const operand_fragments &k, const operand_fragments &v, result_fragments &dk,
					  result_fragments &dv)
{
	const scoring how = scoring_of<any>(a, step.all, c0, TILE, false);

	ONE_BY_ONE
	for (int first = 0; first < STEP; first += DKV_CHUNK) {
		float p[DKV_CHUNK / 8][4] = {}, g[DKV_CHUNK / 8][4] = {}, slope[DKV_CHUNK / 8][4];

		by_rows<DKV_CHUNK / 8>(p, k, step.q, first);
		by_rows<DKV_CHUNK / 8>(g, v, step.dy, first);
		finish_scores<any>(a, step.x, how, false, p, slope, [&](int j, int i) {
			const int row = first + j * 8 + fragment_column() + i % 2;

			return score_place{ row, step.seen[row], c0 + warp_row() + fragment_row() + i / 2 * 8, 0 };
		});
		UNROLL
		for (int j = 0; j < DKV_CHUNK / 8; j++)
			UNROLL
			for (int i = 0; i < 4; i++) {
				const int row = first + j * 8 + fragment_column() + i % 2;

				p[j][i] = power_of_2(p[j][i] - step.log_sum[row] * LOG2_E);
				g[j][i] = p[j][i] * (g[j][i] - step.mean[row]) * slope[j][i];
			}
		by_columns<DKV_CHUNK / 8>(dv, p, step.dy, first);
		by_columns<DKV_CHUNK / 8>(dk, g, step.q, first);
	}
}

/* The first tiles of keys begin first: if later keys are hidden, most queries see them. */
template <bool any> static __device__ inline void dkv(const struct cuda_attention &a)
{
	alignas(16) __shared__ query_step step[2];
	const int share = (int)(a.d.heads / a.d.kv_heads), kv_heads = (int)a.d.kv_heads;

	for (EACH_ROW(r, a.blocks)) {
		const int u = (int)(r % (a.d.batch * kv_heads)), batch = u / kv_heads, kv_head = u % kv_heads,
			  end = (kv_head + 1) * share, c0 = (int)(r / (a.d.batch * kv_heads)) * TILE;
		const queries first = step_queries(a, batch, kv_head, kv_head * share, 0);
		int head = kv_head * share, row = 0, now = 0;
		operand_fragments k, v;
		result_fragments dk = {}, dv = {};

		read_fragments<any>(k, key_rows(a, first), c0 + warp_row());
		read_fragments<any>(v, value_rows(a, first), c0 + warp_row());
		bool more = find_queries(a, batch, end, c0, &head, &row);
		__syncthreads();	/* other threads may still read the last steps */
		if (more)
			stage_queries<any>(step[now], a, step_queries(a, batch, kv_head, head, row));
		for (; more; now ^= 1) {
			wait_copies();
			__syncthreads();
			row += STEP;
			more = find_queries(a, batch, end, c0, &head, &row);
			if (more)
				stage_queries<any>(step[now ^ 1], a, step_queries(a, batch, kv_head, head, row));
			add_queries<any>(a, step[now], c0, k, v, dk, dv);
		}
		const float by_scale[2] = { (float)a.d.scale, (float)a.d.scale }, by_1[2] = { 1, 1 };
		if (a.p.out[1])
			put_fragments<any>(rows_of(a.p.out[1], a.d.k, batch, kv_head, a.d.keys, a.d.width),
					   c0 + warp_row(), dk, by_scale);
		if (a.p.out[2])
			put_fragments<any>(rows_of(a.p.out[2], a.d.v, batch, kv_head, a.d.keys, a.d.v_width),
					   c0 + warp_row(), dv, by_1);
	}
}
#endif
