/* The graph: what must be computed in one training step (or one inference).
 *
 * Ops and tensors are open structs in arrays, linked by integer ids (index = id). Ops stand in a
 * topological order: every op after those that make its inputs. Forward ops come first, then backward,
 * then updates; shared weights have one update. The batch size is symbolic: a dimension is
 * mul * n + add for n samples (of a micro-batch). Constants that follow the batch size likewise. Where an op is split by
 * samples, n is the number of those that the shard has (struct dlb_samples).
 *
 * Tensor kinds
 *     input       fed with samples           label    fed with labels
 *     seed        fed: weight of this micro-batch in the step's loss (counted labels / all counted)
 *     weight      trainable parameter        buffer   running statistics, written by their op in order
 *     constant    same for every step        activation, gradient, weight-gradient
 * Weights and buffers are state: they live on the node of their `home` op (the update op; the op that
 * writes the buffer) and make no edges among ops of one micro-batch. Readers elsewhere get a copy each
 * step. A weight-gradient is the gradient of one micro-batch; the program sums them m = 0 .. M-1.
 *
 * The loss of a step is sum over m of seed_m * loss_m; the loss gradient fed backwards is the seed.
 * Each update op has inputs {weight, its gradient} and no outputs (optim/kfac.h adds two inputs to some); its type is "Update" and which
 * optimizer it stands for is an attribute ("optimizer") that dlb-run may change without new ids.
 *
 * Example: y = Relu(Gemm(x, w, b)) has ops 0 Gemm, 1 Relu, 2 loss, 3 .. backward, then two updates. */
#ifndef DLB_GRAPH_GRAPH_H
#define DLB_GRAPH_GRAPH_H
#include "doc/doc.h"
#include "graph/name_map.h"
#include "op/op.h"
#include "util/mem.h"
#include "util/patterns.h"

/* An op with an attribute of this name (its value: the attribute that could not be held) has kind -1. */
#define DLB_ATTR_UNSUPPORTED "x-unsupported"

/* An op that draws random numbers and has an integer attribute of this name draws those of op VERTEX: what splitting
 * (split.c) leaves whole or makes of an op goes on drawing what that op drew. */
#define DLB_ATTR_VERTEX "vertex"

struct dlb_dim { int64_t mul, add; };			/* mul * batch + add */
enum dlb_tensor_kind { DLB_T_INPUT, DLB_T_LABEL, DLB_T_SEED, DLB_T_WEIGHT, DLB_T_BUFFER, DLB_T_CONSTANT,
		       DLB_T_ACTIVATION, DLB_T_GRADIENT, DLB_T_WEIGHT_GRADIENT, DLB_N_T_KINDS };
enum dlb_phase { DLB_FORWARD, DLB_BACKWARD, DLB_UPDATE, DLB_N_PHASES };

/* A tensor that is a part of one of the model's tensors, which has the name `of` and this shape: its dimension `axis` is
 * a sequence of rows of units * unit elements, of each of which the part has the units [first, first + count). */
struct dlb_slice {
	const char *of;
	int n_dims, axis;
	int64_t dim[DLB_MAX_DIMS], units, unit, first, count;
};
/* Copies a part of `whole` to `part`, or back; elements have `size` bytes. (slice.c) */
void dlb_slice_take(const struct dlb_slice *s, size_t size, const void *whole, void *part);
void dlb_slice_put(const struct dlb_slice *s, size_t size, const void *part, void *whole);
int64_t dlb_slice_index(const struct dlb_slice *s, int64_t i);	/* where element i of the part stands in the whole */
bool dlb_slice_fits(const struct dlb_slice *s, const struct dlb_desc *part);	/* it is a slice of this shape, whoever wrote it */
struct dlb_desc dlb_slice_desc(const struct dlb_slice *s, enum dlb_dtype dtype);	/* of the whole */
/* s, a part of what `part` describes, becomes a part of what that one is a part of; false: it is more than one piece. */
bool dlb_slice_compose(const struct dlb_slice *part, struct dlb_slice *s);
void dlb_slice_write(const struct dlb_slice *s, json_t *o);	/* adds all but `of` to o (graph_json.c) */

/* What decides whether an initializer is trained; the first that has something to say (parameters.c). */
enum dlb_by { DLB_BY_NONE, DLB_BY_OPTION, DLB_BY_STATE_DICT, DLB_BY_LIST, DLB_BY_ROLE, DLB_N_BY };

struct dlb_tensor {
	const char *name;
	enum dlb_tensor_kind kind;
	enum dlb_dtype dtype;
	enum dlb_layout layout;
	int n_dims;			/* -1: not known (yet) */
	struct dlb_dim dim[DLB_MAX_DIMS];	/* mul 0, add -1: not known (before folding only) */
	const char *const *dim_name;	/* [dimension] of inputs as read: what the model calls it, NULL where it has a size; or NULL */
	const char *symbol;		/* name of the first dimension that is not known, for messages; or NULL */
	int producer;			/* op id, -1: none (inputs, state, constants) */
	int home;			/* weight, buffer: op where it lives; else -1 */
	int of;				/* gradient: the tensor it is the gradient of; else -1 */
	/* constants: values at batch n are value[i] + value_mul[i] * n (value_mul NULL: fixed);
	 * `fill`: one value for all elements. Weights and buffers: data as read from the model, or NULL. */
	const void *data;
	const int64_t *data_mul;
	bool is_fill;
	double fill;
	bool in_model;			/* data stand in the model's file under this name: not written to the document */
	const char *from;		/* in_model: the initializer that holds the data, where it has another name; or NULL */
	bool in_state;			/* likewise, in the file of the module's state_dict (graph.state_path) */
	const char *const *also;	/* further names that the state_dict has for it, ends with NULL; or NULL */
	struct dlb_samples samples;	/* what of it follows the batch follows the number of these samples */
	const struct dlb_slice *slice;	/* weights, buffers, constants: the part of the model's tensor that it is; NULL: all of it */
	bool initial;			/* an initializer of the model, not made by a vertex; once parameters are chosen (parameters.c): and
					 * to be trained */
	enum dlb_by rule;		/* initializers: what decided whether it is trained */
	const char *why;		/* ... and the reason, in words ("operand 1 of Gemm 'fc'", "a scalar"); or NULL */
	bool frozen;			/* a parameter that is not to be trained: a constant, saved with the weights */
	bool named_by_readers;		/* as read: by what the exporter says, all readers use the parameter of this name */
	int64_t bound;			/* integer inputs: values lie in [0, bound) (of the Gather or loss); 0: unknown. Float
					 * labels: 2 where they lie between 0 and 1, else 0 */
	int fan_in, fan_out;		/* weights, for --init: 0 unknown */
	double size_mul, size_add;	/* when dims are unknown (converted graphs): bytes = mul*n + add */
};
struct dlb_op {
	const char *name;		/* the vertex's name, unique */
	const char *type;		/* "Conv"; any string in converted graphs */
	const char *domain;		/* "" for ONNX's own */
	int kind;			/* enum dlb_op_kind, or -1: can be planned, not run */
	enum dlb_phase phase;
	int opset;
	int n_in, n_out, n_attr;
	int *in, *out;			/* tensor ids, -1 absent */
	struct dlb_attr *attr;
	int of;				/* backward: the forward op it differentiates; update: first op that reads the weight; else -1 */
	int colocate;			/* op id whose node this one must share, or -1 */
	double flop, flop_fixed;	/* at graph.batch, and the part of it that does not follow the batch */
	double bytes, bytes_fixed;	/* memory traffic, likewise */
	const int *uses;		/* as read: the parameters and buffers that the exporter says it uses (indices in `listed`) */
	int n_uses;
};
/* A graph inside a vertex: a branch of If, the body of Loop or Scan. Its inputs are n_formal ones that the vertex binds
 * each time it runs the body, then what it reads of the graph around it, which are operands first_capture .. of the
 * vertex (the operands before it are those that ONNX knows). Its constants are the outermost graph's. The vertex has
 * the body's index in `body` as an INT attribute of ONNX's name ("then_branch"). dlb_graph_fold puts bodies in place of
 * their vertices (structure.c); nobody after it sees one. */
struct dlb_body;
/* An op of the model that was split: into how many shards, along what ("output", "input", "batch", "rows", "head", "vocabulary"),
 * why, and whether what its shards made for one sum is added in pairs. Shard k of op NAME is the op NAME@k. */
struct dlb_was_split { const char *op, *axis, *why; int parts; bool pairs; };	/* pairs: dlb_graph_pair_sums */
/* A parameter, buffer or constant of the framework's module, by the list that the exporter left in the model's metadata.
 * `name` is its place in the module ("fc.weight"), which is the initializer's name unless the exporter folded it; `input` is
 * what the exported program called it. Only persistent ones stand in the module's state_dict. */
enum dlb_listed_kind { DLB_LISTED_PARAMETER, DLB_LISTED_BUFFER, DLB_LISTED_CONSTANT };
struct dlb_listed { const char *name, *input; enum dlb_listed_kind kind; bool persistent; };
/* Tensors that the model has in a 16-bit type and the graph in f32 (upcast.c). */
enum { DLB_UPCAST_F16, DLB_UPCAST_BF16, DLB_N_UPCAST };
struct dlb_upcast { int initializers, others; };
/* An initializer that the exporter computed from parameters (a transposed weight, the gates of an LSTM in another order): the
 * graph has the parameters and ops that make it of them; saving the model as ONNX makes it again. It is its parts, one after
 * another along `axis`, each a run of a parameter's rows, transposed and laid out in the shape; then repeated where `base`
 * is 1 and `dim` is not. (derived.c) */
struct dlb_part {
	const char *of;			/* the parameter, of shape dim[0 .. n_dims) */
	int n_dims, axis;		/* rows [first, first + count) along `axis` */
	int64_t dim[DLB_MAX_DIMS], first, count;
	int perm[DLB_MAX_DIMS];
	int64_t length;			/* along the initializer's axis */
};
struct dlb_derived {
	const char *name;
	int n_dims, axis, n_parts;
	int64_t dim[DLB_MAX_DIMS], base[DLB_MAX_DIMS];
	struct dlb_part *part;
};
/* A parameter that the exporter merged with another of equal values: the vertex reads initializer `of` in the model; "": a bias
 * of zeros that the exporter left out, the vertex's operand 2. */
struct dlb_unmerged { const char *name, *of, *vertex; };
/* A tensor of a file: what lib/model hands to lib/graph. */
struct dlb_named { const char *name; struct dlb_desc desc; const void *data; };
struct dlb_dim_size { const char *name; int64_t n; bool used; };	/* --dim */
struct dlb_rewritten { const char *name; int64_t count; };	/* a rewrite that was on, and how often it applied */
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
	struct dlb_dim_size *size;	/* of named dimensions, until folded (dims.c); in the arena */
	int n_sizes;
	bool fixed_batch;		/* every step has this many samples in one micro-batch: the model was exported so, and cannot do
					 * otherwise. Nothing follows the batch */
	enum dlb_dtype dtype;		/* f32, f64, or bf16: activations bf16, parameters f32 */
	bool training;
	int64_t sample_shares;		/* a batch of a multiple of this comes out even in all shares of samples; 0: 1 */
	const char *model_path, *model_sha256;	/* absolute; where weights come from; NULL: none */
	const char *state_path, *state_sha256;	/* the module's state_dict (safetensors), where tensors are in_state; NULL: none */
	int opset;
	uint64_t no_rewrite;			/* bit i: row i of dlb_rewrites is off; set before folding, not written */
	struct dlb_rewritten *rewritten;	/* what was applied, in order; array in the arena */
	int n_rewritten;
	struct dlb_was_split *was_split;	/* array in the arena */
	int n_was_split;
	struct dlb_listed *listed;	/* array in the arena, in the list's order; n_listed 0: the model has no list */
	int n_listed;
	struct dlb_derived *derived;	/* array in the arena */
	int n_derived;
	struct dlb_unmerged *unmerged;	/* array in the arena */
	int n_unmerged;
	int n_untrained;		/* float initializers that are no parameters, and no statistics; not written */
	struct dlb_upcast upcast[DLB_N_UPCAST];
	const char **note;		/* what the reader of the model has to say, one line each (dlb_graph_note); not written */
	int n_notes;
	/* adjacency, made by dlb_graph_index: readers of each tensor */
	int *reader_start, *reader;	/* readers of tensor t: reader[reader_start[t] .. reader_start[t+1]) */
	struct dlb_body **body;		/* until folded; those inside bodies too */
	int n_bodies, cap_bodies;
	struct dlb_names { struct dlb_name_map count; int n; } op_names, tensor_names;	/* made when first asked (rewrite.c) */
};
struct dlb_body { struct dlb_graph g; int n_formal, first_capture; };

/* -- building (graph.c) -- */
void dlb_graph_init(struct dlb_graph *g);
void dlb_graph_release(struct dlb_graph *g);
/* *copy may be rewritten and released while g, whose names, attributes and data it borrows, stays as it is. */
void dlb_graph_copy(const struct dlb_graph *g, struct dlb_graph *copy);
int dlb_graph_add_tensor(struct dlb_graph *g, const char *name, enum dlb_tensor_kind kind);	/* id; rest zeroed/-1 (n_dims -1) */
/* Copies everything it is given (attributes deeply) into g's arena. Sets kind by type and domain, opset from g. */
int dlb_graph_add_op(struct dlb_graph *g, const char *name, const char *type, const char *domain, enum dlb_phase phase,
		     const int *in, int n_in, const int *out, int n_out, const struct dlb_attr *attr, int n_attr);
/* One more line for dlb_graph_warnings. */
void dlb_graph_note(struct dlb_graph *g, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
struct dlb_attr *dlb_attr_copy(struct dlb_arena *a, const struct dlb_attr *attr, int n);	/* deep */
/* A new body of the outermost graph g, empty; *index is what the vertex's attribute holds. */
struct dlb_body *dlb_graph_add_body(struct dlb_graph *g, int *index);
/* The vertex is no operator but control flow (If, Loop, Scan) or works on sequences of tensors (SequenceAt ...):
 * dlb_graph_fold resolves it, where its condition, count or index is known from shapes and constants. */
bool dlb_graph_is_structure(const char *type, const char *domain);
/* (Re)builds producer and readers (each reader once, ascending); -1 when a tensor has two producers. */
int dlb_graph_index(struct dlb_graph *g);
/* Invariants: ids in range, ops in topological order, no cycle, names unique, colocate chains, sizes
 * without overflow. */
int dlb_graph_check(const struct dlb_graph *g, struct dlb_error *err);
/* Sorts ops topologically (stable; forward, backward, update), renumbering; -1 with the names on a cycle. */
int dlb_graph_sort(struct dlb_graph *g, struct dlb_error *err);
/* -1 with op type, opset and vertex when an operator is not there (kind -1). */
int dlb_graph_check_known(const struct dlb_graph *g, struct dlb_error *err);
int dlb_graph_fail_unknown(const struct dlb_op *o, struct dlb_error *err);	/* the line for such an operator; -1 */
/* Refuses vertex o: -1, with "TYPE 'NAME' (opset N)" as the place and `cure` (NULL: the caller gives it) as the hint. */
int dlb_vertex_fail(const struct dlb_op *o, struct dlb_error *err, const char *cure, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
#define DLB_CURE_VERTEX "if onnx.checker.check_model(model, full_check=True) takes the model, write this vertex with other operators"
#define DLB_CURE_CHECK "the model is not valid: run onnx.checker.check_model on it, and export it again"
/* Every op is known, has the operands it needs, and its outputs are stated with the type and shape that its class
 * gives them at n samples. What is about to run kernels calls this for each size it will run (runnable.c). */
int dlb_graph_check_runnable(const struct dlb_graph *g, int64_t n, struct dlb_error *err);

/* -- at a batch size -- */
struct dlb_desc dlb_tensor_desc(const struct dlb_tensor *t, int64_t n);
double dlb_tensor_bytes(const struct dlb_tensor *t, int64_t n);
bool dlb_tensor_follows_batch(const struct dlb_tensor *t);	/* its shape or its values do */
/* The samples that those of the tensors a[] and b[] that follow the batch have in common; else all. */
struct dlb_samples dlb_common_samples(const struct dlb_graph *g, const int *a, int n_a, const int *b, int n_b);
struct dlb_samples dlb_op_samples(const struct dlb_graph *g, int op);	/* of all its operands */
/* The batch is shared out into so many parts, too: raises sample_shares; -1 when that is more than any batch. */
int dlb_graph_share_samples(struct dlb_graph *g, int64_t parts);
/* So many samples that each of the shards that share them has one. */
int64_t dlb_graph_least_samples(const struct dlb_graph *g);
/* Fills io for op at n samples; descs and values live in `a`. Values: of constants, filled ones only up to
 * 65536 elements. */
void dlb_graph_io(const struct dlb_graph *g, int op, int64_t n, struct dlb_arena *a, struct dlb_op_io *io);
/* The values of a constant at n samples, in `a` (or the graph's own memory when fixed). */
const void *dlb_tensor_value(const struct dlb_tensor *t, int64_t n, struct dlb_arena *a);
double dlb_op_flop_at(const struct dlb_graph *g, int op, int64_t n);
double dlb_op_bytes_at(const struct dlb_graph *g, int op, int64_t n);
/* Text key of (type, attributes, operand descs at n): ops with equal keys cost the same. */
char *dlb_op_signature(const struct dlb_graph *g, int op, int64_t n, struct dlb_arena *a);
/* Group of ops that must share a node: the least op id of the colocation class. */
void dlb_graph_groups(const struct dlb_graph *g, int *group /* n_ops */);

/* -- rewrites, in the order dlb-profile applies them (one file each) -- */
/* upcast.c: every f16 and bf16 becomes f32, and a note says how many. As read, before all other rewrites. */
void dlb_graph_upcast(struct dlb_graph *g);
/* widen.c: every f32 becomes f64 (initializers, attributes, casts), for --dtype f64. After dlb_graph_choose_parameters, whose
 * `initial` tells constants from parameters; before fold. */
void dlb_graph_widen(struct dlb_graph *g);
/* padding.c: embeddings whose table is named like GLOB give row ROW no gradient; text: "GLOB=ROW". Before fold. */
int dlb_graph_set_padding_row(struct dlb_graph *g, const char *text, struct dlb_error *err);
/* merged.c: parameters that the exporter merged are taken apart, those that it copied are one again, biases of zeros that it
 * left out are there. As read, before the state_dict is taken. */
int dlb_graph_unmerge(struct dlb_graph *g, struct dlb_error *err);
/* state_dict.c: the module's state_dict (entry[]; data must outlive g). Initializers with the name of an entry get its data.
 * Others are sought among the entries by value, and those found become ops on tensors of the entries' names and shapes.
 * Before dlb_graph_choose_parameters. `untie`: entries of equal values are never one weight. */
int dlb_graph_take_state(struct dlb_graph *g, const struct dlb_named *entry, int n, bool untie, struct dlb_error *err);
/* Of an embedding and the operand of a product with equal values, transposed or not, one is made of the other. Before
 * dlb_graph_choose_parameters, without a state_dict. */
int dlb_graph_tie(struct dlb_graph *g, struct dlb_error *err);
/* parameters.c: which initializers are trained. As read, before widening and folding. */
struct dlb_parameter_choice {
	struct dlb_patterns train, freeze, train_only;	/* names or patterns; each may be empty */
	bool untie;
};
int dlb_graph_choose_parameters(struct dlb_graph *g, const struct dlb_parameter_choice *c, struct dlb_error *err);
/* dims.c: "NAME=N" is the size of a dimension that the model names; before dlb_graph_size_inputs, which gives every dimension
 * of the inputs a size or makes it follow the batch, and puts the batch in front. Before fold. */
int dlb_graph_set_dim(struct dlb_graph *g, const char *text, struct dlb_error *err);
int dlb_graph_size_inputs(struct dlb_graph *g, struct dlb_error *err);
/* fold.c: infers every shape at n, 2n and 3n, folds constants (by their own kernels on `be`), puts branches, loops
 * and sequences into the graph as plain vertices (structure.c, sequence.c), drops dead vertices, makes dims affine in
 * the batch; hard-wired batch dimensions are patched. batch 0: the model's
 * own, else 32; -1: nothing follows the batch, shapes stay as they are (single operators in tests). */
int dlb_graph_fold(struct dlb_graph *g, int64_t batch, struct dlb_backend *be, struct dlb_error *err);
/* params.c: float initializers that are to be trained and have a differentiable path to the output become weights,
 * running statistics buffers, the rest constants. */
int dlb_graph_find_parameters(struct dlb_graph *g, struct dlb_error *err);
/* training_mode.c: every BatchNormalization of a training graph normalizes by the statistics of its micro-batch and moves the
 * running ones (train), or by the running ones, which stay. Returns how many were changed, which a note tells. After folding. */
int dlb_graph_set_batchnorm(struct dlb_graph *g, bool train);
/* "PATTERN=P": Dropout with rate P after the vertices whose name, or whose first output's, matches the pattern of the shell; a
 * Dropout of the model gets the rate. Ids change. -1: a malformed text, or nothing matches. After folding. */
int dlb_graph_add_dropout(struct dlb_graph *g, const char *text, struct dlb_error *err);
void dlb_graph_note_dropout(struct dlb_graph *g);	/* notes Dropout that an export for inference made idle or left out */
/* loss.c: attaches the loss (CONTRACT's rule; `loss` NULL or "auto": default; "none"), or n of them, as loss.h has it. */
int dlb_graph_attach_loss(struct dlb_graph *g, const char *loss, struct dlb_error *err);
int dlb_graph_attach_losses(struct dlb_graph *g, const char *const *text, int n, struct dlb_error *err);
/* layout.c: chooses one physical layout per tensor; inserts Layout ops at the borders. Never f64. */
int dlb_graph_choose_layout(struct dlb_graph *g, struct dlb_error *err);
/* mixed.c: activations in bf16, parameters, statistics and losses in f32, for --dtype bf16. */
int dlb_graph_mix(struct dlb_graph *g, struct dlb_error *err);
/* autodiff.c: adds backward ops, sums of gradients, and one update op a weight. */
int dlb_graph_differentiate(struct dlb_graph *g, struct dlb_error *err);
/* As above, from `tensor` with its gradient fed as tensor `seed`, and without updates: grad[i] is the gradient of
 * tensor wrt[i] (-1: none flows). For tests of single operators. */
int dlb_graph_differentiate_from(struct dlb_graph *g, int tensor, int seed, const int *wrt, int n_wrt, int *grad,
				 struct dlb_error *err);
/* eval.c: the inference graph of a training graph, for test accuracy: forward ops only (the loss kept where
 * there is one), BatchNormalization by its running statistics, Dropout out. op_of[i], tensor_of[i]: ids in g
 * (arrays in out's arena). */
int dlb_graph_eval(const struct dlb_graph *g, struct dlb_graph *out, int **op_of, int **tensor_of, struct dlb_error *err);
/* What a user should know of the graph (BatchNorm folded or in inference mode, tied weights): one line each in
 * g's arena; returns their number. */
int dlb_graph_warnings(struct dlb_graph *g, const char ***lines);

/* rewrites.c: the rewrites that can be switched, one row each; ends with a row without a name. Those without `run`
 * belong to dlb_graph_fold; the others are applied by dlb_graph_rewrite, which comes after the loss is attached and
 * before the layout is chosen, row after row. Every one leaves names of weights, inputs and outputs as they are. */
struct dlb_rewrite {
	const char *name, *summary;
	int (*run)(struct dlb_graph *g, int64_t *count, struct dlb_error *err);	/* adds the times it applied to *count */
	bool inference;				/* for inference graphs alone */
};
extern const struct dlb_rewrite dlb_rewrites[];
/* Switches the rewrite `name` off, or with "all" every one; before folding. -1: no such name. */
int dlb_graph_no_rewrite(struct dlb_graph *g, const char *name, struct dlb_error *err);
int dlb_graph_rewrite(struct dlb_graph *g, struct dlb_error *err);

/* What a forward op was fused of by the rewrites that take an activation in (fuse_activation.c); type NULL: nothing of the
 * kind. The op computes `activation` of what an op of `type` would make. */
struct dlb_fused { const char *type, *activation, *rewrite; };
struct dlb_fused dlb_graph_fused(const struct dlb_op *o);
/* Undoes that for the forward ops that `apart` names: the activation is an op of its own again, called OP.relu, and backward
 * ops and updates are derived anew; the counts of `rewritten` follow. No loss changes by a bit but those of a convolution,
 * whose kernel library may choose other code without the activation. Ids change. Returns how many were undone, -1 with err. */
int dlb_graph_part_activations(struct dlb_graph *g, bool (*apart)(const void *ctx, const struct dlb_op *o), const void *ctx,
			       struct dlb_error *err);

/* -- splitting ops over nodes (split.c) -- */
/* OP=PARTS[:AXIS]: OP is an op's name, or a pattern as of the shell; axis NULL: whichever fits best. */
struct dlb_split_ask { const char *op, *axis, *why; int parts; };
/* Reads "OP=PARTS[:AXIS]"; strings live in `a`. */
int dlb_split_parse(const char *text, struct dlb_arena *a, struct dlb_split_ask *ask, struct dlb_error *err);
/* Rewrites the graph so that the forward ops asked for are shards: ops of the same type on parts of the operands, with
 * parts of the weights. Backward ops and updates are derived anew. Ops between two that are split the same way are split
 * too, so that nothing is put together between them. Ids change; names of what stays whole do not. */
int dlb_graph_split(struct dlb_graph *g, const struct dlb_split_ask *ask, int n, struct dlb_error *err);
/* Sums over the shards of those of was_split[] that are marked so are added in pairs from now on, those of outputs and those
 * of gradients. Ids change. */
int dlb_graph_pair_sums(struct dlb_graph *g, struct dlb_error *err);
/* The forward ops alone, as they were before dlb_graph_differentiate. */
void dlb_graph_undifferentiate(struct dlb_graph *g);

/* -- initializers made of parameters (derived.c) -- */
bool dlb_derived_fits(const struct dlb_derived *d);		/* its sizes agree, whoever wrote it */
/* The elements of a part in the order in which it is written: `at` is the index of the element at hand among the parameter's. */
struct dlb_part_walk { int n_dims; int64_t at, count, dim[DLB_MAX_DIMS], stride[DLB_MAX_DIMS], index[DLB_MAX_DIMS]; };
void dlb_part_begin(struct dlb_part_walk *w, const struct dlb_part *p);	/* at the first of w->count elements */
void dlb_part_next(struct dlb_part_walk *w);
/* Its value, in `out`, of the values of its parts' parameters; elements have `size` bytes. */
void dlb_derived_value(const struct dlb_derived *d, const void *const *source, size_t size, void *out);
/* Ops that make tensor x, a constant until now, of the tensors source[part]; notes it in g->derived. */
int dlb_derived_add(struct dlb_graph *g, int x, const struct dlb_derived *d, const int *source, struct dlb_error *err);

json_t *dlb_derived_write(const struct dlb_graph *g);		/* derived_json.c: the member "derived"; returns new */
int dlb_derived_read(const struct dlb_ref *graph, struct dlb_graph *g, struct dlb_error *err);

/* -- document (graph_json.c) -- */
json_t *dlb_graph_write(const struct dlb_graph *g);				/* returns new */
/* Overwrites g (empty on error); ends in check and index. Data of weights: see model/weights.h. */
int dlb_graph_read(const struct dlb_doc *d, struct dlb_graph *g, struct dlb_error *err);
const char *dlb_tensor_kind_name(enum dlb_tensor_kind kind);			/* "weight-gradient" */
const char *dlb_phase_name(enum dlb_phase phase);				/* "forward" */
#endif
