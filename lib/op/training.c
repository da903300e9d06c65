/* ONNX's own optimizers (domain ai.onnx.preview.training): Momentum, Adam, Adagrad.
 *
 * Inputs {R, T, X 1..n, G 1..n, state}, outputs {X' 1..n, state'}: R is the learning rate, T the number of
 * updates so far; each tensor has one state (Momentum V, Adagrad H) or two (Adam V then H). They occur in
 * models that contain their training step; dlb-run's optimizers (lib/optim) are separate. Formulas: the ONNX
 * operator specification, version 1. */
#include "op/op_util.h"

#include <math.h>
#include <string.h>

enum update_rule { MOMENTUM, NESTEROV, ADAGRAD, ADAM };
struct optimizer {
	enum update_rule rule;
	int n, n_state;			/* tensors, states per tensor */
	enum dlb_dtype type, rate_type;
	int64_t count[64];
	double alpha, beta, epsilon, norm, norm_post, decay;
	bool standard;			/* Momentum in mode standard: beta is 1 in the first update */
};
enum { MAX_TENSORS = 64 };

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	int states = !strcmp(io->cls->name, "Adam") ? 2 : 1, n = (io->n_in - 2) / (2 + states);

	if (n < 1 || n > MAX_TENSORS || io->n_in != 2 + n * (2 + states) || io->n_out != n * (1 + states))
		return dlb_op_fail(io, err, "%d inputs and %d outputs do not fit together", io->n_in,
				   io->n_out);
	if (!dlb_dtype_is_float(io->in[0].dtype) || io->in[1].dtype != DLB_I64 ||
	    dlb_desc_count(&io->in[0]) != 1 || dlb_desc_count(&io->in[1]) != 1)
		return dlb_op_fail(io, err, "inputs 0 and 1 must be a float and an i64 scalar");
	for (int i = 0; i < n; i++) {
		const struct dlb_desc *x = &io->in[2 + i];

		for (int j = 0; j < 2 + states; j++)
			if (!dlb_desc_same_shape(x, &io->in[2 + j * n + i]) ||
			    io->in[2 + j * n + i].dtype != io->in[2].dtype)
				return dlb_op_fail(
					io, err,
					"tensor %d differs from its gradient or state in shape or type", i);
		for (int j = 0; j < 1 + states; j++)
			io->out[j * n + i] = *x;
	}
	return dlb_dtype_is_float(io->in[2].dtype) ? 0 : dlb_op_fail(io, err, "tensors must be floats");
}

static void run(const void *ctx, const struct dlb_run *r)
{
	const struct optimizer *o = ctx;
	double rate = dlb_value_real(r->in[0], o->rate_type, 0);
	int64_t t = *(const int64_t *)r->in[1];
	int n = o->n;

	if (o->rule == ADAGRAD)
		rate /= 1 + (double)t * o->decay;
	if (o->rule == ADAM && t > 0)
		rate *= sqrt(1 - pow(o->beta, (double)t)) / (1 - pow(o->alpha, (double)t));
	for (int i = 0; i < n; i++)
		for (int64_t j = 0; j < o->count[i]; j++) {
			double x = dlb_value_real(r->in[2 + i], o->type, j);
			double g = dlb_value_real(r->in[2 + n + i], o->type, j) + o->norm * x;
			double v = dlb_value_real(r->in[2 + 2 * n + i], o->type, j);
			double b = o->standard && t == 0 ? 1 : o->beta, h;

			switch (o->rule) {
			case MOMENTUM:
				v = o->alpha * v + b * g;
				x -= rate * v;
				break;
			case NESTEROV:
				v = o->alpha * v + b * g;
				x -= rate * (g + o->alpha * v);
				break;
			case ADAGRAD:
				v += g * g;
				x -= rate * g / (sqrt(v) + o->epsilon);
				break;
			case ADAM:
				h = dlb_value_real(r->in[2 + 3 * n + i], o->type, j);
				v = o->alpha * v + (1 - o->alpha) * g;
				h = o->beta * h + (1 - o->beta) * g * g;
				x = (1 - o->norm_post) * (x - rate * v / (sqrt(h) + o->epsilon));
				dlb_value_set(r->out[2 * n + i], o->type, j, h);
				break;
			}
			dlb_value_set(r->out[i], o->type, j, x);
			dlb_value_set(r->out[n + i], o->type, j, v);
		}
}

static int kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		  struct dlb_error *err)
{
	bool adam = !strcmp(io->cls->name, "Adam"), momentum = !strcmp(io->cls->name, "Momentum");
	struct optimizer o = { .type = io->in[2].dtype,
			       .rate_type = io->in[0].dtype,
			       .n_state = adam ? 2 : 1 };

	o.n = (io->n_in - 2) / (2 + o.n_state);
	for (int i = 0; i < o.n; i++)
		o.count[i] = dlb_desc_count(&io->in[2 + i]);
	o.norm = dlb_io_real(io, "norm_coefficient", 0);
	o.norm_post = dlb_io_real(io, "norm_coefficient_post", 0);
	o.epsilon = dlb_io_real(io, "epsilon", 1e-6);
	o.decay = dlb_io_real(io, "decay_factor", 0);
	o.alpha = dlb_io_real(io, "alpha", 0.9);
	o.beta = dlb_io_real(io, "beta", momentum ? 1 : 0.999);
	o.rule = adam ? ADAM : ADAGRAD;
	if (momentum) {
		o.rule = !strcmp(dlb_io_str(io, "mode", "standard"), "nesterov") ? NESTEROV : MOMENTUM;
		o.standard = true;
	}
	return be->ops->host(be, run, &o, sizeof o, 0, k, err);
}

static double flops(const struct dlb_op_io *io)
{
	double n = 0;

	for (int i = 0; i < io->n_out; i++)
		n += 5.0 * (double)dlb_desc_count(&io->out[i]);
	return n;
}

#define OPTIMIZER(n) \
	const struct dlb_op_class dlb_op_Training##n = { .name = #n, \
							 .domain = "ai.onnx.preview.training", \
							 .n_in = { 5, -1 }, \
							 .n_out = { 2, -1 }, \
							 .flags = DLB_OP_NO_FOLD | DLB_OP_ON_CPU, \
							 .work = "update", \
							 .infer = infer, \
							 .flops = flops, \
							 .kernel = kernel };
OPTIMIZER(Momentum)
OPTIMIZER(Adam)
OPTIMIZER(Adagrad)
