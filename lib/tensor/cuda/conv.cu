/* Convolution by products: the input as columns, and gradients of columns gathered into the input's. */
#include "tensor/cuda/device.cuh"
extern "C" {
#include "tensor/cuda/conv.h"
}

static __device__ inline int64_t product3(const int64_t *v) { return v[0] * v[1] * v[2]; }

/* Splits i into its three indices in a box of sizes n; returns the index before them. */
static __device__ inline int64_t split3(int64_t i, const int64_t *n, int64_t *pos)
{
	for (int d = 2; d >= 0; d--) {
		pos[d] = i % n[d];
		i /= n[d];
	}
	return i;
}

template <typename T> static __device__ void columns(const struct cuda_conv &a)
{
	const T *x = (const T *)a.p.in[0];
	T *col = (T *)a.p.out[0];
	const int64_t count = a.images * a.channels * product3(a.size) * product3(a.out);

	for (EACH(i, count)) {
		int64_t o[3], k[3], at = 0;
		const int64_t channel = split3(split3(i, a.out, o), a.size, k);
		bool inside = true;

		for (int d = 0; d < 3; d++) {
			const int64_t s = o[d] * a.stride[d] - a.pad[d] + k[d] * a.dilation[d];

			inside = inside && s >= 0 && s < a.in[d];
			at += s * a.xs[d];
		}
		col[i] = inside ? x[channel / a.channels * a.xn + channel % a.channels * a.xc + at] : (T)0;
	}
}

/* Each element of x adds up the elements of columns to which it was copied, tap by tap. */
template <typename T> static __device__ void image(const struct cuda_conv &a)
{
	const T *col = (const T *)a.p.in[0];
	T *x = (T *)a.p.out[0];
	const int64_t taps = product3(a.size), positions = product3(a.out);

	for (EACH(i, a.images * a.channels * product3(a.in))) {
		int64_t s[3], k[3], at = 0;
		const int64_t channel = split3(i, a.in, s);
		T sum = 0;

		for (int64_t t = 0; t < taps; t++) {
			int64_t position = 0;
			bool inside = true;

			split3(t, a.size, k);
			for (int d = 0; d < 3; d++) {
				const int64_t far = s[d] + a.pad[d] - k[d] * a.dilation[d];
				const int64_t o = far / a.stride[d];

				inside = inside && far >= 0 && far % a.stride[d] == 0 && o < a.out[d];
				position = position * a.out[d] + o;
			}
			if (inside)
				sum += col[(channel * taps + t) * positions + position];
		}
		for (int d = 0; d < 3; d++)
			at += s[d] * a.xs[d];
		x[channel / a.channels * a.xn + channel % a.channels * a.xc + at] = sum;
	}
}

template <typename T> static __device__ void bias(const struct cuda_conv_bias &a)
{
	const T *dy = (const T *)a.p.in[0];

	for (EACH_ROW(c, a.channels)) {
		double sum = 0;

		for (EACH_OF_ROW(i, a.images * a.positions))
			sum += dy[i / a.positions * a.yn + c * a.yc + i % a.positions * a.yp];
		sum = block_sum(sum);
		if (threadIdx.x == 0)
			((T *)a.p.out[0])[c] = (T)sum;
	}
}

#define OF_TYPE(T, name) \
KERNEL(conv_columns_##name, cuda_conv) { columns<T>(a); } \
KERNEL(conv_image_##name, cuda_conv) { image<T>(a); } \
BLOCK_KERNEL(conv_bias_##name, cuda_conv_bias) { bias<T>(a); }
OF_TYPE(float, f32)
OF_TYPE(double, f64)
