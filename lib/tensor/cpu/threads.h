/* Loops cut into parts, one for each thread of the node. The cut follows from the shape and the number of threads
 * alone, so results do not depend on who is faster. */
#ifndef DLB_TENSOR_CPU_THREADS_H
#define DLB_TENSOR_CPU_THREADS_H
#include "tensor/backend.h"

typedef void dlb_cpu_part_fn(const void *ctx, int part, int parts);
/* How many parts pay for so much work; at most `most` (what cannot be cut any more). */
int dlb_cpu_parts(const struct dlb_backend *b, int64_t elements, int64_t most);
/* Calls fn for each part in [0, parts), together; returns when all are done. */
void dlb_cpu_parallel(int parts, dlb_cpu_part_fn *fn, const void *ctx);
/* First of n elements that part p has; that of part p + 1 is its end. */
static inline int64_t cpu_cut(int64_t n, int p, int parts)
{
	return n / parts * p + (n % parts < p ? n % parts : p);
}
#endif
