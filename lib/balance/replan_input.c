/* Reads the sections that dlb-place needs, and sets up the problem. */
#include <math.h>
#include <string.h>
#include "balance/replan_batch.h"
#include "balance/replan_input.h"
#include "balance/replan_offload.h"
#include "graph/graph_json.h"
#include "optim/kfac.h"
#include "optim/optim.h"
#include "place/affinity.h"
#include "place/problem.h"
#include "plan/async.h"
#include "plan/plan_json.h"
#include "plan/schedule.h"
#include "plan/small_states.h"
#include "util/clock.h"

int dlb_replan_find_objective(const char *name)
{
	for (int i = 0; i < DLB_N_OBJECTIVES; i++)
		if (!strcmp(name, dlb_objectives[i]))
			return i;
	return -1;
}

bool dlb_replan_is_any(const char *name, const char *const *list)
{
	for (; *list; list++)
		if (!strcmp(name, *list))
			return true;
	return false;
}

/* Finds the optimizer for which memory and updates are counted, and whether gradients are clipped: by the
 * options, else the run section, else the plan, else sgd. */
static int find_optimizer(const struct dlb_doc *doc, const struct dlb_replan *o, struct replan_input *in,
			  struct dlb_error *err)
{
	struct dlb_optimizer_choice choice;
	const char *name = o->optimizer;
	int rule;
	in->optimizer = -1;
	in->clip = in->has_plan && in->plan.clip;
	in->clip_norm = in->has_plan ? in->plan.clip_norm : 0;
	if (json_object_get(dlb_doc_section(doc, "run"), "optimizer")) {
		if (dlb_optimizer_read(doc, &choice, err))
			return -1;
		in->optimizer = choice.rule;
		in->inverse_every = (int)choice.hyper[DLB_HYPER_INVERSE_EVERY];
		in->clip = choice.clip_norm > 0;
		in->clip_norm = choice.clip_norm;
		if (name && strcmp(name, dlb_optimizers[choice.rule].name))
			dlb_cli_warn(o->cli, "the run section says %s; to run %s, say so to dlb-run too",
				     dlb_optimizers[choice.rule].name, name);
	}
	if (o->clip_given) {
		in->clip = o->clip_norm > 0;
		in->clip_norm = o->clip_norm;
	}
	if (!name && in->optimizer >= 0)
		return 0;
	if (!name)
		name = in->has_plan ? in->plan.optimizer : "sgd";
	rule = in->optimizer;
	in->optimizer = dlb_optimizer_find(name);
	if (in->optimizer >= 0) {
		if (in->optimizer != rule)
			in->inverse_every = (int)dlb_optimizers[in->optimizer].hyper[DLB_HYPER_INVERSE_EVERY];
		return 0;
	}
	dlb_fail(err, NULL, "no optimizer '%s'", name);
	return dlb_optimizer_hint(name, err);
}

static int read_input(const struct dlb_doc *doc, const struct dlb_replan *o, struct replan_input *in,
		      struct dlb_error *err)
{
	if (dlb_graph_read(doc, &in->graph, err) || dlb_cluster_read(doc, &in->cluster, err) ||
	    dlb_cluster_correct_links(doc, &in->cluster, err) ||
	    dlb_cost_read(doc, &in->graph, &in->cluster, &in->cost, err))
		return -1;
	if (dlb_doc_section(doc, "balance")) {
		if (dlb_balance_read(doc, in->cluster.n_nodes, &in->balance, err))
			return -1;
		in->has_balance = true;
	}
	if (dlb_doc_section(doc, "plan")) {
		struct dlb_error why = { .status = 0 };
		in->stale = dlb_doc_check_inputs(doc, "plan", &why) &&
			    !strncmp(why.what, "made from another", 17);
		if (in->stale ? dlb_plan_read_options(doc, &in->cost, &in->plan, err) :
				dlb_plan_read(doc, &in->cost, &in->plan, NULL, err))
			return -1;
		in->has_plan = true;
		if (in->stale)
			dlb_cli_warn(o->cli, "the plan there is was %s; its options are kept", why.what);
	}
	if (find_optimizer(doc, o, in, err) || dlb_optimizer_bind(&in->graph, in->optimizer, err))
		return -1;
	dlb_cost_set_optimizer(&in->cost, in->optimizer);
	in->cost.inverse_every = in->inverse_every;
	return 0;
}

void dlb_replan_release(struct replan_input *in)
{
	dlb_plan_release(&in->plan);
	dlb_balance_release(&in->balance);
	dlb_cost_release(&in->cost);
	dlb_cluster_release(&in->cluster);
	dlb_graph_release(&in->graph);
	dlb_graph_init(&in->graph);
	dlb_arena_release(&in->arena);
}

static void init_input(struct replan_input *in, const struct dlb_replan *o)
{
	memset(in, 0, sizeof *in);
	dlb_graph_init(&in->graph);
	in->options = o;
}

/* The table of affinity that the algorithm will use; NULL: none. */
static const char *table_of(const struct dlb_replan *o, const struct replan_input *in)
{
	static const char *const look[] = { "by-kind", "auto", "refine", "anneal", NULL };
	const char *by = o->algorithm                             ? o->algorithm :
			 in->has_plan && in->plan.algorithm_given ? in->plan.algorithm :
								    "auto";

	if (!dlb_replan_is_any(by, look))
		return NULL;
	if (o->constraints.affinity)
		return o->constraints.affinity;
	if (in->has_plan && in->plan.affinity)
		return in->plan.affinity;
	return o->algorithm && !strcmp(o->algorithm, "by-kind") ? "default" : NULL;
}

/* Makes activations that are fused into other ops, but prefer another kind by the table, ops of their own
 * again; with --rewrites all only reports them with -v. */
static int keep_affinity(struct dlb_doc *doc, const struct dlb_replan *o, struct replan_input *in,
			 struct dlb_error *err)
{
	const char *table = table_of(o, in);
	struct dlb_affinity a;
	int n_unmeasured, rc = 0;

	if (!table)
		return 0;
	if (dlb_affinity_read(&a, table, err))
		return -1;
	const struct dlb_fused_elsewhere e = dlb_affinity_fused_elsewhere(&a, &in->graph, &in->cluster);
	const bool keep = strcmp(dlb_constraints_rewrites(&o->constraints, in->has_plan ? &in->plan : NULL),
				 "all");

	if (e.n)
		dlb_cli_say(
			o->cli,
			"%d fused activation%s of %s, unlike the op%s fused into (first: '%s', of %s): %s",
			e.n, e.n > 1 ? "s are" : " is", e.activation_kind, e.n > 1 ? "s they are" : " it is",
			e.op, e.kind ? e.kind : "the fastest kind",
			keep ? "now ops of their own" : "left fused");
	if (e.n && keep) {
		rc = dlb_affinity_part(doc, &a, &n_unmeasured, err);
		dlb_replan_release(in);
		init_input(in, o);
		if (!rc && n_unmeasured)
			dlb_cli_warn(o->cli,
				     "%d kinds of op were not measured by themselves, and are estimated; "
				     "dlb-profile --no-rewrite conv-relu (norm-relu, add-relu) measures them",
				     n_unmeasured);
		rc = rc || read_input(doc, o, in, err) ? -1 : 0;
	}
	in->n_fused_elsewhere = e.n;
	dlb_affinity_release(&a);
	return rc;
}

int dlb_replan_read(struct dlb_doc *doc, const struct dlb_replan *o, struct replan_input *in,
		    struct dlb_error *err)
{
	init_input(in, o);
	if (read_input(doc, o, in, err) || keep_affinity(doc, o, in, err))
		return -1;
	dlb_progress_start(&in->progress, "dlb-place: dp:", o->cli->quiet);
	return 0;
}

static void tried(void *arg, const char *name, double ranked_s, double value_s, const struct dlb_error *err)
{
	const struct replan_input *in = arg;
	const struct dlb_cli *cli = in->options->cli;

	if (err)
		dlb_cli_say(cli, "%-14s %s", name, err->what);
	else
		dlb_cli_say(cli, "%-14s step %.6g ms, ranked %.6g ms, after %.2f s", name, value_s * 1e3,
			    ranked_s * 1e3, dlb_clock_s() - in->options->started_s);
}

static void said(void *arg, const char *line)
{
	dlb_cli_say(((const struct replan_input *)arg)->options->cli, "%s", line);
}

static void warned(void *arg, const char *line)
{
	dlb_cli_warn(((const struct replan_input *)arg)->options->cli, "%s", line);
}

static void progress(void *arg, int64_t done, int64_t total)
{
	struct replan_input *in = arg;

	dlb_progress_update(&in->progress, done, total, "ideals");
	if (done >= total)
		dlb_progress_end(&in->progress);
}

/* Sets the ops that run again as the option says, else as in the existing plan. */
static void find_recompute(const struct dlb_replan *o, struct replan_input *in)
{
	const char *first = o->recompute.n ? o->recompute.item[0] : NULL;

	in->recompute = (struct dlb_recompute){ .n = 0 };
	if (!first)
		in->recompute = in->plan.recompute;
	else if (!strcmp(first, "auto"))
		in->recompute.chosen = true;
	else if (strcmp(first, "none"))
		in->recompute = (struct dlb_recompute){ .pattern = o->recompute.item, .n = o->recompute.n };
}

/* Checks the data type of states as far as that is possible before there is a plan. */
static int check_states(const struct replan_input *in, const struct dlb_problem *p, struct dlb_error *err)
{
	const struct dlb_replicas_choice c = dlb_replan_replicas(in);
	const char *why = dlb_small_states_excluded(p->schedule->async, c.n == 1 ? NULL : &c.sharing);

	if (dlb_optimizer_check_states(in->optimizer, p->state_dtype, err))
		return -1;
	return p->state_dtype != DLB_STATE_F32 && why ? dlb_small_states_refuse(why, err) : 0;
}

int dlb_replan_problem(const struct dlb_doc *doc, struct dlb_replan *o, struct replan_input *in,
		       struct dlb_problem *p, struct dlb_error *err)
{
	const char *schedule = o->schedule  ? o->schedule :
			       in->has_plan ? in->plan.schedule :
					      dlb_schedules[0].name;
	*p = (struct dlb_problem){ .graph = &in->graph, .cluster = &in->cluster, .cost = &in->cost };
	p->batch = in->has_plan ? in->plan.batch : in->graph.batch;
	if (o->batch && strcmp(o->batch, "auto"))
		p->batch = strtoll(o->batch, NULL, 10);	/* dlb_replan_check has checked it */
	p->micro_batches = (int)(o->micro_batches_given ? o->micro_batches :
				 in->has_plan           ? in->plan.micro_batches :
							  1);
	p->seed = o->seed_given || !in->has_plan ? (uint64_t)o->seed : in->plan.seed;
	p->schedule = dlb_schedule_find(strcmp(schedule, "auto") ? schedule : dlb_schedules[0].name);
	p->chunks = (int)(o->chunks ? o->chunks : in->has_plan ? in->plan.chunks : 0);
	p->staleness = o->staleness ? (enum dlb_staleness)dlb_staleness_find(o->staleness) :
		       in->has_plan ? in->plan.staleness :
				      DLB_STALE_DEFAULT;
	p->not_in_place = o->in_place ? !strcmp(o->in_place, "off") : in->has_plan && !in->plan.in_place;
	p->n_state = dlb_optimizers[in->optimizer].n_state;
	find_recompute(o, in);
	p->recompute = &in->recompute;
	if (dlb_replan_find_offload(in, p->schedule, err))
		return -1;
	p->offload = &in->offload;
	p->state_dtype = o->state_dtype ? (enum dlb_state_dtype)dlb_state_dtype_find(o->state_dtype) :
					  in->plan.state_dtype;
	if (check_states(in, p, err))
		return -1;
	p->clip = in->clip;
	p->inverse_every = in->inverse_every;
	const char *objective = o->objective                             ? o->objective :
				in->has_plan && in->plan.objective       ? in->plan.objective :
				in->cluster.link_model == DLB_LINKS_PORT ? dlb_objectives[DLB_THROUGHPUT] :
									   dlb_objectives[DLB_STEP];
	int goal = dlb_replan_find_objective(objective);
	if (goal < 0)
		return dlb_fail(err, "/plan/objective",
				"no objective '%s'; there are step, throughput and latency", objective);
	p->objective = (enum dlb_objective)goal;
	p->effort = o->effort;
	p->ordered = in->has_plan && !in->stale && !o->algorithm ? &in->plan : NULL;
	p->search_s = o->search_s;
	/* the limit includes reading and writing; writing takes about as long as reading */
	if (o->search_s > 0) {
		double now = dlb_clock_s();
		p->deadline_s = fmax(now,
				     o->started_s + o->search_s - fmin(now - o->started_s, o->search_s / 2));
	}
	p->tried = tried;
	p->said = said;
	p->warned = warned;
	p->progress = progress;
	p->tried_arg = in;
	if (in->has_balance) {
		p->weight = in->balance.weight;
		p->kappa = in->balance.kappa;
	}
	if (o->staleness && !p->schedule->async)
		return dlb_fail(err, NULL, "--staleness is for --schedule async; the schedule is %s",
				schedule);
	if (o->schedule && !strcmp(o->schedule, "auto") && p->objective != DLB_STEP) {
		dlb_fail(err, NULL,
			 "--schedule auto compares simulated steps, and --objective %s simulates none",
			 objective);
		return dlb_hint(err, "name a schedule for the plan to state");
	}
	const char *table = table_of(o, in);
	if (!o->constraints.affinity)
		o->constraints.affinity = table;
	o->constraints.rewrites = table ? dlb_constraints_rewrites(&o->constraints,
								   in->has_plan ? &in->plan : NULL) :
					  NULL;
	if (dlb_constraints_read(&o->constraints, doc, in->has_plan ? &in->plan : NULL, p, err))
		return -1;
	return dlb_problem_init(p, err);
}

