/* Optimizer states in bf16 or 8 bits (plan->state_dtype; formats: tensor/state_codec.h).
 *
 * An update decodes a block of its states, computes in f32 and encodes the block, so bits do not depend on
 * the placement, on threads, on offload or on the stage of zero. Blocks of 8 bits end where replicas would
 * share an array, whether they do or not: another number of replicas has other blocks. Weights stay f32. */
#ifndef DLB_PLAN_SMALL_STATES_H
#define DLB_PLAN_SMALL_STATES_H
#include "plan/program.h"

/* Bytes of one optimizer state of this replica's share of weight t. */
size_t dlb_program_state_bytes(const struct dlb_program *g, int t);
/* Why states must be f32 under an asynchronous schedule, or with replicas that share so (NULL: one replica);
 * NULL: they need not. */
const char *dlb_small_states_excluded(bool async, const struct dlb_sharing *s);
/* -1 with err, at /plan/state_dtype: for that reason. */
int dlb_small_states_refuse(const char *why, struct dlb_error *err);
/* Checks what a compiled program needs: f32 weights on CPUs, which update whole weights of one version by
 * gradients. c may be NULL. 0, or -1 with err. */
int dlb_small_states_check(const struct dlb_program *g, const struct dlb_cost *c, struct dlb_error *err);
#endif
