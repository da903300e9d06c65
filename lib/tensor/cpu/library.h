/* Memory that oneDNN and OpenBLAS keep for packed operands of their products, besides the scratch memory that
 * they are given: dlb_kernel.library_bytes. Sizes are 0 on a processor with AVX-512, where products pack in
 * scratch. */
#ifndef DLB_TENSOR_CPU_LIBRARY_H
#define DLB_TENSOR_CPU_LIBRARY_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum dlb_cpu_library { DLB_CPU_DNNL, DLB_CPU_OPENBLAS };
/* Rows of a product in one call of OpenBLAS, which packs all of them at once, up to 128 MB. */
enum { DLB_CPU_OPENBLAS_ROWS = 8192 };
/* Whether OpenBLAS runs its kernels for AMD's Zen or Intel's Haswell, the ones that were measured. */
bool dlb_cpu_openblas_is_known(void);
/* Whether a product of this process makes a library keep memory. */
bool dlb_cpu_libraries_keep(void);
/* Whether oneDNN's gemm without AVX-512 reads the operands of an m x n result where they lie, because one side of
 * it is short. */
bool dlb_cpu_dnnl_is_in_place(int64_t m, int64_t n);
/* Bytes that oneDNN's gemm keeps after a product m x k by k x n of float32, row-major. */
size_t dlb_cpu_dnnl_keeps(int64_t m, int64_t n, int64_t k, int n_threads);
/* The same for OpenBLAS on one thread, with elements of 4 or 8 bytes and DLB_CPU_OPENBLAS_ROWS rows per
 * call. */
size_t dlb_cpu_openblas_keeps(int64_t m, int64_t n, int64_t k, size_t element);
#endif
