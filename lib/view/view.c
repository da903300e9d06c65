/* Reads the sections to view; the table of formats; and the answer to --why. */
#include "graph/graph_json.h"
#include "optim/kfac.h"
#include "optim/optim.h"
#include "place/problem.h"
#include "place/why.h"
#include "plan/plan_json.h"
#include "plan/schedule.h"
#include "util/escape.h"
#include "util/mem.h"
#include "view/view.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int dlb_view_table(const struct dlb_view *v, FILE *f, struct dlb_error *err);
int dlb_view_svg(const struct dlb_view *v, FILE *f, struct dlb_error *err);
int dlb_view_trace(const struct dlb_view *v, FILE *f, struct dlb_error *err);
int dlb_view_memory(const struct dlb_view *v, FILE *f, struct dlb_error *err);
int dlb_view_front(const struct dlb_view *v, FILE *f, struct dlb_error *err);
int dlb_view_dot(const struct dlb_view *v, FILE *f, struct dlb_error *err);
int dlb_view_html(const struct dlb_view *v, FILE *f, struct dlb_error *err);

const struct dlb_view_format dlb_view_formats[] = {
	{ "table", "what there is, as tables", dlb_view_table },
	{ "svg", "time-lines, waits and losses as a picture", dlb_view_svg },
	{ "trace", "Chrome trace events, for Perfetto", dlb_view_trace },
	{ "memory", "the memory plan of each node as a picture", dlb_view_memory },
	{ "front", "step time against memory (dlb-place --front) as a picture", dlb_view_front },
	{ "dot", "the graph coloured by node, for Graphviz", dlb_view_dot },
	{ "html", "all of it as one page, for a browser", dlb_view_html },
	{ NULL, NULL, NULL },
};

const struct dlb_view_format *dlb_view_format_find(const char *name)
{
	for (const struct dlb_view_format *f = dlb_view_formats; f->name; f++)
		if (!strcmp(f->name, name))
			return f;
	return NULL;
}

int dlb_view_read(const struct dlb_doc *d, struct dlb_view *v, struct dlb_error *err)
{

	memset(v, 0, sizeof *v);
	v->doc = d;
	if (dlb_doc_section(d, "graph")) {
		if (dlb_graph_read(d, &v->graph, err))
			return -1;
		v->has_graph = true;
	}
	if (dlb_doc_section(d, "profile") && v->has_graph) {
		if (dlb_profile_read(d, &v->graph, &v->profile, err))
			return -1;
		v->has_profile = true;
	}
	if (dlb_doc_section(d, "cluster")) {
		if (dlb_cluster_read(d, &v->cluster, err) || dlb_cluster_correct_links(d, &v->cluster, err))
			return -1;
		v->has_cluster = true;
	}
	if (dlb_doc_section(d, "cost") && v->has_graph && v->has_cluster) {
		if (dlb_cost_read(d, &v->graph, &v->cluster, &v->cost, err))
			return -1;
		v->has_cost = true;
	}
	if (dlb_doc_section(d, "balance") && v->has_cluster) {
		if (dlb_balance_read(d, v->cluster.n_nodes, &v->balance, err))
			return -1;
		v->has_balance = true;
	}
	if (dlb_doc_section(d, "plan") && v->has_cost) {
		if (dlb_plan_read(d, &v->cost, &v->plan, &v->edited, err) ||
		    dlb_optimizer_bind(&v->graph, dlb_optimizer_find(v->plan.optimizer), err))
			return -1;
		v->has_plan = true;
	}
	if (dlb_doc_section(d, "report")) {
		if (dlb_report_read(d, &v->report, err))
			return -1;
		v->has_report = true;
	}
	dlb_view_show_names(v);
	return 0;
}

void dlb_view_release(struct dlb_view *v)
{
	dlb_report_release(&v->report);
	dlb_plan_release(&v->plan);
	dlb_balance_release(&v->balance);
	dlb_cost_release(&v->cost);
	dlb_cluster_release(&v->cluster);
	dlb_profile_release(&v->profile);
	dlb_graph_release(&v->graph);
	memset(v, 0, sizeof *v);
}

static int find_op(const struct dlb_graph *g, const char *op, struct dlb_error *err)
{
	const size_t bytes = strlen(op) * DLB_SHOWN_BYTES + 1;
	char *end, *shown = dlb_xmalloc(bytes);
	int found = -1;
	long id;

	dlb_escape(op, shown, bytes);		/* names of the graph are already escaped */
	for (int i = 0; i < g->n_ops && found < 0; i++)
		if (!strcmp(g->op[i].name, shown))
			found = i;
	free(shown);
	if (found >= 0)
		return found;
	errno = 0;
	id = strtol(op, &end, 10);
	if (!errno && *op && !*end && id >= 0 && id < g->n_ops)
		return (int)id;
	dlb_fail(err, NULL, "no op '%s'", op);
	return dlb_hint(err, "ops are named in .graph.ops[], ids run from 0 to %d", g->n_ops - 1);
}

int dlb_view_problem(const struct dlb_view *v, struct dlb_problem *p, struct dlb_error *err)
{
	int optimizer = dlb_optimizer_find(v->plan.optimizer);

	*p = (struct dlb_problem){ .graph = &v->graph,
				   .cluster = &v->cluster,
				   .cost = &v->cost,
				   .micro_batches = v->plan.micro_batches,
				   .batch = v->plan.batch,
				   .schedule = dlb_schedule_find(v->plan.schedule),
				   .staleness = v->plan.staleness,
				   .seed = v->plan.seed,
				   .not_in_place = !v->plan.in_place,
				   .clip = v->plan.clip,
				   .inverse_every = v->plan.inverse_every,
				   .recompute = &v->plan.recompute,
				   .offload = &v->plan.offload,
				   .state_dtype = v->plan.state_dtype,
				   .n_state = optimizer < 0 ? 0 : dlb_optimizers[optimizer].n_state };
	for (int i = 0; v->plan.objective && dlb_objectives[i]; i++)
		if (!strcmp(dlb_objectives[i], v->plan.objective))
			p->objective = (enum dlb_objective)i;
	if (v->has_balance) {
		p->weight = v->balance.weight;
		p->kappa = v->balance.kappa;
	}
	return dlb_problem_init(p, err);
}

int dlb_view_why(const struct dlb_view *v, const char *op, FILE *f, struct dlb_error *err)
{
	struct dlb_problem p = { 0 };
	int id, rc;

	if (!v->has_plan) {
		dlb_fail(err, NULL, "no plan in the document");
		return dlb_hint(err, "run dlb-place first");
	}
	id = find_op(&v->graph, op, err);
	if (id < 0)
		return -1;
	rc = dlb_view_problem(v, &p, err);
	if (!rc)
		rc = dlb_place_why(&p, &v->plan, id, f, err);
	dlb_problem_release(&p);
	return rc;
}

bool dlb_view_other_optimizer(const struct dlb_view *v)
{
	const char *planned = v->has_plan ? v->plan.optimizer : NULL,
		   *ran = v->has_report ? v->report.optimizer : NULL;

	return planned && ran && strcmp(planned, ran);
}
