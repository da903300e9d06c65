/* AffineGrid: theta (N, n, n + 1), size (N, C, D..) -> grid (N, D.., n), the coordinates that GridSample
 * reads: theta times (.., y, x, 1) for each element of an image of n = 2 or 3 dimensions. Coordinates range
 * from -1 to 1, the last dimension first. AffineGridGrad (dgrid) -> dtheta.
 *
 * The entries N and C of `size` are ignored: N is theta's, C does not matter. */
#include "op/op_util.h"

#include <string.h>

enum { MOST = 1 << 24 };

struct affine { enum dlb_dtype type; bool align; int n; int64_t batch, points, size[3]; };

static int check_dims(const struct dlb_op_io *io, struct affine *a, struct dlb_error *err)
{
	if (a->n < 2 || a->n > 3)
		return dlb_op_fail(io, err, "images of %d dimensions; 2 or 3 are possible", a->n);
	a->points = 1;
	for (int i = 0; i < a->n; i++) {
		if (a->size[i] < 1 || a->size[i] > MOST)
			return dlb_op_fail(io, err, "an image of size %lld is not possible",
					   (long long)a->size[i]);
		a->points *= a->size[i];
	}
	if (dlb_checked_count((int64_t[]){ a->batch, a->size[0], a->size[1], a->n == 3 ? a->size[2] : 1,
					   a->n },
			      5) < 0)
		return dlb_op_fail(io, err, "the grid would be too large");
	return 0;
}

static int parse(const struct dlb_op_io *io, struct affine *a, struct dlb_error *err)
{
	const struct dlb_desc *theta = &io->in[0];
	int64_t size[DLB_MAX_DIMS];
	int n = dlb_io_ints(io, 1, "size", size, 5, err);

	if (n < 0)
		return -1;
	*a = (struct affine){ .type = theta->dtype,
			      .align = dlb_io_int(io, "align_corners", 0) != 0,
			      .n = n - 2 };
	if (theta->n_dims != 3 || theta->dim[1] != n - 2 || theta->dim[2] != n - 1 ||
	    !dlb_dtype_is_float(theta->dtype))
		return dlb_op_fail(io, err,
				   "theta must be (N,2,3) or (N,3,4) of floats, for sizes of 4 or 5 entries");
	a->batch = theta->dim[0];
	memcpy(a->size, size + 2, (size_t)(n - 2) * sizeof *size);
	return check_dims(io, a, err);
}

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct affine a;
	int64_t dim[5];

	if (parse(io, &a, err))
		return -1;
	dim[0] = a.batch;
	memcpy(dim + 1, a.size, (size_t)a.n * sizeof *dim);
	dim[1 + a.n] = a.n;
	io->out[0] = dlb_desc_make(a.type, a.n + 2, dim);
	return 0;
}

static int grad_parse(const struct dlb_op_io *io, struct affine *a, struct dlb_error *err)
{
	const struct dlb_desc *dy = &io->in[0];
	const int n = dy->n_dims - 2;

	*a = (struct affine){ .type = dy->dtype,
			      .align = dlb_io_int(io, "align_corners", 0) != 0,
			      .n = n,
			      .batch = dy->dim[0] };
	if (n < 2 || n > 3 || dy->dim[n + 1] != n)
		return dlb_op_fail(io, err, "input 0 is not the gradient of a grid");
	memcpy(a->size, dy->dim + 1, (size_t)n * sizeof *a->size);
	return check_dims(io, a, err);
}

static int grad_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct affine a;

	if (grad_parse(io, &a, err))
		return -1;
	io->out[0] = dlb_desc_make(a.type, 3, (int64_t[]){ a.batch, a.n, a.n + 1 });
	return 0;
}

/* (x, y, z, 1) of element p of the image, or (x, y, 1) for two dimensions. */
static void place(const struct affine *a, int64_t p, double at[4])
{
	for (int d = a->n - 1, j = 0; d >= 0; d--, j++) {
		const double i = (double)(p % a->size[d]), n = (double)a->size[d];

		at[j] = n == 1 ? 0 : a->align ? 2 * i / (n - 1) - 1 : (2 * i + 1) / n - 1;
		p /= a->size[d];
	}
	at[a->n] = 1;
}

static void run(const void *ctx, const struct dlb_run *r)
{
	const struct affine *a = ctx;
	const int n = a->n;
	double at[4];

	for (int64_t p = 0; p < a->points; p++) {
		place(a, p, at);
		for (int64_t b = 0; b < a->batch; b++)
			for (int i = 0; i < n; i++) {
				double sum = 0;

				for (int j = 0; j <= n; j++)
					sum += dlb_real_get(r->in[0], a->type, (b * n + i) * (n + 1) + j) *
					       at[j];
				dlb_real_set(r->out[0], a->type, (b * a->points + p) * n + i, sum);
			}
	}
}

static void grad_run(const void *ctx, const struct dlb_run *r)
{
	const struct affine *a = ctx;
	const int n = a->n;
	double at[4];

	for (int64_t b = 0; b < a->batch; b++) {
		double sum[3][4] = { { 0 } };

		for (int64_t p = 0; p < a->points; p++) {
			place(a, p, at);
			for (int i = 0; i < n; i++) {
				const double dy = dlb_real_get(r->in[0], a->type,
							       (b * a->points + p) * n + i);

				for (int j = 0; j <= n; j++)
					sum[i][j] += dy * at[j];
			}
		}
		for (int i = 0; i < n; i++)
			for (int j = 0; j <= n; j++)
				dlb_real_set(r->out[0], a->type, (b * n + i) * (n + 1) + j, sum[i][j]);
	}
}

static int kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		  struct dlb_error *err)
{
	struct affine a;

	if (parse(io, &a, err))
		return -1;
	return be->ops->host(be, run, &a, sizeof a, 0, k, err);
}

static int grad_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	struct affine a;

	if (grad_parse(io, &a, err))
		return -1;
	return be->ops->host(be, grad_run, &a, sizeof a, 0, k, err);
}

static int gradient(struct dlb_builder *b, struct dlb_error *err)
{
	(void)err;
	return dlb_b_gradient(b, DLB_SPEC_ATTR("AffineGridGrad", b->io.attr, b->io.n_attr, b->dout[0]));
}

static double flops(const struct dlb_op_io *io)
{
	const struct dlb_desc *y = io->cls->domain ? &io->in[0] : &io->out[0];

	return 2.0 * (double)(y->n_dims - 1) * (double)dlb_desc_count(y);
}

const struct dlb_op_class dlb_op_AffineGrid = { .name = "AffineGrid",
						.n_in = { 2, 2 },
						.n_out = { 1, 1 },
						.flags = DLB_OP_ON_CPU,
						.work = "move",
						.infer = infer,
						.flops = flops,
						.gradient = gradient,
						.kernel = kernel };
const struct dlb_op_class dlb_op_AffineGridGrad = { .name = "AffineGridGrad",
						    .domain = "dlb",
						    .n_in = { 1, 1 },
						    .n_out = { 1, 1 },
						    .flags = DLB_OP_ON_CPU,
						    .work = "move",
						    .infer = grad_infer,
						    .flops = flops,
						    .kernel = grad_kernel };
