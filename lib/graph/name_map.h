/* Names to ids: an open-addressing hash table over borrowed strings, for readers of files.
 *
 *     struct dlb_name_map m = { 0 };
 *     if (dlb_name_map_add(&m, "conv1.weight", 7) >= 0) ... the name was there already: its id
 *     id = dlb_name_map_get(&m, "conv1.weight");		-1: no such name
 *     dlb_name_map_release(&m);
 *
 * Keys are borrowed and must outlive the map. A value is any int >= 0. */
#ifndef DLB_GRAPH_NAME_MAP_H
#define DLB_GRAPH_NAME_MAP_H
#include <stddef.h>
struct dlb_name_slot { const char *name; int id; };
struct dlb_name_map { struct dlb_name_slot *slot; size_t n, cap; };

/* Adds name -> id and returns -1; if the name exists, changes nothing and returns its id. */
int dlb_name_map_add(struct dlb_name_map *m, const char *name, int id);
/* Like add, but replaces the id of an existing name. */
void dlb_name_map_set(struct dlb_name_map *m, const char *name, int id);
int dlb_name_map_get(const struct dlb_name_map *m, const char *name);
void dlb_name_map_release(struct dlb_name_map *m);
#endif
