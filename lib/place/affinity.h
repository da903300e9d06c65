/* Affinity: which kinds of device a class of work is at home on. A table is a JSON file,
 *
 *     {"classes": {"dense": ["gpu"], "conv": ["fpga", "gpu"], "MatMul": ["tpu"]}}
 *
 * A row's name is an op type or a class of work (dlb_op_work); a type wins over its class. Kinds are tried in the
 * order given; one is meant by its name, by what stands before the slash of its name, or by its back end. */
#ifndef DLB_PLACE_AFFINITY_H
#define DLB_PLACE_AFFINITY_H
#include "cluster/cluster.h"

struct dlb_affinity_row { const char *work; const char **kind; int n; };
struct dlb_affinity { struct dlb_arena arena; struct dlb_affinity_row *row; int n; };
/* `name`: a file, or the name of a table that comes with the tools (share/affinity/NAME.json). */
int dlb_affinity_read(struct dlb_affinity *a, const char *name, struct dlb_error *err);
void dlb_affinity_release(struct dlb_affinity *a);
/* The row for an op type; NULL: none. */
const struct dlb_affinity_row *dlb_affinity_find(const struct dlb_affinity *a, const char *type);
/* Is a kind of device meant by this word? */
bool dlb_affinity_means(const char *word, const struct dlb_device_kind *kind);
#endif
