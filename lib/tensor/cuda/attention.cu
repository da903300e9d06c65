/* Attention and its gradient in tiles of scores that stay in shared memory (T. Dao et al., FlashAttention,
 * 2022).
 *   s = scale q k^T, p = softmax(cap(s) + mask), y = p v
 *   dv = p^T dy, dp = dy v^T, g = p (dp - sum p dp), dq = scale g slope k, dk = scale (g slope)^T q
 * Forward, a block keeps the rows' maxima, sums and results over all tiles of keys that its queries see.
 * Outputs of probabilities need a second pass over the tiles. Backward, each result is summed by one block
 * in order, so nothing adds atomically: _mean computes sum p dp, _dq loops over keys, _dkv over the queries
 * of all heads that share the keys. p is read, or computed again from the rows' log sums. Results wider
 * than a block's columns are computed in parts, each of which computes the scores again. */
#include "tensor/cuda/attention.cuh"

/* A block is a square of threads. `multiply` stages DEPTH products at a time; PAD avoids bank conflicts of
 * threads that write a stage, and keeps rows aligned. */
enum { SIDE = 16, DEPTH = 16, PAD = 4 };
/* Loops over a thread's share are unrolled, so that its arrays are registers. */
#define EACH_CELL(M, N) \
	UNROLL \
	for (int i = 0; i < M / SIDE; i++) \
		UNROLL \
	for (int j = 0; j < N / SIDE; j++)

/* Elements of `room` for products of S rows with up to N columns. */
template <int S, int N> constexpr int ROOM = DEPTH * (S + N + 2 * PAD);

/* The ith of this thread's M / SIDE rows (or columns) of M. A thread has groups of up to 4 neighbours; its
 * groups lie SIDE group sizes apart. t: the thread's position along that side of the square. */
template <int M> static __device__ inline int place(int t, int i)
{
	constexpr int near = M / SIDE < 4 ? M / SIDE : 4;

	return i / near * (SIDE * near) + t * near + i % near;
}
template <int M> static __device__ inline int row_place(int i)
{
	return place<M>((int)threadIdx.x / SIDE, i);
}
template <int N> static __device__ inline int column_place(int j)
{
	return place<N>((int)threadIdx.x % SIDE, j);
}

/* sum[i][j] += sum over k < depth of a(row, k) b(column, k) for this thread's rows and columns of M x N.
 * a_by_k, b_by_k: neighbouring k are neighbours in memory. Begins with a barrier; `room` is shared by the
 * block. */
template <int M, int N, bool a_by_k, bool b_by_k, typename T, typename A, typename B>
static __device__ inline void multiply(T (&sum)[M / SIDE][N / SIDE], T *room, int64_t depth, A a, B b)
{
	T *as = room, *bs = room + DEPTH * (M + PAD);

	for (int64_t k0 = 0; k0 < depth; k0 += DEPTH) {
		__syncthreads();
		for (int i = (int)threadIdx.x; i < M * DEPTH; i += CUDA_THREADS) {
			const int row = a_by_k ? i / DEPTH : i % M, k = a_by_k ? i % DEPTH : i / M;

			as[k * (M + PAD) + row] = k0 + k < depth ? a(row, k0 + k) : 0;
		}
		for (int i = (int)threadIdx.x; i < N * DEPTH; i += CUDA_THREADS) {
			const int column = b_by_k ? i / DEPTH : i % N, k = b_by_k ? i % DEPTH : i / N;

			bs[k * (N + PAD) + column] = k0 + k < depth ? b(column, k0 + k) : 0;
		}
		__syncthreads();
		UNROLL
		for (int k = 0; k < DEPTH; k++) {
			T x[M / SIDE], y[N / SIDE];

			UNROLL
			for (int i = 0; i < M / SIDE; i++)
				x[i] = as[k * (M + PAD) + row_place<M>(i)];
			UNROLL
			for (int j = 0; j < N / SIDE; j++)
				y[j] = bs[k * (N + PAD) + column_place<N>(j)];
			EACH_CELL(M, N)
			sum[i][j] += x[i] * y[j];
		}
	}
}

/* ---- operands ---- */
/* The queries of block r; blocks run over tiles of queries. */
template <int S>
static __device__ inline queries queries_of(const struct cuda_attention &a, int64_t r, int columns)
{
	queries x;

	x.part = r % a.parts;
	r /= a.parts;
	x.row = r % a.row_tiles * S;
	r /= a.row_tiles;
	x.head = r % a.d.heads;
	x.batch = r / a.d.heads;
	x.kv_head = x.head / (a.d.heads / a.d.kv_heads);
	x.n = a.d.rows - x.row < S ? a.d.rows - x.row : S;
	x.column = x.part * columns;
	return x;
}

/* Fills seen[] for the tile's queries; rows behind the last see nothing. Barriers before and after. */
template <int S>
static __device__ inline void find_spans(const struct cuda_attention &a, const queries &x, span *seen)
{
	__syncthreads();
	for (int i = (int)threadIdx.x; i < S; i += CUDA_THREADS)
		seen[i] = i < x.n ? span_of(a, x.batch, x.row + i) : span{ 0, 0 };
	__syncthreads();
}

/* ---- scores ---- */
/* s += q k^T for keys from c0 on; without scale. */
template <typename T, int S>
static __device__ inline void add_scores(const struct cuda_attention &a, const queries &x, int64_t c0,
					 T *room, T (&s)[S / SIDE][S / SIDE])
{
	const T *q = head_of<const T>(a.p.in[0], a.d.q, x.batch, x.head) + x.row * a.d.q[2];
	const T *k = head_of<const T>(a.p.in[1], a.d.k, x.batch, x.kv_head) + c0 * a.d.k[2];
	const int64_t n_keys = a.d.keys - c0;

	multiply<S, S, true, true>(
		s, room, a.d.width, [&](int row, int64_t i) { return row < x.n ? q[row * a.d.q[2] + i] : 0; },
		[&](int key, int64_t i) { return key < n_keys ? k[key * a.d.k[2] + i] : 0; });
}

/* dp += dy v^T for keys from c0 on. */
template <typename T, int S>
static __device__ inline void add_slopes(const struct cuda_attention &a, const queries &x, int64_t c0,
					 T *room, T (&dp)[S / SIDE][S / SIDE])
{
	const T *dy = head_of<const T>(a.p.in[5], a.d.y, x.batch, x.head) + x.row * a.d.y[2];
	const T *v = head_of<const T>(a.p.in[2], a.d.v, x.batch, x.kv_head) + c0 * a.d.v[2];
	const int64_t n_keys = a.d.keys - c0;

	multiply<S, S, true, true>(
		dp, room, a.d.v_width,
		[&](int row, int64_t i) { return row < x.n ? dy[row * a.d.y[2] + i] : 0; },
		[&](int key, int64_t i) { return key < n_keys ? v[key * a.d.v[2] + i] : 0; });
}

/* Writes v for one query and key to output `scores` if `stage` is the requested one. */
template <typename T>
static __device__ inline void tell(const struct cuda_attention &a, const queries &x, enum dlb_scores stage,
				   int row, int64_t key, T v)
{
	if (a.p.out[2] && x.part == 0 && a.d.scores == stage)
		((T *)a.p.out[2])[row_index(a, x, row) * a.d.keys + key] = v;
}

/* Turns s, without scale, into the tile's scores after cap and mask; -inf beyond the operands. */
template <typename T, int S>
static __device__ inline void finish_scores(const struct cuda_attention &a, const queries &x,
					    const span *seen, int64_t c0, bool tells,
					    T (&s)[S / SIDE][S / SIDE])
{
	EACH_CELL(S, S)
	{
		const int row = row_place<S>(i);
		const int64_t key = c0 + column_place<S>(j);
		T v = s[i][j] * (T)a.d.scale, slope;

		s[i][j] = (T)-INFINITY;
		if (row >= x.n || key >= a.d.keys)
			continue;
		if (tells)
			tell(a, x, DLB_SCORES_RAW, row, key, v);
		v = capped(a, v, &slope);
		if (tells)
			tell(a, x, DLB_SCORES_CAPPED, row, key, v);
		s[i][j] = masked(a, x, row, seen[row], key, v);
		if (tells)
			tell(a, x, DLB_SCORES_MASKED, row, key, s[i][j]);
	}
}

/* ---- forward ---- */
/* For each row of a tile: the largest score, the sum of exp(score - most), and `grow`, the factor by which
 * the maximum of the last tile of keys rescales earlier sums. */
template <typename T, int S> struct softmax_rows {
	T most[S], grow[S];
	double total[S];
};

/* Adds scores p to the rows' maxima and sums, and replaces them by exp(p - most). */
template <typename T, int S>
static __device__ inline void take_scores(softmax_rows<T, S> &rows, T (*p)[S + 1])
{
	constexpr int LANES = CUDA_THREADS / S, EACH_LANE = S / LANES;
	__shared__ T most_of[S][LANES], sum_of[S][LANES];
	const int row = (int)threadIdx.x / LANES, lane = (int)threadIdx.x % LANES;
	const T old = rows.most[row];
	T now = old, m = (T)-INFINITY, sum = 0;

	for (int c = lane * EACH_LANE; c < (lane + 1) * EACH_LANE; c++)
		m = larger()(m, p[row][c]);
	most_of[row][lane] = m;
	__syncthreads();
	for (int i = 0; i < LANES; i++)
		now = larger()(now, most_of[row][i]);
	for (int c = lane * EACH_LANE; c < (lane + 1) * EACH_LANE; c++) {
		const T e = now == (T)-INFINITY ? 0 : F(exp)(p[row][c] - now);

		p[row][c] = e;
		sum += e;
	}
	sum_of[row][lane] = sum;
	__syncthreads();
	if (lane == 0) {
		const T grow = old == (T)-INFINITY ? 0 : F(exp)(old - now);
		double all = 0;

		for (int i = 0; i < LANES; i++)
			all += sum_of[row][i];
		rows.most[row] = now;
		rows.grow[row] = grow;
		rows.total[row] = rows.total[row] * grow + all;
	}
	__syncthreads();
}

/* Writes the outputs of probabilities: of a tile's queries for keys [lo, hi). */
template <typename T, int S>
static __device__ inline void put_probabilities(const struct cuda_attention &a, const queries &x,
						const span *seen, span keys, const softmax_rows<T, S> &rows,
						T *room)
{
	for (int64_t c0 = keys.lo; c0 < keys.hi; c0 += S) {
		T s[S / SIDE][S / SIDE] = {};

		add_scores<T, S>(a, x, c0, room, s);
		finish_scores<T, S>(a, x, seen, c0, false, s);
		EACH_CELL(S, S)
		{
			const int row = row_place<S>(i);
			const int64_t key = c0 + column_place<S>(j);

			if (row >= x.n || key >= a.d.keys)
				continue;
			const bool none = rows.most[row] == (T)-INFINITY;
			const T p = none ? 0 : F(exp)(s[i][j] - rows.most[row]) * (T)(1 / rows.total[row]);
			tell(a, x, DLB_SCORES_SOFTMAX, row, key, p);
			if (a.p.out[1] && a.d.whole)
				((T *)a.p.out[1])[row_index(a, x, row) * a.d.keys + key] = p;
		}
	}
}

/* Rescales y to the new maxima, then adds the tile's p v for values from c0 on. */
template <typename T, int S, int N>
static __device__ inline void add_values(const struct cuda_attention &a, const queries &x, int64_t c0,
					 const softmax_rows<T, S> &rows, T (*p)[S + 1], T *room,
					 T (&y)[S / SIDE][N / SIDE])
{
	const T *v = head_of<const T>(a.p.in[2], a.d.v, x.batch, x.kv_head) + c0 * a.d.v[2] + x.column;
	const int64_t n_keys = a.d.keys - c0 < S ? a.d.keys - c0 : S, n = a.d.v_width - x.column;

	EACH_CELL(S, N)
	y[i][j] *= rows.grow[row_place<S>(i)];
	multiply<S, N, true, false>(
		y, room, n_keys, [&](int row, int64_t key) { return p[row][key]; },
		[&](int c, int64_t key) { return c < n ? v[key * a.d.v[2] + c] : 0; });
}

/* Writes the results and log sums of a tile of queries. */
template <typename T, int S, int N>
static __device__ inline void put_rows(const struct cuda_attention &a, const queries &x,
				       const softmax_rows<T, S> &rows, T (&y)[S / SIDE][N / SIDE])
{
	T *to = head_of<T>(a.p.out[0], a.d.y, x.batch, x.head) + x.row * a.d.y[2] + x.column;

	UNROLL
	for (int i = 0; i < S / SIDE; i++) {
		const int row = row_place<S>(i);
		const T by = rows.most[row] == (T)-INFINITY ? 0 : (T)(1 / rows.total[row]);

		UNROLL
		for (int j = 0; j < N / SIDE; j++) {
			const int c = column_place<N>(j);

			if (row < x.n && c < a.d.v_width - x.column)
				to[row * a.d.y[2] + c] = y[i][j] * by;
		}
	}
	if (!a.p.out[1] || a.d.whole || x.part)
		return;
	for (int row = (int)threadIdx.x; row < x.n; row += CUDA_THREADS)
		((T *)a.p.out[1])[row_index(a, x, row)] = rows.most[row] == (T)-INFINITY ?
								  (T)INFINITY :
								  rows.most[row] + (T)log(rows.total[row]);
}

template <typename T, int S, int N> static __device__ inline void forward(const struct cuda_attention &a)
{
	alignas(16) __shared__ T room[ROOM<S, N>];
	__shared__ T p[S][S + 1];
	__shared__ span seen[S];
	__shared__ softmax_rows<T, S> rows;

	for (EACH_ROW(r, a.blocks)) {
		const queries x = queries_of<S>(a, r, N);
		const bool tells = a.p.out[2] && x.part == 0;
		const bool whole = (a.p.out[1] && a.d.whole) ||
				   (a.p.out[2] && a.d.scores == DLB_SCORES_SOFTMAX);
		span keys = seen_by(a, x.batch, x.row, x.n);
		T y[S / SIDE][N / SIDE] = {};

		if (tells) /* scores of all keys are an output */
			keys = { 0, a.d.keys };
		find_spans<S>(a, x, seen);
		for (int i = (int)threadIdx.x; i < S; i += CUDA_THREADS) {
			rows.most[i] = (T)-INFINITY;
			rows.total[i] = 0;
		}
		for (int64_t c0 = keys.lo; c0 < keys.hi; c0 += S) {
			T s[S / SIDE][S / SIDE] = {};

			add_scores<T, S>(a, x, c0, room, s);
			finish_scores<T, S>(a, x, seen, c0, tells, s);
			EACH_CELL(S, S)
			p[row_place<S>(i)][column_place<S>(j)] = s[i][j];
			__syncthreads();
			take_scores<T, S>(rows, p);
			add_values<T, S, N>(a, x, c0, rows, p, room, y);
		}
		__syncthreads();
		put_rows<T, S, N>(a, x, rows, y);
		if (whole && x.part == 0)
			put_probabilities<T, S>(a, x, seen, keys, rows, room);
	}
}

/* ---- backward ---- */
/* Sets p to the probabilities of the tile's queries for keys from c0 on, 0 where not seen, and slope to the
 * derivative of the cap. */
template <typename T, int S>
static __device__ inline void probabilities(const struct cuda_attention &a, const queries &x,
					    const span *seen, int64_t c0, T *room, T (&p)[S / SIDE][S / SIDE],
					    T (&slope)[S / SIDE][S / SIDE])
{
	const T *saved = (const T *)a.p.in[6];

	EACH_CELL(S, S)
	p[i][j] = 0;
	if (!a.d.whole || a.d.softcap > 0)
		add_scores<T, S>(a, x, c0, room, p);
	EACH_CELL(S, S)
	{
		const int row = row_place<S>(i);
		const int64_t key = c0 + column_place<S>(j);
		const T v = capped(a, p[i][j] * (T)a.d.scale, &slope[i][j]);

		p[i][j] = 0;
		if (key < seen[row].lo || key >= seen[row].hi)
			continue;
		const int64_t at = row_index(a, x, row);
		p[i][j] = a.d.whole ? saved[at * a.d.keys + key] :
				      F(exp)(masked(a, x, row, seen[row], key, v) - saved[at]);
	}
}

template <typename T, int S> static __device__ inline void mean(const struct cuda_attention &a)
{
	alignas(16) __shared__ T room[ROOM<S, S>];
	__shared__ span seen[S];
	__shared__ double part[S][SIDE + 1];

	for (EACH_ROW(r, a.blocks)) {
		const queries x = queries_of<S>(a, r, 0);
		const span keys = seen_by(a, x.batch, x.row, x.n);
		double sum[S / SIDE] = {};

		find_spans<S>(a, x, seen);
		for (int64_t c0 = keys.lo; c0 < keys.hi; c0 += S) {
			T p[S / SIDE][S / SIDE], slope[S / SIDE][S / SIDE], dp[S / SIDE][S / SIDE] = {};

			probabilities<T, S>(a, x, seen, c0, room, p, slope);
			add_slopes<T, S>(a, x, c0, room, dp);
			EACH_CELL(S, S)
			sum[i] += (double)p[i][j] * dp[i][j];
		}
		UNROLL
		for (int i = 0; i < S / SIDE; i++)
			part[row_place<S>(i)][threadIdx.x % SIDE] = sum[i];
		__syncthreads();
		for (int row = (int)threadIdx.x; row < x.n; row += CUDA_THREADS) {
			double all = 0;

			for (int i = 0; i < SIDE; i++)
				all += part[row][i];
			((T *)a.p.scratch)[row_index(a, x, row)] = (T)all;
		}
	}
}

/* Replaces p by the gradient of the scores before the cap. If dmask is not NULL, also writes the gradient of
 * the mask, which is that of the scores after the cap. */
template <typename T, int S>
static __device__ inline void score_gradient(const struct cuda_attention &a, const queries &x, int64_t c0,
					     T *room, T *dmask, T (&p)[S / SIDE][S / SIDE],
					     const T (&slope)[S / SIDE][S / SIDE])
{
	T dp[S / SIDE][S / SIDE] = {};

	add_slopes<T, S>(a, x, c0, room, dp);
	EACH_CELL(S, S)
	{
		const int row = row_place<S>(i);
		const int64_t key = c0 + column_place<S>(j);

		if (row >= x.n)
			continue;
		const int64_t at = row_index(a, x, row);
		p[i][j] *= dp[i][j] - ((const T *)a.p.scratch)[at];
		if (dmask && key < a.d.mask_keys)
			dmask[at * a.d.mask_keys + key] = p[i][j];
		p[i][j] *= slope[i][j];
	}
}

template <typename T, int S, int N> static __device__ inline void dq(const struct cuda_attention &a)
{
	alignas(16) __shared__ T room[ROOM<S, N>];
	__shared__ T g[S][S + 1];
	__shared__ span seen[S];

	for (EACH_ROW(r, a.blocks)) {
		const queries x = queries_of<S>(a, r, N);
		const int64_t n = a.d.width - x.column;
		T *dmask = x.part == 0 ? (T *)a.p.out[3] : NULL;
		span keys = seen_by(a, x.batch, x.row, x.n);
		T sum[S / SIDE][N / SIDE] = {};

		if (dmask) /* also the gradients of keys that are not seen, which are 0 */
			keys = { 0, keys.hi > a.d.mask_keys ? keys.hi : a.d.mask_keys };
		find_spans<S>(a, x, seen);
		for (int64_t c0 = keys.lo; c0 < keys.hi; c0 += S) {
			const T *k = head_of<const T>(a.p.in[1], a.d.k, x.batch, x.kv_head) + c0 * a.d.k[2] +
				     x.column;
			const int64_t n_keys = a.d.keys - c0 < S ? a.d.keys - c0 : S;
			T p[S / SIDE][S / SIDE], slope[S / SIDE][S / SIDE];

			probabilities<T, S>(a, x, seen, c0, room, p, slope);
			score_gradient<T, S>(a, x, c0, room, dmask, p, slope);
			if (!a.p.out[0])
				continue;
			EACH_CELL(S, S)
			g[row_place<S>(i)][column_place<S>(j)] = p[i][j];
			multiply<S, N, true, false>(
				sum, room, n_keys, [&](int row, int64_t key) { return g[row][key]; },
				[&](int c, int64_t key) { return c < n ? k[key * a.d.k[2] + c] : 0; });
		}
		if (!a.p.out[0])
			continue;
		T *to = head_of<T>(a.p.out[0], a.d.q, x.batch, x.head) + x.row * a.d.q[2] + x.column;
		EACH_CELL(S, N)
		if (row_place<S>(i) < x.n && column_place<N>(j) < n)
			to[row_place<S>(i) * a.d.q[2] + column_place<N>(j)] = sum[i][j] * (T)a.d.scale;
	}
}

/* Adds to sum, for keys from c0 on, the columns of p^T dy (is_v) or g^T q of one tile of queries. */
template <typename T, int S, int N>
static __device__ inline void add_queries(const struct cuda_attention &a, const queries &x, const span *seen,
					  int64_t c0, bool is_v, T *room, T (*g)[S + 1],
					  T (&sum)[S / SIDE][N / SIDE])
{
	const int64_t *stride = is_v ? a.d.y : a.d.q, n = (is_v ? a.d.v_width : a.d.width) - x.column;
	const T *from = head_of<const T>(a.p.in[is_v ? 5 : 0], stride, x.batch, x.head) + x.row * stride[2] +
			x.column;
	T p[S / SIDE][S / SIDE], slope[S / SIDE][S / SIDE];

	probabilities<T, S>(a, x, seen, c0, room, p, slope);
	if (!is_v)
		score_gradient<T, S>(a, x, c0, room, (T *)NULL, p, slope);
	EACH_CELL(S, S)
	g[row_place<S>(i)][column_place<S>(j)] = p[i][j];
	multiply<S, N, false, false>(
		sum, room, x.n, [&](int key, int64_t row) { return g[row][key]; },
		[&](int c, int64_t row) { return c < n ? from[row * stride[2] + c] : 0; });
}

/* A block computes, for a tile of keys, a part of the columns of dv or of dk. */
template <typename T, int S, int N> static __device__ inline void dkv(const struct cuda_attention &a)
{
	alignas(16) __shared__ T room[ROOM<S, N>];
	__shared__ T g[S][S + 1];
	__shared__ span seen[S];
	const int64_t share = a.d.heads / a.d.kv_heads;

	for (EACH_ROW(r, a.blocks)) {
		const int64_t part = r % a.parts, c0 = r / a.parts % a.key_tiles * S,
			      u = r / a.parts / a.key_tiles;
		const bool is_v = part < a.v_parts;
		queries x = { u / a.d.kv_heads,
			      0,
			      u % a.d.kv_heads,
			      0,
			      0,
			      part,
			      (is_v ? part : part - a.v_parts) * N };
		T sum[S / SIDE][N / SIDE] = {};

		for (x.head = x.kv_head * share; x.head < (x.kv_head + 1) * share; x.head++)
			for (x.row = 0; x.row < a.d.rows; x.row += S) {
				x.n = a.d.rows - x.row < S ? a.d.rows - x.row : S;
				const span keys = seen_by(a, x.batch, x.row, x.n);

				if (keys.hi <= c0 || keys.lo >= c0 + S)
					continue;
				find_spans<S>(a, x, seen);
				add_queries<T, S, N>(a, x, seen, c0, is_v, room, g, sum);
			}
		const int64_t *stride = is_v ? a.d.v : a.d.k, n = (is_v ? a.d.v_width : a.d.width) - x.column;
		const T scale = is_v ? 1 : (T)a.d.scale;
		T *to = head_of<T>(a.p.out[is_v ? 2 : 1], stride, x.batch, x.kv_head) + c0 * stride[2] +
			x.column;
		EACH_CELL(S, N)
		if (c0 + row_place<S>(i) < a.d.keys && column_place<N>(j) < n)
			to[row_place<S>(i) * stride[2] + column_place<N>(j)] = sum[i][j] * scale;
	}
}

#define ATTENTIONS(T, tile, columns, name) \
	BLOCK_KERNEL(attention_forward_##name, cuda_attention) { forward<T, tile, columns>(a); } \
	BLOCK_KERNEL(attention_dq_##name, cuda_attention) { dq<T, tile, columns>(a); } \
	BLOCK_KERNEL(attention_dkv_##name, cuda_attention) { dkv<T, tile, columns>(a); }
ATTENTIONS(float, ATTENTION_TILE_F32, ATTENTION_COLUMNS, f32)
ATTENTIONS(float, ATTENTION_TILE_F32, ATTENTION_WIDE_COLUMNS, wide_f32)
ATTENTIONS(double, ATTENTION_TILE_F64, ATTENTION_COLUMNS, f64)
BLOCK_KERNEL(attention_mean_f32, cuda_attention) { mean<float, ATTENTION_TILE_F32>(a); }
BLOCK_KERNEL(attention_mean_f64, cuda_attention) { mean<double, ATTENTION_TILE_F64>(a); }
