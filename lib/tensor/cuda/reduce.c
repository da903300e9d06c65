/* Reductions (reduce.cu). Cuts a shape for devices that some ten thousand threads keep busy. */
#include <stdio.h>

#include "tensor/cuda/cuda.h"
#include "tensor/cuda/reduce.h"
#include "tensor/loops.h"
#include "util/mem.h"

enum {
	BUSY_THREADS = 1 << 17,
	BUSY_BLOCKS = 1 << 10,
	LEAST_OF_THREAD = 32,
	LEAST_OF_BLOCK = 1 << 14, /* elements of a part */
	LEAST_OF_COLUMN = 32
};

struct reduce_kernel {
	struct dlb_kernel k;
	struct cuda *c;
	struct cuda_reduce args;
	cudaKernel_t f, join;		/* join: NULL with one part */
	bool columns;
};

static void reduce_run(struct dlb_kernel *k, const struct dlb_run *run)
{
	struct reduce_kernel *r = (struct reduce_kernel *)k;
	const int64_t n = r->args.kept.count * r->args.parts, groups = CUDA_THREADS / r->args.width;

	dlb_cuda_operands(&r->args.p, run, 1, 1);
	if (r->columns) {
		r->args.aligned = dlb_cuda_aligned(&r->args.p, 1, 0);
		dlb_cuda_launch_rows(r->c, r->f, &r->args, r->args.m.groups * r->args.m.chunks);
		dlb_cuda_launch_rows(r->c, r->join, &r->args, r->args.m.join_blocks);
		return;
	}
	if (r->args.width == 1)
		dlb_cuda_launch(r->c, r->f, &r->args, n);
	else
		dlb_cuda_launch_rows(r->c, r->f, &r->args, (n + groups - 1) / groups);
	if (r->join)
		dlb_cuda_launch_rows(r->c, r->join, &r->args, r->args.kept.count);
}

static int64_t least_of(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t quotient_up(int64_t a, int64_t b)
{
	return (a + b - 1) / b;
}

/* Chooses the threads of a result, and its parts. Short rows, and neighbouring results whose elements lie
 * side by side, get a thread each. A result is cut into parts only if there are too few results to keep a
 * device busy. */
static void cut(struct cuda_reduce *a, int64_t side_by_side)
{
	const int64_t results = a->kept.count, n = a->reduced.count;
	int64_t parts;

	a->width = dlb_cuda_row_width(n, side_by_side);
	a->parts = 1;
	a->chunk = n;
	if (results == 0)
		return;
	parts = a->width == 1 ? least_of(quotient_up(BUSY_THREADS, results), n / LEAST_OF_THREAD) :
				least_of(quotient_up(BUSY_BLOCKS, results), n / LEAST_OF_BLOCK);
	if (parts < 2)
		return;
	a->chunk = quotient_up(n, parts);
	a->parts = quotient_up(n, a->chunk);
}

/* Whether these are sums or means over the rows of a matrix without gaps. */
static bool has_columns(const struct cuda_reduce *a)
{
	const struct cuda_nest *kept = &a->kept, *reduced = &a->reduced;

	return (a->fn == DLB_REDUCE_FN_SUM || a->fn == DLB_REDUCE_FN_MEAN) && kept->n_dims == 1 &&
	       reduced->n_dims == 1 && kept->stride[0][0] == 1 && kept->stride[1][0] == 1 &&
	       reduced->stride[0][0] == kept->count && reduced->count >= LEAST_OF_COLUMN && kept->count > 0;
}

/* Finds the kernels for has_columns. False: these types have none. */
static bool find_columns(struct reduce_kernel *r, enum dlb_dtype in, enum dlb_dtype out)
{
	r->f = dlb_cuda_find_typed(r->c, "reduce_columns", in);
	r->join = dlb_cuda_find_typed(r->c, "reduce_columns_join", out);
	if (!r->f || !r->join)
		return false;
	r->columns = true;
	r->args.m = dlb_cuda_columns(r->args.reduced.count, r->args.kept.count, 1, dlb_cuda_run_of(in));
	r->k.scratch_bytes = (size_t)(r->args.m.chunks * r->args.m.channels) * sizeof(double);
	return true;
}

static void find_parts(struct reduce_kernel *r, bool to_f32, enum dlb_dtype out)
{
	char stem[32];

	snprintf(stem, sizeof stem, "reduce%s%s", r->args.width == 1 ? "" : "_group", to_f32 ? "_bf16" : "");
	r->f = dlb_cuda_find_typed(r->c, stem, out);
	r->join = NULL;
	if (r->args.parts > 1) {
		snprintf(stem, sizeof stem, "reduce_join%s", to_f32 ? "_bf16" : "");
		r->join = dlb_cuda_find_typed(r->c, stem, out);
		r->k.scratch_bytes = (size_t)(r->args.parts * r->args.kept.count) * sizeof(double);
	}
}

PREPARE(reduce)
{
	const bool to_f32 = d->in.dtype == DLB_BF16 && d->out.dtype == DLB_F32;
	struct dlb_reduce_desc same = *d;
	struct dlb_nest kept, reduced;
	struct reduce_kernel *r;
	struct cuda *c = cuda_of(b);

	if (to_f32)
		same.out.dtype = DLB_BF16;
	if (!dlb_cuda_find_typed(c, "reduce", d->in.dtype))
		return DLB_NO_KERNEL;
	if (dlb_reduce_loops(&same, &kept, &reduced, err))
		return -1;
	r = dlb_xcalloc(1, sizeof *r);
	r->c = c;
	r->k = (struct dlb_kernel){ .run = reduce_run, .free = dlb_cuda_kernel_free, .impl = "cuda" };
	r->args = (struct cuda_reduce){ .fn = (int)d->fn, .kept = dlb_cuda_nest(&kept),
					.reduced = dlb_cuda_nest(&reduced) };
	r->args.kept.count = dlb_desc_count(&d->out);
	cut(&r->args, kept.n_dims && kept.stride[0][kept.n_dims - 1] == 1 ? kept.dim[kept.n_dims - 1] : 1);
	if (!has_columns(&r->args) || !find_columns(r, d->in.dtype, d->out.dtype))
		find_parts(r, to_f32, d->out.dtype);
	*k = &r->k;
	return 0;
}
