/* Kept results under the port model, on random networks: values of placements, contracted and joined
 * classes, ideals and the best chains of them, lower bounds by chains and by modules, and each kind of
 * search with a small budget. kept.h says how they are replaced. */
#include "port_cases.h"
#include "kept.h"
#include "place/ideals.h"
#include "place/latency_bound.h"
#include "place/loads.h"
#include "place/search.h"

static const char *const kept[] = {
#include "port_kept.inc"
};

/* A network of modules: each leaves an op by two to three branches of one to three ops, which join again;
 * some branches hold an edge past their op. */
static void draw_modules(struct net *t, struct dlb_rng *r, int n)
{
	int last = 0, at = 1;

	draw(t, r, n, false);
	t->n.n_edges = 0;
	t->n.n_accelerators = 2 + (int)dlb_rng_below(r, 2);
	while (at + 6 < n) {
		const int n_branches = 2 + (int)dlb_rng_below(r, 2);
		int end[3];

		for (int b = 0; b < n_branches; b++) {
			end[b] = last;
			for (int k = 1 + (int)dlb_rng_below(r, b ? 2 : 3); k > 0 && at < n - 1; k--) {
				t->e[t->n.n_edges++] = (struct dlb_edge){ end[b], at };
				end[b] = at++;
			}
		}
		for (int b = 0; b < n_branches; b++)
			if (end[b] != at)
				t->e[t->n.n_edges++] = (struct dlb_edge){ end[b], at };
		if (dlb_rng_below(r, 3) == 0)
			t->e[t->n.n_edges++] = (struct dlb_edge){ last, at };
		last = at++;
	}
	for (; at < n; at++) {
		t->e[t->n.n_edges++] = (struct dlb_edge){ last, at };
		last = at;
	}
	for (int i = 0; i < n; i++)
		t->v[i].colour = -1;
}

static void keep_port(const char *name, const struct dlb_port *port)
{
	int kind[16], first[16];
	const int n = dlb_port_kinds(port, kind, first);

	kept_add(kind, port->n_nodes);
	kept_add(first, n);
	kept_add(port->sink_start, port->n_nets + 1);
	kept_add(port->sink, port->sink_start[port->n_nets]);
	kept_add(port->source, port->n_nets);
	kept_add(port->touch_start, port->n + 1);
	kept_add(port->touch, port->touch_start[port->n]);
	kept_add(port->forward_start, port->n + 1);
	kept_add(port->forward, port->forward_start[port->n]);
	kept_add(port->class_of, port->n_ops);
	kept_add(port->pred_start, port->n_ops + 1);
	kept_add(port->succ_start, port->n_ops + 1);
	for (int c = 0; c < port->n; c++) {
		kept_real(port->bytes[c]);
		for (int d = 0; d < port->n_nodes; d++)
			kept_real(port->work_s[c * port->n_nodes + d]);
	}
	for (int k = 0; k < port->n_nets; k++)
		kept_real(dlb_port_net_s(port, k));
	for (int i = 0; i < port->n_ops; i++) {
		for (int d = 0; d < port->n_nodes; d++)
			kept_real(port->op_s[i * port->n_nodes + d]);
		for (int d = 0; d < port->n_places; d++)
			kept_real(port->out_s[i * port->n_places + d]);
	}
	kept_line(name, "%d classes, %d nets, %d kinds of node", port->n, port->n_nets, n);
}

/* Values of random placements. */
static void keep_values(const char *name, const struct dlb_port *port, struct dlb_rng *r)
{
	double load[16], finish[64];
	int at[64], node = 0;

	for (int turn = 0; turn < 12; turn++) {
		for (int c = 0; c < port->n; c++)
			at[c] = turn < port->n_nodes     ? turn :
				c && dlb_rng_below(r, 3) ? at[c - 1] :
							   (int)dlb_rng_below(r, (uint64_t)port->n_nodes);
		const double lack = dlb_port_lack_bytes(port, at, &node);
		kept_real(lack);
		if (lack > 0)
			kept_add(&node, 1);
		if (isinf(lack))
			continue;
		kept_real(dlb_port_throughput_s(port, at, load));
		for (int d = 0; d < port->n_nodes; d++)
			kept_real(load[d]);
		const double s = dlb_port_latency_s(port, at, finish);
		kept_real(s);
		for (int i = 0; i < port->n_ops && isfinite(s); i++)
			kept_real(finish[i]);
	}
	kept_line(name, "values");
}

static void keep_bounds(const char *name, const struct dlb_port *port)
{
	struct dlb_latency_kinds kinds = { .n = 0 };
	int of[16], node[16], count[16] = { 0 };
	bool host[16];

	kinds.n = dlb_port_kinds(port, of, node);
	for (int d = 0; d < port->n_nodes; d++)
		count[of[d]]++;
	for (int k = 0; k < kinds.n; k++)
		host[k] = port->host[port->place[node[k]]];
	kinds.node = node;
	kinds.of = of;
	kinds.count = count;
	kinds.host = host;
	kept_line(name, "bounds %.5g s, %.5g s, %.5g s, by modules %.5g s", dlb_port_bound_s(port, false),
		  dlb_port_bound_s(port, true), dlb_latency_bound_s(port),
		  dlb_latency_modules_bound_s(port, &kinds));
}

static void keep_dp(const char *name, const struct dlb_port *port, uint64_t seed)
{
	struct dlb_ideals s;
	struct dlb_dp_limits limits = { .most_ideals = seed % 3 ? 5000 : 20 };
	enum dlb_dp_beyond beyond;
	int at[64] = { 0 };

	for (int latency = 0; latency < 2; latency++) {
		double best = INFINITY;
		int n = 0;

		memset(at, 0, sizeof at);
		if (dlb_ideals_all(&s, port, 5000)) {
			n = s.n;
			best = dlb_dp(&s, port, latency, INFINITY, NULL, at);
			if (isfinite(best))
				kept_add(at, port->n);
			dlb_ideals_release(&s);
		}
		dlb_ideals_orders(&s, port, 4, seed);
		const double some = dlb_dp(&s, port, latency, INFINITY, NULL, at);
		kept_add(&s.n, 1);
		dlb_ideals_release(&s);
		const double s_all = dlb_contiguous(port, latency, &limits, at, &beyond);
		kept_add((const int[]){ beyond }, 1);
		if (isfinite(s_all))
			kept_add(at, port->n);
		kept_line(name, "dp %.5g s of %d ideals, of orders %.5g s, %.5g s", best, n, some, s_all);
	}
}

/* A placement that fits; false: none was found. */
static bool start_of(const struct dlb_port *port, struct dlb_rng *r, int *at)
{
	for (int turn = 0; turn < 200; turn++) {
		for (int c = 0; c < port->n; c++)
			at[c] = (int)dlb_rng_below(r, (uint64_t)port->n_nodes);
		if (!(dlb_port_lack_bytes(port, at, NULL) > 0) &&
		    isfinite(dlb_port_latency_s(port, at, NULL)))
			return true;
	}
	return false;
}

static void keep_searches(const char *name, const struct dlb_port *port, struct dlb_rng *r, uint64_t seed)
{
	static const char *const kind[] = {
		"anneal", "soft", "levels", "together", "windows", "run", "cold"
	};
	int from[64], first[64], best[64];

	if (!start_of(port, r, first))
		return;
	for (int k = 0; k < 7; k++)
		for (int latency = 0; latency < 2; latency++) {
			struct dlb_search s = {
				.port = port, .latency = latency, .budget = 4000, .best = best
			};
			int *starts[1] = { from };

			if (latency && k >= 2 && k < 5)
				continue;
			dlb_rng_init(&s.rng, seed);
			memcpy(from, first, sizeof from);
			memcpy(best, first, sizeof best);
			s.best_s = latency ? dlb_port_latency_s(port, from, NULL) :
					     dlb_port_throughput_s(port, from, NULL);
			if (k < 2)
				(latency ? dlb_anneal_latency : dlb_anneal_throughput)(&s, from, 1500, 0.1,
										       k);
			else if (k < 4)
				dlb_search_multilevel(&s, from, k == 3, 1500, 0.1);
			else if (k == 4)
				dlb_search_windows(&s);
			else
				dlb_search_run(&s, starts, 1, k == 6);
			kept_add(best, port->n);
			if (k < 2)
				kept_add(from, port->n);
			kept_line(name, "%s %.5g s, %lld left", kind[k], s.best_s, (long long)s.budget);
		}
}

static void network(uint64_t seed)
{
	struct dlb_rng r;
	struct net t;
	struct made m;
	struct dlb_port port, coarse;
	int map[64];
	double kappa[8];
	char name[32];

	dlb_rng_init(&r, seed);
	if (seed % 2)
		draw_modules(&t, &r, 9 + (int)dlb_rng_below(&r, 28));
	else
		draw(&t, &r, 8 + (int)dlb_rng_below(&r, 20), seed % 4 == 0);
	make(&m, &t, seed % 3 ? DLB_LATENCY : DLB_THROUGHPUT, seed);
	for (int d = 0; d < m.cl.n_nodes; d++)
		kappa[d] = seed % 5 ? 1 : 0.5 + dlb_rng_uniform(&r);
	struct dlb_error err = { .status = 0 };
	dlb_problem_release(&m.p);
	m.p.kappa = kappa;
	assert(IS(dlb_problem_init(&m.p, &err), ==, 0));
	snprintf(name, sizeof name, "%d", (int)seed);
	dlb_port_init(&port, &m.p, seed % 2);
	keep_port(name, &port);
	keep_values(name, &port, &r);
	keep_bounds(name, &port);
	dlb_port_contract(&port, &coarse, map);
	kept_add(map, port.n);
	keep_port(name, &coarse);
	keep_searches(name, &coarse, &r, seed);
	dlb_port_release(&coarse);
	dlb_port_join_chains(&port, 2, &coarse, map);
	kept_add(map, port.n);
	keep_port(name, &coarse);
	keep_dp(name, &coarse, seed);
	dlb_port_release(&coarse);
	dlb_port_release(&port);
	release(&m);
}

int main(int argc, char **argv)
{
	for (uint64_t seed = 1; seed <= 40; seed++)
		network(seed);
	return kept_end(argc, argv, kept, DLB_LEN(kept));
}
