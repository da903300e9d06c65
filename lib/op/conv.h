/* What a convolution is, for those that look at its operands without computing it. */
#ifndef DLB_OP_CONV_H
#define DLB_OP_CONV_H
#include "op/op.h"

/* Of a Conv: input, weight, output, and how they go together. -1 with err: they do not. */
int dlb_conv_describe(const struct dlb_op_io *io, struct dlb_conv_desc *d, struct dlb_error *err);
#endif
