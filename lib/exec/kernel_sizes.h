/* Memory of kernels that section cost lacks: of kernels that were not measured (dlb-profile --analytic), and
 * of libraries. Private to lib/exec. */
#ifndef DLB_EXEC_KERNEL_SIZES_H
#define DLB_EXEC_KERNEL_SIZES_H
#include "plan/process_bytes.h"

/* Prepares kernels of `node`, without running them, for matrix products and convolutions without measured
 * sizes, and for matrix products whose libraries keep memory. Takes from them the bytes of scratch memory,
 * packed weights and memory kept by libraries, for the program's micro-batches. Returns [n_ops], new, for
 * struct dlb_process; NULL: there are no such kernels, this process has no such back end in host memory, or
 * the node has more threads than this host has cores, so it must be on another host. */
struct dlb_kernel_bytes *dlb_kernel_sizes(const struct dlb_program *p, const struct dlb_cost *c, int node);
#endif
