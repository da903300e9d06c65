/* The Pareto front of memory and step time. See replan_front.h. */
#include "balance/replan_front.h"
#include <math.h>
#include <stdlib.h>
#include "balance/replan_batch.h"
#include "place/problem.h"
#include "util/mem.h"

#define FRONT_STEP 0.8			/* factor on the fullest node's bytes from plan to plan */
#define FRONT_LEAST 0.92		/* if no plan fits, the factor rises up to this */
#define FRONT_NEAR 1e-6			/* relative difference of steps that counts as none */

static struct dlb_front_point point_of(const struct dlb_plan *plan)
{
	struct dlb_front_point x = { .value_s = plan->value_s };

	for (int d = 0; d < plan->n_nodes; d++)
		x.bytes = fmax(x.bytes, plan->node[d].peak_bytes);
	for (int i = 0; i < plan->n_ops; i++)
		x.again += plan->again && plan->again[i];
	return x;
}

/* Copies cluster c with at most `bytes` on each node; the caller frees limited->node. */
static void limit(const struct dlb_cluster *c, double bytes, struct dlb_cluster *limited)
{
	*limited = *c;
	limited->node = dlb_xcalloc((size_t)c->n_nodes + 1, sizeof *limited->node);
	for (int d = 0; d < c->n_nodes; d++) {
		limited->node[d] = c->node[d];
		limited->node[d].memory_bytes = fmin(dlb_cluster_node_memory(c, d), bytes);
	}
}

/* Finds the point of a plan with at most `bytes` on each node (INFINITY: the cluster's memory). -1 with
 * err. */
static int plan_within(struct replan_input *in, const struct dlb_problem *p, double bytes,
		       struct dlb_front_point *x, struct dlb_error *err)
{
	static const struct dlb_recompute chosen = { .chosen = true };
	struct dlb_problem q = *p;
	struct dlb_cost cost = *p->cost;
	struct dlb_cluster limited;
	struct dlb_plan plan = { .n_ops = 0 };
	struct dlb_trial *trial = NULL;
	int rc, n_trials = 0;

	limit(p->cluster, bytes, &limited);
	cost.cluster = &limited;
	q.cost = &cost;
	q.cluster = &limited;
	q.tried = NULL;
	q.said = NULL;
	q.warned = NULL;
	if (!q.recompute || !q.recompute->n)
		q.recompute = &chosen;
	rc = dlb_problem_init(&q, err);
	in->quiet = true;
	if (!rc && !(rc = dlb_replan_make(in, &q, &plan, &trial, &n_trials, err)))
		*x = point_of(&plan);
	in->quiet = false;
	free(trial);
	dlb_plan_release(&plan);
	dlb_problem_release(&q);
	free(limited.node);
	return rc;
}

/* Adds a plan with less memory than all before it; removes those before it that are not faster. */
static void add(struct dlb_front *f, const struct dlb_front_point *x)
{
	while (f->n && f->point[f->n - 1].value_s >= x->value_s * (1 - FRONT_NEAR))
		f->n--;
	f->point[f->n++] = *x;
}

int dlb_replan_front(struct replan_input *in, const struct dlb_problem *p, struct dlb_front *f,
		     struct dlb_error *err)
{
	struct dlb_front_point x;
	struct dlb_error ignored = { .what = "" };
	double bytes, step = FRONT_STEP;

	*f = (struct dlb_front){ .n = 0 };
	if (p->objective != DLB_STEP)
		return dlb_fail(err, NULL, "--front compares simulated steps, and --objective %s has none",
				dlb_objectives[p->objective]);
	for (int d = 0; d < p->cluster->n_nodes; d++)
		if (p->cluster->node[d].n_memories)
			return dlb_fail(err, NULL,
					"--front limits the bytes of a node, and node %d names memories", d);
	if (plan_within(in, p, INFINITY, &x, err))
		return -1;
	for (int tries = 0; tries < DLB_FRONT_POINTS; tries++) {
		add(f, &x);
		dlb_cli_say(in->options->cli, "%.6g MB on the fullest node: step %.6g ms, %d ops run again",
			    x.bytes / 1e6, x.value_s * 1e3, x.again);
		while (bytes = x.bytes * step, plan_within(in, p, bytes, &x, &ignored)) {
			f->least_bytes = bytes;
			step = sqrt(step);
			if (step > FRONT_LEAST)
				return 0;
		}
	}
	return 0;
}

json_t *dlb_replan_write_front(const struct dlb_front *f)
{
	json_t *list = json_array();

	for (int i = 0; i < f->n; i++)
		json_array_append_new(list, json_pack("{s:o, s:o, s:i}", "bytes",
						      dlb_doc_number(f->point[i].bytes), "value_s",
						      dlb_doc_number(f->point[i].value_s), "again",
						      f->point[i].again));
	return list;
}
