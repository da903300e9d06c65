/* Classification losses: SoftmaxCrossEntropyLoss and NegativeLogLikelihoodLoss as in ONNX, with
 *     SoftmaxCrossEntropyLossGrad   (dy, log_prob, labels[, weights]) -> dx
 *     NegativeLogLikelihoodLossGrad (dy, labels[, weights]) -> dx, attribute "classes"
 * The former reads the forward's output 1, log_prob. Our attribute "smoothing" in [0, 1) is PyTorch's
 * label_smoothing (formula: struct dlb_loss_desc). */
#include "op/op_util.h"

#include <string.h>

/* -- classification -- */

static int fill(const struct dlb_op_io *io, const struct dlb_desc *x, int labels, int weights, bool softmax,
		struct dlb_loss_desc *d, struct dlb_error *err)
{
	const struct dlb_desc *t = &io->in[labels];
	const char *reduction = dlb_io_str(io, "reduction", "mean");
	const struct dlb_attr *ignore = dlb_attr_find(io->attr, io->n_attr, "ignore_index");
	char a[128], b[128];
	bool fits = x->n_dims >= 2 && t->n_dims == x->n_dims - 1 && t->dim[0] == x->dim[0];

	for (int i = 2; fits && i < x->n_dims; i++)
		fits = x->dim[i] == t->dim[i - 1];
	if (!fits)
		return dlb_op_fail(io, err, "scores %s and labels %s do not fit together",
				   dlb_desc_str(x, a, sizeof a), dlb_desc_str(t, b, sizeof b));
	if (t->dtype != DLB_I32 && t->dtype != DLB_I64)
		return dlb_op_fail(io, err, "labels are of type %s; i32 or i64 is needed",
				   dlb_dtype_name(t->dtype));
	if (dlb_io_has(io, weights) && (io->in[weights].n_dims != 1 || io->in[weights].dtype != x->dtype ||
					io->in[weights].dim[0] != x->dim[1]))
		return dlb_op_fail(io, err, "there must be %lld class weights", (long long)x->dim[1]);
	*d = (struct dlb_loss_desc){ .dtype = x->dtype,
				     .label = t->dtype,
				     .softmax = softmax,
				     .backward = io->cls->domain != NULL,
				     .has_weight = dlb_io_has(io, weights),
				     .has_ignore = ignore != NULL,
				     .ignore = ignore ? ignore->i : 0,
				     .smoothing = dlb_io_real(io, "smoothing", 0),
				     .n = x->dim[0],
				     .classes = x->dim[1],
				     .inner = dlb_desc_range(x, 2, x->n_dims) };
	if (!(d->smoothing >= 0 && d->smoothing < 1) || (d->smoothing > 0 && !softmax))
		return dlb_op_fail(
			io, err,
			"attribute 'smoothing' is %g; SoftmaxCrossEntropyLoss takes 0 to 1, 1 excluded",
			d->smoothing);
	if (!strcmp(reduction, "none"))
		d->reduction = DLB_REDUCE_NONE;
	else if (!strcmp(reduction, "sum"))
		d->reduction = DLB_REDUCE_SUM;
	else if (!strcmp(reduction, "mean"))
		d->reduction = DLB_REDUCE_MEAN;
	else
		return dlb_op_fail(io, err, "attribute 'reduction': unknown value '%s'", reduction);
	return 0;
}

static bool is_softmax(const struct dlb_op_io *io)
{
	return !strncmp(io->cls->name, "Softmax", 7);
}

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct dlb_loss_desc d;

	if (fill(io, &io->in[0], 1, 2, is_softmax(io), &d, err))
		return -1;
	io->out[0] = dlb_desc_scalar(io->in[0].dtype);
	if (d.reduction == DLB_REDUCE_NONE)
		io->out[0] = dlb_desc_make(io->in[0].dtype, io->in[1].n_dims, io->in[1].dim);
	if (io->n_out > 1)
		io->out[1] = dlb_desc_make(io->in[0].dtype, io->in[0].n_dims, io->in[0].dim);
	return 0;
}

static double flops(const struct dlb_op_io *io)
{
	return (is_softmax(io) ? 15.0 : 1.0) * (double)dlb_desc_count(&io->in[0]);
}

static int kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		  struct dlb_error *err)
{
	struct dlb_loss_desc d;

	if (fill(io, &io->in[0], 1, 2, is_softmax(io), &d, err))
		return -1;
	return be->ops->loss(be, &d, k, err);
}

static int gradient(struct dlb_builder *b, struct dlb_error *err)
{
	bool softmax = is_softmax(&b->io);
	const char *type = softmax ? "SoftmaxCrossEntropyLossGrad" : "NegativeLogLikelihoodLossGrad";
	static const char *const keep[] = { "reduction", "ignore_index", "smoothing" };
	struct dlb_attr a[4];
	int n = 0, in[4], n_in = 0;

	if (b->io.n_out > 1 && b->dout[1] >= 0)
		return dlb_op_fail(&b->io, err, "no gradient through the second output, log_prob");
	if (!b->need[0])
		return 0;
	for (int i = 0; i < DLB_LEN(keep); i++) {
		const struct dlb_attr *f = dlb_attr_find(b->io.attr, b->io.n_attr, keep[i]);

		if (f)
			a[n++] = *f;
	}
	in[n_in++] = b->dout[0];
	if (softmax)
		in[n_in++] = dlb_b_extra_output(b, 1);
	else
		a[n++] = dlb_make_int("classes", b->io.in[0].dim[1]);
	in[n_in++] = b->in[1];
	if (dlb_io_has(&b->io, 2))
		in[n_in++] = b->in[2];
	return dlb_b_gradient(b, &(struct dlb_op_spec){
					 .type = type, .in = in, .n_in = n_in, .attr = a, .n_attr = n });
}

static int grad_fill(const struct dlb_op_io *io, struct dlb_desc *x, struct dlb_loss_desc *d,
		     struct dlb_error *err)
{
	int64_t classes = dlb_io_int(io, "classes", 0);

	if (is_softmax(io)) {
		*x = io->in[1];
		x->layout = DLB_PLAIN;
		return fill(io, x, 2, 3, true, d, err);
	}
	*x = dlb_desc_make(io->in[0].dtype, io->in[1].n_dims, io->in[1].dim);
	if (x->n_dims < 1 || x->n_dims >= DLB_MAX_DIMS || classes < 1)
		return dlb_op_fail(io, err, "attribute 'classes' is missing");
	for (int i = x->n_dims++; i > 1; i--)
		x->dim[i] = x->dim[i - 1];
	x->dim[1] = classes;
	return fill(io, x, 1, 2, false, d, err);
}

static int grad_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct dlb_loss_desc d;

	if (grad_fill(io, &io->out[0], &d, err))
		return -1;
	if (io->in[0].dtype != io->out[0].dtype)
		return dlb_op_fail(io, err, "the gradient is of type %s", dlb_dtype_name(io->in[0].dtype));
	return dlb_has_count(io, 0,
			     d.reduction == DLB_REDUCE_NONE ?
				     dlb_desc_count(&io->in[is_softmax(io) ? 2 : 1]) :
				     1,
			     err);
}

static int grad_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	bool softmax = is_softmax(io);
	struct dlb_loss_desc d;
	struct dlb_desc x;
	struct dlb_chain *c;
	struct dlb_kernel *sub = NULL;
	int rc;

	if (grad_fill(io, &x, &d, err))
		return -1;
	c = dlb_chain_new(be, err);
	rc = be->ops->loss(be, &d, &sub, err);
	dlb_chain_add(c, rc, sub,
		      DLB_REFS(0, softmax ? 1 : DLB_NOTHING, 1 + softmax,
			       d.has_weight ? 2 + softmax : DLB_NOTHING),
		      4, DLB_REFS(DLB_OUT(0)), 1);
	return dlb_chain_finish(c, k);
}

static double grad_flops(const struct dlb_op_io *io)
{
	return (is_softmax(io) ? 12.0 : 1.0) * (double)dlb_desc_count(&io->out[0]);
}

#define LOSS(n, most) \
	const struct dlb_op_class dlb_op_##n = { .name = #n, .n_in = { 2, 3 }, .n_out = { 1, most }, .flags = DLB_OP_IS_LOSS, \
		.work = "loss", .infer = infer, .flops = flops, .gradient = gradient, .kernel = kernel };
#define LOSS_GRAD(n, least) \
	const struct dlb_op_class dlb_op_##n = { .name = #n, .domain = "dlb", .n_in = { least, least + 1 }, .n_out = { 1, 1 }, \
		.work = "loss", .infer = grad_infer, .flops = grad_flops, .kernel = grad_kernel };
LOSS(SoftmaxCrossEntropyLoss, 2)
LOSS(NegativeLogLikelihoodLoss, 1)
LOSS_GRAD(SoftmaxCrossEntropyLossGrad, 3)
LOSS_GRAD(NegativeLogLikelihoodLossGrad, 2)
