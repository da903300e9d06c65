/* dlb-place: cost + balance (weights) -> plan. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "balance/balance.h"
#include "optim/kfac.h"
#include "optim/optim.h"
#include "place/affinity.h"
#include "place/constraints.h"
#include "util/cli.h"
#include "util/clock.h"

struct candidate_log { const struct dlb_cli *cli; double started_s; struct dlb_progress progress; };	/* whom candidates are told of */

struct place_options {
	const char *objective;
	int64_t effort;
	double search_s;
	double clip_norm;
	bool clip_given;
	const char *algorithm, *schedule, *staleness, *in_place, *optimizer;	/* NULL: as in the plan there is, else the default */
	const char *replicas, *split;				/* likewise */
	struct dlb_sharing_options sharing;
	int64_t micro_batches, chunks, seed;
	bool micro_batches_given, seed_given, no_timeline;
	struct dlb_constraints constraints;
	int n_fused_elsewhere;					/* ops whose fused activation the table has on another kind, in the graph as read */
	struct candidate_log told;
	struct dlb_cli *cli;
};
struct input {
	struct dlb_graph graph;
	struct dlb_cluster cluster;
	struct dlb_cost cost;
	struct dlb_balance balance;
	struct dlb_plan plan;				/* the one there is */
	bool has_balance, has_plan, stale;		/* stale: made from something else, only its options hold */
	int optimizer, inverse_every; bool clip; double clip_norm;
};

static void tried(void *arg, const char *name, double ranked_s, double value_s, const struct dlb_error *err)
{
	const struct candidate_log *told = arg;
	const struct dlb_cli *cli = told->cli;
	if (err)
		dlb_cli_say(cli, "%-14s %s", name, err->what);
	else
		dlb_cli_say(cli, "%-14s step %.6g ms, ranked %.6g ms, after %.2f s", name, value_s * 1e3, ranked_s * 1e3,
			    dlb_clock_s() - told->started_s);
}

static void said(void *arg, const char *line)
{
	dlb_cli_say(((const struct candidate_log *)arg)->cli, "%s", line);
}

static void warned(void *arg, const char *line)
{
	dlb_cli_warn(((const struct candidate_log *)arg)->cli, "%s", line);
}

static void progress(void *arg, int64_t done, int64_t total)
{
	struct candidate_log *told = arg;

	dlb_progress_update(&told->progress, done, total, "ideals");
	if (done >= total)
		dlb_progress_end(&told->progress);
}

static int find_objective(const char *name)
{
	for (int i = 0; i < DLB_N_OBJECTIVES; i++)
		if (!strcmp(name, dlb_objectives[i]))
			return i;
	return -1;
}

static int list(const struct dlb_cli *cli)
{
	for (const struct dlb_placer *p = dlb_placers; p->name; p++)
		printf("%-14s %s%s\n", p->name, p->summary, p->by_default ? " (tried by default)" : "");
	return dlb_cli_close_stdout(cli);
}

/* The optimizer that memory and updates are counted for, and whether gradients are clipped: the options, the run
 * section's, the plan's, sgd. */
static int find_optimizer(const struct dlb_doc *doc, const struct place_options *o, struct input *in, struct dlb_error *err)
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
			dlb_cli_warn(o->cli, "the run section says %s; to run %s, say so to dlb-run too", dlb_optimizers[choice.rule].name, name);
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

static int read_input(const struct dlb_doc *doc, const struct place_options *o, struct input *in, struct dlb_error *err)
{
	if (dlb_graph_read(doc, &in->graph, err) || dlb_cluster_read(doc, &in->cluster, err) ||
	    dlb_cost_read(doc, &in->graph, &in->cluster, &in->cost, err))
		return -1;
	if (dlb_doc_section(doc, "balance")) {
		if (dlb_balance_read(doc, in->cluster.n_nodes, &in->balance, err))
			return -1;
		in->has_balance = true;
	}
	if (dlb_doc_section(doc, "plan")) {
		struct dlb_error why = { .status = 0 };
		in->stale = dlb_doc_check_inputs(doc, "plan", &why) && !strncmp(why.what, "made from another", 17);
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

static bool is_any(const char *name, const char *const *list)
{
	for (; *list; list++)
		if (!strcmp(name, *list))
			return true;
	return false;
}

/* The table of affinity that the algorithm will look at; NULL: none. */
static const char *table_of(const struct place_options *o, const struct input *in)
{
	static const char *const look[] = { "by-kind", "auto", "refine", "anneal", NULL };
	const char *by = o->algorithm ? o->algorithm : in->has_plan && in->plan.algorithm_given ? in->plan.algorithm : "auto";

	if (!is_any(by, look))
		return NULL;
	if (o->constraints.affinity)
		return o->constraints.affinity;
	if (in->has_plan && in->plan.affinity)
		return in->plan.affinity;
	return o->algorithm && !strcmp(o->algorithm, "by-kind") ? "default" : NULL;
}

static void release_input(struct input *in)
{
	dlb_plan_release(&in->plan);
	dlb_balance_release(&in->balance);
	dlb_cost_release(&in->cost);
	dlb_cluster_release(&in->cluster);
	dlb_graph_release(&in->graph);
	memset(in, 0, sizeof *in);
	dlb_graph_init(&in->graph);
}

/* Where the table has a kind of its own for activations that are fused into other ops, they are ops again, or -v says so. */
static int keep_affinity(struct dlb_doc *doc, struct place_options *o, struct input *in, struct dlb_error *err)
{
	const char *table = table_of(o, in);
	struct dlb_affinity a;
	int n_unmeasured, rc = 0;

	if (!table)
		return 0;
	if (dlb_affinity_read(&a, table, err))
		return -1;
	const struct dlb_fused_elsewhere e = dlb_affinity_fused_elsewhere(&a, &in->graph, &in->cluster);
	const bool keep = strcmp(dlb_constraints_rewrites(&o->constraints, in->has_plan ? &in->plan : NULL), "all");
	o->n_fused_elsewhere = e.n;
	if (e.n)
		dlb_cli_say(o->cli, "%d fused activation%s of %s, unlike the op%s fused into (first: '%s', of %s): %s", e.n, e.n > 1 ? "s are" : " is",
			    e.activation_kind, e.n > 1 ? "s they are" : " it is", e.op, e.kind ? e.kind : "the fastest kind",
			    keep ? "now ops of their own" : "left fused");
	if (e.n && keep) {
		rc = dlb_affinity_part(doc, &a, &n_unmeasured, err);
		release_input(in);
		if (!rc && n_unmeasured)
			dlb_cli_warn(o->cli, "%d kinds of op were not measured by themselves, and are estimated; dlb-profile --no-rewrite conv-relu "
				     "(norm-relu, add-relu) measures them", n_unmeasured);
		rc = rc || read_input(doc, o, in, err) ? -1 : 0;
	}
	dlb_affinity_release(&a);
	return rc;
}

static int set_up(const struct dlb_doc *doc, struct place_options *o, struct input *in, struct dlb_problem *p, struct dlb_error *err)
{
	const char *schedule = o->schedule ? o->schedule : in->has_plan ? in->plan.schedule : dlb_schedules[0].name;
	*p = (struct dlb_problem){ .graph = &in->graph, .cluster = &in->cluster, .cost = &in->cost };
	p->batch = in->has_plan ? in->plan.batch : in->graph.batch;
	p->micro_batches = (int)(o->micro_batches_given ? o->micro_batches : in->has_plan ? in->plan.micro_batches : 1);
	p->seed = o->seed_given || !in->has_plan ? (uint64_t)o->seed : in->plan.seed;
	p->schedule = dlb_schedule_find(strcmp(schedule, "auto") ? schedule : dlb_schedules[0].name);
	p->chunks = (int)(o->chunks ? o->chunks : in->has_plan ? in->plan.chunks : 0);
	p->staleness = o->staleness ? (enum dlb_staleness)dlb_staleness_find(o->staleness) : in->has_plan ? in->plan.staleness : DLB_STALE_DEFAULT;
	p->not_in_place = o->in_place ? !strcmp(o->in_place, "off") : in->has_plan && !in->plan.in_place;
	p->n_state = dlb_optimizers[in->optimizer].n_state;
	p->clip = in->clip;
	p->inverse_every = in->inverse_every;
	const char *objective = o->objective ? o->objective : in->has_plan && in->plan.objective ? in->plan.objective :
				in->cluster.link_model == DLB_LINKS_PORT ? dlb_objectives[DLB_THROUGHPUT] : dlb_objectives[DLB_STEP];
	int goal = find_objective(objective);
	if (goal < 0)
		return dlb_fail(err, "/plan/objective", "no objective '%s'; there are step, throughput and latency", objective);
	p->objective = (enum dlb_objective)goal;
	p->effort = o->effort;
	p->search_s = o->search_s;
	if (o->search_s > 0) {				/* all that is done, reading too; writing takes about as long as reading */
		double now = dlb_clock_s();
		p->deadline_s = fmax(now, o->told.started_s + o->search_s - fmin(now - o->told.started_s, o->search_s / 2));
	}
	p->tried = tried;
	p->said = said;
	p->warned = warned;
	p->progress = progress;
	p->tried_arg = &o->told;
	if (in->has_balance) {
		p->weight = in->balance.weight;
		p->kappa = in->balance.kappa;
	}
	if (o->staleness && !p->schedule->async)
		return dlb_fail(err, NULL, "--staleness is for --schedule async; the schedule is %s", schedule);
	if (o->schedule && !strcmp(o->schedule, "auto") && p->objective != DLB_STEP) {
		dlb_fail(err, NULL, "--schedule auto compares simulated steps, and --objective %s simulates none", objective);
		return dlb_hint(err, "name a schedule for the plan to state");
	}
	const char *table = table_of(o, in);
	if (!o->constraints.affinity)
		o->constraints.affinity = table;
	o->constraints.rewrites = table ? dlb_constraints_rewrites(&o->constraints, in->has_plan ? &in->plan : NULL) : NULL;
	if (dlb_constraints_read(&o->constraints, doc, in->has_plan ? &in->plan : NULL, p, err))
		return -1;
	return dlb_problem_init(p, err);
}

/* What of the replicas is asked for, else as in the plan there is. n: 1 without. */
static struct dlb_replicas_choice replicas_choice(const struct place_options *o, const struct input *in)
{
	const struct dlb_plan *was = in->has_plan ? &in->plan : NULL;
	struct dlb_replicas_choice c = { .n = was ? was->n_replicas : 1, .now = was };
	if (was)
		c.sharing = was->sharing;
	else
		dlb_sharing_init(&c.sharing);
	if (o->replicas)
		c.n = !strcmp(o->replicas, "auto") ? 0 : atoi(o->replicas);
	if (o->split)
		c.sharing.by_power = !strcmp(o->split, "power");
	else
		c.any_split = !was || was->n_replicas < 2;
	if (!was || was->n_replicas < 2)
		c.sharing.allreduce = DLB_ALLREDUCE_AUTO;
	c.sharing.n_by_size = 0;			/* between what replicas there are now */
	memset(c.sharing.compress_of, 0, sizeof c.sharing.compress_of);
	dlb_sharing_apply(&o->sharing, &c.sharing, NULL);	/* main has seen that they are right */
	return c;
}

/* As dlb_place and dlb_place_again, also for several replicas. current: NULL, none. */
static int place_anew(const struct place_options *o, const struct input *in, const struct dlb_problem *p, const char *algorithm,
		      const int *current, struct dlb_plan *plan, bool *kept, struct dlb_error *err)
{
	struct dlb_replicas_choice c = replicas_choice(o, in);
	const char *advice = c.n == 1 ? NULL : dlb_sharing_advice(&c.sharing);
	if (c.n == 1 && dlb_sharing_asks(&o->sharing))
		return dlb_fail(err, NULL, "there is nothing to share in one replica; give --replicas");
	if (advice)
		dlb_cli_warn(o->cli, "%s", advice);
	if (c.n != 1)
		return dlb_place_replicas(p, &c, algorithm, current, plan, kept, err);
	return current ? dlb_place_again(p, algorithm, current, plan, kept, err) : dlb_place(p, algorithm, plan, err);
}

/* Balanced, or told to stay: the best plan measured, its placement and shares, else the one there is. */
static int keep(const struct dlb_problem *p, const struct input *in, struct dlb_plan *plan, struct dlb_error *err)
{
	const bool best = in->balance.n_placement == in->graph.n_ops;
	const int *placement = best ? in->balance.best_placement : in->plan.placement;
	struct dlb_plan teams = in->plan;
	struct dlb_problem again = *p;
	memset(&teams.arena, 0, sizeof teams.arena);
	if (best && in->balance.best_teams.n == in->plan.n_replicas)
		dlb_balance_teams_set(&in->balance.best_teams, &teams);
	again.replicas = teams.n_replicas > 1 ? &teams : NULL;
	int rc = dlb_plan_make(&again, placement, plan, NULL, err);
	dlb_arena_release(&teams.arena);
	if (rc)
		return -1;
	dlb_plan_moved(p, in->plan.placement, plan);
	return 0;
}

static int make_plan(const struct place_options *o, const struct input *in, const struct dlb_problem *p, struct dlb_plan *plan,
		     struct dlb_error *err)
{
	const char *algorithm = o->algorithm ? o->algorithm : in->has_plan && in->plan.algorithm_given ? in->plan.algorithm : NULL;
	bool kept = false;
	bool moved = p->before && (o->constraints.from || !in->has_plan || in->stale);
	if (o->algorithm || !in->has_plan || in->stale || moved) {	/* asked for: exactly that one */
		if (place_anew(o, in, p, algorithm, NULL, plan, &kept, err))
			return -1;
		if (moved || (in->has_plan && !in->stale))
			dlb_plan_moved(p, moved ? p->before : in->plan.placement, plan);
		return 0;
	}
	if (in->has_balance && (in->balance.converged || in->balance.keep)) {
		if (keep(p, in, plan, err))
			return -1;
		kept = true;
	} else if (place_anew(o, in, p, algorithm, in->plan.placement, plan, &kept, err)) {
		return -1;
	}
	if (kept) {
		plan->winner = in->plan.winner;
		plan->algorithm = in->plan.algorithm;
		plan->algorithm_given = in->plan.algorithm_given;
		dlb_cli_say(o->cli, "the placement stays");
	}
	return 0;
}

/* Replicas that are asked for by number may well be slower than one node by itself. */
static void compare_with_one(const struct place_options *o, const struct dlb_problem *p, const struct dlb_plan *plan)
{
	struct dlb_plan one;
	struct dlb_problem quiet = *p;
	if (!o->replicas || plan->n_replicas < 2 || !strcmp(o->replicas, "auto"))
		return;
	quiet.tried = NULL;
	quiet.before = NULL;
	if (dlb_place(&quiet, "single", &one, NULL))
		return;				/* no node could */
	int d = one.placement[0];
	if (plan->value_s > 1.05 * one.value_s)
		dlb_cli_warn(o->cli, "%d replicas take %.4g ms a step where node %d (%s) alone takes %.4g ms; --replicas auto takes what is fastest",
			     plan->n_replicas, plan->value_s * 1e3, d, p->cluster->kind[p->cluster->node[d].kind].name, one.value_s * 1e3);
	dlb_plan_release(&one);
}

/* --compress auto: what is made is weighed, and made again as it came out. */
static int compress(const struct dlb_problem *p, struct dlb_plan *plan, struct dlb_error *err)
{
	struct dlb_plan whole = *plan;
	struct dlb_problem again = *p;

	if (plan->n_replicas < 2 || strcmp(plan->sharing.compress, DLB_COMPRESS_AUTO))
		return 0;
	if (dlb_plan_advise(&whole, p->cost, p->n_state, p->stated_scale, err)) {
		*plan = whole;
		return -1;
	}
	again.replicas = &whole;
	memset(plan, 0, sizeof *plan);
	int rc = dlb_plan_make(&again, whole.placement, plan, NULL, err);
	if (rc == 0) {
		plan->winner = whole.winner;
		plan->algorithm = whole.algorithm;
		plan->algorithm_given = whole.algorithm_given;
		plan->effort = whole.effort;
		plan->moved_ops = whole.moved_ops;
		plan->moved_bytes = whole.moved_bytes;
		plan->n_advice = whole.n_advice;
		plan->advice = dlb_arena_array(&plan->arena, (size_t)whole.n_advice + 1, sizeof *plan->advice);
		memcpy(plan->advice, whole.advice, (size_t)whole.n_advice * sizeof *plan->advice);
	}
	dlb_plan_release(&whole);
	return rc;
}

struct schedule_trial { const struct place_options *o; const struct input *in; };
static int make_one(void *arg, const struct dlb_problem *p, struct dlb_plan *plan, struct dlb_error *err)
{
	const struct schedule_trial *m = arg;
	return make_plan(m->o, m->in, p, plan, err);
}

static json_t *write_trials(const struct dlb_trial *trial, int n)
{
	json_t *list = json_array();
	for (int i = 0; i < n; i++) {
		json_t *o = json_pack("{sssi}", "schedule", trial[i].schedule, "micro_batches", trial[i].micro_batches);
		if (isfinite(trial[i].value_s))
			json_object_set_new(o, "value_s", dlb_doc_number(trial[i].value_s));
		json_array_append_new(list, o);
	}
	return list;
}

/* Options that have nothing to do in this plan, a line each. */
static void warn_unused(const struct place_options *o, const struct dlb_problem *p, const struct dlb_plan *plan)
{
	static const char *const searches[] = { "auto", "refine", "anneal", NULL };
	const char *by = plan->algorithm_given ? plan->algorithm : "auto";
	const bool any = is_any(by, searches);
	char not_searched[120], not_looked_at[120], not_chunks[160];
	struct dlb_unused sharing[DLB_SHARING_UNUSED];
	const struct dlb_unused own[] = {
		{ "effort", !any && strcmp(by, "dp"), not_searched },
		{ "time", !any && strcmp(by, "dp"), not_searched },
		{ "seed", !any && strcmp(by, "random"), not_searched },
		{ "priority", !any && strcmp(by, "greedy"), not_looked_at },
		{ "affinity", !any && strcmp(by, "by-kind"), not_looked_at },
		{ "rewrites", !o->constraints.rewrites, "no table of affinity is looked at" },
		{ "rewrites", o->constraints.rewrites && !o->n_fused_elsewhere, "no op is fused with an activation that the table has on another kind" },
		{ "chunks", strcmp(by, "interleaved") && !dlb_schedule_in_parts(p->schedule), not_chunks },
		{ "schedule", o->schedule && strcmp(o->schedule, "auto") && p->micro_batches < 2 && !p->schedule->async && !dlb_schedule_fills(p->schedule),
		  "one micro-batch goes through the nodes in one order; the name is kept for plans with more of them" },
		{ "split", plan->n_replicas < 2, "the plan has one replica, which has the whole batch" },
		{ "no-timeline", !plan->timeline && p->objective != DLB_STEP, "this objective simulates no step, so there is no time-line" },
		{ NULL, false, NULL },
	};

	snprintf(not_searched, sizeof not_searched, "algorithm %s neither searches nor draws", by);
	snprintf(not_looked_at, sizeof not_looked_at, "algorithm %s does not look at it", by);
	snprintf(not_chunks, sizeof not_chunks, "neither algorithm %s nor schedule %s has several parts a node", by, p->schedule->name);
	dlb_sharing_unused(&plan->sharing, plan->n_replicas, plan->optimizer, dlb_plan_batch_statistics(plan, p->graph), sharing);
	dlb_cli_warn_unused(o->cli, own);
	dlb_cli_warn_unused(o->cli, sharing);
}

static int place(struct dlb_doc *doc, struct place_options *o, struct dlb_error *err)
{
	static const char *const inputs[] = { "graph", "cluster", "cost", NULL };
	struct input *in = dlb_xcalloc(1, sizeof *in);
	struct dlb_problem p = { .n_groups = 0 };
	struct dlb_plan plan = { .n_ops = 0 };
	struct dlb_trial *trial = NULL;
	struct schedule_trial trial_args = { o, in };
	int rc = -1, n_trials = 0;
	dlb_graph_init(&in->graph);
	if (read_input(doc, o, in, err) || keep_affinity(doc, o, in, err) || set_up(doc, o, in, &p, err))
		goto out;
	if (o->schedule && !strcmp(o->schedule, "auto") && p.objective == DLB_STEP &&
	    dlb_place_schedule(&p, o->micro_batches_given, make_one, &trial_args, &trial, &n_trials, err))
		goto out;
	if (make_plan(o, in, &p, &plan, err))
		goto out;
	compare_with_one(o, &p, &plan);
	plan.optimizer = dlb_optimizers[in->optimizer].name;
	if (compress(&p, &plan, err))
		goto out;
	plan.chunks = p.chunks;
	plan.optimizer = dlb_optimizers[in->optimizer].name;
	plan.clip_norm = in->clip_norm;
	plan.migration_s = p.before ? dlb_place_migration_s(&p, plan.placement) : 0;
	dlb_constraints_keep(&o->constraints, &plan);
	warn_unused(o, &p, &plan);
	if (o->no_timeline)
		plan.timeline = NULL;
	json_t *section = dlb_plan_write(&plan);
	if (n_trials)
		json_object_set_new(section, "schedules_tried", write_trials(trial, n_trials));
	json_object_set_new(section, "inputs", dlb_doc_input_hashes(doc, inputs));
	dlb_doc_set(doc, "plan", section);
	dlb_cli_say(o->cli, "%s: step %.6g ms, bound %.6g ms (gap %.1f %%), imbalance %.3f, %d ops moved", plan.winner,
		    plan.value_s * 1e3, plan.bound_s * 1e3, plan.gap * 100, plan.imbalance, plan.moved_ops);
	rc = 0;
out:
	free(trial);
	dlb_plan_release(&plan);
	dlb_problem_release(&p);
	dlb_constraints_release(&o->constraints);
	release_input(in);
	free(in);
	return rc;
}

static int usage_of_replicas(struct dlb_cli *cli, const struct place_options *o)
{
	char *end;
	if (o->replicas && strcmp(o->replicas, "auto")) {
		long n = strtol(o->replicas, &end, 10);
		if (end == o->replicas || *end || n < 1 || n > 1 << 20)
			return dlb_cli_usage(cli, "--replicas wants a number or auto, not '%s'", o->replicas);
	}
	if (o->split && strcmp(o->split, "even") && strcmp(o->split, "power"))
		return dlb_cli_usage(cli, "--split wants even or power, not '%s'", o->split);
	struct dlb_sharing ignored;
	struct dlb_error err = { .what = "" };
	dlb_sharing_init(&ignored);
	return dlb_sharing_apply(&o->sharing, &ignored, &err) ? dlb_cli_usage(cli, "%s", err.what) : 0;
}

int main(int argc, char **argv)
{
	struct place_options o = { .micro_batches = 1, .seed = 1, .constraints.max_moves = -1, .told.started_s = dlb_clock_s() };
	bool list_them = false;
	const struct dlb_opt opts[] = {
		{ 'a', "algorithm", DLB_OPT_STR, &o.algorithm, "NAME", "placement algorithm (default: auto)", NULL, 0, 0 },
		{ 0, "objective", DLB_OPT_STR, &o.objective, "NAME", "step, throughput or latency (default: what the cluster's links are made for)", NULL, 0, 0 },
		{ 0, "effort", DLB_OPT_INT, &o.effort, "N", "units of search (default 1)", NULL, 1, 1 << 20 },
		{ 0, "time", DLB_OPT_REAL, &o.search_s, "S", "seconds that planning may take instead; not repeatable", NULL, 1e-3, 1e6 },
		{ 'm', "micro-batches", DLB_OPT_INT, &o.micro_batches, "M", "micro-batches a step (default 1)", &o.micro_batches_given, 1, 1 << 20 },
		{ 0, "schedule", DLB_OPT_STR, &o.schedule, "NAME", "1f1b (default), gpipe, interleaved, zero-bubble, none, async or auto", NULL, 0, 0 },
		{ 0, "chunks", DLB_OPT_INT, &o.chunks, "V", "parts a node gets with --schedule interleaved (default 2)", NULL, 1, 1024 },
		{ 0, "staleness", DLB_OPT_STR, &o.staleness, "RULE", "of async: 2bw, stash, predict or none (default 2bw, else stash)", NULL, 0, 0 },
		{ 0, "in-place", DLB_OPT_STR, &o.in_place, "WHEN", "on or off: outputs overwrite inputs that nobody reads after (default on)", NULL, 0, 0 },
		{ 0, "seed", DLB_OPT_INT, &o.seed, "N", "for random placements and searches (default 1)", &o.seed_given, 0, 0 },
		{ 0, "optimizer", DLB_OPT_STR, &o.optimizer, "NAME", "optimizer that is planned for, and run unless dlb-run says otherwise (default sgd)", NULL, 0, 0 },
		{ 0, "clip-norm", DLB_OPT_REAL, &o.clip_norm, "X", "clip gradients by their global norm, as dlb-run does; 0: no more", &o.clip_given, 0, 1e38 },
		{ 0, "pin", DLB_OPT_LIST, &o.constraints.pin, "OP=NODE", "this op, by name or id, on that node; none: no pins; repeatable", NULL, 0, 0 },
		{ 0, "exclude", DLB_OPT_LIST, &o.constraints.exclude, "NODE", "a node that does no work; none: all may; repeatable", NULL, 0, 0 },
		{ 0, "priority", DLB_OPT_STR, &o.constraints.priority, "NAME", "order in which greedy takes ready ops: graph, upward-rank or given", NULL, 0, 0 },
		{ 0, "affinity", DLB_OPT_STR, &o.constraints.affinity, "TABLE", "of by-kind: a file, or one of share/affinity (default: default)", NULL, 0, 0 },
		{ 0, "rewrites", DLB_OPT_STR, &o.constraints.rewrites, "WHICH", "keep-affinity: activations that the table has on another kind are ops of "
		  "their own; all: they stay fused (default: keep-affinity)", NULL, 0, 0 },
		{ 0, "from", DLB_OPT_STR, &o.constraints.from, "FILE", "document whose plan is moved from (default: the one there is)", NULL, 0, 0 },
		{ 0, "max-moves", DLB_OPT_INT, &o.constraints.max_moves, "N", "ops that may stand elsewhere than in that plan", NULL, 0, 1 << 30 },
		{ 0, "serve", DLB_OPT_REAL, &o.constraints.serve_steps, "STEPS", "steps that what moving costs is spread over (default 1000)", NULL, 1, 1e15 },
		{ 0, "replicas", DLB_OPT_STR, &o.replicas, "R", "groups of nodes that each hold the model: a number or auto (default 1)", NULL, 0, 0 },
		{ 0, "split", DLB_OPT_STR, &o.split, "HOW", "the batch over replicas: even or power, by predicted speed (default even; power where nodes differ and it is faster)", NULL, 0, 0 },
		DLB_SHARING_OPTS(&o.sharing),
		{ 0, "no-timeline", DLB_OPT_FLAG, &o.no_timeline, NULL, "leave the predicted time-line out", NULL, 0, 0 },
		{ 0, "list", DLB_OPT_FLAG, &list_them, NULL, "list the algorithms", NULL, 0, 0 },
	};
	struct dlb_cli cli = { .tool = "dlb-place", .usage = "[OPTION...] [FILE]", .summary = "place every op on a node",
			       .opts = opts, .n_opts = DLB_LEN(opts), .max_operands = 1 };
	struct dlb_error err = { .what = "" };
	static struct dlb_doc doc;			/* left to the system: to free it takes a tenth of a large graph's time */
	char names[128];

	o.cli = &cli;
	o.told.cli = &cli;
	dlb_progress_start(&o.told.progress, "dlb-place: dp:", cli.quiet);
	if (dlb_cli_parse(&cli, argc, argv))
		return cli.status;
	if (list_them)
		return list(&cli);
	if (o.algorithm && !dlb_placer_find(o.algorithm))
		return dlb_cli_usage(&cli, "no algorithm '%s'; --list names them", o.algorithm);
	if (o.effort && o.search_s > 0)
		return dlb_cli_usage(&cli, "--effort and --time exclude each other");
	if (o.objective && find_objective(o.objective) < 0)
		return dlb_cli_usage(&cli, "no objective '%s'; there are step, throughput and latency", o.objective);
	if (o.constraints.priority && strcmp(o.constraints.priority, "graph") && strcmp(o.constraints.priority, "upward-rank") &&
	    strcmp(o.constraints.priority, "given"))
		return dlb_cli_usage(&cli, "no priority '%s'; there are graph, upward-rank and given", o.constraints.priority);
	if (o.constraints.rewrites && strcmp(o.constraints.rewrites, "keep-affinity") && strcmp(o.constraints.rewrites, "all"))
		return dlb_cli_usage(&cli, "--rewrites wants keep-affinity or all, not '%s'", o.constraints.rewrites);
	if (o.in_place && strcmp(o.in_place, "on") && strcmp(o.in_place, "off"))
		return dlb_cli_usage(&cli, "--in-place wants on or off, not '%s'", o.in_place);
	if (usage_of_replicas(&cli, &o))
		return 2;
	if (o.schedule && strcmp(o.schedule, "auto") && !dlb_schedule_find(o.schedule))
		return dlb_cli_usage(&cli, "no schedule '%s'; there are auto, %s", o.schedule, dlb_schedule_names(names, sizeof names));
	if (o.staleness && dlb_staleness_find(o.staleness) < 0)
		return dlb_cli_usage(&cli, "no rule '%s'; there are 2bw, stash, predict and none", o.staleness);
	if (dlb_doc_read(&doc, cli.n_operands ? cli.operands[0] : NULL, &err))
		return dlb_cli_die(&cli, &err);
	int no_plan = place(&doc, &o, &err);
	dlb_cli_release(&cli);				/* lists: what they said is in the plan */
	if (no_plan)
		return dlb_cli_die(&cli, &err);
	dlb_doc_provenance(&doc, cli.tool, argc, argv);
	if (dlb_doc_write(&doc, stdout, &err))
		return dlb_cli_die(&cli, &err);
	return dlb_cli_close_stdout(&cli);
}
