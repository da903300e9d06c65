/* Writes a trained model as ONNX: see onnx.h. The original model is unpacked, its initializers get the new
 * values, and the model is packed again, so everything else stays the same.
 *
 * Constants of bodies and functions are found under the reader's names for them. A weight that a vertex
 * made (a ConstantOfShape, or anything that folding made constant) becomes an initializer, and the
 * vertex is removed. Initializers keep their type, also f16 and bf16. External data are embedded, so the
 * new file is complete by itself. */
#define _XOPEN_SOURCE 700	/* realpath */
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include "graph/graph.h"
#include "graph/name_map.h"
#include "model/file.h"
#include "model/onnx.h"
#include "model/onnx_proto.h"
#include "util/output.h"

#define MAX_BYTES INT32_MAX	/* protobuf's own limit */

struct saver {
	const char *source;
	struct dlb_onnx_files *files;
	struct dlb_arena *a;
	Onnx__GraphProto *p;
	const struct dlb_named *tensor;		/* the weights */
	const struct dlb_unmerged *apart;
	int n_apart;
	/* address of a tensor of the file ("%p") to the index of the weight stored in it */
	struct dlb_name_map filled;
	struct dlb_error *err;
};

static void clear_data(Onnx__TensorProto *t)
{
	t->has_raw_data = 0;
	t->n_float_data = t->n_double_data = t->n_int32_data = t->n_int64_data = t->n_uint64_data =
		t->n_string_data = 0;
	t->n_external_data = 0;
	t->has_data_location = 0;
}

static void set_raw(Onnx__TensorProto *t, const void *data, size_t bytes)
{
	clear_data(t);
	t->has_raw_data = 1;
	t->raw_data = (ProtobufCBinaryData){ bytes, (uint8_t *)data };
}

/* Converts `data` of type d to the type `to`; returns `data` if the type is the same. */
static const void *converted(struct saver *s, const struct dlb_desc *d, const void *data, enum dlb_dtype to)
{
	const int64_t n = dlb_desc_count(d);
	if (d->dtype == to)
		return data;
	void *v = dlb_arena_array(s->a, n ? (size_t)n : 1, dlb_dtype_bytes(to));
	for (int64_t i = 0; i < n; i++)
		dlb_value_set(v, to, i, dlb_value_real(data, d->dtype, i));
	return v;
}

/* Stores new values in an initializer, in its own type and shape. -1 with err: another number of elements. */
static int replace(struct saver *s, Onnx__TensorProto *t, const struct dlb_desc *d, const void *data)
{
	const int dtype = t->has_data_type ? dlb_dtype_from_onnx(t->data_type) : -1;
	if (dtype < 0 || t->n_dims > DLB_MAX_DIMS ||
	    dlb_checked_count(t->dims, (int)t->n_dims) != dlb_desc_count(d))
		return dlb_refuse(s->err, s->source, "save as .safetensors",
				"initializer '%s' has another shape than the trained weight", t->name);
	set_raw(t, converted(s, d, data, (enum dlb_dtype)dtype),
		(size_t)dlb_desc_count(d) * dlb_dtype_bytes((enum dlb_dtype)dtype));
	return 0;
}

/* Removes output `name` from the vertex that makes it; removes the vertex if it has no other output. */
static bool take_from_vertex(struct saver *s, const char *name)
{
	for (size_t i = 0; i < s->p->n_node; i++) {
		Onnx__NodeProto *v = s->p->node[i];
		size_t others = 0, at = SIZE_MAX;
		for (size_t k = 0; k < v->n_output; k++) {
			if (!strcmp(v->output[k], name))
				at = k;
			else
				others += *v->output[k] != '\0';
		}
		if (at == SIZE_MAX)
			continue;
		if (others) {
			v->output[at] = dlb_arena_printf(s->a, "%s.replaced", name);
		} else {
			memmove(&s->p->node[i], &s->p->node[i + 1],
				(s->p->n_node - i - 1) * sizeof s->p->node[0]);
			s->p->n_node--;
		}
		return true;
	}
	return false;
}

static Onnx__TensorProto *new_initializer(struct saver *s, const char *name, const struct dlb_desc *d,
					  const void *data)
{
	Onnx__TensorProto *t = dlb_arena_alloc(s->a, sizeof *t);
	int64_t *dims = dlb_arena_array(s->a, (size_t)d->n_dims + 1, sizeof *dims);
	/* models are f32, even if trained in f64 */
	const enum dlb_dtype dtype = d->dtype == DLB_F64 ? DLB_F32 : d->dtype;

	onnx__tensor_proto__init(t);
	memcpy(dims, d->dim, (size_t)d->n_dims * sizeof *dims);
	t->name = dlb_arena_strdup(s->a, name);
	t->n_dims = (size_t)d->n_dims;
	t->dims = dims;
	t->has_data_type = 1;
	t->data_type = dlb_dtype_to_onnx(dtype);
	set_raw(t, converted(s, d, data, dtype), (size_t)dlb_desc_count(d) * dlb_dtype_bytes(dtype));
	return t;
}

/* Stores weight i in place `at`. -1 with err if calls of one function share the
 * constant but their weights differ. */
static int put_in_place(struct saver *s, const struct dlb_onnx_place *at, int i)
{
	const struct dlb_named *x = &s->tensor[i];
	const int before = dlb_name_map_add(&s->filled, dlb_arena_printf(s->a, "%p", (void *)at->p), i);

	if (before >= 0 && s->tensor[before].data != x->data) {
		dlb_fail(s->err, s->source,
			 "tensors '%s' and '%s' share one constant of a function, but their trained values "
			 "differ",
			 s->tensor[before].name, at->name);
		return dlb_hint(s->err, "save as .safetensors");
	}
	return replace(s, at->p, &x->desc, x->data);
}

static bool is_saved(const struct saver *s, int n, const char *name)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(s->tensor[i].name, name))
			return true;
	return false;
}

static bool is_apart(const struct saver *s, const char *name)
{
	for (int i = 0; i < s->n_apart; i++)
		if (!strcmp(s->apart[i].name, name))
			return true;
	return false;
}

/* Sets operand 2 of a vertex that has two operands, or an absent third. */
static void add_operand(struct saver *s, Onnx__NodeProto *v, char *name)
{
	char **input = dlb_arena_array(s->a, v->n_input + 2, sizeof *input);

	memcpy(input, v->input, v->n_input * sizeof *input);
	if (v->n_input < 3)
		v->n_input = 3;
	input[2] = name;
	v->input = input;
}

/* For a parameter that the exporter had merged with another: makes its vertex read it by its own name. */
static int rewire(struct saver *s, const struct dlb_unmerged *u)
{
	char *name = dlb_arena_strdup(s->a, u->name);

	for (size_t i = 0; i < s->p->n_node; i++) {
		Onnx__NodeProto *v = s->p->node[i];
		if (!v->name || strcmp(v->name, u->vertex))
			continue;
		if (!*u->of && (v->n_input == 2 || (v->n_input == 3 && !*v->input[2])))
			add_operand(s, v, name);
		for (size_t k = 0; *u->of && k < v->n_input; k++)
			if (!strcmp(v->input[k], u->of) && (!u->operand || k == (size_t)u->operand))
				v->input[k] = name;
		return 0;
	}
	dlb_fail(s->err, s->source, "no vertex '%s' to read the trained weight '%s'", u->vertex, u->name);
	return dlb_hint(s->err, "save as .safetensors");
}

/* Keeps the model's values of a constant that the exporter had merged with a parameter, under its own
 * name. */
static int keep_constant(struct saver *s, const struct dlb_unmerged *u)
{
	for (size_t i = 0; i < s->p->n_initializer; i++) {
		if (strcmp(s->p->initializer[i]->name, u->of))
			continue;
		Onnx__TensorProto *t = dlb_arena_alloc(s->a, sizeof *t);
		*t = *s->p->initializer[i];
		t->name = dlb_arena_strdup(s->a, u->name);
		s->p->initializer[s->p->n_initializer++] = t;
		return rewire(s, u);
	}
	return 0;
}

static int put_weights(struct saver *s, Onnx__ModelProto *m, const struct dlb_onnx_place *place, int n_places,
		       int n)
{
	struct dlb_name_map map = { 0 };
	Onnx__TensorProto **list = dlb_arena_array(s->a,
						   s->p->n_initializer + (size_t)n + (size_t)s->n_apart + 1,
						   sizeof *list);
	int rc = 0;

	for (int i = 0; i < n_places; i++)
		dlb_name_map_add(&map, place[i].name, i);
	if (s->p->n_initializer)
		memcpy(list, s->p->initializer, s->p->n_initializer * sizeof *list);
	s->p->initializer = list;
	for (int i = 0; i < s->n_apart && !rc; i++)
		if (is_saved(s, n, s->apart[i].name))
			rc = rewire(s, &s->apart[i]);
		else if (is_saved(s, n, s->apart[i].of))
			rc = keep_constant(s, &s->apart[i]);
	for (int i = 0; i < n && !rc; i++) {
		const struct dlb_named *x = &s->tensor[i];
		const int at = dlb_name_map_get(&map, x->name);
		if (at >= 0) {
			rc = put_in_place(s, &place[at], i);
		} else if (is_apart(s, x->name) || take_from_vertex(s, x->name)) {
			list[s->p->n_initializer++] = new_initializer(s, x->name, &x->desc, x->data);
			/* before IR version 4 an initializer also had to be an input */
			if (m->ir_version < 4)
				m->ir_version = 4;
		} else {
			dlb_fail(s->err, s->source, "no tensor '%s' to save the trained weight in",
				 x->name);
			rc = dlb_hint(s->err, "save as .safetensors");
		}
	}
	dlb_name_map_release(&map);
	dlb_name_map_release(&s->filled);
	return rc;
}

/* Embeds the data of t if they are in another file. */
static int take_in_external(struct saver *s, Onnx__TensorProto *t)
{
	char what[160];
	struct dlb_desc d;
	void *data;
	if (!t->has_data_location || t->data_location != ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL)
		return 0;
	snprintf(what, sizeof what, "initializer '%.100s'", t->name ? t->name : "");
	const struct dlb_onnx_source source = { s->source, what, s->files, s->a, s->err };
	if (dlb_onnx_tensor(t, &source, &d, &data))
		return -1;
	set_raw(t, data, dlb_desc_bytes(&d));
	return 0;
}

static int take_in_graph(struct saver *s, const Onnx__GraphProto *p);

static int take_in_vertices(struct saver *s, Onnx__NodeProto *const *node, size_t n)
{
	int rc = 0;

	for (size_t i = 0; i < n && !rc; i++)
		for (size_t k = 0; k < node[i]->n_attribute && !rc; k++) {
			const Onnx__AttributeProto *a = node[i]->attribute[k];
			rc = (a->t && take_in_external(s, a->t)) || (a->g && take_in_graph(s, a->g)) ? -1 : 0;
		}
	return rc;
}

/* Embeds the external data of a graph and its bodies. The check of the wire format limits the depth. */
static int take_in_graph(struct saver *s, const Onnx__GraphProto *p)
{
	for (size_t i = 0; i < p->n_initializer; i++)
		if (take_in_external(s, p->initializer[i]))
			return -1;
	return take_in_vertices(s, p->node, p->n_node);
}

static int write_model(const Onnx__ModelProto *m, const char *path, struct dlb_error *err)
{
	const size_t bytes = protobuf_c_message_get_packed_size(&m->base);
	struct dlb_output out;
	if (bytes > MAX_BYTES) {
		dlb_fail(err, path, "the model is larger than the 2 GB that an ONNX file may have");
		return dlb_hint(err, "save as .safetensors");
	}
	if (dlb_output_open(&out, path, err))
		return -1;
	uint8_t *packed = dlb_xmalloc(bytes);
	protobuf_c_message_pack(&m->base, packed);
	fwrite(packed, 1, bytes, out.f);
	free(packed);
	return dlb_output_commit(&out, err);
}

static int save(struct saver *s, Onnx__ModelProto *m, const char *path, int n)
{
	struct dlb_onnx_place *place = NULL;
	struct dlb_graph g;
	int n_places;

	dlb_graph_init(&g);
	int rc = dlb_onnx_places(m, s->source, &g, &place, &n_places, s->err) ||
				 put_weights(s, m, place, n_places, n) || take_in_graph(s, s->p) ?
			 -1 :
			 0;
	for (size_t i = 0; i < m->n_functions && !rc; i++)
		rc = take_in_vertices(s, m->functions[i]->node, m->functions[i]->n_node);
	free(place);
	dlb_graph_release(&g);
	return rc ? rc : write_model(m, path, s->err);
}

int dlb_onnx_save(const char *source, const char *path, const struct dlb_named *tensor, int n,
		  struct dlb_error *err)
{
	return dlb_onnx_save_apart(source, path, tensor, n, NULL, 0, err);
}

int dlb_onnx_save_apart(const char *source, const char *path, const struct dlb_named *tensor, int n,
			const struct dlb_unmerged *apart, int n_apart, struct dlb_error *err)
{
	struct dlb_arena a = { 0 };
	struct dlb_file f;
	int rc = -1;

	if (dlb_file_open(source, &f, err))
		return -1;
	char *full = realpath(source, NULL);
	char *copy = dlb_xstrdup(full ? full : source);
	struct dlb_onnx_files files = { .folder = full ? dirname(copy) : NULL };
	Onnx__ModelProto *m = dlb_onnx_unpack(&onnx__model_proto__descriptor, f.data, f.n, source, &a, err);
	if (m) {
		struct saver s = { .source = source,
				   .files = &files,
				   .a = &a,
				   .p = m->graph,
				   .tensor = tensor,
				   .apart = apart,
				   .n_apart = n_apart,
				   .err = err };
		rc = save(&s, m, path, n);
	}
	dlb_onnx_files_close(&files);
	dlb_file_close(&f);
	dlb_arena_release(&a);
	free(copy);
	free(full);
	return rc;
}
