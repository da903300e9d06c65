/* Reads attributes of vertices, and `Constant`, which consists of one attribute: see onnx_reader.h. */
#include <stdlib.h>
#include <string.h>
#include "model/onnx_reader.h"
#include "util/utf8.h"

enum { NOT_HELD = 1, LEFT_OUT = 2 };	/* NOT_HELD: a graph cannot hold its type; LEFT_OUT: absent */

/* Type of an attribute; the first version of the file format does not store it. */
static int attribute_type(const Onnx__AttributeProto *p)
{
	if (p->has_type && p->type != ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__UNDEFINED)
		return (int)p->type;
	return p->t         ? ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR :
	       p->g         ? ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH :
	       p->n_ints    ? ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS :
	       p->n_floats  ? ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS :
	       p->n_strings ? ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS :
	       p->has_s     ? ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING :
	       p->has_f     ? ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT :
	       p->has_i     ? ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT :
			      0;
}

static int join_words(const Onnx__AttributeProto *p, struct dlb_arena *arena, struct dlb_attr *a)
{
	size_t bytes = 1, n = 0;
	char *text;

	for (size_t i = 0; i < p->n_strings; i++) {
		const ProtobufCBinaryData *s = &p->strings[i];
		if (!dlb_is_utf8((const char *)s->data, s->len) || (s->len && memchr(s->data, ',', s->len)))
			return 1;
		bytes += s->len + 1;
	}
	a->s = text = dlb_arena_alloc(arena, bytes);
	for (size_t i = 0; i < p->n_strings; i++) {
		if (i)
			text[n++] = ',';
		if (p->strings[i].len)
			memcpy(text + n, p->strings[i].data, p->strings[i].len);
		n += p->strings[i].len;
	}
	text[n] = 0;
	return 0;
}

/* Reads attribute p under `name`. Returns 0, NOT_HELD, LEFT_OUT, or -1 with err. */
static int read_attribute(struct onnx_reader *r, const Onnx__AttributeProto *p, const char *name,
			  const char *vertex, struct dlb_attr *a)
{
	struct dlb_arena *arena = &r->g->arena;
	char what[200];
	double *reals;
	char *text;
	void *data;

	*a = (struct dlb_attr){ .name = name };
	switch (attribute_type(p)) {
	case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT:
		a->type = DLB_ATTR_INT;
		a->i = p->i;
		return 0;
	case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT:
		a->type = DLB_ATTR_REAL;
		a->f = (double)p->f;
		return 0;
	case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING:
		a->type = DLB_ATTR_STR;
		if (!dlb_is_utf8((const char *)p->s.data, p->s.len))
			return 1;
		a->s = text = dlb_arena_alloc(arena, p->s.len + 1);
		if (p->s.len)
			memcpy(text, p->s.data, p->s.len);
		return 0;
	case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS:
		a->type = DLB_ATTR_INTS;
		a->n = (int)p->n_ints;
		a->ints = p->ints;
		return p->n_ints > INT32_MAX ? 1 : 0;
	case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS:
		a->type = DLB_ATTR_REALS;
		a->n = (int)p->n_floats;
		a->reals = reals = dlb_arena_array(arena, p->n_floats + 1, sizeof *reals);
		for (size_t i = 0; i < p->n_floats; i++)
			reals[i] = (double)p->floats[i];
		return p->n_floats > INT32_MAX ? 1 : 0;
	case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS:	/* joined by commas: "Sigmoid,Tanh,Tanh" */
		a->type = DLB_ATTR_STR;
		return join_words(p, arena, a);
	case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR:
		a->type = DLB_ATTR_TENSOR;
		if (!p->t || !p->t->has_data_type || dlb_dtype_from_onnx(p->t->data_type) < 0)
			return 1;
		snprintf(what, sizeof what, "attribute '%.60s' of vertex '%.60s'", name, vertex);
		const struct dlb_onnx_source s = { r->name, what, r->all->files, arena, r->err };
		if (dlb_onnx_tensor(p->t, &s, &a->desc, &data))
			return -1;
		a->data = data;
		return 0;
	default:
		return 1;
	}
}

static int read_one(struct onnx_reader *r, const Onnx__NodeProto *p, const Onnx__AttributeProto *a,
		    const char *vertex, struct dlb_name_map *seen, struct dlb_attr *attr)
{
	const Onnx__AttributeProto *to;

	if (!a->name || !*a->name) {
		dlb_reader_fail(r, p, vertex, "an attribute has no name");
		return dlb_hint(r->err, "the file is damaged: export it again");
	}
	if (dlb_reader_check_name(r, a->name, "an attribute"))
		return -1;
	if (dlb_name_map_add(seen, a->name, 0) >= 0) {
		dlb_reader_fail(r, p, vertex, "attribute '%s' is given twice", a->name);
		return dlb_hint(r->err, "remove one of them");
	}
	if (!strcmp(a->name, "doc_string") || dlb_reader_is_body(p, a))
		return LEFT_OUT;
	if (dlb_reader_refer(r, p, vertex, a, &to))
		return -1;
	return to ? read_attribute(r, to, a->name, vertex, attr) : LEFT_OUT;
}

int dlb_reader_attributes(struct onnx_reader *r, const Onnx__NodeProto *p, const char *vertex,
			  struct dlb_attr *attr)
{
	struct dlb_name_map seen = { 0 };
	const char *unsupported = NULL;
	int n = 0, rc = 0;

	for (size_t i = 0; i < p->n_attribute && rc >= 0; i++) {
		const Onnx__AttributeProto *a = p->attribute[i];
		rc = read_one(r, p, a, vertex, &seen, &attr[n]);
		if (rc == 0)
			n++;
		else if (rc == NOT_HELD)
			unsupported = a->name;
	}
	dlb_name_map_release(&seen);
	if (rc < 0)
		return -1;
	if (unsupported)
		attr[n++] = (struct dlb_attr){ .name = DLB_ATTR_UNSUPPORTED,
					       .type = DLB_ATTR_STR,
					       .s = unsupported };
	return n;
}

/* -- Constant -- */

/* The numeric attributes: value_float(s) are f32, value_int(s) i64. */
static const struct attribute_type { const char *name; int type; enum dlb_dtype dtype; } numbers[] = {
	{ "value_float", ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT, DLB_F32 },
	{ "value_floats", ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS, DLB_F32 },
	{ "value_int", ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT, DLB_I64 },
	{ "value_ints", ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS, DLB_I64 },
};

static void set_numbers(struct dlb_graph *g, struct dlb_tensor *t, const struct attribute_type *k,
			const Onnx__AttributeProto *a)
{
	const bool list = k->type == ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS ||
			  k->type == ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS;
	const bool real = k->dtype == DLB_F32;
	const size_t n = !list ? 1 : real ? a->n_floats : a->n_ints;
	const void *from = list ? (real ? (const void *)a->floats : a->ints) :
			   real ? (const void *)&a->f :
				  &a->i;
	void *data = dlb_arena_array(&g->arena, n + 1, 8);

	if (n)
		memcpy(data, from, n * dlb_dtype_bytes(k->dtype));
	t->dtype = k->dtype;
	t->n_dims = list;
	if (list)
		t->dim[0].add = (int64_t)n;
	t->data = data;
	t->in_model = true;
}

int dlb_reader_constant(struct onnx_reader *r, const Onnx__NodeProto *p, const char *vertex,
			struct onnx_reader *to, int id)
{
	const Onnx__AttributeProto *a = p->n_attribute == 1 ? p->attribute[0] : NULL;
	const char *name = a && a->name ? a->name : "";

	if (a && dlb_reader_refer(r, p, vertex, a, &a))
		return -1;
	if (!a && p->n_attribute == 1) {
		dlb_reader_fail(r, p, vertex, "attribute '%s' of the function is not given",
				p->attribute[0]->ref_attr_name);
		return dlb_hint(
			r->err,
			"give it where the function is called, or give the function a default for it");
	}
	if (!strcmp(name, "value") && a->t && a->t->has_data_type &&
	    dlb_dtype_from_onnx(a->t->data_type) >= 0)
		return dlb_reader_set_constant(to, id, a->t, false);
	for (int i = 0; i < DLB_LEN(numbers); i++)
		if (!strcmp(name, numbers[i].name) && attribute_type(a) == numbers[i].type) {
			set_numbers(to->g, &to->g->tensor[id], &numbers[i], a);
			return 0;
		}
	return NOT_HELD;
}
