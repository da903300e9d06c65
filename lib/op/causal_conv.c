/* CausalConvWithState: convolves each channel with its own kernel over earlier elements,
 *     z_t = bias + sum over j of w_j p_(t + j),  p = past_state (k - 1 elements, else zeros) followed by x,
 * y = z, or z sigmoid(z) (activation silu, swish); present_state is the last k - 1 elements of p.
 * CausalConvWithStateGrad (dy, x, w, bias, past_state, dpresent) -> dx, dw, dbias, dpast recomputes z.
 * A. Gu, T. Dao, Mamba, 2023; S. Yang et al., Gated Delta Networks, 2024. */
#include "op/op_util.h"

#include <math.h>
#include <string.h>

enum { X, W, BIAS, PAST };				/* inputs */
enum { GRAD_DY, GRAD_X, GRAD_W, GRAD_BIAS, GRAD_PAST, GRAD_PRESENT };	/* inputs of the gradient */
struct causal {
	enum dlb_dtype type;
	int64_t batch, channels, length, taps;
	bool silu;
};

static struct dlb_desc state_of(const struct causal *c)
{
	return dlb_desc_make(c->type, 3, (int64_t[]){ c->batch, c->channels, c->taps - 1 });
}

/* Reads the operands from input `x` on, in the order of CausalConvWithState. */
static int parse(const struct dlb_op_io *io, int x, struct causal *c, struct dlb_error *err)
{
	const struct dlb_desc *in = &io->in[x], *w = &io->in[x + W];
	const char *act = dlb_io_str(io, "activation", "none");
	char a[128], b[128];

	if (in->n_dims != 3 || w->n_dims != 3 || w->dim[0] != in->dim[1] || w->dim[1] != 1 || w->dim[2] < 1)
		return dlb_op_fail(
			io, err,
			"input is %s and weight %s; [batch,channels,length] and [channels,1,k] are needed",
			dlb_desc_str(in, a, sizeof a), dlb_desc_str(w, b, sizeof b));
	*c = (struct causal){ .type = in->dtype,
			      .batch = in->dim[0],
			      .channels = in->dim[1],
			      .length = in->dim[2],
			      .taps = w->dim[2],
			      .silu = !strcmp(act, "silu") || !strcmp(act, "swish") };
	if (!c->silu && strcmp(act, "none") != 0)
		return dlb_op_fail(io, err, "activation '%s'; none, silu and swish are possible", act);
	if (dlb_checked_count((int64_t[]){ c->batch, c->channels, c->taps }, 3) < 0 ||
	    c->length > INT64_MAX / 64 - c->taps)
		return dlb_op_fail(io, err, "a kernel of %lld is too long", (long long)c->taps);
	if (dlb_io_has(io, x + BIAS) && dlb_has_count(io, x + BIAS, c->channels, err))
		return -1;
	const struct dlb_desc state = state_of(c);

	if (dlb_io_has(io, x + PAST) && !dlb_desc_same_shape(&io->in[x + PAST], &state))
		return dlb_op_fail(io, err, "input %d is %s; %s is needed", x + PAST,
				   dlb_desc_str(&io->in[x + PAST], a, sizeof a),
				   dlb_desc_str(&state, b, sizeof b));
	return 0;
}

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct causal c;

	if (!dlb_dtype_is_float(io->in[X].dtype))
		return dlb_op_fail(io, err, "input is of type %s; a float is needed",
				   dlb_dtype_name(io->in[X].dtype));
	if (dlb_same_types(io, 0, 4, err) || parse(io, X, &c, err))
		return -1;
	io->out[0] = io->in[X];
	for (int i = 1; i < io->n_out; i++)
		io->out[i] = state_of(&c);
	return 0;
}

static int grad_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct causal c;

	if (dlb_same_types(io, 0, 6, err) || parse(io, GRAD_X, &c, err) ||
	    dlb_same_shapes(io, GRAD_DY, GRAD_X, err))
		return -1;
	if (dlb_io_has(io, GRAD_PRESENT) &&
	    dlb_has_count(io, GRAD_PRESENT, c.batch * c.channels * (c.taps - 1), err))
		return -1;
	const struct dlb_desc out[] = { io->in[GRAD_X], io->in[GRAD_W], dlb_desc_1d(c.type, c.channels),
					state_of(&c) };

	for (int i = 0; i < io->n_out; i++)
		io->out[i] = out[i];
	return 0;
}

/* Reads elements [at, at + n) of a tensor as T, converting other types one by one. */
#define CAUSAL(T, IS, EXP) \
	static void read_##T(T *to, const void *from, enum dlb_dtype t, int64_t at, int64_t n) \
	{ \
		if (t == IS) \
			memcpy(to, (const T *)from + at, (size_t)n * sizeof *to); \
		else \
			for (int64_t i = 0; i < n; i++) \
				to[i] = (T)dlb_value_real(from, t, at + i); \
	} \
	static void write_##T(void *to, const T *from, enum dlb_dtype t, int64_t at, int64_t n) \
	{ \
		if (t == IS) \
			memcpy((T *)to + at, from, (size_t)n * sizeof *from); \
		else \
			for (int64_t i = 0; i < n; i++) \
				dlb_value_set(to, t, at + i, from[i]); \
	} \
	/* The padded input of channel `row`: the past, then x. */ \
	static void padded_##T(const struct causal *c, int64_t row, const void *x, const void *past, T *p) \
	{ \
		const int64_t before = c->taps - 1; \
		if (past) \
			read_##T(p, past, c->type, row * before, before); \
		else \
			memset(p, 0, (size_t)before * sizeof *p); \
		read_##T(p + before, x, c->type, row * c->length, c->length); \
	} \
	static void convolve_##T(const struct causal *c, int64_t channel, const T *p, const void *w, const void *bias, T *z) \
	{ \
		T v = 0; \
		if (bias) \
			read_##T(&v, bias, c->type, channel, 1); \
		for (int64_t t = 0; t < c->length; t++) \
			z[t] = v; \
		for (int64_t j = 0; j < c->taps; j++) { \
			read_##T(&v, w, c->type, channel * c->taps + j, 1); \
			for (int64_t t = 0; t < c->length; t++) \
				z[t] += v * p[t + j]; \
		} \
	} \
	static void forward_##T(const void *ctx, const struct dlb_run *r) \
	{ \
		const struct causal *c = ctx; \
		const int64_t before = c->taps - 1; \
		T *p = r->scratch, *z = p + before + c->length; \
		for (int64_t row = 0; row < c->batch * c->channels; row++) { \
			padded_##T(c, row, r->in[X], r->in[PAST], p); \
			convolve_##T(c, row % c->channels, p, r->in[W], r->in[BIAS], z); \
			for (int64_t t = 0; t < c->length && c->silu; t++) \
				z[t] = z[t] / (1 + EXP(-z[t])); \
			write_##T(r->out[0], z, c->type, row * c->length, c->length); \
			if (r->out[1]) \
				write_##T(r->out[1], p + c->length, c->type, row * before, before); \
		} \
	} \
	/* Replaces dy by dz. */ \
	static void unsilu_##T(int64_t n, const T *z, T *dy) \
	{ \
		for (int64_t t = 0; t < n; t++) { \
			const T s = 1 / (1 + EXP(-z[t])); \
			dy[t] *= s * (1 + z[t] * (1 - s)); \
		} \
	} \
	/* One channel of a sample: adds to dp, and adds the channel's terms to its sums (taps, bias). */ \
	static void channel_##T(const struct causal *c, int64_t channel, const void *w, const T *p, const T *dz, T *dp, double *sum) \
	{ \
		for (int64_t j = 0; j < c->taps; j++) { \
			double s = 0; \
			T v; \
			read_##T(&v, w, c->type, channel * c->taps + j, 1); \
			for (int64_t t = 0; t < c->length; t++) { \
				s += (double)dz[t] * p[t + j]; \
				dp[t + j] += v * dz[t]; \
			} \
			sum[channel * (c->taps + 1) + j] += s; \
		} \
		for (int64_t t = 0; t < c->length; t++) \
			sum[channel * (c->taps + 1) + c->taps] += dz[t]; \
	} \
	static void backward_##T(const void *ctx, const struct dlb_run *r) \
	{ \
		const struct causal *c = ctx; \
		const int64_t before = c->taps - 1, n = before + c->length, sums = c->channels * (c->taps + 1); \
		double *sum = r->scratch; \
		T *p = (T *)(sum + sums), *dp = p + n, *z = dp + n, *dz = z + c->length; \
		memset(sum, 0, (size_t)sums * sizeof *sum); \
		for (int64_t row = 0; row < c->batch * c->channels; row++) { \
			padded_##T(c, row, r->in[GRAD_X], r->in[GRAD_PAST], p); \
			read_##T(dz, r->in[GRAD_DY], c->type, row * c->length, c->length); \
			if (c->silu) { \
				convolve_##T(c, row % c->channels, p, r->in[GRAD_W], r->in[GRAD_BIAS], z); \
				unsilu_##T(c->length, z, dz); \
			} \
			memset(dp, 0, (size_t)n * sizeof *dp); \
			if (r->in[GRAD_PRESENT]) \
				read_##T(dp + c->length, r->in[GRAD_PRESENT], c->type, row * before, before); \
			channel_##T(c, row % c->channels, r->in[GRAD_W], p, dz, dp, sum); \
			if (r->out[0]) \
				write_##T(r->out[0], dp + before, c->type, row * c->length, c->length); \
			if (r->out[3]) \
				write_##T(r->out[3], dp, c->type, row * before, before); \
		} \
		for (int64_t i = 0; i < c->channels; i++) { \
			for (int64_t j = 0; j < c->taps && r->out[1]; j++) \
				dlb_value_set(r->out[1], c->type, i * c->taps + j, sum[i * (c->taps + 1) + j]); \
			if (r->out[2]) \
				dlb_value_set(r->out[2], c->type, i, sum[i * (c->taps + 1) + c->taps]); \
		} \
	}
CAUSAL(float, DLB_F32, expf)
CAUSAL(double, DLB_F64, exp)
#undef CAUSAL

static int kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		  struct dlb_error *err)
{
	struct causal c;

	if (parse(io, X, &c, err))
		return -1;
	const struct dlb_host_call h = {
		.fn = c.type == DLB_F64 ? forward_double : forward_float,
		.n_in = 4,
		.n_out = 2,
		.ctx = &c,
		.ctx_bytes = sizeof c,
		.scratch_bytes = (size_t)(2 * c.length + c.taps) * sizeof(double)
	};
	return dlb_kernel_host(be, io, &h, k, err);
}

static int grad_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	struct causal c;

	if (parse(io, GRAD_X, &c, err))
		return -1;
	const struct dlb_host_call h = {
		.fn = c.type == DLB_F64 ? backward_double : backward_float,
		.n_in = 6,
		.n_out = 4,
		.ctx = &c,
		.ctx_bytes = sizeof c,
		.scratch_bytes = (size_t)(4 * c.length + 2 * c.taps + c.channels * (c.taps + 1)) *
				 sizeof(double)
	};
	return dlb_kernel_host(be, io, &h, k, err);
}

static int gradient(struct dlb_builder *b, struct dlb_error *err)
{
	static const char *const keep[] = { "activation" };
	struct dlb_attr a[1];
	const int n = dlb_keep_attrs(&b->io, keep, 1, a);
	/* y's gradient is zero if only present_state has one */
	const int dy = dlb_b_dout_or_zeros(b, 0);
	const int in[] = { dy, b->in[X], b->in[W], dlb_io_has(&b->io, BIAS) ? b->in[BIAS] : -1,
			   dlb_io_has(&b->io, PAST) ? b->in[PAST] : -1, b->io.n_out > 1 ? b->dout[1] : -1 };
	int out[4] = { -1, -1, -1, -1 };

	(void)err;
	dlb_b_op(b, &(struct dlb_op_spec){ .type = "CausalConvWithStateGrad", .in = in, .n_in = DLB_LEN(in),
					   .n_out = 4, .attr = a, .n_attr = n }, out, b->in[X]);
	if (out[0] < 0)
		return -1;
	for (int i = 0; i < b->io.n_in; i++)
		if (b->in[i] >= 0 && b->need[i])
			b->din[i] = out[i];
	return 0;
}

static double flops(const struct dlb_op_io *io)
{
	return (2.0 * (double)io->in[W].dim[2] + 5) * (double)dlb_desc_count(&io->in[X]);
}

static double grad_flops(const struct dlb_op_io *io)
{
	return (6.0 * (double)io->in[GRAD_W].dim[2] + 10) * (double)dlb_desc_count(&io->in[GRAD_X]);
}

const struct dlb_op_class dlb_op_CausalConvWithState = { .name = "CausalConvWithState",
							 .n_in = { 2, 4 },
							 .n_out = { 1, 2 },
							 .flags = DLB_OP_ON_CPU,
							 .work = "elementwise",
							 .infer = infer,
							 .flops = flops,
							 .gradient = gradient,
							 .kernel = kernel };
const struct dlb_op_class dlb_op_CausalConvWithStateGrad = { .name = "CausalConvWithStateGrad",
							     .domain = "dlb",
							     .n_in = { 3, 6 },
							     .n_out = { 1, 4 },
							     .flags = DLB_OP_ON_CPU,
							     .work = "elementwise",
							     .infer = grad_infer,
							     .flops = grad_flops,
							     .kernel = grad_kernel };
