/* A lower bound on the latency of every placement by modules. A joint is an op that all others precede or follow
 * on paths: no edge passes it by. A module has the ops on paths from joint u to the next joint v. What happens
 * after u has been computed and before v is:
 *
 *   load   the calls of one node follow one another (an op of the earlier one precedes one of the later one, by
 *          way of another node). So on v's node, with the set X of the module's ops on it, perhaps also u:
 *              work of X + receives of tensors read in X or by v, made elsewhere + sends of X's (and u's)
 *          The least over all X is a minimum cut, of which a part may be given: u and all ops on the node (stay),
 *          u on it and some op not (leave), u not on it (switch). If u is not on the node, its first call waits
 *          for a send of u or of another op of the module.
 *   path   as in latency_bound.c, within the module. Between hosts there is no other: they compute any number of
 *          ops side by side. A cut with a transfer is at least as long as the longest path through it.
 *
 * Modules are added up, since each work and each transfer is of one module. In a stay the node holds all classes
 * of the module, in a leave at least v's; a switch begins with v's. Dynamic programming over joints, the kind of
 * node, and the bytes held, rounded down to a part of the node's memory; a class counts where its first op is. */
#include <stdlib.h>
#include <string.h>
#include "place/latency_bound.h"
#include "place/min_cut.h"

enum {
	PARTS = 256 /* of a node's memory */,
	MOST_SINGLE = 64 /* ops, of each of which leaves are computed */
};
enum { LOOKS = 100000000 /* arcs visited: half a second */, HALVINGS = 24 };

struct modules {
	const struct dlb_port *port;
	const struct dlb_latency_kinds *kinds;
	int64_t budget;
	double large; /* more than any cut without it */
	double *least; /* [op] least work over kinds */
	double *least_pay; /* [op] least over kinds, 0 with hosts */
	double *bytes; /* [op] of its class, if it is the first op of it, else 0 */
	bool *in; /* [op] u and the ops of the present module */
	int *index; /* [op] position in `op` */
	double *to, *from; /* [op] longest path from u, with the op; to v, without both */
	double *through; /* [op] the longest paths to v from the readers of its output: the shortest of these */
	double *head;
	struct dlb_latency_two *sent; /* of dlb_latency_arrive_s */
	double *path; /* [kind of u's node][kind of v's node] of the present module: see find_paths */
	int u, v, n, *op; /* the present module: joints, ops in topological order */
	double longest; /* path from u to v, without both */
	struct dlb_min_cut cut;
	/* arcs whose capacities change: [position] op out of the node (position n: u), u on the node, and transfers,
	 * each with the tensor's op and the seconds */
	int *out_arc, u_arc, n_transfers;
	struct transfer {
		int arc, op;
		double s;
	} * transfer;
};

/* ---- one module ---- */

/* Marks the ops on paths from u to v, and finds the lengths of the longest paths. Ops are numbered in
 * topological order. */
static void find_module(struct modules *m, int u, int v)
{
	const struct dlb_port *port = m->port;

	m->u = u;
	m->v = v;
	m->n = 0;
	m->longest = 0;
	for (int p = u; p <= v; p++)
		m->in[p] = p == u;
	m->to[u] = 0;
	for (int p = u + 1; p < v; p++) {
		double most = -1;

		for (int i = port->pred_start[p]; i < port->pred_start[p + 1]; i++)
			if (port->pred[i] >= u && m->in[port->pred[i]])
				most = fmax(most, m->to[port->pred[i]]);
		m->in[p] = most >= 0;
		m->to[p] = most + m->least[p];
	}
	m->in[v] = true;
	for (int p = v - 1; p >= u; p--) {
		double most = -1, least = INFINITY;

		for (int i = port->succ_start[p]; i < port->succ_start[p + 1] && m->in[p]; i++) {
			const int s = port->succ[i];

			if (s > v || !m->in[s])
				continue;
			const double rest = s == v ? 0 : m->least[s] + m->from[s];
			most = fmax(most, rest);
			least = fmin(least, rest);
		}
		m->in[p] = most >= 0;
		m->from[p] = most;
		m->through[p] = least;
		m->longest = m->in[p] ? fmax(m->longest, m->to[p] + most) : m->longest;
	}
	m->in[v] = false;
	for (int p = u + 1; p < v; p++) {
		if (!m->in[p])
			continue;
		m->index[p] = m->n;
		m->op[m->n++] = p;
	}
	m->index[u] = m->n;
}

/* Sets path[from][to]: the cost of paths from u, on a node of kind `from`, to the begin of v on one of kind `to`. */
static void find_paths(struct modules *m)
{
	const int K = m->kinds->n;

	for (int from = 0; from < K; from++) {
		m->sent[m->u] = (struct dlb_latency_two){ { INFINITY, INFINITY }, -1 };
		for (int k = 0; k < K; k++)
			m->head[(size_t)m->u * (size_t)K + (size_t)k] = k == from ? 0 : INFINITY;
		dlb_latency_offer(&m->sent[m->u], dlb_latency_pay_s(m->port, m->kinds, m->u, from), from);
		for (int x = 0; x < m->n; x++)
			dlb_latency_reach(m->port, m->kinds, m->in, m->op[x], m->head, m->sent);
		for (int to = 0; to < K; to++)
			m->path[from * K + to] = dlb_latency_arrive_s(m->port, m->kinds, m->head, m->sent,
								      m->in, m->v, to);
	}
}

static void transfer(struct modules *m, int from, int to, int p, double s)
{
	m->transfer[m->n_transfers++] = (struct transfer){ m->cut.n_arcs, p, s };
	dlb_min_cut_arc(&m->cut, from, to, s);
}

/* The network of loads of a node of kind k. Vertices: [position] the op is on the node (on the source's side),
 * n + 1 + position: so is a reader of its output, 2 (n + 1) + position: so are all readers. */
static void make_network(struct modules *m, int k)
{
	const struct dlb_port *port = m->port;
	const int N = m->n + 1, source = 3 * N, sink = 3 * N + 1;

	dlb_min_cut_init(&m->cut, 3 * N + 2);
	m->n_transfers = 0;
	for (int x = 0; x < N; x++) {
		const int p = x < m->n ? m->op[x] : m->u;
		const double work = dlb_latency_work_s(port, p, m->kinds->node[k]),
			     pay = dlb_latency_pay_s(port, m->kinds, p, k);

		m->out_arc[x] = m->cut.n_arcs;
		dlb_min_cut_arc(&m->cut, x, sink, x == m->n ? 0 : fmin(work, m->large));
		transfer(m, N + x, x, p, pay); /* received */
		transfer(m, x, 2 * N + x, p, pay); /* sent */
		for (int i = port->succ_start[p]; i < port->succ_start[p + 1]; i++) {
			const int s = port->succ[i];

			if (s == m->v) {
				dlb_min_cut_arc(&m->cut, source, N + x, m->large);
			} else if (s < m->v && m->in[s]) {
				dlb_min_cut_arc(&m->cut, m->index[s], N + x, m->large);
				dlb_min_cut_arc(&m->cut, 2 * N + x, m->index[s], m->large);
			}
		}
	}
	m->u_arc = m->cut.n_arcs;
	dlb_min_cut_arc(&m->cut, source, m->n, 0);
}

/* The least load if no path is longer than s. */
static double load_s(struct modules *m, double s)
{
	const int N = m->n + 1;

	for (int i = 0; i < m->n_transfers; i++) {
		const struct transfer *t = &m->transfer[i];
		const double path = m->to[t->op] + t->s + m->least_pay[t->op] + m->through[t->op];

		m->cut.given[t->arc] = path > s * (1 + 1e-12) ? m->large : t->s;
	}
	return dlb_min_cut_value(&m->cut, 3 * N, 3 * N + 1, &m->budget);
}

/* The least s that is neither below the longest path nor below `before` and the load. below: INFINITY, or a
 * value above which the result need not be exact. */
static double least_s(struct modules *m, double before, double below)
{
	double lo = fmax(m->longest, before + load_s(m, INFINITY)), hi;

	if (lo >= below || lo >= m->large || before + load_s(m, lo) <= lo)
		return lo;
	if (isfinite(below)) {
		if (before + load_s(m, below) > below)
			return below;
		hi = below;
	} else {
		for (hi = 2 * lo + 1e-9; hi < m->large && before + load_s(m, hi) > hi;)
			hi *= 2;
	}
	for (int i = 0; i < HALVINGS && hi > lo * (1 + 1e-6); i++) {
		const double s = lo + (hi - lo) / 2;

		*(before + load_s(m, s) > s ? &lo : &hi) = s;
	}
	return lo;
}

/* u is on the node, and some op is not. */
static double leave_s(struct modules *m)
{
	double *given = m->cut.given, best = INFINITY;

	if (!m->n)
		return INFINITY;
	given[m->u_arc] = m->large;
	if (m->n > MOST_SINGLE)
		best = least_s(m, 0, INFINITY);
	for (int x = 0; x < m->n && m->n <= MOST_SINGLE; x++) {
		const double work = given[m->out_arc[x]];

		given[m->out_arc[x]] = m->large;
		best = fmin(best, least_s(m, 0, best));
		given[m->out_arc[x]] = work;
	}
	given[m->u_arc] = 0;
	return best;
}

/* u is on a node of kind `from`, which is not v's. */
static double switch_s(struct modules *m, int from)
{
	double *given = m->cut.given, first = dlb_latency_pay_s(m->port, m->kinds, m->u, from);

	for (int x = 0; x < m->n; x++)
		first = fmin(first, m->to[m->op[x]] + m->least_pay[m->op[x]]);
	given[m->out_arc[m->n]] = m->large;
	const double s = least_s(m, first, INFINITY);
	given[m->out_arc[m->n]] = 0;
	return s;
}

static double stay_s(const struct modules *m, int k)
{
	double s = 0;

	for (int x = 0; x < m->n; x++)
		s += dlb_latency_work_s(m->port, m->op[x], m->kinds->node[k]);
	return s;
}

/* ---- all modules ---- */

/* cost: [kind][part]: the least up to a joint, if its node holds that many parts of its memory. */
static void keep(double *cost, double parts, double s)
{
	if (parts <= PARTS)
		cost[(int)parts] = fmin(cost[(int)parts], s);
}

static double least_of(const double *cost)
{
	double least = INFINITY;

	for (int i = 0; i <= PARTS; i++)
		least = fmin(least, cost[i]);
	return least;
}

/* Parts of the memory of a node of kind k, rounded down. */
static double parts_of(const struct modules *m, int k, double bytes)
{
	const double room = m->port->room_bytes[m->kinds->node[k]];

	return isfinite(room) && room > 0 && !m->kinds->host[k] ? floor(bytes / room * PARTS * (1 - 1e-9)) :
	       bytes > 0 && room <= 0                           ? PARTS + 1 :
								  0;
}

/* Continues from cost, of u, to next, of v: the ways to a node of kind k. */
static void go_on(struct modules *m, int k, const double *cost, double *next)
{
	const size_t row = PARTS + 1;
	const double work = dlb_latency_work_s(m->port, m->v, m->kinds->node[k]), own = m->bytes[m->v];
	double held = own;

	for (size_t i = 0; i < row; i++)
		next[(size_t)k * row + i] = INFINITY;
	if (isinf(work))
		return;
	for (int x = 0; x < m->n; x++)
		held += m->bytes[m->op[x]];
	if (!m->kinds->host[k])
		make_network(m, k);
	for (int from = 0; from < m->kinds->n; from++) {
		const double *was = &cost[(size_t)from * row], path = m->path[from * m->kinds->n + k];
		double *to = &next[(size_t)k * row], other = path;

		if (isinf(least_of(was)))
			continue;
		if (!m->kinds->host[k] && (from != k || m->kinds->count[k] > 1))
			other = fmax(other, switch_s(m, from));
		if (m->kinds->host[k] || from != k || m->kinds->count[k] > 1)
			keep(to, parts_of(m, k, own), least_of(was) + other + work);
		if (from != k || m->kinds->host[k])
			continue;
		const double stay = stay_s(m, k), leave = fmax(path, leave_s(m));

		for (int i = 0; i <= PARTS; i++) {
			if (isinf(was[i]))
				continue;
			keep(to, i + parts_of(m, k, held), was[i] + stay + work);
			keep(to, i + parts_of(m, k, own), was[i] + leave + work);
		}
	}
	if (!m->kinds->host[k])
		dlb_min_cut_release(&m->cut);
}

static void modules_init(struct modules *m, const struct dlb_port *port,
			 const struct dlb_latency_kinds *kinds)
{
	const size_t n = (size_t)port->n_ops + 1, K = (size_t)kinds->n;
	bool *seen = dlb_xcalloc((size_t)port->n + 1, sizeof *seen);

	*m = (struct modules){ .port = port, .kinds = kinds, .budget = LOOKS, .large = 1 };
	m->least = dlb_xcalloc(n, sizeof *m->least);
	m->least_pay = dlb_xcalloc(n, sizeof *m->least_pay);
	m->bytes = dlb_xcalloc(n, sizeof *m->bytes);
	m->in = dlb_xcalloc(n, sizeof *m->in);
	m->index = dlb_xcalloc(n, sizeof *m->index);
	m->to = dlb_xcalloc(n, sizeof *m->to);
	m->from = dlb_xcalloc(n, sizeof *m->from);
	m->through = dlb_xcalloc(n, sizeof *m->through);
	m->head = dlb_xcalloc(n * K, sizeof *m->head);
	m->sent = dlb_xcalloc(n, sizeof *m->sent);
	m->path = dlb_xcalloc(K * K, sizeof *m->path);
	m->op = dlb_xcalloc(n, sizeof *m->op);
	m->out_arc = dlb_xcalloc(n, sizeof *m->out_arc);
	m->transfer = dlb_xcalloc(2 * n, sizeof *m->transfer);
	for (int v = 0; v < port->n_ops; v++) {
		m->least[v] = m->least_pay[v] = INFINITY;
		for (int k = 0; k < kinds->n; k++) {
			const double work = dlb_latency_work_s(port, v, kinds->node[k]),
				     pay = dlb_latency_pay_s(port, kinds, v, k);

			m->least[v] = fmin(m->least[v], work);
			m->least_pay[v] = fmin(m->least_pay[v], pay);
			m->large += (isfinite(work) ? work : 0) + 2 * pay;
		}
		m->bytes[v] = seen[port->class_of[v]] ? 0 : port->bytes[port->class_of[v]];
		seen[port->class_of[v]] = true;
	}
	m->large *= 4;
	free(seen);
}

static void modules_release(struct modules *m)
{
	void *all[] = { m->least,   m->least_pay, m->bytes, m->in,   m->index, m->to,      m->from,
			m->through, m->head,      m->sent,  m->path, m->op,    m->out_arc, m->transfer };
	for (int i = 0; i < DLB_LEN(all); i++)
		free(all[i]);
}

/* Fills joint[] with the ops that no edge passes by; returns their number. */
static int find_joints(const struct dlb_port *port, int *joint)
{
	int n = 0, far = 0;

	for (int v = 0; v < port->n_ops; v++) {
		if (far <= v)
			joint[n++] = v;
		for (int i = port->succ_start[v]; i < port->succ_start[v + 1]; i++)
			far = port->succ[i] > far ? port->succ[i] : far;
	}
	return n;
}

/* The least over kinds of the cost of the last joint. */
static double least_of_all(const struct modules *m, const double *cost)
{
	double least = INFINITY;

	for (int k = 0; k < m->kinds->n; k++)
		least = fmin(least, least_of(&cost[(size_t)k * (PARTS + 1)]));
	return isfinite(least) ? least : 0;
}

/* Begins with joint v. */
static void begin(const struct modules *m, int v, double *cost)
{
	for (int i = 0; i < m->kinds->n * (PARTS + 1); i++)
		cost[i] = INFINITY;
	for (int k = 0; k < m->kinds->n; k++)
		keep(&cost[(size_t)k * (PARTS + 1)], parts_of(m, k, m->bytes[v]),
		     dlb_latency_work_s(m->port, v, m->kinds->node[k]));
}

double dlb_latency_modules_bound_s(const struct dlb_port *port, const struct dlb_latency_kinds *kinds)
{
	const size_t size = (size_t)kinds->n * (PARTS + 1);
	struct modules m;
	int *joint = dlb_xcalloc((size_t)port->n_ops + 1, sizeof *joint);
	double *cost = dlb_xcalloc(size, sizeof *cost), *next = dlb_xcalloc(size, sizeof *next), best = 0;
	const int n = find_joints(port, joint);

	modules_init(&m, port, kinds);
	for (int i = 0; i < n && m.budget > 0; i++) {
		double *was = cost;

		if (i)
			find_module(&m, joint[i - 1], joint[i]);
		if (!i || !m.in[joint[i - 1]]) { /* no path leads from the joint before to this one */
			begin(&m, joint[i], cost);
		} else {
			find_paths(&m);
			for (int k = 0; k < kinds->n; k++)
				go_on(&m, k, cost, next);
			cost = next;
			next = was;
		}
		best = fmax(best, least_of_all(&m, cost));
	}
	modules_release(&m);
	free(joint);
	free(cost);
	free(next);
	return best;
}
