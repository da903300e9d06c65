/* DFT and STFT: the discrete Fourier transform along an axis; the last dimension holds a number's real and imaginary
 * part, or the real part alone.
 *     y[k] = sum_j x[j] e^(-2 pi i j k / L),  inverse: 1/L sum_j x[j] e^(2 pi i j k / L)
 * for the first L values of the axis, or padded with zeros to L (dft_length). onesided: only bins 0 to L/2 of
 * a real signal; with inverse, the real signal of L values that has those bins.
 *
 * The kernel is a product with the matrix of the transform, which has a row for each part of each input and
 * a column for each part of each result: for the lengths of sequences and widths of layers, a library's product
 * is fast, and exact to rounding. DFTGrad (dy) multiplies by the transposed matrix; its attributes hold the
 * sizes of x, which dy does not show.
 *
 * STFT transforms frames of a signal (batch, samples, parts), `frame_step` apart and multiplied by a window, which
 * is constant and part of the matrix. STFTGrad (dy, window) gives the frames' gradients in the order of Col2Im,
 * which adds them where they overlap. */
#include "op/op_util.h"
#include <math.h>
#include <stdlib.h>

enum { MOST_ELEMENTS = 1 << 26 };	/* of the matrix */
enum { LENGTH = 1, AXIS };		/* inputs of DFT */
enum { STEP = 1, WINDOW, FRAME };	/* inputs of STFT */

struct dft {
	struct dlb_desc x, y;
	int64_t length, outer, inner, n, bins;	/* n and bins: sizes of x and y along the axis */
	int in_parts, out_parts;		/* 1: real, 2: complex */
	bool inverse, onesided;
	int axis;
	const void *window;			/* [n] of x's type: factors of the values; NULL: 1 */
};

/* Computes the members that x, the flags, the axis and the length determine. length 0: as long as the
 * signal. */
static int finish(const struct dlb_op_io *io, struct dft *t, struct dlb_error *err)
{
	const int last = t->x.n_dims - 1;
	const bool to_real = t->onesided && t->inverse;

	if (t->axis == last)
		return dlb_op_fail(io, err, "axis %d is that of the real and imaginary part", t->axis);
	t->in_parts = (int)t->x.dim[last];
	if (t->x.dim[last] < 1 || t->x.dim[last] > 2)
		return dlb_op_fail(io, err, "the last dimension is %lld, not 1 (real) or 2 (complex)",
				   (long long)t->x.dim[last]);
	if (t->onesided && t->in_parts != (t->inverse ? 2 : 1))
		return dlb_op_fail(io, err, "onesided: the input should be %s",
				   t->inverse ? "complex" : "real");
	t->n = t->x.dim[t->axis];
	if (!t->length)
		t->length = to_real ? 2 * (t->n - 1) : t->n;
	if (t->length < 1 || t->n < 1)
		return dlb_op_fail(io, err, "a transform of length %lld of %lld values", (long long)t->length,
				   (long long)t->n);
	t->bins = t->onesided && !t->inverse ? t->length / 2 + 1 : t->length;
	t->out_parts = to_real ? 1 : 2;
	const int64_t sizes[] = { t->n, t->in_parts, t->bins, t->out_parts };
	const int64_t elements = dlb_checked_count(sizes, 4);
	if (elements < 0 || elements > MOST_ELEMENTS)
		return dlb_op_fail(io, err, "a transform of %lld values to %lld is computed by a matrix, which "
				   "would have more than %d elements", (long long)t->n, (long long)t->bins,
				   MOST_ELEMENTS);
	t->outer = dlb_desc_range(&t->x, 0, t->axis);
	t->inner = dlb_desc_range(&t->x, t->axis + 1, last);
	t->y = t->x;
	t->y.dim[t->axis] = t->bins;
	t->y.dim[last] = t->out_parts;
	return dlb_checked_count(t->y.dim, t->y.n_dims) < 0 ? dlb_op_fail(io, err, "the output is too large") : 0;
}

static int parse(const struct dlb_op_io *io, struct dft *t, struct dlb_error *err)
{
	const struct dlb_desc *x = &io->in[0];
	int64_t axis = dlb_io_int(io, "axis", io->opset < 20 ? 1 : -2), length = 0;

	if (dlb_io_ints(io, AXIS, "axis", &axis, 1, err) < 0)
		return -1;
	const int n = dlb_io_ints(io, LENGTH, "dft_length", &length, 1, err);
	if (n < 0)
		return -1;
	if (!dlb_dtype_is_float(x->dtype) || x->n_dims < 2)
		return dlb_op_fail(io, err, "the input should be floats of two dimensions or more");
	if (n && length < 1)
		return dlb_op_fail(io, err, "dft_length is %lld", (long long)length);
	*t = (struct dft){ .x = *x,
			   .length = length,
			   .inverse = dlb_io_int(io, "inverse", 0) != 0,
			   .onesided = dlb_io_int(io, "onesided", 0) != 0,
			   .axis = dlb_axis(io, axis, x->n_dims, err) };
	return t->axis < 0 ? -1 : finish(io, t, err);
}

/* Reads a DFTGrad. x has dy's sizes except along the axis and in the last dimension. */
static int grad_parse(const struct dlb_op_io *io, struct dft *t, struct dlb_error *err)
{
	const struct dlb_desc *dy = &io->in[0];
	struct dlb_desc x = *dy;

	if (!dlb_dtype_is_float(x.dtype) || x.n_dims < 2)
		return dlb_op_fail(io, err, "the input should be floats of two dimensions or more");
	*t = (struct dft){ .length = dlb_io_int(io, "length", 0),
			   .inverse = dlb_io_int(io, "inverse", 0) != 0,
			   .onesided = dlb_io_int(io, "onesided", 0) != 0,
			   .axis = dlb_axis(io, dlb_io_int(io, "axis", 0), x.n_dims, err) };
	if (t->axis < 0)
		return -1;
	x.dim[t->axis] = dlb_io_int(io, "values", 0);
	x.dim[x.n_dims - 1] = dlb_io_int(io, "parts", 0);
	t->x = x;
	if (finish(io, t, err))
		return -1;
	return dlb_desc_same_shape(&t->y, dy) ? 0 : dlb_op_fail(io, err, "the gradient's shape is not the output's");
}

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct dft t;

	if (parse(io, &t, err))
		return -1;
	io->out[0] = t.y;
	return 0;
}

static int grad_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct dft t;

	if (grad_parse(io, &t, err))
		return -1;
	io->out[0] = t.x;
	return 0;
}

/* Fills the rows of value j: in result k, its part a + i b is multiplied by e^(i sign angle). When a real
 * signal is made from its one-sided bins, a bin that stands for two counts twice. */
static void fill_value(const struct dft *t, int64_t j, void *matrix)
{
	const enum dlb_dtype type = t->x.dtype;
	const int64_t columns = t->bins * t->out_parts;
	const bool used = t->onesided && t->inverse ? j <= t->length / 2 : j < t->length,
		   twice = t->onesided && t->inverse && j > 0 && 2 * j != t->length;
	const double scale = used ? (t->inverse ? 1 / (double)t->length : 1) * (twice ? 2 : 1) : 0,
		     factor = t->window ? scale * dlb_real_get(t->window, type, j) : scale,
		     sign = t->inverse ? 1 : -1;

	for (int64_t k = 0; k < t->bins; k++) {
		const double angle = 2 * DLB_PI * (double)(j * k % t->length) / (double)t->length;
		const double re = factor * cos(angle), im = factor * sign * sin(angle);
		const double part[2][2] = { { re, im }, { -im, re } };	/* of a, of b */

		for (int p = 0; p < t->in_parts; p++)
			for (int q = 0; q < t->out_parts; q++)
				dlb_real_set(matrix, type, (j * t->in_parts + p) * columns + k * t->out_parts + q,
					     part[p][q]);
	}
}

/* The matrix as an operand of the chain: (n in_parts, bins out_parts). */
static int matrix_of(struct dlb_chain *c, const struct dft *t)
{
	const struct dlb_desc d = dlb_desc_make(t->x.dtype, 2,
						(int64_t[]){ t->n * t->in_parts, t->bins * t->out_parts });
	void *data = dlb_xmalloc((size_t)dlb_desc_count(&d) * dlb_dtype_bytes(d.dtype));

	for (int64_t j = 0; j < t->n; j++)
		fill_value(t, j, data);
	const int ref = dlb_chain_constant(c, data, &d);
	free(data);
	return ref;
}

/* One side of the transform: n values or bins, each of 1 (real) or 2 parts. */
struct side {
	const struct dlb_desc *d;
	int64_t n;
	int parts;
};
/* References of a chain. */
struct ends {
	int from, to;
};

/* Copies (outer, n, inner, parts) to (outer, inner, n, parts) if to_rows, else back. */
static void turn(struct dlb_chain *c, struct dlb_backend *be, const struct dft *t, const struct side *x,
		 struct ends ref, bool to_rows, struct dlb_error *err)
{
	const int64_t dim[] = { t->outer, t->inner, x->n, x->parts };
	const int64_t plain[] = { x->n * t->inner * x->parts, x->parts, t->inner * x->parts, 1 };
	const int64_t rows[] = { t->inner * x->n * x->parts, x->n * x->parts, x->parts, 1 };
	const struct dlb_strided s = { .in = x->d,
				       .out = x->d,
				       .n_dims = 4,
				       .dim = dim,
				       .in_stride = to_rows ? plain : rows,
				       .out_stride = to_rows ? rows : plain };
	struct dlb_kernel *k = NULL;
	const int rc = dlb_kernel_strided(be, &s, &k, err);

	dlb_chain_add(c, rc, k, &ref.from, 1, &ref.to, 1);
}

/* Appends `out` = `in` M, which turns rows of values into rows of bins; backward: `out` = `in` M^T, from bins
 * to values. */
static void multiply(struct dlb_chain *c, struct dlb_backend *be, const struct dft *t, int in, int out,
		     bool backward, struct dlb_error *err)
{
	const int64_t values = t->n * t->in_parts, bins = t->bins * t->out_parts;
	const struct dlb_gemm_desc g = { .dtype = t->x.dtype,
					 .n_batch = 1,
					 .m = t->outer * t->inner,
					 .n = backward ? values : bins,
					 .k = backward ? bins : values,
					 .trans_w = backward,
					 .alpha = 1 };
	const int matrix = matrix_of(c, t);
	struct dlb_kernel *k = NULL;
	const int rc = be->ops->gemm(be, &g, &k, err);

	dlb_chain_add(c, rc, k, DLB_REFS(in, matrix), 2, &out, 1);
}

static bool is_computed_in(enum dlb_dtype type)
{
	return type == DLB_F32 || type == DLB_F64;
}

/* y = x M, or dx = dy M^T. */
static int transform(struct dlb_backend *be, const struct dft *t, bool backward, struct dlb_kernel **k,
		     struct dlb_error *err)
{
	const struct side values = { &t->x, t->n, t->in_parts }, bins = { &t->y, t->bins, t->out_parts };
	const struct side *from = backward ? &bins : &values, *to = backward ? &values : &bins;

	if (!is_computed_in(t->x.dtype))
		return DLB_NO_KERNEL;
	struct dlb_chain *c = dlb_chain_new(be, err);
	const int in = t->inner > 1 ? dlb_chain_temp(c, from->d) : DLB_IN(0),
		  out = t->inner > 1 ? dlb_chain_temp(c, to->d) : DLB_OUT(0);

	if (t->inner > 1)
		turn(c, be, t, from, (struct ends){ DLB_IN(0), in }, true, err);
	multiply(c, be, t, in, out, backward, err);
	if (t->inner > 1)
		turn(c, be, t, to, (struct ends){ out, DLB_OUT(0) }, false, err);
	return dlb_chain_finish(c, k);
}

static int kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		  struct dlb_error *err)
{
	struct dft t;

	return parse(io, &t, err) ? -1 : transform(be, &t, false, k, err);
}

static int grad_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	struct dft t;

	return grad_parse(io, &t, err) ? -1 : transform(be, &t, true, k, err);
}

static int gradient(struct dlb_builder *b, struct dlb_error *err)
{
	struct dft t;

	if (!b->need[0])
		return 0;
	if (parse(&b->io, &t, err))
		return -1;
	const struct dlb_attr attr[] = { dlb_make_int("axis", t.axis),	     dlb_make_int("inverse", t.inverse),
					 dlb_make_int("onesided", t.onesided), dlb_make_int("length", t.length),
					 dlb_make_int("values", t.n),	     dlb_make_int("parts", t.in_parts) };
	return dlb_b_gradient(b, DLB_SPEC_ATTR("DFTGrad", attr, DLB_LEN(attr), b->dout[0]));
}

static double work(const struct dft *t)
{
	return 2.0 * (double)(t->outer * t->inner) * (double)(t->n * t->in_parts) * (double)(t->bins * t->out_parts);
}

static double flops(const struct dlb_op_io *io)
{
	struct dlb_error ignored = { 0 };
	struct dft t;

	return parse(io, &t, &ignored) ? 0 : work(&t);
}

static double grad_flops(const struct dlb_op_io *io)
{
	struct dlb_error ignored = { 0 };
	struct dft t;

	return grad_parse(io, &t, &ignored) ? 0 : work(&t);
}

/* -- frames of a signal -- */

/* frame: the transform of all frames, (batch frames, frame length, parts). */
struct stft { struct dft frame; int64_t batch, samples, frames, step; };

/* Reads the constant window in `input`. *n: its length; 0: none. */
static int read_window(const struct dlb_op_io *io, int input, enum dlb_dtype type, const void **window, int64_t *n,
		       struct dlb_error *err)
{
	*window = NULL;
	*n = 0;
	if (!dlb_io_has(io, input))
		return 0;
	if (!io->value || !io->value[input] || io->in[input].n_dims != 1 || io->in[input].dtype != type)
		return dlb_op_fail(io, err, "input %d (window) must be a constant list of the signal's type", input);
	*window = io->value[input];
	*n = io->in[input].dim[0];
	return 0;
}

/* Computes the members that the signal (batch, samples, parts), the window, the distance of frames and their
 * length (0: the window's length, or all samples) determine. */
static int finish_frames(const struct dlb_op_io *io, const struct dlb_desc *signal, int window_input, int64_t length,
			 struct stft *s, struct dlb_error *err)
{
	const void *window;
	int64_t n;

	if (!dlb_dtype_is_float(signal->dtype) || signal->n_dims != 3)
		return dlb_op_fail(io, err, "the signal should be floats (batch, samples, 1 or 2)");
	if (read_window(io, window_input, signal->dtype, &window, &n, err))
		return -1;
	if (n && length && n != length)
		return dlb_op_fail(io, err, "the window has %lld values, a frame has %lld", (long long)n,
				   (long long)length);
	length = n ? n : length ? length : signal->dim[1];
	if (s->step < 1 || length < 1 || length > signal->dim[1])
		return dlb_op_fail(io, err, "frames of %lld values, %lld apart, of a signal of %lld",
				   (long long)length, (long long)s->step, (long long)signal->dim[1]);
	s->batch = signal->dim[0];
	s->samples = signal->dim[1];
	s->frames = (s->samples - length) / s->step + 1;
	const int64_t frames[] = { s->batch * s->frames, length, signal->dim[2] };
	if (dlb_checked_count((int64_t[]){ s->batch, s->frames, length, signal->dim[2] }, 4) < 0)
		return dlb_op_fail(io, err, "the frames are too large");
	s->frame = (struct dft){ .x = dlb_desc_make(signal->dtype, 3, frames),
				 .axis = 1,
				 .onesided = dlb_io_int(io, "onesided", 1) != 0 && signal->dim[2] == 1,
				 .window = window };
	return finish(io, &s->frame, err);
}

static int stft_parse(const struct dlb_op_io *io, struct stft *s, struct dlb_error *err)
{
	int64_t length = 0;

	*s = (struct stft){ .step = 0 };
	if (dlb_io_ints(io, STEP, "frame_step", &s->step, 1, err) < 0 ||
	    dlb_io_ints(io, FRAME, "frame_length", &length, 1, err) < 0)
		return -1;
	return finish_frames(io, &io->in[0], WINDOW, length, s, err);
}

/* Reads an STFTGrad, whose inputs are dy and the window. */
static int stft_grad_parse(const struct dlb_op_io *io, struct stft *s, struct dlb_error *err)
{
	const struct dlb_desc *dy = &io->in[0];

	if (dy->n_dims != 4)
		return dlb_op_fail(io, err, "the gradient should have four dimensions");
	const struct dlb_desc signal = dlb_desc_make(dy->dtype, 3,
						     (int64_t[]){ dy->dim[0], dlb_io_int(io, "samples", 0),
								  dlb_io_int(io, "parts", 0) });
	*s = (struct stft){ .step = dlb_io_int(io, "step", 0) };
	if (finish_frames(io, &signal, 1, dlb_io_int(io, "length", 0), s, err))
		return -1;
	if (dy->dim[1] != s->frames || dy->dim[2] != s->frame.bins || dy->dim[3] != s->frame.out_parts)
		return dlb_op_fail(io, err, "the gradient's shape is not the output's");
	return 0;
}

static int stft_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct stft s;

	if (stft_parse(io, &s, err))
		return -1;
	io->out[0] = dlb_desc_make(io->in[0].dtype, 4,
				   (int64_t[]){ s.batch, s.frames, s.frame.bins, s.frame.out_parts });
	return 0;
}

/* Columns for Col2Im: (batch, parts length, frames). */
static int stft_grad_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct stft s;

	if (stft_grad_parse(io, &s, err))
		return -1;
	io->out[0] = dlb_desc_make(io->in[0].dtype, 3,
				   (int64_t[]){ s.batch, s.frame.in_parts * s.frame.n, s.frames });
	return 0;
}

static int stft_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	struct dlb_kernel *copy = NULL;
	struct stft s;

	if (stft_parse(io, &s, err))
		return -1;
	if (!is_computed_in(io->in[0].dtype))
		return DLB_NO_KERNEL;
	struct dlb_chain *c = dlb_chain_new(be, err);
	const int64_t row = s.frame.n * s.frame.in_parts, parts = s.frame.in_parts;
	const struct dlb_strided cut = { .in = &io->in[0],
					 .out = &s.frame.x,
					 .n_dims = 3,
					 .dim = (int64_t[]){ s.batch, s.frames, row },
					 .in_stride = (int64_t[]){ s.samples * parts, s.step * parts, 1 },
					 .out_stride = (int64_t[]){ s.frames * row, row, 1 } };
	const int frames = dlb_chain_temp(c, &s.frame.x), rc = dlb_kernel_strided(be, &cut, &copy, err);

	dlb_chain_add(c, rc, copy, DLB_REFS(DLB_IN(0)), 1, &frames, 1);
	multiply(c, be, &s.frame, frames, DLB_OUT(0), false, err);
	return dlb_chain_finish(c, k);
}

static int stft_grad_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			    struct dlb_error *err)
{
	struct dlb_kernel *copy = NULL;
	struct stft s;

	if (stft_grad_parse(io, &s, err))
		return -1;
	if (!is_computed_in(io->in[0].dtype))
		return DLB_NO_KERNEL;
	struct dlb_chain *c = dlb_chain_new(be, err);
	const int64_t n = s.frame.n, parts = s.frame.in_parts, row = n * parts;
	const struct dlb_strided turned = { .in = &s.frame.x,
					    .out = &io->out[0],
					    .n_dims = 4,
					    .dim = (int64_t[]){ s.batch, parts, n, s.frames },
					    .in_stride = (int64_t[]){ s.frames * row, 1, parts, row },
					    .out_stride = (int64_t[]){ row * s.frames, n * s.frames, s.frames, 1 } };
	const int frames = dlb_chain_temp(c, &s.frame.x), out = DLB_OUT(0);

	multiply(c, be, &s.frame, DLB_IN(0), frames, true, err);
	const int rc = dlb_kernel_strided(be, &turned, &copy, err);
	dlb_chain_add(c, rc, copy, &frames, 1, &out, 1);
	return dlb_chain_finish(c, k);
}

static int stft_gradient(struct dlb_builder *b, struct dlb_error *err)
{
	const int64_t order[] = { 0, 2, 1 };
	struct stft s;

	if (!b->need[0])
		return 0;
	if (stft_parse(&b->io, &s, err))
		return -1;
	const struct dlb_attr attr[] = { dlb_make_int("onesided", s.frame.onesided),
					 dlb_make_int("samples", s.samples), dlb_make_int("step", s.step),
					 dlb_make_int("length", s.frame.n),
					 dlb_make_int("parts", s.frame.in_parts) };
	const struct dlb_attr stride = dlb_make_ints("strides", &s.step, 1), perm = dlb_make_ints("perm", order, 3);
	const int in[] = { b->dout[0], dlb_io_has(&b->io, WINDOW) ? b->in[WINDOW] : -1 };
	const int columns = dlb_b_op(b, &(struct dlb_op_spec){ .type = "STFTGrad", .in = in, .n_in = 2, .attr = attr,
							       .n_attr = DLB_LEN(attr) }, NULL, -1);
	const int signal = dlb_b_op(b, DLB_SPEC_ATTR("Col2Im", &stride, 1, columns,
						     dlb_b_const_ints(b, &s.samples, 1),
						     dlb_b_const_ints(b, &s.frame.n, 1)), NULL, -1);

	return dlb_b_gradient(b, DLB_SPEC_ATTR("Transpose", &perm, 1, signal));
}

static double stft_flops(const struct dlb_op_io *io)
{
	struct dlb_error ignored = { 0 };
	struct stft s;

	return stft_parse(io, &s, &ignored) ? 0 : work(&s.frame);
}

static double stft_grad_flops(const struct dlb_op_io *io)
{
	struct dlb_error ignored = { 0 };
	struct stft s;

	return stft_grad_parse(io, &s, &ignored) ? 0 : work(&s.frame);
}

const struct dlb_op_class dlb_op_DFT = { .name = "DFT",
					 .n_in = { 1, 3 },
					 .n_out = { 1, 1 },
					 .work = "dense",
					 .infer = infer,
					 .flops = flops,
					 .gradient = gradient,
					 .kernel = kernel };
const struct dlb_op_class dlb_op_DFTGrad = { .name = "DFTGrad",
					     .domain = "dlb",
					     .n_in = { 1, 1 },
					     .n_out = { 1, 1 },
					     .work = "dense",
					     .infer = grad_infer,
					     .flops = grad_flops,
					     .kernel = grad_kernel };
const struct dlb_op_class dlb_op_STFT = { .name = "STFT",
					  .n_in = { 2, 4 },
					  .n_out = { 1, 1 },
					  .work = "dense",
					  .infer = stft_infer,
					  .flops = stft_flops,
					  .gradient = stft_gradient,
					  .kernel = stft_kernel };
const struct dlb_op_class dlb_op_STFTGrad = { .name = "STFTGrad",
					      .domain = "dlb",
					      .n_in = { 1, 2 },
					      .n_out = { 1, 1 },
					      .work = "dense",
					      .infer = stft_grad_infer,
					      .flops = stft_grad_flops,
					      .kernel = stft_grad_kernel };
