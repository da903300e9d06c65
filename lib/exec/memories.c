/* Binds buffers to the memories that the node names, in the shares that the program plans. See engine.h. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "exec/engine.h"
#include "exec/memories.h"
#include "exec/offload_store.h"
#include "exec/state.h"

struct dlb_memories {
	struct dlb_binder *binder;		/* borrowed */
	int n;
	struct dlb_memory_use left;		/* planned bytes that are not bound yet */
};

void dlb_memories_new(struct dlb_memories **out, struct dlb_binder *binder, int n,
		      const struct dlb_memory_use *use)
{
	*out = NULL;
	if (!binder || n < 2 || !use)		/* with one memory there is no choice */
		return;
	*out = dlb_xcalloc(1, sizeof **out);
	**out = (struct dlb_memories){ .binder = binder, .n = n, .left = *use };
}

void dlb_memories_free(struct dlb_memories *m)
{
	free(m);
}

/* Divides the buffer at page boundaries. Bytes beyond the program's count go to the last memory with planned
 * bytes of this kind. */
int dlb_memories_put(struct dlb_memories *m, enum dlb_buffers what, void *p, size_t bytes,
		     struct dlb_error *err)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int last = 0;

	for (int i = 0; m && i < m->n; i++)
		last = m->left.bytes[i][what] > 0 ? i : last;
	for (int i = 0; m && p && bytes && i < m->n; i++) {
		double *left = &m->left.bytes[i][what];
		size_t here = *left < (double)bytes ? (size_t)*left / page * page : bytes;

		here = i == last ? bytes : here;
		if (dlb_binder_bind(m->binder, i, p, here, err))
			return -1;
		*left -= (double)here;
		p = (char *)p + here;
		bytes -= here;
	}
	return 0;
}

int dlb_memories_put_state(struct dlb_memories *m, const struct dlb_state *s, struct dlb_error *err)
{
	const struct dlb_graph *g = s->graph;

	for (int t = 0; m && t < g->n_tensors; t++) {
		int home = g->tensor[t].home;

		if (!s->value[t])
			continue;
		if ((!dlb_offload_store_has(s->store, s->value[t]) &&
		     dlb_memories_put(m, DLB_BUF_WEIGHTS, s->value[t], dlb_state_value_bytes(s, t), err)) ||
		    dlb_memories_put(m, DLB_BUF_WEIGHTS, s->copy[t], s->copy_bytes[t], err))
			return -1;
		for (int k = 0; k < s->n_slots && !dlb_offload_store_has(s->store, s->slot[k][t]); k++)
			if (dlb_memories_put(m, DLB_BUF_STATE, s->slot[k][t], dlb_state_slot_bytes(s, t),
					     err))
				return -1;
		if (home >= 0 && dlb_memories_put(m, DLB_BUF_STATE, s->sum[home], s->sum_bytes[home], err))
			return -1;
	}
	return 0;
}
