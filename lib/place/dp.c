/* dp: the best contiguous placement, by dynamic programming over ideals (Tarnawski et al., NeurIPS 2020).
 *
 *     best[I][used] = min over ideals J below I, kinds t with a device left, of
 *                     max(best[J][used - t], load of I \ J on t)                      throughput
 *                     best[J][used - t] + seconds of I \ J as one call on t           latency
 *
 * used counts the devices of each kind (a kind: equal devices). From each I the walk goes down item by
 * item, visits each J once, and updates work, memory and transfers of I \ J in O(nets of the item) per
 * step. It prunes where no kind of device can do that much work within the value already reached, or where
 * no state of I would improve; work and memory only grow on the way down, transfers do not. A state that
 * leaves more work than the remaining devices can do is not entered. The chosen J is not stored: the walk
 * is repeated along the best chain.
 *
 * Latency: the host takes part as a stage whose time is the longest chain of its ops, any number of times. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "place/ideals.h"
#include "place/place.h"
#include "util/clock.h"

enum { MAX_IDEALS = 400000, MAX_STATES = 1 << 14 };
static const int64_t MOST_STEPS = 1000000000;		/* a minute or two */

struct node_kind { int node, count, stride; bool host; };	/* equal devices; node: the first of them */

struct dp_walk {
	const struct dlb_ideals *s;
	const struct dlb_port *port;
	bool latency;
	/* reach: pruning bound for stages of the current ideal; <= bound */
	double bound, reach;
	int *open, n_open;			/* states of the current ideal that may improve */
	struct node_kind *kind; int n_kinds, n_states, *kind_of;	/* [node] */
	unsigned char *left;			/* [state][kind]: one more device is left */
	double *best;				/* [ideal][state] */
	bool *live;				/* [ideal]: some state is reached */
	int *low, *high;			/* [ideal] first and last such state */
	double *share, *ideal_share;		/* [item], [ideal]: work at prices, see prices() */
	double least_s;				/* lower bound of the value; 0: not known */
	/* [state] work that its used devices can do, at prices, per second of value */
	double *capacity;
	/* the current difference I \ J */
	double *work, *send, bytes;		/* [kind] */
	/* readers: in the difference, in all, above I; home: the source is inside the difference */
	struct pin { int inside, sinks, above; bool home; } *net;
	double *net_s;				/* [net][kind] */
	double *item_work_s, *item_bytes;	/* [item][kind], [item] */
	double *fixed;				/* [kind] the part of send that no further step reduces */
	int64_t steps, most_steps;
	/* [op] longest chain of host ops from it, in the difference; the longest */
	double *tail, chain;
	bool *in;				/* [op] */
	int *stamp, top;
	/* while tracing back: the state and value wanted; the ideal below that gives them */
	int want_state, found_ideal, found_kind, *path, n_path;
	double want;
};

static bool find_kinds(struct dp_walk *w)
{
	const struct dlb_port *port = w->port;
	double states = 1;
	w->kind = dlb_xcalloc((size_t)port->n_nodes, sizeof *w->kind);
	w->kind_of = dlb_xcalloc((size_t)port->n_nodes, sizeof *w->kind_of);
	int *first = dlb_xcalloc((size_t)port->n_nodes, sizeof *first);
	w->n_kinds = dlb_port_kinds(port, w->kind_of, first);
	for (int k = 0; k < w->n_kinds; k++)
		w->kind[k] = (struct node_kind){ .node = first[k],
						 .host = port->host[port->place[first[k]]] };
	for (int d = 0; d < port->n_nodes; d++)
		w->kind[w->kind_of[d]].count++;
	free(first);
	for (int k = 0; k < w->n_kinds; k++) {
		if (w->latency && w->kind[k].host)
			w->kind[k].count = 0;		/* not counted: a host has as many cores as needed */
		states *= w->kind[k].count + 1;
	}
	if (states > MAX_STATES)
		return false;
	w->n_states = 1;
	for (int k = 0; k < w->n_kinds; k++) {
		w->kind[k].stride = w->kind[k].count ? w->n_states : 0;
		w->n_states *= w->kind[k].count + 1;
	}
	return true;
}

static int used(const struct dp_walk *w, int state, int k)
{
	return w->kind[k].stride ? state / w->kind[k].stride % (w->kind[k].count + 1) : 0;
}

/* Prices y(t) per second of kind t: an item costs at least share(item) = min over t of y(t) work(t), and
 * the devices of a state can do capacity * value in all. So a state is pruned if its remaining capacity is
 * less than the remaining work. */
static void prices(struct dp_walk *w)
{
	const struct dlb_port *port = w->port;
	size_t D = (size_t)port->n_nodes, K = (size_t)w->n_kinds, n = (size_t)port->n;
	double *y = dlb_xcalloc(K, sizeof *y), *time_s = dlb_xmalloc((n * K + 1) * sizeof *time_s);
	int *count = dlb_xcalloc(K, sizeof *count);
	for (size_t k = 0; k < K; k++)
		count[k] = w->kind[k].count;
	for (size_t g = 0; g < n; g++)
		for (size_t k = 0; k < K; k++)
			time_s[g * K + k] = port->work_s[g * D + (size_t)w->kind[k].node];
	w->least_s = dlb_load_prices(time_s, port->n, count, w->n_kinds, y);
	for (size_t g = 0; g < n; g++) {
		double least = INFINITY;
		for (size_t k = 0; k < K; k++)
			least = isfinite(time_s[g * K + k]) ? fmin(least, y[k] * time_s[g * K + k]) : least;
		w->share[w->s->item_of[g]] += isfinite(least) ? least : 0;
	}
	for (int i = 1; i < w->s->n; i++) {
		const struct dlb_ideal_below *d = &w->s->down[w->s->down_start[i]];
		w->ideal_share[i] = w->ideal_share[d->ideal] + w->share[d->item];
	}
	for (int s = 0; s < w->n_states; s++)
		for (int k = 0; k < w->n_kinds; k++)
			w->capacity[s] += y[k] * used(w, s, k);
	free(y);
	free(time_s);
	free(count);
}

/* A net costs a transfer while it has pins on both sides of the border of the difference. A net with
 * readers above I keeps this cost once its source is inside. */
static void touch_nets(struct dp_walk *w, int c, int sign)
{
	const struct dlb_port *port = w->port;
	for (int i = port->touch_start[c]; i < port->touch_start[c + 1]; i++) {
		struct pin *x = &w->net[port->touch[i] >> 1];
		bool source = port->touch[i] & 1;
		int was = x->home ? x->inside < x->sinks : x->inside > 0;
		if (source)
			x->home = sign > 0;
		else
			x->inside += sign;
		if (sign < 0)
			continue;			/* the caller restores the sums */
		int is = x->home ? x->inside < x->sinks : x->inside > 0;
		const double *t = &w->net_s[(size_t)(port->touch[i] >> 1) * (size_t)w->n_kinds];
		if (source && x->above)
			for (int k = 0; k < w->n_kinds; k++)
				w->fixed[k] += t[k];
		if (is != was)
			for (int k = 0; k < w->n_kinds; k++)
				w->send[k] += (is - was) * t[k];
	}
}

/* Adds the host ops of an item to the difference, the last first, and finds the longest chain that begins
 * with each. */
static void chain_up(struct dp_walk *w, const int *op, int n)
{
	const struct dlb_port *port = w->port;
	int host = -1;
	for (int k = 0; k < w->n_kinds; k++)
		if (w->kind[k].host)
			host = w->kind[k].node;
	for (int i = n - 1; i >= 0; i--) {
		double most = 0;
		for (int e = port->succ_start[op[i]]; e < port->succ_start[op[i] + 1]; e++)
			if (w->in[port->succ[e]] && w->tail[port->succ[e]] > most)
				most = w->tail[port->succ[e]];
		w->tail[op[i]] = most +
				 (host >= 0 ?
					  port->op_s[(size_t)op[i] * (size_t)port->n_nodes + (size_t)host] :
					  INFINITY);
		w->in[op[i]] = true;
		w->chain = w->tail[op[i]] > w->chain ? w->tail[op[i]] : w->chain;
	}
}

struct ops {
	int *start, *list;
}; /* [item], ascending */

static void add_item(struct dp_walk *w, const struct ops *ops, int item)
{
	for (int i = w->s->class_start[item + 1] - 1; i >= w->s->class_start[item]; i--)
		touch_nets(w, w->s->class_list[i], 1);
	if (w->latency)
		chain_up(w, &ops->list[ops->start[item]], ops->start[item + 1] - ops->start[item]);
}

/* Removes an item's nets and ops; the caller restores the sums bit for bit. */
static void drop_item(struct dp_walk *w, const struct ops *ops, int item)
{
	for (int i = w->s->class_start[item]; i < w->s->class_start[item + 1]; i++)
		touch_nets(w, w->s->class_list[i], -1);
	for (int k = ops->start[item]; w->latency && k < ops->start[item + 1]; k++)
		w->in[ops->list[k]] = false;
}

static double stage_s(const struct dp_walk *w, int k)
{
	if (w->latency && w->kind[k].host)
		return w->chain;
	return w->work[k] + (w->send[k] > 0 ? w->send[k] : 0);
}

static bool holds(const struct dp_walk *w, int k)
{
	return w->bytes <= w->port->room_bytes[w->kind[k].node] &&
	       (w->latency && w->kind[k].host ? w->chain : w->work[k] + w->fixed[k]) <= w->reach;
}

/* Adds work and memory, which do not depend on nets; false: no kind of device holds that much. */
static bool weigh(struct dp_walk *w, int item)
{
	bool some = false;
	w->bytes += w->item_bytes[item];
	for (int k = 0; k < w->n_kinds; k++) {
		w->work[k] += w->item_work_s[(size_t)item * (size_t)w->n_kinds + (size_t)k];
		some |= holds(w, k);
	}
	return some;
}

/* Sets the pruning bound: the greatest value among the open states of the current ideal. Values at or
 * below the lower bound of the load need no improvement and do not count. */
static void find_reach(struct dp_walk *w)
{
	const double *b = &w->best[(size_t)w->top * (size_t)w->n_states];
	double most = 0;

	for (int i = 0; i < w->n_open; i++)
		most = b[w->open[i]] > w->least_s && b[w->open[i]] > most ? b[w->open[i]] : most;
	w->reach = most < w->bound ? most : w->bound;
}

static void offer(struct dp_walk *w, int ideal, int k)
{
	double t = stage_s(w, k), *to = &w->best[(size_t)w->top * (size_t)w->n_states];
	const double *from = &w->best[(size_t)ideal * (size_t)w->n_states];
	const unsigned char *left = &w->left[(size_t)k * (size_t)w->n_states];
	int stride = w->kind[k].stride;
	bool better = false;
	if (t > w->reach)
		return;
	int last = w->high[ideal] + stride < w->n_states ? w->high[ideal] : w->n_states - 1 - stride;
	for (int s = w->low[ideal]; s <= last; s++) {
		double v = w->latency ? from[s] + t : from[s] > t ? from[s] : t;
		if (left[s] && v < to[s + stride]) {
			to[s + stride] = v;
			better = true;
		}
	}
	if (better)
		find_reach(w);
}

/* While tracing back: records the stage that reached the wanted state. */
static void match(struct dp_walk *w, int ideal, int k)
{
	int s = w->want_state - w->kind[k].stride;
	double t = stage_s(w, k);
	if (w->found_ideal >= 0 || s < 0 || !w->left[(size_t)k * (size_t)w->n_states + (size_t)s] ||
	    t > w->bound)
		return;
	double from = w->best[(size_t)ideal * (size_t)w->n_states + (size_t)s];
	if ((w->latency ? from + t : from > t ? from : t) == w->want) {
		w->found_ideal = ideal;
		w->found_kind = k;
	}
}

static void copy(double *to, const double *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = from[i];
}

static void go_down(struct dp_walk *w, const struct ops *ops, int ideal, bool look)
{
	enum { FEW = 8 };
	size_t K = (size_t)w->n_kinds;
	double few[3 * FEW], *sums = w->n_kinds <= FEW ? few : dlb_xmalloc(3 * K * sizeof(double)),
			     bytes = w->bytes, chain = w->chain;
	copy(sums, w->work, K);				/* for few numbers memcpy would cost more */
	copy(sums + K, w->send, K);
	copy(sums + 2 * K, w->fixed, K);
	for (int i = w->s->down_start[ideal]; i < w->s->down_start[ideal + 1] && w->found_ideal < 0; i++) {
		const struct dlb_ideal_below *d = &w->s->down[i];
		if (w->stamp[d->ideal] == w->top)
			continue;
		w->stamp[d->ideal] = w->top;
		if (weigh(w, d->item) && w->steps < w->most_steps) {
			bool on = false;
			w->steps++;
			add_item(w, ops, d->item);
			for (int k = 0; k < w->n_kinds; k++) {
				if (!holds(w, k))
					continue;
				on = true;
				if (w->live[d->ideal] && !look)
					offer(w, d->ideal, k);
				else if (w->live[d->ideal])
					match(w, d->ideal, k);
			}
			if (on && w->found_ideal < 0)
				go_down(w, ops, d->ideal, look);
			if (w->found_ideal >= 0)
				w->path[w->n_path++] = d->item;
			drop_item(w, ops, d->item);
			copy(w->send, sums + K, K);
			copy(w->fixed, sums + 2 * K, K);
			w->chain = chain;
		}
		copy(w->work, sums, K);
		w->bytes = bytes;
	}
	if (w->n_kinds > FEW)
		free(sums);
}

static void restart(struct dp_walk *w, int top)
{
	w->top = top;
	w->n_path = 0;
	w->found_ideal = -1;
	w->bytes = w->chain = 0;
	memset(w->work, 0, (size_t)w->n_kinds * sizeof *w->work);
	memset(w->send, 0, (size_t)w->n_kinds * sizeof *w->send);
	memset(w->fixed, 0, (size_t)w->n_kinds * sizeof *w->fixed);
	/* readers of each net that are not in I */
	for (int e = 0; e < w->port->n_nets; e++) {
		int above = 0;
		for (int k = w->port->sink_start[e]; k < w->port->sink_start[e + 1]; k++)
			above += !dlb_ideal_has(w->s, top, w->s->item_of[w->port->sink[k]]);
		w->net[e].above = above;
	}
}

/* Opens the states of an ideal whose used devices can do the work below it and whose other devices can do the
 * rest; false: none. */
static bool open_states(struct dp_walk *w, int ideal)
{
	const double all = w->ideal_share[w->s->n - 1], done = w->ideal_share[ideal],
		     most = w->capacity[w->n_states - 1];
	const double can = w->bound * (1 + 1e-9);
	const bool any = w->latency || isinf(w->bound);

	w->n_open = 0;
	for (int s = 0; s < w->n_states; s++)
		if (any || (done <= w->capacity[s] * can && all - done <= (most - w->capacity[s]) * can))
			w->open[w->n_open++] = s;
	return w->n_open > 0;
}

/* Closes states that leave more work than the remaining devices can do. */
static void close_ideal(struct dp_walk *w, int ideal)
{
	double *b = &w->best[(size_t)ideal * (size_t)w->n_states], all = w->ideal_share[w->s->n - 1];
	for (int s = 0; s < w->n_states; s++) {
		double rest = all - w->ideal_share[ideal];
		double can = (w->capacity[w->n_states - 1] - w->capacity[s]) * w->bound;
		if (!w->latency && rest > can * (1 + 1e-9))
			b[s] = INFINITY;
		if (isinf(b[s]))
			continue;
		if (!w->live[ideal])
			w->low[ideal] = s;
		w->live[ideal] = true;
		w->high[ideal] = s;
	}
}

static void find_ops(const struct dlb_ideals *s, const struct dlb_port *port, struct ops *ops)
{
	ops->start = dlb_xcalloc((size_t)s->n_items + 2, sizeof(int));
	ops->list = dlb_xcalloc((size_t)port->n_ops + 1, sizeof(int));
	int *fill = dlb_xcalloc((size_t)s->n_items + 1, sizeof *fill);
	for (int i = 0; i < port->n_ops; i++)		/* class -1: left out of the problem */
		if (port->class_of[i] >= 0)
			ops->start[s->item_of[port->class_of[i]] + 1]++;
	for (int i = 0; i < s->n_items; i++)
		ops->start[i + 1] += ops->start[i];
	for (int i = 0; i < port->n_ops; i++) {
		int item = port->class_of[i] < 0 ? -1 : s->item_of[port->class_of[i]];
		if (item >= 0)
			ops->list[ops->start[item] + fill[item]++] = i;
	}
	free(fill);
}

/* Traces the stages back from the last ideal. Stages of one kind use its nodes in turn. */
static void trace_back(struct dp_walk *w, const struct ops *ops, int state, int *at)
{
	int *next = dlb_xcalloc((size_t)w->n_kinds, sizeof *next), ideal = w->s->n - 1;
	memset(w->stamp, -1, (size_t)w->s->n * sizeof *w->stamp);
	while (ideal > 0) {
		restart(w, ideal);
		w->reach = w->bound;
		w->want_state = state;
		w->want = w->best[(size_t)ideal * (size_t)w->n_states + (size_t)state];
		go_down(w, ops, ideal, true);
		if (w->found_ideal < 0)
			dlb_bug("no stage leads to ideal %d", ideal);
		int k = w->found_kind, node = w->kind[k].node, seen = 0;
		for (int d = 0; d < w->port->n_nodes && w->kind[k].stride; d++)
			if (w->kind_of[d] == k && seen++ == next[k])
				node = d;
		next[k]++;
		for (int i = 0; i < w->n_path; i++)
			for (int j = w->s->class_start[w->path[i]]; j < w->s->class_start[w->path[i] + 1];
			     j++)
				at[w->s->class_list[j]] = node;
		state -= w->kind[k].stride;
		ideal = w->found_ideal;
	}
	free(next);
}

static void init_items(struct dp_walk *w)
{
	const struct dlb_port *port = w->port;
	size_t K = (size_t)w->n_kinds, P = (size_t)port->n_places;
	w->net = dlb_xcalloc((size_t)port->n_nets + 1, sizeof *w->net);
	w->net_s = dlb_xcalloc((size_t)port->n_nets * K + 1, sizeof *w->net_s);
	w->item_work_s = dlb_xcalloc((size_t)w->s->n_items * K + 1, sizeof *w->item_work_s);
	w->item_bytes = dlb_xcalloc((size_t)w->s->n_items + 1, sizeof *w->item_bytes);
	for (size_t e = 0; e < (size_t)port->n_nets; e++) {
		w->net[e].sinks = port->sink_start[e + 1] - port->sink_start[e];
		for (size_t k = 0; k < K; k++)
			w->net_s[e * K + k] = port->net_s[e * P + (size_t)port->place[w->kind[k].node]];
	}
	for (size_t c = 0; c < (size_t)port->n; c++) {
		size_t item = (size_t)w->s->item_of[c];
		w->item_bytes[item] += port->bytes[c];
		for (size_t k = 0; k < K; k++)
			w->item_work_s[item * K + k] += port->work_s[c * (size_t)port->n_nodes +
								     (size_t)w->kind[k].node];
	}
}

static void init_walk(struct dp_walk *w)
{
	size_t S = (size_t)w->n_states, n = (size_t)w->s->n;
	w->left = dlb_xcalloc((size_t)w->n_kinds * S, 1);
	w->best = dlb_xmalloc(n * S * sizeof *w->best);
	w->live = dlb_xcalloc(n, sizeof *w->live);
	w->low = dlb_xcalloc(n, sizeof *w->low);		/* of the empty ideal: state 0 */
	w->high = dlb_xcalloc(n, sizeof *w->high);
	w->share = dlb_xcalloc((size_t)w->s->n_items + 1, sizeof *w->share);
	w->ideal_share = dlb_xcalloc(n, sizeof *w->ideal_share);
	w->capacity = dlb_xcalloc(S, sizeof *w->capacity);
	w->open = dlb_xcalloc(S, sizeof *w->open);
	w->work = dlb_xcalloc((size_t)w->n_kinds, sizeof *w->work);
	w->send = dlb_xcalloc((size_t)w->n_kinds, sizeof *w->send);
	w->fixed = dlb_xcalloc((size_t)w->n_kinds, sizeof *w->fixed);
	init_items(w);
	w->tail = dlb_xcalloc((size_t)w->port->n_ops + 1, sizeof *w->tail);
	w->in = dlb_xcalloc((size_t)w->port->n_ops + 1, sizeof *w->in);
	w->stamp = dlb_xmalloc(n * sizeof *w->stamp);
	w->path = dlb_xcalloc((size_t)w->s->n_items + 1, sizeof *w->path);
	for (size_t i = 0; i < S; i++)			/* of the empty ideal; run() does the others */
		w->best[i] = INFINITY;
	for (int k = 0; k < w->n_kinds; k++)
		for (int s = 0; s < w->n_states; s++)
			w->left[(size_t)k * S + (size_t)s] = !w->kind[k].stride ||
							     used(w, s, k) < w->kind[k].count;
	if (!w->latency && isfinite(w->bound))
		prices(w);
	w->best[0] = 0;
	w->live[0] = true;
}

static void release_walk(struct dp_walk *w)
{
	void *all[] = { w->left,        w->best,     w->live,        w->low,        w->high, w->share,
			w->ideal_share, w->capacity, w->open,        w->work,       w->send, w->fixed,
			w->net,         w->net_s,    w->item_work_s, w->item_bytes, w->tail, w->in,
			w->stamp,       w->path,     w->kind,        w->kind_of };
	for (int i = 0; i < DLB_LEN(all); i++)
		free(all[i]);
}

/* The least value below w->bound, and its state; INFINITY: none, or beyond the limits. */
static double run(struct dp_walk *w, const struct ops *ops, const struct dlb_dp_limits *limits, int *state)
{
	const size_t S = (size_t)w->n_states, n = (size_t)w->s->n;
	double value = INFINITY;

	for (size_t i = S; i < n * S; i++)
		w->best[i] = INFINITY;
	memset(w->live + 1, 0, (n - 1) * sizeof *w->live);
	memset(w->stamp, -1, n * sizeof *w->stamp);
	for (int i = 1; i < w->s->n && w->steps < w->most_steps; i++) {
		if (!open_states(w, i))
			continue;
		if (limits && limits->deadline_s > 0 && dlb_clock_s() >= limits->deadline_s)
			w->most_steps = w->steps;
		if (limits && limits->progress)
			limits->progress(limits->progress_arg, i, w->s->n);
		restart(w, i);
		find_reach(w);
		go_down(w, ops, i, false);
		close_ideal(w, i);
	}
	if (limits && limits->progress)
		limits->progress(limits->progress_arg, w->s->n, w->s->n);
	/* after an early end no value counts, since it may not be the best */
	for (int k = 0; k < w->n_states && w->steps < w->most_steps; k++) {
		const double v = w->best[(n - 1) * S + (size_t)k];
		if (v < value) {
			value = v;
			*state = k;
		}
	}
	return value;
}

double dlb_dp(const struct dlb_ideals *s, const struct dlb_port *port, bool latency, double bound,
	      const struct dlb_dp_limits *limits, int *at)
{
	struct dp_walk w = { .s = s, .port = port, .latency = latency, .bound = bound,
			  .most_steps = limits && limits->most_steps > 0 ? limits->most_steps : INT64_MAX };
	struct ops ops;
	double value;
	int state = -1;
	if (!find_kinds(&w)) {
		release_walk(&w);
		return INFINITY;
	}
	init_walk(&w);
	find_ops(s, port, &ops);
	value = run(&w, &ops, limits, &state);
	if (state >= 0)
		trace_back(&w, &ops, state, at);
	free(ops.start);
	free(ops.list);
	release_walk(&w);
	return value;
}

/* The number of states, that is of combinations of used devices per kind; at most MAX_STATES are allowed. */
static double count_states(const struct dlb_port *port)
{
	struct dp_walk w = { .port = port };
	double states = 1;
	find_kinds(&w);
	for (int k = 0; k < w.n_kinds; k++)
		states *= w.kind[k].count + 1;
	free(w.kind);
	free(w.kind_of);
	return states;
}

/* Reports that a result is not the optimum over all ideals; as a warning if the user named dp. */
static void say_beyond(const struct dlb_problem *p, enum dlb_dp_beyond beyond)
{
	static const char *const line[] = {
		[DLB_DP_IDEALS] = "dp: more than 400000 ideals; this is the best of the prefixes of a few "
				  "orders, or isolated ops stand where there was room",
		[DLB_DP_STEPS] = "dp: given up over all ideals, which takes long; this is the best of the "
				 "prefixes of a few orders, or isolated ops "
				 "stand where there was room; --effort N or --time S let it go on",
	};
	void (*tell)(void *arg, const char *line) = p->most_ideals > 0 ? p->said : p->warned;

	if (beyond != DLB_DP_NOTHING && tell)
		tell(p->tried_arg, line[beyond]);
}

int dlb_place_dp(const struct dlb_problem *p, int *placement, struct dlb_error *err)
{
	struct dlb_port port;
	enum dlb_dp_beyond beyond;
	int *at = dlb_xcalloc((size_t)p->n_groups + 1, sizeof *at);
	dlb_port_init(&port, p, true);
	const bool start = p->most_dp_work > 0;		/* dp is one start of a search */
	const struct dlb_dp_limits limits = {
		.most_ideals = p->most_ideals > 0 ? p->most_ideals : MAX_IDEALS,
		.most_steps = start ? (int64_t)(p->most_dp_work / count_states(&port)) + 1 :
			      p->search_s > 0 ? 0 : MOST_STEPS * (p->effort > 0 ? p->effort : 1),
		.deadline_s = start ? 0 : p->deadline_s,
		.progress = p->progress, .progress_arg = p->tried_arg,
	};
	double value = dlb_contiguous(&port, p->objective == DLB_LATENCY, &limits, at, &beyond);
	for (int i = 0; i < p->graph->n_ops; i++)
		placement[i] = at[p->group_of[i]];
	free(at);
	double states = isinf(value) ? count_states(&port) : 0;
	dlb_port_release(&port);
	if (states > MAX_STATES)
		return dlb_fail_no(err, NULL,
				   "no plan fits: dp looks at up to %d combinations of nodes that are not "
				   "alike, here are %.4g",
				   MAX_STATES, states);
	if (isinf(value))
		return dlb_fail_no(
			err, NULL,
			"no plan fits: no contiguous parts of the graph fit the nodes' memory and kernels");
	say_beyond(p, beyond);
	return 0;
}
