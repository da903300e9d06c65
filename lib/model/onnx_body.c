/* Graphs inside vertices: see onnx_reader.h. What becomes of them is lib/graph/structure.c's. */
#include <stdlib.h>
#include <string.h>
#include "model/onnx_reader.h"

static struct reader *outermost(struct reader *r)
{
	while (r->outer)
		r = r->outer;
	return r;
}

static int capture(struct reader *r, int far, const char *name)
{
	const int id = dlb_graph_add_tensor(r->g, r->outer->g->tensor[far].name, DLB_T_INPUT);

	dlb_name_map_add(&r->tensor, name, id);
	DLB_GROW(r->capture, r->n_captures, r->cap_captures);
	r->capture[r->n_captures].in = id;
	r->capture[r->n_captures++].out = far;
	return id;
}

int dlb_reader_find(struct reader *r, const char *name)
{
	const int id = dlb_name_map_get(&r->tensor, name);

	if (id >= 0 || !r->outer)
		return id;
	const int far = dlb_reader_find(r->outer, name);
	return far < 0 ? -1 : capture(r, far, name);
}

static bool is_visible(const struct reader *r, const char *name)
{
	for (; r; r = r->outer)
		if (dlb_name_map_get(&r->tensor, name) >= 0)
			return true;
	return false;
}

/* A name that no graph from here outwards has yet: `name`, or one that tells where it comes from. */
static const char *hoisted_name(struct reader *r, const struct reader *root, const char *name)
{
	struct dlb_arena *a = &root->g->arena;
	const char *unique = name;

	for (int i = 1; is_visible(r, unique); i++)
		unique = i == 1 ? dlb_arena_printf(a, "%s.%s", r->vertex, name)
			: dlb_arena_printf(a, "%s.%s.%d", r->vertex, name, i);
	return unique;
}

int dlb_reader_hoist(struct reader *r, const char *name, const Onnx__TensorProto *p, const Onnx__NodeProto *vertex)
{
	struct reader *root = outermost(r);

	if (dlb_name_map_get(&r->tensor, name) >= 0)
		return dlb_fail(r->err, r->name, "two tensors in a body of '%s' have the name '%s'", r->vertex, name);
	const int id = dlb_reader_add_tensor(root, hoisted_name(r, root, name), DLB_T_CONSTANT, "a constant");
	if (id < 0 || (p && dlb_reader_set_constant(root, id, p, true)))
		return -1;
	const int rc = vertex ? dlb_reader_constant(root, vertex, id) : 0;
	if (rc > 0)
		return dlb_fail(r->err, r->name, "constant '%s' in a body of '%s' is of a kind that dlb does not hold", name,
				r->vertex);
	if (rc)
		return -1;
	const int here = dlb_reader_find(r, root->g->tensor[id].name);
	if (strcmp(root->g->tensor[id].name, name))
		dlb_name_map_add(&r->tensor, name, here);
	return 0;
}

bool dlb_reader_is_body(const Onnx__NodeProto *p, const Onnx__AttributeProto *a)
{
	return a->g && dlb_graph_is_structure(p->op_type, p->domain);
}

/* Operands of the vertex from here on are what the body captures. */
static int read_body(struct reader *r, const Onnx__GraphProto *p, const char *vertex, struct dlb_body *b, int **in, int *n_in)
{
	struct reader inner = { .name = r->name, .folder = r->folder, .model = r->model, .p = p, .g = &b->g, .err = r->err,
				.outer = r, .vertex = vertex };
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
	free(inner.capture);
	return rc;
}

int dlb_reader_bodies(struct reader *r, const Onnx__NodeProto *p, const char *vertex, int **in, int *n_in,
		      struct dlb_attr *attr, int *n_attr)
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
