/* Convolution: forward, gradient of the input, gradient of the weight (and bias).
 *
 * float32 goes to oneDNN; activations lie as their descriptors say (channels-last is the fast way), weights
 * are plain (M, C/groups, K...) outside and reordered into what the primitive likes, kept packed until
 * the run's weight version changes; a weight's gradient is reordered back to plain. float64, and what
 * oneDNN has only its reference loop for, is im2col and a matrix product (conv_real.h). */
#include <cblas.h>
#include <stdlib.h>

#include "tensor/cpu/cpu.h"

struct conv_kernel {
	struct dlb_kernel k;
	struct cpu *c;
	struct dlb_conv_desc d;
	/* oneDNN */
	struct cpu_prim prim;
	struct cpu_packed packed;	/* weight, forward and gradient of the input */
	struct cpu_prim unpack;		/* weight gradient to plain; prim NULL: written in place */
	size_t grad_at;			/* its place in scratch */
	dnnl_dims_t strides, dilates, begin, end;	/* as the library counts them: no dilation is 0 */
	/* im2col: the geometry with three spatial dimensions (missing ones are 1, first) */
	int64_t n, g, cg, mg;		/* batch, groups, channels and outputs per group */
	int64_t in[3], out[3], size[3], step[3], dil[3], pad[3];
	int64_t xn, xc, xs[3], yn, ym, yp;	/* strides of x; of y: batch, channel, position */
	int64_t positions, taps;	/* outputs of one image and channel; cg * kernel elements */
};

/* Input coordinate, or -1 outside, of output o and kernel position k along dimension i. */
static inline int64_t conv_source(const struct conv_kernel *c, int i, int64_t o, int64_t k)
{
	int64_t x = o * c->step[i] - c->pad[i] + k * c->dil[i];

	return x < 0 || x >= c->in[i] ? -1 : x;
}

#define GEMM dlb_cpu_sgemm
#include "tensor/cpu/f32.h"
#include "tensor/cpu/conv_real.h"
#undef GEMM
#define GEMM cblas_dgemm
#include "tensor/cpu/f64.h"
#include "tensor/cpu/conv_real.h"

static void run_dnnl(struct dlb_kernel *k, const struct dlb_run *r)
{
	struct conv_kernel *c = (struct conv_kernel *)k;

	if (c->d.dir == DLB_CONV_GRAD_WEIGHT) {
		void *dw = c->unpack.prim ? (char *)r->scratch + c->grad_at : r->out[0];
		void *const ptr[] = { r->in[0], r->in[1], dw, r->out[1] }, *const back[] = { dw, r->out[0] };

		dlb_cpu_prim_run(c->c, &c->prim, ptr, r->scratch);
		if (c->unpack.prim)
			dlb_cpu_prim_run(c->c, &c->unpack, back, r->scratch);
	} else {
		void *w = dlb_cpu_packed_get(c->c, &c->packed, r->in[1], r->weight_version, r->scratch);
		void *const ptr[] = { r->in[0], w, r->out[0], c->d.has_bias ? r->in[2] : NULL };

		dlb_cpu_prim_run(c->c, &c->prim, ptr, r->scratch);
	}
}

static void conv_free(struct dlb_kernel *k)
{
	struct conv_kernel *c = (struct conv_kernel *)k;

	dlb_cpu_prim_release(&c->prim);
	dlb_cpu_prim_release(&c->unpack);
	dlb_cpu_packed_release(&c->packed);
	free(c);
}

static void activation_md(dnnl_memory_desc_t *md, const struct dlb_desc *d, bool channels_last)
{
	dnnl_dims_t dims = { 0 };

	static const dnnl_format_tag_t last[] = { dnnl_nwc, dnnl_nhwc, dnnl_ndhwc };
	static const dnnl_format_tag_t plain[] = { dnnl_ncw, dnnl_nchw, dnnl_ncdhw };

	for (int i = 0; i < d->n_dims; i++)
		dims[i] = d->dim[i];
	dnnl_memory_desc_init_by_tag(md, d->n_dims, dims, dnnl_f32, channels_last ? last[d->n_dims - 3] : plain[d->n_dims - 3]);
}

static bool is_last(const struct dlb_desc *d, const struct dlb_desc *other)
{
	int64_t places = 1;

	for (int i = 2; i < d->n_dims; i++)
		places *= d->dim[i];
	if (d->dim[1] == 1 || places == 1)	/* both layouts are the same bytes: as the other side */
		return other ? is_last(other, NULL) : true;
	return d->layout == DLB_CHANNELS_LAST;
}

static int dnnl_descriptor(const struct conv_kernel *c, enum dlb_conv_dir dir, const dnnl_memory_desc_t *x,
			   const dnnl_memory_desc_t *w, const dnnl_memory_desc_t *bias, const dnnl_memory_desc_t *y,
			   dnnl_convolution_desc_t *od)
{
	dnnl_status_t s;

	if (dir == DLB_CONV_FORWARD)
		s = dnnl_dilated_convolution_forward_desc_init(od, dnnl_forward_training, dnnl_convolution_direct, x, w, bias, y,
							       c->strides, c->dilates, c->begin, c->end);
	else if (dir == DLB_CONV_GRAD_INPUT)
		s = dnnl_dilated_convolution_backward_data_desc_init(od, dnnl_convolution_direct, x, w, y,
								     c->strides, c->dilates, c->begin, c->end);
	else
		s = dnnl_dilated_convolution_backward_weights_desc_init(od, dnnl_convolution_direct, x, w, bias, y,
									c->strides, c->dilates, c->begin, c->end);
	return s == dnnl_success ? 0 : DLB_NO_KERNEL;
}

static int prepare_dnnl(struct conv_kernel *c)
{
	static const dnnl_format_tag_t tags[2][3] = { { dnnl_oiw, dnnl_oihw, dnnl_oidhw }, { dnnl_goiw, dnnl_goihw, dnnl_goidhw } };
	int n_sp = c->d.x.n_dims - 2, grouped = c->g > 1, rc;
	dnnl_dims_t dims = { c->g, c->mg, c->cg }, channels = { c->g * c->mg };
	dnnl_memory_desc_t x, y, any, plain, bias, w;
	dnnl_convolution_desc_t od, forward;
	dnnl_primitive_desc_t pd = NULL, hint = NULL;
	const dnnl_memory_desc_t *b = c->d.has_bias ? &bias : NULL;

	for (int i = 0; i < n_sp; i++) {
		dims[3 + i] = c->d.w.dim[2 + i];
		c->strides[i] = c->d.stride[i];
		c->dilates[i] = c->d.dilation[i] - 1;
		c->begin[i] = c->d.pad_begin[i];
		c->end[i] = c->d.pad_end[i];
	}
	activation_md(&x, &c->d.x, is_last(&c->d.x, &c->d.y));
	activation_md(&y, &c->d.y, is_last(&c->d.y, &c->d.x));
	dnnl_memory_desc_init_by_tag(&plain, n_sp + 2 + grouped, dims + !grouped, dnnl_f32, tags[grouped][n_sp - 1]);
	dnnl_memory_desc_init_by_tag(&any, n_sp + 2 + grouped, dims + !grouped, dnnl_f32, dnnl_format_tag_any);
	dnnl_memory_desc_init_by_tag(&bias, 1, channels, dnnl_f32, dnnl_a);
	if (c->d.dir != DLB_CONV_FORWARD) {
		rc = dnnl_descriptor(c, DLB_CONV_FORWARD, &x, &any, b, &y, &forward);
		if (rc == 0 && dlb_cpu_pd(c->c, &forward, NULL, &hint))
			return DLB_NO_KERNEL;
	}
	rc = dnnl_descriptor(c, c->d.dir, &x, &any, b, &y, &od);
	if (rc == 0)
		rc = dlb_cpu_pd(c->c, &od, hint, &pd);
	if (hint)
		dnnl_primitive_desc_destroy(hint);
	if (rc == 0)
		rc = dlb_cpu_prim(c->c, pd, &c->prim);
	if (rc)
		goto out;
	if (c->d.dir == DLB_CONV_GRAD_WEIGHT) {
		w = *dlb_cpu_md(pd, dnnl_query_diff_weights_md, 0);
		dlb_cpu_prim_arg(c->c, &c->prim, DNNL_ARG_DIFF_DST, &y);
		dlb_cpu_prim_arg(c->c, &c->prim, DNNL_ARG_SRC, &x);
		dlb_cpu_prim_arg(c->c, &c->prim, DNNL_ARG_DIFF_WEIGHTS, &w);
		if (b)
			dlb_cpu_prim_arg(c->c, &c->prim, DNNL_ARG_DIFF_BIAS, b);
		rc = dlb_cpu_reorder(c->c, &w, &plain, &c->unpack);
		c->k.scratch_bytes = c->prim.scratch_bytes;
		if (rc == 0 && c->unpack.prim) {
			size_t most = c->prim.scratch_bytes > c->unpack.scratch_bytes ? c->prim.scratch_bytes : c->unpack.scratch_bytes;

			c->grad_at = cpu_round64(most);
			c->k.scratch_bytes = c->grad_at + dnnl_memory_desc_get_size(&w);
		}
	} else {
		bool forwards = c->d.dir == DLB_CONV_FORWARD;

		w = *dlb_cpu_md(pd, dnnl_query_weights_md, 0);
		dlb_cpu_prim_arg(c->c, &c->prim, forwards ? DNNL_ARG_SRC : DNNL_ARG_DIFF_DST, forwards ? &x : &y);
		dlb_cpu_prim_arg(c->c, &c->prim, DNNL_ARG_WEIGHTS, &w);
		dlb_cpu_prim_arg(c->c, &c->prim, forwards ? DNNL_ARG_DST : DNNL_ARG_DIFF_SRC, forwards ? &y : &x);
		if (forwards && b)
			dlb_cpu_prim_arg(c->c, &c->prim, DNNL_ARG_BIAS, b);
		rc = dlb_cpu_packed(c->c, &plain, &w, &c->packed);
		c->k.packed_bytes = c->packed.bytes;
		c->k.scratch_bytes = c->prim.scratch_bytes > c->packed.reorder.scratch_bytes ? c->prim.scratch_bytes :
			c->packed.reorder.scratch_bytes;
	}
out:
	if (pd)
		dnnl_primitive_desc_destroy(pd);
	if (rc) {
		dlb_cpu_prim_release(&c->prim);
		dlb_cpu_packed_release(&c->packed);
	}
	return rc;
}

static int check(const struct dlb_conv_desc *d, struct dlb_error *err)
{
	int n_sp = d->x.n_dims - 2;
	bool ok = d->w.n_dims == d->x.n_dims && d->y.n_dims == d->x.n_dims && d->groups >= 1 &&
		d->y.dim[0] == d->x.dim[0] && d->w.dim[1] * d->groups == d->x.dim[1] &&
		d->w.dim[0] == d->y.dim[1] && d->w.dim[0] % d->groups == 0;

	for (int i = 0; ok && i < n_sp; i++) {
		int64_t span = d->x.dim[i + 2] + d->pad_begin[i] + d->pad_end[i] - (d->w.dim[i + 2] - 1) * d->dilation[i] - 1;

		ok = d->stride[i] >= 1 && d->dilation[i] >= 1 && d->w.dim[i + 2] >= 1 && span >= 0 &&
			d->y.dim[i + 2] == span / d->stride[i] + 1;
	}
	return ok ? 0 : dlb_fail(err, NULL, "convolution: shapes of input, weight and output do not fit");
}

static void geometry(struct conv_kernel *c)
{
	const struct dlb_conv_desc *d = &c->d;
	int n_sp = d->x.n_dims - 2;
	int64_t sx[DLB_MAX_DIMS], sy[DLB_MAX_DIMS];

	dlb_desc_strides(&d->x, sx);
	dlb_desc_strides(&d->y, sy);
	c->n = d->x.dim[0];
	c->g = d->groups;
	c->cg = d->w.dim[1];
	c->mg = d->w.dim[0] / d->groups;
	c->xn = sx[0], c->xc = sx[1], c->yn = sy[0], c->ym = sy[1];
	c->yp = sy[d->y.n_dims - 1];		/* positions are equally spaced in both layouts */
	c->positions = 1;
	c->taps = c->cg;
	for (int i = 0; i < 3; i++) {
		int j = i - (3 - n_sp);

		c->in[i] = j < 0 ? 1 : d->x.dim[j + 2];
		c->out[i] = j < 0 ? 1 : d->y.dim[j + 2];
		c->size[i] = j < 0 ? 1 : d->w.dim[j + 2];
		c->xs[i] = j < 0 ? 0 : sx[j + 2];
		c->step[i] = j < 0 ? 1 : d->stride[j];
		c->dil[i] = j < 0 ? 1 : d->dilation[j];
		c->pad[i] = j < 0 ? 0 : d->pad_begin[j];
		c->positions *= c->out[i];
		c->taps *= c->size[i];
	}
}

int dlb_cpu_conv(struct dlb_backend *b, const struct dlb_conv_desc *d, struct dlb_kernel **k, struct dlb_error *err)
{
	struct conv_kernel *c;
	bool f32 = d->x.dtype == DLB_F32;

	if (d->x.n_dims < 3 || d->x.n_dims > 5 || (!f32 && d->x.dtype != DLB_F64))
		return DLB_NO_KERNEL;
	if (check(d, err))
		return -1;
	c = dlb_xcalloc(1, sizeof *c);
	c->c = cpu_of(b);
	c->d = *d;
	geometry(c);
	if (c->positions > INT32_MAX || c->taps > INT32_MAX || c->mg > INT32_MAX) {
		free(c);
		return dlb_fail(err, NULL, "the convolution is too large: more than 2^31 output positions or taps");
	}
	c->k = (struct dlb_kernel){ .free = conv_free };
	if (f32 && dlb_desc_count(&d->x) && dlb_desc_count(&d->y) && prepare_dnnl(c) == 0) {
		c->k.run = run_dnnl;
		c->k.impl = "dnnl";
	} else {
		c->k.run = d->dir == DLB_CONV_FORWARD ? (f32 ? conv_forward_f32 : conv_forward_f64) :
			d->dir == DLB_CONV_GRAD_INPUT ? (f32 ? conv_grad_input_f32 : conv_grad_input_f64) :
			(f32 ? conv_grad_weight_f32 : conv_grad_weight_f64);
		c->k.impl = "blas";
		c->k.packed_bytes = 0;
		c->k.scratch_bytes = (size_t)(c->taps * c->positions) * dlb_dtype_bytes(d->x.dtype);
	}
	*k = &c->k;
	return 0;
}
