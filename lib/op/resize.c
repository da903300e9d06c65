/* Resize and Upsample: nearest, linear, cubic, with ONNX's coordinate transformations;
 * axes are resized one by one.
 *
 * Along an axis an output element is a weighted sum of a few input elements (taps): one, two or four, or with
 * antialias as many as the filter, stretched by 1 / scale, covers. Taps are computed when the kernel is
 * prepared. Axes that change are resized one after the other; backwards (ResizeGrad (dy, shape, roi, scales,
 * sizes)) the same taps scatter instead of gather.
 * Cubic: R. Keys, Cubic Convolution Interpolation, IEEE TASSP 29(6), 1981. */
#include "op/op_util.h"
#include "op/tap_list.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum mode { NEAREST, LINEAR, CUBIC };
enum coordinates {
	HALF_PIXEL,
	HALF_PIXEL_SYMMETRIC,
	PYTORCH_HALF_PIXEL,
	ALIGN_CORNERS,
	ASYMMETRIC,
	HALF_PIXEL_FOR_NN,
	CROP
};
enum rounding { PREFER_FLOOR, PREFER_CEIL, FLOOR, CEIL };
enum policy { STRETCH, NOT_LARGER, NOT_SMALLER };
static const char *const mode_name[] = { "nearest", "linear", "cubic", NULL };
static const char *const coordinates_name[] = { "half_pixel",         "half_pixel_symmetric",
						"pytorch_half_pixel", "align_corners",
						"asymmetric",         "tf_half_pixel_for_nn",
						"tf_crop_and_resize", NULL };
static const char *const rounding_name[] = { "round_prefer_floor", "round_prefer_ceil", "floor", "ceil",
					     NULL };
static const char *const policy_name[] = { "stretch", "not_larger", "not_smaller", NULL };

struct request {
	enum mode mode;
	enum coordinates coordinates;
	enum rounding rounding;
	enum policy policy;
	bool old, antialias, exclude;
	/* coordinates use the scaled size before it is rounded, where ONNX says so */
	bool fractional;
	double a;				/* Keys' a */
	double scale[DLB_MAX_DIMS], roi[2 * DLB_MAX_DIMS];
};

/* -- reading the vertex -- */

static int choice(const struct dlb_op_io *io, const char *name, const char *const *names, int *out,
		  struct dlb_error *err)
{
	const char *value = dlb_io_str(io, name, names[0]);

	for (int i = 0; names[i]; i++)
		if (!strcmp(value, names[i])) {
			*out = i;
			return 0;
		}
	return dlb_op_fail(io, err, "attribute '%s': unknown value '%s'", name, value);
}

static int choices(const struct dlb_op_io *io, struct request *q, struct dlb_error *err)
{
	int mode = 0, coordinates = 0, rounding = 0, policy = 0;

	if (choice(io, "mode", mode_name, &mode, err) ||
	    choice(io, "coordinate_transformation_mode", coordinates_name, &coordinates, err) ||
	    choice(io, "nearest_mode", rounding_name, &rounding, err) ||
	    choice(io, "keep_aspect_ratio_policy", policy_name, &policy, err))
		return -1;
	*q = (struct request){ .mode = mode,
			       .coordinates = coordinates,
			       .rounding = rounding,
			       .policy = policy,
			       .old = dlb_io_int(io, "old",
						 !io->cls->domain && (io->opset < 11 ||
								      !strcmp(io->cls->name, "Upsample"))) !=
				      0,
			       .antialias = dlb_io_int(io, "antialias", 0) && mode != NEAREST,
			       .exclude = dlb_io_int(io, "exclude_outside", 0) != 0,
			       .a = dlb_io_real(io, "cubic_coeff_a", -0.75) };
	if (q->old) {
		q->coordinates = ASYMMETRIC;
		q->rounding = FLOOR;
	}
	return 0;
}

static int reals(const struct dlb_op_io *io, int i, const char *name, double *out, int max,
		 struct dlb_error *err)
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

/* Scales, sizes and region of interest, for the listed axes. */
struct operands {
	int n_axes, axis[DLB_MAX_DIMS], n_scale, n_size, n_roi;
	double scale[DLB_MAX_DIMS], roi[2 * DLB_MAX_DIMS];
	int64_t size[DLB_MAX_DIMS];
};

/* Reads the operands from input `first` on (roi, scales, sizes; before opset 11 only scales). */
static int read_operands(const struct dlb_op_io *io, const struct request *q, int n_dims, int first,
			 struct operands *o, struct dlb_error *err)
{
	const struct dlb_attr *a = dlb_attr_find(io->attr, io->n_attr, "scales");

	memset(o, 0, sizeof *o);
	o->n_axes = dlb_io_axis_list(io, -1, n_dims, o->axis, err);
	if (o->n_axes < 0)
		return -1;
	o->n_scale = reals(io, q->old ? first : first + 1, "scales", o->scale, DLB_MAX_DIMS, err);
	if (!q->old) {
		o->n_roi = reals(io, first, "roi", o->roi, 2 * DLB_MAX_DIMS, err);
		o->n_size = dlb_io_ints(io, first + 2, "sizes", o->size, DLB_MAX_DIMS, err);
	}
	if (o->n_scale < 0 || o->n_size < 0 || o->n_roi < 0)
		return -1;
	/* Upsample in opset 7 */
	if (q->old && !o->n_scale && a && a->type == DLB_ATTR_REALS && a->n == n_dims) {
		for (int i = 0; i < n_dims; i++)
			o->scale[i] = a->reals[i];
		o->n_scale = n_dims;
	}
	if (o->n_scale != o->n_axes && o->n_size != o->n_axes)
		return dlb_op_fail(io, err, "neither %d scales nor %d sizes are given", o->n_axes, o->n_axes);
	if (q->coordinates == CROP && o->n_roi != 2 * o->n_axes)
		return dlb_op_fail(io, err, "%d entries of the region of interest for %d dimensions",
				   o->n_roi, o->n_axes);
	return 0;
}

/* One scale for all axes, such that no axis exceeds (or none falls below) its requested size. */
static double common_scale(const struct request *q, const struct operands *o, const struct dlb_desc *x)
{
	double scale = 1;

	for (int j = 0; j < o->n_axes; j++) {
		double s = (double)o->size[j] / (double)x->dim[o->axis[j]];

		if (j == 0 || (q->policy == NOT_LARGER ? s < scale : s > scale))
			scale = s;
	}
	return scale;
}

/* Fills q, and computes the sizes of y for x, which must have no empty dimension. */
static int ask(const struct dlb_op_io *io, const struct dlb_desc *x, int first, struct request *q,
	       int64_t y[DLB_MAX_DIMS], struct dlb_error *err)
{
	const int n = x->n_dims;
	struct operands o;

	if (choices(io, q, err) || read_operands(io, q, n, first, &o, err))
		return -1;
	for (int i = 0; i < n; i++) {
		if (x->dim[i] < 1)
			return dlb_op_fail(io, err, "an empty input cannot be resized");
		y[i] = x->dim[i];
		q->scale[i] = q->roi[n + i] = 1;
	}
	const bool by_scale = o.n_scale == o.n_axes;
	q->fractional = (by_scale && q->coordinates != CROP) || (!by_scale && q->policy != STRETCH);
	const double common = !by_scale && q->policy != STRETCH ? common_scale(q, &o, x) : 0;
	for (int j = 0; j < o.n_axes; j++) {
		const int i = o.axis[j];
		const double in = (double)x->dim[i];
		double size;

		if (o.n_roi == 2 * o.n_axes) {
			q->roi[i] = o.roi[j];
			q->roi[n + i] = o.roi[o.n_axes + j];
		}
		q->scale[i] = by_scale ? o.scale[j] : common > 0 ? common : (double)o.size[j] / in;
		size = by_scale ? in * q->scale[i] : common > 0 ? in * common + 0.5 : (double)o.size[j];
		if (by_scale && q->coordinates == CROP)
			size *= q->roi[n + i] - q->roi[i];
		if (by_scale && !(q->scale[i] > 0))
			return dlb_op_fail(io, err, "scale %g is not possible", q->scale[i]);
		if (!(size >= 0) || !(size < 1 << 24))
			return dlb_op_fail(io, err, "size %g of dimension %d is not possible", size, i);
		y[i] = (int64_t)floor(size);
		if (q->antialias && y[i] > 0 && in * q->scale[i] < 0.5)
			return dlb_op_fail(io, err, "scale %g is too small for a dimension of %lld",
					   q->scale[i], (long long)x->dim[i]);
	}
	if (dlb_checked_count(y, n) < 0)
		return dlb_op_fail(io, err, "the output would be too large");
	return 0;
}

/* -- taps -- */

/* The input coordinate of output element i, on an axis of n inputs and n_out outputs. */
static double coordinate(const struct request *q, int axis, int n_dims, double i, double n, double n_out)
{
	const double scale = q->scale[axis], start = q->roi[axis], end = q->roi[n_dims + axis];
	const double width = q->fractional ? scale * n : n_out;

	switch (q->coordinates) {
	case ASYMMETRIC:
		return i / scale;
	case ALIGN_CORNERS:
		return width > 1 ? i * (n - 1) / (width - 1) : 0;
	case PYTORCH_HALF_PIXEL:
		return width > 1 ? (i + 0.5) / scale - 0.5 : 0;
	case HALF_PIXEL_FOR_NN:
		return (i + 0.5) / scale;
	case HALF_PIXEL_SYMMETRIC:
		return n / 2 * (1 - n_out / width) + (i + 0.5) / scale - 0.5;
	case CROP:
		return width > 1 ? start * (n - 1) + i * (end - start) * (n - 1) / (width - 1) :
				   0.5 * (start + end) * (n - 1);
	default:
		return (i + 0.5) / scale - 0.5;
	}
}

static double nearest(enum rounding how, double v)
{
	switch (how) {
	case FLOOR:
		return floor(v);
	case CEIL:
		return ceil(v);
	case PREFER_CEIL:
		return floor(v + 0.5);
	default:
		return ceil(v - 0.5);
	}
}

static double linear(double d)
{
	d = fabs(d);
	return d < 1 ? 1 - d : 0;
}

static double keys(double a, double d)
{
	d = fabs(d);
	if (d <= 1)
		return ((a + 2) * d - (a + 3)) * d * d + 1;
	return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

/* 1 / the factor that stretches the filter. */
static double sharpness(const struct request *q, int axis)
{
	return q->antialias && q->scale[axis] < 1 ? q->scale[axis] : 1;
}

/* Taps per output element of this axis. */
static int64_t count_taps(const struct request *q, int axis)
{
	const double half = q->mode == CUBIC ? 2 : 1;

	/* bounded, since a tiny scale that leaves no element would give any number */
	return q->mode == NEAREST ? 1 : 2 * (int64_t)fmin(ceil(half / sharpness(q, axis)), 1 << 30);
}

/* An output element: its index, and its coordinate among the n inputs of the axis, n_taps of which it reads. */
struct output { int axis; int64_t i, n, n_taps; double v; };

/* Adds the taps of an output element; `t` has space for them. Taps outside the input read its nearest
 * element; with exclude their weight is 0. False: the output element is outside the input
 * (tf_crop_and_resize). */
static bool add_taps(const struct request *q, const struct output *o, struct dlb_tap *t, struct dlb_tap_list *l)
{
	const int64_t n = o->n, n_taps = o->n_taps;
	const double v = o->v, s = sharpness(q, o->axis), last = (double)(n - 1);
	const double base = q->mode == NEAREST ? nearest(q->rounding, v) :
						 floor(v) + 1 - (double)(n_taps / 2);
	double sum = 0;

	if (q->coordinates == CROP && !(v >= 0 && v <= last))
		return false;
	for (int64_t k = 0; k < n_taps; k++) {
		const double at = base + (double)k, d = (v - at) * s;

		t[k].w = q->mode == NEAREST ? 1 : q->mode == LINEAR ? linear(d) : keys(q->a, d);
		if (q->exclude && q->mode != NEAREST && (at < 0 || at > last))
			t[k].w = 0;
		sum += t[k].w;
		t[k].from = at > 0 ? at > last ? n - 1 : (int64_t)at : 0;
	}
	for (int64_t k = 0; k < n_taps && (q->exclude || s < 1) && sum != 0; k++)
		t[k].w /= sum;
	for (int64_t k = 0; k < n_taps; k++)
		if (t[k].w != 0)
			dlb_tap_list_add(l, o->i, t[k].from, t[k].w);
	return true;
}

/* Makes the list of the taps of all output elements of an axis of n inputs and n_out outputs, and a list with
 * one tap for each that is inside the input. */
static void make_lists(const struct request *q, int axis, int n_dims, int64_t n, int64_t n_out,
		       struct dlb_tap_list *taps, struct dlb_tap_list *inside)
{
	const int64_t n_taps = count_taps(q, axis);
	struct dlb_tap *t = dlb_xcalloc(n_out ? (size_t)n_taps : 1, sizeof *t);

	dlb_tap_list_start(taps, n_out);
	dlb_tap_list_start(inside, n_out);
	for (int64_t i = 0; i < n_out; i++) {
		const double v = coordinate(q, axis, n_dims, (double)i, (double)n, (double)n_out);

		if (add_taps(q, &(struct output){ axis, i, n, n_taps, v }, t, taps))
			dlb_tap_list_add(inside, i, i, 1);
	}
	dlb_tap_list_end(taps);
	dlb_tap_list_end(inside);
	free(t);
}

static bool is_plain(const struct dlb_tap_list *l, int64_t n)		/* the axis does not change */
{
	bool plain = l->n == n && l->n_taps == n;

	for (int64_t i = 0; i < n && plain; i++)
		plain = l->end[i] == i + 1 && l->tap[i].from == i && l->tap[i].w == 1;
	return plain;
}

/* -- kernels -- */

/* The lists of all axes. */
struct lists { struct dlb_tap_list taps[DLB_MAX_DIMS], inside[DLB_MAX_DIMS]; bool plain[DLB_MAX_DIMS]; };

/* One axis: x, at `in`, is (.., n, ..); the result, at `out`, has l->n there and type `to`. */
struct pass { const struct dlb_desc *x; const struct dlb_tap_list *l; int axis, in, out; enum dlb_dtype to; };

static void append_pass(struct dlb_chain *c, struct dlb_backend *be, const struct pass *p, struct dlb_error *err)
{
	const struct dlb_desc *x = p->x;
	const struct dlb_tap_list *l = p->l;
	const int64_t outer = dlb_desc_range(x, 0, p->axis), inner = dlb_desc_range(x, p->axis + 1, x->n_dims);
	const struct dlb_taps_desc t = { .in = x->dtype,
					 .out = p->to,
					 .sum = DLB_F64,
					 .n_dims = inner == 1 ? 2 : 3,
					 .x = { outer, x->dim[p->axis], inner },
					 .y = { outer, l->n, inner },
					 .tap = { NULL, l->tap },
					 .end = { NULL, l->end } };
	struct dlb_kernel *k = NULL;
	const int rc = be->ops->taps(be, &t, &k, err);

	dlb_chain_add(c, rc, k, DLB_REFS(p->in, DLB_NOTHING), 2, &p->out, 1);
}

/* Appends the copy of operand `in`, of desc d, to output 0; elements that lie outside the input become
 * `value`. */
static void extrapolate(struct dlb_chain *c, struct dlb_backend *be, const struct lists *l,
			const struct dlb_desc *d, double value, int in, struct dlb_error *err)
{
	const struct dlb_desc one = dlb_desc_scalar(d->dtype);
	struct dlb_taps_desc t = { .in = d->dtype, .out = d->dtype, .move = true, .n_dims = d->n_dims };
	_Alignas(8) unsigned char element[8];
	struct dlb_kernel *k = NULL;

	for (int i = 0; i < d->n_dims; i++) {
		t.x[i] = t.y[i] = d->dim[i];
		t.tap[i] = l->inside[i].tap;
		t.end[i] = l->inside[i].end;
	}
	dlb_value_set(element, d->dtype, 0, value);
	const int from = dlb_chain_constant(c, element, &one), rc = be->ops->taps(be, &t, &k, err);

	dlb_chain_add(c, rc, k, DLB_REFS(in, from), 2, DLB_REFS(DLB_OUT(0)), 1);
}

/* Resizes all axes that change; values between the first and the last pass are double. Backward: in reverse
 * order. */
static int resize(struct dlb_backend *be, const struct dlb_op_io *io, const struct lists *l, bool backward,
		  struct dlb_kernel **k, struct dlb_error *err)
{
	const int n = io->in[0].n_dims;
	struct dlb_chain *c = dlb_chain_new(be, err);
	struct dlb_desc d = io->in[0];
	bool outside = false;
	int left = 0, from = DLB_IN(0);

	for (int i = 0; i < n; i++) {
		left += !l->plain[i];
		outside |= !backward && l->inside[i].n_taps < l->inside[i].n;
	}
	if (!left)
		dlb_chain_copy(c, from, DLB_OUT(0), &d);
	for (int s = 0; s < n; s++) {
		const int axis = backward ? n - 1 - s : s;
		struct dlb_tap_list turned = { 0 };
		struct dlb_desc y = d;
		int out;

		if (l->plain[axis])
			continue;
		y.dtype = --left ? DLB_F64 : io->out[0].dtype;
		y.dim[axis] = backward ? io->out[0].dim[axis] : l->taps[axis].n;
		out = left || outside ? dlb_chain_temp(c, &y) : DLB_OUT(0);
		if (backward)
			dlb_tap_list_transpose(&l->taps[axis], y.dim[axis], &turned);
		append_pass(c, be,
			    &(struct pass){ &d, backward ? &turned : &l->taps[axis], axis, from, out, y.dtype }, err);
		dlb_tap_list_release(&turned);
		d = y;
		from = out;
	}
	if (outside)
		extrapolate(c, be, l, &d, dlb_io_real(io, "extrapolation_value", 0), from, err);
	return dlb_chain_finish(c, k);
}

static int prepare(struct dlb_backend *be, const struct dlb_op_io *io, const struct dlb_desc *x, int first,
		   bool backward, struct dlb_kernel **k, struct dlb_error *err)
{
	int64_t y[DLB_MAX_DIMS], between[DLB_MAX_DIMS];
	struct lists *l;
	struct request q;
	int rc;

	if (ask(io, x, first, &q, y, err))
		return -1;
	for (int i = 0; i < x->n_dims; i++)
		between[i] = x->dim[i] > y[i] ? x->dim[i] : y[i];
	if (dlb_checked_count(between, x->n_dims) < 0)
		return dlb_op_fail(io, err, "too large");
	l = dlb_xcalloc(1, sizeof *l);
	for (int i = 0; i < x->n_dims; i++) {
		make_lists(&q, i, x->n_dims, x->dim[i], y[i], &l->taps[i], &l->inside[i]);
		l->plain[i] = is_plain(&l->taps[i], x->dim[i]);
	}
	rc = resize(be, io, l, backward, k, err);
	for (int i = 0; i < x->n_dims; i++) {
		dlb_tap_list_release(&l->taps[i]);
		dlb_tap_list_release(&l->inside[i]);
	}
	free(l);
	return rc;
}

/* -- the classes -- */

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	int64_t y[DLB_MAX_DIMS];
	struct request q;

	if (ask(io, &io->in[0], 1, &q, y, err))
		return -1;
	io->out[0] = dlb_desc_make(io->in[0].dtype, io->in[0].n_dims, y);
	return 0;
}

static int kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		  struct dlb_error *err)
{
	return prepare(be, io, &io->in[0], 1, false, k, err);
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
	return dlb_b_gradient(b, &(struct dlb_op_spec){ .type = "ResizeGrad",
							.in = in,
							.n_in = b->io.n_in + 1,
							.attr = a,
							.n_attr = n });
}

static int grad_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	int64_t y[DLB_MAX_DIMS];
	struct request q;

	if (dlb_io_shape(io, 1, &io->out[0], err) || ask(io, &io->out[0], 2, &q, y, err))
		return -1;
	for (int i = 0; i < io->out[0].n_dims; i++)
		if (io->in[0].n_dims != io->out[0].n_dims || io->in[0].dim[i] != y[i])
			return dlb_op_fail(io, err, "the gradient's shape is not that of the output");
	return 0;
}

static int grad_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	return prepare(be, io, &io->out[0], 2, true, k, err);
}

static double flops(const struct dlb_op_io *io)
{
	return 8.0 * (double)dlb_desc_count(&io->out[0]);
}

const struct dlb_op_class dlb_op_Resize = { .name = "Resize",
					    .n_in = { 1, 4 },
					    .n_out = { 1, 1 },
					    .work = "move",
					    .infer = infer,
					    .flops = flops,
					    .gradient = gradient,
					    .kernel = kernel };
const struct dlb_op_class dlb_op_Upsample = { .name = "Upsample",
					      .n_in = { 1, 2 },
					      .n_out = { 1, 1 },
					      .work = "move",
					      .infer = infer,
					      .flops = flops,
					      .gradient = gradient,
					      .kernel = kernel };
const struct dlb_op_class dlb_op_ResizeGrad = { .name = "ResizeGrad",
						.domain = "dlb",
						.n_in = { 2, 5 },
						.n_out = { 1, 1 },
						.work = "move",
						.infer = grad_infer,
						.flops = flops,
						.kernel = grad_kernel };
