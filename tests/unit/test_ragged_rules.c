/* Which dimension of a vertex's outputs is ragged, and which uses of ragged tensors are refused: one row
 * for each rule and check.
 *
 * Operands and outputs are written as "4x3", with N for the batch, "s" for a scalar, "-" for none, and
 * "=1,2" for constant integers ("=#1" for a scalar). Behind them: ":1" the dimension 1 is ragged, "*2" it
 * has 2 rows for each value, "'" the rows of another mask, "s" it is an entry of a shape, "@0" indices
 * whose first is a position along dimension 0 of tensor "p", of shape 6x5 with ragged dimension 0. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "graph/fold.h"
#include "graph/ragged.h"
#include "check.h"

enum { MOST = 6 };

struct rule {
	const char *type, *in, *attr, *out, *want;
};

#define VALUE "it is read as a value"
#define MEETS "it meets rows of another selection"
#define LENGTH "it meets a tensor of a length of its own"
#define CUT "its rows would be cut up"
#define COUNTED "its rows are counted"
#define NUMBER "rows are named by their number among those that count"
#define ADDED "its rows are added up"
#define MIXED "its rows would be mixed with padding"
#define BETWEEN "padding would stand between rows"
#define TWO "a shape has two such lengths"
#define UNKNOWN "what this vertex makes of padding is not known"
#define APART "data, indices and updates are not of one selection"

static const struct rule rules[] = {
	/* entries of shapes */
	{ "Concat", "1:0s =4,3", "axis=0", "3", ":0s" },
	{ "Concat", "=4,3 1:0s =7", "axis=0", "4", ":2s" },
	{ "Concat", "=4 2:1s*3", "axis=0", "3", ":2s*3" },
	{ "Concat", "1:0s =4 1:0s", "axis=0", "3", TWO },
	{ "Gather", "3:1s =1", "axis=0", "1", ":0s" },
	{ "Gather", "3:1s =-2", "axis=0", "1", ":0s" },
	{ "Gather", "3:1s =2,0,1", "axis=0", "3", ":2s" },
	{ "Gather", "3:1s =0,2", "axis=0", "2", "" },
	{ "Gather", "3:1s =0,-1", "axis=0", "2", "" },
	{ "Gather", "3:1s =1,-2", "axis=0", "2", TWO },
	{ "Gather", "3:1s 1", "axis=0", "1", VALUE },
	{ "Gather", "4x2 1:0s", "axis=0", "1x2", VALUE },
	{ "Slice", "4:2s =1 =4", "", "3", ":1s" },
	{ "Slice", "4:2s =-2 =4", "", "2", ":0s" },
	{ "Slice", "4:2s =2 =3", "", "1", ":0s" },
	{ "Slice", "4:2s =3 =4", "", "1", "" },
	{ "Slice", "4:2s =0 =2", "", "2", "" },
	{ "Slice", "4:2s =0 =4 =0 =1", "", "4", ":2s" },
	{ "Slice", "4:2s =0 =4 =0 =2", "", "2", VALUE },
	{ "Slice", "4:2s =0 =4 =0 1", "", "2", VALUE },
	{ "Slice", "4:2s =0,1 =4,1 =0,0", "", "2", VALUE },
	{ "Cast", "1:0s", "", "1", ":0s" },
	{ "Squeeze", "1:0s =0", "", "s", ":0s" },
	{ "Unsqueeze", "s:0s =0", "", "1", ":0s" },
	{ "Squeeze", "2:0s =0", "", "2", VALUE },
	{ "Add", "1:0s =1", "", "1", VALUE },
	{ "Add", "=1 1:0s", "", "1", VALUE },
	{ "Neg", "1:0s", "", "1", VALUE },
	/* elementwise */
	{ "Add", "6x4:0 4", "", "6x4", ":0" },
	{ "Add", "4 6x4:0", "", "6x4", ":0" },
	{ "Add", "3x6x4:1 1x4", "", "3x6x4", ":1" },
	{ "Add", "6x4:0 3x1x4", "", "3x6x4", ":1" },
	{ "Add", "6x4:0 6x4:0", "", "6x4", ":0" },
	{ "Add", "6x4:0 3x6x4:1", "", "3x6x4", ":1" },
	{ "Add", "6x4:0 1x4", "", "6x4", ":0" },
	{ "Add", "6x4:0 6x1", "", "6x4", LENGTH },
	{ "Add", "6x4:0 Nx1", "", "6x4", LENGTH },
	{ "Add", "6x4:0 6x4:0'", "", "6x4", MEETS },
	{ "Add", "6x4:0 6x4:0*2", "", "6x4", MEETS },
	{ "Add", "6x6:0 6x6:1", "", "6x6", MEETS },
	{ "Add", "6x4:0 3x4x6x4:2 4", "", "3x4x6x4", ":2" },
	{ "Where", "6x1:0 6x4:0 s", "", "6x4", ":0" },
	{ "Max", "6x2:0@0", "", "6x2", ":0@0" },
	{ "Identity", "6x2:0@0", "", "6x2", ":0@0" },
	{ "Cast", "6x2:0@0", "", "6x2", ":0@0" },
	{ "Neg", "6x2:0@0", "", "6x2", ":0" },
	{ "Max", "6x2:0@0 2", "", "6x2", ":0" },
	{ "Dropout", "6x2:0 s", "", "6x2 6x2", ":0 :0" },
	/* shapes */
	{ "Shape", "6x4:0", "", "2", ":0s" },
	{ "Shape", "4x6:1*3", "", "2", ":1s*3" },
	{ "Shape", "4x6x5:1", "start=1", "2", ":0s" },
	{ "Shape", "4x6x5:1", "start=-2", "2", ":0s" },
	{ "Shape", "4x6x5:1", "start=2", "1", "" },
	{ "Shape", "4x6x5:1", "start=0 end=1", "1", "" },
	{ "Shape", "4x6x5:1", "start=-5", "3", ":1s" },
	{ "Transpose", "4x6x5:1", "perm=1,2,0", "6x5x4", ":0" },
	{ "Transpose", "4x6x5:2", "perm=1,2,0", "6x5x4", ":1" },
	{ "Transpose", "4x6x5:0", "", "5x6x4", ":2" },
	{ "Transpose", "6x2:0@0", "perm=1,0", "2x6", ":1@0" },
	/* views */
	{ "Reshape", "6x4:0 =6,2,2", "", "6x2x2", ":0" },
	{ "Reshape", "6x4:0 =24", "", "24", ":0*4" },
	{ "Reshape", "6x4:0 =12,2", "", "12x2", ":0*2" },
	{ "Reshape", "6x4:0*3 =12,2", "", "12x2", ":0*6" },
	{ "Reshape", "3x6:1 =18", "", "18", CUT },
	{ "Reshape", "3x6:1 =3,6,1", "", "3x6x1", ":1" },
	{ "Reshape", "3x6:1 =3,1,6", "", "3x1x6", ":2" },
	{ "Reshape", "3x6:1 =3,2,3", "", "3x2x3", CUT },
	{ "Reshape", "6x4:0 =3,8", "", "3x8", CUT },
	{ "Reshape", "6x4:0 2:0s", "", "6x4", ":0" },
	{ "Reshape", "6x4:0 3:0s", "", "6x2x2", ":0" },
	{ "Reshape", "6x4:0 3:1s", "", "1x6x4", ":1" },
	{ "Reshape", "6x4:0 3:0s", "", "1x6x4", CUT },
	{ "Reshape", "6x4:0 2:0s'", "", "6x4", CUT },
	{ "Reshape", "6x4:0 2:0s*2", "", "6x4", CUT },
	{ "Reshape", "24 2:0s", "", "6x4", CUT },
	{ "Flatten", "6x4x2:0", "axis=1", "6x8", ":0" },
	{ "Squeeze", "6x1:0 =1", "", "6", ":0" },
	{ "Unsqueeze", "6:0 =0", "", "1x6", ":1" },
	/* Expand */
	{ "Expand", "6x1:0 =1,4", "", "6x4", ":0" },
	{ "Expand", "6x1:0 =6,4", "", "6x4", LENGTH },
	{ "Expand", "6x1:0 2", "", "6x4", LENGTH },
	{ "Expand", "6x1:0 2:0s", "", "6x4", ":0" },
	{ "Expand", "6x1:0 2:0s'", "", "6x4", MEETS },
	{ "Expand", "6x1:0 2:1s", "", "6x6", MEETS },
	{ "Expand", "6x1:0 =3,1,4", "", "3x6x4", ":1" },
	{ "Expand", "6x1:0 =4", "", "6x4", ":0" },
	{ "Expand", "6x2:0@0 =1,1", "", "6x2", ":0@0" },
	{ "Expand", "1x4 2:0s", "", "6x4", ":0" },
	{ "Expand", "4 2:0s*2", "", "12x4", ":0*2" },
	{ "Expand", "3x1x4 2:0s", "", "3x6x4", ":1" },
	{ "Expand", "6x4 2:0s", "", "6x4", LENGTH },
	{ "Expand", "1x4 2:0", "", "6x4", MEETS },
	{ "ConstantOfShape", "2:1s", "", "4x6", ":1" },
	/* joined and split */
	{ "Concat", "6x4:0 6x2:0", "axis=1", "6x6", ":0" },
	{ "Concat", "6x4:0 6x4:0", "axis=0", "12x4", BETWEEN },
	{ "Concat", "6x4:0 6x4:0", "axis=-2", "12x4", BETWEEN },
	{ "Concat", "6x4:0 6x2", "axis=1", "6x6", MEETS },
	{ "Concat", "6x4 6x2:0", "axis=1", "6x6", MEETS },
	{ "Concat", "6x4:0 6x2:0'", "axis=1", "6x6", MEETS },
	{ "Concat", "2x6x6:1 2x6x6:2", "axis=0", "4x6x6", MEETS },
	{ "Split", "6x4:0 =3,1", "axis=1", "6x3 6x1", ":0 :0" },
	{ "Split", "6x4:0@0 =3,1", "axis=1", "6x3 6x1", ":0@0 :0@3" },
	{ "Split", "6x4:0 =3,3", "axis=0", "3x4 3x4", COUNTED },
	{ "Split", "6x4:0 2:0s", "axis=1", "6x2 6x2", COUNTED },
	{ "Split", "6:0s =3,3", "axis=1", "3 3", VALUE },
	/* Slice */
	{ "Slice", "6x4:0 =1 =3 =1", "", "6x2", ":0" },
	{ "Slice", "6x4:0@0 =1 =3 =1", "", "6x2", ":0@1" },
	{ "Slice", "6x4:0@0 =-1 =9 =-1", "", "6x1", ":0@3" },
	{ "Slice", "6x4:0 =0 =3 =0", "", "3x4", COUNTED },
	{ "Slice", "6x4:0 =0 =2147483647 =0", "", "6x4", ":0" },
	{ "Slice", "6x4:0@1 =0 =2147483647 =0", "", "6x4", ":0@1" },
	{ "Slice", "6x4:0 =0 =2147483646 =0", "", "6x4", COUNTED },
	{ "Slice", "6x4:0 =1 =2147483647 =0", "", "5x4", COUNTED },
	{ "Slice", "6x4:0 =0 =2147483647 =0 =2", "", "3x4", COUNTED },
	{ "Slice", "6x4:0 =0 =2147483647 =0 =1", "", "6x4", ":0" },
	{ "Slice", "6x4:0 =0 1:0s =0", "", "6x4", ":0" },
	{ "Slice", "6x4:0 =0 1:0s' =0", "", "6x4", COUNTED },
	{ "Slice", "6x4:0 =0 1:0s*2 =0", "", "6x4", COUNTED },
	{ "Slice", "6x4:0 =0 1:0s =1", "", "6x4", COUNTED },
	{ "Slice", "6x4:0 =0,1 =2147483647,2", "", "6x1", ":0" },
	{ "Slice", "6x4:0 =1,0 =2,2147483647 =-1,0", "", "6x1", ":0" },
	{ "Slice", "6x4:0 1 =3 =1", "", "6x2", COUNTED },
	{ "Slice", "6x4 =0 1:0s =0", "", "6x4", VALUE },
	/* rows by their indices */
	{ "Gather", "6x4:0 =1", "axis=1", "6x1", ":0" },
	{ "Gather", "6x4:0 =#1", "axis=1", "6", ":0" },
	{ "Gather", "4x6:1 =#1", "axis=0", "6", ":0" },
	{ "Gather", "4x6:1 2x3", "axis=0", "2x3x6", ":2" },
	{ "Gather", "6x4:0@0 =2", "axis=1", "6x1", ":0@2" },
	{ "Gather", "6x4:0@0 =-1", "axis=1", "6x1", ":0@3" },
	{ "Gather", "6x4:0@0 =0,1", "axis=1", "6x2", ":0" },
	{ "Gather", "6x4:0 =1", "axis=0", "1x4", NUMBER },
	{ "Gather", "5x4 6:0", "axis=0", "6x4", ":0" },
	{ "Gather", "5x4 3x6:1", "axis=0", "3x6x4", ":1" },
	{ "Gather", "5x4 3x6:1", "axis=-1", "5x3x6", ":2" },
	{ "Gather", "5x4 6:0@0", "axis=0", "6x4", ":0" },
	{ "Gather", "6x4:0' 6:0@0", "axis=0", "6x4", ":0" },
	{ "Gather", "6x4:0 6:0@0", "axis=0", "6x4", NUMBER },
	{ "Gather", "6x4:0' 6:0", "axis=0", "6x4", NUMBER },
	{ "Gather", "4x6:1' 6:0@0", "axis=1", "4x6", ":1" },
	{ "Gather", "4x6:1' 6:0@1", "axis=1", "4x6", NUMBER },
	{ "Gather", "6x4:0' 6:0@0", "axis=1", "6x6", NUMBER },
	{ "GatherND", "5x4 6x1:0", "", "6x4", ":0" },
	{ "GatherND", "6x4:0' 6x1:0@0", "", "6x4", ":0" },
	{ "GatherND", "6x4:0 6x1:0@0", "", "6x4", NUMBER },
	{ "GatherND", "6x4:0 3x1", "", "3x4", NUMBER },
	{ "GatherND", "5x4 1x6:1", "", "1", NUMBER },
	{ "GatherND", "6x4:0 6x1:0", "batch_dims=1", "6", ":0" },
	{ "GatherND", "5x4x3 5x6x1:1", "batch_dims=1", "5x6x3", ":1" },
	{ "GatherND", "6x4x3 6x2x1:0", "batch_dims=1", "6x2x3", NUMBER },
	{ "GatherND", "6x4:0 6x1:0'", "batch_dims=1", "6", NUMBER },
	{ "GatherElements", "5x4 6x4:0", "axis=0", "6x4", ":0" },
	{ "GatherElements", "5x4 6x4:0", "axis=1", "6x4", NUMBER },
	{ "GatherElements", "6x4:0 6x2:0", "axis=1", "6x2", ":0" },
	{ "GatherElements", "6x4:0 6x4:0", "axis=0", "6x4", NUMBER },
	{ "GatherElements", "6x4:0 3x4", "axis=0", "3x4", NUMBER },
	{ "GatherElements", "6x4:0 6x2:0'", "axis=1", "6x2", NUMBER },
	{ "GatherElements", "6x4:0 6x2:0", "axis=-1", "6x2", ":0" },
	{ "ScatterElements", "6x4:0 6x2:0 6x2:0", "axis=1", "6x4", ":0" },
	{ "ScatterElements", "6x4:0 6x2:0 6x2", "axis=1", "6x4", APART },
	{ "ScatterElements", "6x4:0 6x2:0 6x2:0'", "axis=1", "6x4", APART },
	{ "ScatterElements", "5x4 6x4:0 6x4", "axis=0", "5x4", APART },
	{ "ScatterElements", "5x4 6x4 6x4:0", "axis=0", "5x4", APART },
	{ "ScatterElements", "5x4 6x4:0 6x4:0", "axis=1", "5x4", APART },
	{ "ScatterElements", "5x4 6x6:0 6x6:1", "axis=0", "5x4", APART },
	{ "ScatterND", "5x4 6x1:0 6x4:0'", "", "5x4", APART },
	{ "ScatterND", "6x4:0 6x1:0 6x4:0", "", "6x4", APART },
	{ "ScatterND", "5x4 1x6:1 1:0", "", "5x4", APART },
	/* products */
	{ "MatMul", "6x4:0 4x3", "", "6x3", ":0" },
	{ "MatMul", "6x4:0 4", "", "6", ":0" },
	{ "MatMul", "6x4:1 4x3", "", "6x3", ADDED },
	{ "MatMul", "3x4 4x6:1", "", "3x6", ":1" },
	{ "MatMul", "3x4 4x6:0", "", "3x6", ADDED },
	{ "MatMul", "4 4x6:1", "", "6", ":0" },
	{ "MatMul", "4 2x4x6:2", "", "2x6", ":1" },
	{ "MatMul", "6:0 6x3", "", "3", ADDED },
	{ "MatMul", "3x6 6:0", "", "3", ADDED },
	{ "MatMul", "6x2x4:0 4x3", "", "6x2x3", ":0" },
	{ "MatMul", "6x2x4:0 1x4x3", "", "6x2x3", ":0" },
	{ "MatMul", "6x2x4:0 6x4x3:0", "", "6x2x3", ":0" },
	{ "MatMul", "6x2x4:0 6x4x3", "", "6x2x3", LENGTH },
	{ "MatMul", "6x2x4 6x4x3:0", "", "6x2x3", LENGTH },
	{ "MatMul", "1x2x4 6x4x3:0", "", "6x2x3", ":0" },
	{ "MatMul", "6x2x4:0 6x4x3:0'", "", "6x2x3", ADDED },
	{ "MatMul", "6x4:0 4x6:1", "", "6x6", ADDED },
	{ "MatMul", "2x6x4:1 2x4x3", "", "2x6x3", ":1" },
	{ "Gemm", "6x4:0 4x3 3", "", "6x3", ":0" },
	{ "Gemm", "6x4:0 4x3 -", "", "6x3", ":0" },
	{ "Gemm", "6x4:0 4x3 6x3:0", "", "6x3", ":0" },
	{ "Gemm", "6x4:0 4x3 6x3", "", "6x3", LENGTH },
	{ "Gemm", "6x4:0 4x3 6x3:0'", "", "6x3", LENGTH },
	{ "Gemm", "6x4:0 4x3 6:0", "", "6x6", LENGTH },
	{ "Gemm", "4x6:1 4x3 3", "transA=1", "6x3", ":0" },
	{ "Gemm", "4x6:0 4x3 3", "transA=1", "6x3", ADDED },
	{ "Gemm", "6x4:1 4x3 3", "", "6x3", ADDED },
	{ "Gemm", "3x4 4x6:1 3x1", "", "3x6", ":1" },
	{ "Gemm", "3x4 4x6:1 6:0", "", "3x6", ":1" },
	{ "Gemm", "3x4 4x6:1 6", "", "3x6", LENGTH },
	{ "Gemm", "3x4 6x4:0 3x1", "transB=1", "3x6", ":1" },
	{ "Gemm", "3x4 6x4:1 3x1", "transB=1", "3x6", ADDED },
	{ "Gemm", "6x4:0 4x6:1", "", "6x6", ADDED },
	{ "Gemm", "3x4 4x6 6:0", "", "3x6", ADDED },
	/* along an axis */
	{ "LayerNormalization", "6x4:0 4 4", "axis=1", "6x4", ":0" },
	{ "LayerNormalization", "6x4:0 4 4", "axis=0", "6x4", MIXED },
	{ "LayerNormalization", "6x4:0 4 4", "", "6x4", ":0" },
	{ "LayerNormalization", "4x6:1 6 6", "", "4x6", MIXED },
	{ "LayerNormalization", "6x4:0 4:0 4", "axis=1", "6x4", VALUE },
	{ "LayerNormalization", "6x4:0 4 4", "axis=1", "6x4 6x1 -", ":0 :0 " },
	{ "LayerNormalization", "6x4:0 4 4", "axis=1", "6x4 6", MIXED },
	{ "Softmax", "6x4x2:0", "", "6x4x2", ":0" },
	{ "Softmax", "4x6x2:1", "", "4x6x2", ":1" },
	{ "Softmax", "4x6x2:1", "axis=1", "4x6x2", MIXED },
	{ "Softmax", "4x6x2:1", "opset=12", "4x6x2", MIXED },
	{ "Softmax", "4x2x6:2", "opset=12", "4x2x6", MIXED },
	{ "Softmax", "6x4x2:0", "opset=12", "6x4x2", ":0" },
	{ "Softmax", "4x6x2:1", "opset=12 axis=2", "4x6x2", ":1" },
	{ "Softmax", "4x6x2:1", "opset=12 axis=-1", "4x6x2", ":1" },
	{ "TopK", "6x4:0 =2", "", "6x2 6x2", ":0 :0" },
	{ "TopK", "6x4:0 =2", "axis=0", "2x4 2x4", MIXED },
	{ "TopK", "6x4:0 =2", "", "- 6x2", " :0" },
	{ "LpNormalization", "6x4:0@0", "axis=1", "6x4", ":0" },
	{ "CumSum", "6x4:0 =#1", "", "6x4", ":0" },
	{ "CumSum", "6x4:0 =#-1", "", "6x4", ":0" },
	{ "CumSum", "6x4:0 =#0", "", "6x4", MIXED },
	{ "CumSum", "6x4:0 =#-2", "", "6x4", MIXED },
	{ "CumSum", "6x4:0 s", "", "6x4", "it is not known along which dimension" },
	{ "Conv", "6x4x5:0 2x4x3", "", "6x2x3", ":0" },
	{ "Conv", "5x4x6:2 2x4x3", "", "5x2x4", MIXED },
	{ "Conv", "5x6x4:1 2x6x3", "", "5x2x2", MIXED },
	/* reductions along other dimensions, the most along a dimension, and one-hot vectors */
	{ "ReduceMax", "6x4:0 =1", "", "6x1", ":0" },
	{ "ReduceMax", "4x6:1 =0", "keepdims=0", "6", ":0" },
	{ "ReduceMax", "4x6:1 =0", "keepdims=1", "1x6", ":1" },
	{ "ReduceMax", "4x6:1 =-2", "keepdims=0", "6", ":0" },
	{ "ReduceMax", "6x4:0 =1", "keepdims=0", "6", ":0" },
	{ "ReduceMax", "4x6:1", "keepdims=0 axes=0", "6", ":0" },
	{ "ReduceMax", "2x4x6x5:2 =0,1,3", "keepdims=0", "6", ":0" },
	{ "ReduceMax", "6x4:0@0", "noop_with_empty_axes=1", "6x4", ":0" },
	{ "ReduceMax", "6x4:0", "", "1x1", "of reductions over it there are the sum and the mean" },
	{ "ReduceMax", "6x4:0 =0", "", "1x4", "of reductions over it there are the sum and the mean" },
	{ "ReduceMax", "6x4:0 1", "", "1x4", VALUE },
	{ "ReduceMax", "6x4 1:0s", "", "1x4", VALUE },
	{ "ReduceMax", "Nx6:1 =0", "", "1x6", "another dimension that is added up follows the batch" },
	{ "ArgMax", "6x4:0", "axis=1", "6x1", ":0" },
	{ "ArgMax", "4x6:1", "axis=0 keepdims=0", "6", ":0" },
	{ "ArgMax", "4x6:1", "axis=0", "1x6", ":1" },
	{ "ArgMax", "6x4:0", "axis=1 keepdims=0", "6", ":0" },
	{ "ArgMax", "6x4:0", "axis=0", "1x4", MIXED },
	{ "ArgMax", "6x4:0", "axis=-2", "1x4", MIXED },
	{ "OneHot", "6x4:0 s 2", "", "6x4x5", ":0" },
	{ "OneHot", "6x4:0 s 2", "axis=0", "5x6x4", ":1" },
	{ "OneHot", "6x4:0 s 2", "axis=1", "6x5x4", ":0" },
	{ "OneHot", "4x6:1 s 2", "axis=1", "4x5x6", ":2" },
	{ "OneHot", "6x4:0 s:0s 2", "", "6x4x5", VALUE },
	{ "OneHot", "6x4:0 s 2:0", "", "6x4x5", VALUE },
	/* all others */
	{ "Det", "6x4x4:0", "", "6", UNKNOWN },
	{ "Relu", "6x4:0", "domain=1", "6x4", UNKNOWN },
	{ "Shape", "6x4:0", "domain=1", "2", UNKNOWN },
	{ "Cast", "1:0s", "domain=1", "1", VALUE },
	{ "Relu", "6x4:0", "", "-", UNKNOWN },
	{ "Relu", "6x4", "", "6x4", "" },
};

/* A graph of one vertex, and its marks. */
struct bench {
	struct dlb_graph g;
	struct fold f;
	int mask[2], positions, in[MOST], out[MOST], n_in, n_out;
};

static int tensor(struct bench *b, const char *name, enum dlb_dtype dtype)
{
	const int t = dlb_graph_add_tensor(&b->g, name, DLB_T_ACTIVATION);

	b->g.tensor[t].dtype = dtype;
	b->g.tensor[t].n_dims = 0;
	dlb_fold_room(&b->f);
	return t;
}

static void add_dim(struct dlb_tensor *x, const char **s)
{
	if (**s == 'N') {
		x->dim[x->n_dims++] = (struct dlb_dim){ 1, 0 };
		++*s;
	} else {
		x->dim[x->n_dims++] = (struct dlb_dim){ 0, strtol(*s, (char **)s, 10) };
	}
}

/* "=1,2" */
static int integers(struct bench *b, const char **s)
{
	int64_t *v = dlb_arena_array(&b->g.arena, MOST, sizeof *v);
	struct dlb_desc d = { .dtype = DLB_I64, .n_dims = 1 };
	int n = 0;

	if (*++*s == '#') {
		++*s;
		d.n_dims = 0;
	}
	for (;; ++*s) {
		v[n++] = strtol(*s, (char **)s, 10);
		if (**s != ',')
			break;
	}
	d.dim[0] = n;
	const int t = dlb_graph_add_constant(&b->g, dlb_graph_tensor_name(&b->g, "c"), &d, v, NULL);
	dlb_fold_room(&b->f);
	return t;
}

/* ":1s*2'@0" */
static struct dlb_ragged marks(const struct bench *b, const char **s)
{
	struct dlb_ragged r = { .mask = b->mask[0], .times = 1, .coordinate = -1, .picked = b->positions };

	++*s;
	r.dim = (int)strtol(*s, (char **)s, 10);
	for (; **s && **s != ' ';) {
		const char c = *(*s)++;
		if (c == 's')
			r.size = true;
		else if (c == '\'')
			r.mask = b->mask[1];
		else if (c == '*')
			r.times = strtol(*s, (char **)s, 10);
		else if (c == '@')
			r.coordinate = (int)strtol(*s, (char **)s, 10);
		else
			abort();
	}
	return r;
}

static int operands(struct bench *b, const char *s, int *id)
{
	int n = 0;

	while (*s) {
		char name[16];
		assert(IS(n, <, MOST));
		snprintf(name, sizeof name, "%s%d", id == b->in ? "in" : "out", n);
		id[n] = -1;
		if (*s == '=') {
			id[n] = integers(b, &s);
		} else if (*s == '-') {
			s++;
		} else {
			id[n] = tensor(b, name, DLB_F32);
			for (bool more = *s != 's'; more; more = *s == 'x' && s++)
				add_dim(&b->g.tensor[id[n]], &s);
			s += *s == 's';
		}
		if (*s == ':')
			b->f.ragged[id[n]] = marks(b, &s);
		n++;
		s += *s == ' ';
	}
	return n;
}

static int attributes(struct bench *b, const char *s, struct dlb_attr *a, int *opset, bool *foreign)
{
	int n = 0;

	while (*s) {
		const size_t length = strcspn(s, "=");
		int64_t *v = dlb_arena_array(&b->g.arena, MOST, sizeof *v);
		a[n] = (struct dlb_attr){ .name = dlb_arena_printf(&b->g.arena, "%.*s", (int)length, s),
					  .ints = v };
		for (s += length + 1;; s++) {
			v[a[n].n++] = strtol(s, (char **)&s, 10);
			if (*s != ',')
				break;
		}
		a[n].i = v[0];
		a[n].type = !strcmp(a[n].name, "perm") || !strcmp(a[n].name, "axes") ? DLB_ATTR_INTS :
										       DLB_ATTR_INT;
		if (!strcmp(a[n].name, "opset"))
			*opset = (int)v[0];
		else if (!strcmp(a[n].name, "domain"))
			*foreign = true;
		else
			n++;
		s += *s == ' ';
	}
	return n;
}

static void begin(struct bench *b, const struct rule *r)
{
	struct dlb_attr attr[4];
	int opset = 17;
	bool foreign = false;

	memset(b, 0, sizeof *b);
	dlb_graph_init(&b->g);
	b->f.g = &b->g;
	b->f.n = 6;
	b->f.n_padded = 1;
	b->mask[0] = tensor(b, "m", DLB_BOOL);
	b->mask[1] = tensor(b, "other", DLB_BOOL);
	b->positions = tensor(b, "p", DLB_F32);
	b->g.tensor[b->positions].n_dims = 2;
	b->f.ragged[b->positions] = (struct dlb_ragged){ .mask = b->mask[1], .times = 1, .coordinate = -1 };
	b->n_in = operands(b, r->in, b->in);
	b->n_out = operands(b, r->out, b->out);
	const int n_attr = attributes(b, r->attr, attr, &opset, &foreign);
	dlb_graph_add_op(&b->g, DLB_FORWARD,
			 &(struct dlb_op_spec){ .name = "v",
						.type = r->type,
						.domain = foreign ? "com.example" : "",
						.in = b->in,
						.n_in = b->n_in,
						.out = b->out,
						.n_out = b->n_out,
						.attr = attr,
						.n_attr = n_attr,
						.opset = opset });
}

static void end(struct bench *b)
{
	struct fold *f = &b->f;

	free(f->known.value);
	free(f->varies);
	free(f->trained);
	free(f->stands_for);
	free(f->outer);
	free(f->made_by);
	free(f->sequence);
	free(f->ragged);
	dlb_arena_release(&f->a);
	dlb_graph_release(&b->g);
}

/* The marks of the outputs, or the reason of a refusal. */
static void describe(const struct bench *b, int rc, const struct dlb_error *err, char *text, size_t size)
{
	size_t n = 0;

	*text = 0;
	if (rc) {
		const char *why = strstr(err->what, "not zero: ");
		snprintf(text, size, "%s", why ? why + 10 : err->what);
		return;
	}
	for (int k = 0; k < b->n_out; k++) {
		const struct dlb_ragged *r = b->out[k] < 0 || b->f.ragged[b->out[k]].mask < 0 ?
						     NULL :
						     &b->f.ragged[b->out[k]];
		n += (size_t)snprintf(text + n, size - n, "%s", k ? " " : "");
		if (!r)
			continue;
		n += (size_t)snprintf(text + n, size - n, ":%d%s", r->dim, r->size ? "s" : "");
		if (r->times != 1)
			n += (size_t)snprintf(text + n, size - n, "*%d", (int)r->times);
		if (r->mask != b->mask[0])
			n += (size_t)snprintf(text + n, size - n, "'");
		if (r->coordinate >= 0)
			n += (size_t)snprintf(text + n, size - n, "@%d", r->coordinate);
	}
}

int main(void)
{
	int n_wrong = 0;

	for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
		const struct rule *r = &rules[i];
		struct dlb_error err = { .what = "" };
		struct bench b;
		char got[520];
		begin(&b, r);
		describe(&b, dlb_ragged_pass(&b.f, 0, &err), &err, got, sizeof got);
		if (strcmp(got, r->want)) {
			fprintf(stderr, "%s(%s; %s) -> %s: '%s', not '%s'\n", r->type, r->in, r->attr, r->out,
				got, r->want);
			n_wrong++;
		}
		end(&b);
	}
	assert(IS(n_wrong, ==, 0));
	return 0;
}
