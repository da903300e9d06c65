/* Pad (modes constant, edge, reflect; negative pads crop) and PadGrad (dy[, pads]; mode), which gives every element
 * of the input the sum of what its copies in the output received. */
#include "op/kit.h"

#include <string.h>

enum mode { CONSTANT, EDGE, REFLECT };
struct pad {
	enum mode mode;
	enum dlb_dtype type;
	int n_dims;
	int64_t x[DLB_MAX_DIMS], y[DLB_MAX_DIMS], begin[DLB_MAX_DIMS];
	double value;
	bool value_is_input;
};

/* Reads pads and mode for an input (sign 1) or, backwards, from the output's shape (sign -1). */
static int parse(const struct dlb_op_io *io, int sign, int first, struct pad *p, struct dlb_error *err)
{
	const struct dlb_desc *d = &io->in[0];
	const char *mode = dlb_io_str(io, "mode", "constant");
	int64_t pads[2 * DLB_MAX_DIMS];
	int n = dlb_io_ints(io, first, "pads", pads, 2 * DLB_MAX_DIMS, err);

	if (n < 0)
		return -1;
	if (n != 2 * d->n_dims)
		return dlb_op_fail(io, err, "%d pads for %d dimensions", n, d->n_dims);
	*p = (struct pad){ .type = d->dtype, .n_dims = d->n_dims };
	if (!strcmp(mode, "edge"))
		p->mode = EDGE;
	else if (!strcmp(mode, "reflect"))
		p->mode = REFLECT;
	else if (strcmp(mode, "constant"))
		return dlb_op_fail(io, err, "attribute 'mode': unknown value '%s'", mode);
	for (int i = 0; i < d->n_dims; i++) {
		int64_t b = pads[i], e = pads[d->n_dims + i], other;

		if (b < -(1 << 30) || b > 1 << 30 || e < -(1 << 30) || e > 1 << 30)
			return dlb_op_fail(io, err, "pads %lld and %lld are out of range", (long long)b, (long long)e);
		other = d->dim[i] + sign * (b + e);
		p->x[i] = sign > 0 ? d->dim[i] : other;
		p->y[i] = sign > 0 ? other : d->dim[i];
		p->begin[i] = b;
		if (other < 0 || (p->mode != CONSTANT && p->x[i] == 0) ||
		    (p->mode == REFLECT && (b >= p->x[i] || e >= p->x[i])))
			return dlb_op_fail(io, err, "dimension %d of size %lld cannot be padded by %lld and %lld", i,
					   (long long)p->x[i], (long long)b, (long long)e);
	}
	p->value = dlb_io_real(io, "value", 0);
	return 0;
}

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct pad p;

	if (parse(io, 1, 1, &p, err))
		return -1;
	if (dlb_io_has(io, 3))
		return dlb_op_fail(io, err, "input 3, axes, is of opset 18");
	if (dlb_io_has(io, 2) && (io->in[2].dtype != p.type || dlb_desc_count(&io->in[2]) != 1))
		return dlb_op_fail(io, err, "the constant must be one value of type %s", dlb_dtype_name(p.type));
	io->out[0] = dlb_desc_make(p.type, p.n_dims, p.y);
	return 0;
}

/* Where element i of the output along one dimension comes from; -1: from nowhere (a constant). */
static int64_t source(enum mode mode, int64_t i, int64_t begin, int64_t n)
{
	i -= begin;
	if (i >= 0 && i < n)
		return i;
	if (mode == CONSTANT)
		return -1;
	if (mode == EDGE)
		return i < 0 ? 0 : n - 1;
	return i < 0 ? -i : 2 * (n - 1) - i;
}

/* Index into x for the output's element number `at`, -1: none. */
static int64_t from(const struct pad *p, int64_t at)
{
	int64_t index = 0, step = 1;

	for (int d = p->n_dims - 1; d >= 0; d--) {
		int64_t i = source(p->mode, at % p->y[d], p->begin[d], p->x[d]);

		if (i < 0)
			return -1;
		index += i * step;
		step *= p->x[d];
		at /= p->y[d];
	}
	return index;
}

static int64_t product(const int64_t *d, int n)
{
	int64_t c = 1;

	for (int i = 0; i < n; i++)
		c *= d[i];
	return c;
}

static void run(const void *ctx, const struct dlb_run *r)
{
	const struct pad *p = ctx;
	size_t size = dlb_dtype_bytes(p->type);
	double value = p->value_is_input ? dlb_value_real(r->in[2], p->type, 0) : p->value;

	for (int64_t i = 0, n = product(p->y, p->n_dims); i < n; i++) {
		int64_t j = from(p, i);

		if (j >= 0)
			memcpy((char *)r->out[0] + (size_t)i * size, (const char *)r->in[0] + (size_t)j * size, size);
		else
			dlb_value_set(r->out[0], p->type, i, value);
	}
}

static void grad_run(const void *ctx, const struct dlb_run *r)
{
	const struct pad *p = ctx;

	memset(r->out[0], 0, (size_t)product(p->x, p->n_dims) * dlb_dtype_bytes(p->type));
	for (int64_t i = 0, n = product(p->y, p->n_dims); i < n; i++) {
		int64_t j = from(p, i);

		if (j < 0)
			continue;
		if (p->type == DLB_F32)
			((float *)r->out[0])[j] += ((const float *)r->in[0])[i];
		else
			((double *)r->out[0])[j] += ((const double *)r->in[0])[i];
	}
}

/* The part that both have, copied by strides: what padding with zeros, and its gradient, are. */
static int zeros(struct dlb_backend *be, const struct dlb_op_io *io, const struct pad *p, bool backward, struct dlb_kernel **k,
		 struct dlb_error *err)
{
	int64_t dim[DLB_MAX_DIMS], sx[DLB_MAX_DIMS], sy[DLB_MAX_DIMS], at_x = 0, at_y = 0;
	const struct dlb_desc *x = backward ? &io->out[0] : &io->in[0], *y = backward ? &io->in[0] : &io->out[0];

	dlb_desc_strides(x, sx);
	dlb_desc_strides(y, sy);
	for (int i = 0; i < p->n_dims; i++) {
		int64_t lo = p->begin[i] < 0 ? -p->begin[i] : 0, hi = p->y[i] - p->begin[i];	/* in x: [lo, hi) */

		hi = hi < p->x[i] ? hi : p->x[i];
		dim[i] = hi > lo ? hi - lo : 0;
		at_x += dim[i] ? lo * sx[i] : 0;
		at_y += dim[i] ? (lo + p->begin[i]) * sy[i] : 0;
	}
	if (backward)
		return dlb_kernel_strided(be, y, x, p->n_dims, dim, sy, at_y, sx, at_x, true, k, err);
	return dlb_kernel_strided(be, x, y, p->n_dims, dim, sx, at_x, sy, at_y, true, k, err);
}

static int kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k, struct dlb_error *err)
{
	struct pad p;

	if (parse(io, 1, 1, &p, err))
		return -1;
	p.value_is_input = dlb_io_has(io, 2);
	if (p.value_is_input && io->value && io->value[2]) {
		p.value = dlb_value_real(io->value[2], io->in[2].dtype, 0);
		p.value_is_input = false;
	}
	if (p.mode == CONSTANT && p.value == 0 && !p.value_is_input)
		return zeros(be, io, &p, false, k, err);
	return be->ops->host(be, run, &p, sizeof p, 0, k, err);
}

static int gradient(struct dlb_builder *b, struct dlb_error *err)
{
	int in[2] = { b->dout[0], b->io.n_in > 1 ? b->in[1] : -1 };

	(void)err;
	if (!b->need[0])
		return 0;
	b->din[0] = dlb_b_op(b, "PadGrad", b->io.attr, b->io.n_attr, in, in[1] < 0 ? 1 : 2, 1, NULL, b->in[0]);
	return b->din[0] < 0 ? -1 : 0;
}

static int grad_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct pad p;

	if (parse(io, -1, 1, &p, err))
		return -1;
	io->out[0] = dlb_desc_make(p.type, p.n_dims, p.x);
	return 0;
}

static int grad_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k, struct dlb_error *err)
{
	struct pad p;

	if (parse(io, -1, 1, &p, err))
		return -1;
	if (p.mode == CONSTANT)
		return zeros(be, io, &p, true, k, err);
	if (p.type != DLB_F32 && p.type != DLB_F64)
		return DLB_NO_KERNEL;
	return be->ops->host(be, grad_run, &p, sizeof p, 0, k, err);
}

static double no_flops(const struct dlb_op_io *io)
{
	(void)io;
	return 0;
}

const struct dlb_op_class dlb_op_Pad = { .name = "Pad", .n_in = { 1, 3 }, .n_out = { 1, 1 }, .work = "move",
	.infer = infer, .flops = no_flops, .gradient = gradient, .kernel = kernel };
const struct dlb_op_class dlb_op_PadGrad = { .name = "PadGrad", .domain = "dlb", .n_in = { 1, 2 }, .n_out = { 1, 1 },
	.work = "move", .infer = grad_infer, .kernel = grad_kernel };
