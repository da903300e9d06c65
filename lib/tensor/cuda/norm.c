/* Normalization of rows (norm.cu): one launch forward; backward two for dscale and dbias, and one for
 * dx. */
#include <stdlib.h>

#include "tensor/cuda/cuda.h"
#include "tensor/cuda/norm.h"
#include "util/mem.h"

enum { LEAST_LANES = 32, PER_LANE = 32 }; /* threads of a row, and elements that each should have */

struct norm_kernel {
	struct dlb_kernel k;
	struct cuda *c;
	struct cuda_norm a;
	bool backward;
	int n_in;
	cudaKernel_t rows, sums, join;
};

static void norm_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct norm_kernel *n = (const struct norm_kernel *)k;
	const int64_t together = CUDA_THREADS / n->a.lanes, blocks = (n->a.rows + together - 1) / together;
	struct cuda_norm a = n->a;

	dlb_cuda_operands(&a.p, r, n->n_in, n->backward && a.rms ? 2 : 3);
	a.aligned = dlb_cuda_aligned(&a.p, 3, 1);
	if (n->backward && (a.p.out[1] || a.p.out[2])) {
		dlb_cuda_launch_rows(n->c, n->sums, &a, a.m.groups * a.m.chunks);
		dlb_cuda_launch_rows(n->c, n->join, &a, a.m.join_blocks);
	}
	/* after the sums, which read dy and x: dx may overwrite them */
	if (a.p.out[0])
		dlb_cuda_launch_rows(n->c, n->rows, &a, blocks);
}

static struct cuda_norm args_of(const struct dlb_norm_desc *d)
{
	struct cuda_norm a = { .rows = d->rows,
			       .width = d->width,
			       .count = d->rows * d->width,
			       .channels = d->channels,
			       .row_channels = d->row_channels ? d->row_channels : 1,
			       .rms = d->rms,
			       .epsilon = d->epsilon };

	a.len = d->width / a.row_channels;
	a.lanes = 1;
	while (a.lanes < LEAST_LANES && a.lanes < d->width)
		a.lanes *= 2; /* the threads of a warp join without a barrier */
	while (a.lanes < CUDA_THREADS && a.lanes * PER_LANE < d->width)
		a.lanes *= 2;
	if (d->channels)
		a.m = dlb_cuda_columns((d->rows * a.row_channels + d->channels - 1) / d->channels,
				       d->channels, a.len, 1);
	else
		a.m = dlb_cuda_columns(d->rows, d->width, 1, dlb_cuda_run_of(d->dtype));
	a.run = d->channels ? 1 : a.m.each;
	return a;
}

PREPARE(norm)
{
	struct norm_kernel *n = dlb_xcalloc(1, sizeof *n);

	(void)err;
	n->c = cuda_of(b);
	n->backward = d->backward;
	n->n_in = d->backward ? 5 : d->has_bias ? 3 : 2;
	n->a = args_of(d);
	n->rows = dlb_cuda_find_typed(n->c, d->backward ? "norm_grad" : "norm", d->dtype);
	n->sums = dlb_cuda_find_typed(n->c, "norm_sums", d->dtype);
	n->join = dlb_cuda_find_typed(n->c, "norm_join", d->dtype);
	if (!n->rows || !n->sums || !n->join) {
		free(n);
		return DLB_NO_KERNEL;
	}
	n->k = (struct dlb_kernel){ .run = norm_run, .free = dlb_cuda_kernel_free, .impl = "cuda" };
	if (d->backward)
		n->k.scratch_bytes = (size_t)(n->a.m.chunks * n->a.m.channels) * 2 * sizeof(double);
	*k = &n->k;
	return 0;
}
