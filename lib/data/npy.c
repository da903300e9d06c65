/* Parses the header of a .npy file: "\x93NUMPY", version, header length, and a Python dictionary with descr,
 * fortran_order and shape (numpy.lib.format). The elements must follow in C order, little-endian; for any
 * other file the error gives the line of Python that converts it. */
#include <string.h>
#include "data/npy.h"
#include "data/source.h"

enum { MAX_HEADER = 1 << 16 };

/* Parser position. Offsets in messages are relative to the file. */
struct npy_text { const unsigned char *start, *p, *end; const char *name; struct dlb_error *err; };

static int fault(const struct npy_text *t, const char *what)
{
	return dlb_fail(t->err, t->name, "byte %zu: %s", (size_t)(t->p - t->start), what);
}

static void blanks(struct npy_text *t)
{
	while (t->p < t->end && (*t->p == ' ' || *t->p == '\t' || *t->p == '\n' || *t->p == '\r'))
		t->p++;
}

static bool sign(struct npy_text *t, char c)
{
	blanks(t);
	if (t->p == t->end || *t->p != c)
		return false;
	t->p++;
	return true;
}

static bool word(struct npy_text *t, const char *w)
{
	size_t n = strlen(w);

	blanks(t);
	if ((size_t)(t->end - t->p) < n || memcmp(t->p, w, n))
		return false;
	t->p += n;
	return true;
}

/* Reads a quoted string into out. */
static int string(struct npy_text *t, char *out, size_t cap)
{
	unsigned char quote;
	size_t n = 0;

	blanks(t);
	if (t->p == t->end || (*t->p != '\'' && *t->p != '"'))
		return fault(t, "a quoted string is expected");
	for (quote = *t->p++; t->p < t->end && *t->p != quote; t->p++) {
		if (n + 1 == cap || *t->p == '\\' || *t->p < 32)
			return fault(t, "a plain short string is expected");
		out[n++] = (char)*t->p;
	}
	if (t->p == t->end)
		return fault(t, "a string without an end");
	t->p++;
	out[n] = '\0';
	return 0;
}

static int descr(struct npy_text *t, struct dlb_npy *x)
{
	static const struct { const char *name; enum dlb_dtype dtype;
	} types[] = {
		{ "f4", DLB_F32 }, { "f8", DLB_F64 }, { "f2", DLB_F16 }, { "i1", DLB_I8 },
		{ "i2", DLB_I16 }, { "i4", DLB_I32 }, { "i8", DLB_I64 }, { "u1", DLB_U8 },
		{ "u2", DLB_U16 }, { "u4", DLB_U32 }, { "u8", DLB_U64 }, { "b1", DLB_BOOL },
	};
	const unsigned char *at;
	char text[32];

	blanks(t);
	at = t->p;
	if (t->p < t->end && *t->p == '[') {
		fault(t, "the elements are records");
		return dlb_hint(t->err, "save one field: numpy.save(FILE, x['FIELD'])");
	}
	if (string(t, text, sizeof text))
		return -1;
	t->p = at;			/* an error about the type names the type's offset */
	if (strchr(text, 'O') || strchr(text, 'V') || strchr(text, 'U') || strchr(text, 'S')) {
		dlb_fail(t->err, t->name, "byte %zu: elements of type '%s' are not numbers",
			 (size_t)(at - t->start), text);
		return dlb_hint(t->err, "save numbers: numpy.save(FILE, x.astype('float32'))");
	}
	for (int i = 0; i < DLB_LEN(types); i++) {
		if (strcmp(text + (strspn(text, "<>|=") ? 1 : 0), types[i].name))
			continue;
		x->dtype = types[i].dtype;
		if (text[0] == '>' && dlb_dtype_bytes(x->dtype) > 1) {
			dlb_fail(t->err, t->name, "byte %zu: type '%s' is big-endian",
				 (size_t)(at - t->start), text);
			return dlb_hint(t->err, "save it as numpy.save(FILE, x.astype('<%s'))",
					types[i].name);
		}
		return string(t, text, sizeof text);
	}
	dlb_fail(t->err, t->name, "byte %zu: elements of type '%s' are not read", (size_t)(at - t->start),
		 text);
	return dlb_hint(t->err, "f2, f4, f8, i1 to i8, u1 to u8 and b1 are; save it as numpy.save(FILE, "
				"x.astype('float32'))");
}

static int fortran_order(struct npy_text *t)
{
	if (word(t, "False"))
		return 0;
	if (!word(t, "True"))
		return fault(t, "True or False is expected");
	fault(t, "the array lies in Fortran order");
	return dlb_hint(t->err, "save it as numpy.save(FILE, numpy.ascontiguousarray(x))");
}

static int shape(struct npy_text *t, struct dlb_npy *x)
{
	x->n_dims = 0;
	if (!sign(t, '('))
		return fault(t, "a shape in parentheses is expected");
	while (!sign(t, ')')) {
		int64_t v = 0;

		blanks(t);
		if (t->p == t->end || *t->p < '0' || *t->p > '9')
			return fault(t, "a dimension is expected");
		if (x->n_dims == DLB_MAX_DIMS)
			return fault(t, "more dimensions than are read");
		for (; t->p < t->end && *t->p >= '0' && *t->p <= '9'; t->p++) {
			if (v > (INT64_C(1) << 56))
				return fault(t, "the dimension is too large");
			v = 10 * v + (*t->p - '0');
		}
		x->dim[x->n_dims++] = v;
		if (!sign(t, ',')) {
			if (!sign(t, ')'))
				return fault(t, "',' or ')' is expected");
			break;
		}
	}
	return 0;
}

static int dictionary(struct npy_text *t, struct dlb_npy *x)
{
	enum { DESCR = 1, ORDER = 2, SHAPE = 4 };
	int seen = 0;
	char key[32];

	if (!sign(t, '{'))
		return fault(t, "the header is no dictionary");
	while (!sign(t, '}')) {
		int what;

		if (string(t, key, sizeof key))
			return -1;
		what = !strcmp(key, "descr")         ? DESCR :
		       !strcmp(key, "fortran_order") ? ORDER :
		       !strcmp(key, "shape")         ? SHAPE :
						       0;
		if (!what || (seen & what))
			return fault(t, "descr, fortran_order and shape are expected, once each");
		if (!sign(t, ':'))
			return fault(t, "':' is expected");
		if (what == DESCR ? descr(t, x) : what == ORDER ? fortran_order(t) : shape(t, x))
			return -1;
		seen |= what;
		if (!sign(t, ',')) {
			if (!sign(t, '}'))
				return fault(t, "',' or '}' is expected");
			break;
		}
	}
	return seen == (DESCR | ORDER | SHAPE) ? 0 : fault(t, "descr, fortran_order and shape are expected");
}

int dlb_npy_parse(const unsigned char *p, size_t n, uint64_t size, const char *name, struct dlb_npy *x,
		  struct dlb_error *err)
{
	struct npy_text t = { .start = p, .name = name, .err = err };
	size_t length, head;
	int64_t count;
	uint64_t bytes;

	if (n >= 4 && !memcmp(p, "PK\3\4", 4))
		return dlb_hint((dlb_fail(err, name, "byte 0: an .npz archive, not one array"), err),
				"unzip it; its members are .npy files");
	if (n < 10 || memcmp(p, "\x93NUMPY", 6))
		return dlb_fail(err, name, "byte 0: not a .npy file: it does not begin with \\x93NUMPY");
	if (p[6] < 1 || p[6] > 3)
		return dlb_fail(err, name, "byte 6: .npy of version %d; 1 to 3 are read", p[6]);
	head = p[6] == 1 ? 10 : 12;
	if (n < head)
		return dlb_fail(err, name, "truncated at byte %zu, in the .npy header", n);
	length = p[8] | (size_t)p[9] << 8;
	if (head == 12)
		length |= (size_t)p[10] << 16 | (size_t)p[11] << 24;
	if (length > MAX_HEADER)
		return dlb_fail(err, name, "byte 8: a header of %zu bytes is too long", length);
	if (n < head + length)
		return dlb_fail(err, name, "truncated at byte %zu, in the .npy header of %zu", n,
				head + length);
	memset(x, 0, sizeof *x);
	t.p = p + head;
	t.end = t.p + length;
	if (dictionary(&t, x))
		return -1;
	blanks(&t);
	if (t.p < t.end)
		return fault(&t, "something follows the dictionary");
	if (x->n_dims < 1)
		return dlb_fail(err, name, "a single number; an array of samples is expected");
	x->at = head + length;
	count = dlb_checked_count(x->dim, x->n_dims);
	if (count < 0 || count > INT64_MAX / 16)
		return dlb_fail(err, name, "the shape is too large");
	if (count == 0)
		return dlb_fail(err, name, "an array without elements");
	bytes = (uint64_t)count * dlb_dtype_bytes(x->dtype);
	if (size - x->at < bytes)
		return dlb_fail(err, name, "truncated at byte %llu: %llu of %llu bytes of data",
				(unsigned long long)size, (unsigned long long)(size - x->at),
				(unsigned long long)bytes);
	if (size - x->at > bytes)
		return dlb_fail(err, name, "longer than its header says: %llu bytes should end it",
				(unsigned long long)(x->at + bytes));
	return 0;
}
