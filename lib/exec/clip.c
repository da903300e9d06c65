/* Clipping by the global norm and K-FAC's trust region. See clip.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "exec/clip.h"
#include "exec/kfac.h"
#include "plan/shares.h"
#include "util/clock.h"

static void tally_init(struct dlb_partial_sums *t, size_t most, int n_sets, int set, struct dlb_arena *a)
{
	*t = (struct dlb_partial_sums){ .n_sets = n_sets,
					.set = set,
					.part = dlb_arena_array(a, most * (size_t)n_sets + 1,
								sizeof *t->part) };
}

static void tally_clear(struct dlb_partial_sums *t)
{
	memset(t->part, 0, (size_t)t->n * (size_t)t->n_sets * sizeof *t->part);
}

static double total(const struct dlb_partial_sums *t)
{
	double sum = 0;

	for (int i = 0; i < t->n; i++)
		sum += t->part[t->set * t->n + i];
	return sum;
}

int dlb_partial_sums_add(struct dlb_partial_sums *t, struct dlb_comm *comm, bool contributes, double *sum,
			 struct dlb_error *err)
{
	if (!contributes)
		tally_clear(t);
	if (t->n && dlb_comm_allreduce_f64(comm, t->part, t->n * t->n_sets, DLB_COMM_SUM, err))
		return -1;
	*sum = total(t);
	return 0;
}

int dlb_clip_init(struct dlb_clip *c, const struct dlb_graph *g, struct dlb_backend *be,
		  const struct dlb_clip_choice *choice, const struct dlb_gradient_places *gradient,
		  struct dlb_arena *a, struct dlb_error *err)
{
	/* [tensor] its update op; -1: none */
	int *update = dlb_xmalloc(((size_t)g->n_tensors + 1) * sizeof *update), rc = 0, n_params = 0;
	size_t n = (size_t)g->n_ops + 1;

	*c = (struct dlb_clip){ .norm = choice->norm, .n_ways = choice->steps };
	c->way = dlb_arena_array(a, (size_t)choice->steps, sizeof *c->way);
	c->slot = dlb_arena_array(a, n, sizeof *c->slot);
	c->kernel = dlb_arena_array(a, n, sizeof(struct dlb_kernel *));
	c->gradient = dlb_arena_array(a, n, sizeof *c->gradient);
	c->early = dlb_arena_array(a, n, sizeof *c->early);
	c->update = dlb_arena_array(a, n, sizeof *c->update);
	for (int t = 0; t < g->n_tensors; t++)
		update[t] = -1;
	for (int op = 0; op < g->n_ops; op++)
		if (g->op[op].phase == DLB_UPDATE && dlb_update_weight(g, op) >= 0)
			update[dlb_update_weight(g, op)] = op;
	for (int t = 0; t < g->n_tensors && !rc; t++) {
		const struct dlb_desc d = update[t] >= 0 ? dlb_tensor_desc(&g->tensor[t], 1) :
							   (struct dlb_desc){ .n_dims = 0 };
		const struct dlb_square_sum_desc desc = { .dtype = d.dtype, .count = dlb_desc_count(&d) };
		int slot;

		if (update[t] < 0)
			continue;
		slot = n_params++;
		if (!gradient[update[t]].p)
			continue;
		c->slot[c->n_here] = slot;
		c->gradient[c->n_here] = gradient[update[t]];
		c->update[c->n_here] = update[t];
		rc = be->ops->square_sum(be, &desc, &c->kernel[c->n_here], err);
		if (rc == DLB_NO_KERNEL)
			rc = dlb_fail(err, NULL, "no kernel for the norm of the gradient of '%s'",
				      g->tensor[t].name);
		c->n_here += !rc;
	}
	free(update);
	for (int i = 0; i < choice->steps; i++) {
		tally_init(&c->way[i].square, n, choice->n_sets, choice->set, a);
		c->way[i].square.n = n_params;
	}
	return rc;
}

void dlb_clip_release(struct dlb_clip *c)
{
	for (int i = 0; i < c->n_here; i++)
		dlb_kernel_free(c->kernel[i]);
	c->n_here = 0;
}

/* Computes the sum of squares of the gradient of this node's parameter i. */
static void square(const struct dlb_clip *c, int i, int64_t step, double *sum)
{
	const struct dlb_gradient_places *g = &c->gradient[i];
	void *in[] = { g->p + (size_t)(step % g->n) * g->stride }, *out[] = { sum };

	c->kernel[i]->run(c->kernel[i], &(struct dlb_run){ .in = in, .out = out });
}

void dlb_clip_early(struct dlb_clip *c, int update, int64_t step)
{
	for (int i = 0; i < c->n_here; i++)
		if (c->gradient[i].early && c->update[i] == update)
			square(c, i, step, &c->early[i]);
}

void dlb_clip_here(struct dlb_clip *c, int64_t step)
{
	struct dlb_partial_sums *t = &c->way[step % c->n_ways].square;

	tally_clear(t);
	for (int i = 0; i < c->n_here; i++) {
		double *sum = &t->part[t->set * t->n + c->slot[i]];

		if (c->gradient[i].early)
			*sum = c->early[i];
		else
			square(c, i, step, sum);
	}
}

/* the factor is 1 if the norm is NaN; the step is then NaN as well */
static double scale_of(const struct dlb_clip *c, double sum)
{
	return fmin(1, c->norm / (sqrt(sum) + 1e-6));
}

int dlb_clip_scale(struct dlb_clip *c, struct dlb_comm *comm, bool contributes, int64_t step, double *scale,
		   struct dlb_error *err)
{
	double sum;

	if (dlb_partial_sums_add(&c->way[step % c->n_ways].square, comm, contributes, &sum, err))
		return -1;
	*scale = scale_of(c, sum);
	return 0;
}

void dlb_clip_start(struct dlb_clip *c, struct dlb_comm *comm, struct dlb_subset *norms, bool contributes,
		    int64_t step)
{
	struct dlb_partial_sums *t = &c->way[step % c->n_ways].square;

	dlb_clip_here(c, step);
	if (!contributes)
		tally_clear(t);
	if (norms && t->n)
		dlb_comm_isum(comm, norms, t->part, t->n * t->n_sets, true, &c->way[step % c->n_ways].sum);
}

int dlb_clip_wait(struct dlb_clip *c, struct dlb_comm *comm, int64_t step, double *scale, double *waited_s,
		  struct dlb_error *err)
{
	const double start_s = dlb_clock_s();

	if (dlb_comm_wait(comm, &c->way[step % c->n_ways].sum, err))
		return -1;
	*waited_s += dlb_clock_s() - start_s;
	*scale = scale_of(c, total(&c->way[step % c->n_ways].square));
	return 0;
}

void dlb_trust_region_init(struct dlb_trust_region *t, const struct dlb_graph *g, double kl_clip,
			   const int *placement, int node, struct dlb_arena *a)
{
	*t = (struct dlb_trust_region){
		.kl_clip = kl_clip, .update = dlb_arena_array(a, (size_t)g->n_ops + 1, sizeof *t->update)
	};
	tally_init(&t->along, (size_t)g->n_ops, 1, 0, a);
	for (int op = 0; op < g->n_ops; op++)
		if (dlb_kfac_layer_of(g, op) == op)
			t->update[t->along.n++] = placement[op] == node ? op : -1;
}

int dlb_trust_region_scale(struct dlb_trust_region *t, struct dlb_kfac *kfac, struct dlb_comm *comm,
			   bool contributes, double rate, double *scale, struct dlb_error *err)
{
	double sum, limit;

	*scale = 1;
	if (!(t->kl_clip > 0))
		return 0;
	for (int i = 0; i < t->along.n; i++)
		t->along.part[i] = t->update[i] < 0 ? 0 : dlb_kfac_along(kfac, t->update[i]);
	if (dlb_partial_sums_add(&t->along, comm, contributes, &sum, err))
		return -1;
	limit = sqrt(t->kl_clip / (rate * rate * sum));
	if (limit < 1) {			/* false if the sum is 0 or NaN */
		*scale = limit;
		dlb_kfac_held_back(kfac);
	}
	return 0;
}
