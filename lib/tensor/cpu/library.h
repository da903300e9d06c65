/* Memory that oneDNN and OpenBLAS keep for their products, besides the scratch memory that they are given:
 * packed operands, and code that is generated once (dlb_kernel.library_bytes) or for each product
 * (code_bytes). */
#ifndef DLB_TENSOR_CPU_LIBRARY_H
#define DLB_TENSOR_CPU_LIBRARY_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tensor/backend.h"

enum dlb_cpu_library { DLB_CPU_DNNL, DLB_CPU_OPENBLAS };
/* Rows of a product in one call of OpenBLAS, which packs all of them at once, up to 128 MB. */
enum { DLB_CPU_OPENBLAS_ROWS = 8192 };
/* Whether OpenBLAS runs its kernels for AMD's Zen or Intel's Haswell, the ones that were measured. */
bool dlb_cpu_openblas_is_known(void);
/* Whether oneDNN's gemm without AVX-512 reads the operands of an m x n result where they lie, because one side of
 * it is short. */
bool dlb_cpu_dnnl_is_in_place(int64_t m, int64_t n);
/* Bytes that oneDNN's gemm keeps after a product m x k by k x n of float32, row-major. */
size_t dlb_cpu_dnnl_keeps(int64_t m, int64_t n, int64_t k, int n_threads);
/* Notes in kernel what oneDNN keeps for such a product: by its gemm, or, if has_code, by code that it
 * generates for this product (cpu_prim.has_code). */
void dlb_cpu_dnnl_note(struct dlb_kernel *kernel, bool has_code, int64_t m, int64_t n, int64_t k,
		       int n_threads);
/* The same for OpenBLAS on one thread, with elements of 4 or 8 bytes and DLB_CPU_OPENBLAS_ROWS rows per
 * call. */
size_t dlb_cpu_openblas_keeps(int64_t m, int64_t n, int64_t k, size_t element);
#endif
