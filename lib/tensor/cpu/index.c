/* Elements taken from a table, or put into it, by indices. */
#include <math.h>
#include <string.h>

#include "tensor/cpu/cpu.h"

struct index_kernel { struct dlb_kernel k; struct dlb_index_desc d; };

static int64_t number(const struct dlb_index_desc *d, const void *at, int64_t i)
{
	return d->index == DLB_I64 ? ((const int64_t *)at)[i] : ((const int32_t *)at)[i];
}

static int64_t wrap(int64_t i, int64_t n)
{
	i = i < 0 ? i + n : i;
	return i >= 0 && i < n ? i : -1;
}

/* The table element of pair p; -1 if an index is out of range. */
static int64_t element(const struct dlb_index_desc *d, const void *at, int64_t p)
{
	int64_t where = 0, step = 1, rest = p;

	if (d->nd) {
		int64_t batches = dlb_desc_range(&d->at, 0, d->batch),
			tuples = dlb_desc_range(&d->at, 0, d->at.n_dims - 1);

		where = batches ? p / (tuples / batches) : 0;		/* index of the batch */
		for (int k = 0; k < d->depth; k++) {
			int64_t i = wrap(number(d, at, p * d->depth + k), d->x.dim[d->batch + k]);

			if (i < 0)
				return -1;
			where = where * d->x.dim[d->batch + k] + i;
		}
		return where * d->width;
	}
	for (int k = d->x.n_dims - 1; k >= 0; k--) {
		int64_t i = rest % d->at.dim[k];

		rest /= d->at.dim[k];
		if (k == d->axis)
			i = wrap(number(d, at, p), d->x.dim[k]);
		if (i < 0)
			return -1;
		where += i * step;
		step *= d->x.dim[k];
	}
	return where;
}

static int64_t pairs(const struct dlb_index_desc *d)
{
	return d->nd ? dlb_desc_range(&d->at, 0, d->at.n_dims - 1) : dlb_desc_count(&d->at);
}

static void take(const struct dlb_index_desc *d, const struct dlb_run *r)
{
	size_t bytes = (size_t)d->width * dlb_dtype_bytes(d->dtype), size = dlb_dtype_bytes(d->dtype);

	for (int64_t p = 0, n = pairs(d); p < n; p++) {
		int64_t i = element(d, r->in[1], p);
		char *to = (char *)r->out[0] + (size_t)p * bytes;

		if (i < 0)
			memset(to, 0, bytes);
		else
			memcpy(to, (const char *)r->in[0] + (size_t)i * size, bytes);
	}
}

static double reduced(enum dlb_index_how how, double a, double b)
{
	switch (how) {
	case DLB_INDEX_ADD: return a + b;
	case DLB_INDEX_MULTIPLY: return a * b;
	case DLB_INDEX_MIN: return a < b || isnan(a) ? a : b;
	default: return a > b || isnan(a) ? a : b;
	}
}

/* Sums and products wrap around. */
static int64_t reduced_int(enum dlb_index_how how, int64_t a, int64_t b)
{
	switch (how) {
	case DLB_INDEX_ADD: return (int64_t)((uint64_t)a + (uint64_t)b);
	case DLB_INDEX_MULTIPLY: return (int64_t)((uint64_t)a * (uint64_t)b);
	case DLB_INDEX_MIN: return a < b ? a : b;
	default: return a > b ? a : b;
	}
}

static void put(const struct dlb_index_desc *d, void *to, int64_t i, const void *from, int64_t j)
{
	size_t size = dlb_dtype_bytes(d->dtype);

	if (d->zeros)
		memset((char *)to + (size_t)i * size, 0, size);
	else if (d->how == DLB_INDEX_SET)
		memcpy((char *)to + (size_t)i * size, (const char *)from + (size_t)j * size, size);
	else if (d->dtype == DLB_F32 && d->how == DLB_INDEX_ADD)
		((float *)to)[i] += ((const float *)from)[j];
	else if (dlb_dtype_is_int(d->dtype) && d->dtype != DLB_U64)
		dlb_value_set_int(to, d->dtype, i,
				  reduced_int(d->how, dlb_value_int(to, d->dtype, i),
					      dlb_value_int(from, d->dtype, j)));
	else
		dlb_value_set(to, d->dtype, i,
			      reduced(d->how, dlb_value_real(to, d->dtype, i),
				      dlb_value_real(from, d->dtype, j)));
}

/* Writes the updates into `out`, which is initialised, in the order of the pairs. */
static void scatter(const struct dlb_index_desc *d, void *out, const void *at, const void *updates)
{
	for (int64_t p = 0, n = pairs(d); p < n; p++) {
		int64_t i = element(d, at, p);

		for (int64_t j = 0; i >= 0 && j < d->width; j++)
			put(d, out, i + j, updates, p * d->width + j);
	}
}

static void take_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	take(&((const struct index_kernel *)k)->d, r);
}

static void put_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct dlb_index_desc *d = &((const struct index_kernel *)k)->d;

	memcpy(r->out[0], r->in[0], dlb_desc_bytes(&d->x));
	scatter(d, r->out[0], r->in[1], d->zeros ? NULL : r->in[2]);
}

static void put_onto_zeros_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct dlb_index_desc *d = &((const struct index_kernel *)k)->d;

	memset(r->out[0], 0, dlb_desc_bytes(&d->x));
	scatter(d, r->out[0], r->in[1], r->in[0]);
}

int dlb_cpu_index(struct dlb_backend *b, const struct dlb_index_desc *d, struct dlb_kernel **k,
		  struct dlb_error *err)
{
	static void (*const run[])(struct dlb_kernel *, const struct dlb_run *) = {
		[DLB_INDEX_TAKE] = take_run,
		[DLB_INDEX_PUT] = put_run,
		[DLB_INDEX_PUT_ONTO_ZEROS] = put_onto_zeros_run,
	};
	struct index_kernel *x = dlb_xcalloc(1, sizeof *x);

	(void)b, (void)err;
	x->d = *d;
	x->k = (struct dlb_kernel){ .run = run[d->fn], .free = dlb_cpu_kernel_free, .impl = "loop" };
	*k = &x->k;
	return 0;
}
