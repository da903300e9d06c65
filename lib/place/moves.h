/* The cost of replacing one placement by another. */
#ifndef DLB_PLACE_MOVES_H
#define DLB_PLACE_MOVES_H
#include "place/place.h"

/* Seconds to move state from p->before to placement (0 if before is NULL); the same divided by the steps
 * served, which ranked values include (moves.c). */
double dlb_place_migration_s(const struct dlb_problem *p, const int *placement);
static inline double dlb_place_migration_share_s(const struct dlb_problem *p, const int *placement)
{
	return p->before && p->serve_steps > 0 ? dlb_place_migration_s(p, placement) / p->serve_steps : 0;
}
/* Bytes that move with a weight or buffer whose home op is `home`, including its optimizer states if `home`
 * updates it. */
double dlb_place_moved_bytes(const struct dlb_problem *p, int tensor, int home);
/* Undoes moves until at most p->max_moves ops are on another node than in p->before. */
int dlb_place_limit_moves(const struct dlb_problem *p, int *placement, struct dlb_error *err);
#endif
