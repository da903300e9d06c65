/* RoiAlign: x (N, C, H, W), rois (R, 4) as (x1, y1, x2, y2) in units of 1 / spatial_scale, batch_indices
 * (R) -> y (R, C, oh, ow). Each region is divided into oh x ow bins. Each bin is sampled at a grid of
 * positions; y is their mean (mode avg) or the largest weighted corner (mode max, as ONNX defines it).
 * He et al., Mask R-CNN, 2017.
 *
 * RoiAlignGrad (dy, rois, batch_indices, shape of x, x in mode max) -> dx. Regions have no gradient, as
 * in torchvision. A region of a sample that does not exist, or with more than 2^12 positions per bin
 * and dimension, gives NaN. */
#include "op/op_util.h"

#include <math.h>
#include <string.h>

enum { MOST_PLACES = 1 << 12 };

struct align {
	enum dlb_dtype type;
	bool max, half_pixel;
	int64_t places, batch, channels, h, w, oh, ow, regions;
	double scale;
};
/* The bins of a region: origin, size, and number of sampling positions. */
struct bins { bool valid; double y, x, bin_h, bin_w; int64_t sample, n_h, n_w; };
struct roi_corners { int64_t at[4]; double w[4]; };
/* One channel of a bin in mode max: the largest weighted corner so far. */
struct best { double value, w; int64_t at; };

/* The coordinate transformation; fixed before opset 16. */
static const char *coordinates(const struct dlb_op_io *io)
{
	return dlb_io_str(io, "coordinate_transformation_mode",
			  io->opset < 16 ? "output_half_pixel" : "half_pixel");
}

static int parse(const struct dlb_op_io *io, const struct dlb_desc *x, struct align *a, struct dlb_error *err)
{
	const struct dlb_desc *rois = &io->in[1], *index = &io->in[2];
	const char *mode = dlb_io_str(io, "mode", "avg"), *how = coordinates(io);

	*a = (struct align){ .type = x->dtype,
			     .max = !strcmp(mode, "max"),
			     .half_pixel = !strcmp(how, "half_pixel"),
			     .places = dlb_io_int(io, "sampling_ratio", 0),
			     .oh = dlb_io_int(io, "output_height", 1),
			     .ow = dlb_io_int(io, "output_width", 1),
			     .scale = dlb_io_real(io, "spatial_scale", 1) };
	if ((!a->max && strcmp(mode, "avg")) || (!a->half_pixel && strcmp(how, "output_half_pixel")))
		return dlb_op_fail(io, err, "unknown mode '%s' or coordinate_transformation_mode '%s'", mode,
				   how);
	if (x->n_dims != 4 || rois->n_dims != 2 || rois->dim[1] != 4 || index->n_dims != 1 ||
	    index->dim[0] != rois->dim[0])
		return dlb_op_fail(io, err, "inputs must be (N,C,H,W), regions (R,4) and indices (R)");
	if (!dlb_dtype_is_float(x->dtype) || rois->dtype != x->dtype || index->dtype != DLB_I64)
		return dlb_op_fail(io, err, "inputs are of type %s, %s and %s", dlb_dtype_name(x->dtype),
				   dlb_dtype_name(rois->dtype), dlb_dtype_name(index->dtype));
	if (a->oh < 1 || a->oh > 1 << 16 || a->ow < 1 || a->ow > 1 << 16 || a->places < 0 ||
	    a->places > MOST_PLACES || x->dim[2] < 1 || x->dim[3] < 1)
		return dlb_op_fail(io, err, "%lldx%lld bins with a sampling ratio of %lld are not possible",
				   (long long)a->oh, (long long)a->ow, (long long)a->places);
	a->batch = x->dim[0];
	a->channels = x->dim[1];
	a->h = x->dim[2];
	a->w = x->dim[3];
	a->regions = rois->dim[0];
	if (dlb_checked_count((int64_t[]){ a->regions, a->channels, a->oh, a->ow }, 4) < 0)
		return dlb_op_fail(io, err, "the output would be too large");
	return 0;
}

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct align a;

	if (parse(io, &io->in[0], &a, err))
		return -1;
	io->out[0] = dlb_desc_make(a.type, 4, (int64_t[]){ a.regions, a.channels, a.oh, a.ow });
	return 0;
}

/* -- sampling positions -- */

static struct bins bins_of(const struct align *a, const void *rois, const int64_t *index, int64_t r)
{
	const double offset = a->half_pixel ? 0.5 : 0;
	double edge[4], h, w, n_h, n_w;

	for (int i = 0; i < 4; i++)
		edge[i] = dlb_real_get(rois, a->type, 4 * r + i) * a->scale - offset;
	w = edge[2] - edge[0];
	h = edge[3] - edge[1];
	if (!a->half_pixel) {
		w = w < 1 ? 1 : w;
		h = h < 1 ? 1 : h;
	}
	n_h = a->places ? (double)a->places : ceil(h / (double)a->oh);
	n_w = a->places ? (double)a->places : ceil(w / (double)a->ow);
	if (index[r] < 0 || index[r] >= a->batch || !isfinite(edge[0] + edge[1] + h + w) ||
	    n_h > MOST_PLACES || n_w > MOST_PLACES)
		return (struct bins){ .valid = false };
	return (struct bins){ true,
			      edge[1],
			      edge[0],
			      h / (double)a->oh,
			      w / (double)a->ow,
			      index[r],
			      n_h > 0 ? (int64_t)n_h : 0,
			      n_w > 0 ? (int64_t)n_w : 0 };
}

/* Bilinear interpolation at (y, x); weights are 0 more than one element outside the image. */
static struct roi_corners corners_of(const struct align *a, double y, double x)
{
	int64_t y0, x0, y1, x1;

	if (!(y >= -1 && y <= (double)a->h && x >= -1 && x <= (double)a->w))
		return (struct roi_corners){ .w = { 0 } };
	y = y < 0 ? 0 : y > (double)(a->h - 1) ? (double)(a->h - 1) : y;
	x = x < 0 ? 0 : x > (double)(a->w - 1) ? (double)(a->w - 1) : x;
	y0 = (int64_t)y;
	x0 = (int64_t)x;
	y1 = y0 < a->h - 1 ? y0 + 1 : y0;
	x1 = x0 < a->w - 1 ? x0 + 1 : x0;
	y -= (double)y0;
	x -= (double)x0;
	return (struct roi_corners){ { y0 * a->w + x0, y0 * a->w + x1, y1 * a->w + x0, y1 * a->w + x1 },
				 { (1 - y) * (1 - x), (1 - y) * x, y * (1 - x), y * x } };
}

/* The corners of sampling position (i, j) of bin `bin`. */
static struct roi_corners corners_at(const struct align *a, const struct bins *b, int64_t bin, int64_t i,
				     int64_t j)
{
	const double row = (double)(bin / a->ow) + ((double)i + 0.5) / (double)b->n_h;
	const double col = (double)(bin % a->ow) + ((double)j + 0.5) / (double)b->n_w;

	return corners_of(a, b->y + row * b->bin_h, b->x + col * b->bin_w);
}

/* -- kernels; scratch memory holds the state of each channel of a bin -- */

static double mean_by(const struct bins *b)
{
	return b->n_h * b->n_w > 0 ? 1.0 / (double)(b->n_h * b->n_w) : 1;
}

static void average_bin(const struct align *a, const struct bins *b, int64_t bin, const void *x, double *sum)
{
	for (int64_t c = 0; c < a->channels; c++)
		sum[c] = 0;
	for (int64_t i = 0; i < b->n_h * b->n_w; i++) {
		const struct roi_corners k = corners_at(a, b, bin, i / b->n_w, i % b->n_w);

		for (int64_t c = 0; c < a->channels; c++)
			for (int q = 0; q < 4; q++)
				sum[c] += k.w[q] *
					  dlb_real_get(x, a->type,
						       (b->sample * a->channels + c) * a->h * a->w + k.at[q]);
	}
	for (int64_t c = 0; c < a->channels; c++)
		sum[c] *= mean_by(b);
}

static void largest_in_bin(const struct align *a, const struct bins *b, int64_t bin, const void *x,
			   struct best *best)
{
	for (int64_t c = 0; c < a->channels; c++)
		best[c] = (struct best){ b->n_h * b->n_w > 0 ? -INFINITY : 0, 0, 0 };
	for (int64_t i = 0; i < b->n_h * b->n_w; i++) {
		const struct roi_corners k = corners_at(a, b, bin, i / b->n_w, i % b->n_w);

		for (int64_t c = 0; c < a->channels; c++) {
			const int64_t plane = (b->sample * a->channels + c) * a->h * a->w;

			for (int q = 0; q < 4; q++) {
				const double v = k.w[q] * dlb_real_get(x, a->type, plane + k.at[q]);

				if (v > best[c].value)
					best[c] = (struct best){ v, k.w[q], k.at[q] };
			}
		}
	}
}

static void run(const void *ctx, const struct dlb_run *r)
{
	const struct align *a = ctx;
	const int64_t n_bins = a->oh * a->ow;

	for (int64_t i = 0; i < a->regions; i++) {
		const struct bins b = bins_of(a, r->in[1], r->in[2], i);

		for (int64_t bin = 0; bin < n_bins; bin++) {
			double *sum = r->scratch;
			struct best *best = r->scratch;

			if (b.valid && a->max)
				largest_in_bin(a, &b, bin, r->in[0], best);
			else if (b.valid)
				average_bin(a, &b, bin, r->in[0], sum);
			for (int64_t c = 0; c < a->channels; c++)
				dlb_real_set(r->out[0], a->type, (i * a->channels + c) * n_bins + bin,
					     !b.valid ? NAN : a->max ? best[c].value : sum[c]);
		}
	}
}

static void add(const struct align *a, void *dx, int64_t i, double v)
{
	dlb_real_set(dx, a->type, i, dlb_real_get(dx, a->type, i) + v);
}

/* Adds the gradients of one bin's channels, which are n_bins elements apart from dy on, to the sample's. */
static void grad_bin(const struct align *a, const struct bins *b, int64_t bin, const struct dlb_run *r,
		     int64_t dy)
{
	const int64_t n_bins = a->oh * a->ow, plane = a->h * a->w, first = b->sample * a->channels * plane;
	struct best *best = r->scratch;

	if (a->max) {
		largest_in_bin(a, b, bin, r->in[4], best);
		for (int64_t c = 0; c < a->channels; c++)
			add(a, r->out[0], first + c * plane + best[c].at,
			    best[c].w * dlb_real_get(r->in[0], a->type, dy + c * n_bins));
		return;
	}
	for (int64_t i = 0; i < b->n_h * b->n_w; i++) {
		const struct roi_corners k = corners_at(a, b, bin, i / b->n_w, i % b->n_w);

		for (int64_t c = 0; c < a->channels; c++) {
			const double v = mean_by(b) * dlb_real_get(r->in[0], a->type, dy + c * n_bins);

			for (int q = 0; q < 4; q++)
				add(a, r->out[0], first + c * plane + k.at[q], k.w[q] * v);
		}
	}
}

/* in {dy, rois, batch_indices, -, x} */
static void grad_run(const void *ctx, const struct dlb_run *r)
{
	const struct align *a = ctx;
	const int64_t n_bins = a->oh * a->ow;

	memset(r->out[0], 0, (size_t)(a->batch * a->channels * a->h * a->w) * dlb_dtype_bytes(a->type));
	for (int64_t i = 0; i < a->regions; i++) {
		const struct bins b = bins_of(a, r->in[1], r->in[2], i);

		for (int64_t bin = 0; bin < n_bins && b.valid; bin++)
			grad_bin(a, &b, bin, r, i * a->channels * n_bins + bin);
	}
}

static size_t scratch_of(const struct align *a)
{
	return (size_t)a->channels * (a->max ? sizeof(struct best) : sizeof(double));
}

/* -- the classes -- */

static int kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		  struct dlb_error *err)
{
	struct align a;

	if (parse(io, &io->in[0], &a, err))
		return -1;
	return be->ops->host(be, run, &a, sizeof a, scratch_of(&a), k, err);
}

static int gradient(struct dlb_builder *b, struct dlb_error *err)
{
	static const char *const keep[] = { "mode", "output_height", "output_width", "sampling_ratio",
					    "spatial_scale" };
	const bool max = !strcmp(dlb_io_str(&b->io, "mode", "avg"), "max");
	struct dlb_attr a[6] = { dlb_make_str("coordinate_transformation_mode", coordinates(&b->io)) };
	const int n = 1 + dlb_keep_attrs(&b->io, keep, DLB_LEN(keep), a + 1);

	(void)err;
	if (!b->need[0])
		return 0;
	return dlb_b_gradient(b, &(struct dlb_op_spec){ .type = "RoiAlignGrad",
							.in = (int[]){ b->dout[0], b->in[1], b->in[2],
								       dlb_b_const_shape(b, b->in[0]),
								       b->in[0] },
							.n_in = max ? 5 : 4,
							.attr = a,
							.n_attr = n });
}

static int grad_parse(const struct dlb_op_io *io, const struct dlb_desc *x, struct align *a,
		      struct dlb_error *err)
{
	struct dlb_desc y;

	if (parse(io, x, a, err))
		return -1;
	y = dlb_desc_make(x->dtype, 4, (int64_t[]){ a->regions, a->channels, a->oh, a->ow });
	if (!dlb_desc_same_shape(&y, &io->in[0]) ||
	    (a->max &&
	     (!dlb_io_has(io, 4) || io->in[4].dtype != x->dtype || !dlb_desc_same_shape(x, &io->in[4]))))
		return dlb_op_fail(io, err, "shapes are not those of the forward operator");
	return 0;
}

static int grad_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct align a;

	return dlb_io_shape(io, 3, &io->out[0], err) || grad_parse(io, &io->out[0], &a, err) ? -1 : 0;
}

static int grad_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	struct align a;

	if (grad_parse(io, &io->out[0], &a, err))
		return -1;
	if (a.type != DLB_F32 && a.type != DLB_F64)
		return DLB_NO_KERNEL;
	return be->ops->host(be, grad_run, &a, sizeof a, scratch_of(&a), k, err);
}

/* 8 per sampling position; assumes 4 positions per bin if their number depends on the regions. */
static double flops(const struct dlb_op_io *io)
{
	const struct dlb_desc *y = io->cls->domain ? &io->in[0] : &io->out[0];
	const double places = (double)dlb_io_int(io, "sampling_ratio", 0);

	return 8 * (places > 0 ? places * places : 4) * (double)dlb_desc_count(y);
}

const struct dlb_op_class dlb_op_RoiAlign = { .name = "RoiAlign",
					      .n_in = { 3, 3 },
					      .n_out = { 1, 1 },
					      .flags = DLB_OP_ON_CPU,
					      .work = "pool",
					      .infer = infer,
					      .flops = flops,
					      .gradient = gradient,
					      .kernel = kernel };
const struct dlb_op_class dlb_op_RoiAlignGrad = { .name = "RoiAlignGrad",
						  .domain = "dlb",
						  .n_in = { 4, 5 },
						  .n_out = { 1, 1 },
						  .flags = DLB_OP_ON_CPU,
						  .work = "pool",
						  .infer = grad_infer,
						  .flops = flops,
						  .kernel = grad_kernel };
