/* The attributes of ONNX's operators by opset, as ONNX 1.23 defines them
 * (onnx.defs.get_all_schemas_with_history, opsets 6 to 28; a list of strings is one string with commas here).
 * An attribute that a definition lacks is refused, since ignoring it could change the author's meaning.
 *
 * Operators with subgraphs, Constant, and operators on sequences and strings are not in the table; lib/model
 * and lib/graph check their attributes. */
#include "op/op.h"
#include "util/mem.h"

#include <string.h>

enum {
	INT = DLB_ATTR_INT,
	REAL = DLB_ATTR_REAL,
	STR = DLB_ATTR_STR,
	INTS = DLB_ATTR_INTS,
	REALS = DLB_ATTR_REALS,
	TENSOR = DLB_ATTR_TENSOR,
	MOST = DLB_MAX_ATTRIBUTES
};
/* since, until: first and last opset; 0: no bound */
struct attribute_rule { const char *name; int type; bool required; int since, until; };
#define MAY(name, type) { name, type, false, 0, 0 }
#define MAY_TO(last, name, type) { name, type, false, 0, last }
#define MAY_FROM(first, name, type) { name, type, false, first, 0 }
#define NEEDS(name, type) { name, type, true, 0, 0 }
#define NEEDS_TO(last, name, type) { name, type, true, 0, last }
#define NEEDS_FROM(first, name, type) { name, type, true, first, 0 }
#define NEEDS_IN(first, last, name, type) { name, type, true, first, last }
static const struct { const char *op; struct attribute_rule rule[MOST];
} rows[] = {
	{ "Add", { MAY_TO(6, "axis", INT), MAY_TO(6, "broadcast", INT) } },
	{ "AffineGrid", { MAY("align_corners", INT) } },
	{ "And", { MAY_TO(6, "axis", INT), MAY_TO(6, "broadcast", INT) } },
	{ "ArgMax", { MAY("axis", INT), MAY("keepdims", INT), MAY_FROM(12, "select_last_index", INT) } },
	{ "ArgMin", { MAY("axis", INT), MAY("keepdims", INT), MAY_FROM(12, "select_last_index", INT) } },
	{ "Attention",
	  { MAY("is_causal", INT), MAY("kv_num_heads", INT), MAY_FROM(25, "left_window_size", INT),
	    MAY("q_num_heads", INT), MAY("qk_matmul_output_mode", INT),
	    MAY_FROM(25, "right_window_size", INT), MAY("scale", REAL), MAY("softcap", REAL),
	    MAY("softmax_precision", INT) } },
	{ "AveragePool",
	  { MAY("auto_pad", STR), MAY_FROM(10, "ceil_mode", INT), MAY_FROM(7, "count_include_pad", INT),
	    MAY_FROM(19, "dilations", INTS), NEEDS("kernel_shape", INTS), MAY("pads", INTS),
	    MAY("strides", INTS) } },
	{ "BatchNormalization",
	  { MAY("epsilon", REAL), MAY_TO(6, "is_test", INT), MAY("momentum", REAL), MAY_TO(8, "spatial", INT),
	    MAY_FROM(14, "training_mode", INT) } },
	{ "Bernoulli", { MAY("dtype", INT), MAY("seed", REAL) } },
	{ "BitCast", { NEEDS("to", INT) } },
	{ "BitShift", { NEEDS("direction", STR) } },
	{ "BlackmanWindow", { MAY("output_datatype", INT), MAY("periodic", INT) } },
	{ "Cast", { MAY_FROM(24, "round_mode", STR), MAY_FROM(19, "saturate", INT), NEEDS("to", INT) } },
	{ "CastLike", { MAY_FROM(24, "round_mode", STR), MAY_FROM(19, "saturate", INT) } },
	{ "CausalConvWithState", { MAY("activation", STR) } },
	{ "Celu", { MAY("alpha", REAL) } },
	{ "CenterCropPad", { MAY("axes", INTS) } },
	{ "Clip", { MAY_TO(10, "max", REAL), MAY_TO(10, "min", REAL) } },
	{ "Col2Im", { MAY("dilations", INTS), MAY("pads", INTS), MAY("strides", INTS) } },
	{ "Compress", { MAY("axis", INT) } },
	{ "Concat", { NEEDS("axis", INT) } },
	{ "ConstantOfShape", { MAY("value", TENSOR) } },
	{ "Conv",
	  { MAY("auto_pad", STR), MAY("dilations", INTS), MAY("group", INT), MAY("kernel_shape", INTS),
	    MAY("pads", INTS), MAY("strides", INTS) } },
	{ "ConvInteger",
	  { MAY("auto_pad", STR), MAY("dilations", INTS), MAY("group", INT), MAY("kernel_shape", INTS),
	    MAY("pads", INTS), MAY("strides", INTS) } },
	{ "ConvTranspose",
	  { MAY("auto_pad", STR), MAY("dilations", INTS), MAY("group", INT), MAY("kernel_shape", INTS),
	    MAY("output_padding", INTS), MAY("output_shape", INTS), MAY("pads", INTS),
	    MAY("strides", INTS) } },
	{ "CumProd", { MAY("exclusive", INT), MAY("reverse", INT) } },
	{ "CumSum", { MAY("exclusive", INT), MAY("reverse", INT) } },
	{ "DFT", { MAY_TO(19, "axis", INT), MAY("inverse", INT), MAY("onesided", INT) } },
	{ "DeformConv",
	  { MAY("dilations", INTS), MAY("group", INT), MAY("kernel_shape", INTS), MAY("offset_group", INT),
	    MAY("pads", INTS), MAY("strides", INTS) } },
	{ "DepthToSpace", { NEEDS("blocksize", INT), MAY_FROM(11, "mode", STR) } },
	{ "DequantizeLinear",
	  { MAY_FROM(13, "axis", INT), MAY_FROM(21, "block_size", INT), MAY_FROM(23, "output_dtype", INT) } },
	{ "Div", { MAY_TO(6, "axis", INT), MAY_TO(6, "broadcast", INT) } },
	{ "Dropout", { MAY_TO(6, "is_test", INT), MAY_TO(11, "ratio", REAL), MAY_FROM(12, "seed", INT) } },
	{ "Einsum", { NEEDS("equation", STR) } },
	{ "Elu", { MAY("alpha", REAL) } },
	{ "Equal", { MAY_TO(6, "axis", INT), MAY_TO(6, "broadcast", INT) } },
	{ "EyeLike", { MAY("dtype", INT), MAY("k", INT) } },
	{ "Flatten", { MAY("axis", INT) } },
	{ "GRU",
	  { MAY("activation_alpha", REALS), MAY("activation_beta", REALS), MAY("activations", STR),
	    MAY("clip", REAL), MAY("direction", STR), MAY("hidden_size", INT), MAY_FROM(14, "layout", INT),
	    MAY("linear_before_reset", INT), MAY_TO(6, "output_sequence", INT) } },
	{ "Gather", { MAY("axis", INT) } },
	{ "GatherElements", { MAY("axis", INT) } },
	{ "GatherND", { MAY_FROM(12, "batch_dims", INT) } },
	{ "Gelu", { MAY("approximate", STR) } },
	{ "Gemm",
	  { MAY("alpha", REAL), MAY("beta", REAL), MAY_TO(6, "broadcast", INT), MAY("transA", INT),
	    MAY("transB", INT) } },
	{ "GlobalLpPool", { MAY("p", INT) } },
	{ "Greater", { MAY_TO(6, "axis", INT), MAY_TO(6, "broadcast", INT) } },
	{ "GridSample", { MAY("align_corners", INT), MAY("mode", STR), MAY("padding_mode", STR) } },
	{ "GroupNormalization",
	  { MAY_FROM(21, "epsilon", REAL), NEEDS_FROM(21, "num_groups", INT),
	    MAY_FROM(21, "stash_type", INT) } },
	{ "HammingWindow", { MAY("output_datatype", INT), MAY("periodic", INT) } },
	{ "HannWindow", { MAY("output_datatype", INT), MAY("periodic", INT) } },
	{ "HardSigmoid", { MAY("alpha", REAL), MAY("beta", REAL) } },
	{ "Hardmax", { MAY("axis", INT) } },
	{ "ImageDecoder", { MAY("pixel_format", STR) } },
	{ "InstanceNormalization", { MAY("epsilon", REAL) } },
	{ "IsInf", { MAY("detect_negative", INT), MAY("detect_positive", INT) } },
	{ "LRN", { MAY("alpha", REAL), MAY("beta", REAL), MAY("bias", REAL), NEEDS("size", INT) } },
	{ "LSTM",
	  { MAY("activation_alpha", REALS), MAY("activation_beta", REALS), MAY("activations", STR),
	    MAY("clip", REAL), MAY("direction", STR), MAY("hidden_size", INT), MAY("input_forget", INT),
	    MAY_FROM(14, "layout", INT), MAY_TO(6, "output_sequence", INT) } },
	{ "LayerNormalization", { MAY("axis", INT), MAY("epsilon", REAL), MAY("stash_type", INT) } },
	{ "LeakyRelu", { MAY("alpha", REAL) } },
	{ "Less", { MAY_TO(6, "axis", INT), MAY_TO(6, "broadcast", INT) } },
	{ "LinearAttention",
	  { MAY("chunk_size", INT), NEEDS("kv_num_heads", INT), NEEDS("q_num_heads", INT), MAY("scale", REAL),
	    MAY("update_rule", STR) } },
	{ "LogSoftmax", { MAY("axis", INT) } },
	{ "LpNormalization", { MAY("axis", INT), MAY("p", INT) } },
	{ "LpPool",
	  { MAY("auto_pad", STR), MAY_FROM(18, "ceil_mode", INT), MAY_FROM(18, "dilations", INTS),
	    NEEDS("kernel_shape", INTS), MAY("p", INT), MAY("pads", INTS), MAY("strides", INTS) } },
	{ "MaxPool",
	  { MAY("auto_pad", STR), MAY_FROM(10, "ceil_mode", INT), MAY_FROM(10, "dilations", INTS),
	    NEEDS("kernel_shape", INTS), MAY("pads", INTS), MAY_FROM(8, "storage_order", INT),
	    MAY("strides", INTS) } },
	{ "MaxRoiPool", { NEEDS("pooled_shape", INTS), MAY("spatial_scale", REAL) } },
	{ "MaxUnpool", { NEEDS("kernel_shape", INTS), MAY("pads", INTS), MAY("strides", INTS) } },
	{ "MeanVarianceNormalization", { MAY("axes", INTS) } },
	{ "MelWeightMatrix", { MAY("output_datatype", INT) } },
	{ "Mod", { MAY("fmod", INT) } },
	{ "Mul", { MAY_TO(6, "axis", INT), MAY_TO(6, "broadcast", INT) } },
	{ "Multinomial", { MAY("dtype", INT), MAY("sample_size", INT), MAY("seed", REAL) } },
	{ "NegativeLogLikelihoodLoss", { MAY("ignore_index", INT), MAY("reduction", STR) } },
	{ "NonMaxSuppression", { MAY("center_point_box", INT) } },
	{ "OneHot", { MAY("axis", INT) } },
	{ "Or", { MAY_TO(6, "axis", INT), MAY_TO(6, "broadcast", INT) } },
	{ "Pad", { MAY("mode", STR), NEEDS_TO(10, "pads", INTS), MAY_TO(10, "value", REAL) } },
	{ "Pow", { MAY_TO(6, "axis", INT), MAY_TO(6, "broadcast", INT) } },
	{ "QLinearConv",
	  { MAY("auto_pad", STR), MAY("dilations", INTS), MAY("group", INT), MAY("kernel_shape", INTS),
	    MAY("pads", INTS), MAY("strides", INTS) } },
	{ "QuantizeLinear",
	  { MAY_FROM(13, "axis", INT), MAY_FROM(21, "block_size", INT), MAY_FROM(21, "output_dtype", INT),
	    MAY_FROM(23, "precision", INT), MAY_FROM(19, "saturate", INT) } },
	{ "RMSNormalization", { MAY("axis", INT), MAY("epsilon", REAL), MAY("stash_type", INT) } },
	{ "RNN",
	  { MAY("activation_alpha", REALS), MAY("activation_beta", REALS), MAY("activations", STR),
	    MAY("clip", REAL), MAY("direction", STR), MAY("hidden_size", INT), MAY_FROM(14, "layout", INT),
	    MAY_TO(6, "output_sequence", INT) } },
	{ "RandomNormal",
	  { MAY("dtype", INT), MAY("mean", REAL), MAY("scale", REAL), MAY("seed", REAL),
	    NEEDS("shape", INTS) } },
	{ "RandomNormalLike",
	  { MAY("dtype", INT), MAY("mean", REAL), MAY("scale", REAL), MAY("seed", REAL) } },
	{ "RandomUniform",
	  { MAY("dtype", INT), MAY("high", REAL), MAY("low", REAL), MAY("seed", REAL),
	    NEEDS("shape", INTS) } },
	{ "RandomUniformLike",
	  { MAY("dtype", INT), MAY("high", REAL), MAY("low", REAL), MAY("seed", REAL) } },
	{ "Range", { MAY_FROM(27, "stash_type", INT) } },
	{ "ReduceL1",
	  { MAY_TO(17, "axes", INTS), MAY("keepdims", INT), MAY_FROM(18, "noop_with_empty_axes", INT) } },
	{ "ReduceL2",
	  { MAY_TO(17, "axes", INTS), MAY("keepdims", INT), MAY_FROM(18, "noop_with_empty_axes", INT) } },
	{ "ReduceLogSum",
	  { MAY_TO(17, "axes", INTS), MAY("keepdims", INT), MAY_FROM(18, "noop_with_empty_axes", INT) } },
	{ "ReduceLogSumExp",
	  { MAY_TO(17, "axes", INTS), MAY("keepdims", INT), MAY_FROM(18, "noop_with_empty_axes", INT) } },
	{ "ReduceMax",
	  { MAY_TO(17, "axes", INTS), MAY("keepdims", INT), MAY_FROM(18, "noop_with_empty_axes", INT) } },
	{ "ReduceMean",
	  { MAY_TO(17, "axes", INTS), MAY("keepdims", INT), MAY_FROM(18, "noop_with_empty_axes", INT) } },
	{ "ReduceMin",
	  { MAY_TO(17, "axes", INTS), MAY("keepdims", INT), MAY_FROM(18, "noop_with_empty_axes", INT) } },
	{ "ReduceProd",
	  { MAY_TO(17, "axes", INTS), MAY("keepdims", INT), MAY_FROM(18, "noop_with_empty_axes", INT) } },
	{ "ReduceSum",
	  { MAY_TO(12, "axes", INTS), MAY("keepdims", INT), MAY_FROM(13, "noop_with_empty_axes", INT) } },
	{ "ReduceSumSquare",
	  { MAY_TO(17, "axes", INTS), MAY("keepdims", INT), MAY_FROM(18, "noop_with_empty_axes", INT) } },
	{ "Reshape", { MAY_FROM(14, "allowzero", INT) } },
	{ "Resize",
	  { MAY_FROM(18, "antialias", INT), MAY_FROM(18, "axes", INTS),
	    MAY_FROM(11, "coordinate_transformation_mode", STR), MAY_FROM(11, "cubic_coeff_a", REAL),
	    MAY_FROM(11, "exclude_outside", INT), MAY_FROM(11, "extrapolation_value", REAL),
	    MAY_FROM(18, "keep_aspect_ratio_policy", STR), MAY("mode", STR),
	    MAY_FROM(11, "nearest_mode", STR) } },
	{ "ReverseSequence", { MAY("batch_axis", INT), MAY("time_axis", INT) } },
	{ "RoiAlign",
	  { MAY_FROM(16, "coordinate_transformation_mode", STR), MAY("mode", STR), MAY("output_height", INT),
	    MAY("output_width", INT), MAY("sampling_ratio", INT), MAY("spatial_scale", REAL) } },
	{ "RotaryEmbedding",
	  { MAY("interleaved", INT), MAY("num_heads", INT), MAY("rotary_embedding_dim", INT) } },
	{ "STFT", { MAY("onesided", INT) } },
	{ "Scatter", { MAY_TO(10, "axis", INT) } },
	{ "ScatterElements", { MAY("axis", INT), MAY_FROM(16, "reduction", STR) } },
	{ "ScatterND", { MAY_FROM(16, "reduction", STR) } },
	{ "Selu", { MAY("alpha", REAL), MAY("gamma", REAL) } },
	{ "Shape", { MAY_FROM(15, "end", INT), MAY_FROM(15, "start", INT) } },
	{ "Shrink", { MAY("bias", REAL), MAY("lambd", REAL) } },
	{ "Slice", { MAY_TO(9, "axes", INTS), NEEDS_TO(9, "ends", INTS), NEEDS_TO(9, "starts", INTS) } },
	{ "Softmax", { MAY("axis", INT) } },
	{ "SoftmaxCrossEntropyLoss", { MAY("ignore_index", INT), MAY("reduction", STR) } },
	{ "SpaceToDepth", { NEEDS("blocksize", INT), MAY_FROM(28, "mode", STR) } },
	{ "Split", { MAY("axis", INT), MAY_FROM(18, "num_outputs", INT), MAY_TO(12, "split", INTS) } },
	{ "Squeeze", { MAY_TO(12, "axes", INTS) } },
	{ "Sub", { MAY_TO(6, "axis", INT), MAY_TO(6, "broadcast", INT) } },
	{ "SwiGLU", { MAY("alpha", REAL) } },
	{ "Swish", { MAY("alpha", REAL) } },
	{ "TensorScatter", { MAY("axis", INT), MAY("mode", STR) } },
	{ "ThresholdedRelu", { MAY("alpha", REAL) } },
	{ "TopK",
	  { MAY("axis", INT), NEEDS_TO(9, "k", INT), MAY_FROM(11, "largest", INT),
	    MAY_FROM(11, "sorted", INT) } },
	{ "Transpose", { MAY("perm", INTS) } },
	{ "Trilu", { MAY("upper", INT) } },
	{ "Unique", { MAY("axis", INT), MAY("sorted", INT) } },
	{ "Unsqueeze", { NEEDS_TO(12, "axes", INTS) } },
	{ "Upsample",
	  { NEEDS_TO(6, "height_scale", REAL), MAY_TO(9, "mode", STR), NEEDS_IN(7, 8, "scales", REALS),
	    NEEDS_TO(6, "width_scale", REAL) } },
	{ "Xor", { MAY_TO(6, "axis", INT), MAY_TO(6, "broadcast", INT) } },
};
static const char *const without[] = {
	"Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseAnd", "BitwiseNot", "BitwiseOr",
	"BitwiseXor", "Ceil", "Cos", "Cosh", "Det", "DynamicQuantizeLinear", "Erf", "Exp", "Expand", "Floor",
	"GlobalAveragePool", "GlobalMaxPool", "GreaterOrEqual", "HardSwish", "Identity", "IsNaN",
	"LessOrEqual", "Log", "MatMul", "MatMulInteger", "Max", "Mean", "Min", "Mish", "Neg", "NonZero",
	"Not", "PRelu", "QLinearMatMul", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Sinh",
	"Size", "Softplus", "Softsign", "Sqrt", "Sum", "Tan", "Tanh", "Tile", "Where",
};
static const char *const type_name[] = {
	[INT] = "an integer",          [REAL] = "a real number",           [STR] = "a string",
	[INTS] = "a list of integers", [REALS] = "a list of real numbers", [TENSOR] = "a tensor"
};

/* The rules of an operator; NULL if it is not in the table. If it has no attributes, the first rule's name is
 * NULL. */
static const struct attribute_rule *rules_of(const char *op)
{
	static const struct attribute_rule none[MOST];		/* all names NULL */

	for (int i = 0; i < DLB_LEN(rows); i++)
		if (!strcmp(rows[i].op, op))
			return rows[i].rule;
	for (int i = 0; i < DLB_LEN(without); i++)
		if (!strcmp(without[i], op))
			return none;
	return NULL;
}

bool dlb_op_attributes_known(const char *op)
{
	return rules_of(op) != NULL;
}

static bool holds(const struct attribute_rule *r, int opset)
{
	return opset >= r->since && (!r->until || opset <= r->until);
}

int dlb_op_attributes(const char *op, int opset, const char **name, enum dlb_attr_type *type)
{
	int n = 0;

	for (const struct attribute_rule *r = rules_of(op), *end = r ? r + MOST : r; r < end && r->name; r++)
		if (holds(r, opset)) {
			name[n] = r->name;
			type[n++] = (enum dlb_attr_type)r->type;
		}
	return n;
}

static int unknown(const struct attribute_rule *rule, const struct dlb_attr *a, struct dlb_error *err)
{
	const char *names[MOST];
	int n = 0;

	for (const struct attribute_rule *r = rule; r < rule + MOST && r->name; r++) {
		names[n++] = r->name;
		if (strcmp(r->name, a->name))
			continue;
		dlb_fail(err, NULL, "attribute '%s' belongs to opsets %s %d", a->name,
			 r->until ? "up to" : "from", r->until ? r->until : r->since);
		return dlb_hint(err, r->until ? "it is an input now, or gone: export the model again" :
						"say that opset in the model's opset_import");
	}
	dlb_fail(err, NULL, "the operator has no attribute '%s'", a->name);
	return dlb_hint_nearest(err, a->name, names, n, "remove it, or export the model again");
}

static int check_one(const struct attribute_rule *rule, int opset, const struct dlb_attr *a,
		     struct dlb_error *err)
{
	for (const struct attribute_rule *r = rule; r < rule + MOST && r->name; r++) {
		if (strcmp(r->name, a->name) || !holds(r, opset))
			continue;
		if ((int)a->type == r->type || (r->type == REAL && a->type == DLB_ATTR_INT))
			return 0;
		dlb_fail(err, NULL, "attribute '%s' is %s, not %s", a->name, type_name[a->type],
			 type_name[r->type]);
		return dlb_hint(err, "export the model again, or correct it with onnx.helper");
	}
	return unknown(rule, a, err);
}

int dlb_op_check_attributes(const char *op, int opset, const struct dlb_attr *attr, int n,
			    struct dlb_error *err)
{
	const struct attribute_rule *rule = rules_of(op);

	for (int i = 0; rule && i < n; i++)
		if (strcmp(attr[i].name, "consumed_inputs") && check_one(rule, opset, &attr[i], err))
			return -1;
	for (const struct attribute_rule *r = rule; rule && r < rule + MOST && r->name; r++)
		if (r->required && holds(r, opset) && !dlb_attr_find(attr, n, r->name)) {
			dlb_fail(err, NULL, "attribute '%s' is missing", r->name);
			return dlb_hint(err, "the operator needs it: export the model again");
		}
	return 0;
}
