/* Cuts of the forward order into parts, and upward ranks, on random training graphs against plain code:
 *   the unit of every op, the times and bytes of units, and the bytes that cross each cut;
 *   parts filled up to a time and a memory, exactly at both limits too, from either end; the least slowest part
 *   of all cuts; the estimated step of a cut;
 *   ranks as the longest paths to the end, with means over nodes. */
#include "check.h"
#include "place_cases.h"
#include "place/contiguous.h"
#include "place/eft.h"
#include "plan/replica.h"
#include "plan/tensors.h"

enum { NODES = 4, MOST_UNITS = 9 };
static int n_full, n_exact, n_whole;

static void make(struct dag *d, struct dlb_problem *p, uint64_t seed)
{
	const struct dag_options o = { .seed = seed,
				       .n_forward = 2 + (int)(seed % (MOST_UNITS - 1)),
				       .training = seed % 4 != 0,
				       .chain = seed % 3 == 0,
				       .colocate = .5,
				       .no_kernel = seed % 5 ? 0 : .3,
				       .cluster = "cpu:2 host cpu/2:1*0.5 cpu:1 link=rack:1e-5,1e8",
				       .batch = 13 };

	dag_init(d, &o);
	problem(p, d, 1 + (int)(seed % 4), "1f1b", NULL, seed);
}

/* Unit of an op: forward ops are their own, others that of their forward op; a group has that of its first. */
static int unit_of(const struct dlb_problem *p, int op)
{
	const struct dlb_graph *g = p->graph;
	const int first = p->group_op[p->group_start[p->group_of[op]]];

	if (first < op)
		return unit_of(p, first);
	if (g->op[op].phase == DLB_FORWARD)
		return op;
	return unit_of(p, g->op[op].of);
}

static void test_units(const struct dlb_problem *p, const struct dlb_units *u)
{
	const struct dlb_graph *g = p->graph;
	int number[64], n = 0;
	bool is[64] = { false };

	for (int i = 0; i < g->n_ops; i++)
		is[unit_of(p, i)] = true;
	for (int i = 0; i < g->n_ops; i++)
		number[i] = is[i] ? n++ : -1;
	assert(IS(u->n, ==, n));
	for (int i = 0; i < g->n_ops; i++)
		assert(IS(u->of_group[p->group_of[i]], ==, number[unit_of(p, i)]));
	for (int k = 0; k < n; k++) {
		double bytes = 0, s[NODES] = { 0 };

		for (int group = 0; group < p->n_groups; group++)
			if (u->of_group[group] == k) {
				bytes += dlb_group_bytes(p, group);
				for (int d = 0; d < NODES; d++)
					s[d] += dlb_time_s(p, group, d);
			}
		assert(IS(fabs(u->bytes[k] - bytes), <=, 1e-9 * bytes));
		for (int d = 0; d < NODES; d++)
			assert(isinf(s[d]) ? isinf(dlb_unit_s(u, p, k, d)) :
					     IS(fabs(dlb_unit_s(u, p, k, d) - s[d]), <=, 1e-9 * s[d]));
	}
	for (int cut = 0; cut <= n;
	     cut++) { /* forward to a reader behind the cut, backward to one before it */
		double forth = 0, back = 0;

		for (int t = 0; t < g->n_tensors; t++) {
			const int from = g->tensor[t].producer;
			bool behind = false, before = false;

			if (from < 0 || dlb_tensor_is_state(&g->tensor[t]))
				continue;
			const int at = u->of_group[p->group_of[from]];
			for (int r = g->reader_start[t]; r < g->reader_start[t + 1]; r++) {
				const int to = u->of_group[p->group_of[g->reader[r]]];

				behind |= at < cut && to >= cut;
				before |= at >= cut && to < cut;
			}
			const double bytes = dlb_tensor_bytes(&g->tensor[t],
							      dlb_micro_batch_size(p->batch, p->micro_batches,
										   0));
			forth += behind ? bytes : 0;
			back += before ? bytes : 0;
		}
		assert(IS(fabs(u->forward_bytes[cut] - forth), <, 1e-6) &&
		       IS(fabs(u->backward_bytes[cut] - back), <, 1e-6));
	}
}

/* The borders that filling gives; false: some units are left. */
static bool plain_fill(const struct dlb_units *u, const struct dlb_problem *p, const struct dlb_parts *parts,
		       double most_s, bool from_end, int *start)
{
	int done = 0;

	for (int turn = 0; turn < parts->n; turn++) {
		const int k = from_end ? parts->n - 1 - turn : turn, d = parts->node[k];
		double s = 0, bytes = 0;

		start[from_end ? k + 1 : k] = from_end ? u->n - done : done;
		while (done < u->n) {
			const int unit = from_end ? u->n - 1 - done : done;

			s += dlb_unit_s(u, p, unit, d);
			bytes += u->bytes[unit];
			n_exact += s == most_s || (bytes == p->memory_bytes[d] && !parts->any_size);
			if (!(s <= most_s) || (!parts->any_size && !(bytes <= p->memory_bytes[d])))
				break;
			done++;
		}
	}
	start[from_end ? 0 : parts->n] = from_end ? u->n - done : done;
	return done == u->n;
}

/* The least slowest part of all cuts, part by part. */
static double least_slowest(const struct dlb_units *u, const struct dlb_problem *p,
			    const struct dlb_parts *parts, int k, int from)
{
	double best = INFINITY, s = 0, bytes = 0;

	if (k == parts->n)
		return from == u->n ? 0 : INFINITY;
	for (int to = from;; to++) {
		best = fmin(best, fmax(s, least_slowest(u, p, parts, k + 1, to)));
		if (to == u->n)
			return best;
		s += dlb_unit_s(u, p, to, parts->node[k]);
		bytes += u->bytes[to];
		if (isinf(s) || (!parts->any_size && bytes > p->memory_bytes[parts->node[k]]))
			return best;
	}
}

static double plain_step(const struct dlb_units *u, const struct dlb_problem *p, int n, const int *start,
			 const int *node)
{
	double slowest = 0, all = 0, sent = 0;
	int before = -1;

	for (int k = 0; k < n; k++) {
		double s = 0;

		for (int i = start[k]; i < start[k + 1]; i++)
			s += dlb_unit_s(u, p, i, node[k]);
		if (start[k] == start[k + 1])
			continue;
		const double forth = u->forward_bytes[start[k]], back = u->backward_bytes[start[k]];
		if (before >= 0)
			sent += (forth > 0 ? dlb_cost_xfer_s(p->cost, forth, before, node[k]) : 0) +
				(back > 0 ? dlb_cost_xfer_s(p->cost, back, node[k], before) : 0);
		before = node[k];
		slowest = fmax(slowest, s);
		all += s;
	}
	return slowest + (all - slowest) / p->micro_batches + sent;
}

static void expect_cut(const struct dlb_units *u, const struct dlb_problem *p, const struct dlb_parts *parts)
{
	int start[NODES + 1], want[NODES + 1], placement[64];
	const double best = least_slowest(u, p, parts, 0, 0), s = dlb_units_balance(u, p, parts, start);

	assert(isinf(best) ? isinf(s) : IS(s, >=, best * (1 - 1e-9)) && IS(s, <=, best * (1 + 1e-5)));
	if (isinf(s))
		return;
	n_full++;
	assert(plain_fill(u, p, parts, s, false, want) &&
	       !memcmp(start, want, (size_t)(parts->n + 1) * sizeof *want));
	assert(IS(fabs(dlb_units_step_s(u, p, parts->n, start, parts->node) -
		       plain_step(u, p, parts->n, start, parts->node)),
		  <, 1e-9 * s));
	dlb_units_place(u, p, parts->n, start, parts->node, placement);
	for (int i = 0; i < p->graph->n_ops; i++) {
		const int unit = u->of_group[p->group_of[i]];
		int k = 0;

		while (unit >= start[k + 1])
			k++;
		assert(IS(placement[i], ==, parts->node[k]));
	}
}

static void test_parts(struct dlb_problem *p, struct dlb_units *u, struct dlb_rng *r)
{
	static const int orders[][NODES] = { { 0, 1, 2, 3 }, { 3, 1, 0, 2 }, { 2, 0, 3, 1 } };
	int start[NODES + 1], want[NODES + 1];

	for (int turn = 0; turn < 18; turn++) {
		const struct dlb_parts parts = { .n = 1 + turn % NODES,
						 .node = orders[turn % 3],
						 .any_size = turn % 5 == 0 };
		double bytes = 0;

		if (turn == 6) /* whole numbers, so that limits are met exactly */
			for (int i = 0; i < u->n; i++) {
				u->bytes[i] = 1 + (double)dlb_rng_below(r, 4);
				for (int k = 0; k < p->n_classes; k++)
					u->time_s[i * p->n_classes + k] = 1 + (double)dlb_rng_below(r, 4);
			}
		for (int i = 0; i < u->n; i++)
			bytes += u->bytes[i];
		for (int d = 0; d < NODES; d++)
			p->memory_bytes[d] = turn % 2 ? rint(bytes * (.2 + .5 * dlb_rng_uniform(r))) :
							INFINITY;
		expect_cut(u, p, &parts);
		for (int end = 0; end < 2; end++)
			for (int limit = 1; limit <= 12; limit++) {
				const double most_s = turn < 6 ? limit * 3e-3 : limit;
				const bool yes = plain_fill(u, p, &parts, most_s, end, want);

				assert(IS(dlb_units_fill(u, p, &parts, most_s, end, start), ==, yes) &&
				       !memcmp(start, want, (size_t)(parts.n + 1) * sizeof *want));
				n_whole += yes;
			}
	}
}

static double plain_rank(const struct dlb_problem *p, int op)
{
	const struct dlb_graph *g = p->graph;
	const double n = (double)dlb_micro_batch_size(p->batch, p->micro_batches, 0);
	const int last = p->cluster->n_nodes - 1;
	double mean = 0, most = 0;
	int able = 0;

	for (int d = 0; d <= last; d++)
		if (isfinite(dlb_cost_op_s(p->cost, op, d, n))) {
			mean += dlb_cost_op_s(p->cost, op, d, n) * p->ranked_scale[d];
			able++;
		}
	for (int i = op + 1; i < g->n_ops; i++)
		for (int k = 0; k < g->op[i].n_in; k++) {
			const int t = g->op[i].in[k];
			const double bytes = dlb_tensor_bytes(&g->tensor[t], (int64_t)n);

			if (g->tensor[t].producer == op)
				most = fmax(most,
					    plain_rank(p, i) +
						    (last ? dlb_cost_xfer_s(p->cost, bytes, 0, last) / 2 :
							    0));
		}
	return (able ? mean / able : 0) + most;
}

static void test_ranks(const struct dlb_problem *p)
{
	double rank[64];

	dlb_upward_rank_s(p, rank);
	for (int group = 0; group < p->n_groups; group++) {
		const double want = plain_rank(p, p->group_op[p->group_start[group]]);

		assert(IS(fabs(rank[group] - want), <=, 1e-9 * want));
	}
}

int main(void)
{
	for (uint64_t seed = 1; seed <= 40; seed++) {
		struct dag d;
		struct dlb_problem p;
		struct dlb_units u;
		struct dlb_rng r;

		dlb_rng_init(&r, seed);
		make(&d, &p, seed);
		dlb_units_init(&u, &p);
		test_units(&p, &u);
		test_ranks(&p);
		test_parts(&p, &u, &r);
		dlb_units_release(&u);
		dlb_problem_release(&p);
		dag_release(&d);
	}
	/* one node: no messages */
	struct dag d;
	struct dlb_problem p;
	const struct dag_options o = {
		.seed = 3, .n_forward = 6, .training = true, .cluster = "cpu:1", .batch = 8
	};

	dag_init(&d, &o);
	problem(&p, &d, 2, "1f1b", NULL, 1);
	test_ranks(&p);
	assert(IS(dlb_mean_xfer_s(&p, 1e6), ==, 0));
	dlb_problem_release(&p);
	dag_release(&d);
	assert(IS(n_full, >, 200) && IS(n_exact, >, 500) && IS(n_whole, >, 500));
	printf("%d balanced cuts, %d at a limit\n", n_full, n_exact);
	return 0;
}
