/* Loops cut into parts, one per thread of the node. The cut depends only on the shape and the number of
 * threads, so results do not depend on timing. */
#ifndef DLB_TENSOR_CPU_THREADS_H
#define DLB_TENSOR_CPU_THREADS_H
#include "tensor/backend.h"

typedef void dlb_cpu_part_fn(const void *ctx, int part, int parts);
/* Number of parts that pay off for this much work, at most `most`. */
int dlb_cpu_parts(const struct dlb_backend *b, int64_t elements, int64_t most);
/* Calls fn for each part in [0, parts) in parallel; returns when all are done. */
void dlb_cpu_parallel(int parts, dlb_cpu_part_fn *fn, const void *ctx);
/* First of n elements of part p; the part ends where part p + 1 begins. */
static inline int64_t cpu_cut(int64_t n, int p, int parts)
{
	return n / parts * p + (n % parts < p ? n % parts : p);
}
#endif
