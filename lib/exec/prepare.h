/* A compiled program made ready to run: every instruction becomes a step operation (step_ops.h) with its kernel and its pointers.
 *
 *     prepare.c           what goes through the program: kernels of ops, what is fed, collectives
 *     prepare_update.c    sums of gradients, updates, copies of weights, K-FAC's factors
 *     prepare_message.c   messages: their places here and on the other side
 *     operands.c          where a tensor lies, and which pointers follow the step
 *
 * Private to lib/exec. All return -1, or NULL, with err. */
#ifndef DLB_EXEC_PREPARE_H
#define DLB_EXEC_PREPARE_H
#include "exec/step_ops.h"

/* ---- operands.c; where a tensor lies: dlb_step_op_resolve (step_ops.h) ---- */
/* The place of tensor t of micro-batch m (-1: of the step), or -1. */
int dlb_step_op_place_of(const struct dlb_engine *e, int t, int m);
/* Copies of weight t; NULL: there is one only. */
const struct dlb_weight_copies *dlb_step_op_copies_of(const struct dlb_engine *e, int t);
/* *at is to follow the step; the caller fills in the source. The pointer returned is valid until the next call. */
struct dynamic_operand *dlb_step_op_add_dynamic(struct dlb_engine *e, struct step_op *a, void **at);
/* *at is in a place of np whose arena begins at `arena`; -1: nowhere that follows the step. */
void dlb_step_op_dynamic_copy(struct dlb_engine *e, struct step_op *a, void **at, const struct dlb_node_program *np, int place, char *arena);
/* *at is tensor t of instruction `in`'s micro-batch. */
void dlb_step_op_dynamic_tensor(struct dlb_engine *e, struct step_op *a, void **at, int t, const struct dlb_instr *in);
/* *at is in the sum of update op's gradient. */
void dlb_step_op_dynamic_sum(struct dlb_engine *e, struct step_op *a, void **at, int op);

/* ---- prepare.c ---- */
/* The engine frees k, and its scratch is made room for. 0. */
int dlb_step_op_keep_kernel(struct dlb_engine *e, struct dlb_kernel *k);
/* -1: this node has no kernel for op. */
int dlb_step_op_no_kernel(const struct dlb_engine *e, int op, struct dlb_error *err);

/* ---- prepare_update.c ---- */
/* Asynchronous: which instruction updates a weight. */
void dlb_prepare_find_updates(struct dlb_engine *e);
/* Where the gradient of an update of this node lies: its sum, or the one micro-batch's. */
void *dlb_step_op_gradient_at(struct dlb_engine *e, int op, struct dlb_error *err);
/* Whether replicas sum moments in place of gradients. */
bool dlb_step_op_sums_moments(const struct dlb_engine *e);
int dlb_prepare_accumulate(struct dlb_engine *e, const struct dlb_instr *in, struct step_op *a, struct dlb_error *err);
int dlb_prepare_update(struct dlb_engine *e, const struct dlb_instr *in, const struct dlb_optimizer_choice *c,
		       struct step_op *a, struct dlb_error *err);
/* A copy of a weight before its update, or of what it is expected to be. */
int dlb_prepare_copy_of_weight(struct dlb_engine *e, const struct dlb_instr *in, const struct dlb_optimizer_choice *c,
			       struct step_op *a, struct dlb_error *err);
/* K-FAC: an operand of an update beyond its gradient is added to its factor; gradients are multiplied by the inverses. */
int dlb_prepare_moment(struct dlb_engine *e, const struct dlb_instr *in, int moment, struct step_op *a, struct dlb_error *err);
int dlb_prepare_precondition(struct dlb_engine *e, const struct dlb_instr *in, struct step_op *a, struct dlb_error *err);

/* ---- prepare_message.c ---- */
/* The places of messages that this node may read in the sender's memory. */
void dlb_prepare_find_remote_srcs(struct dlb_engine *e);
/* The next step operation: a message's POST, SEND or WAIT. */
int dlb_prepare_message(struct dlb_engine *e, const struct dlb_instr *in, struct dlb_error *err);
/* Waits come before what they wait for where that is of an earlier iteration, so they are matched when all is there. */
int dlb_prepare_match_waits(struct dlb_engine *e, struct dlb_error *err);
#endif
