/* Properties that decide on a tensor's place, for compiler and executor: views, in place, state, fed
 * (flow.c). */
#ifndef DLB_PLAN_TENSORS_H
#define DLB_PLAN_TENSORS_H
#include "plan/program.h"

/* Output 0 of a view op shares input 0's place if that is in the arena (input 0 is neither state nor a
 * constant): the op costs nothing and the executor skips its COMPUTE. A view of state is copied by a
 * kernel. dlb_graph_view_of: the tensor whose bytes tensor t shares on the node of t's producer, or -1. A
 * node that received t has it in a place of its own. */
int dlb_graph_view_of(const struct dlb_graph *g, int tensor);
bool dlb_graph_is_view(const struct dlb_graph *g, int op);
/* Whether op's class lets output 0 overwrite input k: equal type, shape and layout, not state, and no
 * other input is the same tensor. */
bool dlb_graph_may_overwrite(const struct dlb_graph *g, int op, int k);
/* The op whose node holds a weight or buffer: its home, else its first reader; -1: it is not read. */
int dlb_graph_home(const struct dlb_graph *g, int tensor);
/* Whether tensor t is read on `node` only, and not after the step. */
bool dlb_tensor_goes_only_to(const struct dlb_graph *g, const int *placement, int t, int node);
/* training data: every reading node has its own COPY */
bool dlb_tensor_is_fed(const struct dlb_tensor *t);
/* weight, buffer, constant: outside the arena on its own node */
bool dlb_tensor_is_state(const struct dlb_tensor *t);
#endif
