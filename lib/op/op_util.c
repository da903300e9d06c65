/* Attributes, descs and windows, shared by operators. */
#include "op/op_util.h"

#include <string.h>

struct dlb_attr dlb_make_int(const char *name, int64_t v)
{
	return (struct dlb_attr){ .name = name, .type = DLB_ATTR_INT, .i = v };
}

struct dlb_attr dlb_make_real(const char *name, double v)
{
	return (struct dlb_attr){ .name = name, .type = DLB_ATTR_REAL, .f = v };
}

struct dlb_attr dlb_make_str(const char *name, const char *v)
{
	return (struct dlb_attr){ .name = name, .type = DLB_ATTR_STR, .s = v };
}

struct dlb_attr dlb_make_ints(const char *name, const int64_t *v, int n)
{
	return (struct dlb_attr){ .name = name, .type = DLB_ATTR_INTS, .ints = v, .n = n };
}

int dlb_io_ints(const struct dlb_op_io *io, int i, const char *attr, int64_t *out, int max,
		struct dlb_error *err)
{
	const int64_t *ints;
	int n;

	if (i >= 0 && dlb_io_has(io, i)) {
		const struct dlb_desc *d = &io->in[i];
		int64_t count = dlb_desc_count(d);

		if (!io->value || !io->value[i])
			return dlb_op_fail(io, err, "input %d (%s) must be constant", i, attr);
		if (!dlb_dtype_is_int(d->dtype) || d->n_dims > 1)
			return dlb_op_fail(io, err, "input %d (%s) must be a list of integers", i, attr);
		if (count > max)
			return dlb_op_fail(io, err, "input %d (%s) has %lld entries, at most %d are possible",
					   i, attr, (long long)count, max);
		for (int j = 0; j < count; j++)
			out[j] = dlb_value_int(io->value[i], d->dtype, j);
		return (int)count;
	}
	n = dlb_attr_ints(io->attr, io->n_attr, attr, &ints);
	if (n > max)
		return dlb_op_fail(io, err, "attribute '%s' has %d entries, at most %d are possible", attr, n,
				   max);
	for (int j = 0; j < n; j++)
		out[j] = ints[j];
	return n;
}

int dlb_io_axis_list(const struct dlb_op_io *io, int i, int n_dims, int axis[DLB_MAX_DIMS],
		     struct dlb_error *err)
{
	int64_t axes[DLB_MAX_DIMS], mask = 0;
	int n = dlb_io_ints(io, i, "axes", axes, DLB_MAX_DIMS, err);

	if (n < 0)
		return -1;
	for (int j = 0; j < n; j++) {
		axis[j] = dlb_axis(io, axes[j], n_dims, err);
		if (axis[j] < 0)
			return -1;
		if (mask & (int64_t)1 << axis[j])
			return dlb_op_fail(io, err, "axis %d is given twice", axis[j]);
		mask |= (int64_t)1 << axis[j];
	}
	for (int j = 0; n == 0 && j < n_dims; j++)
		axis[j] = j;
	return n ? n : n_dims;
}

int64_t dlb_io_axes(const struct dlb_op_io *io, int i, int n_dims, int64_t otherwise, struct dlb_error *err)
{
	int64_t axes[DLB_MAX_DIMS], mask = 0;
	int axis[DLB_MAX_DIMS], n = dlb_io_ints(io, i, "axes", axes, DLB_MAX_DIMS, err);

	if (n <= 0)
		return n < 0 ? -1 : otherwise;
	n = dlb_io_axis_list(io, i, n_dims, axis, err);
	for (int j = 0; j < n; j++)
		mask |= (int64_t)1 << axis[j];
	return n < 0 ? -1 : mask;
}

static int type_differs(const struct dlb_op_io *io, int i, int j, struct dlb_error *err)
{
	return dlb_op_fail(io, err, "inputs %d and %d are of type %s and %s", i, j,
			   dlb_dtype_name(io->in[i].dtype), dlb_dtype_name(io->in[j].dtype));
}

int dlb_same_types(const struct dlb_op_io *io, int first, int n, struct dlb_error *err)
{
	for (int i = first + 1; i < first + n && i < io->n_in; i++)
		if (io->in[i].n_dims >= 0 && io->in[i].dtype != io->in[first].dtype)
			return type_differs(io, first, i, err);
	return 0;
}

int dlb_param_types(const struct dlb_op_io *io, int first, int from, int n, struct dlb_error *err)
{
	const enum dlb_dtype type = io->in[first].dtype;
	const bool half = type == DLB_BF16 || type == DLB_F16;

	for (int i = from; i < from + n && i < io->n_in; i++)
		if (io->in[i].n_dims >= 0 && io->in[i].dtype != type && !(half && io->in[i].dtype == DLB_F32))
			return type_differs(io, first, i, err);
	return 0;
}

int dlb_mixed_types(const struct dlb_op_io *io, int first, int n, enum dlb_dtype *out, struct dlb_error *err)
{
	enum dlb_dtype type = io->in[first].dtype;

	for (int i = first + 1; i < first + n && i < io->n_in; i++) {
		const enum dlb_dtype t = io->in[i].dtype;
		const bool mix = (t == DLB_BF16 && type == DLB_F32) || (t == DLB_F32 && type == DLB_BF16);

		if (io->in[i].n_dims < 0)
			continue;
		if (t != type && !mix)
			return type_differs(io, first, i, err);
		type = mix ? DLB_BF16 : type;
	}
	*out = type;
	return 0;
}

int dlb_same_shapes(const struct dlb_op_io *io, int i, int j, struct dlb_error *err)
{
	char a[128], b[128];

	if (!dlb_desc_same_shape(&io->in[i], &io->in[j]))
		return dlb_op_fail(io, err, "input %d is %s and input %d %s; their shapes must be equal", i,
				   dlb_desc_str(&io->in[i], a, sizeof a), j,
				   dlb_desc_str(&io->in[j], b, sizeof b));
	return 0;
}

int dlb_infer_alike(struct dlb_op_io *io, struct dlb_error *err)
{
	return dlb_same_types(io, 0, 2, err) || dlb_same_shapes(io, 0, 1, err) ? -1 : dlb_infer_same(io, err);
}

int dlb_has_count(const struct dlb_op_io *io, int i, int64_t count, struct dlb_error *err)
{
	if (dlb_desc_count(&io->in[i]) != count)
		return dlb_op_fail(io, err, "input %d has %lld elements, should have %lld", i,
				   (long long)dlb_desc_count(&io->in[i]), (long long)count);
	return 0;
}

int dlb_io_head_axes(const struct dlb_op_io *io, const char *name, int64_t axis[4], struct dlb_error *err)
{
	const int64_t *v;
	const int n = dlb_attr_ints(io->attr, io->n_attr, name, &v);
	unsigned seen = 0;

	if (n <= 0)
		return 0;
	for (int i = 0; i < n && n == 4; i++)
		seen |= v[i] >= 0 && v[i] < 4 ? 1u << v[i] : 0;
	if (seen != 15 || v[3] != 3)
		return dlb_op_fail(io, err, "%s should be 0, 1 and 2 in some order, and 3", name);
	memcpy(axis, v, 4 * sizeof *axis);
	return 0;
}

int dlb_infer_typed(struct dlb_op_io *io, const char *name, bool needed, struct dlb_error *err)
{
	const int64_t number = dlb_io_int(io, name, 0);
	const int t = number > 0 && number < 64 ? dlb_dtype_from_onnx((int)number) : -1;

	io->out[0] = io->in[0];
	if (!number && !needed)
		return 0;
	if (t < 0)
		return dlb_op_fail(io, err, "type %lld is not possible", (long long)number);
	io->out[0].dtype = (enum dlb_dtype)t;
	return 0;
}

int dlb_io_shape(const struct dlb_op_io *io, int i, struct dlb_desc *out, struct dlb_error *err)
{
	int64_t dim[DLB_MAX_DIMS];
	int n = dlb_io_ints(io, i, "shape", dim, DLB_MAX_DIMS, err);

	if (n < 0)
		return -1;
	if (dlb_checked_count(dim, n) < 0)
		return dlb_op_fail(io, err, "a negative or too large dimension");
	*out = dlb_desc_make(io->in[0].dtype, n, dim);
	return 0;
}

struct dlb_desc dlb_desc_make(enum dlb_dtype t, int n_dims, const int64_t *dim)
{
	struct dlb_desc d = { .dtype = t, .layout = DLB_PLAIN, .n_dims = n_dims };

	for (int i = 0; i < n_dims; i++)
		d.dim[i] = dim[i];
	return d;
}

struct dlb_desc dlb_desc_1d(enum dlb_dtype t, int64_t n)
{
	return dlb_desc_make(t, 1, &n);
}

struct dlb_desc dlb_desc_scalar(enum dlb_dtype t)
{
	return dlb_desc_make(t, 0, NULL);
}

/* -- windows -- */

/* Copies attribute `name`, exactly n entries in [least, 2^24), to out; fills out with
 * `otherwise` if it is absent. */
static int spatial(const struct dlb_op_io *io, const char *name, int n, int64_t least, int64_t otherwise,
		   int64_t *out, struct dlb_error *err)
{
	const int64_t *v;
	int m = dlb_attr_ints(io->attr, io->n_attr, name, &v);

	if (m && m != n)
		return dlb_op_fail(io, err, "attribute '%s' has %d entries for %d dimensions", name, m, n);
	for (int i = 0; i < n; i++) {
		out[i] = m ? v[i] : otherwise;
		if (out[i] < least || out[i] >= 1 << 24)
			return dlb_op_fail(io, err, "attribute '%s': %lld is out of range", name,
					   (long long)out[i]);
	}
	return 0;
}

static int64_t ceil_div(int64_t a, int64_t b)
{
	return (a + b - 1) / b;
}

int dlb_window_read(const struct dlb_op_io *io, const int64_t *in, int n, const int64_t *kernel,
		    struct dlb_kernel_window *w, struct dlb_error *err)
{
	const char *auto_pad = dlb_io_str(io, "auto_pad", "NOTSET");
	bool ceil_mode = dlb_io_int(io, "ceil_mode", 0) != 0;
	int64_t pads[6] = { 0 };

	if (n < 1 || n > 3)
		return dlb_op_fail(io, err, "%d spatial dimensions; 1 to 3 are possible", n);
	*w = (struct dlb_kernel_window){ .n = n };
	for (int i = 0; i < 3; i++)
		w->kernel[i] = w->stride[i] = w->dilation[i] = w->out[i] = 1;
	if (spatial(io, "strides", n, 1, 1, w->stride, err) ||
	    spatial(io, "dilations", n, 1, 1, w->dilation, err) ||
	    spatial(io, "pads", 2 * n, 0, 0, pads, err))
		return -1;
	if (kernel)
		memcpy(w->kernel, kernel, (size_t)n * sizeof *kernel);
	else if (spatial(io, "kernel_shape", n, 1, 0, w->kernel, err))
		return -1;
	for (int i = 0; i < n; i++) {
		int64_t span = w->dilation[i] * (w->kernel[i] - 1) + 1, room;

		if (w->kernel[i] < 1 || span > 1 << 24)
			return dlb_op_fail(io, err, "a window of %lld is not possible",
					   (long long)w->kernel[i]);
		if (!strcmp(auto_pad, "SAME_UPPER") || !strcmp(auto_pad, "SAME_LOWER")) {
			int64_t total;

			w->out[i] = ceil_div(in[i], w->stride[i]);
			total = (w->out[i] - 1) * w->stride[i] + span - in[i];
			total = total < 0 ? 0 : total;
			w->pad_begin[i] = auto_pad[5] == 'U' ? total / 2 : total - total / 2;
			w->pad_end[i] = total - w->pad_begin[i];
			continue;
		}
		if (!strcmp(auto_pad, "NOTSET")) {
			w->pad_begin[i] = pads[i];
			w->pad_end[i] = pads[n + i];
		} else if (strcmp(auto_pad, "VALID")) {
			return dlb_op_fail(io, err, "attribute 'auto_pad': unknown value '%s'", auto_pad);
		}
		room = in[i] + w->pad_begin[i] + w->pad_end[i] - span;
		if (room < 0)
			return dlb_op_fail(io, err, "a window of %lld does not fit into %lld",
					   (long long)span,
					   (long long)(in[i] + w->pad_begin[i] + w->pad_end[i]));
		w->out[i] = (ceil_mode ? ceil_div(room, w->stride[i]) : room / w->stride[i]) + 1;
		/* the last window must start inside the input or the padding before it, as in ONNX */
		if (ceil_mode && (w->out[i] - 1) * w->stride[i] >= in[i] + w->pad_begin[i])
			w->out[i]--;
	}
	return 0;
}

int dlb_keep_attrs(const struct dlb_op_io *io, const char *const *keep, int n_keep, struct dlb_attr *a)
{
	int n = 0;

	for (int i = 0; i < n_keep; i++) {
		const struct dlb_attr *f = dlb_attr_find(io->attr, io->n_attr, keep[i]);

		if (f)
			a[n++] = *f;
	}
	return n;
}
