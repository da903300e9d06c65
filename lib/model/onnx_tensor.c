/* TensorProto to shape, type and bytes: raw, typed and external data. See onnx_proto.h.
 *
 * Numbers in raw and external data are little-endian, as are the machines this runs on. */
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

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "raw tensor data are used in place");

struct source { const char *name, *folder, *what; struct dlb_arena *a; struct dlb_error *err; };

/* The path of an external file, inside the model's folder whatever links say; new, or NULL with err. */
static char *external_path(const struct source *s, const char *location)
{
	struct dlb_error *err = s->err;
	char *path = NULL, *real = NULL, *folder = NULL;
	bool up = false;

	for (const char *p = location; *p; p++)
		if (p[0] == '.' && p[1] == '.' && (p == location || p[-1] == '/') && (!p[2] || p[2] == '/'))
			up = true;
	if (!s->folder) {
		dlb_fail(err, s->name, "data of %s lie in another file, which only a model on disk can have", s->what);
	} else if (!*location || *location == '/' || up) {
		dlb_fail(err, s->name, "data of %s lie outside the model's folder: '%s'", s->what, location);
	} else {
		path = dlb_xprintf("%s/%s", s->folder, location);
		folder = realpath(s->folder, NULL);
		real = realpath(path, NULL);
		const size_t n = folder ? strlen(folder) : 0;
		if (!folder || !real) {
			dlb_fail(err, s->name, "cannot open data of %s in '%s': %s", s->what, location, strerror(errno));
		} else if (strncmp(real, folder, n) != 0 || (real[n] != '/' && n > 1)) {
			dlb_fail(err, s->name, "data of %s lie outside the model's folder: '%s' leads there", s->what,
				 location);
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

/* "123" to a number; -1 when it is none. */
static int64_t offset_number(const char *s)
{
	char *end;
	errno = 0;
	const long long v = strtoll(s, &end, 10);
	return errno || end == s || *end || v < 0 ? -1 : v;
}

static int read_external(const struct source *s, const Onnx__TensorProto *p, size_t bytes, void **data)
{
	const char *location = "";
	int64_t offset = 0, length = -2;	/* -2: not given */
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
	if (offset < 0 || length == -1)
		return dlb_fail(s->err, s->name, "bad offset or length of the data of %s", s->what);
	if (length >= 0 && (uint64_t)length != bytes)
		return dlb_fail(s->err, s->name, "data of %s are %" PRId64 " bytes where its shape needs %zu", s->what,
				length, bytes);
	char *path = external_path(s, location);
	if (!path)
		return -1;
	struct stat st;
	const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);	/* a FIFO must not hold us up */
	int rc = 0;
	if (fd < 0 || fstat(fd, &st) != 0)
		rc = dlb_fail(s->err, s->name, "cannot open data of %s in '%s': %s", s->what, location, strerror(errno));
	else if (!S_ISREG(st.st_mode))
		rc = dlb_fail(s->err, s->name, "data of %s: '%s' is not a file", s->what, location);
	else if (offset > st.st_size || bytes > (uint64_t)(st.st_size - offset))
		rc = dlb_fail(s->err, s->name, "data of %s reach past the end of '%s' (%lld bytes)", s->what, location,
			      (long long)st.st_size);
	if (!rc) {
		char *to = *data = dlb_arena_alloc(s->a, bytes ? bytes : 1);
		for (size_t done = 0; done < bytes;) {
			const ssize_t got = pread(fd, to + done, bytes - done, (off_t)offset + (off_t)done);
			if (got < 0 && errno == EINTR)
				continue;
			if (got <= 0) {
				rc = dlb_fail(s->err, s->name, "cannot read data of %s in '%s': %s", s->what, location,
					      got < 0 ? strerror(errno) : "file got shorter");
				break;
			}
			done += (size_t)got;
		}
	}
	if (fd >= 0)
		close(fd);
	free(path);
	return rc;
}

/* int32_data holds all the types up to 32 bits, float16 and bfloat16 as their bit patterns. */
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

static int read_typed(const struct source *s, const Onnx__TensorProto *p, enum dlb_dtype t, size_t count, void **data)
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
	if (have != count)
		return dlb_fail(s->err, s->name, "%s holds %zu values where its shape needs %zu", s->what, have, count);
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
		if (!fits)
			return dlb_fail(s->err, s->name, "value %zu of %s does not fit %s", i, s->what, dlb_dtype_name(t));
	}
	return 0;
}

int dlb_onnx_tensor(const Onnx__TensorProto *p, const char *name, const char *folder, const char *what,
		    struct dlb_arena *a, struct dlb_desc *desc, void **data, struct dlb_error *err)
{
	const struct source s = { name, folder, what, a, err };
	struct dlb_desc d = { .n_dims = (int)p->n_dims };
	const int dtype = p->has_data_type ? dlb_dtype_from_onnx(p->data_type) : -1;

	if (dtype < 0)
		return dlb_fail(err, name, "%s is of a type dlb does not read (ONNX data type %d)", what,
				p->has_data_type ? (int)p->data_type : 0);
	if (p->segment)
		return dlb_fail(err, name, "%s is stored in segments, which dlb does not read", what);
	if (p->n_dims > DLB_MAX_DIMS)
		return dlb_fail(err, name, "%s has %zu dimensions; at most %d", what, p->n_dims, DLB_MAX_DIMS);
	d.dtype = (enum dlb_dtype)dtype;
	for (int i = 0; i < d.n_dims; i++)
		d.dim[i] = p->dims[i];
	const int64_t count = dlb_checked_count(d.dim, d.n_dims);
	if (count < 0)
		return dlb_fail(err, name, "shape of %s is negative or too large", what);
	const size_t size = dlb_dtype_bytes(d.dtype);
	if ((uint64_t)count > SIZE_MAX / 2 / size)
		return dlb_fail(err, name, "%s is too large", what);
	const size_t bytes = (size_t)count * size;

	if (p->has_data_location && p->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL) {
		if (read_external(&s, p, bytes, data))
			return -1;
	} else if (p->has_raw_data && (p->raw_data.len || !count)) {
		if (p->raw_data.len != bytes)
			return dlb_fail(err, name, "%s holds %zu bytes where its shape needs %zu", what, p->raw_data.len,
					bytes);
		*data = bytes ? p->raw_data.data : dlb_arena_alloc(a, 1);
	} else if (read_typed(&s, p, d.dtype, (size_t)count, data)) {
		return -1;
	}
	if (d.dtype == DLB_BOOL)	/* any byte but 0 is true; as a C bool it must be 1 */
		for (size_t i = 0; i < bytes; i++)
			((uint8_t *)*data)[i] = ((uint8_t *)*data)[i] != 0;
	*desc = d;
	return 0;
}

int dlb_onnx_read_tensor(const char *path, char name[128], struct dlb_desc *desc, void **data, struct dlb_error *err)
{
	struct dlb_arena a = { 0 };
	struct dlb_file f;
	void *at = NULL;
	int rc = -1;

	if (dlb_file_open(path, &f, err))
		return -1;
	const Onnx__TensorProto *p = dlb_onnx_unpack(&onnx__tensor_proto__descriptor, f.data, f.n, path, &a, err);
	if (p && dlb_onnx_tensor(p, path, NULL, "the tensor", &a, desc, &at, err) == 0) {
		const size_t bytes = dlb_desc_bytes(desc);
		snprintf(name, 128, "%s", p->name ? p->name : "");
		*data = dlb_xmalloc(bytes);
		memcpy(*data, at, bytes);
		rc = 0;
	}
	dlb_file_close(&f);
	dlb_arena_release(&a);
	return rc;
}
