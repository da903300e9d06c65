/* Arguments of conv.cu. */
#ifndef DLB_TENSOR_CUDA_CONV_H
#define DLB_TENSOR_CUDA_CONV_H
#include "tensor/cuda/kernels.h"

/* conv_columns_TYPE   in {x}, out {columns}; conv_image_TYPE  in {columns}, out {x}
 * columns (image, channel, tap, position): the input under each tap of the kernel at each output position.
 * Sizes and strides are those of the three spatial dimensions; absent dimensions have size 1. */
struct cuda_conv {
	struct cuda_operands p;
	int64_t images, channels, size[3], in[3], out[3], stride[3], dilation[3], pad[3];
	int64_t xn, xc, xs[3];		/* strides of x: image, channel, spatial */
};
/* conv_bias_TYPE  in {dy}, out {db}: db[c] = the sum of channel c. dy has the strides yn, yc, yp. */
struct cuda_conv_bias {
	struct cuda_operands p;
	int64_t images, channels, positions, yn, yc, yp;
};
#endif
