/* The gate decides whether a new plan is worth the change; and dlb_rebalance, one whole balancing round. A
 * plan is adopted if
 *
 *     rounds_left * (T_now - T_predicted (1 + err)) > t_plan + t_drain + t_move + t_warmup
 *
 * T_now is the best plan's measured time, since the alternative is to keep that plan. If kappa was corrected
 * in a round of another plan, T_now is multiplied by the ratio of the best plan's simulated steps with and
 * without the correction: a node that has become slow is slow in the best plan too.
 *
 * T_predicted is this round's time minus the difference of both plans' simulated steps (under kappa and
 * weights). So time that the model does not explain stays in the prediction. If the model predicts a longer
 * step than was measured, the difference is scaled down.
 *
 * err is the largest of: the 90th percentile of (measured / predicted - 1) over earlier predictions, with the
 * drift common to all nodes removed; 3 standard errors of this round's time; the largest standard error of a
 * kappa, because such errors let the planner see gains that do not exist; 2 %.
 *
 * rounds_left counts up to the limit of rounds, from the change point that began the search, in steps: as
 * many per round as this round had. Inside a run the steps left of it count instead.
 *
 * t_plan is 0 between runs. Inside a run all nodes wait for the planner, which then does not search a large
 * graph (dlb_place_again); t_plan is the time that planning took in this round, or the measured time of the
 * last change if that is longer. t_move is the time in which the state moves, each tensor over its own route.
 * Draining and warm-up cost one step each. */
#include "balance/culprit.h"
#include "balance/rules.h"
#include "comm/compress.h"
#include "place/moves.h"
#include "place/place.h"
#include "place/problem.h"
#include "place/replicas.h"
#include "place/value.h"
#include "plan/by_class.h"
#include "plan/schedule.h"
#include "util/clock.h"
#include "util/stats.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double least_error = 0.02;

/* err of the formula above. Uses rounds since the last change point, except those with corrected kappa: their
 * predictions came from another model. */
static double prediction_error(const struct dlb_balance *b, const struct dlb_load *l)
{
	double *e = dlb_xcalloc((size_t)b->n_history + 1, sizeof *e), q;
	int n = 0;

	for (int i = b->n_history - 1; i >= 0 && !b->history[i].changed; i--)
		if (b->history[i].expected_s > 0 && !b->history[i].held)
			e[n++] = b->history[i].step_s / (b->history[i].expected_s * b->history[i].drift) - 1;
	q = fmax(dlb_quantile(e, n, 0.9), 3 * l->round_se_s / l->round_s);
	free(e);
	for (int i = 0; i < b->n_nodes; i++)
		if (l->busy_s[i] > 0)
			q = fmax(q, dlb_balance_kappa_se(b, i, l->busy_se_s[i] / l->busy_s[i]));
	return fmax(least_error, q);
}

static bool ran_before(const struct dlb_balance *b, const char *hash)
{
	for (int i = b->n_history - 1; i >= 0; i--) {
		if (!strcmp(b->history[i].plan_hash, hash))
			return true;
		if (b->history[i].changed || b->history[i].round <= b->first_round)
			break;
	}
	return false;
}

/* Seconds in which the state moves from the present plan's nodes to those of `next`, each tensor over its own
 * route. */
static double moving_s(const struct dlb_balance_inputs *s, const struct dlb_problem *p,
		       const struct dlb_plan *next)
{
	struct dlb_problem q = *p;

	q.before = s->plan.placement;
	return dlb_place_migration_s(&q, next->placement);
}

/* Ranked seconds of a step of the best plan under kappa. */
static double best_under_s(const struct dlb_balance_inputs *s, const struct dlb_problem *p,
			   const struct dlb_balance *b, const double *kappa)
{
	struct dlb_problem q = *p;
	struct dlb_plan best = s->plan;
	double step_s = INFINITY;

	memset(&best.arena, 0, sizeof best.arena);
	dlb_balance_teams_set(&b->best_teams, &best);
	q.kappa = kappa;
	q.replicas = best.n_replicas > 1 ? &best : NULL;
	q.ordered = NULL;
	if (!dlb_problem_init(&q, NULL)) {
		step_s = dlb_place_value_s(&q, b->best_placement);
		dlb_problem_release(&q);
	}
	dlb_arena_release(&best.arena);
	return step_s;
}

/* T_now of the formula above. */
static double best_now_s(const struct dlb_balance_inputs *s, const struct dlb_problem *p,
			 const struct dlb_load *l, const struct dlb_balance *b)
{
	const struct dlb_balance_round *r = &b->history[b->n_history - 1];
	double was_s, now_s;

	if (!r->held || b->n_placement != s->plan.n_ops || !strcmp(b->best_plan_hash, l->plan_hash))
		return b->best_step_s;
	was_s = best_under_s(s, p, b, l->kappa) * r->drift; /* best_step_s includes the drift already */
	now_s = best_under_s(s, p, b, b->kappa);
	return isfinite(was_s) && isfinite(now_s) ? b->best_step_s * now_s / was_s : b->best_step_s;
}

static void keep_best(struct dlb_balance *b)
{
	b->keep = true;
	b->expected_s = b->best_step_s;
}

/* Seconds for the decision: a step of the best plan; simulated steps of the present and of the next plan; the
 * time in which no node trains because of the change. */
struct gate_times {
	double best, ranked_now, ranked_next, wait;
};

/* Decides between the best plan and another one that the planner offers. */
static void judge(const struct dlb_load *l, const struct dlb_balance_options *o, const struct dlb_plan *next,
		  const struct gate_times *s, struct dlb_balance *b)
{
	struct dlb_balance_round *r = &b->history[b->n_history - 1];
	double expected = l->round_s - (s->ranked_now - s->ranked_next) * fmin(1, l->round_s / s->ranked_now);
	double steps = o->left_steps > 0 ? o->left_steps :
					   (double)(o->max_rounds - dlb_balance_rounds(b)) * (double)l->steps;
	double gain = s->best - expected * (1 + prediction_error(b, l));
	double price = 2 * l->round_s + s->wait;

	r->gain_s = gain;
	r->price_s = price;
	r->decision = "moves";
	if (!isfinite(s->ranked_now)) {
		/* the present plan no longer fits: any plan that fits is better */
		b->keep = false;
		b->expected_s = next->value_s;
	} else if (ran_before(b, next->hash)) {
		/* A cycle: keep the best measured plan. In the first two rounds the model is still learning
		 * the nodes' speeds, so a return there is no cycle. */
		keep_best(b);
		r->decision = "repeats";
		if (b->n_history > 2 || !b->history[b->n_history - 1].held) {
			b->converged = true;
			b->reason = "cycle";
		}
	} else if (steps * gain > price) {
		b->keep = false;
		b->expected_s = expected;
		b->best_step_s = s->best;
	} else {
		keep_best(b);
		r->decision = "does not pay";
	}
}

static void keep_next(const struct dlb_plan *next, struct dlb_balance *b)
{
	b->next = dlb_xcalloc(1, sizeof *b->next);
	*b->next = *next;
}

/* Plans again. *same: the result is the present plan; else *now_s and *next_s are the simulated steps of the
 * present and the next plan under the present model. */
static int plan_again(const struct dlb_balance_inputs *s, const struct dlb_problem *p, struct dlb_plan *next,
		      bool *same, double *now_s, double *next_s, struct dlb_error *err)
{
	const char *algorithm = s->plan.algorithm_given ? s->plan.algorithm : NULL;
	struct dlb_replicas_choice choice = { .n = s->plan.n_replicas,
					      .sharing = s->plan.sharing,
					      .now = &s->plan,
					      .algorithm = algorithm,
					      .current = s->plan.placement };
	bool kept, shared = s->plan.n_replicas > 1;

	choice.sharing.n_by_size = 0; /* chosen again for the new replicas */
	if (shared ? dlb_place_replicas(p, &choice, next, next_s, &kept, err) :
		     dlb_place_again(p, algorithm, s->plan.placement, next, &kept, err))
		return -1;
	if (kept)
		next->winner = s->plan.winner;
	/* shares may change though the placement is kept */
	*same = (kept && !shared) || !strcmp(next->hash, s->plan.hash);
	if (*same)
		return 0;
	*next_s = shared ? *next_s : dlb_place_plan_s(p, next, NULL);
	*now_s = dlb_place_plan_s(p, &s->plan, &s->program);
	return 0;
}

int dlb_balance_gate(const struct dlb_balance_inputs *s, const struct dlb_load *l,
		     const struct dlb_balance_options *o, struct dlb_balance *b, struct dlb_error *err)
{
	const struct dlb_compress_choice compress = dlb_plan_compress(&s->plan, DLB_SUM_GRADIENT);
	struct dlb_problem p = { .graph = &s->graph,
				 .cluster = &s->cluster,
				 .cost = &s->cost,
				 .micro_batches = s->plan.micro_batches,
				 .batch = s->plan.batch,
				 .schedule = dlb_schedule_find(s->plan.schedule),
				 .staleness = s->plan.staleness,
				 .weight = b->weight,
				 .kappa = b->kappa,
				 .seed = s->plan.seed,
				 .n_state = s->n_state,
				 .keeps_residuals = dlb_compress_remembers(&compress),
				 .clip = s->plan.clip,
				 .inverse_every = s->plan.inverse_every,
				 .recompute = &s->plan.recompute,
				 .offload = &s->plan.offload,
				 .state_dtype = s->plan.state_dtype,
				 .pin = s->plan.pin,
				 .excluded = s->plan.excluded,
				 .ordered = &s->plan,
				 .compared = s->plan.n_replicas > 1,
				 .in_run = o->left_steps > 0 };
	struct dlb_error why = { .status = 0 };
	struct dlb_plan next;
	double now_s, next_s;
	const double start_s = dlb_clock_s();
	bool same;

	if (b->converged || b->keep)
		return 0;
	if (dlb_problem_init(&p, err))
		return -1;
	if (plan_again(s, &p, &next, &same, &now_s, &next_s, &why)) {
		/* no other plan fits; the present one does */
		dlb_problem_release(&p);
		if (why.status == 1) {
			keep_best(b);
			b->history[b->n_history - 1].decision = "no plan fits";
			return 0;
		}
		if (err)
			*err = why;
		return -1;
	}
	if (same) {
		/* The plan stays; if it is the best one, its order too. */
		b->keep = !strcmp(s->plan.hash, b->best_plan_hash);
		b->history[b->n_history - 1].decision = "same plan";
		b->expected_s = l->round_s;
	} else {
		const double plan_s = o->left_steps > 0 && !o->simulated ? dlb_clock_s() - start_s : 0;

		const struct gate_times times = { best_now_s(s, &p, l, b), now_s, next_s,
						  moving_s(s, &p, &next) + fmax(plan_s, o->change_s) };

		judge(l, o, &next, &times, b);
		if (!b->keep)
			keep_next(&next, b);
	}
	if (!b->next)
		dlb_plan_release(&next);
	dlb_problem_release(&p);
	return 0;
}

int dlb_rebalance(struct dlb_doc *d, const struct dlb_rule *rule, const struct dlb_balance_options *o,
		  struct dlb_balance *out, struct dlb_error *err)
{
	struct dlb_balance_inputs s;
	int rc;

	if (dlb_balance_inputs_read(d, &s, err))
		return -1;
	rc = dlb_rebalance_with(d, &s, rule, o, out, err);
	dlb_balance_inputs_release(&s);
	return rc;
}

static bool split_stays(const struct dlb_plan *p, const struct dlb_balance *b)
{
	return p->n_replicas > 1 && p->sharing.split_given && !p->sharing.by_power &&
	       !b->history[b->n_history - 1].test_b;
}

static const char *without_gate(const struct dlb_balance *b)
{
	const struct dlb_balance_round *r = &b->history[b->n_history - 1];

	return r->rolled_back ? "rolled back" :
	       b->converged   ? "ended" :
	       r->noisy	      ? "noise" :
	       b->keep	      ? "held" :
				"moves";
}

/* Corrects the links, and simulates the round again with them, before the rule sees it. */
static int correct_links(struct dlb_balance_inputs *s, struct dlb_arena *scratch, struct dlb_load *l,
			 struct dlb_balance *b, struct dlb_error *err)
{
	if (!dlb_balance_correct_links(s, l, b))
		return 0;
	if (dlb_load_of(s, b->kappa, scratch, l, err))
		return -1;
	l->links_changed = true;
	return 0;
}

/* Keeps the report's seconds to prepare samples, if it has any. */
static void keep_samples(const struct dlb_report *r, struct dlb_balance *b)
{
	if (!r->n_samples)
		return;
	b->n_samples = r->n_samples;
	b->sample = dlb_arena_array(&b->arena, (size_t)r->n_samples, sizeof *b->sample);
	for (int i = 0; i < r->n_samples; i++)
		b->sample[i] = (struct dlb_sample_time){ r->sample[i].node,
							 dlb_arena_strdup(&b->arena, r->sample[i].tensor),
							 r->sample[i].time_s };
}

int dlb_rebalance_with(struct dlb_doc *d, struct dlb_balance_inputs *s, const struct dlb_rule *rule,
		       const struct dlb_balance_options *o, struct dlb_balance *out, struct dlb_error *err)
{
	struct dlb_arena scratch = { 0 };
	struct dlb_load l;
	int rc = -1;

	if (dlb_balance_read(d, s->cluster.n_nodes, out, err))
		return -1;
	if (dlb_load_of(s, out->kappa, &scratch, &l, err))
		goto end;
	keep_samples(&s->report, out);
	dlb_culprit_find_awaited(s, &l, out);
	if (!(rule->gated && correct_links(s, &scratch, &l, out, err)) && !rule->update(&l, o, out, err) &&
	    !(rule->gated && dlb_balance_gate(s, &l, o, out, err))) {
		if (!out->history[out->n_history - 1].decision)
			out->history[out->n_history - 1].decision = without_gate(out);
		out->split_stays = split_stays(&s->plan, out);
		dlb_culprit_find_slow(s, &l, out);
		dlb_doc_put(d, "balance", dlb_balance_write(out));
		rc = 0;
	}
end:
	if (rc)
		dlb_balance_release(out);
	dlb_arena_release(&scratch);
	return rc;
}
