/* Estimates of the effect of a move (place/estimate.h), on random training graphs:
 *   the longest path is that of a plain recursion, and loads are sums over the ops of a node;
 *   a walked move gives the same as an estimate of the new placement;
 *   the estimate of a move of one op from its neighbours is never longer than walked, and equal if the step gets longer;
 *   in a chain, where no other op runs beside the moved ones, estimates of moves of neighbours are exact. */
#include "check.h"
#include "random_dag.h"
#include "place/estimate.h"
#include "place/problem.h"
#include "plan/replica.h"
#include "plan/schedule.h"
#include "plan/tensors.h"

static long n_moves, n_longer;

static void set_up(struct dlb_problem *p, struct dag *d, struct dlb_rng *r, uint64_t seed, bool chain,
		   double colocate, const char *schedule)
{
	struct dag_options o = { .seed = seed,
				 .n_forward = 2 + (int)dlb_rng_below(r, 20),
				 .training = seed % 4 != 0,
				 .chain = chain,
				 .colocate = colocate,
				 .cluster = seed % 2 ? "cpu:1 host cpu/2:2*0.25 cpu:1" :
						       "cpu:1 cpu/4:1 cpu:1*0.5",
				 .batch = 24 };
	struct dlb_error err;
	dag_init(d, &o);
	*p = (struct dlb_problem){ .graph = &d->g,
				   .cluster = &d->cl,
				   .cost = &d->c,
				   .micro_batches = 1 + (int)(seed % 5),
				   .batch = 24,
				   .schedule = dlb_schedule_find(schedule),
				   .seed = seed,
				   .n_state = 1 };
	if (dlb_problem_init(p, &err))
		abort();
}

static int random_node(const struct dlb_problem *p, struct dlb_rng *r, int group)
{
	int d;
	do
		d = (int)dlb_rng_below(r, (uint64_t)p->cluster->n_nodes);
	while (isinf(dlb_time_s(p, group, d)));
	return d;
}

static double longest_from(const struct dlb_problem *p, const int *at, int op)
{
	const struct dlb_graph *g = p->graph;
	int here = at[p->group_of[op]];
	double n = (double)dlb_micro_batch_size(p->batch, p->micro_batches, 0), most = 0;
	for (int i = 0; i < g->n_ops; i++) {
		double bytes = 0;
		bool reads = false;
		for (int k = 0; k < g->op[i].n_in; k++) {
			const struct dlb_tensor *t = g->op[i].in[k] < 0 ? NULL : &g->tensor[g->op[i].in[k]];
			if (!t || dlb_tensor_is_state(t) || t->producer != op)
				continue;
			reads = true;
			bytes += dlb_tensor_bytes(t, (int64_t)n);
		}
		int there = at[p->group_of[i]];
		double c = here == there ? 0 : dlb_cost_xfer_s(p->cost, bytes, here, there);
		if (reads)
			most = fmax(most, c + longest_from(p, at, i));
	}
	return most +
	       (dlb_graph_is_view(g, op) ? 0 : dlb_cost_op_s(p->cost, op, here, n) * p->ranked_scale[here]);
}

static void same(double a, double b, double scale)
{
	assert(IS(fabs(a - b), <=, 1e-9 * scale));
}

static void test_whole(uint64_t seed)
{
	struct dlb_rng r;
	struct dag d;
	struct dlb_problem p;
	struct dlb_estimate e;
	dlb_rng_init(&r, seed);
	set_up(&p, &d, &r, seed, seed % 3 == 0, 0.5, "1f1b");
	int *at = calloc((size_t)p.n_groups, sizeof *at);
	double *load = calloc((size_t)d.cl.n_nodes, sizeof *load), path = 0, M = p.micro_batches, most = 0;
	for (int g = 0; g < p.n_groups; g++) {
		/* the recursion is exponential in graphs with many paths */
		at[g] = p.n_groups > 14 ? 0 : random_node(&p, &r, g);
		load[at[g]] += dlb_time_s(&p, g, at[g]);
	}
	assert(dlb_estimate_init(&e, &p, at));
	for (int i = 0; i < d.g.n_ops && p.n_groups <= 14; i++)
		path = fmax(path, longest_from(&p, at, i));
	for (int k = 0; k < d.cl.n_nodes; k++) {
		assert(IS(e.load[k], >=, load[k] * (1 - 1e-9)));		/* plus the copies it makes */
		most = fmax(most, e.load[k]);
	}
	if (p.n_groups <= 14)
		same(e.path_s, path, path);
	same(e.value_s, fmax(most, e.path_s + (M - 1) / M * most), e.value_s);
	dlb_estimate_release(&e);
	dlb_problem_release(&p);
	dag_release(&d);
	free(at);
	free(load);
}

static void test_moves(uint64_t seed, bool chain, const char *schedule)
{
	struct dlb_rng r;
	struct dag d;
	struct dlb_problem p;
	struct dlb_estimate e;
	dlb_rng_init(&r, seed);
	set_up(&p, &d, &r, seed, chain, chain ? 0 : 0.5, schedule);
	int *at = calloc((size_t)p.n_groups, sizeof *at), *group = calloc((size_t)p.n_groups, sizeof *group);
	int *before = calloc((size_t)p.n_groups, sizeof *before);
	for (int g = 0; g < p.n_groups; g++)
		at[g] = random_node(&p, &r, g);
	assert(dlb_estimate_init(&e, &p, at));
	for (int turn = 0; turn < 40; turn++) {
		double was = e.value_s;
		int n = 0, most = 1 + (int)dlb_rng_below(&r, 4),
		    first = (int)dlb_rng_below(&r, (uint64_t)p.n_groups);
		for (int g = first; g < p.n_groups && n < most; g++) {
			int to = random_node(&p, &r, g);
			if (to == at[g])
				continue;
			group[n] = g;
			before[n++] = at[g];
			at[g] = to;
		}
		double told = dlb_estimate_change_s(&e, group, before, n),
		       again = dlb_estimate_change_s(&e, group, before, n);
		double walked = dlb_estimate_walk_s(&e, group, before, n);
		same(told, again, was);
		bool one_op = n == 1 && p.group_start[group[0] + 1] - p.group_start[group[0]] == 1;
		if (one_op) {
			assert(IS(told, <=, walked + 1e-9 * was));
			if (walked > 1e-9 * was)
				same(told, walked, was);
			n_longer += walked > 1e-9 * was;
		}
		if (chain && !d.g.training)
			same(told, walked, was);
		n_moves++;
		dlb_estimate_take(&e);
		same(was + walked, e.value_s, was);
	}
	dlb_estimate_release(&e);
	dlb_problem_release(&p);
	dag_release(&d);
	free(at);
	free(group);
	free(before);
}

int main(void)
{
	for (uint64_t seed = 1; seed <= 60; seed++)
		test_whole(seed);
	for (uint64_t seed = 1; seed <= 80; seed++)
		test_moves(seed, seed % 4 == 0 || seed % 5 == 0,
			   seed % 7 == 0 ? "none" :
			   seed % 6 == 0 ? "gpipe" :
					   "1f1b");
	printf("test_estimate: %ld moves on 80 graphs, %ld of one op that lengthen the step\n", n_moves,
	       n_longer);
	return 0;
}
