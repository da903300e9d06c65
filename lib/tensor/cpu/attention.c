/* Attention and its gradient, head by head, in blocks of queries against all keys that they see.
 * A block's scores stay in cache, positions that are masked by position are not computed, and
 * the softmax of a row is one pass.
 *   s = scale q k^T, p = softmax(s), y = p v
 *   dv = p^T dy, dp = dy v^T, ds = p (dp - sum p dp), dq = scale ds k, dk = scale ds^T q
 * Products use operands packed once per head (panel_real.h), because these heads are too small
 * for library calls. The backward pass reads p, or computes it again from s and the rows' log
 * sums (T. Dao et al., FlashAttention, 2022). One thread handles all heads that share keys, so
 * sums into dk and dv keep their order. */
#include <math.h>

#include "tensor/cpu/cpu.h"
#include "tensor/cpu/panel.h"
#include "tensor/cpu/real_math.h"
#include "tensor/cpu/threads.h"

/* Queries per block: enough for efficient products, fewer if their scores would not stay in cache. */
enum {
	ATTENTION_USUAL = 64,
	ATTENTION_ROWS = ATTENTION_USUAL * 3 / 2, /* at most */
	ATTENTION_LEAST = 16,
	ATTENTION_SCORES = 1 << 17
};
/* Alignment in elements of scratch arrays, score rows and a block's first key: a
 * multiple of every panel width. */
enum { ATTENTION_ALIGN = 32 };
/* Rows of scores are computed in whole vectors, and followed by this many zeros. */
enum { ATTENTION_MARGIN = 16 };
_Static_assert((int)ATTENTION_MARGIN >= PANEL_MARGIN && (int)ATTENTION_ALIGN % ATTENTION_MARGIN == 0,
	       "margin of a row");

/* Offsets, in elements, of the arrays in a part's scratch: the head's keys and values packed for the
 * products, the block's queries and dy, its scores and their gradients, the slopes of the cap (0: none), the
 * block's band by keys. */
struct attention_scratch {
	int64_t kt, vt, k, v, q, dy, s, g, slope, band;
	size_t bytes;
};
/* ld: elements between score rows. */
struct attention_part {
	const struct dlb_attention_desc *d;
	const struct dlb_run *run;
	const struct attention_scratch *room;
	int64_t ld;
	void *scratch;
};
/* Queries [row, row + n) of one head, keys [lo, lo + columns). band: the keys that each query may see by
 * position, relative to lo; seen: the same for products, NULL if each query sees all. */
struct attention_block {
	int64_t batch, head, kv_head, row, n, lo, columns;
	struct panel_band band;
	const struct panel_band *seen;
};
/* Functions for one type. */
struct attention_loops {
	struct attention_scratch (*room)(const struct dlb_attention_desc *d, int64_t rows, int64_t ld);
	void (*pack)(const struct attention_part *p, int64_t batch, int64_t head);
	void (*block)(const struct attention_part *p, const struct attention_block *x);
};
struct attention_kernel {
	struct dlb_kernel k;
	struct dlb_attention_desc d;
	int parts, n_blocks;
	int64_t ld;
	struct attention_scratch room; /* of one part */
	const struct attention_loops *loops;
};
struct attention_job { const struct attention_kernel *a; const struct dlb_run *run; };

static int64_t at_most(int64_t v, int64_t most)
{
	return v < most ? v : most;
}

/* Keys [*lo, *hi) that query i may see by position. Neither bound decreases from one query to the next. */
static void attention_span(const struct attention_part *p, int64_t batch, int64_t i, int64_t *lo, int64_t *hi)
{
	const struct dlb_attention_desc *d = p->d;
	const int64_t *lengths = p->run->in[4];
	int64_t from = 0, end = p->run->in[3] ? d->mask_keys : d->keys, at = i + d->past;

	if (lengths) {
		const int64_t length = lengths[batch] < 0 ? 0 : at_most(lengths[batch], d->keys);

		at = i + length - d->rows;
		end = at_most(end, length);
	}
	if (d->causal)
		end = at_most(end, at + 1);
	if (d->right >= 0)
		end = at_most(end, at + d->right + 1);
	if (d->left >= 0 && at > d->left)
		from = at_most(at - d->left, d->keys);
	*lo = from;
	*hi = end > from ? end : from;
}

/* Sets the keys that the block's queries see. lo and hi (of x->n elements each) receive the keys of each
 * query; if the scores are an output, these are all keys. */
static void attention_columns(const struct attention_part *p, struct attention_block *x, int32_t *lo,
			      int32_t *hi)
{
	const bool all = !p->d->backward && p->run->out[2];
	int64_t from, end, other;

	attention_span(p, x->batch, x->row, &x->lo, &end);
	attention_span(p, x->batch, x->row + x->n - 1, &other, &end);
	if (all) {
		x->lo = 0;
		end = p->d->keys;
	}
	x->lo -= x->lo % ATTENTION_ALIGN;
	x->columns = end > x->lo ? end - x->lo : 0;
	for (int64_t i = 0; i < x->n; i++) {
		attention_span(p, x->batch, x->row + i, &from, &end);
		lo[i] = all ? 0 : (int32_t)(from - x->lo);
		hi[i] = all ? (int32_t)x->columns : (int32_t)(end - x->lo);
	}
	x->band = (struct panel_band){ lo, hi };
	/* neither bound decreases, so the last lo and the first hi decide */
	x->seen = x->n && (lo[x->n - 1] > 0 || hi[0] < x->columns) ? &x->band : NULL;
}

/* Elements [from, end) of the ith query's row of scores, relative to the block's first key: its band, filled
 * up to whole vectors; none if the query sees no key. */
struct attention_range { int64_t from, end; };

static inline struct attention_range attention_row(const struct attention_block *x, int64_t i)
{
	const int64_t m = ATTENTION_MARGIN, lo = x->band.lo[i], hi = x->band.hi[i], from = lo / m * m;

	return (struct attention_range){ from, hi > lo ? (hi + m - 1) / m * m : from };
}

/* The block's band by keys: key j is seen by queries [lo[j], hi[j]). room: 2 x->columns elements. */
static struct panel_band attention_by_keys(const struct attention_block *x, int32_t *room)
{
	int32_t *lo = room, *hi = room + x->columns, from = 0, end = 0;

	for (int32_t j = 0; j < x->columns; j++) {
		while (from < x->n && x->band.hi[from] <= j)
			from++;
		while (end < x->n && x->band.lo[end] <= j)
			end++;
		lo[j] = from;
		hi[j] = end;
	}
	return (struct panel_band){ lo, hi };
}

#include "tensor/cpu/f32.h"
#include "tensor/cpu/attention_real.h"
#include "tensor/cpu/f64.h"
#include "tensor/cpu/attention_real.h"

static const struct attention_loops loops_f32 = { attention_scratch_f32, attention_pack_f32,
						  attention_block_f32 };
static const struct attention_loops loops_f64 = { attention_scratch_f64, attention_pack_f64,
						  attention_block_f64 };

/* Clears gradients of keys and values, to which the blocks' contributions are added. */
static void clear_rows(void *base, const int64_t *stride, int64_t batch, int64_t head, int64_t rows,
		       int64_t width, size_t size)
{
	char *to = base;

	for (int64_t i = 0; to && i < rows; i++)
		memset(to + (size_t)(batch * stride[0] + head * stride[1] + i * stride[2]) * size, 0,
		       (size_t)width * size);
}

static void attention_part(const void *ctx, int part, int parts)
{
	const struct attention_job *job = ctx;
	const struct attention_kernel *a = job->a;
	const struct dlb_attention_desc *d = &a->d;
	const struct attention_part p = { d, job->run, &a->room, a->ld,
					  (char *)job->run->scratch + (size_t)part * a->room.bytes };
	const int64_t n = d->batch * d->kv_heads, share = d->heads / d->kv_heads;
	const size_t size = dlb_dtype_bytes(d->dtype);
	int32_t lo[ATTENTION_ROWS], hi[ATTENTION_ROWS];

	for (int64_t u = cpu_cut(n, part, parts), end = cpu_cut(n, part + 1, parts); u < end; u++) {
		struct attention_block x = { .batch = u / d->kv_heads, .kv_head = u % d->kv_heads };

		if (d->backward) {
			clear_rows(job->run->out[1], d->k, x.batch, x.kv_head, d->keys, d->width, size);
			clear_rows(job->run->out[2], d->v, x.batch, x.kv_head, d->keys, d->v_width, size);
		}
		a->loops->pack(&p, x.batch, x.kv_head);
		for (x.head = x.kv_head * share; x.head < (x.kv_head + 1) * share; x.head++)
			for (int b = 0; b < a->n_blocks; b++) {
				x.row = cpu_cut(d->rows, b, a->n_blocks);
				x.n = cpu_cut(d->rows, b + 1, a->n_blocks) - x.row;
				attention_columns(&p, &x, lo, hi);
				a->loops->block(&p, &x);
			}
	}
}

static void attention_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct attention_job job = { (const struct attention_kernel *)k, r };

	dlb_cpu_parallel(job.a->parts, attention_part, &job);
}

int dlb_cpu_attention(struct dlb_backend *b, const struct dlb_attention_desc *d, struct dlb_kernel **k,
		      struct dlb_error *err)
{
	struct attention_kernel *a;
	int64_t rows = ATTENTION_USUAL;

	(void)err;
	if (d->dtype != DLB_F32 && d->dtype != DLB_F64)
		return DLB_NO_KERNEL;
	a = dlb_xcalloc(1, sizeof *a);
	a->d = *d;
	a->loops = d->dtype == DLB_F32 ? &loops_f32 : &loops_f64;
	while (rows > ATTENTION_LEAST && rows * d->keys > ATTENTION_SCORES)
		rows /= 2;
	/* a block has up to one and a half times as many queries */
	a->n_blocks = d->rows > rows ? (int)((d->rows + rows / 2) / rows) : 1;
	rows += rows / 2;
	/* longer than the alignment requires, so that a column of scores is not in a single cache set */
	a->ld = (d->keys / ATTENTION_ALIGN + 1) * ATTENTION_ALIGN + ATTENTION_ALIGN / 2;
	a->parts = dlb_cpu_parts(b, d->batch * d->heads * d->rows * d->keys, d->batch * d->kv_heads);
	a->room = a->loops->room(d, rows, a->ld);
	a->k = (struct dlb_kernel){ .run = attention_run, .free = dlb_cpu_kernel_free, .impl = "loop",
		.scratch_bytes = (size_t)a->parts * a->room.bytes };
	*k = &a->k;
	return 0;
}
