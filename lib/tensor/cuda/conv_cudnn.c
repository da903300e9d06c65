/* Convolution by cuDNN (cudnn.h), with passes of our own around it:
 *   weights    cuDNN's engines take them in the type and layout of x, so those of channels-last and bf16
 *              convolutions are copied, and gradients of channels-last weights are copied back
 *   bias, Relu one pass over y, in place; a bf16 y is rounded before and after it
 *   db         conv_bias of conv.cu
 * Gradients of weights are f32 where x is bf16. cuDNN 9.19 has no engine for that, so conv.c casts to f32. */
#include <stdlib.h>

#include "tensor/cuda/conv.h"
#include "tensor/cuda/cudnn.h"
#include "util/mem.h"

struct cudnn_kernel {
	struct dlb_kernel k;
	struct cuda *c;
	struct cuda_dnn_conv *conv;
	struct dlb_kernel
		*copy; /* of the weights to or from scratch, at `at`; NULL: they are used as they are */
	size_t at;
	struct dlb_kernel *end;		/* bias, Relu or both; NULL: neither */
	int n_end;			/* its operands */
	cudaKernel_t db;		/* NULL: not wanted */
	struct cuda_conv_bias b;
};

static void run_forward(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct cudnn_kernel *c = (const struct cudnn_kernel *)k;
	void *const w[1] = { c->copy ? (char *)r->scratch + c->at : r->in[1] };
	void *const end[2] = { r->out[0], c->n_end == 2 ? r->in[2] : NULL };

	if (c->copy)
		c->copy->run(c->copy, &(struct dlb_run){ .in = r->in + 1, .out = w });
	dlb_cuda_dnn_run(c->conv, r->in[0], w[0], r->out[0], r->scratch);
	if (c->end)
		c->end->run(c->end, &(struct dlb_run){ .in = end, .out = r->out });
}

static void run_grad_input(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct cudnn_kernel *c = (const struct cudnn_kernel *)k;
	void *const w[1] = { c->copy ? (char *)r->scratch + c->at : r->in[1] };

	if (c->copy)
		c->copy->run(c->copy, &(struct dlb_run){ .in = r->in + 1, .out = w });
	dlb_cuda_dnn_run(c->conv, r->out[0], w[0], r->in[0], r->scratch);
}

static void run_grad_weight(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct cudnn_kernel *c = (const struct cudnn_kernel *)k;
	void *const dw[1] = { c->copy ? (char *)r->scratch + c->at : r->out[0] };

	dlb_cuda_dnn_run(c->conv, r->in[1], dw[0], r->in[0], r->scratch);
	if (c->copy)
		c->copy->run(c->copy, &(struct dlb_run){ .in = dw, .out = r->out });
	if (c->db)
		dlb_cuda_conv_bias(c->c, c->db, c->b, r);
}

static void free_kernel(struct dlb_kernel *k)
{
	struct cudnn_kernel *c = (struct cudnn_kernel *)k;

	dlb_cuda_dnn_free(c->conv);
	dlb_kernel_free(c->copy);
	dlb_kernel_free(c->end);
	free(c);
}

/* True if elements of the same index lie at the same place. */
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

/* Gives d the layout if that moves no element: with one channel, or one position, both are the same. */
static void follow(struct dlb_desc *d, enum dlb_layout layout)
{
	struct dlb_desc other = *d;

	other.layout = layout;
	if (same_places(d, &other))
		*d = other;
}

/* Copies the weights `from` to `to`, one of which is in scratch. */
static int make_copy(struct dlb_backend *b, struct cudnn_kernel *c, const struct dlb_desc *from,
		     const struct dlb_desc *to, const struct dlb_desc *in_scratch, struct dlb_error *err)
{
	struct dlb_copy_desc d = { .in = from->dtype,
				   .out = to->dtype,
				   .n_dims = from->n_dims,
				   .out_count = dlb_desc_count(to) };

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
static int make_end(struct dlb_backend *b, struct cudnn_kernel *c, const struct dlb_conv_desc *d,
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

static int make_db(struct cudnn_kernel *c, const struct dlb_conv_desc *d)
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

int dlb_cuda_conv_by_cudnn(struct dlb_backend *b, const struct dlb_conv_desc *d, struct dlb_numerics may,
			   struct dlb_kernel **k, struct dlb_error *err)
{
	static void (*const run[])(struct dlb_kernel *, const struct dlb_run *) = {
		[DLB_CONV_FORWARD] = run_forward,
		[DLB_CONV_GRAD_INPUT] = run_grad_input,
		[DLB_CONV_GRAD_WEIGHT] = run_grad_weight,
	};
	const enum dlb_dtype type = d->x.dtype;
	const bool to_weight = d->dir == DLB_CONV_GRAD_WEIGHT;
	struct dlb_conv_desc bare = *d;		/* as cuDNN gets it */
	struct cudnn_kernel *c;
	int rc;

	if ((type != DLB_F32 && type != DLB_F64 && (type != DLB_BF16 || to_weight)) || d->y.dtype != type ||
	    !dlb_desc_count(&d->x) || !dlb_desc_count(&d->y) || !dlb_desc_count(&d->w))
		return DLB_NO_KERNEL;
	follow(&bare.x, d->y.layout);
	follow(&bare.y, bare.x.layout);
	bare.w.layout = bare.x.layout;
	bare.w.dtype = type;
	c = dlb_xcalloc(1, sizeof *c);
	c->c = cuda_of(b);
	c->k = (struct dlb_kernel){ .run = run[d->dir], .free = free_kernel, .impl = "cudnn" };
	rc = dlb_cuda_dnn_conv(c->c, &bare, may, &c->conv, &c->k.scratch_bytes, err);
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
