/* bf16 in memory: the upper half of a float; the device computes in float. Rounds to nearest, ties to even;
 * NaN stays NaN, as in tensor/cpu/bf16.h. load(element) and store(&element, value) serve all real types. */
#ifndef DLB_TENSOR_CUDA_BF16_CUH
#define DLB_TENSOR_CUDA_BF16_CUH
#include <string.h>
#include "tensor/cuda/device.cuh"

struct bf16 {
	uint16_t bits;
};
/* The type in which elements of type E are computed. */
template <typename E> struct computed {
	typedef E type;
};
template <> struct computed<bf16> {
	typedef float type;
};

static __device__ inline float load(float v) { return v; }
static __device__ inline double load(double v) { return v; }
static __device__ inline float load(bf16 v)
{
	const uint32_t bits = (uint32_t)v.bits << 16;
	float f;

	memcpy(&f, &bits, sizeof f);
	return f;
}

static __device__ inline void store(float *to, float v) { *to = v; }
static __device__ inline void store(double *to, double v) { *to = v; }
static __device__ inline void store(bf16 *to, float v)
{
	uint32_t bits;

	memcpy(&bits, &v, sizeof bits);
	to->bits = (uint16_t)(v != v ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
#endif
