/* Names the slow node, the likely cause, and the step without it. See culprit.h. */
#include "balance/culprit.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "plan/timeline.h"
#include "util/mem.h"
#include "util/stats.h"

static const double slow_part = 0.05; /* fraction of a step: a smaller loss is not reported */
static const double surely = 0.5; /* memory is named if its error is below this fraction of computing's */

/* ---- data ---- */

static bool find_starved(const struct dlb_balance_inputs *s, double step_s, struct dlb_culprit *c)
{
	for (int i = 0; i < s->plan.n_nodes; i++) {
		const double without_s = step_s - s->report.node[i].data_wait_s;

		if (without_s < (1 - slow_part) * step_s && (!c->cause || without_s < c->step_s))
			*c = (struct dlb_culprit){ .cause = DLB_CAUSE_DATA, .node = i, .step_s = without_s };
	}
	return c->cause != DLB_CAUSE_NONE;
}

/* ---- computing and memory ---- */

/* The fraction of an op's time that its memory traffic takes, at the bandwidth of adding gradients; at most
 * 1. */
static double traffic_part(const struct dlb_balance_inputs *s, int op, int kind)
{
	const int64_t n = s->plan.batch / s->plan.micro_batches;
	const double op_s = dlb_cost_kind_s(&s->cost, op, kind, (double)n);

	return fmin(1, dlb_op_bytes_at(&s->graph, op, n) / s->cost.accumulate_Bps[kind] / op_s);
}

/* Seconds of an op of the node, or of all, by the report: predicted; the memory traffic in it; measured. */
struct op_times {
	double predicted_s, traffic_s, time_s;
};
static int times_of(const struct dlb_balance_inputs *s, int node, struct op_times *x, struct op_times *sum)
{
	int n = 0;

	*sum = (struct op_times){ 0, 0, 0 };
	for (int i = 0; i < s->report.n_ops; i++) {
		const struct dlb_report_op *o = &s->report.op[i];

		if (o->node != node || !(o->predicted_s > 0) || !(o->time_s > 0))
			continue;
		x[n] = (struct op_times){ o->predicted_s,
					  o->predicted_s * traffic_part(s, o->op, s->cluster.node[node].kind),
					  o->time_s };
		sum->predicted_s += x[n].predicted_s;
		sum->traffic_s += x[n].traffic_s;
		sum->time_s += x[n].time_s;
		n++;
	}
	return n;
}

/* Whether slower memory traffic explains the times of the node's ops better than slower computing does. Let t
 * be an op's time, p its prediction, and r the memory traffic in p. The models are t = a p and t = p + b r,
 * each with the factor that gives the sum of all times. Their error is the sum of squares of ln(t / model),
 * weighted by p. */
static bool slow_at_memory(const struct dlb_balance_inputs *s, int node)
{
	struct op_times *x = dlb_xcalloc((size_t)s->report.n_ops + 1, sizeof *x), sum;
	const int n = times_of(s, node, x, &sum);
	const double a = sum.time_s / sum.predicted_s, b = (sum.time_s - sum.predicted_s) / sum.traffic_s;
	double by_computing = 0, by_memory = 0;

	for (int i = 0; i < n && sum.traffic_s > 0 && b > 0; i++) {
		by_computing += x[i].predicted_s * pow(log(x[i].time_s / (a * x[i].predicted_s)), 2);
		by_memory += x[i].predicted_s *
			     pow(log(x[i].time_s / (x[i].predicted_s + b * x[i].traffic_s)), 2);
	}
	free(x);
	return by_memory < surely * by_computing;
}

/* The node that is slowest relative to its costs; -1: none was measured. */
static int slowest(const struct dlb_balance *b)
{
	int node = -1;

	for (int i = 0; i < b->n_nodes; i++)
		if (b->kappa_rounds[i] > 0 && (node < 0 || b->kappa[i] > b->kappa[node]))
			node = i;
	return node;
}

/* The median kappa of the other measured nodes of the node's kind; if there are none, the node's own
 * kappa. */
static double usual_kappa(const struct dlb_balance_inputs *s, const struct dlb_balance *b, int node)
{
	double *kappa = dlb_xcalloc((size_t)b->n_nodes + 1, sizeof *kappa), usual = b->kappa[node];
	int n = 0;

	for (int i = 0; i < b->n_nodes; i++)
		if (i != node && s->cluster.node[i].kind == s->cluster.node[node].kind &&
		    b->kappa_rounds[i] > 0)
			kappa[n++] = b->kappa[i];
	if (n)
		usual = dlb_quantile(kappa, n, 0.5);
	free(kappa);
	return usual;
}

/* Seconds of a simulated step of the present plan with these kappas; NAN: the simulation fails. */
static double step_under(const struct dlb_balance_inputs *s, const double *kappa)
{
	double step_s;

	return dlb_program_step_s(&s->program, &s->cost, kappa, &step_s, NULL) ? NAN : step_s;
}

/* The fraction of the step that remains if the node has the usual kappa of its kind. */
static double healthy_part(const struct dlb_balance_inputs *s, const struct dlb_balance *b, int node)
{
	const double usual = usual_kappa(s, b, node);
	double *kappa, now_s, healthy_s;

	if (usual >= b->kappa[node])
		return 1;
	kappa = dlb_xcalloc((size_t)b->n_nodes + 1, sizeof *kappa);
	memcpy(kappa, b->kappa, (size_t)b->n_nodes * sizeof *kappa);
	now_s = step_under(s, kappa);
	kappa[node] = usual;
	healthy_s = step_under(s, kappa);
	free(kappa);
	return healthy_s / now_s;
}

static bool find_slow(const struct dlb_balance_inputs *s, const struct dlb_balance *b, double step_s,
		      struct dlb_culprit *c)
{
	const int node = slowest(b);
	double part;

	if (node < 0 || !b->history[b->n_history - 1].held)
		return false;
	part = healthy_part(s, b, node);
	if (part < 1 - slow_part)
		*c = (struct dlb_culprit){ .cause = slow_at_memory(s, node) ? DLB_CAUSE_MEMORY :
									      DLB_CAUSE_COMPUTING,
					   .node = node,
					   .step_s = part * step_s };
	return c->cause != DLB_CAUSE_NONE;
}

/* ---- the round ---- */

void dlb_culprit_find_awaited(const struct dlb_balance_inputs *s, const struct dlb_load *l,
			      struct dlb_balance *b)
{
	struct dlb_culprit *c = &b->culprit;

	*c = (struct dlb_culprit){ .cause = DLB_CAUSE_NONE };
	if (find_starved(s, l->round_s, c))
		return;
	dlb_slow_link_find(s, l, c);
	c->link = c->link ? dlb_arena_strdup(&b->arena, c->link) : NULL;
	c->or_link = c->or_link ? dlb_arena_strdup(&b->arena, c->or_link) : NULL;
}

void dlb_culprit_find_slow(const struct dlb_balance_inputs *s, const struct dlb_load *l,
			   struct dlb_balance *b)
{
	struct dlb_culprit *c = &b->culprit, found = { .cause = DLB_CAUSE_NONE };

	if (c->cause == DLB_CAUSE_DATA || (c->cause == DLB_CAUSE_LINK && l->links_changed))
		return;
	if (find_slow(s, b, l->round_s, &found))
		*c = found;
}

/* Names the links that may be the slow one. */
static void tell_links(const struct dlb_culprit *c, char *text, size_t size)
{
	if (c->n_links > 2)
		snprintf(text, size, "one of %d links, %.40s among them,", c->n_links, c->link);
	else
		snprintf(text, size, "link %.40s%s%.40s", c->link, c->n_links > 1 ? " or " : "",
			 c->n_links > 1 ? c->or_link : "");
}

void dlb_culprit_tell(const struct dlb_culprit *c, double step_s, char *text, size_t size)
{
	const double part = 100 * (step_s - c->step_s) / step_s;
	char links[100];

	text[0] = 0;
	if (c->cause == DLB_CAUSE_DATA)
		snprintf(text, size, "node %d waits %.1f %% of a step for data", c->node, part);
	if (c->cause == DLB_CAUSE_LINK) {
		tell_links(c, links, sizeof links);
		snprintf(text, size,
			 "%s has about %.3g MB/s instead of %.4g: with them, a step would take %.4g ms "
			 "(-%.0f %%)",
			 links, c->measured_Bps / 1e6, c->stated_Bps / 1e6, c->step_s * 1e3, part);
	}
	if (c->cause == DLB_CAUSE_COMPUTING || c->cause == DLB_CAUSE_MEMORY)
		snprintf(text, size,
			 "node %d is slow at %s: as others of its kind, a step would take %.4g ms (-%.0f %%)",
			 c->node, c->cause == DLB_CAUSE_MEMORY ? "memory-bound ops" : "computing",
			 c->step_s * 1e3, part);
}
