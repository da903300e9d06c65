/* Average pooling of type T; included by pool.c. */

static void S(average)(const struct pool_kernel *p, const struct dlb_run *r, int64_t i0, int64_t i1,
		       void *scratch)
{
	(void)scratch;
	for (int64_t i = i0; i < i1; i++) {
		const T *x = (const T *)r->in[0] + i / p->c_outer * p->xn + i % p->c_outer * p->xc;
		T *y = (T *)r->out[0] + i / p->c_outer * p->yn + i % p->c_outer * p->yc;
		int64_t o[3];

		for (o[0] = 0; o[0] < p->out[0]; o[0]++)
			for (o[1] = 0; o[1] < p->out[1]; o[1]++)
				for (o[2] = 0; o[2] < p->out[2]; o[2]++) {
					const struct kernel_span d = p->span[0][o[0]], h = p->span[1][o[1]],
								 w = p->span[2][o[2]];
					T *to = y + o[0] * p->ys[0] + o[1] * p->ys[1] + o[2] * p->ys[2];
					T scale = (T)(1 / (p->divisor[0][o[0]] * p->divisor[1][o[1]] *
							   p->divisor[2][o[2]]));

					for (int64_t c = 0; c < p->c_inner; c++)
						to[c] = 0;
					for (int64_t kd = d.lo; kd < d.hi; kd++)
						for (int64_t kh = h.lo; kh < h.hi; kh++)
							for (int64_t kw = w.lo; kw < w.hi; kw++) {
								const T *v = x +
									     (o[0] * p->step[0] - p->pad[0] +
									      kd * p->dil[0]) *
										     p->xs[0] +
									     (o[1] * p->step[1] - p->pad[1] +
									      kh * p->dil[1]) *
										     p->xs[1] +
									     (o[2] * p->step[2] - p->pad[2] +
									      kw * p->dil[2]) *
										     p->xs[2];

#pragma omp simd
								for (int64_t c = 0; c < p->c_inner; c++)
									to[c] += v[c];
							}
					for (int64_t c = 0; c < p->c_inner; c++)
						to[c] *= scale;
				}
	}
}

static void S(average_grad)(const struct pool_kernel *p, const struct dlb_run *r, int64_t i0, int64_t i1,
			    void *scratch)
{
	(void)scratch;
	for (int64_t i = i0; i < i1; i++) {
		const T *dy = (const T *)r->in[0] + i / p->c_outer * p->yn + i % p->c_outer * p->yc;
		T *dx = (T *)r->out[0] + i / p->c_outer * p->xn + i % p->c_outer * p->xc;
		int64_t x[3];

		for (x[0] = 0; x[0] < p->in[0]; x[0]++)
			for (x[1] = 0; x[1] < p->in[1]; x[1]++)
				for (x[2] = 0; x[2] < p->in[2]; x[2]++) {
					T *to = dx + x[0] * p->xs[0] + x[1] * p->xs[1] + x[2] * p->xs[2];

					for (int64_t c = 0; c < p->c_inner; c++)
						to[c] = 0;
					for (int64_t a = p->first[0][x[0]]; a < p->first[0][x[0] + 1]; a++)
						for (int64_t b = p->first[1][x[1]]; b < p->first[1][x[1] + 1];
						     b++)
							for (int64_t e = p->first[2][x[2]];
							     e < p->first[2][x[2] + 1]; e++) {
								int64_t u = p->pair[0][a].o,
									v = p->pair[1][b].o,
									w = p->pair[2][e].o;
								const T *from = dy + u * p->ys[0] +
										v * p->ys[1] + w * p->ys[2];
								T scale = (T)(1 / (p->divisor[0][u] *
										   p->divisor[1][v] *
										   p->divisor[2][w]));

#pragma omp simd
								for (int64_t c = 0; c < p->c_inner; c++)
									to[c] += from[c] * scale;
							}
				}
	}
}
