/* Reductions, copies, sums of gradients and host functions against double references, at every level of the cpu's
 * instruction set. The seed is printed. */
#include "check.h"
#include "kernels.h"

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
	begin_tests(20261121);
	/* every level of the instruction set that this machine has */
	for (int i = 0; use_level(i); i++) {
		reductions();
		copies();
		sums_and_host();
	}
	be.ops->close(&be);
	printf("%ld reductions and copies agree with double\n", n_checks);
	return 0;
}
