/* Offloaded optimizer states. Programs of random graphs and placements: verified; every update of a node
 * has its states near, at most three weights' states at once; the simulated step is that without offload
 * where copies cost nothing, and no shorter than its copies take. Spoilt programs are refused. */
#include "check.h"
#include "place_cases.h"
#include "place/fit.h"
#include "plan/again.h"
#include "plan/offload.h"
#include "plan/program_verify.h"
#include "plan/shares.h"
#include "plan/tensors.h"
#include "plan/timeline.h"

static double step_s(const struct dlb_problem *p, struct dlb_plan *plan, struct dlb_program *g)
{
	struct dlb_timeline t;
	struct dlb_error err = { .what = "" };
	double s;
	dlb_fit_order(p, plan, 0);
	if (dlb_plan_check(plan, p->cost, &err) || dlb_fit_compile(p, plan, false, g, &err) ||
	    dlb_program_verify(g, p->cost, &err) ||
	    dlb_program_simulate(g, p->cost, &(struct dlb_simulate_choice){ .keep_spans = false }, &t, &err))
		die("program", p->seed, &err);
	s = t.step_s;
	dlb_timeline_release(&t, plan->n_nodes);
	return s;
}

/* FETCH, update, STORE and FREE of each weight in this order. Returns the bytes of all states. */
static double check_lives(const struct dlb_program *g)
{
	double bytes = 0;
	for (int d = 0; d < g->n_nodes; d++) {
		const struct dlb_node_program *np = &g->node[d];
		char *stage = calloc((size_t)g->graph->n_tensors, 1);
		int near = 0;
		for (int i = 0; i < np->n_instr; i++) {
			const struct dlb_instr *in = &np->instr[i];
			const int t = in->verb == DLB_COMPUTE && in->what == DLB_RUN_UPDATE ?
					      dlb_update_weight(g->graph, in->op) :
				      in->verb == DLB_FETCH || in->verb == DLB_STORE ||
						      (in->verb == DLB_FREE && in->again) ?
					      in->tensor :
					      -1;
			if (t < 0)
				continue;
			const int want = in->verb == DLB_FETCH   ? 0 :
					 in->verb == DLB_COMPUTE ? 1 :
					 in->verb == DLB_STORE   ? 2 :
								   3;
			assert(IS(stage[t], ==, want));
			stage[t]++;
			near += in->verb == DLB_FETCH ? 1 : in->verb == DLB_FREE ? -1 : 0;
			assert(IS(near, <=, 3));
			if (in->verb == DLB_FETCH) {
				const int k = dlb_program_find_place(np, t, dlb_second_life(g, 0));
				assert(IS(k, >=, 0) &&
				       IS(np->place[k].bytes, ==, dlb_program_near_bytes(g, t)));
				bytes += dlb_program_far_bytes(g, t);
			}
		}
		for (int t = 0; t < g->graph->n_tensors; t++)
			assert(IS(stage[t] % 4, ==, 0));
		free(stage);
	}
	return bytes;
}

/* Takes a FETCH, STORE or FREE of states away, or exchanges it with its update: refused. */
static int spoil(const struct dlb_problem *p, struct dlb_program *g)
{
	struct dlb_error err;
	int spoilt = 0;
	for (int d = 0; d < g->n_nodes; d++) {
		struct dlb_node_program *np = &g->node[d];
		for (int i = 0; i < np->n_instr; i++) {
			const struct dlb_instr x = np->instr[i];
			int update = -1;
			if (x.verb != DLB_FETCH && x.verb != DLB_STORE && !(x.verb == DLB_FREE && x.again))
				continue;
			memmove(np->instr + i, np->instr + i + 1, (size_t)(np->n_instr - i - 1) * sizeof x);
			np->n_instr--;
			assert(dlb_program_verify(g, p->cost, &err));
			np->n_instr++;
			memmove(np->instr + i + 1, np->instr + i, (size_t)(np->n_instr - i - 1) * sizeof x);
			np->instr[i] = x;
			for (int k = 0; k < np->n_instr; k++)
				if (np->instr[k].verb == DLB_COMPUTE && np->instr[k].what == DLB_RUN_UPDATE &&
				    dlb_update_weight(g->graph, np->instr[k].op) == x.tensor)
					update = k;
			assert(IS(update, >=, 0));
			np->instr[i] = np->instr[update];
			np->instr[update] = x;
			assert(dlb_program_verify(g, p->cost, &err));
			np->instr[update] = np->instr[i];
			np->instr[i] = x;
			assert(IS(dlb_program_verify(g, p->cost, &err), ==, 0));
			spoilt++;
		}
	}
	return spoilt;
}

static int test_programs(uint64_t seed)
{
	static const char *const clusters[] = { "cpu:1", "cpu:2", "cpu:2 cpu:1*0.5" };
	static const char *const schedules[] = { "1f1b", "gpipe", "interleaved", "zero-bubble", "none" };
	static const struct dlb_offload_rule rule = { "*", "disk" };
	struct dlb_rng r;
	struct dag d;
	struct dlb_problem p;
	struct dlb_plan plan;
	struct dlb_program g;
	dlb_rng_init(&r, seed);
	random_training(&d, seed, clusters[seed % 3], &r);
	const int disk = dlb_cluster_add_memory(&d.cl, 0, "disk", DLB_MEMORY_FILE, 1e12);
	problem(&p, &d, 1 + (int)dlb_rng_below(&r, 6), schedules[seed % 5], NULL, seed);
	p.n_state = 2;
	random_plan(&p, &plan, &r);
	plan.updates_first = seed % 2;
	const double near_s = step_s(&p, &plan, &g);
	size_t near_bytes = 0, far_bytes = 0;
	for (int n = 0; n < g.n_nodes; n++)
		near_bytes += g.node[n].state_bytes;
	dlb_program_release(&g);
	plan.offload = (struct dlb_offload){ .rule = &rule, .n = 1 };
	const double free_s = step_s(&p, &plan, &g), bytes = check_lives(&g);
	for (int n = 0; n < g.n_nodes; n++)
		far_bytes += g.node[n].state_bytes;
	assert(IS(near_bytes - far_bytes, ==, (size_t)bytes));
	double stated = 0; /* of weights of which only the bytes are known */
	for (int t = 0; t < d.g.n_tensors; t++)
		if (dlb_offload_name(&d.g, t))
			stated += p.n_state * d.g.tensor[t].size_add;
	assert(IS(bytes, ==, stated));
	assert(IS(fabs(free_s - near_s), <=, 1e-9 * near_s));
	dlb_program_release(&g);
	/* the copies are the longest part of the step; a memory that is too small is refused */
	d.cl.memory[disk].bandwidth_Bps = bytes / near_s;
	d.cl.memory[disk].latency_s = 1e-9;
	const double slow_s = step_s(&p, &plan, &g);
	assert(bytes <= 0 || (IS(slow_s, >=, 2 * near_s) && IS(slow_s, <=, 3 * near_s + 1e-6)));
	d.cl.memory[disk].bytes = bytes * 0.99;
	struct dlb_error err = { .what = "" };
	assert(bytes <= 0 || (dlb_program_verify(&g, p.cost, &err) && IS(err.status, ==, 1)));
	d.cl.memory[disk].bytes = bytes;
	const int spoilt = spoil(&p, &g);
	dlb_program_release(&g);
	case_release(&d, &p, &plan);
	return spoilt;
}

int main(void)
{
	int spoilt = 0;
	for (uint64_t seed = 1; seed <= 60; seed++)
		spoilt += test_programs(seed);
	assert(IS(spoilt, >, 300));
	printf("test_offload: programs of 60 plans, %d spoilt\n", spoilt);
	return 0;
}
