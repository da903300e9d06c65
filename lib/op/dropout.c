/* Dropout: y = x mask / (1 - ratio), with a new mask in each step.
 *
 * From opset 12 on, ratio and training_mode are inputs; before, ratio is an attribute and Dropout is
 * active if the graph is trained. The mask comes from a counter-based generator with the key (seed,
 * vertex, step); the counter is the sample's index in the global batch and the element's index in the
 * sample, so the mask does not depend on the sample's node or micro-batch. The mask is saved for the
 * backward pass as output 1, which ONNX has too.
 *
 * Our attribute "slice" {axis, units, unit, first, count} states that x is the part of a tensor that struct
 * dlb_slice describes; the mask is then the same part of the whole tensor's mask. */
#include "op/op_util.h"

#include <string.h>

static int ratio_of(const struct dlb_op_io *io, double *ratio, bool *train, struct dlb_error *err)
{
	*ratio = dlb_io_real(io, "ratio", 0.5);
	*train = io->training && !dlb_io_int(io, "is_test", 0);
	if (io->opset >= 12) {
		*train = false;
		if (dlb_io_has(io, 1)) {
			if (!io->value || !io->value[1] || dlb_desc_count(&io->in[1]) != 1)
				return dlb_op_fail(io, err, "the ratio must be a constant");
			*ratio = dlb_value_real(io->value[1], io->in[1].dtype, 0);
		}
		if (dlb_io_has(io, 2)) {
			if (!io->value || !io->value[2] || dlb_desc_count(&io->in[2]) != 1)
				return dlb_op_fail(io, err, "training_mode must be a constant");
			*train = dlb_value_int(io->value[2], io->in[2].dtype, 0) != 0;
		}
	}
	if (!(*ratio >= 0 && *ratio < 1))
		return dlb_op_fail(io, err, "the ratio %g is not in [0, 1)", *ratio);
	return 0;
}

/* Describes which elements of the whole tensor the part's memory holds. */
static int slice_of(const struct dlb_op_io *io, struct dlb_dropout_desc *d, struct dlb_error *err)
{
	const struct dlb_desc *x = &io->in[0];
	const int64_t *v;
	const int n = dlb_attr_ints(io->attr, io->n_attr, "slice", &v);

	if (!n)
		return 0;
	if (n != 5 || v[0] < 0 || v[0] >= x->n_dims || v[4] < 1 || v[4] > v[1] || v[3] < 0 ||
	    v[3] > v[1] - v[4] || v[2] < 1 || v[1] > INT32_MAX || v[2] > INT32_MAX || x->dim[v[0]] < 1 ||
	    x->dim[v[0]] % (v[4] * v[2]))
		return dlb_op_fail(io, err, "attribute 'slice' does not say which part this is");
	/* channels are the fastest dimension */
	const bool last = x->layout == DLB_CHANNELS_LAST && v[0] == 1;
	if (x->layout == DLB_CHANNELS_LAST && v[0] > 1)
		return dlb_op_fail(
			io, err,
			"attribute 'slice' along axis %lld of a tensor that lies with its channels last",
			(long long)v[0]);
	const int64_t inner = v[2] * (last ? 1 : dlb_desc_range(x, (int)v[0] + 1, x->n_dims));

	if (inner > 0 && v[1] > INT64_MAX / inner)
		return dlb_op_fail(io, err, "attribute 'slice' is of a tensor that is too large");
	d->part = v[4] * inner;
	d->whole = v[1] * inner;
	d->first = v[3] * inner;
	d->per_whole = (v[0] || io->samples) && d->part ? d->per_sample / d->part * d->whole : d->per_sample;
	return 0;
}

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct dlb_dropout_desc d = { .part = 0 };
	double ratio;
	bool train;

	if (ratio_of(io, &ratio, &train, err) || slice_of(io, &d, err))
		return -1;
	io->out[0] = io->in[0];
	if (io->n_out > 1) {
		io->out[1] = io->in[0];
		io->out[1].dtype = io->opset < 10 && !io->training ? io->in[0].dtype : DLB_BOOL;
	}
	return 0;
}

static void ones_run(const void *ctx, const struct dlb_run *r)
{
	const struct dlb_desc *d = ctx;
	int64_t n = dlb_desc_count(d);

	for (int64_t i = 0; i < n; i++)
		dlb_value_set(r->out[0], d->dtype, i, 1);
}

static int kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		  struct dlb_error *err)
{
	const struct dlb_desc *x = &io->in[0];
	struct dlb_kernel *sub = NULL;
	struct dlb_chain *c;
	struct dlb_dropout_desc d = { .dtype = x->dtype, .seed = dlb_io_int(io, "seed", 0) };
	bool train;
	int to, rc;

	if (ratio_of(io, &d.ratio, &train, err))
		return -1;
	c = dlb_chain_new(be, err);
	to = dlb_io_wants(io, 1) ? DLB_OUT(1) : DLB_NOTHING;
	if (!train) {
		dlb_chain_copy(c, DLB_IN(0), DLB_OUT(0), x);
		if (to >= 0) {
			rc = be->ops->host(be, ones_run, &io->out[1], sizeof io->out[1], 0, &sub, err);
			dlb_chain_add(c, rc, sub, NULL, 0, &to, 1);
		}
		return dlb_chain_finish(c, k);
	}
	/* the first dimension may hold several rows per sample, such as heads x samples */
	d.samples = x->n_dims ? x->dim[0] : 1;
	if (io->samples && d.samples % io->samples == 0)
		d.samples = io->samples;
	d.first_sample = io->first_sample;
	d.per_sample = d.samples ? dlb_desc_count(x) / d.samples : 0;
	rc = slice_of(io, &d, err) ? -1 : be->ops->dropout(be, &d, &sub, err);
	dlb_chain_add(c, rc, sub, DLB_REFS(DLB_IN(0)), 1, DLB_REFS(DLB_OUT(0), to), 2);
	return dlb_chain_finish(c, k);
}

static double flops(const struct dlb_op_io *io)
{
	return 10.0 * (double)dlb_desc_count(&io->out[0]);
}

static int gradient(struct dlb_builder *b, struct dlb_error *err)
{
	struct dlb_attr a;
	double ratio;
	bool train;

	if (!b->need[0])
		return 0;
	if (ratio_of(&b->io, &ratio, &train, err))
		return -1;
	b->din[0] = b->dout[0];
	if (!train)
		return 0;
	a = dlb_make_real("ratio", ratio);
	return dlb_b_gradient(b, DLB_SPEC_ATTR("DropoutGrad", &a, 1, b->dout[0], dlb_b_extra_output(b, 1)));
}

static int grad_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	if (io->in[1].dtype != DLB_BOOL)
		return dlb_op_fail(io, err, "the mask is of type %s", dlb_dtype_name(io->in[1].dtype));
	return dlb_same_shapes(io, 0, 1, err) ? -1 : dlb_infer_same(io, err);
}

static int grad_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	const struct dlb_desc *d[2] = { &io->in[1], &io->in[0] };
	struct dlb_chain *c = dlb_chain_new(be, err);

	dlb_chain_map(c, &(struct dlb_map){ .fn = DLB_MAP_keep, .n_in = 2,
					    .alpha = 1 / (1 - dlb_io_real(io, "ratio", 0.5)) },
		      DLB_REFS(DLB_IN(1), DLB_IN(0)), d, DLB_OUT(0), &io->out[0]);
	return dlb_chain_finish(c, k);
}

const struct dlb_op_class dlb_op_Dropout = { .name = "Dropout",
					     .n_in = { 1, 3 },
					     .n_out = { 1, 2 },
					     .layout = DLB_LAYOUT_ANY,
					     .flags = DLB_OP_RANDOM,
					     .bf16 = DLB_BF16_FOLLOWS,
					     .f32_in = 6,
					     .overwrite = 1,
					     .work = "activation",
					     .infer = infer,
					     .flops = flops,
					     .gradient = gradient,
					     .kernel = kernel };
const struct dlb_op_class dlb_op_DropoutGrad = { .name = "DropoutGrad",
						 .domain = "dlb",
						 .n_in = { 2, 2 },
						 .n_out = { 1, 1 },
						 .layout = DLB_LAYOUT_ANY,
						 .overwrite = 1,
						 .work = "activation",
						 .infer = grad_infer,
						 .kernel = grad_kernel };
