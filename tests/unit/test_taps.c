/* Sums of listed elements (struct dlb_taps_desc) against the definition, for random lists. The seed is printed. */
#include "check.h"
#include "kernels.h"

enum { MOST_DIMS = 3, MOST_TAPS = 4 };

/* Random lists for dimension i of d; about one index in five has none. */
static void draw_lists(struct dlb_taps_desc *d, int i)
{
	struct dlb_tap *tap = dlb_xcalloc((size_t)d->y[i] * MOST_TAPS + 1, sizeof *tap);
	int64_t *end = dlb_xcalloc((size_t)d->y[i] + 1, sizeof *end), n = 0;

	for (int64_t j = 0; j < d->y[i]; j++) {
		const int64_t most = d->move ? 1 : MOST_TAPS;
		const int64_t taps = dlb_rng_below(&rng, 5) ?
					     1 + (int64_t)dlb_rng_below(&rng, (uint64_t)most) :
					     0;

		for (int64_t k = 0; k < taps; k++)
			tap[n++] = (struct dlb_tap){ (int64_t)dlb_rng_below(&rng, (uint64_t)d->x[i]),
						     d->move ? 1 : 2 * dlb_rng_uniform(&rng) - 1 };
		end[j] = n;
	}
	d->tap[i] = tap;
	d->end[i] = end;
}

/* The sum over the taps of dimensions dim and up; at: of the element of x so far. */
static double sum_of(const struct dlb_taps_desc *d, const double *x, const int64_t *pos, int dim, int64_t at)
{
	double sum = 0;

	if (dim == d->n_dims)
		return x[at];
	if (!d->tap[dim])
		return sum_of(d, x, pos, dim + 1, at * d->x[dim] + pos[dim]);
	const int64_t from = pos[dim] ? d->end[dim][pos[dim] - 1] : 0, to = d->end[dim][pos[dim]];
	for (int64_t t = from; t < to; t++)
		sum += d->tap[dim][t].w * sum_of(d, x, pos, dim + 1, at * d->x[dim] + d->tap[dim][t].from);
	return sum;
}

/* Whether some dimension has no taps at this position. */
static bool is_empty(const struct dlb_taps_desc *d, const int64_t *pos)
{
	for (int i = 0; i < d->n_dims; i++)
		if (d->tap[i] && d->end[i][pos[i]] == (pos[i] ? d->end[i][pos[i] - 1] : 0))
			return true;
	return false;
}

static void one(enum dlb_dtype type, enum dlb_dtype sum, bool move, int n_dims, unsigned listed, bool filled)
{
	struct dlb_taps_desc d = { .in = type, .out = type, .sum = sum, .move = move, .n_dims = n_dims };
	struct dlb_kernel *k;
	char what[100];

	for (int i = 0; i < n_dims; i++) {
		d.x[i] = 1 + (int64_t)dlb_rng_below(&rng, 9);
		d.y[i] = listed >> i & 1 ? 1 + (int64_t)dlb_rng_below(&rng, 9) : d.x[i];
		if (listed >> i & 1)
			draw_lists(&d, i);
	}
	struct arg in[] = { draw(desc(type, 0, n_dims, d.x)),
			    filled ? draw(desc(type, 0, 0, NULL)) : absent() };
	struct arg out = { desc(type, 0, n_dims, d.y), NULL };
	const int64_t n = dlb_desc_count(&out.d);

	out.v = zeros(n);
	for (int64_t i = 0; i < n; i++) {
		int64_t pos[MOST_DIMS], rest = i;

		for (int j = n_dims - 1; j >= 0; j--) {
			pos[j] = rest % d.y[j];
			rest /= d.y[j];
		}
		out.v[i] = is_empty(&d, pos) ? filled ? in[1].v[0] : 0 : sum_of(&d, in[0].v, pos, 0, 0);
	}
	snprintf(what, sizeof what, "taps %s, sums %s, move %d, %d dims, lists %x", dlb_dtype_name(type),
		 dlb_dtype_name(sum), move, n_dims, listed);
	MUST(be.ops->taps(&be, &d, &k, &err_));
	check_run(what, k, in, 2, &out, 1, move ? 0 : 8 * close_tol(type), NULL, NULL);
	release(in, 2);
	release(&out, 1);
	for (int i = 0; i < n_dims; i++) {
		free((void *)(uintptr_t)d.tap[i]);
		free((void *)(uintptr_t)d.end[i]);
	}
}

static void all(void)
{
	static const struct {
		enum dlb_dtype type, sum;
		bool move;
	} row[] = {
		{ DLB_F32, DLB_F32, false },  { DLB_F32, DLB_F64, false }, { DLB_F64, DLB_F64, false },
		{ DLB_BF16, DLB_F64, false }, { DLB_U8, DLB_U8, true },    { DLB_BF16, DLB_BF16, true },
		{ DLB_F32, DLB_F32, true },   { DLB_F64, DLB_F64, true },
	};

	for (int i = 0; i < DLB_LEN(row); i++)
		for (int n_dims = 1; n_dims <= MOST_DIMS; n_dims++)
			for (unsigned listed = 0; listed < 1u << n_dims; listed++)
				for (int times = 0; times < 6; times++)
					one(row[i].type, row[i].sum, row[i].move, n_dims, listed, times & 1);
}

int main(void)
{
	struct dlb_kernel *k = NULL;
	struct dlb_error err = { .what = "" };

	begin_tests(20261130);
	all();
	/* sums of doubles in single precision */
	assert(IS(be.ops->taps(&be, &(struct dlb_taps_desc){ .in = DLB_F64, .out = DLB_F64, .sum = DLB_F32 },
			       &k, &err),
		  ==, DLB_NO_KERNEL));
	be.ops->close(&be);
	printf("%ld sums of listed elements agree with the definition\n", n_checks);
	return 0;
}
