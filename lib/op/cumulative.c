/* CumSum and CumProd: running sums and products along an axis, including the current element or not
 * (exclusive), from the start or from the end (reverse). The gradient of a running sum is the running sum in
 * the other direction. The gradient of a running product (CumProdGrad: dy, x, axis) does not divide, so
 * zeros need no special case:
 *     dx[k] = p[k] s[k],  p[k] = x[0] .. x[k-1],  s[k] = dy[k] + x[k+1] s[k+1]    (exclusive: s[k] = dy[k+1] + x[k+1] s[k+1]) */
#include "op/op_util.h"

struct running { enum dlb_dtype type; int64_t outer, n, inner; bool exclusive, reverse; };

/* `input` holds the axis. */
static int parse(const struct dlb_op_io *io, int input, struct running *s, struct dlb_error *err)
{
	const struct dlb_desc *x = &io->in[0];
	int64_t axis = 0;
	int a;

	if (dlb_io_ints(io, input, "axis", &axis, 1, err) < 0)
		return -1;
	a = dlb_axis(io, axis, x->n_dims, err);
	if (a < 0)
		return -1;
	*s = (struct running){ .type = x->dtype,
			       .outer = dlb_desc_range(x, 0, a),
			       .n = x->dim[a],
			       .inner = dlb_desc_range(x, a + 1, x->n_dims),
			       .exclusive = dlb_io_int(io, "exclusive", 0) != 0,
			       .reverse = dlb_io_int(io, "reverse", 0) != 0 };
	return 0;
}

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct running s;

	if (parse(io, 1, &s, err))
		return -1;
	if (s.type == DLB_BOOL)
		return dlb_op_fail(io, err, "the input is of type bool, not a number");
	return dlb_infer_same(io, err);
}

/* The index of element k, counted in the operator's direction, of line l of outer * inner lines. */
static int64_t place(const struct running *s, int64_t l, int64_t k)
{
	return (l / s->inner * s->n + (s->reverse ? s->n - 1 - k : k)) * s->inner + l % s->inner;
}

static void run_reals(const struct running *s, const struct dlb_run *r, bool product)
{
	for (int64_t l = 0; l < s->outer * s->inner; l++) {
		double sum = product;

		for (int64_t k = 0; k < s->n; k++) {
			const int64_t at = place(s, l, k);
			const double v = dlb_value_real(r->in[0], s->type, at),
				     next = product ? sum * v : sum + v;

			dlb_value_set(r->out[0], s->type, at, s->exclusive ? sum : next);
			sum = next;
		}
	}
}

static void run_ints(const struct running *s, const struct dlb_run *r, bool product)
{
	for (int64_t l = 0; l < s->outer * s->inner; l++) {
		uint64_t sum = product;

		for (int64_t k = 0; k < s->n; k++) {
			const int64_t at = place(s, l, k);
			const uint64_t v = (uint64_t)dlb_value_int(r->in[0], s->type, at),
				       next = product ? sum * v : sum + v;

			dlb_value_set_int(r->out[0], s->type, at, (int64_t)(s->exclusive ? sum : next));
			sum = next;
		}
	}
}

static void run_sum(const void *ctx, const struct dlb_run *r)
{
	const struct running *s = ctx;

	(dlb_dtype_is_float(s->type) ? run_reals : run_ints)(s, r, false);
}

static void run_product(const void *ctx, const struct dlb_run *r)
{
	const struct running *s = ctx;

	(dlb_dtype_is_float(s->type) ? run_reals : run_ints)(s, r, true);
}

static int host(struct dlb_backend *be, const struct dlb_op_io *io, int axis, dlb_host_fn run,
		struct dlb_kernel **k, struct dlb_error *err)
{
	struct running s;

	if (parse(io, axis, &s, err))
		return -1;
	return be->ops->host(be, run, &s, sizeof s, 0, k, err);
}

static int sum_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		      struct dlb_error *err)
{
	return host(be, io, 1, run_sum, k, err);
}

static int product_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			  struct dlb_error *err)
{
	return host(be, io, 1, run_product, k, err);
}

static double flops(const struct dlb_op_io *io)
{
	return (double)dlb_desc_count(&io->in[0]);
}

static int sum_gradient(struct dlb_builder *b, struct dlb_error *err)
{
	struct dlb_attr a[2] = { dlb_make_int("exclusive", dlb_io_int(&b->io, "exclusive", 0)),
				 dlb_make_int("reverse", !dlb_io_int(&b->io, "reverse", 0)) };

	(void)err;
	if (!b->need[0])
		return 0;
	b->din[0] = dlb_b_op(b, DLB_SPEC_ATTR("CumSum", a, 2, b->dout[0], b->in[1]), NULL, b->in[0]);
	return b->din[0] < 0 ? -1 : 0;
}

static int product_gradient(struct dlb_builder *b, struct dlb_error *err)
{
	(void)err;
	if (!b->need[0])
		return 0;
	b->din[0] = dlb_b_op(b, DLB_SPEC_ATTR("CumProdGrad", b->io.attr, b->io.n_attr, b->dout[0], b->in[0],
					      b->in[1]), NULL, b->in[0]);
	return b->din[0] < 0 ? -1 : 0;
}

static int grad_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct running s;

	if (parse(io, 2, &s, err) || dlb_same_types(io, 0, 2, err) || dlb_same_shapes(io, 0, 1, err))
		return -1;
	return dlb_infer_same(io, err);
}

static void run_grad(const void *ctx, const struct dlb_run *r)
{
	const struct running *s = ctx;

	for (int64_t l = 0; l < s->outer * s->inner; l++) {
		double sum = 0, before = 1;

		for (int64_t k = s->n - 1; k >= 0; k--) {		/* s[k], then multiplied by p[k] */
			const double x = k + 1 < s->n ?
						 dlb_value_real(r->in[1], s->type, place(s, l, k + 1)) :
						 0;
			const int64_t from = s->exclusive ? k + 1 : k;

			sum = (from < s->n ? dlb_value_real(r->in[0], s->type, place(s, l, from)) : 0) +
			      x * sum;
			((double *)r->scratch)[k] = sum;
		}
		for (int64_t k = 0; k < s->n; k++) {
			const int64_t at = place(s, l, k);

			dlb_value_set(r->out[0], s->type, at, before * ((double *)r->scratch)[k]);
			before *= dlb_value_real(r->in[1], s->type, at);
		}
	}
}

static int grad_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	struct running s;

	if (parse(io, 2, &s, err))
		return -1;
	return be->ops->host(be, run_grad, &s, sizeof s, (size_t)s.n * sizeof(double) + 64, k, err);
}

const struct dlb_op_class dlb_op_CumSum = { .name = "CumSum",
					    .n_in = { 2, 2 },
					    .n_out = { 1, 1 },
					    .work = "reduce",
					    .infer = infer,
					    .flops = flops,
					    .gradient = sum_gradient,
					    .kernel = sum_kernel };
const struct dlb_op_class dlb_op_CumProd = { .name = "CumProd",
					     .n_in = { 2, 2 },
					     .n_out = { 1, 1 },
					     .work = "reduce",
					     .infer = infer,
					     .flops = flops,
					     .gradient = product_gradient,
					     .kernel = product_kernel };
const struct dlb_op_class dlb_op_CumProdGrad = { .name = "CumProdGrad",
						 .domain = "dlb",
						 .n_in = { 3, 3 },
						 .n_out = { 1, 1 },
						 .work = "reduce",
						 .infer = grad_infer,
						 .flops = flops,
						 .kernel = grad_kernel };
