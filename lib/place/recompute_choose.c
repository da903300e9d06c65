/* Chooses ops that run again, for the least time with which an ordered plan fits its nodes' memory.
 *
 * There are two searches, each over the compiled program: by segments of the chain of each node
 * (recompute_segments.c), exact on chains, and by peaks (recompute_peaks.c), which is good if cheap ops make
 * large tensors or if the graph is no chain. Then single ops are given back, that is, their outputs are kept
 * again, while the plan still fits. The faster of the two plans is taken. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "place/drafts.h"
#include "place/fit.h"
#include "place/recompute.h"
#include "place/recompute_search.h"
#include "plan/again.h"
#include "plan/program_verify.h"
#include "plan/replica.h"
#include "plan/tensors.h"
#include "plan/timeline.h"
#include "util/hash.h"

enum { MOST_GIVEN_BACK = 64 };

/* ---- the least memory ---- */

/* Bytes of the places that may be dropped, counted only at the instructions that use them. */
struct least {
	const struct dlb_node_program *np;
	double *bytes; /* [instruction] */
	int *seen; /* [place] the last instruction found to use it; -1: none */
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

/* The least bytes of arena that node d needs, for every choice of ops that run again. */
static double least_bytes(const struct dlb_recompute_search *c, int d)
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
		l.may[k] = dlb_recompute_may_drop(c, g, x, d);
		if (l.may[k] || x->of >= 0)
			continue;
		change[x->first] += (double)dlb_place_bytes(x->bytes);
		change[x->last + 1] -= (double)dlb_place_bytes(x->bytes);
	}
	dlb_recompute_each_use(g, np, see_dropped, &l);
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

static bool all_may_fit(const struct dlb_recompute_search *c)
{
	for (int d = 0; d < c->plan->n_nodes; d++)
		if (least_bytes(c, d) > dlb_fit_room(c->p, &c->program, d))
			return false;
	return true;
}

int dlb_recompute_may_fit(const struct dlb_problem *p, struct dlb_plan *plan, int in_flight,
			  struct dlb_error *err)
{
	struct dlb_recompute_search c = {
		.p = p, .plan = plan, .draft = true, .in_flight = in_flight, .err = err
	};

	plan->again = NULL;
	c.lack = dlb_arena_array(&c.arena, (size_t)plan->n_nodes + 1, sizeof *c.lack);
	int rc = dlb_recompute_compile(&c);
	if (rc == 0) {
		rc = all_may_fit(&c);
		dlb_recompute_drop_program(&c);
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

/* ---- both searches ---- */

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
static int give_back(struct dlb_recompute_search *c)
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
		rc = dlb_recompute_compile(c);
		if (!rc)
			dlb_recompute_drop_program(c);
		if (rc || !dlb_recompute_fits(c))
			memcpy(plan->again, was, size);
	}
	free(list);
	free(was);
	return rc;
}

/* The simulated step of the plan with the present plan->again; INFINITY: it does not fit. */
static double value_s(struct dlb_recompute_search *c)
{
	struct dlb_timeline t;
	double s = INFINITY;
	if (dlb_recompute_compile(c))
		return s;
	if (dlb_recompute_fits(c) &&
	    dlb_program_simulate(&c->program, c->p->cost,
				 &(struct dlb_simulate_choice){ .node_scale = c->p->ranked_scale }, &t,
				 NULL) == 0) {
		s = t.step_s;
		dlb_timeline_release(&t, c->plan->n_nodes);
	}
	dlb_recompute_drop_program(c);
	return s;
}

static int choose(struct dlb_recompute_search *c)
{
	struct dlb_plan *plan = c->plan;
	const size_t size = (size_t)plan->n_ops * sizeof *plan->again;
	if (dlb_recompute_compile(c))
		return -1;
	dlb_recompute_drop_program(c);
	if (dlb_recompute_fits(c))
		return 1;
	int found = dlb_recompute_by_segments(c);
	if (found < 0 || (c->draft && found))
		return found;
	if (found && give_back(c))
		return -1;
	bool *segments = dlb_arena_array(&c->arena, (size_t)plan->n_ops + 1, sizeof *segments);
	const double lack = dlb_recompute_most_lacking(c), s = found ? value_s(c) : INFINITY;
	memcpy(segments, plan->again, size);
	const int peaks = dlb_recompute_by_peaks(c);
	if (peaks > 1)
		return peaks;
	if (peaks < 0 || (peaks && !c->draft && give_back(c)))
		return -1;
	if (!peaks ? found || dlb_recompute_most_lacking(c) > lack : found && value_s(c) >= s)
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

/* The cached choice for the key; NULL: none, or only one made with less effort. */
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
	enum { MOST = 512 }; /* the latest are kept */
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
	if (memo && !memo->is_borrowed)
		dlb_arena_release(&memo->arena);
}

int dlb_recompute_choose(const struct dlb_problem *p, struct dlb_plan *plan, int in_flight, bool draft,
			 double below_s, struct dlb_error *err)
{
	draft |= p->quick;
	const uint64_t key = key_of(p, plan, in_flight);
	const struct dlb_recompute_choice *known = recall(p->memo, key, draft);
	struct dlb_recompute_search c = {
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
