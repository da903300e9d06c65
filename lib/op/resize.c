/* Resize and Upsample: nearest, linear, cubic, with ONNX's coordinate transformations, along each axis apart.
 *
 * Along one axis every output element is a weighted sum of at most four input elements (taps). The taps are worked
 * out when the kernel is prepared; the axes that change are applied one after the other, and backwards
 * (ResizeGrad (dy, shape, roi, scales, sizes)) the same taps scatter instead of gather.
 * Cubic: R. Keys, Cubic Convolution Interpolation, IEEE TASSP 29(6), 1981. */
#include "op/kit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TAPS = 4 };
struct tap { int64_t from[MAX_TAPS]; double w[MAX_TAPS]; bool outside; };
struct plan {
	enum dlb_dtype type;
	int n_dims;
	int64_t x[DLB_MAX_DIMS], y[DLB_MAX_DIMS], most;		/* most: elements of the largest step between */
	int64_t first[DLB_MAX_DIMS];				/* its taps in tap[] */
	double extrapolation;
	bool any_outside;
	struct tap tap[];
};
struct request {
	bool has_scale;
	double scale[DLB_MAX_DIMS], roi[2 * DLB_MAX_DIMS];
	const char *mode, *coord, *nearest;
};

/* -- what is asked for -- */

static int reals(const struct dlb_op_io *io, int i, const char *name, double *out, int max, struct dlb_error *err)
{
	int64_t n;

	if (!dlb_io_has(io, i) || dlb_desc_count(&io->in[i]) == 0)
		return 0;
	n = dlb_desc_count(&io->in[i]);
	if (!io->value || !io->value[i])
		return dlb_op_fail(io, err, "input %d (%s) must be constant", i, name);
	if (n > max)
		return dlb_op_fail(io, err, "input %d (%s) has %lld entries", i, name, (long long)n);
	for (int j = 0; j < n; j++)
		out[j] = dlb_value_real(io->value[i], io->in[i].dtype, j);
	return (int)n;
}

/* Sizes of y for x; the operands start at input `first` (roi, scales, sizes; before opset 11 scales alone). */
static int ask(const struct dlb_op_io *io, const struct dlb_desc *x, int first, struct request *q, int64_t y[DLB_MAX_DIMS],
	       struct dlb_error *err)
{
	bool old = dlb_io_int(io, "old", !io->cls->domain && (io->opset < 11 || !strcmp(io->cls->name, "Upsample"))) != 0;
	int n_scale, n_size = 0, n_roi = 0, n = x->n_dims;
	const struct dlb_attr *a = dlb_attr_find(io->attr, io->n_attr, "scales");

	*q = (struct request){ .mode = dlb_io_str(io, "mode", "nearest"),
		.coord = old ? "asymmetric" : dlb_io_str(io, "coordinate_transformation_mode", "half_pixel"),
		.nearest = old ? "floor" : dlb_io_str(io, "nearest_mode", "round_prefer_floor") };
	n_scale = reals(io, old ? first : first + 1, "scales", q->scale, DLB_MAX_DIMS, err);
	if (!old) {
		n_roi = reals(io, first, "roi", q->roi, 2 * DLB_MAX_DIMS, err);
		n_size = dlb_io_ints(io, first + 2, "sizes", y, DLB_MAX_DIMS, err);
	}
	if (n_scale < 0 || n_size < 0 || n_roi < 0)
		return -1;
	if (old && !n_scale && a && a->type == DLB_ATTR_REALS && a->n == n) {	/* Upsample 7 */
		memcpy(q->scale, a->reals, (size_t)n * sizeof *a->reals);
		n_scale = n;
	}
	if (n_scale != n && n_size != n)
		return dlb_op_fail(io, err, "neither %d scales nor %d sizes are given", n, n);
	if (!strcmp(q->coord, "tf_crop_and_resize") && n_roi != 2 * n)
		return dlb_op_fail(io, err, "%d entries of the region of interest for %d dimensions", n_roi, n);
	q->has_scale = n_scale == n;
	for (int i = 0; i < n; i++) {
		bool crop = !strcmp(q->coord, "tf_crop_and_resize");

		if (q->has_scale) {
			double size = (double)x->dim[i] * q->scale[i];

			if (crop)
				size *= q->roi[n + i] - q->roi[i];
			if (!(q->scale[i] > 0) || !(size < 1 << 24))
				return dlb_op_fail(io, err, "scale %g is not possible", q->scale[i]);
			y[i] = (int64_t)floor(size);
		} else {
			q->scale[i] = x->dim[i] ? (double)y[i] / (double)x->dim[i] : 1;
		}
		if (y[i] < 0 || y[i] > 1 << 24)
			return dlb_op_fail(io, err, "size %lld is not possible", (long long)y[i]);
	}
	return 0;
}

/* -- taps -- */

/* Where output element i lies among the inputs of one axis of n elements. */
static double coordinate(const struct request *q, int axis, int n_dims, double i, double n, double n_out)
{
	double scale = q->scale[axis], start = q->roi[axis], end = q->roi[n_dims + axis];

	if (q->has_scale && strcmp(q->coord, "tf_crop_and_resize"))
		n_out = scale * n;		/* ONNX's definition: the size before it is cut to a whole number */
	if (!strcmp(q->coord, "asymmetric"))
		return i / scale;
	if (!strcmp(q->coord, "align_corners"))
		return n_out > 1 ? i * (n - 1) / (n_out - 1) : 0;
	if (!strcmp(q->coord, "pytorch_half_pixel"))
		return n_out > 1 ? (i + 0.5) / scale - 0.5 : 0;
	if (!strcmp(q->coord, "tf_half_pixel_for_nn"))
		return (i + 0.5) / scale;
	if (!strcmp(q->coord, "tf_crop_and_resize"))
		return n_out > 1 ? start * (n - 1) + i * (end - start) * (n - 1) / (n_out - 1) : 0.5 * (start + end) * (n - 1);
	return (i + 0.5) / scale - 0.5;
}

static double nearest(const char *mode, double v)
{
	if (!strcmp(mode, "floor"))
		return floor(v);
	if (!strcmp(mode, "ceil"))
		return ceil(v);
	return !strcmp(mode, "round_prefer_ceil") ? floor(v + 0.5) : ceil(v - 0.5);
}

static double keys(double a, double d)
{
	d = fabs(d);
	if (d <= 1)
		return ((a + 2) * d - (a + 3)) * d * d + 1;
	return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

static void make_tap(const struct dlb_op_io *io, const struct request *q, double v, int64_t n, struct tap *t)
{
	bool exclude = dlb_io_int(io, "exclude_outside", 0) != 0, cubic = !strcmp(q->mode, "cubic");
	double a = dlb_io_real(io, "cubic_coeff_a", -0.75), base = floor(v), sum = 0;

	memset(t, 0, sizeof *t);
	t->outside = !strcmp(q->coord, "tf_crop_and_resize") && (v < 0 || v > (double)(n - 1));
	if (!strcmp(q->mode, "nearest")) {
		base = nearest(q->nearest, v);
		t->w[0] = 1;
	} else if (!cubic) {
		base = base < 0 ? 0 : base;
		v = v < 0 ? 0 : v > (double)(n - 1) ? (double)(n - 1) : v;
		base = floor(v);
		t->w[0] = 1 - (v - base);
		t->w[1] = v - base;
	} else {
		base -= 1;
		for (int k = 0; k < MAX_TAPS; k++)
			t->w[k] = keys(a, v - (base + k));
	}
	for (int k = 0; k < MAX_TAPS; k++) {
		double at = base + k;

		if (exclude && cubic && (at < 0 || at > (double)(n - 1)))
			t->w[k] = 0;
		sum += t->w[k];
		t->from[k] = at < 0 ? 0 : at > (double)(n - 1) ? n - 1 : (int64_t)at;
	}
	for (int k = 0; k < MAX_TAPS && exclude && cubic; k++)
		t->w[k] /= sum;
}

/* The plan with all taps, on the heap; *bytes its size. */
static struct plan *make_plan(const struct dlb_op_io *io, const struct dlb_desc *x, const struct request *q, const int64_t *y,
			      size_t *bytes)
{
	struct plan *p;
	int64_t n = 0, count = 1;

	for (int i = 0; i < x->n_dims; i++)
		n += y[i];
	*bytes = sizeof *p + (size_t)n * sizeof(struct tap);
	p = dlb_xcalloc(1, *bytes);
	p->type = x->dtype;
	p->n_dims = x->n_dims;
	p->extrapolation = dlb_io_real(io, "extrapolation_value", 0);
	n = 0;
	for (int i = 0; i < x->n_dims; i++) {
		p->x[i] = x->dim[i];
		p->y[i] = y[i];
		p->first[i] = n;
		count *= p->x[i] > p->y[i] ? p->x[i] : p->y[i];
		for (int64_t j = 0; j < y[i]; j++, n++) {
			make_tap(io, q, coordinate(q, i, x->n_dims, (double)j, (double)x->dim[i], (double)y[i]), x->dim[i], &p->tap[n]);
			p->any_outside |= p->tap[n].outside;
		}
	}
	p->most = count;
	return p;
}

/* -- running -- */

static bool is_plain(const struct plan *p, int axis)		/* nothing changes along it */
{
	const struct tap *t = &p->tap[p->first[axis]];

	if (p->x[axis] != p->y[axis])
		return false;
	for (int64_t i = 0; i < p->y[axis]; i++)
		for (int k = 0; k < MAX_TAPS; k++)
			if (t[i].w[k] != (t[i].from[k] == i && k == 0 ? 1 : 0))
				return false;
	return true;
}

/* One axis in double: (outer, a, inner) to (outer, b, inner). Backwards a and b change their parts. */
static void pass(const struct tap *t, int64_t outer, int64_t nx, int64_t ny, int64_t inner, const double *in, double *out,
		 bool backward)
{
	memset(out, 0, (size_t)(outer * (backward ? nx : ny) * inner) * sizeof *out);
	for (int64_t o = 0; o < outer; o++)
		for (int64_t i = 0; i < ny; i++)
			for (int k = 0; k < MAX_TAPS; k++) {
				int64_t a = (o * nx + t[i].from[k]) * inner, b = (o * ny + i) * inner;
				double w = t[i].w[k];

				if (w == 0)
					continue;
				for (int64_t j = 0; j < inner; j++) {
					if (backward)
						out[a + j] += w * in[b + j];
					else
						out[b + j] += w * in[a + j];
				}
			}
}

static bool outside(const struct plan *p, int64_t at)
{
	for (int d = p->n_dims - 1; d >= 0; d--) {
		if (p->tap[p->first[d] + at % p->y[d]].outside)
			return true;
		at /= p->y[d];
	}
	return false;
}

static int64_t product(const int64_t *d, int from, int to)
{
	int64_t n = 1;

	for (int i = from; i < to; i++)
		n *= d[i];
	return n;
}

static void run_either(const struct plan *p, const struct dlb_run *r, bool backward)
{
	double *a = r->scratch, *b = a + p->most, *swap;
	const int64_t *from = backward ? p->y : p->x, *to = backward ? p->x : p->y;
	int64_t now[DLB_MAX_DIMS], n = product(from, 0, p->n_dims), m = product(to, 0, p->n_dims);

	for (int64_t i = 0; i < n; i++)
		a[i] = backward && p->any_outside && outside(p, i) ? 0 : dlb_value_real(r->in[0], p->type, i);
	memcpy(now, from, sizeof now);
	for (int s = 0; s < p->n_dims; s++) {
		int d = backward ? p->n_dims - 1 - s : s;

		if (is_plain(p, d))
			continue;
		pass(&p->tap[p->first[d]], product(now, 0, d), p->x[d], p->y[d], product(now, d + 1, p->n_dims), a, b, backward);
		now[d] = to[d];
		swap = a;
		a = b;
		b = swap;
	}
	for (int64_t i = 0; i < m; i++)
		dlb_value_set(r->out[0], p->type, i, !backward && p->any_outside && outside(p, i) ? p->extrapolation : a[i]);
}

static void forward(const void *ctx, const struct dlb_run *r)
{
	run_either(ctx, r, false);
}

static void backward(const void *ctx, const struct dlb_run *r)
{
	run_either(ctx, r, true);
}

static int prepare(struct dlb_backend *be, const struct dlb_op_io *io, const struct dlb_desc *x, int first, dlb_host_fn fn,
		   struct dlb_kernel **k, struct dlb_error *err)
{
	int64_t y[DLB_MAX_DIMS], between[DLB_MAX_DIMS];
	struct request q;
	struct plan *p;
	size_t bytes;
	int rc;

	if (ask(io, x, first, &q, y, err))
		return -1;
	for (int i = 0; i < x->n_dims; i++)
		between[i] = x->dim[i] > y[i] ? x->dim[i] : y[i];
	if (dlb_checked_count(between, x->n_dims) < 0)
		return dlb_op_fail(io, err, "too large");
	p = make_plan(io, x, &q, y, &bytes);
	rc = be->ops->host(be, fn, p, bytes, 2 * (size_t)p->most * sizeof(double) + 64, k, err);
	free(p);
	return rc;
}

/* -- the classes -- */

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	int64_t y[DLB_MAX_DIMS];
	struct request q;

	if (ask(io, &io->in[0], 1, &q, y, err))
		return -1;
	for (int i = 0; i < io->in[0].n_dims; i++)
		if (io->in[0].dim[i] < 1)
			return dlb_op_fail(io, err, "an empty input cannot be resized");
	io->out[0] = dlb_desc_make(io->in[0].dtype, io->in[0].n_dims, y);
	return 0;
}

static int kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k, struct dlb_error *err)
{
	return prepare(be, io, &io->in[0], 1, forward, k, err);
}

static int gradient(struct dlb_builder *b, struct dlb_error *err)
{
	bool old = b->io.opset < 11 || !strcmp(b->io.cls->name, "Upsample");
	struct dlb_attr a[16];
	int in[6] = { b->dout[0], -1, -1, -1, -1, -1 }, n = 0;

	if (b->io.n_attr > 14)
		return dlb_op_fail(&b->io, err, "too many attributes");
	if (!b->need[0])
		return 0;
	for (; n < b->io.n_attr; n++)
		a[n] = b->io.attr[n];
	a[n++] = dlb_make_int("old", old);
	in[1] = dlb_b_const_shape(b, b->in[0]);
	for (int i = 1; i < b->io.n_in; i++)
		in[1 + i] = b->in[i];
	b->din[0] = dlb_b_op(b, "ResizeGrad", a, n, in, b->io.n_in + 1, 1, NULL, b->in[0]);
	return b->din[0] < 0 ? -1 : 0;
}

static int grad_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	int64_t y[DLB_MAX_DIMS];
	struct request q;

	if (dlb_io_shape(io, 1, &io->out[0], err) || ask(io, &io->out[0], 2, &q, y, err))
		return -1;
	for (int i = 0; i < io->out[0].n_dims; i++)
		if (io->in[0].n_dims != io->out[0].n_dims || io->in[0].dim[i] != y[i] || io->out[0].dim[i] < 1)
			return dlb_op_fail(io, err, "the gradient's shape is not that of the output");
	return 0;
}

static int grad_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k, struct dlb_error *err)
{
	return prepare(be, io, &io->out[0], 2, backward, k, err);
}

static double flops(const struct dlb_op_io *io)
{
	return 8.0 * (double)dlb_desc_count(&io->out[0]);
}

const struct dlb_op_class dlb_op_Resize = { .name = "Resize", .n_in = { 1, 4 }, .n_out = { 1, 1 }, .work = "move",
	.infer = infer, .flops = flops, .gradient = gradient, .kernel = kernel };
const struct dlb_op_class dlb_op_Upsample = { .name = "Upsample", .n_in = { 1, 2 }, .n_out = { 1, 1 }, .work = "move",
	.infer = infer, .flops = flops, .gradient = gradient, .kernel = kernel };
const struct dlb_op_class dlb_op_ResizeGrad = { .name = "ResizeGrad", .domain = "dlb", .n_in = { 2, 5 }, .n_out = { 1, 1 },
	.work = "move", .infer = grad_infer, .flops = flops, .kernel = grad_kernel };
