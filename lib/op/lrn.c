/* LRN, local response normalization across channels:
 *     s = bias + alpha / size * (sum of x^2 over the channels c - floor((size-1)/2) .. c + ceil((size-1)/2))
 *     y = x s^-beta
 * LRNGrad (dy, x):  dx_i = dy_i s_i^-beta - 2 alpha beta / size x_i (sum over j whose window holds i: dy_j x_j s_j^(-beta-1))
 * A. Krizhevsky, I. Sutskever, G. Hinton, ImageNet Classification with Deep CNNs, NIPS 2012. */
#include "op/op_util.h"

#include <math.h>

struct lrn { int64_t n, channels, inner, before, after; double scale, beta, bias; };

static int parse(const struct dlb_op_io *io, const struct dlb_desc *x, struct lrn *l, struct dlb_error *err)
{
	int64_t size = dlb_io_int(io, "size", 0);

	if (x->n_dims < 2 || size < 1 || size > 1 << 20)
		return dlb_op_fail(io, err, "%d dimensions and a window of %lld are not possible", x->n_dims,
				   (long long)size);
	*l = (struct lrn){ .n = x->dim[0],
			   .channels = x->dim[1],
			   .inner = dlb_desc_range(x, 2, x->n_dims),
			   .before = (size - 1) / 2,
			   .after = size / 2,
			   .scale = dlb_io_real(io, "alpha", 1e-4) / (double)size,
			   .beta = dlb_io_real(io, "beta", 0.75),
			   .bias = dlb_io_real(io, "bias", 1) };
	return 0;
}

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct lrn l;

	if (parse(io, &io->in[0], &l, err))
		return -1;
	if (io->n_in > 1 && (dlb_same_types(io, 0, 2, err) || dlb_same_shapes(io, 0, 1, err)))
		return -1;
	return dlb_infer_same(io, err);
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* s of channel c for all pixels of a sample; pixels are the inner loop. */
#define LRN(T, POW) \
	static void sums_##T(const struct lrn *l, const T *x, int64_t c, T *s) \
	{ \
		for (int64_t p = 0; p < l->inner; p++) \
			s[p] = 0; \
		for (int64_t k = most(0, c - l->before); k <= least(l->channels - 1, c + l->after); k++) \
			for (int64_t p = 0; p < l->inner; p++) \
				s[p] += x[k * l->inner + p] * x[k * l->inner + p]; \
		for (int64_t p = 0; p < l->inner; p++) \
			s[p] = (T)l->bias + (T)l->scale * s[p]; \
	} \
	static void forward_##T(const void *ctx, const struct dlb_run *r) \
	{ \
		const struct lrn *l = ctx; \
		const int64_t sample = l->channels * l->inner; \
		T *s = r->scratch; \
		for (int64_t n = 0; n < l->n; n++) \
			for (int64_t c = 0; c < l->channels; c++) { \
				const T *x = (const T *)r->in[0] + n * sample; \
				T *y = (T *)r->out[0] + n * sample + c * l->inner; \
				sums_##T(l, x, c, s); \
				for (int64_t p = 0; p < l->inner; p++) \
					y[p] = x[c * l->inner + p] * POW(s[p], (T)-l->beta); \
			} \
	} \
	static void backward_##T(const void *ctx, const struct dlb_run *r) \
	{ \
		const struct lrn *l = ctx; \
		const int64_t sample = l->channels * l->inner; \
		T *s = r->scratch, *u = s + l->inner;	/* u: dy x s^(-beta-1) of all channels */ \
		for (int64_t n = 0; n < l->n; n++) { \
			const T *dy = (const T *)r->in[0] + n * sample, *x = (const T *)r->in[1] + n * sample; \
			T *dx = (T *)r->out[0] + n * sample; \
			for (int64_t c = 0; c < l->channels; c++) { \
				sums_##T(l, x, c, s); \
				for (int64_t p = 0; p < l->inner; p++) { \
					const int64_t i = c * l->inner + p; \
					const T power = POW(s[p], (T)-l->beta); \
					dx[i] = dy[i] * power; \
					u[i] = dy[i] * x[i] * power / s[p]; \
				} \
			} \
			for (int64_t c = 0; c < l->channels; c++) \
				for (int64_t k = most(0, c - l->after); k <= least(l->channels - 1, c + l->before); k++) \
					for (int64_t p = 0; p < l->inner; p++) \
						dx[c * l->inner + p] -= (T)(2 * l->scale * l->beta) * x[c * l->inner + p] * \
							u[k * l->inner + p]; \
		} \
	}
LRN(float, powf)
LRN(double, pow)
#undef LRN

static int kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		  struct dlb_error *err)
{
	bool backward = io->cls->domain != NULL, single = io->in[0].dtype == DLB_F32;
	struct lrn l;
	size_t scratch;

	if (parse(io, &io->in[0], &l, err))
		return -1;
	if (!single && io->in[0].dtype != DLB_F64)
		return DLB_NO_KERNEL;
	scratch = (size_t)(l.inner * (backward ? l.channels + 1 : 1)) * sizeof(double) + 64;
	return be->ops->host(be,
			     backward ? (single ? backward_float : backward_double) :
			     single   ? forward_float :
					forward_double,
			     &l, sizeof l, scratch, k, err);
}

static int gradient(struct dlb_builder *b, struct dlb_error *err)
{
	(void)err;
	return dlb_b_gradient(b, DLB_SPEC_ATTR("LRNGrad", b->io.attr, b->io.n_attr, b->dout[0], b->in[0]));
}

static double flops(const struct dlb_op_io *io)
{
	return (2.0 * (double)dlb_io_int(io, "size", 1) + 12) * (double)dlb_desc_count(&io->in[0]);
}

const struct dlb_op_class dlb_op_LRN = { .name = "LRN", .n_in = { 1, 1 }, .n_out = { 1, 1 },
	.flags = DLB_OP_ON_CPU, .work = "norm", .infer = infer, .flops = flops, .gradient = gradient, .kernel = kernel };
const struct dlb_op_class dlb_op_LRNGrad = { .name = "LRNGrad",
					     .domain = "dlb",
					     .n_in = { 2, 2 },
					     .n_out = { 1, 1 },
					     .flags = DLB_OP_ON_CPU,
					     .work = "norm",
					     .infer = infer,
					     .flops = flops,
					     .kernel = kernel };
