/* K-FAC's sums, averages and inverses on one node. See kfac.h. */
#include "exec/engine.h"
#include "exec/kfac.h"
#include "exec/memories.h"
#include "exec/runtime.h"
#include "exec/state.h"

#include <stdlib.h>
#include <string.h>

#include "util/mem.h"

/* A factor A or G: one matrix for each group of a convolution, stored one after the other. */
struct factor {
	int n, groups, n_uses;
	size_t bytes, matrix_bytes;	/* bytes: of all groups; matrix_bytes: of one group */
	/* [use] sums over micro-batches, lower triangle. sum[0] then becomes the sum over all uses, and after
	 * an exchange the average over all replicas or the Cholesky factor of this average */
	void *sum[DLB_KFAC_MOST_USES];
	/* number of uses whose sums over all micro-batches of this step are complete */
	int n_summed;
	void *average, *inverse;	/* average: lower triangle; inverse: full */
	bool *factored;			/* [group] sum[0] holds a Cholesky factor */
	const char *name;		/* name of the weight; the graph owns it */
};
struct layer { struct dlb_kfac_layer l; struct factor f[DLB_KFAC_FACTORS]; double along; };
struct dlb_kfac {
	const struct dlb_graph *graph;
	struct dlb_backend *be;
	enum dlb_dtype dtype;
	double damping, keep;
	int64_t every;
	int n_replicas;
	struct layer *layer; int n_layers;
	struct dlb_kfac_counts counts;
};

/* Arguments of a kernel. */
struct factor_work {
	struct dlb_kfac *k;
	struct layer *layer;
	int factor, use;
	struct dlb_kfac_vectors x;
	double scale;
	bool first, last;
};

static void *matrix(const struct factor *f, void *all, int group)
{
	return (char *)all + (size_t)group * f->matrix_bytes;
}

static void set_diagonal(struct dlb_kfac *k, const struct factor *f, double v, void *m)
{
	void *host = dlb_xcalloc(1, f->bytes);

	for (int64_t g = 0; g < f->groups; g++)
		for (int64_t i = 0; i < f->n; i++)
			dlb_value_set(host, k->dtype, (g * f->n + i) * f->n + i, v);
	k->be->ops->upload(k->be, m, host, f->bytes);
	free(host);
}

/* Address of the i-th matrix pointer of a factor; NULL: there are no more. */
static void **area(struct factor *f, int i)
{
	return i < f->n_uses      ? &f->sum[i] :
	       i == f->n_uses     ? &f->average :
	       i == f->n_uses + 1 ? &f->inverse :
				    NULL;
}

static int open_factor(struct dlb_kfac *k, struct factor *f, const struct dlb_kfac_layer *l, int64_t n,
		       struct dlb_error *err)
{
	void **p;

	f->n = (int)n;
	f->groups = l->groups;
	f->n_uses = l->n_uses;
	f->matrix_bytes = (size_t)n * (size_t)n * dlb_dtype_bytes(k->dtype);
	f->bytes = (size_t)f->groups * f->matrix_bytes;
	f->factored = dlb_xcalloc((size_t)f->groups, sizeof *f->factored);
	for (int i = 0; (p = area(f, i)); i++)
		if (!(*p = k->be->ops->alloc(k->be, f->bytes)))
			return dlb_no_memory(k->be, f->bytes, "K-FAC's factors", err);
	set_diagonal(k, f, 1.0 / k->n_replicas, f->average);
	set_diagonal(k, f, 1.0 / (1.0 + k->damping), f->inverse);
	return 0;
}

int dlb_kfac_new(struct dlb_kfac **out, const struct dlb_local_graph *local,
		 const struct dlb_optimizer_choice *c, int n_replicas, struct dlb_error *err)
{
	const struct dlb_graph *g = local->graph;
	struct dlb_kfac *k = dlb_xcalloc(1, sizeof *k);

	*out = NULL;
	*k = (struct dlb_kfac){ .graph = g,
				.be = local->be,
				.damping = c->hyper[DLB_HYPER_DAMPING],
				.keep = c->hyper[DLB_HYPER_FACTOR_DECAY],
				.every = (int64_t)c->hyper[DLB_HYPER_INVERSE_EVERY],
				.n_replicas = n_replicas < 1 ? 1 : n_replicas };
	k->layer = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *k->layer);
	for (int op = 0; op < g->n_ops; op++) {
		struct layer *l = &k->layer[k->n_layers];

		if (local->placement[op] != local->node || dlb_kfac_layer_of(g, op) != op)
			continue;
		if (!dlb_is_host_memory(k->be)) {
			dlb_kfac_free(k);
			return dlb_refuse(err, NULL,
					  "use another optimizer, or nodes that compute in host memory",
					  "node %d computes on a device: it has no K-FAC", local->node);
		}
		k->n_layers++;
		l->l = dlb_kfac_layer_at(g, op);
		k->dtype = g->tensor[l->l.use[0].x[0]].dtype;
		for (int i = 0; i < DLB_KFAC_FACTORS; i++) {
			l->f[i].name = g->tensor[g->op[op].in[0]].name;
			if (open_factor(k, &l->f[i], &l->l, l->l.n[i], err)) {
				dlb_kfac_free(k);
				return -1;
			}
		}
	}
	if (k->n_layers)
		*out = k;
	else
		dlb_kfac_free(k);
	return 0;
}

void dlb_kfac_free(struct dlb_kfac *k)
{
	if (!k)
		return;
	for (int i = 0; i < k->n_layers; i++) {
		for (int j = 0; j < DLB_KFAC_FACTORS; j++) {
			struct factor *f = &k->layer[i].f[j];
			void **p;

			for (int a = 0; (p = area(f, a)); a++)
				k->be->ops->free(k->be, *p);
			free(f->factored);
		}
	}
	free(k->layer);
	free(k);
}

int dlb_kfac_put(const struct dlb_kfac *k, struct dlb_memories *m, struct dlb_error *err)
{
	for (int i = 0; k && i < k->n_layers; i++)
		for (int j = 0; j < DLB_KFAC_FACTORS; j++) {
			struct factor *f = &k->layer[i].f[j];
			void **p;

			for (int a = 0; (p = area(f, a)); a++)
				if (dlb_memories_put(m, DLB_BUF_STATE, *p, f->bytes, err))
					return -1;
		}
	return 0;
}

static struct layer *layer_of(const struct dlb_kfac *k, int update)
{
	for (int i = 0; k && i < k->n_layers; i++)
		if (k->layer[i].l.update == update)
			return &k->layer[i];
	dlb_bug("update %d is of no layer here", update);
}

bool dlb_kfac_due(const struct dlb_kfac *k, int64_t step)
{
	return k && step % k->every == 0;
}

/* Copies the average's lower triangle to both triangles of sum[0]. */
static void copy_whole(const struct dlb_kfac *k, const struct factor *f, int group)
{
	const size_t size = dlb_dtype_bytes(k->dtype), n = (size_t)f->n;
	const char *from = matrix(f, f->average, group);
	char *to = matrix(f, f->sum[0], group);

	for (size_t i = 0; i < n; i++) {
		for (size_t j = 0; j <= i; j++) {
			memcpy(to + (i * n + j) * size, from + (i * n + j) * size, size);
			memcpy(to + (j * n + i) * size, from + (i * n + j) * size, size);
		}
	}
}

/* Updates the averages from the complete sums of all uses. goes_out: also copies the averages to sum[0], for
 * the exchange between replicas. */
static void average(struct dlb_kfac *k, struct factor *f, double scale, bool goes_out)
{
	bool finite = true;

	for (int g = 0; g < f->groups; g++) {
		void *sum = matrix(f, f->sum[0], g);

		for (int u = 1; u < f->n_uses; u++)
			dlb_kfac_add(k->dtype, f->n, matrix(f, f->sum[u], g), sum);
		finite = !dlb_kfac_average(k->dtype, f->n, k->keep, scale, sum, matrix(f, f->average, g)) &&
			 finite;
		f->factored[g] = false;
		if (goes_out)
			copy_whole(k, f, g);
	}
	k->counts.not_finite += !finite;
}

static void sum(const void *ctx, const struct dlb_run *r)
{
	const struct factor_work *w = ctx;
	struct dlb_kfac *k = w->k;
	struct factor *f = &w->layer->f[w->factor];

	dlb_kfac_sum(&w->x, w->first, r->in[0], f->sum[w->use], r->scratch);
	if (!w->last || ++f->n_summed < f->n_uses)
		return;
	f->n_summed = 0;
	average(k, f, w->scale, k->n_replicas > 1 && dlb_kfac_due(k, (int64_t)r->step));
}

int dlb_kfac_prepare_sum(struct dlb_kfac *k, const struct dlb_program *p, int update, int moment, int m,
			 struct dlb_kernel **out, struct dlb_error *err)
{
	struct layer *l = layer_of(k, update);
	const int factor = moment % DLB_KFAC_FACTORS;
	const int64_t all = factor == DLB_KFAC_A ? dlb_kfac_rows(k->graph, &l->l, p->step_batch) :
						   dlb_kfac_terms(k->graph, p->step_batch);
	/* a replica without samples runs one sample whose scale is 0 */
	const struct factor_work w = { .k = k,
				       .layer = l,
				       .factor = factor,
				       .use = moment / DLB_KFAC_FACTORS,
				       .x = dlb_kfac_vectors(k->graph, &l->l, moment, p->size[m]),
				       .first = m == 0,
				       .last = m == p->micro_batches - 1,
				       .scale = p->weightless        ? 0 :
						factor == DLB_KFAC_A ? 1 / (double)all :
								       (double)all };

	return k->be->ops->host(k->be, sum, &w, sizeof w, dlb_kfac_sum_bytes(&w.x), out, err);
}

static void invert(struct dlb_kfac *k, struct factor *f, int group, void *scratch)
{
	void *sum = matrix(f, f->sum[0], group), *inverse = matrix(f, f->inverse, group);
	int shifts = f->factored[group] ?
			     dlb_kfac_invert_factor(f->n, sum, inverse, scratch) :
			     dlb_kfac_invert(k->dtype, f->n, k->damping,
					     k->n_replicas > 1 ? sum : matrix(f, f->average, group), inverse,
					     scratch);

	k->counts.inverses++;
	k->counts.shifted += shifts > 0;
	k->counts.kept += shifts < 0;
}

static void apply(const void *ctx, const struct dlb_run *r)
{
	const struct factor_work *w = ctx;
	struct dlb_kfac *k = w->k;
	struct factor *a = &w->layer->f[DLB_KFAC_A], *g = &w->layer->f[DLB_KFAC_G];
	const size_t size = dlb_dtype_bytes(k->dtype), rows = (size_t)g->n;

	w->layer->along = 0;
	for (int i = 0; i < a->groups; i++) {		/* each group has its own rows of the weight */
		void *dw = (char *)r->out[0] + (size_t)i * rows * (size_t)(a->n - (r->out[1] != NULL)) * size;
		void *db = r->out[1] ? (char *)r->out[1] + (size_t)i * rows * size : NULL;

		for (int j = 0; j < DLB_KFAC_FACTORS && dlb_kfac_due(k, (int64_t)r->step); j++)
			invert(k, &w->layer->f[j], i, r->scratch);
		const struct dlb_kfac_inverses inverses = { .dtype = k->dtype,
							    .n_a = a->n,
							    .n_g = g->n,
							    .by_input = w->layer->l.by_input,
							    .a = matrix(a, a->inverse, i),
							    .g = matrix(g, g->inverse, i) };
		w->layer->along += dlb_kfac_precondition(&inverses, dw, db, r->scratch);
	}
}

int dlb_kfac_prepare_apply(struct dlb_kfac *k, int update, struct dlb_kernel **out, struct dlb_error *err)
{
	struct layer *l = layer_of(k, update);
	const struct factor_work w = { .k = k, .layer = l };
	size_t a = (size_t)l->f[DLB_KFAC_A].n, g = (size_t)l->f[DLB_KFAC_G].n, most = a > g ? a : g;
	size_t inverting = most * most * sizeof(double), applying = 2 * a * g * dlb_dtype_bytes(k->dtype);

	return k->be->ops->host(k->be, apply, &w, sizeof w, inverting > applying ? inverting : applying, out,
				err);
}

double dlb_kfac_along(const struct dlb_kfac *k, int update) { return layer_of(k, update)->along; }

void dlb_kfac_held_back(struct dlb_kfac *k)
{
	if (k)
		k->counts.held_back++;
}

void *dlb_kfac_summand(struct dlb_kfac *k, int update, int factor, int group)
{
	const struct factor *f = &layer_of(k, update)->f[factor];

	return matrix(f, f->sum[0], group);
}

double dlb_kfac_damping(const struct dlb_kfac *k) { return k->damping; }

void dlb_kfac_set_received(struct dlb_kfac *k, int update, int factor, int group, bool factored)
{
	layer_of(k, update)->f[factor].factored[group] = factored;
}

bool dlb_kfac_state(struct dlb_kfac *k, int i, struct dlb_local_tensor *s)
{
	static const char *const what[DLB_KFAC_FACTORS][2] = { [DLB_KFAC_A] = { "average_A", "inverse_A" },
							       [DLB_KFAC_G] = { "average_G", "inverse_G" } };
	const int factor = i / 2 % DLB_KFAC_FACTORS, inverse = i % 2;
	const struct factor *f;

	if (!k || i >= 2 * DLB_KFAC_FACTORS * k->n_layers)
		return false;
	f = &k->layer[i / (2 * DLB_KFAC_FACTORS)].f[factor];
	*s = (struct dlb_local_tensor){ .name = f->name,
					.what = what[factor][inverse],
					.p = inverse ? f->inverse : f->average,
					.n = (int64_t)f->groups * f->n * f->n,
					.summed = !inverse,
					.dtype = k->dtype,
					.needed = true };
	return true;
}

int dlb_kfac_update_of(const struct dlb_kfac *k, int i)
{
	return k->layer[i / (2 * DLB_KFAC_FACTORS)].l.update;
}

struct dlb_kfac_counts dlb_kfac_counted(const struct dlb_kfac *k)
{
	return k ? k->counts : (struct dlb_kfac_counts){ 0 };
}
