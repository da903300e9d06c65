/* Classification losses: negative log-likelihood of given log-probabilities (nll), and softmax cross-entropy
 * of logits (sce). x is (N, classes, inner) row-major, labels (N, inner).
 *   loss[i] = -w[t_i] log p[i, t_i];  mean: sum loss / sum w[t_i] over labels that are not ignored
 * A label outside [0, classes) that is not the ignored one makes its loss and gradient NaN. */
#include <math.h>

#include "tensor/cpu/cpu.h"
#include "tensor/cpu/real_math.h"

struct loss_kernel {
	struct dlb_kernel k;
	struct dlb_loss_desc d;
};

static inline int64_t label_at(const struct dlb_loss_desc *d, const void *t, int64_t i)
{
	return d->label == DLB_I64 ? ((const int64_t *)t)[i] : ((const int32_t *)t)[i];
}

/* Index of the label in a part of the classes; -1: before the part. */
static inline int64_t own_label_at(const struct dlb_loss_desc *d, const void *t, int64_t i)
{
	const int64_t c = label_at(d, t, i);

	return c < d->first ? -1 : c - d->first;
}

static inline bool ignored(const struct dlb_loss_desc *d, int64_t t)
{
	return d->has_ignore && t == d->ignore;
}

#include "tensor/cpu/f32.h"
#include "tensor/cpu/loss_real.h"
#include "tensor/cpu/f64.h"
#include "tensor/cpu/loss_real.h"

/* [stage][backward][f64] */
static void (*const runs[][2][2])(struct dlb_kernel *k, const struct dlb_run *r) = {
	[DLB_LOSS_WHOLE] = { { loss_forward_f32, loss_forward_f64 }, { loss_grad_f32, loss_grad_f64 } },
	[DLB_LOSS_PART] = { { part_forward_f32, part_forward_f64 }, { part_grad_f32, part_grad_f64 } },
	[DLB_LOSS_JOIN] = { { join_forward_f32, join_forward_f64 }, { join_grad_f32, join_grad_f64 } },
};

int dlb_cpu_loss(struct dlb_backend *b, const struct dlb_loss_desc *d, struct dlb_kernel **k,
		 struct dlb_error *err)
{
	struct loss_kernel *l;
	bool f32 = d->dtype == DLB_F32;

	(void)b;
	(void)err;
	if ((!f32 && d->dtype != DLB_F64) || (d->label != DLB_I32 && d->label != DLB_I64))
		return DLB_NO_KERNEL;
	l = dlb_xcalloc(1, sizeof *l);
	l->d = *d;
	l->k = (struct dlb_kernel){
		.run = runs[d->stage][d->backward][!f32],
		.free = dlb_cpu_kernel_free, .impl = "loop" };
	*k = &l->k;
	return 0;
}
