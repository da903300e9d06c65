/* Proofs about programs before anything starts. Nothing here trusts the compiler: each proof reads only the
 * instructions and the places.
 *
 *   lives       each node, instruction by instruction: nothing is read before it is written nor after it is
 *               freed, every place is opened once and freed once; the step ends
 *   places      places that live together do not overlap, views and outputs in place lie where they should; what
 *               is overwritten is not read (nor sent: the WAIT for a send reads too) after that
 *   messages    every SEND has one POST, of the same size, and one WAIT on either side
 *   deadlock    all programs are run in the abstract, a send leaving only when its receiver has posted. Who is
 *               first does not matter to what can run (each message has one sender and one receiver), so one
 *               order that ends shows that all do
 *   memory      arena + scratch + state fits the node
 *
 * Synchronous schedules have no delay between iterations: one step is what is looked at. Asynchronous programs are
 * unrolled: as many steps as two more than the longest delay or the most copies of anything, from an empty pipeline to
 * an empty one. Of weights it is shown that the versions that are read are there: in place, or in their copies. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "optim/kfac.h"
#include "plan/flow.h"

int dlb_program_find_place(const struct dlb_node_program *p, int tensor, int micro_batch)
{
	int lo = 0, hi = p->n_places;
	while (lo < hi) {
		int mid = (lo + hi) / 2;
		const struct dlb_place *x = &p->place[mid];
		if (x->tensor < tensor || (x->tensor == tensor && x->micro_batch < micro_batch))
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < p->n_places && p->place[lo].tensor == tensor && p->place[lo].micro_batch == micro_batch ? lo : -1;
}

static int fault(const struct dlb_program *g, int node, int at, struct dlb_error *err, const char *what)
{
	static const char *const verbs[DLB_N_VERBS] = { "POST", "WAIT", "SEND", "COMPUTE", "COLLECTIVE", "COPY", "FREE" };
	const struct dlb_instr *in = &dlb_program_of(g, node)->node[node].instr[at];
	char where[64];
	snprintf(where, sizeof where, "program of node %d, instruction %d", node, at);
	if (in->op >= 0)
		return dlb_fail(err, where, "%s op %d '%s' of micro-batch %d: %s", verbs[in->verb], in->op,
				g->graph->op[in->op].name, in->micro_batch, what);
	if (in->verb == DLB_COLLECTIVE)
		return dlb_fail(err, where, "COLLECTIVE of bucket %d: %s", in->tag, what);
	return dlb_fail(err, where, "%s tensor %d '%s' of micro-batch %d: %s", verbs[in->verb], in->tensor,
			in->tensor >= 0 ? g->graph->tensor[in->tensor].name : "", in->micro_batch, what);
}

/* ---- lives ---- */

enum life { UNBORN, OPEN, WRITTEN, FREED };		/* OPEN: posted, the message has not come */
struct lives {
	const struct dlb_program *g; const struct dlb_plan *p; int node;
	char *life;
	int *written, *version;				/* [place] of the bytes it was given; [root] of the bytes there now */
	int *sum, *moment;				/* [update op]; [2 * update op + factor] of K-FAC: micro-batches summed */
	char *bucket;					/* [update op, op in halves] 0: in none, else how far its bucket is */
	int *reduced, *updated;				/* [update op] steps whose sum over the replicas is there; that are done */
	bool averages;					/* buckets are of weights */
	char *factors;					/* [update op] of K-FAC: how far the bucket of its factors is */
	bool *preconditioned;				/* [update op] */
	int squared, normed;				/* steps whose squares are taken; whose global norm is known */
	bool trusted;					/* K-FAC's trust region is behind us */
	struct versions *of_weight;			/* [tensor] asynchronous: of the weights updated here; else NULL */
};
struct versions { const struct dlb_weight_copies *w; int live, *copy; };	/* live: updates so far; copy: version there, -1 */
enum { IN_BUCKET = 1, SUMMED, REDUCING, REDUCED };

/* Views and what was written in place lie in the place of another: the one at the end of that chain, -1: none. */
static int root_place(const struct lives *l, int tensor, int m)
{
	const struct dlb_node_program *np = &l->g->node[l->node];
	int k = dlb_program_find_place(np, tensor, m);
	for (int steps = 0; k >= 0 && np->place[k].of >= 0; steps++)
		k = steps > np->n_places ? -1 : dlb_program_find_place(np, np->place[k].of, m);
	return k;
}

/* Why output 0 of op does not share a place as its class says; NULL: it does, or has its own. */
static const char *shares(const struct lives *l, int op, const struct dlb_place *x, bool *overwrites)
{
	const struct dlb_graph *g = l->g->graph;
	const struct dlb_op *o = &g->op[op];
	bool view = dlb_graph_is_view(g, op);
	*overwrites = false;
	if (x->tensor != o->out[0])
		return x->of < 0 ? NULL : "shares the place of another tensor";
	if (view && x->of != o->in[0])
		return "is a view that does not lie in what it is a view of";
	if (view || x->of < 0)
		return NULL;
	int root = root_place(l, x->of, x->micro_batch);
	for (int k = 0; k < o->n_in; k++) {
		bool state = o->in[k] < 0 || dlb_tensor_is_state(&g->tensor[o->in[k]]);
		if (o->in[k] == x->of)
			*overwrites = dlb_graph_may_overwrite(g, op, k);
		else if (!state && root_place(l, o->in[k], x->micro_batch) == root)
			return "overwrites an input that another input is a view of";
	}
	return *overwrites ? NULL : "overwrites what it must not";
}

/* A weight of here is read by an instruction of step s: the version that it wants must be somewhere. */
static const char *has_version(struct lives *l, int t, const struct dlb_instr *in)
{
	const struct versions *v = l->of_weight ? &l->of_weight[t] : NULL;
	int rule = l->g->staleness, want = in->iteration - in->version < 0 ? 0 : in->iteration - in->version;
	if (!v || !v->w || in->what == DLB_RUN_UPDATE || rule == DLB_STALE_NONE)
		return NULL;
	if (rule == DLB_STALE_PREDICT)
		return in->verb != DLB_COMPUTE || l->g->graph->op[in->op].phase != DLB_FORWARD || v->live >= in->iteration ||
			(v->w->n && v->copy[in->iteration % v->w->n] == in->iteration) ? NULL : "reads a weight that is not predicted";
	return v->live == want || (v->w->n && v->copy[want % v->w->n] == want) ? NULL : "reads a version of a weight that is not kept";
}

static const char *copy_weight(struct lives *l, const struct dlb_instr *in)
{
	for (int i = 0; i < l->g->graph->op[in->op].n_in; i++) {
		int t = l->g->graph->op[in->op].in[i];
		struct versions *v = t >= 0 && l->of_weight ? &l->of_weight[t] : NULL;
		if (!v || !v->w)
			continue;
		if (!v->w->n || (in->what == DLB_RUN_KEEP && v->live != in->iteration))
			return "keeps a weight that is not of its step";
		v->copy[in->iteration % v->w->n] = in->iteration;
		return NULL;
	}
	return "copies a weight that does not live here";
}

static const char *readable(struct lives *l, int t, const struct dlb_instr *in)
{
	int m = in->micro_batch < 0 ? dlb_unrolled(l->g->micro_batches / l->g->steps, in->iteration, 0) : in->micro_batch;
	const struct dlb_tensor *x = &l->g->graph->tensor[t];
	bool once = x->kind == DLB_T_WEIGHT || x->kind == DLB_T_BUFFER;
	if (x->kind == DLB_T_CONSTANT || (once && l->p->placement[dlb_graph_home(l->g->graph, t)] == l->node))
		return once ? has_version(l, t, in) : NULL;
	m = once ? -1 - in->iteration : m;
	int k = dlb_program_find_place(&l->g->node[l->node], t, m), r = root_place(l, t, m);
	if (k < 0 || r < 0)
		return "reads a tensor that has no place on this node";
	if (l->life[k] != WRITTEN)
		return "reads a tensor that is not written yet";
	if (l->written[k] != l->version[r])
		return "reads a tensor that was overwritten in place";
	return l->life[r] == WRITTEN ? NULL : "reads a tensor that is freed";
}

/* Update op's gradient of the step lies in its place of state: summed, and not yet overwritten by a later one's. */
static bool is_summed(const struct lives *l, int op, int step)
{
	int M = l->g->micro_batches / l->g->steps, places = dlb_program_sum_places(&l->g->node[l->node], op);
	return l->sum[op] >= (step + 1) * M && l->sum[op] <= (step + places) * M;
}

/* An op in halves: its sums are made, summed over the replicas, and read by the same micro-batch, which sum[op] is. */
static const char *half(struct lives *l, const struct dlb_instr *in)
{
	char *at = &l->bucket[in->op];
	if (in->what == DLB_RUN_SUMS) {
		if (*at != IN_BUCKET)
			return "makes sums that nobody adds up, or before the last ones were read";
		*at = SUMMED;
		l->sum[in->op] = in->micro_batch;
		return NULL;
	}
	if (*at != REDUCED || l->sum[in->op] != in->micro_batch)
		return "runs before its sums are those of all replicas";
	*at = IN_BUCKET;
	return NULL;
}

/* Sums of the layer's gradients and of its second moments are complete, over the replicas too. */
static const char *precondition(struct lives *l, const struct dlb_instr *in)
{
	const struct dlb_kfac_layer layer = dlb_kfac_layer_at(l->g->graph, in->op);
	const int op[] = { layer.update, layer.bias_update }, M = l->g->micro_batches;
	for (int i = 0; i < DLB_LEN(op); i++) {
		if (op[i] < 0)
			continue;
		if (l->p->placement[op[i]] != l->node)
			return "preconditions a gradient that is summed elsewhere";
		if (l->preconditioned[op[i]] || l->updated[op[i]])
			return "preconditions twice, or after an update";
		if (l->sum[op[i]] != M || (l->bucket[op[i]] && l->bucket[op[i]] != REDUCED))
			return "preconditions before the gradient is summed";
		l->preconditioned[op[i]] = true;
	}
	for (int k = 0; k < DLB_KFAC_FACTORS; k++)
		if (l->moment[2 * in->op + k] != M)
			return "preconditions before the second moments are summed";
	return l->factors[in->op] && l->factors[in->op] != REDUCED ? "preconditions before the factors are summed over the replicas" : NULL;
}

static const char *compute(struct lives *l, const struct dlb_instr *in)
{
	const struct dlb_graph *g = l->g->graph;
	const struct dlb_op *o = &g->op[in->op];
	const struct dlb_node_program *np = &l->g->node[l->node];
	const char *bad = NULL;
	int M = l->g->micro_batches / l->g->steps, first = in->iteration * M;
	if (in->what == DLB_RUN_KEEP || in->what == DLB_RUN_PREDICT)
		return copy_weight(l, in);
	if (in->what == DLB_RUN_PRECONDITION)
		return precondition(l, in);
	if (in->what == DLB_RUN_ACCUMULATE) {
		int factor = dlb_kfac_factor_of(g, in->op, in->tensor), *sum = factor < 0 ? &l->sum[in->op] : &l->moment[2 * in->op + factor];
		if (*sum != in->micro_batch)
			return "gradients are not summed in the order of micro-batches";
		++*sum;
		if (l->preconditioned[in->op])
			return "sums a gradient that is preconditioned already";
		if (l->squared > in->iteration)
			return "sums a gradient after the global norm was taken";
		if (in->iteration - dlb_program_sum_places(np, in->op) >= l->updated[in->op])
			return "sums a gradient over one that is still needed";
		return readable(l, in->tensor, in);
	}
	if (in->what == DLB_RUN_UPDATE && l->p->clip && l->normed <= in->iteration)
		return "updates before the global norm is known";
	if (in->what == DLB_RUN_SUMS || (in->what == DLB_RUN_OP && l->bucket[in->op]))
		bad = half(l, in);
	for (int i = 0; i < o->n_in && !bad; i++) {
		int t = o->in[i];
		if (t < 0)
			continue;
		bool gradient = in->what == DLB_RUN_UPDATE && g->tensor[t].producer >= 0;
		if (gradient && l->averages && l->bucket[in->op] > IN_BUCKET)
			bad = "updates a weight that is being averaged";
		else if (gradient && !l->averages && l->bucket[in->op] && l->reduced[in->op] <= in->iteration)
			bad = "updates before the gradient is summed over the replicas";
		else if (gradient && dlb_program_sums(l->g, in->op))
			bad = !is_summed(l, in->op, in->iteration) ? "updates before the gradient is summed" :
				dlb_kfac_layer_of(g, in->op) < 0 ? NULL : !l->preconditioned[in->op] ? "updates before the gradient is preconditioned" :
				!l->trusted ? "updates before the trust region is known" : NULL;
		else
			bad = readable(l, t, in);
		if (!bad && in->what == DLB_RUN_UPDATE && l->of_weight && l->of_weight[t].w)
			bad = l->of_weight[t].live++ == in->iteration ? NULL : "updates out of order";
	}
	l->updated[in->op] += in->what == DLB_RUN_UPDATE;
	for (int i = 0; i < o->n_out && !bad && in->what != DLB_RUN_SUMS; i++) {
		int k = o->out[i] < 0 ? -1 : dlb_program_find_place(&l->g->node[l->node], o->out[i], in->micro_batch < 0 ? first : in->micro_batch);
		if (o->out[i] < 0)
			continue;
		bool overwrites;
		if (k < 0 || l->life[k] != UNBORN)
			bad = "writes a tensor that has no place or is written already";
		else
			bad = shares(l, in->op, &np->place[k], &overwrites);
		if (bad)
			break;
		int r = root_place(l, np->place[k].tensor, np->place[k].micro_batch);
		if (r < 0 || (r != k && l->life[r] != WRITTEN))
			return "writes into a place that is not alive";
		l->life[k] = WRITTEN;
		l->written[k] = l->version[r] += overwrites;
	}
	return bad;
}

/* Every gradient of the bucket is summed here when it starts (where weights are averaged: every weight updated), and it
 * starts before it is waited for. */
static const char *collective(struct lives *l, const struct dlb_instr *in)
{
	const struct dlb_node_program *np = &l->g->node[l->node];
	if (in->what != DLB_RUN_REDUCE && in->what != DLB_RUN_REDUCED)
		return NULL;
	if (in->tag < 0 || in->tag >= np->n_buckets)
		return "there is no such bucket";
	bool statistics = np->bucket[in->tag].cls == DLB_SUM_STATISTICS, factors = np->bucket[in->tag].cls == DLB_SUM_FACTOR;
	for (int i = 0; i < np->bucket[in->tag].n_ops; i++) {
		int op = np->bucket[in->tag].op[i];
		bool start = in->what == DLB_RUN_REDUCE;
		struct dlb_instr first = *in;
		first.micro_batch = 0;
		if (statistics && l->sum[op] != in->micro_batch)
			return "is of another micro-batch than its sums";
		if (start && !statistics && l->averages && !l->updated[op])
			return "starts before its weights are updated";
		if (start && !statistics && !l->averages &&
		    (dlb_program_sums(l->g, op) ? !is_summed(l, op, in->iteration) :
		     readable(l, dlb_update_gradient(l->g->graph, op), &first) != NULL))
			return "starts before its gradients are there";
		for (int k = 0; k < DLB_KFAC_FACTORS && start && factors; k++)
			if (l->moment[2 * op + k] != l->g->micro_batches)
				return "starts before its factors are there";
		char *state = factors ? &l->factors[op] : &l->bucket[op];
		if (*state == REDUCED && l->g->depth && l->reduced[op] == in->iteration)
			*state = IN_BUCKET;		/* of the step before */
		if (*state != (!start ? REDUCING : statistics ? SUMMED : IN_BUCKET))
			return start ? "starts twice" : "is waited for before it starts";
		*state = start ? REDUCING : REDUCED;
		l->reduced[op] += !start && !factors;
	}
	return NULL;
}

/* Every layer here is preconditioned. */
static const char *trust(struct lives *l)
{
	const struct dlb_graph *g = l->g->graph;
	if (l->trusted)
		return "the trust region is taken twice";
	l->trusted = true;
	for (int op = 0; op < g->n_ops; op++)
		if (l->p->placement[op] == l->node && dlb_kfac_layer_of(g, op) == op && !l->preconditioned[op])
			return "takes the trust region before a gradient is preconditioned";
	return NULL;
}

/* Every gradient of the updates here must be there, summed or whole. */
static const char *norm(struct lives *l, const struct dlb_instr *in)
{
	const struct dlb_graph *g = l->g->graph;
	const char *bad = NULL;
	if (in->what == DLB_RUN_NORM) {
		if (l->normed++ != in->iteration || (l->g->async && l->squared <= in->iteration))
			return "the global norm is taken twice, or before its squares are";
		if (l->g->async)
			return NULL;
	}
	if (l->squared++ != in->iteration)
		return "squares are taken twice";
	for (int op = 0; op < g->n_ops && !bad; op++) {
		const struct dlb_op *o = &g->op[op];
		if (o->phase != DLB_UPDATE || l->p->placement[op] != l->node)
			continue;
		for (int i = 0; i < o->n_in && !bad; i++) {
			if (o->in[i] < 0 || g->tensor[o->in[i]].producer < 0)
				continue;
			if (dlb_program_sums(l->g, op) && !is_summed(l, op, in->iteration))
				bad = "the global norm is taken before a gradient is summed";
			else if (!l->averages && l->bucket[op] && l->reduced[op] <= in->iteration)
				bad = "the global norm is taken before a gradient is summed over the replicas";
			else if (!dlb_program_sums(l->g, op))
				bad = readable(l, o->in[i], &(const struct dlb_instr){ .verb = DLB_COLLECTIVE, .op = -1 });
		}
	}
	return bad;
}

static const char *live(struct lives *l, const struct dlb_instr *in)
{
	const struct dlb_node_program *np = &l->g->node[l->node];
	int k = in->tensor >= 0 && in->verb != DLB_COMPUTE ? dlb_program_find_place(np, in->tensor, in->micro_batch) : -1;
	switch (in->verb) {
	case DLB_POST:
	case DLB_COPY:
		if (k < 0 || l->life[k] != UNBORN)
			return "opens a place that does not exist or is taken";
		l->life[k] = in->verb == DLB_POST ? OPEN : WRITTEN;
		return NULL;
	case DLB_WAIT:
		if (in->sent)
			return readable(l, in->tensor, in);
		if (k < 0 || l->life[k] != OPEN)
			return "waits for a message that is not posted";
		l->life[k] = WRITTEN;
		return NULL;
	case DLB_SEND:
		return readable(l, in->tensor, in);
	case DLB_FREE:
		if (k < 0 || l->life[k] != WRITTEN)
			return "frees what is not alive";
		l->life[k] = FREED;
		return NULL;
	case DLB_COMPUTE:
		return compute(l, in);
	case DLB_COLLECTIVE:
		return in->what == DLB_RUN_NORM || in->what == DLB_RUN_SQUARES ? norm(l, in) : in->what == DLB_RUN_TRUST ? trust(l) :
			collective(l, in);
	default:
		return NULL;
	}
}

static void watch_versions(struct lives *l)
{
	const struct dlb_node_program *np = &l->g->node[l->node];
	l->of_weight = dlb_xcalloc((size_t)l->g->graph->n_tensors + 1, sizeof *l->of_weight);
	for (int k = 0; k < np->n_weights; k++) {
		struct versions *v = &l->of_weight[np->weight[k].tensor];
		v->w = &np->weight[k];
		v->copy = dlb_xcalloc((size_t)v->w->n + 1, sizeof(int));
		for (int i = 0; i < v->w->n; i++)
			v->copy[i] = -1;
	}
}

static int prove_lives(const struct dlb_program *g, int node, struct dlb_error *err)
{
	const struct dlb_node_program *np = &g->node[node];
	struct lives l = { .g = g, .p = g->plan, .node = node };
	l.life = dlb_xcalloc((size_t)np->n_places + 1, 1);
	l.written = dlb_xcalloc((size_t)np->n_places + 1, sizeof(int));
	l.version = dlb_xcalloc((size_t)np->n_places + 1, sizeof(int));
	l.sum = dlb_xcalloc((size_t)g->graph->n_ops + 1, sizeof(int));
	l.bucket = dlb_xcalloc((size_t)g->graph->n_ops + 1, 1);
	l.reduced = dlb_xcalloc((size_t)g->graph->n_ops + 1, sizeof *l.reduced);
	l.updated = dlb_xcalloc((size_t)g->graph->n_ops + 1, sizeof *l.updated);
	l.moment = dlb_xcalloc(2 * (size_t)g->graph->n_ops + 2, sizeof(int));
	l.factors = dlb_xcalloc((size_t)g->graph->n_ops + 1, 1);
	l.preconditioned = dlb_xcalloc((size_t)g->graph->n_ops + 1, sizeof *l.preconditioned);
	l.averages = dlb_sharing_averages(&g->whole->sharing);
	for (int b = 0; b < np->n_buckets; b++)
		for (int i = 0; i < np->bucket[b].n_ops; i++)
			(np->bucket[b].cls == DLB_SUM_FACTOR ? l.factors : l.bucket)[np->bucket[b].op[i]] = IN_BUCKET;
	int rc = 0, ends = 0;
	if (g->depth)
		watch_versions(&l);
	for (int i = 0; i < np->n_instr && rc == 0; i++) {
		const char *bad = ends == g->steps && np->instr[i].verb != DLB_FREE ? "comes after the end of the step" : live(&l, &np->instr[i]);
		if (bad)
			rc = fault(g, node, i, err, bad);
		ends += np->instr[i].verb == DLB_COLLECTIVE && np->instr[i].what == DLB_RUN_STEP_END;
	}
	if (rc == 0 && g->plan->clip && l.normed != g->steps)
		rc = dlb_fail(err, NULL, "program of node %d: the global norm is never taken", node);
	if (rc == 0 && ends != g->steps)
		rc = dlb_fail(err, NULL, "program of node %d: the step has no end", node);
	for (int i = 0; i < g->graph->n_ops && rc == 0; i++)
		if (l.factors[i] && l.factors[i] != REDUCED)
			rc = dlb_fail(err, NULL, "program of node %d: the bucket of the factors of op %d '%s' is never waited for", node, i,
				      g->graph->op[i].name);
		else if (l.bucket[i] && l.bucket[i] != (g->graph->op[i].phase == DLB_UPDATE ? REDUCED : IN_BUCKET))
			rc = dlb_fail(err, NULL, "program of node %d: the bucket of op %d '%s' is never waited for", node, i, g->graph->op[i].name);
	for (int k = 0; k < np->n_places && rc == 0; k++) {
		int r = root_place(&l, np->place[k].tensor, np->place[k].micro_batch);
		if (r < 0 || l.life[r] != FREED)
			rc = dlb_fail(err, NULL, "program of node %d: tensor %d '%s' of micro-batch %d is never freed", node,
				      np->place[k].tensor, g->graph->tensor[np->place[k].tensor].name, np->place[k].micro_batch);
	}
	free(l.life);
	free(l.written);
	free(l.version);
	free(l.sum);
	free(l.bucket);
	free(l.reduced);
	free(l.updated);
	free(l.moment);
	free(l.factors);
	free(l.preconditioned);
	for (int k = 0; l.of_weight && k < np->n_weights; k++)
		free(l.of_weight[np->weight[k].tensor].copy);
	free(l.of_weight);
	return rc;
}

/* ---- places ---- */

/* How many places lie over each stretch between neighbouring borders: range add, range maximum. */
struct cover { int n; int *max, *add; };

static int cover_max(const struct cover *c, int v, int lo, int hi, int a, int b)
{
	if (b <= lo || hi <= a)
		return 0;
	if (a <= lo && hi <= b)
		return c->max[v];
	int mid = (lo + hi) / 2, x = cover_max(c, 2 * v, lo, mid, a, b), y = cover_max(c, 2 * v + 1, mid, hi, a, b);
	return (x > y ? x : y) + c->add[v];
}

static void cover_add(struct cover *c, int v, int lo, int hi, int a, int b, int d)
{
	if (b <= lo || hi <= a)
		return;
	if (a <= lo && hi <= b) {
		c->max[v] += d;
		c->add[v] += d;
		return;
	}
	int mid = (lo + hi) / 2;
	cover_add(c, 2 * v, lo, mid, a, b, d);
	cover_add(c, 2 * v + 1, mid, hi, a, b, d);
	c->max[v] = c->add[v] + (c->max[2 * v] > c->max[2 * v + 1] ? c->max[2 * v] : c->max[2 * v + 1]);
}

static int by_size(const void *a, const void *b)
{
	size_t x = *(const size_t *)a, y = *(const size_t *)b;
	return (x > y) - (x < y);
}

static int border(const size_t *at, int n, size_t x)
{
	int lo = 0, hi = n;
	while (lo < hi) {
		int mid = (lo + hi) / 2;
		if (at[mid] < x)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

struct event { int instr, place; bool end; };
static int by_time(const void *a, const void *b)
{
	const struct event *x = a, *y = b;
	if (x->instr != y->instr)
		return x->instr < y->instr ? -1 : 1;
	return x->end != y->end ? (x->end ? 1 : -1) : x->place - y->place;	/* an end is after the starts */
}

static int prove_places(const struct dlb_program *g, int node, struct dlb_error *err)
{
	const struct dlb_node_program *np = &g->node[node];
	struct lives l = { .g = g, .p = g->plan, .node = node };
	int n = np->n_places, n_at = 0, n_events = 0, rc = 0;
	size_t *at = dlb_xcalloc(2 * (size_t)n + 2, sizeof *at);
	struct event *event = dlb_xcalloc(2 * (size_t)n + 2, sizeof *event);
	for (int k = 0; k < n && rc == 0; k++) {
		const struct dlb_place *x = &np->place[k];
		int r = root_place(&l, x->tensor, x->micro_batch);
		if (x->first < 0 || x->last < x->first || x->offset + x->bytes > np->arena_bytes || x->offset % DLB_PLACE_ALIGN)
			rc = dlb_fail(err, NULL, "program of node %d: the place of tensor %d '%s' is not in the arena", node, x->tensor,
				      g->graph->tensor[x->tensor].name);
		else if (r != k && (r < 0 || np->place[r].offset != x->offset || np->place[r].bytes < x->bytes ||
				    np->place[r].first > x->first || np->place[r].last < x->last))
			rc = dlb_fail(err, NULL, "program of node %d: tensor %d '%s' does not lie in the place that it shares", node,
				      x->tensor, g->graph->tensor[x->tensor].name);
		else if (r == k) {
			at[n_at++] = x->offset;
			at[n_at++] = x->offset + dlb_place_bytes(x->bytes);
			event[n_events++] = (struct event){ x->first, k, false };
			event[n_events++] = (struct event){ x->last, k, true };
		}
	}
	qsort(at, (size_t)n_at, sizeof *at, by_size);
	qsort(event, (size_t)n_events, sizeof *event, by_time);
	struct cover c = { .n = n_at + 1 };
	c.max = dlb_xcalloc(4 * (size_t)c.n + 4, sizeof(int));
	c.add = dlb_xcalloc(4 * (size_t)c.n + 4, sizeof(int));
	for (int i = 0; i < n_events && rc == 0; i++) {
		const struct dlb_place *x = &np->place[event[i].place];
		int a = border(at, n_at, x->offset), b = border(at, n_at, x->offset + dlb_place_bytes(x->bytes));
		if (!event[i].end && cover_max(&c, 1, 0, c.n, a, b))
			rc = dlb_fail(err, NULL, "program of node %d: the place of tensor %d '%s' of micro-batch %d overlaps another", node,
				      x->tensor, g->graph->tensor[x->tensor].name, x->micro_batch);
		cover_add(&c, 1, 0, c.n, a, b, event[i].end ? -1 : 1);
	}
	free(c.max);
	free(c.add);
	free(at);
	free(event);
	return rc;
}

/* ---- messages and deadlock ---- */

struct message { int from, to, tag, tensor, m; size_t bytes; int node, at; };
static int by_message(const void *a, const void *b)
{
	const struct message *x = a, *y = b;
	if (x->tag != y->tag)
		return x->tag < y->tag ? -1 : 1;
	if (x->from != y->from)
		return x->from < y->from ? -1 : 1;
	return (x->to > y->to) - (x->to < y->to);
}

static size_t bytes_of(const struct dlb_program *g, const struct dlb_instr *in)
{
	return (size_t)dlb_tensor_bytes(&g->graph->tensor[in->tensor], g->size[in->micro_batch < 0 ? 0 : in->micro_batch]);
}

/* kind: 0 SEND, 1 POST, 2 WAIT, 3 WAIT sent. Sorted by message; returns new. */
static struct message *collect(const struct dlb_program *g, int kind, int *n)
{
	int cap = 16;
	struct message *list = dlb_xmalloc((size_t)cap * sizeof *list);
	*n = 0;
	for (int node = 0; node < g->n_nodes; node++) {
		const struct dlb_program *own = dlb_program_of(g, node);
		const struct dlb_node_program *np = &own->node[node];
		for (int i = 0; i < np->n_instr; i++) {
			const struct dlb_instr *in = &np->instr[i];
			int k = in->verb == DLB_SEND ? 0 : in->verb == DLB_POST ? 1 : in->verb != DLB_WAIT ? -1 : in->sent ? 3 : 2;
			if (k != kind)
				continue;
			bool ours = k == 0 || k == 3;
			int place = ours ? -1 : dlb_program_find_place(np, in->tensor, in->micro_batch);
			DLB_GROW(list, *n, cap);
			list[(*n)++] = (struct message){ ours ? node : in->peer, ours ? in->peer : node, in->tag, in->tensor,
				in->micro_batch, place < 0 ? bytes_of(own, in) : np->place[place].bytes, node, i };
		}
	}
	qsort(list, (size_t)*n, sizeof *list, by_message);
	return list;
}

static int same_messages(const struct dlb_program *g, const struct message *a, int n, const struct message *b, int k,
			 struct dlb_error *err)
{
	for (int i = 0; i < n || i < k; i++) {
		if (i >= k || (i < n && by_message(&a[i], &b[i]) < 0))
			return fault(g, a[i].node, a[i].at, err, "has no counterpart on the other side");
		if (i >= n || by_message(&a[i], &b[i]) > 0)
			return fault(g, b[i].node, b[i].at, err, "has no counterpart on the other side");
		if (a[i].bytes != b[i].bytes || a[i].tensor != b[i].tensor || a[i].m != b[i].m)
			return fault(g, a[i].node, a[i].at, err, "the two sides do not mean the same tensor or size");
		if (i > 0 && by_message(&a[i - 1], &a[i]) == 0)
			return fault(g, a[i].node, a[i].at, err, "is there twice");
	}
	return 0;
}

/* Sums over replicas: how many of the nodes of one part have started bucket b of m (of a step), started[part][b * M + m]. That
 * every node has computed its step is met by all in one place, before any sum: it holds up nobody for ever. */
struct run {
	const struct dlb_program *g; const struct message *message; int n;
	bool *sent, *posted;
	int *pc, *waiter;
	int **started, *part, *peer, n_at_norm;
	bool *at_norm;
	int *n_squared;				/* [step] asynchronous: nodes that have made their squares */
	bool *stacked; int *stack, top;
};

static int find_message(const struct run *r, int from, int to, int tag)
{
	struct message key = { .from = from, .to = to, .tag = tag };
	const struct message *x = bsearch(&key, r->message, (size_t)r->n, sizeof key, by_message);
	return x ? (int)(x - r->message) : -1;
}

static void wake(struct run *r, int node)
{
	if (!r->stacked[node])
		r->stack[r->top++] = node;
	r->stacked[node] = true;
}

/* Whether node may go on behind this instruction. */
static bool meet_others(struct run *r, int node, const struct dlb_instr *in)
{
	int R = r->g->n_replicas, M = r->g->micro_batches, m = in->micro_batch < 0 ? in->iteration : in->micro_batch >= M ? 0 : in->micro_batch;
	int *started = in->tag < 0 ? NULL : &r->started[r->part[node]][in->tag * M + m];
	if (in->what == DLB_RUN_REDUCE && ++*started == R) {
		dlb_plan_peers(r->g->whole, r->part[node], r->peer);
		for (int k = 0; k < R; k++)
			wake(r, r->peer[k]);
	}
	return in->what != DLB_RUN_REDUCED || *started == R;
}

/* The global norm of an asynchronous step: none waits before it has made its squares. */
static bool meet_norm(struct run *r, const struct dlb_instr *in)
{
	if (in->what == DLB_RUN_SQUARES && ++r->n_squared[in->iteration] == r->g->n_nodes)
		for (int n = 0; n < r->g->n_nodes; n++)
			wake(r, n);
	return in->what == DLB_RUN_SQUARES || r->n_squared[in->iteration] == r->g->n_nodes;
}

/* The global norm, where all wait for all: whether node may go on. The last one sets the others free. */
static bool meet_all(struct run *r, int node)
{
	r->n_at_norm += !r->at_norm[node];
	r->at_norm[node] = true;
	if (r->n_at_norm < r->g->n_nodes)
		return false;
	r->n_at_norm = 0;
	for (int n = 0; n < r->g->n_nodes; n++) {
		r->at_norm[n] = false;
		if (n == node)
			continue;
		r->pc[n]++;			/* each stands at its norm: none waits for a message */
		wake(r, n);
	}
	return true;
}

/* Runs node until it must wait; nodes that this sets free are stacked. */
static void advance(struct run *r, int node)
{
	const struct dlb_node_program *np = &dlb_program_of(r->g, node)->node[node];
	for (; r->pc[node] < np->n_instr; r->pc[node]++) {
		const struct dlb_instr *in = &np->instr[r->pc[node]];
		const bool all = in->verb == DLB_COLLECTIVE && (in->what == DLB_RUN_NORM || in->what == DLB_RUN_SQUARES || in->what == DLB_RUN_TRUST);
		if (in->verb == DLB_COLLECTIVE && !(!all ? meet_others(r, node, in) : r->g->async ? meet_norm(r, in) : meet_all(r, node)))
			return;
		if (in->verb != DLB_SEND && in->verb != DLB_POST && in->verb != DLB_WAIT)
			continue;
		bool ours = in->verb == DLB_SEND || in->sent;
		int k = find_message(r, ours ? node : in->peer, ours ? in->peer : node, in->tag);
		if (k < 0)
			return;
		if (in->verb == DLB_WAIT && !(r->sent[k] && r->posted[k])) {
			r->waiter[k] = node;
			return;
		}
		if (in->verb != DLB_WAIT) {
			*(in->verb == DLB_SEND ? &r->sent[k] : &r->posted[k]) = true;
			if (r->waiter[k] >= 0 && r->waiter[k] != node) {
				wake(r, r->waiter[k]);
				r->waiter[k] = -1;
			}
		}
	}
}

static int prove_progress(const struct dlb_program *g, const struct message *message, int n, struct dlb_error *err)
{
	struct run r = { .g = g, .message = message, .n = n };
	int rc = 0;
	size_t n_nodes = (size_t)g->n_nodes;
	r.sent = dlb_xcalloc((size_t)n + 1, sizeof(bool));
	r.posted = dlb_xcalloc((size_t)n + 1, sizeof(bool));
	r.waiter = dlb_xmalloc(((size_t)n + 1) * sizeof(int));
	r.pc = dlb_xcalloc(n_nodes, sizeof(int));
	r.started = dlb_xcalloc(n_nodes, sizeof *r.started);
	r.part = dlb_xcalloc(n_nodes, sizeof(int));
	r.peer = dlb_xcalloc((size_t)g->n_replicas + 1, sizeof(int));
	r.stack = dlb_xcalloc(n_nodes + 1, sizeof(int));
	r.stacked = dlb_xcalloc(n_nodes, sizeof(bool));
	r.at_norm = dlb_xcalloc(n_nodes, sizeof(bool));
	r.n_squared = dlb_xcalloc((size_t)g->steps, sizeof(int));
	for (int k = 0; k < n; k++)
		r.waiter[k] = -1;
	for (int node = g->n_nodes - 1; node >= 0; node--) {
		r.part[node] = dlb_plan_part_of(g->whole, node);
		r.started[node] = dlb_xcalloc((size_t)dlb_program_of(g, node)->node[node].n_buckets * (size_t)g->micro_batches + 1, sizeof(int));
		wake(&r, node);
	}
	while (r.top) {
		int node = r.stack[--r.top];
		r.stacked[node] = false;
		advance(&r, node);
	}
	for (int node = 0; node < g->n_nodes && rc == 0; node++)
		if (r.pc[node] < dlb_program_of(g, node)->node[node].n_instr)
			rc = fault(g, node, r.pc[node], err, "deadlock: this can never be over");
	for (int node = 0; node < g->n_nodes; node++)
		free(r.started[node]);
	free(r.started);
	free(r.part);
	free(r.peer);
	free(r.sent);
	free(r.posted);
	free(r.waiter);
	free(r.pc);
	free(r.stack);
	free(r.stacked);
	free(r.at_norm);
	free(r.n_squared);
	return rc;
}

/* Every op that sums over its batch has a bucket for that where the plan says so. */
static int prove_statistics(const struct dlb_program *g, struct dlb_error *err)
{
	int64_t n_own;
	for (int i = 0; i < g->graph->n_ops; i++) {
		int64_t n = dlb_graph_sums(g->graph, i, &n_own);
		const struct dlb_node_program *np = &g->node[g->plan->placement[i]];
		int b = n ? np->n_buckets - 1 : -1;
		while (b >= 0 && !(np->bucket[b].cls == DLB_SUM_STATISTICS && np->bucket[b].op[0] == i && np->bucket[b].n == n))
			b--;
		if (n && b < 0)
			return dlb_fail(err, NULL, "the statistics of op %d '%s' are not summed over the replicas", i, g->graph->op[i].name);
	}
	return 0;
}

/* Nodes that sum together must cut their gradients into the same buckets. */
static int prove_buckets(const struct dlb_program *g, struct dlb_error *err)
{
	for (int r = 0; r < g->n_replicas && g->n_replicas > 1 && g->whole->sharing.sync_batchnorm; r++)
		if (prove_statistics(dlb_program_replica(g, r), err))
			return -1;
	for (int r = 1; r < g->n_replicas; r++) {
		const struct dlb_program *other = dlb_program_replica(g, r);
		if (g->async && (other->depth != g->depth || other->micro_batches != g->micro_batches || other->staleness != g->staleness))
			return dlb_fail(err, NULL, "replicas 0 and %d do not go round one asynchronous loop", r);
		for (int k = 0; k < g->n_nodes; k++) {
			int node = g->whole->replica[r][k];
			if (node < 0)
				continue;
			const struct dlb_node_program *a = &g->node[g->whole->replica[0][k]], *b = &dlb_program_of(g, node)->node[node];
			bool same = a->n_buckets == b->n_buckets;
			for (int i = 0; same && i < a->n_buckets; i++)
				same = a->bucket[i].n == b->bucket[i].n && a->bucket[i].n_ops == b->bucket[i].n_ops &&
				       !memcmp(a->bucket[i].op, b->bucket[i].op, (size_t)a->bucket[i].n_ops * sizeof(int));
			if (!same)
				return dlb_fail(err, NULL, "nodes %d and %d play one part and do not sum the same gradients", k, node);
		}
	}
	return 0;
}

static int prove_messages(const struct dlb_program *g, struct dlb_error *err)
{
	struct message *list[4];
	int n[4], rc = 0;
	for (int k = 0; k < 4; k++)
		list[k] = collect(g, k, &n[k]);
	for (int k = 1; k < 4 && rc == 0; k++)
		rc = same_messages(g, list[0], n[0], list[k], n[k], err);
	if (rc == 0)
		rc = prove_progress(g, list[0], n[0], err);
	for (int k = 0; k < 4; k++)
		free(list[k]);
	return rc;
}

/* Names the node that lacks most. */
static int prove_memory(const struct dlb_program *g, const struct dlb_cost *c, struct dlb_error *err)
{
	double lacks = 0;
	int worst = -1;
	for (int node = 0; node < g->n_nodes && c && c->cluster; node++) {
		const struct dlb_node_program *np = &dlb_program_of(g, node)->node[node];
		double over = (double)np->arena_bytes + (double)np->scratch_bytes + (double)np->state_bytes -
			      dlb_cluster_node_memory(c->cluster, node);
		if (over > lacks) {
			lacks = over;
			worst = node;
		}
	}
	if (worst < 0)
		return 0;
	const struct dlb_node_program *np = &dlb_program_of(g, worst)->node[worst];
	double has = dlb_cluster_node_memory(c->cluster, worst);
	dlb_fail_no(err, NULL, "node %d (%s) needs %.4g MB of %.4g MB", worst,
		    c->cluster->kind[c->cluster->node[worst].kind].name, (has + lacks) / 1e6, has / 1e6);
	return dlb_hint(err, "weights and state %.4g MB, activations %.4g MB, scratch %.4g MB; try more micro-batches or nodes",
			(double)np->state_bytes / 1e6, (double)np->arena_bytes / 1e6, (double)np->scratch_bytes / 1e6);
}

static int prove(const struct dlb_program *g, struct dlb_error *err)
{
	if (prove_buckets(g, err) || prove_messages(g, err))
		return -1;
	for (int node = 0; node < g->n_nodes; node++) {
		const struct dlb_program *own = dlb_program_of(g, node);
		if (prove_lives(own, node, err) || prove_places(own, node, err))
			return -1;
	}
	return 0;
}

/* Steps after which everything has been met: the longest delay, and every copy used again. */
static int steps_to_prove(const struct dlb_program *g)
{
	int most = g->depth;
	for (int node = 0; node < g->n_nodes; node++) {
		const struct dlb_node_program *np = &dlb_program_of(g, node)->node[node];
		for (int k = 0; k < np->n_places; k++)
			most = np->place[k].copies > most ? np->place[k].copies : most;
		for (int k = 0; k < np->n_weights; k++)
			most = np->weight[k].n > most ? np->weight[k].n : most;
		for (int k = 0; k < np->n_weights; k++)
			most = np->weight[k].sums > most ? np->weight[k].sums : most;
	}
	return most + 2;
}

int dlb_program_verify(const struct dlb_program *g, const struct dlb_cost *c, struct dlb_error *err)
{
	struct dlb_program steps;
	int rc;
	if (!g->depth) {
		rc = prove(g, err);
	} else {
		dlb_program_unroll(g, steps_to_prove(g), &steps);
		rc = prove(&steps, err);
		dlb_program_release(&steps);
	}
	return rc ? rc : prove_memory(g, c, err);
}
