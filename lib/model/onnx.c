/* ONNX to graph: see onnx.h. The wire format is onnx_wire.c's, tensors are onnx_tensor.c's.
 *
 * What comes out is the file's own graph: its vertices in file order (sorted where they are not), every
 * initializer and every `Constant` a constant tensor, every input that is not an initializer a fed one.
 * A dimension without a number is the batch where it is the first of a fed input, or has the name of such
 * a one; any other keeps its name for the message that dlb_graph_fold gives if it still needs it.
 *
 * Vertices of a type we do not have, or with an attribute we cannot hold (sparse tensors), are kept with kind -1:
 * they can be planned, and dlb_graph_check_known names them. So are branches, loops and sequences, which
 * dlb_graph_fold resolves; the graphs inside them are onnx_body.c's. */
#define _XOPEN_SOURCE 700	/* realpath */
#include "model/onnx.h"
#include <inttypes.h>
#include <libgen.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "model/file.h"
#include "model/onnx_reader.h"
#include "util/hash.h"
#include "util/utf8.h"

#define OPSET_MIN 6
#define OPSET_MAX 28
#define TRAINING_DOMAIN "ai.onnx.preview.training"

static int check_name(const struct reader *r, const char *name, const char *what)
{
	if (!dlb_is_utf8(name, strlen(name)))
		return dlb_fail(r->err, r->name, "name of %s is not UTF-8 text", what);
	return 0;
}

static const char *onnx_domain(const char *domain)
{
	return !domain || !strcmp(domain, "ai.onnx") ? "" : domain;
}

/* The version of the operator set that the file imports for a domain, or -1. */
static int64_t opset_of(const struct reader *r, const char *domain)
{
	for (size_t i = 0; i < r->model->n_opset_import; i++) {
		const Onnx__OperatorSetIdProto *o = r->model->opset_import[i];
		if (!strcmp(onnx_domain(o->domain), domain))
			return o->has_version ? o->version : 0;
	}
	return -1;
}

/* Operators that mean in opset 1 what they mean in opset 6. */
static bool is_old(const char *type)
{
	static const char *const old[] = { "Conv", "ConvTranspose", "Flatten", "GlobalAveragePool", "GlobalMaxPool", "Identity",
		"LRN", "LogSoftmax", "MaxPool", "Not", "Softmax", "Softplus", "Softsign", "Transpose" };

	for (int i = 0; i < DLB_LEN(old); i++)
		if (!strcmp(old[i], type))
			return true;
	return false;
}

/* The versions of the domains that vertices use; domains we do not know pass: their vertices are unknown. */
static int check_opset(const struct reader *r, const char *domain, const char *type)
{
	const int64_t v = opset_of(r, domain);
	const bool onnx = !*domain, training = !strcmp(domain, TRAINING_DOMAIN);
	if (v < 0)
		return dlb_fail(r->err, r->name, "no opset version is given for domain '%s'", onnx ? "ai.onnx" : domain);
	if (onnx && (v < OPSET_MIN || v > OPSET_MAX) && !(v >= 1 && v < OPSET_MIN && is_old(type)))
		return dlb_fail(r->err, r->name, "opset %" PRId64 "; dlb reads %d to %d", v, OPSET_MIN, OPSET_MAX);
	if (training && v != 1)
		return dlb_fail(r->err, r->name, "opset %" PRId64 " of %s; dlb reads 1", v, domain);
	if (v > INT32_MAX)
		return dlb_fail(r->err, r->name, "opset %" PRId64 " of domain '%s' is out of range", v, domain);
	return 0;
}

/* -- tensors -- */

int dlb_reader_add_tensor(struct reader *r, const char *name, enum dlb_tensor_kind kind, const char *what)
{
	if (check_name(r, name, what))
		return -1;
	const int id = dlb_graph_add_tensor(r->g, name, kind);
	if (dlb_name_map_add(&r->tensor, r->g->tensor[id].name, id) >= 0)
		return dlb_fail(r->err, r->name, "two tensors have the name '%s'", name);
	return id;
}

/* NaN is no weight. Infinity is none either, but a mask of an attention layer is made of 0 and -inf. */
static int check_finite(const struct reader *r, const struct dlb_desc *d, const void *data, const char *name)
{
	bool infinite = false, finite = false;
	const int64_t n = dlb_dtype_is_float(d->dtype) ? dlb_desc_count(d) : 0;
	for (int64_t i = 0; i < n; i++) {
		const double v = d->dtype == DLB_F32 ? ((const float *)data)[i] : dlb_value_real(data, d->dtype, i);
		if (isnan(v))
			return dlb_fail(r->err, r->name, "weights hold NaN: initializer '%s', element %" PRId64, name, i);
		infinite |= isinf(v);
		finite |= isfinite(v) && v != 0;
	}
	if (infinite && finite)
		return dlb_fail(r->err, r->name, "weights hold infinity: initializer '%s'", name);
	return 0;
}

int dlb_reader_set_constant(struct reader *r, int id, const Onnx__TensorProto *p, bool initializer)
{
	struct dlb_tensor *t = &r->g->tensor[id];
	char what[160];
	struct dlb_desc d;
	void *data;

	snprintf(what, sizeof what, "%s '%.100s'", initializer ? "initializer" : "constant", t->name);
	if (dlb_onnx_tensor(p, r->name, r->folder, what, &r->g->arena, &d, &data, r->err))
		return -1;
	if (initializer && check_finite(r, &d, data, t->name))
		return -1;
	t->dtype = d.dtype;
	t->n_dims = d.n_dims;
	for (int i = 0; i < d.n_dims; i++)
		t->dim[i].add = d.dim[i];
	t->data = data;
	t->in_model = true;
	t->initial = initializer;
	return 0;
}

static int read_initializers(struct reader *r)
{
	if (r->p->n_sparse_initializer)
		return dlb_fail(r->err, r->name, "sparse initializers are not read (%zu of them)",
				r->p->n_sparse_initializer);
	for (size_t i = 0; i < r->p->n_initializer; i++) {
		const Onnx__TensorProto *t = r->p->initializer[i];
		if (!t->name || !*t->name)
			return dlb_fail(r->err, r->name, "initializer %zu has no name", i);
		if (r->outer && dlb_reader_hoist(r, t->name, t, NULL))
			return -1;
		if (r->outer)
			continue;
		const int id = dlb_reader_add_tensor(r, t->name, DLB_T_CONSTANT, "an initializer");
		if (id < 0 || dlb_reader_set_constant(r, id, t, true))
			return -1;
	}
	return 0;
}

/* Type and shape of a value. The first dimension of a fed one names the batch when it has no number; other
 * dimensions without a number are left unknown, the first one's name in `symbol`. Returns 1 when there is no
 * (usable) shape, -1 on error. */
int dlb_reader_set_type(struct reader *r, struct dlb_tensor *t, const Onnx__ValueInfoProto *v, bool fed)
{
	const Onnx__TypeProto *type = v->type;
	if (!type || type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE || !type->tensor_type)
		return 1;
	const Onnx__TypeProto__Tensor *p = type->tensor_type;
	const int dtype = p->has_elem_type ? dlb_dtype_from_onnx(p->elem_type) : -1;
	if (dtype < 0)
		return 1;
	t->dtype = (enum dlb_dtype)dtype;
	t->symbol = NULL;
	if (!p->shape)
		return 1;
	if (p->shape->n_dim > DLB_MAX_DIMS)
		return dlb_fail(r->err, r->name, "tensor '%s' has %zu dimensions; at most %d", t->name, p->shape->n_dim,
				DLB_MAX_DIMS);
	int64_t known[DLB_MAX_DIMS];
	int n_known = 0;
	for (size_t i = 0; i < p->shape->n_dim; i++) {
		const Onnx__TensorShapeProto__Dimension *d = p->shape->dim[i];
		t->dim[i] = (struct dlb_dim){ 0, -1 };
		if (d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE && d->dim_value != -1) {
			if (d->dim_value < 0)
				return dlb_fail(r->err, r->name, "tensor '%s' has a negative dimension", t->name);
			t->dim[i].add = known[n_known++] = d->dim_value;
			continue;
		}
		const char *symbol = d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM &&
				     d->dim_param ? d->dim_param : "";
		if (check_name(r, symbol, "a dimension"))
			return -1;
		if (fed && i == 0 && *symbol)
			dlb_name_map_add(&r->batch, symbol, 0);
		if ((fed && i == 0) || (*symbol && dlb_name_map_get(&r->batch, symbol) >= 0))
			t->dim[i] = (struct dlb_dim){ 1, 0 };
		else if (!t->symbol)
			t->symbol = dlb_arena_strdup(&r->g->arena, *symbol ? symbol : "?");
	}
	if (dlb_checked_count(known, n_known) < 0)
		return dlb_fail(r->err, r->name, "shape of tensor '%s' is too large", t->name);
	t->n_dims = (int)p->shape->n_dim;
	return 0;
}

/* Fed inputs: those that are not initializers. Their first dimensions say what the batch is called. */
static int read_inputs(struct reader *r)
{
	struct dlb_graph *g = r->g;
	g->input = dlb_arena_array(&g->arena, r->p->n_input + 1, sizeof *g->input);
	for (size_t i = 0; i < r->p->n_input; i++) {
		const Onnx__ValueInfoProto *v = r->p->input[i];
		if (!v->name || !*v->name)
			return dlb_fail(r->err, r->name, "input %zu has no name", i);
		const int old = dlb_name_map_get(&r->tensor, v->name);
		if (old >= 0 && g->tensor[old].kind == DLB_T_CONSTANT)
			continue;
		const int id = dlb_reader_add_tensor(r, v->name, DLB_T_INPUT, "an input");
		if (id < 0)
			return -1;
		g->input[g->n_inputs++] = id;
		const int rc = dlb_reader_set_type(r, &g->tensor[id], v, true);
		if (rc > 0)
			return dlb_fail(r->err, r->name, "input '%s' is no tensor of a known type and shape", v->name);
		if (rc)
			return -1;
	}
	/* again, now that all names of the batch are known: an earlier input may use a later one's */
	for (size_t i = 0; i < r->p->n_input; i++) {
		struct dlb_tensor *t = &g->tensor[dlb_name_map_get(&r->tensor, r->p->input[i]->name)];
		if (t->kind == DLB_T_INPUT && dlb_reader_set_type(r, t, r->p->input[i], true))
			return -1;
	}
	return 0;
}

/* The formal inputs of a body: their types are hints, since the vertex binds them. */
static int read_formals(struct reader *r)
{
	struct dlb_graph *g = r->g;

	g->input = dlb_arena_array(&g->arena, r->p->n_input + 1, sizeof *g->input);
	for (size_t i = 0; i < r->p->n_input; i++) {
		const Onnx__ValueInfoProto *v = r->p->input[i];
		if (!v->name || !*v->name)
			return dlb_fail(r->err, r->name, "input %zu of a body of '%s' has no name", i, r->vertex);
		const int id = dlb_reader_add_tensor(r, v->name, DLB_T_INPUT, "an input");
		if (id < 0 || dlb_reader_set_type(r, &g->tensor[id], v, false) < 0)
			return -1;
		g->input[g->n_inputs++] = id;
	}
	return 0;
}

/* value_info and the types of outputs: hints, taken where they are whole and the tensor is a vertex's. */
static int read_hint(struct reader *r, const Onnx__ValueInfoProto *v)
{
	const int id = v->name ? dlb_name_map_get(&r->tensor, v->name) : -1;
	if (id < 0 || r->g->tensor[id].kind != DLB_T_ACTIVATION)
		return 0;
	struct dlb_tensor t = r->g->tensor[id];
	const int rc = dlb_reader_set_type(r, &t, v, false);
	if (rc < 0)
		return -1;
	if (rc > 0 || t.symbol)
		t.n_dims = -1;
	t.symbol = NULL;
	r->g->tensor[id] = t;
	return 0;
}

/* -- attributes -- */

/* The type of an attribute; files of the first format version do not say it. */
static int attribute_type(const Onnx__AttributeProto *p)
{
	if (p->has_type && p->type != ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__UNDEFINED)
		return (int)p->type;
	return p->t ? ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR : p->g ? ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH :
	       p->n_ints ? ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS :
	       p->n_floats ? ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS :
	       p->n_strings ? ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS :
	       p->has_s ? ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING :
	       p->has_f ? ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT :
	       p->has_i ? ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT : 0;
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

/* 0: read; 1: of a kind that we cannot hold; -1: error. */
static int read_attribute(struct reader *r, const Onnx__AttributeProto *p, const char *vertex, struct dlb_attr *a)
{
	struct dlb_arena *arena = &r->g->arena;
	char what[200];
	double *reals;
	char *text;
	void *data;

	*a = (struct dlb_attr){ .name = p->name };
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
	case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS:	/* words, joined by commas: "Sigmoid,Tanh,Tanh" */
		a->type = DLB_ATTR_STR;
		return join_words(p, arena, a);
	case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR:
		a->type = DLB_ATTR_TENSOR;
		if (!p->t || !p->t->has_data_type || dlb_dtype_from_onnx(p->t->data_type) < 0)
			return 1;
		snprintf(what, sizeof what, "attribute '%.60s' of vertex '%.60s'", p->name, vertex);
		if (dlb_onnx_tensor(p->t, r->name, r->folder, what, arena, &a->desc, &data, r->err))
			return -1;
		a->data = data;
		return 0;
	default:
		return 1;
	}
}

/* Attributes of a vertex into attr[n_attribute + 1]; an attribute that we cannot hold becomes the one
 * named DLB_ATTR_UNSUPPORTED, which makes the op unknown. Returns their number, -1 on error. */
static int read_attributes(struct reader *r, const Onnx__NodeProto *p, const char *vertex, struct dlb_attr *attr)
{
	struct dlb_name_map seen = { 0 };
	int n = 0, rc = 0;
	const char *unsupported = NULL;

	for (size_t i = 0; i < p->n_attribute && rc >= 0; i++) {
		const Onnx__AttributeProto *a = p->attribute[i];
		if (!a->name || !*a->name) {
			rc = dlb_fail(r->err, r->name, "an attribute of vertex '%s' has no name", vertex);
		} else if (check_name(r, a->name, "an attribute")) {
			rc = -1;
		} else if (dlb_name_map_add(&seen, a->name, 0) >= 0) {
			rc = dlb_fail(r->err, r->name, "vertex '%s' has attribute '%s' twice", vertex, a->name);
		} else if (!strcmp(a->name, "doc_string") || dlb_reader_is_body(p, a)) {
			continue;
		} else {
			rc = read_attribute(r, a, vertex, &attr[n]);
			if (rc == 0)
				n++;
			else if (rc > 0)
				unsupported = a->name;
		}
	}
	dlb_name_map_release(&seen);
	if (rc < 0)
		return -1;
	if (unsupported)
		attr[n++] = (struct dlb_attr){ .name = DLB_ATTR_UNSUPPORTED, .type = DLB_ATTR_STR, .s = unsupported };
	return n;
}

/* -- vertices -- */

/* A `Constant` is a constant tensor. 1: it holds what we do not (strings, sparse values). */
int dlb_reader_constant(struct reader *r, const Onnx__NodeProto *p, int id)
{
	struct dlb_tensor *t = &r->g->tensor[id];
	const Onnx__AttributeProto *a = p->n_attribute == 1 ? p->attribute[0] : NULL;
	const char *name = a && a->name ? a->name : "";
	size_t n = 1;

	if (!strcmp(name, "value") && a->t && a->t->has_data_type && dlb_dtype_from_onnx(a->t->data_type) >= 0)
		return dlb_reader_set_constant(r, id, a->t, false);
	const bool is_float = !strcmp(name, "value_float") || !strcmp(name, "value_floats");
	const bool is_int = !strcmp(name, "value_int") || !strcmp(name, "value_ints");
	if (!is_float && !is_int)
		return 1;
	t->dtype = is_float ? DLB_F32 : DLB_I64;
	t->n_dims = 0;
	if (name[strlen(name) - 1] == 's') {
		n = is_float ? a->n_floats : a->n_ints;
		t->n_dims = 1;
		t->dim[0].add = (int64_t)n;
	}
	const void *from = is_float ? (t->n_dims ? (const void *)a->floats : &a->f) :
			   t->n_dims ? (const void *)a->ints : &a->i;
	void *data = dlb_arena_array(&r->g->arena, n + 1, 8);
	if (n)
		memcpy(data, from, n * dlb_dtype_bytes(t->dtype));
	t->data = data;
	t->in_model = true;
	return 0;
}

/* The vertex's own name, or TYPE_INDEX; a number is put behind a name that is taken. */
static const char *vertex_name(struct reader *r, struct dlb_name_map *taken, const Onnx__NodeProto *p, size_t index)
{
	struct dlb_arena *a = &r->g->arena;
	const char *name = p->name && *p->name ? p->name : dlb_arena_printf(a, "%s_%zu", p->op_type, index);
	const char *unique = name;
	for (int again = 0; dlb_name_map_add(taken, unique, 0) >= 0; again++)
		unique = dlb_arena_printf(a, again ? "%s_%zu_%d" : "%s_%zu", name, index, again);
	return unique;
}

static int tensor_of(struct reader *r, const char *name, const char *vertex)
{
	if (!name || !*name)
		return -1;
	const int id = dlb_reader_find(r, name);
	if (id >= 0)
		return id;
	dlb_fail(r->err, r->name, "vertex '%s' reads tensor '%s', which nothing makes", vertex, name);
	const char **names = dlb_xcalloc((size_t)r->g->n_tensors + 1, sizeof *names);
	for (int i = 0; i < r->g->n_tensors; i++)
		names[i] = r->g->tensor[i].name;
	const char *near = r->g->n_tensors <= 10000 ? dlb_nearest(name, names, r->g->n_tensors) : NULL;
	if (near)
		dlb_hint(r->err, "did you mean '%s'?", near);
	free(names);
	return -2;
}

static int read_vertex(struct reader *r, const Onnx__NodeProto *p, const char *name)
{
	const char *domain = onnx_domain(p->domain);
	struct dlb_attr *attr = dlb_xcalloc(p->n_attribute + 3, sizeof *attr);
	int *in = dlb_arena_array(&r->g->arena, p->n_input + 1, sizeof *in);
	int *out = dlb_xcalloc(p->n_output + 1, sizeof *out);
	int n_in = (int)p->n_input, n_out = (int)p->n_output;
	int n_attr = read_attributes(r, p, name, attr), rc = n_attr < 0 ? -1 : 0;

	for (int i = 0; i < n_in && !rc; i++)
		if ((in[i] = tensor_of(r, p->input[i], name)) == -2)
			rc = -1;
	for (int i = 0; i < n_out && !rc; i++)
		out[i] = p->output[i] && *p->output[i] ? dlb_name_map_get(&r->tensor, p->output[i]) : -1;
	while (n_in > 0 && in[n_in - 1] < 0)	/* trailing operands left out are not there */
		n_in--;
	while (n_out > 0 && out[n_out - 1] < 0)
		n_out--;
	const bool unsupported = n_attr > 0 && !strcmp(attr[n_attr - 1].name, DLB_ATTR_UNSUPPORTED);
	if (!rc)
		rc = dlb_reader_bodies(r, p, name, &in, &n_in, attr, &n_attr);
	const int64_t padding = dlb_reader_padding_row(p);
	if (padding >= 0)
		attr[n_attr++] = (struct dlb_attr){ .name = "padding", .type = DLB_ATTR_INT, .i = padding };
	if (!rc) {
		const int id = dlb_graph_add_op(r->g, name, p->op_type, domain, DLB_FORWARD, in, n_in, out, n_out, attr,
						n_attr);
		r->g->op[id].opset = (int)opset_of(r, domain);
		if (unsupported)
			r->g->op[id].kind = -1;
		dlb_reader_uses(r, p, id);
	}
	free(attr);
	free(out);
	return rc;
}

/* Two passes: first all tensors that vertices make, then the vertices that read them; so the order in the
 * file does not matter. `Constant`s are done in the first. */
static int read_vertices(struct reader *r)
{
	struct dlb_name_map taken = { 0 };
	const size_t n = r->p->n_node;
	bool *constant = dlb_xcalloc(n + 1, sizeof *constant);
	const char **name = dlb_xcalloc(n + 1, sizeof *name);
	int rc = 0;

	for (size_t i = 0; i < n && !rc; i++) {
		const Onnx__NodeProto *p = r->p->node[i];
		if (!p->op_type || !*p->op_type) {
			rc = dlb_fail(r->err, r->name, "vertex %zu has no op type", i);
			break;
		}
		if (check_name(r, p->op_type, "an op type") || check_name(r, onnx_domain(p->domain), "a domain") ||
		    check_name(r, p->name ? p->name : "", "a vertex") || check_opset(r, onnx_domain(p->domain), p->op_type)) {
			rc = -1;
			break;
		}
		name[i] = vertex_name(r, &taken, p, i);
		if (p->n_input > 1000000 || p->n_output > 1000000)
			rc = dlb_fail(r->err, r->name, "vertex '%s' has too many operands", name[i]);
		const bool is_constant = !strcmp(p->op_type, "Constant") && !*onnx_domain(p->domain) && p->n_output == 1 &&
			p->output[0] && *p->output[0];
		if (!rc && r->outer && is_constant) {
			rc = dlb_reader_hoist(r, p->output[0], NULL, p);
			constant[i] = true;
			continue;
		}
		bool makes = false;
		int id = -1;
		for (size_t k = 0; k < p->n_output && !rc; k++) {
			if (!p->output[k] || !*p->output[k])
				continue;
			makes = true;
			if (dlb_name_map_get(&r->tensor, p->output[k]) >= 0)
				rc = dlb_fail(r->err, r->name, "vertex '%s' makes tensor '%s', which is there already",
					      name[i], p->output[k]);
			else if ((id = dlb_reader_add_tensor(r, p->output[k], DLB_T_ACTIVATION, "a tensor")) < 0)
				rc = -1;
		}
		if (!rc && !makes)
			rc = dlb_fail(r->err, r->name, "vertex '%s' makes nothing", name[i]);
		if (!rc && is_constant) {
			rc = dlb_reader_constant(r, p, id);
			constant[i] = rc == 0;
			if (constant[i])
				r->g->tensor[id].kind = DLB_T_CONSTANT;
			rc = rc < 0 ? -1 : 0;
		}
	}
	for (size_t i = 0; i < n && !rc; i++)
		if (!constant[i])
			rc = read_vertex(r, r->p->node[i], name[i]);
	dlb_name_map_release(&taken);
	free(constant);
	free(name);
	return rc;
}

static int read_outputs(struct reader *r)
{
	struct dlb_graph *g = r->g;
	g->output = dlb_arena_array(&g->arena, r->p->n_output + 1, sizeof *g->output);
	for (size_t i = 0; i < r->p->n_output; i++) {
		const Onnx__ValueInfoProto *v = r->p->output[i];
		const int id = v->name ? dlb_reader_find(r, v->name) : -1;
		if (id < 0)
			return dlb_fail(r->err, r->name, "nothing makes output '%s'", v->name ? v->name : "");
		g->output[g->n_outputs++] = id;
	}
	if (!g->n_outputs && !r->outer)
		return dlb_fail(r->err, r->name, "the graph has no outputs");
	return 0;
}

int dlb_reader_graph(struct reader *r)
{
	const int64_t opset = opset_of(r, "");
	r->g->opset = opset >= OPSET_MIN && opset <= OPSET_MAX ? (int)opset : OPSET_MAX;
	if (read_initializers(r) || (r->outer ? read_formals(r) : read_inputs(r)) || read_vertices(r) || read_outputs(r))
		return -1;
	for (size_t i = 0; i < r->p->n_value_info; i++)
		if (read_hint(r, r->p->value_info[i]))
			return -1;
	for (size_t i = 0; i < r->p->n_output; i++)
		if (read_hint(r, r->p->output[i]))
			return -1;
	if (dlb_graph_sort(r->g, r->err) || (!r->outer && dlb_graph_check(r->g, r->err)))
		return dlb_error_at(r->err, r->name);
	return 0;
}

static int parse(const void *data, size_t n, const char *name, const char *folder, struct dlb_graph *g,
		 struct dlb_error *err)
{
	struct reader r = { .name = name, .folder = folder, .g = g, .err = err };
	int rc = -1;

	dlb_graph_init(g);
	if (!n)
		return dlb_fail(err, name, "empty file");
	r.model = dlb_onnx_unpack(&onnx__model_proto__descriptor, data, n, name, &g->arena, err);
	if (r.model && !r.model->graph) {
		dlb_fail(err, name, "no graph in it");
		dlb_hint(err, "is it an ONNX model?");
	} else if (r.model && r.model->n_functions) {
		dlb_fail(err, name, "functions of the model's own are not read (%zu of them)", r.model->n_functions);
	} else if (r.model) {
		r.p = r.model->graph;
		dlb_reader_signature(&r);
		rc = dlb_reader_graph(&r);
	}
	dlb_name_map_release(&r.tensor);
	dlb_name_map_release(&r.batch);
	dlb_name_map_release(&r.listed);
	if (rc)
		dlb_graph_release(g);
	return rc;
}

int dlb_onnx_parse(const void *data, size_t n, const char *name, struct dlb_graph *g, struct dlb_error *err)
{
	return parse(data, n, name, NULL, g, err);
}

int dlb_onnx_read(const char *path, struct dlb_graph *g, struct dlb_error *err)
{
	struct dlb_file f;
	char sha[65];

	dlb_graph_init(g);
	if (dlb_file_open(path, &f, err))
		return -1;
	char *full = realpath(path, NULL);
	char *copy = dlb_xstrdup(full ? full : path);
	int rc = parse(f.data, f.n, path, full ? dirname(copy) : NULL, g, err);
	if (!rc && full && f.mapped) {
		rc = dlb_sha256_file(full, sha, err);
		if (!dlb_is_utf8(full, strlen(full)))
			rc = dlb_fail(err, NULL, "the path of '%s' is not UTF-8 text", path);
		g->model_path = dlb_arena_strdup(&g->arena, full);
		g->model_sha256 = dlb_arena_strdup(&g->arena, sha);
		if (rc)
			dlb_graph_release(g);
	}
	dlb_file_close(&f);
	free(copy);
	free(full);
	return rc;
}
