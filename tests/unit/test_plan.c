/* The plan and report sections: read(write(x)) = x, edited plans, and refused sections with their JSON
 * Pointer. */
#include "check.h"
#include "random_dag.h"
#include "graph/order.h"
#include "place/place.h"
#include "place/problem.h"
#include "plan/plan_json.h"
#include "plan/replica.h"
#include "plan/report.h"
#include "plan/schedule.h"
#include "plan/sharing.h"
#include "plan/timeline.h"

static struct dag d;

static void make_plan(struct dlb_plan *plan)
{
	struct dlb_error err;
	struct dlb_problem p = { .graph = &d.g,
				 .cluster = &d.cl,
				 .cost = &d.c,
				 .micro_batches = 4,
				 .batch = d.g.batch,
				 .schedule = dlb_schedule_find("1f1b"),
				 .seed = 1 };
	assert(IS(dlb_problem_init(&p, &err), ==, 0) && IS(dlb_place(&p, "even", plan, &err), ==, 0));
	dlb_problem_release(&p);
}

static void set_doc(struct dlb_doc *doc, json_t *plan)
{
	dlb_doc_init(doc, "test.json");
	dlb_doc_set(doc, "plan", plan);
}

static void test_round_trip(void)
{
	struct dlb_plan a, b;
	struct dlb_doc doc;
	struct dlb_error err;
	bool rescheduled;
	make_plan(&a);
	json_t *x = dlb_plan_write(&a);
	set_doc(&doc, json_deep_copy(x));
	assert(IS(dlb_plan_read(&doc, &d.c, &b, &rescheduled, &err), ==, 0) && !rescheduled);
	json_t *y = dlb_plan_write(&b);
	assert(json_equal(x, y) && SAME(a.hash, b.hash));
	json_decref(x);
	json_decref(y);
	dlb_doc_release(&doc);
	dlb_plan_release(&a);
	dlb_plan_release(&b);
}

/* A placement edited by hand is legal: the order is computed again. */
static void test_edited(void)
{
	struct dlb_plan a, b;
	struct dlb_doc doc;
	struct dlb_error err;
	bool rescheduled;
	make_plan(&a);
	json_t *x = dlb_plan_write(&a), *placement = json_object_get(x, "placement");
	int *group = malloc((size_t)d.g.n_ops * sizeof *group), moved = 0;
	dlb_graph_groups(&d.g, group);
	for (int i = 0; i < d.g.n_ops; i++) {
		char key[16];
		snprintf(key, sizeof key, "%d", i);
		if (group[i] == 0) {
			json_object_set_new(placement, key, json_integer(1 - a.placement[i]));
			moved++;
		}
	}
	set_doc(&doc, x);
	assert(IS(moved, >, 0) && IS(dlb_plan_read(&doc, &d.c, &b, &rescheduled, &err), ==, 0) &&
	       rescheduled && strcmp(a.hash, b.hash));
	free(group);
	dlb_doc_release(&doc);
	dlb_plan_release(&a);
	dlb_plan_release(&b);
}

/* Sets member `path` ("nodes/0/order/0/1") of a good plan to `value` (NULL: removes it); reading must fail
 * and the message must hold `says`. */
static void refuse(const char *path, json_t *value, const char *says)
{
	struct dlb_plan a, b;
	struct dlb_doc doc;
	struct dlb_error err = { .status = 0 };
	make_plan(&a);
	json_t *x = dlb_plan_write(&a), *at = x, *up = x;
	char copy[64], *key = copy, last[64];
	snprintf(copy, sizeof copy, "%s", path);
	for (char *part = strtok(copy, "/"); part; part = strtok(NULL, "/")) {
		up = at;
		key = part;
		at = json_is_array(at) ? json_array_get(at, (size_t)atoi(part)) : json_object_get(at, part);
	}
	snprintf(last, sizeof last, "%s", key);
	if (json_is_array(up))
		json_array_set_new(up, (size_t)atoi(last), value);
	else if (value)
		json_object_set_new(up, last, value);
	else
		json_object_del(up, last);
	set_doc(&doc, x);
	int rc = dlb_plan_read(&doc, &d.c, &b, NULL, &err);
	char line[1024];
	snprintf(line, sizeof line, "%s: %s", err.where, err.what);
	if (rc != -1 || !strstr(line, says) || strchr(line, '\n')) {
		fprintf(stderr, "%s: %s, expected '%s'\n", path, rc ? line : "accepted", says);
		abort();
	}
	dlb_doc_release(&doc);
	dlb_plan_release(&a);
}

static void test_refused(void)
{
	refuse("placement", NULL, "placement");
	refuse("placement/3", NULL, "placement");
	refuse("placement/3", json_integer(2), "/plan/placement/3");
	refuse("placement/3", json_integer(-1), "/plan/placement/3");
	refuse("placement/3", json_string("0"), "/plan/placement/3");
	refuse("placement/99999", json_integer(0), "99999");
	refuse("placement/03", json_integer(0), "03");
	refuse("micro_batches", json_integer(0), "micro_batches");
	refuse("micro_batches", json_integer(1 << 30), "micro_batches");
	refuse("micro_batches", json_real(2.5), "micro_batches");
	refuse("batch", json_integer(-3), "batch");
	refuse("schedule", json_string("fifo"), "fifo");
	refuse("nodes", json_array(), "nodes");
	refuse("nodes/0", json_null(), "/plan/nodes/0");
	refuse("nodes/0/order/0", json_pack("[i]", 1), "/plan/nodes/0/order/0");
	refuse("nodes/0/order/0", json_pack("[ii]", 1 << 30, 0), "/plan/nodes/0/order/0");
	refuse("nodes/0/order/0", json_pack("[ii]", 0, 7), "/plan/nodes/0/order/0");
	refuse("nodes/0/peak_bytes", json_real(-1), "peak_bytes");
	refuse("timeline", json_array(), "timeline");
	refuse("timeline/0/0", json_pack("[iiff]", 0, 0, 0.0, -1.0), "/plan/timeline/0/0");
	refuse("value_s", json_string("soon"), "value_s");
	refuse("plcement", json_object(), "plcement");
	/* an op whose micro-batches are out of order */
	struct dlb_plan a;
	make_plan(&a);
	int n = a.node[0].n_order, i = 0, k = 1;
	while (k < n && !(a.node[0].order[k].op == a.node[0].order[i].op))
		k++;
	json_t *second = json_pack("[ii]", a.node[0].order[k].op, a.node[0].order[k].micro_batch);
	dlb_plan_release(&a);
	assert(IS(k, <, n));
	refuse("nodes/0/order/0", second, "micro-batch");
}

static void test_sizes(void)
{
	for (int64_t batch = 1; batch < 40; batch++) {
		for (int M = 1; M < 12; M++) {
			int64_t sum = 0, least = INT64_MAX, most = 0;
			int n = M < batch ? M : (int)batch;
			for (int m = 0; m < n; m++) {
				int64_t s = dlb_micro_batch_size(batch, M, m);
				assert(m == 0 || s <= dlb_micro_batch_size(batch, M, m - 1));
				sum += s;
				least = s < least ? s : least;
				most = s > most ? s : most;
			}
			assert(IS(sum, ==, batch) && IS(least, >=, 1) && IS(most - least, <=, 1) &&
			       IS(dlb_micro_batch_size(batch, M, n), ==, 0));
		}
	}
}

static void test_report(void)
{
	double losses[] = { 2.5, NAN, 1.25 };
	struct dlb_report_node nodes[] = { { .busy_s = 1,
					     .wait_s = 0.5,
					     .waits_s = { 0.25, 0.125, 0.125, 0 },
					     .host = "h0",
					     .peak_bytes = 4096 },
					   { .busy_s = 1.25, .wait_s = 0.25 } };
	struct dlb_report_op ops[] = { { 0, 1, 0.5, 0.25 }, { 3, 0, NAN, 0.125 } };
	struct dlb_span spans[] = { { 0, 0, 0, 0.5, true }, { 4, -1, 0.5, 0.75, false } },
			*line[] = { spans, NULL };
	int n_spans[] = { 2, 0 };
	struct dlb_report r = { .steps = 3,
				.batch = 64,
				.micro_batches = 8,
				.optimizer = "adam",
				.stopped = "steps",
				.loss = losses,
				.n_losses = 3,
				.accuracy = 0.75,
				.test_loss = NAN,
				.step_s = 1.5,
				.predicted_step_s = 1.25,
				.wall_s = 5,
				.imbalance = 1.125,
				.prediction_error = -0.125,
				.node = nodes,
				.n_nodes = 2,
				.op = ops,
				.n_ops = 2,
				.timeline = line,
				.n_spans = n_spans,
				.plan_hash = "0123456789abcdef" },
			  back;
	struct dlb_doc doc;
	struct dlb_error err;
	json_t *x = dlb_report_write(&r);
	dlb_doc_init(&doc, "test.json");
	dlb_doc_set(&doc, "report", json_deep_copy(x));
	assert(IS(dlb_report_read(&doc, &back, &err), ==, 0));
	json_t *y = dlb_report_write(&back);
	assert(json_equal(x, y) && isnan(back.loss[1]) && isnan(back.test_loss) && isnan(back.op[1].time_s));
	assert(!json_object_get(x, "test_loss") &&
	       IS(back.node[0].waits_s[DLB_WAIT_BACKPRESSURE], ==, 0.125));
	dlb_report_release(&back);
	json_object_set_new(dlb_doc_section(&doc, "report"), "accuracy", json_integer(2));
	assert(IS(dlb_report_read(&doc, &back, &err), ==, -1) && HAS(err.where, "accuracy"));
	json_decref(x);
	json_decref(y);
	dlb_doc_release(&doc);
}

/* Sums by their size: members of the plan that are read and written again, and those that are refused. */
static void test_by_size(void)
{
	static const struct {
		const char *allreduce, *by_size, *where, *says;
	} rows[] = { { "auto",
		       "[{'from_bytes':0,'allreduce':'doubling'},{'from_bytes':4096,'allreduce':'ring'}]",
		       NULL, "" },
		     { "auto", "[]", NULL, "" },
		     { "ring", "[]", NULL, "" },
		     { "ring", "[{'from_bytes':0,'allreduce':'ring'}]", "/plan/allreduce_by_size",
		       "sums go by 'ring', whatever their size; 'auto' chooses by size" },
		     { "auto", "[{'from_bytes':1,'allreduce':'ring'}]",
		       "/plan/allreduce_by_size/0/from_bytes", "1 is above 0" },
		     { "auto", "[{'from_bytes':0,'allreduce':'tree'},{'from_bytes':0,'allreduce':'ring'}]",
		       "/plan/allreduce_by_size/1/from_bytes", "0 is below 1" },
		     { "auto", "[{'from_bytes':0,'allreduce':'mpi'}]", "/plan/allreduce_by_size/0",
		       "no way to sum 'mpi'" },
		     { "auto", "[{'from_bytes':0,'allreduce':'x'}]", "/plan/allreduce_by_size/0",
		       "no way to sum 'x'" },
		     { "x", "[]", "/plan/allreduce", "no way to sum 'x'" } };

	for (int i = 0; i < DLB_LEN(rows); i++) {
		struct dlb_sharing s;
		struct dlb_error err = { .what = "" };
		struct dlb_doc doc;
		char *text = dlb_xprintf("%s", rows[i].by_size);

		for (char *at = text; *at; at++)
			*at = *at == '\'' ? '"' : *at;
		json_t *list = json_loads(text, 0, NULL);
		assert(list);
		set_doc(&doc,
			json_pack("{ss,sO}", "allreduce", rows[i].allreduce, "allreduce_by_size", list));
		const struct dlb_ref plan = dlb_ref_root(&doc, "plan");
		dlb_sharing_init(&s);
		const int rc = dlb_sharing_read(&plan, &s, &err);
		assert(IS(rc, ==, rows[i].where ? -1 : 0) && HAS(err.what, rows[i].says) &&
		       (!rc || SAME(err.where + strlen("test.json: "), rows[i].where)));
		if (!rc) {
			json_t *back = json_object();
			dlb_sharing_write(&s, back);
			assert(SAME(json_string_value(json_object_get(back, "allreduce")),
				    rows[i].allreduce) &&
			       (json_array_size(list) ?
					json_equal(json_object_get(back, "allreduce_by_size"), list) :
					!json_object_get(back, "allreduce_by_size")));
			json_decref(back);
		}
		json_decref(list);
		dlb_doc_release(&doc);
		free(text);
	}
}

/* A graph whose batch is fixed takes it whole: in one micro-batch, in one replica, and no other number of samples. */
static void test_fixed_batch(void)
{
	static const struct {
		int micro_batches, replicas, more;
	} rows[] = { { 1, 1, 0 }, { 2, 1, 0 }, { 1, 2, 0 }, { 1, 1, 1 } };
	struct dlb_error err = { .what = "" };

	d.g.fixed_batch = true;
	for (int i = 0; i < DLB_LEN(rows); i++) {
		struct dlb_plan p;

		dlb_plan_init(&p, d.g.n_ops, 2);
		p.graph = &d.g;
		p.batch = d.g.batch + rows[i].more;
		p.micro_batches = rows[i].micro_batches;
		p.schedule = "1f1b";
		dlb_schedule_order(&p, &d.c, dlb_schedule_find(p.schedule), NULL);
		if (rows[i].replicas > 1) {
			dlb_plan_set_replicas(&p, 2, (int[]){ 0, -1, 1, -1 });
			dlb_sharing_init(&p.sharing);
		}
		if (i == 0)
			assert(IS(dlb_plan_check(&p, &d.c, &err), ==, 0));
		else
			assert(IS(dlb_plan_check(&p, &d.c, &err), ==, -1) &&
			       SAME(err.where, "/plan/micro_batches") &&
			       HAS(err.what, "takes 16 samples in one micro-batch and one replica"));
		dlb_plan_release(&p);
	}
	d.g.fixed_batch = false;
}

int main(void)
{
	struct dag_options o = { .seed = 11,
				 .n_forward = 12,
				 .training = true,
				 .colocate = 0.5,
				 .cluster = "cpu:2",
				 .batch = 16 };
	dag_init(&d, &o);
	test_round_trip();
	test_edited();
	test_refused();
	test_sizes();
	test_report();
	test_by_size();
	test_fixed_batch();
	dag_release(&d);
	printf("test_plan: round trips of plan and report, an edited placement, 23 plans refused, sizes of "
	       "micro-batches\n");
	return 0;
}
