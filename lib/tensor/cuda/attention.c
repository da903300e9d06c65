/* Attention (attention.cu) of f32 and f64, as the cpu has it: one launch forward, up to three backward. */
#include <stdio.h>
#include <stdlib.h>

#include "tensor/cuda/attention.h"
#include "tensor/cuda/cuda.h"
#include "util/mem.h"

struct attention_kernel {
	struct dlb_kernel k;
	struct cuda *c;
	struct cuda_attention a;
	int64_t columns; /* of a result that a block computes */
	cudaKernel_t forward, mean, dq, dkv;
};

static int64_t tiles(int64_t n, int64_t size) { return (n + size - 1) / size; }

static void forward_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct attention_kernel *n = (const struct attention_kernel *)k;
	struct cuda_attention a = n->a;

	dlb_cuda_operands(&a.p, r, 5, 3);
	a.parts = tiles(a.d.v_width, n->columns);
	a.blocks = a.d.batch * a.d.heads * a.row_tiles * a.parts;
	dlb_cuda_launch_rows(n->c, n->forward, &a, a.blocks);
}

static void backward_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct attention_kernel *n = (const struct attention_kernel *)k;
	struct cuda_attention a = n->a;

	dlb_cuda_operands(&a.p, r, 7, 4);
	a.parts = 1;
	a.blocks = a.d.batch * a.d.heads * a.row_tiles;
	if (a.p.out[0] || a.p.out[1] || a.p.out[3])
		dlb_cuda_launch_rows(n->c, n->mean, &a, a.blocks);
	if (a.p.out[0])
		a.parts = tiles(a.d.width, n->columns);
	a.blocks *= a.parts;
	if (a.p.out[0] || a.p.out[3])
		dlb_cuda_launch_rows(n->c, n->dq, &a, a.blocks);
	a.v_parts = a.p.out[2] ? tiles(a.d.v_width, n->columns) : 0;
	a.parts = a.v_parts + (a.p.out[1] ? tiles(a.d.width, n->columns) : 0);
	a.blocks = a.d.batch * a.d.kv_heads * a.key_tiles * a.parts;
	dlb_cuda_launch_rows(n->c, n->dkv, &a, a.blocks);
}

/* Finds kernel attention_STEM_TYPE. */
static int find(struct cuda *c, const char *stem, const char *type, cudaKernel_t *f, struct dlb_error *err)
{
	char name[64];

	snprintf(name, sizeof name, "attention_%s_%s", stem, type);
	*f = dlb_cuda_find(c, name, err);
	return *f ? 0 : -1;
}

PREPARE(attention)
{
	const bool f32 = d->dtype == DLB_F32;
	const int64_t tile = f32 ? ATTENTION_TILE_F32 : ATTENTION_TILE_F64;
	const bool wide = f32 && (d->width > ATTENTION_COLUMNS || d->v_width > ATTENTION_COLUMNS);
	const char *type = wide ? "wide_f32" : f32 ? "f32" : "f64";
	struct attention_kernel *n;

	if (!f32 && d->dtype != DLB_F64)
		return DLB_NO_KERNEL;
	n = dlb_xcalloc(1, sizeof *n);
	n->c = cuda_of(b);
	n->columns = wide ? ATTENTION_WIDE_COLUMNS : ATTENTION_COLUMNS;
	n->a = (struct cuda_attention){ .d = *d,
					.row_tiles = tiles(d->rows, tile),
					.key_tiles = tiles(d->keys, tile) };
	if (d->backward ?
		    find(n->c, "mean", f32 ? "f32" : "f64", &n->mean, err) ||
			    find(n->c, "dq", type, &n->dq, err) || find(n->c, "dkv", type, &n->dkv, err) :
		    find(n->c, "forward", type, &n->forward, err)) {
		free(n);
		return -1;
	}
	n->k = (struct dlb_kernel){ .run = d->backward ? backward_run : forward_run,
				    .free = dlb_cuda_kernel_free,
				    .impl = "cuda" };
	if (d->backward)
		n->k.scratch_bytes = (size_t)(d->batch * d->heads * d->rows) * dlb_dtype_bytes(d->dtype);
	*k = &n->k;
	return 0;
}
