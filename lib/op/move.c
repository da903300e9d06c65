/* Operators that move elements by strides: Transpose, Slice, Concat, Split, Expand, Tile.
 *
 * SliceGrad (dy, shape[, starts, ends, axes, steps]) writes dy into zeros of that shape, at the
 * positions that Slice read. */
#include "op/op_util.h"

#include <stdlib.h>
#include <string.h>

/* -- Transpose -- */

static int permutation(const struct dlb_op_io *io, int64_t perm[DLB_MAX_DIMS], struct dlb_error *err)
{
	const int64_t *p;
	int n = io->in[0].n_dims, m = dlb_attr_ints(io->attr, io->n_attr, "perm", &p), seen = 0;

	if (m && m != n)
		return dlb_op_fail(io, err, "attribute 'perm' has %d entries for %d dimensions", m, n);
	for (int i = 0; i < n; i++) {
		perm[i] = m ? p[i] : n - 1 - i;
		if (perm[i] < 0 || perm[i] >= n || seen >> perm[i] & 1)
			return dlb_op_fail(io, err, "attribute 'perm' is no permutation");
		seen |= 1 << perm[i];
	}
	return 0;
}

static int transpose_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	int64_t perm[DLB_MAX_DIMS];

	if (permutation(io, perm, err))
		return -1;
	io->out[0] = dlb_desc_make(io->in[0].dtype, io->in[0].n_dims, io->in[0].dim);
	for (int i = 0; i < io->in[0].n_dims; i++)
		io->out[0].dim[i] = io->in[0].dim[perm[i]];
	return 0;
}

static int transpose_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			    struct dlb_error *err)
{
	int64_t perm[DLB_MAX_DIMS], from[DLB_MAX_DIMS], in[DLB_MAX_DIMS], out[DLB_MAX_DIMS];

	if (permutation(io, perm, err))
		return -1;
	dlb_desc_strides(&io->in[0], from);
	dlb_desc_strides(&io->out[0], out);
	for (int i = 0; i < io->in[0].n_dims; i++)
		in[i] = from[perm[i]];
	return dlb_kernel_strided(be,
				  &(struct dlb_strided){ .in = &io->in[0], .out = &io->out[0],
							 .n_dims = io->in[0].n_dims, .dim = io->out[0].dim,
							 .in_stride = in, .out_stride = out }, k, err);
}

static int transpose_gradient(struct dlb_builder *b, struct dlb_error *err)
{
	int64_t perm[DLB_MAX_DIMS], inverse[DLB_MAX_DIMS];
	struct dlb_attr a;

	if (!b->need[0])
		return 0;
	if (permutation(&b->io, perm, err))
		return -1;
	for (int i = 0; i < b->io.in[0].n_dims; i++)
		inverse[perm[i]] = i;
	a = dlb_make_ints("perm", inverse, b->io.in[0].n_dims);
	return dlb_b_gradient(b, DLB_SPEC_ATTR("Transpose", &a, 1, b->dout[0]));
}

/* -- Slice -- */

struct slice { int64_t start[DLB_MAX_DIMS], step[DLB_MAX_DIMS], count[DLB_MAX_DIMS]; };

static int64_t clamp(int64_t v, int64_t least, int64_t most)
{
	return v < least ? least : v > most ? most : v;
}

/* Reads the range in a tensor with x's shape. starts, ends, axes, steps are attributes, or inputs first ..
 * first + 3. */
static int slice_of(const struct dlb_op_io *io, const struct dlb_desc *x, int first, struct slice *s,
		    struct dlb_error *err)
{
	int64_t start[DLB_MAX_DIMS], end[DLB_MAX_DIMS], axis[DLB_MAX_DIMS], step[DLB_MAX_DIMS];
	int n = dlb_io_ints(io, first, "starts", start, DLB_MAX_DIMS, err);
	int n_end = dlb_io_ints(io, first + 1, "ends", end, DLB_MAX_DIMS, err);
	int n_axis = dlb_io_ints(io, first + 2, "axes", axis, DLB_MAX_DIMS, err);
	int n_step = dlb_io_ints(io, first + 3, "steps", step, DLB_MAX_DIMS, err), seen = 0;

	if (n < 0 || n_end < 0 || n_axis < 0 || n_step < 0)
		return -1;
	if (n_end != n || (n_axis && n_axis != n) || (n_step && n_step != n) || n > x->n_dims)
		return dlb_op_fail(io, err, "starts, ends, axes and steps do not agree in length");
	for (int i = 0; i < x->n_dims; i++) {
		s->start[i] = 0;
		s->step[i] = 1;
		s->count[i] = x->dim[i];
	}
	for (int i = 0; i < n; i++) {
		int a = dlb_axis(io, n_axis ? axis[i] : i, x->n_dims, err);
		int64_t d, by = n_step ? step[i] : 1, from = start[i], to = end[i];

		if (a < 0)
			return -1;
		if (by == 0 || by == INT64_MIN || seen >> a & 1)
			return dlb_op_fail(io, err, by == 0 ? "a step of 0" : "axis %d is given twice", a);
		seen |= 1 << a;
		d = x->dim[a];
		from = from < 0 ? from + d : from;		/* cannot overflow: d >= 0 */
		to = to < 0 ? to + d : to;
		if (by > 0) {
			from = clamp(from, 0, d);
			to = clamp(to, 0, d);
			s->count[a] = to > from ? (to - from - 1) / by + 1 : 0;
		} else {
			from = clamp(from, -1, d - 1);
			to = clamp(to, -1, d - 1);
			s->count[a] = from > to ? (from - to - 1) / -by + 1 : 0;
		}
		s->start[a] = from;
		/* no overflow by the stride of a single element */
		s->step[a] = s->count[a] > 1 ? by : 1;
	}
	return 0;
}

static int slice_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct slice s;

	if (slice_of(io, &io->in[0], 1, &s, err))
		return -1;
	io->out[0] = dlb_desc_make(io->in[0].dtype, io->in[0].n_dims, s.count);
	return 0;
}

/* Strides and offset of the range in a tensor with x's shape. */
static int64_t inside(const struct dlb_desc *x, const struct slice *s, int64_t stride[DLB_MAX_DIMS])
{
	int64_t full[DLB_MAX_DIMS], offset = 0;

	dlb_desc_strides(x, full);
	for (int i = 0; i < x->n_dims; i++) {
		offset += s->count[i] ? full[i] * s->start[i] : 0;
		stride[i] = full[i] * s->step[i];
	}
	return offset;
}

static int slice_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			struct dlb_error *err)
{
	int64_t in[DLB_MAX_DIMS], out[DLB_MAX_DIMS], offset;
	struct slice s;

	if (slice_of(io, &io->in[0], 1, &s, err))
		return -1;
	offset = inside(&io->in[0], &s, in);
	dlb_desc_strides(&io->out[0], out);
	return dlb_kernel_strided(be,
				  &(struct dlb_strided){ .in = &io->in[0], .out = &io->out[0],
							 .n_dims = io->in[0].n_dims, .dim = s.count,
							 .in_stride = in, .out_stride = out,
							 .in_offset = offset }, k, err);
}

static int slice_gradient(struct dlb_builder *b, struct dlb_error *err)
{
	int in[6] = { b->dout[0], -1, -1, -1, -1, -1 };

	(void)err;
	if (!b->need[0])
		return 0;
	in[1] = dlb_b_const_shape(b, b->in[0]);
	for (int i = 1; i < b->io.n_in; i++)
		in[1 + i] = b->in[i];
	return dlb_b_gradient(b, &(struct dlb_op_spec){ .type = "SliceGrad",
							.in = in,
							.n_in = b->io.n_in + 1,
							.attr = b->io.attr,
							.n_attr = b->io.n_attr });
}

static int slice_grad_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct slice s;

	if (dlb_io_shape(io, 1, &io->out[0], err) || slice_of(io, &io->out[0], 2, &s, err))
		return -1;
	for (int i = 0; i < io->out[0].n_dims; i++)
		if (io->in[0].n_dims != io->out[0].n_dims || io->in[0].dim[i] != s.count[i])
			return dlb_op_fail(io, err, "the gradient's shape is not that of the slice");
	return 0;
}

static int slice_grad_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			     struct dlb_error *err)
{
	int64_t in[DLB_MAX_DIMS], out[DLB_MAX_DIMS], offset;
	struct slice s;

	if (slice_of(io, &io->out[0], 2, &s, err))
		return -1;
	offset = inside(&io->out[0], &s, out);
	dlb_desc_strides(&io->in[0], in);
	return dlb_kernel_strided(be,
				  &(struct dlb_strided){ .in = &io->in[0], .out = &io->out[0],
							 .n_dims = io->in[0].n_dims, .dim = s.count,
							 .in_stride = in, .out_stride = out,
							 .out_offset = offset, .zero_first = true }, k, err);
}

/* -- Concat, Split -- */

static int concat_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	const struct dlb_desc *x = &io->in[0];
	int axis = dlb_axis(io, dlb_io_int(io, "axis", io->opset < 4 ? 1 : 0), x->n_dims, err);
	int64_t sum = 0;

	if (axis < 0)
		return -1;
	for (int i = 0; i < io->n_in; i++) {
		const struct dlb_desc *d = &io->in[i];

		if (d->n_dims != x->n_dims || d->dtype != x->dtype)
			return dlb_op_fail(io, err, "input %d differs in type or number of dimensions", i);
		for (int j = 0; j < x->n_dims; j++)
			if (j != axis && d->dim[j] != x->dim[j])
				return dlb_op_fail(io, err, "input %d differs in dimension %d", i, j);
		sum += d->dim[axis];
	}
	io->out[0] = dlb_desc_make(x->dtype, x->n_dims, x->dim);
	io->out[0].dim[axis] = sum;
	return 0;
}

static int concat_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			 struct dlb_error *err)
{
	int axis = dlb_axis(io, dlb_io_int(io, "axis", 0), io->in[0].n_dims, err);
	struct dlb_chain *c;
	int64_t at = 0, to[DLB_MAX_DIMS];

	if (axis < 0)
		return -1;
	c = dlb_chain_new(be, err);
	dlb_desc_strides(&io->out[0], to);
	for (int i = 0; i < io->n_in; i++) {
		const struct dlb_desc *x = &io->in[i];
		int64_t from[DLB_MAX_DIMS];
		struct dlb_kernel *sub = NULL;
		int rc;

		dlb_desc_strides(x, from);
		rc = dlb_kernel_strided(be,
					&(struct dlb_strided){ .in = x, .out = &io->out[0],
							       .n_dims = x->n_dims, .dim = x->dim,
							       .in_stride = from, .out_stride = to,
							       .out_offset = at * to[axis] }, &sub, err);
		dlb_chain_add(c, rc, sub, DLB_REFS(DLB_IN(i)), 1, DLB_REFS(DLB_OUT(0)), 1);
		if (rc)
			break;
		at += x->dim[axis];
	}
	return dlb_chain_finish(c, k);
}

/* Each input gets its slice of dy. Starts and ends are constants along the axis, so they
 * cannot follow the batch. */
static int concat_gradient(struct dlb_builder *b, struct dlb_error *err)
{
	int axis = dlb_axis(&b->io, dlb_io_int(&b->io, "axis", 0), b->io.in[0].n_dims, err);
	int64_t at = 0, a = axis;

	if (axis < 0)
		return -1;
	for (int i = 0; i < b->io.n_in; i++) {
		int64_t to = at + b->io.in[i].dim[axis];

		if (b->need[i]) {
			int in[4] = { b->dout[0], dlb_b_const_ints(b, &at, 1), dlb_b_const_ints(b, &to, 1),
				      dlb_b_const_ints(b, &a, 1) };

			b->din[i] = dlb_b_op(b, &(struct dlb_op_spec){ .type = "Slice", .in = in, .n_in = 4 },
					     NULL, b->in[i]);
			if (b->din[i] < 0)
				return -1;
		}
		at = to;
	}
	return 0;
}

enum { MAX_SPLIT = 256 };

static int split_sizes(const struct dlb_op_io *io, int *axis, int64_t size[MAX_SPLIT], struct dlb_error *err)
{
	const struct dlb_desc *x = &io->in[0];
	int64_t sum = 0;
	int n;

	*axis = dlb_axis(io, dlb_io_int(io, "axis", 0), x->n_dims, err);
	if (*axis < 0)
		return -1;
	if (io->n_out > MAX_SPLIT)
		return dlb_op_fail(io, err, "more than %d parts", MAX_SPLIT);
	n = dlb_io_ints(io, 1, "split", size, MAX_SPLIT, err);
	if (n < 0)
		return -1;
	if (dlb_io_int(io, "num_outputs", io->n_out) != io->n_out)
		return dlb_op_fail(io, err, "attribute 'num_outputs' is %lld for %d outputs",
				   (long long)dlb_io_int(io, "num_outputs", 0), io->n_out);
	if (!n) {				/* equal parts, the last one may be smaller */
		int64_t part = io->n_out ? (x->dim[*axis] + io->n_out - 1) / io->n_out : 0;

		for (n = 0; n < io->n_out; n++)
			size[n] = clamp(x->dim[*axis] - n * part, 0, part);
	}
	for (int i = 0; i < n && sum <= x->dim[*axis]; i++)
		sum = size[i] < 0 || size[i] > x->dim[*axis] ? INT64_MAX : sum + size[i];
	if (n != io->n_out || sum != x->dim[*axis])
		return dlb_op_fail(io, err, "%d parts do not add up to %lld", n, (long long)x->dim[*axis]);
	return 0;
}

static int split_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	int64_t size[MAX_SPLIT];
	int axis;

	if (split_sizes(io, &axis, size, err))
		return -1;
	for (int i = 0; i < io->n_out; i++) {
		io->out[i] = dlb_desc_make(io->in[0].dtype, io->in[0].n_dims, io->in[0].dim);
		io->out[i].dim[axis] = size[i];
	}
	return 0;
}

static int split_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			struct dlb_error *err)
{
	int64_t size[MAX_SPLIT], from[DLB_MAX_DIMS], to[DLB_MAX_DIMS], at = 0;
	struct dlb_chain *c;
	int axis;

	if (split_sizes(io, &axis, size, err))
		return -1;
	c = dlb_chain_new(be, err);
	dlb_desc_strides(&io->in[0], from);
	for (int i = 0; i < io->n_out; at += size[i++]) {
		struct dlb_kernel *sub = NULL;
		int rc;

		if (!dlb_io_wants(io, i))
			continue;
		dlb_desc_strides(&io->out[i], to);
		rc = dlb_kernel_strided(be,
					&(struct dlb_strided){ .in = &io->in[0], .out = &io->out[i],
							       .n_dims = io->in[0].n_dims,
							       .dim = io->out[i].dim, .in_stride = from,
							       .out_stride = to,
							       .in_offset = at * from[axis] }, &sub, err);
		dlb_chain_add(c, rc, sub, DLB_REFS(DLB_IN(0)), 1, DLB_REFS(DLB_OUT(i)), 1);
		if (rc)
			break;
	}
	return dlb_chain_finish(c, k);
}

/* Concatenates the gradients of all parts; if some are missing, sums the others, each padded with zeros. */
static int split_gradient(struct dlb_builder *b, struct dlb_error *err)
{
	int64_t size[MAX_SPLIT], axis64, at = 0;
	int axis, n = 0, in[MAX_SPLIT];
	struct dlb_attr a;

	if (!b->need[0])
		return 0;
	if (split_sizes(&b->io, &axis, size, err))
		return -1;
	axis64 = axis;
	a = dlb_make_int("axis", axis);
	for (int i = 0; i < b->io.n_out; i++)
		if (b->dout[i] >= 0)
			in[n++] = b->dout[i];
	if (n == b->io.n_out) {
		b->din[0] = dlb_b_op(b,
				     &(struct dlb_op_spec){ .type = "Concat", .in = in, .n_in = n, .attr = &a,
							    .n_attr = 1 }, NULL, b->in[0]);
		return b->din[0] < 0 ? -1 : 0;
	}
	n = 0;
	for (int i = 0; i < b->io.n_out; at += size[i++]) {
		int64_t to = at + size[i];

		if (b->dout[i] >= 0)
			in[n++] = dlb_b_op(b, DLB_SPEC("SliceGrad", b->dout[i],
						       dlb_b_const_shape(b, b->in[0]),
						       dlb_b_const_ints(b, &at, 1),
						       dlb_b_const_ints(b, &to, 1),
						       dlb_b_const_ints(b, &axis64, 1)), NULL, b->in[0]);
	}
	b->din[0] = n == 1 ? in[0] : dlb_b_op(b, &(struct dlb_op_spec){ .type = "Sum", .in = in, .n_in = n },
					      NULL, b->in[0]);
	return b->din[0] < 0 ? -1 : 0;
}

/* -- Expand, Tile -- */

static int expand_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct dlb_desc to;

	if (dlb_io_shape(io, 1, &to, err))
		return -1;
	if (dlb_broadcast(&io->in[0], &to, &io->out[0]))
		return dlb_op_fail(io, err, "the input does not broadcast to the shape");
	io->out[0].dtype = io->in[0].dtype;
	return 0;
}

static int expand_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			 struct dlb_error *err)
{
	const struct dlb_desc *x = &io->in[0], *y = &io->out[0];
	int64_t full[DLB_MAX_DIMS], from[DLB_MAX_DIMS], to[DLB_MAX_DIMS];
	int lead = y->n_dims - x->n_dims;

	dlb_desc_strides(x, full);
	dlb_desc_strides(y, to);
	for (int i = 0; i < y->n_dims; i++)
		from[i] = i >= lead && x->dim[i - lead] > 1 ? full[i - lead] : 0;
	return dlb_kernel_strided(be,
				  &(struct dlb_strided){ .in = x, .out = y, .n_dims = y->n_dims,
							 .dim = y->dim, .in_stride = from, .out_stride = to },
				  k, err);
}

static int expand_gradient(struct dlb_builder *b, struct dlb_error *err)
{
	(void)err;
	if (b->need[0])
		b->din[0] = dlb_b_unbroadcast(b, b->dout[0], b->in[0]);
	return b->need[0] && b->din[0] < 0 ? -1 : 0;
}

static int tile_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	int64_t times[DLB_MAX_DIMS];
	int n = dlb_io_ints(io, 1, "repeats", times, DLB_MAX_DIMS, err);

	if (n != io->in[0].n_dims)
		return n < 0 ? -1 : dlb_op_fail(io, err, "%d repeats for %d dimensions", n, io->in[0].n_dims);
	io->out[0] = dlb_desc_make(io->in[0].dtype, n, io->in[0].dim);
	for (int i = 0; i < n; i++) {
		if (times[i] < 0 || (times[i] && io->out[0].dim[i] > ((int64_t)1 << 62) / times[i]))
			return dlb_op_fail(io, err, "%lld repeats are not possible", (long long)times[i]);
		io->out[0].dim[i] *= times[i];
	}
	return 0;
}

/* The output as (repeats 0, dim 0, repeats 1, dim 1, ...); pairs with repeats 1 are one dimension. */
static int tile_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	const struct dlb_desc *x = &io->in[0], *y = &io->out[0];
	int64_t full[DLB_MAX_DIMS], fy[DLB_MAX_DIMS], dim[2 * DLB_MAX_DIMS], from[2 * DLB_MAX_DIMS],
		to[2 * DLB_MAX_DIMS];
	int n = 0;

	dlb_desc_strides(x, full);
	dlb_desc_strides(y, fy);
	for (int i = 0; i < x->n_dims; i++) {
		int64_t times = x->dim[i] ? y->dim[i] / x->dim[i] : 1;

		if (times != 1) {
			dim[n] = times;
			from[n] = 0;
			to[n++] = x->dim[i] * fy[i];
		}
		dim[n] = x->dim[i];
		from[n] = full[i];
		to[n++] = fy[i];
	}
	if (n > DLB_MAX_DIMS)
		return dlb_op_fail(io, err, "too many repeated dimensions");
	return dlb_kernel_strided(be,
				  &(struct dlb_strided){ .in = x, .out = y, .n_dims = n, .dim = dim,
							 .in_stride = from, .out_stride = to }, k, err);
}

/* Sums dy, as (repeats, dim) pairs, over the repeats. One of these numbers may follow the batch: a dimension,
 * or the repeats of a dimension that does not. */
static int tile_gradient(struct dlb_builder *b, struct dlb_error *err)
{
	const struct dlb_desc *x = &b->io.in[0], *y = &b->io.out[0];
	int64_t dim[2 * DLB_MAX_DIMS], axes[DLB_MAX_DIMS];
	struct dlb_attr keep = dlb_make_int("keepdims", 0);
	bool ones = true;
	int n = 0, m = 0, g;

	if (!b->need[0])
		return 0;
	for (int i = 0; i < x->n_dims; i++) {
		const bool follows = dlb_b_follows(b, b->in[0], i), repeats = dlb_b_follows(b, b->out[0], i);

		if (x->dim[i] && (y->dim[i] != x->dim[i] || repeats != follows)) {
			ones &= x->dim[i] == 1;
			axes[m++] = n;
			dim[n++] = repeats && !follows ? -1 : y->dim[i] / x->dim[i];
		}
		dim[n++] = follows ? -1 : x->dim[i];
	}
	if (ones) {
		b->din[0] = dlb_b_unbroadcast(b, b->dout[0], b->in[0]);
		return b->din[0] < 0 ? -1 : 0;
	}
	if (n > DLB_MAX_DIMS)
		return dlb_op_fail(&b->io, err, "too many repeated dimensions");
	g = b->dout[0];
	if (m) {
		g = dlb_b_op2(b, "Reshape", g, dlb_b_const_ints(b, dim, n));
		g = dlb_b_op(b, DLB_SPEC_ATTR("ReduceSum", &keep, 1, g, dlb_b_const_ints(b, axes, m)), NULL,
			     b->in[0]);
	}
	b->din[0] = g;
	return g < 0 ? -1 : 0;
}

#define MOVE(n, least, most, outs, inf, grad, kern) \
	const struct dlb_op_class dlb_op_##n = { .name = #n, .n_in = { least, most }, .n_out = { 1, outs }, .bf16 = DLB_BF16_FOLLOWS, .work = "move", \
		.infer = inf, .flops = dlb_no_flops, .gradient = grad, .kernel = kern };
MOVE(Transpose, 1, 1, 1, transpose_infer, transpose_gradient, transpose_kernel)
MOVE(Slice, 1, 5, 1, slice_infer, slice_gradient, slice_kernel)
MOVE(Concat, 1, -1, 1, concat_infer, concat_gradient, concat_kernel)
MOVE(Split, 1, 2, -1, split_infer, split_gradient, split_kernel)
MOVE(Expand, 2, 2, 1, expand_infer, expand_gradient, expand_kernel)
MOVE(Tile, 2, 2, 1, tile_infer, tile_gradient, tile_kernel)
const struct dlb_op_class dlb_op_SliceGrad = { .name = "SliceGrad",
					       .domain = "dlb",
					       .n_in = { 2, 6 },
					       .n_out = { 1, 1 },
					       .work = "move",
					       .infer = slice_grad_infer,
					       .flops = dlb_no_flops,
					       .kernel = slice_grad_kernel };
