/* Softmax and LogSoftmax. Before opset 13 they act on the input as a matrix, flattened at `axis`
 * (default 1); later on one axis (default the last). For the gradients "flatten" distinguishes the
 * two, so they need no opset. */
#include "op/op_util.h"

#include <math.h>
#include <string.h>

static int shape(const struct dlb_op_io *io, struct dlb_softmax_desc *s, bool *flatten, int *axis,
		 struct dlb_error *err)
{
	const struct dlb_desc *x = &io->in[0];

	*flatten = io->cls->domain ? dlb_io_int(io, "flatten", 0) != 0 : io->opset < 13;
	*axis = 0;
	if (x->n_dims > 0) {
		*axis = dlb_axis(io, dlb_io_int(io, "axis", *flatten ? 1 : -1), x->n_dims, err);
		if (*axis < 0)
			return -1;
	}
	*s = (struct dlb_softmax_desc){ .dtype = x->dtype,
					.log = !strncmp(io->cls->name, "Log", 3),
					.backward = io->cls->domain != NULL,
					.outer = dlb_desc_range(x, 0, *axis),
					.axis = 1,
					.inner = 1 };
	if (*flatten) {
		s->axis = dlb_desc_range(x, *axis, x->n_dims);
	} else if (x->n_dims > 0) {
		s->axis = x->dim[*axis];
		s->inner = dlb_desc_range(x, *axis + 1, x->n_dims);
	}
	return 0;
}

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct dlb_softmax_desc s;
	bool flatten;
	int axis;

	if (shape(io, &s, &flatten, &axis, err))
		return -1;
	if (io->n_in > 1 && (dlb_same_types(io, 0, 2, err) || dlb_same_shapes(io, 0, 1, err)))
		return -1;
	return dlb_infer_same(io, err);
}

/* Softmax of f16 rounds x - max, exp and the sum to f16, as ONNX defines it. */
static void run_f16(const void *ctx, const struct dlb_run *r)
{
	const struct dlb_softmax_desc *s = ctx;

	for (int64_t l = 0; l < s->outer * s->inner && s->axis; l++) {
		const int64_t at = l / s->inner * s->axis * s->inner + l % s->inner,
			      end = at + s->axis * s->inner;
		double most = -INFINITY, sum = 0;
		uint16_t *y = r->out[0], rounded;

		for (int64_t i = at; i < end; i += s->inner)
			most = fmax(most, dlb_value_real(r->in[0], DLB_F16, i));
		for (int64_t i = at; i < end; i += s->inner) {
			dlb_value_set(y, DLB_F16, i, dlb_value_real(r->in[0], DLB_F16, i) - most);
			dlb_value_set(y, DLB_F16, i, exp(dlb_value_real(y, DLB_F16, i)));
			sum += dlb_value_real(y, DLB_F16, i);
		}
		dlb_value_set(&rounded, DLB_F16, 0, sum);
		for (int64_t i = at; i < end; i += s->inner)
			dlb_value_set(y, DLB_F16, i,
				      dlb_value_real(y, DLB_F16, i) / dlb_value_real(&rounded, DLB_F16, 0));
	}
}

static int kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		  struct dlb_error *err)
{
	struct dlb_softmax_desc s;
	bool flatten;
	int axis;

	if (shape(io, &s, &flatten, &axis, err))
		return -1;
	if (s.dtype == DLB_F16 && !s.log && !s.backward)
		return be->ops->host(be, run_f16, &s, sizeof s, 0, k, err);
	return be->ops->softmax(be, &s, k, err);
}

static int gradient(struct dlb_builder *b, struct dlb_error *err)
{
	struct dlb_softmax_desc s;
	struct dlb_attr a[2];
	bool flatten;
	int axis;

	if (!b->need[0])
		return 0;
	if (shape(&b->io, &s, &flatten, &axis, err))
		return -1;
	a[0] = dlb_make_int("axis", axis);
	a[1] = dlb_make_int("flatten", flatten);
	return dlb_b_gradient(b, DLB_SPEC_ATTR(s.log ? "LogSoftmaxGrad" : "SoftmaxGrad", a, 2, b->dout[0],
					       b->out[0]));
}

static double flops(const struct dlb_op_io *io)
{
	return 15.0 * (double)dlb_desc_count(&io->out[0]);
}

static double grad_flops(const struct dlb_op_io *io)
{
	return 4.0 * (double)dlb_desc_count(&io->out[0]);
}

#define SOFTMAX(n, type) \
	const struct dlb_op_class dlb_op_##n = { .name = #n, \
						 .n_in = { 1, 1 }, \
						 .n_out = { 1, 1 }, \
						 .bf16 = type, \
						 .overwrite = 1, \
						 .work = "activation", \
						 .infer = infer, \
						 .flops = flops, \
						 .gradient = gradient, \
						 .kernel = kernel };
#define GRADIENT(n) \
	const struct dlb_op_class dlb_op_##n = { .name = #n, \
						 .domain = "dlb", \
						 .n_in = { 2, 2 }, \
						 .n_out = { 1, 1 }, \
						 .overwrite = 3, \
						 .work = "activation", \
						 .infer = infer, \
						 .flops = grad_flops, \
						 .kernel = kernel };
SOFTMAX(Softmax, DLB_BF16_FOLLOWS)
SOFTMAX(LogSoftmax, DLB_BF16_NEVER)
GRADIENT(SoftmaxGrad)
GRADIENT(LogSoftmaxGrad)
