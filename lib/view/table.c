/* Writes the document as a table: one block per section, in the order of the pipe. */
#include "plan/by_class.h"
#include "plan/replica.h"
#include "plan/sharing.h"
#include "plan/timeline.h"
#include "util/escape.h"
#include "view/view.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

int dlb_view_table(const struct dlb_view *v, FILE *f, struct dlb_error *err);

#define MOST_EVALUATIONS 20		/* rows */
enum { SHOWN_NODES = 64 };

struct work_times { const char *name; double flop, time_s; int n; };

static int by_time(const void *a, const void *b)
{
	const struct work_times *x = a, *y = b;

	if (x->time_s != y->time_s)
		return x->time_s < y->time_s ? 1 : -1;
	return x->flop < y->flop ? 1 : x->flop > y->flop ? -1 : strcmp(x->name, y->name);
}

/* Seconds of each op on the first kind: from the cost section, else the profile, else NAN. */
static double *op_times(const struct dlb_view *v)
{
	double *s = dlb_xcalloc((size_t)v->graph.n_ops + 1, sizeof *s);

	for (int i = 0; i < v->graph.n_ops; i++)
		s[i] = v->has_cost ? dlb_cost_kind_s(&v->cost, i, 0, (double)v->graph.batch) : NAN;
	if (v->has_cost || !v->has_profile || !v->profile.n_kinds || !v->profile.n_batches)
		return s;
	for (int r = 0; r < v->profile.n_rows; r++)
		for (int k = 0; k < v->profile.row[r].n_ops; k++)
			s[v->profile.row[r].op[k]] = v->profile.row[r].time_s[0][0];
	return s;
}

/* Work by op type: count, FLOP, and seconds if known. */
static void work_table(const struct dlb_view *v, FILE *f)
{
	const struct dlb_graph *g = &v->graph;
	struct work_times *w = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *w);
	double total_s = 0, *time_s = op_times(v);
	int n = 0, k;

	for (int i = 0; i < g->n_ops; i++) {
		for (k = 0; k < n && strcmp(w[k].name, g->op[i].type); k++)
			;
		if (k == n)
			w[n++].name = g->op[i].type;
		w[k].n++;
		w[k].flop += g->op[i].flop;
		if (isfinite(time_s[i]))
			w[k].time_s += time_s[i], total_s += time_s[i];
	}
	qsort(w, (size_t)n, sizeof *w, by_time);
	fprintf(f, "  %-28s %5s %12s", "op type", "ops", "work");
	fprintf(f, total_s > 0 ? " %12s %6s\n" : "\n", "time", "share");
	for (k = 0; k < n && k < 12; k++) {
		char a[32], b[32];

		fprintf(f, "  %-28s %5d %12s", w[k].name, w[k].n, dlb_view_flop(w[k].flop, a, sizeof a));
		if (total_s > 0)
			fprintf(f, " %12s %5.1f%%", dlb_view_seconds(w[k].time_s, b, sizeof b),
				100 * w[k].time_s / total_s);
		fputc('\n', f);
	}
	if (n > 12)
		fprintf(f, "  ... and %d more types\n", n - 12);
	free(time_s);
	free(w);
}

static void graph_table(const struct dlb_view *v, FILE *f)
{
	const struct dlb_graph *g = &v->graph;
	int phase[DLB_N_PHASES] = { 0 }, weights = 0;
	double parameters = 0, flop = 0;
	char buf[32];

	for (int i = 0; i < g->n_ops; i++) {
		phase[g->op[i].phase]++;
		flop += g->op[i].flop;
	}
	for (int t = 0; t < g->n_tensors; t++)
		if (g->tensor[t].kind == DLB_T_WEIGHT) {
			struct dlb_desc d = dlb_tensor_desc(&g->tensor[t], 1);

			weights++;
			parameters += (double)dlb_desc_count(&d);
		}
	fprintf(f, "model    %s\n", g->model_path ? g->model_path : "(none named)");
	fprintf(f,
		"  %d ops: %d forward, %d backward, %d update; %d weights, %.0f parameters; batch %lld; %s a "
		"step\n",
		g->n_ops, phase[DLB_FORWARD], phase[DLB_BACKWARD], phase[DLB_UPDATE], weights, parameters,
		(long long)g->batch, dlb_view_flop(flop, buf, sizeof buf));
	work_table(v, f);
}

static const char *s_of(int n)
{
	return n == 1 ? "" : "s";
}

static void cluster_table(const struct dlb_view *v, FILE *f)
{
	const struct dlb_cluster *c = &v->cluster;
	char a[32], b[32];
	int widest = 10;

	fprintf(f, "%scluster  %d node%s, %d kind%s, %d group%s\n", v->has_graph ? "\n" : "", c->n_nodes,
		s_of(c->n_nodes), c->n_kinds, s_of(c->n_kinds), c->n_groups, s_of(c->n_groups));
	for (int i = 0; i < c->n_kinds; i++) {
		const struct dlb_device_kind *k = &c->kind[i];

		fprintf(f, "  kind %s: ", k->name);
		if (k->device)
			fprintf(f, "%s", k->device);
		else
			fprintf(f, "%d thread%s", k->threads, s_of(k->threads));
		if (k->peak_flops > 0)
			fprintf(f, ", %s/s", dlb_view_flop(k->peak_flops, a, sizeof a));
		if (k->peak_bf16_flops > 0)
			fprintf(f, " (bf16 %s/s)", dlb_view_flop(k->peak_bf16_flops, a, sizeof a));
		if (k->bandwidth_Bps > 0)
			fprintf(f, ", memory %s/s", dlb_view_bytes(k->bandwidth_Bps, a, sizeof a));
		for (int j = 0; j < k->n_without; j++)
			fprintf(f, "%s%s", j ? ", " : "; without ", k->without[j]);
		fputc('\n', f);
	}
	for (int i = 0; i < c->n_links && i < 16; i++)
		fprintf(f, "  link %s: %s, %s/s%s\n", c->link[i].name,
			dlb_view_seconds(c->link[i].latency_s, a, sizeof a),
			dlb_view_bytes(c->link[i].stated_Bps, b, sizeof b),
			c->link[i].duplex ? " each way" : "");
	if (c->n_links > 16)
		fprintf(f, "  ... and %d more links\n", c->n_links - 16);
	for (int i = 0; i < c->n_nodes && i < SHOWN_NODES; i++)
		if (c->node[i].group >= 0 && (int)strlen(c->group[c->node[i].group].name) > widest)
			widest = (int)strlen(c->group[c->node[i].group].name);
	fprintf(f, "  %4s %-10s %-12s %-*s %7s %10s\n", "node", "kind", "host", widest, "group", "speed",
		"memory");
	for (int i = 0; i < c->n_nodes && i < SHOWN_NODES; i++) {
		const struct dlb_node *n = &c->node[i];
		double m = dlb_cluster_node_memory(c, i);

		fprintf(f, "  %4d %-10s %-12s %-*s %7.3g %10s\n", i, c->kind[n->kind].name,
			n->host ? n->host : "-", widest, n->group >= 0 ? c->group[n->group].name : "-",
			n->speed, dlb_view_bytes(m, a, sizeof a));
	}
	if (c->n_nodes > SHOWN_NODES)
		fprintf(f, "  ... and %d more\n", c->n_nodes - SHOWN_NODES);
}

/* The nodes that a table of busy times has: all, or the SHOWN_NODES busiest, in the order of their ids.
 * Returns their number. */
static int choose_nodes(const double *busy_s, int n_nodes, int node[SHOWN_NODES])
{
	int n = 0;

	for (int i = 0; i < n_nodes; i++) {
		int least = 0;

		if (n < SHOWN_NODES) {
			node[n++] = i;
			continue;
		}
		for (int k = 1; k < n; k++)
			least = busy_s[node[k]] <= busy_s[node[least]] ? k : least;
		if (busy_s[node[least]] >= busy_s[i])
			continue;
		memmove(&node[least], &node[least + 1], (size_t)(n - 1 - least) * sizeof *node);
		node[n - 1] = i;
	}
	return n;
}

static void say_omitted(int n_nodes, int n, FILE *f)
{
	if (n < n_nodes)
		fprintf(f, "  ... and %d nodes that are no busier\n", n_nodes - n);
}

static void replicas_table(const struct dlb_plan *p, FILE *f)
{
	int64_t *share = dlb_xcalloc((size_t)p->n_replicas, sizeof *share);
	const bool averages = dlb_sharing_averages(&p->sharing);
	char sums[200];
	dlb_plan_shares(p, p->batch, share);
	fprintf(f, "  %d replicas, %s by %s%s\n", p->n_replicas,
		averages ? "weights averaged" : "gradients summed",
		averages ? dlb_sharing_name(&p->sharing) : dlb_sharing_sums(&p->sharing, sums, sizeof sums),
		p->sharing.sync ? ", when all have computed" : "");
	if (dlb_sharing_divides(&p->sharing))
		fprintf(f, "  each keeps %sthe optimizer's state of its share of the weights%s\n",
			p->sharing.zero == 3 ? "its share of the weights, and " : "",
			p->sharing.zero >= 2 ? ", and of their gradients" : "");
	if (p->sharing.sync_batchnorm)
		fprintf(f, "  batch statistics of all replicas together\n");
	for (int r = 0; r < p->n_replicas; r++) {
		fprintf(f, "  replica %d: %lld samples, nodes", r, (long long)share[r]);
		for (int k = 0; k < p->n_nodes; k++)
			if (p->replica[r][k] >= 0)
				fprintf(f, " %d", p->replica[r][k]);
		fputc('\n', f);
	}
	free(share);
}

/* The choices that --compress auto compared: bytes and step of each, and a note if no compression is best. */
static void advice_table(const struct dlb_plan *p, FILE *f)
{
	char a[32], b[32], c[32];
	double dense_s = 0;

	if (p->n_advice)
		fprintf(f, "  %-11s %-12s %11s %10s %10s  %s\n", "compression", "", "bytes", "step", "saves",
			"error");
	for (int i = 0; i < p->n_advice; i++) {
		const struct dlb_advice *x = &p->advice[i];
		const bool first = !i || x[-1].cls != x->cls;

		dense_s = first ? x->step_s : dense_s;
		fprintf(f, "  %-11s %-12s %11s %10s %10s  ", first ? dlb_compressed_names[x->cls] : "",
			x->how, dlb_view_bytes(x->bytes, a, sizeof a),
			dlb_view_seconds(x->step_s, b, sizeof b),
			first ? "" : dlb_view_seconds(dense_s - x->step_s, c, sizeof c));
		if (x->error_of)
			fprintf(f, "%.2g %% of %s", 100 * x->error, x->error_of);
		fprintf(f, "%s%s%s\n", x->error_of ? "" : "none", x->chosen ? "  <- chosen" : "",
			!first && x->step_s >= dense_s ? "; costs more than it saves" : "");
	}
}

/* Contents of each memory, if nodes name memories. */
static void memories_table(const struct dlb_plan *p, const int *node, int n_nodes, FILE *f)
{
	char a[DLB_N_BUFFERS][32];

	for (int i = 0; i < n_nodes; i++)
		for (int k = 0; k < p->node[node[i]].n_memories; k++) {
			const struct dlb_node_memory *m = &p->node[node[i]].memory[k];

			fprintf(f, "  node %d, %s:", node[i], m->name);
			for (int b = 0; b < DLB_N_BUFFERS; b++)
				fprintf(f, "%s %s %s", b ? "," : "", dlb_buffers_names[b],
					dlb_view_bytes(m->bytes[b], a[b], sizeof a[b]));
			fputc('\n', f);
		}
}

static void states_table(const struct dlb_plan *p, const int *node, int n, FILE *f)
{
	char a[32];

	if (p->state_dtype != DLB_STATE_F32)
		fprintf(f, "  optimizer states are kept as %s\n", dlb_state_dtypes[p->state_dtype]);
	for (int i = 0; i < n; i++)
		if (p->node[node[i]].offloaded_bytes > 0)
			fprintf(f, "  node %d, offloaded: %s\n", node[i],
				dlb_view_bytes(p->node[node[i]].offloaded_bytes, a, sizeof a));
}

static void front_table(const struct dlb_view *v, FILE *f)
{
	const json_t *front = json_object_get(dlb_doc_section(v->doc, "plan"), "front"), *point;
	char a[32], b[32];
	size_t i;

	if (!json_array_size(front))
		return;
	fprintf(f, "  %-22s %12s %10s\n", "memory, fullest node", "step", "ops again");
	json_array_foreach(front, i, point)
		fprintf(f, "  %-22s %12s %10d\n",
			dlb_view_bytes(json_number_value(json_object_get(point, "bytes")), a, sizeof a),
			dlb_view_seconds(json_number_value(json_object_get(point, "value_s")), b, sizeof b),
			(int)json_integer_value(json_object_get(point, "again")));
}

static void plan_table(const struct dlb_view *v, FILE *f)
{
	const struct dlb_plan *p = &v->plan;
	char a[32], b[32], c[32];
	int node[SHOWN_NODES], n_shown;

	fprintf(f, "\nplan     %s, schedule %s, batch of %lld in %d micro-batch%s\n",
		p->winner ? p->winner : p->algorithm, p->schedule, (long long)p->batch, p->micro_batches,
		p->micro_batches == 1 ? "" : "es");
	if (v->edited)
		fprintf(f, "  the placement was edited since: these times are of the one before; dlb-run "
			   "--dry-run predicts anew\n");
	if (dlb_view_other_optimizer(v))
		fprintf(f, "  made for %s; what ran was %s, whose step the report predicts\n", p->optimizer,
			v->report.optimizer);
	fprintf(f, "  step predicted %s, no plan below %s (gap %.1f%%), imbalance %.3f\n",
		dlb_view_seconds(p->value_s, a, sizeof a), dlb_view_seconds(p->bound_s, b, sizeof b),
		100 * p->gap, p->imbalance);
	if (p->n_replicas > 1)
		replicas_table(p, f);
	advice_table(p, f);
	front_table(v, f);
	struct dlb_program g;
	/* a plan of another tool may have no program */
	bool memory = !dlb_view_program(v, &g, NULL);

	fprintf(f, "  %4s %6s %10s %10s %10s", "node", "ops", "busy", "wait", "peak");
	fprintf(f, memory ? " %10s %10s %6s\n" : "\n", "arena", "least", "over");
	double *busy_s = dlb_xcalloc((size_t)p->n_nodes + 1, sizeof *busy_s);

	for (int i = 0; i < p->n_nodes; i++)
		busy_s[i] = p->node[i].busy_s;
	n_shown = choose_nodes(busy_s, p->n_nodes, node);
	free(busy_s);
	for (int k = 0; k < n_shown; k++) {
		const int i = node[k];
		int n = 0;

		for (int op = 0; op < p->n_ops; op++)
			n += p->placement[op] == dlb_plan_part_of(p, i);
		fprintf(f, "  %4d %6d %10s %10s %10s", i, n, dlb_view_seconds(p->node[i].busy_s, a, sizeof a),
			dlb_view_seconds(p->node[i].wait_s, b, sizeof b),
			dlb_view_bytes(p->node[i].peak_bytes, c, sizeof c));
		const struct dlb_node_program *np = memory ? &dlb_program_of(&g, i)->node[i] : NULL;
		if (memory)
			fprintf(f, " %10s %10s %5.1f%%", dlb_view_bytes((double)np->arena_bytes, a, sizeof a),
				dlb_view_bytes((double)np->bound_bytes, b, sizeof b), dlb_view_over(np));
		fputc('\n', f);
	}
	say_omitted(p->n_nodes, n_shown, f);
	memories_table(p, node, n_shown, f);
	states_table(p, node, n_shown, f);
	if (memory)
		dlb_program_release(&g);
}

/* The seconds are those of copies; a tensor that is read in place takes no time. */
static void messages_line(const struct dlb_report *r, FILE *f)
{
	const double all = r->communication.bytes, here = r->communication.in_place_bytes,
		     copied = all - here;
	char a[32], b[32];

	if (here > 0 && copied < 0.5)
		fprintf(f, "  messages %s, in place: read where they were written, nothing copied\n",
			dlb_view_bytes(all, a, sizeof a));
	else if (here > 0)
		fprintf(f, "  %s of the messages written where they are read, never copied\n",
			dlb_view_bytes(here, a, sizeof a));
	if (all > 0 && copied >= 0.5)
		fprintf(f, "  messages %s in %s, %.0f%% of it while computing\n",
			dlb_view_bytes(copied, a, sizeof a),
			dlb_view_seconds(r->communication.time_s, b, sizeof b),
			r->communication.time_s > 0 ?
				100 * r->communication.hidden_s / r->communication.time_s :
				100);
}

/* "-" for a value that was not measured. buf: 32 bytes. */
static const char *number(const char *format, double x, char *buf)
{
	snprintf(buf, 32, isfinite(x) ? format : "-", x);
	return buf;
}

/* Measurements on test data during training (--eval-every); of many, an evenly spaced
 * selection with the first and the last. */
static void evaluations_table(const struct dlb_report *r, FILE *f)
{
	const int n = r->n_evals, rows = n < MOST_EVALUATIONS ? n : MOST_EVALUATIONS;
	char a[32], b[32], c[32];

	if (!n)
		return;
	fprintf(f, "  %d evaluation%s on the test data%s\n  %8s %12s %10s %10s\n", n, n == 1 ? "" : "s",
		rows < n ? ", some of them" : "", "step", "test loss", "accuracy", "took");
	for (int i = 0; i < rows; i++) {
		const struct dlb_report_eval
			*e = &r->eval[rows > 1 ? (int)((int64_t)i * (n - 1) / (rows - 1)) : 0];

		fprintf(f, "  %8lld %12s %10s %10s\n", (long long)e->step, number("%.6g", e->test_loss, a),
			number("%.4f", e->accuracy, b), dlb_view_seconds(e->time_s, c, sizeof c));
	}
	if (r->best.saved)
		fprintf(f, "  best after step %lld, test loss %.6g, saved %s\n", (long long)r->best.step,
			r->best.test_loss, r->best.saved);
}

/* Prints the losses and returns of nodes. */
static void events_table(const struct dlb_report *r, FILE *f)
{
	char a[32], b[32], step[32];

	if (!r->n_events)
		return;
	fprintf(f, "  %8s %4s %10s %10s  lost or put back\n", "at step", "node", "noticed", "resumed");
	for (int i = 0; i < r->n_events; i++) {
		const struct dlb_report_event *e = &r->event[i];

		snprintf(step, sizeof step, e->step < 0 ? "-" : "%lld", (long long)e->step);
		fprintf(f, "  %8s %4d %10s %10s  ", step, e->node,
			isfinite(e->notice_s) ? dlb_view_seconds(e->notice_s, a, sizeof a) : "-",
			isfinite(e->resume_s) ? dlb_view_seconds(e->resume_s, b, sizeof b) : "-");
		dlb_view_escaped(f, e->cause);
		if (e->went_on)
			fprintf(f, "; went on from step %lld%s", (long long)e->from_step,
				e->copies ? ", by copies" : "");
		fputc('\n', f);
	}
}

/* Prints the line on copies of the nodes' state in other nodes' memory (--buddy-every). */
static void buddy_line(const struct dlb_report *r, FILE *f)
{
	const struct dlb_report_buddy *b = &r->buddy;
	char every[32], all[32], sent[32], took[32], predicted[32];

	if (!b->every)
		return;
	snprintf(every, sizeof every, b->every > 1 ? "every %lld steps" : "every step", (long long)b->every);
	fprintf(f, "  copies of the state %s: %s, %s to other hosts; they add %s to a step, predicted %s\n",
		every, dlb_view_bytes(b->bytes, all, sizeof all),
		dlb_view_bytes(b->sent_bytes, sent, sizeof sent),
		isfinite(b->time_s) ? dlb_view_seconds(b->time_s, took, sizeof took) : "-",
		dlb_view_seconds(b->predicted_time_s, predicted, sizeof predicted));
}

/* "-": not known. */
static const char *some_bytes(double bytes, char *buf, size_t n)
{
	return bytes > 0 ? dlb_view_bytes(bytes, buf, n) : "-";
}

static void nodes_table(const struct dlb_report *r, FILE *f)
{
	double *busy_s = dlb_xcalloc((size_t)r->n_nodes + 1, sizeof *busy_s);
	char a[32], b[32], c[32], d[32], e[32], g[32], h[32], k[32];
	int node[SHOWN_NODES], n_shown;

	fprintf(f, "  %4s %10s %10s %10s %10s %10s %10s %10s %10s\n", "node", "busy", "predicted", "wait",
		"starved", "held up", "peak", "process", "expected");
	for (int i = 0; i < r->n_nodes; i++)
		busy_s[i] = r->node[i].busy_s;
	n_shown = choose_nodes(busy_s, r->n_nodes, node);
	free(busy_s);
	for (int j = 0; j < n_shown; j++) {
		const int i = node[j];
		const struct dlb_report_node *n = &r->node[i];

		fprintf(f, "  %4d %10s %10s %10s %10s %10s %10s %10s %10s\n", i,
			dlb_view_seconds(n->busy_s, a, sizeof a),
			dlb_view_seconds(n->predicted_busy_s, b, sizeof b),
			dlb_view_seconds(n->wait_s, c, sizeof c),
			dlb_view_seconds(n->waits_s[DLB_WAIT_STARVED], d, sizeof d),
			dlb_view_seconds(n->waits_s[DLB_WAIT_BACKPRESSURE], e, sizeof e),
			dlb_view_bytes(n->peak_bytes, g, sizeof g), some_bytes(n->process_bytes, h, sizeof h),
			some_bytes(n->predicted_process_bytes, k, sizeof k));
	}
	say_omitted(r->n_nodes, n_shown, f);
}

/* The node that waits most for samples, if it waits for 2 % of a step. */
static void samples_line(const struct dlb_report *r, FILE *f)
{
	char a[32], b[32];
	double sample_s;
	const int node = r->n_nodes ? dlb_report_starved(r, &sample_s) : -1;
	const double wait_s = node < 0 ? 0 : r->node[node].data_wait_s;

	if (!(wait_s > 0.02 * r->step_s))
		return;
	fprintf(f, "  samples: node %d waits %s a step for them (%.1f%%)", node,
		dlb_view_seconds(wait_s, a, sizeof a), 100 * wait_s / r->step_s);
	if (sample_s > 0)
		fprintf(f, "; one takes %s to prepare", dlb_view_seconds(sample_s, b, sizeof b));
	fputc('\n', f);
}

static void report_table(const struct dlb_view *v, FILE *f)
{
	const struct dlb_report *r = &v->report;
	char a[32], b[32];

	fprintf(f, "\nreport   %s, %lld steps from step %lld%s%s\n", r->dry_run ? "simulated" : "measured",
		(long long)r->steps, (long long)r->first_step, r->stopped ? ", ended by " : "",
		r->stopped ? r->stopped : "");
	fprintf(f, "  step %s, predicted %s", dlb_view_seconds(r->step_s, a, sizeof a),
		dlb_view_seconds(r->predicted_step_s, b, sizeof b));
	if (r->predicted_step_high_s > 0)
		fprintf(f, " (%s to %s)", dlb_view_seconds(r->predicted_step_low_s, a, sizeof a),
			dlb_view_seconds(r->predicted_step_high_s, b, sizeof b));
	fprintf(f, ", off by %.1f%%, imbalance %.3f\n", 100 * r->prediction_error, r->imbalance);
	if (r->n_losses)
		fprintf(f, "  loss %.6g -> %.6g\n", r->loss[0], r->loss[r->n_losses - 1]);
	if (r->n_delays) {
		int least = r->delay[0].least, most = r->delay[0].most;

		for (int i = 1; i < r->n_delays; i++) {
			least = r->delay[i].least < least ? r->delay[i].least : least;
			most = r->delay[i].most > most ? r->delay[i].most : most;
		}
		fprintf(f, "  forward ops read weights %d to %d updates behind\n", least, most);
	}
	if (r->kfac.others)
		fprintf(f,
			"  kfac: %d weights preconditioned, the others by %s; %lld inverses, %lld with more "
			"on the diagonal, %lld not made; %lld steps held back by the trust region\n",
			r->kfac.n_weights, r->kfac.others, (long long)r->kfac.inverses,
			(long long)r->kfac.shifted, (long long)r->kfac.kept, (long long)r->kfac.held_back);
	for (int i = 0; r->kfac.others && i < r->kfac.n_left; i++)
		fprintf(f, "  kfac: left to %s: %s: %s\n", r->kfac.others, r->kfac.left[i].weight,
			r->kfac.left[i].why);
	if (r->kfac.not_symmetric + r->kfac.not_definite + r->kfac.hops_failed + r->kfac.not_finite)
		fprintf(f,
			"  kfac: %lld exchanges with a factor not symmetric, %lld factors not positive "
			"definite, %lld hops failed, %lld moments not finite\n",
			(long long)r->kfac.not_symmetric, (long long)r->kfac.not_definite,
			(long long)r->kfac.hops_failed, (long long)r->kfac.not_finite);
	if (r->varies)
		fprintf(f, "  bits differ between runs: a kind of node adds in any order (--fast-math)\n");
	if (r->batch_statistics)
		fprintf(f, "  batch statistics of %s\n",
			strcmp(r->batch_statistics, "all") ? "each replica" : "all replicas together");
	if (isfinite(r->accuracy))
		fprintf(f, "  accuracy %.4f\n", r->accuracy);
	else if (isfinite(r->test_loss))
		fprintf(f, "  test loss %.6g\n", r->test_loss);
	evaluations_table(r, f);
	events_table(r, f);
	buddy_line(r, f);
	messages_line(r, f);
	samples_line(r, f);
	if (r->saved)
		fprintf(f, "  saved %s\n", r->saved);
	nodes_table(r, f);
}

/* Prints the links whose bandwidth was corrected by balancing rounds. */
static void links_lines(const struct dlb_view *v, FILE *f)
{
	for (int i = 0; i < v->balance.n_links; i++) {
		const struct dlb_balance_link *x = &v->balance.link[i];

		if (x->factor == 1 || x->link >= v->cluster.n_links)
			continue;
		fprintf(f, "  link ");
		dlb_put_escaped(f, dlb_link_name(&v->cluster, x->link));
		fprintf(f, " counts with %.3g of its %.4g MB/s\n", x->factor,
			v->cluster.link[x->link].stated_Bps / 1e6);
	}
}

static void balance_table(const struct dlb_view *v, FILE *f)
{
	const struct dlb_balance *b = &v->balance;

	fprintf(f, "\nbalance  round %d, rule %s, %s%s%s\n", b->round, b->rule ? b->rule : "-",
		b->converged ? "converged" : "not converged", b->reason ? ": " : "",
		b->reason ? b->reason : "");
	links_lines(v, f);
	fprintf(f, "  %5s %12s %12s %10s  %s\n", "round", "measured", "predicted", "excess", "weights");
	for (int i = 0; i < b->n_history; i++) {
		const struct dlb_balance_round *h = &b->history[i];
		char m[32], p[32], x[32];

		fprintf(f, "  %5d %12s %12s %10s ", h->round, dlb_view_seconds(h->step_s, m, sizeof m),
			dlb_view_seconds(h->predicted_step_s, p, sizeof p),
			dlb_view_seconds(h->mean_excess_s, x, sizeof x));
		for (int k = 0; h->weight && k < b->n_nodes && k < 16; k++)
			fprintf(f, " %.3f", h->weight[k]);
		fprintf(f, "\n");
	}
}

/* The run's name and remark. */
static void name_line(const struct dlb_view *v, FILE *f)
{
	static const char *const key[] = { "name", "note" };

	for (int i = 0; i < DLB_LEN(key); i++) {
		const json_t *text = json_object_get(dlb_doc_section(v->doc, "run"), key[i]);

		if (!json_is_string(text))
			continue;
		fprintf(f, "%-8s ", i ? "note" : "run");
		dlb_put_escaped(f, json_string_value(text));
		fputc('\n', f);
	}
}

int dlb_view_table(const struct dlb_view *v, FILE *f, struct dlb_error *err)
{
	(void)err;
	name_line(v, f);
	if (v->has_graph)
		graph_table(v, f);
	if (v->has_cluster)
		cluster_table(v, f);
	if (v->has_plan)
		plan_table(v, f);
	if (v->has_report)
		report_table(v, f);
	if (v->has_balance)
		balance_table(v, f);
	if (!v->has_graph && !v->has_cluster && !v->has_report)
		fprintf(f, "an empty document\n");
	return 0;
}
