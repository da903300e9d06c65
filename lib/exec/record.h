/* Times of a sample of the steps, in fixed memory. */
#ifndef DLB_EXEC_RECORD_H
#define DLB_EXEC_RECORD_H
#include "exec/engine.h"
#include "plan/report.h"

enum { DLB_RECORD_STEPS = 4096 };
struct dlb_record {
	int n_computes, most_slots;
	int64_t seen;				/* steps offered */
	int64_t stride, step_stride;
	int n_slots, n_steps;
	double *start_s, *end_s;		/* [slot][compute] */
	double *slot_step_s;			/* [slot] */
	struct dlb_step_times *step;		/* [n_steps] */
};
/* Op times of every step are kept; rare: of every DLB_RECORD_RARE-th step, and in a quarter of the places,
 * since a step takes longer when its ops are timed. */
enum { DLB_RECORD_RARE = 4 };
void dlb_record_init(struct dlb_record *r, int n_computes, bool rare);
void dlb_record_release(struct dlb_record *r);
/* Whether op times of the next step may be kept; if not, they need not be measured. */
bool dlb_record_wants_ops(const struct dlb_record *r);
/* Keeps a step or leaves it out. When the places are full, every second entry is dropped. Does not
 * allocate. */
void dlb_record_add(struct dlb_record *r, const struct dlb_engine_program *e);
#endif
