/* Memory kept by libraries: see library.h. Block sizes are those of oneDNN 2.6.3 (cpu/x64/gemm, AVX2) and
 * OpenBLAS 0.3.21 (param.h, Haswell and Zen; driver/level3/level3.c). Both were compared with
 * /proc/self/smaps for 20 shapes on an AMD Zen: within .2 MB on one thread. On an Intel Xeon with AVX-512
 * oneDNN's gemm keeps blocks of the same sizes and 3,456 KB of code instead of 1,468, and products with code
 * of their own take 47 KB each, the mean of 36; 7 KB of these are counted for every op and kernel already
 * (plan/process_bytes.c). */
#include "tensor/cpu/library.h"

#include <cblas.h>
#include <dnnl.h>
#include <string.h>

static int64_t at_most(int64_t v, int64_t most) { return v < most ? v : most; }

bool dlb_cpu_openblas_is_known(void)
{
	const char *core = openblas_get_corename();

	return !strcmp(core, "Zen") || !strcmp(core, "Haswell");
}

static bool has_avx512(void)
{
	return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core;
}

bool dlb_cpu_dnnl_is_in_place(int64_t m, int64_t n)
{
	return m < 1 || n < 1 || 1 / (double)m + 1 / (double)n >= .0038;
}

/* Bytes that oneDNN keeps: generated code, as far as it exceeds that on other processors; and, unless the
 * operands are read in place, blocks of both, with a margin for a fragmented heap. The blocks come from
 * malloc, which keeps freed memory. On several threads the result is an upper bound, measured with two. */
size_t dlb_cpu_dnnl_keeps(int64_t m, int64_t n, int64_t k, int n_threads)
{
	enum {
		CODE = 1500000,
		AVX512_CODE = 3536000,
		BLOCK_N = 10008,
		BLOCK_M = 384,
		BLOCK_K = 192,
		MARGIN = 1500000
	};
	const size_t code = has_avx512() ? AVX512_CODE : CODE;
	const double several = 1.5;
	const double blocks = 4.0 * (double)at_most(k, BLOCK_K) * (double)(at_most(n, BLOCK_N) + BLOCK_M) +
			      MARGIN;

	if (dlb_cpu_dnnl_is_in_place(m, n))
		return code;
	return code + (size_t)(n_threads > 1 ? blocks * several * n_threads : blocks);
}

void dlb_cpu_dnnl_note(struct dlb_kernel *kernel, bool has_code, int64_t m, int64_t n, int64_t k,
		       int n_threads)
{
	enum { PER_PRODUCT = 40000 };

	if (has_code)
		kernel->code_bytes = PER_PRODUCT;
	else
		kernel->library_bytes[DLB_CPU_DNNL] = dlb_cpu_dnnl_keeps(m, n, k, n_threads);
}

/* The first block of a dimension: whole, or two halves, or as many of `most` as there are. */
static int64_t first_block(int64_t length, int64_t most)
{
	return length >= 2 * most ? most : length > most ? (length + 1) / 2 : length;
}

/* Bytes that OpenBLAS keeps: the touched part of its buffer. All rows of a are packed, unless w is a single
 * block. */
size_t dlb_cpu_openblas_keeps(int64_t m, int64_t n, int64_t k, size_t element)
{
	enum { SINGLE_P = 320, SINGLE_Q = 320, DOUBLE_P = 512, DOUBLE_Q = 256, PANEL = 24 };
	const bool is_double = element > sizeof(float);
	const int64_t p = is_double ? DOUBLE_P : SINGLE_P, q = is_double ? DOUBLE_Q : SINGLE_Q;
	const int64_t depth = first_block(k, q), rows = at_most(m, n > p ? DLB_CPU_OPENBLAS_ROWS : PANEL);

	if (!dlb_cpu_openblas_is_known())
		return 0;
	return (size_t)(depth * (rows + first_block(n, p))) * element;
}
