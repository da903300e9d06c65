/* Binds the buffers of a node to the node's memories. */
#ifndef DLB_EXEC_MEMORIES_H
#define DLB_EXEC_MEMORIES_H
#include "exec/state.h"

struct dlb_memories;
/* For a node that names n memories. *out is NULL for fewer than two; then the functions below do nothing. */
void dlb_memories_new(struct dlb_memories **out, struct dlb_binder *binder, int n,
		      const struct dlb_memory_use *use);
void dlb_memories_free(struct dlb_memories *m);
/* Binds the next `bytes` bytes of kind `what`, at p, to the memories that the program plans for them. */
int dlb_memories_put(struct dlb_memories *m, enum dlb_buffers what, void *p, size_t bytes,
		     struct dlb_error *err);
int dlb_memories_put_state(struct dlb_memories *m, const struct dlb_state *s, struct dlb_error *err);
#endif
