/* Convolution: forward, gradient of the input, gradient of the weight (and bias).
 *
 * float32 uses oneDNN. Activations have the layout of their descriptors (channels-last is fastest). Weights
 * are plain (M, C/groups, K...) outside; they are reordered into the primitive's layout and kept packed until
 * the run's weight version changes. A weight's gradient is reordered back to plain. 3x3 convolutions with
 * many channels use Winograd's algorithm if the library has it; it pays for moving the activations to a
 * blocked layout and back. float64, and cases for which oneDNN has only its reference loop, use im2col and a
 * matrix product (conv_real.h). bf16 activations use oneDNN too: weights (f32) are rounded when packed, and
 * their gradients are f32. Without a bf16 primitive, activations are converted to f32. The weight's gradient
 * of a depthwise convolution is a loop of our own (conv_depthwise.h), and that of a convolution of many
 * channels a product of OpenBLAS where it is faster (conv_patches.h). */
#include <cblas.h>
#include <stdlib.h>

#include "tensor/cpu/library.h"
#include "tensor/cpu/narrow.h"
#include "tensor/cpu/threads.h"

struct conv_kernel {
	struct dlb_kernel k;
	struct cpu *c;
	struct dlb_conv_desc d;
	/* oneDNN */
	struct cpu_prim prim;
	/* used if oneDNN has no primitive; before Relu */
	void (*loop)(struct dlb_kernel *k, const struct dlb_run *r);
	struct cpu_packed packed;	/* weight, for forward and gradient of the input */
	struct cpu_staged x, w, y;	/* w: gradient of the weight */
	dnnl_dims_t strides, dilates, begin, end;	/* oneDNN's convention: dilation 0 means none */
	/* im2col: always three spatial dimensions; missing ones are 1, first */
	int64_t n, g, cg, mg;		/* batch, groups, channels per group, outputs per group */
	int64_t in[3], out[3], size[3], step[3], dil[3], pad[3];
	/* strides of x (batch, channel, spatial) and of y (batch, channel, position) */
	int64_t xn, xc, xs[3], yn, ym, yp;
	/* positions: outputs per image and channel; taps: cg * kernel elements */
	int64_t positions, taps;
	int parts;			/* depthwise: number of threads */
};

/* Input coordinate of output o and kernel position k along dimension i; -1: outside. */
static inline int64_t conv_source(const struct conv_kernel *c, int i, int64_t o, int64_t k)
{
	int64_t x = o * c->step[i] - c->pad[i] + k * c->dil[i];

	return x < 0 || x >= c->in[i] ? -1 : x;
}

/* Elements between the rows of one group's y in memory: channels if plain, positions if channels-last. */
static int conv_row(const struct conv_kernel *c)
{
	return (int)(c->yp != 1 ? c->yp : c->ym > c->positions ? c->ym : c->positions);
}

#define GEMM dlb_cpu_sgemm
#include "tensor/cpu/f32.h"
#include "tensor/cpu/conv_real.h"
#include "tensor/cpu/conv_depthwise.h"
#undef GEMM
#define GEMM dlb_cpu_dgemm
#include "tensor/cpu/f64.h"
#include "tensor/cpu/conv_real.h"

static void run_dnnl(struct dlb_kernel *k, const struct dlb_run *r)
{
	struct conv_kernel *c = (struct conv_kernel *)k;
	char *scratch = r->scratch;

	if (c->d.dir == DLB_CONV_GRAD_WEIGHT) {
		void *const ptr[] = { dlb_cpu_stage_in(c->c, &c->y, r->in[0], scratch),
				      dlb_cpu_stage_in(c->c, &c->x, r->in[1], scratch),
				      dlb_cpu_stage(&c->w, r->out[0], scratch), r->out[1] };

		dlb_cpu_prim_run(c->c, &c->prim, ptr, scratch);
		dlb_cpu_stage_out(c->c, &c->w, r->out[0], scratch);
	} else {
		bool forwards = c->d.dir == DLB_CONV_FORWARD;
		struct cpu_staged *from = forwards ? &c->x : &c->y, *to = forwards ? &c->y : &c->x;
		void *w = dlb_cpu_packed_get(c->c, &c->packed, r->in[1], r->weight_version, scratch);
		void *const ptr[] = { dlb_cpu_stage_in(c->c, from, r->in[0], scratch), w,
				      dlb_cpu_stage(to, r->out[0], scratch),
				      c->d.has_bias ? r->in[2] : NULL };

		dlb_cpu_prim_run(c->c, &c->prim, ptr, scratch);
		dlb_cpu_stage_out(c->c, to, r->out[0], scratch);
	}
}

static void run_relu(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct conv_kernel *c = (struct conv_kernel *)k;
	const int64_t n = dlb_desc_count(&c->d.y);

	c->loop(k, r);
	for (int64_t i = 0; i < n; i++)
		if (c->d.x.dtype == DLB_F32)
			((float *)r->out[0])[i] = ((float *)r->out[0])[i] < 0 ? 0 : ((float *)r->out[0])[i];
		else
			((double *)r->out[0])[i] = ((double *)r->out[0])[i] < 0 ? 0 :
										  ((double *)r->out[0])[i];
}

static void release(struct conv_kernel *c)
{
	dlb_cpu_prim_release(&c->prim);
	dlb_cpu_prim_release(&c->x.move);
	dlb_cpu_prim_release(&c->w.move);
	dlb_cpu_prim_release(&c->y.move);
	dlb_cpu_packed_release(&c->packed);
}

static void conv_free(struct dlb_kernel *k)
{
	release((struct conv_kernel *)k);
	free(k);
}

static dnnl_data_type_t type_of(const struct dlb_desc *d)
{
	return d->dtype == DLB_BF16 ? dnnl_bf16 : dnnl_f32;
}

static void activation_md(dnnl_memory_desc_t *md, const struct dlb_desc *d, dnnl_data_type_t type,
			  bool channels_last)
{
	dnnl_dims_t dims = { 0 };

	static const dnnl_format_tag_t last[] = { dnnl_nwc, dnnl_nhwc, dnnl_ndhwc };
	static const dnnl_format_tag_t plain[] = { dnnl_ncw, dnnl_nchw, dnnl_ncdhw };

	for (int i = 0; i < d->n_dims; i++)
		dims[i] = d->dim[i];
	dnnl_memory_desc_init_by_tag(md, d->n_dims, dims, type,
				     channels_last ? last[d->n_dims - 3] : plain[d->n_dims - 3]);
}

static bool is_last(const struct dlb_desc *d, const struct dlb_desc *other)
{
	int64_t places = 1;

	for (int i = 2; i < d->n_dims; i++)
		places *= d->dim[i];
	if (d->dim[1] == 1 || places == 1)	/* both layouts have the same bytes: use the other side's */
		return other ? is_last(other, NULL) : true;
	return d->layout == DLB_CHANNELS_LAST;
}

/* Winograd's F(4x4, 3x3) (Lavin and Gray, CVPR 2016) needs a quarter of the multiplications, with a relative
 * error of 1e-6 instead of 2e-7, and channels in blocks of 16. With 32 channels it was measured twice as
 * fast; with fewer than about 32 tiles of 4x4, transforming the weights costs more than it saves. */
static bool winograd_pays(const struct conv_kernel *c)
{
	const struct dlb_conv_desc *d = &c->d;
	int64_t tiles = d->y.dim[0];

	if (!d->winograd || d->x.n_dims != 4 || c->g != 1 || c->cg % 16 || c->mg % 16 || c->cg < 32 ||
	    c->mg < 32)
		return false;
	for (int i = 0; i < 2; i++) {
		if (d->w.dim[2 + i] != 3 || d->stride[i] != 1 || d->dilation[i] != 1 || d->pad_begin[i] > 1 ||
		    d->pad_end[i] > 1 || d->y.dim[2 + i] < 7)
			return false;
		tiles *= (d->y.dim[2 + i] + 3) / 4;
	}
	return tiles >= 32;
}

/* Layouts of the operands of a convolution. */
struct conv_layouts { const dnnl_memory_desc_t *x, *w, *bias, *y; };

static int dnnl_descriptor(const struct conv_kernel *c, dnnl_alg_kind_t how, enum dlb_conv_dir dir,
			   const struct conv_layouts *l, dnnl_convolution_desc_t *od)
{
	const dnnl_memory_desc_t *x = l->x, *w = l->w, *bias = l->bias, *y = l->y;
	dnnl_status_t s;

	if (dir == DLB_CONV_FORWARD)
		s = dnnl_dilated_convolution_forward_desc_init(od, dnnl_forward_training, how, x, w, bias, y,
							       c->strides, c->dilates, c->begin, c->end);
	else if (dir == DLB_CONV_GRAD_INPUT)
		s = dnnl_dilated_convolution_backward_data_desc_init(od, how, x, w, y, c->strides, c->dilates,
								     c->begin, c->end);
	else
		s = dnnl_dilated_convolution_backward_weights_desc_init(od, how, x, w, bias, y, c->strides,
									c->dilates, c->begin, c->end);
	return s == dnnl_success ? 0 : DLB_NO_KERNEL;
}

/* Makes the primitive for `how`. l: the given layouts of x and y, and any layout of the weight; `grad`: the
 * layout of the weight's gradient. */
static int primitive(struct conv_kernel *c, dnnl_alg_kind_t how, const struct conv_layouts *l,
		     const dnnl_memory_desc_t *grad, dnnl_primitive_desc_t *pd)
{
	struct conv_layouts own = *l;
	dnnl_convolution_desc_t od, forward;
	dnnl_primitive_desc_t hint = NULL;
	int rc;

	*pd = NULL;
	if (c->d.dir != DLB_CONV_FORWARD) {
		rc = dnnl_descriptor(c, how, DLB_CONV_FORWARD, l, &forward);
		if (rc || dlb_cpu_pd(c->c, &forward, NULL, &hint))
			return DLB_NO_KERNEL;
	}
	if (c->d.dir == DLB_CONV_GRAD_WEIGHT)
		own.w = grad;
	rc = dnnl_descriptor(c, how, c->d.dir, &own, &od);
	if (rc == 0)
		rc = (c->d.relu ? dlb_cpu_pd_relu : dlb_cpu_pd)(c->c, &od, hint, pd);
	if (hint)
		dnnl_primitive_desc_destroy(hint);
	if (rc == 0)
		rc = dlb_cpu_prim(c->c, *pd, &c->prim);
	return rc;
}

/* Places the staged operands in scratch behind the primitives' scratchpads, which are used one at a time. */
static void lay_out_scratch(struct conv_kernel *c)
{
	struct cpu_staged *const staged[] = { &c->x, &c->w, &c->y };
	size_t most = c->prim.scratch_bytes;

	if (c->packed.reorder.scratch_bytes > most)
		most = c->packed.reorder.scratch_bytes;
	for (size_t i = 0; i < 3; i++)
		if (staged[i]->move.scratch_bytes > most)
			most = staged[i]->move.scratch_bytes;
	for (size_t i = 0; i < 3; i++) {
		if (!staged[i]->move.prim)
			continue;
		staged[i]->at = most = cpu_round64(most);
		most += staged[i]->bytes;
	}
	c->k.scratch_bytes = most;
}

#include "tensor/cpu/conv_patches.h"

static int prepare_dnnl(struct conv_kernel *c, dnnl_alg_kind_t how)
{
	static const dnnl_format_tag_t tags[2][3] = { { dnnl_oiw, dnnl_oihw, dnnl_oidhw },
						      { dnnl_goiw, dnnl_goihw, dnnl_goidhw } };
	int n_sp = c->d.x.n_dims - 2, grouped = c->g > 1, rc;
	bool forwards = c->d.dir == DLB_CONV_FORWARD, to_weight = c->d.dir == DLB_CONV_GRAD_WEIGHT;
	dnnl_dims_t dims = { c->g, c->mg, c->cg }, channels = { c->g * c->mg };
	dnnl_data_type_t type = type_of(&c->d.x);
	dnnl_memory_desc_t x, y, any, grad, plain, bias, w, want_x, want_y;
	dnnl_primitive_desc_t pd;
	const dnnl_memory_desc_t *b = c->d.has_bias ? &bias : NULL;

	for (int i = 0; i < n_sp; i++) {
		dims[3 + i] = c->d.w.dim[2 + i];
		c->strides[i] = c->d.stride[i];
		c->dilates[i] = c->d.dilation[i] - 1;
		c->begin[i] = c->d.pad_begin[i];
		c->end[i] = c->d.pad_end[i];
	}
	activation_md(&x, &c->d.x, type, is_last(&c->d.x, &c->d.y));
	activation_md(&y, &c->d.y, type, is_last(&c->d.y, &c->d.x));
	dnnl_memory_desc_init_by_tag(&plain, n_sp + 2 + grouped, dims + !grouped, dnnl_f32,
				     tags[grouped][n_sp - 1]);
	dnnl_memory_desc_init_by_tag(&any, n_sp + 2 + grouped, dims + !grouped, type, dnnl_format_tag_any);
	dnnl_memory_desc_init_by_tag(&grad, n_sp + 2 + grouped, dims + !grouped, dnnl_f32,
				     dnnl_format_tag_any);
	dnnl_memory_desc_init_by_tag(&bias, 1, channels, dnnl_f32, dnnl_a);
	want_x = x;
	want_y = y;
	if (how == dnnl_convolution_winograd) {
		dnnl_memory_desc_init_by_tag(&want_x, 4, x.dims, dnnl_f32, dnnl_nChw16c);
		dnnl_memory_desc_init_by_tag(&want_y, 4, y.dims, dnnl_f32, dnnl_nChw16c);
	}
	rc = primitive(c, how, &(struct conv_layouts){ &want_x, &any, b, &want_y }, &grad, &pd);
	if (rc)
		goto out;
	if (to_weight) {
		w = *dlb_cpu_md(pd, dnnl_query_diff_weights_md, 0);
		dlb_cpu_prim_arg(c->c, &c->prim, DNNL_ARG_DIFF_DST, &want_y);
		dlb_cpu_prim_arg(c->c, &c->prim, DNNL_ARG_SRC, &want_x);
		dlb_cpu_prim_arg(c->c, &c->prim, DNNL_ARG_DIFF_WEIGHTS, &w);
		if (b)
			dlb_cpu_prim_arg(c->c, &c->prim, DNNL_ARG_DIFF_BIAS, b);
		rc = dlb_cpu_staged(c->c, &w, &plain, &w, &c->w);
	} else {
		w = *dlb_cpu_md(pd, dnnl_query_weights_md, 0);
		dlb_cpu_prim_arg(c->c, &c->prim, forwards ? DNNL_ARG_SRC : DNNL_ARG_DIFF_DST,
				 forwards ? &want_x : &want_y);
		dlb_cpu_prim_arg(c->c, &c->prim, DNNL_ARG_WEIGHTS, &w);
		dlb_cpu_prim_arg(c->c, &c->prim, forwards ? DNNL_ARG_DST : DNNL_ARG_DIFF_SRC,
				 forwards ? &want_y : &want_x);
		if (forwards && b)
			dlb_cpu_prim_arg(c->c, &c->prim, DNNL_ARG_BIAS, b);
		rc = dlb_cpu_packed(c->c, &plain, &w, true, &c->packed);
		c->k.packed_bytes = c->packed.bytes;
	}
	if (rc == 0)
		rc = c->d.dir == DLB_CONV_GRAD_INPUT ? dlb_cpu_staged(c->c, &want_x, &x, &want_x, &c->x) :
			dlb_cpu_staged(c->c, &x, &want_x, &want_x, &c->x);
	if (rc == 0)
		rc = forwards ? dlb_cpu_staged(c->c, &want_y, &y, &want_y, &c->y) :
				dlb_cpu_staged(c->c, &y, &want_y, &want_y, &c->y);
	lay_out_scratch(c);
out:
	if (pd)
		dnnl_primitive_desc_destroy(pd);
	if (rc)
		release(c);
	return rc;
}

static int check(const struct dlb_conv_desc *d, struct dlb_error *err)
{
	int n_sp = d->x.n_dims - 2;
	bool ok = d->w.n_dims == d->x.n_dims && d->y.n_dims == d->x.n_dims && d->groups >= 1 &&
		d->y.dim[0] == d->x.dim[0] && d->w.dim[1] * d->groups == d->x.dim[1] &&
		d->w.dim[0] == d->y.dim[1] && d->w.dim[0] % d->groups == 0;

	for (int i = 0; ok && i < n_sp; i++) {
		int64_t span = d->x.dim[i + 2] + d->pad_begin[i] + d->pad_end[i] -
			       (d->w.dim[i + 2] - 1) * d->dilation[i] - 1;

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

/* For a group other than the first, x points to the group's first channel. */
void dlb_cpu_im2col(const struct dlb_conv_desc *d, int64_t image, const void *x, void *col, int64_t row)
{
	struct conv_kernel c = { .d = *d };

	geometry(&c);
	if (d->x.dtype == DLB_F64)
		im2col_f64(&c, (const double *)x + image * c.xn, col, row);
	else
		im2col_f32(&c, (const float *)x + image * c.xn, col, row);
}

static int prepare_f32(struct dlb_backend *b, const void *ctx, int64_t rows, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	struct dlb_conv_desc d = *(const struct dlb_conv_desc *)ctx;

	(void)rows;
	d.x.dtype = d.y.dtype = DLB_F32;
	return dlb_cpu_conv(b, &d, k, err);
}

static int bf16_by_f32(struct dlb_backend *b, const struct dlb_conv_desc *d, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	const struct narrow_operand x = { .dtype = DLB_BF16, .count = dlb_desc_count(&d->x) };
	const struct narrow_operand y = { .dtype = DLB_BF16, .count = dlb_desc_count(&d->y) },
				    f32 = { .dtype = DLB_F32 };
	const bool to_weight = d->dir == DLB_CONV_GRAD_WEIGHT, forwards = d->dir == DLB_CONV_FORWARD;
	const struct narrow_desc n = { .rows = 1,
				       .block = 1,
				       .n_in = forwards && d->has_bias ? 3 : 2,
				       .n_out = to_weight ? 2 : 1,
				       .in = { forwards ? x : y, to_weight ? x : f32, f32 },
				       .out = { forwards  ? y :
						to_weight ? f32 :
							    x,
						f32 },
				       .prepare = prepare_f32,
				       .ctx = d };

	return dlb_cpu_narrow(b, &n, k, err);
}

int dlb_cpu_conv(struct dlb_backend *b, const struct dlb_conv_desc *d, struct dlb_kernel **k,
		 struct dlb_error *err)
{
	struct conv_kernel *c;
	bool f32 = d->x.dtype == DLB_F32, bf16 = d->x.dtype == DLB_BF16;

	if (d->x.n_dims < 3 || d->x.n_dims > 5 || (!f32 && !bf16 && d->x.dtype != DLB_F64))
		return DLB_NO_KERNEL;
	if (check(d, err))
		return -1;
	c = dlb_xcalloc(1, sizeof *c);
	c->c = cpu_of(b);
	c->d = *d;
	geometry(c);
	if (c->positions > INT32_MAX || c->taps > INT32_MAX || c->mg > INT32_MAX) {
		free(c);
		return dlb_fail(err, NULL,
				"the convolution is too large: more than 2^31 output positions or taps");
	}
	c->k = (struct dlb_kernel){ .free = conv_free };
	bool some = (f32 || bf16) && dlb_desc_count(&d->x) && dlb_desc_count(&d->y);
	if (some && f32 && winograd_pays(c) && prepare_dnnl(c, dnnl_convolution_winograd) == 0) {
		c->k.run = run_dnnl;
		c->k.impl = "dnnl winograd";
	} else if (some && is_depthwise(c)) {
		c->parts = dlb_cpu_parts(b, c->n * c->positions * c->g * c->taps, dw_blocks(c));
		c->k.scratch_bytes = (size_t)c->parts * dw_scratch_bytes(c);
		c->k.run = run_depthwise;
		c->k.impl = "loop";
	} else if (some && patches_pay(c, b->n_threads) && prepare_patches(c) == 0) {
		c->k.run = run_patches;
		c->k.impl = "blas";
	} else if (some && prepare_dnnl(c, dnnl_convolution_direct) == 0) {
		c->k.run = run_dnnl;
		c->k.impl = "dnnl";
	} else if (bf16) {
		conv_free(&c->k);
		return bf16_by_f32(b, d, k, err);
	} else {
		c->k.run = d->dir == DLB_CONV_FORWARD ? (f32 ? conv_forward_f32 : conv_forward_f64) :
			d->dir == DLB_CONV_GRAD_INPUT ? (f32 ? conv_grad_input_f32 : conv_grad_input_f64) :
			(f32 ? conv_grad_weight_f32 : conv_grad_weight_f64);
		if (d->relu) {
			c->loop = c->k.run;
			c->k.run = run_relu;
		}
		c->k.impl = "blas";
		c->k.packed_bytes = 0;
		c->k.scratch_bytes = (size_t)(c->taps * c->positions) * dlb_dtype_bytes(d->x.dtype);
	}
	*k = &c->k;
	return 0;
}
