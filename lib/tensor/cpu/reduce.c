/* Reductions over any axes. Loops are split into kept and reduced ones, each in memory order of the input.
 * Sums of floats run in double, in an order that depends only on the shape. */
#include <math.h>

#include "tensor/cpu/cpu.h"
#include "tensor/cpu/threads.h"
#include "tensor/loops.h"

#define STRIP 256			/* adjacent results computed side by side */

struct reduce_kernel {
	struct dlb_kernel k;
	enum dlb_reduce_fn fn;
	struct dlb_nest kept, reduced;	/* kept: operands in, out; reduced: in */
	int64_t count;			/* elements per result */
	bool empty, strips;		/* empty: no results */
	int parts;			/* of the kept loops; with by_block, of the innermost */
	bool by_block;
	dlb_cpu_part_fn *part;
};
struct reduce_job { const struct reduce_kernel *r; const struct dlb_run *run; };

#define T_IS_FLOAT 1
#define A double
#include "tensor/cpu/f32.h"
#include "tensor/cpu/reduce_real.h"
#include "tensor/cpu/f64.h"
#include "tensor/cpu/reduce_real.h"
#undef T_IS_FLOAT
#undef A
#define BODY "tensor/cpu/reduce_real.h"
#include "tensor/cpu/int_types.h"
#undef BODY

static dlb_cpu_part_fn *const part_of[DLB_N_DTYPES] = {
	[DLB_F32] = reduce_part_f32, [DLB_F64] = reduce_part_f64, [DLB_I8] = reduce_part_i8,
	[DLB_I16] = reduce_part_i16, [DLB_I32] = reduce_part_i32, [DLB_I64] = reduce_part_i64,
	[DLB_U8] = reduce_part_u8,   [DLB_U16] = reduce_part_u16, [DLB_U32] = reduce_part_u32,
	[DLB_U64] = reduce_part_u64, [DLB_BOOL] = reduce_part_u8,
};

static void reduce_run(struct dlb_kernel *k, const struct dlb_run *run)
{
	const struct reduce_job job = { (const struct reduce_kernel *)k, run };

	if (!job.r->empty)
		dlb_cpu_parallel(job.r->parts, job.r->part, &job);
}

int dlb_cpu_reduce(struct dlb_backend *b, const struct dlb_reduce_desc *d, struct dlb_kernel **k,
		   struct dlb_error *err)
{
	struct reduce_kernel *r;
	struct dlb_nest kept, reduced;

	if (!part_of[d->in.dtype])
		return DLB_NO_KERNEL;
	if (dlb_reduce_loops(d, &kept, &reduced, err))
		return -1;
	r = dlb_xcalloc(1, sizeof *r);
	r->kept = kept;
	r->reduced = reduced;
	r->strips = r->kept.n_dims && r->kept.stride[0][r->kept.n_dims - 1] == 1;
	r->count = 1;
	for (int i = 0; i < d->in.n_dims; i++)
		r->count *= d->axes >> i & 1 ? d->in.dim[i] : 1;
	r->fn = d->fn;
	r->empty = dlb_desc_count(&d->out) == 0;
	r->part = part_of[d->in.dtype];
	r->parts = 1;
	if (!r->empty) {
		const int in_k = r->kept.n_dims - 1;
		const int64_t outer = dlb_nest_count(&r->kept, in_k), n_k = in_k < 0 ? 1 : r->kept.dim[in_k];
		const int64_t blocks = r->strips ? (n_k + STRIP - 1) / STRIP : n_k;

		r->by_block = outer < 8 * b->n_threads;
		r->parts = dlb_cpu_parts(b, dlb_desc_count(&d->in), r->by_block ? blocks : outer);
	}
	r->k = (struct dlb_kernel){ .run = reduce_run, .free = dlb_cpu_kernel_free, .impl = "loop" };
	*k = &r->k;
	return 0;
}
