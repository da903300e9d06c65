/* IDX files, plain or gzip. The file must have exactly the bytes that its header announces.
 * Memory is allocated once, and never for more data than a file of this size can hold. Plain files of
 * one-byte elements are not loaded. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include "data/file.h"
#include "data/idx.h"
#include "data/source.h"
#include "util/input.h"
#include "util/mem.h"
#include "util/memory.h"

void dlb_idx_release(struct dlb_idx *x)
{
	free(x->data);
	memset(x, 0, sizeof *x);
}

static uint32_t big32(const unsigned char *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Reads the header from the n bytes at p: sets dtype and dims of x, the header's size
 * and the data's size, in bytes. */
static int header(const unsigned char *p, size_t n, const char *name, struct dlb_idx *x, size_t *head,
		  size_t *bytes, struct dlb_error *err)
{
	static const struct { unsigned char code; enum dlb_dtype dtype;
	} types[] = {
		{ 0x08, DLB_U8 },  { 0x09, DLB_I8 },  { 0x0b, DLB_I16 },
		{ 0x0c, DLB_I32 }, { 0x0d, DLB_F32 }, { 0x0e, DLB_F64 },
	};
	int64_t count;
	int i;

	if (n < 4)
		return dlb_fail(err, name,
				"truncated at byte %zu: an IDX file has a header of at least 4 bytes", n);
	if (p[0] || p[1])
		return dlb_fail(err, name, "byte 0: not an IDX file: it does not begin with two zero bytes");
	for (i = 0; i < DLB_LEN(types) && types[i].code != p[2]; i++)
		;
	if (i == DLB_LEN(types))
		return dlb_fail(err, name, "byte 2: IDX element type 0x%02x is unknown", p[2]);
	x->dtype = types[i].dtype;
	x->n_dims = p[3];
	if (x->n_dims < 1 || x->n_dims > DLB_MAX_DIMS)
		return dlb_fail(err, name, "byte 3: IDX file of %d dimensions; 1 to %d are read", x->n_dims,
				DLB_MAX_DIMS);
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
	return 0;
}

/* Converts `count` elements of `size` bytes from big-endian to the machine's order. */
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

/* Source of an IDX file: memory (p), or an open file read in pieces. */
struct idx_source { const unsigned char *p; size_t n; const struct dlb_data_file *file; };
enum { PIECE = 1 << 16, HEAD = 4 + 4 * DLB_MAX_DIMS, MOST_INFLATED = 1032 /* zlib's limit */ };

static int check_memory(size_t bytes, const char *name, struct dlb_error *err)
{
	if ((double)bytes < dlb_memory_bytes())
		return 0;
	return dlb_fail(err, name, "IDX data of %zu bytes do not fit this machine's memory (%.0f)", bytes,
			dlb_memory_bytes());
}

/* ---- gzip ---- */

struct gzip { const struct idx_source *s; z_stream z; uint64_t at; bool over; unsigned char *piece; };

/* Reads the next piece of input if zlib has consumed the last one and the input has not ended. */
static int refill(struct gzip *g, struct dlb_error *err)
{
	const uint64_t left = g->s->n - g->at;
	const size_t n = left < PIECE ? (size_t)left : PIECE;

	if (g->z.avail_in || !n)
		return 0;
	if (g->s->file && dlb_data_file_get(g->s->file, g->at, g->piece, n, err))
		return -1;
	g->z.next_in = g->s->file ? g->piece : (unsigned char *)(uintptr_t)(g->s->p + g->at);
	g->z.avail_in = (unsigned)n;
	g->at += n;
	return 0;
}

/* Unpacks up to cap bytes into q across gzip members; *size is smaller only at the end of the input. */
static int gunzip(struct gzip *g, const char *name, unsigned char *q, size_t cap, size_t *size,
		  struct dlb_error *err)
{
	for (*size = 0; *size < cap && !g->over;) {
		const unsigned room = cap - *size < (1u << 30) ? (unsigned)(cap - *size) : 1u << 30;
		int rc;

		if (refill(g, err))
			return -1;
		if (!g->z.avail_in)
			break;				/* truncated: check_length reports it */
		g->z.next_out = q + *size;
		g->z.avail_out = room;
		rc = inflate(&g->z, Z_NO_FLUSH);
		*size += room - g->z.avail_out;
		if (rc != Z_OK && rc != Z_STREAM_END)
			return dlb_fail(err, name, "damaged gzip data at byte %llu",
					(unsigned long long)(g->at - g->z.avail_in));
		if (rc == Z_STREAM_END && refill(g, err))
			return -1;
		g->over = rc == Z_STREAM_END && (!g->z.avail_in || inflateReset(&g->z) != Z_OK);
	}
	return 0;
}

static int check_length(size_t n, size_t head, size_t bytes, const char *name, struct dlb_error *err)
{
	if (n < head + bytes)
		return dlb_fail(err, name, "truncated at byte %zu: %zu of %zu bytes of data", n, n - head,
				bytes);
	if (n > head + bytes)
		return dlb_fail(err, name, "longer than its header says: %zu bytes should end it",
				head + bytes);
	return 0;
}

static int read_gzip(struct gzip *g, const char *name, struct dlb_idx *x, struct dlb_error *err)
{
	unsigned char first[HEAD];
	size_t n, head, bytes, rest;

	if (gunzip(g, name, first, HEAD, &n, err) || header(first, n, name, x, &head, &bytes, err))
		return -1;
	if (bytes / MOST_INFLATED > g->s->n)
		return dlb_fail(err, name,
				"its header promises %zu bytes, more than %zu bytes of gzip can hold", bytes,
				g->s->n);
	if (check_memory(bytes, name, err))
		return -1;
	n -= head;
	if (n > bytes)
		return check_length(head + n, head, bytes, name, err);
	unsigned char *data = dlb_xmalloc(bytes + 1), more;
	memcpy(data, first + head, n);
	if (gunzip(g, name, data + n, bytes - n, &rest, err) ||
	    check_length(head + n + rest, head, bytes, name, err) || gunzip(g, name, &more, 1, &rest, err) ||
	    check_length(head + bytes + rest, head, bytes, name, err)) {
		free(data);
		return -1;
	}
	x->data = data;
	return 0;
}

/* Reads type and dimensions, and the data if `all` is set or they must be unpacked or swapped. */
static int read_source(const struct idx_source *s, const char *name, bool all, struct dlb_idx *x,
		       struct dlb_error *err)
{
	unsigned char first[HEAD];
	const size_t n = s->n < HEAD ? s->n : HEAD;
	struct dlb_idx y = { 0 };
	size_t head, bytes;

	if (s->file && dlb_data_file_get(s->file, 0, first, n, err))
		return -1;
	if (!s->file)
		memcpy(first, s->p, n);
	if (n >= 2 && first[0] == 0x1f && first[1] == 0x8b) {
		struct gzip g = { .s = s, .piece = dlb_xmalloc(PIECE) };
		int rc = inflateInit2(&g.z, 16 + MAX_WBITS) == Z_OK ?
				 0 :
				 dlb_fail(err, name, "zlib does not start");

		if (!rc) {
			rc = read_gzip(&g, name, &y, err);
			inflateEnd(&g.z);
		}
		free(g.piece);
		if (rc)
			return -1;
		bytes = (size_t)dlb_checked_count(y.dim, y.n_dims) * dlb_dtype_bytes(y.dtype);
	} else {
		if (header(first, n, name, &y, &head, &bytes, err) ||
		    check_length(s->n, head, bytes, name, err))
			return -1;
		y.at = head;
		if (!all && dlb_dtype_bytes(y.dtype) == 1) {
			*x = y;
			return 0;
		}
		if (check_memory(bytes, name, err))
			return -1;
		y.data = dlb_xmalloc(bytes);
		if (!s->file) {
			memcpy(y.data, s->p + head, bytes);
		} else if (dlb_data_file_get(s->file, head, y.data, bytes, err)) {
			free(y.data);
			return -1;
		}
	}
	swap(y.data, bytes / dlb_dtype_bytes(y.dtype), dlb_dtype_bytes(y.dtype));
	*x = y;
	return 0;
}

int dlb_idx_parse(const void *data, size_t n, const char *name, struct dlb_idx *x, struct dlb_error *err)
{
	return read_source(&(struct idx_source){ .p = data, .n = n }, name, true, x, err);
}

int dlb_idx_open(const char *path, struct dlb_idx *x, struct dlb_data_file *file, struct dlb_error *err)
{
	memset(x, 0, sizeof *x);
	if (dlb_data_file_open(file, path, err))
		return -1;
	if (read_source(&(struct idx_source){ .n = (size_t)file->size, .file = file }, path, false, x, err)) {
		dlb_data_file_close(file);
		return -1;
	}
	if (x->data)
		dlb_data_file_close(file);
	return 0;
}
