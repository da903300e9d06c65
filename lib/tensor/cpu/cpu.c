/* The cpu back end: opening, memory, threads. */
#define _DEFAULT_SOURCE				/* madvise */
#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "tensor/cpu/cpu.h"
#include "tensor/cpu/threads.h"

/* Functions of libgomp and OpenBLAS; declared here because <omp.h> belongs to one compiler. */
void omp_set_num_threads(int n);
int omp_get_max_threads(void);
void openblas_set_num_threads(int n);
int openblas_get_num_threads(void);
int blas_thread_shutdown_(void) __attribute__((weak)); /* not in OpenBLAS's serial build */

#define HUGE_PAGE ((size_t)2 << 20)

int dlb_cpu_n_devices(struct dlb_error *err)
{
	(void)err;
	return 1;
}

/* Turns off AMX: oneDNN's bf16 products crashed with SIGILL there (tilezero, Debian 12's 2.6.3 in a
 * virtual machine that has and allows AMX). They may also add in another order than AVX-512, so that
 * losses would depend on the processor. This must be set before the first use of oneDNN. A user's
 * setting of oneDNN's variable is kept. */
static void do_without_amx(void)
{
	if (!getenv("ONEDNN_MAX_CPU_ISA") && !getenv("DNNL_MAX_CPU_ISA"))
		dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core_bf16);
}

/* Threads of this process; 0: unknown. */
static int n_process_threads(void)
{
	struct stat s;

	return stat("/proc/self/task", &s) ? 0 : (int)s.st_nlink - 2;
}

/* Whether address space can run out: by a limit, or by the kernel's strict account of it. */
static bool address_space_is_scarce(void)
{
	FILE *f = fopen("/proc/sys/vm/overcommit_memory", "r");
	const int policy = f ? fgetc(f) : EOF;
	struct rlimit most;

	if (f)
		fclose(f);
	return policy == '2' || getrlimit(RLIMIT_AS, &most) || most.rlim_cur != RLIM_INFINITY;
}

/* OpenBLAS starts a thread for each core when it is loaded, and each of them keeps a core busy for a tenth of a
 * second before it sleeps. They are ended here; a back end on several threads makes it start them again.
 * They are left alone where they might not have started, or might wait for memory: OpenBLAS would wait for
 * them without end. */
__attribute__((constructor)) static void end_idle_threads(void)
{
	if (!blas_thread_shutdown_ || n_process_threads() < openblas_get_num_threads() ||
	    address_space_is_scarce())
		return;
	openblas_set_num_threads(1);
	blas_thread_shutdown_();
}

/* The libraries have one number of threads for the whole process. A back end that is opened beside another,
 * for a check, restores it when it is closed. */
static void set_threads(int omp, int openblas)
{
	omp_set_num_threads(omp);
	if (openblas != openblas_get_num_threads()) /* else it would start threads too */
		openblas_set_num_threads(openblas);
}

static void cpu_free(struct cpu *c)
{
	set_threads(c->before.omp, c->before.openblas);
	free(c);
}

/* Fills glibc's lists of small freed blocks, of each thread. An aligned allocation frees the small pieces
 * that it leaves over at its ends. While the lists have room, these pieces go there, and are not merged with
 * the aligned block when it is freed; so it is too small for the next aligned block of the same size.
 * oneDNN's gemm, which allocates such blocks in each call, would take up to 10 times its memory (30 with two
 * threads). */
static void fill_small_lists(const void *ctx, int part, int parts)
{
	enum { LEAST = 24, STEP = 16, MOST = 256, LENGTH = 7 };
	void *p[LENGTH];

	(void)ctx;
	(void)part;
	(void)parts;
	for (size_t bytes = LEAST; bytes <= MOST; bytes += STEP) {
		for (int i = 0; i < LENGTH; i++)
			p[i] = dlb_xmalloc(bytes);
		for (int i = 0; i < LENGTH; i++)
			free(p[i]);
	}
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
	c = dlb_xcalloc(1, sizeof *c);
	c->before.omp = omp_get_max_threads();
	c->before.openblas = openblas_get_num_threads();
	set_threads(n_threads, n_threads);
	dlb_cpu_parallel(n_threads, fill_small_lists, NULL);
	s = dnnl_engine_create(&c->engine, dnnl_cpu, 0);
	if (s == dnnl_success)
		s = dnnl_stream_create(&c->stream, c->engine, dnnl_stream_default_flags);
	if (s != dnnl_success) {
		if (c->engine)
			dnnl_engine_destroy(c->engine);
		cpu_free(c);
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
	cpu_free(c);
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

int dlb_cpu_sync(struct dlb_backend *b, struct dlb_error *err)
{
	const dnnl_status_t s = dnnl_stream_wait(cpu_of(b)->stream);

	return s == dnnl_success ? 0 : dlb_fail(err, NULL, "oneDNN: %s", dlb_cpu_dnnl_text(s));
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
