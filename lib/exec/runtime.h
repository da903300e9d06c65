/* The resources that all programs of a rank share: the back end, the messages, one arena and one scratch
 * area. */
#ifndef DLB_EXEC_RUNTIME_H
#define DLB_EXEC_RUNTIME_H
#include "exec/slow.h"
#include "exec/state.h"

struct dlb_runtime {
	struct dlb_backend *be;
	struct dlb_comm *comm;
	struct dlb_state *state;
	struct dlb_memories *memories;
	const struct dlb_cost *cost;		/* for durations of messages; NULL: unknown */
	struct dlb_kfac *kfac;			/* K-FAC's layers of this node (kfac.h); NULL: none */
	struct dlb_compress_state *compress;		/* state of compression from step to step; borrowed */
	int64_t last_step;			/* of the run; INT64_MAX: not known */
	/* all ranks, for the norms of asynchronous steps; NULL: alone, or no clipping */
	struct dlb_subset *norms;
	const struct dlb_cluster *cluster;	/* for sums by groups; NULL: no replicas */
	struct dlb_sync *averages;	/* of weights, in place of sums of gradients; NULL: none; borrowed */
	/* [tensor] their mirrors in host memory, if the back end computes on a device; NULL: none */
	void **averaged;
	int n_averaged;
	char *arena; size_t arena_bytes;
	bool arena_is_shared;			/* in the comm's shared memory, else the back end's */
	/* Messages of these programs between ranks of one host go through shared memory, into the receiver's
	 * arena. */
	const struct dlb_program *program; int n_programs;
	struct dlb_cell *cells;
	/* [rank] NULL: not on this host; cells: one for each tag, program after program */
	char **arena_of; struct dlb_cell **cell_of;
	void *scratch; size_t scratch_bytes;
	struct dlb_slow slow;
	bool partial;		/* measuring: ops that the back end has no kernel for are left out */
};
/* On a device, allocates `averaged` for the weights of the state that are trained. -1 with err: no memory. */
int dlb_runtime_mirror_weights(struct dlb_runtime *g, const struct dlb_graph *graph, struct dlb_error *err);
void dlb_runtime_free_averaged(struct dlb_runtime *g);
bool dlb_is_host_memory(const struct dlb_backend *be);	/* the back end computes in host memory */
/* Allocates zeroed memory. If ranks share this host and the back end computes in host memory, these ranks can
 * access it; else, or if c is NULL, it is the back end's own memory. NULL: no memory. */
void *dlb_visible_alloc(struct dlb_comm *c, struct dlb_backend *be, size_t bytes);
void dlb_visible_free(struct dlb_comm *c, struct dlb_backend *be, void *p);
/* Allocates zeroed host memory for samples, from which a device copies directly. Freed by dlb_samples_free.
 * NULL with err. */
void *dlb_samples_alloc(struct dlb_backend *be, size_t bytes, struct dlb_error *err);
void dlb_samples_free(struct dlb_backend *be, void *p); /* NULL accepted, without a back end too */
/* Fills err: no memory for `bytes` bytes of `what` on that device, or the failure that the device reports.
 * Returns -1. */
int dlb_no_memory(struct dlb_backend *be, size_t bytes, const char *what, struct dlb_error *err);
/* Allocates the arena for the engines over this runtime. Collective. p: the same programs on all ranks,
 * borrowed as long as the runtime (n = 0: none); their messages inside a host go through shared memory. */
int dlb_runtime_ready(struct dlb_runtime *g, size_t arena_bytes, const struct dlb_program *p, int n_programs,
		      int node, struct dlb_error *err);
void dlb_runtime_release(struct dlb_runtime *g);
/* The cell of tag 0 in node's program p; -1: p is not one of the runtime's programs. */
int dlb_runtime_first_cell(const struct dlb_runtime *g, const struct dlb_program *p, int node);
#endif
