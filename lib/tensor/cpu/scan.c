/* Running sums and products along an axis, and their gradients. */
#include "tensor/cpu/cpu.h"

struct scan_kernel { struct dlb_kernel k; struct dlb_scan_desc d; };

/* The index of element k, counted in the operator's direction, of line l of outer * inner lines. */
static int64_t place(const struct dlb_scan_desc *s, int64_t l, int64_t k)
{
	return (l / s->inner * s->n + (s->reverse ? s->n - 1 - k : k)) * s->inner + l % s->inner;
}

static void run_reals(const struct dlb_scan_desc *s, const struct dlb_run *r, bool product)
{
	for (int64_t l = 0; l < s->outer * s->inner; l++) {
		double sum = product;

		for (int64_t k = 0; k < s->n; k++) {
			const int64_t at = place(s, l, k);
			const double v = dlb_value_real(r->in[0], s->dtype, at),
				     next = product ? sum * v : sum + v;

			dlb_value_set(r->out[0], s->dtype, at, s->exclusive ? sum : next);
			sum = next;
		}
	}
}

static void run_ints(const struct dlb_scan_desc *s, const struct dlb_run *r, bool product)
{
	for (int64_t l = 0; l < s->outer * s->inner; l++) {
		uint64_t sum = product;

		for (int64_t k = 0; k < s->n; k++) {
			const int64_t at = place(s, l, k);
			const uint64_t v = (uint64_t)dlb_value_int(r->in[0], s->dtype, at),
				       next = product ? sum * v : sum + v;

			dlb_value_set_int(r->out[0], s->dtype, at, (int64_t)(s->exclusive ? sum : next));
			sum = next;
		}
	}
}

static void scan_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct dlb_scan_desc *s = &((const struct scan_kernel *)k)->d;

	(dlb_dtype_is_float(s->dtype) ? run_reals : run_ints)(s, r, s->fn == DLB_SCAN_PRODUCT);
}

static void product_grad_run(struct dlb_kernel *kernel, const struct dlb_run *r)
{
	const struct dlb_scan_desc *s = &((const struct scan_kernel *)kernel)->d;

	for (int64_t l = 0; l < s->outer * s->inner; l++) {
		double sum = 0, before = 1;

		for (int64_t k = s->n - 1; k >= 0; k--) {		/* s[k], then multiplied by p[k] */
			const double x = k + 1 < s->n ?
						 dlb_value_real(r->in[1], s->dtype, place(s, l, k + 1)) :
						 0;
			const int64_t from = s->exclusive ? k + 1 : k;

			sum = (from < s->n ? dlb_value_real(r->in[0], s->dtype, place(s, l, from)) : 0) +
			      x * sum;
			((double *)r->scratch)[k] = sum;
		}
		for (int64_t k = 0; k < s->n; k++) {
			const int64_t at = place(s, l, k);

			dlb_value_set(r->out[0], s->dtype, at, before * ((double *)r->scratch)[k]);
			before *= dlb_value_real(r->in[1], s->dtype, at);
		}
	}
}

static void others_run(struct dlb_kernel *kernel, const struct dlb_run *r)
{
	const struct dlb_scan_desc *s = &((const struct scan_kernel *)kernel)->d;
	double *before = r->scratch;

	for (int64_t l = 0; l < s->outer * s->inner; l++) {
		double product = 1;

		for (int64_t k = 0; k < s->n; k++) {
			before[k] = product;
			product *= dlb_value_real(r->in[1], s->dtype, place(s, l, k));
		}
		product = dlb_value_real(r->in[0], s->dtype, l);
		for (int64_t k = s->n - 1; k >= 0; k--) {
			const int64_t at = place(s, l, k);

			dlb_value_set(r->out[0], s->dtype, at, before[k] * product);
			product *= dlb_value_real(r->in[1], s->dtype, at);
		}
	}
}

int dlb_cpu_scan(struct dlb_backend *b, const struct dlb_scan_desc *d, struct dlb_kernel **k,
		 struct dlb_error *err)
{
	const bool gradient = d->fn == DLB_SCAN_PRODUCT_GRAD || d->fn == DLB_SCAN_OTHERS;
	struct scan_kernel *s = dlb_xcalloc(1, sizeof *s);

	(void)b, (void)err;
	s->d = *d;
	s->k = (struct dlb_kernel){ .run = !gradient ? scan_run : d->fn == DLB_SCAN_OTHERS ? others_run :
										       product_grad_run,
				    .free = dlb_cpu_kernel_free,
				    .scratch_bytes = gradient ? (size_t)d->n * sizeof(double) + 64 : 0,
				    .impl = "loop" };
	*k = &s->k;
	return 0;
}
