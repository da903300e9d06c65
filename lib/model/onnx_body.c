/* Reads graphs inside vertices (bodies): see onnx_reader.h. lib/graph/structure.c resolves them. */
#include <stdlib.h>
#include <string.h>
#include "graph/passes.h"
#include "model/onnx_reader.h"

static struct onnx_reader *outermost(struct onnx_reader *r)
{
	for (struct onnx_reader *around; (around = dlb_reader_around(r));)
		r = around;
	return r;
}

bool dlb_reader_in_body(const struct onnx_reader *r)
{
	for (; r; r = dlb_reader_around(r))
		if (r->outer)
			return true;
	return false;
}

/* Makes tensor `far` of the graph around body r an input of r's graph. */
static int capture(struct onnx_reader *r, int far)
{
	const int id = dlb_graph_add_tensor(r->g, r->outer->g->tensor[far].name, DLB_T_INPUT);

	DLB_GROW(r->capture, r->n_captures, r->cap_captures);
	r->capture[r->n_captures].in = id;
	r->capture[r->n_captures++].out = far;
	return id;
}

int dlb_reader_find(struct onnx_reader *r, const char *name)
{
	int id = dlb_name_map_get(&r->tensor, name);

	if (id >= 0 || !r->outer)
		return id;
	const int far = dlb_reader_find(r->outer, name);
	if (far < 0)
		return -1;
	id = capture(r, far);
	dlb_name_map_add(&r->tensor, name, id);
	return id;
}

/* Returns the tensor of r's graph for tensor `id` of the outermost graph,
 * captured by every body between them. */
static int bring(struct onnx_reader *r, int id)
{
	if (r->caller)
		return bring(r->caller, id);
	return r->outer ? capture(r, bring(r->outer, id)) : id;
}

static bool is_visible(const struct onnx_reader *r, const char *name)
{
	for (; r; r = dlb_reader_around(r))
		if (dlb_name_map_get(&r->tensor, name) >= 0)
			return true;
	return false;
}

/* Returns a name that neither this scope nor one around it has: `name`, or `name` after the vertex's name. */
static const char *hoisted_name(struct onnx_reader *r, const struct onnx_reader *root, const char *name)
{
	struct dlb_arena *a = &root->g->arena;
	const char *unique = name;

	for (int i = 1; is_visible(r, unique); i++)
		unique = i == 1 ? dlb_arena_printf(a, "%s.%s", r->vertex, name)
			: dlb_arena_printf(a, "%s.%s.%d", r->vertex, name, i);
	return unique;
}

/* Adds an initializer of a body to the outermost graph. Several calls of one function share one tensor. */
static int hoist_initializer(struct onnx_reader *r, struct onnx_reader *root, const char *name,
			     Onnx__TensorProto *p)
{
	const char *key = dlb_arena_printf(&root->g->arena, "%p", (void *)p);
	int id = dlb_name_map_get(&r->all->hoisted, key);

	if (id >= 0)
		return id;
	id = dlb_reader_add_tensor(root, hoisted_name(r, root, name), DLB_T_CONSTANT, "a constant");
	if (id < 0 || dlb_reader_set_constant(root, id, p, true))
		return -1;
	dlb_name_map_add(&r->all->hoisted, key, id);
	return id;
}

static int hoist_constant(struct onnx_reader *r, struct onnx_reader *root, const char *name,
			  const Onnx__NodeProto *vertex, const char *vertex_name)
{
	const int id = dlb_reader_add_tensor(root, hoisted_name(r, root, name), DLB_T_CONSTANT, "a constant");
	const int rc = id < 0 ? -1 : dlb_reader_constant(r, vertex, vertex_name, root, id);

	if (rc <= 0)
		return rc ? -1 : id;
	dlb_reader_fail(r, vertex, vertex_name,
			"constant '%s' in a body of '%s' is of a kind that dlb does not hold", name,
			r->vertex);
	return dlb_hint(r->err, "numbers are held; strings and sparse tensors are not: remove what reads it "
				"before the export");
}

int dlb_reader_hoist(struct onnx_reader *r, const char *name, Onnx__TensorProto *p,
		     const Onnx__NodeProto *vertex, const char *vertex_name)
{
	struct onnx_reader *root = outermost(r);

	if (dlb_name_map_get(&r->tensor, name) >= 0) {
		dlb_fail(r->err, r->name, "two tensors in a body of '%s' have the name '%s'", r->vertex,
			 name);
		return dlb_hint(r->err, "every tensor is made once: rename one of them");
	}
	const int id = p ? hoist_initializer(r, root, name, p) :
			   hoist_constant(r, root, name, vertex, vertex_name);
	if (id < 0)
		return -1;
	dlb_name_map_add(&r->tensor, name, bring(r, id));
	return 0;
}

bool dlb_reader_is_body(const Onnx__NodeProto *p, const Onnx__AttributeProto *a)
{
	return a->g && dlb_graph_is_structure(p->op_type, p->domain);
}

/* Reads a body. The tensors that it captures are appended to the vertex's operands. */
static int read_body(struct onnx_reader *r, const Onnx__GraphProto *p, const char *vertex, struct dlb_body *b,
		     int **in, int *n_in)
{
	struct onnx_reader inner = { .name = r->name,
				     .all = r->all,
				     .p = p,
				     .g = &b->g,
				     .err = r->err,
				     .outer = r,
				     .vertex = vertex };
	struct dlb_graph *g = &b->g;
	int rc = dlb_reader_graph(&inner);

	if (!rc) {
		const int n = inner.n_captures;
		int *input = dlb_arena_array(&g->arena, (size_t)(g->n_inputs + n) + 1, sizeof *input);
		int *operand = dlb_arena_array(&r->g->arena, (size_t)(*n_in + n) + 1, sizeof *operand);
		b->n_formal = g->n_inputs;
		b->first_capture = *n_in;
		if (g->n_inputs)
			memcpy(input, g->input, (size_t)g->n_inputs * sizeof *input);
		if (*n_in)
			memcpy(operand, *in, (size_t)*n_in * sizeof *operand);
		for (int i = 0; i < n; i++) {
			input[g->n_inputs++] = inner.capture[i].in;
			operand[(*n_in)++] = inner.capture[i].out;
		}
		g->input = input;
		*in = operand;
	}
	dlb_name_map_release(&inner.tensor);
	dlb_name_map_release(&inner.batch);
	dlb_name_map_release(&inner.vertices);
	free(inner.capture);
	return rc;
}

int dlb_reader_bodies(struct onnx_reader *r, const Onnx__NodeProto *p, const char *vertex, int **in,
		      int *n_in, struct dlb_attr *attr, int *n_attr)
{
	for (size_t i = 0; i < p->n_attribute; i++) {
		const Onnx__AttributeProto *a = p->attribute[i];
		int index;
		if (!dlb_reader_is_body(p, a))
			continue;
		struct dlb_body *b = dlb_graph_add_body(outermost(r)->g, &index);
		if (read_body(r, a->g, vertex, b, in, n_in))
			return -1;
		attr[(*n_attr)++] = (struct dlb_attr){ .name = a->name, .type = DLB_ATTR_INT, .i = index };
	}
	return 0;
}
