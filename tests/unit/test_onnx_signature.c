/* The exporter's list of parameters in a model's metadata: the forms of PyTorch's versions, and invalid
 * texts. */
#include "check.h"
#include "graph_equal.h"
#include "onnx_model.h"
#include "graph/graph_json.h"
#include "graph/passes.h"

static void add_metadata(struct model *m, const char *key, const char *value)
{
	Onnx__StringStringEntryProto *e = dlb_arena_alloc(&m->a, sizeof *e);

	onnx__string_string_entry_proto__init(e);
	e->key = (char *)key;
	e->value = (char *)value;
	m->g.metadata_props = dlb_arena_array(&m->a, 1, sizeof *m->g.metadata_props);
	m->g.metadata_props[m->g.n_metadata_props++] = e;
}

static void read_signature(const char *text, struct dlb_graph *g)
{
	struct model m;

	if (seeds)
		write_seed(text, strlen(text));
	start(&m);
	add_metadata(&m, "pkg.torch.export.ExportedProgram.graph_signature", text);
	if (parse(&m, g))
		die(text);
}

/* -- forms -- */

static const struct dlb_listed want[] = {
	{ "l.weight", "p_l_weight", DLB_LISTED_PARAMETER, true }, { "b", "b_b", DLB_LISTED_BUFFER, true },
	{ "nb", "b_nb", DLB_LISTED_BUFFER, false }, { "k", "c_k", DLB_LISTED_CONSTANT, false },
};

static void listed(const char *text)
{
	struct dlb_graph g, back;
	struct dlb_doc d;

	read_signature(text, &g);
	assert(IS(g.n_listed, ==, DLB_LEN(want)) && !g.n_notes);
	for (int i = 0; i < g.n_listed; i++) {
		const struct dlb_listed *p = &g.listed[i];
		assert(SAME(p->name, want[i].name) && SAME(p->input, want[i].input));
		assert(IS(p->kind, ==, want[i].kind) && IS(p->persistent, ==, want[i].persistent));
	}
	g.batch = 4;
	dlb_doc_init(&d, "test");
	dlb_doc_set(&d, "graph", dlb_graph_write(&g));
	if (dlb_graph_read(&d, &back, &err))
		die(text);
	assert_same_graph(&g, &back);
	dlb_doc_release(&d);
	dlb_graph_release(&g);
	dlb_graph_release(&back);
	n_checked++;
}

#define PARAMETER "InputSpec(kind=<InputKind.PARAMETER: 2>, arg=TensorArgument(name='p_l_weight'), target='l.weight'"
#define BUFFER(in, name) "InputSpec(kind=<InputKind.BUFFER: 3>, arg=TensorArgument(name='" in "'), target='" name "'"
#define CONSTANT "InputSpec(kind=<InputKind.CONSTANT_TENSOR: 4>, arg=TensorArgument(name='c_k'), target='k'"
#define INPUT "InputSpec(kind=<InputKind.USER_INPUT: 1>, arg=TensorArgument(name='x'), target=None"
#define NUMBER "InputSpec(kind=<InputKind.USER_INPUT: 1>, arg=ConstantArgument(name='', value='a)]\\'='), target=None"
#define OUTPUTS "], output_specs=[OutputSpec(kind=<OutputKind.USER_OUTPUT: 1>, arg=TensorArgument(name='y'), target=None)])"

static void test_forms(void)
{
	static const char lines[] =
		"\n# inputs\np_l_weight: PARAMETER target='l.weight'\nb_b: BUFFER target='b' "
		"persistent=True\n"
		"b_nb: BUFFER target='nb' persistent=False\nc_k: CONSTANT_TENSOR target='k'\nx: USER_INPUT\n"
		"obj: CUSTOM_OBJ target='o'\n\n# outputs\ny: USER_OUTPUT\n";

	listed(lines);
	listed("ExportGraphSignature(input_specs=[" PARAMETER
	       ", persistent=None), " BUFFER("b_b", "b") ", persistent=True), " BUFFER(
		       "b_nb", "nb") ", persistent=False), " CONSTANT ", persistent=None), " INPUT
				     ", persistent=None), " NUMBER ", persistent=None)" OUTPUTS);
}

/* Names for which Python uses other quotes or backslashes. */
static void test_quotes(void)
{
	struct dlb_graph g;

	read_signature("ExportGraphSignature(input_specs=[InputSpec(kind=<InputKind.PARAMETER: 2>, "
		       "arg=TensorArgument(name=\"p'\"), "
		       "target='a\\\\b\\'c')" OUTPUTS,
		       &g);
	assert(IS(g.n_listed, ==, 1) && SAME(g.listed[0].input, "p'") && SAME(g.listed[0].name, "a\\b'c"));
	dlb_graph_release(&g);
	read_signature("# inputs\np: PARAMETER target='it's' here'\n# outputs\n", &g);
	assert(IS(g.n_listed, ==, 1) && SAME(g.listed[0].name, "it's' here"));
	dlb_graph_release(&g);
	n_checked += 2;
}

/* -- invalid lists are ignored, with a message -- */

static void test_malformed(void)
{
	static const char *const texts[] = {
		"",
		"x",
		"# inputs\np: PARAMETER target=''\n# outputs\n",
		"ExportGraphSignature(input_specs=[InputSpec(kind=<InputKind.PARAMETER: 2>, "
		"arg=TensorArgument(name='p'), target='')" OUTPUTS,
		"# outputs\n",
		"# inputs\n",
		"# inputs\np: PARAMETER target='a'",
		"# inputs\np: PARAMETER\n# outputs\n",
		"# inputs\np: PARAMETER target='a\n# outputs\n",
		"# inputs\np: PARAMETER target='a' x=1\n# outputs\n",
		"# inputs\n: PARAMETER target='a'\n# outputs\n",
		"p: PARAMETER target='a'\n# inputs\n# outputs\n",
		"# inputs\np: PARAMETER target='\xff'\n# outputs\n",
		"ExportGraphSignature(input_specs=[",
		"ExportGraphSignature(input_specs=[InputSpec(",
		"ExportGraphSignature(input_specs=[InputSpec()" OUTPUTS,
		"ExportGraphSignature(input_specs=[" PARAMETER,
		"ExportGraphSignature(input_specs=[" PARAMETER OUTPUTS,
		"ExportGraphSignature(input_specs=[" PARAMETER "), "
		"InputSpec(kind=<InputKind.PARAMETER: 2>, arg=1, target='t')" OUTPUTS,
		"ExportGraphSignature(input_specs=[InputSpec(kind=PARAMETER, arg=TensorArgument(name='p'), "
		"target='t')" OUTPUTS,
		"ExportGraphSignature(input_specs=[InputSpec(kind=<InputKind.BUFFER: 3>, arg=A(name='\\n'), "
		"target='t')" OUTPUTS,
		"ExportGraphSignature(input_specs=[InputSpec(kind=<InputKind.BUFFER: 3>, arg=A(name='a'), "
		"target='t\\",
		"ExportGraphSignature(input_specs=[InputSpec(kind=<InputKind.BUFFER: 3>, arg=A(name='a'b), "
		"target='t')" OUTPUTS,
	};

	for (int i = 0; i < DLB_LEN(texts); i++) {
		const char **line;
		struct dlb_graph g;
		read_signature(texts[i], &g);
		assert(IS(g.n_listed, ==, 0) && IS(dlb_graph_warnings(&g, &line), ==, 1) &&
		       HAS(line[0], "graph_signature"));
		dlb_graph_release(&g);
		n_hostile++;
	}
}

/* A model exported by PyTorch 2.15, if the test data are there. */
static void test_exported(void)
{
	const char *data = getenv("DLB_TEST_DATA");
	struct dlb_graph g;
	char path[600];
	int n[3] = { 0 };

	snprintf(path, sizeof path, "%s/onnx/today/bert/default.onnx", data ? data : "../shared/data");
	FILE *f = fopen(path, "rb");
	if (!f) {
		printf("no '%s' (DLB_TEST_DATA): skipped\n", path);
		return;
	}
	fclose(f);
	if (dlb_onnx_read(path, &g, &err))
		die(path);
	for (int i = 0; i < g.n_listed; i++)
		n[g.listed[i].kind]++;
	assert(IS(n[DLB_LISTED_PARAMETER], ==, 41) && IS(n[DLB_LISTED_BUFFER], ==, 2) &&
	       !g.listed[g.n_listed - 1].persistent);
	dlb_graph_release(&g);
	n_checked++;
}

/* -- the padding row of an embedding, from the note of the call on its vertex -- */

#define CALL "%e : [num_users=1] = call_function[target=torch.ops.aten.embedding.default](args = "

static int64_t padding_of(const char *call)
{
	Onnx__StringStringEntryProto e = ONNX__STRING_STRING_ENTRY_PROTO__INIT, *list[] = { &e };
	struct model m;
	struct dlb_graph g;

	start(&m);
	Onnx__NodeProto *v = vertex(&m, "Gather", "w", "x", "e");
	e.key = (char *)"pkg.torch.onnx.fx_node";
	e.value = (char *)call;
	v->n_metadata_props = 1;
	v->metadata_props = list;
	assert(IS(parse(&m, &g), ==, 0));
	const struct dlb_op *o = &g.op[g.n_ops - 1];
	const int64_t row = dlb_attr_int(o->attr, o->n_attr, "padding", -1);
	dlb_graph_release(&g);
	return row;
}

static void padding_rows(void)
{
	assert(padding_of(CALL "(%p_w, %x, 0), kwargs = {})") == 0);
	assert(padding_of(CALL "(%p_w, %x, 12, False, True), kwargs = {})") == 12);
	assert(padding_of(CALL "(%p_w, %x), kwargs = {})") == -1);
	assert(padding_of(CALL "(%p_w, %x, -1), kwargs = {})") == -1);
	assert(padding_of(CALL "(%p_w, %x, 1x), kwargs = {})") == -1);
	assert(IS(padding_of(CALL "(%p_w, %x, 3"), ==, -1));
	n_checked += 7;
	assert(padding_of("aten.add.Tensor](args = (%a, %b, 0), kwargs = {})") == -1);
}

/* -- what a vertex uses that reads a computed initializer: the parameter of its module -- */

static const char *uses_of(const char *scopes, const char *call, int at)
{
	static char name[40];
	const struct dlb_listed listed[] = { { "m.norm.weight", "p_w", DLB_LISTED_PARAMETER, true },
					     { "m.norm.bias", "p_b", DLB_LISTED_PARAMETER, true },
					     { "m.scale", "p_s", DLB_LISTED_PARAMETER, true },
					     { "m.mixer.D", "p_d", DLB_LISTED_PARAMETER, true },
					     { "m.mixer.A_log", "p_a", DLB_LISTED_PARAMETER, true },
					     { "top", "p_t", DLB_LISTED_PARAMETER, true } };
	static const char keys[2][32] = { "pkg.torch.onnx.fx_node", "pkg.torch.onnx.name_scopes" };
	Onnx__StringStringEntryProto e[3], *list[] = { &e[0], &e[1] }, *of_model[] = { &e[2] };
	char text[512] = "# inputs\n";
	struct model m;
	struct dlb_graph g;

	for (int i = 0; i < 6; i++)
		snprintf(text + strlen(text), sizeof text - strlen(text), "%s: PARAMETER target='%s'\n",
			 listed[i].input, listed[i].name);
	strcat(text, "# outputs\n");
	for (int i = 0; i < 3; i++)
		e[i] = (Onnx__StringStringEntryProto)ONNX__STRING_STRING_ENTRY_PROTO__INIT;
	start(&m);
	Onnx__NodeProto *v = vertex(&m, "Mul", "x", "w", "e");
	e[0].key = (char *)keys[0];
	e[0].value = (char *)call;
	e[1].key = (char *)keys[1];
	e[1].value = (char *)scopes;
	e[2].key = (char *)"pkg.torch.export.ExportedProgram.graph_signature";
	e[2].value = text;
	v->n_metadata_props = 2;
	v->metadata_props = list;
	m.g.n_metadata_props = 1;
	m.g.metadata_props = of_model;
	assert(IS(parse(&m, &g), ==, 0));
	const struct dlb_op *o = &g.op[g.n_ops - 1];
	snprintf(name, sizeof name, "%s", at < o->n_may_use ? g.listed[o->uses[at]].name : "");
	dlb_graph_release(&g);
	return name;
}

static void computed_operands(void)
{
	static const char call[] = "%e : [num_users=1] = call_function[target=torch.ops.aten.mul.Tensor]"
				   "(args = (%x, %add_4))",
			  other[] = "%e = f(args = (%x, %add_4, %p_b))";

	assert(!strcmp(uses_of("['', 'm', 'm.norm', 'mul_5']", call, 0), "m.norm.bias"));
	assert(!strcmp(uses_of("['', 'm', 'm.norm', 'mul_5']", call, 1), "m.norm.weight"));
	assert(!strcmp(uses_of("['', 'm', 'mul_5']", call, 0), "m.scale"));
	assert(!strcmp(uses_of("['', 'mul_5']", call, 0), "top"));
	/* several, or no module */
	assert(!strcmp(uses_of("['', 'm', 'm.mixer', 'mul_5']", call, 0), ""));
	assert(!strcmp(uses_of("['', 'm', 'm.norm.inner', 'mul_5']", call, 0), ""));
	assert(!strcmp(uses_of("mul_5", call, 0), ""));
	/* beside one that the vertex names */
	assert(!strcmp(uses_of("['', 'm', 'm.norm', 'e']", other, 0), "m.norm.bias"));
	assert(!strcmp(uses_of("['', 'm', 'm.norm', 'e']", other, 2), "m.norm.weight"));
	n_checked += 9;
}

/* An argument: the folder for the texts as seeds of fuzzers. */
int main(int argc, char **argv)
{
	seeds = argc > 1 ? argv[1] : NULL;
	padding_rows();
	computed_operands();
	test_forms();
	test_quotes();
	test_malformed();
	test_exported();
	printf("test_onnx_signature: %d lists read, %d refused\n", n_checked, n_hostile);
	return 0;
}
