/* Joint operations of the 32 threads of a warp: products of bf16 matrices by tensor cores, with sums in f32
 * (PTX ISA, mma and ldmatrix), and maxima and sums over neighbours. The stand-in of the tests does them
 * between barriers of the block, so all threads of a block call these functions, the same number of times.
 *
 * A fragment is a thread's share of a matrix. Thread 4 g + t of a warp has, of
 *   a (16 x 16): four pairs of neighbours in a row, at (g, 2 t), (g + 8, 2 t), (g, 2 t + 8), (g + 8, 2 t + 8)
 *   b (16 x 8):  two pairs of neighbours in column g, at rows 2 t and 2 t + 8
 *   c (16 x 8):  (g, 2 t), (g, 2 t + 1), (g + 8, 2 t), (g + 8, 2 t + 1) */
#ifndef DLB_TENSOR_CUDA_WARP_CUH
#define DLB_TENSOR_CUDA_WARP_CUH
#include "tensor/cuda/device.cuh"

enum { WARP = 32 };
static __device__ inline int lane_of() { return (int)threadIdx.x % WARP; }
static __device__ inline int fragment_row() { return lane_of() / 4; }
static __device__ inline int fragment_column() { return lane_of() % 4 * 2; }

#ifdef __CUDACC__
static __device__ inline uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

/* c += a b */
static __device__ inline void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
		     "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
		     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Reads four 8 x 8 matrices from shared memory: threads 8 i .. 8 i + 7 of the warp pass the addresses of the
 * rows of matrix i, aligned to 16 bytes. A thread gets a pair of each, at (g, 2 t), or transposed. */
template <bool transposed> static __device__ inline void read_matrices(uint32_t (&v)[4], const bf16 *row)
{
	if (transposed)
		asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
			     : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
			     : "r"(shared_address(row)));
	else
		asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
			     : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
			     : "r"(shared_address(row)));
}

/* v of the thread whose number in the warp is this one's ^ bit. */
static __device__ inline float of_neighbour(float v, int bit) { return __shfl_xor_sync(0xffffffff, v, bit); }

static __device__ inline bool any_of_warp(bool v) { return __any_sync(0xffffffff, v); }

/* Two bf16 in one word, the first in its lower half. */
static __device__ inline uint32_t pair_of(float first, float second)
{
	uint32_t v;

	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(second), "f"(first));
	return v;
}

/* 2 to the power x; 0 instead of a denormal result. */
static __device__ inline float power_of_2(float x)
{
	float v;

	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(v) : "f"(x));
	return v;
}

/* Copies N bytes (4 or 16, aligned) to shared memory, or writes zeros; they are there for this thread after
 * wait_copies, for other threads after a further barrier. */
template <int N> static __device__ inline void copy_later(void *shared, const void *from, bool zeros)
{
	const int n = zeros ? 0 : N;

	if (N == 16)
		asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
			     :
			     : "r"(shared_address(shared)), "l"(from), "r"(n)
			     : "memory");
	else
		asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
			     :
			     : "r"(shared_address(shared)), "l"(from), "r"(n)
			     : "memory");
}
static __device__ inline void wait_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
#else
#include <assert.h>

/* v of thread `who` of this warp. */
template <typename T> static inline T of_thread(const T &v, int who)
{
	static T all[CUDA_THREADS];

	all[threadIdx.x] = v;
	__syncthreads();
	const T got = all[(int)threadIdx.x / WARP * WARP + who];
	__syncthreads();
	return got;
}

static inline float of_neighbour(float v, int bit) { return of_thread(v, lane_of() ^ bit); }

/* The stand-in looks at this thread alone: only work that changes nothing where it is not needed may depend
 * on the result. */
static inline bool any_of_warp(bool v) { return v; }

static inline float half_of(uint32_t pair, int which)
{
	bf16 v;

	v.bits = (uint16_t)(pair >> 16 * which);
	return v;
}

static inline uint32_t pair_of(float first, float second)
{
	return bf16(first).bits | (uint32_t)bf16(second).bits << 16;
}

struct warp_fragments { uint32_t a[4], b[2]; };

static inline void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
	static struct warp_fragments all[CUDA_THREADS];
	const struct warp_fragments *of = all + (int)threadIdx.x / WARP * WARP;

	all[threadIdx.x] = { { a[0], a[1], a[2], a[3] }, { b0, b1 } };
	__syncthreads();
	for (int i = 0; i < 4; i++) {
		const int row = fragment_row(), column = fragment_column() + i % 2;

		for (int k = 0; k < 16; k++)
			c[i] += half_of(of[row * 4 + k % 8 / 2].a[i / 2 + k / 8 * 2], k % 2) *
				half_of(of[column * 4 + k % 8 / 2].b[k / 8], k % 2);
	}
	__syncthreads();
}

template <bool transposed> static inline void read_matrices(uint32_t (&v)[4], const bf16 *row)
{
	static const bf16 *all[CUDA_THREADS];
	const bf16 *const *of = all + (int)threadIdx.x / WARP * WARP;
	const int g = fragment_row(), t = fragment_column();

	assert((uintptr_t)row % 16 == 0);
	all[threadIdx.x] = row;
	__syncthreads();
	for (int i = 0; i < 4; i++, of += 8)
		v[i] = transposed ? of[t][g].bits | (uint32_t)of[t + 1][g].bits << 16 :
				    of[g][t].bits | (uint32_t)of[g][t + 1].bits << 16;
	__syncthreads();
}

static inline float power_of_2(float x) { return exp2f(x); }

template <int N> static inline void copy_later(void *shared, const void *from, bool zeros)
{
	assert((uintptr_t)shared % N == 0 && (uintptr_t)from % N == 0);
	if (zeros)
		memset(shared, 0, N);
	else
		memcpy(shared, from, N);
}
static inline void wait_copies() {}
#endif

/* The sum, and the maximum, over the four threads that share the rows of c. */
static __device__ inline float sum_of_row(float v)
{
	v += of_neighbour(v, 1);
	return v + of_neighbour(v, 2);
}
static __device__ inline float most_of_row(float v)
{
	v = fmaxf(v, of_neighbour(v, 1));
	return fmaxf(v, of_neighbour(v, 2));
}
#endif
