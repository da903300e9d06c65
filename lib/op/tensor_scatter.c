/* TensorScatter writes new rows into a cache of keys or values. Along `axis`, which is not the first one, row
 * j of `update` goes to row write_indices[sample] + j of the cache (modulo its length in mode circular; rows
 * beyond the end are dropped).
 * TensorScatterGrad (dy, update, write_indices) -> dpast, which is dy with zeros in the written rows, and
 * dupdate, which is dy's written rows. */
#include "op/op_util.h"

#include <string.h>

enum { PAST, UPDATE, INDICES };
struct scatter {
	int64_t samples, outer, rows, fresh;	/* outer: per sample; rows: of the cache; fresh: to write */
	size_t row_bytes;
	bool circular;
};

static int parse(const struct dlb_op_io *io, struct scatter *s, struct dlb_error *err)
{
	const struct dlb_desc *past = &io->in[PAST], *update = &io->in[UPDATE];
	const char *mode = dlb_io_str(io, "mode", "linear");
	const int axis = dlb_axis(io, dlb_io_int(io, "axis", -2), past->n_dims, err);
	char a[128], b[128];

	if (axis < 0)
		return -1;
	if (axis == 0)
		return dlb_op_fail(io, err, "axis 0 is that of the samples");
	if (strcmp(mode, "linear") != 0 && strcmp(mode, "circular") != 0)
		return dlb_op_fail(io, err, "mode '%s'; linear and circular are possible", mode);
	bool fits = update->n_dims == past->n_dims && update->dim[axis] <= past->dim[axis];
	for (int i = 0; i < past->n_dims && fits; i++)
		fits = i == axis || past->dim[i] == update->dim[i];
	if (!fits)
		return dlb_op_fail(io, err, "an update of %s does not fit along axis %d of %s",
				   dlb_desc_str(update, a, sizeof a), axis, dlb_desc_str(past, b, sizeof b));
	*s = (struct scatter){ .samples = past->dim[0],
			       .outer = dlb_desc_range(past, 1, axis),
			       .rows = past->dim[axis],
			       .fresh = update->dim[axis],
			       .circular = *mode == 'c',
			       .row_bytes = (size_t)dlb_desc_range(past, axis + 1, past->n_dims) *
					    dlb_dtype_bytes(past->dtype) };
	if (dlb_io_has(io, INDICES) && io->in[INDICES].dtype != DLB_I64)
		return dlb_op_fail(io, err, "write_indices is of type %s, should be i64",
				   dlb_dtype_name(io->in[INDICES].dtype));
	return dlb_io_has(io, INDICES) ? dlb_has_count(io, INDICES, s->samples, err) : 0;
}

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct scatter s;

	if (dlb_same_types(io, PAST, 2, err) || parse(io, &s, err))
		return -1;
	return dlb_infer_same(io, err);
}

static int grad_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	if (infer(io, err))
		return -1;
	for (int i = 0; i < io->n_out; i++)
		io->out[i] = io->in[i];
	return 0;
}

/* The row of the cache for new row j of sample b; -1: none. */
static int64_t target(const struct scatter *s, const int64_t *indices, int64_t b, int64_t j)
{
	const int64_t from = indices ? indices[b] : 0;

	if (s->circular)
		return ((from % s->rows + s->rows) % s->rows + j) % s->rows;
	return from < 0 || from > s->rows - 1 - j ? -1 : from + j;
}

/* Overwrites rows of the cache by the rows of `update`, or by zeros if that is NULL. taken (may be NULL)
 * receives the former rows, and zeros for rows beyond the end. */
static void write_rows(const struct scatter *s, const struct dlb_run *r, char *cache, const char *update,
		       char *taken)
{
	for (int64_t k = 0; k < s->samples * s->outer; k++)
		for (int64_t j = 0; j < s->fresh; j++) {
			const int64_t to = target(s, r->in[INDICES], k / s->outer, j);
			const size_t at = (size_t)(k * s->fresh + j) * s->row_bytes;

			if (to < 0 && taken)
				memset(taken + at, 0, s->row_bytes);
			if (to < 0)
				continue;
			char *row = cache + (size_t)(k * s->rows + to) * s->row_bytes;
			if (taken)
				memcpy(taken + at, row, s->row_bytes);
			if (update)
				memcpy(row, update + at, s->row_bytes);
			else
				memset(row, 0, s->row_bytes);
		}
}

static void run(const void *ctx, const struct dlb_run *r)
{
	const struct scatter *s = ctx;

	if (r->out[0] != r->in[PAST])
		memcpy(r->out[0], r->in[PAST], (size_t)(s->samples * s->outer * s->rows) * s->row_bytes);
	write_rows(s, r, r->out[0], r->in[UPDATE], NULL);
}

/* dupdate has the update's shape; dpast is in scratch if it has no reader. */
static void grad_run(const void *ctx, const struct dlb_run *r)
{
	const struct scatter *s = ctx;
	char *dpast = r->out[0] ? r->out[0] : r->scratch;

	memcpy(dpast, r->in[0], (size_t)(s->samples * s->outer * s->rows) * s->row_bytes);
	write_rows(s, r, dpast, NULL, r->out[1]);
}

static int kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		  struct dlb_error *err)
{
	const bool backward = io->cls->domain != NULL;
	struct scatter s;

	if (parse(io, &s, err))
		return -1;
	const struct dlb_host_call h = { .fn = backward ? grad_run : run,
					 .n_in = 3,
					 .n_out = backward ? 2 : 1,
					 .ctx = &s,
					 .ctx_bytes = sizeof s,
					 .scratch_bytes = backward ? dlb_desc_bytes(&io->in[0]) : 0 };
	return dlb_kernel_host(be, io, &h, k, err);
}

static int gradient(struct dlb_builder *b, struct dlb_error *err)
{
	const int indices = dlb_io_has(&b->io, INDICES) ? b->in[INDICES] : -1;
	int out[2] = { -1, -1 };

	(void)err;
	dlb_b_op(b, &(struct dlb_op_spec){ .type = "TensorScatterGrad",
					   .in = (int[]){ b->dout[0], b->in[UPDATE], indices },
					   .n_in = indices < 0 ? 2 : 3, .n_out = 2, .attr = b->io.attr,
					   .n_attr = b->io.n_attr }, out, b->in[PAST]);
	if (out[0] < 0)
		return -1;
	for (int i = 0; i < 2; i++)
		if (b->need[i])
			b->din[i] = out[i];
	return 0;
}

const struct dlb_op_class dlb_op_TensorScatter = { .name = "TensorScatter",
						   .n_in = { 2, 3 },
						   .n_out = { 1, 1 },
						   .flags = DLB_OP_ON_CPU,
						   .overwrite = 1,
						   .work = "move",
						   .infer = infer,
						   .flops = dlb_no_flops,
						   .gradient = gradient,
						   .kernel = kernel };
const struct dlb_op_class dlb_op_TensorScatterGrad = { .name = "TensorScatterGrad",
						       .domain = "dlb",
						       .n_in = { 2, 3 },
						       .n_out = { 1, 2 },
						       .flags = DLB_OP_ON_CPU,
						       .work = "move",
						       .infer = grad_infer,
						       .flops = dlb_no_flops,
						       .kernel = kernel };
