/* Kept results of the choice among placers: with less and less memory, until none fits, with the placers that
 * are tried and the message of the nearest plan; and of plans made again, in and out of a run. kept.h says how
 * they are replaced. */
#include "place_worlds.h"

static const char *const kept[] = {
#include "choice_kept.inc"
};

static const struct world worlds[] = {
	{ { .seed = 1, .n_forward = 5, .chain = true, .colocate = 1, .cluster = "cpu:3" }, 4, "1f1b" },
	{ { .seed = 2, .n_forward = 5, .chain = true, .colocate = 1, .cluster = "cpu:2" }, 4, "interleaved" },
	{ { .seed = 3, .n_forward = 4, .colocate = .4, .no_kernel = .5, .cluster = "cpu:1 cpu/2:2*0.5" },
	  2,
	  "gpipe" },
	{ { .seed = 4, .n_forward = 5, .chain = true, .colocate = 1, .cluster = "cpu:1 host cpu:1*0.7" },
	  6,
	  "zero-bubble" },
};
static const struct variant variants[] = {
	{ .name = "plain", .quick = true },
	{ .name = "brief", .quick = true, .n_state = 2 },
	{ .name = "weights", .weighs = true, .quick = true },
	{ .name = "throughput", .objective = DLB_THROUGHPUT, .quick = true },
	{ .name = "latency", .objective = DLB_LATENCY, .quick = true },
};

/* Bytes of each node for the part of all bytes of the model. */
static void set_memory(struct made *m, double part)
{
	struct dlb_error err;
	double all = 0;

	for (int i = 0; i < m->d.g.n_tensors; i++)
		all += m->d.g.tensor[i].size_add + 3 * m->d.g.tensor[i].size_mul;
	for (int d = 0; d < m->d.cl.n_nodes; d++)
		m->d.cl.node[d].memory_bytes = rint(all * part / m->d.cl.n_nodes);
	dlb_problem_release(&m->p);
	if (dlb_problem_init(&m->p, &err))
		die("problem", m->p.seed, &err);
}

static void choose(const struct world *w, const struct variant *v)
{
	static const double parts[] = { 2.5, 1.75, 1.25, 1, .6, .1 };
	struct made m;
	char name[64];

	init(&m, w, v);
	m.p.brief = !strcmp(v->name, "brief");
	for (int i = 0; i < DLB_LEN(parts); i++) {
		const char *algorithms[] = { NULL, i % 2 ? "even" : "greedy" };

		set_memory(&m, parts[i]);
		for (int k = 0; k < 2; k++) {
			struct dlb_plan plan;
			struct dlb_error err = { .what = "" };

			snprintf(name, sizeof name, "%d %s %.2f", (int)(w - worlds), v->name, parts[i]);
			const int rc = dlb_place(&m.p, algorithms[k], &plan, &err);
			if (!rc) {
				kept_text(plan.algorithm);
				kept_add((const int[]){ plan.algorithm_given, (int)plan.effort }, 2);
			}
			keep_plan(name, rc, &plan, &err);
			if (!rc)
				dlb_plan_release(&plan);
		}
	}
	release(&m);
}

/* A plan made again from the placement `now`, which may not fit. */
static void again(const char *name, const struct made *m, const char *algorithm, const int *now)
{
	struct dlb_plan plan;
	struct dlb_error err = { .what = "" };
	bool same = false;
	const int rc = dlb_place_again(&m->p, algorithm, now, &plan, &same, &err);

	if (!rc) {
		kept_text(plan.algorithm);
		kept_add((const int[]){ same, plan.algorithm_given, plan.moved_ops }, 3);
		kept_real(plan.moved_bytes);
		const int n = plan.moved_ops;
		const double bytes = plan.moved_bytes;
		dlb_plan_moved(&m->p, now, &plan); /* counted anew, not on top */
		assert(IS(plan.moved_ops, ==, n) && IS(plan.moved_bytes, ==, bytes));
	}
	keep_plan(name, rc, &plan, &err);
	if (!rc)
		dlb_plan_release(&plan);
}

static void choose_again(const struct world *w, const struct variant *v, bool in_run)
{
	static const double parts[] = { 2, .5 };
	struct made m;
	char name[64];

	init(&m, w, v);
	m.p.in_run = in_run;
	int *now = calloc((size_t)m.d.g.n_ops, sizeof *now);
	for (int i = 0; i < DLB_LEN(parts); i++) {
		set_memory(&m, parts[i]);
		for (int way = 0; way < 3; way++) { /* one node, halves, ops in turn */
			for (int k = 0; k < m.d.g.n_ops; k++) {
				const int of = m.d.g.op[k].of >= 0 ? m.d.g.op[k].of : k;

				now[k] = way == 0 ? 0 :
					 way == 1 ? of * m.d.cl.n_nodes / w->dag.n_forward % m.d.cl.n_nodes :
						    of % m.d.cl.n_nodes;
			}
			snprintf(name, sizeof name, "%d %s %.1f %d%s", (int)(w - worlds), v->name, parts[i],
				 way, in_run ? " in run" : "");
			again(name, &m, way == 1 ? NULL : i % 2 ? "greedy" : "even", now);
			again(name, &m, NULL, now);
		}
	}
	free(now);
	release(&m);
}

static void no_such(void)
{
	struct made m;
	struct dlb_plan plan;
	struct dlb_error err = { .what = "" };

	init(&m, &worlds[0], &variants[0]);
	assert(IS(dlb_place(&m.p, "greddy", &plan, &err), ==, -1) && IS(dlb_error_status(&err), ==, 2) &&
	       SAME(err.what, "no algorithm 'greddy'") && HAS(err.hint, "'greedy'"));
	assert(IS(dlb_place(&m.p, "no such", &plan, NULL), ==, -1));
	kept_text(err.hint);
	kept_line("no such", "%s", err.what);
	release(&m);
}

int main(int argc, char **argv)
{
	for (int i = 0; i < DLB_LEN(worlds); i++)
		for (int j = 0; j < DLB_LEN(variants); j++) {
			if (i < 2 || j != 2)
				choose(&worlds[i], &variants[j]);
			if ((i + j) % 3 == 0)
				choose_again(&worlds[i], &variants[j], i % 2);
		}
	no_such();
	return kept_end(argc, argv, kept, DLB_LEN(kept));
}
