/* Fuzzer of what is trained: a few layers whose initializers are made of a state_dict's entries as
 * exporters make them (transposed, cut, joined, repeated, gates in another order) or otherwise, with a
 * list of names and options, all drawn from the bytes. What is found in the state_dict must make the
 * initializer again, bit by bit; the graph is then written, read, folded and differentiated.
 *     make fuzz && build/fuzz/parameters -max_len=600 -max_total_time=600 CORPUS */
#include <stdlib.h>
#include <string.h>
#include "graph/derived.h"
#include "graph/graph.h"
#include "graph/graph_json.h"
#include "graph/order.h"
#include "graph/passes.h"
#include "tensor/backend.h"

enum { MAX_ENTRIES = 8, MAX_INITIALIZERS = 6, POOL = 4096, MOST = 512 };

static struct dlb_backend be;
static const uint8_t *at, *end;
static _Alignas(64) float pool[POOL];

static int byte(void)
{
	return at < end ? *at++ : 0;
}

static int below(int n)
{
	return byte() % n;
}

static const char *const names[] = { "fc.weight",       "fc.bias",     "val_1",
				     "val_2",           "pos.pe",      "cls",
				     "wte.weight",      "head.weight", "lstm.weight_ih_l0",
				     "lstm.bias_ih_l0", "norm.weight", "norm.bias",
				     "running_mean",    "mask",        "[0]*" };

/* -- the state_dict -- */

static void shape(int *n_dims, int64_t *dim, int most)
{
	*n_dims = below(most + 1);
	for (int i = 0; i < *n_dims; i++)
		dim[i] = below(7);
}

static int make_entries(struct dlb_named *e)
{
	static const enum dlb_dtype types[] = { DLB_F32, DLB_F32, DLB_F32,  DLB_F32, DLB_F32,
						DLB_F64, DLB_F16, DLB_BF16, DLB_I64 };
	const int n = below(MAX_ENTRIES + 1), first = below(DLB_LEN(names));

	for (int i = 0; i < n; i++) {
		const int how = byte();
		e[i] = (struct dlb_named){ .name = names[(first + i) % DLB_LEN(names)],
					   .desc = { .dtype = types[how % DLB_LEN(types)] } };
		shape(&e[i].desc.n_dims, e[i].desc.dim, 4);
		/* numbers, zeros, or numbers that another entry has too; aligned, as the reader of files
		 * sees to */
		const int64_t count = dlb_desc_count(&e[i].desc);
		const int start = how % 3 == 0 ? POOL - MOST * 2 : how % 3 == 1 ? 0 : 38 * i;
		e[i].data = count <= MOST ? pool + start : NULL;
		if (!e[i].data)
			return i;
	}
	return n;
}

/* -- the model -- */

struct made { float v[MOST]; int n_dims; int64_t dim[DLB_MAX_DIMS]; };

static int64_t count_of(const struct made *m)
{
	int64_t n = 1;

	for (int i = 0; i < m->n_dims; i++)
		n *= m->dim[i];
	return n;
}

static void set(struct made *m, int n_dims, int64_t a, int64_t b, int64_t c)
{
	m->n_dims = n_dims;
	m->dim[0] = a;
	m->dim[1] = b;
	m->dim[2] = c;
	if (count_of(m) > MOST)
		m->dim[0] = 1;
	if (count_of(m) > MOST)
		m->dim[1] = 1;
}

/* What an exporter makes of an entry of the state_dict (seen as a matrix of rows), or of two. */
static void fold(struct made *m, const struct dlb_named *e, const struct dlb_named *second)
{
	const int64_t n = dlb_desc_count(&e->desc), rows = e->desc.n_dims ? e->desc.dim[0] : 1,
		      width = rows ? n / rows : 0;
	const int how = below(7), first = rows ? below((int)rows) : 0;
	const int64_t n2 = dlb_desc_count(&second->desc);

	if (how == 0 && rows) {				/* transposed */
		set(m, 2, width, rows, 0);
		for (int64_t i = 0; i < count_of(m); i++)
			m->v[i] = (float)dlb_value_real(e->data, e->desc.dtype, i % rows * width + i / rows);
	} else if (how == 1 && rows) {			/* the first of its rows, or some */
		set(m, 2, 1 + below((int)(rows - first)), width, 0);
		for (int64_t i = 0; i < count_of(m); i++)
			m->v[i] = (float)dlb_value_real(e->data, e->desc.dtype, first * width + i);
	} else if (how == 2 && n) {			/* repeated */
		set(m, 3, 1 + below(4), 1, n);
		for (int64_t i = 0; i < count_of(m); i++)
			m->v[i] = (float)dlb_value_real(e->data, e->desc.dtype, i % n);
	} else if (how == 3 && rows % 4 == 0 && rows) {	/* gates in ONNX's order */
		static const int order[] = { 0, 3, 1, 2 };
		set(m, 3, 1, rows, width);
		for (int64_t i = 0; i < count_of(m); i++)
			m->v[i] = (float)dlb_value_real(e->data, e->desc.dtype,
							order[i / (n / 4)] * (n / 4) + i % (n / 4));
	} else if (how == 4 && n + n2 && n + n2 <= MOST) {	/* two, one after the other */
		set(m, 1, n + n2, 0, 0);
		for (int64_t i = 0; i < n + n2; i++)
			m->v[i] = (float)(i < n ? dlb_value_real(e->data, e->desc.dtype, i) :
						  dlb_value_real(second->data, second->desc.dtype, i - n));
	} else {
		m->n_dims = e->desc.n_dims;
		memcpy(m->dim, e->desc.dim, sizeof m->dim);
		for (int64_t i = 0; i < n; i++)
			m->v[i] = (float)dlb_value_real(e->data, e->desc.dtype, i);
	}
}

static int initializer(struct dlb_graph *g, const char *name, const struct dlb_named *e, int n_entries)
{
	const int t = dlb_graph_add_tensor(g, name, DLB_T_CONSTANT), how = byte();
	struct made *m = dlb_arena_alloc(&g->arena, sizeof *m);
	struct dlb_tensor *x = &g->tensor[t];

	if (n_entries && how % 4) {
		fold(m, &e[how / 4 % n_entries], &e[(how / 4 + 1) % n_entries]);
	} else {
		shape(&m->n_dims, m->dim, 3);
		memcpy(m->v, pool + 11 * below(64), sizeof m->v);
	}
	x->dtype = DLB_F32;
	x->n_dims = m->n_dims;
	for (int i = 0; i < m->n_dims; i++)
		x->dim[i] = (struct dlb_dim){ 0, m->dim[i] };
	x->data = m->v;
	x->initial = x->in_model = true;
	return t;
}

static int vertex(struct dlb_graph *g, int i, int in, const int *weight, int n_weights)
{
	static const char *const types[] = { "MatMul",
					     "Gemm",
					     "Add",
					     "Mul",
					     "Gather",
					     "Conv",
					     "LSTM",
					     "Transpose",
					     "LayerNormalization",
					     "Concat",
					     "BatchNormalization",
					     "PRelu",
					     "Sub",
					     "Reshape",
					     "Where",
					     "Expand",
					     "Unsqueeze",
					     "RMSNormalization",
					     "GRU",
					     "Pow" };
	static const char *const vertices[] = { "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7" },
				 *const made[] = { "y0", "y1", "y2", "y3", "y4", "y5", "y6", "y7" };
	const char *type = types[below(DLB_LEN(types))];
	const int out = dlb_graph_add_tensor(g, made[i], DLB_T_ACTIVATION), how = byte(), n = 1 + how / 4 % 3;
	int operand[4] = { in };

	for (int k = 0; k < n; k++)
		operand[k + 1] = weight[(how + k * (1 + how / 64)) % n_weights];
	if (how % 4 == 0) {		/* the weight first, as Gather has it */
		operand[0] = operand[1];
		operand[1] = in;
	}
	const struct dlb_attr axis = { .name = "axis", .type = DLB_ATTR_INT, .i = below(3) - 1 };
	const bool has_axis = !strcmp(type, "Gather") || !strcmp(type, "Concat");
	dlb_graph_add_op(g, DLB_FORWARD,
			 &(struct dlb_op_spec){ .name = vertices[i], .type = type, .in = operand,
						.n_in = 1 + n, .out = &out, .n_out = 1, .attr = &axis,
						.n_attr = has_axis });
	g->tensor[out].producer = i;
	int *uses = dlb_arena_array(&g->arena, 3, sizeof *uses);
	g->op[i].n_uses = g->n_listed ? below(4) : 0;
	for (int k = 0; k < g->op[i].n_uses; k++)
		uses[k] = below(g->n_listed);
	g->op[i].uses = uses;
	return out;
}

static void list(struct dlb_graph *g)
{
	const int first = below(DLB_LEN(names));

	g->n_listed = below(6);
	g->listed = dlb_arena_array(&g->arena, (size_t)g->n_listed + 1, sizeof *g->listed);
	for (int i = 0; i < g->n_listed; i++) {
		const int how = byte();
		const char *name = names[(first + i) % DLB_LEN(names)];
		g->listed[i] = (struct dlb_listed){ name, name,
						    how % 4 == 0 ? DLB_LISTED_BUFFER :
						    how % 4 == 3 ? DLB_LISTED_CONSTANT :
								   DLB_LISTED_PARAMETER,
						    how % 8 > 1 };
	}
}

static void make(struct dlb_graph *g, const struct dlb_named *e, int n_entries)
{
	int weight[MAX_INITIALIZERS];
	const int n = 1 + below(MAX_INITIALIZERS), n_ops = 1 + below(6), first = below(DLB_LEN(names));

	dlb_graph_init(g);
	g->opset = 9 + below(16);
	list(g);
	g->input = dlb_arena_array(&g->arena, 1, sizeof *g->input);
	g->output = dlb_arena_array(&g->arena, 1, sizeof *g->output);
	const int x = dlb_graph_add_tensor(g, "x", DLB_T_INPUT);
	g->input[g->n_inputs++] = x;
	g->tensor[x].dtype = byte() % 8 ? DLB_F32 : DLB_I64;
	g->tensor[x].n_dims = 1 + below(4);
	for (int i = 0; i < g->tensor[x].n_dims; i++)
		g->tensor[x].dim[i] = (struct dlb_dim){ i == 0, i ? 1 + below(6) : 0 };
	for (int i = 0; i < n; i++)
		weight[i] = initializer(g, names[(first + i) % DLB_LEN(names)], e, n_entries);
	int y = x;
	for (int i = 0; i < n_ops; i++)
		y = vertex(g, i, y, weight, n);
	g->output[g->n_outputs++] = y;
}

/* -- what must hold -- */

/* before: as read. What is made of the state_dict has the values that the model has. */
static void check_derived(const struct dlb_graph *before, const struct dlb_graph *g,
			  const struct dlb_named *e, int n)
{
	for (int i = 0; i < g->n_derived; i++) {
		const struct dlb_derived *d = &g->derived[i];
		const void *source[16];
		float out[MOST], part[16][MOST];
		int t = 0, n_known = 0, n_state = 0;
		if (!dlb_derived_fits(d))
			dlb_bug("'%s' does not fit", d->name);
		while (t < before->n_tensors && strcmp(before->tensor[t].name, d->name))
			t++;
		/* else it is made of a parameter of the model's own, which may have got another value by
		 * its name */
		for (int k = 0; k < d->n_parts; k++)
			for (int s = 0; s < g->n_tensors; s++)
				n_state += g->tensor[s].in_state &&
					   !strcmp(g->tensor[s].name, d->part[k].of) &&
					   s >= before->n_tensors;
		for (int k = 0; k < d->n_parts && k < 16; k++)
			for (int s = 0; s < n; s++)
				if (!strcmp(e[s].name, d->part[k].of)) {
					for (int64_t j = 0; j < dlb_desc_count(&e[s].desc); j++)
						part[k][j] = (float)dlb_value_real(e[s].data, e[s].desc.dtype,
										   j);
					source[k] = part[k];
					n_known++;
					break;
				}
		if (t == before->n_tensors || n_known != d->n_parts || n_state != d->n_parts)
			continue;
		const struct dlb_desc desc = dlb_tensor_desc(&before->tensor[t], 1);
		dlb_derived_value(d, source, DLB_F32, out);
		if (memcmp(out, before->tensor[t].data, dlb_desc_bytes(&desc)))
			dlb_bug("'%s' is made of the state_dict, but is another", d->name);
	}
}

static void write_and_read(struct dlb_graph *g)
{
	struct dlb_error err = { .what = "" };
	struct dlb_graph back;
	struct dlb_doc d;

	g->batch = 2;
	if (dlb_graph_check(g, &err))
		dlb_bug("made, but broken: %s: %s", err.where, err.what);
	dlb_doc_init(&d, "fuzz");
	dlb_doc_set(&d, "graph", dlb_graph_write(g));
	if (dlb_graph_read(&d, &back, &err))
		dlb_bug("written, but not read: %s: %s", err.where, err.what);
	dlb_graph_release(&back);
	dlb_doc_release(&d);
}

static int choose(struct dlb_graph *g, struct dlb_error *err)
{
	static const char *const globs[] = {
		"*", "fc.*", "*weight", "[0]*", "val_?", "norm.weight", "nothing"
	};
	struct dlb_parameter_choice c = { .untie = byte() % 4 == 0 };
	const int how = byte();
	const char *item = globs[how / 4 % DLB_LEN(globs)];
	const struct dlb_patterns p = { .what = "--it", .item = &item, .n = 1 };

	if (how % 4 == 1)
		c.train = p;
	else if (how % 4 == 2)
		c.freeze = p;
	else if (how % 4 == 3)
		c.train_only = p;
	return dlb_graph_choose_parameters(g, &c, err);
}

static int train(struct dlb_graph *g, struct dlb_error *err)
{
	return dlb_graph_size_inputs(g, err) || dlb_graph_fold(g, 2, &be, err) ||
			       dlb_graph_find_parameters(g, err) || dlb_graph_attach_loss(g, "sum", err) ||
			       dlb_graph_rewrite(g, err) || dlb_graph_choose_layout(g, err) ||
			       dlb_graph_differentiate(g, err) ?
		       -1 :
		       0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct dlb_error err = { .what = "" };
	struct dlb_named e[MAX_ENTRIES];
	struct dlb_graph read, g;

	if (!be.ops && dlb_backend_find("cpu")->open(0, 1, &be, &err))
		dlb_bug("no back end: %s", err.what);
	for (int i = 0; i < POOL - 4 * MOST; i++)
		pool[i] = (float)(i * 7919 % 1009) / 64;
	at = data;
	end = data + size;
	const int n = make_entries(e);
	make(&read, e, n);
	dlb_graph_copy(&read, &g);
	g.training = true;
	if (dlb_graph_unmerge(&g, &err) ||
	    (n ? dlb_graph_take_state(&g, e, n, byte() % 4 == 0, &err) :
		 dlb_graph_tie(&g, byte() % 4 == 0, &err)) ||
	    choose(&g, &err)) {
		if (!err.what[0])
			dlb_bug("refused without a word");
	} else {
		check_derived(&read, &g, e, n);
		if (!train(&g, &err))
			write_and_read(&g);
		else if (!err.what[0])
			dlb_bug("refused without a word");
	}
	dlb_graph_release(&g);
	dlb_graph_release(&read);
	return 0;
}
