/* The model of fork.h in a document with a plan, for tests of plans that are made again. */
#ifndef DLB_TESTS_FORK_PLAN_H
#define DLB_TESTS_FORK_PLAN_H
#include <math.h>
#include "fork.h"
#include "balance/replan.h"
#include "plan/report.h"

enum { OPS = 6 };
static const struct dlb_cli cli = { .tool = "test", .quiet = true };

static inline json_t *member(const struct dlb_doc *doc, const char *key)
{
	return json_object_get(dlb_doc_section(doc, "plan"), key);
}

static inline double number(const struct dlb_doc *doc, const char *key)
{
	return json_number_value(member(doc, key));
}

static inline int node_of(const json_t *placement, int op)
{
	char key[16];

	snprintf(key, sizeof key, "%d", op);
	return (int)json_integer_value(json_object_get(placement, key));
}

/* Number of the model's ops on node d. */
static inline int on_node(const struct dlb_doc *doc, int d)
{
	int count = 0;

	for (int i = 0; i < OPS; i++)
		count += node_of(member(doc, "placement"), i) == d;
	return count;
}

static inline struct dlb_replan plain(void)
{
	struct dlb_cli ignored;
	struct dlb_replan o = dlb_replan_in_run(&cli, &ignored);

	o.cli = &cli;
	return o;
}

static inline void replan(struct dlb_doc *doc, struct dlb_replan o)
{
	struct dlb_error err = { .what = "" };

	fork_must(dlb_replan(&o, doc, &err), &err);
}

/* As above; checks the ops that moved, each with its weight, against the plan that was there. */
static inline void move(struct dlb_doc *doc, struct dlb_replan o)
{
	json_t *was = json_incref(member(doc, "placement"));
	int ops = 0, weights = 0;

	replan(doc, o);
	for (int i = 0; i <= OPS; i++)
		if (node_of(was, i) != node_of(member(doc, "placement"), i)) {
			ops++;
			weights += i < OPS;
		}
	assert(IS(number(doc, "moved_ops"), ==, ops) && IS(number(doc, "moved_bytes"), ==, 4000 * weights));
	json_decref(was);
}

/* A document with a plan for nodes of these weights; NULL: none are stated. */
static inline void start(struct fork *f, struct dlb_doc *d, const char *cluster)
{
	fork_init(f, OPS, cluster);
	fork_doc(f, d);
	replan(d, plain());
}

static inline void weigh(struct dlb_doc *d, double first, double second)
{
	dlb_doc_put(d, "balance", json_pack("{s:[f,f]}", "weights", first, second));
}

static inline void end(struct fork *f, struct dlb_doc *d)
{
	dlb_doc_release(d);
	fork_release(f);
}

static inline bool takes_ms(double s, double ms) { return IS(fabs(s / (ms * FORK_MS) - 1), <, 5e-3); }

/* Gives the document the report of ten simulated steps; busy_s: [n]. */
static inline void report_of(struct dlb_doc *d, double step_s, const double *busy_s, int n)
{
	struct dlb_report_node *node = dlb_xcalloc((size_t)n, sizeof *node);
	struct dlb_report r = { .dry_run = true,
				.steps = 10,
				.batch = FORK_BATCH,
				.micro_batches = 1,
				.optimizer = "sgd",
				.stopped = "steps",
				.step_s = step_s,
				.predicted_step_s = step_s,
				.node = node,
				.n_nodes = n,
				.accuracy = NAN,
				.test_loss = NAN,
				.optimizer_violations = NAN,
				.allreduce.apart = NAN };

	for (int i = 0; i < n; i++)
		node[i] = (struct dlb_report_node){ .busy_s = busy_s[i], .host = "h" };
	dlb_report_set(d, &r);
	free(node);
}

static inline void report(struct dlb_doc *d, double step_s, double busy0, double busy1)
{
	report_of(d, step_s, (double[]){ busy0, busy1 }, 2);
}
#endif
