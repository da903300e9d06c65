/* Addresses of the operands of a program's instructions on a node. See prepare.h. */
#include "exec/prepare.h"
#include "exec/runtime.h"
#include "exec/state.h"
#include "plan/again.h"
#include "plan/buckets.h"
#include "plan/program_verify.h"
#include "util/mem.h"

static bool lives_here(const struct dlb_engine *e, int t)
{
	const struct dlb_tensor *x = &e->graph->tensor[t];
	int own = e->tensor_of ? e->tensor_of[t] : t;

	return (x->kind == DLB_T_WEIGHT || x->kind == DLB_T_BUFFER) && own >= 0 &&
	       e->runtime->state->value[own];
}

int dlb_step_op_place_of(const struct dlb_engine *e, int t, int m)
{
	return dlb_program_place_of(e->np, e->graph, t, m);
}

void *dlb_step_op_resolve(struct dlb_engine *e, int t, int m, struct dlb_error *err)
{
	const struct dlb_tensor *x = &e->graph->tensor[t];
	struct dlb_state *s = e->runtime->state;
	int at;

	const int own = e->tensor_of ? e->tensor_of[t] : t;

	if (x->kind == DLB_T_CONSTANT)
		return dlb_state_constant(s, own, e->view.program->size[m < 0 ? 0 : m], NULL, err);
	if (lives_here(e, t))
		return s->value[own];
	at = dlb_step_op_place_of(e, t, m);
	if (at >= 0)
		return e->runtime->arena + e->np->place[at].offset;
	dlb_fail(err, NULL, "tensor '%s' of micro-batch %d has no place on node %d", x->name, m,
		 e->view.node);
	return NULL;
}

struct dynamic_operand *dlb_step_op_add_dynamic(struct dlb_engine *e, struct step_op *a, void **at)
{
	DLB_GROW(e->dynamic, e->n_dynamic, e->cap_dynamic);
	e->dynamic[e->n_dynamic] = (struct dynamic_operand){ .at = at, .next = a->dynamic };
	a->dynamic = e->n_dynamic;
	return &e->dynamic[e->n_dynamic++];
}

/* Makes *at follow the step if `place` has several copies or can be in the sender's memory. The place is of
 * np, whose arena begins at `arena`. remote_src: the sender's memory; NULL: not read there. */
static void dynamic_place(struct dlb_engine *e, struct step_op *a, void **at,
			  const struct dlb_node_program *np, int place, char *arena,
			  const struct remote_src *remote_src)
{
	struct dynamic_operand *p;

	if (place < 0 || (np->place[place].copies < 2 && !remote_src))
		return;
	p = dlb_step_op_add_dynamic(e, a, at);
	p->remote_src = remote_src;
	p->base = arena + np->place[place].offset;
	p->stride = dlb_place_bytes(np->place[place].bytes);
	p->copies = np->place[place].copies;
}

void dlb_step_op_dynamic_copy(struct dlb_engine *e, struct step_op *a, void **at,
			      const struct dlb_node_program *np, int place, char *arena)
{
	dynamic_place(e, a, at, np, place, arena, NULL);
}

/* The sender's memory from which the message of that place may be read; NULL: it is always copied. */
static const struct remote_src *remote_src_of(const struct dlb_engine *e, int place)
{
	const struct dlb_place *p = e->np->place;

	while (e->remote_src && place >= 0 && p[place].of >= 0)
		place = dlb_program_find_place(e->np, p[place].of, p[place].of_m);
	return e->remote_src && place >= 0 ? e->remote_src[place] : NULL;
}

const struct dlb_weight_copies *dlb_step_op_copies_of(const struct dlb_engine *e, int t)
{
	for (int k = 0; k < e->np->n_weights; k++)
		if (e->np->weight[k].tensor == t)
			return &e->np->weight[k];
	return NULL;
}

/* Makes *at dynamic if the address of t changes from step to step. */
void dlb_step_op_dynamic_tensor(struct dlb_engine *e, struct step_op *a, void **at, int t,
				const struct dlb_instr *in, bool out)
{
	const struct dlb_program *p = e->view.program;
	const struct dlb_weight_copies *w;
	struct dynamic_operand *k;
	int i = (int)(in - e->np->instr);

	if (e->graph->tensor[t].kind == DLB_T_CONSTANT)
		return;
	if (!lives_here(e, t)) {
		int place = dlb_step_op_place_of(e, t, dlb_instr_life(p, in, t, out));

		dynamic_place(e, a, at, e->np, place, e->runtime->arena, remote_src_of(e, place));
		return;
	}
	if (!p->depth || e->update_at[t] < 0 || !(w = dlb_step_op_copies_of(e, t)))
		return;
	k = dlb_step_op_add_dynamic(e, a, at);
	k->weight = true;
	k->now = *at;
	k->live = e->np->instr[e->update_at[t]].iteration - in->iteration - (i > e->update_at[t]);
	k->version = p->staleness == DLB_STALE_STASH || p->staleness == DLB_STALE_2BW ? in->version : k->live;
	k->expected = p->staleness == DLB_STALE_PREDICT && k->live > 0 &&
		      e->graph->op[in->op].phase == DLB_FORWARD;
	k->base = e->runtime->state->copy[t];
	k->copies = w->n;
	k->stride = dlb_place_bytes((size_t)dlb_tensor_bytes(&e->graph->tensor[t], 1));
}

void dlb_step_op_dynamic_sum(struct dlb_engine *e, struct step_op *a, void **at, int op)
{
	const int places = dlb_program_sum_places(e->np, op), weight = e->graph->op[op].in[0];
	struct dynamic_operand *p;

	if (places < 2)
		return;
	p = dlb_step_op_add_dynamic(e, a, at);
	p->base = e->runtime->state->sum[op];
	p->stride = dlb_place_bytes((size_t)dlb_tensor_bytes(&e->graph->tensor[weight], 1));
	p->copies = places;
}
