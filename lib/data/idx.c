/* IDX files, plain or gzip. The header says how many bytes must follow; neither more nor fewer are
 * accepted, and memory grows only with what has really been read, so a short file that promises much
 * costs nothing. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include "data/source.h"
#include "util/mem.h"

void dlb_idx_release(struct dlb_idx *x)
{
	free(x->data);
	memset(x, 0, sizeof *x);
}

static uint32_t big32(const unsigned char *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Reads the header of the n bytes at p: fills dtype and dims, *bytes what must follow it. */
static int header(const unsigned char *p, size_t n, const char *name, struct dlb_idx *x, size_t *head, size_t *bytes,
		  struct dlb_error *err)
{
	static const struct { unsigned char code; enum dlb_dtype dtype; } types[] = {
		{ 0x08, DLB_U8 }, { 0x09, DLB_I8 }, { 0x0b, DLB_I16 }, { 0x0c, DLB_I32 }, { 0x0d, DLB_F32 }, { 0x0e, DLB_F64 },
	};
	int64_t count;
	int i;

	if (n < 4)
		return dlb_fail(err, name, "truncated at byte %zu: an IDX file has a header of at least 4 bytes", n);
	if (p[0] || p[1])
		return dlb_fail(err, name, "byte 0: not an IDX file: it does not begin with two zero bytes");
	for (i = 0; i < DLB_LEN(types) && types[i].code != p[2]; i++)
		;
	if (i == DLB_LEN(types))
		return dlb_fail(err, name, "byte 2: IDX element type 0x%02x is unknown", p[2]);
	x->dtype = types[i].dtype;
	x->n_dims = p[3];
	if (x->n_dims < 1 || x->n_dims > DLB_MAX_DIMS)
		return dlb_fail(err, name, "byte 3: IDX file of %d dimensions; 1 to %d are read", x->n_dims, DLB_MAX_DIMS);
	*head = 4 + 4 * (size_t)x->n_dims;
	if (n < *head)
		return dlb_fail(err, name, "truncated at byte %zu, in the IDX header", n);
	for (i = 0; i < x->n_dims; i++)
		x->dim[i] = big32(p + 4 + 4 * i);
	count = dlb_checked_count(x->dim, x->n_dims);
	if (count < 0 || count > INT64_MAX / 16)
		return dlb_fail(err, name, "IDX dimensions are too large");
	if (count == 0)
		return dlb_fail(err, name, "IDX file without elements");
	*bytes = (size_t)count * dlb_dtype_bytes(x->dtype);
	if ((double)*bytes > (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE))
		return dlb_fail(err, name, "IDX data of %zu bytes do not fit this machine's memory", *bytes);
	return 0;
}

/* All of a gzip file, but no more than its own IDX header allows (and one byte, to tell too long). */
static int gunzip(const unsigned char *p, size_t n, const char *name, unsigned char **out, size_t *out_n, struct dlb_error *err)
{
	enum { HEAD = 4 + 4 * DLB_MAX_DIMS };
	z_stream z = { 0 };
	unsigned char *q = NULL;
	size_t size = 0, cap = 0, limit = HEAD;
	const unsigned char *start = p;
	bool known = false;
	int rc = Z_OK;

	if (inflateInit2(&z, 16 + MAX_WBITS) != Z_OK)
		return dlb_fail(err, name, "zlib does not start");
	while (size < limit) {
		size_t in = n < (1u << 30) ? n : 1u << 30;

		if (size == cap) {
			cap = cap ? 2 * cap : 1 << 12;
			cap = cap < limit ? cap : limit;
			q = dlb_xrealloc(q, cap, 1);
		}
		z.next_in = (unsigned char *)(uintptr_t)p;
		z.avail_in = (unsigned)in;
		z.next_out = q + size;
		z.avail_out = cap - size < (1u << 30) ? (unsigned)(cap - size) : 1u << 30;
		rc = inflate(&z, Z_NO_FLUSH);
		p += in - z.avail_in;
		n -= in - z.avail_in;
		size = (size_t)(z.next_out - q);
		if (rc != Z_OK && rc != Z_STREAM_END)
			break;
		if (!known && (size >= HEAD || rc == Z_STREAM_END)) {
			struct dlb_idx x;
			size_t head, bytes;

			if (header(q, size, name, &x, &head, &bytes, err))
				goto bad;
			known = true;
			limit = head + bytes + 1;
		}
		if (rc == Z_STREAM_END && (n == 0 || inflateReset(&z) != Z_OK))
			break;
	}
	if (rc == Z_DATA_ERROR) {
		dlb_fail(err, name, "damaged gzip data at byte %zu", (size_t)(p - start));
		goto bad;
	}
	inflateEnd(&z);
	*out = q;
	*out_n = size;
	return 0;
bad:
	inflateEnd(&z);
	free(q);
	return -1;
}

/* Swaps the bytes of `count` elements of `size` bytes: IDX is big-endian. */
static void swap(unsigned char *p, size_t count, size_t size)
{
	const uint16_t probe = 1;

	if (size == 1 || *(const unsigned char *)&probe == 0)
		return;
	for (size_t i = 0; i < count; i++, p += size)
		for (size_t j = 0; j < size / 2; j++) {
			unsigned char t = p[j];

			p[j] = p[size - 1 - j];
			p[size - 1 - j] = t;
		}
}

int dlb_idx_parse(const void *data, size_t n, const char *name, struct dlb_idx *x, struct dlb_error *err)
{
	const unsigned char *p = data;
	unsigned char *own = NULL;
	struct dlb_idx y = { 0 };
	size_t head, bytes;
	int rc = -1;

	if (n >= 2 && p[0] == 0x1f && p[1] == 0x8b) {
		if (gunzip(p, n, name, &own, &n, err))
			return -1;
		p = own;
	}
	if (header(p, n, name, &y, &head, &bytes, err))
		goto out;
	if (n - head < bytes) {
		dlb_fail(err, name, "truncated at byte %zu: %zu of %zu bytes of data", n, n - head, bytes);
		goto out;
	}
	if (n - head > bytes) {
		dlb_fail(err, name, "longer than its header says: %zu bytes should end it", head + bytes);
		goto out;
	}
	y.data = dlb_xmalloc(bytes);
	memcpy(y.data, p + head, bytes);
	swap(y.data, bytes / dlb_dtype_bytes(y.dtype), dlb_dtype_bytes(y.dtype));
	*x = y;
	rc = 0;
out:
	free(own);
	return rc;
}

int dlb_idx_read(const char *path, struct dlb_idx *x, struct dlb_error *err)
{
	unsigned char *p;
	size_t n;
	int rc;

	if (dlb_data_file_read(path, &p, &n, err))
		return -1;
	rc = dlb_idx_parse(p, n, path, x, err);
	free(p);
	return rc;
}
