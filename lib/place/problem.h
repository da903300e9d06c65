/* Makes a problem from a graph, costs and limits. */
#ifndef DLB_PLACE_PROBLEM_H
#define DLB_PLACE_PROBLEM_H
#include "place/place.h"

int dlb_problem_init(struct dlb_problem *p, struct dlb_error *err);
void dlb_problem_release(struct dlb_problem *p);
/* Estimated bytes of a group on a node, with the micro-batches that are in flight. Placers use it to
 * respect limits; the verifier decides. */
double dlb_group_bytes(const struct dlb_problem *p, int group);
/* [group] its node under placement[op]; owned by the caller. */
int *dlb_place_groups_at(const struct dlb_problem *p, const int *placement);
/* The least part of its weight's elements that an op changes where replicas divide updates (p->n_shares): a
 * whole share, n / n_shares elements; 1 for other ops. */
double dlb_place_update_part(const struct dlb_problem *p, int op);
/* Fails with status 1 if the weights, gradients and states of the model take more than `have` bytes, those of
 * the nodes that `whose` names: no placement over these fits. */
int dlb_problem_check_states(const struct dlb_problem *p, double have, const char *whose,
			     struct dlb_error *err);
int dlb_no_room(const struct dlb_problem *p, int group, struct dlb_error *err);	/* returns -1, status 1 */
#endif
