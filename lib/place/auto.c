/* auto, anneal and refine: search from the other placers' results; never worse than any of them.
 *
 * They start from every placer that is tried by default and from the contiguous optimum. anneal runs
 * simulated annealing from these repeatedly, refine only descends, auto does both, and enumerates all
 * placements if they are few. Under the port model moves are judged by its objective, else by the
 * simulated step (anneal_step.c). */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "place/bound.h"
#include "place/ideals.h"
#include "place/moves.h"
#include "place/place.h"
#include "place/problem.h"
#include "place/search.h"
#include "place/value.h"
#include "util/clock.h"

enum {
	MAX_STARTS = 16,
	MAX_IDEALS = 60000,
	DP_STEPS = 30000000 /* some seconds */,
	STEP_ITEMS = 4000000,
	MOST_ORDERS = 2000,
	MOST_PLACEMENTS = 6600,
	MANY_OPS = 2000,
	MANY_ITEMS = 20000
};

/* Proposals per unit of effort: few classes need few. */
static int64_t unit_of(const struct dlb_port *port, bool latency)
{
	int64_t most = latency ? 60000 : 2000000, each = latency ? 1000 : 30000;
	return each * port->n < most ? each * port->n + 1 : most;
}

bool dlb_problem_is_large(const struct dlb_problem *p)
{
	return p->graph->n_ops > MANY_OPS || (int64_t)p->graph->n_ops * p->micro_batches > MANY_ITEMS;
}

static double deadline_of(const struct dlb_problem *p)
{
	return p->search_s > 0 ? p->deadline_s > 0 ? p->deadline_s : dlb_clock_s() + p->search_s : 0;
}

/* Limit of dp where it is one start of many and does not minimize the step itself. */
static const double STEP_DP_WORK = 5e7;

enum { ANNEAL = 1, REFINE = 2 };			/* ways to search */

/* clock_s: seconds that the evaluation of the best took. */
struct starts { int *at[MAX_STARTS]; double s[MAX_STARTS]; int n; double clock_s; };

static double value_of(const struct dlb_port *port, bool latency, const int *at)
{
	if (dlb_port_lack_bytes(port, at, NULL) > 0)
		return INFINITY;
	return latency ? dlb_port_latency_s(port, at, NULL) : dlb_port_throughput_s(port, at, NULL);
}

/* Takes at; keeps starts sorted, the best first. */
static void add_start(struct starts *s, double value, int *at)
{
	if (isinf(value) || s->n == MAX_STARTS) {
		free(at);
		return;
	}
	int i = s->n++;
	for (; i > 0 && s->s[i - 1] > value; i--) {
		s->s[i] = s->s[i - 1];
		s->at[i] = s->at[i - 1];
	}
	s->s[i] = value;
	s->at[i] = at;
}

struct sized { double bytes; int class; };

static int by_size(const void *a, const void *b)
{
	const struct sized *x = a, *y = b;
	return x->bytes != y->bytes ? (x->bytes > y->bytes ? -1 : 1) :
				      (x->class > y->class) - (x->class < y->class);
}

/* For scarce memory: packs the classes by best fit decreasing (the largest first, each on the node that it
 * fills most), then in perturbed orders. false: nothing fits, and *want is the least shortage that was
 * met. */
struct shortage { double bytes; int class, node; };
static bool pack(const struct dlb_port *port, struct dlb_rng *rng, int *at, struct shortage *want)
{
	enum { TRIES = 400 };
	size_t D = (size_t)port->n_nodes;
	struct sized *order = dlb_xcalloc((size_t)port->n + 1, sizeof *order);
	double *room = dlb_xcalloc(D, sizeof *room);
	bool done = false;
	for (int turn = 0; turn < TRIES && !done; turn++) {
		for (int c = 0; c < port->n; c++)
			order[c] = (struct sized){
				port->bytes[c] * (turn ? 1 + 0.5 * dlb_rng_uniform(rng) : 1), c
			};
		qsort(order, (size_t)port->n, sizeof *order, by_size);
		memcpy(room, port->room_bytes, D * sizeof *room);
		done = true;
		for (int i = 0; i < port->n && done; i++) {
			int c = order[i].class, to = -1;
			for (int d = 0; d < port->n_nodes; d++)
				if (isfinite(port->work_s[(size_t)c * D + (size_t)d]) &&
				    port->bytes[c] <= room[d] && (to < 0 || room[d] < room[to]))
					to = d;
			done = to >= 0;
			for (int d = 0; d < port->n_nodes && !done; d++)
				if (isfinite(port->work_s[(size_t)c * D + (size_t)d]) &&
				    port->bytes[c] - room[d] < want->bytes)
					*want = (struct shortage){ port->bytes[c] - room[d], c, d };
			if (done) {
				at[c] = to;
				room[to] -= port->bytes[c];
			}
		}
	}
	free(order);
	free(room);
	return done;
}

/* Fails with the node, its shortage and the class of the packing that came nearest. */
static int say_lack(const struct dlb_problem *p, const struct dlb_port *port, const struct shortage *want,
		    struct dlb_error *err)
{
	double need = 0, have = 0;
	if (want->node < 0)
		return dlb_no_room(p, want->class, err);		/* no kernel anywhere */
	for (int c = 0; c < port->n; c++)
		need += port->bytes[c];
	for (int d = 0; d < port->n_nodes; d++)
		have += port->room_bytes[d];
	const struct dlb_op *o = &p->graph->op[p->group_op[p->group_start[want->class]]];
	return dlb_fail_no(err, NULL,
			   "no plan fits: node %d (%s) lacks %.4g MB for op '%.80s'%s; all ops need %.4g MB, "
			   "the nodes have %.4g MB",
			   want->node, p->cluster->kind[p->cluster->node[want->node].kind].name,
			   want->bytes / 1e6, o->name,
			   p->group_start[want->class + 1] - p->group_start[want->class] > 1 ?
				   " and what is bound to it" :
				   "",
			   need / 1e6, have / 1e6);
}

static void gather(const struct dlb_problem *p, const struct dlb_port *port, double deadline_s,
		   struct starts *s, struct dlb_error *nearest)
{
	bool latency = p->objective == DLB_LATENCY;
	int *placement = dlb_xcalloc((size_t)p->graph->n_ops + 1, sizeof *placement);
	for (const struct dlb_placer *x = dlb_placers; x->name; x++) {
		struct dlb_error why = { .status = 0 };
		if (!x->by_default || x->place(p, placement, &why))
			continue;
		int *at = dlb_place_groups_at(p, placement);
		add_start(s, value_of(port, latency, at), at);
	}
	free(placement);
	enum dlb_dp_beyond beyond;
	int *at = dlb_xcalloc((size_t)port->n + 1, sizeof *at);
	int64_t steps = p->search_s > 0 ? 0 : DP_STEPS * (p->effort > 0 ? p->effort : 1);
	/* dp gets half of the time, the search the rest */
	double now = dlb_clock_s(), half = deadline_s > 0 ? now + (deadline_s - now) / 2 : 0;
	const struct dlb_dp_limits limits = { .most_ideals = MAX_IDEALS,
					      .most_steps = steps,
					      .deadline_s = half };
	double value = dlb_contiguous(port, latency, &limits, at, &beyond);
	add_start(s, isinf(value) ? value : value_of(port, latency, at), at);
	if (s->n)
		return;
	struct dlb_rng rng;
	dlb_rng_init(&rng, p->seed);
	at = dlb_xcalloc((size_t)port->n + 1, sizeof *at);
	struct shortage want = { INFINITY, 0, -1 };
	for (int c = 0; c < port->n; c++) {		/* the error names a class without any kernel first */
		bool some = false;
		for (int d = 0; d < port->n_nodes; d++)
			some |= isfinite(port->work_s[(size_t)c * (size_t)port->n_nodes + (size_t)d]);
		if (!some)
			want.class = c;
	}
	bool packed = pack(port, &rng, at, &want);
	add_start(s, packed ? value_of(port, latency, at) : INFINITY, at);
	if (!packed)
		say_lack(p, port, &want, nearest);
	else if (!s->n)
		dlb_fail_no(nearest, NULL, "no plan fits: calls of nodes would wait for one another");
}

static bool heavy(const struct dlb_port *port, int c)
{
	bool some = port->bytes[c] > 0;
	for (int d = 0; d < port->n_nodes; d++)
		some |= port->work_s[(size_t)c * (size_t)port->n_nodes + (size_t)d] != 0;
	return some;
}

/* Enumerates all placements if they are few. false: there are more. */
static bool exhaust(const struct dlb_port *port, bool latency, double best_s, int *best)
{
	double all = pow(port->n_nodes, port->n);
	if (all > MOST_PLACEMENTS)
		return false;
	int *at = dlb_xcalloc((size_t)port->n + 1, sizeof *at);
	for (int c = 0; c < port->n;) {
		double value = value_of(port, latency, at);
		if (value < best_s) {
			best_s = value;
			memcpy(best, at, (size_t)port->n * sizeof *at);
		}
		for (c = 0; c < port->n && ++at[c] == port->n_nodes; c++)
			at[c] = 0;
	}
	free(at);
	return true;
}

static void search(const struct dlb_problem *p, const struct dlb_port *port, struct starts *s,
		   double deadline_s, int ways, int *best)
{
	bool latency = p->objective == DLB_LATENCY;
	struct dlb_port coarse;
	int *map = dlb_xmalloc(((size_t)port->n + 1) * sizeof *map), *start[MAX_STARTS], n = 0;
	int64_t effort = p->effort > 0 ? p->effort : 1;
	dlb_port_contract(port, &coarse, map);
	struct dlb_search x = { .port = &coarse, .latency = latency, .deadline_s = deadline_s,
				.budget = effort * unit_of(&coarse, latency), .best_s = INFINITY };
	dlb_rng_init(&x.rng, p->seed);
	/* lower bounds have a margin of half of this for rounding */
	x.bound_s = dlb_port_bound_s(&coarse, latency) * (1 + 2e-9);
	x.best = dlb_xcalloc((size_t)coarse.n + 1, sizeof *x.best);
	for (int i = 0; i < s->n; i++) {
		start[n] = dlb_xcalloc((size_t)coarse.n + 1, sizeof **start);
		/* a class without work or size follows the others of its contracted class */
		for (int turn = 0; turn < 2; turn++)
			for (int c = 0; c < port->n; c++)
				if (turn == heavy(port, c))
					start[n][map[c]] = s->at[i][c];
		double value = value_of(&coarse, latency, start[n]);
		if (isinf(value)) {
			free(start[n]);
			continue;
		}
		if (value < x.best_s) {
			x.best_s = value;
			memcpy(x.best, start[n], (size_t)coarse.n * sizeof *x.best);
		}
		n++;
	}
	if (n)
		dlb_search_run(&x, start, n, ways == REFINE);
	if (n && x.best_s < s->s[0])
		for (int c = 0; c < port->n; c++)
			best[c] = x.best[map[c]];
	while (n)
		free(start[--n]);
	free(x.best);
	free(map);
	dlb_port_release(&coarse);
}

/* ---- by simulated step ---- */

/* Placers' estimates of memory leave out the activations that a schedule keeps in flight. While no plan
 * fits, placers run again with smaller memory limits. */
static const double memory_scale[] = { 1, 0.75, 0.55, 0.4 };

static bool wants(const struct dlb_problem *p, const struct dlb_placer *x)
{
	const bool by_default = dlb_placer_by_default(p, x);
	const bool wanted = by_default || (!p->draft && x->place == dlb_place_heft) ||
			    /* dp is one start of many, and takes as long as a search of a few candidates */
			    (!p->draft && p->candidates < 2 && x->place == dlb_place_dp) ||
			    (x->place == dlb_place_by_kind && p->affinity);

	return wanted && (by_default || x->trivial || !dlb_problem_is_large(p));
}

/* A start whose step is not below this is useless, since a draft takes the best start only. INFINITY: no
 * limit. */
static double limit_of_start(const struct dlb_problem *p, const struct starts *s)
{
	const double limit_s = p->draft && p->below_s > 0 ? p->below_s : INFINITY;

	return p->draft && s->n ? fmin(limit_s, s->s[0]) : limit_s;
}

/* The starts that placers give. */
struct gathering {
	double below_s, deadline_s; /* only shorter steps are useful; 0: any. Clock at the end; 0: none */
	struct starts *s;
	int *misfit; /* a start that does not fit; NULL: none yet */
	bool slow; /* some start may fit, but is too slow */
	struct dlb_error nearest; /* of the first placer that found no placement */
};

/* Adds the placers' results under memory limits times scale; for a draft, only results faster than the
 * best. */
static void gather_scaled(const struct dlb_problem *p, double scale, struct gathering *g)
{
	struct starts *s = g->s;
	static const double FAR = 1.25; /* factor by which a placer may still improve its first cut */
	static const struct dlb_error no_fit = { .what = "does not fit", .status = 1 },
				      no_gain = { .what = "does not fit, or is no faster", .status = 1 };
	int *one = dlb_xcalloc((size_t)p->graph->n_ops + 1, sizeof *one);
	double *memory = dlb_xcalloc((size_t)p->cluster->n_nodes + 1, sizeof *memory);
	struct dlb_problem scaled = *p;

	for (int d = 0; d < p->cluster->n_nodes; d++)
		memory[d] = p->memory_bytes[d] * scale;
	scaled.memory_bytes = memory;
	scaled.below_s = g->below_s;
	scaled.most_ideals = MAX_IDEALS;
	scaled.most_dp_work = STEP_DP_WORK * (double)(p->effort > 0 ? p->effort : 1);
	for (const struct dlb_placer *x = dlb_placers; x->name; x++) {
		struct dlb_error why = { .status = 0 };
		const double limit_s = limit_of_start(p, s);
		if (p->draft)
			scaled.below_s = isfinite(limit_s) ? limit_s * FAR : 0;
		if (!wants(p, x) ||
		    (!x->trivial && s->n && g->deadline_s > 0 && dlb_clock_s() >= g->deadline_s))
			continue;
		if (x->place(&scaled, one, &why) || dlb_place_limit_moves(p, one, &why)) {
			g->nearest = g->nearest.status ? g->nearest : why;
			g->slow |= scaled.below_s > 0;
			continue;
		}
		double from = dlb_clock_s(), value = dlb_place_value_below_s(p, one, limit_s);
		g->slow |= isfinite(value) && value >= limit_s;
		value = value < limit_s ? value : INFINITY;
		if (!s->n || value < s->s[0])
			s->clock_s = dlb_clock_s() - from;
		int *at = dlb_place_groups_at(p, one);
		if (p->tried)
			p->tried(p->tried_arg, x->name, value, value,
				 isfinite(value)   ? NULL :
				 isfinite(limit_s) ? &no_gain :
						     &no_fit);
		if (!isinf(value))
			add_start(s, value, at);
		else if (!g->misfit)
			g->misfit = at;
		else
			free(at);
	}
	free(memory);
	free(one);
}

/* Fills the starts, the best first; s->s[i] is the simulated step. A placement that does not fit is kept
 * only if none fits: the plan made from it states the shortage. */
static int gather_steps(const struct dlb_problem *p, double deadline_s, struct starts *s,
			struct dlb_error *err)
{
	struct gathering g = { .deadline_s = deadline_s, .s = s };

	if (p->first)
		add_start(s, dlb_place_value_s(p, p->first), dlb_place_groups_at(p, p->first));
	g.below_s = s->n ? s->s[0] : 0;
	for (size_t i = 0; i < sizeof memory_scale / sizeof *memory_scale && (!i || !s->n); i++)
		if (!i || !deadline_s || dlb_clock_s() < deadline_s)
			gather_scaled(p, memory_scale[i], &g);
	if (!s->n && g.misfit && p->brief) {
		free(g.misfit);
		return dlb_fail_no(err, NULL,
				   g.slow ? "no plan of a draft takes less than others" :
					    "no plan of a draft fits");
	}
	if (!s->n && g.misfit) {
		s->at[s->n] = g.misfit;
		s->s[s->n++] = INFINITY;
		return 0;
	}
	free(g.misfit);
	if (s->n)
		return 0;
	if (err)
		*err = g.nearest;
	return -1;
}

static int64_t unit_of_step(const struct dlb_problem *p)
{
	int64_t items = (int64_t)p->graph->n_ops * p->micro_batches;
	/* few items need few orderings */
	int64_t unit = items * MOST_ORDERS < STEP_ITEMS ? items * MOST_ORDERS : STEP_ITEMS;
	if (p->graph->n_ops > MANY_OPS)			/* an ordering of many ops costs more, gains less */
		unit = unit * MANY_OPS / p->graph->n_ops;
	return dlb_search_share(p, unit);
}

/* Spends the budget on the given ways: annealing, from the best and from other starts in turn; descent by
 * simulation; or both in turn. */
static void search_ways(const struct dlb_problem *p, const struct starts *s, int ways,
			struct dlb_step_search *x)
{
	static const double heat[] = { 0.004, 0.02, 0, 0.01 };
	int64_t unit = unit_of_step(p);
	int *from = dlb_xmalloc(((size_t)p->n_groups + 1) * sizeof *from);
	bool done = false;
	x->budget = unit * (p->effort > 0 ? p->effort : 1);
	dlb_rng_init(&x->rng, p->seed);
	for (int run = 0; !done && !dlb_step_search_over(x); run++) {
		double was = x->best_s;
		if (ways & REFINE && (run % 3 == 0 || !(ways & ANNEAL)))
			dlb_refine_step(p, x, unit / 6);
		memcpy(from, run % 3 == 2 ? s->at[run / 3 % s->n] : x->best,
		       (size_t)p->n_groups * sizeof *from);
		if (ways & ANNEAL)
			dlb_anneal_step(p, x, from, unit / 4, heat[run % DLB_LEN(heat)]);
		done = !(ways & ANNEAL) && x->best_s >= was && x->deadline_s <= 0;
	}
	free(from);
}

/* auto runs anneal and refine, then continues both from the better result: it is never worse than either
 * of the same effort. With a time limit it alternates between both from the beginning. */
static void search_step(const struct dlb_problem *p, const struct starts *s, double deadline_s, int ways,
			int *best)
{
	size_t size = (size_t)p->n_groups * sizeof *best;
	struct dlb_step_search x = {
		.deadline_s = deadline_s, .best = best, .best_s = s->s[0], .bound_s = dlb_lower_bound_s(p)
	};

	if (ways == (ANNEAL | REFINE) && dlb_exhaust_step(p, &x, MOST_PLACEMENTS))
		return;
	if (ways == (ANNEAL | REFINE) && deadline_s <= 0) {
		struct dlb_step_search y = x;
		y.best = dlb_xmalloc(size + 1);
		memcpy(y.best, s->at[0], size);
		search_ways(p, s, ANNEAL, &x);
		search_ways(p, s, REFINE, &y);
		if (y.best_s < x.best_s) {
			x.best_s = y.best_s;
			memcpy(best, y.best, size);
		}
		free(y.best);
	}
	search_ways(p, s, ways, &x);
}

static int best_step(const struct dlb_problem *p, int ways, int *placement, struct dlb_error *err)
{
	double deadline_s = deadline_of(p);
	struct starts s = { .n = 0 };
	if (gather_steps(p, deadline_s, &s, err))
		return -1;
	int *best = dlb_xcalloc((size_t)p->n_groups + 1, sizeof *best);
	memcpy(best, s.at[0], (size_t)p->n_groups * sizeof *best);
	/* leaves time to verify the plan and to make its time-line */
	if (deadline_s > 0)
		deadline_s = fmax(deadline_s - 4 * s.clock_s, 1e-9);
	if (isfinite(s.s[0]) && !p->draft)
		search_step(p, &s, deadline_s, ways, best);
	for (int i = 0; i < p->graph->n_ops; i++)
		placement[i] = best[p->group_of[i]];
	while (s.n)
		free(s.at[--s.n]);
	free(best);
	return 0;
}

static int search_from_best(const struct dlb_problem *p, int ways, int *placement, struct dlb_error *err)
{
	if (p->objective == DLB_STEP)
		return best_step(p, ways, placement, err);
	double deadline_s = deadline_of(p);
	struct dlb_error nearest = { .status = 0 };
	struct starts s = { .n = 0 };
	struct dlb_port port;
	dlb_port_init(&port, p, true);
	gather(p, &port, deadline_s, &s, &nearest);
	int *best = dlb_xcalloc((size_t)port.n + 1, sizeof *best), rc = 0;
	if (s.n) {
		memcpy(best, s.at[0], (size_t)port.n * sizeof *best);
		if (ways != (ANNEAL | REFINE) || !exhaust(&port, p->objective == DLB_LATENCY, s.s[0], best))
			search(p, &port, &s, deadline_s, ways, best);
		for (int i = 0; i < p->graph->n_ops; i++)
			placement[i] = best[p->group_of[i]];
	} else {
		if (err)
			*err = nearest;
		rc = nearest.status ? -1 :
				      dlb_fail_no(err, NULL, "no plan fits the nodes' memory and kernels");
	}
	while (s.n)
		free(s.at[--s.n]);
	free(best);
	dlb_port_release(&port);
	return rc;
}

int dlb_place_auto(const struct dlb_problem *p, int *placement, struct dlb_error *err)
{
	return search_from_best(p, ANNEAL | REFINE, placement, err);
}

int dlb_place_anneal(const struct dlb_problem *p, int *placement, struct dlb_error *err)
{
	return search_from_best(p, ANNEAL, placement, err);
}

int dlb_place_refine(const struct dlb_problem *p, int *placement, struct dlb_error *err)
{
	return search_from_best(p, REFINE, placement, err);
}
