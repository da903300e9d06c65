/* Kept results of the choice of ops to run again: on random plans over one to four nodes, with several
 * parts of the memory that they need without it, under several schedules; and of estimates of moves. kept.h
 * says how they are replaced. */
#include "place_worlds.h"
#include "place/estimate.h"
#include "place/fit.h"
#include "place/recompute.h"
#include "place/value.h"

static const char *const kept[] = {
#include "recompute_kept.inc"
};

static const struct world worlds[] = {
	{ { .seed = 11, .n_forward = 14, .chain = true, .cluster = "cpu:1" }, 1, "1f1b" },
	{ { .seed = 12, .n_forward = 12, .colocate = .5, .cluster = "cpu:2" }, 3, "1f1b" },
	{ { .seed = 13, .n_forward = 20, .chain = true, .colocate = 1, .cluster = "cpu:2 host cpu:1*0.5" },
	  4,
	  "gpipe" },
	{ { .seed = 14, .n_forward = 16, .colocate = 1, .cluster = "cpu:3" }, 2, "zero-bubble" },
	{ { .seed = 15, .n_forward = 24, .chain = true, .colocate = 1, .cluster = "cpu:4" },
	  6,
	  "interleaved" },
	{ { .seed = 16, .n_forward = 18, .colocate = .8, .cluster = "cpu:1 cpu:1*2" }, 2, "none" },
};
static const struct variant plain = { .name = "", .recomputes = true, .n_state = 1 };

static void keep_choice(const char *name, struct dlb_problem *p, struct dlb_plan *plan, int in_flight,
			bool draft, double below_s)
{
	struct dlb_error err = { .what = "" };
	struct dlb_program g;
	double s = INFINITY;
	const int rc = dlb_recompute_choose(p, plan, in_flight, draft, below_s, &err);

	kept_text(err.what);
	for (int i = 0; rc >= 0 && plan->again && i < plan->n_ops; i++)
		kept_add((const int[]){ plan->again[i] }, 1);
	if (rc >= 0 && !dlb_fit_compile(p, plan, true, &g, &err)) {
		kept_add((const int[]){ dlb_fit_in_memory(p, &g, true), dlb_fit_in_memory(p, &g, false),
					dlb_fit_could(p, plan, &g) },
			 3);
		for (int d = 0; d < plan->n_nodes; d++) {
			kept_real((double)g.node[d].bound_bytes);
			kept_real((double)g.node[d].arena_bytes);
			kept_real(dlb_fit_room(p, &g, d));
		}
		s = plan->makespan_s;
		dlb_program_release(&g);
	}
	kept_line(name, "%s %d in flight: %d, %.5g s", draft ? "draft" : "all", in_flight, rc, s);
}

/* Gives activations one of n sizes and ops one of n times, so that many choices are equal in one or both. */
static void make_alike(struct made *m, int n)
{
	struct dlb_error err = { .what = "" };

	for (int i = 0; i < m->d.g.n_tensors; i++)
		if (m->d.g.tensor[i].size_mul > 0)
			m->d.g.tensor[i].size_mul = 4000 * (1 + i % n);
	for (int i = 0; i < m->d.g.n_ops; i++)
		for (int k = 0; k < m->d.cl.n_kinds; k++)
			for (int b = 0; b < m->d.c.n_batches; b++)
				m->d.c.op_s[(k * m->d.c.n_ops + i) * m->d.c.n_batches +
					    b] = ldexp((1 + i % n) * (1 + m->d.c.batch[b]), -15);
	dlb_problem_release(&m->p);
	if (dlb_problem_init(&m->p, &err))
		die("problem", m->p.seed, &err);
}

/* alike: the number of sizes and times; 0: all different. */
static void choices(const struct world *w, int alike)
{
	static const double parts[] = { .98, .95, .92, .88, .82, .75, .65, .5 };
	struct made m;
	struct dlb_plan plan;
	struct dlb_program g;
	struct dlb_error err = { .what = "" };
	struct dlb_rng r;
	double need[8];
	char name[40];

	init(&m, w, &plain);
	if (alike)
		make_alike(&m, alike);
	dlb_rng_init(&r, w->dag.seed);
	random_plan(&m.p, &plan, &r);
	if (w->dag.chain) /* parts, not single ops */
		for (int i = 0; i < plan.n_ops; i++) {
			const int op = m.d.g.op[i].of >= 0 ? m.d.g.op[i].of : i;
			plan.placement[i] = op * m.d.cl.n_nodes / w->dag.n_forward % m.d.cl.n_nodes;
		}
	const double s = dlb_fit_order(&m.p, &plan, 0);
	if (dlb_fit_compile(&m.p, &plan, true, &g, &err))
		die("compile", w->dag.seed, &err);
	for (int d = 0; d < plan.n_nodes; d++)
		need[d] = (double)(g.node[d].bound_bytes + g.node[d].scratch_bytes + g.node[d].state_bytes);
	dlb_program_release(&g);
	for (int i = 0; i < DLB_LEN(parts); i++) {
		snprintf(name, sizeof name, "%d %.2f%s", (int)w->dag.seed, parts[i], alike ? " alike" : "");
		for (int d = 0; d < plan.n_nodes; d++)
			m.p.memory_bytes[d] = rint(need[d] * fmin(1, parts[i] + .1 * (d % 2)));
		plan.again = NULL;
		kept_add((const int[]){ dlb_recompute_may_fit(&m.p, &plan, 0, &err) }, 1);
		keep_choice(name, &m.p, &plan, 0, false, INFINITY);
		keep_choice(name, &m.p, &plan, 0, true, INFINITY);
		keep_choice(name, &m.p, &plan, 0, true, s * 1.1);
		keep_choice(name, &m.p, &plan, 1, false, INFINITY);
	}
	dlb_plan_release(&plan);
	release(&m);
}

static void estimates(const struct world *w)
{
	struct made m;
	struct dlb_estimate e;
	struct dlb_rng r;
	char name[40];

	init(&m, w, &plain);
	dlb_rng_init(&r, w->dag.seed);
	int *at = malloc(((size_t)m.p.n_groups + 1) * sizeof *at);
	for (int g = 0; g < m.p.n_groups; g++)
		at[g] = (int)dlb_rng_below(&r, (uint64_t)m.d.cl.n_nodes);
	assert(dlb_estimate_init(&e, &m.p, at));
	for (int turn = 0; turn < 30; turn++) {
		int group[4], before[4], n = 0;

		dlb_estimate_take(&e);
		kept_real(e.path_s);
		kept_real(e.value_s);
		for (int k = 0; k < 1 + turn % 4; k++) {
			group[n] = ((int)dlb_rng_below(&r, (uint64_t)m.p.n_groups) + k) % m.p.n_groups;
			bool twice = false;
			for (int i = 0; i < n; i++)
				twice |= group[i] == group[n];
			if (!twice)
				n++;
		}
		for (int i = 0; i < n; i++) {
			before[i] = at[group[i]];
			at[group[i]] = (at[group[i]] + 1) % m.d.cl.n_nodes;
		}
		kept_real(dlb_estimate_change_s(&e, group, before, n));
		kept_real(dlb_estimate_walk_s(&e, group, before, n));
		for (int i = 0; i < n && turn % 3; i++)
			at[group[i]] = before[i];
	}
	snprintf(name, sizeof name, "%d estimates", (int)w->dag.seed);
	kept_line(name, "%.5g s", e.value_s);
	dlb_estimate_release(&e);
	free(at);
	release(&m);
}

int main(int argc, char **argv)
{
	for (int turn = 0; turn < 3; turn++)
		for (int i = 0; i < DLB_LEN(worlds); i++) {
			struct world w = worlds[i];

			w.dag.seed += 20 * (uint64_t)turn;
			choices(&w, 0);
			if (turn)
				choices(&w, turn);
			estimates(&w);
		}
	return kept_end(argc, argv, kept, DLB_LEN(kept));
}
