/* Normalization of rows for type T; included by norm.c. Blocks of NORM_BLOCK are summed in T, in the
 * compiler's order of vector partial sums (which does not depend on addresses), and combined in double:
 * accurate for rows of any width. */
#define NORM_BLOCK 256

/* sum (x - m)^power, power 1 or 2; in two independent halves, so that additions overlap */
static inline __attribute__((always_inline)) double S(norm_moment)(const T *x, T m, int power, int64_t n)
{
	double sum = 0;

	for (int64_t b = 0; b < n; b += NORM_BLOCK) {
		const int64_t len = n - b < NORM_BLOCK ? n - b : NORM_BLOCK, half = len / 2;
		const T *u = x + b, *v = u + half;
		T s = 0, t = 0;

#pragma omp simd reduction(+:s,t)
		for (int64_t i = 0; i < half; i++) {
			T e = u[i] - m, f = v[i] - m;

			s += power == 2 ? e * e : e;
			t += power == 2 ? f * f : f;
		}
		if (len % 2)
			t += power == 2 ? (v[half] - m) * (v[half] - m) : v[half] - m;
		sum += (double)s + t;
	}
	return sum;
}

/* One row: y = (x - mean) inv * scale + bias. */
static void S(norm_row)(const struct dlb_norm_desc *d, int64_t row, const T *x, T mean, T inv, const T *scale,
			const T *bias, T *y)
{
	if (d->channels) {
		const int64_t n = norm_row_channels(d), len = d->width / n;

		for (int64_t s = 0; s < n; s++, x += len, y += len) {
			const int64_t c = (row * n + s) % d->channels;
			const T by = inv * scale[c], add = bias ? bias[c] : 0;

#pragma omp simd
			for (int64_t j = 0; j < len; j++)
				y[j] = (x[j] - mean) * by + add;
		}
	} else if (bias) {
#pragma omp simd
		for (int64_t j = 0; j < d->width; j++)
			y[j] = (x[j] - mean) * inv * scale[j] + bias[j];
	} else {
#pragma omp simd
		for (int64_t j = 0; j < d->width; j++)
			y[j] = (x[j] - mean) * inv * scale[j];
	}
}

static void S(norm_part)(const void *ctx, int part, int parts)
{
	const struct norm_job *job = ctx;
	const struct dlb_norm_desc *d = job->d;
	const struct dlb_run *run = job->run;
	const T *bias = d->has_bias ? run->in[2] : NULL;
	T *saved_mean = run->out[1], *saved_inv = run->out[2];

	for (int64_t i = cpu_cut(d->rows, part, parts), end = cpu_cut(d->rows, part + 1, parts); i < end;
	     i++) {
		const T *x = (const T *)run->in[0] + i * d->width;
		const double n = (double)d->width;
		const T mean = d->rms ? 0 : (T)(S(norm_moment)(x, 0, 1, d->width) / n);
		const T inv = (T)(1 / sqrt(S(norm_moment)(x, mean, 2, d->width) / n + d->epsilon));

		S(norm_row)(d, i, x, mean, inv, run->in[1], bias, (T *)run->out[0] + i * d->width);
		if (saved_mean)
			saved_mean[i] = mean;
		if (saved_inv)
			saved_inv[i] = inv;
	}
}

/* Sums of a row: *s = sum g, *t = sum g x^. With scales along the row, g = dy scale, and each element adds dy
 * x^ to ds and dy to db (db NULL: not wanted; *s is then not computed). */
static inline __attribute__((always_inline)) void S(norm_row_sums)(const T *dy, const T *x, const T *scale,
								   T mean, T inv, T *ds, T *db, int64_t n,
								   double *s, double *t)
{
	*s = *t = 0;
	for (int64_t b = 0; b < n; b += NORM_BLOCK) {
		const int64_t end = n - b < NORM_BLOCK ? n : b + NORM_BLOCK;
		T u = 0, v = 0;

#pragma omp simd reduction(+:u,v)
		for (int64_t i = b; i < end; i++) {
			T hat = (x[i] - mean) * inv, g = scale ? dy[i] * scale[i] : dy[i];

			if (!scale || db)
				u += g;
			v += g * hat;
			if (scale)
				ds[i] += dy[i] * hat;
			if (scale && db)
				db[i] += dy[i];
		}
		*s += u;
		*t += v;
	}
}

/* Gradient of one row of channels; adds its part of dscale and dbias to ds and db. */
static void S(norm_grad_channels)(const struct dlb_norm_desc *d, int64_t row, const T *dy, const T *x,
				  const T *scale, T mean, T inv, double *ds, double *db, T *dx)
{
	const int64_t n = norm_row_channels(d), len = d->width / n;
	double sum = 0, sum_hat = 0;
	T shift, slope;

	for (int64_t k = 0; k < n; k++) {
		const int64_t c = (row * n + k) % d->channels;
		double s, t;

		S(norm_row_sums)(dy + k * len, x + k * len, NULL, mean, inv, NULL, NULL, len, &s, &t);
		ds[c] += t;
		db[c] += s;
		sum += s * scale[c];
		sum_hat += t * scale[c];
	}
	shift = d->rms ? 0 : (T)(sum / (double)d->width) * inv;
	slope = (T)(sum_hat / (double)d->width) * inv * inv;
	for (int64_t k = 0; k < n && dx; k++) {
		const T by = inv * scale[(row * n + k) % d->channels], *g = dy + k * len, *u = x + k * len;
		T *v = dx + k * len;

#pragma omp simd
		for (int64_t j = 0; j < len; j++)
			v[j] = by * g[j] - shift - (u[j] - mean) * slope;
	}
}

/* Gradient of one row with scales along it; adds its part of dscale and dbias to ds and db. */
static void S(norm_grad_row)(const struct dlb_norm_desc *d, const T *dy, const T *x, const T *scale, T mean,
			     T inv, T *ds, T *db, T *dx)
{
	const int64_t w = d->width;
	double s, t;
	T ms, mt;

	if (d->rms)
		S(norm_row_sums)(dy, x, scale, 0, inv, ds, NULL, w, &s, &t);
	else
		S(norm_row_sums)(dy, x, scale, mean, inv, ds, db, w, &s, &t);
	if (!dx)
		return;
	ms = (T)(s / (double)w);
	mt = (T)(t / (double)w);
#pragma omp simd
	for (int64_t j = 0; j < w; j++)
		dx[j] = inv * (dy[j] * scale[j] - ms - (x[j] - mean) * inv * mt);
}

static void S(norm_grad_part)(const void *ctx, int part, int parts)
{
	const struct norm_job *job = ctx;
	const struct dlb_norm_desc *d = job->d;
	const struct dlb_run *run = job->run;
	const T *scale = run->in[2], *saved_mean = run->in[3], *saved_inv = run->in[4];
	const int64_t entries = norm_entries(d), w = d->width;
	double *sums = norm_sums(d, run, part);		/* dscale, then dbias */
	T *ds = (T *)(sums + 2 * entries), *db = ds + entries;
	const int64_t from = cpu_cut(d->rows, part, parts), end = cpu_cut(d->rows, part + 1, parts);

	memset(sums, 0, 2 * (size_t)entries * (sizeof *sums + sizeof *ds));
	for (int64_t i = from; i < end; i++) {
		const T *dy = (const T *)run->in[0] + i * w, *x = (const T *)run->in[1] + i * w;
		const T mean = d->rms ? 0 : saved_mean[i];
		T *dx = run->out[0] ? (T *)run->out[0] + i * w : NULL;

		if (d->channels) {
			S(norm_grad_channels)
			(d, i, dy, x, scale, mean, saved_inv[i], sums, sums + entries, dx);
			continue;
		}
		S(norm_grad_row)(d, dy, x, scale, mean, saved_inv[i], ds, db, dx);
		if ((i - from) % 32 == 31 || i == end - 1)	/* few terms in T, the rest in double */
#pragma omp simd
			for (int64_t j = 0; j < 2 * entries; j++) {
				sums[j] += ds[j];
				ds[j] = 0;
			}
	}
}

static void S(norm_finish)(const struct dlb_norm_desc *d, const struct dlb_run *run, int parts)
{
	const int64_t entries = norm_entries(d);
	T *const to[2] = { run->out[1], run->out[2] };

	for (int which = 0; which < 2; which++)
		for (int64_t j = 0; j < entries && to[which]; j++) {
			double s = 0;

			for (int p = 0; p < parts; p++)
				s += norm_sums(d, run, p)[which * entries + j];
			to[which][j] = (T)s;
		}
}
#undef NORM_BLOCK
