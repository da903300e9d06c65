/* ReverseSequence: reverses the first sequence_lens[n] steps of sample n and keeps the rest. It is its own
 * inverse, so the gradient is the same reversal of dy. */
#include "op/op_util.h"

#include <string.h>

struct reversal { int64_t first, second, inner; bool time_second; size_t size; enum dlb_dtype len_type; };

/* The batch and time axes are 0 and 1, or 1 and 0. */
static int parse(const struct dlb_op_io *io, struct reversal *r, struct dlb_error *err)
{
	const int64_t batch = dlb_io_int(io, "batch_axis", 1), time = dlb_io_int(io, "time_axis", 0);
	const struct dlb_desc *x = &io->in[0], *lens = &io->in[1];

	if (x->n_dims < 2 || batch < 0 || batch > 1 || time != 1 - batch)
		return dlb_op_fail(io, err, "the batch and the time axis must be 0 and 1");
	if (!dlb_dtype_is_int(lens->dtype) || lens->n_dims != 1 || lens->dim[0] != x->dim[batch])
		return dlb_op_fail(io, err, "sequence_lens must be %lld integers", (long long)x->dim[batch]);
	*r = (struct reversal){ .first = x->dim[0],
				.second = x->dim[1],
				.inner = dlb_desc_range(x, 2, x->n_dims),
				.time_second = time == 1,
				.size = dlb_dtype_bytes(x->dtype),
				.len_type = lens->dtype };
	return 0;
}

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct reversal r;

	return parse(io, &r, err) ? -1 : dlb_infer_same(io, err);
}

static void run(const void *ctx, const struct dlb_run *run)
{
	const struct reversal *r = ctx;
	const size_t piece = (size_t)r->inner * r->size;
	const int64_t steps = r->time_second ? r->second : r->first;

	for (int64_t i = 0; i < r->first; i++)
		for (int64_t j = 0; j < r->second; j++) {
			int64_t n = r->time_second ? i : j, t = r->time_second ? j : i;
			int64_t len = dlb_value_int(run->in[1], r->len_type, n);
			int64_t from = len <= steps && t < len ? len - 1 - t : t;
			int64_t at = r->time_second ? n * r->second + from : from * r->second + n;

			memcpy((char *)run->out[0] + (size_t)(i * r->second + j) * piece,
			       (const char *)run->in[0] + (size_t)at * piece, piece);
		}
}

static int kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		  struct dlb_error *err)
{
	struct reversal r;

	if (parse(io, &r, err))
		return -1;
	return be->ops->host(be, run, &r, sizeof r, 0, k, err);
}

static int gradient(struct dlb_builder *b, struct dlb_error *err)
{
	(void)err;
	if (!b->need[0])
		return 0;
	b->din[0] = dlb_b_op(b,
			     DLB_SPEC_ATTR("ReverseSequence", b->io.attr, b->io.n_attr, b->dout[0], b->in[1]),
			     NULL, b->in[0]);
	return b->din[0] < 0 ? -1 : 0;
}

const struct dlb_op_class dlb_op_ReverseSequence = { .name = "ReverseSequence",
						     .n_in = { 2, 2 },
						     .n_out = { 1, 1 },
						     .work = "move",
						     .infer = infer,
						     .gradient = gradient,
						     .kernel = kernel };
