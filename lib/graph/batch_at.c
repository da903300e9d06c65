/* The position of the batch in each tensor, and the constant operands that contain the batch size.
 *
 * A dimension that follows the batch is outer * n * inner: (batch, tokens) flattened has outer 1 and inner
 * `tokens`, (tokens, batch) flattened has outer `tokens`. Once `outer` is known, the batch has a position
 * in the row-major order of elements: `front`, the product of the dimensions before it times outer, counts
 * the blocks that each hold all samples. A Reshape keeps the order of elements, so a target shape is right
 * exactly if one of its dimensions begins at or before that position and ends after it. With a batch of 2
 * or more there is at most one such dimension, so the entry of a constant shape that holds the batch is
 * found without guessing. A Transpose permutes dimensions and changes none. At a batch of 1 several
 * dimensions may match: see better().
 *
 * Constant shape operands (of Reshape, Expand, Resize, Slice, Split) that contain the batch size of the
 * export are replaced here, before the vertex is inferred, by constants that follow the batch. */
#include <inttypes.h>
#include <string.h>
#include "graph/fold.h"
#include "graph/order.h"

/* -- positions -- */

static int64_t at_reference(const struct fold *f, struct dlb_dim d)
{
	return d.mul * f->n + d.add;
}

int64_t dlb_batch_front(const struct fold *f, int t, int *dim)
{
	const struct dlb_tensor *x = &f->g->tensor[t];
	int64_t front = 1;
	int n = 0;

	*dim = -1;
	for (int k = 0; k < x->n_dims; k++)
		if (x->dim[k].mul) {
			*dim = k;
			n++;
		}
	if (n != 1 || !f->outer[t][*dim])
		return -1;
	for (int k = 0; k < *dim; k++)
		front *= x->dim[k].add;
	return front ? front * f->outer[t][*dim] : -1;
}

/* At a batch of 1: is entry j of shape v more likely to hold the batch than the earlier entry `best`? An
 * entry of 1 is best; the last entry, which holds features, is worst; otherwise the entry that keeps more of
 * x's fixed dimensions wins, and the earlier one if equal. */
static bool better(const struct dlb_tensor *x, int dim, const int64_t *v, int n, int j, int best)
{
	int kept[2] = { 0, 0 };
	const int at[2] = { j, best };

	if ((v[j] == 1) != (v[best] == 1))
		return v[j] == 1;
	if (j == n - 1)
		return false;
	for (int i = 0; i < 2; i++) {
		for (int k = 0; k < dim && k < at[i] && v[k] == x->dim[k].add; k++)
			kept[i]++;
		for (int k = 1; k < x->n_dims - dim && k < n - at[i] && v[n - k] == x->dim[x->n_dims - k].add;
		     k++)
			kept[i]++;
	}
	return kept[0] > kept[1];
}

int dlb_batch_entry(const struct fold *f, int t, int dim, int64_t front, const int64_t *v, int n,
		    int64_t *outer)
{
	const int64_t batch = f->n;
	int64_t before = 1;
	int best = -1;

	for (int j = 0; j < n && v[j] > 0 && before <= front; before *= v[j++]) {
		if (front % before || v[j] % (front / before * batch))
			continue;
		if (best < 0 || better(&f->g->tensor[t], dim, v, n, j, best)) {
			best = j;
			*outer = front / before;
		}
	}
	return best;
}

/* -- positions in outputs: `outer` of dimension k of output y, 0: unknown -- */

/* Reshape, Flatten, Squeeze, Unsqueeze keep the row-major order. */
static int64_t through_view(const struct fold *f, const struct dlb_op *o, int y, int k)
{
	int dim;
	const int64_t front = dlb_batch_front(f, o->in[0], &dim);
	int64_t before = 1;

	for (int i = 0; i < k; i++)
		before *= f->g->tensor[y].dim[i].add;
	if (front < 0 || before < 1 || front % before || f->g->tensor[y].dim[k].mul % (front / before))
		return 0;
	return front / before;
}

static int64_t through_transpose(const struct fold *f, const struct dlb_op *o, int y, int k)
{
	const int n = f->g->tensor[y].n_dims;
	const int64_t *perm = NULL;
	const int listed = dlb_attr_ints(o->attr, o->n_attr, "perm", &perm);

	return f->outer[o->in[0]][listed == n ? perm[k] : n - 1 - k];
}

/* Concat or Tile of (n) three times has 3 * batch elements with outer 3. Other growth
 * along the batch is unknown. */
static int64_t through_repeat(const struct fold *f, const struct dlb_op *o, int y, int k)
{
	const struct dlb_tensor *x = &f->g->tensor[o->in[0]];
	const int64_t mul = f->g->tensor[y].dim[k].mul;

	if (k >= x->n_dims || !x->dim[k].mul)
		return x->n_dims > k; /* Tile of a fixed dimension, n times: block after block */
	if (mul == x->dim[k].mul)
		return f->outer[o->in[0]][k];
	for (int i = 1; i < o->n_in && !strcmp(o->type, "Concat"); i++)
		if (f->g->tensor[o->in[i]].dim[k].mul != x->dim[k].mul ||
		    f->outer[o->in[i]][k] != f->outer[o->in[0]][k])
			return 0;
	return f->outer[o->in[0]][k] == 1 ? mul / x->dim[k].mul : 0;
}

/* Other operators: `outer` of the operand's dimension of the same size, aligned at the right as in
 * broadcasting, else at the left, else anywhere. */
static int64_t through(const struct fold *f, const struct dlb_op *o, int y, int k)
{
	const struct dlb_tensor *out = &f->g->tensor[y];
	int64_t found = 0;

	for (int way = 0; way < 3 && !found; way++)
		for (int i = 0; i < o->n_in && !found; i++) {
			const struct dlb_tensor *x = o->in[i] < 0 ? NULL : &f->g->tensor[o->in[i]];
			for (int d = 0; x && d < x->n_dims && !found; d++)
				if ((way == 0 ? x->n_dims - d == out->n_dims - k :
				     way == 1 ? d == k :
						true) &&
				    x->dim[d].mul == out->dim[k].mul && x->dim[d].add == out->dim[k].add)
					found = f->outer[o->in[i]][d];
		}
	return found ? found : 1;
}

static const struct {
	const char *type;
	int64_t (*through)(const struct fold *, const struct dlb_op *, int y, int k);
} ways[] = {
	{ "Reshape", through_view },   { "Flatten", through_view },        { "Squeeze", through_view },
	{ "Unsqueeze", through_view }, { "Transpose", through_transpose }, { "Concat", through_repeat },
	{ "Tile", through_repeat },
};

int dlb_batch_place(struct fold *f, int op, struct dlb_error *err)
{
	const struct dlb_op *o = &f->g->op[op];
	int64_t (*way)(const struct fold *, const struct dlb_op *, int, int) = through;
	int dim;

	for (int i = 0; i < DLB_LEN(ways) && !*o->domain; i++)
		if (!strcmp(o->type, ways[i].type))
			way = ways[i].through;
	for (int k = 0; k < o->n_out; k++) {
		const int y = o->out[k];
		if (y < 0)
			continue;
		f->made_by[y] = op;
		for (int d = 0; d < f->g->tensor[y].n_dims; d++) {
			const struct dlb_dim at = f->g->tensor[y].dim[d];
			f->outer[y][d] = !at.mul ? 0 : at.add ? 0 : way(f, o, y, d);
			if (way == through_view && at.mul && !f->outer[y][d] &&
			    dlb_batch_front(f, o->in[0], &dim) > 0)
				return dlb_vertex_fail(o, err,
						       "export with dynamic_shapes for the batch, or train "
						       "at the exported batch",
						       "makes dimension %d of '%s' of the batch and of what "
						       "is one sample's ('%s'): samples would be mixed",
						       d, f->g->tensor[y].name, f->g->tensor[o->in[0]].name);
		}
	}
	return 0;
}

/* -- operands that contain the batch size -- */

struct ints { int n; int64_t v[DLB_MAX_DIMS], mul[DLB_MAX_DIMS]; };

static const struct dlb_tensor *input_of(const struct fold *f, const struct dlb_op *o, int k)
{
	return k < o->n_in && o->in[k] >= 0 ? &f->g->tensor[o->in[k]] : NULL;
}

/* Operand k as constant integers that do not follow the batch; false: it is not constant. */
static bool fixed_ints(const struct fold *f, const struct dlb_op *o, int k, struct ints *out)
{
	const struct dlb_tensor *x = input_of(f, o, k);

	if (!x || x->kind != DLB_T_CONSTANT || !x->data || x->data_mul || !dlb_dtype_is_int(x->dtype) ||
	    x->n_dims > 1 || (x->n_dims == 1 && (x->dim[0].mul || x->dim[0].add > DLB_MAX_DIMS)))
		return false;
	*out = (struct ints){ .n = x->n_dims ? (int)x->dim[0].add : 1 };
	for (int i = 0; i < out->n; i++)
		out->v[i] = dlb_value_int(x->data, x->dtype, i);
	return true;
}

/* Makes entry i, a multiple of the batch, follow the batch. */
static void follow(const struct fold *f, struct ints *s, int i)
{
	s->mul[i] = s->v[i] / f->wired;
	s->v[i] = 0;
}

static void set_operand(struct fold *f, int op, int k, const struct ints *s)
{
	const struct dlb_tensor *x = &f->g->tensor[f->g->op[op].in[k]];
	const struct dlb_desc d = { .dtype = DLB_I64, .n_dims = 1, .dim = { s->n } };

	const int t = dlb_graph_add_constant(f->g, x->name, &d, s->v, s->mul);
	f->g->op[op].in[k] = t;
	dlb_fold_room(f);
	f->varies[t] = true;
}

static void reshape(struct fold *f, int op)
{
	const struct dlb_op *o = &f->g->op[op];
	const struct dlb_tensor *x = input_of(f, o, 0);
	const bool zero_copies = !dlb_attr_int(o->attr, o->n_attr, "allowzero", 0);
	struct ints s, full;
	int64_t total = 1, outer = 1;
	int dim, gap = -1;
	const int64_t front = x ? dlb_batch_front(f, o->in[0], &dim) : -1;

	if (front < 0 || !fixed_ints(f, o, 1, &s))
		return;
	full = s;
	for (int k = 0; k < x->n_dims; k++)
		total *= at_reference(f, x->dim[k]);
	for (int i = 0; i < s.n; i++) {
		if (!s.v[i] && zero_copies && i < x->n_dims)
			full.v[i] = at_reference(f, x->dim[i]);
		if (s.v[i] == -1)
			gap = i;
		else if (full.v[i] < 1 || total % full.v[i])
			return;				/* inference reports the error better */
		else
			total /= full.v[i];
	}
	if (gap >= 0)
		full.v[gap] = total;
	const int entry = dlb_batch_entry(f, o->in[0], dim, front, full.v, s.n, &outer);
	if (entry < 0)
		return;
	/* also replaces a 0 that would copy another dimension to the entry of the batch, or the batch to
	 * another entry */
	bool changed = s.v[entry] > 0 && (follow(f, &s, entry), true);
	if (s.v[entry] == 0 && !s.mul[entry] && entry != dim) {
		s.v[entry] = full.v[entry];
		follow(f, &s, entry);
		changed = true;
	}
	if (dim < s.n && dim != entry && s.v[dim] == 0 && zero_copies) {
		s.v[dim] = full.v[dim];
		changed = true;
	}
	if (changed)
		set_operand(f, op, 1, &s);
}

static void expand(struct fold *f, int op)
{
	const struct dlb_op *o = &f->g->op[op];
	const struct dlb_tensor *x = input_of(f, o, 0);
	struct ints s;
	bool changed = false;

	if (!x || !fixed_ints(f, o, 1, &s))
		return;
	for (int k = 0; k < x->n_dims; k++) {
		const int i = k + s.n - x->n_dims;	/* shapes are aligned at the right */
		if (i >= 0 && x->dim[k].mul && !x->dim[k].add && s.v[i] == at_reference(f, x->dim[k]) &&
		    s.v[i] > 1) {
			follow(f, &s, i);
			changed = true;
		}
	}
	if (changed)
		set_operand(f, op, 1, &s);
}

/* Resize: output sizes of dimensions that follow the batch, which are not resized, follow it too. */
static void resize(struct fold *f, int op)
{
	const struct dlb_op *o = &f->g->op[op];
	const struct dlb_tensor *x = input_of(f, o, 0);
	const int64_t *axes = NULL;
	const int n_axes = dlb_attr_ints(o->attr, o->n_attr, "axes", &axes);
	struct ints s;
	bool changed = false;

	if (!x || !fixed_ints(f, o, 3, &s) || s.n != (n_axes ? n_axes : x->n_dims))
		return;
	for (int i = 0; i < s.n; i++) {
		const int64_t k = n_axes ? axes[i] + (axes[i] < 0 ? x->n_dims : 0) : i;
		if (k >= 0 && k < x->n_dims && x->dim[k].mul && s.v[i] == at_reference(f, x->dim[k])) {
			follow(f, &s, i);
			changed = true;
		}
	}
	if (changed)
		set_operand(f, op, 3, &s);
}

/* Slice: a range follows the batch if it covers a whole dimension that follows the batch, or whole batches of
 * such a dimension with outer > 1. */
static void slice(struct fold *f, int op)
{
	const struct dlb_op *o = &f->g->op[op];
	const struct dlb_tensor *x = input_of(f, o, 0);
	struct ints start, end, axes = { .n = 0 }, steps = { .n = 0 };
	bool changed = false;

	if (!x || !fixed_ints(f, o, 1, &start) || !fixed_ints(f, o, 2, &end) || start.n != end.n ||
	    (input_of(f, o, 3) && !fixed_ints(f, o, 3, &axes)) ||
	    (input_of(f, o, 4) && !fixed_ints(f, o, 4, &steps)))
		return;
	for (int i = 0; i < start.n; i++) {
		const int64_t k = !axes.n ? i : axes.v[i] + (axes.v[i] < 0 ? x->n_dims : 0);
		if (k < 0 || k >= x->n_dims || !x->dim[k].mul || x->dim[k].add ||
		    (steps.n && steps.v[i] != 1))
			continue;
		const int64_t size = at_reference(f, x->dim[k]);
		const bool batches = f->outer[o->in[0]][k] == x->dim[k].mul && x->dim[k].mul > 1 &&
				     start.v[i] % f->wired == 0 && start.v[i] > -size && start.v[i] < size;
		if (start.v[i] == 0 && end.v[i] == size)
			follow(f, &end, i);
		else if (batches && end.v[i] <= size && end.v[i] % f->wired == 0) {
			follow(f, &start, i);
			follow(f, &end, i);
		} else if (batches && start.v[i] && end.v[i] > size)
			follow(f, &start, i); /* `end` is beyond the end of the dimension, and stays */
		else
			continue;
		changed = true;
	}
	if (changed) {
		set_operand(f, op, 1, &start);
		set_operand(f, op, 2, &end);
	}
}

static void split(struct fold *f, int op)
{
	const struct dlb_op *o = &f->g->op[op];
	const struct dlb_tensor *x = input_of(f, o, 0);
	struct ints s;

	if (!x || x->n_dims < 1 || !fixed_ints(f, o, 1, &s))
		return;
	const int64_t axis = dlb_attr_int(o->attr, o->n_attr, "axis", 0),
		      k = axis + (axis < 0 ? x->n_dims : 0);
	if (k < 0 || k >= x->n_dims || !x->dim[k].mul || f->outer[o->in[0]][k] != x->dim[k].mul)
		return;
	for (int i = 0; i < s.n; i++) {
		if (s.v[i] % f->wired)
			return;
		follow(f, &s, i);
	}
	set_operand(f, op, 1, &s);
}

static const struct { const char *type; void (*decide)(struct fold *f, int op);
} shapes[] = {
	{ "Reshape", reshape }, { "Expand", expand }, { "Resize", resize },
	{ "Slice", slice },     { "Split", split },
};

void dlb_batch_decide(struct fold *f, int op)
{
	const struct dlb_op *o = &f->g->op[op];

	for (int i = 0; i < DLB_LEN(shapes) && f->wired > 0 && !*o->domain; i++)
		if (!strcmp(o->type, shapes[i].type)) {
			shapes[i].decide(f, op);
			return;
		}
}
