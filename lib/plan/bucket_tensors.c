/* Gradients and factors as matrices. See bucket_tensors.h. */
#include "graph/fused_weight.h"
#include "optim/kfac.h"
#include "plan/bucket_tensors.h"
#include "plan/buckets.h"

static struct dlb_sum_tensor factor_of(const struct dlb_graph *g, const struct dlb_bucket *b, int i)
{
	const int update = b->op[i / DLB_KFAC_FACTORS], k = i % DLB_KFAC_FACTORS,
		  group = dlb_bucket_group(b, i / DLB_KFAC_FACTORS);
	const struct dlb_kfac_layer l = dlb_kfac_layer_at(g, update);

	return (struct dlb_sum_tensor){ .rows = l.n[k],
					.cols = l.n[k],
					.factor = true,
					.id = g->n_tensors + DLB_KFAC_FACTORS * (g->n_ops * group + update) +
					      k,
					.name = g->tensor[g->op[update].in[0]].name,
					.summand = i };
}

/* Makes (rows, all / rows) the matrix of `a` if it is nearer to a square: then P and Q of a given rank are
 * shorter. */
static void consider(struct dlb_sum_tensor *a, int64_t all, int64_t rows, int64_t middle, int64_t lead)
{
	const int64_t cols = rows > 0 ? all / rows : 0;

	if (rows < 1 || (a->rows > 0 && rows + cols >= a->rows + a->cols))
		return;
	a->rows = rows;
	a->cols = cols;
	a->middle = middle;
	a->lead = lead;
}

/* Considers (out s, in t) for a weight (out, in, s, t), where s and t are sizes of neighbouring dimensions: in this
 * form the singular values of a convolution's gradient fall faster than as (out, in s t). */
static void consider_folded(struct dlb_sum_tensor *a, const struct dlb_desc *d, int64_t all)
{
	const bool last = d->layout == DLB_CHANNELS_LAST; /* stored as (out, s, t, in) */
	int64_t lead = 1;

	for (int i = 2; i < d->n_dims; i++) {
		lead *= d->dim[i];
		if (lead > 1)
			consider(a, all, d->dim[0] * lead, last ? 0 : d->dim[1], last ? 0 : lead);
	}
}

/* The matrix of a gradient is (first dimension, all others), (all others, last dimension) in case a layout
 * has put out last, or the form of consider_folded, whichever is nearest to a square. In a graph without
 * shapes it has one element. */
static struct dlb_sum_tensor gradient_of(const struct dlb_graph *g, int update)
{
	const struct dlb_op *o = &g->op[update];
	const struct dlb_tensor *x = &g->tensor[dlb_update_gradient(g, update)], *w = x;
	const struct dlb_desc d = dlb_tensor_desc(x, 1);
	const int64_t all = dlb_desc_count(&d), first = d.n_dims > 0 ? d.dim[0] : 1,
		      last = d.n_dims > 0 ? d.dim[d.n_dims - 1] : 1;
	struct dlb_sum_tensor a = { .rows = 0 };

	for (int j = 0; j < o->n_in; j++)
		if (o->in[j] >= 0 && g->tensor[o->in[j]].kind == DLB_T_WEIGHT)
			w = &g->tensor[o->in[j]];
	a.id = (int)(w - g->tensor);
	a.name = w->name;
	consider(&a, all, first, 0, 0);
	consider(&a, all, last > 0 ? all / last : 0, 0, 0);
	consider_folded(&a, &d, all);
	return a;
}

/* Id of the k-th weight in fused weight w: the first has w's id; the others have negative ids, which no
 * tensor and no factor has. */
static int id_within(int w, int k) { return k ? -1 - (w * DLB_MOST_FUSED + k) : w; }

/* The number of weights that are fused in weight w, and their rows, at which w's gradient is cut; 1: it is
 * not cut. */
static int cuts_of(const struct dlb_graph *g, int w, int64_t rows[DLB_MOST_FUSED])
{
	return g->tensor[w].kind == DLB_T_WEIGHT ? dlb_fused_weights(g, w, rows) : 1;
}

static char *name_within(const struct dlb_graph *g, int w, int64_t first, int64_t end,
			 struct dlb_arena *arena)
{
	return dlb_arena_printf(arena, "%s[%lld:%lld]", g->tensor[w].name, (long long)first, (long long)end);
}

/* Writes the matrices of gradient `whole`, one for each weight fused in its weight, to list; returns their
 * number. */
static int add_gradient(const struct dlb_graph *g, const struct dlb_sum_tensor *whole,
			struct dlb_arena *arena, struct dlb_sum_tensor *list)
{
	int64_t rows[DLB_MOST_FUSED], first = 0;
	const int n = cuts_of(g, whole->id, rows);

	if (n == 1) {
		*list = *whole;
		return 1;
	}
	for (int k = 0; k < n; k++) {
		list[k] = *whole;
		list[k].id = id_within(whole->id, k);
		list[k].name = name_within(g, whole->id, first, first + rows[k], arena);
		list[k].rows = rows[k];
		list[k].at = first * whole->cols;
		first += rows[k];
	}
	return n;
}

int dlb_bucket_weight_of(int id) { return id < 0 ? (-1 - id) / DLB_MOST_FUSED : id; }

const char *dlb_bucket_tensor_name(const struct dlb_graph *g, int id, struct dlb_arena *arena)
{
	const int w = dlb_bucket_weight_of(id), k = id < 0 ? (-1 - id) % DLB_MOST_FUSED : 0;
	int64_t rows[DLB_MOST_FUSED], first = 0;

	if (cuts_of(g, w, rows) == 1)
		return dlb_arena_strdup(arena, g->tensor[w].name);
	for (int i = 0; i < k; i++)
		first += rows[i];
	return name_within(g, w, first, first + rows[k], arena);
}

struct dlb_sum_tensor *dlb_bucket_tensors(const struct dlb_graph *g, const struct dlb_bucket *b,
					  struct dlb_arena *arena, int *n)
{
	const int summands = dlb_bucket_n_tensors(b);
	struct dlb_sum_tensor *list = dlb_arena_array(arena, (size_t)summands * DLB_MOST_FUSED + 1,
						      sizeof *list);

	*n = 0;
	for (int i = 0; i < summands; i++) {
		if (b->cls == DLB_SUM_FACTOR) {
			list[(*n)++] = factor_of(g, b, i);
			continue;
		}
		struct dlb_sum_tensor whole = gradient_of(g, b->op[i]);

		whole.summand = i;
		*n += add_gradient(g, &whole, arena, list + *n);
	}
	return list;
}
