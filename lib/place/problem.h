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
/* The least fraction of its weight's elements that an update op changes if replicas divide updates
 * (p->n_shares): one share, n / n_shares elements. 1 for other ops. */
double dlb_place_update_part(const struct dlb_problem *p, int op);
/* Whether the weights, gradients and states of the model take more than `have` bytes, the memory of the nodes
 * that `whose` names; then no placement over these nodes fits. text: receives this comparison, complete with
 * DLB_STATES_TEXT bytes. */
enum { DLB_STATES_TEXT = 160 };
bool dlb_problem_states_exceed(const struct dlb_problem *p, double have, const char *whose, char *text,
			       size_t size);
/* Whether only a draft that is faster than an existing plan is wanted. If none is found, this says nothing
 * about memory. */
static inline bool dlb_problem_is_limited(const struct dlb_problem *p) { return p->draft && p->below_s > 0; }
int dlb_no_room(const struct dlb_problem *p, int group, struct dlb_error *err);	/* returns -1, status 1 */
#endif
