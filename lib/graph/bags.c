/* nn.EmbeddingBag: a Loop over bags becomes one reduction.
 *
 * PyTorch's exporter writes a bag after another: iteration i takes the rows [offsets[i], offsets[i + 1]) of the looked-up
 * vectors, reduces them (sum, mean or max over axis 0) and puts the result at the end of a sequence, which is joined after
 * the loop. There are as many iterations as bags, so their number follows the batch and the loop cannot be unrolled. Where
 * every bag has L rows (offsets are 0, L, 2L ...), it is Reshape to (bags, L, ...) and a reduction over axis 1.
 *
 * The body is recognised by what it is made of: only vertices that cut rows, choose and reduce them, wired as said. */
#include <string.h>
#include "graph/fold.h"

struct bags { int rows, offsets; int64_t length; const char *reduce; };

/* The graph in attribute `name` of a vertex; NULL: none. */
static const struct dlb_body *body_of(const struct fold *f, const struct dlb_op *o, const char *name)
{
	const int64_t i = dlb_attr_int(o->attr, o->n_attr, name, -1);
	const struct dlb_body *b = i >= 0 && i < f->g->n_bodies ? f->g->body[i] : NULL;

	return b && b->first_capture + b->g.n_inputs - b->n_formal <= o->n_in ? b : NULL;
}

/* Which operand of the vertex around it body tensor t is; -1: it is made inside. */
static int captured(const struct dlb_body *b, const struct dlb_op *around, int t)
{
	for (int i = b->n_formal; i < b->g.n_inputs; i++)
		if (b->g.input[i] == t)
			return around->in[b->first_capture + i - b->n_formal];
	return -1;
}

/* What reduces, over all bodies below: the last row of a mean is a sum that is divided. false: something else is done. */
static bool find_reduction(const struct fold *f, const struct dlb_body *b, const char **reduce, int depth)
{
	static const char *const harmless[] = { "Reshape", "CastLike", "Cast", "Add", "Sub", "Slice", "Equal", "SequenceInsert", "Less",
		"Greater", "Shape", "Size", "Div", "Identity", "Squeeze", "Unsqueeze", "Gather", "Constant", "Concat" };

	for (int i = 0; i < b->g.n_ops; i++) {
		const struct dlb_op *o = &b->g.op[i];
		bool known = false;
		if (!strcmp(o->type, "If") && depth < 6) {
			const struct dlb_body *yes = body_of(f, o, "then_branch"), *no = body_of(f, o, "else_branch");
			if (!yes || !no || !find_reduction(f, yes, reduce, depth + 1) || !find_reduction(f, no, reduce, depth + 1))
				return false;
			continue;
		}
		if (!strcmp(o->type, "ReduceMean") || !strcmp(o->type, "ReduceMax") || (!strcmp(o->type, "ReduceSum") && !*reduce)) {
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

/* The rows that a branch of the body's If cuts, as an operand of the loop. */
static int cut_rows(const struct fold *f, const struct dlb_body *b, const struct dlb_op *loop)
{
	for (int i = 0; i < b->g.n_ops; i++) {
		const struct dlb_op *o = &b->g.op[i];
		const struct dlb_body *no = strcmp(o->type, "If") ? NULL : body_of(f, o, "else_branch");
		for (int k = 0; no && k < no->g.n_ops; k++)
			if (!strcmp(no->g.op[k].type, "Slice") && no->g.op[k].n_in > 0) {
				const int outer = captured(no, o, no->g.op[k].in[0]);
				return outer < 0 ? -1 : captured(b, loop, outer);
			}
	}
	return -1;
}

/* The tensor from which the body cuts where a bag starts and ends; -1: two different ones, or none. */
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

/* Offsets 0, L, 2L ... up to the number of rows, at every size at which they are known. */
static bool even_offsets(struct fold *f, struct bags *bags)
{
	const struct dlb_tensor *x = &f->g->tensor[bags->offsets], *rows = &f->g->tensor[bags->rows];
	const bool wired = !dlb_tensor_follows_batch(x);

	if (!dlb_dtype_is_int(x->dtype) || x->n_dims != 1 || rows->n_dims < 1 || !dlb_fold_is_known(f, bags->offsets))
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
		if (length < 1 || (s && length != bags->length) || (n - 1) * length != rows->dim[0].mul * samples + rows->dim[0].add)
			return false;
		bags->length = length;
	}
	return rows->dim[0].mul % bags->length == 0 && rows->dim[0].add % bags->length == 0;
}

/* All that is read of the loop is its sequence, joined along axis 0. */
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
			if (strcmp(o->type, "ConcatFromSequence") || dlb_attr_int(o->attr, o->n_attr, "axis", 1) ||
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
	if (!b || b->n_formal != 4 || b->g.n_outputs != 3 || loop->n_out != 2 || loop->out[1] < 0 || !only_joined(f, loop) ||
	    !find_reduction(f, b, &bags->reduce, 0) || !*bags->reduce)
		return false;
	bags->rows = cut_rows(f, b, loop);
	bags->offsets = cut_offsets(b, loop);
	return bags->rows >= 0 && bags->offsets >= 0 && !f->sequence[bags->rows] && !f->sequence[bags->offsets] &&
		even_offsets(f, bags);
}

int dlb_fold_bags(struct fold *f, int op, struct dlb_error *err)
{
	const struct dlb_op *loop = &f->g->op[op];
	struct bags bags;

	if (!match(f, loop, &bags))
		return 0;
	const struct dlb_tensor *x = &f->g->tensor[bags.rows];
	const int out = loop->out[1], n = x->n_dims + 1;
	const struct dlb_desc d = { .dtype = DLB_I64, .n_dims = 1, .dim = { n } };
	int64_t v[DLB_MAX_DIMS + 1], mul[DLB_MAX_DIMS + 1] = { 0 };
	const struct dlb_attr attr[] = { { .name = "keepdims", .type = DLB_ATTR_INT, .i = 0 },
					 { .name = "axes", .type = DLB_ATTR_INTS, .ints = (int64_t[]){ 1 }, .n = 1 } };
	if (n > DLB_MAX_DIMS)
		return 0;
	v[0] = x->dim[0].add / bags.length;
	mul[0] = x->dim[0].mul / bags.length;
	v[1] = bags.length;
	for (int k = 1; k < x->n_dims; k++) {
		v[k + 1] = x->dim[k].add;
		mul[k + 1] = x->dim[k].mul;
	}
	const int shape = dlb_graph_add_constant(f->g, "bags", &d, v, mul);
	dlb_fold_room(f);
	f->varies[shape] = true;
	int t = dlb_fold_emit(f, op, "Reshape", (int[]){ bags.rows, shape }, 2, NULL, 0, 1, NULL, err);
	if (t >= 0 && !strcmp(bags.reduce, "ReduceSum"))	/* axes are an input of this one alone (opset 13) */
		t = dlb_fold_emit(f, op, "ReduceSum", (int[]){ t, dlb_fold_ints(f, op, attr[1].ints, 1) }, 2, attr, 1, 1, NULL, err);
	else if (t >= 0)
		t = dlb_fold_emit(f, op, bags.reduce, &t, 1, attr, 2, 1, NULL, err);
	if (t < 0)
		return -1;
	struct dlb_sequence *s = dlb_arena_alloc(&f->a, sizeof *s);
	s->item = dlb_arena_array(&f->a, 1, sizeof *s->item);
	s->n = 1;
	s->item[0] = t;
	f->sequence[out] = s;
	return 1;
}
