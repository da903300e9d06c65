/* Functions of the model: a vertex that calls one is replaced by the function's vertices. See onnx_reader.h.
 *
 * A call binds formal inputs and outputs to tensors of the caller, and attribute names to values: those of
 * the call, else the function's defaults. Vertices of the function refer to them by ref_attr_name; an
 * attribute without a value is left out. Opset versions come from the function's opset_import. A function may
 * call other functions but not itself. The expansion is limited: a small file of nested calls could expand to
 * more vertices than memory holds. */
#include <stdlib.h>
#include <string.h>
#include "model/onnx_reader.h"

enum { MAX_SCOPES = 100 };			/* nesting of functions and bodies */
enum { MAX_EXPANDED = 250000 };			/* vertices that calls may add */
/* limit of expanded functions: MAX_BYTES + TIMES_FILE * file size */
enum { MAX_BYTES = 1 << 22, TIMES_FILE = 16 };

static const char *key_of(struct dlb_arena *a, const char *domain, const char *name, const char *overload)
{
	return dlb_arena_printf(a, "%s\n%s\n%s", dlb_reader_domain(domain), name, overload ? overload : "");
}

int dlb_reader_list_functions(struct onnx_reader *r)
{
	const Onnx__ModelProto *m = r->all->model;

	for (size_t i = 0; i < m->n_functions; i++) {
		const Onnx__FunctionProto *f = m->functions[i];
		if (!f->name || !*f->name) {
			dlb_fail(r->err, r->name, "function %zu has no name", i);
			return dlb_hint(r->err, "the file is damaged: export it again");
		}
		if (dlb_reader_check_name(r, f->name, "a function") ||
		    dlb_reader_check_name(r, dlb_reader_domain(f->domain), "a domain"))
			return -1;
		if (dlb_name_map_add(&r->all->function, key_of(&r->g->arena, f->domain, f->name, f->overload),
				     (int)i) >= 0) {
			dlb_fail(r->err, r->name, "two functions are called '%s' in domain '%s'", f->name,
				 dlb_reader_domain(f->domain));
			return dlb_hint(r->err, "give one another name or overload");
		}
	}
	return 0;
}

const Onnx__FunctionProto *dlb_reader_function(const struct onnx_reader *r, const Onnx__NodeProto *p)
{
	const struct dlb_name_map *all = &r->all->function;
	const int i = all->n ? dlb_name_map_get(all,
						key_of(&r->g->arena, p->domain, p->op_type, p->overload)) :
			       -1;

	return i < 0 ? NULL : r->all->model->functions[i];
}

/* -- limits of expansion -- */

static int check_depth(const struct onnx_reader *r, const Onnx__NodeProto *p, const char *vertex,
		       const Onnx__FunctionProto *f)
{
	int n = 0;

	for (const struct onnx_reader *at = r; at; at = dlb_reader_around(at)) {
		if (at->function == f) {
			dlb_reader_fail(r, p, vertex, "function '%s' calls itself", f->name);
			return dlb_hint(r->err, "ONNX has no recursion: write it as a Loop");
		}
		if (++n >= MAX_SCOPES) {
			dlb_reader_fail(r, p, vertex, "functions and bodies are nested more than %d deep",
					MAX_SCOPES);
			return dlb_hint(r->err, "inline them before: onnx.inliner.inline_local_functions");
		}
	}
	return 0;
}

static int check_growth(const struct onnx_reader *r, const Onnx__NodeProto *p, const char *vertex,
			const Onnx__FunctionProto *f)
{
	struct reading *all = r->all;

	all->n_expanded += f->n_node + 1;
	all->expanded_bytes += protobuf_c_message_get_packed_size(&f->base);
	if (all->n_expanded <= MAX_EXPANDED &&
	    all->expanded_bytes / TIMES_FILE <= all->bytes + MAX_BYTES / TIMES_FILE)
		return 0;
	dlb_reader_fail(r, p, vertex, "calls of functions expand too far (%zu vertices, %zu bytes)",
			all->n_expanded, all->expanded_bytes);
	return dlb_hint(r->err, "at most %d vertices and %d bytes more than %d times the file are read",
			MAX_EXPANDED, MAX_BYTES, TIMES_FILE);
}

/* -- attributes -- */

/* Binds a name; the first value bound to a name holds. */
static void bind(struct onnx_reader *f, const char *name, const Onnx__AttributeProto *a)
{
	if (dlb_name_map_add(&f->bound_name, name, f->n_bound) < 0)
		f->bound[f->n_bound++] = a;
}

static int bind_attributes(struct onnx_reader *f, const Onnx__NodeProto *p)
{
	const Onnx__FunctionProto *d = f->function;
	const size_t n = p->n_attribute + d->n_attribute_proto;

	f->bound = dlb_xcalloc(n + 1, sizeof *f->bound);
	for (size_t i = 0; i < p->n_attribute; i++) {
		const Onnx__AttributeProto *a = p->attribute[i], *to;
		if (dlb_reader_refer(f->caller, p, f->vertex, a, &to))
			return -1;
		if (to && to->g) {
			dlb_reader_fail(f->caller, p, f->vertex,
					"attribute '%s' gives a graph to function '%s'",
					a->name ? a->name : "", d->name);
			return dlb_hint(f->err, "inline it before: onnx.inliner.inline_local_functions");
		}
		if (to && a->name)
			bind(f, a->name, to);
	}
	for (size_t i = 0; i < d->n_attribute_proto; i++)
		if (d->attribute_proto[i]->name)
			bind(f, d->attribute_proto[i]->name, d->attribute_proto[i]);
	return 0;
}

int dlb_reader_refer(struct onnx_reader *r, const Onnx__NodeProto *p, const char *vertex,
		     const Onnx__AttributeProto *a, const Onnx__AttributeProto **to)
{
	const char *name = a->ref_attr_name;

	*to = a;
	if (!name || !*name)
		return 0;
	while (r->outer && !r->function)
		r = r->outer;
	if (!r->function) {
		dlb_reader_fail(r, p, vertex,
				"attribute '%s' refers to attribute '%s' of a function, but is in none",
				a->name ? a->name : "", name);
		return dlb_hint(r->err, "give the attribute a value");
	}
	const int at = dlb_name_map_get(&r->bound_name, name);
	*to = at < 0 ? NULL : r->bound[at];
	if (!*to || !a->has_type || !(*to)->has_type || (*to)->type == a->type)
		return 0;
	dlb_reader_fail(r, p, vertex, "attribute '%s' is of type %d, but '%s' of function '%s' of type %d",
			a->name ? a->name : "", (int)a->type, name, r->function->name, (int)(*to)->type);
	return dlb_hint(r->err, "call the function with an attribute of the type that it uses");
}

/* -- operands -- */

static int wrong_formal(struct onnx_reader *f, const Onnx__NodeProto *p, const char *what)
{
	dlb_reader_fail(f->caller, p, f->vertex, "%s of function '%s' has no name, or a name that is in use",
			what, f->function->name);
	return dlb_hint(f->err, "the function is damaged: export the model again");
}

static int bind_inputs(struct onnx_reader *f, const Onnx__NodeProto *p)
{
	const Onnx__FunctionProto *d = f->function;

	for (size_t i = 0; i < d->n_input; i++) {
		const char *formal = d->input[i];
		const int id = i < p->n_input ? dlb_reader_operand(f->caller, p, p->input[i], f->vertex) : -1;
		if (id == -2)
			return -1;
		if (!formal || !*formal || dlb_name_map_get(&f->tensor, formal) >= 0 ||
		    dlb_name_map_get(&f->absent, formal) >= 0)
			return wrong_formal(f, p, "an input");
		dlb_name_map_add(id < 0 ? &f->absent : &f->tensor, formal, id < 0 ? 0 : id);
	}
	return 0;
}

/* Returns the caller's tensor for formal output i; -1: none. */
static int wanted(const struct onnx_reader *f, const Onnx__NodeProto *p, size_t i)
{
	return i < p->n_output && p->output[i] && *p->output[i] ?
		       dlb_name_map_get(&f->caller->tensor, p->output[i]) :
		       -1;
}

static int bind_outputs(struct onnx_reader *f, const Onnx__NodeProto *p)
{
	const Onnx__FunctionProto *d = f->function;

	for (size_t i = 0; i < d->n_output; i++) {
		const int id = wanted(f, p, i);
		if (!d->output[i] || !*d->output[i])
			return wrong_formal(f, p, "an output");
		if (id >= 0)
			dlb_name_map_add(&f->result, d->output[i], id);
	}
	return 0;
}

/* Adds an Identity for each output that no vertex of the function makes directly: an input that is also an
 * output, a tensor that is two outputs, or a constant that a body may not hold. */
static int hand_through(struct onnx_reader *f, const Onnx__NodeProto *p)
{
	const Onnx__FunctionProto *d = f->function;

	for (size_t i = 0; i < d->n_output; i++) {
		const int to = wanted(f, p, i), from = dlb_name_map_get(&f->tensor, d->output[i]);
		if (to < 0 || to == from)
			continue;
		if (from < 0) {
			dlb_reader_fail(f->caller, p, f->vertex,
					"nothing in function '%s' makes its output '%s'", d->name,
					d->output[i]);
			return dlb_hint(
				f->err,
				"the function is damaged, or the call leaves out an input that it needs");
		}
		char *name = dlb_arena_printf(&f->g->arena, "%s/%s", f->vertex, d->output[i]);
		dlb_graph_add_op(f->g, DLB_FORWARD,
				 &(struct dlb_op_spec){ .name = dlb_reader_vertex_name(f, name),
							.type = "Identity", DLB_OPERANDS(from), .out = &to,
							.n_out = 1 });
	}
	return 0;
}

static size_t count_given(char *const *name, size_t n)
{
	while (n > 0 && (!name[n - 1] || !*name[n - 1]))
		n--;
	return n;
}

static int check_operands(const struct onnx_reader *r, const Onnx__NodeProto *p, const char *vertex,
			  const Onnx__FunctionProto *f)
{
	const size_t n_in = count_given(p->input, p->n_input), n_out = count_given(p->output, p->n_output);

	if (n_in <= f->n_input && n_out <= f->n_output)
		return 0;
	dlb_reader_fail(r, p, vertex, "%zu inputs and %zu outputs, where function '%s' has %zu and %zu", n_in,
			n_out, f->name, f->n_input, f->n_output);
	return dlb_hint(r->err, "call it with the operands that it has");
}

int dlb_reader_call(struct onnx_reader *r, const Onnx__NodeProto *p, const char *vertex,
		    const Onnx__FunctionProto *f)
{
	struct onnx_reader in = { .name = r->name,
				  .all = r->all,
				  .g = r->g,
				  .err = r->err,
				  .caller = r,
				  .function = f,
				  .call = p,
				  .vertex = vertex };

	int rc = check_depth(r, p, vertex, f) || check_growth(r, p, vertex, f) ||
				 check_operands(r, p, vertex, f) || bind_attributes(&in, p) ||
				 bind_inputs(&in, p) || bind_outputs(&in, p) ||
				 dlb_reader_vertices(&in, f->node, f->n_node) || hand_through(&in, p) ?
			 -1 :
			 0;
	dlb_name_map_release(&in.tensor);
	dlb_name_map_release(&in.result);
	dlb_name_map_release(&in.absent);
	dlb_name_map_release(&in.bound_name);
	free(in.bound);
	return rc;
}
