/* The report of a run: medians of each rank's figures, gathered on rank 0. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "exec/feed.h"
#include "exec/dispatch.h"
#include "exec/record.h"
#include "exec/run.h"
#include "plan/bucket_tensors.h"
#include "plan/replica.h"
#include "plan/sharing.h"
#include "plan/timeline.h"
#include "plan/tensors.h"
#include "util/mem.h"
#include "util/stats.h"
#include "util/process.h"

static double median_of(const struct dlb_record *rec, size_t offset, double *se)
{
	double *x = dlb_xmalloc(((size_t)rec->n_steps + 1) * sizeof *x), m;

	for (int i = 0; i < rec->n_steps; i++)
		memcpy(&x[i], (const char *)&rec->step[i] + offset, sizeof x[i]);
	m = dlb_median(x, rec->n_steps);
	if (se)
		*se = dlb_median_se(x, rec->n_steps);
	free(x);
	return m;
}

static double mean_of(const struct dlb_record *rec, size_t offset, double *se)
{
	double sum = 0.0, x;

	if (se)
		*se = NAN;
	for (int i = 0; i < rec->n_steps; i++) {
		memcpy(&x, (const char *)&rec->step[i] + offset, sizeof x);
		sum += x;
	}
	return rec->n_steps ? sum / rec->n_steps : 0.0;
}

struct node_summary {
	double comm_s, comm_hidden_s, in_place_bytes, fed_bytes;
	double busy_s, busy_se_s, waits_s[DLB_N_WAITS], bytes_sent, data_wait_s, offload_wait_s, command_s,
		shrunk, process_bytes, device_bytes, graphs, graph_ops, graph_steps;
	struct dlb_report_sum sum, cls[DLB_N_SUM_CLASSES];
	struct dlb_report_kfac kfac;			/* counts */
	char host[64];
	int n_ops, n_spans;
};

/* Whether compute c is the second half of an op, and c - 1 the first. */
static bool in_halves(const struct dlb_engine_program *v, int c)
{
	return c > 0 && !v->compute_is_op[c - 1] && v->compute_op[c - 1] == v->compute_op[c] &&
	       v->compute_m[c - 1] == v->compute_m[c];
}

/* Medians per op over the kept steps and micro-batches. */
static int ops_here(const struct run *r, struct dlb_report_op *out)
{
	const struct dlb_engine_program *v = dlb_engine_view(r->engine[0]);
	const struct dlb_record *rec = &r->record;
	const struct dlb_job *j = &r->job;
	const struct dlb_program *program = v->program;
	int M = program->micro_batches, n = 0;
	/* an op may run twice */
	double *x = dlb_xmalloc((2 * (size_t)rec->n_slots * (size_t)M + 1) * sizeof *x);
	int *next = dlb_xmalloc(((size_t)v->n_computes + 1) * sizeof *next), *head;

	head = dlb_xmalloc(((size_t)j->graph.n_ops + 1) * sizeof *head);
	for (int i = 0; i < j->graph.n_ops; i++)
		head[i] = -1;
	for (int c = 0; c < v->n_computes; c++) {
		if (!v->compute_is_op[c])
			continue;
		next[c] = head[v->compute_op[c]];
		head[v->compute_op[c]] = c;
	}
	for (int op = 0; op < j->graph.n_ops; op++) {
		int k = 0;

		for (int c = head[op]; c >= 0; c = next[c])
			for (int s = 0; s < rec->n_slots; s++) {
				size_t at = (size_t)s * (size_t)rec->n_computes + (size_t)c;

				x[k] = rec->end_s[at] - rec->start_s[at];
				if (in_halves(v, c))
					x[k] += rec->end_s[at - 1] - rec->start_s[at - 1];
				k++;
			}
		if (k)
			out[n++] = (struct dlb_report_op){
				.op = op,
				.node = r->rank,
				.time_s = dlb_median(x, k),
				.predicted_s = dlb_cost_use_s(&j->cost, op, r->rank,
							      (double)program->size[M / 2],
							      program->node[r->rank].use)
			};
	}
	free(x);
	free(next);
	free(head);
	return n;
}

static void spans_here(const struct run *r, int slot, struct dlb_span *out)
{
	const struct dlb_engine_program *v = dlb_engine_view(r->engine[0]);
	const struct dlb_record *rec = &r->record;

	for (int c = 0; c < v->n_computes; c++) {
		size_t at = (size_t)slot * (size_t)rec->n_computes + (size_t)c;

		out[c] = (struct dlb_span){ .op = v->compute_op[c],
					    .micro_batch = v->compute_m[c],
					    .start_s = rec->start_s[at],
					    .end_s = rec->end_s[at],
					    .again = v->compute_again[c] };
	}
}

/* The kept step whose time is nearest the median, by rank 0's clock. */
static int median_slot(const struct run *r, double step_s)
{
	int best = 0;

	for (int i = 1; i < r->record.n_slots; i++)
		if (fabs(r->record.slot_step_s[i] - step_s) < fabs(r->record.slot_step_s[best] - step_s))
			best = i;
	return best;
}

/* Sends ops and spans of every rank to rank 0, one rank after the other. */
static int collect(struct run *r, const struct node_summary *all, const struct dlb_report_op *ops,
		   const struct dlb_span *spans, struct dlb_report *report, struct dlb_error *err)
{
	int n = report->n_nodes, total = 0;

	if (r->rank) {
		struct dlb_request q[2] = { { 0 } };
		int n_ops = all[0].n_ops, n_spans = all[0].n_spans;

		dlb_comm_isend(r->comm, ops, (size_t)n_ops * sizeof *ops, 0, 1, &q[0]);
		dlb_comm_isend(r->comm, spans, (size_t)n_spans * sizeof *spans, 0, 2, &q[1]);
		return dlb_comm_wait(r->comm, &q[0], err) || dlb_comm_wait(r->comm, &q[1], err) ? -1 : 0;
	}
	for (int i = 0; i < n; i++)
		total += all[i].n_ops;
	report->op = dlb_arena_array(&report->arena, (size_t)total + 1, sizeof *report->op);
	report->timeline = dlb_arena_array(&report->arena, (size_t)n + 1, sizeof *report->timeline);
	report->n_spans = dlb_arena_array(&report->arena, (size_t)n + 1, sizeof *report->n_spans);
	for (int i = 0; i < n; i++) {
		struct dlb_request q[2] = { { 0 } };
		struct dlb_report_op *to = report->op + report->n_ops;
		struct dlb_span *span = dlb_arena_array(&report->arena, (size_t)all[i].n_spans + 1,
							sizeof *span);

		report->timeline[i] = span;
		report->n_spans[i] = all[i].n_spans;
		report->n_ops += all[i].n_ops;
		if (i == 0) {
			memcpy(to, ops, (size_t)all[0].n_ops * sizeof *to);
			memcpy(span, spans, (size_t)all[0].n_spans * sizeof *span);
			continue;
		}
		dlb_comm_irecv(r->comm, to, (size_t)all[i].n_ops * sizeof *to, i, 1, &q[0]);
		dlb_comm_irecv(r->comm, span, (size_t)all[i].n_spans * sizeof *span, i, 2, &q[1]);
		if (dlb_comm_wait(r->comm, &q[0], err) || dlb_comm_wait(r->comm, &q[1], err))
			return -1;
	}
	return 0;
}

static int by_op(const void *a, const void *b)
{
	const struct dlb_report_op *x = a, *y = b;

	return (x->op > y->op) - (x->op < y->op);
}

static void fill_nodes(const struct node_summary *all, struct dlb_report *report)
{
	for (int i = 0; i < report->n_nodes; i++) {
		struct dlb_report_node *n = &report->node[i];

		n->busy_s = all[i].busy_s;
		n->busy_se_s = all[i].busy_se_s;
		n->bytes_sent = all[i].bytes_sent;
		n->process_bytes = all[i].process_bytes;
		n->device_bytes = all[i].device_bytes;
		n->graphs = all[i].graphs;
		n->graph_ops = all[i].graph_ops;
		n->graph_steps = all[i].graph_steps;
		n->data_wait_s = all[i].data_wait_s;
		n->offload_wait_s = all[i].offload_wait_s;
		report->feed.bytes += all[i].fed_bytes;
		report->feed.wait_s = all[i].data_wait_s > report->feed.wait_s ? all[i].data_wait_s :
										 report->feed.wait_s;
		report->communication.bytes += all[i].bytes_sent - all[i].sum.bytes - all[i].fed_bytes;
		report->communication.time_s += all[i].comm_s;
		report->communication.hidden_s += all[i].comm_hidden_s;
		report->communication.in_place_bytes += all[i].in_place_bytes;
		n->host = dlb_arena_strdup(&report->arena, all[i].host);
		memcpy(n->waits_s, all[i].waits_s, sizeof n->waits_s);
		for (int k = 0; k < DLB_N_WAITS; k++)
			n->wait_s += all[i].waits_s[k];
	}
}

/* Only optimizers with a running maximum guarantee a bound that can be violated. */
static void count_violations(const struct dlb_job *j, const struct node_summary *all,
			     struct dlb_report *report)
{
	if (j->optimizer.rule != DLB_RULE_MAX_ADABELIEF)
		return;
	report->optimizer_violations = 0;
	for (int i = 0; i < report->n_nodes; i++)
		report->optimizer_violations += dlb_plan_replica_of(&j->plan, i) == 0 ? all[i].shrunk : 0;
}

static void kfac_here(const struct run *r, struct dlb_report_kfac *mine)
{
	const struct dlb_kfac_counts c = dlb_kfac_counted(r->kfac), *was = &r->kfac_counts;

	*mine = (struct dlb_report_kfac){ .inverses = c.inverses + was->inverses,
					  .shifted = c.shifted + was->shifted,
					  .kept = c.kept + was->kept,
					  .not_finite = c.not_finite + was->not_finite,
					  .held_back = c.held_back + was->held_back };
	for (int i = 0; i < r->n_engines; i++) {
		const struct dlb_sync *x = dlb_engine_sync(r->engine[i]);
		const struct dlb_sync_times *t = x ? dlb_sync_times(x) : NULL;

		if (!t)
			continue;
		mine->exchanges += t->factor_exchanges;
		mine->not_symmetric += t->not_symmetric;
		mine->not_definite += t->not_definite;
		mine->shifted += t->shifted;
		mine->hops_failed += t->hops_failed;
	}
}

/* Figures that are equal on all replicas are counted in replica 0 alone. */
static void count_kfac(const struct dlb_job *j, const struct node_summary *all, struct dlb_report *report)
{
	struct dlb_report_kfac *to = &report->kfac;

	for (int i = 0; i < report->n_nodes; i++) {
		const struct dlb_report_kfac *k = &all[i].kfac;

		to->not_finite += k->not_finite;
		/* equal on all nodes that have layers */
		to->held_back = k->held_back > to->held_back ? k->held_back : to->held_back;
		to->hops_failed += k->hops_failed;
		if (dlb_plan_replica_of(&j->plan, i))
			continue;
		to->inverses += k->inverses;
		to->shifted += k->shifted;
		to->kept += k->kept;
		to->exchanges += k->exchanges;
		to->not_symmetric += k->not_symmetric;
		to->not_definite += k->not_definite;
	}
}

/* Bytes and seconds of a step's synchronisation on this node. Averages of weights run only every few steps,
 * which a median would not show: their mean is taken. */
static void sums_here(const struct run *r, struct node_summary *mine)
{
	double (*of_step)(const struct dlb_record *, size_t,
			  double *) = dlb_sharing_averages(&r->job.plan.sharing) ? mean_of : median_of;
	const struct dlb_sync_times *t;

	if (!dlb_engine_sync(r->engine[0]))
		return;
	t = dlb_sync_times(dlb_engine_sync(r->engine[0]));
	mine->sum.time_s = of_step(&r->record, offsetof(struct dlb_step_times, sum_s), NULL);
	mine->sum.hidden_s = of_step(&r->record, offsetof(struct dlb_step_times, sum_hidden_s), NULL);
	mine->command_s = of_step(&r->record, offsetof(struct dlb_step_times, command_s), NULL);
	for (size_t k = 0; k < DLB_N_SUM_CLASSES; k++) {
		mine->cls[k] = (struct dlb_report_sum){
			.bytes = t->bytes[k],
			.dense_bytes = t->dense_bytes[k],
			.time_s = of_step(&r->record,
					  offsetof(struct dlb_step_times, class_s) + k * sizeof(double),
					  NULL),
			.hidden_s = of_step(&r->record,
					    offsetof(struct dlb_step_times, class_hidden_s) +
						    k * sizeof(double),
					    NULL)
		};
		mine->sum.bytes += mine->cls[k].bytes;
		mine->sum.dense_bytes += mine->cls[k].dense_bytes;
	}
}

static void add_sum(struct dlb_report_sum *all, const struct dlb_report_sum *one)
{
	all->bytes += one->bytes;
	all->dense_bytes += one->dense_bytes;
	if (one->time_s > all->time_s) {
		all->time_s = one->time_s;
		all->hidden_s = one->hidden_s > 0.0 ? one->hidden_s : 0.0;
	}
}

static void fill_sums(const struct run *r, const struct node_summary *all, struct dlb_report *report)
{
	struct dlb_report_allreduce *a = &report->allreduce;

	if (r->job.plan.n_replicas < 2)
		return;
	a->algorithm = dlb_sharing_name(&r->job.plan.sharing);
	a->apart = r->apart;
	for (int i = 0; i < report->n_nodes; i++) {
		add_sum(&a->all, &all[i].sum);
		for (int k = 0; k < DLB_N_SUM_CLASSES; k++)
			add_sum(&a->cls[k], &all[i].cls[k]);
		a->command_s = all[i].command_s > a->command_s ? all[i].command_s : a->command_s;
	}
}

static int largest(const int *x, int n)
{
	int most = 0;

	for (int i = 0; i < n; i++)
		most = x[i] > most ? x[i] : most;
	return most;
}

static void add_ranks(const struct run *r, const struct dlb_ranks_seen *seen, int n,
		      struct dlb_report *report)
{
	for (int k = 0; k < n; k++)
		report->allreduce.rank[report->allreduce.n_ranks++] = (struct dlb_report_rank){
			dlb_bucket_tensor_name(&r->job.graph, seen[k].id, &report->arena), seen[k].least,
			seen[k].median, seen[k].most, seen[k].bound
		};
}

/* Sends the matrix ranks of the compressed tensors on replica 0's nodes to MPI rank 0. */
static int collect_ranks(struct run *r, struct dlb_report *report, struct dlb_error *err)
{
	const int n_nodes = report->n_nodes;
	const bool tells = dlb_plan_replica_of(&r->job.plan, r->rank) == 0;
	struct dlb_ranks_seen one, *seen;
	int n = 0, sum = 0, *all = dlb_xcalloc((size_t)n_nodes + 1, sizeof *all), rc;

	while (tells && dlb_compress_state_ranks(r->compress, n, &one))
		n++;
	rc = dlb_comm_gather(r->comm, &n, sizeof n, all, 0, err);
	for (int i = 0; i < n_nodes; i++)
		sum += all[i];
	report->allreduce.rank = dlb_arena_array(&report->arena, (size_t)sum + 1,
						 sizeof *report->allreduce.rank);
	seen = dlb_xcalloc((size_t)(r->rank ? n : largest(all, n_nodes)) + 1, sizeof *seen);
	for (int i = 0; i < n; i++)
		dlb_compress_state_ranks(r->compress, i, &seen[i]);
	if (r->rank && n && !rc) {
		struct dlb_request q = { 0 };

		dlb_comm_isend(r->comm, seen, (size_t)n * sizeof *seen, 0, 3, &q);
		rc = dlb_comm_wait(r->comm, &q, err);
	}
	for (int i = 0; r->rank == 0 && i < n_nodes && !rc; i++) {
		struct dlb_request q = { 0 };

		if (i && all[i])
			dlb_comm_irecv(r->comm, seen, (size_t)all[i] * sizeof *seen, i, 3, &q);
		rc = all[i] ? dlb_comm_wait(r->comm, &q, err) : 0;
		if (!rc)
			add_ranks(r, seen, all[i], report);
	}
	free(seen);
	free(all);
	return rc;
}

static bool is_sample(const struct dlb_tensor *t) { return dlb_tensor_is_fed(t) && t->kind != DLB_T_SEED; }

/* Seconds in which nodes prepared a sample of each fed tensor: the report's list, on rank 0. Collective. */
static int collect_samples(struct run *r, struct dlb_report *report, struct dlb_error *err)
{
	const struct dlb_graph *g = &r->job.graph;
	const int n_nodes = r->job.plan.n_nodes;
	int n_tensors = 0, n_times = 0, *tensor = dlb_xcalloc((size_t)g->n_tensors + 1, sizeof *tensor), rc;
	struct dlb_feed_time *time = r->feed ? dlb_feed_take_times(r->feed, &n_times) : NULL;
	double *s;

	for (int t = 0; t < g->n_tensors; t++)
		if (is_sample(&g->tensor[t]))
			tensor[n_tensors++] = t;
	s = dlb_xcalloc((size_t)n_nodes * (size_t)n_tensors + 1, sizeof *s);
	for (int k = 0; k < n_tensors; k++)
		for (int i = 0; i < n_times; i++)
			if (time[i].tensor == tensor[k] && time[i].samples > 0)
				s[r->rank * n_tensors + k] = time[i].time_s / time[i].samples;
	rc = dlb_comm_allreduce_f64(r->comm, s, n_nodes * n_tensors, DLB_COMM_MAX, err);
	report->sample = dlb_arena_array(&report->arena, (size_t)n_nodes * (size_t)n_tensors + 1,
					 sizeof *report->sample);
	for (int i = 0; i < n_nodes * n_tensors && !rc && !r->rank; i++)
		if (s[i] > 0)
			report->sample[report->n_samples++] = (struct dlb_sample_time){
				i / n_tensors,
				dlb_arena_strdup(&report->arena, g->tensor[tensor[i % n_tensors]].name), s[i]
			};
	free(s);
	free(time);
	free(tensor);
	return rc;
}

int dlb_run_report(struct run *r, struct dlb_report *report, struct dlb_error *err)
{
	const struct dlb_record *rec = &r->record;
	const struct dlb_engine_program *v = dlb_engine_view(r->engine[0]);
	int n = r->job.plan.n_nodes, slot = 0, rc;
	struct node_summary mine = { .busy_s = 0 }, *all = dlb_xcalloc((size_t)n + 1, sizeof *all);
	struct dlb_report_op *ops = dlb_xcalloc((size_t)r->job.graph.n_ops + 1, sizeof *ops);
	struct dlb_span *spans = dlb_xcalloc((size_t)rec->n_computes + 1, sizeof *spans);

	dlb_job_report(&r->job, &r->program[0], report);
	report->first_step = r->first_step;
	report->steps = r->at.step - r->first_step;
	report->stopped = r->stopped;
	report->wall_s = r->wall_s;
	report->step_s = median_of(rec, offsetof(struct dlb_step_times, step_s), &report->step_se_s);
	slot = median_slot(r, report->step_s);
	rc = dlb_comm_bcast(r->comm, &slot, sizeof slot, 0, err);
	mine.busy_s = median_of(rec, offsetof(struct dlb_step_times, busy_s), &mine.busy_se_s);
	for (int k = 0; k < DLB_N_WAITS; k++)
		mine.waits_s[k] = median_of(rec,
					    offsetof(struct dlb_step_times, waits_s) +
						    (size_t)k * sizeof(double),
					    NULL);
	mine.comm_s = median_of(rec, offsetof(struct dlb_step_times, comm_s), NULL);
	mine.in_place_bytes = median_of(&r->record, offsetof(struct dlb_step_times, in_place_bytes), NULL);
	mine.comm_hidden_s = median_of(rec, offsetof(struct dlb_step_times, comm_hidden_s), NULL);
	mine.data_wait_s = median_of(rec, offsetof(struct dlb_step_times, data_wait_s), NULL);
	mine.offload_wait_s = median_of(rec, offsetof(struct dlb_step_times, offload_s), NULL);
	if (v->replayed.steps) {
		mine.graphs = v->replayed.n;
		mine.graph_ops = v->replayed.ops;
		mine.graph_steps = (double)v->replayed.steps;
	}
	sums_here(r, &mine);
	kfac_here(r, &mine.kfac);
	mine.fed_bytes = r->dispatch ? dlb_dispatch_bytes(r->dispatch) : 0;
	mine.bytes_sent = dlb_engine_view(r->engine[0])->times.bytes_sent + mine.sum.bytes + mine.fed_bytes;
	/* without the files in memory, which outlive the process */
	mine.process_bytes = dlb_process_own_bytes() - dlb_buddy_mapped_bytes(r->buddy);
	if (r->be.ops->free_bytes)
		mine.device_bytes = r->device_free_bytes - r->be.ops->free_bytes(&r->be);
	mine.shrunk = r->shrunk;
	for (int i = 0; i < r->n_engines; i++)
		mine.shrunk += (double)dlb_engine_view(r->engine[i])->shrunk;
	snprintf(mine.host, sizeof mine.host, "%s", dlb_comm_host(r->comm));
	mine.n_ops = rec->n_slots ? ops_here(r, ops) : 0;
	mine.n_spans = rec->n_slots ? rec->n_computes : 0;
	if (mine.n_spans)
		spans_here(r, slot, spans);
	all[0] = mine;
	rc = rc || dlb_comm_gather(r->comm, &mine, sizeof mine, all, 0, err) ||
			     collect(r, all, ops, spans, report, err) || collect_ranks(r, report, err) ||
			     collect_samples(r, report, err) ?
		     -1 :
		     0;
	if (!rc && r->rank == 0) {
		fill_nodes(all, report);
		count_violations(&r->job, all, report);
		fill_sums(r, all, report);
		count_kfac(&r->job, all, report);
		if (report->n_ops)
			qsort(report->op, (size_t)report->n_ops, sizeof *report->op, by_op);
		for (int i = 0; i < report->n_ops; i++) /* rank 0 has the newest kappa */
			report->op[i].predicted_s *= r->job.kappa[report->op[i].node];
		report->loss = dlb_arena_array(&report->arena, (size_t)r->n_losses + 1, sizeof *report->loss);
		report->n_losses = (int)r->n_losses;
		if (r->n_losses)
			memcpy(report->loss, r->loss, (size_t)r->n_losses * sizeof *report->loss);
		rc = dlb_job_predict(&r->job, &r->program[0], report, err);
		if (!rc && r->buddy)
			dlb_buddy_predict(&r->job, r->o->buddy_every, report);
		dlb_report_conclude(report);
	}
	free(all);
	free(ops);
	free(spans);
	rc = dlb_comm_agree(r->comm, rc, err, NULL);
	return rc || (r->buddy && dlb_buddy_report(r->buddy, report, err)) ? -1 : 0;
}
