/* Lower bounds on the latency of every placement. Let v follow u on a path of ops. If both are in one call, v
 * is computed after u. If they are in different calls, u's call sends u's output before v's call begins, and
 * v's call receives it first: this costs c(u) on u's node and c(u) on v's node, and nothing on a host. So the
 * latency is at least the cost of the path alone, on the nodes of its ops. The nodes are not known, but
 *
 *   pairs  from one op to the next, either both are on one node, which has room for both classes, or the
 *          tensor is transferred. head(v,k) is the least cost of paths that end at v on a node of kind k:
 *                  head(v,k) = work(v,k) + max over u before v of min over kinds l of head(u,l) + pay(u,l,v,k)
 *   runs   neighbours of one path on the same node form a run, and the node has room for all their classes;
 *          the next run is on another node. Runs on a kind need at most the memory of its nodes. With prices
 *          on memory (Lagrange multipliers, raised while too much is used),
 *                  least cost of runs at prices - sum over kinds of price(l) * memory of all nodes of l
 *          is a bound for any prices. Dynamic programming over the beginnings of runs: memory limits the window of
 *          possible beginnings, and a queue has the least of them at its head: O(ops of the path * kinds).
 *   modules  between two ops that all paths pass, a node computes or receives (module_bound.c).
 *
 * The paths are the longest by work, and by work with memory or transfers added. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "place/latency_bound.h"

enum { MANY = 4000000 /* pairs of op and kind */, LOOKS = 20000000, ROUNDS = 60 };

static double least_work(const struct dlb_port *port, const struct dlb_latency_kinds *kinds, int v)
{
	double least = INFINITY;
	for (int k = 0; k < kinds->n; k++)
		least = fmin(least, dlb_latency_work_s(port, v, kinds->node[k]));
	return isfinite(least) ? least : 0;
}

/* ---- pairs ---- */

double dlb_latency_arrive_s(const struct dlb_port *port, const struct dlb_latency_kinds *kinds,
			    const double *head, const struct dlb_latency_two *sent, const bool *in, int v,
			    int k)
{
	const double room = port->room_bytes[kinds->node[k]];
	const int c = port->class_of[v];
	double most = 0;

	for (int i = port->pred_start[v]; i < port->pred_start[v + 1]; i++) {
		const int u = port->pred[i], b = port->class_of[u];

		if (in && !in[u])
			continue;
		const bool both = b == c || kinds->host[k] || port->bytes[b] + port->bytes[c] <= room;
		const double stay = both ? head[(size_t)u * (size_t)kinds->n + (size_t)k] : INFINITY;
		const double come = b == c ? INFINITY :
					     dlb_latency_from_other(&sent[u], kinds, k) +
						     dlb_latency_pay_s(port, kinds, u, k);
		most = fmax(most, fmin(stay, come));
	}
	return most;
}

void dlb_latency_reach(const struct dlb_port *port, const struct dlb_latency_kinds *kinds, const bool *in,
		       int v, double *head, struct dlb_latency_two *sent)
{
	double *mine = &head[(size_t)v * (size_t)kinds->n];

	sent[v] = (struct dlb_latency_two){ { INFINITY, INFINITY }, -1 };
	for (int k = 0; k < kinds->n; k++) {
		const double work = dlb_latency_work_s(port, v, kinds->node[k]);

		mine[k] = isfinite(work) ? work + dlb_latency_arrive_s(port, kinds, head, sent, in, v, k) :
					   INFINITY;
		dlb_latency_offer(&sent[v], mine[k] + dlb_latency_pay_s(port, kinds, v, k), k);
	}
}

static double pairs_bound(const struct dlb_port *port, const struct dlb_latency_kinds *kinds)
{
	size_t K = (size_t)kinds->n;
	double *head = dlb_xcalloc((size_t)port->n_ops * K + 1, sizeof *head), most = 0;
	struct dlb_latency_two *sent = dlb_xcalloc((size_t)port->n_ops + 1, sizeof *sent);
	for (int v = 0; v < port->n_ops; v++) {
		double least = INFINITY;

		dlb_latency_reach(port, kinds, NULL, v, head, sent);
		for (size_t k = 0; k < K; k++)
			least = fmin(least, head[(size_t)v * K + k]);
		most = isfinite(least) ? fmax(most, least) : most;
	}
	free(head);
	free(sent);
	return most;
}

/* ---- runs ---- */

struct runs {
	const struct dlb_port *port;
	const struct dlb_latency_kinds *kinds;
	int n, *path;
	/* [position] bytes of the op's class at the first position of the class on the path, else 0 */
	double *bytes;
	/* [kind] price in seconds of all its memory; bytes used; bytes of all its nodes, INFINITY: no
	 * price */
	double *price, *used, *memory;
	/* [kind][position + 1] least cost of the path up to the position, whose op is on that kind */
	double *end;
	int *begin;				/* [kind][position + 1] beginning of that path's last run */
	/* [kind][position + 1] work and priced memory since the last op without a kernel there */
	double *sum;
	/* [kind] the first possible beginning of a run that ends here */
	int *first;
	double *held;				/* [kind] bytes of the window */
	int *count;				/* [kind][class] ops of it in the window */
	int *queue, *top, *tail;		/* [kind][position]: beginnings by rising cost; [kind] */
	/* [kind][position]: least cost before a run that begins here */
	double *enter;
	struct dlb_latency_two *sent; /* [position + 1] */
};

static void runs_init(struct runs *r, const struct dlb_port *port, const struct dlb_latency_kinds *kinds)
{
	size_t n = (size_t)port->n_ops + 1, K = (size_t)kinds->n;
	*r = (struct runs){ .port = port, .kinds = kinds };
	r->path = dlb_xcalloc(n, sizeof *r->path);
	r->bytes = dlb_xcalloc(n, sizeof *r->bytes);
	r->price = dlb_xcalloc(K, sizeof *r->price);
	r->used = dlb_xcalloc(K, sizeof *r->used);
	r->memory = dlb_xcalloc(K, sizeof *r->memory);
	r->end = dlb_xcalloc(n * K, sizeof *r->end);
	r->begin = dlb_xcalloc(n * K, sizeof *r->begin);
	r->sum = dlb_xcalloc(n * K, sizeof *r->sum);
	r->enter = dlb_xcalloc(n * K, sizeof *r->enter);
	r->queue = dlb_xcalloc(n * K, sizeof *r->queue);
	r->first = dlb_xcalloc(K, sizeof *r->first);
	r->held = dlb_xcalloc(K, sizeof *r->held);
	r->top = dlb_xcalloc(K, sizeof *r->top);
	r->tail = dlb_xcalloc(K, sizeof *r->tail);
	r->count = dlb_xcalloc(((size_t)port->n + 1) * K, sizeof *r->count);
	r->sent = dlb_xcalloc(n, sizeof *r->sent);
	for (int d = 0; d < port->n_nodes; d++)
		r->memory[kinds->of[d]] += port->room_bytes[d];
}

static void runs_release(struct runs *r)
{
	void *all[] = { r->path,  r->bytes, r->price, r->used, r->memory, r->end,  r->begin, r->sum,
			r->enter, r->queue, r->first, r->held, r->top,    r->tail, r->count, r->sent };
	for (int i = 0; i < DLB_LEN(all); i++)
		free(all[i]);
}

/* Adds position i to the window of ops that fit on a node of kind k together. */
static void grow_window(struct runs *r, int k, int i)
{
	int *count = &r->count[(size_t)k * ((size_t)r->port->n + 1)], c = r->port->class_of[r->path[i]];
	double room = r->port->room_bytes[r->kinds->node[k]];
	if (!count[c]++)
		r->held[k] += r->port->bytes[c];
	/* rounding errors in held must not shrink the window too far */
	while (r->first[k] <= i && !r->kinds->host[k] && r->held[k] > room * (1 + 1e-12)) {
		int out = r->port->class_of[r->path[r->first[k]++]];
		if (!--count[out])
			r->held[k] -= r->port->bytes[out];
	}
}

/* The least cost of all runs of the path, at the present prices. */
static double least_runs(struct runs *r)
{
	const struct dlb_port *port = r->port;
	const struct dlb_latency_kinds *kinds = r->kinds;
	size_t n = (size_t)r->n + 1;
	memset(r->first, 0, (size_t)kinds->n * sizeof *r->first);
	memset(r->held, 0, (size_t)kinds->n * sizeof *r->held);
	memset(r->top, 0, (size_t)kinds->n * sizeof *r->top);
	memset(r->tail, 0, (size_t)kinds->n * sizeof *r->tail);
	memset(r->count, 0, ((size_t)port->n + 1) * (size_t)kinds->n * sizeof *r->count);
	for (int i = 0; i < r->n; i++) {
		int v = r->path[i], u = i ? r->path[i - 1] : -1;
		bool bound = i && port->class_of[u] == port->class_of[v];
		r->sent[i + 1] = (struct dlb_latency_two){ { INFINITY, INFINITY }, -1 };
		for (int k = 0; k < kinds->n; k++) {
			size_t row = (size_t)k * n, at = row + (size_t)i;
			double work = dlb_latency_work_s(port, v, kinds->node[k]), *sum = &r->sum[row],
			       *enter = &r->enter[row];
			int *queue = &r->queue[row];
			grow_window(r, k, i);
			enter[i] = !i    ? 0 :
				   bound ? INFINITY :
					   dlb_latency_from_other(&r->sent[i], kinds, k) +
						   dlb_latency_pay_s(port, kinds, u, k);
			if (isinf(work)) {		/* no kernel here: every run ends */
				r->top[k] = r->tail[k] = 0;
				sum[i + 1] = sum[i];
				r->end[at + 1] = INFINITY;
				continue;
			}
			sum[i + 1] = sum[i] + work +
				     (r->price[k] > 0 ? r->price[k] * r->bytes[i] / r->memory[k] : 0);
			while (r->tail[k] > r->top[k] &&
			       enter[queue[r->tail[k] - 1]] - sum[queue[r->tail[k] - 1]] >= enter[i] - sum[i])
				r->tail[k]--;
			queue[r->tail[k]++] = i;
			while (r->tail[k] > r->top[k] && queue[r->top[k]] < r->first[k])
				r->top[k]++;
			bool some = r->tail[k] > r->top[k];
			r->begin[at + 1] = some ? queue[r->top[k]] : -1;
			r->end[at + 1] = some ? enter[queue[r->top[k]]] - sum[queue[r->top[k]]] + sum[i + 1] :
						INFINITY;
			dlb_latency_offer(&r->sent[i + 1],
					  r->end[at + 1] + dlb_latency_pay_s(port, kinds, v, k), k);
		}
	}
	double least = INFINITY;
	for (size_t k = 0; k < (size_t)kinds->n; k++)
		least = fmin(least, r->end[k * n + (size_t)r->n]);
	return least;
}

/* used[kind]: bytes of the runs that least_runs found. */
static void find_used(struct runs *r)
{
	size_t n = (size_t)r->n + 1, k = 0;
	memset(r->used, 0, (size_t)r->kinds->n * sizeof *r->used);
	for (size_t l = 0; l < (size_t)r->kinds->n; l++)
		k = r->end[l * n + (size_t)r->n] < r->end[k * n + (size_t)r->n] ? l : k;
	for (int i = r->n; i > 0;) {
		int from = r->begin[k * n + (size_t)i];
		for (int j = from; j < i; j++)
			r->used[k] += r->bytes[j];
		const struct dlb_latency_two *two = &r->sent[from];
		i = from;
		if (!i)
			break;
		if ((int)k != two->kind || r->kinds->count[k] > 1 || r->kinds->host[k]) {
			k = (size_t)two->kind;
			continue;
		}
		size_t other = k;			/* the second least */
		for (size_t l = 0; l < (size_t)r->kinds->n; l++)
			if (l != k && (other == k ||
				       r->end[l * n + (size_t)i] + dlb_latency_pay_s(r->port, r->kinds,
										     r->path[i - 1], (int)l) <
					       r->end[other * n + (size_t)i] +
						       dlb_latency_pay_s(r->port, r->kinds, r->path[i - 1],
									 (int)other)))
				other = l;
		k = other;
	}
}

static double runs_bound(struct runs *r)
{
	double best = 0, looks = (double)r->n * r->kinds->n;
	memset(r->price, 0, (size_t)r->kinds->n * sizeof *r->price);
	memset(r->count, 0, ((size_t)r->port->n + 1) * sizeof *r->count);
	for (int i = 0; i < r->n; i++) {
		int c = r->port->class_of[r->path[i]];
		r->bytes[i] = r->count[c]++ ? 0 : r->port->bytes[c];
	}
	for (int round = 0; round < ROUNDS && (round == 0 || looks * round < LOOKS); round++) {
		double s = least_runs(r), length = 0;
		if (isinf(s))				/* nothing can be placed */
			return best;
		for (int k = 0; k < r->kinds->n; k++)
			s -= r->price[k];
		best = fmax(best, s);
		find_used(r);
		for (int k = 0; k < r->kinds->n; k++) {
			double over = isfinite(r->memory[k]) && r->memory[k] > 0 ?
					      r->used[k] / r->memory[k] - 1 :
					      0;
			r->used[k] = over < 0 && r->price[k] <= 0 ? 0 : over;
			length += r->used[k] * r->used[k];
		}
		if (length <= 0)
			break;
		for (int k = 0; k < r->kinds->n; k++)
			r->price[k] = fmax(0, r->price[k] + 0.5 * best / (2 + round) / length * r->used[k]);
	}
	return best;
}

/* The longest path, where an op's length is its least work, plus its class's memory and its output at the
 * given rates. */
static void find_path(struct runs *r, const double *work, double per_byte, double per_send)
{
	const struct dlb_port *port = r->port;
	double *end = dlb_xcalloc((size_t)port->n_ops + 1, sizeof *end);
	int *from = dlb_xcalloc((size_t)port->n_ops + 1, sizeof *from), last = 0, n = 0;
	for (int v = 0; v < port->n_ops; v++) {
		from[v] = -1;
		for (int i = port->pred_start[v]; i < port->pred_start[v + 1]; i++) {
			int u = port->pred[i];
			double send = 0;
			for (int k = 0; k < r->kinds->n; k++)
				send = fmax(send, dlb_latency_pay_s(port, r->kinds, u, k));
			if (from[v] < 0 || end[u] + per_send * send > end[v]) {
				end[v] = end[u] + per_send * send;
				from[v] = u;
			}
		}
		end[v] += work[v] + per_byte * port->bytes[port->class_of[v]];
		last = end[v] > end[last] ? v : last;
	}
	for (int v = last; v >= 0; v = from[v])
		r->path[n++] = v;
	r->n = n;
	for (int i = 0; i < n / 2; i++) {
		int v = r->path[i];
		r->path[i] = r->path[n - 1 - i];
		r->path[n - 1 - i] = v;
	}
	free(end);
	free(from);
}

static double paths_bound(const struct dlb_port *port, const struct dlb_latency_kinds *kinds, double best)
{
	static const struct { double bytes, send; } rates[] = { { 0, 0 }, { 0, 0.05 }, { 1, 0 }, { 1, 1 } };
	struct runs r;
	double total = 0, *work = dlb_xcalloc((size_t)port->n_ops + 1, sizeof *work);
	runs_init(&r, port, kinds);
	for (int v = 0; v < port->n_ops; v++)
		work[v] = least_work(port, kinds, v);
	for (int c = 0; c < port->n; c++)
		total += port->bytes[c];
	for (int i = 0; i < DLB_LEN(rates); i++) {
		find_path(&r, work, total > 0 ? rates[i].bytes * best / total : 0, rates[i].send);
		best = fmax(best, runs_bound(&r));
	}
	free(work);
	runs_release(&r);
	return best;
}

/* The longest chain if every op is on its fastest node. */
static double chain_bound(const struct dlb_port *port, const struct dlb_latency_kinds *kinds)
{
	double *end = dlb_xcalloc((size_t)port->n_ops + 1, sizeof *end), most = 0;
	for (int v = 0; v < port->n_ops; v++) {
		for (int k = port->pred_start[v]; k < port->pred_start[v + 1]; k++)
			end[v] = fmax(end[v], end[port->pred[k]]);
		end[v] += least_work(port, kinds, v);
		most = fmax(most, end[v]);
	}
	free(end);
	return most;
}

double dlb_latency_bound_s(const struct dlb_port *port)
{
	size_t D = (size_t)port->n_nodes + 1;
	struct dlb_latency_kinds kinds = { .node = dlb_xcalloc(D, sizeof(int)),
					   .of = dlb_xcalloc(D, sizeof(int)),
					   .count = dlb_xcalloc(D, sizeof(int)),
					   .host = dlb_xcalloc(D, sizeof(bool)) };
	kinds.n = dlb_port_kinds(port, kinds.of, kinds.node);
	for (int d = 0; d < port->n_nodes; d++) {
		kinds.count[kinds.of[d]]++;
		kinds.host[kinds.of[d]] = port->host[port->place[d]];
	}
	double best = chain_bound(port, &kinds);
	if (port->n_ops && (double)port->n_ops * kinds.n <= MANY) {
		best = fmax(best, pairs_bound(port, &kinds));
		best = fmax(best, paths_bound(port, &kinds, best));
		best = fmax(best, dlb_latency_modules_bound_s(port, &kinds));
	}
	free(kinds.node);
	free(kinds.of);
	free(kinds.count);
	free(kinds.host);
	return best;
}
