/* MPI's own allreduce. Its hops are unknown; predictions count those of a ring. */
#include "comm/allreduce.h"

static int n_chunks(const struct dlb_ranks *r)
{
	return dlb_allreduce_ring.n_chunks(r);
}

static int hops(const struct dlb_ranks *r, int member, struct dlb_hop *hop)
{
	return dlb_allreduce_ring.hops(r, member, hop);
}

const struct dlb_allreduce dlb_allreduce_mpi = {
	.name = "mpi",
	.summary = "the allreduce of the MPI library",
	.n_chunks = n_chunks,
	.hops = hops,
	.external = true,
};
