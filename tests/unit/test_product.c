/* Products of batches of matrices against plain loops: operands in any order of dimensions and with gaps,
 * sizes around those of blocks, all types, at every level of the processor, and with a library that may not
 * use the newest instructions. */
#define _XOPEN_SOURCE 700
#include <sys/wait.h>
#include <unistd.h>
#include "check.h"
#include "kernels.h"

enum { MOST = 1 << 16 };

/* An operand: strides in elements, and the elements from the first to the last. */
struct laid {
	int64_t stride[4], count;
};

/* Lays dimensions dim[n] in a random order, of which `last` or, if it is -1, one of the last two lies
 * densest; `gaps`: with elements between rows. */
static struct laid lay(const int64_t *dim, int n, int last, bool gaps)
{
	struct laid x = { .count = 1 };
	int order[4], dense = last >= 0 ? last : n - 1 - (int)dlb_rng_below(&rng, 2);
	int64_t step = 1;

	for (int i = 0; i < n; i++)
		order[i] = i;
	for (int i = n - 1; i > 0; i--) {
		const int k = (int)dlb_rng_below(&rng, (uint64_t)i + 1), was = order[i];
		order[i] = order[k];
		order[k] = was;
	}
	for (int i = 0; i < n; i++) /* the densest first */
		if (order[i] == dense) {
			order[i] = order[0];
			order[0] = dense;
		}
	for (int i = 0; i < n; i++) {
		x.stride[order[i]] = step;
		step *= dim[order[i]] + (gaps ? (int64_t)dlb_rng_below(&rng, 3) : 0);
	}
	for (int i = 0; i < n; i++)
		x.count += (dim[i] - 1) * x.stride[i];
	assert(IS(x.count, <, MOST));
	return x;
}

static void *values(enum dlb_dtype t, int64_t n)
{
	void *v = dlb_xcalloc((size_t)n + 1, 8);

	for (int64_t i = 0; i < n; i++)
		dlb_value_set(v, t, i, 2 * dlb_rng_uniform(&rng) - 1);
	return v;
}

/* Every element of y is the sum that defines it; what lies between keeps its value. */
static void agrees(const struct dlb_product_desc *d, const struct laid *ly, const void *a, const void *w,
		   const void *y, const void *was)
{
	const int n = d->n_dims;
	const double tolerance = d->dtype == DLB_BF16 ? 1e-2 : d->dtype == DLB_F32 ? 1e-5 : 1e-13;
	bool *written = dlb_xcalloc((size_t)ly->count + 1, sizeof *written);
	int64_t total = 1;

	for (int i = 0; i < n; i++)
		total *= d->dim[i];
	for (int64_t e = 0; e < total; e++) {
		int64_t at[4], rest = e, a0 = 0, w0 = 0, y0 = 0;
		double want = 0, size = 0;

		for (int i = n - 1; i >= 0; i--) {
			at[i] = rest % d->dim[i];
			rest /= d->dim[i];
		}
		for (int i = 0; i < n; i++) {
			a0 += i == n - 1 ? 0 : at[i] * d->a[i];
			w0 += i == n - 2 ? 0 : at[i] * d->w[i];
			y0 += at[i] * d->y[i];
		}
		for (int64_t k = 0; k < d->k; k++) {
			const double term = dlb_value_real(a, d->dtype, a0 + k * d->a[n - 1]) *
					    dlb_value_real(w, d->dtype, w0 + k * d->w[n - 2]);
			want += term;
			size += fabs(term);
		}
		want *= d->alpha;
		const double got = dlb_value_real(y, d->dtype, y0);
		if (!(fabs(got - want) <= tolerance * (size * fabs(d->alpha) + 1e-3))) {
			fprintf(stderr, "element %lld is %.17g, expected %.17g\n", (long long)e, got, want);
			abort();
		}
		written[y0] = true;
	}
	for (int64_t i = 0; i < ly->count && d->dtype != DLB_BF16; i++)
		if (!written[i])
			assert(IS(dlb_value_real(y, d->dtype, i), ==, dlb_value_real(was, d->dtype, i)));
	free(written);
	n_checks++;
}

static void check(enum dlb_dtype t, int n, const int64_t *dim, int64_t k)
{
	const bool gaps = dlb_rng_below(&rng, 2);
	struct dlb_product_desc d = {
		.dtype = t, .n_dims = n, .k = k, .alpha = dlb_rng_below(&rng, 2) ? 1 : 0.5
	};
	int64_t da[4], dw[4];
	struct dlb_kernel *kernel;

	for (int i = 0; i < n; i++) {
		d.dim[i] = dim[i];
		da[i] = i == n - 1 ? k : dim[i];
		dw[i] = i == n - 2 ? k : dim[i];
	}
	const struct laid la = lay(da, n, -1, gaps), lw = lay(dw, n, -1, gaps),
			  ly = lay(dim, n, n - 1, gaps && t != DLB_BF16);
	memcpy(d.a, la.stride, sizeof la.stride);
	memcpy(d.w, lw.stride, sizeof lw.stride);
	memcpy(d.y, ly.stride, sizeof ly.stride);
	void *a = values(t, la.count), *w = values(t, lw.count), *y = values(t, ly.count),
	     *was = dlb_xcalloc((size_t)ly.count + 1, 8);
	memcpy(was, y, (size_t)ly.count * dlb_dtype_bytes(t));
	MUST(be.ops->product(&be, &d, &kernel, &err_));
	void *scratch = dlb_xmalloc(kernel->scratch_bytes + 1);
	const struct dlb_run r = { .in = (void *[]){ a, w }, .out = (void *[]){ y }, .scratch = scratch };
	kernel->run(kernel, &r);
	assert(!be.ops->sync(&be, NULL));
	agrees(&d, &ly, a, w, y, was);
	dlb_kernel_free(kernel);
	free(scratch);
	free(a);
	free(w);
	free(y);
	free(was);
}

static void all(void)
{
	static const int64_t sizes[] = { 1, 2, 7, 8, 16, 17, 33 };
	static const enum dlb_dtype types[] = { DLB_F32, DLB_F64, DLB_BF16 };

	open_backend();
	for (int level = 0; use_level(level); level++)
		for (int i = 0; i < 120; i++) {
			const int64_t m = sizes[dlb_rng_below(&rng, DLB_LEN(sizes))],
				      n = sizes[dlb_rng_below(&rng, DLB_LEN(sizes))],
				      k = sizes[dlb_rng_below(&rng, DLB_LEN(sizes))];
			const int64_t dim[4] = { 1 + (int64_t)dlb_rng_below(&rng, 3),
						 1 + (int64_t)dlb_rng_below(&rng, 3), m, n };

			check(types[i % 3], i % 2 ? 4 : 3, i % 2 ? dim : dim + 1, k);
		}
	be.ops->close(&be);
}

int main(void)
{
	int status;
	const pid_t pid = fork(); /* the library reads its limit once */

	assert(IS(pid, >=, 0));
	dlb_rng_init(&rng, 20261205 + (pid == 0));
	if (!pid)
		setenv("DNNL_MAX_CPU_ISA", "AVX2", 1);
	all();
	if (!pid)
		return 0;
	assert(IS(waitpid(pid, &status, 0), ==, pid) && IS(status, ==, 0));
	printf("%ld products agree with plain loops\n", n_checks);
	return 0;
}
