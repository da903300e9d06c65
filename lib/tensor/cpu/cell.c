/* Cells of recurrent networks: one step of one sample without the products. */
#include <math.h>

#include "tensor/cpu/cpu.h"
#include "tensor/cpu/real_math.h"

struct cell_kernel {
	struct dlb_kernel k;
	struct dlb_cell_desc d;
	bool usual;			/* sigmoid for gates, tanh for all else */
};

#include "tensor/cpu/f32.h"
#include "tensor/cpu/cell_real.h"
#include "tensor/cpu/f64.h"
#include "tensor/cpu/cell_real.h"

int dlb_cpu_cell(struct dlb_backend *b, const struct dlb_cell_desc *d, struct dlb_kernel **k,
		 struct dlb_error *err)
{
	const bool rnn = d->loop == DLB_CELL_RNN || d->loop == DLB_CELL_RNN_GRAD;
	struct cell_kernel *c;

	(void)b;
	(void)err;
	if (d->dtype != DLB_F32 && d->dtype != DLB_F64)
		return DLB_NO_KERNEL;
	c = dlb_xcalloc(1, sizeof *c);
	c->d = *d;
	c->usual = rnn ? d->act[0] == DLB_CELL_TANH :
			 d->act[0] == DLB_CELL_SIGMOID && d->act[1] == DLB_CELL_TANH &&
				   (d->loop < DLB_CELL_LSTM || d->act[2] == DLB_CELL_TANH);
	c->k = (struct dlb_kernel){ .run = d->dtype == DLB_F32 ? cell_run_f32 : cell_run_f64,
				    .free = dlb_cpu_kernel_free,
				    .impl = "loop" };
	*k = &c->k;
	return 0;
}
