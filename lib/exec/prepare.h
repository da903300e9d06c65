/* Makes a compiled program ready to run: every instruction becomes a step operation (step_ops.h) with its
 * kernel and its pointers.
 *
 *     prepare.c           kernels of ops, samples, collectives
 *     prepare_update.c    sums of gradients, updates, copies of weights, K-FAC's factors
 *     prepare_message.c   messages: their places here and on the other side
 *     prepare_offload.c   copies of offloaded tensors
 *     operands.c          addresses of tensors, and the pointers that follow the step
 *
 * Private to lib/exec. All return -1, or NULL, with err. */
#ifndef DLB_EXEC_PREPARE_H
#define DLB_EXEC_PREPARE_H
#include "exec/step_ops.h"

/* ---- operands.c (dlb_step_op_resolve, in step_ops.h, gives the address of a tensor) ---- */
/* The place of tensor t of micro-batch m (-1: of the step); -1: it has none. */
int dlb_step_op_place_of(const struct dlb_engine *e, int t, int m);
/* Copies of weight t; NULL: it has only one. */
const struct dlb_weight_copies *dlb_step_op_copies_of(const struct dlb_engine *e, int t);
/* Makes pointer *at follow the step; the caller fills in the source. The result is valid until the next
 * call. */
struct dynamic_operand *dlb_step_op_add_dynamic(struct dlb_engine *e, struct step_op *a, void **at);
/* Makes *at follow the step if it points into a place of np that has several copies. np's arena begins at
 * `arena`; place -1: does nothing. */
void dlb_step_op_dynamic_copy(struct dlb_engine *e, struct step_op *a, void **at,
			      const struct dlb_node_program *np, int place, char *arena);
/* The same if *at points to tensor t of the micro-batch of instruction `in`; out: `in` writes t. */
void dlb_step_op_dynamic_tensor(struct dlb_engine *e, struct step_op *a, void **at, int t,
				const struct dlb_instr *in, bool out);
/* The same if *at points into the gradient sum of update op. */
void dlb_step_op_dynamic_sum(struct dlb_engine *e, struct step_op *a, void **at, int op);

/* ---- prepare.c ---- */
/* The engine takes ownership of k; its scratch grows to the size that k needs. Returns 0. */
int dlb_step_op_keep_kernel(struct dlb_engine *e, struct dlb_kernel *k);
/* -1: this node has no kernel for op. */
int dlb_step_op_no_kernel(const struct dlb_engine *e, int op, struct dlb_error *err);

/* ---- mirrors.c ---- */
/* Makes the mirrors of all buckets. summand: [op] of updates, the gradient on the device; replaced by its
 * mirror. weight: [tensor] NULL; replaced by the mirror of a divided weight. -1 with err: no memory. */
int dlb_mirrors_open(struct dlb_engine *e, void **summand, void **weight, struct dlb_error *err);
/* The same for weights that are averaged, whose mirrors the runtime has. */
void dlb_mirrors_open_averages(struct dlb_engine *e);
/* Called once e->sync exists: from then on only this replica's shares of sums are copied to the device. */
void dlb_mirrors_find_shares(struct dlb_engine *e);

/* ---- prepare_update.c ---- */
/* Asynchronous: finds the instruction that updates each weight. */
void dlb_prepare_find_updates(struct dlb_engine *e);
/* Address of the gradient of an update of this node: its sum, or the gradient of the only micro-batch. */
void *dlb_step_op_gradient_at(struct dlb_engine *e, int op, struct dlb_error *err);
/* New bytes where kernels reach them, until the engine is freed; NULL: a device has none left. */
void *dlb_step_op_alloc(struct dlb_engine *e, size_t bytes);
/* Whether replicas sum moments in place of gradients. */
bool dlb_step_op_sums_moments(const struct dlb_engine *e);
int dlb_prepare_accumulate(struct dlb_engine *e, const struct dlb_instr *in, struct step_op *a,
			   struct dlb_error *err);
int dlb_prepare_update(struct dlb_engine *e, const struct dlb_instr *in, const struct dlb_optimizer_choice *c,
		       struct step_op *a, struct dlb_error *err);
/* Copies a weight before its update, or predicts a later version of it. */
int dlb_prepare_copy_of_weight(struct dlb_engine *e, const struct dlb_instr *in,
			       const struct dlb_optimizer_choice *c, struct step_op *a,
			       struct dlb_error *err);
/* K-FAC: the first adds an operand of an update (beyond its gradient) to its factor; the second multiplies
 * gradients by the inverses. */
int dlb_prepare_moment(struct dlb_engine *e, const struct dlb_instr *in, int moment, struct step_op *a,
		       struct dlb_error *err);
int dlb_prepare_precondition(struct dlb_engine *e, const struct dlb_instr *in, struct step_op *a,
			     struct dlb_error *err);

/* ---- prepare_message.c ---- */
/* Finds the places of messages that this node may read in the sender's memory. */
void dlb_prepare_find_remote_srcs(struct dlb_engine *e);
/* Makes the next step operation: a message's POST, SEND or WAIT. */
int dlb_prepare_message(struct dlb_engine *e, const struct dlb_instr *in, struct dlb_error *err);
/* Matches waits with the operations that start their messages. Called after all operations are made: a wait
 * for a message of an earlier iteration precedes the operation that starts it. */
int dlb_prepare_match_waits(struct dlb_engine *e, struct dlb_error *err);

/* ---- prepare_offload.c ---- */
/* The offloaded states of a weight of this node, in the engine's arena; NULL: not offloaded. */
struct offloaded *dlb_prepare_states(struct dlb_engine *e, int weight);
/* Prepares FETCH, STORE, FETCHED or STORED. -1 with err: no room in the other memory. */
int dlb_prepare_offload(struct dlb_engine *e, const struct dlb_instr *in, struct dlb_error *err);
/* Frees the room of activations in the other memory. */
void dlb_prepare_offload_release(struct dlb_engine *e);
#endif
