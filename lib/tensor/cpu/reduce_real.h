/* Reductions of type T with accumulators of type A; included by reduce.c. row: n elements with a stride to
 * one value, in 16 partial results; strip: n adjacent results side by side, of rows `stride` apart. Four rows
 * at a time are read, because memory delivers more to four streams than to one; each result takes the rows in
 * their order. */
#define REDUCE_LANES 16

#ifdef T_IS_FLOAT
#define WRAP(x) (x)
#define LOWEST ((A)-INFINITY)
#define HIGHEST ((A)INFINITY)
#else
#define WRAP(x) ((A)(x))		/* wraps in uint64 */
#define LOWEST ((A)(T_LEAST))
#define HIGHEST ((A)((T)-1 < 1 ? (uint64_t)(T_MOST) : (uint64_t)(T)-1))
#endif
#ifdef T_IS_FLOAT
#define PLUS(a, v) ((a) + (v))
#define TIMES(a, v) ((a) * (v))
#else
#define PLUS(a, v) ((A)((uint64_t)(a) + (uint64_t)(v)))
#define TIMES(a, v) ((A)((uint64_t)(a) * (uint64_t)(v)))
#endif

#define DEFINE(name, init, combine, join) \
static A S(row_##name)(const T *x, int64_t n, int64_t stride, A acc) \
{ \
	A lane[REDUCE_LANES]; \
	int64_t i = 0; \
	for (int j = 0; j < REDUCE_LANES; j++) \
		lane[j] = init; \
	if (stride == 1) \
		for (; i + REDUCE_LANES <= n; i += REDUCE_LANES) \
			_Pragma("omp simd") \
			for (int j = 0; j < REDUCE_LANES; j++) { \
				const A v = x[i + j], a = lane[j]; \
				lane[j] = combine; \
			} \
	else \
		for (; i + REDUCE_LANES <= n; i += REDUCE_LANES) \
			for (int j = 0; j < REDUCE_LANES; j++) { \
				const A v = x[(i + j) * stride], a = lane[j]; \
				lane[j] = combine; \
			} \
	for (int j = 0; i + j < n; j++) { \
		const A v = x[(i + j) * stride], a = lane[j]; \
		lane[j] = combine; \
	} \
	for (int j = 0; j < REDUCE_LANES; j++) { \
		const A v = lane[j], a = acc; \
		acc = join; \
	} \
	return acc; \
} \
static A S(one_##name)(A a, A v) { return combine; } \
static void S(strip_##name)(const T *x, int64_t n, int64_t rows, int64_t stride, A *acc) \
{ \
	int64_t i = 0; \
	for (; i + 4 <= rows; i += 4, x += 4 * stride) \
		_Pragma("omp simd") \
		for (int64_t j = 0; j < n; j++) \
			acc[j] = S(one_##name)(S(one_##name)(S(one_##name)(S(one_##name)(acc[j], x[j]), \
									   x[j + stride]), \
							     x[j + 2 * stride]), \
					       x[j + 3 * stride]); \
	for (; i < rows; i++, x += stride) \
		_Pragma("omp simd") \
		for (int64_t j = 0; j < n; j++) \
			acc[j] = S(one_##name)(acc[j], x[j]); \
}
DEFINE(sum, 0, PLUS(a, v), PLUS(a, v))
DEFINE(sumsq, 0, PLUS(a, TIMES(v, v)), PLUS(a, v))
DEFINE(prod, 1, TIMES(a, v), TIMES(a, v))
DEFINE(max, LOWEST, (v > a || v != v) ? v : a, (v > a || v != v) ? v : a)
DEFINE(min, HIGHEST, (v < a || v != v) ? v : a, (v < a || v != v) ? v : a)

static void S(reduce_part)(const void *ctx, int part, int parts)
{
	static const struct {
		A (*row)(const T *, int64_t, int64_t, A);
		void (*strip)(const T *, int64_t, int64_t, int64_t, A *);
		A init;
	} fns[] = {
		[DLB_REDUCE_FN_SUM] = { S(row_sum), S(strip_sum), 0 },
		[DLB_REDUCE_FN_MEAN] = { S(row_sum), S(strip_sum), 0 },
		[DLB_REDUCE_FN_MAX] = { S(row_max), S(strip_max), LOWEST },
		[DLB_REDUCE_FN_MIN] = { S(row_min), S(strip_min), HIGHEST },
		[DLB_REDUCE_FN_PROD] = { S(row_prod), S(strip_prod), 1 },
		[DLB_REDUCE_FN_SUMSQ] = { S(row_sumsq), S(strip_sumsq), 0 },
	};
	const struct reduce_job *job = ctx;
	const struct reduce_kernel *r = job->r;
	const T *x = job->run->in[0];
	T *y = job->run->out[0];
	const struct dlb_nest *kept = &r->kept, *red = &r->reduced;
	int in_k = kept->n_dims - 1, in_r = red->n_dims - 1;
	int64_t n_k = in_k < 0 ? 1 : kept->dim[in_k], n_r = in_r < 0 ? 1 : red->dim[in_r];
	int64_t s_k = in_k < 0 ? 0 : kept->stride[0][in_k], s_r = in_r < 0 ? 0 : red->stride[0][in_r];
	int64_t s_y = in_k < 0 ? 0 : kept->stride[1][in_k];
	int64_t pos[DLB_MAX_DIMS] = { 0 }, at[DLB_NEST_OPERANDS] = { 0 };
	int64_t width = r->strips ? STRIP : 1;

	/* this part: kept iterations [o0, o1), and blocks [j0, j1) of `width` in the innermost loop */
	const int64_t outer = dlb_nest_count(kept, in_k), blocks = (n_k + width - 1) / width;
	const int64_t o0 = r->by_block ? 0 : cpu_cut(outer, part, parts),
		      o1 = r->by_block ? outer : cpu_cut(outer, part + 1, parts);
	const int64_t j0 = r->by_block ? cpu_cut(blocks, part, parts) * width : 0;
	const int64_t j1 = r->by_block && part + 1 < parts ? cpu_cut(blocks, part + 1, parts) * width : n_k;

	dlb_nest_seek(kept, in_k, o0, pos, at);
	for (int64_t o = o0; o < o1; o++, dlb_nest_step(kept, in_k, pos, at))
	    for (int64_t j = j0; j < j1; j += width) {
		int64_t n = j1 - j < width ? j1 - j : width;
		/* x may be NULL if there are no elements */
		const T *from = r->count ? x + at[0] + j * s_k : x;
		int64_t pos_r[DLB_MAX_DIMS] = { 0 }, at_r[DLB_NEST_OPERANDS] = { 0 };
		A acc[STRIP];

		for (int64_t i = 0; i < n; i++)
			acc[i] = fns[r->fn].init;
		if (r->count)
			do {
				if (r->strips)
					fns[r->fn].strip(from + at_r[0], n, n_r, s_r, acc);
				else
					acc[0] = fns[r->fn].row(from + at_r[0], n_r, s_r, acc[0]);
			} while (dlb_nest_step(red, in_r, pos_r, at_r));
		for (int64_t i = 0; i < n; i++) {
			if (r->fn == DLB_REDUCE_FN_MEAN)
#ifdef T_IS_FLOAT
				acc[i] /= (A)r->count;
#else
				acc[i] = r->count ? acc[i] / (A)r->count : 0;
#endif
			y[at[1] + (j + i) * s_y] = (T)acc[i];
		}
	}
}
#undef DEFINE
#undef WRAP
#undef LOWEST
#undef HIGHEST
#undef PLUS
#undef TIMES
#undef REDUCE_LANES
