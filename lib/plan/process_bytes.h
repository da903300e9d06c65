/* Predicts the memory that the processes of a program hold, report.nodes[].predicted_process_bytes (the
 * measured bytes are process_bytes, util/process.h), and whether a host has room for all of its nodes. */
#ifndef DLB_PLAN_PROCESS_BYTES_H
#define DLB_PLAN_PROCESS_BYTES_H
#include "plan/program.h"
#include "tensor/backend.h"

/* Bytes of an op's kernel: scratch memory and packed weights, which are used if the costs do not have them;
 * the memory that each library of the back end keeps for this and all other kernels
 * (dlb_kernel.library_bytes); and generated code, of the first op of each signature (code_bytes). */
struct dlb_kernel_bytes {
	double scratch, packed, library[DLB_N_LIBRARIES], code;
	bool known;
};
/* Sizes of the kernels on node, [n_ops], new; NULL: unknown. The function is in exec/kernel_sizes.h, which
 * planning tools do not link. */
typedef struct dlb_kernel_bytes *dlb_kernel_sizes_fn(const struct dlb_program *p, const struct dlb_cost *c,
						     int node);
/* The run of the processes. program: for full batches, with all replicas. */
struct dlb_process {
	const struct dlb_program *program;
	const struct dlb_cost *cost;
	int n_state; /* optimizer states per weight */
	double document_bytes; /* heap of the document */
	double data_bytes; /* samples in memory, on the node in question */
	/* [op] for the node in question; NULL: guessed from the shapes, which is too little for
	 * convolutions */
	const struct dlb_kernel_bytes *kernel;
};
/* Bytes of node's process at the end of a run: anonymous memory, and the shared memory that it has touched,
 * its own and that of nodes on its host. Not included: image files in memory, checkpoints in progress, and
 * memory that a back end allocates on its device. */
double dlb_process_bytes(const struct dlb_process *s, int node);
/* Lower bound of the bytes of a process, one of n_nodes, whatever it runs. */
double dlb_process_least_bytes(int n_nodes);

/* The memory available to a node's process: host_bytes for all processes of its host together, process_bytes
 * for this process. INFINITY: no limit. host: a number that the nodes of a host have in common; -1: the node
 * uses the memory of a device. */
struct dlb_memory_room {
	int host;
	double host_bytes, process_bytes;
};
/* Fills room[n_nodes] from the cluster section: a host has the memory of all its nodes together. */
void dlb_memory_room_of(const struct dlb_cluster *c, struct dlb_memory_room *room);
/* The largest lack of memory: of the n nodes of a host, the first of which is `first`, or of one node by
 * itself. */
struct dlb_memory_lack {
	int first, n;
	double need_bytes, room_bytes;
};
/* The bytes that a node's process needs, and the bytes that it adds to the sum of its host: those without
 * shared memory of other nodes. */
struct dlb_memory_need {
	double process_bytes, own_bytes;
};
struct dlb_memory_need dlb_memory_need_of(const struct dlb_process *s, int node);
/* Whether a process, or the processes of a host, need more memory than is available; *lack: the largest
 * lack. */
bool dlb_memory_lacks(const struct dlb_memory_need *need, const struct dlb_memory_room *room, int n_nodes,
		      struct dlb_memory_lack *lack);
/* The memory of one plan: need and room, [n_nodes], and the lack. */
struct dlb_memory_case {
	const struct dlb_memory_need *need;
	const struct dlb_memory_room *room;
	const struct dlb_memory_lack *lack;
	dlb_kernel_sizes_fn *sizes; /* sizes of kernels of other plans; NULL: guessed from the shapes */
};
enum { DLB_MEMORY_TEXT = 200 };
/* "the process of node 0 needs 9.3 GB of memory, its host has 8 GB" */
void dlb_memory_lack_text(const struct dlb_memory_lack *lack, const struct dlb_memory_room *room,
			  char text[DLB_MEMORY_TEXT]);
/* If the present plan lacks memory: the bytes that a plan may take on each node (its peak_bytes). The nodes
 * of a host get equal parts of its room. The other bytes of a process either stay the same or are in
 * proportion to the peak: generous assumes the case that leaves more bytes to the plan, else the case that
 * leaves fewer. */
double dlb_memory_limit(const struct dlb_memory_need *need, const struct dlb_memory_room *room, int n_nodes,
			const double *peak_bytes, bool generous);
#endif
