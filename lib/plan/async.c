/* Asynchronous schedules: steps follow one another without a flush, and several steps are in flight.
 *
 * This is software pipelining (modulo scheduling: Rau, "Iterative modulo scheduling", MICRO 1994) of the
 * loop over steps. Time is divided into half-slots. Each op has a lag: the greatest of its inputs' lags,
 * plus one for an input from another node, plus one where a backward op follows a forward op of its node.
 * Micro-batch m of step s runs in half-slot 2 (s M + m) + lag. So in every two half-slots each node runs one
 * micro-batch forward and another one backward. The stage on node k of p has the lags k and 2 (p - 1) - k +
 * 1, the steady state of 1F1B:
 *
 *     half-slot   0    1    2    3    4    5    6    7   ...            M = 2: the letter is the micro-batch, the
 *     node 0     F0        F1   B0   F0'  B1   F1'  B0'                 dash its step
 *     node 1          F0   B0   F1   B1   F0'  B0'  F1'
 *
 * An iteration of the loop is 2 M half-slots. An item in half-slot H of a step runs in half-slot H mod 2 M of
 * the loop, for the step that began H / 2 M iterations ago (dlb_instr.iteration). The first iterations skip
 * items of steps before the first step, and the last iterations skip items of steps after the last step: this
 * fills and drains the pipeline. The program's depth is the most iterations over which a step is spread, less
 * one.
 *
 * Weights (w(s): the weights after the updates of all steps before s; the update of s turns w(s) into w(s +
 * 1)):
 *
 *     none      reads the newest weights: forward w(s - d), backward w(s). The plain delayed gradient.
 *     stash     the backward of a micro-batch reads the weights that its forward read:
 *               w(t+1) = w(t) - lr grad f(w_0(t-n+1), ..., w_{n-1}(t))                 (PipeDream, SOSP 2019)
 *     2bw       all of step s reads w(s - 1):  w(t+1) = w(t) - lr grad f(w(t-1))      (PipeDream-2BW, ICML 2021).
 *               Two versions suffice if w(s - 1) is ready when step s begins: with about as many micro-batches
 *               as stages.
 *     predict   forward reads a prediction of w(s): w(s - d) moved d steps along the optimizer's smoothed
 *               gradient;
 *               backward reads w(s) itself        (SpecTrain, Chen et al. 2018; for Adam: XPipe, Guan et al. 2019)
 *
 * Clipping by the global norm: the update of step s is lr min(1, c / |g(s)|) g(s), where g(s) are the
 * gradients of all nodes for step s. So updates follow the last gradient. If it is summed in half-slot L, the
 * nodes add up their squares at the end of L, and all updates of the step are in half-slot L + 1, while the
 * sum of squares is sent (in L if one node has all updates). On p nodes the last stage's updates come 2 p - 1
 * half-slots, or (p - 1/2) / M steps, later than without clipping, and the first stage's updates one
 * half-slot later. If the sum of a gradient is used after its sum for the next step begins, it has several
 * places.
 *
 * Old versions are copies: before the update of step s changes w(s), it stores w(s) in copy s mod n if an
 * item still reads it (DLB_RUN_KEEP). Predicted weights are copies too (DLB_RUN_PREDICT). */
#include <stdlib.h>
#include <string.h>
#include "plan/async.h"
#include "plan/flow.h"
#include "plan/tensors.h"

const char *const dlb_staleness_names[DLB_N_STALENESS] = {
	[DLB_STALE_DEFAULT] = "default", [DLB_STALE_NONE] = "none",       [DLB_STALE_STASH] = "stash",
	[DLB_STALE_2BW] = "2bw",         [DLB_STALE_PREDICT] = "predict",
};

int dlb_staleness_find(const char *name)
{
	for (int i = DLB_STALE_NONE; i < DLB_N_STALENESS; i++)
		if (!strcmp(dlb_staleness_names[i], name))
			return i;
	return -1;
}

/* ---- lags ---- */

static bool read_from_afar(const struct dlb_flow *f, int op)
{
	const struct dlb_graph *g = f->g;
	for (int i = 0; i < g->op[op].n_in; i++) {
		int t = g->op[op].in[i], home;
		if (t < 0 || (g->tensor[t].kind != DLB_T_WEIGHT && g->tensor[t].kind != DLB_T_BUFFER))
			continue;
		home = dlb_graph_home(g, t);
		if (home >= 0 && f->placement[home] != f->placement[op])
			return true;
	}
	return false;
}

/* The lag between op `to` and op `from`, which it reads from. */
static int step_from(const struct dlb_flow *f, int from, int to)
{
	if (f->placement[from] != f->placement[to])
		return 1;
	return f->g->op[from].phase == DLB_FORWARD && f->g->op[to].phase == DLB_BACKWARD;
}

static int producer(const struct dlb_flow *f, int op, int input)
{
	int t = f->g->op[op].in[input];
	return t < 0 || dlb_tensor_is_state(&f->g->tensor[t]) ? -1 : f->g->tensor[t].producer;
}

/* Delays ops without computed inputs (masks, positions) to their first reader. */
static void delay_sources(const struct dlb_flow *f, int *lag)
{
	const struct dlb_graph *g = f->g;
	for (int i = g->n_ops - 1; i >= 0; i--) {
		int least = -1;
		bool source = g->op[i].phase == DLB_FORWARD;
		for (int k = 0; k < g->op[i].n_in; k++)
			source &= producer(f, i, k) < 0;
		for (int k = f->succ_start[i]; source && k < f->succ_start[i + 1]; k++) {
			int late = g->op[f->succ[k]].phase == DLB_UPDATE ?
					   lag[i] :
					   lag[f->succ[k]] - step_from(f, i, f->succ[k]);
			if (least < 0 || late < least)
				least = late;
		}
		if (least > lag[i])
			lag[i] = least;
	}
}

/* Puts updates that wait for the norm of all gradients into the half-slot after that of the last gradient. */
static void wait_for_norm(const struct dlb_flow *f, int *lag)
{
	int last = 0, node = -1;
	bool several = false;
	for (int i = 0; i < f->g->n_ops; i++) {
		if (f->g->op[i].phase != DLB_UPDATE)
			continue;
		last = lag[i] > last ? lag[i] : last;
		several |= node >= 0 && f->placement[i] != node;
		node = f->placement[i];
	}
	for (int i = 0; i < f->g->n_ops; i++)
		if (f->g->op[i].phase == DLB_UPDATE)
			lag[i] = last + several;
}

int *dlb_async_lags(const struct dlb_flow *f, bool clip)
{
	const struct dlb_graph *g = f->g;
	int *lag = dlb_xcalloc((size_t)g->n_ops + 1, sizeof(int));
	for (int i = 0; i < g->n_ops; i++) {
		lag[i] = read_from_afar(f, i);		/* weights arrive in the half-slot before */
		for (int k = 0; k <= g->op[i].n_in; k++) {
			int from = k < g->op[i].n_in              ? producer(f, i, k) :
				   g->op[i].phase == DLB_BACKWARD ? g->op[i].of :
								    -1;
			if (from >= 0 && lag[from] + step_from(f, from, i) > lag[i])
				lag[i] = lag[from] + step_from(f, from, i);
		}
	}
	delay_sources(f, lag);
	if (clip)
		wait_for_norm(f, lag);
	return lag;
}

/* ---- the order ---- */

struct timed { int half_slot; struct dlb_item item; };
static int by_time(const void *a, const void *b)
{
	const struct timed *x = a, *y = b;
	return x->half_slot != y->half_slot ? (x->half_slot > y->half_slot) - (x->half_slot < y->half_slot) :
		(x->item.op > y->item.op) - (x->item.op < y->item.op);
}

double dlb_async_order(struct dlb_plan *p, const struct dlb_cost *c, const double *node_scale)
{
	struct dlb_flow f;
	double most = 0;
	dlb_flow_init(&f, p, c, p->batch);
	int *lag = dlb_async_lags(&f, p->clip), *n = dlb_xcalloc((size_t)p->n_nodes, sizeof(int));
	struct timed **list = dlb_xcalloc((size_t)p->n_nodes, sizeof *list);
	double *busy = dlb_xcalloc((size_t)p->n_nodes, sizeof *busy);
	for (int i = 0; i < f.g->n_ops; i++)
		n[p->placement[i]] += dlb_flow_items(&f, i);
	for (int d = 0; d < p->n_nodes; d++) {
		list[d] = dlb_xcalloc((size_t)n[d] + 1, sizeof **list);
		n[d] = 0;
	}
	for (int i = 0; i < f.g->n_ops; i++) {
		int d = p->placement[i];
		bool update = f.g->op[i].phase == DLB_UPDATE;
		for (int m = 0; m < dlb_flow_items(&f, i); m++) {
			list[d][n[d]++] = (struct timed){ 2 * (update ? f.M - 1 : m) + lag[i],
							  { i, update ? -1 : m } };
			busy[d] += dlb_flow_s(&f, i, m) * (node_scale ? node_scale[d] : 1);
		}
	}
	for (int d = 0; d < p->n_nodes; d++) {
		struct dlb_node_plan *np = &p->node[d];
		qsort(list[d], (size_t)n[d], sizeof **list, by_time);
		np->order = dlb_arena_array(&p->arena, (size_t)n[d] + 1, sizeof *np->order);
		np->n_order = n[d];
		for (int i = 0; i < n[d]; i++)
			np->order[i] = list[d][i].item;
		most = busy[d] > most ? busy[d] : most;
		free(list[d]);
	}
	free(list);
	free(lag);
	free(n);
	free(busy);
	dlb_flow_release(&f);
	return most;
}

/* ---- versions ---- */

struct reads {
	const struct dlb_flow *f;
	struct dlb_async_node *node; int n_nodes;
	int *weight_of, *update_of;		/* [tensor], [op]: index in its node's list; -1: none */
	int *version_of;			/* [op * M + m] version that a forward op reads */
};

/* The number of updates by which the newest weights are behind item i's step when item i runs. An item runs
 * `offset` iterations after the first iteration of its step; at equal offsets, the order in an iteration
 * decides. */
static int behind(const struct dlb_async_node *l, int i, int update)
{
	return l->item[update].offset - l->item[i].offset - (i > update);
}

/* Finds the next weight that item i reads, from `input` on: *weight is its index in l->weight. Returns the
 * input to continue with; -1: there is no further weight. */
static int next_read(const struct reads *r, const struct dlb_async_node *l, int i, int input, int *weight)
{
	const struct dlb_async_item *x = &l->item[i];
	const struct dlb_op *o = x->op < 0 ? NULL : &r->f->g->op[x->op];
	if (o && o->phase == DLB_UPDATE)
		return -1;
	for (int k = input; k < (o ? o->n_in : 1); k++) {
		int t = o ? o->in[k] : x->tensor;
		if (t < 0 || r->weight_of[t] < 0 || r->f->placement[dlb_graph_home(r->f->g, t)] != l->node)
			continue;
		*weight = r->weight_of[t];
		return k + 1;
	}
	return -1;
}

static void find_weights(struct reads *r)
{
	const struct dlb_graph *g = r->f->g;
	for (int d = 0; d < r->n_nodes; d++) {
		struct dlb_async_node *l = &r->node[d];
		for (int i = 0; i < l->n; i++)
			if (l->item[i].op >= 0 && g->op[l->item[i].op].phase == DLB_UPDATE)
				r->update_of[l->item[i].op] = i;
	}
	for (int t = 0; t < g->n_tensors; t++) {
		int home = g->tensor[t].kind == DLB_T_WEIGHT ? dlb_graph_home(g, t) : -1;
		r->weight_of[t] = -1;
		if (home < 0 || g->op[home].phase != DLB_UPDATE)
			continue;
		struct dlb_async_node *l = &r->node[r->f->placement[home]];
		r->weight_of[t] = l->n_weights;
		l->weight[l->n_weights++] = (struct dlb_weight_copies){
			.tensor = t, .update = home, .first = -1, .next = -1, .least = -1
		};
	}
}

/* Finds the facts that the rules need: the most updates by which the weights of an item are behind (*most, on
 * *most_node), a weight that is sent to another node (*afar; -1: none), and whether all sent weights are
 * behind by one update (*afar_by_one). */
static void survey(const struct reads *r, int *most, int *most_node, int *afar, bool *afar_by_one)
{
	*most = 0;
	*most_node = 0;
	*afar = -1;
	*afar_by_one = true;
	for (int d = 0; d < r->n_nodes; d++) {
		const struct dlb_async_node *l = &r->node[d];
		for (int i = 0; i < l->n; i++) {
			for (int k = 0, w; (k = next_read(r, l, i, k, &w)) >= 0;) {
				int b = behind(l, i, r->update_of[l->weight[w].update]);
				if (b > *most) {
					*most = b;
					*most_node = d;
				}
				if (l->item[i].op < 0) {
					*afar = l->weight[w].tensor;
					*afar_by_one &= b == 1;
				}
			}
		}
	}
}

static int choose(const struct reads *r, int n_state, enum dlb_staleness *rule, struct dlb_error *err)
{
	int most, node, afar;
	bool by_one;
	survey(r, &most, &node, &afar, &by_one);
	if (*rule == DLB_STALE_DEFAULT)
		*rule = most <= 1 && by_one ? DLB_STALE_2BW : DLB_STALE_STASH;
	if (*rule == DLB_STALE_2BW && most > 1) {
		dlb_fail(err, "/plan/staleness",
			 "2bw keeps two versions of the weights, node %d would read them %d updates late "
			 "with %d micro-batch%s",
			 node, most, r->f->M, r->f->M == 1 ? "" : "es");
		return dlb_hint(err, "try more --micro-batches (as many as stages), or --staleness stash");
	}
	if (*rule == DLB_STALE_2BW && !by_one)
		return dlb_fail(err, "/plan/staleness",
				"2bw: weight '%s' is read on nodes too far from its own; place its readers "
				"together, or use --staleness none",
				r->f->g->tensor[afar].name);
	if ((*rule == DLB_STALE_STASH || *rule == DLB_STALE_PREDICT) && afar >= 0)
		return dlb_fail(err, "/plan/staleness",
				"%s: weight '%s' is read on several nodes; place its readers together, or "
				"use --staleness 2bw or none",
				dlb_staleness_names[*rule], r->f->g->tensor[afar].name);
	if (*rule == DLB_STALE_PREDICT && !n_state)
		return dlb_fail(
			err, "/plan/staleness",
			"predict needs an optimizer that keeps a smoothed gradient: momentum, adam ...");
	return 0;
}

/* The version that item x has to read. late: updates by which the newest weights are behind. */
static int version_wanted(const struct reads *r, const struct dlb_async_item *x, enum dlb_staleness rule,
			  int late)
{
	const struct dlb_graph *g = r->f->g;
	int of = x->op >= 0 && g->op[x->op].phase == DLB_BACKWARD ? g->op[x->op].of : -1;
	if (rule == DLB_STALE_2BW)
		return 1;
	if (rule == DLB_STALE_STASH && of >= 0 && r->f->placement[of] == r->f->placement[x->op] &&
	    r->version_of[of * r->f->M + x->m] > late)
		return r->version_of[of * r->f->M + x->m];
	return late;
}

static void saw(struct dlb_weight_copies *w, int delay)
{
	if (delay < 0)
		delay = 0;
	if (w->least < 0 || delay < w->least)
		w->least = delay;
	if (delay > w->most)
		w->most = delay;
}

/* Records item i as a reader of predicted weights w. Weights are predicted before their first reader, in
 * order of time, and live until their last reader. */
static void add_predictions(struct dlb_async_node *l, struct dlb_weight_copies *w, int i, int late)
{
	struct dlb_async_item *x = &l->item[i];
	const struct dlb_async_item *first = w->first >= 0 ? &l->item[w->first] : NULL;
	if (!first || x->offset < first->offset || (x->offset == first->offset && i < w->first)) {
		w->first = i;
		w->distance = late;
	}
	if (w->last < 0 || x->offset > l->item[w->last].offset ||
	    (x->offset == l->item[w->last].offset && i > w->last))
		w->last = i;
}

static void find_versions(struct reads *r, struct dlb_async_node *l, enum dlb_staleness rule, bool backward)
{
	const struct dlb_graph *g = r->f->g;
	for (int i = 0; i < l->n; i++) {
		struct dlb_async_item *x = &l->item[i];
		int late = INT32_MIN;
		bool is_backward = x->op >= 0 && g->op[x->op].phase == DLB_BACKWARD;
		if (is_backward != backward)
			continue;
		for (int k = 0, w; (k = next_read(r, l, i, k, &w)) >= 0;) {
			int b = behind(l, i, r->update_of[l->weight[w].update]);
			late = b > late ? b : late;
		}
		if (late == INT32_MIN)
			continue;
		x->version = version_wanted(r, x, rule, late);
		if (x->op >= 0 && !backward)
			r->version_of[x->op * r->f->M + x->m] = x->version;
		for (int k = 0, j; (k = next_read(r, l, i, k, &j)) >= 0;) {
			struct dlb_weight_copies *w = &l->weight[j];
			int b = behind(l, i, r->update_of[w->update]), copies = x->version - b;
			bool kept = rule == DLB_STALE_STASH || rule == DLB_STALE_2BW;
			if (kept && copies > w->n)
				w->n = copies;
			if (rule == DLB_STALE_PREDICT && !backward && b > 0)
				add_predictions(l, w, i, b);
			if (!backward)
				saw(w, kept ? x->version : b);
		}
	}
}

int dlb_async_versions(const struct dlb_flow *f, struct dlb_async_node *node, int depth, int n_state,
		       enum dlb_staleness *rule, struct dlb_error *err)
{
	struct reads r = { .f = f, .node = node, .n_nodes = f->n_nodes };
	r.weight_of = dlb_xcalloc((size_t)f->g->n_tensors + 1, sizeof(int));
	r.update_of = dlb_xcalloc((size_t)f->g->n_ops + 1, sizeof(int));
	r.version_of = dlb_xcalloc((size_t)f->g->n_ops * (size_t)f->M + 1, sizeof(int));
	find_weights(&r);
	int rc = choose(&r, n_state, rule, err);
	for (int d = 0; d < f->n_nodes && rc == 0; d++) {
		struct dlb_async_node *l = &node[d];
		for (int j = 0; j < l->n_weights; j++)
			l->weight[j].last = -1;
		/* forward first, because backward ops look up the version that their forward ops read */
		for (int backward = 0; backward < 2 && depth; backward++)
			find_versions(&r, l, *rule, backward);
		for (int j = 0; j < l->n_weights; j++) {
			struct dlb_weight_copies *w = &l->weight[j];
			w->least = w->least < 0 ? 0 : w->least;
			if (w->first >= 0) {
				const struct dlb_async_item *a = &l->item[w->first], *b = &l->item[w->last];
				w->n = b->offset - a->offset + (w->last >= w->first);
				w->next = l->item[w->first].predict;
				l->item[w->first].predict = j;
			} else if (w->n > 0) {
				l->item[r.update_of[w->update]].keep = true;
			}
		}
	}
	free(r.weight_of);
	free(r.update_of);
	free(r.version_of);
	return rc;
}

/* ---- several steps, unrolled ---- */

/* Unrolls one node: iteration by iteration, emits the instructions of steps that exist. */
static void unroll_node(const struct dlb_program *g, const struct dlb_node_program *np, int steps,
			struct dlb_program *out, struct dlb_node_program *to)
{
	int n = np->n_instr, iterations = steps + g->depth, M = g->micro_batches;
	int *at = dlb_xcalloc((size_t)iterations * (size_t)n + 1, sizeof(int));
	*to = *np;
	to->instr = dlb_arena_array(&out->arena, (size_t)steps * (size_t)n + 1, sizeof *to->instr);
	to->place = dlb_arena_array(&out->arena, (size_t)steps * (size_t)np->n_places + 1, sizeof *to->place);
	to->n_instr = to->n_places = 0;
	for (int i = 0; i < iterations; i++) {
		for (int k = 0; k < n; k++) {
			struct dlb_instr x = np->instr[k];
			int step = i - x.iteration;
			at[i * n + k] = to->n_instr;
			if (step < 0 || step >= steps)
				continue;
			x.micro_batch = dlb_unrolled(M, step, x.micro_batch);
			x.iteration = step;
			if (x.tag >= 0 && x.verb != DLB_COLLECTIVE)	/* a collective's tag is a bucket */
				x.tag += step * g->n_messages;
			to->instr[to->n_instr++] = x;
		}
	}
	to->n_loop = to->n_instr;
	for (int from = 0, end; from < np->n_places; from = end) {	/* sorted: tensor by tensor */
		for (end = from; end < np->n_places && np->place[end].tensor == np->place[from].tensor; end++)
			;
		bool down = np->place[from].micro_batch < 0;
		for (int j = 0; j < steps; j++) {
			int step = down ? steps - 1 - j : j;
			for (int k = from; k < end; k++) {
				struct dlb_place x = np->place[k];
				/* the verifier reports a place beyond the end of a shortened program */
				x.last = x.last < n ? x.last : n - 1;
				x.first = x.first < n ? x.first : n - 1;
				x.offset += (size_t)(step % x.copies) * dlb_place_bytes(x.bytes);
				x.first = at[(step + np->instr[x.first].iteration) * n + x.first];
				x.last = at[(step + np->instr[x.last].iteration) * n + x.last];
				x.micro_batch = dlb_unrolled(M, step, x.micro_batch);
				x.of_m = dlb_unrolled(M, step, x.of_m);
				x.copies = 1;
				to->place[to->n_places++] = x;
			}
		}
	}
	free(at);
}

static void unroll_replicas(const struct dlb_program *g, int steps, struct dlb_program *out)
{
	int *replica_of = dlb_xcalloc((size_t)g->n_nodes, sizeof *replica_of);
	memcpy(replica_of, g->replica_of, (size_t)g->n_nodes * sizeof *replica_of);
	out->replica_of = replica_of;
	out->other = dlb_xcalloc((size_t)g->n_replicas, sizeof *out->other);
	for (int r = 1; r < g->n_replicas; r++) {
		dlb_program_unroll(&g->other[r - 1], steps, &out->other[r - 1]);
		out->other[r - 1].replica_of = replica_of;
	}
}

void dlb_program_unroll(const struct dlb_program *g, int steps, struct dlb_program *out)
{
	size_t n = (size_t)g->micro_batches * (size_t)steps;
	memset(out, 0, sizeof *out);
	out->n_nodes = g->n_nodes;
	out->micro_batches = g->micro_batches * steps;
	out->n_messages = g->n_messages * steps;
	out->steps = steps;
	out->async = g->async;
	out->depth = g->depth;
	out->staleness = g->staleness;
	out->batch = g->batch;
	out->graph = g->graph;
	out->plan = g->plan;
	out->whole = g->whole;
	out->replicated = g->replicated;
	out->replica = g->replica;
	out->n_replicas = g->n_replicas;
	out->weightless = g->weightless;
	out->step_batch = g->step_batch;
	out->size = dlb_arena_array(&out->arena, n, sizeof *out->size);
	out->first = dlb_arena_array(&out->arena, n, sizeof *out->first);
	for (size_t i = 0; i < n; i++) {
		out->size[i] = g->size[i % (size_t)g->micro_batches];
		out->first[i] = g->first[i % (size_t)g->micro_batches];
	}
	out->node = dlb_arena_array(&out->arena, (size_t)g->n_nodes, sizeof *out->node);
	for (int d = 0; d < g->n_nodes; d++)
		unroll_node(g, &g->node[d], steps, out, &out->node[d]);
	if (g->n_replicas > 1 && g->replica == 0)
		unroll_replicas(g, steps, out);
}
