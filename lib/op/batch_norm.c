/* BatchNormalization over all dimensions but 1, and its gradients.
 *
 * It uses batch statistics and updates the running ones ("trains") if training_mode is set (opset
 * 14 and later); in opsets 7 to 13 if the vertex has more than one output; in opset 6 without
 * is_test in a training graph. Then
 *     running' = running * momentum + batch * (1 - momentum)
 * with the batch's biased variance (with our attribute "unbiased", PyTorch's n/(n-1)). The running statistics
 * (inputs 3, 4) are state and are written in place; outputs 1 and 2 receive copies if they have readers.
 * Outputs 3 and 4 are the saved mean and 1/sqrt(var + epsilon) that BatchNormalizationGrad reads.
 * Sergey Ioffe, Christian Szegedy, Batch Normalization, ICML 2015. */
#include "op/op_util.h"

#include <string.h>

static bool trains(const struct dlb_op_io *io)
{
	if (io->opset >= 14)
		return dlb_io_int(io, "training_mode", 0) != 0;
	if (io->opset >= 7)
		return io->n_out > 1;
	return !dlb_io_int(io, "is_test", 0) && (io->training || io->n_out > 1);
}

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	const struct dlb_desc *x = &io->in[0];
	struct dlb_desc c;

	if (x->n_dims < 2)
		return dlb_op_fail(io, err, "input has %d dimensions, at least 2 are needed", x->n_dims);
	if (io->opset >= 7 && io->opset < 9 && !dlb_io_int(io, "spatial", 1))
		return dlb_op_fail(io, err,
				   "attribute 'spatial' is 0: statistics for each pixel are not available");
	if (io->opset >= 14 && !trains(io) && io->n_out > 1)
		return dlb_op_fail(io, err,
				   "%d outputs without training_mode, which alone makes more than one",
				   io->n_out);
	if (dlb_param_types(io, 0, 1, 4, err))
		return -1;
	c = dlb_desc_1d(io->in[1].dtype, x->dim[1]);
	for (int i = 1; i < 5; i++)
		if (io->in[i].n_dims != 1 || io->in[i].dim[0] != x->dim[1])
			return dlb_op_fail(io, err, "input %d must have %lld entries", i,
					   (long long)x->dim[1]);
	io->out[0] = *x;
	for (int i = 1; i < io->n_out; i++) {
		io->out[i] = c;
		if (i < 3)
			io->out[i].dtype = io->in[2 + i].dtype;
	}
	return 0;
}

/* Was Relu fused into the normalization? This is an attribute of dlb's; the gradients then read y. */
static bool has_relu(const struct dlb_op_io *io)
{
	return !strcmp(dlb_io_str(io, "activation", ""), "Relu");
}

static struct dlb_bn_desc desc(const struct dlb_op_io *io, enum dlb_bn_dir dir, enum dlb_bn_half half,
			       const struct dlb_desc *x)
{
	return (struct dlb_bn_desc){ .dir = dir,
				     .half = half,
				     .x = *x,
				     .epsilon = dlb_io_real(io, "epsilon", 1e-5),
				     .momentum = dlb_io_real(io, "momentum", 0.9),
				     .unbiased = dlb_io_int(io, "unbiased", 0) != 0,
				     .relu = has_relu(io) };
}

static int kernel_of(struct dlb_backend *be, const struct dlb_op_io *io, enum dlb_bn_half part,
		     struct dlb_kernel **k, struct dlb_error *err)
{
	struct dlb_bn_desc d = desc(io, trains(io) ? DLB_BN_TRAIN : DLB_BN_INFER, part, &io->in[0]);
	struct dlb_desc c = dlb_desc_1d(io->in[1].dtype, io->in[0].dim[1]);
	struct dlb_chain *chain;
	struct dlb_kernel *sub = NULL;
	int saved[2], rc;

	if (d.dir == DLB_BN_INFER || part == DLB_BN_SUMS)
		return be->ops->batch_norm(be, &d, k, err);
	chain = dlb_chain_new(be, err);
	for (int i = 0; i < 2; i++)
		saved[i] = dlb_io_wants(io, 3 + i) ? DLB_OUT(3 + i) : dlb_chain_temp(chain, &c);
	rc = be->ops->batch_norm(be, &d, &sub, err);
	dlb_chain_add(chain, rc, sub, DLB_REFS(0, 1, 2, 3, 4, 5), part == DLB_BN_REST ? 6 : 5,
		      DLB_REFS(DLB_OUT(0), DLB_IN(3), DLB_IN(4), saved[0], saved[1]), 5);
	for (int i = 0; i < 2; i++)
		if (dlb_io_wants(io, 1 + i))
			dlb_chain_copy(chain, DLB_IN(3 + i), DLB_OUT(1 + i), &c);
	return dlb_chain_finish(chain, k);
}

static int kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		  struct dlb_error *err)
{
	return kernel_of(be, io, DLB_BN_WHOLE, k, err);
}

static int half(struct dlb_backend *be, const struct dlb_op_io *io, bool second, struct dlb_kernel **k,
		struct dlb_error *err)
{
	return kernel_of(be, io, second ? DLB_BN_REST : DLB_BN_SUMS, k, err);
}

static int64_t sums(const struct dlb_op_io *io, int64_t *n_own)
{
	*n_own = 0;
	return io->n_in > 0 && io->in[0].n_dims > 1 && trains(io) ? 1 + 2 * io->in[0].dim[1] : 0;
}

static double flops(const struct dlb_op_io *io)
{
	return (trains(io) ? 7.0 : 2.0) * (double)dlb_desc_count(&io->in[0]);
}

static int gradient(struct dlb_builder *b, struct dlb_error *err)
{
	bool train = trains(&b->io);
	const char *type = train ? "BatchNormalizationGrad" : "BatchNormalizationGradInfer";
	const bool relu = has_relu(&b->io);
	struct dlb_attr a[2] = { dlb_make_real("epsilon", dlb_io_real(&b->io, "epsilon", 1e-5)),
				 dlb_make_str("activation", "Relu") };
	int out[3] = { -1, -1, -1 },
	    in[6] = { b->dout[0], b->in[0], b->in[1], b->in[3], b->in[4], b->out[0] };

	(void)err;
	if (train) {
		in[3] = dlb_b_extra_output(b, 3);
		in[4] = dlb_b_extra_output(b, 4);
	}
	out[0] = dlb_b_op(b, &(struct dlb_op_spec){ .type = type, .in = in, .n_in = relu ? 6 : 5, .n_out = 3,
						    .attr = a, .n_attr = relu ? 2 : 1 }, out, b->in[0]);
	if (out[0] < 0)
		return -1;
	for (int i = 0; i < 3; i++)
		if (b->need[i])
			b->din[i] = out[i];
	return 0;
}

static int grad_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	if (dlb_same_types(io, 0, 2, err) || dlb_param_types(io, 0, 2, 3, err) ||
	    dlb_same_shapes(io, 0, 1, err))
		return -1;
	if (has_relu(io) != dlb_io_has(io, 5) ||
	    (has_relu(io) && (dlb_same_shapes(io, 0, 5, err) || io->in[5].dtype != io->in[0].dtype)))
		return dlb_op_fail(io, err, "with an activation the sixth input is the output that it made");
	if (io->in[1].n_dims < 2)
		return dlb_op_fail(io, err, "input has %d dimensions, at least 2 are needed",
				   io->in[1].n_dims);
	for (int i = 2; i < 5; i++)
		if (dlb_has_count(io, i, io->in[1].dim[1], err))
			return -1;
	io->out[0] = io->in[1];
	for (int i = 1; i < io->n_out; i++)
		io->out[i] = io->in[2];
	return 0;
}

static double grad_flops(const struct dlb_op_io *io)
{
	return 11.0 * (double)dlb_desc_count(&io->in[1]);
}

static int grad_kernel_of(struct dlb_backend *be, const struct dlb_op_io *io, enum dlb_bn_dir dir,
			  enum dlb_bn_half part, struct dlb_kernel **k, struct dlb_error *err)
{
	struct dlb_bn_desc d = desc(io, dir, part, &io->in[1]);
	const int n_in = (d.relu ? 6 : 5) + (part == DLB_BN_REST);
	struct dlb_chain *c;
	struct dlb_kernel *sub = NULL;
	int out[3], rc;

	if (part == DLB_BN_SUMS || (dlb_io_wants(io, 0) && dlb_io_wants(io, 1) && dlb_io_wants(io, 2)))
		return be->ops->batch_norm(be, &d, k, err);
	c = dlb_chain_new(be, err);
	for (int i = 0; i < 3; i++)
		out[i] = dlb_io_wants(io, i) ? DLB_OUT(i) : dlb_chain_temp(c, i ? &io->in[2] : &io->in[1]);
	rc = be->ops->batch_norm(be, &d, &sub, err);
	dlb_chain_add(c, rc, sub, DLB_REFS(0, 1, 2, 3, 4, 5, 6), n_in, out, 3);
	return dlb_chain_finish(c, k);
}

static int grad_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	return grad_kernel_of(be, io, DLB_BN_GRAD, DLB_BN_WHOLE, k, err);
}

static int grad_half(struct dlb_backend *be, const struct dlb_op_io *io, bool second, struct dlb_kernel **k,
		     struct dlb_error *err)
{
	return grad_kernel_of(be, io, DLB_BN_GRAD, second ? DLB_BN_REST : DLB_BN_SUMS, k, err);
}

static int64_t grad_sums(const struct dlb_op_io *io, int64_t *n_own)
{
	*n_own = io->n_in > 1 && io->in[1].n_dims > 1 ? 2 * io->in[1].dim[1] : 0;
	return *n_own ? 1 + *n_own : 0;
}

static int grad_infer_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			     struct dlb_error *err)
{
	return grad_kernel_of(be, io, DLB_BN_GRAD_INFER, DLB_BN_WHOLE, k, err);
}

const struct dlb_op_class dlb_op_BatchNormalization = { .name = "BatchNormalization",
							.n_in = { 5, 5 },
							.n_out = { 1, 5 },
							.layout = DLB_LAYOUT_WANTS_CHANNELS_LAST,
							.flags = DLB_OP_MIXES_BATCH | DLB_OP_BUFFERS,
							.bf16 = DLB_BF16_FOLLOWS,
							.f32_in = 30,
							.work = "norm",
							.infer = infer,
							.flops = flops,
							.gradient = gradient,
							.kernel = kernel,
							.sums = sums,
							.half = half };
const struct dlb_op_class dlb_op_BatchNormalizationGrad = { .name = "BatchNormalizationGrad",
							    .domain = "dlb",
							    .n_in = { 5, 6 },
							    .n_out = { 1, 3 },
							    .layout = DLB_LAYOUT_WANTS_CHANNELS_LAST,
							    .flags = DLB_OP_MIXES_BATCH,
							    .f32_in = 28,
							    .overwrite = 3,
							    .work = "norm",
							    .infer = grad_infer,
							    .flops = grad_flops,
							    .kernel = grad_kernel,
							    .sums = grad_sums,
							    .half = grad_half };
const struct dlb_op_class dlb_op_BatchNormalizationGradInfer = { .name = "BatchNormalizationGradInfer",
								 .domain = "dlb",
								 .n_in = { 5, 6 },
								 .n_out = { 1, 3 },
								 .layout = DLB_LAYOUT_WANTS_CHANNELS_LAST,
								 .f32_in = 28,
								 .work = "norm",
								 .infer = grad_infer,
								 .flops = grad_flops,
								 .kernel = grad_infer_kernel };
