/* Constraints of a plan: what every option sets in a problem, with and without an earlier plan, and every
 * refusal; what the plan keeps for the next one; tables of affinity, and the nodes that by-kind then takes,
 * against its rule; the problem of a team, with pins and an earlier placement. */
#include "check.h"
#include <jansson.h>
#include <unistd.h>
#include "place_cases.h"
#include "graph/graph_json.h"
#include "place/affinity.h"
#include "place/constraints.h"
#include "place/make.h"
#include "place/team_problem.h"

static struct dag d;
static struct dlb_problem p;
static char dir[] = "/tmp/dlb-test-constraints-XXXXXX";
static int n_checks, n_full;

static const char *file(const char *name)
{
	static char path[2][200];
	static int which;

	which = !which;
	snprintf(path[which], sizeof path[which], "%s/%s", dir, name);
	return path[which];
}

static const char *written(const char *name, const char *text)
{
	FILE *f = fopen(file(name), "w");

	assert(f && IS(fputs(text, f), >=, 0) && !fclose(f));
	return file(name);
}

static void set_up(const char *cluster)
{
	const struct dag_options o = { .seed = 5,
				       .n_forward = 4,
				       .training = true,
				       .chain = true,
				       .colocate = 1,
				       .cluster = cluster,
				       .batch = 8 };

	dag_init(&d, &o);
	problem(&p, &d, 2, "1f1b", NULL, 1);
}

static void tear_down(void)
{
	dlb_problem_release(&p);
	dag_release(&d);
}

/* Reads constraints c against a document of graph d; after the check, dlb_constraints_release. */
static int read_from(struct dlb_constraints *c, const struct dlb_doc *doc, const struct dlb_plan *previous,
		     struct dlb_error *err)
{
	*err = (struct dlb_error){ .what = "" };
	n_checks++;
	return dlb_constraints_read(c, doc, previous, &p, err);
}

static struct dlb_strlist list(const char **item)
{
	struct dlb_strlist l = { .item = item };

	while (item[l.n])
		l.n++;
	return l;
}

/* An earlier plan with pins and an excluded node. */
static void earlier(struct dlb_plan *plan)
{
	dlb_plan_init(plan, d.g.n_ops, d.cl.n_nodes);
	plan->pin = calloc((size_t)d.g.n_ops, sizeof *plan->pin);
	plan->excluded = calloc((size_t)d.cl.n_nodes, sizeof *plan->excluded);
	for (int i = 0; i < d.g.n_ops; i++) {
		plan->pin[i] = i % 3 - 1;
		plan->placement[i] = (i + 1) % d.cl.n_nodes;
	}
	plan->excluded[2] = true;
	plan->priority = "upward-rank";
	plan->rewrites = "all";
}

static void release_earlier(struct dlb_plan *plan)
{
	free(plan->pin);
	free(plan->excluded);
	dlb_plan_release(plan);
}

static void test_pins(const struct dlb_doc *doc)
{
	const char *pins[] = { "f1=2", "0=1", "f1=2", NULL }, *none[] = { "none", NULL };
	const char *excluded[] = { "0", "2", NULL };
	struct dlb_constraints c = { .pin = list(pins), .exclude = list(excluded), .max_moves = -1 };
	struct dlb_error err;
	struct dlb_plan plan, next;

	assert(IS(read_from(&c, doc, NULL, &err), ==, 0) && p.pin == c.op_node && p.excluded == c.excluded);
	for (int i = 0; i < d.g.n_ops; i++)
		assert(IS(p.pin[i], ==, i == 0 ? 1 : !strcmp(d.g.op[i].name, "f1") ? 2 : -1));
	assert(p.excluded[0] && !p.excluded[1] && p.excluded[2] && !p.before && !p.number && !p.affinity);
	assert(IS(p.max_moves, ==, -1) && IS(p.serve_steps, ==, 0) && !p.by_upward_rank);
	dlb_plan_init(&next, d.g.n_ops, d.cl.n_nodes);
	dlb_constraints_keep(&c, &next);
	assert(!memcmp(next.pin, p.pin, (size_t)d.g.n_ops * sizeof(int)) && next.excluded[0] &&
	       !next.excluded[1] && next.excluded[2] && !next.priority && !next.affinity && !next.rewrites);
	dlb_plan_release(&next);
	dlb_constraints_release(&c);
	assert(!c.op_node && !c.excluded && !c.number && !c.before && !c.table);

	earlier(&plan); /* holds where no option replaces it */
	c = (struct dlb_constraints){ .max_moves = -1 };
	assert(IS(read_from(&c, doc, &plan, &err), ==, 0) &&
	       !memcmp(p.pin, plan.pin, (size_t)d.g.n_ops * sizeof(int)) && p.excluded[2] && !p.excluded[0] &&
	       p.by_upward_rank && SAME(c.priority, "upward-rank"));
	assert(SAME(dlb_constraints_rewrites(&c, &plan), "all") &&
	       SAME(dlb_constraints_rewrites(&c, NULL), "keep-affinity"));
	c.rewrites = "keep-affinity";
	assert(SAME(dlb_constraints_rewrites(&c, &plan), "keep-affinity"));
	dlb_constraints_release(&c);
	c = (struct dlb_constraints){ .pin = list(none),
				      .exclude = list(none),
				      .priority = "graph",
				      .max_moves = -1,
				      .rewrites = "all" };
	assert(IS(read_from(&c, doc, &plan, &err), ==, 0) && !p.by_upward_rank);
	for (int i = 0; i < d.g.n_ops; i++)
		assert(IS(p.pin[i], ==, -1));
	for (int i = 0; i < d.cl.n_nodes; i++)
		assert(!p.excluded[i]);
	dlb_plan_init(&next, d.g.n_ops, d.cl.n_nodes);
	dlb_constraints_keep(&c, &next); /* nothing holds, so nothing is kept */
	assert(!next.pin && !next.excluded && !next.priority && SAME(next.rewrites, "all"));
	dlb_plan_release(&next);
	dlb_constraints_release(&c);
	release_earlier(&plan);
}

static void test_refusals(const struct dlb_doc *doc)
{
	static const struct {
		const char *pin[3], *exclude[2], *what;
	} rows[] = {
		{ { "f1" }, { NULL }, "--pin wants OP=NODE, not 'f1'" },
		{ { "f9=0" }, { NULL }, "--pin: no op 'f9'" },
		{ { "=0" }, { NULL }, "--pin: no op ''" },
		{ { "f=0" }, { NULL }, "--pin: no op 'f'" },
		{ { "-1=0" }, { NULL }, "--pin: no op '-1'" },
		{ { "f1=" }, { NULL }, "--pin: no node ''; the cluster has nodes 0 to 3" },
		{ { "f1=4" }, { NULL }, "--pin: no node '4'; the cluster has nodes 0 to 3" },
		{ { "f1=1x" }, { NULL }, "--pin: no node '1x'; the cluster has nodes 0 to 3" },
		{ { "f1=+1" }, { NULL }, "--pin: no node '+1'; the cluster has nodes 0 to 3" },
		{ { "f1=0", "1=3" }, { NULL }, "--pin: op 1 'f1' is pinned to node 0 and to node 3" },
		{ { NULL }, { "-1" }, "--exclude: no node '-1'; the cluster has nodes 0 to 3" },
		{ { NULL }, { "9" }, "--exclude: no node '9'; the cluster has nodes 0 to 3" },
	};
	struct dlb_error err;
	char text[40];

	for (int i = 0; i < DLB_LEN(rows); i++) {
		const char *pin[3] = { rows[i].pin[0], rows[i].pin[1] }, *out[2] = { rows[i].exclude[0] };
		struct dlb_constraints c = { .pin = list(pin), .exclude = list(out), .max_moves = -1 };

		assert(IS(read_from(&c, doc, NULL, &err), ==, -1) && SAME(err.what, rows[i].what) &&
		       IS(dlb_error_status(&err), ==, 2));
		dlb_constraints_release(&c);
	}
	/* the last op by its number, and one more */
	for (int more = 0; more < 2; more++) {
		const char *pin[2] = { text };
		struct dlb_constraints c = { .pin = list(pin), .max_moves = -1 };

		snprintf(text, sizeof text, "%d=3", d.g.n_ops - 1 + more);
		assert(IS(read_from(&c, doc, NULL, &err), ==, -more));
		assert(more || IS(p.pin[d.g.n_ops - 1], ==, 3));
		dlb_constraints_release(&c);
	}
}

static void test_numbers(struct dlb_doc *doc)
{
	struct dlb_constraints c = { .priority = "given", .max_moves = -1 };
	json_t *ops = json_object_get(dlb_doc_section(doc, "graph"), "ops");
	struct dlb_error err;
	struct dlb_plan next;

	assert(IS(read_from(&c, doc, NULL, &err), ==, -1) &&
	       SAME(err.what, "--priority given: no op has a number") && SAME(err.where, "f.json") &&
	       SAME(err.hint, "give ops a member x-priority, the greatest first"));
	dlb_constraints_release(&c);
	json_object_set_new(json_array_get(ops, 2), "x-priority", json_real(2.5));
	json_object_set_new(json_array_get(ops, 0), "x-priority", json_integer(-7));
	assert(IS(read_from(&c, doc, NULL, &err), ==, 0) && p.number == c.number && !p.by_upward_rank);
	for (int i = 0; i < d.g.n_ops; i++)
		assert(IS(p.number[i], ==, i == 0 ? -7 : i == 2 ? 2.5 : 0));
	dlb_plan_init(&next, d.g.n_ops, d.cl.n_nodes);
	dlb_constraints_keep(&c, &next);
	assert(SAME(next.priority, "given"));
	dlb_plan_release(&next);
	c.affinity = "dense"; /* of algorithm by-kind alone */
	for (int by_kind = 0; by_kind < 2; by_kind++) {
		dlb_plan_init(&next, d.g.n_ops, d.cl.n_nodes);
		next.winner = by_kind ? "by-kind" : "heft";
		dlb_constraints_keep(&c, &next);
		assert(by_kind ? SAME(next.affinity, "dense") : !next.affinity);
		dlb_plan_release(&next);
	}
	c.affinity = NULL;
	dlb_constraints_release(&c);
	json_object_set_new(json_array_get(ops, 1), "x-priority", json_string("high"));
	assert(IS(read_from(&c, doc, NULL, &err), ==, -1) && SAME(err.what, "must be a number") &&
	       SAME(err.where, "f.json: /graph/ops/1/x-priority"));
	dlb_constraints_release(&c);
	json_object_del(json_array_get(ops, 1), "x-priority");
}

/* A document with the ops in reverse order, their nodes, and perhaps one op that has none. */
static const char *other_document(int without, int node_of_first)
{
	json_t *root = json_pack("{s:s,s:{s:[]},s:{s:{}}}", "dlb", "1.0", "graph", "ops", "plan",
				 "placement");
	json_t *ops = json_object_get(json_object_get(root, "graph"), "ops"),
	       *placement = json_object_get(json_object_get(root, "plan"), "placement");
	char key[24];

	for (int i = d.g.n_ops - 1, k = 0; i >= 0; i--, k++) {
		json_array_append_new(ops, json_pack("{s:s}", "name", d.g.op[i].name));
		snprintf(key, sizeof key, "%d", k);
		if (i != without)
			json_object_set_new(placement, key, json_integer(i ? (i * 3) % 4 : node_of_first));
	}
	char *text = json_dumps(root, 0);
	const char *path = written("other.json", text);
	free(text);
	json_decref(root);
	return path;
}

static void test_before(const struct dlb_doc *doc)
{
	struct dlb_constraints c = { .max_moves = -1 };
	struct dlb_error err;
	struct dlb_plan plan;
	char want[200];

	c.from = other_document(-1, 3);
	assert(IS(read_from(&c, doc, NULL, &err), ==, 0) && p.before == c.before &&
	       IS(p.serve_steps, ==, 1000) && IS(p.max_moves, ==, -1));
	for (int i = 0; i < d.g.n_ops; i++)
		assert(IS(p.before[i], ==, i ? (i * 3) % 4 : 3));
	dlb_constraints_release(&c);
	for (int row = 0; row < 3; row++) { /* no node; a node too many; less than none */
		c.from = other_document(row ? -1 : 0, row == 1 ? 4 : -1);
		snprintf(want, sizeof want, "--from: its plan has no node of this cluster for op '%s'",
			 d.g.op[0].name);
		assert(IS(read_from(&c, doc, NULL, &err), ==, -1) && SAME(err.what, want) &&
		       HAS(err.where, "other.json"));
		dlb_constraints_release(&c);
	}
	c.from = written("plain.json", "{\"dlb\":\"1.0\",\"graph\":{\"ops\":[]}}");
	assert(IS(read_from(&c, doc, NULL, &err), ==, -1) && SAME(err.what, "no plan to move from"));
	dlb_constraints_release(&c);
	c.from = file("none.json");
	assert(IS(read_from(&c, doc, NULL, &err), ==, -1) && !c.before);
	dlb_constraints_release(&c);

	static const struct {
		int64_t max_moves;
		double serve_steps, want_steps;
	} rows[] = { { -1, 0, 0 }, { 0, 0, 1000 }, { 3, 20, 20 }, { -1, 1.5, 1.5 } };
	earlier(&plan);
	for (int i = 0; i < DLB_LEN(rows); i++)
		for (int has = 0; has < 2; has++) {
			const bool needs = rows[i].max_moves >= 0 || rows[i].serve_steps > 0;
			const int rc = needs && !has ? -1 : 0;

			c = (struct dlb_constraints){ .max_moves = rows[i].max_moves,
						      .serve_steps = rows[i].serve_steps };
			assert(IS(read_from(&c, doc, has ? &plan : NULL, &err), ==, rc));
			if (rc)
				assert(SAME(err.what, "there is no plan to move from: give one with --from"));
			else
				assert(IS(p.max_moves, ==, rows[i].max_moves) &&
				       IS(p.serve_steps, ==, rows[i].want_steps) && !p.before == !needs &&
				       (!needs ||
					!memcmp(p.before, plan.placement, (size_t)d.g.n_ops * sizeof(int))));
			dlb_constraints_release(&c);
		}
	release_earlier(&plan);
}

static void test_affinity(const struct dlb_doc *doc)
{
	static const struct {
		const char *text, *what, *where;
	} bad[] = {
		{ "{\"classes\":{\"F\":\"gpu\"}}", "an array of kinds of device is expected", "/classes/F" },
		{ "{\"classes\":{\"F\":[]}}", "an array of kinds of device is expected", "/classes/F" },
		{ "{\"classes\":{\"F\":[\"a\",1]}}", "the name of a kind of device is expected",
		  "/classes/F/1" },
		{ "{\"classes\":{},\"other\":1}", "other", "" },
		{ "{}", "classes", "" },
		{ "{\"classes\":{\"F\":[\"a\"],\"F\":[\"b\"]}}", "duplicate", ":1:" },
		{ "{\"classes\":", "", "bad.json:1:" },
	};
	struct dlb_error err;
	struct dlb_affinity a;

	for (int i = 0; i < DLB_LEN(bad); i++) {
		struct dlb_constraints c = { .affinity = written("bad.json", bad[i].text), .max_moves = -1 };

		assert(IS(read_from(&c, doc, NULL, &err), ==, -1) && HAS(err.what, bad[i].what) &&
		       HAS(err.where, bad[i].where));
		dlb_constraints_release(&c);
	}
	assert(IS(dlb_affinity_read(&a, "no-such-table", &err), ==, -1) &&
	       HAS(err.what, "no table of affinity 'no-such-table': no file, nor in ") &&
	       SAME(err.hint, "--affinity FILE, or leave the tool in its tree and link to it"));
	/* a row of the type before that of its class, whichever is first; x- members are left out */
	const char *path = written("good.json",
				   "{\"classes\":{\"dense\":[\"a\",\"b\"],\"MatMul\":[\"c\"],"
				   "\"x-note\":1,\"conv\":[\"d\"],\"Conv\":[\"e\"],\"Conv\":[\"e\"]}}");
	assert(IS(dlb_affinity_read(&a, path, &err), ==, -1));
	path = written("good.json", "{\"classes\":{\"dense\":[\"a\",\"b\"],\"MatMul\":[\"c\"],"
				    "\"x-note\":1,\"conv\":[\"d\"]}}");
	assert(IS(dlb_affinity_read(&a, path, &err), ==, 0) && IS(a.n, ==, 3));
	const struct dlb_affinity_row *gemm = dlb_affinity_find(&a, "Gemm");
	assert(gemm && IS(gemm->n, ==, 2) && SAME(gemm->kind[0], "a") && SAME(gemm->kind[1], "b"));
	assert(SAME(dlb_affinity_find(&a, "MatMul")->kind[0], "c") &&
	       SAME(dlb_affinity_find(&a, "Conv")->kind[0], "d") && !dlb_affinity_find(&a, "Relu"));
	dlb_affinity_release(&a);

	const struct dlb_device_kind kind = { .name = "cpu/4", .backend = "host" };
	assert(dlb_affinity_means("cpu/4", &kind) && dlb_affinity_means("cpu", &kind) &&
	       dlb_affinity_means("host", &kind) && !dlb_affinity_means("cp", &kind) &&
	       !dlb_affinity_means("cpux", &kind) && !dlb_affinity_means("cpu/", &kind));
}

/* by-kind, group by group: the first kind in the row that has a node with a kernel and room, there the node
 * that would finish first; without such a kind, the nodes on which the group takes least. The first group for
 * which no node has room; -1: none. */
static int expect_by_kind(const struct dlb_affinity *a, const int *placement)
{
	double load[4] = { 0 }, used[4] = { 0 };

	for (int g = 0; g < p.n_groups; g++) {
		const struct dlb_op *most = NULL;
		int to = -1;
		double bytes = dlb_group_bytes(&p, g);

		for (int k = p.group_start[g]; k < p.group_start[g + 1]; k++)
			if (!most || d.g.op[p.group_op[k]].flop > most->flop)
				most = &d.g.op[p.group_op[k]];
		const struct dlb_affinity_row *row = dlb_affinity_find(a, most->type);
		for (int k = 0; k <= (row ? row->n : 0) && to < 0; k++) {
			const bool named = row && k < row->n;
			double fastest = INFINITY;

			for (int i = 0; i < 4; i++)
				if (used[i] + bytes <= p.memory_bytes[i])
					fastest = fmin(fastest, dlb_time_s(&p, g, i));
			for (int i = 0; i < 4; i++) {
				const double s = dlb_time_s(&p, g, i);
				const bool meant = named ? dlb_affinity_means(row->kind[k],
									      &d.cl.kind[d.cl.node[i].kind]) :
							   s <= fastest;
				if (meant && isfinite(s) && used[i] + bytes <= p.memory_bytes[i] &&
				    (to < 0 || load[i] + s < load[to] + dlb_time_s(&p, g, to)))
					to = i;
			}
		}
		if (to < 0)
			return g;
		for (int k = p.group_start[g]; k < p.group_start[g + 1]; k++)
			assert(IS(placement[p.group_op[k]], ==, to));
		load[to] += dlb_time_s(&p, g, to);
		used[to] += bytes;
	}
	return -1;
}

static void test_by_kind(void)
{
	const char *path = written("kinds.json",
				   "{\"classes\":{\"F\":[\"cpu/3\",\"cpu/2\"],\"G\":[\"tpu\",\"cpu/2\"]}}");

	for (int turn = 0; turn < 12; turn++) {
		const struct dag_options o = { .seed = (uint64_t)turn,
					       .n_forward = 9,
					       .training = turn % 2,
					       .colocate = .6,
					       .no_kernel = turn % 3 ? .4 : 0,
					       .cluster = "cpu:1 cpu/2:2 cpu/3:1",
					       .batch = 8 };
		int placement[64];
		struct dlb_error err;
		struct dlb_affinity a;
		double all = 0;

		dag_init(&d, &o);
		problem(&p, &d, 2, "1f1b", NULL, 1);
		for (int g = 0; g < p.n_groups; g++)
			all += dlb_group_bytes(&p, g);
		for (int i = 0; i < 4 && turn % 4 == 1; i++)
			p.memory_bytes[i] = all * (i == 3 ? .2 : turn == 5 ? .3 : .6);
		assert(IS(dlb_affinity_read(&a, turn < 10 ? path : "dense", &err), ==, turn < 10 ? 0 : -1));
		p.affinity = turn < 10 ? &a : &(struct dlb_affinity){ .n = 0 };
		const int rc = dlb_place_by_kind(&p, placement, &err),
			  full = expect_by_kind(p.affinity, placement);
		assert(IS(rc, ==, full < 0 ? 0 : -1) &&
		       (!rc || HAS(err.what, d.g.op[p.group_op[p.group_start[full]]].name)));
		n_full += full >= 0;
		for (int i = 0; i < 4; i++)
			p.memory_bytes[i] = 1;
		assert(IS(dlb_place_by_kind(&p, placement, &err), ==, -1) && IS(err.status, ==, 1));
		if (turn < 10)
			dlb_affinity_release(&a);
		tear_down();
		n_checks++;
	}
}

/* The problem of the team of nodes 3 and 1: its parts are 0 and 1. */
static void test_team(void)
{
	const int node[2] = { 3, 1 }, like[2] = { 2, 1 };
	double weight[4] = { .5, .75, 1.25, 1.5 }, kappa[4] = { 1, 2, 3, 4 };
	int *pin = malloc((size_t)d.g.n_ops * sizeof *pin),
	    *before = malloc((size_t)d.g.n_ops * sizeof *before);
	struct dlb_team_problem t = { .node = NULL };
	struct dlb_error err = { .what = "" };

	for (int i = 0; i < d.g.n_ops; i++) {
		pin[i] = -1;
		before[i] = i % 2 ? 1 : 3;
	}
	pin[0] = 1;
	pin[2] = 3;
	for (int i = 0; i < 4; i++)
		d.cl.node[i].memory_bytes = 1e9 * (i == 2 ? 2 : 4 + i);
	p.pin = pin;
	p.before = before;
	p.weight = weight;
	p.kappa = kappa;
	if (dlb_team_problem_init(&t, &p, node, like, 2, 5, &err))
		die("team", 0, &err);
	assert(IS(t.p.batch, ==, 5) && IS(t.p.cluster->n_nodes, ==, 2) && !t.p.excluded && !t.p.replicas);
	for (int i = 0; i < d.g.n_ops; i++)
		assert(IS(t.p.pin[i], ==,
			  i == 0 ? 1 :
			  i == 2 ? 0 :
				   -1) &&
		       IS(t.p.before[i], ==, before[i] == 1));
	for (int k = 0; k < 2; k++)
		assert(IS(t.p.weight[k], ==, weight[like[k]]) && IS(t.p.kappa[k], ==, kappa[like[k]]) &&
		       IS(t.p.cluster->node[k].kind, ==, d.cl.node[like[k]].kind) &&
		       IS(t.p.cluster->node[k].group, ==, d.cl.node[node[k]].group));
	assert(IS(t.p.memory_bytes[0], ==, 2e9) && IS(t.p.memory_bytes[1], ==, 5e9));
	dlb_team_problem_release(&t);

	before[d.g.n_ops - 1] = 0; /* on no node of the team: nothing stays */
	t = (struct dlb_team_problem){ .node = NULL };
	if (dlb_team_problem_init(&t, &p, node, NULL, 2, 5, &err))
		die("team", 0, &err);
	assert(!t.p.before && IS(t.p.weight[0], ==, 1.5) && IS(t.p.memory_bytes[0], ==, 7e9));
	dlb_team_problem_release(&t);
	pin[1] = 0;
	t = (struct dlb_team_problem){ .node = NULL };
	assert(IS(dlb_team_problem_init(&t, &p, node, like, 2, 5, &err), ==, -1) && IS(err.status, ==, 1) &&
	       HAS(err.what, "no plan fits: op 'f1' is pinned to node 0, which is not in the first replica"));
	dlb_team_problem_release(&t);
	assert(IS(dlb_team_part_of(node, 2, 3), ==, 0) && IS(dlb_team_part_of(node, 2, 1), ==, 1) &&
	       IS(dlb_team_part_of(node, 2, 0), ==, -1) && IS(dlb_team_part_of(node, 0, 3), ==, -1));
	p.pin = p.before = NULL;
	p.weight = p.kappa = NULL;
	free(pin);
	free(before);
	n_checks += 4;
}

int main(void)
{
	struct dlb_doc doc;

	assert(mkdtemp(dir));
	set_up("cpu:2 cpu/2:2*0.5");
	dlb_doc_init(&doc, "f.json");
	dlb_doc_set(&doc, "graph", dlb_graph_write(&d.g));
	test_pins(&doc);
	test_refusals(&doc);
	test_numbers(&doc);
	test_before(&doc);
	test_affinity(&doc);
	p.before = NULL;
	p.max_moves = -1;
	p.serve_steps = 0;
	p.number = NULL;
	p.affinity = NULL;
	test_team();
	dlb_doc_release(&doc);
	tear_down();
	test_by_kind();
	for (const char *const *name = (const char *const[]){ "other.json", "plain.json", "bad.json",
							      "good.json", "kinds.json", NULL };
	     *name; name++)
		unlink(file(*name));
	assert(!rmdir(dir) && IS(n_full, >, 0) && IS(n_full, <, 3));
	printf("%d checks\n", n_checks);
	return 0;
}
