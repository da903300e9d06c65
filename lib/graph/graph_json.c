/* Reads and writes the document's section "graph": see graph.h, dlb-document(5) and share/schemas/graph.json.
 *
 *     {"batch":32, "dtype":"f32", "training":true, "opset":17, "model":{"path","sha256","format"},
 *      "inputs":[0], "outputs":[12], "loss":13, "label":14, "seed":15,
 *      "ops":[{"id":0, "name":"conv1", "type":"Conv", "phase":"forward", "inputs":[0,1,null], "outputs":[5],
 *              "attributes":{"strides":[2,2]}, "of":3, "colocate":2, "flop":1e6, "flop_fixed":0, ...}],
 *      "tensors":[{"id":0, "name":"x", "kind":"input", "dtype":"f32", "shape":["N",1,28,28], "size_bytes":100352}]}
 *
 * Ids are positions. Members with default values (no `of`, colocate or domain; the graph's opset) are omitted.
 * Tensors: tensor_json.h. How the graph came from the model's file: history_json.h. Time is linear in the
 * document's size. */
#include <string.h>
#include "graph/adapters.h"
#include "graph/graph_json.h"
#include "graph/history_json.h"
#include "graph/member_json.h"
#include "graph/order.h"
#include "graph/tensor_json.h"
#include "graph/value_json.h"

static const char *const phase_names[DLB_N_PHASES] = {
	[DLB_FORWARD] = "forward",
	[DLB_BACKWARD] = "backward",
	[DLB_UPDATE] = "update",
};

/* -- writing -- */

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
	dlb_set_int(o, "id", i);
	dlb_set_str(o, "name", p->name);
	dlb_set_str(o, "type", p->type);
	if (*p->domain)
		dlb_set_str(o, "domain", p->domain);
	if (p->opset != g->opset)
		dlb_set_int(o, "opset", p->opset);
	dlb_set_str(o, "phase", phase_names[p->phase]);
	json_object_set_new(o, "inputs", write_ids(p->in, p->n_in));
	json_object_set_new(o, "outputs", write_ids(p->out, p->n_out));
	json_object_set_new(o, "attributes", dlb_attrs_write(p->attr, p->n_attr));
	if (p->of >= 0)
		dlb_set_int(o, "of", p->of);
	if (p->colocate >= 0)
		dlb_set_int(o, "colocate", p->colocate);
	dlb_count_set(o, "flop", p->flop);
	dlb_count_set(o, "flop_fixed", p->flop_fixed);
	dlb_count_set(o, "bytes", p->bytes);
	dlb_count_set(o, "bytes_fixed", p->bytes_fixed);
	return o;
}

static bool ends_in(const char *s, const char *end)
{
	const size_t n = strlen(s), m = strlen(end);
	return n >= m && !strcmp(s + n - m, end);
}

json_t *dlb_graph_write(const struct dlb_graph *g)
{
	json_t *o = json_object(), *ops = json_array(), *tensors = json_array();
	dlb_set_int(o, "batch", g->batch);
	if (g->fixed_batch)
		json_object_set_new(o, "fixed_batch", json_true());
	dlb_set_str(o, "dtype", dlb_dtype_name(g->dtype));
	dlb_set_bool(o, "training", g->training);
	dlb_set_int(o, "opset", g->opset);
	if (g->model_path) {
		json_t *m = json_object();
		dlb_set_str(m, "path", g->model_path);
		dlb_set_str(m, "sha256", g->model_sha256);
		if (g->external_unread)
			json_object_set_new(m, "external_unread", json_true());
		dlb_set_str(m, "state_path", g->state_path);
		if (g->state_path && g->state_sha256)
			dlb_set_str(m, "state_sha256", g->state_sha256);
		dlb_set_str(m, "format", ends_in(g->model_path, ".safetensors") ? "safetensors" : "onnx");
		json_object_set_new(o, "model", m);
	}
	json_object_set_new(o, "inputs", write_ids(g->input, g->n_inputs));
	json_object_set_new(o, "outputs", write_ids(g->output, g->n_outputs));
	if (g->loss >= 0)
		dlb_set_int(o, "loss", g->loss);
	if (g->label >= 0)
		dlb_set_int(o, "label", g->label);
	if (g->seed >= 0)
		dlb_set_int(o, "seed", g->seed);
	dlb_history_write(g, o);
	if (g->n_adapters)
		json_object_set_new(o, "adapters", dlb_adapters_write(g));
	for (int i = 0; i < g->n_ops; i++)
		json_array_append_new(ops, write_op(g, i));
	for (int i = 0; i < g->n_tensors; i++)
		json_array_append_new(tensors, dlb_tensor_write(g, i));
	json_object_set_new(o, "ops", ops);
	json_object_set_new(o, "tensors", tensors);
	return o;
}

/* -- reading -- */

/* Reads ids of tensors of g, all of which have been read; null is -1 if `absent`. */
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

	if (dlb_ref_known(r, known, err) || dlb_position_check(r, i, err) ||
	    dlb_get_str(r, "name", DLB_NEED, &name, err) || dlb_get_str(r, "type", DLB_NEED, &type, err) ||
	    dlb_get_str(r, "domain", DLB_OPT, &domain, err) ||
	    dlb_get_int(r, "opset", DLB_OPT, 0, INT32_MAX, &opset, err) ||
	    dlb_get_name(r, "phase", DLB_NEED, phase_names, DLB_N_PHASES, &phase, err) ||
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
	if (dlb_id_get(r, "of", n_ops, &o->of, err) || dlb_id_get(r, "colocate", n_ops, &o->colocate, err) ||
	    dlb_get_real(r, "flop", DLB_OPT, 0, 1e30, &o->flop, err) ||
	    dlb_get_real(r, "flop_fixed", DLB_OPT, 0, 1e30, &o->flop_fixed, err) ||
	    dlb_get_real(r, "bytes", DLB_OPT, 0, 1e30, &o->bytes, err) ||
	    dlb_get_real(r, "bytes_fixed", DLB_OPT, 0, 1e30, &o->bytes_fixed, err))
		return -1;
	return 0;
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
	    dlb_get_name(&m, "format", DLB_OPT, formats, DLB_LEN(formats), &format, err))
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
	    dlb_dtype_get(&r, &g->dtype, err) ||
	    dlb_get_bool(&r, "fixed_batch", DLB_OPT, &g->fixed_batch, err) ||
	    dlb_get_bool(&r, "training", DLB_OPT, &g->training, err) ||
	    dlb_get_int(&r, "opset", DLB_OPT, 0, INT32_MAX, &opset, err) || read_model(&r, g, err) ||
	    dlb_history_read(&r, g, err) || dlb_get_array(&r, "ops", DLB_NEED, &ops, &n_ops, err) ||
	    dlb_get_array(&r, "tensors", DLB_NEED, &tensors, &n_tensors, err))
		return -1;
	g->opset = (int)opset;
	for (int i = 0; i < n_tensors; i++) {
		const struct dlb_ref e = dlb_ref_index(&tensors, i);
		if (dlb_tensor_read(&e, g, i, n_ops, n_tensors, err))
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
	    dlb_id_get(&r, "loss", n_tensors, &g->loss, err) ||
	    dlb_id_get(&r, "label", n_tensors, &g->label, err) ||
	    dlb_id_get(&r, "seed", n_tensors, &g->seed, err))
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
