/* Softmax and log-softmax along one axis of (outer, axis, inner), and their gradients.
 *   y = exp(x - max) / sum exp(x - max);   dx = y (dy - sum dy y)
 *   y = x - max - log sum exp(x - max);    dx = dy - exp(y) sum dy
 * Plain loops, measured faster than oneDNN's. Sums run in SUM_LANES partial sums, added in order. */
#include "tensor/cpu/cpu.h"
#include "tensor/cpu/real_math.h"
#include "tensor/cpu/threads.h"

typedef void softmax_fn(const struct dlb_softmax_desc *d, const struct dlb_run *r, int64_t from, int64_t end,
			void *scratch);
struct softmax_kernel {
	struct dlb_kernel k;
	struct dlb_softmax_desc d;
	softmax_fn *fn;			/* outer iterations [from, end) */
	int parts;
	size_t part_bytes;		/* scratch per part */
};
struct softmax_job { const struct softmax_kernel *s; const struct dlb_run *run; };

#include "tensor/cpu/f32.h"
#include "tensor/cpu/softmax_real.h"
#include "tensor/cpu/f64.h"
#include "tensor/cpu/softmax_real.h"

static void softmax_part(const void *ctx, int part, int parts)
{
	const struct softmax_job *job = ctx;
	const struct softmax_kernel *s = job->s;

	s->fn(&s->d, job->run, cpu_cut(s->d.outer, part, parts), cpu_cut(s->d.outer, part + 1, parts),
	      (char *)job->run->scratch + (size_t)part * s->part_bytes);
}

static void softmax_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct softmax_job job = { (const struct softmax_kernel *)k, r };

	dlb_cpu_parallel(job.s->parts, softmax_part, &job);
}

int dlb_cpu_softmax(struct dlb_backend *b, const struct dlb_softmax_desc *d, struct dlb_kernel **k,
		    struct dlb_error *err)
{
	struct softmax_kernel *s;
	bool f32 = d->dtype == DLB_F32;

	(void)err;
	if (!f32 && d->dtype != DLB_F64)
		return DLB_NO_KERNEL;
	s = dlb_xcalloc(1, sizeof *s);
	s->d = *d;
	s->parts = dlb_cpu_parts(b, 4 * d->outer * d->axis * d->inner, d->outer);
	if (d->inner == 1) {
		s->fn = d->backward ? (f32 ? softmax_rows_grad_f32 : softmax_rows_grad_f64) :
			(f32 ? softmax_rows_f32 : softmax_rows_f64);
	} else {
		s->fn = d->backward ? (f32 ? softmax_planes_grad_f32 : softmax_planes_grad_f64) :
			(f32 ? softmax_planes_f32 : softmax_planes_f64);
		s->part_bytes = 2 * cpu_round64((size_t)d->inner * dlb_dtype_bytes(d->dtype));
	}
	s->k = (struct dlb_kernel){ .run = softmax_run, .free = dlb_cpu_kernel_free, .impl = "loop",
				    .scratch_bytes = (size_t)s->parts * s->part_bytes };
	*k = &s->k;
	return 0;
}
