/* The compression of each class of sums. */
#ifndef DLB_PLAN_BY_CLASS_H
#define DLB_PLAN_BY_CLASS_H
#include "plan/program.h"

#define DLB_COMPRESS_AUTO "auto"		/* chosen by class of sums, recorded in the plan */
extern const char *const dlb_compressed_names[DLB_N_COMPRESSED];
bool dlb_sharing_compresses(const struct dlb_sharing *s);	/* true for auto too */
void dlb_sharing_write_compression(const struct dlb_sharing *s, json_t *plan);
int dlb_sharing_read_compression(const struct dlb_ref *plan, struct dlb_sharing *s, struct dlb_error *err);
void dlb_advice_write(const struct dlb_plan *p, json_t *plan);
int dlb_advice_read(const struct dlb_ref *plan, struct dlb_plan *p, struct dlb_error *err);

/* The compression of a class of sums (enum dlb_sum_class; comm/compress.h); its `start` is not settled
 * (dlb_compress_settle). DLB_COMPRESS_NONE if auto has not chosen. */
struct dlb_compress_choice dlb_plan_compress(const struct dlb_plan *p, int cls);
/* The same, but a Cholesky compression without a rank has the rank for the budget of all gradients
 * (most_rank). */
struct dlb_compress_choice dlb_program_compress(const struct dlb_program *g, int cls);
#endif
