/* Proof of lifetimes (verify.h), node by node, instruction by instruction: no place is read before it is
 * written or after it is freed, every place is opened once and freed once, gradients are complete before
 * they are used, and an overwritten tensor is not read (nor sent: WAIT for a send is a read) afterwards. */
#include <stdlib.h>
#include <string.h>
#include "optim/kfac.h"
#include "plan/again.h"
#include "plan/async.h"
#include "plan/buckets.h"
#include "plan/flow.h"
#include "plan/offload.h"
#include "plan/program_verify.h"
#include "plan/shares.h"
#include "plan/sharing.h"
#include "plan/tensors.h"
#include "plan/verify.h"

/* The life of a place. OPEN: a message or copy into it has begun. Only of optimizer states: UPDATED; KEPT:
 * the copy back has begun. */
enum life { UNUSED, OPEN, WRITTEN, UPDATED, KEPT, FREED };
struct dlb_lifetimes {				/* of one node; all but first_moment are 0 between nodes */
	const struct dlb_program *g; const struct dlb_plan *p; int node;
	char *life;
	/* [place] received by a zero-copy message, so perhaps read in the sender's memory */
	bool *zero_copy;
	/* of offloaded data: [place] whether its copy out of the arena has begun, and whether it has ended;
	 * storing: [root] the number of such copies in flight */
	char *stored, *ended;
	int *storing;
	/* [place] version that was written into it; [root] version that is there now */
	int *written, *version;
	/* micro-batches summed: [update op] of its gradient; [first_moment[op] + k] of K-FAC's moment k */
	int *sum, *moment, *first_moment;
	/* [update op, or op in two halves] progress of its bucket; 0: it is in none */
	char *bucket;
	/* [update op] steps whose sum over replicas is complete; steps updated */
	int *reduced, *updated;
	bool averages;					/* buckets are of weights */
	/* [update op] of K-FAC: progress of the bucket of its factors */
	char *factors;
	/* [update op] progress of the bucket of its weight; 0: it is in none */
	char *weights;
	bool *preconditioned;				/* [update op] */
	/* [tensor] the place into which the weight was gathered last, + 1; 0: none */
	int *whole;
	/* steps whose squares are summed; whose global norm is known */
	int squared, normed;
	bool trusted;					/* K-FAC's trust region is computed */
	/* [tensor] asynchronous: weights updated on this node; else NULL */
	struct versions *of_weight;
};
/* live: updates so far; copy[]: the version in each copy, -1: none */
struct versions { const struct dlb_weight_copies *w; int live, *copy; };
enum { IN_BUCKET = 1, SUMMED, REDUCING, REDUCED };

static char *progress_of(struct dlb_lifetimes *l, enum dlb_sum_class cls)
{
	return cls == DLB_SUM_FACTOR ? l->factors : cls == DLB_SUM_WEIGHTS ? l->weights : l->bucket;
}

/* The micro-batch number of the place from which the instruction reads tensor t; m: its micro-batch in the
 * unrolled program. */
static int read_life(const struct dlb_lifetimes *l, const struct dlb_instr *in, int t, int m)
{
	return in->micro_batch < 0 ? m : dlb_instr_life(l->g, in, t, false);
}

/* The fault if output 0 of the instruction's op shares a place that its class does not allow; NULL: none. */
static const char *shares(const struct dlb_lifetimes *l, const struct dlb_instr *in,
			  const struct dlb_place *x, bool *overwrites)
{
	const struct dlb_graph *g = l->g->graph;
	const int op = in->op, m = x->micro_batch;
	const struct dlb_op *o = &g->op[op];
	bool view = dlb_graph_is_view(g, op);
	*overwrites = false;
	if (x->tensor != o->out[0])
		return x->of < 0 ? NULL : "shares the place of another tensor";
	if (view && (x->of != o->in[0] || x->of_m != read_life(l, in, x->of, m)))
		return "is a view that does not lie in what it is a view of";
	if (view || x->of < 0)
		return NULL;
	int root = dlb_program_root_place(&l->g->node[l->node], x->of, x->of_m);
	for (int k = 0; k < o->n_in; k++) {
		bool state = o->in[k] < 0 || dlb_tensor_is_state(&g->tensor[o->in[k]]);
		if (o->in[k] == x->of && x->of_m == read_life(l, in, x->of, m))
			*overwrites = dlb_graph_may_overwrite(g, op, k);
		else if (!state && dlb_program_root_place(&l->g->node[l->node], o->in[k],
							  read_life(l, in, o->in[k], m)) == root)
			return "overwrites an input that another input is a view of";
	}
	return *overwrites ? NULL : "overwrites what it must not";
}

/* The fault if an instruction reads a weight of this node and the version that it needs is neither in place
 * nor in a copy; NULL: none. */
static const char *has_version(struct dlb_lifetimes *l, int t, const struct dlb_instr *in)
{
	const struct versions *v = l->of_weight ? &l->of_weight[t] : NULL;
	int rule = l->g->staleness, want = in->iteration - in->version < 0 ? 0 : in->iteration - in->version;
	const int home = dlb_graph_home(l->g->graph, t);
	if (!l->g->async && in->verb == DLB_COMPUTE && in->what == DLB_RUN_OP && home >= 0 &&
	    l->updated[home])
		return "reads a weight after its update";
	if (!v || !v->w || in->what == DLB_RUN_UPDATE || rule == DLB_STALE_NONE)
		return NULL;
	if (rule == DLB_STALE_PREDICT)
		return in->verb != DLB_COMPUTE || l->g->graph->op[in->op].phase != DLB_FORWARD ||
				       v->live >= in->iteration ||
				       (v->w->n && v->copy[in->iteration % v->w->n] == in->iteration) ?
			       NULL :
			       "reads a weight that is not predicted";
	return v->live == want || (v->w->n && v->copy[want % v->w->n] == want) ?
		       NULL :
		       "reads a version of a weight that is not kept";
}

static const char *copy_weight(struct dlb_lifetimes *l, const struct dlb_instr *in)
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

/* The fault if an op reads divided weight t while it is not whole, or an update changes its share while it is
 * whole; NULL: none. */
static const char *is_whole(const struct dlb_lifetimes *l, int t, const struct dlb_instr *in)
{
	const bool is_far = dlb_program_weight_is_far(l->g, t);
	if (!is_far && (!l->g->replicated || !dlb_program_gathers(l->g, t)))
		return NULL;
	const int k = l->whole[t] - 1;
	if (!is_far && in->verb == DLB_COMPUTE && in->what == DLB_RUN_UPDATE)
		return k >= 0 && l->life[k] != FREED ? "updates a weight while it is whole" : NULL;
	return k < 0 || l->life[k] == OPEN ? "reads a weight that is not gathered yet" :
	       l->life[k] == WRITTEN       ? NULL :
					     "reads a weight whose gathered copy is freed";
}

static const char *readable(struct dlb_lifetimes *l, int t, const struct dlb_instr *in)
{
	int m = in->micro_batch < 0 ? dlb_unrolled(l->g->micro_batches / l->g->steps, in->iteration, 0) :
				      in->micro_batch;
	const struct dlb_tensor *x = &l->g->graph->tensor[t];
	bool once = x->kind == DLB_T_WEIGHT || x->kind == DLB_T_BUFFER;
	if (x->kind == DLB_T_CONSTANT ||
	    (once && l->p->placement[dlb_graph_home(l->g->graph, t)] == l->node)) {
		const char *why = is_whole(l, t, in);
		return why || !once ? why : has_version(l, t, in);
	}
	m = once ? -1 - in->iteration : read_life(l, in, t, m);
	int k = dlb_program_find_place(&l->g->node[l->node], t, m),
	    r = dlb_program_root_place(&l->g->node[l->node], t, m);
	if (k < 0 || r < 0)
		return "reads a tensor that has no place on this node";
	if (l->life[k] != WRITTEN)
		return "reads a tensor that is not written yet";
	if (l->written[k] != l->version[r])
		return "reads a tensor that was overwritten in place";
	return l->life[r] == WRITTEN ? NULL : "reads a tensor that is freed";
}

/* Whether update op's gradient of the step is in state: completely summed, and not yet overwritten by that of
 * a later step. */
static bool is_summed(const struct dlb_lifetimes *l, int op, int step)
{
	int M = l->g->micro_batches / l->g->steps, places = dlb_program_sum_places(&l->g->node[l->node], op);
	return l->sum[op] >= (step + 1) * M && l->sum[op] <= (step + places) * M;
}

/* Checks an op in two halves: its sums must be computed, summed over replicas, and read for the same
 * micro-batch, sum[op]. */
static const char *half(struct dlb_lifetimes *l, const struct dlb_instr *in)
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

/* Whether all second moments of the update's layer contain so many micro-batches. */
static bool moments_are(const struct dlb_lifetimes *l, int update, int n)
{
	for (int k = 0; k < dlb_kfac_moments(&l->g->graph->op[update]); k++)
		if (l->moment[l->first_moment[update] + k] != n)
			return false;
	return true;
}

/* The sums of the layer's gradients and second moments must be complete, over replicas too. */
static const char *precondition(struct dlb_lifetimes *l, const struct dlb_instr *in)
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
	if (!moments_are(l, in->op, M))
		return "preconditions before the second moments are summed";
	return l->factors[in->op] && l->factors[in->op] != REDUCED ?
		       "preconditions before the factors are summed over the replicas" :
		       NULL;
}

/* COMPUTE `in` writes tensor t into its place of micro-batch number m. */
static const char *writes(struct dlb_lifetimes *l, const struct dlb_instr *in, int t, int m)
{
	const struct dlb_node_program *np = &l->g->node[l->node];
	const int k = dlb_program_find_place(np, t, m);
	bool overwrites = false;
	if (k < 0 || l->life[k] != UNUSED)
		return "writes a tensor that has no place or is written already";
	const char *bad = shares(l, in, &np->place[k], &overwrites);
	if (bad)
		return bad;
	const int r = dlb_program_root_place(np, np->place[k].tensor, np->place[k].micro_batch);
	if (r < 0 || (r != k && l->life[r] != WRITTEN))
		return "writes into a place that is not alive";
	if (overwrites && l->zero_copy[r])
		return "writes over a zero-copy message";
	if (overwrites && l->storing[r])
		return "writes over what is being stored";
	l->life[k] = WRITTEN;
	l->written[k] = l->version[r] += overwrites;
	return NULL;
}

/* A second run: the op must have run before for the micro-batch, and must be allowed to run again. */
static const char *runs_again(const struct dlb_lifetimes *l, const struct dlb_instr *in)
{
	const struct dlb_graph *g = l->g->graph;
	const struct dlb_op *o = &g->op[in->op];
	if (!dlb_plan_runs_again(l->p, in->op) || in->what != DLB_RUN_OP || l->g->depth ||
	    dlb_plan_keeps_op(l->g->whole, g, in->op))
		return "runs again, which is not in the plan or cannot be";
	for (int i = 0; i < o->n_out; i++) {
		int k = o->out[i] < 0 ?
				-1 :
				dlb_program_find_place(&l->g->node[l->node], o->out[i], in->micro_batch);
		if (k >= 0 && l->life[k] != WRITTEN && l->life[k] != FREED)
			return "runs again before it has run";
	}
	return NULL;
}

/* The place of this replica's share of the gradient of update op. */
static int share_place(const struct dlb_lifetimes *l, int op)
{
	return dlb_program_find_place(&l->g->node[l->node], dlb_update_gradient(l->g->graph, op),
				      dlb_second_life(l->g, 0));
}

/* The place in the arena of the offloaded optimizer states of weight t; -1: none. */
static int near_place(const struct dlb_lifetimes *l, int t)
{
	return t >= 0 && dlb_program_is_offloaded(l->g, t) ?
		       dlb_program_find_place(&l->g->node[l->node], t, dlb_second_life(l->g, 0)) :
		       -1;
}

/* An update reads and writes its offloaded states in the arena: they must be fetched. */
static const char *updates_states(struct dlb_lifetimes *l, int op)
{
	const int t = dlb_update_weight(l->g->graph, op), k = near_place(l, t);
	if (t < 0 || !dlb_program_is_offloaded(l->g, t))
		return NULL;
	if (k < 0 || l->life[k] != WRITTEN)
		return "updates with states that are not fetched";
	l->life[k] = UPDATED;
	return NULL;
}

/* Checks the start or the end of a gather or fetch of weight t into place k: it must be into a place of its
 * own, once, and before the weight's update. */
static const char *whole_at(struct dlb_lifetimes *l, int t, int k, bool start)
{
	const int home = dlb_graph_home(l->g->graph, t);
	if (!dlb_program_gathers(l->g, t) || k < 0)
		return "gathers a weight that is whole, or has no place";
	if (l->life[k] != (start ? UNUSED : OPEN))
		return start ? "gathers into a place that is taken" : "is waited for before it starts";
	if (l->whole[t] && start && l->life[l->whole[t] - 1] != FREED)
		return "gathers a weight that is whole already";
	if (home >= 0 && l->updated[home])
		return "gathers a weight after its update";
	l->life[k] = start ? OPEN : WRITTEN;
	l->whole[t] = k + 1;
	return NULL;
}

static bool is_updated(const struct dlb_lifetimes *l, int t)
{
	const int home = dlb_graph_home(l->g->graph, t);
	return home >= 0 && l->updated[home];
}

/* Whether the instruction copies an offloaded weight, not its states. */
static bool copies_weight(const struct dlb_lifetimes *l, const struct dlb_instr *in)
{
	return !in->again && dlb_program_weight_is_far(l->g, in->tensor);
}

/* FETCH of a weight, of states, or of an activation, whose first life must have been stored. */
static const char *fetch(struct dlb_lifetimes *l, const struct dlb_instr *in, int k)
{
	const int first = dlb_program_find_place(&l->g->node[l->node], in->tensor, in->micro_batch);
	const bool keeps = dlb_plan_keeps_far(l->p, l->g->graph, in->tensor);
	if (copies_weight(l, in))
		return whole_at(l, in->tensor, k, true);
	if (k < 0 || l->life[k] != UNUSED || (keeps ? !in->again : k != near_place(l, in->tensor)))
		return "fetches what is not offloaded, has no place near or is fetched already";
	if (keeps && (first < 0 || !l->ended[first]))
		return "fetches what is not stored yet";
	l->life[k] = OPEN;
	return NULL;
}

static const char *store(struct dlb_lifetimes *l, const struct dlb_instr *in, int k)
{
	const bool keeps = dlb_plan_keeps_far(l->p, l->g->graph, in->tensor), weight = copies_weight(l, in);
	const int r = k < 0 ? -1 :
			      dlb_program_root_place(&l->g->node[l->node], in->tensor,
						     l->g->node[l->node].place[k].micro_batch);
	if (r < 0 || l->stored[k] || (!weight && (keeps ? in->again : k != near_place(l, in->tensor))))
		return "stores what is not offloaded, has no place or is stored already";
	if (weight && (l->life[k] != WRITTEN || !is_updated(l, in->tensor)))
		return "stores a weight that is not updated";
	if (!weight && !keeps && l->life[k] != UPDATED)
		return "stores states that are not updated";
	const char *bad = keeps ? readable(l, in->tensor, in) : NULL;
	if (bad)
		return bad;
	l->life[k] = weight || keeps ? WRITTEN : KEPT;
	l->stored[k] = 1;
	l->storing[r]++;
	return NULL;
}

static const char *stored(struct dlb_lifetimes *l, const struct dlb_instr *in, int k)
{
	if (k < 0 || !l->stored[k] || l->ended[k])
		return "waits for the end of a copy that has not begun or has ended";
	l->ended[k] = 1;
	l->storing[dlb_program_root_place(&l->g->node[l->node], in->tensor,
					  l->g->node[l->node].place[k].micro_batch)]--;
	return NULL;
}

static const char *compute(struct dlb_lifetimes *l, const struct dlb_instr *in)
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
		int moment = dlb_kfac_moment_of(g, in->op, in->tensor);
		int *sum = moment < 0 ? &l->sum[in->op] : &l->moment[l->first_moment[in->op] + moment];
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
	if (in->again)
		bad = runs_again(l, in);
	if (in->what == DLB_RUN_UPDATE && l->updated[in->op] != in->iteration)
		bad = "updates a second time, or not for each step";
	else if (in->what == DLB_RUN_UPDATE)
		bad = updates_states(l, in->op);
	for (int i = 0; i < o->n_in && !bad; i++) {
		int t = o->in[i];
		if (t >= 0 && in->again && dlb_op_updates_input(g, in->op, i)) {
			bad = writes(l, in, t, dlb_instr_life(l->g, in, t, false));
			continue;
		}
		/* training data were summed into a factor before */
		if (t < 0 || (dlb_kfac_operand(o, i) && dlb_tensor_is_fed(&g->tensor[t])))
			continue;
		bool gradient = in->what == DLB_RUN_UPDATE && g->tensor[t].producer >= 0;
		if (gradient &&
		    ((l->averages && l->bucket[in->op] > IN_BUCKET) || l->weights[in->op] > IN_BUCKET))
			bad = "updates a weight that is being averaged or gathered";
		else if (gradient && !l->averages && l->bucket[in->op] && l->reduced[in->op] <= in->iteration)
			bad = "updates before the gradient is summed over the replicas";
		else if (gradient && dlb_program_sums(l->g, in->op))
			bad = !is_summed(l, in->op, in->iteration) ? "updates before the gradient is summed" :
			      dlb_kfac_layer_of(g, in->op) < 0     ? NULL :
			      !l->preconditioned[in->op] ? "updates before the gradient is preconditioned" :
			      !l->trusted                ? "updates before the trust region is known" :
							   NULL;
		else if (!gradient || !dlb_program_leaves(l->g, in->op))
			bad = readable(l, t, in);
		else if (dlb_program_has_share_place(l->g, in->op) &&
			 l->life[share_place(l, in->op)] != WRITTEN)
			bad = "updates with a share that is not kept";
		if (!bad && in->what == DLB_RUN_UPDATE && l->of_weight && l->of_weight[t].w)
			bad = l->of_weight[t].live++ == in->iteration ? NULL : "updates out of order";
	}
	l->updated[in->op] += in->what == DLB_RUN_UPDATE;
	for (int i = 0; i < o->n_out && !bad && in->what != DLB_RUN_SUMS; i++)
		if (o->out[i] >= 0)
			bad = writes(l, in, o->out[i],
				     in->micro_batch < 0 ? first : dlb_instr_life(l->g, in, o->out[i], true));
	return bad;
}

/* The fault if the bucket's sum starts, or is complete, too early or too late for the gradient of op; NULL:
 * none. */
static const char *summand(struct dlb_lifetimes *l, const struct dlb_instr *in, const struct dlb_bucket *b,
			   int op)
{
	const enum dlb_sum_class cls = b->cls;
	const bool start = in->what == DLB_RUN_REDUCE;
	struct dlb_instr first = *in;
	first.micro_batch = 0;
	if (cls == DLB_SUM_STATISTICS)
		return l->sum[op] == in->micro_batch ? NULL : "is of another micro-batch than its sums";
	if (l->averages || cls == DLB_SUM_WEIGHTS)
		return start && !l->updated[op] ? "starts before its weights are updated" : NULL;
	if (dlb_program_sums(l->g, op))
		return start && !is_summed(l, op, in->iteration) ? "starts before its gradients are there" :
								   NULL;
	if (!start && !dlb_program_has_share_place(l->g, op))
		return NULL;
	return !readable(l, dlb_update_gradient(l->g->graph, op), &first) ?
		       NULL :
	       start ? "starts before its gradients are there" :
		       "is complete after its gradients' places are free";
}

/* Checks the start or the end of a gather ahead of use. */
static const char *gather(struct dlb_lifetimes *l, const struct dlb_instr *in, const struct dlb_bucket *b)
{
	return whole_at(l, b->weight, dlb_program_find_place(&l->g->node[l->node], b->weight, b->life),
			in->what == DLB_RUN_REDUCE);
}

/* Whether all weights of bucket `of` are updated. Weights are gathered in the buffer that may keep shares of
 * this bucket's gradients until their updates. */
static bool all_updated(const struct dlb_lifetimes *l, const struct dlb_bucket *of)
{
	for (int i = 0; i < of->n_ops; i++)
		if (!l->updated[of->op[i]])
			return false;
	return true;
}

/* When a bucket starts, every gradient in it must be summed (of weights: every weight updated). A bucket must
 * start before it is waited for. */
static const char *collective(struct dlb_lifetimes *l, const struct dlb_instr *in)
{
	const struct dlb_node_program *np = &l->g->node[l->node];
	if (in->what != DLB_RUN_REDUCE && in->what != DLB_RUN_REDUCED)
		return NULL;
	if (in->tag < 0 || in->tag >= np->n_buckets)
		return "there is no such bucket";
	if (np->bucket[in->tag].ahead)
		return gather(l, in, &np->bucket[in->tag]);
	const enum dlb_sum_class cls = np->bucket[in->tag].cls;
	if (cls == DLB_SUM_WEIGHTS && in->what == DLB_RUN_REDUCE &&
	    !all_updated(l, &np->bucket[np->bucket[in->tag].of]))
		return "starts before its weights are updated";
	bool statistics = cls == DLB_SUM_STATISTICS, factors = cls == DLB_SUM_FACTOR;
	for (int i = 0; i < np->bucket[in->tag].n_ops; i++) {
		int op = np->bucket[in->tag].op[i];
		bool start = in->what == DLB_RUN_REDUCE;
		const char *bad = summand(l, in, &np->bucket[in->tag], op);
		if (bad)
			return bad;
		/* the next group of the same layer */
		if (factors && i && np->bucket[in->tag].op[i - 1] == op)
			continue;
		if (start && factors && !moments_are(l, op, l->g->micro_batches))
			return "starts before its factors are there";
		char *state = &progress_of(l, cls)[op];
		if (*state == REDUCED && l->g->depth && l->reduced[op] == in->iteration)
			*state = IN_BUCKET;		/* REDUCED was of the previous step */
		if (*state != (!start ? REDUCING : statistics ? SUMMED : IN_BUCKET))
			return start ? "starts twice" : "is waited for before it starts";
		*state = start ? REDUCING : REDUCED;
		l->reduced[op] += !start && !factors && cls != DLB_SUM_WEIGHTS;
		if (start || cls == DLB_SUM_WEIGHTS || statistics || !dlb_program_has_share_place(l->g, op))
			continue;
		int k = share_place(l, op);
		if (k < 0 || l->life[k] != UNUSED)
			return "keeps a share that has no place or is kept already";
		l->life[k] = WRITTEN;
	}
	return NULL;
}

/* When the trust region is computed, every layer of the node must be preconditioned. */
static const char *trust(struct dlb_lifetimes *l)
{
	const struct dlb_graph *g = l->g->graph;
	if (l->trusted)
		return "the trust region is taken twice";
	l->trusted = true;
	for (int op = 0; op < g->n_ops; op++)
		if (l->p->placement[op] == l->node && dlb_kfac_layer_of(g, op) == op &&
		    !l->preconditioned[op])
			return "takes the trust region before a gradient is preconditioned";
	return NULL;
}

/* When the norm is computed, every gradient of the node's updates must be complete, in state or in its
 * place. */
static const char *norm(struct dlb_lifetimes *l, const struct dlb_instr *in)
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
				bad = "the global norm is taken before a gradient is summed over the "
				      "replicas";
			else if (!dlb_program_sums(l->g, op) && !dlb_program_leaves(l->g, op))
				bad = readable(l, o->in[i],
					       &(const struct dlb_instr){ .verb = DLB_COLLECTIVE, .op = -1 });
		}
	}
	return bad;
}

static const char *live(struct dlb_lifetimes *l, const struct dlb_instr *in)
{
	const struct dlb_node_program *np = &l->g->node[l->node];
	int k = in->tensor >= 0 && in->verb != DLB_COMPUTE ?
			dlb_program_find_place(np, in->tensor,
					       in->again ? dlb_second_life(l->g, in->micro_batch) :
							   in->micro_batch) :
			-1;
	switch (in->verb) {
	case DLB_POST:
	case DLB_COPY:
		if (k < 0 || l->life[k] != UNUSED)
			return "opens a place that does not exist or is taken";
		l->life[k] = in->verb == DLB_POST ? OPEN : WRITTEN;
		return NULL;
	case DLB_FETCH:
		return fetch(l, in, k);
	case DLB_FETCHED:
		if (k < 0 || l->life[k] != OPEN)
			return "waits for the end of a copy that has not begun or has ended";
		l->life[k] = WRITTEN;
		return NULL;
	case DLB_STORE:
		return store(l, in, k);
	case DLB_STORED:
		return stored(l, in, k);
	case DLB_WAIT:
		if (in->sent)
			return readable(l, in->tensor, in);
		if (k < 0 || l->life[k] != OPEN)
			return "waits for a message that is not posted";
		l->life[k] = WRITTEN;
		l->zero_copy[k] = in->zero_copy;
		return NULL;
	case DLB_SEND:
		return readable(l, in->tensor, in);
	case DLB_FREE:
		if (k < 0 || l->life[k] != (k == near_place(l, in->tensor) ? KEPT : WRITTEN))
			return "frees what is not alive, or states that are not stored";
		if (l->storing[k])
			return "frees what is being stored";
		if (copies_weight(l, in) && is_updated(l, in->tensor) && !l->ended[k])
			return "frees a weight that is updated and not stored";
		if (l->zero_copy[k] != in->zero_copy)
			return "returns a message that is not zero-copy, or keeps one that is";
		l->life[k] = FREED;
		return NULL;
	case DLB_COMPUTE:
		return compute(l, in);
	case DLB_COLLECTIVE:
		return in->what == DLB_RUN_NORM || in->what == DLB_RUN_SQUARES ? norm(l, in) :
		       in->what == DLB_RUN_TRUST                               ? trust(l) :
										 collective(l, in);
	default:
		return NULL;
	}
}

static void watch_versions(struct dlb_lifetimes *l)
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

struct dlb_lifetimes *dlb_lifetimes_new(const struct dlb_graph *g)
{
	struct dlb_lifetimes *l = dlb_xcalloc(1, sizeof *l);
	size_t n = (size_t)g->n_ops + 1;
	l->sum = dlb_xcalloc(n, sizeof *l->sum);
	l->bucket = dlb_xcalloc(n, sizeof *l->bucket);
	l->reduced = dlb_xcalloc(n, sizeof *l->reduced);
	l->updated = dlb_xcalloc(n, sizeof *l->updated);
	l->first_moment = dlb_xcalloc(n, sizeof *l->first_moment);
	for (int i = 0; i < g->n_ops; i++)
		l->first_moment[i + 1] = l->first_moment[i] + dlb_kfac_moments(&g->op[i]);
	l->moment = dlb_xcalloc((size_t)l->first_moment[g->n_ops] + 1, sizeof *l->moment);
	l->factors = dlb_xcalloc(n, sizeof *l->factors);
	l->weights = dlb_xcalloc(n, sizeof *l->weights);
	l->preconditioned = dlb_xcalloc(n, sizeof *l->preconditioned);
	l->whole = dlb_xcalloc((size_t)g->n_tensors + 1, sizeof *l->whole);
	return l;
}

void dlb_lifetimes_free(struct dlb_lifetimes *l)
{
	free(l->sum);
	free(l->bucket);
	free(l->reduced);
	free(l->updated);
	free(l->first_moment);
	free(l->moment);
	free(l->factors);
	free(l->weights);
	free(l->preconditioned);
	free(l->whole);
	free(l);
}

static void begin(struct dlb_lifetimes *l, const struct dlb_program *g, int node)
{
	const struct dlb_node_program *np = &g->node[node];
	size_t n = (size_t)np->n_places + 1;
	l->g = g;
	l->p = g->plan;
	l->node = node;
	l->life = dlb_xcalloc(n, sizeof *l->life);
	l->zero_copy = dlb_xcalloc(n, sizeof *l->zero_copy);
	l->stored = dlb_xcalloc(n, sizeof *l->stored);
	l->ended = dlb_xcalloc(n, sizeof *l->ended);
	l->storing = dlb_xcalloc(n, sizeof *l->storing);
	l->written = dlb_xcalloc(n, sizeof *l->written);
	l->version = dlb_xcalloc(n, sizeof *l->version);
	l->averages = dlb_sharing_averages(&g->whole->sharing);
	for (int b = 0; b < np->n_buckets; b++)
		for (int i = 0; i < np->bucket[b].n_ops; i++)
			progress_of(l, np->bucket[b].cls)[np->bucket[b].op[i]] = IN_BUCKET;
	if (g->depth)
		watch_versions(l);
}

static void forget(struct dlb_lifetimes *l, int op)
{
	if (op < 0)
		return;
	l->sum[op] = l->reduced[op] = l->updated[op] = 0;
	l->bucket[op] = l->factors[op] = l->weights[op] = 0;
	l->preconditioned[op] = false;
	for (int k = l->first_moment[op]; k < l->first_moment[op + 1]; k++)
		l->moment[k] = 0;
}

/* Resets the entries that the node used: those of its instructions' ops, its buckets and its preconditioned
 * layers. */
static void end(struct dlb_lifetimes *l)
{
	const struct dlb_node_program *np = &l->g->node[l->node];
	for (int i = 0; i < np->n_instr; i++) {
		forget(l, np->instr[i].op);
		if (np->instr[i].verb != DLB_COMPUTE || np->instr[i].what != DLB_RUN_PRECONDITION)
			continue;
		const struct dlb_kfac_layer layer = dlb_kfac_layer_at(l->g->graph, np->instr[i].op);
		forget(l, layer.update);
		forget(l, layer.bias_update);
	}
	for (int b = 0; b < np->n_buckets; b++)
		for (int i = 0; i < np->bucket[b].n_ops; i++)
			forget(l, np->bucket[b].op[i]);
	for (int k = 0; k < np->n_places; k++)
		l->whole[np->place[k].tensor] = 0;
	free(l->life);
	free(l->zero_copy);
	free(l->stored);
	free(l->ended);
	free(l->storing);
	free(l->written);
	free(l->version);
	for (int k = 0; l->of_weight && k < np->n_weights; k++)
		free(l->of_weight[np->weight[k].tensor].copy);
	free(l->of_weight);
	l->of_weight = NULL;
	l->squared = l->normed = 0;
	l->trusted = false;
}

/* The first op of a bucket that was not waited for; n_ops: none. */
static int left_in_bucket(const struct dlb_lifetimes *l)
{
	const struct dlb_graph *g = l->g->graph;
	const struct dlb_node_program *np = &l->g->node[l->node];
	int first = g->n_ops;
	for (int b = 0; b < np->n_buckets; b++) {
		for (int i = 0; i < np->bucket[b].n_ops; i++) {
			int op = np->bucket[b].op[i],
			    done = g->op[op].phase == DLB_UPDATE ? REDUCED : IN_BUCKET;
			if (op < first && ((l->factors[op] && l->factors[op] != REDUCED) ||
					   (l->weights[op] && l->weights[op] != REDUCED) ||
					   (l->bucket[op] && l->bucket[op] != done)))
				first = op;
		}
	}
	return first;
}

/* The first update of the node that does not run in every step; n_ops: none. */
static int left_out(const struct dlb_lifetimes *l)
{
	const struct dlb_graph *g = l->g->graph;
	int op = 0;
	while (op < g->n_ops && (g->op[op].phase != DLB_UPDATE || l->p->placement[op] != l->node ||
				 l->updated[op] == l->g->steps))
		op++;
	return op;
}

static int prove(struct dlb_lifetimes *l, struct dlb_error *err)
{
	const struct dlb_program *g = l->g;
	const struct dlb_node_program *np = &g->node[l->node];
	int node = l->node, ends = 0;
	for (int i = 0; i < np->n_instr; i++) {
		const char *bad = ends == g->steps && np->instr[i].verb != DLB_FREE ?
					  "comes after the end of the step" :
					  live(l, &np->instr[i]);
		if (bad)
			return dlb_verify_fault(g, node, i, err, bad);
		ends += np->instr[i].verb == DLB_COLLECTIVE && np->instr[i].what == DLB_RUN_STEP_END;
	}
	if (g->plan->clip && l->normed != g->steps)
		return dlb_fail(err, NULL, "program of node %d: the global norm is never taken", node);
	if (ends != g->steps)
		return dlb_fail(err, NULL, "program of node %d: the step has no end", node);
	int op = left_out(l);
	if (op < g->graph->n_ops)
		return dlb_fail(err, NULL, "program of node %d: op %d '%s' does not update in each step",
				node, op, g->graph->op[op].name);
	op = left_in_bucket(l);
	if (op < g->graph->n_ops)
		return dlb_fail(err, NULL,
				"program of node %d: the bucket of %sop %d '%s' is never waited for", node,
				l->factors[op] && l->factors[op] != REDUCED ? "the factors of " : "", op,
				g->graph->op[op].name);
	for (int k = 0; k < np->n_places; k++) {
		int r = dlb_program_root_place(np, np->place[k].tensor, np->place[k].micro_batch);
		if (r < 0 || l->life[r] != FREED)
			return dlb_fail(err, NULL,
					"program of node %d: tensor %d '%s' of micro-batch %d is never freed",
					node, np->place[k].tensor, g->graph->tensor[np->place[k].tensor].name,
					np->place[k].micro_batch);
	}
	return 0;
}

int dlb_verify_lifetimes(struct dlb_lifetimes *l, const struct dlb_program *g, int node,
			 struct dlb_error *err)
{
	begin(l, g, node);
	int rc = prove(l, err);
	end(l);
	return rc;
}
