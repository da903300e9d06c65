/* The loops of recurrent.c for one type: include with T (float, double) and NAME(f) defined. */

/* X with time as first dimension, copied to scratch if it is not. */
static const T *NAME(time_first)(const struct recurrent *k, const T *x, T *to)
{
	if (!k->batch_first)
		return x;
	for (int64_t t = 0; t < k->t; t++)
		for (int64_t n = 0; n < k->n; n++)
			memcpy(to + (t * k->n + n) * k->i, x + (n * k->t + t) * k->i,
			       (size_t)k->i * sizeof *to);
	return to;
}

/* Initial state of direction d, contiguous; zeros if absent. */
static void NAME(first)(const struct recurrent *k, const T *from, int64_t d, T *to)
{
	for (int64_t n = 0; n < k->n; n++)
		for (int64_t j = 0; j < k->h; j++)
			to[n * k->h + j] = from ? from[at_state(k, d, n) + j] : 0;
}

/* The biases of direction d as a cell reads them: those of X and state summed, except those that GRU's reset
 * gate multiplies, which are fourth; zeros if absent. */
static void NAME(biases)(const struct recurrent *k, const T *b, int64_t d, T *to)
{
	const int64_t h = k->h, all = k->gates * h;

	memset(to, 0, 4 * (size_t)h * sizeof *to);
	if (!b)
		return;
	b += d * 2 * all;
	for (int64_t j = 0; j < all; j++)
		if (k->kind == GRU && j >= 2 * h) {
			to[j] = b[j];
			to[h + j] = b[all + j];
		} else {
			to[j] = b[j] + b[all + j];
		}
}

static void NAME(forward)(const void *ctx, const struct dlb_run *r)
{
	struct recurrent *k = *(struct recurrent *const *)ctx;
	const int64_t h = k->h, nh = k->n * h, gh = k->gates * h;
	const T *x = NAME(time_first)(k, r->in[0], BUF(X_FIRST));
	T *y = r->out[0], *saved = k->n_out > k->saved && r->out[k->saved] ? r->out[k->saved] : BUF(SAVED);

	for (int64_t d = 0; d < k->d; d++) {
		const T *w = (const T *)r->in[1] + d * gh * k->i, *rw = (const T *)r->in[2] + d * gh * h;
		const T *peep = k->has_p ? (const T *)r->in[7] + d * 3 * h : NULL;
		const T *hp = BUF(FIRST_H), *cp = BUF(FIRST_C);
		T *part = BUF(PART), *rec = BUF(REC), *rec2 = BUF(REC2), *b = BUF(BIAS);

		NAME(first)(k, k->has_h ? r->in[5] : NULL, d, BUF(FIRST_H));
		NAME(first)(k, k->has_c ? r->in[6] : NULL, d, BUF(FIRST_C));
		NAME(biases)(k, k->has_b ? r->in[3] : NULL, d, b);
		k->version++;
		product(k, r, G_INPUT, x, w, NULL, part);
		for (int64_t step = 0; step < k->t; step++) {
			const int64_t t = time_of(k, d, step);
			T *s = saved + (d * k->t + t) * k->planes * nh, *hs = s + (k->planes - 1) * nh;

			product(k, r, G_STEP, hp, rw, NULL, rec);
			for (int64_t n = 0; n < k->n; n++)
				cell(k, r, CELL_GATES + d,
				     (const void *const[]){ part + (t * k->n + n) * gh,
							    rec + n * k->joint * h, b, peep, hp + n * h,
							    cp + n * h },
				     6, (void *const[]){ s + n * h });
			if (k->kind == GRU && k->joint == 2)
				product(k, r, G_STEP2, s + 3 * nh, rw + 2 * h * h, NULL, rec2);
			for (int64_t n = 0; n < k->n; n++) {
				const bool in_time = t < length(k, r->in[4], n);

				if (k->kind == GRU)
					cell(k, r, CELL_CANDIDATE + d,
					     (const void *const[]){ NULL, rec2 + n * h, b, NULL, hp + n * h },
					     5, (void *const[]){ s + n * h });
				if (!in_time) {			/* the state is kept */
					memcpy(hs + n * h, hp + n * h, (size_t)h * sizeof *hs);
					if (k->kind == LSTM)
						memcpy(s + 4 * nh + n * h, cp + n * h,
						       (size_t)h * sizeof *hs);
				}
				if (y && in_time)
					memcpy(y + at_output(k, t, d, n), hs + n * h, (size_t)h * sizeof *y);
				else if (y)
					memset(y + at_output(k, t, d, n), 0, (size_t)h * sizeof *y);
			}
			hp = hs;
			cp = s + (k->kind == LSTM ? 4 * nh : 0);
		}
		for (int o = 1; o < k->saved && o < k->n_out; o++)
			for (int64_t n = 0; n < k->n && r->out[o]; n++)
				memcpy((T *)r->out[o] + at_state(k, d, n), (o == 1 ? hp : cp) + n * h,
				       (size_t)h * sizeof *hp);
	}
}

/* All steps of direction d in reverse; computes the dgates of all steps, and dh, dc of the initial state. */
static void NAME(back_steps)(const struct recurrent *k, const struct dlb_run *r, int64_t d, const T *rw,
			     const T *peep, T *dp)
{
	const int64_t h = k->h, nh = k->n * h, gh = k->gates * h, jh = k->joint * h;
	const T *saved = r->in[0], *dy = r->in[8];
	T *dh = BUF(DH), *dc = BUF(DC), *next = BUF(DH_NEXT), *all_hp = BUF(H_PREV), *rec2 = BUF(REC2);

	for (int64_t step = k->t - 1; step >= 0; step--) {
		const int64_t t = time_of(k, d, step), before = step ? time_of(k, d, step - 1) : 0;
		const T *s = saved + (d * k->t + t) * k->planes * nh,
			*sp = saved + (d * k->t + before) * k->planes * nh;
		const T *hp = step ? sp + (k->planes - 1) * nh : BUF(FIRST_H),
			*cp = step ? sp + (k->kind == LSTM ? 4 * nh : 0) : BUF(FIRST_C);
		T *dx = (T *)BUF(DGATES) + t * k->n * gh,
		  *dr = k->kind == GRU ? (T *)BUF(DJOINT) + t * k->n * jh : dx;

		memcpy(all_hp + t * nh, hp, (size_t)nh * sizeof *hp);
		for (int pass = 0; pass < (k->kind == GRU && k->joint == 2 ? 2 : 1); pass++) {
			for (int64_t n = 0; n < k->n; n++) {
				if (t >= length(k, r->in[4], n)) {
					memset(dx + n * gh, 0, (size_t)gh * sizeof *dx);
					memset(dr + n * jh, 0, (size_t)jh * sizeof *dr);
					continue;
				}
				for (int64_t j = 0; j < h && dy && !pass; j++)
					dh[n * h + j] += dy[at_output(k, t, d, n) + j];
				cell(k, r, (pass ? CELL_BACK_RESET : CELL_BACK) + d,
				     (const void *const[]){ s + n * h, hp + n * h, cp + n * h, peep,
							    rec2 + n * h },
				     5, (void *const[]){ dh + n * h, dc + n * h, dx + n * gh, dr + n * jh });
				for (int64_t j = 0; j < 3 * h && dp; j++)
					dp[j] += dx[n * gh + j] *
						 (j / h == 1 ? s[4 * nh + n * h + j % h] : cp[n * h + j % h]);
			}
			if (k->kind == GRU && k->joint == 2 && !pass) {
				T *dn = (T *)BUF(DCAND) + t * nh;

				for (int64_t n = 0; n < k->n; n++)
					memcpy(dn + n * h, dx + n * gh + 2 * h, (size_t)h * sizeof *dn);
				memcpy((T *)BUF(RESET_H) + t * nh, s + 3 * nh, (size_t)nh * sizeof *s);
				product(k, r, G_DSTEP2, dn, rw + 2 * h * h, NULL, rec2);
			}
		}
		product(k, r, G_DSTEP, dr, rw, dh, next);
		memcpy(dh, next, (size_t)nh * sizeof *dh);
	}
}

static void NAME(backward)(const void *ctx, const struct dlb_run *r)
{
	struct recurrent *k = *(struct recurrent *const *)ctx;
	const int64_t h = k->h, gh = k->gates * h, rows = k->t * k->n;
	const T *x = NAME(time_first)(k, r->in[1], BUF(X_FIRST));
	T *const *out = (T *const *)(void *const *)r->out, *dgates = BUF(DGATES),
		 *dx = k->batch_first ? BUF(DX) : out[0];

	for (int64_t d = 0; d < k->d; d++) {
		const T *w = (const T *)r->in[2] + d * gh * k->i, *rw = (const T *)r->in[3] + d * gh * h;
		const T *peep = k->has_p ? (const T *)r->in[7] + d * 3 * h : NULL,
			*dr = k->kind == GRU ? BUF(DJOINT) : dgates;
		/* only LSTM has peepholes */
		T *dp = k->n_out > 6 && out[6] && k->has_p ? out[6] + d * 3 * h : NULL;

		NAME(first)(k, k->has_h ? r->in[5] : NULL, d, BUF(FIRST_H));
		NAME(first)(k, k->has_c ? r->in[6] : NULL, d, BUF(FIRST_C));
		NAME(first)(k, r->in[9], d, BUF(DH));
		NAME(first)(k, r->in[10], d, BUF(DC));
		if (dp)
			memset(dp, 0, (size_t)(3 * h) * sizeof *dp);
		k->version++;
		NAME(back_steps)(k, r, d, rw, peep, dp);
		if (out[0] && k->d == 2 && d == 0)
			product(k, r, G_DX, dgates, w, NULL, BUF(DX_FIRST));
		else if (out[0])
			product(k, r, d ? G_DX_ADD : G_DX, dgates, w, d ? BUF(DX_FIRST) : NULL, dx);
		if (out[1])
			product(k, r, G_DW, dgates, x, NULL, out[1] + d * gh * k->i);
		if (out[2])
			product(k, r, G_DR, dr, BUF(H_PREV), NULL, out[2] + d * gh * h);
		if (out[2] && k->joint < k->gates)
			product(k, r, G_DR2, BUF(DCAND), BUF(RESET_H), NULL, out[2] + d * gh * h + 2 * h * h);
		if (out[3]) {
			sum_rows(k, r, k->sum[0], dgates, out[3] + d * 2 * gh);
			memcpy(out[3] + d * 2 * gh + gh, out[3] + d * 2 * gh, (size_t)gh * sizeof(T));
			if (k->kind == GRU)
				sum_rows(k, r, k->sum[1], dr, out[3] + d * 2 * gh + gh);
		}
		for (int o = 4; o < 6; o++)
			for (int64_t n = 0; n < k->n && out[o]; n++)
				memcpy(out[o] + at_state(k, d, n), (T *)BUF(o == 4 ? DH : DC) + n * h,
				       (size_t)h * sizeof(T));
	}
	for (int64_t i = 0; i < rows && out[0] && k->batch_first; i++)
		memcpy(out[0] + (i % k->n * k->t + i / k->n) * k->i, dx + i * k->i, (size_t)k->i * sizeof(T));
}
