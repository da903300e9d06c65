/* Dimensions whose length depends on values: NonZero of a tensor that is only known at run time, and all
 * tensors computed from the rows that it selects.
 *
 * Such a dimension is called ragged. It is given the largest length that it can have, its bound. The first
 * rows count: as many as the mask has non-zero values (times a constant). The others are padding that repeats
 * the last of them (lib/op/nonzero.c). No result depends on values of the padding:
 *
 *     row by row    elementwise ops, products, normalizations, reductions along other dimensions: the output
 *                   is ragged too, and a row of padding affects no other row
 *     scatters      indices of padding are moved out of the data's range: they write nothing, get no gradient
 *     sums, means   over a ragged dimension: padding is set to 0 first, and a mean divides by the count
 *     other ops     are refused, and so are ragged outputs of the model
 *
 * So padding gets a zero gradient and passes none on. For each tensor the ragged dimension and its mask are
 * recorded; two ragged dimensions are equal only if mask and factor are. A length, read by Shape or computed
 * as the sum of a mask, is followed until it is used as a shape.
 *
 * torch.where(mask), torch.nonzero, x[mask], index_add, y[mask] = ... and masked_scatter become NonZero,
 * GatherND and ScatterND. The main use is mixture of experts: a mask says which tokens have expert e among
 * their k best. Each token has an expert at most once, so the bound is the number of tokens. */
#include "graph/order.h"
#include "graph/ragged.h"
#include <inttypes.h>

/* -- helpers -- */

int dlb_ragged_refuse_at(struct fold *f, int op, int t, const char *why, struct dlb_error *err)
{
	return dlb_vertex_fail(&f->g->op[op], err, DLB_RAGGED_CURE,
			       "the length of '%s' follows values, those of '%s' that are not zero: %s",
			       f->g->tensor[t].name, f->g->tensor[f->ragged[t].mask].name, why);
}

int dlb_ragged_refuse(struct fold *f, int op, const char *why, struct dlb_error *err)
{
	const struct dlb_op *o = &f->g->op[op];
	int i = 0;

	while (!ragged(f, o->in[i]))
		i++;
	return dlb_ragged_refuse_at(f, op, o->in[i], why, err);
}

static int64_t size_at(const struct fold *f, struct dlb_dim d, int s)
{
	return d.mul * f->n * s + d.add;
}

/* Product of dimensions [from, to) of t at s times the reference batch. */
int64_t dlb_ragged_range(const struct fold *f, int t, int from, int to, int s)
{
	int64_t n = 1;

	for (int k = from; k < to; k++)
		n *= size_at(f, f->g->tensor[t].dim[k], s);
	return n;
}

int dlb_ragged_axis(const struct fold *f, int op, int64_t otherwise, int n_dims)
{
	const struct dlb_op *o = &f->g->op[op];
	const int64_t axis = dlb_attr_int(o->attr, o->n_attr, "axis", otherwise);

	return (int)(axis < 0 ? axis + n_dims : axis);
}

/* Is dimension pos, counted in an output of n dimensions, of size 1 or absent in t, so
 * that t broadcasts along it? */
bool dlb_ragged_broadcasts(const struct fold *f, int t, int n, int pos)
{
	const struct dlb_tensor *x = t < 0 ? NULL : &f->g->tensor[t];
	const int d = x ? pos - (n - x->n_dims) : -1;

	return d < 0 || (!x->dim[d].mul && x->dim[d].add == 1);
}

/* Reads operand k as known integers that do not follow the batch; returns their number, -1: unknown. */
int dlb_ragged_ints(struct fold *f, int op, int k, int64_t v[DLB_MAX_DIMS])
{
	const int t = operand(f, op, k);
	const struct dlb_tensor *x = t < 0 ? NULL : &f->g->tensor[t];

	if (!x || !dlb_fold_is_known(f, t) || f->varies[t] || x->n_dims > 1 || !dlb_dtype_is_int(x->dtype) ||
	    x->data_mul || dlb_tensor_follows_batch(x) || (x->n_dims && x->dim[0].add > DLB_MAX_DIMS) ||
	    !dlb_fold_value(f, t, 0))
		return -1;
	const int n = x->n_dims ? (int)x->dim[0].add : 1;
	for (int i = 0; i < n; i++)
		v[i] = dlb_value_int(dlb_fold_value(f, t, 0), x->dtype, i);
	return n;
}

/* -- masks -- */

/* The dimension of y, a view of x, into which dimension k of x goes; multiplies *times by the rows of y for
 * each row of x. -1: y has no such dimension, since rows are divided or joined with others. */
int dlb_ragged_view(const struct fold *f, int x, int k, int y, int64_t *times)
{
	const struct dlb_tensor *from = &f->g->tensor[x], *to = &f->g->tensor[y];
	int found = -1;

	for (int j = 0; j < to->n_dims; j++) {
		int64_t each[2] = { 0, 0 };
		for (int s = 1; s <= 2; s++) {
			const int64_t before = dlb_ragged_range(f, x, 0, k, s);
			const int64_t rows = dlb_ragged_range(f, x, k + 1, from->n_dims, s) * *times;
			const int64_t mine = dlb_ragged_range(f, y, j + 1, to->n_dims, s);
			if (before != dlb_ragged_range(f, y, 0, j, s) || mine < 1)
				continue;
			if (before == 1)
				each[s - 1] = rows % mine ? 0 : rows / mine;
			else if (size_at(f, from->dim[k], s) == size_at(f, to->dim[j], s))
				each[s - 1] = *times;
		}
		if (each[0] > 0 && each[0] == each[1])
			found = j;
	}
	if (found >= 0 && dlb_ragged_range(f, x, 0, k, 1) == 1)
		*times = dlb_ragged_range(f, x, k + 1, from->n_dims, 1) * *times /
			 dlb_ragged_range(f, y, found + 1, to->n_dims, 1);
	return found;
}

static const struct dlb_op *maker(const struct fold *f, int t)
{
	const struct dlb_op *o = t >= 0 && f->made_by[t] >= 0 ? &f->g->op[f->made_by[t]] : NULL;

	return o && !*o->domain && o->n_in > 0 && o->in[0] >= 0 ? o : NULL;
}

/* Is op o a Slice that keeps everything? */
static bool takes_all(const struct fold *f, const struct dlb_op *o, int t)
{
	const struct dlb_tensor *x = &f->g->tensor[o->in[0]], *y = &f->g->tensor[t];
	bool all = !strcmp(o->type, "Slice");

	for (int k = 0; k < y->n_dims && all; k++)
		all = x->dim[k].mul == y->dim[k].mul && x->dim[k].add == y->dim[k].add;
	return all;
}

/* The source of t before changes of shape and type, and before Expands. t has the non-zero values of the
 * source, each repeated by the Expands; multiplies *times by these repetitions. */
static int source(const struct fold *f, int t, int64_t *times)
{
	for (const struct dlb_op *o; (o = maker(f, t)); t = o->in[0]) {
		const struct dlb_tensor *x = &f->g->tensor[o->in[0]], *y = &f->g->tensor[t];
		const bool kept = dlb_ragged_is_view(o->type) || !strcmp(o->type, "Transpose") ||
				  takes_all(f, o, t) ||
				  (!strcmp(o->type, "Cast") &&
				   (x->dtype == DLB_BOOL || y->dtype == DLB_BOOL));
		if (kept)
			continue;
		const int64_t n = dlb_ragged_range(f, o->in[0], 0, x->n_dims, 1),
			      more = dlb_ragged_range(f, t, 0, y->n_dims, 1);
		if (strcmp(o->type, "Expand") || n < 1 || more % n ||
		    more / n * dlb_ragged_range(f, o->in[0], 0, x->n_dims, 2) !=
			    dlb_ragged_range(f, t, 0, y->n_dims, 2))
			return t;
		*times *= more / n;
	}
	return t;
}

/* The axis along which at most one value of t is non-zero (one), or all values differ (!one); -1: none.
 * Indices from TopK differ, so each token selects an expert at most once. */
static int exclusive_axis(const struct fold *f, int t, bool one, int depth)
{
	const struct dlb_op *o = depth < 16 ? maker(f, t) : NULL;
	const struct dlb_tensor *y = &f->g->tensor[t];
	int64_t times = 1;

	if (!o)
		return -1;
	const int n = f->g->tensor[o->in[0]].n_dims;
	if (!one && !strcmp(o->type, "TopK") && o->n_out > 1 && o->out[1] == t)
		return dlb_ragged_axis(f, f->made_by[t], -1, n);
	if (one && !strcmp(o->type, "Equal"))
		for (int i = 0; i < 2; i++) {
			const int a = exclusive_axis(f, o->in[i], false, depth + 1);
			const int at = a < 0 ? -1 : a + y->n_dims - f->g->tensor[o->in[i]].n_dims;
			if (a >= 0 && dlb_ragged_broadcasts(f, o->in[1 - i], y->n_dims, at))
				return at;
		}
	if (one && !strcmp(o->type, "OneHot")) {
		const struct dlb_tensor *values = o->n_in > 2 && o->in[2] >= 0 ? &f->g->tensor[o->in[2]] :
										 NULL;
		if (!values || values->kind != DLB_T_CONSTANT || !values->data ||
		    dlb_value_real(values->data, values->dtype, 0) != 0)
			return -1;
		const int a = exclusive_axis(f, o->in[0], false, depth + 1);
		return a < 0 ? -1 : a + (dlb_ragged_axis(f, f->made_by[t], -1, n + 1) <= a);
	}
	const int a = exclusive_axis(f, o->in[0], one, depth + 1);
	if (a < 0)
		return -1;
	if (!strcmp(o->type, "Cast"))
		return (one && dlb_dtype_is_int(y->dtype)) || y->dtype == DLB_I64 || y->dtype == DLB_I32 ||
				       y->dtype == DLB_BOOL ?
			       a :
			       -1;
	if (dlb_ragged_is_view(o->type)) {
		const int to = dlb_ragged_view(f, o->in[0], a, t, &times);
		return times == 1 ? to : -1;
	}
	if (!strcmp(o->type, "Transpose"))
		for (int k = 0; k < y->n_dims; k++) {
			const int64_t *perm = NULL;
			const int listed = dlb_attr_ints(o->attr, o->n_attr, "perm", &perm);
			if ((listed == n ? perm[k] : n - 1 - k) == a)
				return k;
		}
	if (!strcmp(o->type, "Gather") && o->in[1] >= 0) {
		const int axis = dlb_ragged_axis(f, f->made_by[t], 0, n);
		return axis == a ? -1 : a + (axis < a ? f->g->tensor[o->in[1]].n_dims - 1 : 0);
	}
	return -1;
}

/* The selection by `mask`, made on first use. */
static struct dlb_selection *selection_of(struct fold *f, int mask)
{
	for (int i = 0; i < f->n_selections; i++)
		if (f->selection[i].mask == mask)
			return &f->selection[i];
	const int axis = exclusive_axis(f, mask, true, 0);
	const struct dlb_dim d = axis < 0 ? (struct dlb_dim){ 0, 1 } : f->g->tensor[mask].dim[axis];
	DLB_GROW(f->selection, f->n_selections, f->cap_selections);
	f->selection[f->n_selections] = (struct dlb_selection){ mask, d.mul || d.add < 1 ? 1 : d.add };
	return &f->selection[f->n_selections++];
}

/* A scalar constant of this type. */
int dlb_ragged_scalar(struct fold *f, enum dlb_dtype type, double v)
{
	const struct dlb_desc d = { .dtype = type, .n_dims = 0 };
	double room = 0;

	dlb_value_set(&room, type, 0, v);
	const int t = dlb_graph_add_constant(f->g, "padding", &d, &room, NULL);
	dlb_fold_room(f);
	return t;
}

/* A mask that is true for rows that count; `behind` dimensions of size 1 follow. -1 with err. */
int dlb_ragged_counted(struct fold *f, int op, const struct dlb_ragged *r, int behind, struct dlb_error *err)
{
	const struct dlb_attr attr[] = {
		{ .name = "times", .type = DLB_ATTR_INT, .i = r->times },
		{ .name = "divisor", .type = DLB_ATTR_INT, .i = selection_of(f, r->mask)->divisor }
	};
	int64_t axes[DLB_MAX_DIMS];
	const int mask = r->mask;

	const int t = dlb_fold_emit(f, op, DLB_SPEC_ATTR("CountedMask", attr, 2, mask), NULL, err);
	for (int i = 0; i < behind; i++)
		axes[i] = i + 1;
	if (t < 0 || !behind)
		return t;
	return dlb_fold_emit(f, op, DLB_SPEC("Unsqueeze", t, dlb_fold_ints(f, op, axes, behind)), NULL, err);
}

/* Tensor t with its padding rows set to `v`, no longer ragged; -1 with err. Made once. */
int dlb_ragged_unpad(struct fold *f, int op, int t, double v, struct dlb_error *err)
{
	const struct dlb_ragged r = f->ragged[t];
	int made = -1;

	for (int i = 0; i < f->n_unpadded; i++)
		if (f->unpadded[i].from == t && f->unpadded[i].value == v)
			return f->unpadded[i].made;
	const int rows = dlb_ragged_counted(f, op, &r, f->g->tensor[t].n_dims - 1 - r.dim, err);
	f->ragged[t].mask = -1;			/* this Where alone may read padding */
	if (rows >= 0)
		made = dlb_fold_emit(f, op, DLB_SPEC("Where", rows, t,
						     dlb_ragged_scalar(f, f->g->tensor[t].dtype, v)), NULL,
				     err);
	f->ragged[t] = r;
	if (made < 0)
		return -1;
	DLB_GROW(f->unpadded, f->n_unpadded, f->cap_unpadded);
	f->unpadded[f->n_unpadded++] = (struct dlb_unpadded){ t, v, made };
	return made;
}

/* The mask by which t selects rows: the source of t, with padding set to zero if the source is ragged. -1
 * with err. */
static int mask_of(struct fold *f, int op, int t, int64_t *times, struct dlb_error *err)
{
	int from = source(f, t, times);

	for (int i = 0; i < f->n_unpadded; i++)		/* zeroed padding does not change the count: use the
							 * tensor before zeroing */
		if (f->unpadded[i].made == from && f->unpadded[i].value == 0)
			from = source(f, f->unpadded[i].from, times);
	return ragged(f, from) ? dlb_ragged_unpad(f, op, from, 0, err) : from;
}

/* -- before inference -- */

static int select_rows(struct fold *f, int op, struct dlb_error *err)
{
	const int t = operand(f, op, 0);
	struct dlb_ragged r = { .times = 1, .picked = t };

	if (t < 0 || dlb_fold_is_known(f, t))
		return 0;
	if (f->g->tensor[t].n_dims < 1)
		return dlb_vertex_fail(&f->g->op[op], err, DLB_RAGGED_CURE,
				       "the input is one value that is not known before the run, and so is "
				       "whether there is an output");
	if (ragged(f, t) && f->ragged[t].size)
		return dlb_ragged_refuse(f, op, "it is read as a value", err);
	const int values = ragged(f, t) ? dlb_ragged_unpad(f, op, t, 0, err) : t;
	if (values < 0 || (r.mask = mask_of(f, op, t, &r.times, err)) < 0)
		return -1;
	const struct dlb_attr attr = { .name = "divisor",
				       .type = DLB_ATTR_INT,
				       .i = selection_of(f, r.mask)->divisor };
	const int made = dlb_fold_emit(f, op, DLB_SPEC_ATTR("PaddedNonZero", &attr, 1, values), NULL, err);
	if (made < 0)
		return -1;
	mark(f, made, r, 1);
	if (!f->n_padded++) {
		f->first_padded = op;
		f->selected_rows = made;
	}
	return dlb_fold_bind(f, op, 0, made, err) ? -1 : 1;
}

/* Is tensor t the number of non-zero values of a mask, that is, the sum of all its elements? */
static bool is_count(struct fold *f, int op, int t, struct dlb_ragged *r)
{
	struct dlb_error ignored = { .what = "" };
	const struct dlb_op *o = maker(f, t);

	while (o && (dlb_ragged_is_view(o->type) ||
		     (!strcmp(o->type, "Cast") && dlb_dtype_is_int(f->g->tensor[t].dtype)))) {
		t = o->in[0];
		o = maker(f, t);
	}
	if (!o || strcmp(o->type, "ReduceSum") || dlb_ragged_range(f, t, 0, f->g->tensor[t].n_dims, 2) != 1 ||
	    !dlb_dtype_is_int(f->g->tensor[o->in[0]].dtype))
		return false;
	*r = (struct dlb_ragged){ .times = 1, .size = true, .coordinate = -1 };
	r->mask = mask_of(f, op, o->in[0], &r->times, &ignored);
	return r->mask >= 0 && f->g->tensor[r->mask].dtype == DLB_BOOL;
}

/* In a shape computed from constants and one count of non-zero values, replaces the count by its bound. */
static int bound_shape(struct fold *f, int op, int k)
{
	const int t = operand(f, op, k);
	const struct dlb_op *o = maker(f, t);
	int64_t v[DLB_MAX_DIMS], mul[DLB_MAX_DIMS] = { 0 };
	struct dlb_ragged r = { .mask = -1 }, found = { .mask = -1 };
	int n = 0;

	if (t < 0 || dlb_fold_is_known(f, t) || f->g->tensor[t].n_dims != 1 ||
	    !dlb_dtype_is_int(f->g->tensor[t].dtype))
		return 0;
	const bool joined = o && !strcmp(o->type, "Concat");
	for (int i = 0; i < (joined ? o->n_in : 1); i++) {
		const int part = joined ? o->in[i] : t;
		const struct dlb_tensor *x = &f->g->tensor[part];
		if (x->n_dims != 1 || x->dim[0].mul || n + x->dim[0].add > DLB_MAX_DIMS)
			return 0;
		if (dlb_fold_is_known(f, part) && x->kind == DLB_T_CONSTANT && x->data && !ragged(f, part)) {
			for (int64_t j = 0; j < x->dim[0].add; j++, n++) {
				v[n] = dlb_value_int(x->data, x->dtype, j);
				mul[n] = x->data_mul ? x->data_mul[j] : 0;
			}
			continue;
		}
		if (found.mask >= 0 || x->dim[0].add != 1 || !is_count(f, op, part, &r))
			return 0;
		found = r;
		found.dim = n;
		const int64_t d = selection_of(f, r.mask)->divisor;
		const int n_dims = f->g->tensor[r.mask].n_dims;
		const int64_t at[2] = { dlb_ragged_range(f, r.mask, 0, n_dims, 1) * r.times / d,
					dlb_ragged_range(f, r.mask, 0, n_dims, 2) * r.times / d };
		mul[n] = (at[1] - at[0]) / f->n;
		v[n] = at[0] - mul[n] * f->n;
		n++;
	}
	if (found.mask < 0)
		return 0;
	const struct dlb_desc d = { .dtype = DLB_I64, .n_dims = 1, .dim = { n } };
	const int made = dlb_graph_add_constant(f->g, "bound", &d, v, mul);
	dlb_fold_room(f);
	f->varies[made] = true;
	f->ragged[made] = found;
	f->g->op[op].in[k] = made;
	return 0;
}

/* If indices of positions in the batch are applied to data with the batch of the export, makes the data
 * follow the batch. */
static int follow_batch(struct fold *f, int op, int dim, struct dlb_error *err)
{
	const struct dlb_ragged *r = ragged(f, operand(f, op, 1));
	const int t = operand(f, op, 0);
	const struct dlb_tensor *x = t < 0 ? NULL : &f->g->tensor[t];

	if (f->wired < 1 || !x || !r || r->coordinate < 0 || dim < 0 || dim >= x->n_dims || x->dim[dim].mul)
		return 0;
	const struct dlb_tensor *m = &f->g->tensor[r->picked];
	if (r->coordinate >= m->n_dims || !m->dim[r->coordinate].mul || ragged(f, r->picked))
		return 0;
	const int made = dlb_batch_made(f, op, t, dim);
	if (made < 0) {
		dlb_vertex_fail(&f->g->op[op], err, NULL,
				"'%s' holds the batch of %" PRId64
				" that the model was exported with, and rows of it are named by where they "
				"stand in '%s'",
				x->name, f->wired, m->name);
		dlb_batch_hint(f, err);
		return -1;
	}
	f->g->op[op].in[0] = made;
	return 0;
}

static const struct { const char *type; int shape; } shaped[] = {
	{ "Expand", 1 }, { "Reshape", 1 }, { "ConstantOfShape", 0 }, { "Slice", 2 },
};

int dlb_ragged_bound(struct fold *f, int op, struct dlb_error *err)
{
	const struct dlb_op *o = &f->g->op[op];
	const int data = operand(f, op, 0);
	const int n = data < 0 ? 0 : f->g->tensor[data].n_dims;

	if (*o->domain)
		return 0;
	if (!strcmp(o->type, "NonZero"))
		return select_rows(f, op, err);
	if (!f->n_padded)
		return 0;
	for (int i = 0; i < DLB_LEN(shaped); i++)
		if (!strcmp(o->type, shaped[i].type))
			return bound_shape(f, op, shaped[i].shape);
	if (!strcmp(o->type, "Gather") || !strcmp(o->type, "ScatterElements"))
		return follow_batch(f, op, dlb_ragged_axis(f, op, 0, n), err);
	if ((!strcmp(o->type, "GatherND") || !strcmp(o->type, "ScatterND")) &&
	    !dlb_attr_int(o->attr, o->n_attr, "batch_dims", 0))
		return follow_batch(f, op, 0, err);
	return 0;
}

int dlb_ragged_blame(struct fold *f, int op, struct dlb_error *err)
{
	const struct dlb_op *o = &f->g->op[op];
	bool any = false;

	for (int i = 0; i < o->n_in && f->n_padded; i++)
		any |= ragged(f, o->in[i]) != NULL;
	return any ? dlb_ragged_refuse(f, op,
				       "the shapes agree at most for the length that it had when the model "
				       "was exported",
				       err) :
		     -1;
}

int dlb_ragged_end(struct fold *f, struct dlb_error *err)
{
	struct dlb_graph *g = f->g;

	for (int i = 0; i < g->n_outputs; i++) {
		const int t = dlb_fold_actual(f, g->output[i]);
		if (ragged(f, t))
			return dlb_refuse(
				err, g->tensor[g->output[i]].name, DLB_RAGGED_CURE,
				"the length of the output follows values, those of '%s' that are not zero",
				g->tensor[f->ragged[t].mask].name);
	}
	if (!f->n_padded)
		return 0;
	const struct dlb_op *o = &g->op[f->first_padded];
	const int t = f->selected_rows;
	const struct dlb_dim d = g->tensor[t].dim[1];
	dlb_graph_note(g,
		       "%d selection%s by value (first %s '%s', opset %d): computed for all rows that may be "
		       "selected, %" PRId64 " there at a batch of %" PRId64
		       ", as their number is not known before the run; rows beyond it change neither results "
		       "nor gradients",
		       f->n_padded, f->n_padded > 1 ? "s" : "", o->type, o->name, o->opset,
		       d.mul * g->batch + d.add, g->batch);
	return 0;
}
