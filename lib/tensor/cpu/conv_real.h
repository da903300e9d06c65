/* Convolution of type T by im2col and GEMM, image by image and group by group; included by conv.c. col is
 * (taps, positions): col[t][p] = the input under tap t of the kernel at output position p.
 *   y (mg,P) = w (mg,taps) col;   dcol = w^T dy;   dw += dy col^T
 * If y's channels are the faster dimension (channels-last), the same products are computed transposed. */

/* Rows of col are `row` elements apart, at least `positions`. */
static void S(im2col)(const struct conv_kernel *c, const T *x, T *col, int64_t row)
{
	for (int64_t ch = 0; ch < c->cg; ch++)
		for (int64_t kd = 0; kd < c->size[0]; kd++)
			for (int64_t kh = 0; kh < c->size[1]; kh++)
				for (int64_t kw = 0; kw < c->size[2]; kw++, col += row - c->positions)
					for (int64_t od = 0; od < c->out[0]; od++)
						for (int64_t oh = 0; oh < c->out[1]; oh++) {
							int64_t d = conv_source(c, 0, od, kd),
								h = conv_source(c, 1, oh, kh);
							const T *from = x + ch * c->xc + d * c->xs[0] +
									h * c->xs[1];

							for (int64_t ow = 0; ow < c->out[2]; ow++) {
								int64_t w = conv_source(c, 2, ow, kw);

								*col++ = d < 0 || h < 0 || w < 0 ?
										 0 :
										 from[w * c->xs[2]];
							}
						}
}

static void S(col2im)(const struct conv_kernel *c, const T *col, T *x)
{
	for (int64_t ch = 0; ch < c->cg; ch++)
		for (int64_t kd = 0; kd < c->size[0]; kd++)
			for (int64_t kh = 0; kh < c->size[1]; kh++)
				for (int64_t kw = 0; kw < c->size[2]; kw++)
					for (int64_t od = 0; od < c->out[0]; od++)
						for (int64_t oh = 0; oh < c->out[1]; oh++) {
							int64_t d = conv_source(c, 0, od, kd),
								h = conv_source(c, 1, oh, kh);
							T *row = x + ch * c->xc + d * c->xs[0] + h * c->xs[1];

							for (int64_t ow = 0; ow < c->out[2]; ow++, col++) {
								int64_t w = conv_source(c, 2, ow, kw);

								if (d >= 0 && h >= 0 && w >= 0)
									row[w * c->xs[2]] += *col;
							}
						}
}

static void S(conv_forward)(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct conv_kernel *c = (struct conv_kernel *)k;
	const T *bias = c->d.has_bias ? r->in[2] : NULL;
	int p = (int)c->positions, m = (int)c->mg, t = (int)c->taps;
	T *col = r->scratch;
	const struct cpu_matmul rows = { .m = m, .n = p, .k = t, .lda = t, .ldw = p, .ldy = conv_row(c),
					 .add = true, .alpha = 1 };
	const struct cpu_matmul columns = { .m = p, .n = m, .k = t, .lda = p, .ldw = t, .ldy = conv_row(c),
					    .trans_a = true, .trans_w = true, .add = true, .alpha = 1 };

	for (int64_t i = 0; i < c->n * c->g; i++) {
		int64_t n = i / c->g, g = i % c->g;
		const T *w = (const T *)r->in[1] + g * c->mg * c->taps;
		T *y = (T *)r->out[0] + n * c->yn + g * c->mg * c->ym;

		for (int64_t o = 0; o < c->mg; o++)
			for (int64_t q = 0; q < c->positions; q++)
				y[o * c->ym + q * c->yp] = bias ? bias[g * c->mg + o] : 0;
		if (!p || !m || !t)
			continue;
		S(im2col)(c, (const T *)r->in[0] + n * c->xn + g * c->cg * c->xc, col, p);
		if (c->yp == 1)
			GEMM(&rows, w, col, y);
		else
			GEMM(&columns, col, w, y);
	}
}

static void S(conv_grad_input)(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct conv_kernel *c = (struct conv_kernel *)k;
	int p = (int)c->positions, m = (int)c->mg, t = (int)c->taps;
	T *col = r->scratch, *dx = r->out[0];
	const struct cpu_matmul product = { .m = t, .n = p, .k = m, .lda = t, .ldw = conv_row(c), .ldy = p,
					    .trans_a = true, .trans_w = c->yp != 1, .alpha = 1 };

	memset(dx, 0, dlb_desc_bytes(&c->d.x));
	for (int64_t i = 0; i < c->n * c->g && p && m && t; i++) {
		int64_t n = i / c->g, g = i % c->g;
		const T *w = (const T *)r->in[1] + g * c->mg * c->taps;
		const T *dy = (const T *)r->in[0] + n * c->yn + g * c->mg * c->ym;

		GEMM(&product, w, dy, col);
		S(col2im)(c, col, dx + n * c->xn + g * c->cg * c->xc);
	}
}

static void S(conv_grad_weight)(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct conv_kernel *c = (struct conv_kernel *)k;
	int p = (int)c->positions, m = (int)c->mg, t = (int)c->taps;
	T *col = r->scratch, *dw = r->out[0], *db = c->d.has_bias ? r->out[1] : NULL;
	const struct cpu_matmul product = { .m = m, .n = t, .k = p, .lda = conv_row(c), .ldw = p, .ldy = t,
					    .trans_a = c->yp != 1, .trans_w = true, .add = true, .alpha = 1 };

	memset(dw, 0, dlb_desc_bytes(&c->d.w));
	for (int64_t i = 0; i < c->n * c->g && p && m && t; i++) {
		int64_t n = i / c->g, g = i % c->g;
		const T *dy = (const T *)r->in[0] + n * c->yn + g * c->mg * c->ym;

		S(im2col)(c, (const T *)r->in[1] + n * c->xn + g * c->cg * c->xc, col, p);
		GEMM(&product, dy, col, dw + g * c->mg * c->taps);
	}
	for (int64_t o = 0; db && o < c->g * c->mg; o++) {
		double sum = 0;

		for (int64_t n = 0; n < c->n; n++)
			for (int64_t q = 0; q < c->positions; q++)
				sum += ((const T *)r->in[0])[n * c->yn + o * c->ym + q * c->yp];
		db[o] = (T)sum;
	}
}
