/* A few numbers of each kernel in memory of the host and of the device, and the copies between them. See cuda.h. */
#include <stdlib.h>
#include <string.h>

#include "tensor/cuda/cuda.h"
#include "util/mem.h"

enum { CHUNK = 1 << 16, ALIGN = 16 };

static int add_chunk(struct cuda *c, enum cuda_shared_kind way, struct dlb_error *err)
{
	struct cuda_shared *s = &c->shared[way];
	struct cuda_chunk *x;
	cudaError_t status;

	DLB_GROW(s->chunk, s->n, s->cap);
	x = &s->chunk[s->n];
	*x = (struct cuda_chunk){ .host = NULL };
	status = cudaHostAlloc((void **)&x->host, CHUNK, cudaHostAllocDefault);
	if (status == cudaSuccess)
		status = cudaMalloc((void **)&x->device, CHUNK);
	if (status != cudaSuccess) {
		if (x->host)
			cudaFreeHost(x->host);
		return dlb_fail(err, NULL, "device cuda:%d: no memory for numbers of kernels: %s", c->device,
				cudaGetErrorString(status));
	}
	s->n++;
	return 0;
}

static int find_chunk(struct cuda *c, enum cuda_shared_kind way, size_t bytes, struct dlb_error *err)
{
	struct cuda_shared *s = &c->shared[way];

	for (int i = 0; i < s->n; i++)
		if (CHUNK - s->chunk[i].used >= bytes)
			return i;
	return add_chunk(c, way, err) ? -1 : s->n - 1;
}

int dlb_cuda_slot_new(struct cuda *c, enum cuda_shared_kind way, size_t bytes, struct cuda_slot *slot,
		      struct dlb_error *err)
{
	const size_t taken = (bytes + ALIGN - 1) / ALIGN * ALIGN;
	const int i = find_chunk(c, way, taken, err);
	struct cuda_chunk *x;
	cudaError_t status;

	if (i < 0)
		return -1;
	x = &c->shared[way].chunk[i];
	status = cudaMemsetAsync(x->device + x->used, 0, taken, c->stream);
	if (status != cudaSuccess)
		return dlb_fail(err, NULL, "device cuda:%d: cudaMemsetAsync: %s", c->device,
				cudaGetErrorString(status));
	*slot = (struct cuda_slot){ x->host + x->used, x->device + x->used, i, taken };
	memset(slot->host, 0, taken);
	x->used += taken;
	x->users++;
	return 0;
}

void dlb_cuda_slot_free(struct cuda *c, enum cuda_shared_kind way, const struct cuda_slot *slot)
{
	struct cuda_chunk *x;

	if (!slot->bytes)
		return;
	x = &c->shared[way].chunk[slot->chunk];
	if (!--x->users)
		x->used = x->from = x->to = 0;
}

void dlb_cuda_touch(struct cuda *c, enum cuda_shared_kind way, const struct cuda_slot *slot)
{
	struct cuda_chunk *x = &c->shared[way].chunk[slot->chunk];
	const size_t from = (size_t)((char *)slot->host - x->host), to = from + slot->bytes;

	x->from = x->to && x->from < from ? x->from : from;
	x->to = x->to > to ? x->to : to;
}

void dlb_cuda_copy_touched(struct cuda *c, enum cuda_shared_kind way)
{
	for (int i = 0; i < c->shared[way].n; i++) {
		struct cuda_chunk *x = &c->shared[way].chunk[i];
		char *host = x->host + x->from, *device = x->device + x->from;

		if (!x->to)
			continue;
		dlb_cuda_note(c, "cudaMemcpyAsync",
			      way == CUDA_VALUES ? cudaMemcpyAsync(device, host, x->to - x->from,
								   cudaMemcpyHostToDevice, c->stream) :
						   cudaMemcpyAsync(host, device, x->to - x->from,
								   cudaMemcpyDeviceToHost, c->stream));
		x->from = x->to = 0;
	}
}

void dlb_cuda_shared_close(struct cuda *c)
{
	for (int way = 0; way < CUDA_N_WAYS; way++) {
		for (int i = 0; i < c->shared[way].n; i++) {
			cudaFreeHost(c->shared[way].chunk[i].host);
			cudaFree(c->shared[way].chunk[i].device);
		}
		free(c->shared[way].chunk);
	}
}
