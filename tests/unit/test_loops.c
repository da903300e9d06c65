/* The cpu back end's plain loops (elementwise functions, reductions, copies, softmax, losses, sums) against
 * double references; every gradient in map_list.h against central differences of its function. The seed is
 * printed. */
#include "check.h"
#include "kernels.h"

static const struct { const char *name; int n; } fns[] = {
#define MAP(name, n, expr) { #name, n },
#include "tensor/map_list.h"
#undef MAP
};

static double tol_of(enum dlb_dtype t)
{
	return t == DLB_BF16 ? 4e-3 : t == DLB_F32 ? 3e-6 : t == DLB_F64 ? 1e-13 : 0;
}

/* ---- elementwise ---- */
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

/* Element of a broadcast operand that belongs to element i of out. */
static int64_t broadcast_index(const struct dlb_desc *out, const struct dlb_desc *in, int64_t i)
{
	int64_t at = 0, scale = 1;

	for (int j = out->n_dims - 1, k = in->n_dims - 1; j >= 0; j--, k--) {
		if (k >= 0) {
			at += (in->dim[k] == 1 ? 0 : i % out->dim[j]) * scale;
			scale *= in->dim[k];
		}
		i /= out->dim[j];
	}
	return at;
}

static void one_map(int f, enum dlb_dtype t, struct dlb_desc shape, const struct dlb_desc *in_shape)
{
	double al = f == DLB_MAP_clip ? -0.5 : 0.25, bt = f == DLB_MAP_clip ? 0.5 : 0.75;
	struct dlb_map_desc d = { .fn = f, .n_in = fns[f].n, .alpha = al, .beta = bt };
	struct arg in[3], out = { shape, zeros(dlb_desc_count(&shape)) };
	double tol = tol_of(t) * (f == DLB_MAP_tan || f == DLB_MAP_acosh ? 10 : 1), dummy;
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

/* ---- reductions ---- */
static void one_reduce(int fn, struct dlb_desc d, unsigned axes)
{
	struct arg in = draw(d), out = { d, NULL };
	struct dlb_reduce_desc r = { .fn = fn, .in = d, .axes = axes };
	int64_t n = dlb_desc_count(&d), count = 1;
	struct dlb_kernel *k;
	char what[100];

	for (int i = 0; i < d.n_dims; i++)
		if (axes >> i & 1) {
			out.d.dim[i] = 1;
			count *= d.dim[i];
		}
	out.v = zeros(dlb_desc_count(&out.d));
	for (int64_t i = 0; i < dlb_desc_count(&out.d); i++)
		out.v[i] = fn == DLB_REDUCE_FN_PROD ? 1 :
			   fn == DLB_REDUCE_FN_MAX  ? -INFINITY :
			   fn == DLB_REDUCE_FN_MIN  ? INFINITY :
						      0;
	for (int64_t i = 0; i < n; i++) {
		double *o = &out.v[broadcast_index(&d, &out.d, i)], v = in.v[i];

		if (fn == DLB_REDUCE_FN_PROD && !dlb_dtype_is_float(d.dtype))
			v = in.v[i] = v > 0 ? 1 : d.dtype == DLB_U8 ? 1 : -1;
		else if (count > 2000 && dlb_dtype_is_float(d.dtype))
			v = in.v[i] = fabs(v); /* nothing cancels: the reference adds in double, too */
		*o = fn == DLB_REDUCE_FN_PROD  ? *o * v :
		     fn == DLB_REDUCE_FN_MAX   ? fmax(*o, v) :
		     fn == DLB_REDUCE_FN_MIN   ? fmin(*o, v) :
		     fn == DLB_REDUCE_FN_SUMSQ ? *o + v * v :
						 *o + v;
	}
	for (int64_t i = 0; i < dlb_desc_count(&out.d); i++) {
		if (fn == DLB_REDUCE_FN_MEAN)
			out.v[i] = dlb_dtype_is_float(d.dtype) ? out.v[i] / (double)count :
								 trunc(out.v[i] / (double)count);
		if (d.dtype == DLB_U8 && fn != DLB_REDUCE_FN_MEAN)
			out.v[i] = (double)(uint8_t)(int64_t)out.v[i];
	}
	r.out = out.d;
	dlb_desc_str(&d, what, sizeof what);
	sprintf(what + strlen(what), " reduce %d axes %x", fn, axes);
	MUST(be.ops->reduce(&be, &r, &k, &err_));
	check_run(what, k, &in, 1, &out, 1,
		  d.dtype == DLB_F32 ? 1e-6 :
		  d.dtype == DLB_F64 ? 1e-13 :
				       0,
		  NULL, NULL);
	release(&in, 1);
	release(&out, 1);
}

static void reductions(void)
{
	static const enum dlb_dtype types[] = { DLB_F32, DLB_F64, DLB_I32, DLB_I64, DLB_U8 };

	for (int i = 0; i < DLB_LEN(types); i++)
		for (int fn = DLB_REDUCE_FN_SUM; fn <= DLB_REDUCE_FN_SUMSQ; fn++) {
			for (unsigned axes = 0; axes < 16; axes++)
				for (int l = 0; l < 2; l++)
					one_reduce(fn, desc(types[i], l, 4, DIMS(3, 6, 5, 7)), axes);
			one_reduce(fn, desc(types[i], 0, 2, DIMS(37, 150)), 1);
			one_reduce(fn, desc(types[i], 0, 2, DIMS(37, 150)), 2);
			one_reduce(fn, desc(types[i], 0, 2, DIMS(300, 264)), 1);
			one_reduce(fn, desc(types[i], 0, 2, DIMS(1500, 4)), 1);
			one_reduce(fn, desc(types[i], 0, 1, DIMS(1001)), 1);
			one_reduce(fn, desc(types[i], 0, 3, DIMS(1, 9, 1)), 5);
			one_reduce(fn, desc(types[i], 0, 0, NULL), 0);
			if (fn == DLB_REDUCE_FN_PROD && !dlb_dtype_is_float(types[i]))
				continue;
			/* many elements of few results: back ends may cut them into parts */
			one_reduce(fn, desc(types[i], 0, 2, DIMS(300, 40)), 1);
			one_reduce(fn, desc(types[i], 0, 2, DIMS(2, 40001)), 2);
			one_reduce(fn, desc(types[i], 0, 3, DIMS(23, 2, 1700)), 5);
		}
	one_reduce(DLB_REDUCE_FN_SUM, desc(DLB_F32, 0, 2, DIMS(4, 0)), 2);
}

/* ---- copies ---- */
static double wrapped(enum dlb_dtype t, double v)
{
	int64_t i = (int64_t)v;

	return t == DLB_U8  ? (double)(uint8_t)i :
	       t == DLB_U16 ? (double)(uint16_t)i :
	       t == DLB_U32 ? (double)(uint32_t)i :
	       t == DLB_U64 ? (double)(uint64_t)i :
			      (double)i;
}

/* out (permuted by perm, reversed and every second element along dimension 0 when `slice`) = in. */
static void one_copy(enum dlb_dtype from, enum dlb_dtype to, int n_dims, const int64_t *dim, const int *perm,
		     bool add, bool slice)
{
	struct arg in = draw(desc(from, 0, n_dims, dim)), out = { desc(to, 0, n_dims, dim), NULL };
	struct dlb_copy_desc c = {
		.in = from, .out = to, .n_dims = n_dims, .zero_first = true, .accumulate = add
	};
	int64_t si[DLB_MAX_DIMS], so[DLB_MAX_DIMS], n = dlb_desc_count(&in.d), m;
	struct dlb_kernel *k;
	char what[100];

	for (int i = 0; i < n_dims; i++)
		out.d.dim[i] = dim[perm[i]] * (slice && i == 0 ? 2 : 1);
	dlb_desc_strides(&in.d, si);
	dlb_desc_strides(&out.d, so);
	m = dlb_desc_count(&out.d);
	out.v = zeros(m);
	for (int i = 0; i < n_dims; i++) {
		c.dim[i] = dim[perm[i]];
		c.in_stride[i] = si[perm[i]];
		c.out_stride[i] = so[i];
	}
	if (slice) {
		c.out_stride[0] *= 2;
		c.out_offset = so[0];
		c.in_offset = (c.dim[0] - 1) * c.in_stride[0];
		c.in_stride[0] = -c.in_stride[0];
	}
	c.out_count = m;
	for (int64_t i = 0; i < n; i++) {
		int64_t at_in = c.in_offset, at_out = c.out_offset, rest = i;

		for (int j = n_dims - 1; j >= 0; j--) {
			at_in += rest % c.dim[j] * c.in_stride[j];
			at_out += rest % c.dim[j] * c.out_stride[j];
			rest /= c.dim[j];
		}
		out.v[at_out] = to == DLB_BOOL       ? in.v[at_in] != 0 :
				dlb_dtype_is_int(to) ? wrapped(to, in.v[at_in]) :
						       rounded(to, in.v[at_in]);
	}
	snprintf(what, sizeof what, "copy %s to %s add %d slice %d dims %d", dlb_dtype_name(from),
		 dlb_dtype_name(to), add, slice, n_dims);
	MUST(be.ops->copy(&be, &c, &k, &err_));
	check_run(what, k, &in, 1, &out, 1, to == DLB_F16 ? 1e-3 : to == DLB_BF16 ? 1e-2 : 0, NULL, NULL);
	release(&in, 1);
	release(&out, 1);
}

/* out[r][c][i step + j] += in[r][i][j][c], summed in that order: windows of 4 rows that overlap. */
static void windows(enum dlb_dtype t, int64_t n, int64_t size, int64_t step)
{
	enum { ROWS = 4, CHANNELS = 3 };
	const int64_t length = (n - 1) * step + size;
	struct arg in = draw(desc(t, 0, 4, DIMS(ROWS, n, size, CHANNELS))),
		   out = { desc(t, 0, 3, DIMS(ROWS, CHANNELS, length)), zeros(ROWS * CHANNELS * length) };
	const struct dlb_copy_desc c = { .in = t,
					 .out = t,
					 .n_dims = 4,
					 .dim = { ROWS, n, size, CHANNELS },
					 .in_stride = { n * size * CHANNELS, size * CHANNELS, CHANNELS, 1 },
					 .out_stride = { CHANNELS * length, step, 1, length },
					 .zero_first = true,
					 .accumulate = true,
					 .out_count = ROWS * CHANNELS * length };
	struct dlb_kernel *k;

	for (int64_t i = 0; i < ROWS * n * size * CHANNELS; i++) {
		const int64_t ch = i % CHANNELS, j = i / CHANNELS % size, at = i / CHANNELS / size % n,
			      r = i / CHANNELS / size / n;
		double *o = &out.v[(r * CHANNELS + ch) * length + at * step + j];

		*o = rounded(t, *o + in.v[i]);
	}
	MUST(be.ops->copy(&be, &c, &k, &err_));
	check_run("windows", k, &in, 1, &out, 1, 0, NULL, NULL);
	release(&in, 1);
	release(&out, 1);
}

/* Columns [first, first + n) of rows of `pitch` elements, to or from rows of n: Split or Concat. expand: the
 * n elements of a row are one. */
static void columns(enum dlb_dtype from, enum dlb_dtype to, int64_t n, int64_t pitch, int64_t first,
		    bool concat, bool expand, bool add)
{
	enum { ROWS = 5 };
	struct arg in = draw(desc(from, 0, 2,
				  DIMS(ROWS, expand ? 1 :
					     concat ? n :
						      pitch))),
		   out = { desc(to, 0, 2, DIMS(ROWS, concat ? pitch : n)),
			   zeros(ROWS * (concat ? pitch : n)) };
	const int64_t in_offset = concat || expand ? 0 : first, out_offset = concat ? first : 0;
	const struct dlb_copy_desc c = { .in = from,
					 .out = to,
					 .n_dims = 2,
					 .dim = { ROWS, n },
					 .in_stride = { in.d.dim[1], !expand },
					 .out_stride = { out.d.dim[1], 1 },
					 .in_offset = in_offset,
					 .out_offset = out_offset,
					 .zero_first = true,
					 .accumulate = add,
					 .out_count = ROWS * out.d.dim[1] };
	struct dlb_kernel *k;

	for (int64_t i = 0; i < ROWS * n; i++)
		out.v[out_offset + i / n * c.out_stride[0] +
		      i % n] = rounded(to, in.v[in_offset + i / n * c.in_stride[0] + i % n * c.in_stride[1]]);
	MUST(be.ops->copy(&be, &c, &k, &err_));
	check_run(concat ? "concat" : "split", k, &in, 1, &out, 1, 0, NULL, NULL);
	release(&in, 1);
	release(&out, 1);
}

static void all_columns(void)
{
	static const struct {
		enum dlb_dtype from, to;
		bool add;
	} types[] = {
		{ DLB_U8, DLB_U8, false },   { DLB_BF16, DLB_BF16, false }, { DLB_F32, DLB_F32, false },
		{ DLB_F64, DLB_F64, false }, { DLB_F32, DLB_BF16, false },  { DLB_BF16, DLB_F32, false },
		{ DLB_F32, DLB_F32, true },  { DLB_F64, DLB_F64, true },    { DLB_BF16, DLB_BF16, true },
		{ DLB_F32, DLB_F64, false },
	};
	/* whole runs of 16 bytes, at their multiples or not; and no runs */
	static const struct {
		int64_t n, pitch, first;
	} rows[] = { { 48, 144, 48 }, { 48, 100, 7 }, { 16, 33, 16 }, { 20, 60, 20 },
		     { 5, 15, 5 },    { 1, 3, 2 },    { 16, 16, 0 },  { 21, 21, 0 } };

	for (int t = 0; t < DLB_LEN(types); t++)
		for (int r = 0; r < DLB_LEN(rows); r++)
			for (int how = 0; how < 4; how++)
				columns(types[t].from, types[t].to, rows[r].n, rows[r].pitch, rows[r].first,
					how & 1, how & 2, types[t].add);
}

static void copies(void)
{
	static const int perms[][4] = { { 0, 1, 2, 3 }, { 0, 2, 3, 1 }, { 3, 2, 1, 0 },
					{ 1, 0, 3, 2 }, { 0, 3, 1, 2 }, { 2, 0, 1, 3 } };
	struct dlb_copy_desc overlap = { .in = DLB_F32,
					 .out = DLB_F32,
					 .n_dims = 2,
					 .dim = { 3, 4 },
					 .in_stride = { 4, 1 },
					 .out_stride = { 0, 1 },
					 .accumulate = true,
					 .zero_first = true,
					 .out_count = 4 };
	struct arg in = { desc(DLB_F32, 0, 2, DIMS(3, 4)), NULL },
		   out = { desc(DLB_F32, 0, 1, DIMS(4)), NULL };
	struct dlb_kernel *k;

	for (int from = 0; from < DLB_N_DTYPES; from++)
		for (int to = 0; to < DLB_N_DTYPES; to++) {
			if (from == DLB_F16)
				continue;		/* random values are exact in the other types only */
			one_copy(from, to, 4, DIMS(2, 3, 4, 5), perms[to % 6], false, false);
			one_copy(from, to, 1, DIMS(777), perms[0], false, true);
		}
	for (int p = 0; p < DLB_LEN(perms); p++)
		for (int flags = 0; flags < 4; flags++) {
			one_copy(DLB_F32, DLB_F32, 4, DIMS(3, 40, 9, 37), perms[p], flags & 1, flags & 2);
			one_copy(DLB_F64, DLB_F64, 4, DIMS(2, 5, 1, 7), perms[p], flags & 1, flags & 2);
			one_copy(DLB_I64, DLB_I64, 4, DIMS(2, 5, 3, 7), perms[p], flags & 1, flags & 2);
		}
	all_columns();
	one_copy(DLB_F32, DLB_F32, 0, NULL, NULL, false, false);
	one_copy(DLB_F32, DLB_F32, 2, DIMS(0, 3), perms[0], false, false);
	in = draw(in.d);			/* several elements added to one element */
	out.v = zeros(4);
	for (int i = 0; i < 12; i++)
		out.v[i % 4] = (float)(out.v[i % 4] + in.v[i]);
	MUST(be.ops->copy(&be, &overlap, &k, &err_));
	check_run("scatter", k, &in, 1, &out, 1, 1e-6, NULL, NULL);
	release(&in, 1);
	release(&out, 1);
	for (int t = DLB_F32; t <= DLB_F64; t++) {
		windows(t, 5, 4, 1);
		windows(t, 5, 4, 2);
		windows(t, 6, 3, 3);
		windows(t, 300, 7, 2);
	}
	windows(DLB_I32, 9, 4, 2);
}

/* ---- softmax ---- */
static void one_softmax(enum dlb_dtype t, bool is_log, int64_t outer, int64_t axis, int64_t inner,
			double spread)
{
	struct dlb_desc d = desc(t, 0, 3, DIMS(outer, axis, inner));
	struct arg x = draw(d), y = { d, zeros(outer * axis * inner) }, dy = draw(d),
		   dx = { d, zeros(outer * axis * inner) };
	struct dlb_softmax_desc s = {
		.dtype = t, .log = is_log, .outer = outer, .axis = axis, .inner = inner
	};
	struct arg given = { d, zeros(outer * axis * inner) };
	struct dlb_kernel *k;

	for (int64_t i = 0; i < outer * axis * inner; i++)
		x.v[i] = rounded(t, x.v[i] * spread);
	for (int64_t o = 0; o < outer; o++)
		for (int64_t i = 0; i < inner; i++) {
			double max = -INFINITY, sum = 0, dot = 0;
#define EACH(at) for (int64_t a_ = 0, at = o * axis * inner + i; a_ < axis; a_++, at += inner)
			EACH(at)
				max = fmax(max, x.v[at]);
			EACH(at)
				sum += exp(x.v[at] - max);
			EACH(at) {
				y.v[at] = is_log ? x.v[at] - max - log(sum) : exp(x.v[at] - max) / sum;
				given.v[at] = rounded(t, y.v[at]);
				dot += is_log ? dy.v[at] : dy.v[at] * given.v[at];
			}
			EACH(at)
			dx.v[at] = is_log ? dy.v[at] - exp(given.v[at]) * dot :
					    given.v[at] * (dy.v[at] - dot);
#undef EACH
		}
	MUST(be.ops->softmax(&be, &s, &k, &err_));
	if (t == DLB_F64)
		check_differences("softmax", k, &x, 1, &y, 1, dy.v, 0, dx.v);
	check_run("softmax", k, &x, 1, &y, 1, tol_of(t), NULL, NULL);
	s.backward = true;
	MUST(be.ops->softmax(&be, &s, &k, &err_));
	check_run("softmax gradient", k, (struct arg[]){ dy, given }, 2, &dx, 1, tol_of(t) * 4, NULL, NULL);
	free(x.v); free(y.v); free(dy.v); free(dx.v); free(given.v);
}

/* ---- losses ---- */
static void one_loss(enum dlb_dtype t, enum dlb_dtype label, bool sce, bool weighted, bool ignore,
		     enum dlb_reduction red, int64_t n, int64_t c, int64_t inner, int wrong)
{
	struct dlb_desc dx_ = desc(t, 0, 3, DIMS(n, c, inner)), dl = desc(label, 0, 2, DIMS(n, inner));
	struct arg x = draw(dx_), lp = { dx_, zeros(n * c * inner) }, labels = { dl, zeros(n * inner) },
		   w = weighted ? draw(desc(t, 0, 1, &c)) : absent();
	struct arg y = { red == DLB_REDUCE_NONE ? desc(t, 0, 2, DIMS(n, inner)) : desc(t, 0, 0, NULL),
			 zeros(n * inner) };
	struct arg dy = draw(y.d), dx = { dx_, zeros(n * c * inner) };
	struct dlb_loss_desc d = { .dtype = t,
				   .label = label,
				   .softmax = sce,
				   .has_weight = weighted,
				   .has_ignore = ignore,
				   .ignore = -7,
				   .reduction = red,
				   .n = n,
				   .classes = c,
				   .inner = inner };
	double sum = 0, weight = 0;
	struct dlb_kernel *k;
	char what[100];

	for (int64_t i = 0; weighted && i < c; i++)
		w.v[i] = rounded(t, fabs(w.v[i]) + 0.1);
	for (int64_t i = 0; i < n * inner; i++)
		labels.v[i] = ignore && (dlb_rng_below(&rng, 4) == 0 || wrong == 2) ?
				      -7 :
				      (double)dlb_rng_below(&rng, (uint64_t)c);
	if (wrong == 1)
		labels.v[0] = (double)c;
	for (int64_t i = 0; i < n * inner; i++) {
		int64_t l = (int64_t)labels.v[i], base = i / inner * c * inner + i % inner;
		double s = 0, loss;

		for (int64_t j = 0; j < c; j++)
			s += exp(x.v[base + j * inner]);
		for (int64_t j = 0; j < c; j++)
			lp.v[base + j * inner] = rounded(t, sce ? x.v[base + j * inner] - log(s) :
								  x.v[base + j * inner]);
		loss = l == -7         ? 0 :
		       l < 0 || l >= c ? NAN :
					 -(weighted ? w.v[l] : 1) * (sce ? x.v[base + l * inner] - log(s) :
									   x.v[base + l * inner]);
		weight += l == -7 ? 0 : l < 0 || l >= c ? NAN : weighted ? w.v[l] : 1;
		sum += loss;
		if (red == DLB_REDUCE_NONE)
			y.v[i] = loss;
	}
	if (red != DLB_REDUCE_NONE)
		y.v[0] = red == DLB_REDUCE_SUM ? sum : weight == 0 ? 0 : sum / weight;
	for (int64_t i = 0; i < n * inner; i++) {
		int64_t l = (int64_t)labels.v[i], base = i / inner * c * inner + i % inner;
		bool bad = l != -7 && (l < 0 || l >= c);
		double up = dy.v[red == DLB_REDUCE_NONE ? i : 0] / (red == DLB_REDUCE_MEAN ? weight : 1) *
			    (bad                ? NAN :
			     weighted && l >= 0 ? w.v[l] :
						  1);

		for (int64_t j = 0; j < c; j++)
			dx.v[base + j * inner] = l == -7    ? 0 :
						 sce || bad ? up * (exp(lp.v[base + j * inner]) - (j == l)) :
						 j == l     ? -up :
							      0;
	}
	snprintf(what, sizeof what, "%s %s reduction %d, %lldx%lldx%lld", sce ? "sce" : "nll",
		 dlb_dtype_name(t), red, (long long)n, (long long)c, (long long)inner);
	MUST(be.ops->loss(&be, &d, &k, &err_));
	if (t == DLB_F64 && !wrong)
		check_differences(what, k, (struct arg[]){ x, labels, w }, 3, (struct arg[]){ y, absent() },
				  2, dy.v, 0, dx.v);
	check_run(what, k, (struct arg[]){ x, labels, w }, 3, (struct arg[]){ y, sce ? lp : absent() }, 2,
		  tol_of(t) * 4, NULL, NULL);
	MUST(be.ops->loss(&be, &d, &k, &err_));
	check_run(what, k, (struct arg[]){ x, labels, w }, 3, (struct arg[]){ y, absent() }, 2, tol_of(t) * 4,
		  NULL, NULL);
	d.backward = true;
	MUST(be.ops->loss(&be, &d, &k, &err_));
	check_run(what, k, (struct arg[]){ dy, lp, labels, w }, 4, &dx, 1, tol_of(t) * 4, NULL, NULL);
	free(x.v); free(lp.v); free(labels.v); free(w.v); free(y.v); free(dy.v); free(dx.v);
}

/* Softmax cross-entropy with label smoothing e: (1 - e) times the loss of the label plus e / classes times
 * that of all classes, each with its weight. */
static void one_smoothed(enum dlb_dtype t, bool weighted, enum dlb_reduction red, int64_t n, int64_t c,
			 int64_t inner)
{
	const struct dlb_desc dx_ = desc(t, 0, 3, DIMS(n, c, inner));
	const double e = 0.3;
	struct arg x = draw(dx_), lp = { dx_, zeros(n * c * inner) }, dx = { dx_, zeros(n * c * inner) },
		   labels = { desc(DLB_I32, 0, 2, DIMS(n, inner)), zeros(n * inner) },
		   w = weighted ? draw(desc(t, 0, 1, &c)) : absent();
	struct arg y = { red == DLB_REDUCE_NONE ? desc(t, 0, 2, DIMS(n, inner)) : desc(t, 0, 0, NULL),
			 zeros(n * inner) };
	struct arg dy = draw(y.d);
	struct dlb_loss_desc d = { .dtype = t, .label = DLB_I32, .softmax = true, .has_weight = weighted,
				   .has_ignore = true, .ignore = 1, .smoothing = e, .reduction = red,
				   .n = n, .classes = c, .inner = inner };
	double sum = 0, weight = 0, all = 0;
	struct dlb_kernel *k;

	for (int64_t j = 0; j < c; j++)
		all += weighted ? (w.v[j] = rounded(t, fabs(w.v[j]) + 0.1)) : 1;
	for (int64_t i = 0; i < n * inner; i++) {
		const int64_t l = (int64_t)dlb_rng_below(&rng, (uint64_t)c),
			      base = i / inner * c * inner + i % inner;
		const double mine = l == 1 ? 0 : weighted ? w.v[l] : 1;
		double s = 0, loss = 0;

		labels.v[i] = (double)l;
		for (int64_t j = 0; j < c; j++)
			s += exp(x.v[base + j * inner]);
		for (int64_t j = 0; j < c; j++) {
			const double p = x.v[base + j * inner] - log(s);

			lp.v[base + j * inner] = rounded(t, p);
			loss -= l == 1 ? 0 :
					 ((j == l) * (1 - e) * mine +
					  e / (double)c * (weighted ? w.v[j] : 1)) *
						 p;
		}
		sum += loss;
		weight += mine;
		if (red == DLB_REDUCE_NONE)
			y.v[i] = loss;
	}
	if (red != DLB_REDUCE_NONE)
		y.v[0] = red == DLB_REDUCE_SUM ? sum : weight == 0 ? 0 : sum / weight;
	for (int64_t i = 0; i < n * inner; i++)
		for (int64_t j = 0; j < c; j++) {
			const int64_t l = (int64_t)labels.v[i], at = (i / inner * c + j) * inner + i % inner;
			const double up = dy.v[red == DLB_REDUCE_NONE ? i : 0] /
					  (red == DLB_REDUCE_MEAN && weight != 0 ? weight : 1),
				     p = exp(lp.v[at]), mine = weighted ? w.v[l] : 1,
				     of_j = weighted ? w.v[j] : 1;

			dx.v[at] = l == 1 ? 0 : up * ((1 - e) * mine * (p - (j == l)) +
						      e / (double)c * (all * p - of_j));
		}
	MUST(be.ops->loss(&be, &d, &k, &err_));
	check_run("smoothed", k, (struct arg[]){ x, labels, w }, 3, (struct arg[]){ y, lp }, 2, tol_of(t) * 4,
		  NULL, NULL);
	d.backward = true;
	MUST(be.ops->loss(&be, &d, &k, &err_));
	check_run("smoothed, gradient", k, (struct arg[]){ dy, lp, labels, w }, 4, &dx, 1, tol_of(t) * 4,
		  NULL, NULL);
	free(x.v), free(lp.v), free(dx.v), free(labels.v), free(w.v), free(y.v), free(dy.v);
}

/* One part of the classes, from class `first` on: its stats, and its gradient from any gradient of them. */
static void one_part(enum dlb_dtype t, int64_t n, int64_t c, int64_t inner, int64_t first,
		     const struct arg *labels)
{
	struct arg x = draw(desc(t, 0, 3, DIMS(n, c, inner))), up = draw(desc(t, 0, 3, DIMS(n, 3, inner))),
		   stats = { up.d, zeros(n * 3 * inner) }, dx = { x.d, zeros(n * c * inner) };
	struct dlb_loss_desc d = { .stage = DLB_LOSS_PART,
				   .first = first,
				   .dtype = t,
				   .label = labels->d.dtype,
				   .softmax = true,
				   .n = n,
				   .classes = c,
				   .inner = inner };
	struct dlb_kernel *k;

	for (int64_t i = 0; i < n * inner; i++) {
		const int64_t base = i / inner * c * inner + i % inner,
			      at = i / inner * 3 * inner + i % inner, l = (int64_t)labels->v[i] - first;
		int64_t largest = 0;

		for (int64_t j = 0; j < c; j++)
			largest = x.v[base + j * inner] > x.v[base + largest * inner] ? j : largest;
		stats.v[at] = x.v[base + largest * inner];
		for (int64_t j = 0; j < c; j++)
			stats.v[at + inner] += exp(x.v[base + j * inner] - stats.v[at]);
		stats.v[at + inner] = rounded(t, stats.v[at + inner]);
		stats.v[at + 2 * inner] = l >= 0 && l < c ? x.v[base + l * inner] : 0;
		if (i % 3 == 0)		/* no gradient: zeros */
			up.v[at] = up.v[at + inner] = up.v[at + 2 * inner] = 0;
		for (int64_t j = 0; j < c; j++)
			dx.v[base + j * inner] = up.v[at + inner] * exp(x.v[base + j * inner] - stats.v[at]) +
				(j == l ? up.v[at + 2 * inner] : 0) +
				(j == largest ? up.v[at] - up.v[at + inner] * stats.v[at + inner] : 0);
	}
	MUST(be.ops->loss(&be, &d, &k, &err_));
	check_run("part", k, (struct arg[]){ x, *labels }, 2, &stats, 1, tol_of(t) * 4, NULL, NULL);
	d.backward = true;
	MUST(be.ops->loss(&be, &d, &k, &err_));
	check_run("part, gradient", k, (struct arg[]){ up, x, *labels, stats }, 4, &dx, 1, tol_of(t) * 4,
		  NULL, NULL);
	free(x.v), free(up.v), free(stats.v), free(dx.v);
}

/* Joining of parts that are given by their stats. */
static void one_join(enum dlb_dtype t, enum dlb_reduction red, int64_t n, int64_t inner,
		     const struct arg *labels, int64_t classes)
{
	enum { PARTS = 3 };
	const struct dlb_desc ds = desc(t, 0, 3, DIMS(n, 3, inner));
	struct arg in[1 + PARTS] = { *labels },
			  y = { red == DLB_REDUCE_NONE ? labels->d : desc(t, 0, 0, NULL), zeros(n * inner) };
	struct arg norm = { desc(t, 0, 3, DIMS(n, 2, inner)), zeros(n * 2 * inner) }, up,
		   dstats = { ds, NULL };
	struct dlb_loss_desc d = { .stage = DLB_LOSS_JOIN,
				   .n_parts = PARTS,
				   .dtype = t,
				   .label = labels->d.dtype,
				   .softmax = true,
				   .has_ignore = true,
				   .ignore = 2,
				   .reduction = red,
				   .n = n,
				   .classes = classes,
				   .inner = inner };
	double sum = 0, weight = 0;
	struct dlb_kernel *k;

	y.d.dtype = t;
	up = draw(y.d);
	for (int p = 1; p <= PARTS; p++) {
		in[p] = draw(ds);
		for (int64_t i = 0; i < n * inner; i++) {	/* sums of exponentials are at least 1 */
			double *one = &in[p].v[(i / inner * 3 + 1) * inner + i % inner];

			*one = rounded(t, 1 + fabs(*one));
		}
	}
	for (int64_t i = 0; i < n * inner; i++) {
		const int64_t at = i / inner * 3 * inner + i % inner, to = i / inner * 2 * inner + i % inner;
		double m = -INFINITY, all = 0, score = 0, loss;

		for (int p = 1; p <= PARTS; p++)
			m = fmax(m, in[p].v[at]);
		for (int p = 1; p <= PARTS; p++) {
			all += in[p].v[at + inner] * exp(in[p].v[at] - m);
			score += in[p].v[at + 2 * inner];
		}
		norm.v[to] = m;
		norm.v[to + inner] = rounded(t, log(all));
		loss = labels->v[i] == 2 ? 0 : m + log(all) - score;
		sum += loss;
		weight += labels->v[i] != 2;
		if (red == DLB_REDUCE_NONE)
			y.v[i] = loss;
	}
	if (red != DLB_REDUCE_NONE)
		y.v[0] = red == DLB_REDUCE_SUM ? sum : weight == 0 ? 0 : sum / weight;
	MUST(be.ops->loss(&be, &d, &k, &err_));
	check_run("join", k, in, 1 + PARTS, (struct arg[]){ y, norm }, 2, tol_of(t) * 4, NULL, NULL);
	MUST(be.ops->loss(&be, &d, &k, &err_));
	check_run("join", k, in, 1 + PARTS, (struct arg[]){ y, absent() }, 2, tol_of(t) * 4, NULL, NULL);
	d.backward = true;
	for (int p = 1; p <= PARTS; p++) {
		dstats.v = zeros(n * 3 * inner);
		for (int64_t i = 0; i < n * inner; i++) {
			const int64_t at = i / inner * 3 * inner + i % inner,
				      to = i / inner * 2 * inner + i % inner;
			const double g = labels->v[i] == 2 ? 0 : up.v[red == DLB_REDUCE_NONE ? i : 0] /
								 (red == DLB_REDUCE_MEAN ? weight : 1);

			dstats.v[at + inner] = g * exp(in[p].v[at] - norm.v[to] - norm.v[to + inner]);
			dstats.v[at] = dstats.v[at + inner] * in[p].v[at + inner];
			dstats.v[at + 2 * inner] = -g;
		}
		MUST(be.ops->loss(&be, &d, &k, &err_));
		check_run("join, gradient", k, (struct arg[]){ up, *labels, norm, in[p] }, 4, &dstats, 1,
			  tol_of(t) * 4, NULL, NULL);
		free(dstats.v);
	}
	free(y.v), free(norm.v), free(up.v);
	release(in + 1, PARTS);
}

static void split_losses(enum dlb_dtype t, int64_t n, int64_t classes, int64_t inner)
{
	struct arg labels = { desc(DLB_I64, 0, 2, DIMS(n, inner)), zeros(n * inner) };

	for (int64_t i = 0; i < n * inner; i++)
		labels.v[i] = (double)dlb_rng_below(&rng, (uint64_t)classes);
	one_part(t, n, classes / 3, inner, 0, &labels);
	one_part(t, n, classes - classes / 3, inner, classes / 3, &labels);
	for (int red = 0; red < 3; red++)
		one_join(t, red, n, inner, &labels, classes);
	release(&labels, 1);
}

static void softmaxes_and_losses(void)
{
	for (int t = DLB_F32; t <= DLB_F64; t++) {
		for (int l = 0; l < 2; l++) {
			static const int64_t shapes[][3] = { { 5, 10, 1 }, { 3, 1, 1 },   { 2, 100, 1 },
							     { 4, 7, 5 },  { 1, 33, 40 }, { 3, 16, 1 },
							     { 2, 1, 3 } };

			for (int i = 0; i < DLB_LEN(shapes); i++)
				one_softmax(t, l, shapes[i][0], shapes[i][1], shapes[i][2], i % 2 ? 1 : 60);
			for (int i = 0; i < 4; i++) /* rows of whole runs, and longer */
				one_softmax(t, l, 3, (const int64_t[]){ 64, 200, 1000, 1500 }[i], 1, 10);
			one_softmax(t, l, 2, 300, 3, 10);
		}
		for (int red = 0; red < 3; red++)
			for (int weighted = 0; weighted < 2; weighted++) {
				one_smoothed(t, weighted, red, 7, 5, 1);
				one_smoothed(t, weighted, red, 3, 50, 2);
				one_smoothed(t, weighted, red, 2, 6, 40);
			}
		split_losses(t, 9, 7, 1);
		split_losses(t, 4, 150, 1);
		split_losses(t, 2, 9, 35);
		split_losses(t, 3, 4000, 2);
		for (int flags = 0; flags < 16; flags++)
			for (int red = 0; red < 3; red++) {
				enum dlb_dtype label = flags & 1 ? DLB_I32 : DLB_I64;

				one_loss(t, label, flags & 2, flags & 4, flags & 8, red, 6, 10, 1, 0);
				one_loss(t, label, flags & 2, flags & 4, flags & 8, red, 3, 5, 12, 0);
				one_loss(t, label, flags & 2, flags & 4, flags & 8, red, 4, 40, 1, 0);
				one_loss(t, label, flags & 2, flags & 4, flags & 8, red, 3, 5, 2, 1);
				if (flags & 8)
					one_loss(t, label, flags & 2, flags & 4, true, red, 3, 5, 1, 2);
			}
	}
}

/* ---- sums of gradients, host functions ---- */
struct host_ctx { double by; };
static void times(const void *ctx, const struct dlb_run *r)
{
	const struct host_ctx *c = ctx;

	for (int i = 0; i < 5; i++)
		((double *)r->out[0])[i] = c->by * ((const double *)r->in[0])[i];
}

static void one_square_sum(enum dlb_dtype t, int64_t n)
{
	struct arg x = draw(desc(t, 0, 1, &n)), acc = draw(desc(t, 0, 1, &n)), sum = { acc.d, zeros(n) };
	unsigned char *base, *p = buffer((size_t)n * dlb_dtype_bytes(t), 0, &base),
			     *base_acc, *p_acc = buffer((size_t)n * dlb_dtype_bytes(t), 64, &base_acc);
	double want = 0, got = NAN;
	struct dlb_kernel *k;

	put(&x, p);
	put(&acc, p_acc);
	for (int64_t i = 0; i < n; i++) {
		want += x.v[i] * x.v[i];
		sum.v[i] = rounded(t, acc.v[i] + x.v[i]);
	}
	MUST(be.ops->square_sum(&be, &(struct dlb_square_sum_desc){ t, n }, &k, &err_));
	for (int again = 0; again < 2; again++) {	/* it is written, not added to */
		k->run(k, &(struct dlb_run){ .in = (void *[]){ p }, .out = (void *[]){ &got } });
		assert(IS(fabs(got - want), <=, 1e-13 * want));
	}
	dlb_kernel_free(k);
	MUST(be.ops->accumulate(&be, &(struct dlb_accumulate_desc){ t, n, false }, &k, &err_));
	k->run(k, &(struct dlb_run){ .in = (void *[]){ p }, .out = (void *[]){ p_acc } });
	compare("accumulate", 0, &sum, p_acc, 0);
	dlb_kernel_free(k);
	release(&x, 1), release(&acc, 1), release(&sum, 1);
	free(base), free(base_acc);
	n_checks += 2;
}

static void sums_and_host(void)
{
	double x[5] = { 1, 2, 3, 4, 5 }, acc[5] = { NAN, 0, 0, 0, 0 };
	void *in[] = { x }, *out[] = { acc };
	struct dlb_run r = { .in = in, .out = out };
	struct dlb_kernel *k;

	for (int first = 1; first >= 0; first--) {
		MUST(be.ops->accumulate(&be, &(struct dlb_accumulate_desc){ DLB_F64, 5, first }, &k, &err_));
		k->run(k, &r);
		dlb_kernel_free(k);
	}
	assert(IS(acc[0], ==, 2) && IS(acc[4], ==, 10));
	for (int t = DLB_F32; t <= DLB_F64; t++)
		for (int64_t n = 0; n < 300000; n = 7 * n + 1)
			one_square_sum(t, n);
	if (!be.ops->is_host_memory)
		return;
	MUST(be.ops->host(&be, times, &(struct host_ctx){ 3 }, sizeof(struct host_ctx), 0, &k, &err_));
	k->run(k, &r);
	dlb_kernel_free(k);
	assert(IS(acc[0], ==, 3) && IS(acc[4], ==, 15));
	dlb_kernel_free(NULL);
	n_checks += 3;
}

int main(void)
{
	uint64_t seed = getenv("SEED") ? strtoull(getenv("SEED"), NULL, 10) : 20261121;

	dlb_rng_init(&rng, seed);
	printf("seed %llu\n", (unsigned long long)seed);
	open_backend();
	/* every level of the instruction set that this machine has */
	for (int i = 0; use_level(i); i++) {
		maps();
		maps_of_rows();
		map_gradients();
		map_corners();
	map_special();
		if (be.ops->is_host_memory)	/* others use their libraries' functions */
			accuracy();
		reductions();
		copies();
		softmaxes_and_losses();
		sums_and_host();
	}
	be.ops->close(&be);
	printf("%ld elementwise functions, gradients, reductions, copies, softmaxes and losses agree with "
	       "double\n",
	       n_checks);
	return 0;
}
