/* Fuzzer of operators: one vertex of any operator of ONNX and any opset, with the attributes that its
 * definition has (their values and the operands' types, shapes and values are drawn from the bytes) goes
 * the way of a model: folded, given a loss, differentiated, checked, and where it is small its kernels
 * run, forward and backward.
 *     make fuzz && build/fuzz/operators -max_len=400 -max_total_time=600 CORPUS */
#include <stdlib.h>
#include <string.h>
#include "graph/graph.h"
#include "graph/order.h"
#include "graph/passes.h"
#include "tensor/backend.h"

enum { MAX_IN = 8, MAX_LIST = 8, MAX_VALUES = 256, MAX_BYTES = 1 << 18 };

static struct dlb_backend be;
static const uint8_t *at, *end;

static int byte(void)
{
	return at < end ? *at++ : 0;
}

static int below(int n)
{
	return byte() % n;
}

static int64_t whole(void)
{
	static const int64_t odd[] = { INT64_MIN,        INT64_MAX,           INT32_MIN, INT32_MAX,
				       INT64_C(1) << 40, -(INT64_C(1) << 40), 100,       1000 };
	const int b = byte();

	return b < 240 ? b % 16 - 4 : odd[b % DLB_LEN(odd)];
}

static double real(void)
{
	static const double odd[] = { 0, 1e30, -1e30, 1e-30, .5, -.5, 1e9, 0x1p63 };
	const int b = byte();

	return b < 224 ? (b % 32 - 12) / 4. : odd[b % DLB_LEN(odd)];
}

static const char *word(void)
{
	static const char *const words[] = {
		"NOTSET",
		"SAME_UPPER",
		"SAME_LOWER",
		"VALID",
		"constant",
		"reflect",
		"edge",
		"wrap",
		"linear",
		"nearest",
		"cubic",
		"bilinear",
		"bicubic",
		"zeros",
		"border",
		"reflection",
		"half_pixel",
		"align_corners",
		"asymmetric",
		"pytorch_half_pixel",
		"floor",
		"ceil",
		"tf_crop_and_resize",
		"half_pixel_symmetric",
		"round_prefer_floor",
		"stretch",
		"not_larger",
		"not_smaller",
		"forward",
		"reverse",
		"bidirectional",
		"Tanh,Sigmoid,Relu",
		"Sigmoid,Tanh",
		"LeakyRelu",
		"none",
		"tanh",
		"add",
		"mul",
		"max",
		"min",
		"DCR",
		"CRD",
		"LEFT",
		"RIGHT",
		"mean",
		"sum",
		"avg",
		"output_half_pixel",
		"silu",
		"swish",
		"gated",
		"delta",
		"gated_delta",
		"ij,jk->ik",
		"...ij,...jk->...ik",
		"ii->i",
		"i,j->ij",
		"bhqd,bhkd->bhqk",
		"ij->",
		"->",
		",",
		"iij,i->j",
		"...,...",
		"a...b->b...a",
	};
	static char own[2 * MAX_LIST + 1];
	const int b = byte();

	if (b < 240)
		return words[b % DLB_LEN(words)];
	const int n = below(2 * MAX_LIST);
	for (int i = 0; i < n; i++) {
		own[i] = (char)byte();
		own[i] = own[i] > 0x20 && own[i] < 0x7f ? own[i] : ',';
	}
	own[n] = '\0';
	return own;
}

static enum dlb_dtype dtype(void)
{
	static const enum dlb_dtype types[] = { DLB_F32, DLB_F32,  DLB_F32, DLB_F32, DLB_I64,
						DLB_I64, DLB_BOOL, DLB_I32, DLB_F64, DLB_U8,
						DLB_I8,  DLB_F16,  DLB_U32, DLB_BF16 };
	return types[below(DLB_LEN(types))];
}

static void fill(void *to, enum dlb_dtype t, int64_t n)
{
	const int step = below(4);	/* 0: a value for each, else the same few again */
	double seen[4] = { 0 };

	for (int64_t i = 0; i < n; i++) {
		if (!step || i < step)
			seen[i % 4] = dlb_dtype_is_float(t) ?
					      real() :
				      t == DLB_BOOL ?
					      below(2) :
					      (double)(below(16) - 4 * (t == DLB_I64 || t == DLB_I32));
		dlb_value_set(to, t, i, seen[step ? i % step : i % 4]);
	}
}

/* -- one vertex -- */

/* Shapes repeat, so that operands often fit each other. */
static void shape(struct dlb_tensor *x, const struct dlb_tensor *other)
{
	const int how = byte();

	if (other && how % 4 == 0) {
		x->n_dims = other->n_dims;
		memcpy(x->dim, other->dim, sizeof x->dim);
		return;
	}
	x->n_dims = how / 4 % 7;
	for (int k = 0; k < x->n_dims; k++) {
		const int b = byte();
		x->dim[k] = (struct dlb_dim){ 0, b < 250 ? b % 5 + (b < 200) : b == 255 ? 70 : 0 };
	}
}

static int operand(struct dlb_graph *g, int k)
{
	static const char *const names[MAX_IN] = { "a", "b", "c", "d", "e", "f", "g", "h" };
	const int how = byte();

	if (how >= 240)
		return -1;
	const bool fed = how % 2 == 0;
	const int t = dlb_graph_add_tensor(g, names[k], fed ? DLB_T_INPUT : DLB_T_CONSTANT);
	struct dlb_tensor *x = &g->tensor[t];
	x->dtype = dtype();
	shape(x, t ? &g->tensor[0] : NULL);
	if (fed) {
		if (x->n_dims && how % 4 == 2)
			x->dim[0] = (struct dlb_dim){ 1, 0 };
		g->input[g->n_inputs++] = t;
		return t;
	}
	int64_t count = 1;
	for (int i = 0; i < x->n_dims; i++) {		/* fixed, and few elements */
		const int64_t n = x->dim[i].add + 2 * x->dim[i].mul;
		x->dim[i] = (struct dlb_dim){ 0, count * n > MAX_VALUES ? 1 : n };
		count *= x->dim[i].add;
	}
	void *data = dlb_arena_array(&g->arena, (size_t)count + 1, dlb_dtype_bytes(x->dtype));
	if (x->dtype == DLB_I64)
		for (int64_t i = 0; i < count; i++)
			((int64_t *)data)[i] = whole();
	else
		fill(data, x->dtype, count);
	x->data = data;
	x->initial = dlb_dtype_is_float(x->dtype);
	return t;
}

static bool attribute(struct dlb_graph *g, struct dlb_attr *a, const char *name, enum dlb_attr_type type)
{
	if (below(3) == 0)
		return false;
	*a = (struct dlb_attr){ .name = name, .type = type };
	if (type == DLB_ATTR_INT)
		a->i = whole();
	else if (type == DLB_ATTR_REAL)
		a->f = real();
	else if (type == DLB_ATTR_STR)
		a->s = dlb_arena_strdup(&g->arena, word());
	if (type < DLB_ATTR_INTS)
		return true;
	a->n = below(MAX_LIST);
	int64_t *ints = dlb_arena_array(&g->arena, MAX_LIST, sizeof *ints);
	double *reals = dlb_arena_array(&g->arena, MAX_LIST, sizeof *reals);
	for (int i = 0; i < a->n; i++) {
		ints[i] = type == DLB_ATTR_INTS ? whole() : 0;
		reals[i] = type == DLB_ATTR_REALS ? real() : 0;
	}
	a->ints = ints;
	a->reals = reals;
	if (type == DLB_ATTR_TENSOR) {		/* one element, or a few */
		a->desc = (struct dlb_desc){ .dtype = dtype(), .n_dims = 1, .dim = { a->n > 4 ? a->n : 1 } };
		a->n = 0;
		void *data = dlb_arena_array(&g->arena, MAX_LIST, sizeof(double));
		fill(data, a->desc.dtype, a->desc.dim[0]);
		a->data = data;
	}
	return true;
}

static void make(struct dlb_graph *g)
{
	const char *name[DLB_MAX_ATTRIBUTES];
	enum dlb_attr_type type[DLB_MAX_ATTRIBUTES];
	struct dlb_attr attr[DLB_MAX_ATTRIBUTES];
	int in[MAX_IN], out[4], n_attr = 0, kind = byte();
	const struct dlb_op_class *c;

	while (dlb_op_kind_find((c = dlb_op_class_of(kind % DLB_N_OPS))->name, "") != kind % DLB_N_OPS)
		kind++;			/* one of dlb's own, whose attributes dlb itself makes */
	dlb_graph_init(g);
	g->opset = 6 + below(23);
	g->input = dlb_arena_array(&g->arena, MAX_IN, sizeof *g->input);
	g->output = dlb_arena_array(&g->arena, 4, sizeof *g->output);
	const int most = c->n_in[1] < 0 || c->n_in[1] > MAX_IN ? MAX_IN : c->n_in[1];
	const int n_in = c->n_in[0] + (most > c->n_in[0] ? below(most - c->n_in[0] + 1) : 0);
	const int n_out = c->n_out[0] + (c->n_out[1] > c->n_out[0] ? below(2) : 0);
	for (int k = 0; k < n_in && k < MAX_IN; k++)
		in[k] = operand(g, k);
	for (int k = 0; k < n_out && k < 4; k++) {
		out[k] = dlb_graph_add_tensor(g, (const char *const[]){ "y", "z", "u", "v" }[k],
					      DLB_T_ACTIVATION);
		g->tensor[out[k]].producer = 0;
		g->output[g->n_outputs++] = out[k];
	}
	const int n = dlb_op_attributes(c->name, g->opset, name, type);
	for (int i = 0; i < n; i++)
		n_attr += attribute(g, &attr[n_attr], name[i], type[i]);
	dlb_graph_add_op(g, DLB_FORWARD,
			 &(struct dlb_op_spec){ .name = "vertex", .type = c->name, .in = in,
						.n_in = n_in < MAX_IN ? n_in : MAX_IN, .out = out,
						.n_out = g->n_outputs, .attr = attr, .n_attr = n_attr });
}

/* -- the way of a model -- */

static double bytes_of(const struct dlb_graph *g, int64_t n)
{
	double sum = 0;

	for (int t = 0; t < g->n_tensors; t++)
		sum += dlb_tensor_bytes(&g->tensor[t], n);
	return sum;
}

static void run_op(const struct dlb_graph *g, int op, int64_t n, void *const *value)
{
	const struct dlb_op *o = &g->op[op];
	struct dlb_arena a = { 0 };
	struct dlb_op_io io;
	struct dlb_kernel *k = NULL;
	struct dlb_error err = { .what = "" };
	void **in = dlb_arena_array(&a, (size_t)o->n_in + 1, sizeof *in),
	     **out = dlb_arena_array(&a, (size_t)o->n_out + 1, sizeof *out);

	for (int i = 0; i < o->n_in; i++)
		in[i] = o->in[i] < 0 ? NULL : value[o->in[i]];
	for (int i = 0; i < o->n_out; i++)
		out[i] = o->out[i] < 0 ? NULL : value[o->out[i]];
	dlb_graph_io(g, op, n, &a, &io);
	if (!dlb_op_kernel(&be, &io, &k, &err) && k->scratch_bytes < 64 * MAX_BYTES) {
		void *scratch = be.ops->alloc(&be, k->scratch_bytes + 1);
		const struct dlb_run run = {
			.in = in, .out = out, .scratch = scratch, .seed = 1, .vertex = (uint64_t)op
		};
		k->run(k, &run);
		if (be.ops->sync(&be, &err))
			dlb_bug("ran, but not to its end: %s", err.what);
		be.ops->free(&be, scratch);
	}
	dlb_kernel_free(k);
	dlb_arena_release(&a);
}

/* Every tensor in memory of its own, so that what reads or writes past one is seen. */
static void run(const struct dlb_graph *g, int64_t n)
{
	void **value = dlb_xcalloc((size_t)g->n_tensors + 1, sizeof *value);
	struct dlb_arena a = { 0 };

	for (int t = 0; t < g->n_tensors; t++) {
		const struct dlb_tensor *x = &g->tensor[t];
		const struct dlb_desc d = dlb_tensor_desc(x, n);
		value[t] = aligned_alloc(64, (dlb_desc_bytes(&d) + 64) / 64 * 64);
		memset(value[t], 0, (dlb_desc_bytes(&d) + 64) / 64 * 64);
		if (x->is_fill)
			for (int64_t i = 0; i < dlb_desc_count(&d); i++)
				dlb_value_set(value[t], x->dtype, i, x->fill);
		else if (x->data)
			memcpy(value[t], dlb_tensor_value(x, n, &a), dlb_desc_bytes(&d));
		else if (x->kind == DLB_T_INPUT)
			fill(value[t], x->dtype, dlb_desc_count(&d));
	}
	for (int i = 0; i < g->n_ops; i++)
		if (g->op[i].phase != DLB_UPDATE)
			run_op(g, i, n, value);
	for (int t = 0; t < g->n_tensors; t++)
		free(value[t]);
	free(value);
	dlb_arena_release(&a);
}

static int differentiate(struct dlb_graph *g, struct dlb_error *err)
{
	return dlb_graph_find_parameters(g, err) || dlb_graph_attach_loss(g, "sum", err) ||
			       dlb_graph_rewrite(g, err) || dlb_graph_choose_layout(g, err) ||
			       dlb_graph_differentiate(g, err) ?
		       -1 :
		       0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct dlb_error err = { .what = "" };
	struct dlb_graph g;

	if (!be.ops && dlb_backend_find("cpu")->open(0, 1, &be, &err))
		dlb_bug("no back end: %s", err.what);
	at = data;
	end = data + size;
	make(&g);
	const struct dlb_op *o = &g.op[0];
	const bool train = byte() % 4 != 0;
	g.training = train;
	if (dlb_op_check_attributes(o->type, o->opset, o->attr, o->n_attr, &err) || dlb_graph_index(&g) ||
	    dlb_graph_check(&g, &err) || dlb_graph_size_inputs(&g, &err) ||
	    dlb_graph_fold(&g, 2, &be, &err) || (train && differentiate(&g, &err))) {
		if (!err.what[0])
			dlb_bug("refused without a word");
		dlb_graph_release(&g);
		return 0;
	}
	if (dlb_graph_check(&g, &err) || dlb_graph_index(&g) || dlb_graph_check_runnable(&g, g.batch, &err))
		dlb_bug("made, but broken: %s: %s", err.where, err.what);
	if (bytes_of(&g, g.batch) < MAX_BYTES)
		run(&g, g.batch);
	dlb_graph_release(&g);
	return 0;
}
