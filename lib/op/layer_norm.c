/* LayerNormalization and InstanceNormalization: both take the mean and variance of rows,
 *     y = (x - mean) / sqrt(var + epsilon) * scale + bias,
 * a row being the dimensions from `axis` on (scale and bias along the row), or one channel of one sample (one scale
 * and bias a channel). Rows do not mix samples. Gradients (dy, x, scale, mean, invstd) -> dx, dscale, dbias; with
 * x^ = (x - mean) invstd and g = dy scale:   dx = invstd (g - mean(g) - x^ mean(g x^)).
 * J. L. Ba, J. R. Kiros, G. E. Hinton, Layer Normalization, 2016; D. Ulyanov et al., Instance Normalization, 2016. */
#include "op/kit.h"

#include <math.h>
#include <string.h>

struct rows {
	int64_t n, width, channels;		/* channels > 0: scale and bias by row % channels */
	double epsilon;
	bool has_bias;
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

	if (rows_of(io, &io->in[0], 1, &r, err) || dlb_same_types(io, 0, 3, err))
		return -1;
	if (dlb_io_has(io, 2) && dlb_desc_count(&io->in[2]) != dlb_desc_count(&io->in[1]))
		return dlb_op_fail(io, err, "scale and bias differ in size");
	io->out[0] = io->in[0];
	stat = dlb_desc_make(io->in[0].dtype, io->in[0].n_dims, io->in[0].dim);
	for (int i = axis < 0 ? axis + stat.n_dims : axis; i < stat.n_dims; i++)
		stat.dim[i] = 1;
	for (int i = 1; i < io->n_out; i++)
		io->out[i] = stat;
	return 0;
}

/* Sums run in double, in order: the same bits everywhere, and f32 rows of any width stay accurate. */
#define ROWS(T) \
	static void forward_##T(const void *ctx, const struct dlb_run *run) \
	{ \
		const struct rows *r = ctx; \
		const T *scale = run->in[1], *bias = r->has_bias ? run->in[2] : NULL; \
		T *saved_mean = run->out[1], *saved_inv = run->out[2]; \
		for (int64_t i = 0; i < r->n; i++) { \
			const T *x = (const T *)run->in[0] + i * r->width; \
			T *y = (T *)run->out[0] + i * r->width; \
			double sum = 0, square = 0; \
			int64_t c = r->channels ? i % r->channels : 0, step = r->channels ? 0 : 1; \
			for (int64_t j = 0; j < r->width; j++) \
				sum += x[j]; \
			const double mean = sum / (double)r->width; \
			for (int64_t j = 0; j < r->width; j++) \
				square += (x[j] - mean) * (x[j] - mean); \
			const double inv = 1 / sqrt(square / (double)r->width + r->epsilon); \
			for (int64_t j = 0; j < r->width; j++) { \
				T v = ((T)(x[j] - (T)mean)) * (T)inv * scale[c + j * step]; \
				y[j] = bias ? v + bias[c + j * step] : v; \
			} \
			if (saved_mean) \
				saved_mean[i] = (T)mean; \
			if (saved_inv) \
				saved_inv[i] = (T)inv; \
		} \
	} \
	static void backward_##T(const void *ctx, const struct dlb_run *run) \
	{ \
		const struct rows *r = ctx; \
		const T *scale = run->in[2], *mean = run->in[3], *inv = run->in[4]; \
		const int64_t entries = r->channels ? r->channels : r->width, step = r->channels ? 0 : 1; \
		double *sums = run->scratch;		/* dscale, then dbias */ \
		memset(sums, 0, 2 * (size_t)entries * sizeof *sums); \
		for (int64_t i = 0; i < r->n; i++) { \
			const T *dy = (const T *)run->in[0] + i * r->width, *x = (const T *)run->in[1] + i * r->width; \
			T *dx = run->out[0] ? (T *)run->out[0] + i * r->width : NULL; \
			double g_sum = 0, gx_sum = 0; \
			int64_t c = r->channels ? i % r->channels : 0; \
			for (int64_t j = 0; j < r->width; j++) { \
				const double hat = (double)(x[j] - mean[i]) * inv[i], g = (double)dy[j] * scale[c + j * step]; \
				g_sum += g; \
				gx_sum += g * hat; \
				sums[c + j * step] += dy[j] * hat; \
				sums[entries + c + j * step] += dy[j]; \
			} \
			g_sum /= (double)r->width; \
			gx_sum /= (double)r->width; \
			for (int64_t j = 0; j < r->width && dx; j++) { \
				const double hat = (double)(x[j] - mean[i]) * inv[i]; \
				dx[j] = (T)(inv[i] * ((double)dy[j] * scale[c + j * step] - g_sum - hat * gx_sum)); \
			} \
		} \
		for (int64_t j = 0; j < entries; j++) { \
			if (run->out[1]) \
				((T *)run->out[1])[j] = (T)sums[j]; \
			if (run->out[2]) \
				((T *)run->out[2])[j] = (T)sums[entries + j]; \
		} \
	}
ROWS(float)
ROWS(double)
#undef ROWS

/* The host function sees three outputs, whatever the vertex has. */
static int prepare(struct dlb_backend *be, const struct dlb_op_io *io, dlb_host_fn fn, const struct rows *r, size_t scratch,
		   int n_in, struct dlb_kernel **k, struct dlb_error *err)
{
	struct dlb_chain *c = dlb_chain_new(be, err);
	struct dlb_kernel *sub = NULL;
	int in[5], out[3], rc = be->ops->host(be, fn, r, sizeof *r, scratch, &sub, err);

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

	if (rows_of(io, &io->in[0], 1, &r, err))
		return -1;
	if (io->in[0].dtype != DLB_F32 && io->in[0].dtype != DLB_F64)
		return DLB_NO_KERNEL;
	r.has_bias = dlb_io_has(io, 2);
	return prepare(be, io, io->in[0].dtype == DLB_F32 ? forward_float : forward_double, &r, 0, 3, k, err);
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

	if (dlb_same_shapes(io, 0, 1, err) || dlb_same_types(io, 0, 5, err))
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

	if (rows_of(io, &io->in[1], 2, &r, err))
		return -1;
	if (io->in[0].dtype != DLB_F32 && io->in[0].dtype != DLB_F64)
		return DLB_NO_KERNEL;
	return prepare(be, io, io->in[0].dtype == DLB_F32 ? backward_float : backward_double, &r,
		       2 * (size_t)dlb_desc_count(&io->in[2]) * sizeof(double) + 64, 5, k, err);
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
	.work = "norm", .infer = infer, .flops = flops, .gradient = gradient, .kernel = kernel };
const struct dlb_op_class dlb_op_InstanceNormalization = { .name = "InstanceNormalization", .n_in = { 3, 3 }, .n_out = { 1, 3 },
	.work = "norm", .infer = infer, .flops = flops, .gradient = gradient, .kernel = kernel };
#define GRAD(n) \
	const struct dlb_op_class dlb_op_##n = { .name = #n, .domain = "dlb", .n_in = { 5, 5 }, .n_out = { 1, 3 }, \
		.work = "norm", .infer = grad_infer, .flops = grad_flops, .kernel = grad_kernel };
GRAD(LayerNormalizationGrad)
GRAD(InstanceNormalizationGrad)
