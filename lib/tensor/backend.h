/* Back ends: one constant table each (cpu, cuda), found by name through backends.c.
 *
 * A back end owns memory and makes *kernels*. A kernel is prepared once for concrete shapes (primitives,
 * descriptors, strides) and run many times; a run allocates nothing. Operators (lib/op) are written once over
 * the short closed set of kernels below and never name a library; oneDNN and OpenBLAS are used only in
 * lib/tensor/cpu. Preparing returns 0; -1 with err; or DLB_NO_KERNEL if this back end cannot do it (this is
 * how a kind is known to lack a kernel).
 *
 * Types: every kernel below works in f32 and f64 (f64: dgemm and plain loops; convolution as im2col + gemm
 * or a plain loop); map, reduce, copy and fill also in the integers and bool. Bits: a kernel gives the same
 * bits for the same shapes, thread count and values, whatever the addresses. So no -ffast-math reassociation
 * may depend on the alignment of buffers. Gradients of weights are overwritten, not accumulated
 * (accumulating is an op of its own). Descriptors of tensors with three or more dimensions have a layout;
 * kernels follow it through strides. */
#ifndef DLB_TENSOR_BACKEND_H
#define DLB_TENSOR_BACKEND_H
#include "tensor/state_codec.h"
#include "tensor/tensor.h"

#define DLB_NO_KERNEL 1

/* Arguments of one run. Pointers are borrowed; in[i] and out[i] are NULL if absent. */
struct dlb_run {
	void *const *in, *const *out;
	void *scratch;			/* kernel->scratch_bytes, 64-byte aligned; never NULL */
	uint64_t seed, step;		/* random ops: key = (seed, vertex, step, sample) */
	uint64_t vertex;
	int64_t first_sample;		/* sample 0 of this micro-batch in the step's global batch */
	uint64_t weight_version;	/* weights are packed again if this changes; 0: always */
	double distance;		/* DLB_UPDATE_PREDICT: number of updates ahead */
	/* update kernels, with has_rate: learning rates of this step and of the one before */
	double rate, rate_before;
	bool has_rate;
	double grad_scale;		/* update kernels: factor of gradients (clipping); 0: 1 */
	/* update kernels that count (see dlb_update_desc) add their count here; NULL: not wanted. A kernel
	 * with a function `count` adds it in that function */
	int64_t *shrunk;
	/* update kernels add to this if a result is not finite; NULL: not wanted. A kernel with a function
	 * `count` adds to it in that function */
	int64_t *not_finite;
};
enum { DLB_N_LIBRARIES = 2 };
struct dlb_kernel {
	void (*run)(struct dlb_kernel *k, const struct dlb_run *r);
	void (*free)(struct dlb_kernel *k);
	/* NULL: a run that was recorded (dlb_backend_ops.record) is the same at each replay. Else it depends on
	 * seed, step, rates or grad_scale: renew sets them before each replay, also before the first. */
	void (*renew)(struct dlb_kernel *k, const struct dlb_run *r);
	/* NULL: run has counted. Else adds the counts of the runs since the last call; the back end's sync
	 * comes before it. */
	void (*count)(struct dlb_kernel *k, const struct dlb_run *r);
	size_t scratch_bytes;		/* needed during a run only */
	size_t packed_bytes;		/* kept between runs (packed weights) */
	/* bytes that each library of the back end keeps once for all kernels: the largest value of any kernel
	 * counts */
	size_t library_bytes[DLB_N_LIBRARIES];
	size_t code_bytes; /* generated for this kernel, once for all kernels of its shapes */
	const char *impl;		/* "dnnl", "blas", "loop": for the profile */
};

/* y[b] = alpha * op(a[b]) op(w[b]) + beta * c;  op(a) is m x k, op(w) k x n, y m x n, all row-major. in = {a,
 * w, c or NULL}; c broadcasts by strides (c_row, c_col in elements: 0 or the real stride). Batches: a_batch,
 * w_batch = elements between neighbouring matrices, or lists of n_batch offsets if broadcasting is irregular
 * (a_off, w_off: NULL if regular). w_is_weight: w may be kept packed, or, with once (each value of w is read
 * by one run), be packed in scratch. Products of bf16 sum in f32. a_f32,
 * w_f32: the operand is f32 in memory and rounded for the product; y_f32: y is not rounded; c is f32, and may be
 * rounded if y is. */
struct dlb_gemm_desc {
	enum dlb_dtype dtype;
	int64_t m, n, k, n_batch;
	bool trans_a, trans_w, has_c, w_is_weight, once, a_f32, w_f32, y_f32;
	double alpha, beta;
	int64_t c_row, c_col;
	int64_t a_batch, w_batch;
	const int64_t *a_off, *w_off;	/* copied */
};
/* y = alpha a w. The last two of n_dims dimensions (3 or more) are matrices, the others batches: dim[] is the
 * shape of y, a is (.., m, k), w (.., k, n). Each operand has its own element strides; one of the last two
 * strides of a and of w is 1, and so is the last stride of y. in {a, w}, out {y}. */
struct dlb_product_desc {
	enum dlb_dtype dtype;
	int n_dims;
	int64_t dim[DLB_MAX_DIMS], k, a[DLB_MAX_DIMS], w[DLB_MAX_DIMS], y[DLB_MAX_DIMS];
	double alpha;
};
/* Convolution, 1 to 3 spatial dimensions. x (N,C,D..) , w (M,C/groups,K..) plain, b (M), y (N,M,O..).
 *   FORWARD      in {x, w, b|NULL}      out {y}
 *   GRAD_INPUT   in {dy, w}             out {dx}
 *   GRAD_WEIGHT  in {dy, x}             out {dw, db|NULL}
 */
enum dlb_conv_dir { DLB_CONV_FORWARD, DLB_CONV_GRAD_INPUT, DLB_CONV_GRAD_WEIGHT };
struct dlb_conv_desc {
	enum dlb_conv_dir dir;
	struct dlb_desc x, w, y;
	bool has_bias;
	bool relu;			/* FORWARD: y = Relu of the result */
	bool winograd;			/* Winograd's algorithm is allowed, where it applies and is faster */
	int64_t groups, stride[3], dilation[3], pad_begin[3], pad_end[3];
};
/* Pooling. FORWARD: in {x}, out {y, pos|NULL}; pos = position of the maximum in its window, the first of
 * equals (u8; i32 for windows of more than 255 elements). BACKWARD max: in {dy, pos}, out {dx}; average: in
 * {dy}, out {dx}. count_include_pad as in ONNX. */
struct dlb_pool_desc {
	bool max, backward, count_include_pad;
	struct dlb_desc x, y;
	enum dlb_dtype pos;		/* DLB_U8 or DLB_I32 */
	int64_t kernel[3], stride[3], dilation[3], pad_begin[3], pad_end[3];
};
/* Batch normalization over all dimensions but 1.
 *   TRAIN     in {x, scale, bias, mean, var}   out {y, mean', var', saved_mean, saved_invstd}
 *             mean' = mean*momentum + batch_mean*(1-momentum); var likewise with the biased variance
 *             (times n/(n-1) if unbiased); mean' and var' may alias mean and var
 *   INFER     in {x, scale, bias, mean, var}   out {y}
 *   GRAD      in {dy, x, scale, saved_mean, saved_invstd}   out {dx, dscale, dbias}
 *   GRAD_INFER in {dy, x, scale, mean, var}    out {dx, dscale, dbias}   (statistics are constants)
 * relu: y = Relu of the result; the gradients then read y as a sixth input. TRAIN and GRAD can also run in
 * two halves. Between them the caller may add up the sums of several batches, so that the statistics are
 * those of all these batches. Sums are f64, one array {N, a[c], b[c]} of channels c:
 *   TRAIN  N elements per channel, their sum, the sum of their squares
 *   GRAD   N, sum dy, sum dy (x - saved_mean); then a and b again, which are not added up: dscale and dbias
 *          are those of this batch
 * SUMS: the same inputs, out {sums}. REST: the same inputs and sums as one more, the same outputs. */
enum dlb_bn_dir { DLB_BN_TRAIN, DLB_BN_INFER, DLB_BN_GRAD, DLB_BN_GRAD_INFER };
enum dlb_bn_half { DLB_BN_WHOLE, DLB_BN_SUMS, DLB_BN_REST };
struct dlb_bn_desc {
	enum dlb_bn_dir dir;
	enum dlb_bn_half half;
	struct dlb_desc x;
	double epsilon, momentum;
	bool unbiased, relu;
};
/* Softmax or its logarithm along one axis of (outer, axis, inner). GRAD: in {dy, y}, out {dx}. */
struct dlb_softmax_desc { enum dlb_dtype dtype; bool log, backward; int64_t outer, axis, inner; };
/* Attention: heads of queries q (rows of `width`); several neighbouring heads share the keys and values of
 * one of kv_heads. y = softmax(cap(scale q k^T) + mask) v; cap(s) = softcap tanh(s / softcap) if softcap > 0.
 * Operands have strides of {batch, head, row} in elements and dense rows; dk, dv and dq have the strides of
 * k, v and q, dy those of y. Query i is at position i + past, or i + length - rows if in[4] gives each
 * sample's length (i64). It sees keys j < length; with `causal` only up to its own position; if left (right)
 * is not -1, at most `left` keys before (`right` keys after) it; and only keys that the mask allows. The mask
 * is bool, or a number that is added (-inf: not seen), with strides of {batch, head, row} and dense keys;
 * keys from mask_keys on are not seen. A query that sees no key gives zeros.
 *   forward  in {q, k, v, mask|NULL, lengths|NULL}             out {y, saved|NULL, scores|NULL}
 *   backward in {q, k, v, mask|NULL, lengths|NULL, dy, saved}  out {dq|NULL, dk|NULL, dv|NULL, dmask|NULL}
 * saved: input of the backward pass. With `whole` the probabilities (batch, heads, rows, keys), which is
 * faster and larger; else the logarithm of each row's sum of exp(score) (batch, heads, rows), from which the
 * probabilities are computed again. scores and dmask (batch, heads, rows, keys or mask_keys). With bf16, saved
 * is f32, and so are dmask and a mask that is a number, or both are bf16; a back end may lack `whole` then.
 */
enum dlb_scores { DLB_SCORES_RAW, DLB_SCORES_CAPPED, DLB_SCORES_MASKED, DLB_SCORES_SOFTMAX };
struct dlb_attention_desc {
	enum dlb_dtype dtype, mask_type;
	bool backward, causal, whole;
	enum dlb_scores scores;		/* content of the third output */
	int64_t batch, heads, kv_heads, rows, keys, mask_keys, width, v_width, past, left, right;
	int64_t q[3], k[3], v[3], y[3], mask[3];
	double scale, softcap;
};
/* Normalization of rows: y = (x - mean) / sqrt(var + epsilon) * scale + bias, biased variance. scale and
 * bias run along the row (layer normalization), or there is one of each per channel. A row then has
 * row_channels channels side by side (0: one, as in instance normalization; more in group normalization);
 * channel s of row r is (r row_channels + s) % channels. rms: the mean is taken as 0, so the variance is the
 * mean square; mean and dbias are absent.
 *   forward  in {x, scale, bias|NULL}           out {y, mean|NULL, invstd|NULL}
 *   backward in {dy, x, scale, mean, invstd}    out {dx|NULL, dscale|NULL, dbias|NULL}
 */
struct dlb_norm_desc {
	enum dlb_dtype dtype;
	bool backward, has_bias, rms;
	int64_t rows, width, channels, row_channels;
	double epsilon;
};
/* y = x mask / (1 - ratio): in {x}, out {y, mask|NULL} (bool). Random words are those of dlb_philox with key
 * seed + run->seed and a stream made of (vertex, step). Word j of counter i belongs to element 4 (i - index *
 * ceil(per_sample / 4)) + j of the sample with that index in the step's global batch. The element is kept if
 * its word is at least ratio 2^32. part not 0: x is a part of a tensor whose samples have per_whole elements:
 * of every `whole` elements the `part` from `first` on; words are those of the whole tensor's elements.
 * Sample 0 is sample first_sample of the micro-batch. */
struct dlb_dropout_desc {
	enum dlb_dtype dtype;
	int64_t samples, per_sample, first_sample;
	double ratio;
	int64_t seed, part, whole, first, per_whole;
};
/* One step of n samples of a recurrent cell with h units, without the products; gates as in ONNX (iofc,
 * zrh). x, rec: the gates' parts from the input and from the state. b: biases added to them, one list per
 * gate (GRU: a fourth, for the part that the reset gate multiplies). s: the planes i o f g c h, or z r
 * candidate q h, or h, `plane` elements apart. hp, cp: the previous state. joint: the reset gate multiplies
 * the product (linear_before_reset); else the candidate's product is computed between GRU and GRU_CANDIDATE,
 * and the product of its gradient before GRU_GRAD_RESET.
 *   RNN, GRU, GRU_CANDIDATE, LSTM   in {x, rec, b, peepholes|NULL, hp, cp, lengths|NULL}   out {s, y|NULL}
 *   gradients      in {s, hp, cp, peepholes|NULL, drh, dy|NULL, lengths|NULL}   out {dh, dc, dx, dr, dp|NULL}
 * dh, dc: on entry the gradients of the state after the step, to which dy is added (not by GRU_GRAD_RESET); on
 * return their direct contribution to the previous state. dx, dr: gradients of x and rec (equal for RNN and
 * LSTM, where dr is not written). The gradient of the peepholes is added to dp (3, h), sample by sample.
 * Rows of a sample: h elements side by side in a plane, hp, cp, drh, dh, dc; x_row apart in x and dx, rec_row in
 * rec and dr, which they fill; y_row apart in y and dy. y is the state after the step, not written by GRU. If a
 * sample has a length (i32 or i64) that is not above run->step, the time of the step, its sequence has ended: it
 * keeps its state, y is 0; dx and dr are 0, and dh and dc stay. */
enum dlb_cell_act { DLB_CELL_SIGMOID, DLB_CELL_TANH, DLB_CELL_RELU };
enum dlb_cell_loop { DLB_CELL_RNN, DLB_CELL_RNN_GRAD, DLB_CELL_GRU, DLB_CELL_GRU_CANDIDATE, DLB_CELL_GRU_GRAD,
		     DLB_CELL_GRU_GRAD_RESET, DLB_CELL_LSTM, DLB_CELL_LSTM_GRAD };
struct dlb_cell_desc {
	enum dlb_dtype dtype, length;
	enum dlb_cell_loop loop;
	int64_t n, h, plane, x_row, rec_row, y_row;
	int act[3];
	bool coupled, joint, peepholes;
};
/* Classification losses. x (N,C,inner) log-probabilities (nll) or logits (sce), t (N,inner) i32 or i64, w (C)
 * or NULL. reduction none: y (N,inner); sum, mean: scalar. mean divides by the summed weights of the labels
 * that are not ignored; if there are none, it is 0.
 *   forward  in {x, t, w|NULL}               out {y, log_prob|NULL}
 *   backward in {dy, x or log_prob, t, w|NULL} out {dx}; dy has the shape of y. sce reads log_prob.
 * A label outside [0, classes) that is not the ignored one makes the loss and its gradient NaN. smoothing e
 * (sce only): the loss of a label is (1 - e) times the above plus e / classes times the sum of the weighted
 * losses of all classes; the divisor of mean is still the weights of the labels (PyTorch's label_smoothing).
 *
 * The classes may be split into parts; x is then one part, whose class 0 is class `first`. For each label, a
 * part writes stats (N,3,inner): its largest score m, the sum of exp(x - m) over its classes, and the label's
 * score (0 if the label is in another part). norm (N,2,inner) is for all classes: the largest m, and the
 * logarithm of the sum of exp(x - m).
 *   PART  forward  in {x, t}                       out {stats}
 *         backward in {dstats, x, t, stats}        out {dx}; may be x
 *   JOIN  forward  in {t, stats of each part}      out {y, norm|NULL}
 *         backward in {dy, t, norm, stats}         out {dstats} of one part
 * `classes` is the part's in PART and the total in JOIN; there are no weights. */
enum dlb_reduction { DLB_REDUCE_NONE, DLB_REDUCE_SUM, DLB_REDUCE_MEAN };
enum dlb_loss_stage { DLB_LOSS_WHOLE, DLB_LOSS_PART, DLB_LOSS_JOIN };
enum { DLB_LOSS_STATS = 3, DLB_LOSS_NORM = 2 };
struct dlb_loss_desc {
	enum dlb_loss_stage stage;
	int64_t first;
	int n_parts;
	enum dlb_dtype dtype, label;
	bool softmax, backward, has_weight, has_ignore;
	int64_t ignore;
	double smoothing;
	enum dlb_reduction reduction;
	int64_t n, classes, inner;
};
/* Elementwise: out = f(in...), with broadcasting by shape. map_list.h lists the functions: MAP(name,
 * n_inputs, expression in a, b, c, alpha, beta). Comparisons write bool. Operands with fewer dimensions
 * align at the last dimension and are row-major; the others have their own layout. out may be one of the
 * inputs of the same shape and type. */
enum dlb_map_fn {
#define MAP(name, n, expr) DLB_MAP_##name,
#include "tensor/map_list.h"
#undef MAP
	DLB_N_MAPS
};
struct dlb_map_desc { enum dlb_map_fn fn; int n_in; struct dlb_desc in[3], out; double alpha, beta; };
/* Reduction over the axes of the mask (bit i: dimension i). out has 1 in each reduced dimension; dropping it
 * only changes the shape. Sums run in a fixed order. */
enum dlb_reduce_fn { DLB_REDUCE_FN_SUM, DLB_REDUCE_FN_MEAN, DLB_REDUCE_FN_MAX, DLB_REDUCE_FN_MIN,
		     DLB_REDUCE_FN_PROD, DLB_REDUCE_FN_SUMSQ };
struct dlb_reduce_desc { enum dlb_reduce_fn fn; struct dlb_desc in, out; unsigned axes; };
/* out[i] = in[i] over `n_dims` loops with an element stride for each side (transpose, slice, expand, change
 * of layout); the types may differ (a cast). in_offset, out_offset in elements. Only the addressed elements
 * of out are written; zero_first clears all of it first. accumulate: out += (scatter of slices). */
struct dlb_copy_desc {
	enum dlb_dtype in, out;
	int n_dims;
	int64_t dim[DLB_MAX_DIMS], in_stride[DLB_MAX_DIMS], out_stride[DLB_MAX_DIMS];
	int64_t in_offset, out_offset;
	bool zero_first, accumulate;
	int64_t out_count;		/* elements of out, for zero_first */
};
/* Rows of `outer` tables x (outer, rows, width) taken by n_index indices (i32 or i64); negative ones count from
 * the end. The tables may be parts, rows `first` on, of tables of `of` rows, to which indices refer; rows that
 * are not in the part are zeros. The gradient adds rows in the order of the indices, in any float type but f16;
 * row `padding` of the whole table (-1: none) gets no gradient.
 *   forward  in {x, index}   out {y (outer, n_index, width)}
 *   backward in {dy, index}  out {dx} */
struct dlb_gather_desc {
	enum dlb_dtype dtype, index;
	bool backward;
	int64_t outer, rows, n_index, width, first, of, padding;
};
/* Elements of a table x by indices (i32 or i64; negative ones count from the end). `at` describes the indices.
 * With `nd` they are a list of tuples of `depth` numbers, each of which names a run of `width` elements of x, after
 * the first `batch` dimensions, which x and the tuples share (ONNX's GatherND). Without, there is an index for
 * each element: its place along `axis` (GatherElements; width 1). A pair is one tuple or index with its run. A
 * tuple out of range takes zeros, and is not written.
 *   TAKE     in {x, index}            out {y}: the runs of all pairs
 *   PUT      in {x, index, updates}   out {y}: x, then y[pair] = how(y[pair], update) in the order of the pairs
 *   PUT_ONTO_ZEROS  in {updates, index}  out {y}: likewise from zeros
 * zeros: the updates are zeros, and not an input. */
enum dlb_index_fn { DLB_INDEX_TAKE, DLB_INDEX_PUT, DLB_INDEX_PUT_ONTO_ZEROS };
enum dlb_index_how { DLB_INDEX_SET, DLB_INDEX_ADD, DLB_INDEX_MULTIPLY, DLB_INDEX_MIN, DLB_INDEX_MAX,
		     DLB_N_INDEX_HOWS };
struct dlb_index_desc {
	enum dlb_dtype dtype, index;
	enum dlb_index_fn fn;
	enum dlb_index_how how;
	bool nd, zeros;
	int axis, batch, depth;
	struct dlb_desc x, at;
	int64_t width;
};
/* Elements chosen by value along one axis of (outer, n, inner). Of equal values the one with the lowest index is
 * chosen; with `last` by ARG the highest. Indices are i64.
 *   TOP      in {x}                            out {y|NULL, index|NULL}, both (outer, m, inner): the m largest (or
 *                                              smallest) elements, the best one first
 *   ARG      in {x}                            out {index (outer, inner)} of the largest or smallest element
 *   HARDMAX  in {x}                            out {y}: 1 at the element of ARG, else 0
 *   ONE_HOT  in {index (outer, inner), off_on} out {y}: off_on[1] at the index, else off_on[0]; of type `index`,
 *                                              negative ones count from the end */
enum dlb_select_fn { DLB_SELECT_TOP, DLB_SELECT_ARG, DLB_SELECT_HARDMAX, DLB_SELECT_ONE_HOT };
struct dlb_select_desc {
	enum dlb_select_fn fn;
	enum dlb_dtype dtype, index;
	int64_t outer, n, inner, m;
	bool largest, last;
};
/* Sums of listed elements. Along dimension d, index i of y has the taps of tap[d] from end[d][i - 1] (0 for the
 * first) to end[d][i]; without tap[d], which needs x[d] = y[d], only itself. An element of y is the sum over
 * all combinations of its taps, those of the last dimension varying fastest, of the product of their weights
 * times the element of x at their positions. Sums have type `sum`, f32 or f64. An element without taps in some
 * dimension is in[1], of y's type, or 0 if that is absent. move: each index has at most one tap, of weight 1;
 * elements are copied, in any type. The lists are copied.  in {x, value|NULL}, out {y} */
struct dlb_tap { int64_t from; double w; };
struct dlb_taps_desc {
	enum dlb_dtype in, out, sum;
	bool move;
	int n_dims;
	int64_t x[DLB_MAX_DIMS], y[DLB_MAX_DIMS];
	const struct dlb_tap *tap[DLB_MAX_DIMS];
	const int64_t *end[DLB_MAX_DIMS];
};
/* Running sums and products along one axis of (outer, n, inner), of the elements up to each one or before it
 * (exclusive), from the start or from the end (reverse). Reals are added and multiplied in double, integers wrap
 * around.
 *   SUM, PRODUCT         in {x}        out {y}
 *   PRODUCT_GRAD         in {dy, x}    out {dx}; it does not divide, so zeros need no special case:
 *       dx[k] = p[k] s[k],  p[k] = x[0] .. x[k-1],  s[k] = dy[k] + x[k+1] s[k+1]    (exclusive: dy[k+1] + ..)
 *   OTHERS               in {dy (outer, inner), x}   out {dx}: dy times the product of all other elements */
enum dlb_scan_fn { DLB_SCAN_SUM, DLB_SCAN_PRODUCT, DLB_SCAN_PRODUCT_GRAD, DLB_SCAN_OTHERS };
struct dlb_scan_desc {
	enum dlb_scan_fn fn;
	enum dlb_dtype dtype;
	int64_t outer, n, inner;
	bool exclusive, reverse;
};
/* Rotation of pairs of a row's first 2 half elements by angles that depend on the row; the rest of its `width`
 * elements is copied:  in {x, cos, sin, ids|NULL}, out {y}
 *     (u, v) -> (u c - v s, u s + v c),  u = x[j step], v = x[j step + far]
 * c = cos[entry half + j] and s = sin[entry half + j]; the entry of a row is ids[sample, row] (by_id; i64; one
 * outside of [0, positions) gives zeros), else `row` (one_batch), else sample rows + row. x and y have the
 * strides x[] of sample, head and row. inverse: rotates back. dtype: f32 or f64. */
struct dlb_rotary_desc {
	enum dlb_dtype dtype;
	int64_t batch, heads, rows, width, half, positions;
	int64_t x[3], step, far;
	bool by_id, one_batch, inverse;
};
/* acc = x (first) or acc += x:  in {x}, out {acc}. Sums the gradients of micro-batches. */
struct dlb_accumulate_desc { enum dlb_dtype dtype; int64_t count; bool first; };
/* in {x} (count of f32 or f64), out {f64 scalar in host memory}: sum of squares, added in double. */
struct dlb_square_sum_desc { enum dlb_dtype dtype; int64_t count; };
/* One optimizer step on one parameter, fused in one pass (lib/optim/optim.h defines the rules; its table has
 * this order): in {gradient}, out {weight, state 0, state 1, ...}. run->step is the number of this step, from
 * 1 (bias correction); run->rate, with has_rate, replaces hyper's.
 *
 * Rules with n_moments can run in two stages, so that replicas exchange moments instead of gradients:
 *   LOCAL  in {gradient, weight}, out {moments to exchange ..., states ...}
 *   APPLY  in {exchanged moments ...}, out {weight, states ...}
 * With one replica LOCAL and APPLY give the bits of WHOLE. LOCAL multiplies the gradient by scale[0] and its
 * outputs by scale[1], scale[2] (0 means 1). keep_local: LOCAL compares with its own earlier running maximum,
 * not with the exchanged one. Such a rule counts in *run->shrunk the elements whose quotient of denominator
 * and step size is smaller than in the previous step.
 *
 * Rules with a smoothed gradient have one more stage:
 *   PREDICT  in {weight, states ...}, out {predicted weight, run->distance updates ahead}
 * If the smoothed gradient stays constant, these weights are w - distance rate v (momentum: Chen et al.,
 * SpecTrain, 2018) or w - distance rate m^ / (sqrt(v^) + eps) (the Adam family: Guan et al., XPipe, 2019),
 * plus decoupled decay.
 *
 * States in fewer bits (code[k], state_codec.h; f32 weights, stage WHOLE): each has its layout of `count`
 * elements in n_chunks chunks. Only back end cpu has kernels for them. */
enum dlb_update_rule {
	DLB_RULE_SGD,
	DLB_RULE_MOMENTUM,
	DLB_RULE_NESTEROV,
	DLB_RULE_ADAGRAD,
	DLB_RULE_RMSPROP,
	DLB_RULE_ADAM,
	DLB_RULE_ADAMW,
	DLB_RULE_ADABELIEF,
	DLB_RULE_MAX_ADABELIEF,
	DLB_RULE_KFAC, /* sgd on a preconditioned gradient (optim/kfac.h) */
	DLB_N_RULES
};
enum {
	DLB_HYPER_LR,
	DLB_HYPER_MOMENTUM,
	DLB_HYPER_ALPHA,
	DLB_HYPER_BETA1,
	DLB_HYPER_BETA2,
	DLB_HYPER_EPS,
	DLB_HYPER_DECAY,
	DLB_HYPER_DAMPING,
	DLB_HYPER_FACTOR_DECAY,
	DLB_HYPER_INVERSE_EVERY,
	DLB_HYPER_KL_CLIP,
	DLB_N_HYPER
};
enum dlb_update_variant {
	DLB_VARIANT_CORRECTED,
	DLB_VARIANT_DENOM_CORRECTED,
	DLB_VARIANT_UNCORRECTED,
	DLB_VARIANT_AMSGRAD,
	DLB_N_VARIANTS
}; /* of max-adabelief */
enum dlb_update_stage { DLB_UPDATE_WHOLE, DLB_UPDATE_LOCAL, DLB_UPDATE_APPLY, DLB_UPDATE_PREDICT };
struct dlb_update_desc {
	enum dlb_dtype dtype;
	int64_t count;
	int rule;
	double hyper[DLB_N_HYPER];
	enum dlb_update_variant variant;
	enum dlb_update_stage stage;
	double scale[3];
	bool keep_local;
	enum dlb_state_code code[3];
	int n_chunks; /* 0: 1 */
};
/* A plain C function over host memory, for ops too small or unusual for the kernels above. Only back ends
 * with host-visible memory have it. ctx is copied (ctx_bytes). */
typedef void (*dlb_host_fn)(const void *ctx, const struct dlb_run *r);

/* What a device may do with products and sums of f32. tf32: operands are rounded to 10 bits of fraction. fast: sums
 * may be in any order, so that bits differ between runs. */
struct dlb_numerics { bool tf32, fast; };
struct dlb_backend {
	const struct dlb_backend_ops *ops;
	int device, n_threads;
	bool fast_bf16;			/* has bf16 instructions; else bf16 works, slower than f32 */
	struct dlb_numerics numerics;	/* of kernels that are prepared */
	void *self;
};
/* A copy of bytes from or to host memory, which nobody changes meanwhile. It begins when mark `after`, as it
 * was last queued, has been passed. */
enum { DLB_AFTER_ALL = -1, DLB_AFTER_NOTHING = -2 };	/* AFTER_ALL: all that is queued so far */
struct dlb_recording;				/* defined by the back end */
struct dlb_transfer { void *dst; const void *src; size_t bytes; bool to_host; int after; };
struct dlb_backend_ops {
	const char *name;				/* "cpu" */
	/* Buffers lie in host memory: the host may read and write them, and kernels may be of `host`. Else
	 * only upload, download and kernels reach them. */
	bool is_host_memory;
	/* Devices that can be used; 0 with err: the reason why there is none. */
	int (*n_devices)(struct dlb_error *err);
	/* The libraries that differ between hosts, in a few words for people. NULL: none do. */
	const char *(*about)(void);
	int (*open)(int device, int n_threads, struct dlb_backend *out, struct dlb_error *err);
	void (*close)(struct dlb_backend *b);
	/* Writes the device's model in words. NULL: the host's processor. */
	void (*describe)(struct dlb_backend *b, char *text, size_t n);
	/* Bytes of device memory that could be allocated now. NULL: the host's memory. */
	double (*free_bytes)(struct dlb_backend *b);
	/* 64-byte aligned, zeroed; NULL: no memory left */
	void *(*alloc)(struct dlb_backend *b, size_t bytes);
	void (*free)(struct dlb_backend *b, void *p);
	/* dst, src: also memory of host_alloc */
	void (*upload)(struct dlb_backend *b, void *dst, const void *host, size_t bytes);
	void (*download)(struct dlb_backend *b, void *host, const void *src, size_t bytes);
	/* Waits for everything queued. -1 with err: something failed since the last call. */
	int (*sync)(struct dlb_backend *b, struct dlb_error *err);
	/* NULL: a kernel has run when its function returns. Else kernels are queued. mark queues mark i (0, 1,
	 * ...), which is passed when all before it is done; -1 with err: something failed since the last sync.
	 * seconds writes the time from mark `from` to mark `to`; both are passed (sync). */
	int (*mark)(struct dlb_backend *b, int i, struct dlb_error *err);
	double (*seconds)(struct dlb_backend *b, int from, int to);
	/* These are NULL where buffers lie in host memory. host_alloc: memory of the host that transfers
	 * reach directly; NULL: none left. transfer queues transfer i (0, 1, ...), which runs beside kernels.
	 * transferred: 1 if it is done, 0 if not; -1 with err: something failed since the last sync. join:
	 * kernels queued from now on wait for the transfer. */
	void *(*host_alloc)(struct dlb_backend *b, size_t bytes);
	void (*host_free)(struct dlb_backend *b, void *p);
	void (*transfer)(struct dlb_backend *b, int i, const struct dlb_transfer *t);
	int (*transferred)(struct dlb_backend *b, int i, struct dlb_error *err);
	void (*join)(struct dlb_backend *b, int i);
	/* These are NULL where mark is NULL. Between record and recorded, kernels do not run but become a
	 * recording. Marks become part of it if it is `timed`, and are passed in each replay; else mark only
	 * reports a failure. Each kernel must have run before with the same operands, and only kernels may be
	 * run. replay queues the recording after all that is queued so far. recorded returns a new one; NULL
	 * with err: a kernel failed, or cannot be recorded. discard: no queued work may use the recording;
	 * NULL accepted. */
	int (*record)(struct dlb_backend *b, bool timed, struct dlb_error *err);
	struct dlb_recording *(*recorded)(struct dlb_backend *b, struct dlb_error *err);
	int (*replay)(struct dlb_backend *b, struct dlb_recording *x, struct dlb_error *err);
	void (*discard)(struct dlb_backend *b, struct dlb_recording *x);
	int (*gemm)(struct dlb_backend *b, const struct dlb_gemm_desc *d, struct dlb_kernel **k,
		    struct dlb_error *err);
	int (*product)(struct dlb_backend *b, const struct dlb_product_desc *d, struct dlb_kernel **k,
		       struct dlb_error *err);
	int (*conv)(struct dlb_backend *b, const struct dlb_conv_desc *d, struct dlb_kernel **k,
		    struct dlb_error *err);
	int (*pool)(struct dlb_backend *b, const struct dlb_pool_desc *d, struct dlb_kernel **k,
		    struct dlb_error *err);
	int (*batch_norm)(struct dlb_backend *b, const struct dlb_bn_desc *d, struct dlb_kernel **k,
			  struct dlb_error *err);
	int (*softmax)(struct dlb_backend *b, const struct dlb_softmax_desc *d, struct dlb_kernel **k,
		       struct dlb_error *err);
	int (*norm)(struct dlb_backend *b, const struct dlb_norm_desc *d, struct dlb_kernel **k,
		    struct dlb_error *err);
	int (*attention)(struct dlb_backend *b, const struct dlb_attention_desc *d, struct dlb_kernel **k,
			 struct dlb_error *err);
	int (*dropout)(struct dlb_backend *b, const struct dlb_dropout_desc *d, struct dlb_kernel **k,
		       struct dlb_error *err);
	int (*cell)(struct dlb_backend *b, const struct dlb_cell_desc *d, struct dlb_kernel **k,
		    struct dlb_error *err);
	int (*loss)(struct dlb_backend *b, const struct dlb_loss_desc *d, struct dlb_kernel **k,
		    struct dlb_error *err);
	int (*map)(struct dlb_backend *b, const struct dlb_map_desc *d, struct dlb_kernel **k,
		   struct dlb_error *err);
	int (*reduce)(struct dlb_backend *b, const struct dlb_reduce_desc *d, struct dlb_kernel **k,
		      struct dlb_error *err);
	int (*copy)(struct dlb_backend *b, const struct dlb_copy_desc *d, struct dlb_kernel **k,
		    struct dlb_error *err);
	/* out[0] = the same `bytes` at each run. data is in host memory and copied. */
	int (*constant)(struct dlb_backend *b, const void *data, size_t bytes, struct dlb_kernel **k,
			struct dlb_error *err);
	int (*gather)(struct dlb_backend *b, const struct dlb_gather_desc *d, struct dlb_kernel **k,
		      struct dlb_error *err);
	int (*index)(struct dlb_backend *b, const struct dlb_index_desc *d, struct dlb_kernel **k,
		     struct dlb_error *err);
	int (*select)(struct dlb_backend *b, const struct dlb_select_desc *d, struct dlb_kernel **k,
		      struct dlb_error *err);
	int (*taps)(struct dlb_backend *b, const struct dlb_taps_desc *d, struct dlb_kernel **k,
		    struct dlb_error *err);
	int (*scan)(struct dlb_backend *b, const struct dlb_scan_desc *d, struct dlb_kernel **k,
		    struct dlb_error *err);
	int (*rotary)(struct dlb_backend *b, const struct dlb_rotary_desc *d, struct dlb_kernel **k,
		      struct dlb_error *err);
	int (*accumulate)(struct dlb_backend *b, const struct dlb_accumulate_desc *d, struct dlb_kernel **k,
			  struct dlb_error *err);
	int (*square_sum)(struct dlb_backend *b, const struct dlb_square_sum_desc *d, struct dlb_kernel **k,
			  struct dlb_error *err);
	int (*update)(struct dlb_backend *b, const struct dlb_update_desc *d, struct dlb_kernel **k,
		      struct dlb_error *err);
	int (*host)(struct dlb_backend *b, dlb_host_fn fn, const void *ctx, size_t ctx_bytes,
		    size_t scratch_bytes, struct dlb_kernel **k, struct dlb_error *err);
};
/* Name of back end i of the table in backends.c ("cpu", "cuda"); NULL after the last. */
const char *dlb_backend_name(int i);
/* The operations of that back end; a plug-in is loaded. NULL with err: no such back end, no plug-in, or no
 * device that it could use. */
const struct dlb_backend_ops *dlb_backend_load(const char *name, struct dlb_error *err);
/* Loads and opens it with the numerics that its name asks for: "cuda+tf32+fast". -1 with err. */
int dlb_backend_open(const char *name, int device, int n_threads, struct dlb_backend *out, struct dlb_error *err);
int dlb_numerics_read(const char *name, struct dlb_numerics *out, struct dlb_error *err);
const struct dlb_backend_ops *dlb_backend_find(const char *name);	/* NULL: as dlb_backend_load */
void dlb_kernel_free(struct dlb_kernel *k);				/* NULL accepted */
/* Raises k's library_bytes to those of `part`, a kernel that k runs, where these are larger, and adds its
 * code_bytes. */
void dlb_kernel_keep(struct dlb_kernel *k, const struct dlb_kernel *part);
void dlb_kernel_renew(struct dlb_kernel *k, const struct dlb_run *r);	/* calls renew, if k has it */
void dlb_kernel_count(struct dlb_kernel *k, const struct dlb_run *r);	/* calls count, if k has it */
#endif
