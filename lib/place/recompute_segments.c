/* Ops to run again by segments of the chain of each node. See recompute_choose.c.
 *
 * The forward ops of a node, in their order, form a chain, which is cut into segments. A segment of one op
 * keeps its outputs. A longer segment drops all outputs that no later segment reads; they are computed again
 * when its backward phase begins, from the outputs kept by earlier segments. With W(i) the bytes kept by the
 * segments up to i, the backward phase of segment (i, j] needs
 *     (k - 1) W(n) + W(i) + kept(i, j) + again(i, j) + transient(i, j)
 * bytes, with k micro-batches in flight: each of the k - 1 others keeps W(n) bytes. Dynamic programming over
 * j finds the least seconds for every W(j) (states that are larger and slower than another are dropped) with
 * that sum below a limit. On a chain every set of ops that run again is such a partition, so the result is
 * the best one of this model (cf. Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova: Optimal checkpointing for
 * heterogeneous chains, RR-9302, 2019, here with one second run per op). In other graphs a tensor that skips
 * segments is kept.
 *
 * The limit. The model leaves out messages, reuse in place and the arena's gaps. So the limit of each node is
 * found by bisection, with the compiled program: the largest one with which the arena fits. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "place/recompute.h"
#include "place/recompute_search.h"
#include "plan/again.h"
#include "plan/flow.h"
#include "plan/replica.h"
#include "plan/tensors.h"

enum { MOST_IN_SEGMENT = 96, MOST_STATES = 64 };

/* Fractions tried for the bytes that each other micro-batch in flight keeps, relative to the bytes of all
 * outputs. */
static const double kept_part[] = { 1, 0.85, 0.7, 0.55, 0.42, 0.32, 0.24, 0.17, 0.11, 0.06, 0.02 };
enum { N_PARTS = DLB_LEN(kept_part) };

/* A forward op of the node that is not a view. Bytes and seconds are of one micro-batch. last: the last
 * member that reads its outputs; -1: none. may: it may run again. saved: bytes of outputs that backward ops
 * read; made: of all outputs. in: members whose outputs it reads. */
struct member {
	int op, last;
	bool may;
	double saved, made, s, transient;
	int *in, n_in;
};
struct segment {
	double s, kept, again, transient;
};
struct chain_state {
	double kept, s;
	int from, before;
}; /* before: state at `from` */
struct chain {
	int node, n, in_flight;
	struct member *m;
	struct segment *segment; /* [from * (MOST_IN_SEGMENT + 1) + length] */
	struct chain_state **state;
	int *n_states; /* [end] */
	/* the model's limit in bytes; the greatest limit known to fit (NAN: none yet), the least known not
	 * to */
	double limit, good, bad;
	/* [guess] lower bounds of the seconds, for all later limits (which are below `bad`) and for this
	 * one */
	double least_s[N_PARTS], now_s[N_PARTS];
	bool *best; /* [op] whether it runs again at `good` */
};

/* Follows tensor t and its views on the node. Sets *saved if a backward op there reads them; raises *last to
 * the last member that reads them. */
static void look_at(const struct dlb_plan *plan, const struct dlb_graph *g, int t, int node,
		    const int *member_of, bool *saved, int *last)
{
	for (int r = g->reader_start[t]; r < g->reader_start[t + 1]; r++) {
		int to = g->reader[r];
		if (plan->placement[to] != node)
			continue;
		*saved |= g->op[to].phase == DLB_BACKWARD;
		if (g->op[to].phase != DLB_FORWARD)
			continue;
		if (dlb_graph_is_view(g, to))
			look_at(plan, g, g->op[to].out[0], node, member_of, saved, last);
		else if (member_of[to] > *last)
			*last = member_of[to];
	}
}

/* The most bytes of gradients that a backward op of `op` reads and writes. */
static double transient_of(const struct dlb_graph *g, int op, int64_t n)
{
	double most = 0;
	for (int i = op + 1; i < g->n_ops; i++) {
		const struct dlb_op *o = &g->op[i];
		double bytes = 0;
		if (o->phase != DLB_BACKWARD || o->of != op)
			continue;
		for (int k = 0; k < o->n_out; k++)
			bytes += o->out[k] < 0 ? 0 : dlb_tensor_bytes(&g->tensor[o->out[k]], n);
		for (int k = 0; k < o->n_in; k++) {
			int from = o->in[k] < 0 ? -1 : g->tensor[o->in[k]].producer;
			bytes += from >= 0 && g->op[from].phase == DLB_BACKWARD ?
					 dlb_tensor_bytes(&g->tensor[o->in[k]], n) :
					 0;
		}
		most = fmax(most, bytes);
	}
	return most;
}

static void fill_member(struct dlb_recompute_search *c, struct member *m, int node, const int *member_of)
{
	const struct dlb_graph *g = c->p->graph;
	const struct dlb_op *o = &g->op[m->op];
	const int64_t n = dlb_micro_batch_size(c->plan->batch, c->plan->micro_batches, 0);
	m->last = -1;
	m->may = !dlb_plan_keeps_op(c->plan, g, m->op);
	for (int k = 0; k < o->n_out; k++) {
		bool saved = false;
		double bytes = o->out[k] < 0 ? 0 : dlb_tensor_bytes(&g->tensor[o->out[k]], n);
		if (o->out[k] < 0)
			continue;
		look_at(c->plan, g, o->out[k], node, member_of, &saved, &m->last);
		m->made += bytes;
		m->saved += saved ? bytes : 0;
	}
	m->s = dlb_cost_op_s(c->p->cost, m->op, node, (double)n);
	m->transient = transient_of(g, m->op, n);
	m->in = dlb_arena_array(&c->arena, (size_t)o->n_in + 1, sizeof *m->in);
	for (int k = 0; k < o->n_in; k++) {
		int t = o->in[k],
		    from = t < 0 || dlb_tensor_is_state(&g->tensor[t]) ? -1 : g->tensor[t].producer;
		while (from >= 0 && dlb_graph_is_view(g, from) && c->plan->placement[from] == node)
			from = g->tensor[g->op[from].in[0]].producer;
		if (from >= 0 && c->plan->placement[from] == node)
			m->in[m->n_in++] = member_of[from];
	}
}

/* The most micro-batches in flight on the node: begun, and with backward ops not yet done. */
static int most_in_flight(const struct dlb_plan *plan, const struct dlb_graph *g, int node)
{
	const struct dlb_node_plan *np = &plan->node[node];
	int *left = dlb_xcalloc((size_t)plan->micro_batches + 1, sizeof *left), now = 0, most = 1;
	bool *begun = dlb_xcalloc((size_t)plan->micro_batches + 1, sizeof *begun);
	for (int i = 0; i < np->n_order; i++)
		if (np->order[i].micro_batch >= 0)
			left[np->order[i].micro_batch] += g->op[np->order[i].op].phase == DLB_BACKWARD;
	for (int i = 0; i < np->n_order; i++) {
		int m = np->order[i].micro_batch;
		if (m < 0)
			continue;
		now += !begun[m];
		begun[m] = true;
		most = now > most ? now : most;
		if (g->op[np->order[i].op].phase == DLB_BACKWARD && --left[m] == 0)
			now--;
	}
	free(left);
	free(begun);
	return most;
}

/* Members [from, to) as one segment. read: room for n flags, all false before and after. */
static struct segment segment_of(const struct chain *l, int from, int to, char *read)
{
	struct segment x = { .s = 0 };
	enum { READ = 1, EXTENDED = 2 };
	for (int a = to - 1; a >= from; a--) {
		const struct member *m = &l->m[a];
		bool drops = m->may && to - from > 1 && m->last < to;
		x.transient = fmax(x.transient, m->transient);
		if (!drops) {
			x.kept += read[a] ? m->made : m->saved;
			continue;
		}
		if (!(m->saved > 0) && !read[a])
			continue;
		x.s += m->s;
		x.again += m->made;
		for (int k = 0; k < m->n_in; k++) {
			int b = m->in[k];
			if (b < from && !(read[b] & EXTENDED)) { /* kept for longer */
				x.kept += l->m[b].made - l->m[b].saved;
				read[b] |= EXTENDED;
			}
			read[b] |= READ;
		}
	}
	for (int a = from; a < to; a++)
		for (int k = 0; k < l->m[a].n_in; k++)
			read[l->m[a].in[k]] = 0;
	return x;
}

static void chain_init(struct dlb_recompute_search *c, struct chain *l, int node)
{
	const struct dlb_graph *g = c->p->graph;
	int *member_of = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *member_of);
	double plain = 0, transient = 0;
	*l = (struct chain){ .node = node, .good = NAN };
	l->m = dlb_arena_array(&c->arena, (size_t)g->n_ops + 1, sizeof *l->m);
	l->best = dlb_arena_array(&c->arena, (size_t)g->n_ops + 1, sizeof *l->best);
	for (int i = 0; i < g->n_ops; i++) {
		member_of[i] = -1;
		if (c->plan->placement[i] == node && g->op[i].phase == DLB_FORWARD &&
		    !dlb_graph_is_view(g, i)) {
			member_of[i] = l->n;
			l->m[l->n++].op = i;
		}
	}
	for (int i = 0; i < l->n; i++) {
		fill_member(c, &l->m[i], node, member_of);
		plain += l->m[i].saved;
		transient = fmax(transient, l->m[i].transient);
	}
	l->in_flight = most_in_flight(c->plan, g, node);
	l->bad = l->in_flight * plain + transient;
	l->limit = l->bad - c->lack[node];
	l->segment = dlb_arena_array(&c->arena, (size_t)(l->n + 1) * (MOST_IN_SEGMENT + 1),
				     sizeof *l->segment);
	char *read = dlb_xcalloc((size_t)l->n + 1, 1);
	for (int i = 0; i < l->n; i++)
		for (int j = i + 1; j <= l->n && j - i <= MOST_IN_SEGMENT; j++)
			l->segment[i * (MOST_IN_SEGMENT + 1) + j - i] = segment_of(l, i, j, read);
	l->state = dlb_arena_array(&c->arena, (size_t)l->n + 2, sizeof *l->state);
	l->n_states = dlb_arena_array(&c->arena, (size_t)l->n + 2, sizeof *l->n_states);
	for (int i = 0; i <= l->n; i++)
		l->state[i] = dlb_arena_array(&c->arena, MOST_STATES + 1, sizeof **l->state);
	free(read);
	free(member_of);
}

static int by_kept(const void *a, const void *b)
{
	const struct chain_state *x = a, *y = b;
	if (x->kept != y->kept)
		return x->kept < y->kept ? -1 : 1;
	if (x->s != y->s)
		return x->s < y->s ? -1 : 1;
	return x->from != y->from ? y->from - x->from : x->before - y->before;
}

/* The states at a segment's beginning, each continued by the segment, in order of rising bytes and so of
 * falling seconds. now: the state at `at`, continued. */
struct continued {
	const struct segment *x;
	const struct chain_state *before;
	int from, at, n;
	struct chain_state now;
};
/* Limits of solve(), in bytes and seconds. others: bytes that the other micro-batches keep in all; most:
 * bytes that this one may keep. */
struct room_of {
	double limit, others, most, below_s;
};

/* Moves c->at to the first state, from the present one, that has room and takes at most most_s seconds;
 * false: there is none. */
static bool next_state(struct continued *c, const struct room_of *r, double most_s)
{
	for (; c->at < c->n; c->at++) {
		const struct chain_state *s = &c->before[c->at];
		const double kept = s->kept + c->x->kept;
		if (kept > r->most || r->others + kept + c->x->again + c->x->transient > r->limit)
			return false;
		if (s->s + c->x->s > most_s || s->s + c->x->s >= r->below_s)
			continue;
		c->now = (struct chain_state){ kept, s->s + c->x->s, c->from, c->at };
		return true;
	}
	return false;
}

/* Merges n sorted lists of continued states into `out`, sorted by bytes, without the states that another one
 * beats in both bytes and seconds: a state slower than the last one in `out` is skipped. Returns the number
 * in `out`. */
static int merge(struct continued *c, int n, const struct room_of *r, struct chain_state *out)
{
	struct dlb_heap heap = { .n = 0 };
	int kept = 0;
	for (int i = 0; i < n; i++)
		if (next_state(&c[i], r, INFINITY))
			dlb_heap_push(&heap, c[i].now.kept, i);
	while (heap.n) {
		struct continued *x = &c[dlb_heap_pop(&heap).id];
		const bool as_large = kept && x->now.kept <= out[kept - 1].kept;
		if (as_large && by_kept(&x->now, &out[kept - 1]) < 0)
			out[kept - 1] = x->now;
		else if (!as_large && (!kept || x->now.s < out[kept - 1].s))
			out[kept++] = x->now;
		x->at++;
		if (next_state(x, r, out[kept - 1].s))
			dlb_heap_push(&heap, x->now.kept, (int)(x - c));
	}
	dlb_heap_release(&heap);
	return kept;
}

/* The least seconds within the limits of r; INFINITY: none below r->below_s. Sets again[] of the chain's
 * ops. */
static double solve(struct chain *l, const struct room_of *r, bool *again)
{
	struct chain_state *list = dlb_xmalloc((size_t)MOST_IN_SEGMENT * MOST_STATES * sizeof *list);
	struct continued *c = dlb_xmalloc(MOST_IN_SEGMENT * sizeof *c);
	l->state[0][0] = (struct chain_state){ 0, 0, -1, -1 };
	l->n_states[0] = 1;
	for (int j = 1; j <= l->n; j++) {
		int n = 0;
		for (int i = j - 1; i >= 0 && j - i <= MOST_IN_SEGMENT; i--) {
			const struct segment *x = &l->segment[i * (MOST_IN_SEGMENT + 1) + j - i];
			if (j - i == 1 || x->s > 0 || x->again > 0) /* else it equals segments of one op */
				c[n++] = (struct continued){
					.x = x, .before = l->state[i], .from = i, .n = l->n_states[i]
				};
		}
		n = merge(c, n, r, list);
		l->n_states[j] = n < MOST_STATES ? n : MOST_STATES;
		for (int i = 0; i < l->n_states[j]; i++) /* if too many, evenly spread ones */
			l->state[j][i] =
				list[n <= MOST_STATES ? i : (int)((int64_t)i * (n - 1) / (MOST_STATES - 1))];
	}
	free(list);
	free(c);
	int at = l->n_states[l->n] - 1; /* the most bytes, the least seconds */
	if (at < 0)
		return INFINITY;
	double s = l->state[l->n][at].s;
	for (int j = l->n; j > 0;) {
		const struct chain_state *x = &l->state[j][at];
		for (int a = x->from; a < j; a++)
			again[l->m[a].op] = j - x->from > 1 && l->m[a].may && l->m[a].last < j;
		j = x->from;
		at = x->before;
	}
	return s;
}

/* The guess with the least lower bound of seconds, of those not tried whose bound is below below_s; -1:
 * none. */
static int next_guess(const struct chain *l, const bool *tried, double below_s)
{
	int next = -1;

	for (int i = 0; i < N_PARTS; i++)
		if (!tried[i] && l->least_s[i] < below_s && (next < 0 || l->least_s[i] < l->least_s[next]))
			next = i;
	return next;
}

/* Solves for all micro-batches in flight: tries guesses of the bytes that the others keep, and takes the
 * fastest solution. False: there is none. room: scratch [n_ops]. */
static bool solve_in_flight(struct chain *l, bool *again, bool *room, int n_ops)
{
	bool tried[N_PARTS] = { false };
	double plain = 0, best = INFINITY;
	if (l->in_flight < 2)
		return isfinite(solve(l, &(struct room_of){ l->limit, 0, INFINITY, INFINITY }, again));
	for (int a = 0; a < l->n; a++)
		plain += l->m[a].made;
	memcpy(l->now_s, l->least_s, sizeof l->now_s);
	for (int i; (i = next_guess(l, tried, best)) >= 0; tried[i] = true) {
		memcpy(room, again, (size_t)n_ops * sizeof *room);
		const struct room_of r = { l->limit, (l->in_flight - 1) * kept_part[i] * plain,
					   kept_part[i] * plain, best };
		double s = solve(l, &r, room);
		l->now_s[i] = fmin(s, best);
		if (s >= best)
			continue;
		best = s;
		memcpy(again, room, (size_t)n_ops * sizeof *room);
	}
	return isfinite(best);
}

/* Moves the limit by the bytes that the compiled plan lacks. False: the limit is known to within `least`
 * bytes. */
static bool move_limit(const struct dlb_recompute_search *c, struct chain *l, bool solved, double least)
{
	const double lack = c->lack[l->node];
	if (!solved || lack <= 0) {
		if (solved) {
			l->good = l->limit;
			memcpy(l->best, c->plan->again, (size_t)c->plan->n_ops * sizeof *l->best);
		} else if (isnan(l->good)) { /* no solution: the model needs a higher limit */
			l->limit += (l->bad - l->limit) / 2;
			return l->bad - l->limit > least;
		}
		if (l->bad - l->good < least)
			return false;
		l->limit = (l->good + l->bad) / 2;
		return true;
	}
	l->bad = l->limit;
	memcpy(l->least_s, l->now_s, sizeof l->least_s);
	l->limit = isnan(l->good) ? l->limit - fmax(lack, least) : (l->good + l->bad) / 2;
	return isnan(l->good) || l->bad - l->good >= least;
}

int dlb_recompute_by_segments(struct dlb_recompute_search *c)
{
	struct chain *chain = dlb_arena_array(&c->arena, (size_t)c->plan->n_nodes + 1, sizeof *chain);
	const int n_ops = c->plan->n_ops;
	bool *again = c->plan->again, *room = dlb_xcalloc((size_t)n_ops + 1, sizeof *room), *open, *solved;
	int n_chains = 0, rc = 0;

	for (int d = 0; d < c->plan->n_nodes; d++)
		if (c->lack[d] > 0)
			chain_init(c, &chain[n_chains++], d);
	int left = n_chains;
	open = dlb_xcalloc((size_t)n_chains + 1, sizeof *open);
	solved = dlb_xcalloc((size_t)n_chains + 1, sizeof *solved);
	for (int i = 0; i < n_chains; i++)
		open[i] = true;
	for (int turn = 0; turn < DLB_RECOMPUTE_BISECTIONS && left && rc == 0; turn++) {
		bool any = false;
		for (int i = 0; i < n_chains; i++) {
			if (open[i])
				any |= solved[i] = solve_in_flight(&chain[i], again, room, n_ops);
		}
		if (any) { /* else the plan is the last one compiled */
			dlb_recompute_complete(c->p->graph, c->plan);
			if (dlb_recompute_find_lack(c)) {
				rc = -1;
				break;
			}
		}
		left = 0;
		for (int i = 0; i < n_chains; i++) {
			open[i] = open[i] && move_limit(c, &chain[i], solved[i], 0.005 * chain[i].bad);
			left += open[i];
		}
	}
	for (int i = 0; i < n_chains && rc == 0; i++)
		for (int a = 0; a < n_ops && !isnan(chain[i].good); a++)
			if (c->plan->placement[a] == chain[i].node)
				again[a] = chain[i].best[a];
	if (rc == 0)
		rc = dlb_recompute_find_lack(c) ? -1 : dlb_recompute_fits(c);
	free(room);
	free(open);
	free(solved);
	return rc;
}
