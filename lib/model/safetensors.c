/* Reads and writes safetensors: see safetensors.h. Format: github.com/huggingface/safetensors, README.
 *
 *     N (8 bytes)  {"__metadata__":{"k":"v"}, "w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}  data
 *
 * Offsets count from the end of the header. As in the reference reader, holes and overlaps are refused: the
 * tensors cover the data exactly. The header is padded with blanks so that the data begin at a multiple of 8,
 * and wide types are written first, so all tensors in files that we write are aligned. */
#include "model/safetensors.h"
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "doc/doc.h"
#include "graph/name_map.h"
#include "model/file.h"
#include "util/hash.h"
#include "util/mem.h"
#include "util/output.h"

#define MAX_HEADER 100000000u		/* as in the reference implementation */

/* Memory of a file that was read: everything but the mapping is in the arena. */
struct own { struct dlb_arena arena; struct dlb_name_map names; struct dlb_file file; };

struct extent { uint64_t begin, end; int tensor; };

static int by_begin(const void *a, const void *b)
{
	const struct extent *x = a, *y = b;
	return x->begin != y->begin ? (x->begin < y->begin ? -1 : 1) : (x->end > y->end) - (x->end < y->end);
}

static int fail(struct dlb_error *err, const char *name, const char *tensor, const char *what)
{
	return dlb_fail(err, name, "tensor '%s': %s", tensor, what);
}

/* Reads one entry of the header and its extent in the data. */
static int read_entry(const char *name, const char *key, const json_t *v, uint64_t data_bytes,
		      struct dlb_st_tensor *t, struct extent *x, struct dlb_error *err)
{
	const json_t *shape = json_object_get(v, "shape"), *offsets = json_object_get(v, "data_offsets");
	const char *type = json_string_value(json_object_get(v, "dtype"));
	const int dtype = type ? dlb_dtype_find(type) : -1;

	if (dtype < 0 || strcmp(type, dlb_dtype_safetensors((enum dlb_dtype)dtype)) != 0)
		return fail(err, name, key, "no dtype that dlb reads");
	if (!json_is_array(shape) || json_array_size(shape) > DLB_MAX_DIMS)
		return fail(err, name, key, "no shape, or too many dimensions");
	t->desc = (struct dlb_desc){ .dtype = (enum dlb_dtype)dtype, .n_dims = (int)json_array_size(shape) };
	for (int i = 0; i < t->desc.n_dims; i++) {
		const json_t *d = json_array_get(shape, (size_t)i);
		if (!json_is_integer(d) || json_integer_value(d) < 0)
			return fail(err, name, key, "a dimension is no natural number");
		t->desc.dim[i] = json_integer_value(d);
	}
	const int64_t count = dlb_checked_count(t->desc.dim, t->desc.n_dims);
	const json_t *b = json_array_get(offsets, 0), *e = json_array_get(offsets, 1);
	if (!json_is_integer(b) || !json_is_integer(e) || json_array_size(offsets) != 2 ||
	    json_integer_value(b) < 0 || json_integer_value(e) < json_integer_value(b))
		return fail(err, name, key, "no data_offsets [begin, end]");
	x->begin = (uint64_t)json_integer_value(b);
	x->end = (uint64_t)json_integer_value(e);
	if (x->end > data_bytes)
		return fail(err, name, key, "data reach past the end of the file");
	const size_t size = dlb_dtype_bytes(t->desc.dtype);
	if (count < 0 || (uint64_t)count > UINT64_MAX / size || (uint64_t)count * size != x->end - x->begin)
		return fail(err, name, key, "data_offsets do not fit its shape");
	return 0;
}

/* Checks that the extents cover [0, data_bytes) without holes or overlaps. */
static int check_cover(const char *name, const struct dlb_safetensors *s, struct extent *x,
		       uint64_t data_bytes, struct dlb_error *err)
{
	uint64_t at = 0;
	qsort(x, (size_t)s->n, sizeof *x, by_begin);
	for (int i = 0; i < s->n; i++) {
		if (x[i].begin != at)
			return fail(err, name, s->tensor[x[i].tensor].name,
				    x[i].begin < at ? "its data overlap another's" :
						      "a hole before its data");
		at = x[i].end;
	}
	if (at != data_bytes)
		return dlb_fail(err, name, "%" PRIu64 " bytes after the last tensor", data_bytes - at);
	return 0;
}

static int place_data(const char *name, struct dlb_safetensors *s, const struct extent *x,
		      const uint8_t *data, struct dlb_error *err)
{
	struct own *own = s->own;
	for (int i = 0; i < s->n; i++) {
		struct dlb_st_tensor *t = &s->tensor[x[i].tensor];
		const uint8_t *from = data + x[i].begin;
		const size_t bytes = (size_t)(x[i].end - x[i].begin);
		t->data = from;
		if ((uintptr_t)from % dlb_dtype_bytes(t->desc.dtype)) {
			t->data = dlb_arena_alloc(&own->arena, bytes + 1);
			memcpy((void *)t->data, from, bytes);
		}
		for (size_t k = 0; t->desc.dtype == DLB_BOOL && k < bytes; k++)
			if (from[k] > 1)
				return fail(err, name, t->name, "a truth value is neither 0 nor 1");
	}
	return 0;
}

static int read_metadata(const char *name, const json_t *m, struct dlb_safetensors *s, struct dlb_error *err)
{
	struct own *own = s->own;
	const char *key;
	json_t *v;
	if (!json_is_object(m))
		return dlb_fail(err, name, "__metadata__ is no object");
	json_object_foreach((json_t *)m, key, v)
		if (!json_is_string(v))
			return dlb_fail(err, name, "__metadata__ '%s' is no text", key);
	char *text = json_dumps(m, JSON_COMPACT);
	s->metadata = dlb_arena_strdup(&own->arena, text ? text : "{}");
	free(text);
	return 0;
}

static int read_header(const char *name, json_t *root, const uint8_t *data, uint64_t data_bytes,
		       struct dlb_safetensors *s, struct dlb_error *err)
{
	struct own *own = s->own;
	struct extent *x = dlb_arena_array(&own->arena, json_object_size(root) + 1, sizeof *x);
	const char *key;
	json_t *v;

	s->tensor = dlb_arena_array(&own->arena, json_object_size(root) + 1, sizeof *s->tensor);
	json_object_foreach(root, key, v) {
		if (!strcmp(key, "__metadata__")) {
			if (read_metadata(name, v, s, err))
				return -1;
			continue;
		}
		struct dlb_st_tensor *t = &s->tensor[s->n];
		if (read_entry(name, key, v, data_bytes, t, &x[s->n], err))
			return -1;
		x[s->n].tensor = s->n;
		t->name = dlb_arena_strdup(&own->arena, key);
		dlb_name_map_add(&own->names, t->name, s->n++);
	}
	return check_cover(name, s, x, data_bytes, err) || place_data(name, s, x, data, err) ? -1 : 0;
}

static int parse(const void *bytes, size_t n, const char *name, struct dlb_safetensors *s,
		 struct dlb_error *err)
{
	const uint8_t *p = bytes;
	json_error_t why;
	uint64_t header = 0;

	*s = (struct dlb_safetensors){ 0 };
	if (n < 8)
		return dlb_fail(err, name, "too short for a safetensors file");
	for (int i = 0; i < 8; i++)
		header |= (uint64_t)p[i] << 8 * i;
	if (header > n - 8 || header > MAX_HEADER)
		return dlb_fail(err, name, "header of %" PRIu64 " bytes in a file of %zu", header, n);
	json_t *root = json_loadb((const char *)p + 8, (size_t)header, JSON_REJECT_DUPLICATES, &why);
	if (!json_is_object(root)) {
		dlb_fail(err, name, root ? "header is no object" : "header: %s", why.text);
		json_decref(root);
		return -1;
	}
	s->own = dlb_xcalloc(1, sizeof(struct own));
	const int rc = read_header(name, root, p + 8 + header, n - 8 - header, s, err);
	json_decref(root);
	if (rc)
		dlb_safetensors_release(s);
	return rc;
}

int dlb_safetensors_parse(const void *bytes, size_t n, const char *name, struct dlb_safetensors *s,
			  struct dlb_error *err)
{
	return parse(bytes, n, name, s, err) ? dlb_hint(err, "is it a safetensors file, and all of it?") : 0;
}

int dlb_safetensors_read(const char *path, struct dlb_safetensors *s, struct dlb_error *err)
{
	struct dlb_file f;
	*s = (struct dlb_safetensors){ 0 };
	if (dlb_file_open(path, &f, err))
		return -1;
	if (dlb_safetensors_parse(f.data, f.n, path, s, err)) {
		dlb_file_close(&f);
		return -1;
	}
	((struct own *)s->own)->file = f;
	s->map = f.data;
	s->map_bytes = f.n;
	return 0;
}

void dlb_safetensors_release(struct dlb_safetensors *s)
{
	struct own *own = s ? s->own : NULL;
	if (own) {
		dlb_file_close(&own->file);
		dlb_name_map_release(&own->names);
		dlb_arena_release(&own->arena);
		free(own);
	}
	if (s)
		*s = (struct dlb_safetensors){ 0 };
}

const struct dlb_st_tensor *dlb_safetensors_find(const struct dlb_safetensors *s, const char *name)
{
	const int i = s->own ? dlb_name_map_get(&((const struct own *)s->own)->names, name) : -1;
	return i < 0 ? NULL : &s->tensor[i];
}

/* -- writing -- */

struct st_row { const struct dlb_st_tensor *t; int i; };

/* Wide types first, else in the given order. */
static int by_width(const void *a, const void *b)
{
	const struct st_row *x = a, *y = b;
	const size_t w = dlb_dtype_bytes(x->t->desc.dtype), v = dlb_dtype_bytes(y->t->desc.dtype);
	return w != v ? (w > v ? -1 : 1) : x->i - y->i;
}

/* Returns the JSON header (new) of the rows in order; NULL with err. */
static char *make_header(const char *path, const struct st_row *row, int n, const char *const *metadata,
			 struct dlb_error *err)
{
	json_t *root = json_object();
	uint64_t at = 0;
	char *text = NULL;

	if (metadata && *metadata) {
		json_t *m = json_object();
		for (int i = 0; metadata[i]; i += 2)
			dlb_set_str(m, metadata[i], metadata[i + 1]);
		json_object_set_new(root, "__metadata__", m);
	}
	for (int i = 0; i < n; i++) {
		const struct dlb_st_tensor *t = row[i].t;
		const uint64_t end = at + dlb_desc_bytes(&t->desc);
		json_t *shape = json_array();
		for (int k = 0; k < t->desc.n_dims; k++)
			json_array_append_new(shape, json_integer(t->desc.dim[k]));
		json_t *entry = json_pack("{s:s, s:o, s:[I,I]}", "dtype",
					  dlb_dtype_safetensors(t->desc.dtype), "shape", shape,
					  "data_offsets", (json_int_t)at, (json_int_t)end);
		at = end;
		const bool twice = json_object_get(root, t->name) != NULL;
		if (json_object_set_new(root, t->name, entry) != 0 || twice) {
			dlb_refuse(err, path, "give the tensors of the model other names",
				   "cannot save tensor '%s': its name is in use or is not UTF-8 text",
				   t->name);
			json_decref(root);
			return NULL;
		}
	}
	text = json_dumps(root, JSON_COMPACT);
	json_decref(root);
	if (!text)
		dlb_refuse(err, path, "give it as UTF-8 text", "a name or metadata is not UTF-8 text");
	return text;
}

static void put(struct dlb_output *out, struct dlb_sha256 *sum, const void *p, size_t n)
{
	fwrite(p, 1, n, out->f);
	if (sum)
		dlb_sha256_add(sum, p, n);
}

/* Returns the rows of t[n] in the order of the file: new. */
static struct st_row *order_rows(const struct dlb_st_tensor *t, int n)
{
	struct st_row *row = dlb_xcalloc((size_t)n + 1, sizeof *row);

	for (int i = 0; i < n; i++)
		row[i] = (struct st_row){ &t[i], i };
	qsort(row, (size_t)n, sizeof *row, by_width);
	return row;
}

/* Returns the bytes of a file before its data, made from the JSON header: new. */
static char *make_head(const char *header, size_t *bytes)
{
	const size_t length = strlen(header), padded = (length + 7) / 8 * 8;
	char *head = dlb_xmalloc(8 + padded);

	for (int i = 0; i < 8; i++)
		head[i] = (char)(unsigned char)(padded >> 8 * i & 0xff);
	memcpy(head + 8, header, length);
	memset(head + 8 + length, ' ', padded - length);
	*bytes = 8 + padded;
	return head;
}

int dlb_safetensors_layout(const char *name, const struct dlb_st_tensor *t, int n, struct dlb_st_layout *l,
			   struct dlb_error *err)
{
	struct st_row *row = order_rows(t, n);
	char *header = make_header(name, row, n, NULL, err);

	*l = (struct dlb_st_layout){ .bytes = 0 };
	if (header) {
		l->head = make_head(header, &l->head_bytes);
		l->offset = dlb_xcalloc((size_t)n + 1, sizeof *l->offset);
		l->bytes = l->head_bytes;
	}
	for (int i = 0; i < n && header; i++) {
		l->offset[row[i].i] = l->bytes;
		l->bytes += dlb_desc_bytes(&row[i].t->desc);
	}
	free(row);
	free(header);
	return l->head ? 0 : -1;
}

void dlb_safetensors_layout_release(struct dlb_st_layout *l)
{
	free(l->head);
	free(l->offset);
	*l = (struct dlb_st_layout){ .bytes = 0 };
}

static int write_rows(const char *path, const struct st_row *row, int n, const char *header,
		      struct dlb_sha256 *sum, struct dlb_error *err)
{
	struct dlb_output out;
	size_t head_bytes;
	char *head;

	if (dlb_output_open(&out, path, err))
		return -1;
	head = make_head(header, &head_bytes);
	put(&out, sum, head, head_bytes);
	free(head);
	for (int i = 0; i < n; i++)
		put(&out, sum, row[i].t->data, dlb_desc_bytes(&row[i].t->desc));
	return dlb_output_commit(&out, err);	/* also checks ferror */
}

static int write_file(const char *path, const struct dlb_st_tensor *t, int n, const char *const *metadata,
		      struct dlb_sha256 *sum, struct dlb_error *err)
{
	struct st_row *row = order_rows(t, n);
	char *header = make_header(path, row, n, metadata, err);
	const int rc = header ? write_rows(path, row, n, header, sum, err) : -1;

	free(header);
	free(row);
	return rc;
}

int dlb_safetensors_write(const char *path, const struct dlb_st_tensor *t, int n, const char *const *metadata,
			  struct dlb_error *err)
{
	return write_file(path, t, n, metadata, NULL, err);
}

int dlb_safetensors_write_summed(const char *path, const struct dlb_st_tensor *t, int n,
				 const char *const *metadata, char sha256[65], struct dlb_error *err)
{
	struct dlb_sha256 *sum = dlb_sha256_new();
	const int rc = write_file(path, t, n, metadata, sum, err);

	dlb_sha256_end(sum, sha256);
	return rc;
}
