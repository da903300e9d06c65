/* Graphs in text, for tables of cases:
 *
 *     "x[N,4,6] i[N,4]:i64 | h = MatMul(x, w[6,8]); a,b = Split{axis=-1}(h, #4/4); y = Add(a, c[4]~ones)"
 *
 * Inputs stand before the bar; N is the batch. What the last statement makes are the graph's outputs.
 * Operands: a tensor's name; NAME[DIMS] is a new initializer of random reals, with ~KIND of others: ones,
 * zeros, mask (0 or -1e4), huge (-1e38), sine, grid, steps (0 1 2 ..), signs, last (0 .. 0 1), same (rows are
 * equal); #1/2/3 a list of integers, @3 one integer, %0.5 one real, ?1 one truth value; - none. Attributes:
 * a=1 one=1, list=1,2 real=0.5 text=abc. */
#ifndef DLB_TESTS_TEXT_GRAPH_H
#define DLB_TESTS_TEXT_GRAPH_H
#include <ctype.h>
#include <math.h>
#include "graph/graph.h"
#include "by_hand.h"
#include "check.h"

struct text_graph {
	struct dlb_graph *g;
	const char *at;
	uint64_t seed, drawn;
};

static inline void text_skip(struct text_graph *p, const char *these) { p->at += strspn(p->at, these); }

/* The next word, of letters, digits, '_' and '.'. */
static inline const char *text_word(struct text_graph *p)
{
	const char *from;

	text_skip(p, " ");
	from = p->at;
	while (isalnum((unsigned char)*p->at) || *p->at == '_' || *p->at == '.')
		p->at++;
	return dlb_arena_printf(&p->g->arena, "%.*s", (int)(p->at - from), from);
}

/* "[N,2N,4]"; N is the batch */
static inline int text_dims(struct text_graph *p, struct dlb_dim *dim)
{
	int n = 0;

	for (p->at++; *p->at != ']'; text_skip(p, ", ")) {
		const int64_t v = isdigit((unsigned char)*p->at) ? strtoll(p->at, (char **)&p->at, 10) : 1;

		assert(IS(n, <, DLB_MAX_DIMS));
		dim[n++] = *p->at == 'N' ? (struct dlb_dim){ v, 0 } : (struct dlb_dim){ 0, v };
		p->at += *p->at == 'N';
	}
	p->at++;
	return n;
}

static inline int text_attrs(struct text_graph *p, struct dlb_attr *a)
{
	int n = 0;

	for (p->at++; *p->at != '}'; text_skip(p, " ")) {
		const char *name = text_word(p), *v = ++p->at;
		const size_t length = strcspn(v, " }");

		a[n] = (struct dlb_attr){ .name = name, .type = DLB_ATTR_STR };
		if (memchr(v, ',', length)) {
			int64_t *ints = dlb_arena_array(&p->g->arena, 16, sizeof *ints);

			a[n].type = DLB_ATTR_INTS;
			for (const char *c = v; c < v + length; c += *c == ',')
				ints[a[n].n++] = strtoll(c, (char **)&c, 10);
			a[n].ints = ints;
		} else if (isdigit((unsigned char)*v) || *v == '-') {
			a[n].type = memchr(v, '.', length) ? DLB_ATTR_REAL : DLB_ATTR_INT;
			a[n].f = strtod(v, NULL);
			a[n].i = strtoll(v, NULL, 10);
		} else {
			a[n].s = dlb_arena_printf(&p->g->arena, "%.*s", (int)length, v);
		}
		n++;
		p->at = v + length;
	}
	p->at++;
	return n;
}

/* Element i of a constant of this kind, whose last dimension is `row`. */
static inline double text_value(const char *kind, double random, int64_t i, int64_t row, int64_t count)
{
	const int64_t column = row ? i % row : 0;

	return !strcmp(kind, "ones")  ? 1 :
	       !strcmp(kind, "zeros") ? 0 :
	       !strcmp(kind, "mask")  ? (column > i / (row ? row : 1) ? -1e4 : 0) :
	       !strcmp(kind, "huge")  ? (column > i / (row ? row : 1) ? -1e38 : 0) :
	       !strcmp(kind, "sine")  ? sin((double)(i / (row ? row : 1)) /
					    pow(10, (double)column / (double)(row ? row : 1))) :
	       !strcmp(kind, "grid")  ? (double)(column ? i / 2 % 4 : i / 8) :
	       !strcmp(kind, "steps") ? (double)i :
	       !strcmp(kind, "signs") ? (i % 2 ? -1 : 1) :
	       !strcmp(kind, "last")  ? (i == count - 1) :
	       !strcmp(kind, "same")  ? (double)column - 1.5 :
					random;
}

static inline int text_constant(struct text_graph *p, const char *name)
{
	struct dlb_dim dim[DLB_MAX_DIMS];
	int64_t size[DLB_MAX_DIMS], count = 1;
	const int n = text_dims(p, dim);

	for (int k = 0; k < n; k++)
		count *= size[k] = dim[k].add;
	const int t = drawn_constant(p->g, name, size, n, true, p->seed, &p->drawn);
	double *v = (double *)p->g->tensor[t].data;
	if (*p->at != '~')
		return t;
	p->at++;
	const char *kind = text_word(p);
	for (int64_t i = 0; i < count; i++)
		v[i] = text_value(kind, v[i], i, n ? size[n - 1] : 1, count);
	return t;
}

static inline int text_find(const struct dlb_graph *g, const char *name)
{
	for (int t = g->n_tensors - 1; t >= 0; t--)
		if (!strcmp(g->tensor[t].name, name))
			return t;
	return -1;
}

static inline int text_operand(struct text_graph *p)
{
	struct dlb_graph *g = p->g;
	int64_t v[16], n = 0;

	text_skip(p, " ");
	const char first = *p->at;
	if (first == '-' || first == '#' || first == '@' || first == '%' || first == '?')
		p->at++;
	if (first == '-')
		return -1;
	if (first == '#') {
		while (isdigit((unsigned char)*p->at) || *p->at == '-') {
			v[n++] = strtoll(p->at, (char **)&p->at, 10);
			p->at += *p->at == '/';
		}
		return whole_numbers(g, v, n);
	}
	if (first == '@' || first == '%' || first == '?') {
		const double one = strtod(p->at, (char **)&p->at);
		double data;

		dlb_value_set(&data, first == '@' ? DLB_I64 : first == '%' ? DLB_F64 : DLB_BOOL, 0, one);
		return add_constant(g,
				    first == '@' ? DLB_I64 :
				    first == '%' ? DLB_F64 :
						   DLB_BOOL,
				    NULL, 0, &data);
	}
	const char *name = text_word(p);
	const int t = *p->at == '[' ? text_constant(p, name) : text_find(g, name);
	if (t < 0)
		fprintf(stderr, "no tensor '%s' before '%s'\n", name, p->at);
	assert(t >= 0);
	return t;
}

static inline void text_input(struct text_graph *p)
{
	struct dlb_graph *g = p->g;
	const int t = dlb_graph_add_tensor(g, text_word(p), DLB_T_INPUT);
	struct dlb_tensor *x = &g->tensor[t];

	x->dtype = DLB_F64;
	x->n_dims = text_dims(p, x->dim);
	if (*p->at == ':') {
		p->at++;
		const char *type = text_word(p);
		x->dtype = !strcmp(type, "i64") ? DLB_I64 : !strcmp(type, "bool") ? DLB_BOOL : DLB_F32;
		x->bound = x->dtype == DLB_I64 ? 5 : 0;
	}
	g->input[g->n_inputs++] = t;
}

/* Reads a statement; returns its number of outputs, out[] */
static inline int text_statement(struct text_graph *p, int *out)
{
	struct dlb_graph *g = p->g;
	struct dlb_attr attr[8];
	const char *name[8], *type;
	int in[16], n_in = 0, n_out = 0, n_attr = 0;

	for (;; p->at++) {
		name[n_out++] = text_word(p);
		text_skip(p, " ");
		if (*p->at != ',')
			break;
	}
	assert(*p->at == '=');
	p->at++;
	type = text_word(p);
	if (*p->at == '{')
		n_attr = text_attrs(p, attr);
	assert(*p->at == '(');
	for (p->at++; *p->at != ')'; text_skip(p, ", "))
		in[n_in++] = text_operand(p);
	p->at++;
	for (int k = 0; k < n_out; k++)
		out[k] = !*name[k] || !strcmp(name[k], "_") ?
				 -1 :
				 dlb_graph_add_tensor(g, name[k], DLB_T_ACTIVATION);
	dlb_graph_add_op(g, DLB_FORWARD,
			 &(struct dlb_op_spec){ .name = dlb_arena_printf(&g->arena, "%s.%d", type, g->n_ops),
						.type = type,
						.in = in,
						.n_in = n_in,
						.out = out,
						.n_out = n_out,
						.attr = attr,
						.n_attr = n_attr });
	text_skip(p, " ;");
	return n_out;
}

/* Makes g of the text, in f64. */
static inline void text_graph(struct dlb_graph *g, const char *text, int opset, uint64_t from)
{
	struct text_graph p = { .g = g, .at = text, .seed = from };
	int out[8], n = 0;

	begin_graph(g, opset);
	for (text_skip(&p, " "); *p.at != '|'; text_skip(&p, " "))
		text_input(&p);
	p.at++;
	text_skip(&p, " ");
	while (*p.at)
		n = text_statement(&p, out);
	for (int k = 0; k < n; k++)
		if (out[k] >= 0)
			g->output[g->n_outputs++] = out[k];
}
#endif
