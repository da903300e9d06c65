/* Softmax cross-entropy of scores that are split by classes (Shoeybi et al., Megatron-LM, 2019, 3: the loss
 * of a split vocabulary), without joining the scores. For each label, a part sends three numbers to the node
 * that computes the loss, and receives three:
 *     CrossEntropyPart     (scores, labels) -> stats       attribute "first" (class of this part)
 *     CrossEntropyJoin     (labels, stats...) -> loss[, norm]     "classes" (of all parts), "reduction", "ignore_index"
 *     CrossEntropyJoinGrad (dloss, labels, norm, stats) -> dstats         likewise
 *     CrossEntropyPartGrad (dstats, scores, labels, stats) -> dscores     as CrossEntropyPart
 * The numbers are defined at struct dlb_loss_desc. */
#include <stdlib.h>
#include <string.h>
#include "op/op_util.h"

/* x is (N, C, ...), labels (N, ...); d's classes are those of x. */
static int fill(const struct dlb_op_io *io, const struct dlb_desc *x, const struct dlb_desc *t,
		struct dlb_loss_desc *d, struct dlb_error *err)
{
	const char *reduction = dlb_io_str(io, "reduction", "mean");
	const struct dlb_attr *ignore = dlb_attr_find(io->attr, io->n_attr, "ignore_index");
	bool fits = x->n_dims >= 2 && t->n_dims == x->n_dims - 1 && t->dim[0] == x->dim[0] &&
		    dlb_dtype_is_float(x->dtype) && x->layout == DLB_PLAIN;

	for (int i = 2; fits && i < x->n_dims; i++)
		fits = x->dim[i] == t->dim[i - 1];
	if (!fits || (t->dtype != DLB_I32 && t->dtype != DLB_I64))
		return dlb_op_fail(io, err, "scores and labels do not fit together");
	*d = (struct dlb_loss_desc){ .dtype = x->dtype,
				     .label = t->dtype,
				     .softmax = true,
				     .has_ignore = ignore != NULL,
				     .ignore = ignore ? ignore->i : 0,
				     .n = x->dim[0],
				     .classes = x->dim[1],
				     .inner = dlb_desc_range(x, 2, x->n_dims),
				     .first = dlb_io_int(io, "first", 0) };
	if (d->first < 0 || d->classes < 1)
		return dlb_op_fail(io, err, "attribute 'first' is %lld", (long long)d->first);
	d->reduction = !strcmp(reduction, "none") ? DLB_REDUCE_NONE :
		       !strcmp(reduction, "sum")  ? DLB_REDUCE_SUM :
						    DLB_REDUCE_MEAN;
	if (d->reduction == DLB_REDUCE_MEAN && strcmp(reduction, "mean") != 0)
		return dlb_op_fail(io, err, "attribute 'reduction': unknown value '%s'", reduction);
	return 0;
}

/* The shape of x with n instead of its number of classes. */
static struct dlb_desc with_classes(const struct dlb_desc *x, int64_t n)
{
	struct dlb_desc d = dlb_desc_make(x->dtype, x->n_dims, x->dim);

	d.dim[1] = n;
	return d;
}

static int is_stats(const struct dlb_op_io *io, int i, const struct dlb_desc *like, int64_t n,
		    struct dlb_error *err)
{
	const struct dlb_desc want = with_classes(like, n);

	if (io->in[i].dtype != want.dtype || !dlb_desc_same_shape(&io->in[i], &want))
		return dlb_op_fail(io, err, "input %d does not have %lld numbers for each label", i,
				   (long long)n);
	return 0;
}

/* -- a part -- */

static int part_desc(const struct dlb_op_io *io, struct dlb_loss_desc *d, struct dlb_error *err)
{
	const bool backward = io->n_in > 2;

	if (fill(io, &io->in[backward], &io->in[1 + backward], d, err))
		return -1;
	if (backward && (is_stats(io, 0, &io->in[1], DLB_LOSS_STATS, err) ||
			 is_stats(io, 3, &io->in[1], DLB_LOSS_STATS, err)))
		return -1;
	d->stage = DLB_LOSS_PART;
	d->backward = backward;
	return 0;
}

static int part_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct dlb_loss_desc d;

	if (part_desc(io, &d, err))
		return -1;
	io->out[0] = d.backward ? io->in[1] : with_classes(&io->in[0], DLB_LOSS_STATS);
	return 0;
}

static int part_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	struct dlb_loss_desc d;

	return part_desc(io, &d, err) ? -1 : be->ops->loss(be, &d, k, err);
}

static int part_gradient(struct dlb_builder *b, struct dlb_error *err)
{
	(void)err;
	return dlb_b_gradient(b, DLB_SPEC_ATTR("CrossEntropyPartGrad", b->io.attr, b->io.n_attr, b->dout[0],
					       b->in[0], b->in[1], b->out[0]));
}

static double part_flops(const struct dlb_op_io *io)
{
	return 10.0 * (double)dlb_desc_count(&io->in[io->n_in > 2]);
}

/* -- all parts -- */

static int join_stage(const struct dlb_op_io *io, struct dlb_loss_desc *d, struct dlb_error *err)
{
	d->stage = DLB_LOSS_JOIN;
	d->classes = dlb_io_int(io, "classes", 0);
	return d->classes < 1 ? dlb_op_fail(io, err, "attribute 'classes' is missing") : 0;
}

static int join_desc(const struct dlb_op_io *io, struct dlb_loss_desc *d, struct dlb_error *err)
{
	if (fill(io, &io->in[1], &io->in[0], d, err))
		return -1;
	for (int i = 1; i < io->n_in; i++)
		if (is_stats(io, i, &io->in[1], DLB_LOSS_STATS, err))
			return -1;
	d->n_parts = io->n_in - 1;
	return join_stage(io, d, err);
}

static int join_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct dlb_loss_desc d;

	if (join_desc(io, &d, err))
		return -1;
	io->out[0] = dlb_desc_scalar(d.dtype);
	if (d.reduction == DLB_REDUCE_NONE)
		io->out[0] = dlb_desc_make(d.dtype, io->in[0].n_dims, io->in[0].dim);
	if (io->n_out > 1)
		io->out[1] = with_classes(&io->in[1], DLB_LOSS_NORM);
	return 0;
}

static int join_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	struct dlb_loss_desc d;

	return join_desc(io, &d, err) ? -1 : be->ops->loss(be, &d, k, err);
}

static int join_gradient(struct dlb_builder *b, struct dlb_error *err)
{
	int norm = -1;

	if (b->io.n_out > 1 && b->dout[1] >= 0)
		return dlb_op_fail(&b->io, err, "no gradient through the second output");
	for (int i = 1; i < b->io.n_in; i++) {
		if (!b->need[i])
			continue;
		norm = norm < 0 ? dlb_b_extra_output(b, 1) : norm;
		b->din[i] = dlb_b_op(b, DLB_SPEC_ATTR("CrossEntropyJoinGrad", b->io.attr, b->io.n_attr,
						      b->dout[0], b->in[0], norm, b->in[i]), NULL, b->in[i]);
		if (b->din[i] < 0)
			return -1;
	}
	return 0;
}

static int join_grad_desc(const struct dlb_op_io *io, struct dlb_loss_desc *d, struct dlb_error *err)
{
	if (fill(io, &io->in[3], &io->in[1], d, err) || is_stats(io, 2, &io->in[3], DLB_LOSS_NORM, err) ||
	    is_stats(io, 3, &io->in[3], DLB_LOSS_STATS, err) ||
	    dlb_has_count(io, 0, d->reduction == DLB_REDUCE_NONE ? d->n * d->inner : 1, err))
		return -1;
	if (io->in[0].dtype != d->dtype)
		return dlb_op_fail(io, err, "the gradient is of type %s", dlb_dtype_name(io->in[0].dtype));
	d->backward = true;
	return join_stage(io, d, err);
}

static int join_grad_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct dlb_loss_desc d;

	if (join_grad_desc(io, &d, err))
		return -1;
	io->out[0] = io->in[3];
	return 0;
}

static int join_grad_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			    struct dlb_error *err)
{
	struct dlb_loss_desc d;

	return join_grad_desc(io, &d, err) ? -1 : be->ops->loss(be, &d, k, err);
}

static double join_flops(const struct dlb_op_io *io)
{
	return 20.0 * (double)dlb_desc_count(&io->in[io->n_in - 1]);
}

#define PARTS(n, least, most, outs, f, over, inf, work_, grad, kern) \
	const struct dlb_op_class dlb_op_##n = { .name = #n, \
						 .domain = "dlb", \
						 .n_in = { least, most }, \
						 .n_out = { 1, outs }, \
						 .flags = f, \
						 .overwrite = over, \
						 .work = "loss", \
						 .infer = inf, \
						 .flops = work_, \
						 .gradient = grad, \
						 .kernel = kern };
PARTS(CrossEntropyPart, 2, 2, 1, 0, 0, part_infer, part_flops, part_gradient, part_kernel)
PARTS(CrossEntropyJoin, 2, -1, 2, DLB_OP_IS_LOSS, 0, join_infer, join_flops, join_gradient, join_kernel)
PARTS(CrossEntropyPartGrad, 4, 4, 1, 0, 2, part_infer, part_flops, NULL, part_kernel)
PARTS(CrossEntropyJoinGrad, 4, 4, 1, 0, 0, join_grad_infer, join_flops, NULL, join_grad_kernel)
