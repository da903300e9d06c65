/* The best contiguous placement of a port problem; isolated classes are placed after the others.
 *
 * A class without edges and nets can be in any difference of a chain of ideals, so each such class doubles
 * the number of ideals: a dozen are too many for dp. dp leaves them out; then they are placed, the longest
 * first, where there is room. They can only make a placement longer, so the optimum V without them is a
 * lower bound for all classes. If they fit in without exceeding V, the whole placement is optimal:
 *
 *     throughput  each goes to the node that has the least load with it
 *     latency     each goes to a host if it takes at most V there, in parallel to the rest, at no cost; else
 *                 to the node where it takes least time, and lengthens one call by that time
 *
 * If they exceed V, dp runs with all classes, within a limit of steps, and with the value found as its
 * upper bound. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "place/ideals.h"

enum { ISOLATED_STEPS = 100000000 /* a few seconds */ };

struct isolated { int class; double s, bytes; };		/* s: seconds on its fastest node */

static bool *find_joined(const struct dlb_port *port)
{
	bool *joined = dlb_xcalloc((size_t)port->n + 1, sizeof *joined);
	for (int c = 0; c < port->n; c++) {
		joined[c] |= port->touch_start[c] < port->touch_start[c + 1];
		for (int k = port->forward_start[c]; k < port->forward_start[c + 1]; k++)
			joined[c] = joined[port->forward[k]] = true;
	}
	return joined;
}

static int longest_first(const void *a, const void *b)
{
	const struct isolated *x = a, *y = b;
	return x->s != y->s ? (x->s > y->s ? -1 : 1) : (x->class > y->class) - (x->class < y->class);
}

static int largest_first(const void *a, const void *b)
{
	const struct isolated *x = a, *y = b;
	return x->bytes != y->bytes ? (x->bytes > y->bytes ? -1 : 1) : longest_first(a, b);
}

/* A lower bound of the value with class c on node d. */
static double with(const struct dlb_port *port, bool latency, const double *load, double value, int c, int d)
{
	double s = port->work_s[(size_t)c * (size_t)port->n_nodes + (size_t)d];
	if (!latency)
		return load[d] + s;
	return port->host[port->place[d]] ? fmax(s, value) : value + s;
}

/* The classes that are not isolated, their placement and its value. */
struct placed { struct dlb_port port; int *at; double value; };

/* Adds the isolated classes to the placement of the others, in at[]. Returns the value with them; INFINITY:
 * no room. */
static double fill(const struct dlb_port *port, bool latency, const struct isolated *list, int n,
		   const struct placed *rest, int *at)
{
	double value = rest->value;
	size_t D = (size_t)port->n_nodes;
	double *load = dlb_xcalloc(D, sizeof *load), *room = dlb_xmalloc(D * sizeof *room);
	dlb_port_throughput_s(&rest->port, rest->at, load);
	memcpy(room, port->room_bytes, D * sizeof *room);
	for (int c = 0; c < rest->port.n; c++)
		room[rest->at[c]] -= rest->port.bytes[c];
	for (int i = 0; i < n && isfinite(value); i++) {
		int c = list[i].class, to = -1;
		for (int d = 0; d < port->n_nodes; d++)
			if (list[i].bytes <= room[d] && isfinite(port->work_s[(size_t)c * D + (size_t)d]) &&
			    (to < 0 || with(port, latency, load, value, c, d) <
					       with(port, latency, load, value, c, to)))
				to = d;
		if (to < 0) {
			value = INFINITY;
		} else {
			value = fmax(value, with(port, latency, load, value, c, to));
			load[to] += port->work_s[(size_t)c * D + (size_t)to];
			room[to] -= list[i].bytes;
			at[c] = to;
		}
	}
	free(load);
	free(room);
	return value;
}

/* The number of orders, at least one, whose prefixes take at most most_steps in all, n^2 / 2 each (0: no
 * limit). */
static int n_orders(const struct dlb_port *port, int64_t most_steps)
{
	enum { MOST_ORDERS = 8 };
	int64_t each = ((int64_t)port->n * port->n) / 2 + 1,
		n = most_steps > 0 ? most_steps / each : MOST_ORDERS;
	return n < 1 ? 1 : n < MOST_ORDERS ? (int)n : MOST_ORDERS;
}

/* Runs dp for latency over all ideals of chains of classes; the chains get shorter from run to run, while the
 * ideals are few. Returns the lower of `value` and the value found; at[] changes only if the latter is
 * lower. */
static double parts_of_chains(const struct dlb_port *port, const struct dlb_dp_limits *limits, double value,
			      int *at)
{
	enum { FEW_IDEALS = 4000, LONGEST = 16, SHORTEST = 1024 };
	size_t n = (size_t)port->n + 1;
	int *map = dlb_xcalloc(n, sizeof *map), *last = dlb_xmalloc(n * sizeof *last),
	    *found = dlb_xcalloc(n, sizeof *found);
	bool few = true;
	memset(last, -1, n * sizeof *last);
	for (int n_chains = LONGEST; few && n_chains <= SHORTEST; n_chains *= 2) {
		struct dlb_port coarse;
		struct dlb_ideals s;
		dlb_port_join_chains(port, n_chains, &coarse, map);
		const bool same = memcmp(map, last, n * sizeof *map) == 0;
		few = coarse.n < port->n && (same || dlb_ideals_all(&s, &coarse, FEW_IDEALS));
		if (few && !same) {
			double chains = dlb_dp(&s, &coarse, true, value * (1 + 1e-9), limits, found);
			for (int c = 0; c < port->n && chains < value; c++)
				at[c] = found[map[c]];
			value = fmin(value, chains);
			dlb_ideals_release(&s);
		}
		memcpy(last, map, n * sizeof *last);
		dlb_port_release(&coarse);
	}
	free(map);
	free(last);
	free(found);
	return value;
}

/* Runs dp over the ideals of a few orders and, for latency, of chains; then over all ideals, within the
 * limits. reached: the value of the placement in at[] (INFINITY: none); at[] changes only if a lower value is
 * found. */
static double parts(const struct dlb_port *port, bool latency, const struct dlb_dp_limits *limits,
		    double reached, int *at, enum dlb_dp_beyond *beyond)
{
	struct dlb_ideals s;
	int *found = dlb_xcalloc((size_t)port->n + 1, sizeof *found);
	size_t size = (size_t)port->n * sizeof *found;
	dlb_ideals_orders(&s, port, n_orders(port, limits->most_steps), 1);
	double value = dlb_dp(&s, port, latency, INFINITY, NULL, found);
	dlb_ideals_release(&s);
	if (value < reached)
		memcpy(at, found, size);
	else
		value = reached;
	if (latency)
		value = parts_of_chains(port, limits, value, at);
	*beyond = DLB_DP_IDEALS;
	if (dlb_ideals_all(&s, port, limits->most_ideals)) {
		double all = dlb_dp(&s, port, latency, value * (1 + 1e-9), limits, found);
		*beyond = isfinite(all) ? DLB_DP_NOTHING : DLB_DP_STEPS;
		if (isfinite(all)) {
			value = all;
			memcpy(at, found, size);
		}
		dlb_ideals_release(&s);
	}
	free(found);
	return value;
}

/* The same, with isolated classes placed afterwards. If the result is not proved optimal, dp runs again with
 * all classes. */
static double parts_and_isolated(const struct dlb_port *port, bool latency,
				 const struct dlb_dp_limits *limits, struct isolated *list, int n, int *at,
				 enum dlb_dp_beyond *beyond)
{
	struct placed rest;
	int *map = dlb_xcalloc((size_t)port->n + 1, sizeof *map), n_rest = 0;
	int *trial = dlb_xcalloc((size_t)port->n + 1, sizeof *trial);
	rest.at = dlb_xcalloc((size_t)port->n + 1, sizeof *rest.at);
	for (int i = 0; i < n; i++)
		map[list[i].class] = -1;
	for (int c = 0; c < port->n; c++)
		map[c] = map[c] < 0 ? -1 : n_rest++;
	dlb_port_coarsen(port, map, n_rest, &rest.port);
	double alone = parts(&rest.port, latency, limits, INFINITY, rest.at, beyond), value = INFINITY;
	rest.value = alone;
	for (int c = 0; c < port->n; c++)
		at[c] = trial[c] = map[c] < 0 ? 0 : rest.at[map[c]];
	for (int turn = 0; turn < 2 && isfinite(alone) && !(value <= alone); turn++) {
		qsort(list, (size_t)n, sizeof *list, turn ? largest_first : longest_first);
		double v = fill(port, latency, list, n, &rest, trial);
		if (v < value) {
			value = v;
			memcpy(at, trial, (size_t)port->n * sizeof *at);
		}
	}
	if (*beyond == DLB_DP_NOTHING && !(value <= alone)) {
		struct dlb_dp_limits fewer = *limits;
		if (fewer.most_steps <= 0 || fewer.most_steps > ISOLATED_STEPS)
			fewer.most_steps = ISOLATED_STEPS;
		value = parts(port, latency, &fewer, value, at, beyond);
	}
	dlb_port_release(&rest.port);
	free(map);
	free(rest.at);
	free(trial);
	return value;
}

double dlb_contiguous(const struct dlb_port *port, bool latency, const struct dlb_dp_limits *limits, int *at,
		      enum dlb_dp_beyond *beyond)
{
	struct dlb_port coarse;
	int *map = dlb_xmalloc(((size_t)port->n + 1) * sizeof *map), n = 0;
	dlb_port_contract(port, &coarse, map);
	int *where = dlb_xcalloc((size_t)coarse.n + 1, sizeof *where);
	bool *joined = find_joined(&coarse);
	struct isolated *list = dlb_xcalloc((size_t)coarse.n + 1, sizeof *list);
	for (int c = 0; c < coarse.n; c++) {
		double least = INFINITY;
		for (int d = 0; d < coarse.n_nodes; d++)
			least = fmin(least, coarse.work_s[(size_t)c * (size_t)coarse.n_nodes + (size_t)d]);
		if (!joined[c] && n < coarse.n - 1)	/* at least one class stays */
			list[n++] = (struct isolated){ c, least, coarse.bytes[c] };
	}
	double value = n ? parts_and_isolated(&coarse, latency, limits, list, n, where, beyond) :
			   parts(&coarse, latency, limits, INFINITY, where, beyond);
	for (int c = 0; c < port->n; c++)
		at[c] = where[map[c]];
	free(map);
	free(where);
	free(joined);
	free(list);
	dlb_port_release(&coarse);
	return value;
}
