/* Arrays of a device, copied to host memory and back: see host_values.h. */
#include "exec/host_values.h"

#include <stdlib.h>

void *dlb_host_value(struct dlb_host_values *h, void *p, size_t bytes)
{
	if (h->be->ops->is_host_memory)
		return p;
	DLB_GROW(h->list, h->n, h->cap);
	h->list[h->n] = (struct dlb_host_value){ p, dlb_arena_alloc(&h->arena, bytes + 1), bytes };
	h->be->ops->download(h->be, h->list[h->n].host, p, bytes);
	return h->list[h->n++].host;
}

int dlb_host_values_get(struct dlb_host_values *h, struct dlb_error *err)
{
	return h->n ? h->be->ops->sync(h->be, err) : 0;
}

int dlb_host_values_put(struct dlb_host_values *h, struct dlb_error *err)
{
	for (int i = 0; i < h->n; i++)
		h->be->ops->upload(h->be, h->list[i].device, h->list[i].host, h->list[i].bytes);
	return h->n ? h->be->ops->sync(h->be, err) : 0;
}

void dlb_host_values_release(struct dlb_host_values *h)
{
	free(h->list);
	dlb_arena_release(&h->arena);
}
