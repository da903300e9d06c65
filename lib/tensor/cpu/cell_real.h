/* Cells of recurrent networks for type T; included by cell.c. One sample, h units;
 * s: its planes, d->plane apart. */
static inline __attribute__((always_inline)) T S(act)(int f, T x)
{
	return f == DLB_CELL_RELU ? (x > 0 ? x : 0) : f == DLB_CELL_TANH ? F(tanh)(x) : F(sigmoid)(x);
}

/* Derivative, as a function of the result y. */
static inline __attribute__((always_inline)) T S(slope)(int f, T y)
{
	return f == DLB_CELL_RELU ? (y > 0 ? 1 : 0) : f == DLB_CELL_TANH ? 1 - y * y : y * (1 - y);
}

static inline __attribute__((always_inline)) void S(lstm)(const struct dlb_cell_desc *d,
							  const struct dlb_run *r, int f0, int f1, int f2,
							  bool peeps, bool coupled)
{
	const int64_t h = d->h, p = d->plane;
	const T *x = r->in[0], *rec = r->in[1], *b = r->in[2], *peep = r->in[3], *cp = r->in[5];
	T *restrict s = r->out[0];

#pragma omp simd
	for (int64_t j = 0; j < h; j++) {
		const T vi = x[j] + rec[j] + b[j], vo = x[h + j] + rec[h + j] + b[h + j];
		const T vf = x[2 * h + j] + rec[2 * h + j] + b[2 * h + j],
			vg = x[3 * h + j] + rec[3 * h + j] + b[3 * h + j];
		const T in = S(act)(f0, vi + (peeps ? peep[j] * cp[j] : 0));
		const T keep = coupled ? 1 - in : S(act)(f0, vf + (peeps ? peep[2 * h + j] * cp[j] : 0));
		const T g = S(act)(f1, vg), c = keep * cp[j] + in * g;
		const T o = S(act)(f0, vo + (peeps ? peep[h + j] * c : 0));

		s[j] = in;
		s[p + j] = o;
		s[2 * p + j] = keep;
		s[3 * p + j] = g;
		s[4 * p + j] = c;
		s[5 * p + j] = o * S(act)(f2, c);
	}
}

static inline __attribute__((always_inline)) void S(lstm_grad)(const struct dlb_cell_desc *d,
							       const struct dlb_run *r, int f0, int f1,
							       int f2, bool peeps, bool coupled)
{
	const int64_t h = d->h, p = d->plane;
	const T *s = r->in[0], *cp = r->in[2], *peep = r->in[3];
	T *restrict dh = r->out[0], *restrict dc = r->out[1], *restrict dx = r->out[2];

#pragma omp simd
	for (int64_t j = 0; j < h; j++) {
		const T in = s[j], o = s[p + j], keep = s[2 * p + j], g = s[3 * p + j], c = s[4 * p + j];
		const T hc = S(act)(f2, c), d_o = dh[j] * hc * S(slope)(f0, o);
		const T e = dc[j] + dh[j] * o * S(slope)(f2, hc) + (peeps ? d_o * peep[h + j] : 0);
		const T di = (coupled ? e * (g - cp[j]) : e * g) * S(slope)(f0, in);
		const T df = coupled ? 0 : e * cp[j] * S(slope)(f0, keep);

		dx[j] = di;
		dx[h + j] = d_o;
		dx[2 * h + j] = df;
		dx[3 * h + j] = e * in * S(slope)(f1, g);
		dc[j] = e * keep + (peeps ? di * peep[j] + df * peep[2 * h + j] : 0);
		dh[j] = 0;
	}
}

static inline __attribute__((always_inline)) void S(gru)(const struct dlb_cell_desc *d,
							 const struct dlb_run *r, int f0, bool joint)
{
	const int64_t h = d->h, p = d->plane;
	const T *x = r->in[0], *rec = r->in[1], *b = r->in[2], *hp = r->in[4];
	T *restrict s = r->out[0];

#pragma omp simd
	for (int64_t j = 0; j < h; j++) {
		const T z = S(act)(f0, x[j] + rec[j] + b[j]),
			q = S(act)(f0, x[h + j] + rec[h + j] + b[h + j]);

		s[j] = z;
		s[p + j] = q;
		s[2 * p + j] = x[2 * h + j] + b[2 * h + j];
		s[3 * p + j] = joint ? rec[2 * h + j] + b[3 * h + j] : q * hp[j];
	}
}

/* Computes the candidate and the new state. If the reset comes first, rec is (r h) R^T. */
static inline __attribute__((always_inline)) void S(gru_candidate)(const struct dlb_cell_desc *d,
								   const struct dlb_run *r, int f1,
								   bool joint)
{
	const int64_t h = d->h, p = d->plane;
	const T *rec = r->in[1], *b = r->in[2], *hp = r->in[4];
	T *restrict s = r->out[0];

#pragma omp simd
	for (int64_t j = 0; j < h; j++) {
		const T z = s[j], more = joint ? s[p + j] * s[3 * p + j] : rec[j] + b[3 * h + j];
		const T c = S(act)(f1, s[2 * p + j] + more);

		s[2 * p + j] = c;
		s[4 * p + j] = (1 - z) * c + z * hp[j];
	}
}

static inline __attribute__((always_inline)) void S(gru_grad)(const struct dlb_cell_desc *d,
							      const struct dlb_run *r, int f0, int f1,
							      bool joint)
{
	const int64_t h = d->h, p = d->plane;
	const T *s = r->in[0], *hp = r->in[1];
	T *restrict dh = r->out[0], *restrict dx = r->out[2], *restrict dr = r->out[3];

#pragma omp simd
	for (int64_t j = 0; j < h; j++) {
		const T z = s[j], q = s[p + j], c = s[2 * p + j];
		const T dn = dh[j] * (1 - z) * S(slope)(f1, c);

		dx[j] = dr[j] = dh[j] * (hp[j] - c) * S(slope)(f0, z);
		dx[2 * h + j] = dn;
		dh[j] *= z;
		dx[h + j] = dr[h + j] = joint ? dn * s[3 * p + j] * S(slope)(f0, q) : 0;
		if (joint)
			dr[2 * h + j] = dn * q;
	}
}

/* If the reset comes first: computes the remaining gradients from the gradient of r h (in[4]). */
static void S(gru_grad_reset)(const struct dlb_cell_desc *d, const struct dlb_run *r)
{
	const int64_t h = d->h, p = d->plane;
	const T *s = r->in[0], *hp = r->in[1], *drh = r->in[4];
	T *restrict dh = r->out[0], *restrict dx = r->out[2], *restrict dr = r->out[3];

#pragma omp simd
	for (int64_t j = 0; j < h; j++) {
		const T q = s[p + j];

		dx[h + j] = dr[h + j] = drh[j] * hp[j] * S(slope)(d->act[0], q);
		dh[j] += drh[j] * q;
	}
}

static inline __attribute__((always_inline)) void S(rnn)(const struct dlb_cell_desc *d,
							 const struct dlb_run *r, int f0)
{
	const T *x = r->in[0], *rec = r->in[1], *b = r->in[2];
	T *restrict s = r->out[0];

#pragma omp simd
	for (int64_t j = 0; j < d->h; j++)
		s[j] = S(act)(f0, x[j] + rec[j] + b[j]);
}

static inline __attribute__((always_inline)) void S(rnn_grad)(const struct dlb_cell_desc *d,
							      const struct dlb_run *r, int f0)
{
	const T *s = r->in[0];
	T *restrict dh = r->out[0], *restrict dx = r->out[2];

#pragma omp simd
	for (int64_t j = 0; j < d->h; j++) {
		dx[j] = dh[j] * S(slope)(f0, s[j]);
		dh[j] = 0;
	}
}

/* One sample. The usual activations are constants here, so that their loops have no branch. */
static void S(cell_sample)(const struct cell_kernel *k, const struct dlb_run *r)
{
	const struct dlb_cell_desc *d = &k->d;
	const int *f = d->act;
	const bool usual = k->usual;

	switch (d->loop) {
	case DLB_CELL_RNN:
		if (usual)
			S(rnn)(d, r, DLB_CELL_TANH);
		else
			S(rnn)(d, r, f[0]);
		break;
	case DLB_CELL_RNN_GRAD:
		S(rnn_grad)(d, r, f[0]);
		break;
	case DLB_CELL_GRU:
		if (usual)
			S(gru)(d, r, DLB_CELL_SIGMOID, d->joint);
		else
			S(gru)(d, r, f[0], d->joint);
		break;
	case DLB_CELL_GRU_CANDIDATE:
		if (usual)
			S(gru_candidate)(d, r, DLB_CELL_TANH, d->joint);
		else
			S(gru_candidate)(d, r, f[1], d->joint);
		break;
	case DLB_CELL_GRU_GRAD:
		S(gru_grad)(d, r, f[0], f[1], d->joint);
		break;
	case DLB_CELL_GRU_GRAD_RESET:
		S(gru_grad_reset)(d, r);
		break;
	case DLB_CELL_LSTM:
		if (usual && !d->peepholes && !d->coupled)
			S(lstm)(d, r, DLB_CELL_SIGMOID, DLB_CELL_TANH, DLB_CELL_TANH, false, false);
		else
			S(lstm)(d, r, f[0], f[1], f[2], d->peepholes, d->coupled);
		break;
	case DLB_CELL_LSTM_GRAD:
		if (usual && !d->peepholes && !d->coupled)
			S(lstm_grad)(d, r, DLB_CELL_SIGMOID, DLB_CELL_TANH, DLB_CELL_TANH, false, false);
		else
			S(lstm_grad)(d, r, f[0], f[1], f[2], d->peepholes, d->coupled);
		break;
	}
}

static void S(forth)(const struct cell_kernel *k, const struct dlb_run *r, bool ended)
{
	const struct dlb_cell_desc *d = &k->d;
	const size_t bytes = (size_t)d->h * sizeof(T);
	T *s = r->out[0], *y = r->out[1], *state = s + (d->loop == DLB_CELL_RNN ? 0 : is_gru(d) ? 4 : 5) * d->plane;

	S(cell_sample)(k, r);
	if (d->loop == DLB_CELL_GRU)
		return;
	if (ended)
		memcpy(state, r->in[4], bytes);
	if (ended && d->loop == DLB_CELL_LSTM)
		memcpy(s + 4 * d->plane, r->in[5], bytes);
	if (y && ended)
		memset(y, 0, bytes);
	else if (y)
		memcpy(y, state, bytes);
}

static void S(back)(const struct cell_kernel *k, const struct dlb_run *r, bool ended)
{
	const struct dlb_cell_desc *d = &k->d;
	const int64_t h = d->h;
	const T *s = r->in[0], *cp = r->in[2], *dy = d->loop == DLB_CELL_GRU_GRAD_RESET ? NULL : r->in[5];
	T *dh = r->out[0], *dx = r->out[2], *dp = r->out[4];

	if (ended) {
		memset(dx, 0, (size_t)d->x_row * sizeof *dx);
		if (is_gru(d))
			memset(r->out[3], 0, (size_t)d->rec_row * sizeof *dx);
		return;
	}
	for (int64_t j = 0; j < h && dy; j++)
		dh[j] += dy[j];
	S(cell_sample)(k, r);
	for (int64_t j = 0; j < 3 * h && dp; j++)
		dp[j] += dx[j] * (j / h == 1 ? s[4 * d->plane + j % h] : cp[j % h]);
}
