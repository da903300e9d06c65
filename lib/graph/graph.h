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

/* A tensor that is a part of tensor `of` of the model, whose shape is dim[]. Dimension `axis` of the whole is
 * a sequence of rows of units * unit elements; the part has units [first, first + count) of each row. */
struct dlb_slice {
	const char *of;
	int n_dims, axis;
	int64_t dim[DLB_MAX_DIMS], units, unit, first, count;
};
/* Copies a part of `whole` to `part` (take), or back (put); `size` is bytes per element. (slice.c) */
void dlb_slice_take(const struct dlb_slice *s, size_t size, const void *whole, void *part);
void dlb_slice_put(const struct dlb_slice *s, size_t size, const void *part, void *whole);
/* index in the whole of element i of the part */
int64_t dlb_slice_index(const struct dlb_slice *s, int64_t i);
/* the slice is valid and has this shape */
bool dlb_slice_fits(const struct dlb_slice *s, const struct dlb_desc *part);
/* shape of the whole */
struct dlb_desc dlb_slice_desc(const struct dlb_slice *s, enum dlb_dtype dtype);
/* s is a slice of the tensor that `part` describes, itself a slice: makes s a slice of that slice's whole.
 * false: it would not be one range. */
bool dlb_slice_compose(const struct dlb_slice *part, struct dlb_slice *s);
/* adds all members but `of` to o (graph_json.c) */
void dlb_slice_write(const struct dlb_slice *s, json_t *o);

/* The rule that decides whether an initializer is trained; the first that applies counts (parameters.c). */
enum dlb_by { DLB_BY_NONE, DLB_BY_OPTION, DLB_BY_STATE_DICT, DLB_BY_LIST, DLB_BY_ROLE, DLB_N_BY };

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
	/* Constants: values at batch n are value[i] + value_mul[i] * n (value_mul NULL: fixed). `fill`: all
	 * elements are equal. Weights and buffers: data as read from the model, or NULL. */
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
	const char *const *also;	/* other names of it in the state_dict, NULL-terminated; or NULL */
	struct dlb_samples samples;	/* the samples that its batch-dependent dimensions count */
	const struct dlb_slice *slice;	/* weights, buffers, constants: the part of the model's tensor
					 * that it holds; NULL: all of it */
	bool initial;			/* an initializer of the model; after parameters are chosen
					 * (parameters.c): one to be trained */
	enum dlb_by rule;		/* initializers: the rule that decided whether it is trained */
	/* ... and the reason, in words ("operand 1 of Gemm 'fc'", "a scalar"); or NULL */
	const char *why;
	/* a parameter that is not trained: a constant, saved with the weights */
	bool frozen;
	bool named_by_readers;		/* as read: the exporter states that all readers use
					 * the parameter of this name */
	int64_t bound;			/* integer inputs: values lie in [0, bound) (of the Gather or loss);
					 * 0: unknown. Float labels: 2 if in [0, 1], else 0 */
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
	/* at graph.batch, and the part of it that does not follow the batch */
	double flop, flop_fixed;
	double bytes, bytes_fixed;	/* memory traffic, likewise */
	const int *uses;		/* as read: parameters and buffers that the exporter says it
					 * uses (indices in `listed`) */
	int n_uses;
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
/* An initializer that the exporter computed from parameters (a transposed weight, the gates of an LSTM
 * reordered). The graph has the parameters, and ops that recompute it; saving as ONNX recomputes it too. It
 * is its parts concatenated along `axis`, each a range of a parameter's rows, transposed and reshaped; then
 * repeated where `base` is 1 and `dim` is not. (derived.c) */
struct dlb_part {
	const char *of;			/* the parameter, of shape dim[0 .. n_dims) */
	int n_dims, axis;		/* rows [first, first + count) along `axis` */
	int64_t dim[DLB_MAX_DIMS], first, count;
	int perm[DLB_MAX_DIMS];
	int64_t length;			/* of the part along the initializer's axis */
};
struct dlb_derived {
	const char *name;
	int n_dims, axis, n_parts;
	int64_t dim[DLB_MAX_DIMS], base[DLB_MAX_DIMS];
	struct dlb_part *part;
};
/* A parameter that the exporter merged with another of equal values: the vertex reads initializer `of` in the
 * model, as any operand or, if it is not 0, as this `operand`. Empty `of`: a zero bias that the exporter
 * omitted, operand 2 of the vertex. */
struct dlb_unmerged { const char *name, *of, *vertex; int operand; };
/* A tensor of a file, passed from lib/model to lib/graph. */
struct dlb_named { const char *name; struct dlb_desc desc; const void *data; };
struct dlb_dim_size { const char *name; int64_t n; bool used; };	/* --dim */
/* a rewrite that was on, and how often it applied */
struct dlb_rewritten { const char *name; int64_t count; };
struct dlb_graph {
	struct dlb_arena arena;
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
/* Copies the structure. *copy may be rewritten and released; it borrows names, attributes and data from g. */
void dlb_graph_copy(const struct dlb_graph *g, struct dlb_graph *copy);
/* id; rest zero or -1 */
int dlb_graph_add_tensor(struct dlb_graph *g, const char *name, enum dlb_tensor_kind kind);
/* Copies all of the spec (attributes deeply) into g's arena. Sets kind by type and domain. Returns the id. */
int dlb_graph_add_op(struct dlb_graph *g, enum dlb_phase phase, const struct dlb_op_spec *s);
/* Adds a line to dlb_graph_warnings. */
void dlb_graph_note(struct dlb_graph *g, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
struct dlb_attr *dlb_attr_copy(struct dlb_arena *a, const struct dlb_attr *attr, int n);	/* deep */
/* Adds an empty body to the outermost graph g; *index is the value for the vertex's attribute. */
struct dlb_body *dlb_graph_add_body(struct dlb_graph *g, int *index);
/* Is the type control flow (If, Loop, Scan) or an op on sequences of tensors (SequenceAt ...)? dlb_graph_fold
 * replaces such vertices if their condition, count or index is known from shapes and constants. */
bool dlb_graph_is_structure(const char *type, const char *domain);
/* (Re)builds producers and readers (each reader once, ascending); -1 if a tensor has two producers. */
int dlb_graph_index(struct dlb_graph *g);
/* Checks the invariants: ids in range, topological order, no cycles, unique names, colocate chains,
 * sizes that do not overflow. */
int dlb_graph_check(const struct dlb_graph *g, struct dlb_error *err);
/* Sorts ops topologically (stable; forward, backward, update) and renumbers them; -1 with err
 * naming the ops of a cycle. */
int dlb_graph_sort(struct dlb_graph *g, struct dlb_error *err);
/* -1 with op type, opset and vertex if an operator is unknown (kind -1). */
int dlb_graph_check_known(const struct dlb_graph *g, struct dlb_error *err);
/* the message for such an op; -1 */
int dlb_graph_fail_unknown(const struct dlb_op *o, struct dlb_error *err);
/* Refuses vertex o: fills err with "TYPE 'NAME' (opset N)" as the place, the message, and `cure`
 * (may be NULL) as the hint. Returns -1. */
int dlb_vertex_fail(const struct dlb_op *o, struct dlb_error *err, const char *cure, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
#define DLB_CURE_VERTEX "if onnx.checker.check_model(model, full_check=True) takes the model, write this vertex with other operators"
#define DLB_CURE_CHECK "the model is not valid: run onnx.checker.check_model on it, and export it again"
/* Checks that every op is known and has its operands, and that its outputs have the types and
 * shapes that its class infers at n samples. To be called before running kernels, for each size
 * that will run (runnable.c). */
int dlb_graph_check_runnable(const struct dlb_graph *g, int64_t n, struct dlb_error *err);

/* -- at a batch size -- */
struct dlb_desc dlb_tensor_desc(const struct dlb_tensor *t, int64_t n);
double dlb_tensor_bytes(const struct dlb_tensor *t, int64_t n);
bool dlb_tensor_follows_batch(const struct dlb_tensor *t);	/* its shape or its values do */
/* The samples shared by those of the tensors a[] and b[] that follow the batch; all
 * samples if they differ. */
struct dlb_samples dlb_common_samples(const struct dlb_graph *g, const int *a, int n_a, const int *b,
				      int n_b);
struct dlb_samples dlb_op_samples(const struct dlb_graph *g, int op);	/* those of all its operands */
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
/* group[i]: the least id among the ops that must share a node with op i. */
void dlb_graph_groups(const struct dlb_graph *g, int *group /* n_ops */);

/* -- rewrites, in the order in which dlb-profile applies them (one file each) -- */
/* upcast.c: f16 and bf16 become f32; a note tells the number of tensors. Directly after reading,
 * before all other rewrites. */
void dlb_graph_upcast(struct dlb_graph *g);
/* widen.c: f32 becomes f64 (initializers, attributes, casts), for --dtype f64. After
 * dlb_graph_choose_parameters, whose `initial` distinguishes constants from parameters; before fold. */
void dlb_graph_widen(struct dlb_graph *g);
/* padding.c: in embeddings whose table's name matches GLOB, row ROW gets no gradient; text:
 * "GLOB=ROW". Before fold. */
int dlb_graph_set_padding_row(struct dlb_graph *g, const char *text, struct dlb_error *err);
/* merged.c: separates parameters that the exporter merged, unites those that it copied, restores zero biases
 * that it omitted. Directly after reading, before dlb_graph_take_state. */
int dlb_graph_unmerge(struct dlb_graph *g, struct dlb_error *err);
/* state_dict.c: takes the module's state_dict (entry[]; data must outlive g). Initializers named like an
 * entry get its data. Others are matched by value; a match becomes ops on tensors with the entries' names and
 * shapes. Before dlb_graph_choose_parameters. `untie`: entries of equal values stay separate weights. */
int dlb_graph_take_state(struct dlb_graph *g, const struct dlb_named *entry, int n, bool untie,
			 struct dlb_error *err);
/* Ties an embedding to an operand of a product with equal values, transposed or not. Before
 * dlb_graph_choose_parameters, without a state_dict. `untie`: changes nothing; a note tells if there is
 * nothing to untie. */
int dlb_graph_tie(struct dlb_graph *g, bool untie, struct dlb_error *err);
/* parameters.c: chooses the initializers to train. Directly after reading, before widening and folding. */
struct dlb_parameter_choice {
	struct dlb_patterns train, freeze, train_only;	/* names or patterns; each list may be empty */
	bool untie;
};
int dlb_graph_choose_parameters(struct dlb_graph *g, const struct dlb_parameter_choice *c,
				struct dlb_error *err);
/* dims.c: dlb_graph_set_dim: "NAME=N" sets the size of a named dimension. dlb_graph_size_inputs,
 * after it and before fold: gives every dimension of the inputs a size or makes it follow the batch,
 * and puts the batch first. */
int dlb_graph_set_dim(struct dlb_graph *g, const char *text, struct dlb_error *err);
int dlb_graph_size_inputs(struct dlb_graph *g, struct dlb_error *err);
/* fold.c: infers every shape at n, 2n and 3n samples, folds constants (with their own kernels on `be`),
 * replaces branches, loops and sequences by plain vertices (structure.c, sequence.c), drops dead vertices,
 * makes dims affine in the batch, makes fixed batch dimensions follow the batch. batch 0: the model's own,
 * else 32; -1: no dimension follows the batch (single operators in tests). */
int dlb_graph_fold(struct dlb_graph *g, int64_t batch, struct dlb_backend *be, struct dlb_error *err);
/* make_weights.c: float initializers to be trained with a differentiable path to the output become
 * weights, running statistics buffers, the rest constants. */
int dlb_graph_find_parameters(struct dlb_graph *g, struct dlb_error *err);
/* training_mode.c: all BatchNormalizations of a training graph normalize by the statistics of the micro-batch
 * and update the running ones (train), or normalize by the running ones without updating them. Adds a note;
 * returns how many changed. After folding. */
int dlb_graph_set_batchnorm(struct dlb_graph *g, bool train);
/* "PATTERN=P": inserts Dropout with rate P after vertices whose name, or first output's name, matches the
 * shell pattern; a Dropout of the model gets the rate. Ids change. -1 if the text is malformed or nothing
 * matches. After folding. */
int dlb_graph_add_dropout(struct dlb_graph *g, const char *text, struct dlb_error *err);
/* notes Dropout that an inference export disabled or removed */
void dlb_graph_note_dropout(struct dlb_graph *g);
/* loss.c: attaches the loss, or several, described by `loss` (loss.h); NULL or "auto":
 * CONTRACT's default; "none": none. */
int dlb_graph_attach_loss(struct dlb_graph *g, const char *loss, struct dlb_error *err);
int dlb_graph_attach_losses(struct dlb_graph *g, const char *const *text, int n, struct dlb_error *err);
/* layout.c: chooses a physical layout per tensor and inserts Layout ops where it changes. Not for f64. */
int dlb_graph_choose_layout(struct dlb_graph *g, struct dlb_error *err);
/* mixed.c: activations in bf16, parameters, statistics and losses in f32, for --dtype bf16. */
int dlb_graph_mix(struct dlb_graph *g, struct dlb_error *err);
/* autodiff.c: adds backward ops, sums of gradients, and one update op per weight. */
int dlb_graph_differentiate(struct dlb_graph *g, struct dlb_error *err);
/* As above, but starts at `tensor`, whose gradient is fed as tensor `seed`, and adds no updates: grad[i] is
 * the gradient of tensor wrt[i] (-1: none). For tests of single operators. */
int dlb_graph_differentiate_from(struct dlb_graph *g, int tensor, int seed, const int *wrt, int n_wrt,
				 int *grad, struct dlb_error *err);
/* inference.c: the inference graph of a training graph, for test accuracy: forward ops only, with the loss if
 * there is one, BatchNormalization by its running statistics, Dropout removed. op_of[i], tensor_of[i]: ids in
 * g (arrays in out's arena). */
int dlb_graph_eval(const struct dlb_graph *g, struct dlb_graph *out, int **op_of, int **tensor_of,
		   struct dlb_error *err);
/* Lists what a user should know about the graph (folded BatchNormalization, tied weights), one line each in
 * g's arena; returns the number of lines. */
int dlb_graph_warnings(struct dlb_graph *g, const char ***lines);

/* rewrites.c: the rewrites that can be switched off, one row each; the last row has no name. Rows without
 * `run` are part of dlb_graph_fold; dlb_graph_rewrite applies the others in order, after the loss is attached
 * and before layouts are chosen. None changes names of weights, inputs or outputs. */
struct dlb_rewrite {
	const char *name, *summary;
	/* adds to *count how often it applied */
	int (*run)(struct dlb_graph *g, int64_t *count, struct dlb_error *err);
	bool inference;				/* for inference graphs only */
};
extern const struct dlb_rewrite dlb_rewrites[];
/* Switches the rewrite `name`, or all ("all"), off; before folding. -1: no such name. */
int dlb_graph_no_rewrite(struct dlb_graph *g, const char *name, struct dlb_error *err);
/* A rewrite that is off is tried on a copy where its turn would be, for dlb_graph_missed. */
int dlb_graph_rewrite(struct dlb_graph *g, struct dlb_error *err);
/* After dlb_graph_rewrite: would the rewrite `name`, which is off, have changed the graph, or with "all"
 * any that is off? */
bool dlb_graph_missed(const struct dlb_graph *g, const char *name);

/* The parts of a forward op that was fused with its activation (fuse_activation.c): the op computes
 * `activation` of an op of `type`. type NULL: it was not fused. */
struct dlb_fused { const char *type, *activation, *rewrite; };
struct dlb_fused dlb_graph_fused(const struct dlb_op *o);
/* Separates the activations of the forward ops for which `apart` returns true: each becomes an op OP.relu;
 * backward and update ops are made anew, and the counts of `rewritten` are updated. Losses stay bit-equal,
 * except that the kernel library may choose other code for a convolution without activation. Ids change.
 * Returns how many were separated, -1 with err. */
int dlb_graph_part_activations(struct dlb_graph *g, bool (*apart)(const void *ctx, const struct dlb_op *o),
			       const void *ctx, struct dlb_error *err);

/* -- splitting ops over nodes (split.c) -- */
/* OP=PARTS[:AXIS]: OP is an op's name, or a shell pattern; axis NULL: the best one. */
struct dlb_split_request { const char *op, *axis, *why; int parts; };
/* Parses "OP=PARTS[:AXIS]"; strings live in `a`. */
int dlb_split_parse(const char *text, struct dlb_arena *a, struct dlb_split_request *ask,
		    struct dlb_error *err);
/* Replaces the requested forward ops by shards: ops of the same type on parts of the operands, with parts of
 * the weights. Backward ops and updates are made anew. Ops between two that are split alike are split too, so
 * that no tensor is assembled between them. Ids change; names of unsplit ops and tensors do not. */
int dlb_graph_split(struct dlb_graph *g, const struct dlb_split_request *ask, int n, struct dlb_error *err);
/* From now on, sums over the shards of was_split[] entries marked `pairs`, of outputs and of gradients, are
 * made in pairs. Ids change. */
int dlb_graph_pair_sums(struct dlb_graph *g, struct dlb_error *err);
/* Removes what dlb_graph_differentiate added: the forward ops stay. */
void dlb_graph_undifferentiate(struct dlb_graph *g);

/* -- initializers computed from parameters (derived.c) -- */
/* its sizes agree, to be checked after reading */
bool dlb_derived_fits(const struct dlb_derived *d);
/* Iterates over the elements of a part in the order in which they are written: `at` is the element's
 * index in the parameter. */
struct dlb_part_walk {
	int n_dims;
	int64_t at, count, dim[DLB_MAX_DIMS], stride[DLB_MAX_DIMS], index[DLB_MAX_DIMS];
};
/* moves to the first of w->count elements */
void dlb_part_begin(struct dlb_part_walk *w, const struct dlb_part *p);
void dlb_part_next(struct dlb_part_walk *w);
/* Computes the value into `out` from the values of its parts' parameters, source[];
 * `size` is bytes per element. */
void dlb_derived_value(const struct dlb_derived *d, const void *const *source, size_t size, void *out);
/* Adds ops that compute tensor x, a constant so far, from tensors source[part]; records it in g->derived. */
int dlb_derived_add(struct dlb_graph *g, int x, const struct dlb_derived *d, const int *source,
		    struct dlb_error *err);

/* derived_json.c: the member "derived"; returns new */
json_t *dlb_derived_write(const struct dlb_graph *g);
int dlb_derived_read(const struct dlb_ref *graph, struct dlb_graph *g, struct dlb_error *err);

/* -- document (graph_json.c) -- */
json_t *dlb_graph_write(const struct dlb_graph *g);				/* returns new */
/* Replaces the content of g (empty on error); ends with check and index. Data of
 * weights: see model/weights.h. */
int dlb_graph_read(const struct dlb_doc *d, struct dlb_graph *g, struct dlb_error *err);
const char *dlb_tensor_kind_name(enum dlb_tensor_kind kind);			/* "weight-gradient" */
const char *dlb_phase_name(enum dlb_phase phase);				/* "forward" */
#endif
