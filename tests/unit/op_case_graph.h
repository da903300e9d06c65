/* A case of op_cases.h as a graph with its gradient, as it is or changed. */
#ifndef DLB_TESTS_OP_CASE_GRAPH_H
#define DLB_TESTS_OP_CASE_GRAPH_H
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include "check.h"
#include "machine.h"
#include "op_cases.h"
#include "graph/passes.h"
#include "util/rng.h"

enum { MAX_IN = 8, MAX_ATTR = 8 };

static struct dlb_rng rng;

/* Changes of a case: every dimension of size `gone` becomes 0, or only dimension `at` of every operand (at >=
 * 0); operand `absent` is absent; the integers of operand or attribute `odd` (attributes count from MAX_IN
 * on) become `value`; floats have type `real`. */
struct twist {
	int64_t gone;
	int at, absent, odd;
	int64_t value;
	enum dlb_dtype real;
	bool rounded;
};
static const struct twist as_it_is = { .gone = -1, .at = -1, .absent = -1, .odd = -1, .real = DLB_F64 };
static struct twist twist;

/* Rounds to bf16, so that the case has the same values in bf16 and in f32. */
static double rounded(double x)
{
	uint16_t half;

	if (!twist.rounded)
		return x;
	dlb_value_set(&half, DLB_BF16, 0, x);
	return dlb_value_real(&half, DLB_BF16, 0);
}

static double number(char kind)
{
	double u = dlb_rng_uniform(&rng);

	return kind == 'f' ? 2 * u - 1 : kind == 'g' ? 1.5 + u : 0.5 + u;
}

static const char *read_shape(const char *s, struct dlb_desc *d)
{
	d->n_dims = 0;
	while (isdigit((unsigned char)*s)) {
		const int64_t n = strtol(s, (char **)&s, 10);
		d->dim[d->n_dims] = n == twist.gone && (twist.at < 0 || twist.at == d->n_dims) ? 0 : n;
		d->n_dims++;
		s += *s == 'x';
	}
	return s;
}

/* Adds operand k described by s; *wanted: whether its gradient is tested. */
static int add_input(struct dlb_graph *g, int k, const char *s, bool *wanted)
{
	static const char letters[] = "fpgkrqiljb";
	char name[32], kind = *s;
	struct dlb_desc d = { .dtype = kind == 'b'                ? DLB_BOOL :
				       kind == 'i' || kind == 'l' ? DLB_I64 :
				       kind == 'j'                ? DLB_I32 :
								    twist.real };
	struct dlb_tensor *t;
	double value[64] = { 0 };
	long bound = 0;
	char *data;
	int id, n = 0;

	*wanted = false;
	if (kind == '-' || k == twist.absent)
		return -1;
	*wanted = kind == 'f' || kind == 'p' || kind == 'g';
	assert(strchr(letters, kind));
	s = read_shape(s + 1, &d);
	if (*s == '<')
		bound = strtol(s + 1, NULL, 10);
	while (*s == '=' || *s == ',')
		value[n++] = strtod(s + 1, (char **)&s);
	if (kind == 'i' || kind == 'q') {
		d.n_dims = 1;
		d.dim[0] = n;
	}
	snprintf(name, sizeof name, "x%d", g->n_tensors);
	id = dlb_graph_add_tensor(g, dlb_arena_strdup(&g->arena, name),
				  *wanted ? DLB_T_INPUT : DLB_T_CONSTANT);
	t = &g->tensor[id];
	t->dtype = d.dtype;
	t->n_dims = d.n_dims;
	for (int i = 0; i < d.n_dims; i++)
		t->dim[i] = (struct dlb_dim){ 0, d.dim[i] };
	data = dlb_arena_alloc(&g->arena, dlb_desc_bytes(&d) + 8);
	for (int64_t i = 0; i < dlb_desc_count(&d); i++)
		dlb_value_set(data, d.dtype, i,
			      rounded(n ? value[i] :
				      kind == 'l' || kind == 'j' ?
					  (double)dlb_rng_below(&rng, (uint64_t)bound) :
				      kind == 'b' ? (double)dlb_rng_below(&rng, 2) :
						    number(kind)));
	for (int64_t i = 0; i < dlb_desc_count(&d) && k == twist.odd && kind != 'b' && d.dtype == DLB_I64;
	     i++)
		((int64_t *)data)[i] = twist.value;
	t->data = data;
	return id;
}

static struct dlb_attr read_attr(struct dlb_graph *g, int k, const char *word)
{
	const char *v = strchr(word, '=') + 1;
	struct dlb_attr a = { .name = dlb_arena_strdup(&g->arena, word) };
	int64_t *ints;

	*strchr((char *)a.name, '=') = 0;
	if (isalpha((unsigned char)*v) || !strncmp(v, "...", 3)) {
		a.type = DLB_ATTR_STR;
		a.s = dlb_arena_strdup(&g->arena, v);
	} else if (strchr(v, ',')) {
		a.type = DLB_ATTR_INTS;
		a.ints = ints = dlb_arena_array(&g->arena, 16, sizeof *ints);
		while (*v) {
			ints[a.n++] = strtol(v, (char **)&v, 10);
			if (k == twist.odd - MAX_IN)
				ints[a.n - 1] = twist.value;
			v += *v == ',';
		}
	} else if (strchr(v, '.')) {
		a.type = DLB_ATTR_REAL;
		a.f = strtod(v, NULL);
	} else {
		a.type = DLB_ATTR_INT;
		a.i = k == twist.odd - MAX_IN ? twist.value : strtol(v, NULL, 10);
	}
	return a;
}

struct built {
	int wanted[MAX_IN], n_wanted, n_in, n_attr;
};

static void build(struct dlb_graph *g, const struct test_case *c, struct built *b)
{
	const struct dlb_op_class *cls;
	int kind = dlb_op_kind_find(c->type, NULL), in[MAX_IN], out[8], n_in = 0, n_attr = 0, n_out, op;
	char text[256], *word, *rest;
	struct dlb_attr attr[MAX_ATTR];

	kind = kind < 0 ? dlb_op_kind_find(c->type, "dlb") : kind;
	cls = dlb_op_class_of(kind);
	assert(cls);
	dlb_graph_init(g);
	b->n_wanted = 0;
	snprintf(text, sizeof text, "%s", c->in);
	for (word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
		bool wanted;

		in[n_in] = add_input(g, n_in, word, &wanted);
		if (wanted)
			b->wanted[b->n_wanted++] = in[n_in];
		n_in++;
	}
	snprintf(text, sizeof text, "%s", c->attr);
	for (word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
		attr[n_attr] = read_attr(g, n_attr, word), n_attr++;
	n_out = c->n_out ? c->n_out : cls->n_out[0];
	for (int i = 0; i < n_out; i++) {
		char name[32];

		snprintf(name, sizeof name, "y%d", i);
		out[i] = dlb_graph_add_tensor(g, dlb_arena_strdup(&g->arena, name), DLB_T_ACTIVATION);
	}
	op = dlb_graph_add_op(g, DLB_FORWARD,
			      &(struct dlb_op_spec){ .name = "op",
						     .type = c->type,
						     .domain = cls->domain ? cls->domain : "",
						     .in = in,
						     .n_in = n_in,
						     .out = out,
						     .n_out = n_out,
						     .attr = attr,
						     .n_attr = n_attr });
	g->op[op].opset = c->opset;
	g->input = dlb_arena_array(&g->arena, MAX_IN, sizeof *g->input);
	for (int i = 0; i < b->n_wanted; i++)
		g->input[g->n_inputs++] = b->wanted[i];
	g->output = dlb_arena_array(&g->arena, 1, sizeof *g->output);
	g->output[g->n_outputs++] = out[c->y];
	b->n_in = n_in;
	b->n_attr = n_attr;
	g->dtype = twist.real;
	g->training = false;
	g->opset = c->opset;
}

/* The cotangent of an element of y: a fixed function of its index. */
static double weight_of(int64_t i) { return sin(1.0 + 2.3 * (double)i); }

/* Adds and runs the backward ops of y for the inputs `wanted`. */
static int differentiate(struct machine *m, int y, const int *wanted, int n, int *grad, struct dlb_error *err)
{
	const int seed = dlb_graph_add_tensor(&m->g, "seed", DLB_T_SEED);
	struct dlb_tensor *t = &m->g.tensor[seed];

	t->dtype = m->g.tensor[y].dtype;
	t->n_dims = m->g.tensor[y].n_dims;
	memcpy(t->dim, m->g.tensor[y].dim, sizeof t->dim);
	if (dlb_graph_differentiate_from(&m->g, y, seed, wanted, n, grad, err))
		return -1;
	machine_values(m);
	struct dlb_desc d = dlb_tensor_desc(&m->g.tensor[seed], 1);
	m->g.tensor[seed].layout = d.layout = DLB_PLAIN;
	m->v[seed] = (struct value){ .d = d,
				     .data = dlb_xcalloc((size_t)dlb_desc_count(&d) + 1, sizeof(double)) };
	for (int64_t i = 0; i < dlb_desc_count(&d); i++)
		dlb_value_set(m->v[seed].data, d.dtype, i, rounded(weight_of(i)));
	return 0;
}
#endif
