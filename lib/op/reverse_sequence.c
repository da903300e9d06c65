/* ReverseSequence: reverses the first sequence_lens[n] steps of sample n and keeps the rest. It is its own
 * inverse, so the gradient is the same reversal of dy. */
#include "op/op_util.h"

#include <stdlib.h>

struct reversal { int64_t first, second, inner; bool time_second; };

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
				.time_second = time == 1 };
	return 0;
}

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct reversal r = { 0 };

	return parse(io, &r, err) ? -1 : dlb_infer_same(io, err);
}

/* Constants for the pieces (first, second): the index of each; the index of the piece that replaces it,
 * without the part that depends on the length; its time. */
static void tabulate(struct dlb_chain *c, const struct reversal *r, const struct dlb_desc *pieces, int *own,
		     int *reversed, int *time)
{
	const int64_t n = r->first * r->second, step = r->time_second ? 1 : r->second;
	int64_t *table = dlb_xcalloc(3 * (size_t)n + 1, sizeof *table);

	for (int64_t i = 0; i < n; i++) {
		const int64_t t = r->time_second ? i % r->second : i / r->second;

		table[i] = i;
		table[n + i] = i - (2 * t + 1) * step;
		table[2 * n + i] = t;
	}
	*own = dlb_chain_constant(c, table, pieces);
	*reversed = dlb_chain_constant(c, table + n, pieces);
	*time = dlb_chain_constant(c, table + 2 * n, pieces);
	free(table);
}

/* Computes from the lengths, for each piece (i, j) of y, the index of the piece of x that is copied to it. */
static int kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		  struct dlb_error *err)
{
	struct reversal r = { 0 };

	if (parse(io, &r, err))
		return -1;
	const int64_t steps = r.time_second ? r.second : r.first, step = r.time_second ? 1 : r.second,
		      samples = r.time_second ? r.first : r.second;
	const struct dlb_desc one = dlb_desc_scalar(DLB_I64), plain = dlb_desc_1d(DLB_I64, samples),
			      len = dlb_desc_make(DLB_I64, 2, r.time_second ? (int64_t[]){ samples, 1 } :
									      (int64_t[]){ 1, samples }),
			      piece = dlb_desc_make(DLB_I64, 2, (int64_t[]){ r.first, r.second });
	struct dlb_desc fits = len, is = piece;
	const struct dlb_index_desc d = {
		.dtype = io->in[0].dtype, .index = DLB_I64, .fn = DLB_INDEX_TAKE, .nd = true, .depth = 1,
		.x = dlb_desc_make(io->in[0].dtype, 2, (int64_t[]){ r.first * r.second, r.inner }),
		.at = dlb_desc_make(DLB_I64, 2, (int64_t[]){ r.first * r.second, 1 }), .width = r.inner
	};
	struct dlb_chain *c = dlb_chain_new(be, err);
	struct dlb_kernel *take = NULL;
	int own, reversed, time, rc;

	fits.dtype = is.dtype = DLB_BOOL;
	tabulate(c, &r, &piece, &own, &reversed, &time);
	const int lens = dlb_chain_temp(c, &len), scaled = dlb_chain_temp(c, &len), ok = dlb_chain_temp(c, &fits),
		  before = dlb_chain_temp(c, &is), both = dlb_chain_temp(c, &is), from = dlb_chain_temp(c, &piece),
		  index = dlb_chain_temp(c, &piece), most = dlb_chain_constant(c, &steps, &one),
		  by = dlb_chain_constant(c, &step, &one);

	dlb_chain_cast(c, DLB_IN(1), &io->in[1], lens, &plain);
#define MAP2(fn, a, da, b, db, to, dto) \
	dlb_chain_map(c, DLB_MAP(fn, 2), DLB_REFS(a, b), (const struct dlb_desc *const[]){ da, db }, to, dto)
	MAP2(less_or_equal, lens, &len, most, &one, ok, &fits);
	MAP2(less, time, &piece, lens, &len, before, &is);
	MAP2(and, before, &is, ok, &fits, both, &is);
	MAP2(mul, lens, &len, by, &one, scaled, &len);
	MAP2(add, reversed, &piece, scaled, &len, from, &piece);
#undef MAP2
	dlb_chain_map(c, DLB_MAP(where, 3), DLB_REFS(both, from, own),
		      (const struct dlb_desc *const[]){ &is, &piece, &piece }, index, &piece);
	rc = be->ops->index(be, &d, &take, err);
	dlb_chain_add(c, rc, take, DLB_REFS(DLB_IN(0), index), 2, DLB_REFS(DLB_OUT(0)), 1);
	return dlb_chain_finish(c, k);
}

static int gradient(struct dlb_builder *b, struct dlb_error *err)
{
	(void)err;
	return dlb_b_gradient(b, DLB_SPEC_ATTR("ReverseSequence", b->io.attr, b->io.n_attr, b->dout[0],
					       b->in[1]));
}

const struct dlb_op_class dlb_op_ReverseSequence = { .name = "ReverseSequence",
						     .n_in = { 2, 2 },
						     .n_out = { 1, 1 },
						     .work = "move",
						     .infer = infer,
						     .gradient = gradient,
						     .kernel = kernel };
