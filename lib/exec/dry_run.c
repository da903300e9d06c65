/* --dry-run: the simulator executes the programs that would run and fills the report. With --slow the
 * simulated nodes are slower than the cost model says (predictions ignore --slow), so balancing can be tried
 * on a cluster that exists only as a file. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "exec/buddy.h"
#include "exec/job.h"
#include "exec/step_log.h"
#include "plan/bucket_cost.h"
#include "plan/replica.h"
#include "plan/schedule.h"
#include "plan/sharing.h"
#include "plan/tensors.h"
#include "plan/timeline.h"
#include "util/mem.h"
#include "util/stats.h"

static void ops_of(const struct dlb_job *j, const struct dlb_program *p, const double *scale,
		   struct dlb_report *r)
{
	int m = p->micro_batches / 2;

	r->op = dlb_arena_array(&r->arena, (size_t)j->graph.n_ops + 1, sizeof *r->op);
	for (int i = 0; i < j->graph.n_ops; i++) {
		int node = j->plan.placement[i];
		double s = dlb_cost_use_s(&j->cost, i, node, (double)p->size[m], p->node[node].use);

		if (dlb_graph_is_view(&j->graph, i))
			continue;
		r->op[r->n_ops++] = (struct dlb_report_op){ .op = i, .node = node, .time_s = s * scale[node],
							    .predicted_s = s * j->kappa[node] };
	}
}

/* Hidden seconds of node i's sums, by class. If the node waited for a class longer than the class took, the
 * excess was waiting for other classes in flight. It is subtracted from the hidden seconds of the other
 * classes, in proportion to them. */
static void hidden_of(const struct dlb_timeline *t, int i, double hidden[DLB_N_SUM_CLASSES])
{
	double excess = 0.0, left = 0.0;

	for (int k = 0; k < DLB_N_SUM_CLASSES; k++) {
		hidden[k] = t->node[i].sum_s[k] - t->node[i].sum_wait_s[k];
		excess += hidden[k] < 0.0 ? -hidden[k] : 0.0;
		hidden[k] = hidden[k] > 0.0 ? hidden[k] : 0.0;
		left += hidden[k];
	}
	for (int k = 0; k < DLB_N_SUM_CLASSES && left > 0.0; k++)
		hidden[k] *= excess < left ? 1.0 - excess / left : 0.0;
}

/* Reports bytes and seconds of the replicas' sums, from the lists of hops that would run. */
static void sums_of(const struct dlb_job *j, const struct dlb_program *p, const struct dlb_timeline *t,
		    struct dlb_report *r)
{
	struct dlb_report_allreduce *a = &r->allreduce;

	if (p->n_replicas < 2)
		return;
	a->algorithm = dlb_sharing_name(&j->plan.sharing);
	a->apart = NAN;
	dlb_report_expect_ranks(r, p);
	for (int i = 0; i < r->n_nodes; i++) {
		double all_s = 0.0, hidden_s = 0.0, hidden[DLB_N_SUM_CLASSES],
		       bytes[DLB_N_SUM_CLASSES] = { 0.0 }, dense[DLB_N_SUM_CLASSES] = { 0.0 };

		a->command_s = fmax(a->command_s, t->node[i].command_s);
		dlb_plan_sum_bytes(p, &j->cluster, i, bytes, dense);
		hidden_of(t, i, hidden);
		for (int k = 0; k < DLB_N_SUM_CLASSES; k++) {
			double s = t->node[i].sum_s[k];

			a->cls[k].bytes += bytes[k];
			a->cls[k].dense_bytes += dense[k];
			if (s > a->cls[k].time_s) {
				a->cls[k].time_s = s;
				a->cls[k].hidden_s = hidden[k];
			}
			a->all.bytes += bytes[k];
			a->all.dense_bytes += dense[k];
			r->node[i].bytes_sent += bytes[k];
			all_s += s;
			hidden_s += hidden[k];
		}
		if (all_s > a->all.time_s) {
			a->all.time_s = all_s;
			a->all.hidden_s = hidden_s;
		}
	}
}

static void timeline_of(const struct dlb_timeline *t, struct dlb_report *r)
{
	r->timeline = dlb_arena_array(&r->arena, (size_t)r->n_nodes + 1, sizeof *r->timeline);
	r->n_spans = dlb_arena_array(&r->arena, (size_t)r->n_nodes + 1, sizeof *r->n_spans);
	for (int i = 0; i < r->n_nodes; i++) {
		r->n_spans[i] = t->n_spans[i];
		r->timeline[i] = dlb_arena_array(&r->arena, (size_t)t->n_spans[i] + 1, sizeof **r->timeline);
		if (t->n_spans[i])
			memcpy(r->timeline[i], t->span[i], (size_t)t->n_spans[i] * sizeof **r->timeline);
	}
}

/* Reports the times of one simulated step. */
static void times_of(const struct dlb_timeline *t, struct dlb_report *r)
{
	r->step_s = t->step_s;
	for (int i = 0; i < r->n_nodes; i++) {
		r->node[i].busy_s = t->node[i].busy_s;
		r->node[i].wait_s = t->node[i].wait_s;
		r->node[i].bytes_sent = t->node[i].bytes_sent;
		r->node[i].offload_wait_s = t->node[i].offload_s;
		r->node[i].data_wait_s = t->node[i].data_wait_s;
		r->communication.bytes += t->node[i].bytes_sent;
		r->communication.time_s += t->node[i].comm_s;
		r->communication.hidden_s += t->node[i].comm_hidden_s;
		memcpy(r->node[i].waits_s, t->node[i].waits_s, sizeof t->node[i].waits_s);
	}
	r->feed.bytes = t->feed_bytes;
	r->communication.bytes -= t->feed_bytes;
	r->feed.wait_s = t->feed_wait_s;
}

/* The seconds to prepare samples that were simulated, so that the next plan has them too. */
static void samples_of(const struct dlb_job *j, struct dlb_report *r)
{
	const struct dlb_graph *g = &j->graph;
	const int n = j->plan.sharing.feed_host ? 1 : r->n_nodes;

	if (!j->cost.sample_s)
		return;
	for (int t = 0; t < g->n_tensors; t++)
		r->n_samples += dlb_cost_sample_s(&j->cost, t, 0) > 0 ? n : 0;
	r->sample = dlb_arena_array(&r->arena, (size_t)r->n_samples + 1, sizeof *r->sample);
	r->n_samples = 0;
	for (int t = 0; t < g->n_tensors; t++)
		for (int i = 0; i < n && dlb_cost_sample_s(&j->cost, t, 0) > 0; i++)
			r->sample[r->n_samples++] = (struct dlb_sample_time){
				i, dlb_arena_strdup(&r->arena, g->tensor[t].name),
				dlb_cost_sample_s(&j->cost, t, i)
			};
}

/* Fills the members that are common to the reports of simulated runs and rounds. */
static int begin_report(const struct dlb_job *j, const struct dlb_program *p, int64_t steps,
			struct dlb_report *r, struct dlb_error *err)
{
	memset(r, 0, sizeof *r);
	dlb_job_report(j, p, r);
	r->dry_run = true;
	r->steps = steps;
	samples_of(j, r);
	r->stopped = "steps";
	return dlb_job_predict(j, p, r, err);
}

/* steps between two drains of the log, since lines are produced faster than a disk writes them */
enum { DRAIN_EVERY = 1000 };

/* Writes the log of steps. All simulated steps are equal; the log serves programs that read such logs. */
static int log_steps(const struct dlb_exec_options *o, const struct dlb_timeline *t,
		     const struct dlb_report *r, struct dlb_error *err)
{
	struct dlb_node_step *node = dlb_xcalloc((size_t)r->n_nodes + 1, sizeof *node);
	struct dlb_step_row row = {
		.simulated = true, .step_s = r->step_s, .node = node, .n_nodes = r->n_nodes, .eval_s = NAN
	};
	struct dlb_step_log *log = NULL;
	int rc = dlb_step_log_open(&log, o->step_log, 0, r->n_nodes, err);

	for (int i = 0; i < r->n_nodes; i++) {
		node[i] = (struct dlb_node_step){ .busy_s = t->node[i].busy_s,
						  .bytes_sent = r->node[i].bytes_sent,
						  .sum_bytes = r->node[i].bytes_sent -
							       t->node[i].bytes_sent };
		memcpy(node[i].waits_s, t->node[i].waits_s, sizeof node[i].waits_s);
	}
	for (row.step = 1; row.step <= r->steps && !rc; row.step++) {
		row.wall_s = r->step_s * (double)row.step;
		dlb_step_log_write(log, &row);
		rc = row.step % DRAIN_EVERY ? 0 : dlb_step_log_drain(log, err);
	}
	rc = rc || dlb_step_log_drain(log, err) ? -1 : 0;
	dlb_step_log_close(log, 0);
	free(node);
	return rc;
}

int dlb_exec_dry_run(const struct dlb_doc *doc, const struct dlb_exec_options *o, struct dlb_report *report,
		     struct dlb_error *err)
{
	struct dlb_job j = { .kappa = NULL };
	struct dlb_program p = { .n_nodes = 0 };
	struct dlb_timeline t;
	double *scale = NULL;
	int rc = -1;

	memset(report, 0, sizeof *report);
	if (dlb_job_read(&j, doc, o, err) || dlb_job_compile(&j, j.plan.batch, &p, err))
		goto out;
	if (dlb_buddy_check(&j, o, err) || begin_report(&j, &p, o->steps > 0 ? o->steps : 1, report, err))
		goto out;
	if (o->buddy_every)
		dlb_buddy_predict(&j, o->buddy_every, report);
	scale = dlb_xcalloc((size_t)report->n_nodes + 1, sizeof *scale);
	for (int i = 0; i < report->n_nodes; i++)
		scale[i] = o->slow && i < o->n_slow ? o->slow[i] : 1.0;
	if (dlb_program_simulate(&p, &j.cost,
				 &(struct dlb_simulate_choice){
					 .node_scale = scale, .seed = o->seed, .keep_spans = true },
				 &t, err))
		goto out;
	times_of(&t, report);
	report->wall_s = t.step_s * (double)report->steps;
	ops_of(&j, &p, scale, report);
	sums_of(&j, &p, &t, report);
	timeline_of(&t, report);
	dlb_report_conclude(report);
	rc = o->step_log ? log_steps(o, &t, report, err) : 0;
	dlb_timeline_release(&t, report->n_nodes);
out:
	free(scale);
	dlb_program_release(&p);
	dlb_job_release(&j);
	return rc;
}

/* ---- rounds on nodes and links that change ---- */

struct dlb_dry {
	const struct dlb_exec_options *o;
	struct dlb_job job;
	struct dlb_program program;
	struct dlb_cluster world; /* the cluster with the true bandwidths of the simulated links */
	struct dlb_report expected; /* the members that all reports of the present program have in common */
	/* [node] seconds of a step if the node computes all ops, by the costs; INFINITY: it lacks a kernel */
	double *alone_s;
};

/* Seconds of all ops of a step on one node, for the whole batch, which is the sum of all replicas'
 * batches. */
static double alone_s(const struct dlb_job *j, const struct dlb_program *p, int node)
{
	const double size = (double)j->plan.batch / p->micro_batches;
	double s = 0.0;

	for (int i = 0; i < j->graph.n_ops; i++)
		s += dlb_cost_op_s(&j->cost, i, node, size) *
		     (j->graph.op[i].phase == DLB_UPDATE ? 1 : p->micro_batches);
	return s;
}

/* Compiles and predicts the program; called after the plan has changed. */
static int prepare(struct dlb_dry *d, struct dlb_error *err)
{
	dlb_report_release(&d->expected);
	return dlb_job_compile(&d->job, d->job.plan.batch, &d->program, err) ||
			       begin_report(&d->job, &d->program, d->o->round_steps, &d->expected, err) ?
		       -1 :
		       0;
}

/* As begin_report, but copies the predictions that prepare has made. */
static void begin_round(const struct dlb_dry *d, struct dlb_report *r)
{
	const struct dlb_report *x = &d->expected;

	memset(r, 0, sizeof *r);
	dlb_job_report_plan(&d->job, &d->program, r);
	r->dry_run = x->dry_run;
	r->steps = x->steps;
	r->stopped = x->stopped;
	r->predicted_step_s = x->predicted_step_s;
	r->predicted_step_low_s = x->predicted_step_low_s;
	r->predicted_step_high_s = x->predicted_step_high_s;
	for (int i = 0; i < r->n_nodes; i++) {
		r->node[i].predicted_busy_s = x->node[i].predicted_busy_s;
		r->node[i].predicted_process_bytes = x->node[i].predicted_process_bytes;
	}
}

int dlb_dry_open(struct dlb_dry **out, const struct dlb_doc *doc, const struct dlb_exec_options *o,
		 struct dlb_error *err)
{
	struct dlb_dry *d = *out = dlb_xcalloc(1, sizeof *d);

	d->o = o;
	if (dlb_job_read(&d->job, doc, o, err) || dlb_cluster_read(doc, &d->world, err) || prepare(d, err))
		return -1;
	d->alone_s = dlb_xcalloc((size_t)d->job.plan.n_nodes + 1, sizeof *d->alone_s);
	for (int i = 0; i < d->job.plan.n_nodes; i++)
		d->alone_s[i] = alone_s(&d->job, &d->program, i);
	return 0;
}

int dlb_dry_replan(struct dlb_dry *d, const struct dlb_doc *doc, struct dlb_error *err)
{
	struct dlb_plan before;
	const int rc = dlb_job_replan(&d->job, doc, &before, err);

	dlb_program_release(&d->program);
	dlb_plan_release(&before);
	return rc || prepare(d, err) ? -1 : 0;
}

static int fastest_first(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x < y) - (x > y);
}

/* Adds this simulated step's part of the round's mean *ideal (exec.h). The pipeline uses the number of
 * fastest nodes that gives the shortest step. */
static void add_ideal(const struct dlb_dry *d, const struct dlb_dry_round *r, const double *scale,
		      struct dlb_dry_ideal *ideal)
{
	const struct dlb_plan *p = &d->job.plan;
	const struct dlb_schedule *schedule = dlb_schedule_find(p->schedule);
	const int R = p->n_replicas > 1 ? p->n_replicas : 1;
	double *speed = dlb_xcalloc((size_t)p->n_nodes + 1, sizeof *speed), sum = 0.0, least = INFINITY;
	int n = 0;

	for (int i = 0; i < p->n_nodes; i++)
		if (!r->lost[i] && isfinite(d->alone_s[i]) && d->alone_s[i] > 0.0)
			speed[n++] = 1.0 / (d->alone_s[i] * scale[i]);
	qsort(speed, (size_t)n, sizeof *speed, fastest_first);
	for (int k = 0; k < n; k++) {
		sum += speed[k];
		least = fmin(least,
			     dlb_schedule_pipeline_factor(schedule, k / R + 1, d->program.micro_batches) /
				     sum);
	}
	free(speed);
	if (n) {
		ideal->divided_s += 1.0 / sum / r->n_steps;
		ideal->scheduled_s += least / r->n_steps;
	}
}

int dlb_dry_round(struct dlb_dry *d, const struct dlb_dry_round *r, struct dlb_report *report,
		  struct dlb_dry_ideal *ideal, struct dlb_error *err)
{
	const int n = d->job.plan.n_nodes, k = r->n_steps;
	struct dlb_cost cost = d->job.cost;
	double *step_s = dlb_xcalloc((size_t)k + 1, sizeof *step_s),
	       *busy_s = dlb_xcalloc((size_t)n * (size_t)k + 1, sizeof *busy_s);
	int rc = 0;

	begin_round(d, report);
	for (int i = 0; i < d->world.n_links; i++)
		d->world.link[i].bandwidth_Bps = d->job.cluster.link[i].stated_Bps * r->link_scale[i];
	cost.cluster = &d->world;
	*ideal = (struct dlb_dry_ideal){ .divided_s = 0.0 };
	for (int s = 0; s < k && !rc; s++) {
		const double *scale = &r->scale[(size_t)s * (size_t)n];
		const struct dlb_simulate_choice c = { .node_scale = scale, .seed = d->o->seed };
		struct dlb_timeline t;

		rc = dlb_program_simulate(&d->program, &cost, &c, &t, err);
		if (rc)
			break;
		if (!s)
			times_of(&t, report);
		step_s[s] = t.step_s;
		for (int i = 0; i < n; i++)
			busy_s[(size_t)i * (size_t)k + (size_t)s] = t.node[i].busy_s;
		add_ideal(d, r, scale, ideal);
		dlb_timeline_release(&t, n);
	}
	if (!rc && k > 1) {
		report->step_se_s = dlb_median_se(step_s, k);
		report->step_s = dlb_median(step_s, k);
		for (int i = 0; i < n; i++) {
			double *x = &busy_s[(size_t)i * (size_t)k];

			report->node[i].busy_se_s = dlb_median_se(x, k);
			report->node[i].busy_s = dlb_median(x, k);
			report->node[i].wait_s = fmax(0.0, report->step_s - report->node[i].busy_s);
		}
	}
	if (!rc) {
		report->wall_s = report->step_s * (double)report->steps;
		dlb_report_conclude(report);
	}
	free(step_s);
	free(busy_s);
	return rc;
}

void dlb_dry_free(struct dlb_dry *d)
{
	if (!d)
		return;
	free(d->alone_s);
	dlb_report_release(&d->expected);
	dlb_program_release(&d->program);
	dlb_cluster_release(&d->world);
	dlb_job_release(&d->job);
	free(d);
}
