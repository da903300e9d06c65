/* Offloaded optimizer states, weights and activations. Programs of random graphs and placements: verified;
 * every update of a node has its states near, at most three weights' states at once; every activation is
 * stored, then fetched; the simulated step is that without offload where copies cost nothing, and no shorter
 * than its copies take. Spoilt programs are refused. */
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

/* FETCH, FETCHED, update, STORE, STORED and FREE of each weight in this order. Returns the bytes of all
 * states. */
static double check_lives(const struct dlb_program *g)
{
	double bytes = 0;
	for (int d = 0; d < g->n_nodes; d++) {
		const struct dlb_node_program *np = &g->node[d];
		char *stage = calloc((size_t)g->graph->n_tensors, 1);
		int near = 0;
		for (int i = 0; i < np->n_instr; i++) {
			static const int order[DLB_N_VERBS] = { [DLB_FETCH] = 1,
								[DLB_FETCHED] = 2,
								[DLB_STORE] = 4,
								[DLB_STORED] = 5,
								[DLB_FREE] = 6 };
			const struct dlb_instr *in = &np->instr[i];
			const bool updates = in->verb == DLB_COMPUTE && in->what == DLB_RUN_UPDATE;
			const int t = updates                      ? dlb_update_weight(g->graph, in->op) :
				      order[in->verb] && in->again ? in->tensor :
								     -1;
			if (t < 0)
				continue;
			assert(IS(++stage[t], ==, updates ? 3 : order[in->verb]));
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
			assert(IS(stage[t] % 6, ==, 0));
		free(stage);
	}
	return bytes;
}

static bool copies(const struct dlb_program *g, const struct dlb_instr *in)
{
	return in->verb == DLB_FETCH || in->verb == DLB_FETCHED || in->verb == DLB_STORE ||
	       in->verb == DLB_STORED ||
	       (in->verb == DLB_FREE &&
		(in->again || (in->tensor >= 0 && dlb_program_weight_is_far(g, in->tensor))));
}

/* The instruction that uses what `in` copies: the update of its weight, or the first op that reads the
 * activation's second life. */
static int user_of(const struct dlb_program *g, const struct dlb_node_program *np, const struct dlb_instr *in)
{
	for (int k = 0; k < np->n_instr; k++) {
		const struct dlb_instr *x = &np->instr[k];
		const struct dlb_op *o = x->verb == DLB_COMPUTE && x->tensor < 0 ? &g->graph->op[x->op] :
										   NULL;
		if (o && x->what == DLB_RUN_UPDATE && dlb_update_weight(g->graph, x->op) == in->tensor)
			return k;
		for (int i = 0; o && x->micro_batch == in->micro_batch && i < o->n_in; i++)
			if (o->in[i] == in->tensor &&
			    dlb_plan_reads_again(g->plan, g->graph, x->op, x->again, in->tensor))
				return k;
	}
	return -1;
}

/* Takes a FETCH, STORE, an end of one, or a FREE of a second life away, or exchanges it with what uses it:
 * refused. */
static int spoil(const struct dlb_problem *p, struct dlb_program *g)
{
	struct dlb_error err;
	int spoilt = 0;
	for (int d = 0; d < g->n_nodes; d++) {
		struct dlb_node_program *np = &g->node[d];
		for (int i = 0; i < np->n_instr; i++) {
			const struct dlb_instr x = np->instr[i];
			if (!copies(g, &x))
				continue;
			memmove(np->instr + i, np->instr + i + 1, (size_t)(np->n_instr - i - 1) * sizeof x);
			np->n_instr--;
			assert(dlb_program_verify(g, p->cost, &err));
			np->n_instr++;
			memmove(np->instr + i + 1, np->instr + i, (size_t)(np->n_instr - i - 1) * sizeof x);
			np->instr[i] = x;
			const int user = user_of(g, np, &x);
			assert(IS(user, >=, 0));
			np->instr[i] = np->instr[user];
			np->instr[user] = x;
			assert(dlb_program_verify(g, p->cost, &err));
			np->instr[user] = np->instr[i];
			np->instr[i] = x;
			assert(IS(dlb_program_verify(g, p->cost, &err), ==, 0));
			spoilt++;
		}
	}
	return spoilt;
}

/* STORE of the first life, FETCH of the second: each activation that is kept far has them once for each
 * micro-batch, in this order, with their ends. Returns the bytes of all. */
static double check_activations(const struct dlb_program *g)
{
	static const int order[DLB_N_VERBS] = {
		[DLB_STORE] = 1, [DLB_STORED] = 2, [DLB_FETCH] = 3, [DLB_FETCHED] = 4
	};
	double bytes = 0;
	for (int d = 0; d < g->n_nodes; d++) {
		const struct dlb_node_program *np = &g->node[d];
		const int M = g->micro_batches;
		char *stage = calloc((size_t)(g->graph->n_tensors * M), 1);
		for (int i = 0; i < np->n_instr; i++) {
			const struct dlb_instr *in = &np->instr[i];
			if (!order[in->verb])
				continue;
			assert(IS(in->again, ==, order[in->verb] > 2));
			assert(IS(++stage[in->tensor * M + in->micro_batch], ==, order[in->verb]));
			bytes += in->verb == DLB_STORE ?
					 (double)dlb_tensor_bytes(&g->graph->tensor[in->tensor],
								  g->size[in->micro_batch]) :
					 0;
		}
		for (int k = 0; k < g->graph->n_tensors * M; k++) {
			const int t = k / M, from = g->graph->tensor[t].producer;
			const bool here = from >= 0 && g->plan->placement[from] == d &&
					  dlb_plan_keeps_far(g->plan, g->graph, t);
			assert(IS(stage[k], ==, here ? 4 : 0));
		}
		free(stage);
	}
	return bytes;
}

/* FETCH and FETCHED of each weight that is far before its readers, STORE and STORED after its update. Returns
 * their bytes. */
static double check_weights(const struct dlb_program *g)
{
	double bytes = 0;
	for (int t = 0; t < g->graph->n_tensors; t++) {
		const int home = dlb_program_weight_is_far(g, t) ? g->graph->tensor[t].home : -1;
		const int node = home < 0 ? 0 : g->plan->placement[home];
		int n[DLB_N_VERBS] = { 0 };
		for (int i = 0; i < g->node[node].n_instr && home >= 0; i++) {
			const struct dlb_instr *in = &g->node[node].instr[i];
			n[in->verb] += in->tensor == t && in->verb != DLB_COMPUTE;
			assert(in->op != home || in->verb != DLB_COMPUTE || in->what != DLB_RUN_UPDATE ||
			       !n[DLB_STORE]);
		}
		assert(IS(n[DLB_FETCH], ==, n[DLB_FETCHED]) && IS(n[DLB_FREE], ==, n[DLB_FETCH]));
		assert(IS(n[DLB_STORE], ==, home >= 0) && IS(n[DLB_STORED], ==, home >= 0));
		assert(home < 0 || IS(n[DLB_FETCH], >, 0));
		bytes += home < 0 ? 0 : dlb_tensor_bytes(&g->graph->tensor[t], 1);
	}
	return bytes;
}

/* check: returns the bytes that are far. The copies are made at `share` of all bytes in a step, which then
 * takes `least` to `most` of its time before. */
static const struct kind {
	double (*check)(const struct dlb_program *g);
	double share, least, most;
} kinds[DLB_N_OFFLOAD_KINDS] = { [DLB_OFFLOAD_STATES] = { check_lives, 1, 2, 3 },
				 [DLB_OFFLOAD_WEIGHTS] = { check_weights, 3, 1, INFINITY },
				 [DLB_OFFLOAD_ACTIVATIONS] = { check_activations, 1, 1.5, 4 } };

static size_t state_bytes(const struct dlb_program *g)
{
	size_t sum = 0;
	for (int n = 0; n < g->n_nodes; n++)
		sum += g->node[n].state_bytes;
	return sum;
}

/* The step is that without offload where copies cost nothing, no shorter than copies that cost; the memory
 * counts what is far; spoilt programs are refused. */
static int test_programs(enum dlb_offload_kind kind, uint64_t seed, double *far_bytes)
{
	static const char *const clusters[] = { "cpu:1", "cpu:2", "cpu:2 cpu:1*0.5" };
	static const char *const schedules[] = { "1f1b", "gpipe", "interleaved", "zero-bubble", "none" };
	const struct dlb_offload_rule rule = { "*", "disk", kind };
	struct dlb_rng r;
	struct dag d;
	struct dlb_problem p;
	struct dlb_plan plan;
	struct dlb_program g;
	struct dlb_error err = { .what = "" };
	double stored = 0, stated = 0;
	dlb_rng_init(&r, seed);
	random_training(&d, seed, clusters[seed % 3], &r);
	for (int t = 0; t < d.g.n_tensors && kind == DLB_OFFLOAD_WEIGHTS; t += 2)
		if (dlb_offload_name(&d.g, DLB_OFFLOAD_STATES, t)) /* smaller ones stay */
			d.g.tensor[t].size_add += 4096;
	const int memory = dlb_cluster_add_memory(&d.cl, 0, "disk", DLB_MEMORY_FILE, 1e12);
	struct dlb_memory *disk = &d.cl.memory[memory];
	problem(&p, &d, 1 + (int)dlb_rng_below(&r, 6), schedules[seed % 5], NULL, seed);
	p.n_state = 2;
	random_plan(&p, &plan, &r);
	plan.updates_first = seed % 2;
	plan.in_place = seed % 2;
	const double near_s = step_s(&p, &plan, &g);
	const size_t near_bytes = state_bytes(&g);
	dlb_program_release(&g);
	plan.offload = (struct dlb_offload){ .rule = &rule, .n = 1 };
	dlb_offload_mark(&plan, &d.g);
	const double free_s = step_s(&p, &plan, &g), bytes = kinds[kind].check(&g);
	for (int n = 0; n < g.n_nodes; n++)
		stored += dlb_program_offloaded_bytes(&g, n, &d.cl, NULL);
	assert(IS(stored, ==, bytes));
	assert(IS(near_bytes - state_bytes(&g), ==, kind == DLB_OFFLOAD_ACTIVATIONS ? 0 : (size_t)bytes));
	/* what is stored is not overwritten, so messages may be read in place that were copied */
	assert(IS(fabs(free_s - near_s), <=,
		  (kind == DLB_OFFLOAD_ACTIVATIONS && plan.in_place ? 0.02 : 1e-9) * near_s));
	for (int t = 0; t < d.g.n_tensors; t++) /* of weights of which only the bytes are known */
		if (dlb_offload_name(&d.g, DLB_OFFLOAD_STATES, t))
			stated += p.n_state * d.g.tensor[t].size_add;
	assert(kind != DLB_OFFLOAD_STATES || IS(bytes, ==, stated));
	dlb_program_release(&g);
	disk->bandwidth_Bps = kinds[kind].share * bytes / near_s;
	disk->latency_s = 1e-9;
	const double slow_s = step_s(&p, &plan, &g);
	assert(bytes <= 0 || (IS(slow_s, >=, kinds[kind].least * near_s) &&
			      IS(slow_s, <=, kinds[kind].most * near_s + 1e-6)));
	disk->bytes = bytes * 0.99;
	assert(bytes <= 0 || (dlb_program_verify(&g, p.cost, &err) && IS(err.status, ==, 1)));
	disk->bytes = bytes;
	const int spoilt = spoil(&p, &g);
	dlb_program_release(&g);
	case_release(&d, &p, &plan);
	*far_bytes += bytes;
	return spoilt;
}

int main(void)
{
	static const char *const name[DLB_N_OFFLOAD_KINDS] = { "states", "weights", "activations" };
	for (int kind = 0; kind < DLB_N_OFFLOAD_KINDS; kind++) {
		double bytes = 0;
		int spoilt = 0;
		for (uint64_t seed = 1; seed <= 60; seed++)
			spoilt += test_programs((enum dlb_offload_kind)kind, seed, &bytes);
		assert(IS(spoilt, >, 300) && IS(bytes, >, 0));
		printf("test_offload: %s of 60 plans, %g bytes, %d spoilt\n", name[kind], bytes, spoilt);
	}
	return 0;
}
