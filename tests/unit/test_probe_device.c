/* Rates of devices, measured on pretended ones: products, copies, launches and transfers take the times
 * that their descriptions give, and every call can fail. This program has back ends and a clock of its own
 * in place of the library's. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/cluster.h"
#include "exec/probe.h"
#include "util/clock.h"
#include "check.h"

/* A device. flops: of products of 768, 1536, 3072 and 6144 rows; bf16 0: it has no such products. [to
 * host?] */
struct device {
	double flops[4], bf16, copy_Bps, launch_s, latency_s[2], link_Bps[2], free_bytes;
	const char *words;
};
struct pretended {
	struct dlb_kernel k;
	double s;
	int tries, runs_per_try;
	const void *in[2], *out;
};
enum { MOST = 64 };

static const struct device *all;
static int n_all, calls, fails_at, n_kernels, live, closed, n_sizes, n_runs;
static int64_t sizes[MOST];
static size_t allocated[MOST];
static void *held[MOST];
static double clock_s, device_s, mark_s[2];
static struct pretended *kernel;
static int transfers;

double dlb_clock_s(void) { return clock_s; }
double dlb_clock_thread_cpu_s(void) { return clock_s; }
void dlb_sleep_s(double s) { clock_s += s; }

static int fails(struct dlb_error *err)
{
	return ++calls == fails_at ? dlb_fail(err, NULL, "call %d fails", calls) : 0;
}

/* The warm-up is the fastest try, and does not count; the tenth after it is the fastest of the others. */
static double slowness(int attempt)
{
	static const double first[] = { 0.5, 2, 1.25, 1.5 };

	return attempt < 4 ? first[attempt] : attempt == 10 ? 1 : 1.75;
}

static void run(struct dlb_kernel *k, const struct dlb_run *r)
{
	struct pretended *p = (struct pretended *)(void *)k;

	assert(r->in[0] && r->out[0] && r->scratch && IS(r->weight_version, ==, 1));
	assert(r->in[0] != r->out[0] && r->in[1] != r->out[0]);
	p->runs_per_try++;
	device_s += p->s * slowness(p->tries);
	n_runs++;
}

static void free_kernel(struct dlb_kernel *k)
{
	n_kernels--;
	free(k);
}

static struct dlb_kernel *new_kernel(double s)
{
	kernel = calloc(1, sizeof *kernel);
	kernel->k = (struct dlb_kernel){ .run = run, .free = free_kernel };
	kernel->s = s;
	n_kernels++;
	return &kernel->k;
}

static int gemm(struct dlb_backend *be, const struct dlb_gemm_desc *d, struct dlb_kernel **k,
		struct dlb_error *err)
{
	const struct device *x = be->self;
	int i = 0;

	assert(IS(d->m, ==, d->n) && IS(d->m, ==, d->k) && IS(d->n_batch, ==, 1) && IS(d->alpha, ==, 1));
	assert(!d->trans_a && !d->trans_w && !d->has_c && IS(d->beta, ==, 0));
	if (fails(err))
		return -1;
	if (d->dtype == DLB_BF16 && !x->bf16)
		return DLB_NO_KERNEL;
	for (int64_t n = 768; n < d->n; n *= 2)
		i++;
	if (n_sizes < MOST)
		sizes[n_sizes++] = d->n;
	for (int p = 0, found = 0; p < MOST; p++) {
		found += held[p] && allocated[p] == (size_t)(d->n * d->n) * dlb_dtype_bytes(d->dtype);
		assert(p < MOST - 1 || IS(found, ==, 3));
	}
	*k = new_kernel(2.0 * pow((double)d->n, 3) / (d->dtype == DLB_BF16 ? x->bf16 : x->flops[i]));
	return 0;
}

static int copy(struct dlb_backend *be, const struct dlb_copy_desc *d, struct dlb_kernel **k,
		struct dlb_error *err)
{
	const struct device *x = be->self;

	assert(d->in == DLB_F32 && d->out == DLB_F32 && IS(d->n_dims, ==, 1) && IS(d->in_stride[0], ==, 1));
	assert(IS(d->out_stride[0], ==, 1) && IS(d->out_count, ==, d->dim[0]));
	if (fails(err))
		return -1;
	*k = new_kernel(d->dim[0] == 1 ? x->launch_s : 2.0 * 4 * (double)d->dim[0] / x->copy_Bps);
	return 0;
}

static void *take(struct dlb_backend *be, size_t bytes)
{
	int i = 0;

	(void)be;
	assert(bytes);
	if (++calls == fails_at)
		return NULL;
	while (held[i])
		i++;
	held[i] = malloc(1);
	allocated[i] = bytes;
	live++;
	return held[i];
}

static void give(struct dlb_backend *be, void *p)
{
	int i = 0;

	(void)be;
	while (held[i] != p)
		i++;
	free(p);
	held[i] = NULL;
	live--;
}

static int sync_device(struct dlb_backend *be, struct dlb_error *err)
{
	(void)be;
	return fails(err);
}

static int mark(struct dlb_backend *be, int i, struct dlb_error *err)
{
	(void)be;
	mark_s[i] = device_s;
	if (i)
		kernel->tries++;
	return fails(err);
}

static double seconds(struct dlb_backend *be, int from, int to)
{
	(void)be;
	return mark_s[to] - mark_s[from];
}

static void transfer(struct dlb_backend *be, int i, const struct dlb_transfer *t)
{
	const struct device *x = be->self;

	assert(IS(i, ==, 0) && IS(t->after, ==, DLB_AFTER_NOTHING) && t->dst != t->src);
	/* the last of ten is the fastest */
	clock_s += (x->latency_s[t->to_host] + (double)t->bytes / x->link_Bps[t->to_host]) *
		   (++transfers % 10 ? 1.5 : 1);
}

static void describe(struct dlb_backend *be, char *text, size_t n)
{
	snprintf(text, n, "%s", ((const struct device *)be->self)->words);
}

static double free_bytes(struct dlb_backend *be) { return ((const struct device *)be->self)->free_bytes; }

static void close_device(struct dlb_backend *be)
{
	(void)be;
	closed++;
}

static int n_devices(struct dlb_error *err)
{
	(void)err;
	return n_all;
}

static const struct dlb_backend_ops ops = { .name = "cuda",
					    .n_devices = n_devices,
					    .close = close_device,
					    .describe = describe,
					    .free_bytes = free_bytes,
					    .alloc = take,
					    .free = give,
					    .sync = sync_device,
					    .mark = mark,
					    .seconds = seconds,
					    .host_alloc = take,
					    .host_free = give,
					    .transfer = transfer,
					    .gemm = gemm,
					    .copy = copy };

const char *dlb_backend_name(int i) { return i ? NULL : "cuda"; }

const struct dlb_backend_ops *dlb_backend_load(const char *name, struct dlb_error *err)
{
	if (!strncmp(name, "cuda", 4))
		return &ops;
	dlb_fail(err, NULL, "no back end '%s'", name);
	return NULL;
}

const struct dlb_backend_ops *dlb_backend_find(const char *name) { return dlb_backend_load(name, NULL); }

int dlb_backend_open(const char *name, int device, int n_threads, struct dlb_backend *out,
		     struct dlb_error *err)
{
	assert(IS(n_threads, ==, 1) && !strncmp(name, "cuda", 4));
	*out = (struct dlb_backend){ .ops = &ops, .device = device, .self = (void *)(uintptr_t)&all[device] };
	return fails(err);
}

int dlb_numerics_read(const char *name, struct dlb_numerics *out, struct dlb_error *err)
{
	(void)name;
	(void)err;
	*out = (struct dlb_numerics){ false, false };
	return 0;
}

/* Each begins at 0. */
static void begin(const struct device *d, int n)
{
	all = d;
	n_all = n;
	calls = fails_at = closed = n_sizes = n_runs = transfers = 0;
	clock_s = device_s = 0;
}

static bool close_to(double a, double b) { return fabs(a - b) <= 1e-9 * fabs(b); }

/* ---- one device ---- */

static void products_and_copies(void)
{
	static const struct {
		struct device d;
		int n_sizes, n_runs;
		double flops, Bps;
	} cases[] = {
		/* long enough at once; three tries of half a second, eleven of copies */
		{ { .flops = { 1e9, 1e9, 1e9, 1e9 }, .copy_Bps = 1e11 }, 1, 3 + 11, 1e9 / 1.25, 1e11 },
		/* tries of 100 ms: the fourth is the last one */
		{ { .flops = { 905969664e1, 1, 1, 1 }, .copy_Bps = 67108864e1 },
		  1,
		  4 + 4,
		  905969664e1 / 1.25,
		  67108864e1 / 1.25 },
		/* until a product takes a millisecond; the highest of all counts */
		{ { .flops = { 1e13, 3e13, 2e13, 9e13 }, .copy_Bps = 1e12 }, 3, 3 * 11 + 11, 3e13, 1e12 },
		{ { .flops = { 1e17, 1e17, 1e17, 2e17 }, .copy_Bps = 1e12 }, 4, 4 * 11 + 11, 2e17, 1e12 },
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct dlb_backend be = { .ops = &ops, .self = (void *)(uintptr_t)&cases[i].d };
		struct dlb_error err = { .what = "" };
		double flops, Bps;

		begin(&cases[i].d, 1);
		assert(IS(dlb_device_probe(&be, &flops, &Bps, &err), ==, 0));
		assert(close_to(flops, cases[i].flops) && close_to(Bps, cases[i].Bps));
		assert(IS(n_sizes, ==, cases[i].n_sizes) && IS(n_runs, ==, cases[i].n_runs));
		for (int k = 0; k < n_sizes; k++)
			assert(IS(sizes[k], ==, 768 << k));
		assert(IS(live, ==, 0) && IS(n_kernels, ==, 0));
	}
}

/* Where a kernel has run when its function returns, the host's clock counts. */
static void run_by_clock(struct dlb_kernel *k, const struct dlb_run *r)
{
	struct pretended *p = (struct pretended *)(void *)k;

	(void)r;
	clock_s += p->s * slowness(p->tries++);
}

static int gemm_by_clock(struct dlb_backend *be, const struct dlb_gemm_desc *d, struct dlb_kernel **k,
			 struct dlb_error *err)
{
	const int rc = gemm(be, d, k, err);

	if (!rc)
		(*k)->run = run_by_clock;
	return rc;
}

static int copy_by_clock(struct dlb_backend *be, const struct dlb_copy_desc *d, struct dlb_kernel **k,
			 struct dlb_error *err)
{
	const int rc = copy(be, d, k, err);

	if (!rc)
		(*k)->run = run_by_clock;
	return rc;
}

static void host_clock(void)
{
	static const struct device d = { .flops = { 1e12, 1e10, 1, 1 }, .copy_Bps = 3e10 };
	struct dlb_backend_ops host = ops;
	struct dlb_backend be = { .ops = &host, .self = (void *)(uintptr_t)&d };
	struct dlb_error err = { .what = "" };
	double flops, Bps;

	host.mark = NULL;
	host.seconds = NULL;
	host.gemm = gemm_by_clock;
	host.copy = copy_by_clock;
	begin(&d, 1);
	clock_s = 1000;
	/* 0.9 ms is not long enough, and the next size takes far longer */
	assert(IS(dlb_device_probe(&be, &flops, &Bps, &err), ==, 0) && IS(n_sizes, ==, 2));
	assert(fabs(flops / 1e12 - 1) < 1e-6 && fabs(Bps / 3e10 - 1) < 1e-6);
}

/* ---- devices of a cluster ---- */

static const struct device three[] = {
	{ { 1e13, 2e13, 2e13, 1 }, 4e13, 1e12, 5e-6, { 1e-5, 2e-5 }, { 2e10, 1e10 }, 7e9, "first" },
	{ { 1e13, 1.2e13, 1.4e13, 1 }, 0, 2e12, 6e-6, { 3e-5, 1e-5 }, { 2e10, 1e10 }, 8e9, "second" },
	{ { 1e13, 2.2e13, 1e13, 1 }, 1, 3e12, 7e-6, { 1e-5, 1e-5 }, { 1e30, 1e30 }, 9e9, "third" },
};

static void check_node(const struct dlb_cluster *c, int node, int i, double speed, double latency_s,
		       double Bps)
{
	const struct dlb_node *n = &c->node[node];
	const struct dlb_group *g = &c->group[n->group];
	const struct dlb_link *l = &c->link[g->up];
	char name[16], link[16];

	snprintf(name, sizeof name, "cuda%d", i);
	snprintf(link, sizeof link, "pcie:cuda%d", i);
	assert(SAME(c->kind[n->kind].backend, "cuda+tf32") && IS(n->device, ==, i));
	assert(IS(n->memory_bytes, ==, three[i].free_bytes) && IS(n->speed, ==, speed));
	assert(SAME(g->name, name) && SAME(g->cls, "device") && SAME(l->name, link) && SAME(l->cls, "pcie"));
	assert(close_to(l->latency_s, latency_s) && close_to(l->bandwidth_Bps, Bps) && !l->usual);
}

static void devices_of_a_cluster(void)
{
	static const struct {
		const char *nodes;
		int left;
	} cases[] = { { "cpu:5", 2 }, { "cpu:4", 1 }, { "cpu:3", 1 }, { "cpu:1", 1 }, { NULL, 0 } };
	const double bytes = 32 << 20, less = 1e-5 - 3e-5, second = bytes / 1e10 + less;

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct dlb_error err = { .what = "" };
		struct dlb_cluster c;
		int at = cases[i].left, host;

		dlb_cluster_init(&c);
		assert(!cases[i].nodes || IS(dlb_cluster_parse(cases[i].nodes, &c, &err), ==, 0));
		begin(three, 3);
		assert(IS(dlb_cluster_add_devices(&c, "cuda+tf32", &err), ==, 0) &&
		       IS(c.n_nodes, ==, at + 3));
		check_node(&c, at, 0, 1, 2e-5 + 8e-10, bytes / (bytes / 1e10 - 8e-10));
		check_node(&c, at + 1, 1, 0.7, 3e-5 + 4e-10, bytes / (second - 4e-10));
		check_node(&c, at + 2, 2, 1, 1e-5, bytes / 1e-9);
		host = cases[i].nodes ? c.node[0].group : -1;
		for (int k = 0; k < 3; k++) {
			assert(IS(c.group[c.node[at + k].group].parent, ==, host));
			assert(SAME(c.node[at + k].host, host < 0 ? "" : c.group[host].name));
		}
		const struct dlb_device_kind *k = &c.kind[c.node[at].kind];

		assert(close_to(k->peak_flops, 2e13) && close_to(k->bandwidth_Bps, 1e12));
		assert(close_to(k->peak_bf16_flops, 4e13) && close_to(k->launch_s, 5e-6));
		assert(IS(k->memory_bytes, ==, 7e9) && SAME(k->device, "first") && IS(k->threads, ==, 1));
		assert(IS(closed, ==, 3) && IS(live, ==, 0) && IS(n_kernels, ==, 0));
		dlb_cluster_release(&c);
	}
}

/* A call that fails ends the measurement with its reason, and nothing stays allocated or open. */
static void each_call_fails(void)
{
	struct dlb_error err = { .what = "" };
	struct dlb_cluster c;
	int n = 0;

	dlb_cluster_init(&c);
	begin(three, 1);
	assert(IS(dlb_cluster_add_devices(&c, "cuda", &err), ==, 0));
	n = calls;
	dlb_cluster_release(&c);
	for (int at = 1; at <= n; at++) {
		char text[40];
		bool memory;
		int rc;

		err = (struct dlb_error){ .what = "" };
		dlb_cluster_init(&c);
		begin(three, 1);
		fails_at = at;
		rc = dlb_cluster_add_devices(&c, "cuda", &err);
		snprintf(text, sizeof text, "call %d fails", at);
		memory = strstr(err.what, " bytes of memory ") != NULL;
		assert(IS(rc, ==, -1) && (memory || SAME(err.what, text)));
		assert(IS(calls, >=, at) && IS(closed, ==, at > 1) && IS(live, ==, 0) &&
		       IS(n_kernels, ==, 0));
		assert(IS(c.n_nodes, ==, 0));
		dlb_cluster_release(&c);
	}
}

static void no_memory_and_no_kernel(void)
{
	static const struct {
		int call;
		const char *what;
	} cases[] = {
		{ 2, "no 7077888 bytes of memory on this device to measure with" },
		{ 4, "no 7077888 bytes of memory on this device to measure with" },
	};
	static const struct device none = { .flops = { 1, 1, 1, 1 }, .copy_Bps = 1, .words = "" };
	struct dlb_error err = { .what = "" };
	struct dlb_cluster c;

	for (int i = 0; i < DLB_LEN(cases); i++) {
		dlb_cluster_init(&c);
		begin(&none, 1);
		fails_at = cases[i].call;
		assert(IS(dlb_cluster_add_devices(&c, "cuda", &err), ==, -1) &&
		       SAME(err.what, cases[i].what));
		dlb_cluster_release(&c);
	}
	dlb_cluster_init(&c);
	begin(three, 0);
	assert(IS(dlb_cluster_add_devices(&c, "cuda", &err), ==, -1) && IS(c.n_nodes, ==, 0));
	assert(IS(dlb_cluster_add_devices(&c, "other", &err), ==, -1) &&
	       SAME(err.what, "no back end 'other'"));
	dlb_cluster_release(&c);
}

int main(void)
{
	products_and_copies();
	host_clock();
	devices_of_a_cluster();
	each_call_fails();
	no_memory_and_no_kernel();
	return 0;
}
