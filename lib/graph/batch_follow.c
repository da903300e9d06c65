/* Makes constants, and tensors computed from constants and weights alone, follow the batch.
 *
 * Exporters precompute: an initial state of zeros becomes a constant of shape (layers, 8, hidden), a mask one
 * of (8, 1, T, T), position ids one of (8, T). Only a vertex that reads such a tensor beside one that follows
 * the batch shows that this 8 is the batch: their shapes agree at 8 samples alone. The operand is then
 * rebuilt, from its constants through every vertex between them and this one, so that the dimension either
 * has one row, which broadcasts, or follows the batch. A constant can follow the batch if its rows are equal
 * along that dimension or, for integers, increase by a constant step (arange). A rebuilt operand is kept if
 * the shapes then agree; the vertices that it replaces become dead. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "graph/fold.h"
#include "graph/order.h"

enum { MAX_TRIALS = 400 };	/* limit per vertex; few of its operands can contain the batch */

/* A request: dimension k of tensor t, which is outer * batch * inner as exported, shall have
 * outer * inner elements (`one`) or follow the batch. `step` is for integers exported at a batch of 1,
 * which show no second row: the first of each `each` elements increases by `step` from one sample to the
 * next; 0: all rows are equal. */
struct batch_target { int t, k; int64_t outer; bool one; int64_t step, each; };
struct dlb_batch_made { struct batch_target target; int made; };

/* -- constants -- */

/* A constant viewed as (front, batch, behind) in row-major order. */
struct batch_rows { const struct dlb_tensor *x; int64_t front, batch, behind; size_t size; };

static struct batch_rows rows_of(const struct fold *f, const struct batch_target *want)
{
	const struct dlb_tensor *x = &f->g->tensor[want->t];
	struct batch_rows r = { x, want->outer, f->wired, x->dim[want->k].add / (want->outer * f->wired),
				dlb_dtype_bytes(x->dtype) };

	for (int k = 0; k < x->n_dims; k++)
		if (k != want->k)
			*(k < want->k ? &r.front : &r.behind) *= x->dim[k].add;
	return r;
}

static const char *row(const struct batch_rows *r, int64_t front, int64_t b)
{
	return (const char *)r->x->data + (size_t)((front * r->batch + b) * r->behind) * r->size;
}

static bool equal_rows(const struct batch_rows *r)
{
	for (int64_t i = 0; i < r->front; i++)
		for (int64_t b = 1; b < r->batch; b++)
			if (memcmp(row(r, i, 0), row(r, i, b), (size_t)r->behind * r->size))
				return false;
	return true;
}

static bool uniform(const struct batch_rows *r)
{
	const int64_t n = r->front * r->batch * r->behind;

	for (int64_t i = 1; i < n; i++)
		if (memcmp(r->x->data, (const char *)r->x->data + (size_t)i * r->size, r->size))
			return false;
	return n > 0;
}

static int64_t element(const struct batch_rows *r, int64_t front, int64_t b, int64_t i)
{
	return dlb_value_int(row(r, front, b), r->x->dtype, i);
}

/* The difference between rows b - 1 and b; false if it overflows. */
static bool step_to(const struct batch_rows *r, int64_t front, int64_t b, int64_t i, int64_t *step)
{
	const int64_t to = element(r, front, b, i), from = element(r, front, b - 1, i);

	if (from < 0 ? to > INT64_MAX + from : to < INT64_MIN + from)
		return false;
	*step = to - from;
	return true;
}

/* Do the integers increase by the same step from each row to the next? *step:
 * front * behind steps, in f->a. */
static bool steady_rows(struct fold *f, const struct batch_rows *r, const struct batch_target *want,
			int64_t **step)
{
	if ((r->batch < 2 && !want->step) || !dlb_dtype_is_int(r->x->dtype) || r->x->dtype == DLB_BOOL)
		return false;
	*step = dlb_arena_array(&f->a, (size_t)(r->front * r->behind) + 1, sizeof **step);
	for (int64_t i = 0; i < r->front * r->behind && want->step; i++)
		(*step)[i] = i % want->each ? 0 : want->step;
	if (want->step)
		return true;
	for (int64_t o = 0; o < r->front; o++)
		for (int64_t i = 0; i < r->behind; i++) {
			int64_t *s = &(*step)[o * r->behind + i], next;
			if (!step_to(r, o, 1, i, s))
				return false;
			for (int64_t b = 2; b < r->batch; b++)
				if (!step_to(r, o, b, i, &next) || next != *s)
					return false;
		}
	return true;
}

/* A copy of the first rows: (front, 1, behind). */
static void *first_rows(struct fold *f, const struct batch_rows *r)
{
	const size_t bytes = (size_t)r->behind * r->size;
	char *copy = dlb_arena_alloc(&f->a, (size_t)r->front * bytes + 1);

	for (int64_t o = 0; o < r->front; o++)
		memcpy(copy + (size_t)o * bytes, row(r, o, 0), bytes);
	return copy;
}

/* A new constant in place of constant `of`. It is a weight if `of` was one (whose rows the exporter had
 * repeated). */
static int new_constant(struct fold *f, int of, const struct dlb_desc *d, const void *data)
{
	const int t = dlb_graph_add_constant(f->g, f->g->tensor[of].name, d, data, NULL);

	dlb_fold_room(f);
	f->g->tensor[t].initial = f->trained[t] = f->trained[of];
	return t;
}

/* An integer constant, for shapes and indices. */
static int new_ints(struct fold *f, const char *name, const struct dlb_desc *d, const int64_t *v,
		    const int64_t *mul)
{
	const int t = dlb_graph_add_constant(f->g, name, d, v, mul);

	dlb_fold_room(f);
	f->varies[t] = mul;
	return t;
}

/* The shape of tensor want->t, in which entry k is outer * inner (`one`) or follows the batch. */
static int new_shape(struct fold *f, const struct batch_target *want)
{
	const struct dlb_tensor *x = &f->g->tensor[want->t];
	const struct dlb_desc d = { .dtype = DLB_I64, .n_dims = 1, .dim = { x->n_dims } };
	int64_t v[DLB_MAX_DIMS], mul[DLB_MAX_DIMS] = { 0 };

	for (int k = 0; k < x->n_dims; k++)
		v[k] = x->dim[k].add;
	v[want->k] /= f->wired;
	if (!want->one) {
		mul[want->k] = v[want->k];
		v[want->k] = 0;
	}
	return new_ints(f, x->name, &d, v, want->one ? NULL : mul);
}

/* A constant of the requested shape with all elements `value`. */
static int new_fill(struct fold *f, const struct batch_target *want, double value)
{
	const struct dlb_tensor x = f->g->tensor[want->t];
	const int t = dlb_graph_add_tensor(f->g, dlb_graph_tensor_name(f->g, x.name), DLB_T_CONSTANT);
	struct dlb_tensor *fill = &f->g->tensor[t];
	const int64_t each = x.dim[want->k].add / f->wired;

	fill->dtype = x.dtype;
	fill->n_dims = x.n_dims;
	memcpy(fill->dim, x.dim, sizeof fill->dim);
	fill->dim[want->k] = want->one ? (struct dlb_dim){ 0, each } : (struct dlb_dim){ each, 0 };
	fill->is_fill = true;
	fill->fill = value;
	dlb_fold_room(f);
	f->outer[t][want->k] = want->one ? 0 : want->outer;
	return t;
}

/* (front, n, behind) in the requested shape: by Expand or, with steps, by base + step * (0 .. n-1). */
static int along_batch(struct fold *f, int op, const struct batch_target *want, const struct batch_rows *r,
		       const int64_t *step, struct dlb_error *err)
{
	const struct dlb_desc d = { .dtype = r->x->dtype, .n_dims = 3, .dim = { r->front, 1, r->behind } };
	const struct dlb_desc three = { .dtype = DLB_I64, .n_dims = 1, .dim = { 3 } },
			      scalar = { .dtype = DLB_I64 };
	const int64_t to[3] = { r->front, 0, r->behind }, n[3] = { 0, 1, 0 }, column[3] = { 1, -1, 1 },
		      zero = 0, one = 1;
	const char *name = r->x->name;
	const enum dlb_dtype type = r->x->dtype;
	int t = new_constant(f, want->t, &d, first_rows(f, r));

	if (!step) {
		t = dlb_fold_emit(f, op, DLB_SPEC("Expand", t, new_ints(f, name, &three, to, n)), NULL, err);
	} else {
		const struct dlb_desc steps = { .dtype = DLB_I64,
						.n_dims = 3,
						.dim = { r->front, 1, r->behind } };
		const struct dlb_attr to_type = { .name = "to",
						  .type = DLB_ATTR_INT,
						  .i = dlb_dtype_to_onnx(type) };
		const int first = new_ints(f, name, &scalar, &zero, NULL),
			  end = new_ints(f, name, &scalar, &zero, &one);
		const int by = new_ints(f, name, &scalar, &one, NULL);
		int i = dlb_fold_emit(f, op, DLB_SPEC("Range", first, end, by), NULL, err);
		i = i < 0 ? -1 :
			    dlb_fold_emit(f, op,
					  DLB_SPEC("Reshape", i, new_ints(f, name, &three, column, NULL)),
					  NULL, err);
		i = i < 0 ? -1 :
			    dlb_fold_emit(f, op, DLB_SPEC("Mul", i, new_ints(f, name, &steps, step, NULL)),
					  NULL, err);
		i = i < 0 || type == DLB_I64 ? i :
					       dlb_fold_emit(f, op, DLB_SPEC_ATTR("Cast", &to_type, 1, i),
							     NULL, err);
		t = i < 0 ? -1 : dlb_fold_emit(f, op, DLB_SPEC("Add", i, t), NULL, err);
	}
	if (t < 0)
		return -1;
	return dlb_fold_emit(f, op, DLB_SPEC("Reshape", t, new_shape(f, want)), NULL, err);
}

static int constant_that_follows(struct fold *f, int op, const struct batch_target *want)
{
	const struct dlb_tensor *x = &f->g->tensor[want->t];
	struct dlb_error ignored = { .what = "" };
	int64_t *step;

	if (x->data_mul || (f->trained[want->t] && f->wired == 1 && x->dim[want->k].add != 1))
		return -1;			/* more than one row of a weight */
	if (x->is_fill && !f->trained[want->t])
		return new_fill(f, want, x->fill);
	if (!x->data)
		return -1;
	const struct batch_rows r = rows_of(f, want);
	if (want->step)
		return steady_rows(f, &r, want, &step) ? along_batch(f, op, want, &r, step, &ignored) : -1;
	if (uniform(&r) && !f->trained[want->t])
		return new_fill(f, want, dlb_value_real(x->data, x->dtype, 0));
	if (equal_rows(&r)) {
		struct dlb_desc d = dlb_tensor_desc(x, f->n);
		d.dim[want->k] /= f->wired;
		return want->one ? new_constant(f, want->t, &d, first_rows(f, &r)) :
				   along_batch(f, op, want, &r, NULL, &ignored);
	}
	return !want->one && steady_rows(f, &r, want, &step) ? along_batch(f, op, want, &r, step, &ignored) :
							       -1;
}

/* -- vertices -- */

static int made_for(struct fold *f, int op, struct batch_target want);

/* Does vertex p, given operands in[], make dimension want->k of want->t as requested and
 * leave the other dimensions? */
static bool makes(struct fold *f, int p, int *in, const struct batch_target *want)
{
	struct dlb_op *o = &f->g->op[p];
	int *const before = o->in;
	const struct dlb_tensor was = f->g->tensor[want->t];
	const int64_t each = was.dim[want->k].add / f->wired;
	struct dlb_error ignored = { .what = "" };

	o->in = in;
	bool good = !dlb_graph_infer(f->g, p, f->n, &f->known, &ignored);
	const struct dlb_tensor *y = &f->g->tensor[want->t];
	good = good && y->n_dims == was.n_dims;
	for (int k = 0; k < was.n_dims && good; k++) {
		const struct dlb_dim as = k != want->k ? was.dim[k] :
					  want->one    ? (struct dlb_dim){ 0, each } :
							 (struct dlb_dim){ each, 0 };
		good = y->dim[k].mul == as.mul && y->dim[k].add == as.add;
	}
	o->in = before;
	if (dlb_graph_infer(f->g, p, f->n, &f->known, &ignored))
		return false;
	return good;
}

/* The dimension of the operand that corresponds to dimension k of want->t, aligned at the right (as in
 * broadcasting) or at the left; -1: none of that size. */
static int aligned(const struct fold *f, const struct batch_target *want, int operand, bool right)
{
	const struct dlb_tensor *x = &f->g->tensor[operand], *y = &f->g->tensor[want->t];
	const int d = right ? x->n_dims - (y->n_dims - want->k) : want->k;

	return d >= 0 && d < x->n_dims && !x->dim[d].mul && x->dim[d].add == y->dim[want->k].add ? d : -1;
}

/* A copy of vertex p whose operands give the requested dimension: rebuilds all aligned
 * operands, else a single one. */
static int through_operands(struct fold *f, int op, int p, const struct batch_target *want)
{
	const int n_in = f->g->op[p].n_in;
	int *in = dlb_arena_array(&f->a, (size_t)n_in + 1, sizeof *in);
	int d;

	for (int way = 0; way < 2; way++) {
		int changed = 0;
		for (int i = 0; i < n_in; i++) {
			in[i] = f->g->op[p].in[i];
			if (in[i] < 0 || (d = aligned(f, want, in[i], way == 0)) < 0)
				continue;
			const int t = made_for(f, op,
					       (struct batch_target){ .t = in[i],
								      .k = d,
								      .outer = want->outer,
								      .one = want->one });
			in[i] = t < 0 ? in[i] : t;
			changed += t >= 0;
		}
		if (changed && makes(f, p, in, want))
			return dlb_fold_again(f, p, in, want->t);
	}
	for (int i = 0; i < n_in; i++)
		for (d = 0; f->g->op[p].in[i] >= 0 && d < f->g->tensor[f->g->op[p].in[i]].n_dims; d++) {
			memcpy(in, f->g->op[p].in, (size_t)n_in * sizeof *in);
			const struct dlb_dim at = f->g->tensor[in[i]].dim[d];
			if (at.mul || at.add != f->g->tensor[want->t].dim[want->k].add ||
			    (in[i] = made_for(f, op,
					      (struct batch_target){ .t = in[i],
								     .k = d,
								     .outer = want->outer,
								     .one = want->one })) < 0)
				continue;
			if (makes(f, p, in, want))
				return dlb_fold_again(f, p, in, want->t);
		}
	return -1;
}

/* Reshape, Flatten, Squeeze, Unsqueeze: the operand has the batch at the same position in row-major order. */
static int through_view(struct fold *f, int op, int p, const struct batch_target *want)
{
	const int from = f->g->op[p].in[0];
	const struct dlb_tensor *x = &f->g->tensor[from], *y = &f->g->tensor[want->t];
	struct dlb_error ignored = { .what = "" };
	int64_t v[DLB_MAX_DIMS], front = want->outer, outer = 1;

	for (int k = 0; k < want->k; k++)
		front *= y->dim[k].add;
	for (int k = 0; k < x->n_dims; k++)
		v[k] = x->dim[k].mul ? 0 : x->dim[k].add;
	const int d = front > 0 ? dlb_batch_entry(f, want->t, want->k, front, v, x->n_dims, &outer) : -1;
	const int t = d < 0 ? -1 :
			      made_for(f, op,
				       (struct batch_target){
					       .t = from, .k = d, .outer = outer, .one = want->one });
	return t < 0 ? -1 :
		       dlb_fold_emit(f, p, DLB_SPEC("Reshape", t, new_shape(f, want)), NULL, &ignored);
}

static int through_expand(struct fold *f, int op, int p, const struct batch_target *want)
{
	const struct dlb_tensor *x = &f->g->tensor[f->g->op[p].in[0]], *y = &f->g->tensor[want->t];
	const int d = want->k - (y->n_dims - x->n_dims);
	struct dlb_error ignored = { .what = "" };
	int t = f->g->op[p].in[0];

	if (d >= 0 && x->dim[d].add != 1)
		t = x->dim[d].mul ?
			    -1 :
			    made_for(f, op,
				     (struct batch_target){
					     .t = t, .k = d, .outer = want->outer, .one = want->one });
	return t < 0 ? -1 :
		       dlb_fold_emit(f, p, DLB_SPEC("Expand", t, new_shape(f, want)), NULL, &ignored);
}

static const struct {
	const char *type;
	int (*through)(struct fold *f, int op, int p, const struct batch_target *want);
} ways[] = {
	{ "Reshape", through_view },   { "Flatten", through_view },  { "Squeeze", through_view },
	{ "Unsqueeze", through_view }, { "Expand", through_expand },
};

static int vertex_that_follows(struct fold *f, int op, const struct batch_target *want)
{
	const int p = f->made_by[want->t];

	if (p < 0)
		return -1;
	const struct dlb_op_class *cls = f->g->op[p].kind < 0 ? NULL : dlb_op_class_of(f->g->op[p].kind);
	if (want->one && cls && cls->flags & DLB_OP_RANDOM)	/* each sample has its own numbers */
		return -1;
	for (int i = 0; i < DLB_LEN(ways) && !*f->g->op[p].domain; i++)
		if (!strcmp(f->g->op[p].type, ways[i].type))
			return ways[i].through(f, op, p, want);
	return through_operands(f, op, p, want);
}

/* The tensor that fulfils request want, made once per request; -1: impossible. `op` names the
 * constants that are added. */
static int made_for(struct fold *f, int op, struct batch_target want)
{
	const struct dlb_tensor *x = &f->g->tensor[want.t];

	if (x->kind == DLB_T_INPUT || x->dim[want.k].mul || x->dim[want.k].add < 1 ||
	    x->dim[want.k].add % (want.outer * f->wired))
		return -1;
	for (int i = 0; i < f->n_made; i++) {
		const struct batch_target *m = &f->made[i].target;
		if (m->t == want.t && m->k == want.k && m->outer == want.outer && m->one == want.one &&
		    m->step == want.step)
			return f->made[i].made;
	}
	const int t = x->kind == DLB_T_CONSTANT ? constant_that_follows(f, op, &want) :
						  vertex_that_follows(f, op, &want);
	DLB_GROW(f->made, f->n_made, f->cap_made);
	f->made[f->n_made++] = (struct dlb_batch_made){ want, t };
	return t;
}

int dlb_batch_made(struct fold *f, int op, int t, int k)
{
	return made_for(f, op, (struct batch_target){ .t = t, .k = k, .outer = 1 });
}

/* -- the vertex whose shapes do not agree -- */

/* Operators that broadcast: an operand of one row serves as well as one that follows the batch. */
static bool broadcasts(const struct dlb_op *o)
{
	static const char *const types[] = {
		"Add",      "Sub",      "Mul",  "Div",         "Pow",       "Mod",
		"And",      "Or",       "Xor",  "BitwiseAnd",  "BitwiseOr", "BitwiseXor",
		"BitShift", "Equal",    "Less", "LessOrEqual", "Greater",   "GreaterOrEqual",
		"Where",    "Max",      "Min",  "Sum",         "Mean",      "PRelu",
		"MatMul",   "Attention"
	};

	for (int i = 0; i < DLB_LEN(types) && !*o->domain; i++)
		if (!strcmp(o->type, types[i]))
			return true;
	return false;
}

/* Can dimension d of operand i hold the batch? Yes if an aligned dimension of another operand follows the
 * batch and has the same size: *outer is the `outer` of that dimension. Otherwise, with `any`, yes if the
 * size of d is the batch: *outer is 1. */
static bool may_hold(const struct fold *f, const struct dlb_op *o, int i, int d, bool any, int64_t *outer)
{
	const struct dlb_tensor *x = &f->g->tensor[o->in[i]];

	if (x->dim[d].mul || x->dim[d].add < 1 || x->dim[d].add % f->wired)
		return false;
	for (int j = 0; j < o->n_in; j++) {
		const struct dlb_tensor *z = o->in[j] < 0 ? NULL : &f->g->tensor[o->in[j]];
		for (int k = 0; z && k < z->n_dims; k++)
			if ((z->n_dims - k == x->n_dims - d || k == d) && z->dim[k].mul &&
			    f->outer[o->in[j]][k] && z->dim[k].mul * f->n + z->dim[k].add == x->dim[d].add) {
				*outer = f->outer[o->in[j]][k];
				return true;
			}
	}
	*outer = 1;
	return any && x->dim[d].add == f->wired;
}

struct operand_search { int op, left; bool any; };

/* Tries operands i and later, each unchanged or rebuilt in one of its dimensions; stops
 * where the shapes agree. */
static bool search(struct fold *f, struct operand_search *s, int i)
{
	struct dlb_error ignored = { .what = "" };
	int64_t outer;

	if (s->left-- < 1)
		return false;
	if (i == f->g->op[s->op].n_in)
		return !dlb_graph_infer(f->g, s->op, f->n, &f->known, &ignored);
	if (search(f, s, i + 1))
		return true;
	const int t = f->g->op[s->op].in[i];	/* rebuilding an operand may move the array of ops */
	for (int d = 0; t >= 0 && d < f->g->tensor[t].n_dims; d++) {
		if (!may_hold(f, &f->g->op[s->op], i, d, s->any, &outer))
			continue;
		for (int one = broadcasts(&f->g->op[s->op]); one >= 0; one--) {
			const int made = made_for(f, s->op,
						  (struct batch_target){
							  .t = t, .k = d, .outer = outer, .one = one });
			f->g->op[s->op].in[i] = made < 0 ? t : made;
			if (made >= 0 && search(f, s, i + 1))
				return true;
			f->g->op[s->op].in[i] = t;
		}
	}
	return false;
}

/* A constant that operand t is computed from and that has a dimension of this size; -1: none. */
static int holder(const struct fold *f, int t, int64_t size, int *left)
{
	const struct dlb_tensor *x = &f->g->tensor[t];

	if ((*left)-- < 1)
		return -1;
	if (x->kind == DLB_T_CONSTANT) {
		for (int k = 0; k < x->n_dims; k++)
			if (!x->dim[k].mul && x->dim[k].add == size)
				return t;
		return -1;
	}
	const struct dlb_op *p = f->made_by[t] < 0 ? NULL : &f->g->op[f->made_by[t]];
	for (int i = 0, h; p && i < p->n_in; i++)
		if (p->in[i] >= 0 && (h = holder(f, p->in[i], size, left)) >= 0)
			return h;
	return -1;
}

/* Hint "export with dynamic_shapes={...}", listing the inputs whose first dimension is the batch. */
void dlb_batch_hint(const struct fold *f, struct dlb_error *err)
{
	const struct dlb_graph *g = f->g;
	char list[160] = "";
	size_t n = 0;

	for (int i = 0; i < g->n_inputs && n < sizeof list - 1; i++) {
		const struct dlb_tensor *x = &g->tensor[g->input[i]];
		if (x->n_dims > 0 && x->dim[0].mul)
			n += (size_t)snprintf(list + n, sizeof list - n, "%s\"%s\": {0: \"batch\"}",
					      n ? ", " : "", x->name);
	}
	dlb_hint(err, "torch.onnx.export(..., dynamic_shapes={%s}) leaves the batch open", list);
}

/* Names in err the constant that holds the batch, if one is found. */
static void blame(const struct fold *f, int op, struct dlb_error *err)
{
	const struct dlb_op *o = &f->g->op[op];
	char shape[128];
	int64_t outer;
	int left = 1000;

	for (int any = 0; any < 2; any++)
		for (int i = 0; i < o->n_in; i++)
			for (int d = 0; o->in[i] >= 0 && d < f->g->tensor[o->in[i]].n_dims; d++) {
				const int64_t size = f->g->tensor[o->in[i]].dim[d].add;
				const int h = may_hold(f, o, i, d, any, &outer) ?
						      holder(f, o->in[i], size, &left) :
						      -1;
				if (h < 0)
					continue;
				const struct dlb_desc desc = dlb_tensor_desc(&f->g->tensor[h], f->n);
				dlb_vertex_fail(o, err, NULL,
						"constant '%s', %s, holds the batch of %" PRId64
						" that the model was exported with",
						f->g->tensor[h].name,
						dlb_desc_str(&desc, shape, sizeof shape), f->wired);
				dlb_batch_hint(f, err);
				return;
			}
}

int dlb_batch_unwire(struct fold *f, int op, struct dlb_error *err)
{
	for (int any = 0; any < 2; any++) {
		struct operand_search s = { .op = op, .left = MAX_TRIALS, .any = any };
		if (search(f, &s, 0)) {
			*err = (struct dlb_error){ .what = "" };
			return 0;
		}
	}
	blame(f, op, err);
	return -1;
}

/* -- indices along the batch -- */

/* Constant indices into a flattened (batch, rows), n rows per sample: does each sample index its own rows, so
 * that the indices increase by n from one sample to the next? With several coordinates (GatherND, ScatterND:
 * want->each of them) only the first increases. At a batch of 1, the answer is yes if the indices lie in the
 * sample's rows. */
static bool own_rows(struct fold *f, struct batch_target *want, int64_t n)
{
	const struct dlb_tensor *x = &f->g->tensor[want->t];

	if (x->kind != DLB_T_CONSTANT || x->data_mul || !x->data || x->dim[want->k].mul ||
	    x->dim[want->k].add % f->wired || want->each < 1 || n < 1)
		return false;
	const struct batch_rows r = rows_of(f, want);
	int64_t *step;

	want->step = r.batch == 1 ? n : 0;
	bool own = steady_rows(f, &r, want, &step);
	for (int64_t o = 0; o < r.front && own; o++)
		for (int64_t i = 0; i < r.behind && own; i++) {
			const int64_t at = element(&r, o, 0, i);
			own = step[o * r.behind + i] == (i % want->each ? 0 : n) &&
			      (i % want->each || (at >= 0 && at < n));
		}
	return own;
}

/* Makes indices into dimension k of the data follow the batch, where the data do. */
static void gather(struct fold *f, int op, int k, bool nd)
{
	const int from = f->g->op[op].in[0], by = f->g->op[op].in[1];
	/* copies: making tensors moves the arrays */
	const struct dlb_tensor x = f->g->tensor[from], index = f->g->tensor[by];
	const int n = index.n_dims - nd;

	if (k < 0 || k >= x.n_dims || !x.dim[k].mul || f->outer[from][k] != 1 ||
	    dlb_tensor_follows_batch(&index))
		return;
	for (int d = 0; d < n; d++) {
		struct batch_target want = { .t = by, .k = d, .outer = 1, .each = nd ? index.dim[n].add : 1 };
		const bool own = index.kind == DLB_T_CONSTANT ? own_rows(f, &want, x.dim[k].mul) :
								index.dim[d].add == f->wired;
		const int t = own ? made_for(f, op, want) : -1;
		if (t < 0)
			continue;
		f->g->op[op].in[1] = t;
		return;
	}
}

/* Updates follow the batch but data and indices are constant: makes both follow it. */
static void scatter(struct fold *f, int op, bool nd)
{
	const struct dlb_op *o = &f->g->op[op];
	const struct dlb_tensor *x = &f->g->tensor[o->in[0]], *index = &f->g->tensor[o->in[1]];
	const struct batch_target data = { .t = o->in[0], .outer = 1 };
	struct batch_target indices = { .t = o->in[1],
					.outer = 1,
					.each = nd && index->n_dims ? index->dim[index->n_dims - 1].add : 1 };

	if (o->n_in < 3 || o->in[2] < 0 || x->n_dims < 1 || x->dim[0].mul || x->dim[0].add % f->wired ||
	    index->n_dims < 1 || !dlb_tensor_follows_batch(&f->g->tensor[o->in[2]]) ||
	    !own_rows(f, &indices, x->dim[0].add / f->wired))
		return;
	const int to = made_for(f, op, data), by = to < 0 ? -1 : made_for(f, op, indices);
	if (by < 0)
		return;
	f->g->op[op].in[0] = to;
	f->g->op[op].in[1] = by;
}

/* Inference of Gather and scatter succeeds at any size with any indices, so no error shows that the indices
 * hold the batch. This function makes indices follow the batch before inference, if there is one per sample
 * or they address each sample's own rows. */
void dlb_batch_indices(struct fold *f, int op)
{
	const struct dlb_op *o = &f->g->op[op];
	const int64_t axis = dlb_attr_int(o->attr, o->n_attr, "axis", 0);

	if (f->wired < 1 || *o->domain || o->n_in < 2 || o->in[0] < 0 || o->in[1] < 0)
		return;
	if (!strcmp(o->type, "Gather"))
		gather(f, op, (int)(axis + (axis < 0 ? f->g->tensor[o->in[0]].n_dims : 0)), false);
	else if (!strcmp(o->type, "GatherND"))
		gather(f, op, 0, true);
	else if (!strcmp(o->type, "ScatterND") || (!strcmp(o->type, "ScatterElements") && axis == 0))
		scatter(f, op, !strcmp(o->type, "ScatterND"));
}
