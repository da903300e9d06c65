/* Saved ONNX models, read back as messages: which vertices and initializers are changed, added or removed for
 * a trained weight, in whose type its values are, how vertices read parameters that were merged, and that data
 * in other files are taken in, also from bodies and functions. */
#include <unistd.h>
#include "check.h"
#include "graph/graph.h"
#include "onnx_model.h"

#define NAMES(...) \
	(const char *const[]) { __VA_ARGS__ }

static char path[300], saved[300], got[2000];
static const float trained[] = { 3, 4.25f, -7, 0.5f };

static size_t say_tensor(size_t at, const Onnx__TensorProto *t)
{
	struct dlb_desc d = { .dtype = (enum dlb_dtype)dlb_dtype_from_onnx(t->data_type), .n_dims = 1 };

	at += (size_t)snprintf(got + at, sizeof got - at, " %s:%d[", t->name, t->data_type);
	for (size_t k = 0; k < t->n_dims; k++)
		at += (size_t)snprintf(got + at, sizeof got - at, "%s%d", k ? "," : "", (int)t->dims[k]);
	at += (size_t)snprintf(got + at, sizeof got - at, "]");
	assert(!t->has_raw_data || (!t->n_external_data && !t->has_data_location && !t->n_float_data));
	for (size_t k = 0; k < t->raw_data.len / dlb_dtype_bytes(d.dtype) && t->has_raw_data; k++)
		at += (size_t)snprintf(got + at, sizeof got - at, "%c%g", k ? ',' : '=',
				       dlb_value_real(t->raw_data.data, d.dtype, (int64_t)k));
	return at;
}

static size_t say_graph(size_t at, Onnx__NodeProto *const *node, size_t n, Onnx__TensorProto *const *init,
			size_t n_init)
{
	for (size_t i = 0; i < n; i++) {
		const Onnx__NodeProto *v = node[i];
		at += (size_t)snprintf(got + at, sizeof got - at, "%s%s(", i ? " " : "", v->op_type);
		for (size_t k = 0; k < v->n_input; k++)
			at += (size_t)snprintf(got + at, sizeof got - at, "%s%s", k ? "," : "", v->input[k]);
		at += (size_t)snprintf(got + at, sizeof got - at, ")>");
		for (size_t k = 0; k < v->n_output; k++)
			at += (size_t)snprintf(got + at, sizeof got - at, "%s%s", k ? "," : "", v->output[k]);
		for (size_t k = 0; k < v->n_attribute; k++) {
			const Onnx__AttributeProto *a = v->attribute[k];
			if (a->t)
				at = say_tensor(at, a->t);
			if (a->g) {
				at += (size_t)snprintf(got + at, sizeof got - at, "{");
				at = say_graph(at, a->g->node, a->g->n_node, a->g->initializer,
					       a->g->n_initializer);
				at += (size_t)snprintf(got + at, sizeof got - at, "}");
			}
		}
	}
	at += (size_t)snprintf(got + at, sizeof got - at, " |");
	for (size_t i = 0; i < n_init; i++)
		at = say_tensor(at, init[i]);
	return at;
}

static void say_saved(void)
{
	static uint8_t bytes[20000];
	FILE *f = fopen(saved, "rb");
	const size_t n = f ? fread(bytes, 1, sizeof bytes, f) : 0;

	assert(f && !fclose(f));
	Onnx__ModelProto *m = onnx__model_proto__unpack(NULL, n, bytes);
	assert(m);
	size_t at = (size_t)snprintf(got, sizeof got, "%d: ", (int)m->ir_version);
	at = say_graph(at, m->graph->node, m->graph->n_node, m->graph->initializer, m->graph->n_initializer);
	for (size_t i = 0; i < m->n_functions; i++) {
		at += (size_t)snprintf(got + at, sizeof got - at, " / ");
		at = say_graph(at, m->functions[i]->node, m->functions[i]->n_node, NULL, 0);
	}
	onnx__model_proto__free_unpacked(m, NULL);
}

/* Saves model m with these weights, "NAME/ELEMENTS" each, with the first of the trained values, or from the
 * second on, and so forth. */
static int save(struct model *m, const char *const *weight, int n, const struct dlb_unmerged *apart,
		int n_apart, enum dlb_dtype dtype)
{
	static double wide[4];
	struct dlb_named x[4];
	char name[4][40];
	size_t size;
	uint8_t *p = pack(m, &size);

	write_file("m.onnx", p, size);
	free(p);
	dlb_arena_release(&m->a);
	for (int i = 0; i < 4; i++)
		wide[i] = trained[i];
	for (int i = 0; i < n; i++) {
		const char *slash = strchr(weight[i], '/');

		snprintf(name[i], sizeof name[i], "%.*s", (int)(slash - weight[i]), weight[i]);
		x[i] = (struct dlb_named){ name[i],
					   { .dtype = dtype, .n_dims = 1, .dim = { atoi(slash + 1) } },
					   dtype == DLB_F64 ? (const void *)(wide + i) : trained + i };
	}
	err = (struct dlb_error){ .what = "" };
	unlink(saved);
	n_checked++;
	return dlb_onnx_save_apart(path, saved, x, n, apart, n_apart, &err);
}
#define WEIGHTS(...) (const char *const[]){ __VA_ARGS__ }, DLB_LEN(((const char *const[]){ __VA_ARGS__ }))

static void gives(int rc, const char *want)
{
	if (rc)
		die(want);
	say_saved();
	assert(SAME(got, want));
}

static void fails(int rc, const char *what)
{
	assert(IS(rc, ==, -1) && SAME(err.what, what) && SAME(err.hint, "save as .safetensors") &&
	       SAME(err.where, path));
	assert(access(saved, F_OK)); /* no file is left behind */
}

static char **names(struct model *m, const char *const *name, size_t n)
{
	char **v = dlb_arena_array(&m->a, n + 1, sizeof *v);

	for (size_t i = 0; i < n; i++)
		v[i] = (char *)name[i];
	return v;
}

/* A vertex of this name with up to three operands and two outputs. */
static Onnx__NodeProto *vertex_of(struct model *m, const char *name, const char *type, const char *const *in,
				  size_t n_in, const char *const *out, size_t n_out)
{
	Onnx__NodeProto *v = vertex(m, type, NULL, NULL, NULL);

	v->name = (char *)name;
	v->input = names(m, in, n_in);
	v->n_input = n_in;
	v->output = names(m, out, n_out);
	v->n_output = n_out;
	return v;
}

/* -- initializers keep their type -- */

static void types(void)
{
	static const struct {
		int onnx;
		const char *want;
	} rows[] = {
		{ 1, "8: Add(x,w)>y | w:1[2]=3,4.25" },
		{ 10, "8: Add(x,w)>y | w:10[2]=3,4.25" },
		{ 11, "8: Add(x,w)>y | w:11[2]=3,4.25" },
		{ 16, "8: Add(x,w)>y | w:16[2]=3,4.25" },
	};
	static const double zeros[2];
	struct model m;

	for (int i = 0; i < DLB_LEN(rows); i++)
		for (int wide = 0; wide < 2; wide++) {
			start(&m);
			m.init[0]->data_type = rows[i].onnx;
			raw(m.init[0], zeros, rows[i].onnx == 11 ? 16 : rows[i].onnx == 1 ? 8 : 4);
			gives(save(&m, WEIGHTS("w/2"), NULL, 0, wide ? DLB_F64 : DLB_F32), rows[i].want);
		}
	start(&m);
	fails(save(&m, WEIGHTS("w/3"), NULL, 0, DLB_F32),
	      "initializer 'w' has another shape than the trained weight");
	start(&m);
	fails(save(&m, WEIGHTS("w/1"), NULL, 0, DLB_F32),
	      "initializer 'w' has another shape than the trained weight");
	start(&m);
	fails(save(&m, WEIGHTS("v/2"), NULL, 0, DLB_F32), "no tensor 'v' to save the trained weight in");
	start(&m);
	m.init[0]->n_float_data = 0;
	m.init[0]->has_raw_data = 0;
	m.init[0]->float_data = (float *)two;
	m.init[0]->n_float_data = 2;
	gives(save(&m, WEIGHTS("w/2"), NULL, 0, DLB_F32), "8: Add(x,w)>y | w:1[2]=3,4.25");
}

/* -- weights that vertices made -- */

static void from_vertices(void)
{
	struct model m;

	for (int ir = 3; ir <= 5; ir++) {
		char want[100];

		start(&m);
		m.m.ir_version = ir;
		m.g.n_node = 0;
		vertex(&m, "Identity", "w", NULL, "a");
		vertex(&m, "Neg", "w", NULL, "b");
		vertex(&m, "Abs", "w", NULL, "c");
		vertex(&m, "Sum", "a", "b", "y");
		snprintf(want, sizeof want,
			 "%d: Identity(w)>a Abs(w)>c Sum(a,b)>y | w:1[2]=1.5,-2 b:1[2]=3,4.25",
			 ir < 4 ? 4 : ir);
		gives(save(&m, WEIGHTS("b/2"), NULL, 0, DLB_F32), want);
	}
	start(&m);
	m.g.n_node = 0;
	vertex(&m, "Identity", "w", NULL, "a");
	vertex(&m, "Neg", "w", NULL, "b");
	vertex(&m, "Sum", "a", "b", "y");
	gives(save(&m, WEIGHTS("a/1", "b/2"), NULL, 0, DLB_F32),
	      "8: Sum(a,b)>y | w:1[2]=1.5,-2 a:1[1]=3 b:1[2]=4.25,-7");
	/* of a vertex with a further output, the one output gets another name */
	for (int which = 0; which < 2; which++) {
		start(&m);
		m.g.n_node = 0;
		vertex_of(&m, "two", "Split", NAMES("w"), 1, NAMES("a", "b"), 2);
		vertex(&m, "Sum", "a", "b", "y");
		gives(save(&m, WEIGHTS(which ? "b/1" : "a/1"), NULL, 0, DLB_F32),
		      which ? "8: Split(w)>a,b.replaced Sum(a,b)>y | w:1[2]=1.5,-2 b:1[1]=3" :
			      "8: Split(w)>a.replaced,b Sum(a,b)>y | w:1[2]=1.5,-2 a:1[1]=3");
	}
	start(&m);
	m.g.n_node = 0;
	vertex_of(&m, "two", "Split", NAMES("w"), 1, NAMES("", "b"), 2);
	vertex(&m, "Sum", "x", "b", "y");
	gives(save(&m, WEIGHTS("b/1"), NULL, 0, DLB_F32), "8: Sum(x,b)>y | w:1[2]=1.5,-2 b:1[1]=3");
	start(&m);
	m.g.n_node = 0;
	vertex(&m, "Neg", "w", NULL, "b");
	vertex(&m, "Sum", "x", "b", "y");
	gives(save(&m, WEIGHTS("b/2"), NULL, 0, DLB_F64), "8: Sum(x,b)>y | w:1[2]=1.5,-2 b:1[2]=3,4.25");
}

/* -- parameters that the exporter had merged -- */

static void apart(void)
{
	static const struct {
		const char *of;
		int operand;
		const char *weight[2];
		const char *want;
	} rows[] = {
		{ "w", 0, { "v/2", "w/2" }, "8: Gemm(v,v,v)>a Add(a,w)>y | w:1[2]=4.25,-7 v:1[2]=3,4.25" },
		{ "w", 1, { "v/2", "w/2" }, "8: Gemm(w,v,w)>a Add(a,w)>y | w:1[2]=4.25,-7 v:1[2]=3,4.25" },
		{ "w", 2, { "v/2", "w/2" }, "8: Gemm(w,w,v)>a Add(a,w)>y | w:1[2]=4.25,-7 v:1[2]=3,4.25" },
		{ "x", 0, { "v/2", "w/2" }, "8: Gemm(w,w,w)>a Add(a,w)>y | w:1[2]=4.25,-7 v:1[2]=3,4.25" },
		/* w is trained, v is not: it keeps the model's values */
		{ "w", 1, { "w/2" }, "8: Gemm(w,v,w)>a Add(a,w)>y | w:1[2]=3,4.25 v:1[2]=1.5,-2" },
		{ "x", 1, { "w/2" }, "8: Gemm(w,w,w)>a Add(a,w)>y | w:1[2]=3,4.25" },
	};
	struct model m;

	for (int i = 0; i < DLB_LEN(rows); i++) {
		const struct dlb_unmerged u = { "v", rows[i].of, "layer", rows[i].operand };

		start(&m);
		m.g.n_node = 0;
		vertex_of(&m, "layer", "Gemm", NAMES("w", "w", "w"), 3, NAMES("a"), 1);
		vertex_of(&m, "other", "Add", NAMES("a", "w"), 2, NAMES("y"), 1);
		gives(save(&m, rows[i].weight, 1 + (rows[i].weight[1] != NULL), &u, 1, DLB_F32),
		      rows[i].want);
	}
	const struct dlb_unmerged bias = { "b", "", "layer", 2 }, lost = { "v", "w", "no layer", 1 };
	static const struct {
		const char *in[4];
		size_t n;
		const char *want;
	} biased[] = {
		{ { "x", "w" }, 2, "8: Gemm(x,w,b)>y | w:1[2]=1.5,-2 b:1[2]=3,4.25" },
		{ { "x", "w", "" }, 3, "8: Gemm(x,w,b)>y | w:1[2]=1.5,-2 b:1[2]=3,4.25" },
		{ { "x", "w", "w" }, 3, "8: Gemm(x,w,w)>y | w:1[2]=1.5,-2 b:1[2]=3,4.25" },
		{ { "x", "w", "", "w" }, 4, "8: Gemm(x,w,,w)>y | w:1[2]=1.5,-2 b:1[2]=3,4.25" },
	};
	for (int i = 0; i < DLB_LEN(biased); i++) {
		start(&m);
		m.g.n_node = 0;
		vertex_of(&m, "layer", "Gemm", biased[i].in, biased[i].n, NAMES("y"), 1);
		gives(save(&m, WEIGHTS("b/2"), &bias, 1, DLB_F32), biased[i].want);
	}
	start(&m);
	fails(save(&m, WEIGHTS("v/2"), &lost, 1, DLB_F32),
	      "no vertex 'no layer' to read the trained weight 'v'");
	start(&m);
	fails(save(&m, WEIGHTS("w/2"), &lost, 1, DLB_F32),
	      "no vertex 'no layer' to read the trained weight 'v'");
}

/* -- data in other files -- */

/* The data of t are the second and third number of w.bin. */
static void put_outside(struct model *m, Onnx__TensorProto *t, const char *location)
{
	const char *const key[] = { "location", "offset", "length" }, *const v[] = { location, "4", "8" };

	t->has_raw_data = 0;
	t->has_data_location = 1;
	t->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
	t->external_data = dlb_arena_array(&m->a, 3, sizeof *t->external_data);
	for (int i = 0; i < 3; i++) {
		Onnx__StringStringEntryProto *e = dlb_arena_alloc(&m->a, sizeof *e);

		onnx__string_string_entry_proto__init(e);
		e->key = (char *)key[i];
		e->value = (char *)v[i];
		t->external_data[t->n_external_data++] = e;
	}
}

/* A Constant whose tensor k is outside. */
static void put_constant(struct model *m, const char *out, const char *location)
{
	Onnx__NodeProto *v = vertex(m, "Constant", NULL, NULL, out);
	Onnx__TensorProto *t = initializer(m, "k", 1, 2);

	m->g.n_initializer--;
	put_outside(m, t, location);
	attribute(m, v, "value", 4)->t = t;
}

static void outside(void)
{
	static const float bytes[] = { 9, 11, 13, 15 };
	struct model m, body;
	Onnx__FunctionProto f;

	write_file("w.bin", bytes, sizeof bytes);
	start(&m);
	put_outside(&m, m.init[0], "w.bin");
	gives(save(&m, NULL, 0, NULL, 0, DLB_F32), "8: Add(x,w)>y | w:1[2]=11,13");
	start(&m);
	put_outside(&m, m.init[0], "w.bin");
	gives(save(&m, WEIGHTS("w/2"), NULL, 0, DLB_F32), "8: Add(x,w)>y | w:1[2]=3,4.25");
	for (int where = 0; where < 3; where++) /* in the graph, in a body, in a function */
		for (int missing = 0; missing < 2; missing++) {
			const char *const file = missing ? "no.bin" : "w.bin";

			start(&m);
			start(&body);
			body.g.n_node = body.g.n_input = body.g.n_output = 0;
			if (where == 0) {
				put_constant(&m, "c", file);
			} else {
				put_constant(&body, "c", file);
				vertex(&body, "Relu", "c", NULL, "d");
			}
			body.out[body.g.n_output++] = value(&body, "d", (const char *[]){ NULL });
			if (where == 1) {
				put_outside(&body, body.init[0], file);
				attribute(&m, vertex(&m, "If", "x", NULL, "z"), "then_branch", 5)
					->g = &body.g;
				attribute(&m, m.node[1], "else_branch", 5)->g = &body.g;
			}
			onnx__function_proto__init(&f);
			Onnx__FunctionProto *const functions[] = { &f };
			if (where == 2) {
				f.name = (char *)"own";
				f.domain = (char *)"own";
				f.node = body.node;
				f.n_node = body.g.n_node;
				m.m.functions = (Onnx__FunctionProto **)functions;
				m.m.n_functions = 1;
			}
			const int rc = save(&m, NULL, 0, NULL, 0, DLB_F32);
			if (missing)
				assert(IS(rc, ==, -1) && HAS(err.what, "cannot open"));
			else
				gives(rc, where == 0 ?
						  "8: Add(x,w)>y Constant()>c k:1[2]=11,13 | w:1[2]=1.5,-2" :
					  where == 1 ? "8: Add(x,w)>y If(x)>z{Constant()>c k:1[2]=11,13 "
						       "Relu(c)>d | w:1[2]=11,13}"
						       "{Constant()>c k:1[2]=11,13 Relu(c)>d | w:1[2]=11,13} "
						       "| w:1[2]=1.5,-2" :
						       "8: Add(x,w)>y | w:1[2]=1.5,-2 / Constant()>c "
						       "k:1[2]=11,13 Relu(c)>d |");
			dlb_arena_release(&body.a);
		}
}

int main(void)
{
	char command[100];

	assert(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/m.onnx", dir);
	snprintf(saved, sizeof saved, "%s/saved.onnx", dir);
	types();
	from_vertices();
	apart();
	outside();
	snprintf(command, sizeof command, "rm -r %s", dir);
	assert(IS(system(command), ==, 0));
	printf("%d models saved\n", n_checked);
	return 0;
}
