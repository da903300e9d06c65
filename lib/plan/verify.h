/* The proofs of verify.c, one per file. Each takes a program as compiled, or unrolled over several steps;
 * 0, or -1 with err naming the faulty instruction. */
#ifndef DLB_PLAN_VERIFY_H
#define DLB_PLAN_VERIFY_H
#include "plan/program_verify.h"

/* Storage per op of the graph. It is reused for every node, because thousands of nodes may have a few ops
 * each. */
struct dlb_lifetimes *dlb_lifetimes_new(const struct dlb_graph *g);
void dlb_lifetimes_free(struct dlb_lifetimes *l);
int dlb_verify_lifetimes(struct dlb_lifetimes *l, const struct dlb_program *g, int node,
			 struct dlb_error *err);
int dlb_verify_places(const struct dlb_program *g, int node, struct dlb_error *err);
/* for all nodes; also proves progress */
int dlb_verify_messages(const struct dlb_program *g, struct dlb_error *err);

int dlb_verify_fault(const struct dlb_program *g, int node, int at, struct dlb_error *err, const char *what);
#endif
