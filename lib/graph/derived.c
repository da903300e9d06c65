/* Initializers computed from parameters: struct dlb_derived in derived.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "graph/derived.h"
#include "graph/rewrite.h"
#include "graph/role.h"

/* -- shapes -- */

static int64_t product(const int64_t *dim, int first, int end)
{
	int64_t p = 1;

	for (int i = first; i < end; i++)
		p *= dim[i];
	return p;
}

static bool is_permutation(const int *perm, int n)
{
	unsigned seen = 0;

	for (int i = 0; i < n; i++)
		if (perm[i] < 0 || perm[i] >= n || seen >> perm[i] & 1)
			return false;
		else
			seen |= 1u << perm[i];
	return true;
}

static bool part_fits(const struct dlb_derived *d, const struct dlb_part *p)
{
	if (p->n_dims < 0 || p->n_dims > DLB_MAX_DIMS || dlb_checked_count(p->dim, p->n_dims) < 0 ||
	    !is_permutation(p->perm, p->n_dims))
		return false;
	const int64_t all = product(p->dim, 0, p->n_dims), rows = p->n_dims ? p->dim[p->axis] : 1;
	if (p->first < 0 || p->count < 1 || p->first > rows - p->count || p->length < 1 ||
	    p->length > d->base[d->axis])
		return false;
	return all / rows * p->count == product(d->base, 0, d->n_dims) / d->base[d->axis] * p->length;
}

/* Do the sizes of a table, its constant indices and the result agree? */
static bool lookup_fits(const struct dlb_derived *d)
{
	const struct dlb_part *p = d->part;
	const int64_t row = d->dim[d->axis];

	if (d->n_parts != 1 || p->n_dims != 2 || dlb_checked_count(p->dim, 2) < 1 || p->dim[1] != row ||
	    d->function != DLB_DERIVED_SAME || product(d->dim, 0, d->n_dims) / row != d->n_index)
		return false;
	for (int i = 0; i < d->n_dims; i++)
		if (d->base[i] != d->dim[i])
			return false;
	for (int64_t i = 0; i < d->n_index; i++)
		if (d->index[i] < 0 || d->index[i] >= p->dim[0])
			return false;
	return true;
}

bool dlb_derived_fits(const struct dlb_derived *d)
{
	int64_t length = 0;

	if (d->n_dims < 1 || d->n_dims > DLB_MAX_DIMS || d->axis < 0 || d->axis >= d->n_dims ||
	    d->n_parts < 1 || dlb_checked_count(d->dim, d->n_dims) < 1)
		return false;
	for (int i = 0; i < d->n_dims; i++)
		if (d->base[i] != d->dim[i] && d->base[i] != 1)
			return false;
	if (d->index)
		return lookup_fits(d);
	for (int i = 0; i < d->n_parts; i++) {
		const struct dlb_part *p = &d->part[i];
		if (p->axis < 0 || (p->n_dims ? p->axis >= p->n_dims : p->axis > 0) || !part_fits(d, p))
			return false;
		length += p->length;
	}
	return length == d->base[d->axis];
}

/* -- values -- */

void dlb_part_begin(struct dlb_part_walk *w, const struct dlb_part *p)
{
	int64_t stride[DLB_MAX_DIMS] = { 0 }, s = 1;

	*w = (struct dlb_part_walk){ .n_dims = p->n_dims, .count = 1 };
	for (int i = p->n_dims - 1; i >= 0; i--) {
		stride[i] = s;
		s *= p->dim[i];
	}
	if (p->n_dims)
		w->at = p->first * stride[p->axis];
	for (int i = 0; i < p->n_dims; i++) {
		w->dim[i] = p->perm[i] == p->axis ? p->count : p->dim[p->perm[i]];
		w->stride[i] = stride[p->perm[i]];
		w->count *= w->dim[i];
	}
}

void dlb_part_next(struct dlb_part_walk *w)
{
	for (int i = w->n_dims - 1; i >= 0; i--) {
		w->at += w->stride[i];
		if (++w->index[i] < w->dim[i])
			break;
		w->at -= w->dim[i] * w->stride[i];
		w->index[i] = 0;
	}
}

/* Writes the part's elements in their order, one row of the result after another. */
static void put_part(const struct dlb_derived *d, const struct dlb_part *p, int64_t at, const void *source,
		     size_t size, char *out)
{
	const int64_t inner = product(d->base, d->axis + 1, d->n_dims);	/* elements per index of the axis */
	const int64_t length = inner * p->length, row = inner * d->base[d->axis];
	struct dlb_part_walk w;

	dlb_part_begin(&w, p);
	for (int64_t e = 0; e < w.count; e++, dlb_part_next(&w))
		memcpy(out + (size_t)(e / length * row + at * inner + e % length) * size,
		       (const char *)source + (size_t)w.at * size, size);
}

static void repeat(const struct dlb_derived *d, const char *base, size_t size, char *out)
{
	const int64_t count = product(d->dim, 0, d->n_dims);

	for (int64_t e = 0; e < count; e++) {
		int64_t rest = e, from = 0, stride = 1;
		for (int i = d->n_dims - 1; i >= 0; i--) {
			from += d->base[i] == 1 ? 0 : rest % d->dim[i] * stride;
			stride *= d->base[i];
			rest /= d->dim[i];
		}
		memcpy(out + (size_t)e * size, base + (size_t)from * size, size);
	}
}

static double same(double x)
{
	return x;
}

static double one_plus(double x)
{
	return 1 + x;
}

static double minus_exp(double x)
{
	return -exp(x);
}

static double softplus(double x)
{
	return (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
}

/* The functions, and the ops that compute each in turn; `one`: an Add of 1 comes first. */
static const struct derived_function {
	const char *name;
	double (*of)(double x);
	bool one;
	const char *op[2];
} functions[] = {
	[DLB_DERIVED_SAME] = { "same", same, false, { NULL, NULL } },
	[DLB_DERIVED_ONE_PLUS] = { "1+x", one_plus, true, { NULL, NULL } },
	[DLB_DERIVED_EXP] = { "exp(x)", exp, false, { "Exp", NULL } },
	[DLB_DERIVED_MINUS_EXP] = { "-exp(x)", minus_exp, false, { "Exp", "Neg" } },
	[DLB_DERIVED_SOFTPLUS] = { "softplus(x)", softplus, false, { "Softplus", NULL } },
};
_Static_assert(DLB_LEN(functions) == DLB_DERIVED_FUNCTIONS, "a row for each function");

const char *dlb_derived_function_name(enum dlb_derived_function f)
{
	return functions[f].name;
}

double dlb_derived_function(enum dlb_derived_function f, double x)
{
	return functions[f].of(x);
}

/* Copies the table's rows at the constant indices to `out`. */
static void look_up(const struct dlb_derived *d, const char *table, size_t size, char *out)
{
	const int64_t row = d->dim[d->axis], inner = product(d->dim, d->axis + 1, d->n_dims);

	for (int64_t i = 0; i < d->n_index; i++)
		for (int64_t k = 0; k < row; k++)
			memcpy(out + (size_t)((i / inner * row + k) * inner + i % inner) * size,
			       table + (size_t)(d->index[i] * row + k) * size, size);
}

void dlb_derived_value(const struct dlb_derived *d, const void *const *source, enum dlb_dtype dtype,
		       void *out)
{
	if (d->index) {
		look_up(d, source[0], dlb_dtype_bytes(dtype), out);
		return;
	}
	const bool repeats = memcmp(d->dim, d->base, (size_t)d->n_dims * sizeof *d->dim) != 0;
	const size_t size = dlb_dtype_bytes(dtype);
	const int64_t count = product(d->base, 0, d->n_dims);
	char *base = repeats ? dlb_xcalloc((size_t)count + 1, size) : out;
	int64_t at = 0;

	for (int i = 0; i < d->n_parts; i++) {
		put_part(d, &d->part[i], at, source[i], size, base);
		at += d->part[i].length;
	}
	for (int64_t i = 0; i < count && d->function != DLB_DERIVED_SAME; i++)
		dlb_value_set(base, dtype, i, functions[d->function].of(dlb_value_real(base, dtype, i)));
	if (!repeats)
		return;
	repeat(d, base, size, out);
	free(base);
}

/* -- ops -- */

static int ints(struct dlb_graph *g, const char *name, const int64_t *v, int n)
{
	const struct dlb_desc d = { .dtype = DLB_I64, .n_dims = 1, .dim = { n } };

	return dlb_graph_add_constant(g, dlb_graph_tensor_name(g, name), &d, v, NULL);
}

enum { OPSET = 17 };		/* version of the operators added here, whatever the model's */

/* Adds an op with a new tensor as its output. Returns the tensor's id. */
static int add(struct dlb_graph *g, const char *name, const char *type, const int *in, int n_in,
	       const struct dlb_attr *attr, int n_attr)
{
	const char *op = dlb_graph_op_name(g, dlb_arena_printf(&g->arena, "%s.%s", name, type));
	const int out = dlb_graph_add_tensor(g, dlb_graph_tensor_name(g, op), DLB_T_ACTIVATION);
	const struct dlb_op_spec s = { .name = op,
				       .type = type,
				       .in = in,
				       .n_in = n_in,
				       .out = &out,
				       .n_out = 1,
				       .attr = attr,
				       .n_attr = n_attr,
				       .opset = OPSET };

	g->tensor[out].producer = dlb_graph_add_op(g, DLB_FORWARD, &s);
	g->tensor[out].dtype = g->tensor[in[0]].dtype;
	return out;
}

static int slice(struct dlb_graph *g, const char *name, const struct dlb_part *p, int t)
{
	const int64_t end = p->first + p->count, axis = p->axis;

	if (!p->n_dims || p->count == p->dim[p->axis])
		return t;
	const int in[4] = { t, ints(g, dlb_arena_printf(&g->arena, "%s.from", name), &p->first, 1),
			    ints(g, dlb_arena_printf(&g->arena, "%s.to", name), &end, 1),
			    ints(g, dlb_arena_printf(&g->arena, "%s.axis", name), &axis, 1) };
	return add(g, name, "Slice", in, 4, NULL, 0);
}

static int transpose(struct dlb_graph *g, const char *name, const struct dlb_part *p, int t)
{
	int64_t perm[DLB_MAX_DIMS];
	bool same = true;

	for (int i = 0; i < p->n_dims; i++) {
		perm[i] = p->perm[i];
		same &= perm[i] == i;
	}
	const struct dlb_attr attr = { .name = "perm", .type = DLB_ATTR_INTS, .ints = perm, .n = p->n_dims };
	return same ? t : add(g, name, "Transpose", &t, 1, &attr, 1);
}

static int reshape(struct dlb_graph *g, const char *name, const struct dlb_derived *d,
		   const struct dlb_part *p, int t)
{
	int64_t dim[DLB_MAX_DIMS];
	bool same = p->n_dims == d->n_dims;

	for (int i = 0; i < d->n_dims; i++) {
		dim[i] = i == d->axis ? p->length : d->base[i];
		same = same && dim[i] == (p->perm[i] == p->axis ? p->count : p->dim[p->perm[i]]);
	}
	if (same)
		return t;
	const int in[2] = { t, ints(g, dlb_arena_printf(&g->arena, "%s.shape", name), dim, d->n_dims) };
	return add(g, name, "Reshape", in, 2, NULL, 0);
}

/* Adds the ops of the function. */
static int apply(struct dlb_graph *g, const char *name, const struct derived_function *f, int t)
{
	if (f->one) {
		const struct dlb_desc scalar = { .dtype = DLB_F32 };
		const float one = 1;
		const char *base = dlb_graph_tensor_name(g, dlb_arena_printf(&g->arena, "%s.one", name));
		const int in[2] = { dlb_graph_add_constant(g, base, &scalar, &one, NULL), t };
		t = add(g, name, "Add", in, 2, NULL, 0);
	}
	for (int i = 0; i < DLB_LEN(f->op) && f->op[i]; i++)
		t = add(g, name, f->op[i], &t, 1, NULL, 0);
	return t;
}

/* Adds the ops that look up rows of table t. */
static int lookup(struct dlb_graph *g, const struct dlb_derived *d, int t)
{
	const char *name = d->name;
	int64_t dim[DLB_MAX_DIMS], perm[DLB_MAX_DIMS];
	int n = 0;

	for (int i = 0; i < d->n_dims; i++)
		if (i != d->axis)
			dim[n++] = d->dim[i];
	dim[n] = d->dim[d->axis];
	for (int i = 0, k = 0; i < d->n_dims; i++)
		perm[i] = i == d->axis ? n : k++;
	const int index = ints(g, dlb_arena_printf(&g->arena, "%s.index", name), d->index, (int)d->n_index);
	const struct dlb_attr axis = { .name = "axis", .type = DLB_ATTR_INT, .i = 0 };
	t = add(g, name, "Gather", (int[]){ t, index }, 2, &axis, 1);
	const int shape = ints(g, dlb_arena_printf(&g->arena, "%s.shape", name), dim, d->n_dims);
	t = add(g, name, "Reshape", (int[]){ t, shape }, 2, NULL, 0);
	const struct dlb_attr move = { .name = "perm", .type = DLB_ATTR_INTS, .ints = perm, .n = d->n_dims };
	return d->axis == n ? t : add(g, name, "Transpose", &t, 1, &move, 1);
}

static void note(struct dlb_graph *g, const struct dlb_derived *d)
{
	struct dlb_derived *all = dlb_arena_array(&g->arena, (size_t)g->n_derived + 1, sizeof *all),
			   *copy = &all[g->n_derived];

	if (g->n_derived)
		memcpy(all, g->derived, (size_t)g->n_derived * sizeof *all);
	*copy = *d;
	copy->name = dlb_arena_strdup(&g->arena, d->name);
	copy->part = dlb_arena_array(&g->arena, (size_t)d->n_parts, sizeof *copy->part);
	memcpy(copy->part, d->part, (size_t)d->n_parts * sizeof *copy->part);
	if (d->index) {
		copy->index = dlb_arena_array(&g->arena, (size_t)d->n_index + 1, sizeof *copy->index);
		memcpy(copy->index, d->index, (size_t)d->n_index * sizeof *copy->index);
	}
	g->derived = all;
	g->n_derived++;
}

int dlb_derived_add(struct dlb_graph *g, int x, const struct dlb_derived *d, const int *source,
		    struct dlb_error *err)
{
	const char *name = d->name;
	int *part = dlb_arena_array(&g->arena, (size_t)d->n_parts, sizeof *part), t;

	if (!dlb_derived_fits(d))
		return dlb_refuse(err, name, "this is a mistake of dlb: report it with the model",
				  "the parts that it is made of do not fit");
	if (d->index) {
		note(g, d);
		dlb_graph_replace(g, x, lookup(g, &g->derived[g->n_derived - 1], source[0]), true);
		return 0;
	}
	for (int i = 0; i < d->n_parts; i++) {
		t = slice(g, name, &d->part[i], source[i]);
		t = transpose(g, name, &d->part[i], t);
		part[i] = reshape(g, name, d, &d->part[i], t);
	}
	const struct dlb_attr axis = { .name = "axis", .type = DLB_ATTR_INT, .i = d->axis };
	t = d->n_parts > 1 ? add(g, name, "Concat", part, d->n_parts, &axis, 1) : part[0];
	t = apply(g, name, &functions[d->function], t);
	if (memcmp(d->dim, d->base, (size_t)d->n_dims * sizeof *d->dim)) {
		const int in[2] = { t, ints(g, dlb_arena_printf(&g->arena, "%s.repeats", name), d->dim,
					    d->n_dims) };
		t = add(g, name, "Expand", in, 2, NULL, 0);
	}
	note(g, d);
	dlb_graph_replace(g, x, t, true);
	return 0;
}

/* Tensor `to` takes over the content of `from`, which then has no readers. */
static int swap(struct dlb_graph *g, int from, int to)
{
	const char *name = g->tensor[to].name;

	g->tensor[to] = g->tensor[from];
	g->tensor[from] = (struct dlb_tensor){ .name = name,
					       .kind = DLB_T_CONSTANT,
					       .dtype = g->tensor[to].dtype,
					       .n_dims = -1,
					       .producer = -1,
					       .home = -1,
					       .of = -1 };
	dlb_graph_forget_names(g);
	return 0;
}

int dlb_graph_collapse(struct dlb_graph *g, int t, struct dlb_error *err)
{
	struct dlb_tensor *x = &g->tensor[t];
	const struct dlb_desc all = dlb_tensor_desc(x, 1);
	struct dlb_part p = { .of = x->name, .n_dims = x->n_dims };
	struct dlb_derived d = { .name = x->name, .n_dims = x->n_dims, .n_parts = 1, .part = &p };
	const char *v = x->data;
	size_t block = dlb_desc_bytes(&all);

	if (x->in_state)		/* a parameter's shape is not changed, whatever its values */
		return 0;
	memcpy(d.dim, all.dim, sizeof d.dim);
	memcpy(d.base, all.dim, sizeof d.base);
	for (int k = 0; k + 1 < x->n_dims; k++) {
		block /= (size_t)all.dim[k];
		bool same = true;
		for (int64_t i = 1; i < all.dim[k] && same; i++)
			same = !memcmp(v, v + (size_t)i * block, block);
		if (!same)
			break;
		d.base[k] = 1;
	}
	if (!memcmp(d.base, d.dim, sizeof d.base))
		return 0;
	while (d.axis + 1 < d.n_dims && d.base[d.axis] == 1)
		d.axis++;
	memcpy(p.dim, d.base, sizeof p.dim);
	p.count = p.length = d.base[d.axis];
	p.axis = d.axis;
	for (int k = 0; k < x->n_dims; k++) {
		p.perm[k] = k;
		x->dim[k] = (struct dlb_dim){ 0, d.base[k] };
	}
	x->in_model = false;		/* the model has it in another shape */
	/* existing readers now read the output of the new Expand */
	const int row = dlb_graph_add_tensor(g,
					     dlb_graph_tensor_name(g, dlb_arena_printf(&g->arena, "%s.row",
										       x->name)),
					     DLB_T_CONSTANT);
	return dlb_derived_add(g, t, &d, &row, err) ? -1 : swap(g, t, row);
}
