/* bf16: rounding, exhaustively where possible; and every kernel of a back end with bf16 operands against
 * the same kernel with f32 and the same values: the error is at most 2^-8 of the result's norm (bf16
 * has 8 bits, so rounding errs by at most 2^-9 of each element). At every level of the instruction set. */
#include "check.h"
#include "kernels.h"

#include "op/op.h"
#include "tensor/cpu/bf16.h"

/* ---- rounding ---- */
static float float_of(uint32_t u)
{
	float v;

	memcpy(&v, &u, sizeof v);
	return v;
}

static void one_rounding(uint32_t u)
{
	const float v = float_of(u);
	const uint16_t got = bf16_round(v), down = (uint16_t)(u >> 16), up = (uint16_t)(down + 1);
	uint16_t want, stored;

	if (isnan(v)) {
		assert(isnan(bf16_widen(got)) && (got & 0x40) && IS((got >> 15), ==, (u >> 31)));
		return;
	}
	/* up: the next number away from zero, infinity after the last; ties go to the even one */
	const uint32_t rest = u & 0xffff;
	want = rest > 0x8000 || (rest == 0x8000 && (down & 1)) ? up : down;
	assert(IS(got, ==, want));
	dlb_value_set(&stored, DLB_BF16, 0, v);
	assert(IS(stored, ==, want) && IS((double)bf16_widen(got), ==, dlb_value_real(&stored, DLB_BF16, 0)));
}

static void rounding(void)
{
	uint16_t row[1000];
	float wide[1000];

	for (uint32_t h = 0; h < 65536; h++) {
		static const uint32_t low[] = { 0, 1, 0x7fff, 0x8000, 0x8001, 0xffff };
		for (int i = 0; i < DLB_LEN(low); i++)
			one_rounding(h << 16 | low[i]);	/* includes zeros, denormals, infinities and NaN */
		if (!isnan(bf16_widen((uint16_t)h)))
			assert(IS(bf16_round(bf16_widen((uint16_t)h)), ==, h));
	}
	for (int i = 0; i < 2000000; i++)
		one_rounding((uint32_t)dlb_rng_below(&rng, UINT64_C(1) << 32));
	for (int i = 0; i < 1000; i++)
		wide[i] = float_of((uint32_t)dlb_rng_below(&rng, UINT64_C(1) << 32));
	bf16_round_row(row, wide, 1000);
	for (int i = 0; i < 1000; i++)
		assert(IS(row[i], ==, bf16_round(wide[i])));
}

/* ---- kernels ---- */
/* d: with f32; mixed: as the bf16 kernel sees it */
struct operand { struct dlb_desc d; bool bf16; void *f32, *mixed; };

static struct operand operand(struct dlb_desc d, bool bf16)
{
	struct operand o = { d, bf16 && d.dtype == DLB_F32, NULL, NULL };
	const int64_t n = d.n_dims < 0 ? 0 : dlb_desc_count(&d);

	if (d.n_dims < 0)
		return o;
	o.f32 = room(dlb_desc_bytes(&d) + 64);
	o.mixed = room(dlb_desc_bytes(&d) + 64);
	for (int64_t i = 0; i < n; i++) {
		uint16_t h;
		double v = d.dtype == DLB_BOOL ? (double)dlb_rng_below(&rng, 2) :
						 2 * dlb_rng_uniform(&rng) - 1;

		if (d.dtype == DLB_F32) {
			dlb_value_set(&h, DLB_BF16, 0, v);
			v = dlb_value_real(&h, DLB_BF16, 0);
		}
		dlb_value_set(o.f32, d.dtype, i, v);
		dlb_value_set(o.mixed, o.bf16 ? DLB_BF16 : d.dtype, i, v);
	}
	return o;
}

static struct operand f32s(int n, const int64_t *dim)
{
	return operand(desc(DLB_F32, DLB_PLAIN, n, dim), false);
}
static struct operand bf16s(int n, const int64_t *dim)
{
	return operand(desc(DLB_F32, DLB_PLAIN, n, dim), true);
}
static struct operand of(struct dlb_desc d) { return operand(d, true); }
static struct operand none(void) { return operand((struct dlb_desc){ .n_dims = -1 }, false); }

/* The descriptor for the bf16 kernel. */
static struct dlb_desc told(const struct operand *o)
{
	struct dlb_desc d = o->d;

	d.dtype = o->bf16 ? DLB_BF16 : d.dtype;
	return d;
}

static void run_once(struct dlb_kernel *k, struct operand *in, int n_in, struct operand *out, int n_out,
		     bool mixed)
{
	void *p_in[8], *p_out[8], *scratch = room(k->scratch_bytes + 64);

	for (int i = 0; i < n_in; i++)
		p_in[i] = mixed ? in[i].mixed : in[i].f32;
	for (int i = 0; i < n_out; i++)
		p_out[i] = mixed ? out[i].mixed : out[i].f32;
	const struct dlb_run r = { .in = p_in, .out = p_out, .scratch = scratch, .weight_version = 3 };
	k->run(k, &r);
	assert(!be.ops->sync(&be, NULL));
	free(scratch);
	dlb_kernel_free(k);
}

/* Runs both kernels (takes them and the operands) and compares the outputs. */
static void both(const char *what, struct dlb_kernel *f32, struct dlb_kernel *bf16, struct operand *in,
		 int n_in, struct operand *out, int n_out)
{
	run_once(f32, in, n_in, out, n_out, false);
	run_once(bf16, in, n_in, out, n_out, true);
	for (int o = 0; o < n_out; o++) {
		const struct dlb_desc d = told(&out[o]);
		double error = 0, norm = 0;

		for (int64_t i = 0, n = d.n_dims < 0 ? 0 : dlb_desc_count(&d); i < n; i++) {
			const double want = dlb_value_real(out[o].f32, out[o].d.dtype, i),
				     e = dlb_value_real(out[o].mixed, d.dtype, i) - want;
			error += e * e;
			norm += want * want;
		}
		if (!(sqrt(error) <= 0x1p-8 * sqrt(norm))) {
			fprintf(stderr, "%s: output %d: error %g of norm %g\n", what, o, sqrt(error),
				sqrt(norm));
			abort();
		}
		n_checks++;
	}
	for (int i = 0; i < n_in + n_out; i++) {
		struct operand *o = i < n_in ? &in[i] : &out[i - n_in];
		free(o->f32);
		free(o->mixed);
	}
}

static void one_gemm(int64_t m, int64_t n, int64_t k, int64_t batch, int how)
{
	int64_t off[8];
	struct dlb_gemm_desc d = { .m = m,
				   .n = n,
				   .k = k,
				   .n_batch = batch,
				   .trans_a = how & 1,
				   .trans_w = how >> 1 & 1,
				   .has_c = how >> 2 & 1,
				   .w_is_weight = how >> 3 & 1,
				   .alpha = how >> 4 & 1 ? 0.5 : 1,
				   .beta = 1,
				   .c_col = 1,
				   .a_batch = m * k,
				   .w_batch = k * n },
			     e;
	struct dlb_kernel *f32, *bf16;

	e = d;
	e.dtype = DLB_BF16;
	e.a_f32 = how >> 5 & 1;
	e.w_f32 = how >> 6 & 1;
	e.y_f32 = how >> 7 & 1;
	if (how >> 8 & 1) {
		for (int64_t b = 0; b < batch; b++)
			off[b] = (batch - 1 - b) * m * k;
		d.a_off = e.a_off = off;
	}
	struct operand in[3] = { operand(desc(DLB_F32, 0, 3, DIMS(batch, m, k)), !e.a_f32),
		operand(desc(DLB_F32, 0, 3, DIMS(batch, k, n)), !e.w_f32), f32s(1, DIMS(n)) };
	struct operand out[1] = { operand(desc(DLB_F32, 0, 3, DIMS(batch, m, n)), !e.y_f32) };
	MUST(be.ops->gemm(&be, &d, &f32, &err_));
	MUST(be.ops->gemm(&be, &e, &bf16, &err_));
	both("gemm", f32, bf16, in, 3, out, 1);
}

static void gemms(void)
{
	for (int how = 0; how < 512; how += 1) {
		one_gemm(33, 20, 17, 1 + how % 3, how);
		if (how % 7 == 0)
			one_gemm(64, 48, 96, 2, how);
	}
	static const int odd[] = { 0, 1, 2, 3, 4, 5, 6, 7, 1 | 32, 2 | 64, 4 | 96, 128, 3 | 224 };
	for (int i = 0; i < (int)(sizeof odd / sizeof *odd); i++) /* rows of odd length, used often */
		one_gemm(259, 301, 263, 1, odd[i]);
}

static void one_conv(enum dlb_conv_dir dir, enum dlb_layout l, int64_t c, int64_t m, int64_t groups,
		     int64_t stride, bool bias)
{
	const int64_t h = 11, o = (h + 2 - 3) / stride + 1;
	struct dlb_conv_desc d = { .dir = dir,
				   .x = desc(DLB_F32, l, 4, DIMS(3, c, h, h)),
				   .w = desc(DLB_F32, 0, 4, DIMS(m, c / groups, 3, 3)),
				   .y = desc(DLB_F32, l, 4, DIMS(3, m, o, o)),
				   .has_bias = bias,
				   .groups = groups,
				   .stride = { stride, stride, 1 },
				   .dilation = { 1, 1, 1 },
				   .pad_begin = { 1, 1 },
				   .pad_end = { 1, 1 } },
			     e = d;
	struct operand x = of(d.x), y = of(d.y), w = operand(d.w, false);
	struct operand b = bias || dir != DLB_CONV_GRAD_WEIGHT ? f32s(1, DIMS(m)) : none();
	struct dlb_kernel *f32, *bf16;

	e.x.dtype = e.y.dtype = DLB_BF16;
	MUST(be.ops->conv(&be, &d, &f32, &err_));
	MUST(be.ops->conv(&be, &e, &bf16, &err_));
	if (dir == DLB_CONV_FORWARD)
		both("conv", f32, bf16, (struct operand[]){ x, w, b }, 3, &y, 1);
	else if (dir == DLB_CONV_GRAD_INPUT)
		both("conv, gradient of the input", f32, bf16, (struct operand[]){ y, w, b }, 3, &x, 1);
	else
		both("conv, gradient of the weight", f32, bf16, (struct operand[]){ y, x }, 2,
		     (struct operand[]){ w, b }, 2);
}

static void convs(void)
{
	for (int dir = DLB_CONV_FORWARD; dir <= DLB_CONV_GRAD_WEIGHT; dir++)
		for (int l = DLB_PLAIN; l <= DLB_CHANNELS_LAST; l++)
			for (int s = 1; s <= 2; s++) {
				one_conv(dir, l, 16, 32, 1, s, dir != DLB_CONV_GRAD_INPUT);
				one_conv(dir, l, 3, 7, 1, s, false);
				one_conv(dir, l, 8, 8, 8, s, dir != DLB_CONV_GRAD_INPUT);
			}
}

static void one_norm(enum dlb_bn_dir dir, struct dlb_desc x)
{
	struct dlb_bn_desc d = { .dir = dir, .x = x, .epsilon = 1e-5, .momentum = 0.9 }, e = d;
	const bool grad = dir == DLB_BN_GRAD || dir == DLB_BN_GRAD_INFER;
	struct operand in[5] = { of(x), none(), f32s(1, &x.dim[1]), f32s(1, &x.dim[1]), f32s(1, &x.dim[1]) };
	struct operand out[5] = { of(x), f32s(1, &x.dim[1]), f32s(1, &x.dim[1]), f32s(1, &x.dim[1]),
				  f32s(1, &x.dim[1]) };
	struct dlb_kernel *f32, *bf16;

	in[1] = grad ? of(x) : f32s(1, &x.dim[1]);
	for (int64_t i = 0; i < x.dim[1]; i++) {		/* a variance, or a value computed from one */
		float v = 0.5f + fabsf(((float *)in[4].f32)[i]);
		((float *)in[4].f32)[i] = ((float *)in[4].mixed)[i] = v;
	}
	e.x.dtype = DLB_BF16;
	MUST(be.ops->batch_norm(&be, &d, &f32, &err_));
	MUST(be.ops->batch_norm(&be, &e, &bf16, &err_));
	both("batch normalization", f32, bf16, in, 5, out, grad ? 3 : dir == DLB_BN_TRAIN ? 5 : 1);
	for (int i = grad ? 3 : dir == DLB_BN_TRAIN ? 5 : 1; i < 5; i++) {
		free(out[i].f32);
		free(out[i].mixed);
	}
}

static void norms(void)
{
	for (int dir = DLB_BN_TRAIN; dir <= DLB_BN_GRAD_INFER; dir++) {
		one_norm(dir, desc(DLB_F32, DLB_CHANNELS_LAST, 4, DIMS(4, 24, 9, 7)));
		one_norm(dir, desc(DLB_F32, DLB_PLAIN, 4, DIMS(4, 5, 9, 7)));
		one_norm(dir, desc(DLB_F32, DLB_PLAIN, 2, DIMS(40, 19)));
		one_norm(dir, desc(DLB_F32, DLB_CHANNELS_LAST, 4, DIMS(3, 264, 5, 7)));
	}
}

static void one_pool(bool max, enum dlb_layout l, int64_t c)
{
	struct dlb_pool_desc d = { .max = max,
				   .x = desc(DLB_F32, l, 4, DIMS(3, c, 9, 9)),
				   .y = desc(DLB_F32, l, 4, DIMS(3, c, 5, 5)),
				   .pos = DLB_U8,
				   .kernel = { 3, 3, 1 },
				   .stride = { 2, 2, 1 },
				   .dilation = { 1, 1, 1 },
				   .pad_begin = { 1, 1 },
				   .pad_end = { 1, 1 } };
	struct dlb_desc p = desc(DLB_U8, l, 4, DIMS(3, c, 5, 5));
	struct dlb_kernel *f32, *bf16;

	for (int backward = 0; backward < 2; backward++) {
		struct operand x = of(d.x), y = of(d.y), pos = operand(p, false);
		struct dlb_pool_desc e;

		d.backward = backward;
		/* the middle of the window is always inside */
		for (int64_t i = 0; i < dlb_desc_count(&p); i++)
			((uint8_t *)pos.f32)[i] = ((uint8_t *)pos.mixed)[i] = 4;
		e = d;
		e.x.dtype = e.y.dtype = DLB_BF16;
		MUST(be.ops->pool(&be, &d, &f32, &err_));
		MUST(be.ops->pool(&be, &e, &bf16, &err_));
		if (backward)
			both("pool, gradient", f32, bf16, (struct operand[]){ y, pos }, 2, &x, 1);
		else
			both("pool", f32, bf16, &x, 1, (struct operand[]){ y, pos }, 2);
	}
}

static void pools(void)
{
	for (int l = DLB_PLAIN; l <= DLB_CHANNELS_LAST; l++)
		for (int64_t c = 3; c <= 32; c += 29) {
			one_pool(true, l, c);
			one_pool(false, l, c);
		}
}

static void softmaxes(void)
{
	for (int how = 0; how < 8; how++) {
		struct dlb_softmax_desc d = { .log = how & 1,
					      .backward = how >> 1 & 1,
					      .outer = 37,
					      .axis = 65,
					      .inner = how >> 2 ? 3 : 1 },
					e = d;
		const int64_t n[] = { d.outer, d.axis, d.inner };
		struct operand in[2] = { bf16s(3, n), d.backward ? bf16s(3, n) : none() }, out = bf16s(3, n);
		struct dlb_kernel *f32, *bf16;

		e.dtype = DLB_BF16;
		MUST(be.ops->softmax(&be, &d, &f32, &err_));
		MUST(be.ops->softmax(&be, &e, &bf16, &err_));
		both("softmax", f32, bf16, in, 2, &out, 1);
	}
}

static void one_map(enum dlb_map_fn fn, int n_in, struct operand a, struct operand b, struct operand c,
		    struct operand out)
{
	struct dlb_map_desc d = { .fn = fn,
				  .n_in = n_in,
				  .in = { a.d, b.d, c.d },
				  .out = out.d,
				  .alpha = 0.5,
				  .beta = 0.25 },
			    e = d;
	struct operand in[3] = { a, b, c };
	struct dlb_kernel *f32, *bf16;

	for (int i = 0; i < 3; i++)
		e.in[i] = told(&in[i]);
	e.out = told(&out);
	MUST(be.ops->map(&be, &d, &f32, &err_));
	MUST(be.ops->map(&be, &e, &bf16, &err_));
	both("map", f32, bf16, in, 3, &out, 1);
}

static void maps(void)
{
	const int64_t *big = DIMS(7, 12, 31, 33), *row = DIMS(33), *mask = DIMS(7, 1, 1, 33),
		      *inner = DIMS(1, 12, 31, 33);
	const struct dlb_desc last = desc(DLB_F32, DLB_CHANNELS_LAST, 4, big),
			      channel = desc(DLB_F32, DLB_PLAIN, 3, DIMS(12, 1, 1));

	one_map(DLB_MAP_relu, 1, bf16s(4, big), none(), none(), bf16s(4, big));
	one_map(DLB_MAP_gelu, 1, bf16s(4, big), none(), none(), bf16s(4, big));
	one_map(DLB_MAP_relu_grad, 2, bf16s(4, big), bf16s(4, big), none(), bf16s(4, big));
	one_map(DLB_MAP_add, 2, bf16s(4, big), bf16s(4, big), none(), bf16s(4, big));
	one_map(DLB_MAP_add, 2, bf16s(4, big), f32s(1, row), none(), bf16s(4, big));
	one_map(DLB_MAP_add, 2, f32s(4, big), bf16s(1, row), none(), bf16s(4, big));
	one_map(DLB_MAP_mul, 2, bf16s(4, big), bf16s(4, mask), none(), bf16s(4, big));
	one_map(DLB_MAP_mul, 2, bf16s(4, inner), f32s(4, mask), none(), bf16s(4, big));
	one_map(DLB_MAP_add, 2, bf16s(4, big), bf16s(0, NULL), none(), bf16s(4, big));
	one_map(DLB_MAP_add, 2, of(last), operand(channel, false), none(), of(last));
	one_map(DLB_MAP_add, 2, of(last), of(last), none(), of(last));
	one_map(DLB_MAP_add, 2, of(last), bf16s(4, big), none(), of(last));	/* lie in different orders */
	one_map(DLB_MAP_add, 2, bf16s(0, NULL), f32s(0, NULL), none(), bf16s(0, NULL));
	one_map(DLB_MAP_add, 2, bf16s(2, DIMS(0, 4)), bf16s(2, DIMS(0, 4)), none(), bf16s(2, DIMS(0, 4)));
	one_map(DLB_MAP_where, 3, operand(desc(DLB_BOOL, 0, 4, inner), false), bf16s(4, big), f32s(0, NULL),
		bf16s(4, big));
	one_map(DLB_MAP_less, 2, bf16s(4, big), f32s(1, row), none(),
		operand(desc(DLB_BOOL, 0, 4, big), false));
	one_map(DLB_MAP_linear, 1, bf16s(1, DIMS(100003)), none(), none(), bf16s(1, DIMS(100003)));
}

static void one_reduce(enum dlb_reduce_fn fn, unsigned axes, struct dlb_desc x, bool to_f32)
{
	struct dlb_reduce_desc d = { .fn = fn, .in = x, .out = x, .axes = axes }, e;
	struct dlb_kernel *f32, *bf16;

	for (int i = 0; i < x.n_dims; i++)
		d.out.dim[i] = axes >> i & 1 ? 1 : x.dim[i];
	struct operand in = of(x), out = operand(d.out, !to_f32);
	e = d;
	e.in = told(&in);
	e.out = told(&out);
	MUST(be.ops->reduce(&be, &d, &f32, &err_));
	MUST(be.ops->reduce(&be, &e, &bf16, &err_));
	both("reduce", f32, bf16, &in, 1, &out, 1);
}

static void reduces(void)
{
	for (int to_f32 = 0; to_f32 < 2; to_f32++) {
		one_reduce(DLB_REDUCE_FN_SUM, 1, desc(DLB_F32, DLB_PLAIN, 2, DIMS(700, 264)), to_f32);
		one_reduce(DLB_REDUCE_FN_MEAN, 1, desc(DLB_F32, DLB_PLAIN, 2, DIMS(33, 30)), to_f32);
	}
	for (unsigned axes = 1; axes < 16; axes++)
		for (int fn = DLB_REDUCE_FN_SUM; fn <= DLB_REDUCE_FN_MIN; fn++)
			for (int to_f32 = 0; to_f32 < 2; to_f32++) {
				one_reduce(fn, axes, desc(DLB_F32, DLB_PLAIN, 4, DIMS(9, 40, 11, 13)),
					   to_f32);
				one_reduce(fn, axes, desc(DLB_F32, DLB_CHANNELS_LAST, 4, DIMS(3, 5, 11, 13)),
					   to_f32);
			}
}

/* Through the operator, which determines the types of the statistics. */
static void one_layer_norm(const char *type, int n_in, int n_out, const bool *is_bf16)
{
	const struct dlb_op_class *cls = dlb_op_class_of(dlb_op_kind_find(type, n_in == 5 ? "dlb" : ""));
	const int64_t x[] = { 6, 70, 48 }, w[] = { 48 }, stat[] = { 6, 70, 1 };
	struct operand in[5], out[3];
	struct dlb_desc d_in[5], d_out[3], e_in[5], e_out[3];
	struct dlb_op_io io = {
		.name = type, .cls = cls, .opset = 17, .n_in = n_in, .n_out = n_out, .in = d_in, .out = d_out
	};
	struct dlb_kernel *f32, *bf16;

	for (int i = 0; i < n_in; i++)
		in[i] = is_bf16[i] ? bf16s(3, x) : n_in == 5 && i > 2 ? f32s(3, stat) : f32s(1, w);
	for (int i = 0; i < n_out; i++)
		out[i] = i == 0 ? bf16s(3, x) : n_in == 5 ? f32s(1, w) : f32s(3, stat);
	for (int i = 0; i < n_in; i++) {
		d_in[i] = in[i].d;
		e_in[i] = told(&in[i]);
	}
	MUST(cls->infer(&io, &err_));
	MUST(cls->kernel(&be, &io, &f32, &err_));
	io.in = e_in;
	io.out = e_out;
	MUST(cls->infer(&io, &err_));
	assert(IS(e_out[0].dtype, ==, DLB_BF16) && IS(e_out[1].dtype, ==, DLB_F32));
	MUST(cls->kernel(&be, &io, &bf16, &err_));
	both(type, f32, bf16, in, n_in, out, n_out);
}

/* Attention of heads of `width` columns, and its gradient, as operators: where the back end has no kernel of
 * bf16, that of f32 between casts. saved and the mask are f32. */
struct attention_case {
	bool grad, masked;
	double cap;
	int64_t heads, kv_heads, width;
};
static void one_attention(struct attention_case c)
{
	const struct dlb_op_class *cls = dlb_op_class_of(c.grad ? dlb_op_kind_find("AttentionGrad", "dlb") :
								  dlb_op_kind_find("Attention", ""));
	const int64_t q[] = { 2, c.heads, 70, c.width }, k[] = { 2, c.kv_heads, 150, c.width },
		      rows[] = { 70, 150 };
	const struct dlb_attr attr[] = { { .name = "is_causal", .type = DLB_ATTR_INT, .i = !c.masked },
					 { .name = "softcap", .type = DLB_ATTR_REAL, .f = c.cap } };
	struct operand in[6], out[5];
	struct dlb_desc d_in[6], d_out[5], e_in[6], e_out[5];
	struct dlb_op_io io = { .name = "attention",
				.cls = cls,
				.opset = 23,
				.attr = attr,
				.n_attr = 2,
				.n_in = c.grad ? 6 : 4,
				.n_out = c.grad ? 4 : 5,
				.in = d_in,
				.out = d_out };
	struct dlb_kernel *f32, *bf16;
	int n = 0;

	if (c.grad)
		in[n++] = bf16s(4, q);
	in[n++] = bf16s(4, q);
	in[n++] = bf16s(4, k);
	in[n++] = bf16s(4, k);
	if (c.grad)
		in[n++] = f32s(3, q);
	in[n++] = c.masked ? f32s(2, rows) : none();
	for (int i = 0; i < n; i++) {
		d_in[i] = in[i].d;
		e_in[i] = told(&in[i]);
	}
	for (int i = 0; i < 5; i++)
		d_out[i] = e_out[i] = (struct dlb_desc){ .n_dims = 0 };
	MUST(cls->infer(&io, &err_));
	io.in = e_in;
	io.out = e_out;
	MUST(cls->infer(&io, &err_));
	for (int i = 0; i < io.n_out; i++) {
		/* not the keys of a past, the scores; without a mask, its gradient */
		const bool left_out = c.grad ? i == 3 && !c.masked : i > 0 && i < 4;

		if (left_out)
			d_out[i].n_dims = e_out[i].n_dims = -1;
		out[i] = left_out ? none() : operand(d_out[i], e_out[i].dtype == DLB_BF16);
	}
	assert(IS(e_out[0].dtype, ==, DLB_BF16));
	assert((c.grad && !c.masked) || IS(e_out[io.n_out - 1].dtype, ==, DLB_F32));
	MUST(dlb_op_kernel(&be, &io, &bf16, &err_));
	io.in = d_in;
	io.out = d_out;
	MUST(dlb_op_kernel(&be, &io, &f32, &err_));
	both(c.grad ? "attention, gradient" : "attention", f32, bf16, in, n, out, io.n_out);
}

static void attentions(void)
{
	static const struct attention_case c[] = {
		{ false, false, 0.7, 2, 1, 64 }, /* with a cap, f32 keeps log sums too */
		{ false, true, 0.7, 2, 2, 24 },  { false, true, 0.7, 1, 1, 140 },
		{ true, false, 0.7, 2, 1, 64 },  { true, true, 0.7, 1, 1, 13 },
		{ true, true, 0.7, 1, 1, 140 },
	};

	for (int i = 0; i < DLB_LEN(c); i++)
		one_attention(c[i]);
}

static void casts(void)
{
	for (int to = 0; to < 2; to++) {
		const int64_t n = 1000;
		struct operand f = f32s(1, &n), h = bf16s(1, &n);
		struct dlb_copy_desc d = { .in = to ? DLB_F32 : DLB_BF16,
					   .out = to ? DLB_BF16 : DLB_F32,
					   .n_dims = 1,
					   .dim = { n },
					   .in_stride = { 1 },
					   .out_stride = { 1 },
					   .out_count = n };
		struct dlb_kernel *k;
		void *in = to ? f.f32 : h.mixed, *out = to ? h.mixed : f.f32;
		const struct dlb_run r = { .in = &in, .out = &out };

		MUST(be.ops->copy(&be, &d, &k, &err_));
		k->run(k, &r);
		for (int64_t i = 0; i < n; i++)
			assert(IS(dlb_value_real(f.f32, DLB_F32, i), ==,
				  dlb_value_real(h.mixed, DLB_BF16, i)));
		dlb_kernel_free(k);
		free(f.f32), free(f.mixed), free(h.f32), free(h.mixed);
		n_checks++;
	}
}

/* An op on no elements writes none. */
static void no_elements(void)
{
	static const struct {
		const char *type, *domain;
		int n_in;
	} ops[] = { { "Softmax", "", 1 }, { "LogSoftmax", "", 1 }, { "Relu", "", 1 }, { "Add", "", 2 } };

	for (int i = 0; i < DLB_LEN(ops); i++) {
		uint16_t x[8] = { 1, 2, 3, 4, 5, 6, 7, 8 }, y[8] = { 0 };
		struct dlb_desc in[2] = { desc(DLB_BF16, 0, 2, DIMS(0, 4)),
					  desc(DLB_BF16, 0, 2, DIMS(0, 4)) },
				out = in[0];
		const struct dlb_op_io io = { .cls = dlb_op_class_of(
						      dlb_op_kind_find(ops[i].type, ops[i].domain)),
					      .name = "op",
					      .opset = 17,
					      .in = in,
					      .n_in = ops[i].n_in,
					      .out = &out,
					      .n_out = 1 };
		struct dlb_kernel *k;

		MUST(dlb_op_kernel(&be, &io, &k, &err_));
		void *scratch = calloc(1, k->scratch_bytes + 1);
		k->run(k, &(struct dlb_run){
				  .in = (void *[]){ x, x }, .out = (void *[]){ y }, .scratch = scratch });
		assert(!be.ops->sync(&be, NULL));
		for (int e = 0; e < DLB_LEN(y); e++)
			assert(IS(y[e], ==, 0));
		dlb_kernel_free(k);
		free(scratch);
	}
}

int main(void)
{
	dlb_rng_init(&rng, 16);
	rounding();
	open_backend();
	for (int l = 0; use_level(l); l++) {
		gemms();
		convs();
		norms();
		pools();
		softmaxes();
		maps();
		reduces();
		one_layer_norm("LayerNormalization", 3, 3, (bool[]){ true, false, false });
		one_layer_norm("LayerNormalizationGrad", 5, 3, (bool[]){ true, true, false, false, false });
		attentions();
		casts();
		no_elements();
	}
	be.ops->close(&be);
	printf("%ld checks\n", n_checks);
	return 0;
}
