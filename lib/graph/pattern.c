/* Matches patterns of ops in the forward graph: see pattern.h. */
#include "graph/order.h"
#include "graph/pattern.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool dlb_is_op(const struct dlb_graph *g, int i, const char *type)
{
	return i >= 0 && g->op[i].phase == DLB_FORWARD && g->op[i].n_out > 0 && !*g->op[i].domain &&
		!strcmp(g->op[i].type, type);
}

/* Reads operand k of an op, one constant integer; false: it is not one. */
static bool constant_int(const struct dlb_graph *g, const struct dlb_op *o, int k, int64_t *v)
{
	const struct dlb_tensor *x = k < o->n_in && o->in[k] >= 0 ? &g->tensor[o->in[k]] : NULL;
	const struct dlb_desc d = x ? dlb_tensor_desc(x, 1) : (struct dlb_desc){ .n_dims = 0 };

	if (!x || x->kind != DLB_T_CONSTANT || !x->data || x->data_mul || !dlb_dtype_is_int(x->dtype) ||
	    dlb_desc_count(&d) != 1)
		return false;
	*v = dlb_value_int(x->data, x->dtype, 0);
	return true;
}

bool dlb_is_range(const struct dlb_graph *g, int i, int *axis, int64_t *first, int64_t *count)
{
	int64_t end = 0, along = 0, step = 1;

	if (!dlb_is_op(g, i, "Gather") && !dlb_is_op(g, i, "Slice"))
		return false;
	const struct dlb_op *o = &g->op[i];
	const struct dlb_tensor *x = &g->tensor[o->in[0]], *y = &g->tensor[o->out[0]];
	if (dlb_is_op(g, i, "Gather"))
		along = dlb_attr_int(o->attr, o->n_attr, "axis", 0);
	else if (!constant_int(g, o, 2, &end) || !constant_int(g, o, 3, &along) ||
		 (o->n_in > 4 && o->in[4] >= 0 && (!constant_int(g, o, 4, &step) || step != 1)))
		return false;
	*axis = (int)(along < 0 ? along + x->n_dims : along);
	if (!constant_int(g, o, 1, first) || *axis < 0 || *axis >= x->n_dims || x->dim[*axis].mul)
		return false;
	*first += *first < 0 ? x->dim[*axis].add : 0;
	*count = dlb_is_op(g, i, "Slice") && y->n_dims == x->n_dims && !y->dim[*axis].mul ? y->dim[*axis].add
		: dlb_is_op(g, i, "Gather");
	return *first >= 0 && *count >= 1 && *first <= x->dim[*axis].add - *count;
}

static bool note(struct dlb_match *m, int op)
{
	for (int i = 0; i < m->n; i++)
		if (m->op[i] == op)
			return true;
	if (m->n == DLB_MATCH_MAX)
		return false;
	m->op[m->n++] = op;
	return true;
}

int dlb_match_op(struct dlb_match *m, int t, const char *type)
{
	const int op = t < 0 ? -1 : m->g->tensor[t].producer;

	return dlb_is_op(m->g, op, type) && m->g->op[op].out[0] == t && note(m, op) ? op : -1;
}

int dlb_match_operand(struct dlb_match *m, int i, const char *type, int *other)
{
	const struct dlb_op *o = &m->g->op[i];

	for (int k = 0; k < 2 && o->n_in == 2; k++) {
		const int op = dlb_match_op(m, o->in[k], type);
		*other = o->in[1 - k];
		if (op >= 0)
			return op;
	}
	return -1;
}

int dlb_match_other(const struct dlb_match *m, int i, int t)
{
	const struct dlb_op *o = &m->g->op[i];

	if (o->n_in != 2 || (o->in[0] != t && o->in[1] != t))
		return -1;
	return o->in[0] == t ? o->in[1] : o->in[0];
}

bool dlb_match_scalar(const struct dlb_graph *g, int t, double *v)
{
	const struct dlb_tensor *x = t < 0 ? NULL : &g->tensor[t];

	if (!x || x->kind != DLB_T_CONSTANT || !dlb_dtype_is_float(x->dtype) || x->data_mul ||
	    (!x->data && !x->is_fill))
		return false;
	for (int i = 0; i < x->n_dims; i++)
		if (x->dim[i].mul || x->dim[i].add != 1)
			return false;
	*v = x->is_fill ? x->fill : dlb_value_real(x->data, x->dtype, 0);
	return true;
}

bool dlb_match_near(double a, double b)
{
	return fabs(a - b) <= 1e-6 * fabs(b);
}

bool dlb_match_scalar_operand(const struct dlb_match *m, int i, double v, int *other)
{
	const struct dlb_op *o = &m->g->op[i];

	for (int k = 0; k < 2 && o->n_in == 2; k++) {
		double is;
		if (dlb_match_scalar(m->g, o->in[k], &is) && dlb_match_near(is, v)) {
			*other = o->in[1 - k];
			return true;
		}
	}
	return false;
}

bool dlb_match_same_shape(const struct dlb_graph *g, int a, int b)
{
	const struct dlb_tensor *x = &g->tensor[a], *y = &g->tensor[b];

	if (x->n_dims != y->n_dims || x->n_dims < 0 || x->dtype != y->dtype)
		return false;
	for (int i = 0; i < x->n_dims; i++)
		if (x->dim[i].mul != y->dim[i].mul || x->dim[i].add != y->dim[i].add)
			return false;
	return true;
}

bool dlb_match_read_once(const struct dlb_graph *g, int t)
{
	return t >= 0 && !dlb_graph_is_output(g, t) && t != g->loss &&
	       g->reader_start[t + 1] - g->reader_start[t] == 1;
}

static bool among(const struct dlb_match *m, int op)
{
	for (int i = 0; i < m->n; i++)
		if (m->op[i] == op)
			return true;
	return op == m->root;
}

static bool read_inside(const struct dlb_match *m, int t)
{
	const struct dlb_graph *g = m->g;

	if (dlb_graph_is_output(g, t) || t == g->loss)
		return false;
	for (int r = g->reader_start[t]; r < g->reader_start[t + 1]; r++)
		if (!among(m, g->reader[r]))
			return false;
	return true;
}

bool dlb_match_closed(const struct dlb_match *m)
{
	for (int i = 0; i < m->n; i++) {
		const struct dlb_op *o = &m->g->op[m->op[i]];
		for (int k = 0; k < o->n_out; k++)
			if (o->out[k] >= 0 && !read_inside(m, o->out[k]))
				return false;
	}
	const struct dlb_op *root = &m->g->op[m->root];
	for (int k = 1; k < root->n_out; k++)
		if (root->out[k] >= 0 &&
		    (dlb_graph_is_output(m->g, root->out[k]) ||
		     m->g->reader_start[root->out[k]] != m->g->reader_start[root->out[k] + 1]))
			return false;
	return true;
}

int dlb_match_fuse(struct dlb_match *m, const struct dlb_op_spec *s, int name_of, int64_t *count,
		   struct dlb_error *err)
{
	const char *domain = s->domain ? s->domain : "";
	struct dlb_graph *g = m->g;
	struct dlb_op *o = &g->op[m->root];
	int *operands = dlb_arena_array(&g->arena, (size_t)s->n_in + 1, sizeof *operands);

	memcpy(operands, s->in, (size_t)s->n_in * sizeof *s->in);
	/* attr may belong to an op that is removed */
	const struct dlb_attr *copy = dlb_attr_copy(&g->arena, s->attr, s->n_attr);
	if (name_of >= 0 && name_of != m->root) {
		const char *name = g->op[name_of].name;
		/* keeps names unique until the op is removed */
		dlb_graph_rename_op(g, name_of, o->name);
		dlb_graph_rename_op(g, m->root, name);
	}
	for (int i = 0; i < m->n; i++)
		g->op[m->op[i]].n_in = g->op[m->op[i]].n_out = 0;
	o->type = dlb_arena_strdup(&g->arena, s->type);
	o->domain = dlb_arena_strdup(&g->arena, domain);
	o->kind = dlb_op_kind_find(s->type, domain);
	o->in = operands;
	o->n_in = s->n_in;
	o->n_out = 1;
	o->attr = (struct dlb_attr *)copy;
	o->n_attr = s->n_attr;
	dlb_graph_index(g);
	(*count)++;
	return dlb_graph_infer_new(g, m->root, err);
}

int dlb_match_shape(struct dlb_graph *g, const char *name, const struct dlb_dim *dim, int n)
{
	int64_t add[DLB_MAX_DIMS], mul[DLB_MAX_DIMS];
	bool follows = false;

	for (int i = 0; i < n; i++) {
		add[i] = dim[i].add;
		mul[i] = dim[i].mul;
		follows |= mul[i] != 0;
	}
	const struct dlb_desc d = { .dtype = DLB_I64, .n_dims = 1, .dim = { n } };
	return dlb_graph_add_constant(g, dlb_arena_printf(&g->arena, "%s.shape", name), &d, add,
				      follows ? mul : NULL);
}

void dlb_graph_place_added(struct dlb_graph *g, const struct dlb_added *added, int n_ops)
{
	int *order = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *order), n = 0;

	for (int i = 0; i < n_ops; i++) {
		for (int k = 0; k < added[i].n; k++)
			order[n++] = added[i].first + k;
		order[n++] = i;
	}
	dlb_graph_reorder(g, order, n);
	free(order);
}
