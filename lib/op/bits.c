/* Operators on the bits of integers: BitwiseAnd, BitwiseOr, BitwiseXor, BitwiseNot, BitShift. They have no
 * gradient. A shift by a negative number, or by at least the number of bits, gives only fill bits (opset 28;
 * earlier versions have unsigned types and leave it undefined). */
#include "op/op_util.h"

#include <string.h>

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	if (!dlb_dtype_is_int(io->in[0].dtype))
		return dlb_op_fail(io, err, "the input is of type %s, not an integer",
				   dlb_dtype_name(io->in[0].dtype));
	if (dlb_same_types(io, 0, io->n_in, err))
		return -1;
	return dlb_infer_broadcast(io, err);
}

/* Is the direction of the shift left? -1 with err if it is neither left nor right. */
static int to_left(const struct dlb_op_io *io, struct dlb_error *err)
{
	const char *direction = dlb_io_str(io, "direction", "");

	if (strcmp(direction, "LEFT") && strcmp(direction, "RIGHT"))
		return dlb_op_fail(io, err, "attribute 'direction' is '%s', not LEFT or RIGHT", direction);
	return !strcmp(direction, "LEFT");
}

static int infer_shift(struct dlb_op_io *io, struct dlb_error *err)
{
	return to_left(io, err) < 0 ? -1 : infer(io, err);
}

static int kernel_shift(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			struct dlb_error *err)
{
	const enum dlb_map_fn fn = to_left(io, err) ? DLB_MAP_shift_left : DLB_MAP_shift_right;

	return dlb_kernel_map(be, io, &(struct dlb_map){ .fn = fn, .n_in = 2 }, k, err);
}

#define BITS(n, f, in) \
	static int kernel_##f(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k, struct dlb_error *err) \
	{ \
		return dlb_kernel_map(be, io, DLB_MAP(f, in), k, err); \
	} \
	const struct dlb_op_class dlb_op_##n = { .name = #n, .n_in = { in, in }, .n_out = { 1, 1 }, .layout = DLB_LAYOUT_ANY, \
		.overwrite = (1 << in) - 1, .work = "elementwise", .infer = infer, .kernel = kernel_##f };
BITS(BitwiseAnd, bit_and, 2)
BITS(BitwiseOr, bit_or, 2)
BITS(BitwiseXor, bit_xor, 2)
BITS(BitwiseNot, bit_not, 1)
const struct dlb_op_class dlb_op_BitShift = { .name = "BitShift",
					      .n_in = { 2, 2 },
					      .n_out = { 1, 1 },
					      .layout = DLB_LAYOUT_ANY,
					      .overwrite = 3,
					      .work = "elementwise",
					      .infer = infer_shift,
					      .kernel = kernel_shift };
