/* See kfac.h. */
#include "exec/engine.h"
#include "exec/kfac.h"

#include <stdlib.h>
#include <string.h>

#include "util/mem.h"

struct factor {
	int n;
	void *sum;			/* over micro-batches, lower triangle; then the average of all replicas, or its Cholesky factor */
	void *average, *inverse;	/* lower triangle; full */
	bool factored;
	const char *name;		/* of the weight, the graph's */
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

/* What a kernel works on. */
struct work { struct dlb_kfac *k; struct layer *layer; int factor; struct dlb_kfac_vectors x; double scale; bool first, last; };

static void set_diagonal(struct dlb_kfac *k, int n, double v, void *m)
{
	void *host = dlb_xcalloc((size_t)n * (size_t)n, dlb_dtype_bytes(k->dtype));

	for (int i = 0; i < n; i++)
		dlb_value_set(host, k->dtype, (int64_t)i * n + i, v);
	k->be->ops->upload(k->be, m, host, (size_t)n * (size_t)n * dlb_dtype_bytes(k->dtype));
	free(host);
}

static int open_factor(struct dlb_kfac *k, struct factor *f, int64_t n, struct dlb_error *err)
{
	size_t bytes = (size_t)n * (size_t)n * dlb_dtype_bytes(k->dtype);
	void **all[] = { &f->sum, &f->average, &f->inverse };

	f->n = (int)n;
	for (int i = 0; i < DLB_LEN(all); i++)
		if (!(*all[i] = k->be->ops->alloc(k->be, bytes)))
			return dlb_fail(err, NULL, "no memory for %zu bytes of K-FAC's factors on this device", bytes);
	set_diagonal(k, f->n, 1.0 / k->n_replicas, f->average);
	set_diagonal(k, f->n, 1.0 / (1.0 + k->damping), f->inverse);
	return 0;
}

int dlb_kfac_new(struct dlb_kfac **out, const struct dlb_graph *g, struct dlb_backend *be, const int *placement, int node,
		 const struct dlb_optimizer_choice *c, int n_replicas, struct dlb_error *err)
{
	struct dlb_kfac *k = dlb_xcalloc(1, sizeof *k);

	*out = NULL;
	*k = (struct dlb_kfac){ .graph = g, .be = be, .damping = c->hyper[DLB_HYPER_DAMPING], .keep = c->hyper[DLB_HYPER_FACTOR_DECAY],
				.every = (int64_t)c->hyper[DLB_HYPER_INVERSE_EVERY], .n_replicas = n_replicas < 1 ? 1 : n_replicas };
	k->layer = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *k->layer);
	for (int op = 0; op < g->n_ops; op++) {
		struct layer *l = &k->layer[k->n_layers];

		if (placement[op] != node || dlb_kfac_layer_of(g, op) != op)
			continue;
		k->n_layers++;
		l->l = dlb_kfac_layer_at(g, op);
		k->dtype = g->tensor[l->l.x[0]].dtype;
		for (int i = 0; i < DLB_KFAC_FACTORS; i++) {
			l->f[i].name = g->tensor[g->op[op].in[0]].name;
			if (open_factor(k, &l->f[i], l->l.n[i], err)) {
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

			k->be->ops->free(k->be, f->sum);
			k->be->ops->free(k->be, f->average);
			k->be->ops->free(k->be, f->inverse);
		}
	}
	free(k->layer);
	free(k);
}

int dlb_kfac_put(const struct dlb_kfac *k, struct dlb_memories *m, struct dlb_error *err)
{
	for (int i = 0; k && i < k->n_layers; i++)
		for (int j = 0; j < DLB_KFAC_FACTORS; j++) {
			const struct factor *f = &k->layer[i].f[j];
			size_t bytes = (size_t)f->n * (size_t)f->n * dlb_dtype_bytes(k->dtype);

			if (dlb_memories_put(m, DLB_BUF_STATE, f->sum, bytes, err) || dlb_memories_put(m, DLB_BUF_STATE, f->average, bytes, err) ||
			    dlb_memories_put(m, DLB_BUF_STATE, f->inverse, bytes, err))
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

/* Both triangles of the average, in place of the sum. */
static void copy_whole(const struct dlb_kfac *k, const struct factor *f)
{
	const size_t size = dlb_dtype_bytes(k->dtype), n = (size_t)f->n;
	const char *from = f->average;
	char *to = f->sum;

	for (size_t i = 0; i < n; i++) {
		for (size_t j = 0; j <= i; j++) {
			memcpy(to + (i * n + j) * size, from + (i * n + j) * size, size);
			memcpy(to + (j * n + i) * size, from + (i * n + j) * size, size);
		}
	}
}

static void sum(const void *ctx, const struct dlb_run *r)
{
	const struct work *w = ctx;
	struct dlb_kfac *k = w->k;
	struct factor *f = &w->layer->f[w->factor];

	dlb_kfac_sum(&w->x, w->first, r->in[0], f->sum, r->scratch);
	if (!w->last)
		return;
	if (dlb_kfac_average(k->dtype, f->n, k->keep, w->scale, f->sum, f->average))
		k->counts.not_finite++;
	f->factored = false;
	if (k->n_replicas > 1 && dlb_kfac_due(k, (int64_t)r->step))
		copy_whole(k, f);
}

int dlb_kfac_prepare_sum(struct dlb_kfac *k, const struct dlb_program *p, int update, int factor, int m, struct dlb_kernel **out,
			 struct dlb_error *err)
{
	struct layer *l = layer_of(k, update);
	const int64_t all = factor == DLB_KFAC_A ? dlb_kfac_rows(k->graph, &l->l, p->step_batch) : dlb_kfac_terms(k->graph, p->step_batch);
	/* A replica that has no samples computes one that counts nothing. */
	const struct work w = { .k = k, .layer = l, .factor = factor, .x = dlb_kfac_vectors(k->graph, &l->l, factor, p->size[m]),
				.first = m == 0, .last = m == p->micro_batches - 1,
				.scale = p->weightless ? 0 : factor == DLB_KFAC_A ? 1 / (double)all : (double)all };

	return k->be->ops->host(k->be, sum, &w, sizeof w, dlb_kfac_sum_bytes(&w.x), out, err);
}

static void invert(struct dlb_kfac *k, struct factor *f, void *scratch)
{
	int shifts = f->factored ? dlb_kfac_invert_factor(f->n, f->sum, f->inverse, scratch) :
		dlb_kfac_invert(k->dtype, f->n, k->damping, k->n_replicas > 1 ? f->sum : f->average, f->inverse, scratch);

	k->counts.inverses++;
	k->counts.shifted += shifts > 0;
	k->counts.kept += shifts < 0;
}

static void apply(const void *ctx, const struct dlb_run *r)
{
	const struct work *w = ctx;
	struct dlb_kfac *k = w->k;
	struct factor *f = w->layer->f;

	for (int i = 0; i < DLB_KFAC_FACTORS && dlb_kfac_due(k, (int64_t)r->step); i++)
		invert(k, &f[i], r->scratch);
	w->layer->along = dlb_kfac_precondition(k->dtype, f[DLB_KFAC_A].n, f[DLB_KFAC_G].n, w->layer->l.by_input, f[DLB_KFAC_A].inverse, f[DLB_KFAC_G].inverse,
					       r->out[0], r->out[1], r->scratch);
}

int dlb_kfac_prepare_apply(struct dlb_kfac *k, int update, struct dlb_kernel **out, struct dlb_error *err)
{
	struct layer *l = layer_of(k, update);
	const struct work w = { .k = k, .layer = l };
	size_t a = (size_t)l->f[DLB_KFAC_A].n, g = (size_t)l->f[DLB_KFAC_G].n, most = a > g ? a : g;
	size_t inverting = most * most * sizeof(double), applying = 2 * a * g * dlb_dtype_bytes(k->dtype);

	return k->be->ops->host(k->be, apply, &w, sizeof w, inverting > applying ? inverting : applying, out, err);
}

double dlb_kfac_along(const struct dlb_kfac *k, int update) { return layer_of(k, update)->along; }

void dlb_kfac_held_back(struct dlb_kfac *k)
{
	if (k)
		k->counts.held_back++;
}

void *dlb_kfac_summand(struct dlb_kfac *k, int update, int factor) { return layer_of(k, update)->f[factor].sum; }
double dlb_kfac_damping(const struct dlb_kfac *k) { return k->damping; }

void dlb_kfac_came(struct dlb_kfac *k, int update, int factor, bool factored)
{
	layer_of(k, update)->f[factor].factored = factored;
}

bool dlb_kfac_state(struct dlb_kfac *k, int i, struct dlb_kept_state *s)
{
	static const char *const what[DLB_KFAC_FACTORS][2] = { [DLB_KFAC_A] = { "average_A", "inverse_A" },
							       [DLB_KFAC_G] = { "average_G", "inverse_G" } };
	const int factor = i / 2 % DLB_KFAC_FACTORS, inverse = i % 2;
	const struct factor *f;

	if (!k || i >= 2 * DLB_KFAC_FACTORS * k->n_layers)
		return false;
	f = &k->layer[i / (2 * DLB_KFAC_FACTORS)].f[factor];
	*s = (struct dlb_kept_state){ .name = f->name, .what = what[factor][inverse], .p = inverse ? f->inverse : f->average,
				      .n = (int64_t)f->n * f->n, .summed = !inverse, .dtype = k->dtype, .needed = true };
	return true;
}

struct dlb_kfac_counts dlb_kfac_counted(const struct dlb_kfac *k)
{
	return k ? k->counts : (struct dlb_kfac_counts){ 0 };
}
