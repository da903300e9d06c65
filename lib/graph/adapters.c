/* Low-rank adapters (E. Hu et al., LoRA: Low-Rank Adaptation of Large Language Models, 2021). A product
 * y = x w with a weight w becomes
 *     y + (x a' scale) b',    scale = alpha / rank
 * with new weights a (rank, in) and b (out, rank). b starts at 0, so the first loss is that of the model; a
 * is drawn like the weight of a dense layer. All other parameters are frozen, except those that the user
 * names (train_only). The adapters have the names that PEFT gives them, and are ordinary vertices: they are
 * differentiated, placed and split like others. */
#include <stdlib.h>
#include <string.h>
#include "graph/adapters.h"
#include "graph/order.h"
#include "graph/passes.h"
#include "graph/rewrite.h"

enum { MOST_RANK = 4096, MOST_STEPS = 6 };	/* MOST_STEPS: limit of ops between weights and product */

struct lora { int64_t rank; const char *pattern; bool used; };	/* pattern NULL: all products */
/* A product with a weight. `transposed`: the weight is stored (out, in). last: no other product with a weight
 * follows. */
struct lora_product { int op, weight; bool transposed, last; };

struct lora_pass {
	struct dlb_graph *g;
	const struct dlb_adapter_choice *c;
	struct lora *ask;
	struct lora_product *product;
	int n_products;
	int *adapter;			/* [tensor] 1 + index of the weight's adapter; 0: none */
	int64_t elements;
	int n_adapted, n_others;	/* n_others: products by a tensor computed from weights */
};

static int parse(struct dlb_graph *g, const char *text, struct lora *l, struct dlb_error *err)
{
	char *end;

	l->rank = strtoll(text, &end, 10);
	if (end == text || l->rank < 1 || l->rank > MOST_RANK || (*end && (*end != ':' || !end[1])))
		return dlb_refuse(err, NULL, "it is written RANK[:GLOB], as in 8 or '8:*.q_proj'",
				  "--lora '%s': no rank from 1 to %d", text, MOST_RANK);
	l->pattern = *end ? dlb_arena_strdup(&g->arena, end + 1) : NULL;
	return 0;
}

/* The weight of two dimensions that tensor t is, or is a transpose of; -1: none. */
static int weight_of(const struct dlb_graph *g, int t, bool *transposed)
{
	while (g->tensor[t].producer >= 0) {
		const struct dlb_op *o = &g->op[g->tensor[t].producer];

		if (*o->domain || g->tensor[t].n_dims != 2 ||
		    (strcmp(o->type, "Transpose") && strcmp(o->type, "Identity")))
			return -1;
		const struct dlb_attr *perm = dlb_attr_find(o->attr, o->n_attr, "perm");
		if (!strcmp(o->type, "Transpose") && !(perm && perm->n == 2 && perm->ints[0] == 0))
			*transposed = !*transposed;
		t = o->in[0];
	}
	return g->tensor[t].kind == DLB_T_WEIGHT && g->tensor[t].n_dims == 2 && !g->tensor[t].slice ? t : -1;
}

/* Is t computed from weights and constants alone, such as a part of one weight or a union of several? */
static bool is_of_weights(const struct dlb_graph *g, int t, int depth)
{
	bool any = g->tensor[t].kind == DLB_T_WEIGHT;

	if (g->tensor[t].producer < 0 || depth == 0)
		return any;
	const struct dlb_op *o = &g->op[g->tensor[t].producer];
	for (int k = 0; k < o->n_in; k++) {
		const int in = o->in[k];
		if (in < 0 || g->tensor[in].kind == DLB_T_CONSTANT)
			continue;
		if (!is_of_weights(g, in, depth - 1))
			return false;
		any = true;
	}
	return any;
}

static bool is_product(const struct dlb_graph *g, int op, struct lora_product *p)
{
	const struct dlb_op *o = &g->op[op];
	const bool gemm = !strcmp(o->type, "Gemm");

	if (o->phase != DLB_FORWARD || *o->domain || (!gemm && strcmp(o->type, "MatMul")) ||
	    dlb_attr_int(o->attr, o->n_attr, "transA", 0))
		return false;
	*p = (struct lora_product){ .op = op,
				    .transposed = gemm && dlb_attr_int(o->attr, o->n_attr, "transB", 0) };
	p->weight = weight_of(g, o->in[1], &p->transposed);
	return p->weight >= 0;
}

/* Does a path from tensor t lead to a product? */
static bool leads_on(const struct dlb_graph *g, int t, const bool *leads)
{
	bool any = false;

	for (int r = t < 0 ? 0 : g->reader_start[t]; t >= 0 && r < g->reader_start[t + 1]; r++)
		any |= leads[g->reader[r]];
	return any;
}

/* Ops are sorted and visited from the last to the first, so the readers of an op are visited before it. */
static void find_products(struct lora_pass *l)
{
	const struct dlb_graph *g = l->g;
	bool *leads = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *leads);	/* [op] is, or leads to, a product */

	for (int i = g->n_ops - 1; i >= 0; i--) {
		struct lora_product p = { .weight = 0 };

		for (int k = 0; k < g->op[i].n_out; k++)
			leads[i] |= leads_on(g, g->op[i].out[k], leads);
		if (!is_product(g, i, &p)) {
			l->n_others += p.weight < 0 && is_of_weights(g, g->op[i].in[1], MOST_STEPS);
			continue;
		}
		p.last = !leads[i];
		leads[i] = true;
		l->product[l->n_products++] = p;
	}
	free(leads);
}

static const char *module_of(const char *weight, struct dlb_arena *a)
{
	static const char word[] = ".weight";
	const size_t n = strlen(weight), m = sizeof word - 1;

	return n > m && !strcmp(weight + n - m, word) ? dlb_arena_printf(a, "%.*s", (int)(n - m), weight) :
							weight;
}

const char *dlb_adapter_module(const struct dlb_adapter *ad, struct dlb_arena *a)
{
	return module_of(ad->of, a);
}

/* The first request for the product; NULL: none. Without a pattern the output layer is left out, as in
 * PEFT. */
static struct lora *request_of(const struct lora_pass *l, const struct lora_product *p)
{
	const char *weight = l->g->tensor[p->weight].name;

	for (int i = 0; i < l->c->n; i++) {
		const char *pattern = l->ask[i].pattern;
		if (pattern ? dlb_pattern_matches(pattern, weight) ||
				      dlb_pattern_matches(pattern, module_of(weight, &l->g->arena)) ||
				      dlb_pattern_matches(pattern, l->g->op[p->op].name) :
			      !p->last)
			return &l->ask[i];
	}
	return NULL;
}

static int add_weight(struct lora_pass *l, const char *module, const char *which, int like, int64_t rows,
		      int64_t columns)
{
	struct dlb_graph *g = l->g;
	const char *name = dlb_arena_printf(&g->arena, DLB_ADAPTER_PREFIX "%s.lora_%s.weight", module, which);
	const int id = dlb_graph_add_tensor(g, dlb_graph_tensor_name(g, name), DLB_T_WEIGHT);
	struct dlb_tensor *t = &g->tensor[id];

	t->dtype = g->tensor[like].dtype;
	t->n_dims = 2;
	t->dim[0].add = rows;
	t->dim[1].add = columns;
	t->fan_in = (int)columns;
	t->fan_out = (int)rows;
	t->rule = DLB_BY_OPTION;
	t->why = "--lora";
	l->elements += rows * columns;
	return id;
}

/* The adapter of the product's weight, made on first use: products that read the same weight share it. */
static const struct dlb_adapter *adapter_of(struct lora_pass *l, const struct lora_product *p,
					    const struct lora *ask)
{
	struct dlb_graph *g = l->g;

	if (!l->adapter[p->weight]) {
		const struct dlb_tensor w = g->tensor[p->weight];
		const int64_t rows = w.dim[0].add, columns = w.dim[1].add;
		const char *module = module_of(w.name, &g->arena);
		const int64_t in = p->transposed ? columns : rows, out = p->transposed ? rows : columns;
		const int a = add_weight(l, module, "A", p->weight, ask->rank, in),
			  b = add_weight(l, module, "B", p->weight, out, ask->rank);

		g->tensor[a].start = DLB_START_DRAWN;
		g->tensor[b].start = DLB_START_FILL;
		g->tensor[b].is_fill = true;
		g->adapter[g->n_adapters++] = (struct dlb_adapter){
			.of = w.name, .a = g->tensor[a].name, .b = g->tensor[b].name, .rank = (int)ask->rank,
			.scale = (l->c->alpha > 0 ? l->c->alpha : (double)ask->rank) / (double)ask->rank,
			.transposed = p->transposed
		};
		l->adapter[p->weight] = g->n_adapters;
	}
	return &g->adapter[l->adapter[p->weight] - 1];
}

static int tensor_named(const struct dlb_graph *g, const char *name)
{
	for (int t = g->n_tensors - 1; t >= 0; t--)
		if (!strcmp(g->tensor[t].name, name))
			return t;
	return -1;
}

static int add_op(struct lora_pass *l, int op, const char *type, int x, int y, struct dlb_error *err)
{
	const int in[2] = { x, y };
	const struct dlb_op_spec s = {
		.name = dlb_arena_printf(&l->g->arena, "%s.lora.%s", l->g->op[op].name, type),
		.type = type, .in = in, .n_in = y < 0 ? 1 : 2
	};

	return x < 0 ? -1 : dlb_graph_add_forward(l->g, &s, err);
}

/* The sum of product y and a bias, if no other op reads y, so that the two can still become one op; else
 * y. */
static int after_bias(const struct dlb_graph *g, int y)
{
	const int first = g->reader_start[y];

	if (g->reader_start[y + 1] != first + 1 || dlb_graph_is_output(g, y))
		return y;
	const struct dlb_op *only = &g->op[g->reader[first]];
	if (strcmp(only->type, "Add") || *only->domain)
		return y;
	const struct dlb_tensor *bias = &g->tensor[only->in[only->in[0] == y]];
	const bool fixed = bias->kind == DLB_T_WEIGHT || bias->kind == DLB_T_CONSTANT;
	return bias->n_dims == 1 && fixed ? only->out[0] : y;
}

/* Makes the product's readers read y + (x a' scale) b'. */
static int adapt(struct lora_pass *l, const struct lora_product *p, const struct lora *ask,
		 struct dlb_error *err)
{
	struct dlb_graph *g = l->g;
	const struct dlb_adapter ad = *adapter_of(l, p, ask);
	const int x = g->op[p->op].in[0], y = after_bias(g, g->op[p->op].out[0]);
	const struct dlb_desc scalar = { .dtype = g->tensor[p->weight].dtype };
	char value[16];
	int t;

	t = add_op(l, p->op, "MatMul", x, add_op(l, p->op, "Transpose", tensor_named(g, ad.a), -1, err), err);
	if (t >= 0 && ad.scale != 1) {
		const char *name = dlb_arena_printf(&g->arena, "%s.lora.scale", g->op[p->op].name);
		dlb_value_set(value, scalar.dtype, 0, ad.scale);
		t = add_op(l, p->op, "Mul", t, dlb_graph_add_constant(g, name, &scalar, value, NULL), err);
	}
	t = add_op(l, p->op, "MatMul", t, add_op(l, p->op, "Transpose", tensor_named(g, ad.b), -1, err), err);
	const int sum = t < 0 ? -1 : add_op(l, p->op, "Add", y, t, err);
	if (sum < 0)
		return -1;
	dlb_graph_replace(g, y, sum, true);
	g->op[g->tensor[sum].producer].in[0] = y;	/* the sum itself reads it */
	l->n_adapted++;
	return 0;
}

static int freeze(struct lora_pass *l, struct dlb_error *err)
{
	struct dlb_graph *g = l->g;
	const struct dlb_patterns *keep = &l->c->train_only;
	const char **name = dlb_arena_array(&g->arena, (size_t)g->n_tensors + 1, sizeof *name);
	int n = 0;

	for (int t = 0; t < g->n_tensors; t++)
		if (g->tensor[t].kind == DLB_T_WEIGHT && g->tensor[t].start == DLB_START_MODEL)
			name[n++] = g->tensor[t].name;
	if (dlb_patterns_check(keep, name, n, err))
		return -1;
	for (int t = 0; t < g->n_tensors; t++) {
		struct dlb_tensor *x = &g->tensor[t];

		if (x->kind != DLB_T_WEIGHT || x->start != DLB_START_MODEL ||
		    dlb_patterns_match(keep, x->name) >= 0)
			continue;
		x->kind = DLB_T_CONSTANT;
		x->home = -1;
		x->frozen = true;
		x->rule = DLB_BY_OPTION;
		x->why = "--lora";
	}
	return 0;
}

static int no_product(const struct lora_pass *l, const struct lora *ask, struct dlb_error *err)
{
	const struct dlb_graph *g = l->g;

	if (!l->n_products)
		return dlb_refuse(err, NULL,
				  "adapters belong to MatMul and Gemm by a weight of two dimensions",
				  "--lora: the model has no product with a weight that is trained");
	return dlb_refuse(err, NULL,
			  ask->pattern ? "GLOB names weights, modules or vertices" :
					 "--lora RANK:GLOB adapts the output layer too",
			  "--lora %lld%s%s: none of the %d products with a weight ('%s' ...)%s",
			  (long long)ask->rank, ask->pattern ? ":" : "", ask->pattern ? ask->pattern : "",
			  l->n_products,
			  g->tensor[l->product[l->n_products - 1].weight].name,
			  ask->pattern ? " has that name" : " is before the output layer");
}

static int adapt_all(struct lora_pass *l, struct dlb_error *err)
{
	struct dlb_graph *g = l->g;

	for (int i = 0; i < l->c->n; i++)
		if (parse(g, l->c->text[i], &l->ask[i], err))
			return -1;
	find_products(l);
	g->adapter = dlb_arena_array(&g->arena, (size_t)l->n_products + 1, sizeof *g->adapter);
	for (int i = l->n_products - 1; i >= 0; i--) {
		struct lora *ask = request_of(l, &l->product[i]);
		if (ask && adapt(l, &l->product[i], ask, err))
			return -1;
		if (ask)
			ask->used = true;
	}
	for (int i = 0; i < l->c->n; i++)
		if (!l->ask[i].used)
			return no_product(l, &l->ask[i], err);
	return freeze(l, err);
}

int dlb_graph_add_adapters(struct dlb_graph *g, const struct dlb_adapter_choice *c, struct dlb_error *err)
{
	struct lora_pass l = { .g = g, .c = c };

	if (!c->n)
		return 0;
	dlb_graph_index(g);
	l.ask = dlb_xcalloc((size_t)c->n, sizeof *l.ask);
	l.product = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *l.product);
	l.adapter = dlb_xcalloc((size_t)g->n_tensors + 1, sizeof *l.adapter);
	const int rc = adapt_all(&l, err);
	if (!rc)
		dlb_graph_note(g, "%d adapter%s of %lld elements on %d product%s; "
				  "the model's parameters are frozen%s",
			       g->n_adapters, g->n_adapters == 1 ? "" : "s", (long long)l.elements,
			       l.n_adapted, l.n_adapted == 1 ? "" : "s",
			       c->train_only.n ? ", except those of --train-only" :
						 "; --train-only GLOB trains more");
	if (!rc && l.n_others)
		dlb_graph_note(g,
			       "%d product%s by a part of a weight, or by several weights together, get%s no "
			       "adapter",
			       l.n_others, l.n_others == 1 ? "" : "s", l.n_others == 1 ? "s" : "");
	free(l.ask);
	free(l.product);
	free(l.adapter);
	if (rc || dlb_graph_sort(g, err) || dlb_graph_index(g))
		return -1;
	dlb_graph_set_homes(g);
	return 0;
}

#define MERGE(T) \
static void merge_##T(const struct dlb_adapter *ad, int64_t in, int64_t out, const T *a, const T *b, T *of) \
{ \
	const int64_t row = ad->transposed ? in : 1, column = ad->transposed ? 1 : out; \
	for (int64_t i = 0; i < out; i++) \
		for (int64_t j = 0; j < in; j++) { \
			double sum = 0; \
			for (int64_t k = 0; k < ad->rank; k++) \
				sum += (double)b[i * ad->rank + k] * (double)a[k * in + j]; \
			of[i * row + j * column] = (T)((double)of[i * row + j * column] + ad->scale * sum); \
		} \
}
MERGE(float)
MERGE(double)

void dlb_adapter_merge(const struct dlb_adapter *ad, enum dlb_dtype t, int64_t in, int64_t out, const void *a,
		       const void *b, void *of)
{
	if (t == DLB_F64)
		merge_double(ad, in, out, a, b, of);
	else
		merge_float(ad, in, out, a, b, of);
}
