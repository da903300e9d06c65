/* Splits the samples of a tensor into shares, for ops that are split by samples, and joins shares:
 *     SampleSplit  (x) -> one share per output (struct dlb_samples)
 *     SampleConcat (shares...) -> x
 * Samples lie along `axis`, `unit` elements each. Sizes follow the batch, which is
 * impossible with ONNX's Split. */
#include <stdlib.h>
#include "op/op_util.h"

int64_t dlb_samples_count(struct dlb_samples s, int64_t n)
{
	return s.parts ? n / s.parts + (s.part < n % s.parts) : n;
}

int64_t dlb_samples_first(struct dlb_samples s, int64_t n)
{
	if (!s.parts)
		return 0;
	return n / s.parts * s.part + (s.part < n % s.parts ? s.part : n % s.parts);
}

static int axis_of(const struct dlb_op_io *io, int64_t *unit, struct dlb_error *err)
{
	const int axis = dlb_axis(io, dlb_io_int(io, "axis", 0), io->in[0].n_dims, err);

	*unit = dlb_io_int(io, "unit", 1);
	if (axis >= 0 && (*unit < 1 || io->in[0].dim[axis] % *unit))
		return dlb_op_fail(io, err, "attribute 'unit': %lld elements are no samples of %lld",
				   (long long)io->in[0].dim[axis], (long long)*unit);
	return axis;
}

/* A whole, and a share that begins at element `at` of its axis. */
struct strip { const struct dlb_desc *whole, *share; int axis; int64_t at; };

/* A copy of the share into the whole, or of that part of the whole into the share. */
static int copy_strip(struct dlb_backend *be, const struct strip *p, bool into_whole, struct dlb_kernel **k,
		      struct dlb_error *err)
{
	const struct dlb_desc *whole = p->whole, *share = p->share;
	int64_t w[DLB_MAX_DIMS], s[DLB_MAX_DIMS];

	dlb_desc_strides(whole, w);
	dlb_desc_strides(share, s);
	const struct dlb_strided in = { .in = share, .out = whole, .n_dims = share->n_dims, .dim = share->dim,
					.in_stride = s, .out_stride = w, .out_offset = p->at * w[p->axis] };
	const struct dlb_strided out = { .in = whole, .out = share, .n_dims = share->n_dims,
					 .dim = share->dim, .in_stride = w, .out_stride = s,
					 .in_offset = p->at * w[p->axis] };
	return dlb_kernel_strided(be, into_whole ? &in : &out, k, err);
}

/* -- SampleSplit -- */

static int split_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	int64_t unit;
	const int axis = axis_of(io, &unit, err);

	if (axis < 0)
		return -1;
	for (int i = 0; i < io->n_out; i++) {
		io->out[i] = io->in[0];
		io->out[i].dim[axis] = unit * dlb_samples_count((struct dlb_samples){ i, io->n_out },
								io->in[0].dim[axis] / unit);
	}
	return 0;
}

static int split_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			struct dlb_error *err)
{
	int64_t unit, at = 0;
	const int axis = axis_of(io, &unit, err);

	if (axis < 0)
		return -1;
	struct dlb_chain *c = dlb_chain_new(be, err);
	for (int i = 0, rc = 0; i < io->n_out && !rc; i++) {
		struct dlb_kernel *sub = NULL;

		if (dlb_io_wants(io, i)) {
			rc = copy_strip(be, &(struct strip){ &io->in[0], &io->out[i], axis, at }, false,
					&sub, err);
			dlb_chain_add(c, rc, sub, DLB_REFS(DLB_IN(0)), 1, DLB_REFS(DLB_OUT(i)), 1);
		}
		at += unit *
		      dlb_samples_count((struct dlb_samples){ i, io->n_out }, io->in[0].dim[axis] / unit);
	}
	return dlb_chain_finish(c, k);
}

static int split_gradient(struct dlb_builder *b, struct dlb_error *err)
{
	int *in;

	if (!b->need[0])
		return 0;
	in = dlb_xcalloc((size_t)b->io.n_out + 1, sizeof *in);
	for (int i = 0; i < b->io.n_out; i++)	/* zeros for shares without a gradient */
		in[i] = dlb_b_dout_or_zeros(b, i);
	b->din[0] = dlb_b_op(b, &(struct dlb_op_spec){ .type = "SampleConcat", .in = in, .n_in = b->io.n_out,
						       .attr = b->io.attr, .n_attr = b->io.n_attr }, NULL,
			     b->in[0]);
	free(in);
	(void)err;
	return b->din[0] < 0 ? -1 : 0;
}

/* -- SampleConcat -- */

static int concat_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	int64_t unit, sum = 0;
	const int axis = axis_of(io, &unit, err);
	const struct dlb_desc *x = &io->in[0];

	if (axis < 0)
		return -1;
	for (int i = 0; i < io->n_in; i++) {
		const struct dlb_desc *d = &io->in[i];
		bool same = d->n_dims == x->n_dims && d->dtype == x->dtype && d->layout == x->layout;
		for (int j = 0; j < x->n_dims && same; j++)
			same = j == axis || d->dim[j] == x->dim[j];
		if (!same)
			return dlb_op_fail(io, err, "input %d does not fit beside input 0", i);
		sum += d->dim[axis];
	}
	io->out[0] = *x;
	io->out[0].dim[axis] = sum;
	for (int i = 0; i < io->n_in; i++) {
		const int64_t n = unit * dlb_samples_count((struct dlb_samples){ i, io->n_in }, sum / unit);

		if (io->in[i].dim[axis] != n)
			return dlb_op_fail(io, err,
					   "input %d has %lld elements along axis %d; its share is %lld", i,
					   (long long)io->in[i].dim[axis], axis, (long long)n);
	}
	return 0;
}

static int concat_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			 struct dlb_error *err)
{
	int64_t unit, at = 0;
	const int axis = axis_of(io, &unit, err);

	if (axis < 0)
		return -1;
	struct dlb_chain *c = dlb_chain_new(be, err);
	for (int i = 0, rc = 0; i < io->n_in && !rc; i++) {
		struct dlb_kernel *sub = NULL;

		rc = copy_strip(be, &(struct strip){ &io->out[0], &io->in[i], axis, at }, true, &sub, err);
		dlb_chain_add(c, rc, sub, DLB_REFS(DLB_IN(i)), 1, DLB_REFS(DLB_OUT(0)), 1);
		at += io->in[i].dim[axis];
	}
	return dlb_chain_finish(c, k);
}

static int concat_gradient(struct dlb_builder *b, struct dlb_error *err)
{
	int *out = dlb_xcalloc((size_t)b->io.n_in + 1, sizeof *out);
	bool any = false;

	(void)err;
	for (int i = 0; i < b->io.n_in; i++)
		any |= b->need[i];
	const int rc = any && dlb_b_op(b,
				       &(struct dlb_op_spec){ .type = "SampleSplit", .in = b->dout, .n_in = 1,
							      .n_out = b->io.n_in, .attr = b->io.attr,
							      .n_attr = b->io.n_attr }, out, b->in[0]) < 0 ?
			       -1 :
			       0;
	for (int i = 0; i < b->io.n_in && any && !rc; i++)
		if (b->need[i])
			b->din[i] = out[i];
	free(out);
	return rc;
}

const struct dlb_op_class dlb_op_SampleSplit = { .name = "SampleSplit",
						 .domain = "dlb",
						 .n_in = { 1, 1 },
						 .n_out = { 1, -1 },
						 .layout = DLB_LAYOUT_ANY,
						 .flags = DLB_OP_SHARES_SAMPLES,
						 .bf16 = DLB_BF16_FOLLOWS,
						 .work = "move",
						 .infer = split_infer,
						 .flops = dlb_no_flops,
						 .gradient = split_gradient,
						 .kernel = split_kernel };
const struct dlb_op_class dlb_op_SampleConcat = { .name = "SampleConcat",
						  .domain = "dlb",
						  .n_in = { 1, -1 },
						  .n_out = { 1, 1 },
						  .layout = DLB_LAYOUT_ANY,
						  .bf16 = DLB_BF16_FOLLOWS,
						  .work = "move",
						  .infer = concat_infer,
						  .flops = dlb_no_flops,
						  .gradient = concat_gradient,
						  .kernel = concat_kernel };
