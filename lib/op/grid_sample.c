/* GridSample: y (N, C, O..) is sampled from x (N, C, D..) at the positions in grid (N, O.., n), n spatial
 * coordinates from -1 to 1, the last dimension first: (x, y) for (H, W).
 *
 * A position has one, two or four taps along each dimension (nearest, linear, cubic). Products of these are
 * the position's taps, shared by all channels. Positions outside the input are treated as in PyTorch: linear
 * and nearest move the position inside (border, reflection), cubic moves each tap.
 *
 * GridSampleGrad     (dy, grid, shape of x) -> dx
 * GridSampleGradGrid (dy, x, grid)          -> dgrid
 * Cubic: R. Keys, Cubic Convolution Interpolation, IEEE TASSP 29(6), 1981, with a = -0.75. */
#include "op/op_util.h"

#include <math.h>
#include <string.h>

enum { MOST_DIMS = 3, MOST_ALONG = 4, MOST_TAPS = MOST_ALONG * MOST_ALONG * MOST_ALONG };
enum mode { NEAREST = 1, LINEAR = 2, CUBIC = 4 };		/* taps along a dimension */
enum padding { ZEROS, BORDER, REFLECTION };

struct sampler {
	enum mode mode;
	enum padding padding;
	bool align;
	enum dlb_dtype x_type, grid_type;
	int n;					/* spatial dimensions */
	int64_t batch, channels, points, size[MOST_DIMS], plane;
};
/* Taps along one dimension. Each has an index times stride (-1: outside, value 0), weight, and its derivative
 * by the grid's coordinate. */
struct along { int64_t at[MOST_ALONG]; double w[MOST_ALONG], slope[MOST_ALONG]; };
struct grid_taps { int n; int64_t at[MOST_TAPS]; double w[MOST_TAPS], slope[MOST_TAPS][MOST_DIMS]; };

/* -- reading the vertex -- */

static int parse_names(const struct dlb_op_io *io, struct sampler *s, struct dlb_error *err)
{
	static const struct {
		const char *name;
		enum mode mode;
	} modes[] = { { "bilinear", LINEAR },
		      { "linear", LINEAR },
		      { "nearest", NEAREST },
		      { "bicubic", CUBIC },
		      { "cubic", CUBIC } };
	static const char *const paddings[] = { "zeros", "border", "reflection" };
	const char *mode = dlb_io_str(io, "mode", "linear"),
		   *padding = dlb_io_str(io, "padding_mode", "zeros");
	int m = 0, p = 0;

	while (m < DLB_LEN(modes) && strcmp(mode, modes[m].name))
		m++;
	while (p < DLB_LEN(paddings) && strcmp(padding, paddings[p]))
		p++;
	if (m == DLB_LEN(modes))
		return dlb_op_fail(io, err, "attribute 'mode': unknown value '%s'", mode);
	if (p == DLB_LEN(paddings))
		return dlb_op_fail(io, err, "attribute 'padding_mode': unknown value '%s'", padding);
	s->mode = modes[m].mode;
	s->padding = p;
	s->align = dlb_io_int(io, "align_corners", 0) != 0;
	return 0;
}

static int parse(const struct dlb_op_io *io, const struct dlb_desc *x, const struct dlb_desc *grid,
		 struct sampler *s, struct dlb_error *err)
{
	const int n = x->n_dims - 2;
	char a[128], b[128];

	*s = (struct sampler){ .x_type = x->dtype, .grid_type = grid->dtype, .n = n };
	if (parse_names(io, s, err))
		return -1;
	if (n < 1 || n > MOST_DIMS || grid->n_dims != n + 2 || grid->dim[n + 1] != n ||
	    grid->dim[0] != x->dim[0])
		return dlb_op_fail(io, err, "a grid of shape %s does not fit an input of shape %s",
				   dlb_desc_str(grid, a, sizeof a), dlb_desc_str(x, b, sizeof b));
	if (!dlb_dtype_is_float(grid->dtype))
		return dlb_op_fail(io, err, "the grid is of type %s", dlb_dtype_name(grid->dtype));
	for (int i = 0; i < n; i++) {
		s->size[i] = x->dim[2 + i];
		if (s->size[i] < 1 || s->size[i] > 1 << 24)
			return dlb_op_fail(io, err, "dimension %d of size %lld cannot be sampled", 2 + i,
					   (long long)s->size[i]);
	}
	s->batch = x->dim[0];
	s->channels = x->dim[1];
	s->plane = dlb_desc_range(x, 2, x->n_dims);
	s->points = dlb_desc_range(grid, 1, n + 1);
	return 0;
}

/* The shape of y. */
static struct dlb_desc sampled(const struct dlb_desc *x, const struct dlb_desc *grid)
{
	struct dlb_desc y = *x;

	y.layout = DLB_PLAIN;
	memcpy(y.dim + 2, grid->dim + 1, (size_t)(x->n_dims - 2) * sizeof *y.dim);
	return y;
}

/* -- taps -- */

/* Moves v into [0, n - 1] and multiplies *slope by the derivative. */
static double inside(const struct sampler *s, double v, int64_t n, double *slope)
{
	const double last = (double)(n - 1), low = s->align ? 0 : -0.5, span = s->align ? last : (double)n;

	if (s->padding == REFLECTION) {
		double d = fabs(v - low), turns = span > 0 ? floor(d / span) : 0;

		*slope *= v < low ? -1 : 1;
		d = span > 0 ? d - turns * span : 0;
		if (fmod(turns, 2) != 0) {
			d = span - d;
			*slope = -*slope;
		}
		v = d + low;
	}
	if (v <= 0 || v >= last) {
		*slope = 0;
		v = v <= 0 ? 0 : last;
	}
	return v;
}

static double keys(double d)
{
	const double a = -0.75;

	d = fabs(d);
	if (d <= 1)
		return ((a + 2) * d - (a + 3)) * d * d + 1;
	return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

static double keys_slope(double d)
{
	const double a = -0.75, m = fabs(d), sign = d < 0 ? -1 : 1;

	if (m <= 1)
		return sign * (3 * (a + 2) * m - 2 * (a + 3)) * m;
	return m < 2 ? sign * ((3 * a * m - 10 * a) * m + 8 * a) : 0;
}

/* The taps of coordinate g along dimension d. */
static void make_along(const struct sampler *s, int d, int64_t stride, double g, struct along *t)
{
	const int64_t n = s->size[d];
	double slope = s->align ? (double)(n - 1) / 2 : (double)n / 2, ignored = 1;
	double v = s->align ? (g + 1) / 2 * (double)(n - 1) : ((g + 1) * (double)n - 1) / 2, base;

	if (!(fabs(v) < INT32_MAX))		/* NaN is outside, as in PyTorch */
		v = -100;
	if (s->mode != CUBIC && s->padding != ZEROS)
		v = inside(s, v, n, &slope);
	base = s->mode == NEAREST ? nearbyint(v) : s->mode == LINEAR ? floor(v) : floor(v) - 1;
	for (int k = 0; k < (int)s->mode; k++) {
		double at = base + k;

		t->w[k] = s->mode == NEAREST ? 1 : s->mode == LINEAR ? 1 - fabs(v - at) : keys(v - at);
		t->slope[k] = s->mode == NEAREST ?
				      0 :
				      slope * (s->mode == LINEAR ? (k ? 1 : -1) : keys_slope(v - at));
		if (s->mode == CUBIC && s->padding != ZEROS)
			at = inside(s, at, n, &ignored);
		t->at[k] = at >= 0 && at < (double)n ? (int64_t)at * stride : -1;
	}
}

/* The taps of the position with coordinates grid[at], grid[at + 1] ... */
static void make_taps(const struct sampler *s, const void *grid, int64_t at, struct grid_taps *t)
{
	struct along a[MOST_DIMS];
	int64_t stride = 1;
	int all = 1;

	for (int d = s->n - 1; d >= 0; d--) {
		make_along(s, d, stride, dlb_real_get(grid, s->grid_type, at + s->n - 1 - d), &a[d]);
		stride *= s->size[d];
		all *= (int)s->mode;
	}
	t->n = 0;
	for (int i = 0; i < all; i++) {
		int64_t from = 0;
		double w = 1, slope[MOST_DIMS] = { 1, 1, 1 };

		for (int d = s->n - 1, rest = i; d >= 0; d--, rest /= (int)s->mode) {
			const int k = rest % (int)s->mode;

			from = from < 0 || a[d].at[k] < 0 ? -1 : from + a[d].at[k];
			w *= a[d].w[k];
			for (int e = 0; e < s->n; e++)
				slope[e] *= e == d ? a[d].slope[k] : a[d].w[k];
		}
		if (from < 0)
			continue;
		t->at[t->n] = from;
		t->w[t->n] = w;
		memcpy(t->slope[t->n++], slope, sizeof slope);
	}
}

/* -- kernels -- */

static void run(const void *ctx, const struct dlb_run *r)
{
	const struct sampler *s = ctx;
	struct grid_taps t;

	for (int64_t p = 0; p < s->batch * s->points; p++) {
		const int64_t first = p / s->points * s->channels;

		make_taps(s, r->in[1], p * s->n, &t);
		for (int64_t c = first; c < first + s->channels; c++) {
			double sum = 0;

			for (int i = 0; i < t.n; i++)
				sum += t.w[i] * dlb_real_get(r->in[0], s->x_type, c * s->plane + t.at[i]);
			dlb_real_set(r->out[0], s->x_type, c * s->points + p % s->points, sum);
		}
	}
}

static void grad_run(const void *ctx, const struct dlb_run *r)		/* in {dy, grid} */
{
	const struct sampler *s = ctx;
	struct grid_taps t;

	memset(r->out[0], 0, (size_t)(s->batch * s->channels * s->plane) * dlb_dtype_bytes(s->x_type));
	for (int64_t p = 0; p < s->batch * s->points; p++) {
		const int64_t first = p / s->points * s->channels;

		make_taps(s, r->in[1], p * s->n, &t);
		for (int64_t c = first; c < first + s->channels; c++) {
			const double dy = dlb_real_get(r->in[0], s->x_type, c * s->points + p % s->points);

			for (int i = 0; i < t.n; i++) {
				const int64_t at = c * s->plane + t.at[i];

				dlb_real_set(r->out[0], s->x_type, at,
					     dlb_real_get(r->out[0], s->x_type, at) + t.w[i] * dy);
			}
		}
	}
}

static void grad_grid_run(const void *ctx, const struct dlb_run *r)	/* in {dy, x, grid} */
{
	const struct sampler *s = ctx;
	struct grid_taps t;

	for (int64_t p = 0; p < s->batch * s->points; p++) {
		const int64_t first = p / s->points * s->channels;
		double g[MOST_DIMS] = { 0 };

		make_taps(s, r->in[2], p * s->n, &t);
		for (int i = 0; i < t.n; i++) {
			double sum = 0;

			for (int64_t c = first; c < first + s->channels; c++)
				sum += dlb_real_get(r->in[0], s->x_type, c * s->points + p % s->points) *
					dlb_real_get(r->in[1], s->x_type, c * s->plane + t.at[i]);
			for (int d = 0; d < s->n; d++)
				g[d] += sum * t.slope[i][d];
		}
		for (int d = 0; d < s->n; d++)
			dlb_real_set(r->out[0], s->grid_type, p * s->n + s->n - 1 - d, g[d]);
	}
}

/* -- the classes -- */

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct sampler s;

	if (parse(io, &io->in[0], &io->in[1], &s, err))
		return -1;
	io->out[0] = sampled(&io->in[0], &io->in[1]);
	if (dlb_checked_count(io->out[0].dim, io->out[0].n_dims) < 0)
		return dlb_op_fail(io, err, "the output would be too large");
	return 0;
}

static int kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		  struct dlb_error *err)
{
	struct sampler s;

	if (parse(io, &io->in[0], &io->in[1], &s, err))
		return -1;
	return be->ops->host(be, run, &s, sizeof s, 0, k, err);
}

static int gradient(struct dlb_builder *b, struct dlb_error *err)
{
	(void)err;
	if (b->need[0]) {
		b->din[0] = dlb_b_op(b, DLB_SPEC_ATTR("GridSampleGrad", b->io.attr, b->io.n_attr, b->dout[0],
						      b->in[1], dlb_b_const_shape(b, b->in[0])), NULL,
				     b->in[0]);
		if (b->din[0] < 0)
			return -1;
	}
	if (b->need[1]) {
		b->din[1] = dlb_b_op(b, DLB_SPEC_ATTR("GridSampleGradGrid", b->io.attr, b->io.n_attr,
						      b->dout[0], b->in[0], b->in[1]), NULL, b->in[1]);
		if (b->din[1] < 0)
			return -1;
	}
	return 0;
}

/* Checks that dy, input 0, is the gradient of x sampled by grid. */
static int check_dy(const struct dlb_op_io *io, const struct dlb_desc *x, const struct dlb_desc *grid,
		    struct sampler *s, struct dlb_error *err)
{
	struct dlb_desc y;

	if (parse(io, x, grid, s, err))
		return -1;
	y = sampled(x, grid);
	if (!dlb_desc_same_shape(&y, &io->in[0]) || io->in[0].dtype != x->dtype)
		return dlb_op_fail(io, err, "the gradient's shape or type is not that of the output");
	return 0;
}

static int grad_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct sampler s;

	return dlb_io_shape(io, 2, &io->out[0], err) || check_dy(io, &io->out[0], &io->in[1], &s, err) ? -1 :
													 0;
}

static int grad_grid_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct sampler s;

	if (check_dy(io, &io->in[1], &io->in[2], &s, err))
		return -1;
	io->out[0] = io->in[2];
	return 0;
}

static bool has_gradient(const struct sampler *s)
{
	return (s->x_type == DLB_F32 || s->x_type == DLB_F64) &&
	       (s->grid_type == DLB_F32 || s->grid_type == DLB_F64);
}

static int grad_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	struct sampler s;

	if (check_dy(io, &io->out[0], &io->in[1], &s, err))
		return -1;
	return has_gradient(&s) ? be->ops->host(be, grad_run, &s, sizeof s, 0, k, err) : DLB_NO_KERNEL;
}

static int grad_grid_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			    struct dlb_error *err)
{
	struct sampler s;

	if (check_dy(io, &io->in[1], &io->in[2], &s, err))
		return -1;
	return has_gradient(&s) ? be->ops->host(be, grad_grid_run, &s, sizeof s, 0, k, err) : DLB_NO_KERNEL;
}

/* 2 per tap and element of y, which is input 0 or output 0; channels share the computation of taps. */
static double flops(const struct dlb_op_io *io)
{
	const struct dlb_desc *y = io->cls->domain ? &io->in[0] : &io->out[0];
	struct sampler s = { .mode = LINEAR };

	if (parse_names(io, &s, NULL))
		return 0;
	return 2.0 * pow((double)s.mode, y->n_dims - 2) * (double)dlb_desc_count(y);
}

const struct dlb_op_class dlb_op_GridSample = { .name = "GridSample",
						.n_in = { 2, 2 },
						.n_out = { 1, 1 },
						.flags = DLB_OP_ON_CPU,
						.work = "move",
						.infer = infer,
						.flops = flops,
						.gradient = gradient,
						.kernel = kernel };
const struct dlb_op_class dlb_op_GridSampleGrad = { .name = "GridSampleGrad",
						    .domain = "dlb",
						    .n_in = { 3, 3 },
						    .n_out = { 1, 1 },
						    .flags = DLB_OP_ON_CPU,
						    .work = "move",
						    .infer = grad_infer,
						    .flops = flops,
						    .kernel = grad_kernel };
const struct dlb_op_class dlb_op_GridSampleGradGrid = { .name = "GridSampleGradGrid",
							.domain = "dlb",
							.n_in = { 3, 3 },
							.n_out = { 1, 1 },
							.flags = DLB_OP_ON_CPU,
							.work = "move",
							.infer = grad_grid_infer,
							.flops = flops,
							.kernel = grad_grid_kernel };
