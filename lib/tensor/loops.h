/* The first steps of kernels of every back end: a descriptor is checked and becomes loop nests. */
#ifndef DLB_TENSOR_LOOPS_H
#define DLB_TENSOR_LOOPS_H
#include "tensor/backend.h"
#include "tensor/nest.h"

/* *of: the type that the function computes in (u8 for bool). *nest: loops over the result; operand 0 is the
 * result, operand i + 1 input i, with stride 0 where it is broadcast. Returns 0; -1 with err; DLB_NO_KERNEL
 * with err if the function does not take these types. */
int dlb_map_loops(const struct dlb_map_desc *d, enum dlb_dtype *of, struct dlb_nest *nest,
		  struct dlb_error *err);
/* *kept: loops over the results, operands input and result. *reduced: loops over the elements of one result,
 * operand input. Returns 0, or -1 with err. */
int dlb_reduce_loops(const struct dlb_reduce_desc *d, struct dlb_nest *kept, struct dlb_nest *reduced,
		     struct dlb_error *err);
/* Checks the description of an optimizer's step. -1 with err; DLB_NO_KERNEL: no kernel has this rule, stage
 * or type. */
int dlb_update_check(const struct dlb_update_desc *d, struct dlb_error *err);
/* Number of states that a rule keeps per weight. */
int dlb_update_states(int rule);
/* Whether a state is kept in fewer bits than f32. */
bool dlb_update_is_small(const struct dlb_update_desc *d);
#endif
