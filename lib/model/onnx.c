/* Reads an ONNX model into a graph: see onnx.h. onnx_wire.c checks the wire format, onnx_tensor.c reads
 * tensors, onnx_attribute.c attributes.
 *
 * The result is the graph of the file: vertices in file order (sorted if they are not in topological order),
 * every initializer and every `Constant` a constant tensor, every input that is not an initializer a fed
 * tensor. A dimension without a number is the batch if it is the first of a fed input, or has the same name
 * as one. Any other keeps its name, for the message of dlb_graph_fold if it stays unknown.
 *
 * Vertices of an unknown type, or with an attribute that a graph cannot hold (sparse tensors), get kind -1:
 * they can be planned, and dlb_graph_check_known lists them. The same holds for branches, loops and
 * sequences, which dlb_graph_fold resolves; onnx_body.c reads the graphs inside them. A call of one of the
 * model's own functions is replaced by the function's vertices (onnx_function.c). */
#define _XOPEN_SOURCE 700	/* realpath */
#include "model/onnx.h"
#include <inttypes.h>
#include <libgen.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "graph/order.h"
#include "model/file.h"
#include "model/onnx_reader.h"
#include "util/hash.h"
#include "util/mapped.h"
#include "util/utf8.h"

#define OPSET_MIN 6
#define OPSET_MAX 28
#define EXPORT_OPSET 20	/* default of PyTorch's exporter */
#define MAX_OPERANDS 1000000
#define TRAINING_DOMAIN "ai.onnx.preview.training"

int dlb_reader_check_name(const struct onnx_reader *r, const char *name, const char *what)
{
	if (!dlb_is_utf8(name, strlen(name)))
		return dlb_refuse(r->err, r->name, "the file is damaged: export the model again",
				"name of %s is not UTF-8 text", what);
	return 0;
}

const char *dlb_reader_domain(const char *domain)
{
	return !domain || !strcmp(domain, "ai.onnx") ? "" : domain;
}

static int64_t imported(Onnx__OperatorSetIdProto *const *o, size_t n, const char *domain)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(dlb_reader_domain(o[i]->domain), domain))
			return o[i]->has_version ? o[i]->version : 0;
	return -1;
}

struct onnx_reader *dlb_reader_around(const struct onnx_reader *r)
{
	return r->caller ? r->caller : r->outer;
}

/* A function has its own opset imports; for domains it does not import, the model's hold. */
int64_t dlb_reader_opset(const struct onnx_reader *r, const char *domain)
{
	const Onnx__ModelProto *m = r->all->model;

	while (!r->function && r->outer)
		r = r->outer;
	const Onnx__FunctionProto *f = r->function;
	const int64_t v = f ? imported(f->opset_import, f->n_opset_import, domain) : -1;
	return v >= 0 ? v : imported(m->opset_import, m->n_opset_import, domain);
}

int dlb_reader_fail(const struct onnx_reader *r, const Onnx__NodeProto *p, const char *vertex,
		    const char *fmt, ...)
{
	const char *domain = dlb_reader_domain(p->domain);
	char what[400];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof what, fmt, ap);
	va_end(ap);
	return dlb_fail(r->err, r->name, "%.40s%s%.60s '%.80s' (opset %" PRId64 "): %s", domain,
			*domain ? "." : "", p->op_type, vertex, dlb_reader_opset(r, domain), what);
}

/* True for operators that have the same meaning in opset 1 as in opset 6. */
static bool is_old(const char *type)
{
	static const char *const old[] = { "Conv",          "ConvTranspose", "Flatten", "GlobalAveragePool",
					   "GlobalMaxPool", "Identity",      "LRN",     "LogSoftmax",
					   "MaxPool",       "Not",           "Softmax", "Softplus",
					   "Softsign",      "Transpose" };

	for (int i = 0; i < DLB_LEN(old); i++)
		if (!strcmp(old[i], type))
			return true;
	return false;
}

/* Checks the opset version of vertex p. Unknown domains pass: their vertices are unknown ops. */
static int check_opset(const struct onnx_reader *r, const Onnx__NodeProto *p, const char *vertex)
{
	const char *domain = dlb_reader_domain(p->domain);
	const int64_t v = dlb_reader_opset(r, domain);
	const bool onnx = !*domain, training = !strcmp(domain, TRAINING_DOMAIN);

	if (v < 0) {
		dlb_reader_fail(r, p, vertex, "no opset version is given for domain '%s'",
				onnx ? "ai.onnx" : domain);
		return dlb_hint(r->err, "add the domain to the opset_import of the model or function");
	}
	if (onnx && (v < OPSET_MIN || v > OPSET_MAX) && !(v >= 1 && v < OPSET_MIN && is_old(p->op_type))) {
		dlb_reader_fail(r, p, vertex, "opset %" PRId64 "; dlb reads %d to %d", v, OPSET_MIN,
				OPSET_MAX);
		return dlb_hint(r->err,
				"export with torch.onnx.export(..., opset_version=%d), or convert with "
				"onnx.version_converter",
				EXPORT_OPSET);
	}
	if (training && v != 1) {
		dlb_reader_fail(r, p, vertex, "opset %" PRId64 " of %s; dlb reads 1", v, domain);
		return dlb_hint(r->err, "import %s in version 1", domain);
	}
	if (v > INT32_MAX) {
		dlb_reader_fail(r, p, vertex, "opset %" PRId64 " of domain '%s' is out of range", v, domain);
		return dlb_hint(r->err, "versions of operator sets are small numbers: the file is damaged");
	}
	return 0;
}

/* Refuses newer versions of the file format: lib/model/onnx.proto may lack their fields. */
static int check_ir_version(const struct onnx_reader *r)
{
	const int64_t v = r->all->model->ir_version;

	if (v <= ONNX__VERSION__IR_VERSION)
		return 0;
	dlb_fail(r->err, r->name, "the file has ONNX IR version %" PRId64 "; dlb reads up to %d (ONNX 1.23)",
		 v, (int)ONNX__VERSION__IR_VERSION);
	return dlb_hint(r->err, "export for opset %d or older, or save it with an ir_version of %d",
			OPSET_MAX, (int)ONNX__VERSION__IR_VERSION);
}

/* -- tensors -- */

static struct onnx_reader *own_graph(struct onnx_reader *r)
{
	while (r->caller)
		r = r->caller;
	return r;
}

/* Name of a tensor inside a function: "VERTEX/NAME", with a number appended if the graph has that name. */
static const char *inner_name(struct onnx_reader *r, const char *name)
{
	const struct onnx_reader *base = own_graph(r);
	const char *unique = dlb_arena_printf(&r->g->arena, "%s/%s", r->vertex, name);

	for (int i = 2; dlb_name_map_get(&base->tensor, unique) >= 0; i++)
		unique = dlb_arena_printf(&r->g->arena, "%s/%s.%d", r->vertex, name, i);
	return unique;
}

static int twice(const struct onnx_reader *r, const char *name)
{
	dlb_fail(r->err, r->name, "two tensors have the name '%s'", name);
	return dlb_hint(r->err, "every tensor is made once: rename one of them");
}

int dlb_reader_add_tensor(struct onnx_reader *r, const char *name, enum dlb_tensor_kind kind,
			  const char *what)
{
	if (dlb_reader_check_name(r, name, what))
		return -1;
	int id = r->caller ? dlb_name_map_get(&r->result, name) : -1;
	if (id < 0) {
		id = dlb_graph_add_tensor(r->g, r->caller ? inner_name(r, name) : name, kind);
		if (r->caller)
			dlb_name_map_add(&own_graph(r)->tensor, r->g->tensor[id].name, id);
	}
	return dlb_name_map_add(&r->tensor, r->caller ? name : r->g->tensor[id].name, id) >= 0 ?
		       twice(r, name) :
		       id;
}

int dlb_onnx_check_finite(const char *file, const struct dlb_desc *d, const void *data, const char *name,
			  struct dlb_error *err)
{
	bool infinite = false, finite = false;
	const int64_t n = dlb_dtype_is_float(d->dtype) ? dlb_desc_count(d) : 0;
	for (int64_t i = 0; i < n; i++) {
		const double v = d->dtype == DLB_F32 ? ((const float *)data)[i] :
						       dlb_value_real(data, d->dtype, i);
		if (isnan(v))
			return dlb_refuse(
				err, file,
				"the model was saved after a training that diverged: export an earlier state",
				"weights hold NaN: initializer '%s', element %" PRId64, name, i);
		infinite |= isinf(v);
		finite |= isfinite(v) && v != 0;
	}
	if (infinite && finite)
		return dlb_refuse(
			err, file,
			"the model was saved after a training that diverged: export an earlier state",
			"weights hold infinity: initializer '%s'", name);
	return 0;
}

int dlb_reader_set_constant(struct onnx_reader *r, int id, Onnx__TensorProto *p, bool initializer)
{
	struct dlb_tensor *t = &r->g->tensor[id];
	char what[160];
	struct dlb_desc d;
	void *data;

	snprintf(what, sizeof what, "%s '%.100s'", initializer ? "initializer" : "constant", t->name);
	const struct dlb_onnx_source s = { r->name, what, r->all->files, &r->g->arena, r->err };
	if (dlb_onnx_tensor(p, &s, &d, &data))
		return -1;
	/* mapped external data that were not hashed are not read here */
	const bool looked_at = r->all->files->sha || !dlb_arena_maps(&r->g->arena, data);
	if (initializer && data && looked_at && dlb_onnx_check_finite(r->name, &d, data, t->name, r->err))
		return -1;
	DLB_GROW(r->all->place, r->all->n_places, r->all->cap_places);
	r->all->place[r->all->n_places++] = (struct dlb_onnx_place){ t->name, p };
	t->dtype = d.dtype;
	t->n_dims = d.n_dims;
	for (int i = 0; i < d.n_dims; i++)
		t->dim[i].add = d.dim[i];
	t->data = data;
	t->in_model = true;
	t->initial = initializer;
	return 0;
}

static int read_initializers(struct onnx_reader *r)
{
	if (r->p->n_sparse_initializer)
		return dlb_refuse(r->err, r->name, "make them dense before the export: torch.Tensor.to_dense",
				"sparse initializers are not read (%zu of them)",
				r->p->n_sparse_initializer);
	for (size_t i = 0; i < r->p->n_initializer; i++) {
		Onnx__TensorProto *t = r->p->initializer[i];
		if (!t->name || !*t->name)
			return dlb_refuse(r->err, r->name, "the file is damaged: export the model again",
					"initializer %zu has no name", i);
		if (r->outer && dlb_reader_hoist(r, t->name, t, NULL, NULL))
			return -1;
		if (r->outer)
			continue;
		const int id = dlb_reader_add_tensor(r, t->name, DLB_T_CONSTANT, "an initializer");
		if (id < 0 || dlb_reader_set_constant(r, id, t, true))
			return -1;
	}
	return 0;
}

/* Sets type and shape of a value. If the first dimension of a fed value has no number, it is the batch.
 * Other dimensions without a number stay unknown; `symbol` gets the name of the first. Returns 1 if there
 * is no usable shape, -1 with err. */
int dlb_reader_set_type(struct onnx_reader *r, struct dlb_tensor *t, const Onnx__ValueInfoProto *v, bool fed)
{
	const Onnx__TypeProto *type = v->type;
	if (!type || type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE || !type->tensor_type)
		return 1;
	const Onnx__TypeProto__Tensor *p = type->tensor_type;
	const int dtype = p->has_elem_type ? dlb_dtype_from_onnx(p->elem_type) : -1;
	if (dtype < 0)
		return 1;
	t->dtype = (enum dlb_dtype)dtype;
	t->symbol = NULL;
	if (!p->shape)
		return 1;
	if (p->shape->n_dim > DLB_MAX_DIMS)
		return dlb_refuse(r->err, r->name, "reshape it in the model",
				"tensor '%s' has %zu dimensions; at most %d", t->name, p->shape->n_dim,
				DLB_MAX_DIMS);
	int64_t known[DLB_MAX_DIMS];
	int n_known = 0;
	const char **names = fed ? dlb_arena_array(&r->g->arena, p->shape->n_dim + 1, sizeof *names) : NULL;
	t->dim_name = names;
	for (size_t i = 0; i < p->shape->n_dim; i++) {
		const Onnx__TensorShapeProto__Dimension *d = p->shape->dim[i];
		t->dim[i] = (struct dlb_dim){ 0, -1 };
		if (d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE &&
		    d->dim_value != -1) {
			if (d->dim_value < 0)
				return dlb_refuse(r->err, r->name,
						  "the file is damaged: export the model again",
						  "tensor '%s' has a negative dimension", t->name);
			t->dim[i].add = known[n_known++] = d->dim_value;
			continue;
		}
		const char *symbol = d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM &&
				     d->dim_param ? d->dim_param : "";
		if (dlb_reader_check_name(r, symbol, "a dimension"))
			return -1;
		if (names)
			names[i] = *symbol ? dlb_arena_strdup(&r->g->arena, symbol)
				: dlb_arena_printf(&r->g->arena, "%s:%zu", t->name, i);
		if (fed && i == 0 && *symbol)
			dlb_name_map_add(&r->batch, symbol, 0);
		if ((fed && i == 0) || (*symbol && dlb_name_map_get(&r->batch, symbol) >= 0))
			t->dim[i] = (struct dlb_dim){ 1, 0 };
		else if (!t->symbol)
			t->symbol = dlb_arena_strdup(&r->g->arena, *symbol ? symbol : "?");
	}
	if (dlb_checked_count(known, n_known) < 0)
		return dlb_refuse(r->err, r->name, "the file is damaged: export the model again",
				"shape of tensor '%s' is too large", t->name);
	t->n_dims = (int)p->shape->n_dim;
	return 0;
}

/* Reads the fed inputs: those that are not initializers. Their first dimensions give the batch its names. */
static int read_inputs(struct onnx_reader *r)
{
	struct dlb_graph *g = r->g;
	g->input = dlb_arena_array(&g->arena, r->p->n_input + 1, sizeof *g->input);
	for (size_t i = 0; i < r->p->n_input; i++) {
		const Onnx__ValueInfoProto *v = r->p->input[i];
		if (!v->name || !*v->name)
			return dlb_refuse(r->err, r->name, "the file is damaged: export the model again",
					"input %zu has no name", i);
		const int old = dlb_name_map_get(&r->tensor, v->name);
		if (old >= 0 && g->tensor[old].kind == DLB_T_CONSTANT)
			continue;
		const int id = dlb_reader_add_tensor(r, v->name, DLB_T_INPUT, "an input");
		if (id < 0)
			return -1;
		g->input[g->n_inputs++] = id;
		const int rc = dlb_reader_set_type(r, &g->tensor[id], v, true);
		if (rc > 0)
			return dlb_refuse(r->err, r->name,
					  "inputs are tensors of numbers with a shape: export with tensors "
					  "as arguments",
					  "input '%s' is no tensor of a known type and shape", v->name);
		if (rc)
			return -1;
	}
	/* a second pass, with all names of the batch: an earlier input may use a later input's name */
	for (size_t i = 0; i < r->p->n_input; i++) {
		struct dlb_tensor *t = &g->tensor[dlb_name_map_get(&r->tensor, r->p->input[i]->name)];
		if (t->kind == DLB_T_INPUT && dlb_reader_set_type(r, t, r->p->input[i], true))
			return -1;
	}
	return 0;
}

/* Reads the formal inputs of a body. Their types are only hints: the operands of the vertex decide. */
static int read_formals(struct onnx_reader *r)
{
	struct dlb_graph *g = r->g;

	g->input = dlb_arena_array(&g->arena, r->p->n_input + 1, sizeof *g->input);
	for (size_t i = 0; i < r->p->n_input; i++) {
		const Onnx__ValueInfoProto *v = r->p->input[i];
		if (!v->name || !*v->name)
			return dlb_refuse(r->err, r->name, "the file is damaged: export the model again",
					"input %zu of a body of '%s' has no name", i, r->vertex);
		const int id = dlb_reader_add_tensor(r, v->name, DLB_T_INPUT, "an input");
		if (id < 0 || dlb_reader_set_type(r, &g->tensor[id], v, false) < 0)
			return -1;
		g->input[g->n_inputs++] = id;
	}
	return 0;
}

/* Takes the type in value_info or of an output as a hint, if it is complete and a vertex makes the tensor. */
static int read_hint(struct onnx_reader *r, const Onnx__ValueInfoProto *v)
{
	const int id = v->name ? dlb_name_map_get(&r->tensor, v->name) : -1;
	if (id < 0 || r->g->tensor[id].kind != DLB_T_ACTIVATION)
		return 0;
	struct dlb_tensor t = r->g->tensor[id];
	const int rc = dlb_reader_set_type(r, &t, v, false);
	if (rc < 0)
		return -1;
	if (rc > 0 || t.symbol)
		t.n_dims = -1;
	t.symbol = NULL;
	r->g->tensor[id] = t;
	return 0;
}

const char *dlb_reader_vertex_name(struct onnx_reader *r, const char *name)
{
	struct dlb_name_map *taken = &own_graph(r)->vertices;
	const char *unique = name;

	for (int again = 2; dlb_name_map_add(taken, unique, 0) >= 0; again++)
		unique = dlb_arena_printf(&r->g->arena, "%s_%d", name, again);
	return unique;
}

/* Returns the vertex's own name, or TYPE_INDEX; a number is appended if the name is taken. */
static const char *vertex_name(struct onnx_reader *r, const Onnx__NodeProto *p, size_t index)
{
	struct dlb_arena *a = &r->g->arena;
	const bool named = p->name && *p->name;
	const char *name = named ? p->name : dlb_arena_printf(a, "%s_%zu", p->op_type, index);

	if (r->caller)
		name = dlb_arena_printf(a, "%s/%s", r->vertex, name);
	return dlb_reader_vertex_name(r, name);
}

int dlb_reader_operand(struct onnx_reader *r, const Onnx__NodeProto *p, const char *name, const char *vertex)
{
	if (!name || !*name)
		return -1;
	const int id = dlb_reader_find(r, name);
	if (id >= 0)
		return id;
	for (const struct onnx_reader *at = r; at; at = at->outer)
		if (dlb_name_map_get(&at->absent, name) >= 0)
			return -1;
	dlb_reader_fail(r, p, vertex, "reads tensor '%s', which nothing makes", name);
	dlb_hint(r->err, "the file is damaged, or was cut out of a larger model without its inputs");
	const char **names = dlb_xcalloc((size_t)r->g->n_tensors + 1, sizeof *names);
	for (int i = 0; i < r->g->n_tensors; i++)
		names[i] = r->g->tensor[i].name;
	dlb_hint_nearest(r->err, name, names, r->g->n_tensors <= 10000 ? r->g->n_tensors : 0, NULL);
	free(names);
	return -2;
}

/* Refuses attributes that the operator does not have: ignoring them would change the model's meaning. */
static int check_attributes(const struct onnx_reader *r, const Onnx__NodeProto *p, const char *vertex,
			    const struct dlb_attr *attr, int n)
{
	const char *domain = dlb_reader_domain(p->domain);
	struct dlb_error err = { 0 };

	if (*domain || !dlb_op_check_attributes(p->op_type, (int)dlb_reader_opset(r, domain), attr, n, &err))
		return 0;
	dlb_reader_fail(r, p, vertex, "%s", err.what);
	return dlb_hint(r->err, "%s", err.hint);
}

static int read_vertex(struct onnx_reader *r, const Onnx__NodeProto *p, const char *name)
{
	const char *domain = dlb_reader_domain(p->domain);
	const Onnx__FunctionProto *function = dlb_reader_function(r, p);
	if (function)
		return dlb_reader_call(r, p, name, function);
	struct dlb_attr *attr = dlb_xcalloc(p->n_attribute + 3, sizeof *attr);
	int *in = dlb_arena_array(&r->g->arena, p->n_input + 1, sizeof *in);
	int *out = dlb_xcalloc(p->n_output + 1, sizeof *out);
	int n_in = (int)p->n_input, n_out = (int)p->n_output;
	int n_attr = dlb_reader_attributes(r, p, name, attr), rc = n_attr < 0 ? -1 : 0;

	for (int i = 0; i < n_in && !rc; i++)
		if ((in[i] = dlb_reader_operand(r, p, p->input[i], name)) == -2)
			rc = -1;
	for (int i = 0; i < n_out && !rc; i++)
		out[i] = p->output[i] && *p->output[i] ? dlb_name_map_get(&r->tensor, p->output[i]) : -1;
	while (n_in > 0 && in[n_in - 1] < 0)	/* absent trailing operands are dropped */
		n_in--;
	while (n_out > 0 && out[n_out - 1] < 0)
		n_out--;
	const bool unsupported = n_attr > 0 && !strcmp(attr[n_attr - 1].name, DLB_ATTR_UNSUPPORTED);
	if (!rc && !unsupported)
		rc = check_attributes(r, p, name, attr, n_attr);
	if (!rc)
		rc = dlb_reader_bodies(r, p, name, &in, &n_in, attr, &n_attr);
	const int64_t padding = dlb_reader_padding_row(p);
	if (padding >= 0)
		attr[n_attr++] = (struct dlb_attr){ .name = "padding", .type = DLB_ATTR_INT, .i = padding };
	if (!rc) {
		const int id = dlb_graph_add_op(r->g, DLB_FORWARD,
						&(struct dlb_op_spec){ .name = name, .type = p->op_type,
							.domain = domain, .in = in, .n_in = n_in, .out = out,
							.n_out = n_out, .attr = attr, .n_attr = n_attr });
		r->g->op[id].opset = (int)dlb_reader_opset(r, domain);
		if (unsupported)
			r->g->op[id].kind = -1;
		dlb_reader_uses(r, p, id);
	}
	free(attr);
	free(out);
	return rc;
}

/* Starts vertex i of its scope: finds its name in the graph and checks that it can be read. */
static int open_vertex(struct onnx_reader *r, const Onnx__NodeProto *p, size_t i, const char **name)
{
	if (!p->op_type || !*p->op_type) {
		dlb_fail(r->err, r->name, "vertex %zu%s%s has no op type", i, r->vertex ? " in " : "",
			 r->vertex ? r->vertex : "");
		return dlb_hint(r->err, "the file is damaged: export it again");
	}
	if (dlb_reader_check_name(r, p->op_type, "an op type") ||
	    dlb_reader_check_name(r, dlb_reader_domain(p->domain), "a domain") ||
	    dlb_reader_check_name(r, p->name ? p->name : "", "a vertex"))
		return -1;
	*name = vertex_name(r, p, i);
	if (!dlb_reader_function(r, p) && check_opset(r, p, *name))
		return -1;
	if (p->n_input > MAX_OPERANDS || p->n_output > MAX_OPERANDS) {
		dlb_reader_fail(r, p, *name, "too many operands (%zu inputs, %zu outputs)", p->n_input,
				p->n_output);
		return dlb_hint(r->err, "at most %d are read", MAX_OPERANDS);
	}
	return 0;
}

/* Adds the output tensors of a vertex. *id: the last one. */
static int add_made(struct onnx_reader *r, const Onnx__NodeProto *p, const char *name, int *id)
{
	*id = -1;
	for (size_t k = 0; k < p->n_output; k++) {
		const char *made = p->output[k];
		if (!made || !*made)
			continue;
		if (dlb_name_map_get(&r->tensor, made) >= 0 || dlb_name_map_get(&r->absent, made) >= 0) {
			dlb_reader_fail(r, p, name, "makes tensor '%s', which exists already", made);
			return dlb_hint(r->err, "every tensor is made once: rename one of them");
		}
		if ((*id = dlb_reader_add_tensor(r, made, DLB_T_ACTIVATION, "a tensor")) < 0)
			return -1;
	}
	if (*id >= 0)
		return 0;
	dlb_reader_fail(r, p, name, "makes nothing");
	return dlb_hint(r->err, "remove the vertex");
}

/* Returns 1 if vertex p is a `Constant`, which needs no op; 0 if its output tensors were added; -1 with
 * err. */
static int prepare(struct onnx_reader *r, const Onnx__NodeProto *p, const char *name)
{
	const bool is_constant = !strcmp(p->op_type, "Constant") && !*dlb_reader_domain(p->domain) &&
				 p->n_output == 1 && p->output[0] && *p->output[0] &&
				 !dlb_reader_function(r, p);
	int id;

	if (is_constant && dlb_reader_in_body(r))
		return dlb_reader_hoist(r, p->output[0], NULL, p, name) ? -1 : 1;
	if (add_made(r, p, name, &id))
		return -1;
	const int rc = is_constant ? dlb_reader_constant(r, p, name, r, id) : 1;
	if (!rc)
		r->g->tensor[id].kind = DLB_T_CONSTANT;
	return rc < 0 ? -1 : !rc;
}

/* Two passes, so that the order in the file does not matter: first all tensors that vertices make and all
 * `Constant`s, then the vertices that read them. */
int dlb_reader_vertices(struct onnx_reader *r, Onnx__NodeProto *const *node, size_t n)
{
	bool *constant = dlb_xcalloc(n + 1, sizeof *constant);
	const char **name = dlb_xcalloc(n + 1, sizeof *name);
	int rc = 0;

	for (size_t i = 0; i < n && !rc; i++) {
		rc = open_vertex(r, node[i], i, &name[i]) ? -1 : prepare(r, node[i], name[i]);
		constant[i] = rc > 0;
		rc = rc < 0 ? -1 : 0;
	}
	for (size_t i = 0; i < n && !rc; i++)
		if (!constant[i])
			rc = read_vertex(r, node[i], name[i]);
	free(constant);
	free(name);
	return rc;
}

static int read_outputs(struct onnx_reader *r)
{
	struct dlb_graph *g = r->g;
	g->output = dlb_arena_array(&g->arena, r->p->n_output + 1, sizeof *g->output);
	for (size_t i = 0; i < r->p->n_output; i++) {
		const Onnx__ValueInfoProto *v = r->p->output[i];
		const int id = v->name ? dlb_reader_find(r, v->name) : -1;
		if (id < 0)
			return dlb_refuse(r->err, r->name, "remove the output, or export the model again",
					"nothing makes output '%s'", v->name ? v->name : "");
		g->output[g->n_outputs++] = id;
	}
	if (!g->n_outputs && !r->outer)
		return dlb_refuse(r->err, r->name, "export a model that returns something",
				"the graph has no outputs");
	return 0;
}

int dlb_reader_graph(struct onnx_reader *r)
{
	const int64_t opset = dlb_reader_opset(r, "");
	r->g->opset = opset >= OPSET_MIN && opset <= OPSET_MAX ? (int)opset : OPSET_MAX;
	if (read_initializers(r) || (r->outer ? read_formals(r) : read_inputs(r)) ||
	    dlb_reader_vertices(r, r->p->node, r->p->n_node) || read_outputs(r))
		return -1;
	for (size_t i = 0; i < r->p->n_value_info; i++)
		if (read_hint(r, r->p->value_info[i]))
			return -1;
	for (size_t i = 0; i < r->p->n_output; i++)
		if (read_hint(r, r->p->output[i]))
			return -1;
	if (dlb_graph_sort(r->g, r->err) || (!r->outer && dlb_graph_check(r->g, r->err)))
		return dlb_error_at(r->err, r->name);
	return 0;
}

static void release(struct onnx_reader *r)
{
	dlb_name_map_release(&r->tensor);
	dlb_name_map_release(&r->batch);
	dlb_name_map_release(&r->vertices);
	dlb_name_map_release(&r->all->function);
	dlb_name_map_release(&r->all->hoisted);
	dlb_name_map_release(&r->all->listed);
}

/* Reads the graph of an unpacked model. *place (new): location of each tensor's data in the file. */
static int read_model(struct reading *all, const char *name, struct dlb_graph *g, struct dlb_error *err)
{
	struct onnx_reader r = { .name = name, .all = all, .p = all->model->graph, .g = g, .err = err };
	int rc = -1;

	if (!r.p) {
		dlb_fail(err, name, "no graph in it");
		dlb_hint(err, "is it an ONNX model?");
	} else {
		dlb_reader_signature(&r);
		rc = check_ir_version(&r) || dlb_reader_list_functions(&r) || dlb_reader_graph(&r) ? -1 : 0;
	}
	release(&r);
	return rc;
}

int dlb_onnx_places(Onnx__ModelProto *m, const char *name, struct dlb_graph *g, struct dlb_onnx_place **place,
		    int *n, struct dlb_error *err)
{
	struct dlb_onnx_files files = { .unread = true };
	struct reading all = { .model = m,
			       .files = &files,
			       .bytes = protobuf_c_message_get_packed_size(&m->base) };
	const int rc = read_model(&all, name, g, err);

	*place = all.place;
	*n = all.n_places;
	return rc;
}

/* A model's bytes. folder: of the external data; NULL: they are refused. sha: if not NULL, external data are
 * checked and hashed. */
struct input {
	const void *data;
	size_t n;
	const char *name, *folder;
	struct dlb_sha256 *sha;
};

/* *external: total size of the files of external data. */
static int parse(const struct input *in, struct dlb_graph *g, int64_t *external, struct dlb_error *err)
{
	struct dlb_onnx_files files = { .folder = in->folder, .sha = in->sha };
	struct reading all = { .files = &files, .bytes = in->n };
	int rc = -1;

	*external = 0;
	dlb_graph_init(g);
	if (!in->n)
		return dlb_refuse(err, in->name, "was the export cut short?", "empty file");
	all.model = dlb_onnx_unpack(&onnx__model_proto__descriptor, in->data, in->n, in->name, &g->arena,
				    err);
	if (all.model)
		rc = read_model(&all, in->name, g, err);
	g->external_unread = !in->sha && files.n > 0;
	for (int i = 0; i < files.n; i++)
		*external += files.file[i].bytes;
	dlb_onnx_files_close(&files);
	free(all.place);
	if (rc)
		dlb_graph_release(g);
	return rc;
}

int dlb_onnx_parse(const void *data, size_t n, const char *name, struct dlb_graph *g, struct dlb_error *err)
{
	const struct input in = { .data = data, .n = n, .name = name };
	int64_t external;

	return parse(&in, g, &external, err);
}

static int read_file(const char *path, bool whole, struct dlb_graph *g, int64_t *external,
		     struct dlb_error *err)
{
	struct dlb_file f;
	char sha[65];

	dlb_graph_init(g);
	if (dlb_file_open(path, &f, err))
		return -1;
	char *full = realpath(path, NULL);
	char *copy = dlb_xstrdup(full ? full : path);
	struct dlb_sha256 *digest = dlb_sha256_new();
	dlb_sha256_add(digest, f.data, f.n);
	const struct input in = { f.data, f.n, path, full ? dirname(copy) : NULL, whole ? digest : NULL };
	int rc = parse(&in, g, external, err);
	dlb_sha256_end(digest, sha);
	if (!rc && full && !dlb_is_utf8(full, strlen(full)))
		rc = dlb_refuse(err, path, "rename the folder", "the path of the model is not UTF-8 text");
	if (!rc && !(rc = dlb_mapped_check(err)) && full) {
		g->model_path = dlb_arena_strdup(&g->arena, full);
		g->model_sha256 = dlb_arena_strdup(&g->arena, sha);
	}
	if (rc)
		dlb_graph_release(g);
	dlb_file_close(&f);
	free(copy);
	free(full);
	return rc;
}

int dlb_onnx_read(const char *path, struct dlb_graph *g, struct dlb_error *err)
{
	int64_t external;

	return read_file(path, true, g, &external, err);
}

/* Bytes of external data. Fewer are hashed in a tenth of a second. */
enum { SKIM_LEAST = 64 << 20 };

int dlb_onnx_skim(const char *path, struct dlb_graph *g, struct dlb_error *err)
{
	int64_t external;

	if (read_file(path, false, g, &external, err))
		return -1;
	if (external > 0 && external < SKIM_LEAST) {
		dlb_graph_release(g);
		return dlb_onnx_read(path, g, err);
	}
	if (external)
		dlb_graph_note(g,
			       "%.3g GB of weights in other files are not hashed with --analytic: dlb-run will "
			       "not notice if they change",
			       (double)external * 1e-9);
	return 0;
}
