/* The addresses of the matrices of a batch. */
#include "tensor/cuda/device.cuh"
extern "C" {
#include "tensor/cuda/places.h"
}

KERNEL(places, cuda_places)
{
	const char **place = (const char **)a.p.scratch;

	for (EACH(i, a.nest.count)) {
		int64_t at[4];

		seek(a.nest, i, at);
		place[i] = (const char *)a.p.out[0] + at[0] * a.bytes;
		place[a.nest.count + i] = (const char *)a.p.in[0] + at[1] * a.bytes;
		place[2 * a.nest.count + i] = (const char *)a.p.in[1] + at[2] * a.bytes;
	}
}
