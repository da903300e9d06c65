/* The passes over a graph, roughly in the order in which dlb-profile and dlb-costmodel apply them, one file
 * each: the interface of lib/graph for the tools. */
#ifndef DLB_GRAPH_PASSES_H
#define DLB_GRAPH_PASSES_H
#include "graph/graph.h"

/* structure.c: is the type control flow (If, Loop, Scan) or an op on sequences of tensors (SequenceAt ...)?
 * dlb_graph_fold replaces such vertices if their condition, count or index is known from shapes and
 * constants. */
bool dlb_graph_is_structure(const char *type, const char *domain);
/* Checks that every op is known and has its operands, and that its outputs have the types and
 * shapes that its class infers at n samples. To be called before running kernels, for each size
 * that will run (runnable.c). */
int dlb_graph_check_runnable(const struct dlb_graph *g, int64_t n, struct dlb_error *err);
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
/* adapters.c: adds low-rank adapters to products with a weight and freezes all parameters but those of
 * train_only. text[]: "RANK[:GLOB]" (GLOB matches a weight, a module or a vertex; without GLOB: all products
 * but the last one); the first that matches counts. alpha: the adapter's part is alpha / rank; 0: rank. n 0:
 * changes nothing. Directly after dlb_graph_find_parameters. */
struct dlb_adapter_choice {
	const char *const *text;
	int n;
	double alpha;
	struct dlb_patterns train_only;
};
int dlb_graph_add_adapters(struct dlb_graph *g, const struct dlb_adapter_choice *c, struct dlb_error *err);
/* training_mode.c: all BatchNormalizations of a training graph normalize by the statistics of the micro-batch
 * and update the running ones (train), or normalize by the running ones without updating them. Adds a note;
 * returns how many changed. After folding. */
int dlb_graph_set_batchnorm(struct dlb_graph *g, bool train);
/* The same file: gives each BatchNormalization that trains running statistics of its own, where the model has
 * one tensor for them and for operands of another meaning; adds a note. Those that share all of them, as a
 * module that is called twice does, share a node, since each updates them in turn. */
void dlb_graph_own_statistics(struct dlb_graph *g);
/* "PATTERN=P": inserts Dropout with rate P after vertices whose name, or first output's name, matches the
 * shell pattern; a Dropout of the model gets the rate. Ids change. -1 if the text is malformed or nothing
 * matches. After folding. */
int dlb_graph_add_dropout(struct dlb_graph *g, const char *text, struct dlb_error *err);
/* notes Dropout that an inference export disabled or removed */
void dlb_graph_note_dropout(struct dlb_graph *g);
/* loss.c: attaches the loss, or several, described by `loss` (loss.h); NULL or "auto": the default (loss.c);
 * "none": no loss. */
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
/* Lists facts about the graph that a user should know (folded BatchNormalization, tied weights), one line
 * each in g's arena; returns the number of lines. */
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
/* Applies the rewrites. A rewrite that is off is applied to a copy when its turn comes, for
 * dlb_graph_missed. */
int dlb_graph_rewrite(struct dlb_graph *g, struct dlb_error *err);
/* After dlb_graph_rewrite: would the rewrite `name`, which is off, have changed the graph? "all": any rewrite
 * that is off. */
bool dlb_graph_missed(const struct dlb_graph *g, const char *name);
/* split.c, split_make.c. OP=PARTS[:AXIS]: OP is an op's name, or a shell pattern; axis NULL: the best one. */
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
/* Removes the ops that dlb_graph_differentiate added: the forward ops stay. */
void dlb_graph_undifferentiate(struct dlb_graph *g);
/* freeze.c: weights whose names (of a slice: of the whole tensor) match a pattern are not trained from here
 * on; they stay weights. *f: those that were trained before. Ids of forward ops and of their tensors stay,
 * those of backward ops and updates change. -1 with err: a pattern matches no weight, or no weight would be
 * trained. */
struct dlb_frozen { int weights; int64_t elements; };
int dlb_graph_freeze(struct dlb_graph *g, const struct dlb_patterns *p, struct dlb_frozen *f,
		     struct dlb_error *err);
/* `now` was made from `was` by dlb_graph_freeze. before[i]: the op of `was` that corresponds to op i of
 * `now`: the op of the same name, else the op that corresponds to the forward op of backward op i. */
void dlb_graph_ops_before(const struct dlb_graph *was, const struct dlb_graph *now, int *before);
#endif
