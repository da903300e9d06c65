/* Operators that move nothing: output 0 has the bytes of input 0 and another shape. The compiler
 * gives both the same memory; the kernel, a copy, runs only where it could not. */
#include "op/op_util.h"

/* -- Reshape -- */

static int reshape_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	const struct dlb_desc *x = &io->in[0];
	int64_t dim[DLB_MAX_DIMS], known = 1, count = dlb_desc_count(x);
	bool zero_is_zero = dlb_io_int(io, "allowzero", 0) != 0;
	int n, free_dim = -1;

	if (!dlb_io_has(io, 1))
		return dlb_op_fail(io, err, "the shape is missing");
	n = dlb_io_ints(io, 1, "shape", dim, DLB_MAX_DIMS, err);
	if (n < 0)
		return -1;
	for (int i = 0; i < n; i++) {
		if (dim[i] == 0 && !zero_is_zero) {
			if (i >= x->n_dims)
				return dlb_op_fail(
					io, err,
					"dimension %d is to be copied from an input of %d dimensions", i,
					x->n_dims);
			dim[i] = x->dim[i];
		}
		if (dim[i] == -1 && free_dim < 0)
			free_dim = i;
		else if (dim[i] < 0)
			return dlb_op_fail(io, err, "dimension %d of the new shape is %lld", i,
					   (long long)dim[i]);
		else if (dim[i] && known > ((int64_t)1 << 61) / dim[i])
			return dlb_op_fail(io, err, "the new shape is too large");
		else
			known *= dim[i];
	}
	if (free_dim >= 0 && zero_is_zero && !known)
		return dlb_op_fail(
			io, err, "the new shape has 0 and -1, which does not go with attribute 'allowzero'");
	if (free_dim >= 0)
		dim[free_dim] = known ? count / known : 0;
	io->out[0] = dlb_desc_make(x->dtype, n, dim);
	if (dlb_desc_count(&io->out[0]) != count) {
		char a[128], b[128];

		return dlb_op_fail(io, err, "%s does not fit into %s", dlb_desc_str(x, a, sizeof a),
				   dlb_desc_str(&io->out[0], b, sizeof b));
	}
	return 0;
}

/* The gradient of all these operators: dy in x's shape. */
static int gradient(struct dlb_builder *b, struct dlb_error *err)
{
	(void)err;
	if (!b->need[0])
		return 0;
	return dlb_b_gradient(b, DLB_SPEC("Reshape", b->dout[0], dlb_b_const_shape(b, b->in[0])));
}

static int gradient_identity(struct dlb_builder *b, struct dlb_error *err)
{
	(void)err;
	if (b->need[0])
		b->din[0] = b->dout[0];
	return 0;
}

/* -- Flatten, Squeeze, Unsqueeze -- */

static int flatten_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	const struct dlb_desc *x = &io->in[0];
	int64_t axis = dlb_io_int(io, "axis", 1);

	if (axis < -x->n_dims || axis > x->n_dims)
		return dlb_op_fail(io, err, "axis %lld is out of range for %d dimensions", (long long)axis,
				   x->n_dims);
	if (axis < 0)
		axis += x->n_dims;
	io->out[0] = dlb_desc_make(x->dtype, 2, (int64_t[]){ dlb_desc_range(x, 0, (int)axis),
							     dlb_desc_range(x, (int)axis, x->n_dims) });
	return 0;
}

static int squeeze_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	const struct dlb_desc *x = &io->in[0];
	int64_t mask = dlb_io_axes(io, 1, x->n_dims, 0, err);
	struct dlb_desc y = { .dtype = x->dtype };

	if (mask < 0)
		return -1;
	for (int i = 0; i < x->n_dims; i++) {
		if (mask >> i & 1 && x->dim[i] != 1)
			return dlb_op_fail(io, err, "dimension %d is %lld, not 1", i, (long long)x->dim[i]);
		if (mask ? !(mask >> i & 1) : x->dim[i] != 1)
			y.dim[y.n_dims++] = x->dim[i];
	}
	io->out[0] = y;
	return 0;
}

static int unsqueeze_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	const struct dlb_desc *x = &io->in[0];
	int64_t axes[DLB_MAX_DIMS], mask = 0;
	int n = dlb_io_ints(io, 1, "axes", axes, DLB_MAX_DIMS, err), from = 0;
	struct dlb_desc y = { .dtype = x->dtype };

	if (n < 0)
		return -1;
	if (!n && !dlb_io_has(io, 1) && !dlb_attr_find(io->attr, io->n_attr, "axes"))
		return dlb_op_fail(io, err, "the axes are missing");
	if (x->n_dims + n > DLB_MAX_DIMS)
		return dlb_op_fail(io, err, "more than %d dimensions", DLB_MAX_DIMS);
	y.n_dims = x->n_dims + n;
	for (int i = 0; i < n; i++) {
		int a = dlb_axis(io, axes[i], y.n_dims, err);

		if (a < 0)
			return -1;
		if (mask >> a & 1)
			return dlb_op_fail(io, err, "axis %d is given twice", a);
		mask |= (int64_t)1 << a;
	}
	for (int i = 0; i < y.n_dims; i++)
		y.dim[i] = mask >> i & 1 ? 1 : x->dim[from++];
	io->out[0] = y;
	return 0;
}

#define VIEW(n, most, inf, grad, lay) \
	const struct dlb_op_class dlb_op_##n = { .name = #n, \
						 .n_in = { 1, most }, \
						 .n_out = { 1, 1 }, \
						 .layout = lay, \
						 .bf16 = DLB_BF16_FOLLOWS, \
						 .flags = DLB_OP_VIEW, \
						 .work = "move", \
						 .infer = inf, \
						 .flops = dlb_no_flops, \
						 .gradient = grad, \
						 .kernel = dlb_kernel_view };
VIEW(Identity, 1, dlb_infer_same, gradient_identity, DLB_LAYOUT_ANY)
VIEW(Reshape, 2, reshape_infer, gradient, DLB_LAYOUT_PLAIN_ONLY)
VIEW(Flatten, 1, flatten_infer, gradient, DLB_LAYOUT_PLAIN_ONLY)
VIEW(Squeeze, 2, squeeze_infer, gradient, DLB_LAYOUT_PLAIN_ONLY)
VIEW(Unsqueeze, 2, unsqueeze_infer, gradient, DLB_LAYOUT_PLAIN_ONLY)
