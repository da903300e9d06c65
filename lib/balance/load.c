/* Reads a round's load from the report, and simulates the plan that ran: its busy times by the costs alone,
 * its step by the corrected costs, and the waiting that remains when all nodes are balanced. */
#include "balance/balance.h"
#include "graph/graph_json.h"
#include "optim/kfac.h"
#include "optim/optim.h"
#include "plan/plan_json.h"
#include "plan/timeline.h"
#include <math.h>
#include <string.h>

static const double at_limit = 0.98;	/* fraction of a node's memory: a fuller node takes no more ops */
static const double usual_spread = 0.04;	/* between rounds: typical of shared hosts */
static const double samples_differ = 0.05; /* relative: a smaller change of the step is noise */

static int check_report(const struct dlb_balance_inputs *s, struct dlb_error *err)
{
	const struct dlb_report *r = &s->report;

	if (r->n_nodes != s->plan.n_nodes)
		return dlb_fail(err, "/report/nodes", "%d nodes in the report, %d in the plan", r->n_nodes,
				s->plan.n_nodes);
	if (!(r->step_s > 0))
		return dlb_fail(err, "/report/step_s", "a report needs the time of a step");
	if (r->plan_hash && strcmp(r->plan_hash, s->plan.hash)) {
		dlb_fail(err, "/report/plan_hash", "the report is of another plan");
		return dlb_hint(err, "run dlb-run again");
	}
	return 0;
}

static void release_plan(struct dlb_balance_inputs *s)
{
	dlb_program_release(&s->program);
	dlb_plan_release(&s->plan);
	memset(&s->plan, 0, sizeof s->plan);
}

static int read_plan(const struct dlb_doc *d, struct dlb_balance_inputs *s, struct dlb_error *err)
{
	bool rescheduled;

	release_plan(s);
	if (dlb_plan_read(d, &s->cost, &s->plan, &rescheduled, err))
		return -1;
	s->plan.inverse_every = (int)s->optimizer.hyper[DLB_HYPER_INVERSE_EVERY];
	s->plan.clip = s->optimizer.clip_norm > 0;
	return 0;
}

int dlb_balance_inputs_read(const struct dlb_doc *d, struct dlb_balance_inputs *s, struct dlb_error *err)
{
	json_t *section;

	memset(s, 0, sizeof *s);
	/* Last section first, so the error names the last tool that was not run. */
	if (dlb_doc_need(d, "report", &section, err) || dlb_doc_need(d, "plan", &section, err) ||
	    dlb_optimizer_read(d, &s->optimizer, err) || dlb_graph_read(d, &s->graph, err) ||
	    dlb_optimizer_bind(&s->graph, s->optimizer.rule, err) || dlb_cluster_read(d, &s->cluster, err) ||
	    dlb_cluster_correct_links(d, &s->cluster, err) ||
	    dlb_cost_read(d, &s->graph, &s->cluster, &s->cost, err)) {
		dlb_balance_inputs_release(s);
		return -1;
	}
	s->n_state = dlb_optimizers[s->optimizer.rule].n_state;
	return dlb_balance_inputs_again(d, true, s, err);
}

int dlb_balance_inputs_again(const struct dlb_doc *d, bool other_plan, struct dlb_balance_inputs *s,
			     struct dlb_error *err)
{
	dlb_report_release(&s->report);
	memset(&s->report, 0, sizeof s->report);
	if (!(other_plan && read_plan(d, s, err)) && !dlb_report_read(d, &s->report, err) &&
	    !dlb_cost_read_samples(d, false, &s->cost, &s->foreseen_sample_s, err) &&
	    !dlb_cost_read_samples(d, true, &s->cost, &s->cost.sample_s, err) && !check_report(s, err) &&
	    !(other_plan &&
	      dlb_program_compile(&s->plan, &s->cost, s->plan.batch, s->n_state, &s->program, err)))
		return 0;
	dlb_balance_inputs_release(s);
	return -1;
}

void dlb_balance_inputs_release(struct dlb_balance_inputs *s)
{
	dlb_report_release(&s->report);
	release_plan(s);
	dlb_cost_release(&s->cost);
	dlb_cluster_release(&s->cluster);
	dlb_graph_release(&s->graph);
	memset(s, 0, sizeof *s);
}

/* True if the node's kind has a kernel for some op on another node. */
static bool could_take(const struct dlb_balance_inputs *s, int node)
{
	for (int i = 0; i < s->plan.n_ops; i++)
		if (s->plan.placement[i] != node && isfinite(dlb_cost_op_s(&s->cost, i, node, 1)))
			return true;
	return s->plan.n_nodes == 1;
}

static double peak_bytes(const struct dlb_balance_inputs *s, int i)
{
	return s->report.node[i].peak_bytes > 0 ? s->report.node[i].peak_bytes : s->plan.node[i].peak_bytes;
}

/* Simulates with times multiplied by `scale` (NULL: the costs alone). busy and wait may be NULL. */
static int replay(const struct dlb_balance_inputs *s, const double *scale, double *step_s, double *busy_s,
		  double *wait_s, struct dlb_error *err)
{
	struct dlb_timeline t;

	if (dlb_program_simulate(&s->program, &s->cost, &(struct dlb_simulate_choice){ .node_scale = scale },
				 &t, err))
		return -1;
	for (int i = 0; i < s->plan.n_nodes; i++) {
		if (busy_s)
			busy_s[i] = t.node[i].busy_s;
		if (wait_s)
			wait_s[i] = fmax(0, t.step_s - t.node[i].busy_s);
	}
	*step_s = t.step_s;
	dlb_timeline_release(&t, s->plan.n_nodes);
	return 0;
}

/* Predicts the step by the corrected costs, with the seconds to prepare samples of the rounds before, and
 * finds whether those of this round make another step. */
static int foresee(const struct dlb_balance_inputs *s, const double *kappa, struct dlb_load *l,
		   struct dlb_error *err)
{
	struct dlb_balance_inputs before = *s;
	double now_s;

	before.cost.sample_s = s->foreseen_sample_s;
	if (replay(&before, kappa, &l->predicted_s, NULL, NULL, err))
		return -1;
	if (!s->cost.sample_s)
		return 0;
	if (replay(s, kappa, &now_s, NULL, NULL, err))
		return -1;
	l->samples_changed = fabs(now_s / l->predicted_s - 1) > samples_differ;
	return 0;
}

/* Runs the three simulations; `scale` has space for one number per node. */
static int simulate(const struct dlb_balance_inputs *s, const double *kappa, double *scale,
		    struct dlb_load *l, struct dlb_error *err)
{
	double sum = 0, unused;
	int n = 0;

	if (replay(s, NULL, &unused, l->predicted_busy_s, NULL, err) || foresee(s, kappa, l, err))
		return -1;
	for (int i = 0; i < l->n_nodes; i++)
		if (l->predicted_busy_s[i] > 0) {
			sum += l->busy_s[i];
			n++;
		}
	for (int i = 0; i < l->n_nodes; i++)
		scale[i] = l->predicted_busy_s[i] > 0 && sum > 0 ? sum / n / l->predicted_busy_s[i] : 1;
	return replay(s, scale, &unused, NULL, l->structural_s, err);
}

int dlb_load_of(const struct dlb_balance_inputs *s, const double *kappa, struct dlb_arena *a,
		struct dlb_load *l, struct dlb_error *err)
{
	const struct dlb_report *r = &s->report;
	size_t n = (size_t)s->plan.n_nodes + 1;
	int rc;

	memset(l, 0, sizeof *l);
	l->n_nodes = s->plan.n_nodes;
	l->round_s = r->step_s;
	l->round_se_s = isfinite(r->step_se_s) ? r->step_se_s : 0;
	/* simulated rounds repeat exactly, unless noise was simulated */
	l->usual_spread = r->dry_run && !(r->step_se_s > 0) ? 0 : usual_spread;
	l->bound_s = s->plan.bound_s;
	l->steps = r->steps > 1 ? r->steps : 1;
	l->moved_ops = s->plan.moved_ops;
	l->n_ops = s->plan.n_ops;
	l->placement = memcpy(dlb_arena_array(a, (size_t)l->n_ops + 1, sizeof(int)), s->plan.placement,
			      (size_t)l->n_ops * sizeof(int));
	l->teams = dlb_balance_teams_of(&s->plan, a);
	memcpy(l->plan_hash, s->plan.hash, sizeof l->plan_hash);
	l->busy_s = dlb_arena_array(a, n, sizeof(double));
	l->busy_se_s = dlb_arena_array(a, n, sizeof(double));
	l->predicted_busy_s = dlb_arena_array(a, n, sizeof(double));
	l->structural_s = dlb_arena_array(a, n, sizeof(double));
	l->free_node = dlb_arena_array(a, n, sizeof(bool));
	l->kind = dlb_arena_array(a, n, sizeof(int));
	l->kappa = memcpy(dlb_arena_array(a, n, sizeof(double)), kappa, (n - 1) * sizeof(double));
	for (int i = 0; i < l->n_nodes; i++) {
		l->busy_s[i] = r->node[i].busy_s;
		l->kind[i] = s->cluster.node[i].kind;
		l->busy_se_s[i] = isfinite(r->node[i].busy_se_s) ? r->node[i].busy_se_s : 0;
	}
	rc = simulate(s, kappa, dlb_arena_array(a, n, sizeof(double)), l, err);
	for (int i = 0; i < l->n_nodes && !rc; i++)
		l->free_node[i] = l->predicted_busy_s[i] > 0 && could_take(s, i) &&
				  peak_bytes(s, i) <= at_limit * dlb_cluster_node_memory(&s->cluster, i);
	return rc;
}

int dlb_load_read(const struct dlb_doc *d, struct dlb_arena *a, struct dlb_load *l, struct dlb_error *err)
{
	struct dlb_balance_inputs s;
	struct dlb_balance b;
	int rc = -1;

	if (dlb_balance_inputs_read(d, &s, err))
		return -1;
	if (!dlb_balance_read(d, s.cluster.n_nodes, &b, err)) {
		rc = dlb_load_of(&s, b.kappa, a, l, err);
		dlb_balance_release(&b);
	}
	dlb_balance_inputs_release(&s);
	return rc;
}
