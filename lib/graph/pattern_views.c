/* Chains of Reshapes and Transposes become one Transpose at most, and none if they cancel.
 *
 *     (N,8,T,32)  Reshape (8N,T,32)  Transpose (8N,32,T)  Reshape (N,8,32,T)   ->   Transpose (N,8,32,T)
 *     (T,8N,32)   Transpose (8N,T,32)  Reshape (N,8,T,32)   ->   Reshape (T,N,8,32)  Transpose (N,8,T,32)
 *
 * The second rewrite saves nothing itself, but a product can read through a Transpose
 * next to it (fuse_product.c).
 *
 * The dimensions of the source are divided into atoms such that each dimension of the chain is a sequence of
 * atoms. The resulting Transpose permutes groups of atoms that are adjacent in the source and in one
 * dimension of the result. */
#include <stdlib.h>
#include <string.h>
#include "graph/pattern.h"
#include "graph/rewrites.h"

enum { MAX_ATOMS = 16, MAX_CHAIN = 12 };
struct chain {
	int source, op[MAX_CHAIN], n;		/* ops, the last one first */
	int n_transposes;
	struct dlb_size atom[MAX_ATOMS];
	int n_atoms;
	/* order of the atoms in the source, and in the current tensor */
	int src[MAX_ATOMS], cur[MAX_ATOMS];
	int len[DLB_MAX_DIMS], n_dims;		/* number of atoms in each current dimension */
};
/* The result: a Transpose of n dimensions, whose sizes dim[] are in the order of the result. */
struct view_result { int n; int64_t perm[DLB_MAX_DIMS]; struct dlb_dim dim[DLB_MAX_DIMS]; bool in_order; };

bool dlb_is_view(const struct dlb_graph *g, int i)
{
	static const char *const views[] = { "Reshape", "Squeeze", "Unsqueeze", "Flatten" };

	for (int k = 0; k < DLB_LEN(views); k++)
		if (dlb_is_op(g, i, views[k]))
			return true;
	return false;
}

bool dlb_size_of(struct dlb_dim d, struct dlb_size *s)
{
	*s = d.mul ? (struct dlb_size){ d.mul, 1 } : (struct dlb_size){ d.add, 0 };
	return s->c > 0 && !(d.mul && d.add);
}

bool dlb_size_divides(struct dlb_size a, struct dlb_size b)
{
	return b.c % a.c == 0 && b.e >= a.e;
}

struct dlb_size dlb_size_quotient(struct dlb_size b, struct dlb_size a)
{
	return (struct dlb_size){ b.c / a.c, b.e - a.e };
}

struct dlb_dim dlb_size_dim(struct dlb_size s)
{
	return s.e ? (struct dlb_dim){ .mul = s.c } : (struct dlb_dim){ .add = s.c };
}

static bool is_one(struct dlb_size s)
{
	return s.c == 1 && s.e == 0;
}

static void insert_after(int *list, int n, int atom, int more)
{
	int i = 0;

	while (list[i] != atom)
		i++;
	memmove(list + i + 2, list + i + 1, (size_t)(n - i - 1) * sizeof *list);
	list[i + 1] = more;
}

/* Divides atom a into an outer part of this size and a new atom after it. */
static bool split(struct chain *c, int a, struct dlb_size outer)
{
	const int more = c->n_atoms;

	if (more == MAX_ATOMS)
		return false;
	insert_after(c->src, more, a, more);
	insert_after(c->cur, more, a, more);
	c->atom[more] = dlb_size_quotient(c->atom[a], outer);
	c->atom[a] = outer;
	c->n_atoms++;
	return true;
}

/* Groups the atoms, in their current order, into the dimensions of tensor t. */
static bool regroup(struct chain *c, const struct dlb_tensor *t)
{
	int at = 0;

	for (int i = 0; i < t->n_dims; i++) {
		struct dlb_size left;
		if (!dlb_size_of(t->dim[i], &left))
			return false;
		for (c->len[i] = 0; !is_one(left); c->len[i]++, at++) {
			if (at == c->n_atoms)
				return false;
			const int a = c->cur[at];
			if (!dlb_size_divides(c->atom[a], left) &&
			    (!dlb_size_divides(left, c->atom[a]) || !split(c, a, left)))
				return false;
			left = dlb_size_quotient(left, c->atom[a]);
		}
	}
	c->n_dims = t->n_dims;
	return at == c->n_atoms;
}

static bool permute(struct chain *c, const struct dlb_op *o)
{
	const int64_t *perm;
	int start[DLB_MAX_DIMS], cur[MAX_ATOMS], len[DLB_MAX_DIMS], n = 0;
	const int given = dlb_attr_ints(o->attr, o->n_attr, "perm", &perm);

	for (int i = 0, at = 0; i < c->n_dims; at += c->len[i++])
		start[i] = at;
	for (int i = 0; i < c->n_dims; i++) {
		const int64_t from = given ? perm[i] : c->n_dims - 1 - i;
		len[i] = c->len[from];
		memcpy(cur + n, c->cur + start[from], (size_t)len[i] * sizeof *cur);
		n += len[i];
	}
	memcpy(c->cur, cur, sizeof cur);
	memcpy(c->len, len, sizeof len);
	return true;
}

/* Walks from root i back to the first tensor that no view makes or that has other readers; then applies
 * the chain to the atoms. */
static bool follow(const struct dlb_graph *g, int i, struct chain *c)
{
	*c = (struct chain){ .source = -1 };
	for (int op = i; c->n < MAX_CHAIN; op = g->tensor[c->source].producer) {
		c->op[c->n++] = op;
		c->source = g->op[op].in[0];
		c->n_transposes += dlb_is_op(g, op, "Transpose");
		const int next = g->tensor[c->source].producer;
		if (next < 0 || (!dlb_is_view(g, next) && !dlb_is_op(g, next, "Transpose")) ||
		    !dlb_match_read_once(g, c->source))
			break;
	}
	const struct dlb_tensor *t = &g->tensor[c->source];
	for (int k = 0; k < t->n_dims; k++) {
		struct dlb_size s;
		if (!dlb_size_of(t->dim[k], &s))
			return false;
		c->len[k] = !is_one(s);
		if (!is_one(s)) {
			c->src[c->n_atoms] = c->cur[c->n_atoms] = c->n_atoms;
			c->atom[c->n_atoms++] = s;
		}
	}
	c->n_dims = t->n_dims;
	for (int k = c->n - 1; k >= 0; k--) {
		const struct dlb_op *o = &g->op[c->op[k]];
		if (dlb_is_op(g, c->op[k], "Transpose") ? !permute(c, o) : !regroup(c, &g->tensor[o->out[0]]))
			return false;
	}
	return true;
}

static int place(const struct chain *c, int atom)
{
	int i = 0;

	while (c->src[i] != atom)
		i++;
	return i;
}

/* Groups atoms that are adjacent in the source and in a current dimension; false: too many groups. */
static bool conclude(const struct chain *c, struct view_result *y)
{
	int first[MAX_ATOMS];			/* position in the source of each group's first atom */
	struct dlb_size s[MAX_ATOMS];

	*y = (struct view_result){ .in_order = true };
	for (int i = 0, at = 0; i < c->n_dims; i++)
		for (int k = 0; k < c->len[i]; k++, at++) {
			const int p = place(c, c->cur[at]);
			const struct dlb_size a = c->atom[c->cur[at]];
			if (k && p == place(c, c->cur[at - 1]) + 1 && s[y->n - 1].e + a.e <= 1) {
				s[y->n - 1] = (struct dlb_size){ s[y->n - 1].c * a.c, s[y->n - 1].e + a.e };
				continue;
			}
			if (y->n == DLB_MAX_DIMS)
				return false;
			first[y->n] = p;
			s[y->n++] = a;
		}
	for (int i = 0; i < y->n; i++) {
		y->dim[i] = dlb_size_dim(s[i]);
		y->perm[i] = 0;
		for (int k = 0; k < y->n; k++)
			y->perm[i] += first[k] < first[i];
		y->in_order &= y->perm[i] == i;
	}
	return true;
}

static bool has_dims(const struct dlb_tensor *t, const struct dlb_dim *dim, int n)
{
	for (int i = 0; i < n && t->n_dims == n; i++)
		if (t->dim[i].mul != dim[i].mul || t->dim[i].add != dim[i].add)
			return false;
	return t->n_dims == n;
}

/* The root becomes the remaining Reshape or Transpose; Reshapes are added where the dimensions differ. */
static int replace(struct dlb_match *m, const struct chain *c, const struct view_result *y, int64_t *count,
		   struct dlb_error *err)
{
	struct dlb_graph *g = m->g;
	const char *name = g->op[m->root].name;
	const struct dlb_tensor result = g->tensor[g->op[m->root].out[0]];
	struct dlb_dim before[DLB_MAX_DIMS];
	int x = c->source;

	if (!y->in_order) {
		for (int i = 0; i < y->n; i++)
			before[y->perm[i]] = y->dim[i];
		if (!has_dims(&g->tensor[x], before, y->n)) {
			const int in[2] = { x, dlb_match_shape(g, name, before, y->n) };
			const char *apart = dlb_arena_printf(&g->arena, "%s.apart", name);
			x = dlb_graph_add_forward(g, &(struct dlb_op_spec){ .name = apart, .type = "Reshape",
									    .in = in, .n_in = 2 }, err);
		}
		const struct dlb_attr perm = {
			.name = "perm", .type = DLB_ATTR_INTS, .ints = y->perm, .n = y->n
		};
		if (x >= 0 && has_dims(&result, y->dim, y->n))
			return dlb_match_fuse(m, DLB_SPEC_ATTR("Transpose", &perm, 1, x), -1, count, err);
		const char *turned = dlb_arena_printf(&g->arena, "%s.turned", name);
		if (x >= 0)
			x = dlb_graph_add_forward(g, &(struct dlb_op_spec){ .name = turned,
									    .type = "Transpose",
									    DLB_OPERANDS(x), .attr = &perm,
									    .n_attr = 1 }, err);
	}
	if (x < 0)
		return -1;
	const int in[2] = { x, dlb_match_shape(g, name, result.dim, result.n_dims) };
	return dlb_match_fuse(m, &(struct dlb_op_spec){ .type = "Reshape", .in = in, .n_in = 2 }, -1, count,
			      err);
}

/* Does the result have fewer Transposes, or its one Transpose last, next to a product? */
static bool is_better(const struct dlb_graph *g, const struct chain *c, const struct view_result *y)
{
	const struct dlb_tensor *result = &g->tensor[g->op[c->op[0]].out[0]];

	if (y->in_order)
		return c->n_transposes > 0;
	return c->n_transposes > 1 ||
	       (c->n_transposes == 1 && c->n > 1 && !dlb_is_op(g, c->op[0], "Transpose") &&
		has_dims(result, y->dim, y->n));
}

/* Is op i the last op of a chain: a view or Transpose that no single other view or Transpose reads? */
static bool ends_chain(const struct dlb_graph *g, int i)
{
	if (!dlb_is_view(g, i) && !dlb_is_op(g, i, "Transpose"))
		return false;
	const int t = g->op[i].out[0],
		  reader = dlb_match_read_once(g, t) ? g->reader[g->reader_start[t]] : -1;
	return reader < 0 || (!dlb_is_view(g, reader) && !dlb_is_op(g, reader, "Transpose")) ||
	       g->op[reader].in[0] != t;
}

int dlb_rewrite_transposes(struct dlb_graph *g, int64_t *count, struct dlb_error *err)
{
	const int n_ops = g->n_ops;
	struct dlb_added *added = dlb_xcalloc((size_t)n_ops + 1, sizeof *added);
	int rc = 0;

	for (int i = n_ops - 1; i >= 0 && !rc; i--) {
		struct dlb_match m = { .g = g, .root = i };
		struct chain c;
		struct view_result y;
		if (!ends_chain(g, i) || !follow(g, i, &c) || !conclude(&c, &y) || !is_better(g, &c, &y))
			continue;
		for (int k = 1; k < c.n; k++)
			m.op[m.n++] = c.op[k];
		added[i].first = g->n_ops;
		rc = replace(&m, &c, &y, count, err);
		added[i].n = g->n_ops - added[i].first;
	}
	if (!rc)
		dlb_graph_place_added(g, added, n_ops);
	free(added);
	return rc;
}
