/* Kept results of passes over small graphs around one operator each: the inference graph of a training graph,
 * frozen weights, adapters, dropout, statistics, and warnings; texts of the graphs. kept.h says how lines are
 * replaced. */
#include <math.h>
#include "graph/graph.h"
#include "graph/graph_json.h"
#include "graph/order.h"
#include "graph/passes.h"
#include "util/patterns.h"
#include "check.h"
#include "kept.h"
#include "split_cases.h"

static const char *const kept[] = {
#include "passes_kept.inc"
};

static void keep_text(const struct dlb_graph *g)
{
	json_t *text = dlb_graph_write(g);

	kept_json(text);
	json_decref(text);
	for (int i = 0; i < g->n_notes; i++)
		kept_text(g->note[i]);
}

__attribute__((format(printf, 3, 4))) static void line(const char *what, const struct split_case *c,
						       const char *format, ...)
{
	char name[80], said[300];
	va_list more;

	va_start(more, format);
	vsnprintf(said, sizeof said, format, more);
	va_end(more);
	snprintf(name, sizeof name, "%s, %s", what, c->name);
	kept_line(name, "%s", said);
}

/* The inference graph has the loss of the training graph where nothing is random or normalized by the batch. */
static void keep_eval(const struct split_case *c, const struct dlb_graph *g)
{
	struct dlb_error err = { .what = "" };
	struct dlb_graph out;
	int *op_of, *tensor_of;

	if (dlb_graph_eval(g, &out, &op_of, &tensor_of, &err))
		test_die(&err);
	if (dlb_graph_check(&out, &err) || dlb_graph_index(&out))
		test_die(&err);
	kept_add(op_of, out.n_ops);
	kept_add(tensor_of, out.n_tensors);
	for (int i = 0; i < out.n_ops; i++)
		assert(IS(op_of[i], <, g->n_ops) && IS(out.op[i].phase, ==, DLB_FORWARD));
	keep_text(&out);
	line("inference", c, "%d ops of %d", out.n_ops, g->n_ops);
	if (!strstr(c->name, "drop") && !strstr(c->name, "batch norm")) {
		struct test_run a, b;

		test_run_init(&a, g, &be, 3);
		test_run_init(&b, &out, &be, 3);
		test_fill_inputs(&a, seed);
		test_fill_inputs(&b, seed);
		test_run_phase(&a, DLB_FORWARD);
		test_run_phase(&b, DLB_FORWARD);
		const double u = *(double *)a.value[g->loss], v = *(double *)b.value[out.loss];
		assert(IS(fabs(u - v), <=, 1e-12 * fabs(u)));
		test_run_release(&a);
		test_run_release(&b);
	}
	dlb_graph_release(&out);
}

static void keep_frozen(const struct split_case *c, const struct dlb_graph *was, const char *pattern)
{
	struct dlb_patterns p = { .what = "--freeze" };
	struct dlb_error err = { .what = "" };
	struct dlb_frozen f = { 0 };
	struct dlb_arena a = { 0 };
	struct dlb_graph g;

	make(&g, c);
	if (dlb_patterns_add(&p, pattern, &a, &err) || dlb_graph_freeze(&g, &p, &f, &err)) {
		line(pattern, c, "%s; %s", err.what, err.hint);
	} else {
		int *before = dlb_xcalloc((size_t)g.n_ops + 1, sizeof *before);

		if (dlb_graph_check(&g, &err))
			test_die(&err);
		dlb_graph_ops_before(was, &g, before);
		kept_add(before, g.n_ops);
		free(before);
		keep_text(&g);
		line(pattern, c, "%d weights, %lld elements, %d ops", f.weights, (long long)f.elements,
		     g.n_ops);
	}
	dlb_graph_release(&g);
	dlb_arena_release(&a);
}

/* The passes between the search for parameters and the loss. */
enum { ADAPTERS, ADAPTERS_OF, DROPOUT, TRAINED, GIVEN, N_PASSES };

static int apply(struct dlb_graph *g, int pass, int *count, struct dlb_error *err)
{
	static const char *const text[] = { "2" }, *const of[] = { "3:last*", "1:Mat*" };
	struct dlb_adapter_choice adapters = { .text = pass == ADAPTERS ? text : of,
					       .n = 1 + (pass == ADAPTERS_OF),
					       .alpha = pass == ADAPTERS ? 0 : 6 };

	if (pass == ADAPTERS || pass == ADAPTERS_OF)
		return dlb_graph_add_adapters(g, &adapters, err);
	if (pass == DROPOUT)
		return dlb_graph_add_dropout(g, "[MCGR]*[0-2]=0.25", err);
	*count = dlb_graph_set_batchnorm(g, pass == TRAINED);
	dlb_graph_own_statistics(g);
	return 0;
}

static void keep_pass(const struct split_case *c, int pass)
{
	static const char *const names[N_PASSES] = { "adapters", "adapters of some", "more dropout",
						     "statistics", "no statistics" };
	struct dlb_error err = { .what = "" };
	struct dlb_graph g;
	int count = 0;

	begin_graph(&g, c->opset);
	g.batch = 12;
	drawn = 0;
	g.output[g.n_outputs++] = build(&g, c);
	if (dlb_graph_fold(&g, 3, &be, &err) || dlb_graph_find_parameters(&g, &err))
		test_die(&err);
	if (apply(&g, pass, &count, &err)) {
		line(names[pass], c, "%s; %s", err.what, err.hint);
	} else {
		if (dlb_graph_attach_loss(&g, "mse", &err) || dlb_graph_rewrite(&g, &err) ||
		    dlb_graph_choose_layout(&g, &err) || dlb_graph_differentiate(&g, &err) ||
		    dlb_graph_check(&g, &err))
			test_die(&err);
		keep_text(&g);
		for (int i = 0; i < g.n_adapters; i++) {
			kept_text(g.adapter[i].of);
			kept_real(g.adapter[i].scale);
			kept_add((const int[]){ g.adapter[i].rank, g.adapter[i].transposed }, 2);
		}
		line(names[pass], c, "%d changed, %d adapters, %d ops", count, g.n_adapters, g.n_ops);
	}
	dlb_graph_release(&g);
}

int main(int argc, char **argv)
{
	static const char *const patterns[] = { "first*", "last*", "*", "other*" };

	test_backend(&be);
	for (int i = 0; i < DLB_LEN(cases); i++) {
		const char **lines;
		struct dlb_graph g;

		make(&g, &cases[i]);
		const int n = dlb_graph_warnings(&g, &lines);
		for (int k = 0; k < n; k++)
			kept_text(lines[k]);
		keep_text(&g);
		line("trained", &cases[i], "%d ops, %d warnings", g.n_ops, n);
		keep_eval(&cases[i], &g);
		keep_frozen(&cases[i], &g, patterns[i % DLB_LEN(patterns)]);
		dlb_graph_release(&g);
		for (int pass = 0; pass < N_PASSES; pass++)
			if ((pass != TRAINED && pass != GIVEN) || strstr(cases[i].name, "batch norm"))
				keep_pass(&cases[i], pass);
	}
	be.ops->close(&be);
	return kept_end(argc, argv, kept, DLB_LEN(kept));
}
