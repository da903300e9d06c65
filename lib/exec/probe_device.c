/* The rates of one device: products, copies, launches, transfers. See probe.h. */
#include <math.h>
#include <string.h>
#include "exec/probe.h"
#include "util/clock.h"

enum { GEMM = 768, MOST_GEMM = 8192, COPY_FLOATS = 8 << 20, TRIES = 10, LEAST_TRIES = 2 };
enum { LAUNCHES = 200, SMALL_BYTES = 8, TRANSFER_BYTES = 32 << 20 };
static const double long_enough_s = 1e-3;	/* a product that takes less does not fill the device */
/* after LEAST_TRIES, no try begins once the tries so far took this long */
static const double tries_s = 0.5;

/* Calls `run`. *seconds: from start to end of the kernels that it queues, by the device's own clock if it has
 * one. -1 with err. */
static int timed(struct dlb_backend *be, void (*run)(void *ctx), void *ctx, double *seconds, struct dlb_error *err)
{
	const bool queued = be->ops->mark;
	double start_s = dlb_clock_s();

	if (queued && be->ops->mark(be, 0, err))
		return -1;
	run(ctx);
	if ((queued && be->ops->mark(be, 1, err)) || be->ops->sync(be, err))
		return -1;
	*seconds = queued ? be->ops->seconds(be, 0, 1) : dlb_clock_s() - start_s;
	return be->ops->sync(be, err);
}

struct kernel_run { struct dlb_kernel *k; struct dlb_run run; int times; };

static void run_kernel(void *ctx)
{
	struct kernel_run *r = ctx;

	for (int i = 0; i < r->times; i++)
		r->k->run(r->k, &r->run);
}

/* *seconds: the fastest of TRIES tries, or of fewer slow ones, after one warm-up; a try runs k `times` times.
 * Frees k. -1 with err: a run failed. */
static int time_kernel(struct dlb_backend *be, struct dlb_kernel *k, void *const *operands, int times,
		       double *seconds, struct dlb_error *err)
{
	void *const in[3] = { operands[0], operands[1], NULL };
	void *scratch = be->ops->alloc(be, k->scratch_bytes + 1);
	struct kernel_run r = {
		k, { .in = in, .out = operands + 2, .scratch = scratch, .weight_version = 1 }, times
	};
	double s = 0, sum_s = 0;
	int rc = 0;

	*seconds = INFINITY;
	if (!scratch)
		rc = dlb_fail(err, NULL, "no %zu bytes of memory on this device to measure with",
			      k->scratch_bytes + 1);
	for (int i = 0; i <= TRIES && !rc && (i <= LEAST_TRIES || sum_s < tries_s); i++) {
		rc = timed(be, run_kernel, &r, &s, err);
		sum_s += s;
		if (!rc && i && s < *seconds)
			*seconds = s;
	}
	if (scratch)
		be->ops->free(be, scratch);
	dlb_kernel_free(k);
	return rc;
}

/* FLOP/s of a product of n x n matrices. DLB_NO_KERNEL: the device has no product of that type. */
static int product_rate(struct dlb_backend *be, enum dlb_dtype dtype, int64_t n, double *flops, struct dlb_error *err)
{
	const struct dlb_gemm_desc product = { .dtype = dtype, .m = n, .n = n, .k = n, .n_batch = 1, .alpha = 1 };
	const size_t bytes = (size_t)(n * n) * dlb_dtype_bytes(dtype);
	void *p[3] = { be->ops->alloc(be, bytes), be->ops->alloc(be, bytes), be->ops->alloc(be, bytes) };
	struct dlb_kernel *k = NULL;
	double s = 0;
	int rc = -1;

	if (!p[0] || !p[1] || !p[2])
		dlb_fail(err, NULL, "no %zu bytes of memory on this device to measure with", 3 * bytes);
	else if (!(rc = be->ops->gemm(be, &product, &k, err)))
		rc = time_kernel(be, k, p, 1, &s, err);
	for (int i = 0; i < 3; i++)
		if (p[i])
			be->ops->free(be, p[i]);
	*flops = 2.0 * (double)n * (double)n * (double)n / s;
	return rc;
}

/* Highest FLOP/s of square products. The size doubles until a product takes long enough to fill the
 * device. */
static int product_peak(struct dlb_backend *be, enum dlb_dtype dtype, double *flops, struct dlb_error *err)
{
	double most = 0, rate = 0;
	int rc = 0;

	for (int64_t n = GEMM; n <= MOST_GEMM && !rc; n *= 2) {
		rc = product_rate(be, dtype, n, &rate, err);
		most = fmax(most, rate);
		if (!rc && 2.0 * (double)n * (double)n * (double)n / rate >= long_enough_s)
			break;
	}
	*flops = most;
	return rc;
}

/* Seconds of `times` copies in a row of n floats between two places of the device. */
static int copy_seconds(struct dlb_backend *be, int64_t n, int times, double *seconds, struct dlb_error *err)
{
	const struct dlb_copy_desc copy = { .in = DLB_F32,
					    .out = DLB_F32,
					    .n_dims = 1,
					    .dim = { n },
					    .in_stride = { 1 },
					    .out_stride = { 1 },
					    .out_count = n };
	const size_t bytes = (size_t)n * sizeof(float);
	void *p[3] = { be->ops->alloc(be, bytes), NULL, be->ops->alloc(be, bytes) };
	struct dlb_kernel *k = NULL;
	int rc = -1;

	if (!p[0] || !p[2])
		dlb_fail(err, NULL, "no %zu bytes of memory on this device to measure with", 2 * bytes);
	else if (!(rc = be->ops->copy(be, &copy, &k, err)))
		rc = time_kernel(be, k, p, times, seconds, err);
	for (int i = 0; i < 3; i += 2)
		if (p[i])
			be->ops->free(be, p[i]);
	return rc;
}

int dlb_device_probe(struct dlb_backend *be, double *peak_flops, double *bandwidth_Bps, struct dlb_error *err)
{
	double copy_s = 0;

	if (product_peak(be, DLB_F32, peak_flops, err) || copy_seconds(be, COPY_FLOATS, 1, &copy_s, err))
		return -1;
	*bandwidth_Bps = 2.0 * COPY_FLOATS * sizeof(float) / copy_s;
	return 0;
}

/* Seconds of one transfer of `bytes` to the device, or from it: the fastest of TRIES. */
static int transfer_seconds(struct dlb_backend *be, void *device, void *host, size_t bytes, bool to_host,
			    double *seconds, struct dlb_error *err)
{
	const struct dlb_transfer t = { to_host ? host : device, to_host ? device : host, bytes, to_host,
					DLB_AFTER_NOTHING };

	*seconds = INFINITY;
	for (int i = 0; i < TRIES; i++) {
		const double start_s = dlb_clock_s();

		be->ops->transfer(be, 0, &t);
		if (be->ops->sync(be, err))
			return -1;
		*seconds = fmin(*seconds, dlb_clock_s() - start_s);
	}
	return 0;
}

/* Latency and bandwidth between host and device, of the slower direction. */
static int probe_link(struct dlb_backend *be, double *latency_s, double *bandwidth_Bps, struct dlb_error *err)
{
	void *host = be->ops->host_alloc(be, TRANSFER_BYTES), *device = be->ops->alloc(be, TRANSFER_BYTES);
	double s[2][2] = { { 0 } };		/* [to host?][large?] */
	int rc = 0;

	if (!host || !device)
		rc = dlb_fail(err, NULL, "no %d bytes of memory to measure transfers with", TRANSFER_BYTES);
	for (int i = 0; i < 4 && !rc; i++)
		rc = transfer_seconds(be, device, host, i / 2 ? TRANSFER_BYTES : SMALL_BYTES, i % 2,
				      &s[i % 2][i / 2], err);
	*latency_s = fmax(s[0][0], s[1][0]);
	*bandwidth_Bps = TRANSFER_BYTES / fmax(fmax(s[0][1], s[1][1]) - *latency_s, 1e-9);
	if (host)
		be->ops->host_free(be, host);
	if (device)
		be->ops->free(be, device);
	return rc;
}

static int rates_of(struct dlb_backend *be, struct dlb_device_rates *r, struct dlb_error *err)
{
	int rc;

	r->memory_bytes = be->ops->free_bytes(be);
	be->ops->describe(be, r->device, sizeof r->device);
	if (dlb_device_probe(be, &r->peak_flops, &r->bandwidth_Bps, err) ||
	    copy_seconds(be, 1, LAUNCHES, &r->launch_s, err) ||
	    probe_link(be, &r->link_latency_s, &r->link_Bps, err))
		return -1;
	r->launch_s /= LAUNCHES;
	rc = product_peak(be, DLB_BF16, &r->peak_bf16_flops, err);
	if (rc == DLB_NO_KERNEL)
		r->peak_bf16_flops = 0;
	return rc < 0 ? -1 : 0;
}

static int open_and_probe(const char *backend, int i, struct dlb_device_rates *r, struct dlb_error *err)
{
	struct dlb_backend be;
	int rc;

	if (dlb_backend_open(backend, i, 1, &be, err))
		return -1;
	rc = rates_of(&be, r, err);
	be.ops->close(&be);
	return rc;
}

static int host_of(const struct dlb_cluster *c)
{
	for (int g = 0; g < c->n_groups; g++)
		if (!strcmp(c->group[g].cls, "host"))
			return g;
	return -1;
}

/* Adds a node for device i, in a group of its own under the host. */
static void add_device(struct dlb_cluster *c, int kind, int i, const struct dlb_device_rates *r)
{
	const int host = host_of(c);
	const char *backend = c->kind[kind].backend;
	const char *name = dlb_arena_printf(&c->arena, "%.*s%d", (int)strcspn(backend, "+"), backend, i);
	const int link = dlb_cluster_add_link(c, dlb_arena_printf(&c->arena, "pcie:%s", name), "pcie");
	const int group = dlb_cluster_add_group(c, name, "device", host);
	const int node = dlb_cluster_add_node(c, kind, group, host < 0 ? "" : c->group[host].name, i);
	const double speed = r->peak_flops / c->kind[kind].peak_flops;

	c->group[group].up = link;
	c->link[link].latency_s = r->link_latency_s;
	c->link[link].bandwidth_Bps = r->link_Bps;
	c->link[link].usual = false;
	c->node[node].memory_bytes = r->memory_bytes;
	if (fabs(speed - 1) > 0.2)
		c->node[node].speed = round(speed * 100) / 100;
}

int dlb_cluster_add_devices(struct dlb_cluster *c, const char *backend, struct dlb_error *err)
{
	const struct dlb_backend_ops *ops = dlb_backend_load(backend, err);
	const int n = ops ? ops->n_devices(err) : 0;
	struct dlb_device_kind *k;
	int kind;

	if (n < 1)
		return -1;
	c->n_nodes = c->n_nodes > n ? c->n_nodes - n : c->n_nodes > 0 ? 1 : 0;
	kind = dlb_cluster_add_kind(c, backend, 1);
	for (int i = 0; i < n; i++) {
		struct dlb_device_rates r = { .device = "" };

		if (open_and_probe(backend, i, &r, err))
			return -1;
		k = &c->kind[kind];
		if (!i) {
			k->peak_flops = r.peak_flops;
			k->peak_bf16_flops = r.peak_bf16_flops;
			k->bandwidth_Bps = r.bandwidth_Bps;
			k->launch_s = r.launch_s;
			k->memory_bytes = r.memory_bytes;
			k->device = dlb_arena_strdup(&c->arena, r.device);
		}
		add_device(c, kind, i, &r);
	}
	return 0;
}
