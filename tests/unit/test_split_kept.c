/* Kept results of splitting: graphs around one op of each operator that has a rule, in all its variants,
 * split along every axis, split again, and with sums in pairs: which ops are split, joined and summed, or why
 * none is. The loss, every weight's gradient and every output of a split graph, in f64, equal those of the
 * whole graph to 1e-11. kept.h says how lines are replaced. */
#include <math.h>
#include "graph/graph.h"
#include "graph/order.h"
#include "graph/passes.h"
#include "graph/slice.h"
#include "graph/split.h"
#include "check.h"
#include "run_graph.h"
#include "util/rng.h"
#include "by_hand.h"
#include "kept.h"
#include "split_cases.h"

static const char *const kept[] = {
#include "split_kept.inc"
};

static int n_checked;

static const struct dlb_split_request requests[] = {
	{ .op = "*", .parts = 2 },
	{ .op = "*", .parts = 3 },
	{ .op = "*", .parts = 2, .axis = "output" },
	{ .op = "*", .parts = 2, .axis = "input" },
	{ .op = "*", .parts = 3, .axis = "batch" },
	{ .op = "*", .parts = 2, .axis = "rows" },
	{ .op = "*", .parts = 2, .axis = "head" },
	{ .op = "MatMul*", .parts = 4, .axis = "output" },
	{ .op = "Gather*", .parts = 2 },
	{ .op = "Gather*", .parts = 3, .axis = "vocabulary" },
	{ .op = "Gather*", .parts = 2, .axis = "output" },
	{ .op = "Gather*", .parts = 2, .axis = "rows" },
};

/* -- comparison with the whole graph -- */

static void near(const char *what, double u, double v)
{
	if (!(fabs(u - v) <= 1e-11 + 1e-11 * fabs(v))) {
		fprintf(stderr, "%s: split %.17g, whole %.17g\n", what, u, v);
		abort();
	}
	n_checked++;
}

static int gradient_of(const struct dlb_graph *g, const char *weight)
{
	for (int i = 0; i < g->n_ops; i++)
		if (g->op[i].phase == DLB_UPDATE && !strcmp(g->tensor[g->op[i].in[0]].name, weight))
			return g->op[i].in[1];
	return -1;
}

/* Every element of the part's tensor t is that of the whole tensor u where the slice says. */
static void same_part(const char *what, const struct test_run *a, int t, const struct dlb_slice *slice,
		      const struct test_run *b, int u)
{
	const struct dlb_desc d = dlb_tensor_desc(&a->g->tensor[t], a->n);

	assert(IS(u, >=, 0));
	for (int64_t e = 0; e < dlb_desc_count(&d); e++)
		near(what, ((double *)a->value[t])[e],
		     ((double *)b->value[u])[slice ? dlb_slice_index(slice, e) : e]);
}

static void same_results(const char *what, const struct dlb_graph *g, const struct dlb_graph *whole,
			 int64_t n)
{
	struct test_run a, b;

	test_run_init(&a, g, &be, n);
	test_run_init(&b, whole, &be, n);
	test_fill_inputs(&a, seed);
	test_fill_inputs(&b, seed);
	test_run_phase(&a, DLB_BACKWARD);
	test_run_phase(&b, DLB_BACKWARD);
	if (g->loss >= 0)
		same_part(what, &a, g->loss, NULL, &b, whole->loss);
	for (int i = 0; i < g->n_outputs && g->n_outputs == whole->n_outputs; i++)
		same_part(what, &a, g->output[i], NULL, &b, whole->output[i]);
	for (int i = 0; i < g->n_ops; i++) {
		const struct dlb_op *o = &g->op[i];
		if (o->phase != DLB_UPDATE)
			continue;
		const struct dlb_tensor *w = &g->tensor[o->in[0]];
		same_part(what, &a, o->in[1], w->slice, &b,
			  gradient_of(whole, w->slice ? w->slice->of : w->name));
	}
	for (int t = 0; t < g->n_tensors; t++) {
		const struct dlb_tensor *x = &g->tensor[t];
		if (x->kind == DLB_T_BUFFER)
			same_part(what, &a, t, x->slice, &b,
				  test_tensor(whole, x->slice ? x->slice->of : x->name));
	}
	test_run_release(&a);
	test_run_release(&b);
}

/* -- lines: OPS:CONCATS+SAMPLECONCATS-SPLITS-SAMPLESPLITS=SUMS of each request, in the order of requests[] -- */

static int count(const struct dlb_graph *g, const char *type)
{
	int n = 0;

	for (int i = 0; i < g->n_ops; i++)
		n += g->op[i].phase == DLB_FORWARD && !strcmp(g->op[i].type, type);
	return n;
}

static void keep_ops(const struct dlb_graph *g)
{
	kept_add(g->output, g->n_outputs);
	for (int t = 0; t < g->n_tensors; t++)
		kept_add((const int[]){ g->tensor[t].home, (int)g->tensor[t].bound }, 2);
	for (int i = 0; i < g->n_ops; i++) {
		const struct dlb_op *o = &g->op[i];
		kept_text(o->name);
		kept_text(o->type);
		kept_add(o->in, o->n_in);
		kept_add(o->out, o->n_out);
		kept_add((const int[]){ o->phase, o->of, o->colocate }, 3);
		kept_real(o->flop);
		kept_real(o->bytes);
		for (int k = 0; k < o->n_attr; k++)
			kept_text(o->attr[k].name);
		for (int k = 0; k < o->n_out; k++)
			if (o->out[k] >= 0) {
				const struct dlb_tensor *t = &g->tensor[o->out[k]];
				kept_text(t->name);
				for (int d = 0; d < t->n_dims; d++)
					kept_add((const int[]){ (int)t->dim[d].mul, (int)t->dim[d].add }, 2);
			}
	}
	for (int i = 0; i < g->n_was_split; i++) {
		const struct dlb_was_split *w = &g->was_split[i];
		kept_text(w->op);
		kept_text(w->axis);
		kept_text(w->why);
		kept_add(&w->parts, 1);
	}
}

static void keep(const struct split_case *c, const struct dlb_split_request *ask,
		 const struct dlb_graph *whole)
{
	struct dlb_error err = { .what = "" };
	struct dlb_split_request why = *ask;
	struct dlb_graph g;
	char what[120];

	why.why = "a test";
	snprintf(what, sizeof what, "%s, %s, %s by %d%s%s", c->name, loss, ask->op, ask->parts,
		 ask->axis ? " along " : "", ask->axis ? ask->axis : "");
	make(&g, c);
	if (dlb_graph_split(&g, &why, 1, &err)) {
		kept_text(err.where);
		kept_text(err.hint);
		kept_text(err.what);
		kept_part("no ");
	} else {
		if (dlb_graph_check(&g, &err) || dlb_graph_index(&g))
			test_die(&err);
		keep_ops(&g);
		const bool one = !dlb_graph_check_runnable(&g, 1, &err);
		kept_text(err.what);
		kept_part("%d:%d+%d-%d-%d=%d ", g.n_was_split, count(&g, "Concat"), count(&g, "SampleConcat"),
			  count(&g, "Split"), count(&g, "SampleSplit"), count(&g, "Sum"));
		same_results(what, &g, whole, 3);
		if (one) /* some shards by samples are empty */
			same_results(what, &g, whole, 1);
	}
	dlb_graph_release(&g);
}

/* Splits a graph, half of whose ops are shards already, once more: parts of parts. */
static void keep_again(const struct split_case *c, const struct dlb_graph *whole, const char *axis)
{
	const struct dlb_split_request first = { .op = "*", .parts = 2, .why = "a test" },
				       second = { .op = "*", .parts = 2, .axis = axis, .why = "again" };
	struct dlb_error err = { .what = "" };
	struct dlb_graph g;
	char what[120];

	snprintf(what, sizeof what, "%s, again%s%s", c->name, axis ? " along " : "", axis ? axis : "");
	make(&g, c);
	if (dlb_graph_split(&g, &first, 1, &err) || dlb_graph_split(&g, &second, 1, &err)) {
		kept_text(err.where);
		kept_text(err.hint);
		kept_text(err.what);
		kept_part("no ");
	} else {
		if (dlb_graph_check(&g, &err) || dlb_graph_index(&g))
			test_die(&err);
		keep_ops(&g);
		kept_part("%d ", g.n_was_split);
		same_results(what, &g, whole, 3);
	}
	dlb_graph_release(&g);
}

/* Adds the outputs and gradients of many shards in pairs. */
static void keep_pairs(const struct split_case *c, const struct dlb_graph *whole, int parts)
{
	const struct dlb_split_request ask = { .op = "*", .parts = parts, .why = "a test" };
	struct dlb_error err = { .what = "" };
	struct dlb_graph g;
	char what[120];

	snprintf(what, sizeof what, "%s, %d shards in pairs", c->name, parts);
	make(&g, c);
	g.batch = 4096; /* large enough for pairs */
	if (dlb_graph_split(&g, &ask, 1, &err)) {
		dlb_graph_release(&g);
		return;
	}
	const int before = g.n_ops, sums = count(&g, "Sum");
	for (int i = 0; i < g.n_was_split; i++)
		g.was_split[i].pairs = true;
	if (dlb_graph_pair_sums(&g, &err) || dlb_graph_check(&g, &err) || dlb_graph_index(&g))
		test_die(&err);
	for (int i = 0; i < g.n_ops; i++) /* of outputs that follow the batch, only pairs are left */
		if (!strcmp(g.op[i].type, "Sum") && g.op[i].phase == DLB_FORWARD &&
		    strstr(g.op[i].name, ".sum") &&
		    dlb_tensor_bytes(&g.tensor[g.op[i].out[0]], g.batch) >= DLB_SPLIT_PAIRS_BYTES)
			assert(IS(g.op[i].n_in, ==, 2));
	keep_ops(&g);
	kept_add((const int[]){ before, g.n_ops }, 2);
	kept_part("pairs %d>%d", sums, count(&g, "Sum"));
	same_results(what, &g, whole, 3);
	dlb_graph_release(&g);
}

int main(int argc, char **argv)
{
	test_backend(&be);
	for (int i = 0; i < DLB_LEN(cases); i++) {
		struct dlb_graph whole;

		make(&whole, &cases[i]);
		for (int k = 0; k < DLB_LEN(requests); k++)
			if (*requests[k].op != 'G' || count(&whole, "Gather"))
				keep(&cases[i], &requests[k], &whole);
		kept_parts(cases[i].name);
		kept_part("again ");
		keep_again(&cases[i], &whole, NULL);
		keep_again(&cases[i], &whole, "output");
		keep_again(&cases[i], &whole, "batch");
		keep_pairs(&cases[i], &whole, 3 + i % 4);
		kept_parts(cases[i].name);
		dlb_graph_release(&whole);
	}
	for (int i = 0; i < DLB_LEN(cases); i++)
		for (int way = 0; way < 2; way++) {
			struct dlb_graph whole;

			if ((i + way) % 4)
				continue;
			loss = way ? "none" : "cross-entropy";
			classes = way ? 5 : 24; /* as many as a loss in parts needs */
			make(&whole, &cases[i]);
			kept_part("%s ", loss);
			for (int k = 0; k < 5; k++)
				keep(&cases[i], &requests[k], &whole);
			kept_parts(cases[i].name);
			dlb_graph_release(&whole);
		}
	be.ops->close(&be);
	printf("%d numbers are those of the whole\n", n_checked);
	return kept_end(argc, argv, kept, DLB_LEN(kept));
}
