/* Plans that would fit the memory of the hosts. See replan_memory.h. */
#include "balance/replan_memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "balance/replan_batch.h"
#include "place/batches.h"
#include "place/fit.h"
#include "plan/plan_json.h"
#include "util/clock.h"
#include "util/mem.h"

/* MOST_S: seconds of CPU time of this thread after which no more cures are tried. */
enum { MOST_CURES = 5, CURE = 40, CURES = 160, MOST_S = 20 };

/* ---- one trial ---- */

/* A trial: its inputs, and the memory that its plan may take. */
struct memory_trial {
	const struct dlb_cli *cli;
	const struct dlb_doc *doc; /* with the plan that lacks memory */
	const struct dlb_memory_room *room;
	dlb_kernel_sizes_fn *sizes; /* as in struct dlb_memory_case */
	double limit_bytes; /* of each node's peak; INFINITY: as the cluster says */
	int n_nodes;
	double deadline_s; /* end of trials, by dlb_clock_thread_cpu_s, which a busy host does not advance */
	bool one_more; /* the cluster has one more node like the last, on a host of its own */
};

/* The cluster with the trial's limit; new. */
static json_t *limited_cluster(const struct memory_trial *t)
{
	json_t *cluster = json_deep_copy(dlb_doc_section(t->doc, "cluster")),
	       *nodes = json_object_get(cluster, "nodes");

	for (int i = 0; i < t->n_nodes && isfinite(t->limit_bytes); i++) {
		json_t *node = json_array_get(nodes, (size_t)i);
		const double now = json_number_value(json_object_get(node, "memory_bytes"));

		if (now == 0 || now > t->limit_bytes)
			dlb_set_int(node, "memory_bytes", t->limit_bytes);
		json_object_del(node, "memories");
	}
	if (t->one_more) {
		json_t *node = json_deep_copy(json_array_get(nodes, (size_t)t->n_nodes - 1));

		dlb_set_str(node, "host", "one more");
		if (json_object_get(node, "id"))
			dlb_set_int(node, "id", t->n_nodes);
		json_array_append_new(nodes, node);
	}
	return cluster;
}

/* Copies t->doc with the limited cluster; so only the options of its plan hold. */
static void copy_doc(const struct memory_trial *t, struct dlb_doc *out)
{
	static const char *const inputs[] = { "graph", "profile", "cluster", NULL };
	json_t *cost;

	*out = *t->doc;
	out->root = json_copy(t->doc->root);
	dlb_doc_put(out, "cluster", limited_cluster(t));
	cost = json_copy(dlb_doc_section(out, "cost"));
	if (json_object_get(cost, "inputs"))
		json_object_set_new(cost, "inputs", dlb_doc_input_hashes(out, inputs));
	dlb_doc_put(out, "cost", cost);
	if (t->one_more)
		json_object_del(out->root, "balance");
}

/* Makes a plan with the options `with`, and finds the memory need of its processes: [n_nodes + one_more]. -1:
 * none fits. */
static int plan_with(const struct memory_trial *t, const struct dlb_replan *with,
		     struct dlb_memory_need *need)
{
	struct dlb_error ignored = { .what = "" };
	struct dlb_cli quiet = *t->cli;
	struct dlb_replan o = *with;
	struct dlb_doc doc;
	int rc;

	quiet.quiet = true;
	quiet.verbose = false;
	quiet.n_given = 0;
	o.cli = &quiet;
	o.need = need;
	o.sizes = t->sizes;
	copy_doc(t, &doc);
	rc = dlb_replan(&o, &doc, &ignored);
	json_decref(doc.root);
	return rc;
}

/* Whether dlb-place, with the options `with`, makes a plan whose processes fit. */
static bool fits(const struct memory_trial *t, const struct dlb_replan *with)
{
	const int n = t->n_nodes + t->one_more;
	struct dlb_memory_need *need = dlb_xcalloc((size_t)n, sizeof *need);
	struct dlb_memory_room *room = dlb_xcalloc((size_t)n, sizeof *room);
	struct dlb_memory_lack lack;
	bool yes;

	memcpy(room, t->room, (size_t)t->n_nodes * sizeof *room);
	if (t->one_more) {
		room[t->n_nodes] = room[t->n_nodes - 1];
		room[t->n_nodes].host = t->n_nodes;
	}
	yes = !plan_with(t, with, need) && !dlb_memory_lacks(need, room, n, &lack);
	free(room);
	free(need);
	return yes;
}

/* ---- cures ---- */

static struct dlb_replan usual(const struct memory_trial *t)
{
	struct dlb_cli ignored;
	struct dlb_replan o = dlb_replan_in_run(t->cli, &ignored);

	o.cli = NULL; /* plan_with sets it */
	return o;
}

static const json_t *plan_of(const struct memory_trial *t, const char *name)
{
	return json_object_get(dlb_doc_section(t->doc, "plan"), name);
}

static int replicas_of(const struct memory_trial *t)
{
	return dlb_plan_count_replicas(dlb_doc_section(t->doc, "plan"));
}

static bool try_micro_batches(struct memory_trial *t, char text[CURE])
{
	const int64_t now = json_integer_value(plan_of(t, "micro_batches")),
		      batch = json_integer_value(plan_of(t, "batch"));
	struct dlb_replan o = usual(t);

	o.micro_batches_given = true;
	o.micro_batches = 0;
	while ((o.micro_batches = dlb_replan_next_micro_batches(now, o.micro_batches, batch)) > 0) {
		snprintf(text, CURE, "-m %lld", (long long)o.micro_batches);
		if (fits(t, &o))
			return true;
	}
	return false;
}

static bool try_recompute(struct memory_trial *t, char text[CURE])
{
	static const char *chosen[] = { "auto" };
	struct dlb_replan o = usual(t);

	if (replicas_of(t) > 1 || json_is_true(json_object_get(plan_of(t, "recompute"), "auto")))
		return false;
	o.recompute = (struct dlb_strlist){ .item = chosen, .n = 1 };
	strcpy(text, "--recompute auto");
	return fits(t, &o);
}

static bool try_zero(struct memory_trial *t, char text[CURE])
{
	const int now = (int)json_integer_value(plan_of(t, "zero"));
	struct dlb_replan o = usual(t);

	for (int zero = now + 1; zero <= DLB_MOST_ZERO && replicas_of(t) > 1; zero++) {
		o.sharing.zero = zero;
		o.sharing.zero_given = true;
		snprintf(text, CURE, "--zero %d", zero);
		if (fits(t, &o))
			return true;
	}
	return false;
}

/* A plan for dlb_place_batch. arg: a struct memory_trial. */
static int plan_at(void *arg, int64_t batch, double *value_s, struct dlb_error *err)
{
	struct memory_trial *t = arg;
	struct dlb_replan o = usual(t);
	char text[24];

	snprintf(text, sizeof text, "%lld", (long long)batch);
	o.batch = text;
	*value_s = 1;
	return fits(t, &o) ? 0 : dlb_fail_no(err, NULL, "no plan fits");
}

static bool try_batch(struct memory_trial *t, char text[CURE])
{
	struct dlb_batch_search s = { .plan = plan_at, .arg = t, .least = replicas_of(t) };
	struct dlb_error ignored = { .what = "" };
	const json_int_t now = json_integer_value(plan_of(t, "batch"));
	bool yes;

	s.first = now;
	if (now <= s.least)
		return false;
	/* the largest batch that fits, since plans are made again; under these limits the present one may
	 * fit */
	yes = dlb_place_batch(&s, &ignored) == 0 && s.largest < now;
	snprintf(text, CURE, "--batch %lld", (long long)s.largest);
	free(s.trial);
	return yes;
}

static bool try_node(struct memory_trial *t, char text[CURE])
{
	const struct dlb_replan o = usual(t);
	bool yes = false;

	if (replicas_of(t) == 1 && t->room[t->n_nodes - 1].host >= 0) {
		t->one_more = true;
		yes = fits(t, &o);
		t->one_more = false;
	}
	strcpy(text, "a plan with one more host");
	return yes;
}

static bool (*const cures[MOST_CURES])(struct memory_trial *t, char text[CURE]) = { try_micro_batches,
										    try_recompute, try_zero,
										    try_batch, try_node };

/* ---- the line ---- */

static double *peaks_of(const struct dlb_doc *doc, int n)
{
	const json_t *nodes = json_object_get(dlb_doc_section(doc, "plan"), "nodes");
	double *peak = dlb_xcalloc((size_t)n + 1, sizeof *peak);

	for (int i = 0; i < n; i++)
		peak[i] = json_number_value(json_object_get(json_array_get(nodes, (size_t)i), "peak_bytes"));
	return peak;
}

static bool is_large(const struct dlb_doc *doc, int n_nodes)
{
	const size_t n_ops = json_array_size(json_object_get(dlb_doc_section(doc, "graph"), "ops"));

	return n_ops * (size_t)n_nodes > DLB_SUGGEST_ITEMS;
}

/* "A", "A or B", "A, B or C". */
static void list(char text[MOST_CURES][CURE], int n, char out[CURES])
{
	size_t at = 0;

	out[0] = '\0';
	for (int i = 0; i < n; i++)
		at += (size_t)snprintf(out + at, CURES - at, "%s%s",
				       !i        ? "" :
				       i < n - 1 ? ", " :
						   " or ",
				       text[i]);
}

/* Tries the cures that are not marked in tried[], and marks those that fit. Lists them in `out`; returns
 * their number. */
static int try_all(struct memory_trial *t, bool tried[MOST_CURES], char out[CURES])
{
	char text[MOST_CURES][CURE];
	int found = 0;

	for (int i = 0; i < MOST_CURES; i++)
		if (!tried[i] && dlb_clock_thread_cpu_s() < t->deadline_s && (tried[i] = cures[i](t, text[found])))
			found++;
	list(text, found, out);
	return found;
}

/* Writes the hint. plain: the cures that fit; limited: those that fit if the cluster states limit_bytes for
 * each node. */
static void say(const struct dlb_cli *cli, const char *plain, const char *limited, double limit_bytes,
		const struct dlb_memory_lack *lack, struct dlb_error *err)
{
	const char *tool = strcmp(cli->tool, "dlb-place") ? "dlb-place: " : "";

	if (!*plain && !*limited)
		dlb_hint(err, "it fits with %.4g MB more",
			 ceil((lack->need_bytes - lack->room_bytes) / 1e5) / 10);
	else if (!*limited)
		dlb_hint(err, "%s%s would fit", tool, plain);
	else
		dlb_hint(err, "%s%s%s%s would fit where each node's memory_bytes is %.0f", tool, plain,
			 *plain ? " would fit; " : "", limited, floor(limit_bytes));
}

void dlb_memory_cure(const struct dlb_cli *cli, const struct dlb_doc *doc, const struct dlb_memory_case *x,
		     struct dlb_error *err)
{
	const int n = (int)json_array_size(json_object_get(dlb_doc_section(doc, "cluster"), "nodes"));
	struct memory_trial t = { .cli = cli,
				  .doc = doc,
				  .room = x->room,
				  .sizes = x->sizes,
				  .n_nodes = n,
				  .limit_bytes = INFINITY,
				  .deadline_s = dlb_clock_thread_cpu_s() + MOST_S };
	double *peak = peaks_of(doc, n);
	char plain[CURES] = "", limited[CURES] = "";
	bool tried[MOST_CURES] = { false };
	const bool tries = !is_large(doc, n) && x->lack->room_bytes >= x->lack->n * dlb_process_least_bytes(n);

	if (tries)
		try_all(&t, tried, plain);
	/* the bytes that processes need beside their plan's peak may grow with the peak or not; the limit
	 * that leaves more to the plan is tried first */
	for (int k = 0; k < 2 && tries && !*limited; k++) {
		t.limit_bytes = dlb_memory_limit(x->need, x->room, n, peak, k == 0);
		try_all(&t, tried, limited);
	}
	say(cli, plain, limited, t.limit_bytes, x->lack, err);
	free(peak);
}

/* ---- for replan.c ---- */

struct dlb_memory_need *dlb_replan_need(const struct dlb_doc *doc, const struct dlb_problem *p,
					struct dlb_plan *plan, dlb_kernel_sizes_fn *sizes)
{
	static const char *const sections[] = { "graph", "profile", "cluster", "cost", "plan", NULL };
	struct dlb_memory_need *need = NULL;
	struct dlb_program g;

	if (p->objective != DLB_STEP || dlb_fit_is_large(plan) || dlb_fit_compile_known(p, plan, &g, NULL))
		return NULL;
	struct dlb_process process = { .program = &g,
				       .cost = p->cost,
				       .n_state = p->n_state,
				       .document_bytes = dlb_doc_heap_bytes(doc, sections) };

	need = dlb_xcalloc((size_t)plan->n_nodes + 1, sizeof *need);
	for (int i = 0; i < plan->n_nodes; i++) {
		struct dlb_kernel_bytes *kernel = sizes ? sizes(&g, p->cost, i) : NULL;

		process.kernel = kernel;
		need[i] = dlb_memory_need_of(&process, i);
		free(kernel);
	}
	dlb_program_release(&g);
	return need;
}

void dlb_replan_warn_memory(const struct dlb_doc *doc, const struct dlb_replan *o,
			    const struct dlb_problem *p, const struct dlb_memory_need *need)
{
	const int n = p->cluster->n_nodes;
	struct dlb_memory_room *room = dlb_xcalloc((size_t)n + 1, sizeof *room);
	struct dlb_memory_lack lack;
	struct dlb_error cure = { .hint = "" };
	char text[DLB_MEMORY_TEXT];

	dlb_memory_room_of(p->cluster, room);
	if (dlb_memory_lacks(need, room, n, &lack)) {
		const struct dlb_memory_case x = { need, room, &lack, o->sizes };

		dlb_memory_lack_text(&lack, room, text);
		dlb_memory_cure(o->cli, doc, &x, &cure);
		dlb_cli_warn(o->cli, "%s; %s", text, cure.hint);
	}
	free(room);
}
