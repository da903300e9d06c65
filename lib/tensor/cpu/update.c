/* Optimizer steps, fused: one pass over weight, gradient and state. PyTorch's formulas in
 * its order of operations (torch/optim/{sgd,adagrad,rmsprop,adam,adamw}.py); scalars are
 * computed in double and rounded once. */
#include <math.h>

#include "tensor/cpu/cpu.h"
#include "tensor/cpu/real_math.h"
#include "tensor/cpu/state_block.h"
#include "tensor/cpu/threads.h"
#include "tensor/loops.h"

enum { UPDATE_BLOCK = 1 << 14 };		/* elements */

struct update_kernel {
	struct dlb_kernel k;
	struct dlb_update_desc d;
	int parts;
	dlb_cpu_part_fn *part;
};
struct update_job { const struct update_kernel *u; const struct dlb_run *run; };

#include "tensor/cpu/f32.h"
#include "tensor/cpu/update_real.h"
#include "tensor/cpu/f64.h"
#include "tensor/cpu/update_real.h"

/* As update_part_f32, of one part's blocks, with states in fewer bits: each block is decoded, updated and
 * encoded while it is in cache. */
static void update_part_small(const void *ctx, int part, int parts)
{
	const struct update_job *job = ctx;
	const struct dlb_update_desc *d = &job->u->d;
	const struct dlb_run *r = job->run;
	const struct scalars_f32 k = scalars_of_f32(d, r);
	const int64_t blocks = dlb_state_blocks(d->count, d->n_chunks),
		      end = cpu_cut(blocks, part + 1, parts);
	const int n_state = dlb_update_states(d->rule);
	struct dlb_state_span s = dlb_state_span_at(d->count, d->n_chunks, cpu_cut(blocks, part, parts));
	_Alignas(64) float state[2][DLB_STATE_BLOCK];
	bool bad = false;

	for (; s.block < end; dlb_state_next(d->count, d->n_chunks, &s)) {
		float *w = (float *)r->out[0] + s.first;

		for (int i = 0; i < n_state; i++)
			dlb_decode_span(d->code[i], d->count, r->out[1 + i], &s, state[i]);
		update_block_f32(d, &k, w, state[0], state[1], (const float *)r->in[0] + s.first, s.n);
		for (int i = 0; i < n_state; i++)
			dlb_encode_span(d->code[i], d->count, state[i], &s, r->out[1 + i]);
		bad = bad || (r->not_finite && any_not_finite_f32(w, s.n));
	}
	if (bad)
		__atomic_fetch_add(r->not_finite, 1, __ATOMIC_RELAXED);
}

static void update_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct update_job job = { (const struct update_kernel *)k, r };

	dlb_cpu_parallel(job.u->parts, job.u->part, &job);
}

int dlb_cpu_update(struct dlb_backend *b, const struct dlb_update_desc *d, struct dlb_kernel **k,
		   struct dlb_error *err)
{
	struct update_kernel *u;
	const int rc = dlb_update_check(d, err);

	if (rc)
		return rc;
	u = dlb_xcalloc(1, sizeof *u);
	u->d = *d;
	for (int i = 0; i < DLB_LEN(u->d.scale); i++)
		if (u->d.scale[i] == 0)
			u->d.scale[i] = 1;
	u->d.n_chunks = d->n_chunks ? d->n_chunks : 1;
	u->parts = dlb_cpu_parts(b, d->count,
				 dlb_update_is_small(d) ? dlb_state_blocks(d->count, u->d.n_chunks) :
							  d->count);
	u->part = dlb_update_is_small(d) ? update_part_small :
		  d->dtype == DLB_F32    ? update_part_f32 :
					   update_part_f64;
	u->k = (struct dlb_kernel){ .run = update_run, .free = dlb_cpu_kernel_free, .impl = "loop" };
	*k = &u->k;
	return 0;
}

/* ---- acc = x, acc += x ---- */
struct accumulate_kernel {
	struct dlb_kernel k;
	int64_t count;
	size_t bytes;
};

static void accumulate_first(struct dlb_kernel *k, const struct dlb_run *r)
{
	struct accumulate_kernel *a = (struct accumulate_kernel *)k;

	if (a->count && r->out[0] != r->in[0])
		memcpy(r->out[0], r->in[0], (size_t)a->count * a->bytes);
}

#define ACCUMULATE(T) \
static void accumulate_##T(struct dlb_kernel *k, const struct dlb_run *r) \
{ \
	T *acc = r->out[0]; \
	const T *x = r->in[0]; \
	int64_t n = ((struct accumulate_kernel *)k)->count; \
	_Pragma("omp simd") \
	for (int64_t i = 0; i < n; i++) \
		acc[i] += x[i]; \
}
ACCUMULATE(float)
ACCUMULATE(double)

int dlb_cpu_accumulate(struct dlb_backend *b, const struct dlb_accumulate_desc *d, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	struct accumulate_kernel *a;

	(void)b;
	(void)err;
	if (d->dtype != DLB_F32 && d->dtype != DLB_F64 && !d->first)
		return DLB_NO_KERNEL;
	a = dlb_xcalloc(1, sizeof *a);
	a->count = d->count;
	a->bytes = dlb_dtype_bytes(d->dtype);
	a->k = (struct dlb_kernel){ .run = d->first            ? accumulate_first :
					   d->dtype == DLB_F32 ? accumulate_float :
								 accumulate_double,
				    .free = dlb_cpu_kernel_free,
				    .impl = "loop" };
	*k = &a->k;
	return 0;
}

/* ---- sum of squares, in double: 8 lanes per part, so that every level adds in the same order ---- */
enum { LANES = 8, MOST_PARTS = 64 };
struct square_sum_kernel {
	struct dlb_kernel k;
	int64_t count;
	int parts;
	dlb_cpu_part_fn *part;
	double sum[MOST_PARTS];
};
struct square_sum_job { struct square_sum_kernel *s; const void *x; };

#define SQUARE_SUM(T) \
static void square_sum_##T(const void *ctx, int part, int parts) \
{ \
	const struct square_sum_job *job = ctx; \
	const int64_t from = cpu_cut(job->s->count, part, parts), n = cpu_cut(job->s->count, part + 1, parts) - from; \
	const T *x = (const T *)job->x + from; \
	double lane[LANES] = { 0 }, sum = 0; \
	int64_t i = 0; \
	for (; i + LANES <= n; i += LANES) { \
		_Pragma("omp simd") \
		for (int j = 0; j < LANES; j++) \
			lane[j] += (double)x[i + j] * (double)x[i + j]; \
	} \
	for (int j = 0; j < LANES; j++) \
		sum += lane[j]; \
	for (; i < n; i++) \
		sum += (double)x[i] * (double)x[i]; \
	job->s->sum[part] = sum; \
}
SQUARE_SUM(float)
SQUARE_SUM(double)

static void square_sum_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	struct square_sum_kernel *s = (struct square_sum_kernel *)k;
	const struct square_sum_job job = { s, r->in[0] };
	double sum = 0;

	dlb_cpu_parallel(s->parts, s->part, &job);
	for (int i = 0; i < s->parts; i++)
		sum += s->sum[i];
	*(double *)r->out[0] = sum;
}

int dlb_cpu_square_sum(struct dlb_backend *b, const struct dlb_square_sum_desc *d, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	struct square_sum_kernel *s;

	(void)err;
	if (d->dtype != DLB_F32 && d->dtype != DLB_F64)
		return DLB_NO_KERNEL;
	s = dlb_xcalloc(1, sizeof *s);
	s->count = d->count;
	s->parts = dlb_cpu_parts(b, d->count, MOST_PARTS);
	s->part = d->dtype == DLB_F32 ? square_sum_float : square_sum_double;
	s->k = (struct dlb_kernel){ .run = square_sum_run, .free = dlb_cpu_kernel_free, .impl = "loop" };
	*k = &s->k;
	return 0;
}
