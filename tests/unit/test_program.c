/* Programs of random graphs under random placements: they compile, pass verification, and the simulator ends;
 * a damaged program is refused. */
#include "check.h"
#include "random_dag.h"
#include "graph/order.h"
#include "plan/program.h"
#include "plan/program_verify.h"
#include "plan/bucket_cost.h"
#include "plan/print.h"
#include "plan/replica.h"
#include "plan/schedule.h"
#include "plan/sharing.h"
#include "plan/timeline.h"
#include "plan/verify.h"

static int checked, messages, arenas, wide;
static double worst = 1, fullest;

static void random_placement(const struct dag *d, int *placement, struct dlb_rng *r)
{
	int *group = malloc((size_t)d->g.n_ops * sizeof *group);
	dlb_graph_groups(&d->g, group);
	for (int i = 0; i < d->g.n_ops; i++)
		placement[i] = group[i] < i ? placement[group[i]] :
					      (int)dlb_rng_below(r, (uint64_t)d->cl.n_nodes);
	free(group);
}

static void make(struct dag *d, struct dlb_plan *p, int M, const char *schedule, struct dlb_rng *r)
{
	dlb_plan_init(p, d->g.n_ops, d->cl.n_nodes);
	p->graph = &d->g;
	p->batch = d->g.batch;
	p->micro_batches = M;
	p->schedule = dlb_schedule_find(schedule)->name;
	p->staleness = DLB_STALE_NONE;		/* the only rule that every placement allows */
	random_placement(d, p->placement, r);
	p->draft = dlb_schedule_find(schedule)->async && dlb_rng_below(r, 8); /* packing arenas takes long */
	dlb_schedule_order(p, &d->c, dlb_schedule_find(schedule), NULL);
}

static void fail(const struct dlb_error *err, uint64_t seed)
{
	fprintf(stderr, "seed %llu: %s: %s\n", (unsigned long long)seed, err->where, err->what);
	abort();
}

/* A plan of M micro-batches for a network of those options, ops placed at random. */
static void begin(struct dag *d, struct dlb_plan *p, const struct dag_options *o, int M, const char *schedule,
		  uint64_t seed, struct dlb_rng *r)
{
	dlb_rng_init(r, seed);
	dag_init(d, o);
	make(d, p, M, schedule, r);
}

static void end(struct dag *d, struct dlb_plan *p)
{
	dlb_plan_release(p);
	dag_release(d);
}

/* Two replicas of `nodes` nodes each. */
static void twice(const struct dag *d, struct dlb_plan *p, const int *replica, int nodes)
{
	dlb_plan_set_replicas(p, 2, replica);
	dlb_sharing_init(&p->sharing);
	for (int i = 0; i < d->g.n_ops; i++)
		p->placement[i] %= nodes;
}

/* A correct program. */
static void compile(const struct dag *d, const struct dlb_plan *p, int64_t batch, struct dlb_program *g,
		    uint64_t seed)
{
	struct dlb_error err;
	if (dlb_program_compile(p, &d->c, batch, 1, g, &err) || dlb_program_verify(g, &d->c, &err))
		fail(&err, seed);
}

/* With a step's overhead on all nodes: each node with ops has it once a step, in its own speed; where all nodes are
 * equally fast and steps do not overlap, the step is longer by exactly that. plain: without overhead. */
static void with_overhead(const struct dlb_program *g, struct dlb_cost *c, const struct dlb_timeline *plain)
{
	const double overhead_s = plain->step_s / 3;
	struct dlb_timeline t;
	struct dlb_error err;
	bool equal = true;

	for (int k = 0; k < c->n_kinds; k++)
		c->step_overhead_s[k] = overhead_s;
	assert(!dlb_program_simulate(g, c, &(struct dlb_simulate_choice){ .keep_spans = false }, &t, &err));
	for (int n = 0; n < g->n_nodes; n++) {
		const double speed = c->cluster->node[n].speed,
			     own_s = plain->node[n].busy_s > 0 ? overhead_s / speed : 0;

		equal &= speed == 1;
		assert(IS(fabs(t.node[n].overhead_s - own_s), <=, 1e-9 * t.step_s));
		assert(IS(fabs(t.node[n].busy_s - plain->node[n].busy_s), <=, 1e-9 * t.step_s));
		assert(IS(t.node[n].busy_s + t.node[n].copy_s + t.node[n].overhead_s, <=,
			  t.step_s * (1 + 1e-9)));
	}
	if (equal && !g->depth)
		assert(IS(fabs(t.step_s - plain->step_s - overhead_s), <=, 1e-9 * t.step_s));
	dlb_timeline_release(&t, g->n_nodes);
	for (int k = 0; k < c->n_kinds; k++)
		c->step_overhead_s[k] = NAN;
}

static void test_random(uint64_t seed)
{
	static const char *const clusters[] = { "cpu:1", "cpu:2", "cpu:2 cpu:1*0.5",
						"cpu:2 host cpu:2*0.25 cpu:1" };
	static const char *const schedules[] = { "1f1b",        "gpipe", "interleaved",
						 "zero-bubble", "none",  "async" };
	struct dlb_rng r;
	dlb_rng_init(&r, seed);
	struct dag_options o = { .seed = seed,
				 .n_forward = 2 + (int)dlb_rng_below(&r, 30),
				 .training = seed % 4 != 0,
				 .colocate = dlb_rng_uniform(&r),
				 .cluster = clusters[seed % 4],
				 .batch = 1 + (int64_t)dlb_rng_below(&r, 40) };
	struct dag d;
	struct dlb_error err;
	struct dlb_plan p;
	struct dlb_program g;
	dag_init(&d, &o);
	int M = 1 + (int)dlb_rng_below(&r, 9);
	if (M > o.batch)
		M = (int)o.batch;
	make(&d, &p, M, schedules[seed / 4 % DLB_LEN(schedules)], &r);
	if (dlb_plan_check(&p, &d.c, &err))
		fail(&err, seed);
	p.clip = seed % 3 == 0;
	/* a full batch, and the last of the epoch */
	int64_t sizes[] = { o.batch, 1 + (int64_t)dlb_rng_below(&r, (uint64_t)o.batch) };
	for (int i = 0; i < 4; i++) {
		struct dlb_timeline t, u;
		if (i == 3)
			p.clip = !p.clip;
		if (dlb_program_compile(&p, i < 2 ? &d.c : NULL, sizes[i % 2], 1, &g, &err) ||
		    dlb_program_verify(&g, &d.c, &err))
			fail(&err, seed);
		double work = 0;
		if (dlb_program_simulate(&g, &d.c, &(struct dlb_simulate_choice){ .keep_spans = true }, &t,
					 &err))
			fail(&err, seed);
		for (int n = 0; n < d.cl.n_nodes; n++) {
			assert(IS(t.node[n].busy_s, <=, t.step_s * (1 + 1e-9)));
			double waits = t.node[n].waits_s[0] + t.node[n].waits_s[1] + t.node[n].waits_s[2];
			assert(IS(fabs(waits - t.node[n].wait_s), <=, 1e-9 * t.step_s));
			work += t.node[n].busy_s;
			for (int k = 1; k < t.n_spans[n]; k++)
				assert(IS(t.span[n][k].start_s, >=, t.span[n][k - 1].end_s - 1e-15));
			const struct dlb_node_program *np = &g.node[n];
			assert(IS(np->arena_bytes, >=, np->bound_bytes));
			arenas++;
			if (np->bound_bytes && (double)np->arena_bytes > 1.05 * (double)np->bound_bytes) {
				wide++;
				worst = fmax(worst, (double)np->arena_bytes / (double)np->bound_bytes);
			}
		}
		assert(work >= t.step_s * (1 - 1e-9) || d.cl.n_nodes > 1);
		/* twice the times: between once and twice the step */
		double slow[8] = { 2, 2, 2, 2, 2, 2, 2, 2 };
		if (dlb_program_simulate(&g, &d.c, &(struct dlb_simulate_choice){ .node_scale = slow }, &u,
					 &err))
			fail(&err, seed);
		assert(IS(u.step_s, >, t.step_s) && IS(u.step_s, <=, 2 * t.step_s * (1 + 1e-9)));
		dlb_timeline_release(&u, d.cl.n_nodes);
		with_overhead(&g, &d.c, &t);
		dlb_timeline_release(&t, d.cl.n_nodes);
		messages += g.n_messages;
		checked++;
		dlb_program_release(&g);
	}
	end(&d, &p);
}

static void exchange(struct dlb_node_program *np, struct dlb_rng *r)
{
	int a = (int)dlb_rng_below(r, (uint64_t)np->n_instr),
	    b = (int)dlb_rng_below(r, (uint64_t)np->n_instr);
	struct dlb_instr x = np->instr[a];
	np->instr[a] = np->instr[b];
	np->instr[b] = x;
}

/* A program that passes verification must end. */
static bool is_refused(const struct dlb_program *g, const struct dag *d)
{
	struct dlb_timeline t;
	struct dlb_error err;
	if (dlb_program_verify(g, &d->c, &err))
		return true;
	int rc = dlb_program_simulate(g, &d->c, &(struct dlb_simulate_choice){ .keep_spans = false }, &t,
				      &err);
	assert(IS(rc, ==, 0));
	dlb_timeline_release(&t, g->n_nodes);
	return false;
}

/* Exchanges or removes instructions at random: verify must refuse the program, or it must still run to its
 * end. */
static void test_spoilt(uint64_t seed)
{
	struct dag_options o = {
		.seed = seed, .n_forward = 8, .training = true, .cluster = "cpu:3", .batch = 8
	};
	struct dlb_rng r;
	struct dag d;
	struct dlb_plan p;
	struct dlb_program g;
	struct dlb_error err;
	begin(&d, &p, &o, 4, seed % 3 ? "1f1b" : "async", seed + 1000, &r);
	p.clip = seed % 2 && seed % 3;
	int refused = 0;
	for (int k = 0; k < 30; k++) {
		if (dlb_program_compile(&p, &d.c, 8, 1, &g, &err))
			fail(&err, seed);
		struct dlb_node_program *np = &g.node[dlb_rng_below(&r, 3)];
		if (np->n_instr < 2) {
			dlb_program_release(&g);
			continue;
		}
		if (k % 3) {
			exchange(np, &r);
		} else {
			int a = (int)dlb_rng_below(&r, (uint64_t)np->n_instr);
			memmove(np->instr + a, np->instr + a + 1,
				(size_t)(np->n_instr - a - 1) * sizeof *np->instr);
			np->n_instr--;
		}
		refused += is_refused(&g, &d);
		dlb_program_release(&g);
	}
	assert(IS(refused, >, 10));
	end(&d, &p);
}

/* Zero-copy messages. Refused: only one side is zero-copy, a return before the receiver's last reader, a
 * return to another node. Returns the number of zero-copy messages. */
static int test_zero_copy(uint64_t seed)
{
	struct dag_options o = {
		.seed = seed, .n_forward = 12, .training = true, .cluster = "cpu:3", .batch = 8
	};
	struct dlb_rng r;
	struct dag d;
	struct dlb_plan p;
	struct dlb_program g;
	struct dlb_error err;
	int n_zero_copy = 0;
	begin(&d, &p, &o, 2, seed % 3 ? "1f1b" : "async", seed + 7000, &r);
	for (int spoil = 0; spoil < 5; spoil++) {
		compile(&d, &p, 8, &g, seed);
		for (int node = 0; node < 3; node++) {
			struct dlb_node_program *np = &g.node[node];
			for (int i = 0; i < np->n_instr; i++) {
				struct dlb_instr *in = &np->instr[i];
				if (!in->zero_copy || in->verb != (spoil == 1 ? DLB_SEND :
								   spoil == 2 ? DLB_POST :
										DLB_FREE))
					continue;
				const int k = dlb_program_find_place(np, in->tensor, in->micro_batch);
				n_zero_copy += spoil == 0;
				assert(IS(d.g.tensor[in->tensor].producer, >=, 0) &&
				       IS(in->micro_batch, >=, 0) && IS(np->place[k].of, <, 0));
				if (spoil == 0)
					continue;
				if (spoil == 4) {
					in->peer = (in->peer + 1) % 3;
					assert(dlb_program_verify(&g, &d.c, &err));
					in->peer = (in->peer + 2) % 3;
				} else if (spoil == 3 && i > 0) {
					struct dlb_instr x = np->instr[i - 1];
					bool reads = false;
					for (int j = 0; x.verb == DLB_COMPUTE && x.what == DLB_RUN_OP &&
							j < d.g.op[x.op].n_in;
					     j++)
						reads |= d.g.op[x.op].in[j] == in->tensor &&
							 x.micro_batch == in->micro_batch;
					if (!reads)
						continue;
					np->instr[i - 1] = *in;
					np->instr[i] = x;
					assert(dlb_program_verify(&g, &d.c, &err));
					*in = np->instr[i - 1];
					np->instr[i - 1] = x;
				} else if (spoil < 3) {
					in->zero_copy = false;
					assert(dlb_program_verify(&g, &d.c, &err));
					in->zero_copy = true;
				}
			}
		}
		dlb_program_release(&g);
	}
	p.in_place = false;
	if (dlb_program_compile(&p, &d.c, 8, 1, &g, &err))
		fail(&err, seed);
	for (int node = 0; node < 3; node++)
		for (int i = 0; i < g.node[node].n_instr; i++)
			assert(!g.node[node].instr[i].zero_copy);
	dlb_program_release(&g);
	end(&d, &p);
	return n_zero_copy;
}

/* Several replicas of three nodes under an asynchronous schedule, clipped or not: verification passes and the
 * simulator ends; a damaged program is refused, or still runs to its end. */
static void test_replicas(uint64_t seed)
{
	static const int replica[] = { 0, 1, 2, -1, -1, -1, 3, 4, 5, -1, -1, -1 };
	struct dag_options o = {
		.seed = seed, .n_forward = 8, .training = true, .cluster = "cpu:3 host cpu:3*0.5", .batch = 12
	};
	struct dlb_rng r;
	struct dag d;
	struct dlb_plan p;
	struct dlb_program g;
	struct dlb_error err;
	struct dlb_timeline t;
	int refused = 0;
	begin(&d, &p, &o, 1 + (int)seed % 4, seed % 5 ? "async" : "1f1b", seed + 9000, &r);
	twice(&d, &p, replica, 3);
	p.clip = seed % 2;
	dlb_plan_order(&p, &d.c, NULL);
	if (dlb_plan_check(&p, &d.c, &err))
		fail(&err, seed);
	for (int k = 0; k < 24; k++) {
		if (dlb_program_compile(&p, &d.c, k ? 12 : 5, 1, &g, &err) ||
		    dlb_program_verify(&g, &d.c, &err) ||
		    dlb_program_simulate(&g, &d.c, &(struct dlb_simulate_choice){ .keep_spans = false }, &t,
					 &err))
			fail(&err, seed);
		for (int n = 0; n < 6; n++)
			assert(IS(t.node[n].busy_s, <=, t.step_s * (1 + 1e-9)) &&
			       IS(t.node[n].wait_s, <=, t.step_s * (1 + 1e-9)));
		dlb_timeline_release(&t, 6);
		int node = (int)dlb_rng_below(&r, 6);
		struct dlb_node_program *np = &g.other[0].node[node];
		np = node < 3 ? &g.node[node] : np;
		if (np->n_instr >= 2) {
			exchange(np, &r);
			refused += is_refused(&g, &d);
		}
		dlb_program_release(&g);
	}
	assert(IS(refused, >, 6));
	end(&d, &p);
}

/* Messages of a pipeline and sums over replicas leave each host by one port: the port never exceeds its
 * bandwidth, and no step is shorter than its transfers. */
static void test_ports(uint64_t seed)
{
	static const int replica[] = { 0, 1, -1, -1, 2, 3, -1, -1 };
	const double Bps = pow(10, 4 + (double)(seed % 4));
	char cluster[96];
	snprintf(cluster, sizeof cluster, "cpu:1 host cpu:1 host cpu:1 host cpu:1 link=rack:1e-6,%g", Bps);
	struct dag_options o = {
		.seed = seed, .n_forward = 8, .training = true, .cluster = cluster, .batch = 12
	};
	struct dlb_rng r;
	struct dag d;
	struct dlb_plan p;
	struct dlb_program g;
	struct dlb_error err;
	struct dlb_timeline t;
	begin(&d, &p, &o, 1 + (int)seed % 6,
	      seed % 3 == 0 ? "async" :
	      seed % 3 == 1 ? "1f1b" :
			      "gpipe",
	      seed + 9500, &r);
	for (int i = 0; i < d.g.n_tensors; i++)		/* sums are counted in elements */
		if (d.g.tensor[i].kind == DLB_T_WEIGHT || d.g.tensor[i].kind == DLB_T_WEIGHT_GRADIENT) {
			d.g.tensor[i].n_dims = 1;
			d.g.tensor[i].dim[0] = (struct dlb_dim){ 0,
								 1000 + (int64_t)dlb_rng_below(&r, 40000) };
		}
	twice(&d, &p, replica, 2);
	dlb_plan_order(&p, &d.c, NULL);
	compile(&d, &p, 12, &g, seed);
	if (dlb_program_simulate(&g, &d.c, &(struct dlb_simulate_choice){ .keep_spans = false }, &t, &err))
		fail(&err, seed);
	for (int n = 0; n < 4; n++) {
		double sums[DLB_N_SUM_CLASSES] = { 0 }, dense[DLB_N_SUM_CLASSES] = { 0 },
		       bytes = t.node[n].bytes_sent;
		dlb_plan_sum_bytes(&g, &d.cl, n, sums, dense);
		for (int i = 0; i < DLB_N_SUM_CLASSES; i++)
			bytes += sums[i];
		if (bytes > t.step_s * Bps * (1 + 1e-6)) {
			fprintf(stderr, "seed %llu: node %d sends %g bytes in %g s, its port can do %g\n",
				(unsigned long long)seed, n, bytes, t.step_s, t.step_s * Bps);
			abort();
		}
		fullest = fmax(fullest, bytes / (t.step_s * Bps));
	}
	dlb_timeline_release(&t, 4);
	dlb_program_release(&g);
	end(&d, &p);
}

/* A sum over replicas, and the squares for the norm, moved by an iteration: every such program is refused. */
static void test_replicas_moved(uint64_t seed)
{
	static const unsigned char whats[] = { DLB_RUN_REDUCE, DLB_RUN_REDUCED, DLB_RUN_SQUARES,
					       DLB_RUN_NORM };
	static const int replica[] = { 0, 1, -1, -1, 2, 3, -1, -1 };
	struct dag_options o = {
		.seed = seed, .n_forward = 12, .training = true, .cluster = "cpu:4", .batch = 8
	};
	struct dlb_rng r;
	struct dag d;
	struct dlb_plan p;
	struct dlb_program g;
	struct dlb_error err;
	begin(&d, &p, &o, 2, "async", seed + 9900, &r);
	twice(&d, &p, replica, 2);
	p.clip = true;
	dlb_plan_order(&p, &d.c, NULL);
	for (int k = 0; k < 2 * DLB_LEN(whats); k++) {
		compile(&d, &p, 8, &g, seed);
		struct dlb_node_program *np = &g.node[k % 2];
		bool moved = false;
		for (int i = 0; i < np->n_instr && !moved; i++) {
			moved = np->instr[i].verb == DLB_COLLECTIVE && np->instr[i].what == whats[k / 2];
			np->instr[i].iteration += moved ? np->instr[i].iteration ? -1 : 1 : 0;
		}
		/* without buckets there are no squares */
		assert(!moved || !np->n_buckets || dlb_program_verify(&g, &d.c, &err));
		dlb_program_release(&g);
	}
	end(&d, &p);
}

static int n_copied;

static void same_node(const struct dlb_node_program *a, const struct dlb_node_program *b)
{
	assert(IS(a->n_instr, ==, b->n_instr) && IS(a->n_places, ==, b->n_places) &&
	       IS(a->n_buckets, ==, b->n_buckets));
	assert(IS(a->arena_bytes, ==, b->arena_bytes) && IS(a->bound_bytes, ==, b->bound_bytes) &&
	       IS(a->state_bytes, ==, b->state_bytes) && IS(a->scratch_bytes, ==, b->scratch_bytes) &&
	       IS(a->weights_bytes, ==, b->weights_bytes));
	for (int i = 0; i < a->n_instr; i++) {
		const struct dlb_instr *x = &a->instr[i], *y = &b->instr[i];

		assert(x->verb == y->verb && x->what == y->what && x->sent == y->sent &&
		       x->zero_copy == y->zero_copy && x->again == y->again);
		assert(IS(x->op, ==, y->op) && IS(x->tensor, ==, y->tensor) &&
		       IS(x->micro_batch, ==, y->micro_batch) && IS(x->iteration, ==, y->iteration) &&
		       IS(x->peer, ==, y->peer) && IS(x->tag, ==, y->tag));
	}
	for (int i = 0; i < a->n_places; i++) {
		const struct dlb_place *x = &a->place[i], *y = &b->place[i];

		assert(IS(x->tensor, ==, y->tensor) && IS(x->micro_batch, ==, y->micro_batch) &&
		       IS(x->offset, ==, y->offset) && IS(x->bytes, ==, y->bytes) &&
		       IS(x->first, ==, y->first) && IS(x->last, ==, y->last) && IS(x->of, ==, y->of));
	}
	for (int i = 0; i < a->n_buckets; i++)
		assert(IS(a->bucket[i].n, ==, b->bucket[i].n) && a->bucket[i].how == b->bucket[i].how);
}

/* Of replicas that are alike one is compiled for a draft, and copied: the programs are those that are compiled
 * one by one. unlike: the third one is slower. */
static void test_copied(uint64_t seed, bool unlike)
{
	static const int replica[] = { 0,  1,  -1, -1, -1, -1, -1, 2,  3,  -1, -1,
				       -1, -1, -1, 4,  5,  -1, -1, -1, -1, -1 };
	const double all = 1e18, room[7] = { all, all, all, all, all, all, all };
	struct dag_options o = { .seed = seed,
				 .n_forward = 10,
				 .training = true,
				 .cluster = unlike ? "cpu:2 host cpu:2 host cpu:2*0.5 host cpu:1" :
						     "cpu:2 host cpu:2 host cpu:2 host cpu:1",
				 .batch = 15 + (int)seed % 3 };
	struct dlb_rng r;
	struct dag d;
	struct dlb_plan p;
	struct dlb_program copied, each;
	begin(&d, &p, &o, 1 + (int)seed % 4, "1f1b", seed + 7000, &r);
	dlb_plan_set_replicas(&p, 3, replica);
	dlb_sharing_init(&p.sharing);
	for (int i = 0; i < d.g.n_ops; i++)
		p.placement[i] %= 2;
	p.clip = seed % 4 == 3;
	dlb_plan_order(&p, &d.c, NULL);
	p.draft = true;
	compile(&d, &p, o.batch, &copied, seed);
	p.draft = false;
	p.arena_room = room; /* as a draft, but none is copied */
	compile(&d, &p, o.batch, &each, seed);
	assert(IS(copied.n_messages, ==, each.n_messages));
	for (int k = 0; k < 3; k++) {
		const struct dlb_program *x = dlb_program_replica(&copied, k),
					 *y = dlb_program_replica(&each, k);

		assert(IS(x->batch, ==, y->batch) && IS(x->replica, ==, k));
		for (int m = 0; m < x->micro_batches; m++)
			assert(IS(x->first[m], ==, y->first[m]) && IS(x->size[m], ==, y->size[m]));
		for (int n = 0; n < 7; n++)
			same_node(&x->node[n], &y->node[n]);
		for (int q = 0; q < k; q++) /* it borrows places */
			n_copied += x->node[2 * k].n_places &&
				    x->node[2 * k].place ==
					    dlb_program_replica(&copied, q)->node[2 * q].place;
	}
	dlb_program_release(&copied);
	dlb_program_release(&each);
	end(&d, &p);
}

/* The global norm comes after every gradient and before every update, on every node; if it is missing, too
 * early or too late, the program is refused. */
static void test_norm(uint64_t seed)
{
	struct dag_options o = {
		.seed = seed, .n_forward = 12, .training = true, .cluster = "cpu:3", .batch = 8
	};
	struct dlb_rng r;
	struct dag d;
	struct dlb_plan p;
	struct dlb_program g;
	struct dlb_error err;
	begin(&d, &p, &o, seed % 2 ? 4 : 1, "1f1b", seed + 5000, &r);
	p.clip = true;
	for (int node = 0; node < 3; node++) {
		compile(&d, &p, 8, &g, seed);
		struct dlb_node_program *np = &g.node[node];
		int at = -1, first_update = -1, last_sum = -1;
		for (int i = 0; i < np->n_instr; i++) {
			const struct dlb_instr *in = &np->instr[i];
			if (in->verb == DLB_COLLECTIVE && in->what == DLB_RUN_NORM)
				at = i;
			if (in->verb == DLB_COMPUTE && in->what == DLB_RUN_UPDATE && first_update < 0)
				first_update = i;
			if (in->verb == DLB_COMPUTE && in->what == DLB_RUN_ACCUMULATE)
				last_sum = i;
		}
		assert(IS(at, >=, 0) && IS(last_sum, <, at) && (first_update < 0 || at < first_update));
		const struct dlb_instr norm = np->instr[at];
		if (first_update >= 0) {
			np->instr[at] = np->instr[first_update];
			np->instr[first_update] = norm;
			assert(dlb_program_verify(&g, &d.c, &err));
			np->instr[first_update] = np->instr[at];
			np->instr[at] = norm;
		}
		if (last_sum >= 0) {
			np->instr[at] = np->instr[last_sum];
			np->instr[last_sum] = norm;
			assert(dlb_program_verify(&g, &d.c, &err));
			np->instr[last_sum] = np->instr[at];
			np->instr[at] = norm;
		}
		assert(!dlb_program_verify(&g, &d.c, &err));
		memmove(np->instr + at, np->instr + at + 1,
			(size_t)(np->n_instr - at - 1) * sizeof *np->instr);
		np->n_instr--;
		assert(dlb_program_verify(&g, &d.c, &err));
		dlb_program_release(&g);
	}
	end(&d, &p);
}

/* The same on a node that updates nothing: no update of its own comes too early. */
static void test_norm_alone(void)
{
	struct dag_options o = {
		.seed = 2, .n_forward = 12, .training = true, .cluster = "cpu:2", .batch = 8
	};
	struct dlb_rng r;
	struct dag d;
	struct dlb_plan p;
	struct dlb_program g;
	struct dlb_error err;
	int at = 0;

	dlb_rng_init(&r, 1);
	dag_init(&d, &o);
	make(&d, &p, 2, "1f1b", &r);
	memset(p.placement, 0, (size_t)p.n_ops * sizeof *p.placement);
	dlb_schedule_order(&p, &d.c, dlb_schedule_find("1f1b"), NULL);
	p.clip = true;
	compile(&d, &p, 8, &g, 2);
	struct dlb_node_program *np = &g.node[1];
	while (at < np->n_instr &&
	       !(np->instr[at].verb == DLB_COLLECTIVE && np->instr[at].what == DLB_RUN_NORM))
		at++;
	assert(IS(at, <, np->n_instr));
	memmove(np->instr + at, np->instr + at + 1, (size_t)(np->n_instr - at - 1) * sizeof *np->instr);
	np->n_instr--;
	assert(dlb_program_verify(&g, &d.c, &err));
	struct dlb_lifetimes *l = dlb_lifetimes_new(&d.g);
	assert(IS(dlb_verify_lifetimes(l, &g, 1, &err), ==, -1) &&
	       HAS(err.what, "node 1: the global norm is never taken"));
	dlb_lifetimes_free(l);
	dlb_program_release(&g);
	end(&d, &p);
}

/* Two nodes that each begin with an op that needs the other's last op: refused, with node and op. */
static void test_deadlock(void)
{
	struct dag_options o = { .seed = 5, .n_forward = 4, .chain = true, .cluster = "cpu:2", .batch = 4 };
	struct dag d;
	struct dlb_plan p;
	struct dlb_program g;
	struct dlb_error err = { .status = 0 };
	dag_init(&d, &o);
	dlb_plan_init(&p, 4, 2);
	p.graph = &d.g;
	p.batch = 4;
	for (int i = 0; i < 4; i++)
		p.placement[i] = i % 2;
	dlb_schedule_order(&p, &d.c, dlb_schedule_find("1f1b"), NULL);
	assert(IS(dlb_program_compile(&p, &d.c, 4, 0, &g, &err), ==, 0));
	dlb_program_release(&g);
	struct dlb_item first = p.node[0].order[0];
	p.node[0].order[0] = p.node[0].order[1];
	p.node[0].order[1] = first;
	assert(IS(dlb_program_compile(&p, &d.c, 4, 0, &g, &err), ==, -1));
	assert(HAS(err.what, "deadlock") && HAS(err.what, "node 0") && HAS(err.what, "op 2"));
	end(&d, &p);
}

/* The printed program has a line per instruction; that of an op says where its first output lies. */
static void test_print(void)
{
	struct dag_options o = {
		.seed = 4, .n_forward = 10, .training = true, .cluster = "cpu:2", .batch = 8
	};
	struct dag d;
	struct dlb_plan p;
	struct dlb_program g;
	struct dlb_rng r;
	char *text, *at, place[80], number[16];
	size_t size;
	int said = 0;

	begin(&d, &p, &o, 2, "1f1b", 4, &r);
	compile(&d, &p, 8, &g, 4);
	FILE *f = open_memstream(&text, &size);
	dlb_program_print(&g, f);
	fclose(f);
	at = text;
	for (int n = 0; n < 2; n++) {
		const struct dlb_node_program *np = &g.node[n];
		snprintf(place, sizeof place, "node %d: %d instructions, arena %zu bytes", n, np->n_instr,
			 np->arena_bytes);
		for (int i = -1; i < np->n_instr; i++) {
			char *end = strchr(at, '\n');
			assert(end);
			*end = '\0';
			if (i < 0) {
				assert(HAS(at, place));
			} else {
				const struct dlb_instr *in = &np->instr[i];
				snprintf(number, sizeof number, "%6d  ", i);
				assert(!strncmp(at, number, 8) && HAS(at, dlb_verb_names[in->verb]));
				const struct dlb_op *op = in->verb == DLB_COMPUTE && in->what == DLB_RUN_OP ?
								  &d.g.op[in->op] :
								  NULL;
				const int k = op && op->n_out ? dlb_program_find_place(np, op->out[0],
										       in->micro_batch) :
								-1;
				if (k >= 0) {
					snprintf(place, sizeof place, " at %zu, %zu bytes",
						 np->place[k].offset, np->place[k].bytes);
					assert(HAS(at, place));
					said++;
				}
			}
			at = end + 1;
		}
	}
	assert(IS(*at, ==, '\0') && IS(said, >, 10));
	free(text);
	dlb_program_release(&g);
	end(&d, &p);
}

/* A memory limit below the peak is refused with status 1; a limit at the peak fits. */
static void test_memory(void)
{
	struct dag_options o = {
		.seed = 9, .n_forward = 12, .training = true, .cluster = "cpu:2", .batch = 16
	};
	struct dag d;
	struct dlb_plan p;
	struct dlb_program g;
	struct dlb_error err = { .status = 0 };
	struct dlb_rng r;
	dlb_rng_init(&r, 1);
	dag_init(&d, &o);
	make(&d, &p, 4, "gpipe", &r);
	assert(IS(dlb_program_compile(&p, &d.c, 16, 2, &g, &err), ==, 0));
	for (int n = 0; n < 2; n++)
		d.cl.node[n].memory_bytes = (double)(g.node[n].arena_bytes + g.node[n].scratch_bytes +
						     g.node[n].state_bytes);
	assert(IS(dlb_program_verify(&g, &d.c, &err), ==, 0));
	d.cl.node[1].memory_bytes -= 1;
	assert(IS(dlb_program_verify(&g, &d.c, &err), ==, -1) && IS(err.status, ==, 1) &&
	       HAS(err.what, "node 1"));
	d.cl.node[1].memory_bytes += 1;
	d.cl.node[0].memory_bytes -= 1;
	assert(IS(dlb_program_verify(&g, &d.c, &err), ==, -1) && HAS(err.what, "node 0"));
	dlb_program_release(&g);
	end(&d, &p);
}

/* A chain on two equal nodes with free messages is a textbook pipeline: with F = B/2, M micro-batches take
 * (M + 1) (F + B), one at a time 2 M (F + B), and M (F + B) if steps follow each other without a flush. */
static void test_pipeline(void)
{
	struct dag_options o = {
		.seed = 3, .n_forward = 2, .training = true, .chain = true, .cluster = "cpu:2", .batch = 64
	};
	struct dag d;
	struct dlb_plan p;
	struct dlb_program g;
	struct dlb_timeline t;
	struct dlb_error err;
	dag_init(&d, &o);
	while (d.g.n_ops < 6) {			/* both ops with a weight, so that both have a backward */
		dag_release(&d);
		o.seed++;
		dag_init(&d, &o);
	}
	for (int i = 0; i < d.cl.n_links; i++) {
		d.cl.link[i].latency_s = 0;
		d.cl.link[i].bandwidth_Bps = 1e30;
	}
	for (int k = 0; k < d.c.n_kinds; k++)
		d.c.accumulate_Bps[k] = 1e30;
	for (int i = 0; i < d.g.n_ops; i++)
		for (int b = 0; b < d.c.n_batches; b++)
			d.c.op_s[i * d.c.n_batches + b] = d.g.op[i].phase == DLB_UPDATE ? 0 :
				(d.g.op[i].phase == DLB_BACKWARD ? 2 : 1) * (double)d.c.batch[b] / 8;
	for (int rule = 0; dlb_schedules[rule].name; rule++) {
		dlb_plan_init(&p, d.g.n_ops, 2);
		p.graph = &d.g;
		p.batch = 64;
		p.micro_batches = 8;
		p.schedule = dlb_schedules[rule].name;
		for (int i = 0; i < d.g.n_ops; i++)
			p.placement[i] = (d.g.op[i].phase == DLB_FORWARD ? i : d.g.op[i].of) == 0 ? 0 : 1;
		dlb_schedule_order(&p, &d.c, &dlb_schedules[rule], NULL);
		assert(IS(dlb_program_compile(&p, &d.c, 64, 0, &g, &err), ==, 0) &&
		       IS(dlb_program_verify(&g, &d.c, &err), ==, 0));
		assert(IS(dlb_program_simulate(&g, &d.c, &(struct dlb_simulate_choice){ .keep_spans = false },
					       &t, &err), ==, 0));
		double want = dlb_schedules[rule].async                ? 24 :
			      strcmp(dlb_schedules[rule].name, "none") ? 27 :
									 48;
		if (fabs(t.step_s - want) > 1e-6 ||
		    fabs(t.fill_s - (dlb_schedules[rule].async ? 3 : 0)) > 1e-6) {
			fprintf(stderr, "%s: a pipeline of %g s takes %g s and %g s to fill\n",
				dlb_schedules[rule].name, want, t.step_s, t.fill_s);
			abort();
		}
		dlb_timeline_release(&t, 2);
		dlb_program_release(&g);
		dlb_plan_release(&p);
	}
	dag_release(&d);
}

int main(void)
{
	for (int seed = 1; seed <= check_cases(200); seed++)
		test_random((uint64_t)seed);
	for (int seed = 1; seed <= check_cases(20); seed++)
		test_spoilt((uint64_t)seed);
	for (int seed = 1; seed <= check_cases(12); seed++)
		test_replicas((uint64_t)seed);
	for (int seed = 1; seed <= check_cases(60); seed++)
		test_ports((uint64_t)seed);
	assert(IS(fullest, >, .8));
	for (int seed = 1; seed <= check_cases(12); seed++)
		test_replicas_moved((uint64_t)seed);
	for (int seed = 1; seed <= check_cases(20); seed++)
		test_norm((uint64_t)seed);
	test_norm_alone();
	for (int seed = 1; seed <= 12; seed++)
		test_copied((uint64_t)seed, seed % 2);
	assert(IS(n_copied, >, 8));
	int n_zero_copy = 0;
	for (uint64_t seed = 1; seed <= 15; seed++)
		n_zero_copy += test_zero_copy(seed);
	assert(IS(n_zero_copy, >, 50));
	test_deadlock();
	test_print();
	test_memory();
	test_pipeline();
	printf("test_program: %d programs of random plans (seeds 1..%d, %d messages), %d spoilt ones, "
	       "ports, deadlock, memory, "
	       "pipeline; %d of %d arenas more than 5 %% above the bound, the worst %.1f %%\n",
	       checked, check_cases(200), messages, 30 * check_cases(20), wide, arenas, 100 * (worst - 1));
	return 0;
}
