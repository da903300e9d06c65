/* Batch normalization in two halves: with the added sums of several parts of a batch, each part gets the same
 * results as from the kernel over the whole batch. */
#include "check.h"
#include "kernels.h"

enum {
	N = 7,
	C = 5,
	PLANE = 24,
	PART = C * PLANE,
	COUNT = N * PART,
	N_SUMS = 1 + 2 * C,
	N_GRAD_SUMS = 1 + 4 * C
};

/* Arrays by role; activations have type t, parameters and statistics p. */
struct arrays {
	double x[COUNT], dy[COUNT], y[COUNT], dx[COUNT];		/* room for any type */
	double scale[C], bias[C], mean[C], var[C], saved_mean[C], saved_invstd[C], dscale[C], dbias[C];
};
struct batch { enum dlb_dtype t, p; enum dlb_layout layout; bool relu; };

static double normal(void)
{
	static uint64_t drawn;

	return dlb_philox_normal(20261121, 0, drawn++);
}

static void *at(const struct batch *b, double *array, int sample)
{
	return (char *)array + (size_t)sample * PART * dlb_dtype_bytes(b->t);
}

static void run(const struct batch *b, enum dlb_bn_dir dir, enum dlb_bn_half half, int first, int n,
		struct arrays *a, double *sums)
{
	struct dlb_bn_desc d = {
		.dir = dir,
		.half = half,
		.epsilon = 1e-5,
		.momentum = 0.9,
		.unbiased = true,
		.relu = b->relu,
		.x = { .dtype = b->t, .layout = b->layout, .n_dims = 4, .dim = { n, C, 4, 6 } }
	};
	void *in[7], *out[5];
	int n_in = 5;
	struct dlb_kernel *k;
	struct dlb_error err;

	if (dir == DLB_BN_TRAIN) {
		memcpy(in, (void *[]){ at(b, a->x, first), a->scale, a->bias, a->mean, a->var },
		       5 * sizeof *in);
		memcpy(out, (void *[]){ at(b, a->y, first), a->mean, a->var, a->saved_mean, a->saved_invstd },
		       sizeof out);
	} else {
		memcpy(in,
		       (void *[]){ at(b, a->dy, first), at(b, a->x, first), a->scale, a->saved_mean,
				   a->saved_invstd },
		       5 * sizeof *in);
		memcpy(out, (void *[]){ at(b, a->dx, first), a->dscale, a->dbias }, 3 * sizeof *out);
		if (b->relu)
			in[n_in++] = at(b, a->y, first);
	}
	if (half == DLB_BN_REST)
		in[n_in] = sums;
	if (half == DLB_BN_SUMS)
		out[0] = sums;
	if (be.ops->batch_norm(&be, &d, &k, &err)) {
		fprintf(stderr, "%s\n", err.what);
		abort();
	}
	struct dlb_run r = { .in = in, .out = out, .scratch = be.ops->alloc(&be, k->scratch_bytes + 64) };
	k->run(k, &r);
	be.ops->free(&be, r.scratch);
	dlb_kernel_free(k);
}

static void near(const char *what, enum dlb_dtype t, const double *a, const double *b, int n,
		 double tolerance)
{
	for (int i = 0; i < n; i++) {
		double x = dlb_value_real(a, t, i), y = dlb_value_real(b, t, i);

		if (!(fabs(x - y) <= tolerance * (1 + fabs(y)))) {
			fprintf(stderr, "%s[%d]: %.17g, of the whole batch %.17g\n", what, i, x, y);
			abort();
		}
	}
}

/* Computes all parts of the batch, cut at `cut`, like replicas; adds dscale and dbias. */
static void in_parts(const struct batch *b, enum dlb_bn_dir dir, const int *cut, int n_parts,
		     struct arrays *a)
{
	const int n_sums = dir == DLB_BN_TRAIN ? N_SUMS : N_GRAD_SUMS;
	double sums[3][N_GRAD_SUMS], all[N_SUMS] = { 0 }, dscale[C] = { 0 }, dbias[C] = { 0 };
	struct arrays old = *a;

	for (int p = 0; p < n_parts; p++) {
		for (int i = 0; i < N_GRAD_SUMS; i++)
			sums[p][i] = NAN;
		run(b, dir, DLB_BN_SUMS, cut[p], cut[p + 1] - cut[p], a, sums[p]);
		for (int i = 0; i < N_SUMS; i++)
			all[i] += sums[p][i];
		for (int i = n_sums; i < N_GRAD_SUMS; i++)
			assert(isnan(sums[p][i]));
	}
	assert(IS(all[0], ==, N * PLANE));
	for (int p = 0; p < n_parts; p++) {
		memcpy(sums[p], all, sizeof all);
		memcpy(a->mean, old.mean, sizeof a->mean); /* each replica has its own running statistics */
		memcpy(a->var, old.var, sizeof a->var);
		run(b, dir, DLB_BN_REST, cut[p], cut[p + 1] - cut[p], a, sums[p]);
		for (int c = 0; c < C; c++) {
			dscale[c] += dlb_value_real(a->dscale, b->p, c);
			dbias[c] += dlb_value_real(a->dbias, b->p, c);
		}
	}
	for (int c = 0; c < C; c++) {
		dlb_value_set(a->dscale, b->p, c, dscale[c]);
		dlb_value_set(a->dbias, b->p, c, dbias[c]);
	}
}

static void test(const struct batch *b, double offset, double tolerance)
{
	static const int cuts[][4] = { { 0, N }, { 0, 3, N }, { 0, 1, 3, N } };
	struct arrays start = { .x = { 0 } }, whole, parts;

	for (int i = 0; i < COUNT; i++) {
		dlb_value_set(start.x, b->t, i, offset + normal());
		dlb_value_set(start.dy, b->t, i, normal());
	}
	for (int c = 0; c < C; c++) {
		dlb_value_set(start.scale, b->p, c, 1 + 0.1 * normal());
		dlb_value_set(start.bias, b->p, c, normal());
		dlb_value_set(start.mean, b->p, c, normal());
		dlb_value_set(start.var, b->p, c, 0.5 + dlb_rng_uniform(&rng));
	}
	whole = start;
	run(b, DLB_BN_TRAIN, DLB_BN_WHOLE, 0, N, &whole, NULL);
	run(b, DLB_BN_GRAD, DLB_BN_WHOLE, 0, N, &whole, NULL);
	for (int n = 1; n <= 3; n++) {
		double loose = b->t == DLB_BF16 ? 1.0 / 128 : tolerance;	/* the last place of bf16 */

		parts = start;
		in_parts(b, DLB_BN_TRAIN, cuts[n - 1], n, &parts);
		near("y", b->t, parts.y, whole.y, COUNT, loose);
		near("mean", b->p, parts.mean, whole.mean, C, tolerance);
		near("var", b->p, parts.var, whole.var, C, tolerance);
		near("saved mean", b->p, parts.saved_mean, whole.saved_mean, C, tolerance);
		near("saved invstd", b->p, parts.saved_invstd, whole.saved_invstd, C, tolerance);
		/* Relu's gradient depends on y, which may round to 0 in one of the two */
		memcpy(parts.y, whole.y, sizeof parts.y);
		memcpy(parts.saved_mean, whole.saved_mean, sizeof parts.saved_mean);
		memcpy(parts.saved_invstd, whole.saved_invstd, sizeof parts.saved_invstd);
		in_parts(b, DLB_BN_GRAD, cuts[n - 1], n, &parts);
		near("dx", b->t, parts.dx, whole.dx, COUNT, loose);
		near("dscale", b->p, parts.dscale, whole.dscale, C, tolerance * 20);
		near("dbias", b->p, parts.dbias, whole.dbias, C, tolerance * 20);
	}
}

int main(void)
{
	static const struct { enum dlb_dtype t, p; double tolerance; } type[] = {
		{ DLB_F32, DLB_F32, 3e-6 }, { DLB_F64, DLB_F64, 1e-13 }, { DLB_BF16, DLB_F32, 3e-6 } };

	dlb_rng_init(&rng, 20261121);
	open_backend();
	for (int i = 0; i < DLB_LEN(type); i++)
		for (int layout = DLB_PLAIN; layout <= DLB_CHANNELS_LAST; layout++)
			for (int relu = 0; relu < 2; relu++) {
				const struct batch b = { type[i].t, type[i].p, layout, relu };

				test(&b, 0, type[i].tolerance);
				/* a mean of 1000 standard deviations costs log2(1e6) of 53 bits */
				if (type[i].t == DLB_F64)
					test(&b, 1000, 1e-9);
			}
	be.ops->close(&be);
	return 0;
}
