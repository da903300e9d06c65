/* The loops of recurrent.c for one type: included with T (float, double) and NAME(f). */

static T NAME(act)(int f, T x)
{
	if (f == ACT_RELU)
		return x > 0 ? x : 0;
	return f == ACT_TANH ? (T)tanh((double)x) : (T)(1 / (1 + exp(-(double)x)));
}

static T NAME(slope)(int f, T y)		/* the derivative, by the result */
{
	if (f == ACT_RELU)
		return y > 0 ? 1 : 0;
	return f == ACT_TANH ? 1 - y * y : y * (1 - y);
}

/* X with time first, in the scratch memory if it is not so already. */
static const T *NAME(time_first)(const struct recurrent *k, const T *x, T *to)
{
	if (!k->batch_first)
		return x;
	for (int64_t t = 0; t < k->t; t++)
		for (int64_t n = 0; n < k->n; n++)
			memcpy(to + (t * k->n + n) * k->i, x + (n * k->t + t) * k->i, (size_t)k->i * sizeof *to);
	return to;
}

/* State 0 of direction d: contiguous, zero where there is none. */
static void NAME(first)(const struct recurrent *k, const T *from, int64_t d, T *to)
{
	for (int64_t n = 0; n < k->n; n++)
		for (int64_t j = 0; j < k->h; j++)
			to[n * k->h + j] = from ? from[at_state(k, d, n) + j] : 0;
}

/* One step of one sample but GRU's candidate: x, rec = the gates' parts of X and of the state; s = the planes. */
static void NAME(gates)(const struct recurrent *k, int64_t d, const T *x, const T *rec, const T *b, const T *peep, const T *hp,
			const T *cp, T *s)
{
	const int64_t h = k->h, nh = k->n * h, all = k->gates * h;
	const int *f = k->act[d];

	for (int64_t j = 0; j < h; j++) {
		T v[4] = { 0 };
		for (int g = 0; g < k->gates; g++) {
			v[g] = x[g * h + j] + (b ? b[g * h + j] : 0);
			if (g < k->joint && !(k->kind == GRU && g == 2))
				v[g] += rec[g * h + j] + (b ? b[all + g * h + j] : 0);
		}
		if (k->kind == RNN) {
			s[j] = NAME(act)(f[0], v[0]);
		} else if (k->kind == GRU) {
			const T z = NAME(act)(f[0], v[0]), r = NAME(act)(f[0], v[1]);
			s[j] = z;
			s[nh + j] = r;
			s[2 * nh + j] = v[2];
			s[3 * nh + j] = k->joint == 3 ? rec[2 * h + j] + (b ? b[all + 2 * h + j] : 0) : r * hp[j];
		} else {
			const T in = NAME(act)(f[0], v[0] + (peep ? peep[j] * cp[j] : 0));
			const T keep = k->coupled ? 1 - in : NAME(act)(f[0], v[2] + (peep ? peep[2 * h + j] * cp[j] : 0));
			const T g = NAME(act)(f[1], v[3]), c = keep * cp[j] + in * g;
			const T o = NAME(act)(f[0], v[1] + (peep ? peep[h + j] * c : 0));
			s[j] = in;
			s[nh + j] = o;
			s[2 * nh + j] = keep;
			s[3 * nh + j] = g;
			s[4 * nh + j] = c;
			s[5 * nh + j] = o * NAME(act)(f[2], c);
		}
	}
}

/* GRU's candidate and new state; rec: (r h) R^T when the reset comes first. */
static void NAME(candidate)(const struct recurrent *k, int64_t d, const T *rec, const T *b, const T *hp, T *s)
{
	const int64_t h = k->h, nh = k->n * h;

	for (int64_t j = 0; j < h; j++) {
		const T more = k->joint == 3 ? s[nh + j] * s[3 * nh + j] : rec[j] + (b ? b[5 * h + j] : 0);
		const T c = NAME(act)(k->act[d][1], s[2 * nh + j] + more), z = s[j];
		s[2 * nh + j] = c;
		s[4 * nh + j] = (1 - z) * c + z * hp[j];
	}
}

static void NAME(forward)(const void *ctx, const struct dlb_run *r)
{
	const struct recurrent *k = *(const struct recurrent *const *)ctx;
	const int64_t h = k->h, nh = k->n * h, gh = k->gates * h;
	const T *x = NAME(time_first)(k, r->in[0], BUF(X_FIRST));
	T *y = r->out[0], *saved = k->n_out > k->saved && r->out[k->saved] ? r->out[k->saved] : BUF(SAVED);

	for (int64_t d = 0; d < k->d; d++) {
		const T *w = (const T *)r->in[1] + d * gh * k->i, *rw = (const T *)r->in[2] + d * gh * h;
		const T *b = k->has_b ? (const T *)r->in[3] + d * 2 * gh : NULL, *peep = k->has_p ? (const T *)r->in[7] + d * 3 * h : NULL;
		const T *hp = BUF(FIRST_H), *cp = BUF(FIRST_C);
		T *part = BUF(PART), *rec = BUF(REC), *rec2 = BUF(REC2);

		NAME(first)(k, k->has_h ? r->in[5] : NULL, d, BUF(FIRST_H));
		NAME(first)(k, k->has_c ? r->in[6] : NULL, d, BUF(FIRST_C));
		product(k, r, G_INPUT, x, w, NULL, part);
		for (int64_t step = 0; step < k->t; step++) {
			const int64_t t = time_of(k, d, step);
			T *s = saved + (d * k->t + t) * k->planes * nh, *hs = s + (k->planes - 1) * nh;

			product(k, r, G_STEP, hp, rw, NULL, rec);
			for (int64_t n = 0; n < k->n; n++)
				NAME(gates)(k, d, part + (t * k->n + n) * gh, rec + n * k->joint * h, b, peep, hp + n * h, cp + n * h, s + n * h);
			if (k->kind == GRU && k->joint == 2)
				product(k, r, G_STEP2, s + 3 * nh, rw + 2 * h * h, NULL, rec2);
			for (int64_t n = 0; n < k->n; n++) {
				const bool in_time = t < length(k, r->in[4], n);

				if (k->kind == GRU)
					NAME(candidate)(k, d, rec2 + n * h, b, hp + n * h, s + n * h);
				if (!in_time) {			/* the state stays */
					memcpy(hs + n * h, hp + n * h, (size_t)h * sizeof *hs);
					if (k->kind == LSTM)
						memcpy(s + 4 * nh + n * h, cp + n * h, (size_t)h * sizeof *hs);
				}
				for (int64_t j = 0; j < h && y; j++)
					y[at_output(k, t, d, n) + j] = in_time ? hs[n * h + j] : 0;
			}
			hp = hs;
			cp = s + (k->kind == LSTM ? 4 * nh : 0);
		}
		for (int o = 1; o < k->saved && o < k->n_out; o++)
			for (int64_t n = 0; n < k->n && r->out[o]; n++)
				memcpy((T *)r->out[o] + at_state(k, d, n), (o == 1 ? hp : cp) + n * h, (size_t)h * sizeof *hp);
	}
}

/* One step of one sample backwards: dh, dc come in as the gradients of its state, and leave as what goes straight to the
 * state before; dx, dr = gradients of the gates' parts of X and of the state. GRU with the reset first: in two passes,
 * with drh = the gradient of r h in between. */
static void NAME(back)(const struct recurrent *k, int64_t d, const T *s, const T *hp, const T *cp, const T *peep, T *dh, T *dc,
		       T *dx, T *dr, const T *drh, T *dp)
{
	const int64_t h = k->h, nh = k->n * h;
	const int *f = k->act[d];

	for (int64_t j = 0; j < h; j++) {
		if (k->kind == RNN) {
			dx[j] = dh[j] * NAME(slope)(f[0], s[j]);
			dh[j] = 0;
		} else if (k->kind == GRU) {
			const T z = s[j], r = s[nh + j], c = s[2 * nh + j], q = s[3 * nh + j];
			if (!drh) {
				dx[j] = dh[j] * (hp[j] - c) * NAME(slope)(f[0], z);
				dx[2 * h + j] = dh[j] * (1 - z) * NAME(slope)(f[1], c);
				dh[j] *= z;
				dx[h + j] = k->joint == 3 ? dx[2 * h + j] * q * NAME(slope)(f[0], r) : 0;
				if (k->joint == 3)
					dr[2 * h + j] = dx[2 * h + j] * r;
			} else {
				dx[h + j] = drh[j] * hp[j] * NAME(slope)(f[0], r);
				dh[j] += drh[j] * r;
			}
			dr[j] = dx[j];
			dr[h + j] = dx[h + j];
		} else {
			const T in = s[j], o = s[nh + j], keep = s[2 * nh + j], g = s[3 * nh + j], c = s[4 * nh + j];
			const T hc = NAME(act)(f[2], c), d_o = dh[j] * hc * NAME(slope)(f[0], o);
			const T e = dc[j] + dh[j] * o * NAME(slope)(f[2], hc) + (peep ? d_o * peep[h + j] : 0);
			const T di = (k->coupled ? e * (g - cp[j]) : e * g) * NAME(slope)(f[0], in);
			const T df = k->coupled ? 0 : e * cp[j] * NAME(slope)(f[0], keep);
			dx[j] = di;
			dx[h + j] = d_o;
			dx[2 * h + j] = df;
			dx[3 * h + j] = e * in * NAME(slope)(f[1], g);
			dc[j] = e * keep + (peep ? di * peep[j] + df * peep[2 * h + j] : 0);
			dh[j] = 0;
			for (int64_t p = 0; p < 3 && dp; p++)
				dp[p * h + j] += dx[p * h + j] * (p == 1 ? c : cp[j]);
		}
	}
}

/* All steps of direction d, last first; leaves dgates of all of them, and dh, dc of state 0. */
static void NAME(back_steps)(const struct recurrent *k, const struct dlb_run *r, int64_t d, const T *rw, const T *peep, T *dp)
{
	const int64_t h = k->h, nh = k->n * h, gh = k->gates * h, jh = k->joint * h;
	const T *saved = r->in[0], *dy = r->in[8];
	T *dh = BUF(DH), *dc = BUF(DC), *next = BUF(DH_NEXT), *all_hp = BUF(H_PREV), *rec2 = BUF(REC2);

	for (int64_t step = k->t - 1; step >= 0; step--) {
		const int64_t t = time_of(k, d, step), before = step ? time_of(k, d, step - 1) : 0;
		const T *s = saved + (d * k->t + t) * k->planes * nh, *sp = saved + (d * k->t + before) * k->planes * nh;
		const T *hp = step ? sp + (k->planes - 1) * nh : BUF(FIRST_H), *cp = step ? sp + (k->kind == LSTM ? 4 * nh : 0) : BUF(FIRST_C);
		T *dx = (T *)BUF(DGATES) + t * k->n * gh, *dr = k->kind == GRU ? (T *)BUF(DJOINT) + t * k->n * jh : dx;

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
				NAME(back)(k, d, s + n * h, hp + n * h, cp + n * h, peep, dh + n * h, dc + n * h, dx + n * gh, dr + n * jh,
					   pass ? rec2 + n * h : NULL, dp);
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

static void NAME(sum_rows)(const T *m, int64_t rows, int64_t width, int64_t cols, T *to)
{
	for (int64_t j = 0; j < cols; j++) {
		double sum = 0;

		for (int64_t i = 0; i < rows; i++)
			sum += m[i * width + j];
		to[j] = (T)sum;
	}
}

static void NAME(backward)(const void *ctx, const struct dlb_run *r)
{
	const struct recurrent *k = *(const struct recurrent *const *)ctx;
	const int64_t h = k->h, gh = k->gates * h, jh = k->joint * h, rows = k->t * k->n;
	const T *x = NAME(time_first)(k, r->in[1], BUF(X_FIRST));
	T *const *out = (T *const *)(void *const *)r->out, *dgates = BUF(DGATES), *dx = k->batch_first ? BUF(DX) : out[0];

	for (int64_t d = 0; d < k->d; d++) {
		const T *w = (const T *)r->in[2] + d * gh * k->i, *rw = (const T *)r->in[3] + d * gh * h;
		const T *peep = k->has_p ? (const T *)r->in[7] + d * 3 * h : NULL, *dr = k->kind == GRU ? BUF(DJOINT) : dgates;
		T *dp = k->n_out > 6 && out[6] ? out[6] + d * 3 * h : NULL;

		NAME(first)(k, k->has_h ? r->in[5] : NULL, d, BUF(FIRST_H));
		NAME(first)(k, k->has_c ? r->in[6] : NULL, d, BUF(FIRST_C));
		NAME(first)(k, r->in[9], d, BUF(DH));
		NAME(first)(k, r->in[10], d, BUF(DC));
		if (dp)
			memset(dp, 0, (size_t)(3 * h) * sizeof *dp);
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
			NAME(sum_rows)(dgates, rows, gh, gh, out[3] + d * 2 * gh);
			memcpy(out[3] + d * 2 * gh + gh, out[3] + d * 2 * gh, (size_t)gh * sizeof(T));
			NAME(sum_rows)(dr, rows, jh, jh, out[3] + d * 2 * gh + gh);
		}
		for (int o = 4; o < 6; o++)
			for (int64_t n = 0; n < k->n && out[o]; n++)
				memcpy(out[o] + at_state(k, d, n), (T *)BUF(o == 4 ? DH : DC) + n * h, (size_t)h * sizeof(T));
	}
	for (int64_t i = 0; i < rows && out[0] && k->batch_first; i++)
		memcpy(out[0] + (i % k->n * k->t + i / k->n) * k->i, dx + i * k->i, (size_t)k->i * sizeof(T));
}
