/* The cpu back end: opening, memory, threads; loop nests in canonical form. */
#define _DEFAULT_SOURCE				/* madvise */
#include <cblas.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "tensor/cpu/cpu.h"

/* Functions of libgomp and OpenBLAS; declared here because <omp.h> belongs to one compiler. */
void omp_set_num_threads(int n);
void openblas_set_num_threads(int n);

#define HUGE_PAGE ((size_t)2 << 20)

int dlb_cpu_n_devices(void) { return 1; }

/* Turns off AMX: oneDNN's bf16 products crashed with SIGILL there (tilezero, Debian 12's 2.6.3 in a
 * virtual machine that has and allows AMX). They may also add in another order than AVX-512, so that
 * losses would depend on the processor. This must be set before the first use of oneDNN. A user's
 * setting of oneDNN's variable is kept. */
static void do_without_amx(void)
{
	if (!getenv("ONEDNN_MAX_CPU_ISA") && !getenv("DNNL_MAX_CPU_ISA"))
		dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core_bf16);
}

int dlb_cpu_open(int device, int n_threads, struct dlb_backend *out, struct dlb_error *err)
{
	struct cpu *c;
	dnnl_status_t s;

	if (device != 0)
		return dlb_fail(err, NULL, "no device cpu:%d", device);
	if (n_threads < 1)
		return dlb_fail(err, NULL, "cannot run on %d threads", n_threads);
	do_without_amx();
	omp_set_num_threads(n_threads);
	openblas_set_num_threads(n_threads);
	c = dlb_xcalloc(1, sizeof *c);
	s = dnnl_engine_create(&c->engine, dnnl_cpu, 0);
	if (s == dnnl_success)
		s = dnnl_stream_create(&c->stream, c->engine, dnnl_stream_default_flags);
	if (s != dnnl_success) {
		if (c->engine)
			dnnl_engine_destroy(c->engine);
		free(c);
		return dlb_fail(err, NULL, "cannot open oneDNN: %s", dlb_cpu_dnnl_text(s));
	}
	*out = (struct dlb_backend){ .ops = dlb_cpu_level(0),
				     .device = 0,
				     .n_threads = n_threads,
				     .self = c,
				     .fast_bf16 = (dnnl_get_effective_cpu_isa() &
						   dnnl_cpu_isa_avx512_core_bf16) ==
						  dnnl_cpu_isa_avx512_core_bf16 };
	return 0;
}

void dlb_cpu_close(struct dlb_backend *b)
{
	struct cpu *c = cpu_of(b);

	if (!c)
		return;
	dnnl_stream_destroy(c->stream);
	dnnl_engine_destroy(c->engine);
	free(c);
	memset(b, 0, sizeof *b);
}

/* Returns zeroed memory; NULL: none left. Large blocks request huge pages: the first touch of small pages
 * runs at a fifth of the bandwidth, and later sequential reads need an address translation every 4 KB. */
static void *zeros(size_t bytes)
{
	void *p;
	size_t n = cpu_round64(bytes ? bytes : 1);

	if (n < bytes || posix_memalign(&p, n >= HUGE_PAGE ? HUGE_PAGE : 64, n))
		return NULL;
	if (n >= HUGE_PAGE)
		madvise(p, n / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
	memset(p, 0, n);
	return p;
}

void *dlb_cpu_alloc(struct dlb_backend *b, size_t bytes)
{
	(void)b;
	return zeros(bytes);
}

void dlb_cpu_free(struct dlb_backend *b, void *p)
{
	(void)b;
	free(p);
}

void dlb_cpu_copy_bytes(struct dlb_backend *b, void *dst, const void *src, size_t bytes)
{
	(void)b;
	if (bytes)
		memcpy(dst, src, bytes);
}

void dlb_cpu_sync(struct dlb_backend *b)
{
	dnnl_stream_wait(cpu_of(b)->stream);
}

void *dlb_cpu_aligned(size_t bytes)
{
	void *p = zeros(bytes);

	return p ? p : dlb_xcalloc(1, SIZE_MAX);	/* reports that memory is out and exits */
}

void dlb_cpu_kernel_free(struct dlb_kernel *k)
{
	free(k);
}

/* True if loop a is outside loop b: the first operand with different strides decides. */
static bool outer(const struct cpu_nest *n, int a, int b)
{
	for (int o = 0; o < n->n_operands; o++) {
		int64_t x = n->stride[o][a], y = n->stride[o][b];

		x = x < 0 ? -x : x;
		y = y < 0 ? -y : y;
		if (x != y && x && y)
			return x > y;
	}
	return a < b;
}

static void swap_loops(struct cpu_nest *n, int a, int b)
{
	int64_t t = n->dim[a];

	n->dim[a] = n->dim[b];
	n->dim[b] = t;
	for (int o = 0; o < n->n_operands; o++) {
		t = n->stride[o][a];
		n->stride[o][a] = n->stride[o][b];
		n->stride[o][b] = t;
	}
}

void dlb_cpu_nest(struct cpu_nest *n)
{
	int m = 0;

	for (int i = 0; i < n->n_dims; i++)		/* drops loops of length 1 */
		if (n->dim[i] != 1) {
			if (m != i)
				swap_loops(n, m, i);
			m++;
		}
	n->n_dims = m;
	for (int i = 1; i < m; i++)			/* insertion sort: outermost first */
		for (int j = i; j > 0 && outer(n, j, j - 1) && !outer(n, j - 1, j); j--)
			swap_loops(n, j, j - 1);
	m = 0;
	for (int i = 1; i < n->n_dims; i++) {		/* merges i into m where all strides continue */
		bool merges = true;

		for (int o = 0; o < n->n_operands; o++)
			merges = merges && n->stride[o][m] == n->stride[o][i] * n->dim[i];
		if (merges) {
			n->dim[m] *= n->dim[i];
			for (int o = 0; o < n->n_operands; o++)
				n->stride[o][m] = n->stride[o][i];
		} else {
			m++;
			if (m != i)
				swap_loops(n, m, i);
		}
	}
	if (n->n_dims)
		n->n_dims = m + 1;
}
