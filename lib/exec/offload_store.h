/* Where a node keeps offloaded tensors (plan/offload.h), and the thread that copies them.
 *
 * Tensors in a memory of class file lie in one file of the memory's folder. The file is unlinked once it is
 * open, so it vanishes when the process ends. The file is mapped, so that checkpoints and migration read and
 * write weights and states like any others; FETCH and STORE read and write the file itself, whose pages the
 * system caches or writes out. Tensors in another memory lie in pages bound to that memory. Copies run one
 * after another, in the order of their requests.
 *
 * The offloaded tensors of a node that computes on a device lie in host memory that the device's copies reach
 * directly (host_alloc); the engine queues those copies itself (transfers.c). */
#ifndef DLB_EXEC_OFFLOAD_STORE_H
#define DLB_EXEC_OFFLOAD_STORE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "cluster/cluster.h"

struct dlb_offload_store;
struct dlb_backend;
/* For `node` of cluster c. Borrows c and be. No thread runs before the first copy. */
struct dlb_offload_store *dlb_offload_store_new(const struct dlb_cluster *c, int node,
						struct dlb_backend *be);
void dlb_offload_store_free(struct dlb_offload_store *s); /* with all its tensors; s may be NULL */
/* Allocates zeroed room in the memory called `memory`; error messages call the tensor `name`. NULL with
 * err. */
void *dlb_offload_store_alloc(struct dlb_offload_store *s, const char *memory, size_t bytes, const char *name,
			      struct dlb_error *err);
/* Frees the room at p; false: p is not in this store. s may be NULL. */
bool dlb_offload_store_release_room(struct dlb_offload_store *s, const void *p);
/* Whether p is in the memory called `memory`; memory NULL: in no memory of the store. s may be NULL. */
bool dlb_offload_store_is_in(const struct dlb_offload_store *s, const void *p, const char *memory);
bool dlb_offload_store_has(const struct dlb_offload_store *s, const void *p);
/* Requests a copy between `near` and `far`, which is in the store: fetch writes `near`, put writes `far`.
 * Returns the copy's number, for dlb_offload_store_wait. */
int64_t dlb_offload_store_fetch(struct dlb_offload_store *s, void *near, const void *far, size_t bytes);
int64_t dlb_offload_store_put(struct dlb_offload_store *s, void *far, const void *near, size_t bytes);
/* Waits for that copy and all before it. -1 with err: a copy failed. */
int dlb_offload_store_wait(struct dlb_offload_store *s, int64_t copy, struct dlb_error *err);
/* Whether that copy and all before it are done. */
bool dlb_offload_store_is_done(struct dlb_offload_store *s, int64_t copy);
#endif
