/* Values that no placement under the port model can go below.
 *
 * Throughput, the greatest of
 *
 *   load   work over speed, and memory for it; transfers left out (bound.c)
 *   cut    class g stands on some node d, in a set S of classes. Where d has a port, it pays for every net with pins both
 *          in S and outside, sent or taken in: a cut of the hypergraph. So its load is at least
 *
 *              min over S with g in S of  sum of work(v,d), v in S  +  sum of c(e,d), e cut by S
 *
 *          a minimum cut of the network in which v -> sink holds work(v,d), and each net is an arc that holds c(e,d) with
 *          endless arcs from its pins to its tail and from its head to its pins (Lawler, Networks 3, 1973). Classes without
 *          room beside g are kept out of S by endless arcs to the sink. On a host it is at least work(g,d). Say cut(g,d)
 *          for either.
 *   both   below a value V every class stands where cut(g,d) < V; so no value is less than V or than the load bound of what
 *          is left when g may not be where cut(g,d) >= V, whichever is less. With V the latter shrinks: the best V is
 *          found by bisection among all cuts. That holds the bound of single classes (none may be anywhere) in it.
 *
 * Latency: latency_bound.c. */
#include <math.h>
#include <stdlib.h>
#include "place/min_cut.h"
#include "place/port.h"

/* ---- cuts ---- */

struct cuts { int n_kinds, *kind, *kind_of; struct dlb_min_cut *net; };	/* [kind] a node of it; [node]; [kind], sink n + 2 n_nets */

static void make_network(const struct dlb_port *port, int d, struct dlb_min_cut *c)
{
	int sink = port->n + 2 * port->n_nets;
	dlb_min_cut_init(c, sink + 1);
	for (int v = 0; v < port->n; v++)		/* arc 2 v */
		dlb_min_cut_arc(c, v, sink, port->work_s[(size_t)v * (size_t)port->n_nodes + (size_t)d]);
	for (int e = 0; e < port->n_nets; e++) {
		int tail = port->n + 2 * e, head = tail + 1;
		dlb_min_cut_arc(c, tail, head, port->net_s[(size_t)e * (size_t)port->n_places + (size_t)port->place[d]]);
		for (int k = port->sink_start[e] - 1; k < port->sink_start[e + 1]; k++) {
			int pin = k < port->sink_start[e] ? port->source[e] : port->sink[k];
			dlb_min_cut_arc(c, pin, tail, INFINITY);
			dlb_min_cut_arc(c, head, pin, INFINITY);
		}
	}
}

/* Of g on node d, whose network c is. What has no room there beside g is not in S: its arc to the sink is endless. */
static double least_cut(const struct dlb_port *port, int d, struct dlb_min_cut *c, int g, int64_t *budget)
{
	const double *work = &port->work_s[d], room = port->room_bytes[d], own = port->bytes[g];
	for (int v = 0; v < port->n; v++)
		c->given[2 * v] = v != g && own + port->bytes[v] > room ? INFINITY : work[(size_t)v * (size_t)port->n_nodes];
	*budget -= port->n;
	return dlb_min_cut_value(c, g, port->n + 2 * port->n_nets, budget);
}

/* The load of g's node, could it stand alone: what the cut is at most. */
static double alone_s(const struct dlb_port *port, int g, int d)
{
	double s = port->work_s[(size_t)g * (size_t)port->n_nodes + (size_t)d];
	if (port->host[port->place[d]])
		return s;
	for (int i = port->touch_start[g]; i < port->touch_start[g + 1]; i++)
		s += port->net_s[(size_t)(port->touch[i] >> 1) * (size_t)port->n_places + (size_t)port->place[d]];
	return s;
}

struct alone { double s; int class; };
static int dearest_first(const void *a, const void *b)
{
	const struct alone *x = a, *y = b;
	return x->s != y->s ? (x->s > y->s ? -1 : 1) : (x->class > y->class) - (x->class < y->class);
}

/* cut[class][kind]; where no more is known, the work. Those that might lift the bound first, while the budget lasts. */
static double *find_cuts(const struct dlb_port *port, struct cuts *c, double enough)
{
	enum { LOOKS = 30000000 /* a tenth of a second or two */ };
	size_t K = (size_t)c->n_kinds;
	double *cut = dlb_xcalloc((size_t)port->n * K + 1, sizeof *cut);
	struct alone *list = dlb_xcalloc((size_t)port->n + 1, sizeof *list);
	int64_t budget = LOOKS;
	for (size_t g = 0; g < (size_t)port->n; g++) {
		list[g] = (struct alone){ INFINITY, (int)g };
		for (size_t k = 0; k < K; k++) {
			cut[g * K + k] = port->bytes[g] > port->room_bytes[c->kind[k]] ? INFINITY :
					 port->work_s[g * (size_t)port->n_nodes + (size_t)c->kind[k]];
			if (!port->host[port->place[c->kind[k]]])
				list[g].s = fmin(list[g].s, alone_s(port, (int)g, c->kind[k]));
		}
	}
	qsort(list, (size_t)port->n, sizeof *list, dearest_first);
	for (int i = 0; i < port->n && list[i].s > enough; i++) {
		for (size_t k = 0; k < K && budget > 0 && isfinite(list[i].s); k++) {
			double *own = &cut[(size_t)list[i].class * K + k];
			if (port->host[port->place[c->kind[k]]] || isinf(*own))
				continue;
			if (!c->net[k].n)
				make_network(port, c->kind[k], &c->net[k]);
			*own = fmax(*own, least_cut(port, c->kind[k], &c->net[k], list[i].class, &budget));
		}
	}
	free(list);
	return cut;
}

static int ascending(const void *a, const void *b)
{
	const double *x = a, *y = b;
	return (*x > *y) - (*x < *y);
}

/* The load bound where no class may be where its cut is V or more; INFINITY: one may be nowhere. work: room for [class][node]. */
static double restricted_s(const struct dlb_port *port, const int *kind_of, int n_kinds, const double *cut, double V, double *work)
{
	size_t D = (size_t)port->n_nodes;
	for (size_t g = 0; g < (size_t)port->n; g++) {
		bool some = false;
		for (size_t d = 0; d < D; d++) {
			bool may = cut[g * (size_t)n_kinds + (size_t)kind_of[d]] < V;
			work[g * D + d] = may ? port->work_s[g * D + d] : INFINITY;
			some |= may;
		}
		if (!some)
			return INFINITY;
	}
	return dlb_load_bound_s(work, port->bytes, port->room_bytes, port->n, port->n_nodes);
}

static double throughput_bound(const struct dlb_port *port)
{
	enum { LARGE = 200000, FEW = 4 };		/* classes times nodes; load bounds then */
	size_t D = (size_t)port->n_nodes, n = (size_t)port->n;
	double best = dlb_load_bound_s(port->work_s, port->bytes, port->room_bytes, port->n, port->n_nodes);
	struct cuts c = { .n_kinds = 0 };
	c.kind = dlb_xcalloc(D + 1, sizeof *c.kind);
	c.kind_of = dlb_xcalloc(D + 1, sizeof *c.kind_of);
	c.n_kinds = dlb_port_kinds(port, c.kind_of, c.kind);
	c.net = dlb_xcalloc((size_t)c.n_kinds + 1, sizeof *c.net);
	double *cut = find_cuts(port, &c, best), *value = dlb_xcalloc(n * (size_t)c.n_kinds + 1, sizeof *value);
	double *work = dlb_xmalloc((n * D + 1) * sizeof *work);
	int m = 0, low = 0, turns = n * D <= LARGE ? 64 : FEW;
	for (size_t i = 0; i < n * (size_t)c.n_kinds; i++)
		if (isfinite(cut[i]) && cut[i] > best)
			value[m++] = cut[i];
	qsort(value, (size_t)m, sizeof *value, ascending);
	for (int high = m; low < high && turns-- > 0;) {	/* below low the value is the lesser, from high on the load */
		int mid = (low + high) / 2;
		double s = restricted_s(port, c.kind_of, c.n_kinds, cut, value[mid], work);
		best = fmax(best, fmin(s, value[mid]));
		if (s >= value[mid])
			low = mid + 1;
		else
			high = mid;
	}
	for (int k = 0; k < c.n_kinds; k++)
		dlb_min_cut_release(&c.net[k]);
	free(c.net);
	free(c.kind);
	free(c.kind_of);
	free(cut);
	free(value);
	free(work);
	return best;
}

double dlb_port_bound_s(const struct dlb_port *port, bool latency)
{
	return (latency ? dlb_latency_bound_s(port) : throughput_bound(port)) * (1 - 1e-9);
}
