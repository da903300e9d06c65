/* Attention, written as separate ops, becomes one op if it has enough keys:
 *
 *     Product(Softmax(Product(q, k) + mask), v)                  ->   StridedAttention(q, k, v, mask)
 *     Product(Softmax(Where(later, -inf, Product(q, k))), v)     ->   StridedAttention(q, k, v), is_causal
 *
 * Its kernel works on blocks of queries, so that scores stay in the cache, and skips blocks that are masked
 * by position. The rewrite of products has removed Transposes before, so operands are read with strides. A
 * constant mask that hides later positions from each row becomes the attribute is_causal. K and V that are
 * repeated for several heads of Q are read once. */
#include <math.h>
#include <string.h>
#include "graph/pattern.h"
#include "graph/rewrites.h"

/* Least number of keys for which one op is faster than separate products and Softmax
 * (tests/bench/attention): its time is .97 of theirs at 192 keys, and .86 at 128 keys where half of the
 * scores are masked by position. */
enum { LEAST_KEYS = 192, LEAST_CAUSAL = 128 };
enum { DIMS = 4 };		/* batch, heads, rows, width */

static const int64_t in_order[DIMS] = { 0, 1, 2, 3 };

/* Tensor t, and the indices of its dimensions batch, heads, rows and width. */
struct attention_side { int t; int64_t axis[DIMS]; };
struct attention_match {
	struct dlb_match m;
	struct attention_side q, k, v;
	/* permutation from (batch, heads, rows, width) to the result's dimensions */
	int64_t out[DIMS];
	double scale;
	int mask;			/* -1: none */
	bool causal;
};

/* -- matching -- */

static bool read_perm(const struct dlb_op *o, const char *name, int64_t *perm)
{
	const int64_t *p;

	if (dlb_attr_ints(o->attr, o->n_attr, name, &p) != DIMS)
		return false;
	memcpy(perm, p, sizeof in_order);
	return true;
}

static bool changes_nothing(const int64_t *perm)
{
	return !memcmp(perm, in_order, sizeof in_order);
}

/* Is op i a Product of four dimensions? */
static bool is_product(const struct dlb_graph *g, int i)
{
	int64_t perm[DIMS];

	return i >= 0 && !strcmp(g->op[i].type, "Product") && !strcmp(g->op[i].domain, "dlb") &&
	       g->op[i].phase == DLB_FORWARD && read_perm(&g->op[i], "permY", perm);
}

static bool take(struct dlb_match *m, int op)
{
	if (m->n == DLB_MATCH_MAX)
		return false;
	m->op[m->n++] = op;
	return true;
}

/* How a constant mask tells whether a key is seen or hidden: by a number that is added to the score, or by a
 * condition. `seen`: the value for a key that is seen. */
struct sight {
	bool added;
	double seen;
};

static bool is_seen(const struct sight *s, double v) { return v == s->seen; }
static bool is_hidden(const struct sight *s, double v) { return s->added ? v <= -1e30 : v != s->seen; }

/* Does the constant show to each row its own position and earlier ones, and hide later ones? */
static bool hides_later(const struct dlb_graph *g, int t, struct sight s)
{
	const struct dlb_tensor *x = &g->tensor[t];
	const struct dlb_desc d = dlb_tensor_desc(x, 1);
	const int64_t n = d.n_dims < 2 ? 0 : d.dim[d.n_dims - 1];

	if (x->kind != DLB_T_CONSTANT || x->data_mul || !x->data || n < 1 || d.dim[d.n_dims - 2] != n ||
	    dlb_desc_count(&d) != n * n)
		return false;
	for (int64_t i = 0; i < n * n; i++) {
		const double v = dlb_value_real(x->data, x->dtype, i);
		if (i % n <= i / n ? !is_seen(&s, v) : !is_hidden(&s, v))
			return false;
	}
	return true;
}

/* Does the mask broadcast to the scores without enlarging them, and have a value for each key? */
static bool fits(const struct dlb_graph *g, int mask, int scores)
{
	const struct dlb_tensor *m = &g->tensor[mask], *s = &g->tensor[scores];

	if (m->n_dims < 1 || m->n_dims > DIMS || m->dtype != s->dtype)
		return false;
	for (int i = m->n_dims - 1, k = DIMS - 1; i >= 0; i--, k--) {
		const bool one = !m->dim[i].mul && m->dim[i].add == 1;
		const bool same = m->dim[i].mul == s->dim[k].mul && m->dim[i].add == s->dim[k].add;
		if (!same && (!one || k == DIMS - 1))
			return false;
	}
	return true;
}

/* Matches Where(later, fill, scores), or Where(not later, scores, fill), whose fill hides keys. Returns the
 * op that makes the scores; -1: no match. */
static int take_chosen(struct attention_match *a, int op)
{
	const struct dlb_graph *g = a->m.g;
	const int *in = g->op[op].in;

	for (int k = 1; k < 3; k++) {
		const int scores = g->tensor[in[k]].producer;
		double fill;

		if (is_product(g, scores) && dlb_match_scalar(g, in[3 - k], &fill) && fill <= -1e30 &&
		    hides_later(g, in[0], (struct sight){ false, k == 1 })) {
			a->causal = true;
			return take(&a->m, op) ? scores : -1;
		}
	}
	return -1;
}

/* Matches the Softmax's operand t: scores, perhaps masked. Returns the op that makes
 * the scores; -1: no match. */
static int take_scores(struct attention_match *a, int t)
{
	const struct dlb_graph *g = a->m.g;
	const int op = g->tensor[t].producer;

	a->mask = -1;
	a->causal = false;
	if (dlb_is_op(g, op, "Where"))
		return take_chosen(a, op);
	if (!dlb_is_op(g, op, "Add"))
		return op;
	for (int k = 0; k < 2; k++) {
		const int scores = g->op[op].in[k], mask = g->op[op].in[1 - k];
		if (!is_product(g, g->tensor[scores].producer) || !fits(g, mask, scores))
			continue;
		a->causal = hides_later(g, mask, (struct sight){ true, 0 });
		a->mask = a->causal ? -1 : mask;
		return take(&a->m, op) ? g->tensor[scores].producer : -1;
	}
	return -1;
}

/* Are the scores (batch, heads, rows, keys) and large enough, and does only dimension 0 follow the batch? */
static bool has_shape(const struct dlb_graph *g, int scores, bool causal)
{
	const struct dlb_tensor *s = &g->tensor[scores];

	if (s->n_dims != DIMS || s->dim[3].add < (causal ? LEAST_CAUSAL : LEAST_KEYS) || s->dim[2].add < 2)
		return false;
	return !s->dim[1].mul && !s->dim[2].mul && !s->dim[3].mul;
}

/* The Softmax over keys that makes t, perhaps through the guard that gives zeros to rows without keys, as
 * Attention does; -1: none. */
static int take_softmax(struct attention_match *a, int t)
{
	const struct dlb_graph *g = a->m.g;
	const int guard = g->tensor[t].producer;
	double zero;

	if (dlb_is_op(g, guard, "Where") && dlb_match_scalar(g, g->op[guard].in[1], &zero) && zero == 0) {
		const int nan = dlb_match_op(&a->m, g->op[guard].in[0], "IsNaN");
		t = g->op[guard].in[2];
		if (nan < 0 || g->op[nan].in[0] != t || !take(&a->m, guard))
			return -1;
	}
	const int op = dlb_match_op(&a->m, t, "Softmax");
	const int64_t axis = op < 0 ? 0 : dlb_attr_int(g->op[op].attr, g->op[op].n_attr, "axis", -1);
	return op >= 0 && g->op[op].opset >= 13 && (axis == -1 || axis == DIMS - 1) ? op : -1;
}

static bool match(struct attention_match *a, int root)
{
	struct dlb_graph *g = a->m.g;
	const struct dlb_op *o = &g->op[root];
	int64_t perm[DIMS];

	if (!is_product(g, root) || !read_perm(o, "permA", perm) || !changes_nothing(perm) ||
	    !read_perm(o, "permB", a->v.axis) || !read_perm(o, "permY", a->out) ||
	    dlb_attr_real(o->attr, o->n_attr, "alpha", 1) != 1)
		return false;
	a->v.t = o->in[1];
	const int softmax = take_softmax(a, o->in[0]),
		  scores = softmax < 0 ? -1 : take_scores(a, g->op[softmax].in[0]);
	if (!is_product(g, scores) || !take(&a->m, scores))
		return false;
	const struct dlb_op *s = &g->op[scores];
	if (!read_perm(s, "permY", perm) || !changes_nothing(perm) || !read_perm(s, "permA", a->q.axis) ||
	    !read_perm(s, "permB", perm))
		return false;
	a->q.t = s->in[0];
	a->k = (struct attention_side){ s->in[1], { perm[0], perm[1], perm[3], perm[2] } };
	a->scale = dlb_attr_real(s->attr, s->n_attr, "alpha", 1);
	return has_shape(g, s->out[0], a->causal) && a->q.axis[3] == 3 && a->k.axis[3] == 3 &&
	       a->v.axis[3] == 3 && a->out[3] == 3 && dlb_match_closed(&a->m);
}

/* -- heads of K and V that serve several heads of Q -- */

/* Is s a (B, heads, rows, width) in which each head is repeated: Reshape(Expand(x as (B, heads, 1, rows,
 * width)))? Returns the operand of Expand, which has each head once; -1: it is not. */
static int repeated(const struct dlb_graph *g, const struct attention_side *s)
{
	const int reshape = g->tensor[s->t].producer,
		  five = dlb_is_op(g, reshape, "Reshape") ? g->op[reshape].in[0] : -1;
	const int expand = five < 0 ? -1 : g->tensor[five].producer;

	if (!dlb_is_op(g, expand, "Expand") || !changes_nothing(s->axis))
		return -1;
	const struct dlb_tensor *x = &g->tensor[g->op[expand].in[0]], *y = &g->tensor[five],
				*to = &g->tensor[s->t];
	if (x->n_dims != 5 || y->n_dims != 5 || x->dim[2].mul || x->dim[2].add != 1 || y->dim[2].mul ||
	    y->dim[1].mul || to->dim[1].mul || to->dim[1].add != y->dim[1].add * y->dim[2].add)
		return -1;
	for (int i = 0; i < 5; i++)
		if (i != 2 && (x->dim[i].mul != y->dim[i].mul || x->dim[i].add != y->dim[i].add))
			return -1;
	for (int i = 2; i < DIMS; i++)
		if (to->dim[i].mul != y->dim[i + 1].mul || to->dim[i].add != y->dim[i + 1].add)
			return -1;
	return g->op[expand].in[0];
}

/* -- replacement -- */

/* Does tensor t have these four dimensions? */
static bool has_dims(const struct dlb_tensor *t, const struct dlb_dim *dim)
{
	bool same = t->n_dims == DIMS;

	for (int i = 0; i < DIMS && same; i++)
		same = t->dim[i].mul == dim[i].mul && t->dim[i].add == dim[i].add;
	return same;
}

/* Makes s read t (batch, heads, 1, rows, width) as (batch, heads, rows, width). If t is a view of a tensor
 * with these dimensions, s reads that tensor, through the Transpose that makes it; else s reads a new Reshape
 * of t. */
static int read_once(struct attention_match *a, const char *name, int t, struct attention_side *s,
		     struct dlb_error *err)
{
	struct dlb_graph *g = a->m.g;
	const struct dlb_dim *d = g->tensor[t].dim, dim[DIMS] = { d[0], d[1], d[3], d[4] };
	const char *base = dlb_arena_printf(&g->arena, "%s.%s", g->op[a->m.root].name, name);
	const int view = g->tensor[t].producer;
	int64_t perm[DIMS];

	if (dlb_is_view(g, view) && has_dims(&g->tensor[g->op[view].in[0]], dim)) {
		s->t = g->op[view].in[0];
		const int move = g->tensor[s->t].producer;
		if (dlb_is_op(g, move, "Transpose") && read_perm(&g->op[move], "perm", perm) &&
		    perm[3] == 3) {
			memcpy(s->axis, perm, sizeof perm);
			s->t = g->op[move].in[0];
		}
		return 0;
	}
	const int in[2] = { t, dlb_match_shape(g, base, dim, DIMS) };
	s->t = dlb_graph_add_forward(g,
				     &(struct dlb_op_spec){
					     .name = base, .type = "Reshape", .in = in, .n_in = 2 },
				     err);
	return s->t < 0 ? -1 : 0;
}

static int fuse(struct attention_match *a, int64_t *count, struct dlb_error *err)
{
	struct dlb_graph *g = a->m.g;
	const int k = repeated(g, &a->k), v = repeated(g, &a->v);
	int64_t out[DIMS];

	if (k >= 0 && v >= 0 && g->tensor[k].dim[1].add == g->tensor[v].dim[1].add &&
	    (read_once(a, "k", k, &a->k, err) || read_once(a, "v", v, &a->v, err)))
		return -1;
	for (int i = 0; i < DIMS; i++)
		out[a->out[i]] = i;
	const struct dlb_attr attr[] = {
		{ .name = "scale", .type = DLB_ATTR_REAL, .f = a->scale },
		{ .name = "is_causal", .type = DLB_ATTR_INT, .i = a->causal },
		{ .name = "axesQ", .type = DLB_ATTR_INTS, .ints = a->q.axis, .n = DIMS },
		{ .name = "axesK", .type = DLB_ATTR_INTS, .ints = a->k.axis, .n = DIMS },
		{ .name = "axesV", .type = DLB_ATTR_INTS, .ints = a->v.axis, .n = DIMS },
		{ .name = "axesY", .type = DLB_ATTR_INTS, .ints = out, .n = DIMS }
	};
	const int in[] = { a->q.t, a->k.t, a->v.t, a->mask };
	return dlb_match_fuse(&a->m,
			      &(struct dlb_op_spec){ .type = "StridedAttention", .domain = "dlb", .in = in,
						     .n_in = a->mask < 0 ? 3 : 4, .attr = attr,
						     .n_attr = DLB_LEN(attr) }, -1, count, err);
}

int dlb_rewrite_attention(struct dlb_graph *g, int64_t *count, struct dlb_error *err)
{
	const int n_ops = g->n_ops;
	struct dlb_added *added = dlb_arena_array(&g->arena, (size_t)n_ops + 1, sizeof *added);
	int rc = 0;

	memset(added, 0, (size_t)n_ops * sizeof *added);
	for (int i = 0; i < n_ops && !rc; i++) {
		struct attention_match a = { .m = { .g = g, .root = i } };
		if (!match(&a, i))
			continue;
		added[i].first = g->n_ops;
		rc = fuse(&a, count, err);
		added[i].n = g->n_ops - added[i].first;
	}
	if (*count && !rc)
		dlb_graph_place_added(g, added, n_ops);
	return rc;
}
