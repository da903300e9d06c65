/* Fuzzer of the document and of every section's reader.
 *     make fuzz && build/fuzz/document -max_total_time=600 CORPUS tests/golden */
#include "balance/balance.h"
#include "cluster/cluster.h"
#include "cost/cost.h"
#include "cost/profile.h"
#include "graph/graph.h"
#include "optim/optim.h"
#include "plan/plan.h"
#include "plan/program.h"
#include "plan/report.h"
#include "view/view.h"

/* A reader that refuses must say why. */
static int told(int rc, struct dlb_error *err)
{
	if (rc && !err->what[0])
		dlb_bug("refused without a word");
	err->what[0] = '\0';
	return rc;
}

static void read_graph(const struct dlb_doc *d, const struct dlb_cluster *cl, struct dlb_error *err)
{
	struct dlb_graph g;
	if (told(dlb_graph_read(d, &g, err), err))
		return;
	struct dlb_profile profile = { .n_kinds = 0 };
	struct dlb_cost cost = { .n_ops = 0 };
	struct dlb_plan plan = { .n_ops = 0 };
	bool rescheduled = false;
	if (!told(dlb_profile_read(d, &g, &profile, err), err))
		dlb_profile_release(&profile);
	if (cl && !told(dlb_cost_read(d, &g, cl, &cost, err), err)) {
		if (!told(dlb_plan_read(d, &cost, &plan, &rescheduled, err), err))
			dlb_plan_release(&plan);
		dlb_cost_release(&cost);
	}
	dlb_graph_release(&g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct dlb_error err = { .what = "" };
	struct dlb_doc d;
	if (told(dlb_doc_parse(&d, (const char *)data, size, "fuzz.json", &err), &err))
		return 0;
	struct dlb_cluster cl;
	struct dlb_balance b;
	struct dlb_report r = { .n_nodes = 0 };
	struct dlb_optimizer_choice o;
	const int has_cluster = !told(dlb_cluster_read(&d, &cl, &err), &err);
	read_graph(&d, has_cluster ? &cl : NULL, &err);
	if (has_cluster) {
		if (!told(dlb_balance_read(&d, cl.n_nodes, &b, &err), &err))
			dlb_balance_release(&b);
		dlb_cluster_release(&cl);
	}
	if (!told(dlb_report_read(&d, &r, &err), &err))
		dlb_report_release(&r);
	(void)told(dlb_optimizer_read(&d, &o, &err), &err);
	dlb_doc_release(&d);
	return 0;
}
