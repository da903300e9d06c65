/* Memory of kernels that the costs do not say: of kernels that nobody measured (dlb-profile --analytic), and
 * of libraries. Private to lib/exec. */
#ifndef DLB_EXEC_KERNEL_SIZES_H
#define DLB_EXEC_KERNEL_SIZES_H
#include "plan/process_bytes.h"

/* Prepares, without running them, the products and convolutions on `node` of which the costs know no
 * sizes, and products whose libraries keep memory, and asks for their scratch memory, packed weights and what
 * libraries keep, at the program's micro-batches. Returns [n_ops], new, for struct dlb_process; NULL: there
 * are none, this process has no such back end in host memory, or the node has more threads than this host
 * has cores, so that its kernels are not this host's. */
struct dlb_kernel_bytes *dlb_kernel_sizes(const struct dlb_program *p, const struct dlb_cost *c, int node);
#endif
