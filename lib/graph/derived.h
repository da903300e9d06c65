/* Initializers of the model that are computed from parameters (struct dlb_derived). */
#ifndef DLB_GRAPH_DERIVED_H
#define DLB_GRAPH_DERIVED_H
#include "graph/graph.h"

/* An initializer that the exporter computed from parameters (a transposed weight, the gates of an LSTM
 * reordered). The graph has the parameters, and ops that recompute it; saving as ONNX recomputes it too. To
 * compute the initializer, its parts, each a range of a parameter's rows, transposed and reshaped, are
 * concatenated along `axis`; a function is applied to each element; the result is repeated where `base` is 1
 * and `dim` is not. With `index`, the initializer instead consists of rows of a table (the only part) at
 * constant indices, as relative positions look up their bias: a row lies along `axis`, and index[i] is the
 * row at the ith place in the other dimensions. (derived.c) */
enum dlb_derived_function {
	DLB_DERIVED_SAME,
	DLB_DERIVED_ONE_PLUS,		/* 1 + x: scales of Gemma's normalizations */
	DLB_DERIVED_EXP,
	DLB_DERIVED_MINUS_EXP,		/* -e^x: decay of state-space models */
	DLB_DERIVED_SOFTPLUS,		/* log(1 + e^x) */
	DLB_DERIVED_FUNCTIONS
};
const char *dlb_derived_function_name(enum dlb_derived_function f);
double dlb_derived_function(enum dlb_derived_function f, double x);
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
	enum dlb_derived_function function;
	struct dlb_part *part;
	int64_t n_index, *index;	/* NULL: no table */
};
/* Do its sizes agree? To be checked after reading. */
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
/* Computes the value into `out` from the values of its parts' parameters, source[], all of this type. */
void dlb_derived_value(const struct dlb_derived *d, const void *const *source, enum dlb_dtype dtype,
		       void *out);
/* Adds ops that compute tensor x, a constant so far, from tensors source[part]; records d in g->derived. */
int dlb_derived_add(struct dlb_graph *g, int x, const struct dlb_derived *d, const int *source,
		    struct dlb_error *err);
#endif
