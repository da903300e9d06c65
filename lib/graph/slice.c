/* Parts of the model's tensors: see struct dlb_slice. The axis of a slice makes the whole a matrix of
 *
 *     rows x (units * unit * inner)        rows: dimensions before the axis, times rows of units along it
 *
 * elements, and the part a matrix of rows x (count * unit * inner) elements. */
#include <string.h>
#include "graph/rewrite.h"
#include "graph/slice.h"

struct slice_rows { int64_t rows, whole, part, first; };	/* elements */

static struct slice_rows strip_of(const struct dlb_slice *s)
{
	int64_t before = 1, inner = 1;

	for (int i = 0; i < s->n_dims; i++)
		*(i < s->axis ? &before : &inner) *= i == s->axis ? 1 : s->dim[i];
	const int64_t row = s->units * s->unit;
	return (struct slice_rows){ .rows = before * (s->dim[s->axis] / row), .whole = row * inner,
			       .part = s->count * s->unit * inner, .first = s->first * s->unit * inner };
}

void dlb_slice_take(const struct dlb_slice *s, size_t size, const void *whole, void *part)
{
	const struct slice_rows p = strip_of(s);

	for (int64_t r = 0; r < p.rows; r++)
		memcpy((char *)part + (size_t)(r * p.part) * size,
		       (const char *)whole + (size_t)(r * p.whole + p.first) * size, (size_t)p.part * size);
}

void dlb_slice_put(const struct dlb_slice *s, size_t size, const void *part, void *whole)
{
	const struct slice_rows p = strip_of(s);

	for (int64_t r = 0; r < p.rows; r++)
		memcpy((char *)whole + (size_t)(r * p.whole + p.first) * size,
		       (const char *)part + (size_t)(r * p.part) * size, (size_t)p.part * size);
}

int64_t dlb_slice_index(const struct dlb_slice *s, int64_t i)
{
	const struct slice_rows p = strip_of(s);

	return i / p.part * p.whole + p.first + i % p.part;
}

struct dlb_desc dlb_slice_desc(const struct dlb_slice *s, enum dlb_dtype dtype)
{
	struct dlb_desc d = { .dtype = dtype, .n_dims = s->n_dims };

	memcpy(d.dim, s->dim, sizeof d.dim);
	return d;
}

bool dlb_slice_fits(const struct dlb_slice *s, const struct dlb_desc *part)
{
	if (s->n_dims < 1 || s->n_dims > DLB_MAX_DIMS || s->n_dims != part->n_dims || s->axis < 0 ||
	    s->axis >= s->n_dims)
		return false;
	for (int i = 0; i < s->n_dims; i++)
		if (s->dim[i] < 1)
			return false;
	const int64_t length = s->dim[s->axis];
	if (s->units < 1 || s->units > length || s->unit < 1 || s->unit > length / s->units ||
	    length % (s->units * s->unit) || s->first < 0 || s->first >= s->units || s->count < 1 ||
	    s->count > s->units - s->first || dlb_checked_count(s->dim, s->n_dims) < 0)
		return false;
	for (int i = 0; i < s->n_dims; i++)
		if (part->dim[i] != (i == s->axis ? length / s->units * s->count : s->dim[i]))
			return false;
	return true;
}

/* Within each row, s is a range of a range. The rows of s must be those of `part`; else the elements of s are
 * not one range per row. */
bool dlb_slice_compose(const struct dlb_slice *part, struct dlb_slice *s)
{
	const int64_t row = part->units * part->unit, from = part->first * part->unit + s->first * s->unit,
		      length = s->count * s->unit;
	const int64_t unit = dlb_gcd(dlb_gcd(row, from), length);

	if (s->axis != part->axis || s->units * s->unit != part->count * part->unit)
		return false;
	*s = *part;
	s->units = row / unit;
	s->unit = unit;
	s->first = from / unit;
	s->count = length / unit;
	return true;
}
