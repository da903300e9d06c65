/* Predicts the memory that the processes of a program hold: report.nodes[].predicted_process_bytes, beside
 * the measured process_bytes (util/process.h), and whether a host has room for all of its nodes. */
#ifndef DLB_PLAN_PROCESS_BYTES_H
#define DLB_PLAN_PROCESS_BYTES_H
#include "plan/program.h"
#include "tensor/backend.h"

/* Scratch memory and packed weights of an op's kernel, where the costs do not say them, and what each
 * library of the back end keeps for it and all others (dlb_kernel.library_bytes). */
struct dlb_kernel_bytes {
	double scratch, packed, library[DLB_N_LIBRARIES];
	bool known;
};
/* Sizes of the kernels on node, [n_ops], new; NULL: not known (exec/kernel_sizes.h, which planning tools do
 * not link). */
typedef struct dlb_kernel_bytes *dlb_kernel_sizes_fn(const struct dlb_program *p, const struct dlb_cost *c,
						     int node);
/* The run whose processes they are. program: of full batches, all replicas. */
struct dlb_process {
	const struct dlb_program *program;
	const struct dlb_cost *cost;
	int n_state; /* optimizer states per weight */
	double document_bytes; /* heap of the document */
	double data_bytes; /* of samples in memory, on the node that is asked for */
	/* [op] of the node that is asked for; NULL: guessed from the shapes, too little for convolutions */
	const struct dlb_kernel_bytes *kernel;
};
/* Bytes of node's process at the end of a run: anonymous memory, and shared memory that it has touched, its
 * own and that of nodes on its host. Not in it: image files in memory, checkpoints under way,
 * and what a back end takes on its device. */
double dlb_process_bytes(const struct dlb_process *s, int node);
/* Bytes below which no process is, whatever it runs, one of n_nodes. */
double dlb_process_least_bytes(int n_nodes);

/* The memory that there is for a node's process: for all processes of its host together, and by itself.
 * INFINITY: no limit. host: a number of the host, by which nodes are alike; -1: what the node needs lies
 * in the memory of a device. */
struct dlb_memory_room {
	int host;
	double host_bytes, process_bytes;
};
/* Fills room[n_nodes] by the cluster section: a host has the memory of its nodes together. */
void dlb_memory_room_of(const struct dlb_cluster *c, struct dlb_memory_room *room);
/* What is lacking most: the n nodes of a host, the first of which is `first`, or one node by itself. */
struct dlb_memory_lack {
	int first, n;
	double need_bytes, room_bytes;
};
/* What a node's process needs, and what it adds to the sum of its host, without memory of the other nodes. */
struct dlb_memory_need {
	double process_bytes, own_bytes;
};
struct dlb_memory_need dlb_memory_need_of(const struct dlb_process *s, int node);
/* Whether a process or a host's processes need more than there is. */
bool dlb_memory_lacks(const struct dlb_memory_need *need, const struct dlb_memory_room *room, int n_nodes,
		      struct dlb_memory_lack *lack);
/* Of one plan: need and room, [n_nodes], and the lack. */
struct dlb_memory_case {
	const struct dlb_memory_need *need;
	const struct dlb_memory_room *room;
	const struct dlb_memory_lack *lack;
	dlb_kernel_sizes_fn *sizes; /* of kernels of other plans; NULL: guessed from the shapes */
};
enum { DLB_MEMORY_TEXT = 200 };
/* "the process of node 0 needs 9.3 GB of memory, its host has 8 GB" */
void dlb_memory_lack_text(const struct dlb_memory_lack *lack, const struct dlb_memory_room *room,
			  char text[DLB_MEMORY_TEXT]);
/* Bytes that the plan of each node may take (its peak_bytes) where the present one lacks memory, nodes of
 * a host alike. What processes need beside that stays as it is, or is in proportion to the peak; of both,
 * generous takes what leaves more to the plan. */
double dlb_memory_limit(const struct dlb_memory_need *need, const struct dlb_memory_room *room, int n_nodes,
			const double *peak_bytes, bool generous);
#endif
