/* Random tensors: the law of their numbers, and that a sample's numbers depend on seed, vertex, step and the
 * sample alone. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "op/op_util.h"
#include "tensor/backend.h"
#include "check.h"
#include "run_graph.h"

enum { SAMPLES = 6, EACH = 5000, ALL = SAMPLES * EACH };

static struct dlb_backend be;

struct draw { int kind; const struct dlb_attr *attr; int n_attr; uint64_t seed, vertex, step; };

/* Draws `samples` samples from `first` on, of EACH numbers; x: the input's values. */
static void draw(const struct draw *how, int64_t first, int64_t samples, const float *x, float *y)
{
	struct dlb_desc in_desc = dlb_desc_make(DLB_F32, 2, (int64_t[]){ samples, EACH }), out_desc = in_desc;
	struct dlb_op_io io = { .name = "drawn", .cls = dlb_op_class_of(how->kind), .opset = 22,
				.attr = how->attr, .n_attr = how->n_attr, .n_in = 1, .n_out = 1,
				.in = &in_desc, .out = &out_desc, .samples = samples };
	struct dlb_error err = { .what = "" };
	struct dlb_kernel *k = NULL;
	void *in[] = { (void *)(uintptr_t)x }, *out[] = { y };

	if (io.cls->infer(&io, &err) || io.cls->kernel(&be, &io, &k, &err))
		test_die(&err);
	assert(dlb_desc_same_shape(&in_desc, &out_desc) && out_desc.dtype == DLB_F32);
	const struct dlb_run r = { .in = in, .out = out, .seed = how->seed, .vertex = how->vertex,
				   .step = how->step, .first_sample = first };
	k->run(k, &r);
	assert(!be.ops->sync(&be, &err));
	dlb_kernel_free(k);
}

/* Mean and deviation within five standard errors, of a law with this fourth moment over the squared
 * variance. */
static void has_moments(const float *y, double mean, double deviation, double kurtosis)
{
	double m = 0, v = 0;

	for (int i = 0; i < ALL; i++)
		m += y[i];
	m /= ALL;
	for (int i = 0; i < ALL; i++)
		v += (y[i] - m) * (y[i] - m);
	v /= ALL;
	assert(IS(fabs(m - mean), <=, 5 * deviation / sqrt(ALL)));
	assert(IS(fabs(v / (deviation * deviation) - 1), <=, 5 * sqrt((kurtosis - 1) / ALL)));
}

static void is_counted_by_sample(const struct draw *how, const float *x, const float *y)
{
	static float part[ALL];
	struct draw other = *how;

	draw(how, 2, 3, x + 2 * EACH, part);
	assert(!memcmp(part, y + 2 * EACH, 3 * EACH * sizeof *y));
	draw(how, 0, SAMPLES, x, part);
	assert(!memcmp(part, y, ALL * sizeof *y));
	other.step++;
	draw(&other, 0, SAMPLES, x, part);
	assert(memcmp(part, y, EACH * sizeof *y));
	other = *how;
	other.vertex++;
	draw(&other, 0, SAMPLES, x, part);
	assert(memcmp(part, y, EACH * sizeof *y));
	other = *how;
	other.seed++;
	draw(&other, 0, SAMPLES, x, part);
	assert(memcmp(part, y, EACH * sizeof *y));
	assert(memcmp(y, y + EACH, EACH * sizeof *y));		/* samples differ */
}

/* Seeds beyond 64-bit integers, which a file may hold, are seeds like others: each draws its own numbers. */
static void any_seed_draws(const float *x, const float *y)
{
	static const double seed[] = { 1e30, -1e30, 0x1p63, INFINITY, NAN };
	static float other[ALL], last[ALL];

	memcpy(last, y, sizeof last);
	for (size_t i = 0; i < sizeof seed / sizeof *seed; i++) {
		const struct dlb_attr attr = { .name = "seed", .type = DLB_ATTR_REAL, .f = seed[i] };
		const struct draw unit = { DLB_OP_RandomUniformLike, &attr, 1, 1, 7, 3 };

		draw(&unit, 0, SAMPLES, x, other);
		has_moments(other, .5, 1 / sqrt(12), 1.8);
		assert(memcmp(other, last, sizeof last));
		memcpy(last, other, sizeof last);
	}
}

int main(void)
{
	static float x[ALL], y[ALL];
	const struct dlb_attr bounds[] = { { .name = "low", .type = DLB_ATTR_REAL, .f = -1 },
					   { .name = "high", .type = DLB_ATTR_REAL, .f = 3 } };
	const struct dlb_attr bell[] = { { .name = "mean", .type = DLB_ATTR_REAL, .f = 2 },
					 { .name = "scale", .type = DLB_ATTR_REAL, .f = .5 } };
	const struct draw uniform = { DLB_OP_RandomUniformLike, bounds, 2, 1, 7, 3 },
			  unit = { DLB_OP_RandomUniformLike, NULL, 0, 1, 7, 3 },
			  normal = { DLB_OP_RandomNormalLike, bell, 2, 1, 7, 3 },
			  coin = { DLB_OP_Bernoulli, NULL, 0, 1, 7, 3 };

	test_backend(&be);
	draw(&uniform, 0, SAMPLES, x, y);
	has_moments(y, 1, 4 / sqrt(12), 1.8);
	for (int i = 0; i < ALL; i++)
		assert(y[i] >= -1 && y[i] < 3);
	is_counted_by_sample(&uniform, x, y);
	draw(&unit, 0, SAMPLES, x, y);
	for (int i = 0; i < ALL; i++)
		assert(y[i] >= 0 && y[i] < 1);
	any_seed_draws(x, y);
	draw(&normal, 0, SAMPLES, x, y);
	has_moments(y, 2, .5, 3);
	is_counted_by_sample(&normal, x, y);
	for (int i = 0; i < ALL; i++)
		x[i] = .3f;
	draw(&coin, 0, SAMPLES, x, y);
	has_moments(y, .3, sqrt(.3 * .7), (1 - 3 * .3 * .7) / (.3 * .7));
	is_counted_by_sample(&coin, x, y);
	for (int i = 0; i < ALL; i++)
		x[i] = (float)(i % 2);
	draw(&coin, 0, SAMPLES, x, y);
	assert(!memcmp(x, y, sizeof x));
	be.ops->close(&be);
	printf("test_random: %d numbers of each law\n", ALL);
	return 0;
}
