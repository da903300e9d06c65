/* Max pooling of type T with positions of type POS; included by pool.c. */

/* One window, channels [0, n) with n <= BLOCK. NaN wins, the first of equals wins. */
static inline void S(P(max_window))(const struct pool_kernel *p, const T *x, const int64_t o[3], T *y, POS *pos, int64_t n)
{
	const struct span d = p->span[0][o[0]], h = p->span[1][o[1]], w = p->span[2][o[2]];
	bool none = d.lo >= d.hi || h.lo >= h.hi || w.lo >= w.hi;	/* all padding */
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

static void S(P(max))(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct pool_kernel *p = (struct pool_kernel *)k;
	POS *pos = r->out[1];

	for (int64_t i = 0; i < p->n * p->c_outer; i++) {
		const T *x = (const T *)r->in[0] + i / p->c_outer * p->xn + i % p->c_outer * p->xc;
		int64_t at = i / p->c_outer * p->yn + i % p->c_outer * p->yc, o[3];

		for (o[0] = 0; o[0] < p->out[0]; o[0]++)
			for (o[1] = 0; o[1] < p->out[1]; o[1]++)
				for (o[2] = 0; o[2] < p->out[2]; o[2]++) {
					int64_t y = at + o[0] * p->ys[0] + o[1] * p->ys[1] + o[2] * p->ys[2];

					for (int64_t c = 0; c < p->c_inner; c += BLOCK)
						S(P(max_window))(p, x + c, o, (T *)r->out[0] + y + c, pos ? pos + y + c : NULL,
								 p->c_inner - c < BLOCK ? p->c_inner - c : BLOCK);
				}
	}
}

static void S(P(max_grad))(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct pool_kernel *p = (struct pool_kernel *)k;

	for (int64_t i = 0; i < p->n * p->c_outer; i++) {
		int64_t at = i / p->c_outer * p->yn + i % p->c_outer * p->yc, x[3];
		const T *dy = (const T *)r->in[0] + at;
		const POS *pos = (const POS *)r->in[1] + at;
		T *dx = (T *)r->out[0] + i / p->c_outer * p->xn + i % p->c_outer * p->xc;

		for (x[0] = 0; x[0] < p->in[0]; x[0]++)
			for (x[1] = 0; x[1] < p->in[1]; x[1]++)
				for (x[2] = 0; x[2] < p->in[2]; x[2]++) {
					T *to = dx + x[0] * p->xs[0] + x[1] * p->xs[1] + x[2] * p->xs[2];

					for (int64_t c = 0; c < p->c_inner; c++)
						to[c] = 0;
					for (int64_t a = p->first[0][x[0]]; a < p->first[0][x[0] + 1]; a++)
						for (int64_t b = p->first[1][x[1]]; b < p->first[1][x[1] + 1]; b++)
							for (int64_t e = p->first[2][x[2]]; e < p->first[2][x[2] + 1]; e++) {
								const struct pair u = p->pair[0][a], v = p->pair[1][b], w = p->pair[2][e];
								int64_t y = u.o * p->ys[0] + v.o * p->ys[1] + w.o * p->ys[2];
								POS here = (POS)((u.k * p->size[1] + v.k) * p->size[2] + w.k);

#pragma omp simd
								for (int64_t c = 0; c < p->c_inner; c++)
									to[c] += pos[y + c] == here ? dy[y + c] : 0;
							}
				}
	}
}
