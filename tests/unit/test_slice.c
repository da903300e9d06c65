/* Slices of tensors, over random shapes: their elements and indices are those found one by one, a slice of
 * a slice is one of the whole, and what is no slice is refused. */
#include <stdlib.h>
#include <string.h>
#include "graph/slice.h"
#include "util/rng.h"
#include "check.h"

static struct dlb_rng rng;

static int below(int n) { return (int)dlb_rng_below(&rng, (uint64_t)n); }

static int64_t count(const int64_t *dim, int n)
{
	int64_t c = 1;

	for (int i = 0; i < n; i++)
		c *= dim[i];
	return c;
}

/* A range of units along an axis of random length, which holds `rows` rows of units. */
static void random_slice(struct dlb_slice *s, struct dlb_desc *part)
{
	*s = (struct dlb_slice){
		.of = "w", .n_dims = 1 + below(4), .units = 1 + below(5), .unit = 1 + below(3)
	};
	s->axis = below(s->n_dims);
	s->first = below((int)s->units);
	s->count = 1 + below((int)(s->units - s->first));
	*part = (struct dlb_desc){ .dtype = DLB_I32, .n_dims = s->n_dims };
	for (int k = 0; k < s->n_dims; k++)
		part->dim[k] = s->dim[k] = 1 + below(4);
	const int64_t rows = 1 + below(3);
	s->dim[s->axis] = rows * s->units * s->unit;
	part->dim[s->axis] = rows * s->count * s->unit;
}

/* The elements of the whole that lie in the slice, in their order; returns their number. */
static int64_t members(const struct dlb_slice *s, int64_t *at)
{
	const int64_t inner = count(s->dim + s->axis + 1, s->n_dims - s->axis - 1);
	int64_t n = 0;

	for (int64_t e = 0; e < count(s->dim, s->n_dims); e++) {
		const int64_t unit = e / inner % s->dim[s->axis] % (s->units * s->unit) / s->unit;
		if (unit >= s->first && unit < s->first + s->count)
			at[n++] = e;
	}
	return n;
}

static void check_elements(const struct dlb_slice *s, const struct dlb_desc *part)
{
	const int64_t all = count(s->dim, s->n_dims);
	int64_t *at = malloc((size_t)all * sizeof *at);
	const int64_t n = members(s, at);
	/* exactly their room, so that the sanitizer finds accesses beside them */
	int32_t *whole = malloc((size_t)all * sizeof *whole), *got = malloc((size_t)n * sizeof *got);

	assert(dlb_slice_fits(s, part) && IS(count(part->dim, part->n_dims), ==, n));
	for (int64_t e = 0; e < all; e++)
		whole[e] = (int32_t)(3 * e + 1);
	dlb_slice_take(s, sizeof *whole, whole, got);
	for (int64_t i = 0; i < n; i++) {
		assert(IS(got[i], ==, 3 * at[i] + 1) && IS(dlb_slice_index(s, i), ==, at[i]));
		got[i] = -1;
	}
	dlb_slice_put(s, sizeof *whole, got, whole);
	for (int64_t e = 0, i = 0; e < all; e++) {
		const bool in = i < n && at[i] == e;
		assert(IS(whole[e], ==, in ? -1 : 3 * e + 1));
		i += in;
	}
	free(at);
	free(whole);
	free(got);
}

/* A slice of the slice's part selects the same elements as the slice that is composed of both. */
static void check_composed(const struct dlb_slice *outer, const struct dlb_desc *part)
{
	const int64_t row = outer->count * outer->unit;
	struct dlb_slice s = { .of = "part",
			       .n_dims = outer->n_dims,
			       .axis = outer->axis,
			       .unit = outer->unit,
			       .units = outer->count };
	int64_t *first, *both;

	if (below(2)) { /* other units of the same rows */
		s.unit = 1;
		s.units = row;
	}
	s.first = below((int)s.units);
	s.count = 1 + below((int)(s.units - s.first));
	memcpy(s.dim, part->dim, sizeof s.dim);
	const int64_t n_part = count(part->dim, part->n_dims);
	first = malloc((size_t)n_part * sizeof *first);
	both = malloc((size_t)count(outer->dim, outer->n_dims) * sizeof *both);
	const int64_t n = members(&s, first);
	struct dlb_slice c = s;
	assert(dlb_slice_compose(outer, &c) && SAME(c.of, "w"));
	assert(IS(members(&c, both), ==, n) &&
	       !memcmp(c.dim, outer->dim, (size_t)outer->n_dims * sizeof *c.dim));
	for (int64_t i = 0; i < n; i++)
		assert(IS(both[i], ==, dlb_slice_index(outer, first[i])));
	c = s; /* rows of another length are not one range */
	c.units++;
	assert(!dlb_slice_compose(outer, &c));
	c = s;
	c.axis++;
	assert(!dlb_slice_compose(outer, &c));
	free(first);
	free(both);
}

/* Of (4, 12, 5), along 12: rows of 3 units of 2; units 1 and 2. */
static void check_refused(void)
{
	static const struct dlb_slice good = {
		.n_dims = 3, .axis = 1, .dim = { 4, 12, 5 }, .units = 3, .unit = 2, .first = 1, .count = 2
	};
	static const struct dlb_desc part = { .n_dims = 3, .dim = { 4, 8, 5 } };

	assert(dlb_slice_fits(&good, &part));
	for (int i = 0;; i++) {
		struct dlb_slice s = good;
		struct dlb_desc d = part;
		switch (i) {
		case 0:
			s.n_dims = d.n_dims = 0;
			break;
		case 1:
			s.n_dims = d.n_dims = DLB_MAX_DIMS + 1;
			break;
		case 2:
			d.n_dims = 2;
			break;
		case 3:
			s.axis = -1;
			break;
		case 4:
			s.axis = 3;
			break;
		case 5:
			s.dim[0] = d.dim[0] = 0;
			break;
		case 6:
			s.units = 0;
			break;
		case 7:
			s.units = 13;
			break;
		case 8:
			s.unit = 0;
			break;
		case 9:
			s.unit = 5;
			break;
		case 10:
			s.unit = 3;
			break;
		case 11:
			s.first = -1;
			break;
		case 12:
			s.first = 3;
			break;
		case 13:
			s.count = 0;
			break;
		case 14:
			s.count = 3;
			break;
		case 15:
			s.dim[0] = d.dim[0] = INT64_MAX / 4;
			break;
		case 16:
			d.dim[0] = 3;
			break;
		case 17:
			d.dim[1] = 4;
			break;
		case 18:
			d.dim[1] = 12;
			break;
		case 19:
			d.dim[2] = 4;
			break;
		case 20:
			s.units = 4;
			d.dim[1] = 6;
			break; /* rows of 8 of 12 */
		default:
			return;
		}
		if (dlb_slice_fits(&s, &d)) {
			fprintf(stderr, "change %d fits\n", i);
			abort();
		}
	}
}

int main(void)
{
	struct dlb_slice s;
	struct dlb_desc part;

	for (int i = 0; i < 500; i++) {
		dlb_rng_init(&rng, (uint64_t)i);
		random_slice(&s, &part);
		const struct dlb_desc whole = dlb_slice_desc(&s, DLB_I32);
		assert(IS(whole.n_dims, ==, s.n_dims) && IS(whole.dtype, ==, DLB_I32) &&
		       !memcmp(whole.dim, s.dim, sizeof s.dim));
		check_elements(&s, &part);
		check_composed(&s, &part);
	}
	check_refused();
	return 0;
}
