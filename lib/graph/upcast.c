/* f16 and bf16 to f32: trains a model that was exported in half precision.
 *
 * Parameters need more than 16 bits (an update of 1e-4 of a weight is lost in f16 and bf16), and the CPU has
 * no f16 arithmetic. So each tensor of these types is read as f32, with the file's values, and computed in
 * f32; Casts between the types then do nothing. Losses differ from the framework's half precision by its
 * rounding. Saving as ONNX restores the types (lib/model/onnx_save.c). --dtype bf16 computes activations in
 * bf16 as for f32 models. */
#include <string.h>
#include "graph/graph.h"
#include "graph/passes.h"

static bool is_half(enum dlb_dtype t)
{
	return t == DLB_F16 || t == DLB_BF16;
}

static const void *upcast(struct dlb_arena *a, const void *data, enum dlb_dtype from, int64_t count)
{
	float *v = dlb_arena_array(a, (size_t)count + 1, sizeof *v);

	for (int64_t i = 0; i < count; i++)
		v[i] = (float)dlb_value_real(data, from, i);
	return v;
}

/* Does the attribute hold the number of a type? */
static bool names_type(const struct dlb_op *o, const char *name)
{
	static const char *const names[] = { "dtype", "stash_type", "softmax_precision" };

	for (int i = 0; i < DLB_LEN(names); i++)
		if (!strcmp(names[i], name))
			return true;
	return !strcmp(name, "to") && !strcmp(o->type, "Cast");
}

static void upcast_attr(struct dlb_graph *g, const struct dlb_op *o, struct dlb_attr *a)
{
	if (a->type == DLB_ATTR_TENSOR && is_half(a->desc.dtype)) {
		a->data = a->data ? upcast(&g->arena, a->data, a->desc.dtype, dlb_desc_count(&a->desc)) :
				    NULL;
		a->desc.dtype = DLB_F32;
	}
	if (a->type == DLB_ATTR_INT && names_type(o, a->name) &&
	    (a->i == dlb_dtype_to_onnx(DLB_F16) || a->i == dlb_dtype_to_onnx(DLB_BF16)))
		a->i = dlb_dtype_to_onnx(DLB_F32);
}

static void upcast_graph(struct dlb_graph *g, struct dlb_upcast count[DLB_N_UPCAST])
{
	for (int i = 0; i < g->n_tensors; i++) {
		struct dlb_tensor *t = &g->tensor[i];
		const struct dlb_desc d = dlb_tensor_desc(t, 1);
		if (!is_half(t->dtype))
			continue;
		struct dlb_upcast *c = &count[t->dtype == DLB_F16 ? DLB_UPCAST_F16 : DLB_UPCAST_BF16];
		if (t->data)
			t->data = upcast(&g->arena, t->data, t->dtype, dlb_desc_count(&d));
		*(t->initial ? &c->initializers : &c->others) += 1;
		t->dtype = DLB_F32;
	}
	for (int i = 0; i < g->n_ops; i++)
		for (int k = 0; k < g->op[i].n_attr; k++)
			upcast_attr(g, &g->op[i], &g->op[i].attr[k]);
	for (int i = 0; i < g->n_bodies; i++)
		upcast_graph(&g->body[i]->g, count);
}

void dlb_graph_upcast(struct dlb_graph *g)
{
	static const char *const names[DLB_N_UPCAST] = {
		[DLB_UPCAST_F16] = "f16", [DLB_UPCAST_BF16] = "bf16"
	};

	upcast_graph(g, g->upcast);
	for (int i = 0; i < DLB_N_UPCAST; i++) {
		const struct dlb_upcast *c = &g->upcast[i];
		if (c->initializers || c->others)
			dlb_graph_note(g,
				       "%d %s initializer%s and %d other %s tensor%s of the model are f32 "
				       "here: losses differ from those of a "
				       "framework that computes in %s by its rounding",
				       c->initializers, names[i], c->initializers == 1 ? "" : "s", c->others,
				       names[i], c->others == 1 ? "" : "s", names[i]);
	}
}
