/* MaxUnpool: x (N, C, D..), indices[, output_shape] -> y, which is zero except at the elements that MaxPool's
 * second output names: indices count the elements of the tensor that a pool of this window would have read. A
 * larger output_shape has that tensor at its start along every dimension.
 * MaxUnpoolGrad (dy, indices): as in PyTorch, every element gets the gradient at its index,
 * even if it was overwritten. */
#include "op/op_util.h"

#include <string.h>

struct unpool {
	enum dlb_dtype type, index;
	int n_dims;
	int64_t count, all;		/* elements of x, and of the tensor that the indices refer to */
	int64_t dim[DLB_MAX_DIMS];	/* dimensions of that tensor */
	struct dlb_desc y;
};

/* For x of shape (N, C, D..): the shape of y, from output_shape (input 2) or computed. */
static int parse(const struct dlb_op_io *io, const struct dlb_desc *x, struct unpool *u,
		 struct dlb_error *err)
{
	int64_t room[DLB_MAX_DIMS], shape[DLB_MAX_DIMS];
	struct dlb_kernel_window w;
	int n_shape;

	if (x->n_dims < 3 || x->n_dims > 5)
		return dlb_op_fail(io, err, "input has %d dimensions, should have 3 to 5", x->n_dims);
	if (io->in[1].dtype != DLB_I64 || !dlb_desc_same_shape(&io->in[1], x))
		return dlb_op_fail(io, err, "the indices must be of type i64 and of the input's shape");
	*u = (struct unpool){ .type = x->dtype, .n_dims = x->n_dims, .count = dlb_desc_count(x), .y = *x };
	for (int i = 0; i < x->n_dims - 2; i++)
		room[i] = 1 << 25; /* strides and pads are read with input sizes that any window fits */
	if (dlb_window_read(io, room, x->n_dims - 2, NULL, &w, err))
		return -1;
	u->dim[0] = x->dim[0];
	u->dim[1] = x->dim[1];
	for (int i = 0; i < x->n_dims - 2; i++) {
		const int64_t size = (x->dim[2 + i] - 1) * w.stride[i] - w.pad_begin[i] - w.pad_end[i] +
				     w.kernel[i];

		if (x->dim[2 + i] < 1 || x->dim[2 + i] > 1 << 24 || size < 1 || size > 1 << 24)
			return dlb_op_fail(io, err, "a size along dimension %d is not possible", 2 + i);
		u->dim[2 + i] = size;
	}
	memcpy(u->y.dim, u->dim, sizeof u->dim);
	n_shape = dlb_io_ints(io, 2, "output_shape", shape, DLB_MAX_DIMS, err);
	if (n_shape < 0)
		return -1;
	if (n_shape && n_shape != x->n_dims)
		return dlb_op_fail(io, err, "output_shape has %d entries for %d dimensions", n_shape,
				   x->n_dims);
	for (int i = 2; i < n_shape; i++) {
		if (shape[i] < u->dim[i] || shape[i] > 1 << 24)
			return dlb_op_fail(io, err,
					   "output_shape: %lld along dimension %d, at least %lld is needed",
					   (long long)shape[i], i, (long long)u->dim[i]);
		u->y.dim[i] = shape[i];
	}
	u->all = dlb_checked_count(u->dim, u->n_dims);
	if (u->all < 0 || dlb_checked_count(u->y.dim, u->n_dims) < 0)
		return dlb_op_fail(io, err, "the output would be too large");
	return 0;
}

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct unpool u;

	if (parse(io, &io->in[0], &u, err))
		return -1;
	io->out[0] = u.y;
	return 0;
}

/* The element of y for an index; -1: out of range. */
static int64_t element(const struct unpool *u, int64_t index)
{
	int64_t at = 0, step = 1;

	if (index < 0 || index >= u->all)
		return -1;
	for (int d = u->n_dims - 1; d >= 0; d--) {
		at += index % u->dim[d] * step;
		step *= u->y.dim[d];
		index /= u->dim[d];
	}
	return at;
}

static void run(const void *ctx, const struct dlb_run *r)
{
	const struct unpool *u = ctx;
	const size_t size = dlb_dtype_bytes(u->type);

	memset(r->out[0], 0, dlb_desc_bytes(&u->y));
	for (int64_t i = 0; i < u->count; i++) {
		const int64_t at = element(u, ((const int64_t *)r->in[1])[i]);

		if (at >= 0)
			memcpy((char *)r->out[0] + (size_t)at * size,
			       (const char *)r->in[0] + (size_t)i * size, size);
	}
}

static void grad_run(const void *ctx, const struct dlb_run *r)
{
	const struct unpool *u = ctx;

	for (int64_t i = 0; i < u->count; i++) {
		const int64_t at = element(u, ((const int64_t *)r->in[1])[i]);

		dlb_real_set(r->out[0], u->type, i, at < 0 ? 0 : dlb_real_get(r->in[0], u->type, at));
	}
}

static int kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		  struct dlb_error *err)
{
	struct unpool u;

	if (parse(io, &io->in[0], &u, err))
		return -1;
	return be->ops->host(be, run, &u, sizeof u, 0, k, err);
}

static int gradient(struct dlb_builder *b, struct dlb_error *err)
{
	int in[3] = { b->dout[0], b->in[1], b->io.n_in > 2 ? b->in[2] : -1 };

	(void)err;
	return dlb_b_gradient(b, &(struct dlb_op_spec){ .type = "MaxUnpoolGrad",
							.in = in,
							.n_in = in[2] < 0 ? 2 : 3,
							.attr = b->io.attr,
							.n_attr = b->io.n_attr });
}

/* x has the shape of the indices. */
static int grad_parse(const struct dlb_op_io *io, struct dlb_desc *x, struct unpool *u, struct dlb_error *err)
{
	*x = dlb_desc_make(io->in[0].dtype, io->in[1].n_dims, io->in[1].dim);
	if (parse(io, x, u, err))
		return -1;
	if (!dlb_desc_same_shape(&u->y, &io->in[0]))
		return dlb_op_fail(io, err, "the gradient's shape is not that of the output");
	return 0;
}

static int grad_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct unpool u;

	return grad_parse(io, &io->out[0], &u, err);
}

static int grad_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	struct dlb_desc x;
	struct unpool u;

	if (grad_parse(io, &x, &u, err))
		return -1;
	return be->ops->host(be, grad_run, &u, sizeof u, 0, k, err);
}

const struct dlb_op_class dlb_op_MaxUnpool = { .name = "MaxUnpool",
					       .n_in = { 2, 3 },
					       .n_out = { 1, 1 },
					       .flags = DLB_OP_ON_CPU,
					       .work = "move",
					       .infer = infer,
					       .flops = dlb_no_flops,
					       .gradient = gradient,
					       .kernel = kernel };
const struct dlb_op_class dlb_op_MaxUnpoolGrad = { .name = "MaxUnpoolGrad",
						   .domain = "dlb",
						   .n_in = { 2, 3 },
						   .n_out = { 1, 1 },
						   .flags = DLB_OP_ON_CPU,
						   .work = "move",
						   .infer = grad_infer,
						   .flops = dlb_no_flops,
						   .kernel = grad_kernel };
