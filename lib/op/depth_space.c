/* DepthToSpace and SpaceToDepth: blocks of channels to blocks of pixels, and back;
 * each is the other's gradient.
 * x (N, C b b, H, W) <-> y (N, C, H b, W b). Channels of x are ordered (b, b, C) in mode
 * DCR, (C, b, b) in mode CRD. */
#include "op/op_util.h"

#include <string.h>

static int parse(const struct dlb_op_io *io, const struct dlb_desc **deep, const struct dlb_desc **wide,
		 int64_t *block, struct dlb_error *err)
{
	bool to_space = io->cls->name[0] == 'D';
	const char *mode = dlb_io_str(io, "mode", "DCR");

	if (strcmp(mode, "DCR") && strcmp(mode, "CRD"))
		return dlb_op_fail(io, err, "attribute 'mode' is '%s', not DCR or CRD", mode);
	*deep = to_space ? &io->in[0] : &io->out[0];
	*wide = to_space ? &io->out[0] : &io->in[0];
	*block = dlb_io_int(io, "blocksize", 0);
	if (io->in[0].n_dims != 4 || *block < 1 || *block > 1 << 15)
		return dlb_op_fail(io, err, "%d dimensions and a block of %lld are not possible",
				   io->in[0].n_dims, (long long)*block);
	return 0;
}

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	const struct dlb_desc *deep, *wide, *x = &io->in[0];
	int64_t b;

	if (parse(io, &deep, &wide, &b, err))
		return -1;
	io->out[0] = dlb_desc_make(x->dtype, 4, x->dim);
	if (wide == x) {
		if (x->dim[2] % b || x->dim[3] % b)
			return dlb_op_fail(io, err, "blocks of %lld do not fill the image", (long long)b);
		io->out[0].dim[1] = x->dim[1] * b * b;
		io->out[0].dim[2] /= b;
		io->out[0].dim[3] /= b;
		return 0;
	}
	if (x->dim[1] % (b * b))
		return dlb_op_fail(io, err, "blocks of %lld do not fill %lld channels", (long long)b,
				   (long long)x->dim[1]);
	io->out[0].dim[1] = x->dim[1] / (b * b);
	io->out[0].dim[2] *= b;
	io->out[0].dim[3] *= b;
	return 0;
}

/* Six loops: n, c, block row, block column, h, w. */
static int kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		  struct dlb_error *err)
{
	const struct dlb_desc *deep, *wide;
	int64_t b, sd[DLB_MAX_DIMS], sw[DLB_MAX_DIMS], channels;
	bool crd = !strcmp(dlb_io_str(io, "mode", "DCR"), "CRD");

	if (parse(io, &deep, &wide, &b, err))
		return -1;
	dlb_desc_strides(deep, sd);
	dlb_desc_strides(wide, sw);
	channels = wide->dim[1];

	const int64_t dim[6] = { deep->dim[0], channels, b, b, deep->dim[2], deep->dim[3] };
	const int64_t from_deep[6] = { sd[0], sd[1] * (crd ? b * b : 1), sd[1] * (crd ? b : b * channels),
				       sd[1] * (crd ? 1 : channels), sd[2], sd[3] };
	const int64_t in_wide[6] = { sw[0], sw[1], sw[2], sw[3], sw[2] * b, sw[3] * b };

	if (deep == &io->in[0])
		return dlb_kernel_strided(be,
					  &(struct dlb_strided){ .in = deep, .out = wide, .n_dims = 6,
								 .dim = dim, .in_stride = from_deep,
								 .out_stride = in_wide }, k, err);
	return dlb_kernel_strided(be,
				  &(struct dlb_strided){ .in = wide, .out = deep, .n_dims = 6, .dim = dim,
							 .in_stride = in_wide, .out_stride = from_deep }, k,
				  err);
}

static int gradient(struct dlb_builder *b, struct dlb_error *err)
{
	const char *type = b->io.cls->name[0] == 'D' ? "SpaceToDepth" : "DepthToSpace";

	(void)err;
	return dlb_b_gradient(b, DLB_SPEC_ATTR(type, b->io.attr, b->io.n_attr, b->dout[0]));
}

const struct dlb_op_class dlb_op_DepthToSpace = { .name = "DepthToSpace",
						  .n_in = { 1, 1 },
						  .n_out = { 1, 1 },
						  .work = "move",
						  .infer = infer,
						  .flops = dlb_no_flops,
						  .gradient = gradient,
						  .kernel = kernel };
const struct dlb_op_class dlb_op_SpaceToDepth = { .name = "SpaceToDepth",
						  .n_in = { 1, 1 },
						  .n_out = { 1, 1 },
						  .work = "move",
						  .infer = infer,
						  .flops = dlb_no_flops,
						  .gradient = gradient,
						  .kernel = kernel };
