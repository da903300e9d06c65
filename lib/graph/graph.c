/* The graph: building it, and evaluating it at a batch size. See graph.h; order, checks and
 * colocation are in order.c.
 *
 * The op and tensor arrays grow and live on the heap. Everything they point to (names, operand lists,
 * attributes, the lists of inputs and outputs) lives in the graph's arena. */
#include "graph/order.h"
#include "graph/rewrite.h"
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "util/hash.h"

/* Fills of more elements than this have no values in dlb_op_io: shape arithmetic needs few, and a fill of a
 * large weight must not be written out for each reader. */
#define MAX_VALUE_COUNT 65536

void dlb_graph_init(struct dlb_graph *g)
{
	*g = (struct dlb_graph){ .loss = -1, .label = -1, .seed = -1, .dtype = DLB_F32 };
}

void dlb_graph_release(struct dlb_graph *g)
{
	if (!g)
		return;
	free(g->op);
	free(g->tensor);
	free(g->reader_start);
	free(g->reader);
	for (int i = 0; i < g->n_bodies; i++) {
		dlb_graph_release(&g->body[i]->g);
		free(g->body[i]);
	}
	free(g->body);
	dlb_graph_forget_names(g);
	dlb_arena_release(&g->arena);
	dlb_arena_release(&g->values);
	dlb_graph_init(g);
}

int dlb_graph_add_tensor(struct dlb_graph *g, const char *name, enum dlb_tensor_kind kind)
{
	DLB_GROW(g->tensor, g->n_tensors, g->cap_tensors);
	g->tensor[g->n_tensors] = (struct dlb_tensor){
		.name = dlb_arena_strdup(&g->arena, name), .kind = kind, .dtype = DLB_F32, .n_dims = -1,
		.producer = -1, .home = -1, .of = -1,
	};
	return g->n_tensors++;
}

struct dlb_body *dlb_graph_add_body(struct dlb_graph *g, int *index)
{
	struct dlb_body *b = dlb_xcalloc(1, sizeof *b);

	dlb_graph_init(&b->g);
	b->g.opset = g->opset;
	DLB_GROW(g->body, g->n_bodies, g->cap_bodies);
	*index = g->n_bodies;
	return g->body[g->n_bodies++] = b;
}

void dlb_graph_drop_values(struct dlb_graph *g)
{
	if (!g->values.head)
		return;
	for (int t = 0; t < g->n_tensors; t++)
		if (g->tensor[t].kind == DLB_T_WEIGHT || g->tensor[t].kind == DLB_T_BUFFER)
			g->tensor[t].data = NULL;
	dlb_arena_release(&g->values);
}

void dlb_graph_note(struct dlb_graph *g, const char *fmt, ...)
{
	const char **all = dlb_arena_array(&g->arena, (size_t)g->n_notes + 1, sizeof *all);
	char line[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof line, fmt, ap);
	va_end(ap);
	if (g->n_notes)
		memcpy(all, g->note, (size_t)g->n_notes * sizeof *all);
	all[g->n_notes++] = dlb_arena_strdup(&g->arena, line);
	g->note = all;
}

static void *arena_copy(struct dlb_arena *a, const void *p, size_t n, size_t size)
{
	if (!p || !n)
		return NULL;
	void *copy = dlb_arena_array(a, n, size);
	memcpy(copy, p, n * size);
	return copy;
}

void dlb_graph_copy(const struct dlb_graph *g, struct dlb_graph *copy)
{
	struct dlb_graph c = *g;

	c.arena = c.values = (struct dlb_arena){ 0 };
	c.reader_start = c.reader = NULL;
	c.body = NULL;
	c.n_bodies = c.cap_bodies = 0;
	c.op_names = c.tensor_names = (struct dlb_names){ .n = 0 };
	c.cap_ops = c.n_ops + 1;
	c.cap_tensors = c.n_tensors + 1;
	c.op = dlb_xcalloc((size_t)c.cap_ops, sizeof *c.op);
	c.tensor = dlb_xcalloc((size_t)c.cap_tensors, sizeof *c.tensor);
	memcpy(c.tensor, g->tensor, (size_t)g->n_tensors * sizeof *c.tensor);
	memcpy(c.op, g->op, (size_t)g->n_ops * sizeof *c.op);
	for (int i = 0; i < g->n_ops; i++) {
		struct dlb_op *o = &c.op[i];
		o->in = arena_copy(&c.arena, o->in, (size_t)o->n_in, sizeof *o->in);
		o->out = arena_copy(&c.arena, o->out, (size_t)o->n_out, sizeof *o->out);
	}
	c.input = arena_copy(&c.arena, g->input, (size_t)g->n_inputs, sizeof *c.input);
	c.output = arena_copy(&c.arena, g->output, (size_t)g->n_outputs, sizeof *c.output);
	*copy = c;
	dlb_graph_index(copy);
}

struct dlb_attr *dlb_attr_copy(struct dlb_arena *a, const struct dlb_attr *attr, int n)
{
	struct dlb_attr *copy = arena_copy(a, attr, (size_t)n, sizeof *attr);
	for (int i = 0; i < n; i++) {
		struct dlb_attr *c = &copy[i];
		c->name = dlb_arena_strdup(a, c->name);
		c->s = c->s ? dlb_arena_strdup(a, c->s) : NULL;
		c->ints = arena_copy(a, c->ints, c->ints ? (size_t)c->n : 0, sizeof *c->ints);
		c->reals = arena_copy(a, c->reals, c->reals ? (size_t)c->n : 0, sizeof *c->reals);
		if (c->type == DLB_ATTR_TENSOR)
			c->data = arena_copy(a, c->data, dlb_desc_bytes(&c->desc), 1);
	}
	return copy;
}

int dlb_graph_add_op(struct dlb_graph *g, enum dlb_phase phase, const struct dlb_op_spec *s)
{
	const char *domain = s->domain ? s->domain : "";

	DLB_GROW(g->op, g->n_ops, g->cap_ops);
	g->op[g->n_ops] = (struct dlb_op){
		.name = dlb_arena_strdup(&g->arena, s->name),
		.type = dlb_arena_strdup(&g->arena, s->type),
		.domain = dlb_arena_strdup(&g->arena, domain),
		.kind = dlb_op_kind_find(s->type, domain),
		.phase = phase, .opset = s->opset ? s->opset : g->opset,
		.n_in = s->n_in, .n_out = s->n_out, .n_attr = s->n_attr,
		.in = arena_copy(&g->arena, s->in, (size_t)s->n_in, sizeof *s->in),
		.out = arena_copy(&g->arena, s->out, (size_t)s->n_out, sizeof *s->out),
		.attr = dlb_attr_copy(&g->arena, s->attr, s->n_attr),
		.of = -1, .colocate = -1,
	};
	return g->n_ops++;
}

/* -- at a batch size -- */

bool dlb_tensor_follows_batch(const struct dlb_tensor *t)
{
	for (int i = 0; i < t->n_dims; i++)
		if (t->dim[i].mul)
			return true;
	return t->data_mul != NULL;
}

struct dlb_samples dlb_common_samples(const struct dlb_graph *g, const int *a, int n_a, const int *b, int n_b)
{
	const struct dlb_samples all = { 0 };
	struct dlb_samples s = all;
	bool any = false;

	for (int i = 0; i < n_a + n_b; i++) {
		const int t = i < n_a ? a[i] : b[i - n_a];
		if (t < 0 || !dlb_tensor_follows_batch(&g->tensor[t]))
			continue;
		if (any && (g->tensor[t].samples.parts != s.parts || g->tensor[t].samples.part != s.part))
			return all;
		s = g->tensor[t].samples;
		any = true;
	}
	return s;
}

struct dlb_samples dlb_op_samples(const struct dlb_graph *g, int op)
{
	const struct dlb_op *o = &g->op[op];

	return dlb_common_samples(g, o->in, o->n_in, o->out, o->n_out);
}

int64_t dlb_gcd(int64_t a, int64_t b)
{
	return b ? dlb_gcd(b, a % b) : a;
}

int dlb_graph_share_samples(struct dlb_graph *g, int64_t parts)
{
	const int64_t now = g->sample_shares > 1 ? g->sample_shares : 1;

	if (parts > 1)
		g->sample_shares = now * (parts / dlb_gcd(now, parts));
	return g->sample_shares > 1 << 20 ? -1 : 0;
}

int64_t dlb_graph_least_samples(const struct dlb_graph *g)
{
	int64_t least = 1;

	for (int t = 0; t < g->n_tensors; t++)
		if (g->tensor[t].samples.parts > least)
			least = g->tensor[t].samples.parts;
	return least;
}

struct dlb_desc dlb_tensor_desc(const struct dlb_tensor *t, int64_t n)
{
	struct dlb_desc d = { .dtype = t->dtype, .layout = t->layout, .n_dims = t->n_dims };
	n = dlb_samples_count(t->samples, n);
	for (int i = 0; i < t->n_dims; i++)
		d.dim[i] = t->dim[i].mul * n + t->dim[i].add;
	return d;
}

double dlb_tensor_bytes(const struct dlb_tensor *t, int64_t n)
{
	if (t->n_dims < 0)
		return t->size_mul * (double)n + t->size_add;
	double bytes = (double)dlb_dtype_bytes(t->dtype);
	n = dlb_samples_count(t->samples, n);
	for (int i = 0; i < t->n_dims; i++)
		bytes *= (double)t->dim[i].mul * (double)n + (double)t->dim[i].add;
	return bytes;
}

const void *dlb_tensor_value(const struct dlb_tensor *t, int64_t n, struct dlb_arena *a)
{
	if (t->data && !t->data_mul)
		return t->data;
	if (!t->data && !t->is_fill)
		return NULL;
	const struct dlb_desc d = dlb_tensor_desc(t, n);
	if (d.n_dims < 0)
		return NULL;
	const int64_t count = dlb_checked_count(d.dim, d.n_dims);
	if (count < 0 || (t->is_fill && count > MAX_VALUE_COUNT))
		return NULL;
	void *v = dlb_arena_array(a, count ? (size_t)count : 1, dlb_dtype_bytes(t->dtype));
	n = dlb_samples_count(t->samples, n);
	for (int64_t i = 0; i < count; i++) {
		if (t->is_fill)
			dlb_value_set(v, t->dtype, i, t->fill);
		else if (t->dtype == DLB_I64)	/* not rounded to a double: INT64_MAX ends a Slice */
			((int64_t *)v)[i] = ((const int64_t *)t->data)[i] + t->data_mul[i] * n;
		else
			dlb_value_set(v, t->dtype, i, dlb_value_real(t->data, t->dtype, i) +
				      (double)t->data_mul[i] * (double)n);
	}
	return v;
}

void dlb_graph_io(const struct dlb_graph *g, int op, int64_t n, struct dlb_arena *a, struct dlb_op_io *io)
{
	const struct dlb_op *o = &g->op[op];
	struct dlb_desc *desc = dlb_arena_array(a, (size_t)(o->n_in + o->n_out) + 1, sizeof *desc);
	const void **value = dlb_arena_array(a, (size_t)o->n_in + 1, sizeof *value);
	bool *weight = dlb_arena_array(a, (size_t)o->n_in + 1, sizeof *weight);

	for (int i = 0; i < o->n_in + o->n_out; i++) {
		const int id = i < o->n_in ? o->in[i] : o->out[i - o->n_in];
		desc[i].n_dims = -1;
		if (id < 0)
			continue;
		const struct dlb_tensor *t = &g->tensor[id];
		desc[i] = dlb_tensor_desc(t, n);
		if (i < o->n_in) {
			value[i] = t->kind == DLB_T_CONSTANT ? dlb_tensor_value(t, n, a) : NULL;
			weight[i] = t->kind == DLB_T_WEIGHT;
		}
	}
	const struct dlb_samples s = dlb_op_samples(g, op);
	*io = (struct dlb_op_io){
		.samples = dlb_samples_count(s, n), .first_sample = dlb_samples_first(s, n),
		.name = o->name, .cls = o->kind < 0 ? NULL : dlb_op_class_of(o->kind), .opset = o->opset,
		.attr = o->attr, .n_attr = o->n_attr, .n_in = o->n_in, .n_out = o->n_out,
		.in = desc, .out = desc + o->n_in, .value = value, .training = g->training, .weight = weight,
	};
}

/* Work at n samples: fixed + (whole - fixed) * n / batch. `whole` is the work at graph.batch; for a shard of
 * the samples it assumes equal shares, so n is replaced by the share's samples times the number of shares. */
static double at_batch(const struct dlb_graph *g, int op, double whole, double fixed, int64_t n)
{
	const struct dlb_samples s = whole > fixed ? dlb_op_samples(g, op) : (struct dlb_samples){ 0 };
	const double m = s.parts ? (double)dlb_samples_count(s, n) * s.parts : (double)n;

	return g->batch > 0 ? fixed + (whole - fixed) * m / (double)g->batch : whole;
}

double dlb_op_flop_at(const struct dlb_graph *g, int op, int64_t n)
{
	return at_batch(g, op, g->op[op].flop, g->op[op].flop_fixed, n);
}

double dlb_op_bytes_at(const struct dlb_graph *g, int op, int64_t n)
{
	return at_batch(g, op, g->op[op].bytes, g->op[op].bytes_fixed, n);
}

/* -- signatures -- */

static int by_attr_name(const void *a, const void *b)
{
	const struct dlb_attr *const *x = a, *const *y = b;
	return strcmp((*x)->name, (*y)->name);
}

static void print_attr(FILE *f, const struct dlb_attr *a)
{
	char text[200];
	fprintf(f, ";%s=", a->name);
	switch (a->type) {
	case DLB_ATTR_INT:
		fprintf(f, "%" PRId64, a->i);
		break;
	case DLB_ATTR_REAL:
		fprintf(f, "%.9g", a->f);
		break;
	case DLB_ATTR_STR:
		fputs(a->s, f);
		break;
	case DLB_ATTR_INTS:
		for (int i = 0; i < a->n; i++)
			fprintf(f, "%s%" PRId64, i ? "," : "", a->ints[i]);
		break;
	case DLB_ATTR_REALS:
		for (int i = 0; i < a->n; i++)
			fprintf(f, "%s%.9g", i ? "," : "", a->reals[i]);
		break;
	case DLB_ATTR_TENSOR:
		fprintf(f, "%s#%016" PRIx64, dlb_desc_str(&a->desc, text, sizeof text),
			dlb_hash_bytes(DLB_HASH_INIT, a->data, dlb_desc_bytes(&a->desc)));
		break;
	}
}

/* ";f32[32,1,28,28],w:f32[6,1,5,5],-": operands in order; "w:" marks a weight, whose packed form is kept. */
static void print_operands(FILE *f, const struct dlb_graph *g, const int *id, int n, int64_t batch,
			   char first)
{
	char text[200];
	for (int i = 0; i < n; i++) {
		fputc(i ? ',' : first, f);
		if (id[i] < 0) {
			fputc('-', f);
			continue;
		}
		const struct dlb_tensor *t = &g->tensor[id[i]];
		const struct dlb_desc d = dlb_tensor_desc(t, batch);
		if (t->kind == DLB_T_WEIGHT)
			fputs("w:", f);
		if (d.n_dims < 0)
			fprintf(f, "%.17gB", dlb_tensor_bytes(t, batch));
		else
			fputs(dlb_desc_str(&d, text, sizeof text), f);
	}
}

char *dlb_op_signature(const struct dlb_graph *g, int op, int64_t n, struct dlb_arena *a)
{
	const struct dlb_op *o = &g->op[op];
	char *text = NULL;
	size_t size = 0;
	FILE *f = open_memstream(&text, &size);
	const struct dlb_attr **attr = dlb_xcalloc((size_t)o->n_attr + 1, sizeof *attr);

	if (!f)
		dlb_bug("no memory stream");
	fprintf(f, "%s%s%s", o->domain, *o->domain ? "." : "", o->type);
	for (int i = 0; i < o->n_attr; i++)
		attr[i] = &o->attr[i];
	qsort(attr, (size_t)o->n_attr, sizeof *attr, by_attr_name);
	for (int i = 0; i < o->n_attr; i++)
		if (strcmp(attr[i]->name, DLB_ATTR_VERTEX) !=
		    0) /* the drawn numbers do not change the cost */
			print_attr(f, attr[i]);
	print_operands(f, g, o->in, o->n_in, n, ';');
	print_operands(f, g, o->out, o->n_out, n, '>');
	if (fclose(f) != 0)
		dlb_bug("no memory stream");
	char *key = dlb_arena_strdup(a, text);
	free(text);
	free(attr);
	return key;
}
