/* One round inside a run. See live.h. It calls the same functions as dlb-rebalance and dlb-place, so the
 * history is the same. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "balance/live.h"
#include "balance/replan.h"
#include "util/clock.h"

static const struct dlb_balance_options usual = { .stable = 3, .max_rounds = 50 };

/* Whether both plans run alike: with equal placements, nodes and shares of replicas, all of which the hash
 * covers, and with equal orders. */
static bool same_plan(const json_t *a, const json_t *b)
{
	const json_t *x = json_object_get(a, "nodes"), *y = json_object_get(b, "nodes");
	bool same = json_equal(json_object_get(a, "hash"), json_object_get(b, "hash")) &&
		    json_array_size(x) == json_array_size(y);

	for (size_t i = 0; same && i < json_array_size(x); i++)
		same = json_equal(json_object_get(json_array_get(x, i), "order"),
				  json_object_get(json_array_get(y, i), "order"));
	return same;
}

/* Whether the plan that ran in the last round is the one to keep. */
static bool stays(const struct dlb_balance *b)
{
	return (b->keep || b->converged) &&
	       !strcmp(b->best_plan_hash, b->history[b->n_history - 1].plan_hash);
}

int dlb_live_tell_ops(const json_t *plan, char *text, size_t size)
{
	const long long n = json_integer_value(json_object_get(plan, "moved_ops"));

	text[0] = '\0';
	return n ? snprintf(text, size, "%lld op%s with %.4g MB of state", n, n == 1 ? " moves" : "s move",
			    json_number_value(json_object_get(plan, "moved_bytes")) / 1e6) :
		   0;
}

/* Names the moves from plan `was` to plan `is`: of ops with their state, and of replicas' samples; "":
 * neither, only the order of ops changes. */
static void tell_moves(const json_t *was, const json_t *is, char out[100])
{
	enum { MOST = 6 }; /* most shares in the line */
	const json_t *share = json_object_get(is, "power");
	const bool samples = share && !json_equal(share, json_object_get(was, "power"));
	int n = dlb_live_tell_ops(is, out, 100);

	if (n && samples)
		n += snprintf(out + n, (size_t)(100 - n), ", ");
	for (size_t r = 0; samples && r < json_array_size(share) && r < MOST && n < 100; r++)
		n += snprintf(out + n, (size_t)(100 - n), "%s%.4g", r ? " : " : "replicas share samples as ",
			      json_number_value(json_array_get(share, r)));
	if (samples && n < 100 && json_array_size(share) > MOST)
		snprintf(out + n, (size_t)(100 - n), " ...");
}

static void say(const struct dlb_balance *b, const json_t *was, const json_t *plan, double took_s,
		struct dlb_round_decision *d)
{
	const struct dlb_balance_round *r = &b->history[b->n_history - 1];
	static const char even[] = "no samples move, as --split even asks";
	const bool is_reason = b->split_stays && !d->moves && !b->reason && !strcmp(r->decision, "same plan");
	char what[200], moves[100], culprit[160], links[160];

	dlb_culprit_tell(&b->culprit, r->step_s, culprit, sizeof culprit);
	tell_moves(was, plan, moves);
	snprintf(links, sizeof links, "%s%.150s", b->links_told ? "; " : "",
		 b->links_told ? b->links_told : "");
	if (d->moves)
		snprintf(what, sizeof what, "%s%s%s%.4g ms a step expected",
			 r->rolled_back ? "slower than the best plan, back to it: " :
			 b->keep        ? "back to the best plan: " :
					  "",
			 moves, moves[0] ? ", " : "", b->expected_s * 1e3);
	else if (r->price_s > 0)
		snprintf(what, sizeof what,
			 "stays: another plan %s, it would save %.3g ms a step and take %.3g ms", r->decision,
			 r->gain_s * 1e3, r->price_s * 1e3);
	else
		snprintf(what, sizeof what, "stays: %s%s%s", is_reason ? even : r->decision,
			 b->reason ? ", " : "", b->reason ? b->reason : "");
	snprintf(d->text, sizeof d->text,
		 "round %d: %.4g ms a step, %.4g ms predicted, excess waiting %.1f %%%s%s%s%s%s: %s%s%s; "
		 "decided "
		 "in "
		 "%.3g ms",
		 r->round, r->step_s * 1e3, r->predicted_step_s * 1e3, 100 * r->mean_excess_s / r->step_s,
		 r->changed ? ", something changed" : "", r->held ? ", the model was corrected" : "",
		 culprit[0] ? "; " : "", culprit, links, what, b->split_stays && !is_reason ? "; " : "",
		 b->split_stays && !is_reason ? even : "", took_s * 1e3);
}

/* Makes the next plan. *moves: whether it runs otherwise than `was`. */
static int replan(const struct dlb_cli *cli, const struct dlb_balance *b, const json_t *was,
		  struct dlb_doc *doc, bool *moves, struct dlb_error *err)
{
	struct dlb_cli quiet;
	struct dlb_replan o = dlb_replan_in_run(cli, &quiet);
	int rc;

	quiet.quiet = cli->quiet; /* so that it warns of scarce memory */
	o.next = b->next;
	rc = dlb_replan(&o, doc, err);
	*moves = !rc && !same_plan(was, dlb_doc_section(doc, "plan"));
	return rc;
}

/* Reads the sections that have changed since the last round, or all in the first round. */
static int read_inputs(struct dlb_live *l, const struct dlb_doc *doc, struct dlb_error *err)
{
	const int rc = l->is_read ? dlb_balance_inputs_again(doc, l->other_plan, &l->inputs, err) :
				    dlb_balance_inputs_read(doc, &l->inputs, err);

	if (!rc && l->is_read && !l->other_plan)	/* the plan's ops moved in an earlier round */
		l->inputs.plan.moved_ops = 0;
	l->is_read = rc == 0;
	return rc;
}

int dlb_live_round(void *live, const struct dlb_cli *cli, struct dlb_doc *doc, struct dlb_round_decision *d,
		   struct dlb_error *err)
{
	const double start_s = dlb_clock_s();
	struct dlb_balance_options o = usual;
	struct dlb_live *l = live;
	struct dlb_balance b;
	json_t *was;
	int rc;

	o.left_steps = d->left_steps == INT64_MAX ? INFINITY : (double)d->left_steps;
	o.change_s = d->change_s;
	o.simulated = l->simulated;
	if (read_inputs(l, doc, err) ||
	    dlb_rebalance_with(doc, &l->inputs, dlb_rule_find(l->rule ? l->rule : "log"), &o, &b, err))
		return -1;
	was = json_incref(dlb_doc_section(doc, "plan"));
	rc = stays(&b) ? 0 : replan(cli, &b, was, doc, &d->moves, err);
	l->other_plan = d->moves;
	if (!rc)
		say(&b, was, dlb_doc_section(doc, "plan"), dlb_clock_s() - start_s, d);
	json_decref(was);
	dlb_balance_release(&b);
	return rc;
}

void dlb_live_release(struct dlb_live *l)
{
	if (l->is_read)
		dlb_balance_inputs_release(&l->inputs);
	memset(&l->inputs, 0, sizeof l->inputs);
	l->is_read = l->other_plan = false;
}
