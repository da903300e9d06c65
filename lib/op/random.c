/* Random tensors: RandomUniformLike and RandomNormalLike of the shape of the input, Bernoulli with the
 * input's probabilities. They are drawn anew in each step, as Dropout's masks: the key of the counter-based
 * generator is (seed, vertex, step), and the counter the sample's index in the global batch and the
 * element's index in the sample, so numbers do not depend on the sample's node or micro-batch. They have no
 * gradient.
 * Uniform numbers have 24 bits, so that the upper bound is not drawn in f32 either. */
#include "op/op_util.h"

#include <math.h>
#include <string.h>

#include "util/rng.h"

enum law { UNIFORM, NORMAL, BERNOULLI };
/* a, b: least and upper bound, or mean and deviation */
struct random {
	enum law law;
	enum dlb_dtype dtype, of;		/* of the result, of the probabilities */
	double a, b;
	uint64_t seed;
	int64_t samples, per_sample, first_sample;
};

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	if (dlb_infer_typed(io, "dtype", false, err))
		return -1;
	if (!dlb_dtype_is_float(io->out[0].dtype) && strcmp(io->cls->name, "Bernoulli"))
		return dlb_op_fail(io, err, "the result is of type %s, not a float",
				   dlb_dtype_name(io->out[0].dtype));
	return 0;
}

static double drawn(const struct random *d, const struct dlb_run *r, uint64_t stream, uint64_t counter,
		    int64_t at)
{
	const uint64_t seed = r->seed + d->seed;

	if (d->law == NORMAL)
		return d->a + d->b * dlb_philox_normal(seed, stream, counter);
	const double u = floor(dlb_philox_uniform(seed, stream, counter) * 0x1p24) * 0x1p-24;
	return d->law == UNIFORM ? d->a + (d->b - d->a) * u : u < dlb_value_real(r->in[0], d->of, at);
}

static void run(const void *ctx, const struct dlb_run *r)
{
	const struct random *d = ctx;
	const uint64_t stream = dlb_philox_stream(r->vertex, r->step);

	for (int64_t i = 0, at = 0; i < d->samples; i++) {
		const int64_t sample = r->first_sample + d->first_sample + i;
		for (int64_t e = 0; e < d->per_sample; e++, at++)
			dlb_value_set(r->out[0], d->dtype, at,
				      drawn(d, r, stream, (uint64_t)(sample * d->per_sample + e), at));
	}
}

/* The generator's seed from ONNX's, which is a float: its integer part, or its bits if no integer of 64 bits
 * holds that part. */
static uint64_t seed_of(double seed)
{
	uint64_t bits;

	memcpy(&bits, &seed, sizeof bits);
	return seed >= -0x1p63 && seed < 0x1p63 ? (uint64_t)(int64_t)seed : bits;
}

static int prepare(struct dlb_backend *be, const struct dlb_op_io *io, struct random d, struct dlb_kernel **k,
		   struct dlb_error *err)
{
	const struct dlb_desc *x = &io->in[0];

	d.dtype = io->out[0].dtype;
	d.of = x->dtype;
	d.seed = seed_of(dlb_io_real(io, "seed", 0));
	/* the first dimension may hold several rows per sample, as Dropout's */
	d.samples = x->n_dims ? x->dim[0] : 1;
	if (io->samples && d.samples % io->samples == 0)
		d.samples = io->samples;
	d.first_sample = io->first_sample;
	d.per_sample = d.samples ? dlb_desc_count(x) / d.samples : 0;
	return dlb_kernel_host(be, io,
			       &(struct dlb_host_call){ .fn = run, .n_in = 1, .n_out = 1, .ctx = &d,
							.ctx_bytes = sizeof d }, k, err);
}

static int uniform(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		   struct dlb_error *err)
{
	return prepare(be, io,
		       (struct random){ .law = UNIFORM, .a = dlb_io_real(io, "low", 0),
					.b = dlb_io_real(io, "high", 1) }, k, err);
}

static int normal(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		  struct dlb_error *err)
{
	return prepare(be, io,
		       (struct random){ .law = NORMAL, .a = dlb_io_real(io, "mean", 0),
					.b = dlb_io_real(io, "scale", 1) }, k, err);
}

static int bernoulli(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		     struct dlb_error *err)
{
	return prepare(be, io, (struct random){ .law = BERNOULLI }, k, err);
}

static double flops(const struct dlb_op_io *io)
{
	return 40.0 * (double)dlb_desc_count(&io->out[0]);
}

#define RANDOM(type, f) \
	const struct dlb_op_class dlb_op_##type = { .name = #type, .n_in = { 1, 1 }, .n_out = { 1, 1 }, \
		.layout = DLB_LAYOUT_PLAIN_ONLY, .flags = DLB_OP_RANDOM | DLB_OP_ON_CPU, .work = "elementwise", \
		.infer = infer, .flops = flops, .kernel = f };
RANDOM(RandomUniformLike, uniform)
RANDOM(RandomNormalLike, normal)
RANDOM(Bernoulli, bernoulli)
