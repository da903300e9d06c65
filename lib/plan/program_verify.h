/* The verifier of programs, and functions that find places. */
#ifndef DLB_PLAN_PROGRAM_VERIFY_H
#define DLB_PLAN_PROGRAM_VERIFY_H
#include "plan/program.h"

/* Proves: every SEND has its POST and WAIT with equal sizes; no order deadlocks, even if sends wait for
 * their receivers; every tensor is written before it is read and not read after it is freed; places alive
 * together do not overlap; the peak fits each node's memory (else err->status 1: node, bytes needed, bytes
 * available). */
int dlb_program_verify(const struct dlb_program *g, const struct dlb_cost *c, struct dlb_error *err);
/* The part of dlb_program_verify that depends on choices and not on the compiler alone: equal sums of
 * replicas, and memory. */
int dlb_program_verify_choices(const struct dlb_program *g, const struct dlb_cost *c, struct dlb_error *err);
enum { DLB_LACK_TEXT = 120 };
/* The memory with which the program would fit: "1.2 MB more on node 0, 3 MB more on node 2". Returns the
 * number of nodes that lack memory. */
int dlb_program_lack_text(const struct dlb_program *g, const struct dlb_cluster *c, char text[DLB_LACK_TEXT]);
int dlb_program_find_place(const struct dlb_node_program *p, int tensor, int micro_batch);	/* -1: none */
/* The place at the end of the chain of views and in-place outputs from `tensor`; -1: none. */
int dlb_program_root_place(const struct dlb_node_program *np, int tensor, int micro_batch);
/* The place of tensor t of micro-batch m, or for all micro-batches, or of the tensor that t is a view of; -1:
 * none. */
int dlb_program_place_of(const struct dlb_node_program *np, const struct dlb_graph *g, int t, int m);
#endif
