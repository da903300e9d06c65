/* Helpers for tests of kernels: operands are doubles in plain order, converted to the layout of their
 * descriptors. */
#ifndef DLB_TEST_KERNELS_H
#define DLB_TEST_KERNELS_H
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/backend.h"
#include "tensor/cpu/level.h"
#include "util/mem.h"
#include "util/rng.h"

#define MAX_ARGS 6
struct arg {
	struct dlb_desc d;		/* n_dims -1: absent */
	double *v;	/* values in plain order; of outputs the expected values, NULL: not checked */
};

static struct dlb_rng rng;
static struct dlb_backend be;
static long n_checks;

/* Opens the back end that DLB_TEST_BACKEND names ("cpu"); the stand-in for CUDA with DLB_CUDA_HOST_UNIFIED=1,
 * since these tests keep operands in host memory. */
static inline void open_backend(void)
{
	const char *name = getenv("DLB_TEST_BACKEND"), *threads = getenv("THREADS");
	struct dlb_error err = { .what = "" };

	if (dlb_backend_open(name ? name : "cpu", 0, threads ? atoi(threads) : 1, &be, &err)) {
		dlb_error_print(stderr, "test", -1, &err);
		exit(1);
	}
}

/* Opens the back end and seeds the random numbers, with SEED where that is set; prints the seed. */
static inline void begin_tests(uint64_t usual_seed)
{
	const uint64_t seed = getenv("SEED") ? strtoull(getenv("SEED"), NULL, 10) : usual_seed;

	dlb_rng_init(&rng, seed);
	printf("seed %llu\n", (unsigned long long)seed);
	open_backend();
}

/* Lets be use its ith level: those of the instruction set for the cpu, one for others. False: there is none. */
static inline bool use_level(int i)
{
	const bool has_levels = !strcmp(be.ops->name, "cpu");

	if (has_levels && dlb_cpu_level(i))
		be.ops = dlb_cpu_level(i);
	return has_levels ? dlb_cpu_level(i) != NULL : i == 0;
}

static inline struct dlb_desc desc(enum dlb_dtype t, enum dlb_layout l, int n, const int64_t *dim)
{
	struct dlb_desc d = { .dtype = t, .layout = n >= 3 ? l : DLB_PLAIN, .n_dims = n };

	for (int i = 0; i < n; i++)
		d.dim[i] = dim[i];
	return d;
}
#define MUST(call) do { \
		struct dlb_error err_ = { .status = 0 }; \
		if ((call)) { \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, err_.what); \
			abort(); \
		} \
	} while (0)
#define DIMS(...) (int64_t[]){ __VA_ARGS__ }

/* The type's nearest value. */
static inline double rounded(enum dlb_dtype t, double v)
{
	if (t == DLB_BF16) {
		uint16_t bits;

		dlb_value_set(&bits, t, 0, v);
		return dlb_value_real(&bits, t, 0);
	}
	return t == DLB_F32 ? (float)v : v;
}

static inline double *zeros(int64_t n) { return dlb_xcalloc((size_t)n + 1, sizeof(double)); }

/* The largest relative error of a result of few roundings. */
static inline double close_tol(enum dlb_dtype t)
{
	return t == DLB_BF16 ? 4e-3 : t == DLB_F32 ? 3e-6 : t == DLB_F64 ? 1e-13 : 0;
}

/* Element of a broadcast operand that belongs to element i of out. */
static inline int64_t broadcast_index(const struct dlb_desc *out, const struct dlb_desc *in, int64_t i)
{
	int64_t at = 0, scale = 1;

	for (int j = out->n_dims - 1, k = in->n_dims - 1; j >= 0; j--, k--) {
		if (k >= 0) {
			at += (in->dim[k] == 1 ? 0 : i % out->dim[j]) * scale;
			scale *= in->dim[k];
		}
		i /= out->dim[j];
	}
	return at;
}

/* An operand of values in (-1, 1), exact in its type; integers 0, 1 for bool, -5 .. 5 (0 .. 10) else. */
static inline struct arg draw(struct dlb_desc d)
{
	struct arg a = { d, NULL };
	int64_t n = dlb_desc_count(&d);
	bool is_unsigned = d.dtype == DLB_U8 || d.dtype == DLB_U16 || d.dtype == DLB_U32 ||
			   d.dtype == DLB_U64;

	a.v = zeros(n);
	for (int64_t i = 0; i < n; i++)
		a.v[i] = d.dtype == DLB_BOOL ? (double)dlb_rng_below(&rng, 2) :
			dlb_dtype_is_int(d.dtype) ? (double)dlb_rng_below(&rng, 11) - (is_unsigned ? 0 : 5) :
			rounded(d.dtype, 2 * dlb_rng_uniform(&rng) - 1);
	return a;
}

static inline struct arg absent(void)
{
	return (struct arg){ .d = { .n_dims = -1 } };
}

/* Offset in memory of the element whose index in plain order is i. */
static inline int64_t place(const struct dlb_desc *d, int64_t i)
{
	int64_t s[DLB_MAX_DIMS], at = 0;

	dlb_desc_strides(d, s);
	for (int j = d->n_dims - 1; j >= 0; j--) {
		at += i % d->dim[j] * s[j];
		i /= d->dim[j];
	}
	return at;
}

#define GUARD 128
/* A buffer at 64-byte alignment plus `shift`, with guard bytes behind. */
static inline unsigned char *buffer(size_t bytes, size_t shift, unsigned char **base)
{
	void *p = NULL;

	if (posix_memalign(&p, 4096, bytes + shift + GUARD + 64))
		abort();
	memset(p, 0xa5, bytes + shift + GUARD + 64);
	*base = p;
	return (unsigned char *)p + shift;
}

/* n numbers in (-1, 1); the caller frees them. */
static inline void *drawn(enum dlb_dtype t, int64_t n)
{
	void *p = dlb_xcalloc((size_t)n + 1, 8);

	for (int64_t i = 0; i < n; i++)
		dlb_value_set(p, t, i, 2 * dlb_rng_uniform(&rng) - 1);
	return p;
}

/* Runs the kernel once. Takes k. */
static inline void run_plainly(struct dlb_kernel *k, void *const *in, void *const *out)
{
	void *scratch = dlb_xcalloc(1, k->scratch_bytes + 64);

	k->run(k, &(struct dlb_run){ .in = in, .out = out, .scratch = scratch });
	MUST(be.ops->sync(&be, &err_));
	dlb_kernel_free(k);
	free(scratch);
	n_checks++;
}

/* Zeroed memory that the host and the kernels of these tests reach; the caller frees it. */
static inline void *room(size_t bytes)
{
	void *p = aligned_alloc(64, (bytes + 64) / 64 * 64);

	if (!p)
		abort();
	return memset(p, 0, bytes);
}

static inline void put(const struct arg *a, void *p)
{
	for (int64_t i = 0, n = dlb_desc_count(&a->d); i < n; i++)
		dlb_value_set(p, a->d.dtype, place(&a->d, i), a->v[i]);
}

static inline void compare(const char *what, int o, const struct arg *a, const void *p, double tol)
{
	for (int64_t i = 0, n = dlb_desc_count(&a->d); a->v && i < n; i++) {
		double got = dlb_value_real(p, a->d.dtype, place(&a->d, i)), want = a->v[i];

		if (isnan(want) ? !isnan(got) :
				  !(got == want || fabs(got - want) <= tol * (1 + fabs(want)))) {
			char s[96];

			fprintf(stderr, "%s: output %d %s, element %lld: %.17g, expected %.17g\n", what, o,
				dlb_desc_str(&a->d, s, sizeof s), (long long)i, got, want);
			abort();
		}
	}
}

/* Runs the kernel with buffers at several addresses. Compares the first run with the expected values and the
 * others with the first, bit for bit. Takes k. result (may be NULL): outputs of the first run, in plain
 * order. */
static inline void check_run(const char *what, struct dlb_kernel *k, const struct arg *in, int n_in,
			     const struct arg *out, int n_out, double tol, const struct dlb_run *how,
			     double **result)
{
	static const size_t shifts[] = { 0, 64, 4, 16, 252 };
	unsigned char *first[MAX_ARGS] = { NULL }, *first_base[MAX_ARGS] = { NULL };

	for (int s = 0; s < DLB_LEN(shifts); s++) {
		unsigned char *p_in[MAX_ARGS] = { NULL }, *p_out[MAX_ARGS] = { NULL },
			      *base[2 * MAX_ARGS + 1] = { NULL };
		struct dlb_run r = how ? *how : (struct dlb_run){ .weight_version = 7 };

		for (int i = 0; i < n_in; i++)
			if (in[i].d.n_dims >= 0) {
				size_t bytes = dlb_dtype_bytes(in[i].d.dtype),
				       shift = (shifts[s] + bytes - 1) / bytes * bytes;

				p_in[i] = buffer(dlb_desc_bytes(&in[i].d), shift, &base[i]);
				put(&in[i], p_in[i]);
			}
		for (int i = 0; i < n_out; i++)
			if (out[i].d.n_dims >= 0) {
				size_t bytes = dlb_dtype_bytes(out[i].d.dtype),
				       shift = (shifts[s] + bytes - 1) / bytes * bytes;

				p_out[i] = buffer(dlb_desc_bytes(&out[i].d), shift, &base[MAX_ARGS + i]);
			}
		r.in = (void *const *)p_in;
		r.out = (void *const *)p_out;
		r.scratch = buffer(k->scratch_bytes, 0, &base[2 * MAX_ARGS]);
		k->run(k, &r);
		MUST(be.ops->sync(&be, &err_));
		for (int i = 0; i < GUARD; i++)
			if (((unsigned char *)r.scratch)[k->scratch_bytes + (size_t)i] != 0xa5) {
				fprintf(stderr, "%s (%s): wrote behind its scratch\n", what, k->impl);
				abort();
			}
		for (int o = 0; o < n_out; o++) {
			size_t bytes = dlb_desc_bytes(&out[o].d);

			if (out[o].d.n_dims < 0)
				continue;
			for (int i = 0; i < GUARD; i++)
				if (p_out[o][bytes + (size_t)i] != 0xa5) {
					fprintf(stderr, "%s (%s): wrote behind output %d\n", what, k->impl,
						o);
					abort();
				}
			if (s == 0) {
				compare(what, o, &out[o], p_out[o], tol);
				first[o] = p_out[o];
				first_base[o] = base[MAX_ARGS + o];
				if (result && result[o])
					for (int64_t i = 0, n = dlb_desc_count(&out[o].d); i < n; i++)
						result[o][i] = dlb_value_real(p_out[o], out[o].d.dtype,
									      place(&out[o].d, i));
			} else if (memcmp(first[o], p_out[o], bytes)) {
				fprintf(stderr,
					"%s (%s): bits of output %d follow the address (offset %zu)\n", what,
					k->impl, o, shifts[s]);
				abort();
			}
		}
		for (int i = 0; i <= 2 * MAX_ARGS; i++)
			if (s > 0 || i < MAX_ARGS || i == 2 * MAX_ARGS)
				free(base[i]);
	}
	for (int o = 0; o < n_out; o++)
		free(first_base[o]);
	dlb_kernel_free(k);
	n_checks++;
}

/* Gradient `grad` of sum(output 0 * cot) with respect to input `wrt` of a double forward kernel, against
 * central differences at some elements. out: all its outputs. Does not take k. */
static inline void check_differences(const char *what, struct dlb_kernel *k, const struct arg *in, int n_in,
				     const struct arg *out, int n_out, const double *cot, int wrt,
				     const double *grad)
{
	void *p_in[MAX_ARGS] = { NULL }, *p_out[MAX_ARGS] = { NULL },
	     *scratch = dlb_xcalloc(1, k->scratch_bytes + 64);
	int64_t n = dlb_desc_count(&in[wrt].d), m = dlb_desc_count(&out[0].d);
	const double h = 1e-5;

	for (int i = 0; i < n_in; i++)
		if (in[i].d.n_dims >= 0)
			p_in[i] = dlb_xcalloc(1, dlb_desc_bytes(&in[i].d) + 64);
	for (int i = 0; i < n_out; i++)
		if (out[i].d.n_dims >= 0)
			p_out[i] = dlb_xcalloc(1, dlb_desc_bytes(&out[i].d) + 64);
	for (int64_t t = 0; t < 12; t++) {
		int64_t at = n <= 12 ? t % n : (int64_t)dlb_rng_below(&rng, (uint64_t)n);
		double sum[2] = { 0 }, want;

		for (int side = 0; side < 2; side++) {
			for (int i = 0; i < n_in; i++)
				if (p_in[i])
					put(&in[i], p_in[i]);
			dlb_value_set(p_in[wrt], DLB_F64, place(&in[wrt].d, at),
				      in[wrt].v[at] + (side ? -h : h));
			k->run(k, &(struct dlb_run){ .in = p_in, .out = p_out, .scratch = scratch });
			for (int64_t i = 0; i < m; i++)
				sum[side] += cot[i] * dlb_value_real(p_out[0], DLB_F64, place(&out[0].d, i));
		}
		want = (sum[0] - sum[1]) / (2 * h);
		if (!(fabs(want - grad[at]) < 1e-6 * (1 + fabs(want)))) {
			fprintf(stderr, "%s: gradient of input %d at %lld is %.10g, differences say %.10g\n",
				what, wrt, (long long)at, grad[at], want);
			abort();
		}
	}
	for (int i = 0; i < MAX_ARGS; i++) {
		free(p_in[i]);
		free(p_out[i]);
	}
	free(scratch);
	n_checks++;
}

static inline void release(struct arg *a, int n)
{
	for (int i = 0; i < n; i++) {
		free(a[i].v);
		a[i].v = NULL;
	}
}

#endif
