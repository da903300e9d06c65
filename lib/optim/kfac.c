/* Finds the layers that K-FAC supports, and their costs: see kfac.h. */
#include "graph/order.h"
#include "op/conv.h"
#include "optim/kfac.h"
#include "optim/optim.h"

#include <stdlib.h>
#include <string.h>

const char *const dlb_kfac_names[DLB_KFAC_FACTORS] = { [DLB_KFAC_A] = "A", [DLB_KFAC_G] = "G" };

static double attr_real(const struct dlb_op *o, const char *name, double otherwise)
{
	const struct dlb_attr *a = dlb_attr_find(o->attr, o->n_attr, name);

	/* jq writes 1.0 as 1 */
	return !a ? otherwise : a->type == DLB_ATTR_INT ? (double)a->i : a->f;
}

static int64_t attr_int(const struct dlb_op *o, const char *name)
{
	const struct dlb_attr *a = dlb_attr_find(o->attr, o->n_attr, name);

	return a ? a->i : 0;
}

static int update_of(const struct dlb_graph *g, int weight)
{
	int home = weight < 0 || g->tensor[weight].kind != DLB_T_WEIGHT ? -1 : g->tensor[weight].home;

	return home >= 0 && g->op[home].phase == DLB_UPDATE && g->op[home].in[0] == weight ? home : -1;
}

/* Number of reads of tensor t by forward ops. */
static int readers(const struct dlb_graph *g, int t)
{
	int n = 0;

	for (int r = g->reader_start[t]; r < g->reader_start[t + 1]; r++)
		n += g->op[g->reader[r]].phase == DLB_FORWARD;
	return n;
}

static int64_t last_dim(const struct dlb_tensor *t)
{
	const struct dlb_dim *d = &t->dim[t->n_dims - 1];

	return t->n_dims >= 2 && d->mul == 0 ? d->add : 0;
}

/* ---- kinds of layers: each sets *bias (-1: none), n[], by_input; returns NULL, or why it is none ---- */

static const char *is_gemm(const struct dlb_graph *g, const struct dlb_op *o, struct dlb_kfac_layer *l,
			   int *bias)
{
	if (attr_int(o, "transA") || attr_real(o, "alpha", 1) != 1 || attr_real(o, "beta", 1) != 1)
		return "its Gemm is scaled or reads its input transposed";
	*bias = o->n_in > 2 ? o->in[2] : -1;
	l->by_input = !attr_int(o, "transB");
	l->n[DLB_KFAC_A] = last_dim(&g->tensor[o->in[0]]);
	l->n[DLB_KFAC_G] = last_dim(&g->tensor[o->out[0]]);
	return NULL;
}

/* The bias that an Add, the only reader of tensor y, adds to y; -1: none. */
static int added(const struct dlb_graph *g, int y)
{
	const struct dlb_op *o;

	for (int r = g->reader_start[y]; readers(g, y) == 1 && r < g->reader_start[y + 1]; r++) {
		o = &g->op[g->reader[r]];
		if (o->phase != DLB_FORWARD || strcmp(o->type, "Add") || o->n_in != 2)
			continue;
		const struct dlb_tensor *b = &g->tensor[o->in[o->in[0] == y]];
		if (b->kind == DLB_T_WEIGHT && b->n_dims == 1 && b->dim[0].add == last_dim(&g->tensor[y]))
			return o->in[o->in[0] == y];
	}
	return -1;
}

static const char *is_matmul(const struct dlb_graph *g, const struct dlb_op *o, struct dlb_kfac_layer *l,
			     int *bias)
{
	if (g->tensor[o->in[1]].n_dims != 2)
		return "it is no matrix of its MatMul";
	*bias = added(g, o->out[0]);
	l->by_input = true;
	l->n[DLB_KFAC_A] = last_dim(&g->tensor[o->in[0]]);
	l->n[DLB_KFAC_G] = last_dim(&g->tensor[o->out[0]]);
	return NULL;
}

static const char *is_conv(const struct dlb_graph *g, const struct dlb_op *o, struct dlb_kfac_layer *l,
			   int *bias)
{
	const struct dlb_desc w = dlb_tensor_desc(&g->tensor[o->in[1]], 1);
	const struct dlb_attr *groups = dlb_attr_find(o->attr, o->n_attr, "group");

	*bias = o->n_in > 2 ? o->in[2] : -1;
	l->conv = true;
	l->groups = groups && groups->i > 1 && groups->i <= w.dim[0] ? (int)groups->i : 1;
	l->n[DLB_KFAC_A] = w.dim[0] > 0 ? dlb_desc_count(&w) / w.dim[0] : 0;
	l->n[DLB_KFAC_G] = w.dim[0] / l->groups;
	return NULL;
}

static const struct layer_kind {
	/* type of the op; type of the op that makes the weight's gradient */
	const char *type, *gradient;
	const char *(*is)(const struct dlb_graph *g, const struct dlb_op *o, struct dlb_kfac_layer *l,
			  int *bias);
} kinds[] = {
	{ "Gemm", "Gemm", is_gemm },
	{ "MatMul", "MatMulT", is_matmul },
	{ "Conv", "ConvGradWeight", is_conv },
};

static const struct layer_kind *kind_of(const struct dlb_op *o)
{
	for (int k = 0; k < DLB_LEN(kinds); k++)
		if (o->phase == DLB_FORWARD && !strcmp(o->type, kinds[k].type))
			return &kinds[k];
	return NULL;
}

/* Finds the use whose weight gradient op `make` computes from input and output gradient; false: `make`
 * computes none of this kind and weight. */
static bool use_of(const struct dlb_graph *g, const struct layer_kind *kind, int weight, int make,
		   struct dlb_kfac_use *u)
{
	const struct dlb_op *o = make < 0 ? NULL : &g->op[make], *f;
	int x;

	if (!o || o->phase != DLB_BACKWARD || o->of < 0 || strcmp(o->type, kind->gradient) || o->n_in < 2)
		return false;
	f = &g->op[o->of];
	if (kind_of(f) != kind || f->n_in < 2 || f->in[1] != weight || (x = f->in[0]) < 0 ||
	    (o->in[0] != x && o->in[1] != x))
		return false;
	*u = (struct dlb_kfac_use){
		.op = o->of, .x = { [DLB_KFAC_A] = x, [DLB_KFAC_G] = o->in[o->in[0] == x && o->in[1] != x] }
	};
	return u->x[DLB_KFAC_G] >= 0 && g->tensor[u->x[DLB_KFAC_G]].producer >= 0;
}

/* Finds the uses whose gradients are summed in tensor dw, in op order. Returns NULL, or why they are no K-FAC
 * layer. */
static const char *find_uses(const struct dlb_graph *g, const struct layer_kind *kind, int dw,
			     struct dlb_kfac_layer *l)
{
	const int weight = g->op[l->update].in[0], n_readers = readers(g, weight);
	int part[DLB_KFAC_MOST_USES], n = 1;

	if (n_readers > DLB_KFAC_MOST_USES)
		return "more than 32 ops read it";
	part[0] = dw;
	for (int i = 0; i < n; i++) {			/* replaces a sum, also nested, by its terms */
		const int from = n_readers > 1 && part[i] >= 0 ? g->tensor[part[i]].producer : -1;
		const struct dlb_op *o = from < 0 ? NULL : &g->op[from];

		if (!o || o->phase != DLB_BACKWARD || strcmp(o->type, "Sum") || o->n_in < 1)
			continue;
		if (n - 1 + o->n_in > n_readers)
			return "several ops read it, not all of them layers of one kind";
		part[i--] = part[n - 1];
		memcpy(part + n - 1, o->in, (size_t)o->n_in * sizeof *part);
		n += o->n_in - 1;
	}
	if (n != n_readers)
		return "several ops read it, not all of them layers of one kind";
	for (int i = 0; i < n; i++) {
		struct dlb_kfac_use u;
		int at = l->n_uses++;

		if (part[i] < 0 || !use_of(g, kind, weight, g->tensor[part[i]].producer, &u))
			return n > 1 ? "several ops read it, not all of them layers of one kind" :
				"its gradient is not a product of its layer's input and output gradient";
		for (; at > 0 && l->use[at - 1].op > u.op; at--)
			l->use[at] = l->use[at - 1];
		l->use[at] = u;
	}
	return NULL;
}

/* Checks that the uses, each taken as a layer, differ only in their number of rows, and that no two read the
 * same tensor. Sets *bias, and the members of l that the uses share. Returns NULL, or why they differ. */
static const char *compare_uses(const struct dlb_graph *g, const struct layer_kind *kind,
				struct dlb_kfac_layer *l, int *bias)
{
	for (int i = 0; i < l->n_uses; i++) {
		struct dlb_kfac_layer one = { .groups = 1 };
		int b = -1;
		const char *why = kind->is(g, &g->op[l->use[i].op], &one, &b);

		if (why)
			return why;
		*bias = i ? *bias : b;
		if (i && (b != *bias || one.by_input != l->by_input || one.groups != l->groups ||
			  memcmp(one.n, l->n, sizeof one.n)))
			return "several ops read it, with different shapes or biases";
		l->by_input = one.by_input;
		l->conv = one.conv;
		l->groups = one.groups;
		memcpy(l->n, one.n, sizeof l->n);
		for (int k = 0; k < i * DLB_KFAC_FACTORS; k++)
			for (int j = 0; j < DLB_KFAC_FACTORS; j++)
				if (l->use[k / DLB_KFAC_FACTORS].x[k % DLB_KFAC_FACTORS] == l->use[i].x[j])
					return "several ops read it, and the same input";
	}
	return NULL;
}

/* True if rows of t may be padding from a selection by value (PaddedNonZero), which the factors would count.
 * Scatters drop the padding, and so does a Where by CountedMask. */
static bool has_padding(const struct dlb_graph *g, int t)
{
	enum { PADDED = 1, COUNTED = 2 };
	bool any = false;

	for (int i = 0; i < g->n_ops && !any; i++)
		any = g->op[i].kind == DLB_OP_PaddedNonZero;
	if (!any)
		return false;
	unsigned char *is = dlb_xcalloc((size_t)g->n_tensors + 1, sizeof *is);
	for (int i = 0; i < g->n_ops; i++) {
		const struct dlb_op *o = &g->op[i];
		const bool scatter = o->kind == DLB_OP_ScatterND || o->kind == DLB_OP_ScatterElements;
		unsigned char from = o->kind == DLB_OP_PaddedNonZero ? PADDED :
				     o->kind == DLB_OP_CountedMask   ? COUNTED :
								       0;

		for (int k = 0; k < (scatter ? 1 : o->n_in) && o->phase == DLB_FORWARD; k++)
			from |= o->in[k] < 0 ? 0 : is[o->in[k]];
		if (o->kind == DLB_OP_Where && o->n_in > 0 && o->in[0] >= 0 && is[o->in[0]] & COUNTED)
			from = 0;
		for (int k = 0; k < o->n_out; k++)
			if (o->out[k] >= 0)
				is[o->out[k]] = from;
	}
	const bool padded = is[t] & PADDED;
	free(is);
	return padded;
}

/* Describes the layer that forward op `op` is a use of. Returns NULL, or the reason why there is none. */
static const char *match(const struct dlb_graph *g, int op, struct dlb_kfac_layer *l)
{
	const struct dlb_op *o = op < 0 ? NULL : &g->op[op];
	const struct layer_kind *kind = o ? kind_of(o) : NULL;
	int bias = -1;
	const char *why;

	if (!kind || o->n_in < 2 || o->in[0] < 0 || o->in[1] < 0)
		return "no layer that K-FAC supports reads it";
	*l = (struct dlb_kfac_layer){ .update = update_of(g, o->in[1]), .bias_update = -1, .groups = 1 };
	if (l->update < 0)
		return "no layer that K-FAC supports reads it";
	if ((why = find_uses(g, kind, g->op[l->update].in[1], l)) || (why = compare_uses(g, kind, l, &bias)))
		return why;
	if (bias >= 0 && ((l->bias_update = update_of(g, bias)) < 0 || readers(g, bias) != l->n_uses ||
			  g->tensor[bias].n_dims != 1))
		return "its layer's bias is no vector of its own";
	if (l->n[DLB_KFAC_A] < 1 || l->n[DLB_KFAC_G] < 1)
		return "the sizes of its layer are not known";
	for (int k = 0; k < DLB_KFAC_FACTORS * l->n_uses; k++) {
		const enum dlb_dtype t = g->tensor[l->use[k / DLB_KFAC_FACTORS].x[k % DLB_KFAC_FACTORS]]
						 .dtype;

		if (t != g->tensor[o->in[1]].dtype || (t != DLB_F32 && t != DLB_F64))
			return "its layer does not work in f32 or f64";
	}
	for (int k = 0; k < l->n_uses; k++)
		if (has_padding(g, l->use[k].x[DLB_KFAC_A]))
			return "rows of its layer are selected by value";
	l->n[DLB_KFAC_A] += bias >= 0;
	return NULL;
}

struct dlb_kfac_layer *dlb_kfac_layers(const struct dlb_graph *g, int *n)
{
	struct dlb_kfac_layer *all = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *all);

	*n = 0;
	for (int op = 0; op < g->n_ops; op++)
		*n += !match(g, op, &all[*n]) && all[*n].use[0].op == op;
	return all;
}

void dlb_kfac_bind(struct dlb_graph *g)
{
	struct dlb_kfac_layer *all;
	int n;

	dlb_graph_index(g);
	all = dlb_kfac_layers(g, &n);
	for (int i = 0; i < n; i++) {
		struct dlb_op *o = &g->op[all[i].update];
		int *in;

		if (o->n_in > 2)
			continue;
		in = dlb_arena_array(&g->arena, 2 + DLB_KFAC_FACTORS * (size_t)all[i].n_uses, sizeof *in);
		memcpy(in, o->in, 2 * sizeof *in);
		for (int k = 0; k < all[i].n_uses; k++)
			memcpy(in + 2 + DLB_KFAC_FACTORS * k, all[i].use[k].x, sizeof all[i].use[k].x);
		o->in = in;
		o->n_in = 2 + DLB_KFAC_FACTORS * all[i].n_uses;
	}
	free(all);
	dlb_graph_index(g);
}

int dlb_kfac_moment_of(const struct dlb_graph *g, int update, int tensor)
{
	const struct dlb_op *o = &g->op[update];

	for (int k = 2; k < o->n_in; k++)
		if (o->in[k] == tensor)
			return k - 2;
	return -1;
}

/* The forward op that reads a weight; -1: none. */
static int reader_of(const struct dlb_graph *g, int weight)
{
	for (int r = g->reader_start[weight]; r < g->reader_start[weight + 1]; r++)
		if (g->op[g->reader[r]].phase == DLB_FORWARD)
			return g->reader[r];
	return -1;
}

/* The forward op for which this tensor would be the weight or the bias of a K-FAC layer. */
static int op_of(const struct dlb_graph *g, int weight)
{
	int op = reader_of(g, weight), t;

	if (op < 0 || strcmp(g->op[op].type, "Add") || g->op[op].n_in != 2)
		return op;
	t = g->op[op].in[g->op[op].in[0] == weight];
	return t >= 0 && g->tensor[t].producer >= 0 ? g->tensor[t].producer : op;
}

int dlb_kfac_layer_of(const struct dlb_graph *g, int update)
{
	const struct dlb_op *o = &g->op[update];
	struct dlb_kfac_layer l;
	int op, of_weight;

	if (o->phase != DLB_UPDATE || o->n_in < 2 || o->in[0] < 0)
		return -1;
	if (o->n_in > 2)
		return update;
	if (g->tensor[o->in[0]].n_dims != 1 || (op = op_of(g, o->in[0])) < 0)
		return -1;
	of_weight = g->op[op].n_in < 2 ? -1 : update_of(g, g->op[op].in[1]);
	if (of_weight < 0 || g->op[of_weight].n_in <= 2 || match(g, op, &l))
		return -1;
	return l.bias_update == update ? l.update : -1;
}

struct dlb_kfac_layer dlb_kfac_layer_at(const struct dlb_graph *g, int update)
{
	struct dlb_kfac_layer l;

	if (match(g, reader_of(g, g->op[update].in[0]), &l))
		dlb_bug("update %d is of no layer", update);
	return l;
}

const char *dlb_kfac_left(const struct dlb_graph *g, int update)
{
	const struct dlb_op *o = &g->op[update];
	struct dlb_kfac_layer l;

	if (o->phase != DLB_UPDATE || o->in[0] < 0 || g->tensor[o->in[0]].n_dims < 2)
		return NULL;
	for (int r = g->reader_start[o->in[0]]; r < g->reader_start[o->in[0] + 1] && readers(g, o->in[0]) > 1;
	     r++)
		if (g->op[g->reader[r]].phase == DLB_FORWARD && !kind_of(&g->op[g->reader[r]]))
			return "several ops read it, not all of them layers of one kind";
	return match(g, reader_of(g, o->in[0]), &l);
}

int64_t dlb_kfac_use_rows(const struct dlb_graph *g, const struct dlb_kfac_layer *l, int use, int64_t n)
{
	const struct dlb_desc dy = dlb_tensor_desc(&g->tensor[l->use[use].x[DLB_KFAC_G]], n);

	return dlb_desc_count(&dy) / (l->n[DLB_KFAC_G] * l->groups);
}

int64_t dlb_kfac_rows(const struct dlb_graph *g, const struct dlb_kfac_layer *l, int64_t n)
{
	int64_t rows = 0;

	for (int u = 0; u < l->n_uses; u++)
		rows += dlb_kfac_use_rows(g, l, u, n);
	return rows;
}

int64_t dlb_kfac_terms(const struct dlb_graph *g, int64_t n)
{
	const struct dlb_tensor *label = g->label < 0 ? NULL : &g->tensor[g->label];

	if (!label || dlb_dtype_is_float(label->dtype))
		return n;
	const struct dlb_desc d = dlb_tensor_desc(label, n);
	return dlb_desc_count(&d);
}

struct dlb_kfac_vectors dlb_kfac_vectors(const struct dlb_graph *g, const struct dlb_kfac_layer *l, int k,
					 int64_t n)
{
	const struct dlb_kfac_use *u = &l->use[k / DLB_KFAC_FACTORS];
	const int factor = k % DLB_KFAC_FACTORS;
	const struct dlb_desc dy = dlb_tensor_desc(&g->tensor[u->x[DLB_KFAC_G]], n);
	struct dlb_kfac_vectors v = { .dtype = dy.dtype,
				      .n = (int)l->n[factor],
				      .groups = l->groups,
				      .bias = factor == DLB_KFAC_A && l->bias_update >= 0,
				      .images = dlb_kfac_use_rows(g, l, k / DLB_KFAC_FACTORS, n),
				      .positions = 1 };
	struct dlb_arena a = { 0 };
	struct dlb_op_io io;

	if (!l->conv)
		return v;
	for (int i = 2; i < dy.n_dims; i++)
		v.positions *= dy.dim[i];
	v.images = dy.dim[0];
	if (factor == DLB_KFAC_G) {
		v.lie = dy.layout == DLB_CHANNELS_LAST || v.positions == 1 ? DLB_KFAC_ROWS : DLB_KFAC_COLUMNS;
		return v;
	}
	v.lie = DLB_KFAC_PATCHES;
	dlb_graph_io(g, u->op, n, &a, &io);
	if (dlb_conv_describe(&io, &v.conv, NULL))
		dlb_bug("op %d is no convolution", u->op);
	dlb_arena_release(&a);
	return v;
}

double dlb_kfac_state_bytes(const struct dlb_graph *g, int update)
{
	const struct dlb_kfac_layer l = dlb_kfac_layer_at(g, update);
	double elements = 0;

	for (int k = 0; k < DLB_KFAC_FACTORS; k++)
		elements += (2 + l.n_uses) * (double)l.groups * (double)l.n[k] * (double)l.n[k];
	return elements * (double)dlb_dtype_bytes(g->tensor[l.use[0].x[DLB_KFAC_A]].dtype);
}

double dlb_kfac_sum_flop(const struct dlb_kfac_layer *l, int k, double rows)
{
	const double n = (double)l->n[k % DLB_KFAC_FACTORS];

	return rows * l->groups * n * n;			/* one triangle */
}

double dlb_kfac_apply_flop(const struct dlb_kfac_layer *l, double inverse_every, bool factored)
{
	double a = (double)l->n[DLB_KFAC_A], g = (double)l->n[DLB_KFAC_G];

	/* potri 2 n^3 / 3, potrf n^3 / 3 */
	double inverse = 2 * (a * a * a + g * g * g) * (factored ? 2 : 3) / 3;

	return l->groups * (2 * a * g * (a + g) + inverse / inverse_every);
}

int dlb_optimizer_bind(struct dlb_graph *g, int rule, struct dlb_error *err)
{
	struct dlb_kfac_layer *all;
	int n;

	if (rule != DLB_RULE_KFAC)
		return 0;
	dlb_kfac_bind(g);
	all = dlb_kfac_layers(g, &n);
	free(all);
	if (n)
		return 0;
	dlb_fail(err, "/run/optimizer/name",
		 "kfac supports no layer of this model: no Gemm, MatMul or Conv of f32 or f64 has a weight "
		 "of its own");
	return dlb_hint(err, "take another optimizer");
}
