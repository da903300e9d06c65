/* Chooses ops to run again one by one: always the op that frees most bytes, per second of its second run, at
 * the fullest instruction of a node that lacks memory. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "place/recompute.h"
#include "place/recompute_search.h"
#include "plan/again.h"
#include "plan/replica.h"
#include "plan/tensors.h"

enum { MOST_DROPS = 400 };

/* Uses of a place: the last instruction outside the backward phase that uses it, and the first one of the
 * backward phase; -1: none. */
struct place_uses {
	int before, after;
};

/* The places of a node, indexed by tensor: place first[t] is the first of tensor t. root[k]: the place in
 * whose memory place k lies; -1: none. */
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

void dlb_recompute_each_use(const struct dlb_program *g, const struct dlb_node_program *np,
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
	dlb_recompute_each_use(g, np, see_phase, use);
}

bool dlb_recompute_may_drop(const struct dlb_recompute_search *c, const struct dlb_program *g,
			    const struct dlb_place *x, int node)
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

/* Sets gain[op]: bytes of the op's outputs that wait for the backward phase at the fullest instruction. */
static void find_gains(const struct dlb_recompute_search *c, const struct dlb_program *g, int node,
		       double *gain)
{
	const struct dlb_node_program *np = &g->node[node];
	struct place_uses *use = dlb_xmalloc(((size_t)np->n_places + 1) * sizeof *use);
	const int at = fullest(np);
	memset(gain, 0, (size_t)c->plan->n_ops * sizeof *gain);
	find_uses(g, np, use);
	for (int k = 0; k < np->n_places; k++) {
		const struct dlb_place *x = &np->place[k];
		if (use[k].before < at && use[k].after > at && x->first <= at && x->last >= at &&
		    dlb_recompute_may_drop(c, g, x, node))
			gain[g->graph->tensor[x->tensor].producer] += (double)dlb_place_bytes(x->bytes);
	}
	free(use);
}

/* Seconds, for one micro-batch, of all ops that run again on a node. */
static double again_s(const struct dlb_recompute_search *c, int node)
{
	double s = 0;
	for (int i = 0; i < c->plan->n_ops; i++)
		if (c->plan->again[i] && c->plan->placement[i] == node && !dlb_graph_is_view(c->p->graph, i))
			s += dlb_cost_op_s(c->p->cost, i, node,
					   (double)dlb_micro_batch_size(c->plan->batch,
									c->plan->micro_batches, 0));
	return s;
}

/* Drops one op. Of the few with the most gained bytes per second of their own, takes the one with the most
 * bytes per second of all ops that would then run again. Returns its bytes; 0: none is left. */
static double drop_one(struct dlb_recompute_search *c, int node, double *gain)
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

int dlb_recompute_by_peaks(struct dlb_recompute_search *c)
{
	double *gain = dlb_xcalloc((size_t)c->plan->n_ops + 1, sizeof *gain);
	int rc = 0, drops = 0;
	memset(c->plan->again, 0, (size_t)c->plan->n_ops * sizeof *c->plan->again);
	for (bool any = true; any && rc == 0;) {
		any = false;
		if (dlb_recompute_compile(c)) {
			rc = -1;
			break;
		}
		rc = dlb_recompute_fits(c) ? 1 : c->draft && c->order_s >= c->below_s ? 2 : 0;
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
		dlb_recompute_drop_program(c);
	}
	free(gain);
	return rc;
}
