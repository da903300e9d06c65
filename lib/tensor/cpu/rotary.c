/* Rotation of pairs by position (struct dlb_rotary_desc), rows in the order of memory. */
#include "tensor/cpu/cpu.h"
#include "tensor/cpu/threads.h"
#include "tensor/rotary.h"

struct rotary_kernel {
	struct dlb_kernel k;
	struct dlb_rotary_desc d;
	int parts;
};
struct rotary_job {
	const struct rotary_kernel *k;
	const struct dlb_run *run;
};
typedef void rotary_row_fn(const struct dlb_rotary_desc *d, const struct dlb_run *r, int64_t at, int64_t e);

/* Rotates one row of a head; inlined, so that the distances are constants for the compiler. */
#define ROTARY(T) \
	static inline \
		__attribute__((always_inline)) void turn_by_##T(int64_t step, int64_t half, T sign, \
								const T *restrict x, const T *restrict c, \
								const T *restrict s, T *restrict y) \
	{ \
		const int64_t far = step == 1 ? half : 1; \
		for (int64_t j = 0; j < half; j++) { \
			const T u = x[j * step], v = x[j * step + far]; \
			y[j * step] = u * c[j] - v * (sign * s[j]); \
			y[j * step + far] = u * (sign * s[j]) + v * c[j]; \
		} \
	} \
	static void turn_row_##T(const struct dlb_rotary_desc *d, const struct dlb_run *r, int64_t at, \
				 int64_t e) \
	{ \
		const T *x = (const T *)r->in[0] + at, *c = r->in[1], *s = r->in[2], \
			sign = d->inverse ? -1 : 1; \
		const size_t turned = (size_t)(2 * d->half), rest = (size_t)d->width - turned; \
		T *y = (T *)r->out[0] + at; \
		if (rest) \
			memcpy(y + turned, x + turned, rest * sizeof *y); \
		if (e < 0) \
			memset(y, 0, turned * sizeof *y); \
		else if (d->step == 1) \
			turn_by_##T(1, d->half, sign, x, c + e, s + e, y); \
		else \
			turn_by_##T(2, d->half, sign, x, c + e, s + e, y); \
	}
ROTARY(float)
ROTARY(double)
#undef ROTARY

/* Rotates the rows of `part`. They are taken in the order of memory: heads within rows, or rows within
 * heads. */
static void rotary_part(const void *ctx, int part, int parts)
{
	const struct rotary_job *job = ctx;
	const struct dlb_rotary_desc *d = &job->k->d;
	rotary_row_fn *turn = d->dtype == DLB_F32 ? turn_row_float : turn_row_double;
	const bool heads_inside = d->x[1] < d->x[2];
	const int64_t inner = heads_inside ? d->heads : d->rows, outer = heads_inside ? d->rows : d->heads,
		      n = d->batch * outer;

	for (int64_t u = cpu_cut(n, part, parts), end = cpu_cut(n, part + 1, parts); u < end; u++)
		for (int64_t v = 0; v < inner; v++) {
			const int64_t b = u / outer, h = heads_inside ? v : u % outer,
				      i = heads_inside ? u % outer : v;

			turn(d, job->run, dlb_rotary_place(d, b, h, i),
			     dlb_rotary_entry(d, job->run->in[3], b, i));
		}
}

static void rotary_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct rotary_job job = { (const struct rotary_kernel *)k, r };

	dlb_cpu_parallel(job.k->parts, rotary_part, &job);
}

int dlb_cpu_rotary(struct dlb_backend *b, const struct dlb_rotary_desc *d, struct dlb_kernel **k,
		   struct dlb_error *err)
{
	struct rotary_kernel *r;

	(void)err;
	if (d->dtype != DLB_F32 && d->dtype != DLB_F64)
		return DLB_NO_KERNEL;
	r = dlb_xcalloc(1, sizeof *r);
	r->k = (struct dlb_kernel){ .run = rotary_run, .free = dlb_cpu_kernel_free, .impl = "loop" };
	r->d = *d;
	r->parts = dlb_cpu_parts(b, d->batch * d->heads * d->rows * d->width, d->batch * d->rows);
	*k = &r->k;
	return 0;
}
