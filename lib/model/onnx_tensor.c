/* Reads shape, type and data of a TensorProto: raw, typed and external data. See onnx_proto.h.
 *
 * Raw and external data are little-endian, as the supported machines are. */
#define _XOPEN_SOURCE 700	/* realpath */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "model/file.h"
#include "model/onnx.h"
#include "model/onnx_proto.h"
#include "util/hash.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "raw tensor data are used in place");

#define DAMAGED "the file is damaged: export the model again"
#define TO_FLOAT "export the model in f32 or f16, before it is quantized"

static int cannot_open(const struct dlb_onnx_source *s, const char *location)
{
	dlb_fail(s->err, s->name, "cannot open data of %s in '%s': %s", s->what, location, strerror(errno));
	return dlb_hint(s->err,
			"the exporter writes the weights to a file of their own: keep it beside the model");
}

/* Returns the path of an external file (new), which must be inside the model's folder after
 * resolving links. NULL with err. */
static char *external_path(const struct dlb_onnx_source *s, const char *location)
{
	struct dlb_error *err = s->err;
	char *path = NULL, *real = NULL, *folder = NULL;
	bool up = false;

	for (const char *p = location; *p; p++)
		if (p[0] == '.' && p[1] == '.' && (p == location || p[-1] == '/') && (!p[2] || p[2] == '/'))
			up = true;
	if (!s->files->folder) {
		dlb_fail(err, s->name, "data of %s lie in another file, which only a model on disk can have",
			 s->what);
		dlb_hint(err, "give the model as a file, beside its data");
	} else if (!*location || *location == '/' || up) {
		dlb_fail(err, s->name, "data of %s lie outside the model's folder: '%s'", s->what, location);
		dlb_hint(err, "put the file beside the model, and save the model with its name alone as the "
			      "location");
	} else {
		path = dlb_xprintf("%s/%s", s->files->folder, location);
		folder = realpath(s->files->folder, NULL);
		real = realpath(path, NULL);
		const size_t n = folder ? strlen(folder) : 0;
		if (!folder || !real) {
			cannot_open(s, location);
		} else if (strncmp(real, folder, n) != 0 || (real[n] != '/' && n > 1)) {
			dlb_fail(err, s->name, "data of %s lie outside the model's folder: '%s' leads there",
				 s->what, location);
			dlb_hint(err, "copy the file beside the model in place of the link");
		} else {
			free(path);
			free(folder);
			return real;
		}
	}
	free(path);
	free(real);
	free(folder);
	return NULL;
}

/* Parses a number such as "123"; -1: not a number. */
static int64_t offset_number(const char *s)
{
	char *end;
	errno = 0;
	const long long v = strtoll(s, &end, 10);
	return errno || end == s || *end || v < 0 ? -1 : v;
}

/* Maps the open file fd; `st` describes it. */
static int map_external(const struct dlb_onnx_source *s, int fd, const struct stat *st, const char *path,
			struct dlb_onnx_external *f)
{
	if (!S_ISREG(st->st_mode)) {
		dlb_fail(s->err, s->name, "data of %s: '%s' is not a file", s->what, f->location);
		return dlb_hint(s->err, "put the data file that was exported with the model beside it");
	}
	f->bytes = st->st_size;
	f->data = f->bytes ? dlb_arena_map(s->a, fd, (size_t)f->bytes, path) : "";
	return f->data ? 0 : cannot_open(s, f->location);
}

/* Returns the file at `location`, mapped; NULL with err. */
static const struct dlb_onnx_external *open_external(const struct dlb_onnx_source *s, const char *location)
{
	struct dlb_onnx_files *f = s->files;
	struct dlb_onnx_external new = { 0 };
	struct stat st;
	int rc = -1;

	for (int i = f->n - 1; i >= 0; i--)
		if (!strcmp(f->file[i].location, location))
			return &f->file[i];
	char *path = external_path(s, location);
	if (!path)
		return NULL;
	const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);	/* opening a FIFO must not block */
	new.location = dlb_xstrdup(location);
	if (fd < 0 || fstat(fd, &st) != 0)
		cannot_open(s, location);
	else
		rc = map_external(s, fd, &st, path, &new);
	if (fd >= 0)
		close(fd);
	free(path);
	if (rc) {
		free(new.location);
		return NULL;
	}
	DLB_GROW(f->file, f->n, f->cap);
	f->file[f->n] = new;
	return &f->file[f->n++];
}

void dlb_onnx_files_close(struct dlb_onnx_files *f)
{
	for (int i = 0; i < f->n; i++)
		free(f->file[i].location);
	free(f->file);
	f->file = NULL;
	f->n = f->cap = 0;
}

/* Returns mapped data in place if they are aligned, else a copy. Bools are copied, because their bytes are
 * then changed to 0 and 1. */
static void *place_external(const struct dlb_onnx_source *s, enum dlb_dtype type, const char *from,
			    size_t bytes)
{
	void *copy;

	if (bytes && type != DLB_BOOL && (uintptr_t)from % dlb_dtype_bytes(type) == 0)
		return (void *)(uintptr_t)from;
	copy = dlb_arena_alloc(s->a, bytes ? bytes : 1);
	if (bytes)
		memcpy(copy, from, bytes);
	return copy;
}

static int read_external(const struct dlb_onnx_source *s, const Onnx__TensorProto *p, enum dlb_dtype type,
			 size_t bytes, void **data)
{
	const char *location = "";
	int64_t offset = 0, length = -2;	/* -2: absent */
	for (size_t i = 0; i < p->n_external_data; i++) {
		const char *key = p->external_data[i]->key, *value = p->external_data[i]->value;
		if (!key || !value)
			continue;
		if (!strcmp(key, "location"))
			location = value;
		else if (!strcmp(key, "offset"))
			offset = offset_number(value);
		else if (!strcmp(key, "length"))
			length = offset_number(value);
	}
	if (offset < 0 || length == -1) {
		dlb_fail(s->err, s->name, "bad offset or length of the data of %s", s->what);
		return dlb_hint(s->err, DAMAGED);
	}
	if (length >= 0 && (uint64_t)length != bytes) {
		dlb_fail(s->err, s->name, "data of %s are %" PRId64 " bytes where its shape needs %zu",
			 s->what, length, bytes);
		return dlb_hint(s->err, DAMAGED);
	}
	if (s->files->unread)
		return 0;
	const struct dlb_onnx_external *f = open_external(s, location);
	if (!f)
		return -1;
	if (offset > f->bytes || bytes > (uint64_t)(f->bytes - offset)) {
		dlb_fail(s->err, s->name, "data of %s reach past the end of '%s' (%" PRId64 " bytes)",
			 s->what, location, f->bytes);
		return dlb_hint(s->err, "is the whole file there, and of the same export as the model?");
	}
	*data = place_external(s, type, f->data + offset, bytes);
	if (s->files->sha)
		dlb_sha256_add(s->files->sha, *data, bytes);
	return 0;
}

/* Reads a value of int32_data: all types up to 32 bits; float16 and bfloat16 as bit patterns. */
static bool put_int32(enum dlb_dtype t, int32_t v, void *to, size_t i)
{
	switch (t) {
	case DLB_I32: ((int32_t *)to)[i] = v; return true;
	case DLB_I16: ((int16_t *)to)[i] = (int16_t)v; return v >= INT16_MIN && v <= INT16_MAX;
	case DLB_I8: ((int8_t *)to)[i] = (int8_t)v; return v >= INT8_MIN && v <= INT8_MAX;
	case DLB_U8: ((uint8_t *)to)[i] = (uint8_t)v; return v >= 0 && v <= UINT8_MAX;
	case DLB_BOOL: ((uint8_t *)to)[i] = v != 0; return true;
	default: ((uint16_t *)to)[i] = (uint16_t)v; return v >= 0 && v <= UINT16_MAX;
	}
}

static int read_typed(const struct dlb_onnx_source *s, const Onnx__TensorProto *p, enum dlb_dtype t,
		      size_t count, void **data)
{
	const size_t size = dlb_dtype_bytes(t);
	const void *from = NULL;
	size_t have;
	switch (t) {
	case DLB_F32: from = p->float_data; have = p->n_float_data; break;
	case DLB_F64: from = p->double_data; have = p->n_double_data; break;
	case DLB_I64: from = p->int64_data; have = p->n_int64_data; break;
	case DLB_U64: from = p->uint64_data; have = p->n_uint64_data; break;
	case DLB_U32: have = p->n_uint64_data; break;
	default: have = p->n_int32_data; break;
	}
	if (have != count) {
		dlb_fail(s->err, s->name, "%s holds %zu values where its shape needs %zu", s->what, have,
			 count);
		return dlb_hint(s->err, DAMAGED);
	}
	if (s->files->unread)
		return 0;
	*data = dlb_arena_array(s->a, count ? count : 1, size);
	if (from && count)
		memcpy(*data, from, count * size);
	for (size_t i = 0; !from && i < count; i++) {
		bool fits;
		if (t == DLB_U32) {
			((uint32_t *)*data)[i] = (uint32_t)p->uint64_data[i];
			fits = p->uint64_data[i] <= UINT32_MAX;
		} else {
			fits = put_int32(t, p->int32_data[i], *data, i);
		}
		if (!fits) {
			dlb_fail(s->err, s->name, "value %zu of %s does not fit %s", i, s->what,
				 dlb_dtype_name(t));
			return dlb_hint(s->err, DAMAGED);
		}
	}
	return 0;
}

/* Refuses a type that dlb does not have, by ONNX's number. */
static int unknown_type(const struct dlb_onnx_source *s, int type)
{
	static const struct { int type; const char *name, *cure;
	} known[] = {
		{ 8, "strings", "look the text up before the model: it takes numbers" },
		{ 14, "complex64", "write it with real and imaginary parts" },
		{ 15, "complex128", "write it with real and imaginary parts" },
		{ 17, "f8 (e4m3fn)", TO_FLOAT },
		{ 18, "f8 (e4m3fnuz)", TO_FLOAT },
		{ 19, "f8 (e5m2)", TO_FLOAT },
		{ 20, "f8 (e5m2fnuz)", TO_FLOAT },
		{ 21, "u4", TO_FLOAT },
		{ 22, "i4", TO_FLOAT },
		{ 23, "f4 (e2m1)", TO_FLOAT },
		{ 24, "f8 (e8m0)", TO_FLOAT },
		{ 25, "u2", TO_FLOAT },
		{ 26, "i2", TO_FLOAT },
	};

	for (int i = 0; i < DLB_LEN(known); i++)
		if (known[i].type == type) {
			dlb_fail(s->err, s->name, "%s is of a type dlb does not read: %s (ONNX data type %d)",
				 s->what, known[i].name, type);
			return dlb_hint(s->err, "%s", known[i].cure);
		}
	dlb_fail(s->err, s->name, "%s is of a type dlb does not read (ONNX data type %d)", s->what, type);
	return dlb_hint(s->err, DAMAGED);
}

/* Reads shape and type; *bytes: size of the data. */
static int read_desc(const struct dlb_onnx_source *s, const Onnx__TensorProto *p, struct dlb_desc *d,
		     size_t *bytes)
{
	const int dtype = p->has_data_type ? dlb_dtype_from_onnx(p->data_type) : -1;

	if (dtype < 0)
		return unknown_type(s, p->has_data_type ? (int)p->data_type : 0);
	if (p->segment) {
		dlb_fail(s->err, s->name, "%s is stored in segments, which dlb does not read", s->what);
		return dlb_hint(s->err, "save the model again with onnx.save: it writes tensors whole");
	}
	if (p->n_dims > DLB_MAX_DIMS) {
		dlb_fail(s->err, s->name, "%s has %zu dimensions; at most %d", s->what, p->n_dims,
			 DLB_MAX_DIMS);
		return dlb_hint(s->err, "reshape it in the model");
	}
	*d = (struct dlb_desc){ .dtype = (enum dlb_dtype)dtype, .n_dims = (int)p->n_dims };
	for (int i = 0; i < d->n_dims; i++)
		d->dim[i] = p->dims[i];
	const int64_t count = dlb_checked_count(d->dim, d->n_dims);
	const size_t size = dlb_dtype_bytes(d->dtype);
	if (count < 0 || (uint64_t)count > SIZE_MAX / 2 / size) {
		dlb_fail(s->err, s->name, "shape of %s is negative or too large", s->what);
		return dlb_hint(s->err, DAMAGED);
	}
	*bytes = (size_t)count * size;
	return 0;
}

int dlb_onnx_tensor(const Onnx__TensorProto *p, const struct dlb_onnx_source *s, struct dlb_desc *desc,
		    void **data)
{
	struct dlb_desc d;
	size_t bytes = 0;

	*data = NULL;
	if (read_desc(s, p, &d, &bytes))
		return -1;
	const size_t count = bytes / dlb_dtype_bytes(d.dtype);
	if (p->has_data_location && p->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL) {
		if (read_external(s, p, d.dtype, bytes, data))
			return -1;
	} else if (p->has_raw_data && (p->raw_data.len || !count)) {
		if (p->raw_data.len != bytes) {
			dlb_fail(s->err, s->name, "%s holds %zu bytes where its shape needs %zu", s->what,
				 p->raw_data.len, bytes);
			return dlb_hint(s->err, DAMAGED);
		}
		*data = bytes ? p->raw_data.data : dlb_arena_alloc(s->a, 1);
	} else if (read_typed(s, p, d.dtype, count, data)) {
		return -1;
	}
	if (d.dtype == DLB_BOOL && *data)	/* in ONNX any byte but 0 is true; a C bool must be 1 */
		for (size_t i = 0; i < bytes; i++)
			((uint8_t *)*data)[i] = ((uint8_t *)*data)[i] != 0;
	*desc = d;
	return 0;
}

int dlb_onnx_read_tensor(const char *path, char name[128], struct dlb_desc *desc, void **data,
			 struct dlb_error *err)
{
	struct dlb_onnx_files none = { .n = 0 };
	struct dlb_arena a = { 0 };
	struct dlb_file f;
	void *at = NULL;
	int rc = -1;

	if (dlb_file_open(path, &f, err))
		return -1;
	const Onnx__TensorProto *p = dlb_onnx_unpack(&onnx__tensor_proto__descriptor, f.data, f.n, path, &a,
						     err);
	const struct dlb_onnx_source source = { path, "the tensor", &none, &a, err };
	if (p && dlb_onnx_tensor(p, &source, desc, &at) == 0) {
		const size_t bytes = dlb_desc_bytes(desc);
		snprintf(name, 128, "%s", p->name ? p->name : "");
		*data = dlb_xmalloc(bytes);
		memcpy(*data, at, bytes);
		rc = 0;
	}
	dlb_onnx_files_close(&none);
	dlb_file_close(&f);
	dlb_arena_release(&a);
	return rc;
}
