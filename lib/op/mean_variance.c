/* MeanVarianceNormalization: y = (x - mean) / (s + 1e-9), with mean and standard deviation s over `axes`
 * (default: all but the channels). With d = s + 1e-9: dx = (dy - mean(dy)) / d - y mean(dy y) / s. */
#include "op/op_util.h"

static const double epsilon = 1e-9;

static int64_t axes_of(const struct dlb_op_io *io, struct dlb_error *err)
{
	const struct dlb_desc *x = &io->in[0];
	int64_t usual = 0;

	for (int i = 0; i < x->n_dims && i < 4; i++)
		usual |= i == 1 ? 0 : (int64_t)1 << i;
	return dlb_io_axes(io, -1, x->n_dims, usual, err);
}

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	if (axes_of(io, err) < 0)
		return -1;
	return dlb_infer_same(io, err);
}

static int kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		  struct dlb_error *err)
{
	const struct dlb_desc *x = &io->in[0];
	const int64_t axes = axes_of(io, err);
	struct dlb_desc stat = *x;
	struct dlb_chain *c;
	int mean, dev;

	if (axes < 0)
		return -1;
	if (x->dtype != DLB_F32 && x->dtype != DLB_F64)
		return DLB_NO_KERNEL;
	for (int i = 0; i < x->n_dims; i++)
		stat.dim[i] = axes >> i & 1 ? 1 : x->dim[i];
	c = dlb_chain_new(be, err);
	mean = dlb_chain_temp(c, &stat);
	dev = dlb_chain_temp(c, &stat);
	const int moved = dlb_chain_temp(c, x), square = dlb_chain_temp(c, x);
	const struct dlb_desc *const xs[2] = { x, &stat }, *const both[2] = { x, x };

	dlb_chain_reduce(c, DLB_REDUCE_FN_MEAN, (unsigned)axes, DLB_IN(0), x, mean, &stat);
	dlb_chain_map(c, DLB_MAP(sub, 2), DLB_REFS(DLB_IN(0), mean), xs, moved, x);
	dlb_chain_map(c, DLB_MAP(mul, 2), DLB_REFS(moved, moved), both, square, x);
	dlb_chain_reduce(c, DLB_REDUCE_FN_MEAN, (unsigned)axes, square, x, mean, &stat);
	dlb_chain_map(c, DLB_MAP(sqrt, 1), &mean, &xs[1], dev, &stat);
	dlb_chain_map(c, &(struct dlb_map){ .fn = DLB_MAP_linear, .n_in = 1, .alpha = 1, .beta = epsilon },
		      &dev, &xs[1], mean, &stat);
	dlb_chain_map(c, DLB_MAP(div, 2), DLB_REFS(moved, mean), xs, DLB_OUT(0), x);
	return dlb_chain_finish(c, k);
}

static double flops(const struct dlb_op_io *io)
{
	return 6.0 * (double)dlb_desc_count(&io->in[0]);
}

static int gradient(struct dlb_builder *b, struct dlb_error *err)
{
	const int64_t mask = axes_of(&b->io, err);
	int64_t axis[DLB_MAX_DIMS];
	int n = 0, s, d, left, right, moved;

	if (mask < 0)
		return -1;
	if (!b->need[0])
		return 0;
	for (int i = 0; i < b->io.in[0].n_dims; i++)
		if (mask >> i & 1)
			axis[n++] = i;
	struct dlb_attr a = dlb_make_ints("axes", axis, n);
#define MEAN(t) dlb_b_op(b, DLB_SPEC_ATTR("ReduceMean", &a, 1, t), NULL, -1)
	moved = dlb_b_op2(b, "Sub", b->in[0], MEAN(b->in[0]));
	s = dlb_b_op1(b, "Sqrt", MEAN(dlb_b_op2(b, "Mul", moved, moved)));
	d = dlb_b_op2(b, "Add", s, dlb_b_const_real(b, epsilon, b->io.in[0].dtype));
	left = dlb_b_op2(b, "Div", dlb_b_op2(b, "Sub", b->dout[0], MEAN(b->dout[0])), d);
	right = dlb_b_op2(b, "Div", MEAN(dlb_b_op2(b, "Mul", b->dout[0], b->out[0])), s);
#undef MEAN
	b->din[0] = dlb_b_op2(b, "Sub", left, dlb_b_op2(b, "Mul", b->out[0], right));
	return b->din[0] < 0 ? -1 : 0;
}

const struct dlb_op_class dlb_op_MeanVarianceNormalization = { .name = "MeanVarianceNormalization",
							       .n_in = { 1, 1 },
							       .n_out = { 1, 1 },
							       .flags = DLB_OP_MIXES_BATCH,
							       .work = "norm",
							       .infer = infer,
							       .flops = flops,
							       .gradient = gradient,
							       .kernel = kernel };
