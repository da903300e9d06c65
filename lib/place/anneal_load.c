/* Annealing of the greatest load.
 *
 * cnt[net][place] counts a net's readers by place; with it, what a class pays and saves by a move is known from
 * its own nets, and only the loads of the two nodes change. Minimised is not the greatest load, which is deaf to
 * most moves, but a power norm of all loads, (sum of load^q)^(1/q), with q growing from 8 to 128 as it cools.
 *
 * Where memory is scarce, hardly a move leads from one placement that fits to another. Then (soft) what lies beyond a
 * node's memory counts as load, ever more as it cools, and only what fits is kept. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "place/search.h"
#include "util/clock.h"

enum { CLUMP = 8, CHECK = 1024, MANY = 64 };	/* MANY: readers that are no neighbours of each other any more */

struct state {
	struct dlb_search *s;
	const struct dlb_port *port;
	int *at, *cnt;				/* [class]; [net][place] */
	double *load, *used;			/* [node] seconds, bytes */
	double *power, energy, ref, q;		/* (load / ref)^q, their sum */
	int q_bits;
	bool soft; double strength;		/* loads of the reference for each memory's worth too much */
	int *near_start, *near;			/* classes that share a net */
	int *member, *pos;			/* members of nodes: lists in rows of n */
	int *size;				/* [node] */
};

static double to_power(const struct state *a, double load)
{
	double x = load / a->ref;
	x = x < 1e-2 ? 0 : x > 1e2 ? 1e2 : x;
	for (int i = 0; i < a->q_bits; i++)
		x *= x;
	return x;
}

/* The load that counts, of a node with so much work and so many bytes. Even a byte too much counts. */
static double burden(const struct state *a, int d, double load, double used)
{
	double room = a->port->room_bytes[d], over = used - room;
	return !a->soft || !(over > 0) ? load : load + a->ref * (0.02 * a->strength + a->strength * over / (room > 0 ? room : 1));
}

static void set_exponent(struct state *a, int bits, double ref)
{
	a->q_bits = bits;
	a->q = (double)(1 << bits);
	a->ref = ref;
	a->energy = 0;
	for (int d = 0; d < a->port->n_nodes; d++) {
		a->power[d] = to_power(a, burden(a, d, a->load[d], a->used[d]));
		a->energy += a->power[d];
	}
}

static void count_all(struct state *a)
{
	const struct dlb_port *port = a->port;
	memset(a->cnt, 0, (size_t)port->n_nets * (size_t)port->n_places * sizeof *a->cnt);
	memset(a->used, 0, (size_t)port->n_nodes * sizeof *a->used);
	memset(a->size, 0, (size_t)port->n_nodes * sizeof *a->size);
	for (int e = 0; e < port->n_nets; e++)
		for (int k = port->sink_start[e]; k < port->sink_start[e + 1]; k++)
			a->cnt[e * port->n_places + port->place[a->at[port->sink[k]]]]++;
	for (int c = 0; c < port->n; c++) {
		int d = a->at[c];
		a->used[d] += port->bytes[c];
		a->pos[c] = a->size[d];
		a->member[(size_t)d * (size_t)port->n + (size_t)a->size[d]++] = c;
	}
	dlb_port_throughput_s(port, a->at, a->load);
}

/* What the loads of `from` and `to` gain when class c moves. */
static void gains(const struct state *a, int c, int to, double *at_from, double *at_to)
{
	const struct dlb_port *port = a->port;
	int from = a->at[c], p = port->place[from], q = port->place[to];
	const double *w = &port->work_s[(size_t)c * (size_t)port->n_nodes];
	double df = -w[from], dt = w[to];
	for (int i = p == q ? port->touch_start[c + 1] : port->touch_start[c]; i < port->touch_start[c + 1]; i++) {
		int e = port->touch[i] >> 1, sinks = port->sink_start[e + 1] - port->sink_start[e];
		const int *cnt = &a->cnt[e * port->n_places];
		const double *s = &port->net_s[(size_t)e * (size_t)port->n_places];
		if (port->touch[i] & 1) {
			df += s[p] * ((cnt[p] > 0) - (sinks > cnt[p]));
			dt += s[q] * ((sinks > cnt[q]) - (cnt[q] > 0));
			continue;
		}
		int home = port->place[a->at[port->source[e]]];
		if (p == home)
			df += s[p] * (sinks == cnt[p]);
		else
			df -= s[p] * (cnt[p] == 1);
		if (q == home)
			dt -= s[q] * (sinks == cnt[q] + 1);
		else
			dt += s[q] * (cnt[q] == 0);
	}
	*at_from = df;
	*at_to = dt;
}

static bool may(const struct state *a, int c, int to)
{
	const struct dlb_port *port = a->port;
	return isfinite(port->work_s[(size_t)c * (size_t)port->n_nodes + (size_t)to]) &&
	       (a->soft || a->used[to] + port->bytes[c] <= port->room_bytes[to]);
}

static void move(struct state *a, int c, int to, double df, double dt)
{
	const struct dlb_port *port = a->port;
	int from = a->at[c], p = port->place[from], q = port->place[to];
	if (p != q)
		for (int i = port->touch_start[c]; i < port->touch_start[c + 1]; i++) {
			if (port->touch[i] & 1)
				continue;
			a->cnt[(port->touch[i] >> 1) * port->n_places + p]--;
			a->cnt[(port->touch[i] >> 1) * port->n_places + q]++;
		}
	size_t n = (size_t)port->n;
	int last = a->member[(size_t)from * n + (size_t)--a->size[from]];
	a->member[(size_t)from * n + (size_t)a->pos[c]] = last;
	a->pos[last] = a->pos[c];
	a->pos[c] = a->size[to];
	a->member[(size_t)to * n + (size_t)a->size[to]++] = c;
	a->at[c] = to;
	a->used[from] -= port->bytes[c];
	a->used[to] += port->bytes[c];
	a->load[from] += df;
	a->load[to] += dt;
	double f = to_power(a, burden(a, from, a->load[from], a->used[from])), t = to_power(a, burden(a, to, a->load[to], a->used[to]));
	a->energy += f - a->power[from] + t - a->power[to];
	a->power[from] = f;
	a->power[to] = t;
}

static void find_near(struct state *a)
{
	const struct dlb_port *port = a->port;
	size_t n = (size_t)port->n;
	int cap = 0, m = 0, *seen = dlb_xmalloc((n + 1) * sizeof *seen);
	memset(seen, -1, (n + 1) * sizeof *seen);
	a->near_start = dlb_xcalloc(n + 2, sizeof *a->near_start);
	for (int c = 0; c < port->n; c++) {
		seen[c] = c;
		for (int i = port->touch_start[c]; i < port->touch_start[c + 1]; i++) {
			int e = port->touch[i] >> 1, first = port->sink_start[e], last = port->sink_start[e + 1];
			for (int k = first - 1; k < (last - first > MANY ? first : last); k++) {
				int o = k < first ? port->source[e] : port->sink[k];
				if (seen[o] == c)
					continue;
				seen[o] = c;
				DLB_GROW(a->near, m, cap);
				a->near[m++] = o;
			}
		}
		a->near_start[c + 1] = m;
	}
	free(seen);
}

static int below(struct state *a, int n)
{
	return (int)((dlb_rng_next(&a->s->rng) >> 32) * (uint64_t)n >> 32);
}

static int busiest(const struct state *a)
{
	int most = 0;
	for (int d = 1; d < a->port->n_nodes; d++)
		if (a->load[d] > a->load[most])
			most = d;
	return most;
}

static int neighbour(struct state *a, int c)
{
	int n = a->near_start[c + 1] - a->near_start[c];
	return n ? a->near[a->near_start[c] + below(a, n)] : -1;
}

struct step { int class, from; };

/* Moves c, notes it; false when it may not. */
static bool push(struct state *a, struct step *done, int *n, int c, int to)
{
	double df, dt;
	if (a->at[c] == to || !may(a, c, to))
		return false;
	gains(a, c, to, &df, &dt);
	done[(*n)++] = (struct step){ c, a->at[c] };
	move(a, c, to, df, dt);
	return true;
}

static bool accepts(struct state *a, double energy, double hot)
{
	if (energy <= a->energy)
		return true;
	double u = dlb_rng_uniform(&a->s->rng);
	return log(energy / a->energy) < -a->q * hot * log(u > 0 ? u : 1e-300);
}

/* One class to another node, tried before it is done. */
static bool try_one(struct state *a, int c, int to, double hot)
{
	double df, dt;
	int from = a->at[c];
	if (to == from || !may(a, c, to))
		return false;
	gains(a, c, to, &df, &dt);
	double bytes = a->port->bytes[c], energy = a->energy - a->power[from] - a->power[to] +
		to_power(a, burden(a, from, a->load[from] + df, a->used[from] - bytes)) +
		to_power(a, burden(a, to, a->load[to] + dt, a->used[to] + bytes));
	if (!accepts(a, energy, hot))
		return false;
	move(a, c, to, df, dt);
	return true;
}

/* Several moves at once; undone together when they do not please. */
static bool try_many(struct state *a, struct step *done, int n, double before, double hot)
{
	double after = a->energy;
	a->energy = before;
	bool good = n > 0 && accepts(a, after, hot);
	a->energy = after;
	while (!good && n > 0) {
		double df, dt;
		n--;
		gains(a, done[n].class, done[n].from, &df, &dt);
		move(a, done[n].class, done[n].from, df, dt);
	}
	return good;
}

static bool try_swap(struct state *a, int c, int to, double hot)
{
	struct step done[2];
	int n = 0, from = a->at[c];
	double before = a->energy;
	if (to == from || !a->size[to])
		return false;
	int other = a->member[(size_t)to * (size_t)a->port->n + (size_t)below(a, a->size[to])];
	bool ok = push(a, done, &n, c, to) ? push(a, done, &n, other, from) :
		  push(a, done, &n, other, from) && push(a, done, &n, c, to);
	if (ok)
		return try_many(a, done, n, before, hot);
	try_many(a, done, n, 0, 0);			/* half done: back */
	return false;
}

/* A clump of 2 .. CLUMP - 1 neighbours of one node. */
static bool try_clump(struct state *a, int c, int to, double hot)
{
	struct step done[CLUMP];
	int n = 0, from = a->at[c], want = 2 + below(a, CLUMP - 2);
	double before = a->energy;
	if (to == from || !push(a, done, &n, c, to))
		return false;
	for (int tries = 0; n < want && tries < 3 * CLUMP; tries++) {
		int o = neighbour(a, done[below(a, n)].class);
		if (o >= 0 && a->at[o] == from)
			push(a, done, &n, o, to);
	}
	return try_many(a, done, n, before, hot);
}

static bool propose(struct state *a, double hot)
{
	const struct dlb_port *port = a->port;
	int kind = below(a, 100), c = below(a, port->n), to = below(a, port->n_nodes);
	if (below(a, 4) == 0) {
		int d = busiest(a);
		if (a->size[d])
			c = a->member[(size_t)d * (size_t)port->n + (size_t)below(a, a->size[d])];
	}
	if (kind < 55 || (kind >= 80 && below(a, 4))) {
		int o = neighbour(a, c);
		if (o >= 0)
			to = a->at[o];
	}
	return kind < 65 ? try_one(a, c, to, hot) : kind < 80 ? try_swap(a, c, to, hot) : try_clump(a, c, to, hot);
}

static void keep_best(struct state *a)
{
	double most = 0;
	for (int d = 0; d < a->port->n_nodes; d++) {
		most = a->load[d] > most ? a->load[d] : most;
		if (a->soft && a->used[d] > a->port->room_bytes[d])
			return;
	}
	if (most >= a->s->best_s * (1 - 1e-12))
		return;
	most = dlb_port_throughput_s(a->port, a->at, a->load);	/* without what rounding has left */
	if (most >= a->s->best_s)
		return;
	a->s->best_s = most;
	memcpy(a->s->best, a->at, (size_t)a->port->n * sizeof *a->at);
}

void dlb_anneal_throughput(struct dlb_search *s, int *from, int64_t proposals, double hot, bool soft)
{
	const struct dlb_port *port = s->port;
	size_t n = (size_t)port->n, D = (size_t)port->n_nodes;
	struct state a = { .s = s, .port = port, .at = from, .soft = soft, .strength = 1 };
	a.cnt = dlb_xcalloc((size_t)port->n_nets * (size_t)port->n_places + 1, sizeof *a.cnt);
	a.load = dlb_xcalloc(D, sizeof *a.load);
	a.used = dlb_xcalloc(D, sizeof *a.used);
	a.power = dlb_xcalloc(D, sizeof *a.power);
	a.member = dlb_xcalloc(D * n + 1, sizeof *a.member);
	a.pos = dlb_xcalloc(n + 1, sizeof *a.pos);
	a.size = dlb_xcalloc(D, sizeof *a.size);
	find_near(&a);
	count_all(&a);
	set_exponent(&a, 3, s->best_s);
	double cold = 2e-6, t = hot, cool = pow(cold / hot, (double)CHECK / (double)proposals);
	for (int64_t i = 0; i < proposals; i++) {
		if (i % CHECK == 0) {
			t = hot * pow(cool, (double)i / CHECK);
			double done = (double)i / (double)proposals;
			a.strength = pow(100, done);
			set_exponent(&a, done < 0.3 ? 3 : done < 0.55 ? 4 : done < 0.75 ? 5 : done < 0.9 ? 6 : 7, s->best_s);
			s->budget -= CHECK;
			if (dlb_search_over(s))
				break;
		}
		if (propose(&a, t))
			keep_best(&a);
	}
	free(a.cnt);
	free(a.load);
	free(a.used);
	free(a.power);
	free(a.member);
	free(a.pos);
	free(a.size);
	free(a.near);
	free(a.near_start);
}
