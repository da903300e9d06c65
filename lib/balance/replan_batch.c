/* Batches that fit: --batch auto, and suggestions if no plan fits. See replan_batch.h. */
#include "balance/replan_batch.h"
#include <stdlib.h>
#include <string.h>
#include "place/problem.h"
#include "plan/schedule.h"
#include "plan/sharing.h"

struct at_batch { struct replan_input *in; const struct dlb_problem *p; };

/* Whether the plan has no replicas and cannot fit, since its states exceed the nodes' memory. text: receives
 * this reason. */
static bool states_exceed(const struct replan_input *in, const struct dlb_problem *p,
			  char text[DLB_STATES_TEXT])
{
	double have = 0;

	for (int d = 0; d < p->cluster->n_nodes; d++)
		have += p->free_node[d] ? p->memory_bytes[d] : 0;
	return dlb_replan_replicas(in).n == 1 &&
	       dlb_problem_states_exceed(p, have, "the nodes", text, DLB_STATES_TEXT);
}

/* Seconds per step of the plan for another batch or number of micro-batches. -1 with err. */
static int plan_with(struct replan_input *in, const struct dlb_problem *p, int64_t batch, int micro_batches,
		     double *value_s, struct dlb_error *err)
{
	struct dlb_problem q = *p;
	struct dlb_plan plan = { .n_ops = 0 };
	struct dlb_trial *trial = NULL;
	char text[DLB_STATES_TEXT];
	int rc, n_trials = 0;

	q.batch = batch;
	q.quick = true;
	q.micro_batches = micro_batches;
	q.tried = NULL;
	q.said = NULL;
	q.warned = NULL;
	if (dlb_problem_init(&q, err))
		return -1;
	in->quiet = true;
	rc = states_exceed(in, &q, text) ? dlb_fail_no(err, NULL, "no plan fits: %s", text) :
					   dlb_replan_make(in, &q, &plan, &trial, &n_trials, err);
	in->quiet = false;
	if (!rc)
		*value_s = plan.value_s;
	free(trial);
	dlb_plan_release(&plan);
	dlb_problem_release(&q);
	return rc;
}

/* A plan for dlb_place_batch. arg: a struct at_batch. */
static int plan_at_batch(void *arg, int64_t batch, double *value_s, struct dlb_error *err)
{
	const struct at_batch *x = arg;
	const struct dlb_cli *cli = x->in->options->cli;
	const int rc = plan_with(x->in, x->p, batch, x->p->micro_batches, value_s, err);

	if (rc)
		dlb_cli_say(cli, "batch %-6lld %.120s", (long long)batch, err->what);
	else
		dlb_cli_say(cli, "batch %-6lld step %.6g ms, %.4g us a sample", (long long)batch, *value_s * 1e3,
			    *value_s / (double)batch * 1e6);
	return rc;
}

int dlb_replan_batch(struct replan_input *in, struct dlb_problem *p, struct dlb_batch_search *s,
			struct dlb_error *err)
{
	const struct dlb_replan *o = in->options;
	const struct dlb_replicas_choice c = dlb_replan_replicas(in);
	struct at_batch x = { in, p };
	char most[80];

	if (p->objective != DLB_STEP)
		return dlb_fail(err, NULL, "--batch auto compares simulated steps, and --objective %s has none",
				dlb_objectives[p->objective]);
	s->plan = plan_at_batch;
	s->arg = &x;
	s->first = p->batch;
	s->least = c.n > 1 ? c.n : 1;
	if (dlb_place_batch(s, err))
		return -1;
	if (s->bounded)
		snprintf(most, sizeof most, "%lld is the largest that fits", (long long)s->largest);
	else
		snprintf(most, sizeof most, "none above %lld was tried", (long long)s->largest);
	dlb_cli_warn(o->cli, "batch %lld is the fastest per sample within %g %%, of %d tried; %s%s",
		     (long long)s->chosen, DLB_BATCH_NEAR * 100, s->n_trials, most,
		     s->chosen > in->graph.batch ? "; times above the profile's batch are extrapolated "
						    "(dlb-profile --batch)" :
						    "");
	dlb_problem_release(p);
	p->batch = s->chosen;
	return dlb_problem_init(p, err);
}

json_t *dlb_replan_write_batches(const struct dlb_batch_search *s)
{
	json_t *list = json_array();

	for (int i = 0; i < s->n_trials; i++) {
		json_t *o = json_pack("{sI}", "batch", (json_int_t)s->trial[i].batch);

		dlb_set_finite(o, "value_s", s->trial[i].value_s);
		json_array_append_new(list, o);
	}
	return list;
}

int64_t dlb_replan_next_micro_batches(int64_t now, int64_t tried, int64_t batch)
{
	const int64_t next = tried == 0 ? (now > 1 ? 1 : 2) : 2 * (tried < now ? now : tried);

	return next <= DLB_SUGGEST_MICRO_BATCHES && next <= batch ? next : 0;
}

/* The first number of micro-batches that fits; 0: none. */
static int micro_batches_that_fit(struct replan_input *in, const struct dlb_problem *p)
{
	const bool chosen = in->options->schedule && !strcmp(in->options->schedule, "auto");
	int64_t M = 0;
	double value_s;

	while (!chosen && (M = dlb_replan_next_micro_batches(p->micro_batches, M, p->batch)) > 0) {
		struct dlb_error ignored = { .what = "" };

		if (plan_with(in, p, p->batch, (int)M, &value_s, &ignored) == 0)
			break;
	}
	return (int)M;
}

/* The largest batch below the problem's, to a sixteenth, whose plan fits; 0: none. */
static int64_t batch_that_fits(struct replan_input *in, const struct dlb_problem *p)
{
	struct at_batch x = { in, p };
	struct dlb_error ignored = { .what = "" };
	struct dlb_batch_search s = { .plan = plan_at_batch, .arg = &x, .first = p->batch };
	const int n = dlb_replan_replicas(in).n;
	int64_t most = 0;

	s.least = n > 1 ? n : 1;
	if (dlb_place_batch(&s, &ignored) == 0)
		most = s.largest;
	free(s.trial);
	return most;
}

/* Whether a plan with ops that run again fits, of those made without a search. */
static bool fits_with_recompute(const struct replan_input *in, const struct dlb_problem *p)
{
	static const struct dlb_recompute chosen = { .chosen = true };
	static const char *const placers[] = { "single", "even" };
	struct dlb_problem q = *p;
	bool fits = false;

	if ((p->recompute && (p->recompute->chosen || p->recompute->n)) || dlb_replan_replicas(in).n != 1 ||
	    p->schedule->async)
		return false;
	q.recompute = &chosen;
	q.quick = true;
	q.tried = NULL;
	q.said = NULL;
	q.warned = NULL;
	if (dlb_problem_init(&q, NULL))
		return false;
	for (int i = 0; i < DLB_LEN(placers) && !fits; i++) {
		struct dlb_plan plan = { .n_ops = 0 };
		fits = dlb_place(&q, placers[i], &plan, NULL) == 0;
		if (fits)
			dlb_plan_release(&plan);
	}
	dlb_problem_release(&q);
	return fits;
}

/* The least stage of --zero above the present one whose plan fits; 0: none, or there are no replicas. */
static int zero_that_fits(struct replan_input *in, const struct dlb_problem *p)
{
	const struct dlb_replicas_choice c = dlb_replan_replicas(in);
	const struct dlb_replan *options = in->options;
	double value_s;
	int found = 0;

	for (int zero = c.sharing.zero + 1; zero <= DLB_MOST_ZERO && !found && c.n != 1; zero++) {
		struct dlb_replan with = *options;
		struct dlb_error ignored = { .what = "" };

		with.sharing.zero = zero;
		with.sharing.zero_given = true;
		if (dlb_sharing_undivided(&c.sharing))
			break;
		in->options = &with;
		if (plan_with(in, p, p->batch, p->micro_batches, &value_s, &ignored) == 0)
			found = zero;
		in->options = options;
	}
	return found;
}

void dlb_replan_suggest(struct replan_input *in, const struct dlb_problem *p, struct dlb_error *err)
{
	static const char cure[] = "try more micro-batches or nodes";
	struct dlb_problem plain = *p;
	char *at = strstr(err->hint, cure), more[64] = "", less[64] = "", also[64] = "";
	int M, zero;
	int64_t batch;

	if (!at || p->objective != DLB_STEP || p->graph->fixed_batch ||
	    (int64_t)p->graph->n_ops * p->cluster->n_nodes > DLB_SUGGEST_ITEMS)
		return;
	/* a plan that fits without ops that run again also fits if they are allowed */
	plain.recompute = p->recompute && p->recompute->chosen ? NULL : p->recompute;
	M = micro_batches_that_fit(in, &plain);
	batch = p->batch > 1 ? batch_that_fits(in, &plain) : 0;
	zero = zero_that_fits(in, &plain);
	if (fits_with_recompute(in, p))
		strcpy(also, "--recompute auto");
	else if (zero)
		snprintf(also, sizeof also, "--zero %d", zero);
	if (!M && !batch && !also[0]) {
		char text[DLB_STATES_TEXT];

		if (states_exceed(in, p, text))
			snprintf(at, sizeof err->hint - (size_t)(at - err->hint),
				 "%s: try more nodes, --offload or --state-dtype", text);
		return;
	}
	if (M)
		snprintf(more, sizeof more, "--micro-batches %d", M);
	if (batch)
		snprintf(less, sizeof less, "--batch %lld", (long long)batch);
	snprintf(at, sizeof err->hint - (size_t)(at - err->hint), "%s%s%s%s%s%s", more,
		 M && batch ? " or " : "", less, M || batch ? " would fit" : "",
		 (M || batch) && also[0] ? ", and so would " : "", also);
	if (!M && !batch)
		strncat(err->hint, " would fit", sizeof err->hint - strlen(err->hint) - 1);
}
