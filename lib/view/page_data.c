/* Data of the page: model, graph, cluster, times of nodes, losses and rounds. */
#include "plan/replica.h"
#include "plan/timeline.h"
#include "view/page.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LOSSES = 4000 };

void dlb_page_summary(const struct dlb_view *v, struct dlb_emit *e)
{
	const struct dlb_plan *p = &v->plan;
	const struct dlb_report *r = &v->report;
	double parameters = 0, flop = 0;

	dlb_emit_str(e, "file", v->doc->name);
	dlb_emit_bool(e, "transfers", v->transfers);
	if (v->has_graph) {
		for (int t = 0; t < v->graph.n_tensors; t++)
			if (v->graph.tensor[t].kind == DLB_T_WEIGHT) {
				struct dlb_desc d = dlb_tensor_desc(&v->graph.tensor[t], 1);
				parameters += (double)dlb_desc_count(&d);
			}
		for (int i = 0; i < v->graph.n_ops; i++)
			flop += v->graph.op[i].flop;
		dlb_emit_open(e, "model", '{');
		dlb_emit_str(e, "path", v->graph.model_path);
		dlb_emit_real(e, "parameters", parameters);
		dlb_emit_real(e, "flop", flop);
		dlb_emit_int(e, "batch", v->graph.batch);
		dlb_emit_close(e, '}');
	}
	if (v->has_plan) {
		dlb_emit_open(e, "plan", '{');
		dlb_emit_str(e, "algorithm", p->winner ? p->winner : p->algorithm);
		dlb_emit_str(e, "schedule", p->schedule);
		dlb_emit_int(e, "batch", p->batch);
		dlb_emit_int(e, "micro_batches", p->micro_batches);
		dlb_emit_int(e, "replicas", p->n_replicas > 1 ? p->n_replicas : 1);
		dlb_emit_real(e, "value_s", p->value_s);
		dlb_emit_real(e, "bound_s", p->bound_s);
		dlb_emit_real(e, "gap", p->gap);
		dlb_emit_real(e, "imbalance", p->imbalance);
		dlb_emit_int(e, "moved_ops", p->moved_ops);
		dlb_emit_str(e, "optimizer", p->optimizer);
		dlb_emit_bool(e, "edited", v->edited);
		dlb_emit_close(e, '}');
	}
	if (v->has_report) {
		dlb_emit_open(e, "report", '{');
		dlb_emit_bool(e, "dry_run", r->dry_run);
		dlb_emit_int(e, "first_step", r->first_step);
		dlb_emit_int(e, "steps", r->steps);
		dlb_emit_str(e, "optimizer", r->optimizer);
		dlb_emit_str(e, "stopped", r->stopped);
		dlb_emit_real(e, "step_s", r->step_s);
		dlb_emit_real(e, "step_se_s", r->step_se_s);
		dlb_emit_real(e, "predicted_step_s", r->predicted_step_s);
		if (r->predicted_step_high_s > 0) {
			dlb_emit_real(e, "predicted_step_low_s", r->predicted_step_low_s);
			dlb_emit_real(e, "predicted_step_high_s", r->predicted_step_high_s);
		}
		dlb_emit_real(e, "prediction_error", r->prediction_error);
		dlb_emit_real(e, "wall_s", r->wall_s);
		dlb_emit_real(e, "imbalance", r->imbalance);
		dlb_emit_int(e, "batch", r->batch);
		dlb_emit_real(e, "accuracy", r->accuracy);
		dlb_emit_real(e, "test_loss", r->test_loss);
		dlb_emit_str(e, "saved", r->saved);
		dlb_emit_real(e, "message_bytes", r->communication.bytes);
		dlb_emit_real(e, "message_s", r->communication.time_s);
		dlb_emit_real(e, "hidden_s", r->communication.hidden_s);
		dlb_emit_close(e, '}');
	}
}

/* Index of `s` in table[0 .. *n); appends it if it is new. */
static int number_of(const char *s, const char **table, int *n)
{
	int i = 0;

	while (i < *n && strcmp(table[i], s))
		i++;
	if (i == *n)
		table[(*n)++] = s;
	return i;
}

static void tensors(const struct dlb_graph *g, struct dlb_emit *e)
{
	dlb_emit_open(e, "tensors", '{');
	dlb_emit_open(e, "name", '[');
	for (int t = 0; t < g->n_tensors; t++)
		dlb_emit_str(e, NULL, g->tensor[t].name);
	dlb_emit_close(e, ']');
	dlb_emit_open(e, "producer", '[');
	for (int t = 0; t < g->n_tensors; t++)
		dlb_emit_int(e, NULL, g->tensor[t].producer);
	dlb_emit_close(e, ']');
	dlb_emit_open(e, "bytes", '[');
	for (int t = 0; t < g->n_tensors; t++)
		dlb_emit_real(e, NULL, dlb_tensor_bytes(&g->tensor[t], g->batch));
	dlb_emit_close(e, ']');
	dlb_emit_close(e, '}');
}

/* Measured seconds of each op for a micro-batch, if the report has them. */
static void measured(const struct dlb_view *v, struct dlb_emit *e)
{
	double *s = dlb_xmalloc(((size_t)v->graph.n_ops + 1) * sizeof *s);

	for (int i = 0; i < v->graph.n_ops; i++)
		s[i] = NAN;
	for (int i = 0; i < v->report.n_ops; i++)
		if (v->report.op[i].op >= 0 && v->report.op[i].op < v->graph.n_ops)
			s[v->report.op[i].op] = v->report.op[i].time_s;
	dlb_emit_open(e, "measured_s", '[');
	for (int i = 0; i < v->graph.n_ops; i++)
		dlb_emit_real(e, NULL, s[i]);
	dlb_emit_close(e, ']');
	free(s);
}

void dlb_page_graph(const struct dlb_view *v, struct dlb_emit *e)
{
	const struct dlb_graph *g = &v->graph;
	const char **type;
	int n_types = 0;

	if (!v->has_graph)
		return;
	type = dlb_xmalloc(((size_t)g->n_ops + 1) * sizeof *type);
	dlb_emit_open(e, "ops", '{');
	dlb_emit_open(e, "name", '[');
	for (int i = 0; i < g->n_ops; i++)
		dlb_emit_str(e, NULL, g->op[i].name);
	dlb_emit_close(e, ']');
	dlb_emit_open(e, "type", '[');
	for (int i = 0; i < g->n_ops; i++)
		dlb_emit_int(e, NULL, number_of(g->op[i].type, type, &n_types));
	dlb_emit_close(e, ']');
	dlb_emit_open(e, "types", '[');
	for (int i = 0; i < n_types; i++)
		dlb_emit_str(e, NULL, type[i]);
	dlb_emit_close(e, ']');
	free(type);
	dlb_emit_open(e, "phase", '[');
	for (int i = 0; i < g->n_ops; i++)
		dlb_emit_int(e, NULL, g->op[i].phase);
	dlb_emit_close(e, ']');
	dlb_emit_open(e, "of", '[');
	for (int i = 0; i < g->n_ops; i++)
		dlb_emit_int(e, NULL, g->op[i].of);
	dlb_emit_close(e, ']');
	dlb_emit_open(e, "flop", '[');
	for (int i = 0; i < g->n_ops; i++)
		dlb_emit_real(e, NULL, g->op[i].flop);
	dlb_emit_close(e, ']');
	dlb_emit_open(e, "inputs", '[');
	for (int i = 0; i < g->n_ops; i++) {
		dlb_emit_open(e, NULL, '[');
		for (int k = 0; k < g->op[i].n_in; k++)
			if (g->op[i].in[k] >= 0)
				dlb_emit_int(e, NULL, g->op[i].in[k]);
		dlb_emit_close(e, ']');
	}
	dlb_emit_close(e, ']');
	if (v->has_plan) {
		dlb_emit_open(e, "node", '[');
		for (int i = 0; i < g->n_ops; i++)
			dlb_emit_int(e, NULL, v->plan.placement[i]);
		dlb_emit_close(e, ']');
	}
	if (v->has_report && v->report.n_ops)
		measured(v, e);
	dlb_emit_close(e, '}');
	tensors(g, e);
}

void dlb_page_nodes(const struct dlb_view *v, struct dlb_emit *e)
{
	int n = v->has_cluster ? v->cluster.n_nodes :
		v->has_plan    ? v->plan.n_nodes :
		v->has_report  ? v->report.n_nodes :
				 0;

	dlb_emit_open(e, "nodes", '[');
	for (int i = 0; i < n; i++) {
		dlb_emit_open(e, NULL, '{');
		dlb_emit_bool(e, "idle", (v->has_plan || v->has_report) && dlb_view_idle(v, i));
		if (v->has_plan && i < v->plan.n_nodes) {
			dlb_emit_open(e, "plan", '{');
			dlb_emit_real(e, "busy_s", v->plan.node[i].busy_s);
			dlb_emit_real(e, "wait_s", v->plan.node[i].wait_s);
			dlb_emit_real(e, "peak_bytes", v->plan.node[i].peak_bytes);
			dlb_emit_int(e, "replica", dlb_plan_replica_of(&v->plan, i));
			dlb_emit_int(e, "part", dlb_plan_part_of(&v->plan, i));
			dlb_emit_close(e, '}');
		}
		if (v->has_report && i < v->report.n_nodes) {
			const struct dlb_report_node *r = &v->report.node[i];

			dlb_emit_open(e, "report", '{');
			dlb_emit_str(e, "host", r->host);
			dlb_emit_real(e, "busy_s", r->busy_s);
			dlb_emit_real(e, "predicted_busy_s", r->predicted_busy_s);
			dlb_emit_real(e, "wait_s", r->wait_s);
			dlb_emit_open(e, "waits_s", '[');
			for (int k = 0; k < DLB_N_WAITS; k++)
				dlb_emit_real(e, NULL, r->waits_s[k]);
			dlb_emit_close(e, ']');
			dlb_emit_real(e, "bytes_sent", r->bytes_sent);
			dlb_emit_real(e, "peak_bytes", r->peak_bytes);
			dlb_emit_close(e, '}');
		}
		dlb_emit_close(e, '}');
	}
	dlb_emit_close(e, ']');
}

/* The loss of each step; for long runs mean, minimum and maximum of several steps at a time. */
void dlb_page_losses(const struct dlb_view *v, struct dlb_emit *e)
{
	int n = v->has_report ? v->report.n_losses : 0, stride = (n + MOST_LOSSES - 1) / MOST_LOSSES;

	if (!n)
		return;
	dlb_emit_open(e, "losses", '{');
	dlb_emit_int(e, "first", v->report.first_step);
	dlb_emit_int(e, "stride", stride);
	dlb_emit_open(e, "values", '[');
	for (int i = 0; i < n; i += stride) {
		double sum = 0, least = INFINITY, most = -INFINITY;
		int k;

		for (k = 0; k < stride && i + k < n; k++) {
			sum += v->report.loss[i + k];
			least = fmin(least, v->report.loss[i + k]);
			most = fmax(most, v->report.loss[i + k]);
		}
		dlb_emit_real(e, NULL, sum / k);
		if (stride > 1) {
			dlb_emit_real(e, NULL, least);
			dlb_emit_real(e, NULL, most);
		}
	}
	dlb_emit_close(e, ']');
	dlb_emit_close(e, '}');
}

/* [step, loss, accuracy] of each measurement on test data during training; of
 * many, an evenly spaced selection. */
void dlb_page_evaluations(const struct dlb_view *v, struct dlb_emit *e)
{
	int n = v->has_report ? v->report.n_evals : 0, stride = (n + MOST_LOSSES - 1) / MOST_LOSSES;

	if (!n)
		return;
	dlb_emit_open(e, "evaluations", '[');
	for (int i = (n - 1) % stride; i < n; i += stride) {	/* includes the last one */
		dlb_emit_open(e, NULL, '[');
		dlb_emit_int(e, NULL, v->report.eval[i].step);
		dlb_emit_real(e, NULL, v->report.eval[i].test_loss);
		dlb_emit_real(e, NULL, v->report.eval[i].accuracy);
		dlb_emit_close(e, ']');
	}
	dlb_emit_close(e, ']');
}

void dlb_page_rounds(const struct dlb_view *v, struct dlb_emit *e)
{
	const struct dlb_balance *b = &v->balance;

	if (!v->has_balance)
		return;
	dlb_emit_open(e, "balance", '{');
	dlb_emit_str(e, "rule", b->rule);
	dlb_emit_int(e, "round", b->round);
	dlb_emit_bool(e, "converged", b->converged);
	dlb_emit_str(e, "reason", b->reason);
	dlb_emit_real(e, "floor_s", b->floor_s > 0 ? b->floor_s : NAN);
	dlb_emit_str(e, "best_plan", b->best_weight ? b->best_plan_hash : NULL);
	dlb_emit_open(e, "weights", '[');
	for (int k = 0; b->weight && k < b->n_nodes; k++)
		dlb_emit_real(e, NULL, b->weight[k]);
	dlb_emit_close(e, ']');
	dlb_emit_open(e, "kappa", '[');
	for (int k = 0; b->kappa && k < b->n_nodes; k++)
		dlb_emit_real(e, NULL, b->kappa[k]);
	dlb_emit_close(e, ']');
	dlb_emit_open(e, "history", '[');
	for (int i = 0; i < b->n_history; i++) {
		const struct dlb_balance_round *h = &b->history[i];

		dlb_emit_open(e, NULL, '{');
		dlb_emit_int(e, "round", h->round);
		dlb_emit_real(e, "step_s", h->step_s);
		dlb_emit_real(e, "step_se_s", h->step_se_s);
		dlb_emit_real(e, "predicted_step_s", h->predicted_step_s);
		dlb_emit_real(e, "mean_excess_s", h->mean_excess_s);
		dlb_emit_int(e, "moved_ops", h->moved_ops);
		dlb_emit_str(e, "plan", h->plan_hash);
		dlb_emit_bool(e, "held", h->held);
		dlb_emit_bool(e, "rolled_back", h->rolled_back);
		dlb_emit_bool(e, "changed", h->changed);
		dlb_emit_open(e, "weights", '[');
		for (int k = 0; h->weight && k < b->n_nodes; k++)
			dlb_emit_real(e, NULL, h->weight[k]);
		dlb_emit_close(e, ']');
		dlb_emit_close(e, '}');
	}
	dlb_emit_close(e, ']');
	dlb_emit_close(e, '}');
}

void dlb_page_provenance(const struct dlb_view *v, struct dlb_emit *e)
{
	struct dlb_ref root = dlb_ref_root(v->doc, NULL), list, row, arguments;
	int n = 0, m;

	dlb_emit_open(e, "provenance", '[');
	if (dlb_get_array(&root, "provenance", DLB_OPT, &list, &n, NULL) || !list.v)
		n = 0;
	for (int i = 0; i < n; i++) {
		const char *tool = "", *word;

		row = dlb_ref_index(&list, i);
		m = 0;
		if (dlb_get_str(&row, "tool", DLB_OPT, &tool, NULL) ||
		    dlb_get_array(&row, "arguments", DLB_OPT, &arguments, &m, NULL))
			continue;
		dlb_emit_open(e, NULL, '[');
		dlb_emit_str(e, NULL, tool);
		for (int k = 0; arguments.v && k < m; k++) {
			struct dlb_ref a = dlb_ref_index(&arguments, k);

			word = json_string_value(a.v);
			dlb_emit_str(e, NULL, word ? word : "?");
		}
		dlb_emit_close(e, ']');
	}
	dlb_emit_close(e, ']');
}
