/* The invariants of a graph: one broken at a time, with its place and message; and members of a document that
 * tell how the graph came from the model's file, written, read again, and refused. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "doc/doc.h"
#include "graph/adapters.h"
#include "graph/history_json.h"
#include "graph/order.h"
#include "graph/rewrite.h"
#include "util/rng.h"
#include "check.h"

enum { X, W, H, Y, DH, DW };

static int tensor(struct dlb_graph *g, const char *name, enum dlb_tensor_kind kind)
{
	const int t = dlb_graph_add_tensor(g, name, kind);

	g->tensor[t].n_dims = 1;
	g->tensor[t].dim[0] = (struct dlb_dim){ kind == DLB_T_WEIGHT ? 0 : 1, kind == DLB_T_WEIGHT ? 4 : 0 };
	return t;
}

static void vertex(struct dlb_graph *g, const char *name, enum dlb_phase phase, int a, int b, int out)
{
	const int in[2] = { a, b };

	dlb_graph_add_op(g, phase,
			 &(struct dlb_op_spec){
				 .name = name, .type = "Mul", .in = in, .n_in = 2, .out = &out, .n_out = 1 });
}

/* h = x w; y = h h; dh = y h; dw = dh x; an update of w. */
static void make(struct dlb_graph *g)
{
	dlb_graph_init(g);
	g->batch = 8;
	tensor(g, "x", DLB_T_INPUT);
	tensor(g, "w", DLB_T_WEIGHT);
	tensor(g, "h", DLB_T_ACTIVATION);
	tensor(g, "y", DLB_T_ACTIVATION);
	tensor(g, "dh", DLB_T_GRADIENT);
	tensor(g, "dw", DLB_T_GRADIENT);
	vertex(g, "a", DLB_FORWARD, X, W, H);
	vertex(g, "b", DLB_FORWARD, H, H, Y);
	vertex(g, "b'", DLB_BACKWARD, Y, H, DH);
	vertex(g, "a'", DLB_BACKWARD, DH, X, DW);
	vertex(g, "u", DLB_UPDATE, W, DW, W);
	g->input = dlb_arena_array(&g->arena, 1, sizeof *g->input);
	g->output = dlb_arena_array(&g->arena, 1, sizeof *g->output);
	g->input[0] = X;
	g->output[0] = Y;
	g->n_inputs = g->n_outputs = 1;
}

struct broken { const char *where, *what; };
#define IS_BROKEN(at, text) return (struct broken){ at, text }

static struct broken break_op(struct dlb_graph *g, int i)
{
	struct dlb_op *o = &g->op[1];

	switch (i) {
	case 0: o->name = ""; IS_BROKEN("/graph/ops/1", "op without a name");
	case 1: o->name = NULL; IS_BROKEN("/graph/ops/1", "op without a name");
	case 2: o->type = ""; IS_BROKEN("/graph/ops/1", "op without a type");
	case 3: o->kind = -2; IS_BROKEN("/graph/ops/1", "unknown kind or phase");
	case 4: o->kind = DLB_N_OPS; IS_BROKEN("/graph/ops/1", "unknown kind or phase");
	case 5: o->phase = DLB_N_PHASES; IS_BROKEN("/graph/ops/1", "unknown kind or phase");
	case 6: o->in[1] = 6; IS_BROKEN("/graph/ops/1/inputs/1", "no tensor 6 (there are 6)");
	case 7: o->in[0] = -2; IS_BROKEN("/graph/ops/1/inputs/0", "no tensor -2 (there are 6)");
	case 8: o->out[0] = 6; IS_BROKEN("/graph/ops/1/outputs/0", "no tensor 6 (there are 6)");
	case 9: o->out[0] = X; IS_BROKEN("/graph/ops/1/outputs/0",
					 "tensor 'x' is fed or constant and cannot be an output");
	case 10: o->of = 5; IS_BROKEN("/graph/ops/1/of", "no op 5 (there are 5)");
	case 11: o->colocate = -2; IS_BROKEN("/graph/ops/1/colocate", "no op -2 (there are 5)");
	case 12: o->flop = -1; IS_BROKEN("/graph/ops/1", "negative work of op 'b'");
	case 13: o->flop_fixed = -1; IS_BROKEN("/graph/ops/1", "negative work of op 'b'");
	case 14: o->bytes = -1; IS_BROKEN("/graph/ops/1", "negative work of op 'b'");
	case 15: o->bytes_fixed = -1; IS_BROKEN("/graph/ops/1", "negative work of op 'b'");
	case 16: o->phase = DLB_UPDATE; IS_BROKEN("/graph/ops/2", "op 'b'' stands after one of a later phase");
	case 17: o->name = "a"; IS_BROKEN("/graph/ops/1/name", "op 'a' has the name of op 0");
	case 18: o->out[0] = H; IS_BROKEN("/graph/ops/1/outputs/0", "tensor 'h' is made by op 'a' already");
	case 19: o->in[1] = Y; IS_BROKEN("/graph/ops/1/inputs/1",
					 "op 'b' reads 'y', which op 'b' makes itself: a cycle");
	case 20: o->in[0] = DH; IS_BROKEN("/graph/ops/1/inputs/0", "op 'b' reads 'dh', which op 'b'' makes "
								   "only later: a cycle or not in order");
	case 21: g->op[0].out[0] = -1; IS_BROKEN("/graph/ops/1/inputs/0",
						 "nothing makes tensor 'h', which op 'b' reads");
	case 22: g->op[0].colocate = 1; o->colocate = 2; g->op[2].colocate = 0;
		IS_BROKEN("/graph/ops/0/colocate", "colocation of op 'a' comes round to itself");
	case 23: o->colocate = 1; IS_BROKEN("/graph/ops/1/colocate",
					    "colocation of op 'b' comes round to itself");
	case 24: g->tensor[X].kind = DLB_T_SEED; o->out[0] = X;
		IS_BROKEN("/graph/ops/1/outputs/0", "tensor 'x' is fed or constant and cannot be an output");
	case 25: g->tensor[X].kind = DLB_T_LABEL; o->out[0] = X;
		IS_BROKEN("/graph/ops/1/outputs/0", "tensor 'x' is fed or constant and cannot be an output");
	case 26: g->tensor[X].kind = DLB_T_CONSTANT; o->out[0] = X;
		IS_BROKEN("/graph/ops/1/outputs/0", "tensor 'x' is fed or constant and cannot be an output");
	}
	return (struct broken){ NULL, NULL };
}

static struct broken break_tensor(struct dlb_graph *g, int i)
{
	static const float v[4] = { 0 };
	struct dlb_tensor *t = &g->tensor[H];

	switch (i) {
	case 0: t->name = ""; IS_BROKEN("/graph/tensors/2", "tensor without a name");
	case 1: t->name = NULL; IS_BROKEN("/graph/tensors/2", "tensor without a name");
	case 2: t->kind = DLB_N_T_KINDS; IS_BROKEN("/graph/tensors/2", "unknown kind, dtype or layout");
	case 3: t->dtype = DLB_N_DTYPES; IS_BROKEN("/graph/tensors/2", "unknown kind, dtype or layout");
	case 4: t->layout = DLB_CHANNELS_LAST + 1;
		IS_BROKEN("/graph/tensors/2", "unknown kind, dtype or layout");
	case 5: t->n_dims = -2; IS_BROKEN("/graph/tensors/2", "tensor 'h' has -2 dimensions; at most 8");
	case 6: t->n_dims = 9; IS_BROKEN("/graph/tensors/2", "tensor 'h' has 9 dimensions; at most 8");
	case 7: t->layout = DLB_CHANNELS_LAST; t->n_dims = 2;
		IS_BROKEN("/graph/tensors/2", "channels-last needs 3 dimensions or more");
	case 8: t->size_mul = -1; IS_BROKEN("/graph/tensors/2", "negative size");
	case 9: t->size_add = -1; IS_BROKEN("/graph/tensors/2", "negative size");
	case 10: t->data = v; IS_BROKEN("/graph/tensors/2/shape/0",
					"tensor 'h' has values, but its shape follows the batch");
	case 11: t->dim[0].mul = INT64_MAX; IS_BROKEN("/graph/tensors/2/shape/0",
						      "dimension of tensor 'h' is out of range");
	case 12: t->dim[0].add = -9; IS_BROKEN("/graph/tensors/2/shape/0",
					       "dimension of tensor 'h' is negative at batch 8");
	case 13: t->dim[0] = (struct dlb_dim){ 0, -2 };
		IS_BROKEN("/graph/tensors/2/shape/0", "dimension of tensor 'h' is negative at batch 8");
	case 14: t->n_dims = 5;
		for (int k = 0; k < 5; k++)
			t->dim[k] = (struct dlb_dim){ 0, 10000 };
		IS_BROKEN("/graph/tensors/2", "tensor 'h' is too large");
	case 15: t->home = 5; IS_BROKEN("/graph/tensors/2/home", "no op 5 (there are 5)");
	case 16: t->of = 6; IS_BROKEN("/graph/tensors/2/of", "no tensor 6 (there are 6)");
	case 17: t->name = "w"; IS_BROKEN("/graph/tensors/2/name", "tensor 'w' has the name of tensor 1");
	case 18: g->batch = -1; IS_BROKEN("/graph/batch", "batch -1 is out of range");
	case 19: g->batch = INT64_MAX; IS_BROKEN("/graph/batch", "batch 9223372036854775807 is out of range");
	case 20: g->input[0] = -1; IS_BROKEN("/graph/inputs", "no tensor -1");
	case 21: g->input[0] = 6; IS_BROKEN("/graph/inputs", "no tensor 6");
	case 22: g->output[0] = -1; IS_BROKEN("/graph/outputs", "no tensor -1");
	case 23: g->output[0] = 6; IS_BROKEN("/graph/outputs", "no tensor 6");
	case 24: g->loss = 6; IS_BROKEN("/graph/loss", "no tensor 6 (there are 6)");
	case 25: g->label = -2; IS_BROKEN("/graph/label", "no tensor -2 (there are 6)");
	case 26: g->seed = 6; IS_BROKEN("/graph/seed", "no tensor 6 (there are 6)");
	}
	return (struct broken){ NULL, NULL };
}

/* What is as large or as small as it may be. */
static bool keep(struct dlb_graph *g, int i)
{
	struct dlb_tensor *t = &g->tensor[H];
	struct dlb_op *o = &g->op[1];

	switch (i) {
	case 0: return true;
	case 1: o->in[1] = -1; return true;
	case 2: o->of = 4; o->colocate = 4; return true;
	case 3: o->kind = -1; return true;
	case 4: o->kind = DLB_N_OPS - 1; return true;
	case 5: t->n_dims = -1; return true;
	case 6: t->n_dims = 8; return true;
	case 7: t->n_dims = 3; t->layout = DLB_CHANNELS_LAST; return true;
	case 8: t->dim[0].add = -8; return true;
	case 9: t->dim[0] = (struct dlb_dim){ 0, -1 }; return true;	/* unknown */
	case 10: t->home = 4; t->of = 5; return true;
	case 11: g->batch = 0; return true;
	case 12: g->loss = 5; g->label = 5; g->seed = 5; return true;
	case 13: g->input[0] = 0; g->output[0] = 5; return true;
	case 14: g->op[0].colocate = 1; o->colocate = 2; return true;
	case 15: g->op[2].colocate = 0; o->colocate = 0; g->op[3].colocate = 2; return true;
	case 16: t->n_dims = 4;
		for (int k = 0; k < 4; k++)
			t->dim[k] = (struct dlb_dim){ 0, 10000 };
		return true;
	}
	return false;
}

static void test_invariants(void)
{
	struct broken (*const lists[])(struct dlb_graph * g, int i) = { break_op, break_tensor };
	struct dlb_error err = { .what = "" };
	struct dlb_graph g;
	int n = 0;

	for (int l = 0; l < 2; l++)
		for (int i = 0; make(&g), true; i++, n++) {
			const struct broken b = lists[l](&g, i);
			if (!b.what) {
				dlb_graph_release(&g);
				break;
			}
			assert(IS(dlb_graph_check(&g, &err), ==, -1) && SAME(err.where, b.where) &&
			       SAME(err.what, b.what) && err.hint[0]);
			dlb_graph_release(&g);
		}
	assert(IS(n, ==, 54));
	for (int i = 0; make(&g), keep(&g, i); i++) {
		if (dlb_graph_check(&g, &err)) {
			fprintf(stderr, "%d: %s: %s\n", i, err.where, err.what);
			abort();
		}
		dlb_graph_release(&g);
	}
	dlb_graph_release(&g);
}

/* Ops that colocation joins, directly or through others, have the least id of them as their group. */
static void test_groups(void)
{
	struct dlb_rng rng;

	dlb_rng_init(&rng, 1);
	for (int turn = 0; turn < 200; turn++) {
		struct dlb_graph g;
		int group[5], want[5];
		make(&g);
		for (int i = 0; i < 5; i++) {
			const int to = (int)dlb_rng_below(&rng, 8); /* from 5 on: none */

			g.op[i].colocate = to < 5 ? to : -1;
			want[i] = i;
		}
		for (int again = 0; again < 5; again++)
			for (int i = 0; i < 5; i++) {
				const int k = g.op[i].colocate < 0 ? i : g.op[i].colocate;
				want[i] = want[k] = want[i] < want[k] ? want[i] : want[k];
			}
		dlb_graph_groups(&g, group);
		assert(!memcmp(group, want, sizeof want));
		dlb_graph_release(&g);
	}
}

/* -- members of a document -- */

typedef int reader(const struct dlb_ref *graph, struct dlb_graph *g, struct dlb_error *err);

static int read_members(const char *text, reader *read, struct dlb_graph *g, struct dlb_error *err)
{
	json_t *v = json_loads(text, 0, NULL);
	const struct dlb_ref r = { .v = v, .key = "graph", .index = -1 };

	assert(v);
	const int rc = read(&r, g, err);
	json_decref(v);
	return rc;
}

static const char history[] =
	"{\"rewrites\": [{\"name\": \"gelu\", \"count\": 12}, {\"name\": \"norm\", \"count\": 1}],"
	" \"split\": [{\"op\": \"fc1\", \"shards\": 3, \"axis\": \"output\", \"why\": \"asked\"},"
	" {\"op\": \"fc2\", \"shards\": 2, \"axis\": \"input\", \"why\": \"follows\", \"sums\": \"pairs\"}],"
	" \"listed\": [{\"name\": \"fc.weight\", \"input\": \"p_fc\", \"kind\": \"parameter\", "
	"\"persistent\": true},"
	" {\"name\": \"m\", \"input\": \"b_m\", \"kind\": \"buffer\", \"persistent\": false},"
	" {\"name\": \"k\", \"input\": \"c_k\", \"kind\": \"constant\", \"persistent\": true}],"
	" \"upcast\": {\"f16\": {\"initializers\": 4, \"others\": 2}, \"bf16\": {\"initializers\": 0, "
	"\"others\": 7}},"
	" \"unmerged\": [{\"name\": \"b.w\", \"of\": \"a.w\", \"vertex\": \"conv2\", \"operand\": 1},"
	" {\"name\": \"c.w\", \"of\": \"a.w\", \"vertex\": \"conv3\"}]}";

/* The first `from` in the text, replaced, is refused at this place. */
static void refused(const char *text, reader *read, const char *from, const char *to, const char *where,
		    const char *what)
{
	const char *at = strstr(text, from);
	struct dlb_error err = { .what = "" };
	struct dlb_graph g;
	char changed[2000];

	assert(at);
	snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
	dlb_graph_init(&g);
	if (read_members(changed, read, &g, &err) != -1 || !strstr(err.where, where) ||
	    !strstr(err.what, what)) {
		fprintf(stderr, "%s for %s: %s: %s\n", to, from, err.where, err.what);
		abort();
	}
	dlb_graph_release(&g);
}

static void test_history(void)
{
	static const struct {
		const char *from, *to, *where, *what;
	} rows[] = {
		{ "[{\"name\": \"gelu\"", "3, \"x\": [{\"name\": \"gelu\"", "/graph/rewrites", "" },
		{ "\"count\": 12", "\"count\": -1", "/graph/rewrites/0/count", "-1 is below 0" },
		{ "\"count\": 12", "\"counts\": 12", "/graph/rewrites/0", "counts" },
		{ "\"name\": \"gelu\"", "\"name\": 1", "/graph/rewrites/0/name", "" },
		{ "[{\"op\": \"fc1\"", "3, \"x\": [{\"op\": \"fc1\"", "/graph/split", "" },
		{ "\"shards\": 3", "\"shards\": 1", "/graph/split/0/shards", "1 is below 2" },
		{ "\"op\": \"fc1\"", "\"ops\": \"fc1\"", "/graph/split/0", "ops" },
		{ "\"axis\": \"output\"", "\"axis\": 1", "/graph/split/0/axis", "" },
		{ "\"why\": \"asked\"", "\"why\": 1", "/graph/split/0/why", "" },
		{ "\"pairs\"", "\"triples\"", "/graph/split/1/sums", "triples" },
		{ "[{\"name\": \"fc.weight\"", "3, \"x\": [{\"name\": \"fc.weight\"", "/graph/listed", "" },
		{ "\"parameter\"", "\"weight\"", "/graph/listed/0/kind", "weight" },
		{ "\"persistent\": false", "\"persistent\": 0", "/graph/listed/1/persistent", "" },
		{ "\"input\": \"b_m\"", "\"inputs\": \"b_m\"", "/graph/listed/1", "inputs" },
		{ "\"input\": \"b_m\"", "\"input\": 5", "/graph/listed/1/input", "" },
		{ "{\"f16\"", "3, \"x\": {\"f16\"", "/graph/upcast", "" },
		{ "{\"f16\"", "{\"f8\"", "/graph/upcast", "f8" },
		{ "{\"initializers\": 4, \"others\": 2}", "4", "/graph/upcast/f16", "" },
		{ "\"initializers\": 4", "\"initializers\": -4", "/graph/upcast/f16/initializers",
		  "-4 is below 0" },
		{ "\"others\": 7", "\"others\": -7", "/graph/upcast/bf16/others", "-7 is below 0" },
		{ "\"others\": 7", "\"other\": 7", "/graph/upcast/bf16", "other" },
		{ "[{\"name\": \"b.w\"", "3, \"x\": [{\"name\": \"b.w\"", "/graph/unmerged", "" },
		{ "\"name\": \"b.w\"", "\"name\": 2", "/graph/unmerged/0/name", "" },
		{ "\"of\": \"a.w\"", "\"of\": 2", "/graph/unmerged/0/of", "" },
		{ "\"vertex\": \"conv2\"", "\"vertex\": 2", "/graph/unmerged/0/vertex", "" },
		{ "\"operand\": 1", "\"operand\": -1", "/graph/unmerged/0/operand", "-1 is below 0" },
		{ "\"operand\": 1", "\"operands\": 1", "/graph/unmerged/0", "operands" },
	};
	struct dlb_error err = { .what = "" };
	struct dlb_graph g;

	dlb_graph_init(&g);
	assert(!read_members(history, dlb_history_read, &g, &err));
	assert(IS(g.n_rewritten, ==, 2) && IS(g.rewritten[0].count, ==, 12) &&
	       SAME(g.rewritten[1].name, "norm"));
	assert(IS(g.n_was_split, ==, 2) && IS(g.was_split[0].parts, ==, 3) && !g.was_split[0].pairs &&
	       g.was_split[1].pairs && SAME(g.was_split[1].axis, "input") &&
	       SAME(g.was_split[0].why, "asked"));
	assert(IS(g.n_listed, ==, 3) && IS(g.listed[1].kind, ==, DLB_LISTED_BUFFER) &&
	       IS(g.listed[2].kind, ==, DLB_LISTED_CONSTANT) && g.listed[0].persistent &&
	       !g.listed[1].persistent);
	assert(IS(g.upcast[DLB_UPCAST_F16].initializers, ==, 4) &&
	       IS(g.upcast[DLB_UPCAST_F16].others, ==, 2) && IS(g.upcast[DLB_UPCAST_BF16].others, ==, 7));
	assert(IS(g.n_unmerged, ==, 2) && IS(g.unmerged[0].operand, ==, 1) &&
	       IS(g.unmerged[1].operand, ==, 0) && SAME(g.unmerged[1].vertex, "conv3"));
	json_t *want = json_loads(history, 0, NULL), *got = json_object();
	dlb_history_write(&g, got);
	assert(json_equal(want, got));
	json_decref(want);
	json_decref(got);
	dlb_graph_release(&g);

	dlb_graph_init(&g); /* nothing is written of what there is not, and nothing is needed */
	assert(!read_members("{}", dlb_history_read, &g, &err));
	got = json_object();
	dlb_history_write(&g, got);
	assert(IS(json_object_size(got), ==, 0));
	json_decref(got);
	dlb_graph_release(&g);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		refused(history, dlb_history_read, rows[i].from, rows[i].to, rows[i].where, rows[i].what);
}

static const char adapters[] = "{\"adapters\": [{\"of\": \"w\", \"a\": \"w.a\", \"b\": \"w.b\", \"rank\": 2,"
			       " \"scale\": 0.5, \"transposed\": true}]}";

/* A weight w (5, 3), its adapters a (2, 3) and b (5, 2). */
static void make_adapted(struct dlb_graph *g)
{
	static const struct {
		const char *name;
		int rows, columns;
	} rows[] = { { "w", 5, 3 }, { "w.a", 2, 3 }, { "w.b", 5, 2 } };

	dlb_graph_init(g);
	for (int i = 0; i < 3; i++) {
		const int t = dlb_graph_add_tensor(g, rows[i].name, DLB_T_WEIGHT);
		g->tensor[t].n_dims = 2;
		g->tensor[t].dim[0] = (struct dlb_dim){ 0, rows[i].rows };
		g->tensor[t].dim[1] = (struct dlb_dim){ 0, rows[i].columns };
	}
}

static void test_adapters(void)
{
	static const struct {
		const char *from, *to, *what;
	} rows[] = {
		{ "\"rank\": 2", "\"rank\": 0", "0 is below 1" },
		{ "\"rank\": 2", "\"rank\": 3",
		  "its weights are not in the graph, or their shapes do not agree" },
		{ "\"scale\": 0.5", "\"scale\": -1", "" },
		{ "\"scale\"", "\"scales\"", "scales" },
		{ "\"of\": \"w\"", "\"of\": \"v\"", "its weights are not in the graph" },
		{ "\"of\": \"w\"", "\"of\": \"w.a\"", "their shapes do not agree" },
		{ "\"a\": \"w.a\"", "\"a\": \"w.b\"", "their shapes do not agree" },
		{ "\"b\": \"w.b\"", "\"b\": \"w.a\"", "their shapes do not agree" },
		{ "\"b\": \"w.b\"", "\"b\": \"w\"", "their shapes do not agree" },
		{ "true", "false", "their shapes do not agree" },
		{ "true", "1", "" },
		{ "[{", "3, \"x\": [{", "" },
	};
	struct dlb_error err = { .what = "" };
	struct dlb_graph g;

	for (int i = -1; i < (int)(sizeof rows / sizeof *rows); i++) {
		char changed[400];
		const char *at = i < 0 ? adapters : strstr(adapters, rows[i].from);
		assert(at);
		snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - adapters), adapters,
			 i < 0 ? "" : rows[i].to, at + (i < 0 ? 0 : strlen(rows[i].from)));
		make_adapted(&g);
		const int rc = read_members(changed, dlb_adapters_read, &g, &err);
		if (i >= 0) {
			assert(IS(rc, ==, -1) && HAS(err.what, rows[i].what));
		} else {
			assert(IS(rc, ==, 0) && IS(g.n_adapters, ==, 1) && IS(g.adapter[0].rank, ==, 2) &&
			       IS(g.adapter[0].scale, ==, .5) && g.adapter[0].transposed &&
			       SAME(g.adapter[0].b, "w.b"));
			json_t *want = json_loads(adapters, 0, NULL), *got = json_object();
			json_object_set_new(got, "adapters", dlb_adapters_write(&g));
			assert(json_equal(want, got));
			json_decref(want);
			json_decref(got);
			assert(SAME(dlb_adapter_module(&(struct dlb_adapter){ .of = "m.fc.weight" },
						       &g.arena),
				    "m.fc"));
			assert(SAME(dlb_adapter_module(&(struct dlb_adapter){ .of = "m.fc.w" }, &g.arena),
				    "m.fc.w"));
			assert(SAME(dlb_adapter_module(&(struct dlb_adapter){ .of = ".weight" }, &g.arena),
				    ".weight"));
		}
		dlb_graph_release(&g);
	}
}

/* of += scale b a, by hand: in 3, out 2, rank 2; of (out, in), and its transpose. */
static void test_merge(void)
{
	static const float a[6] = { 1, 2, 3, 4, 5, 6 }, b[4] = { 1, 10, 100, 1000 };
	static const double wide_a[6] = { 1, 2, 3, 4, 5, 6 }, wide_b[4] = { 1, 10, 100, 1000 };
	static const double product[2][3] = { { 41, 52, 63 }, { 4100, 5200, 6300 } };

	for (int turned = 0; turned < 2; turned++) {
		const struct dlb_adapter ad = { .rank = 2, .scale = .5, .transposed = turned };
		float of[6];
		double wide[6];
		for (int i = 0; i < 6; i++)
			wide[i] = of[i] = (float)i;
		dlb_adapter_merge(&ad, DLB_F32, 3, 2, a, b, of);
		dlb_adapter_merge(&ad, DLB_F64, 3, 2, wide_a, wide_b, wide);
		for (int o = 0; o < 2; o++)
			for (int i = 0; i < 3; i++) {
				const int at = turned ? o * 3 + i : i * 2 + o;
				assert(IS(of[at], ==, (double)at + product[o][i] / 2) &&
				       IS(wide[at], ==, (double)at + product[o][i] / 2));
			}
	}
}

int main(void)
{
	test_invariants();
	test_groups();
	test_history();
	test_adapters();
	test_merge();
	return 0;
}
