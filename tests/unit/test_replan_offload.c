/* Which optimizer states dlb-place keeps in another memory, on random training graphs: rules as the option
 * says or as in the plan; refusals; with auto the fastest memory that all nodes have, the largest weights
 * first, and no more of them than the placement needs. */
#include "check.h"
#include "place_cases.h"
#include "balance/replan_offload.h"
#include "graph/slice.h"
#include "place/make.h"
#include "place/value.h"
#include "plan/offload.h"

enum { MOST = 64 };
static struct dag d;
static struct dlb_problem p;
static const struct dlb_cli cli = { .tool = "test", .quiet = true };

/* Two hosts of two nodes; the first host's group is 1, the second's 2, both in 0. */
static void start_of(int n_forward)
{
	const struct dag_options o = { .seed = 7,
				       .n_forward = n_forward,
				       .training = true,
				       .batch = 12,
				       .cluster = "cpu:2 host cpu:2" };

	dag_init(&d, &o);
	problem(&p, &d, 1, "1f1b", NULL, 7);
	p.n_state = 2;
}

static void start(void) { start_of(12); }

static void end(void)
{
	dlb_problem_release(&p);
	dag_release(&d);
}

static int memory(int group, const char *name, const char *cls, double Bps)
{
	const int m = dlb_cluster_add_memory(&d.cl, group, name, cls, 1e12);

	d.cl.memory[m].bandwidth_Bps = Bps;
	if (!strcmp(cls, DLB_MEMORY_FILE))
		d.cl.memory[m].folder = "/f";
	return m;
}

/* -- rules -- */

static int find(const char *const *item, int n, const char *schedule, const struct dlb_offload *was,
		struct replan_input *in, struct dlb_error *err)
{
	const struct dlb_replan o = { .cli = &cli, .offload = { (const char **)(uintptr_t)item, n } };

	memset(in, 0, sizeof *in);
	in->options = &o;
	in->graph = d.g;
	in->cluster = d.cl;
	if (was)
		in->plan.offload = *was;
	const int rc = dlb_replan_find_offload(in, dlb_schedule_find(schedule), err);
	in->options = NULL;
	return rc;
}

static void test_rules(void)
{
	static const struct dlb_offload_rule kept = { "w*", "disk", DLB_OFFLOAD_STATES };
	static const struct dlb_offload was = { .chosen = true, .rule = &kept, .n = 1 };
	static const struct {
		const char *item[3];
		const char *schedule, *refused;
	} rows[] = {
		{ { "w*=disk" }, "1f1b", NULL },
		{ { "w*=disk", "w*=tape" }, "gpipe", NULL },
		{ { "x*=disk" }, "1f1b", "--offload: no weight matches 'x*'" },
		{ { "w*=disk", "act=disk" }, "1f1b", "--offload: no weight matches 'act'" },
		{ { "w*=reel" }, "1f1b", "--offload: no node has a memory 'reel'" },
		{ { "w*=disk", "w*=reel" }, "1f1b", "--offload: no node has a memory 'reel'" },
		{ { "w*=disk" },
		  "async",
		  "--offload: under an asynchronous schedule updates of several steps overlap" },
	};
	struct replan_input in;
	struct dlb_error err = { .what = "" };

	start();
	memory(0, "disk", DLB_MEMORY_FILE, 1e8);
	memory(2, "tape", DLB_MEMORY_FILE, 1e8); /* of one host is enough */
	for (int i = 0; i < DLB_LEN(rows); i++) {
		int n = 0;

		while (rows[i].item[n])
			n++;
		const int rc = find(rows[i].item, n, rows[i].schedule, &was, &in, &err);
		assert(rows[i].refused ? IS(rc, ==, -1) && SAME(err.what, rows[i].refused) :
					 IS(rc, ==, 0) && IS(in.offload.n, ==, n) && !in.offload.chosen);
		for (int k = 0; k < n && !rc; k++)
			assert(SAME(in.offload.rule[k].pattern, "w*") &&
			       SAME(in.offload.rule[k].memory, k ? "tape" : "disk"));
		dlb_arena_release(&in.arena);
	}
	find(NULL, 0, "1f1b", &was, &in, &err);
	assert(in.offload.chosen && IS(in.offload.n, ==, 1) && IS(in.offload.rule, ==, &kept));
	find((const char *[]){ "none" }, 1, "async", &was, &in, &err);
	assert(!in.offload.chosen && IS(in.offload.n, ==, 0));
	find((const char *[]){ "auto" }, 1, "async", &was, &in, &err);
	assert(in.offload.chosen && IS(in.offload.n, ==, 0));
	end();
}

/* -- auto -- */

static struct maker {
	int calls, fits_from, status, n[4];
	struct dlb_offload_rule rule[MOST];
	bool chosen;
} maker;

static int make_counted(const struct replan_input *in, const struct dlb_problem *q, struct dlb_plan *plan,
			struct dlb_error *err)
{
	const int k = maker.calls++;

	(void)in;
	assert(IS(k, <, 4) && IS(q->offload->n, <, MOST));
	maker.n[k] = q->offload->n;
	maker.chosen = q->offload->chosen;
	for (int i = 0; i < q->offload->n; i++)
		maker.rule[i] = q->offload->rule[i];
	plan->n_replicas = 2; /* of these no rule is left out */
	if (k >= maker.fits_from)
		return 0;
	return maker.status == 1 ? dlb_fail_no(err, NULL, "does not fit") : dlb_fail(err, NULL, "broken");
}

static int offloading(bool chosen, int fits_from, int status, dlb_replan_maker *make, struct dlb_plan *plan,
		      struct dlb_offload *left)
{
	const struct dlb_offload asked = { .chosen = chosen };
	struct replan_input *in = dlb_xcalloc(1, sizeof *in);
	struct dlb_problem q = p;
	struct dlb_error err = { .what = "" };

	in->graph = d.g;
	in->cluster = d.cl;
	q.offload = &asked;
	maker = (struct maker){ .fits_from = fits_from, .status = status };
	const int rc = dlb_replan_offloading(in, &q, make, plan, &err);
	if (left && !rc) {
		static struct dlb_offload_rule rule[4 * MOST];

		assert(IS(plan->offload.n, <=, DLB_LEN(rule)));
		*left = plan->offload;
		left->rule = rule;
		if (left->n)
			memcpy(rule, plan->offload.rule, (size_t)left->n * sizeof *rule);
	}
	dlb_arena_release(&in->arena);
	free(in);
	return rc;
}

/* The trained weights. */
static int count_weights(void)
{
	int n = 0;

	for (int t = 0; t < d.g.n_tensors; t++)
		n += dlb_offload_name(&d.g, DLB_OFFLOAD_STATES, t) != NULL;
	return n;
}

static double bytes_of(const char *name)
{
	for (int t = 0; t < d.g.n_tensors; t++)
		if (!strcmp(d.g.tensor[t].name, name))
			return dlb_tensor_bytes(&d.g.tensor[t], 1);
	return -1;
}

/* When further plans are tried: with all states far, with all activations too, and with all weights too. */
static void test_when(void)
{
	static const struct {
		bool chosen, memory;
		int fits_from, status, n_state, calls, rc;
	} rows[] = {
		{ true, true, 0, 1, 2, 1, 0 },   { true, true, 1, 1, 2, 2, 0 },
		{ true, true, 2, 1, 2, 3, 0 },   { true, true, 3, 1, 2, 4, 0 },
		{ true, true, 4, 1, 2, 4, -1 },  { true, true, 2, 1, 0, 3, 0 },
		{ true, true, 1, 2, 2, 1, -1 },  { true, true, 1, 1, 0, 2, 0 },
		{ true, false, 1, 1, 2, 1, -1 }, { false, true, 1, 1, 2, 1, -1 },
	};

	for (int i = 0; i < DLB_LEN(rows); i++) {
		struct dlb_plan plan = { .n_ops = 0 };

		start();
		if (rows[i].memory)
			memory(0, "disk", DLB_MEMORY_FILE, 0);
		p.n_state = rows[i].n_state;
		assert(IS(offloading(rows[i].chosen, rows[i].fits_from, rows[i].status, make_counted, &plan,
				     NULL),
			  ==, rows[i].rc));
		assert(IS(maker.calls, ==, rows[i].calls) && IS(maker.n[0], ==, 0) &&
		       IS(maker.chosen, ==, rows[i].chosen));
		for (int k = 1; k < maker.calls; k++) {
			const int level = rows[i].n_state ? k : k + 1, states = rows[i].n_state ? count_weights() : 0;

			assert(IS(maker.n[k], ==, states + (level >= 2) + (level == 3 ? count_weights() : 0)));
			assert(IS(maker.n[k], >, rows[i].n_state ? 2 : 0));
			if (k < maker.calls - 1 || level < 2)
				continue;
			assert(maker.rule[states].kind == DLB_OFFLOAD_ACTIVATIONS &&
			       SAME(maker.rule[states].pattern, "*") && SAME(maker.rule[states].memory, "disk"));
			for (int r = states + 1; r < maker.n[k]; r++)
				assert(maker.rule[r].kind == DLB_OFFLOAD_WEIGHTS &&
				       SAME(maker.rule[r].memory, "disk"));
		}
		end();
	}
}

/* The largest weight first, equal ones by name, a part's weight once. */
static void test_order(void)
{
	struct dlb_plan plan = { .n_ops = 0 };
	static const struct dlb_slice part = { .of = "whole" };
	int first = -1, second = -1;

	start();
	memory(0, "disk", DLB_MEMORY_FILE, 1e8);
	for (int t = 0; t < d.g.n_tensors; t++)
		if (dlb_offload_name(&d.g, DLB_OFFLOAD_STATES, t)) {
			second = first < 0 ? second : second < 0 ? t : second;
			first = first < 0 ? t : first;
		}
	assert(IS(first, >=, 0) && IS(second, >, first));
	d.g.tensor[second].size_add = d.g.tensor[first].size_add;
	assert(IS(offloading(true, 1, 1, make_counted, &plan, NULL), ==, 0));
	for (int i = 0; i + 1 < maker.n[1]; i++) {
		const char *a = maker.rule[i].pattern, *b = maker.rule[i + 1].pattern;

		assert(IS(bytes_of(a), >=, bytes_of(b)));
		assert(bytes_of(a) > bytes_of(b) || strcmp(a, b) < 0);
		assert(SAME(maker.rule[i].memory, "disk"));
	}
	const int all = maker.n[1];
	d.g.tensor[first].slice = d.g.tensor[second].slice = &part;
	assert(IS(offloading(true, 1, 1, make_counted, &plan, NULL), ==, 0) && IS(maker.n[1], ==, all - 1));
	end();
}

/* The fastest memory that takes states and that every node has. */
static void test_memory(void)
{
	static const struct {
		int group;
		const char *name, *cls;
		double Bps;
		const char *takes;
	} rows[] = {
		{ 0, "disk", DLB_MEMORY_FILE, 1e8, "disk" },
		{ 0, "same", DLB_MEMORY_FILE, 1e8, "disk" },
		{ 0, "fast", DLB_MEMORY_FILE, 2e8, "fast" },
		{ 1, "host", DLB_MEMORY_FILE, 9e8, "fast" },
		{ 0, "dram", "dram", 9e9, "fast" },
		{ 0, "far", "cxl", 1e9, "far" },
		{ 0, "used", "cxl", 2e9, "far" },
	};
	struct dlb_plan plan = { .n_ops = 0 };

	start();
	for (int i = 0; i < DLB_LEN(rows); i++) {
		const int m = memory(rows[i].group, rows[i].name, rows[i].cls, rows[i].Bps);

		d.cl.memory[m].users = !strcmp(rows[i].name, "used");
		assert(IS(offloading(true, 1, 1, make_counted, &plan, NULL), ==, 0));
		assert(SAME(maker.rule[0].memory, rows[i].takes));
	}
	/* a GPU's states lie in memory of its host, never in a file */
	d.cl.kind[0].backend = "cuda";
	assert(IS(offloading(true, 1, 1, make_counted, &plan, NULL), ==, 0));
	assert(SAME(maker.rule[0].memory, "dram"));
	for (int i = 0; i < d.cl.n_memories; i++) {
		d.cl.memory[i].folder = "/tmp";
		d.cl.memory[i].cls = DLB_MEMORY_FILE;
	}
	assert(IS(offloading(true, 1, 1, make_counted, &plan, NULL), ==, -1) && IS(maker.calls, ==, 1));
	end();
}

static int place_on_first(const struct replan_input *in, const struct dlb_problem *q, struct dlb_plan *plan,
			  struct dlb_error *err)
{
	int *placement = dlb_xcalloc((size_t)q->graph->n_ops, sizeof *placement);
	const int rc = dlb_plan_make(q, placement, plan, NULL, err);

	(void)in;
	free(placement);
	return rc;
}

/* Whether all ops fit on node 0 with these rules. */
static bool fits(const struct dlb_offload *x)
{
	int *placement = dlb_xcalloc((size_t)d.g.n_ops, sizeof *placement);
	struct dlb_problem q = p;
	struct dlb_error err = { .what = "" };

	q.offload = x;
	if (dlb_problem_init(&q, &err))
		die("problem", 7, &err);
	const bool yes = dlb_place_lack_bytes(&q, placement) <= 0;
	dlb_problem_release(&q);
	free(placement);
	return yes;
}

/* So many rules that all ops fit on node 0, and with one fewer they do not, at limits from all bytes down to
 * a quarter of them; states are most of the bytes. */
static void test_least(void)
{
	struct dlb_plan plan = { .n_ops = 0 };
	struct dlb_offload left;
	struct dlb_error err = { .what = "" };
	int most = 0, tried = 0, activations = 0;

	start_of(40);
	for (int t = 0; t < d.g.n_tensors; t++)
		if (dlb_offload_name(&d.g, DLB_OFFLOAD_STATES, t))
			d.g.tensor[t].size_add *= 100;
	memory(0, "disk", DLB_MEMORY_FILE, 1e8);
	if (place_on_first(NULL, &p, &plan, &err))
		die("plan", 7, &err);
	const double all = plan.node[0].peak_bytes;
	dlb_plan_release(&plan);
	for (int k = 1; k <= 12; k++) {
		d.cl.node[0].memory_bytes = all * (1 - k / 16.);
		if (offloading(true, 0, 1, place_on_first, &plan, &left))
			continue;
		assert(fits(&left) && IS(plan.node[0].peak_bytes, <=, d.cl.node[0].memory_bytes));
		tried += left.n > most;
		most = left.n > most ? left.n : most;
		activations += dlb_offload_count(&left, DLB_OFFLOAD_ACTIVATIONS) > 0;
		left.n--;
		assert(left.n < 0 || !fits(&left));
		dlb_plan_release(&plan);
	}
	assert(IS(tried, >, 3) && IS(most, >, 4) && IS(activations, >, 0));
	end();
}

/* A CPU offloads to files and to CXL memory that no node's buffers are in, a GPU to memory of its host, each to those of
 * its own group or of one above. Copies take the memory's latency and bandwidth; a GPU's also those of its links. */
static void test_takes(void)
{
	static const struct {
		const char *cls, *folder;
		int group, users;
		bool cpu, gpu, other; /* the other is a CPU of another host */
	} rows[] = { { "file", "/f", 0, 0, true, false, true },  { "file", "/f", 1, 0, true, false, false },
		     { "cxl", NULL, 0, 0, true, true, true },    { "cxl", NULL, 0, 1, false, true, false },
		     { "cxl", "/f", 1, 0, true, false, false },  { "dram", NULL, 1, 0, false, true, false },
		     { "dram", NULL, 0, 1, false, true, false }, { "hbm", NULL, 0, 0, false, false, false } };
	struct dlb_error err = { .what = "" };
	struct dlb_cluster c;

	if (dlb_cluster_parse("cpu:1 cuda:1 host cpu:1", &c, &err))
		die("cluster", 0, &err);
	assert(IS(c.node[0].group, ==, 1) && IS(c.node[1].group, ==, 1) && IS(c.node[2].group, ==, 2) &&
	       IS(c.group[1].parent, ==, 0) && IS(c.group[1].up, >=, 0));
	struct dlb_link *up = &c.link[c.group[1].up];
	up->latency_s = 1e-3;
	for (int i = 0; i < DLB_LEN(rows); i++) {
		char name[8];
		snprintf(name, sizeof name, "m%d", i);
		const int m = dlb_cluster_add_memory(&c, rows[i].group, name, rows[i].cls, 1e9);
		struct dlb_memory *x = &c.memory[m];
		x->folder = rows[i].folder;
		x->users = rows[i].users;
		x->latency_s = .25;
		x->bandwidth_Bps = 100;
		assert(IS(dlb_offload_takes(&c, 0, x), ==, rows[i].cpu) &&
		       IS(dlb_offload_takes(&c, 1, x), ==, rows[i].gpu) &&
		       IS(dlb_offload_takes(&c, 2, x), ==, rows[i].other));
		for (int slow = 0; slow < 2; slow++) { /* the link, then the memory */
			const double far_s = rows[i].group == 0 ? 1e-3 : 0;
			up->bandwidth_Bps = slow ? 1e6 : 50;
			assert(IS(fabs(dlb_offload_copy_s(&c, 0, m, 500) - 5.25), <, 1e-9) &&
			       IS(fabs(dlb_offload_copy_s(&c, 1, m, 500) -
				       (.25 + far_s + (far_s > 0 && !slow ? 10 : 5))),
				  <, 1e-9));
		}
		x->bandwidth_Bps = 0; /* not known */
		assert(IS(fabs(dlb_offload_copy_s(&c, 0, m, 500) - .25), <, 1e-9));
	}
	dlb_cluster_release(&c);
}

int main(void)
{
	test_rules();
	test_when();
	test_order();
	test_memory();
	test_least();
	test_takes();
	puts("test_replan_offload: rules, refusals, the memory and the weights that auto chooses");
	return 0;
}
