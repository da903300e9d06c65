/* Multilevel annealing, as in graph partitioning (Karypis and Kumar, SIAM J. Sci. Comput. 20, 1998):
 * heavy-edge matching with bounded weights coarsens the graph of classes level by level, until few
 * clusters are left. These are annealed at a high temperature, where one move does the work of hundreds;
 * then each finer level is annealed from there, ever cooler. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "place/search.h"

enum { LEVELS = 12, FEWEST = 48, CLUMPS = 6 /* a node has room for this many clusters */ };

struct level { struct dlb_port port; int *map; };	/* map[class of the finer level] */

/* Seconds of a class on its best node. */
static double least_work_s(const struct dlb_port *port, int c)
{
	const double *w = &port->work_s[(size_t)c * (size_t)port->n_nodes];
	double least = INFINITY;

	for (int d = 0; d < port->n_nodes; d++)
		least = w[d] < least ? w[d] : least;
	return least;
}

static bool may_be_one(const struct dlb_port *port, int a, int b)
{
	const size_t D = (size_t)port->n_nodes;

	for (size_t d = 0; d < D; d++)
		if (isfinite(port->work_s[(size_t)a * D + d] + port->work_s[(size_t)b * D + d]))
			return true;
	return false;
}

struct class_matching {
	const struct dlb_port *port;
	const int *at;				/* NULL: any pairs; else pairs on one node only */
	double *work, *rating;			/* [class] */
	double most_work, most_bytes;
	int *mate, *seen;			/* [class]; neighbours of one class */
};

/* The unmatched neighbour with the heaviest edge to class c relative to its weight; -1: none. */
static int heaviest(struct class_matching *m, int c)
{
	const struct dlb_port *port = m->port;
	int n = 0, to = -1;
	double most = 0;

	for (int i = port->touch_start[c]; i < port->touch_start[c + 1]; i++) {
		int e = port->touch[i] >> 1, first = port->sink_start[e], last = port->sink_start[e + 1];
		double share = dlb_port_net_s(port, e) / (last - first);

		for (int k = first - 1; k < last; k++) {
			int o = k < first ? port->source[e] : port->sink[k];

			if (o == c || m->mate[o] >= 0)
				continue;
			if (m->rating[o] < 0) {
				m->rating[o] = 0;
				m->seen[n++] = o;
			}
			m->rating[o] += share;
		}
	}
	while (n) {
		int o = m->seen[--n];
		double weight = m->work[c] + m->work[o],
		       rating = m->rating[o] / (weight + 1e-3 * m->most_work);

		m->rating[o] = -1;
		if (rating > most && weight <= m->most_work &&
		    port->bytes[c] + port->bytes[o] <= m->most_bytes && (!m->at || m->at[c] == m->at[o]) &&
		    may_be_one(port, c, o)) {
			most = rating;
			to = o;
		}
	}
	return to;
}

static void shuffle(struct dlb_rng *rng, int *order, int n)
{
	for (int i = 0; i < n; i++)
		order[i] = i;
	for (int i = n - 1; i > 0; i--) {
		int j = (int)((dlb_rng_next(rng) >> 32) * (uint64_t)(i + 1) >> 32), t = order[i];

		order[i] = order[j];
		order[j] = t;
	}
}

/* Matches pairs of classes: map[class] -> coarse class. Returns the number of coarse classes. */
static int match(const struct dlb_port *port, struct dlb_rng *rng, const int *at, double most_work,
		 double most_bytes, int *map)
{
	size_t n = (size_t)port->n;
	struct class_matching m = {
		.port = port, .at = at, .most_work = most_work, .most_bytes = most_bytes
	};
	int *order = dlb_xmalloc((n + 1) * sizeof *order), k = 0;

	m.work = dlb_xmalloc((n + 1) * sizeof *m.work);
	m.rating = dlb_xmalloc((n + 1) * sizeof *m.rating);
	m.mate = dlb_xmalloc((n + 1) * sizeof *m.mate);
	m.seen = dlb_xmalloc((n + 1) * sizeof *m.seen);
	for (int c = 0; c < port->n; c++) {
		m.work[c] = least_work_s(port, c);
		m.rating[c] = -1;
		m.mate[c] = -1;
	}
	shuffle(rng, order, port->n);
	for (int i = 0; i < port->n; i++) {
		int c = order[i], o = m.mate[c] < 0 ? heaviest(&m, c) : -1;

		if (o >= 0) {
			m.mate[c] = o;
			m.mate[o] = c;
		}
	}
	for (int c = 0; c < port->n; c++)
		map[c] = m.mate[c] >= 0 && m.mate[c] < c ? map[m.mate[c]] : k++;
	free(order);
	free(m.work);
	free(m.rating);
	free(m.mate);
	free(m.seen);
	return k;
}

/* The placement of coarse classes: each on the node that has most of its work. */
static void lift(const struct dlb_port *fine, const struct dlb_port *coarse, const int *map, const int *at,
		 int *up)
{
	size_t D = (size_t)coarse->n_nodes;
	double *votes = dlb_xcalloc((size_t)coarse->n * D + 1, sizeof *votes);

	for (int c = 0; c < fine->n; c++)
		votes[(size_t)map[c] * D + (size_t)at[c]] += least_work_s(fine, c) + 1e-12;
	for (int c = 0; c < coarse->n; c++) {
		int most = -1;

		for (size_t d = 0; d < D; d++)
			if (isfinite(coarse->work_s[(size_t)c * D + d]) &&
			    (most < 0 || votes[(size_t)c * D + d] > votes[(size_t)c * D + (size_t)most]))
				most = (int)d;
		up[c] = most;
	}
	free(votes);
}

/* Anneals a level from `at`, which becomes the best placement found. */
static void cool(struct dlb_search *s, const struct dlb_port *port, int *at, int64_t proposals, double hot)
{
	struct dlb_search x = *s;
	int *from = dlb_xmalloc(((size_t)port->n + 1) * sizeof *from);

	x.port = port;
	x.best = at;
	x.best_s = dlb_port_throughput_s(port, at, NULL);
	memcpy(from, at, (size_t)port->n * sizeof *from);
	dlb_anneal_throughput(&x, from, proposals, hot, false);
	s->rng = x.rng;
	s->budget = x.budget;
	free(from);
}

/* The graph of a search and its coarser versions. at[i]: placement of level i; level 0: the search's own
 * graph. */
struct levels { const struct dlb_port *finest; struct level level[LEVELS]; int *at[LEVELS + 1], n; };

static const struct dlb_port *port_of(const struct levels *l, int i)
{
	return i ? &l->level[i - 1].port : l->finest;
}

/* Adds a level; false: too few pairs matched, or classes would not fit. */
static bool coarsen(struct levels *l, struct dlb_rng *rng, bool together, double most_work, double most_bytes)
{
	const struct dlb_port *port = port_of(l, l->n);
	struct level *next = &l->level[l->n];
	int **at = &l->at[l->n + 1], k;

	next->map = dlb_xmalloc(((size_t)port->n + 1) * sizeof *next->map);
	k = match(port, rng, together ? l->at[l->n] : NULL, most_work, most_bytes, next->map);
	if (k > port->n * 0.95) {
		free(next->map);
		return false;
	}
	dlb_port_coarsen(port, next->map, k, &next->port);
	*at = dlb_xmalloc(((size_t)k + 1) * sizeof **at);
	lift(port, &next->port, next->map, l->at[l->n], *at);
	if (!(dlb_port_lack_bytes(&next->port, *at, NULL) > 0)) {
		l->n++;
		return true;
	}
	free(*at);
	free(next->map);
	dlb_port_release(&next->port);
	return false;
}

static void levels_release(struct levels *l)
{
	for (int i = 0; i <= l->n; i++)
		free(l->at[i]);
	while (l->n) {
		free(l->level[--l->n].map);
		dlb_port_release(&l->level[l->n].port);
	}
}

void dlb_search_multilevel(struct dlb_search *s, const int *from, bool together, int64_t proposals,
			   double hot)
{
	const struct dlb_port *port = s->port;
	struct levels l = { .finest = port };
	double work = 0, most_bytes = INFINITY, value;

	for (int c = 0; c < port->n; c++)
		work += least_work_s(port, c);
	for (int d = 0; d < port->n_nodes; d++)
		most_bytes = fmin(most_bytes, port->room_bytes[d] / CLUMPS);
	l.at[0] = dlb_xmalloc(((size_t)port->n + 1) * sizeof *l.at[0]);
	memcpy(l.at[0], from, (size_t)port->n * sizeof *l.at[0]);
	while (l.n < LEVELS && port_of(&l, l.n)->n > FEWEST &&
	       coarsen(&l, &s->rng, together, work / CLUMPS / port->n_nodes, most_bytes))
		;
	for (int i = l.n; i >= 0; i--) {
		if (!dlb_search_over(s))
			cool(s, port_of(&l, i), l.at[i], proposals / (l.n + 1), hot * pow(0.5, l.n - i));
		for (int c = 0; i && c < port_of(&l, i - 1)->n; c++)
			l.at[i - 1][c] = l.at[i][l.level[i - 1].map[c]];
	}
	value = dlb_port_throughput_s(port, l.at[0], NULL);
	if (value < s->best_s && !(dlb_port_lack_bytes(port, l.at[0], NULL) > 0)) {
		s->best_s = value;
		memcpy(s->best, l.at[0], (size_t)port->n * sizeof *s->best);
	}
	levels_release(&l);
}
