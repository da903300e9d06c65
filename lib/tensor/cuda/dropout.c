/* Dropout (dropout.cu). */
#include <stdlib.h>

#include "tensor/cuda/cuda.h"
#include "tensor/cuda/dropout.h"
#include "util/mem.h"
#include "util/rng.h"

struct dropout_kernel {
	struct dlb_kernel k;
	struct cuda *c;
	struct cuda_dropout args;
	cudaKernel_t f;
	int64_t count, first_sample;
	uint64_t seed;
	struct cuda_slot step;		/* struct cuda_draw */
};

static struct cuda_draw draw_of(const struct dropout_kernel *d, const struct dlb_run *r)
{
	return (struct cuda_draw){ r->seed + d->seed, dlb_philox_stream(r->vertex, r->step) };
}

static void dropout_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	struct dropout_kernel *d = (struct dropout_kernel *)k;

	dlb_cuda_operands(&d->args.p, r, 1, 2);
	d->args.p.in[CUDA_VALUES_IN] = d->c->recording ? d->step.device : NULL;
	d->args.draw = draw_of(d, r);
	d->args.first_sample = r->first_sample + d->first_sample;
	dlb_cuda_launch(d->c, d->f, &d->args, d->count);
}

static void dropout_renew(struct dlb_kernel *k, const struct dlb_run *r)
{
	struct dropout_kernel *d = (struct dropout_kernel *)k;

	*(struct cuda_draw *)d->step.host = draw_of(d, r);
	dlb_cuda_touch(d->c, CUDA_VALUES, &d->step);
}

static void dropout_free(struct dlb_kernel *k)
{
	struct dropout_kernel *d = (struct dropout_kernel *)k;

	dlb_cuda_slot_free(d->c, CUDA_VALUES, &d->step);
	free(d);
}

PREPARE(dropout)
{
	const int64_t per_whole = d->part ? d->per_whole : d->per_sample, counters = (per_whole + 3) / 4;
	cudaKernel_t f = dlb_cuda_find_typed(cuda_of(b), d->part ? "dropout_part" : "dropout", d->dtype);
	struct dropout_kernel *n;

	if (!f)
		return DLB_NO_KERNEL;
	n = dlb_xcalloc(1, sizeof *n);
	n->c = cuda_of(b);
	n->k = (struct dlb_kernel){
		.run = dropout_run, .free = dropout_free, .renew = dropout_renew, .impl = "cuda"
	};
	n->f = f;
	n->count = d->samples * (d->part ? d->per_sample : counters);
	n->first_sample = d->first_sample;
	n->seed = (uint64_t)d->seed;
	n->args = (struct cuda_dropout){ .samples = d->samples,
					 .per_sample = d->per_sample,
					 .counters = counters,
					 .part = d->part,
					 .whole = d->whole,
					 .first = d->first,
					 .per_whole = per_whole,
					 .least = (uint32_t)(d->ratio * 4294967296.0),
					 .scale = 1 / (1 - d->ratio) };
	if (dlb_cuda_slot_new(n->c, CUDA_VALUES, sizeof(struct cuda_draw), &n->step, err)) {
		dropout_free(&n->k);
		return -1;
	}
	*k = &n->k;
	return 0;
}
