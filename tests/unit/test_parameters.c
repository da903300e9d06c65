/* Which initializers are parameters, and how folded parameters are found in the module's state_dict. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "graph/derived.h"
#include "graph/order.h"
#include "graph/passes.h"
#include "graph/role.h"
#include "check.h"

static struct dlb_error err;

static int constant(struct dlb_graph *g, const char *name, const float *v, int n_dims, const int64_t *dim)
{
	const int t = dlb_graph_add_tensor(g, name, DLB_T_CONSTANT);
	struct dlb_tensor *x = &g->tensor[t];

	x->n_dims = n_dims;
	for (int i = 0; i < n_dims; i++)
		x->dim[i] = (struct dlb_dim){ 0, dim[i] };
	x->data = v;
	x->initial = x->in_model = true;
	return t;
}

#define DIMS(...) (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), (const int64_t[]){ __VA_ARGS__ }

static int op(struct dlb_graph *g, const char *name, const char *type, const int *in, int n_in)
{
	const int out = dlb_graph_add_tensor(g, name, DLB_T_ACTIVATION);
	const int id = dlb_graph_add_op(g, DLB_FORWARD,
					&(struct dlb_op_spec){ .name = name, .type = type, .in = in,
							       .n_in = n_in, .out = &out, .n_out = 1 });

	g->tensor[out].producer = id;
	return out;
}
#define OP(g, name, type, ...) op(g, name, type, (const int[]){ __VA_ARGS__ }, (int)(sizeof((int[]){ __VA_ARGS__ }) / sizeof(int)))

static int input(struct dlb_graph *g, const char *name)
{
	const int t = dlb_graph_add_tensor(g, name, DLB_T_INPUT);

	g->input = dlb_arena_array(&g->arena, 1, sizeof *g->input);
	g->input[0] = t;
	g->n_inputs = 1;
	return t;
}

static void output(struct dlb_graph *g, int t)
{
	g->output = dlb_arena_array(&g->arena, 1, sizeof *g->output);
	g->output[0] = t;
	g->n_outputs = 1;
}

static void list(struct dlb_graph *g, const struct dlb_listed *item, int n)
{
	g->listed = dlb_arena_array(&g->arena, (size_t)n, sizeof *item);
	memcpy(g->listed, item, (size_t)n * sizeof *item);
	g->n_listed = n;
}

static const struct dlb_tensor *find(const struct dlb_graph *g, const char *name)
{
	for (int t = 0; t < g->n_tensors; t++)
		if (!strcmp(g->tensor[t].name, name))
			return &g->tensor[t];
	return NULL;
}

static float *numbers(int n, unsigned seed)
{
	static float pool[1 << 16];
	static int used;
	float *v = &pool[used];

	used += n;
	assert(used <= 1 << 16);
	for (int i = 0; i < n; i++) {
		seed = seed * 1664525u + 1013904223u;
		v[i] = (float)(seed >> 8) / (float)(1 << 24) - .5f;
	}
	return v;
}

/* x W + b, times a scalar, with a mask and a table of sines: an initializer with a module's name is judged by
 * its use too. */
static void test_roles(void)
{
	static const float half = .5f, mask[4] = { 0, -1e9f, 0, -1e9f };
	static float sines[8 * 4];
	struct dlb_graph g;
	struct dlb_parameter_choice c = { .untie = false };

	for (int i = 0; i < 32; i++)
		sines[i] = (float)(i % 2 ? cos(i / 4 * pow(.1, i % 4 / 2)) : sin(i / 4 * pow(.1, i % 4 / 2)));
	dlb_graph_init(&g);
	const int x = input(&g, "x"), mean = constant(&g, "mean", numbers(4, 1), DIMS(1, 4));
	const int w = constant(&g, "val_1", numbers(16, 2), DIMS(4, 4)),
		  b = constant(&g, "val_2", numbers(4, 3), DIMS(4));
	const int s = constant(&g, "val_3", &half, 0, NULL), k = constant(&g, "val_4", mask, DIMS(1, 4));
	const int p = constant(&g, "p.pe", sines, DIMS(8, 4)),
		  e = constant(&g, "pos", numbers(32, 5), DIMS(8, 4));
	const int y = OP(&g, "add", "Add", OP(&g, "mm", "MatMul", OP(&g, "sub", "Sub", x, mean), w), b);
	const int z = OP(&g, "add2", "Add", OP(&g, "mul", "Mul", y, s), k);
	output(&g, OP(&g, "add4", "Add", OP(&g, "add3", "Add", z, p), e));
	assert(!dlb_graph_choose_parameters(&g, &c, &err));
	assert(g.tensor[w].initial && g.tensor[b].initial && g.tensor[e].initial);
	assert(!g.tensor[s].initial && !g.tensor[k].initial && !g.tensor[p].initial &&
	       !g.tensor[mean].initial);
	assert(IS(g.tensor[w].rule, ==, DLB_BY_ROLE) && HAS(g.tensor[w].why, "operand 1 of MatMul 'mm'"));
	assert(SAME(g.tensor[s].why, "a scalar") && IS(g.n_untrained, ==, 4));
	dlb_graph_release(&g);
}

/* In double precision, the weight of a layer over a table of time steps, which has no name of the list, stays
 * one tensor of f64; a buffer keeps the file's value, and a constant its decimal value. */
static void test_widened(void)
{
	static const int64_t step[4] = { 0, 1, 2, 3 };
	static const float third = .3f;
	struct dlb_graph g;
	struct dlb_parameter_choice c = { .untie = false };
	const struct dlb_attr to = { .name = "to", .type = DLB_ATTR_INT, .i = dlb_dtype_to_onnx(DLB_F32) };

	dlb_graph_init(&g);
	const int x = input(&g, "x"), steps = constant(&g, "steps", NULL, DIMS(4, 1));
	g.tensor[steps].dtype = DLB_I64;
	g.tensor[steps].data = step;
	const int w = constant(&g, "val_1", numbers(4, 7), DIMS(1, 4)),
		  b = constant(&g, "scale", &third, DIMS(1));
	const int k = constant(&g, "val_2", &third, DIMS(1)), time = OP(&g, "cast", "Cast", steps);
	g.op[g.tensor[time].producer].attr = dlb_attr_copy(&g.arena, &to, 1);
	g.op[g.tensor[time].producer].n_attr = 1;
	const int y = OP(&g, "mm", "MatMul", time, w);
	output(&g, OP(&g, "add", "Add", OP(&g, "mul2", "Mul", OP(&g, "mul", "Mul", x, b), k), y));
	list(&g,
	     (const struct dlb_listed[]){
		     { .name = "time.weight", .input = "p_w", .kind = DLB_LISTED_PARAMETER },
		     { .name = "scale", .input = "b_scale", .kind = DLB_LISTED_BUFFER } },
	     2);
	assert(!dlb_graph_choose_parameters(&g, &c, &err) && g.tensor[w].initial && !g.tensor[b].initial);
	dlb_graph_widen(&g);
	assert(IS(g.tensor[w].dtype, ==, DLB_F64) && IS(g.op[g.tensor[y].producer].in[1], ==, w) &&
	       IS(g.tensor[time].dtype, ==, DLB_F32));
	assert(IS(*(const double *)g.tensor[b].data, ==, (double)third) &&
	       IS(*(const double *)g.tensor[k].data, ==, .3));
	dlb_graph_release(&g);
}

/* The list names buffers; options override it; a pattern without a match is refused. */
static void test_list_and_options(void)
{
	static const struct dlb_listed listed[] = { { "w", "p_w", DLB_LISTED_PARAMETER, true },
						    { "filter", "b_filter", DLB_LISTED_BUFFER, true } };
	struct dlb_graph g;

	for (int turn = 0; turn < 4; turn++) {
		struct dlb_parameter_choice c = { .untie = false };
		dlb_graph_init(&g);
		list(&g, listed, 2);
		const int x = input(&g, "x"), w = constant(&g, "w", numbers(16, 2), DIMS(4, 4)),
			  f = constant(&g, "filter", numbers(16, 4), DIMS(4, 4));
		output(&g, OP(&g, "mm2", "MatMul", OP(&g, "mm", "MatMul", x, f), w));
		const char *name = turn == 1 ? "fil*" : turn == 2 ? "w" : "v";
		const struct dlb_patterns given = { .what = "--freeze", .item = &name, .n = 1 };
		if (turn == 1)
			c.train = given;
		else if (turn)
			c.freeze = given;
		assert(IS(dlb_graph_choose_parameters(&g, &c, &err), ==, (turn == 3 ? -1 : 0)));
		if (turn < 3)
			assert(IS(g.tensor[w].initial, ==, (turn != 1)) &&
			       IS(g.tensor[f].initial, ==, (turn == 1)) &&
			       IS(g.tensor[w].frozen, ==, (turn == 2)));
		else
			assert(HAS(err.what, "no weight matches 'v'"));
		dlb_graph_release(&g);
	}
}

static struct dlb_named named(const char *name, const float *v, int n_dims, const int64_t *dim)
{
	struct dlb_named e = { .name = name, .data = v, .desc = { .dtype = DLB_F32, .n_dims = n_dims } };

	memcpy(e.desc.dim, dim, (size_t)n_dims * sizeof *dim);
	return e;
}

/* The folded initializer is made again from the entries, bit for bit. */
static void check_derived(const struct dlb_graph *g, const struct dlb_named *e, int n, const char *name,
			  const float *want, int count)
{
	float out[512];

	for (int i = 0; i < g->n_derived; i++) {
		const struct dlb_derived *d = &g->derived[i];
		const void *source[16];
		if (strcmp(d->name, name))
			continue;
		for (int k = 0; k < d->n_parts; k++)
			for (int s = 0; s < n; s++)
				if (!strcmp(e[s].name, d->part[k].of))
					source[k] = e[s].data;
		assert(IS(count, <=, 512) && dlb_derived_fits(d));
		dlb_derived_value(d, source, DLB_F32, out);
		assert(!memcmp(out, want, (size_t)count * sizeof(float)));
		return;
	}
	printf("%s was not found\n", name);
	assert(false);
}

/* A function of each element that the exporter computed from an entry; equal elements are no evidence. */
static void test_functions_of_entries(void)
{
	const float *scale = numbers(8, 21), *decay = numbers(8, 22), *gain = numbers(6, 23),
		    *rate = numbers(5, 24);
	static const float zeros[8] = { 0 };
	static float one_plus[8], minus_exp[8], exp_[6], soft[5], ones[8];
	struct dlb_graph g;

	for (int i = 0; i < 8; i++) {
		one_plus[i] = 1 + scale[i];
		minus_exp[i] = (float)-exp((double)decay[i]);
		ones[i] = 1;
	}
	for (int i = 0; i < 6; i++)
		exp_[i] = (float)exp((double)gain[i]);
	for (int i = 0; i < 5; i++)
		soft[i] = (float)log(1 + exp((double)rate[i]));
	const struct dlb_named e[] = { named("norm.weight", scale, DIMS(8)),
				       named("mixer.A_log", decay, DIMS(2, 4)),
				       named("gain", gain, DIMS(6)), named("rate", rate, DIMS(5)),
				       named("unused.bias", zeros, DIMS(8)) };
	dlb_graph_init(&g);
	int y = input(&g, "x");
	y = OP(&g, "a", "Mul", y, constant(&g, "add_4", one_plus, DIMS(8)));
	y = OP(&g, "b", "Mul", y, constant(&g, "neg", minus_exp, DIMS(1, 2, 1, 4)));
	y = OP(&g, "c", "Mul", y, constant(&g, "exp", exp_, DIMS(6)));
	y = OP(&g, "d", "Mul", y, constant(&g, "softplus", soft, DIMS(5)));
	output(&g, OP(&g, "e", "Mul", y, constant(&g, "mul", ones, DIMS(8))));
	assert(!dlb_graph_take_state(&g, e, 5, false, &err));
	check_derived(&g, e, 5, "add_4", one_plus, 8);
	check_derived(&g, e, 5, "neg", minus_exp, 8);
	check_derived(&g, e, 5, "exp", exp_, 6);
	assert(IS(g.n_derived, ==, 4) && find(&g, "norm.weight")->in_state);
	dlb_graph_release(&g);
}

/* The bias of relative positions: rows of a table at constant indices, with the heads in front. */
static void test_lookup(void)
{
	static const int64_t at[9] = { 2, 1, 0, 3, 2, 1, 4, 3, 2 };
	const float *table = numbers(5 * 4, 25), *other = numbers(5 * 4, 26);
	static float bias[36], last[36], strange[36];
	struct dlb_graph g;

	for (int i = 0; i < 36; i++) {
		bias[i] = table[at[i % 9] * 4 + i / 9];
		last[i] = other[at[i / 4] * 4 + i % 4];
		strange[i] = bias[i];
	}
	strange[35] += 1;
	const struct dlb_named e[] = { named("table", table, DIMS(5, 4)), named("other", other, DIMS(5, 4)) };
	dlb_graph_init(&g);
	int y = input(&g, "x");
	y = OP(&g, "a", "Add", y, constant(&g, "unsqueeze", bias, DIMS(1, 4, 3, 3)));
	y = OP(&g, "b", "Add", y, constant(&g, "unsqueeze_1", strange, DIMS(1, 4, 3, 3)));
	output(&g, OP(&g, "c", "Add", y, constant(&g, "view", last, DIMS(3, 3, 4))));
	assert(!dlb_graph_take_state(&g, e, 2, false, &err));
	check_derived(&g, e, 2, "unsqueeze", bias, 36);
	check_derived(&g, e, 2, "view", last, 36);
	assert(IS(g.n_derived, ==, 2) && find(&g, "table")->in_state && find(&g, "other")->in_state);
	for (int i = 0; i < 9; i++)
		assert(IS(g.derived[0].index[i], ==, at[i]));
	g.derived[0].index[3] = 5;			/* beyond the table */
	assert(!dlb_derived_fits(&g.derived[0]));
	dlb_graph_release(&g);
}

static void test_state_dict(void)
{
	const float *w = numbers(6 * 5, 11), *gates = numbers(8 * 3, 12), *b1 = numbers(8, 13),
		    *b2 = numbers(8, 14);
	const float *table = numbers(10 * 4, 15), *token = numbers(4, 16);
	static const int order[4] = { 0, 3, 1, 2 };	/* ONNX's iofc of PyTorch's ifgo */
	static float wt[30], moved[24], joined[16], rows[12], repeated[24];
	struct dlb_graph g;

	for (int i = 0; i < 30; i++)
		wt[i] = w[i % 6 * 5 + i / 6];
	for (int i = 0; i < 24; i++)
		moved[i] = gates[(order[i / 6] * 2 + i / 3 % 2) * 3 + i % 3];
	for (int i = 0; i < 16; i++)
		joined[i] = (i < 8 ? b1 : b2)[order[i / 2 % 4] * 2 + i % 2];
	memcpy(rows, table + 8, sizeof rows);
	for (int i = 0; i < 24; i++)
		repeated[i] = token[i % 4];
	const struct dlb_named e[] = {
		named("fc.weight", w, DIMS(6, 5)), named("r.weight", gates, DIMS(8, 3)),
		named("r.b1", b1, DIMS(8)),        named("r.b2", b2, DIMS(8)),
		named("pos", table, DIMS(10, 4)),  named("cls", token, DIMS(1, 1, 4))
	};
	dlb_graph_init(&g);
	int y = input(&g, "x");
	y = OP(&g, "a", "MatMul", y, constant(&g, "val_1", wt, DIMS(5, 6)));
	y = OP(&g, "b", "MatMul", y, constant(&g, "val_2", moved, DIMS(1, 8, 3)));
	y = OP(&g, "c", "Add", y, constant(&g, "val_3", joined, DIMS(1, 16)));
	y = OP(&g, "d", "Add", y, constant(&g, "val_4", rows, DIMS(1, 3, 4)));
	output(&g, OP(&g, "e", "Concat", constant(&g, "val_5", repeated, DIMS(6, 1, 4)), y));
	assert(!dlb_graph_take_state(&g, e, 6, false, &err));
	check_derived(&g, e, 6, "val_1", wt, 30);
	check_derived(&g, e, 6, "val_2", moved, 24);
	check_derived(&g, e, 6, "val_3", joined, 16);
	check_derived(&g, e, 6, "val_4", rows, 12);
	check_derived(&g, e, 6, "val_5", repeated, 24);
	for (int i = 0; i < 6; i++) {
		const struct dlb_tensor *t = find(&g, e[i].name);
		const struct dlb_desc d = dlb_tensor_desc(t, 1);
		assert(t->in_state && !t->in_model && dlb_desc_same_shape(&d, &e[i].desc));
	}
	dlb_graph_release(&g);
	/* with one different element it is another weight */
	dlb_graph_init(&g);
	wt[7] += 1;
	output(&g, OP(&g, "a", "MatMul", input(&g, "x"), constant(&g, "val_1", wt, DIMS(5, 6))));
	assert(IS(dlb_graph_take_state(&g, e, 6, false, &err), ==, -1) &&
	       HAS(err.what, "none of the tensors"));
	dlb_graph_release(&g);
}

/* Real and imaginary parts of a complex weight, and a slice along the axis between. */
static void test_slices(void)
{
	enum { A = 3, B = 4, PARTS = 2 };
	const float *filter = numbers(A * B * PARTS, 17), *other = numbers(A * B * PARTS, 18);
	static float part[PARTS][A * B], between[A * 2 * PARTS];
	struct dlb_graph g;

	for (int i = 0; i < A * B * PARTS; i++) {
		part[i % PARTS][i / PARTS] = filter[i];
		if (i / PARTS % B == 1 || i / PARTS % B == 2)
			between[(i / PARTS / B * 2 + i / PARTS % B - 1) * PARTS + i % PARTS] = other[i];
	}
	const struct dlb_named e[] = { named("filter", filter, DIMS(A, B, PARTS)),
				       named("other", other, DIMS(A, B, PARTS)) };
	dlb_graph_init(&g);
	int y = input(&g, "x");
	y = OP(&g, "a", "Mul", y, constant(&g, "val_1", part[0], DIMS(A, B, 1)));
	y = OP(&g, "b", "Mul", y, constant(&g, "val_2", part[1], DIMS(A, B, 1)));
	output(&g, OP(&g, "c", "Mul", y, constant(&g, "val_3", between, DIMS(A, 2, PARTS))));
	assert(!dlb_graph_take_state(&g, e, 2, false, &err));
	check_derived(&g, e, 2, "val_1", part[0], A * B);
	check_derived(&g, e, 2, "val_2", part[1], A * B);
	check_derived(&g, e, 2, "val_3", between, A * 2 * PARTS);
	assert(IS(g.n_derived, ==, 3));
	dlb_graph_release(&g);
}

static bool says(const struct dlb_graph *g, const char *text)
{
	for (int i = 0; i < g->n_notes; i++)
		if (strstr(g->note[i], text))
			return true;
	return false;
}

/* Clones of a layer have equal values and are two weights; an embedding and the last layer share one
 * weight. */
static void test_equal_values(void)
{
	const float *v = numbers(5 * 4, 21);
	static float vt[20];
	struct dlb_graph g;

	for (int i = 0; i < 20; i++)
		vt[i] = v[i % 5 * 4 + i / 5];
	const struct dlb_named clones[] = { named("l.0.weight", v, DIMS(5, 4)),
					    named("l.1.weight", v, DIMS(5, 4)) };
	for (int untie = 0; untie < 2; untie++) {
		dlb_graph_init(&g);
		output(&g, OP(&g, "b", "MatMul",
			      OP(&g, "a", "MatMul", input(&g, "x"), constant(&g, "val_1", vt, DIMS(4, 5))),
			      constant(&g, "val_2", vt, DIMS(4, 5))));
		assert(!dlb_graph_take_state(&g, clones, 2, untie, &err) && IS(g.n_derived, ==, 2));
		assert(SAME(g.derived[0].part[0].of, "l.0.weight") &&
		       SAME(g.derived[1].part[0].of, "l.1.weight"));
		assert(IS(says(&g, "--untie has no effect"), ==, untie));
		dlb_graph_release(&g);
	}
	for (int untie = 0; untie < 2; untie++) {
		const struct dlb_named tied[] = { named("wte", v, DIMS(5, 4)), named("head", v, DIMS(5, 4)) };
		dlb_graph_init(&g);
		const int x = input(&g, "x"), table = constant(&g, "wte", v, DIMS(5, 4));
		output(&g, OP(&g, "b", "MatMul", OP(&g, "a", "Gather", table, x),
			      constant(&g, "val_2", vt, DIMS(4, 5))));
		assert(!dlb_graph_take_state(&g, tied, 2, untie, &err) && IS(g.n_derived, ==, 1));
		assert(SAME(g.derived[0].part[0].of, untie ? "head" : "wte"));
		assert(untie ? !find(&g, "wte")->also : !strcmp(find(&g, "wte")->also[0], "head"));
		assert(!says(&g, "has no effect"));
		dlb_graph_release(&g);
	}
	for (int untie = 0; untie < 2; untie++) {	/* two names for one initializer: a name less */
		const struct dlb_named shared[] = { named("wte", v, DIMS(5, 4)),
						    named("head", v, DIMS(5, 4)) };
		dlb_graph_init(&g);
		const int x = input(&g, "x"), table = constant(&g, "wte", v, DIMS(5, 4));
		output(&g, OP(&g, "b", "Add", OP(&g, "a", "Add", table, x), table));
		assert(!dlb_graph_take_state(&g, shared, 2, untie, &err) &&
		       IS((find(&g, "wte")->also == NULL), ==, untie));
		assert(!says(&g, "has no effect"));
		dlb_graph_release(&g);
	}
	for (int i = 0; i < 4; i++) {			/* without a state_dict */
		const bool untie = i & 1, equal = i & 2;
		dlb_graph_init(&g);
		const int x = input(&g, "x"), table = constant(&g, "wte", v, DIMS(5, 4));
		output(&g, OP(&g, "b", "MatMul", OP(&g, "a", "Gather", table, x),
			      constant(&g, "val_2", equal ? vt : numbers(20, 22), DIMS(4, 5))));
		assert(!dlb_graph_tie(&g, untie, &err) && IS(g.n_derived, ==, (equal && !untie)));
		assert(untie || !equal || !strcmp(g.derived[0].part[0].of, "wte"));
		assert(IS(says(&g, "--untie has no effect"), ==, (untie && !equal)));
		dlb_graph_release(&g);
	}
}

/* Initializers that the exporter computed from a parameter which is also there: repeated for each sample, and
 * cut into gates. */
static void test_copies(void)
{
	static const struct dlb_listed listed[] = { { "r.bias_hh", "p_b", DLB_LISTED_PARAMETER, true },
						    { "other", "p_o", DLB_LISTED_PARAMETER, true } };
	static const int uses_other = 1;
	static float repeated[4 * 24], gate[4 * 8], table[24];
	const float *b = numbers(24, 41);
	struct dlb_graph g;

	for (int i = 0; i < 4 * 24; i++)
		repeated[i] = b[i % 24];
	for (int i = 0; i < 4 * 8; i++)
		gate[i] = b[8 + i % 8];
	memcpy(table, b, sizeof table);
	dlb_graph_init(&g);
	list(&g, listed, 2);
	const int x = input(&g, "x"), bias = constant(&g, "r.bias_hh", b, DIMS(24));
	int y = OP(&g, "a", "Add", OP(&g, "h", "Relu", x), bias);
	y = OP(&g, "b", "Add", y, constant(&g, "linear_1", repeated, DIMS(1, 4, 24)));
	y = OP(&g, "c", "Mul", y, constant(&g, "split_1", gate, DIMS(4, 8)));
	/* the exporter's note names another parameter */
	output(&g, OP(&g, "d", "Add", y, constant(&g, "val_3", table, DIMS(24))));
	g.op[4].uses = &uses_other;
	g.op[4].n_uses = 1;
	assert(!dlb_graph_tie(&g, false, &err) && IS(g.n_derived, ==, 2) &&
	       says(&g, "2 initializers ('linear_1' ...) are made of weights"));
	for (int i = 0; i < 2; i++)
		assert(SAME(g.derived[i].part[0].of, "r.bias_hh"));
	const struct dlb_named e = named("r.bias_hh", b, DIMS(24));
	check_derived(&g, &e, 1, "linear_1", repeated, 4 * 24);
	check_derived(&g, &e, 1, "split_1", gate, 4 * 8);
	dlb_graph_release(&g);
}

/* A bias of zeros that a layer added to zeros cannot be found; a message names it, with a cure. */
static void test_computed(void)
{
	static const struct dlb_listed listed[] = { { "r.bias_hh", "p_b", DLB_LISTED_PARAMETER, true } };
	static const float zeros[32];
	struct dlb_parameter_choice c = { .untie = false };
	struct dlb_graph g;

	dlb_graph_init(&g);
	list(&g, listed, 1);
	const int x = input(&g, "x"), bias = constant(&g, "r.bias_hh", zeros, DIMS(8)),
		  h = constant(&g, "linear_1", zeros, DIMS(4, 8));
	output(&g, OP(&g, "b", "Add", OP(&g, "a", "Add", x, h), bias));
	assert(!dlb_graph_tie(&g, false, &err) && !g.n_derived);
	assert(!dlb_graph_choose_parameters(&g, &c, &err) && g.tensor[bias].initial && !g.tensor[h].initial);
	assert(says(&g, "1 initializer ('linear_1') is computed from parameters") &&
	       says(&g, "optimize=False"));
	dlb_graph_release(&g);
}

/* 2 + weight, folded, is no function that is searched: trained by its role instead of the parameter in the
 * state_dict; messages name both. */
static void test_in_place(void)
{
	static const struct dlb_listed listed[] = { { "n.weight", "p_n", DLB_LISTED_PARAMETER, true },
						    { "fc.weight", "p_f", DLB_LISTED_PARAMETER, true } };
	const float *w = numbers(4, 91), *f = numbers(16, 92);
	static float plus[4];
	struct dlb_parameter_choice c = { .untie = false };
	struct dlb_graph g;

	for (int i = 0; i < 4; i++)
		plus[i] = 2 + w[i];
	const struct dlb_named e[] = { named("n.weight", w, DIMS(4)), named("fc.weight", f, DIMS(4, 4)) };
	dlb_graph_init(&g);
	list(&g, listed, 2);
	const int x = input(&g, "x"), s = constant(&g, "add_1", plus, DIMS(4)),
		  m = constant(&g, "fc.weight", f, DIMS(4, 4));
	output(&g, OP(&g, "fc", "MatMul", OP(&g, "norm", "RMSNormalization", x, s), m));
	assert(!dlb_graph_take_state(&g, e, 2, false, &err));
	g.state_path = "state.safetensors";
	assert(!dlb_graph_choose_parameters(&g, &c, &err) && g.tensor[s].initial && g.tensor[m].initial);
	assert(says(&g, "1 parameter of the state_dict, of 4 elements, is not in the model ('n.weight'): not "
			"trained") &&
	       says(&g, "1 initializer ('add_1') that the state_dict has not is trained as it is") &&
	       says(&g, "optimize=False"));
	dlb_graph_release(&g);
}

/* Scales of a Resize hold no parameter, even if one of the list is missing in the model. */
static void test_settings(void)
{
	static const struct dlb_listed listed[] = { { "fc.weight", "p_f", DLB_LISTED_PARAMETER, true },
						    { "gone", "p_g", DLB_LISTED_PARAMETER, true } };
	static const float scales[4] = { 1, 1, .25f, .25f };
	struct dlb_parameter_choice c = { .untie = false };
	struct dlb_graph g;

	for (int added = 0; added < 2; added++) {
		dlb_graph_init(&g);
		list(&g, listed, 2);
		const int x = input(&g, "x"), w = constant(&g, "fc.weight", numbers(16, 93), DIMS(4, 4)),
			  s = constant(&g, "val_9", scales, DIMS(4));
		const int y = OP(&g, "fc", "MatMul", x, w);
		output(&g, added ? OP(&g, "add", "Add", y, s) : OP(&g, "resize", "Resize", y, -1, s));
		assert(!dlb_graph_choose_parameters(&g, &c, &err) && g.tensor[w].initial &&
		       IS(g.tensor[s].initial, ==, (added != 0)));
		dlb_graph_release(&g);
	}
}

/* Equal rows become one, unless the state_dict has them all: a parameter of zeros keeps its shape. */
static void test_collapse(void)
{
	static const float zeros[36];

	for (int in_state = 0; in_state < 2; in_state++) {
		struct dlb_graph g;
		dlb_graph_init(&g);
		const int w = constant(&g, "w", zeros, DIMS(6, 6)), x = input(&g, "x");
		output(&g, OP(&g, "sum", "Add", x, w));
		g.tensor[w].in_state = in_state;
		assert(!dlb_graph_index(&g) && !dlb_graph_collapse(&g, w, &err));
		const struct dlb_tensor *found = find(&g, "w");
		assert(IS(found->dim[0].add, ==, (in_state ? 6 : 1)) && g.n_derived == !in_state);
		dlb_graph_release(&g);
	}
}

/* A layer's weight that is the product of two initializers trains both, where no list says which the layer has. */
static void test_product_of_weights(void)
{
	struct dlb_parameter_choice c = { .untie = false };
	struct dlb_graph g;

	dlb_graph_init(&g);
	const int x = input(&g, "x"), a = constant(&g, "val_1", numbers(8, 61), DIMS(4, 2)),
		  b = constant(&g, "val_2", numbers(8, 62), DIMS(2, 4));
	output(&g, OP(&g, "mm", "MatMul", x, OP(&g, "ab", "MatMul", a, b)));
	assert(!dlb_graph_choose_parameters(&g, &c, &err));
	assert(g.tensor[a].initial && HAS(g.tensor[a].why, "operand 0 of MatMul 'ab'"));
	assert(g.tensor[b].initial && HAS(g.tensor[b].why, "operand 1 of MatMul 'ab'"));
	dlb_graph_release(&g);
}

/* In a branch of constants all paths lead to a product; a mask on one of them is no weight. */
static void test_mask_before_product(void)
{
	static float mask[16];
	struct dlb_parameter_choice c = { .untie = false };
	struct dlb_graph g;

	for (int i = 0; i < 16; i++)
		mask[i] = i % 4 > i / 4 ? -3.4028235e38f : 0;
	dlb_graph_init(&g);
	const int x = input(&g, "x"), k = constant(&g, "val_166", mask, DIMS(4, 4)),
		  t = constant(&g, "add_3", numbers(16, 51), DIMS(4, 4));
	const int a = OP(&g, "soft", "Softmax", OP(&g, "add", "Add", OP(&g, "qk", "MatMul", t, t), k));
	output(&g, OP(&g, "mm", "MatMul", x, OP(&g, "av", "MatMul", a, t)));
	assert(!dlb_graph_choose_parameters(&g, &c, &err));
	assert(g.tensor[t].initial && !g.tensor[k].initial && SAME(g.tensor[k].why, "a mask"));
	dlb_graph_release(&g);
}

/* Scores of a query that is the same for every sample: an operand added to them before Softmax is a mask,
 * even if zero. */
static void test_mask_of_constant_query(void)
{
	static const struct dlb_listed listed[] = { { "query", "p_q", DLB_LISTED_PARAMETER, true },
						    { "w", "p_w", DLB_LISTED_PARAMETER, true } };
	static const float zeros[32];
	struct dlb_parameter_choice c = { .untie = false };
	struct dlb_graph g;

	dlb_graph_init(&g);
	list(&g, listed, 2);
	const int x = input(&g, "x"), w = constant(&g, "w", numbers(16, 71), DIMS(4, 4)),
		  q = constant(&g, "expand", numbers(16, 72), DIMS(4, 4));
	const int m = constant(&g, "where", zeros, DIMS(4, 1, 8));
	const int s = OP(&g, "scores", "MatMul", OP(&g, "norm", "LayerNormalization", q),
			 OP(&g, "k", "MatMul", x, w));
	output(&g, OP(&g, "add", "Add", OP(&g, "soft", "Softmax", OP(&g, "masked", "Add", s, m)), q));
	assert(!dlb_graph_choose_parameters(&g, &c, &err) && g.tensor[q].initial && !g.tensor[m].initial);
	dlb_graph_release(&g);
}

/* A causal mask that has a module's name, as a buffer of PyTorch's older exporter, is no weight, whether it is
 * added to the scores, perhaps after a change of shape, or multiplied with them. A table of as many different
 * numbers is one, one of zeros, from which training may start, a product's weight of ones and zeros, and factors
 * of the outputs. */
static void test_mask_with_a_name(void)
{
	static const float factors[] = { 0, 1, 0, 1 };
	static float mask[16], zeros[16], ones[16], identity[16];
	struct dlb_parameter_choice c = { .untie = false };
	struct dlb_graph g;

	for (int i = 0; i < 16; i++) {
		mask[i] = i % 4 > i / 4 ? -1e4f : 0;
		ones[i] = i % 4 <= i / 4;
		identity[i] = i % 4 == i / 4;
	}
	dlb_graph_init(&g);
	const int x = input(&g, "x"), m = constant(&g, "h.0.attn.mask", mask, DIMS(4, 4)),
		  far = constant(&g, "h.1.attn.bias", numbers(16, 81), DIMS(4, 4)),
		  new = constant(&g, "h.2.attn.bias", zeros, DIMS(4, 4)),
		  wide = constant(&g, "h.3.attn_mask", mask, DIMS(4, 4)),
		  tril = constant(&g, "h.4.attn.bias", ones, DIMS(4, 4)),
		  w = constant(&g, "proj.weight", identity, DIMS(4, 4)),
		  f = constant(&g, "mix", factors, DIMS(4));
	const int added[] = { m, far, new, OP(&g, "wide", "Unsqueeze", wide) };
	int y = x;
	for (int i = 0; i < 5; i++) {
		const int s = OP(&g, "scores", "MatMul", OP(&g, "q", "LayerNormalization", y),
				 OP(&g, "k", "Transpose", y));
		y = OP(&g, "soft", "Softmax",
		       i < 4 ? OP(&g, "masked", "Add", s, added[i]) : OP(&g, "masked", "Mul", s, tril));
	}
	output(&g, OP(&g, "mixed", "Mul", OP(&g, "proj", "MatMul", y, w), f));
	assert(!dlb_graph_choose_parameters(&g, &c, &err));
	assert(!g.tensor[m].initial && SAME(g.tensor[m].why, "a mask"));
	assert(!g.tensor[wide].initial && !g.tensor[tril].initial);
	assert(g.tensor[far].initial && g.tensor[new].initial && g.tensor[w].initial && g.tensor[f].initial);
	dlb_graph_release(&g);
}

/* Coordinates of the places of a window, from which a small network computes a position bias, are no weight,
 * whatever their name; a table of the same shape with other values is one. */
static void test_coordinates(void)
{
	static float grid[2][3 * 4 * 2];
	struct dlb_parameter_choice c = { .untie = false };
	struct dlb_graph g;

	for (int i = 0; i < 12; i++) {
		grid[0][2 * i] = grid[1][2 * i + 1] = (float)(i / 4 - 1);
		grid[0][2 * i + 1] = grid[1][2 * i] = (float)(i % 4) * .5f;
	}
	dlb_graph_init(&g);
	const int x = input(&g, "x"), w = constant(&g, "mlp.weight", numbers(8, 91), DIMS(2, 4));
	const int at[] = { constant(&g, "attn.coords", grid[0], DIMS(1, 3, 4, 2)),
			   constant(&g, "attn.places", grid[1], DIMS(3, 4, 2)),
			   constant(&g, "attn.table", numbers(24, 92), DIMS(3, 4, 2)) };
	int y = x;
	for (int i = 0; i < 3; i++)
		y = OP(&g, "add", "Add", y, OP(&g, "mm", "MatMul", at[i], w));
	output(&g, y);
	assert(!dlb_graph_choose_parameters(&g, &c, &err));
	assert(!g.tensor[at[0]].initial && !g.tensor[at[1]].initial && g.tensor[at[2]].initial);
	assert(g.tensor[w].initial && SAME(g.tensor[at[0]].why, "coordinates of a grid"));
	dlb_graph_release(&g);
}

/* A GroupNormalization with one channel per group: the ones and zeros of its InstanceNormalization were
 * merged with a parameter of another vertex; its own scale comes after. */
static void test_merged_with_ones(void)
{
	static const struct dlb_listed listed[] = { { "l.weight", "p_l", DLB_LISTED_PARAMETER, true },
						    { "g.weight", "p_g", DLB_LISTED_PARAMETER, true } };
	static const float ones[4] = { 1, 1, 1, 1 };
	static const int own = 0, group = 1;
	struct dlb_graph g;

	dlb_graph_init(&g);
	list(&g, listed, 2);
	const int x = input(&g, "x"), w = constant(&g, "l.weight", ones, DIMS(4)),
		  scale = constant(&g, "val_28", ones, DIMS(4, 1));
	const int y = OP(&g, "in", "InstanceNormalization", OP(&g, "view", "Reshape", x, x), w, w);
	output(&g, OP(&g, "ln", "LayerNormalization", OP(&g, "mul", "Mul", y, scale), w));
	for (int i = 0; i < 4; i++) {
		g.op[i].uses = i == 3 ? &own : &group;
		g.op[i].n_uses = 1;
	}
	assert(!dlb_graph_unmerge(&g, &err) && IS(g.op[3].in[1], ==, w) && IS(g.op[1].in[1], !=, w) &&
	       !find(&g, "g.weight"));
	assert(!g.tensor[g.op[1].in[1]].initial && SAME(g.tensor[g.op[1].in[1]].from, "l.weight") &&
	       g.tensor[w].initial);
	dlb_graph_release(&g);
}

/* Tied weights have two names in the list, and the exporter uses one: the other is not missing. */
static void test_second_name(void)
{
	static const struct dlb_listed listed[] = { { "head.weight", "p_h", DLB_LISTED_PARAMETER, true },
						    { "wte.weight", "p_w", DLB_LISTED_PARAMETER, true } };
	static const int used = 0;
	struct dlb_parameter_choice c = { .untie = false };
	struct dlb_graph g;

	dlb_graph_init(&g);
	list(&g, listed, 2);
	const int x = input(&g, "x"), w = constant(&g, "head.weight", numbers(16, 81), DIMS(4, 4)),
		  a = constant(&g, "repeat", numbers(8, 82), DIMS(1, 8));
	const int y = OP(&g, "add", "Add", OP(&g, "look", "Gather", w, x), a);
	output(&g, OP(&g, "head", "Gemm", y, w));
	g.op[0].uses = g.op[2].uses = &used;
	g.op[0].n_uses = g.op[2].n_uses = 1;
	assert(!dlb_graph_choose_parameters(&g, &c, &err) && g.tensor[w].initial && !g.tensor[a].initial &&
	       !says(&g, "not in the model"));
	dlb_graph_release(&g);
}

/* A layer of a weight and a bias that has one operand under another name: it is the weight, or, as the third
 * operand, the bias. The other one is missing. */
static void test_one_operand(void)
{
	static const struct dlb_listed listed[] = { { "fc.weight", "p_w", DLB_LISTED_PARAMETER, true },
						    { "fc.bias", "p_b", DLB_LISTED_PARAMETER, true } };
	static const int both[] = { 0, 1 };
	struct dlb_parameter_choice c = { .untie = false };
	struct dlb_graph g;

	for (int bias = 0; bias < 2; bias++) {
		dlb_graph_init(&g);
		list(&g, listed, 2);
		const int x = input(&g, "x"), w = constant(&g, "val_1", numbers(4, 83), DIMS(4));
		if (bias)
			output(&g, OP(&g, "fc", "Gemm", x, x, w));
		else
			output(&g, OP(&g, "fc", "Gemm", x, w));
		g.op[0].uses = both;
		g.op[0].n_uses = 2;
		assert(!dlb_graph_choose_parameters(&g, &c, &err) && g.tensor[w].initial);
		assert(says(&g, "1 parameter of the exporter's list is not in the model") &&
		       says(&g, bias ? "('fc.weight')" : "('fc.bias')"));
		dlb_graph_release(&g);
	}
}

/* Tables of sines of any scale are told from other numbers of that scale, and from powers: these also have
 * neighbours whose sum is in proportion to them. */
static void test_sinusoids(void)
{
	static const double other[5] = { 1, .5, -1, .2, .9 };
	static float sines[8 * 4], no_sines[5 * 4], powers[8 * 4];

	for (double scale = 1e-5; scale < 1e7; scale *= 10) {
		struct dlb_graph g;

		for (int i = 0; i < 32; i++)
			sines[i] = (float)(scale * sin(i / 4 * (i % 4 + 1) * .3 + 1));
		for (int i = 0; i < 32; i++)
			powers[i] = (float)(scale * pow(-2, i / 4) * (i % 4 + 1));
		for (int i = 0; i < 20; i++)
			no_sines[i] = (float)(scale * other[i / 4] * (i % 4 + 1));
		dlb_graph_init(&g);
		const int s = constant(&g, "sines", sines, DIMS(8, 4)),
			  n = constant(&g, "none", no_sines, DIMS(5, 4)),
			  p = constant(&g, "powers", powers, DIMS(8, 4));
		assert(dlb_values_sinusoid(&g.tensor[s]) && !dlb_values_sinusoid(&g.tensor[n]) &&
		       !dlb_values_sinusoid(&g.tensor[p]));
		dlb_graph_release(&g);
	}
}

/* The axis of a derived tensor is one of its dimensions, whatever stands in those that it does not have. */
static void test_axis_of_derived(void)
{
	struct dlb_part part = { .n_dims = 1, .dim = { 4 }, .count = 4, .perm = { 0 }, .length = 4 };
	struct dlb_derived d = {
		.n_dims = 1, .n_parts = 1, .dim = { 4, 4, 4, 4, 4, 4, 4, 4 }, .base = { 4, 4 }, .part = &part
	};

	assert(dlb_derived_fits(&d));
	for (d.axis = -1; d.axis <= 1; d.axis += 2)
		assert(!dlb_derived_fits(&d));
	d.axis = 0;
	d.n_parts = 0;
	assert(!dlb_derived_fits(&d));
}

/* Two biases of a recurrent cell that the exporter merged: the ends of their names differ. */
static void test_merged_in_cell(void)
{
	static const struct dlb_listed listed[] = { { "r.bias_ih_l0", "p_i", DLB_LISTED_PARAMETER, true },
						    { "r.bias_hh_l0", "p_h", DLB_LISTED_PARAMETER, true },
						    { "r.weight_hh_l0", "p_w", DLB_LISTED_PARAMETER, true },
						    { "b.bias", "p_b", DLB_LISTED_PARAMETER, true } };
	static const float zeros[4];
	static const int first = 0, second[] = { 2, 1 }, third[] = { 2, 3 };
	struct dlb_graph g;

	dlb_graph_init(&g);
	list(&g, listed, 4);
	const int x = input(&g, "x"), z = constant(&g, "r.bias_ih_l0", zeros, DIMS(4)),
		  w = constant(&g, "val_1", numbers(16, 61), DIMS(4, 4));
	const int y = OP(&g, "a", "Add", x, z), h = OP(&g, "b", "Add", OP(&g, "mm", "MatMul", y, w), z);
	output(&g, OP(&g, "gemm", "Gemm", h, w));
	g.op[0].uses = &first;
	g.op[0].n_uses = 1;
	for (int i = 1; i < 3; i++) {
		g.op[i].uses = second;
		g.op[i].n_uses = 2;
	}
	g.op[3].uses = third;
	g.op[3].n_uses = 2;
	assert(!dlb_graph_unmerge(&g, &err) && IS(g.n_unmerged, ==, 2) && IS(g.op[0].in[1], ==, z));
	assert(SAME(g.tensor[g.op[2].in[1]].name, "r.bias_hh_l0") &&
	       SAME(g.tensor[g.op[3].in[2]].name, "b.bias"));
	dlb_graph_release(&g);
}

/* Two layers whose biases of zeros the exporter merged, and a third whose bias it omitted. */
static void test_merged(void)
{
	static const struct dlb_listed listed[] = { { "a.bias", "p_a", DLB_LISTED_PARAMETER, true },
						    { "b.bias", "p_b", DLB_LISTED_PARAMETER, true },
						    { "c.bias", "p_c", DLB_LISTED_PARAMETER, true } };
	static const float zeros[4];
	static const int uses[3] = { 0, 1, 2 };
	struct dlb_graph g;

	dlb_graph_init(&g);
	list(&g, listed, 3);
	const int x = input(&g, "x"), w = constant(&g, "w", numbers(16, 31), DIMS(4, 4)),
		  z = constant(&g, "a.bias", zeros, DIMS(4));
	const int y = OP(&g, "g1", "Gemm", x, w, z), y2 = OP(&g, "g2", "Gemm", y, w, z);
	output(&g, OP(&g, "g3", "Gemm", y2, w));
	for (int i = 0; i < 3; i++) {
		g.op[i].uses = &uses[i];
		g.op[i].n_uses = 1;
	}
	assert(!dlb_graph_unmerge(&g, &err) && IS(g.n_unmerged, ==, 2));
	assert(IS(g.op[0].in[2], ==, z) && SAME(g.tensor[g.op[1].in[2]].name, "b.bias") &&
	       SAME(g.tensor[g.op[1].in[2]].from, "a.bias"));
	assert(IS(g.op[2].n_in, ==, 3) && SAME(g.tensor[g.op[2].in[2]].name, "c.bias") &&
	       IS(g.tensor[g.op[2].in[2]].dim[0].add, ==, 4));
	dlb_graph_release(&g);
}

/* Three layers with one weight, the last two with one bias: the bias is recognized by the weights of its
 * layers, which are copies by then. */
static void test_merged_twice(void)
{
	static const struct dlb_listed listed[] = { { "p.weight", "p_p", DLB_LISTED_PARAMETER, true },
						    { "q.weight", "p_q", DLB_LISTED_PARAMETER, true },
						    { "s.weight", "p_s", DLB_LISTED_PARAMETER, true },
						    { "q.bias", "p_qb", DLB_LISTED_PARAMETER, true },
						    { "s.bias", "p_sb", DLB_LISTED_PARAMETER, true } };
	static const int uses[] = { 0, 1, 3, 2, 4 };
	struct dlb_graph g;

	dlb_graph_init(&g);
	list(&g, listed, 5);
	const int x = input(&g, "x"), w = constant(&g, "val_1", numbers(16, 91), DIMS(4, 4)),
		  b = constant(&g, "val_2", numbers(4, 92), DIMS(4));
	const int y = OP(&g, "m2", "MatMul", OP(&g, "m1", "MatMul", x, w), w);
	output(&g, OP(&g, "a3", "Add", OP(&g, "m3", "MatMul", OP(&g, "a2", "Add", y, b), w), b));
	for (int i = 0; i < 5; i++) {
		g.op[i].uses = &uses[i];
		g.op[i].n_uses = 1;
	}
	assert(!dlb_graph_unmerge(&g, &err) && IS(g.n_unmerged, ==, 3));
	assert(IS(g.op[0].in[1], ==, w) && IS(g.op[1].in[1], !=, w) && IS(g.op[3].in[1], !=, w) &&
	       IS(g.op[3].in[1], !=, g.op[1].in[1]));
	assert(IS(g.op[2].in[1], ==, b) && IS(g.op[4].in[1], !=, b) && g.tensor[g.op[4].in[1]].initial);
	dlb_graph_release(&g);
}

int main(void)
{
	test_roles();
	test_widened();
	test_list_and_options();
	test_state_dict();
	test_slices();
	test_functions_of_entries();
	test_lookup();
	test_settings();
	test_equal_values();
	test_copies();
	test_computed();
	test_in_place();
	test_collapse();
	test_product_of_weights();
	test_mask_before_product();
	test_mask_of_constant_query();
	test_mask_with_a_name();
	test_coordinates();
	test_merged_with_ones();
	test_second_name();
	test_one_operand();
	test_sinusoids();
	test_axis_of_derived();
	test_merged_in_cell();
	test_merged();
	test_merged_twice();
	return 0;
}
