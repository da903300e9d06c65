/* The member "timeline" of a section. */
#ifndef DLB_PLAN_TIMELINE_JSON_H
#define DLB_PLAN_TIMELINE_JSON_H
#include "plan/plan.h"

/* A section's "timeline" member (timeline_json.c). Reading leaves *span NULL if there is none; n_ops < 0: ops
 * are not checked. */
json_t *dlb_spans_write(struct dlb_span *const *span, const int *n_spans, int n_nodes);
int dlb_spans_read(const struct dlb_ref *r, int n_nodes, int n_ops, struct dlb_arena *a,
		   struct dlb_span ***span, int **n_spans, struct dlb_error *err);
#endif
