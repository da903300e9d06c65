/* Table of allreduce algorithms; members and bytes of an algorithm, without running it. See allreduce.h. */
#include <stdlib.h>
#include <string.h>
#include "comm/allreduce.h"
#include "comm/blocks.h"
#include "util/mem.h"

const struct dlb_allreduce *const dlb_allreduces[] = {
	&dlb_allreduce_ring,
	&dlb_allreduce_tree,
	&dlb_allreduce_host,
	&dlb_allreduce_hierarchical,
	&dlb_allreduce_doubling,
	&dlb_allreduce_mpi,
	NULL,
};

const struct dlb_allreduce *dlb_allreduce_find(const char *name)
{
	for (int i = 0; dlb_allreduces[i]; i++)
		if (!strcmp(dlb_allreduces[i]->name, name))
			return dlb_allreduces[i];
	return NULL;
}

int dlb_allreduce_most_hops(const struct dlb_ranks *r)
{
	return 4 * r->n + 4;
}

int dlb_ranks_member(const struct dlb_ranks *r, int rank)
{
	if (!r->rank)
		return rank < r->n ? rank : -1;
	for (int i = 0; i < r->n; i++)
		if (r->rank[i] == rank)
			return i;
	return -1;
}

int dlb_wire_unit(enum dlb_wire wire) { return wire == DLB_WIRE_BLOCKS ? DLB_BLOCK : 1; }

size_t dlb_wire_bytes(enum dlb_wire wire, enum dlb_dtype dtype)
{
	const size_t bytes[] = { [DLB_WIRE_PLAIN] = dlb_dtype_bytes(dtype),
				 [DLB_WIRE_BF16] = 2,
				 [DLB_WIRE_BLOCKS] = DLB_PACKED_BLOCK_BYTES };

	return bytes[wire];
}

int64_t dlb_allreduce_bytes(const struct dlb_allreduce *how, const struct dlb_ranks *r, int member, int64_t n,
			    const int64_t *at, size_t wire_bytes, int *n_hops)
{
	struct dlb_hop *hop = dlb_xcalloc((size_t)dlb_allreduce_most_hops(r), sizeof *hop);
	int k = r->n > 1 ? how->hops(r, member, hop) : 0, n_chunks = how->n_chunks(r);
	int64_t sum = 0;

	for (int h = 0; h < k; h++)
		if (hop[h].to >= 0) {
			int begin = hop[h].send, end = begin + hop[h].n_send;

			sum += at ? at[end] - at[begin] :
				    dlb_chunk_at(n, n_chunks, end) - dlb_chunk_at(n, n_chunks, begin);
		}
	free(hop);
	if (n_hops)
		*n_hops = k;
	return sum * (int64_t)wire_bytes;
}
