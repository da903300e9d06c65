/* Trilu: the upper or lower triangle of the last two dimensions. Its gradient is the same triangle of dy. */
#include "op/op_util.h"

#include <stdlib.h>

static double flops(const struct dlb_op_io *io)
{
	return (double)dlb_desc_count(&io->in[0]);
}

/* -- Trilu -- */

struct triangle { enum dlb_dtype type; int64_t n, rows, cols, k; bool upper; };

static int trilu_parse(const struct dlb_op_io *io, struct triangle *t, struct dlb_error *err)
{
	const struct dlb_desc *x = &io->in[0];
	int64_t k = 0;

	if (x->n_dims < 2)
		return dlb_op_fail(io, err, "input has %d dimensions, at least 2 are needed", x->n_dims);
	if (dlb_io_ints(io, 1, "k", &k, 1, err) < 0)
		return -1;
	*t = (struct triangle){ .type = x->dtype,
				.n = dlb_desc_range(x, 0, x->n_dims - 2),
				.rows = x->dim[x->n_dims - 2],
				.cols = x->dim[x->n_dims - 1],
				.upper = dlb_io_int(io, "upper", 1) != 0 };
	t->k = k < -t->rows ? -t->rows : k > t->cols ? t->cols : k;
	return 0;
}

static int trilu_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct triangle t = { 0 };

	if (trilu_parse(io, &t, err))
		return -1;
	return dlb_infer_same(io, err);
}

/* A mask chooses the elements, which are copied as integers of the same size, whatever their type. */
static int trilu_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			struct dlb_error *err)
{
	static const enum dlb_dtype of_size[] = { [1] = DLB_I8, [2] = DLB_I16, [4] = DLB_I32, [8] = DLB_I64 };
	const uint64_t zero = 0;
	struct dlb_chain *c;
	struct triangle t = { 0 };
	bool *mask;

	if (trilu_parse(io, &t, err))
		return -1;
	const enum dlb_dtype type = of_size[dlb_dtype_bytes(t.type)];
	const struct dlb_desc x = dlb_desc_make(type, 3, (int64_t[]){ t.n, t.rows, t.cols }),
			      kept = dlb_desc_make(DLB_BOOL, 2, (int64_t[]){ t.rows, t.cols }),
			      one = dlb_desc_scalar(type);

	mask = dlb_xcalloc((size_t)(t.rows * t.cols) + 1, sizeof *mask);
	for (int64_t i = 0; i < t.rows; i++)
		for (int64_t j = 0; j < t.cols; j++)
			mask[i * t.cols + j] = t.upper ? j - i >= t.k : j - i <= t.k;
	c = dlb_chain_new(be, err);
	const int a = dlb_chain_constant(c, mask, &kept), none = dlb_chain_constant(c, &zero, &one);

	dlb_chain_map(c, DLB_MAP(where, 3), DLB_REFS(a, DLB_IN(0), none),
		      (const struct dlb_desc *const[]){ &kept, &x, &one }, DLB_OUT(0), &x);
	free(mask);
	return dlb_chain_finish(c, k);
}

static int trilu_gradient(struct dlb_builder *b, struct dlb_error *err)
{
	int in[2] = { b->dout[0], b->io.n_in > 1 ? b->in[1] : -1 };

	(void)err;
	return dlb_b_gradient(b, &(struct dlb_op_spec){ .type = "Trilu",
							.in = in,
							.n_in = in[1] < 0 ? 1 : 2,
							.attr = b->io.attr,
							.n_attr = b->io.n_attr });
}

const struct dlb_op_class dlb_op_Trilu = { .name = "Trilu",
					   .n_in = { 1, 2 },
					   .n_out = { 1, 1 },
					   .work = "move",
					   .infer = trilu_infer,
					   .flops = flops,
					   .gradient = trilu_gradient,
					   .kernel = trilu_kernel };
