/* Walks the table of operators: every class is found by its name, infers shapes, and has a kernel or a reason
 * for having none; every class with a gradient has a case below, whose gradient is compared with central
 * differences in double. Every case also runs with empty dimensions, without one operand, and with integers
 * at the ends of their range. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include "check.h"
#include "machine.h"
#include "graph/passes.h"
#include "util/rng.h"

/* Inputs, separated by blanks:
 *     f2x3      float, random in [-1, 1], differentiated        p2x3    the same in [0.5, 1.5]    g2x3  the same in [1.5, 2.5]
 *     k2x3      float constant, random in [0.5, 1.5]            r=0.3   float constant, a scalar
 *     q=1,2     float list    i=1,2     i64 list    l4x2<5  i64 labels below 5          b=1     bool scalar    b2x3  bools    -  absent
 * Attributes: name=1 integer, 1.0 real, word string, 1,2 or 1, list of integers. */
static const struct test_case {
	const char *type;
	int opset;
	const char *in, *attr;
	int n_out;			/* 0: the least number of the class */
	int y;				/* the output that is differentiated */
} cases[] = {
	{ "Relu", 17, "f3x4", "", 0, 0 },
	{ "LeakyRelu", 17, "f3x4", "alpha=0.1", 0, 0 },
	{ "ThresholdedRelu", 17, "f3x4", "alpha=0.2", 0, 0 },
	{ "Elu", 17, "f3x4", "alpha=0.7", 0, 0 },
	{ "Selu", 17, "f3x4", "", 0, 0 },
	{ "Celu", 17, "f3x4", "alpha=0.7", 0, 0 },
	{ "Sigmoid", 17, "f3x4", "", 0, 0 },
	{ "HardSigmoid", 17, "f3x4", "", 0, 0 },
	{ "HardSwish", 17, "f3x4", "", 0, 0 },
	{ "Softplus", 17, "f3x4", "", 0, 0 },
	{ "Softsign", 17, "f3x4", "", 0, 0 },
	{ "Tanh", 17, "f3x4", "", 0, 0 },
	{ "AddRelu", 17, "f2x3x4 f3x4", "", 0, 0 },
	{ "AddRelu", 17, "f3x1 f3x4", "", 0, 0 },
	{ "Product", 17, "f2x3x4 f2x4x5", "", 0, 0 },
	{ "Product", 17, "f2x3x4x5 f2x6x4x5", "permA=0,2,1,3 permB=0,2,3,1 alpha=0.25", 0, 0 },
	{ "Product", 17, "f2x4x3x3 f2x3x4x5", "permB=0,2,1,3 permY=0,2,1,3", 0, 0 },
	{ "Product", 17, "f3x4x5 f3x4x5", "permA=1,0,2 permB=1,2,0 permY=1,0,2 alpha=-2.0", 0, 0 },
	{ "Gelu", 20, "f3x4", "", 0, 0 },
	{ "Gelu", 20, "f3x4", "approximate=tanh", 0, 0 },
	{ "Erf", 17, "f3x4", "", 0, 0 },
	{ "Exp", 17, "f3x4", "", 0, 0 },
	{ "Log", 17, "p3x4", "", 0, 0 },
	{ "Sqrt", 17, "p3x4", "", 0, 0 },
	{ "Reciprocal", 17, "p3x4", "", 0, 0 },
	{ "Abs", 17, "f3x4", "", 0, 0 },
	{ "Sin", 17, "f3x4", "", 0, 0 },
	{ "Cos", 17, "f3x4", "", 0, 0 },
	{ "Neg", 17, "f3x4", "", 0, 0 },
	{ "Tan", 17, "f3x4", "", 0, 0 },
	{ "Asin", 17, "f3x4", "", 0, 0 },
	{ "Acos", 17, "f3x4", "", 0, 0 },
	{ "Atan", 17, "f3x4", "", 0, 0 },
	{ "Sinh", 17, "f3x4", "", 0, 0 },
	{ "Cosh", 17, "f3x4", "", 0, 0 },
	{ "Asinh", 17, "f3x4", "", 0, 0 },
	{ "Acosh", 17, "g3x4", "", 0, 0 },
	{ "Atanh", 17, "f3x4", "", 0, 0 },
	{ "Mish", 18, "f3x4", "", 0, 0 },
	{ "Swish", 24, "f3x4", "", 0, 0 },
	{ "Swish", 24, "f3x4", "alpha=1.7", 0, 0 },
	{ "Shrink", 17, "f3x4", "lambd=0.3 bias=0.2", 0, 0 },
	{ "SwiGLU", 28, "f3x4 f3x4", "", 0, 0 },
	{ "SwiGLU", 28, "f3x4 f3x4", "alpha=0.6", 0, 0 },
	{ "Add", 17, "f2x3x4 f3x1", "", 0, 0 },
	{ "Sub", 17, "f3x1 f2x3x4", "", 0, 0 },
	{ "Mul", 17, "f2x1x4 f3x1", "", 0, 0 },
	{ "Div", 17, "f2x3x4 p4", "", 0, 0 },
	{ "Pow", 17, "p2x3 f3", "", 0, 0 },
	{ "Pow", 17, "f2x3 r=2", "", 0, 0 },
	{ "Pow", 17, "f2x3 r=3", "", 0, 0 },
	{ "Pow", 17, "p2x3 r=0.5", "", 0, 0 },
	{ "Pow", 17, "p2x3 r=-1", "", 0, 0 },
	{ "PRelu", 17, "f2x3x4 f3x1", "", 0, 0 },
	{ "Where", 17, "b2x3 f2x3 f3", "", 0, 0 },
	{ "Sum", 17, "f2x3 f3 f1x3", "", 0, 0 },
	{ "Mean", 17, "f2x3 f3 f2x1", "", 0, 0 },
	{ "Max", 17, "f2x3 f3", "", 0, 0 },
	{ "Min", 17, "f2x3 f2x1", "", 0, 0 },
	{ "Max", 17, "f2x3", "", 0, 0 },
	{ "Clip", 17, "f3x4 r=-0.5 r=0.4", "", 0, 0 },
	{ "Clip", 6, "f3x4", "min=-0.3", 0, 0 },
	{ "Gemm", 17, "f3x4 f4x5 f5", "alpha=0.5 beta=2.0", 0, 0 },
	{ "Gemm", 17, "f4x3 f5x4 f3x1", "transA=1 transB=1", 0, 0 },
	{ "Gemm", 17, "f4x3 f4x5", "transA=1", 0, 0 },
	{ "Gemm", 17, "f3x4 f5x4 f", "transB=1", 0, 0 },
	{ "MatMul", 17, "f3x4 f4x5", "", 0, 0 },
	{ "MatMul", 17, "f2x3x4 f4x5", "", 0, 0 },
	{ "MatMul", 17, "f2x1x3x4 f3x4x5", "", 0, 0 },
	{ "MatMul", 17, "f4 f4x5", "", 0, 0 },
	{ "MatMul", 17, "f2x3x4 f4", "", 0, 0 },
	{ "MatMul", 17, "f4 f4", "", 0, 0 },
	{ "MatMul", 17, "f4 f2x4x3", "", 0, 0 },
	{ "MatMul", 17, "f3x4 f2x4x5", "", 0, 0 },
	{ "MatMulT", 17, "f2x4x3 f2x5x4", "transA=1 transB=1", 0, 0 },
	{ "MatMulT", 17, "f2x4x3 f4x5", "transA=1", 0, 0 },
	{ "MatMulT", 17, "f2x3x4 f5x4", "transB=1", 0, 0 },
	{ "Conv", 17, "f2x3x5x5 f4x3x3x3 f4", "pads=1,1,1,1", 0, 0 },
	{ "Conv", 17, "f2x4x6 f6x2x3", "group=2 strides=2, dilations=2,", 0, 0 },
	{ "Conv", 17, "f1x2x5x6 f2x2x2x3", "auto_pad=SAME_LOWER strides=2,2", 0, 0 },
	{ "Conv", 17, "f1x2x3x4x3 f2x2x2x2x2", "", 0, 0 },
	{ "Conv", 17, "f2x4x5x5 f4x1x3x3 f4", "group=4 pads=1,1,1,1", 0, 0 },
	{ "ConvTranspose", 17, "f2x3x3x3 f3x2x3x3 f2", "strides=2,2 pads=1,1,1,1 output_padding=1,1", 0, 0 },
	{ "ConvTranspose", 17, "f1x4x5 f4x1x2", "group=2 strides=2,", 0, 0 },
	{ "MaxPool", 17, "f2x2x5x5", "kernel_shape=3,3 strides=2,2 pads=1,1,1,1", 0, 0 },
	{ "MaxPool", 17, "f1x2x7", "kernel_shape=2, dilations=2,", 0, 0 },
	{ "MaxPool", 17, "f1x2x6x5", "kernel_shape=2,2 strides=2,2 ceil_mode=1", 0, 0 },
	{ "MaxPool", 17, "f1x1x3x3x3", "kernel_shape=2,2,2", 0, 0 },
	{ "MaxPool", 17, "f1x1x20x20", "kernel_shape=17,17 strides=3,3", 0, 0 },
	{ "GlobalMaxPool", 17, "f2x3x4x4", "", 0, 0 },
	{ "AveragePool", 17, "f2x2x5x5", "kernel_shape=3,3 strides=2,2 pads=1,1,1,1", 0, 0 },
	{ "AveragePool", 17, "f2x2x5x5", "kernel_shape=3,3 pads=1,1,1,1 count_include_pad=1", 0, 0 },
	{ "AveragePool", 17, "f1x2x6x5", "kernel_shape=2,2 strides=2,2 ceil_mode=1", 0, 0 },
	{ "GlobalAveragePool", 17, "f2x3x4x4", "", 0, 0 },
	{ "GlobalAveragePool", 17, "f2x3x4", "", 0, 0 },
	{ "BatchNormalization", 17, "f3x2x2x2 p2 f2 k2 k2", "training_mode=1", 3, 0 },
	{ "BatchNormalization", 17, "f3x2 p2 f2 k2 k2", "", 0, 0 },
	{ "BatchNormalization", 17, "f4x3 p3 f3 k3 k3", "training_mode=1", 3, 0 },
	{ "BatchNormalization", 9, "f3x2x4 p2 f2 k2 k2", "", 5, 0 },
	{ "Softmax", 17, "f2x3x4", "axis=1", 0, 0 },
	{ "Softmax", 11, "f2x3x4", "", 0, 0 },
	{ "LogSoftmax", 17, "f2x3x4", "", 0, 0 },
	{ "LogSoftmax", 17, "f2x3x4", "axis=0", 0, 0 },
	{ "SoftmaxCrossEntropyLoss", 17, "f4x5 l4<5", "", 0, 0 },
	{ "SoftmaxCrossEntropyLoss", 17, "f4x5x3 l4x3<5 k5", "ignore_index=2", 0, 0 },
	{ "SoftmaxCrossEntropyLoss", 17, "f4x5x3 l4x3<5", "reduction=none", 0, 0 },
	{ "SoftmaxCrossEntropyLoss", 17, "f4x5 l4<5 k5", "reduction=sum", 0, 0 },
	{ "NegativeLogLikelihoodLoss", 17, "f4x5 l4<5 k5", "", 0, 0 },
	{ "NegativeLogLikelihoodLoss", 17, "f4x5x2x3 l4x2x3<5", "reduction=none ignore_index=1", 0, 0 },
	{ "SoftmaxCrossEntropyLoss", 17, "f4x5x3 l4x3<5 k5", "ignore_index=2 smoothing=0.2", 0, 0 },
	{ "SoftmaxCrossEntropyLoss", 17, "f4x5 l4<5", "smoothing=0.1 reduction=none", 0, 0 },
	{ "BinaryCrossEntropyLoss", 17, "f4x1 l4<2", "", 0, 0 },
	{ "MeanSquaredErrorLoss", 17, "f4x3 k4x3", "", 0, 0 },
	{ "SumLoss", 17, "f4x3", "", 0, 0 },
	{ "BinaryCrossEntropyLoss", 17, "f2x3x4 k2x3x4 k3x1", "", 0, 0 },
	{ "MeanAbsoluteErrorLoss", 17, "f4x3 k4x3", "", 0, 0 },
	{ "HuberLoss", 17, "f4x3 k4x3", "delta=0.7", 0, 0 },
	{ "SmoothL1Loss", 17, "f4x3 k4x3", "beta=0.7", 0, 0 },
	{ "KLDivergenceLoss", 17, "f4x3 k4x3", "", 0, 0 },
	{ "CrossEntropyPart", 17, "f4x5 l4<9", "first=2", 0, 0 },
	{ "CrossEntropyPart", 17, "f4x5x3 l4x3<9", "", 0, 0 },
	{ "CrossEntropyJoin", 17, "l4<9 p4x3 p4x3 p4x3", "classes=9", 0, 0 },
	{ "CrossEntropyJoin", 17, "l4x2<9 p4x3x2 p4x3x2", "classes=9 reduction=none ignore_index=1", 0, 0 },
	{ "CrossEntropyJoin", 17, "l4<9 p4x3 p4x3", "classes=9 reduction=sum", 0, 0 },
	{ "SampleSplit", 17, "f5x3", "", 3, 1 },
	{ "SampleSplit", 17, "f2x6x2", "axis=1 unit=2", 2, 0 },
	{ "SampleConcat", 17, "f2x3 f2x3 f1x3", "", 0, 0 },
	{ "SampleConcat", 17, "f2x4x2 f2x2x2", "axis=1 unit=2", 0, 0 },
	{ "Dropout", 17, "f4x5 r=0.4 b=1", "", 0, 0 },
	{ "Dropout", 17, "f4x5 r=0.4", "", 0, 0 },
	{ "Identity", 17, "f3x4", "", 0, 0 },
	{ "Reshape", 17, "f3x4 i=2,-1", "", 0, 0 },
	{ "Flatten", 17, "f2x3x4", "", 0, 0 },
	{ "Squeeze", 17, "f2x1x4 i=1", "", 0, 0 },
	{ "Squeeze", 11, "f2x1x4x1", "axes=1,", 0, 0 },
	{ "Unsqueeze", 17, "f2x4 i=0,-1", "", 0, 0 },
	{ "Layout", 17, "f2x3x4x5", "to=channels-last", 0, 0 },
	{ "LayoutView", 17, "f2x3x1x1", "to=channels-last", 0, 0 },
	{ "TransposeView", 17, "f2x1x4x5", "perm=0,2,3,1", 0, 0 },
	{ "Cast", 17, "f3x4", "to=11", 0, 0 },
	{ "CastLike", 17, "f3x4 k1", "", 0, 0 },
	{ "ReduceSum", 17, "f2x3x4 i=0,2", "", 0, 0 },
	{ "ReduceSum", 17, "f2x3x4", "keepdims=0", 0, 0 },
	{ "ReduceMean", 17, "f2x3x4", "axes=1, keepdims=0", 0, 0 },
	{ "ReduceMax", 17, "f2x3x4", "axes=1,", 0, 0 },
	{ "ReduceMin", 17, "f2x3x4", "axes=0,2 keepdims=0", 0, 0 },
	{ "ReduceProd", 17, "p2x3", "axes=1, keepdims=0", 0, 0 },
	{ "ReduceProd", 17, "f2x3x2x2", "axes=0,2", 0, 0 },
	{ "ReduceProd", 18, "f2x3", "", 0, 0 },
	{ "ReduceSumSquare", 17, "f2x3x4", "axes=2, keepdims=0", 0, 0 },
	{ "ReduceL1", 17, "f2x3x4", "axes=1, keepdims=0", 0, 0 },
	{ "ReduceL2", 17, "f2x3x4", "axes=1, keepdims=0", 0, 0 },
	{ "ReduceLogSum", 17, "p2x3", "axes=1, keepdims=0", 0, 0 },
	{ "ReduceLogSumExp", 17, "f2x3x4", "axes=1, keepdims=0", 0, 0 },
	{ "Transpose", 17, "f2x3x4", "perm=2,0,1", 0, 0 },
	{ "Slice", 17, "f4x5 i=3,1 i=-9,5 i=0,1 i=-2,2", "", 0, 0 },
	{ "Slice", 9, "f4x5", "starts=1, ends=3, axes=1,", 0, 0 },
	{ "Concat", 17, "f2x3 f2x1 f2x2", "axis=1", 0, 0 },
	{ "Split", 17, "f2x6", "axis=1", 3, 0 },
	{ "Split", 17, "f2x6 i=4,2", "axis=1", 2, 0 },
	{ "Expand", 17, "f3x1 i=2,1,4", "", 0, 0 },
	{ "Tile", 17, "f2x3 i=2,3", "", 0, 0 },
	{ "Gather", 17, "f4x3 l2x2<4", "", 0, 0 },
	{ "Gather", 17, "f2x4x3 l5<4", "axis=1", 0, 0 },
	{ "LayerNormalization", 17, "f2x3x4 p4 f4", "", 0, 0 },
	{ "LayerNormalization", 17, "f2x3x4 p3x4", "axis=1", 0, 0 },
	{ "LayerNormalization", 17, "f2x3x4 p3x1 f1x1", "axis=1", 0, 0 },
	{ "RMSNormalization", 23, "f2x3x4 p4", "", 0, 0 },
	{ "RMSNormalization", 23, "f2x3x4 p3x4", "axis=-2 epsilon=0.2", 0, 0 },
	{ "RMSNormalization", 23, "f2x3x4 p4", "axis=1", 0, 0 },
	{ "GroupNormalization", 18, "f2x6x2x2 p3 f3", "num_groups=3", 0, 0 },
	{ "GroupNormalization", 21, "f2x6x3 p6 f6", "num_groups=2", 0, 0 },
	{ "GroupNormalization", 21, "f3x4 p4 f4", "num_groups=2 epsilon=0.1", 0, 0 },
	{ "Attention", 23, "f2x2x3x4 f2x2x5x4 f2x2x5x3", "", 0, 0 },
	{ "Attention", 23, "f2x3x8 f2x5x4 f2x5x6", "q_num_heads=4 kv_num_heads=2", 0, 0 },
	{ "Attention", 23, "f2x2x4x3 f2x2x4x3 f2x2x4x3", "is_causal=1 scale=0.7 softcap=0.9", 0, 0 },
	{ "Attention", 23, "f2x2x3x4 f2x2x5x4 f2x2x5x3 f3x5", "softcap=0.5", 0, 0 },
	{ "Attention", 23, "f2x2x3x4 f2x2x5x4 f2x2x5x3 f2x1x3x4", "", 0, 0 },
	{ "Attention", 23, "f2x2x3x4 f2x2x5x4 f2x2x5x3 b2x1x3x5", "", 0, 0 },
	{ "Attention", 23, "f2x3x8 f2x3x4 f2x3x6 - f2x2x2x2 f2x2x2x3",
	  "q_num_heads=4 kv_num_heads=2 is_causal=1", 0, 0 },
	{ "Attention", 24, "f2x4x3x4 f2x2x5x4 f2x2x5x3 - - - i=4,2", "is_causal=1", 0, 0 },
	{ "Attention", 25, "f1x2x5x4 f1x2x5x4 f1x2x5x3", "left_window_size=1 right_window_size=2", 0, 0 },
	{ "Attention", 23, "f1x1x70x2 f1x1x70x2 f1x1x70x2", "is_causal=1", 0, 0 },
	{ "StridedAttention", 17, "f3x2x4x4 f2x5x2x4 f2x2x5x3 f4x3x5",
	  "axesQ=1,2,0,3 axesK=0,2,1,3 axesY=2,1,0,3 scale=0.7", 0, 0 },
	{ "StridedAttention", 17, "f4x5x2x3 f5x2x2x3 f5x2x2x2",
	  "axesQ=2,0,1,3 axesK=2,1,0,3 axesV=1,2,0,3 is_causal=1", 0, 0 },
	{ "InstanceNormalization", 17, "f2x3x4 p3 f3", "", 0, 0 },
	{ "LRN", 17, "f2x5x3", "size=4 alpha=0.5 bias=1.5", 0, 0 },
	{ "Resize", 17, "f1x2x3x4 - k0 i=1,2,5,6", "mode=linear", 0, 0 },
	{ "Resize", 17, "f1x2x3x4 - k0 i=1,2,5,3", "mode=cubic", 0, 0 },
	{ "Resize", 17, "f1x2x3x4 - k0 i=1,2,5,7", "mode=nearest coordinate_transformation_mode=asymmetric",
	  0, 0 },
	{ "GridSample", 16, "f2x2x4x5 f2x3x3x2", "", 0, 0 },
	{ "GridSample", 20, "f1x2x4x5 f1x6x2x2", "mode=cubic padding_mode=border", 0, 0 },
	{ "GridSample", 20, "f1x1x3x4 p1x6x2x2", "mode=cubic align_corners=1", 0, 0 },
	{ "GridSample", 20, "f1x1x3x4 p1x6x2x2", "mode=linear padding_mode=reflection", 0, 0 },
	{ "GridSample", 20, "f1x1x3x4 p1x6x2x2", "mode=cubic padding_mode=reflection align_corners=1", 0, 0 },
	{ "GridSample", 20, "f1x1x3x4 p1x6x2x2", "mode=linear padding_mode=border align_corners=1", 0, 0 },
	{ "GridSample", 20, "f2x2x3x2x4 f2x2x2x2x3", "", 0, 0 },
	{ "GridSample", 20, "f1x1x3x3x4 f1x2x1x3x3", "mode=cubic align_corners=1", 0, 0 },
	{ "GridSample", 20, "f1x2x4x5 f1x3x3x2", "mode=nearest padding_mode=border", 0, 0 },
	{ "AffineGrid", 20, "f2x2x3 i=2,1,3,4", "", 0, 0 },
	{ "AffineGrid", 20, "f2x3x4 i=2,1,3,1,4", "align_corners=1", 0, 0 },
	{ "LpPool", 18, "f2x2x6x5", "kernel_shape=3,2 strides=2,2 pads=1,0,1,1 dilations=1,2", 0, 0 },
	{ "LpPool", 18, "f1x2x7", "kernel_shape=3, strides=3, ceil_mode=1 p=3", 0, 0 },
	{ "LpPool", 18, "f1x1x4x3x3", "kernel_shape=2,2,2 p=1", 0, 0 },
	{ "LpPool", 11, "f1x2x5x5", "kernel_shape=2,2 auto_pad=SAME_LOWER strides=2,2", 0, 0 },
	{ "GlobalLpPool", 2, "f2x2x3x4", "p=3", 0, 0 },
	{ "Col2Im", 18, "f2x12x9 i=4,5 i=2,3", "", 0, 0 },
	{ "Col2Im", 18, "f1x4x12 i=5,6 i=2,2", "strides=2,2 pads=1,1,1,2 dilations=2,1", 0, 0 },
	{ "Col2Im", 18, "f1x3x5 i=7 i=3", "", 0, 0 },
	{ "Col2Im", 18, "f1x8x4 i=3,2,3 i=2,2,2", "", 0, 0 },
	{ "MaxUnpool", 11, "f1x1x2x2 l1x1x2x2=1,6,8,15", "kernel_shape=2,2 strides=2,2", 0, 0 },
	{ "MaxUnpool", 11, "f1x2x3 l1x2x3=5,0,2,6,8,11 i=1,2,9", "kernel_shape=2, strides=2,", 0, 0 },
	{ "RoiAlign", 16, "f2x2x5x6 k3x4=0,0,4,3,1,1,5,4.5,-2,0.7,9,2.2 l3<2",
	  "output_height=2 output_width=3", 0, 0 },
	{ "RoiAlign", 10, "f2x2x5x6 k2x4=0,1,8,9,3,1,11,9 l2<2",
	  "output_height=3 output_width=2 sampling_ratio=2 spatial_scale=0.5", 0, 0 },
	{ "RoiAlign", 22, "f2x2x5x6 k2x4=0,0,4,3,1,1,5.2,4.5 l2<2", "output_height=2 output_width=3 mode=max",
	  0, 0 },
	{ "DeformConv", 19, "f2x2x4x5 f3x2x2x2 f2x8x4x5 f3", "pads=0,1,1,0", 0, 0 },
	{ "DeformConv", 22, "f2x4x5x4 f4x2x3x2 f2x24x3x2 - f2x12x3x2",
	  "group=2 offset_group=2 strides=2,2 pads=1,0,1,1 dilations=1,1", 0, 0 },
	{ "DeformConv", 22, "f1x4x6x5 f2x2x2x2 f1x8x4x3 f2 f1x4x4x3", "group=2 dilations=2,2", 0, 0 },
	{ "Upsample", 9, "f1x3 q=1,2", "", 0, 0 },
	{ "Resize", 19, "f1x2x9x8 - k0 i=4,3", "mode=linear antialias=1 axes=2,3", 0, 0 },
	{ "Resize", 19, "f9x2 - q=0.4", "mode=cubic antialias=1 axes=0,", 0, 0 },
	{ "Resize", 18, "f7x8 - q=0.5,0.6", "mode=cubic antialias=1 exclude_outside=1 cubic_coeff_a=-0.5", 0,
	  0 },
	{ "Resize", 19, "f1x5x4 - k0 i=3,7", "mode=linear axes=-1,1 keep_aspect_ratio_policy=not_larger", 0,
	  0 },
	{ "Resize", 19, "f4x5 - q=1.3,0.7", "mode=linear coordinate_transformation_mode=half_pixel_symmetric",
	  0, 0 },
	{ "Resize", 19, "f2x5x5 q=0.2,-0.1,0.9,0.6 k0 i=4,3",
	  "mode=linear axes=2,1 coordinate_transformation_mode=tf_crop_and_resize extrapolation_value=2.0", 0,
	  0 },
	{ "Resize", 19, "f2x5 - k0 i=2,13", "mode=cubic coordinate_transformation_mode=align_corners", 0, 0 },
	{ "GatherElements", 17, "f4x3 l2x3<4", "", 0, 0 },
	{ "GatherElements", 17, "f2x5 l2x7<5", "axis=1", 0, 0 },
	{ "GatherND", 17, "f3x2x4 l5x2<2", "", 0, 0 },
	{ "GatherND", 17, "f2x3x4 l2x5x1<3", "batch_dims=1", 0, 0 },
	{ "ScatterElements", 17, "f3x4 l3x1<4 f3x1", "axis=1", 0, 0 },
	{ "ScatterElements", 17, "f3x4 l2x4<3 f2x4", "reduction=add", 0, 0 },
	{ "ScatterND", 17, "f4x3 l2x1<4 f2x3", "reduction=add", 0, 0 },
	{ "ScatterND", 17, "f4x3 l1x2<3 f1", "", 0, 0 },
	{ "TopK", 17, "f3x5 i=2", "", 2, 0 },
	{ "TopK", 17, "f3x5 i=2", "axis=0 largest=0", 2, 0 },
	{ "Trilu", 17, "f2x3x4", "", 0, 0 },
	{ "Trilu", 17, "f3x4 i=-1", "upper=0", 0, 0 },
	{ "CumSum", 17, "f2x3x2 i=1", "exclusive=1", 0, 0 },
	{ "CumProd", 26, "f2x4x2 i=1", "", 0, 0 },
	{ "CumProd", 26, "f2x4x2 i=-2", "exclusive=1", 0, 0 },
	{ "CumProd", 26, "f2x4 i=1", "reverse=1", 0, 0 },
	{ "CumProd", 26, "f5 i=0", "exclusive=1 reverse=1", 0, 0 },
	{ "DFT", 17, "f2x5x3x1", "", 0, 0 },
	{ "DFT", 17, "f2x5x3x4x2", "axis=-3 inverse=1", 0, 0 },
	{ "DFT", 20, "f2x5x3x2 i=3 i=1", "", 0, 0 },
	{ "DFT", 20, "f4x2x2 i=7 i=0", "inverse=1", 0, 0 },
	{ "DFT", 20, "f3x5x1", "onesided=1", 0, 0 },
	{ "DFT", 20, "f3x4x1 i=6", "onesided=1", 0, 0 },
	{ "DFT", 20, "f3x4x2", "inverse=1 onesided=1", 0, 0 },
	{ "DFT", 20, "f4x3x2 i=5 i=-3", "inverse=1 onesided=1", 0, 0 },
	{ "STFT", 17, "f2x11x1 i=3 - i=5", "", 0, 0 },
	{ "STFT", 17, "f2x9x2 i=2 - i=4", "", 0, 0 },
	{ "STFT", 17, "f1x10x1 i=4 - i=6", "onesided=0", 0, 0 },
	{ "STFT", 17, "f2x11x1 i=3 q=0.2,1,-0.5,0.7", "", 0, 0 },
	{ "LpNormalization", 22, "f2x3x4", "", 0, 0 },
	{ "LpNormalization", 22, "f2x3x4", "axis=1 p=1", 0, 0 },
	{ "DepthToSpace", 17, "f2x8x2x3", "blocksize=2 mode=CRD", 0, 0 },
	{ "SpaceToDepth", 17, "f2x2x4x6", "blocksize=2", 0, 0 },
	{ "Pad", 17, "f3x4 i=1,-1,0,2 r=0.5", "", 0, 0 },
	{ "Pad", 17, "f3x4 i=1,2,2,1", "mode=reflect", 0, 0 },
	{ "Pad", 17, "f3x4 i=1,2,2,1", "mode=edge", 0, 0 },
	{ "Pad", 25, "f2x3x4 i=1,2,2,1 - i=-1,1", "mode=wrap", 0, 0 },
	{ "Pad", 25, "f2x3 i=2,-1,7,5", "mode=wrap", 0, 0 },
	{ "Pad", 18, "f2x3x4 i=3,1 - i=1", "mode=reflect", 0, 0 },
	{ "Pad", 18, "f2x3x4 i=1,-1 r=0.5 i=2", "", 0, 0 },
	{ "CenterCropPad", 18, "f5x4x3 i=2,7,3", "", 0, 0 },
	{ "CenterCropPad", 18, "f5x4x3 i=6,1", "axes=-1,0", 0, 0 },
	{ "Einsum", 17, "f3x4 f2x4x5", "equation=bd,edh->ebh", 0, 0 },
	{ "Einsum", 17, "f2x3x4 f3x2", "equation=ebd,be->bd", 0, 0 },
	{ "Einsum", 17, "f2x3x5 f2x5x4", "equation=ebh,ehd->ebd", 0, 0 },
	{ "Einsum", 17, "f2x3x3", "equation=...ii->...i", 0, 0 },
	{ "Einsum", 17, "f4 f4", "equation=i,i", 0, 0 },
	{ "Einsum", 17, "f3x4x2", "equation=ijk->ki", 0, 0 },
	{ "Einsum", 17, "f2x3x4 f1x4x5", "equation=...ij,...jk->...ik", 0, 0 },
	{ "Einsum", 17, "f2x3x4 f3x4x2 f2x5", "equation=bij,ijk,kl->bl", 0, 0 },
	{ "RNN", 17, "f3x2x4 f1x5x4 f1x5x5 f1x10 - f1x2x5", "", 0, 0 },
	{ "RNN", 17, "f2x3x4 f2x5x4 f2x5x5 f2x10 i=3,1 f2x2x5", "layout=1 direction=bidirectional", 0, 0 },
	{ "GRU", 17, "f3x2x4 f1x15x4 f1x15x5 f1x30 - f1x2x5", "", 0, 0 },
	{ "GRU", 17, "f3x2x4 f2x15x4 f2x15x5 f2x30 i=3,2 f2x2x5",
	  "linear_before_reset=1 direction=bidirectional", 0, 0 },
	{ "GRU", 17, "f3x2x4 f1x15x4 f1x15x5", "direction=reverse", 0, 0 },
	{ "LSTM", 17, "f3x2x4 f1x20x4 f1x20x5 f1x40 - f1x2x5 f1x2x5 f1x15", "", 0, 0 },
	{ "LSTM", 17, "f3x2x4 f2x20x4 f2x20x5 f2x40 i=1,3 f2x2x5", "direction=bidirectional", 0, 0 },
	{ "LSTM", 17, "f2x3x4 f1x8x4 f1x8x2 f1x16 - f2x1x2 f2x1x2 f1x6", "layout=1 input_forget=1", 0, 0 },
	{ "MeanVarianceNormalization", 17, "f3x2x4", "", 0, 0 },
	{ "MeanVarianceNormalization", 17, "f3x2x4", "axes=1,", 0, 0 },
	{ "LSTM", 17, "f3x2x4 f2x8x4 f2x8x2 f2x16 i=1,3 f2x2x2 f2x2x2", "direction=bidirectional", 3, 2 },
	{ "LSTM", 17, "f2x3x4 f1x8x4 f1x8x2", "layout=1", 3, 1 },
	{ "GRU", 17, "f3x2x4 f1x6x4 f1x6x2 f1x12 i=3,2", "", 2, 1 },
	{ "ReverseSequence", 17, "f4x3x2 i=4,2,1", "", 0, 0 },
	{ "ReverseSequence", 17, "f2x4 i=3,4", "batch_axis=0 time_axis=1", 0, 0 },
	{ "Einsum", 17, "f3x2 f4", "equation=ij,k->ki", 0, 0 },
	{ "Einsum", 17, "f3x2", "equation=ba", 0, 0 },
	{ "RotaryEmbedding", 23, "f2x2x3x4 f5x2 f5x2 l2x3<5", "", 0, 0 },
	{ "RotaryEmbedding", 23, "f2x3x8 f2x3x2 f2x3x2", "num_heads=2 interleaved=1", 0, 0 },
	{ "RotaryEmbedding", 23, "f2x2x3x6 f1x3x2 f1x3x2", "rotary_embedding_dim=4", 0, 0 },
	{ "RotaryEmbedding", 23, "f2x3x4x4 f5x2 f5x2 l2x3<5", "axesX=0,2,1,3", 0, 0 },
	{ "RotaryEmbedding", 23, "f3x2x4x6 f1x3x2 f1x3x2", "axesX=1,2,0,3 rotary_embedding_dim=4", 0, 0 },
	{ "RandomUniformLike", 22, "f3x4", "low=-1 high=2", 0, 0 },
	{ "RandomNormalLike", 22, "f3x4", "", 0, 0 },
	{ "Bernoulli", 22, "p3x4", "", 0, 0 },
	{ "TensorScatter", 24, "f2x2x5x3 f2x2x2x3 i=3,1", "", 0, 0 },
	{ "TensorScatter", 24, "f2x5x3 f2x4x3 i=3,1", "mode=circular axis=1", 0, 0 },
	{ "TensorScatter", 24, "f2x5x3 f2x2x3", "", 0, 0 },
	{ "LinearAttention", 27, "f2x5x8 f2x5x4 f2x5x6 f2x2x2x3",
	  "q_num_heads=4 kv_num_heads=2 update_rule=linear", 0, 0 },
	{ "LinearAttention", 27, "f2x5x4 f2x5x4 f2x5x6 - f2x5x4",
	  "q_num_heads=2 kv_num_heads=2 update_rule=gated", 0, 0 },
	{ "LinearAttention", 27, "f2x5x4 f2x5x4 f2x5x6 - - f2x5x1",
	  "q_num_heads=2 kv_num_heads=2 update_rule=delta scale=0.7", 0, 0 },
	{ "LinearAttention", 27, "f1x7x8 f1x7x4 f1x7x6 f1x2x2x3 f1x7x2 f1x7x2",
	  "q_num_heads=4 kv_num_heads=2", 0, 0 },
	{ "LinearAttention", 27, "f2x3x4 f2x3x4 f2x3x6 f2x2x2x3 f2x3x2 f2x3x2",
	  "q_num_heads=2 kv_num_heads=2", 2, 1 },
	{ "CausalConvWithState", 27, "f2x3x5 f3x1x3", "", 0, 0 },
	{ "CausalConvWithState", 27, "f2x3x5 f3x1x3 f3 f2x3x2", "activation=silu", 0, 0 },
	{ "CausalConvWithState", 27, "f2x3x2 f3x1x4 f3 f2x3x3", "activation=swish", 0, 0 },
	{ "CausalConvWithState", 27, "f2x3x2 f3x1x4 f3 f2x3x3", "", 2, 1 },
};

/* Classes without a kernel, and the reasons. */
static const struct { const char *type, *why; } no_kernel[] = {
	{ "Update", "the executor makes it, through the back end's update" },
};

static const char *const works[] = { "conv",   "dense", "pool", "norm",   "activation", "elementwise",
				     "reduce", "loss",  "move", "update", "other" };

/* -- a case as a graph -- */

enum { MAX_IN = 8, MAX_ATTR = 8, MAX_BYTES = 1 << 20 };

static struct dlb_rng rng;

/* Changes of a case: every dimension of size `gone` becomes 0, or only dimension `at` of every operand (at >=
 * 0); operand `absent` is absent; the integers of operand or attribute `odd` (attributes count from MAX_IN
 * on) become `value`; floats have type `real`. */
struct twist { int64_t gone; int at, absent, odd; int64_t value; enum dlb_dtype real; bool rounded; };
static const struct twist as_it_is = { .gone = -1, .at = -1, .absent = -1, .odd = -1, .real = DLB_F64 };
static struct twist twist;

/* Rounds to bf16, so that the case has the same values in bf16 and in f32. */
static double rounded(double x)
{
	uint16_t half;

	if (!twist.rounded)
		return x;
	dlb_value_set(&half, DLB_BF16, 0, x);
	return dlb_value_real(&half, DLB_BF16, 0);
}

static double number(char kind)
{
	double u = dlb_rng_uniform(&rng);

	return kind == 'f' ? 2 * u - 1 : kind == 'g' ? 1.5 + u : 0.5 + u;
}

static const char *read_shape(const char *s, struct dlb_desc *d)
{
	d->n_dims = 0;
	while (isdigit((unsigned char)*s)) {
		const int64_t n = strtol(s, (char **)&s, 10);
		d->dim[d->n_dims] = n == twist.gone && (twist.at < 0 || twist.at == d->n_dims) ? 0 : n;
		d->n_dims++;
		s += *s == 'x';
	}
	return s;
}

/* Adds operand k described by s; *wanted: whether its gradient is tested. */
static int add_input(struct dlb_graph *g, int k, const char *s, bool *wanted)
{
	static const char letters[] = "fpgkrqilb";
	char name[32], kind = *s;
	struct dlb_desc d = { .dtype = kind == 'b'                ? DLB_BOOL :
				       kind == 'i' || kind == 'l' ? DLB_I64 :
								    twist.real };
	struct dlb_tensor *t;
	double value[16] = { 0 };
	long bound = 0;
	char *data;
	int id, n = 0;

	*wanted = false;
	if (kind == '-' || k == twist.absent)
		return -1;
	*wanted = kind == 'f' || kind == 'p' || kind == 'g';
	assert(strchr(letters, kind));
	s = read_shape(s + 1, &d);
	if (*s == '<')
		bound = strtol(s + 1, NULL, 10);
	while (*s == '=' || *s == ',')
		value[n++] = strtod(s + 1, (char **)&s);
	if (kind == 'i' || kind == 'q') {
		d.n_dims = 1;
		d.dim[0] = n;
	}
	snprintf(name, sizeof name, "x%d", g->n_tensors);
	id = dlb_graph_add_tensor(g, dlb_arena_strdup(&g->arena, name),
				  *wanted ? DLB_T_INPUT : DLB_T_CONSTANT);
	t = &g->tensor[id];
	t->dtype = d.dtype;
	t->n_dims = d.n_dims;
	for (int i = 0; i < d.n_dims; i++)
		t->dim[i] = (struct dlb_dim){ 0, d.dim[i] };
	data = dlb_arena_alloc(&g->arena, dlb_desc_bytes(&d) + 8);
	for (int64_t i = 0; i < dlb_desc_count(&d); i++)
		dlb_value_set(data, d.dtype, i,
			      rounded(n           ? value[i] :
				      kind == 'l' ? (double)dlb_rng_below(&rng, (uint64_t)bound) :
				      kind == 'b' ? (double)dlb_rng_below(&rng, 2) :
						    number(kind)));
	for (int64_t i = 0; i < dlb_desc_count(&d) && k == twist.odd && kind != 'b' && d.dtype == DLB_I64;
	     i++)
		((int64_t *)data)[i] = twist.value;
	t->data = data;
	return id;
}

static struct dlb_attr read_attr(struct dlb_graph *g, int k, const char *word)
{
	const char *v = strchr(word, '=') + 1;
	struct dlb_attr a = { .name = dlb_arena_strdup(&g->arena, word) };
	int64_t *ints;

	*strchr((char *)a.name, '=') = 0;
	if (isalpha((unsigned char)*v) || !strncmp(v, "...", 3)) {
		a.type = DLB_ATTR_STR;
		a.s = dlb_arena_strdup(&g->arena, v);
	} else if (strchr(v, ',')) {
		a.type = DLB_ATTR_INTS;
		a.ints = ints = dlb_arena_array(&g->arena, 16, sizeof *ints);
		while (*v) {
			ints[a.n++] = strtol(v, (char **)&v, 10);
			if (k == twist.odd - MAX_IN)
				ints[a.n - 1] = twist.value;
			v += *v == ',';
		}
	} else if (strchr(v, '.')) {
		a.type = DLB_ATTR_REAL;
		a.f = strtod(v, NULL);
	} else {
		a.type = DLB_ATTR_INT;
		a.i = k == twist.odd - MAX_IN ? twist.value : strtol(v, NULL, 10);
	}
	return a;
}

struct built { int wanted[MAX_IN], n_wanted, n_in, n_attr; };

static void build(struct dlb_graph *g, const struct test_case *c, struct built *b)
{
	const struct dlb_op_class *cls;
	int kind = dlb_op_kind_find(c->type, NULL), in[MAX_IN], out[8], n_in = 0, n_attr = 0, n_out, op;
	char text[256], *word, *rest;
	struct dlb_attr attr[MAX_ATTR];

	kind = kind < 0 ? dlb_op_kind_find(c->type, "dlb") : kind;
	cls = dlb_op_class_of(kind);
	assert(cls);
	dlb_graph_init(g);
	b->n_wanted = 0;
	snprintf(text, sizeof text, "%s", c->in);
	for (word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
		bool wanted;

		in[n_in] = add_input(g, n_in, word, &wanted);
		if (wanted)
			b->wanted[b->n_wanted++] = in[n_in];
		n_in++;
	}
	snprintf(text, sizeof text, "%s", c->attr);
	for (word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
		attr[n_attr] = read_attr(g, n_attr, word), n_attr++;
	n_out = c->n_out ? c->n_out : cls->n_out[0];
	for (int i = 0; i < n_out; i++) {
		char name[32];

		snprintf(name, sizeof name, "y%d", i);
		out[i] = dlb_graph_add_tensor(g, dlb_arena_strdup(&g->arena, name), DLB_T_ACTIVATION);
	}
	op = dlb_graph_add_op(g, DLB_FORWARD,
			      &(struct dlb_op_spec){ .name = "op", .type = c->type,
						     .domain = cls->domain ? cls->domain : "", .in = in,
						     .n_in = n_in, .out = out, .n_out = n_out, .attr = attr,
						     .n_attr = n_attr });
	g->op[op].opset = c->opset;
	g->input = dlb_arena_array(&g->arena, MAX_IN, sizeof *g->input);
	for (int i = 0; i < b->n_wanted; i++)
		g->input[g->n_inputs++] = b->wanted[i];
	g->output = dlb_arena_array(&g->arena, 1, sizeof *g->output);
	g->output[g->n_outputs++] = out[c->y];
	b->n_in = n_in;
	b->n_attr = n_attr;
	g->dtype = twist.real;
	g->training = false;
	g->opset = c->opset;
}

static void die(const struct test_case *c, const struct dlb_error *err)
{
	fprintf(stderr, "%s (%s; %s):\n", c->type, c->in, c->attr);
	dlb_error_print(stderr, "test_op", -1, err);
	abort();
}

/* sum(y * cotangent); the cotangent is a fixed function of the element's index. */
static double weight_of(int64_t i)
{
	return sin(1.0 + 2.3 * (double)i);
}

static double objective(struct machine *m, const struct test_case *c, int y, int op)
{
	struct dlb_error err = { 0 };
	struct dlb_desc plain;
	int64_t stride[DLB_MAX_DIMS];
	double sum = 0;

	if (run_op(m, op, &err))
		die(c, &err);
	dlb_desc_strides(&m->v[y].d, stride);
	plain = m->v[y].d;
	for (int64_t i = 0; i < dlb_desc_count(&plain); i++) {
		int64_t at = 0, rest = i;

		for (int d = plain.n_dims - 1; d >= 0; d--) {
			at += rest % plain.dim[d] * stride[d];
			rest /= plain.dim[d];
		}
		sum += weight_of(i) * dlb_value_real(m->v[y].data, DLB_F64, at);
	}
	return sum;
}

static void forget(struct machine *m, int op)	/* frees outputs of op, so that they are computed again */
{
	for (int i = 0; i < m->g.op[op].n_out; i++)
		if (m->g.op[op].out[i] >= 0) {
			free(m->v[m->g.op[op].out[i]].data);
			m->v[m->g.op[op].out[i]].data = NULL;
		}
}

static int check_gradients(struct machine *m, const struct test_case *c, const int *wanted, const int *grad,
			   int n, int y)
{
	int checked = 0;

	for (int i = 0; i < n; i++) {
		struct value *x = &m->v[wanted[i]], *dx = grad[i] < 0 ? NULL : &m->v[grad[i]];

		for (int64_t j = 0; j < dlb_desc_count(&x->d); j++, checked++) {
			double *e = &((double *)x->data)[j], was = *e, h = 1e-6, up, down;
			double got = dx ? dlb_value_real(dx->data, DLB_F64, j) : 0, want;

			*e = was + h;
			forget(m, 0);
			up = objective(m, c, y, 0);
			*e = was - h;
			forget(m, 0);
			down = objective(m, c, y, 0);
			*e = was;
			want = (up - down) / (2 * h);
			if (!(fabs(got - want) <= 1e-6 + 1e-6 * fabs(want))) {
				fprintf(stderr,
					"%s (%s; %s): gradient %lld of input %d is %.12g, central difference "
					"%.12g\n",
					c->type, c->in, c->attr, (long long)j, i, got, want);
				abort();
			}
		}
	}
	return checked;
}

/* Adds and runs the backward ops of y for the inputs `wanted`. */
static int differentiate(struct machine *m, int y, const int *wanted, int n, int *grad, struct dlb_error *err)
{
	const int seed = dlb_graph_add_tensor(&m->g, "seed", DLB_T_SEED);
	struct dlb_tensor *t = &m->g.tensor[seed];

	t->dtype = m->g.tensor[y].dtype;
	t->n_dims = m->g.tensor[y].n_dims;
	memcpy(t->dim, m->g.tensor[y].dim, sizeof t->dim);
	if (dlb_graph_differentiate_from(&m->g, y, seed, wanted, n, grad, err))
		return -1;
	machine_values(m);
	struct dlb_desc d = dlb_tensor_desc(&m->g.tensor[seed], 1);
	m->g.tensor[seed].layout = d.layout = DLB_PLAIN;
	m->v[seed] = (struct value){ .d = d,
				     .data = dlb_xcalloc((size_t)dlb_desc_count(&d) + 1, sizeof(double)) };
	for (int64_t i = 0; i < dlb_desc_count(&d); i++)
		dlb_value_set(m->v[seed].data, d.dtype, i, rounded(weight_of(i)));
	return 0;
}

static int run_case(struct dlb_backend be, const struct test_case *c)
{
	struct machine m = { .be = be };
	struct dlb_error err = { 0 };
	struct built b;
	int grad[MAX_IN], n, y;

	build(&m.g, c, &b);
	if (dlb_graph_fold(&m.g, -1, &m.be, &err))
		die(c, &err);
	assert(IS(m.g.n_ops, ==, 1));
	y = m.g.output[0];
	assert(IS(m.g.op[0].flop, >=, 0) && IS(m.g.op[0].bytes, >, 0));
	for (int i = 0; i < m.g.n_inputs; i++)
		b.wanted[i] = m.g.input[i];
	if (differentiate(&m, y, b.wanted, b.n_wanted, grad, &err) || run_all(&m, &err))
		die(c, &err);
	n = check_gradients(&m, c, b.wanted, grad, b.n_wanted, y);
	machine_reset(&m);
	return n;
}

/* -- changed cases: they run, or are refused with a message -- */

static double bytes_of(const struct dlb_graph *g)
{
	double sum = 0;

	for (int t = 0; t < g->n_tensors; t++)
		sum += dlb_tensor_bytes(&g->tensor[t], 1);
	return sum;
}

/* Returns 1 if the case ran to its end. */
static int run_twisted(struct dlb_backend be, const struct test_case *c)
{
	struct machine m = { .be = be };
	struct dlb_error err = { 0 };
	int grad[MAX_IN], done = 0;
	struct built b;

	build(&m.g, c, &b);
	const bool made = !dlb_graph_fold(&m.g, -1, &m.be, &err);
	for (int i = 0; i < m.g.n_inputs; i++)
		b.wanted[i] = m.g.input[i];
	if (made && bytes_of(&m.g) < MAX_BYTES &&
	    !differentiate(&m, m.g.output[0], b.wanted, m.g.n_inputs, grad, &err))
		done = bytes_of(&m.g) >= MAX_BYTES || !run_all(&m, &err);
	if (!done && !err.what[0] && bytes_of(&m.g) < MAX_BYTES)
		fprintf(stderr, "%s (%s; %s): refused without a word\n", c->type, c->in, c->attr);
	assert(done || err.what[0] || bytes_of(&m.g) >= MAX_BYTES);
	machine_reset(&m);
	return done;
}

/* Runs the case in `type`, forward and backward, on values that bf16 can hold; false: refused. m has its back
 * ends. */
static bool run_rounded(const struct test_case *c, enum dlb_dtype type, struct machine *m, int *grad,
			struct built *b)
{
	struct dlb_error err = { 0 };

	twist = as_it_is;
	twist.real = type;
	twist.rounded = true;
	build(&m->g, c, b);
	const bool done = !dlb_graph_fold(&m->g, -1, &m->be, &err) &&
		!differentiate(m, m->g.output[0], b->wanted, b->n_wanted, grad, &err) && !run_all(m, &err);
	twist = as_it_is;
	return done;
}

/* Compares a with b, in f32: within some roundings of b's largest element or, if sums cancel, of the operands,
 * which are about 1. */
struct nearness {
	const char *name;
	double within;
};

static void check_near(const struct test_case *c, struct nearness near, const struct value *a,
		       const struct value *b, int grad)
{
	const int64_t n = dlb_desc_count(&b->d);
	double most = 0;

	assert(dlb_desc_same_shape(&a->d, &b->d));
	for (int64_t i = 0; i < n; i++)
		most = fmax(most, fabs(dlb_value_real(b->data, b->d.dtype, i)));
	for (int64_t i = 0; i < n; i++) {
		const double got = dlb_value_real(a->data, a->d.dtype, i),
			     want = dlb_value_real(b->data, b->d.dtype, i);

		if (!(fabs(got - want) <= near.within * fmax(most, 1)) && !(isnan(got) && isnan(want)) &&
		    !(isinf(want) && got == want)) {
			fprintf(stderr, "%s (%s; %s) %s: element %lld of %s %d is %g, by the CPU in f32 %g\n",
				c->type, c->in, c->attr, near.name, (long long)i,
				grad < 0 ? "output" : "gradient", grad < 0 ? c->y : grad, got, want);
			abort();
		}
	}
}

/* Runs the case by the back ends of m in `type`, and by the CPU in f32; returns 1 if both ran, to results that
 * are near. Releases m. */
static int compare(struct dlb_backend cpu, const struct test_case *c, enum dlb_dtype type,
		   struct nearness near, struct machine *m)
{
	struct machine wide = { .be = cpu };
	int of_m[MAX_IN], of_wide[MAX_IN];
	const struct dlb_rng state = rng;
	struct built b;
	const bool one = run_rounded(c, type, m, of_m, &b);

	rng = state;
	const bool both = one && run_rounded(c, DLB_F32, &wide, of_wide, &b);
	if (both) {
		check_near(c, near, &m->v[m->g.output[0]], &wide.v[wide.g.output[0]], -1);
		for (int i = 0; i < b.n_wanted; i++)
			if (of_m[i] >= 0 && of_wide[i] >= 0)
				check_near(c, near, &m->v[of_m[i]], &wide.v[of_wide[i]], i);
	}
	machine_reset(m);
	if (one)
		machine_reset(&wide);
	return both;
}

/* The case entirely in bf16, also its parameters. */
static int run_bf16(struct dlb_backend be, const struct test_case *c)
{
	struct machine m = { .be = be };

	return compare(be, c, DLB_BF16, (struct nearness){ "in bf16", 0x1p-5 }, &m);
}

/* Runs all cases on the back end that DLB_TEST_BACKEND names, ops that it lacks on the CPU: results are near
 * the CPU's, and the ops that it lacks are those with the flag DLB_OP_ON_CPU. */
static void run_elsewhere(struct dlb_backend cpu, const char *name)
{
	struct machine m = { .spare = &cpu, .tried = dlb_xcalloc(DLB_N_OPS, sizeof *m.tried) };
	struct dlb_error err = { 0 };
	int n = 0, lacking = 0, wrong = 0;

	if (dlb_backend_open(name, 0, 1, &m.be, &err))
		dlb_bug("%s", err.what);
	for (int i = 0; i < DLB_LEN(cases); i++) {
		struct machine one = m;

		n += compare(cpu, &cases[i], DLB_F32, (struct nearness){ name, 0x1p-12 }, &one);
	}
	for (int k = 0; k < DLB_N_OPS; k++) {
		const struct dlb_op_class *c = dlb_op_class_of(k);
		const bool on_cpu = c->flags & DLB_OP_ON_CPU;

		lacking += on_cpu;
		if (on_cpu ? m.tried[k].runs > 0 : m.tried[k].lacks > 0 && !m.tried[k].runs) {
			fprintf(stderr, "%s %s DLB_OP_ON_CPU: %d kernels of %s, %d times none\n", c->name,
				on_cpu ? "has the flag" : "lacks the flag", m.tried[k].runs, name,
				m.tried[k].lacks);
			wrong++;
		}
	}
	assert(IS(wrong, ==, 0));
	free(m.tried);
	m.be.ops->close(&m.be);
	printf("%d cases run on %s as on the CPU; %d operators are the CPU's alone\n", n, name, lacking);
}

static int run_twists(struct dlb_backend be, const struct test_case *c)
{
	static const int64_t ends[] = { INT64_MAX, INT64_MIN, INT32_MAX, INT64_C(1) << 40, -1, 0 };
	static const enum dlb_dtype types[] = { DLB_F64, DLB_F32, DLB_BF16 };
	int done = 0;

	for (int i = 0; i < DLB_LEN(types); i++) {
		twist = as_it_is;
		twist.real = types[i];
		done += run_twisted(be, c);
		for (twist.at = -1; twist.at < 4; twist.at++)
			for (twist.gone = 1; twist.gone < 10; twist.gone++)
				done += run_twisted(be, c);
		twist.gone = as_it_is.gone;
		for (twist.absent = 0; twist.absent < MAX_IN; twist.absent++)
			done += run_twisted(be, c);
		twist.absent = as_it_is.absent;
		for (twist.odd = 0; twist.odd < MAX_IN + MAX_ATTR; twist.odd++)
			for (int k = 0; k < DLB_LEN(ends); k++) {
				twist.value = ends[k];
				done += run_twisted(be, c);
			}
	}
	twist = as_it_is;
	return done;
}

/* -- the table -- */

static bool named(const char *const *list, int n, const char *name)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(list[i], name))
			return true;
	return false;
}

static void check_class(int kind)
{
	const struct dlb_op_class *c = dlb_op_class_of(kind);
	bool tested = !c->gradient, excused = c->kernel != NULL;

	assert(IS(dlb_op_kind_find(c->name, c->domain), ==, kind));
	assert(c->infer);
	if (!c->domain && strcmp(c->name, "Constant") && !dlb_op_attributes_known(c->name)) {
		fprintf(stderr, "%s has no row in attributes.c\n", c->name);
		abort();
	}
	assert(IS(c->n_in[0], >=, 0) && (c->n_in[1] < 0 || c->n_in[1] >= c->n_in[0]));
	assert(IS(c->n_out[0], >=, 0) && (c->n_out[1] < 0 || c->n_out[1] >= c->n_out[0]));
	assert(named(works, DLB_LEN(works), dlb_op_work(c->name)));
	for (int i = 0; i < DLB_LEN(no_kernel); i++)
		excused |= !strcmp(no_kernel[i].type, c->name);
	if (!excused)
		fprintf(stderr, "%s has no kernel\n", c->name);
	assert(excused);
	for (int i = 0; i < DLB_LEN(cases); i++)
		tested |= !strcmp(cases[i].type, c->name);
	if (!tested)
		fprintf(stderr, "%s has a gradient that no case tests\n", c->name);
	assert(tested);
	for (int k = 0; k < kind; k++)		/* backward ops are found by name alone */
		if (c->domain && !strcmp(c->domain, "dlb"))
			assert(strcmp(dlb_op_class_of(k)->name, c->name));
}

/* Attributes that an operator does not have at an opset are refused by name. */
static void check_attributes(void)
{
	const struct dlb_attr axes = { .name = "axes", .type = DLB_ATTR_INTS },
			      keep = { .name = "keepdim", .type = DLB_ATTR_INT };
	const struct dlb_attr alpha = { .name = "alpha", .type = DLB_ATTR_STR, .s = "1" },
			      whole = { .name = "alpha", .type = DLB_ATTR_INT };
	struct dlb_error err = { 0 };

	assert(!dlb_op_check_attributes("ReduceMax", 13, &axes, 1, &err) &&
	       dlb_op_check_attributes("ReduceMax", 18, &axes, 1, &err));
	assert(SAME(err.what, "attribute 'axes' belongs to opsets up to 17") && err.hint[0]);
	assert(dlb_op_check_attributes("ReduceMax", 13, &keep, 1, &err) &&
	       SAME(err.what, "the operator has no attribute 'keepdim'"));
	assert(SAME(err.hint, "did you mean 'keepdims'?"));
	assert(dlb_op_check_attributes("Relu", 13, &alpha, 1, &err) &&
	       !dlb_op_check_attributes("not of ONNX", 13, &alpha, 1, &err));
	assert(dlb_op_check_attributes("Elu", 13, &alpha, 1, &err) &&
	       SAME(err.what, "attribute 'alpha' is a string, not a real number"));
	assert(!dlb_op_check_attributes("Elu", 13, &whole, 1, &err) &&
	       !dlb_op_check_attributes("Relu", 13, NULL, 0, &err));
	assert(dlb_op_check_attributes("Concat", 13, NULL, 0, &err) &&
	       SAME(err.what, "attribute 'axis' is missing"));
}

int main(void)
{
	const struct dlb_backend_ops *ops = dlb_backend_find("cpu");
	struct dlb_backend be;
	struct dlb_error err = { 0 };
	uint64_t seed = 20;
	const char *elsewhere = getenv("DLB_TEST_BACKEND"); /* see kernels.h */
	int n = 0, narrow = 0, twisted = 0;

	twist = as_it_is;
	dlb_rng_init(&rng, seed);
	assert(ops && !ops->open(0, 1, &be, &err));
	if (elsewhere) {
		run_elsewhere(be, elsewhere);
		ops->close(&be);
		return 0;
	}
	for (int i = 0; i < DLB_N_OPS; i++)
		check_class(i);
	check_attributes();
	assert(IS(dlb_op_kind_find("Relu", "ai.onnx"), ==, DLB_OP_Relu) &&
	       IS(dlb_op_kind_find("Relu", "x"), <, 0));
	assert(IS(dlb_op_kind_find("Adam", "ai.onnx.preview.training"), ==, DLB_OP_TrainingAdam) &&
	       IS(dlb_op_kind_find("Adam", ""), <, 0));
	assert(SAME(dlb_op_work("Conv2D"), "conv") && SAME(dlb_op_work("no such"), "other"));
	for (int i = 0; i < DLB_LEN(cases); i++)
		n += run_case(be, &cases[i]);
	for (int i = 0; i < DLB_LEN(cases); i++)
		narrow += run_bf16(be, &cases[i]);
	for (int i = 0; i < DLB_LEN(cases); i++)
		twisted += run_twists(be, &cases[i]);
	ops->close(&be);
	printf("%d cases run in bf16 as in f32\n", narrow);
	printf("%d changed cases ran, the others were refused\n", twisted);
	printf("%d classes, %d cases, %d gradient elements against central differences (seed %llu)\n",
	       DLB_N_OPS, DLB_LEN(cases), n, (unsigned long long)seed);
	return 0;
}
