/* Where a node keeps offloaded tensors (plan/offload.h), and the thread that copies them.
 *
 * Tensors in a memory of class file lie in one file of its folder, which has no name once it is open: it
 * goes when the process ends. The file is mapped, so that checkpoints and migration read and write weights and
 * states like any others; FETCH and STORE read and write the file itself, and its pages are the system's to
 * keep or to write out. Tensors in another memory lie in pages bound to it. Copies are made one after another,
 * in the order in which they are asked for.
 *
 * The offloaded tensors of a node that computes on a device lie in memory of the host that its copies reach
 * directly (host_alloc); the engine queues those copies itself (transfers.c). */
#ifndef DLB_EXEC_OFFLOAD_STORE_H
#define DLB_EXEC_OFFLOAD_STORE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "cluster/cluster.h"

struct dlb_offload_store;
struct dlb_backend;
/* node: of cluster c, which is borrowed, as be is. No thread runs before the first copy. */
struct dlb_offload_store *dlb_offload_store_new(const struct dlb_cluster *c, int node,
						struct dlb_backend *be);
void dlb_offload_store_free(struct dlb_offload_store *s); /* with all that is kept there; s may be NULL */
/* Zeroed room in the memory of that name, for tensor `name` in messages. NULL with err. */
void *dlb_offload_store_alloc(struct dlb_offload_store *s, const char *memory, size_t bytes, const char *name,
			      struct dlb_error *err);
/* Gives room back; false: p is not of this store. s may be NULL. */
bool dlb_offload_store_give(struct dlb_offload_store *s, const void *p);
/* Whether p is in that memory; memory NULL: in none of the store. s may be NULL. */
bool dlb_offload_store_is_in(const struct dlb_offload_store *s, const void *p, const char *memory);
bool dlb_offload_store_has(const struct dlb_offload_store *s, const void *p);
/* Asks for a copy between `near` and `far`, room of the store. Returns its number, for
 * dlb_offload_store_wait. */
int64_t dlb_offload_store_fetch(struct dlb_offload_store *s, void *near, const void *far, size_t bytes);
int64_t dlb_offload_store_put(struct dlb_offload_store *s, void *far, const void *near, size_t bytes);
/* Waits for that copy and all before it. -1 with err: one failed. */
int dlb_offload_store_wait(struct dlb_offload_store *s, int64_t copy, struct dlb_error *err);
/* Whether it need not wait. */
bool dlb_offload_store_is_done(struct dlb_offload_store *s, int64_t copy);
#endif
