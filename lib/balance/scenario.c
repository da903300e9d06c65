/* Simulated rounds on a cluster that changes. See scenario.h. */
#include "balance/scenario.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "balance/live.h"
#include "balance/replan.h"
#include "balance/survive.h"
#include "util/mem.h"
#include "util/rng.h"

enum { NOISY_STEPS = 5 }; /* steps simulated for a noisy round, whose times are their medians */

const struct dlb_scenario_way dlb_scenario_ways[] = {
	{ "log", "log", NULL },  { "patent", "patent", NULL }, { "even", NULL, "even" },
	{ "start", NULL, NULL }, { NULL, NULL, NULL },
};

/* ---- the cluster in a round ---- */

static bool holds(const struct dlb_scenario_event *e, enum dlb_scenario_kind kind, int at, int64_t round)
{
	return e->kind == kind && (e->at < 0 || e->at == at) && e->first <= round && round <= e->last;
}

bool dlb_scenario_lost(const struct dlb_scenario *s, int node, int64_t round)
{
	for (int i = 0; i < s->n; i++)
		if (holds(&s->event[i], DLB_SCENARIO_FAILURE, node, round))
			return true;
	return false;
}

double dlb_scenario_scale(const struct dlb_scenario *s, int node, int64_t round, int step)
{
	double factor = 1.0, spread = 0.0;

	for (int i = 0; i < s->n; i++) {
		const struct dlb_scenario_event *e = &s->event[i];

		if (holds(e, DLB_SCENARIO_NOISE, node, round))
			spread = e->value;
		if (holds(e, DLB_SCENARIO_STRAGGLER, node, round))
			factor *= e->value;
		if (e->kind == DLB_SCENARIO_DRIFT && e->at == node && e->first <= round)
			factor *= pow(e->value, (double)((round < e->last ? round : e->last) - e->first + 1));
	}
	if (spread > 0.0)
		factor *= exp(spread * dlb_philox_normal(s->seed, (uint64_t)node,
							 (uint64_t)round * NOISY_STEPS + (uint64_t)step));
	return factor;
}

double dlb_scenario_link(const struct dlb_scenario *s, int link, int64_t round)
{
	double factor = 1.0;

	for (int i = 0; i < s->n; i++)
		if (holds(&s->event[i], DLB_SCENARIO_LINK, link, round))
			factor *= s->event[i].value;
	return factor;
}

static bool is_noisy(const struct dlb_scenario *s, int64_t round)
{
	for (int i = 0; i < s->n; i++)
		if (s->event[i].kind == DLB_SCENARIO_NOISE && s->event[i].value > 0 &&
		    s->event[i].first <= round && round <= s->event[i].last)
			return true;
	return false;
}

/* ---- a run by one way to balance ---- */

struct trial {
	const struct dlb_cli *cli;
	const struct dlb_exec_options *o;
	const struct dlb_scenario *s;
	const struct dlb_scenario_way *way;
	struct dlb_doc *doc;
	struct dlb_live live;
	struct dlb_dry *dry;
	json_t *exclude; /* of the plan at the start; NULL: none */
	int n_nodes, n_links;
	bool *lost, *was_lost;
	double *scale, *link_scale;
	struct dlb_report_event *event;
	int n_events, cap;
	struct dlb_report_way sum;
};

static int length_of(const struct dlb_doc *doc, const char *member)
{
	return (int)json_array_size(json_object_get(dlb_doc_section(doc, "cluster"), member));
}

/* Plans again after nodes were lost or came back. */
static int plan_for_nodes(struct trial *t, bool any, struct dlb_error *err)
{
	json_t *plan = dlb_doc_section(t->doc, "plan");
	struct dlb_cli quiet;
	struct dlb_replan o = dlb_replan_in_run(t->cli, &quiet);
	char text[256];

	if (t->exclude)
		json_object_set(plan, "exclude", t->exclude);
	else
		json_object_del(plan, "exclude");
	if (dlb_balance_begin_search(t->doc, t->n_nodes, err) ||
	    (any ? dlb_survive(t->cli, t->doc, t->lost, t->n_nodes, text, err) : dlb_replan(&o, t->doc, err)))
		return -1;
	dlb_live_release(&t->live);
	t->sum.moved_ops += json_integer_value(json_object_get(dlb_doc_section(t->doc, "plan"), "moved_ops"));
	return dlb_dry_replan(t->dry, t->doc, err);
}

/* Finds the nodes that fail or come back before this round; if there are any, plans again. */
static int find_lost(struct trial *t, int64_t round, struct dlb_error *err)
{
	bool any = false, changed = false;

	for (int i = 0; i < t->n_nodes; i++) {
		t->lost[i] = dlb_scenario_lost(t->s, i, round);
		any |= t->lost[i];
		if (t->lost[i] == t->was_lost[i])
			continue;
		changed = true;
		t->was_lost[i] = t->lost[i];
		DLB_GROW(t->event, t->n_events, t->cap);
		t->event[t->n_events++] = (struct dlb_report_event){
			.step = (round - 1) * t->o->round_steps,
			.node = i,
			.rejoined = !t->lost[i],
			.cause = t->lost[i] ? "the scenario has it fail" : "the scenario has it back",
			.notice_s = NAN,
			.resume_s = NAN
		};
	}
	return changed ? plan_for_nodes(t, any, err) : 0;
}

static int balance(struct trial *t, int64_t round, const struct dlb_report *report, struct dlb_error *err)
{
	const int64_t left = (t->o->rounds - round) * t->o->round_steps;
	struct dlb_round_decision d = { .left_steps = left ? left : 1 };

	dlb_report_set(t->doc, report);
	if (dlb_live_round(&t->live, t->cli, t->doc, &d, err))
		return -1;
	if (t->way == dlb_scenario_ways)
		dlb_cli_say(t->cli, "%s", d.text);
	if (!d.moves)
		return 0;
	t->sum.moved_ops += json_integer_value(json_object_get(dlb_doc_section(t->doc, "plan"), "moved_ops"));
	return dlb_dry_replan(t->dry, t->doc, err);
}

/* Simulates a round, and balances if the way has a rule. report: of this round; the caller releases it, also
 * after -1. */
static int play_round(struct trial *t, int64_t round, struct dlb_report *report, struct dlb_error *err)
{
	const int n_steps = is_noisy(t->s, round) ? NOISY_STEPS : 1;
	const struct dlb_dry_round r = { n_steps, t->scale, t->link_scale, t->lost };
	struct dlb_dry_ideal ideal;

	if (find_lost(t, round, err))
		return -1;
	for (int k = 0; k < n_steps; k++)
		for (int i = 0; i < t->n_nodes; i++)
			t->scale[(size_t)k * (size_t)t->n_nodes +
				 (size_t)i] = dlb_scenario_scale(t->s, i, round, k) *
					      (t->o->slow && i < t->o->n_slow ? t->o->slow[i] : 1.0);
	for (int i = 0; i < t->n_links; i++)
		t->link_scale[i] = dlb_scenario_link(t->s, i, round);
	if (dlb_dry_round(t->dry, &r, report, &ideal, err))
		return -1;
	t->sum.step_s += report->step_s / (double)t->o->rounds;
	t->sum.efficiency += ideal.divided_s / report->step_s / (double)t->o->rounds;
	t->sum.schedule_efficiency += ideal.scheduled_s / report->step_s / (double)t->o->rounds;
	return t->way->rule ? balance(t, round, report, err) : 0;
}

/* Makes the plan with which the way starts. */
static int start(struct trial *t, struct dlb_error *err)
{
	struct dlb_cli quiet;
	struct dlb_replan o = dlb_replan_in_run(t->cli, &quiet);

	o.algorithm = t->way->algorithm;
	return t->way->algorithm && dlb_replan(&o, t->doc, err) ? -1 :
								  dlb_dry_open(&t->dry, t->doc, t->o, err);
}

/* Simulates all rounds on t->doc. report: of the last one. */
static int play(struct trial *t, struct dlb_report *report, struct dlb_error *err)
{
	const size_t n = (size_t)t->n_nodes + 1;
	int rc;

	t->live = (struct dlb_live){ .rule = t->way->rule, .simulated = true };
	t->exclude = json_incref(json_object_get(dlb_doc_section(t->doc, "plan"), "exclude"));
	t->lost = dlb_xcalloc(n, sizeof *t->lost);
	t->was_lost = dlb_xcalloc(n, sizeof *t->was_lost);
	t->scale = dlb_xcalloc(n * NOISY_STEPS, sizeof *t->scale);
	t->link_scale = dlb_xcalloc((size_t)t->n_links + 1, sizeof *t->link_scale);
	t->sum.name = t->way->name;
	memset(report, 0, sizeof *report);
	rc = start(t, err);
	for (int64_t round = 1; round <= t->o->rounds && !rc; round++) {
		dlb_report_release(report);
		rc = play_round(t, round, report, err);
	}
	dlb_dry_free(t->dry);
	dlb_live_release(&t->live);
	free(t->link_scale);
	free(t->scale);
	free(t->was_lost);
	free(t->lost);
	json_decref(t->exclude);
	return rc;
}

/* ---- all ways ---- */

static void say(const struct dlb_cli *cli, const struct dlb_report_way *w, int64_t rounds)
{
	dlb_cli_warn(cli,
		     "--scenario: %-6s %lld rounds, efficiency %.1f %% of perfectly divisible ops (%.1f %% under "
		     "the same schedule), %.4g ms a step, %lld ops moved",
		     w->name, (long long)rounds, 100 * w->efficiency, 100 * w->schedule_efficiency, w->step_s * 1e3,
		     (long long)w->moved_ops);
}

static void warn_late(const struct dlb_cli *cli, const struct dlb_scenario *s, int64_t rounds)
{
	int late = 0;

	for (int i = 0; i < s->n; i++)
		late += s->event[i].first > rounds;
	if (late)
		dlb_cli_warn(cli, "--scenario: %d event%s no effect: the last round is %lld", late,
			     late == 1 ? " has" : "s have", (long long)rounds);
}

/* Simulates another way on a copy of the document. */
static int compare(const struct trial *first, const struct dlb_doc *doc, const char *name,
		   struct dlb_report_way *sum, struct dlb_error *err)
{
	struct dlb_doc copy = *doc;
	struct dlb_report report;
	struct trial t = { .cli = first->cli,
			   .o = first->o,
			   .s = first->s,
			   .doc = &copy,
			   .n_nodes = first->n_nodes,
			   .n_links = first->n_links };
	int rc;

	for (t.way = dlb_scenario_ways; strcmp(t.way->name, name);)
		t.way++;
	copy.root = json_deep_copy(doc->root);
	rc = play(&t, &report, err);
	*sum = t.sum;
	free(t.event);
	dlb_report_release(&report);
	json_decref(copy.root);
	return rc;
}

int dlb_scenario_run(const struct dlb_cli *cli, struct dlb_doc *doc, const struct dlb_exec_options *o,
		     const char *path, struct dlb_report *report, struct dlb_error *err)
{
	struct dlb_scenario s = { .n = 0 };
	struct dlb_cluster cl;
	struct trial t = { .cli = cli,
			   .o = o,
			   .s = &s,
			   .way = dlb_scenario_ways,
			   .doc = doc,
			   .n_nodes = length_of(doc, "nodes"),
			   .n_links = length_of(doc, "links") };
	struct dlb_report_way *way;
	int rc, n = 1;

	memset(report, 0, sizeof *report);
	if (dlb_cluster_read(doc, &cl, err))
		return -1;
	rc = dlb_scenario_read(path, &cl, &s, err);
	dlb_cluster_release(&cl);
	if (rc)
		return -1;
	warn_late(cli, &s, o->rounds);
	way = dlb_xcalloc((size_t)s.n_compare + 1, sizeof *way);
	for (; n <= s.n_compare && !rc; n++)
		rc = compare(&t, doc, s.compare[n - 1], &way[n], err);
	rc = rc || play(&t, report, err) ? -1 : 0;
	way[0] = t.sum;
	for (int i = 0; i < n && !rc; i++)
		say(cli, &way[i], o->rounds);
	if (!rc) {
		report->rounds = o->rounds;
		report->n_ways = n;
		report->way = dlb_arena_array(&report->arena, (size_t)n, sizeof *way);
		memcpy(report->way, way, (size_t)n * sizeof *way);
		report->n_events = t.n_events;
		report->event = dlb_arena_array(&report->arena, (size_t)t.n_events + 1, sizeof *t.event);
		if (t.n_events)
			memcpy(report->event, t.event, (size_t)t.n_events * sizeof *t.event);
	}
	free(t.event);
	free(way);
	dlb_scenario_release(&s);
	return rc;
}
