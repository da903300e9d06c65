/* Chains of classes joined into one class each, for searches that take few, large steps. */
#include <math.h>
#include <stdlib.h>
#include "place/port.h"

struct chains {
	const struct dlb_port *port;
	int *to; /* [class] the class that it joined, or itself */
	int *n_before, *before; /* [class] number of its predecessors; one of them */
	double *sent_s, *bytes; /* [class] seconds of its outgoing transfers; bytes of its chain */
	double room; /* most bytes of a chain */
};

/* Seconds of all nets whose source is class c, each on the slowest port. */
static double sent_s(const struct dlb_port *port, int c)
{
	double sum = 0;
	for (int i = port->touch_start[c]; i < port->touch_start[c + 1]; i++)
		if (port->touch[i] & 1) /* c is its source */
			sum += dlb_port_net_s(port, port->touch[i] >> 1);
	return sum;
}

/* The class that follows c in a chain; -1: c is the last. */
static int next_of(const struct chains *x, int c)
{
	const int *start = &x->port->forward_start[c];
	int next = start[1] == start[0] + 1 ? x->port->forward[start[0]] : -1;
	return next >= 0 && x->n_before[next] == 1 ? next : -1;
}

/* Whether a cut between c and next is cheaper than the cuts before and after it. */
static bool is_cheap_cut(const struct chains *x, int c, int next)
{
	bool inside = x->n_before[c] == 1 && next_of(x, x->before[c]) == c;
	return x->sent_s[c] < x->sent_s[next] && !(inside && x->sent_s[x->before[c]] <= x->sent_s[c]);
}

static bool same_kernels(const struct dlb_port *port, int a, int b)
{
	const size_t D = (size_t)port->n_nodes;
	for (size_t d = 0; d < D; d++)
		if (isfinite(port->work_s[(size_t)a * D + d]) != isfinite(port->work_s[(size_t)b * D + d]))
			return false;
	return true;
}

static void join(struct chains *x, int c, int next)
{
	int a = dlb_port_root(x->to, c), b = dlb_port_root(x->to, next);
	if (a == b || x->bytes[a] + x->bytes[b] > x->room || !same_kernels(x->port, c, next))
		return;
	x->to[b] = a;
	x->bytes[a] += x->bytes[b];
}

void dlb_port_join_chains(const struct dlb_port *port, int n_chains, struct dlb_port *coarse, int *map)
{
	const size_t n_classes = (size_t)port->n + 1;
	struct chains x = { .port = port,
			    .to = dlb_xcalloc(n_classes, sizeof *x.to),
			    .n_before = dlb_xcalloc(n_classes, sizeof *x.n_before),
			    .before = dlb_xcalloc(n_classes, sizeof *x.before),
			    .sent_s = dlb_xcalloc(n_classes, sizeof *x.sent_s),
			    .bytes = dlb_xcalloc(n_classes, sizeof *x.bytes),
			    .room = INFINITY };
	for (int d = 0; d < port->n_nodes; d++)
		x.room = fmin(x.room, port->room_bytes[d] / n_chains);
	for (int c = 0; c < port->n; c++) {
		x.to[c] = c;
		x.sent_s[c] = sent_s(port, c);
		x.bytes[c] = port->bytes[c];
		for (int k = port->forward_start[c]; k < port->forward_start[c + 1]; k++) {
			x.n_before[port->forward[k]]++;
			x.before[port->forward[k]] = c;
		}
	}
	for (int c = 0; c < port->n; c++) {
		int next = next_of(&x, c);
		if (next >= 0 && !is_cheap_cut(&x, c, next))
			join(&x, c, next);
	}
	dlb_port_merge(port, x.to, coarse, map);
	free(x.to);
	free(x.n_before);
	free(x.before);
	free(x.sent_s);
	free(x.bytes);
}
