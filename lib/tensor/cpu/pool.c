/* Max and average pooling, 1 to 3 spatial dimensions, plain loops.
 *
 * Channels-last: the innermost loop runs over channels, so every window position is a vector operation.
 * Otherwise channels are an outer loop. The kernel positions inside the input are computed once per
 * coordinate when the kernel is prepared. Gradients are gathered: each input element sums the windows it is
 * in, in order, and is written once.
 *
 * With few adjacent channels (or one) the vectors of channels are too short. Max pooling then uses a whole
 * row of outputs (for the gradient, inputs) as the vector, and finds the elements of the other side through a
 * table of indices. */
#include <math.h>
#include <stdlib.h>

#include "tensor/cpu/cpu.h"
#include "tensor/cpu/real_math.h"
#include "tensor/cpu/threads.h"

#define BLOCK 64			/* elements of a vector at a time */
#define EIGHT 8				/* divides BLOCK */
#define FEW 16				/* with fewer channels, rows are used */
#define MEETS 32			/* windows of one input element that are added at a time */
#define NO_K (-(1 << 30))		/* a kernel position in no window */

/* kernel positions [lo, hi) of an output coordinate inside the input */
struct kernel_span { int64_t lo, hi; };
/* kernel position and output coordinate that meet at an input coordinate */
struct pool_pair { int64_t k, o; };
/* index of a window in the output, and the element's position in it */
struct meet { int64_t y; int32_t here; };
struct pool_kernel;
/* Handles images [from, end). An image is one sample and, unless channels are adjacent, one channel of it. */
typedef void pool_fn(const struct pool_kernel *p, const struct dlb_run *r, int64_t from, int64_t end,
		     void *scratch);
struct pool_kernel {
	struct dlb_kernel k;
	pool_fn *fn;
	int parts;
	size_t part_bytes;				/* scratch per part */
	int64_t n, c_outer, c_inner;
	int64_t xn, xc, xs[3], yn, yc, ys[3];		/* strides */
	int64_t in[3], out[3], size[3], step[3], pad[3], dil[3];
	struct kernel_span *span[3];				/* [out] */
	double *divisor[3];				/* [out] factors of an average's divisor */
	int64_t *first[3];				/* [in + 1] pairs of input i are pair[first[i]] .. */
	struct pool_pair *pair[3];
	/* by rows: the windows of output columns [whole_lo, whole_hi) are inside the input; from[j] is the
	 * input element, from the row's start, under kernel position 0 of element j of these columns */
	int64_t whole_lo, whole_hi;
	/* padded to a multiple of eight with its last entry */
	int32_t *from;
	/* gradient: element j of an input row is in at most n_to windows; the pth has output element to[p *
	 * row + j] and kernel column column[p * row + j] */
	int64_t n_to, row;
	int32_t *to, *column;
};

/* Sixteen positions; bytes are widened in two steps, because gcc does one step element by element. */
typedef int32_t sixteen __attribute__((vector_size(16 * sizeof(int32_t))));
static inline void load_16_u8(const uint8_t *p, sixteen *v)
{
	typedef uint8_t bytes __attribute__((vector_size(16)));
	typedef int16_t halves __attribute__((vector_size(32)));
	bytes b;

	memcpy(&b, p, sizeof b);
	*v = __builtin_convertvector(__builtin_convertvector(b, halves), sixteen);
}
static inline void load_16_i32(const int32_t *p, sixteen *v)
{
	memcpy(v, p, sizeof *v);
}

#define POS uint8_t
#define P(name) name##_u8
#include "tensor/cpu/f32.h"
#include "tensor/cpu/pool_max_real.h"
#include "tensor/cpu/f64.h"
#include "tensor/cpu/pool_max_real.h"
#undef POS
#undef P
#define POS int32_t
#define P(name) name##_i32
#include "tensor/cpu/f32.h"
#include "tensor/cpu/pool_max_real.h"
#include "tensor/cpu/pool_average_real.h"
#include "tensor/cpu/f64.h"
#include "tensor/cpu/pool_max_real.h"
#include "tensor/cpu/pool_average_real.h"

static void pool_free(struct dlb_kernel *k)
{
	struct pool_kernel *p = (struct pool_kernel *)k;

	for (int i = 0; i < 3; i++) {
		free(p->span[i]);
		free(p->divisor[i]);
		free(p->first[i]);
		free(p->pair[i]);
	}
	free(p->from);
	free(p->to);
	free(p->column);
	free(p);
}

/* Builds the tables of dimension i. Output coordinate o reads inputs o step - pad + k dil for k in [lo,
 * hi). */
static void index_dimension(struct pool_kernel *p, int i, int64_t pad_end, bool include_pad)
{
	int64_t n_pairs = 0;

	p->span[i] = dlb_xcalloc((size_t)p->out[i] + 1, sizeof *p->span[i]);
	p->divisor[i] = dlb_xcalloc((size_t)p->out[i] + 1, sizeof *p->divisor[i]);
	p->first[i] = dlb_xcalloc((size_t)p->in[i] + 1, sizeof *p->first[i]);
	p->pair[i] = dlb_xcalloc((size_t)(p->out[i] * p->size[i]) + 1, sizeof *p->pair[i]);
	for (int64_t o = 0; o < p->out[i]; o++) {
		int64_t lo = p->size[i], hi = 0, padded = 0;

		for (int64_t k = 0; k < p->size[i]; k++) {
			int64_t x = o * p->step[i] - p->pad[i] + k * p->dil[i];

			padded += x < p->in[i] + pad_end;
			if (x < 0 || x >= p->in[i])
				continue;
			lo = k < lo ? k : lo;
			hi = k + 1;
		}
		p->span[i][o] = (struct kernel_span){ lo < hi ? lo : 0, hi };
		p->divisor[i][o] = (double)(include_pad ? padded : hi > lo ? hi - lo : 1);
	}
	for (int64_t x = 0; x < p->in[i]; x++) {
		p->first[i][x] = n_pairs;
		for (int64_t k = p->size[i] - 1; k >= 0; k--) {
			int64_t t = x + p->pad[i] - k * p->dil[i];

			if (t >= 0 && t % p->step[i] == 0 && t / p->step[i] < p->out[i])
				p->pair[i][n_pairs++] = (struct pool_pair){ k, t / p->step[i] };
		}
	}
	p->first[i][p->in[i]] = n_pairs;
}

/* Builds the index tables for rows. */
static void index_rows(struct pool_kernel *p, bool backward)
{
	int64_t c = p->c_inner, j = 0;

	if (!backward) {
		while (p->whole_lo < p->out[2] &&
		       p->span[2][p->whole_lo].hi - p->span[2][p->whole_lo].lo < p->size[2])
			p->whole_lo++;
		p->whole_hi = p->whole_lo;
		while (p->whole_hi < p->out[2] &&
		       p->span[2][p->whole_hi].hi - p->span[2][p->whole_hi].lo == p->size[2])
			p->whole_hi++;
		p->from = dlb_xcalloc((size_t)(p->out[2] * c) + EIGHT, sizeof *p->from);
		for (int64_t o = p->whole_lo; o < p->whole_hi; o++)
			for (int64_t i = 0; i < c; i++)
				p->from[j++] = (int32_t)((o * p->step[2] - p->pad[2]) * c + i);
		for (; j > 0 && j % EIGHT; j++)
			p->from[j] = p->from[j - 1];
		return;
	}
	p->row = p->in[2] * c;
	for (int64_t x = 0; x < p->in[2]; x++)
		if (p->first[2][x + 1] - p->first[2][x] > p->n_to)
			p->n_to = p->first[2][x + 1] - p->first[2][x];
	p->to = dlb_xcalloc((size_t)(p->n_to * p->row) + 1, sizeof *p->to);
	p->column = dlb_xcalloc((size_t)(p->n_to * p->row) + 1, sizeof *p->column);
	for (int64_t n = 0; n < p->n_to; n++)
		for (int64_t x = 0; x < p->in[2]; x++)
			for (int64_t i = 0; i < c; i++) {
				bool have = p->first[2][x] + n < p->first[2][x + 1];
				struct pool_pair w = have ? p->pair[2][p->first[2][x] + n] :
							    (struct pool_pair){ NO_K, 0 };

				p->to[n * p->row + x * c + i] = (int32_t)(w.o * c + i);
				p->column[n * p->row + x * c + i] = (int32_t)w.k;
			}
	p->part_bytes = cpu_round64((size_t)(p->out[2] * c) * sizeof(int32_t));
}

static pool_fn *choose(const struct dlb_pool_desc *d, bool rows)
{
	bool f32 = d->x.dtype == DLB_F32, u8 = d->pos == DLB_U8;

	if (!d->max)
		return d->backward ? (f32 ? average_grad_f32 : average_grad_f64) :
				     (f32 ? average_f32 : average_f64);
	if (d->backward && rows)
		return f32 ? (u8 ? max_grad_rows_u8_f32 : max_grad_rows_i32_f32) :
			     (u8 ? max_grad_rows_u8_f64 : max_grad_rows_i32_f64);
	if (d->backward)
		return f32 ? (u8 ? max_grad_u8_f32 : max_grad_i32_f32) :
			     (u8 ? max_grad_u8_f64 : max_grad_i32_f64);
	if (rows)
		return f32 ? (u8 ? max_rows_u8_f32 : max_rows_i32_f32) :
			     (u8 ? max_rows_u8_f64 : max_rows_i32_f64);
	return f32 ? (u8 ? max_u8_f32 : max_i32_f32) : (u8 ? max_u8_f64 : max_i32_f64);
}

struct pool_job { const struct pool_kernel *p; const struct dlb_run *run; };

static void pool_part(const void *ctx, int part, int parts)
{
	const struct pool_job *job = ctx;
	const struct pool_kernel *p = job->p;
	const int64_t n = p->n * p->c_outer;

	char *scratch = p->part_bytes ? (char *)job->run->scratch + (size_t)part * p->part_bytes : NULL;

	p->fn(p, job->run, cpu_cut(n, part, parts), cpu_cut(n, part + 1, parts), scratch);
}

static void pool_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct pool_job job = { (const struct pool_kernel *)k, r };

	dlb_cpu_parallel(job.p->parts, pool_part, &job);
}

int dlb_cpu_pool(struct dlb_backend *b, const struct dlb_pool_desc *d, struct dlb_kernel **k,
		 struct dlb_error *err)
{
	struct pool_kernel *p;
	int n_sp = d->x.n_dims - 2;
	int64_t sx[DLB_MAX_DIMS], sy[DLB_MAX_DIMS], window = 1;
	bool rows;

	if (n_sp < 1 || n_sp > 3 || (d->x.dtype != DLB_F32 && d->x.dtype != DLB_F64))
		return DLB_NO_KERNEL;
	if (d->y.n_dims != d->x.n_dims || d->y.dim[0] != d->x.dim[0] || d->y.dim[1] != d->x.dim[1])
		return dlb_fail(err, NULL, "pooling keeps batch and channels");
	for (int i = 0; i < n_sp; i++) {
		if (d->kernel[i] < 1 || d->stride[i] < 1 || d->dilation[i] < 1)
			return dlb_fail(err, NULL, "pooling needs kernel, stride and dilation of at least 1");
		if (window > INT32_MAX / d->kernel[i])
			return dlb_fail(err, NULL, "a pooling window of more than 2^31 elements");
		window *= d->kernel[i];
	}
	if (d->max && d->pos == DLB_U8 && window > 255)
		return dlb_fail(err, NULL, "a window of %lld elements does not fit u8 positions",
				(long long)window);
	p = dlb_xcalloc(1, sizeof *p);
	dlb_desc_strides(&d->x, sx);
	dlb_desc_strides(&d->y, sy);
	p->n = d->x.dim[0];
	p->xn = sx[0], p->xc = sx[1], p->yn = sy[0], p->yc = sy[1];
	p->c_outer = d->x.dim[1];
	p->c_inner = 1;
	if (sx[1] == 1 && sy[1] == 1) {
		p->c_inner = p->c_outer;
		p->c_outer = 1;
	}
	for (int i = 0; i < 3; i++) {
		int j = i - (3 - n_sp);			/* missing dimensions are 1, first */

		p->in[i] = j < 0 ? 1 : d->x.dim[j + 2];
		p->out[i] = j < 0 ? 1 : d->y.dim[j + 2];
		p->xs[i] = j < 0 ? 0 : sx[j + 2];
		p->ys[i] = j < 0 ? 0 : sy[j + 2];
		p->size[i] = j < 0 ? 1 : d->kernel[j];
		p->step[i] = j < 0 ? 1 : d->stride[j];
		p->dil[i] = j < 0 ? 1 : d->dilation[j];
		p->pad[i] = j < 0 ? 0 : d->pad_begin[j];
		index_dimension(p, i, j < 0 ? 0 : d->pad_end[j], d->count_include_pad);
	}
	rows = d->max && p->c_inner < FEW && p->xs[2] == p->c_inner && p->ys[2] == p->c_inner &&
		(p->in[2] + p->size[2]) * p->c_inner < INT32_MAX;
	p->fn = choose(d, rows);
	p->parts = dlb_cpu_parts(b, dlb_desc_count(&d->x), p->n * p->c_outer);
	if (rows)
		index_rows(p, d->backward);
	p->k = (struct dlb_kernel){ .run = pool_run, .free = pool_free, .impl = "loop",
				    .scratch_bytes = (size_t)p->parts * p->part_bytes };
	*k = &p->k;
	return 0;
}
