/* Convolution that no library can do (conv_library.c): by products (cuBLAS) of the weights with the input's
 * columns (conv.cu), some images at a time and group by group:
 *   y (mg, P) = w (mg, taps) col;   dcol = w^T dy;   dw += dy col^T
 * If y's channels are the faster dimension (channels-last), y and dy are those matrices transposed. */
#include <stdlib.h>
#include <string.h>

#include "tensor/cuda/conv.h"
#include "tensor/cuda/cudnn.h"
#include "util/mem.h"

enum { COLUMNS_BYTES = 128 << 20 };	/* most bytes of columns at a time, if one image fits */

struct conv_kernel {
	struct dlb_kernel k;
	struct cuda *c;
	struct dlb_conv_desc d;
	struct cuda_conv a;		/* images: of one chunk */
	struct cuda_conv_bias b;
	cudaKernel_t columns, image, bias;
	int64_t images, groups, mg, taps, positions;	/* mg: outputs of a group; taps: of a group's channels */
	int64_t yn, yc, yp;		/* strides of y: image, channel, position */
	size_t bytes;			/* of an element */
	bool tf32;
	struct dlb_kernel *fill, *relu;	/* y = bias; y = Relu(y); NULL: not wanted */
};

static void take_spatial(const struct dlb_desc *d, int64_t *size, int64_t *stride)
{
	int64_t all[DLB_MAX_DIMS];
	const int n = d->n_dims - 2;

	dlb_desc_strides(d, all);
	for (int i = 0; i < 3; i++) {
		const int from = i - (3 - n);

		size[i] = from < 0 ? 1 : d->dim[2 + from];
		stride[i] = from < 0 ? 0 : all[2 + from];
	}
}

static void geometry(struct conv_kernel *c)
{
	const struct dlb_conv_desc *d = &c->d;
	const int n = d->x.n_dims - 2;
	int64_t x[DLB_MAX_DIMS], y[DLB_MAX_DIMS], unused[3];

	dlb_desc_strides(&d->x, x);
	dlb_desc_strides(&d->y, y);
	take_spatial(&d->x, c->a.in, c->a.xs);
	take_spatial(&d->w, c->a.size, unused);
	take_spatial(&d->y, c->a.out, unused);
	for (int i = 0; i < 3; i++) {
		const int from = i - (3 - n);

		c->a.stride[i] = from < 0 ? 1 : d->stride[from];
		c->a.dilation[i] = from < 0 ? 1 : d->dilation[from];
		c->a.pad[i] = from < 0 ? 0 : d->pad_begin[from];
	}
	c->a.channels = d->x.dim[1];
	c->a.xn = x[0];
	c->a.xc = x[1];
	c->images = d->x.dim[0];
	c->groups = d->groups;
	c->mg = d->y.dim[1] / d->groups;
	c->taps = d->w.dim[1] * c->a.size[0] * c->a.size[1] * c->a.size[2];
	c->positions = c->a.out[0] * c->a.out[1] * c->a.out[2];
	c->yn = y[0];
	c->yc = y[1];
	c->yp = y[d->y.n_dims - 1];
}

/* Elements of the columns of one image. */
static int64_t image_columns(const struct conv_kernel *c)
{
	return c->groups * c->taps * c->positions;
}

/* Runs one of the kernels between x and columns for `images` images from `first` on. */
static void move(const struct conv_kernel *c, cudaKernel_t f, int64_t first, int64_t images, void *x, void *col,
		 bool to_columns)
{
	struct cuda_conv a = c->a;
	char *at = (char *)x + (size_t)(first * c->a.xn) * c->bytes;

	a.images = images;
	a.p.in[0] = to_columns ? at : col;
	a.p.out[0] = to_columns ? col : at;
	dlb_cuda_launch(c->c, f, &a,
			to_columns ? images * image_columns(c) :
				     images * a.channels * a.in[0] * a.in[1] * a.in[2]);
}

/* Images of the chunk that begins at image `first`. */
static int64_t chunk(const struct conv_kernel *c, int64_t first)
{
	return c->images - first < c->a.images ? c->images - first : c->a.images;
}

static const char *group_of(const struct conv_kernel *c, const void *y, int64_t first, int64_t g)
{
	return (const char *)y + (size_t)(first * c->yn + g * c->mg * c->yc) * c->bytes;
}

static const char *weights_of(const struct conv_kernel *c, const void *w, int64_t g)
{
	return (const char *)w + (size_t)(g * c->mg * c->taps) * c->bytes;
}

static char *columns_of(const struct conv_kernel *c, void *col, int64_t image, int64_t g)
{
	return (char *)col + (size_t)(image * image_columns(c) + g * c->taps * c->positions) * c->bytes;
}

/* Elements between rows of y or dy, as the matrix (mg, P) or its transpose. A single row is dense. */
static int64_t y_row(const struct conv_kernel *c)
{
	return c->yp != 1 ? c->yp : c->yc > c->positions ? c->yc : c->positions;
}

static void run_forward(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct conv_kernel *c = (const struct conv_kernel *)k;
	const struct dlb_run fill = { .in = r->in + 2, .out = r->out }, relu = { .in = r->out, .out = r->out };
	const bool rows = c->yp == 1;
	struct cuda_matmul p = {
		.type = c->d.x.dtype, .tf32 = c->tf32, .y_type = c->d.x.dtype, .k = c->taps, .alpha = 1
	};

	p.m = rows ? c->mg : c->positions;
	p.n = rows ? c->positions : c->mg;
	p.trans_a = p.trans_w = !rows;
	p.lda = rows ? c->taps : c->positions;
	p.ldw = rows ? c->positions : c->taps;
	p.ldy = y_row(c);
	p.a_batch = rows ? 0 : image_columns(c);
	p.w_batch = rows ? image_columns(c) : 0;
	p.y_batch = c->yn;
	p.beta = c->fill ? 1 : 0;
	if (c->fill)
		c->fill->run(c->fill, &fill);
	for (int64_t first = 0; first < c->images; first += c->a.images) {
		const int64_t n = chunk(c, first);

		move(c, c->columns, first, n, r->in[0], r->scratch, true);
		p.batch = n;
		for (int64_t g = 0; g < c->groups; g++) {
			const char *w = weights_of(c, r->in[1], g), *col = columns_of(c, r->scratch, 0, g);

			dlb_cuda_matmul(c->c, &p, rows ? w : col, rows ? col : w,
					(char *)group_of(c, r->out[0], first, g));
		}
	}
	if (c->relu)
		c->relu->run(c->relu, &relu);
}

static void run_grad_input(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct conv_kernel *c = (const struct conv_kernel *)k;
	struct cuda_matmul p = { .type = c->d.x.dtype,
				 .tf32 = c->tf32,
				 .y_type = c->d.x.dtype,
				 .m = c->taps,
				 .n = c->positions,
				 .k = c->mg,
				 .trans_a = true,
				 .trans_w = c->yp != 1,
				 .lda = c->taps,
				 .ldw = y_row(c),
				 .ldy = c->positions,
				 .w_batch = c->yn,
				 .y_batch = image_columns(c),
				 .alpha = 1 };

	for (int64_t first = 0; first < c->images; first += c->a.images) {
		const int64_t n = chunk(c, first);

		p.batch = n;
		for (int64_t g = 0; g < c->groups; g++)
			dlb_cuda_matmul(c->c, &p, weights_of(c, r->in[1], g), group_of(c, r->in[0], first, g),
					columns_of(c, r->scratch, 0, g));
		move(c, c->image, first, n, r->out[0], r->scratch, false);
	}
}

void dlb_cuda_conv_bias(struct cuda *c, cudaKernel_t f, struct cuda_conv_bias b, const struct dlb_run *r)
{
	b.p.in[0] = r->in[0];
	b.p.out[0] = r->out[1];
	dlb_cuda_launch_rows(c, f, &b, b.channels);
}

static void run_grad_weight(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct conv_kernel *c = (const struct conv_kernel *)k;
	struct cuda_matmul p = { .type = c->d.x.dtype,
				 .tf32 = c->tf32,
				 .y_type = c->d.x.dtype,
				 .m = c->mg,
				 .n = c->taps,
				 .k = c->positions,
				 .trans_a = c->yp != 1,
				 .trans_w = true,
				 .lda = y_row(c),
				 .ldw = c->positions,
				 .ldy = c->taps,
				 .batch = 1,
				 .alpha = 1 };

	for (int64_t first = 0; first < c->images; first += c->a.images) {
		const int64_t n = chunk(c, first);

		move(c, c->columns, first, n, r->in[1], r->scratch, true);
		for (int64_t i = 0; i < n; i++)		/* images add up in their order */
			for (int64_t g = 0; g < c->groups; g++) {
				p.beta = first + i > 0;
				dlb_cuda_matmul(c->c, &p, group_of(c, r->in[0], first + i, g),
						columns_of(c, r->scratch, i, g),
						(char *)weights_of(c, r->out[0], g));
			}
	}
	if (c->d.has_bias)
		dlb_cuda_conv_bias(c->c, c->bias, c->b, r);
}

static void conv_free(struct dlb_kernel *k)
{
	struct conv_kernel *c = (struct conv_kernel *)k;

	dlb_kernel_free(c->fill);
	dlb_kernel_free(c->relu);
	free(c);
}

/* Makes the kernels that set y = bias before the products are added, and apply Relu after them. */
static int make_ends(struct dlb_backend *b, struct conv_kernel *c, struct dlb_error *err)
{
	struct dlb_map_desc fill = { .fn = DLB_MAP_linear, .n_in = 1, .out = c->d.y, .alpha = 1 };
	const struct dlb_map_desc relu = { .fn = DLB_MAP_relu, .n_in = 1, .in = { c->d.y }, .out = c->d.y };

	fill.in[0] = (struct dlb_desc){ .dtype = c->d.x.dtype, .n_dims = c->d.y.n_dims };
	for (int i = 0; i < fill.in[0].n_dims; i++)
		fill.in[0].dim[i] = i == 1 ? c->d.y.dim[1] : 1;
	return (c->d.has_bias && dlb_cuda_map(b, &fill, &c->fill, err)) ||
		       (c->d.relu && dlb_cuda_map(b, &relu, &c->relu, err)) ?
		       -1 :
		       0;
}

static int prepare_real(struct dlb_backend *b, const struct dlb_conv_desc *d, struct dlb_numerics may,
			struct dlb_kernel **k, struct dlb_error *err);

/* ---- bf16 that cuDNN cannot do: x and y are cast to and from f32, the type of weights and sums. For the
 * gradient of the weights both operands are casts of bf16, which TF32 holds exactly. ---- */
struct bf16_conv {
	struct dlb_kernel k;
	struct dlb_kernel *conv, *in[2], *out;	/* in, out: casts; NULL: none */
	size_t at[3];				/* places of the casts, behind the convolution's scratch */
	int n_in, n_out;
};

static void run_bf16(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct bf16_conv *c = (const struct bf16_conv *)k;
	void *in[3] = { NULL }, *out[2] = { NULL };
	const struct dlb_run run = { .in = in, .out = out, .scratch = r->scratch };

	for (int i = 0; i < c->n_in; i++) {
		in[i] = r->in[i];
		if (i > 1 || !c->in[i])
			continue;
		in[i] = (char *)r->scratch + c->at[i];
		c->in[i]->run(c->in[i], &(struct dlb_run){ .in = r->in + i, .out = in + i });
	}
	for (int i = 0; i < c->n_out; i++)
		out[i] = r->out[i];
	if (c->out)
		out[0] = (char *)r->scratch + c->at[2];
	c->conv->run(c->conv, &run);
	if (c->out)
		c->out->run(c->out, &(struct dlb_run){ .in = out, .out = r->out });
}

static void free_bf16(struct dlb_kernel *k)
{
	struct bf16_conv *c = (struct bf16_conv *)k;

	dlb_kernel_free(c->conv);
	dlb_kernel_free(c->in[0]);
	dlb_kernel_free(c->in[1]);
	dlb_kernel_free(c->out);
	free(c);
}

static int make_cast(struct dlb_backend *b, const struct dlb_desc *d, bool widens, struct bf16_conv *c, int which,
		     struct dlb_kernel **k, struct dlb_error *err)
{
	const int64_t n = dlb_desc_count(d);

	c->at[which] = c->k.scratch_bytes;
	c->k.scratch_bytes += ((size_t)n * sizeof(float) + 255) & ~(size_t)255;
	return dlb_cuda_cast(b, n, widens ? DLB_BF16 : DLB_F32, widens ? DLB_F32 : DLB_BF16, k, err);
}

static int prepare_bf16(struct dlb_backend *b, const struct dlb_conv_desc *d, struct dlb_kernel **k,
			struct dlb_error *err)
{
	const bool forward = d->dir == DLB_CONV_FORWARD, to_weight = d->dir == DLB_CONV_GRAD_WEIGHT;
	struct bf16_conv *c = dlb_xcalloc(1, sizeof *c);
	/* gradients of weights read only casts of bf16, which TF32 holds exactly */
	const struct dlb_numerics may = { b->numerics.tf32 || to_weight, b->numerics.fast };
	struct dlb_conv_desc f32 = *d;
	int rc;

	f32.x.dtype = f32.w.dtype = f32.y.dtype = DLB_F32;
	c->n_in = forward && d->has_bias ? 3 : 2;
	c->n_out = to_weight && d->has_bias ? 2 : 1;
	rc = prepare_real(b, &f32, may, &c->conv, err);
	if (!rc) {
		c->k = (struct dlb_kernel){ .run = run_bf16, .free = free_bf16, .impl = c->conv->impl };
		c->k.scratch_bytes = (c->conv->scratch_bytes + 255) & ~(size_t)255;
		rc = make_cast(b, forward ? &d->x : &d->y, true, c, 0, &c->in[0], err);
	}
	if (!rc && to_weight)
		rc = make_cast(b, &d->x, true, c, 1, &c->in[1], err);
	if (!rc && !to_weight)
		rc = make_cast(b, forward ? &d->y : &d->x, false, c, 2, &c->out, err);
	if (rc) {
		free_bf16(&c->k);
		return rc;
	}
	*k = &c->k;
	return 0;
}

/* f32 and f64, by cuDNN or by columns. may: see cudnn.h. */
static int prepare_real(struct dlb_backend *b, const struct dlb_conv_desc *d, struct dlb_numerics may,
			struct dlb_kernel **k, struct dlb_error *err)
{
	static void (*const run[])(struct dlb_kernel *, const struct dlb_run *) = {
		[DLB_CONV_FORWARD] = run_forward,
		[DLB_CONV_GRAD_INPUT] = run_grad_input,
		[DLB_CONV_GRAD_WEIGHT] = run_grad_weight,
	};
	const enum dlb_dtype type = d->x.dtype;
	const int rc = dlb_cuda_conv_by_library(b, d, may, k, err);
	struct conv_kernel *c;
	int64_t one, most;

	if (rc != DLB_NO_KERNEL)
		return rc;
	if ((type != DLB_F32 && type != DLB_F64) || d->y.dtype != type || !dlb_desc_count(&d->x) ||
	    !dlb_desc_count(&d->y) || !dlb_desc_count(&d->w))
		return DLB_NO_KERNEL;
	c = dlb_xcalloc(1, sizeof *c);
	c->c = cuda_of(b);
	c->d = *d;
	c->tf32 = may.tf32;
	c->bytes = dlb_dtype_bytes(type);
	geometry(c);
	one = image_columns(c) * (int64_t)c->bytes;
	most = COLUMNS_BYTES / one;
	c->a.images = most < 1 ? 1 : most < c->images ? most : c->images;
	c->b = (struct cuda_conv_bias){ .images = c->images,
					.channels = d->y.dim[1],
					.positions = c->positions,
					.yn = c->yn,
					.yc = c->yc,
					.yp = c->yp };
	c->columns = dlb_cuda_find_typed(c->c, "conv_columns", type);
	c->image = dlb_cuda_find_typed(c->c, "conv_image", type);
	c->bias = dlb_cuda_find_typed(c->c, "conv_bias", type);
	c->k = (struct dlb_kernel){ .run = run[d->dir],
				    .free = conv_free,
				    .scratch_bytes = (size_t)(c->a.images * one),
				    .impl = "cublas" };
	if (d->dir == DLB_CONV_FORWARD && make_ends(b, c, err)) {
		conv_free(&c->k);
		return -1;
	}
	*k = &c->k;
	return 0;
}

PREPARE(conv)
{
	const bool is_bf16 = d->x.dtype == DLB_BF16;
	const int rc = is_bf16 ? dlb_cuda_conv_by_library(b, d, b->numerics, k, err) :
				 prepare_real(b, d, b->numerics, k, err);

	return is_bf16 && rc == DLB_NO_KERNEL ? prepare_bf16(b, d, k, err) : rc;
}
