/* A compiled program made ready to run: every instruction becomes an act (acts.h) with its kernel and its pointers.
 *
 *     prepare.c           what goes through the program: kernels of ops, what is fed, collectives
 *     prepare_update.c    sums of gradients, updates, copies of weights, K-FAC's factors
 *     prepare_message.c   messages: their places here and on the other side
 *     operands.c          where a tensor lies, and which pointers follow the step
 *
 * Private to lib/exec. All return -1, or NULL, with err. */
#ifndef DLB_EXEC_PREPARE_H
#define DLB_EXEC_PREPARE_H
#include "exec/acts.h"

/* ---- operands.c; where a tensor lies: dlb_act_resolve (acts.h) ---- */
/* The place of tensor t of micro-batch m (-1: of the step), or -1. */
int dlb_act_place_of(const struct dlb_engine *e, int t, int m);
/* Copies of weight t; NULL: there is one only. */
const struct dlb_weight_copies *dlb_act_copies_of(const struct dlb_engine *e, int t);
/* *at is to follow the step; what it picks from is the caller's to fill in. Holds till the next one is added. */
struct pick *dlb_act_add_pick(struct dlb_engine *e, struct act *a, void **at);
/* *at is in a place of np whose arena begins at `arena`; -1: nowhere that follows the step. */
void dlb_act_pick_copy(struct dlb_engine *e, struct act *a, void **at, const struct dlb_node_program *np, int place, char *arena);
/* *at is tensor t of instruction `in`'s micro-batch. */
void dlb_act_pick_tensor(struct dlb_engine *e, struct act *a, void **at, int t, const struct dlb_instr *in);
/* *at is in the sum of update op's gradient. */
void dlb_act_pick_sum(struct dlb_engine *e, struct act *a, void **at, int op);

/* ---- prepare.c ---- */
/* The engine frees k, and its scratch is made room for. 0. */
int dlb_act_keep_kernel(struct dlb_engine *e, struct dlb_kernel *k);
/* -1: this node has no kernel for op. */
int dlb_act_no_kernel(const struct dlb_engine *e, int op, struct dlb_error *err);

/* ---- prepare_update.c ---- */
/* Asynchronous: which instruction updates a weight. */
void dlb_prepare_find_updates(struct dlb_engine *e);
/* Where the gradient of an update of this node lies: its sum, or the one micro-batch's. */
void *dlb_act_gradient_at(struct dlb_engine *e, int op, struct dlb_error *err);
/* Whether replicas sum moments in place of gradients. */
bool dlb_act_sums_moments(const struct dlb_engine *e);
int dlb_prepare_accumulate(struct dlb_engine *e, const struct dlb_instr *in, struct act *a, struct dlb_error *err);
int dlb_prepare_update(struct dlb_engine *e, const struct dlb_instr *in, const struct dlb_optimizer_choice *c,
		       struct act *a, struct dlb_error *err);
/* A copy of a weight before its update, or of what it is expected to be. */
int dlb_prepare_copy_of_weight(struct dlb_engine *e, const struct dlb_instr *in, const struct dlb_optimizer_choice *c,
			       struct act *a, struct dlb_error *err);
/* K-FAC: an operand of an update beyond its gradient is added to its factor; gradients are multiplied by the inverses. */
int dlb_prepare_moment(struct dlb_engine *e, const struct dlb_instr *in, int moment, struct act *a, struct dlb_error *err);
int dlb_prepare_precondition(struct dlb_engine *e, const struct dlb_instr *in, struct act *a, struct dlb_error *err);

/* ---- prepare_message.c ---- */
/* The places of messages that the sender may leave where they are. */
void dlb_prepare_find_landings(struct dlb_engine *e);
/* The next act: a message's POST, SEND or WAIT. */
int dlb_prepare_message(struct dlb_engine *e, const struct dlb_instr *in, struct dlb_error *err);
/* Waits come before what they wait for where that is of an earlier iteration, so they are matched when all is there. */
int dlb_prepare_match_waits(struct dlb_engine *e, struct dlb_error *err);
#endif
