/* NextToken (domain dlb): the labels of a language model, of shape (..., T), from the
 * tokens at the same positions:
 *     y[..., i] = x[..., i + 1],  y[..., T - 1] = "ignore_index" (default -100), which the loss ignores
 * The logits keep their T positions, so no tensor of their size is sliced or padded. */
#include "op/op_util.h"

#include <string.h>

struct shift { enum dlb_dtype type; int64_t rows, n, fill; };

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	if (io->in[0].dtype != DLB_I64 && io->in[0].dtype != DLB_I32)
		return dlb_op_fail(io, err, "labels are of type %s; i32 or i64 is needed",
				   dlb_dtype_name(io->in[0].dtype));
	if (io->in[0].n_dims < 1)
		return dlb_op_fail(io, err, "labels without a dimension of positions");
	return dlb_infer_same(io, err);
}

static void run(const void *ctx, const struct dlb_run *r)
{
	const struct shift *s = ctx;
	const size_t size = dlb_dtype_bytes(s->type);

	for (int64_t i = 0; i < s->rows && s->n; i++) {
		const char *from = (const char *)r->in[0] + (size_t)(i * s->n) * size;
		char *to = (char *)r->out[0] + (size_t)(i * s->n) * size;

		memcpy(to, from + size, (size_t)(s->n - 1) * size);
		dlb_value_set(to, s->type, s->n - 1, (double)s->fill);
	}
}

static int kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		  struct dlb_error *err)
{
	const struct dlb_desc *x = &io->in[0];
	const struct shift s = { .type = x->dtype,
				 .rows = dlb_desc_range(x, 0, x->n_dims - 1),
				 .n = x->dim[x->n_dims - 1],
				 .fill = dlb_io_int(io, "ignore_index", -100) };

	return be->ops->host(be, run, &s, sizeof s, 0, k, err);
}

const struct dlb_op_class dlb_op_NextToken = { .name = "NextToken",
					       .domain = "dlb",
					       .n_in = { 1, 1 },
					       .n_out = { 1, 1 },
					       .work = "move",
					       .infer = infer,
					       .kernel = kernel };
