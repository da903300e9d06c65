/* Functions that a model defines: expansion of calls (names, operands, attributes, versions), bodies inside
 * functions, saving, and refused calls. */
#include <unistd.h>
#include "check.h"
#include "graph_equal.h"
#include "onnx_model.h"

/* A function with the vertices of `body`. */
struct function {
	struct model body;
	Onnx__FunctionProto f;
	char *in[4], *out[4], *attribute[4];
	Onnx__AttributeProto *value[4];
};

static void start_function(struct function *f, const char *name, const char *const *in,
			   const char *const *out)
{
	start(&f->body);
	f->body.g.n_node = 0;
	onnx__function_proto__init(&f->f);
	f->f.name = (char *)name;
	f->f.domain = (char *)"own";
	f->f.input = f->in;
	f->f.output = f->out;
	f->f.attribute = f->attribute;
	f->f.attribute_proto = f->value;
	f->f.opset_import = f->body.opset;
	f->f.n_opset_import = 1;
	f->f.n_input = f->f.n_output = f->f.n_attribute = f->f.n_attribute_proto = 0;
	for (; in[f->f.n_input]; f->f.n_input++)
		f->in[f->f.n_input] = (char *)in[f->f.n_input];
	for (; out[f->f.n_output]; f->f.n_output++)
		f->out[f->f.n_output] = (char *)out[f->f.n_output];
	f->f.node = f->body.node;
}

#define NAMES(...) (const char *const[]){ __VA_ARGS__, NULL }

static void add_functions(struct model *m, struct function *f, int n)
{
	m->m.functions = dlb_arena_array(&m->a, (size_t)n, sizeof *m->m.functions);
	for (int i = 0; i < n; i++) {
		f[i].f.n_node = f[i].body.g.n_node;
		m->m.functions[m->m.n_functions++] = &f[i].f;
	}
}

static void release_functions(struct function *f, int n)
{
	for (int i = 0; i < n; i++)
		dlb_arena_release(&f[i].body.a);
}

/* A model of one vertex, a call: y = own.TYPE(x, w). */
static Onnx__NodeProto *start_call(struct model *m, const char *type)
{
	start(m);
	opset(m, "own", 1);
	m->g.n_node = 0;
	Onnx__NodeProto *v = vertex(m, type, "x", "w", "y");
	v->domain = (char *)"own";
	v->name = (char *)"call";
	return v;
}

static void refer(struct model *m, Onnx__NodeProto *v, const char *name, int type, const char *to)
{
	attribute(m, v, name, type)->ref_attr_name = (char *)to;
}

static void give(struct model *m, Onnx__NodeProto *v, const char *name, float value)
{
	Onnx__AttributeProto *a = attribute(m, v, name, 1);

	a->has_f = 1;
	a->f = value;
}

static const struct dlb_op *op_named(const struct dlb_graph *g, const char *name)
{
	for (int i = 0; i < g->n_ops; i++)
		if (!strcmp(g->op[i].name, name))
			return &g->op[i];
	fprintf(stderr, "no op '%s'\n", name);
	for (int i = 0; i < g->n_ops; i++)
		fprintf(stderr, "%s\n", g->op[i].name);
	abort();
}

/* -- expansion of calls -- */

/* outer(x, w; slope) = LeakyRelu(inner(x, w); slope), inner = Softmax of opset 11 after an Elu with outer's
 * slope and a Selu with a default; called twice, the second time without slope. */
static void test_nested(void)
{
	static Onnx__AttributeProto gamma;
	struct function f[2];
	struct model m;
	struct dlb_graph g;

	start_function(&f[0], "outer", NAMES("a", "b"), NAMES("r"));
	Onnx__NodeProto *v = vertex(&f[0].body, "inner", "a", "b", "h");
	v->domain = (char *)"own";
	v->name = (char *)"in";
	refer(&f[0].body, v, "alpha", 1, "slope");
	refer(&f[0].body, vertex(&f[0].body, "LeakyRelu", "h", NULL, "r"), "alpha", 1, "slope");
	start_function(&f[1], "inner", NAMES("a", "b"), NAMES("r"));
	f[1].body.opset[0]->version = 11;
	refer(&f[1].body, vertex(&f[1].body, "Elu", "a", NULL, "h"), "alpha", 1, "alpha");
	refer(&f[1].body, vertex(&f[1].body, "Selu", "h", NULL, "k"), "gamma", 1, "gamma");
	vertex(&f[1].body, "Softmax", "k", NULL, "r");
	onnx__attribute_proto__init(&gamma);
	gamma.name = (char *)"gamma";
	gamma.has_type = gamma.has_f = 1;
	gamma.type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT;
	gamma.f = 2;
	f[1].value[f[1].f.n_attribute_proto++] = &gamma;
	give(&m, start_call(&m, "outer"), "slope", 0.25f);
	v = vertex(&m, "outer", "y", "w", "z");
	v->domain = (char *)"own";
	add_functions(&m, f, 2);
	if (parse(&m, &g))
		die("nested");
	release_functions(f, 2);
	assert(IS(g.n_ops, ==, 8));
	const struct dlb_op *elu = op_named(&g, "call/in/Elu_0"), *selu = op_named(&g, "call/in/Selu_1"),
			    *softmax = op_named(&g, "call/in/Softmax_2"), *leaky = op_named(&g, "call/LeakyRelu_1"),
			    *second = op_named(&g, "outer_1/in/Elu_0");
	assert(IS(dlb_attr_real(elu->attr, elu->n_attr, "alpha", 0), ==, 0.25) &&
	       IS(dlb_attr_real(leaky->attr, leaky->n_attr, "alpha", 0), ==, 0.25));
	assert(IS(dlb_attr_real(selu->attr, selu->n_attr, "gamma", 0), ==, 2) && IS(second->n_attr, ==, 0));
	assert(IS(softmax->opset, ==, 11) && IS(leaky->opset, ==, 17));
	assert(SAME(g.tensor[elu->in[0]].name, "x") && SAME(g.tensor[elu->out[0]].name, "call/in/h"));
	assert(SAME(g.tensor[softmax->out[0]].name, "call/h") && SAME(g.tensor[leaky->out[0]].name, "y"));
	assert(SAME(g.tensor[second->in[0]].name, "y"));
	dlb_graph_release(&g);
	n_checked++;
}

/* many(a, b, c) -> (a, k, k, u): an input returned unchanged, one tensor as two outputs, a constant whose
 * value is an attribute reference, an absent optional operand, an unused output. */
static void test_operands(void)
{
	struct function f;
	struct model m;
	struct dlb_graph g;
	char *out[] = { (char *)"p", (char *)"k1", (char *)"k2" };

	start_function(&f, "many", NAMES("a", "b", "c"), NAMES("a", "k", "k", "u"));
	Onnx__NodeProto *v = vertex(&f.body, "Constant", NULL, NULL, "k");
	refer(&f.body, v, "value_float", 1, "value");
	v = vertex(&f.body, "Clip", "a", "b", "u");
	v->input = (char *[]){ (char *)"a", (char *)"c", (char *)"b" };
	v->n_input = 3;
	v = start_call(&m, "many");
	v->output = out;
	v->n_output = 3;
	give(&m, v, "value", 3);
	vertex(&m, "Add", "p", "k2", "y");
	add_functions(&m, &f, 1);
	if (parse(&m, &g))
		die("operands");
	release_functions(&f, 1);
	const struct dlb_op *clip = op_named(&g, "call/Clip_1"), *through = op_named(&g, "call/a"),
			    *twice = op_named(&g, "call/k");
	assert(IS(clip->n_in, ==, 3) && IS(clip->in[1], ==, -1) && SAME(g.tensor[clip->in[2]].name, "w"));
	assert(SAME(g.tensor[clip->out[0]].name, "call/u"));
	assert(SAME(through->type, "Identity") && SAME(g.tensor[through->out[0]].name, "p"));
	assert(SAME(g.tensor[twice->in[0]].name, "k1") && SAME(g.tensor[twice->out[0]].name, "k2"));
	const struct dlb_tensor *k = &g.tensor[twice->in[0]];
	assert(IS(k->kind, ==, DLB_T_CONSTANT) && IS(k->n_dims, ==, 0) && IS(*(const float *)k->data, ==, 3));
	dlb_graph_release(&g);
	n_checked++;
}

/* A function may have the name of an ONNX operator; overloads are distinguished; used names get a number. */
static void test_names(void)
{
	struct function f[2];
	struct model m;
	struct dlb_graph g;

	for (int i = 0; i < 2; i++) {
		start_function(&f[i], "Relu", NAMES("a"), NAMES("r"));
		f[i].f.domain = NULL;
		vertex(&f[i].body, i ? "Neg" : "Abs", "a", NULL, "h");
		vertex(&f[i].body, i ? "Exp" : "Log", "h", NULL, "r");
	}
	f[1].f.overload = (char *)"other";
	start(&m);
	vertex(&m, "Relu", "y", NULL, "call/h")->name = (char *)"call/Neg_0";
	Onnx__NodeProto *v = vertex(&m, "Relu", "call/h", NULL, "z");
	v->name = (char *)"call";
	v->overload = (char *)"other";
	add_functions(&m, f, 2);
	if (parse(&m, &g))
		die("names");
	release_functions(f, 2);
	assert(IS(g.n_ops, ==, 5) && SAME(op_named(&g, "call/Neg_0/Abs_0")->type, "Abs"));
	assert(SAME(g.tensor[op_named(&g, "call/Neg_0_2")->out[0]].name, "call/h.2"));
	dlb_graph_release(&g);
	n_checked++;
}

/* choose(a, b) = b > 0 ? a + v : own.half(a), with v an initializer of the branch: two calls share it, and it
 * is saved at its place. half has a Constant, which saving does not change. */
static void test_bodies(void)
{
	static const float other[] = { 7, 8 };
	struct function f[2];
	struct model m, in[2];
	struct dlb_graph g;
	char path[300], saved[300];
	size_t n;

	start_function(&f[0], "choose", NAMES("a", "b"), NAMES("r"));
	Onnx__NodeProto *v = vertex(&f[0].body, "If", "c", NULL, "r");
	Onnx__AttributeProto *to = attribute(&f[0].body, vertex(&f[0].body, "Cast", "b", NULL, "c"), "to", 2);
	to->has_i = 1;
	to->i = 9;
	for (int i = 0; i < 2; i++) {
		start(&in[i]);
		in[i].g.n_input = in[i].g.n_output = in[i].g.n_node = in[i].g.n_initializer = 0;
		if (i) {
			vertex(&in[i], "half", "a", NULL, "r")->domain = (char *)"own";
		} else {
			raw(initializer(&in[i], "v", 1, 2), two, sizeof two);
			vertex(&in[i], "Add", "a", "v", "r");
		}
		in[i].out[in[i].g.n_output++] = value(&in[i], "r", (const char *[]){ NULL });
		attribute(&f[0].body, v, i ? "else_branch" : "then_branch", 5)->g = &in[i].g;
	}
	start_function(&f[1], "half", NAMES("a"), NAMES("r"));
	v = vertex(&f[1].body, "Constant", NULL, NULL, "k");
	Onnx__AttributeProto *k = attribute(&f[1].body, v, "value_float", 1);
	k->f = 0.5f;
	k->has_f = 1;
	vertex(&f[1].body, "Mul", "a", "k", "r");
	start_call(&m, "choose");
	vertex(&m, "choose", "y", "w", "z")->domain = (char *)"own";
	add_functions(&m, f, 2);
	uint8_t *p = pack(&m, &n);
	write_file("functions.onnx", p, n);
	free(p);
	dlb_arena_release(&m.a);
	for (int i = 0; i < 2; i++)
		dlb_arena_release(&in[i].a);
	release_functions(f, 2);
	snprintf(path, sizeof path, "%s/functions.onnx", dir);
	snprintf(saved, sizeof saved, "%s/saved.onnx", dir);
	const struct dlb_named new_v = { "v", { .dtype = DLB_F32, .n_dims = 1, .dim = { 2 } }, other };
	if (dlb_onnx_save(path, saved, &new_v, 1, &err) || dlb_onnx_read(saved, &g, &err))
		die("bodies");
	const struct dlb_op *a = op_named(&g, "call/If_0"), *b = op_named(&g, "choose_1/If_0");
	const int t = tensor_named(&g, "v");
	assert(IS(t, >=, 0) && !memcmp(g.tensor[t].data, other, sizeof other) && IS(g.n_bodies, ==, 4));
	/* the condition, then the tensors that the branches read: v and a, a and the constant of half */
	assert(IS(a->n_in, ==, 5) && IS(b->n_in, ==, 5) && IS(a->in[1], ==, t) && IS(b->in[1], ==, t));
	assert(SAME(g.body[1]->g.op[0].name, "half_0/Mul_1") &&
	       IS(*(const float *)g.tensor[a->in[4]].data, ==, 0.5f));
	dlb_graph_release(&g);
	n_checked++;
}

/* A Constant of a function that is called twice is one Constant in the file. */
static void test_save_shared(void)
{
	static const float other[] = { 7, 8 }, third[] = { 9, 10 };
	struct function f;
	struct model m;
	struct dlb_graph g;
	char path[300], saved[300];
	size_t n;

	start_function(&f, "add", NAMES("a"), NAMES("r"));
	Onnx__NodeProto *v = vertex(&f.body, "Constant", NULL, NULL, "k");
	raw(attribute(&f.body, v, "value", 4)->t = initializer(&f.body, "", 1, 2), two, sizeof two);
	vertex(&f.body, "Add", "a", "k", "r");
	start_call(&m, "add")->n_input = 1;
	v = vertex(&m, "add", "y", NULL, "z");
	v->domain = (char *)"own";
	add_functions(&m, &f, 1);
	uint8_t *p = pack(&m, &n);
	write_file("functions.onnx", p, n);
	free(p);
	dlb_arena_release(&m.a);
	release_functions(&f, 1);
	snprintf(path, sizeof path, "%s/functions.onnx", dir);
	snprintf(saved, sizeof saved, "%s/saved.onnx", dir);
	struct dlb_named k[] = { { "call/k", { .dtype = DLB_F32, .n_dims = 1, .dim = { 2 } }, other },
				 { "add_1/k", { .dtype = DLB_F32, .n_dims = 1, .dim = { 2 } }, other } };
	if (dlb_onnx_save(path, saved, k, 2, &err) ||
	    dlb_onnx_read(saved, &g, &err))
		die("shared");
	assert(!memcmp(g.tensor[tensor_named(&g, "add_1/k")].data, other, sizeof other));
	dlb_graph_release(&g);
	k[1].data = third;
	assert(dlb_onnx_save(path, saved, k, 2, &err) == -1);
	assert(HAS(err.what, "one constant of a function") && HAS(err.hint, ".safetensors"));
	n_checked++;
}

/* -- refused calls -- */

/* own.f contains a vertex of `type`, and the model calls own.f with w; `change` makes the model invalid. */
enum wrong {
	RECURSION,
	MUTUAL,
	OPERANDS,
	TWO_NAMES,
	NO_NAME,
	NO_OUTPUT,
	NO_VALUE,
	OTHER_TYPE,
	OUTSIDE,
	GRAPH,
	FORMAL,
	FORMAL_OUTPUT,
	MADE,
	READS,
	N_WRONG
};

static void make_wrong(enum wrong w, struct model *m, struct function f[2])
{
	Onnx__NodeProto *call = start_call(m, "f"), *v;

	start_function(&f[0], "f", NAMES("a", "b"), NAMES("r"));
	start_function(&f[1], "g", NAMES("a"), NAMES("r"));
	v = vertex(&f[0].body, "Relu", "a", NULL, "r");
	vertex(&f[1].body, "Relu", "a", NULL, "r");
	switch (w) {
	case RECURSION: v->op_type = (char *)"f"; v->domain = (char *)"own"; break;
	case MUTUAL: v->op_type = (char *)"g"; v->domain = (char *)"own";
		f[1].body.node[0]->op_type = (char *)"f"; f[1].body.node[0]->domain = (char *)"own"; break;
	case OPERANDS: f[0].f.n_input = 1; break;
	case TWO_NAMES: f[1].f.name = (char *)"f"; break;
	case NO_NAME: f[1].f.name = NULL; break;
	case NO_OUTPUT: v->output[0] = (char *)"q"; break;
	case NO_VALUE:
		refer(&f[0].body, vertex(&f[0].body, "Constant", NULL, NULL, "k"), "value_float", 1, "alpha");
		break;
	case OTHER_TYPE: refer(&f[0].body, v, "alpha", 2, "alpha"); give(m, call, "alpha", 1); break;
	case OUTSIDE: refer(m, vertex(m, "Elu", "x", NULL, "e"), "alpha", 1, "alpha"); break;
	case GRAPH: attribute(m, call, "body", 5)->g = &m->g; m->g.name = NULL; break;
	case FORMAL: f[0].in[1] = (char *)"a"; break;
	case FORMAL_OUTPUT:
		f[0].out[0] = v->output[0] = (char *)"";
		break;
	case MADE: v->output[0] = (char *)"b"; break;
	case READS: v->input[0] = (char *)"w"; break;
	default: break;
	}
}

static void test_refused(void)
{
	static const char *const says[N_WRONG] = {
		[RECURSION] = "function 'f' calls itself",
		[MUTUAL] = "function 'f' calls itself",
		[OPERANDS] = "2 inputs and 1 outputs, where function 'f' has 1 and 1",
		[TWO_NAMES] = "two functions are called 'f'",
		[NO_NAME] = "function 1 has no name",
		[NO_OUTPUT] = "nothing in function 'f' makes its output 'r'",
		[NO_VALUE] = "attribute 'alpha' of the function is not given",
		[OTHER_TYPE] = "attribute 'alpha' is of type 2",
		[OUTSIDE] = "but is in none",
		[GRAPH] = "gives a graph",
		[FORMAL] = "an input of function 'f' has no name",
		[FORMAL_OUTPUT] = "an output of function 'f' has no name",
		[MADE] = "makes tensor 'b', which exists already",
		[READS] = "reads tensor 'w', which nothing makes",
	};

	for (int w = 0; w < N_WRONG; w++) {
		struct function f[2];
		struct model m;
		Onnx__GraphProto empty = ONNX__GRAPH_PROTO__INIT;
		make_wrong((enum wrong)w, &m, f);
		if (w == GRAPH)
			m.node[0]->attribute[0]->g = &empty;
		add_functions(&m, f, 2);
		refused(&m, says[w]);
		assert(err.hint[0]);
		release_functions(f, 2);
	}
}

/* 20 functions, each of which calls the next one twice. */
static void test_growth(void)
{
	struct function *f = dlb_xcalloc(20, sizeof *f);
	char name[21][8];
	struct model m;

	for (int i = 0; i < 21; i++)
		snprintf(name[i], sizeof name[i], "f%d", i & 0xfff);
	for (int i = 0; i < 20; i++) {
		start_function(&f[i], name[i], NAMES("a"), NAMES("r"));
		vertex(&f[i].body, i < 19 ? name[i + 1] : "Relu", "a", NULL, "h")
			->domain = (char *)(i < 19 ? "own" : "");
		vertex(&f[i].body, i < 19 ? name[i + 1] : "Relu", "h", NULL, "r")
			->domain = (char *)(i < 19 ? "own" : "");
	}
	start_call(&m, "f0")->n_input = 1;
	add_functions(&m, f, 20);
	refused(&m, "calls of functions expand too far");
	release_functions(f, 20);
	free(f);
}

/* 120 functions, each of which calls the next one. */
static void test_depth(void)
{
	enum { N = 120 };
	struct function *f = dlb_xcalloc(N, sizeof *f);
	char name[N + 1][8];
	struct model m;

	for (int i = 0; i <= N; i++)
		snprintf(name[i], sizeof name[i], "f%d", i & 0xfff);
	for (int i = 0; i < N; i++) {
		start_function(&f[i], name[i], NAMES("a"), NAMES("r"));
		vertex(&f[i].body, i < N - 1 ? name[i + 1] : "Relu", "a", NULL, "r")
			->domain = (char *)(i < N - 1 ? "own" : "");
	}
	start_call(&m, "f0")->n_input = 1;
	add_functions(&m, f, N);
	refused(&m, "nested more than 100 deep");
	release_functions(f, N);
	free(f);
}

/* An argument: the folder for the models as seeds of fuzzers. */
int main(int argc, char **argv)
{
	char command[100];

	seeds = argc > 1 ? argv[1] : NULL;
	assert(mkdtemp(dir));
	test_nested();
	test_operands();
	test_names();
	test_bodies();
	test_save_shared();
	test_refused();
	test_growth();
	test_depth();
	snprintf(command, sizeof command, "rm -r %s", dir);
	assert(IS(system(command), ==, 0));
	printf("test_onnx_functions: %d checks, %d models refused\n", n_checked, n_hostile);
	return 0;
}
