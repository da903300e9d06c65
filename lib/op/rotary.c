/* RotaryEmbedding rotates pairs of a head's first `rotary_embedding_dim` elements by an angle
 * that depends on the position,
 *     (a, b) -> (a cos - b sin, a sin + b cos).
 * A pair is elements j and j + half, or 2j and 2j + 1 (interleaved); the rest of the head is copied.
 * Cosines and sines are tables (positions, half) indexed by position_ids (batch, rows), or tensors
 * (batch, rows, half). A position outside the table gives zeros. The gradient of x is dy rotated back,
 * by our attribute "inverse". Our attribute "axesX" gives the dimensions of batch, heads, rows and width of
 * x and y (default: in this order); width is always dimension 3.
 * RotaryEmbeddingGradTables (dy, x, cos, position_ids) -> dcos, dsin.
 * J. Su et al., RoFormer: Enhanced Transformer with Rotary Position Embedding, 2021. */
#include "op/op_util.h"
#include "tensor/rotary.h"

#include <string.h>

enum { X, COS, SIN, IDS };			/* inputs; of the tables' gradient: dy, x, cos, ids */
static int read_x(const struct dlb_op_io *io, struct dlb_rotary_desc *r, struct dlb_error *err)
{
	const struct dlb_desc *x = &io->in[X];
	const int64_t n = dlb_io_int(io, "num_heads", 0);
	struct dlb_desc d = *x;
	int64_t axis[4] = { 0, 1, 2, 3 }, stride[DLB_MAX_DIMS];

	if (x->n_dims != 3 && x->n_dims != 4)
		return dlb_op_fail(io, err, "input has %d dimensions, should have 3 or 4", x->n_dims);
	if (x->n_dims == 3 && (n < 1 || x->dim[2] % n))
		return dlb_op_fail(io, err, "num_heads is %lld, should divide %lld", (long long)n,
				   (long long)x->dim[2]);
	if (x->n_dims == 3) {
		d = dlb_desc_make(x->dtype, 4, (int64_t[]){ x->dim[0], x->dim[1], n, x->dim[2] / n });
		axis[1] = 2;
		axis[2] = 1;
	} else if (dlb_io_head_axes(io, "axesX", axis, err)) {
		return -1;
	}
	dlb_desc_strides(&d, stride);
	r->batch = d.dim[axis[0]];
	r->heads = d.dim[axis[1]];
	r->rows = d.dim[axis[2]];
	r->width = d.dim[3];
	for (int i = 0; i < 3; i++)
		r->x[i] = stride[axis[i]];
	return 0;
}

static int parse(const struct dlb_op_io *io, struct dlb_rotary_desc *r, struct dlb_error *err)
{
	const struct dlb_desc *table = &io->in[io->cls->domain ? COS + 1 : COS];
	const int64_t turned = dlb_io_int(io, "rotary_embedding_dim", 0);
	char s[128];

	*r = (struct dlb_rotary_desc){ .dtype = io->in[X].dtype,
				       .inverse = dlb_io_int(io, "inverse", 0) != 0 };
	if (read_x(io, r, err))
		return -1;
	if (turned < 0 || turned > r->width || (turned ? turned : r->width) % 2)
		return dlb_op_fail(
			io, err,
			"rotary_embedding_dim is %lld; an even number up to the head's %lld is needed",
			(long long)turned, (long long)r->width);
	const bool interleaved = dlb_io_int(io, "interleaved", 0) != 0;

	r->half = (turned ? turned : r->width) / 2;
	r->step = interleaved ? 2 : 1;
	r->far = interleaved ? 1 : r->half;
	r->by_id = dlb_io_has(io, IDS);
	const bool fits = r->by_id ? table->n_dims == 2 && table->dim[1] == r->half :
		table->n_dims == 3 && table->dim[2] == r->half && table->dim[1] == r->rows &&
		(table->dim[0] == r->batch || table->dim[0] == 1);
	if (!fits)
		return dlb_op_fail(io, err, "the cosines are %s; [%s%lld] is needed",
				   dlb_desc_str(table, s, sizeof s), r->by_id ? "positions," : "batch,rows,",
				   (long long)r->half);
	r->positions = table->dim[0];
	r->one_batch = !r->by_id && table->dim[0] == 1;
	if (r->by_id && (io->in[IDS].dtype != DLB_I64 || dlb_desc_count(&io->in[IDS]) != r->batch * r->rows))
		return dlb_op_fail(io, err, "position_ids is %s; i64[%lld,%lld] is needed",
				   dlb_desc_str(&io->in[IDS], s, sizeof s), (long long)r->batch,
				   (long long)r->rows);
	return 0;
}

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct dlb_rotary_desc r;

	if (!dlb_dtype_is_float(io->in[X].dtype))
		return dlb_op_fail(io, err, "input is of type %s; a float is needed",
				   dlb_dtype_name(io->in[X].dtype));
	if (dlb_same_types(io, X, 3, err) || dlb_same_shapes(io, COS, SIN, err) || parse(io, &r, err))
		return -1;
	return dlb_infer_same(io, err);
}

#define TABLES(T) \
	static void tables_##T(const void *ctx, const struct dlb_run *run) \
	{ \
		const struct dlb_rotary_desc *r = ctx; \
		const size_t count = (size_t)(r->half * (r->by_id ? \
								 r->positions : \
								 (r->one_batch ? 1 : r->batch) * r->rows)); \
		T *dc = run->out[0], *ds = run->out[1]; \
		if (dc) \
			memset(dc, 0, count * sizeof *dc); \
		if (ds) \
			memset(ds, 0, count * sizeof *ds); \
		for (int64_t k = 0; k < r->batch * r->rows * r->heads; k++) { \
			const int64_t h = k % r->heads, i = k / r->heads % r->rows, \
				      b = k / r->heads / r->rows; \
			const int64_t e = dlb_rotary_entry(r, run->in[IDS], b, i); \
			const int64_t at = dlb_rotary_place(r, b, h, i); \
			const T *dy = (const T *)run->in[0] + at, *x = (const T *)run->in[1] + at; \
			for (int64_t j = 0, p = 0; j < r->half && e >= 0; j++, p += r->step) { \
				if (dc) \
					dc[e + j] += dy[p] * x[p] + dy[p + r->far] * x[p + r->far]; \
				if (ds) \
					ds[e + j] += dy[p + r->far] * x[p] - dy[p] * x[p + r->far]; \
			} \
		} \
	}
TABLES(float)
TABLES(double)
#undef TABLES

static int kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		  struct dlb_error *err)
{
	struct dlb_rotary_desc r;

	return parse(io, &r, err) ? -1 : be->ops->rotary(be, &r, k, err);
}

static int tables_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			 struct dlb_error *err)
{
	const enum dlb_dtype t = io->in[X].dtype;
	struct dlb_rotary_desc r;

	if (parse(io, &r, err))
		return -1;
	if (t != DLB_F32 && t != DLB_F64)
		return DLB_NO_KERNEL;
	return dlb_kernel_host(be, io,
			       &(struct dlb_host_call){ .fn = t == DLB_F32 ? tables_float : tables_double,
							.n_in = 4,
							.n_out = 2,
							.ctx = &r,
							.ctx_bytes = sizeof r },
			       k, err);
}

static int gradient(struct dlb_builder *b, struct dlb_error *err)
{
	static const char *const keep[] = { "num_heads", "rotary_embedding_dim", "interleaved", "axesX" };
	struct dlb_attr a[DLB_LEN(keep) + 1];
	const int n = dlb_keep_attrs(&b->io, keep, DLB_LEN(keep), a),
		  ids = dlb_io_has(&b->io, IDS) ? b->in[IDS] : -1;
	int out[2] = { -1, -1 };

	(void)err;
	if (b->need[X]) {
		a[n] = dlb_make_int("inverse", !dlb_io_int(&b->io, "inverse", 0));
		b->din[X] = dlb_b_op(b,
				     &(struct dlb_op_spec){ .type = "RotaryEmbedding",
							    .in = (int[]){ b->dout[0], b->in[COS], b->in[SIN],
								    ids }, .n_in = ids < 0 ? 3 : 4, .attr = a,
							    .n_attr = n + 1 }, NULL, b->in[X]);
		if (b->din[X] < 0)
			return -1;
	}
	if (!b->need[COS] && !b->need[SIN])
		return 0;
	dlb_b_op(b, &(struct dlb_op_spec){ .type = "RotaryEmbeddingGradTables",
					   .in = (int[]){ b->dout[0], b->in[X], b->in[COS], ids },
					   .n_in = ids < 0 ? 3 : 4, .n_out = 2, .attr = a, .n_attr = n }, out,
		 -1);
	if (out[0] < 0)
		return -1;
	if (b->need[COS])
		b->din[COS] = out[0];
	if (b->need[SIN])
		b->din[SIN] = out[1];
	return 0;
}

static int tables_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct dlb_rotary_desc r;

	if (dlb_same_types(io, 0, 3, err) || dlb_same_shapes(io, 0, 1, err) || parse(io, &r, err))
		return -1;
	for (int i = 0; i < io->n_out; i++)
		io->out[i] = io->in[2];
	return 0;
}

static double flops(const struct dlb_op_io *io)
{
	return 3.0 * (double)dlb_desc_count(&io->in[0]);
}

const struct dlb_op_class dlb_op_RotaryEmbedding = { .name = "RotaryEmbedding",
						     .n_in = { 3, 4 },
						     .n_out = { 1, 1 },
						     .work = "elementwise",
						     .infer = infer,
						     .flops = flops,
						     .gradient = gradient,
						     .kernel = kernel };
const struct dlb_op_class dlb_op_RotaryEmbeddingGradTables = { .name = "RotaryEmbeddingGradTables",
							       .domain = "dlb",
							       .n_in = { 3, 4 },
							       .n_out = { 1, 2 },
							       .flags = DLB_OP_ON_CPU,
							       .work = "reduce",
							       .infer = tables_infer,
							       .flops = flops,
							       .kernel = tables_kernel };
