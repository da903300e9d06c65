/* Builds small ONNX models for tests from messages of the generated protobuf code. One arena holds a
 * model. */
#ifndef TESTS_ONNX_MODEL_H
#define TESTS_ONNX_MODEL_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "model/onnx.h"
#include "onnx.pb-c.h"
#include "check.h"

static int n_checked, n_hostile;
static struct dlb_error err;
static const char *seeds;	/* folder in which tests save their models as seeds of fuzzers; NULL: none */
static char dir[] = "/tmp/dlb-test-onnx-XXXXXX";

static inline void die(const char *what)
{
	dlb_error_print(stderr, what, -1, &err);
	abort();
}

struct model {
	struct dlb_arena a;
	Onnx__ModelProto m;
	Onnx__GraphProto g;
	Onnx__OperatorSetIdProto *opset[4];
	Onnx__NodeProto *node[16];
	Onnx__TensorProto *init[16];
	Onnx__ValueInfoProto *in[8], *out[8];
};

static inline void opset(struct model *m, const char *domain, int64_t version)
{
	Onnx__OperatorSetIdProto *o = dlb_arena_alloc(&m->a, sizeof *o);
	onnx__operator_set_id_proto__init(o);
	o->domain = (char *)domain;
	o->has_version = 1;
	o->version = version;
	m->opset[m->m.n_opset_import++] = o;
}

static inline Onnx__ValueInfoProto *value(struct model *m, const char *name, const char *const *dims)
{
	Onnx__ValueInfoProto *v = dlb_arena_alloc(&m->a, sizeof *v);
	Onnx__TypeProto *t = dlb_arena_alloc(&m->a, sizeof *t);
	Onnx__TypeProto__Tensor *p = dlb_arena_alloc(&m->a, sizeof *p);
	Onnx__TensorShapeProto *s = dlb_arena_alloc(&m->a, sizeof *s);
	onnx__value_info_proto__init(v);
	onnx__type_proto__init(t);
	onnx__type_proto__tensor__init(p);
	onnx__tensor_shape_proto__init(s);
	s->dim = dlb_arena_array(&m->a, 16, sizeof *s->dim);
	for (; dims[s->n_dim]; s->n_dim++) {
		const char *text = dims[s->n_dim];
		Onnx__TensorShapeProto__Dimension *d = dlb_arena_alloc(&m->a, sizeof *d);
		onnx__tensor_shape_proto__dimension__init(d);
		if (strchr("0123456789-", *text) && *text) {
			d->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
			d->dim_value = atoll(text);
		} else if (*text) {
			d->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
			d->dim_param = (char *)text;
		}
		s->dim[s->n_dim] = d;
	}
	v->name = (char *)name;
	v->type = t;
	t->value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
	t->tensor_type = p;
	p->has_elem_type = 1;
	p->elem_type = 1;
	p->shape = s;
	return v;
}

static inline Onnx__NodeProto *vertex(struct model *m, const char *type, const char *in0, const char *in1,
				      const char *out)
{
	Onnx__NodeProto *v = dlb_arena_alloc(&m->a, sizeof *v);
	onnx__node_proto__init(v);
	v->op_type = (char *)type;
	v->input = dlb_arena_array(&m->a, 2, sizeof *v->input);
	v->output = dlb_arena_array(&m->a, 1, sizeof *v->output);
	if (in0)
		v->input[v->n_input++] = (char *)in0;
	if (in1)
		v->input[v->n_input++] = (char *)in1;
	if (out)
		v->output[v->n_output++] = (char *)out;
	m->node[m->g.n_node++] = v;
	return v;
}

static inline Onnx__AttributeProto *attribute(struct model *m, Onnx__NodeProto *v, const char *name, int type)
{
	Onnx__AttributeProto *p = dlb_arena_alloc(&m->a, sizeof *p);
	onnx__attribute_proto__init(p);
	p->name = (char *)name;
	p->has_type = 1;
	p->type = (Onnx__AttributeProto__AttributeType)type;
	if (!v->attribute)
		v->attribute = dlb_arena_array(&m->a, 16, sizeof *v->attribute);
	v->attribute[v->n_attribute++] = p;
	return p;
}

static inline Onnx__TensorProto *initializer(struct model *m, const char *name, int type, int64_t n)
{
	Onnx__TensorProto *t = dlb_arena_alloc(&m->a, sizeof *t);
	onnx__tensor_proto__init(t);
	t->name = (char *)name;
	t->has_data_type = 1;
	t->data_type = type;
	t->n_dims = 1;
	t->dims = dlb_arena_array(&m->a, 8, sizeof *t->dims);
	t->dims[0] = n;
	m->init[m->g.n_initializer++] = t;
	return t;
}

static const float two[] = { 1.5f, -2 };

static inline void raw(Onnx__TensorProto *t, const void *data, size_t n)
{
	t->has_raw_data = 1;
	t->raw_data = (ProtobufCBinaryData){ n, (uint8_t *)data };
}

/* y = x + w, x (batch,2), w raw (2) */
static inline void start(struct model *m)
{
	*m = (struct model){ 0 };
	onnx__model_proto__init(&m->m);
	onnx__graph_proto__init(&m->g);
	m->m.has_ir_version = 1;
	m->m.ir_version = 8;
	m->m.graph = &m->g;
	m->m.opset_import = m->opset;
	m->g.name = (char *)"g";
	m->g.node = m->node;
	m->g.initializer = m->init;
	m->g.input = m->in;
	m->g.output = m->out;
	opset(m, "", 17);
	m->in[m->g.n_input++] = value(m, "x", (const char *[]){ "batch", "2", NULL });
	m->out[m->g.n_output++] = value(m, "y", (const char *[]){ "batch", "2", NULL });
	raw(initializer(m, "w", 1, 2), two, sizeof two);
	vertex(m, "Add", "x", "w", "y");
}

static inline void write_seed(const void *data, size_t n)
{
	static int count;
	char path[600];

	if (!seeds)
		return;
	snprintf(path, sizeof path, "%s/%03d-%s", seeds, count++, dir + strlen(dir) - 6);
	FILE *f = fopen(path, "wb");
	assert(f && IS(fwrite(data, 1, n, f), ==, n) && IS(fclose(f), ==, 0));
}

static inline uint8_t *pack(const struct model *m, size_t *n)
{
	*n = protobuf_c_message_get_packed_size(&m->m.base);
	uint8_t *p = dlb_xmalloc(*n + 1);
	protobuf_c_message_pack(&m->m.base, p);
	write_seed(p, *n);
	return p;
}

static inline int parse(struct model *m, struct dlb_graph *g)
{
	size_t n;
	uint8_t *p = pack(m, &n);
	err = (struct dlb_error){ .what = "" };
	const int rc = dlb_onnx_parse(p, n, "m.onnx", g, &err);
	free(p);
	dlb_arena_release(&m->a);
	return rc;
}

static inline void write_file(const char *name, const void *data, size_t n)
{
	char path[300];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	FILE *f = fopen(path, "wb");
	assert(f && IS(fwrite(data, 1, n, f), ==, n) && IS(fclose(f), ==, 0));
}

static inline int read_in_dir(struct model *m, struct dlb_graph *g)
{
	char path[300];
	size_t n;
	uint8_t *p = pack(m, &n);
	write_file("m.onnx", p, n);
	free(p);
	dlb_arena_release(&m->a);
	snprintf(path, sizeof path, "%s/m.onnx", dir);
	err = (struct dlb_error){ .what = "" };
	return dlb_onnx_read(path, g, &err);
}

static inline int tensor_named(const struct dlb_graph *g, const char *name)
{
	for (int i = 0; i < g->n_tensors; i++)
		if (!strcmp(g->tensor[i].name, name))
			return i;
	return -1;
}

static inline void refused(struct model *m, const char *says)
{
	struct dlb_graph g;
	if (parse(m, &g) == 0 || !strstr(err.what, says)) {
		fprintf(stderr, "wanted '%s'\n", says);
		die("got");
	}
	assert(err.hint[0]);			/* a cure */
	assert(!g.op && !g.tensor && !g.arena.head);
	n_hostile++;
}
#endif
