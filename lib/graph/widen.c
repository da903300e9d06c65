/* f32 to f64: the same model in double precision, for runs that are compared to the last digits.
 *
 * Weights are what the file says. Scalar constants and attributes were numbers of a program before the exporter rounded
 * them, and a run in double means those: 1e-5, not 9.99999974e-06. Which number it was is told where it can be: a
 * decimal of at most six digits, the root of a whole number or its reciprocal (the scale of attention), or one of the
 * constants of GELU. All of these lie within the rounding of what the file has. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "graph/graph.h"

#define PI 3.14159265358979323846

static double unrounded(double v)
{
	const double known[] = { sqrt(2 / PI), 1 / sqrt(2 * PI), PI, 2 * PI, PI / 2 };
	const double size = fabs(v), root = round(size * size), inverse = round(1 / (size * size));
	const float f = (float)size;
	char text[40];

	if (!isfinite(v) || v == 0 || (double)f != size)
		return v;
	for (int digits = 0; digits < 6; digits++) {
		snprintf(text, sizeof text, "%.*e", digits, v);
		if ((float)fabs(atof(text)) == f)
			return atof(text);
	}
	if (root >= 2 && root <= 65536 && (float)sqrt(root) == f)
		return copysign(sqrt(root), v);
	if (inverse >= 2 && inverse <= 65536 && (float)(1 / sqrt(inverse)) == f)
		return copysign(1 / sqrt(inverse), v);
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
	if (!strcmp(o->type, "Constant") && (!strcmp(a->name, "value_float") || !strcmp(a->name, "value_floats"))) {
		const bool one = a->type == DLB_ATTR_REAL;
		const int n = one ? 1 : a->n;
		double *v = dlb_arena_array(&g->arena, (size_t)n + 1, sizeof *v);
		for (int i = 0; i < n; i++)
			v[i] = one ? a->f : a->reals[i];
		*a = (struct dlb_attr){ .name = "value", .type = DLB_ATTR_TENSOR, .data = v,
			.desc = { .dtype = DLB_F64, .n_dims = one ? 0 : 1, .dim = { n } } };
	}
	/* types named by number: Cast's `to`, RandomNormal's and EyeLike's `dtype` */
	const bool names_type = !strcmp(a->name, "dtype") || (!strcmp(a->name, "to") && !strcmp(o->type, "Cast"));
	if (names_type && a->type == DLB_ATTR_INT && a->i == dlb_dtype_to_onnx(DLB_F32))
		a->i = dlb_dtype_to_onnx(DLB_F64);
}

void dlb_graph_widen(struct dlb_graph *g)
{
	for (int i = 0; i < g->n_tensors; i++) {
		struct dlb_tensor *t = &g->tensor[i];
		const struct dlb_desc d = dlb_tensor_desc(t, 1);
		if (t->dtype != DLB_F32)
			continue;
		if (t->data)
			t->data = widened(&g->arena, t->data, dlb_desc_count(&d));
		if (t->data && !t->initial && dlb_desc_count(&d) == 1)
			*(double *)t->data = unrounded(*(const double *)t->data);
		t->dtype = DLB_F64;
	}
	for (int i = 0; i < g->n_ops; i++)
		for (int k = 0; k < g->op[i].n_attr; k++)
			widen_attr(g, &g->op[i], &g->op[i].attr[k]);
	for (int i = 0; i < g->n_bodies; i++)
		dlb_graph_widen(&g->body[i]->g);
	g->dtype = DLB_F64;
}
