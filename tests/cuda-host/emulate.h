/* The device's language for a C++ compiler: kernels become functions in a table, which cudaLibraryGetKernel
 * searches. emulate.cpp runs the threads of a block in turns; blocks run one after another. */
#ifndef CUDA_HOST_EMULATE_H
#define CUDA_HOST_EMULATE_H
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "cuda_runtime_api.h"

#define __device__
#define __forceinline__ inline
/* Blocks run one after another, so one copy serves them all. */
#define __shared__ static

extern struct dim3 threadIdx, blockIdx, blockDim, gridDim;	/* of the thread that runs */
/* Waits for the other threads of the block; aborts in a KERNEL, which has no barriers. */
void cuda_host_barrier(void);
#define __syncthreads cuda_host_barrier

/* of_neighbour of device.cuh: by way of an array, whatever the warps are. */
template <typename T> static inline T of_neighbour(T mine, int by)
{
	static T value[1024];
	T other;

	value[threadIdx.x] = mine;
	cuda_host_barrier();
	other = value[threadIdx.x ^ (unsigned)by];
	cuda_host_barrier();
	return other;
}

/* Threads run in turns. */
template <typename T, typename V> static inline T atomicAdd(T *at, V v)
{
	const T was = *at;

	*at += v;
	return was;
}

struct cuda_host_kernel {
	const char *name;
	size_t arg_bytes;
	bool barriers;
	void (*call)(const void *args);
	struct cuda_host_kernel *next;
	cuda_host_kernel(const char *name, size_t arg_bytes, bool barriers, void (*call)(const void *));
};

#define KERNEL_OF(name, args, barriers) \
	static void name(const struct args &a); \
	static void call_##name(const void *p) { name(*(const struct args *)p); } \
	static struct cuda_host_kernel entry_##name(#name, sizeof(struct args), barriers, call_##name); \
	static void name(const struct args &a)
#define KERNEL(name, args) KERNEL_OF(name, args, false)
#define BLOCK_KERNEL(name, args) KERNEL_OF(name, args, true)
#endif
