/* Checks the kernels of bf16 attention on a device, because they drive tensor cores by instructions of their
 * own. It compares the results of one head with sums in double on the host. */
#include <math.h>
#include <stdlib.h>

#include "tensor/cuda/cuda.h"
#include "util/mem.h"
#include "util/rng.h"

enum { N = 80, WIDTH = 64 }; /* queries and keys: more than one step (64 rows), and not a multiple of it */
enum { Q, K, V, DY, GIVEN }; /* random operands */
enum { Y, DQ, DK, DV, LOG_SUM, RESULTS };
static const double tolerance = 0.02; /* of a result's norm; bf16 rounds to .004 */

struct check {
	struct dlb_backend *b;
	double given[GIVEN][N * WIDTH], want[RESULTS][N * WIDTH];
	void *in[GIVEN], *out[RESULTS]; /* on the device */
	double scale;
};

static size_t count_of(int result) { return result == LOG_SUM ? N : N * WIDTH; }
static enum dlb_dtype type_of(int result) { return result == LOG_SUM ? DLB_F32 : DLB_BF16; }

static double dot(const double *a, const double *b)
{
	double sum = 0;

	for (int i = 0; i < WIDTH; i++)
		sum += a[i] * b[i];
	return sum;
}

static void add(double *to, double factor, const double *x)
{
	for (int i = 0; i < WIDTH; i++)
		to[i] += factor * x[i];
}

/* The results of query i, which sees keys up to its own; see attention.cu for the formulas. */
static void compute_row(struct check *c, int i)
{
	const double *q = c->given[Q] + i * WIDTH, *dy = c->given[DY] + i * WIDTH;
	double p[N], dp[N], most = -INFINITY, sum = 0, mean = 0;

	for (int j = 0; j <= i; j++) {
		p[j] = c->scale * dot(q, c->given[K] + j * WIDTH);
		dp[j] = dot(dy, c->given[V] + j * WIDTH);
		most = fmax(most, p[j]);
	}
	for (int j = 0; j <= i; j++)
		sum += exp(p[j] - most);
	c->want[LOG_SUM][i] = most + log(sum);
	for (int j = 0; j <= i; j++) {
		p[j] = exp(p[j] - c->want[LOG_SUM][i]);
		mean += p[j] * dp[j];
	}
	for (int j = 0; j <= i; j++) {
		const double g = c->scale * p[j] * (dp[j] - mean);

		add(c->want[Y] + i * WIDTH, p[j], c->given[V] + j * WIDTH);
		add(c->want[DQ] + i * WIDTH, g, c->given[K] + j * WIDTH);
		add(c->want[DK] + j * WIDTH, g, q);
		add(c->want[DV] + j * WIDTH, p[j], dy);
	}
}

/* Draws the operands, rounded to bf16, computes the results, and allocates device memory for both. -1: no
 * memory. */
static int make(struct check *c)
{
	struct dlb_backend *b = c->b;
	uint16_t bits[N * WIDTH];
	struct dlb_rng rng;

	dlb_rng_init(&rng, 1);
	c->scale = 1 / sqrt(WIDTH);
	for (int o = 0; o < GIVEN; o++) {
		for (int i = 0; i < N * WIDTH; i++) {
			dlb_value_set(bits, DLB_BF16, i, 2 * dlb_rng_uniform(&rng) - 1);
			c->given[o][i] = dlb_value_real(bits, DLB_BF16, i);
		}
		c->in[o] = b->ops->alloc(b, sizeof bits);
		if (!c->in[o])
			return -1;
		b->ops->upload(b, c->in[o], bits, sizeof bits);
	}
	for (int i = 0; i < N; i++)
		compute_row(c, i);
	for (int o = 0; o < RESULTS; o++)
		if (!(c->out[o] = b->ops->alloc(b, count_of(o) * dlb_dtype_bytes(type_of(o)))))
			return -1;
	return 0;
}

static int run(struct check *c, bool backward, struct dlb_error *err)
{
	const int64_t stride[3] = { N * WIDTH, N * WIDTH, WIDTH };
	struct dlb_backend *b = c->b;
	struct dlb_attention_desc d = { .dtype = DLB_BF16,
					.mask_type = DLB_F32,
					.backward = backward,
					.causal = true,
					.batch = 1,
					.heads = 1,
					.kv_heads = 1,
					.rows = N,
					.keys = N,
					.mask_keys = N,
					.width = WIDTH,
					.v_width = WIDTH,
					.left = -1,
					.right = -1,
					.scale = c->scale };
	void *const forward_in[5] = { c->in[Q], c->in[K], c->in[V] },
		    *const forward_out[3] = { c->out[Y], c->out[LOG_SUM] },
		    *const backward_in[7] = { c->in[Q], c->in[K],  c->in[V],       NULL,
					      NULL,     c->in[DY], c->out[LOG_SUM] },
		    *const backward_out[4] = { c->out[DQ], c->out[DK], c->out[DV] };
	struct dlb_kernel *k;
	void *scratch;
	int rc;

	for (int i = 0; i < 3; i++)
		d.q[i] = d.k[i] = d.v[i] = d.y[i] = stride[i];
	rc = dlb_cuda_attention(b, &d, &k, err);
	if (rc)
		return rc;
	scratch = b->ops->alloc(b, k->scratch_bytes + 1);
	if (scratch) {
		k->run(k, &(struct dlb_run){ .in = backward ? backward_in : forward_in,
					     .out = backward ? backward_out : forward_out,
					     .scratch = scratch });
		rc = b->ops->sync(b, err);
		b->ops->free(b, scratch);
	} else {
		rc = dlb_fail(err, NULL, "device cuda:%d: no memory to check attention", b->device);
	}
	dlb_kernel_free(k);
	return rc;
}

static int compare(struct check *c, struct dlb_error *err)
{
	char bits[N * WIDTH * sizeof(float)];

	for (int o = 0; o < RESULTS; o++) {
		double error = 0, norm = 0;

		c->b->ops->download(c->b, bits, c->out[o], count_of(o) * dlb_dtype_bytes(type_of(o)));
		for (size_t i = 0; i < count_of(o); i++) {
			const double e = dlb_value_real(bits, type_of(o), (int64_t)i) - c->want[o][i];

			error += e * e;
			norm += c->want[o][i] * c->want[o][i];
		}
		if (!(sqrt(error) <= tolerance * sqrt(norm))) {
			dlb_fail(err, NULL,
				 "device cuda:%d: the kernels of bf16 attention are wrong here, by %.2g of a "
				 "result",
				 c->b->device, sqrt(error / norm));
			return dlb_hint(err, "use dlb-profile --no-rewrite attention");
		}
	}
	return c->b->ops->sync(c->b, err);
}

int dlb_cuda_check_attention(struct dlb_backend *b, struct dlb_error *err)
{
	struct check *c = dlb_xcalloc(1, sizeof *c);
	int rc;

	c->b = b;
	rc = make(c) ? dlb_fail(err, NULL, "device cuda:%d: no memory to check attention", b->device) : 0;
	rc = rc || run(c, false, err) || run(c, true, err) || compare(c, err) ? -1 : 0;
	for (int i = 0; i < GIVEN; i++)
		if (c->in[i])
			b->ops->free(b, c->in[i]);
	for (int i = 0; i < RESULTS; i++)
		if (c->out[i])
			b->ops->free(b, c->out[i]);
	free(c);
	return rc;
}
