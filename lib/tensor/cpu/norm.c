/* Normalization of rows (layer, RMS, instance and group normalization) and its gradient: plain loops over
 * rows that stay in cache. With x^ = (x - mean) invstd and g = dy scale:   dx = invstd (g - mean(g) - x^
 * mean(g x^)). If the mean is taken as 0 (RMS), mean(g) is left out. */
#include <math.h>

#include "tensor/cpu/cpu.h"
#include "tensor/cpu/threads.h"

struct norm_kernel {
	struct dlb_kernel k;
	struct dlb_norm_desc d;
	int parts;
	dlb_cpu_part_fn *part;
	/* only for a gradient */
	void (*finish)(const struct dlb_norm_desc *d, const struct dlb_run *run, int parts);
};
struct norm_job { const struct dlb_norm_desc *d; const struct dlb_run *run; };

static int64_t norm_entries(const struct dlb_norm_desc *d)
{
	return d->channels ? d->channels : d->width;
}

/* Channels side by side in a row. */
static int64_t norm_row_channels(const struct dlb_norm_desc *d)
{
	return d->row_channels ? d->row_channels : 1;
}

/* Sums of a part: two arrays of doubles, and two in the tensor's type. */
static size_t norm_sums_bytes(const struct dlb_norm_desc *d)
{
	return cpu_round64(4 * (size_t)norm_entries(d) * sizeof(double));
}

static double *norm_sums(const struct dlb_norm_desc *d, const struct dlb_run *run, int part)
{
	return (double *)(void *)((char *)run->scratch + (size_t)part * norm_sums_bytes(d));
}

#include "tensor/cpu/f32.h"
#include "tensor/cpu/norm_real.h"
#include "tensor/cpu/f64.h"
#include "tensor/cpu/norm_real.h"

static void norm_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct norm_kernel *n = (const struct norm_kernel *)k;
	const struct norm_job job = { &n->d, r };

	dlb_cpu_parallel(n->parts, n->part, &job);
	if (n->finish)
		n->finish(&n->d, r, n->parts);
}

int dlb_cpu_norm(struct dlb_backend *b, const struct dlb_norm_desc *d, struct dlb_kernel **k,
		 struct dlb_error *err)
{
	const bool f32 = d->dtype == DLB_F32;
	struct norm_kernel *n;

	(void)err;
	if (!f32 && d->dtype != DLB_F64)
		return DLB_NO_KERNEL;
	n = dlb_xcalloc(1, sizeof *n);
	n->d = *d;
	n->parts = dlb_cpu_parts(b, d->rows * d->width, d->rows);
	n->part = d->backward ? (f32 ? norm_grad_part_f32 : norm_grad_part_f64) :
		  f32         ? norm_part_f32 :
				norm_part_f64;
	if (d->backward)
		n->finish = f32 ? norm_finish_f32 : norm_finish_f64;
	n->k = (struct dlb_kernel){ .run = norm_run, .free = dlb_cpu_kernel_free, .impl = "loop",
		.scratch_bytes = d->backward ? (size_t)n->parts * norm_sums_bytes(d) : 0 };
	*k = &n->k;
	return 0;
}
