/* Places of the memory plan, for its two drawings (memory.c, page_memory.c). */
#ifndef DLB_VIEW_PLACES_H
#define DLB_VIEW_PLACES_H
#include "view/view.h"

/* Classes of memory: kept from step to step, workspace, and contents of the arena. */
enum dlb_held {
	DLB_HELD_STATE,
	DLB_HELD_WORKSPACE,
	DLB_HELD_ACTIVATION,
	DLB_HELD_GRADIENT,
	DLB_HELD_WEIGHT_GRADIENT,
	DLB_HELD_FED,
	DLB_HELD_MESSAGE,
	DLB_N_HELD
};
enum dlb_held dlb_place_class(const struct dlb_view *v, const struct dlb_place *x, int node);
/* Instructions at which a place takes memory: from[i] to to[i]. Returns the number of intervals, 1 or 2. */
int dlb_place_stretches(const struct dlb_node_program *np, const struct dlb_place *x, int from[2], int to[2]);
double dlb_place_room(const struct dlb_place *x);		/* bytes, all copies */
/* bytes alive from each instruction on, [n_instr + 1]; new */
double *dlb_places_alive(const struct dlb_node_program *np);
#endif
