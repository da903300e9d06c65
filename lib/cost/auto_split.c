/* Chooses the ops to split: see auto_split.h. */
#include "cost/auto_split.h"
#include "cost/pair_sums.h"
#include "graph/graph_json.h"
#include "graph/order.h"
#include "graph/passes.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "graph/split.h"

enum { MAX_CLASSES = 40, MAX_SHARDS = 16 };

/* Ways to split an op: not at all; along the axis that fits it best; by samples. */
enum split_way { WHOLE, FITTING, SAMPLES, N_WAYS };
static const char *const axis_of[N_WAYS] = { [SAMPLES] = "batch" };

/* Ops with the same signature, such as repeated layers. They are split the same way. */
struct alike { const char *key; int *op, n; double flop; enum split_way way; bool can[N_WAYS]; };
struct split_search {
	const struct dlb_profile *p;
	const struct dlb_cluster *cl;
	const struct dlb_graph *g;		/* unsplit */
	struct dlb_arena *a;
	struct dlb_split_request *sure;		/* made in any case: requested, or the op fits no node */
	int n_sure;
	struct alike *alike;
	int n_alike;
	int *fastest;				/* nodes, fastest first */
};

/* True for a forward op that can be split by itself and is not in sure[] yet. */
static bool is_open(const struct split_search *s, const struct dlb_op *o)
{
	const struct dlb_split_rule *r = o->phase == DLB_FORWARD ? dlb_split_rule_of(o) : NULL;

	for (int i = 0; i < s->n_sure; i++)
		if (!strcmp(s->sure[i].op, o->name))
			return false;
	return r && r->alone;
}

/* -- the effect of a split -- */

/* Returns k for shard NAME@k, and for a backward op or update of that shard; -1: the op is not split. */
static int shard_of(const struct dlb_graph *g, int op)
{
	const struct dlb_op *o = &g->op[op];

	return dlb_split_shard(o->phase == DLB_FORWARD || o->of < 0 ? o->name : g->op[o->of].name);
}

static double finish_of(const struct dlb_cost *c, int op, const int *where, const double *finish,
			const double *free_at)
{
	const struct dlb_graph *g = c->graph;
	double start = free_at[where[op]];

	for (int k = 0; k < g->op[op].n_in; k++) {
		const int t = g->op[op].in[k], from = t < 0 ? -1 : g->tensor[t].producer;
		if (from < 0 || from >= op)
			continue;
		const double bytes = dlb_tensor_bytes(&g->tensor[t], g->batch);
		const double there = finish[from] +
				     (where[from] == where[op] ?
					      0 :
					      dlb_cost_xfer_s(c, bytes, where[from], where[op]));
		start = fmax(start, there);
	}
	return start + dlb_cost_op_s(c, op, where[op], (double)g->batch);
}

/* Seconds of a step whose ops run in graph order: shard k on the kth fastest of n nodes, whole ops on the
 * fastest node. */
static double schedule_s(const struct split_search *s, const struct dlb_cost *c, int n)
{
	const struct dlb_graph *g = c->graph;
	int *where = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *where);
	double *finish = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *finish), end = 0;
	double *free_at = dlb_xcalloc((size_t)s->cl->n_nodes + 1, sizeof *free_at);

	for (int i = 0; i < g->n_ops; i++) {
		const int shard = shard_of(g, i);
		where[i] = s->fastest[shard < 0 ? 0 : shard % n];
		finish[i] = free_at[where[i]] = finish_of(c, i, where, finish, free_at);
		end = fmax(end, finish[i]);
	}
	free(where);
	free(finish);
	free(free_at);
	return end;
}

/* Seconds of a step with these ops split over n nodes; INFINITY: impossible. */
static double with_split_s(const struct split_search *s, const struct dlb_split_request *ask, int n_ask,
			   int n)
{
	struct dlb_graph g;
	struct dlb_profile p = { .n_kinds = 0 };
	struct dlb_cost c = { .n_ops = 0 };
	struct dlb_error err = { .what = "" };
	double end = INFINITY;

	dlb_graph_copy(s->g, &g);
	if (!n_ask || !dlb_graph_split(&g, ask, n_ask, &err)) {
		if (s->p)
			dlb_profile_carry(s->p, s->g, &g, &p);
		if (!dlb_graph_index(&g) && !dlb_cost_estimate(&c, &g, s->p ? &p : NULL, s->cl, &err))
			end = schedule_s(s, &c, n);
	}
	dlb_cost_release(&c);
	dlb_profile_release(&p);
	dlb_graph_release(&g);
	return end;
}

/* -- ops that do not fit -- */

/* Bytes that one of k shards of an op needs: its share of the output and of the weights with their gradients
 * and optimizer states, and the whole input. */
static double need_bytes(const struct dlb_graph *g, int op, int k, int n_state)
{
	const struct dlb_op *o = &g->op[op];
	double weights = 0, in = 0;

	for (int i = 0; i < o->n_in; i++) {
		if (o->in[i] < 0)
			continue;
		const struct dlb_tensor *t = &g->tensor[o->in[i]];
		if (t->kind == DLB_T_WEIGHT)
			weights += g->training ? dlb_cost_weight_bytes(g, o->in[i], n_state, true) :
						 dlb_tensor_bytes(t, 1);
		else
			in += dlb_tensor_bytes(t, g->batch);
	}
	return (weights + dlb_cost_out_bytes(g, op, g->batch)) / k + in;
}

static int descending(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*y > *x) - (*y < *x);
}

/* Fraction of a node's memory that one shard may use; the rest is left for other ops. */
static const double most_of_a_node = 0.9;

static void split_too_large(struct split_search *s, int n_state)
{
	const int n = s->cl->n_nodes;
	double *memory = dlb_xcalloc((size_t)n + 1, sizeof *memory);

	for (int i = 0; i < n; i++)
		memory[i] = dlb_cluster_node_memory(s->cl, i);
	qsort(memory, (size_t)n, sizeof *memory, descending);
	for (int i = 0; i < s->g->n_ops && n > 1; i++) {
		const struct dlb_op *o = &s->g->op[i];
		const double need = need_bytes(s->g, i, 1, n_state);
		int k = 2;

		if (!is_open(s, o) || !(need > memory[0]))
			continue;
		while (k < n && need_bytes(s->g, i, k, n_state) > most_of_a_node * memory[k - 1])
			k++;
		s->sure[s->n_sure++] = (struct dlb_split_request){
			.op = o->name,
			.parts = k,
			.why = dlb_arena_printf(s->a,
						"whole it needs %.4g MB, and no node has more than %.4g MB",
						need / 1e6, memory[0] / 1e6)
		};
	}
	free(memory);
}

/* -- splits that shorten the step -- */

static int by_flop(const void *a, const void *b)
{
	const struct alike *x = a, *y = b;

	if (x->flop != y->flop)
		return (y->flop > x->flop) - (y->flop < x->flop);
	return x->op[0] - y->op[0];
}

static void find_alike(struct split_search *s)
{
	const struct dlb_graph *g = s->g;

	s->alike = dlb_arena_array(s->a, (size_t)g->n_ops + 1, sizeof *s->alike);
	for (int i = 0; i < g->n_ops; i++) {
		int k = 0;

		if (!is_open(s, &g->op[i]))
			continue;
		const char *key = dlb_op_signature(g, i, g->batch, s->a);
		while (k < s->n_alike && strcmp(s->alike[k].key, key) != 0)
			k++;
		struct alike *c = &s->alike[k];
		if (k == s->n_alike) {
			*c = (struct alike){
				.key = key, .op = dlb_arena_array(s->a, (size_t)(g->n_ops - i), sizeof *c->op)
			};
			s->n_alike++;
		}
		c->op[c->n++] = i;
		c->flop += g->op[i].flop;
	}
	if (s->n_alike)
		qsort(s->alike, (size_t)s->n_alike, sizeof *s->alike, by_flop);
	s->n_alike = s->n_alike < MAX_CLASSES ? s->n_alike : MAX_CLASSES;
}

/* Collects the splits: those made in any case, and those of the signatures that are split now, into n shards.
 * Returns their number. */
static int collect(const struct split_search *s, int n, const char *why, struct dlb_split_request *ask)
{
	int m = s->n_sure;

	if (m)
		memcpy(ask, s->sure, (size_t)m * sizeof *ask);
	for (int k = 0; k < s->n_alike; k++)
		for (int i = 0; i < s->alike[k].n && s->alike[k].way != WHOLE; i++)
			ask[m++] = (struct dlb_split_request){ .op = s->g->op[s->alike[k].op[i]].name,
							       .parts = n,
							       .why = why,
							       .axis = axis_of[s->alike[k].way] };
	return m;
}

/* True if the op can be split into n shards this way. */
static bool can_split(const struct split_search *s, int op, int n, enum split_way way)
{
	const struct dlb_split_request one = {
		.op = s->g->op[op].name, .parts = n, .axis = axis_of[way], .why = ""
	};
	struct dlb_error err = { .what = "" };
	struct dlb_graph g;

	dlb_graph_copy(s->g, &g);
	const bool can = !dlb_graph_split(&g, &one, 1, &err);
	dlb_graph_release(&g);
	return can;
}

/* Splits the ops of all signatures that can be split this way; returns the seconds of a step. */
static double start_with(struct split_search *s, int n, enum split_way way, struct dlb_split_request *ask)
{
	for (int k = 0; k < s->n_alike; k++)
		s->alike[k].way = s->alike[k].can[way] ? way : WHOLE;
	return with_split_s(s, ask, collect(s, n, "", ask), n);
}

/* Starts from the better of both ways. Then, signature by signature with the fewest FLOP first, takes the way
 * that makes the step shorter, or no split if the step stays equally short. Returns the seconds of a step. */
static double improve(struct split_search *s, int n, struct dlb_split_request *ask)
{
	bool changed = true;

	for (int k = 0; k < s->n_alike; k++)
		for (int w = 0; w < N_WAYS; w++)
			s->alike[k].can[w] = w == WHOLE ||
					     can_split(s, s->alike[k].op[0], n, (enum split_way)w);
	double best = start_with(s, n, SAMPLES, ask);
	const double fitting = start_with(s, n, FITTING, ask);
	if (fitting <= best)
		best = fitting;
	else
		start_with(s, n, SAMPLES, ask);
	for (int pass = 0; pass < 3 && changed; pass++) {
		changed = false;
		for (int k = s->n_alike - 1; k >= 0; k--) {
			enum split_way keep = s->alike[k].way;
			for (int w = 0; w < N_WAYS; w++) {
				if (w == (int)keep || !s->alike[k].can[w])
					continue;
				s->alike[k].way = (enum split_way)w;
				const double t = with_split_s(s, ask, collect(s, n, "", ask), n);
				if (t < best || (t <= best && w == WHOLE)) {
					best = t;
					keep = (enum split_way)w;
					changed = true;
				}
			}
			s->alike[k].way = keep;
		}
	}
	return best;
}

static const double least_gain = 0.02;

/* The number of shards to try after k: 2, 4, 8 ..., and finally the number of nodes. */
static int next_count(int k, int n_nodes)
{
	return k < n_nodes && 2 * k > n_nodes ? n_nodes : 2 * k;
}

static void shorten(struct split_search *s, struct dlb_split_list *list)
{
	struct dlb_split_request *now = dlb_arena_array(s->a, (size_t)s->g->n_ops + 1, sizeof *now);
	const double whole = with_split_s(s, s->sure, s->n_sure, s->cl->n_nodes);
	double best = whole * (1 - least_gain);

	*list = (struct dlb_split_list){ s->sure, s->n_sure };
	for (int k = 2; k <= s->cl->n_nodes && k <= MAX_SHARDS; k = next_count(k, s->cl->n_nodes)) {
		const double t = improve(s, k, now);
		if (!(t < best))
			continue;
		best = t;
		struct dlb_split_request *keep = dlb_arena_array(s->a, (size_t)s->g->n_ops + 1, sizeof *keep);
		list->n = collect(s, k,
				  dlb_arena_printf(s->a,
						   "the step is predicted at %.4g s instead of %.4g s, "
						   "scheduled in the graph's order",
						   t, whole),
				  keep);
		list->ask = keep;
	}
}

int dlb_auto_split(const struct dlb_doc *doc, const struct dlb_profile *p, const struct dlb_cluster *cl,
		   int n_state, struct dlb_arena *a, struct dlb_split_list *list, struct dlb_error *err)
{
	struct split_search s = { .p = p, .cl = cl, .a = a };
	struct dlb_cost c = { .n_ops = 0 };
	struct dlb_graph g;
	int rc = -1;

	if (dlb_graph_read(doc, &g, err))
		return -1;
	s.g = &g;
	s.sure = dlb_arena_array(a, (size_t)list->n + (size_t)g.n_ops + 1, sizeof *s.sure);
	if (list->n)
		memcpy(s.sure, list->ask, (size_t)list->n * sizeof *list->ask);
	s.n_sure = list->n;
	if (!dlb_cost_estimate(&c, &g, p, cl, err)) {
		s.fastest = dlb_cost_fastest_nodes(&c, a);
		split_too_large(&s, n_state);
		find_alike(&s);
		shorten(&s, list);
		rc = 0;
	}
	for (int i = 0; i < list->n && !rc; i++)	/* names must outlive the graph */
		list->ask[i].op = dlb_arena_strdup(a, list->ask[i].op);
	dlb_cost_release(&c);
	dlb_graph_release(&g);
	return rc;
}
