/* Batch normalization: plain loops over rows of channels (channels-last, and 2-D tensors), or over
 * planes of one channel (row-major).
 *
 * Rows: mean and variance take one pass over memory. For each block of BN_ROWS rows, mean and sum of squared
 * deviations are computed while it is in cache; blocks are combined in double (Chan, Golub, LeVeque,
 * "Updating formulae and a pairwise algorithm for computing sample variances", 1979). Few channels make short
 * rows, so neighbouring rows are joined into one row of several times as many columns.
 *
 * Halves: the moments of several batches must combine by plain sums, so they are exchanged as N, the sum and
 * the sum of squares about 0, in double:   sum = N mean,  squares = N (var + mean^2);   mean = sum / N, var =
 * squares / N - mean^2. This textbook formula loses about log2(1 + mean^2 / var) of 53 bits (Chan, Golub,
 * LeVeque, "Algorithms for computing the sample variance", The American Statistician 37(3), 1983, table 1),
 * but only when a few batches are combined, since each batch computes its variance about its own mean: with
 * |mean| = 1000 std, 1e-10 of var is lost. */
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
	int64_t n, c, s;		/* batch, channels, elements per plane */
	int64_t rows, columns;		/* columns = c * joined rows */
	size_t part_bytes;		/* one scratch array of `columns` doubles */
};

static double *part(const struct bn_kernel *b, const struct dlb_run *r, int i)
{
	return (double *)((char *)r->scratch + (size_t)i * b->part_bytes);
}

static void bn_set_moments(const struct bn_kernel *b, double *sums, int64_t c, double n, double mean,
			   double var)
{
	sums[0] = n;
	sums[1 + c] = n * mean;
	sums[1 + b->c + c] = n * (var + mean * mean);
}

/* Returns the biased variance of channel c; *mean: its mean. */
static double bn_variance(const struct bn_kernel *b, const double *sums, int64_t c, double *mean)
{
	double n = sums[0], var;

	*mean = n > 0 ? sums[1 + c] / n : 0;
	var = n > 0 ? sums[1 + b->c + c] / n - *mean * *mean : 0;
	return var < 0 ? 0 : var;		/* keeps NaN */
}

static void bn_set_grad_sums(const struct bn_kernel *b, double *sums, int64_t c, double n, double sum,
			     double dot)
{
	sums[0] = n;
	sums[1 + c] = sums[1 + 2 * b->c + c] = sum;
	sums[1 + b->c + c] = sums[1 + 3 * b->c + c] = dot;
}

/* Sums of one channel, of dy and of dy times the deviation of x from its mean: over the n elements of all
 * batches, and over this batch's own. */
struct bn_grad_sums { double n, sum, dot, own_sum, own_dot; };

static struct bn_grad_sums bn_get_grad_sums(const struct bn_kernel *b, const double *sums, int64_t c)
{
	return (struct bn_grad_sums){ .n = sums[0],
				      .sum = sums[1 + c],
				      .dot = sums[1 + b->c + c],
				      .own_sum = sums[1 + 2 * b->c + c],
				      .own_dot = sums[1 + 3 * b->c + c] };
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
#define ROWS_ONLY			/* planes of bf16 are converted to f32 */
#include "tensor/cpu/f32.h"
#undef S
#define S(name) S_PASTE(name, _bf16)
#include "tensor/cpu/batch_norm_real.h"

static int prepare_f32(struct dlb_backend *b, const void *ctx, int64_t rows, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	struct dlb_bn_desc d = *(const struct dlb_bn_desc *)ctx;

	(void)rows;
	d.x.dtype = DLB_F32;
	return dlb_cpu_batch_norm(b, &d, k, err);
}

static int bf16_by_f32(struct dlb_backend *b, const struct dlb_bn_desc *d, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	const bool grad = d->dir == DLB_BN_GRAD || d->dir == DLB_BN_GRAD_INFER;
	const struct narrow_operand x = { .dtype = DLB_BF16, .count = dlb_desc_count(&d->x) },
				    f32 = { .dtype = DLB_F32 }, sums = { .dtype = DLB_F64 };
	const int n_in = grad && d->relu ? 6 : 5;
	struct narrow_desc n = { .rows = 1,
				 .block = 1,
				 .n_in = n_in,
				 .n_out = grad                   ? 3 :
					  d->dir == DLB_BN_TRAIN ? 5 :
								   1,
				 .in = { x, grad ? x : f32, f32, f32, f32, x },
				 .out = { x, f32, f32, f32, f32 },
				 .prepare = prepare_f32,
				 .ctx = d };

	if (d->half == DLB_BN_SUMS) {
		n.n_out = 1;
		n.out[0] = sums;
	} else if (d->half == DLB_BN_REST) {
		n.in[n.n_in++] = sums;
	}
	return dlb_cpu_narrow(b, &n, k, err);
}

int dlb_cpu_batch_norm(struct dlb_backend *b, const struct dlb_bn_desc *d, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	struct bn_kernel *n;
	bool f32 = d->x.dtype == DLB_F32, bf16 = d->x.dtype == DLB_BF16,
	     rows = d->x.n_dims == 2 || d->x.layout == DLB_CHANNELS_LAST;
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
	n->k = (struct dlb_kernel){ .free = dlb_cpu_kernel_free,
				    .impl = "loop",
				    .scratch_bytes = 6 * n->part_bytes };
	if (bf16)
		n->k.run = d->dir == DLB_BN_TRAIN ? bn_train_rows_bf16 :
			   d->dir == DLB_BN_INFER ? bn_infer_rows_bf16 :
						    bn_grad_rows_bf16;
	else if (d->dir == DLB_BN_TRAIN)
		n->k.run = rows ? (f32 ? bn_train_rows_f32 : bn_train_rows_f64) :
				  (f32 ? bn_train_planes_f32 : bn_train_planes_f64);
	else if (d->dir == DLB_BN_INFER)
		n->k.run = rows ? (f32 ? bn_infer_rows_f32 : bn_infer_rows_f64) :
				  (f32 ? bn_infer_planes_f32 : bn_infer_planes_f64);
	else
		n->k.run = rows ? (f32 ? bn_grad_rows_f32 : bn_grad_rows_f64) :
				  (f32 ? bn_grad_planes_f32 : bn_grad_planes_f64);
	*k = &n->k;
	return 0;
}
