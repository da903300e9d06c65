/* Copies rows to or from memory where each row begins at a multiple of 16 bytes. */
#include "tensor/cuda/device.cuh"
extern "C" {
#include "tensor/cuda/rows.h"
}

template <typename In> static __device__ inline void copy_rows(const struct cuda_rows &a)
{
	for (EACH_ROW(r, a.rows * a.parts)) {
		const int64_t row = quotient(r, a.parts), from = (r - row * a.parts) * ROWS_PART + threadIdx.x;
		const In *x = (const In *)a.p.in[0] + row * a.in_ld;
		bf16 *y = (bf16 *)a.p.out[0] + row * a.out_ld;
		In v[ROWS_PER_THREAD];

		UNROLL
		for (int i = 0; i < ROWS_PER_THREAD; i++)
			if (from + i * CUDA_THREADS < a.n)
				v[i] = x[from + i * CUDA_THREADS];
		UNROLL
		for (int i = 0; i < ROWS_PER_THREAD; i++)
			if (from + i * CUDA_THREADS < a.n)
				y[from + i * CUDA_THREADS] = (bf16)v[i];
	}
}
KERNEL(rows_bf16, cuda_rows) { copy_rows<bf16>(a); }
KERNEL(rows_f32_bf16, cuda_rows) { copy_rows<float>(a); }
