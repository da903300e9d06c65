/* Indices of non-zero elements: NonZero, and operators of dlb's whose output length is known before the run.
 *
 *     NonZero (x) -> (dims of x, n) i64            n: number of non-zero values, so x must be known
 *     PaddedNonZero (x) -> (dims of x, length)     columns from the n-th on repeat the n-th (0 if n = 0)
 *     CountedMask (x) -> (times * length) bool     the first times * n are true
 *
 * length is the number of elements of x / "divisor" (default 1); n must not be larger. A padding column
 * repeats a counted one, so values computed from the rows that it selects are as finite as those of the
 * repeated one. lib/graph/ragged.c adds these operators. */
#include "op/op_util.h"

static double flops(const struct dlb_op_io *io)
{
	return (double)dlb_desc_count(&io->in[0]);
}

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	int64_t n = 0;

	if (!io->value || !io->value[0])
		return dlb_op_fail(io, err,
				   "the input must be constant: the output's shape depends on its values");
	for (int64_t i = 0; i < dlb_desc_count(&io->in[0]); i++)
		n += dlb_value_real(io->value[0], io->in[0].dtype, i) != 0;
	io->out[0] = dlb_desc_make(DLB_I64, 2, (int64_t[]){ io->in[0].n_dims, n });
	return 0;
}

/* Writes the indices of the non-zero elements of d[0] into columns of d[1], as many as fit; returns the
 * number of non-zero elements. */
static int64_t find(const struct dlb_desc *d, const void *x, int64_t *out)
{
	const int64_t n = d[1].dim[1];
	int64_t found = 0;

	for (int64_t i = 0; i < dlb_desc_count(d) && found < n; i++) {
		int64_t rest = i;

		if (dlb_value_real(x, d->dtype, i) == 0)
			continue;
		for (int k = d->n_dims - 1; k >= 0; k--) {
			out[k * n + found] = rest % d->dim[k];
			rest /= d->dim[k];
		}
		found++;
	}
	return found;
}

static void run(const void *ctx, const struct dlb_run *r)
{
	find(ctx, r->in[0], r->out[0]);
}

static void padded_run(const void *ctx, const struct dlb_run *r)
{
	const struct dlb_desc *d = ctx;
	const int64_t n = d[1].dim[1], found = find(d, r->in[0], r->out[0]);
	int64_t *out = r->out[0];

	for (int k = 0; k < d->n_dims; k++)
		for (int64_t i = found; i < n; i++)
			out[k * n + i] = found ? out[k * n + found - 1] : 0;
}

static int kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		  struct dlb_error *err)
{
	const struct dlb_desc d[2] = { io->in[0], io->out[0] };		/* of the input and of the output */

	return be->ops->host(be, io->cls->domain ? padded_run : run, d, sizeof d, 0, k, err);
}

/* The number of columns; -1 with err. */
static int64_t length(const struct dlb_op_io *io, struct dlb_error *err)
{
	const int64_t count = dlb_desc_count(&io->in[0]), divisor = dlb_io_int(io, "divisor", 1);

	if (io->in[0].n_dims < 1 || divisor < 1 || count % divisor)
		return dlb_op_fail(
			io, err,
			"%lld values do not make a list of a whole number of columns, divided by %lld",
			(long long)count, (long long)divisor);
	return count / divisor;
}

static int padded_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	const int64_t n = length(io, err);

	if (n < 0)
		return -1;
	io->out[0] = dlb_desc_make(DLB_I64, 2, (int64_t[]){ io->in[0].n_dims, n });
	return 0;
}

/* -- CountedMask -- */

static int mask_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	const int64_t n = length(io, err), times = dlb_io_int(io, "times", 1);

	if (n < 0)
		return -1;
	if (times < 1 || times > INT64_MAX / (n + 1))
		return dlb_op_fail(io, err, "attribute 'times' is %lld", (long long)times);
	io->out[0] = dlb_desc_make(DLB_BOOL, 1, (int64_t[]){ times * n });
	return 0;
}

struct counted { enum dlb_dtype type; int64_t count, times, length; };

static void mask_run(const void *ctx, const struct dlb_run *r)
{
	const struct counted *c = ctx;
	int64_t n = 0;

	for (int64_t i = 0; i < c->count; i++)
		n += dlb_value_real(r->in[0], c->type, i) != 0;
	for (int64_t i = 0; i < c->length; i++)
		dlb_value_set(r->out[0], DLB_BOOL, i, i < n * c->times);
}

static int mask_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	const struct counted c = { io->in[0].dtype, dlb_desc_count(&io->in[0]), dlb_io_int(io, "times", 1),
				   io->out[0].dim[0] };

	return be->ops->host(be, mask_run, &c, sizeof c, 0, k, err);
}

const struct dlb_op_class dlb_op_NonZero = { .name = "NonZero",
					     .n_in = { 1, 1 },
					     .n_out = { 1, 1 },
					     .flags = DLB_OP_ON_CPU,
					     .work = "other",
					     .infer = infer,
					     .flops = flops,
					     .kernel = kernel };
const struct dlb_op_class dlb_op_PaddedNonZero = { .name = "PaddedNonZero",
						   .domain = "dlb",
						   .n_in = { 1, 1 },
						   .n_out = { 1, 1 },
						   .flags = DLB_OP_ON_CPU,
						   .work = "other",
						   .infer = padded_infer,
						   .flops = flops,
						   .kernel = kernel };
const struct dlb_op_class dlb_op_CountedMask = { .name = "CountedMask",
						 .domain = "dlb",
						 .n_in = { 1, 1 },
						 .n_out = { 1, 1 },
						 .flags = DLB_OP_ON_CPU,
						 .work = "other",
						 .infer = mask_infer,
						 .flops = flops,
						 .kernel = mask_kernel };
