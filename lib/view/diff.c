/* Compares two documents of one model: settings, cluster, weights, times, and the plan's moves with the gain
 * of each. A gain is the planner's prediction: the difference of simulated steps by the second document's
 * costs, kappa and weights. `alone`: this move only, made in the first placement. `without`: how much longer
 * the step is if this move is undone in the second placement. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "place/problem.h"
#include "place/value.h"
#include "plan/async.h"
#include "plan/replica.h"
#include "view/view.h"

enum { MOST_ROWS = 40, MOST_NODES = 64 };
/* Limit of simulated items (ops times micro-batches) for the gains of moves: about five seconds. */
static const double most_items = 5e6;

/* ---- refusals ---- */

static int other_graphs(const struct dlb_view *a, const struct dlb_view *b, struct dlb_error *err)
{
	const struct dlb_graph *g = &a->graph, *h = &b->graph;
	const char *cure = "--diff compares documents of one graph: two plans or reports of one dlb-profile";

	if (!a->has_graph || !b->has_graph)
		return dlb_refuse(err, a->has_graph ? b->doc->name : a->doc->name, cure,
				  "no graph in the document");
	if (g->n_ops != h->n_ops)
		return dlb_refuse(err, NULL, cure, "other graphs: %d ops in '%.80s', %d in '%.80s'", g->n_ops,
				  a->doc->name, h->n_ops, b->doc->name);
	for (int i = 0; i < g->n_ops; i++) {
		bool same = !strcmp(g->op[i].name, h->op[i].name) && !strcmp(g->op[i].type, h->op[i].type) &&
			    g->op[i].n_out == h->op[i].n_out && g->op[i].phase == h->op[i].phase &&
			    (g->op[i].phase == DLB_UPDATE || g->op[i].n_in == h->op[i].n_in);

		/* optimizers append inputs to updates */
		for (int k = 0; same && k < g->op[i].n_in && k < h->op[i].n_in; k++)
			same = g->op[i].in[k] == h->op[i].in[k];
		if (!same)
			return dlb_refuse(
				err, NULL, cure,
				"other graphs: op %d is '%.80s' (%s) in one, '%.80s' (%s) in the other%s", i,
				g->op[i].name, g->op[i].type, h->op[i].name, h->op[i].type,
				strcmp(g->op[i].name, h->op[i].name) ? "" : ", with other inputs");
	}
	for (int t = 0; t < g->n_tensors && t < h->n_tensors; t++)
		if (strcmp(g->tensor[t].name, h->tensor[t].name) ||
		    dlb_tensor_bytes(&g->tensor[t], 1) != dlb_tensor_bytes(&h->tensor[t], 1))
			return dlb_refuse(err, NULL, cure,
					  "other graphs: tensor %d, '%.80s', has another name or size", t,
					  g->tensor[t].name);
	return 0;
}

/* ---- lines with a name and both values; equal values are omitted ---- */

struct diff_lines { FILE *f; const char *title; int n; };

static void line(struct diff_lines *l, const char *name, const char *a, const char *b)
{
	if (!strcmp(a, b))
		return;
	if (!l->n++)
		fprintf(l->f, "\n%s\n", l->title);
	fprintf(l->f, "  %-26s %14s -> %s", name, a, b);
}

static void text(struct diff_lines *l, const char *name, const char *a, const char *b)
{
	int before = l->n;

	line(l, name, a ? a : "-", b ? b : "-");
	if (l->n > before)
		fputc('\n', l->f);
}

static void integer(struct diff_lines *l, const char *name, int64_t a, int64_t b)
{
	char x[32], y[32];

	snprintf(x, sizeof x, "%lld", (long long)a);
	snprintf(y, sizeof y, "%lld", (long long)b);
	text(l, name, x, y);
}

/* Adds the change in percent if both values exist. */
static void amount(struct diff_lines *l, const char *name, double a, double b,
		   const char *(*format)(double, char *, size_t))
{
	char x[32], y[32];
	int before = l->n;

	if (a == b || (isnan(a) && isnan(b)))
		return;
	format(a, x, sizeof x);
	format(b, y, sizeof y);
	if (!strcmp(x, y))
		return;
	line(l, name, x, y);
	if (l->n > before)
		fprintf(l->f, isfinite(a) && isfinite(b) && a > 0 ? "  (%+.1f %%)\n" : "\n",
			a > 0 ? 100 * (b / a - 1) : 0);
}

static const char *plain(double x, char *buf, size_t n)
{
	if (isfinite(x))
		snprintf(buf, n, "%.4g", x);
	else
		snprintf(buf, n, "-");
	return buf;
}

static void replicas_of(const struct dlb_plan *p, char *buf, size_t n)
{
	if (p->n_replicas > 1)
		snprintf(buf, n, "%d replicas, split %s", p->n_replicas, p->power ? "by power" : "even");
	else
		snprintf(buf, n, "one");
}

static void settings(const struct dlb_view *a, const struct dlb_view *b, struct diff_lines *l)
{
	char x[80], y[80];

	if (!a->has_plan || !b->has_plan) {
		if (a->has_plan != b->has_plan)
			text(l, "plan", a->has_plan ? "there" : "none", b->has_plan ? "there" : "none");
		return;
	}
	const struct dlb_plan *p = &a->plan, *q = &b->plan;

	text(l, "placed by", p->winner ? p->winner : p->algorithm, q->winner ? q->winner : q->algorithm);
	text(l, "schedule", p->schedule, q->schedule);
	integer(l, "micro-batches", p->micro_batches, q->micro_batches);
	integer(l, "batch", p->batch, q->batch);
	replicas_of(p, x, sizeof x);
	replicas_of(q, y, sizeof y);
	text(l, "replicas", x, y);
	text(l, "sums over replicas", p->sharing.allreduce, q->sharing.allreduce);
	text(l, "compressed", p->sharing.compress, q->sharing.compress);
	text(l, "optimizer", p->optimizer, q->optimizer);
	if (p->staleness != q->staleness)
		text(l, "staleness", dlb_staleness_names[p->staleness], dlb_staleness_names[q->staleness]);
}

/* ---- shares, weights, the nodes' times ---- */

static void shares(const struct dlb_view *a, const struct dlb_view *b, struct diff_lines *l)
{
	int n = a->has_plan && b->has_plan ?
			a->plan.n_replicas > b->plan.n_replicas ? a->plan.n_replicas : b->plan.n_replicas :
			0;
	int64_t *x, *y;
	char name[48];

	if (n < 2)
		return;
	x = dlb_xcalloc((size_t)n, sizeof *x);
	y = dlb_xcalloc((size_t)n, sizeof *y);
	dlb_plan_shares(&a->plan, a->plan.batch, x);
	dlb_plan_shares(&b->plan, b->plan.batch, y);
	for (int r = 0; r < n && r < MOST_NODES; r++) {
		snprintf(name, sizeof name, "replica %d, samples", r);
		integer(l, name, x[r], y[r]);
	}
	free(x);
	free(y);
}

static double of_node(const double *x, int n_nodes, int i)
{
	return x && i < n_nodes ? x[i] : 1;
}

static void weights(const struct dlb_view *a, const struct dlb_view *b, struct diff_lines *l)
{
	int n = a->balance.n_nodes > b->balance.n_nodes ? a->balance.n_nodes : b->balance.n_nodes;
	char name[48];

	if (!a->has_balance && !b->has_balance)
		return;
	integer(l, "rounds", a->balance.round, b->balance.round);
	text(l, "balanced", a->balance.converged ? a->balance.reason : "no",
	     b->balance.converged ? b->balance.reason : "no");
	for (int i = 0; i < n && i < MOST_NODES; i++) {
		snprintf(name, sizeof name, "node %d, weight", i);
		amount(l, name, of_node(a->balance.weight, a->balance.n_nodes, i),
		       of_node(b->balance.weight, b->balance.n_nodes, i), plain);
	}
	for (int i = 0; i < n && i < MOST_NODES; i++) {
		snprintf(name, sizeof name, "node %d, kappa", i);
		amount(l, name, of_node(a->balance.kappa, a->balance.n_nodes, i),
		       of_node(b->balance.kappa, b->balance.n_nodes, i), plain);
	}
}

static void machine(const struct dlb_view *a, const struct dlb_view *b, struct diff_lines *l)
{
	int n = a->cluster.n_nodes < b->cluster.n_nodes ? a->cluster.n_nodes : b->cluster.n_nodes;
	char name[48];

	if (!a->has_cluster || !b->has_cluster)
		return;
	integer(l, "nodes", a->cluster.n_nodes, b->cluster.n_nodes);
	for (int i = 0; i < n && i < MOST_NODES; i++) {
		const struct dlb_node *x = &a->cluster.node[i], *y = &b->cluster.node[i];

		snprintf(name, sizeof name, "node %d, kind", i);
		text(l, name, a->cluster.kind[x->kind].name, b->cluster.kind[y->kind].name);
		snprintf(name, sizeof name, "node %d, speed", i);
		amount(l, name, x->speed, y->speed, plain);
	}
}

static void times(const struct dlb_view *a, const struct dlb_view *b, struct diff_lines *l)
{
	int n = a->has_plan && b->has_plan ?
			a->plan.n_nodes < b->plan.n_nodes ? a->plan.n_nodes : b->plan.n_nodes :
			0;
	char name[64];

	if (a->has_plan || b->has_plan) {
		amount(l, "step, predicted by the plan", a->has_plan ? a->plan.value_s : NAN,
		       b->has_plan ? b->plan.value_s : NAN, dlb_view_seconds);
		amount(l, "lower bound", a->has_plan ? a->plan.bound_s : NAN,
		       b->has_plan ? b->plan.bound_s : NAN, dlb_view_seconds);
		amount(l, "imbalance, predicted", a->has_plan ? a->plan.imbalance : NAN,
		       b->has_plan ? b->plan.imbalance : NAN, plain);
	}
	for (int i = 0; i < n && i < MOST_NODES; i++) {
		snprintf(name, sizeof name, "node %d, busy, predicted", i);
		amount(l, name, a->plan.node[i].busy_s, b->plan.node[i].busy_s, dlb_view_seconds);
		snprintf(name, sizeof name, "node %d, peak", i);
		amount(l, name, a->plan.node[i].peak_bytes, b->plan.node[i].peak_bytes, dlb_view_bytes);
	}
	if (!a->has_report && !b->has_report)
		return;
	amount(l, a->report.dry_run || b->report.dry_run ? "step, simulated or measured" : "step, measured",
	       a->has_report ? a->report.step_s : NAN, b->has_report ? b->report.step_s : NAN,
	       dlb_view_seconds);
	amount(l, "step, predicted for the run", a->has_report ? a->report.predicted_step_s : NAN,
	       b->has_report ? b->report.predicted_step_s : NAN, dlb_view_seconds);
	if (!a->has_report || !b->has_report)
		return;
	amount(l, "last loss", a->report.n_losses ? a->report.loss[a->report.n_losses - 1] : NAN,
	       b->report.n_losses ? b->report.loss[b->report.n_losses - 1] : NAN, plain);
	amount(l, "accuracy", a->report.accuracy, b->report.accuracy, plain);
	n = a->report.n_nodes < b->report.n_nodes ? a->report.n_nodes : b->report.n_nodes;
	for (int i = 0; i < n && i < MOST_NODES; i++) {
		snprintf(name, sizeof name, "node %d, busy", i);
		amount(l, name, a->report.node[i].busy_s, b->report.node[i].busy_s, dlb_view_seconds);
		snprintf(name, sizeof name, "node %d, waiting", i);
		amount(l, name, a->report.node[i].wait_s, b->report.node[i].wait_s, dlb_view_seconds);
	}
}

/* ---- shares, weights, times of the nodes ---- */

/* A group of ops that moved together. A gain is NAN if it was not computed or a placement cannot run. */
struct move { int group, n_ops, op, from, to; double work_s, alone_s, without_s; };

static int by_work(const void *x, const void *y)
{
	const struct move *a = x, *b = y;

	if (a->work_s != b->work_s)
		return a->work_s < b->work_s ? 1 : -1;
	return a->op - b->op;
}

static double gain(double before, double after)
{
	return isfinite(before) && isfinite(after) ? before - after : NAN;
}

static double value_with(const struct dlb_problem *p, int *placement, const struct move *m, int node,
			 int back)
{
	double s;

	for (int k = p->group_start[m->group]; k < p->group_start[m->group + 1]; k++)
		placement[p->group_op[k]] = node;
	s = dlb_place_value_s(p, placement);
	for (int k = p->group_start[m->group]; k < p->group_start[m->group + 1]; k++)
		placement[p->group_op[k]] = back;
	return s;
}

static int find_moves(const struct dlb_problem *p, const int *before, const int *after, struct move *m)
{
	int n = 0;

	for (int g = 0; g < p->n_groups; g++) {
		int op = p->group_op[p->group_start[g]];

		if (before[op] == after[op])
			continue;
		/* named by its first forward op, if any */
		for (int k = p->group_start[g]; k < p->group_start[g + 1]; k++)
			op = p->group_op[k] < op ? p->group_op[k] : op;
		m[n++] = (struct move){ g,         p->group_start[g + 1] - p->group_start[g],
					op,        before[op],
					after[op], dlb_time_s(p, g, after[op]),
					NAN,       NAN };
	}
	qsort(m, (size_t)n, sizeof *m, by_work);
	return n;
}

static void print_move(const struct dlb_graph *g, const struct move *m, FILE *f)
{
	char alone[32], without[32], work[32], nodes[32];

	snprintf(nodes, sizeof nodes, "%d -> %d", m->from, m->to);
	fprintf(f, "  %-9s %10s %12s %12s  %d ", nodes, dlb_view_seconds(m->work_s, work, sizeof work),
		dlb_view_seconds(m->alone_s, alone, sizeof alone),
		dlb_view_seconds(m->without_s, without, sizeof without), m->op);
	for (const char *s = g->op[m->op].name; *s; s++)
		fputc((unsigned char)*s < ' ' || *s == 0x7f ? '?' : *s, f);
	fprintf(f, m->n_ops > 1 ? " and %d bound to it\n" : "\n", m->n_ops - 1);
}

static void print_moves(const struct dlb_view *a, const struct dlb_view *b, const struct dlb_problem *p,
			FILE *f)
{
	int *before = dlb_xmalloc(((size_t)p->graph->n_ops + 1) * sizeof(int)),
	    *after = dlb_xmalloc(((size_t)p->graph->n_ops + 1) * sizeof(int));
	struct move *m = dlb_xmalloc(((size_t)p->n_groups + 1) * sizeof *m);
	double item = 2.0 * p->graph->n_ops * p->micro_batches, left = most_items;
	int n, ops = 0, priced = 0;
	char x[32], y[32];

	memcpy(before, a->plan.placement, (size_t)p->graph->n_ops * sizeof(int));
	memcpy(after, b->plan.placement, (size_t)p->graph->n_ops * sizeof(int));
	n = find_moves(p, before, after, m);
	if (n) {
		double from = dlb_place_value_s(p, before), to = dlb_place_value_s(p, after);

		for (int i = 0; i < n; i++)
			ops += m[i].n_ops;
		for (; priced < n && priced < MOST_ROWS && left >= item; priced++, left -= item) {
			m[priced].alone_s = gain(from, value_with(p, before, &m[priced], m[priced].to,
								  m[priced].from));
			m[priced].without_s = gain(value_with(p, after, &m[priced], m[priced].from,
							      m[priced].to),
						   to);
		}
		fprintf(f,
			"\nmoves    %d ops in %d groups; under the second document's costs and weights the "
			"first placement takes %s, "
			"the second %s\n",
			ops, n, dlb_view_seconds(from, x, sizeof x), dlb_view_seconds(to, y, sizeof y));
		fprintf(f, "  %-9s %10s %12s %12s  %s\n", "node", "work", "gain alone", "gain left", "op");
		for (int i = 0; i < n && i < MOST_ROWS; i++)
			print_move(p->graph, &m[i], f);
		if (n > MOST_ROWS)
			fprintf(f, "  ... and %d more groups, each with less work\n", n - MOST_ROWS);
		if (priced < n && priced < MOST_ROWS)
			fprintf(f, "  gains of the first %d only: each takes two simulated steps of %d ops\n",
				priced, p->graph->n_ops);
	}
	free(before);
	free(after);
	free(m);
}

static int moves(const struct dlb_view *a, const struct dlb_view *b, FILE *f, int *n, struct dlb_error *err)
{
	struct dlb_problem p = { 0 };
	int rc = 0;

	*n = 0;
	if (!a->has_plan || !b->has_plan || (a->plan.n_nodes == b->plan.n_nodes &&
	    !memcmp(a->plan.placement, b->plan.placement, (size_t)a->graph.n_ops * sizeof(int))))
		return 0;
	for (int i = 0; i < a->graph.n_ops; i++) {
		*n += a->plan.placement[i] != b->plan.placement[i];
		/* the node does not exist in the second plan: no gain */
		if (a->plan.placement[i] >= b->plan.n_nodes) {
			fprintf(f, "\nmoves    the first plan has ops on nodes that the second document does "
				   "not have\n");
			*n = 1;
			return 0;
		}
	}
	if (!*n)
		return 0;
	rc = dlb_view_problem(b, &p, err);
	if (!rc) {
		p.replicas = b->plan.n_replicas > 1 ? &b->plan : NULL;
		print_moves(a, b, &p, f);
	}
	dlb_problem_release(&p);
	return rc;
}

int dlb_view_diff(const struct dlb_view *a, const struct dlb_view *b, FILE *f, struct dlb_error *err)
{
	struct diff_lines l[] = { { f, "made otherwise", 0 },
				  { f, "machine", 0 },
				  { f, "balance", 0 },
				  { f, "shares of a batch", 0 },
				  { f, "times", 0 } };
	int differ = 0, n_moves;

	if (other_graphs(a, b, err))
		return -1;
	fprintf(f, "first    %s\nsecond   %s\n", a->doc->name, b->doc->name);
	settings(a, b, &l[0]);
	machine(a, b, &l[1]);
	weights(a, b, &l[2]);
	shares(a, b, &l[3]);
	if (moves(a, b, f, &n_moves, err))
		return -1;
	times(a, b, &l[4]);
	for (int i = 0; i < DLB_LEN(l); i++)
		differ += l[i].n;
	if (!differ && !n_moves)
		fprintf(f, "\nnothing differs: the same graph, machine, weights, plan and times\n");
	return 0;
}
