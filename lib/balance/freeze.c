/* Freezes weights in a document. See freeze.h. */
#include "balance/freeze.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "balance/live.h"
#include "balance/replan.h"
#include "graph/graph_json.h"
#include "graph/order.h"
#include "graph/passes.h"
#include "plan/plan_json.h"
#include "util/mem.h"

/* The pins in `was` of ops that g has; new. */
static json_t *carry_pins(const json_t *was, const struct dlb_graph *g)
{
	json_t *pins = json_object();

	for (int i = 0; i < g->n_ops; i++)
		if (json_object_get(was, g->op[i].name))
			json_object_set(pins, g->op[i].name, json_object_get(was, g->op[i].name));
	return pins;
}

/* The plan `was`, of g_was, for graph g: each op is on the node of the op that it replaces. Without orders,
 * which are made anew; new. */
static json_t *carry_plan(const json_t *was, const struct dlb_graph *g_was, const struct dlb_graph *g)
{
	static const char *const of_the_graph[] = { "nodes", "timeline", "hash", "moved_ops", "moved_bytes" };
	const json_t *placement = json_object_get(was, "placement");
	int *before = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *before),
	    *group = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *group);
	json_t *plan = json_copy((json_t *)(uintptr_t)was), *now = json_object();
	char key[24];

	dlb_graph_ops_before(g_was, g, before);
	dlb_graph_groups(g, group);
	for (int i = 0; i < g->n_ops; i++) {
		json_t *node;

		snprintf(key, sizeof key, "%d", before[group[i]]);
		node = json_object_get(placement, key);
		snprintf(key, sizeof key, "%d", i);
		json_object_set(now, key, node);
	}
	for (int i = 0; i < DLB_LEN(of_the_graph); i++)
		json_object_del(plan, of_the_graph[i]);
	json_object_set_new(plan, "placement", now);
	if (json_object_get(was, "pins"))
		json_object_set_new(plan, "pins", carry_pins(json_object_get(was, "pins"), g));
	free(group);
	free(before);
	return plan;
}

/* Puts graph g, frozen from g_was, into doc, with its profile and its costs. */
static int put_graph(struct dlb_doc *doc, const struct dlb_graph *g_was, struct dlb_graph *g,
		     struct dlb_error *err)
{
	static const char *const inputs[] = { "graph", "profile", "cluster", NULL };
	const bool profiled = dlb_doc_section(doc, "profile");
	struct dlb_profile p = { .n_kinds = 0 };
	struct dlb_cluster cl = { .n_nodes = 0 };
	struct dlb_cost c = { .n_ops = 0 };
	int rc = dlb_cluster_read(doc, &cl, err) || (profiled && dlb_profile_read(doc, g_was, &p, err)) ? -1 :
													  0;

	if (!rc) {
		dlb_profile_put_graph(doc, g_was, g, profiled ? &p : NULL);
		rc = dlb_cost_fit(&c, g, profiled ? &p : NULL, &cl, err);
	}
	if (!rc) {
		json_t *section = dlb_cost_write(&c);

		json_object_set_new(section, "inputs", dlb_doc_input_hashes(doc, inputs));
		dlb_doc_set(doc, "cost", section);
	}
	dlb_cost_release(&c);
	dlb_cluster_release(&cl);
	dlb_profile_release(&p);
	return rc;
}

static double predicted_s(const struct dlb_doc *doc)
{
	return json_number_value(json_object_get(dlb_doc_section(doc, "plan"), "value_s"));
}

/* Predicts the step of the present plan again, with the run's optimizer, node weights and kappa, since the
 * plan may have been made without them. */
static int predict_again(const struct dlb_cli *cli, struct dlb_doc *doc, double *step_s,
			 struct dlb_error *err)
{
	struct dlb_cli quiet;
	struct dlb_replan o = dlb_replan_in_run(cli, &quiet);

	o.stay = true;
	if (dlb_replan(&o, doc, err))
		return -1;
	*step_s = predicted_s(doc);
	return 0;
}

/* Makes the plan for graph g, beginning with `plan`, which is of g_was. */
static int plan_again(const struct dlb_cli *cli, struct dlb_doc *doc, const json_t *plan,
		      const struct dlb_graph *g_was, const struct dlb_graph *g, struct dlb_error *err)
{
	static const char *const inputs[] = { "graph", "cluster", "cost", NULL };
	const json_t *nodes = json_object_get(dlb_doc_section(doc, "cluster"), "nodes");
	struct dlb_cli quiet;
	struct dlb_replan o = dlb_replan_in_run(cli, &quiet);
	json_t *carried = carry_plan(plan, g_was, g);

	json_object_set_new(carried, "inputs", dlb_doc_input_hashes(doc, inputs));
	dlb_doc_set(doc, "plan", carried);
	/* the state of replicas does not move inside a run */
	o.stay = dlb_plan_count_replicas(plan) > 1;
	return dlb_balance_begin_search(doc, (int)json_array_size(nodes), err) || dlb_replan(&o, doc, err) ?
		       -1 :
		       0;
}

static void say(const struct dlb_frozen *f, const char *const *glob, int n, double before_s,
		const struct dlb_doc *doc, char text[DLB_FREEZE_TEXT])
{
	const json_t *plan = dlb_doc_section(doc, "plan");
	char ops[80];

	if (!dlb_live_tell_ops(plan, ops, sizeof ops))
		strcpy(ops, "no op moves");
	snprintf(text, DLB_FREEZE_TEXT,
		 "%d weight%s frozen (%.100s%s), %lld elements; %s, %.4g ms a step predicted instead of %.4g "
		 "ms",
		 f->weights, f->weights == 1 ? " is" : "s are", glob[0], n > 1 ? " ..." : "",
		 (long long)f->elements, ops, predicted_s(doc) * 1e3, before_s * 1e3);
}

int dlb_freeze(void *live, const struct dlb_cli *cli, struct dlb_doc *doc, const char *const *glob, int n,
	       char text[DLB_FREEZE_TEXT], struct dlb_error *err)
{
	struct dlb_arena a = { 0 };
	struct dlb_patterns patterns = { .what = "--freeze-at" };
	struct dlb_graph was = { .n_ops = 0 }, g = { .n_ops = 0 };
	struct dlb_frozen f = { 0, 0 };
	json_t *plan = json_incref(dlb_doc_section(doc, "plan"));
	double before_s = 0;
	int rc = 0;

	for (int i = 0; i < n && !rc; i++)
		rc = dlb_patterns_add(&patterns, glob[i], &a, err);
	if (!rc)
		rc = dlb_graph_read(doc, &was, err) || dlb_graph_read(doc, &g, err) ||
				     dlb_graph_freeze(&g, &patterns, &f, err) ?
			     -1 :
			     0;
	text[0] = '\0';
	if (!rc && f.weights) {
		rc = predict_again(cli, doc, &before_s, err) || put_graph(doc, &was, &g, err) ||
				     plan_again(cli, doc, plan, &was, &g, err) ?
			     -1 :
			     0;
		dlb_live_release(live);
	}
	if (!rc && f.weights)
		say(&f, glob, n, before_s, doc, text);
	json_decref(plan);
	dlb_graph_release(&g);
	dlb_graph_release(&was);
	dlb_arena_release(&a);
	return rc;
}
