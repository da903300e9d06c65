/* Lower bounds on the value of every placement under the port model.
 *
 * Throughput, the greatest of
 *
 *   load   work over speed, and memory for it; transfers left out (bound.c)
 *   cut    class g is on some node d, in a set S of classes. If d has a port, it transfers every net with
 *          pins both in S and outside: a cut of the hypergraph. So its load is at least
 *
 *              min over S with g in S of  sum of work(v,d), v in S  +  sum of c(e,d), e cut by S
 *
 *          a minimum cut of the network in which v -> sink has capacity work(v,d), and each net is an arc of capacity c(e,d)
 *          with infinite arcs from its pins to its tail and from its head to its pins (Lawler, Networks 3, 1973). Infinite
 *          arcs to the sink keep classes without room beside g out of S. On a host the load is at least work(g,d). cut(g,d)
 *          is either bound.
 *   both   in a placement of value below V every class g is on a node with cut(g,d) < V. So every value is
 *          at least the minimum of V and the load bound with g kept off nodes with cut(g,d) >= V. The latter
 *          falls as V rises: the best V is found by bisection among all cuts. This includes the bound of
 *          single classes (no node is left for one).
 *
 * Latency: latency_bound.c. */
#include <math.h>
#include <stdlib.h>
#include "place/min_cut.h"
#include "place/port.h"

/* ---- cuts ---- */

/* kind: [kind] one of its nodes; kind_of: [node]; net: [kind] network, whose sink is n + 2 n_nets */
struct cuts { int n_kinds, *kind, *kind_of; struct dlb_min_cut *net; };

static void make_network(const struct dlb_port *port, int d, struct dlb_min_cut *c)
{
	int sink = port->n + 2 * port->n_nets;
	dlb_min_cut_init(c, sink + 1);
	for (int v = 0; v < port->n; v++)		/* arc 2 v */
		dlb_min_cut_arc(c, v, sink, port->work_s[(size_t)v * (size_t)port->n_nodes + (size_t)d]);
	for (int e = 0; e < port->n_nets; e++) {
		int tail = port->n + 2 * e, head = tail + 1;
		dlb_min_cut_arc(c, tail, head,
				port->net_s[(size_t)e * (size_t)port->n_places + (size_t)port->place[d]]);
		for (int k = port->sink_start[e] - 1; k < port->sink_start[e + 1]; k++) {
			int pin = k < port->sink_start[e] ? port->source[e] : port->sink[k];
			dlb_min_cut_arc(c, pin, tail, INFINITY);
			dlb_min_cut_arc(c, head, pin, INFINITY);
		}
	}
}

/* The minimum cut of class g on node d, with network c. Classes without room beside g on d get infinite arcs
 * to the sink. */
static double least_cut(const struct dlb_port *port, int d, struct dlb_min_cut *c, int g, int64_t *budget)
{
	const double *work = &port->work_s[d], room = port->room_bytes[d], own = port->bytes[g];
	for (int v = 0; v < port->n; v++)
		c->given[2 * v] = v != g && own + port->bytes[v] > room ?
					  INFINITY :
					  work[(size_t)v * (size_t)port->n_nodes];
	*budget -= port->n;
	return dlb_min_cut_value(c, g, port->n + 2 * port->n_nets, budget);
}

/* The load of node d with g alone, an upper bound of the cut. */
static double alone_s(const struct dlb_port *port, int g, int d)
{
	double s = port->work_s[(size_t)g * (size_t)port->n_nodes + (size_t)d];
	if (port->host[port->place[d]])
		return s;
	for (int i = port->touch_start[g]; i < port->touch_start[g + 1]; i++)
		s += port->net_s[(size_t)(port->touch[i] >> 1) * (size_t)port->n_places +
				 (size_t)port->place[d]];
	return s;
}

struct alone { double s; int class; };
static int dearest_first(const void *a, const void *b)
{
	const struct alone *x = a, *y = b;
	return x->s != y->s ? (x->s > y->s ? -1 : 1) : (x->class > y->class) - (x->class < y->class);
}

/* Returns cut[class][kind], new; an entry without a computed cut is the class's work. Cuts are computed while
 * the budget lasts, first for the classes that can raise the bound most. enough: the bound so far. */
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

/* The load bound with every class kept off nodes where its cut is V or more; INFINITY: no node is left for
 * one. work: scratch [class][node]. */
static double restricted_s(const struct dlb_port *port, const int *kind_of, int n_kinds, const double *cut,
			   double V, double *work)
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
	/* with more than LARGE classes times nodes, only FEW load bounds are computed */
	enum { LARGE = 200000, FEW = 4 };
	size_t D = (size_t)port->n_nodes, n = (size_t)port->n;
	double best = dlb_load_bound_s(port->work_s, port->bytes, port->room_bytes, port->n, port->n_nodes);
	struct cuts c = { .n_kinds = 0 };
	c.kind = dlb_xcalloc(D + 1, sizeof *c.kind);
	c.kind_of = dlb_xcalloc(D + 1, sizeof *c.kind_of);
	c.n_kinds = dlb_port_kinds(port, c.kind_of, c.kind);
	c.net = dlb_xcalloc((size_t)c.n_kinds + 1, sizeof *c.net);
	double *cut = find_cuts(port, &c, best),
	       *value = dlb_xcalloc(n * (size_t)c.n_kinds + 1, sizeof *value);
	double *work = dlb_xmalloc((n * D + 1) * sizeof *work);
	int m = 0, low = 0, turns = n * D <= LARGE ? 64 : FEW;
	for (size_t i = 0; i < n * (size_t)c.n_kinds; i++)
		if (isfinite(cut[i]) && cut[i] > best)
			value[m++] = cut[i];
	qsort(value, (size_t)m, sizeof *value, ascending);
	/* s, the load bound at V = value[i]: value[i] <= s for i < low; s < value[i] for i >= high */
	for (int high = m; low < high && turns-- > 0;) {
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
