/* Running sums and products along an axis of (outer, n, inner), and their gradients. Reals are added and
 * multiplied in double, integers wrap around. */
#include "tensor/cuda/device.cuh"
extern "C" {
#include "tensor/cuda/scan.h"
}

/* The type of the running value; unsigned, so that integers wrap around. */
template <typename T> struct runs { typedef uint64_t type; };
template <> struct runs<float> { typedef double type; };
template <> struct runs<double> { typedef double type; };

/* The index of element k, counted in the operator's direction, of line l of outer * inner lines. */
static __device__ inline int64_t place(const struct dlb_scan_desc &d, int64_t l, int64_t k)
{
	int64_t o, i;

	divide(l, d.inner, &o, &i);
	return (o * d.n + (d.reverse ? d.n - 1 - k : k)) * d.inner + i;
}

/* Scans elements [from, end) of line l; sum: the result of the elements before them. */
template <typename T> static __device__ inline void walk(const struct cuda_scan &a, int64_t l, int64_t from,
							 int64_t end, typename runs<T>::type sum)
{
	typedef typename runs<T>::type R;
	const bool product = a.d.fn == DLB_SCAN_PRODUCT;

	for (int64_t k = from; k < end; k++) {
		const int64_t at = place(a.d, l, k);
		const R v = (R)((const T *)a.p.in[0])[at], next = product ? sum * v : sum + v;

		((T *)a.p.out[0])[at] = (T)(a.d.exclusive ? sum : next);
		sum = next;
	}
}

template <typename T> static __device__ void by_thread(const struct cuda_scan &a)
{
	for (EACH(l, a.d.outer * a.d.inner))
		walk<T>(a, l, 0, a.d.n, a.d.fn == DLB_SCAN_PRODUCT);
}

/* Each thread has a piece of the line. It computes the piece's total, then scans the piece from the total of
 * the pieces before it. */
template <typename T> static __device__ void by_block(const struct cuda_scan &a)
{
	typedef typename runs<T>::type R;
	__shared__ R total[CUDA_THREADS];
	const bool product = a.d.fn == DLB_SCAN_PRODUCT;
	const int64_t piece = (a.d.n + CUDA_THREADS - 1) / CUDA_THREADS;
	const int64_t from = piece * threadIdx.x < a.d.n ? piece * threadIdx.x : a.d.n,
		      end = from + piece < a.d.n ? from + piece : a.d.n;

	for (EACH_ROW(l, a.d.outer * a.d.inner)) {
		R mine = product, before = product;

		for (int64_t k = from; k < end; k++) {
			const R v = (R)((const T *)a.p.in[0])[place(a.d, l, k)];

			mine = product ? mine * v : mine + v;
		}
		__syncthreads();		/* the last line's totals may still be read */
		total[threadIdx.x] = mine;
		__syncthreads();
		for (int t = 0; t < (int)threadIdx.x; t++)
			before = product ? before * total[t] : before + total[t];
		walk<T>(a, l, from, end, before);
	}
}

template <typename T> static __device__ void gradient(const struct cuda_scan &a)
{
	const struct dlb_scan_desc &d = a.d;
	const T *dy = (const T *)a.p.in[0], *x = (const T *)a.p.in[1];
	T *dx = (T *)a.p.out[0];
	double *s = (double *)a.p.scratch;
	const bool others = d.fn == DLB_SCAN_OTHERS;

	for (EACH(l, d.outer * d.inner)) {
		double sum = others ? (double)dy[l] : 0, before = 1;

		for (int64_t k = d.n - 1; k >= 0; k--) {	/* s[k]; OTHERS: dy times later elements */
			const int64_t at = place(d, l, k), from = d.exclusive ? k + 1 : k;

			if (k + 1 < d.n)
				sum *= (double)x[place(d, l, k + 1)];
			if (!others && from < d.n)
				sum += (double)dy[place(d, l, from)];
			s[at] = sum;
		}
		for (int64_t k = 0; k < d.n; k++) {
			const int64_t at = place(d, l, k);

			dx[at] = (T)(before * s[at]);
			before *= (double)x[at];
		}
	}
}

#define SCAN(T, name) \
KERNEL(scan_##name, cuda_scan) { by_thread<T>(a); } \
BLOCK_KERNEL(scan_line_##name, cuda_scan) { by_block<T>(a); }
SCAN(float, f32)
SCAN(double, f64)
SCAN(int32_t, i32)
SCAN(int64_t, i64)
KERNEL(scan_grad_f32, cuda_scan) { gradient<float>(a); }
KERNEL(scan_grad_f64, cuda_scan) { gradient<double>(a); }
