/* Orders and compiles candidates. See fit.h. */
#include <math.h>
#include <stdlib.h>
#include "place/drafts.h"
#include "place/fit.h"
#include "plan/flow.h"
#include "plan/replica.h"
#include "plan/tensors.h"

/* Bytes that node d's memory has for the arena. */
double dlb_fit_room(const struct dlb_problem *p, const struct dlb_program *g, int d)
{
	const struct dlb_node_program *np = &dlb_program_of(g, d)->node[d];
	return p->memory_bytes[d] - (double)np->scratch_bytes - (double)np->state_bytes;
}

/* least: assumes arenas at their lower bound. */
bool dlb_fit_in_memory(const struct dlb_problem *p, const struct dlb_program *g, bool least)
{
	bool yes = true;
	for (int d = 0; d < g->n_nodes; d++) {
		const struct dlb_node_program *np = &dlb_program_of(g, d)->node[d];
		yes &= (double)(least ? np->bound_bytes : np->arena_bytes) <= dlb_fit_room(p, g, d);
	}
	return yes;
}

/* Bytes of n samples in the arena that an op of the forward or backward phase reads at once. */
static double read_bytes(const struct dlb_graph *g, const struct dlb_op *o, int64_t n)
{
	double bytes = 0;

	for (int i = 0; i < o->n_in; i++) {
		const struct dlb_tensor *t = o->in[i] < 0 ? NULL : &g->tensor[o->in[i]];
		bool counts = t && (t->kind == DLB_T_ACTIVATION || t->kind == DLB_T_GRADIENT) &&
			      dlb_graph_view_of(g, o->in[i]) < 0;

		for (int k = 0; k < i && counts; k++)
			counts = o->in[k] != o->in[i];
		bytes += counts ? dlb_tensor_bytes(t, n) : 0;
	}
	return bytes;
}

bool dlb_fit_could(const struct dlb_problem *p, const struct dlb_plan *plan, const struct dlb_program *g)
{
	const int64_t n = dlb_micro_batch_size(g->batch, g->micro_batches, g->micro_batches - 1);

	for (int d = 0; d < g->n_nodes; d++)
		if (dlb_fit_room(p, g, d) < 0)
			return false;
	if (g->n_replicas > 1)
		return true;
	for (int i = 0; i < plan->n_ops; i++)
		if (p->graph->op[i].phase != DLB_UPDATE &&
		    read_bytes(p->graph, &p->graph->op[i], n) > dlb_fit_room(p, g, plan->placement[i]))
			return false;
	return true;
}

/* dlb_fit_room of all nodes: [node], owned by the caller. */
static double *arena_room(const struct dlb_problem *p, const struct dlb_program *g)
{
	double *room = dlb_xcalloc((size_t)g->n_nodes, sizeof *room);
	for (int d = 0; d < g->n_nodes; d++)
		room[d] = dlb_fit_room(p, g, d);
	return room;
}

/* With very many ops, micro-batches or nodes, tight packing of arenas costs more than the rest of planning.
 * Then arenas are packed tightly only if the plan does not fit otherwise, and stated peaks are upper
 * bounds. */
enum { MANY_ITEMS = 60000, MANY_IN_ALL = 600000 };
bool dlb_fit_is_large(const struct dlb_plan *plan)
{
	int64_t items = (int64_t)plan->n_ops * plan->micro_batches;
	return items > MANY_ITEMS || items * plan->n_nodes > MANY_IN_ALL;
}

/* Whether an arena is so much above its bound that tighter packing may lower it. */
static bool any_loose(const struct dlb_program *g)
{
	bool any = false;
	for (int d = 0; d < g->n_nodes; d++) {
		const struct dlb_node_program *np = &dlb_program_of(g, d)->node[d];
		any |= !dlb_memory_is_good(np->arena_bytes, np->bound_bytes);
	}
	return any;
}

/* Counts the work of a search (drafts.h), so that its end does not depend on the machine's speed. */
static void count_work(const struct dlb_problem *p, const struct dlb_plan *plan)
{
	if (p->drafts)
		p->drafts->work += (int64_t)plan->n_ops * plan->micro_batches;
}

/* Compiles; arenas are not packed more tightly than `room`, [node] in bytes, needs; NULL: plan->draft
 * decides. */
static int compile(const struct dlb_problem *p, struct dlb_plan *plan, const double *room,
		   struct dlb_program *program, struct dlb_error *err)
{
	plan->arena_room = room;
	count_work(p, plan);
	int rc = dlb_program_compile(plan, p->cost, plan->batch, p->n_state, program, err);
	plan->arena_room = NULL;
	return rc;
}

/* Arenas are packed only after a first program, which states their bounds. Those of a draft are packed only
 * if the draft does not fit without, but may fit then. Those of a plan that can fit are packed with all effort; those of a
 * plan that cannot with a part of it, since the plan only states the shortage. */
int dlb_fit_compile(const struct dlb_problem *p, struct dlb_plan *plan, bool draft,
		    struct dlb_program *program, struct dlb_error *err)
{
	double *room = NULL;
	int rc;

	plan->draft = true;
	rc = compile(p, plan, NULL, program, err);
	plan->draft = draft;
	if (rc)
		return rc;
	const bool could = dlb_fit_in_memory(p, program, true);
	if (draft ? !could || dlb_fit_in_memory(p, program, false) : !any_loose(program))
		return 0;
	if (draft) {
		room = arena_room(p, program);
	} else if (!could) {
		room = dlb_xcalloc((size_t)plan->n_nodes, sizeof *room);
		for (int d = 0; d < plan->n_nodes; d++)
			room[d] = 1;
	}
	dlb_program_release(program);
	rc = compile(p, plan, room, program, err);
	free(room);
	return rc;
}

int dlb_fit_compile_known(const struct dlb_problem *p, struct dlb_plan *plan, struct dlb_program *program,
			  struct dlb_error *err)
{
	plan->draft = true;
	if (compile(p, plan, NULL, program, err))
		return -1;
	for (int d = 0; d < plan->n_nodes; d++) {
		struct dlb_node_program *np = &dlb_program_of(program, d)->node[d];

		np->arena_bytes = (size_t)plan->node[d].peak_bytes - np->scratch_bytes - np->state_bytes;
	}
	return 0;
}

double dlb_fit_order(const struct dlb_problem *p, struct dlb_plan *plan, int in_flight)
{
	plan->in_flight = in_flight;
	count_work(p, plan);
	plan->makespan_s = dlb_plan_order(plan, p->cost, p->ranked_scale);
	return plan->makespan_s;
}

double dlb_fit_order_below(const struct dlb_problem *p, struct dlb_plan *plan, int in_flight, double below_s)
{
	plan->order_below_s = isfinite(below_s) ? below_s : 0;
	const double s = dlb_fit_order(p, plan, in_flight);
	plan->order_below_s = 0;
	return s;
}
