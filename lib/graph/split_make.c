/* Makes the shards: one pass over the forward graph replaces the split ops.
 *
 *     x ----> Gemm@0 (w rows 0..1365)  --.
 *       `---> Gemm@1 (w rows 1366..)   ---+-> Concat -> y            split along "output"
 *
 *     Split --> Gemm@0 (w columns 0..) --.
 *       `-----> Gemm@1 (w columns ...) ---+-> Sum -> y               split along "input"
 *
 * A whole tensor keeps its name and id. Concat, Sum or Split is added only where a reader needs
 * another form than the one that is computed. A part of a weight names the model's tensor that it
 * belongs to (struct dlb_slice). */
#include <stdlib.h>
#include <string.h>
#include "graph/passes.h"
#include "graph/slice.h"
#include "graph/split.h"

struct parted { int region, *part; struct dlb_split_axis cut; bool is_whole; };	/* region -1: no parts */
struct maker {
	struct dlb_graph *g;
	const struct dlb_split_region *region;
	struct parted *of;			/* [tensor of the original graph] */
	int n_tensors;
	int *order, n_order, cap_order;
	int *output, n_outputs, cap_outputs;	/* outputs that are added to the model's */
	struct dlb_error *err;
};

static struct dlb_split_share share_of(const struct dlb_split_region *r, int k)
{
	const int64_t each = r->units / r->parts, more = r->units % r->parts;

	if (!r->units)
		return (struct dlb_split_share){ .parts = r->parts, .index = k };
	return (struct dlb_split_share){ .units = r->units,
					 .parts = r->parts,
					 .index = k,
					 .count = each + (k < more),
					 .first = k * each + (k < more ? k : more) };
}

/* -- ops -- */

/* Adds and infers an op that makes the tensors s->out[], with this layout. s->name is made unique. */
static int add(struct maker *m, const struct dlb_op_spec *s, enum dlb_layout layout)
{
	struct dlb_graph *g = m->g;
	const int n_out = s->n_out, *out = s->out;
	struct dlb_op_spec own = *s;

	own.name = dlb_graph_op_name(g, s->name);
	const int op = dlb_graph_add_op(g, DLB_FORWARD, &own);
	g->op[op].opset = s->opset;
	for (int k = 0; k < n_out; k++)
		if (out[k] >= 0 && g->tensor[out[k]].kind != DLB_T_BUFFER)
			g->tensor[out[k]].producer = op;
	if (dlb_graph_infer_new(g, op, m->err))
		return -1;
	for (int k = 0; k < n_out; k++)
		if (out[k] >= 0 && g->tensor[out[k]].n_dims >= 3)
			g->tensor[out[k]].layout = layout;
	DLB_GROW(m->order, m->n_order, m->cap_order);
	m->order[m->n_order++] = op;
	return 0;
}

static int new_tensor(struct maker *m, const char *base)
{
	return dlb_graph_add_tensor(m->g, dlb_graph_tensor_name(m->g, base), DLB_T_ACTIVATION);
}

enum { OPSET = 17 };				/* version of the ops added here */

/* -- an axis with several rows of units becomes two axes while parts are taken or joined -- */

static bool in_rows(const struct dlb_tensor *t, struct dlb_split_axis c, int64_t units)
{
	const struct dlb_dim d = t->dim[c.axis];

	return units && (d.mul || d.add != units * c.unit);
}

/* Reshapes t so that the axis of c, with this many units, becomes two: rows, and units in a row;
 * returns the new tensor. */
static int with_rows(struct maker *m, int t, struct dlb_split_axis c, int64_t units)
{
	struct dlb_graph *g = m->g;
	int64_t add_[DLB_MAX_DIMS], mul[DLB_MAX_DIMS], row = units * c.unit;
	const struct dlb_tensor *x = &g->tensor[t];
	const int n = x->n_dims + 1;

	for (int i = 0, k = 0; i < x->n_dims; i++, k++) {
		const bool cut = i == c.axis;
		add_[k] = cut ? x->dim[i].add / row : x->dim[i].add;
		mul[k] = cut ? x->dim[i].mul / row : x->dim[i].mul;
		if (cut) {
			add_[++k] = row;
			mul[k] = 0;
		}
	}
	const struct dlb_desc d = { .dtype = DLB_I64, .n_dims = 1, .dim = { n } };
	const int in[2] = {
		t, dlb_graph_add_constant(g, dlb_arena_printf(&g->arena, "%s.rows.shape", g->tensor[t].name),
					  &d, add_, mul)
	};
	const char *name = dlb_arena_printf(&g->arena, "%s.rows", g->tensor[t].name);
	const int y = new_tensor(m, name);
	return add(m, &(struct dlb_op_spec){ .name = name, .type = "Reshape", .in = in, .n_in = 2, .out = &y,
					     .n_out = 1, .opset = OPSET }, DLB_PLAIN) ? -1 : y;
}

/* Reshapes t to tensor `y`, with these dimensions; y -1: a new tensor. */
static int reshape_to(struct maker *m, int t, const struct dlb_dim *dim, int n, int y)
{
	struct dlb_graph *g = m->g;
	int64_t add_[DLB_MAX_DIMS], mul[DLB_MAX_DIMS];

	for (int i = 0; i < n; i++) {
		add_[i] = dim[i].add;
		mul[i] = dim[i].mul;
	}
	const struct dlb_desc d = { .dtype = DLB_I64, .n_dims = 1, .dim = { n } };
	const int in[2] = {
		t, dlb_graph_add_constant(g, dlb_arena_printf(&g->arena, "%s.shape", g->tensor[y].name), &d,
					  add_, mul)
	};
	return add(m, &(struct dlb_op_spec){ .name = g->tensor[y].name, .type = "Reshape", .in = in,
					     .n_in = 2, .out = &y, .n_out = 1, .opset = OPSET }, DLB_PLAIN);
}

/* -- splitting and joining tensors -- */

static int whole_of(struct maker *m, int t)
{
	struct dlb_graph *g = m->g;
	struct parted *p = t < m->n_tensors ? &m->of[t] : NULL;

	if (!p || p->region < 0 || p->is_whole)
		return t;
	const struct dlb_split_region *r = &m->region[p->region];
	const bool rows = in_rows(&g->tensor[t], p->cut, r->units);
	const struct dlb_attr where[2] = { { .name = "axis", .type = DLB_ATTR_INT, .i = p->cut.axis + rows },
					   { .name = "unit", .type = DLB_ATTR_INT, .i = p->cut.unit } };
	const struct dlb_tensor was = g->tensor[t];
	int *in = dlb_arena_array(&g->arena, (size_t)r->parts, sizeof *in);

	p->is_whole = true;
	/* the name of a weight or buffer in the model stands for its parts, so the joined tensor gets another
	 * name */
	if (was.kind == DLB_T_WEIGHT || was.kind == DLB_T_BUFFER) {
		g->tensor[t].kind = DLB_T_ACTIVATION;
		dlb_graph_rename_tensor(g, t,
					dlb_graph_tensor_name(g, dlb_arena_printf(&g->arena, "%s.whole",
										  was.name)));
		g->tensor[t].data = NULL;
		g->tensor[t].is_fill = g->tensor[t].in_model = g->tensor[t].in_state = g->tensor[t].initial =
			false;
	}
	for (int k = 0; k < r->parts; k++) {
		const struct dlb_split_share s = share_of(r, k);
		in[k] = rows ? with_rows(m, p->part[k], p->cut, s.count) : p->part[k];
		if (in[k] < 0)
			return -1;
	}
	const char *name = dlb_arena_printf(&g->arena, "%s.concat", was.name);
	const int y = rows ? new_tensor(m, name) : t;
	if (!r->units)
		return add(m, &(struct dlb_op_spec){ .name = name, .type = "SampleConcat", .domain = "dlb",
						     .in = in, .n_in = r->parts, .out = &y, .n_out = 1,
						     .attr = where, .n_attr = 2, .opset = OPSET },
			   was.layout) ?
			       -1 :
			       t;
	if (add(m, &(struct dlb_op_spec){ .name = name, .type = "Concat", .in = in, .n_in = r->parts,
					  .out = &y, .n_out = 1, .attr = where, .n_attr = 1, .opset = OPSET },
		was.layout) ||
	    (rows && reshape_to(m, y, was.dim, was.n_dims, t)))
		return -1;
	return t;
}

/* Copies the part's data where the document holds them. */
static void cut_data(struct dlb_graph *g, const struct dlb_slice *s, const struct dlb_tensor *from,
		     struct dlb_tensor *to)
{
	const struct dlb_desc d = dlb_tensor_desc(to, 1);

	if (!from->data || from->data_mul)
		return;
	void *data = dlb_arena_alloc(&g->arena, dlb_desc_bytes(&d) + 1);
	dlb_slice_take(s, dlb_dtype_bytes(from->dtype), from->data, data);
	to->data = data;
}

/* Makes parts of a tensor whose data are in the model or the document; they have its kind. A tensor that is a
 * part itself is divided into smaller parts of the model's tensor. */
static int cut_state(struct maker *m, int t, struct dlb_split_axis c, int *part,
		     const struct dlb_split_region *r)
{
	struct dlb_graph *g = m->g;

	for (int k = 0; k < r->parts; k++) {
		const struct dlb_split_share share = share_of(r, k);
		const struct dlb_tensor was = g->tensor[t];
		struct dlb_slice *s = dlb_arena_alloc(&g->arena, sizeof *s);

		part[k] = dlb_graph_add_tensor(g,
					       dlb_graph_tensor_name(g, dlb_arena_printf(&g->arena, "%s@%d",
											 was.name, k)),
					       was.kind);
		struct dlb_tensor *x = &g->tensor[part[k]];
		const char *name = x->name;
		*x = was;
		x->name = name;
		x->producer = x->home = -1;
		x->dim[c.axis] = dlb_split_dim(was.dim[c.axis], &share);
		if (!r->units) {		/* a constant with equal elements */
			x->samples = (struct dlb_samples){ k, r->parts };
			continue;
		}
		*s = (struct dlb_slice){ .of = was.name,
					 .n_dims = was.n_dims,
					 .axis = c.axis,
					 .units = r->units,
					 .unit = c.unit,
					 .first = share.first,
					 .count = share.count };
		for (int i = 0; i < was.n_dims; i++)
			s->dim[i] = was.dim[i].add;
		cut_data(g, s, &was, x);
		if (was.slice && !dlb_slice_compose(was.slice, s)) {
			dlb_fail(m->err, was.name,
				 "it is a part of '%s' already, and its parts would be none", was.slice->of);
			return dlb_hint(m->err, "split into as many as it takes at once, from the graph that "
						"dlb-profile made");
		}
		x->slice = was.kind == DLB_T_CONSTANT && !x->in_model && !x->in_state ? NULL : s;
	}
	return 0;
}

static bool same_parts(const struct parted *p, int region, struct dlb_split_axis c,
		       const struct dlb_split_region *r)
{
	return p->region >= 0 && r[p->region].units == r[region].units &&
	       r[p->region].parts == r[region].parts && p->cut.axis == c.axis && p->cut.unit == c.unit;
}

/* Divides the samples of whole tensor t. */
static const int *share_out(struct maker *m, int t, int region, struct dlb_split_axis c)
{
	struct dlb_graph *g = m->g;
	const struct dlb_tensor was = g->tensor[t];
	const int parts = m->region[region].parts;
	const struct dlb_attr where[2] = { { .name = "axis", .type = DLB_ATTR_INT, .i = c.axis },
					   { .name = "unit", .type = DLB_ATTR_INT, .i = c.unit } };
	int *part = dlb_arena_array(&g->arena, (size_t)parts, sizeof *part);

	for (int k = 0; k < parts; k++)
		part[k] = new_tensor(m, dlb_arena_printf(&g->arena, "%s@%d", was.name, k));
	if (add(m, &(struct dlb_op_spec){ .name = dlb_arena_printf(&g->arena, "%s.split", was.name),
					  .type = "SampleSplit", .domain = "dlb", .in = &t, .n_in = 1,
					  .out = part, .n_out = parts, .attr = where, .n_attr = 2,
					  .opset = OPSET }, was.layout))
		return NULL;
	if (m->of[t].region < 0)
		m->of[t] = (struct parted){ region, part, c, true };
	return part;
}

/* The parts of tensor t with this cut; NULL with err. */
static const int *parts_of(struct maker *m, int t, int region, struct dlb_split_axis c)
{
	struct dlb_graph *g = m->g;
	const struct dlb_split_region *r = &m->region[region];
	struct parted *p = &m->of[t];
	const enum dlb_tensor_kind kind = g->tensor[t].kind;

	if (same_parts(p, region, c, m->region))
		return p->part;
	int *part = dlb_arena_array(&g->arena, (size_t)r->parts, sizeof *part);
	if (p->region < 0 && (kind == DLB_T_WEIGHT || kind == DLB_T_BUFFER || kind == DLB_T_CONSTANT)) {
		if (cut_state(m, t, c, part, r))
			return NULL;
		*p = (struct parted){ region, part, c, kind == DLB_T_CONSTANT };
		return part;
	}
	if (whole_of(m, t) < 0)
		return NULL;
	if (!r->units)
		return share_out(m, t, region, c);
	const struct dlb_tensor was = g->tensor[t];
	const bool rows = in_rows(&was, c, r->units);
	const struct dlb_attr axis = { .name = "axis", .type = DLB_ATTR_INT, .i = c.axis + rows };
	const struct dlb_desc d = { .dtype = DLB_I64, .n_dims = 1, .dim = { r->parts } };
	int64_t *size = dlb_arena_array(&g->arena, (size_t)r->parts, sizeof *size);
	const char *name = dlb_arena_printf(&g->arena, "%s.split", was.name);

	for (int k = 0; k < r->parts; k++) {
		size[k] = share_of(r, k).count * c.unit;
		part[k] = new_tensor(m, dlb_arena_printf(&g->arena, "%s@%d", was.name, k));
	}
	const int in[2] = { rows ? with_rows(m, t, c, r->units) : t,
			    dlb_graph_add_constant(g, name, &d, size, NULL) };
	if (in[0] < 0 || add(m, &(struct dlb_op_spec){ .name = name, .type = "Split", .in = in, .n_in = 2,
						       .out = part, .n_out = r->parts, .attr = &axis,
						       .n_attr = 1, .opset = OPSET }, was.layout))
		return NULL;
	for (int k = 0; k < r->parts && rows; k++) {
		const struct dlb_split_share s = share_of(r, k);
		struct dlb_dim dim[DLB_MAX_DIMS];
		memcpy(dim, was.dim, sizeof dim);
		dim[c.axis] = dlb_split_dim(dim[c.axis], &s);
		const int y = new_tensor(m, dlb_arena_printf(&g->arena, "%s.row", g->tensor[part[k]].name));
		if (reshape_to(m, part[k], dim, was.n_dims, y))
			return NULL;
		part[k] = y;
	}
	if (p->region < 0)
		*p = (struct parted){ region, part, c, true };
	return part;
}

/* Makes all parts of weights first: a reader of the whole weight may come before an
 * op that needs its parts. */
static int cut_states(struct maker *m, const struct dlb_assigned *assigned, int n_ops)
{
	for (int i = 0; i < n_ops; i++)
		for (int k = 0; k < m->g->op[i].n_in && assigned[i].region >= 0; k++) {
			const int t = m->g->op[i].in[k];
			const struct dlb_assigned *a = &assigned[i];
			if (t < 0 || a->spread.in[k].axis < 0 || m->of[t].region >= 0)
				continue;
			const enum dlb_tensor_kind kind = m->g->tensor[t].kind;
			if ((kind == DLB_T_WEIGHT || kind == DLB_T_BUFFER || kind == DLB_T_CONSTANT) &&
			    !parts_of(m, t, a->region, a->spread.in[k]))
				return -1;
		}
	return 0;
}

/* -- shards -- */

static bool has_relu(const struct dlb_op *o)
{
	return !strcmp(dlb_attr_str(o->attr, o->n_attr, "activation", ""), "Relu");
}

/* Adds a Sum of the shards' outputs, and the activation that the op contained. */
static int add_up(struct maker *m, int op, const int *part, int n)
{
	struct dlb_graph *g = m->g;
	const struct dlb_op o = g->op[op];
	const enum dlb_layout layout = g->tensor[o.out[0]].layout;
	const char *name = dlb_arena_printf(&g->arena, "%s.sum", o.name);
	const bool relu = has_relu(&o) && !strcmp(o.type, "Conv");
	const int y = relu ? new_tensor(m, name) : o.out[0];

	if (add(m, &(struct dlb_op_spec){ .name = name, .type = "Sum", .in = part, .n_in = n, .out = &y,
					  .n_out = 1, .opset = OPSET }, layout))
		return -1;
	return relu ? add(m, &(struct dlb_op_spec){ .name = dlb_arena_printf(&g->arena, "%s.relu", o.name),
						    .type = "Relu", .in = &y, .n_in = 1, .out = &o.out[0],
						    .n_out = 1, .opset = OPSET }, layout) :
		      0;
}

static int make_shard(struct maker *m, int op, const struct dlb_assigned *a, const int *const *part_in, int k,
		      int *out)
{
	struct dlb_graph *g = m->g;
	const struct dlb_op o = g->op[op];
	const struct dlb_split_rule *rule = dlb_split_rule_of(&o);
	struct dlb_shard shard = { .split = &a->spread, .share = share_of(&m->region[a->region], k),
				   .n_attr = o.n_attr, .n_in = o.n_in };

	shard.attr = dlb_arena_array(&g->arena, (size_t)o.n_attr + 4, sizeof *shard.attr);
	if (o.n_attr)
		memcpy(shard.attr, o.attr, (size_t)o.n_attr * sizeof *shard.attr);
	for (int i = 0; i < o.n_in; i++)
		shard.in[i] = part_in[i] ? part_in[i][k] : o.in[i];
	if (rule->fix && rule->fix(g, op, &shard, m->err))
		return -1;
	if (a->spread.sum && k && rule->bias >= 0 && rule->bias < shard.n_in) {
		shard.in[rule->bias] = -1;
		shard.n_in = rule->bias == shard.n_in - 1 ? rule->bias : shard.n_in;
	}
	for (int j = 0; j < o.n_out; j++)
		if (o.out[j] >= 0 && g->tensor[o.out[j]].kind != DLB_T_BUFFER)
			out[j] = new_tensor(m, dlb_arena_printf(&g->arena, "%s@%d", g->tensor[o.out[j]].name,
								k));
	const struct dlb_op_spec s = { .name = dlb_arena_printf(&g->arena, "%s@%d", o.name, k),
				       .type = o.type,
				       .domain = o.domain,
				       .opset = o.opset,
				       .in = shard.in,
				       .n_in = shard.n_in,
				       .out = out,
				       .n_out = o.n_out,
				       .attr = shard.attr,
				       .n_attr = shard.n_attr };
	return add(m, &s, g->tensor[o.out[0]].layout);
}

static int make_shards(struct maker *m, int op, const struct dlb_assigned *a)
{
	struct dlb_graph *g = m->g;
	const struct dlb_op o = g->op[op];
	const struct dlb_split_region *r = &m->region[a->region];
	const int *part_in[DLB_SPLIT_OPERANDS] = { NULL };
	int *part[DLB_SPLIT_OPERANDS] = { NULL };

	for (int i = 0; i < o.n_in; i++) {
		if (o.in[i] < 0)
			continue;
		if (a->spread.in[i].axis < 0) {
			if (whole_of(m, o.in[i]) < 0)
				return -1;
		} else if (!(part_in[i] = parts_of(m, o.in[i], a->region, a->spread.in[i]))) {
			return -1;
		}
	}
	for (int j = 0; j < o.n_out; j++) {
		part[j] = dlb_arena_array(&g->arena, (size_t)r->parts, sizeof *part[j]);
		/* a shard writes the parts of the statistics that it reads */
		if (o.out[j] >= 0 && g->tensor[o.out[j]].kind == DLB_T_BUFFER) {
			const int *p = parts_of(m, o.out[j], a->region, a->spread.out[j]);
			memcpy(part[j], p, (size_t)r->parts * sizeof *p);
		}
	}
	for (int k = 0; k < r->parts; k++) {
		int out[DLB_SPLIT_OPERANDS];
		for (int j = 0; j < o.n_out; j++)
			out[j] = o.out[j] >= 0 && g->tensor[o.out[j]].kind == DLB_T_BUFFER ? part[j][k] : -1;
		if (make_shard(m, op, a, part_in, k, out))
			return -1;
		for (int j = 0; j < o.n_out; j++)
			part[j][k] = out[j];
	}
	if (a->spread.sum)
		return add_up(m, op, part[0], r->parts);
	for (int j = 0; j < o.n_out; j++)
		if (o.out[j] >= 0 && g->tensor[o.out[j]].kind != DLB_T_BUFFER)
			m->of[o.out[j]] = (struct parted){ a->region, part[j], a->spread.out[j], false };
	return 0;
}

/* A loss of scores that are split by classes: each shard computes values of its part, and one op
 * computes the loss from them. */
static int make_loss(struct maker *m, int op, const struct dlb_assigned *a)
{
	struct dlb_graph *g = m->g;
	const struct dlb_op o = g->op[op];
	const struct dlb_split_rule *rule = dlb_split_rule_of(&o);
	const struct dlb_split_region *r = &m->region[a->region];
	const int64_t classes = g->tensor[o.in[0]].dim[a->spread.in[0].axis].add;
	const int *part = parts_of(m, o.in[0], a->region, a->spread.in[0]);
	int *in = dlb_arena_array(&g->arena, (size_t)r->parts + 1, sizeof *in);
	struct dlb_attr *attr = dlb_arena_array(&g->arena, (size_t)o.n_attr + 1, sizeof *attr);

	if (!part || whole_of(m, o.in[1]) < 0)
		return -1;
	for (int k = 0; k < r->parts; k++) {
		const struct dlb_attr first = { .name = "first",
						.type = DLB_ATTR_INT,
						.i = share_of(r, k).first * a->spread.in[0].unit };
		const int of[2] = { part[k], o.in[1] };
		in[1 + k] = new_tensor(m, dlb_arena_printf(&g->arena, "%s.stats@%d", o.name, k));
		if (add(m, &(struct dlb_op_spec){ .name = dlb_arena_printf(&g->arena, "%s@%d", o.name, k),
						  .type = rule->part, .domain = "dlb", .in = of, .n_in = 2,
						  .out = &in[1 + k], .n_out = 1, .attr = &first, .n_attr = 1,
						  .opset = OPSET }, DLB_PLAIN))
			return -1;
		DLB_GROW(m->output, m->n_outputs, m->cap_outputs);
		m->output[m->n_outputs++] = in[1 + k];
	}
	in[0] = o.in[1];
	if (o.n_attr)
		memcpy(attr, o.attr, (size_t)o.n_attr * sizeof *attr);
	attr[o.n_attr] = (struct dlb_attr){ .name = "classes", .type = DLB_ATTR_INT, .i = classes };
	return add(m, &(struct dlb_op_spec){ .name = dlb_arena_printf(&g->arena, "%s.join", o.name),
					     .type = rule->join, .domain = "dlb", .in = in,
					     .n_in = r->parts + 1, .out = o.out, .n_out = 1, .attr = attr,
					     .n_attr = o.n_attr + 1, .opset = OPSET }, DLB_PLAIN);
}

/* Assembles the model's outputs. In training, scores that only a split loss reads are not assembled; the
 * parts' values, from which accuracy can be computed, are kept instead. */
static int make_outputs(struct maker *m)
{
	struct dlb_graph *g = m->g;
	int *output = dlb_arena_array(&g->arena, (size_t)(g->n_outputs + m->n_outputs) + 1, sizeof *output),
	    n = 0;

	for (int i = 0; i < g->n_outputs; i++) {
		const struct parted *p = &m->of[g->output[i]];
		const bool parts = p->region >= 0 && !p->is_whole && m->region[p->region].units;
		if (parts && m->n_outputs && g->training)
			continue;
		if (whole_of(m, g->output[i]) < 0)
			return -1;
		output[n++] = g->output[i];
	}
	for (int i = 0; i < m->n_outputs && g->training; i++)
		output[n++] = m->output[i];
	g->output = output;
	g->n_outputs = n;
	return g->loss >= 0 && whole_of(m, g->loss) < 0 ? -1 : 0;
}

static int keep_whole(struct maker *m, int op)
{
	for (int i = 0; i < m->g->op[op].n_in; i++)
		if (m->g->op[op].in[i] >= 0 && whole_of(m, m->g->op[op].in[i]) < 0)
			return -1;
	DLB_GROW(m->order, m->n_order, m->cap_order);
	m->order[m->n_order++] = op;
	return 0;
}

int dlb_split_make(struct dlb_graph *g, const struct dlb_assigned *assigned,
		   const struct dlb_split_region *region, struct dlb_error *err)
{
	struct maker m = { .g = g, .region = region, .n_tensors = g->n_tensors, .err = err };
	const int n_ops = g->n_ops;
	int rc = 0;

	m.of = dlb_xcalloc((size_t)g->n_tensors + 1, sizeof *m.of);
	for (int t = 0; t < g->n_tensors; t++)
		m.of[t].region = -1;
	rc = cut_states(&m, assigned, n_ops);
	for (int i = 0; i < n_ops && !rc; i++)
		rc = assigned[i].region < 0             ? keep_whole(&m, i) :
		     dlb_split_rule_of(&g->op[i])->part ? make_loss(&m, i, &assigned[i]) :
							  make_shards(&m, i, &assigned[i]);
	if (!rc)
		rc = make_outputs(&m);
	if (!rc)
		dlb_graph_reorder(g, m.order, m.n_order);
	free(m.output);
	free(m.order);
	free(m.of);
	return rc;
}

/* -- sums in pairs (split.h) -- */

/* The outputs part[] of the shards of op `of`, to be added in pairs (split.h). */
struct addends { const char *of; const int *part; enum dlb_layout layout; };

/* Adds the n parts from `lo` on into tensor y, by an op of this name. */
static int add_in_pairs(struct maker *m, const struct addends *a, const char *name, int lo, int n, int y)
{
	struct dlb_graph *g = m->g;
	const int from[3] = { 0, n / 2, n };
	int half[2];

	for (int h = 0; h < 2; h++) {
		const int count = from[h + 1] - from[h], first = lo + from[h];
		const char *sub = dlb_arena_printf(&g->arena, "%s@%d.sum", a->of, first);
		half[h] = count > 1 ? new_tensor(m, sub) : a->part[first];
		if (count > 1 && add_in_pairs(m, a, sub, first, count, half[h]))
			return -1;
	}
	return add(m, &(struct dlb_op_spec){ .name = name, .type = "Sum", DLB_OPERANDS(half[0], half[1]),
					     .out = &y, .n_out = 1, .opset = OPSET }, a->layout);
}

/* Is op a sum of the outputs of one op's shards that must be made in pairs? */
static bool is_paired(const struct dlb_graph *g, int op)
{
	const struct dlb_op *o = &g->op[op];
	int *from = dlb_xcalloc((size_t)o->n_in + 1, sizeof *from);
	bool paired = o->n_in > 2 && !strcmp(o->type, "Sum") && !*o->domain;

	for (int k = 0; k < o->n_in && paired; k++) {
		from[k] = g->tensor[o->in[k]].producer;
		paired = from[k] >= 0 && dlb_split_shard(g->op[from[k]].name) == k;
	}
	paired = paired && dlb_split_in_pairs(g, o->out[0], from, o->n_in);
	free(from);
	return paired;
}

int dlb_graph_pair_sums(struct dlb_graph *g, struct dlb_error *err)
{
	const bool trains = g->training && g->loss >= 0;
	struct maker m = { .g = g, .err = err };
	int rc = 0;

	dlb_graph_undifferentiate(g);
	for (int i = 0, n = g->n_ops; i < n && !rc; i++) {
		const struct dlb_op o = g->op[i];
		if (is_paired(g, i)) {
			const struct addends a = { o.name, o.in, g->tensor[o.out[0]].layout };
			rc = add_in_pairs(&m, &a, dlb_arena_printf(&g->arena, "%s.pair", o.name), 0, o.n_in,
					  o.out[0]);
			dlb_graph_rename_op(g, g->n_ops - 1, o.name);
			continue;
		}
		DLB_GROW(m.order, m.n_order, m.cap_order);
		m.order[m.n_order++] = i;
	}
	if (!rc)
		dlb_graph_reorder(g, m.order, m.n_order);
	free(m.order);
	return rc ? -1 : dlb_split_finish(g, trains, err);
}
