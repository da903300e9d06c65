/* PyTorch's Linear, as exporters write it for inputs of more than two dimensions, becomes a Gemm:
 *
 *     Transpose(w)   MatMul(x, w')   Add(b, .)      ->     Reshape(x)   Gemm(x2, w, b)   Reshape(.)
 *
 * Gemm adds the bias within the product and reads w untransposed. Its gradients are products without
 * transposed copies and one sum over rows. The two Reshapes are views and cost nothing. */
#include <stdlib.h>
#include <string.h>
#include "graph/pattern.h"
#include "graph/rewrites.h"

static bool swaps_two(const struct dlb_op *o)
{
	const int64_t *perm;
	const int n = dlb_attr_ints(o->attr, o->n_attr, "perm", &perm);

	return n == 0 || (n == 2 && perm[0] == 1 && perm[1] == 0);
}

static bool fixed(const struct dlb_tensor *t, int n_dims)
{
	for (int i = 0; i < t->n_dims; i++)
		if (t->dim[i].mul)
			return false;
	return t->n_dims == n_dims;
}

struct linear_match { int x, w, bias, matmul; bool transposed; };

/* Matches a product of a tensor by a matrix. */
static bool by_matrix(const struct dlb_graph *g, struct linear_match *l)
{
	const struct dlb_op *o = &g->op[l->matmul];
	const int t = g->tensor[o->in[1]].producer;

	l->x = o->in[0];
	l->w = o->in[1];
	/* the Transpose stays if it has another reader */
	l->transposed = dlb_is_op(g, t, "Transpose") && swaps_two(&g->op[t]);
	if (l->transposed)
		l->w = g->op[t].in[0];
	return fixed(&g->tensor[l->w], 2) && g->tensor[l->x].n_dims >= 2 &&
	       dlb_dtype_is_float(g->tensor[l->w].dtype);
}

/* Is operand k of the root, an Add, a product by a matrix, and the other operand a vector of the product's
 * width? */
static bool match_add(struct dlb_match *m, int k, struct linear_match *l)
{
	const struct dlb_graph *g = m->g;

	l->bias = g->op[m->root].in[1 - k];
	l->matmul = dlb_match_op(m, g->op[m->root].in[k], "MatMul");
	return l->matmul >= 0 && by_matrix(g, l) && fixed(&g->tensor[l->bias], 1) &&
	       g->tensor[l->bias].dim[0].add == g->tensor[l->w].dim[!l->transposed].add &&
	       dlb_match_closed(m);
}

/* Matches a product without a bias. Fusing it is worthwhile if it removes a Transpose, or if Gemm can keep
 * the weight packed for the rows of all samples. */
static bool match_product(struct dlb_match *m, struct linear_match *l)
{
	l->bias = -1;
	l->matmul = m->root;
	return by_matrix(m->g, l) &&
		(l->transposed || (m->g->tensor[l->x].n_dims > 2 && m->g->tensor[l->w].kind == DLB_T_WEIGHT));
}

/* If x has more than two dimensions, Reshape and Gemm are added at the end, and the root becomes the Reshape
 * back. */
static int fuse(struct dlb_match *m, const struct linear_match *l, int64_t *count, struct dlb_error *err)
{
	struct dlb_graph *g = m->g;
	const char *name = g->op[l->matmul].name;
	const struct dlb_attr tb = { .name = "transB", .type = DLB_ATTR_INT, .i = l->transposed };
	const int n_dims = g->tensor[l->x].n_dims, n_in = l->bias < 0 ? 2 : 3;
	int in[3] = { l->x, l->w, l->bias };

	if (n_dims == 2)
		return dlb_match_fuse(m,
				      &(struct dlb_op_spec){ .type = "Gemm", .in = in, .n_in = n_in,
							     .attr = &tb, .n_attr = 1 }, l->matmul, count,
				      err);
	const struct dlb_dim rows[2] = { { 0, -1 }, g->tensor[l->x].dim[n_dims - 1] };
	struct dlb_dim dim[DLB_MAX_DIMS];
	memcpy(dim, g->tensor[g->op[m->root].out[0]].dim, sizeof dim);
	const int flat[2] = { l->x, dlb_match_shape(g, name, rows, 2) };
	const char *rows_name = dlb_arena_printf(&g->arena, "%s.rows", name);
	const char *product = dlb_arena_printf(&g->arena, "%s.gemm", name);
	in[0] = dlb_graph_add_forward(g, &(struct dlb_op_spec){ .name = rows_name, .type = "Reshape",
								.in = flat, .n_in = 2 }, err);
	const int y = in[0] < 0 ? -1 :
		dlb_graph_add_forward(g, &(struct dlb_op_spec){ .name = product, .type = "Gemm", .in = in,
								.n_in = n_in, .attr = &tb, .n_attr = 1 },
				      err);
	if (y < 0)
		return -1;
	const int back[2] = { y, dlb_match_shape(g, name, dim, n_dims) };
	return dlb_match_fuse(m, &(struct dlb_op_spec){ .type = "Reshape", .in = back, .n_in = 2 }, -1, count,
			      err);
}

int dlb_rewrite_linear(struct dlb_graph *g, int64_t *count, struct dlb_error *err)
{
	const int n_ops = g->n_ops;
	struct dlb_added *added = dlb_xcalloc((size_t)n_ops + 1, sizeof *added);
	int rc = 0;

	for (int i = n_ops - 1; i >= 0 && !rc; i--) {
		bool done = false;
		for (int k = 0; k < 3 && !done; k++) {
			struct dlb_match m = { .g = g, .root = i };
			struct linear_match l;
			done = k < 2 ? dlb_is_op(g, i, "Add") && g->op[i].n_in == 2 && match_add(&m, k, &l)
				: dlb_is_op(g, i, "MatMul") && match_product(&m, &l);
			added[i].first = g->n_ops;
			if (done)
				rc = fuse(&m, &l, count, err);
			added[i].n = g->n_ops - added[i].first;
		}
	}
	if (!rc)
		dlb_graph_place_added(g, added, n_ops);
	free(added);
	return rc;
}
