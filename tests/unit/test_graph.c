/* The graph: construction, order, views at a batch size, colocation, signatures, and the document's
 * section. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include "check.h"
#include "graph_equal.h"
#include "graph/graph_json.h"
#include "graph/order.h"
#include "util/clock.h"
#include "util/rng.h"

static int n_checked;

static struct dlb_error err;

/* x (N,4) -> a -> y, with weight w and a constant c that is {2, 3 N + 1}. */
static void small_graph(struct dlb_graph *g)
{
	dlb_graph_init(g);
	g->opset = 17;
	g->batch = 8;
	const int x = dlb_graph_add_tensor(g, "x", DLB_T_INPUT),
		  w = dlb_graph_add_tensor(g, "w", DLB_T_WEIGHT);
	const int c = dlb_graph_add_tensor(g, "c", DLB_T_CONSTANT),
		  a = dlb_graph_add_tensor(g, "a", DLB_T_ACTIVATION);
	const int y = dlb_graph_add_tensor(g, "y", DLB_T_ACTIVATION);
	static const int64_t value[] = { 2, 1 }, mul[] = { 0, 3 };
	for (int t = 0; t < g->n_tensors; t++) {
		g->tensor[t].n_dims = 2;
		g->tensor[t].dim[0] = (struct dlb_dim){ 1, 0 };
		g->tensor[t].dim[1].add = 4;
	}
	g->tensor[w].dim[0] = (struct dlb_dim){ 0, 4 };
	g->tensor[c].n_dims = 1;
	g->tensor[c].dim[0] = (struct dlb_dim){ 0, 2 };
	g->tensor[c].dtype = DLB_I64;
	g->tensor[c].data = value;
	g->tensor[c].data_mul = mul;
	const struct dlb_attr attr[] = { { .name = "b", .type = DLB_ATTR_INT, .i = 3 },
					 { .name = "a", .type = DLB_ATTR_STR, .s = "text" } };
	dlb_graph_add_op(g, DLB_FORWARD,
			 &(struct dlb_op_spec){ .name = "first", .type = "Relu", DLB_OPERANDS(x, w, x),
						.out = (int[]){ a }, .n_out = 1, .attr = attr, .n_attr = 2 });
	dlb_graph_add_op(g, DLB_FORWARD,
			 &(struct dlb_op_spec){ .name = "second", .type = "Relu", DLB_OPERANDS(a, -1, c),
						.out = (int[]){ y }, .n_out = 1 });
	g->op[0].flop = 100;
	g->op[0].flop_fixed = 20;
	g->input = dlb_arena_array(&g->arena, 1, sizeof(int));
	g->output = dlb_arena_array(&g->arena, 1, sizeof(int));
	g->input[0] = x;
	g->output[0] = y;
	g->n_inputs = g->n_outputs = 1;
	assert(IS(dlb_graph_index(g), ==, 0) && IS(dlb_graph_check(g, &err), ==, 0));
}

static void test_views(void)
{
	struct dlb_graph g;
	struct dlb_arena a = { 0 };
	struct dlb_op_io io;
	small_graph(&g);

	assert(IS(g.tensor[3].producer, ==, 0) && IS(g.tensor[0].producer, ==, -1));
	/* counted once, though it is two operands */
	assert(IS(g.reader_start[1] - g.reader_start[0], ==, 1) && IS(g.reader[g.reader_start[0]], ==, 0));
	assert(IS(g.reader_start[4] - g.reader_start[3], ==, 1) && IS(g.reader[g.reader_start[3]], ==, 1));
	assert(IS(dlb_op_flop_at(&g, 0, 8), ==, 100) && IS(dlb_op_flop_at(&g, 0, 4), ==, 60) &&
	       IS(dlb_op_flop_at(&g, 0, 16), ==, 180));
	assert(IS(dlb_tensor_bytes(&g.tensor[0], 5), ==, 80));

	dlb_graph_io(&g, 1, 5, &a, &io);
	assert(IS(io.n_in, ==, 3) && IS(io.in[1].n_dims, ==, -1) && IS(io.in[0].dim[0], ==, 5) &&
	       IS(io.out[0].dim[1], ==, 4));
	assert(!io.value[0] && IS(((const int64_t *)io.value[2])[0], ==, 2) &&
	       IS(((const int64_t *)io.value[2])[1], ==, 16));
	dlb_graph_io(&g, 0, 5, &a, &io);
	assert(io.weight[1] && !io.weight[0]);

	/* equal keys for equal work, whatever the order of attributes; another batch is another key */
	char *key = dlb_op_signature(&g, 0, 8, &a), *key4 = dlb_op_signature(&g, 0, 4, &a);
	struct dlb_attr swap = g.op[0].attr[0];
	g.op[0].attr[0] = g.op[0].attr[1];
	g.op[0].attr[1] = swap;
	assert(SAME(key, dlb_op_signature(&g, 0, 8, &a)) && IS(strcmp(key, key4), !=, 0));
	assert(HAS(key, "w:f32[4,4]") && HAS(key, ";a=text;b=3"));

	/* integers beyond 2^53 survive */
	static const int64_t big[] = { INT64_MAX - 1 };
	static const int64_t none[] = { 0 };
	struct dlb_tensor t = { .dtype = DLB_I64, .n_dims = 0, .data = big, .data_mul = none };
	assert(IS(*(const int64_t *)dlb_tensor_value(&t, 3, &a), ==, INT64_MAX - 1));
	t = (struct dlb_tensor){
		.dtype = DLB_F32, .n_dims = 1, .dim = { { 2, 1 } }, .is_fill = true, .fill = 0.5
	};
	assert(IS(((const float *)dlb_tensor_value(&t, 3, &a))[6], ==, 0.5f));
	dlb_arena_release(&a);
	dlb_graph_release(&g);
	n_checked++;
}

static void test_order(uint64_t seed)
{
	struct dlb_rng rng;
	struct dlb_graph g;
	dlb_rng_init(&rng, seed);

	/* a random DAG written in a random order is sorted, and all references to ids are adapted */
	for (int round = 0; round < 30; round++) {
		enum { N = 40 };
		int at[N], tensor[N];
		char name[32];
		dlb_graph_init(&g);
		for (int i = 0; i < N; i++)
			at[i] = i;
		for (int i = N - 1; i > 0; i--) {
			const int k = (int)dlb_rng_below(&rng, (uint64_t)i + 1), swap = at[i];
			at[i] = at[k];
			at[k] = swap;
		}
		for (int i = 0; i < N; i++) {
			snprintf(name, sizeof name, "t%d", i);
			tensor[i] = dlb_graph_add_tensor(&g, name, DLB_T_ACTIVATION);
		}
		for (int i = 0; i < N; i++) {
			const int v = at[i];
			int in[3], n = 0;
			for (int k = 0; k < 3 && v > 0; k++)
				in[n++] = tensor[dlb_rng_below(&rng, (uint64_t)v)];
			snprintf(name, sizeof name, "op%d", v);
			dlb_graph_add_op(&g, v < N / 2 ? DLB_FORWARD : DLB_BACKWARD,
					 &(struct dlb_op_spec){ .name = name, .type = "Any", .in = in,
								.n_in = n, .out = &tensor[v], .n_out = 1 });
		}
		g.op[3].colocate = 7;
		g.op[5].of = 2;
		const char *who = g.op[3].name, *mate = g.op[7].name, *child = g.op[5].name,
			   *parent = g.op[2].name;
		assert(IS(dlb_graph_sort(&g, &err), ==, 0) && IS(dlb_graph_check(&g, &err), ==, 0));
		for (int i = 0; i < N; i++) {
			if (!strcmp(g.op[i].name, who))
				assert(SAME(g.op[g.op[i].colocate].name, mate));
			if (!strcmp(g.op[i].name, child))
				assert(SAME(g.op[g.op[i].of].name, parent));
			assert(IS(g.tensor[g.op[i].out[0]].producer, ==, i));
		}
		dlb_graph_release(&g);
	}

	/* an error names a cycle */
	dlb_graph_init(&g);
	const int a = dlb_graph_add_tensor(&g, "a", DLB_T_ACTIVATION),
		  b = dlb_graph_add_tensor(&g, "b", DLB_T_ACTIVATION);
	dlb_graph_add_op(&g, DLB_FORWARD, &(struct dlb_op_spec){ .name = "free", .type = "Any" });
	dlb_graph_add_op(&g, DLB_FORWARD,
			 &(struct dlb_op_spec){ .name = "p", .type = "Any", DLB_OPERANDS(a), .out = &b,
						.n_out = 1 });
	dlb_graph_add_op(&g, DLB_FORWARD,
			 &(struct dlb_op_spec){ .name = "q", .type = "Any", DLB_OPERANDS(b), .out = &a,
						.n_out = 1 });
	assert(IS(dlb_graph_sort(&g, &err), ==, -1) && HAS(err.what, "'p' <- 'q' <- 'p'"));
	assert(IS(dlb_graph_check(&g, &err), ==, -1) && HAS(err.what, "cycle"));
	assert(IS(dlb_graph_check_known(&g, &err), ==, -1) && HAS(err.what, "no operator Any") &&
	       HAS(err.where, "Any 'free' (opset 0)"));
	dlb_graph_release(&g);
	n_checked++;
}

static void test_state_makes_no_edges(void)
{
	/* an op that writes a buffer which an earlier op reads: no cycle, no producer */
	struct dlb_graph g;
	dlb_graph_init(&g);
	const int s = dlb_graph_add_tensor(&g, "mean", DLB_T_BUFFER),
		  a = dlb_graph_add_tensor(&g, "a", DLB_T_ACTIVATION);
	dlb_graph_add_op(&g, DLB_FORWARD,
			 &(struct dlb_op_spec){ .name = "p", .type = "Any", DLB_OPERANDS(s), .out = &a,
						.n_out = 1 });
	dlb_graph_add_op(&g, DLB_FORWARD,
			 &(struct dlb_op_spec){ .name = "q", .type = "Any", DLB_OPERANDS(a), .out = &s,
						.n_out = 1 });
	assert(IS(dlb_graph_sort(&g, &err), ==, 0) && IS(dlb_graph_check(&g, &err), ==, 0) &&
	       IS(g.tensor[s].producer, ==, -1));
	dlb_graph_release(&g);
	n_checked++;
}

static void test_groups(void)
{
	struct dlb_graph g;
	int group[6];
	dlb_graph_init(&g);
	for (int i = 0; i < 6; i++)
		dlb_graph_add_op(&g, DLB_FORWARD,
				 &(struct dlb_op_spec){ .name = (char[]){ (char)('a' + i), 0 },
							.type = "Any" });
	g.op[5].colocate = 3;
	g.op[3].colocate = 1;
	g.op[4].colocate = 5;
	dlb_graph_groups(&g, group);
	assert(IS(group[0], ==, 0) && IS(group[1], ==, 1) && IS(group[2], ==, 2) && IS(group[3], ==, 1) &&
	       IS(group[4], ==, 1) && IS(group[5], ==, 1));
	assert(IS(dlb_graph_check(&g, &err), ==, 0));
	g.op[1].colocate = 4;
	assert(IS(dlb_graph_check(&g, &err), ==, -1) && HAS(err.what, "comes round"));
	dlb_graph_release(&g);
	n_checked++;
}

/* -- the document -- */

static void round_trip(const struct dlb_graph *g)
{
	struct dlb_doc d;
	struct dlb_graph back;
	dlb_doc_init(&d, "test");
	dlb_doc_set(&d, "graph", dlb_graph_write(g));
	/* through text, as in a pipe */
	char *text = json_dumps(d.root, JSON_REAL_PRECISION(17));
	dlb_doc_release(&d);
	if (dlb_doc_parse(&d, text, strlen(text), "test", &err) || dlb_graph_read(&d, &back, &err)) {
		dlb_error_print(stderr, "test_graph", -1, &err);
		abort();
	}
	assert_same_graph(g, &back);
	dlb_graph_release(&back);
	dlb_doc_release(&d);
	free(text);
}

static void test_round_trip(void)
{
	struct dlb_graph g;
	small_graph(&g);
	round_trip(&g);

	/* every kind of attribute and value, and the numbers that JSON or jq cannot hold */
	static const int64_t ints[] = { 1, -2, INT64_MAX, INT64_MIN };
	static const double reals[] = { 1, 0.1, -1e-300, INFINITY };
	static const float values[] = { 0.1f, -INFINITY };
	const struct dlb_attr attr[] = {
		{ .name = "i", .type = DLB_ATTR_INT, .i = -7 },
		{ .name = "big", .type = DLB_ATTR_INT, .i = INT64_MAX },
		{ .name = "f", .type = DLB_ATTR_REAL, .f = 1e-5 },
		{ .name = "one", .type = DLB_ATTR_REAL, .f = 1 },
		{ .name = "inf", .type = DLB_ATTR_REAL, .f = -INFINITY },
		{ .name = "s", .type = DLB_ATTR_STR, .s = "1\n\"\xc3\xa4" },
		{ .name = "ints", .type = DLB_ATTR_INTS, .ints = ints, .n = 4 },
		{ .name = "none", .type = DLB_ATTR_INTS, .ints = ints, .n = 0 },
		{ .name = "reals", .type = DLB_ATTR_REALS, .reals = reals, .n = 4 },
		{ .name = "t",
		  .type = DLB_ATTR_TENSOR,
		  .desc = { .dtype = DLB_F32, .n_dims = 2, .dim = { 1, 2 } },
		  .data = values },
	};
	const int last = g.tensor[4].producer;
	const int z = dlb_graph_add_tensor(&g, "z", DLB_T_ACTIVATION);
	g.tensor[z].size_mul = 12;
	g.tensor[z].size_add = 100.5;
	dlb_graph_add_op(&g, DLB_FORWARD,
			 &(struct dlb_op_spec){ .name = "all", .type = "NoSuchType", .domain = "com.example",
						DLB_OPERANDS(g.op[last].out[0]), .out = &z, .n_out = 1,
						.attr = attr, .n_attr = DLB_LEN(attr) });
	g.op[2].opset = 3;
	g.op[2].flop = 1.5;
	static const uint64_t u64[] = { UINT64_MAX, 5 };
	static const uint8_t bits[] = { 1, 0 };
	static const uint16_t half[] = { 0x3c00, 0xfc00 };	/* 1, -inf */
	static const int8_t i8[] = { -128, 127 };
	const struct { enum dlb_dtype t; const void *v; } consts[] = {
		{ DLB_F32, values }, { DLB_U64, u64 }, { DLB_BOOL, bits }, { DLB_F16, half }, { DLB_I8, i8 },
		{ DLB_I64, ints + 2 }, { DLB_F64, reals + 1 },
	};
	for (int i = 0; i < DLB_LEN(consts); i++) {
		const int t = dlb_graph_add_tensor(&g, (char[]){ 'k', (char)('0' + i), 0 }, DLB_T_CONSTANT);
		g.tensor[t].dtype = consts[i].t;
		g.tensor[t].n_dims = 1;
		g.tensor[t].dim[0].add = 2;
		g.tensor[t].data = consts[i].v;
	}
	const struct dlb_dim dims[] = { { 64, 0 }, { 1, 1 }, { 2, -3 }, { -1, 9 } };
	const int t = dlb_graph_add_tensor(&g, "shape", DLB_T_ACTIVATION);
	g.tensor[t].n_dims = 4;
	memcpy(g.tensor[t].dim, dims, sizeof dims);
	g.tensor[t].layout = DLB_CHANNELS_LAST;
	const int w = dlb_graph_add_tensor(&g, "fill", DLB_T_WEIGHT);
	g.tensor[w].n_dims = 0;
	g.tensor[w].is_fill = true;
	g.tensor[w].fill = 0.02;
	g.tensor[w].home = 0;
	g.tensor[w].fan_in = 5;
	g.tensor[w].fan_out = 3;
	g.tensor[w].bound = 10;
	g.tensor[t].of = w;
	g.op[2].of = 1;
	g.op[2].colocate = 0;
	g.training = true;
	g.loss = 4;
	g.model_path = "/tmp/m.onnx";
	g.model_sha256 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
	assert(IS(dlb_graph_index(&g), ==, 0));
	round_trip(&g);
	dlb_graph_release(&g);
	n_checked++;
}

#define T(id, rest) "{\"id\":" #id ",\"name\":\"t" #id "\",\"kind\":\"activation\",\"dtype\":\"f32\"," rest "}"
#define OP(id, in, out, rest) "{\"id\":" #id ",\"name\":\"o" #id "\",\"type\":\"Any\",\"phase\":\"forward\",\"inputs\":[" in \
	"],\"outputs\":[" out "]" rest "}"
#define GRAPH(tensors, ops) "{\"batch\":4,\"dtype\":\"f32\",\"inputs\":[],\"outputs\":[],\"tensors\":[" tensors "],\"ops\":[" ops "]}"

static void test_hostile(void)
{
	static const struct { const char *graph, *says;
	} bad[] = {
		{ "[]", "expected an object" },
		{ "{}", "no member 'batch'" },
		{ GRAPH("", "") "", NULL },
		{ GRAPH(T(0, "\"shape\":[1]") "," T(1, "\"shape\":[\"N\",2]"),
			OP(0, "", "0", "") "," OP(1, "0", "1", "")),
		  NULL },
		{ GRAPH(T(1, "\"shape\":[1]"), ""), "id 1 at position 0" },
		{ GRAPH(T(0, "\"shape\":[1]") "," T(0, "\"shape\":[1]"), ""), "id 0 at position 1" },
		{ GRAPH(T(0, "\"shape\":[-1]"), ""), "below 0" },
		{ GRAPH(T(0, "\"shape\":[\"N-9\"]"), ""), "negative at batch 4" },
		{ GRAPH(T(0, "\"shape\":[\"M\"]"), ""), "no dimension" },
		{ GRAPH(T(0, "\"shape\":[\"N*2\"]"), ""), "no dimension" },
		{ GRAPH(T(0, "\"shape\":[\"\"]"), ""), "no dimension" },
		{ GRAPH(T(0, "\"shape\":[\"9999999999999999999*N\"]"), ""), "no dimension" },
		{ GRAPH(T(0, "\"shape\":[1000000000000,1000000000000]"), ""), "too large" },
		{ GRAPH(T(0, "\"shape\":[9223372036854775807]"), ""), "out of range" },
		{ GRAPH(T(0, "\"shape\":[1,1,1,1,1,1,1,1,1]"), ""), "at most 8" },
		{ GRAPH(T(0, "\"shape\":[2],\"value\":[1]"), ""), "1 values where the shape needs 2" },
		{ GRAPH(T(0, "\"shape\":[\"N\"],\"value\":[1]"), ""), "follows N" },
		{ GRAPH(T(0, "\"shape\":[1],\"value\":[\"x\"]"), ""), "number" },
		{ GRAPH(T(0, "\"shape\":[1],\"fill\":1,\"value\":[1]"), ""), "both" },
		{ GRAPH(T(0, "\"shape\":[1],\"valeu\":[1]"), ""), "value" },
		{ GRAPH(T(0, "\"shape\":[1],\"layout\":\"channels-last\""), ""), "3 dimensions" },
		{ GRAPH("{\"name\":\"a\",\"kind\":\"wieght\",\"dtype\":\"f32\"}", ""), "no kind 'wieght'" },
		{ GRAPH("{\"name\":\"a\",\"kind\":\"weight\",\"dtype\":\"f31\"}", ""), "no dtype 'f31'" },
		{ GRAPH("", OP(0, "7", "", "")), "no tensor 7" },
		{ GRAPH("", OP(0, "-1", "", "")), "below 0" },
		{ GRAPH(T(0, "\"shape\":[1]"), OP(0, "0", "0", "")), "itself: a cycle" },
		{ GRAPH(T(0, "\"shape\":[1]"), OP(0, "0", "", "") "," OP(1, "", "0", "")), "only later" },
		{ GRAPH(T(0, "\"shape\":[1]"), OP(0, "0", "", "")), "nothing makes tensor 't0'" },
		{ GRAPH(T(0, "\"shape\":[1]"), OP(0, "", "0", "") "," OP(1, "", "0", "")),
		  "made by op 'o0' already" },
		{ GRAPH("", OP(0, "", "", ",\"colocate\":3")), "above 0" },
		{ GRAPH("", OP(0, "", "", ",\"colocate\":0")), "comes round" },
		{ GRAPH("", OP(0, "", "", ",\"flop\":-1")), "below 0" },
		{ GRAPH("", OP(0, "", "", ",\"attributes\":{\"a\":null}")), "no attribute" },
		{ GRAPH("", OP(0, "", "", ",\"attributes\":{\"a\":[[1]]}")), "integer" },
		{ GRAPH("", OP(0, "", "",
			       ",\"attributes\":{\"a\":{\"dtype\":\"f32\",\"shape\":[3],\"value\":[1]}}")),
		  "needs 3" },
		{ GRAPH("{\"name\":\"x\",\"kind\":\"input\",\"dtype\":\"f32\"}", OP(0, "", "0", "")),
		  "cannot be an output" },
	};
	for (int i = 0; i < DLB_LEN(bad); i++) {
		char text[2000];
		struct dlb_doc d;
		struct dlb_graph g;
		snprintf(text, sizeof text, "{\"dlb\":\"1.0\",\"graph\":%s}", bad[i].graph);
		err = (struct dlb_error){ .what = "" };
		int rc = dlb_doc_parse(&d, text, strlen(text), "test", &err);
		if (!rc) {
			rc = dlb_graph_read(&d, &g, &err);
			dlb_graph_release(&g);
			dlb_doc_release(&d);
		}
		if ((rc != 0) != (bad[i].says != NULL) || (rc && !strstr(err.what, bad[i].says) &&
							   !strstr(err.hint, bad[i].says))) {
			fprintf(stderr, "document %d: %d, '%s: %s' (%s)\n", i, rc, err.where, err.what,
				err.hint);
			abort();
		}
	}
	n_checked += DLB_LEN(bad);
}

static void test_large(void)
{
	enum { N = 100000 };
	struct dlb_graph g, back;
	struct dlb_doc d;
	char name[32];
	dlb_graph_init(&g);
	g.batch = 32;
	int before = -1;
	for (int i = 0; i < N; i++) {
		snprintf(name, sizeof name, "t%d", i);
		const int t = dlb_graph_add_tensor(&g, name, DLB_T_ACTIVATION);
		g.tensor[t].n_dims = 2;
		g.tensor[t].dim[0] = (struct dlb_dim){ 1, 0 };
		g.tensor[t].dim[1].add = 64;
		snprintf(name, sizeof name, "op%d", i);
		const struct dlb_attr attr = { .name = "alpha", .type = DLB_ATTR_REAL, .f = 0.5 };
		dlb_graph_add_op(&g, DLB_FORWARD,
				 &(struct dlb_op_spec){ .name = name, .type = "Relu", .in = &before,
							.n_in = before >= 0, .out = &t, .n_out = 1,
							.attr = &attr, .n_attr = 1 });
		before = t;
	}
	const double start = dlb_clock_s();
	assert(IS(dlb_graph_sort(&g, &err), ==, 0));
	const double sorted = dlb_clock_s();
	dlb_doc_init(&d, "test");
	dlb_doc_set(&d, "graph", dlb_graph_write(&g));
	const double written = dlb_clock_s();
	assert(IS(dlb_graph_read(&d, &back, &err), ==, 0) && IS(back.n_ops, ==, N));
	const double read = dlb_clock_s();
	printf("100000 ops: sorted in %.2f s, written in %.2f s, read in %.2f s\n", sorted - start,
	       written - sorted, read - written);
	/* 25 s under valgrind; quadratic time would take longer even without it */
	assert(IS(read - written, <, 120));
	dlb_graph_release(&back);
	dlb_doc_release(&d);
	dlb_graph_release(&g);
	n_checked++;
}

int main(int argc, char **argv)
{
	const uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	printf("seed %" PRIu64 "\n", seed);
	test_views();
	test_order(seed);
	test_state_makes_no_edges();
	test_groups();
	test_round_trip();
	test_hostile();
	test_large();
	printf("test_graph: %d checks of building, order, views and the document\n", n_checked);
	return 0;
}
