/* Kernels along lines, select and scan, against their definitions: short and long lines, side by side or not. */
#include "kernels.h"

struct lines { int64_t outer, n, inner; };

static int64_t at(const struct lines *s, int64_t n, int64_t l, int64_t i)
{
	return (l / s->inner * n + i) * s->inner + l % s->inner;
}

static void same(const char *what, const struct lines *s, int64_t i, double got, double want, double tolerance)
{
	if (fabs(got - want) <= tolerance * (1 + fabs(want)))
		return;
	fprintf(stderr, "%s of (%lld, %lld, %lld): element %lld is %.17g, expected %.17g\n", what, (long long)s->outer,
		(long long)s->n, (long long)s->inner, (long long)i, got, want);
	abort();
}

/* Whole numbers, so that many are equal; zero, when asked, is rare enough for products. */
static void *whole_numbers(enum dlb_dtype t, int64_t n, int range)
{
	void *p = dlb_xcalloc((size_t)n + 1, 8);

	for (int64_t i = 0; i < n; i++)
		dlb_value_set(p, t, i, floor(range * dlb_rng_uniform(&rng)) - range / 2);
	return p;
}

/* The number of elements of the line that are chosen before element i. */
static int64_t rank_of(const struct lines *s, enum dlb_dtype t, const void *x, int64_t l, int64_t i, bool largest,
		       bool last)
{
	const double v = dlb_value_real(x, t, at(s, s->n, l, i));
	int64_t rank = 0;

	for (int64_t j = 0; j < s->n; j++) {
		const double w = dlb_value_real(x, t, at(s, s->n, l, j));

		rank += w == v ? (last ? j > i : j < i) : largest ? w > v : w < v;
	}
	return rank;
}

static void choose(const struct lines *s, enum dlb_dtype t, enum dlb_select_fn fn, int64_t m, bool largest, bool last)
{
	const struct dlb_select_desc d = { .fn = fn, .dtype = t, .outer = s->outer, .n = s->n, .inner = s->inner, .m = m,
					   .largest = largest, .last = last };
	const int64_t lines = s->outer * s->inner;
	void *x = whole_numbers(t, lines * s->n, 50), *y = whole_numbers(t, lines * s->n, 50);
	int64_t *index = dlb_xcalloc((size_t)(lines * m) + 1, sizeof *index);
	struct dlb_kernel *k;

	MUST(be.ops->select(&be, &d, &k, &err_));
	run_plainly(k, &x, (void *const[]){ fn == DLB_SELECT_ARG ? (void *)index : y, index });
	for (int64_t l = 0; l < lines; l++)
		for (int64_t i = 0; i < s->n; i++) {
			const int64_t rank = rank_of(s, t, x, l, i, largest, last), from = at(s, s->n, l, i),
				      to = at(s, m, l, rank);

			if (fn == DLB_SELECT_HARDMAX)
				same("hardmax", s, from, dlb_value_real(y, t, from), rank == 0, 0);
			else if (rank < m)
				same("index", s, to, (double)index[fn == DLB_SELECT_ARG ? l : to], (double)i, 0);
			if (fn == DLB_SELECT_TOP && rank < m)
				same("value", s, to, dlb_value_real(y, t, to), dlb_value_real(x, t, from), 0);
		}
	free(x), free(y), free(index);
}

static void scan(const struct lines *s, enum dlb_dtype t, enum dlb_scan_fn fn, bool exclusive, bool reverse)
{
	const struct dlb_scan_desc d = { .fn = fn, .dtype = t, .outer = s->outer, .n = s->n, .inner = s->inner,
					 .exclusive = exclusive, .reverse = reverse };
	const int64_t lines = s->outer * s->inner;
	const bool product = fn == DLB_SCAN_PRODUCT;
	void *x = whole_numbers(t, lines * s->n, product ? 2 : 50), *y = whole_numbers(t, lines * s->n, 50);
	struct dlb_kernel *k;

	for (int64_t i = 0; i < lines * s->n && product; i++)		/* -1 and 1: products stay exact */
		dlb_value_set(x, t, i, dlb_value_real(x, t, i) < 0 ? -1 : 1);
	MUST(be.ops->scan(&be, &d, &k, &err_));
	run_plainly(k, &x, &y);
	for (int64_t l = 0; l < lines; l++) {
		double sum = product;

		for (int64_t i = 0; i < s->n; i++) {
			const int64_t e = at(s, s->n, l, reverse ? s->n - 1 - i : i);
			const double v = dlb_value_real(x, t, e), next = product ? sum * v : sum + v;

			same(product ? "product" : "sum", s, e, dlb_value_real(y, t, e), exclusive ? sum : next, 0);
			sum = next;
		}
	}
	free(x), free(y);
}

int main(void)
{
	static const struct lines shapes[] = { { 3, 7, 1 }, { 2, 5, 40 }, { 4, 100, 3 }, { 2, 1500, 1 }, { 1, 700, 2 } };
	static const enum dlb_dtype types[] = { DLB_F32, DLB_F64, DLB_I32, DLB_I64 };

	begin_tests(20261126);
	for (int i = 0; i < DLB_LEN(shapes); i++)
		for (int t = 0; t < DLB_LEN(types); t++)
			for (int option = 0; option < 4; option++) {
				const struct lines *s = &shapes[i];
				const bool a = option & 1, b = option & 2;

				choose(s, types[t], DLB_SELECT_TOP, 3, a, false);
				choose(s, types[t], DLB_SELECT_TOP, s->n < 80 ? s->n : 80, a, false);
				choose(s, types[t], DLB_SELECT_ARG, 1, a, b);
				choose(s, types[t], DLB_SELECT_HARDMAX, 1, true, false);
				scan(s, types[t], DLB_SCAN_SUM, a, b);
				scan(s, types[t], DLB_SCAN_PRODUCT, a, b);
			}
	be.ops->close(&be);
	printf("%ld runs agree with their definition\n", n_checks);
	return 0;
}
