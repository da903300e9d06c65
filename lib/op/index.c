/* Elements by indices: GatherElements, ScatterElements, GatherND, ScatterND. All run on the host.
 *
 * Each is a list of pairs (element of the table, element of the updates or output); they differ in how
 * a pair is found. Gradients use the same pairs reversed: GatherElementsGrad, GatherNDGrad (dy,
 * indices, shape) add to zeros; ScatterElements and ScatterND give x dy (zeros where it was
 * overwritten), and gather dy for updates. */
#include "op/op_util.h"

#include <math.h>
#include <string.h>

enum how { SET, ADD, MULTIPLY, LEAST, MOST, N_HOWS };
static const char *const how_name[N_HOWS] = { "none", "add", "mul", "min", "max" };

struct index {
	enum dlb_dtype type, index;
	enum how how;
	int axis, batch, depth;		/* batch, depth: of the ND operators */
	struct dlb_desc x, at;		/* table, indices */
	int64_t width;			/* elements per pair (ND) */
	bool zeros;			/* write zeros instead of updates */
};

static double no_flops(const struct dlb_op_io *io)
{
	(void)io;
	return 0;
}

static bool is_nd(const struct dlb_op_io *io)
{
	return strstr(io->cls->name, "ND") != NULL;
}

/* Checks the indices, input i, for table x. */
static int parse(const struct dlb_op_io *io, const struct dlb_desc *x, int i, struct index *d,
		 struct dlb_error *err)
{
	const struct dlb_desc *at = &io->in[i];
	const char *how = dlb_io_str(io, "reduction", "none");

	*d = (struct index){ .type = x->dtype, .index = at->dtype, .x = *x, .at = *at, .width = 1 };
	if (at->dtype != DLB_I64 && at->dtype != DLB_I32)
		return dlb_op_fail(io, err, "indices are of type %s", dlb_dtype_name(at->dtype));
	while (d->how < N_HOWS && strcmp(how, how_name[d->how]))
		d->how++;
	if (d->how == N_HOWS)
		return dlb_op_fail(io, err, "attribute 'reduction' is '%s', not none, add, mul, min or max",
				   how);
	if (!is_nd(io)) {
		d->axis = dlb_axis(io, dlb_io_int(io, "axis", 0), x->n_dims, err);
		if (d->axis < 0)
			return -1;
		for (int k = 0; k < x->n_dims; k++)
			if (at->n_dims != x->n_dims || (k != d->axis && at->dim[k] > x->dim[k]))
				return dlb_op_fail(io, err, "the indices' shape does not fit the input's");
		return 0;
	}
	d->batch = (int)dlb_io_int(io, "batch_dims", 0);
	d->depth = at->n_dims ? (int)at->dim[at->n_dims - 1] : 0;
	if (at->n_dims < 1 || d->batch < 0 || d->batch >= at->n_dims || d->depth < 0 ||
	    d->batch + d->depth > x->n_dims)
		return dlb_op_fail(io, err, "indices of depth %d, batch_dims %d do not fit %d dimensions",
				   d->depth, d->batch, x->n_dims);
	for (int k = 0; k < d->batch; k++)
		if (at->dim[k] != x->dim[k])
			return dlb_op_fail(io, err, "input and indices differ in batch dimension %d", k);
	d->width = dlb_desc_range(x, d->batch + d->depth, x->n_dims);
	return 0;
}

/* The shape of the gathered output, or of the updates. */
static struct dlb_desc picked(const struct dlb_op_io *io, const struct index *d)
{
	struct dlb_desc y = dlb_desc_make(d->type, d->at.n_dims, d->at.dim);

	if (is_nd(io)) {
		y.n_dims--;
		for (int k = d->batch + d->depth; k < d->x.n_dims && y.n_dims < DLB_MAX_DIMS; k++)
			y.dim[y.n_dims++] = d->x.dim[k];
	}
	return y;
}

static int64_t number(const struct index *d, const void *at, int64_t i)
{
	return d->index == DLB_I64 ? ((const int64_t *)at)[i] : ((const int32_t *)at)[i];
}

static int64_t wrap(int64_t i, int64_t n)
{
	i = i < 0 ? i + n : i;
	return i >= 0 && i < n ? i : -1;
}

/* The table element of pair p; -1 if an index is out of range. */
static int64_t element(const struct index *d, const void *at, int64_t p, bool nd)
{
	int64_t where = 0, step = 1, rest = p;

	if (nd) {
		int64_t batches = dlb_desc_range(&d->at, 0, d->batch),
			tuples = dlb_desc_range(&d->at, 0, d->at.n_dims - 1);

		where = batches ? p / (tuples / batches) : 0;		/* index of the batch */
		for (int k = 0; k < d->depth; k++) {
			int64_t i = wrap(number(d, at, p * d->depth + k), d->x.dim[d->batch + k]);

			if (i < 0)
				return -1;
			where = where * d->x.dim[d->batch + k] + i;
		}
		return where * d->width;
	}
	for (int k = d->x.n_dims - 1; k >= 0; k--) {
		int64_t i = rest % d->at.dim[k];

		rest /= d->at.dim[k];
		if (k == d->axis)
			i = wrap(number(d, at, p), d->x.dim[k]);
		if (i < 0)
			return -1;
		where += i * step;
		step *= d->x.dim[k];
	}
	return where;
}

static int64_t pairs(const struct index *d, bool nd)
{
	return nd ? dlb_desc_range(&d->at, 0, d->at.n_dims - 1) : dlb_desc_count(&d->at);
}

static void gather(const struct index *d, const struct dlb_run *r, bool nd)
{
	size_t bytes = (size_t)d->width * dlb_dtype_bytes(d->type), size = dlb_dtype_bytes(d->type);

	for (int64_t p = 0, n = pairs(d, nd); p < n; p++) {
		int64_t i = element(d, r->in[1], p, nd);
		char *to = (char *)r->out[0] + (size_t)p * bytes;

		if (i < 0)
			memset(to, 0, bytes);
		else
			memcpy(to, (const char *)r->in[0] + (size_t)i * size, bytes);
	}
}

static double reduced(enum how how, double a, double b)
{
	switch (how) {
	case ADD: return a + b;
	case MULTIPLY: return a * b;
	case LEAST: return a < b || isnan(a) ? a : b;
	default: return a > b || isnan(a) ? a : b;
	}
}

/* Sums and products wrap around. */
static int64_t reduced_int(enum how how, int64_t a, int64_t b)
{
	switch (how) {
	case ADD: return (int64_t)((uint64_t)a + (uint64_t)b);
	case MULTIPLY: return (int64_t)((uint64_t)a * (uint64_t)b);
	case LEAST: return a < b ? a : b;
	default: return a > b ? a : b;
	}
}

static void put(const struct index *d, void *to, int64_t i, const void *from, int64_t j)
{
	size_t size = dlb_dtype_bytes(d->type);

	if (d->zeros)
		memset((char *)to + (size_t)i * size, 0, size);
	else if (d->how == SET)
		memcpy((char *)to + (size_t)i * size, (const char *)from + (size_t)j * size, size);
	else if (d->type == DLB_F32 && d->how == ADD)
		((float *)to)[i] += ((const float *)from)[j];
	else if (dlb_dtype_is_int(d->type) && d->type != DLB_U64)
		dlb_value_set_int(to, d->type, i,
				  reduced_int(d->how, dlb_value_int(to, d->type, i),
					      dlb_value_int(from, d->type, j)));
	else
		dlb_value_set(to, d->type, i,
			      reduced(d->how, dlb_value_real(to, d->type, i),
				      dlb_value_real(from, d->type, j)));
}

/* Writes the updates into `out`, which is initialised, in the order of the pairs. */
static void scatter(const struct index *d, void *out, const void *at, const void *updates, bool nd)
{
	for (int64_t p = 0, n = pairs(d, nd); p < n; p++) {
		int64_t i = element(d, at, p, nd);

		for (int64_t j = 0; i >= 0 && j < d->width; j++)
			put(d, out, i + j, updates, p * d->width + j);
	}
}

#define RUNS(name, nd) \
	static void gather_##name(const void *ctx, const struct dlb_run *r) { gather(ctx, r, nd); } \
	static void scatter_##name(const void *ctx, const struct dlb_run *r) \
	{ \
		const struct index *d = ctx; \
		memcpy(r->out[0], r->in[0], dlb_desc_bytes(&d->x)); \
		scatter(d, r->out[0], r->in[1], d->zeros ? NULL : r->in[2], nd); \
	} \
	static void spread_##name(const void *ctx, const struct dlb_run *r)	/* (dy, indices) into zeros */ \
	{ \
		const struct index *d = ctx; \
		memset(r->out[0], 0, dlb_desc_bytes(&d->x)); \
		scatter(d, r->out[0], r->in[1], r->in[0], nd); \
	}
RUNS(elements, false)
RUNS(nd, true)
#undef RUNS

/* -- gathers -- */

static int gather_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct index d;

	if (parse(io, &io->in[0], 1, &d, err))
		return -1;
	if (is_nd(io) && d.at.n_dims - 1 + d.x.n_dims - d.batch - d.depth > DLB_MAX_DIMS)
		return dlb_op_fail(io, err, "more than %d dimensions", DLB_MAX_DIMS);
	io->out[0] = picked(io, &d);
	return 0;
}

static int gather_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			 struct dlb_error *err)
{
	struct index d;

	if (parse(io, &io->in[0], 1, &d, err))
		return -1;
	return be->ops->host(be, is_nd(io) ? gather_nd : gather_elements, &d, sizeof d, 0, k, err);
}

static int gather_gradient(struct dlb_builder *b, struct dlb_error *err)
{
	const char *type = is_nd(&b->io) ? "GatherNDGrad" : "GatherElementsGrad";

	(void)err;
	if (!b->need[0])
		return 0;
	b->din[0] = dlb_b_op(b, DLB_SPEC_ATTR(type, b->io.attr, b->io.n_attr, b->dout[0], b->in[1],
					      dlb_b_const_shape(b, b->in[0])), NULL, b->in[0]);
	return b->din[0] < 0 ? -1 : 0;
}

static int spread_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct dlb_desc y;
	struct index d;

	if (dlb_io_shape(io, 2, &io->out[0], err) || parse(io, &io->out[0], 1, &d, err))
		return -1;
	y = picked(io, &d);
	if (!dlb_desc_same_shape(&y, &io->in[0]))
		return dlb_op_fail(io, err, "the gradient's shape is not that of the elements taken");
	return 0;
}

static int spread_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			 struct dlb_error *err)
{
	struct index d;

	if (parse(io, &io->out[0], 1, &d, err))
		return -1;
	d.how = ADD;
	return be->ops->host(be, is_nd(io) ? spread_nd : spread_elements, &d, sizeof d, 0, k, err);
}

/* -- scatters; our attribute "zeros": indexed elements become 0, and there are no updates -- */

static int scatter_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct dlb_desc u;
	struct index d;

	if (parse(io, &io->in[0], 1, &d, err))
		return -1;
	u = picked(io, &d);
	if (io->n_in > 2 && (!dlb_desc_same_shape(&u, &io->in[2]) || io->in[2].dtype != d.type))
		return dlb_op_fail(io, err, "the updates' shape or type does not fit the indices");
	return dlb_infer_same(io, err);
}

static int scatter_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			  struct dlb_error *err)
{
	struct index d;

	if (parse(io, &io->in[0], 1, &d, err))
		return -1;
	d.zeros = io->n_in == 2;
	return be->ops->host(be, is_nd(io) ? scatter_nd : scatter_elements, &d, sizeof d, 0, k, err);
}

static int scatter_gradient(struct dlb_builder *b, struct dlb_error *err)
{
	bool nd = is_nd(&b->io);
	const char *how = dlb_io_str(&b->io, "reduction", "none");
	struct dlb_attr axis = dlb_make_int("axis", dlb_io_int(&b->io, "axis", 0));

	if (strcmp(how, "none") && strcmp(how, "add"))
		return dlb_op_fail(&b->io, err, "no gradient for reduction '%s'; none and add have one", how);
	if (b->need[0])
		b->din[0] = !strcmp(how, "add") ? b->dout[0] :
			dlb_b_op(b, DLB_SPEC_ATTR(nd ? "ScatterNDClear" : "ScatterElementsClear", &axis,
						  nd ? 0 : 1, b->dout[0], b->in[1]), NULL, b->in[0]);
	if (b->need[2])
		b->din[2] = dlb_b_op(b, DLB_SPEC_ATTR(nd ? "GatherND" : "GatherElements", &axis, nd ? 0 : 1,
						      b->dout[0], b->in[1]), NULL, b->in[2]);
	return (b->need[0] && b->din[0] < 0) || (b->need[2] && b->din[2] < 0) ? -1 : 0;
}

#define ONNX(n, ins, inf, grad, kern) \
	const struct dlb_op_class dlb_op_##n = { .name = #n, .n_in = { ins, ins }, .n_out = { 1, 1 }, .work = "move", \
		.infer = inf, .flops = no_flops, .gradient = grad, .kernel = kern };
#define OURS(n, ins, inf, kern) \
	const struct dlb_op_class dlb_op_##n = { .name = #n, .domain = "dlb", .n_in = { ins, ins }, .n_out = { 1, 1 }, \
		.work = "move", .infer = inf, .flops = no_flops, .kernel = kern };
ONNX(GatherElements, 2, gather_infer, gather_gradient, gather_kernel)
ONNX(GatherND, 2, gather_infer, gather_gradient, gather_kernel)
ONNX(ScatterElements, 3, scatter_infer, scatter_gradient, scatter_kernel)
ONNX(ScatterND, 3, scatter_infer, scatter_gradient, scatter_kernel)
OURS(GatherElementsGrad, 3, spread_infer, spread_kernel)
OURS(GatherNDGrad, 3, spread_infer, spread_kernel)
OURS(ScatterElementsClear, 2, scatter_infer, scatter_kernel)
OURS(ScatterNDClear, 2, scatter_infer, scatter_kernel)
