/* f32 to f64: the same model in double precision, for runs that are compared to the last digits.
 *
 * Weights keep the file's values. Scalar constants and attributes were literals of a program before the
 * exporter rounded them, and double precision uses the literals: 1e-5, not 9.99999974e-06. A literal is
 * recognised as a decimal of at most six digits, the square or fourth root of an integer or its reciprocal
 * (attention's scales), or a constant of GELU, if it rounds to the file's value.
 *
 * Tensors computed from integers and constants alone (a table of sines by position or time step, a mask)
 * stay f32 up to the vertex that combines them with samples or weights: a module in double has such tables
 * in f32 too, by .float(). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "graph/passes.h"
#include "graph/rewrite.h"

#define PI 3.14159265358979323846

static double unrounded(double v)
{
	const double known[] = { sqrt(2 / PI), 1 / sqrt(2 * PI), PI, 2 * PI, PI / 2 };
	const double size = fabs(v);
	const float f = (float)size;
	char text[40];

	if (!isfinite(v) || v == 0 || (double)f != size)
		return v;
	for (int digits = 0; digits < 6; digits++) {
		snprintf(text, sizeof text, "%.*e", digits, v);
		if ((float)fabs(atof(text)) == f)
			return atof(text);
	}
	for (int degree = 2; degree <= 4; degree += 2)
		for (int sign = -1; sign <= 1; sign += 2) {
			const double whole = round(pow(size, sign * degree)),
				     root = pow(whole, sign * 1.0 / degree);
			if (whole >= 2 && whole <= 65536 && (float)root == f)
				return copysign(root, v);
		}
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if ((float)known[i] == f)
			return copysign(known[i], v);
	return v;
}

static const void *widened(struct dlb_arena *a, const void *data, int64_t count)
{
	double *v = dlb_arena_array(a, (size_t)count + 1, sizeof *v);

	for (int64_t i = 0; i < count; i++)
		v[i] = ((const float *)data)[i];
	return v;
}

static void widen_attr(struct dlb_graph *g, const struct dlb_op *o, struct dlb_attr *a)
{
	if (a->type == DLB_ATTR_REAL)
		a->f = unrounded(a->f);
	if (a->type == DLB_ATTR_TENSOR && a->desc.dtype == DLB_F32) {
		a->data = a->data ? widened(&g->arena, a->data, dlb_desc_count(&a->desc)) : NULL;
		a->desc.dtype = DLB_F64;
	}
	/* Constant's value_float and value_floats are f32 by definition */
	if (!strcmp(o->type, "Constant") &&
	    (!strcmp(a->name, "value_float") || !strcmp(a->name, "value_floats"))) {
		const bool one = a->type == DLB_ATTR_REAL;
		const int n = one ? 1 : a->n;
		double *v = dlb_arena_array(&g->arena, (size_t)n + 1, sizeof *v);
		for (int i = 0; i < n; i++)
			v[i] = one ? a->f : a->reals[i];
		*a = (struct dlb_attr){ .name = "value", .type = DLB_ATTR_TENSOR, .data = v,
			.desc = { .dtype = DLB_F64, .n_dims = one ? 0 : 1, .dim = { n } } };
	}
	/* attributes that hold the number of a type: Cast's `to`, RandomNormal's and EyeLike's `dtype` */
	const bool names_type = !strcmp(a->name, "dtype") ||
				(!strcmp(a->name, "to") && !strcmp(o->type, "Cast"));
	if (names_type && a->type == DLB_ATTR_INT && a->i == dlb_dtype_to_onnx(DLB_F32))
		a->i = dlb_dtype_to_onnx(DLB_F64);
}

/* ConstantOfShape without a value is an f32 zero by definition. */
static void widen_default(struct dlb_graph *g, struct dlb_op *o)
{
	static const double zero;
	const struct dlb_attr value = { .name = "value", .type = DLB_ATTR_TENSOR, .data = &zero,
					.desc = { .dtype = DLB_F64, .n_dims = 1, .dim = { 1 } } };

	if (strcmp(o->type, "ConstantOfShape") || *o->domain || dlb_attr_find(o->attr, o->n_attr, "value"))
		return;
	o->attr = dlb_attr_copy(&g->arena, &value, 1);
	o->n_attr = 1;
}

/* -- tensors that stay f32 -- */

/* [tensor] integer: computed from integers; table: a table */
struct origin { bool *integer, *table; };

/* Is t an initializer that is not trained? Choosing parameters has cleared its `initial`. */
static bool is_constant(const struct dlb_tensor *t)
{
	return t->kind == DLB_T_CONSTANT && !t->initial;
}

/* Is t a parameter or buffer of the module? .double() widens these by value. */
static bool is_listed(const struct dlb_graph *g, const struct dlb_tensor *t)
{
	for (int i = 0; i < g->n_listed; i++)
		if (!strcmp(g->listed[i].name, t->name))
			return true;
	return false;
}

/* Are all operands integers, tables or constants, and is at least one of `kind`? */
static bool made_of(const struct dlb_graph *g, const struct dlb_op *o, const bool *kind,
		    const struct origin *from)
{
	bool one = false;

	for (int k = 0; k < o->n_in; k++) {
		const int t = o->in[k];
		if (t >= 0 && !from->integer[t] && !from->table[t] && !is_constant(&g->tensor[t]))
			return false;
		one |= t >= 0 && kind[t];
	}
	return one;
}

/* May the op compute a table? Elementwise ops, moves and products may. */
static bool may_make_table(const struct dlb_op *o)
{
	const char *work = dlb_op_work(o->type);

	return !*o->domain && strcmp(o->type, "Cast") &&
	       (!strcmp(work, "elementwise") || !strcmp(work, "move") || !strcmp(work, "dense") ||
		!strcmp(work, "activation"));
}

static void find_tables(const struct dlb_graph *g, const struct origin *from)
{
	for (int t = 0; t < g->n_tensors; t++)
		from->integer[t] = dlb_dtype_is_int(g->tensor[t].dtype) && g->tensor[t].producer < 0 &&
			(g->tensor[t].kind == DLB_T_INPUT || g->tensor[t].kind == DLB_T_CONSTANT);
	for (int i = 0; i < g->n_ops; i++) {
		const struct dlb_op *o = &g->op[i];
		const bool cast = !strcmp(o->type, "Cast") && !*o->domain;
		const bool to_f32 = cast &&
				    dlb_attr_int(o->attr, o->n_attr, "to", 0) == dlb_dtype_to_onnx(DLB_F32);
		const bool table = to_f32 ? from->integer[o->in[0]] :
					    may_make_table(o) && made_of(g, o, from->table, from);
		const bool integer = !table && !cast && made_of(g, o, from->integer, from);
		for (int k = 0; k < o->n_out; k++)
			if (o->out[k] >= 0) {
				from->table[o->out[k]] = table;
				from->integer[o->out[k]] = integer;
			}
	}
}

/* Adds an f32 tensor with the constant's values, for the vertices that stay f32. */
static int narrow_copy(struct dlb_graph *g, int t)
{
	const int copy = dlb_graph_add_tensor(g, dlb_graph_tensor_name(g, g->tensor[t].name), DLB_T_CONSTANT);
	const char *name = g->tensor[copy].name;

	g->tensor[copy] = g->tensor[t];
	g->tensor[copy].name = name;
	g->tensor[copy].in_model = false;
	return copy;
}

static int cast_to_f64(struct dlb_graph *g, int t)
{
	/* dlb_graph_widen changes it to f64 */
	const struct dlb_attr to = { .name = "to", .type = DLB_ATTR_INT, .i = dlb_dtype_to_onnx(DLB_F32) };
	const char *name = dlb_arena_printf(&g->arena, "%s.f64", g->tensor[t].name);
	const int out = dlb_graph_add_tensor(g, dlb_graph_tensor_name(g, name), DLB_T_ACTIVATION);

	dlb_graph_add_op(g, DLB_FORWARD,
			 &(struct dlb_op_spec){ .name = dlb_graph_op_name(g, name), .type = "Cast",
						DLB_OPERANDS(t), .out = &out, .n_out = 1, .attr = &to,
						.n_attr = 1 });
	return out;
}

/* Vertices that compute tables get f32 copies of their constants; other readers of tables get a Cast.
 * keeps_f32[op]: the op computes a table; narrow[tensor]: the tensor stays f32. Both arrays are new. */
static void keep_tables(struct dlb_graph *g, bool **keeps_f32, bool **narrow)
{
	const int n_ops = g->n_ops, n = g->n_tensors;
	struct origin from = { dlb_xcalloc((size_t)n + 1, 1), dlb_xcalloc((size_t)n + 1, 1) };
	int *other = dlb_xcalloc((size_t)n + 1, sizeof *other);	/* f32 copy of a constant, f64
								 * Cast of a table; 0: none */

	find_tables(g, &from);
	*keeps_f32 = dlb_xcalloc((size_t)n_ops + (size_t)n + 1, 1);
	for (int i = 0; i < n_ops; i++) {
		(*keeps_f32)[i] = g->op[i].n_out > 0 && g->op[i].out[0] >= 0 && from.table[g->op[i].out[0]];
		for (int k = 0; k < g->op[i].n_in; k++) {
			const int t = g->op[i].in[k];
			const bool constant = t >= 0 && g->tensor[t].kind == DLB_T_CONSTANT &&
					      g->tensor[t].dtype == DLB_F32;
			if (t < 0 || ((*keeps_f32)[i] ? !constant : !from.table[t]))
				continue;
			if (!other[t])
				other[t] = (*keeps_f32)[i] ? narrow_copy(g, t) : cast_to_f64(g, t);
			g->op[i].in[k] = other[t];
		}
	}
	*narrow = dlb_xcalloc((size_t)g->n_tensors + 1, 1);
	memcpy(*narrow, from.table, (size_t)n);
	for (int t = n; t < g->n_tensors; t++)
		(*narrow)[t] = g->tensor[t].kind == DLB_T_CONSTANT;
	free(from.integer);
	free(from.table);
	free(other);
}

/* -- all -- */

void dlb_graph_widen(struct dlb_graph *g)
{
	bool *keeps_f32, *narrow;

	keep_tables(g, &keeps_f32, &narrow);
	for (int i = 0; i < g->n_tensors; i++) {
		struct dlb_tensor *t = &g->tensor[i];
		const struct dlb_desc d = dlb_tensor_desc(t, 1);
		if (t->dtype != DLB_F32 || narrow[i])
			continue;
		if (t->data)
			t->data = widened(&g->arena, t->data, dlb_desc_count(&d));
		if (t->data && dlb_desc_count(&d) == 1 && is_constant(t) && !is_listed(g, t))
			*(double *)t->data = unrounded(*(const double *)t->data);
		t->dtype = DLB_F64;
	}
	for (int i = 0; i < g->n_ops; i++) {
		for (int k = 0; k < g->op[i].n_attr && !keeps_f32[i]; k++)
			widen_attr(g, &g->op[i], &g->op[i].attr[k]);
		if (!keeps_f32[i])
			widen_default(g, &g->op[i]);
	}
	for (int i = 0; i < g->n_bodies; i++)
		dlb_graph_widen(&g->body[i]->g);
	g->dtype = DLB_F64;
	free(keeps_f32);
	free(narrow);
}
