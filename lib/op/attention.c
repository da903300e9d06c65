/* Attention: y = softmax(cap(scale q k^T) + mask) v for each head, and its gradient.
 *
 * Q, K and V are (batch, heads, rows, width), or (batch, rows, heads width) with the numbers of heads as
 * attributes. K and V may have fewer heads; each serves several neighbouring heads of Q. Keys and values of
 * earlier steps (past_key, past_value) are copied before the new ones; the back end's kernel then computes
 * everything in one call, reading by strides. Outputs are ONNX's Y, present_key, present_value,
 * qk_matmul_output, and our `saved`, from which the gradient takes the probabilities: the probabilities
 * themselves if they are few, else log(sum of exp(score)) of each row.
 * AttentionGrad (dy, Q, K, V, saved, mask, lengths) -> dQ, dK, dV, dmask; with a past, its K and V are the
 * present ones; dmask is per sample and head.
 * With bf16, `saved` and numeric masks are f32, and `saved` always holds log sums. A back end without a
 * kernel for bf16 computes in f32, between casts.
 *
 * StridedAttention (domain dlb) reads and writes operands in any order of dimensions: attributes
 * axesQ, axesK, axesV and axesY give the dimensions of batch, heads, rows and width; width is always
 * dimension 3. It has no past.
 * A. Vaswani et al., Attention Is All You Need, 2017; T. Dao et al., FlashAttention, 2022. */
#include "op/op_util.h"

#include <math.h>
#include <string.h>

enum { Q, K, V, MASK, PAST_K, PAST_V, LENGTHS };				/* inputs */
enum { Y, PRESENT_K, PRESENT_V, SCORES, SAVED };				/* outputs */
enum { GRAD_DY, GRAD_Q, GRAD_K, GRAD_V, GRAD_SAVED, GRAD_MASK, GRAD_LENGTHS };	/* inputs of the gradient */

enum { BATCH, HEADS, ROWS, WIDTH, N_AXES };
/* Sizes of an operand, and the dimension in which each lies. flat: heads and width are one dimension, the
 * last, with width fastest. */
struct heads { int64_t batch, heads, rows, width, axis[N_AXES]; bool flat; };
#define BY_HEADS { BATCH, HEADS, ROWS, WIDTH }
#define BY_ROWS { BATCH, 2, 1, WIDTH }
static const char *const axes[] = { [Q] = "axesQ", [K] = "axesK", [V] = "axesV" };

/* h with `rows` rows, as (batch, heads, rows, width). */
static struct heads by_heads(struct heads h, int64_t rows)
{
	return (struct heads){ h.batch, h.heads, rows, h.width, BY_HEADS, false };
}

/* h with `rows` rows, as (batch, rows, heads width). */
static struct heads by_rows(struct heads h, int64_t rows)
{
	return (struct heads){ h.batch, h.heads, rows, h.width, BY_ROWS, true };
}

static int64_t product_of(struct heads h)
{
	return dlb_checked_count((int64_t[]){ h.batch, h.heads, h.rows, h.width }, 4);
}

static int read_heads(const struct dlb_op_io *io, int i, int operand, const char *attr, struct heads *h,
		      struct dlb_error *err)
{
	const struct dlb_desc *x = &io->in[i];
	const int64_t n = dlb_io_int(io, attr, 0);

	if (x->n_dims != 3 && x->n_dims != 4)
		return dlb_op_fail(io, err, "input %d has %d dimensions, should have 3 or 4", i, x->n_dims);
	*h = (struct heads){ x->dim[0], n, x->dim[1], 0, BY_ROWS, true };
	if (x->n_dims == 4) {
		int64_t axis[] = BY_HEADS;
		if (dlb_io_head_axes(io, axes[operand], axis, err))
			return -1;
		*h = (struct heads){ .batch = x->dim[axis[BATCH]],
				     .heads = x->dim[axis[HEADS]],
				     .rows = x->dim[axis[ROWS]],
				     .width = x->dim[WIDTH] };
		memcpy(h->axis, axis, sizeof axis);
		if (n && n != h->heads)
			return dlb_op_fail(io, err, "input %d has %lld heads, %s is %lld", i,
					   (long long)h->heads, attr, (long long)n);
	} else if (n < 1 || x->dim[2] % n) {
		return dlb_op_fail(io, err, "input %d of 3 dimensions: %s is %lld, should divide %lld", i,
				   attr, (long long)n, (long long)x->dim[2]);
	} else {
		h->width = x->dim[2] / n;
	}
	if (h->heads < 1 || h->width < 1 || h->rows > INT32_MAX || h->width * h->heads > INT32_MAX)
		return dlb_op_fail(io, err,
				   "input %d: %lld heads of width %lld and %lld rows are not possible", i,
				   (long long)h->heads, (long long)h->width, (long long)h->rows);
	return 0;
}

/* The sizes in the order of the operand's dimensions. */
static void dims_of(struct heads h, int64_t dim[N_AXES])
{
	const int64_t size[] = { h.batch, h.heads, h.rows, h.width };

	for (int i = 0; i < N_AXES; i++)
		dim[h.axis[i]] = size[i];
}

/* Elements between neighbouring samples, heads and rows. */
static void strides_of(struct heads h, int64_t stride[3])
{
	int64_t dim[N_AXES];

	dims_of(h, dim);
	for (int i = 0; i < 3; i++) {
		stride[i] = 1;
		for (int64_t k = h.axis[i] + 1; k < N_AXES; k++)
			stride[i] *= dim[k];
	}
}

static struct dlb_desc desc_of(enum dlb_dtype t, struct heads h)
{
	int64_t dim[N_AXES];

	dims_of(h, dim);
	return h.flat ? dlb_desc_make(t, 3, (int64_t[]){ h.batch, h.rows, h.heads * h.width }) :
			dlb_desc_make(t, 4, dim);
}

/* The largest number of scores per head for which the probabilities are kept for the backward pass. Keeping
 * them saves a sixth of forward and backward time; beyond this size the memory costs more than that. */
enum { KEEP_MOST = 512 * 512 };

struct attention {
	struct heads q, k, v, y;		/* k and v include the past */
	int64_t fresh;				/* rows of K and V without the past */
	struct dlb_attention_desc d;
};

/* The type of log sums, of kept probabilities and of numeric masks. */
static enum dlb_dtype wide(enum dlb_dtype t) { return t == DLB_BF16 ? DLB_F32 : t; }

/* Sets the mask's strides; its last dimension may be shorter than the number of keys. */
static int read_mask(const struct dlb_op_io *io, int i, struct attention *a, struct dlb_error *err)
{
	const struct dlb_desc *m = &io->in[i];
	const int64_t want[4] = { a->d.batch, a->d.heads, a->d.rows, a->d.keys };
	int64_t stride[DLB_MAX_DIMS];
	char s[128];

	a->d.mask_keys = a->d.keys;
	if (!dlb_io_has(io, i))
		return 0;
	if (m->dtype != DLB_BOOL && m->dtype != a->d.dtype && m->dtype != wide(a->d.dtype))
		return dlb_op_fail(io, err, "the mask is of type %s, should be bool or %s",
				   dlb_dtype_name(m->dtype), dlb_dtype_name(a->d.dtype));
	bool fits = m->n_dims >= 1 && m->n_dims <= 4 && m->dim[m->n_dims - 1] <= a->d.keys;
	for (int j = 0, shift = 4 - m->n_dims; fits && j < m->n_dims - 1; j++)
		fits = m->dim[j] == 1 || m->dim[j] == want[shift + j];
	if (!fits)
		return dlb_op_fail(io, err, "the mask is %s; it should broadcast to [%lld,%lld,%lld,%lld]",
				   dlb_desc_str(m, s, sizeof s), (long long)want[0], (long long)want[1],
				   (long long)want[2], (long long)want[3]);
	dlb_desc_strides(m, stride);
	a->d.mask_type = m->dtype;
	a->d.mask_keys = m->dim[m->n_dims - 1];
	for (int j = 0, shift = 4 - m->n_dims; j < m->n_dims - 1; j++)
		a->d.mask[shift + j] = m->dim[j] == 1 ? 0 : stride[j];
	return 0;
}

static int read_attributes(const struct dlb_op_io *io, struct dlb_attention_desc *d, struct dlb_error *err)
{
	const int64_t mode = dlb_io_int(io, "qk_matmul_output_mode", 0);

	d->scale = dlb_io_real(io, "scale", 1 / sqrt((double)d->width));
	d->softcap = dlb_io_real(io, "softcap", 0);
	d->causal = dlb_io_int(io, "is_causal", 0) != 0;
	d->left = dlb_io_int(io, "left_window_size", -1);
	d->right = dlb_io_int(io, "right_window_size", -1);
	if (mode < DLB_SCORES_RAW || mode > DLB_SCORES_SOFTMAX)
		return dlb_op_fail(io, err, "qk_matmul_output_mode is %lld, should be 0 to 3",
				   (long long)mode);
	if (!(d->softcap >= 0) || !isfinite(d->softcap) || !isfinite(d->scale))
		return dlb_op_fail(io, err, "softcap %g, scale %g: should be finite, softcap not below 0",
				   d->softcap, d->scale);
	if (d->left < -1 || d->right < -1 || d->left > INT32_MAX || d->right > INT32_MAX)
		return dlb_op_fail(io, err, "windows of %lld and %lld; -1 or more is possible",
				   (long long)d->left, (long long)d->right);
	d->scores = (enum dlb_scores)mode;
	return 0;
}

/* Reads Q, K, V from inputs q to q + 2; a->k and a->v describe them without past. */
static int read_operands(const struct dlb_op_io *io, int q, struct attention *a, struct dlb_error *err)
{
	*a = (struct attention){ .fresh = 0 };
	if (read_heads(io, q, Q, "q_num_heads", &a->q, err) ||
	    read_heads(io, q + 1, K, "kv_num_heads", &a->k, err) ||
	    read_heads(io, q + 2, V, "kv_num_heads", &a->v, err))
		return -1;
	if (a->k.batch != a->q.batch || a->v.batch != a->q.batch || a->k.heads != a->v.heads ||
	    a->k.rows != a->v.rows || a->k.width != a->q.width || a->q.heads % a->k.heads)
		return dlb_op_fail(io, err,
				   "Q of %lld x %lld heads x %lld x %lld, K of %lld x %lld x %lld x %lld and "
				   "V of %lld x %lld x %lld x %lld do not belong together",
				   (long long)a->q.batch, (long long)a->q.heads, (long long)a->q.rows,
				   (long long)a->q.width, (long long)a->k.batch, (long long)a->k.heads,
				   (long long)a->k.rows, (long long)a->k.width, (long long)a->v.batch,
				   (long long)a->v.heads, (long long)a->v.rows, (long long)a->v.width);
	a->fresh = a->k.rows;
	return 0;
}

/* Adds earlier keys and values to the rows of K and V, which then are (batch, heads, rows, width). */
static int read_past(const struct dlb_op_io *io, struct attention *a, struct dlb_error *err)
{
	if (dlb_io_has(io, PAST_K) != dlb_io_has(io, PAST_V))
		return dlb_op_fail(io, err,
				   "past_key and past_value belong together; one of them is missing");
	if (!dlb_io_has(io, PAST_K))
		return 0;
	const struct dlb_desc *pk = &io->in[PAST_K], *pv = &io->in[PAST_V];
	const int64_t past = pk->n_dims == 4 ? pk->dim[2] : 0;
	const struct dlb_desc want_k = desc_of(pk->dtype, by_heads(a->k, past));
	const struct dlb_desc want_v = desc_of(pv->dtype, by_heads(a->v, past));
	char s[128], t[128];

	if (dlb_io_has(io, LENGTHS))
		return dlb_op_fail(io, err, "nonpad_kv_seqlen and past_key exclude each other");
	if (!dlb_desc_same_shape(pk, &want_k) || !dlb_desc_same_shape(pv, &want_v) ||
	    past > INT32_MAX - a->fresh)
		return dlb_op_fail(io, err, "past_key is %s and past_value %s; they do not fit K and V",
				   dlb_desc_str(pk, s, sizeof s), dlb_desc_str(pv, t, sizeof t));
	a->k = by_heads(a->k, a->k.rows + past);
	a->v = by_heads(a->v, a->v.rows + past);
	a->d.past = past;
	return 0;
}

static int read_lengths(const struct dlb_op_io *io, int i, const struct attention *a, struct dlb_error *err)
{
	if (!dlb_io_has(io, i))
		return 0;
	if (io->in[i].dtype != DLB_I64)
		return dlb_op_fail(io, err, "nonpad_kv_seqlen is of type %s, should be i64",
				   dlb_dtype_name(io->in[i].dtype));
	return dlb_has_count(io, i, a->q.batch, err);
}

/* Sets the kernel's sizes and strides from the operands. */
static int finish_desc(const struct dlb_op_io *io, struct attention *a, int mask, struct dlb_error *err)
{
	a->y = a->q.flat ? by_rows(a->q, a->q.rows) : by_heads(a->q, a->q.rows);
	a->y.width = a->v.width;
	if (!a->y.flat && dlb_io_head_axes(io, "axesY", a->y.axis, err))
		return -1;
	a->d.dtype = io->in[Q].dtype;
	a->d.batch = a->q.batch;
	a->d.heads = a->q.heads;
	a->d.kv_heads = a->k.heads;
	a->d.rows = a->q.rows;
	a->d.keys = a->k.rows;
	a->d.width = a->q.width;
	a->d.v_width = a->v.width;
	strides_of(a->q, a->d.q);
	strides_of(a->k, a->d.k);
	strides_of(a->v, a->d.v);
	strides_of(a->y, a->d.y);
	if (dlb_checked_count((int64_t[]){ a->d.batch, a->d.heads, a->d.rows, a->d.keys }, 4) < 0 ||
	    product_of(a->y) < 0 || product_of(a->k) < 0 || product_of(a->v) < 0)
		return dlb_op_fail(io, err, "%lld x %lld scores of %lld x %lld heads are too many",
				   (long long)a->d.rows, (long long)a->d.keys, (long long)a->d.batch,
				   (long long)a->d.heads);
	if (read_attributes(io, &a->d, err) || read_mask(io, mask, a, err))
		return -1;
	/* softcap's derivative needs the scores; bf16 kernels recompute probabilities faster than they read
	 * them */
	a->d.whole = a->d.rows * a->d.keys <= KEEP_MOST && a->d.softcap == 0 && a->d.dtype != DLB_BF16;
	return 0;
}

static struct dlb_desc saved_of(const struct attention *a)
{
	const int64_t dim[] = { a->d.batch, a->d.heads, a->d.rows, a->d.keys };

	return dlb_desc_make(wide(a->d.dtype), a->d.whole ? 4 : 3, dim);
}

static int parse(const struct dlb_op_io *io, struct attention *a, struct dlb_error *err)
{
	if (dlb_same_types(io, Q, 3, err) || read_operands(io, Q, a, err))
		return -1;
	if (a->q.flat != a->k.flat || a->q.flat != a->v.flat)
		return dlb_op_fail(io, err, "Q, K and V have different numbers of dimensions");
	if ((dlb_io_has(io, PAST_K) && io->in[PAST_K].dtype != io->in[K].dtype) ||
	    (dlb_io_has(io, PAST_V) && io->in[PAST_V].dtype != io->in[V].dtype))
		return dlb_op_fail(io, err, "past_key and past_value are of another type than K and V");
	return read_past(io, a, err) || read_lengths(io, LENGTHS, a, err) || finish_desc(io, a, MASK, err) ?
		       -1 :
		       0;
}

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	const enum dlb_dtype t = io->in[Q].dtype;
	struct attention a;

	if (!dlb_dtype_is_float(t))
		return dlb_op_fail(io, err, "Q is of type %s; a float is needed", dlb_dtype_name(t));
	if (parse(io, &a, err))
		return -1;
	const struct dlb_desc out[] = {
		[Y] = desc_of(t, a.y),
		[PRESENT_K] = desc_of(t, by_heads(a.k, a.k.rows)),
		[PRESENT_V] = desc_of(t, by_heads(a.v, a.v.rows)),
		[SCORES] = dlb_desc_make(t, 4, (int64_t[]){ a.d.batch, a.d.heads, a.d.rows, a.d.keys }),
		[SAVED] = saved_of(&a)
	};

	for (int i = 0; i < io->n_out; i++)
		io->out[i] = out[i];
	return 0;
}

/* The chain of a vertex's kernel. */
struct attention_chain {
	struct dlb_chain *c;
	struct dlb_backend *be;
	const struct dlb_op_io *io;
	struct dlb_error *err;
};
/* Where keys (or values) are joined: operand `to` of the chain, (batch, heads, rows, width) like d. */
struct joined { int to; struct dlb_desc d; };

/* Copies input i, with sizes h, into rows [first, ...) of j. */
static void put_rows(struct attention_chain *a, int i, struct heads h, const struct joined *j, int64_t first)
{
	const int64_t dim[4] = { h.batch, h.heads, h.rows, h.width }, rows = j->d.dim[2];
	int64_t in[4] = { 0, 0, 0, 1 }, out[4] = { h.heads * rows * h.width, rows * h.width, h.width, 1 };
	struct dlb_kernel *k = NULL;

	strides_of(h, in);
	const struct dlb_strided s = { .in = &a->io->in[i],
				       .out = &j->d,
				       .n_dims = 4,
				       .dim = dim,
				       .in_stride = in,
				       .out_stride = out,
				       .out_offset = first * h.width };
	const int rc = dlb_kernel_strided(a->be, &s, &k, a->err);
	dlb_chain_add(a->c, rc, k, DLB_REFS(DLB_IN(i)), 1, DLB_REFS(j->to), 1);
}

/* The keys (or values) that the kernel reads: input i, or past and new ones joined in output
 * `present` or in scratch memory. */
static int gather_rows(struct attention_chain *a, int i, int past, int present, struct heads all,
		       int64_t fresh)
{
	const struct dlb_op_io *io = a->io;
	const bool has_past = dlb_io_has(io, past), wanted = dlb_io_wants(io, present);
	struct joined j = { .d = desc_of(io->in[i].dtype, by_heads(all, all.rows)) };

	if (!has_past && !wanted)
		return DLB_IN(i);
	j.to = wanted ? DLB_OUT(present) : dlb_chain_temp(a->c, &j.d);
	if (has_past)
		put_rows(a, past, by_heads(all, all.rows - fresh), &j, 0);
	put_rows(a, i, io->in[i].n_dims == 3 ? by_rows(all, fresh) : by_heads(all, fresh), &j,
		 all.rows - fresh);
	return has_past ? j.to : DLB_IN(i);
}

static int kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		  struct dlb_error *err)
{
	struct attention a;
	struct dlb_kernel *sub = NULL;

	if (parse(io, &a, err))
		return -1;
	struct dlb_chain *c = dlb_chain_new(be, err);
	struct attention_chain chain = { c, be, io, err };
	const int keys = gather_rows(&chain, K, PAST_K, PRESENT_K, a.k, a.fresh);
	const int values = gather_rows(&chain, V, PAST_V, PRESENT_V, a.v, a.fresh);
	const int in[] = { DLB_IN(Q), keys, values, dlb_io_has(io, MASK) ? DLB_IN(MASK) : DLB_NOTHING,
			   dlb_io_has(io, LENGTHS) ? DLB_IN(LENGTHS) : DLB_NOTHING };
	const int out[] = { DLB_OUT(Y), dlb_io_wants(io, SAVED) ? DLB_OUT(SAVED) : DLB_NOTHING,
			    dlb_io_wants(io, SCORES) ? DLB_OUT(SCORES) : DLB_NOTHING };
	/* infer decided this by the type of the operands before they were widened */
	a.d.whole &= dlb_io_wants(io, SAVED) && io->out[SAVED].n_dims == N_AXES;
	const int rc = be->ops->attention(be, &a.d, &sub, err);

	dlb_chain_add(c, rc, sub, in, DLB_LEN(in), out, DLB_LEN(out));
	return dlb_chain_finish(c, k);
}

/* -- gradient -- */

static int grad_parse(const struct dlb_op_io *io, struct attention *a, struct dlb_error *err)
{
	if (read_operands(io, GRAD_Q, a, err) || read_lengths(io, GRAD_LENGTHS, a, err))
		return -1;
	a->d.past = dlb_io_int(io, "past", 0);
	if (a->d.past < 0 || a->d.past > a->k.rows)
		return dlb_op_fail(io, err, "%lld rows of a past among %lld", (long long)a->d.past,
				   (long long)a->k.rows);
	return finish_desc(io, a, GRAD_MASK, err);
}

static int grad_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct attention a;
	char s[128];

	if (dlb_same_types(io, 0, GRAD_SAVED, err) || grad_parse(io, &a, err))
		return -1;
	const struct dlb_desc dy = desc_of(io->in[0].dtype, a.y);
	if (!dlb_desc_same_shape(&io->in[GRAD_DY], &dy))
		return dlb_op_fail(io, err, "the gradient's shape is not %s", dlb_desc_str(&dy, s, sizeof s));
	const struct dlb_desc saved = saved_of(&a);
	const bool masked = dlb_io_has(io, GRAD_MASK) && io->in[GRAD_MASK].dtype != DLB_BOOL;

	if (io->in[GRAD_SAVED].dtype != saved.dtype)
		return dlb_op_fail(io, err, "input %d is of type %s, should be %s", GRAD_SAVED,
				   dlb_dtype_name(io->in[GRAD_SAVED].dtype), dlb_dtype_name(saved.dtype));
	if (dlb_has_count(io, GRAD_SAVED, dlb_desc_count(&saved), err))
		return -1;
	for (int i = 0; i < 3 && i < io->n_out; i++)
		io->out[i] = io->in[GRAD_Q + i];
	if (io->n_out > 3)
		io->out[3] = dlb_desc_make(masked ? io->in[GRAD_MASK].dtype : a.d.dtype, 4,
					   (int64_t[]){ a.d.batch, a.d.heads, a.d.rows, a.d.mask_keys });
	return 0;
}

static int grad_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	struct attention a;
	struct dlb_kernel *sub = NULL;
	int out[4];

	if (grad_parse(io, &a, err))
		return -1;
	a.d.backward = true;
	a.d.whole &= io->in[GRAD_SAVED].n_dims == N_AXES; /* infer of the forward op decided this */
	struct dlb_chain *c = dlb_chain_new(be, err);
	const int in[] = { DLB_IN(GRAD_Q),
			   DLB_IN(GRAD_K),
			   DLB_IN(GRAD_V),
			   dlb_io_has(io, GRAD_MASK) ? DLB_IN(GRAD_MASK) : DLB_NOTHING,
			   dlb_io_has(io, GRAD_LENGTHS) ? DLB_IN(GRAD_LENGTHS) : DLB_NOTHING,
			   DLB_IN(GRAD_DY),
			   DLB_IN(GRAD_SAVED) };

	for (int i = 0; i < 4; i++)
		out[i] = dlb_io_wants(io, i) ? DLB_OUT(i) : DLB_NOTHING;
	const int rc = be->ops->attention(be, &a.d, &sub, err);
	dlb_chain_add(c, rc, sub, in, DLB_LEN(in), out, DLB_LEN(out));
	return dlb_chain_finish(c, k);
}

/* Rows [from, end) of gradient `all` (batch, heads, rows, width), in the shape of tensor `like`. */
static int rows_of(struct dlb_builder *b, int all, int64_t from, int64_t end, int like)
{
	const struct dlb_attr perm = dlb_make_ints("perm", (int64_t[]){ 0, 2, 1, 3 }, 4);
	const int cut = dlb_b_op(b, DLB_SPEC("Slice", all, dlb_b_const_ints(b, &from, 1),
					     dlb_b_const_ints(b, &end, 1),
					     dlb_b_const_ints(b, (int64_t[]){ 2 }, 1)), NULL, -1);

	if (cut < 0 || dlb_b_desc(b, like)->n_dims == 4)
		return cut;
	return dlb_b_op2(b, "Reshape", dlb_b_op(b, DLB_SPEC_ATTR("Transpose", &perm, 1, cut), NULL, -1),
			 dlb_b_const_shape(b, like));
}

/* Splits the gradient of all keys (or values) into those of input i and of input `past`. */
static void split_past(struct dlb_builder *b, const struct attention *a, int all, int i, int past)
{
	if (b->need[i])
		b->din[i] = rows_of(b, all, a->d.past, a->k.rows, b->in[i]);
	if (b->need[past])
		b->din[past] = rows_of(b, all, 0, a->d.past, b->in[past]);
}

static int gradient(struct dlb_builder *b, struct dlb_error *err)
{
	static const char *const keep[] = {
		"q_num_heads",       "kv_num_heads", "scale", "softcap", "is_causal", "left_window_size",
		"right_window_size", "axesQ",        "axesK", "axesV",   "axesY"
	};
	struct dlb_attr attr[DLB_LEN(keep) + 1];
	struct attention a;
	int n = dlb_keep_attrs(&b->io, keep, DLB_LEN(keep), attr), out[4] = { -1, -1, -1, -1 };

	if (parse(&b->io, &a, err))
		return -1;
	for (int i = 1; i < b->io.n_out; i++)
		if (b->dout[i] >= 0)
			return dlb_op_fail(&b->io, err, "no gradient through output %d", i);
	const bool past = dlb_io_has(&b->io, PAST_K), masked = dlb_io_has(&b->io, MASK);
	const int in[] = { b->dout[Y], b->in[Q], past ? dlb_b_extra_output(b, PRESENT_K) : b->in[K],
			   past ? dlb_b_extra_output(b, PRESENT_V) : b->in[V], dlb_b_extra_output(b, SAVED),
			   masked ? b->in[MASK] : -1, dlb_io_has(&b->io, LENGTHS) ? b->in[LENGTHS] : -1 };
	const bool mask_too = masked && b->need[MASK];

	if (past)
		attr[n++] = dlb_make_int("past", a.d.past);
	out[0] = dlb_b_op(b, &(struct dlb_op_spec){ .type = "AttentionGrad", .in = in, .n_in = DLB_LEN(in),
						    .n_out = mask_too ? 4 : 3, .attr = attr, .n_attr = n },
			  out, b->in[Q]);
	if (out[0] < 0)
		return -1;
	for (int i = Q; i <= V; i++)
		if (b->need[i] && (i == Q || !past))
			b->din[i] = out[i];
	if (past) {
		split_past(b, &a, out[1], K, PAST_K);
		split_past(b, &a, out[2], V, PAST_V);
	}
	if (mask_too)
		b->din[MASK] = dlb_b_unbroadcast(b, out[3], b->in[MASK]);
	return 0;
}

/* -- costs -- */

/* Number of computed scores; those masked by position are skipped. */
static double scores(const struct attention *a)
{
	const struct dlb_attention_desc *d = &a->d;
	const double rows = (double)d->rows, keys = (double)d->keys,
		     past = (double)(d->past > 0 ? d->past : 0);
	double seen = keys;

	if (d->causal)
		seen = past + (rows + 1) / 2 < keys ? past + (rows + 1) / 2 : keys;
	if (d->left >= 0 && (d->causal || d->right >= 0)) {
		const double window = (double)(d->left + 1 + (d->causal ? 0 : d->right));

		seen = window < seen ? window : seen;
	}
	return (double)d->batch * (double)d->heads * rows * seen;
}

static double flops(const struct dlb_op_io *io)
{
	struct attention a;
	struct dlb_error ignored = { 0 };

	return parse(io, &a, &ignored) ? 0 : scores(&a) * (2.0 * (double)(a.d.width + a.d.v_width) + 15);
}

static double grad_flops(const struct dlb_op_io *io)
{
	struct attention a;
	struct dlb_error ignored = { 0 };

	return grad_parse(io, &a, &ignored) ?
		       0 :
		       scores(&a) * (2.0 * (double)(3 * a.d.width + 2 * a.d.v_width) + 19);
}

#define ATTENTION(n, of, most) \
	const struct dlb_op_class dlb_op_##n = { .name = #n, \
						 .domain = of, \
						 .n_in = { 3, most }, \
						 .n_out = { 1, 5 }, \
						 .bf16 = DLB_BF16_ALWAYS, \
						 .f32_in = 1 << MASK, \
						 .work = "dense", \
						 .infer = infer, \
						 .flops = flops, \
						 .gradient = gradient, \
						 .kernel = kernel };
ATTENTION(Attention, NULL, 7)
ATTENTION(StridedAttention, "dlb", 4)
const struct dlb_op_class dlb_op_AttentionGrad = { .name = "AttentionGrad",
						   .domain = "dlb",
						   .n_in = { 5, 7 },
						   .n_out = { 1, 4 },
						   .bf16 = DLB_BF16_ALWAYS,
						   .f32_in = 1 << GRAD_MASK,
						   .work = "dense",
						   .infer = grad_infer,
						   .flops = grad_flops,
						   .kernel = grad_kernel };
