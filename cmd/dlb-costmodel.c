/* dlb-costmodel: graph + profile + cluster -> cost. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost/auto_split.h"
#include "cost/pair_sums.h"
#include "graph/graph_json.h"
#include "graph/order.h"
#include "graph/passes.h"
#include "optim/optim.h"
#include "util/cli.h"

/* Puts the cluster of -c into the document; without -c reads the document's own. */
static int get_cluster(struct dlb_doc *doc, const char *from, const struct dlb_profile *p,
		       struct dlb_cluster *cl, struct dlb_error *err)
{
	if (from) {
		json_t *section;
		if (dlb_cluster_from(from, cl, &section, err))
			return -1;
		if (dlb_profile_price_copies(p, cl)) {
			json_decref(section);
			section = dlb_cluster_write(cl);
		}
		dlb_doc_set(doc, "cluster", section);
		return 0;
	}
	if (!dlb_doc_section(doc, "cluster")) {
		dlb_fail(err, doc->name, "no section 'cluster'");
		return dlb_hint(
			err,
			"give one with --cluster, as in -c cpu:2, or make one with dlb-profile --cluster");
	}
	return dlb_cluster_read(doc, cl, err);
}

/* Fills list with the splits that the options ask for; with "auto" among them, also those that make the step
 * shorter. `a` owns the strings. */
static int find_asks(const struct dlb_doc *doc, const struct dlb_strlist *asked, const struct dlb_profile *p,
		     const struct dlb_cluster *cl, struct dlb_arena *a, struct dlb_split_list *list,
		     struct dlb_error *err)
{
	struct dlb_optimizer_choice choice;
	bool choose = false;
	int n_state = 0;

	list->ask = dlb_arena_array(a, (size_t)asked->n + 1, sizeof *list->ask);
	list->n = 0;
	for (int i = 0; i < asked->n; i++) {
		if (!strcmp(asked->item[i], "auto"))
			choose = true;
		else if (dlb_split_parse(asked->item[i], a, &list->ask[list->n++], err))
			return -1;
	}
	if (json_object_get(dlb_doc_section(doc, "run"), "optimizer")) {
		if (dlb_optimizer_read(doc, &choice, err))
			return -1;
		n_state = dlb_optimizers[choice.rule].n_state;
	}
	return choose ? dlb_auto_split(doc, p, cl, n_state, a, list, err) : 0;
}

/* Adds sums over shards in pairs where that is faster on this cluster. carried: the profile of g, or NULL. */
static int pair_sums(struct dlb_graph *g, const struct dlb_profile *carried, const struct dlb_cluster *cl,
		     struct dlb_error *err)
{
	struct dlb_cost c = { .n_ops = 0 };

	if (dlb_graph_index(g) || dlb_cost_estimate(&c, g, carried, cl, err))
		return -1;
	const int n = dlb_cost_choose_pairs(&c, g);
	dlb_cost_release(&c);
	return n ? dlb_graph_pair_sums(g, err) : 0;
}

/* Puts the split graph into the document, with the profile's rows of the unchanged ops. */
static int split(struct dlb_doc *doc, const struct dlb_strlist *asked, struct dlb_graph *g,
		 struct dlb_profile *p, bool profiled, const struct dlb_cluster *cl, struct dlb_error *err)
{
	struct dlb_graph was = { .n_ops = 0 };
	struct dlb_split_list list;
	struct dlb_arena a = { 0 };
	struct dlb_profile carried = { .n_kinds = 0 };
	int rc = find_asks(doc, asked, profiled ? p : NULL, cl, &a, &list, err);

	if (!rc && list.n)
		rc = dlb_graph_read(doc, &was, err) || dlb_graph_split(g, list.ask, list.n, err) ? -1 : 0;
	if (!rc && list.n && profiled)
		dlb_profile_carry(p, &was, g, &carried);
	if (!rc && list.n)
		rc = pair_sums(g, profiled ? &carried : NULL, cl, err);
	dlb_profile_release(&carried);
	if (!rc && list.n)
		dlb_profile_put_graph(doc, &was, g, profiled ? p : NULL);
	dlb_graph_release(&was);
	dlb_arena_release(&a);
	return rc;
}

static void print_splits(const struct dlb_graph *g, FILE *f)
{
	for (int i = 0; i < g->n_was_split; i++)
		fprintf(f, "split '%s' into %d by %s%s: %s\n", g->was_split[i].op, g->was_split[i].parts,
			g->was_split[i].axis, g->was_split[i].pairs ? ", sums in pairs" : "",
			g->was_split[i].why);
}

static int make_cost(struct dlb_doc *doc, const char *from, const struct dlb_strlist *asked,
		     const struct dlb_cli *cli, struct dlb_error *err)
{
	static const char *const inputs[] = { "graph", "profile", "cluster", NULL };
	struct dlb_graph g = { .n_ops = 0 };
	struct dlb_profile p = { .n_kinds = 0 };
	struct dlb_cluster cl = { .n_nodes = 0 };
	struct dlb_cost c = { .n_ops = 0 };
	bool profiled = dlb_doc_section(doc, "profile");
	int rc = -1;

	if (dlb_graph_read(doc, &g, err) || (profiled && dlb_profile_read(doc, &g, &p, err)) ||
	    get_cluster(doc, from, &p, &cl, err) ||
	    (asked->n && split(doc, asked, &g, &p, profiled, &cl, err)) ||
	    dlb_cost_fit(&c, &g, profiled ? &p : NULL, &cl, err))
		goto out;
	json_t *section = dlb_cost_write(&c);
	json_object_set_new(section, "inputs", dlb_doc_input_hashes(doc, inputs));
	dlb_doc_set(doc, "cost", section);
	if (asked->n && !g.n_was_split)
		dlb_cli_warn(cli, "--split auto has no effect: no op's time is worth the messages of its "
				  "shards on this cluster");
	if (cli->verbose) {
		print_splits(&g, stderr);
		dlb_cost_print_fit(&c, stderr);
	}
	rc = 0;
out:
	dlb_cost_release(&c);
	dlb_cluster_release(&cl);
	dlb_profile_release(&p);
	dlb_graph_release(&g);
	return rc;
}

int main(int argc, char **argv)
{
	const char *cluster = NULL;
	struct dlb_strlist asked = { .n = 0 };
	const struct dlb_opt opts[] = {
		{ 'c', "cluster", DLB_OPT_STR, &cluster, "CLUSTER",
		  "file with a cluster, or a synthetic one such as 'cpu:2 host cpu/4:1*0.5'", NULL, 0, 0 },
		{ 0, "split", DLB_OPT_LIST, &asked, "auto|OP=K[:AXIS]",
		  "split an op into K shards along output, input, batch, head or vocabulary; auto: where it "
		  "pays; repeatable",
		  NULL, 0, 0 },
	};
	struct dlb_cli cli = { .tool = "dlb-costmodel", .usage = "[OPTION...] [FILE]",
			       .summary = "predict the time of each op on each kind of device", .opts = opts,
			       .n_opts = DLB_LEN(opts), .max_operands = 1 };
	struct dlb_error err = { .what = "" };
	static struct dlb_doc doc; /* never freed: that would take a tenth of the time of a large graph */
	int rc;

	if (dlb_cli_parse(&cli, argc, argv))
		return cli.status;
	rc = dlb_doc_read(&doc, cli.n_operands ? cli.operands[0] : NULL, &err) ||
	     make_cost(&doc, cluster, &asked, &cli, &err);
	if (!rc) {
		dlb_doc_provenance(&doc, cli.tool, argc, argv);
		rc = dlb_doc_write(&doc, stdout, &err);
	}
	rc = rc ? dlb_cli_die(&cli, &err) : dlb_cli_close_stdout(&cli);
	dlb_cli_release(&cli);
	return rc;
}
