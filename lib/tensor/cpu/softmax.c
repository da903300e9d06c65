/* Softmax and log-softmax along one axis of (outer, axis, inner), and their gradients.
 *   y = exp(x - max) / sum exp(x - max);   dx = y (dy - sum dy y)
 *   y = x - max - log sum exp(x - max);    dx = dy - exp(y) sum dy
 * Plain loops: measured faster than oneDNN's. Sums run in SUM_LANES partial sums, added in order. */
#include "tensor/cpu/cpu.h"
#include "tensor/cpu/real_math.h"

struct softmax_kernel {
	struct dlb_kernel k;
	struct dlb_softmax_desc d;
};

#include "tensor/cpu/f32.h"
#include "tensor/cpu/softmax_real.h"
#include "tensor/cpu/f64.h"
#include "tensor/cpu/softmax_real.h"

int dlb_cpu_softmax(struct dlb_backend *b, const struct dlb_softmax_desc *d, struct dlb_kernel **k, struct dlb_error *err)
{
	struct softmax_kernel *s;
	bool f32 = d->dtype == DLB_F32;

	(void)b;
	(void)err;
	if (!f32 && d->dtype != DLB_F64)
		return DLB_NO_KERNEL;
	s = dlb_xcalloc(1, sizeof *s);
	s->d = *d;
	s->k = (struct dlb_kernel){ .free = dlb_cpu_kernel_free, .impl = "loop" };
	if (d->inner == 1) {
		s->k.run = d->backward ? (f32 ? softmax_rows_grad_f32 : softmax_rows_grad_f64) :
			(f32 ? softmax_rows_f32 : softmax_rows_f64);
	} else {
		s->k.run = d->backward ? (f32 ? softmax_planes_grad_f32 : softmax_planes_grad_f64) :
			(f32 ? softmax_planes_f32 : softmax_planes_f64);
		s->k.scratch_bytes = 2 * cpu_round64((size_t)d->inner * dlb_dtype_bytes(d->dtype));
	}
	*k = &s->k;
	return 0;
}
