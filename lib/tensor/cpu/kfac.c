/* K-FAC's matrix operations through OpenBLAS and LAPACKE: see tensor/kfac.h. The routines of LAPACKE get
 * column-major matrices, so our row-major lower triangle is their upper one. */
#include <cblas.h>
#include <lapacke.h>
#include <math.h>

#include "tensor/cpu/cpu.h"
#include "tensor/kfac.h"
#include "tensor/spd.h"

static inline size_t at(int i, int j, int n) { return (size_t)i * (size_t)n + (size_t)j; }

/* Images whose patches are built at once: enough positions to amortize reading the sum. */
static int64_t images_at_once(const struct dlb_kfac_vectors *v)
{
	enum { ENOUGH = 512 };
	const int64_t n = v->positions ? (ENOUGH + v->positions - 1) / v->positions : 1;

	return n < v->images ? n : v->images;
}

/* First channel of a group in an image of patches. */
static int64_t first_channel(const struct dlb_kfac_vectors *v, int group)
{
	int64_t stride[DLB_MAX_DIMS];

	dlb_desc_strides(&v->conv.x, stride);
	return group * v->conv.w.dim[1] * stride[1];
}

#define SUM(T, SYRK) \
static void rows_##T(const struct dlb_kfac_vectors *v, int group, bool first, const T *x, T *sum) \
{ \
	const int n = v->n, w = n - v->bias, all = w * v->groups, rows = (int)(v->images * v->positions); \
	x += group * w; \
	SYRK(CblasRowMajor, CblasLower, CblasTrans, w, rows, 1, x, all, first ? 0 : 1, sum, n); \
	if (!v->bias) \
		return; \
	for (int j = 0; j < w; j++) { \
		T s = first ? 0 : sum[at(w, j, n)]; \
		for (int i = 0; i < rows; i++) \
			s += x[at(i, j, all)]; \
		sum[at(w, j, n)] = s; \
	} \
	sum[at(w, w, n)] = (first ? 0 : sum[at(w, w, n)]) + (T)rows; \
} \
\
static void columns_##T(const struct dlb_kfac_vectors *v, int group, bool first, const T *x, T *sum) \
{ \
	const int n = v->n, p = (int)v->positions; \
	for (int64_t i = 0; i < v->images; i++) \
		SYRK(CblasRowMajor, CblasLower, CblasNoTrans, n, p, 1, x + (i * v->groups + group) * n * p, p, first && i == 0 ? 0 : 1, sum, n); \
} \
\
static void patches_##T(const struct dlb_kfac_vectors *v, int group, bool first, const T *x, T *sum, T *col) \
{ \
	const int64_t most = images_at_once(v), channel = first_channel(v, group); \
	for (int64_t i = 0; i < v->images; i += most) { \
		const int64_t images = i + most < v->images ? most : v->images - i, row = images * v->positions; \
		for (int64_t k = 0; k < images; k++) \
			dlb_cpu_im2col(&v->conv, i + k, x + channel, col + k * v->positions, row); \
		for (int64_t k = 0; k < row && v->bias; k++) \
			col[(v->n - 1) * row + k] = 1; \
		SYRK(CblasRowMajor, CblasLower, CblasNoTrans, v->n, (int)row, 1, col, (int)row, first && i == 0 ? 0 : 1, sum, v->n); \
	} \
}
SUM(float, cblas_ssyrk)
SUM(double, cblas_dsyrk)

size_t dlb_kfac_sum_bytes(const struct dlb_kfac_vectors *v)
{
	return v->lie == DLB_KFAC_PATCHES ?
		       (size_t)v->n * (size_t)(images_at_once(v) * v->positions) * dlb_dtype_bytes(v->dtype) :
		       0;
}

static void sum_group(const struct dlb_kfac_vectors *v, int group, bool first, const void *x, void *sum,
		      void *work)
{
	const bool f64 = v->dtype == DLB_F64;

	if (v->lie == DLB_KFAC_PATCHES && f64)
		patches_double(v, group, first, x, sum, work);
	else if (v->lie == DLB_KFAC_PATCHES)
		patches_float(v, group, first, x, sum, work);
	else if (v->lie == DLB_KFAC_COLUMNS && f64)
		columns_double(v, group, first, x, sum);
	else if (v->lie == DLB_KFAC_COLUMNS)
		columns_float(v, group, first, x, sum);
	else if (f64)
		rows_double(v, group, first, x, sum);
	else
		rows_float(v, group, first, x, sum);
}

void dlb_kfac_sum(const struct dlb_kfac_vectors *v, bool first, const void *x, void *sum, void *work)
{
	const size_t bytes = (size_t)v->n * (size_t)v->n * dlb_dtype_bytes(v->dtype);

	if (v->images * v->positions == 0 && first)
		memset(sum, 0, (size_t)v->groups * bytes);
	for (int i = 0; i < v->groups && v->images * v->positions > 0; i++)
		sum_group(v, i, first, x, (char *)sum + (size_t)i * bytes, work);
}

#define ADD(T) \
static void add_##T(int n, const T *from, T *to) \
{ \
	for (int i = 0; i < n; i++) \
		for (int j = 0; j <= i; j++) \
			to[at(i, j, n)] += from[at(i, j, n)]; \
}
ADD(float)
ADD(double)

void dlb_kfac_add(enum dlb_dtype t, int n, const void *from, void *to)
{
	if (t == DLB_F64)
		add_double(n, from, to);
	else
		add_float(n, from, to);
}

#define AVERAGE(T) \
static int average_##T(int n, T keep, T take, const T *sum, T *average) \
{ \
	for (int i = 0; i < n; i++) \
		for (int j = 0; j <= i; j++) \
			if (!isfinite(sum[at(i, j, n)])) \
				return -1; \
	for (int i = 0; i < n; i++) \
		for (int j = 0; j <= i; j++) \
			average[at(i, j, n)] = keep * average[at(i, j, n)] + take * sum[at(i, j, n)]; \
	return 0; \
}
AVERAGE(float)
AVERAGE(double)

int dlb_kfac_average(enum dlb_dtype t, int n, double keep, double scale, const void *sum, void *average)
{
	double take = (1 - keep) * scale;

	return t == DLB_F64 ? average_double(n, keep, take, sum, average) :
			      average_float(n, (float)keep, (float)take, sum, average);
}

#define INVERT(T) \
static int invert_##T(int n, double damping, const T *average, T *inverse, double *a) \
{ \
	static const double shift[] = { 0, 1e-7, 1e-5, 1e-3 }; \
	double trace = 0; \
	for (int i = 0; i < n; i++) \
		for (int j = 0; j <= i; j++) \
			if (!isfinite(average[at(i, j, n)])) \
				return -1; \
	for (int i = 0; i < n; i++) \
		trace += (double)average[at(i, i, n)]; \
	for (int k = 0; k < DLB_LEN(shift); k++) { \
		for (int i = 0; i < n; i++) \
			for (int j = 0; j <= i; j++) \
				a[at(i, j, n)] = (double)average[at(i, j, n)] + (i == j ? damping + shift[k] * trace / n : 0); \
		if (LAPACKE_dpotrf_work(LAPACK_COL_MAJOR, 'U', n, a, n) || \
		    LAPACKE_dpotri_work(LAPACK_COL_MAJOR, 'U', n, a, n)) \
			continue; \
		for (int i = 0; i < n; i++) \
			for (int j = 0; j <= i; j++) \
				inverse[at(i, j, n)] = inverse[at(j, i, n)] = (T)a[at(i, j, n)]; \
		return k; \
	} \
	return -1; \
}
INVERT(float)
INVERT(double)

int dlb_kfac_invert(enum dlb_dtype t, int n, double damping, const void *average, void *inverse, double *work)
{
	return t == DLB_F64 ? invert_double(n, damping, average, inverse, work) :
			      invert_float(n, damping, average, inverse, work);
}

int dlb_kfac_invert_factor(int n, const float *l, float *inverse, double *a)
{
	for (int j = 0; j < n; j++)
		for (int i = j; i < n; i++) {
			float v = l[dlb_rfp_at(n, i, j)];

			if (!isfinite(v))
				return -1;
			a[at(i, j, n)] = (double)v;
		}
	if (LAPACKE_dpotri_work(LAPACK_COL_MAJOR, 'U', n, a, n))
		return -1;
	for (int i = 0; i < n; i++)
		for (int j = 0; j <= i; j++)
			inverse[at(n - 1 - i, n - 1 - j, n)] = inverse[at(n - 1 - j, n - 1 - i, n)] = (float)
				a[at(i, j, n)];
	return 0;
}

#define PRECONDITION(T, GEMM) \
static double precondition_##T(const struct dlb_kfac_inverses *v, T *dw, T *db, T *x) \
{ \
	const int a = v->n_a, g = v->n_g, w = a - (db != NULL); \
	const bool by_input = v->by_input; \
	T *y = x + at(g, 0, a); \
	double along = 0; \
	for (int i = 0; i < g; i++) { \
		for (int j = 0; j < w; j++) \
			x[at(i, j, a)] = dw[by_input ? at(j, i, g) : at(i, j, w)]; \
		if (db) \
			x[at(i, w, a)] = db[i]; \
	} \
	GEMM(CblasRowMajor, CblasNoTrans, CblasNoTrans, g, a, g, 1, v->g, g, x, a, 0, y, a); \
	GEMM(CblasRowMajor, CblasNoTrans, CblasNoTrans, g, a, a, 1, y, a, v->a, a, 0, x, a); \
	for (int i = 0; i < g; i++) { \
		for (int j = 0; j < w; j++) { \
			T *to = &dw[by_input ? at(j, i, g) : at(i, j, w)]; \
			along += (double)*to * (double)x[at(i, j, a)]; \
			*to = x[at(i, j, a)]; \
		} \
		if (db) { \
			along += (double)db[i] * (double)x[at(i, w, a)]; \
			db[i] = x[at(i, w, a)]; \
		} \
	} \
	return along; \
}
PRECONDITION(float, cblas_sgemm)
PRECONDITION(double, cblas_dgemm)

double dlb_kfac_precondition(const struct dlb_kfac_inverses *v, void *dw, void *db, void *work)
{
	return v->dtype == DLB_F64 ? precondition_double(v, dw, db, work) :
				     precondition_float(v, dw, db, work);
}
