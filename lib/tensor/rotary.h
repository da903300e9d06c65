/* Places of rotary embeddings in host memory (struct dlb_rotary_desc). */
#ifndef DLB_TENSOR_ROTARY_H
#define DLB_TENSOR_ROTARY_H
#include "tensor/backend.h"

/* The start of the table entry of row i of sample b; -1: the position is not in the table. */
static inline int64_t dlb_rotary_entry(const struct dlb_rotary_desc *d, const int64_t *ids, int64_t b,
				       int64_t i)
{
	const int64_t at = d->by_id ? ids[b * d->rows + i] : (d->one_batch ? 0 : b * d->rows) + i;

	return d->by_id && (at < 0 || at >= d->positions) ? -1 : at * d->half;
}

/* The first element of row i of head h of sample b. */
static inline int64_t dlb_rotary_place(const struct dlb_rotary_desc *d, int64_t b, int64_t h, int64_t i)
{
	return b * d->x[0] + h * d->x[1] + i * d->x[2];
}
#endif
