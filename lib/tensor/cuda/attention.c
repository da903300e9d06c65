/* Attention. f32 and f64 (attention.cu) are computed as on the cpu: one launch forward, up to three backward.
 * bf16 is computed by tensor cores (attention_bf16.cuh): one launch forward, two backward. */
#include <stdio.h>
#include <stdlib.h>

#include "tensor/cuda/attention.h"
#include "tensor/cuda/cuda.h"
#include "util/mem.h"

struct attention_launches {
	cudaKernel_t forward, mean, dq, dkv;
};
struct attention_kernel {
	struct dlb_kernel k;
	struct cuda *c;
	struct cuda_attention a;
	int64_t columns; /* columns of the result that a block computes */
	struct attention_launches by, any; /* any: of bf16, for operands that `by` does not take */
};

static int64_t tiles(int64_t n, int64_t size) { return (n + size - 1) / size; }

static void forward_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct attention_kernel *n = (const struct attention_kernel *)k;
	struct cuda_attention a = n->a;

	dlb_cuda_operands(&a.p, r, 5, 3);
	a.parts = tiles(a.d.v_width, n->columns);
	a.blocks = a.d.batch * a.d.heads * a.row_tiles * a.parts;
	dlb_cuda_launch_rows(n->c, n->by.forward, &a, a.blocks);
}

static void backward_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct attention_kernel *n = (const struct attention_kernel *)k;
	struct cuda_attention a = n->a;

	dlb_cuda_operands(&a.p, r, 7, 4);
	a.parts = 1;
	a.blocks = a.d.batch * a.d.heads * a.row_tiles;
	if (a.p.out[0] || a.p.out[1] || a.p.out[3])
		dlb_cuda_launch_rows(n->c, n->by.mean, &a, a.blocks);
	if (a.p.out[0])
		a.parts = tiles(a.d.width, n->columns);
	a.blocks *= a.parts;
	if (a.p.out[0] || a.p.out[3])
		dlb_cuda_launch_rows(n->c, n->by.dq, &a, a.blocks);
	a.v_parts = a.p.out[2] ? tiles(a.d.v_width, n->columns) : 0;
	a.parts = a.v_parts + (a.p.out[1] ? tiles(a.d.width, n->columns) : 0);
	a.blocks = a.d.batch * a.d.kv_heads * a.key_tiles * a.parts;
	dlb_cuda_launch_rows(n->c, n->by.dkv, &a, a.blocks);
}

/* Finds kernel attention_STEM_TYPE. */
static int find(struct cuda *c, const char *stem, const char *type, cudaKernel_t *f, struct dlb_error *err)
{
	char name[64];

	snprintf(name, sizeof name, "attention_%s_%s", stem, type);
	*f = dlb_cuda_find(c, name, err);
	return *f ? 0 : -1;
}

/* ---- bf16 ---- */
static bool whole(const int64_t stride[3])
{
	return stride[0] % ATTENTION_RUN_BF16 == 0 && stride[1] % ATTENTION_RUN_BF16 == 0 &&
	       stride[2] % ATTENTION_RUN_BF16 == 0;
}

/* Whether all rows begin at multiples of 16 bytes and consist of whole runs. */
static bool is_aligned(const struct cuda_attention *a)
{
	const struct dlb_attention_desc *d = &a->d;
	const void *const at[] = { a->p.in[0],
				   a->p.in[1],
				   a->p.in[2],
				   d->backward ? a->p.in[5] : NULL,
				   a->p.out[0],
				   a->p.out[1],
				   d->backward ? a->p.out[2] : NULL };
	bool aligned = d->width % ATTENTION_RUN_BF16 == 0 && d->v_width % ATTENTION_RUN_BF16 == 0 &&
		       whole(d->q) && whole(d->k) && whole(d->v) && whole(d->y);

	for (int i = 0; i < DLB_LEN(at); i++)
		aligned &= (uintptr_t)at[i] % CUDA_ALIGN == 0;
	return aligned;
}

/* Returns the kernels for these operands; `by` and `any` give the same bits. */
static const struct attention_launches *launches_of(const struct attention_kernel *n,
						    const struct cuda_attention *a)
{
	const bool told = a->p.in[3] || a->d.softcap > 0 || a->p.out[a->d.backward ? 3 : 2];

	return told || !is_aligned(a) ? &n->any : &n->by;
}

static void forward_bf16_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct attention_kernel *n = (const struct attention_kernel *)k;
	struct cuda_attention a = n->a;

	dlb_cuda_operands(&a.p, r, 5, 3);
	a.blocks = a.d.batch * a.d.heads * a.row_tiles;
	dlb_cuda_launch_rows(n->c, launches_of(n, &a)->forward, &a, a.blocks);
}

static void backward_bf16_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct attention_kernel *n = (const struct attention_kernel *)k;
	struct cuda_attention a = n->a;

	dlb_cuda_operands(&a.p, r, 7, 4);
	a.blocks = a.d.batch * a.d.heads * a.row_tiles;
	dlb_cuda_launch_rows(n->c, launches_of(n, &a)->dq, &a, a.blocks);
	a.blocks = a.d.batch * a.d.kv_heads * a.key_tiles;
	if (a.p.out[1] || a.p.out[2])
		dlb_cuda_launch_rows(n->c, launches_of(n, &a)->dkv, &a, a.blocks);
}

/* Whether the kernels for tensor cores take these operands. Other bf16 operands are cast to f32. */
static bool fits_bf16(const struct dlb_attention_desc *d)
{
	return !d->whole && d->mask_type != DLB_BF16 && d->width <= ATTENTION_WIDE_WIDTH_BF16 &&
	       d->v_width <= ATTENTION_WIDE_WIDTH_BF16;
}

/* How kernels of one type are found and run. */
struct attention_kind {
	/* ends of names: kernels, _mean (NULL: _dq computes it), kernels for any operands (NULL: none) */
	const char *type, *mean, *any;
	int64_t tile, columns;
	size_t scratch_size; /* bytes per row */
	void (*forward)(struct dlb_kernel *k, const struct dlb_run *r);
	void (*backward)(struct dlb_kernel *k, const struct dlb_run *r);
};
static const struct attention_kind f32_kind = { .type = "f32",
						.mean = "f32",
						.tile = ATTENTION_TILE_F32,
						.columns = ATTENTION_COLUMNS,
						.scratch_size = sizeof(float),
						.forward = forward_run,
						.backward = backward_run };
static const struct attention_kind wide_kind = { .type = "wide_f32",
						 .mean = "f32",
						 .tile = ATTENTION_TILE_F32,
						 .columns = ATTENTION_WIDE_COLUMNS,
						 .scratch_size = sizeof(float),
						 .forward = forward_run,
						 .backward = backward_run };
static const struct attention_kind f64_kind = { .type = "f64",
						.mean = "f64",
						.tile = ATTENTION_TILE_F64,
						.columns = ATTENTION_COLUMNS,
						.scratch_size = sizeof(double),
						.forward = forward_run,
						.backward = backward_run };
static const struct attention_kind bf16_kind = { .type = "bf16",
						 .any = "any_bf16",
						 .tile = ATTENTION_TILE_BF16,
						 .scratch_size = sizeof(float),
						 .forward = forward_bf16_run,
						 .backward = backward_bf16_run };

static const struct attention_kind wide_bf16_kind = { .type = "wide_bf16",
						      .any = "any_wide_bf16",
						      .tile = ATTENTION_TILE_BF16,
						      .scratch_size = sizeof(float),
						      .forward = forward_bf16_run,
						      .backward = backward_bf16_run };

static const struct attention_kind *bf16_kind_of(const struct dlb_attention_desc *d)
{
	if (!fits_bf16(d))
		return NULL;
	return d->width > ATTENTION_WIDTH_BF16 || d->v_width > ATTENTION_WIDTH_BF16 ? &wide_bf16_kind :
										      &bf16_kind;
}

/* Returns the kind for d; NULL: there are no kernels. */
static const struct attention_kind *kind_of(const struct dlb_attention_desc *d)
{
	if (d->dtype == DLB_BF16)
		return bf16_kind_of(d);
	if (d->dtype == DLB_F64)
		return &f64_kind;
	if (d->dtype != DLB_F32)
		return NULL;
	return d->width > ATTENTION_COLUMNS || d->v_width > ATTENTION_COLUMNS ? &wide_kind : &f32_kind;
}

static int find_all(struct cuda *c, bool backward, const char *type, const char *mean,
		    struct attention_launches *l, struct dlb_error *err)
{
	if (!backward)
		return find(c, "forward", type, &l->forward, err);
	if (mean && find(c, "mean", mean, &l->mean, err))
		return -1;
	return find(c, "dq", type, &l->dq, err) || find(c, "dkv", type, &l->dkv, err) ? -1 : 0;
}

PREPARE(attention)
{
	const struct attention_kind *kind = kind_of(d);
	struct attention_kernel *n;

	if (!kind)
		return DLB_NO_KERNEL;
	n = dlb_xcalloc(1, sizeof *n);
	n->c = cuda_of(b);
	n->columns = kind->columns;
	n->a = (struct cuda_attention){ .d = *d,
					.row_tiles = tiles(d->rows, kind->tile),
					.key_tiles = tiles(d->keys, kind->tile) };
	if (find_all(n->c, d->backward, kind->type, kind->mean, &n->by, err) ||
	    (kind->any && find_all(n->c, d->backward, kind->any, NULL, &n->any, err))) {
		free(n);
		return -1;
	}
	n->k = (struct dlb_kernel){ .run = d->backward ? kind->backward : kind->forward,
				    .free = dlb_cuda_kernel_free,
				    .impl = "cuda" };
	if (d->backward)
		n->k.scratch_bytes = (size_t)(d->batch * d->heads * d->rows) * kind->scratch_size;
	*k = &n->k;
	return 0;
}
