/* Properties of plans under the port model, on random networks (seeds are printed):
 *   up to 8 ops on 3 nodes, auto is optimal among all placements, for both objectives;
 *   its value is that of a plain evaluation of the same placement by the definitions;
 *   dp is the best of all chains of ideals, and auto is never worse than it;
 *   chains are joined only along the graph and within memory;
 *   bounds hold, and often prove the plan optimal; minimum cuts are those of all subsets;
 *   loads, and their power norm, stay right from move to move;
 *   memory and kernels are respected, and a network that cannot be placed gives status 1;
 *   the same seed and effort give the same placement. */
#include "port_cases.h"
#include "place/ideals.h"
#include "place/loads.h"
#include "place/min_cut.h"

static int n_joined, n_solved, n_refused, n_contiguous, n_tight, n_loads, n_chains, n_tight_chains, n_modules,
	n_tight_modules, n_moves;

/* ---- the definitions, in plain code ---- */

static int vertex_of(const struct made *m, int op) { return 100 - (int)m->g.op[op].attr[0].i; }

static double plain_throughput(const struct net *t, const struct made *m, const int *at)
{
	double load[8] = { 0 }, most = 0;
	int A = t->n.n_accelerators, node[64];
	for (int i = 0; i < m->g.n_ops; i++)
		node[vertex_of(m, i)] = at[i];
	for (int v = 0; v < t->n.n_vertices; v++) {
		bool away[8] = { false }, out = false;
		load[node[v]] += node[v] < A ? t->v[v].accelerator_s : t->v[v].host_s;
		for (int e = 0; e < t->n.n_edges; e++) {
			int to = node[t->e[e].to];
			bool same = to == node[v] || (to >= A && node[v] >= A);
			if (t->e[e].from == v && !same) {
				away[to] = true;
				out = true;
			}
		}
		for (int d = 0; d < A; d++)
			load[d] += away[d] || (out && d == node[v]) ? t->v[v].output_s : 0;
	}
	for (int d = 0; d < 8; d++)
		most = load[d] > most ? load[d] : most;
	return most;
}

/* Calls by their definition: visits counted over all paths, then calls finished in any possible order. */
static double plain_latency(const struct net *t, const struct made *m, const int *at)
{
	int n = m->g.n_ops, A = t->n.n_accelerators, call[64];
	bool edge[64][64] = { { false } };
	double finish[64];
	int at_vertex[64], order[64];
	for (int i = 0; i < n; i++) {
		order[i] = vertex_of(m, i);
		at_vertex[order[i]] = at[i];
	}
	for (int e = 0; e < t->n.n_edges; e++)
		if (t->e[e].from != t->e[e].to)
			edge[t->e[e].from][t->e[e].to] = true;
	for (int i = 0; i < n; i++)
		call[i] = 1000 + i;
	for (int d = 0; d < A; d++) {
		int visit[64] = { 0 };
		for (int i = 0; i < n; i++) {
			int v = order[i], own = at_vertex[v] == d;
			visit[v] = own;
			for (int u = 0; u < n; u++) {
				int x = edge[u][v] ? visit[u] + (own && at_vertex[u] != d) : 0;
				visit[v] = x > visit[v] ? x : visit[v];
			}
			if (own)
				call[v] = d * 100 + visit[v];
		}
	}
	for (int i = 0; i < n; i++)
		finish[i] = -1;
	double most = 0;
	for (int left = n; left;) {
		bool moved = false;
		for (int b = 0; b < n; b++) {
			if (finish[b] >= 0)
				continue;
			double start = 0, s = 0;
			bool ready = true;
			for (int u = 0; u < n; u++) {
				bool feeds = false;
				for (int v = 0; v < n; v++)
					feeds |= edge[u][v] && call[v] == call[b];
				if (!feeds || call[u] == call[b])
					continue;
				ready &= finish[u] >= 0;
				start = finish[u] > start ? finish[u] : start;
				s += call[b] < 1000 ? t->v[u].output_s : 0;
			}
			if (!ready)
				continue;
			for (int v = 0; v < n; v++) {
				bool out = false;
				if (call[v] != call[b])
					continue;
				for (int w = 0; w < n; w++)
					out |= edge[v][w] && call[w] != call[b];
				s += at_vertex[v] < A ? t->v[v].accelerator_s + (out ? t->v[v].output_s : 0) :
							t->v[v].host_s;
			}
			for (int v = 0; v < n; v++) {
				if (call[v] == call[b]) {
					finish[v] = start + s;
					left--;
				}
			}
			most = start + s > most ? start + s : most;
			moved = true;
		}
		if (!moved)
			return INFINITY;
	}
	return most;
}

static bool fits(const struct net *t, const struct made *m, const int *at)
{
	double used[8] = { 0 };
	for (int i = 0; i < m->g.n_ops; i++) {
		const struct dlb_vertex *v = &t->v[vertex_of(m, i)];
		if (at[i] < t->n.n_accelerators && isinf(v->accelerator_s))
			return false;
		used[at[i]] += v->size_bytes;
	}
	for (int d = 0; d < t->n.n_accelerators; d++)
		if (used[d] > t->n.memory_bytes)
			return false;
	return true;
}

static double plain(const struct net *t, const struct made *m, const int *at, bool latency)
{
	return !fits(t, m, at) ? INFINITY : latency ? plain_latency(t, m, at) : plain_throughput(t, m, at);
}

/* Whether devices hold differences of a chain of ideals: no device comes both before and after another. */
static bool is_contiguous(const struct net *t, const struct made *m, const int *at)
{
	bool before[8][8] = { { false } };
	int D = m->cl.n_nodes, node[64];
	for (int i = 0; i < m->g.n_ops; i++)
		node[vertex_of(m, i)] = at[i];
	for (int e = 0; e < t->n.n_edges; e++)
		before[node[t->e[e].from]][node[t->e[e].to]] |= node[t->e[e].from] != node[t->e[e].to];
	for (int k = 0; k < D; k++)
		for (int i = 0; i < D; i++)
			for (int j = 0; j < D; j++)
				before[i][j] |= before[i][k] && before[k][j];
	for (int i = 0; i < D; i++)
		if (before[i][i])
			return false;
	return true;
}

static double brute_force(const struct net *t, const struct made *m, bool latency, bool contiguous)
{
	int D = m->cl.n_nodes, at[64];
	double best = INFINITY;
	long all = 1;
	for (int g = 0; g < m->p.n_groups; g++)
		all *= D;
	for (long k = 0; k < all; k++) {
		for (int i = 0; i < m->g.n_ops; i++) {
			long x = k;
			for (int g = 0; g < m->p.group_of[i]; g++)
				x /= D;
			at[i] = (int)(x % D);
		}
		if (contiguous && !is_contiguous(t, m, at))
			continue;
		double s = plain(t, m, at, latency);
		best = s < best ? s : best;
	}
	return best;
}

static void test_small(uint64_t seed)
{
	struct dlb_rng r;
	struct net t;
	struct made m;
	bool latency = seed % 2;
	dlb_rng_init(&r, seed);
	draw(&t, &r, 2 + (int)dlb_rng_below(&r, 7), !latency && seed % 3 == 0);
	make(&m, &t, latency ? DLB_LATENCY : DLB_THROUGHPUT, seed);
	double best = brute_force(&t, &m, latency, false);
	struct dlb_plan plan;
	struct dlb_error err = { .status = 0 };
	if (dlb_place(&m.p, "auto", &plan, &err)) {
		if (isfinite(best) || err.status != 1 || strncmp(err.what, "no plan fits", 12)) {
			fprintf(stderr, "seed %llu: %s, but there is one of %.17g\n",
				(unsigned long long)seed, err.what, best);
			abort();
		}
		n_refused++;
	} else {
		double same = plain(&t, &m, plan.placement, latency);
		if (fabs(plan.value_s - same) > 1e-12 * same || plan.value_s > best * (1 + 1e-12) ||
		    plan.bound_s > best * (1 + 1e-12)) {
			fprintf(stderr,
				"seed %llu: auto %.17g, by definition %.17g, best %.17g, bound %.17g\n",
				(unsigned long long)seed, plan.value_s, same, best, plan.bound_s);
			abort();
		}
		n_tight += !latency && plan.bound_s > best * (1 - 1e-8);
		n_loads += !latency;
		struct dlb_plan again;
		assert(IS(dlb_place(&m.p, NULL, &again, &err), ==, 0));
		assert(!memcmp(plan.placement, again.placement, (size_t)plan.n_ops * sizeof(int)) &&
		       !again.algorithm_given);
		dlb_plan_release(&again);
		dlb_plan_release(&plan);
		n_solved++;
	}
	release(&m);
}

/* dp: the placement with the least load of all in which devices take differences of a chain of ideals. */
static void test_contiguous(uint64_t seed)
{
	struct dlb_rng r;
	struct net t;
	struct made m;
	struct dlb_plan plan;
	struct dlb_error err = { .status = 0 };
	dlb_rng_init(&r, seed);
	draw(&t, &r, 2 + (int)dlb_rng_below(&r, 6), false);
	t.n.n_accelerators += (int)dlb_rng_below(&r, 2);
	if (seed % 2)					/* many isolated ops */
		t.n.n_edges /= 3;
	make(&m, &t, DLB_THROUGHPUT, seed);
	double best = brute_force(&t, &m, false, true);
	if (dlb_place(&m.p, "dp", &plan, &err)) {
		assert(IS(err.status, ==, 1) && isinf(best));
	} else {
		if (fabs(plan.value_s - best) > 1e-12 * best) {
			fprintf(stderr, "seed %llu: dp %.17g, the best contiguous %.17g\n",
				(unsigned long long)seed, plan.value_s, best);
			abort();
		}
		n_contiguous++;
		dlb_plan_release(&plan);
	}
	release(&m);
}

static void test_larger(uint64_t seed)
{
	struct dlb_rng r;
	struct net t;
	struct made m;
	bool latency = seed % 2;
	dlb_rng_init(&r, seed);
	draw(&t, &r, 20 + (int)dlb_rng_below(&r, 40), !latency && seed % 3 == 0);
	t.n.n_accelerators = 2 + (int)dlb_rng_below(&r, 5);
	make(&m, &t, latency ? DLB_LATENCY : DLB_THROUGHPUT, seed);
	/* some networks have more: dp then uses prefixes of a few orders instead of running for a minute */
	m.p.most_ideals = 20000;
	double least = INFINITY;
	for (const struct dlb_placer *x = dlb_placers; x->name; x++) {
		struct dlb_plan plan;
		struct dlb_error err = { .status = 0 };
		if (dlb_place(&m.p, x->name, &plan, &err)) {
			assert(err.status == 1 || !strcmp(x->name, "even") || !strcmp(x->name, "random"));
			continue;
		}
		double same = plain(&t, &m, plan.placement, latency);
		assert(IS(fabs(plan.value_s - same), <=, 1e-12 * same) && IS(plan.value_s, >=, plan.bound_s));
		if (!strcmp(x->name, "auto"))
			assert(IS(plan.value_s, <=, least * (1 + 1e-12)));
		else if (x->by_default || !strcmp(x->name, "dp"))
			least = plan.value_s < least ? plan.value_s : least;
		dlb_plan_release(&plan);
		n_solved++;
	}
	release(&m);
}

/* Bounds against all placements, also with unequal nodes and memories; chains of ops with little memory test
 * that the bound of latency counts transfers that memory forces, modules that it counts a node's load. */
static void test_bounds(uint64_t seed)
{
	struct dlb_rng r;
	struct net t;
	struct made m;
	struct dlb_port port;
	struct dlb_calls calls;
	bool latency = seed % 4 < 2, chain = seed % 2, modules = latency && !chain && seed % 3;
	double kappa[8], best = INFINITY;
	int at[64] = { 0 };
	dlb_rng_init(&r, seed);
	draw(&t, &r, modules ? 7 : 3 + (int)dlb_rng_below(&r, seed % 16 ? 3 : 4), !latency && seed % 3 == 0);
	t.n.n_accelerators = 2 + (t.n.n_vertices < 5);
	if (modules)
		set_modules(&t, seed % 8);
	for (int i = 1; chain && i < t.n.n_vertices; i++)
		t.e[t.n.n_edges++] = (struct dlb_edge){ i - 1, i };
	make(&m, &t, latency ? DLB_LATENCY : DLB_THROUGHPUT, seed);
	for (int d = 0; d < m.cl.n_nodes; d++)
		kappa[d] = seed % 3 ? 1 : 0.5 + dlb_rng_uniform(&r);
	struct dlb_error err = { .status = 0 };
	dlb_problem_release(&m.p);
	m.p.kappa = kappa;
	assert(IS(dlb_problem_init(&m.p, &err), ==, 0));
	for (int d = 0; d < t.n.n_accelerators && seed % 5 == 0; d++)
		m.p.memory_bytes[d] *= dlb_rng_uniform(&r) + 0.5;
	dlb_port_init(&port, &m.p, false);
	dlb_calls_init(&calls, &port);
	for (int g = 0; g < port.n;) {
		if (dlb_port_lack_bytes(&port, at, NULL) <= 0)
			best = fmin(best, latency ? dlb_calls_latency_s(&calls, at, NULL) :
						    dlb_port_throughput_s(&port, at, NULL));
		for (g = 0; g < port.n && ++at[g] == port.n_nodes; g++)
			at[g] = 0;
	}
	double bound = dlb_port_bound_s(&port, latency);
	if (!(bound <= best) || !isfinite(bound)) {
		fprintf(stderr, "seed %llu: bound %.17g, the best of all %.17g\n", (unsigned long long)seed,
			bound, best);
		abort();
	}
	n_chains += latency && chain && isfinite(best);
	n_tight_chains += latency && chain && isfinite(best) && bound > best * (1 - 1e-8);
	n_modules += modules && isfinite(best);
	n_tight_modules += modules && isfinite(best) && bound > best * (1 - 1e-8);
	dlb_calls_release(&calls);
	dlb_port_release(&port);
	release(&m);
}

/* Against all subsets. */
static void test_min_cut(uint64_t seed)
{
	struct dlb_rng r;
	struct dlb_min_cut c;
	int n = 2 + (int)(seed % 7), m = 0, from[40], to[40];
	double room[40], best = INFINITY;
	int64_t budget = 1 << 20;
	dlb_rng_init(&r, seed);
	dlb_min_cut_init(&c, n);
	for (; m < 3 * n; m++) {
		from[m] = (int)dlb_rng_below(&r, (uint64_t)n);
		to[m] = (int)dlb_rng_below(&r, (uint64_t)n);
		room[m] = dlb_rng_below(&r, 8) ? dlb_rng_uniform(&r) : m % 2 ? 0 : 100;
		dlb_min_cut_arc(&c, from[m], to[m], room[m]);
	}
	for (int set = 0; set < 1 << n; set++) {	/* 0 is the source, 1 the sink */
		double s = 0;
		for (int i = 0; i < m; i++)
			s += (set >> from[i] & 1) && !(set >> to[i] & 1) ? room[i] : 0;
		if ((set & 3) == 1)
			best = fmin(best, s);
	}
	for (int turn = 0; turn < 2; turn++) {		/* the second time must give the same */
		double flow = dlb_min_cut_value(&c, 0, 1, &budget);
		if (fabs(flow - best) > 1e-12 * (1 + best)) {
			fprintf(stderr, "seed %llu: flow %.17g, least cut %.17g\n", (unsigned long long)seed,
				flow, best);
			abort();
		}
	}
	dlb_min_cut_release(&c);
}

/* Whether c and next are neighbours in a chain. */
static bool follow(const struct dlb_port *port, int c, int next)
{
	int n = 0;
	for (int k = 0; k < port->forward_start[port->n]; k++)
		n += port->forward[k] == next;
	return n == 1 && port->forward_start[c + 1] - port->forward_start[c] == 1 &&
	       port->forward[port->forward_start[c]] == next;
}

/* Joined classes are one chain within their share of memory; dp over chains is a placement that fits, takes
 * no longer than dp says, and is no better than dp over all ideals. */
static void test_chains(uint64_t seed)
{
	struct dlb_rng r;
	struct net t;
	struct made m;
	struct dlb_port port, coarse;
	struct dlb_ideals all, few;
	int map[64], at[64], fine[64];
	dlb_rng_init(&r, seed);
	draw(&t, &r, 12, false);
	for (int i = 1; i < 12; i++) /* mostly chains */
		if (dlb_rng_below(&r, 5))
			t.e[t.n.n_edges++] = (struct dlb_edge){ i - 1, i };
	make(&m, &t, DLB_LATENCY, seed);
	dlb_port_init(&port, &m.p, false);
	dlb_port_join_chains(&port, 1 << dlb_rng_below(&r, 3), &coarse, map);
	n_joined += port.n - coarse.n;
	for (int k = 0; k < coarse.n; k++) {
		int members = 0, pairs = 0;
		for (int c = 0; c < port.n; c++) {
			members += map[c] == k;
			for (int next = 0; next < port.n; next++)
				pairs += map[c] == k && map[next] == k && c != next && follow(&port, c, next);
		}
		assert(IS(members, >, 0) && IS(pairs, ==, members - 1));
		for (int d = 0; d < port.n_nodes; d++)
			assert(members == 1 || IS(coarse.bytes[k], <=, port.room_bytes[d]));
	}
	assert(dlb_ideals_all(&all, &port, 100000) && dlb_ideals_all(&few, &coarse, 100000));
	double best = dlb_dp(&all, &port, true, INFINITY, NULL, fine),
	       value = dlb_dp(&few, &coarse, true, INFINITY, NULL, at);
	assert(IS(best, <=, value * (1 + 1e-12)));
	if (isfinite(value))
		assert(IS(dlb_port_latency_s(&port, fine, NULL), <=, best * (1 + 1e-12)) &&
		       IS(dlb_port_latency_s(&coarse, at, NULL), <=, value * (1 + 1e-12)) &&
		       !(dlb_port_lack_bytes(&coarse, at, NULL) > 0));
	dlb_ideals_release(&all);
	dlb_ideals_release(&few);
	dlb_port_release(&coarse);
	dlb_port_release(&port);
	release(&m);
}

/* After each of many moves, what dlb_loads keeps is what the placement has by the definitions. */
static void test_loads(uint64_t seed)
{
	struct dlb_rng r;
	struct net t;
	struct made m;
	struct dlb_port port;
	struct dlb_loads a;
	int at[64] = { 0 };
	double load[8];

	dlb_rng_init(&r, seed);
	draw(&t, &r, 4 + (int)dlb_rng_below(&r, 12), false);
	make(&m, &t, DLB_THROUGHPUT, seed);
	dlb_port_init(&port, &m.p, false);
	for (int c = 0; c < port.n; c++)
		at[c] = (int)dlb_rng_below(&r, (uint64_t)port.n_nodes);
	for (int c = 0; c < port.n; c++) /* where it has a kernel */
		while (isinf(port.work_s[c * port.n_nodes + at[c]]))
			at[c] = (at[c] + 1) % port.n_nodes;
	struct dlb_search s = { .port = &port };
	dlb_loads_init(&a, &s, at, seed % 2);
	dlb_loads_set_exponent(&a, 1 + (int)(seed % 3), 1);
	for (int k = 0; k < 30; k++) {
		const int c = (int)dlb_rng_below(&r, (uint64_t)port.n),
			  to = (int)dlb_rng_below(&r, (uint64_t)port.n_nodes);
		double from_s, to_s, energy = 0;
		if (to == at[c] || !dlb_loads_may(&a, c, to))
			continue;
		dlb_loads_gains(&a, c, to, &from_s, &to_s);
		dlb_loads_move(&a, c, to, from_s, to_s);
		assert(IS(at[c], ==, to));
		dlb_port_throughput_s(&port, at, load);
		for (int d = 0; d < port.n_nodes; d++) {
			double used = 0, x;
			int n = 0;
			for (int i = 0; i < port.n; i++)
				if (at[i] == d) {
					used += port.bytes[i];
					assert(IS(a.member[d * port.n + a.pos[i]], ==, i));
					n++;
				}
			assert(IS(a.size[d], ==, n) && IS(fabs(a.used[d] - used), <=, 1e-9) &&
			       IS(fabs(a.load[d] - load[d]), <=, 1e-9));
			x = load[d]; /* and, where memory may be exceeded, 2 % and the part by which it is */
			if (a.soft && used > port.room_bytes[d])
				x += 0.02 + (used - port.room_bytes[d]) / port.room_bytes[d];
			x = x < 0.01 ? 0 : fmin(x, 100);
			energy += pow(x, a.q);
		}
		assert(IS(fabs(a.energy - energy), <=, 1e-6 * energy));
		n_moves++;
	}
	dlb_loads_release(&a);
	dlb_port_release(&port);
	release(&m);
}

int main(void)
{
	for (int seed = 1; seed <= check_cases(600); seed++)
		test_small((uint64_t)seed);
	for (int seed = 1; seed <= check_cases(9); seed++)
		test_larger((uint64_t)seed);
	for (int seed = 1; seed <= check_cases(300); seed++)
		test_contiguous((uint64_t)seed);
	for (int seed = 1; seed <= check_cases(200); seed++)
		test_min_cut((uint64_t)seed);
	for (int seed = 1; seed <= check_cases(250); seed++)
		test_bounds((uint64_t)seed);
	for (int seed = 1; seed <= check_cases(100); seed++)
		test_chains((uint64_t)seed);
	for (int seed = 1; seed <= 100; seed++)
		test_loads((uint64_t)seed);
	assert(IS(n_moves, >, 500));
	assert(IS(n_joined, >, check_cases(100) / 4));
	assert(IS(n_tight_chains, >, n_chains / 3));
	assert(IS(n_tight_modules, >, 0));
	printf("%d plans, %d that cannot be; %d contiguous ones; %d of %d greatest loads, %d of %d chains' "
	       "latencies and %d of %d modules' certified to be the least\n",
	       n_solved, n_refused, n_contiguous, n_tight, n_loads, n_tight_chains, n_chains, n_tight_modules,
	       n_modules);
	return 0;
}
