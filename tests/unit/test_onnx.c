/* ONNX in and out: every model of the test data and of share/models, types and attributes, hostile files,
 * external data, saving, weights by name. */
#include <inttypes.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>
#include <dirent.h>
#include "check.h"
#include "graph_equal.h"
#include "model/weights.h"
#include "onnx_model.h"
#include "graph/graph_json.h"
#include "util/clock.h"
#include "util/rng.h"

static int n_models;

/* -- reading -- */

static void test_basics(void)
{
	struct model m;
	struct dlb_graph g;
	start(&m);
	/* an input that is an initializer is no input; the batch's name stands for the batch at any position;
	 * other names stay unknown */
	m.in[m.g.n_input++] = value(&m, "w", (const char *[]){ "2", NULL });
	m.in[m.g.n_input++] = value(&m, "mask", (const char *[]){ "", "batch", "seq", NULL });
	Onnx__NodeProto *v = vertex(&m, "Custom", "y", "", "z");
	v->domain = (char *)"own";			/* operators of ONNX allow only defined attributes */
	opset(&m, "own", 1);
	v->name = (char *)"Add_0";			/* the name that the first, unnamed vertex gets */
	attribute(&m, v, "i", 2)->i = -3;
	attribute(&m, v, "f", 1)->f = 0.1f;
	v->attribute[0]->has_i = v->attribute[1]->has_f = 1;
	Onnx__AttributeProto *s = attribute(&m, v, "s", 3);
	s->has_s = 1;
	s->s = (ProtobufCBinaryData){ 4, (uint8_t *)"SAME" };
	Onnx__AttributeProto *ints = attribute(&m, v, "ints", 7);
	int64_t list[] = { 1, INT64_MAX };
	ints->n_ints = 2;
	ints->ints = list;
	float floats[] = { 0.5f };
	Onnx__AttributeProto *fs = attribute(&m, v, "floats", 6);
	fs->n_floats = 1;
	fs->floats = floats;
	Onnx__NodeProto *c = vertex(&m, "Constant", NULL, NULL, "k");
	Onnx__AttributeProto *k = attribute(&m, c, "value_ints", 7);
	k->n_ints = 2;
	k->ints = list;
	Onnx__NodeProto *h = vertex(&m, "If", "z", NULL, "u");
	Onnx__GraphProto sub = ONNX__GRAPH_PROTO__INIT;
	attribute(&m, h, "then_branch", 5)->g = &sub;
	if (parse(&m, &g))
		die("basics");
	assert(IS(g.n_inputs, ==, 2) && IS(g.n_ops, ==, 3) && IS(g.opset, ==, 17));
	const struct dlb_tensor *x = &g.tensor[g.input[0]], *mask = &g.tensor[g.input[1]];
	assert(IS(x->dim[0].mul, ==, 1) && IS(x->dim[0].add, ==, 0) && IS(x->dim[1].mul, ==, 0) &&
	       IS(x->dim[1].add, ==, 2));
	assert(IS(mask->dim[0].mul, ==, 1) && IS(mask->dim[1].mul, ==, 1) && IS(mask->dim[2].add, ==, -1) &&
	       SAME(mask->symbol, "seq"));
	assert(SAME(g.op[0].name, "Add_0") && IS(strcmp(g.op[1].name, "Add_0"), !=, 0));
	assert(IS(g.op[1].n_in, ==, 1));			/* the trailing absent operand is gone */
	const struct dlb_op *o = &g.op[1];
	assert(IS(dlb_attr_int(o->attr, o->n_attr, "i", 0), ==, -3));
	assert(IS(dlb_attr_real(o->attr, o->n_attr, "f", 0), ==, (double)0.1f));
	assert(SAME(dlb_attr_str(o->attr, o->n_attr, "s", ""), "SAME"));
	const int64_t *got;
	assert(IS(dlb_attr_ints(o->attr, o->n_attr, "ints", &got), ==, 2) && IS(got[1], ==, INT64_MAX));
	const int kid = tensor_named(&g, "k");
	assert(IS(g.tensor[kid].kind, ==, DLB_T_CONSTANT) &&
	       IS(((const int64_t *)g.tensor[kid].data)[1], ==, INT64_MAX) && g.tensor[kid].in_model);
	assert(IS(g.op[2].kind, ==, -1) &&
	       IS(dlb_attr_int(g.op[2].attr, g.op[2].n_attr, "then_branch", -1), ==, 0) &&
	       IS(g.n_bodies, ==, 1));
	const int w = tensor_named(&g, "w"), y = tensor_named(&g, "y");
	assert(IS(g.tensor[w].kind, ==, DLB_T_CONSTANT) && IS(((const float *)g.tensor[w].data)[1], ==, -2) &&
	       g.tensor[w].in_model);
	assert(IS(g.tensor[y].producer, ==, 0) && IS(g.tensor[y].n_dims, ==, 2) &&
	       IS(g.tensor[y].dim[0].mul, ==, 1));
	dlb_graph_release(&g);

	/* vertices in any order */
	start(&m);
	m.node[1] = m.node[0];
	m.g.n_node = 0;
	vertex(&m, "Relu", "y", NULL, "z");
	m.g.n_node = 2;
	if (parse(&m, &g))
		die("order");
	assert(SAME(g.op[0].type, "Add") && SAME(g.op[1].type, "Relu"));
	dlb_graph_release(&g);

	/* an unsupported version of an unused domain is accepted */
	start(&m);
	opset(&m, "ai.onnx.ml", 99);
	if (parse(&m, &g))
		die("opset");
	dlb_graph_release(&g);
	n_checked += 3;
}

static void test_types(void)
{
	static const struct { int onnx; enum dlb_dtype t;
	} types[] = {
		{ 1, DLB_F32 },  { 11, DLB_F64 }, { 10, DLB_F16 }, { 16, DLB_BF16 }, { 3, DLB_I8 },
		{ 5, DLB_I16 },  { 6, DLB_I32 },  { 7, DLB_I64 },  { 2, DLB_U8 },    { 4, DLB_U16 },
		{ 12, DLB_U32 }, { 13, DLB_U64 }, { 9, DLB_BOOL },
	};
	for (int i = 0; i < DLB_LEN(types); i++)
		for (int typed = 0; typed < 2; typed++) {
			struct model m;
			struct dlb_graph g;
			uint64_t want[2] = { 0 };
			int32_t i32[2] = { 0, 1 };
			int64_t i64[2] = { 0, 1 };
			uint64_t u64[2] = { 0, 1 };
			float f32[2] = { 0, 1 };
			double f64[2] = { 0, 1 };
			dlb_value_set(want, types[i].t, 1, 1);
			start(&m);
			Onnx__TensorProto *t = initializer(&m, "v", types[i].onnx, 2);
			if (types[i].t == DLB_F16)
				i32[1] = 0x3c00;
			if (types[i].t == DLB_BF16)
				i32[1] = 0x3f80;
			if (!typed) {
				raw(t, want, 2 * dlb_dtype_bytes(types[i].t));
			} else if (types[i].t == DLB_F32) {
				t->n_float_data = 2;
				t->float_data = f32;
			} else if (types[i].t == DLB_F64) {
				t->n_double_data = 2;
				t->double_data = f64;
			} else if (types[i].t == DLB_I64) {
				t->n_int64_data = 2;
				t->int64_data = i64;
			} else if (types[i].t == DLB_U64 || types[i].t == DLB_U32) {
				t->n_uint64_data = 2;
				t->uint64_data = u64;
			} else {
				t->n_int32_data = 2;
				t->int32_data = i32;
			}
			if (parse(&m, &g))
				die("types");
			const struct dlb_tensor *v = &g.tensor[tensor_named(&g, "v")];
			assert(IS(v->dtype, ==, types[i].t) &&
			       !memcmp(v->data, want, 2 * dlb_dtype_bytes(v->dtype)));
			dlb_graph_release(&g);
			n_checked++;
		}
}

/* -- refused models -- */

static void test_refused(void)
{
	struct model m;
	static const float nan2[] = { 1, NAN }, inf2[] = { 1, INFINITY }, mask2[] = { 0, -INFINITY };
	static const char *const bad_utf8[] = { "\xff", "\xc0\x80", "\xed\xa0\x80", "a\xf5" };
	struct dlb_graph g;

	start(&m); m.m.graph = NULL; refused(&m, "no graph");
	start(&m); m.m.n_opset_import = 0; refused(&m, "no opset version");
	start(&m); m.opset[0]->version = 29; refused(&m, "opset 29; dlb reads 6 to 28");
	start(&m); m.opset[0]->version = 5; refused(&m, "opset 5");
	start(&m); m.opset[0]->version = -1; refused(&m, "opset");
	start(&m); m.m.ir_version = 15; refused(&m, "the file has ONNX IR version 15; dlb reads up to 14");
	start(&m);
	opset(&m, "ai.onnx.preview.training", 2);
	m.node[0]->domain = (char *)"ai.onnx.preview.training";
	refused(&m, "opset 2 of ai.onnx.preview.training; dlb reads 1");
	start(&m);
	m.node[0]->input[0] = (char *)"nowhere";
	refused(&m, "reads tensor 'nowhere', which nothing makes");
	start(&m); m.node[0]->output[0] = (char *)"q"; refused(&m, "nothing makes output 'y'");
	start(&m); m.g.n_output = 0; refused(&m, "no outputs");
	start(&m); m.node[0]->n_output = 0; refused(&m, "makes nothing");
	start(&m); m.node[0]->op_type = NULL; refused(&m, "no op type");
	start(&m); vertex(&m, "Relu", "x", NULL, "y"); refused(&m, "makes tensor 'y', which exists already");
	start(&m); vertex(&m, "Relu", "x", NULL, "w"); refused(&m, "which exists already");
	start(&m); raw(initializer(&m, "w", 1, 2), two, 8); refused(&m, "two tensors have the name 'w'");
	start(&m); m.in[m.g.n_input++] = m.in[0]; refused(&m, "two tensors have the name 'x'");
	start(&m); m.in[0]->type = NULL; refused(&m, "no tensor of a known type");
	start(&m); m.in[0]->type->tensor_type->elem_type = 8; refused(&m, "no tensor of a known type");
	start(&m);
	m.in[0]->type->tensor_type->shape->dim[1]->dim_value = -5;
	refused(&m, "negative dimension");
	start(&m); m.in[0]->type->tensor_type->shape->dim[1]->dim_value = INT64_MAX; refused(&m, "too large");
	start(&m);
	vertex(&m, "Relu", "b", NULL, "a");
	vertex(&m, "Relu", "a", NULL, "b");
	refused(&m, "cycle of ops");
	start(&m); vertex(&m, "Relu", "a", NULL, "a"); refused(&m, "cycle of ops");
	start(&m); m.init[0]->dims[0] = 3; refused(&m, "holds 8 bytes where its shape needs 12");
	start(&m); m.init[0]->dims[0] = -2; refused(&m, "negative or too large");
	start(&m); m.init[0]->dims[0] = INT64_MAX; refused(&m, "too large");
	start(&m);
	m.init[0]->n_dims = 2;
	m.init[0]->dims[0] = m.init[0]->dims[1] = INT64_C(1) << 40;
	refused(&m, "too large");
	start(&m); m.init[0]->data_type = 8; refused(&m, "of a type dlb does not read");
	start(&m); m.init[0]->has_data_type = 0; refused(&m, "of a type dlb does not read");
	start(&m); m.init[0]->has_raw_data = 0; refused(&m, "holds 0 values where its shape needs 2");
	Onnx__TensorProto__Segment segment = ONNX__TENSOR_PROTO__SEGMENT__INIT;
	start(&m);
	m.init[0]->segment = &segment;
	refused(&m, "is stored in segments, which dlb does not read");
	start(&m); m.init[0]->name = NULL; refused(&m, "has no name");
	start(&m); raw(m.init[0], nan2, 8); refused(&m, "weights hold NaN: initializer 'w', element 1");
	start(&m); raw(m.init[0], inf2, 8); refused(&m, "weights hold infinity");
	start(&m);
	m.init[0]->n_dims = 9;
	m.init[0]->dims = (int64_t[]){ 1, 1, 1, 1, 1, 1, 1, 1, 2 };
	refused(&m, "has 9 dimensions; at most 8");
	start(&m); m.init[0]->has_data_location = 1;
	m.init[0]->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
	refused(&m, "which only a model on disk");
	Onnx__SparseTensorProto sparse = ONNX__SPARSE_TENSOR_PROTO__INIT, *sparses[] = { &sparse };
	start(&m);
	m.g.n_sparse_initializer = 1;
	m.g.sparse_initializer = sparses;
	refused(&m, "sparse initializers");
	start(&m);
	attribute(&m, m.node[0], "a", 2);
	attribute(&m, m.node[0], "a", 2);
	refused(&m, "attribute 'a' is given twice");
	start(&m); attribute(&m, m.node[0], "", 2); refused(&m, "has no name");
	int32_t big[] = { 1000, 0 };
	start(&m); m.init[0]->data_type = 3; m.init[0]->has_raw_data = 0; m.init[0]->n_int32_data = 2;
	m.init[0]->int32_data = big; refused(&m, "does not fit i8");
	for (int i = 0; i < DLB_LEN(bad_utf8); i++) {
		start(&m); m.node[0]->name = (char *)bad_utf8[i]; refused(&m, "not UTF-8");
	}
	assert(IS(dlb_onnx_parse("", 0, "m.onnx", &g, &err), ==, -1) && SAME(err.what, "empty file") &&
	       err.hint[0]);
	/* infinities in a mask are accepted */
	start(&m); raw(m.init[0], mask2, 8);
	if (parse(&m, &g))
		die("mask");
	dlb_graph_release(&g);
}

static void test_wire(void)
{
	struct model m;
	struct dlb_graph g;
	size_t n;
	start(&m);
	uint8_t *p = pack(&m, &n);
	dlb_arena_release(&m.a);

	/* truncated at any byte, it is refused */
	for (size_t k = 0; k < n; k++) {
		uint8_t *cut = dlb_xmalloc(k ? k : 1);	/* so that sanitizers see reads past the end */
		memcpy(cut, p, k);
		if (dlb_onnx_parse(cut, k, "m.onnx", &g, &err) == 0) {
			fprintf(stderr, "accepted %zu of %zu bytes\n", k, n);
			abort();
		}
		free(cut);
		n_hostile++;
	}
	/* with any byte changed it is refused or read, without a crash */
	struct dlb_rng rng;
	dlb_rng_init(&rng, 1);
	for (int i = 0; i < 20000; i++) {
		const size_t at = dlb_rng_below(&rng, n);
		const uint8_t was = p[at];
		p[at] = (uint8_t)dlb_rng_next(&rng);
		if (dlb_onnx_parse(p, n, "m.onnx", &g, &err) == 0)
			dlb_graph_release(&g);
		p[at] = was;
	}
	free(p);

	/* numbers of four and eight bytes, and their length, in a field that ONNX does not know: 100 << 3 | type */
	for (int type = 1; type <= 5; type += 4)
		for (size_t k = 0; k <= 8; k++) {
			uint8_t *field = dlb_xcalloc(2 + k, 1);

			field[0] = (uint8_t)(0xa0 | type);
			field[1] = 0x06;
			const bool whole = k == (type == 1 ? 8 : 4);
			assert(IS(dlb_onnx_parse(field, 2 + k, "m.onnx", &g, &err), ==, -1));
			assert(IS(k < (type == 1 ? 8 : 4), ==,
				  !strcmp(err.what, "truncated number at byte 0")));
			assert(!whole || !strstr(err.what, "at byte"));
			free(field);
		}

	/* graph in attribute in node in graph ...: deep nesting */
	enum { DEPTH = 200000 };
	uint8_t *deep = NULL;
	size_t len = 0, cap = (size_t)DEPTH * 20;
	deep = dlb_xmalloc(cap);
	uint8_t *at = deep + cap;			/* built from the inside out */
	/* graph.node = 1, node.attribute = 5, attribute.g = 6 */
	static const uint8_t tag[] = { 0x0a, 0x2a, 0x32 };
	for (int i = 0; i < DEPTH; i++) {
		uint8_t head[12];
		int k = 0;
		head[k++] = i == DEPTH - 1 ? 0x3a : tag[(DEPTH - 2 - i) % 3]; /* model.graph = 7 outermost */
		for (size_t v = len; ; v >>= 7) {
			head[k++] = (uint8_t)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
			if (v <= 0x7f)
				break;
		}
		at -= k;
		memcpy(at, head, (size_t)k);
		len += (size_t)k;
	}
	assert(IS(dlb_onnx_parse(at, len, "deep", &g, &err), ==, -1) && HAS(err.what, "nested"));
	free(deep);
	assert(IS(dlb_onnx_parse("", 0, "empty", &g, &err), ==, -1) && HAS(err.what, "empty"));
	assert(dlb_onnx_parse("{\"dlb\":\"1.0\"}", 13, "json", &g, &err) == -1);
	n_hostile += 20003;
}

/* -- data in other files -- */

static void external(struct model *m, const char *location, const char *offset, const char *length)
{
	start(m);
	Onnx__TensorProto *t = m->init[0];
	const char *const key[] = { "location", "offset", "length" }, *const v[] = { location, offset,
										     length };
	t->has_raw_data = 0;
	t->has_data_location = 1;
	t->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
	t->external_data = dlb_arena_array(&m->a, 3, sizeof *t->external_data);
	for (int i = 0; i < 3; i++) {
		if (!v[i])
			continue;
		Onnx__StringStringEntryProto *e = dlb_arena_alloc(&m->a, sizeof *e);
		onnx__string_string_entry_proto__init(e);
		e->key = (char *)key[i];
		e->value = (char *)v[i];
		t->external_data[t->n_external_data++] = e;
	}
}

static void test_external(void)
{
	static const struct { const char *location, *offset, *length, *says;
	} cases[] = {
		{ "w.bin", "4", "8", NULL },
		{ "w.bin", "4", NULL, NULL },
		{ "sub/in.bin", NULL, NULL, NULL },
		{ "inside", "4", NULL, NULL },
		{ "/etc/passwd", NULL, NULL, "outside the model's folder" },
		{ "../w.bin", NULL, NULL, "outside" },
		{ "sub/../../w.bin", NULL, NULL, "outside" },
		{ "..", NULL, NULL, "outside" },
		{ "", NULL, NULL, "outside" },
		{ "link", NULL, NULL, "leads there" },
		{ "up/w.bin", NULL, NULL, "leads there" },
		{ "nothing.bin", NULL, NULL, "cannot open" },
		{ "sub", NULL, NULL, "not a file" },
		{ "w.bin", "5", NULL, "past the end" },
		{ "w.bin", "99999999999999999999", NULL, "bad offset" },
		{ "w.bin", "-4", NULL, "bad offset" },
		{ "w.bin", "4", "9", "9 bytes where its shape needs 8" },
		{ "w.bin", "9223372036854775807", NULL, "past the end" },
	};
	char path[400];
	float data[] = { 9, 1.5f, -2 };
	write_file("w.bin", data, sizeof data);
	snprintf(path, sizeof path, "%s/sub", dir);
	assert(IS(mkdir(path, 0777), ==, 0));
	write_file("sub/in.bin", data + 1, 8);
	snprintf(path, sizeof path, "%s/link", dir);
	assert(IS(symlink("/etc/passwd", path), ==, 0));
	snprintf(path, sizeof path, "%s/up", dir);
	assert(IS(symlink("/tmp", path), ==, 0));
	snprintf(path, sizeof path, "%s/inside", dir);
	assert(IS(symlink("w.bin", path), ==, 0));
	write_file("../dlb-test-onnx-outside.bin", data, sizeof data);

	for (int i = 0; i < DLB_LEN(cases); i++) {
		struct model m;
		struct dlb_graph g;
		external(&m, cases[i].location, cases[i].offset, cases[i].length);
		if (!strcmp(cases[i].location, "up/w.bin"))
			m.init[0]->external_data[0]->value = (char *)"up/dlb-test-onnx-outside.bin";
		const int rc = read_in_dir(&m, &g);
		if ((rc != 0) != (cases[i].says != NULL) || (rc && !strstr(err.what, cases[i].says))) {
			fprintf(stderr, "external case %d\n", i);
			die("external");
		}
		if (!rc)
			assert(!memcmp(g.tensor[tensor_named(&g, "w")].data, two, sizeof two));
		dlb_graph_release(&g);
		n_hostile++;
	}
	unlink("/tmp/dlb-test-onnx-outside.bin");
}

/* The model's digest depends on the external data that tensors use. */
static void test_external_digest(void)
{
	static const struct {
		float data[3];
		bool same;
	} cases[] = { { { 9, 1.5f, -2 }, true }, { { 8, 1.5f, -2 }, true }, { { 9, 1.5f, -3 }, false } };
	char first[65] = "";

	for (int i = 0; i < DLB_LEN(cases); i++) {
		struct model m;
		struct dlb_graph g;
		write_file("w.bin", cases[i].data, sizeof cases[i].data);
		external(&m, "w.bin", "4", "8");
		if (read_in_dir(&m, &g))
			die("external digest");
		if (!i)
			memcpy(first, g.model_sha256, sizeof first);
		assert(!strcmp(g.model_sha256, first) == cases[i].same);
		/* a document made from the first model; its weights are read later */
		g.model_sha256 = first;
		g.tensor[tensor_named(&g, "w")].data = NULL;
		assert(IS(dlb_graph_load_weights(&g, NULL, &err), ==, (cases[i].same ? 0 : -1)));
		assert(cases[i].same || strstr(err.what, "the model has changed"));
		dlb_graph_release(&g);
		n_checked++;
	}
}

/* -- saving -- */

/* Every initializer of the model times 2, saved, read again; Debian's onnx accepts the model. */
static void save_and_read(const char *source)
{
	struct dlb_graph g, back;
	char path[300], command[900];
	struct dlb_named saved[2000];
	double *values[2000];
	int n = 0;

	if (dlb_onnx_read(source, &g, &err))
		die("save");
	for (int i = 0; i < g.n_tensors && n < 2000; i++) {
		const struct dlb_tensor *t = &g.tensor[i];
		if (!t->data || t->dtype != DLB_F32 || t->n_dims < 1)
			continue;
		struct dlb_named *x = &saved[n];
		*x = (struct dlb_named){ .name = t->name, .desc = dlb_tensor_desc(t, 1) };
		const int64_t count = dlb_desc_count(&x->desc);
		/* a model trained in f64 is saved in its own types */
		x->desc.dtype = n % 2 ? DLB_F64 : DLB_F32;
		values[n] = dlb_xcalloc((size_t)count, sizeof(double));
		for (int64_t k = 0; k < count; k++)
			dlb_value_set(values[n], x->desc.dtype, k, 2 * dlb_value_real(t->data, t->dtype, k));
		x->data = values[n++];
	}
	snprintf(path, sizeof path, "%s/saved.onnx", dir);
	if (dlb_onnx_save(source, path, saved, n, &err) || dlb_onnx_read(path, &back, &err))
		die(source);
	for (int i = 0; i < n; i++) {
		const struct dlb_tensor *a = &g.tensor[tensor_named(&g, saved[i].name)];
		const struct dlb_tensor *b = &back.tensor[tensor_named(&back, saved[i].name)];
		assert(IS(a->dtype, ==, b->dtype) && IS(a->n_dims, ==, b->n_dims));
		const int64_t count = dlb_desc_count(&saved[i].desc);
		for (int64_t k = 0; k < count; k++)
			assert(IS(((const float *)b->data)[k], ==, 2 * ((const float *)a->data)[k]));
		free(values[i]);
	}
	assert(IS(back.n_ops, ==, g.n_ops));
	snprintf(command, sizeof command,
		 "/usr/bin/python3 -c 'import onnx.checker' 2>/dev/null && "
		 "! /usr/bin/python3 -c 'import onnx.checker,sys; onnx.checker.check_model(sys.argv[1])' %s",
		 path);
	assert(IS(system(command), !=, 0));
	saved[0].name = "no such tensor";
	assert(IS(dlb_onnx_save(source, path, saved, 1, &err), ==, -1) &&
	       HAS(err.what, "no such tensor"));
	dlb_graph_release(&g);
	dlb_graph_release(&back);
	n_checked++;
}

/* A weight that a vertex made becomes an initializer. */
static void test_save_made_weight(void)
{
	struct model m;
	struct dlb_graph g;
	char path[300], saved[300];
	size_t n;
	start(&m);
	m.g.n_initializer = 0;
	int64_t shape[] = { 2 };
	Onnx__TensorProto *s = initializer(&m, "shape", 7, 1);
	s->n_int64_data = 1;
	s->int64_data = shape;
	vertex(&m, "ConstantOfShape", "shape", NULL, "w");
	m.m.ir_version = 3;
	uint8_t *p = pack(&m, &n);
	write_file("made.onnx", p, n);
	free(p);
	dlb_arena_release(&m.a);
	snprintf(path, sizeof path, "%s/made.onnx", dir);
	snprintf(saved, sizeof saved, "%s/saved.onnx", dir);
	const struct dlb_named new_w = { "w", { .dtype = DLB_F32, .n_dims = 1, .dim = { 2 } }, two };
	if (dlb_onnx_save(path, saved, &new_w, 1, &err) ||
	    dlb_onnx_read(saved, &g, &err))
		die("made");
	assert(IS(g.n_ops, ==, 1) && !memcmp(g.tensor[tensor_named(&g, "w")].data, two, sizeof two));
	dlb_graph_release(&g);
	n_checked++;
}

/* Saving embeds the external data of the constants of vertices as well. */
static void test_save_external(void)
{
	static const float in_file[3] = { 9, 3, 4 }, new_values[2] = { 5, 6 };
	char path[300], saved[300];
	struct dlb_graph g;
	struct model m;
	size_t n;

	write_file("w.bin", in_file, sizeof in_file);
	external(&m, "w.bin", "4", "8");
	Onnx__TensorProto *k = dlb_arena_alloc(&m.a, sizeof *k);
	*k = *m.init[0];
	k->name = (char *)"";
	attribute(&m, vertex(&m, "Constant", NULL, NULL, "k"), "value", 4)->t = k;
	vertex(&m, "Add", "y", "k", "z");
	uint8_t *p = pack(&m, &n);
	write_file("apart.onnx", p, n);
	free(p);
	dlb_arena_release(&m.a);
	snprintf(path, sizeof path, "%s/apart.onnx", dir);
	snprintf(saved, sizeof saved, "%s/saved.onnx", dir);
	const struct dlb_named w = { "w", { .dtype = DLB_F32, .n_dims = 1, .dim = { 2 } }, new_values };
	if (dlb_onnx_save(path, saved, &w, 1, &err))
		die("external data");
	snprintf(path, sizeof path, "%s/w.bin", dir);
	assert(IS(unlink(path), ==, 0));
	if (dlb_onnx_read(saved, &g, &err))
		die("external data embedded");
	assert(!memcmp(g.tensor[tensor_named(&g, "k")].data, in_file + 1, 8) &&
	       !memcmp(g.tensor[tensor_named(&g, "w")].data, new_values, 8));
	dlb_graph_release(&g);
	n_checked++;
}

/* A constant that the exporter merged with a parameter keeps its values when the parameter is trained. */
static void test_save_beside_constant(void)
{
	static const float one[] = { 1, 1 };
	const struct dlb_unmerged apart = { "b.constant", "w", "b", 0 };
	struct model m;
	struct dlb_graph g;
	char path[300], saved[300];
	size_t n;

	start(&m);
	m.g.n_initializer = m.g.n_node = 0;
	raw(initializer(&m, "w", 1, 2), (void *)(uintptr_t)one, sizeof one);
	vertex(&m, "Add", "x", "w", "a")->name = (char *)(uintptr_t)"a";
	vertex(&m, "Mul", "a", "w", "y")->name = (char *)(uintptr_t)"b";
	uint8_t *p = pack(&m, &n);
	write_file("apart.onnx", p, n);
	free(p);
	dlb_arena_release(&m.a);
	snprintf(path, sizeof path, "%s/apart.onnx", dir);
	snprintf(saved, sizeof saved, "%s/saved.onnx", dir);
	const struct dlb_named new_w = { "w", { .dtype = DLB_F32, .n_dims = 1, .dim = { 2 } }, two };
	if (dlb_onnx_save_apart(path, saved, &new_w, 1, &apart, 1, &err) ||
	    dlb_onnx_read(saved, &g, &err))
		die("apart");
	assert(!memcmp(g.tensor[tensor_named(&g, "w")].data, two, sizeof two) &&
	       IS(g.op[0].in[1], ==, tensor_named(&g, "w")));
	assert(!memcmp(g.tensor[tensor_named(&g, "b.constant")].data, one, sizeof one) &&
	       IS(g.op[1].in[1], ==, tensor_named(&g, "b.constant")));
	dlb_graph_release(&g);
	n_checked++;
}

/* z = c ? y + v : y + v', each branch with its own v: tensors of the outer graph become further operands of
 * the vertex, constants of the branches move to the outermost graph, and a trained constant is saved at its
 * old place. */
static void test_branches(void)
{
	static const float other[] = { 7, 8 };
	struct model m, in[2];
	struct dlb_graph g;
	char path[300], saved[300];
	size_t n;

	start(&m);
	initializer(&m, "c", 9, 1)->n_int32_data = 0;
	raw(m.init[1], "\1", 1);
	Onnx__NodeProto *v = vertex(&m, "If", "c", NULL, "z");
	for (int i = 0; i < 2; i++) {
		start(&in[i]);
		in[i].g.n_input = in[i].g.n_output = in[i].g.n_node = in[i].g.n_initializer = 0;
		raw(initializer(&in[i], "v", 1, 2), two, sizeof two);
		vertex(&in[i], "Add", "y", "v", "r");
		in[i].out[in[i].g.n_output++] = value(&in[i], "r", (const char *[]){ NULL });
		attribute(&m, v, i ? "else_branch" : "then_branch", 5)->g = &in[i].g;
	}
	uint8_t *p = pack(&m, &n);
	write_file("branches.onnx", p, n);
	free(p);
	for (int i = 0; i < 2; i++)
		dlb_arena_release(&in[i].a);
	dlb_arena_release(&m.a);
	snprintf(path, sizeof path, "%s/branches.onnx", dir);
	snprintf(saved, sizeof saved, "%s/saved.onnx", dir);
	const struct dlb_named new_v = { "v", { .dtype = DLB_F32, .n_dims = 1, .dim = { 2 } }, other };
	if (dlb_onnx_save(path, saved, &new_v, 1, &err) ||
	    dlb_onnx_read(saved, &g, &err))
		die("branches");
	/* c, then the tensors that each branch reads: y and its v */
	assert(IS(g.n_ops, ==, 2) && IS(g.n_bodies, ==, 2) && IS(g.op[1].n_in, ==, 5));
	assert(IS(g.body[0]->first_capture, ==, 1) && IS(g.body[1]->first_capture, ==, 3) &&
	       IS(g.body[1]->g.n_inputs, ==, 2));
	char renamed[100];
	snprintf(renamed, sizeof renamed, "%s.v", g.op[1].name);
	assert(!memcmp(g.tensor[tensor_named(&g, "v")].data, other, sizeof other));
	assert(!memcmp(g.tensor[tensor_named(&g, renamed)].data, two, sizeof two));
	dlb_graph_release(&g);
	n_checked++;
}

/* z = c ? y + w : y: a branch reads the first tensor of the model, as any other. */
static void test_first_in_branch(void)
{
	struct model m, in[2];
	struct dlb_graph g;

	start(&m);
	raw(initializer(&m, "c", 9, 1), "\1", 1);
	Onnx__NodeProto *v = vertex(&m, "If", "c", NULL, "z");
	for (int i = 0; i < 2; i++) {
		start(&in[i]);
		in[i].g.n_input = in[i].g.n_output = in[i].g.n_node = in[i].g.n_initializer = 0;
		vertex(&in[i], i ? "Identity" : "Add", "y", i ? NULL : "w", "r");
		in[i].out[in[i].g.n_output++] = value(&in[i], "r", (const char *[]){ NULL });
		attribute(&m, v, i ? "else_branch" : "then_branch", 5)->g = &in[i].g;
	}
	if (parse(&m, &g))
		die("first tensor in a branch");
	for (int i = 0; i < 2; i++)
		dlb_arena_release(&in[i].a);
	/* c, then y and w of the first branch, then y of the second */
	const int w = tensor_named(&g, "w"), y = tensor_named(&g, "y");
	assert(IS(w, ==, 0) && IS(g.n_ops, ==, 2) && IS(g.op[1].n_in, ==, 4));
	assert(IS(g.op[1].in[1], ==, y) && IS(g.op[1].in[2], ==, w) && IS(g.op[1].in[3], ==, y));
	dlb_graph_release(&g);
	n_checked++;
}

/* A formal input of a body needs a name. */
static void test_nameless_formal(void)
{
	struct model m, body;

	start(&m);
	raw(initializer(&m, "c", 9, 1), "\1", 1);
	Onnx__NodeProto *v = vertex(&m, "If", "c", NULL, "z");
	start(&body);
	body.g.n_output = body.g.n_node = body.g.n_initializer = 0;
	body.g.n_input = 1;
	body.in[0] = value(&body, "", (const char *[]){ NULL });
	vertex(&body, "Relu", "y", NULL, "r");
	body.out[body.g.n_output++] = value(&body, "r", (const char *[]){ NULL });
	attribute(&m, v, "then_branch", 5)->g = &body.g;
	attribute(&m, v, "else_branch", 5)->g = &body.g;
	refused(&m, "input 0 of a body of 'If_1' has no name");
	dlb_arena_release(&body.a);
}

/* -- whole models -- */

static void one_model(const char *path)
{
	struct dlb_graph g, back;
	struct dlb_doc d;
	if (dlb_onnx_read(path, &g, &err))
		die(path);
	assert(g.model_sha256 && IS(strlen(g.model_sha256), ==, 64) && IS(g.model_path[0], ==, '/'));
	g.batch = 8;
	dlb_doc_init(&d, "test");
	dlb_doc_set(&d, "graph", dlb_graph_write(&g));
	if (dlb_graph_read(&d, &back, &err))
		die(path);
	assert_same_graph(&g, &back);
	if (dlb_graph_load_weights(&back, NULL, &err))
		die(path);
	for (int i = 0; i < g.n_tensors; i++) {
		const struct dlb_desc desc = dlb_tensor_desc(&g.tensor[i], 1);
		if (g.tensor[i].data)
			assert(!memcmp(g.tensor[i].data, back.tensor[i].data, dlb_desc_bytes(&desc)));
	}
	dlb_doc_release(&d);
	dlb_graph_release(&g);
	dlb_graph_release(&back);
	n_models++;
}

static void all_models(const char *folder)
{
	DIR *f = opendir(folder);
	char path[600];
	for (struct dirent *e; f && (e = readdir(f));) {
		const size_t n = strlen(e->d_name);
		if (n < 5 || strcmp(e->d_name + n - 5, ".onnx") != 0)
			continue;
		snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
		one_model(path);
	}
	if (f)
		closedir(f);
}

static void test_weights(const char *path)
{
	struct dlb_graph g;
	if (dlb_onnx_read(path, &g, &err))
		die(path);
	for (int i = 0; i < g.n_tensors; i++)
		if (g.tensor[i].in_model) {
			g.tensor[i].kind = DLB_T_WEIGHT;
			g.tensor[i].data = NULL;
			g.tensor[i].dtype = g.tensor[i].dtype == DLB_F32 ? DLB_F64 : g.tensor[i].dtype;
		}
	const char *sha = g.model_sha256;
	g.model_sha256 = "0000000000000000000000000000000000000000000000000000000000000000";
	assert(IS(dlb_graph_load_weights(&g, NULL, &err), ==, -1) && HAS(err.what, "has changed"));
	g.model_sha256 = sha;
	if (dlb_graph_load_constants(&g, &err))		/* none here: all are weights */
		die(path);
	assert(!g.tensor[0].data);
	g.tensor[0].kind = DLB_T_CONSTANT;
	if (dlb_graph_load_constants(&g, &err) || dlb_graph_load_weights(&g, path, &err))
		die(path);
	assert(g.tensor[0].data && g.tensor[1].data);
	for (int i = 0; i < g.n_tensors; i++)
		if (g.tensor[i].in_model && g.tensor[i].n_dims == 2) {
			g.tensor[i].data = NULL;
			g.tensor[i].dim[0].add++;
			assert(IS(dlb_graph_load_weights(&g, NULL, &err), ==, -1) &&
			       HAS(err.what, "where the graph needs"));
			break;
		}
	dlb_graph_release(&g);
	n_checked++;
}

/* An argument: the folder for the models as seeds of fuzzers. */
int main(int argc, char **argv)
{
	const char *data = getenv("DLB_TEST_DATA");
	char path[600], command[300];
	seeds = argc > 1 ? argv[1] : NULL;
	assert(mkdtemp(dir));
	data = data ? data : "../shared/data";

	test_basics();
	test_types();
	test_refused();
	test_wire();
	test_external();
	test_external_digest();
	test_save_made_weight();
	test_save_external();
	test_save_beside_constant();
	test_branches();
	test_first_in_branch();
	test_nameless_formal();
	all_models("share/models");
	save_and_read("share/models/resnet8.onnx");
	save_and_read("share/models/digits_mlp.onnx");
	test_weights("share/models/digits_cnn.onnx");
	snprintf(path, sizeof path, "%s/onnx/models", data);
	all_models(path);
	snprintf(path, sizeof path, "%s/onnx/light", data);
	all_models(path);
	snprintf(path, sizeof path, "%s/onnx/models/mlp.train.op13.dyn.loss.onnx", data);
	if (access(path, R_OK) == 0)
		save_and_read(path);
	else
		printf("no models under '%s' (DLB_TEST_DATA): those of share/models only\n", data);
	snprintf(command, sizeof command, "rm -r %s", dir);
	assert(IS(system(command), ==, 0));
	printf("test_onnx: %d models read, written and read again; %d hostile files; %d other checks\n",
	       n_models, n_hostile, n_checked);
	return 0;
}
