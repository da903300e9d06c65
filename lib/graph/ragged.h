/* Ragged dimensions, whose length depends on values (private to lib/graph): declarations shared by ragged.c,
 * which finds and bounds these dimensions, and ragged_pass.c, which has a rule for each vertex. ragged.c
 * explains the design. */
#ifndef DLB_GRAPH_RAGGED_H
#define DLB_GRAPH_RAGGED_H
#include <string.h>
#include "graph/fold.h"

#define DLB_RAGGED_CURE "keep all rows: multiply by the mask, or torch.where(mask, a, b), in place of selecting"

static inline struct dlb_ragged *ragged(const struct fold *f, int t)
{
	return t >= 0 && f->ragged[t].mask >= 0 ? &f->ragged[t] : NULL;
}

static inline bool same(const struct dlb_ragged *a, const struct dlb_ragged *b)
{
	return a->mask == b->mask && a->times == b->times && a->size == b->size;
}

static inline void mark(struct fold *f, int t, struct dlb_ragged r, int dim)
{
	if (t < 0)
		return;
	r.dim = dim;
	f->ragged[t] = r;
}

static inline int operand(const struct fold *f, int op, int k)
{
	return k < f->g->op[op].n_in ? f->g->op[op].in[k] : -1;
}

static inline bool is_one_of(const char *type, const char *const *list, int n)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(type, list[i]))
			return true;
	return false;
}

static inline bool dlb_ragged_is_view(const char *type)
{
	static const char *const views[] = { "Reshape", "Flatten", "Squeeze", "Unsqueeze" };

	return is_one_of(type, views, DLB_LEN(views));
}

/* Refuses a vertex that would read padding of its first ragged operand; it must have one. Returns -1. */
int dlb_ragged_refuse(struct fold *f, int op, const char *why, struct dlb_error *err);
/* Product of dimensions [from, to) of t at s times the reference batch. */
int64_t dlb_ragged_range(const struct fold *f, int t, int from, int to, int s);
/* The attribute "axis" of the vertex (default `otherwise`), made non-negative. */
int dlb_ragged_axis(const struct fold *f, int op, int64_t otherwise, int n_dims);
/* Is dimension pos, counted in an output of n dimensions, of size 1 or absent in t, so
 * that t broadcasts along it? */
bool dlb_ragged_broadcasts(const struct fold *f, int t, int n, int pos);
/* Reads operand k as known integers that do not follow the batch; returns their number, -1: unknown. */
int dlb_ragged_ints(struct fold *f, int op, int k, int64_t v[DLB_MAX_DIMS]);
/* The dimension of y, a view of x, into which dimension k of x goes; multiplies *times by the rows of y for
 * each row of x. -1: y has no such dimension, since rows are divided or joined with others. */
int dlb_ragged_view(const struct fold *f, int x, int k, int y, int64_t *times);
/* A scalar constant of this type. */
int dlb_ragged_scalar(struct fold *f, enum dlb_dtype type, double v);
/* A mask that is true for rows that count; `behind` dimensions of size 1 follow. -1 with err. */
int dlb_ragged_counted(struct fold *f, int op, const struct dlb_ragged *r, int behind, struct dlb_error *err);
/* Tensor t with its padding rows set to `v`, no longer ragged; -1 with err. Made once. */
int dlb_ragged_unpad(struct fold *f, int op, int t, double v, struct dlb_error *err);
#endif
