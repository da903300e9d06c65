/* The compression of each class of sums. */
#ifndef DLB_PLAN_BY_CLASS_H
#define DLB_PLAN_BY_CLASS_H
#include "plan/plan.h"

#define DLB_COMPRESS_AUTO "auto"		/* by class of sums, as recorded in the plan */
extern const char *const dlb_compressed_names[DLB_N_COMPRESSED];
bool dlb_sharing_compresses(const struct dlb_sharing *s);	/* true for auto too */
void dlb_sharing_write_compression(const struct dlb_sharing *s, json_t *plan);
int dlb_sharing_read_compression(const struct dlb_ref *plan, struct dlb_sharing *s, struct dlb_error *err);
void dlb_advice_write(const struct dlb_plan *p, json_t *plan);
int dlb_advice_read(const struct dlb_ref *plan, struct dlb_plan *p, struct dlb_error *err);
#endif
