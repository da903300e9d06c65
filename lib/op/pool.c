/* Pools: MaxPool, AveragePool, their global forms, and the two gradients.
 *
 * MaxPool's gradient needs the position of the maximum in each window: output 2 of the forward vertex (dlb's,
 * after ONNX's Indices), one byte if windows have up to 255 elements. MaxPoolGrad (dy, pos) and
 * AveragePoolGrad (dy) have the forward's attributes and "spatial", x's sizes. */
#include "op/op_util.h"

#include <string.h>

struct pool { struct dlb_pool_desc d; struct dlb_kernel_window w; };

static bool is_global(const struct dlb_op_class *cls)
{
	return !strncmp(cls->name, "Global", 6);
}

static int fill(const struct dlb_op_io *io, const struct dlb_desc *x, struct pool *p, struct dlb_error *err)
{
	int n = x->n_dims - 2;
	int64_t window = 1;

	if (x->n_dims < 3)
		return dlb_op_fail(io, err, "input has %d dimensions, a pool needs at least 3", x->n_dims);
	if (dlb_window_read(io, x->dim + 2, n, is_global(io->cls) ? x->dim + 2 : NULL, &p->w, err))
		return -1;
	p->d.x = p->d.y = *x;
	for (int i = 0; i < n; i++) {
		p->d.y.dim[2 + i] = p->w.out[i];
		window *= p->w.kernel[i];
		if (p->w.pad_begin[i] >= p->w.dilation[i] * (p->w.kernel[i] - 1) + 1)
			return dlb_op_fail(io, err, "a window may lie in the padding altogether");
	}
	p->d.pos = window <= 255 ? DLB_U8 : DLB_I32;
	p->d.count_include_pad = dlb_io_int(io, "count_include_pad", 0) != 0;
	memcpy(p->d.kernel, p->w.kernel, sizeof p->d.kernel);
	memcpy(p->d.stride, p->w.stride, sizeof p->d.stride);
	memcpy(p->d.dilation, p->w.dilation, sizeof p->d.dilation);
	memcpy(p->d.pad_begin, p->w.pad_begin, sizeof p->d.pad_begin);
	memcpy(p->d.pad_end, p->w.pad_end, sizeof p->d.pad_end);
	return 0;
}

static double flops_of(const struct pool *p)
{
	return (double)dlb_desc_count(&p->d.y) * (double)p->w.kernel[0] * (double)p->w.kernel[1] *
	       (double)p->w.kernel[2];
}

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct pool p = { 0 };

	if (fill(io, &io->in[0], &p, err))
		return -1;
	io->out[0] = p.d.y;
	if (io->n_out > 1) {
		io->out[1] = p.d.y;
		io->out[1].dtype = DLB_I64;
	}
	if (io->n_out > 2) {
		io->out[2] = p.d.y;
		io->out[2].dtype = p.d.pos;
	}
	return 0;
}

static double flops(const struct dlb_op_io *io)
{
	struct pool p = { 0 };

	return fill(io, &io->in[0], &p, NULL) ? 0 : flops_of(&p);
}

/* ONNX's Indices: the index of each maximum in the flattened input (storage_order 1: column-major). */
struct indices { struct pool p; struct dlb_desc pos, out; int storage_order; };

static void indices_run(const void *ctx, const struct dlb_run *r)
{
	const struct indices *c = ctx;
	const struct dlb_desc *x = &c->p.d.x, *y = &c->p.d.y;
	const struct dlb_kernel_window *w = &c->p.w;
	int64_t stride[DLB_MAX_DIMS], to[DLB_MAX_DIMS], count = dlb_desc_count(y),
							plane = dlb_desc_range(x, 2, x->n_dims);
	int64_t *out = r->out[0];
	int n = w->n;

	dlb_desc_strides(&c->pos, stride);
	dlb_desc_strides(&c->out, to);
	for (int64_t i = 0; i < count; i++) {
		int64_t rest = i, at[DLB_MAX_DIMS], from = 0, place = 0, win, in[3], index = 0, step = 1;

		for (int d = y->n_dims - 1; d >= 0; d--) {
			at[d] = rest % y->dim[d];
			rest /= y->dim[d];
			from += at[d] * stride[d];
			place += at[d] * to[d];
		}
		win = dlb_value_int(r->in[0], c->pos.dtype, from);
		for (int d = n - 1; d >= 0; d--) {
			in[d] = at[2 + d] * w->stride[d] - w->pad_begin[d] +
				win % w->kernel[d] * w->dilation[d];
			win /= w->kernel[d];
		}
		for (int j = 0; j < n; j++) {
			int d = c->storage_order ? j : n - 1 - j;

			index += in[d] * step;
			step *= x->dim[2 + d];
		}
		out[place] = (at[0] * x->dim[1] + at[1]) * plane + index;
	}
}

/* Types that the back end does not pool, and whose values f32 represents. */
static bool is_narrow(enum dlb_dtype t)
{
	return t == DLB_I8 || t == DLB_U8;
}

static int max_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		      struct dlb_error *err)
{
	struct pool p = { .d.max = true };
	bool want_index = dlb_io_wants(io, 1), want_pos = dlb_io_wants(io, 2);
	struct dlb_chain *c;
	struct dlb_kernel *sub = NULL;
	int pos = want_pos ? DLB_OUT(2) : DLB_NOTHING, rc;

	if (is_narrow(io->in[0].dtype))
		return dlb_kernel_widened(be, io, 1u << io->in[0].dtype, DLB_F32, max_kernel, k, err);
	if (fill(io, &io->in[0], &p, err))
		return -1;
	p.d.y.layout = io->out[0].layout;
	c = dlb_chain_new(be, err);
	struct indices ind = { .p = p,
			       .pos = p.d.y,
			       .out = io->out[want_index],
			       .storage_order = (int)dlb_io_int(io, "storage_order", 0) };

	ind.pos.dtype = p.d.pos;
	if (want_index && !want_pos)
		pos = dlb_chain_temp(c, &ind.pos);
	rc = be->ops->pool(be, &p.d, &sub, err);
	dlb_chain_add(c, rc, sub, DLB_REFS(DLB_IN(0)), 1, DLB_REFS(DLB_OUT(0), pos), 2);
	if (want_index && !rc) {
		rc = be->ops->host(be, indices_run, &ind, sizeof ind, 0, &sub, err);
		dlb_chain_add(c, rc, sub, &pos, 1, DLB_REFS(DLB_OUT(1)), 1);
	}
	return dlb_chain_finish(c, k);
}

static int average_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			  struct dlb_error *err)
{
	struct pool p = { .d.max = false };

	if (is_narrow(io->in[0].dtype))
		return dlb_kernel_widened(be, io, 1u << io->in[0].dtype, DLB_F32, average_kernel, k, err);
	if (fill(io, &io->in[0], &p, err))
		return -1;
	p.d.y.layout = io->out[0].layout;
	return be->ops->pool(be, &p.d, k, err);
}

/* The forward's attributes, with the window and x's sizes made explicit. */
static int backward_attrs(const struct dlb_op_io *io, struct dlb_attr *a)
{
	static const char *const keep[] = { "strides",   "dilations",         "pads",        "auto_pad",
					    "ceil_mode", "count_include_pad", "kernel_shape" };
	const struct dlb_desc *x = &io->in[0];
	int n = 0;

	if (is_global(io->cls)) {
		a[n++] = dlb_make_ints("kernel_shape", x->dim + 2, x->n_dims - 2);
	} else {
		n = dlb_keep_attrs(io, keep, DLB_LEN(keep), a);
	}
	a[n++] = dlb_make_ints("spatial", x->dim + 2, x->n_dims - 2);
	return n;
}

static int max_gradient(struct dlb_builder *b, struct dlb_error *err)
{
	struct dlb_attr a[10];
	int n = backward_attrs(&b->io, a), pos;

	(void)err;
	if (!b->need[0])
		return 0;
	pos = dlb_b_extra_output(b, 2);
	return dlb_b_gradient(b, DLB_SPEC_ATTR("MaxPoolGrad", a, n, b->dout[0], pos));
}

static int average_gradient(struct dlb_builder *b, struct dlb_error *err)
{
	struct dlb_attr a[10];
	int n = backward_attrs(&b->io, a);

	(void)err;
	return dlb_b_gradient(b, DLB_SPEC_ATTR("AveragePoolGrad", a, n, b->dout[0]));
}

static int grad_fill(const struct dlb_op_io *io, struct pool *p, struct dlb_error *err)
{
	const struct dlb_desc *dy = &io->in[0];
	struct dlb_desc x = *dy;
	const int64_t *v;
	int n = dlb_attr_ints(io->attr, io->n_attr, "spatial", &v);

	if (n != dy->n_dims - 2)
		return dlb_op_fail(io, err, "attribute 'spatial' needs %d entries", dy->n_dims - 2);
	for (int i = 0; i < n; i++) {
		if (v[i] < 1 || v[i] > 1 << 24)
			return dlb_op_fail(io, err, "attribute 'spatial': %lld is out of range",
					   (long long)v[i]);
		x.dim[2 + i] = v[i];
	}
	if (fill(io, &x, p, err))
		return -1;
	if (!dlb_desc_same_shape(&p->d.y, dy))
		return dlb_op_fail(io, err, "the gradient's shape is not that of the pool");
	return 0;
}

static int grad_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct pool p = { 0 };

	if (grad_fill(io, &p, err))
		return -1;
	if (io->n_in > 1 && (dlb_same_shapes(io, 0, 1, err) || io->in[1].dtype != p.d.pos))
		return dlb_op_fail(io, err, "input 1 does not hold positions of this pool");
	io->out[0] = p.d.x;
	return 0;
}

static double grad_flops(const struct dlb_op_io *io)
{
	struct pool p = { 0 };

	return grad_fill(io, &p, NULL) ? 0 : flops_of(&p);
}

static int grad_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	struct pool p = { .d.max = io->n_in > 1, .d.backward = true };

	if (grad_fill(io, &p, err))
		return -1;
	p.d.x.layout = io->out[0].layout;
	p.d.y.layout = io->in[0].layout;
	return be->ops->pool(be, &p.d, k, err);
}

#define POOL(n, most, grad, kern) \
	const struct dlb_op_class dlb_op_##n = { .name = #n, .n_in = { 1, 1 }, .n_out = { 1, most }, \
		.layout = DLB_LAYOUT_WANTS_CHANNELS_LAST, .bf16 = DLB_BF16_FOLLOWS, .work = "pool", .infer = infer, .flops = flops, \
		.gradient = grad, .kernel = kern };
#define GRAD(n, in) \
	const struct dlb_op_class dlb_op_##n = { .name = #n, .domain = "dlb", .n_in = { in, in }, .n_out = { 1, 1 }, \
		.layout = DLB_LAYOUT_WANTS_CHANNELS_LAST, .work = "pool", .infer = grad_infer, .flops = grad_flops, \
		.kernel = grad_kernel };
POOL(MaxPool, 3, max_gradient, max_kernel)
POOL(GlobalMaxPool, 3, max_gradient, max_kernel)
POOL(AveragePool, 1, average_gradient, average_kernel)
POOL(GlobalAveragePool, 1, average_gradient, average_kernel)
GRAD(MaxPoolGrad, 2)
GRAD(AveragePoolGrad, 1)
