/* Product (domain dlb): MatMul of operands that are read, and a result that is written, transposed.
 *
 *     Y = Transpose(alpha Transpose(A, permA) Transpose(B, permB), permY)
 *
 * It serves attention, whose heads are a middle dimension in memory and a batch of the product. It copies
 * nothing: the kernel gets strides. A, B and Y have the same number of dimensions, at least 3, and A and B
 * the same batches (no broadcasting). A missing perm is the identity. The gradients are Products too. */
#include "op/op_util.h"

#include <string.h>

struct permuted_product {
	int n;						/* number of dimensions */
	int64_t perm[3][DLB_MAX_DIMS];			/* A, B, Y */
	int64_t dim[3][DLB_MAX_DIMS];			/* sizes of A, B, Y in the product's order */
};

static int read_perm(const struct dlb_op_io *io, const char *name, int n, int64_t *perm,
		     struct dlb_error *err)
{
	const int64_t *v;
	const int given = dlb_attr_ints(io->attr, io->n_attr, name, &v);
	unsigned seen = 0;

	for (int i = 0; i < n; i++)
		perm[i] = i;
	if (!given)
		return 0;
	for (int i = 0; i < given && given == n; i++)
		if (v[i] >= 0 && v[i] < n)
			seen |= 1u << (perm[i] = v[i]);
	return seen == (1u << n) - 1 ?
		       0 :
		       dlb_op_fail(io, err, "attribute '%s' is no order of %d dimensions", name, n);
}

static int fill(const struct dlb_op_io *io, struct permuted_product *p, struct dlb_error *err)
{
	static const char *const names[] = { "permA", "permB", "permY" };
	char x[128], y[128];
	const int n = io->in[0].n_dims;

	*p = (struct permuted_product){ .n = n };
	if (n < 3 || n != io->in[1].n_dims)
		goto differ;
	for (int k = 0; k < 3; k++)
		if (read_perm(io, names[k], n, p->perm[k], err))
			return -1;
	for (int k = 0; k < 2; k++)
		for (int i = 0; i < n; i++)
			p->dim[k][i] = io->in[k].dim[p->perm[k][i]];
	for (int i = 0; i < n - 2; i++)
		if (p->dim[0][i] != p->dim[1][i])
			goto differ;
	if (p->dim[0][n - 1] != p->dim[1][n - 2])
		goto differ;
	memcpy(p->dim[2], p->dim[0], sizeof p->dim[2]);
	p->dim[2][n - 1] = p->dim[1][n - 1];
	return 0;
differ:
	return dlb_op_fail(io, err, "%s and %s do not fit together", dlb_desc_str(&io->in[0], x, sizeof x),
			   dlb_desc_str(&io->in[1], y, sizeof y));
}

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct permuted_product p;
	int64_t dim[DLB_MAX_DIMS];

	if (dlb_same_types(io, 0, 2, err) || fill(io, &p, err))
		return -1;
	for (int i = 0; i < p.n; i++)
		dim[i] = p.dim[2][p.perm[2][i]];
	io->out[0] = dlb_desc_make(io->in[0].dtype, p.n, dim);
	return 0;
}

static double flops(const struct dlb_op_io *io)
{
	struct permuted_product p;

	return fill(io, &p, NULL) ? 0 : 2.0 * (double)dlb_desc_count(&io->out[0]) * (double)p.dim[0][p.n - 1];
}

/* Strides in the product's order of dimensions. */
static void strides(const struct dlb_desc *d, const int64_t *perm, bool inverse, int64_t *out)
{
	int64_t s[DLB_MAX_DIMS];

	dlb_desc_strides(d, s);
	for (int i = 0; i < d->n_dims; i++)
		out[inverse ? perm[i] : i] = s[inverse ? i : perm[i]];
}

static void swap(int64_t *v, int i, int j)
{
	const int64_t x = v[i];

	v[i] = v[j];
	v[j] = x;
}

static int kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		  struct dlb_error *err)
{
	struct dlb_product_desc d = { .dtype = io->in[0].dtype, .alpha = dlb_io_real(io, "alpha", 1) };
	struct permuted_product p;
	struct dlb_kernel *sub = NULL;
	int rc, a = 0, w = 1;

	if (fill(io, &p, err))
		return -1;
	d.n_dims = p.n;
	memcpy(d.dim, p.dim[2], sizeof d.dim);
	d.k = p.dim[0][p.n - 1];
	strides(&io->in[0], p.perm[0], false, d.a);
	strides(&io->in[1], p.perm[1], false, d.w);
	strides(&io->out[0], p.perm[2], true, d.y);
	if (d.y[p.n - 1] != 1 && d.y[p.n - 2] == 1) {	/* y is column-major: computes y^T =
							 * w^T a^T, which is row-major */
		int64_t x[DLB_MAX_DIMS];

		memcpy(x, d.a, sizeof x);
		memcpy(d.a, d.w, sizeof x);
		memcpy(d.w, x, sizeof x);
		swap(d.a, p.n - 2, p.n - 1);
		swap(d.w, p.n - 2, p.n - 1);
		swap(d.y, p.n - 2, p.n - 1);
		swap(d.dim, p.n - 2, p.n - 1);
		a = 1, w = 0;
	}
	struct dlb_chain *c = dlb_chain_new(be, err);

	rc = be->ops->product(be, &d, &sub, err);
	dlb_chain_add(c, rc, sub, DLB_REFS(a, w), 2, DLB_REFS(DLB_OUT(0)), 1);
	return dlb_chain_finish(c, k);
}

/* -- gradient -- */

static void inverse(const int64_t *perm, int n, int64_t *out)
{
	for (int i = 0; i < n; i++)
		out[perm[i]] = i;
}

static int product_of(struct dlb_builder *b, int x, const int64_t *perm_x, int w, const int64_t *perm_w,
		      const int64_t *perm_y, int n)
{
	struct dlb_attr a[4] = { dlb_make_ints("permA", perm_x, n), dlb_make_ints("permB", perm_w, n),
				 dlb_make_ints("permY", perm_y, n),
				 dlb_make_real("alpha", dlb_io_real(&b->io, "alpha", 1)) };

	return dlb_b_op(b, DLB_SPEC_ATTR("Product", a, 4, x, w), NULL, -1);
}

/* With A', B', Y' in the product's order: dA' = alpha dY' B'^T, dB' = alpha A'^T dY', each
 * written in its own order. */
static int gradient(struct dlb_builder *b, struct dlb_error *err)
{
	int64_t back[3][DLB_MAX_DIMS];
	struct permuted_product p;

	if (fill(&b->io, &p, err))
		return -1;
	for (int k = 0; k < 3; k++)
		inverse(p.perm[k], p.n, back[k]);
	for (int k = 0; k < 2; k++)
		swap(p.perm[k], p.n - 2, p.n - 1);
	if (b->need[0])
		b->din[0] = product_of(b, b->dout[0], back[2], b->in[1], p.perm[1], back[0], p.n);
	if (b->need[1])
		b->din[1] = product_of(b, b->in[0], p.perm[0], b->dout[0], back[2], back[1], p.n);
	return (b->need[0] && b->din[0] < 0) || (b->need[1] && b->din[1] < 0) ? -1 : 0;
}

const struct dlb_op_class dlb_op_Product = { .name = "Product",
					     .domain = "dlb",
					     .n_in = { 2, 2 },
					     .n_out = { 1, 1 },
					     .bf16 = DLB_BF16_ALWAYS,
					     .work = "dense",
					     .infer = infer,
					     .flops = flops,
					     .gradient = gradient,
					     .kernel = kernel };
