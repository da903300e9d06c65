/* LayerNormalization and InstanceNormalization: both take the mean and variance of rows,
 *     y = (x - mean) / sqrt(var + epsilon) * scale + bias,
 * a row being the dimensions from `axis` on (scale and bias along the row), or one channel of one sample (one scale
 * and bias a channel). Rows do not mix samples. Gradients (dy, x, scale, mean, invstd) -> dx, dscale, dbias; with
 * x^ = (x - mean) invstd and g = dy scale:   dx = invstd (g - mean(g) - x^ mean(g x^)).
 * J. L. Ba, J. R. Kiros, G. E. Hinton, Layer Normalization, 2016; D. Ulyanov et al., Instance Normalization, 2016. */
#include "op/kit.h"

#include <string.h>

struct rows {
	int64_t n, width, channels;		/* channels > 0: scale and bias by row % channels */
	double epsilon;
};

static bool is_instance(const struct dlb_op_io *io)
{
	return !strncmp(io->cls->name, "Instance", 8);
}

/* Rows of x, checked against the scale, which is input `scale`. */
static int rows_of(const struct dlb_op_io *io, const struct dlb_desc *x, int scale, struct rows *r, struct dlb_error *err)
{
	int64_t entries;

	*r = (struct rows){ .epsilon = dlb_io_real(io, "epsilon", 1e-5) };
	if (is_instance(io)) {
		if (x->n_dims < 3)
			return dlb_op_fail(io, err, "input has %d dimensions, at least 3 are needed", x->n_dims);
		r->channels = entries = x->dim[1];
		r->n = x->dim[0] * x->dim[1];
		r->width = dlb_desc_range(x, 2, x->n_dims);
	} else {
		int axis = dlb_axis(io, dlb_io_int(io, "axis", -1), x->n_dims, err);

		if (axis < 0)
			return -1;
		r->n = dlb_desc_range(x, 0, axis);
		r->width = entries = dlb_desc_range(x, axis, x->n_dims);
	}
	if (dlb_desc_count(&io->in[scale]) != entries)
		return dlb_op_fail(io, err, "the scale has %lld entries, not %lld", (long long)dlb_desc_count(&io->in[scale]),
				   (long long)entries);
	return 0;
}

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct rows r;
	struct dlb_desc stat;
	int axis = is_instance(io) ? 2 : (int)dlb_io_int(io, "axis", -1);

	if (rows_of(io, &io->in[0], 1, &r, err) || dlb_param_types(io, 0, 1, 2, err))
		return -1;
	if (dlb_io_has(io, 2) && dlb_desc_count(&io->in[2]) != dlb_desc_count(&io->in[1]))
		return dlb_op_fail(io, err, "scale and bias differ in size");
	io->out[0] = io->in[0];
	stat = dlb_desc_make(io->in[1].dtype, io->in[0].n_dims, io->in[0].dim);
	for (int i = axis < 0 ? axis + stat.n_dims : axis; i < stat.n_dims; i++)
		stat.dim[i] = 1;
	for (int i = 1; i < io->n_out; i++)
		io->out[i] = stat;
	return 0;
}

/* The kernel sees three outputs, whatever the vertex has. */
static int prepare(struct dlb_backend *be, const struct dlb_op_io *io, const struct rows *r, bool backward, struct dlb_kernel **k,
		   struct dlb_error *err)
{
	const struct dlb_norm_desc d = { .dtype = io->in[0].dtype, .backward = backward, .has_bias = !backward && dlb_io_has(io, 2),
		.rows = r->n, .width = r->width, .channels = r->channels, .epsilon = r->epsilon };
	struct dlb_chain *c = dlb_chain_new(be, err);
	struct dlb_kernel *sub = NULL;
	int in[5], out[3], n_in = backward ? 5 : 3, rc = be->ops->norm(be, &d, &sub, err);

	for (int i = 0; i < n_in; i++)
		in[i] = dlb_io_has(io, i) ? DLB_IN(i) : DLB_NOTHING;
	for (int i = 0; i < 3; i++)
		out[i] = dlb_io_wants(io, i) ? DLB_OUT(i) : DLB_NOTHING;
	dlb_chain_add(c, rc, sub, in, n_in, out, 3);
	return dlb_chain_finish(c, k);
}

static int kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k, struct dlb_error *err)
{
	struct rows r;

	return rows_of(io, &io->in[0], 1, &r, err) ? -1 : prepare(be, io, &r, false, k, err);
}

static int gradient(struct dlb_builder *b, struct dlb_error *err)
{
	const char *type = is_instance(&b->io) ? "InstanceNormalizationGrad" : "LayerNormalizationGrad";
	struct dlb_attr a = dlb_make_int("axis", dlb_io_int(&b->io, "axis", -1));
	int out[3] = { -1, -1, -1 }, in[5] = { b->dout[0], b->in[0], b->in[1], -1, -1 };

	if ((b->io.n_out > 1 && b->dout[1] >= 0) || (b->io.n_out > 2 && b->dout[2] >= 0))
		return dlb_op_fail(&b->io, err, "no gradient through the second or third output");
	in[3] = dlb_b_extra_output(b, 1);
	in[4] = dlb_b_extra_output(b, 2);
	out[0] = dlb_b_op(b, type, &a, is_instance(&b->io) ? 0 : 1, in, 5, 3, out, b->in[0]);
	if (out[0] < 0)
		return -1;
	for (int i = 0; i < b->io.n_in && i < 3; i++)
		if (b->in[i] >= 0 && b->need[i])
			b->din[i] = out[i];
	return 0;
}

static int grad_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct rows r;

	if (dlb_same_shapes(io, 0, 1, err) || dlb_same_types(io, 0, 2, err) || dlb_param_types(io, 0, 2, 3, err))
		return -1;
	if (rows_of(io, &io->in[1], 2, &r, err))
		return -1;
	if (dlb_has_count(io, 3, r.n, err) || dlb_has_count(io, 4, r.n, err))
		return -1;
	io->out[0] = io->in[1];
	for (int i = 1; i < io->n_out; i++)
		io->out[i] = io->in[2];
	return 0;
}

static int grad_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k, struct dlb_error *err)
{
	struct rows r;

	return rows_of(io, &io->in[1], 2, &r, err) ? -1 : prepare(be, io, &r, true, k, err);
}

static double flops(const struct dlb_op_io *io)
{
	return 8.0 * (double)dlb_desc_count(&io->in[0]);
}

static double grad_flops(const struct dlb_op_io *io)
{
	return 14.0 * (double)dlb_desc_count(&io->in[0]);
}

const struct dlb_op_class dlb_op_LayerNormalization = { .name = "LayerNormalization", .n_in = { 2, 3 }, .n_out = { 1, 3 },
	.bf16 = DLB_BF16_FOLLOWS, .f32_in = 6,
	.work = "norm", .infer = infer, .flops = flops, .gradient = gradient, .kernel = kernel };
const struct dlb_op_class dlb_op_InstanceNormalization = { .name = "InstanceNormalization", .n_in = { 3, 3 }, .n_out = { 1, 3 },
	.bf16 = DLB_BF16_FOLLOWS, .f32_in = 6,
	.work = "norm", .infer = infer, .flops = flops, .gradient = gradient, .kernel = kernel };
#define GRAD(n) \
	const struct dlb_op_class dlb_op_##n = { .name = #n, .domain = "dlb", .n_in = { 5, 5 }, .n_out = { 1, 3 }, \
		.overwrite = 3, .work = "norm", .infer = grad_infer, .flops = grad_flops, .kernel = grad_kernel };
GRAD(LayerNormalizationGrad)
GRAD(InstanceNormalizationGrad)
