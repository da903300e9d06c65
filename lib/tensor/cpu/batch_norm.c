/* Batch normalization: plain loops over rows of channels (channels-last, and 2-D tensors), or over
 * planes of one channel (row-major).
 *
 * Rows: mean and variance come from one pass over memory. Each block of BN_ROWS rows has its mean and sum
 * of squared deviations made while it lies in cache; blocks are joined in double (Chan, Golub, LeVeque,
 * "Updating formulae and a pairwise algorithm for computing sample variances", 1979). Few channels make
 * short rows, so neighbouring rows are taken together as one row of several times as many columns. */
#include <math.h>
#include <stdlib.h>

#include "tensor/cpu/bf16.h"
#include "tensor/cpu/narrow.h"
#include "tensor/cpu/real_math.h"

#define BN_ROWS 32
#define BN_COLUMNS 128			/* rows are joined up to about this many columns */

struct bn_kernel {
	struct dlb_kernel k;
	struct dlb_bn_desc d;
	int64_t n, c, s;		/* batch, channels, elements of a plane */
	int64_t rows, columns;		/* columns = c * joined rows */
	size_t part_bytes;		/* of one scratch array of `columns` doubles */
};

static double *part(const struct bn_kernel *b, const struct dlb_run *r, int i)
{
	return (double *)((char *)r->scratch + (size_t)i * b->part_bytes);
}

#define E T
#define X(e) (e)
#define Y(t) (t)
#include "tensor/cpu/f32.h"
#include "tensor/cpu/batch_norm_real.h"
#include "tensor/cpu/f64.h"
#include "tensor/cpu/batch_norm_real.h"
#undef E
#undef X
#undef Y
#define E uint16_t
#define X(e) bf16_widen(e)
#define Y(t) bf16_round(t)
#define ROWS_ONLY			/* planes of bf16 are widened */
#include "tensor/cpu/f32.h"
#undef S
#define S(name) S_PASTE(name, _bf16)
#include "tensor/cpu/batch_norm_real.h"

static int prepare_f32(struct dlb_backend *b, const void *ctx, int64_t rows, struct dlb_kernel **k, struct dlb_error *err)
{
	struct dlb_bn_desc d = *(const struct dlb_bn_desc *)ctx;

	(void)rows;
	d.x.dtype = DLB_F32;
	return dlb_cpu_batch_norm(b, &d, k, err);
}

static int bf16_by_f32(struct dlb_backend *b, const struct dlb_bn_desc *d, struct dlb_kernel **k, struct dlb_error *err)
{
	const bool grad = d->dir == DLB_BN_GRAD || d->dir == DLB_BN_GRAD_INFER;
	const struct narrow_operand x = { .dtype = DLB_BF16, .count = dlb_desc_count(&d->x) }, f32 = { .dtype = DLB_F32 };
	const struct narrow_desc n = { .rows = 1, .block = 1, .n_in = grad && d->relu ? 6 : 5, .n_out = grad ? 3 : d->dir == DLB_BN_TRAIN ? 5 : 1,
		.in = { x, grad ? x : f32, f32, f32, f32, x }, .out = { x, f32, f32, f32, f32 }, .prepare = prepare_f32, .ctx = d };

	return dlb_cpu_narrow(b, &n, k, err);
}

int dlb_cpu_batch_norm(struct dlb_backend *b, const struct dlb_bn_desc *d, struct dlb_kernel **k, struct dlb_error *err)
{
	struct bn_kernel *n;
	bool f32 = d->x.dtype == DLB_F32, bf16 = d->x.dtype == DLB_BF16, rows = d->x.n_dims == 2 || d->x.layout == DLB_CHANNELS_LAST;
	int64_t join = 1;

	if (d->x.n_dims < 2)
		return dlb_fail(err, NULL, "batch normalization needs at least 2 dimensions");
	if (!f32 && !bf16 && d->x.dtype != DLB_F64)
		return DLB_NO_KERNEL;
	n = dlb_xcalloc(1, sizeof *n);
	n->d = *d;
	n->n = d->x.dim[0];
	n->c = d->x.dim[1];
	n->s = 1;
	for (int i = 2; i < d->x.n_dims; i++)
		n->s *= d->x.dim[i];
	rows = rows || n->s == 1 || n->c == 1;
	if (bf16 && !rows) {
		free(n);
		return bf16_by_f32(b, d, k, err);
	}
	n->rows = n->n * n->s;
	for (int64_t j = 2; n->c && j * n->c <= BN_COLUMNS; j++)
		if (n->rows % j == 0)
			join = j;
	n->rows /= join;
	n->columns = n->c * join;
	n->part_bytes = cpu_round64((size_t)n->columns * sizeof(double));
	n->k = (struct dlb_kernel){ .free = dlb_cpu_kernel_free, .impl = "loop", .scratch_bytes = 6 * n->part_bytes };
	if (bf16)
		n->k.run = d->dir == DLB_BN_TRAIN ? bn_train_rows_bf16 : d->dir == DLB_BN_INFER ? bn_infer_rows_bf16 : bn_grad_rows_bf16;
	else if (d->dir == DLB_BN_TRAIN)
		n->k.run = rows ? (f32 ? bn_train_rows_f32 : bn_train_rows_f64) : (f32 ? bn_train_planes_f32 : bn_train_planes_f64);
	else if (d->dir == DLB_BN_INFER)
		n->k.run = rows ? (f32 ? bn_infer_rows_f32 : bn_infer_rows_f64) : (f32 ? bn_infer_planes_f32 : bn_infer_planes_f64);
	else
		n->k.run = rows ? (f32 ? bn_grad_rows_f32 : bn_grad_rows_f64) : (f32 ? bn_grad_planes_f32 : bn_grad_planes_f64);
	*k = &n->k;
	return 0;
}
