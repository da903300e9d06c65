/* Conv and ConvTranspose, and the two gradients they share.
 *
 * ConvGradInput  (dy, w) -> dx      attributes of Conv, and "spatial": x's spatial sizes; "winograd" as in Conv
 * ConvGradWeight (dy, x) -> dw, db  db only if there are two outputs
 * ConvTranspose is the gradient of a convolution with respect to its input, and vice versa. */
#include "op/conv.h"
#include "op/op_util.h"

#include <string.h>

/* The convolution described by a vertex of any of the four classes. */
struct conv { struct dlb_conv_desc d; struct dlb_kernel_window w; };

enum { MOST = 1 << 24 };			/* limit on sizes that are computed here */

static int64_t groups_of(const struct dlb_op_io *io)
{
	int64_t g = dlb_io_int(io, "group", 1);

	return g < 0 || g > MOST ? 0 : g;	/* 0 is refused by the caller */
}

static int fill(const struct dlb_op_io *io, struct conv *c, const struct dlb_desc *x,
		const struct dlb_desc *w, struct dlb_error *err)
{
	int n = x->n_dims - 2;
	char a[128], b[128];

	c->d.x = *x;
	c->d.w = *w;
	c->d.groups = groups_of(io);
	c->d.winograd = dlb_io_int(io, "winograd", 0) != 0;
	if (x->n_dims < 3 || w->n_dims != x->n_dims || c->d.groups < 1 || w->dim[0] % c->d.groups ||
	    w->dim[1] * c->d.groups != x->dim[1])
		return dlb_op_fail(io, err, "%s and weights %s do not fit together with %lld groups",
				   dlb_desc_str(x, a, sizeof a), dlb_desc_str(w, b, sizeof b),
				   (long long)c->d.groups);
	if (dlb_window_read(io, x->dim + 2, n, w->dim + 2, &c->w, err))
		return -1;
	c->d.y = *x;
	c->d.y.dim[1] = w->dim[0];
	for (int i = 0; i < n; i++)
		c->d.y.dim[2 + i] = c->w.out[i];
	memcpy(c->d.stride, c->w.stride, sizeof c->d.stride);
	memcpy(c->d.dilation, c->w.dilation, sizeof c->d.dilation);
	memcpy(c->d.pad_begin, c->w.pad_begin, sizeof c->d.pad_begin);
	memcpy(c->d.pad_end, c->w.pad_end, sizeof c->d.pad_end);
	return 0;
}

static double flops_of(const struct conv *c)
{
	return 2.0 * (double)dlb_desc_count(&c->d.y) * (double)dlb_desc_range(&c->d.w, 1, c->d.w.n_dims);
}

static int check_bias(const struct dlb_op_io *io, int i, int64_t n, struct dlb_error *err)
{
	if (dlb_io_has(io, i) && (io->in[i].n_dims != 1 || io->in[i].dim[0] != n))
		return dlb_op_fail(io, err, "the bias must have %lld entries", (long long)n);
	return 0;
}

/* -- Conv -- */

/* Was Relu fused into the convolution? This is an attribute of dlb's. */
static bool has_relu(const struct dlb_op_io *io)
{
	return !strcmp(dlb_io_str(io, "activation", ""), "Relu");
}

static int conv_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	const int64_t *kernel;
	int n = dlb_attr_ints(io->attr, io->n_attr, "kernel_shape", &kernel);
	struct conv c = { 0 };

	if (dlb_param_types(io, 0, 1, 2, err) || fill(io, &c, &io->in[0], &io->in[1], err) ||
	    check_bias(io, 2, io->in[1].dim[0], err))
		return -1;
	for (int i = 0; i < n; i++)
		if (n != io->in[1].n_dims - 2 || kernel[i] != io->in[1].dim[2 + i])
			return dlb_op_fail(io, err,
					   "attribute 'kernel_shape' is not the shape of the weights");
	io->out[0] = c.d.y;
	return 0;
}

int dlb_conv_describe(const struct dlb_op_io *io, struct dlb_conv_desc *d, struct dlb_error *err)
{
	struct conv c = { 0 };

	if (fill(io, &c, &io->in[0], &io->in[1], err))
		return -1;
	*d = c.d;
	return 0;
}

static double conv_flops(const struct dlb_op_io *io)
{
	struct conv c = { 0 };

	return fill(io, &c, &io->in[0], &io->in[1], NULL) ? 0 : flops_of(&c);
}

static int conv_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	struct conv c = { .d.dir = DLB_CONV_FORWARD,
			  .d.has_bias = dlb_io_has(io, 2),
			  .d.relu = has_relu(io) };

	if (fill(io, &c, &io->in[0], &io->in[1], err))
		return -1;
	c.d.y.layout = io->out[0].layout;
	return be->ops->conv(be, &c.d, k, err);
}

/* Attributes for the gradients: the relevant ones of the forward vertex, the window's
 * shape and the input's size. */
static int backward_attrs(const struct dlb_op_io *io, const struct dlb_desc *x, struct dlb_attr *a)
{
	static const char *const keep[] = { "strides", "dilations", "pads", "auto_pad", "group", "winograd" };
	int n = dlb_keep_attrs(io, keep, DLB_LEN(keep), a);

	a[n++] = dlb_make_ints("spatial", x->dim + 2, x->n_dims - 2);
	return n;
}

static int conv_gradient(struct dlb_builder *b, struct dlb_error *err)
{
	bool bias = b->io.n_in > 2 && b->in[2] >= 0 && b->need[2];
	const struct dlb_desc *w = &b->io.in[1];
	struct dlb_attr a[8];
	int n = backward_attrs(&b->io, &b->io.in[0], a), out[2] = { -1, -1 };
	int dy = b->dout[0];

	(void)err;
	if (has_relu(&b->io))
		dy = dlb_b_op(b, DLB_SPEC("ReluGrad", dy, b->out[0]), NULL, b->out[0]);
	if (b->need[0]) {
		b->din[0] = dlb_b_op(b, DLB_SPEC_ATTR("ConvGradInput", a, n, dy, b->in[1]), NULL, b->in[0]);
		if (b->din[0] < 0)
			return -1;
	}
	if (!b->need[1] && !bias)
		return 0;
	a[n++] = dlb_make_ints("kernel_shape", w->dim + 2, w->n_dims - 2);
	out[0] = dlb_b_op(b, &(struct dlb_op_spec){ .type = "ConvGradWeight", DLB_OPERANDS(dy, b->in[0]),
						    .n_out = bias ? 2 : 1, .attr = a, .n_attr = n }, out,
			  b->in[1]);
	if (b->need[1])
		b->din[1] = out[0];
	if (bias)
		b->din[2] = out[1];
	return out[0] < 0 ? -1 : 0;
}

/* -- the gradients -- */

/* Reads spatial sizes or a window's shape from attribute `name` into the dims of d from 2 on. */
static int sizes(const struct dlb_op_io *io, const char *name, int n, struct dlb_desc *d,
		 struct dlb_error *err)
{
	const int64_t *v;

	if (dlb_attr_ints(io->attr, io->n_attr, name, &v) != n)
		return dlb_op_fail(io, err, "attribute '%s' needs %d entries", name, n);
	for (int i = 0; i < n; i++) {
		if (v[i] < 0 || v[i] > 1 << 24)
			return dlb_op_fail(io, err, "attribute '%s': %lld is out of range", name,
					   (long long)v[i]);
		d->dim[2 + i] = v[i];
	}
	d->n_dims = 2 + n;
	return 0;
}

static int check_dy(const struct dlb_op_io *io, const struct conv *c, struct dlb_error *err)
{
	if (!dlb_desc_same_shape(&c->d.y, &io->in[0]))
		return dlb_op_fail(io, err, "the gradient's shape is not that of the convolution");
	return 0;
}

static int grad_input_fill(const struct dlb_op_io *io, struct conv *c, struct dlb_error *err)
{
	const struct dlb_desc *dy = &io->in[0], *w = &io->in[1];
	struct dlb_desc x = *dy;

	if (dy->n_dims < 3 || w->n_dims != dy->n_dims)
		return dlb_op_fail(io, err, "weights and gradient differ in their number of dimensions");
	x.dim[1] = w->dim[1] > MOST ? -1 : w->dim[1] * groups_of(io);
	if (sizes(io, "spatial", dy->n_dims - 2, &x, err))
		return -1;
	return fill(io, c, &x, w, err) || check_dy(io, c, err) ? -1 : 0;
}

static int grad_weight_fill(const struct dlb_op_io *io, struct conv *c, struct dlb_error *err)
{
	const struct dlb_desc *dy = &io->in[0], *x = &io->in[1];
	int64_t groups = groups_of(io);
	struct dlb_desc w = { .dtype = dy->dtype == DLB_BF16 ? DLB_F32 : dy->dtype, .layout = DLB_PLAIN };

	if (dy->n_dims < 3 || x->n_dims != dy->n_dims || groups < 1)
		return dlb_op_fail(io, err, "input and gradient differ in their number of dimensions");
	w.dim[0] = dy->dim[1];
	w.dim[1] = x->dim[1] / groups;
	if (sizes(io, "kernel_shape", dy->n_dims - 2, &w, err))
		return -1;
	return fill(io, c, x, &w, err) || check_dy(io, c, err) ? -1 : 0;
}

static int grad_input_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct conv c = { 0 };

	if (dlb_param_types(io, 0, 1, 1, err) || grad_input_fill(io, &c, err))
		return -1;
	io->out[0] = c.d.x;
	return 0;
}

static int grad_weight_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct conv c = { 0 };

	if (dlb_same_types(io, 0, 2, err) || grad_weight_fill(io, &c, err))
		return -1;
	io->out[0] = c.d.w;
	if (io->n_out > 1)
		io->out[1] = dlb_desc_1d(c.d.w.dtype, io->in[0].dim[1]);
	return 0;
}

static double grad_input_flops(const struct dlb_op_io *io)
{
	struct conv c = { 0 };

	return grad_input_fill(io, &c, NULL) ? 0 : flops_of(&c);
}

static double grad_weight_flops(const struct dlb_op_io *io)
{
	struct conv c = { 0 };

	return grad_weight_fill(io, &c, NULL) ?
		       0 :
		       flops_of(&c) + (io->n_out > 1 ? (double)dlb_desc_count(&io->in[0]) : 0);
}

static int grad_input_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			     struct dlb_error *err)
{
	struct conv c = { .d.dir = DLB_CONV_GRAD_INPUT };

	if (grad_input_fill(io, &c, err))
		return -1;
	c.d.x.layout = io->out[0].layout;
	c.d.y.layout = io->in[0].layout;
	return be->ops->conv(be, &c.d, k, err);
}

static int grad_weight_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			      struct dlb_error *err)
{
	struct conv c = { .d.dir = DLB_CONV_GRAD_WEIGHT, .d.has_bias = dlb_io_wants(io, 1) };

	if (grad_weight_fill(io, &c, err))
		return -1;
	c.d.y.layout = io->in[0].layout;
	return be->ops->conv(be, &c.d, k, err);
}

/* -- ConvTranspose: x takes the role of dy, y that of dx; weights are (C, M/groups, ...) with C of x -- */

static int transpose_fill(const struct dlb_op_io *io, struct conv *c, struct dlb_desc *y, int64_t pads[6],
			  struct dlb_error *err)
{
	const struct dlb_desc *x = &io->in[0], *w = &io->in[1];
	const char *auto_pad = dlb_io_str(io, "auto_pad", "NOTSET");
	int n = x->n_dims - 2;
	int64_t extra[3] = { 0 }, groups = groups_of(io);
	const int64_t *v, *shape, *explicit_pads;
	int n_extra, n_shape, n_pads;
	struct dlb_kernel_window win;
	struct dlb_op_io bare = *io;

	if (x->n_dims < 3 || x->n_dims > 5 || w->n_dims != x->n_dims || groups < 1 || w->dim[1] > MOST ||
	    x->dim[1] != w->dim[0] || w->dim[0] % groups)
		return dlb_op_fail(io, err, "input and weights do not fit together with %lld groups",
				   (long long)groups);
	n_extra = dlb_attr_ints(io->attr, io->n_attr, "output_padding", &v);
	n_shape = dlb_attr_ints(io->attr, io->n_attr, "output_shape", &shape);
	n_pads = dlb_attr_ints(io->attr, io->n_attr, "pads", &explicit_pads);
	if ((n_extra && n_extra != n) || (n_shape && n_shape != n && n_shape != n + 2) ||
	    (n_pads && n_pads != 2 * n))
		return dlb_op_fail(io, err, "an attribute does not have %d entries", n);
	if (n_shape == n + 2)
		shape += 2;
	for (int i = 0; i < n; i++) {
		extra[i] = n_extra ? v[i] : 0;
		if (extra[i] < 0 || extra[i] > MOST || x->dim[2 + i] < 1 || x->dim[2 + i] > MOST ||
		    (n_shape && (shape[i] < 1 || shape[i] > MOST)))
			return dlb_op_fail(io, err, "a size along dimension %d is not possible", 2 + i);
	}
	/* Reads strides and dilations with input sizes that any window fits; pads are computed below. */
	int64_t huge[3] = { 1 << 25, 1 << 25, 1 << 25 };

	if (dlb_window_read(&bare, huge, n, w->dim + 2, &win, err))
		return -1;
	*y = *x;
	y->dim[1] = w->dim[1] * groups;
	for (int i = 0; i < n; i++) {
		int64_t span = win.dilation[i] * (win.kernel[i] - 1) + 1;
		int64_t full = win.stride[i] * (x->dim[2 + i] - 1) + extra[i] + span, total;
		bool same = !strncmp(auto_pad, "SAME", 4);

		pads[i] = n_pads ? explicit_pads[i] : 0;
		pads[n + i] = n_pads ? explicit_pads[n + i] : 0;
		y->dim[2 + i] = full - pads[i] - pads[n + i];
		if (n_shape || same) {
			y->dim[2 + i] = n_shape ? shape[i] : x->dim[2 + i] * win.stride[i];
			total = full - y->dim[2 + i];
			total = total < 0 ? 0 : total;
			pads[i] = !strcmp(auto_pad, "SAME_UPPER") ? total / 2 : total - total / 2;
			if (!same)
				pads[i] = total / 2;
			pads[n + i] = total - pads[i];
		}
		if (y->dim[2 + i] < 1 || y->dim[2 + i] > 1 << 24)
			return dlb_op_fail(io, err, "output size %lld is not possible",
					   (long long)y->dim[2 + i]);
	}
	/* The convolution from y to x. */
	c->d.x = *y;
	c->d.w = *w;
	c->d.y = *x;
	c->d.groups = groups;
	c->w = win;
	for (int i = 0; i < n; i++) {
		c->d.stride[i] = win.stride[i];
		c->d.dilation[i] = win.dilation[i];
		c->d.pad_begin[i] = pads[i];
		/* output_padding covers the rest of the last stride */
		c->d.pad_end[i] = pads[n + i];
	}
	for (int i = n; i < 3; i++)
		c->d.stride[i] = c->d.dilation[i] = 1;
	return 0;
}

static int transpose_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct conv c = { 0 };
	int64_t pads[6];

	if (dlb_same_types(io, 0, 3, err) || transpose_fill(io, &c, &io->out[0], pads, err))
		return -1;
	return check_bias(io, 2, io->out[0].dim[1], err);
}

static double transpose_flops(const struct dlb_op_io *io)
{
	struct conv c = { 0 };
	struct dlb_desc y;
	int64_t pads[6];

	return transpose_fill(io, &c, &y, pads, NULL) ? 0 : flops_of(&c);
}

static int transpose_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			    struct dlb_error *err)
{
	struct conv c = { .d.dir = DLB_CONV_GRAD_INPUT };
	struct dlb_chain *chain;
	struct dlb_kernel *sub = NULL;
	struct dlb_desc y, bias;
	int64_t pads[6];
	int rc;

	if (transpose_fill(io, &c, &y, pads, err))
		return -1;
	c.d.x.layout = io->out[0].layout;
	chain = dlb_chain_new(be, err);
	rc = be->ops->conv(be, &c.d, &sub, err);
	dlb_chain_add(chain, rc, sub, DLB_REFS(DLB_IN(0), DLB_IN(1)), 2, DLB_REFS(DLB_OUT(0)), 1);
	if (dlb_io_has(io, 2)) {
		bias = dlb_desc_make(y.dtype, y.n_dims, (int64_t[DLB_MAX_DIMS]){ 1, y.dim[1], 1, 1, 1 });
		const struct dlb_desc *d[2] = { &io->out[0], &bias };

		dlb_chain_map(chain, DLB_MAP(add, 2), DLB_REFS(DLB_OUT(0), DLB_IN(2)), d, DLB_OUT(0),
			      &io->out[0]);
	}
	return dlb_chain_finish(chain, k);
}

/* dx is a convolution of dy with the same weights; dw is the weight gradient with dy and x exchanged. */
static int transpose_gradient(struct dlb_builder *b, struct dlb_error *err)
{
	const struct dlb_desc *w = &b->io.in[1];
	struct conv c = { 0 };
	struct dlb_desc y;
	int64_t pads[6], all[6];
	struct dlb_attr a[8];
	int nd = w->n_dims - 2, n = 0;

	if (transpose_fill(&b->io, &c, &y, pads, err))
		return -1;
	for (int i = 0; i < nd; i++) {
		all[i] = c.d.pad_begin[i];
		all[nd + i] = c.d.pad_end[i];
	}
	a[n++] = dlb_make_ints("strides", c.d.stride, nd);
	a[n++] = dlb_make_ints("dilations", c.d.dilation, nd);
	a[n++] = dlb_make_ints("pads", all, 2 * nd);
	a[n++] = dlb_make_int("group", c.d.groups);
	if (b->need[0])
		b->din[0] = dlb_b_op(b, DLB_SPEC_ATTR("Conv", a, n, b->dout[0], b->in[1]), NULL, b->in[0]);
	a[n++] = dlb_make_ints("kernel_shape", w->dim + 2, nd);
	if (b->need[1])
		b->din[1] = dlb_b_op(b, DLB_SPEC_ATTR("ConvGradWeight", a, n, b->in[0], b->dout[0]), NULL,
				     b->in[1]);
	if (b->io.n_in > 2 && b->in[2] >= 0 && b->need[2]) {
		struct dlb_attr keep = dlb_make_int("keepdims", 0);
		int64_t axes[5] = { 0, 2, 3, 4, 5 };
		int in[2] = { b->dout[0], dlb_b_const_ints(b, axes, nd + 1) };

		b->din[2] = dlb_b_op(b,
				     &(struct dlb_op_spec){ .type = "ReduceSum", .in = in, .n_in = 2,
							    .attr = &keep, .n_attr = 1 }, NULL, b->in[2]);
	}
	for (int i = 0; i < b->io.n_in; i++)
		if (b->in[i] >= 0 && b->need[i] && b->din[i] < 0)
			return -1;
	return 0;
}

const struct dlb_op_class dlb_op_Conv = { .name = "Conv",
					  .n_in = { 2, 3 },
					  .n_out = { 1, 1 },
					  .layout = DLB_LAYOUT_WANTS_CHANNELS_LAST,
					  .bf16 = DLB_BF16_WEIGHTS,
					  .f32_in = 6,
					  .work = "conv",
					  .infer = conv_infer,
					  .flops = conv_flops,
					  .gradient = conv_gradient,
					  .kernel = conv_kernel };
const struct dlb_op_class dlb_op_ConvGradInput = { .name = "ConvGradInput",
						   .domain = "dlb",
						   .n_in = { 2, 2 },
						   .n_out = { 1, 1 },
						   .layout = DLB_LAYOUT_WANTS_CHANNELS_LAST,
						   .f32_in = 2,
						   .work = "conv",
						   .infer = grad_input_infer,
						   .flops = grad_input_flops,
						   .kernel = grad_input_kernel };
const struct dlb_op_class dlb_op_ConvGradWeight = { .name = "ConvGradWeight",
						    .domain = "dlb",
						    .n_in = { 2, 2 },
						    .n_out = { 1, 2 },
						    .layout = DLB_LAYOUT_WANTS_CHANNELS_LAST,
						    .work = "conv",
						    .infer = grad_weight_infer,
						    .flops = grad_weight_flops,
						    .kernel = grad_weight_kernel };
const struct dlb_op_class dlb_op_ConvTranspose = { .name = "ConvTranspose",
						   .n_in = { 2, 3 },
						   .n_out = { 1, 1 },
						   .layout = DLB_LAYOUT_WANTS_CHANNELS_LAST,
						   .f32_in = 6,
						   .work = "conv",
						   .infer = transpose_infer,
						   .flops = transpose_flops,
						   .gradient = transpose_gradient,
						   .kernel = transpose_kernel };
