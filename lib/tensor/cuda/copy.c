/* Strided copies (copy.cu). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/cuda/copy.h"
#include "tensor/cuda/cuda.h"
#include "util/mem.h"

struct copy_kernel {
	struct dlb_kernel k;
	struct cuda *c;
	struct cuda_copy args;
	cudaKernel_t f;
	int64_t count;			/* elements, or tiles; 0: nothing to copy */
	bool tiled;
	size_t zero_bytes;
};

static void copy_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	struct copy_kernel *s = (struct copy_kernel *)k;

	if (s->zero_bytes)
		dlb_cuda_note(s->c, "cudaMemsetAsync",
			      cudaMemsetAsync(r->out[0], 0, s->zero_bytes, s->c->stream));
	dlb_cuda_operands(&s->args.p, r, 1, 1);
	(s->tiled ? dlb_cuda_launch_rows : dlb_cuda_launch)(s->c, s->f, &s->args, s->count);
}

static int64_t size_of(int64_t v)
{
	return v < 0 ? -v : v;
}

static int64_t common_divisor(int64_t a, int64_t b)
{
	while (b) {
		const int64_t t = a % b;

		a = b;
		b = t;
	}
	return a;
}

/* Sets again[] for the loops that may address an element of out again. Loops are sorted by the size of their
 * strides in out, and grouped into sets. Two iterations address the same element only if the offsets of each
 * set are equal, since the offsets of a set are multiples of `step`, which is larger than the extent of all
 * smaller sets. A set of one loop thus addresses different elements; a larger set, or a loop of stride 0, may
 * address an element again. */
static void find_again(const struct dlb_nest *n, bool again[DLB_MAX_DIMS])
{
	struct { int from; int64_t step, below; } set[DLB_MAX_DIMS];
	int order[DLB_MAX_DIMS], m = 0, n_sets = 0;
	int64_t extent = 0;

	for (int i = 0; i < n->n_dims; i++) {
		int j = m++;

		again[i] = n->stride[0][i] == 0;
		if (again[i]) {
			m--;
			continue;
		}
		for (; j && size_of(n->stride[0][order[j - 1]]) > size_of(n->stride[0][i]); j--)
			order[j] = order[j - 1];
		order[j] = i;
	}
	for (int i = 0; i < m; i++) {
		const int64_t stride = size_of(n->stride[0][order[i]]);

		set[n_sets].from = i;
		set[n_sets].step = stride;
		set[n_sets++].below = extent;
		for (; n_sets > 1 && set[n_sets - 1].step <= set[n_sets - 1].below; n_sets--)
			set[n_sets - 2].step = common_divisor(set[n_sets - 2].step, set[n_sets - 1].step);
		extent += (n->dim[order[i]] - 1) * stride;
	}
	for (int s = 0; s < n_sets; s++) {
		const int end = s + 1 < n_sets ? set[s + 1].from : m;

		for (int i = set[s].from; i < end; i++)
			again[order[i]] = end - set[s].from > 1;
	}
}

static void append_loop(struct dlb_nest *to, const struct dlb_nest *from, int i)
{
	to->dim[to->n_dims] = from->dim[i];
	for (int o = 0; o < 2; o++)
		to->stride[o][to->n_dims] = from->stride[o][i];
	to->n_dims++;
}

/* Moves the two loops of a transpose from the nest to args: in is contiguous along a, out along b. False:
 * there is no transpose. */
static bool take_transpose(struct dlb_nest *n, struct cuda_copy *args)
{
	struct dlb_nest rest = { .n_operands = 2 };
	int a = -1, b = -1;

	for (int i = 0; i < n->n_dims; i++) {
		b = n->stride[0][i] == 1 && n->stride[1][i] != 1 && n->stride[1][i] != 0 ? i : b;
		a = n->stride[1][i] == 1 && n->stride[0][i] != 1 ? i : a;
	}
	/* a thin transpose would leave most of a tile empty */
	if (a < 0 || b < 0 || n->dim[a] < COPY_TILE / 4 || n->dim[b] < COPY_TILE / 4)
		return false;
	args->a = n->dim[a];
	args->b = n->dim[b];
	args->out_a = n->stride[0][a];
	args->in_b = n->stride[1][b];
	for (int i = 0; i < n->n_dims; i++)
		if (i != a && i != b)
			append_loop(&rest, n, i);
	*n = rest;
	return true;
}

/* Writes the end of the kernels' names. Returns the elements of a run, 16 bytes of the narrower type; 1: no
 * runs. */
static int kernels_of(const struct dlb_copy_desc *d, char *name, size_t size)
{
	const char *in = dlb_dtype_name(d->in), *out = dlb_dtype_name(d->out);
	const int in_bytes = (int)dlb_dtype_bytes(d->in), out_bytes = (int)dlb_dtype_bytes(d->out);

	if (d->in == d->out && !d->accumulate)
		snprintf(name, size, "%d", in_bytes);
	else if (d->in == d->out && (d->in == DLB_F32 || d->in == DLB_F64))
		snprintf(name, size, "add_%s", in);
	else if (!d->accumulate && ((d->in == DLB_F32 && d->out == DLB_BF16) ||
				    (d->in == DLB_BF16 && d->out == DLB_F32)))
		snprintf(name, size, "%s_%s", in, out);
	else {
		snprintf(name, size, "any");
		return 1;
	}
	return RUN_BYTES / (in_bytes < out_bytes ? in_bytes : out_bytes);
}

PREPARE(copy)
{
	struct copy_kernel *s = dlb_xcalloc(1, sizeof *s);
	struct dlb_nest nest = { .n_dims = d->n_dims, .n_operands = 2 }, apart = { .n_operands = 2 },
			again = { .n_operands = 2 };
	bool is_again[DLB_MAX_DIMS], empty = false;
	char ending[24], name[40];
	const int width = kernels_of(d, ending, sizeof ending);

	s->c = cuda_of(b);
	s->k = (struct dlb_kernel){ .run = copy_run, .free = dlb_cuda_kernel_free, .impl = "cuda" };
	s->zero_bytes = d->zero_first ? (size_t)d->out_count * dlb_dtype_bytes(d->out) : 0;
	s->args = (struct cuda_copy){ .in_offset = d->in_offset,
				      .out_offset = d->out_offset,
				      .in = (int)d->in,
				      .out = (int)d->out,
				      .accumulate = d->accumulate };
	for (int i = 0; i < d->n_dims; i++) {
		nest.dim[i] = d->dim[i];
		nest.stride[0][i] = d->out_stride[i];
		nest.stride[1][i] = d->in_stride[i];
		empty = empty || d->dim[i] == 0;
	}
	if (!empty) {
		dlb_nest_simplify(&nest);
		find_again(&nest, is_again);
		for (int i = 0; i < nest.n_dims; i++)
			append_loop(is_again[i] ? &again : &apart, &nest, i);
		s->tiled = d->in == d->out && !d->accumulate && !again.n_dims &&
			   take_transpose(&apart, &s->args);
	}
	s->args.apart = dlb_cuda_runs(&apart, s->tiled || again.n_dims ? 1 : width);
	s->args.again = dlb_cuda_nest(&again);
	s->count = empty ? 0 : s->args.apart.nest.count;
	if (s->tiled)
		s->count *= ((s->args.a + COPY_TILE - 1) / COPY_TILE) *
			    ((s->args.b + COPY_TILE - 1) / COPY_TILE);
	snprintf(name, sizeof name, "copy_%s%s",
		 s->tiled                ? "tile_" :
		 s->args.apart.width > 1 ? "runs_" :
					   "",
		 ending);
	s->f = dlb_cuda_find(s->c, name, err);
	if (!s->f) {
		free(s);
		return -1;
	}
	*k = &s->k;
	return 0;
}

int dlb_cuda_cast(struct dlb_backend *b, int64_t count, enum dlb_dtype from, enum dlb_dtype to,
		  struct dlb_kernel **k, struct dlb_error *err)
{
	const struct dlb_copy_desc d = { .in = from,
					 .out = to,
					 .n_dims = 1,
					 .dim = { count },
					 .in_stride = { 1 },
					 .out_stride = { 1 },
					 .out_count = count };

	return dlb_cuda_copy(b, &d, k, err);
}
