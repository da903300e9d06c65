/* LayerNormalization, RMSNormalization, InstanceNormalization and GroupNormalization normalize
 * rows by mean and variance:
 *     y = (x - mean) / sqrt(var + epsilon) * scale + bias.
 * A row is the dimensions from `axis` on (layer, RMS; scale and bias have entries along the row), a
 * channel of a sample (instance; scale and bias per channel), or a group of channels of a sample
 * (group; scale and bias per channel, before opset 21 per group). RMS uses a mean of 0 and has no bias.
 * No row spans several samples.
 * Gradients (dy, x, scale, mean, invstd) -> dx, dscale, dbias; with x^ = (x - mean) invstd and g = dy scale:
 *     dx = invstd (g - mean(g) - x^ mean(g x^)),   for RMS without mean(g)
 * J. L. Ba, J. R. Kiros, G. E. Hinton, Layer Normalization, 2016; B. Zhang, R. Sennrich, Root Mean
 * Square Layer Normalization, 2019; D. Ulyanov et al., Instance Normalization, 2016; Y. Wu, K. He,
 * Group Normalization, 2018. */
#include "op/op_util.h"

#include <string.h>

enum kind { LAYER, RMS, INSTANCE, GROUP };
struct norm_rows {
	enum kind kind;
	int64_t n, width;
	int64_t channels, row_channels;		/* see dlb_norm_desc */
	int first;				/* first dimension of a row */
	double epsilon;
};

static enum kind kind_of(const struct dlb_op_io *io)
{
	const char *s = io->cls->name;

	return *s == 'L' ? LAYER : *s == 'R' ? RMS : *s == 'I' ? INSTANCE : GROUP;
}

/* Checks that parameter i broadcasts to a row of x. */
static int covers(const struct dlb_op_io *io, int i, const struct dlb_desc *x, int first,
		  struct dlb_error *err)
{
	const struct dlb_desc *p = &io->in[i];
	const int shift = x->n_dims - p->n_dims;
	bool ok = true;
	char a[128], b[128];

	if (dlb_desc_count(p) == dlb_desc_range(x, first, x->n_dims))
		return 0;
	for (int j = 0; j < p->n_dims && ok; j++)
		ok = p->dim[j] == 1 || (shift + j >= first && p->dim[j] == x->dim[shift + j]);
	if (!ok)
		return dlb_op_fail(io, err,
				   "input %d is %s; it should broadcast to dimensions %d to %d of %s", i,
				   dlb_desc_str(p, a, sizeof a), first, x->n_dims - 1,
				   dlb_desc_str(x, b, sizeof b));
	return 0;
}

/* Does parameter i broadcast along the row? */
static bool repeats(const struct dlb_op_io *io, int i, const struct norm_rows *r)
{
	return !r->channels && dlb_io_has(io, i) && dlb_desc_count(&io->in[i]) != r->width;
}

/* Rows of channels: scale and bias have one entry per channel or per group. */
static int channels_of(const struct dlb_op_io *io, const struct dlb_desc *x, int scale, struct norm_rows *r,
		       struct dlb_error *err)
{
	const int least = r->kind == INSTANCE ? 3 : 2;
	const int64_t entries = dlb_desc_count(&io->in[scale]);

	if (x->n_dims < least)
		return dlb_op_fail(io, err, "input has %d dimensions, at least %d are needed", x->n_dims,
				   least);
	const int64_t channels = x->dim[1],
		      groups = r->kind == INSTANCE ? channels : dlb_io_int(io, "num_groups", 0);
	const bool by_group = r->kind == GROUP && (io->cls->domain ? entries == groups : io->opset < 21);

	if (groups < 1 || channels % groups)
		return dlb_op_fail(io, err,
				   "%lld channels cannot be put into num_groups = %lld groups of one size",
				   (long long)channels, (long long)groups);
	r->n = x->dim[0] * groups;
	r->width = channels / groups * dlb_desc_range(x, 2, x->n_dims);
	r->channels = by_group ? groups : channels;
	r->row_channels = by_group ? 1 : channels / groups;
	r->first = 2;
	return dlb_has_count(io, scale, r->channels, err);
}

/* Describes the rows of x, and checks the scale, input `scale`. */
static int rows_of(const struct dlb_op_io *io, const struct dlb_desc *x, int scale, struct norm_rows *r,
		   struct dlb_error *err)
{
	*r = (struct norm_rows){ .kind = kind_of(io), .epsilon = dlb_io_real(io, "epsilon", 1e-5) };
	if (r->kind == INSTANCE || r->kind == GROUP)
		return channels_of(io, x, scale, r, err);
	const int axis = dlb_axis(io, dlb_io_int(io, "axis", -1), x->n_dims, err);

	if (axis < 0)
		return -1;
	r->n = dlb_desc_range(x, 0, axis);
	r->width = dlb_desc_range(x, axis, x->n_dims);
	r->first = axis;
	return covers(io, scale, x, axis, err);
}

/* Is output i the mean (0) or the inverse deviation (1) of rows, or neither (-1)? */
static int stat_of(enum kind kind, int i)
{
	return i < 1 ? -1 : kind == RMS ? 1 : i - 1;
}

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct norm_rows r;
	struct dlb_desc stat;

	if (rows_of(io, &io->in[0], 1, &r, err) || dlb_param_types(io, 0, 1, 2, err))
		return -1;
	if (dlb_io_has(io, 2) &&
	    (r.channels ? dlb_has_count(io, 2, r.channels, err) : covers(io, 2, &io->in[0], r.first, err)))
		return -1;
	io->out[0] = io->in[0];
	stat = dlb_desc_make(io->in[1].dtype, io->in[0].n_dims, io->in[0].dim);
	if (r.kind == GROUP)
		stat.dim[1] = r.channels / r.row_channels;
	for (int i = r.first; i < stat.n_dims; i++)
		stat.dim[i] = 1;
	for (int i = 1; i < io->n_out; i++)
		io->out[i] = stat;
	return 0;
}

/* Parameter i as the kernel reads it: one entry per element of a row. */
static int spread(struct dlb_chain *c, struct dlb_backend *be, const struct dlb_op_io *io,
		  const struct norm_rows *r, int i, struct dlb_error *err)
{
	const struct dlb_desc *p = &io->in[i], *x = &io->in[0];
	const struct dlb_desc row = dlb_desc_make(p->dtype, x->n_dims - r->first, x->dim + r->first);
	int64_t from[DLB_MAX_DIMS], to[DLB_MAX_DIMS], stride = 1;
	struct dlb_kernel *k = NULL;

	dlb_desc_strides(&row, to);
	for (int j = row.n_dims - 1, shift = row.n_dims - p->n_dims; j >= 0; j--) {
		const int64_t dim = j < shift ? 1 : p->dim[j - shift];

		from[j] = dim == 1 ? 0 : stride;
		stride *= dim;
	}
	const int t = dlb_chain_temp(c, &row);
	const int rc = dlb_kernel_strided(be,
					  &(struct dlb_strided){ .in = p, .out = &row, .n_dims = row.n_dims,
								 .dim = row.dim, .in_stride = from,
								 .out_stride = to }, &k, err);
	dlb_chain_add(c, rc, k, DLB_REFS(DLB_IN(i)), 1, DLB_REFS(t), 1);
	return t;
}

/* The kernel has three outputs, even if the vertex has fewer. */
static int kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		  struct dlb_error *err)
{
	struct norm_rows r;

	if (rows_of(io, &io->in[0], 1, &r, err))
		return -1;
	const struct dlb_norm_desc d = { .dtype = io->in[0].dtype,
					 .has_bias = dlb_io_has(io, 2),
					 .rms = r.kind == RMS,
					 .rows = r.n,
					 .width = r.width,
					 .channels = r.channels,
					 .row_channels = r.row_channels,
					 .epsilon = r.epsilon };
	struct dlb_chain *c = dlb_chain_new(be, err);
	struct dlb_kernel *sub = NULL;
	int in[3], out[3] = { DLB_OUT(0), DLB_NOTHING, DLB_NOTHING };

	for (int i = 0; i < 3; i++)
		in[i] = !dlb_io_has(io, i)      ? DLB_NOTHING :
			i && repeats(io, i, &r) ? spread(c, be, io, &r, i, err) :
						  DLB_IN(i);
	for (int i = 1; i < 3; i++)
		if (dlb_io_wants(io, i))
			out[1 + stat_of(r.kind, i)] = DLB_OUT(i);
	const int rc = be->ops->norm(be, &d, &sub, err);
	dlb_chain_add(c, rc, sub, in, 3, out, 3);
	return dlb_chain_finish(c, k);
}

static int gradient(struct dlb_builder *b, struct dlb_error *err)
{
	static const char *const type[] = { [LAYER] = "LayerNormalizationGrad",
					    [RMS] = "RMSNormalizationGrad",
					    [INSTANCE] = "InstanceNormalizationGrad",
					    [GROUP] = "GroupNormalizationGrad" };
	static const char *const keep[] = { "axis", "num_groups" };
	struct dlb_attr a[2];
	struct norm_rows r;
	int out[3] = { -1, -1, -1 }, in[5] = { b->dout[0], b->in[0], b->in[1], -1, -1 };

	if (rows_of(&b->io, &b->io.in[0], 1, &r, err))
		return -1;
	for (int i = 1; i < b->io.n_out; i++)
		if (b->dout[i] >= 0)
			return dlb_op_fail(&b->io, err, "no gradient through the second or third output");
	if (repeats(&b->io, 1, &r)) {
		const struct dlb_desc *x = &b->io.in[0];

		in[2] = dlb_b_op2(b, "Expand", b->in[1],
				  dlb_b_const_ints(b, x->dim + r.first, x->n_dims - r.first));
	}
	for (int i = 1; i <= (r.kind == RMS ? 1 : 2); i++)
		in[3 + stat_of(r.kind, i)] = dlb_b_extra_output(b, i);
	const int n = dlb_keep_attrs(&b->io, keep, DLB_LEN(keep), a);
	out[0] = dlb_b_op(b, &(struct dlb_op_spec){ .type = type[r.kind], .in = in, .n_in = 5,
						    .n_out = r.kind == RMS ? 2 : 3, .attr = a, .n_attr = n },
			  out, b->in[0]);
	for (int i = 0; i < b->io.n_in && i < 3; i++)
		if (b->in[i] >= 0 && b->need[i])
			b->din[i] = i && repeats(&b->io, i, &r) ? dlb_b_unbroadcast(b, out[i], b->in[i]) :
								  out[i];
	return out[0] < 0 || (b->need[1] && b->din[1] < 0) ? -1 : 0;
}

static int grad_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct norm_rows r;

	if (dlb_same_shapes(io, 0, 1, err) || dlb_same_types(io, 0, 2, err) ||
	    dlb_param_types(io, 0, 2, 3, err))
		return -1;
	if (rows_of(io, &io->in[1], 2, &r, err))
		return -1;
	if (repeats(io, 2, &r))
		return dlb_has_count(io, 2, r.width, err);
	if (!dlb_io_has(io, 4))
		return dlb_op_fail(io, err, "the saved statistics are missing");
	if ((r.kind != RMS && dlb_has_count(io, 3, r.n, err)) || dlb_has_count(io, 4, r.n, err))
		return -1;
	io->out[0] = io->in[1];
	for (int i = 1; i < io->n_out; i++)
		io->out[i] = io->in[2];
	return 0;
}

static int grad_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	struct norm_rows r;

	if (rows_of(io, &io->in[1], 2, &r, err))
		return -1;
	const struct dlb_norm_desc d = { .dtype = io->in[0].dtype,
					 .backward = true,
					 .rms = r.kind == RMS,
					 .rows = r.n,
					 .width = r.width,
					 .channels = r.channels,
					 .row_channels = r.row_channels,
					 .epsilon = r.epsilon };
	struct dlb_chain *c = dlb_chain_new(be, err);
	struct dlb_kernel *sub = NULL;
	int in[5], out[3], rc = be->ops->norm(be, &d, &sub, err);

	for (int i = 0; i < 5; i++)
		in[i] = dlb_io_has(io, i) ? DLB_IN(i) : DLB_NOTHING;
	for (int i = 0; i < 3; i++)
		out[i] = dlb_io_wants(io, i) ? DLB_OUT(i) : DLB_NOTHING;
	dlb_chain_add(c, rc, sub, in, 5, out, 3);
	return dlb_chain_finish(c, k);
}

static double flops(const struct dlb_op_io *io)
{
	return (kind_of(io) == RMS ? 5.0 : 8.0) * (double)dlb_desc_count(&io->in[0]);
}

static double grad_flops(const struct dlb_op_io *io)
{
	return (kind_of(io) == RMS ? 11.0 : 14.0) * (double)dlb_desc_count(&io->in[0]);
}

/* Inputs as in ONNX; outputs: ONNX's and the saved statistics. `least` of a gradient is lower for RMS, which
 * has no mean. */
#define NORM(n, least, most, outputs) \
	const struct dlb_op_class dlb_op_##n = { .name = #n, .n_in = { least, most }, .n_out = { 1, outputs }, \
		.bf16 = DLB_BF16_FOLLOWS, .f32_in = 6, .work = "norm", .infer = infer, .flops = flops, .gradient = gradient, \
		.kernel = kernel };
#define GRAD(n, least) \
	const struct dlb_op_class dlb_op_##n = { .name = #n, \
						 .domain = "dlb", \
						 .n_in = { least, 5 }, \
						 .n_out = { 1, 3 }, \
						 .f32_in = 28, \
						 .overwrite = 3, \
						 .work = "norm", \
						 .infer = grad_infer, \
						 .flops = grad_flops, \
						 .kernel = grad_kernel };
NORM(LayerNormalization, 2, 3, 3)
NORM(RMSNormalization, 2, 2, 2)
NORM(InstanceNormalization, 3, 3, 3)
NORM(GroupNormalization, 3, 3, 3)
GRAD(LayerNormalizationGrad, 5)
GRAD(RMSNormalizationGrad, 3)
GRAD(InstanceNormalizationGrad, 5)
GRAD(GroupNormalizationGrad, 5)
