/* --compress auto: chooses the compression of each class of sums by simulation on the plan's links. See
 * plan.h.
 *
 * Classes are decided one after the other. A candidate is judged by the simulated step, which includes the
 * compressed bytes on these links, the time of compressing, and the overlap of both with other work. A lossy
 * candidate must shorten the step by 1 % if its rounding has a stated bound, and by 5 % if its effect on the
 * loss is only measured. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "comm/compress.h"
#include "optim/optim.h"
#include "plan/advise.h"
#include "plan/program.h"
#include "plan/program_verify.h"
#include "plan/bucket_cost.h"
#include "plan/replica.h"
#include "plan/timeline.h"

#define GAIN_OF_ROUNDING 0.01
#define GAIN_OF_LOSS 0.05
#define BF16_ROUNDING 0x1p-9		/* relative error of one rounding to 8 significant bits */

/* The quantity of which a candidate's error is stated. sums: a bound, relative to the sum of the addends'
 * magnitudes. loss: measured relative increase of the held-out loss over that of dense sums
 * (dlb-place(1)). */
static const char of_sums[] = "sums", of_loss[] = "loss";
struct compression_candidate {
	const char *how;
	bool of_class[DLB_N_COMPRESSED];
	/* true: only for optimizers that divide by second moments; false: only for others */
	bool of_moments;
	bool any_optimizer;
	double roundings;			/* number of roundings of each element; -1: one per replica */
	double loss;				/* error of the loss; 0: an error of sums is stated */
};
static const struct compression_candidate candidates[] = {
	{ .how = "bf16", .of_class = { true, true, true }, .any_optimizer = true, .roundings = -1 },
	/* L is rounded once, and its error counts twice in L L' */
	{ .how = "cholesky", .of_class = { [DLB_SUM_FACTOR] = true }, .any_optimizer = true, .roundings = 2 },
	/* Ordered by rising loss: a more lossy candidate must shorten the step further. */
	{ .how = "cholesky",
	  .of_class = { [DLB_SUM_GRADIENT] = true, [DLB_SUM_SMALL] = true },
	  .loss = 0.0095 },
	{ .how = "lowrank:4",
	  .of_class = { [DLB_SUM_GRADIENT] = true, [DLB_SUM_SMALL] = true },
	  .loss = 0.011 },
	{ .how = "cholesky",
	  .of_class = { [DLB_SUM_GRADIENT] = true, [DLB_SUM_SMALL] = true },
	  .of_moments = true,
	  .loss = 0.0043 },
	{ .how = "lowrank:16",
	  .of_class = { [DLB_SUM_GRADIENT] = true, [DLB_SUM_SMALL] = true },
	  .of_moments = true,
	  .loss = 0.013 },
};

struct compression_trial {
	struct dlb_plan *p;
	const struct dlb_cost *c;
	const double *scale;
	int n_state;
	bool moments;				/* the optimizer divides by second moments */
};
struct compression_result {
	double step_s, bytes, of_class[DLB_N_COMPRESSED];
	bool floats[DLB_N_COMPRESSED], there[DLB_N_COMPRESSED];
};

/* Simulates the step with the plan's current compression. -1 with err: for example, it does not fit. */
static int weigh(const struct compression_trial *w, struct compression_result *o, struct dlb_error *err)
{
	struct dlb_program g;
	struct dlb_timeline t;
	int rc;

	*o = (struct compression_result){ .step_s = INFINITY };
	if (dlb_program_compile(w->p, w->c, w->p->batch, w->n_state, &g, err))
		return -1;
	rc = dlb_program_verify(&g, w->c, err) ||
			     dlb_program_simulate(&g, w->c,
						  &(struct dlb_simulate_choice){ .node_scale = w->scale }, &t,
						  err) ?
		     -1 :
		     0;
	for (int k = 0; k < w->p->n_nodes && !rc; k++) {
		double bytes[DLB_N_SUM_CLASSES] = { 0 }, dense[DLB_N_SUM_CLASSES] = { 0 };
		const struct dlb_node_program *np = &dlb_program_of(&g, k)->node[k];

		dlb_plan_sum_bytes(&g, w->c->cluster, k, bytes, dense);
		for (int i = 0; i < DLB_N_SUM_CLASSES; i++)
			o->bytes += bytes[i];
		for (int i = 0; i < DLB_N_COMPRESSED; i++)
			o->of_class[i] += bytes[i];
		for (int b = 0; b < np->n_buckets; b++) {
			if (!dlb_sum_is_compressed(np->bucket[b].cls))
				continue;
			o->floats[np->bucket[b].cls] = np->bucket[b].element_bytes == 4;
			o->there[np->bucket[b].cls] = true;
		}
	}
	if (!rc) {
		o->step_s = t.step_s;
		dlb_timeline_release(&t, w->p->n_nodes);
	}
	dlb_program_release(&g);
	return rc;
}

static void add(struct dlb_plan *p, int cls, const char *how, double bytes, double step_s, double error,
		const char *of)
{
	struct dlb_advice *a = &p->advice[p->n_advice++];

	*a = (struct dlb_advice){
		.cls = cls, .bytes = bytes, .step_s = step_s, .error = error, .error_of = of
	};
	snprintf(a->how, sizeof a->how, "%s", how);
}

static bool may_try(const struct compression_trial *w, const struct compression_candidate *x, int cls)
{
	return x->of_class[cls] && (x->any_optimizer || x->of_moments == w->moments);
}

/* The best row of advice from row `first` (dense) on; a row must shorten the step by the gain that its kind
 * of error demands. */
static int best_of(const struct dlb_plan *p, int first)
{
	int best = first;

	for (int i = first + 1; i < p->n_advice; i++) {
		const double gain = p->advice[i].error_of == of_loss ? GAIN_OF_LOSS : GAIN_OF_ROUNDING;

		if (p->advice[i].step_s < p->advice[best].step_s * (1 - gain))
			best = i;
	}
	return best;
}

/* Chooses the compression of a class. before: the result with dense sums of this class and of those after
 * it. */
static void choose(const struct compression_trial *w, int cls, double dense_bytes,
		   const struct compression_result *before)
{
	struct dlb_plan *p = w->p;
	const int first = p->n_advice;

	add(p, cls, "none", dense_bytes, before->step_s, 0, NULL);
	for (int i = 0; i < DLB_LEN(candidates) && before->floats[cls]; i++) {
		const struct compression_candidate *x = &candidates[i];
		const double roundings = x->roundings < 0 ? p->n_replicas : x->roundings;
		struct compression_result o;

		if (!may_try(w, x, cls))
			continue;
		strcpy(p->sharing.compress_of[cls], x->how);
		/* a candidate that does not fit or saves no bytes is left out */
		if (!weigh(w, &o, NULL) && o.bytes < before->bytes)
			add(p, cls, x->how, fmax(0, dense_bytes - (before->bytes - o.bytes)), o.step_s,
			    x->loss > 0 ? x->loss : roundings * BF16_ROUNDING,
			    x->loss > 0 ? of_loss : of_sums);
	}
	const int best = best_of(p, first);
	p->advice[best].chosen = true;
	strcpy(p->sharing.compress_of[cls], p->advice[best].how);
}

int dlb_plan_advise(struct dlb_plan *p, const struct dlb_cost *c, int n_state, const double *node_scale,
		    struct dlb_error *err)
{
	static const char *const plain[] = { "sgd", "momentum", "nesterov", "kfac" };
	struct compression_trial w = {
		.p = p, .c = c, .scale = node_scale, .n_state = n_state, .moments = true
	};
	struct compression_result dense, now;

	for (int i = 0; i < DLB_LEN(plain); i++)
		w.moments &= strcmp(p->optimizer, plain[i]) != 0;
	p->n_advice = 0;
	p->advice = dlb_arena_array(&p->arena, DLB_N_COMPRESSED * (DLB_LEN(candidates) + 1),
				    sizeof *p->advice);
	for (int k = 0; k < DLB_N_COMPRESSED; k++)
		strcpy(p->sharing.compress_of[k], "none");
	if (weigh(&w, &dense, err))
		return -1;
	now = dense;
	for (int k = 0; k < DLB_N_COMPRESSED; k++) {
		if (!dense.there[k]) {
			p->sharing.compress_of[k][0] = '\0';
			continue;
		}
		choose(&w, k, dense.of_class[k], &now);
		if (weigh(&w, &now, err))
			return -1;
	}
	return 0;
}
