/* Roles of initializers: see role.h. */
#include "graph/order.h"
#include "graph/passes.h"
#include "graph/role.h"
#include <stdlib.h>
#include <string.h>
#include "graph/rewrite.h"

enum { DEPTH = 24 };		/* longest path of vertices from an initializer to its use */

bool dlb_role_is_candidate(const struct dlb_graph *g, int t)
{
	const struct dlb_tensor *x = &g->tensor[t];

	if (x->kind == DLB_T_CONSTANT)
		return x->initial && dlb_dtype_is_float(x->dtype) && (x->data || x->is_fill);
	const struct dlb_op *o = x->producer < 0 ? NULL : &g->op[x->producer];
	if (!o || strcmp(o->type, "ConstantOfShape") || *o->domain)
		return false;
	const struct dlb_attr *a = dlb_attr_find(o->attr, o->n_attr, "value");
	return a && a->type == DLB_ATTR_TENSOR && a->data && dlb_dtype_is_float(a->desc.dtype) &&
		dlb_value_real(a->data, a->desc.dtype, 0) != 0;
}

int64_t dlb_role_count(const struct dlb_graph *g, int t)
{
	const struct dlb_tensor *x = &g->tensor[t];

	if (x->kind != DLB_T_CONSTANT)
		return -1;
	const struct dlb_desc d = dlb_tensor_desc(x, 1);
	return dlb_desc_count(&d);
}

enum dlb_word dlb_role_word(const char *name)
{
	const char *dot = strrchr(name, '.');

	name = dot ? dot + 1 : name;
	return strstr(name, "bias")   ? DLB_WORD_BIAS :
	       strstr(name, "weight") ? DLB_WORD_WEIGHT :
					DLB_WORD_NONE;
}

static bool is_type(const struct dlb_op *o, const char *const *types)
{
	for (int i = 0; types[i]; i++)
		if (!strcmp(o->type, types[i]))
			return true;
	return false;
}

/* -- sources of tensors -- */

static bool looks_at_shape(const struct dlb_op *o)
{
	const struct dlb_op_class *cls = o->kind < 0 ? NULL : dlb_op_class_of(o->kind);

	return cls && cls->flags & DLB_OP_SHAPE_ONLY;
}

static bool is_random(const struct dlb_op *o)
{
	return !strncmp(o->type, "Random", 6) || !strcmp(o->type, "Bernoulli");
}

void dlb_roles_init(struct dlb_roles *r, struct dlb_graph *g)
{
	*r = (struct dlb_roles){ .g = g };
	dlb_graph_index(g);
	r->from = dlb_xcalloc((size_t)g->n_tensors + 1, sizeof *r->from);
	r->visited = dlb_xcalloc((size_t)g->n_tensors + 1, sizeof *r->visited);
	for (int t = 0; t < g->n_tensors; t++) {
		if (dlb_role_is_candidate(g, t) && dlb_role_count(g, t) != 1)
			r->from[t] = DLB_FROM_INITIALIZER;
		if (g->tensor[t].kind == DLB_T_INPUT)
			r->from[t] = DLB_FROM_SAMPLES |
				     (dlb_dtype_is_float(g->tensor[t].dtype) ? DLB_FROM_REALS : 0);
	}
	for (int i = 0; i < g->n_ops; i++) {
		const struct dlb_op *o = &g->op[i];
		unsigned char from = is_random(o) ? DLB_FROM_SAMPLES | DLB_FROM_REALS : 0;
		for (int k = 0; k < o->n_in && !looks_at_shape(o); k++)
			from |= o->in[k] < 0 ? 0 : r->from[o->in[k]];
		if ((from & DLB_FROM_SAMPLES) && (from & DLB_FROM_INITIALIZER) && !strcmp(o->type, "Gather"))
			from |= DLB_FROM_REALS;		/* an embedding lookup */
		for (int k = 0; k < o->n_out; k++)
			if (o->out[k] >= 0)
				r->from[o->out[k]] |= from;
	}
}

void dlb_roles_release(struct dlb_roles *r)
{
	free(r->from);
	free(r->visited);
}

static bool fed(const struct dlb_roles *r, int t)
{
	return t >= 0 && r->from[t] & DLB_FROM_SAMPLES;
}

/* Is t computed from initializers alone? */
static bool is_weight(const struct dlb_roles *r, int t)
{
	return t >= 0 && !fed(r, t) && r->from[t] & DLB_FROM_INITIALIZER;
}

/* The source of the views that make t. */
static int behind_views(const struct dlb_graph *g, int t)
{
	static const char *const views[] = { "Reshape", "Transpose", "Squeeze",  "Unsqueeze", "Flatten",
					     "Cast",    "CastLike",  "Identity", NULL };

	for (int n = 0; n < DEPTH && t >= 0 && g->tensor[t].producer >= 0; n++) {
		const struct dlb_op *o = &g->op[g->tensor[t].producer];
		if (*o->domain || !is_type(o, views) || !o->n_in)
			break;
		t = o->in[0];
	}
	return t;
}

static const struct dlb_op *producer(const struct dlb_graph *g, int t)
{
	return t < 0 || g->tensor[t].producer < 0 ? NULL : &g->op[g->tensor[t].producer];
}

static int large_dims(const struct dlb_tensor *x)
{
	int n = 0;

	for (int i = 0; i < x->n_dims; i++)
		n += x->dim[i].add > 1;
	return n;
}

/* -- products -- */

static const char *const products[] = { "MatMul",        "Gemm",       "Einsum", "Conv",
					"ConvTranspose", "DeformConv", NULL };

/* Do all paths from t, of at most DEPTH vertices, reach a Sin or Cos before any other use? */
static bool ends_in_sines(const struct dlb_roles *r, int t, int depth)
{
	static const char *const on[] = { "Mul",       "Add",     "Concat", "Reshape", "Transpose",
					  "Unsqueeze", "Squeeze", "Cast",   "Expand",  "Identity",
					  "MatMul",    "Einsum",  "Slice",  "Gather",  NULL };
	static const char *const sines[] = { "Sin", "Cos", NULL };
	const struct dlb_graph *g = r->g;
	bool any = false;

	for (int i = g->reader_start[t]; i < g->reader_start[t + 1]; i++) {
		const struct dlb_op *o = &g->op[g->reader[i]];
		any = true;
		if (is_type(o, sines) || looks_at_shape(o))
			continue;
		if (!depth || !is_type(o, on) || !o->n_out || o->out[0] < 0 ||
		    !ends_in_sines(r, o->out[0], depth - 1))
			return false;
	}
	return any;
}

bool dlb_role_is_frequency(struct dlb_roles *r, int t)
{
	return ends_in_sines(r, t, 8);
}

/* Is operand k of a product a weight? Yes if the other operand is an activation or a weight too. Not if
 * positions are multiplied by frequencies for Sin and Cos. Nor if it is a tensor that the exporter computed
 * and that a layer's weight multiplies (a table of relative positions): operand 0 of a product of constants,
 * in a vertex for which the exporter lists parameters. */
static bool multiplies(const struct dlb_roles *r, const struct dlb_op *o, int k)
{
	unsigned other = 0;

	for (int i = 0; i < o->n_in && i < 2; i++)
		other |= i == k || o->in[i] < 0 ? 0 : r->from[o->in[i]];
	if (k == 0 && o->n_uses > 0 && !(other & DLB_FROM_SAMPLES))
		return false;
	if (!(other & DLB_FROM_REALS) && o->out[0] >= 0 && ends_in_sines(r, o->out[0], 8))
		return false;
	return other & (DLB_FROM_SAMPLES | DLB_FROM_INITIALIZER);
}

/* Is t a product by a weight, or a view of one? *width: its last dimension, 0: unknown. */
static bool is_layer(const struct dlb_roles *r, int t, int64_t *width)
{
	const struct dlb_graph *g = r->g;
	const struct dlb_op *o = producer(g, behind_views(g, t));

	*width = 0;
	if (!o || *o->domain || !is_type(o, products))
		return false;
	for (int k = 0; k < o->n_in && k < 2; k++) {
		if (!is_weight(r, o->in[k]))
			continue;
		const struct dlb_tensor *w = &g->tensor[o->in[k]];
		if (w->kind == DLB_T_CONSTANT && w->n_dims >= 2)
			*width = strcmp(o->type, "MatMul") ? w->dim[0].add : w->dim[w->n_dims - 1].add;
		return true;
	}
	return false;
}

/* Is x added to a layer's output along its channels? */
static bool is_added(const struct dlb_roles *r, const struct dlb_op *o, int k, int x)
{
	const struct dlb_tensor *b = &r->g->tensor[x];
	int64_t width;

	if (o->n_in != 2 || !is_layer(r, o->in[1 - k], &width) || b->n_dims < 1)
		return false;
	return large_dims(b) == 1 || (large_dims(b) == 0 && width == 1);
}

/* -- normalizations -- */

/* Is t the deviation or 1 / deviation: a root or norm of a reduction? */
static bool is_standard_deviation(const struct dlb_graph *g, int t)
{
	static const char *const on[] = { "Reciprocal", "Add",    "Max", "Clip", "Cast",
					  "Identity",   "Expand", "Div", NULL };
	static const char *const roots[] = { "Sqrt", "Pow", "ReduceL2", "LpNormalization", NULL };
	bool root = false;

	for (int n = 0; n < 10 && t >= 0; n++) {
		const struct dlb_op *o = producer(g, t);
		if (!o || !o->n_in)
			return false;
		if (root && !strncmp(o->type, "Reduce", 6))
			return true;
		if (!strcmp(o->type, "ReduceL2"))
			return true;
		if (!root && !is_type(o, on) && !is_type(o, roots))
			return false;
		if (root && !is_type(o, on))
			return false;
		root |= is_type(o, roots);
		t = o->in[0];
		if (o->n_in > 1 && !strcmp(o->type, "Add") && producer(g, o->in[0]) == NULL)
			t = o->in[1];
		if (o->n_in > 1 && !strcmp(o->type, "Div"))
			t = o->in[1];
	}
	return false;
}

/* Is t a tensor divided by its deviation, and with `scaled` perhaps multiplied by its scale? */
static bool is_normalized(const struct dlb_roles *r, int t, bool scaled)
{
	static const char *const ready[] = { "InstanceNormalization", "LayerNormalization",
					     "GroupNormalization",    "BatchNormalization",
					     "RMSNormalization",      "MeanVarianceNormalization",
					     "LpNormalization",       NULL };
	const struct dlb_graph *g = r->g;
	const struct dlb_op *o = producer(g, behind_views(g, t));

	if (!o)
		return false;
	if (is_type(o, ready))
		return true;
	if (!strcmp(o->type, "Div") && o->n_in == 2)
		return is_standard_deviation(g, o->in[1]);
	if (strcmp(o->type, "Mul") || o->n_in != 2)
		return false;
	for (int k = 0; k < 2; k++)
		if (is_standard_deviation(g, o->in[k]) ||
		    (scaled && is_weight(r, o->in[k]) && is_normalized(r, o->in[1 - k], false)))
			return true;
	return false;
}

static bool is_scale(const struct dlb_roles *r, const struct dlb_op *o, int k, int x)
{
	return o->n_in == 2 && large_dims(&r->g->tensor[x]) == 1 &&
	       is_normalized(r, o->in[1 - k], !strcmp(o->type, "Add"));
}

/* Did the exporter make both vertices from one operator? Then it lists the same parameters for both. */
static bool uses_the_same(const struct dlb_op *a, const struct dlb_op *b)
{
	return a->n_uses > 0 && a->n_uses == b->n_uses &&
	       !memcmp(a->uses, b->uses, (size_t)a->n_uses * sizeof *a->uses);
}

bool dlb_role_is_decomposed_group_norm(const struct dlb_roles *r, const struct dlb_op *o, int x)
{
	const struct dlb_graph *g = r->g;
	const struct dlb_op *before = o->n_in ? producer(g, o->in[0]) : NULL;

	if (strcmp(o->type, "InstanceNormalization") || !dlb_values_uniform(&g->tensor[x]))
		return false;
	if (!before || strcmp(before->type, "Reshape") || o->out[0] < 0)
		return false;
	for (int i = g->reader_start[o->out[0]]; i < g->reader_start[o->out[0] + 1]; i++) {
		const struct dlb_op *after = &g->op[g->reader[i]];
		if (!strcmp(after->type, "Reshape") ||
		    (!strcmp(after->type, "Mul") && uses_the_same(o, after)))
			return true;
	}
	return false;
}

/* Is x, which GatherND reads, a mask, or a tensor of zeros into which selected rows are put (torch.zeros(n,
 * d)[index]), and so no weight? GatherND at positions of non-zero mask values reads these too; otherwise it
 * reads the weights of experts that a router chose. */
static bool is_mask_or_filled(const struct dlb_roles *r, const struct dlb_op *o, int x)
{
	static const char *const on[] = { "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Slice", "Gather",
					  "Concat",  "Expand",    "Max",     "Identity",  NULL };
	const struct dlb_graph *g = r->g;
	const struct dlb_op *from = producer(g, o->in[1]);

	for (int n = 0; n < DEPTH && from && is_type(from, on); n++)
		from = producer(g, from->in[0]);
	if (from && !strcmp(from->type, "NonZero"))
		return dlb_values_uniform(&g->tensor[x]) || dlb_values_mask(&g->tensor[x]);
	return dlb_values_mask(&g->tensor[x]) && !dlb_values_uniform(&g->tensor[x]);
}

/* -- roles -- */

/* bit k: operand k is a parameter */
static const struct { const char *type; unsigned operands;
} takes[] = {
	{ "ConvTranspose", 1 << 1 | 1 << 2 },
	{ "Conv", 1 << 1 | 1 << 2 },
	{ "DeformConv", 1 << 1 | 1 << 3 },
	{ "Gemm", 1 << 2 },
	{ "CausalConvWithState", 1 << 1 | 1 << 2 },
	{ "LSTM", 1 << 1 | 1 << 2 | 1 << 3 | 1 << 7 },
	{ "GRU", 1 << 1 | 1 << 2 | 1 << 3 },
	{ "RNN", 1 << 1 | 1 << 2 | 1 << 3 },
	{ "LayerNormalization", 1 << 1 | 1 << 2 },
	{ "InstanceNormalization", 1 << 1 | 1 << 2 },
	{ "GroupNormalization", 1 << 1 | 1 << 2 },
	{ "BatchNormalization", 1 << 1 | 1 << 2 },
	{ "RMSNormalization", 1 << 1 },
	{ "SimplifiedLayerNormalization", 1 << 1 },
	{ "PRelu", 1 << 1 },
};

/* The use that vertex o makes of its operand k, tensor t, which is computed from initializer x alone; NULL: o
 * does not use it as a parameter. */
static const char *use(const struct dlb_roles *r, const struct dlb_op *o, int k, int t, int x)
{
	struct dlb_graph *g = r->g;

	for (int i = 0; i < DLB_LEN(takes); i++)
		if (!strcmp(o->type, takes[i].type) && takes[i].operands >> k & 1)
			return dlb_role_is_decomposed_group_norm(r, o, x) ?
				       NULL :
				       dlb_arena_printf(&g->arena, "operand %d of %s '%s'", k, o->type,
							o->name);
	if (k < 2 && (is_type(o, products) || dlb_graph_is_structure(o->type, o->domain))) {
		if (dlb_role_count(g, x) == 1 || !multiplies(r, o, k))
			return NULL;
		return dlb_arena_printf(&g->arena, "operand %d of %s '%s'", k, o->type, o->name);
	}
	if (!strcmp(o->type, "Gather") && k == 0 && o->n_in > 1 && fed(r, o->in[1]))
		return dlb_arena_printf(&g->arena, "table of Gather '%s'", o->name);
	if (!strcmp(o->type, "GatherND") && k == 0 && o->n_in > 1 && fed(r, o->in[1]) &&
	    !is_mask_or_filled(r, o, x))
		return dlb_arena_printf(&g->arena, "table of GatherND '%s'", o->name);
	if (!strcmp(o->type, "Add") && t == x && is_added(r, o, k, x))
		return dlb_arena_printf(&g->arena, "bias of a layer, added by '%s'", o->name);
	if ((!strcmp(o->type, "Add") || !strcmp(o->type, "Mul")) && t == x && is_scale(r, o, k, x))
		return dlb_arena_printf(&g->arena, "%s of a normalization, in '%s'",
					!strcmp(o->type, "Mul") ? "scale" : "bias", o->name);
	if (dlb_graph_is_structure(o->type, o->domain) && dlb_role_count(g, x) != 1)
		return dlb_arena_printf(&g->arena, "read inside %s '%s'", o->type, o->name);
	return NULL;
}

/* Follows t, computed from x alone, to its use as a parameter; NULL: it has no such use. */
static const char *follow(struct dlb_roles *r, int t, int x, int depth)
{
	const struct dlb_graph *g = r->g;
	const char *why = NULL;

	if (depth > DEPTH || r->visited[t] == r->visit)
		return NULL;
	r->visited[t] = r->visit;
	for (int i = g->reader_start[t]; i < g->reader_start[t + 1] && !why; i++) {
		const struct dlb_op *o = &g->op[g->reader[i]];
		for (int k = 0; k < o->n_in && !why; k++)
			if (o->in[k] == t)
				why = use(r, o, k, t, x);
		for (int k = 0; k < o->n_out && !why && !looks_at_shape(o); k++)
			if (o->out[k] >= 0 && !fed(r, o->out[k]))
				why = follow(r, o->out[k], x, depth + 1);
	}
	return why;
}

static bool is_operand_of_product(const struct dlb_graph *g, int t)
{
	for (int i = g->reader_start[t]; i < g->reader_start[t + 1]; i++) {
		const struct dlb_op *o = &g->op[g->reader[i]];

		for (int k = 0; k < o->n_in && k < 2; k++)
			if (o->in[k] == t && is_type(o, products))
				return true;
	}
	return false;
}

bool dlb_role_find(struct dlb_roles *r, int t, const char **why)
{
	struct dlb_graph *g = r->g;
	const struct dlb_tensor *x = &g->tensor[t];

	*why = "no vertex reads it as a parameter";
	if (x->kind == DLB_T_CONSTANT && x->n_dims == 0) {
		*why = "a scalar";
		return false;
	}
	if (g->reader_start[t] == g->reader_start[t + 1]) {	/* moved out of a branch or
								 * loop, or not read at all */
		*why = "read inside a branch or loop";
		return dlb_role_count(g, t) != 1;
	}
	if (dlb_values_sinusoid(x)) {
		*why = "a table of sines";
		return false;
	}
	if (dlb_values_grid(x)) {
		*why = "coordinates of a grid";
		return false;
	}
	/* weights of products are not read for this: they are large, and bounded in any model that works */
	if (!is_operand_of_product(g, t) && dlb_values_boundless(x)) {
		*why = "a mask";
		return false;
	}
	r->visit++;
	const char *found = follow(r, t, t, 0);
	if (found)
		*why = found;
	else if (dlb_role_count(g, t) == 1)
		*why = "one number";
	else if (dlb_values_mask(x))
		*why = "a mask";
	return found != NULL;
}

/* Is t a product of two activations, perhaps scaled, as attention's scores are? */
static bool is_scores(const struct dlb_roles *r, int t)
{
	const struct dlb_graph *g = r->g;
	const struct dlb_op *o = producer(g, behind_views(g, t));

	for (int n = 0;
	     o && n < DEPTH && (!strcmp(o->type, "Mul") || !strcmp(o->type, "Div")) && fed(r, o->in[0]); n++)
		o = producer(g, behind_views(g, o->in[0]));
	return o && !strcmp(o->type, "MatMul") && fed(r, o->in[0]) && fed(r, o->in[1]);
}

/* Is Softmax the only use of t? */
static bool is_normalized_next(const struct dlb_graph *g, int t)
{
	for (int i = g->reader_start[t]; i < g->reader_start[t + 1]; i++)
		if (strcmp(g->op[g->reader[i]].type, "Softmax"))
			return false;
	return g->reader_start[t] < g->reader_start[t + 1];
}

bool dlb_role_is_mask_of_scores(struct dlb_roles *r, int t)
{
	const struct dlb_graph *g = r->g;

	for (int i = g->reader_start[t]; i < g->reader_start[t + 1]; i++) {
		const struct dlb_op *o = &g->op[g->reader[i]];
		if (strcmp(o->type, "Add") ||
		    (!is_scores(r, o->in[o->in[0] == t]) && !is_normalized_next(g, o->out[0])))
			return false;
	}
	return g->reader_start[t] < g->reader_start[t + 1];
}

bool dlb_role_is_mask(struct dlb_roles *r, int t)
{
	const struct dlb_tensor *x = &r->g->tensor[t];

	r->visit++;
	return !dlb_values_uniform(x) && !follow(r, t, t, 0) &&
	       ((large_dims(x) > 1 && dlb_values_mask(x)) || dlb_values_boundless(x));
}

bool dlb_role_is_preprocessing(struct dlb_roles *r, int t)
{
	static const char *const by[] = { "Sub", "Div", "Mul", "Add", NULL };
	const struct dlb_graph *g = r->g;
	bool any = false;

	if (large_dims(&g->tensor[t]) > 1)
		return false;
	for (int i = g->reader_start[t]; i < g->reader_start[t + 1]; i++) {
		const struct dlb_op *o = &g->op[g->reader[i]];
		if (!is_type(o, by) || o->n_in != 2 || o->out[0] < 0)
			return false;
		const int other = o->in[o->in[0] == t];
		if (other < 0 || !fed(r, other))
			return false;
		/* before this op, the samples may only have passed ops of these types */
		for (int s = behind_views(g, other), n = 0; ; n++) {
			const struct dlb_op *p = producer(g, s);
			if (!p)
				break;
			if (n > 8 || !is_type(p, by) || p->n_in != 2)
				return false;
			s = behind_views(g, fed(r, p->in[0]) ? p->in[0] : p->in[1]);
		}
		any = true;
	}
	return any;
}
