/* A part of a tensor of the model: the shard of a weight, of a buffer or of a constant. */
#ifndef DLB_GRAPH_SLICE_H
#define DLB_GRAPH_SLICE_H
#include "op/op.h"

/* A tensor that is a part of tensor `of` of the model, whose shape is dim[]. Dimension `axis` of the whole is
 * a sequence of rows of units * unit elements; the part has units [first, first + count) of each row. */
struct dlb_slice {
	const char *of;
	int n_dims, axis;
	int64_t dim[DLB_MAX_DIMS], units, unit, first, count;
};
/* Copies a part of `whole` to `part` (take), or back (put); `size` is bytes per element. */
void dlb_slice_take(const struct dlb_slice *s, size_t size, const void *whole, void *part);
void dlb_slice_put(const struct dlb_slice *s, size_t size, const void *part, void *whole);
/* index in the whole of element i of the part */
int64_t dlb_slice_index(const struct dlb_slice *s, int64_t i);
/* Is the slice valid, and does the part have this shape? */
bool dlb_slice_fits(const struct dlb_slice *s, const struct dlb_desc *part);
/* shape of the whole */
struct dlb_desc dlb_slice_desc(const struct dlb_slice *s, enum dlb_dtype dtype);
/* s is a slice of the tensor that slice `part` describes: makes s a slice of the whole of `part`. false: it
 * would not be one range. */
bool dlb_slice_compose(const struct dlb_slice *part, struct dlb_slice *s);
#endif
