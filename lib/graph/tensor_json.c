/* One tensor of the section "graph": see tensor_json.h. Members with default values are omitted. */
#include "graph/member_json.h"
#include "graph/order.h"
#include "graph/slice.h"
#include "graph/tensor_json.h"
#include "graph/value_json.h"

/* values of constants up to this many elements are always written, for readability */
#define SMALL_COUNT 64

static const char *const kind_names[DLB_N_T_KINDS] = {
	[DLB_T_INPUT] = "input",
	[DLB_T_LABEL] = "label",
	[DLB_T_SEED] = "seed",
	[DLB_T_WEIGHT] = "weight",
	[DLB_T_BUFFER] = "buffer",
	[DLB_T_CONSTANT] = "constant",
	[DLB_T_ACTIVATION] = "activation",
	[DLB_T_GRADIENT] = "gradient",
	[DLB_T_WEIGHT_GRADIENT] = "weight-gradient",
};
static const char *const by_names[DLB_N_BY] = {
	[DLB_BY_NONE] = "none", [DLB_BY_OPTION] = "option", [DLB_BY_STATE_DICT] = "state-dict",
	[DLB_BY_LIST] = "list", [DLB_BY_ROLE] = "role",
};
static const char *const start_names[DLB_N_STARTS] = {
	[DLB_START_MODEL] = "model",
	[DLB_START_DRAWN] = "drawn",
	[DLB_START_FILL] = "fill",
};
static const char *const layout_names[] = { [DLB_PLAIN] = "plain", [DLB_CHANNELS_LAST] = "channels-last" };

/* -- writing -- */

static void write_data(json_t *o, const struct dlb_tensor *t, int64_t batch)
{
	if (t->is_fill) {
		json_object_set_new(o, "fill", dlb_real_write(t->fill));
		return;
	}
	if (!t->data || t->n_dims < 0)
		return;
	const struct dlb_desc d = dlb_tensor_desc(t, batch);
	const int64_t count = dlb_desc_count(&d);
	const bool state = t->kind == DLB_T_WEIGHT || t->kind == DLB_T_BUFFER;
	if ((t->in_model || t->in_state) && !t->data_mul && (state || count > SMALL_COUNT))
		return;
	json_object_set_new(o, "value", dlb_values_write(t->data, t->dtype, count));
	if (t->data_mul)
		json_object_set_new(o, "value_per_sample", dlb_values_write(t->data_mul, DLB_I64, count));
}

void dlb_slice_write(const struct dlb_slice *s, json_t *o)
{
	json_t *shape = json_array();
	for (int i = 0; i < s->n_dims; i++)
		json_array_append_new(shape, json_integer(s->dim[i]));
	json_object_set_new(o, "shape", shape);
	dlb_set_int(o, "axis", s->axis);
	dlb_set_int(o, "units", s->units);
	dlb_set_int(o, "unit", s->unit);
	dlb_set_int(o, "first", s->first);
	dlb_set_int(o, "count", s->count);
}

static json_t *write_slice(const struct dlb_slice *s)
{
	json_t *o = json_object();
	dlb_set_str(o, "of", s->of);
	dlb_slice_write(s, o);
	return o;
}

static json_t *write_names(const char *const *name)
{
	json_t *a = json_array();
	for (int i = 0; name[i]; i++)
		json_array_append_new(a, json_string(name[i]));
	return a;
}

json_t *dlb_tensor_write(const struct dlb_graph *g, int i)
{
	const struct dlb_tensor *t = &g->tensor[i];
	json_t *o = json_object();
	dlb_set_int(o, "id", i);
	dlb_set_str(o, "name", t->name);
	dlb_set_str(o, "kind", kind_names[t->kind]);
	dlb_set_str(o, "dtype", dlb_dtype_name(t->dtype));
	bool known = t->n_dims >= 0;
	for (int k = 0; k < t->n_dims; k++)
		known &= t->dim[k].mul != 0 || t->dim[k].add != -1;
	if (known) {
		json_t *shape = json_array();
		for (int k = 0; k < t->n_dims; k++)
			json_array_append_new(shape, dlb_dim_write(t->dim[k]));
		json_object_set_new(o, "shape", shape);
	} else {
		json_object_set_new(o, "shape", json_null());
	}
	if (known || t->n_dims < 0)
		dlb_count_set(o, "size_bytes", dlb_tensor_bytes(t, g->batch));
	if (t->n_dims < 0 && t->size_mul != 0)
		dlb_count_set(o, "size_per_sample_bytes", t->size_mul);
	if (t->layout != DLB_PLAIN)
		dlb_set_str(o, "layout", layout_names[t->layout]);
	if (t->home >= 0)
		dlb_set_int(o, "home", t->home);
	if (t->of >= 0)
		dlb_set_int(o, "of", t->of);
	if (t->bound)
		dlb_set_int(o, "bound", t->bound);
	if (t->fan_in)
		dlb_set_int(o, "fan_in", t->fan_in);
	if (t->fan_out)
		dlb_set_int(o, "fan_out", t->fan_out);
	if (t->in_model)
		json_object_set_new(o, "in_model", json_true());
	dlb_set_str(o, "from", t->from);
	if (t->in_state)
		json_object_set_new(o, "in_state", json_true());
	if (t->also)
		json_object_set_new(o, "also", write_names(t->also));
	if (t->rule != DLB_BY_NONE)
		dlb_set_str(o, "rule", by_names[t->rule]);
	dlb_set_str(o, "why", t->why);
	if (t->frozen)
		json_object_set_new(o, "frozen", json_true());
	if (t->start != DLB_START_MODEL)
		dlb_set_str(o, "start", start_names[t->start]);
	if (t->slice)
		json_object_set_new(o, "slice", write_slice(t->slice));
	if (t->samples.parts)
		json_object_set_new(o, "samples",
				    json_pack("{s:i, s:i}", "part", t->samples.part, "of", t->samples.parts));
	write_data(o, t, g->batch);
	return o;
}

/* -- reading -- */

/* Reads `shape` or, if it is null or absent, the size in bytes. */
static int read_shape(const struct dlb_ref *r, struct dlb_tensor *t, int64_t batch, struct dlb_error *err)
{
	const struct dlb_ref at = dlb_ref_at(r, "shape");
	struct dlb_ref list;
	double size = 0;
	int n;

	if (!at.v || json_is_null(at.v)) {
		if (dlb_get_real(r, "size_bytes", DLB_OPT, 0, 1e18, &size, err) ||
		    dlb_get_real(r, "size_per_sample_bytes", DLB_OPT, 0, 1e18, &t->size_mul, err))
			return -1;
		t->size_add = size - t->size_mul * (double)batch;
		if (t->size_add < 0)
			return dlb_ref_fail(r, err,
					    "size_bytes is less than size_per_sample_bytes times the batch");
		return 0;
	}
	if (dlb_get_array(r, "shape", DLB_NEED, &list, &n, err))
		return -1;
	if (n > DLB_MAX_DIMS)
		return dlb_ref_fail(&at, err, "%d dimensions; at most %d", n, DLB_MAX_DIMS);
	t->n_dims = n;
	for (int k = 0; k < n; k++) {
		const struct dlb_ref e = dlb_ref_index(&list, k);
		if (dlb_dim_read(&e, &t->dim[k], err))
			return -1;
	}
	return 0;
}

static int read_data(const struct dlb_ref *r, struct dlb_graph *g, struct dlb_tensor *t,
		     struct dlb_error *err)
{
	const struct dlb_ref value = dlb_ref_at(r, "value"), per = dlb_ref_at(r, "value_per_sample"),
			     fill = dlb_ref_at(r, "fill");
	void *data;

	if (fill.v) {
		t->is_fill = true;
		if (dlb_real_read(&fill, &t->fill, err))
			return -1;
	}
	if (!value.v)
		return per.v ? dlb_ref_fail(&per, err, "value_per_sample without value") : 0;
	if (fill.v)
		return dlb_ref_fail(&fill, err, "both fill and value");
	int64_t dim[DLB_MAX_DIMS];
	for (int k = 0; k < t->n_dims; k++) {
		if (t->dim[k].mul)
			return dlb_ref_fail(&value, err, "a shape that follows N cannot have values");
		dim[k] = t->dim[k].add;
	}
	const int64_t count = t->n_dims < 0 ? -1 : dlb_checked_count(dim, t->n_dims);
	if (count < 0)
		return dlb_ref_fail(&value, err, "values without a (sane) shape");
	if (dlb_values_read(&value, t->dtype, count, &g->arena, &data, err))
		return -1;
	t->data = data;
	if (per.v) {
		if (!dlb_dtype_is_int(t->dtype) && !dlb_dtype_is_float(t->dtype))
			return dlb_ref_fail(&per, err, "only numbers follow N");
		if (dlb_values_read(&per, DLB_I64, count, &g->arena, &data, err))
			return -1;
		t->data_mul = data;
	}
	return 0;
}

/* Checks that the slice fits the tensor, and that the size of its whole does not overflow. */
static int read_slice(const struct dlb_ref *r, struct dlb_graph *g, struct dlb_tensor *t,
		      struct dlb_error *err)
{
	static const char *const known[] = { "of", "shape", "axis", "units", "unit", "first", "count", NULL };
	struct dlb_ref at = dlb_ref_at(r, "slice"), shape;
	struct dlb_slice s = { .of = NULL };
	int64_t axis;
	int n;

	if (!at.v)
		return 0;
	if (dlb_get_object(r, "slice", DLB_NEED, &at, err) || dlb_ref_known(&at, known, err) ||
	    dlb_get_str(&at, "of", DLB_NEED, &s.of, err) ||
	    dlb_get_array(&at, "shape", DLB_NEED, &shape, &n, err))
		return -1;
	if (n != t->n_dims || n < 1)
		return dlb_ref_fail(&shape, err, "%d dimensions where the tensor has %d", n, t->n_dims);
	for (int i = 0; i < n; i++) {
		const struct dlb_ref e = dlb_ref_index(&shape, i);
		if (dlb_ref_int(&e, 1, INT64_C(1) << 40, &s.dim[i], err))
			return -1;
	}
	if (dlb_get_int(&at, "axis", DLB_NEED, 0, n - 1, &axis, err) ||
	    dlb_get_int(&at, "units", DLB_NEED, 1, INT64_MAX, &s.units, err) ||
	    dlb_get_int(&at, "unit", DLB_NEED, 1, INT64_MAX, &s.unit, err) ||
	    dlb_get_int(&at, "first", DLB_NEED, 0, INT64_MAX, &s.first, err) ||
	    dlb_get_int(&at, "count", DLB_NEED, 1, INT64_MAX, &s.count, err))
		return -1;
	s.n_dims = n;
	s.axis = (int)axis;
	const bool follows = dlb_tensor_follows_batch(t);
	const struct dlb_desc part = follows ? (struct dlb_desc){ .n_dims = 0 } : dlb_tensor_desc(t, 1);
	if (follows || !dlb_slice_fits(&s, &part))
		return dlb_ref_fail(&at, err, "'%s' is no such part of '%s'", t->name, s.of);
	struct dlb_slice *copy = dlb_arena_alloc(&g->arena, sizeof *copy);
	*copy = s;
	copy->of = dlb_arena_strdup(&g->arena, s.of);
	t->slice = copy;
	return 0;
}

/* Reads the samples of the tensor; before its shape, whose size depends on them. */
static int read_samples(const struct dlb_ref *r, struct dlb_tensor *t, struct dlb_error *err)
{
	static const char *const known[] = { "part", "of", NULL };
	struct dlb_ref at = dlb_ref_at(r, "samples");
	int64_t part, parts;

	if (!at.v)
		return 0;
	if (dlb_get_object(r, "samples", DLB_NEED, &at, err) || dlb_ref_known(&at, known, err) ||
	    dlb_get_int(&at, "of", DLB_NEED, 2, 4096, &parts, err) ||
	    dlb_get_int(&at, "part", DLB_NEED, 0, parts - 1, &part, err))
		return -1;
	t->samples = (struct dlb_samples){ (int)part, (int)parts };
	return 0;
}

/* Reads further names of a weight. */
static int read_names(const struct dlb_ref *r, struct dlb_graph *g, const char *const **out,
		      struct dlb_error *err)
{
	struct dlb_ref list = dlb_ref_at(r, "also");
	int n;

	if (!list.v)
		return 0;
	if (dlb_get_array(r, "also", DLB_NEED, &list, &n, err))
		return -1;
	const char **name = dlb_arena_array(&g->arena, (size_t)n + 1, sizeof *name);
	for (int i = 0; i < n; i++) {
		const struct dlb_ref e = dlb_ref_index(&list, i);
		if (!json_is_string(e.v))
			return dlb_ref_fail(&e, err, "a string is expected");
		name[i] = dlb_arena_strdup(&g->arena, json_string_value(e.v));
	}
	name[n] = NULL;
	*out = name;
	return 0;
}

int dlb_tensor_read(const struct dlb_ref *r, struct dlb_graph *g, int i, int n_ops, int n_tensors,
		    struct dlb_error *err)
{
	static const char *const known[] = { "id",
					     "name",
					     "kind",
					     "dtype",
					     "shape",
					     "size_bytes",
					     "size_per_sample_bytes",
					     "layout",
					     "home",
					     "of",
					     "bound",
					     "fan_in",
					     "fan_out",
					     "in_model",
					     "from",
					     "in_state",
					     "also",
					     "rule",
					     "why",
					     "frozen",
					     "start",
					     "slice",
					     "samples",
					     "value",
					     "value_per_sample",
					     "fill",
					     NULL };
	const char *name, *why = NULL, *from = NULL;
	int kind = 0, layout = DLB_PLAIN, rule = DLB_BY_NONE, start = DLB_START_MODEL;
	int64_t fan_in = 0, fan_out = 0;

	if (dlb_ref_known(r, known, err) || dlb_position_check(r, i, err) ||
	    dlb_get_str(r, "name", DLB_NEED, &name, err) ||
	    dlb_get_name(r, "kind", DLB_NEED, kind_names, DLB_N_T_KINDS, &kind, err) ||
	    dlb_get_name(r, "layout", DLB_OPT, layout_names, DLB_LEN(layout_names), &layout, err) ||
	    dlb_get_name(r, "rule", DLB_OPT, by_names, DLB_N_BY, &rule, err) ||
	    dlb_get_name(r, "start", DLB_OPT, start_names, DLB_N_STARTS, &start, err) ||
	    dlb_get_str(r, "why", DLB_OPT, &why, err) || dlb_get_str(r, "from", DLB_OPT, &from, err) ||
	    dlb_get_int(r, "fan_in", DLB_OPT, 0, INT32_MAX, &fan_in, err) ||
	    dlb_get_int(r, "fan_out", DLB_OPT, 0, INT32_MAX, &fan_out, err))
		return -1;
	/* may move the array */
	const int id = dlb_graph_add_tensor(g, name, (enum dlb_tensor_kind)kind);
	struct dlb_tensor *t = &g->tensor[id];
	t->layout = (enum dlb_layout)layout;
	t->fan_in = (int)fan_in;
	t->fan_out = (int)fan_out;
	t->rule = (enum dlb_by)rule;
	t->start = (enum dlb_start)start;
	t->why = why ? dlb_arena_strdup(&g->arena, why) : NULL;
	t->from = from ? dlb_arena_strdup(&g->arena, from) : NULL;
	if (dlb_dtype_get(r, &t->dtype, err) || read_samples(r, t, err) || read_shape(r, t, g->batch, err) ||
	    dlb_id_get(r, "home", n_ops, &t->home, err) || dlb_id_get(r, "of", n_tensors, &t->of, err) ||
	    dlb_get_int(r, "bound", DLB_OPT, 0, INT64_MAX, &t->bound, err) ||
	    dlb_get_bool(r, "in_model", DLB_OPT, &t->in_model, err) ||
	    dlb_get_bool(r, "in_state", DLB_OPT, &t->in_state, err) || read_names(r, g, &t->also, err) ||
	    dlb_get_bool(r, "frozen", DLB_OPT, &t->frozen, err) || read_slice(r, g, t, err))
		return -1;
	return read_data(r, g, t, err);
}
