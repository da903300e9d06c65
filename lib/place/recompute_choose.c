/* Chooses ops that run again, for the least time with which an ordered plan fits its nodes' memory.
 *
 * Chains. The forward ops of a node are taken in their order as a chain, which is cut into segments. A segment of
 * one op keeps what it makes. In a longer one all outputs that no later segment reads are dropped and computed
 * again when its backward phase begins, from what earlier segments keep. With W(i) the bytes kept by the segments up
 * to i, the backward phase of segment (i, j] needs
 *     (k - 1) W(n) + W(i) + kept(i, j) + again(i, j) + transient(i, j)
 * bytes, with k micro-batches in flight: the k - 1 others keep all of theirs. Dynamic programming over j finds the
 * least seconds for every W(j) (states that are larger and slower than another are dropped) with that sum below a
 * limit. On a chain every set of ops that run again is such a partition, so the result is the best one of this
 * model (cf. Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova: Optimal checkpointing for heterogeneous chains,
 * RR-9302, 2019, here with one second run per op). Elsewhere a tensor that skips segments is kept.
 *
 * The limit. The model leaves out messages, reuse in place and the arena's gaps. So the limit of each node is found
 * by bisection, with the compiled program: the largest one with which the arena fits.
 *
 * Peaks. Beside that, ops are dropped one by one: always the one that frees most bytes at the node's fullest
 * instruction per second of its second run. It knows nothing of segments, but does well where cheap ops make large
 * tensors and where the graph is no chain. Then ops are given back while the plan still fits. The faster of the
 * two plans is taken. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "place/drafts.h"
#include "place/fit.h"
#include "place/recompute.h"
#include "plan/again.h"
#include "plan/flow.h"
#include "plan/program_verify.h"
#include "plan/replica.h"
#include "plan/tensors.h"
#include "plan/timeline.h"
#include "util/hash.h"

enum { MOST_IN_SEGMENT = 96, MOST_STATES = 64, BISECTIONS = 12, MOST_DROPS = 400, MOST_GIVEN_BACK = 64 };

/* Guesses of what each of the other micro-batches in flight keeps, as parts of what it keeps without ops again. */
static const double kept_part[] = { 1, 0.85, 0.7, 0.55, 0.42, 0.32, 0.24, 0.17, 0.11, 0.06, 0.02 };
enum { N_PARTS = DLB_LEN(kept_part) };

/* A forward op of the node, not a view. Bytes and seconds are of one micro-batch. last: the last member that reads
 * it; n - 1 at most, -1: none. */
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
	/* of the model's limit: with the greatest known to fit and the least known not to; NAN: none yet */
	double limit, good, bad;
	/* [guess] no fewer seconds at any limit to come, and at the present one: limits stay below `bad` */
	double least_s[N_PARTS], now_s[N_PARTS];
	bool *best; /* [op] that run again at `good` */
};
/* What a compiled plan with these ops lacks; the makespan of its order. */
struct compiled {
	bool *again;
	double *lack, order_s;
};
struct choice {
	const struct dlb_problem *p;
	struct dlb_plan *plan;
	bool draft;
	struct dlb_program program;
	struct dlb_arena arena;
	double *lack; /* [node of replica 0] bytes that its parts lack; < 0: has room */
	double below_s, order_s; /* see dlb_recompute_choose; the makespan of the last order */
	int in_flight;
	struct compiled seen[BISECTIONS]; /* of segments: limits close to each other drop the same ops */
	int n_seen;
	struct dlb_error *err;
};

/* ---- the plan as it is ---- */

static double bytes_over(const struct dlb_problem *p, const struct dlb_program *g, int d)
{
	const struct dlb_node_program *np = &dlb_program_of(g, d)->node[d];
	double room = dlb_fit_room(p, g, d), over = (double)np->bound_bytes - room;
	return over > 0 ? over : (double)np->arena_bytes - room;
}

/* Orders and compiles with the present ops; sets the bytes that nodes lack. -1 with err. */
static int compile(struct choice *c)
{
	struct dlb_plan *plan = c->plan;
	c->order_s = dlb_fit_order(c->p, plan, c->in_flight);
	if (c->p->memo)
		c->p->memo->n_compiled++;
	if (dlb_fit_compile(c->p, plan, true, &c->program, c->err))
		return -1;
	for (int d = 0; d < plan->n_nodes; d++)
		c->lack[d] = -INFINITY;
	for (int d = 0; d < plan->n_nodes; d++) {
		int part = plan->n_replicas > 1 ? dlb_plan_part_of(plan, d) : d;
		if (part >= 0)
			c->lack[part] = fmax(c->lack[part], bytes_over(c->p, &c->program, d));
	}
	return 0;
}

static void drop_program(struct choice *c)
{
	dlb_program_release(&c->program);
	memset(&c->program, 0, sizeof c->program);
}

/* Sets what nodes lack with the present ops, without a program; those seen before are not compiled again. */
static int find_lack(struct choice *c)
{
	const size_t n_ops = (size_t)c->plan->n_ops, n_nodes = (size_t)c->plan->n_nodes;

	for (int i = 0; i < c->n_seen; i++) {
		const struct compiled *x = &c->seen[i];
		if (memcmp(x->again, c->plan->again, n_ops * sizeof *x->again))
			continue;
		memcpy(c->lack, x->lack, n_nodes * sizeof *x->lack);
		c->order_s = x->order_s;
		return 0;
	}
	if (compile(c))
		return -1;
	drop_program(c);
	if (c->n_seen == BISECTIONS)
		return 0;
	struct compiled *x = &c->seen[c->n_seen++];
	x->again = dlb_arena_array(&c->arena, n_ops + 1, sizeof *x->again);
	x->lack = dlb_arena_array(&c->arena, n_nodes + 1, sizeof *x->lack);
	memcpy(x->again, c->plan->again, n_ops * sizeof *x->again);
	memcpy(x->lack, c->lack, n_nodes * sizeof *x->lack);
	x->order_s = c->order_s;
	return 0;
}

/* The most bytes that a node lacks; none: 0. */
static double most_lacking(const struct choice *c)
{
	double most = 0;
	for (int d = 0; d < c->plan->n_nodes; d++)
		most = fmax(most, c->lack[d]);
	return most;
}

static bool fits(const struct choice *c) { return most_lacking(c) <= 0; }

/* ---- chains ---- */

/* Follows tensor t and its views on the node: bytes that backward ops read there, the last member that reads. */
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

/* Bytes of gradients that the backward ops of op read and write. */
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

static void fill_member(struct choice *c, struct member *m, int node, const int *member_of)
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

/* The most micro-batches of which the node has begun the forward and not ended the backward phase. */
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

static void chain_init(struct choice *c, struct chain *l, int node)
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

/* The states at a segment's begin, continued by it: the least bytes, and with that the most seconds, first. */
struct continued {
	const struct segment *x;
	const struct chain_state *before;
	int from, at, n;
	struct chain_state now;
};
/* Limits of solve(), in bytes and seconds. */
struct room_of {
	double limit, others, most, below_s;
};

/* Goes to the next state from c->at on that takes no more than most_s seconds; false: there is none with room. */
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

/* Merges the continued states to those that no other one beats in both bytes and seconds, by bytes. Each is sorted,
 * so one that is slower than the last in `out` is passed over. Returns their number. */
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

/* The least seconds with the others' micro-batches keeping `others` bytes in all and this one `most`; INFINITY:
 * none below `below_s`. Sets again[] of the chain's ops. */
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
			if (j - i == 1 || x->s > 0 || x->again > 0) /* else the same as segments of one op */
				c[n++] = (struct continued){
					.x = x, .before = l->state[i], .from = i, .n = l->n_states[i]
				};
		}
		n = merge(c, n, r, list);
		l->n_states[j] = n < MOST_STATES ? n : MOST_STATES;
		for (int i = 0; i < l->n_states[j]; i++) /* of too many, about evenly by bytes */
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

/* The guess of the least seconds, of those not tried that may take fewer than below_s; -1: none. */
static int next_guess(const struct chain *l, const bool *tried, double below_s)
{
	int next = -1;

	for (int i = 0; i < N_PARTS; i++)
		if (!tried[i] && l->least_s[i] < below_s && (next < 0 || l->least_s[i] < l->least_s[next]))
			next = i;
	return next;
}

/* The same for all micro-batches in flight: over guesses of what the others keep. False: none. */
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

/* Moves the limit by what the compiled plan lacks; false: it is near enough. */
static bool move_limit(const struct choice *c, struct chain *l, bool solved, double least)
{
	const double lack = c->lack[l->node];
	if (!solved || lack <= 0) {
		if (solved) {
			l->good = l->limit;
			memcpy(l->best, c->plan->again, (size_t)c->plan->n_ops * sizeof *l->best);
		} else if (isnan(l->good)) { /* the least of the model is above */
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

/* Finds the ops of the chains of all nodes that lack memory. 1: in c->plan->again they fit; 0: they do not, -1 with
 * err. */
static int choose_segments(struct choice *c, struct chain *chain, int n_chains)
{
	const int n_ops = c->plan->n_ops;
	bool *again = c->plan->again, *room = dlb_xcalloc((size_t)n_ops + 1, sizeof *room), *open, *solved;
	int rc = 0, left = n_chains;
	open = dlb_xcalloc((size_t)n_chains + 1, sizeof *open);
	solved = dlb_xcalloc((size_t)n_chains + 1, sizeof *solved);
	for (int i = 0; i < n_chains; i++)
		open[i] = true;
	for (int turn = 0; turn < BISECTIONS && left && rc == 0; turn++) {
		bool any = false;
		for (int i = 0; i < n_chains; i++) {
			if (open[i])
				any |= solved[i] = solve_in_flight(&chain[i], again, room, n_ops);
		}
		if (any) { /* else the plan is the last one compiled */
			dlb_recompute_complete(c->p->graph, c->plan);
			if (find_lack(c)) {
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
		rc = find_lack(c) ? -1 : fits(c);
	free(room);
	free(open);
	free(solved);
	return rc;
}

/* ---- peaks ---- */

/* Of a place: the last instruction at which something other than the backward phase uses it, and the first at which
 * the backward phase does; -1: none. */
struct place_uses {
	int before, after;
};

/* The places of a node, to be found by tensor: place first[t] is the first of tensor t. root[k]: the place in
 * which place k lies, -1: none. */
struct place_index {
	const struct dlb_node_program *np;
	int *first, *root;
};

static int place_of(const struct place_index *x, int tensor, int m)
{
	int lo = x->first[tensor], hi = x->first[tensor + 1];
	const int end = hi;

	while (lo < hi) {
		const int mid = (lo + hi) / 2;

		if (x->np->place[mid].micro_batch < m)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < end && x->np->place[lo].micro_batch == m ? lo : -1;
}

static void place_index_init(struct place_index *x, const struct dlb_graph *g,
			     const struct dlb_node_program *np)
{
	*x = (struct place_index){ .np = np,
				   .first = dlb_xmalloc(((size_t)g->n_tensors + 1) * sizeof(int)),
				   .root = dlb_xmalloc(((size_t)np->n_places + 1) * sizeof(int)) };
	for (int t = 0, k = 0; t <= g->n_tensors; t++) {
		while (k < np->n_places && np->place[k].tensor < t)
			k++;
		x->first[t] = k;
	}
	for (int k = 0; k < np->n_places; k++) {
		x->root[k] = k;
		for (int r = k; r >= 0 && np->place[r].of >= 0;)
			x->root[k] = r = place_of(x, np->place[r].of, np->place[r].of_m);
	}
}

static void place_index_release(struct place_index *x)
{
	free(x->first);
	free(x->root);
}

/* Calls see(arg, i, place, phase) for each place that an instruction i reads or writes; phase: of its op, -1:
 * it is a message. */
static void each_use(const struct dlb_program *g, const struct dlb_node_program *np,
		     void (*see)(void *arg, int i, int place, int phase), void *arg)
{
	struct place_index x;

	place_index_init(&x, g->graph, np);
	for (int i = 0; i < np->n_instr; i++) {
		const struct dlb_instr *in = &np->instr[i];
		const struct dlb_op *o = in->verb == DLB_COMPUTE && in->op >= 0 && in->tensor < 0 ?
						 &g->graph->op[in->op] :
						 NULL;
		for (int k = 0; k < (o ? o->n_in + o->n_out : 1); k++) {
			int t = !o ? in->tensor : k < o->n_in ? o->in[k] : o->out[k - o->n_in];
			int at = t < 0 || in->micro_batch < 0 || in->verb == DLB_FREE ?
					 -1 :
					 place_of(&x, t, dlb_instr_life(g, in, t, o && k >= o->n_in));
			if (at >= 0 && x.root[at] >= 0)
				see(arg, i, x.root[at], o ? (int)o->phase : -1);
		}
	}
	place_index_release(&x);
}

static void see_phase(void *arg, int i, int place, int phase)
{
	struct place_uses *use = (struct place_uses *)arg + place;

	if (phase != DLB_BACKWARD)
		use->before = i;
	else if (use->after < 0)
		use->after = i;
}

static void find_uses(const struct dlb_program *g, const struct dlb_node_program *np, struct place_uses *use)
{
	for (int k = 0; k < np->n_places; k++)
		use[k] = (struct place_uses){ -1, -1 };
	each_use(g, np, see_phase, use);
}

/* Whether a place of a node holds what an op of the node makes that may run again. */
static bool may_drop(const struct choice *c, const struct dlb_program *g, const struct dlb_place *x, int node)
{
	const int op = g->graph->tensor[x->tensor].producer;

	return x->of < 0 && op >= 0 && g->plan->placement[op] == node && x->micro_batch < g->micro_batches &&
	       !dlb_plan_keeps_op(c->plan, g->graph, op);
}

/* The instruction of a node at which most bytes are alive. */
static int fullest(const struct dlb_node_program *np)
{
	double *change = dlb_xcalloc((size_t)np->n_instr + 2, sizeof *change), now = 0, most = -1;
	int at = 0;
	for (int k = 0; k < np->n_places; k++) {
		const struct dlb_place *x = &np->place[k];
		if (x->of >= 0)
			continue;
		change[x->first] += (double)dlb_place_bytes(x->bytes);
		change[x->last + 1] -= (double)dlb_place_bytes(x->bytes);
	}
	for (int i = 0; i < np->n_instr; i++) {
		now += change[i];
		if (now > most)
			at = i;
		most = fmax(most, now);
	}
	free(change);
	return at;
}

/* gain[op]: bytes at instruction `at` of tensors that wait for the backward phase. */
static void find_gains(const struct choice *c, const struct dlb_program *g, int node, double *gain)
{
	const struct dlb_node_program *np = &g->node[node];
	struct place_uses *use = dlb_xmalloc(((size_t)np->n_places + 1) * sizeof *use);
	const int at = fullest(np);
	memset(gain, 0, (size_t)c->plan->n_ops * sizeof *gain);
	find_uses(g, np, use);
	for (int k = 0; k < np->n_places; k++) {
		const struct dlb_place *x = &np->place[k];
		if (use[k].before < at && use[k].after > at && x->first <= at && x->last >= at &&
		    may_drop(c, g, x, node))
			gain[g->graph->tensor[x->tensor].producer] += (double)dlb_place_bytes(x->bytes);
	}
	free(use);
}

/* Seconds, for one micro-batch, of all ops that run again on a node. */
static double again_s(const struct choice *c, int node)
{
	double s = 0;
	for (int i = 0; i < c->plan->n_ops; i++)
		if (c->plan->again[i] && c->plan->placement[i] == node && !dlb_graph_is_view(c->p->graph, i))
			s += dlb_cost_op_s(c->p->cost, i, node,
					   (double)dlb_micro_batch_size(c->plan->batch,
									c->plan->micro_batches, 0));
	return s;
}

/* Drops the op of most bytes per second of what then runs again, among the few of most bytes per own second.
 * Returns its bytes, 0: none is left. */
static double drop_one(struct choice *c, int node, double *gain)
{
	enum { FEW = 6 };
	const struct dlb_graph *g = c->p->graph;
	const size_t size = (size_t)c->plan->n_ops * sizeof(bool);
	bool *was = dlb_xmalloc(size + 1), *best = dlb_xmalloc(size + 1);
	const double before_s = again_s(c, node);
	double most = 0, bytes = 0;
	int tried[FEW];
	memcpy(was, c->plan->again, size);
	for (int k = 0, n = 0; k < FEW; k++) {
		int op = -1;
		double ratio = 0;
		for (int i = 0; i < c->plan->n_ops; i++) {
			bool seen = !(gain[i] > 0) || was[i];
			for (int j = 0; j < n; j++)
				seen |= tried[j] == i;
			double s = seen ? 0 : dlb_cost_op_s(c->p->cost, i, node, 1) + 1e-12;
			if (!seen && gain[i] / s > ratio) {
				ratio = gain[i] / s;
				op = i;
			}
		}
		if (op < 0)
			break;
		tried[n++] = op;
		c->plan->again[op] = true;
		dlb_recompute_complete(g, c->plan);
		const double s = again_s(c, node) - before_s + 1e-12;
		if (c->plan->again[op] && gain[op] / s > most) {
			most = gain[op] / s;
			bytes = gain[op];
			memcpy(best, c->plan->again, size);
		}
		memcpy(c->plan->again, was, size);
	}
	if (bytes > 0)
		memcpy(c->plan->again, best, size);
	free(was);
	free(best);
	return bytes;
}

/* As choose_segments; 2: those that fit take below_s or more, since every turn only adds ops. */
static int choose_by_peaks(struct choice *c)
{
	double *gain = dlb_xcalloc((size_t)c->plan->n_ops + 1, sizeof *gain);
	int rc = 0, drops = 0;
	memset(c->plan->again, 0, (size_t)c->plan->n_ops * sizeof *c->plan->again);
	for (bool any = true; any && rc == 0;) {
		any = false;
		if (compile(c)) {
			rc = -1;
			break;
		}
		rc = fits(c) ? 1 : c->draft && c->order_s >= c->below_s ? 2 : 0;
		for (int d = 0; d < c->plan->n_nodes && rc == 0 && drops < MOST_DROPS; d++) {
			double left = c->lack[d] / 2, bytes = 1;
			if (!(c->lack[d] > 0))
				continue;
			find_gains(c, &c->program, d, gain);
			while (left > 0 && bytes > 0 && drops++ < MOST_DROPS) {
				bytes = drop_one(c, d, gain);
				left -= bytes;
				any |= bytes > 0;
			}
		}
		drop_program(c);
	}
	free(gain);
	return rc;
}

/* ---- the least ---- */

/* The bytes at each instruction of what may not be dropped, and of what may where an instruction uses it. */
struct least {
	const struct dlb_node_program *np;
	double *bytes; /* [instruction] */
	int *seen; /* [place] the last instruction that uses it; -1: none */
	bool *may; /* [place] may be dropped */
};

static void see_dropped(void *arg, int i, int place, int phase)
{
	struct least *l = arg;

	(void)phase;
	if (l->may[place] && l->seen[place] != i)
		l->bytes[i] += (double)dlb_place_bytes(l->np->place[place].bytes);
	l->seen[place] = i;
}

/* The bytes of the arena that node d needs at least, whatever runs again. */
static double least_bytes(const struct choice *c, int d)
{
	const struct dlb_program *g = dlb_program_of(&c->program, d);
	const struct dlb_node_program *np = &g->node[d];
	const size_t n = (size_t)np->n_places;
	struct least l = { .np = np,
			   .bytes = dlb_xcalloc((size_t)np->n_instr + 2, sizeof *l.bytes),
			   .seen = dlb_xmalloc((n + 1) * sizeof *l.seen),
			   .may = dlb_xcalloc(n + 1, sizeof *l.may) };
	double *change = dlb_xcalloc((size_t)np->n_instr + 2, sizeof *change), kept = 0, most = 0;

	for (int k = 0; k < np->n_places; k++) {
		const struct dlb_place *x = &np->place[k];

		l.seen[k] = -1;
		l.may[k] = may_drop(c, g, x, d);
		if (l.may[k] || x->of >= 0)
			continue;
		change[x->first] += (double)dlb_place_bytes(x->bytes);
		change[x->last + 1] -= (double)dlb_place_bytes(x->bytes);
	}
	each_use(g, np, see_dropped, &l);
	for (int i = 0; i < np->n_instr; i++) {
		kept += change[i];
		most = fmax(most, kept + l.bytes[i]);
	}
	free(change);
	free(l.bytes);
	free(l.seen);
	free(l.may);
	return most;
}

static bool all_may_fit(const struct choice *c)
{
	for (int d = 0; d < c->plan->n_nodes; d++)
		if (least_bytes(c, d) > dlb_fit_room(c->p, &c->program, d))
			return false;
	return true;
}

int dlb_recompute_may_fit(const struct dlb_problem *p, struct dlb_plan *plan, int in_flight,
			  struct dlb_error *err)
{
	struct choice c = { .p = p, .plan = plan, .draft = true, .in_flight = in_flight, .err = err };

	plan->again = NULL;
	c.lack = dlb_arena_array(&c.arena, (size_t)plan->n_nodes + 1, sizeof *c.lack);
	int rc = compile(&c);
	if (rc == 0) {
		rc = all_may_fit(&c);
		drop_program(&c);
	}
	dlb_arena_release(&c.arena);
	if (rc)
		return rc;
	plan->again = dlb_arena_array(&plan->arena, (size_t)plan->n_ops + 1, sizeof *plan->again);
	for (int i = 0; i < plan->n_ops; i++)
		plan->again[i] = !dlb_graph_is_view(p->graph, i) && !dlb_plan_keeps_op(plan, p->graph, i);
	dlb_recompute_complete(p->graph, plan);
	dlb_fit_order(p, plan, in_flight);
	return 0;
}

/* ---- both ---- */

struct slow_op {
	double s;
	int op;
};
static int by_seconds(const void *a, const void *b)
{
	const struct slow_op *x = a, *y = b;
	return x->s != y->s ? (x->s < y->s ? 1 : -1) : x->op - y->op;
}

/* Gives ops back, the slowest first, while the plan still fits. -1 with err. */
static int give_back(struct choice *c)
{
	struct dlb_plan *plan = c->plan;
	const size_t size = (size_t)plan->n_ops * sizeof *plan->again;
	struct slow_op *list = dlb_xcalloc((size_t)plan->n_ops + 1, sizeof *list);
	bool *was = dlb_xmalloc(size + 1);
	int n = 0, rc = 0;
	for (int i = 0; i < plan->n_ops; i++)
		if (plan->again[i] && !dlb_graph_is_view(c->p->graph, i))
			list[n++] = (struct slow_op){ dlb_cost_op_s(c->p->cost, i, plan->placement[i], 1),
						      i };
	qsort(list, (size_t)n, sizeof *list, by_seconds);
	const int most = plan->n_ops < 500 ? MOST_GIVEN_BACK : MOST_GIVEN_BACK / 3;
	for (int k = 0; k < n && k < most && rc == 0; k++) {
		if (!plan->again[list[k].op])
			continue;
		memcpy(was, plan->again, size);
		plan->again[list[k].op] = false;
		for (int i = plan->n_ops - 1; i >= 0; i--)
			plan->again[i] = plan->again[i] && dlb_plan_needs_again(plan, c->p->graph, i);
		rc = compile(c);
		if (!rc)
			drop_program(c);
		if (rc || !fits(c))
			memcpy(plan->again, was, size);
	}
	free(list);
	free(was);
	return rc;
}

/* The simulated step of the plan with the present ops; INFINITY: it does not fit. */
static double value_s(struct choice *c)
{
	struct dlb_timeline t;
	double s = INFINITY;
	if (compile(c))
		return s;
	if (fits(c) && dlb_program_simulate(&c->program, c->p->cost,
					    &(struct dlb_simulate_choice){ .node_scale = c->p->ranked_scale },
					    &t, NULL) == 0) {
		s = t.step_s;
		dlb_timeline_release(&t, c->plan->n_nodes);
	}
	drop_program(c);
	return s;
}

static int choose(struct choice *c)
{
	struct dlb_plan *plan = c->plan;
	const size_t size = (size_t)plan->n_ops * sizeof *plan->again;
	struct chain *chain = dlb_arena_array(&c->arena, (size_t)plan->n_nodes + 1, sizeof *chain);
	int n_chains = 0;
	if (compile(c))
		return -1;
	drop_program(c);
	if (fits(c))
		return 1;
	for (int d = 0; d < plan->n_nodes; d++)
		if (c->lack[d] > 0)
			chain_init(c, &chain[n_chains++], d);
	int found = choose_segments(c, chain, n_chains);
	if (found < 0 || (c->draft && found))
		return found;
	if (found && give_back(c))
		return -1;
	bool *segments = dlb_arena_array(&c->arena, (size_t)plan->n_ops + 1, sizeof *segments);
	const double lack = most_lacking(c), s = found ? value_s(c) : INFINITY;
	memcpy(segments, plan->again, size);
	const int peaks = choose_by_peaks(c);
	if (peaks > 1)
		return peaks;
	if (peaks < 0 || (peaks && !c->draft && give_back(c)))
		return -1;
	if (!peaks ? found || most_lacking(c) > lack : found && value_s(c) >= s)
		memcpy(plan->again, segments, size);
	return found || peaks;
}

static uint64_t key_of(const struct dlb_problem *p, const struct dlb_plan *plan, int in_flight)
{
	const int32_t number[] = { in_flight, plan->updates_first, plan->micro_batches };
	uint64_t h = dlb_hash_str(dlb_hash_str(dlb_problem_key(p), plan->hash), plan->schedule);
	h = dlb_hash_bytes(h, number, sizeof number);
	return dlb_hash_bytes(h, &plan->batch, sizeof plan->batch);
}

/* Looks a choice up; NULL: none was made, or only with less effort. */
static const struct dlb_recompute_choice *recall(const struct dlb_recompute_memo *memo, uint64_t key,
						 bool draft)
{
	for (int i = 0; memo && i < memo->n; i++)
		if (memo->choice[i].key == key && (draft || !memo->choice[i].draft))
			return &memo->choice[i];
	return NULL;
}

static void remember(struct dlb_recompute_memo *memo, uint64_t key, bool draft, int rc,
		     const struct dlb_plan *plan)
{
	enum { MOST = 512 }; /* of more, the latest */
	if (!memo || rc < 0 || rc > 1)
		return;
	if (!memo->choice)
		memo->choice = dlb_arena_array(&memo->arena, MOST, sizeof *memo->choice);
	struct dlb_recompute_choice *to = &memo->choice[memo->next];
	bool *again = to->again ? to->again :
				  dlb_arena_array(&memo->arena, (size_t)plan->n_ops + 1, sizeof *again);
	memcpy(again, plan->again, (size_t)plan->n_ops * sizeof *again);
	*to = (struct dlb_recompute_choice){ key, rc, draft, again };
	memo->n += memo->n < MOST;
	memo->next = (memo->next + 1) % MOST;
}

void dlb_recompute_forget(struct dlb_recompute_memo *memo)
{
	if (memo && !memo->is_lent)
		dlb_arena_release(&memo->arena);
}

int dlb_recompute_choose(const struct dlb_problem *p, struct dlb_plan *plan, int in_flight, bool draft,
			 double below_s, struct dlb_error *err)
{
	draft |= p->quick;
	const uint64_t key = key_of(p, plan, in_flight);
	const struct dlb_recompute_choice *known = recall(p->memo, key, draft);
	struct choice c = {
		.p = p, .plan = plan, .draft = draft, .below_s = below_s, .in_flight = in_flight, .err = err
	};
	plan->again = dlb_arena_array(&plan->arena, (size_t)plan->n_ops + 1, sizeof *plan->again);
	c.lack = dlb_arena_array(&c.arena, (size_t)plan->n_nodes + 1, sizeof *c.lack);
	if (known)
		memcpy(plan->again, known->again, (size_t)plan->n_ops * sizeof *plan->again);
	const int rc = known ? known->rc : choose(&c);
	if (!known)
		remember(p->memo, key, draft, rc, plan);
	dlb_arena_release(&c.arena);
	if (rc >= 0)
		dlb_fit_order(p, plan, in_flight);
	return rc;
}
