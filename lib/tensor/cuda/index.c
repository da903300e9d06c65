/* Elements taken from a table, or put into it, by indices (index.cu). */
#include <stdio.h>

#include "tensor/cuda/cuda.h"
#include "tensor/cuda/index.h"
#include "util/mem.h"

struct index_kernel { struct dlb_kernel k; struct cuda *c; struct cuda_index a; cudaKernel_t f; };

static void put_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	struct index_kernel *x = (struct index_kernel *)k;
	const struct dlb_index_desc *d = &x->a.d;
	const size_t bytes = dlb_desc_bytes(&d->x);
	const bool onto_zeros = d->fn == DLB_INDEX_PUT_ONTO_ZEROS;

	if (onto_zeros && bytes)
		dlb_cuda_note(x->c, "cudaMemsetAsync", cudaMemsetAsync(r->out[0], 0, bytes, x->c->stream));
	else if (bytes)
		dlb_cuda_note(x->c, "cudaMemcpyAsync",
			      cudaMemcpyAsync(r->out[0], r->in[0], bytes, cudaMemcpyDeviceToDevice, x->c->stream));
	x->a.p.in[0] = onto_zeros ? r->in[0] : d->zeros ? NULL : r->in[2];
	x->a.p.in[1] = r->in[1];
	x->a.p.out[0] = r->out[0];
	if (d->nd)
		dlb_cuda_launch_rows(x->c, x->f, &x->a, x->a.pairs);
	else
		dlb_cuda_launch(x->c, x->f, &x->a, x->a.lines);
}

/* Finds the kernel: by the bytes of an element if elements are only set, else by type. */
static cudaKernel_t find_kernel(struct cuda *c, const struct dlb_index_desc *d)
{
	const bool sets = d->how == DLB_INDEX_SET || d->zeros;
	char name[64];

	if (!sets && d->fn != DLB_INDEX_TAKE)
		return dlb_cuda_find_typed(c, d->nd ? "index_put_nd" : "index_put", d->dtype);
	snprintf(name, sizeof name, "index_%s_%zu",
		 d->fn == DLB_INDEX_TAKE ? "take" : d->nd ? "put_nd" : "put", dlb_dtype_bytes(d->dtype));
	return dlb_cuda_find(c, name, NULL);
}

PREPARE(index)
{
	struct cuda_index a = { .d = *d };
	struct cuda_launch l = { .n_in = 2, .n_out = 1, .f = find_kernel(cuda_of(b), d) };
	struct index_kernel *x;

	(void)err;
	if (!l.f)
		return DLB_NO_KERNEL;
	a.pairs = d->nd ? dlb_desc_range(&d->at, 0, d->at.n_dims - 1) : dlb_desc_count(&d->at);
	if (!d->nd && a.pairs) {
		a.inner = dlb_desc_range(&d->at, d->axis + 1, d->at.n_dims);
		a.lines = a.pairs / d->at.dim[d->axis];
	}
	if (d->fn == DLB_INDEX_TAKE) {
		l.count = a.pairs * d->width;
		dlb_cuda_simple(b, &l, &a, sizeof a, k);
		return 0;
	}
	x = dlb_xcalloc(1, sizeof *x);
	*x = (struct index_kernel){ .k = { .run = put_run, .free = dlb_cuda_kernel_free, .impl = "cuda" },
				    .c = cuda_of(b),
				    .a = a,
				    .f = l.f };
	*k = &x->k;
	return 0;
}
