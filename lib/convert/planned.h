/* A document with a plan, read whole: the start of each exporter of plans. */
#ifndef DLB_CONVERT_PLANNED_H
#define DLB_CONVERT_PLANNED_H
#include "plan/program.h"

struct dlb_planned { struct dlb_graph g; struct dlb_cluster cl; struct dlb_cost c; struct dlb_plan p; };
/* -1 with err: x is released */
int dlb_planned_read(const struct dlb_doc *d, struct dlb_planned *x, struct dlb_error *err);
void dlb_planned_release(struct dlb_planned *x);

/* A growing text buffer. */
struct dlb_text { char *s; size_t n, cap; };
void dlb_text_add(struct dlb_text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#endif
