/* See clip.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "exec/clip.h"

/* The weight that update op o changes. */
static int weight_of(const struct dlb_graph *g, const struct dlb_op *o)
{
	for (int i = 0; i < o->n_in; i++)
		if (o->in[i] >= 0 && g->tensor[o->in[i]].kind == DLB_T_WEIGHT)
			return o->in[i];
	return -1;
}

int dlb_clip_init(struct dlb_clip *c, const struct dlb_graph *g, struct dlb_backend *be, double norm, void *const *gradient,
		  int n_sets, int set, struct dlb_arena *a, struct dlb_error *err)
{
	int *update = dlb_xmalloc(((size_t)g->n_tensors + 1) * sizeof *update), rc = 0;	/* [tensor] */
	size_t n = (size_t)g->n_ops + 1;

	*c = (struct dlb_clip){ .norm = norm, .n_sets = n_sets, .set = set };
	c->square = dlb_arena_array(a, n * (size_t)n_sets, sizeof *c->square);
	c->slot = dlb_arena_array(a, n, sizeof *c->slot);
	c->kernel = dlb_arena_array(a, n, sizeof(struct dlb_kernel *));
	c->gradient = dlb_arena_array(a, n, sizeof(void *));
	for (int t = 0; t < g->n_tensors; t++)
		update[t] = -1;
	for (int op = 0; op < g->n_ops; op++)
		if (g->op[op].phase == DLB_UPDATE && weight_of(g, &g->op[op]) >= 0)
			update[weight_of(g, &g->op[op])] = op;
	for (int t = 0; t < g->n_tensors && !rc; t++) {
		const struct dlb_desc d = update[t] >= 0 ? dlb_tensor_desc(&g->tensor[t], 1) : (struct dlb_desc){ .n_dims = 0 };
		const struct dlb_square_sum_desc desc = { .dtype = d.dtype, .count = dlb_desc_count(&d) };
		int slot;

		if (update[t] < 0)
			continue;
		slot = c->n++;
		if (!gradient[update[t]])
			continue;
		c->slot[c->n_here] = slot;
		c->gradient[c->n_here] = gradient[update[t]];
		rc = be->ops->square_sum(be, &desc, &c->kernel[c->n_here], err);
		if (rc == DLB_NO_KERNEL)
			rc = dlb_fail(err, NULL, "no kernel for the norm of the gradient of '%s'", g->tensor[t].name);
		c->n_here += !rc;
	}
	free(update);
	return rc;
}

void dlb_clip_release(struct dlb_clip *c)
{
	for (int i = 0; i < c->n_here; i++)
		dlb_kernel_free(c->kernel[i]);
	c->n_here = 0;
}

void dlb_clip_here(struct dlb_clip *c)
{
	memset(c->square, 0, (size_t)c->n * (size_t)c->n_sets * sizeof *c->square);
	for (int i = 0; i < c->n_here; i++) {
		void *in[] = { c->gradient[i] }, *out[] = { &c->square[c->set * c->n + c->slot[i]] };

		c->kernel[i]->run(c->kernel[i], &(struct dlb_run){ .in = in, .out = out });
	}
}

int dlb_clip_scale(struct dlb_clip *c, struct dlb_comm *comm, bool contributes, double *scale, struct dlb_error *err)
{
	double sum = 0;

	if (!contributes)
		memset(c->square, 0, (size_t)c->n * (size_t)c->n_sets * sizeof *c->square);
	if (c->n && dlb_comm_allreduce_f64(comm, c->square, c->n * c->n_sets, DLB_COMM_SUM, err))
		return -1;
	for (int i = 0; i < c->n; i++)
		sum += c->square[c->set * c->n + i];
	*scale = fmin(1, c->norm / (sqrt(sum) + 1e-6));		/* 1 where the norm is NaN: so is the step then */
	return 0;
}
