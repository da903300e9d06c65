/* Names to ids: see name_map.h. Linear probing; the table is at most half full. */
#include "graph/name_map.h"
#include <stdlib.h>
#include <string.h>
#include "util/hash.h"
#include "util/mem.h"

/* The slot that holds `name`, or the free one where it is to be inserted. */
static struct dlb_name_slot *slot_of(const struct dlb_name_map *m, const char *name)
{
	size_t i = (size_t)dlb_hash_str(DLB_HASH_INIT, name) & (m->cap - 1);
	while (m->slot[i].name && strcmp(m->slot[i].name, name) != 0)
		i = (i + 1) & (m->cap - 1);
	return &m->slot[i];
}

static void grow(struct dlb_name_map *m)
{
	struct dlb_name_map big = { .n = m->n, .cap = m->cap ? 2 * m->cap : 64 };
	big.slot = dlb_xcalloc(big.cap, sizeof *big.slot);
	for (size_t i = 0; i < m->cap; i++)
		if (m->slot[i].name)
			*slot_of(&big, m->slot[i].name) = m->slot[i];
	free(m->slot);
	*m = big;
}

int dlb_name_map_add(struct dlb_name_map *m, const char *name, int id)
{
	if (2 * (m->n + 1) > m->cap)
		grow(m);
	struct dlb_name_slot *s = slot_of(m, name);
	if (s->name)
		return s->id;
	*s = (struct dlb_name_slot){ name, id };
	m->n++;
	return -1;
}

void dlb_name_map_set(struct dlb_name_map *m, const char *name, int id)
{
	if (dlb_name_map_add(m, name, id) >= 0)
		slot_of(m, name)->id = id;
}

int dlb_name_map_get(const struct dlb_name_map *m, const char *name)
{
	if (!m->cap)
		return -1;
	const struct dlb_name_slot *s = slot_of(m, name);
	return s->name ? s->id : -1;
}

void dlb_name_map_release(struct dlb_name_map *m)
{
	free(m->slot);
	*m = (struct dlb_name_map){ 0 };
}
