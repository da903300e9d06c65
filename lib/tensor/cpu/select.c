/* Elements chosen by value: the best ones of a line, their indices, and ones at given indices. */
#include <stdlib.h>
#include <string.h>

#include "tensor/cpu/cpu.h"

struct select_kernel { struct dlb_kernel k; struct dlb_select_desc d; };
struct sort_entry { double v; int64_t i; };

static int down(const void *a, const void *b)
{
	const struct sort_entry *x = a, *y = b;

	return x->v != y->v ? (x->v < y->v) - (x->v > y->v) : (x->i > y->i) - (x->i < y->i);
}

static int up(const void *a, const void *b)
{
	const struct sort_entry *x = a, *y = b;

	return x->v != y->v ? (x->v > y->v) - (x->v < y->v) : (x->i > y->i) - (x->i < y->i);
}

static void top_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct dlb_select_desc *s = &((const struct select_kernel *)k)->d;
	const size_t size = dlb_dtype_bytes(s->dtype);
	struct sort_entry *e = r->scratch;

	for (int64_t o = 0; o < s->outer; o++)
		for (int64_t p = 0; p < s->inner; p++) {
			for (int64_t i = 0; i < s->n; i++)
				e[i] = (struct sort_entry){
					dlb_value_real(r->in[0], s->dtype, (o * s->n + i) * s->inner + p), i
				};
			qsort(e, (size_t)s->n, sizeof *e, s->largest ? down : up);
			for (int64_t i = 0; i < s->m; i++) {
				int64_t to = (o * s->m + i) * s->inner + p,
					from = (o * s->n + e[i].i) * s->inner + p;

				if (r->out[0])
					memcpy((char *)r->out[0] + (size_t)to * size,
					       (const char *)r->in[0] + (size_t)from * size, size);
				if (r->out[1])
					((int64_t *)r->out[1])[to] = e[i].i;
			}
		}
}

/* Index of the chosen element of line (o, p). */
static int64_t best_of(const struct dlb_select_desc *s, const void *x, int64_t o, int64_t p)
{
	int64_t best = 0;
	double value = 0;

	for (int64_t i = 0; i < s->n; i++) {
		double v = dlb_value_real(x, s->dtype, (o * s->n + i) * s->inner + p);

		if (i == 0 || (s->largest ? v > value : v < value) || (s->last && v == value)) {
			best = i;
			value = v;
		}
	}
	return best;
}

static void arg_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct dlb_select_desc *s = &((const struct select_kernel *)k)->d;

	for (int64_t o = 0; o < s->outer; o++)
		for (int64_t p = 0; p < s->inner; p++)
			((int64_t *)r->out[0])[o * s->inner + p] = best_of(s, r->in[0], o, p);
}

static void hardmax_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct dlb_select_desc *s = &((const struct select_kernel *)k)->d;

	memset(r->out[0], 0, (size_t)(s->outer * s->n * s->inner) * dlb_dtype_bytes(s->dtype));
	for (int64_t o = 0; o < s->outer && s->n; o++)
		for (int64_t p = 0; p < s->inner; p++)
			dlb_value_set(r->out[0], s->dtype,
				      (o * s->n + best_of(s, r->in[0], o, p)) * s->inner + p, 1);
}

static void one_hot_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct dlb_select_desc *s = &((const struct select_kernel *)k)->d;
	const size_t size = dlb_dtype_bytes(s->dtype);
	char *to = r->out[0];

	for (int64_t o = 0; o < s->outer; o++)
		for (int64_t i = 0; i < s->n; i++)
			for (int64_t p = 0; p < s->inner; p++, to += size) {
				int64_t at = dlb_value_int(r->in[0], s->index, o * s->inner + p);

				memcpy(to,
				       (const char *)r->in[1] +
					       ((at < 0 ? at + s->n : at) == i ? size : 0),
				       size);
			}
}

int dlb_cpu_select(struct dlb_backend *b, const struct dlb_select_desc *d, struct dlb_kernel **k,
		   struct dlb_error *err)
{
	static void (*const run[])(struct dlb_kernel *, const struct dlb_run *) = {
		[DLB_SELECT_TOP] = top_run,
		[DLB_SELECT_ARG] = arg_run,
		[DLB_SELECT_HARDMAX] = hardmax_run,
		[DLB_SELECT_ONE_HOT] = one_hot_run,
	};
	struct select_kernel *s = dlb_xcalloc(1, sizeof *s);

	(void)b, (void)err;
	s->d = *d;
	s->k = (struct dlb_kernel){ .run = run[d->fn], .free = dlb_cpu_kernel_free, .impl = "loop" };
	if (d->fn == DLB_SELECT_TOP)
		s->k.scratch_bytes = (size_t)d->n * sizeof(struct sort_entry) + 64;
	*k = &s->k;
	return 0;
}
