/* The description of a convolution, for code that inspects its operands without computing it. */
#ifndef DLB_OP_CONV_H
#define DLB_OP_CONV_H
#include "op/op.h"

/* Fills d from a Conv's input, weight, output and attributes; -1 with err if they do not match. */
int dlb_conv_describe(const struct dlb_op_io *io, struct dlb_conv_desc *d, struct dlb_error *err);
#endif
