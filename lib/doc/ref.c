/* References into a document: a value, and its JSON Pointer (RFC 6901), which is built
 * only for a message. See doc.h. */
#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doc/doc.h"
#include "util/mem.h"

struct dlb_ref dlb_ref_root(const struct dlb_doc *d, const char *section)
{
	return (struct dlb_ref){ .v = section ? json_object_get(d->root, section) : d->root, .key = section,
				 .index = -1, .doc = d->name, .newer = dlb_doc_is_newer(d) };
}

struct dlb_ref dlb_ref_at(const struct dlb_ref *up, const char *key)
{
	return (struct dlb_ref){ .v = json_object_get(up->v, key), .up = up, .key = key, .index = -1,
				 .doc = up->doc, .newer = up->newer };
}

struct dlb_ref dlb_ref_index(const struct dlb_ref *up, int i)
{
	return (struct dlb_ref){ .v = i < 0 ? NULL : json_array_get(up->v, (size_t)i), .up = up, .index = i,
				 .doc = up->doc, .newer = up->newer };
}

static size_t append(char *buf, size_t n, size_t at, const char *s)
{
	for (; *s && at + 1 < n; s++)
		buf[at++] = *s;
	return at;
}

static size_t pointer(const struct dlb_ref *r, char *buf, size_t n)
{
	size_t at = r->up ? pointer(r->up, buf, n) : 0;
	char number[16];

	if (!r->key && r->index < 0)
		return at;		/* the root of the document */
	at = append(buf, n, at, "/");
	if (!r->key) {
		snprintf(number, sizeof number, "%d", r->index);
		return append(buf, n, at, number);
	}
	for (const char *c = r->key; *c; c++) {
		char one[2] = { *c };

		at = append(buf, n, at, *c == '~' ? "~0" : *c == '/' ? "~1" : one);
	}
	return at;
}

void dlb_ref_pointer(const struct dlb_ref *r, char *buf, size_t n)
{
	if (n)
		buf[pointer(r, buf, n)] = 0;
}

int dlb_ref_fail(const struct dlb_ref *r, struct dlb_error *err, const char *fmt, ...)
{
	char where[256], what[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof what, fmt, ap);
	va_end(ap);
	dlb_ref_pointer(r, where, sizeof where);
	dlb_fail(err, where, "%s", what);
	return dlb_error_at(err, r->doc ? r->doc : "document");
}

/* ---- values ---- */

static const char *type_of(const json_t *v)
{
	static const char *const names[] = { [JSON_OBJECT] = "an object",
					     [JSON_ARRAY] = "an array",
					     [JSON_STRING] = "a string",
					     [JSON_INTEGER] = "an integer",
					     [JSON_REAL] = "a number with a fraction",
					     [JSON_TRUE] = "true",
					     [JSON_FALSE] = "false",
					     [JSON_NULL] = "null" };

	return v ? names[json_typeof(v)] : "nothing";
}

static int wrong_type(const struct dlb_ref *r, const char *wanted, struct dlb_error *err)
{
	return dlb_ref_fail(r, err, "expected %s, found %s", wanted, type_of(r->v));
}

int dlb_ref_int(const struct dlb_ref *r, int64_t min, int64_t max, int64_t *out, struct dlb_error *err)
{
	double x = json_real_value(r->v);
	int64_t i;

	if (json_is_integer(r->v))
		i = json_integer_value(r->v);
	else if (json_is_real(r->v) && x == floor(x) && fabs(x) < 0x1p63)
		i = (int64_t)x;		/* some printers write 3 as 3.0 */
	else
		return wrong_type(r, "an integer", err);
	if (i < min)
		return dlb_ref_fail(r, err, "%lld is below %lld", (long long)i, (long long)min);
	if (i > max)
		return dlb_ref_fail(r, err, "%lld is above %lld", (long long)i, (long long)max);
	*out = i;
	return 0;
}

/* Prints x with the fewest digits that read back as x: 1e-09, not 1.0000000000000001e-09. */
static const char *digits_of(double x, char text[32])
{
	for (int n = DBL_DIG; n <= DBL_DECIMAL_DIG; n++) {
		snprintf(text, 32, "%.*g", n, x);
		if (strtod(text, NULL) == x)
			break;
	}
	return text;
}

static int out_of_range(const struct dlb_ref *r, double x, const char *how, double bound,
			struct dlb_error *err)
{
	char is[32], should[32];

	return dlb_ref_fail(r, err, "%s is %s %s", digits_of(x, is), how, digits_of(bound, should));
}

int dlb_ref_real(const struct dlb_ref *r, double min, double max, double *out, struct dlb_error *err)
{
	double x;

	if (!json_is_number(r->v))
		return wrong_type(r, "a number", err);
	x = json_number_value(r->v);
	if (!(x >= min))
		return out_of_range(r, x, "below", min, err);
	if (!(x <= max))
		return out_of_range(r, x, "above", max, err);
	*out = x;
	return 0;
}

/* ---- members ---- */

/* Returns 1: r has the member, in *m; 0: it is absent and optional; -1 with err. */
static int member(const struct dlb_ref *r, const char *key, int opt, struct dlb_ref *m, struct dlb_error *err)
{
	*m = dlb_ref_at(r, key);
	if (!json_is_object(r->v))
		return wrong_type(r, "an object", err);
	if (m->v)
		return 1;
	return opt == DLB_OPT ? 0 : dlb_ref_fail(r, err, "no member '%s'", key);
}

int dlb_get_int(const struct dlb_ref *r, const char *key, int opt, int64_t min, int64_t max, int64_t *out,
		struct dlb_error *err)
{
	struct dlb_ref m;
	int has = member(r, key, opt, &m, err);

	return has > 0 ? dlb_ref_int(&m, min, max, out, err) : has;
}

int dlb_get_real(const struct dlb_ref *r, const char *key, int opt, double min, double max, double *out,
		 struct dlb_error *err)
{
	struct dlb_ref m;
	int has = member(r, key, opt, &m, err);

	return has > 0 ? dlb_ref_real(&m, min, max, out, err) : has;
}

int dlb_get_bool(const struct dlb_ref *r, const char *key, int opt, bool *out, struct dlb_error *err)
{
	struct dlb_ref m;
	int has = member(r, key, opt, &m, err);

	if (has <= 0)
		return has;
	if (!json_is_boolean(m.v))
		return wrong_type(&m, "true or false", err);
	*out = json_is_true(m.v);
	return 0;
}

int dlb_get_str(const struct dlb_ref *r, const char *key, int opt, const char **out, struct dlb_error *err)
{
	struct dlb_ref m;
	int has = member(r, key, opt, &m, err);

	if (has <= 0)
		return has;
	if (!json_is_string(m.v))
		return wrong_type(&m, "a string", err);
	*out = json_string_value(m.v);
	return 0;
}

int dlb_get_name(const struct dlb_ref *r, const char *key, int opt, const char *const *names, int n, int *out,
		 struct dlb_error *err)
{
	const char *s = NULL;

	if (dlb_get_str(r, key, opt, &s, err))
		return -1;
	if (!s)
		return 0;
	for (int i = 0; i < n; i++)
		if (!strcmp(names[i], s)) {
			*out = i;
			return 0;
		}
	const struct dlb_ref at = dlb_ref_at(r, key);
	dlb_ref_fail(&at, err, "no %s '%s'", key, s);
	return dlb_hint_nearest(err, s, names, n, NULL);
}

int dlb_get_array(const struct dlb_ref *r, const char *key, int opt, struct dlb_ref *out, int *n,
		  struct dlb_error *err)
{
	struct dlb_ref m;
	int has = member(r, key, opt, &m, err);

	if (has < 0)
		return -1;
	if (!has) {
		*out = m;
		*n = 0;
		return 0;
	}
	if (!json_is_array(m.v))
		return wrong_type(&m, "an array", err);
	if (json_array_size(m.v) > INT32_MAX / 2)
		return dlb_ref_fail(&m, err, "%zu elements are too many", json_array_size(m.v));
	*out = m;
	*n = (int)json_array_size(m.v);
	return 0;
}

int dlb_get_object(const struct dlb_ref *r, const char *key, int opt, struct dlb_ref *out,
		   struct dlb_error *err)
{
	struct dlb_ref m;
	int has = member(r, key, opt, &m, err);

	if (has < 0)
		return -1;
	if (has && !json_is_object(m.v))
		return wrong_type(&m, "an object", err);
	*out = m;
	return 0;
}

int dlb_ref_known(const struct dlb_ref *r, const char *const *known, struct dlb_error *err)
{
	const char *key;
	json_t *v;
	/* next: where the search begins, because members are usually in the order of `known` */
	int n = 0, next = 0;

	if (!json_is_object(r->v))
		return wrong_type(r, "an object", err);
	if (r->newer)
		return 0;
	while (known[n])
		n++;
	json_object_foreach(r->v, key, v) {
		int i = 0;

		while (i < n && strcmp(known[(next + i) % n], key))
			i++;
		if (i < n)
			next = (next + i + 1) % n;
		if (i < n || !strncmp(key, "x-", 2))
			continue;
		dlb_ref_fail(r, err, "unknown member '%s'", key);
		return dlb_hint_nearest(err, key, known, n, "members of your own begin with 'x-'");
	}
	return 0;
}
