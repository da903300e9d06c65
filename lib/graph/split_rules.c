/* The table of rules for splitting operators: the indices that each loops over, their axes in its operands,
 * and the changes of a shard's attributes. An index that all outputs have gives shards whose outputs are
 * concatenated; an index that is summed over gives shards whose outputs are added. */
#include <string.h>
#include "graph/order.h"
#include "graph/split.h"

/* -- dimensions -- */

static bool same_dim(struct dlb_dim a, struct dlb_dim b)
{
	return a.mul == b.mul && a.add == b.add;
}

static bool is_one(struct dlb_dim d)
{
	return !d.mul && d.add == 1;
}

bool dlb_split_divides(struct dlb_dim d, int64_t units, int64_t unit)
{
	const int64_t row = units * unit;

	if (!units)
		return unit > 0 && d.mul == unit && !d.add;
	return row > 0 && (d.mul || d.add) && d.mul % row == 0 && d.add % row == 0;
}

struct dlb_dim dlb_split_dim(struct dlb_dim d, const struct dlb_split_share *s)
{
	return !s->units ? d : (struct dlb_dim){ d.mul / s->units * s->count, d.add / s->units * s->count };
}

static const struct dlb_tensor *operand(const struct dlb_graph *g, const struct dlb_op *o, int i)
{
	const int t = i < o->n_in ? o->in[i] : o->out[i - o->n_in];

	return t < 0 ? NULL : &g->tensor[t];
}

/* -- loops -- */

static void clear(struct dlb_loop *l, const char *name)
{
	l->name = name;
	for (int i = 0; i < DLB_SPLIT_OPERANDS; i++)
		l->in[i] = l->out[i] = -1;
}

static int *axis_of(struct dlb_loop *l, const struct dlb_op *o, int i)
{
	return i < o->n_in ? &l->in[i] : &l->out[i - o->n_in];
}

bool dlb_split_loop(const struct dlb_graph *g, const struct dlb_op *o, const struct dlb_loop *given,
		    int reference, struct dlb_split_axis cut, int64_t units, struct dlb_op_split *s)
{
	struct dlb_loop l = *given;
	const struct dlb_dim whole = operand(g, o, reference)->dim[cut.axis];
	bool in_output = false;

	memset(s, 0, sizeof *s);
	s->axis = l.name;
	for (int i = 0; i < o->n_in + o->n_out; i++) {
		struct dlb_split_axis *c = i < o->n_in ? &s->in[i] : &s->out[i - o->n_in];
		const struct dlb_tensor *t = operand(g, o, i);
		*c = (struct dlb_split_axis){ .axis = t ? *axis_of(&l, o, i) : -1 };
		if (c->axis < 0)
			continue;
		const struct dlb_dim d = t->dim[c->axis];
		c->unit = units ? cut.unit : d.mul;
		if (units && !same_dim(d, whole)) {	/* groups of a convolution: input and output channels
							 * are proportional, not equal */
			if (d.mul || whole.mul || d.add * cut.unit % whole.add)
				return false;
			c->unit = d.add * cut.unit / whole.add;
		}
		if (!dlb_split_divides(d, units, c->unit))
			return false;
		in_output |= i >= o->n_in;
	}
	s->sum = !in_output;
	return true;
}

bool dlb_split_carry(const struct dlb_graph *g, const struct dlb_op *o, int i, struct dlb_split_axis cut,
		     int64_t units, struct dlb_op_split *s)
{
	const struct dlb_split_rule *r = dlb_split_rule_of(o);
	struct dlb_loop l[DLB_SPLIT_OPERANDS];

	if (!r)
		return false;
	if (r->carry) {
		memset(s, 0, sizeof *s);
		for (int k = 0; k < DLB_SPLIT_OPERANDS; k++)
			s->in[k].axis = s->out[k].axis = -1;
		return r->carry(g, o, i, cut, units, s);
	}
	const int n = r->loops(g, o, l);
	for (int k = 0; k < n; k++)
		if (*axis_of(&l[k], o, i) == cut.axis)
			return dlb_split_loop(g, o, &l[k], i, cut, units, s);
	return false;
}

/* The shape operand of Reshape is made anew for each shard. */
static bool is_shape(const struct dlb_op *o, int i)
{
	return i == 1 && !strcmp(o->type, "Reshape");
}

bool dlb_split_by_samples(const struct dlb_graph *g, const struct dlb_op *o, const struct dlb_op_split *s)
{
	const struct dlb_op_class *cls = dlb_op_class_of(o->kind);

	for (int i = 0; i < o->n_in + o->n_out; i++) {
		const struct dlb_split_axis c = i < o->n_in ? s->in[i] : s->out[i - o->n_in];
		const struct dlb_tensor *t = operand(g, o, i);
		if (!t)
			continue;
		if (t->samples.parts || (t->data_mul && !is_shape(o, i)) ||
		    (c.axis > 0 && (t->layout != DLB_PLAIN || cls->flags & DLB_OP_RANDOM)))
			return false;
		for (int a = 0; a < t->n_dims; a++)
			if (a == c.axis ? !dlb_split_divides(t->dim[a], 0, c.unit) : t->dim[a].mul != 0)
				return false;
	}
	return !s->sum;
}

/* Every dimension of the output; operands are aligned at the right, and size 1 broadcasts. */
static int elementwise(const struct dlb_graph *g, const struct dlb_op *o, struct dlb_loop *l)
{
	const struct dlb_tensor *y = &g->tensor[o->out[0]];

	for (int a = 0; a < y->n_dims; a++) {
		clear(&l[a], y->dim[a].mul && !a ? "batch" : "channel");
		for (int i = 0; i < o->n_in + o->n_out; i++) {
			const struct dlb_tensor *t = operand(g, o, i);
			const int at = t ? a - (y->n_dims - t->n_dims) : -1;
			*axis_of(&l[a], o, i) = at < 0 || (is_one(t->dim[at]) && !is_one(y->dim[a])) ? -1 :
												       at;
		}
	}
	return y->n_dims;
}

/* The mask is that of the whole tensor; channels-last memory may be cut along samples and channels only. */
static int dropout(const struct dlb_graph *g, const struct dlb_op *o, struct dlb_loop *l)
{
	const int n = elementwise(g, o, l);

	if (dlb_attr_find(o->attr, o->n_attr, "slice"))		/* a part of a part is not one slice */
		return n > 0 && g->tensor[o->in[0]].dim[0].mul ? 1 : 0;
	return g->tensor[o->in[0]].layout == DLB_CHANNELS_LAST && n > 2 ? 2 : n;
}

/* The dimensions before the normalized ones. */
static int leading(const struct dlb_graph *g, const struct dlb_op *o, int n, struct dlb_loop *l)
{
	for (int a = 0; a < n; a++) {
		clear(&l[a], a ? "channel" : "batch");
		l[a].in[0] = a;
		for (int k = 0; k < o->n_out; k++)
			l[a].out[k] = o->out[k] >= 0 && g->tensor[o->out[k]].n_dims > a ? a : -1;
	}
	return n;
}

static int axis_attr(const struct dlb_graph *g, const struct dlb_op *o, int64_t otherwise)
{
	const int n = g->tensor[o->in[0]].n_dims;
	const int64_t a = dlb_attr_int(o->attr, o->n_attr, "axis", otherwise);

	return (int)(a < 0 ? a + n : a);
}

static int layer_norm(const struct dlb_graph *g, const struct dlb_op *o, struct dlb_loop *l)
{
	return leading(g, o, axis_attr(g, o, -1), l);
}

/* Samples and heads of (batch, heads, rows, width), if all samples read one table. */
static int rotary(const struct dlb_graph *g, const struct dlb_op *o, struct dlb_loop *l)
{
	const struct dlb_tensor *table = &g->tensor[o->in[1]];
	const int64_t *axis;
	const bool axes = dlb_attr_ints(o->attr, o->n_attr, "axesX", &axis) == 4;

	if (g->tensor[o->in[0]].n_dims != 4 || o->n_in > 3 || table->n_dims != 3 || !is_one(table->dim[0]))
		return 0;
	clear(&l[0], "batch");
	l[0].in[0] = l[0].out[0] = axes ? (int)axis[0] : 0;
	clear(&l[1], "head");
	l[1].in[0] = l[1].out[0] = axes ? (int)axis[1] : 1;
	return 2;
}

/* Before opset 13 all dimensions from the axis on are one. */
static int softmax(const struct dlb_graph *g, const struct dlb_op *o, struct dlb_loop *l)
{
	const int n = g->tensor[o->in[0]].n_dims;
	const int axis = axis_attr(g, o, o->opset < 13 ? 1 : -1);
	int k = leading(g, o, axis, l);

	for (int a = axis + 1; a < n && o->opset >= 13; a++, k++) {
		clear(&l[k], "channel");
		l[k].in[0] = l[k].out[0] = a;
	}
	return k;
}

/* Batch and channels; further outputs (a mask, indices) are cut like the first. */
static int pool(const struct dlb_graph *g, const struct dlb_op *o, struct dlb_loop *l)
{
	return leading(g, o, 2, l);
}

/* Samples only. */
static int samples(const struct dlb_graph *g, const struct dlb_op *o, struct dlb_loop *l)
{
	const struct dlb_tensor *x = &g->tensor[o->in[0]];

	return x->n_dims > 0 && x->dim[0].mul == 1 ? leading(g, o, 1, l) : 0;
}

/* Statistics are per channel over all samples, so channels only; samples too if statistics are given. */
static int batch_norm(const struct dlb_graph *g, const struct dlb_op *o, struct dlb_loop *l)
{
	clear(&l[0], "channel");
	l[0].in[0] = l[0].out[0] = 1;
	for (int i = 1; i < o->n_in; i++)
		l[0].in[i] = 0;
	for (int k = 1; k < o->n_out; k++)
		l[0].out[k] = 0;
	if (!g->training) {
		clear(&l[1], "batch");
		l[1].in[0] = l[1].out[0] = 0;
	}
	return g->tensor[o->in[0]].n_dims > 1 ? 1 + !g->training : 0;
}

static int transpose(const struct dlb_graph *g, const struct dlb_op *o, struct dlb_loop *l)
{
	const int64_t *perm;
	const int n = g->tensor[o->in[0]].n_dims, m = dlb_attr_ints(o->attr, o->n_attr, "perm", &perm);

	for (int a = 0; a < n; a++) {
		clear(&l[a], "channel");
		l[a].out[0] = a;
		l[a].in[0] = m ? (int)perm[a] : n - 1 - a;
	}
	return n;
}

/* Name of an index without a name of its own in the operator. */
static const char *rows_name(struct dlb_dim d)
{
	return d.mul ? "batch" : "rows";
}

/* y (M, N) = op(A) op(B) + C */
static int gemm(const struct dlb_graph *g, const struct dlb_op *o, struct dlb_loop *l)
{
	const int ta = dlb_attr_int(o->attr, o->n_attr, "transA", 0) != 0,
		  tb = dlb_attr_int(o->attr, o->n_attr, "transB", 0) != 0;
	const struct dlb_tensor *c = o->n_in > 2 && o->in[2] >= 0 ? &g->tensor[o->in[2]] : NULL;

	clear(&l[0], "output");
	l[0].in[1] = !tb;
	l[0].out[0] = 1;
	if (c && c->n_dims > 0 && !is_one(c->dim[c->n_dims - 1]))
		l[0].in[2] = c->n_dims - 1;
	clear(&l[1], "input");
	l[1].in[0] = !ta;
	l[1].in[1] = tb;
	clear(&l[2], rows_name(g->tensor[o->out[0]].dim[0]));
	l[2].in[0] = ta;
	l[2].out[0] = 0;
	if (c && c->n_dims == 2 && !is_one(c->dim[0]))
		l[2].in[2] = 0;
	return 3;
}

/* y (.., M, N) = A (.., M, K) B (.., K, N), batches broadcast. */
static int matmul(const struct dlb_graph *g, const struct dlb_op *o, struct dlb_loop *l)
{
	const struct dlb_tensor *a = &g->tensor[o->in[0]], *b = &g->tensor[o->in[1]],
				*y = &g->tensor[o->out[0]];
	int n = 3;

	if (a->n_dims < 2 || b->n_dims < 2)
		return 0;
	clear(&l[0], "output");
	l[0].in[1] = b->n_dims - 1;
	l[0].out[0] = y->n_dims - 1;
	clear(&l[1], "input");
	l[1].in[0] = a->n_dims - 1;
	l[1].in[1] = b->n_dims - 2;
	clear(&l[2], rows_name(y->dim[y->n_dims - 2]));
	l[2].in[0] = a->n_dims - 2;
	l[2].out[0] = y->n_dims - 2;
	for (int d = 0; d < y->n_dims - 2; d++, n++) {
		const int at = d - (y->n_dims - a->n_dims), bt = d - (y->n_dims - b->n_dims);
		clear(&l[n], y->dim[d].mul == 1 ? "batch" : "head");
		l[n].in[0] = at < 0 || (is_one(a->dim[at]) && !is_one(y->dim[d])) ? -1 : at;
		l[n].in[1] = bt < 0 || (is_one(b->dim[bt]) && !is_one(y->dim[d])) ? -1 : bt;
		l[n].out[0] = d;
	}
	return n;
}

/* Like matmul, but read and written through permutations: attention's products, whose
 * batches are samples and heads. */
static int product(const struct dlb_graph *g, const struct dlb_op *o, struct dlb_loop *l)
{
	static const char *const names[3] = { "permA", "permB", "permY" };
	const int n = g->tensor[o->in[0]].n_dims;
	int perm[3][DLB_MAX_DIMS], m = 0;

	for (int k = 0; k < 3; k++) {
		const int64_t *v;
		const int given = dlb_attr_ints(o->attr, o->n_attr, names[k], &v);
		for (int i = 0; i < n; i++)
			perm[k][i] = given ? (int)v[i] : i;
	}
	int y[DLB_MAX_DIMS];				/* dimension i of the product -> axis of the output */
	for (int i = 0; i < n; i++)
		for (int k = 0; k < n; k++)
			if (perm[2][k] == i)
				y[i] = k;
	for (int d = n - 3; d >= 0; d--, m++) {		/* heads are next to the matrices */
		const struct dlb_dim dim = g->tensor[o->in[0]].dim[perm[0][d]];
		clear(&l[m], dim.mul == 1 ? "batch" : "head");
		l[m].in[0] = perm[0][d];
		l[m].in[1] = perm[1][d];
		l[m].out[0] = y[d];
	}
	clear(&l[m], "output");
	l[m].in[1] = perm[1][n - 1];
	l[m++].out[0] = y[n - 1];
	clear(&l[m], "input");
	l[m].in[0] = perm[0][n - 1];
	l[m++].in[1] = perm[1][n - 2];
	clear(&l[m], "rows");
	l[m].in[0] = perm[0][n - 2];
	l[m++].out[0] = y[n - 2];
	return m;
}

static int64_t groups_of(const struct dlb_op *o)
{
	return dlb_attr_int(o->attr, o->n_attr, "group", 1);
}

/* With groups, input and output channels are split together by groups, like the batch of a
 * product, and not summed over. */
static int conv(const struct dlb_graph *g, const struct dlb_op *o, struct dlb_loop *l)
{
	int n = 1;

	(void)g;
	clear(&l[0], "output");
	l[0].in[1] = l[0].in[2] = 0;
	l[0].out[0] = 1;
	if (groups_of(o) > 1) {
		l[0].in[0] = 1;
	} else {
		clear(&l[n], "input");
		l[n].in[0] = l[n].in[1] = 1;
		n++;
	}
	clear(&l[n], "batch");
	l[n].in[0] = l[n].out[0] = 0;
	return n + 1;
}

/* By rows of the table (a shard gives zeros for rows that it does not have), or by columns. */
static int gather(const struct dlb_graph *g, const struct dlb_op *o, struct dlb_loop *l)
{
	const struct dlb_tensor *x = &g->tensor[o->in[0]], *index = &g->tensor[o->in[1]];
	const int axis = axis_attr(g, o, 0);
	int n = 0;

	if (!axis && dlb_dtype_is_float(x->dtype)) {
		clear(&l[n], "vocabulary");
		l[n++].in[0] = 0;
	}
	for (int a = 0; a < x->n_dims; a++) {
		if (a == axis)
			continue;
		clear(&l[n], "output");
		l[n].in[0] = a;
		l[n++].out[0] = a < axis ? a : a - 1 + index->n_dims;
	}
	for (int a = 0; a < index->n_dims; a++) {
		clear(&l[n], rows_name(index->dim[a]));
		l[n].in[1] = a;
		l[n++].out[0] = axis + a;
	}
	return n;
}

/* -- carrying cuts through ops that move elements -- */

/* Elements per index of axis a; -1: they follow the batch. */
static int64_t behind(const struct dlb_tensor *t, int a)
{
	int64_t n = 1;

	for (int i = a + 1; i < t->n_dims; i++)
		n = t->dim[i].mul ? -1 : n * t->dim[i].add;
	return n;
}

static bool fixed_behind(const struct dlb_tensor *t, int a)
{
	for (int i = a + 1; i < t->n_dims; i++)
		if (t->dim[i].mul)
			return false;
	return true;
}

/* Reshapes. A unit is `stride` elements long, so element e belongs to unit (e / stride) mod units. The axis
 * of the other shape is the one whose indices are whole units or equal parts of a unit. */
static bool reshape(const struct dlb_graph *g, const struct dlb_op *o, int i, struct dlb_split_axis cut,
		    int64_t units, struct dlb_op_split *s)
{
	const struct dlb_tensor *from = operand(g, o, i), *to = operand(g, o, i ? 0 : o->n_in);

	if ((i && i != o->n_in) || !fixed_behind(from, cut.axis))
		return false;
	if (!strcmp(o->type, "Squeeze") && o->n_in < 2 && !dlb_attr_find(o->attr, o->n_attr, "axes"))
		return false;			/* removes all dimensions of size 1 */
	const int64_t stride = cut.unit * behind(from, cut.axis);
	for (int a = to->n_dims - 1; a >= 0 && fixed_behind(to, a); a--) {
		const int64_t step = behind(to, a);
		if (step < 1 || stride % step || !dlb_split_divides(to->dim[a], units, stride / step))
			continue;
		const struct dlb_split_axis there = { a, stride / step };
		s->in[0] = i ? there : cut;
		s->out[0] = i ? cut : there;
		s->axis = "channel";
		return true;
	}
	return false;
}

/* Pieces along an axis: a cut of another axis cuts all pieces; a cut of the same axis is possible if each
 * piece has whole rows of units. */
static bool pieces(const struct dlb_graph *g, const struct dlb_op *o, struct dlb_split_axis cut,
		   int64_t units, struct dlb_op_split *s, bool many_in)
{
	const int n = many_in ? o->n_in : o->n_out;

	for (int k = 0; k < n; k++) {
		const struct dlb_tensor *t = operand(g, o, many_in ? k : o->n_in + k);
		if (!t)
			continue;
		if (cut.axis >= t->n_dims || !dlb_split_divides(t->dim[cut.axis], units, cut.unit))
			return false;
		*(many_in ? &s->in[k] : &s->out[k]) = cut;
	}
	const struct dlb_tensor *whole = operand(g, o, many_in ? o->n_in : 0);
	if (!dlb_split_divides(whole->dim[cut.axis], units, cut.unit))
		return false;
	*(many_in ? &s->out[0] : &s->in[0]) = cut;
	s->axis = "channel";
	return true;
}

static bool split_op(const struct dlb_graph *g, const struct dlb_op *o, int i, struct dlb_split_axis cut,
		     int64_t units, struct dlb_op_split *s)
{
	if (cut.axis == axis_attr(g, o, 0))	/* each piece contains parts of all shards */
		for (int k = 0; k < o->n_out; k++)
			if (o->out[k] < 0)
				return false;
	return (!i || i >= o->n_in) && pieces(g, o, cut, units, s, false);
}

static bool concat(const struct dlb_graph *g, const struct dlb_op *o, int i, struct dlb_split_axis cut,
		   int64_t units, struct dlb_op_split *s)
{
	(void)i;
	return pieces(g, o, cut, units, s, true);
}

/* Integers from input i, or from the attribute if there is no such input; returns
 * their number, -1: unknown. */
static int integers(const struct dlb_graph *g, const struct dlb_op *o, int i, const char *name,
		    int64_t v[DLB_MAX_DIMS])
{
	const struct dlb_tensor *t = i < o->n_in && o->in[i] >= 0 ? &g->tensor[o->in[i]] : NULL;
	const int64_t *ints;
	int n;

	if (!t) {
		n = dlb_attr_ints(o->attr, o->n_attr, name, &ints);
		if (n <= DLB_MAX_DIMS && n)
			memcpy(v, ints, (size_t)n * sizeof *v);
		return n > DLB_MAX_DIMS ? -1 : n;
	}
	if (t->kind != DLB_T_CONSTANT || !t->data || t->data_mul || t->n_dims != 1 || t->dim[0].mul ||
	    t->dim[0].add > DLB_MAX_DIMS)
		return -1;
	n = (int)t->dim[0].add;
	for (int k = 0; k < n; k++)
		v[k] = dlb_value_int(t->data, t->dtype, k);
	return n;
}

/* The entry of a Slice's lists for `axis`, with start and end clamped to [0,
 * length]. -1: none, -2: unknown. */
static int slice_entry(const struct dlb_graph *g, const struct dlb_op *o, int axis, int64_t *from,
		       int64_t *to)
{
	const struct dlb_tensor *x = &g->tensor[o->in[0]];
	int64_t start[DLB_MAX_DIMS], end[DLB_MAX_DIMS], axes[DLB_MAX_DIMS], step[DLB_MAX_DIMS];
	const int n = integers(g, o, 1, "starts", start), m = integers(g, o, 2, "ends", end);
	const int na = integers(g, o, 3, "axes", axes), ns = integers(g, o, 4, "steps", step);

	if (n < 0 || m != n || (na && na != n) || (ns && ns != n))
		return -2;
	for (int k = 0; k < n; k++) {
		const int64_t a = na ? axes[k] < 0 ? axes[k] + x->n_dims : axes[k] : k;
		if (a != axis)
			continue;
		const int64_t d = x->dim[axis].add;
		if (x->dim[axis].mul || (ns && step[k] != 1))
			return -2;
		*from = start[k] < 0 ? start[k] + d : start[k];
		*to = end[k] < 0 ? end[k] + d : end[k] > d ? d : end[k];
		return *from < 0 || *to > d || *from >= *to ? -2 : k;
	}
	return -1;
}

static bool slice(const struct dlb_graph *g, const struct dlb_op *o, int i, struct dlb_split_axis cut,
		  int64_t units, struct dlb_op_split *s)
{
	const struct dlb_tensor *x = &g->tensor[o->in[0]], *y = &g->tensor[o->out[0]];
	int64_t from = 0, to = 0;

	if (i && i != o->n_in)
		return false;
	const int entry = slice_entry(g, o, cut.axis, &from, &to);
	if (entry < -1 || (entry >= 0 && from % (units * cut.unit)))
		return false;
	s->in[0] = s->out[0] = cut;
	s->axis = "channel";
	return dlb_split_divides(x->dim[cut.axis], units, cut.unit) &&
	       dlb_split_divides(y->dim[cut.axis], units, cut.unit);
}

/* If scores are split by classes, each part computes three numbers per label (op/loss_parts.c)
 * instead of joining the scores. */
static bool cross_entropy(const struct dlb_graph *g, const struct dlb_op *o, int i, struct dlb_split_axis cut,
			  int64_t units, struct dlb_op_split *s)
{
	const struct dlb_tensor *x = &g->tensor[o->in[0]];

	if (i || o->n_in > 2 || o->n_out > 1 || !units || cut.axis != 1 || x->dim[1].mul ||
	    x->dim[1].add != units * cut.unit || x->layout != DLB_PLAIN ||
	    dlb_attr_real(o->attr, o->n_attr, "smoothing", 0) > 0)
		return false;
	s->in[0] = cut;
	s->axis = "vocabulary";
	return true;
}

/* Attention's inputs and outputs (op/attention.c). */
enum { ATTENTION_Q, ATTENTION_K, ATTENTION_V, ATTENTION_MASK, ATTENTION_LENGTHS = 6, ATTENTION_SAVED = 4 };

/* The dimension of operand i, with four dimensions, that counts samples (0) or heads (1). */
static int attention_axis(const struct dlb_op *o, int i, int which)
{
	static const char *const names[] = { "axesQ", "axesK", "axesV", "axesY" };
	const int name = i == o->n_in ? 3 : i <= ATTENTION_V ? i : -1;
	const int64_t *axis;

	return name >= 0 && dlb_attr_ints(o->attr, o->n_attr, names[name], &axis) > which ? (int)axis[which] :
											    which;
}

/* The axis of operand i that counts heads, or in which heads are adjacent; -1: it has
 * none, or one for all heads. Outputs are counted from n_in on, which is ATTENTION_MASK without a mask. */
static int heads_axis(const struct dlb_op *o, int i, const struct dlb_tensor *t)
{
	const bool input = i < o->n_in;

	if (input && i == ATTENTION_LENGTHS)
		return -1;
	if (input && i == ATTENTION_MASK)
		return t->n_dims < 3 || is_one(t->dim[t->n_dims - 3]) ? -1 : t->n_dims - 3;
	return i == o->n_in + ATTENTION_SAVED ? 1 : t->n_dims == 4 ? attention_axis(o, i, 1) : 2;
}

/* Number of heads of operand i: of Q, or of K and V, each of which serves several of Q. */
static int64_t heads_of(const struct dlb_graph *g, const struct dlb_op *o, int i, const char *attr)
{
	const struct dlb_tensor *t = &g->tensor[o->in[i]];

	return t->n_dims == 4 ? t->dim[attention_axis(o, i, 1)].add :
				dlb_attr_int(o->attr, o->n_attr, attr, 0);
}

/* Samples, and heads of K and V, where there are several, with the heads of Q that they serve. */
static int attention_loops(const struct dlb_graph *g, const struct dlb_op *o, struct dlb_loop *l)
{
	const int n = heads_of(g, o, ATTENTION_K, "kv_num_heads") > 1 ? 2 : 1;

	for (int a = 0; a < n; a++) {
		clear(&l[a], a ? "head" : "batch");
		for (int i = 0; i < o->n_in + o->n_out; i++) {
			const struct dlb_tensor *t = operand(g, o, i);

			const int samples = t && t->n_dims == 4 ? attention_axis(o, i, 0) : 0;
			*axis_of(&l[a], o, i) = !t                                   ? -1 :
						a                                    ? heads_axis(o, i, t) :
						t->n_dims > 0 && t->dim[samples].mul ? samples :
										       -1;
		}
	}
	return n;
}

/* The units must be heads of K and V, or several of them. */
static bool attention(const struct dlb_graph *g, const struct dlb_op *o, int i, struct dlb_split_axis cut,
		      int64_t units, struct dlb_op_split *s)
{
	if (units && (heads_of(g, o, ATTENTION_Q, "q_num_heads") % units ||
		      heads_of(g, o, ATTENTION_K, "kv_num_heads") % units))
		return false;
	struct dlb_loop l[2];
	const int n = attention_loops(g, o, l);

	for (int k = 0; k < n; k++)
		if (*axis_of(&l[k], o, i) == cut.axis && (k == 1) == (units > 0))
			return operand(g, o, i)->dim[cut.axis].add == units * cut.unit &&
			       dlb_split_loop(g, o, &l[k], i, cut, units, s);
	return false;
}

/* -- changes of a shard's attributes and operands -- */

static void set_int(struct dlb_shard *s, const char *name, int64_t v)
{
	for (int i = 0; i < s->n_attr; i++)
		if (!strcmp(s->attr[i].name, name)) {
			s->attr[i].i = v;
			return;
		}
	s->attr[s->n_attr++] = (struct dlb_attr){ .name = name, .type = DLB_ATTR_INT, .i = v };
}

static void drop_attr(struct dlb_shard *s, const char *name)
{
	for (int i = 0; i < s->n_attr; i++)
		if (!strcmp(s->attr[i].name, name))
			s->attr[i--] = s->attr[--s->n_attr];
}

/* A constant, whose batch-dependent values count the samples of this share. */
static int constant(struct dlb_graph *g, const char *op, const struct dlb_split_share *s, const int64_t *v,
		    const int64_t *mul, int n)
{
	const struct dlb_desc d = { .dtype = DLB_I64, .n_dims = 1, .dim = { n } };
	bool follows = false;

	for (int i = 0; i < n && mul; i++)
		follows |= mul[i] != 0;
	const int t = dlb_graph_add_constant(g, dlb_arena_printf(&g->arena, "%s.constant", op), &d, v,
					     follows ? mul : NULL);
	if (follows && !s->units)
		g->tensor[t].samples = (struct dlb_samples){ s->index, s->parts };
	return t;
}

static int fix_reshape(struct dlb_graph *g, int op, struct dlb_shard *s, struct dlb_error *err)
{
	const struct dlb_tensor *y = &g->tensor[g->op[op].out[0]];
	int64_t add[DLB_MAX_DIMS], mul[DLB_MAX_DIMS];

	(void)err;
	for (int i = 0; i < y->n_dims; i++) {
		const struct dlb_dim d = i == s->split->out[0].axis ? dlb_split_dim(y->dim[i], &s->share) :
								      y->dim[i];
		add[i] = d.add;
		mul[i] = d.mul;
	}
	drop_attr(s, "shape");
	s->n_in = 2;
	s->in[1] = constant(g, g->op[op].name, &s->share, add, mul, y->n_dims);
	return 0;
}

static int fix_split(struct dlb_graph *g, int op, struct dlb_shard *s, struct dlb_error *err)
{
	const struct dlb_op *o = &g->op[op];
	const int axis = axis_attr(g, o, 0);
	int64_t size[DLB_SPLIT_OPERANDS];

	(void)err;
	if (axis != s->split->in[0].axis)
		return 0;
	for (int k = 0; k < o->n_out; k++)
		size[k] = dlb_split_dim(g->tensor[o->out[k]].dim[axis], &s->share).add;
	drop_attr(s, "split");
	drop_attr(s, "num_outputs");
	s->n_in = 2;
	s->in[1] = constant(g, o->name, &s->share, size, NULL, o->n_out);
	return 0;
}

static int fix_slice(struct dlb_graph *g, int op, struct dlb_shard *s, struct dlb_error *err)
{
	const struct dlb_op *o = &g->op[op];
	int64_t start[DLB_MAX_DIMS], end[DLB_MAX_DIMS], from, to;
	const int entry = slice_entry(g, o, s->split->in[0].axis, &from, &to);
	const int n = integers(g, o, 1, "starts", start);

	(void)err;
	if (entry < 0)
		return 0;
	integers(g, o, 2, "ends", end);
	start[entry] = from / s->share.units * s->share.count;
	end[entry] = to / s->share.units * s->share.count;
	if (o->n_in > 2) {
		s->in[1] = constant(g, o->name, &s->share, start, NULL, n);
		s->in[2] = constant(g, o->name, &s->share, end, NULL, n);
		return 0;
	}
	for (int i = 0; i < s->n_attr; i++)
		if (!strcmp(s->attr[i].name, "starts") || !strcmp(s->attr[i].name, "ends")) {
			int64_t *copy = dlb_arena_array(&g->arena, (size_t)n + 1, sizeof *copy);
			memcpy(copy, *s->attr[i].name == 's' ? start : end, (size_t)n * sizeof *copy);
			s->attr[i].ints = copy;
		}
	return 0;
}

/* Channels are cut between groups. */
static int fix_conv(struct dlb_graph *g, int op, struct dlb_shard *s, struct dlb_error *err)
{
	const int64_t groups = groups_of(&g->op[op]);

	if (groups > 1 && s->split->in[0].axis == 1) {
		if (groups % s->share.units || !g->tensor[g->op[op].out[0]].dim[1].add ||
		    g->tensor[g->op[op].out[0]].dim[1].add != s->share.units * s->split->out[0].unit)
			return dlb_vertex_fail(&g->op[op], err, "a number of shards that divides the groups",
					       "its %lld groups cannot be split into %lld units",
					       (long long)groups, (long long)s->share.units);
		set_int(s, "group", groups / s->share.units * s->share.count);
	}
	if (s->split->sum)
		drop_attr(s, "activation");	/* applied to the sum instead */
	return 0;
}

static int fix_attention(struct dlb_graph *g, int op, struct dlb_shard *s, struct dlb_error *err)
{
	static const char *const names[] = { "q_num_heads", "kv_num_heads" };

	(void)g;
	(void)op;
	(void)err;
	for (int k = 0; k < DLB_LEN(names) && s->share.units; k++)
		if (dlb_attr_find(s->attr, s->n_attr, names[k]))
			set_int(s, names[k],
				dlb_attr_int(s->attr, s->n_attr, names[k], 0) / s->share.units *
					s->share.count);
	return 0;
}

static int fix_gather(struct dlb_graph *g, int op, struct dlb_shard *s, struct dlb_error *err)
{
	const struct dlb_tensor *x = &g->tensor[g->op[op].in[0]];

	(void)err;
	if (s->split->sum) {
		set_int(s, "first", s->share.first * s->split->in[0].unit);
		set_int(s, "of", x->dim[0].add);
	}
	return 0;
}

static int fix_dropout(struct dlb_graph *g, int op, struct dlb_shard *s, struct dlb_error *err)
{
	int64_t *v = dlb_arena_array(&g->arena, 5, sizeof *v);

	(void)op;
	(void)err;
	if (!s->share.units)			/* a share of samples needs no slice */
		return 0;
	memcpy(v,
	       (int64_t[]){ s->split->in[0].axis, s->share.units, s->split->in[0].unit, s->share.first,
			    s->share.count },
	       5 * sizeof *v);
	s->attr[s->n_attr++] = (struct dlb_attr){ .name = "slice", .type = DLB_ATTR_INTS, .ints = v, .n = 5 };
	return 0;
}

/* -- the table -- */

#define FOLLOWS(name, f) { .type = name, .bias = -1, .loops = f }
const struct dlb_split_rule dlb_split_rules[] = {
	{ .type = "Gemm", .alone = true, .bias = 2, .loops = gemm },
	{ .type = "MatMul", .alone = true, .bias = -1, .loops = matmul },
	{ .type = "Product", .alone = true, .bias = -1, .loops = product },
	{ .type = "Conv", .alone = true, .bias = 2, .loops = conv, .fix = fix_conv },
	{ .type = "Gather", .alone = true, .bias = -1, .loops = gather, .fix = fix_gather },
	{ .type = "Reshape", .bias = -1, .carry = reshape, .fix = fix_reshape },
	{ .type = "Flatten", .bias = -1, .carry = reshape },
	{ .type = "Squeeze", .bias = -1, .carry = reshape },
	{ .type = "Unsqueeze", .bias = -1, .carry = reshape },
	{ .type = "Split", .bias = -1, .carry = split_op, .fix = fix_split },
	{ .type = "Slice", .bias = -1, .carry = slice, .fix = fix_slice },
	{ .type = "Concat", .bias = -1, .carry = concat },
	{ .type = "SoftmaxCrossEntropyLoss",
	  .bias = -1,
	  .carry = cross_entropy,
	  .part = "CrossEntropyPart",
	  .join = "CrossEntropyJoin" },
	{ .type = "Attention",
	  .alone = true,
	  .bias = -1,
	  .loops = attention_loops,
	  .carry = attention,
	  .fix = fix_attention },
	{ .type = "StridedAttention",
	  .alone = true,
	  .bias = -1,
	  .loops = attention_loops,
	  .carry = attention },
	{ .type = "Dropout", .bias = -1, .loops = dropout, .fix = fix_dropout },
	FOLLOWS("Transpose", transpose),
	FOLLOWS("LayerNormalization", layer_norm),
	FOLLOWS("RMSNormalization", layer_norm),
	FOLLOWS("Softmax", softmax),
	FOLLOWS("LogSoftmax", softmax),
	FOLLOWS("BatchNormalization", batch_norm),
	FOLLOWS("MaxPool", pool),
	FOLLOWS("AveragePool", pool),
	FOLLOWS("GlobalAveragePool", pool),
	FOLLOWS("GlobalMaxPool", pool),
	FOLLOWS("Relu", elementwise),
	FOLLOWS("LeakyRelu", elementwise),
	FOLLOWS("Elu", elementwise),
	FOLLOWS("Selu", elementwise),
	FOLLOWS("Celu", elementwise),
	FOLLOWS("Sigmoid", elementwise),
	FOLLOWS("HardSigmoid", elementwise),
	FOLLOWS("HardSwish", elementwise),
	FOLLOWS("Softplus", elementwise),
	FOLLOWS("Tanh", elementwise),
	FOLLOWS("Gelu", elementwise),
	FOLLOWS("Erf", elementwise),
	FOLLOWS("Exp", elementwise),
	FOLLOWS("Log", elementwise),
	FOLLOWS("Sqrt", elementwise),
	FOLLOWS("Reciprocal", elementwise),
	FOLLOWS("Abs", elementwise),
	FOLLOWS("Neg", elementwise),
	FOLLOWS("AddRelu", elementwise),
	FOLLOWS("Add", elementwise),
	FOLLOWS("Sub", elementwise),
	FOLLOWS("Mul", elementwise),
	FOLLOWS("Div", elementwise),
	FOLLOWS("Pow", elementwise),
	FOLLOWS("Sum", elementwise),
	FOLLOWS("Max", elementwise),
	FOLLOWS("Min", elementwise),
	FOLLOWS("Clip", elementwise),
	FOLLOWS("Where", elementwise),
	FOLLOWS("Identity", elementwise),
	FOLLOWS("Cast", elementwise),
	FOLLOWS("Layout", elementwise),
	FOLLOWS("LayoutView", elementwise),
	FOLLOWS("TransposeView", transpose),
	FOLLOWS("RotaryEmbedding", rotary),
	FOLLOWS("Swish", elementwise),
	FOLLOWS("SwiGLU", elementwise),
	FOLLOWS("LRN", samples),
	FOLLOWS("InstanceNormalization", samples),
	FOLLOWS("GroupNormalization", samples),
	FOLLOWS("ReduceMean", samples),
	FOLLOWS("ReduceSum", samples),
	FOLLOWS("ReduceMax", samples),
	FOLLOWS("Pad", samples),
	FOLLOWS("Resize", samples),
	FOLLOWS("DepthToSpace", samples),
	FOLLOWS("SpaceToDepth", samples),
	FOLLOWS("PRelu", samples),
	{ .type = NULL },
};

int64_t dlb_split_groups(const struct dlb_graph *g, const struct dlb_op *o)
{
	if (!strcmp(o->type, "Attention") || !strcmp(o->type, "StridedAttention"))
		return heads_of(g, o, ATTENTION_K, "kv_num_heads");
	return !strcmp(o->type, "Conv") ? dlb_attr_int(o->attr, o->n_attr, "group", 1) : 1;
}

const struct dlb_split_rule *dlb_split_rule_of(const struct dlb_op *o)
{
	if (o->kind < 0 || o->n_in > DLB_SPLIT_OPERANDS || o->n_out > DLB_SPLIT_OPERANDS || o->n_out < 1 ||
	    o->out[0] < 0)
		return NULL;
	for (const struct dlb_split_rule *r = dlb_split_rules; r->type; r++)
		if (!strcmp(r->type, o->type))
			return r;
	return NULL;
}
