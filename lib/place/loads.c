/* See loads.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "place/loads.h"

enum { MANY = 64 };		/* readers of a larger net are neighbours of its source only */

double dlb_loads_power(const struct dlb_loads *a, double load)
{
	double x = load / a->ref;
	x = x < 1e-2 ? 0 : x > 1e2 ? 1e2 : x;
	for (int i = 0; i < a->q_bits; i++)
		x *= x;
	return x;
}

double dlb_loads_burden(const struct dlb_loads *a, int d, double load, double used)
{
	double room = a->port->room_bytes[d], over = used - room;
	return !a->soft || !(over > 0) ?
		       load :
		       load + a->ref * (0.02 * a->strength + a->strength * over / (room > 0 ? room : 1));
}

void dlb_loads_set_exponent(struct dlb_loads *a, int bits, double ref)
{
	a->q_bits = bits;
	a->q = (double)(1 << bits);
	a->ref = ref;
	a->energy = 0;
	for (int d = 0; d < a->port->n_nodes; d++) {
		a->power[d] = dlb_loads_power(a, dlb_loads_burden(a, d, a->load[d], a->used[d]));
		a->energy += a->power[d];
	}
}

static void count_all(struct dlb_loads *a)
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

void dlb_loads_gains(const struct dlb_loads *a, int c, int to, double *at_from, double *at_to)
{
	const struct dlb_port *port = a->port;
	int from = a->at[c], p = port->place[from], q = port->place[to];
	const double *w = &port->work_s[(size_t)c * (size_t)port->n_nodes];
	double df = -w[from], dt = w[to];
	for (int i = p == q ? port->touch_start[c + 1] : port->touch_start[c]; i < port->touch_start[c + 1];
	     i++) {
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

bool dlb_loads_may(const struct dlb_loads *a, int c, int to)
{
	const struct dlb_port *port = a->port;
	return isfinite(port->work_s[(size_t)c * (size_t)port->n_nodes + (size_t)to]) &&
	       (a->soft || a->used[to] + port->bytes[c] <= port->room_bytes[to]);
}

void dlb_loads_move(struct dlb_loads *a, int c, int to, double df, double dt)
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
	double f = dlb_loads_power(a, dlb_loads_burden(a, from, a->load[from], a->used[from]));
	double t = dlb_loads_power(a, dlb_loads_burden(a, to, a->load[to], a->used[to]));
	a->energy += f - a->power[from] + t - a->power[to];
	a->power[from] = f;
	a->power[to] = t;
}

static void find_near(struct dlb_loads *a)
{
	const struct dlb_port *port = a->port;
	size_t n = (size_t)port->n;
	int cap = 0, m = 0, *seen = dlb_xmalloc((n + 1) * sizeof *seen);
	memset(seen, -1, (n + 1) * sizeof *seen);
	a->near_start = dlb_xcalloc(n + 2, sizeof *a->near_start);
	for (int c = 0; c < port->n; c++) {
		seen[c] = c;
		for (int i = port->touch_start[c]; i < port->touch_start[c + 1]; i++) {
			int e = port->touch[i] >> 1, first = port->sink_start[e],
			    last = port->sink_start[e + 1];
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

void dlb_loads_init(struct dlb_loads *a, struct dlb_search *s, int *at, bool soft)
{
	const struct dlb_port *port = s->port;
	size_t n = (size_t)port->n, D = (size_t)port->n_nodes;

	*a = (struct dlb_loads){ .s = s, .port = port, .at = at, .soft = soft, .strength = 1 };
	a->cnt = dlb_xcalloc((size_t)port->n_nets * (size_t)port->n_places + 1, sizeof *a->cnt);
	a->load = dlb_xcalloc(D, sizeof *a->load);
	a->used = dlb_xcalloc(D, sizeof *a->used);
	a->power = dlb_xcalloc(D, sizeof *a->power);
	a->member = dlb_xcalloc(D * n + 1, sizeof *a->member);
	a->pos = dlb_xcalloc(n + 1, sizeof *a->pos);
	a->size = dlb_xcalloc(D, sizeof *a->size);
	find_near(a);
	count_all(a);
}

void dlb_loads_release(struct dlb_loads *a)
{
	free(a->cnt);
	free(a->load);
	free(a->used);
	free(a->power);
	free(a->member);
	free(a->pos);
	free(a->size);
	free(a->near);
	free(a->near_start);
}

int dlb_loads_below(struct dlb_loads *a, int n)
{
	return (int)((dlb_rng_next(&a->s->rng) >> 32) * (uint64_t)n >> 32);
}

int dlb_loads_busiest(const struct dlb_loads *a)
{
	int most = 0;
	for (int d = 1; d < a->port->n_nodes; d++)
		if (a->load[d] > a->load[most])
			most = d;
	return most;
}

int dlb_loads_neighbour(struct dlb_loads *a, int c)
{
	int n = a->near_start[c + 1] - a->near_start[c];
	return n ? a->near[a->near_start[c] + dlb_loads_below(a, n)] : -1;
}

void dlb_loads_keep_best(struct dlb_loads *a)
{
	double most = 0;
	for (int d = 0; d < a->port->n_nodes; d++) {
		most = a->load[d] > most ? a->load[d] : most;
		if (a->soft && a->used[d] > a->port->room_bytes[d])
			return;
	}
	if (most >= a->s->best_s * (1 - 1e-12))
		return;
	/* computed again without accumulated rounding */
	most = dlb_port_throughput_s(a->port, a->at, a->load);
	if (most >= a->s->best_s)
		return;
	a->s->best_s = most;
	memcpy(a->s->best, a->at, (size_t)a->port->n * sizeof *a->at);
}
