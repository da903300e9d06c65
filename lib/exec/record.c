/* Times of steps in memory allocated beforehand. When the places are full, every second entry is dropped, and
 * from then on only every second step is kept. So the sample is evenly spaced after any number of steps. */
#include <stdlib.h>
#include <string.h>
#include "exec/engine.h"
#include "exec/record.h"
#include "util/mem.h"

void dlb_record_init(struct dlb_record *r, int n_computes, bool rare)
{
	size_t n = (size_t)n_computes * DLB_RECORD_SLOTS + 1;

	memset(r, 0, sizeof *r);
	r->n_computes = n_computes;
	r->most_slots = rare ? DLB_RECORD_SLOTS / 4 : DLB_RECORD_SLOTS;
	r->stride = rare ? DLB_RECORD_RARE : 1;
	r->step_stride = 1;
	r->start_s = dlb_xcalloc(n, sizeof *r->start_s);
	r->end_s = dlb_xcalloc(n, sizeof *r->end_s);
	r->slot_step_s = dlb_xcalloc(DLB_RECORD_SLOTS, sizeof *r->slot_step_s);
	r->step = dlb_xcalloc(DLB_RECORD_STEPS, sizeof *r->step);
}

void dlb_record_release(struct dlb_record *r)
{
	free(r->start_s);
	free(r->end_s);
	free(r->slot_step_s);
	free(r->step);
	memset(r, 0, sizeof *r);
}

static void copy_slot(struct dlb_record *r, int to, int from)
{
	size_t n = (size_t)r->n_computes;

	memcpy(r->start_s + (size_t)to * n, r->start_s + (size_t)from * n, n * sizeof *r->start_s);
	memcpy(r->end_s + (size_t)to * n, r->end_s + (size_t)from * n, n * sizeof *r->end_s);
	r->slot_step_s[to] = r->slot_step_s[from];
}

bool dlb_record_wants_ops(const struct dlb_record *r)
{
	return r->seen % r->stride == 0;
}

void dlb_record_add(struct dlb_record *r, const struct dlb_engine_program *e)
{
	int64_t k = r->seen++;
	size_t n = (size_t)r->n_computes;

	if (k % r->step_stride == 0) {
		if (r->n_steps == DLB_RECORD_STEPS) {
			for (int i = 0; i < DLB_RECORD_STEPS / 2; i++)
				r->step[i] = r->step[2 * i];
			r->n_steps /= 2;
			r->step_stride *= 2;
		}
		if (k % r->step_stride == 0)
			r->step[r->n_steps++] = e->times;
	}
	if (k % r->stride == 0) {
		if (r->n_slots == r->most_slots) {
			for (int i = 1; i < r->most_slots / 2; i++)
				copy_slot(r, i, 2 * i);
			r->n_slots /= 2;
			r->stride *= 2;
		}
		if (k % r->stride == 0) {
			memcpy(r->start_s + (size_t)r->n_slots * n, e->start_s, n * sizeof *e->start_s);
			memcpy(r->end_s + (size_t)r->n_slots * n, e->end_s, n * sizeof *e->end_s);
			r->slot_step_s[r->n_slots++] = e->times.step_s;
		}
	}
}
