/* Properties of the values of a constant that tell its kind: see role.h. */
#include <math.h>
#include <string.h>
#include "graph/role.h"

static int64_t count(const struct dlb_tensor *t)
{
	const struct dlb_desc d = dlb_tensor_desc(t, 1);

	return t->n_dims < 0 ? 0 : dlb_desc_count(&d);
}

bool dlb_values_uniform(const struct dlb_tensor *t)
{
	const size_t size = dlb_dtype_bytes(t->dtype);
	const int64_t n = t->data ? count(t) : 0;

	/* each element equals the one before it */
	if (n > 1 && memcmp(t->data, (const char *)t->data + size, (size_t)(n - 1) * size))
		return false;
	return t->is_fill || n > 0;
}

bool dlb_values_mask(const struct dlb_tensor *t)
{
	const int64_t n = t->data ? count(t) : 0;
	double other = 0;

	for (int64_t i = 0; i < n; i++) {
		const double v = dlb_value_real(t->data, t->dtype, i);
		if (v == 0 || v == other)
			continue;
		if (other != 0)
			return false;
		other = v;
	}
	return n > 1;
}

/* For f32, the type of most large weights: a loop that vectorises. */
static bool is_boundless_f32(const float *v, int64_t n)
{
	enum { ROW = 1024 };
	int found = 0;

	for (int64_t row = 0; row < n && !found; row += ROW)
		for (int64_t i = row; i < row + ROW && i < n; i++)
			found |= fabsf(v[i]) >= 1e30f;	/* the least float above 1e30 */
	return found;
}

bool dlb_values_boundless(const struct dlb_tensor *t)
{
	const int64_t n = t->data ? count(t) : 0;

	if (t->dtype == DLB_F32)
		return is_boundless_f32(t->data, n);
	for (int64_t i = 0; i < n; i++)
		if (fabs(dlb_value_real(t->data, t->dtype, i)) > 1e30)
			return true;
	return false;
}

enum { LEAST_ROWS = 5, MOST_ROWS = 12, MOST_COLUMNS = 256 };

/* Is the column at `at`, n values `stride` apart, a sinusoid? 2 cos(w) is estimated where the value is
 * largest. Sets *turns if the values are not constant. */
static bool is_sinusoid(const struct dlb_tensor *t, int64_t at, int64_t stride, int64_t n, bool *turns)
{
	double v[MOST_ROWS], largest = 0, c = 0, scale = 0;

	for (int64_t i = 0; i < n; i++) {
		v[i] = dlb_value_real(t->data, t->dtype, at + i * stride);
		scale = fmax(scale, fabs(v[i]));
	}
	for (int64_t i = 1; i + 1 < n; i++)
		if (fabs(v[i]) > largest) {
			largest = fabs(v[i]);
			c = (v[i + 1] + v[i - 1]) / v[i];
		}
	if (!(fabs(c) <= 2.01))
		return false;
	*turns |= largest > 0 && c < 1.99;
	for (int64_t i = 1; i + 1 < n; i++)
		if (!(fabs(v[i + 1] + v[i - 1] - c * v[i]) <= 1e-3 * scale))
			return false;
	return true;
}

bool dlb_values_sinusoid(const struct dlb_tensor *t)
{
	const int64_t n = t->data ? count(t) : 0;
	int64_t inner = 1;

	for (int k = t->n_dims - 1; k >= 0 && n; inner *= t->dim[k].add, k--) {
		const int64_t rows = t->dim[k].add;
		const int64_t columns = n / rows < MOST_COLUMNS ? n / rows : MOST_COLUMNS;
		bool all = rows >= LEAST_ROWS && columns > 1, turns = false;
		for (int64_t c = 0; c < columns && all; c++)
			all = is_sinusoid(t, c / inner * inner * rows + c % inner, inner,
					  rows < MOST_ROWS ? rows : MOST_ROWS, &turns);
		if (all && turns)
			return true;
	}
	return false;
}

/* Does coordinate k of the points depend only on their row (by_row) or column, and is it not constant? */
static bool depends(const struct dlb_tensor *t, int64_t rows, int64_t columns, int k, bool by_row)
{
	const double first = dlb_value_real(t->data, t->dtype, k);
	bool differs = false;

	for (int64_t i = 0; i < rows; i++)
		for (int64_t j = 0; j < columns; j++) {
			const int64_t like = by_row ? i * columns : j;
			const double v = dlb_value_real(t->data, t->dtype, 2 * (i * columns + j) + k);

			if (v != dlb_value_real(t->data, t->dtype, 2 * like + k))
				return false;
			differs |= v != first;
		}
	return differs;
}

bool dlb_values_grid(const struct dlb_tensor *t)
{
	const int n = t->n_dims;

	if (!t->data || n < 3 || t->dim[n - 1].add != 2)
		return false;
	const int64_t rows = t->dim[n - 3].add, columns = t->dim[n - 2].add;
	if (rows < 2 || columns < 2 || count(t) != 2 * rows * columns)
		return false;
	return (depends(t, rows, columns, 0, true) && depends(t, rows, columns, 1, false)) ||
	       (depends(t, rows, columns, 0, false) && depends(t, rows, columns, 1, true));
}
