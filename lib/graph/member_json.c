#include <assert.h>
#include <math.h>
#include "graph/member_json.h"

/* Work is mostly a whole number of FLOP or bytes; whole numbers are written as integers. */
void dlb_count_set(json_t *o, const char *key, double v)
{
	assert(isfinite(v));
	json_object_set_new(o, key,
			    v == floor(v) && fabs(v) < 0x1p53 ? json_integer((json_int_t)v) : json_real(v));
}

int dlb_dtype_get(const struct dlb_ref *r, enum dlb_dtype *out, struct dlb_error *err)
{
	const char *s;
	if (dlb_get_str(r, "dtype", DLB_NEED, &s, err))
		return -1;
	const int t = dlb_dtype_find(s);
	const struct dlb_ref at = dlb_ref_at(r, "dtype");
	if (t < 0)
		return dlb_ref_fail(&at, err, "no dtype '%s'", s);
	*out = (enum dlb_dtype)t;
	return 0;
}

int dlb_id_get(const struct dlb_ref *r, const char *key, int64_t n, int *out, struct dlb_error *err)
{
	const struct dlb_ref at = dlb_ref_at(r, key);
	int64_t v;
	if (!at.v || json_is_null(at.v))
		return 0;
	if (dlb_ref_int(&at, 0, n - 1, &v, err))
		return -1;
	*out = (int)v;
	return 0;
}

int dlb_position_check(const struct dlb_ref *r, int i, struct dlb_error *err)
{
	int64_t id = i;
	if (dlb_get_int(r, "id", DLB_OPT, 0, INT32_MAX, &id, err))
		return -1;
	const struct dlb_ref at = dlb_ref_at(r, "id");
	if (id != i)
		return dlb_ref_fail(&at, err, "id %lld at position %d: ids count from 0", (long long)id, i);
	return 0;
}
