/* Dimensions of inputs that the model names without giving a size.
 *
 * One of them is the batch: a dimension with a usual name ("batch", "batch_size", "N"), at any position, else
 * the first dimension of each input. dlb_graph_set_dim (dlb-profile --dim NAME=N) gives the others a size; a
 * dimension without a name is called INPUT:AXIS. An expression of names ("2*s0 + 1", "s0 // 2") is evaluated
 * from their sizes. An input whose batch is not its first dimension is fed with the batch first, and a
 * Transpose is added. */
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "graph/passes.h"
#include "graph/rewrite.h"

enum { MAX_DEPTH = 32, MAX_NAME = 128 };
#define MAX_SIZE ((int64_t)1 << 40)

static const struct dlb_dim_size *size_of(const struct dlb_graph *g, const char *name)
{
	for (int i = 0; i < g->n_sizes; i++)
		if (!strcmp(g->size[i].name, name))
			return &g->size[i];
	return NULL;
}

int dlb_graph_set_dim(struct dlb_graph *g, const char *text, struct dlb_error *err)
{
	const char *eq = strrchr(text, '=');
	char *end = NULL;
	const long long n = eq ? strtoll(eq + 1, &end, 10) : 0;

	if (!eq || eq == text || !eq[1] || *end || n < 1 || n > MAX_SIZE)
		return dlb_refuse(err, NULL, "as in --dim seq=128",
				  "'%s' is not NAME=N with a size N of 1 or more", text);
	struct dlb_dim_size *all = dlb_arena_array(&g->arena, (size_t)g->n_sizes + 1, sizeof *all);
	if (g->n_sizes)
		memcpy(all, g->size, (size_t)g->n_sizes * sizeof *all);
	all[g->n_sizes] = (struct dlb_dim_size){
		.name = dlb_arena_printf(&g->arena, "%.*s", (int)(eq - text), text), .n = n
	};
	g->size = all;
	g->n_sizes++;
	return 0;
}

/* -- expressions: sums of products of names, integers and parentheses, as ONNX's exporters write them -- */

struct expression {
	const char *at;
	struct dlb_graph *g;
	const char *batch;		/* the batch's name, and its size */
	int64_t n;
	int depth;
	bool is_batch;			/* the batch's name occurred */
	char missing[MAX_NAME];		/* first name without a size */
	bool wrong;
};

static int64_t sum(struct expression *e);

static void blanks(struct expression *e)
{
	while (*e->at == ' ')
		e->at++;
}

static int64_t name_or_number(struct expression *e)
{
	char name[MAX_NAME];
	size_t n = 0;

	blanks(e);
	if (*e->at == '(' && e->depth++ < MAX_DEPTH) {
		e->at++;
		const int64_t v = sum(e);
		blanks(e);
		e->wrong |= *e->at != ')';
		e->at += *e->at == ')';
		e->depth--;
		return v;
	}
	while (n < sizeof name - 1 &&
	       (isalnum((unsigned char)e->at[n]) || strchr("_.:", e->at[n] ? e->at[n] : ' ')))
		n++;
	memcpy(name, e->at, n);
	name[n] = 0;
	e->at += n;
	if (n && strspn(name, "0123456789") == n && n < 13)
		return atoll(name);
	if (e->batch && n && !strcmp(name, e->batch)) {
		e->is_batch = true;
		return e->n;
	}
	const struct dlb_dim_size *s = n ? size_of(e->g, name) : NULL;
	e->wrong |= !n;
	if (!s && !*e->missing)
		memcpy(e->missing, name, n + 1);
	if (s)
		((struct dlb_dim_size *)s)->used = true;
	return s ? s->n : 1;
}

static int64_t product(struct expression *e)
{
	int64_t v = name_or_number(e);

	for (blanks(e); *e->at == '*' || *e->at == '/'; blanks(e)) {
		const bool times = *e->at == '*';
		e->at += !times && e->at[1] == '/' ? 2 : 1;
		const int64_t by = name_or_number(e);
		e->wrong |= times ? by && (v > MAX_SIZE / (by < 0 ? -by : by) || v < -MAX_SIZE) : by < 1;
		v = e->wrong ? 1 : times ? v * by : (v - (v % by + by) % by) / by;
	}
	return v;
}

static int64_t sum(struct expression *e)
{
	int64_t v = product(e);

	for (blanks(e); *e->at == '+' || *e->at == '-'; blanks(e)) {
		const bool plus = *e->at++ == '+';
		const int64_t by = product(e);
		v = plus ? v + by : v - by;
		e->wrong |= v > MAX_SIZE || v < -MAX_SIZE;
	}
	return v;
}

/* Evaluates dimension `text` at n samples; false if it cannot be parsed, or a name has
 * no size (then *missing). */
static bool evaluate(struct dlb_graph *g, const char *text, const char *batch, int64_t n,
		     struct expression *e)
{
	*e = (struct expression){ .at = text, .g = g, .batch = batch, .n = n };
	const int64_t v = sum(e);

	blanks(e);
	e->wrong |= *e->at != 0;
	e->n = v;
	return !e->wrong && !*e->missing && v >= 0;
}

/* -- inputs -- */

static bool is_called_batch(const char *name)
{
	static const char *const names[] = { "batch", "batch_size", "Batch", "N", "bs", "batch_dim" };

	for (int i = 0; name && i < DLB_LEN(names); i++)
		if (!strcmp(name, names[i]))
			return true;
	return false;
}

/* The name of the batch dimension of an input: a dimension with a usual name (is_called_batch), else the
 * first dimension, else, if the first was given a size, the only dimension without a size; NULL: none. */
static const char *batch_of(const struct dlb_graph *g, const struct dlb_tensor *x)
{
	const char *left = NULL;
	int n = 0;

	for (int k = 0; k < x->n_dims; k++)
		if (is_called_batch(x->dim_name[k]) && !size_of(g, x->dim_name[k]))
			return x->dim_name[k];
	for (int k = x->n_dims - 1; k >= 0; k--)
		if (x->dim_name[k] && !size_of(g, x->dim_name[k])) {
			left = x->dim_name[k];
			n++;
		}
	return x->n_dims > 0 && x->dim_name[0] && (left == x->dim_name[0] || n == 1) ? left : NULL;
}

static int resolve(struct dlb_graph *g, struct dlb_tensor *x, int k, const char *batch, struct dlb_error *err)
{
	int64_t at[DLB_N_SIZES];
	struct expression e;

	for (int s = 0; s < DLB_N_SIZES; s++) {
		if (!evaluate(g, x->dim_name[k], batch, 12 * (s + 1), &e)) {
			dlb_fail(err, x->name, "dimension %d of the input has no size ('%s')", k,
				 x->dim_name[k]);
			return dlb_hint(err, "give it one with --dim %s=N",
					*e.missing ? e.missing : x->dim_name[k]);
		}
		at[s] = e.n;
	}
	if (!dlb_dim_fit(at, 12, &x->dim[k]))
		return dlb_refuse(err, x->name, "export with the batch as a dimension of its own",
				  "dimension %d of the input, '%s', does not follow the batch linearly",
				  k, x->dim_name[k]);
	return 0;
}

/* Replaces an input by one whose batch, dimension k of the old input, comes first. */
static void put_batch_first(struct dlb_graph *g, int i, int k)
{
	const int t = g->input[i];
	const struct dlb_tensor x = g->tensor[t];
	int64_t perm[DLB_MAX_DIMS];
	int n = 0;

	dlb_graph_rename_tensor(g, t,
				dlb_graph_tensor_name(g,
						      dlb_arena_printf(&g->arena, "%s.transposed", x.name)));
	g->tensor[t].kind = DLB_T_ACTIVATION;
	const int fed = dlb_graph_add_tensor(g, x.name, DLB_T_INPUT);
	struct dlb_tensor *y = &g->tensor[fed];
	y->dtype = x.dtype;
	y->bound = x.bound;
	y->n_dims = x.n_dims;
	y->dim[n++] = x.dim[k];
	for (int d = 0; d < x.n_dims; d++) {
		if (d != k)
			y->dim[n++] = x.dim[d];
		perm[d] = d == k ? 0 : d < k ? d + 1 : d;
	}
	const struct dlb_attr attr = { .name = "perm", .type = DLB_ATTR_INTS, .ints = perm, .n = x.n_dims };
	const char *name = dlb_graph_op_name(g, dlb_arena_printf(&g->arena, "%s.batch_first", x.name));
	dlb_graph_add_op(g, DLB_FORWARD,
			 &(struct dlb_op_spec){ .name = name, .type = "Transpose", DLB_OPERANDS(fed),
						.out = &t, .n_out = 1, .attr = &attr, .n_attr = 1,
						.opset = 17 });
	g->input[i] = fed;
}

int dlb_graph_size_inputs(struct dlb_graph *g, struct dlb_error *err)
{
	for (int i = 0; i < g->n_inputs; i++) {
		struct dlb_tensor *x = &g->tensor[g->input[i]];
		if (!x->dim_name)
			continue;
		const char *batch = batch_of(g, x);
		/* if the input names no batch, its expressions may contain the batch of another input */
		for (int other = 0; other < g->n_inputs && !batch; other++)
			if (g->tensor[g->input[other]].dim_name)
				batch = batch_of(g, &g->tensor[g->input[other]]);
		int first = -1;
		for (int k = 0; k < x->n_dims; k++) {
			if (x->dim_name[k] && resolve(g, x, k, batch, err))
				return -1;
			first = first < 0 && x->dim[k].mul == 1 && !x->dim[k].add ? k : first;
		}
		if (first > 0 && !x->dim[0].mul)
			put_batch_first(g, i, first);
	}
	for (int i = 0; i < g->n_sizes; i++)
		if (!g->size[i].used) {
			dlb_fail(err, NULL, "no input has a dimension '%s' without a size", g->size[i].name);
			return dlb_hint(err, "--dim gives a size to a dimension that the model names");
		}
	return 0;
}
