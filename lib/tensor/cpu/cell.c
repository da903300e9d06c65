/* Cells of recurrent networks: one step of all samples without the products. */
#include <math.h>
#include <string.h>

#include "tensor/cpu/cpu.h"
#include "tensor/cpu/real_math.h"

struct cell_kernel {
	struct dlb_kernel k;
	struct dlb_cell_desc d;
	bool usual;			/* sigmoid for gates, tanh for all else */
};

enum { N_IN = 7, N_OUT = 5, LENGTHS = 6 };

static bool is_gru(const struct dlb_cell_desc *d)
{
	return d->loop >= DLB_CELL_GRU && d->loop <= DLB_CELL_GRU_GRAD_RESET;
}

static bool is_gradient(const struct dlb_cell_desc *d)
{
	return d->loop == DLB_CELL_RNN_GRAD || d->loop == DLB_CELL_GRU_GRAD ||
	       d->loop == DLB_CELL_GRU_GRAD_RESET || d->loop == DLB_CELL_LSTM_GRAD;
}

#include "tensor/cpu/f32.h"
#include "tensor/cpu/cell_real.h"
#include "tensor/cpu/f64.h"
#include "tensor/cpu/cell_real.h"

/* The operands of sample n. */
static void place(const struct dlb_cell_desc *d, const struct dlb_run *r, int64_t n, void *in[N_IN],
		  void *out[N_OUT])
{
	const int64_t forth_in[N_IN] = { d->x_row, d->rec_row, 0, 0, d->h, d->h },
		      back_in[N_IN] = { d->h, d->h, d->h, 0, d->h, d->y_row },
		      forth_out[N_OUT] = { d->h, d->y_row }, back_out[N_OUT] = { d->h, d->h, d->x_row, d->rec_row };
	const bool back = is_gradient(d);
	const int64_t *row_in = back ? back_in : forth_in, *row_out = back ? back_out : forth_out,
		      bytes = (int64_t)dlb_dtype_bytes(d->dtype);

	for (int i = 0; i < N_IN; i++)
		in[i] = r->in[i] ? (char *)r->in[i] + n * row_in[i] * bytes : NULL;
	for (int i = 0; i < (back ? N_OUT : 2); i++)
		out[i] = r->out[i] ? (char *)r->out[i] + n * row_out[i] * bytes : NULL;
}

static void cell_run(struct dlb_kernel *kernel, const struct dlb_run *r)
{
	const struct cell_kernel *k = (const struct cell_kernel *)kernel;
	const struct dlb_cell_desc *d = &k->d;
	void *in[N_IN], *out[N_OUT];
	struct dlb_run one = *r;

	one.in = in;
	one.out = out;
	for (int64_t n = 0; n < d->n; n++) {
		const bool ended = r->in[LENGTHS] && (int64_t)r->step >= dlb_value_int(r->in[LENGTHS], d->length, n);

		place(d, r, n, in, out);
		if (is_gradient(d))
			(d->dtype == DLB_F32 ? back_f32 : back_f64)(k, &one, ended);
		else
			(d->dtype == DLB_F32 ? forth_f32 : forth_f64)(k, &one, ended);
	}
}

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
	c->k = (struct dlb_kernel){ .run = cell_run,
				    .free = dlb_cpu_kernel_free,
				    .impl = "loop" };
	*k = &c->k;
	return 0;
}
