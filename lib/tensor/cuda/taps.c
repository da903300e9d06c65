/* Sums of listed elements (taps.cu). The lists are in device memory that the kernel owns. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/cuda/cuda.h"
#include "tensor/cuda/taps.h"
#include "util/mem.h"

struct taps_kernel {
	struct dlb_kernel k;
	struct dlb_backend *b;
	struct cuda_taps a;
	cudaKernel_t f;
	void *table;
};

static void taps_run(struct dlb_kernel *kernel, const struct dlb_run *r)
{
	struct taps_kernel *k = (struct taps_kernel *)kernel;

	dlb_cuda_operands(&k->a.p, r, 2, 1);
	k->a.p.in[2] = k->table;
	dlb_cuda_launch(cuda_of(k->b), k->f, &k->a, k->a.count);
}

static void taps_free(struct dlb_kernel *kernel)
{
	struct taps_kernel *k = (struct taps_kernel *)kernel;

	if (k->table)
		dlb_cuda_free(k->b, k->table);
	free(k);
}

/* Returns the table of cuda_taps in host memory (new); sets a's places in the table. */
static char *make_table(const struct dlb_taps_desc *d, struct cuda_taps *a, size_t *bytes)
{
	int64_t n_taps = 0, n_ends = 0;
	struct dlb_tap *tap;

	for (int i = 0; i < d->n_dims; i++)
		if (a->list[i] >= 0) {
			const int64_t n = d->y[i];

			a->tap_at[a->list[i]] = n_taps;
			n_taps += n ? d->end[i][n - 1] : 0;
			n_ends += n;
		}
	*bytes = (size_t)n_taps * sizeof *tap + (size_t)n_ends * sizeof(int64_t);
	tap = dlb_xcalloc(1, *bytes + 1);
	n_ends = 2 * n_taps;
	for (int i = 0; i < d->n_dims; i++)
		if (a->list[i] >= 0) {
			const int64_t n = d->y[i], taps = n ? d->end[i][n - 1] : 0;

			a->end_at[a->list[i]] = n_ends;
			if (n)
				memcpy((int64_t *)(void *)tap + n_ends, d->end[i], (size_t)n * sizeof(int64_t));
			n_ends += n;
			for (int64_t t = 0; t < taps; t++)
				tap[a->tap_at[a->list[i]] + t] =
					(struct dlb_tap){ d->tap[i][t].from * a->stride[i], d->tap[i][t].w };
		}
	return (char *)tap;
}

static cudaKernel_t find_kernel(struct cuda *c, const struct dlb_taps_desc *d)
{
	char stem[48];

	snprintf(stem, sizeof stem, "taps_%s_%s", dlb_dtype_name(d->in), dlb_dtype_name(d->out));
	if (!d->move)
		return dlb_cuda_find_typed(c, stem, d->sum);
	snprintf(stem, sizeof stem, "taps_move_%zu", dlb_dtype_bytes(d->out));
	return dlb_cuda_find(c, stem, NULL);
}

PREPARE(taps)
{
	struct cuda_taps a = { .n_dims = d->n_dims, .count = 1 };
	const cudaKernel_t f = find_kernel(cuda_of(b), d);
	struct taps_kernel *t;
	int64_t stride = 1;
	size_t bytes;
	char *host;

	if (!f)
		return DLB_NO_KERNEL;
	for (int i = 0; i < d->n_dims; i++)
		a.list[i] = d->tap[i] ? a.n_lists++ : -1;
	for (int i = d->n_dims - 1; i >= 0; i--) {
		a.dim[i] = d->y[i];
		a.stride[i] = stride;
		a.count *= d->y[i];
		stride *= d->x[i];
	}
	host = make_table(d, &a, &bytes);
	t = dlb_xcalloc(1, sizeof *t);
	*t = (struct taps_kernel){
		.k = { .run = taps_run, .free = taps_free, .packed_bytes = bytes, .impl = "cuda" },
		.b = b,
		.a = a,
		.f = f,
		.table = dlb_cuda_alloc(b, bytes)
	};
	if (t->table)
		dlb_cuda_upload(b, t->table, host, bytes);
	free(host);
	if (!t->table) {
		taps_free(&t->k);
		return dlb_fail(err, NULL, "no memory for tables of %zu bytes on this device", bytes);
	}
	*k = &t->k;
	return 0;
}
