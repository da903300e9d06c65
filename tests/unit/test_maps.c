/* The elementwise functions of map_list.h against double references, at every level of the cpu's instruction set:
 * values, special values, accuracy, and gradients against central differences of their functions. The seed is
 * printed. */
#include "check.h"
#include "kernels.h"

static const struct { const char *name; int n; } fns[] = {
#define MAP(name, n, expr) { #name, n },
#include "tensor/map_list.h"
#undef MAP
};

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double python_mod(double a, double b) { return b == 0 ? NAN : a - b * floor(a / b); }

/* Reference definitions of the functions, independent of map_list.h. */
static bool expected(enum dlb_map_fn f, double a, double b, double c, double al, double be_, double *y)
{
	switch (f) {
	case DLB_MAP_add: *y = a + b; return true;
	case DLB_MAP_sub: *y = a - b; return true;
	case DLB_MAP_mul: *y = a * b; return true;
	case DLB_MAP_add3: *y = a + b + c; return true;
	case DLB_MAP_mul_add: *y = a * b + c; return true;
	case DLB_MAP_sub_mul: *y = (a - b) * c; return true;
	case DLB_MAP_mul_mul: *y = a * b * c; return true;
	case DLB_MAP_linear: *y = al * a + be_; return true;
	case DLB_MAP_weighted: *y = al * a + be_ * b; return true;
	case DLB_MAP_neg: *y = -a; return true;
	case DLB_MAP_abs: *y = fabs(a); return true;
	case DLB_MAP_sign: *y = a > 0 ? 1 : a < 0 ? -1 : 0; return true;
	case DLB_MAP_square: *y = a * a; return true;
	case DLB_MAP_cube: *y = a * a * a; return true;
	case DLB_MAP_min: *y = fmin(a, b); return true;
	case DLB_MAP_max: *y = fmax(a, b); return true;
	case DLB_MAP_clip: *y = fmin(fmax(a, al), be_); return true;
	case DLB_MAP_shrink: *y = a < -al ? a + be_ : a > al ? a - be_ : 0; return true;
	case DLB_MAP_bit_and: *y = (double)((int64_t)a & (int64_t)b); return true;
	case DLB_MAP_bit_or: *y = (double)((int64_t)a | (int64_t)b); return true;
	case DLB_MAP_bit_xor: *y = (double)((int64_t)a ^ (int64_t)b); return true;
	case DLB_MAP_bit_not: *y = -1 - a; return true;
	case DLB_MAP_relu: *y = fmax(a, 0); return true;
	case DLB_MAP_sqrt: *y = sqrt(a); return true;
	case DLB_MAP_rsqrt: *y = 1 / sqrt(a); return true;
	case DLB_MAP_reciprocal: *y = 1 / a; return true;
	case DLB_MAP_exp: *y = exp(a); return true;
	case DLB_MAP_log: *y = log(a); return true;
	case DLB_MAP_sin: *y = sin(a); return true;
	case DLB_MAP_cos: *y = cos(a); return true;
	case DLB_MAP_tan: *y = tan(a); return true;
	case DLB_MAP_asin: *y = asin(a); return true;
	case DLB_MAP_acos: *y = acos(a); return true;
	case DLB_MAP_atan: *y = atan(a); return true;
	case DLB_MAP_sinh: *y = sinh(a); return true;
	case DLB_MAP_cosh: *y = cosh(a); return true;
	case DLB_MAP_tanh: *y = tanh(a); return true;
	case DLB_MAP_asinh: *y = asinh(a); return true;
	case DLB_MAP_acosh: *y = acosh(a); return true;
	case DLB_MAP_atanh: *y = atanh(a); return true;
	case DLB_MAP_erf: *y = erf(a); return true;
	case DLB_MAP_floor: *y = floor(a); return true;
	case DLB_MAP_ceil: *y = ceil(a); return true;
	case DLB_MAP_round: *y = nearbyint(a); return true;
	case DLB_MAP_sigmoid: *y = sigmoid(a); return true;
	case DLB_MAP_leaky_relu: *y = a < 0 ? al * a : a; return true;
	case DLB_MAP_thresholded_relu: *y = a > al ? a : 0; return true;
	case DLB_MAP_prelu: *y = a < 0 ? a * b : a; return true;
	case DLB_MAP_elu: *y = a < 0 ? al * expm1(a) : a; return true;
	case DLB_MAP_selu: *y = be_ * (a < 0 ? al * expm1(a) : a); return true;
	case DLB_MAP_celu: *y = fmax(0, a) + fmin(0, al * expm1(a / al)); return true;
	case DLB_MAP_softplus: *y = log(1 + exp(a)); return true;
	case DLB_MAP_softsign: *y = a / (1 + fabs(a)); return true;
	case DLB_MAP_hard_sigmoid: *y = fmax(0, fmin(1, al * a + be_)); return true;
	case DLB_MAP_hard_swish: *y = a * fmax(0, fmin(1, a / 6 + 0.5)); return true;
	case DLB_MAP_add_relu: *y = fmax(a + b, 0); return true;
	case DLB_MAP_gelu_tanh:
		*y = a * 0.5 * (1 + tanh(sqrt(2 / acos(-1)) * (a + 0.044715 * a * a * a)));
		return true;
	case DLB_MAP_gelu: *y = a * 0.5 * erfc(-a / sqrt(2)); return true;
	case DLB_MAP_mish: *y = a * tanh(log1p(exp(a))); return true;
	case DLB_MAP_swish: *y = a * sigmoid(al * a); return true;
	case DLB_MAP_swiglu: *y = a * sigmoid(al * a) * b; return true;
	case DLB_MAP_equal: *y = a == b; return true;
	case DLB_MAP_not_equal: *y = a != b; return true;
	case DLB_MAP_less: *y = a < b; return true;
	case DLB_MAP_less_or_equal: *y = a <= b; return true;
	case DLB_MAP_greater: *y = a > b; return true;
	case DLB_MAP_greater_or_equal: *y = a >= b; return true;
	case DLB_MAP_is_nan: *y = isnan(a); return true;
	case DLB_MAP_is_inf: *y = isinf(a) && (a > 0 ? be_ : al); return true;
	case DLB_MAP_not: *y = !a; return true;
	case DLB_MAP_and: *y = a && b; return true;
	case DLB_MAP_or: *y = a || b; return true;
	case DLB_MAP_xor: *y = !a != !b; return true;
	case DLB_MAP_where: *y = a != 0 ? b : c; return true;
	case DLB_MAP_keep: *y = a != 0 ? b * al : 0; return true;
	case DLB_MAP_keep_not: *y = a != 0 ? 0 : b * al; return true;
	default: return false;
	}
}

static bool is_compare(int f) { return f >= DLB_MAP_equal && f <= DLB_MAP_is_inf; }
static bool is_int(int f) { return f >= DLB_MAP_bit_and && f <= DLB_MAP_shift_right; }
static bool is_logic(int f) { return f >= DLB_MAP_not; }
static bool is_select(int f) { return f >= DLB_MAP_where && f < DLB_MAP_equal; }
static bool is_real(int f) { return f >= DLB_MAP_sqrt && f < DLB_MAP_where; }

static void one_map(int f, enum dlb_dtype t, struct dlb_desc shape, const struct dlb_desc *in_shape)
{
	double al = f == DLB_MAP_clip ? -0.5 : 0.25, bt = f == DLB_MAP_clip ? 0.5 : 0.75;
	struct dlb_map_desc d = { .fn = f, .n_in = fns[f].n, .alpha = al, .beta = bt };
	struct arg in[3], out = { shape, zeros(dlb_desc_count(&shape)) };
	double tol = close_tol(t) * (f == DLB_MAP_tan || f == DLB_MAP_acosh ? 10 : 1), dummy;
	struct dlb_kernel *k;
	char what[100];

	if (!dlb_dtype_is_float(t)) {
		al = d.alpha = f == DLB_MAP_clip ? -2 : 2;
		bt = d.beta = 3;
		if (t == DLB_U8 && f == DLB_MAP_clip)
			al = 0;
	}
	out.d.dtype = is_compare(f) || is_logic(f) ? DLB_BOOL : t;
	d.out = out.d;
	for (int i = 0; i < d.n_in; i++) {
		struct dlb_desc s = in_shape[i];

		s.dtype = is_select(f) && i == 0 ? DLB_BOOL : t;
		in[i] = draw(s);
		if (f == DLB_MAP_sqrt || f == DLB_MAP_rsqrt || f == DLB_MAP_log || f == DLB_MAP_acosh ||
		    f == DLB_MAP_reciprocal)
			for (int64_t j = 0; j < dlb_desc_count(&s); j++)
				in[i].v[j] = rounded(t,
						     fabs(in[i].v[j]) + (f == DLB_MAP_acosh ? 1.01 : 0.01));
		d.in[i] = s;
	}
	if (!expected(f, 1, 1, 1, al, bt, &dummy))
		goto out;
	for (int64_t i = 0; i < dlb_desc_count(&shape); i++) {
		double v[3] = { 0 };

		for (int j = 0; j < d.n_in; j++)
			v[j] = in[j].v[broadcast_index(&shape, &in[j].d, i)];
		expected(f, v[0], v[1], v[2], al, bt, &out.v[i]);
		if (t == DLB_U8 && out.d.dtype == DLB_U8)
			out.v[i] = (double)(uint8_t)(int64_t)out.v[i];
	}
	snprintf(what, sizeof what, "map %s %s", fns[f].name, dlb_dtype_name(t));
	MUST(be.ops->map(&be, &d, &k, &err_));
	check_run(what, k, in, d.n_in, &out, 1, tol, NULL, NULL);
out:
	release(in, d.n_in);
	release(&out, 1);
}

static void maps(void)
{
	static const enum dlb_dtype types[] = {
		DLB_F32, DLB_F64, DLB_I8, DLB_I32, DLB_I64, DLB_U8, DLB_BOOL
	};

	for (int f = 0; f < DLB_N_MAPS; f++)
		for (int i = 0; i < DLB_LEN(types); i++) {
			enum dlb_dtype t = types[i];
			struct dlb_desc big = desc(t, i % 2, 4, DIMS(3, 5, 7, 6)), one = desc(t, 0, 0, NULL),
					row = desc(t, 0, 1, DIMS(6));
			struct dlb_desc chan = desc(t, i % 2, 4, DIMS(1, 5, 1, 1)),
					flat = desc(t, 0, 1, DIMS(1203)), col = desc(t, 0, 2, DIMS(7, 1));
			/* as many dimensions as there may be */
			struct dlb_desc deep = desc(t, 0, DLB_MAX_DIMS, DIMS(2, 1, 3, 1, 2, 1, 2, 6)),
					thin = desc(t, 0, DLB_MAX_DIMS, DIMS(2, 1, 1, 1, 2, 1, 2, 1));

			if (is_logic(f) ? t != DLB_BOOL :
					  t == DLB_BOOL && !is_compare(f) && !(f == DLB_MAP_where))
				continue;
			if (is_real(f) ? !dlb_dtype_is_float(t) : is_int(f) && dlb_dtype_is_float(t))
				continue;
			if (t == DLB_U8 && (f == DLB_MAP_neg || f == DLB_MAP_abs || f == DLB_MAP_min ||
					    f == DLB_MAP_sub_mul))
				continue;
			one_map(f, t, big, (struct dlb_desc[]){ big, big, big });
			one_map(f, t, flat, (struct dlb_desc[]){ flat, flat, flat });
			one_map(f, t, one, (struct dlb_desc[]){ one, one, one });
			if (fns[f].n >= 2) {
				one_map(f, t, big, (struct dlb_desc[]){ big, chan, one });
				one_map(f, t, big, (struct dlb_desc[]){ chan, big, row });
				one_map(f, t, big, (struct dlb_desc[]){ row, big, chan });
				one_map(f, t, big, (struct dlb_desc[]){ col, big, big });
				one_map(f, t, flat, (struct dlb_desc[]){ one, flat, one });
				one_map(f, t, deep, (struct dlb_desc[]){ deep, thin, row });
			}
		}
}

/* Rows of `n` elements of type t: operands that are dense, or broadcast along rows or columns. Back ends take
 * them in runs of neighbours or not, as n allows. */
static void map_rows(int f, enum dlb_dtype t, int64_t n)
{
	const struct dlb_desc all = desc(t, 0, 3, DIMS(3, 5, n)), row = desc(t, 0, 1, DIMS(n)),
			      inner = desc(t, 0, 2, DIMS(5, n)), col = desc(t, 0, 2, DIMS(5, 1)),
			      one = desc(t, 0, 0, NULL);

	one_map(f, t, all, (struct dlb_desc[]){ all, all, all });
	one_map(f, t, all, (struct dlb_desc[]){ inner, one, all });
	one_map(f, t, all, (struct dlb_desc[]){ all, row, one });
	one_map(f, t, all, (struct dlb_desc[]){ all, col, inner });
	one_map(f, t, all, (struct dlb_desc[]){ col, all, row });
}

/* Runs f on rows of n elements, of which row r begins at in[i] + r * row_bytes[i]; the last operand has one
 * element a row. The result is allocated. */
static void *rows_of(int f, enum dlb_dtype t, int64_t n_rows, int64_t n, void *const *in,
		     const size_t *row_bytes)
{
	const struct dlb_desc all = desc(t, 0, 2, DIMS(n_rows, n)), col = desc(t, 0, 2, DIMS(n_rows, 1));
	struct dlb_map_desc d = { .fn = f, .n_in = fns[f].n, .out = all, .alpha = 0.25, .beta = 0.75 };
	void *dense[3], *out, *scratch;
	struct dlb_kernel *k;

	d.out.dtype = is_compare(f) ? DLB_BOOL : t;
	for (int i = 0; i < d.n_in; i++) {
		const size_t bytes = (size_t)(i + 1 < d.n_in ? n : 1);

		d.in[i] = i + 1 < d.n_in ? all : col;
		d.in[i].dtype = is_select(f) && i == 0 ? DLB_BOOL : t;
		dense[i] = room(dlb_desc_bytes(&d.in[i]));
		for (int64_t r = 0; r < n_rows; r++)
			memcpy((char *)dense[i] + (size_t)r * bytes * dlb_dtype_bytes(d.in[i].dtype),
			       (const char *)in[i] + (size_t)r * row_bytes[i],
			       bytes * dlb_dtype_bytes(d.in[i].dtype));
	}
	out = room(dlb_desc_bytes(&d.out));
	MUST(be.ops->map(&be, &d, &k, &err_));
	scratch = room(k->scratch_bytes);
	k->run(k, &(struct dlb_run){ .in = dense, .out = &out, .scratch = scratch });
	MUST(be.ops->sync(&be, &err_));
	dlb_kernel_free(k);
	free(scratch);
	for (int i = 0; i < d.n_in; i++)
		free(dense[i]);
	return out;
}

/* Elements have the same bits in rows of 40, which are whole runs, as in rows of 41. */
static void map_same_bits(int f, enum dlb_dtype t)
{
	enum { ROWS = 7, LONG = 41, SHORT = 40 };
	const enum dlb_dtype type = is_compare(f) ? DLB_BOOL : t;
	void *in[3];
	size_t row_bytes[3];
	char *whole, *part;

	if (fns[f].n < 2) /* one loop */
		return;
	for (int i = 0; i < fns[f].n; i++) {
		const int64_t n = i + 1 < fns[f].n ? LONG : 1;
		struct arg a = draw(desc(is_select(f) && i == 0 ? DLB_BOOL : t, 0, 2, DIMS(ROWS, n)));

		in[i] = room(dlb_desc_bytes(&a.d));
		put(&a, in[i]);
		row_bytes[i] = (size_t)n * dlb_dtype_bytes(a.d.dtype);
		release(&a, 1);
	}
	whole = rows_of(f, t, ROWS, SHORT, in, row_bytes);
	part = rows_of(f, t, ROWS, LONG, in, row_bytes);
	for (size_t r = 0; r < ROWS; r++)
		if (memcmp(whole + r * SHORT * dlb_dtype_bytes(type), part + r * LONG * dlb_dtype_bytes(type),
			   SHORT * dlb_dtype_bytes(type))) {
			fprintf(stderr, "map %s %s: bits of row %d follow the row's length\n", fns[f].name,
				dlb_dtype_name(t), (int)r);
			abort();
		}
	for (int i = 0; i < fns[f].n; i++)
		free(in[i]);
	free(whole), free(part);
	n_checks++;
}

static void maps_of_rows(void)
{
	static const int64_t length[] = { 8, 16, 40, 12, 7, 1 };

	for (int f = 0; f < DLB_N_MAPS; f++)
		for (int b = 0; b < 2; b++) {
			const enum dlb_dtype t = b ? DLB_BF16 : DLB_F32;

			if (is_int(f) || is_logic(f))
				continue;
			for (int i = 0; i < DLB_LEN(length); i++)
				map_rows(f, t, length[i]);
			map_same_bits(f, t);
		}
}

/* out = f(in) of up to three doubles through the kernel. */
static double call(int f, const double *v, double al, double bt)
{
	struct dlb_desc d = desc(DLB_F64, 0, 0, NULL);
	struct dlb_map_desc m = {
		.fn = f, .n_in = fns[f].n, .in = { d, d, d }, .out = d, .alpha = al, .beta = bt
	};
	double y, a = v[0], b = v[1], c = v[2];
	void *in[] = { &a, &b, &c }, *out[] = { &y };
	struct dlb_kernel *k;

	MUST(be.ops->map(&be, &m, &k, &err_));
	k->run(k, &(struct dlb_run){ .in = in, .out = out });
	dlb_kernel_free(k);
	return y;
}

/* wrt: an argument of f; takes: operands of the gradient after dy, 'x' (argument 0), 'w' (1) or 'y'. */
static const struct { int f, grad, wrt; const char *takes; double lo, hi, al, bt; } gradients[] = {
	{ DLB_MAP_relu, DLB_MAP_relu_grad, 0, "y", -2, 2, 0, 0 },
	{ DLB_MAP_sigmoid, DLB_MAP_sigmoid_grad, 0, "y", -4, 4, 0, 0 },
	{ DLB_MAP_tanh, DLB_MAP_tanh_grad, 0, "y", -3, 3, 0, 0 },
	{ DLB_MAP_sqrt, DLB_MAP_sqrt_grad, 0, "y", 0.1, 3, 0, 0 },
	{ DLB_MAP_reciprocal, DLB_MAP_reciprocal_grad, 0, "y", 0.2, 3, 0, 0 },
	{ DLB_MAP_abs, DLB_MAP_abs_grad, 0, "x", -2, 2, 0, 0 },
	{ DLB_MAP_erf, DLB_MAP_erf_grad, 0, "x", -2, 2, 0, 0 },
	{ DLB_MAP_sin, DLB_MAP_sin_grad, 0, "x", -3, 3, 0, 0 },
	{ DLB_MAP_cos, DLB_MAP_cos_grad, 0, "x", -3, 3, 0, 0 },
	{ DLB_MAP_tan, DLB_MAP_tan_grad, 0, "y", -1.2, 1.2, 0, 0 },
	{ DLB_MAP_asin, DLB_MAP_asin_grad, 0, "x", -0.9, 0.9, 0, 0 },
	{ DLB_MAP_acos, DLB_MAP_acos_grad, 0, "x", -0.9, 0.9, 0, 0 },
	{ DLB_MAP_atan, DLB_MAP_atan_grad, 0, "x", -3, 3, 0, 0 },
	{ DLB_MAP_sinh, DLB_MAP_sinh_grad, 0, "x", -3, 3, 0, 0 },
	{ DLB_MAP_cosh, DLB_MAP_cosh_grad, 0, "x", -3, 3, 0, 0 },
	{ DLB_MAP_asinh, DLB_MAP_asinh_grad, 0, "x", -3, 3, 0, 0 },
	{ DLB_MAP_acosh, DLB_MAP_acosh_grad, 0, "x", 1.1, 3, 0, 0 },
	{ DLB_MAP_atanh, DLB_MAP_atanh_grad, 0, "x", -0.9, 0.9, 0, 0 },
	{ DLB_MAP_mish, DLB_MAP_mish_grad, 0, "x", -8, 8, 0, 0 },
	{ DLB_MAP_mish, DLB_MAP_mish_grad, 0, "x", 15, 25, 0, 0 },
	{ DLB_MAP_swish, DLB_MAP_swish_grad, 0, "x", -8, 8, 1.3, 0 },
	{ DLB_MAP_swiglu, DLB_MAP_swiglu_grad, 0, "xw", -4, 4, 0.8, 0 },
	{ DLB_MAP_swiglu, DLB_MAP_swiglu_grad_value, 1, "x", -4, 4, 0.8, 0 },
	{ DLB_MAP_shrink, DLB_MAP_shrink_grad, 0, "x", -2, 2, 0.6, 0.2 },
	{ DLB_MAP_leaky_relu, DLB_MAP_leaky_relu_grad, 0, "x", -2, 2, 0.1, 0 },
	{ DLB_MAP_thresholded_relu, DLB_MAP_thresholded_relu_grad, 0, "x", -2, 2, 0.7, 0 },
	{ DLB_MAP_prelu, DLB_MAP_prelu_grad, 0, "xw", -2, 2, 0, 0 },
	{ DLB_MAP_prelu, DLB_MAP_prelu_grad_slope, 1, "x", -2, 2, 0, 0 },
	{ DLB_MAP_elu, DLB_MAP_elu_grad, 0, "x", -2, 2, 1.3, 0 },
	{ DLB_MAP_selu, DLB_MAP_selu_grad, 0, "x", -2, 2, 1.67, 1.05 },
	{ DLB_MAP_celu, DLB_MAP_celu_grad, 0, "x", -2, 2, 1.3, 0 },
	{ DLB_MAP_softplus, DLB_MAP_softplus_grad, 0, "x", -4, 4, 0, 0 },
	{ DLB_MAP_softsign, DLB_MAP_softsign_grad, 0, "x", -2, 2, 0, 0 },
	{ DLB_MAP_hard_sigmoid, DLB_MAP_hard_sigmoid_grad, 0, "x", -4, 4, 0.2, 0.5 },
	{ DLB_MAP_hard_swish, DLB_MAP_hard_swish_grad, 0, "x", -4, 4, 0, 0 },
	{ DLB_MAP_gelu, DLB_MAP_gelu_grad, 0, "x", -3, 3, 0, 0 },
	{ DLB_MAP_gelu_tanh, DLB_MAP_gelu_tanh_grad, 0, "x", -3, 3, 0, 0 },
	{ DLB_MAP_clip, DLB_MAP_clip_grad, 0, "x", -2, 2, -0.6, 0.9 },
	{ DLB_MAP_div, DLB_MAP_div_grad_b, 1, "yw", 0.3, 3, 0, 0 },
	{ DLB_MAP_square, DLB_MAP_square_grad, 0, "x", -2, 2, 0, 0 },
	{ DLB_MAP_cube, DLB_MAP_cube_grad, 0, "x", -2, 2, 0, 0 },
	{ DLB_MAP_sqrt, DLB_MAP_root_grad, 0, "x", 0.1, 3, 0, 0 },
	{ DLB_MAP_reciprocal, DLB_MAP_inverse_grad, 0, "x", 0.2, 3, 0, 0 },
	{ DLB_MAP_pow, DLB_MAP_pow_grad, 0, "xw", 0.3, 3, 0, 0 },
	{ DLB_MAP_pow, DLB_MAP_pow_grad_p, 1, "yx", 0.3, 3, 0, 0 },
	{ DLB_MAP_max, DLB_MAP_max_grad, 0, "xw", -2, 2, 0, 0 },
	{ DLB_MAP_min, DLB_MAP_min_grad, 0, "xw", -2, 2, 0, 0 },
};

static void map_gradients(void)
{
	for (int f = 0; f < DLB_N_MAPS; f++) {		/* every function has a test */
		bool listed = !strstr(fns[f].name, "_grad");

		for (int i = 0; i < DLB_LEN(gradients); i++)
			listed = listed || gradients[i].grad == f;
		if (!listed) {
			fprintf(stderr, "%s: no test by differences\n", fns[f].name);
			abort();
		}
	}
	for (int i = 0; i < DLB_LEN(gradients); i++)
		for (int n = 0; n < 25; n++) {
			double lo = gradients[i].lo, hi = gradients[i].hi, al = gradients[i].al,
			       bt = gradients[i].bt, h = 1e-6;
			double v[3] = { lo + (hi - lo) * dlb_rng_uniform(&rng),
					lo + (hi - lo) * dlb_rng_uniform(&rng), 0 };
			double up[3] = { v[0], v[1], 0 }, down[3] = { v[0], v[1], 0 }, arg[3] = { 1.5, 0, 0 },
			       want, got;

			up[gradients[i].wrt] += h;
			down[gradients[i].wrt] -= h;
			const double above = call(gradients[i].f, up, al, bt),
				     below = call(gradients[i].f, down, al, bt);
			const double here = call(gradients[i].f, v, al, bt);

			if (fabs(above - 2 * here + below) > 1e-3 * h * (1 + fabs(here)))
				continue;			/* within h of a point without derivative */
			want = 1.5 * (above - below) / (2 * h);
			for (int j = 0; gradients[i].takes[j]; j++)
				arg[j + 1] = gradients[i].takes[j] == 'x' ? v[0] :
					     gradients[i].takes[j] == 'w' ? v[1] :
									    call(gradients[i].f, v, al, bt);
			got = call(gradients[i].grad, arg, al, bt);
			if (!(fabs(got - want) < 1e-6 * (1 + fabs(want)))) {
				fprintf(stderr, "%s at %g, %g: %.10g, differences say %.10g\n",
					fns[gradients[i].grad].name, v[0], v[1], got, want);
				abort();
			}
			n_checks++;
		}
}

static void map_corners(void)
{
	struct dlb_desc d = desc(DLB_F32, 0, 1, DIMS(12)), i64 = desc(DLB_I64, 0, 1, DIMS(6)),
			f64 = desc(DLB_F64, 0, 1, DIMS(12));
	struct dlb_map_desc m = { .fn = DLB_MAP_exp, .n_in = 1, .in = { d }, .out = d };
	float
		x[12] = { 0,    -0.0f,    88.7f,     88.8f, -87.5f, -103.0f,
			  -110, INFINITY, -INFINITY, NAN,   1e-20f, 1000 },
		y[12];
	int64_t a[6] = { 7, -7, INT64_MIN, 5, INT64_MAX, -8 }, b[6] = { 3, 3, -1, 0, 1, -3 }, q[6];
	void *in[] = { x, NULL }, *out[] = { y };
	struct dlb_kernel *k;
	struct dlb_error err;

	MUST(be.ops->map(&be, &m, &k, &err_));
	k->run(k, &(struct dlb_run){ .in = in, .out = out });
	for (int i = 0; i < 12; i++)
		assert(isnan(x[i]) ? isnan(y[i]) : isinf(expf(x[i])) ? isinf(y[i]) :
		       fabs(y[i] - exp(x[i])) <= 2e-7 * exp(x[i]) + 2e-45);
	dlb_kernel_free(k);
	m.fn = DLB_MAP_tanh;
	MUST(be.ops->map(&be, &m, &k, &err_));
	k->run(k, &(struct dlb_run){ .in = in, .out = out });
	for (int i = 0; i < 12; i++)
		assert(isnan(x[i]) ? isnan(y[i]) : fabs(y[i] - tanh(x[i])) < 2e-7);
	assert(IS(y[10], ==, 1e-20f));
	dlb_kernel_free(k);
	m = (struct dlb_map_desc){ .fn = DLB_MAP_div, .n_in = 2, .in = { i64, i64 }, .out = i64 };
	MUST(be.ops->map(&be, &m, &k, &err_));
	k->run(k, &(struct dlb_run){ .in = (void *const[]){ a, b }, .out = (void *const[]){ q } });
	assert(IS(q[0], ==, 2) && IS(q[1], ==, -2) && IS(q[2], ==, INT64_MIN) && IS(q[3], ==, 0) &&
	       IS(q[4], ==, INT64_MAX) && IS(q[5], ==, 2));
	dlb_kernel_free(k);
	m.fn = DLB_MAP_mod;
	MUST(be.ops->map(&be, &m, &k, &err_));
	k->run(k, &(struct dlb_run){ .in = (void *const[]){ a, b }, .out = (void *const[]){ q } });
	assert(IS(q[0], ==, 1) && IS(q[1], ==, 2) && IS(q[2], ==, 0) && IS(q[3], ==, 0) && IS(q[4], ==, 0) &&
	       IS(q[5], ==, -2));
	for (int i = 0; i < 6; i++)
		assert(b[i] == 0 || a[i] == INT64_MIN || a[i] == INT64_MAX ||
		       (double)q[i] == python_mod((double)a[i], (double)b[i]));
	dlb_kernel_free(k);
	m.fn = DLB_MAP_fmod;
	MUST(be.ops->map(&be, &m, &k, &err_));
	k->run(k, &(struct dlb_run){ .in = (void *const[]){ a, b }, .out = (void *const[]){ q } });
	assert(IS(q[0], ==, 1) && IS(q[1], ==, -1) && IS(q[5], ==, -2));
	dlb_kernel_free(k);
	m.fn = DLB_MAP_pow;
	a[0] = 3, b[0] = 4, a[1] = -2, b[1] = 3, a[2] = 2, b[2] = -1;
	MUST(be.ops->map(&be, &m, &k, &err_));
	k->run(k, &(struct dlb_run){ .in = (void *const[]){ a, b }, .out = (void *const[]){ q } });
	assert(IS(q[0], ==, 81) && IS(q[1], ==, -8) && IS(q[2], ==, 0) && IS(q[3], ==, 1));
	dlb_kernel_free(k);
	/* unsupported operands are refused */
	m = (struct dlb_map_desc){ .fn = DLB_MAP_add, .n_in = 2, .in = { d, f64 }, .out = d };
	assert(IS(be.ops->map(&be, &m, &k, &err), !=, 0));
	m = (struct dlb_map_desc){ .fn = DLB_MAP_exp, .n_in = 1, .in = { i64 }, .out = i64 };
	assert(IS(be.ops->map(&be, &m, &k, &err), ==, DLB_NO_KERNEL));
	m = (struct dlb_map_desc){
		.fn = DLB_MAP_add, .n_in = 2, .in = { d, desc(DLB_F32, 0, 1, DIMS(5)) }, .out = d
	};
	assert(IS(be.ops->map(&be, &m, &k, &err), ==, -1));
}

/* Shifts by invalid numbers of bits, remainders of floats, infinities by sign, crossing bounds. */
static void map_special(void)
{
	struct dlb_desc i8 = desc(DLB_I8, 0, 1, DIMS(6)), f = desc(DLB_F32, 0, 1, DIMS(6)),
			t = desc(DLB_BOOL, 0, 1, DIMS(6));
	int8_t a[6] = { -128, 5, -5, -1, 64, 3 }, b[6] = { 1, 1, 9, -1, 1, 7 }, z[6];
	float x[6] = { -4.3f, 5, -0.0f, -6, 3, INFINITY }, y[6] = { 2.1f, -3, 4, 3, -INFINITY, 2 }, r[6];
	static const int8_t left[6] = { 0, 10, 0, 0, -128, -128 }, right[6] = { -64, 2, -1, -1, 32, 0 };
	static const float python[6] = { 2, -1, 0, 0, -INFINITY, NAN },
			   c[6] = { -0.1f, 2, -0.0f, -0.0f, 3, NAN };
	uint8_t yes[6];
	const struct { struct dlb_map_desc d; void *in[2], *out; const void *want; size_t bytes;
	} cases[] = {
		{ { .fn = DLB_MAP_shift_left, .n_in = 2, .in = { i8, i8 }, .out = i8 },
		  { a, b },
		  z,
		  left,
		  1 },
		{ { .fn = DLB_MAP_shift_right, .n_in = 2, .in = { i8, i8 }, .out = i8 },
		  { a, b },
		  z,
		  right,
		  1 },
		{ { .fn = DLB_MAP_mod, .n_in = 2, .in = { f, f }, .out = f }, { x, y }, r, python, 4 },
		{ { .fn = DLB_MAP_fmod, .n_in = 2, .in = { f, f }, .out = f }, { x, y }, r, c, 4 },
		{ { .fn = DLB_MAP_clip, .n_in = 1, .in = { f }, .out = f, .alpha = 2, .beta = 1 },
		  { x },
		  r,
		  (float[]){ 1, 1, 1, 1, 1, 1 },
		  4 },
		{ { .fn = DLB_MAP_is_inf, .n_in = 1, .in = { f }, .out = t, .alpha = 1 },
		  { y },
		  yes,
		  (uint8_t[]){ 0, 0, 0, 0, 1, 0 },
		  1 },
		{ { .fn = DLB_MAP_is_inf, .n_in = 1, .in = { f }, .out = t, .beta = 1 },
		  { y },
		  yes,
		  (uint8_t[6]){ 0 },
		  1 },
	};

	for (int i = 0; i < DLB_LEN(cases); i++) {
		struct dlb_kernel *k;

		MUST(be.ops->map(&be, &cases[i].d, &k, &err_));
		k->run(k, &(struct dlb_run){ .in = cases[i].in, .out = (void *const[]){ cases[i].out } });
		for (int j = 0; j < 6; j++) {
			if (cases[i].bytes == 1)
				assert(IS(((uint8_t *)cases[i].out)[j], ==,
					  ((const uint8_t *)cases[i].want)[j]));
			else
				assert(isnan(((const float *)cases[i].want)[j]) ? isnan(r[j]) != 0 :
				       isinf(r[j]) ? r[j] == ((const float *)cases[i].want)[j] :
						     fabsf(r[j] - ((const float *)cases[i].want)[j]) < 1e-5f);
		}
		dlb_kernel_free(k);
	}
}

/* Our own float functions (real_math.h), over the whole range of floats, against the C library's in double;
 * ulp: of the result's binade. */
static double log1p_of_exp(double x) { return (x > 0 ? x : 0) + log1p(exp(-fabs(x))); }
static void accuracy(void)
{
	static const struct { enum dlb_map_fn fn; double (*of)(double); double ulp;
	} ours[] = { { DLB_MAP_exp, exp, 1.5 },       { DLB_MAP_log, log, 1.5 },
		     { DLB_MAP_erf, erf, 2 },         { DLB_MAP_tanh, tanh, 2 },
		     { DLB_MAP_sigmoid, sigmoid, 3 }, { DLB_MAP_softplus, log1p_of_exp, 4 },
		     { DLB_MAP_elu, expm1, 2 } };
	enum { N = 4096 };
	struct dlb_desc d = desc(DLB_F32, 0, 1, DIMS(N));
	float x[N], y[N];
	void *in[] = { x }, *out[] = { y };
	struct dlb_kernel *k;

	for (int f = 0; f < DLB_LEN(ours); f++) {
		struct dlb_map_desc m = { .fn = ours[f].fn, .n_in = 1, .in = { d }, .out = d, .alpha = 1 };

		MUST(be.ops->map(&be, &m, &k, &err_));
		for (uint64_t first = 0; first >> 32 == 0; first += N * UINT64_C(1999)) {
			for (int i = 0; i < N; i++) {
				uint32_t bits = (uint32_t)(first + (uint64_t)i * 1999);

				memcpy(&x[i], &bits, sizeof bits);
			}
			k->run(k, &(struct dlb_run){ .in = in, .out = out });
			for (int i = 0; i < N; i++) {
				double want = ours[f].fn == DLB_MAP_elu && x[i] >= 0 ? x[i] :
										       ours[f].of(x[i]);
				/* not accurate there */
				bool low = ours[f].fn == DLB_MAP_sigmoid && want < 0x1p-126;
				int e;

				frexp(want, &e);
				if (isnan(want)        ? isnan(y[i]) :
				    isinf((float)want) ? y[i] == (float)want :
				    low                ? y[i] < 0x1p-126 :
					  fabs(y[i] - want) <= ldexp(ours[f].ulp, (e < -125 ? -125 : e) - 24))
					continue;
				fprintf(stderr, "%s(%a) = %a, not %a\n", fns[ours[f].fn].name, x[i], y[i],
					want);
				abort();
			}
		}
		dlb_kernel_free(k);
		n_checks++;
	}
}
int main(void)
{
	begin_tests(20261121);
	/* every level of the instruction set that this machine has */
	for (int i = 0; use_level(i); i++) {
		maps();
		maps_of_rows();
		map_gradients();
		map_corners();
		map_special();
		if (be.ops->is_host_memory)	/* others use their libraries' functions */
			accuracy();
	}
	be.ops->close(&be);
	printf("%ld elementwise functions and gradients agree with double\n", n_checks);
	return 0;
}
