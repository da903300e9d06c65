/* Col2Im: data (N, C K, L), image_shape (D..), block_shape (K..) -> image (N, C, D..): at each of its L
 * positions the block adds its K elements to the image elements it covers. Col2ImGrad (dimage) reads them
 * back (im2col); its attributes are those of the forward vertex, and "block_shape". */
#include "op/op_util.h"

#include <string.h>

struct cols { enum dlb_dtype type; struct dlb_kernel_window w; int64_t planes, image[3], block, places; };

/* Reads the window of size `block` on images of size x->dim[2..]; x is (N, C, D..). */
static int parse(const struct dlb_op_io *io, const struct dlb_desc *x, const int64_t *block, struct cols *c,
		 struct dlb_error *err)
{
	const int n = x->n_dims - 2;

	*c = (struct cols){ .type = x->dtype,
			    .planes = x->dim[0] * x->dim[1],
			    .image = { 1, 1, 1 },
			    .block = 1,
			    .places = 1 };
	if (dlb_window_read(io, x->dim + 2, n, block, &c->w, err))
		return -1;
	for (int i = 0; i < n; i++) {
		c->image[i] = x->dim[2 + i];
		c->block *= c->w.kernel[i];
		c->places *= c->w.out[i];
	}
	if (dlb_checked_count((int64_t[]){ c->planes, c->block, c->places }, 3) < 0)
		return dlb_op_fail(io, err, "too large");
	return 0;
}

static int forward_parse(const struct dlb_op_io *io, struct dlb_desc *y, struct cols *c,
			 struct dlb_error *err)
{
	const struct dlb_desc *x = &io->in[0];
	int64_t image[3], block[3], elements = 1;
	const int n = dlb_io_ints(io, 1, "image_shape", image, 3, err);

	if (n < 0 || dlb_io_ints(io, 2, "block_shape", block, 3, err) != n || n == 0)
		return n < 0 ? -1 :
			       dlb_op_fail(io, err,
					   "image_shape and block_shape must have as many entries, 1 to 3");
	if (x->n_dims != 3)
		return dlb_op_fail(io, err, "input has %d dimensions, should have 3", x->n_dims);
	*y = dlb_desc_make(x->dtype, 2 + n, x->dim);
	for (int i = 0; i < n; i++) {
		if (image[i] < 1 || image[i] > 1 << 20 || block[i] < 1 || block[i] > 1 << 20)
			return dlb_op_fail(io, err, "blocks of %lld on an image of %lld are not possible",
					   (long long)block[i], (long long)image[i]);
		y->dim[2 + i] = image[i];
		elements *= block[i];
	}
	if (x->dim[1] % elements)
		return dlb_op_fail(io, err, "%lld rows are no whole number of blocks of %lld elements",
				   (long long)x->dim[1], (long long)elements);
	y->dim[1] = x->dim[1] / elements;
	if (dlb_checked_count(y->dim, y->n_dims) < 0 || parse(io, y, block, c, err))
		return dlb_op_fail(io, err, "blocks do not fit the image");
	if (c->places != x->dim[2])
		return dlb_op_fail(io, err, "%lld columns for the %lld places of a block",
				   (long long)x->dim[2], (long long)c->places);
	return 0;
}

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct cols c;

	return forward_parse(io, &io->out[0], &c, err);
}

/* The image element covered by element k of the block at position l; -1: outside. */
static int64_t below(const struct cols *c, int64_t k, int64_t l)
{
	int64_t at = 0, step = 1;

	for (int d = c->w.n - 1; d >= 0; d--) {
		const int64_t i = l % c->w.out[d] * c->w.stride[d] - c->w.pad_begin[d] +
				  k % c->w.kernel[d] * c->w.dilation[d];

		if (i < 0 || i >= c->image[d])
			return -1;
		at += i * step;
		step *= c->image[d];
		k /= c->w.kernel[d];
		l /= c->w.out[d];
	}
	return at;
}

static void run_either(const struct cols *c, const struct dlb_run *r, bool to_image)
{
	const int64_t size = c->image[0] * c->image[1] * c->image[2];

	if (to_image)
		memset(r->out[0], 0, (size_t)(c->planes * size) * dlb_dtype_bytes(c->type));
	for (int64_t p = 0; p < c->planes; p++)
		for (int64_t k = 0; k < c->block; k++)
			for (int64_t l = 0; l < c->places; l++) {
				const int64_t col = (p * c->block + k) * c->places + l, at = below(c, k, l),
					      i = p * size + at;

				if (!to_image)
					dlb_real_set(r->out[0], c->type, col,
						     at < 0 ? 0 : dlb_real_get(r->in[0], c->type, i));
				else if (at >= 0)
					dlb_real_set(r->out[0], c->type, i,
						     dlb_real_get(r->out[0], c->type, i) +
							     dlb_real_get(r->in[0], c->type, col));
			}
}

static void run(const void *ctx, const struct dlb_run *r)
{
	run_either(ctx, r, true);
}

static void grad_run(const void *ctx, const struct dlb_run *r)
{
	run_either(ctx, r, false);
}

static int kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		  struct dlb_error *err)
{
	struct dlb_desc y;
	struct cols c;

	if (forward_parse(io, &y, &c, err))
		return -1;
	return be->ops->host(be, run, &c, sizeof c, 0, k, err);
}

static int gradient(struct dlb_builder *b, struct dlb_error *err)
{
	static const char *const keep[] = { "strides", "dilations", "pads" };
	struct dlb_attr a[4];
	int64_t block[3];
	const int n = dlb_io_ints(&b->io, 2, "block_shape", block, 3, err);

	if (n < 0)
		return -1;
	if (!b->need[0])
		return 0;
	a[0] = dlb_make_ints("block_shape", block, n);
	return dlb_b_gradient(b, DLB_SPEC_ATTR("Col2ImGrad", a,
					       1 + dlb_keep_attrs(&b->io, keep, DLB_LEN(keep), a + 1),
					       b->dout[0]));
}

static int grad_parse(const struct dlb_op_io *io, struct cols *c, struct dlb_error *err)
{
	const int64_t *block;
	const int n = dlb_attr_ints(io->attr, io->n_attr, "block_shape", &block);

	if (n < 1 || n > 3 || io->in[0].n_dims != n + 2)
		return dlb_op_fail(io, err, "the block has %d dimensions, the gradient %d", n,
				   io->in[0].n_dims);
	return parse(io, &io->in[0], block, c, err);
}

static int grad_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	const struct dlb_desc *dy = &io->in[0];
	struct cols c;

	if (grad_parse(io, &c, err))
		return -1;
	io->out[0] = dlb_desc_make(dy->dtype, 3, (int64_t[]){ dy->dim[0], dy->dim[1] * c.block, c.places });
	return 0;
}

static int grad_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	struct cols c;

	if (grad_parse(io, &c, err))
		return -1;
	return be->ops->host(be, grad_run, &c, sizeof c, 0, k, err);
}

static double flops(const struct dlb_op_io *io)
{
	return (double)dlb_desc_count(&io->in[0]);
}

const struct dlb_op_class dlb_op_Col2Im = { .name = "Col2Im",
					    .n_in = { 3, 3 },
					    .n_out = { 1, 1 },
					    .flags = DLB_OP_ON_CPU,
					    .work = "move",
					    .infer = infer,
					    .flops = flops,
					    .gradient = gradient,
					    .kernel = kernel };
const struct dlb_op_class dlb_op_Col2ImGrad = { .name = "Col2ImGrad",
						.domain = "dlb",
						.n_in = { 1, 1 },
						.n_out = { 1, 1 },
						.flags = DLB_OP_ON_CPU,
						.work = "move",
						.infer = grad_infer,
						.kernel = grad_kernel };
