/* Convolution by cuDNN's backend API, a graph of one operation. libcudnn.so.9 is not linked, but opened for
 * a device when its first convolution is prepared: without cuDNN, conv.c convolves by products of columns.
 *
 * An engine is chosen by rule, and nothing is timed, so the choice is the same at each start on one kind of
 * device with one version of cuDNN: the first configuration, in the order of cuDNN's heuristics, that
 *     has no numerical note but those that cudnn.c lists, so that its sums are in a fixed order and as
 *     precise as asked for,
 *     makes an execution plan,
 *     and needs at most CUDA_DNN_WORKSPACE bytes. */
#ifndef DLB_TENSOR_CUDA_CUDNN_H
#define DLB_TENSOR_CUDA_CUDNN_H
#include "tensor/cuda/cuda.h"

enum { CUDA_DNN_WORKSPACE = 256 << 20 };

/* Returns a text for people that names the library that convolves on device 0; static memory. */
const char *dlb_cuda_dnn_about(void);
void dlb_cuda_dnn_close(struct cuda_dnn *n);	/* NULL accepted */

/* The bare convolution of d: no bias, no Relu. x, y and w have the types and layouts of their descriptors;
 * w may be channels-last too. may.tf32: operands may be rounded to TF32, or have no more than its 10 bits.
 * may.fast: engines may be nondeterministic. *scratch: bytes. DLB_NO_KERNEL: cuDNN has no engine that fits,
 * or is not there. */
struct cuda_dnn_conv;
int dlb_cuda_dnn_conv(struct cuda *c, const struct dlb_conv_desc *d, struct dlb_numerics may, struct cuda_dnn_conv **v,
		      size_t *scratch, struct dlb_error *err);
/* Queues the convolution, which writes one of x, w and y (by d->dir) and reads the others. */
void dlb_cuda_dnn_run(struct cuda_dnn_conv *v, void *x, void *w, void *y, void *scratch);
void dlb_cuda_dnn_free(struct cuda_dnn_conv *v);	/* NULL accepted */

/* Queues the sum of dy over each channel: output db of r, a run of a weight gradient. f: conv_bias_TYPE.
 * conv.c */
struct cuda_conv_bias;
void dlb_cuda_conv_bias(struct cuda *c, cudaKernel_t f, struct cuda_conv_bias b, const struct dlb_run *r);

/* dlb_cuda_conv by cuDNN or cuBLAS; may as above. DLB_NO_KERNEL: by columns. */
int dlb_cuda_conv_by_library(struct dlb_backend *b, const struct dlb_conv_desc *d, struct dlb_numerics may,
			     struct dlb_kernel **k, struct dlb_error *err);
#endif
