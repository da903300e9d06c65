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
#include "text_graph.h"

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

/* The inference graph has the loss of the training graph where nothing is random or normalized by batches. */
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
	kept_part(", inference %d", out.n_ops);
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
		kept_text(err.what);
		kept_text(err.hint);
		kept_part(", frozen none");
	} else {
		int *before = dlb_xcalloc((size_t)g.n_ops + 1, sizeof *before);

		if (dlb_graph_check(&g, &err))
			test_die(&err);
		dlb_graph_ops_before(was, &g, before);
		kept_add(before, g.n_ops);
		free(before);
		keep_text(&g);
		kept_part(", frozen %d: %lld", f.weights, (long long)f.elements);
	}
	dlb_graph_release(&g);
	dlb_arena_release(&a);
}

/* -- training mode -- */

#define NORM(attrs, outs) \
	"x[N,4,3] | " outs " = BatchNormalization" attrs "(x, s[4]~steps, b[4], m[4], v[4]~same); z = " \
							 "Relu(y)"
static const struct {
	int opset;
	const char *text;
} modes[] = {
	{ 6, NORM("{is_test=0}", "y,m1,v1,m2,v2") },
	{ 6, NORM("{is_test=1}", "y") },
	{ 7, NORM("", "y") },
	{ 7, NORM("", "y,m1,v1,m2,v2") },
	{ 9, NORM("{momentum=0.8}", "y") },
	{ 9, NORM("", "y,m1,v1,m2,v2") },
	{ 13, NORM("", "y") },
	{ 14, NORM("{training_mode=0}", "y") },
	{ 14, NORM("{training_mode=1 momentum=0.8}", "y,m1,v1") },
	{ 17, NORM("", "y") },
	{ 17, NORM("{epsilon=0.01 training_mode=1}", "y,m1,v1") },
	/* one tensor for several purposes */
	{ 17, "x[N,4,3] | y,m1,v1 = BatchNormalization{training_mode=1}(x, s[4]~ones, b[4]~zeros, b, s); z = "
	      "Relu(y)" },
	{ 17, "x[N,4,3] | y = BatchNormalization(x, s[4]~ones, b[4]~zeros, b, s); z = Relu(y)" },
	{ 17,
	  "x[N,4,3] | y,m1,v1 = BatchNormalization{training_mode=1}(x, s[4]~same, b[4], b, s); z = Relu(y)" },
	{ 17,
	  "x[N,4,3] | y,m1,v1 = BatchNormalization{training_mode=1}(x, s[4], b[4], m[4]~zeros, v[4]~ones); "
	  "z,m2,v2 = BatchNormalization{training_mode=1}(y, s, b, m, v); u = Relu(z)" },
	{ 17, "x[N,4,3] | y,m1,v1 = BatchNormalization{training_mode=1}(x, s[4], b[4]~ones, m[4]~zeros, b); "
	      "z,m2,v2 = BatchNormalization{training_mode=1}(y, s, b, m, b); u = Relu(z)" },
	{ 17,
	  "x[N,4,3] | y,m1,v1 = BatchNormalization{training_mode=1}(x, s[4], b[4], m[4]~zeros, v[4]~ones); "
	  "z = BatchNormalization{training_mode=0}(y, s, b, m, v); u = Relu(z)" },
	/* dropout */
	{ 7, "x[N,4] | y = Dropout{ratio=0.3}(x); z = Relu(y)" },
	{ 10, "x[N,4] | y = Dropout(x); z = Relu(y)" },
	{ 6, "x[N,4] | y = Dropout{is_test=1 ratio=0.3}(x); z = Relu(y)" },
	{ 12, "x[N,4] | y = Dropout(x); z = Relu(y)" },
	{ 12, "x[N,4] | y = Dropout(x, %0.3); z = Relu(y)" },
	{ 12, "x[N,4] | y = Dropout(x, %0.3, ?1); z = Relu(y)" },
	{ 12, "x[N,4] | y = Dropout(x, %0.3, ?0); z = Relu(y)" },
	{ 12, "x[N,4] | y = Dropout(x, %0.0, ?1); z = Relu(y)" },
	{ 12, "x[N,4] | y = Dropout(x, -, ?1); a = Dropout(y, %0.25, ?0); b = Dropout(a); z = Relu(b)" },
	{ 12, "x[N,4,4] | y = Dropout(x, %0.3, ?1); p = Softmax(y); m = MatMul(p, x); z = Relu(m)" },
	{ 12, "x[N,4,4] | y = Dropout(x, %0.3, ?1); p = Softmax(y); m = MatMul(p, x); q = Softmax(m); n = "
	      "MatMul(q, x); z = Relu(n)" },
	{ 12, "x[N,4,4] | p = Softmax(x); m = MatMul(p, x); z = Relu(m)" },
	{ 12, "x[N,4,4] | y = Dropout(x, %0.3, ?1); p = Softmax(y); m = Mul(p, x); z = Relu(m)" },
	{ 15, "x[N,4] | n = RandomNormalLike(x); y = Mul(x, n); z = Relu(y)" },
	{ 15, "x[N,4] | n = RandomNormalLike(x); o = RandomUniformLike(x); y = Mul(o, n); z = Relu(y)" },
	/* what a Dropout may follow */
	{ 12, "x[N,4] | y = Relu(x); s = Shape(y); a = Tanh(y); z = Mul(y, a)" },
	{ 12, "x[N,4] | y = Relu(w[4]); a = Greater(x, y); b = Cast{to=11}(a); z = Mul(b, x)" },
};

/* Trains normalizations (1), freezes them (0), or leaves them (-1); then adds dropout, if asked to. Each
 * piece of a line is CHANGED:OPS:NOTES. */
static void keep_mode(int i, int train, const char *dropout)
{
	struct dlb_error err = { .what = "" };
	struct dlb_graph g;
	int changed = 0;

	text_graph(&g, modes[i].text, modes[i].opset, seed);
	if (dlb_graph_fold(&g, 3, &be, &err))
		test_die(&err);
	if (train >= 0)
		changed = dlb_graph_set_batchnorm(&g, train);
	dlb_graph_own_statistics(&g);
	const int rc = dropout ? dlb_graph_add_dropout(&g, dropout, &err) : 0;
	dlb_graph_note_dropout(&g);
	for (int k = 0; k < g.n_ops; k++)
		kept_add((const int[]){ g.op[k].opset, g.op[k].n_out, g.op[k].colocate }, 3);
	keep_text(&g);
	kept_text(err.hint);
	kept_text(err.what);
	kept_part("%d:%d:%d%s ", changed, g.n_ops, g.n_notes, rc ? "!" : "");
	dlb_graph_release(&g);
}

static void training_modes(void)
{
	static const char *const asks[] = { "y=0.25",   "Relu*=0.5", "Drop*=0", "*=0.125", "y=1",
					    "y=-0.5",   "=0.5",      "y",       "y=",      "y=x",
					    "none=0.5", "y=0.5x",    "a=b=0.5" };

	for (int i = 0; i < DLB_LEN(modes); i++) {
		for (int train = -1; train <= 1; train++)
			keep_mode(i, train, NULL);
		for (int k = 0; k < 4; k++)
			keep_mode(i, 1, asks[k]);
		kept_parts(strchr(modes[i].text, '|') + 2);
	}
	for (int k = 4; k < DLB_LEN(asks); k++)
		keep_mode(0, 1, asks[k]);
	kept_parts("requests for dropout");
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
		kept_text(err.what);
		kept_text(err.hint);
		kept_part(", no %s", names[pass]);
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
		kept_part(", %s %d", names[pass], g.n_ops);
		kept_add(&count, 1);
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
		kept_part("%d ops, %d warnings", g.n_ops, n);
		keep_eval(&cases[i], &g);
		keep_frozen(&cases[i], &g, patterns[i % DLB_LEN(patterns)]);
		dlb_graph_release(&g);
		for (int pass = 0; pass < N_PASSES; pass++)
			if ((pass != TRAINED && pass != GIVEN) || strstr(cases[i].name, "batch norm"))
				keep_pass(&cases[i], pass);
		kept_parts(cases[i].name);
	}
	training_modes();
	be.ops->close(&be);
	return kept_end(argc, argv, kept, DLB_LEN(kept));
}
