/* The proofs of verify.c, a file each. All take programs as they are, or unrolled over several steps; 0, or -1 with the
 * instruction that is at fault. */
#ifndef DLB_PLAN_VERIFY_H
#define DLB_PLAN_VERIFY_H
#include "plan/program.h"

/* Room for what is known of every op of the graph, for one node after the other: thousands of nodes have a few ops each. */
struct dlb_lifetimes *dlb_lifetimes_new(const struct dlb_graph *g);
void dlb_lifetimes_free(struct dlb_lifetimes *l);
int dlb_verify_lifetimes(struct dlb_lifetimes *l, const struct dlb_program *g, int node, struct dlb_error *err);
int dlb_verify_places(const struct dlb_program *g, int node, struct dlb_error *err);
int dlb_verify_messages(const struct dlb_program *g, struct dlb_error *err);	/* of all nodes, with deadlock */

int dlb_verify_fault(const struct dlb_program *g, int node, int at, struct dlb_error *err, const char *what);
/* Views and what was written in place lie in the place of another: the one at the end of that chain, -1: none. */
int dlb_program_root_place(const struct dlb_node_program *np, int tensor, int micro_batch);
#endif
