/* Dimensions, values and attributes between JSON and C: see value_json.h. */
#include "graph/member_json.h"
#include "graph/value_json.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EXACT (INT64_C(1) << 53)	/* up to here readers that store numbers as doubles keep integers exact */

/* -- dimensions -- */

json_t *dlb_dim_write(struct dlb_dim d)
{
	char mul[32] = "", text[80];
	if (!d.mul)
		return json_integer(d.add);
	if (d.mul != 1)
		snprintf(mul, sizeof mul, "%" PRId64 "*", d.mul);
	if (d.add)
		snprintf(text, sizeof text, "%sN%+" PRId64, mul, d.add);
	else
		snprintf(text, sizeof text, "%sN", mul);
	return json_string(text);
}

/* Parses a decimal number at *p and moves *p after it. */
static bool take_int(const char **p, int64_t *v)
{
	char *end;
	if (!strchr("+-0123456789", **p) || !**p)
		return false;
	errno = 0;
	*v = strtoll(*p, &end, 10);
	if (errno || end == *p)
		return false;
	*p = end;
	return true;
}

int dlb_dim_read(const struct dlb_ref *r, struct dlb_dim *d, struct dlb_error *err)
{
	const char *text = json_string_value(r->v), *p = text;
	*d = (struct dlb_dim){ 0 };
	if (!text)
		return dlb_ref_int(r, 0, INT64_MAX, &d->add, err);
	d->mul = 1;
	bool good = *p == 'N' || (take_int(&p, &d->mul) && *p++ == '*');
	good = good && *p++ == 'N';
	if (good && *p)
		good = (*p == '+' || *p == '-') && take_int(&p, &d->add) && !*p;
	if (!good) {
		dlb_ref_fail(r, err, "'%.40s' is no dimension", text);
		return dlb_hint(err, "a number, or N as in \"64*N+1\"");
	}
	return 0;
}

/* -- numbers and values -- */

json_t *dlb_real_write(double v)
{
	return isfinite(v) ? json_real(v) : json_string(isnan(v) ? "nan" : v > 0 ? "inf" : "-inf");
}

/* Reads "nan", "inf" or "-inf"; false: another text. */
static bool odd_real(const char *s, double *v)
{
	if (!s)
		return false;
	if (!strcmp(s, "nan"))
		*v = NAN;
	else if (!strcmp(s, "inf") || !strcmp(s, "-inf"))
		*v = *s == '-' ? -INFINITY : INFINITY;
	else
		return false;
	return true;
}

int dlb_real_read(const struct dlb_ref *r, double *v, struct dlb_error *err)
{
	return odd_real(json_string_value(r->v), v) ? 0 : dlb_ref_real(r, -HUGE_VAL, HUGE_VAL, v, err);
}

static json_t *int_write(int64_t v)
{
	char text[32];
	if (v >= -EXACT && v <= EXACT)
		return json_integer(v);
	snprintf(text, sizeof text, "%" PRId64, v);
	return json_string(text);
}

static int int_read(const struct dlb_ref *r, int64_t min, int64_t max, int64_t *v, struct dlb_error *err)
{
	const char *text = json_string_value(r->v);
	if (!text)
		return dlb_ref_int(r, min, max, v, err);
	if (!take_int(&text, v) || *text)
		return dlb_ref_fail(r, err, "no integer");
	if (*v < min || *v > max)
		return dlb_ref_fail(r, err, "%" PRId64 " is out of range", *v);
	return 0;
}

/* Range of an integer type; u64 is read separately. */
static int64_t int_min(enum dlb_dtype t)
{
	return t == DLB_I8  ? INT8_MIN :
	       t == DLB_I16 ? INT16_MIN :
	       t == DLB_I32 ? INT32_MIN :
	       t == DLB_I64 ? INT64_MIN :
			      0;
}

static int64_t int_max(enum dlb_dtype t)
{
	switch (t) {
	case DLB_I8: return INT8_MAX;
	case DLB_I16: return INT16_MAX;
	case DLB_I32: return INT32_MAX;
	case DLB_U8: return UINT8_MAX;
	case DLB_U16: return UINT16_MAX;
	case DLB_U32: return UINT32_MAX;
	default: return INT64_MAX;
	}
}

static json_t *u64_write(uint64_t v)
{
	char text[32];
	if (v <= (uint64_t)EXACT)
		return json_integer((json_int_t)v);
	snprintf(text, sizeof text, "%" PRIu64, v);
	return json_string(text);
}

static int u64_read(const struct dlb_ref *r, uint64_t *v, struct dlb_error *err)
{
	const char *text = json_string_value(r->v);
	int64_t i;
	char *end;
	if (!text) {
		if (dlb_ref_int(r, 0, INT64_MAX, &i, err))
			return -1;
		*v = (uint64_t)i;
		return 0;
	}
	errno = 0;
	*v = strtoull(text, &end, 10);
	if (errno || end == text || *end || *text == '-')
		return dlb_ref_fail(r, err, "no unsigned integer");
	return 0;
}

json_t *dlb_values_write(const void *data, enum dlb_dtype t, int64_t count)
{
	json_t *a = json_array();
	for (int64_t i = 0; i < count; i++)
		json_array_append_new(a, dlb_dtype_is_float(t) ? dlb_real_write(dlb_value_real(data, t, i)) :
				      t == DLB_BOOL ? json_boolean(dlb_value_int(data, t, i)) :
				      t == DLB_U64 ? u64_write(((const uint64_t *)data)[i]) :
				      int_write(dlb_value_int(data, t, i)));
	return a;
}

static void int_set(void *data, enum dlb_dtype t, int64_t i, int64_t v)
{
	if (t == DLB_I64)
		((int64_t *)data)[i] = v;
	else
		dlb_value_set(data, t, i, (double)v);	/* exact for 32 bits and fewer */
}

int dlb_values_read(const struct dlb_ref *r, enum dlb_dtype t, int64_t count, struct dlb_arena *a,
		    void **data, struct dlb_error *err)
{
	if (!json_is_array(r->v))
		return dlb_ref_fail(r, err, "expected an array of values");
	if ((uint64_t)json_array_size(r->v) != (uint64_t)count)
		return dlb_ref_fail(r, err, "%zu values where the shape needs %" PRId64,
				    json_array_size(r->v), count);
	*data = dlb_arena_array(a, count ? (size_t)count : 1, dlb_dtype_bytes(t));
	for (int64_t i = 0; i < count; i++) {
		const struct dlb_ref e = dlb_ref_index(r, (int)i);
		double v;
		int64_t k;
		if (dlb_dtype_is_float(t)) {
			if (dlb_real_read(&e, &v, err))
				return -1;
			/* like dlb_value_set; a fast path, since f32 lists can be long */
			if (t == DLB_F32)
				((float *)*data)[i] = (float)v;
			else
				dlb_value_set(*data, t, i, v);
		} else if (t == DLB_U64) {
			if (u64_read(&e, &((uint64_t *)*data)[i], err))
				return -1;
		} else if (t == DLB_BOOL) {
			if (json_is_boolean(e.v))
				k = json_is_true(e.v);
			else if (dlb_ref_int(&e, 0, 1, &k, err))
				return -1;
			dlb_value_set(*data, t, i, (double)k);
		} else {
			if (int_read(&e, int_min(t), int_max(t), &k, err))
				return -1;
			int_set(*data, t, i, k);
		}
	}
	return 0;
}

/* -- attributes -- */

static json_t *attr_write(const struct dlb_attr *a)
{
	json_t *list, *shape;
	switch (a->type) {
	case DLB_ATTR_INT:
		list = int_write(a->i);
		return json_is_integer(list) ? list : json_pack("{s:o}", "int", list);
	case DLB_ATTR_REAL:
		list = dlb_real_write(a->f);
		return json_is_real(list) ? list : json_pack("{s:o}", "real", list);
	case DLB_ATTR_STR:
		return json_string(a->s);
	case DLB_ATTR_INTS:
		list = json_array();
		for (int i = 0; i < a->n; i++)
			json_array_append_new(list, int_write(a->ints[i]));
		return list;
	case DLB_ATTR_REALS:
		list = json_array();
		for (int i = 0; i < a->n; i++)
			json_array_append_new(list, dlb_real_write(a->reals[i]));
		return list;
	case DLB_ATTR_TENSOR:
		shape = json_array();
		for (int i = 0; i < a->desc.n_dims; i++)
			json_array_append_new(shape, json_integer(a->desc.dim[i]));
		return json_pack("{s:s, s:o, s:o}", "dtype", dlb_dtype_name(a->desc.dtype), "shape", shape,
				 "value", dlb_values_write(a->data, a->desc.dtype, dlb_desc_count(&a->desc)));
	}
	dlb_bug("attribute '%s' has no type", a->name);
}

json_t *dlb_attrs_write(const struct dlb_attr *attr, int n)
{
	json_t *o = json_object();
	for (int i = 0; i < n; i++)
		json_object_set_new(o, attr[i].name, attr_write(&attr[i]));
	return o;
}

/* A list is of reals if one of its numbers is. For integers both arrays are filled, since a printer may have
 * dropped the fractions of reals. */
static int list_read(const struct dlb_ref *r, struct dlb_arena *arena, struct dlb_attr *a,
		     struct dlb_error *err)
{
	const size_t n = json_array_size(r->v);
	if (n > INT32_MAX)
		return dlb_ref_fail(r, err, "too many elements");
	int64_t *ints = dlb_arena_array(arena, n + 1, sizeof *ints);
	double *reals = dlb_arena_array(arena, n + 1, sizeof *reals);
	a->type = DLB_ATTR_INTS;
	a->n = (int)n;
	for (size_t i = 0; i < n; i++) {
		const json_t *e = json_array_get(r->v, i);
		if (json_is_real(e) || odd_real(json_string_value(e), &reals[i]))
			a->type = DLB_ATTR_REALS;
	}
	for (size_t i = 0; i < n; i++) {
		const struct dlb_ref e = dlb_ref_index(r, (int)i);
		if (a->type == DLB_ATTR_REALS ? dlb_real_read(&e, &reals[i], err) :
		    int_read(&e, INT64_MIN, INT64_MAX, &ints[i], err))
			return -1;
		if (a->type == DLB_ATTR_INTS)
			reals[i] = (double)ints[i];
	}
	a->reals = reals;
	a->ints = a->type == DLB_ATTR_INTS ? ints : NULL;
	return 0;
}

static int tensor_read(const struct dlb_ref *r, struct dlb_arena *arena, struct dlb_attr *a,
		       struct dlb_error *err)
{
	static const char *const known[] = { "dtype", "shape", "value", NULL };
	struct dlb_ref shape, value = dlb_ref_at(r, "value");
	enum dlb_dtype dtype;
	void *data;
	int n;

	a->type = DLB_ATTR_TENSOR;
	if (dlb_ref_known(r, known, err) || dlb_dtype_get(r, &dtype, err) ||
	    dlb_get_array(r, "shape", DLB_NEED, &shape, &n, err))
		return -1;
	if (n > DLB_MAX_DIMS)
		return dlb_ref_fail(&shape, err, "%d dimensions; at most %d", n, DLB_MAX_DIMS);
	a->desc = (struct dlb_desc){ .dtype = dtype, .n_dims = n };
	for (int i = 0; i < n; i++) {
		const struct dlb_ref e = dlb_ref_index(&shape, i);
		if (dlb_ref_int(&e, 0, INT64_MAX, &a->desc.dim[i], err))
			return -1;
	}
	const int64_t count = dlb_checked_count(a->desc.dim, n);
	if (count < 0)
		return dlb_ref_fail(&shape, err, "too large");
	if (dlb_values_read(&value, a->desc.dtype, count, arena, &data, err))
		return -1;
	a->data = data;
	return 0;
}

static int attr_read(const struct dlb_ref *r, struct dlb_arena *arena, struct dlb_attr *a,
		     struct dlb_error *err)
{
	struct dlb_ref odd;
	switch (json_typeof(r->v)) {
	case JSON_INTEGER:
		a->type = DLB_ATTR_INT;
		a->i = json_integer_value(r->v);
		return 0;
	case JSON_REAL:
		a->type = DLB_ATTR_REAL;
		a->f = json_real_value(r->v);
		return 0;
	case JSON_STRING:
		a->type = DLB_ATTR_STR;
		a->s = json_string_value(r->v);
		return 0;
	case JSON_ARRAY:
		return list_read(r, arena, a, err);
	case JSON_OBJECT:
		odd = dlb_ref_at(r, "int");
		a->type = DLB_ATTR_INT;
		if (odd.v)
			return int_read(&odd, INT64_MIN, INT64_MAX, &a->i, err);
		odd = dlb_ref_at(r, "real");
		a->type = DLB_ATTR_REAL;
		return odd.v ? dlb_real_read(&odd, &a->f, err) : tensor_read(r, arena, a, err);
	default:
		return dlb_ref_fail(r, err, "no attribute: expected a number, text, an array or an object");
	}
}

int dlb_attrs_read(const struct dlb_ref *r, struct dlb_arena *a, struct dlb_attr **attr, int *n,
		   struct dlb_error *err)
{
	const char *name;
	json_t *v;
	*attr = dlb_arena_array(a, json_object_size(r->v) + 1, sizeof **attr);
	*n = 0;
	json_object_foreach(r->v, name, v) {
		const struct dlb_ref e = dlb_ref_at(r, name);
		(*attr)[*n].name = name;
		if (attr_read(&e, a, &(*attr)[(*n)++], err))
			return -1;
	}
	return 0;
}
