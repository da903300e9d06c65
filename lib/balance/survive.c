/* Plans again without lost nodes. See survive.h. */
#include "balance/survive.h"

#include <stdio.h>
#include <stdlib.h>

#include "balance/replan.h"
#include "plan/plan_json.h"
#include "util/mem.h"

/* Sets out[n] to the nodes in lost[n] and those that the plan excludes; returns the number of other nodes. */
static int exclude(const struct dlb_doc *doc, const bool *lost, int n, bool *out)
{
	const json_t *list = json_object_get(dlb_doc_section(doc, "plan"), "exclude");
	int left = 0;

	for (int i = 0; i < n; i++)
		out[i] = lost[i];
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_int_t node = json_integer_value(json_array_get(list, i));

		if (node >= 0 && node < n)
			out[node] = true;
	}
	for (int i = 0; i < n; i++)
		left += !out[i];
	return left;
}

int dlb_survive(const struct dlb_cli *cli, struct dlb_doc *doc, const bool *lost, int n, char text[256],
		struct dlb_error *err)
{
	struct dlb_cli quiet;
	struct dlb_replan o = dlb_replan_in_run(cli, &quiet);
	bool *out = dlb_xcalloc((size_t)n + 1, sizeof *out);
	const int left = exclude(doc, lost, n, out),
		  replicas = dlb_plan_count_replicas(dlb_doc_section(doc, "plan"));
	const char **item = dlb_xcalloc((size_t)n + 1, sizeof *item);
	char *number = NULL;
	int rc = -1;

	if (!left) {
		dlb_fail(err, NULL, "no node is left");
		goto out;
	}
	for (int i = 0; i < n; i++)
		if (out[i])
			item[o.constraints.exclude.n++] = dlb_xprintf("%d", i);
	o.constraints.exclude.item = item;
	if (replicas > left)
		o.replicas = number = dlb_xprintf("%d", left);
	o.keeps_shares = replicas <= left;
	rc = dlb_replan(&o, doc, err);
	for (int i = 0; item[i]; i++)
		free((char *)(uintptr_t)item[i]);
	if (!rc && replicas > left)
		snprintf(text, 256, "%d of %d nodes are left, %d replicas instead of %d: other bits from here on", left,
			 n, left, replicas);
	else if (!rc)
		snprintf(text, 256, "%d of %d nodes are left", left, n);
out:
	free(number);
	free(item);
	free(out);
	return rc;
}
