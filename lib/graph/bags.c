/* nn.EmbeddingBag: a Loop over bags becomes one reduction.
 *
 * PyTorch's exporter computes one bag per iteration: iteration i slices rows [offsets[i], offsets[i + 1]) of
 * the looked-up vectors, reduces them over axis 0 (sum, mean or max) and appends the result to a sequence,
 * which is concatenated after the loop. The number of iterations is the number of bags, which follows the
 * batch, so the loop cannot be unrolled. Where all bags have L rows (offsets are 0, L, 2L ...), the loop
 * equals a Reshape to (bags, L, ...) and a reduction over axis 1.
 *
 * The body matches if it has only ops that slice, select and reduce rows, connected in this way. */
#include <string.h>
#include "graph/fold.h"

struct bags { int rows, offsets; int64_t length; const char *reduce; };

/* The body in attribute `name` of a vertex; NULL: none. */
static const struct dlb_body *body_of(const struct fold *f, const struct dlb_op *o, const char *name)
{
	const int64_t i = dlb_attr_int(o->attr, o->n_attr, name, -1);
	const struct dlb_body *b = i >= 0 && i < f->g->n_bodies ? f->g->body[i] : NULL;

	return b && b->first_capture + b->g.n_inputs - b->n_formal <= o->n_in ? b : NULL;
}

/* The operand of `around`, the enclosing vertex, that tensor t of the body captures; -1:
 * computed inside the body. */
static int captured(const struct dlb_body *b, const struct dlb_op *around, int t)
{
	for (int i = b->n_formal; i < b->g.n_inputs; i++)
		if (b->g.input[i] == t)
			return around->in[b->first_capture + i - b->n_formal];
	return -1;
}

/* Finds the reduction in the body and in its branches. A ReduceSum beside a ReduceMean is part of the mean.
 * false: the body contains other ops. */
static bool find_reduction(const struct fold *f, const struct dlb_body *b, const char **reduce, int depth)
{
	static const char *const harmless[] = { "Reshape", "CastLike", "Cast",    "Add",
						"Sub",     "Slice",    "Equal",   "SequenceInsert",
						"Less",    "Greater",  "Shape",   "Size",
						"Div",     "Identity", "Squeeze", "Unsqueeze",
						"Gather",  "Constant", "Concat" };

	for (int i = 0; i < b->g.n_ops; i++) {
		const struct dlb_op *o = &b->g.op[i];
		bool known = false;
		if (!strcmp(o->type, "If") && depth < 6) {
			const struct dlb_body *yes = body_of(f, o, "then_branch"),
					      *no = body_of(f, o, "else_branch");
			if (!yes || !no || !find_reduction(f, yes, reduce, depth + 1) ||
			    !find_reduction(f, no, reduce, depth + 1))
				return false;
			continue;
		}
		if (!strcmp(o->type, "ReduceMean") || !strcmp(o->type, "ReduceMax") ||
		    (!strcmp(o->type, "ReduceSum") && !**reduce)) {
			*reduce = o->type;
			continue;
		}
		for (int k = 0; k < DLB_LEN(harmless); k++)
			known |= !strcmp(o->type, harmless[k]);
		if (!known && strcmp(o->type, "ReduceSum"))
			return false;
	}
	return true;
}

/* The operand of `around` whose rows are sliced by a branch of the body; -1: none, or
 * computed inside the body. */
static int cut_rows(const struct fold *f, const struct dlb_body *b, const struct dlb_op *around, int depth)
{
	for (int i = 0; i < b->g.n_ops; i++) {
		const struct dlb_op *o = &b->g.op[i];
		if (depth && !strcmp(o->type, "Slice") && o->n_in > 0)
			return captured(b, around, o->in[0]);
		const struct dlb_body *no = strcmp(o->type, "If") || depth > 4 ? NULL :
										 body_of(f, o, "else_branch");
		const int inner = no ? cut_rows(f, no, o, depth + 1) : -1;
		if (inner >= 0)
			return captured(b, around, inner);
	}
	return -1;
}

/* The tensor from which the body slices the start and the end of a bag; -1: none, or two different ones. */
static int cut_offsets(const struct dlb_body *b, const struct dlb_op *loop)
{
	int found = -1, n = 0;

	for (int i = 0; i < b->g.n_ops; i++)
		if (!strcmp(b->g.op[i].type, "Slice") && b->g.op[i].n_in > 0) {
			const int t = captured(b, loop, b->g.op[i].in[0]);
			if (t < 0 || (found >= 0 && t != found))
				return -1;
			found = t;
			n++;
		}
	return n == 2 ? found : -1;
}

/* Are the offsets 0, L, 2L ... up to the number of rows, at every size at which they are
 * known? Sets length to L. */
static bool even_offsets(struct fold *f, struct bags *bags)
{
	const struct dlb_tensor *x = &f->g->tensor[bags->offsets], *rows = &f->g->tensor[bags->rows];
	const bool wired = f->wired > 0 && !x->dim[0].mul;

	if (!dlb_dtype_is_int(x->dtype) || x->n_dims != 1 || rows->n_dims < 1 ||
	    !dlb_fold_is_known(f, bags->offsets))
		return false;
	for (int s = 0; s < (wired ? 1 : DLB_N_SIZES); s++) {
		const void *v = dlb_fold_value(f, bags->offsets, s);
		const int64_t samples = f->n * (s + 1), n = x->dim[0].mul * samples + x->dim[0].add;
		if (!v || n < 2)
			return false;
		const int64_t length = dlb_value_int(v, x->dtype, 1);
		for (int64_t i = 0; i < n; i++)
			if (dlb_value_int(v, x->dtype, i) != i * length)
				return false;
		if (length < 1 || (s && length != bags->length) ||
		    (n - 1) * length != rows->dim[0].mul * samples + rows->dim[0].add)
			return false;
		bags->length = length;
	}
	return rows->dim[0].mul % bags->length == 0 && rows->dim[0].add % bags->length == 0;
}

/* Is the loop's sequence its only output that is read, by one vertex that concatenates it along axis 0? */
static bool only_joined(const struct fold *f, const struct dlb_op *loop)
{
	const struct dlb_graph *g = f->g;
	int joins = 0;

	for (int k = 0; k < loop->n_out; k++)
		if (loop->out[k] >= 0 && dlb_graph_is_output(g, loop->out[k]))
			return false;
	for (int i = 0; i < g->n_ops; i++)
		for (int k = 0; k < g->op[i].n_in; k++) {
			const struct dlb_op *o = &g->op[i];
			if (o->in[k] >= 0 && loop->n_out > 0 && o->in[k] == loop->out[0])
				return false;
			if (o->in[k] < 0 || loop->n_out < 2 || o->in[k] != loop->out[1])
				continue;
			if (strcmp(o->type, "ConcatFromSequence") ||
			    dlb_attr_int(o->attr, o->n_attr, "axis", 1) ||
			    dlb_attr_int(o->attr, o->n_attr, "new_axis", 0))
				return false;
			joins++;
		}
	return joins == 1;
}

static bool match(struct fold *f, const struct dlb_op *loop, struct bags *bags)
{
	const struct dlb_body *b = body_of(f, loop, "body");

	*bags = (struct bags){ .reduce = "" };
	if (!b || b->n_formal != 4 || b->g.n_outputs != 3 || loop->n_out != 2 || loop->out[1] < 0 ||
	    !only_joined(f, loop) || !find_reduction(f, b, &bags->reduce, 0) || !*bags->reduce)
		return false;
	bags->rows = cut_rows(f, b, loop, 0);
	bags->offsets = cut_offsets(b, loop);
	return bags->rows >= 0 && bags->offsets >= 0 && !f->sequence[bags->rows] &&
	       !f->sequence[bags->offsets] && even_offsets(f, bags);
}

/* Reshapes the rows of all bags, (bags * length, ...), to (bags, length, ...). */
static int by_bag(struct fold *f, int op, const struct bags *bags, struct dlb_error *err)
{
	const struct dlb_tensor *x = &f->g->tensor[bags->rows];
	const struct dlb_desc d = { .dtype = DLB_I64, .n_dims = 1, .dim = { x->n_dims + 1 } };
	int64_t v[DLB_MAX_DIMS + 1], mul[DLB_MAX_DIMS + 1] = { 0 };

	v[0] = x->dim[0].add / bags->length;
	mul[0] = x->dim[0].mul / bags->length;
	v[1] = bags->length;
	for (int k = 1; k < x->n_dims; k++) {
		v[k + 1] = x->dim[k].add;
		mul[k + 1] = x->dim[k].mul;
	}
	const int shape = dlb_graph_add_constant(f->g, "bags", &d, v, mul);
	dlb_fold_room(f);
	f->varies[shape] = true;
	return dlb_fold_emit(f, op, DLB_SPEC("Reshape", bags->rows, shape), NULL, err);
}

/* Reduces t over axis 1, the rows of each bag. */
static int reduced(struct fold *f, int op, const struct bags *bags, int t, struct dlb_error *err)
{
	const int64_t axis = 1;
	const struct dlb_attr attr[] = { { .name = "keepdims", .type = DLB_ATTR_INT, .i = 0 },
					 { .name = "axes", .type = DLB_ATTR_INTS, .ints = &axis, .n = 1 } };

	if (!strcmp(bags->reduce, "ReduceSum"))		/* only ReduceSum has axes as an input (opset 13) */
		return dlb_fold_emit(f, op,
				     DLB_SPEC_ATTR("ReduceSum", attr, 1, t, dlb_fold_ints(f, op, &axis, 1)),
				     NULL, err);
	return dlb_fold_emit(f, op, DLB_SPEC_ATTR(bags->reduce, attr, 2, t), NULL, err);
}

/* -- the loop of torch.onnx.export(dynamo=False): it slices indices, looks up, reduces, stacks results -- */

/* The vertex of the body that makes t; NULL: none. */
static const struct dlb_op *maker(const struct dlb_body *b, int t)
{
	for (int i = 0; i < b->g.n_ops; i++)
		if (b->g.op[i].n_out > 0 && b->g.op[i].out[0] == t)
			return &b->g.op[i];
	return NULL;
}

/* The operand of the loop whose element i (perhaps unsqueezed) is tensor t of the body in iteration i; -1:
 * none. */
static int element_of(const struct dlb_body *b, const struct dlb_op *loop, int t)
{
	const struct dlb_op *o = maker(b, t);

	o = o && !strcmp(o->type, "Unsqueeze") && o->n_in > 0 ? maker(b, o->in[0]) : o;
	if (!o || strcmp(o->type, "Gather") || o->n_in != 2 || o->in[1] != b->g.input[0] ||
	    dlb_attr_int(o->attr, o->n_attr, "axis", 0))
		return -1;
	return captured(b, loop, o->in[0]);
}

/* Is ends[i] = (i + 1) L at every size at which it is known? */
static bool even_ends(struct fold *f, const struct bags *bags, int ends)
{
	const struct dlb_tensor *x = &f->g->tensor[ends];

	if (x->n_dims != 1 || !dlb_dtype_is_int(x->dtype) || !dlb_fold_is_known(f, ends))
		return false;
	for (int s = 0; s < (f->wired > 0 && !x->dim[0].mul ? 1 : DLB_N_SIZES); s++) {
		const void *v = dlb_fold_value(f, ends, s);
		const int64_t n = x->dim[0].mul * f->n * (s + 1) + x->dim[0].add;
		for (int64_t i = 0; i < n; i++)
			if (!v || dlb_value_int(v, x->dtype, i) != (i + 1) * bags->length)
				return false;
	}
	return true;
}

static bool match_lookup(struct fold *f, const struct dlb_op *loop, struct bags *bags, int *table)
{
	const struct dlb_body *b = body_of(f, loop, "body");
	const int64_t *axes = NULL;

	*bags = (struct bags){ .reduce = "" };
	if (!b || b->n_formal != 2 || b->g.n_outputs != 2 || loop->n_out != 1)
		return false;
	const struct dlb_op *reduce = maker(b, b->g.output[1]);
	const bool known = reduce && reduce->n_in == 1 &&
			   (!strcmp(reduce->type, "ReduceMean") || !strcmp(reduce->type, "ReduceMax")) &&
			   dlb_attr_ints(reduce->attr, reduce->n_attr, "axes", &axes) == 1 && axes[0] == 0;
	const bool sum = reduce && reduce->n_in == 2 && !strcmp(reduce->type, "ReduceSum");
	if ((!known && !sum) || dlb_attr_int(reduce->attr, reduce->n_attr, "keepdims", 1))
		return false;
	if (sum) {
		const int over = captured(b, loop, reduce->in[1]);
		const struct dlb_tensor *x = over < 0 ? NULL : &f->g->tensor[over];
		if (!x || !dlb_fold_is_known(f, over) || dlb_tensor_follows_batch(x) || x->n_dims != 1 ||
		    x->dim[0].add != 1 || dlb_value_int(dlb_fold_value(f, over, 0), x->dtype, 0))
			return false;
	}
	bags->reduce = reduce->type;
	const struct dlb_op *look = maker(b, reduce->in[0]), *cut = NULL;
	if (look && !strcmp(look->type, "Gather") && look->n_in == 2 &&
	    !dlb_attr_int(look->attr, look->n_attr, "axis", 0))
		cut = maker(b, look->in[1]);
	if (!cut || strcmp(cut->type, "Slice") || cut->n_in < 3)
		return false;
	*table = captured(b, loop, look->in[0]);
	bags->rows = captured(b, loop, cut->in[0]);
	bags->offsets = element_of(b, loop, cut->in[1]);
	const int ends = element_of(b, loop, cut->in[2]);
	return *table >= 0 && bags->rows >= 0 && bags->offsets >= 0 && ends >= 0 &&
	       f->g->tensor[bags->rows].n_dims == 1 && even_offsets(f, bags) && even_ends(f, bags, ends);
}

static int make_lookup(struct fold *f, int op, const struct bags *bags, int table, struct dlb_error *err)
{
	int t = by_bag(f, op, bags, err);

	t = t < 0 ? -1 : dlb_fold_emit(f, op, DLB_SPEC("Gather", table, t), NULL, err);
	t = t < 0 ? -1 : reduced(f, op, bags, t, err);
	return t < 0 || dlb_fold_bind(f, op, 0, t, err) ? -1 : 1;
}

int dlb_fold_bags(struct fold *f, int op, struct dlb_error *err)
{
	const struct dlb_op *loop = &f->g->op[op];
	struct bags bags;
	int table;

	if (match_lookup(f, loop, &bags, &table))
		return make_lookup(f, op, &bags, table, err);
	if (!match(f, loop, &bags) || f->g->tensor[bags.rows].n_dims >= DLB_MAX_DIMS)
		return 0;
	const int out = loop->out[1];
	int t = by_bag(f, op, &bags, err);
	t = t < 0 ? -1 : reduced(f, op, &bags, t, err);
	if (t < 0)
		return -1;
	struct dlb_sequence *s = dlb_arena_alloc(&f->a, sizeof *s);
	s->item = dlb_arena_array(&f->a, 1, sizeof *s->item);
	s->n = 1;
	s->item[0] = t;
	f->sequence[out] = s;
	return 1;
}
