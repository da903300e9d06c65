/* DeformConv: a convolution in which each sampling position has its own offset, and a weight from a mask.
 *
 *     x (N, C, H, W), w (M, C / g, kh, kw), offset (N, 2 og K, oh, ow), b (M), mask (N, og K, oh, ow) -> y (N, M, oh, ow)
 *
 * with K = kh kw positions, g groups of channels, og groups of offsets (pairs dy, dx). x is read by
 * bilinear interpolation into columns (N, C K, oh ow), which are multiplied by the weights. The gradient
 * uses these operators of dlb's:
 *
 *     DeformColumns           (x, offset, mask?) -> columns
 *     DeformColumnsGrad       (dcolumns, offset, shape of x, mask?) -> dx
 *     DeformColumnsGradOffset (dcolumns, x, offset, mask?) -> doffset, dmask
 *
 * Dai et al., Deformable Convolutional Networks, 2017; mask: Zhu et al., Deformable ConvNets v2, 2019. */
#include "op/op_util.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TILE = 64 };			/* positions whose corners are computed at once, for all channels */

struct deform {
	enum dlb_dtype type;
	struct dlb_kernel_window w;
	bool has_mask, wants_mask;		/* wants_mask: dmask is an output */
	/* group_channels: channels of an offset group */
	int64_t batch, channels, h, w_in, places, kernel, offset_groups, group_channels;
};
/* Four elements of a plane (-1: outside), their weights, and the derivatives of the weights by the
 * position's row and column. */
struct deform_corners { int64_t at[4]; double w[4], by_row[4], by_col[4]; };

/* -- columns: reading the vertex -- */

/* Describes the columns that `offset` selects from x; mask NULL: none. The window is read from the
 * attributes; its shape is `kernel`, or kernel_shape if that is NULL. */
static int parse(const struct dlb_op_io *io, const struct dlb_desc *x, const struct dlb_desc *offset,
		 const struct dlb_desc *mask, const int64_t *kernel, struct deform *d, struct dlb_error *err)
{
	const int64_t groups = dlb_io_int(io, "offset_group", 1);
	char a[128], b[128];

	if (x->n_dims != 4 || offset->n_dims != 4)
		return dlb_op_fail(io, err,
				   "input and offset must have 4 dimensions: images are all that is read");
	if (offset->dtype != x->dtype || (mask && mask->dtype != x->dtype))
		return dlb_op_fail(io, err, "input, offset and mask are not of one type");
	if (dlb_window_read(io, x->dim + 2, 2, kernel, &d->w, err))
		return -1;
	*d = (struct deform){ .type = x->dtype,
			      .w = d->w,
			      .has_mask = mask != NULL,
			      .batch = x->dim[0],
			      .channels = x->dim[1],
			      .h = x->dim[2],
			      .w_in = x->dim[3],
			      .places = d->w.out[0] * d->w.out[1],
			      .kernel = d->w.kernel[0] * d->w.kernel[1],
			      .offset_groups = groups };
	if (groups < 1 || groups > x->dim[1] || x->dim[1] % groups)
		return dlb_op_fail(io, err, "%lld channels in %lld offset groups", (long long)x->dim[1],
				   (long long)groups);
	d->group_channels = x->dim[1] / groups;
	if (offset->dim[0] != x->dim[0] || offset->dim[1] != 2 * groups * d->kernel ||
	    offset->dim[2] != d->w.out[0] || offset->dim[3] != d->w.out[1])
		return dlb_op_fail(
			io, err,
			"offsets %s do not fit input %s: for each of %lldx%lld places 2 of %lld are needed",
			dlb_desc_str(offset, a, sizeof a), dlb_desc_str(x, b, sizeof b),
			(long long)d->w.out[0], (long long)d->w.out[1], (long long)(groups * d->kernel));
	if (d->has_mask &&
	    (mask->n_dims != 4 || mask->dim[0] != x->dim[0] || mask->dim[1] != groups * d->kernel ||
	     mask->dim[2] != d->w.out[0] || mask->dim[3] != d->w.out[1]))
		return dlb_op_fail(io, err, "a mask of shape %s does not fit offsets %s",
				   dlb_desc_str(mask, a, sizeof a), dlb_desc_str(offset, b, sizeof b));
	if (dlb_checked_count((int64_t[]){ d->batch, d->channels, d->kernel, d->places }, 4) < 0)
		return dlb_op_fail(io, err, "the columns would be too large");
	return 0;
}

static struct dlb_desc columns_of(const struct deform *d)
{
	return dlb_desc_make(d->type, 3, (int64_t[]){ d->batch, d->channels * d->kernel, d->places });
}

/* Input i, or NULL if absent. */
static const struct dlb_desc *input(const struct dlb_op_io *io, int i)
{
	return dlb_io_has(io, i) ? &io->in[i] : NULL;
}

/* -- columns: kernels -- */

/* Corners for kernel element k (of K in offset group g) at output position p of sample n. */
static struct deform_corners corners_of(const struct deform *d, const void *offset, int64_t n, int64_t g,
					int64_t k, int64_t p)
{
	const int64_t at = ((n * d->offset_groups + g) * d->kernel + k) * 2 * d->places + p,
		      kw = d->w.kernel[1], ow = d->w.out[1];
	const double y = (double)(p / ow * d->w.stride[0] - d->w.pad_begin[0] + k / kw * d->w.dilation[0]) +
		dlb_real_get(offset, d->type, at);
	const double x = (double)(p % ow * d->w.stride[1] - d->w.pad_begin[1] + k % kw * d->w.dilation[1]) +
		dlb_real_get(offset, d->type, at + d->places);
	struct deform_corners c;

	if (!(y > -1 && y < (double)d->h && x > -1 && x < (double)d->w_in))
		return (struct deform_corners){ .at = { -1, -1, -1, -1 } };
	const double y0 = floor(y), x0 = floor(x), ty = y - y0, tx = x - x0;
	for (int q = 0; q < 4; q++) {
		const int64_t i = (int64_t)y0 + q / 2, j = (int64_t)x0 + q % 2;
		const double wy = q / 2 ? ty : 1 - ty, wx = q % 2 ? tx : 1 - tx;

		c.at[q] = i >= 0 && i < d->h && j >= 0 && j < d->w_in ? i * d->w_in + j : -1;
		c.w[q] = wy * wx;
		c.by_row[q] = q / 2 ? wx : -wx;
		c.by_col[q] = q % 2 ? wy : -wy;
	}
	return c;
}

/* One kernel element of one offset group of one sample, at positions [p, p + count). */
struct tile { int64_t n, g, k, p, count; struct deform_corners corners[TILE]; double mask[TILE]; };

static void each_tile(const struct deform *d, const void *offset, const void *mask, const struct dlb_run *r,
		      void (*work)(const struct deform *d, const struct tile *t, const struct dlb_run *r))
{
	struct tile t;

	for (int64_t i = 0; i < d->batch * d->offset_groups * d->kernel; i++) {
		t.n = i / (d->offset_groups * d->kernel);
		t.g = i / d->kernel % d->offset_groups;
		t.k = i % d->kernel;
		for (t.p = 0; t.p < d->places; t.p += TILE) {
			t.count = d->places - t.p < TILE ? d->places - t.p : TILE;
			for (int64_t j = 0; j < t.count; j++) {
				t.corners[j] = corners_of(d, offset, t.n, t.g, t.k, t.p + j);
				t.mask[j] = d->has_mask ?
						    dlb_real_get(mask, d->type, i * d->places + t.p + j) :
						    1;
			}
			work(d, &t, r);
		}
	}
}

/* Index in the columns of the tile's first element for channel c of the offset group. plane_at: index of that
 * channel's plane in x. */
static int64_t column_at(const struct deform *d, const struct tile *t, int64_t c)
{
	return ((t->n * d->channels + t->g * d->group_channels + c) * d->kernel + t->k) * d->places + t->p;
}

static int64_t plane_at(const struct deform *d, const struct tile *t, int64_t c)
{
	return (t->n * d->channels + t->g * d->group_channels + c) * d->h * d->w_in;
}

static void read_tile(const struct deform *d, const struct tile *t, const struct dlb_run *r)
{
	for (int64_t c = 0; c < d->group_channels; c++) {
		const int64_t to = column_at(d, t, c), from = plane_at(d, t, c);

		for (int64_t j = 0; j < t->count; j++) {
			const struct deform_corners *k = &t->corners[j];
			double v = 0;

			for (int q = 0; q < 4; q++)
				v += k->at[q] < 0 ?
					     0 :
					     k->w[q] * dlb_real_get(r->in[0], d->type, from + k->at[q]);
			dlb_real_set(r->out[0], d->type, to + j, v * t->mask[j]);
		}
	}
}

static void grad_tile(const struct deform *d, const struct tile *t, const struct dlb_run *r)
{
	for (int64_t c = 0; c < d->group_channels; c++) {
		const int64_t from = column_at(d, t, c), to = plane_at(d, t, c);

		for (int64_t j = 0; j < t->count; j++) {
			const struct deform_corners *k = &t->corners[j];
			const double v = t->mask[j] * dlb_real_get(r->in[0], d->type, from + j);

			for (int q = 0; q < 4; q++)
				if (k->at[q] >= 0)
					dlb_real_set(r->out[0], d->type, to + k->at[q],
						     dlb_real_get(r->out[0], d->type, to + k->at[q]) +
							     k->w[q] * v);
		}
	}
}

/* in {dcolumns, x, offset, mask}, out {doffset, dmask} */
static void grad_offset_tile(const struct deform *d, const struct tile *t, const struct dlb_run *r)
{
	double sum[TILE][4] = { { 0 } };		/* sum over channels of dcolumns times the corner */
	const int64_t row = ((t->n * d->offset_groups + t->g) * d->kernel + t->k) * d->places + t->p;

	for (int64_t c = 0; c < d->group_channels; c++) {
		const int64_t from = column_at(d, t, c), plane = plane_at(d, t, c);

		for (int64_t j = 0; j < t->count; j++) {
			const double dcol = dlb_real_get(r->in[0], d->type, from + j);

			for (int q = 0; q < 4; q++)
				if (t->corners[j].at[q] >= 0)
					sum[j][q] += dcol * dlb_real_get(r->in[1], d->type,
									 plane + t->corners[j].at[q]);
		}
	}
	for (int64_t j = 0; j < t->count; j++) {
		const struct deform_corners *k = &t->corners[j];
		const int64_t at = 2 * (row - t->p) + t->p + j;
		double by_row = 0, by_col = 0, value = 0;

		for (int q = 0; q < 4; q++) {
			by_row += k->by_row[q] * sum[j][q];
			by_col += k->by_col[q] * sum[j][q];
			value += k->w[q] * sum[j][q];
		}
		dlb_real_set(r->out[0], d->type, at, by_row * t->mask[j]);
		dlb_real_set(r->out[0], d->type, at + d->places, by_col * t->mask[j]);
		if (d->wants_mask)
			dlb_real_set(r->out[1], d->type, row + j, value);
	}
}

static void columns_run(const void *ctx, const struct dlb_run *r)
{
	const struct deform *d = ctx;

	each_tile(d, r->in[1], d->has_mask ? r->in[2] : NULL, r, read_tile);
}

static void grad_run(const void *ctx, const struct dlb_run *r)
{
	const struct deform *d = ctx;

	memset(r->out[0], 0, (size_t)(d->batch * d->channels * d->h * d->w_in) * dlb_dtype_bytes(d->type));
	each_tile(d, r->in[1], d->has_mask ? r->in[3] : NULL, r, grad_tile);
}

static void grad_offset_run(const void *ctx, const struct dlb_run *r)
{
	const struct deform *d = ctx;

	each_tile(d, r->in[2], d->has_mask ? r->in[3] : NULL, r, grad_offset_tile);
}

/* -- columns: the classes -- */

static int columns_parse(const struct dlb_op_io *io, struct deform *d, struct dlb_error *err)
{
	return parse(io, &io->in[0], &io->in[1], input(io, 2), NULL, d, err);
}

static int columns_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct deform d;

	if (columns_parse(io, &d, err))
		return -1;
	io->out[0] = columns_of(&d);
	return 0;
}

/* dcolumns is input 0. */
static int check_columns(const struct dlb_op_io *io, const struct deform *d, struct dlb_error *err)
{
	const struct dlb_desc columns = columns_of(d);

	if (!dlb_desc_same_shape(&columns, &io->in[0]) || io->in[0].dtype != d->type)
		return dlb_op_fail(io, err, "the gradient's shape or type is not that of the columns");
	return 0;
}

static int grad_parse(const struct dlb_op_io *io, struct dlb_desc *x, struct deform *d, struct dlb_error *err)
{
	return dlb_io_shape(io, 2, x, err) || parse(io, x, &io->in[1], input(io, 3), NULL, d, err) ||
			       check_columns(io, d, err) ?
		       -1 :
		       0;
}

static int grad_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct deform d;

	return grad_parse(io, &io->out[0], &d, err);
}

static int grad_offset_parse(const struct dlb_op_io *io, struct deform *d, struct dlb_error *err)
{
	return parse(io, &io->in[1], &io->in[2], input(io, 3), NULL, d, err) || check_columns(io, d, err) ?
		       -1 :
		       0;
}

static int grad_offset_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct deform d;

	if (grad_offset_parse(io, &d, err))
		return -1;
	io->out[0] = io->in[2];
	if (io->n_out > 1 && !d.has_mask)
		return dlb_op_fail(io, err, "there is no mask to make a gradient of");
	if (io->n_out > 1)
		io->out[1] = io->in[3];
	return 0;
}

static int host(struct dlb_backend *be, dlb_host_fn fn, const struct deform *d, struct dlb_kernel **k,
		struct dlb_error *err)
{
	return be->ops->host(be, fn, d, sizeof *d, 0, k, err);
}

static int columns_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			  struct dlb_error *err)
{
	struct deform d;

	return columns_parse(io, &d, err) ? -1 : host(be, columns_run, &d, k, err);
}

static int grad_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	struct dlb_desc x;
	struct deform d;

	return grad_parse(io, &x, &d, err) ? -1 : host(be, grad_run, &d, k, err);
}

static int grad_offset_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			      struct dlb_error *err)
{
	struct deform d;

	if (grad_offset_parse(io, &d, err))
		return -1;
	d.wants_mask = dlb_io_wants(io, 1);
	return host(be, grad_offset_run, &d, k, err);
}

/* The columns are input 0 or output 0. */
static double columns_flops(const struct dlb_op_io *io)
{
	return 10 * (double)dlb_desc_count(io->in[0].n_dims == 3 ? &io->in[0] : &io->out[0]);
}

/* -- the convolution -- */

static int conv_parse(const struct dlb_op_io *io, struct deform *d, int64_t *groups, struct dlb_error *err)
{
	const struct dlb_desc *x = &io->in[0], *w = &io->in[1];
	const int64_t *kernel;
	const int n = dlb_attr_ints(io->attr, io->n_attr, "kernel_shape", &kernel);

	*groups = dlb_io_int(io, "group", 1);
	if (dlb_same_types(io, 0, 5, err))
		return -1;
	if (!dlb_dtype_is_float(x->dtype))
		return dlb_op_fail(io, err, "inputs are of type %s", dlb_dtype_name(x->dtype));
	if (x->n_dims != 4 || w->n_dims != 4 || *groups < 1 || *groups > x->dim[1] || x->dim[1] % *groups ||
	    w->dim[0] % *groups || w->dim[1] != x->dim[1] / *groups)
		return dlb_op_fail(io, err, "input and weights do not fit together with %lld groups",
				   (long long)*groups);
	if (n && (n != 2 || kernel[0] != w->dim[2] || kernel[1] != w->dim[3]))
		return dlb_op_fail(io, err, "attribute 'kernel_shape' is not the shape of the weights");
	if (dlb_io_has(io, 3) && (io->in[3].n_dims != 1 || io->in[3].dim[0] != w->dim[0]))
		return dlb_op_fail(io, err, "the bias must have %lld entries", (long long)w->dim[0]);
	return parse(io, x, &io->in[2], input(io, 4), w->dim + 2, d, err);
}

static int conv_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct deform d;
	int64_t groups;

	if (conv_parse(io, &d, &groups, err))
		return -1;
	io->out[0] = dlb_desc_make(d.type, 4,
				   (int64_t[]){ d.batch, io->in[1].dim[0], d.w.out[0], d.w.out[1] });
	if (dlb_checked_count(io->out[0].dim, 4) < 0)
		return dlb_op_fail(io, err, "the output would be too large");
	return 0;
}

/* y = w columns, for each sample and group. */
static int product(struct dlb_backend *be, const struct deform *d, int64_t groups, int64_t m,
		   struct dlb_kernel **k, struct dlb_error *err)
{
	struct dlb_gemm_desc g = { .dtype = d->type,
				   .m = m / groups,
				   .n = d->places,
				   .k = d->channels / groups * d->kernel,
				   .n_batch = d->batch * groups,
				   .alpha = 1,
				   .w_batch = d->channels / groups * d->kernel * d->places };
	int64_t *off = dlb_xcalloc((size_t)g.n_batch + 1, sizeof *off);
	int rc;

	for (int64_t i = 0; i < g.n_batch; i++)
		off[i] = i % groups * g.m * g.k;
	g.a_off = off;
	rc = be->ops->gemm(be, &g, k, err);
	free(off);
	return rc;
}

static int conv_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	struct dlb_desc columns, bias;
	struct dlb_chain *c;
	struct dlb_kernel *sub = NULL;
	struct deform d;
	int64_t groups;
	int rc, cols;

	if (conv_parse(io, &d, &groups, err))
		return -1;
	if (d.type != DLB_F32 && d.type != DLB_F64)
		return DLB_NO_KERNEL;
	columns = columns_of(&d);
	c = dlb_chain_new(be, err);
	cols = dlb_chain_temp(c, &columns);
	rc = host(be, columns_run, &d, &sub, err);
	dlb_chain_add(c, rc, sub, DLB_REFS(DLB_IN(0), DLB_IN(2), d.has_mask ? DLB_IN(4) : DLB_NOTHING), 3,
		      &cols, 1);
	rc = product(be, &d, groups, io->in[1].dim[0], &sub, err);
	dlb_chain_add(c, rc, sub, DLB_REFS(DLB_IN(1), cols, DLB_NOTHING), 3, DLB_REFS(DLB_OUT(0)), 1);
	if (dlb_io_has(io, 3)) {
		bias = dlb_desc_make(d.type, 4, (int64_t[]){ 1, io->in[1].dim[0], 1, 1 });
		const struct dlb_desc *of[2] = { &io->out[0], &bias };

		dlb_chain_map(c, DLB_MAP(add, 2), DLB_REFS(DLB_OUT(0), DLB_IN(3)), of, DLB_OUT(0),
			      &io->out[0]);
	}
	return dlb_chain_finish(c, k);
}

static double conv_flops(const struct dlb_op_io *io)
{
	struct deform d;
	int64_t groups;

	if (conv_parse(io, &d, &groups, NULL))
		return 0;
	return 2.0 * (double)dlb_desc_count(&io->out[0]) * (double)dlb_desc_range(&io->in[1], 1, 4) +
		10.0 * (double)d.batch * (double)(d.channels * d.kernel) * (double)d.places;
}

/* -- the gradient of the convolution, by way of the columns -- */

static int reshape(struct dlb_builder *b, int t, const int64_t *dim, int n)
{
	return dlb_b_op2(b, "Reshape", t, dlb_b_const_ints(b, dim, n));
}

static int product_t(struct dlb_builder *b, int a, bool ta, int w, bool tw)
{
	const struct dlb_attr attr[2] = { dlb_make_int("transA", ta), dlb_make_int("transB", tw) };

	return dlb_b_op(b, DLB_SPEC_ATTR("MatMulT", attr, 2, a, w), NULL, -1);
}

/* Attributes of DeformColumns and its gradients. */
static int columns_attrs(const struct dlb_op_io *io, struct dlb_attr a[6])
{
	static const char *const keep[] = { "strides", "dilations", "pads", "auto_pad", "offset_group" };

	a[0] = dlb_make_ints("kernel_shape", io->in[1].dim + 2, 2);
	return 1 + dlb_keep_attrs(io, keep, DLB_LEN(keep), a + 1);
}

/* dx, doffset and dmask from the gradient of the columns, w^T dy. */
static int columns_gradient(struct dlb_builder *b, const struct deform *d, int64_t groups, int dy)
{
	const int64_t m = b->io.in[1].dim[0], rows = d->channels / groups * d->kernel;
	const int mask = d->has_mask ? b->in[4] : -1;
	const bool need_mask = mask >= 0 && b->need[4];
	struct dlb_attr a[6];
	const int n = columns_attrs(&b->io, a);
	const int w = reshape(b, b->in[1], (int64_t[]){ groups, m / groups, rows }, 3);
	const int dcol = reshape(b, product_t(b, w, true, dy, false),
				 (int64_t[]){ 0, d->channels * d->kernel, d->places }, 3);
	int out[2] = { -1, -1 };

	if (b->need[0]) {
		b->din[0] = dlb_b_op(b,
				     &(struct dlb_op_spec){ .type = "DeformColumnsGrad",
							    .in = (int[]){ dcol, b->in[2],
								    dlb_b_const_shape(b, b->in[0]), mask },
							    .n_in = d->has_mask ? 4 : 3, .attr = a,
							    .n_attr = n }, NULL, b->in[0]);
		if (b->din[0] < 0)
			return -1;
	}
	if (!b->need[2] && !need_mask)
		return 0;
	out[0] = dlb_b_op(b, &(struct dlb_op_spec){ .type = "DeformColumnsGradOffset",
						    .in = (int[]){ dcol, b->in[0], b->in[2], mask },
						    .n_in = d->has_mask ? 4 : 3, .n_out = need_mask ? 2 : 1,
						    .attr = a, .n_attr = n }, out, b->in[2]);
	if (b->need[2])
		b->din[2] = out[0];
	if (need_mask)
		b->din[4] = out[1];
	return out[0] < 0 ? -1 : 0;
}

/* dw = dy columns^T, summed over the samples; the columns are recomputed. */
static int weight_gradient(struct dlb_builder *b, const struct deform *d, int64_t groups, int dy)
{
	const int64_t rows = d->channels / groups * d->kernel;
	const struct dlb_attr keep = dlb_make_int("keepdims", 0);
	struct dlb_attr a[6];
	const int n = columns_attrs(&b->io, a);
	const int col = dlb_b_op(b,
				 &(struct dlb_op_spec){ .type = "DeformColumns",
							.in = (int[]){ b->in[0], b->in[2],
								d->has_mask ? b->in[4] : -1 },
							.n_in = d->has_mask ? 3 : 2, .attr = a, .n_attr = n },
				 NULL, -1);
	const int dw = product_t(b, dy, false, reshape(b, col, (int64_t[]){ 0, groups, rows, d->places }, 4),
				 true);
	const int sum = dlb_b_op(b, DLB_SPEC_ATTR("ReduceSum", &keep, 1, dw,
						  dlb_b_const_ints(b, (int64_t[]){ 0 }, 1)), NULL, -1);

	b->din[1] = reshape(b, sum, b->io.in[1].dim, 4);
	return b->din[1] < 0 ? -1 : 0;
}

static int conv_gradient(struct dlb_builder *b, struct dlb_error *err)
{
	struct deform d;
	int64_t groups, m = b->io.in[1].dim[0];
	int dy;

	if (conv_parse(&b->io, &d, &groups, err))
		return -1;
	dy = reshape(b, b->dout[0], (int64_t[]){ 0, groups, m / groups, d.places }, 4);
	if ((b->need[0] || b->need[2] || (d.has_mask && b->need[4])) && columns_gradient(b, &d, groups, dy))
		return -1;
	if (b->need[1] && weight_gradient(b, &d, groups, dy))
		return -1;
	if (dlb_io_has(&b->io, 3) && b->need[3]) {
		const struct dlb_attr keep = dlb_make_int("keepdims", 0);
		const int axes = dlb_b_const_ints(b, (int64_t[]){ 0, 2, 3 }, 3);

		b->din[3] = dlb_b_op(b, DLB_SPEC_ATTR("ReduceSum", &keep, 1, b->dout[0], axes), NULL,
				     b->in[3]);
		return b->din[3] < 0 ? -1 : 0;
	}
	return 0;
}

const struct dlb_op_class dlb_op_DeformConv = { .name = "DeformConv",
						.n_in = { 3, 5 },
						.n_out = { 1, 1 },
						.flags = DLB_OP_ON_CPU,
						.work = "conv",
						.infer = conv_infer,
						.flops = conv_flops,
						.gradient = conv_gradient,
						.kernel = conv_kernel };
const struct dlb_op_class dlb_op_DeformColumns = { .name = "DeformColumns",
						   .domain = "dlb",
						   .n_in = { 2, 3 },
						   .n_out = { 1, 1 },
						   .flags = DLB_OP_ON_CPU,
						   .work = "move",
						   .infer = columns_infer,
						   .flops = columns_flops,
						   .kernel = columns_kernel };
const struct dlb_op_class dlb_op_DeformColumnsGrad = { .name = "DeformColumnsGrad",
						       .domain = "dlb",
						       .n_in = { 3, 4 },
						       .n_out = { 1, 1 },
						       .flags = DLB_OP_ON_CPU,
						       .work = "move",
						       .infer = grad_infer,
						       .flops = columns_flops,
						       .kernel = grad_kernel };
const struct dlb_op_class dlb_op_DeformColumnsGradOffset = { .name = "DeformColumnsGradOffset",
							     .domain = "dlb",
							     .n_in = { 3, 4 },
							     .n_out = { 1, 2 },
							     .flags = DLB_OP_ON_CPU,
							     .work = "move",
							     .infer = grad_offset_infer,
							     .flops = columns_flops,
							     .kernel = grad_offset_kernel };
