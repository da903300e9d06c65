/* A trained model back as ONNX: see onnx.h. The model it came from is unpacked, its initializers get their
 * new values, and the whole is packed again; so everything else stays as it was.
 *
 * A weight that was no initializer but came out of a vertex (a ConstantOfShape, a Constant, anything that
 * folding made a constant of) becomes an initializer, and that vertex goes. External data are taken in: the
 * new file stands alone. */
#define _XOPEN_SOURCE 700	/* realpath */
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include "graph/name_map.h"
#include "model/file.h"
#include "model/onnx.h"
#include "model/onnx_proto.h"

#define MAX_BYTES INT32_MAX	/* protobuf's own limit */

struct saver {
	const char *source, *folder;
	struct dlb_arena *a;
	Onnx__GraphProto *p;
	struct dlb_error *err;
};

static void clear_data(Onnx__TensorProto *t)
{
	t->has_raw_data = 0;
	t->n_float_data = t->n_double_data = t->n_int32_data = t->n_int64_data = t->n_uint64_data = t->n_string_data = 0;
	t->n_external_data = 0;
	t->has_data_location = 0;
}

static void set_raw(Onnx__TensorProto *t, const void *data, size_t bytes)
{
	clear_data(t);
	t->has_raw_data = 1;
	t->raw_data = (ProtobufCBinaryData){ bytes, (uint8_t *)data };
}

/* `data` of type d as the type `to`; the same when it is that already. */
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

/* Initializers keep their own type and shape; the new values must be as many. */
static int replace(struct saver *s, Onnx__TensorProto *t, const struct dlb_desc *d, const void *data)
{
	const int dtype = t->has_data_type ? dlb_dtype_from_onnx(t->data_type) : -1;
	if (dtype < 0 || t->n_dims > DLB_MAX_DIMS || dlb_checked_count(t->dims, (int)t->n_dims) != dlb_desc_count(d))
		return dlb_fail(s->err, s->source, "initializer '%s' has another shape than the trained weight", t->name);
	set_raw(t, converted(s, d, data, (enum dlb_dtype)dtype),
		(size_t)dlb_desc_count(d) * dlb_dtype_bytes((enum dlb_dtype)dtype));
	return 0;
}

/* Takes `name` from the vertex that makes it: the vertex goes when it makes nothing else. */
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
			memmove(&s->p->node[i], &s->p->node[i + 1], (s->p->n_node - i - 1) * sizeof s->p->node[0]);
			s->p->n_node--;
		}
		return true;
	}
	return false;
}

/* The initializer of that name in a graph inside a vertex (a branch, a loop's body), or NULL. Depth is bounded by the
 * check of the wire format. */
static Onnx__TensorProto *find_inside(const Onnx__GraphProto *p, const char *name)
{
	Onnx__TensorProto *found = NULL;

	for (size_t i = 0; i < p->n_node && !found; i++)
		for (size_t k = 0; k < p->node[i]->n_attribute && !found; k++) {
			const Onnx__GraphProto *body = p->node[i]->attribute[k]->g;
			for (size_t t = 0; body && t < body->n_initializer && !found; t++)
				if (body->initializer[t]->name && !strcmp(body->initializer[t]->name, name))
					found = body->initializer[t];
			if (body && !found)
				found = find_inside(body, name);
		}
	return found;
}

static Onnx__TensorProto *new_initializer(struct saver *s, const char *name, const struct dlb_desc *d, const void *data)
{
	Onnx__TensorProto *t = dlb_arena_alloc(s->a, sizeof *t);
	int64_t *dims = dlb_arena_array(s->a, (size_t)d->n_dims + 1, sizeof *dims);
	/* trained in f64 or not, models are f32 */
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

static int put_weights(struct saver *s, Onnx__ModelProto *m, const char *const *names, const void *const *data,
		       const struct dlb_desc *desc, int n)
{
	struct dlb_name_map map = { 0 };
	Onnx__TensorProto **list = dlb_arena_array(s->a, s->p->n_initializer + (size_t)n + 1, sizeof *list);
	int rc = 0;

	for (size_t i = 0; i < s->p->n_initializer; i++) {
		list[i] = s->p->initializer[i];
		dlb_name_map_add(&map, list[i]->name ? list[i]->name : "", (int)i);
	}
	s->p->initializer = list;
	for (int i = 0; i < n && !rc; i++) {
		const int at = dlb_name_map_get(&map, names[i]);
		Onnx__TensorProto *inside = at < 0 ? find_inside(s->p, names[i]) : NULL;
		if (at >= 0 || inside) {
			rc = replace(s, inside ? inside : list[at], &desc[i], data[i]);
		} else if (take_from_vertex(s, names[i])) {
			list[s->p->n_initializer++] = new_initializer(s, names[i], &desc[i], data[i]);
			if (m->ir_version < 4)	/* before 4 an initializer had to be an input too */
				m->ir_version = 4;
		} else {
			rc = dlb_fail(s->err, s->source, "no tensor '%s' to save the trained weight in", names[i]);
		}
	}
	dlb_name_map_release(&map);
	return rc;
}

/* What is still in other files is read, so that the new file stands alone. */
static int take_in_external(struct saver *s, Onnx__TensorProto *t)
{
	char what[160];
	struct dlb_desc d;
	void *data;
	if (!t->has_data_location || t->data_location != ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL)
		return 0;
	snprintf(what, sizeof what, "initializer '%.100s'", t->name ? t->name : "");
	if (dlb_onnx_tensor(t, s->source, s->folder, what, s->a, &d, &data, s->err))
		return -1;
	set_raw(t, data, dlb_desc_bytes(&d));
	return 0;
}

static int write_model(const Onnx__ModelProto *m, const char *path, struct dlb_error *err)
{
	const size_t bytes = protobuf_c_message_get_packed_size(&m->base);
	struct dlb_aside out;
	if (bytes > MAX_BYTES) {
		dlb_fail(err, path, "the model is larger than the 2 GB that an ONNX file may have");
		return dlb_hint(err, "save as .safetensors");
	}
	if (dlb_aside_open(&out, path, err))
		return -1;
	uint8_t *packed = dlb_xmalloc(bytes);
	protobuf_c_message_pack(&m->base, packed);
	fwrite(packed, 1, bytes, out.f);
	free(packed);
	return dlb_aside_commit(&out, err);
}

int dlb_onnx_save(const char *source, const char *path, const char *const *names, const void *const *data,
		  const struct dlb_desc *desc, int n, struct dlb_error *err)
{
	struct dlb_arena a = { 0 };
	struct dlb_file f;
	int rc = -1;

	if (dlb_file_open(source, &f, err))
		return -1;
	char *full = realpath(source, NULL);
	char *copy = dlb_xstrdup(full ? full : source);
	Onnx__ModelProto *m = dlb_onnx_unpack(&onnx__model_proto__descriptor, f.data, f.n, source, &a, err);
	if (m && !m->graph) {
		dlb_fail(err, source, "no graph in it");
	} else if (m) {
		struct saver s = { source, full ? dirname(copy) : NULL, &a, m->graph, err };
		rc = put_weights(&s, m, names, data, desc, n);
		for (size_t i = 0; i < s.p->n_initializer && !rc; i++)
			rc = take_in_external(&s, s.p->initializer[i]);
		if (!rc)
			rc = write_model(m, path, err);
	}
	dlb_file_close(&f);
	dlb_arena_release(&a);
	free(copy);
	free(full);
	return rc;
}
