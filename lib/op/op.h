/* Operators: what a vertex of the graph means.
 *
 * One file an operator (or a family that differs in one scalar function), one line in op_list.h. A
 * class says the shapes (infer), the work (flops; bytes have a default: all inputs and outputs once),
 * the gradient (which adds backward ops to the graph, made of operators again) and the kernel
 * (prepared over a back end's table). Backward-only operators (ConvGradInput, MaxPoolGrad, ...) and
 * our own (Accumulate is not one: the program does that) are classes like the others.
 *
 *     const struct dlb_op_class dlb_op_Relu = { .name = "Relu", .n_in = {1, 1}, .n_out = {1, 1},
 *             .layout = DLB_LAYOUT_ANY, .infer = dlb_infer_same, .gradient = gradient, .kernel = kernel };
 *
 * Attributes are typed and named as in ONNX. Semantics follow the opset in io->opset where they
 * differ (Softmax before 13 flattens; Dropout before 12 has an attribute; BatchNormalization). */
#ifndef DLB_OP_OP_H
#define DLB_OP_OP_H
#include "tensor/backend.h"

enum dlb_attr_type { DLB_ATTR_INT, DLB_ATTR_REAL, DLB_ATTR_STR, DLB_ATTR_INTS, DLB_ATTR_REALS, DLB_ATTR_TENSOR };
struct dlb_attr {
	const char *name;
	enum dlb_attr_type type;
	int64_t i;
	double f;
	const char *s;
	const int64_t *ints;
	const double *reals;
	int n;				/* of ints or reals */
	struct dlb_desc desc;		/* TENSOR */
	const void *data;
};
const struct dlb_attr *dlb_attr_find(const struct dlb_attr *a, int n, const char *name);
int64_t dlb_attr_int(const struct dlb_attr *a, int n, const char *name, int64_t otherwise);
double dlb_attr_real(const struct dlb_attr *a, int n, const char *name, double otherwise);
const char *dlb_attr_str(const struct dlb_attr *a, int n, const char *name, const char *otherwise);
/* *out borrowed; returns the length, 0 when absent. */
int dlb_attr_ints(const struct dlb_attr *a, int n, const char *name, const int64_t **out);

/* Whether the attributes of an operator of ONNX's own domain are those that its definition has at this opset, of the types
 * it says, and none that it requires is missing (attributes.c). 0, or -1 with what and hint of err. Operators that are not
 * in the table pass. */
int dlb_op_check_attributes(const char *op, int opset, const struct dlb_attr *attr, int n, struct dlb_error *err);
bool dlb_op_attributes_known(const char *op);
/* The attributes that an operator of the table may have at this opset: fills name[] and type[], DLB_MAX_ATTRIBUTES each, and
 * returns how many there are. */
enum { DLB_MAX_ATTRIBUTES = 12 };
int dlb_op_attributes(const char *op, int opset, const char **name, enum dlb_attr_type *type);

/* The concrete view of one vertex at one batch size. */
struct dlb_op_io {
	const char *name;			/* of the vertex, for messages */
	const struct dlb_op_class *cls;
	int opset;
	const struct dlb_attr *attr;
	int n_attr;
	int n_in, n_out;
	struct dlb_desc *in, *out;		/* n_dims = -1: absent */
	const void *const *value;		/* per input: constant data known now, else NULL; may be NULL */
	bool training;				/* false: an inference graph */
	const bool *weight;			/* per input: is a trainable parameter (may be kept packed); may be NULL */
	int64_t samples, first_sample;		/* how many samples the vertex works on, and the first one's index in the micro-batch;
						 * 0: not known */
};

/* Share `part` of `parts` of the samples of a micro-batch, dealt out in order, the first ones getting one more where they
 * do not come out even. parts 0: all of them. */
struct dlb_samples { int part, parts; };
int64_t dlb_samples_count(struct dlb_samples s, int64_t n);	/* of n samples */
int64_t dlb_samples_first(struct dlb_samples s, int64_t n);

/* How an operator gets on with memory layouts of rank >= 3 activations. */
enum dlb_op_layout {
	DLB_LAYOUT_PLAIN_ONLY,			/* all operands row-major (Reshape, Flatten, ...) */
	DLB_LAYOUT_ANY,				/* any layout, as long as operands of full rank share it (elementwise) */
	DLB_LAYOUT_WANTS_CHANNELS_LAST,		/* in 0 and out 0 best channels-last (Conv, pools, BatchNormalization) */
};
/* How an operator gets on with bf16 activations (lib/graph/mixed.c). Parameters stay f32, and so do statistics and
 * losses; kernels of products round weights as they pack them. */
enum dlb_op_bf16 {
	DLB_BF16_NEVER,				/* its float operands are f32 */
	DLB_BF16_ALWAYS,			/* work for matrix units: its activations are bf16 */
	DLB_BF16_WEIGHTS,			/* likewise, and input 1 may be an f32 parameter */
	DLB_BF16_FOLLOWS,			/* bf16 if one of its activations is; then all are */
	DLB_BF16_MIXES,				/* likewise, but f32 operands beside a bf16 one are read as they are */
};
enum {						/* flags */
	DLB_OP_VIEW = 1,			/* output 0 is input 0's bytes with another shape (Reshape, Identity) */
	DLB_OP_RENAMES_LAYOUT = 512,		/* and, with VIEW, of another layout: infer sees to it that both are the same bytes */
	DLB_OP_MIXES_BATCH = 2,			/* statistics over the batch: acts per micro-batch */
	DLB_OP_RANDOM = 4,
	DLB_OP_BUFFERS = 8,			/* writes its buffer inputs in place (running statistics) */
	DLB_OP_IS_LOSS = 16,			/* scalar output is a mean loss */
	DLB_OP_NO_FOLD = 32,
	DLB_OP_HOST_INT = 64,			/* shape arithmetic: outputs are small integers */
	DLB_OP_SHARES_SAMPLES = 256,		/* output k has share k of the samples of input 0 */
	DLB_OP_SHAPE_ONLY = 128,		/* looks at its input's shape alone (Shape, Size): folds although the values are not known */
};

struct dlb_builder;
struct dlb_op_class {
	const char *name;			/* op type */
	const char *domain;			/* NULL: ONNX's own; "ai.onnx.preview.training"; "dlb" for ours */
	int n_in[2], n_out[2];			/* least and most; most -1: any number */
	enum dlb_op_layout layout;
	unsigned flags;
	unsigned overwrite;			/* bit i: the kernel works when output 0 lies where input i does, both of one
						 * type, shape and layout, and no other input lies there */
	enum dlb_op_bf16 bf16;
	unsigned f32_in;			/* bit i: input i is f32 even where the others are bf16 */
	const char *work;			/* class of work, see dlb_op_work; NULL: "other" */
	/* Fills io->out[] from inputs, attributes and constant values. Errors name the vertex as `where`. */
	int (*infer)(struct dlb_op_io *io, struct dlb_error *err);
	double (*flops)(const struct dlb_op_io *io);	/* NULL: one per output element; multiply-add counts 2 */
	double (*bytes)(const struct dlb_op_io *io);	/* NULL: all inputs and outputs once */
	/* Adds backward ops. NULL: not differentiable (gradient stops). See dlb_builder below. */
	int (*gradient)(struct dlb_builder *b, struct dlb_error *err);
	/* Prepares the kernel; DLB_NO_KERNEL when the back end lacks it. */
	int (*kernel)(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k, struct dlb_error *err);
	/* Of an op that sums over the batch before it can make its outputs: it can also run in two halves, so that these
	 * sums are made over the batches of several replicas. sums: how many they are (f64), 0 when this vertex makes
	 * none; *n_own more stand behind them in the same array, for the second half alone. First half: the inputs in,
	 * the sums out. Second: the inputs and, after the last, the sums in; the outputs out. NULL: no such op. */
	int64_t (*sums)(const struct dlb_op_io *io, int64_t *n_own);
	int (*half)(struct dlb_backend *be, const struct dlb_op_io *io, bool second, struct dlb_kernel **k, struct dlb_error *err);
};

/* The vertex's kernel by its class; where the class has none for 16-bit floats, the one for f32 between casts.
 * DLB_NO_KERNEL when there is none either. */
int dlb_op_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k, struct dlb_error *err);

/* op_list.h: OP(Conv) OP(Relu) ... makes this enum, the declarations and the table. */
enum dlb_op_kind {
#define OP(n) DLB_OP_##n,
#include "op/op_list.h"
#undef OP
	DLB_N_OPS
};
const struct dlb_op_class *dlb_op_class_of(int kind);
/* domain NULL or "" or "ai.onnx": ONNX's own. -1: none. */
int dlb_op_kind_find(const char *type, const char *domain);
/* Class of work, for cost rules and tables of affinity: "conv", "dense", "pool", "norm", "activation",
 * "elementwise", "reduce", "loss", "move" (copies, views, gathers), "update", "other". Types that other
 * tools use in their graphs ("Conv2D", "dense") are known too. */
const char *dlb_op_work(const char *type);

/* ---- what a gradient function sees: the vertex it differentiates, and how to add ops ---- */
/* b->in[i]: tensor ids of the vertex's inputs (-1 absent); out likewise; dout[i]: gradient of output i
 * (-1: none flows); need[i]: gradient of input i is wanted. The function sets din[i] to the gradient's
 * tensor id (or leaves -1). Tensor ids are the graph's; descs at a reference batch size by dlb_b_desc. */
struct dlb_builder {
	void *graph;				/* lib/graph's own */
	struct dlb_op_io io;			/* of the forward vertex */
	int op;					/* its id */
	const int *in, *out, *dout;
	int *din;
	const bool *need;
	struct dlb_error *err;
};
const struct dlb_desc *dlb_b_desc(struct dlb_builder *b, int tensor);
/* Adds one backward op of `type` (domain dlb or ONNX's); infers its outputs; returns output 0's tensor
 * id, further ones in out[1..n_out-1] (out may be NULL when n_out is 1). Errors are kept in b: returns -1
 * and everything after is a no-op that returns -1, so a chain needs one check at its end.
 * Outputs take the layout of the forward tensor they are the gradient of, by `like` (a tensor id or -1). */
int dlb_b_op(struct dlb_builder *b, const char *type, const struct dlb_attr *attr, int n_attr,
	     const int *in, int n_in, int n_out, int *out, int like);
int dlb_b_op1(struct dlb_builder *b, const char *type, int in0);
int dlb_b_op2(struct dlb_builder *b, const char *type, int in0, int in1);
int dlb_b_op3(struct dlb_builder *b, const char *type, int in0, int in1, int in2);
int dlb_b_const_ints(struct dlb_builder *b, const int64_t *v, int n);		/* i64 constant */
int dlb_b_const_real(struct dlb_builder *b, double v, enum dlb_dtype t);	/* scalar constant */
/* i64 constant that holds the dimensions of `tensor` and follows the batch size as they do; for Reshape and
 * Expand, which then need not keep the tensor itself alive. */
int dlb_b_const_shape(struct dlb_builder *b, int tensor);
/* Sums `grad` down to the shape of tensor `like` (undoes broadcasting); the same id when equal. */
int dlb_b_unbroadcast(struct dlb_builder *b, int grad, int like);
/* Adds a further output to the forward vertex (saved statistics, argmax positions): the vertex's class
 * must infer it. Returns its tensor id. */
int dlb_b_extra_output(struct dlb_builder *b, int index);
/* The gradient of output k; zeros of its shape where none flows, as only other outputs are looked at. */
int dlb_b_dout_or_zeros(struct dlb_builder *b, int k);

/* ---- shared pieces for classes (op.c) ---- */
int dlb_infer_same(struct dlb_op_io *io, struct dlb_error *err);	/* out 0 as in 0 */
int dlb_infer_broadcast(struct dlb_op_io *io, struct dlb_error *err);
int dlb_op_fail(const struct dlb_op_io *io, struct dlb_error *err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));		/* "Conv 'conv1' (opset 17): ..." */
/* Axis in [-n, n) to [0, n); -1 with err when out of range. */
int dlb_axis(const struct dlb_op_io *io, int64_t axis, int n_dims, struct dlb_error *err);
#endif
