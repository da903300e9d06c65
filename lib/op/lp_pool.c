/* LpPool and GlobalLpPool: y = (sum |x|^p)^(1/p) over each window; padding adds 0.
 * LpPoolGrad (dy, x, y) -> dx, dx = dy sign(x) (|x| / y)^(p - 1), summed over the windows; 0 where y is 0. */
#include "op/op_util.h"

#include <math.h>
#include <string.h>

struct lp {
	enum dlb_dtype type;
	double p;
	struct dlb_kernel_window w;
	int64_t planes, in[3];
	struct dlb_desc y;
};
/* The elements of a window: along each dimension `n` elements from `lo` on, `dilation` apart. */
struct window_span { int64_t lo[3], n[3]; };

static int parse(const struct dlb_op_io *io, const struct dlb_desc *x, struct lp *l, struct dlb_error *err)
{
	const bool global = !strncmp(io->cls->name, "Global", 6);
	const int n = x->n_dims - 2;

	if (n < 1)
		return dlb_op_fail(io, err, "input has %d dimensions, a pool needs at least 3", x->n_dims);
	if (!dlb_dtype_is_float(x->dtype))
		return dlb_op_fail(io, err, "input is of type %s, should be of floats",
				   dlb_dtype_name(x->dtype));
	*l = (struct lp){ .type = x->dtype,
			  .p = dlb_io_real(io, "p", 2),
			  .planes = x->dim[0] * x->dim[1],
			  .in = { 1, 1, 1 } };
	if (!(l->p >= 1 && l->p < 1e6))
		return dlb_op_fail(io, err, "attribute 'p': %g is out of range", l->p);
	if (dlb_window_read(io, x->dim + 2, n, global ? x->dim + 2 : NULL, &l->w, err))
		return -1;
	l->y = dlb_desc_make(x->dtype, x->n_dims, x->dim);
	for (int i = 0; i < n; i++) {
		l->in[i] = x->dim[2 + i];
		l->y.dim[2 + i] = l->w.out[i];
	}
	if (dlb_checked_count(l->y.dim, l->y.n_dims) < 0)
		return dlb_op_fail(io, err, "the output would be too large");
	return 0;
}

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct lp l;

	if (parse(io, &io->in[0], &l, err))
		return -1;
	io->out[0] = l.y;
	return 0;
}

/* The window of output o of a plane, without elements outside the input. */
static struct window_span span_of(const struct lp *l, int64_t o)
{
	struct window_span s;

	for (int d = 2; d >= 0; d--) {
		const int64_t dil = l->w.dilation[d],
			      start = o % l->w.out[d] * l->w.stride[d] - l->w.pad_begin[d];
		const int64_t skip = start < 0 ? (-start + dil - 1) / dil : 0,
			      room = l->in[d] - (start + skip * dil);
		const int64_t n = room > 0 ? (room + dil - 1) / dil : 0, left = l->w.kernel[d] - skip;

		s.lo[d] = start + skip * dil;
		s.n[d] = n < left ? n : left > 0 ? left : 0;
		o /= l->w.out[d];
	}
	return s;
}

static int64_t place(const struct lp *l, const struct window_span *s, int64_t i, int64_t j, int64_t k)
{
	return ((s->lo[0] + i * l->w.dilation[0]) * l->in[1] + s->lo[1] + j * l->w.dilation[1]) * l->in[2] +
	       s->lo[2] + k * l->w.dilation[2];
}

#define EACH(s, i, j, k) \
	for (int64_t i = 0; i < (s).n[0]; i++) \
		for (int64_t j = 0; j < (s).n[1]; j++) \
			for (int64_t k = 0; k < (s).n[2]; k++)

static double raised(double x, double p)
{
	return p == 2 ? x * x : p == 1 ? x : pow(x, p);
}

static void run(const void *ctx, const struct dlb_run *r)
{
	const struct lp *l = ctx;
	const int64_t plane = l->in[0] * l->in[1] * l->in[2], outs = l->w.out[0] * l->w.out[1] * l->w.out[2];

	for (int64_t at = 0; at < l->planes * outs; at++) {
		const struct window_span s = span_of(l, at % outs);
		double sum = 0;

		EACH(s, i, j, k)
		sum += raised(fabs(dlb_real_get(r->in[0], l->type,
						at / outs * plane + place(l, &s, i, j, k))),
			      l->p);
		dlb_real_set(r->out[0], l->type, at,
			     l->p == 2 ? sqrt(sum) :
			     l->p == 1 ? sum :
					 pow(sum, 1 / l->p));
	}
}

static void grad_run(const void *ctx, const struct dlb_run *r)		/* in {dy, x, y} */
{
	const struct lp *l = ctx;
	const int64_t plane = l->in[0] * l->in[1] * l->in[2], outs = l->w.out[0] * l->w.out[1] * l->w.out[2];

	memset(r->out[0], 0, (size_t)(l->planes * plane) * dlb_dtype_bytes(l->type));
	for (int64_t at = 0; at < l->planes * outs; at++) {
		const struct window_span s = span_of(l, at % outs);
		const double dy = dlb_real_get(r->in[0], l->type, at),
			     y = dlb_real_get(r->in[2], l->type, at);

		if (y == 0)
			continue;
		EACH(s, i, j, k) {
			const int64_t to = at / outs * plane + place(l, &s, i, j, k);
			const double x = dlb_real_get(r->in[1], l->type, to),
				     share = raised(fabs(x) / y, l->p - 1);

			dlb_real_set(r->out[0], l->type, to,
				     dlb_real_get(r->out[0], l->type, to) + (x > 0 ? dy :
									     x < 0 ? -dy :
										     0) *
										    share);
		}
	}
}

static int kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		  struct dlb_error *err)
{
	struct lp l;

	if (parse(io, &io->in[0], &l, err))
		return -1;
	return be->ops->host(be, run, &l, sizeof l, 0, k, err);
}

/* The forward's attributes, with the window of a global pool made explicit. */
static int gradient(struct dlb_builder *b, struct dlb_error *err)
{
	static const char *const keep[] = { "strides",  "dilations", "pads",
					    "auto_pad", "ceil_mode", "kernel_shape" };
	const struct dlb_desc *x = &b->io.in[0];
	struct dlb_attr a[8];
	int n = 0;

	(void)err;
	if (!b->need[0])
		return 0;
	a[n++] = dlb_make_real("p", dlb_io_real(&b->io, "p", 2));
	if (!strcmp(b->io.cls->name, "GlobalLpPool"))
		a[n++] = dlb_make_ints("kernel_shape", x->dim + 2, x->n_dims - 2);
	else
		n += dlb_keep_attrs(&b->io, keep, DLB_LEN(keep), a + n);
	return dlb_b_gradient(b, DLB_SPEC_ATTR("LpPoolGrad", a, n, b->dout[0], b->in[0], b->out[0]));
}

static int grad_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct lp l;

	if (dlb_same_types(io, 0, 3, err) || parse(io, &io->in[1], &l, err) || dlb_same_shapes(io, 0, 2, err))
		return -1;
	if (!dlb_desc_same_shape(&l.y, &io->in[0]))
		return dlb_op_fail(io, err, "the gradient's shape is not that of the pool");
	io->out[0] = io->in[1];
	return 0;
}

static int grad_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	struct lp l;

	if (parse(io, &io->in[1], &l, err))
		return -1;
	return be->ops->host(be, grad_run, &l, sizeof l, 0, k, err);
}

static double flops(const struct dlb_op_io *io)
{
	const struct dlb_desc *x = io->cls->domain ? &io->in[1] : &io->in[0];
	struct lp l;

	if (parse(io, x, &l, NULL))
		return 0;
	return 2.0 * (double)dlb_desc_count(&l.y) * (double)l.w.kernel[0] * (double)l.w.kernel[1] *
	       (double)l.w.kernel[2];
}

#define POOL(n) \
	const struct dlb_op_class dlb_op_##n = { .name = #n, .n_in = { 1, 1 }, .n_out = { 1, 1 }, .flags = DLB_OP_ON_CPU, \
		.work = "pool", .infer = infer, .flops = flops, .gradient = gradient, .kernel = kernel };
POOL(LpPool)
POOL(GlobalLpPool)
const struct dlb_op_class dlb_op_LpPoolGrad = { .name = "LpPoolGrad",
						.domain = "dlb",
						.n_in = { 3, 3 },
						.n_out = { 1, 1 },
						.flags = DLB_OP_ON_CPU,
						.work = "pool",
						.infer = grad_infer,
						.flops = flops,
						.kernel = grad_kernel };
