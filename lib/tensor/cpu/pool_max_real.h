/* Max pooling of type T with positions of type POS; included by pool.c. */

/* One window, channels [0, n) with n <= BLOCK. NaN wins; the first of equals wins. */
static inline void S(P(max_window))(const struct pool_kernel *p, const T *x, const int64_t o[3], T *y,
				    POS *pos, int64_t n)
{
	const struct kernel_span d = p->span[0][o[0]], h = p->span[1][o[1]], w = p->span[2][o[2]];
	bool none = d.lo >= d.hi || h.lo >= h.hi || w.lo >= w.hi;	/* only padding */
	T most[BLOCK];
	int32_t at[BLOCK];

	for (int64_t c = 0; c < n; c++) {
		most[c] = (T)-INFINITY;
		at[c] = none ? 0 : (int32_t)((d.lo * p->size[1] + h.lo) * p->size[2] + w.lo);
	}
	for (int64_t kd = d.lo; kd < d.hi; kd++)
		for (int64_t kh = h.lo; kh < h.hi; kh++)
			for (int64_t kw = w.lo; kw < w.hi; kw++) {
				const T *v = x + (o[0] * p->step[0] - p->pad[0] + kd * p->dil[0]) * p->xs[0] +
					(o[1] * p->step[1] - p->pad[1] + kh * p->dil[1]) * p->xs[1] +
					(o[2] * p->step[2] - p->pad[2] + kw * p->dil[2]) * p->xs[2];
				int32_t here = (int32_t)((kd * p->size[1] + kh) * p->size[2] + kw);

#pragma omp simd
				for (int64_t c = 0; c < n; c++) {
					bool better = v[c] > most[c] || v[c] != v[c];

					most[c] = better ? v[c] : most[c];
					at[c] = better ? here : at[c];
				}
			}
	for (int64_t c = 0; c < n; c++)
		y[c] = most[c];
	if (pos)
		for (int64_t c = 0; c < n; c++)
			pos[c] = (POS)at[c];
}

/* As above for n elements of an output row; x: the image; from: the input elements under the windows' first
 * column, from the row's start. Works in groups of eight, the last with unused elements (`from` is padded): a
 * scalar remainder loop would have unpredictable branches, because which element is largest is random. */
static inline void S(P(max_row))(const struct pool_kernel *p, const T *x, const int32_t *from, int64_t od,
				 int64_t oh, T *y, POS *pos, int64_t n)
{
	const struct kernel_span d = p->span[0][od], h = p->span[1][oh];
	bool none = d.lo >= d.hi || h.lo >= h.hi;
	T most[BLOCK];
	int32_t at[BLOCK];

	for (int64_t c = 0; c < BLOCK; c++) {
		most[c] = (T)-INFINITY;
		at[c] = none ? 0 : (int32_t)((d.lo * p->size[1] + h.lo) * p->size[2]);
	}
	for (int64_t kd = d.lo; kd < d.hi; kd++)
		for (int64_t kh = h.lo; kh < h.hi; kh++)
			for (int64_t kw = 0; kw < p->size[2]; kw++) {
				const T *row = x + (od * p->step[0] - p->pad[0] + kd * p->dil[0]) * p->xs[0] +
					       (oh * p->step[1] - p->pad[1] + kh * p->dil[1]) * p->xs[1] +
					       kw * p->dil[2] * p->xs[2];
				int32_t here = (int32_t)((kd * p->size[1] + kh) * p->size[2] + kw);

				for (int64_t i = 0; i < n; i += EIGHT) {
#pragma omp simd
					for (int64_t c = i; c < i + EIGHT; c++) {
						T v = row[from[c]];
						bool better = v > most[c] || v != v;

						most[c] = better ? v : most[c];
						at[c] = better ? here : at[c];
					}
				}
			}
	for (int64_t c = 0; c < n; c++)
		y[c] = most[c];
	if (pos)
		for (int64_t c = 0; c < n; c++)
			pos[c] = (POS)at[c];
}

static void S(P(max))(const struct pool_kernel *p, const struct dlb_run *r, int64_t i0, int64_t i1,
		      void *scratch)
{
	POS *pos = r->out[1];

	(void)scratch;
	for (int64_t i = i0; i < i1; i++) {
		const T *x = (const T *)r->in[0] + i / p->c_outer * p->xn + i % p->c_outer * p->xc;
		int64_t at = i / p->c_outer * p->yn + i % p->c_outer * p->yc, o[3];

		for (o[0] = 0; o[0] < p->out[0]; o[0]++)
			for (o[1] = 0; o[1] < p->out[1]; o[1]++)
				for (o[2] = 0; o[2] < p->out[2]; o[2]++) {
					int64_t y = at + o[0] * p->ys[0] + o[1] * p->ys[1] + o[2] * p->ys[2];

					for (int64_t c = 0; c < p->c_inner; c += BLOCK)
						S(P(max_window))
						(p, x + c, o, (T *)r->out[0] + y + c,
						 pos ? pos + y + c : NULL,
						 p->c_inner - c < BLOCK ? p->c_inner - c : BLOCK);
				}
	}
}

/* Sixteen adjacent channels as one vector (an extension of gcc and clang). */
typedef T S(P(lanes)) __attribute__((vector_size(16 * sizeof(T))));
typedef T_INT S(P(mask)) __attribute__((vector_size(16 * sizeof(T))));

/* to = (first) or += the gradients of the windows, in order. */
static inline void S(P(add_meets))(const T *dy, const POS *pos, const struct meet *m, int n, T *to,
				   int64_t channels, bool first)
{
	int64_t c = 0;

	for (; c + 16 <= channels; c += 16) {
		S(P(lanes)) sum = { 0 }, g;

		if (!first)
			memcpy(&sum, to + c, sizeof sum);
		for (int i = 0; i < n; i++) {
			sixteen at;

			memcpy(&g, dy + m[i].y + c, sizeof g);
			P(load_16)(pos + m[i].y + c, &at);
			sum += (S(P(lanes)))((S(P(mask)))g &
					     (__builtin_convertvector(at, S(P(mask))) == (T_INT)m[i].here));
		}
		memcpy(to + c, &sum, sizeof sum);
	}
	for (; c < channels; c++) {
		T sum = first ? 0 : to[c];

		for (int i = 0; i < n; i++)
			sum += pos[m[i].y + c] == m[i].here ? dy[m[i].y + c] : 0;
		to[c] = sum;
	}
}

static void S(P(max_grad))(const struct pool_kernel *p, const struct dlb_run *r, int64_t i0, int64_t i1,
			   void *scratch)
{
	(void)scratch;
	for (int64_t i = i0; i < i1; i++) {
		int64_t at = i / p->c_outer * p->yn + i % p->c_outer * p->yc, x[3];
		const T *dy = (const T *)r->in[0] + at;
		const POS *pos = (const POS *)r->in[1] + at;
		T *dx = (T *)r->out[0] + i / p->c_outer * p->xn + i % p->c_outer * p->xc;

		for (x[0] = 0; x[0] < p->in[0]; x[0]++)
			for (x[1] = 0; x[1] < p->in[1]; x[1]++)
				for (x[2] = 0; x[2] < p->in[2]; x[2]++) {
					T *to = dx + x[0] * p->xs[0] + x[1] * p->xs[1] + x[2] * p->xs[2];
					struct meet m[MEETS];
					bool first = true;
					int n = 0;

					for (int64_t a = p->first[0][x[0]]; a < p->first[0][x[0] + 1]; a++)
						for (int64_t b = p->first[1][x[1]]; b < p->first[1][x[1] + 1];
						     b++)
							for (int64_t e = p->first[2][x[2]];
							     e < p->first[2][x[2] + 1]; e++) {
								const struct pool_pair u = p->pair[0][a],
										       v = p->pair[1][b],
										       w = p->pair[2][e];

								if (n == MEETS) {
									S(P(add_meets))
									(dy, pos, m, n, to, p->c_inner,
									 first);
									first = false;
									n = 0;
								}
								m[n++] = (struct meet){
									u.o * p->ys[0] + v.o * p->ys[1] +
										w.o * p->ys[2],
									(int32_t)((u.k * p->size[1] + v.k) *
											  p->size[2] +
										  w.k)
								};
							}
					S(P(add_meets))(dy, pos, m, n, to, p->c_inner, first);
				}
	}
}

/* ---- by rows: few channels ---- */
static void S(P(max_rows))(const struct pool_kernel *p, const struct dlb_run *r, int64_t i0, int64_t i1,
			   void *scratch)
{
	POS *pos = r->out[1];
	int64_t whole = (p->whole_hi - p->whole_lo) * p->c_inner;

	(void)scratch;
	for (int64_t i = i0; i < i1; i++) {
		const T *x = (const T *)r->in[0] + i / p->c_outer * p->xn + i % p->c_outer * p->xc;
		int64_t at = i / p->c_outer * p->yn + i % p->c_outer * p->yc, o[3];

		for (o[0] = 0; o[0] < p->out[0]; o[0]++)
			for (o[1] = 0; o[1] < p->out[1]; o[1]++) {
				int64_t row = at + o[0] * p->ys[0] + o[1] * p->ys[1],
					y = row + p->whole_lo * p->c_inner;

				for (o[2] = 0; o[2] < p->out[2]; o[2]++) {
					int64_t edge = row + o[2] * p->c_inner;

					if (o[2] == p->whole_lo && p->whole_hi > p->whole_lo)
						o[2] = p->whole_hi - 1;
					else
						S(P(max_window))
						(p, x, o, (T *)r->out[0] + edge, pos ? pos + edge : NULL,
						 p->c_inner);
				}
				for (int64_t j = 0; j < whole; j += BLOCK)
					S(P(max_row))
					(p, x, p->from + j, o[0], o[1], (T *)r->out[0] + y + j,
					 pos ? pos + y + j : NULL, whole - j < BLOCK ? whole - j : BLOCK);
			}
	}
}

static void S(P(max_grad_rows))(const struct pool_kernel *p, const struct dlb_run *r, int64_t i0, int64_t i1,
				void *scratch)
{
	int32_t *wide = scratch;			/* positions of a row of outputs */

	for (int64_t i = i0; i < i1; i++) {
		int64_t at = i / p->c_outer * p->yn + i % p->c_outer * p->yc, x[2];
		T *dx = (T *)r->out[0] + i / p->c_outer * p->xn + i % p->c_outer * p->xc;

		for (x[0] = 0; x[0] < p->in[0]; x[0]++)
			for (x[1] = 0; x[1] < p->in[1]; x[1]++) {
				T *to = dx + x[0] * p->xs[0] + x[1] * p->xs[1];

				for (int64_t j = 0; j < p->row; j++)
					to[j] = 0;
				for (int64_t a = p->first[0][x[0]]; a < p->first[0][x[0] + 1]; a++)
					for (int64_t b = p->first[1][x[1]]; b < p->first[1][x[1] + 1]; b++) {
						const struct pool_pair u = p->pair[0][a], v = p->pair[1][b];
						int64_t y = at + u.o * p->ys[0] + v.o * p->ys[1];
						const T *dy = (const T *)r->in[0] + y;
						const POS *pos = (const POS *)r->in[1] + y;
						int32_t first = (int32_t)((u.k * p->size[1] + v.k) *
									  p->size[2]);

						for (int64_t j = 0; j < p->out[2] * p->c_inner; j++)
							wide[j] = (int32_t)pos[j] - first;
						for (int64_t n = 0; n < p->n_to; n++) {
							const int32_t *from = p->to + n * p->row,
								      *column = p->column + n * p->row;

#pragma omp simd
							for (int64_t j = 0; j < p->row; j++) {
								T g = dy[from[j]];

								to[j] += wide[from[j]] == column[j] ? g : 0;
							}
						}
					}
			}
	}
}
