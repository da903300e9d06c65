/* Leaves out nodes that a plan does not need. See release.h. */
#include "balance/release.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "balance/survive.h"
#include "plan/plan_json.h"
#include "util/mem.h"

enum { MOST_SLOWER = 3 }; /* plans in a row, each with one node fewer, that are too slow and end the search */

static const json_t *plan_member(const struct dlb_doc *doc, const char *key)
{
	return json_object_get(dlb_doc_section(doc, "plan"), key);
}

static bool is_excluded(const struct dlb_doc *doc, int node)
{
	const json_t *list = plan_member(doc, "exclude");

	for (size_t i = 0; i < json_array_size(list); i++)
		if (json_integer_value(json_array_get(list, i)) == node)
			return true;
	return false;
}

/* The least busy of the nodes that the plan does not exclude; -1: only one is left. */
static int least_busy(const struct dlb_doc *doc, int n)
{
	double least_s = INFINITY;
	int best = -1, left = 0;

	for (int i = 0; i < n; i++) {
		const json_t *node = json_array_get(plan_member(doc, "nodes"), (size_t)i);
		const double busy_s = json_number_value(json_object_get(node, "busy_s"));

		if (is_excluded(doc, i))
			continue;
		left++;
		if (busy_s < least_s) {
			least_s = busy_s;
			best = i;
		}
	}
	return left > 1 ? best : -1;
}

/* Plans without the node as well. false: no plan fits, or it has fewer replicas. */
static bool leave_out(const struct dlb_cli *cli, struct dlb_doc *doc, int node, int n)
{
	const int replicas = dlb_plan_count_replicas(dlb_doc_section(doc, "plan"));
	bool *lost = dlb_xcalloc((size_t)n + 1, sizeof *lost), ok;
	struct dlb_error ignored;
	char text[256];

	lost[node] = true;
	ok = !dlb_survive(cli, doc, lost, n, text, &ignored) &&
	     dlb_plan_count_replicas(dlb_doc_section(doc, "plan")) == replicas;
	free(lost);
	return ok;
}

/* Gives doc the plan on the fewest nodes whose step takes at most limit_s, and marks in out[n] the nodes that
 * this plan leaves out. A plan may be too slow while one on fewer nodes is not, so the search goes on after a
 * few slower plans. */
static void search(const struct dlb_cli *cli, struct dlb_doc *doc, int n, double limit_s, bool *out)
{
	json_t *best = json_deep_copy(dlb_doc_section(doc, "plan"));
	bool *tried = dlb_xcalloc((size_t)n + 1, sizeof *tried);
	int slower = 0, node;

	while (slower < MOST_SLOWER && (node = least_busy(doc, n)) >= 0 && leave_out(cli, doc, node, n)) {
		tried[node] = true;
		if (json_number_value(plan_member(doc, "value_s")) > limit_s) {
			slower++;
			continue;
		}
		slower = 0;
		memcpy(out, tried, (size_t)n * sizeof *out);
		json_decref(best);
		best = json_deep_copy(dlb_doc_section(doc, "plan"));
	}
	dlb_doc_set(doc, "plan", best);
	free(tried);
}

/* "nodes 1, 3": those of out[n]; new. */
static char *list_nodes(const bool *out, int n)
{
	char *text = NULL;
	int named = 0;

	for (int i = 0; i < n; i++) {
		char *longer;

		if (!out[i])
			continue;
		longer = dlb_xprintf("%s%s%d", text ? text : "", named++ ? ", " : "", i);
		free(text);
		text = longer;
	}
	if (named) {
		char *line = dlb_xprintf("node%s %s", named > 1 ? "s" : "", text);

		free(text);
		text = line;
	}
	return text;
}

int dlb_release_idle(const struct dlb_cli *cli, struct dlb_doc *doc, char text[DLB_RELEASE_TEXT],
		     struct dlb_error *err)
{
	const int n = (int)json_array_size(json_object_get(dlb_doc_section(doc, "cluster"), "nodes"));
	const double all_s = json_number_value(plan_member(doc, "value_s"));
	bool *out = dlb_xcalloc((size_t)n + 1, sizeof *out);
	char *names;

	if (!(all_s > 0)) {
		free(out);
		return dlb_refuse(err, "/plan", "run dlb-place", "the plan has no predicted step");
	}
	search(cli, doc, n, all_s * (1 + DLB_RELEASE_SLOWER), out);
	names = list_nodes(out, n);
	if (names)
		snprintf(text, DLB_RELEASE_TEXT,
			 "without %.250s a step takes %.4g ms by the plan, %.4g ms with all nodes", names,
			 1e3 * json_number_value(plan_member(doc, "value_s")), 1e3 * all_s);
	else
		snprintf(text, DLB_RELEASE_TEXT,
			 "all nodes are needed: with fewer, a step takes longer or the "
			 "plan does not fit");
	free(names);
	free(out);
	return 0;
}
