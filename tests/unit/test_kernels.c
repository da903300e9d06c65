/* test_tags=slow */
/* Kernels of the cpu back end for products, convolution, pooling and normalization, against naive loops in
 * double, over many shapes, both layouts, float and double; bits must not depend on addresses (kernels.h).
 * Gradients are compared with naive loops and, in double, with central differences of the forward kernel. The
 * seed is printed. */
#include "check.h"
#include "kernels.h"

static double tol_of(enum dlb_dtype t) { return t == DLB_F32 ? 3e-5 : 1e-12; }

/* ---- products ---- */
static void one_gemm(enum dlb_dtype t, int64_t m, int64_t n, int64_t k, int64_t batch, bool ta, bool tw,
		     int c_kind, bool weight, double alpha, double beta, bool share_w, bool offsets)
{
	int64_t a_off[8], w_off[8];
	struct dlb_gemm_desc d = { .dtype = t,
				   .m = m,
				   .n = n,
				   .k = k,
				   .n_batch = batch,
				   .trans_a = ta,
				   .trans_w = tw,
				   .has_c = c_kind > 0,
				   .w_is_weight = weight,
				   .alpha = alpha,
				   .beta = beta,
				   .a_batch = m * k,
				   .w_batch = share_w ? 0 : k * n };
	static const int64_t c_of[][2] = { { 0, 0 }, { 0, 1 }, { 1, 0 }, { 0, 0 }, { -1, 1 } };
	struct arg in[3], out[1];
	struct dlb_kernel *kern;
	char what[120];

	in[0] = draw(desc(t, 0, 3, DIMS(batch, m, k)));
	in[1] = draw(desc(t, 0, 3, DIMS(share_w ? 1 : batch, k, n)));
	in[2] = c_kind ? draw(desc(t, 0, 2, DIMS(m, n))) : absent();
	d.c_row = c_of[c_kind][0] < 0 ? n : c_of[c_kind][0];
	d.c_col = c_of[c_kind][1];
	if (c_kind == 2)
		d.c_row = 1;
	out[0] = (struct arg){ desc(t, 0, 3, DIMS(batch, m, n)), zeros(batch * m * n) };
	if (offsets) {				/* batches in reverse order */
		for (int64_t b = 0; b < batch; b++) {
			a_off[b] = (batch - 1 - b) * m * k;
			w_off[b] = share_w ? 0 : b * k * n;
		}
		d.a_off = a_off;
		d.w_off = w_off;
	}
	for (int64_t b = 0; b < batch; b++)
		for (int64_t i = 0; i < m; i++)
			for (int64_t j = 0; j < n; j++) {
				const double *a = in[0].v + (offsets ? batch - 1 - b : b) * m * k,
					     *w = in[1].v + (share_w ? 0 : b * k * n);
				double s = 0;

				for (int64_t l = 0; l < k; l++)
					s += (ta ? a[l * m + i] : a[i * k + l]) *
					     (tw ? w[j * k + l] : w[l * n + j]);
				out[0].v[(b * m + i) * n +
					 j] = alpha * s +
					      (c_kind ? beta * in[2].v[i * d.c_row + j * d.c_col] : 0);
			}
	snprintf(what, sizeof what, "gemm %s %lldx%lldx%lld batch %lld ta %d tw %d c %d weight %d",
		 dlb_dtype_name(t), (long long)m, (long long)n, (long long)k, (long long)batch, ta, tw,
		 c_kind, weight);
	MUST(be.ops->gemm(&be, &d, &kern, &err_));
	check_run(what, kern, in, 3, out, 1, tol_of(t) * sqrt((double)k + 1), NULL, NULL);
	release(in, 3);
	release(out, 1);
}

static void gemms(void)
{
	static const int64_t shapes[][3] = { { 1, 1, 1 },    { 5, 7, 3 },    { 16, 16, 16 }, { 64, 120, 256 },
					     { 33, 10, 84 }, { 1, 65, 40 },  { 31, 1, 17 },  { 128, 10, 1 },
					     { 2, 3, 0 },    { 70, 129, 65 } };

	for (int t = DLB_F32; t <= DLB_F64; t++) {
		for (int s = 0; s < DLB_LEN(shapes); s++)
			for (int flags = 0; flags < 8; flags++)
				one_gemm(t, shapes[s][0], shapes[s][1], shapes[s][2], 1, flags & 1, flags & 2,
					 s % 5, flags & 4, s % 3 ? 1 : 0.5, s % 2 ? 1 : -2, false, false);
		one_gemm(t, 20, 30, 40, 1, false, true, 1, true, 1, 1, false, false); /* Linear with a bias */
		for (int flags = 0; flags < 16; flags++)
			one_gemm(t, 9, 12, 21, 5, flags & 1, flags & 2, 0, false, 1, 0, flags & 4, flags & 8);
		one_gemm(t, 9, 12, 21, 4, false, false, 0, true, 1, 0, true, false);
	}
}

/* A packed weight is reused for the same version, and packed again for another version and for version 0. */
static void weight_versions(void)
{
	struct dlb_gemm_desc d = {
		.dtype = DLB_F32, .m = 48, .n = 80, .k = 64, .n_batch = 1, .w_is_weight = true, .alpha = 1
	};
	struct dlb_kernel *k;
	float *a = be.ops->alloc(&be, 48 * 64 * 4), *w = be.ops->alloc(&be, 64 * 80 * 4),
	      *y = be.ops->alloc(&be, 48 * 80 * 4);
	void *in[] = { a, w, NULL }, *out[] = { y }, *scratch;
	struct dlb_run r = { .in = in, .out = out };

	MUST(be.ops->gemm(&be, &d, &k, &err_));
	scratch = be.ops->alloc(&be, k->scratch_bytes);
	r.scratch = scratch;
	for (int i = 0; i < 48 * 64; i++)
		a[i] = 1;
	for (uint64_t step = 1; step < 6; step++) {
		for (int i = 0; i < 64 * 80; i++)
			w[i] = (float)step;
		r.weight_version = step < 4 ? step : 0;
		k->run(k, &r);
		assert(IS(y[0], ==, 64.0f * (float)step) && IS(y[48 * 80 - 1], ==, 64.0f * (float)step));
	}
	dlb_kernel_free(k);
	be.ops->free(&be, a);
	be.ops->free(&be, w);
	be.ops->free(&be, y);
	be.ops->free(&be, scratch);
}

/* A weight that is packed in scratch at each run: the bits of the kept copy, whatever the version, and the
 * scratch memory that plans count for it (plan/compile.c). */
static void weight_in_scratch(void)
{
	enum { M = 1024, N = 192, K = 256 };		/* oneDNN packs this one */
	struct dlb_gemm_desc d = {
		.dtype = DLB_F32, .m = M, .n = N, .k = K, .n_batch = 1, .w_is_weight = true, .alpha = 1
	};
	struct dlb_kernel *kept, *k;
	struct dlb_rng own;
	float *a = be.ops->alloc(&be, M * K * 4), *w = be.ops->alloc(&be, K * N * 4),
	      *y[] = { be.ops->alloc(&be, M * N * 4), be.ops->alloc(&be, M * N * 4) };
	void *in[] = { a, w, NULL }, *out[1], *scratch;
	struct dlb_run r = { .in = in, .out = out };

	dlb_rng_init(&own, 7);
	MUST(be.ops->gemm(&be, &d, &kept, &err_));
	d.once = true;
	MUST(be.ops->gemm(&be, &d, &k, &err_));
	assert(IS(k->packed_bytes, ==, 0));
	assert(IS(k->scratch_bytes, >=, kept->scratch_bytes + kept->packed_bytes));
	assert(IS(k->scratch_bytes, <=, kept->scratch_bytes + 63 + kept->packed_bytes));
	r.scratch = scratch = be.ops->alloc(&be, k->scratch_bytes + 1);
	for (int i = 0; i < M * K; i++)
		a[i] = (float)dlb_rng_uniform(&own) - 0.5f;
	for (uint64_t step = 1; step < 4; step++) {
		for (int i = 0; i < K * N; i++)
			w[i] = (float)dlb_rng_uniform(&own) - 0.5f;
		r.weight_version = step;
		out[0] = y[0];
		kept->run(kept, &r);
		r.weight_version = 1;
		out[0] = y[1];
		k->run(k, &r);
		assert(!memcmp(y[0], y[1], M * N * 4));
	}
	dlb_kernel_free(kept);
	dlb_kernel_free(k);
	be.ops->free(&be, a);
	be.ops->free(&be, w);
	be.ops->free(&be, y[0]);
	be.ops->free(&be, y[1]);
	be.ops->free(&be, scratch);
}

/* ---- windows over space: shared by convolution and pooling ---- */
struct window { int n_sp; int64_t in[3], out[3], k[3], step[3], dil[3], begin[3], end[3]; };

static int64_t count3(const int64_t *v, int n)
{
	int64_t c = 1;

	for (int i = 0; i < n; i++)
		c *= v[i];
	return c;
}
/* Input position for output position o (both flat, plain) and kernel position k; -1: in the padding. */
static int64_t meets(const struct window *w, int64_t o, int64_t k)
{
	int64_t at = 0, scale = 1;

	for (int i = w->n_sp - 1; i >= 0; i--) {
		int64_t x = o % w->out[i] * w->step[i] - w->begin[i] + k % w->k[i] * w->dil[i];

		if (x < 0 || x >= w->in[i])
			return -1;
		at += x * scale;
		scale *= w->in[i];
		o /= w->out[i];
		k /= w->k[i];
	}
	return at;
}

static struct window random_window(bool pool)
{
	struct window w;

	do {
		w.n_sp = 1 + (int)dlb_rng_below(&rng, 3);
		for (int i = 0; i < 3; i++) {
			w.in[i] = 1 + (int64_t)dlb_rng_below(&rng, w.n_sp == 3 ? 6 : 11);
			w.k[i] = 1 + (int64_t)dlb_rng_below(&rng, 4);
			w.step[i] = 1 + (int64_t)dlb_rng_below(&rng, 3);
			w.dil[i] = dlb_rng_below(&rng, 3) ? 1 : 2;
			w.begin[i] = (int64_t)dlb_rng_below(&rng, pool ? (uint64_t)w.k[i] : 3);
			w.end[i] = (int64_t)dlb_rng_below(&rng, pool ? (uint64_t)w.k[i] : 3);
			w.out[i] = (w.in[i] + w.begin[i] + w.end[i] - (w.k[i] - 1) * w.dil[i] - 1);
			w.out[i] = w.out[i] < 0 ? 0 : w.out[i] / w.step[i] + 1;
		}
	} while (count3(w.out, w.n_sp) == 0);
	return w;
}

static struct dlb_desc spatial(enum dlb_dtype t, enum dlb_layout l, int64_t n, int64_t c, const int64_t *sp,
			       int n_sp)
{
	return desc(t, l, n_sp + 2, DIMS(n, c, sp[0], n_sp > 1 ? sp[1] : 0, n_sp > 2 ? sp[2] : 0));
}

/* ---- convolution ---- */
static void one_conv(enum dlb_dtype t, enum dlb_layout layout, const struct window *w, int64_t n, int64_t cg,
		     int64_t mg, int64_t g, bool bias)
{
	int64_t xi = count3(w->in, w->n_sp), yo = count3(w->out, w->n_sp), kk = count3(w->k, w->n_sp),
		c = cg * g, m = mg * g;
	struct arg x = draw(spatial(t, layout, n, c, w->in, w->n_sp)),
		   wt = draw(spatial(t, 0, m, cg, w->k, w->n_sp));
	struct arg b = bias ? draw(desc(t, 0, 1, &m)) : absent(),
		   dy = draw(spatial(t, layout, n, m, w->out, w->n_sp));
	struct arg y = { dy.d, zeros(n * m * yo) }, dx = { x.d, zeros(n * c * xi) },
		   dw = { wt.d, zeros(m * cg * kk) };
	struct arg db = { bias ? b.d : (struct dlb_desc){ .n_dims = -1 }, bias ? zeros(m) : NULL };
	struct dlb_conv_desc d = {
		.x = x.d, .w = wt.d, .y = y.d, .has_bias = bias, .groups = g, .winograd = true
	};
	char what[200], sx[64], sw[64];

	for (int i = 0; i < w->n_sp; i++) {
		d.stride[i] = w->step[i];
		d.dilation[i] = w->dil[i];
		d.pad_begin[i] = w->begin[i];
		d.pad_end[i] = w->end[i];
	}
	for (int64_t i = 0; i < n; i++)
		for (int64_t o = 0; o < m; o++)
			for (int64_t p = 0; p < yo; p++) {
				double *out = &y.v[(i * m + o) * yo + p], up = dy.v[(i * m + o) * yo + p];

				*out = bias ? b.v[o] : 0;
				if (bias)
					db.v[o] += up;
				for (int64_t ch = 0; ch < cg; ch++)
					for (int64_t k = 0; k < kk; k++) {
						int64_t at = meets(w, p, k),
							xat = (i * c + o / mg * cg + ch) * xi + at,
							wat = (o * cg + ch) * kk + k;

						if (at < 0)
							continue;
						*out += x.v[xat] * wt.v[wat];
						dx.v[xat] += up * wt.v[wat];
						dw.v[wat] += up * x.v[xat];
					}
			}
	for (int dir = 0; dir < 3; dir++) {
		const struct arg in[3][3] = { { x, wt, b }, { dy, wt, absent() }, { dy, x, absent() } };
		const struct arg out[3][2] = { { y, absent() }, { dx, absent() }, { dw, db } };
		struct dlb_kernel *k;

		d.dir = dir;
		snprintf(what, sizeof what,
			 "conv dir %d %s w %s groups %lld bias %d step %lld dil %lld pad %lld,%lld", dir,
			 dlb_desc_str(&x.d, sx, 64), dlb_desc_str(&wt.d, sw, 64), (long long)g, bias,
			 (long long)w->step[0], (long long)w->dil[0], (long long)w->begin[0],
			 (long long)w->end[0]);
		MUST(be.ops->conv(&be, &d, &k, &err_));
		if (t == DLB_F64 && dir == DLB_CONV_FORWARD) {
			check_differences(what, k, in[0], 3, out[0], 2, dy.v, 0, dx.v);
			check_differences(what, k, in[0], 3, out[0], 2, dy.v, 1, dw.v);
			if (bias)
				check_differences(what, k, in[0], 3, out[0], 2, dy.v, 2, db.v);
		}
		check_run(what, k, in[dir], 3, out[dir], 2, tol_of(t) * 4, NULL, NULL);
	}
	free(x.v); free(wt.v); free(b.v); free(dy.v); free(y.v); free(dx.v); free(dw.v); free(db.v);
}

static void convs(void)
{
	static const struct { struct window w; int64_t n, cg, mg, g;
	} fixed[] = {
		/* lenet5 */
		{ { 2, { 28, 28 }, { 28, 28 }, { 5, 5 }, { 1, 1 }, { 1, 1 }, { 2, 2 }, { 2, 2 } },
		  3,
		  1,
		  6,
		  1 },
		{ { 2, { 14, 14 }, { 10, 10 }, { 5, 5 }, { 1, 1 }, { 1, 1 }, { 0 }, { 0 } }, 3, 6, 16, 1 },
		/* resnet20 */
		{ { 2, { 16, 16 }, { 16, 16 }, { 3, 3 }, { 1, 1 }, { 1, 1 }, { 1, 1 }, { 1, 1 } },
		  2,
		  3,
		  16,
		  1 },
		{ { 2, { 16, 16 }, { 8, 8 }, { 3, 3 }, { 2, 2 }, { 1, 1 }, { 1, 1 }, { 1, 1 } },
		  2,
		  16,
		  32,
		  1 },
		{ { 2, { 16, 16 }, { 8, 8 }, { 1, 1 }, { 2, 2 }, { 1, 1 }, { 0 }, { 0 } }, 2, 16, 32, 1 },
		/* depthwise */
		{ { 2, { 9, 9 }, { 9, 9 }, { 3, 3 }, { 1, 1 }, { 1, 1 }, { 1, 1 }, { 1, 1 } }, 2, 1, 1, 24 },
		/* ConvNeXt */
		{ { 2, { 9, 9 }, { 9, 9 }, { 7, 7 }, { 1, 1 }, { 1, 1 }, { 3, 3 }, { 3, 3 } }, 2, 1, 1, 96 },
		{ { 2, { 9, 9 }, { 5, 5 }, { 3, 3 }, { 2, 2 }, { 1, 1 }, { 1, 1 }, { 1, 1 } }, 2, 1, 2, 8 },
		/* unequal pads */
		{ { 2, { 7, 9 }, { 7, 8 }, { 3, 3 }, { 1, 1 }, { 1, 1 }, { 1, 0 }, { 1, 1 } }, 1, 16, 16, 1 },
		/* Winograd's */
		{ { 2, { 16, 16 }, { 16, 16 }, { 3, 3 }, { 1, 1 }, { 1, 1 }, { 1, 1 }, { 1, 1 } },
		  2,
		  32,
		  48,
		  1 },
		{ { 2, { 13, 9 }, { 13, 8 }, { 3, 3 }, { 1, 1 }, { 1, 1 }, { 1, 0 }, { 1, 1 } },
		  5,
		  48,
		  32,
		  1 },
	};

	for (int t = DLB_F32; t <= DLB_F64; t++)
		for (int l = DLB_PLAIN; l <= DLB_CHANNELS_LAST; l++) {
			for (int i = 0; i < DLB_LEN(fixed); i++)
				one_conv(t, l, &fixed[i].w, fixed[i].n, fixed[i].cg, fixed[i].mg, fixed[i].g,
					 i % 2);
			for (int i = 0; i < 30; i++) {	/* depthwise, with full and partial last blocks */
				struct window w = random_window(false);
				static const int64_t groups[] = { 15, 16, 17, 64, 70, 128, 131 };

				one_conv(t, l, &w, 1 + (int64_t)dlb_rng_below(&rng, 3), 1, 1,
					 groups[i % DLB_LEN(groups)], i % 2);
			}
			for (int i = 0; i < 60; i++) {
				struct window w = random_window(false);
				int64_t g = dlb_rng_below(&rng, 2) ? 1 : 1 + (int64_t)dlb_rng_below(&rng, 4);

				one_conv(t, l, &w, 1 + (int64_t)dlb_rng_below(&rng, 3),
					 1 + (int64_t)dlb_rng_below(&rng, 9),
					 1 + (int64_t)dlb_rng_below(&rng, 9), g, i % 2);
			}
		}
}

/* Gradients of weights as products with patches: of a part of the positions at a time, and of all at once. */
static void convs_of_many_channels(void)
{
	static const struct window several = { 2,        { 18, 17 }, { 18, 17 }, { 3, 3 },
					       { 1, 1 }, { 1, 1 },   { 1, 1 },   { 1, 1 } };
	static const struct window one = {
		2, { 9, 5 }, { 9, 5 }, { 1, 1 }, { 1, 1 }, { 1, 1 }, { 0 }, { 0 }
	};

	one_conv(DLB_F32, DLB_CHANNELS_LAST, &several, 3, 64, 67, 1, true);
	one_conv(DLB_F32, DLB_CHANNELS_LAST, &one, 3, 131, 128, 1, false);
	for (int i = 0; i < 24; i++) {
		const struct window w = random_window(false);

		one_conv(DLB_F32, DLB_CHANNELS_LAST, &w, 1 + (int64_t)dlb_rng_below(&rng, 3),
			 64 + (int64_t)dlb_rng_below(&rng, 3), 64 + (int64_t)dlb_rng_below(&rng, 3), 1,
			 i % 2);
	}
}

/* ---- pooling ---- */
static void one_pool(enum dlb_dtype t, enum dlb_layout layout, const struct window *w, int64_t n, int64_t c,
		     bool max, bool include, enum dlb_dtype pos_type)
{
	int64_t xi = count3(w->in, w->n_sp), yo = count3(w->out, w->n_sp), kk = count3(w->k, w->n_sp);
	struct arg x = draw(spatial(t, layout, n, c, w->in, w->n_sp)),
		   dy = draw(spatial(t, layout, n, c, w->out, w->n_sp));
	struct arg y = { dy.d, zeros(n * c * yo) }, pos = { dy.d, zeros(n * c * yo) },
		   dx = { x.d, zeros(n * c * xi) };
	struct dlb_pool_desc d = {
		.max = max, .count_include_pad = include, .x = x.d, .y = y.d, .pos = pos_type
	};
	struct dlb_kernel *k;
	char what[200], sx[64];

	pos.d.dtype = pos_type;
	for (int i = 0; i < w->n_sp; i++) {
		d.kernel[i] = w->k[i];
		d.stride[i] = w->step[i];
		d.dilation[i] = w->dil[i];
		d.pad_begin[i] = w->begin[i];
		d.pad_end[i] = w->end[i];
	}
	if (max)					/* ties: the first wins */
		for (int64_t i = 0; i < n * c * xi; i++)
			x.v[i] = floor(4 * x.v[i]) / 4;
	for (int64_t i = 0; i < n * c; i++)
		for (int64_t p = 0; p < yo; p++) {
			double most = -INFINITY, sum = 0, valid = 0;
			int64_t at = -1, first = -1;

			for (int64_t q = 0; q < kk; q++) {
				int64_t m = meets(w, p, q);

				if (m < 0)
					continue;
				first = first < 0 ? q : first;
				valid++;
				sum += x.v[i * xi + m];
				if (x.v[i * xi + m] > most) {
					most = x.v[i * xi + m];
					at = q;
				}
			}
			if (max) {
				y.v[i * yo + p] = most;
				pos.v[i * yo + p] = (double)at;
				if (at >= 0)
					dx.v[i * xi + meets(w, p, at)] += dy.v[i * yo + p];
				else
					pos.v[i * yo + p] = 0;	/* the whole window is padding */
			} else {
				double by = include ? (double)kk : valid > 0 ? valid : 1;

				y.v[i * yo + p] = sum / by;
				for (int64_t q = 0; q < kk; q++)
					if (meets(w, p, q) >= 0)
						dx.v[i * xi + meets(w, p, q)] += dy.v[i * yo + p] / by;
			}
		}
	snprintf(what, sizeof what, "%s pool %s kernel %lld,%lld step %lld", max ? "max" : "average",
		 dlb_desc_str(&x.d, sx, 64), (long long)w->k[0], (long long)w->k[1], (long long)w->step[0]);
	MUST(be.ops->pool(&be, &d, &k, &err_));
	if (t == DLB_F64 && !max)
		check_differences(what, k, &x, 1, &y, 1, dy.v, 0, dx.v);
	check_run(what, k, &x, 1, (struct arg[]){ y, max ? pos : absent() }, 2, tol_of(t), NULL, NULL);
	if (max) {
		MUST(be.ops->pool(&be, &d, &k, &err_));
		check_run(what, k, &x, 1, (struct arg[]){ y, absent() }, 2, tol_of(t), NULL, NULL);
	}
	d.backward = true;
	MUST(be.ops->pool(&be, &d, &k, &err_));
	check_run(what, k, (struct arg[]){ dy, max ? pos : absent() }, 2, &dx, 1, tol_of(t), NULL, NULL);
	free(x.v); free(dy.v); free(y.v); free(pos.v); free(dx.v);
}

static void pools(void)
{
	static const struct window two = {
		2, { 12, 10 }, { 6, 5 }, { 2, 2 }, { 2, 2 }, { 1, 1 }, { 0 }, { 0 }
	};
	static const struct window three = { 2,        { 13, 13 }, { 7, 7 }, { 3, 3 },
					     { 2, 2 }, { 1, 1 },   { 1, 1 }, { 1, 1 } };
	static const int64_t channels[] = { 1, 3, 6, 16, 64, 70, 130 };

	for (int t = DLB_F32; t <= DLB_F64; t++)
		for (int l = DLB_PLAIN; l <= DLB_CHANNELS_LAST; l++)
			for (int max = 0; max < 2; max++) {
				for (int i = 0; i < DLB_LEN(channels); i++) {
					one_pool(t, l, &two, 2, channels[i], max, false,
						 i % 2 ? DLB_U8 : DLB_I32);
					one_pool(t, l, &three, 2, channels[i], max, i % 2,
						 i % 2 ? DLB_I32 : DLB_U8);
				}
				for (int i = 0; i < 40; i++) {
					struct window w = random_window(true);

					one_pool(t, l, &w, 1 + (int64_t)dlb_rng_below(&rng, 3),
						 1 + (int64_t)dlb_rng_below(&rng, 20), max, i % 2,
						 i % 3 ? DLB_U8 : DLB_I32);
				}
			}
}

/* ---- batch normalization ---- */
static void one_bn(struct dlb_desc dx, bool unbiased, double offset)
{
	enum dlb_dtype t = dx.dtype;
	int64_t n = dx.dim[0], c = dx.dim[1], s = dlb_desc_count(&dx) / (n * c), all = n * s;
	struct dlb_desc per = desc(t, 0, 1, &c);
	struct arg x = draw(dx), dy = draw(dx), scale = draw(per), bias = draw(per), mean = draw(per),
		   var = draw(per);
	struct arg y = { dx, zeros(n * c * s) }, rm = { per, zeros(c) }, rv = { per, zeros(c) },
		   sm = { per, zeros(c) }, si = { per, zeros(c) };
	struct arg gx = { dx, zeros(n * c * s) }, gs = { per, zeros(c) }, gb = { per, zeros(c) };
	struct arg yi = { dx, zeros(n * c * s) }, hx = { dx, zeros(n * c * s) }, hs = { per, zeros(c) };
	struct dlb_bn_desc d = { .x = dx, .epsilon = 1e-5, .momentum = 0.9, .unbiased = unbiased };
	double tol = tol_of(t) * (1 + offset);
	struct dlb_kernel *k;
	char what[100];

	dlb_desc_str(&dx, what, sizeof what);
	for (int64_t i = 0; i < n * c * s; i++)
		x.v[i] = rounded(t, x.v[i] + offset);
	for (int64_t ch = 0; ch < c; ch++) {
		double m = 0, v = 0, sum = 0, dot = 0, dot2 = 0, is, iv;

		var.v[ch] = rounded(t, fabs(var.v[ch]) + 0.5);
#define EACH(i) for (int64_t i_ = 0, i = ch * s; i_ < all; i_++, i = (i_ / s * c + ch) * s + i_ % s)
		EACH(i)
			m += x.v[i] / (double)all;
		EACH(i)
			v += (x.v[i] - m) * (x.v[i] - m) / (double)all;
		is = 1 / sqrt(v + d.epsilon);
		iv = 1 / sqrt(var.v[ch] + d.epsilon);
		/* the gradient kernel reads the statistics that the forward kernel saved */
		sm.v[ch] = rounded(t, m);
		si.v[ch] = rounded(t, is);
		rm.v[ch] = mean.v[ch] * 0.9 + m * 0.1;
		rv.v[ch] = var.v[ch] * 0.9 +
			   (unbiased && all > 1 ? v * (double)all / (double)(all - 1) : v) * 0.1;
		EACH(i) {
			y.v[i] = (x.v[i] - m) * is * scale.v[ch] + bias.v[ch];
			yi.v[i] = (x.v[i] - mean.v[ch]) * iv * scale.v[ch] + bias.v[ch];
			sum += dy.v[i];
			dot += dy.v[i] * (x.v[i] - sm.v[ch]) * si.v[ch];
			dot2 += dy.v[i] * (x.v[i] - mean.v[ch]) * iv;
		}
		gs.v[ch] = dot;
		gb.v[ch] = sum;
		hs.v[ch] = dot2;
		EACH(i) {
			gx.v[i] = scale.v[ch] * si.v[ch] *
				  (dy.v[i] - sum / (double)all -
				   (x.v[i] - sm.v[ch]) * si.v[ch] * dot / (double)all);
			hx.v[i] = scale.v[ch] * iv * dy.v[i];
		}
	}
	/* a variance near 0 magnifies rounding: compare only if the batch is large enough */
	if (all >= 8) {
		d.dir = DLB_BN_TRAIN;
		MUST(be.ops->batch_norm(&be, &d, &k, &err_));
		if (t == DLB_F64) {
			const double *const grads[] = { gx.v, gs.v, gb.v };

			for (int wrt = 0; wrt < 3; wrt++)
				check_differences(what, k, (struct arg[]){ x, scale, bias, mean, var }, 5,
						  (struct arg[]){ y, rm, rv, sm, si }, 5, dy.v, wrt,
						  grads[wrt]);
		}
		check_run(what, k, (struct arg[]){ x, scale, bias, mean, var }, 5,
			  (struct arg[]){ y, rm, rv, sm, si }, 5, tol * 4, NULL, NULL);
	}
	d.dir = DLB_BN_GRAD;
	MUST(be.ops->batch_norm(&be, &d, &k, &err_));
	check_run(what, k, (struct arg[]){ dy, x, scale, sm, si }, 5, (struct arg[]){ gx, gs, gb }, 3,
		  all < 8 ? 1 : tol * 4, NULL, NULL);
	d.dir = DLB_BN_INFER;
	MUST(be.ops->batch_norm(&be, &d, &k, &err_));
	check_run(what, k, (struct arg[]){ x, scale, bias, mean, var }, 5, &yi, 1, tol, NULL, NULL);
	d.dir = DLB_BN_GRAD_INFER;
	MUST(be.ops->batch_norm(&be, &d, &k, &err_));
	check_run(what, k, (struct arg[]){ dy, x, scale, mean, var }, 5, (struct arg[]){ hx, hs, gb }, 3, tol,
		  NULL, NULL);
	for (int i = 0; i < 16; i++)
		free((double *[]){ x.v, dy.v, scale.v, bias.v, mean.v, var.v, y.v, rm.v, rv.v, sm.v, si.v,
				   gx.v, gs.v, gb.v, yi.v, hx.v }[i]);
	free(hs.v);
}

static void batch_norms(void)
{
	for (int t = DLB_F32; t <= DLB_F64; t++)
		for (int l = DLB_PLAIN; l <= DLB_CHANNELS_LAST; l++) {
			static const int64_t shapes[][5] = { { 4, 16, 8, 8 },  { 3, 5, 7, 9 },
							     { 2, 64, 5, 5 },  { 1, 3, 4, 4 },
							     { 2, 200, 3, 3 }, { 8, 16, 32, 32 },
							     { 5, 33, 1, 1 } };

			for (int i = 0; i < DLB_LEN(shapes); i++)
				one_bn(desc(t, l, 4, shapes[i]), i % 2, i % 3 * 3.0);
			one_bn(desc(t, l, 2, DIMS(40, 30)), false, 0);
			one_bn(desc(t, l, 3, DIMS(4, 6, 11)), true, 10);
			one_bn(desc(t, l, 5, DIMS(2, 6, 3, 2, 5)), false, 0);
		}
}

/* of libgomp and OpenBLAS */
int omp_get_max_threads(void);
int openblas_get_num_threads(void);

/* A back end that is opened and closed beside another one leaves its threads as they were. */
static void threads(void)
{
	const struct dlb_backend_ops *ops = dlb_backend_find("cpu");
	const int omp = omp_get_max_threads(), openblas = openblas_get_num_threads();
	struct dlb_backend two, one;
	struct dlb_error err;

	assert(IS(ops->open(0, 2, &two, &err), ==, 0) && IS(ops->open(0, 1, &one, &err), ==, 0));
	assert(IS(omp_get_max_threads(), ==, 1) && IS(openblas_get_num_threads(), ==, 1));
	ops->close(&one);
	assert(IS(omp_get_max_threads(), ==, 2) && IS(openblas_get_num_threads(), ==, 2));
	ops->close(&two);
	assert(IS(omp_get_max_threads(), ==, omp) && IS(openblas_get_num_threads(), ==, openblas));
}

/* Neither rows nor columns of a are contiguous: no kernel of the cpu's may read it as a matrix that lies
 * by rows or by columns. A single row is such a matrix, by columns. */
static void product_of_spread(void)
{
	for (int rows = 1; rows <= 2; rows++) {
		const struct dlb_product_desc d = { .dtype = DLB_F64,
						    .n_dims = 3,
						    .dim = { 1, rows, 2 },
						    .k = 2,
						    .a = { 8, 4, 2 },
						    .w = { 4, 2, 1 },
						    .y = { 4, 2, 1 },
						    .alpha = 1 };
		struct dlb_error err = { .what = "" };
		struct dlb_kernel *k = NULL;

		assert(IS(be.ops->product(&be, &d, &k, &err), ==, (rows == 1 ? 0 : DLB_NO_KERNEL)));
		dlb_kernel_free(k);
	}
}

int main(void)
{
	struct dlb_error err;

	assert(dlb_backend_find("cpu") && !dlb_backend_find("abacus"));
	assert(IS(dlb_backend_find("cpu")->open(1, 1, &be, &err), ==, -1));
	threads();
	begin_tests(20261121);
	if (be.ops->is_host_memory)
		product_of_spread();
	/* every level of the instruction set that this machine has */
	for (int i = 0; use_level(i); i++) {
		gemms();
		weight_versions();
		weight_in_scratch();
		convs();
		convs_of_many_channels();
		pools();
		batch_norms();
	}
	be.ops->close(&be);
	printf("%ld kernels (products, convolutions, pools, batch normalizations) agree with naive loops and "
	       "keep their bits at five addresses\n",
	       n_checks);
	return 0;
}
