/* Reads and writes the document's section "graph": see graph.h, dlb-document(5) and share/schemas/graph.json.
 *
 *     {"batch":32, "dtype":"f32", "training":true, "opset":17, "model":{"path","sha256","format"},
 *      "inputs":[0], "outputs":[12], "loss":13, "label":14, "seed":15,
 *      "ops":[{"id":0, "name":"conv1", "type":"Conv", "phase":"forward", "inputs":[0,1,null], "outputs":[5],
 *              "attributes":{"strides":[2,2]}, "of":3, "colocate":2, "flop":1e6, "flop_fixed":0, ...}],
 *      "tensors":[{"id":0, "name":"x", "kind":"input", "dtype":"f32", "shape":["N",1,28,28], "size_bytes":100352}]}
 *
 * Ids are positions. Members with default values (no `of`, colocate, home or domain; the graph's opset) are
 * omitted. Data of weights stay in the model's file (lib/model/weights.h); data that the file does not hold
 * under the tensor's name, such as a folded constant, and small constants are written as `value`. Time is
 * linear in the document's size. */
#include <assert.h>
#include <limits.h>
#include <math.h>
#include <string.h>
#include "graph/adapters.h"
#include "graph/derived_json.h"
#include "graph/graph.h"
#include "graph/graph_json.h"
#include "graph/order.h"
#include "graph/slice.h"
#include "graph/value_json.h"

#define SMALL_COUNT 64			/* values of constants up to this many elements are always written, for readability */

static const char *const kind_names[DLB_N_T_KINDS] = {
	[DLB_T_INPUT] = "input", [DLB_T_LABEL] = "label", [DLB_T_SEED] = "seed", [DLB_T_WEIGHT] = "weight",
	[DLB_T_BUFFER] = "buffer", [DLB_T_CONSTANT] = "constant", [DLB_T_ACTIVATION] = "activation",
	[DLB_T_GRADIENT] = "gradient", [DLB_T_WEIGHT_GRADIENT] = "weight-gradient",
};
static const char *const phase_names[DLB_N_PHASES] = {
	[DLB_FORWARD] = "forward", [DLB_BACKWARD] = "backward", [DLB_UPDATE] = "update",
};
static const char *const listed_names[] = {
	[DLB_LISTED_PARAMETER] = "parameter",
	[DLB_LISTED_BUFFER] = "buffer",
	[DLB_LISTED_CONSTANT] = "constant",
};
static const char *const by_names[DLB_N_BY] = {
	[DLB_BY_NONE] = "none", [DLB_BY_OPTION] = "option", [DLB_BY_STATE_DICT] = "state-dict",
	[DLB_BY_LIST] = "list", [DLB_BY_ROLE] = "role",
};
static const char *const start_names[DLB_N_STARTS] = {
	[DLB_START_MODEL] = "model", [DLB_START_DRAWN] = "drawn", [DLB_START_FILL] = "fill",
};
static const char *const upcast_names[] = { [DLB_UPCAST_F16] = "f16", [DLB_UPCAST_BF16] = "bf16" };
static const char *const layout_names[] = { [DLB_PLAIN] = "plain", [DLB_CHANNELS_LAST] = "channels-last" };

const char *dlb_tensor_kind_name(enum dlb_tensor_kind kind) { return kind_names[kind]; }
const char *dlb_phase_name(enum dlb_phase phase) { return phase_names[phase]; }

/* -- writing -- */

static void set_int(json_t *o, const char *key, int64_t v) { json_object_set_new(o, key, json_integer(v)); }
static void set_str(json_t *o, const char *key, const char *v)
{
	json_object_set_new(o, key, json_string(v));
}

/* Work is mostly a whole number of FLOP or bytes; whole numbers are written as integers. */
static void set_count(json_t *o, const char *key, double v)
{
	assert(isfinite(v));
	json_object_set_new(o, key,
			    v == floor(v) && fabs(v) < 0x1p53 ? json_integer((json_int_t)v) : json_real(v));
}

static json_t *write_ids(const int *id, int n)
{
	json_t *a = json_array();
	for (int i = 0; i < n; i++)
		json_array_append_new(a, id[i] < 0 ? json_null() : json_integer(id[i]));
	return a;
}

static json_t *write_op(const struct dlb_graph *g, int i)
{
	const struct dlb_op *p = &g->op[i];
	json_t *o = json_object();
	set_int(o, "id", i);
	set_str(o, "name", p->name);
	set_str(o, "type", p->type);
	if (*p->domain)
		set_str(o, "domain", p->domain);
	if (p->opset != g->opset)
		set_int(o, "opset", p->opset);
	set_str(o, "phase", phase_names[p->phase]);
	json_object_set_new(o, "inputs", write_ids(p->in, p->n_in));
	json_object_set_new(o, "outputs", write_ids(p->out, p->n_out));
	json_object_set_new(o, "attributes", dlb_attrs_write(p->attr, p->n_attr));
	if (p->of >= 0)
		set_int(o, "of", p->of);
	if (p->colocate >= 0)
		set_int(o, "colocate", p->colocate);
	set_count(o, "flop", p->flop);
	set_count(o, "flop_fixed", p->flop_fixed);
	set_count(o, "bytes", p->bytes);
	set_count(o, "bytes_fixed", p->bytes_fixed);
	return o;
}

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
	set_int(o, "axis", s->axis);
	set_int(o, "units", s->units);
	set_int(o, "unit", s->unit);
	set_int(o, "first", s->first);
	set_int(o, "count", s->count);
}

static json_t *write_slice(const struct dlb_slice *s)
{
	json_t *o = json_object();
	set_str(o, "of", s->of);
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

static json_t *write_tensor(const struct dlb_graph *g, int i)
{
	const struct dlb_tensor *t = &g->tensor[i];
	json_t *o = json_object();
	set_int(o, "id", i);
	set_str(o, "name", t->name);
	set_str(o, "kind", kind_names[t->kind]);
	set_str(o, "dtype", dlb_dtype_name(t->dtype));
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
		set_count(o, "size_bytes", dlb_tensor_bytes(t, g->batch));
	if (t->n_dims < 0 && t->size_mul != 0)
		set_count(o, "size_per_sample_bytes", t->size_mul);
	if (t->layout != DLB_PLAIN)
		set_str(o, "layout", layout_names[t->layout]);
	if (t->home >= 0)
		set_int(o, "home", t->home);
	if (t->of >= 0)
		set_int(o, "of", t->of);
	if (t->bound)
		set_int(o, "bound", t->bound);
	if (t->fan_in)
		set_int(o, "fan_in", t->fan_in);
	if (t->fan_out)
		set_int(o, "fan_out", t->fan_out);
	if (t->in_model)
		json_object_set_new(o, "in_model", json_true());
	if (t->from)
		set_str(o, "from", t->from);
	if (t->in_state)
		json_object_set_new(o, "in_state", json_true());
	if (t->also)
		json_object_set_new(o, "also", write_names(t->also));
	if (t->rule != DLB_BY_NONE)
		set_str(o, "rule", by_names[t->rule]);
	if (t->why)
		set_str(o, "why", t->why);
	if (t->frozen)
		json_object_set_new(o, "frozen", json_true());
	if (t->start != DLB_START_MODEL)
		set_str(o, "start", start_names[t->start]);
	if (t->slice)
		json_object_set_new(o, "slice", write_slice(t->slice));
	if (t->samples.parts)
		json_object_set_new(o, "samples",
				    json_pack("{s:i, s:i}", "part", t->samples.part, "of", t->samples.parts));
	write_data(o, t, g->batch);
	return o;
}

static bool ends_in(const char *s, const char *end)
{
	const size_t n = strlen(s), m = strlen(end);
	return n >= m && !strcmp(s + n - m, end);
}

static json_t *write_rewritten(const struct dlb_graph *g)
{
	json_t *a = json_array();
	for (int i = 0; i < g->n_rewritten; i++) {
		json_t *o = json_object();
		set_str(o, "name", g->rewritten[i].name);
		set_int(o, "count", g->rewritten[i].count);
		json_array_append_new(a, o);
	}
	return a;
}

static json_t *write_was_split(const struct dlb_graph *g)
{
	json_t *a = json_array();
	for (int i = 0; i < g->n_was_split; i++) {
		json_t *o = json_object();
		set_str(o, "op", g->was_split[i].op);
		set_int(o, "shards", g->was_split[i].parts);
		set_str(o, "axis", g->was_split[i].axis);
		set_str(o, "why", g->was_split[i].why);
		if (g->was_split[i].pairs)
			set_str(o, "sums", "pairs");
		json_array_append_new(a, o);
	}
	return a;
}

static json_t *write_unmerged(const struct dlb_graph *g)
{
	json_t *a = json_array();
	for (int i = 0; i < g->n_unmerged; i++) {
		json_t *o = json_object();
		set_str(o, "name", g->unmerged[i].name);
		set_str(o, "of", g->unmerged[i].of);
		set_str(o, "vertex", g->unmerged[i].vertex);
		if (g->unmerged[i].operand)
			json_object_set_new(o, "operand", json_integer(g->unmerged[i].operand));
		json_array_append_new(a, o);
	}
	return a;
}

static json_t *write_listed(const struct dlb_graph *g)
{
	json_t *a = json_array();
	for (int i = 0; i < g->n_listed; i++) {
		json_t *o = json_object();
		set_str(o, "name", g->listed[i].name);
		set_str(o, "input", g->listed[i].input);
		set_str(o, "kind", listed_names[g->listed[i].kind]);
		json_object_set_new(o, "persistent", json_boolean(g->listed[i].persistent));
		json_array_append_new(a, o);
	}
	return a;
}

static void write_upcast(const struct dlb_graph *g, json_t *graph)
{
	json_t *o = json_object();
	for (int i = 0; i < DLB_N_UPCAST; i++) {
		const struct dlb_upcast *c = &g->upcast[i];
		if (c->initializers || c->others)
			json_object_set_new(o, upcast_names[i],
					    json_pack("{s:i, s:i}", "initializers", c->initializers, "others",
						      c->others));
	}
	if (json_object_size(o))
		json_object_set(graph, "upcast", o);
	json_decref(o);
}

json_t *dlb_graph_write(const struct dlb_graph *g)
{
	json_t *o = json_object(), *ops = json_array(), *tensors = json_array();
	set_int(o, "batch", g->batch);
	if (g->fixed_batch)
		json_object_set_new(o, "fixed_batch", json_true());
	set_str(o, "dtype", dlb_dtype_name(g->dtype));
	json_object_set_new(o, "training", json_boolean(g->training));
	set_int(o, "opset", g->opset);
	if (g->model_path) {
		json_t *m = json_object();
		set_str(m, "path", g->model_path);
		if (g->model_sha256)
			set_str(m, "sha256", g->model_sha256);
		if (g->external_unread)
			json_object_set_new(m, "external_unread", json_true());
		if (g->state_path)
			set_str(m, "state_path", g->state_path);
		if (g->state_path && g->state_sha256)
			set_str(m, "state_sha256", g->state_sha256);
		set_str(m, "format", ends_in(g->model_path, ".safetensors") ? "safetensors" : "onnx");
		json_object_set_new(o, "model", m);
	}
	json_object_set_new(o, "inputs", write_ids(g->input, g->n_inputs));
	json_object_set_new(o, "outputs", write_ids(g->output, g->n_outputs));
	if (g->loss >= 0)
		set_int(o, "loss", g->loss);
	if (g->label >= 0)
		set_int(o, "label", g->label);
	if (g->seed >= 0)
		set_int(o, "seed", g->seed);
	if (g->n_rewritten)
		json_object_set_new(o, "rewrites", write_rewritten(g));
	if (g->n_was_split)
		json_object_set_new(o, "split", write_was_split(g));
	if (g->n_listed)
		json_object_set_new(o, "listed", write_listed(g));
	write_upcast(g, o);
	if (g->n_derived)
		json_object_set_new(o, "derived", dlb_derived_write(g));
	if (g->n_unmerged)
		json_object_set_new(o, "unmerged", write_unmerged(g));
	if (g->n_adapters)
		json_object_set_new(o, "adapters", dlb_adapters_write(g));
	for (int i = 0; i < g->n_ops; i++)
		json_array_append_new(ops, write_op(g, i));
	for (int i = 0; i < g->n_tensors; i++)
		json_array_append_new(tensors, write_tensor(g, i));
	json_object_set_new(o, "ops", ops);
	json_object_set_new(o, "tensors", tensors);
	return o;
}

/* -- reading -- */

static int find_name(const char *const *names, int n, const char *name)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(names[i], name))
			return i;
	return -1;
}

/* Member `key`, one of `names`, as its index. */
static int get_name(const struct dlb_ref *r, const char *key, int opt, const char *const *names, int n,
		    int *out, struct dlb_error *err)
{
	const char *s = NULL;
	if (dlb_get_str(r, key, opt, &s, err))
		return -1;
	if (!s)
		return 0;
	*out = find_name(names, n, s);
	if (*out >= 0)
		return 0;
	const struct dlb_ref at = dlb_ref_at(r, key);
	dlb_ref_fail(&at, err, "no %s '%s'", key, s);
	const char *near = dlb_nearest(s, names, n);
	return near ? dlb_hint(err, "did you mean '%s'?", near) : -1;
}

static int get_dtype(const struct dlb_ref *r, enum dlb_dtype *out, struct dlb_error *err)
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

/* An optional id below n; *out is unchanged if absent or null. */
static int get_id(const struct dlb_ref *r, const char *key, int64_t n, int *out, struct dlb_error *err)
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

/* Ids of tensors of g, which has all its tensors; null is -1 if `absent`. */
static int get_ids(const struct dlb_ref *r, const char *key, struct dlb_graph *g, bool absent, int **id,
		   int *n, struct dlb_error *err)
{
	struct dlb_ref list;
	if (dlb_get_array(r, key, DLB_NEED, &list, n, err))
		return -1;
	*id = dlb_arena_array(&g->arena, (size_t)*n + 1, sizeof **id);
	for (int i = 0; i < *n; i++) {
		const struct dlb_ref e = dlb_ref_index(&list, i);
		int64_t v = -1;
		if (!(absent && json_is_null(e.v)) && dlb_ref_int(&e, 0, INT64_MAX, &v, err))
			return -1;
		if (v >= g->n_tensors)
			return dlb_ref_fail(&e, err, "no tensor %lld (there are %d)", (long long)v,
					    g->n_tensors);
		(*id)[i] = (int)v;
	}
	return 0;
}

/* Ids must be positions, so that ids elsewhere in the document can be used directly. */
static int check_position(const struct dlb_ref *r, int i, struct dlb_error *err)
{
	int64_t id = i;
	if (dlb_get_int(r, "id", DLB_OPT, 0, INT32_MAX, &id, err))
		return -1;
	const struct dlb_ref at = dlb_ref_at(r, "id");
	if (id != i)
		return dlb_ref_fail(&at, err, "id %lld at position %d: ids count from 0", (long long)id, i);
	return 0;
}

static int read_op(const struct dlb_ref *r, struct dlb_graph *g, int i, int n_ops, struct dlb_error *err)
{
	static const char *const known[] = { "id",         "name",  "type",        "domain",
					     "opset",      "phase", "inputs",      "outputs",
					     "attributes", "of",    "colocate",    "flop",
					     "flop_fixed", "bytes", "bytes_fixed", NULL };
	const char *name, *type, *domain = "";
	struct dlb_ref attributes;
	struct dlb_attr *attr = NULL;
	int *in, *out, n_in, n_out, n_attr = 0, phase = 0;
	int64_t opset = g->opset;

	if (dlb_ref_known(r, known, err) || check_position(r, i, err) ||
	    dlb_get_str(r, "name", DLB_NEED, &name, err) || dlb_get_str(r, "type", DLB_NEED, &type, err) ||
	    dlb_get_str(r, "domain", DLB_OPT, &domain, err) ||
	    dlb_get_int(r, "opset", DLB_OPT, 0, INT32_MAX, &opset, err) ||
	    get_name(r, "phase", DLB_NEED, phase_names, DLB_N_PHASES, &phase, err) ||
	    get_ids(r, "inputs", g, true, &in, &n_in, err) ||
	    get_ids(r, "outputs", g, true, &out, &n_out, err))
		return -1;
	attributes = dlb_ref_at(r, "attributes");
	if (attributes.v && (dlb_get_object(r, "attributes", DLB_NEED, &attributes, err) ||
			     dlb_attrs_read(&attributes, &g->arena, &attr, &n_attr, err)))
		return -1;
	const int id = dlb_graph_add_op(g, (enum dlb_phase)phase,
					&(struct dlb_op_spec){ .name = name, .type = type, .domain = domain,
							       .in = in, .n_in = n_in, .out = out,
							       .n_out = n_out, .attr = attr,
							       .n_attr = n_attr });
	struct dlb_op *o = &g->op[id];
	o->opset = (int)opset;
	if (dlb_attr_find(attr, n_attr, DLB_ATTR_UNSUPPORTED))
		o->kind = -1;
	if (get_id(r, "of", n_ops, &o->of, err) || get_id(r, "colocate", n_ops, &o->colocate, err) ||
	    dlb_get_real(r, "flop", DLB_OPT, 0, 1e30, &o->flop, err) ||
	    dlb_get_real(r, "flop_fixed", DLB_OPT, 0, 1e30, &o->flop_fixed, err) ||
	    dlb_get_real(r, "bytes", DLB_OPT, 0, 1e30, &o->bytes, err) ||
	    dlb_get_real(r, "bytes_fixed", DLB_OPT, 0, 1e30, &o->bytes_fixed, err))
		return -1;
	return 0;
}

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

static int read_tensor(const struct dlb_ref *r, struct dlb_graph *g, int i, int n_ops, int n_tensors,
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

	if (dlb_ref_known(r, known, err) || check_position(r, i, err) ||
	    dlb_get_str(r, "name", DLB_NEED, &name, err) ||
	    get_name(r, "kind", DLB_NEED, kind_names, DLB_N_T_KINDS, &kind, err) ||
	    get_name(r, "layout", DLB_OPT, layout_names, DLB_LEN(layout_names), &layout, err) ||
	    get_name(r, "rule", DLB_OPT, by_names, DLB_N_BY, &rule, err) ||
	    get_name(r, "start", DLB_OPT, start_names, DLB_N_STARTS, &start, err) ||
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
	if (get_dtype(r, &t->dtype, err) || read_samples(r, t, err) || read_shape(r, t, g->batch, err) ||
	    get_id(r, "home", n_ops, &t->home, err) || get_id(r, "of", n_tensors, &t->of, err) ||
	    dlb_get_int(r, "bound", DLB_OPT, 0, INT64_MAX, &t->bound, err) ||
	    dlb_get_bool(r, "in_model", DLB_OPT, &t->in_model, err) ||
	    dlb_get_bool(r, "in_state", DLB_OPT, &t->in_state, err) || read_names(r, g, &t->also, err) ||
	    dlb_get_bool(r, "frozen", DLB_OPT, &t->frozen, err) || read_slice(r, g, t, err))
		return -1;
	return read_data(r, g, t, err);
}

static int read_model(const struct dlb_ref *r, struct dlb_graph *g, struct dlb_error *err)
{
	static const char *const known[] = { "path",       "sha256",       "external_unread", "format",
					     "state_path", "state_sha256", NULL };
	static const char *const formats[] = { "onnx", "safetensors" };
	struct dlb_ref m = dlb_ref_at(r, "model");
	const char *path, *sha = NULL, *state = NULL, *state_sha = NULL;
	int format = 0;

	if (!m.v || json_is_null(m.v))
		return 0;
	if (dlb_get_object(r, "model", DLB_NEED, &m, err) || dlb_ref_known(&m, known, err) ||
	    dlb_get_str(&m, "path", DLB_NEED, &path, err) || dlb_get_str(&m, "sha256", DLB_OPT, &sha, err) ||
	    dlb_get_bool(&m, "external_unread", DLB_OPT, &g->external_unread, err) ||
	    dlb_get_str(&m, "state_path", DLB_OPT, &state, err) ||
	    dlb_get_str(&m, "state_sha256", DLB_OPT, &state_sha, err) ||
	    get_name(&m, "format", DLB_OPT, formats, DLB_LEN(formats), &format, err))
		return -1;
	const struct dlb_ref at = dlb_ref_at(&m, "sha256");
	if (sha && (strlen(sha) != 64 || strspn(sha, "0123456789abcdef") != 64))
		return dlb_ref_fail(&at, err, "not a SHA-256: 64 hex digits");
	g->model_path = dlb_arena_strdup(&g->arena, path);
	g->model_sha256 = sha ? dlb_arena_strdup(&g->arena, sha) : NULL;
	g->state_path = state ? dlb_arena_strdup(&g->arena, state) : NULL;
	g->state_sha256 = state_sha ? dlb_arena_strdup(&g->arena, state_sha) : NULL;
	return 0;
}

/* Kept for information: names unknown to this version are kept too. */
static int read_rewritten(const struct dlb_ref *r, struct dlb_graph *g, struct dlb_error *err)
{
	static const char *const known[] = { "name", "count", NULL };
	struct dlb_ref list = dlb_ref_at(r, "rewrites");
	int n;

	if (!list.v)
		return 0;
	if (dlb_get_array(r, "rewrites", DLB_NEED, &list, &n, err))
		return -1;
	g->rewritten = dlb_arena_array(&g->arena, (size_t)n + 1, sizeof *g->rewritten);
	for (int i = 0; i < n; i++) {
		const struct dlb_ref e = dlb_ref_index(&list, i);
		struct dlb_rewritten *w = &g->rewritten[i];
		const char *name;
		if (dlb_ref_known(&e, known, err) || dlb_get_str(&e, "name", DLB_NEED, &name, err) ||
		    dlb_get_int(&e, "count", DLB_NEED, 0, INT32_MAX, &w->count, err))
			return -1;
		w->name = dlb_arena_strdup(&g->arena, name);
	}
	g->n_rewritten = n;
	return 0;
}

static int read_was_split(const struct dlb_ref *r, struct dlb_graph *g, struct dlb_error *err)
{
	static const char *const known[] = { "op", "shards", "axis", "why", "sums", NULL };
	static const char *const sums[] = { "one", "pairs" };
	struct dlb_ref list = dlb_ref_at(r, "split");
	int n;

	if (!list.v)
		return 0;
	if (dlb_get_array(r, "split", DLB_NEED, &list, &n, err))
		return -1;
	g->was_split = dlb_arena_array(&g->arena, (size_t)n + 1, sizeof *g->was_split);
	for (int i = 0; i < n; i++) {
		const struct dlb_ref e = dlb_ref_index(&list, i);
		const char *op, *axis, *why = "";
		int64_t shards;
		int pairs = 0;
		if (dlb_ref_known(&e, known, err) || dlb_get_str(&e, "op", DLB_NEED, &op, err) ||
		    dlb_get_int(&e, "shards", DLB_NEED, 2, INT32_MAX, &shards, err) ||
		    dlb_get_str(&e, "axis", DLB_NEED, &axis, err) ||
		    dlb_get_str(&e, "why", DLB_OPT, &why, err) ||
		    get_name(&e, "sums", DLB_OPT, sums, 2, &pairs, err))
			return -1;
		g->was_split[i] = (struct dlb_was_split){ dlb_arena_strdup(&g->arena, op),
							  dlb_arena_strdup(&g->arena, axis),
							  dlb_arena_strdup(&g->arena, why), (int)shards,
							  pairs };
	}
	g->n_was_split = n;
	return 0;
}

static int read_upcast(const struct dlb_ref *r, struct dlb_graph *g, struct dlb_error *err)
{
	static const char *const types[] = { "f16", "bf16", NULL }, *const known[] = { "initializers",
										       "others", NULL };
	struct dlb_ref all = dlb_ref_at(r, "upcast");

	if (!all.v)
		return 0;
	if (dlb_get_object(r, "upcast", DLB_NEED, &all, err) || dlb_ref_known(&all, types, err))
		return -1;
	for (int i = 0; i < DLB_N_UPCAST; i++) {
		struct dlb_ref e = dlb_ref_at(&all, upcast_names[i]);
		int64_t initializers, others;
		if (!e.v)
			continue;
		if (dlb_get_object(&all, upcast_names[i], DLB_NEED, &e, err) ||
		    dlb_ref_known(&e, known, err) ||
		    dlb_get_int(&e, "initializers", DLB_NEED, 0, INT32_MAX, &initializers, err) ||
		    dlb_get_int(&e, "others", DLB_NEED, 0, INT32_MAX, &others, err))
			return -1;
		g->upcast[i] = (struct dlb_upcast){ (int)initializers, (int)others };
	}
	return 0;
}

static int read_unmerged(const struct dlb_ref *r, struct dlb_graph *g, struct dlb_error *err)
{
	static const char *const known[] = { "name", "of", "vertex", "operand", NULL };
	struct dlb_ref list = dlb_ref_at(r, "unmerged");
	int n;

	if (!list.v)
		return 0;
	if (dlb_get_array(r, "unmerged", DLB_NEED, &list, &n, err))
		return -1;
	g->unmerged = dlb_arena_array(&g->arena, (size_t)n + 1, sizeof *g->unmerged);
	for (int i = 0; i < n; i++) {
		const struct dlb_ref e = dlb_ref_index(&list, i);
		const char *name, *of, *vertex;
		int64_t operand = 0;
		if (dlb_ref_known(&e, known, err) || dlb_get_str(&e, "name", DLB_NEED, &name, err) ||
		    dlb_get_str(&e, "of", DLB_NEED, &of, err) ||
		    dlb_get_str(&e, "vertex", DLB_NEED, &vertex, err) ||
		    dlb_get_int(&e, "operand", DLB_OPT, 0, INT_MAX, &operand, err))
			return -1;
		g->unmerged[i] = (struct dlb_unmerged){ dlb_arena_strdup(&g->arena, name),
							dlb_arena_strdup(&g->arena, of),
							dlb_arena_strdup(&g->arena, vertex), (int)operand };
	}
	g->n_unmerged = n;
	return 0;
}

static int read_listed(const struct dlb_ref *r, struct dlb_graph *g, struct dlb_error *err)
{
	static const char *const known[] = { "name", "input", "kind", "persistent", NULL };
	struct dlb_ref list = dlb_ref_at(r, "listed");
	int n;

	if (!list.v)
		return 0;
	if (dlb_get_array(r, "listed", DLB_NEED, &list, &n, err))
		return -1;
	g->listed = dlb_arena_array(&g->arena, (size_t)n + 1, sizeof *g->listed);
	for (int i = 0; i < n; i++) {
		const struct dlb_ref e = dlb_ref_index(&list, i);
		const char *name, *input;
		bool persistent;
		int kind = 0;
		if (dlb_ref_known(&e, known, err) || dlb_get_str(&e, "name", DLB_NEED, &name, err) ||
		    dlb_get_str(&e, "input", DLB_NEED, &input, err) ||
		    get_name(&e, "kind", DLB_NEED, listed_names, DLB_LEN(listed_names), &kind, err) ||
		    dlb_get_bool(&e, "persistent", DLB_NEED, &persistent, err))
			return -1;
		g->listed[i] = (struct dlb_listed){ dlb_arena_strdup(&g->arena, name),
						    dlb_arena_strdup(&g->arena, input),
						    (enum dlb_listed_kind)kind, persistent };
	}
	g->n_listed = n;
	return 0;
}

static int read_graph(const struct dlb_doc *d, struct dlb_graph *g, struct dlb_error *err)
{
	static const char *const known[] = { "batch",   "fixed_batch", "dtype",   "training", "opset",
					     "model",   "inputs",      "outputs", "loss",     "label",
					     "seed",    "rewrites",    "split",   "listed",   "upcast",
					     "derived", "unmerged",    "adapters", "ops",     "tensors",
					     NULL };
	const struct dlb_ref r = dlb_ref_root(d, "graph");
	struct dlb_ref ops, tensors;
	int n_ops, n_tensors;
	int64_t opset = 0;
	json_t *section;

	if (dlb_doc_need(d, "graph", &section, err) || dlb_ref_known(&r, known, err) ||
	    dlb_get_int(&r, "batch", DLB_NEED, 1, INT64_C(1) << 40, &g->batch, err) ||
	    get_dtype(&r, &g->dtype, err) || dlb_get_bool(&r, "fixed_batch", DLB_OPT, &g->fixed_batch, err) ||
	    dlb_get_bool(&r, "training", DLB_OPT, &g->training, err) ||
	    dlb_get_int(&r, "opset", DLB_OPT, 0, INT32_MAX, &opset, err) || read_model(&r, g, err) ||
	    read_rewritten(&r, g, err) || read_was_split(&r, g, err) || read_listed(&r, g, err) ||
	    read_upcast(&r, g, err) || dlb_derived_read(&r, g, err) || read_unmerged(&r, g, err) ||
	    dlb_get_array(&r, "ops", DLB_NEED, &ops, &n_ops, err) ||
	    dlb_get_array(&r, "tensors", DLB_NEED, &tensors, &n_tensors, err))
		return -1;
	g->opset = (int)opset;
	for (int i = 0; i < n_tensors; i++) {
		const struct dlb_ref e = dlb_ref_index(&tensors, i);
		if (read_tensor(&e, g, i, n_ops, n_tensors, err))
			return -1;
	}
	if (dlb_adapters_read(&r, g, err))
		return -1;
	for (int i = 0; i < n_ops; i++) {
		const struct dlb_ref e = dlb_ref_index(&ops, i);
		if (read_op(&e, g, i, n_ops, err))
			return -1;
	}
	if (get_ids(&r, "inputs", g, false, &g->input, &g->n_inputs, err) ||
	    get_ids(&r, "outputs", g, false, &g->output, &g->n_outputs, err) ||
	    get_id(&r, "loss", n_tensors, &g->loss, err) || get_id(&r, "label", n_tensors, &g->label, err) ||
	    get_id(&r, "seed", n_tensors, &g->seed, err))
		return -1;
	if (dlb_graph_check(g, err))
		return dlb_error_at(err, d->name);
	bool even = dlb_graph_least_samples(g) <= g->batch;
	for (int t = 0; t < g->n_tensors && even; t++)
		even = !dlb_graph_share_samples(g, g->tensor[t].samples.parts);
	if (!even)
		return dlb_refuse(err, d->name, "run dlb-profile again",
				  "/graph: a batch of %lld samples is not shared out as its tensors say",
				  (long long)g->batch);
	dlb_graph_index(g);
	return 0;
}

int dlb_graph_read(const struct dlb_doc *d, struct dlb_graph *g, struct dlb_error *err)
{
	dlb_graph_init(g);
	const int rc = read_graph(d, g, err);
	if (rc && err && !*err->hint)
		dlb_hint(err, "dlb-document(5) says what may stand there; dlb-profile writes it");
	if (rc)
		dlb_graph_release(g);
	return rc;
}
