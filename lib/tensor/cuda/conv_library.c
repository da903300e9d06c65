/* Convolution by a library, with passes of our own around it. Where a window is one element, a channels-last
 * convolution is a product, by cuBLAS; rows are the N P positions of all images:
 *     y (NP, M) = x (NP, C) w^T;   dx = dy w;   dw (M, C) = dy^T x
 * All others are cuDNN's (cudnn.h). Around them:
 *   weights    both libraries take them in the type and layout of x, so weights of bf16 convolutions and of
 *              cuDNN's channels-last ones are copied; gradients of channels-last weights are copied back
 *   bias, Relu one pass over y, in place; a bf16 y is rounded before and after it
 *   db         conv_bias of conv.cu
 * Gradients of weights are f32 where x is bf16. Where cuDNN has no engine for that, conv.c casts to f32. */
#include <stdlib.h>

#include "tensor/cuda/conv.h"
#include "tensor/cuda/cudnn.h"
#include "util/mem.h"

struct library_kernel {
	struct dlb_kernel k;
	struct cuda *c;
	enum dlb_conv_dir dir;
	struct cuda_dnn_conv *conv; /* NULL: product */
	struct cuda_matmul product;
	size_t zero_bytes; /* bytes of dx that are zeroed before the product */
	struct dlb_kernel
		*copy; /* of the weights to or from scratch, at `at`; NULL: they are used as they are */
	size_t at;
	struct dlb_kernel *end; /* bias, Relu or both; NULL: neither */
	int n_end; /* number of its operands */
	cudaKernel_t db; /* NULL: not wanted */
	struct cuda_conv_bias b;
};

static void convolve(const struct library_kernel *c, void *x, void *w, void *y, void *scratch)
{
	if (c->conv)
		dlb_cuda_dnn_run(c->conv, x, w, y, scratch);
	else if (c->dir == DLB_CONV_FORWARD)
		dlb_cuda_matmul(c->c, &c->product, x, w, y);
	else if (c->dir == DLB_CONV_GRAD_INPUT) {
		if (c->zero_bytes)
			dlb_cuda_note(c->c, "cudaMemsetAsync",
				      cudaMemsetAsync(x, 0, c->zero_bytes, c->c->stream));
		dlb_cuda_matmul(c->c, &c->product, y, w, x);
	} else
		dlb_cuda_matmul(c->c, &c->product, y, x, w);
}

static void run_forward(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct library_kernel *c = (const struct library_kernel *)k;
	void *const w[1] = { c->copy ? (char *)r->scratch + c->at : r->in[1] };
	void *const end[2] = { r->out[0], c->n_end == 2 ? r->in[2] : NULL };

	if (c->copy)
		c->copy->run(c->copy, &(struct dlb_run){ .in = r->in + 1, .out = w });
	convolve(c, r->in[0], w[0], r->out[0], r->scratch);
	if (c->end)
		c->end->run(c->end, &(struct dlb_run){ .in = end, .out = r->out });
}

static void run_grad_input(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct library_kernel *c = (const struct library_kernel *)k;
	void *const w[1] = { c->copy ? (char *)r->scratch + c->at : r->in[1] };

	if (c->copy)
		c->copy->run(c->copy, &(struct dlb_run){ .in = r->in + 1, .out = w });
	convolve(c, r->out[0], w[0], r->in[0], r->scratch);
}

static void run_grad_weight(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct library_kernel *c = (const struct library_kernel *)k;
	void *const dw[1] = { c->copy ? (char *)r->scratch + c->at : r->out[0] };

	convolve(c, r->in[1], dw[0], r->in[0], r->scratch);
	if (c->copy)
		c->copy->run(c->copy, &(struct dlb_run){ .in = dw, .out = r->out });
	if (c->db)
		dlb_cuda_conv_bias(c->c, c->db, c->b, r);
}

static void free_kernel(struct dlb_kernel *k)
{
	struct library_kernel *c = (struct library_kernel *)k;

	dlb_cuda_dnn_free(c->conv);
	dlb_kernel_free(c->copy);
	dlb_kernel_free(c->end);
	free(c);
}

/* True if elements of the same index lie at the same place in both. */
static bool same_places(const struct dlb_desc *a, const struct dlb_desc *b)
{
	int64_t s[DLB_MAX_DIMS], t[DLB_MAX_DIMS];

	dlb_desc_strides(a, s);
	dlb_desc_strides(b, t);
	for (int i = 0; i < a->n_dims; i++)
		if (a->dim[i] > 1 && s[i] != t[i])
			return false;
	return true;
}

/* Gives d the layout if that moves no element: with one channel or one position, both layouts are the
 * same. */
static void follow(struct dlb_desc *d, enum dlb_layout layout)
{
	struct dlb_desc other = *d;

	other.layout = layout;
	if (same_places(d, &other))
		*d = other;
}

/* Copies the weights `from` to `to`, one of which is in scratch. */
static int make_copy(struct dlb_backend *b, struct library_kernel *c, const struct dlb_desc *from,
		     const struct dlb_desc *to, const struct dlb_desc *in_scratch, struct dlb_error *err)
{
	struct dlb_copy_desc d = {
		.in = from->dtype, .out = to->dtype, .n_dims = from->n_dims, .out_count = dlb_desc_count(to)
	};

	if (from->dtype == to->dtype && same_places(from, to))
		return 0;
	for (int i = 0; i < d.n_dims; i++)
		d.dim[i] = from->dim[i];
	dlb_desc_strides(from, d.in_stride);
	dlb_desc_strides(to, d.out_stride);
	c->at = (c->k.scratch_bytes + 255) & ~(size_t)255;
	c->k.scratch_bytes = c->at + dlb_desc_bytes(in_scratch);
	return dlb_cuda_copy(b, &d, &c->copy, err);
}

/* y = y + bias, Relu(y) or Relu(y + bias). */
static int make_end(struct dlb_backend *b, struct library_kernel *c, const struct dlb_conv_desc *d,
		    struct dlb_error *err)
{
	struct dlb_map_desc m = { .fn = !d->has_bias ? DLB_MAP_relu :
					d->relu      ? DLB_MAP_add_relu :
						       DLB_MAP_add,
				  .n_in = d->has_bias ? 2 : 1,
				  .in = { d->y, { .dtype = d->w.dtype, .n_dims = d->y.n_dims } },
				  .out = d->y };

	if (!d->has_bias && !d->relu)
		return 0;
	c->n_end = m.n_in;
	for (int i = 0; i < d->y.n_dims; i++)
		m.in[1].dim[i] = i == 1 ? d->y.dim[1] : 1;
	return dlb_cuda_map(b, &m, &c->end, err);
}

static int make_db(struct library_kernel *c, const struct dlb_conv_desc *d)
{
	int64_t y[DLB_MAX_DIMS];

	if (!d->has_bias)
		return 0;
	dlb_desc_strides(&d->y, y);
	c->b = (struct cuda_conv_bias){ .images = d->y.dim[0],
					.channels = d->y.dim[1],
					.positions = dlb_desc_range(&d->y, 2, d->y.n_dims),
					.yn = y[0],
					.yc = y[1],
					.yp = y[d->y.n_dims - 1] };
	c->db = dlb_cuda_find_typed(c->c, "conv_bias", d->y.dtype);
	return c->db ? 0 : DLB_NO_KERNEL;
}

/* Whether a window is one element, and the channels of a position lie side by side. */
static bool is_pointwise(const struct dlb_conv_desc *d)
{
	bool yes = d->groups == 1 && d->x.layout == DLB_CHANNELS_LAST && d->y.layout == DLB_CHANNELS_LAST;

	for (int i = 0; i < d->x.n_dims - 2; i++)
		yes = yes && d->w.dim[2 + i] == 1 && !d->pad_begin[i] && !d->pad_end[i];
	return yes;
}

static bool takes_every_position(const struct dlb_conv_desc *d)
{
	bool yes = true;

	for (int i = 0; i < d->x.n_dims - 2; i++)
		yes = yes && d->stride[i] == 1;
	return yes;
}

/* Whether a strided dx can be a batch of products, one for each row of y. This needs a height of x that is a
 * multiple of the stride: then the positions of dx that receive a gradient lie equally far apart from one row
 * to the next; all others are 0. Only for f32 without TF32, for which cuDNN's engines are slow. */
static bool is_scattered(const struct dlb_conv_desc *d, bool tf32)
{
	return d->dir == DLB_CONV_GRAD_INPUT && d->x.dtype == DLB_F32 && !tf32 && d->x.n_dims == 4 &&
	       d->x.dim[2] == d->y.dim[2] * d->stride[0];
}

static struct cuda_matmul product_of(const struct dlb_conv_desc *d, bool tf32)
{
	const int64_t c = d->x.dim[1], m = d->y.dim[1], rows = dlb_desc_count(&d->y) / m;
	struct cuda_matmul p = { .type = d->x.dtype,
				 .tf32 = tf32,
				 .y_type = d->x.dtype,
				 .m = rows,
				 .n = c,
				 .k = m,
				 .lda = m,
				 .ldw = c,
				 .ldy = c,
				 .batch = 1,
				 .alpha = 1 };

	if (d->dir == DLB_CONV_FORWARD) {
		p.n = p.ldy = m;
		p.k = p.lda = c;
		p.trans_w = true;
	} else if (d->dir == DLB_CONV_GRAD_WEIGHT) {
		p.m = m;
		p.k = rows;
		p.trans_a = true;
		p.y_type = d->w.dtype;
	} else if (!takes_every_position(d)) {
		p.m = d->y.dim[3];
		p.batch = rows / p.m;
		p.ldy = d->stride[1] * c;
		p.a_batch = p.m * m;
		p.y_batch = d->stride[0] * d->x.dim[3] * c;
	}
	return p;
}

/* Chooses cuDNN or cuBLAS: sets c->conv or c->product. */
static int choose(struct library_kernel *c, const struct dlb_conv_desc *d, struct dlb_numerics may,
		  struct dlb_error *err)
{
	const bool all = takes_every_position(d);

	const bool fits = is_pointwise(d) && (all || is_scattered(d, may.tf32));

	if (fits)
		c->product = product_of(d, may.tf32);
	if (!fits || !dlb_cuda_matmul_fits(&c->product))
		return dlb_cuda_dnn_conv(c->c, d, may, &c->conv, &c->k.scratch_bytes, err);
	c->k.impl = "cublas";
	c->zero_bytes = all ? 0 : dlb_desc_bytes(&d->x);
	return 0;
}

int dlb_cuda_conv_by_library(struct dlb_backend *b, const struct dlb_conv_desc *d, struct dlb_numerics may,
			     struct dlb_kernel **k, struct dlb_error *err)
{
	static void (*const run[])(struct dlb_kernel *, const struct dlb_run *) = {
		[DLB_CONV_FORWARD] = run_forward,
		[DLB_CONV_GRAD_INPUT] = run_grad_input,
		[DLB_CONV_GRAD_WEIGHT] = run_grad_weight,
	};
	const enum dlb_dtype type = d->x.dtype;
	const bool to_weight = d->dir == DLB_CONV_GRAD_WEIGHT;
	struct dlb_conv_desc bare = *d; /* d in the library's types and layouts */
	struct library_kernel *c;
	int rc;

	if ((type != DLB_F32 && type != DLB_F64 && type != DLB_BF16) || d->y.dtype != type ||
	    !dlb_desc_count(&d->x) || !dlb_desc_count(&d->y) || !dlb_desc_count(&d->w))
		return DLB_NO_KERNEL;
	follow(&bare.x, d->y.layout);
	follow(&bare.y, bare.x.layout);
	bare.w.layout = bare.x.layout;
	if (!to_weight)
		bare.w.dtype = type;
	c = dlb_xcalloc(1, sizeof *c);
	c->c = cuda_of(b);
	c->dir = d->dir;
	c->k = (struct dlb_kernel){ .run = run[d->dir], .free = free_kernel, .impl = "cudnn" };
	rc = choose(c, &bare, may, err);
	if (!rc)
		rc = make_copy(b, c, to_weight ? &bare.w : &d->w, to_weight ? &d->w : &bare.w, &bare.w, err);
	if (!rc && d->dir == DLB_CONV_FORWARD)
		rc = make_end(b, c, d, err);
	if (!rc && to_weight)
		rc = make_db(c, d);
	if (rc) {
		free_kernel(&c->k);
		return rc;
	}
	*k = &c->k;
	return 0;
}
