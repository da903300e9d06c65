/* Pad (modes constant, edge, reflect, wrap; negative pads crop), CenterCropPad, and PadGrad (dy[, pads[,
 * axes]]; mode), which sums for each input element the gradients of its copies.
 *
 * NextToken (domain dlb): the labels of a language model, (..., T), from the tokens at the same positions:
 *     y[..., i] = x[..., i + 1],  y[..., T - 1] = "ignore_index" (default -100), which the loss ignores
 * The logits keep their T positions, so no tensor of their size is sliced or padded.
 *
 * Padding with zeros is a strided copy. Otherwise lists give, for each index along each dimension of y, the
 * index of x that is copied, if any. */
#include "op/op_util.h"
#include "op/tap_list.h"

#include <string.h>

enum mode { CONSTANT, EDGE, REFLECT, WRAP, N_MODES };
static const char *const mode_name[] = { "constant", "edge", "reflect", "wrap" };
enum { MOST = 1 << 30 };

struct pad {
	enum mode mode;
	enum dlb_dtype type;
	int n_dims;
	int64_t x[DLB_MAX_DIMS], y[DLB_MAX_DIMS], begin[DLB_MAX_DIMS];
	bool value_is_input;
	_Alignas(8) unsigned char value[8];		/* one element */
};
/* -- reading the vertex -- */

static int parse_mode(const struct dlb_op_io *io, enum mode *mode, struct dlb_error *err)
{
	const char *name = dlb_io_str(io, "mode", "constant");

	for (int i = 0; i < N_MODES; i++)
		if (!strcmp(name, mode_name[i])) {
			*mode = i;
			return 0;
		}
	return dlb_op_fail(io, err,
			   "attribute 'mode': unknown value '%s'; constant, edge, reflect and wrap are known",
			   name);
}

/* Reads pads, mode, and the axes from input `axes`. sign 1: input 0 is x; -1: input 0 is dy, from which x's
 * sizes are computed. */
static int parse(const struct dlb_op_io *io, int sign, int axes, struct pad *p, struct dlb_error *err)
{
	const struct dlb_desc *d = &io->in[0];
	int64_t pads[2 * DLB_MAX_DIMS];
	int axis[DLB_MAX_DIMS], n_axes, n = dlb_io_ints(io, 1, "pads", pads, 2 * DLB_MAX_DIMS, err);

	*p = (struct pad){ .type = d->dtype, .n_dims = d->n_dims };
	n_axes = n < 0 ? -1 : dlb_io_axis_list(io, axes, d->n_dims, axis, err);
	if (n_axes < 0 || parse_mode(io, &p->mode, err))
		return -1;
	if (n != 2 * n_axes)
		return dlb_op_fail(io, err, "%d pads for %d dimensions", n, n_axes);
	memcpy(p->x, d->dim, sizeof p->x);
	memcpy(p->y, d->dim, sizeof p->y);
	for (int j = 0; j < n_axes; j++) {
		int64_t b = pads[j], e = pads[n_axes + j], *other = sign > 0 ? p->y : p->x;
		int i = axis[j];

		if (b < -MOST || b > MOST || e < -MOST || e > MOST)
			return dlb_op_fail(io, err, "pads %lld and %lld are out of range", (long long)b,
					   (long long)e);
		other[i] = d->dim[i] + sign * (b + e);
		p->begin[i] = b;
		if (other[i] < 0 || (p->mode != CONSTANT && p->x[i] == 0 && p->y[i] > 0))
			return dlb_op_fail(io, err,
					   "dimension %d of size %lld cannot be padded by %lld and %lld", i,
					   (long long)p->x[i], (long long)b, (long long)e);
	}
	if (dlb_checked_count(sign > 0 ? p->y : p->x, p->n_dims) < 0)
		return dlb_op_fail(io, err, "the padded tensor would be too large");
	dlb_value_set(p->value, p->type, 0, dlb_io_real(io, "value", 0));
	return 0;
}

/* CenterCropPad: sizes for some axes; the difference is divided between both sides, an odd
 * element goes to the end. */
static int parse_center(const struct dlb_op_io *io, struct pad *p, struct dlb_error *err)
{
	const struct dlb_desc *d = &io->in[0];
	int64_t shape[DLB_MAX_DIMS];
	int axis[DLB_MAX_DIMS], n_axes = dlb_io_axis_list(io, -1, d->n_dims, axis, err);
	int n = n_axes < 0 ? -1 : dlb_io_ints(io, 1, "shape", shape, DLB_MAX_DIMS, err);

	if (n < 0)
		return -1;
	if (n != n_axes)
		return dlb_op_fail(io, err, "%d sizes for %d axes", n, n_axes);
	*p = (struct pad){ .type = d->dtype, .n_dims = d->n_dims };
	memcpy(p->x, d->dim, sizeof p->x);
	memcpy(p->y, d->dim, sizeof p->y);
	for (int j = 0; j < n; j++) {
		if (shape[j] < 0 || shape[j] > MOST)
			return dlb_op_fail(io, err, "size %lld is not possible", (long long)shape[j]);
		p->y[axis[j]] = shape[j];
		p->begin[axis[j]] = (shape[j] - d->dim[axis[j]]) / 2;
	}
	if (dlb_checked_count(p->y, p->n_dims) < 0)
		return dlb_op_fail(io, err, "the output would be too large");
	return 0;
}

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct pad p;

	if (parse(io, 1, 3, &p, err))
		return -1;
	if (dlb_io_has(io, 2) && (io->in[2].dtype != p.type || dlb_desc_count(&io->in[2]) != 1))
		return dlb_op_fail(io, err, "the constant must be one value of type %s",
				   dlb_dtype_name(p.type));
	io->out[0] = dlb_desc_make(p.type, p.n_dims, p.y);
	return 0;
}

static int center_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct pad p;

	if (parse_center(io, &p, err))
		return -1;
	io->out[0] = dlb_desc_make(p.type, p.n_dims, p.y);
	return 0;
}

/* -- by lists -- */

/* Index of the element, out of n, that is copied to index i (counted from the input's first element); -1:
 * none. Reflections do not repeat the border. */
static int64_t source(enum mode mode, int64_t i, int64_t n)
{
	int64_t period = mode == WRAP ? n : 2 * (n - 1);

	if (i >= 0 && i < n)
		return i;
	if (mode == CONSTANT)
		return -1;
	if (mode == EDGE || n == 1)
		return i < 0 ? 0 : n - 1;
	i %= period;
	i = i < 0 ? i + period : i;
	return i < n ? i : period - i;
}

/* The taps along dimension d: for each index of y, the index of x that is copied; backward: for each index of
 * x, its copies in y. */
static void make_list(const struct pad *p, int d, bool backward, struct dlb_tap_list *to)
{
	struct dlb_tap_list l;

	dlb_tap_list_start(&l, p->y[d]);
	for (int64_t i = 0; i < p->y[d]; i++) {
		const int64_t from = source(p->mode, i - p->begin[d], p->x[d]);

		if (from >= 0)
			dlb_tap_list_add(&l, i, from, 1);
	}
	dlb_tap_list_end(&l);
	if (!backward) {
		*to = l;
		return;
	}
	dlb_tap_list_transpose(&l, p->x[d], to);
	dlb_tap_list_release(&l);
}

/* Forward: copies elements, and the padding value (input 2, or p->value). Backward: sums the copies'
 * gradients in their own type. */
static int by_lists(struct dlb_backend *be, const struct pad *p, bool backward, struct dlb_kernel **k,
		    struct dlb_error *err)
{
	const struct dlb_desc one = dlb_desc_scalar(p->type);
	struct dlb_taps_desc d = { .in = p->type, .out = p->type, .sum = p->type, .move = !backward,
				   .n_dims = p->n_dims };
	struct dlb_tap_list list[DLB_MAX_DIMS] = { { 0 } };
	struct dlb_chain *c = dlb_chain_new(be, err);
	struct dlb_kernel *sub = NULL;
	int value = DLB_NOTHING, rc;

	for (int i = 0; i < p->n_dims; i++) {
		d.x[i] = backward ? p->y[i] : p->x[i];
		d.y[i] = backward ? p->x[i] : p->y[i];
		if (p->x[i] == p->y[i] && !p->begin[i])
			continue;
		make_list(p, i, backward, &list[i]);
		d.tap[i] = list[i].tap;
		d.end[i] = list[i].end;
	}
	if (!backward && p->mode == CONSTANT)
		value = p->value_is_input ? DLB_IN(2) : dlb_chain_constant(c, p->value, &one);
	rc = be->ops->taps(be, &d, &sub, err);
	dlb_chain_add(c, rc, sub, DLB_REFS(DLB_IN(0), value), 2, DLB_REFS(DLB_OUT(0)), 1);
	for (int i = 0; i < p->n_dims; i++)
		dlb_tap_list_release(&list[i]);
	return dlb_chain_finish(c, k);
}

/* -- by strides -- */

/* Copies the common part: padding with zeros, and its gradient. */
static int zeros(struct dlb_backend *be, const struct dlb_op_io *io, const struct pad *p, bool backward,
		 struct dlb_kernel **k, struct dlb_error *err)
{
	int64_t dim[DLB_MAX_DIMS], sx[DLB_MAX_DIMS], sy[DLB_MAX_DIMS], at_x = 0, at_y = 0;
	const struct dlb_desc *x = backward ? &io->out[0] : &io->in[0],
			      *y = backward ? &io->in[0] : &io->out[0];

	dlb_desc_strides(x, sx);
	dlb_desc_strides(y, sy);
	for (int i = 0; i < p->n_dims; i++) {
		/* range in x: [lo, hi) */
		int64_t lo = p->begin[i] < 0 ? -p->begin[i] : 0, hi = p->y[i] - p->begin[i];

		hi = hi < p->x[i] ? hi : p->x[i];
		dim[i] = hi > lo ? hi - lo : 0;
		at_x += dim[i] ? lo * sx[i] : 0;
		at_y += dim[i] ? (lo + p->begin[i]) * sy[i] : 0;
	}
	if (backward)
		return dlb_kernel_strided(be,
					  &(struct dlb_strided){ .in = y, .out = x, .n_dims = p->n_dims,
								 .dim = dim, .in_stride = sy,
								 .out_stride = sx, .in_offset = at_y,
								 .out_offset = at_x, .zero_first = true }, k,
					  err);
	return dlb_kernel_strided(be,
				  &(struct dlb_strided){ .in = x, .out = y, .n_dims = p->n_dims, .dim = dim,
							 .in_stride = sx, .out_stride = sy, .in_offset = at_x,
							 .out_offset = at_y, .zero_first = true }, k, err);
}

static bool is_zero(const struct pad *p)
{
	static const unsigned char zero[8];

	return !memcmp(p->value, zero, dlb_dtype_bytes(p->type));
}

static int kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		  struct dlb_error *err)
{
	struct pad p;

	if (parse(io, 1, 3, &p, err))
		return -1;
	p.value_is_input = dlb_io_has(io, 2);
	if (p.value_is_input && io->value && io->value[2]) {
		memcpy(p.value, io->value[2], dlb_dtype_bytes(p.type));
		p.value_is_input = false;
	}
	if (p.mode == CONSTANT && !p.value_is_input && is_zero(&p))
		return zeros(be, io, &p, false, k, err);
	return by_lists(be, &p, false, k, err);
}

static int center_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			 struct dlb_error *err)
{
	struct pad p;

	if (parse_center(io, &p, err))
		return -1;
	return zeros(be, io, &p, false, k, err);
}

/* -- NextToken -- */

static int next_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	if (io->in[0].dtype != DLB_I64 && io->in[0].dtype != DLB_I32)
		return dlb_op_fail(io, err, "labels are of type %s; i32 or i64 is needed",
				   dlb_dtype_name(io->in[0].dtype));
	if (io->in[0].n_dims < 1)
		return dlb_op_fail(io, err, "labels without a dimension of positions");
	return dlb_infer_same(io, err);
}

/* Crops the first token of a row and pads its end. */
static int next_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	const struct dlb_desc *x = &io->in[0];
	struct pad p = { .mode = CONSTANT, .type = x->dtype, .n_dims = x->n_dims };

	memcpy(p.x, x->dim, sizeof p.x);
	memcpy(p.y, x->dim, sizeof p.y);
	p.begin[x->n_dims - 1] = -1;
	dlb_value_set(p.value, p.type, 0, (double)dlb_io_int(io, "ignore_index", -100));
	return by_lists(be, &p, false, k, err);
}

/* -- gradients -- */

static int gradient(struct dlb_builder *b, struct dlb_error *err)
{
	int in[3] = { b->dout[0], b->io.n_in > 1 ? b->in[1] : -1, b->io.n_in > 3 ? b->in[3] : -1 };

	(void)err;
	return dlb_b_gradient(b, &(struct dlb_op_spec){ .type = "PadGrad",
							.in = in,
							.n_in = in[2] >= 0 ? 3 :
								in[1] >= 0 ? 2 :
									     1,
							.attr = b->io.attr,
							.n_attr = b->io.n_attr });
}

/* Pads for the axes that change; other axes, such as the batch, may have any size. */
static int center_gradient(struct dlb_builder *b, struct dlb_error *err)
{
	int64_t axes[DLB_MAX_DIMS], pads[2 * DLB_MAX_DIMS];
	struct dlb_attr a[2];
	struct pad p;
	int n = 0;

	if (!b->need[0])
		return 0;
	if (parse_center(&b->io, &p, err))
		return -1;
	for (int i = 0; i < p.n_dims; i++)
		if (p.x[i] != p.y[i])
			axes[n++] = i;
	if (n == 0) {
		b->din[0] = b->dout[0];
		return 0;
	}
	for (int i = 0; i < n; i++) {
		pads[i] = p.begin[axes[i]];
		pads[n + i] = p.y[axes[i]] - p.x[axes[i]] - pads[i];
	}
	a[0] = dlb_make_ints("pads", pads, 2 * n);
	a[1] = dlb_make_ints("axes", axes, n);
	return dlb_b_gradient(b, DLB_SPEC_ATTR("PadGrad", a, 2, b->dout[0]));
}

static int grad_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct pad p;

	if (parse(io, -1, 2, &p, err))
		return -1;
	io->out[0] = dlb_desc_make(p.type, p.n_dims, p.x);
	return 0;
}

static int grad_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	struct pad p;

	if (parse(io, -1, 2, &p, err))
		return -1;
	if (p.mode == CONSTANT)
		return zeros(be, io, &p, true, k, err);
	if (p.type != DLB_F32 && p.type != DLB_F64)
		return DLB_NO_KERNEL;
	return by_lists(be, &p, true, k, err);
}

const struct dlb_op_class dlb_op_Pad = { .name = "Pad", .n_in = { 1, 4 }, .n_out = { 1, 1 }, .work = "move",
	.infer = infer, .flops = dlb_no_flops, .gradient = gradient, .kernel = kernel };
const struct dlb_op_class dlb_op_CenterCropPad = { .name = "CenterCropPad",
						   .n_in = { 2, 2 },
						   .n_out = { 1, 1 },
						   .work = "move",
						   .infer = center_infer,
						   .flops = dlb_no_flops,
						   .gradient = center_gradient,
						   .kernel = center_kernel };
const struct dlb_op_class dlb_op_PadGrad = { .name = "PadGrad",
					     .domain = "dlb",
					     .n_in = { 1, 3 },
					     .n_out = { 1, 1 },
					     .work = "move",
					     .infer = grad_infer,
					     .kernel = grad_kernel };
const struct dlb_op_class dlb_op_NextToken = { .name = "NextToken",
					       .domain = "dlb",
					       .n_in = { 1, 1 },
					       .n_out = { 1, 1 },
					       .work = "move",
					       .infer = next_infer,
					       .kernel = next_kernel };
