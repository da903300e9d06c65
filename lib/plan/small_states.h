/* Optimizer states in bf16 or 8 bits (plan->state_dtype; formats: tensor/state_codec.h).
 *
 * An update decodes a block of its states, computes in f32 and encodes the block. So bits do not depend on
 * the placement, on threads, on offload or on the stage of zero. Blocks of 8 bits end at the boundaries of
 * the replicas' shares, even if replicas do not divide states. So they depend on the number of replicas.
 * Weights stay f32. */
#ifndef DLB_PLAN_SMALL_STATES_H
#define DLB_PLAN_SMALL_STATES_H
#include "plan/program.h"

/* Bytes of one optimizer state of this replica's share of weight t. */
size_t dlb_program_state_bytes(const struct dlb_program *g, int t);
/* The reason why states must be f32 under an asynchronous schedule, or with replicas that combine gradients
 * as in s (NULL: one replica); NULL: they need not be f32. */
const char *dlb_small_states_excluded(bool async, const struct dlb_sharing *s);
/* Fails with -1 and err at /plan/state_dtype, which tells the reason `why`. */
int dlb_small_states_refuse(const char *why, struct dlb_error *err);
/* Checks that a program may keep small states: f32 weights, and no reason against small states
 * (dlb_small_states_excluded). 0, or -1 with err. */
int dlb_small_states_check(const struct dlb_program *g, struct dlb_error *err);
#endif
