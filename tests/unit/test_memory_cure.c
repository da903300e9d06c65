/* The hint where the processes of a plan need more memory than their hosts have: each way to save memory is
 * tried here by plans of its own, and the hint must list those that fit, in their order, and no others. */
#include "check.h"
#include <jansson.h>
#include "place_cases.h"
#include "balance/replan.h"
#include "balance/replan_batch.h"
#include "balance/replan_memory.h"
#include "graph/graph_json.h"
#include "place/batches.h"
#include "plan/plan_json.h"

static const struct dlb_cli cli = { .tool = "dlb-run" }, placer = { .tool = "dlb-place" };

/* room: the part of the peaks that hosts have beside what their processes need for all else. weights: the factor
 * of their bytes. */
static const struct memory_case {
	const char *cluster, *optimizer, *replicas, *recompute;
	int64_t batch, micro_batches;
	double room, weights, stated; /* stated: memory_bytes of the nodes; 0: none */
	bool by_process;
	int n_forward; /* 0: 3 */
	const char *want; /* part of the hint */
} cases[] = {
	{ "cpu:1", "sgd", NULL, NULL, 16, 1, .9, 1, .want = "dlb-place: -m 2" },
	{ "cpu:1", "sgd", NULL, NULL, 16, 4, .9, 1, .by_process = true, .want = "dlb-place: " },
	{ "cpu:1", "adam", NULL, NULL, 1, 1, .9, 50,
	  .want = "dlb-place: a plan with one more host would fit where each node" },
	{ "cpu:1 host cpu:1 link=rack:1e-7,1e12", "sgd", NULL, NULL, 8, 2, .8, 1, .want = "dlb-place: " },
	{ "cpu:1 host cpu:1 link=rack:1e-7,1e12", "adam", "2", NULL, 8, 1, .9, 50,
	  .want = "dlb-place: --zero 1 would fit" },
	{ "cpu:1 host cpu:1 link=rack:1e-7,1e12", "adam", "2", NULL, 2, 1, .8, 50,
	  .want = "dlb-place: --zero 1 would fit" },
	{ "cpu:1", "sgd", NULL, "auto", 8, 1, .75, 1, .by_process = true, .want = "dlb-place: " },
	{ "cpu:1", "sgd", NULL, NULL, 16, 1, .7, 10, .stated = 1e13, .want = "dlb-place: " },
	{ "cpu:1", "sgd", NULL, NULL, 16, 1, .5, 3, .stated = 1e13, .by_process = true,
	  .want = "dlb-place: " },
	{ "cpu:1 host cpu:1 link=rack:1e-7,1e12", "sgd", NULL, NULL, 8, 2, .5, 1, .want = "dlb-place: " },
	{ "cpu:1 host cpu:1 link=rack:1e-7,1e12", "sgd", NULL, NULL, 8, 2, .95, 1, .n_forward = 7,
	  .want = "dlb-place: " },
	{ "cpu:1", "sgd", NULL, NULL, 8, 1, .95, 1, .n_forward = 7,
	  .want = " would fit; --recompute auto or a plan with one more host would fit where each node" },
	{ "cpu:1", "sgd", NULL, NULL, 1, 1, .95, 1, .n_forward = 8, .want = "it fits with " },
	{ "cpu:1 host cpu:1 link=rack:1e-7,1e12", "adam", "2", NULL, 8, 1, .6, 50,
	  .want = "it fits with " },
	{ "cpu:1", "sgd", NULL, NULL, 16, 1, .001, 40, .want = "it fits with " },
};
enum { FACTOR = 1000 }; /* of all tensors: beside them the rest of a process is small */

struct document {
	struct dag d;
	struct dlb_doc doc;
	int n;
	double limit_bytes;
	bool one_more;
	struct dlb_memory_need need[3];
	struct dlb_memory_room room[3];
	struct dlb_memory_lack lack;
};

static void make_graph(struct document *w, const struct memory_case *x)
{
	const struct dag_options o = { .seed = 3,
				       .n_forward = x->n_forward ? x->n_forward : 3,
				       .training = true,
				       .chain = true,
				       .colocate = 1,
				       .cluster = x->cluster,
				       .batch = x->batch };

	dag_init(&w->d, &o);
	for (int i = 0; i < w->d.g.n_tensors; i++) {
		struct dlb_tensor *t = &w->d.g.tensor[i];
		const bool weight = t->kind == DLB_T_WEIGHT || t->kind == DLB_T_WEIGHT_GRADIENT;

		t->size_mul *= FACTOR;
		t->size_add *= FACTOR * (weight ? x->weights : 1);
	}
	for (int i = 0; i < w->d.cl.n_nodes; i++)
		w->d.cl.node[i].memory_bytes = x->stated;
	dlb_doc_init(&w->doc, "f.json");
	dlb_doc_set(&w->doc, "graph", dlb_graph_write(&w->d.g));
	dlb_doc_set(&w->doc, "cluster", dlb_cluster_write(&w->d.cl));
	dlb_doc_set(&w->doc, "cost", dlb_cost_write(&w->d.c));
	w->n = w->d.cl.n_nodes;
}

static struct dlb_replan usual(const struct dlb_cli *quiet)
{
	return (struct dlb_replan){
		.cli = quiet, .micro_batches = 1, .seed = 1, .constraints.max_moves = -1, .no_timeline = true
	};
}

/* The document's plan and the memory that its processes need and have. */
static void make(struct document *w, const struct memory_case *x)
{
	static const char *recompute[1];
	struct dlb_replan o = usual(&(struct dlb_cli){ .tool = "test", .quiet = true });
	struct dlb_error err = { .what = "" };

	memset(w, 0, sizeof *w);
	make_graph(w, x);
	recompute[0] = x->recompute;
	o.recompute = (struct dlb_strlist){ .item = recompute, .n = x->recompute ? 1 : 0 };
	o.optimizer = x->optimizer;
	o.replicas = x->replicas;
	o.micro_batches = x->micro_batches;
	o.micro_batches_given = true;
	o.need = w->need;
	if (dlb_replan(&o, &w->doc, &err))
		die("plan", 0, &err);
	dlb_memory_room_of(&w->d.cl, w->room);
	const json_t *nodes = json_object_get(dlb_doc_section(&w->doc, "plan"), "nodes");
	for (int i = 0; i < w->n; i++) {
		const double peak = json_number_value(
			json_object_get(json_array_get(nodes, (size_t)i), "peak_bytes"));
		const double bytes = w->need[i].own_bytes - (1 - x->room) * peak;

		assert(IS(peak, >, 1e6));
		*(x->by_process ? &w->room[i].process_bytes : &w->room[i].host_bytes) = bytes;
		*(x->by_process ? &w->room[i].host_bytes : &w->room[i].process_bytes) = INFINITY;
	}
	assert(dlb_memory_lacks(w->need, w->room, w->n, &w->lack));
	w->limit_bytes = INFINITY;
}

/* The cluster with a limit for each node, or with one more node on a host of its own. */
static json_t *other_cluster(const struct document *w)
{
	struct dlb_cluster c = w->d.cl;
	struct dlb_node node[3];

	memcpy(node, c.node, (size_t)c.n_nodes * sizeof *node);
	c.node = node;
	for (int i = 0; i < c.n_nodes && isfinite(w->limit_bytes); i++)
		node[i].memory_bytes = floor(w->limit_bytes);
	json_t *section = dlb_cluster_write(&c), *nodes = json_object_get(section, "nodes"), *more;

	if (w->one_more) {
		more = json_deep_copy(json_array_get(nodes, (size_t)w->n - 1));
		json_object_set_new(more, "host", json_string("another"));
		json_object_set_new(more, "id", json_integer(w->n));
		json_array_append_new(nodes, more);
	}
	return section;
}

static bool fits(struct document *w, struct dlb_replan o)
{
	static const char *const inputs[] = { "graph", "profile", "cluster", NULL };
	struct dlb_memory_need need[3] = { { 0 } };
	struct dlb_memory_room room[3];
	struct dlb_memory_lack lack;
	struct dlb_error err = { .what = "" };
	struct dlb_doc doc = w->doc;

	doc.root = json_deep_copy(w->doc.root);
	dlb_doc_put(&doc, "cluster", other_cluster(w));
	json_t *cost = json_deep_copy(dlb_doc_section(&doc, "cost"));
	if (json_object_get(cost, "inputs"))
		json_object_set_new(cost, "inputs", dlb_doc_input_hashes(&doc, inputs));
	dlb_doc_put(&doc, "cost", cost);
	o.need = need;
	const int rc = dlb_replan(&o, &doc, &err);
	json_decref(doc.root);
	memcpy(room, w->room, sizeof room);
	if (w->one_more) {
		room[w->n] = room[w->n - 1];
		room[w->n].host = w->n;
	}
	return !rc && !dlb_memory_lacks(need, room, w->n + w->one_more, &lack);
}

static int at_batch(void *arg, int64_t batch, double *value_s, struct dlb_error *err)
{
	char text[24];
	struct dlb_replan o = usual(&(struct dlb_cli){ .tool = "test", .quiet = true });

	snprintf(text, sizeof text, "%d", (int)batch);
	o.batch = text;
	*value_s = 1;
	return fits(arg, o) ? 0 : dlb_fail_no(err, NULL, "no plan fits");
}

/* One way to save memory, by its number: its words, or "" if no plan with it fits. */
static void one_way(struct document *w, const struct memory_case *x, int way, char text[40])
{
	static const char *automatic[] = { "auto" };
	const bool replicas = x->replicas != NULL;
	struct dlb_replan o = usual(&(struct dlb_cli){ .tool = "test", .quiet = true });
	struct dlb_batch_search s = {
		.plan = at_batch, .arg = w, .first = x->batch, .least = replicas ? 2 : 1
	};
	struct dlb_error err = { .what = "" };

	text[0] = '\0';
	if (way == 0) {
		o.micro_batches_given = true;
		for (int64_t M = 0;
		     (M = dlb_replan_next_micro_batches(x->micro_batches, M, x->batch)) > 0 && !*text;) {
			o.micro_batches = M;
			if (fits(w, o))
				snprintf(text, 40, "-m %d", (int)M);
		}
	} else if (way == 1 && !replicas && !x->recompute) {
		o.recompute = (struct dlb_strlist){ .item = automatic, .n = 1 };
		if (fits(w, o))
			strcpy(text, "--recompute auto");
	} else if (way == 2 && replicas) {
		o.sharing.zero_given = true;
		for (o.sharing.zero = 1; o.sharing.zero <= 3 && !*text; o.sharing.zero++)
			if (fits(w, o))
				snprintf(text, 40, "--zero %d", (int)o.sharing.zero);
	} else if (way == 3 && x->batch > s.least) {
		if (!dlb_place_batch(&s, &err) && s.largest < x->batch)
			snprintf(text, 40, "--batch %d", (int)s.largest);
		free(s.trial);
	} else if (way == 4 && !replicas) {
		w->one_more = true;
		if (fits(w, o))
			strcpy(text, "a plan with one more host");
		w->one_more = false;
	}
}

/* The ways that fit and are not in `known` yet, as a list in words. */
static int ways(struct document *w, const struct memory_case *x, bool known[5], char out[200])
{
	char text[5][40];
	int n = 0, at = 0;

	for (int way = 0; way < 5; way++) {
		if (!known[way])
			one_way(w, x, way, text[n]);
		if (!known[way] && text[n][0]) {
			known[way] = true;
			n++;
		}
	}
	*out = 0;
	for (int i = 0; i < n; i++)
		at += snprintf(out + at, 200 - (size_t)at, "%s%s",
			       i == 0     ? "" :
			       i == n - 1 ? " or " :
					    ", ",
			       text[i]);
	return n;
}

static void hint(const struct memory_case *x)
{
	struct document w;
	struct dlb_error err = { .what = "" };
	bool known[5] = { false };
	char plain[200], limited[200] = "", want[500];
	double peak[3];

	make(&w, x);
	const struct dlb_memory_case c = { w.need, w.room, &w.lack, NULL };
	json_t *before = json_deep_copy(w.doc.root);
	dlb_memory_cure(&cli, &w.doc, &c, &err);
	assert(json_equal(before, w.doc.root));
	json_decref(before);
	ways(&w, x, known, plain);
	for (int i = 0; i < w.n; i++)
		peak[i] = json_number_value(
			json_object_get(json_array_get(json_object_get(dlb_doc_section(&w.doc, "plan"),
								       "nodes"),
						       (size_t)i),
					"peak_bytes"));
	for (int k = 0; k < 2 && !*limited; k++) {
		w.limit_bytes = dlb_memory_limit(w.need, w.room, w.n, peak, k == 0);
		ways(&w, x, known, limited);
	}
	if (*limited)
		snprintf(want, sizeof want,
			 "dlb-place: %s%s%s would fit where each node's memory_bytes is %.0f", plain,
			 *plain ? " would fit; " : "", limited, floor(w.limit_bytes));
	else if (*plain)
		snprintf(want, sizeof want, "dlb-place: %s would fit", plain);
	else
		snprintf(want, sizeof want, "it fits with %.4g MB more",
			 ceil((w.lack.need_bytes - w.lack.room_bytes) / 1e5) / 10);
	assert(SAME(err.hint, want) && HAS(err.hint, x->want));
	/* dlb-place does not name itself; without room for any process nothing is tried */
	if (*plain && x == cases) {
		dlb_memory_cure(&placer, &w.doc, &c, &err);
		assert(SAME(err.hint, want + strlen("dlb-place: ")));
		w.lack.room_bytes = dlb_process_least_bytes(w.n) - 1;
		dlb_memory_cure(&placer, &w.doc, &c, &err);
		assert(HAS(err.hint, "it fits with "));
	}
	dlb_doc_release(&w.doc);
	dag_release(&w.d);
}

int main(void)
{
	for (int i = 0; i < DLB_LEN(cases); i++)
		hint(&cases[i]);
	printf("%d hints\n", DLB_LEN(cases));
	return 0;
}
