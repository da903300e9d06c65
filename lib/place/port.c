/* The port model: builds a problem in compact arrays, and computes its two objectives. See port.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "place/place.h"
#include "place/port.h"
#include "place/problem.h"
#include "plan/replica.h"
#include "plan/tensors.h"

/* ---- from graph and costs ---- */

static void find_places(struct dlb_port *port, const struct dlb_cluster *cl)
{
	int home = -1;
	port->place = dlb_arena_array(&port->arena, (size_t)cl->n_nodes + 1, sizeof *port->place);
	port->host = dlb_arena_array(&port->arena, (size_t)cl->n_nodes + 1, sizeof *port->host);
	for (int d = 0; d < cl->n_nodes; d++) {
		bool host = cl->kind[cl->node[d].kind].free_port;
		if (host && home >= 0) {
			port->place[d] = home;
			continue;
		}
		port->place[d] = port->n_places++;
		port->host[port->place[d]] = host;
		if (host)
			home = port->place[d];
	}
}

/* Seconds of `bytes` through node d's port. */
static double port_s(const struct dlb_cluster *cl, int d, double bytes)
{
	const struct dlb_group *g = &cl->group[cl->node[d].group];
	int link = g->up >= 0 ? g->up : g->inside;
	return link < 0 ? 0 : cl->link[link].latency_s + bytes / cl->link[link].bandwidth_Bps;
}

/* Seconds of tensor t, all micro-batches, through the port of each place. */
static void tensor_s(const struct dlb_problem *p, const struct dlb_port *port, int t, double *out)
{
	const struct dlb_tensor *x = &p->graph->tensor[t];
	bool state = dlb_tensor_is_state(x);
	int times = state ? 1 : p->micro_batches;
	double given = x->producer >= 0 ? p->cost->output_s[x->producer] : NAN;
	double bytes = dlb_tensor_bytes(x, state ? 1 : dlb_micro_batch_size(p->batch, p->micro_batches, 0));
	for (int d = 0; d < port->n_nodes; d++)
		out[port->place[d]] = port->host[port->place[d]] ? 0 : !isnan(given) ? given * times :
				      times * port_s(p->cluster, d, bytes);
}

static int by_value(const void *a, const void *b)
{
	const int *x = a, *y = b;
	return (*x > *y) - (*x < *y);
}

/* Sorts v, drops repeats and the value `not`; returns the new length. */
static int distinct(int *v, int n, int not)
{
	int kept = 0;
	qsort(v, (size_t)n, sizeof *v, by_value);
	for (int i = 0; i < n; i++)
		if (v[i] != not && (!kept || v[kept - 1] != v[i]))
			v[kept++] = v[i];
	return kept;
}

static void find_touches(struct dlb_port *port)
{
	int *at = dlb_xcalloc((size_t)port->n + 2, sizeof *at);
	int n_pins = port->sink_start[port->n_nets];
	port->touch_start = dlb_arena_array(&port->arena, (size_t)port->n + 2, sizeof(int));
	port->touch = dlb_arena_array(&port->arena, (size_t)(n_pins + port->n_nets) + 1, sizeof(int));
	for (int e = 0; e < port->n_nets; e++) {
		port->touch_start[port->source[e] + 1]++;
		for (int k = port->sink_start[e]; k < port->sink_start[e + 1]; k++)
			port->touch_start[port->sink[k] + 1]++;
	}
	for (int i = 0; i < port->n; i++)
		port->touch_start[i + 1] += port->touch_start[i];
	memcpy(at, port->touch_start, ((size_t)port->n + 1) * sizeof *at);
	for (int e = 0; e < port->n_nets; e++) {
		port->touch[at[port->source[e]]++] = 2 * e + 1;
		for (int k = port->sink_start[e]; k < port->sink_start[e + 1]; k++)
			port->touch[at[port->sink[k]]++] = 2 * e;
	}
	free(at);
}

/* A net under construction; nets of equal source and sinks are merged. */
struct raw { int source, n, *sink; double *s; };

static int by_pins(const void *a, const void *b)
{
	const struct raw *x = a, *y = b;
	if (x->source != y->source)
		return x->source < y->source ? -1 : 1;
	if (x->n != y->n)
		return x->n < y->n ? -1 : 1;
	return x->n ? memcmp(x->sink, y->sink, (size_t)x->n * sizeof(int)) : 0;
}

static void keep_nets(struct dlb_port *port, struct raw *raw, int n)
{
	int pins = 0;
	size_t P = (size_t)port->n_places;
	for (int i = 0; i < n; i++)
		pins += raw[i].n;
	qsort(raw, (size_t)n, sizeof *raw, by_pins);
	port->source = dlb_arena_array(&port->arena, (size_t)n + 1, sizeof(int));
	port->sink_start = dlb_arena_array(&port->arena, (size_t)n + 2, sizeof(int));
	port->sink = dlb_arena_array(&port->arena, (size_t)pins + 1, sizeof(int));
	port->net_s = dlb_arena_array(&port->arena, ((size_t)n + 1) * P, sizeof(double));
	port->n_nets = 0;
	for (int i = 0; i < n; i++) {
		bool same = i && !by_pins(&raw[i - 1], &raw[i]);
		if (!same) {
			int e = port->n_nets++;
			port->source[e] = raw[i].source;
			memcpy(&port->sink[port->sink_start[e]], raw[i].sink, (size_t)raw[i].n * sizeof(int));
			port->sink_start[e + 1] = port->sink_start[e] + raw[i].n;
		}
		for (size_t k = 0; k < P; k++)
			port->net_s[(size_t)(port->n_nets - 1) * P + k] += raw[i].s[k];
	}
	find_touches(port);
}

static void find_nets(struct dlb_port *port, const struct dlb_problem *p)
{
	const struct dlb_graph *g = p->graph;
	struct raw *raw = dlb_xcalloc((size_t)g->n_tensors + 1, sizeof *raw);
	struct dlb_arena a = { NULL, 0 };
	int n = 0;
	for (int t = 0; t < g->n_tensors; t++) {
		int from = dlb_tensor_is_state(&g->tensor[t]) ? dlb_graph_home(g, t) : g->tensor[t].producer;
		int n_readers = g->reader_start[t + 1] - g->reader_start[t];
		if (from < 0 || !n_readers)
			continue;
		struct raw *r = &raw[n];
		r->source = p->group_of[from];
		r->sink = dlb_arena_array(&a, (size_t)n_readers, sizeof(int));
		for (int k = 0; k < n_readers; k++)
			r->sink[k] = p->group_of[g->reader[g->reader_start[t] + k]];
		r->n = distinct(r->sink, n_readers, r->source);
		r->s = dlb_arena_array(&a, (size_t)port->n_places, sizeof(double));
		tensor_s(p, port, t, r->s);
		double most = 0;
		for (int k = 0; k < port->n_places; k++)
			most = r->s[k] > most ? r->s[k] : most;
		n += r->n > 0 && most > 0;
	}
	keep_nets(port, raw, n);
	dlb_arena_release(&a);
	free(raw);
}

/* Successor lists of n vertices from pairs (from, to), without repeats. */
static void make_lists(struct dlb_arena *a, int (*pair)[2], int n_pairs, int n, int **start, int **list)
{
	*start = dlb_arena_array(a, (size_t)n + 2, sizeof(int));
	*list = dlb_arena_array(a, (size_t)n_pairs + 1, sizeof(int));
	int *at = dlb_xcalloc((size_t)n + 2, sizeof *at), kept = 0;
	for (int i = 0; i < n_pairs; i++)
		at[pair[i][0] + 1]++;
	for (int i = 0; i < n; i++)
		at[i + 1] += at[i];
	int *all = dlb_xcalloc((size_t)n_pairs + 1, sizeof *all),
	    *fill = dlb_xcalloc((size_t)n + 1, sizeof *fill);
	for (int i = 0; i < n_pairs; i++)
		all[at[pair[i][0]] + fill[pair[i][0]]++] = pair[i][1];
	for (int i = 0; i < n; i++) {
		int m = distinct(&all[at[i]], fill[i], i);
		if (m)
			memcpy(&(*list)[kept], &all[at[i]], (size_t)m * sizeof(int));
		kept += m;
		(*start)[i + 1] = kept;
	}
	free(all);
	free(fill);
	free(at);
}

/* Contiguity is defined on forward ops. A class without forward ops takes the edges of its backward ops,
 * reversed, as its forward counterpart would have them. Returns the number of edges in out. */
static int find_forward(const struct dlb_problem *p, int (*edge)[2], int n, int (*out)[2])
{
	const struct dlb_graph *g = p->graph;
	bool *has = dlb_xcalloc((size_t)p->n_groups + 1, sizeof *has);
	int m = 0;
	for (int i = 0; i < g->n_ops; i++)
		has[p->group_of[i]] |= g->op[i].phase == DLB_FORWARD;
	for (int i = 0; i < n; i++) {
		int u = edge[i][0], v = edge[i][1], a = p->group_of[u], b = p->group_of[v];
		bool fu = g->op[u].phase == DLB_FORWARD, fv = g->op[v].phase == DLB_FORWARD;
		if (a == b)
			continue;
		if (fu && fv) {
			out[m][0] = a;
			out[m++][1] = b;
		} else if (!fu && !fv && (!has[a] || !has[b])) {
			out[m][0] = b;
			out[m++][1] = a;
		}
	}
	free(has);
	return m;
}

static void find_edges(struct dlb_port *port, const struct dlb_problem *p)
{
	const struct dlb_graph *g = p->graph;
	int n = 0, most = 1;
	for (int i = 0; i < g->n_ops; i++)
		most += g->op[i].n_in;
	int(*edge)[2] = dlb_xcalloc((size_t)most, sizeof *edge),
	(*turned)[2] = dlb_xcalloc((size_t)most, sizeof *turned);
	for (int i = 0; i < g->n_ops; i++) {
		for (int k = 0; k < g->op[i].n_in; k++) {
			int t = g->op[i].in[k],
			    from = t < 0 || dlb_tensor_is_state(&g->tensor[t]) ? -1 : g->tensor[t].producer;
			if (from >= 0) {
				edge[n][0] = from;
				edge[n++][1] = i;
			}
		}
	}
	int m = find_forward(p, edge, n, turned);
	make_lists(&port->arena, turned, m, port->n, &port->forward_start, &port->forward);
	make_lists(&port->arena, edge, n, g->n_ops, &port->succ_start, &port->succ);
	for (int i = 0; i < n; i++) {
		turned[i][0] = edge[i][1];
		turned[i][1] = edge[i][0];
	}
	make_lists(&port->arena, turned, n, g->n_ops, &port->pred_start, &port->pred);
	free(edge);
	free(turned);
}

static void find_ops(struct dlb_port *port, const struct dlb_problem *p, bool weighted)
{
	const struct dlb_graph *g = p->graph;
	size_t D = (size_t)port->n_nodes, P = (size_t)port->n_places;
	const double *scale = weighted ? p->ranked_scale : p->stated_scale;
	port->n_ops = g->n_ops;
	port->class_of = p->group_of;
	port->op_s = dlb_arena_array(&port->arena, (size_t)g->n_ops * D + 1, sizeof(double));
	port->out_s = dlb_arena_array(&port->arena, (size_t)g->n_ops * P + 1, sizeof(double));
	double *s = dlb_xcalloc(P, sizeof *s);
	for (size_t i = 0; i < (size_t)g->n_ops; i++) {
		const struct dlb_op *o = &g->op[i];
		for (size_t d = 0; d < D; d++)
			port->op_s[i * D + d] = dlb_graph_is_view(g, (int)i) ? 0 :
				dlb_cost_op_s(p->cost, (int)i, (int)d, (double)p->batch) * scale[d];
		for (int k = 0; k < o->n_out; k++) {
			if (o->out[k] < 0 || g->reader_start[o->out[k]] == g->reader_start[o->out[k] + 1])
				continue;
			tensor_s(p, port, o->out[k], s);
			for (size_t q = 0; q < P; q++)
				port->out_s[i * P + q] += s[q];
		}
	}
	free(s);
}

void dlb_port_init(struct dlb_port *port, const struct dlb_problem *p, bool weighted)
{
	size_t n = (size_t)p->n_groups, D = (size_t)p->cluster->n_nodes;
	*port = (struct dlb_port){ .n = p->n_groups, .n_nodes = p->cluster->n_nodes };
	port->work_s = dlb_arena_array(&port->arena, n * D + 1, sizeof(double));
	port->bytes = dlb_arena_array(&port->arena, n + 1, sizeof(double));
	port->room_bytes = p->memory_bytes;
	for (size_t g = 0; g < n; g++) {
		port->bytes[g] = dlb_group_bytes(p, (int)g);
		for (size_t d = 0; d < D; d++)
			port->work_s[g * D + d] = weighted ? dlb_time_s(p, (int)g, (int)d) :
				dlb_time_s(p, (int)g, (int)d) / p->ranked_scale[d] * p->stated_scale[d];
	}
	find_places(port, p->cluster);
	find_nets(port, p);
	find_edges(port, p);
	find_ops(port, p, weighted);
}

void dlb_port_release(struct dlb_port *port)
{
	if (!port)
		return;
	dlb_arena_release(&port->arena);
	memset(port, 0, sizeof *port);
}

/* ---- objectives ---- */

double dlb_port_throughput_s(const struct dlb_port *port, const int *at, double *load)
{
	size_t D = (size_t)port->n_nodes, P = (size_t)port->n_places;
	double *own = load ? load : dlb_xcalloc(D, sizeof *own), most = 0;
	int *seen = dlb_xcalloc(P, sizeof *seen), *node = dlb_xcalloc(P, sizeof *node);
	memset(own, 0, D * sizeof *own);
	for (int d = 0; d < port->n_nodes; d++)
		node[port->place[d]] = d;		/* any host will do, since hosts pay nothing */
	for (size_t g = 0; g < (size_t)port->n; g++)
		own[at[g]] += port->work_s[g * D + (size_t)at[g]];
	for (int e = 0; e < port->n_nets; e++) {
		const double *c = &port->net_s[(size_t)e * P];
		int home = port->place[at[port->source[e]]];
		bool out = false;
		for (int k = port->sink_start[e]; k < port->sink_start[e + 1]; k++) {
			int to = port->place[at[port->sink[k]]];
			if (to == home || seen[to] == e + 1)
				continue;
			seen[to] = e + 1;
			own[node[to]] += c[to];
			out = true;
		}
		if (out)
			own[node[home]] += c[home];
	}
	for (size_t d = 0; d < D; d++)
		most = own[d] > most ? own[d] : most;
	free(seen);
	free(node);
	if (!load)
		free(own);
	return most;
}

void dlb_calls_init(struct dlb_calls *w, const struct dlb_port *port)
{
	size_t n = (size_t)port->n_ops, P = (size_t)port->n_places;
	*w = (struct dlb_calls){ .port = port };
	w->visit = dlb_xcalloc(n * P + 1, sizeof *w->visit);
	w->id = dlb_xmalloc((n + 2) * P * sizeof *w->id);
	memset(w->id, -1, (n + 2) * P * sizeof *w->id);
	w->call = dlb_xcalloc(n + 1, sizeof *w->call);
	w->start = dlb_xcalloc(n + 3, sizeof *w->start);
	w->member = dlb_xcalloc(n + 1, sizeof *w->member);
	w->waits = dlb_xcalloc(n + 1, sizeof *w->waits);
	w->ready = dlb_xcalloc(n + 1, sizeof *w->ready);
	w->fed = dlb_xcalloc(n + 1, sizeof *w->fed);
	w->begin = dlb_xcalloc(n + 1, sizeof *w->begin);
}

void dlb_calls_release(struct dlb_calls *w)
{
	void *all[] = { w->visit, w->id, w->call, w->start, w->member, w->waits, w->ready, w->fed, w->begin };
	for (int i = 0; i < DLB_LEN(all); i++)
		free(all[i]);
}

/* Sets call[op], the op's call, by the number of visits of its node on any path; an op on the host is a call
 * by itself. Returns the number of calls. */
static int find_calls(struct dlb_calls *w, const int *at)
{
	const struct dlb_port *port = w->port;
	size_t P = (size_t)port->n_places;
	/* slots of id to clear: at most the number of calls */
	int n = 0, used = 0, *mark = w->ready;
	for (int v = 0; v < port->n_ops; v++) {
		uint16_t *mine = &w->visit[(size_t)v * P];
		int here = port->place[at[port->class_of[v]]], most = 1;
		for (size_t q = 0; q < P; q++)
			mine[q] = 0;
		for (int k = port->pred_start[v]; k < port->pred_start[v + 1]; k++) {
			int u = port->pred[k];
			const uint16_t *his = &w->visit[(size_t)u * P];
			for (size_t q = 0; q < P; q++)
				mine[q] = his[q] > mine[q] ? his[q] : mine[q];
			int again = his[here] + (port->place[at[port->class_of[u]]] != here);
			most = again > most ? again : most;
		}
		if (port->host[here]) {
			w->call[v] = n++;
			continue;
		}
		mine[here] = (uint16_t)(most < 65535 ? most : 65535);
		size_t slot = (size_t)mine[here] % ((size_t)port->n_ops + 2) * P + (size_t)here;
		if (w->id[slot] < 0) {
			mark[used++] = (int)slot;
			w->id[slot] = n++;
		}
		w->call[v] = w->id[slot];
	}
	while (used)
		w->id[mark[--used]] = -1;
	return n;
}

/* Seconds of call b, whose ops are member[first .. last) on node d. */
static double call_s(struct dlb_calls *w, int b, int first, int last, int d)
{
	const struct dlb_port *port = w->port;
	size_t D = (size_t)port->n_nodes, P = (size_t)port->n_places, q = (size_t)port->place[d];
	double t = 0;
	for (int i = first; i < last; i++) {
		int v = w->member[i];
		bool out = false;
		t += port->op_s[(size_t)v * D + (size_t)d];
		if (port->host[q])
			continue;
		for (int k = port->pred_start[v]; k < port->pred_start[v + 1]; k++) {
			int u = port->pred[k];
			if (w->call[u] != b && w->fed[u] != b + 1) {
				w->fed[u] = b + 1;
				t += port->out_s[(size_t)u * P + q];
			}
		}
		for (int k = port->succ_start[v]; k < port->succ_start[v + 1] && !out; k++)
			out = w->call[port->succ[k]] != b;
		if (out)
			t += port->out_s[(size_t)v * P + q];
	}
	return t;
}

double dlb_calls_latency_s(struct dlb_calls *w, const int *at, double *finish)
{
	const struct dlb_port *port = w->port;
	int n = find_calls(w, at), done = 0, n_ready = 0, *start = w->start;
	double most = 0;
	memset(start, 0, ((size_t)n + 2) * sizeof *start);
	memset(w->waits, 0, (size_t)n * sizeof *w->waits);
	memset(w->begin, 0, (size_t)n * sizeof *w->begin);
	memset(w->fed, 0, (size_t)port->n_ops * sizeof *w->fed);
	for (int v = 0; v < port->n_ops; v++) {
		start[w->call[v] + 2]++;
		for (int k = port->pred_start[v]; k < port->pred_start[v + 1]; k++)
			w->waits[w->call[v]] += w->call[port->pred[k]] != w->call[v];
	}
	for (int b = 0; b < n; b++)
		start[b + 2] += start[b + 1];
	for (int v = 0; v < port->n_ops; v++)
		w->member[start[w->call[v] + 1]++] = v;	/* afterwards start[b] is where call b begins */
	for (int b = 0; b < n; b++)
		if (!w->waits[b])
			w->ready[n_ready++] = b;
	while (done < n_ready) {
		int b = w->ready[done++], first = start[b], last = start[b + 1];
		double t = w->begin[b] + call_s(w, b, first, last, at[port->class_of[w->member[first]]]);
		most = t > most ? t : most;
		for (int i = first; i < last; i++) {
			int v = w->member[i];
			if (finish)
				finish[v] = t;
			for (int k = port->succ_start[v]; k < port->succ_start[v + 1]; k++) {
				int next = w->call[port->succ[k]];
				if (next == b)
					continue;
				w->begin[next] = t > w->begin[next] ? t : w->begin[next];
				if (--w->waits[next] == 0)
					w->ready[n_ready++] = next;
			}
		}
	}
	return done == n ? most : INFINITY;
}

double dlb_port_latency_s(const struct dlb_port *port, const int *at, double *finish)
{
	struct dlb_calls w;
	dlb_calls_init(&w, port);
	double s = dlb_calls_latency_s(&w, at, finish);
	dlb_calls_release(&w);
	return s;
}

double dlb_port_net_s(const struct dlb_port *port, int net)
{
	const double *s = &port->net_s[(size_t)net * (size_t)port->n_places];
	double most = 0;
	for (int q = 0; q < port->n_places; q++)
		most = s[q] > most ? s[q] : most;
	return most;
}

double dlb_port_lack_bytes(const struct dlb_port *port, const int *at, int *node)
{
	double *used = dlb_xcalloc((size_t)port->n_nodes, sizeof *used), most = 0;
	int worst = -1;
	for (int g = 0; g < port->n; g++) {
		used[at[g]] += port->bytes[g];
		if (isinf(port->work_s[(size_t)g * (size_t)port->n_nodes + (size_t)at[g]]))
			most = INFINITY;
	}
	for (int d = 0; d < port->n_nodes; d++) {
		if (used[d] - port->room_bytes[d] > most) {
			most = used[d] - port->room_bytes[d];
			worst = d;
		}
	}
	free(used);
	if (node)
		*node = worst;
	return most;
}

bool dlb_port_alike(const struct dlb_port *port, int a, int b)
{
	size_t D = (size_t)port->n_nodes, P = (size_t)port->n_places;
	size_t p = (size_t)port->place[a], q = (size_t)port->place[b];
	if (port->host[p] != port->host[q] || port->room_bytes[a] != port->room_bytes[b])
		return false;
	for (size_t g = 0; g < (size_t)port->n; g++)
		if (port->work_s[g * D + (size_t)a] != port->work_s[g * D + (size_t)b])
			return false;
	for (size_t e = 0; e < (size_t)port->n_nets; e++)
		if (port->net_s[e * P + p] != port->net_s[e * P + q])
			return false;
	return true;
}

int dlb_port_kinds(const struct dlb_port *port, int *kind_of, int *first)
{
	int n = 0;
	for (int d = 0; d < port->n_nodes; d++) {
		int k = 0;
		while (k < n && !dlb_port_alike(port, d, first[k]))
			k++;
		if (k == n)
			first[n++] = d;
		kind_of[d] = k;
	}
	return n;
}

/* ---- coarser problems ---- */

void dlb_port_coarsen(const struct dlb_port *port, const int *map, int n, struct dlb_port *coarse)
{
	size_t D = (size_t)port->n_nodes;
	*coarse = (struct dlb_port){ .n = n,
				     .n_nodes = port->n_nodes,
				     .n_places = port->n_places,
				     .place = port->place,
				     .host = port->host,
				     .room_bytes = port->room_bytes,
				     .n_ops = port->n_ops,
				     .pred_start = port->pred_start,
				     .pred = port->pred,
				     .succ_start = port->succ_start,
				     .succ = port->succ,
				     .op_s = port->op_s,
				     .out_s = port->out_s };
	struct dlb_arena a = { NULL, 0 };
	coarse->work_s = dlb_arena_array(&coarse->arena, (size_t)n * D + 1, sizeof(double));
	coarse->bytes = dlb_arena_array(&coarse->arena, (size_t)n + 1, sizeof(double));
	coarse->class_of = dlb_arena_array(&coarse->arena, (size_t)port->n_ops + 1, sizeof(int));
	for (int i = 0; i < port->n_ops; i++)
		coarse->class_of[i] = port->class_of[i] < 0 ? -1 : map[port->class_of[i]];
	for (size_t g = 0; g < (size_t)port->n; g++) {
		if (map[g] < 0)
			continue;
		coarse->bytes[map[g]] += port->bytes[g];
		for (size_t d = 0; d < D; d++)
			coarse->work_s[(size_t)map[g] * D + d] += port->work_s[g * D + d];
	}
	struct raw *raw = dlb_xcalloc((size_t)port->n_nets + 1, sizeof *raw);
	int m = 0;
	for (int e = 0; e < port->n_nets; e++) {
		int n_sinks = port->sink_start[e + 1] - port->sink_start[e];
		raw[m].source = map[port->source[e]];
		raw[m].sink = dlb_arena_array(&a, (size_t)n_sinks, sizeof(int));
		for (int k = 0; k < n_sinks; k++)
			raw[m].sink[k] = map[port->sink[port->sink_start[e] + k]];
		raw[m].n = distinct(raw[m].sink, n_sinks, raw[m].source);
		raw[m].s = &port->net_s[(size_t)e * (size_t)port->n_places];
		m += raw[m].n > 0;
	}
	keep_nets(coarse, raw, m);
	free(raw);
	dlb_arena_release(&a);
	int n_edges = port->forward_start[port->n],
	    (*edge)[2] = dlb_xcalloc((size_t)n_edges + 1, sizeof *edge);
	for (int g = 0; g < port->n; g++) {
		for (int k = port->forward_start[g]; k < port->forward_start[g + 1]; k++) {
			edge[k][0] = map[g];
			edge[k][1] = map[port->forward[k]];
		}
	}
	make_lists(&coarse->arena, edge, n_edges, n, &coarse->forward_start, &coarse->forward);
	free(edge);
}

/* Records b as one of the first two distinct neighbours of a. */
static void note(int (*near)[2], int a, int b)
{
	if (a != b && near[a][0] != b && near[a][1] != b && near[a][1] < 0)
		near[a][near[a][0] >= 0] = b;
}

int dlb_port_root(const int *to, int c)
{
	while (to[c] != c)
		c = to[c];
	return c;
}

void dlb_port_merge(const struct dlb_port *port, const int *to, struct dlb_port *coarse, int *map)
{
	int n = 0;
	for (int c = 0; c < port->n; c++)
		if (to[c] == c)
			map[c] = n++;
	for (int c = 0; c < port->n; c++)
		map[c] = map[dlb_port_root(to, c)];
	dlb_port_coarsen(port, map, n, coarse);
}

static void find_neighbours(const struct dlb_port *port, const int *to, int (*near)[2])
{
	memset(near, -1, (size_t)port->n * sizeof *near);
	for (int e = 0; e < port->n_nets; e++) {
		int a = dlb_port_root(to, port->source[e]);
		for (int k = port->sink_start[e]; k < port->sink_start[e + 1]; k++) {
			int b = dlb_port_root(to, port->sink[k]);
			note(near, a, b);
			note(near, b, a);
		}
	}
	for (int g = 0; g < port->n; g++) {
		for (int k = port->forward_start[g]; k < port->forward_start[g + 1]; k++) {
			int a = dlb_port_root(to, g), b = dlb_port_root(to, port->forward[k]);
			note(near, a, b);
			note(near, b, a);
		}
	}
}

void dlb_port_contract(const struct dlb_port *port, struct dlb_port *coarse, int *map)
{
	/* state of a class in this round: unchanged; another class joined it; it joined another */
	enum { FREE, HOST, GONE };
	size_t n_classes = (size_t)port->n + 1, D = (size_t)port->n_nodes;
	int *to = dlb_xmalloc(n_classes * sizeof *to), (*near)[2] = dlb_xmalloc(n_classes * sizeof *near);
	char *state = dlb_xmalloc(n_classes);
	bool *idle = dlb_xcalloc(n_classes, sizeof *idle), changed = true;
	double total = 0, least = INFINITY;
	for (int g = 0; g < port->n; g++)
		total += port->bytes[g];
	for (int d = 0; d < port->n_nodes; d++)
		least = port->room_bytes[d] < least ? port->room_bytes[d] : least;
	for (size_t g = 0; g < (size_t)port->n; g++) {
		to[g] = (int)g;
		idle[g] = port->bytes[g] == 0 || total <= least;
		for (size_t d = 0; d < D; d++)
			idle[g] &= port->work_s[g * D + d] == 0;
	}
	while (changed) {
		changed = false;
		memset(state, FREE, n_classes);
		find_neighbours(port, to, near);
		for (int g = 0; g < port->n; g++) {
			int with = near[g][0];
			if (to[g] != g || !idle[g] || state[g] != FREE || with < 0 || near[g][1] >= 0 ||
			    state[with] == GONE)
				continue;
			to[g] = with;
			state[g] = GONE;
			state[with] = HOST;
			changed = true;
		}
	}
	dlb_port_merge(port, to, coarse, map);
	free(to);
	free(near);
	free(state);
	free(idle);
}
