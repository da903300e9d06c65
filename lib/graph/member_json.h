/* Members that ops and tensors of the graph section have in common: ids, data types, amounts of work. */
#ifndef DLB_GRAPH_MEMBER_JSON_H
#define DLB_GRAPH_MEMBER_JSON_H
#include "graph/graph.h"

void dlb_count_set(json_t *o, const char *key, double v);
int dlb_dtype_get(const struct dlb_ref *r, enum dlb_dtype *out, struct dlb_error *err); /* "dtype" */
/* An optional id below n; *out is unchanged if absent or null. */
int dlb_id_get(const struct dlb_ref *r, const char *key, int64_t n, int *out, struct dlb_error *err);
/* Checks that "id", if given, is i: ids are positions, so that ids elsewhere can be used directly. */
int dlb_position_check(const struct dlb_ref *r, int i, struct dlb_error *err);
#endif
