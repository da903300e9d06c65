/* Table entries for kernels that are written for f32 and f64: descriptors with bf16 run in blocks through the
 * f32 kernel (narrow.h), all others go straight to it. */
#include <stdlib.h>

#include "tensor/cpu/narrow.h"

static struct dlb_desc as_f32(const struct dlb_desc *d)
{
	struct dlb_desc f = *d;

	f.dtype = d->dtype == DLB_BF16 ? DLB_F32 : d->dtype;
	return f;
}

static int64_t at_least_1(int64_t n)
{
	return n > 0 ? n : 1;
}

/* ---- map: blocks of the outermost loop after merging ---- */

static int prepare_map(struct dlb_backend *b, const void *ctx, int64_t rows, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	struct dlb_map_desc d = *(const struct dlb_map_desc *)ctx;

	d.out = as_f32(&d.out);
	d.out.dim[0] = rows;
	for (int i = 0; i < d.n_in; i++) {
		d.in[i] = as_f32(&d.in[i]);
		if (d.in[i].dim[0] != 1)
			d.in[i].dim[0] = rows;
	}
	return dlb_cpu_map(b, &d, k, err);
}

/* Strides of the operands over the result's loops; false if one does not
 * broadcast (the f32 kernel reports it). */
static bool map_nest(const struct dlb_map_desc *d, struct dlb_nest *n)
{
	*n = (struct dlb_nest){ .n_dims = d->out.n_dims, .n_operands = d->n_in + 1 };
	for (int i = 0; i < d->out.n_dims; i++)
		n->dim[i] = d->out.dim[i];
	dlb_desc_strides(&d->out, n->stride[0]);
	for (int o = 0; o < d->n_in; o++) {
		const struct dlb_desc *in = &d->in[o];
		const int shift = d->out.n_dims - in->n_dims;
		int64_t stride[DLB_MAX_DIMS];

		dlb_desc_strides(in, stride);
		for (int i = 0; i < in->n_dims; i++) {
			if (shift < 0 || (in->dim[i] != 1 && in->dim[i] != d->out.dim[shift + i]))
				return false;
			n->stride[o + 1][shift + i] = in->dim[i] == 1 ? 0 : stride[i];
		}
	}
	dlb_nest_simplify(n);
	return true;
}

/* The same map over merged loops: all row-major, dimensions of 1 where an operand is repeated. False if an
 * operand's order in memory differs from the result's. */
static bool flat_map(const struct dlb_map_desc *d, const struct dlb_nest *n, struct dlb_map_desc *flat)
{
	*flat = *d;
	for (int o = 0; o <= d->n_in; o++) {
		struct dlb_desc *f = o ? &flat->in[o - 1] : &flat->out;
		int64_t step = 1;

		*f = (struct dlb_desc){ .dtype = f->dtype, .n_dims = n->n_dims };
		for (int i = n->n_dims - 1; i >= 0; i--) {
			f->dim[i] = n->stride[o][i] ? n->dim[i] : 1;
			if (n->stride[o][i] && n->stride[o][i] != step)
				return false;
			step *= f->dim[i];
		}
		if (!n->n_dims)
			*f = (struct dlb_desc){ .dtype = f->dtype, .n_dims = 1, .dim = { 1 } };
	}
	return true;
}

/* Prepares the whole map at once, for any strides. */
static int prepare_whole_map(struct dlb_backend *b, const void *ctx, int64_t rows, struct dlb_kernel **k,
			     struct dlb_error *err)
{
	struct dlb_map_desc d = *(const struct dlb_map_desc *)ctx;

	(void)rows;
	d.out = as_f32(&d.out);
	for (int i = 0; i < d.n_in; i++)
		d.in[i] = as_f32(&d.in[i]);
	return dlb_cpu_map(b, &d, k, err);
}

static int whole_map(struct dlb_backend *b, const struct dlb_map_desc *d, struct dlb_kernel **k,
		     struct dlb_error *err)
{
	struct narrow_desc n = {
		.rows = 1, .block = 1, .n_in = d->n_in, .n_out = 1, .prepare = prepare_whole_map, .ctx = d
	};

	n.out[0] = (struct narrow_operand){ .dtype = d->out.dtype, .count = dlb_desc_count(&d->out) };
	for (int i = 0; i < d->n_in; i++)
		n.in[i] = (struct narrow_operand){ .dtype = d->in[i].dtype,
						   .count = dlb_desc_count(&d->in[i]) };
	return dlb_cpu_narrow(b, &n, k, err);
}

int dlb_cpu_mixed_map(struct dlb_backend *b, const struct dlb_map_desc *d, struct dlb_kernel **k,
		      struct dlb_error *err)
{
	struct narrow_desc n = { .n_in = d->n_in, .n_out = 1, .prepare = prepare_map };
	struct dlb_map_desc flat;
	struct dlb_nest nest;
	bool any = d->out.dtype == DLB_BF16;
	int64_t per_row = 0;

	for (int i = 0; i < d->n_in; i++)
		any |= d->in[i].dtype == DLB_BF16;
	if (!any)
		return dlb_cpu_map(b, d, k, err);
	if (!dlb_desc_count(&d->out) || !map_nest(d, &nest) || !flat_map(d, &nest, &flat))
		return whole_map(b, d, k, err);
	n.ctx = &flat;
	n.rows = flat.out.dim[0];
	for (int o = 0; o <= d->n_in; o++) {
		const struct dlb_desc *f = o ? &flat.in[o - 1] : &flat.out;
		const bool repeated = o && f->dim[0] == 1 && n.rows != 1;
		const int64_t count = dlb_desc_count(f);

		*(o ? &n.in[o - 1] : &n.out[0]) = (struct narrow_operand){ .dtype = f->dtype, .count = count,
			.per_row = repeated ? 0 : count / f->dim[0] };
		per_row += repeated ? 0 : count / f->dim[0];
	}
	n.block = dlb_cpu_narrow_block(n.rows, per_row, NARROW_L1);
	return dlb_cpu_narrow(b, &n, k, err);
}

/* ---- softmax: rows ---- */

static int prepare_softmax(struct dlb_backend *b, const void *ctx, int64_t rows, struct dlb_kernel **k,
			   struct dlb_error *err)
{
	struct dlb_softmax_desc d = *(const struct dlb_softmax_desc *)ctx;

	d.dtype = DLB_F32;
	d.outer = rows;
	return dlb_cpu_softmax(b, &d, k, err);
}

int dlb_cpu_mixed_softmax(struct dlb_backend *b, const struct dlb_softmax_desc *d, struct dlb_kernel **k,
			  struct dlb_error *err)
{
	const int64_t row = d->axis * d->inner;
	struct narrow_desc n = { .rows = at_least_1(d->outer),
				 .n_in = d->backward ? 2 : 1,
				 .n_out = 1,
				 .prepare = prepare_softmax,
				 .ctx = d };

	if (d->dtype != DLB_BF16)
		return dlb_cpu_softmax(b, d, k, err);
	if (!d->outer || !row)
		return DLB_NO_KERNEL;
	n.in[0] = n.in[1] = n.out[0] = (struct narrow_operand){ .dtype = DLB_BF16, .per_row = row };
	n.block = dlb_cpu_narrow_block(n.rows, (n.n_in + 1) * row, NARROW_L1);
	return dlb_cpu_narrow(b, &n, k, err);
}

/* ---- norm: rows, or samples if scale and bias run along the row ---- */

static int64_t rows_together(const struct dlb_norm_desc *d)
{
	return d->channels > 0 ? d->channels / (d->row_channels ? d->row_channels : 1) : 1;
}

static int prepare_norm(struct dlb_backend *b, const void *ctx, int64_t rows, struct dlb_kernel **k,
			struct dlb_error *err)
{
	struct dlb_norm_desc d = *(const struct dlb_norm_desc *)ctx;

	d.dtype = DLB_F32;
	d.rows = rows * rows_together(&d);
	return dlb_cpu_norm(b, &d, k, err);
}

int dlb_cpu_mixed_norm(struct dlb_backend *b, const struct dlb_norm_desc *d, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	const int64_t n_rows = rows_together(d), width = n_rows * d->width,
		      entries = d->channels > 0 ? d->channels : d->width;
	const struct narrow_operand x = { .dtype = DLB_BF16, .per_row = width },
				    stat = { .dtype = DLB_F32, .per_row = n_rows };
	const struct narrow_operand param = { .dtype = DLB_F32, .count = entries },
				    sum = { .dtype = DLB_F32, .count = entries, .sum = true };
	struct narrow_desc n = { .rows = d->rows / n_rows,
				 .n_in = d->backward ? 5 : 3,
				 .n_out = 3,
				 .prepare = prepare_norm,
				 .ctx = d };

	if (d->dtype != DLB_BF16)
		return dlb_cpu_norm(b, d, k, err);
	if (!d->rows || !width)
		return DLB_NO_KERNEL;
	memcpy(n.in,
	       d->backward ? (struct narrow_operand[5]){ x, x, param, stat, stat } :
			     (struct narrow_operand[5]){ x, param, param },
	       5 * sizeof x);
	memcpy(n.out,
	       d->backward ? (struct narrow_operand[3]){ x, sum, sum } :
			     (struct narrow_operand[3]){ x, stat, stat },
	       3 * sizeof x);
	n.block = dlb_cpu_narrow_block(n.rows, (d->backward ? 3 : 2) * width,
				       d->backward ? NARROW_L2 : NARROW_L1);
	return dlb_cpu_narrow(b, &n, k, err);
}

/* ---- dropout: samples ---- */

static int prepare_dropout(struct dlb_backend *b, const void *ctx, int64_t rows, struct dlb_kernel **k,
			   struct dlb_error *err)
{
	struct dlb_dropout_desc d = *(const struct dlb_dropout_desc *)ctx;

	d.dtype = DLB_F32;
	d.samples = rows;
	return dlb_cpu_dropout(b, &d, k, err);
}

int dlb_cpu_mixed_dropout(struct dlb_backend *b, const struct dlb_dropout_desc *d, struct dlb_kernel **k,
			  struct dlb_error *err)
{
	const struct narrow_operand x = { .dtype = DLB_BF16, .per_row = d->per_sample };
	/* strips of whole samples are counted from the first sample, so all samples form one block */
	const int64_t block = d->part >= d->per_sample && d->part ? at_least_1(d->samples)
		: dlb_cpu_narrow_block(at_least_1(d->samples), 2 * d->per_sample, NARROW_L1);
	const struct narrow_desc n = { .rows = d->samples,
				       .block = block,
				       .n_in = 1,
				       .n_out = 2,
				       .in = { x },
				       .out = { x, { .dtype = DLB_BOOL, .per_row = d->per_sample } },
				       .prepare = prepare_dropout,
				       .ctx = d };

	if (d->dtype != DLB_BF16)
		return dlb_cpu_dropout(b, d, k, err);
	if (!d->samples || !d->per_sample)
		return DLB_NO_KERNEL;
	return dlb_cpu_narrow(b, &n, k, err);
}

/* ---- pool: images ---- */

static int prepare_pool(struct dlb_backend *b, const void *ctx, int64_t rows, struct dlb_kernel **k,
			struct dlb_error *err)
{
	struct dlb_pool_desc d = *(const struct dlb_pool_desc *)ctx;

	d.x = as_f32(&d.x);
	d.y = as_f32(&d.y);
	d.x.dim[0] = d.y.dim[0] = rows;
	return dlb_cpu_pool(b, &d, k, err);
}

int dlb_cpu_mixed_pool(struct dlb_backend *b, const struct dlb_pool_desc *d, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	const int64_t images = d->x.n_dims > 0 ? d->x.dim[0] : 0;
	struct narrow_operand x, y, pos;
	struct narrow_desc n = {
		.rows = images, .block = 1, .n_in = 1, .n_out = 1, .prepare = prepare_pool, .ctx = d
	};

	if (d->x.dtype != DLB_BF16)
		return dlb_cpu_pool(b, d, k, err);
	if (!dlb_desc_count(&d->x) || !dlb_desc_count(&d->y))
		return DLB_NO_KERNEL;
	x = (struct narrow_operand){ .dtype = DLB_BF16, .per_row = dlb_desc_count(&d->x) / images };
	y = (struct narrow_operand){ .dtype = DLB_BF16, .per_row = dlb_desc_count(&d->y) / images };
	pos = (struct narrow_operand){ .dtype = d->pos, .per_row = y.per_row };
	n.block = dlb_cpu_narrow_block(images, x.per_row + y.per_row, NARROW_L2);
	n.in[0] = d->backward ? y : x;
	n.out[0] = d->backward ? x : y;
	n.in[1] = n.out[1] = pos;
	n.n_in = d->backward && d->max ? 2 : 1;
	n.n_out = !d->backward && d->max ? 2 : 1;
	return dlb_cpu_narrow(b, &n, k, err);
}

/* ---- reduce: sums of bf16 are f32, or rounded once ---- */

static int prepare_reduce(struct dlb_backend *b, const void *ctx, int64_t rows, struct dlb_kernel **k,
			  struct dlb_error *err)
{
	struct dlb_reduce_desc d = *(const struct dlb_reduce_desc *)ctx;

	d.in = as_f32(&d.in);
	d.out = as_f32(&d.out);
	d.in.dim[0] = rows;
	if (!(d.axes & 1))
		d.out.dim[0] = rows;
	return dlb_cpu_reduce(b, &d, k, err);
}

/* Merges neighbouring dimensions that are all reduced or all kept. */
static struct dlb_reduce_desc merged(const struct dlb_reduce_desc *d)
{
	struct dlb_reduce_desc m = *d;
	int n = 0;

	if (d->in.layout != DLB_PLAIN || d->out.layout != DLB_PLAIN || !d->in.n_dims)
		return m;
	m.axes = 0;
	for (int i = 0; i < d->in.n_dims; i++) {
		const unsigned bit = d->axes >> i & 1;

		if (n && (m.axes >> (n - 1) & 1) == bit) {
			m.in.dim[n - 1] *= d->in.dim[i];
			m.out.dim[n - 1] *= d->out.dim[i];
			continue;
		}
		m.in.dim[n] = d->in.dim[i];
		m.out.dim[n] = d->out.dim[i];
		m.axes |= bit << n++;
	}
	m.in.n_dims = m.out.n_dims = n;
	return m;
}

int dlb_cpu_mixed_reduce(struct dlb_backend *b, const struct dlb_reduce_desc *d, struct dlb_kernel **k,
			 struct dlb_error *err)
{
	struct narrow_desc n = { .rows = 1, .block = 1, .n_in = 1, .n_out = 1, .prepare = prepare_reduce };
	struct dlb_reduce_desc m;

	if (d->in.dtype != DLB_BF16)
		return dlb_cpu_reduce(b, d, k, err);
	if (!d->in.n_dims || !dlb_desc_count(&d->in) || d->out.n_dims != d->in.n_dims)
		return DLB_NO_KERNEL;
	m = merged(d);
	const int64_t rows = m.in.dim[0], in = dlb_desc_count(&m.in) / rows, out = dlb_desc_count(&m.out);
	const bool over_rows = m.axes & 1;
	n.ctx = &m;
	n.rows = rows;
	n.in[0] = (struct narrow_operand){ .dtype = DLB_BF16, .per_row = in };
	n.out[0] = (struct narrow_operand){ .dtype = m.out.dtype,
					    .count = out,
					    .per_row = over_rows ? 0 : out / rows };
	n.block = dlb_cpu_narrow_block(rows, in, NARROW_L2);
	if (over_rows && d->fn == DLB_REDUCE_FN_SUM && m.out.dtype == DLB_F32)
		n.out[0].sum = true;
	else if (over_rows)
		n.block = rows;
	return dlb_cpu_narrow(b, &n, k, err);
}
