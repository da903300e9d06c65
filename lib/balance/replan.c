/* Makes the next plan. See replan.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "balance/replan_batch.h"
#include "balance/replan_front.h"
#include "balance/replan_memory.h"
#include "balance/replan_offload.h"
#include "balance/replan_zero.h"
#include "optim/optim.h"
#include "place/drafts.h"
#include "place/make.h"
#include "place/moves.h"
#include "place/problem.h"
#include "place/replicas.h"
#include "place/schedules.h"
#include "plan/advise.h"
#include "plan/again.h"
#include "plan/async.h"
#include "plan/by_class.h"
#include "plan/offload.h"
#include "plan/plan_json.h"
#include "plan/replica.h"
#include "plan/schedule.h"
#include "plan/shares.h"
#include "plan/sharing.h"
#include "util/clock.h"
#include "util/mem.h"

struct dlb_replan dlb_replan_in_run(const struct dlb_cli *cli, struct dlb_cli *quiet)
{
	*quiet = *cli;
	quiet->quiet = true;
	quiet->verbose = false;
	quiet->n_given = 0;
	return (struct dlb_replan){ .cli = quiet,
				    .micro_batches = 1,
				    .seed = 1,
				    .started_s = dlb_clock_s(),
				    .constraints.max_moves = -1,
				    .no_timeline = true };
}

static int check_numbers(const struct dlb_replan *o)
{
	int64_t n;
	if (o->replicas && strcmp(o->replicas, "auto") && !dlb_cli_is_count(o->replicas, 1 << 20, &n))
		return dlb_cli_usage(o->cli, "--replicas wants a number or auto, not '%s'", o->replicas);
	if (o->batch && strcmp(o->batch, "auto") && !dlb_cli_is_count(o->batch, INT64_C(1) << 40, &n))
		return dlb_cli_usage(o->cli, "--batch wants a number of samples or auto, not '%s'", o->batch);
	if (o->split && strcmp(o->split, "even") && strcmp(o->split, "power"))
		return dlb_cli_usage(o->cli, "--split wants even or power, not '%s'", o->split);
	struct dlb_sharing ignored;
	struct dlb_error err = { .what = "" };
	dlb_sharing_init(&ignored);
	return dlb_sharing_apply(&o->sharing, &ignored, &err) ? dlb_cli_usage(o->cli, "%s", err.what) : 0;
}

int dlb_replan_check(const struct dlb_replan *o)
{
	char names[128];

	if (o->algorithm && !dlb_placer_find(o->algorithm))
		return dlb_cli_usage(o->cli, "no algorithm '%s'; --list names them", o->algorithm);
	if (o->effort && o->search_s > 0)
		return dlb_cli_usage(o->cli, "--effort and --time exclude each other");
	if (o->objective && dlb_replan_find_objective(o->objective) < 0)
		return dlb_cli_usage(o->cli, "no objective '%s'; there are step, throughput and latency",
				     o->objective);
	if (o->constraints.priority && strcmp(o->constraints.priority, "graph") &&
	    strcmp(o->constraints.priority, "upward-rank") && strcmp(o->constraints.priority, "given"))
		return dlb_cli_usage(o->cli, "no priority '%s'; there are graph, upward-rank and given",
				     o->constraints.priority);
	if (o->constraints.rewrites && strcmp(o->constraints.rewrites, "keep-affinity") &&
	    strcmp(o->constraints.rewrites, "all"))
		return dlb_cli_usage(o->cli, "--rewrites wants keep-affinity or all, not '%s'",
				     o->constraints.rewrites);
	if (o->in_place && strcmp(o->in_place, "on") && strcmp(o->in_place, "off"))
		return dlb_cli_usage(o->cli, "--in-place wants on or off, not '%s'", o->in_place);
	for (int i = 0; i < o->recompute.n && o->recompute.n > 1; i++)
		if (!strcmp(o->recompute.item[i], "none") || !strcmp(o->recompute.item[i], "auto"))
			return dlb_cli_usage(o->cli, "--recompute %s excludes another --recompute",
					     o->recompute.item[i]);
	if (dlb_replan_check_offload(o))
		return 2;
	if (o->state_dtype && dlb_state_dtype_find(o->state_dtype) < 0)
		return dlb_cli_usage(o->cli, "--state-dtype wants f32, bf16 or 8bit, not '%s'",
				     o->state_dtype);
	if (o->schedule && strcmp(o->schedule, "auto") && !dlb_schedule_find(o->schedule))
		return dlb_cli_usage(o->cli, "no schedule '%s'; there are auto, %s", o->schedule,
				     dlb_schedule_names(names, sizeof names));
	if (o->staleness && dlb_staleness_find(o->staleness) < 0)
		return dlb_cli_usage(o->cli, "no rule '%s'; there are 2bw, stash, predict and none",
				     o->staleness);
	return check_numbers(o);
}

/* The options of replicas, else those of the existing plan. n 1: no replicas. */
struct dlb_replicas_choice dlb_replan_replicas(const struct replan_input *in)
{
	const struct dlb_replan *o = in->options;
	const struct dlb_plan *was = in->has_plan ? &in->plan : NULL;
	struct dlb_replicas_choice c = { .n = was ? was->n_replicas : 1, .now = was };
	if (was)
		c.sharing = was->sharing;
	else
		dlb_sharing_init(&c.sharing);
	if (o->replicas)
		c.n = !strcmp(o->replicas, "auto") ? 0 : atoi(o->replicas);
	if (o->split) {
		c.sharing.by_power = !strcmp(o->split, "power");
		c.sharing.split_given = true;
	}
	c.keeps_shares = o->keeps_shares;
	if (!was || was->n_replicas < 2)
		c.sharing.allreduce = DLB_ALLREDUCE_AUTO;
	c.sharing.n_by_size = 0;			/* chosen again for the new replicas */
	memset(c.sharing.compress_of, 0, sizeof c.sharing.compress_of);
	/* dlb_replan_check has checked these options */
	dlb_sharing_apply(&o->sharing, &c.sharing, NULL);
	return c;
}

/* As dlb_place or, with a current placement, dlb_place_again; also for several replicas. current NULL:
 * none. */
static int place_anew(const struct replan_input *in, const struct dlb_problem *p, const char *algorithm,
		      const int *current, struct dlb_plan *plan, bool *kept, struct dlb_error *err)
{
	const struct dlb_replan *o = in->options;
	struct dlb_replicas_choice c = dlb_replan_replicas(in);
	const char *advice = c.n == 1 ? NULL : dlb_sharing_advice(&c.sharing);
	if (c.n == 1 && dlb_sharing_asks(&o->sharing))
		return dlb_fail(err, NULL, "there is nothing to share in one replica; give --replicas");
	if (advice && !in->quiet)
		dlb_cli_warn(o->cli, "%s", advice);
	c.algorithm = algorithm;
	c.current = current;
	if (c.n != 1)
		return dlb_place_replicas(p, &c, plan, NULL, kept, err);
	return current ? dlb_place_again(p, algorithm, current, plan, kept, err) :
			 dlb_place(p, algorithm, plan, err);
}

/* Makes the plan without a search, if the balance keeps one or the options say so: with the placement and
 * shares of the best measured plan, else of the existing one. */
static int keep(const struct dlb_problem *p, const struct replan_input *in, struct dlb_plan *plan,
		struct dlb_error *err)
{
	const bool best = !in->options->stay && in->balance.n_placement == in->graph.n_ops;
	const int *placement = best ? in->balance.best_placement : in->plan.placement;
	struct dlb_plan teams = in->plan;
	struct dlb_problem again = *p;
	memset(&teams.arena, 0, sizeof teams.arena);
	teams.sharing.split_given |= in->options->split != NULL;
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

/* Whether the option asks for another split of the batch than that of the existing plan. */
static bool splits_anew(const struct replan_input *in)
{
	const char *split = in->options->split;

	return split && in->plan.n_replicas > 1 && !strcmp(split, "power") != in->plan.sharing.by_power;
}

/* Whether ops move from a placement other than that of the existing plan. */
static bool moves(const struct replan_input *in, const struct dlb_problem *p)
{
	return p->before && (in->options->constraints.from || !in->has_plan || in->stale);
}

static void count_moved(const struct replan_input *in, const struct dlb_problem *p, struct dlb_plan *plan)
{
	if (moves(in, p) || (in->has_plan && !in->stale))
		dlb_plan_moved(p, moves(in, p) ? p->before : in->plan.placement, plan);
}

static int make_one(const struct replan_input *in, const struct dlb_problem *p, struct dlb_plan *plan,
		    struct dlb_error *err)
{
	const struct dlb_replan *o = in->options;
	const char *algorithm = o->algorithm                             ? o->algorithm :
				in->has_plan && in->plan.algorithm_given ? in->plan.algorithm :
									   NULL;
	bool kept = false;
	if (o->next) {
		struct dlb_problem q = *p;
		q.replicas = o->next->n_replicas > 1 ? o->next : NULL;
		if (dlb_plan_make(&q, o->next->placement, plan, NULL, err))
			return -1;
		plan->winner = o->next->winner;
		plan->effort = in->plan.effort;
		plan->algorithm = in->plan.algorithm;
		plan->algorithm_given = in->plan.algorithm_given;
		dlb_plan_moved(p, in->plan.placement, plan);
		return 0;
	}
	if (o->algorithm || !in->has_plan || in->stale || moves(in, p)) { /* without the current one */
		if (place_anew(in, p, algorithm, NULL, plan, &kept, err))
			return -1;
		count_moved(in, p, plan);
		return 0;
	}
	if (o->stay || (in->has_balance && (in->balance.converged || in->balance.keep) && !splits_anew(in))) {
		if (keep(p, in, plan, err))
			return -1;
		kept = true;
	} else if (place_anew(in, p, algorithm, in->plan.placement, plan, &kept, err)) {
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

static bool is_faster(const struct dlb_plan *a, const struct dlb_plan *b)
{
	return a->value_s < b->value_s * (1 - 1e-6);
}

/* The limit below which a plan's step makes it faster than `plain`; 0: none, since with node weights or
 * migration plans are ranked by another value. */
static double below_of(const struct dlb_problem *p, const struct dlb_plan *plain)
{
	const size_t size = (size_t)p->cluster->n_nodes * sizeof *p->ranked_scale;

	return memcmp(p->ranked_scale, p->stated_scale, size) || p->before ? 0 : plain->value_s;
}

/* Whether a plan in which ops run again may be faster than `plain`. If the number of replicas is free, a
 * search takes long, so a draft decides. */
static bool may_be_faster(const struct replan_input *in, const struct dlb_problem *p,
			  const struct dlb_plan *plain)
{
	struct dlb_problem draft = *p;
	struct dlb_plan other;

	if (dlb_replan_replicas(in).n != 0)
		return true;
	draft.draft = true;
	draft.below_s = below_of(p, plain);
	if (make_one(in, &draft, &other, NULL))
		return false;
	const bool faster = is_faster(&other, plain);
	dlb_plan_release(&other);
	return faster;
}

/* With --recompute auto, makes a plan in which no op runs again and, if memory is scarce, one whose placers
 * count on ops that run again; takes the faster. */
static int make_recomputing(const struct replan_input *in, const struct dlb_problem *p, struct dlb_plan *plan,
			    struct dlb_error *err)
{
	struct dlb_problem q = *p, from = *p;
	struct dlb_plan other;
	if (!p->recompute || !p->recompute->chosen)
		return make_one(in, p, plan, err);
	q.recompute = NULL;
	if (dlb_problem_init(&q, err))
		return -1;
	bool scarce = dlb_draft_may_lack(&q);
	q.scarce = &scarce;
	bool plain = make_one(in, &q, plan, err) == 0;
	from.first = plain && plan->n_replicas < 2 ? plan->placement : NULL;
	if (p->scarce)
		*p->scarce |= scarce;
	/* a quiet plan need only fit */
	bool again = (!plain || (scarce && !in->quiet && may_be_faster(in, &from, plan))) &&
		     make_one(in, &from, &other, plain ? NULL : err) == 0;
	dlb_problem_release(&q);
	if (plain && again && is_faster(&other, plan)) {
		dlb_plan_release(plan);
		plain = false;
	} else if (plain && again) {
		dlb_plan_release(&other);
	}
	if (!plain && again)
		*plan = other;
	plan->recompute = *p->recompute;
	return plain || again ? 0 : -1;
}

static int make_dividing(const struct replan_input *in, const struct dlb_problem *p, struct dlb_plan *plan,
			 struct dlb_error *err)
{
	return dlb_replan_dividing(in, p, make_recomputing, plan, err);
}

/* Makes a plan for dlb_place_schedule. arg: a struct replan_input. */
static int make_plan(void *arg, const struct dlb_problem *p, struct dlb_plan *plan, struct dlb_error *err)
{
	return dlb_replan_offloading(arg, p, make_dividing, plan, err);
}

/* Outlines plans for dlb_place_schedule, without ops that run again, as plans are made first. arg: a struct
 * replan_input. */
static double outline_plan(void *arg, const struct dlb_problem *p, int place)
{
	const struct dlb_replicas_choice c = dlb_replan_replicas(arg);
	struct dlb_problem plain = *p;

	plain.recompute = NULL;
	if (dlb_problem_init(&plain, NULL))
		return INFINITY;
	const double s = dlb_replicas_outline_s(&plain, &c, place);
	dlb_problem_release(&plain);
	return s;
}

/* Warns if replicas, asked for by number, are slower than one node by itself. */
static void compare_with_one(const struct dlb_replan *o, const struct dlb_problem *p,
			     const struct dlb_plan *plan)
{
	struct dlb_plan one;
	struct dlb_problem quiet = *p;
	if (!o->replicas || plan->n_replicas < 2 || !strcmp(o->replicas, "auto"))
		return;
	quiet.tried = NULL;
	quiet.before = NULL;
	if (dlb_place(&quiet, "single", &one, NULL))
		return;				/* no single node fits */
	int d = one.placement[0];
	if (plan->value_s > 1.05 * one.value_s)
		dlb_cli_warn(o->cli,
			     "%d replicas take %.4g ms a step where node %d (%s) alone takes %.4g ms; "
			     "--replicas auto takes what is fastest",
			     plan->n_replicas, plan->value_s * 1e3, d,
			     p->cluster->kind[p->cluster->node[d].kind].name, one.value_s * 1e3);
	dlb_plan_release(&one);
}

/* Warns if replicas compute fewer micro-batches than asked for: if all work in one order, each has as many as
 * the least share has samples. */
static void warn_fewer(const struct dlb_replan *o, const struct dlb_plan *plan)
{
	const int M = plan->n_replicas > 1 ? dlb_plan_micro_batches(plan, plan->batch) : plan->micro_batches;
	const char *why = plan->sharing.zero == 3      ? "--zero 3 gathers weights" :
			  plan->sharing.sync_batchnorm ? "--sync-batchnorm sums statistics" :
							 "asynchronous replicas sum";
	if (M < plan->micro_batches)
		dlb_cli_warn(o->cli,
			     "all replicas compute %d micro-batch%s, not %d, since one has no more samples "
			     "and %s in one order; --split even or a larger --batch keeps them",
			     M, M == 1 ? "" : "es", plan->micro_batches, why);
}

static bool only_states(const struct dlb_offload *x)
{
	return x->n && dlb_offload_count(x, DLB_OFFLOAD_STATES) == x->n;
}

static bool keeps_any_weight_far(const struct dlb_plan *plan, const struct dlb_graph *g)
{
	for (int t = 0; t < g->n_tensors; t++)
		if (dlb_offload_weight_rule(&plan->offload, g, plan->placement, t) >= 0)
			return true;
	return false;
}

static bool keeps_any_far(const struct dlb_plan *plan, const struct dlb_graph *g)
{
	for (int t = 0; t < g->n_tensors; t++)
		if (dlb_plan_keeps_far(plan, g, t))
			return true;
	return false;
}

/* With --compress auto, compares compressions on the plan (dlb_plan_advise), and makes it again with the
 * best. */
static int compress(const struct dlb_problem *p, struct dlb_plan *plan, struct dlb_error *err)
{
	if (plan->n_replicas < 2 || strcmp(plan->sharing.compress, DLB_COMPRESS_AUTO))
		return 0;
	return dlb_plan_advise(plan, p->cost, p->n_state, p->stated_scale, err) ?
		       -1 :
		       dlb_plan_remake(p, plan, err);
}

/* Completes the plan that was chosen from several (dlb_plan_remake). */
static int finish(const struct dlb_problem *p, struct dlb_plan *plan, struct dlb_error *err)
{
	struct dlb_problem as_made = *p;
	const struct dlb_recompute asked = plan->recompute;
	const struct dlb_offload offload = plan->offload;

	as_made.offload = &offload;
	if (asked.chosen && !dlb_plan_runs_any_again(plan))
		as_made.recompute = NULL;
	if (dlb_plan_remake(&as_made, plan, err)) {
		dlb_plan_release(plan);
		return -1;
	}
	plan->recompute = asked;
	return 0;
}

/* Makes the plan with the effort of p. p->compared: it is chosen from several, then completed. */
static int search(struct replan_input *in, struct dlb_problem *p, bool by_schedule, struct dlb_plan *plan,
		  struct dlb_trial **trial, int *n_trials, struct dlb_error *err)
{
	const bool compared = p->compared;
	struct dlb_drafts drafts = { .n = 0 };

	p->drafts = compared ? &drafts : NULL;
	const struct dlb_plan_maker maker = { make_plan, outline_plan, in };
	int rc = by_schedule ? dlb_place_schedule(p, in->options->micro_batches_given, &maker, plan, trial,
						  n_trials, err) :
			       make_plan(in, p, plan, err);

	/* an algorithm that the user named makes the plan for the schedule that was found */
	if (!rc && by_schedule && plan->algorithm_given) {
		dlb_plan_release(plan);
		rc = make_plan(in, p, plan, err);
	}
	p->compared = false;
	if (!rc && by_schedule)
		count_moved(in, p, plan);
	rc = rc || !compared ? rc : finish(p, plan, err);
	if (p->memo == &drafts.memo)
		p->memo = NULL;
	p->drafts = NULL;
	dlb_drafts_release(&drafts);
	return rc;
}

/* Searches with the effort of p, with half of it, a quarter and so on, and takes the best plan. A longer
 * search may end with a worse plan, but twice the effort must never give a worse one. */
static int search_again(struct replan_input *in, struct dlb_problem *p, bool by_schedule,
			struct dlb_plan *plan, struct dlb_trial **trial, int *n_trials, struct dlb_error *err)
{
	const struct dlb_problem asked = *p;
	int rc = search(in, p, by_schedule, plan, trial, n_trials, err);

	for (int64_t effort = asked.effort / 2; effort > 0; effort /= 2) {
		struct dlb_error ignored = { .what = "" };
		struct dlb_problem q = asked;
		struct dlb_plan other;
		struct dlb_trial *tried = NULL;
		int n_tried = 0;

		q.effort = effort;
		if (dlb_problem_init(&q, &ignored))
			continue;
		const bool made = !search(in, &q, by_schedule, &other, &tried, &n_tried, &ignored);
		if (made && (rc || is_faster(&other, plan))) {
			if (!rc)
				dlb_plan_release(plan);
			dlb_problem_release(p);
			free(*trial);
			*plan = other;
			*p = q;
			*trial = tried;
			*n_trials = n_tried;
			rc = 0;
			continue;
		}
		if (made)
			dlb_plan_release(&other);
		dlb_problem_release(&q);
		free(tried);
	}
	return rc;
}

int dlb_replan_make(struct replan_input *in, struct dlb_problem *p, struct dlb_plan *plan,
		    struct dlb_trial **trial, int *n_trials, struct dlb_error *err)
{
	const struct dlb_replan *o = in->options;
	const bool by_schedule = o->schedule && !strcmp(o->schedule, "auto") && p->objective == DLB_STEP;

	p->compared = by_schedule || (!o->next && dlb_replan_replicas(in).n != 1) ||
		      (p->recompute && p->recompute->chosen);
	return (p->compared && dlb_problem_has_many_ops(p) ? search_again : search)(in, p, by_schedule, plan,
										    trial, n_trials, err);
}

static json_t *write_trials(const struct dlb_trial *trial, int n)
{
	json_t *list = json_array();
	for (int i = 0; i < n; i++) {
		json_t *o = json_pack("{sssi}", "schedule", trial[i].schedule, "micro_batches",
				      trial[i].micro_batches);
		dlb_set_finite(o, "value_s", trial[i].value_s);
		json_array_append_new(list, o);
	}
	return list;
}

/* Warns of options without effect in this plan, a line each. */
static void warn_unused(const struct replan_input *in, const struct dlb_problem *p,
			const struct dlb_plan *plan)
{
	static const char *const searches[] = { "auto", "refine", "anneal", NULL };
	const struct dlb_replan *o = in->options;
	const char *by = plan->algorithm_given ? plan->algorithm : "auto";
	const bool any = dlb_replan_is_any(by, searches);
	char not_searched[120], not_looked_at[120], not_chunks[160];
	struct dlb_unused sharing[DLB_SHARING_UNUSED];
	const struct dlb_unused own[] = {
		{ "effort", !any && strcmp(by, "dp"), not_searched },
		{ "time", !any && strcmp(by, "dp"), not_searched },
		{ "seed", !any && strcmp(by, "random"), not_searched },
		{ "priority", !any && strcmp(by, "greedy"), not_looked_at },
		{ "affinity", !any && strcmp(by, "by-kind"), not_looked_at },
		{ "rewrites", !o->constraints.rewrites, "no table of affinity is looked at" },
		{ "rewrites", o->constraints.rewrites && !in->n_fused_elsewhere,
		  "no op is fused with an activation that the table has on another kind" },
		{ "chunks", strcmp(by, "interleaved") && !dlb_schedule_in_parts(p->schedule), not_chunks },
		{ "schedule",
		  o->schedule && strcmp(o->schedule, "auto") && p->micro_batches < 2 && !p->schedule->async &&
			  !dlb_schedule_fills(p->schedule),
		  "one micro-batch goes through the nodes in one order; the name is kept for plans with more "
		  "of them" },
		{ "recompute", plan->recompute.chosen && !dlb_plan_runs_any_again(plan),
		  "the fastest plan fits without; no op runs again" },
		{ "recompute", plan->recompute.n && !dlb_plan_runs_any_again(plan),
		  "what it names sums statistics over the replicas, is offloaded, or no backward op on its "
		  "node needs it" },
		{ "zero", o->zero_auto && plan->n_replicas > 1 && !plan->sharing.zero,
		  "the plan fits without" },
		{ "zero", plan->sharing.zero == 3 && !dlb_plan_gathers(plan, p->graph),
		  "3 is 2 here: no f32 weight of 4096 bytes or more is trained and read on one node only" },
		{ "offload", plan->offload.chosen && !plan->offload.n, "the plan fits without" },
		{ "offload", only_states(&plan->offload) && !p->n_state, "the optimizer keeps no state" },
		{ "offload",
		  dlb_offload_count(&plan->offload, DLB_OFFLOAD_WEIGHTS) &&
			  !keeps_any_weight_far(plan, p->graph),
		  "no weight of 4096 bytes or more that it names is read on one node only, and frozen or trained "
		  "in f32" },
		{ "offload", plan->far && !keeps_any_far(plan, p->graph),
		  "no backward op on the node of an op that it names reads an output of it of 4096 bytes or "
		  "more" },
		{ "split", plan->n_replicas < 2, "the plan has one replica, which has the whole batch" },
		{ "no-timeline", !plan->timeline && p->objective != DLB_STEP,
		  "this objective simulates no step, so there is no time-line" },
		{ NULL, false, NULL },
	};

	snprintf(not_searched, sizeof not_searched, "algorithm %s neither searches nor draws", by);
	snprintf(not_looked_at, sizeof not_looked_at, "algorithm %s does not look at it", by);
	snprintf(not_chunks, sizeof not_chunks,
		 "neither algorithm %s nor schedule %s has several parts a node", by, p->schedule->name);
	dlb_sharing_unused(&plan->sharing, plan->n_replicas, plan->optimizer,
			   dlb_plan_batch_statistics(plan, p->graph), sharing);
	dlb_cli_warn_unused(o->cli, own);
	dlb_cli_warn_unused(o->cli, sharing);
}

/* Finds the memory of the plan's processes. Fills o->need if the caller gave it; else warns if the hosts have
 * too little. */
static int take_memory(const struct dlb_doc *doc, const struct dlb_replan *o, const struct dlb_problem *p,
		       struct dlb_plan *plan, struct dlb_error *err)
{
	struct dlb_memory_need *need = o->need || !o->cli->quiet ? dlb_replan_need(doc, p, plan, o->sizes) :
								   NULL;

	if (!need)
		return o->need ? dlb_fail(err, NULL, "the memory of its processes is not known") : 0;
	if (o->need)
		memcpy(o->need, need, (size_t)plan->n_nodes * sizeof *need);
	else
		dlb_replan_warn_memory(doc, o, p, need);
	free(need);
	return 0;
}

int dlb_replan(struct dlb_replan *o, struct dlb_doc *doc, struct dlb_error *err)
{
	static const char *const inputs[] = { "graph", "cluster", "cost", NULL };
	struct replan_input *in = dlb_xcalloc(1, sizeof *in);
	struct dlb_problem p = { .n_groups = 0 };
	struct dlb_plan plan = { .n_ops = 0 };
	struct dlb_trial *trial = NULL;
	struct dlb_batch_search batches = { .n_trials = 0 };
	struct dlb_front front = { .n = 0 };
	int rc = -1, n_trials = 0;
	if (dlb_replan_read(doc, o, in, err) || dlb_replan_problem(doc, o, in, &p, err))
		goto out;
	p.quick = o->need != NULL;
	if (o->batch && !strcmp(o->batch, "auto") && dlb_replan_batch(in, &p, &batches, err))
		goto out;
	if (dlb_replan_make(in, &p, &plan, &trial, &n_trials, err)) {
		if (dlb_error_status(err) == 1 && !o->need)
			dlb_replan_suggest(in, &p, err);
		goto out;
	}
	if (o->front && dlb_replan_front(in, &p, &front, err))
		goto out;
	if (o->front && front.least_bytes > 0)
		dlb_cli_say(o->cli, "front: no plan for %.6g MB a node", front.least_bytes / 1e6);
	compare_with_one(o, &p, &plan);
	warn_fewer(o, &plan);
	plan.optimizer = dlb_optimizers[in->optimizer].name;
	if (compress(&p, &plan, err))
		goto out;
	plan.chunks = p.chunks;
	plan.optimizer = dlb_optimizers[in->optimizer].name;
	plan.clip_norm = in->clip_norm;
	plan.migration_s = p.before ? dlb_place_migration_s(&p, plan.placement) : 0;
	dlb_constraints_keep(&o->constraints, &plan);
	warn_unused(in, &p, &plan);
	if (o->no_timeline)
		plan.timeline = NULL;
	json_t *section = dlb_plan_write(&plan);
	if (n_trials)
		json_object_set_new(section, "schedules_tried", write_trials(trial, n_trials));
	if (front.n)
		json_object_set_new(section, "front", dlb_replan_write_front(&front));
	if (batches.n_trials)
		json_object_set_new(section, "batches_tried", dlb_replan_write_batches(&batches));
	json_object_set_new(section, "inputs", dlb_doc_input_hashes(doc, inputs));
	dlb_doc_set(doc, "plan", section);
	if (take_memory(doc, o, &p, &plan, err))
		goto out;
	dlb_cli_say(o->cli, "%s: step %.6g ms, bound %.6g ms (gap %.1f %%), imbalance %.3f, %d ops moved",
		    plan.winner, plan.value_s * 1e3, plan.bound_s * 1e3, plan.gap * 100, plan.imbalance,
		    plan.moved_ops);
	rc = 0;
out:
	free(trial);
	free(batches.trial);
	dlb_plan_release(&plan);
	dlb_problem_release(&p);
	dlb_constraints_release(&o->constraints);
	dlb_replan_release(in);
	free(in);
	return rc;
}

