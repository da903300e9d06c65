/* Runs of neighbouring elements, which one thread reads and writes by wide accesses. */
#ifndef DLB_TENSOR_CUDA_WIDE_CUH
#define DLB_TENSOR_CUDA_WIDE_CUH
#include "tensor/cuda/device.cuh"

template <typename E, int V> struct run {
	E v[V];
};
template <int BYTES> struct alignas(BYTES) access {
	unsigned char byte[BYTES];
};
template <> struct alignas(16) access<16> {
	uint32_t word[4];
};
template <> struct alignas(8) access<8> {
	uint32_t word[2];
};
template <> struct alignas(4) access<4> {
	uint32_t word[1];
};

/* Bytes of one access to a run of `bytes` bytes: up to 16. */
static __device__ constexpr int access_bytes(int bytes)
{
	return bytes % 16 == 0 ? 16 : bytes % 8 == 0 ? 8 : bytes % 4 == 0 ? 4 : 1;
}

/* ALIGNED: the run begins at a multiple of 16 bytes, or of its size if that is less. */
template <int V, bool ALIGNED, typename E> static __device__ inline run<E, V> load_run(const E *from)
{
	constexpr int wide = access_bytes((int)sizeof(run<E, V>)), n = (int)sizeof(run<E, V>) / wide;
	run<E, V> r;

	if constexpr (ALIGNED && V > 1) {
		access<wide> part[n];

		for (int i = 0; i < n; i++)
			part[i] = ((const access<wide> *)from)[i];
		memcpy(&r, part, sizeof r);
	} else {
		for (int i = 0; i < V; i++)
			r.v[i] = from[i];
	}
	return r;
}

template <int V, bool ALIGNED, typename E> static __device__ inline void store_run(E *to, const run<E, V> &r)
{
	constexpr int wide = access_bytes((int)sizeof(run<E, V>)), n = (int)sizeof(run<E, V>) / wide;

	if constexpr (ALIGNED && V > 1) {
		access<wide> part[n];

		memcpy(part, &r, sizeof r);
		for (int i = 0; i < n; i++)
			((access<wide> *)to)[i] = part[i];
	} else {
		for (int i = 0; i < V; i++)
			to[i] = r.v[i];
	}
}

/* Elements of type E in 16 bytes. */
template <typename E> constexpr int run_of = 16 / (int)sizeof(E);

/* Number of runs to read before the first is used: `most`, or 1 if a run takes several accesses. */
static __device__ constexpr int ahead(int v, bool aligned, int most)
{
	return v == 1 || aligned ? most : 1;
}

/* Calls f<E, V, ALIGNED>(a) for V = each, which is 1 or run_of<E>. Bits do not depend on a.aligned. */
#define BY_RUN(E, each, f, a) do { \
		if ((each) == 1) \
			f<E, 1, false>(a); \
		else if ((a).aligned) \
			f<E, run_of<E>, true>(a); \
		else \
			f<E, run_of<E>, false>(a); \
	} while (0)
#endif
