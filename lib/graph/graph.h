/* The graph: the computation of one training step, or of one inference.
 *
 * Ops and tensors are open structs in arrays, linked by integer ids (index = id). Ops are in topological
 * order. Forward ops come first, then backward, then update ops; a shared weight has one update op. The
 * batch size is symbolic: a dimension is mul * n + add for n samples (of a micro-batch), and so are values
 * of constants that follow the batch. Where an op is split by samples, n is the number of samples of the
 * shard (struct dlb_samples).
 *
 * Tensor kinds
 *     input       fed with samples           label    fed with labels
 *     seed        fed: weight of this micro-batch in the step's loss (counted labels / all counted)
 *     weight      trainable parameter        buffer   running statistics, written by their op in order
 *     constant    same for every step        activation, gradient, weight-gradient
 * Weights and buffers are state: they live on the node of their `home` op (the update op, or the op that
 * writes the buffer) and make no edges among the ops of a micro-batch. Readers on other nodes get a copy
 * each step. A weight-gradient is the gradient of one micro-batch; the program sums those of
 * micro-batches 0 .. M-1 in order.
 *
 * The loss of a step is the sum over m of seed_m * loss_m; the gradient of loss_m is seed_m. Each update op
 * has inputs {weight, its gradient} and no outputs (optim/kfac.h adds two inputs to some). Its type is
 * "Update"; its attribute "optimizer" may be changed by dlb-run without renumbering ids.
 *
 * Example: y = Relu(Gemm(x, w, b)) has ops 0 Gemm, 1 Relu, 2 loss, 3 .. backward, then two updates. */
#ifndef DLB_GRAPH_GRAPH_H
#define DLB_GRAPH_GRAPH_H
#include "doc/doc.h"
#include "graph/name_map.h"
#include "op/op.h"
#include "util/mem.h"
#include "util/patterns.h"

/* An op with this attribute has kind -1; the value names the attribute that dlb cannot represent. */
#define DLB_ATTR_UNSUPPORTED "x-unsupported"

/* An op that draws random numbers draws those of the op whose id is in this integer attribute, so that
 * splitting (split.c) does not change them. */
#define DLB_ATTR_VERTEX "vertex"

struct dlb_dim { int64_t mul, add; };			/* mul * batch + add */
enum dlb_tensor_kind { DLB_T_INPUT, DLB_T_LABEL, DLB_T_SEED, DLB_T_WEIGHT, DLB_T_BUFFER, DLB_T_CONSTANT,
		       DLB_T_ACTIVATION, DLB_T_GRADIENT, DLB_T_WEIGHT_GRADIENT, DLB_N_T_KINDS };
enum dlb_phase { DLB_FORWARD, DLB_BACKWARD, DLB_UPDATE, DLB_N_PHASES };

/* The rule that decides whether an initializer is trained; the first that applies counts (parameters.c). */
enum dlb_by { DLB_BY_NONE, DLB_BY_OPTION, DLB_BY_STATE_DICT, DLB_BY_LIST, DLB_BY_ROLE, DLB_N_BY };

/* The values of a weight at the start of a run: those of the model; or, for a weight that is not in the
 * model, random numbers, or all equal to `fill`, also without --init. */
enum dlb_start { DLB_START_MODEL, DLB_START_DRAWN, DLB_START_FILL, DLB_N_STARTS };

struct dlb_tensor {
	const char *name;
	enum dlb_tensor_kind kind;
	enum dlb_dtype dtype;
	enum dlb_layout layout;
	int n_dims;			/* -1: not known yet */
	struct dlb_dim dim[DLB_MAX_DIMS];	/* mul 0, add -1: unknown (before folding only) */
	const char *const *dim_name;	/* inputs as read: the model's name of each dimension, NULL
					 * where it has a size; or NULL */
	const char *symbol;		/* name of the first unknown dimension, for messages; or NULL */
	int producer;			/* op id, -1: none (inputs, state, constants) */
	int home;			/* weight, buffer: op where it lives; else -1 */
	int of;				/* gradient: the tensor it is the gradient of; else -1 */
	/* Constants: values at batch n are data[i] + data_mul[i] * n (data_mul NULL: fixed). is_fill: all
	 * elements equal `fill`. Weights and buffers: data as read from the model, or NULL. */
	const void *data;
	const int64_t *data_mul;
	bool is_fill;
	double fill;
	bool in_model;			/* data are in the model's file under this name, and
					 * not written to the document */
	const char *from;		/* in_model: the initializer that holds the data, if
					 * it has another name; or NULL */
	/* data are in the file of the module's state_dict (graph.state_path) */
	bool in_state;
	const char *const *also;	/* further names in the state_dict, NULL-terminated; or NULL */
	struct dlb_samples samples;	/* the samples that its batch-dependent dimensions count */
	const struct dlb_slice *slice;	/* weights, buffers, constants: the part of the model's tensor
					 * that it holds; NULL: all of it */
	bool initial;			/* an initializer of the model; after parameters are chosen
					 * (parameters.c): one to be trained */
	enum dlb_by rule;		/* initializers: the rule that decided whether it is trained */
	/* initializers: the reason for that decision, in words ("operand 1 of Gemm 'fc'", "a scalar"); or
	 * NULL */
	const char *why;
	/* a parameter that is not trained, saved with the weights: a constant, or a weight without an update
	 * (freeze.c) */
	bool frozen;
	enum dlb_start start;		/* weights */
	bool named_by_readers;		/* as read: the exporter states that all readers use
					 * the parameter of this name */
	int64_t bound;			/* integer inputs: values lie in [0, bound), from the Gather or loss
					 * that reads the input; 0: unknown. Float labels: 2 if in [0, 1],
					 * else 0 */
	int fan_in, fan_out;		/* weights, for --init; 0: unknown */
	double size_mul, size_add;	/* dims unknown (converted graphs): bytes = size_mul * n + size_add */
};
struct dlb_op {
	const char *name;		/* the vertex's name, unique */
	const char *type;		/* "Conv"; any string in converted graphs */
	const char *domain;		/* "" for ONNX's own */
	/* enum dlb_op_kind; -1: unknown operator, can be planned but not run */
	int kind;
	enum dlb_phase phase;
	int opset;
	int n_in, n_out, n_attr;
	int *in, *out;			/* tensor ids, -1 absent */
	struct dlb_attr *attr;
	/* backward: the forward op it differentiates; update: first op that reads the weight; else -1 */
	int of;
	int colocate;			/* op id whose node this one must share, or -1 */
	/* FLOP at graph.batch, and the part that does not follow the batch */
	double flop, flop_fixed;
	double bytes, bytes_fixed;	/* memory traffic in bytes, likewise */
	const int *uses;		/* as read: parameters and buffers that the exporter lists for the op
					 * (indices in `listed`) */
	int n_uses, n_may_use;		/* n_may_use: these and further entries of `uses`, which the op's
					 * module has */
};
/* A graph inside a vertex: a branch of If, the body of Loop or Scan. Its first n_formal inputs are bound
 * by the vertex each time the body runs. Its other inputs are captured from the graph around it:
 * operands first_capture .. of the vertex; the earlier operands are those that ONNX defines. Its
 * constants belong to the outermost graph. The vertex names the body by its index in `body`, an INT
 * attribute with ONNX's name ("then_branch"). dlb_graph_fold replaces these vertices by their bodies
 * (structure.c); no later pass sees a body. */
struct dlb_body;
/* An op of the model that was split: the number of shards, the axis ("output", "input", "batch",
 * "rows", "head", "vocabulary"), the reason, and whether sums over its shards are made in pairs. Shard
 * k of op NAME is op NAME@k. */
/* pairs: dlb_graph_pair_sums */
struct dlb_was_split { const char *op, *axis, *why; int parts; bool pairs; };
/* A parameter, buffer or constant of the framework's module, from the list that the exporter writes to the
 * model's metadata. `name` is its path in the module ("fc.weight"), which is also the initializer's name
 * unless the exporter folded it; `input` is its name in the exported program. Only persistent ones are in
 * the module's state_dict. */
enum dlb_listed_kind { DLB_LISTED_PARAMETER, DLB_LISTED_BUFFER, DLB_LISTED_CONSTANT };
struct dlb_listed { const char *name, *input; enum dlb_listed_kind kind; bool persistent; };
/* Types of tensors that are 16-bit in the model and f32 in the graph (upcast.c). */
enum { DLB_UPCAST_F16, DLB_UPCAST_BF16, DLB_N_UPCAST };
struct dlb_upcast { int initializers, others; };
/* A parameter that the exporter merged with another of equal values: the vertex reads initializer `of` in the
 * model, as any operand or, if it is not 0, as this `operand`. Empty `of`: a zero bias that the exporter
 * omitted, operand 2 of the vertex. */
struct dlb_unmerged { const char *name, *of, *vertex; int operand; };
/* A weight `of` with an adapter: its readers use `of` + scale b a, with weights a (rank, in) and b (out,
 * rank). transposed: `of` is stored (out, in), else (in, out). All names are of tensors (adapters.c). */
struct dlb_adapter { const char *of, *a, *b; int rank; double scale; bool transposed; };
/* A tensor of a file, passed from lib/model to lib/graph. */
struct dlb_named { const char *name; struct dlb_desc desc; const void *data; };
struct dlb_dim_size { const char *name; int64_t n; bool used; };	/* given by --dim */
/* a rewrite that was on, and how often it applied */
struct dlb_rewritten { const char *name; int64_t count; };
struct dlb_graph {
	struct dlb_arena arena;
	/* data of weights and buffers, until dlb_graph_drop_values; mapped files are in `arena` */
	struct dlb_arena values;
	struct dlb_op *op;
	struct dlb_tensor *tensor;
	int n_ops, n_tensors, cap_ops, cap_tensors;
	/* input, output: arrays in the arena */
	int *input, n_inputs;		/* fed tensors in the model's order (labels included) */
	int *output, n_outputs;		/* the model's outputs */
	int loss, label, seed;		/* tensor ids or -1 */
	int64_t batch;			/* default global batch */
	struct dlb_dim_size *size;	/* sizes of named dimensions, until folded (dims.c); in the arena */
	int n_sizes;
	bool fixed_batch;		/* the model was exported with this batch and cannot change it:
					 * every step is one micro-batch of this size, and no
					 * dimension follows the batch */
	enum dlb_dtype dtype;		/* f32, f64, or bf16: activations bf16, parameters f32 */
	bool training;
	int64_t sample_shares;		/* batches that are multiples of this divide evenly
					 * by all sample splits; 0: 1 */
	/* absolute path of the file with the weights, its hash; NULL: none */
	const char *model_path, *model_sha256;
	/* the model has external data, which were not read: the hash is that of the model's file alone */
	bool external_unread;
	const char *state_path, *state_sha256;	/* file of the module's state_dict (safetensors), for
						 * tensors with in_state; NULL: none */
	int opset;
	/* bit i: row i of dlb_rewrites is off; set before folding, not written */
	uint64_t no_rewrite;
	/* bit i: row i is off and would have changed the graph (dlb_graph_missed); not written */
	uint64_t missed;
	struct dlb_rewritten *rewritten;	/* rewrites that were applied, in order; array in the arena */
	int n_rewritten;
	struct dlb_was_split *was_split;	/* array in the arena */
	int n_was_split;
	struct dlb_listed *listed;	/* the exporter's list, in its order; array in the arena;
					 * n_listed 0: the model has none */
	int n_listed;
	struct dlb_derived *derived;	/* array in the arena */
	int n_derived;
	struct dlb_unmerged *unmerged;	/* array in the arena */
	int n_unmerged;
	struct dlb_adapter *adapter;	/* array in the arena */
	int n_adapters;
	int n_untrained;		/* float initializers that are neither parameters
					 * nor statistics; not written */
	struct dlb_upcast upcast[DLB_N_UPCAST];
	const char **note;		/* remarks of the reader and the rewrites, one line each
					 * (dlb_graph_note); not written */
	int n_notes;
	/* adjacency, made by dlb_graph_index */
	/* readers of tensor t: reader[reader_start[t] .. reader_start[t+1]) */
	int *reader_start, *reader;
	struct dlb_body **body;		/* until folded; includes nested bodies */
	int n_bodies, cap_bodies;
	/* made on first use (rewrite.c) */
	struct dlb_names { struct dlb_name_map count; int n; } op_names, tensor_names;
};
struct dlb_body { struct dlb_graph g; int n_formal, first_capture; };

/* -- building (graph.c) -- */
void dlb_graph_init(struct dlb_graph *g);
void dlb_graph_release(struct dlb_graph *g);
/* Frees the data of weights and buffers that dlb_graph_load_weights loaded, once their state holds them. */
void dlb_graph_drop_values(struct dlb_graph *g);
/* Copies the structure. *copy may be rewritten and released; it borrows names, attributes and data from g. */
void dlb_graph_copy(const struct dlb_graph *g, struct dlb_graph *copy);
/* Returns the id; the other members are 0 or -1. */
int dlb_graph_add_tensor(struct dlb_graph *g, const char *name, enum dlb_tensor_kind kind);
/* Copies all of the spec (attributes deeply) into g's arena. Sets kind by type and domain. Returns the id. */
int dlb_graph_add_op(struct dlb_graph *g, enum dlb_phase phase, const struct dlb_op_spec *s);
/* Adds a line to dlb_graph_warnings. */
void dlb_graph_note(struct dlb_graph *g, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
struct dlb_attr *dlb_attr_copy(struct dlb_arena *a, const struct dlb_attr *attr, int n);	/* deep */
/* Adds an empty body to the outermost graph g; *index is the value for the vertex's attribute. */
struct dlb_body *dlb_graph_add_body(struct dlb_graph *g, int *index);

/* -- at a batch size -- */
struct dlb_desc dlb_tensor_desc(const struct dlb_tensor *t, int64_t n);
double dlb_tensor_bytes(const struct dlb_tensor *t, int64_t n);
bool dlb_tensor_follows_batch(const struct dlb_tensor *t);	/* its shape or its values do */
/* The samples that the batch-dependent tensors among a[] and b[] count; all samples if these differ. */
struct dlb_samples dlb_common_samples(const struct dlb_graph *g, const int *a, int n_a, const int *b,
				      int n_b);
struct dlb_samples dlb_op_samples(const struct dlb_graph *g, int op);	/* dlb_common_samples of its
									 * operands */
/* Makes sample_shares a multiple of `parts`; -1 when it exceeds 2^20. */
int dlb_graph_share_samples(struct dlb_graph *g, int64_t parts);
/* The least number of samples with which no shard of the samples is empty. */
int64_t dlb_graph_least_samples(const struct dlb_graph *g);
/* Fills io for op at n samples; descs and values live in `a`. Values are those of constants; fills have them
 * only up to 65536 elements. */
void dlb_graph_io(const struct dlb_graph *g, int op, int64_t n, struct dlb_arena *a, struct dlb_op_io *io);
/* The values of a constant at n samples; in `a`, or in the graph's memory if they do not follow the batch. */
const void *dlb_tensor_value(const struct dlb_tensor *t, int64_t n, struct dlb_arena *a);
double dlb_op_flop_at(const struct dlb_graph *g, int op, int64_t n);
double dlb_op_bytes_at(const struct dlb_graph *g, int op, int64_t n);
/* A text key of type, attributes and operand descs at n samples: ops with equal keys have equal cost. */
char *dlb_op_signature(const struct dlb_graph *g, int op, int64_t n, struct dlb_arena *a);
#endif
