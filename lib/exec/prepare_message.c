/* Messages between nodes, made ready to run (prepare.h). */
#include <assert.h>
#include "exec/prepare.h"
#include "util/mem.h"

/* The kernel that has just made what act a sends may write it over there. */
static void make_there(struct dlb_engine *e, struct act *a, int t, const struct dlb_node_program *there, int place, char *arena)
{
	const struct dlb_op *o;
	struct act *made = a;

	while (made > e->act && made->kind == ACT_SEND)
		made--;
	if (made->kind != ACT_RUN || made->update || made->op != e->graph->tensor[t].producer || made->m != a->m || made->making ||
	    !dlb_tensor_goes_only_to(e->graph, e->view.program->plan->placement, t, a->peer))
		return;
	o = &e->graph->op[made->op];
	for (int k = 0; k < o->n_out; k++)
		if (o->out[k] == t && made->out[k] == a->p) {
			made->making = a->making = dlb_arena_alloc(&e->arena, sizeof *a->making);
			*a->making = (struct making){ .out = &made->out[k], .here = a->p, .there = a->there, .channel = a->channel };
			dlb_act_pick_copy(e, made, &made->making->here, e->np, dlb_act_place_of(e, t, a->m), e->ground->arena);
			dlb_act_pick_copy(e, made, &made->making->there, there, place, arena);
		}
}

/* What act a sends stays here, or is copied. */
static void lend(struct dlb_engine *e, struct act *a, int t)
{
	const struct act *made = a;

	while (made > e->act && made->kind == ACT_SEND)
		made--;
	a->lending = dlb_arena_alloc(&e->arena, sizeof *a->lending);
	*a->lending = (struct lending){ .compute = made->kind == ACT_RUN && !made->update && made->op == e->graph->tensor[t].producer &&
		made->m == a->m ? made->compute : -1 };
}

void dlb_prepare_find_landings(struct dlb_engine *e)
{
	const struct dlb_ground *g = e->ground;

	for (int i = 0; i < e->np->n_instr && e->cell >= 0; i++) {
		const struct dlb_instr *in = &e->np->instr[i];
		const struct dlb_node_program *from;
		struct landing *l;
		int place;

		if (in->verb != DLB_POST || !in->lent || !g->cell_of[in->peer])
			continue;
		if (!e->landing)
			e->landing = dlb_arena_array(&e->arena, (size_t)e->np->n_places + 1, sizeof *e->landing);
		from = &e->view.program->node[in->peer];
		place = dlb_program_find_place(from, in->tensor, in->micro_batch);
		assert(place >= 0);
		l = dlb_arena_alloc(&e->arena, sizeof *l);
		*l = (struct landing){ g->arena_of[in->peer] + from->place[place].offset, dlb_place_bytes(from->place[place].bytes),
			from->place[place].copies, dlb_arena_array(&e->arena, (size_t)e->ring, sizeof(bool)) };
		e->landing[dlb_program_find_place(e->np, in->tensor, in->micro_batch)] = l;
	}
}

/* Gives a message that is started its channel, where there is one. */
static void find_channel(struct dlb_engine *e, const struct dlb_instr *in, struct act *a)
{
	struct dlb_ground *g = e->ground;
	int at = e->newest[in->tag], post = in->verb == DLB_POST, place;
	const struct dlb_node_program *np = &e->view.program->node[in->peer];

	if (e->cell < 0 || !g->cell_of[in->peer])
		return;
	while (at >= 0 && (e->act[at].peer != in->peer || e->act[at].kind != a->kind))
		at = e->older[at];
	a->channel = at >= 0 ? e->act[at].channel : &e->channel[e->n_acts];
	a->channel->bell = dlb_comm_bell(g->comm, in->peer);
	a->channel->cell = g->cell_of[post ? e->view.node : in->peer] + e->cell + in->tag;
	if (post) {
		if (e->landing)
			a->landing = e->landing[dlb_program_find_place(e->np, in->tensor, in->micro_batch)];
		return;
	}
	place = dlb_program_find_place(np, in->tensor, in->micro_batch);
	assert(place >= 0);
	a->there = g->arena_of[in->peer] + np->place[place].offset;
	dlb_act_pick_copy(e, a, &a->there, np, place, g->arena_of[in->peer]);
	if (in->lent)
		lend(e, a, in->tensor);
	else
		make_there(e, a, in->tensor, np, place, g->arena_of[in->peer]);
}

int dlb_prepare_message(struct dlb_engine *e, const struct dlb_instr *in, struct dlb_error *err)
{
	struct act *a = &e->act[e->n_acts];

	a->kind = in->verb == DLB_POST ? ACT_POST : in->verb == DLB_SEND ? ACT_SEND : in->sent ? ACT_WAIT_SENT : ACT_WAIT;
	a->peer = in->peer;
	a->tag = in->tag;
	a->m = in->micro_batch;
	if (in->verb == DLB_WAIT) {
		if (!in->sent && e->ground->cost)
			a->xfer_s = dlb_cost_xfer_s(e->ground->cost, dlb_tensor_bytes(&e->graph->tensor[in->tensor],
						    e->view.program->size[in->micro_batch < 0 ? 0 : in->micro_batch]), in->peer, e->view.node);
	} else {
		int64_t n = e->view.program->size[in->micro_batch < 0 ? 0 : in->micro_batch];

		a->bytes = (size_t)dlb_tensor_bytes(&e->graph->tensor[in->tensor], n);
		if (!(a->p = dlb_act_resolve(e, in->tensor, in->micro_batch, err)))
			return -1;
		if (in->micro_batch >= 0 || in->verb == DLB_POST)
			dlb_act_pick_tensor(e, a, &a->p, in->tensor, in);
		a->request = &e->request[(size_t)e->n_acts * (size_t)e->ring];
		find_channel(e, in, a);
		e->older[e->n_acts] = e->newest[in->tag];
		e->newest[in->tag] = e->n_acts;
	}
	e->n_acts++;
	return 0;
}

int dlb_prepare_match_waits(struct dlb_engine *e, struct dlb_error *err)
{
	for (int i = 0; i < e->n_acts; i++) {
		struct act *a = &e->act[i];
		int at;

		if (a->kind != ACT_WAIT && a->kind != ACT_WAIT_SENT && a->kind != ACT_RETURN)
			continue;
		/* One tensor may go to several nodes under one tag: the peer tells them apart. */
		for (at = e->newest[a->tag]; at >= 0; at = e->older[at])
			if (e->act[at].peer == a->peer && (e->act[at].kind == ACT_SEND) == (a->kind == ACT_WAIT_SENT))
				break;
		if (at < 0)
			return dlb_fail(err, NULL, "node %d waits for a message that it never starts", e->view.node);
		if (a->kind == ACT_RETURN) {
			a->channel = e->act[at].channel;
			continue;
		}
		a->request = e->act[at].request;
		a->landing = a->kind == ACT_WAIT ? e->act[at].landing : NULL;
	}
	return 0;
}
