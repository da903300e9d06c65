/* Rules for vertices with ragged operands (see ragged.c): which dimension of the outputs is ragged, which
 * value replaces padding before a scatter, a sum or a mean, and which uses are refused. A rule is called
 * after inference of a vertex with at least one ragged operand; it returns 0, 1 if it replaced the vertex, or
 * -1 with err. */
#include "graph/ragged.h"
#include <inttypes.h>

/* -- shapes, and elementwise vertices -- */

/* Operand k is a ragged shape, or an entry of such a shape, which may be read only by vertices that select or
 * join entries. */
static int pass_size(struct fold *f, int op, int k, struct dlb_error *err)
{
	const struct dlb_op *o = &f->g->op[op];
	const struct dlb_ragged r = f->ragged[o->in[k]];
	int64_t v[DLB_MAX_DIMS], at = 0;
	int n, found = -1;

	if (!strcmp(o->type, "Concat")) {
		for (int i = 0; i < k; i++)
			at += f->g->tensor[o->in[i]].dim[0].add;
		for (int i = k + 1; i < o->n_in; i++)
			if (ragged(f, o->in[i]))
				return dlb_ragged_refuse(f, op, "a shape has two such lengths", err);
		mark(f, o->out[0], r, r.dim + (int)at);
		return 0;
	}
	if (k == 0 && !strcmp(o->type, "Gather") && (n = dlb_ragged_ints(f, op, 1, v)) >= 0) {
		const int64_t length = f->g->tensor[o->in[0]].dim[0].add;
		for (int i = 0; i < n; i++)
			if ((v[i] < 0 ? v[i] + length : v[i]) == r.dim) {
				if (found >= 0)
					return dlb_ragged_refuse(f, op, "a shape has two such lengths", err);
				found = i;
			}
		if (found >= 0)
			mark(f, o->out[0], r, found);
		return 0;
	}
	if (k == 0 && !strcmp(o->type, "Slice") && dlb_ragged_ints(f, op, 1, v) == 1) {
		const struct dlb_tensor *x = &f->g->tensor[o->in[0]], *y = &f->g->tensor[o->out[0]];
		const int64_t start = v[0] < 0 ? v[0] + x->dim[0].add : v[0];
		if (operand(f, op, 4) >= 0 && (dlb_ragged_ints(f, op, 4, v) != 1 || v[0] != 1))
			return dlb_ragged_refuse(f, op, "it is read as a value", err);
		if (r.dim >= start && r.dim < start + y->dim[0].add)
			mark(f, o->out[0], r, r.dim - (int)start);
		return 0;
	}
	if (k == 0 && (!strcmp(o->type, "Cast") ||
		       (dlb_ragged_is_view(o->type) &&
			dlb_ragged_range(f, o->in[0], 0, f->g->tensor[o->in[0]].n_dims, 2) == 1))) {
		mark(f, o->out[0], r, r.dim);
		return 0;
	}
	return dlb_ragged_refuse(f, op, "it is read as a value", err);
}

/* Operands are aligned at the right and broadcast to the output. */
static int elementwise(struct fold *f, int op, struct dlb_error *err)
{
	const struct dlb_op *o = &f->g->op[op];
	const int n = f->g->tensor[o->out[0]].n_dims;
	const bool keeps = o->n_in == 1 && (!strcmp(o->type, "Max") || !strcmp(o->type, "Cast") ||
					    !strcmp(o->type, "Identity"));
	struct dlb_ragged r = { .mask = -1 };
	int pos = -1;

	for (int i = 0; i < o->n_in; i++) {
		const struct dlb_ragged *x = ragged(f, o->in[i]);
		const int at = x ? n - f->g->tensor[o->in[i]].n_dims + x->dim : -1;
		if (x && x->size)
			return dlb_ragged_refuse(f, op, "it is read as a value", err);
		if (x && pos >= 0 && (at != pos || !same(x, &r)))
			return dlb_ragged_refuse(f, op, "it meets rows of another selection", err);
		if (x && pos < 0) {
			r = *x;
			pos = at;
		}
	}
	for (int i = 0; i < o->n_in; i++)
		if (!ragged(f, o->in[i]) && !dlb_ragged_broadcasts(f, o->in[i], n, pos))
			return dlb_ragged_refuse(f, op, "it meets a tensor of a length of its own", err);
	r.coordinate = keeps ? r.coordinate : -1;
	for (int k = 0; k < o->n_out; k++)
		mark(f, o->out[k], r, pos);
	return 0;
}

static int shape(struct fold *f, int op, struct dlb_error *err)
{
	const struct dlb_op *o = &f->g->op[op];
	struct dlb_ragged r = f->ragged[o->in[0]];
	const int n = f->g->tensor[o->in[0]].n_dims;
	const int64_t start = dlb_attr_int(o->attr, o->n_attr, "start", 0),
		      first = start < -n ? 0 : start < 0 ? start + n : start;

	(void)err;
	r.size = true;
	r.coordinate = -1;
	if (r.dim >= first && r.dim - first < f->g->tensor[o->out[0]].dim[0].add)
		mark(f, o->out[0], r, r.dim - (int)first);
	return 0;
}

static int transpose(struct fold *f, int op, struct dlb_error *err)
{
	const struct dlb_op *o = &f->g->op[op];
	const struct dlb_ragged r = f->ragged[o->in[0]];
	const int n = f->g->tensor[o->in[0]].n_dims;
	const int64_t *perm = NULL;
	const int listed = dlb_attr_ints(o->attr, o->n_attr, "perm", &perm);

	(void)err;
	for (int k = 0; k < n; k++)
		if ((listed == n ? perm[k] : n - 1 - k) == r.dim)
			mark(f, o->out[0], r, k);
	return 0;
}

/* If an entry of the shape operand is a bound, is it for the dimension that it bounds? */
static bool agrees(const struct fold *f, int shape_operand, const struct dlb_ragged *r, int dim, int behind)
{
	const struct dlb_ragged *s = ragged(f, shape_operand);

	return !s || (s->mask == r->mask && s->times == r->times && s->dim + behind == dim);
}

static int view(struct fold *f, int op, struct dlb_error *err)
{
	const struct dlb_op *o = &f->g->op[op];
	struct dlb_ragged r = f->ragged[o->in[0]];
	const int dim = r.mask < 0 || r.size ? -1 : dlb_ragged_view(f, o->in[0], r.dim, o->out[0], &r.times);

	if (dim < 0 || (!strcmp(o->type, "Reshape") && !agrees(f, operand(f, op, 1), &r, dim, 0)))
		return dlb_ragged_refuse(f, op, "its rows would be cut up", err);
	mark(f, o->out[0], r, dim);
	return 0;
}

/* Expand and ConstantOfShape to a ragged shape; Expand from one row, or from rows of the same count. */
static int expand(struct fold *f, int op, struct dlb_error *err)
{
	const struct dlb_op *o = &f->g->op[op];
	const bool filled = o->n_in < 2;
	const struct dlb_ragged *x = filled ? NULL : ragged(f, o->in[0]),
				*s = ragged(f, o->in[filled ? 0 : 1]);
	const int n = f->g->tensor[o->out[0]].n_dims;
	const int behind = n - (int)f->g->tensor[o->in[filled ? 0 : 1]].dim[0].add;
	struct dlb_ragged r = x ? *x : *s;
	const int pos = x ? n - f->g->tensor[o->in[0]].n_dims + r.dim : s->dim + behind;

	if ((x && x->size) || (s && !s->size) || (x && !agrees(f, o->in[1], x, pos, behind)))
		return dlb_ragged_refuse(f, op, "it meets rows of another selection", err);
	if (x && !s && pos - behind >= 0) {	/* a constant entry must be 1: it is unrelated to the count */
		int64_t v[DLB_MAX_DIMS];
		if (dlb_ragged_ints(f, op, 1, v) <= pos - behind || v[pos - behind] != 1)
			return dlb_ragged_refuse(f, op, "it meets a tensor of a length of its own", err);
	}
	if (!x && !filled && !dlb_ragged_broadcasts(f, o->in[0], n, pos))
		return dlb_ragged_refuse(f, op, "it meets a tensor of a length of its own", err);
	r.size = false;
	r.coordinate = x ? r.coordinate : -1;
	mark(f, o->out[0], r, pos);
	return 0;
}

/* Concatenates along an axis that is not ragged; all parts must be ragged in the same way. */
static int concat(struct fold *f, int op, struct dlb_error *err)
{
	const struct dlb_op *o = &f->g->op[op];
	const struct dlb_ragged *first = ragged(f, o->in[0]);

	for (int i = 0; i < o->n_in; i++) {
		const struct dlb_ragged *x = ragged(f, o->in[i]);
		if (!x || !first || !same(x, first) || x->dim != first->dim)
			return dlb_ragged_refuse(f, op, "it meets rows of another selection", err);
	}
	if (dlb_ragged_axis(f, op, 0, f->g->tensor[o->in[0]].n_dims) == first->dim)
		return dlb_ragged_refuse(f, op, "padding would stand between rows", err);
	mark(f, o->out[0], *first, first->dim);
	return 0;
}

static int split(struct fold *f, int op, struct dlb_error *err)
{
	const struct dlb_op *o = &f->g->op[op];
	struct dlb_ragged r = f->ragged[o->in[0]];
	const int axis = dlb_ragged_axis(f, op, 0, f->g->tensor[o->in[0]].n_dims);

	if (ragged(f, operand(f, op, 1)) || r.mask < 0 || r.size || axis == r.dim)
		return dlb_ragged_refuse(f, op, "its rows are counted", err);
	for (int k = 0; k < o->n_out; k++) {
		mark(f, o->out[k], r, r.dim);
		if (r.coordinate >= 0 && o->out[k] >= 0)
			r.coordinate += (int)f->g->tensor[o->out[k]].dim[axis].add;
	}
	return 0;
}

/* Slices axes that are not ragged, or takes all rows up to their count. */
static int slice(struct fold *f, int op, struct dlb_error *err)
{
	const struct dlb_op *o = &f->g->op[op];
	struct dlb_ragged r = f->ragged[o->in[0]];
	const struct dlb_ragged *to = ragged(f, operand(f, op, 2));
	const int n_dims = f->g->tensor[o->in[0]].n_dims;
	int64_t start[DLB_MAX_DIMS], axes[DLB_MAX_DIMS], steps[DLB_MAX_DIMS], end[DLB_MAX_DIMS];
	const int n = dlb_ragged_ints(f, op, 1, start), n_axes = dlb_ragged_ints(f, op, 3, axes);
	const int n_steps = dlb_ragged_ints(f, op, 4, steps);

	if (r.mask < 0 || r.size || n < 0 || ragged(f, o->in[1]))
		return dlb_ragged_refuse(f, op, "its rows are counted", err);
	for (int i = 0; i < n; i++) {
		const int axis = (int)(n_axes == n ? axes[i] + (axes[i] < 0 ? n_dims : 0) : i);
		const bool all = start[i] == 0 && (n_steps < 0 || steps[i] == 1) && operand(f, op, 2) >= 0 &&
			(to ? to->dim == i && to->mask == r.mask && to->times == r.times
			 : dlb_ragged_ints(f, op, 2, end) == n && end[i] >= INT32_MAX);
		if ((axis == r.dim && !all) || (to && to->dim == i && axis != r.dim))
			return dlb_ragged_refuse(f, op, "its rows are counted", err);
		if (r.coordinate >= 0 && axis != r.dim)
			r.coordinate += (int)(start[i] < 0 ? start[i] + f->g->tensor[o->in[0]].dim[axis].add :
							     start[i]);
	}
	mark(f, o->out[0], r, r.dim);
	return 0;
}

/* Do the indices `at` come from a mask over the rows of x? Then they name rows that count, never padding. (If
 * the mask is all zero, all indices are padding themselves.) */
static bool names_rows(const struct fold *f, const struct dlb_ragged *x, const struct dlb_ragged *at, int dim)
{
	const struct dlb_ragged *m = at && at->coordinate >= 0 ? ragged(f, at->picked) : NULL;

	return x && m && x->dim == dim && same(x, m) && m->dim == at->coordinate;
}

static int gather(struct fold *f, int op, struct dlb_error *err)
{
	const struct dlb_op *o = &f->g->op[op];
	const struct dlb_ragged *x = ragged(f, o->in[0]), *at = ragged(f, o->in[1]);
	const int axis = dlb_ragged_axis(f, op, 0, f->g->tensor[o->in[0]].n_dims);
	int64_t v[DLB_MAX_DIMS];

	if ((x && at && !names_rows(f, x, at, axis)) || (x && !at && axis == x->dim))
		return dlb_ragged_refuse(f, op, "rows are named by their number among those that count", err);
	if (at) {
		struct dlb_ragged r = *at;
		r.coordinate = -1;
		mark(f, o->out[0], r, axis + at->dim);
		return 0;
	}
	struct dlb_ragged r = *x;
	if (r.coordinate >= 0 && dlb_ragged_ints(f, op, 1, v) == 1)
		r.coordinate += (int)(v[0] < 0 ? v[0] + f->g->tensor[o->in[0]].dim[axis].add : v[0]);
	else
		r.coordinate = -1;
	mark(f, o->out[0], r, r.dim + (axis < r.dim ? f->g->tensor[o->in[1]].n_dims - 1 : 0));
	return 0;
}

/* Do indices and data agree row by row in a dimension before `end`, which the indices do not address? */
static bool side_by_side(const struct dlb_ragged *x, const struct dlb_ragged *at, int axis, int end)
{
	return x && at && same(x, at) && x->dim == at->dim && at->dim != axis && at->dim < end;
}

static int gather_by_tuples(struct fold *f, int op, struct dlb_error *err)
{
	const struct dlb_op *o = &f->g->op[op];
	const struct dlb_ragged *x = ragged(f, o->in[0]), *at = ragged(f, o->in[1]);
	const int batch = (int)dlb_attr_int(o->attr, o->n_attr, "batch_dims", 0),
		  n = f->g->tensor[o->in[1]].n_dims;
	const bool named = at && names_rows(f, x, at, 0) && !batch;
	struct dlb_ragged r = x && !named ? *x : *at;

	r.coordinate = -1;
	if (!side_by_side(x, at, -1, batch) && ((x && !named) || at->dim >= n - 1 || at->dim < batch))
		return dlb_ragged_refuse(f, op, "rows are named by their number among those that count", err);
	mark(f, o->out[0], r, r.dim);
	return 0;
}

static int gather_elements(struct fold *f, int op, struct dlb_error *err)
{
	const struct dlb_op *o = &f->g->op[op];
	const struct dlb_ragged *x = ragged(f, o->in[0]), *at = ragged(f, o->in[1]);
	const int n = f->g->tensor[o->in[0]].n_dims, axis = dlb_ragged_axis(f, op, 0, n);
	struct dlb_ragged r = x ? *x : *at;

	r.coordinate = -1;
	if (!side_by_side(x, at, axis, n) && (x || at->dim != axis))
		return dlb_ragged_refuse(f, op, "rows are named by their number among those that count", err);
	mark(f, o->out[0], r, r.dim);
	return 0;
}

/* Moves the indices of padding, input 1, out of the data's range: kernels write nothing there. */
static int move_out(struct fold *f, int op, struct dlb_error *err)
{
	const double outside = f->g->tensor[operand(f, op, 1)].dtype == DLB_I64 ? (double)(INT64_MIN / 4) :
										  (double)INT32_MIN;
	const int made = dlb_ragged_unpad(f, op, operand(f, op, 1), outside, err);

	if (made < 0)
		return -1;
	f->g->op[op].in[1] = made;
	return 0;
}

static int scatter(struct fold *f, int op, struct dlb_error *err)
{
	const struct dlb_op *o = &f->g->op[op];
	const struct dlb_ragged *x = ragged(f, o->in[0]), *at = ragged(f, o->in[1]),
				*from = ragged(f, operand(f, op, 2));
	const bool nd = !strcmp(o->type, "ScatterND");
	const int n = f->g->tensor[o->in[1]].n_dims, axis = nd ? -1 : dlb_ragged_axis(f, op, 0, n);

	if (!nd && side_by_side(x, at, axis, n) && from && same(from, at) && from->dim == at->dim) {
		mark(f, o->out[0], *x, x->dim);
		return 0;
	}
	if ((x && !(nd && names_rows(f, x, at, 0))) || !at || !from || !same(at, from) ||
	    at->dim != from->dim || (nd ? at->dim >= n - 1 : at->dim != axis))
		return dlb_ragged_refuse(f, op, "data, indices and updates are not of one selection", err);
	if (x)
		mark(f, o->out[0], *x, x->dim);
	return move_out(f, op, err);
}

/* -- products: rows of the left and columns of the right operand are independent -- */

static int product(struct fold *f, int op, struct dlb_error *err)
{
	const struct dlb_op *o = &f->g->op[op];
	const int n[2] = { f->g->tensor[o->in[0]].n_dims, f->g->tensor[o->in[1]].n_dims },
		  n_out = f->g->tensor[o->out[0]].n_dims;
	struct dlb_ragged r = { .mask = -1 };
	int pos = -1;

	for (int i = 0; i < 2; i++) {
		const struct dlb_ragged *x = ragged(f, o->in[i]);
		if (!x)
			continue;
		const int summed = n[i] == 1 ? 0 : i ? n[1] - 2 : n[0] - 1;
		const int cut = n[1 - i] == 1;		/* a vector's dimension is dropped */
		int at = n_out + cut - n[i] + x->dim;
		if (n[i] == 1 || x->dim == summed || (pos >= 0 && (at != pos || !same(x, &r))))
			return dlb_ragged_refuse(f, op, "its rows are added up", err);
		/* (k) (.., k, n): the columns are one dimension further left */
		at -= cut && i == 1;
		r = *x;
		pos = at;
	}
	for (int i = 0; i < 2; i++)
		if (!ragged(f, o->in[i]) && n[i] > 2 && pos < n_out - 2 &&
		    !dlb_ragged_broadcasts(f, o->in[i], n_out, pos))
			return dlb_ragged_refuse(f, op, "it meets a tensor of a length of its own", err);
	r.coordinate = -1;
	mark(f, o->out[0], r, pos);
	return 0;
}

static int gemm(struct fold *f, int op, struct dlb_error *err)
{
	const struct dlb_op *o = &f->g->op[op];
	const struct dlb_ragged *a = ragged(f, o->in[0]), *b = ragged(f, o->in[1]),
				*c = ragged(f, operand(f, op, 2));
	const int rows = dlb_attr_int(o->attr, o->n_attr, "transA", 0) != 0,
		  columns = !dlb_attr_int(o->attr, o->n_attr, "transB", 0);
	const int pos = a ? 0 : 1;
	struct dlb_ragged r = a ? *a : b ? *b : *c;

	if ((a && b) || (!a && !b) || (a && a->dim != rows) || (b && b->dim != columns))
		return dlb_ragged_refuse(f, op, "its rows are added up", err);
	if (c ? !same(c, &r) || 2 - f->g->tensor[o->in[2]].n_dims + c->dim != pos :
		!dlb_ragged_broadcasts(f, operand(f, op, 2), 2, pos))
		return dlb_ragged_refuse(f, op, "it meets a tensor of a length of its own", err);
	r.coordinate = -1;
	mark(f, o->out[0], r, pos);
	return 0;
}

/* -- along one axis -- */

/* Accepts the vertex if only input 0 is ragged, in a dimension that is not one of `first` to `last`. */
static int all_but(struct fold *f, int op, int first, int last, struct dlb_error *err)
{
	const struct dlb_op *o = &f->g->op[op];
	struct dlb_ragged r = f->ragged[o->in[0]];

	for (int i = 1; i < o->n_in; i++)
		if (ragged(f, o->in[i]))
			return dlb_ragged_refuse(f, op, "it is read as a value", err);
	if (r.dim >= first && r.dim <= last)
		return dlb_ragged_refuse(f, op, "its rows would be mixed with padding", err);
	r.coordinate = -1;
	for (int k = 0; k < o->n_out; k++)
		if (o->out[k] >= 0 && f->g->tensor[o->out[k]].n_dims == f->g->tensor[o->in[0]].n_dims)
			mark(f, o->out[k], r, r.dim);
		else if (o->out[k] >= 0)
			return dlb_ragged_refuse(f, op, "its rows would be mixed with padding", err);
	return 0;
}

static int normalization(struct fold *f, int op, struct dlb_error *err)
{
	const int n = f->g->tensor[operand(f, op, 0)].n_dims;

	return all_but(f, op, dlb_ragged_axis(f, op, -1, n), n - 1, err);
}

static int softmax(struct fold *f, int op, struct dlb_error *err)
{
	const int n = f->g->tensor[operand(f, op, 0)].n_dims;
	const bool old = f->g->op[op].opset < 13;	/* all axes from this one on */
	const int axis = dlb_ragged_axis(f, op, old ? 1 : -1, n);

	return all_but(f, op, axis, old ? n - 1 : axis, err);
}

static int along_axis(struct fold *f, int op, struct dlb_error *err)
{
	const int n = f->g->tensor[operand(f, op, 0)].n_dims, axis = dlb_ragged_axis(f, op, -1, n);

	return all_but(f, op, axis, axis, err);
}

static int cumulative(struct fold *f, int op, struct dlb_error *err)
{
	const int n = f->g->tensor[operand(f, op, 0)].n_dims;
	int64_t v[DLB_MAX_DIMS];

	if (dlb_ragged_ints(f, op, 1, v) != 1)
		return dlb_ragged_refuse(f, op, "it is not known along which dimension", err);
	const int axis = (int)(v[0] < 0 ? v[0] + n : v[0]);
	return all_but(f, op, axis, axis, err);
}

/* Samples along dimension 0 are independent. */
static int samples(struct fold *f, int op, struct dlb_error *err)
{
	return all_but(f, op, 1, DLB_MAX_DIMS, err);
}

/* -- reductions -- */

/* The axes that are reduced, as bits; -1: unknown. */
static int64_t reduced_axes(struct fold *f, int op)
{
	const struct dlb_op *o = &f->g->op[op];
	const int n = f->g->tensor[o->in[0]].n_dims;
	const int64_t *listed = NULL;
	int64_t v[DLB_MAX_DIMS], bits = 0;
	int count = dlb_attr_ints(o->attr, o->n_attr, "axes", &listed);

	if (operand(f, op, 1) >= 0) {
		if ((count = dlb_ragged_ints(f, op, 1, v)) < 0)
			return -1;
		listed = v;
	}
	if (!count)
		return dlb_attr_int(o->attr, o->n_attr, "noop_with_empty_axes", 0) ? 0 :
										     ((int64_t)1 << n) - 1;
	for (int i = 0; i < count; i++)
		bits |= (int64_t)1 << (listed[i] < 0 ? listed[i] + n : listed[i]);
	return bits;
}

/* A mean over dimensions that include ragged rows: the sum of the rows that count, divided by their number.
 * With a split batch, the mean is not the mean of the parts' means. */
static int mean_of_counted(struct fold *f, int op, int t, const struct dlb_ragged *r, int64_t each,
			   struct dlb_error *err)
{
	const enum dlb_dtype type = f->g->tensor[t].dtype;
	const struct dlb_attr keep = { .name = "keepdims", .type = DLB_ATTR_INT, .i = 0 },
		to = { .name = "to", .type = DLB_ATTR_INT, .i = dlb_dtype_to_onnx(type) };
	const int n_in = f->g->op[op].n_in;
	int in[2] = { t, n_in > 1 ? f->g->op[op].in[1] : -1 };
	const struct dlb_attr *axes = dlb_attr_find(f->g->op[op].attr, f->g->op[op].n_attr, "axes");

	if (axes)
		in[1] = dlb_fold_ints(f, op, axes->ints, axes->n);
	const struct dlb_attr kept = { .name = "keepdims", .type = DLB_ATTR_INT,
		.i = dlb_attr_int(f->g->op[op].attr, f->g->op[op].n_attr, "keepdims", 1) };
	const int sum = dlb_fold_emit(f, op,
				      &(struct dlb_op_spec){ .type = "ReduceSum", .in = in,
							     .n_in = in[1] < 0 ? 1 : 2, .attr = &kept,
							     .n_attr = 1 }, NULL, err);
	const int rows = sum < 0 ? -1 : dlb_ragged_counted(f, op, r, 0, err);
	const int number = rows < 0 ? -1 : dlb_fold_emit(f, op, DLB_SPEC_ATTR("Cast", &to, 1, rows), NULL,
							 err);
	const int count = number < 0 ? -1 :
				       dlb_fold_emit(f, op, DLB_SPEC_ATTR("ReduceSum", &keep, 1, number),
						     NULL, err);
	const int all = count < 0 ? -1 :
				    dlb_fold_emit(f, op, DLB_SPEC("Mul", count,
								  dlb_ragged_scalar(f, type, (double)each)),
						  NULL, err);
	const int mean = all < 0 ? -1 :
				   dlb_fold_emit(f, op, DLB_SPEC("Div", sum, all), NULL, err);

	if (mean < 0 || dlb_fold_bind(f, op, 0, mean, err))
		return -1;
	if (dlb_tensor_follows_batch(&f->g->tensor[r->mask]) && !f->g->fixed_batch) {
		f->g->fixed_batch = true;
		dlb_graph_note(f->g,
			       "the batch stays %" PRId64
			       ", in one micro-batch and one replica: %s '%s' (opset %d) divides by a "
			       "count that follows values, so parts of a batch have other means",
			       f->g->batch, f->g->op[op].type, f->g->op[op].name, f->g->op[op].opset);
	}
	return 1;
}

static int reduce(struct fold *f, int op, struct dlb_error *err)
{
	const struct dlb_op *o = &f->g->op[op];
	struct dlb_ragged r = f->ragged[o->in[0]];
	const int64_t axes = r.size || r.mask < 0 ? -1 : reduced_axes(f, op);
	const bool keep = dlb_attr_int(o->attr, o->n_attr, "keepdims", 1) != 0,
		   mean = !strcmp(o->type, "ReduceMean");
	const int n = f->g->tensor[o->in[0]].n_dims;
	int dim = r.dim;
	int64_t each = 1;

	if (axes < 0 || ragged(f, operand(f, op, 1)))
		return dlb_ragged_refuse(f, op, "it is read as a value", err);
	for (int k = 0; k < n; k++)
		if (axes >> k & 1) {
			if (k != r.dim && f->g->tensor[o->in[0]].dim[k].mul)
				return dlb_ragged_refuse(
					f, op, "another dimension that is added up follows the batch", err);
			each *= k == r.dim ? 1 : f->g->tensor[o->in[0]].dim[k].add;
			dim -= k < r.dim && !keep;
		}
	if (!(axes >> r.dim & 1)) {
		r.coordinate = -1;
		mark(f, o->out[0], r, dim);
		return 0;
	}
	if (!mean && strcmp(o->type, "ReduceSum"))
		return dlb_ragged_refuse(f, op, "of reductions over it there are the sum and the mean", err);
	const int t = dlb_ragged_unpad(f, op, operand(f, op, 0), 0, err);
	if (t < 0)
		return -1;
	if (mean)
		return mean_of_counted(f, op, t, &r, each, err);
	f->g->op[op].in[0] = t;
	return 0;
}

static int arg(struct fold *f, int op, struct dlb_error *err)
{
	const struct dlb_op *o = &f->g->op[op];
	struct dlb_ragged r = f->ragged[o->in[0]];
	const int axis = dlb_ragged_axis(f, op, 0, f->g->tensor[o->in[0]].n_dims);

	if (axis == r.dim || r.size)
		return dlb_ragged_refuse(f, op, "its rows would be mixed with padding", err);
	r.coordinate = -1;
	mark(f, o->out[0], r, r.dim - (axis < r.dim && !dlb_attr_int(o->attr, o->n_attr, "keepdims", 1)));
	return 0;
}

static int one_hot(struct fold *f, int op, struct dlb_error *err)
{
	const struct dlb_op *o = &f->g->op[op];
	struct dlb_ragged r = f->ragged[o->in[0]];

	if (r.mask < 0 || r.size || ragged(f, o->in[1]) || ragged(f, o->in[2]))
		return dlb_ragged_refuse(f, op, "it is read as a value", err);
	r.coordinate = -1;
	mark(f, o->out[0], r, r.dim + (dlb_ragged_axis(f, op, -1, f->g->tensor[o->out[0]].n_dims) <= r.dim));
	return 0;
}

/* -- the vertices of each rule -- */

static const char *const by_element[] = { "Abs",
					  "Acos",
					  "Acosh",
					  "Add",
					  "And",
					  "Asin",
					  "Asinh",
					  "Atan",
					  "Atanh",
					  "BitwiseAnd",
					  "BitwiseNot",
					  "BitwiseOr",
					  "BitwiseXor",
					  "Cast",
					  "Ceil",
					  "Celu",
					  "Clip",
					  "Cos",
					  "Cosh",
					  "Div",
					  "Dropout",
					  "Elu",
					  "Equal",
					  "Erf",
					  "Exp",
					  "Floor",
					  "Gelu",
					  "Greater",
					  "GreaterOrEqual",
					  "HardSigmoid",
					  "HardSwish",
					  "Identity",
					  "IsInf",
					  "IsNaN",
					  "LeakyRelu",
					  "Less",
					  "LessOrEqual",
					  "Log",
					  "Max",
					  "Mean",
					  "Min",
					  "Mish",
					  "Mod",
					  "Mul",
					  "Neg",
					  "Not",
					  "Or",
					  "PRelu",
					  "Pow",
					  "Reciprocal",
					  "Relu",
					  "Round",
					  "Selu",
					  "Shrink",
					  "Sigmoid",
					  "Sign",
					  "Sin",
					  "Sinh",
					  "Softplus",
					  "Softsign",
					  "Sqrt",
					  "Sub",
					  "Sum",
					  "Swish",
					  "Tan",
					  "Tanh",
					  "ThresholdedRelu",
					  "Where",
					  "Xor" };

static const struct {
	const char *type;
	int (*pass)(struct fold *f, int op, struct dlb_error *err);
} rules[] = {
	{ "Shape", shape },
	{ "Transpose", transpose },
	{ "Reshape", view },
	{ "Flatten", view },
	{ "Squeeze", view },
	{ "Unsqueeze", view },
	{ "Expand", expand },
	{ "ConstantOfShape", expand },
	{ "Concat", concat },
	{ "Split", split },
	{ "Slice", slice },
	{ "Gather", gather },
	{ "GatherND", gather_by_tuples },
	{ "GatherElements", gather_elements },
	{ "ScatterND", scatter },
	{ "ScatterElements", scatter },
	{ "MatMul", product },
	{ "Gemm", gemm },
	{ "LayerNormalization", normalization },
	{ "RMSNormalization", normalization },
	{ "Softmax", softmax },
	{ "LogSoftmax", softmax },
	{ "Hardmax", softmax },
	{ "LpNormalization", along_axis },
	{ "TopK", along_axis },
	{ "CumSum", cumulative },
	{ "CumProd", cumulative },
	{ "Conv", samples },
	{ "ConvTranspose", samples },
	{ "MaxPool", samples },
	{ "AveragePool", samples },
	{ "GlobalAveragePool", samples },
	{ "GlobalMaxPool", samples },
	{ "InstanceNormalization", samples },
	{ "GroupNormalization", samples },
	{ "ReduceSum", reduce },
	{ "ReduceMean", reduce },
	{ "ReduceMax", reduce },
	{ "ReduceMin", reduce },
	{ "ReduceProd", reduce },
	{ "ReduceSumSquare", reduce },
	{ "ReduceL1", reduce },
	{ "ReduceL2", reduce },
	{ "ReduceLogSum", reduce },
	{ "ReduceLogSumExp", reduce },
	{ "ArgMax", arg },
	{ "ArgMin", arg },
	{ "OneHot", one_hot },
};

int dlb_ragged_pass(struct fold *f, int op, struct dlb_error *err)
{
	static const char *const read_shapes[] = { "Reshape", "Expand", "ConstantOfShape" };
	const struct dlb_op *o = &f->g->op[op];
	int first = -1;

	for (int i = 0; i < o->n_in && f->n_padded; i++)
		first = first < 0 && ragged(f, o->in[i]) ? i : first;
	if (first < 0)
		return 0;
	if (o->n_out < 1 || (o->out[0] < 0 && strcmp(o->type, "TopK")))
		return dlb_ragged_refuse(f, op, "what this vertex makes of padding is not known", err);
	const bool as_shape = (first == 1 || (first == 0 && o->n_in == 1)) &&
			      is_one_of(o->type, read_shapes, DLB_LEN(read_shapes));
	if (f->ragged[o->in[first]].size && !as_shape)
		return *o->domain ? dlb_ragged_refuse(f, op, "it is read as a value", err) :
				    pass_size(f, op, first, err);
	if (is_one_of(o->type, by_element, DLB_LEN(by_element)) && !*o->domain)
		return elementwise(f, op, err);
	for (int i = 0; i < DLB_LEN(rules) && !*o->domain; i++)
		if (!strcmp(o->type, rules[i].type))
			return rules[i].pass(f, op, err);
	return dlb_ragged_refuse(f, op, "what this vertex makes of padding is not known", err);
}
