/* Elementwise functions with broadcasting.
 *
 * Each function of map_list.h becomes, per type, one loop over contiguous rows (map_row.h), which the
 * odometer here feeds. Operands that are not contiguous along the innermost loop (a scalar, a stride) are
 * first copied to a small buffer that stays in L1. */
/* clang warns that loops over C library functions cannot be vectorized, at the place
 * where the list was first included. */
#ifdef __clang__
#pragma clang diagnostic ignored "-Wpass-failed"
#endif

#include <math.h>

#include "tensor/cpu/cpu.h"
#include "tensor/cpu/real_math.h"
#include "tensor/cpu/threads.h"
#include "tensor/loops.h"

#define ROW 512				/* elements per chunk */

struct params { double alpha, beta; };
typedef void row_fn(void *o, const void *a, const void *b, const void *c, const struct params *p, int64_t n);

#ifndef DLB_LEVEL
static int64_t saturate(double v, int64_t least, int64_t most)
{
	return isnan(v) ? 0 : v <= (double)least ? least : v >= (double)most ? most : (int64_t)v;
}
#endif

/* ---- floating types ---- */
#define T_IS_FLOAT 1
#define PARAM(x) ((T)(x))
#include "tensor/map_real.h"
static inline float f32_fmod(float a, float b) { return fmodf(a, b); }
static inline double f64_fmod(double a, double b) { return fmod(a, b); }
static inline float f32_python_mod(float a, float b)
{
	float r = fmodf(a, b);

	return r == 0 ? copysignf(0, b) : (r < 0) != (b < 0) ? r + b : r;
}
static inline double f64_python_mod(double a, double b)
{
	double r = fmod(a, b);

	return r == 0 ? copysign(0, b) : (r < 0) != (b < 0) ? r + b : r;
}
#include "tensor/cpu/f32.h"
#include "tensor/cpu/map_row.h"
#include "tensor/cpu/f64.h"
#include "tensor/cpu/map_row.h"
#undef T_IS_FLOAT
#undef PARAM

/* ---- integers: wrap as two's complement; x/0 = 0. Never the slow part, so all levels share one copy ---- */
extern row_fn *const *const dlb_cpu_int_rows[DLB_N_DTYPES];
#ifndef DLB_LEVEL
#define PARAM(x) ((T)saturate(x, T_LEAST, T_MOST))
#include "tensor/map_int.h"

#define BODY "tensor/cpu/map_row.h"
#include "tensor/cpu/int_types.h"
#undef BODY

row_fn *const *const dlb_cpu_int_rows[DLB_N_DTYPES] = {
	[DLB_I8] = rows_i8, [DLB_I16] = rows_i16, [DLB_I32] = rows_i32, [DLB_I64] = rows_i64,
	[DLB_U8] = rows_u8, [DLB_U16] = rows_u16, [DLB_U32] = rows_u32, [DLB_U64] = rows_u64,
};
#endif

static row_fn *const *rows_of(enum dlb_dtype t)
{
	return t == DLB_F32 ? rows_f32 : t == DLB_F64 ? rows_f64 : dlb_cpu_int_rows[t];
}

/* ---- the kernel ---- */
struct map_kernel {
	struct dlb_kernel k;
	row_fn *row;
	struct params p;
	struct dlb_nest nest;		/* operand 0 is the output */
	size_t bytes[DLB_NEST_OPERANDS];
	int parts;			/* of the outer loops; with by_row, of the innermost */
	bool empty, by_row;
};
struct map_job { const struct map_kernel *m; const struct dlb_run *run; };

/* Copies n elements with a stride to a contiguous buffer. */
static void gather(void *to, const char *from, size_t bytes, int64_t stride, int64_t n)
{
	switch (bytes) {
#define GATHER(type) do { \
		type *t = to; \
		const type *f = (const void *)from; \
		for (int64_t i = 0; i < n; i++) \
			t[i] = f[i * stride]; \
	} while (0)
	case 1: GATHER(uint8_t); break;
	case 2: GATHER(uint16_t); break;
	case 4: GATHER(uint32_t); break;
	default: GATHER(uint64_t);
#undef GATHER
	}
}

static void scatter(char *to, const void *from, size_t bytes, int64_t stride, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		memcpy(to + i * stride * (int64_t)bytes, (const char *)from + i * (int64_t)bytes, bytes);
}

static void map_part(const void *ctx, int part, int parts)
{
	const struct map_job *job = ctx;
	const struct map_kernel *m = job->m;
	const struct dlb_nest *nest = &m->nest;
	const int inner = nest->n_dims - 1, n_ops = nest->n_operands;
	const int64_t n = inner < 0 ? 1 : nest->dim[inner], outer = dlb_nest_count(nest, inner);
	const int64_t from = m->by_row ? cpu_cut(n, part, parts) : 0,
		      end = m->by_row ? cpu_cut(n, part + 1, parts) : n;
	int64_t o0 = m->by_row ? 0 : cpu_cut(outer, part, parts),
		o1 = m->by_row ? outer : cpu_cut(outer, part + 1, parts);
	int64_t pos[DLB_MAX_DIMS] = { 0 }, at[DLB_NEST_OPERANDS] = { 0 };
	char *base[DLB_NEST_OPERANDS] = { job->run->out[0] };
	uint64_t buf[DLB_NEST_OPERANDS][ROW];
	bool scalar_ready[DLB_NEST_OPERANDS] = { false };

	for (int o = 1; o < n_ops; o++)
		base[o] = job->run->in[o - 1];
	dlb_nest_seek(nest, inner, o0, pos, at);
	for (; o0 < o1; o0++) {
		for (int o = 0; o < n_ops; o++)
			scalar_ready[o] = false;
		for (int64_t i = from; i < end; i += ROW) {
			int64_t len = end - i < ROW ? end - i : ROW;
			void *p[DLB_NEST_OPERANDS] = { NULL };
			int64_t s0 = inner < 0 ? 1 : nest->stride[0][inner];

			for (int o = 0; o < n_ops; o++) {
				int64_t s = inner < 0 ? 1 : nest->stride[o][inner];

				p[o] = base[o] + (at[o] + i * s) * (int64_t)m->bytes[o];
				if (s == 1)
					continue;
				if (o > 0 && !scalar_ready[o])
					gather(buf[o], p[o], m->bytes[o], s, len);
				scalar_ready[o] = s == 0;
				p[o] = buf[o];
			}
			m->row(p[0], p[1], p[2], p[3], &m->p, len);
			if (s0 != 1)
				scatter(base[0] + (at[0] + i * s0) * (int64_t)m->bytes[0], p[0], m->bytes[0],
					s0, len);
		}
		dlb_nest_step(nest, inner, pos, at);
	}
}

static void map_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct map_job job = { (const struct map_kernel *)k, r };

	if (!job.m->empty)
		dlb_cpu_parallel(job.m->parts, map_part, &job);
}

int dlb_cpu_map(struct dlb_backend *b, const struct dlb_map_desc *d, struct dlb_kernel **k,
		struct dlb_error *err)
{
	struct map_kernel *m;
	struct dlb_nest nest;
	enum dlb_dtype of;
	int rc = dlb_map_loops(d, &of, &nest, err);

	if (rc)
		return rc;
	if (!rows_of(of) || !rows_of(of)[d->fn])
		return DLB_NO_KERNEL;
	m = dlb_xcalloc(1, sizeof *m);
	m->empty = dlb_desc_count(&d->out) == 0;
	m->nest = nest;
	if (!m->empty) {
		const int64_t outer = dlb_nest_count(&nest, nest.n_dims - 1);

		m->by_row = outer < 8 * b->n_threads;
		m->parts = dlb_cpu_parts(b, dlb_desc_count(&d->out),
					 m->by_row ? (nest.n_dims ? nest.dim[nest.n_dims - 1] : 1) : outer);
	}
	m->row = rows_of(of)[d->fn];
	m->p = (struct params){ d->alpha, d->beta };
	m->bytes[0] = dlb_dtype_bytes(d->out.dtype);
	for (int o = 0; o < d->n_in; o++)
		m->bytes[o + 1] = dlb_dtype_bytes(d->in[o].dtype);
	m->k = (struct dlb_kernel){ .run = map_run, .free = dlb_cpu_kernel_free, .impl = "loop" };
	*k = &m->k;
	return 0;
}
