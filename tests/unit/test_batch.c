/* Models exported with a fixed batch: its dimension in tensors, constants that contain it, named dimensions,
 * and the check that samples together give the same results as alone. Small graphs, and exports of PyTorch
 * from the shared data. */
#include <unistd.h>
#include "exec/agree.h"
#include "graph/passes.h"
#include "model/onnx.h"
#include "check.h"
#include "run_graph.h"
#include "by_hand.h"

static struct dlb_backend be;

static int fixed_input(struct dlb_graph *g, const char *name, enum dlb_dtype type, const int64_t *dim, int n)
{
	const int t = dlb_graph_add_tensor(g, name, DLB_T_INPUT);
	g->tensor[t].dtype = type;
	g->tensor[t].n_dims = n;
	for (int k = 0; k < n; k++)
		g->tensor[t].dim[k].add = dim[k];
	return g->input[g->n_inputs++] = t;
}

static int reshape(struct dlb_graph *g, int x, const int64_t *v, int n)
{
	return op(g, "Reshape", (int[]){ x, whole_numbers(g, v, n) }, 2, NULL, 0);
}

static int transpose(struct dlb_graph *g, int x, const int64_t *perm, int n)
{
	const struct dlb_attr a = { .name = "perm", .type = DLB_ATTR_INTS, .ints = perm, .n = n };
	return op(g, "Transpose", &x, 1, &a, 1);
}

static void fold(struct dlb_graph *g, int64_t batch)
{
	struct dlb_error err = { .what = "" };
	if (dlb_graph_fold(g, batch, &be, &err))
		test_die(&err);
}

static bool is_dim(const struct dlb_graph *g, int t, int k, int64_t mul, int64_t add)
{
	return g->tensor[t].dim[k].mul == mul && g->tensor[t].dim[k].add == add;
}

/* Multi-head attention as nn.MultiheadAttention is exported at batch B: (T, B, H D) to (T, B H, D), heads in
 * front, and back. The batch dimension of every tensor is found, whichever of B, T and H are equal. */
static void heads(int64_t B, int64_t T, int64_t H, int64_t D)
{
	struct dlb_graph g;
	begin_graph(&g, 17);
	const int x = fixed_input(&g, "x", DLB_F64, (int64_t[]){ B, T, H * D }, 3);
	const int t = transpose(&g, x, (int64_t[]){ 1, 0, 2 }, 3);
	const int h = transpose(&g, reshape(&g, t, (int64_t[]){ T, B * H, D }, 3), (int64_t[]){ 1, 0, 2 }, 3);
	const int four = reshape(&g, h, (int64_t[]){ B, H, T, D }, 4);
	const int score = op(&g, "MatMul", (int[]){ four, transpose(&g, four, (int64_t[]){ 0, 1, 3, 2 }, 4) },
			     2, NULL, 0);
	const int mixed = op(&g, "MatMul", (int[]){ op(&g, "Softmax", &score, 1, NULL, 0), four }, 2, NULL,
			     0);
	const int back = reshape(&g, transpose(&g, mixed, (int64_t[]){ 2, 0, 1, 3 }, 4),
				 (int64_t[]){ T * B, H * D }, 2);
	g.output[g.n_outputs++] = transpose(&g, reshape(&g, back, (int64_t[]){ T, B, H * D }, 3),
					    (int64_t[]){ 1, 0, 2 }, 3);
	struct dlb_error err = { .what = "" };
	fold(&g, 6);
	assert(!g.fixed_batch && IS(g.batch, ==, 6));
	const int y = g.output[0];
	assert(is_dim(&g, y, 0, 1, 0) && is_dim(&g, y, 1, 0, T) && is_dim(&g, y, 2, 0, H * D));
	if (dlb_samples_agree(&g, &be, &err))
		test_die(&err);
	dlb_graph_release(&g);
}

/* If the batch cannot be followed, it stays as exported, and another one is refused. */
static void stays(void)
{
	for (int64_t batch = 0; batch <= 20; batch += 20) {
		struct dlb_graph g;
		struct dlb_error err = { .what = "" };
		begin_graph(&g, 17);
		const int x = fixed_input(&g, "x", DLB_F64, (int64_t[]){ 8, 2, 3 }, 3);
		g.output[g.n_outputs++] = reshape(&g, x, (int64_t[]){ 2, 8, 3 }, 3);
		const int rc = dlb_graph_fold(&g, batch, &be, &err);
		assert(batch ? rc == -1 && strstr(err.where, "Reshape") :
			       rc == 0 && g.fixed_batch && g.batch == 8 && g.n_notes == 1);
		dlb_graph_release(&g);
	}
}

/* x (4, 2, 3) + a constant of (4, 1, 3): one row when all are equal, else the batch stays. */
static void masks(bool equal)
{
	double v[4][3] = { { 1, 2, 3 }, { 1, 2, 3 }, { 1, 2, 3 }, { 1, 2, equal ? 3 : 4 } };
	struct dlb_graph g;
	begin_graph(&g, 17);
	const int x = fixed_input(&g, "x", DLB_F64, (int64_t[]){ 4, 2, 3 }, 3);
	g.output[g.n_outputs++] = op(&g, "Add",
				     (int[]){ x, add_constant(&g, DLB_F64, (int64_t[]){ 4, 1, 3 }, 3, v) }, 2,
				     NULL, 0);
	fold(&g, 0);
	assert(g.fixed_batch == !equal && IS(g.n_ops, ==, 1));
	assert(is_dim(&g, g.op[0].in[1], 0, 0, equal ? 1 : 4));
	dlb_graph_release(&g);
}

/* A class token of (B, 1, 3), joined to x (B, 2, 3): its one row follows the batch. */
static void token(int64_t B)
{
	double v[8][3];
	struct dlb_graph g;
	const struct dlb_attr axis = { .name = "axis", .type = DLB_ATTR_INT, .i = 1 };
	for (int i = 0; i < 24; i++)
		v[i / 3][i % 3] = i % 3;
	begin_graph(&g, 17);
	const int x = fixed_input(&g, "x", DLB_F64, (int64_t[]){ B, 2, 3 }, 3);
	g.output[g.n_outputs++] = op(&g, "Concat",
				     (int[]){ add_constant(&g, DLB_F64, (int64_t[]){ B, 1, 3 }, 3, v), x }, 2,
				     &axis, 1);
	fold(&g, 6);
	assert(!g.fixed_batch && is_dim(&g, g.output[0], 0, 1, 0) && is_dim(&g, g.output[0], 1, 0, 3));
	dlb_graph_release(&g);
}

/* Rows of x put into constant zeros (batch, 3) by constant indices, which hold the batch: both follow it. */
static void scattered(int64_t B)
{
	static const double zeros[8 * 3];
	int64_t at[8];
	struct dlb_graph g;
	struct dlb_error err = { .what = "" };
	for (int b = 0; b < B; b++)
		at[b] = b;
	begin_graph(&g, 18);
	const int x = fixed_input(&g, "x", DLB_F64, (int64_t[]){ B, 3 }, 2);
	g.output[g.n_outputs++] = op(&g, "ScatterND",
				     (int[]){ add_constant(&g, DLB_F64, (int64_t[]){ B, 3 }, 2, zeros),
					      add_constant(&g, DLB_I64, (int64_t[]){ B, 1 }, 2, at), x },
				     3, NULL, 0);
	fold(&g, 6);
	assert(!g.fixed_batch && is_dim(&g, g.output[0], 0, 1, 0) && is_dim(&g, g.output[0], 1, 0, 3));
	if (dlb_samples_agree(&g, &be, &err))
		test_die(&err);
	dlb_graph_release(&g);
}

/* Rows of (batch, 3) flattened, gathered by constant indices, two per sample: those of sample b are 3 b
 * higher. */
static void flattened(int64_t B)
{
	int64_t at[16];
	struct dlb_graph g;
	struct dlb_error err = { .what = "" };
	for (int b = 0; b < B; b++) {
		at[2 * b] = 3 * b + 2;
		at[2 * b + 1] = 3 * b;
	}
	begin_graph(&g, 17);
	const int x = fixed_input(&g, "x", DLB_F64, (int64_t[]){ B, 3, 5 }, 3);
	const int rows = op(&g, "Gather",
			    (int[]){ reshape(&g, x, (int64_t[]){ 3 * B, 5 }, 2),
				     whole_numbers(&g, at, 2 * B) },
			    2, NULL, 0);
	g.output[g.n_outputs++] = reshape(&g, rows, (int64_t[]){ B, 2, 5 }, 3);
	fold(&g, 0);
	assert(!g.fixed_batch && is_dim(&g, g.output[0], 0, 1, 0));
	if (dlb_samples_agree(&g, &be, &err))
		test_die(&err);
	dlb_graph_release(&g);
}

/* Two rows repeated for each sample, which lie one sample after the other. */
static void repeated(int64_t B)
{
	static const double rows[2][5] = { { 1, 2, 3, 4, 5 }, { 6, 7, 8, 9, 10 } };
	struct dlb_graph g;
	struct dlb_error err = { .what = "" };
	const struct dlb_attr axis = { .name = "axis", .type = DLB_ATTR_INT };
	begin_graph(&g, 17);
	const int x = fixed_input(&g, "x", DLB_F64, (int64_t[]){ B, 1, 5 }, 3),
		  one = whole_numbers(&g, (int64_t[]){ 1 }, 1);
	const int samples = op(&g, "Slice",
			       (int[]){ op(&g, "Shape", &x, 1, NULL, 0),
					whole_numbers(&g, (int64_t[]){ 0 }, 1), one },
			       3, NULL, 0);
	const int repeats = op(&g, "Concat", (int[]){ samples, one }, 2, &axis, 1);
	const int tiled = op(&g, "Tile",
			     (int[]){ add_constant(&g, DLB_F64, (int64_t[]){ 2, 5 }, 2, rows), repeats }, 2,
			     NULL, 0);
	g.output[g.n_outputs++] = op(&g, "Mul", (int[]){ x, reshape(&g, tiled, (int64_t[]){ B, 2, 5 }, 3) },
				     2, NULL, 0);
	fold(&g, 6);
	assert(!g.fixed_batch && is_dim(&g, g.output[0], 0, 1, 0) && is_dim(&g, g.output[0], 1, 0, 2));
	if (dlb_samples_agree(&g, &be, &err))
		test_die(&err);
	dlb_graph_release(&g);
}

/* Gather and GatherND by small constants of all kinds, also those that cannot be adapted, which reallocates
 * the arrays of ops and tensors. Each is folded or refused with a message. */
static void any_indices(int64_t B)
{
	static const enum dlb_dtype types[] = { DLB_I64, DLB_I32, DLB_U8 };
	static const int64_t sizes[] = { 0, 1, 2, 4, 8 };
	enum { KINDS = 2 * 3 * 5 * 5 * 5 };

	for (int kind = 0; kind < KINDS; kind++) {
		const int64_t dim[] = { sizes[kind / 6 % 5], sizes[kind / 30 % 5], sizes[kind / 150] };
		const enum dlb_dtype type = types[kind / 2 % 3];
		int64_t at[512] = { 0 };
		struct dlb_graph g;
		struct dlb_error err = { .what = "" };
		for (int64_t i = 0; i < dim[0] * dim[1] * dim[2]; i++)
			dlb_value_set(at, type, i, (double)(i / (dim[1] * dim[2]) % B));
		begin_graph(&g, 17);
		const int x = fixed_input(&g, "x", DLB_F64, (int64_t[]){ B, 5 }, 2);
		const int by = add_constant(&g, type, dim, 3, at);
		g.output[g.n_outputs++] = op(&g, kind % 2 ? "Gather" : "GatherND", (int[]){ x, by }, 2, NULL,
					     0);
		if (dlb_graph_fold(&g, 0, &be, &err))
			assert(err.what[0]);
		dlb_graph_release(&g);
	}
}

/* x - mean of x, over a dynamic batch or over each sample, with labels or without: if samples are mixed, the
 * check names the vertex that mixes them. */
static void mixes(int64_t axis, const char *loss)
{
	struct dlb_graph g;
	struct dlb_error err = { .what = "" };
	const struct dlb_attr axes = { .name = "axes", .type = DLB_ATTR_INTS, .ints = &axis, .n = 1 };
	begin_graph(&g, 13);
	const int x = sample_input(&g, DLB_F64, (int64_t[]){ 0, 3 }, 2);
	const int twice = op(&g, "Add", (int[]){ x, x }, 2, NULL, 0);
	const int less = op(&g, "Sub", (int[]){ twice, op(&g, "ReduceMean", &twice, 1, &axes, 1) }, 2, NULL,
			    0);
	g.output[g.n_outputs++] = op(&g, "Tanh", &less, 1, NULL, 0);
	fold(&g, 0);
	if (loss && dlb_graph_attach_loss(&g, loss, &err))
		test_die(&err);
	assert(IS(g.label >= 0, ==, loss != NULL));
	assert(IS(dlb_samples_agree(&g, &be, &err), ==, axis ? 0 : -1));
	assert(axis || (SAME(err.where, g.tensor[less].name) && HAS(err.what, "mixes samples")));
	dlb_graph_release(&g);
}

/* (seq, 2*seq + 1, batch) with seq = 4: fed as (batch, 4, 9). Without a size: the option is named. */
static void names(void)
{
	static const char *const name[] = { "seq", "2*seq + 1", "batch" };
	for (int given = 0; given < 3; given++) {
		struct dlb_graph g;
		struct dlb_error err = { .what = "" };
		begin_graph(&g, 17);
		const int x = fixed_input(&g, "x", DLB_F64, (int64_t[]){ -1, -1, -1 }, 3);
		g.tensor[x].dim_name = name;
		g.output[g.n_outputs++] = op(&g, "Relu", &x, 1, NULL, 0);
		assert(!given || !dlb_graph_set_dim(&g, "seq=4", &err));
		assert(given < 2 || !dlb_graph_set_dim(&g, "other=4", &err));
		const int rc = dlb_graph_size_inputs(&g, &err);
		assert(given == 1 ? rc == 0 : rc == -1 && strstr(err.hint, given ? "--dim" : "--dim seq=N"));
		if (given == 1) {
			fold(&g, 5);
			const int in = g.input[0];
			assert(SAME(g.tensor[in].name, "x") && is_dim(&g, in, 0, 1, 0) &&
			       is_dim(&g, in, 1, 0, 4) && is_dim(&g, in, 2, 0, 9));
			assert(is_dim(&g, g.output[0], 2, 1, 0) && IS(g.batch, ==, 5));
		}
		dlb_graph_release(&g);
	}
	struct dlb_graph g;
	struct dlb_error err = { .what = "" };
	dlb_graph_init(&g);
	assert(IS(dlb_graph_set_dim(&g, "seq", &err), ==, -1) &&
	       IS(dlb_graph_set_dim(&g, "seq=0", &err), ==, -1) &&
	       IS(dlb_graph_set_dim(&g, "=3", &err), ==, -1));
	dlb_graph_release(&g);
}

static int in_body(struct dlb_graph *b, const char *name, enum dlb_dtype type)
{
	const int t = dlb_graph_add_tensor(b, name, DLB_T_INPUT);
	b->tensor[t].dtype = type;
	return b->input[b->n_inputs++] = t;
}

/* A loop over four bags of indices; matched: it becomes one reduction of bags of three. */
struct bags {
	const char *reduce;
	int64_t axis, keep, starts[5], ends[4];
	bool matched;
};

/* The loop of nn.EmbeddingBag as the older exporter writes it: iteration i takes the indices [starts[i], ends[i]),
 * looks them up and reduces their rows. */
static int bag_loop(struct dlb_graph *g, const struct bags *bags, int rows, int table)
{
	const bool sum = !strcmp(bags->reduce, "ReduceSum"); /* its axes are an operand */
	const int64_t zero = 0, trips = 4;
	const struct dlb_attr keep[] = {
		{ .name = "keepdims", .type = DLB_ATTR_INT, .i = bags->keep },
		{ .name = "axes", .type = DLB_ATTR_INTS, .ints = &bags->axis, .n = 1 }
	};
	int index;
	const int from = whole_numbers(g, bags->starts, 5), to = whole_numbers(g, bags->ends, 4),
		  axis = whole_numbers(g, &zero, 1), over = whole_numbers(g, &bags->axis, 1);
	struct dlb_body *body = dlb_graph_add_body(g, &index);
	struct dlb_graph *b = &body->g;
	b->input = dlb_arena_array(&b->arena, 9, sizeof *b->input);
	b->output = dlb_arena_array(&b->arena, 2, sizeof *b->output);
	const int i = in_body(b, "i", DLB_I64), go = in_body(b, "go", DLB_BOOL);
	body->n_formal = body->first_capture = 2;
	const int r = in_body(b, "rows", DLB_I64), t = in_body(b, "table", DLB_F64),
		  s = in_body(b, "starts", DLB_I64);
	const int e = in_body(b, "ends", DLB_I64), a = in_body(b, "axis", DLB_I64),
		  o = in_body(b, "over", DLB_I64);
	const int first = op(b, "Unsqueeze", (int[]){ op(b, "Gather", (int[]){ s, i }, 2, NULL, 0), a }, 2,
			     NULL, 0);
	const int last = op(b, "Unsqueeze", (int[]){ op(b, "Gather", (int[]){ e, i }, 2, NULL, 0), a }, 2,
			    NULL, 0);
	const int taken = op(b, "Gather", (int[]){ t, op(b, "Slice", (int[]){ r, first, last }, 3, NULL, 0) },
			     2, NULL, 0);
	b->output[b->n_outputs++] = op(b, "Identity", &go, 1, NULL, 0);
	b->output[b->n_outputs++] = op(b, bags->reduce, (int[]){ taken, o }, 1 + sum, keep, 2 - sum);
	const struct dlb_attr attr = { .name = "body", .type = DLB_ATTR_INT, .i = index };
	const int in[] = { add_constant(g, DLB_I64, NULL, 0, &trips), -1, rows, table, from, to, axis, over };
	return op(g, "Loop", in, 8, &attr, 1);
}

static double reduced(const char *how, double sum, double v, int k)
{
	return !strcmp(how, "ReduceMax") ? fmax(k ? sum : v, v) :
	       !strcmp(how, "ReduceMin") ? fmin(k ? sum : v, v) :
					   sum + v;
}

/* Bags of three become one reduction and adapt to the batch; else the loop stays. Both give each bag's value. */
static void bags(const struct bags *bags)
{
	const double table[4][2] = { { 1, 2 }, { 3, 5 }, { 7, 11 }, { 13, 17 } };
	struct dlb_graph g;
	struct test_run r;
	begin_graph(&g, 17);
	const int x = fixed_input(&g, "x", DLB_I64, (int64_t[]){ 4, 3 }, 2);
	g.tensor[x].bound = 4;
	const int rows = reshape(&g, x, (int64_t[]){ -1 }, 1),
		  w = add_constant(&g, DLB_F64, (int64_t[]){ 4, 2 }, 2, table);
	const int y = bag_loop(&g, bags, rows, w);
	g.output[g.n_outputs++] = op(&g, "Tanh", &y, 1, NULL, 0);
	fold(&g, 0);
	assert(is_dim(&g, g.output[0], 0, bags->matched, bags->matched ? 0 : 4));
	struct dlb_error err = { .what = "" };
	assert(IS(g.fixed_batch, ==, false) &&
	       IS(dlb_samples_agree(&g, &be, &err), ==, (bags->matched ? 0 : -1)));
	test_run_init(&r, &g, &be, 4);
	test_fill_inputs(&r, 3);
	test_run_phase(&r, DLB_FORWARD);
	const int64_t *index = r.value[g.input[0]];
	const double *got = r.value[g.output[0]];
	for (int i = 0; i < 4 && bags->axis == 0; i++)
		for (int c = 0; c < 2; c++) {
			const int64_t n = bags->ends[i] - bags->starts[i];
			double v = 0;
			for (int k = 0; k < n; k++)
				v = reduced(bags->reduce, v, table[index[bags->starts[i] + k]][c], k);
			v /= strcmp(bags->reduce, "ReduceMean") ? 1 : (double)n;
			assert(IS(fabs(got[2 * i + c] - tanh(v)), <, 1e-12));
		}
	test_run_release(&r);
	dlb_graph_release(&g);
}

static void all_bags(void)
{
	static const struct bags rows[] = {
		{ "ReduceMean", 0, 0, { 0, 3, 6, 9, 12 }, { 3, 6, 9, 12 }, true },
		{ "ReduceMax", 0, 0, { 0, 3, 6, 9, 12 }, { 3, 6, 9, 12 }, true },
		{ "ReduceSum", 0, 0, { 0, 3, 6, 9, 12 }, { 3, 6, 9, 12 }, true },
		{ "ReduceMin", 0, 0, { 0, 3, 6, 9, 12 }, { 3, 6, 9, 12 }, false },
		{ "ReduceMean", 0, 1, { 0, 3, 6, 9, 12 }, { 3, 6, 9, 12 }, false },
		{ "ReduceSum", 0, 1, { 0, 3, 6, 9, 12 }, { 3, 6, 9, 12 }, false },
		{ "ReduceMean", 1, 0, { 0, 3, 6, 9, 12 }, { 3, 6, 9, 12 }, false },
		{ "ReduceSum", 1, 0, { 0, 3, 6, 9, 12 }, { 3, 6, 9, 12 }, false },
		{ "ReduceMean", 0, 0, { 0, 3, 6, 9, 12 }, { 3, 5, 9, 12 }, false },
		{ "ReduceMean", 0, 0, { 0, 3, 6, 9, 12 }, { 3, 6, 9, 11 }, false },
		{ "ReduceMean", 0, 0, { 0, 3, 6, 9, 12 }, { 2, 6, 9, 12 }, false },
		{ "ReduceMean", 0, 0, { 0, 3, 7, 9, 12 }, { 3, 6, 9, 12 }, false },
		{ "ReduceMean", 0, 0, { 1, 3, 6, 9, 12 }, { 3, 6, 9, 12 }, false },
		{ "ReduceMean", 0, 0, { 0, 3, 6, 9, 11 }, { 3, 6, 9, 12 }, false },
		{ "ReduceMean", 0, 0, { 0, 2, 4, 6, 8 }, { 2, 4, 6, 8 }, false }, /* rows are left */
	};

	for (int i = 0; i < DLB_LEN(rows); i++)
		bags(&rows[i]);
}

/* An export at batch 4 runs with 6 samples, and does not mix them. */
static int exported(const char *dir)
{
	static const char *const models[] = { "mha",   "vit_small", "bert",        "gpt2",
					      "llama", "lstm_lm",   "gcn_scatter", "pe_transformer" };
	int n = 0;
	for (int i = 0; i < DLB_LEN(models); i++) {
		char path[300];
		struct dlb_graph g;
		struct dlb_error err = { .what = "" };
		snprintf(path, sizeof path, "%s/onnx/today/%s/default.onnx", dir, models[i]);
		if (access(path, R_OK))
			continue;
		if (dlb_onnx_read(path, &g, &err))
			test_die(&err);
		fold(&g, 6);
		assert(!g.fixed_batch && IS(g.batch, ==, 6));
		if (dlb_graph_find_parameters(&g, &err) || dlb_samples_agree(&g, &be, &err))
			test_die(&err);
		dlb_graph_release(&g);
		n++;
	}
	return n;
}

int main(void)
{
	const char *dir = test_data();

	test_backend(&be);
	const int64_t batches[] = { 1, 2, 4, 8 };
	for (int i = 0; i < DLB_LEN(batches); i++) {
		heads(batches[i], 8, 8, 2);
		heads(batches[i], 5, 4, 3);
		token(batches[i]);
		scattered(batches[i]);
		flattened(batches[i]);
		repeated(batches[i]);
		any_indices(batches[i]);
	}
	stays();
	masks(true);
	masks(false);
	for (int axis = 0; axis < 2; axis++) {
		mixes(axis, NULL);
		mixes(axis, "mse");
		mixes(axis, "cross-entropy");
	}
	names();
	all_bags();
	const int n = dir ? exported(dir) : 0;
	be.ops->close(&be);
	printf("batch: places, constants, mixed samples, names, %d exports%s\n", n,
	       dir ? "" : " (skip: no shared data)");
	return 0;
}
