/* Operators: the meaning of a vertex of the graph.
 *
 * There is one file per operator (or family that differs in one scalar function), and one line in op_list.h.
 * A class defines the shapes (infer), the work (flops; bytes defaults to all inputs and outputs once), the
 * gradient (which adds backward ops to the graph, themselves operators) and the kernel (prepared with a back
 * end's table). Backward operators (ConvGradInput, MaxPoolGrad, ...) and dlb's own are classes like ONNX's.
 * Accumulating micro-batches is no operator: the program does it.
 *
 *     const struct dlb_op_class dlb_op_Relu = { .name = "Relu", .n_in = {1, 1}, .n_out = {1, 1},
 *             .layout = DLB_LAYOUT_ANY, .infer = dlb_infer_same, .gradient = gradient, .kernel = kernel };
 *
 * Attributes have ONNX's names and types. Semantics follow io->opset where versions differ (Softmax before 13
 * flattens; Dropout before 12 has an attribute; BatchNormalization). */
#ifndef DLB_OP_OP_H
#define DLB_OP_OP_H
#include "tensor/backend.h"

enum dlb_attr_type {
	DLB_ATTR_INT,
	DLB_ATTR_REAL,
	DLB_ATTR_STR,
	DLB_ATTR_INTS,
	DLB_ATTR_REALS,
	DLB_ATTR_TENSOR
};
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
/* *out is borrowed; returns the length, 0 if absent. */
int dlb_attr_ints(const struct dlb_attr *a, int n, const char *name, const int64_t **out);

/* Checks the attributes of an operator in ONNX's domain: each is defined at this opset and has the defined
 * type, and no required one is missing (attributes.c). 0; -1: `what` and `hint` of err are set. Operators
 * that are not in the table pass. */
int dlb_op_check_attributes(const char *op, int opset, const struct dlb_attr *attr, int n,
			    struct dlb_error *err);
bool dlb_op_attributes_known(const char *op);
/* Fills name[] and type[] (DLB_MAX_ATTRIBUTES each) with the attributes that an operator of the table may
 * have at this opset; returns their number. */
enum { DLB_MAX_ATTRIBUTES = 12 };
int dlb_op_attributes(const char *op, int opset, const char **name, enum dlb_attr_type *type);

/* A vertex at one batch size: its class, attributes and operand descs. */
struct dlb_op_io {
	const char *name;			/* of the vertex, for messages */
	const struct dlb_op_class *cls;
	int opset;
	const struct dlb_attr *attr;
	int n_attr;
	int n_in, n_out;
	struct dlb_desc *in, *out;		/* n_dims = -1: absent */
	const void *const *value;		/* per input: values known before the run, else
						 * NULL; value itself may be NULL */
	bool training;				/* false: an inference graph */
	const bool *weight;			/* per input: is it a trainable parameter (may
						 * be kept packed); may be NULL */
	bool once;				/* each value of the weights is read by one run: packed
						 * copies are not kept */
	int64_t samples, first_sample;		/* samples that the vertex processes, and index of the first
						 * one in the micro-batch; 0: unknown */
};

/* Share `part` of `parts` of the samples of a micro-batch. Shares are contiguous; the first ones get one more
 * sample if the number is not divisible. parts 0: all samples. */
struct dlb_samples { int part, parts; };
int64_t dlb_samples_count(struct dlb_samples s, int64_t n);	/* of n samples */
int64_t dlb_samples_first(struct dlb_samples s, int64_t n);

/* The layouts that an operator supports for activations of 3 and more dimensions. */
enum dlb_op_layout {
	DLB_LAYOUT_PLAIN_ONLY,			/* all operands row-major (Reshape, Flatten, ...) */
	DLB_LAYOUT_ANY,				/* any layout, if all full-size operands
						 * have the same (elementwise) */
	DLB_LAYOUT_WANTS_CHANNELS_LAST,		/* fastest with channels-last input 0 and output 0 (Conv,
						 * pools, BatchNormalization) */
};
/* The operator's use of bf16 activations (lib/graph/mixed.c). Parameters, statistics and losses stay f32;
 * kernels of products round weights while packing them. */
enum dlb_op_bf16 {
	DLB_BF16_NEVER,				/* float operands are f32 */
	DLB_BF16_ALWAYS,			/* for matrix units: activations are bf16 */
	DLB_BF16_WEIGHTS,			/* like ALWAYS, and input 1 may be an f32 parameter */
	DLB_BF16_FOLLOWS,			/* if one activation is bf16, all are */
	/* like FOLLOWS, but f32 operands may stay beside a bf16 one */
	DLB_BF16_MIXES,
};
enum {						/* flags */
	DLB_OP_VIEW = 1,			/* output 0 has the bytes of input 0 and
						 * another shape (Reshape, Identity) */
	DLB_OP_RENAMES_LAYOUT = 512,		/* with VIEW: the layout differs too; infer checks
						 * that the bytes are the same */
	DLB_OP_MIXES_BATCH = 2,			/* statistics over the batch: computed per micro-batch */
	DLB_OP_RANDOM = 4,
	DLB_OP_BUFFERS = 8,			/* writes its buffer inputs in place (running statistics) */
	DLB_OP_IS_LOSS = 16,			/* output 0 is a scalar mean loss */
	DLB_OP_NO_FOLD = 32,
	DLB_OP_HOST_INT = 64,			/* shape arithmetic: outputs are small integers */
	DLB_OP_SHARES_SAMPLES = 256,		/* output k has share k of the samples of input 0 */
	DLB_OP_SHAPE_ONLY = 128,		/* reads only its input's shape (Shape, Size): folded
						 * even if the values are unknown */
	DLB_OP_ON_CPU = 2048,			/* all its kernels are functions of the host: back end cuda has
						 * none */
	DLB_OP_PACKS = 1024,			/* reads a packed copy of a weight, kept from run to run, or
						 * made in scratch by each run (dlb_op_io.once) */
};

struct dlb_builder;
struct dlb_op_class {
	const char *name;			/* op type */
	/* NULL: ONNX's own; "ai.onnx.preview.training"; "dlb" for ours */
	const char *domain;
	int n_in[2], n_out[2];			/* least and most; most -1: any number */
	enum dlb_op_layout layout;
	unsigned flags;
	unsigned overwrite;			/* bit i: output 0 may overwrite input i, if both have one
						 * type, shape and layout and no other input uses that
						 * memory */
	enum dlb_op_bf16 bf16;
	unsigned f32_in;			/* bit i: input i is f32 even if the others are bf16 */
	const char *work;			/* class of work, see dlb_op_work; NULL: "other" */
	/* Fills io->out[] from inputs, attributes and constant values. Errors name the vertex in `where`. */
	int (*infer)(struct dlb_op_io *io, struct dlb_error *err);
	/* NULL: one per output element; a multiply-add counts 2 */
	double (*flops)(const struct dlb_op_io *io);
	double (*bytes)(const struct dlb_op_io *io);	/* NULL: all inputs and outputs once */
	/* Adds backward ops. NULL: not differentiable (gradient stops). See dlb_builder below. */
	int (*gradient)(struct dlb_builder *b, struct dlb_error *err);
	/* Prepares the kernel; DLB_NO_KERNEL if the back end lacks it. */
	int (*kernel)(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		      struct dlb_error *err);
	/* For an op whose outputs need sums over the batch: runs it in two halves, between which replicas add
	 * up their sums. sums: the number of sums (f64), 0 if this vertex has none; *n_own more values follow
	 * them in the array, for the second half alone. First half: inputs -> sums. Second half: inputs and,
	 * as the last one, sums -> outputs. NULL: the op needs no such sums. */
	int64_t (*sums)(const struct dlb_op_io *io, int64_t *n_own);
	int (*half)(struct dlb_backend *be, const struct dlb_op_io *io, bool second, struct dlb_kernel **k,
		    struct dlb_error *err);
};

/* Prepares the vertex's kernel by its class; for 16-bit floats without a kernel, the f32 kernel between
 * casts. DLB_NO_KERNEL if there is none either. */
int dlb_op_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		  struct dlb_error *err);

/* op_list.h: OP(Conv) OP(Relu) ... makes this enum, the declarations and the table. */
enum dlb_op_kind {
#define OP(n) DLB_OP_##n,
#include "op/op_list.h"
#undef OP
	DLB_N_OPS
};
const struct dlb_op_class *dlb_op_class_of(int kind);
/* domain NULL, "" or "ai.onnx": ONNX's own. -1: none. */
int dlb_op_kind_find(const char *type, const char *domain);
/* Class of work, for cost rules and tables of affinity: "conv", "dense", "pool", "norm", "activation",
 * "elementwise", "reduce", "loss", "move" (copies, views, gathers), "update", "other". Knows other tools'
 * type names ("Conv2D", "dense") too. */
const char *dlb_op_work(const char *type);

/* ---- for gradient functions: the vertex that is differentiated, and functions that add ops ---- */
/* An op to be added to a graph. Functions that add it copy strings and arrays, and say which members they
 * set themselves. */
struct dlb_op_spec {
	const char *name, *type;
	const char *domain;			/* NULL: ONNX's own */
	const int *in, *out;			/* tensor ids; -1: absent */
	const struct dlb_attr *attr;
	int n_in, n_out, n_attr;
	int opset;				/* 0: the graph's */
};
/* Initializes the operands of a struct dlb_op_spec. */
#define DLB_OPERANDS(...) .in = (const int[]){ __VA_ARGS__ }, .n_in = DLB_LEN(((const int[]){ __VA_ARGS__ }))
/* A spec with these operands; and one with n attributes too. */
#define DLB_SPEC(t, ...) (&(struct dlb_op_spec){ .type = (t), DLB_OPERANDS(__VA_ARGS__) })
#define DLB_SPEC_ATTR(t, a, n, ...) \
	(&(struct dlb_op_spec){ .type = (t), .attr = (a), .n_attr = (n), DLB_OPERANDS(__VA_ARGS__) })

/* b->in[i], b->out[i]: tensor ids of the vertex's inputs and outputs (-1 absent). dout[i]: gradient of output
 * i (-1: none). need[i]: gradient of input i is needed. The function sets din[i] to the gradient's tensor id
 * (or leaves -1). Ids are the graph's; dlb_b_desc gives descs at a reference batch size. */
struct dlb_builder {
	void *graph;				/* private to lib/graph */
	struct dlb_op_io io;			/* of the forward vertex */
	int op;					/* its id */
	const int *in, *out, *dout;
	int *din;
	const bool *need;
	struct dlb_error *err;
};
const struct dlb_desc *dlb_b_desc(struct dlb_builder *b, int tensor);
/* Whether dimension i of a tensor follows the batch. */
bool dlb_b_follows(const struct dlb_builder *b, int tensor, int i);
/* Adds a backward op and infers its shapes. Its name and its domain (dlb or ONNX's) follow from the type; its
 * n_out outputs (0: one) are new tensors. Returns the id of output 0, those of all in out[] (may be NULL).
 * After an error, which is kept in b, this and later calls return -1, so one check at the end suffices.
 * Outputs take the layout of `like`, the forward tensor whose gradient they are (an id or -1). */
int dlb_b_op(struct dlb_builder *b, const struct dlb_op_spec *s, int *out, int like);
/* Adds op s and sets din[0] to its output; does nothing if din[0] is not needed. 0; -1: an error. */
int dlb_b_gradient(struct dlb_builder *b, const struct dlb_op_spec *s);
int dlb_b_op1(struct dlb_builder *b, const char *type, int in0);
int dlb_b_op2(struct dlb_builder *b, const char *type, int in0, int in1);
int dlb_b_op3(struct dlb_builder *b, const char *type, int in0, int in1, int in2);
int dlb_b_const_ints(struct dlb_builder *b, const int64_t *v, int n);		/* i64 constant */
int dlb_b_const_real(struct dlb_builder *b, double v, enum dlb_dtype t);	/* a scalar constant */
/* An i64 constant with the dimensions of `tensor`, which follow the batch; for Reshape and Expand, which then
 * do not keep the tensor itself alive. */
int dlb_b_const_shape(struct dlb_builder *b, int tensor);
/* Sums `grad` to the shape of tensor `like` (undoes broadcasting); returns grad if the shapes are equal. */
int dlb_b_unbroadcast(struct dlb_builder *b, int grad, int like);
/* Adds an output to the forward vertex (saved statistics, argmax positions), which the vertex's class must
 * infer. Returns its tensor id. */
int dlb_b_extra_output(struct dlb_builder *b, int index);
/* The gradient of output k; zeros of its shape if it has none, while other outputs have one. */
int dlb_b_dout_or_zeros(struct dlb_builder *b, int k);

/* ---- functions shared by classes (op.c) ---- */
int dlb_infer_same(struct dlb_op_io *io, struct dlb_error *err);	/* output 0 is like input 0 */
int dlb_infer_broadcast(struct dlb_op_io *io, struct dlb_error *err);
double dlb_no_flops(const struct dlb_op_io *io); /* 0: the op moves bytes only */
int dlb_op_fail(const struct dlb_op_io *io, struct dlb_error *err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));		/* "Conv 'conv1' (opset 17): ..." */
/* Converts an axis in [-n, n) to [0, n); -1 with err if it is out of range. */
int dlb_axis(const struct dlb_op_io *io, int64_t axis, int n_dims, struct dlb_error *err);
#endif
