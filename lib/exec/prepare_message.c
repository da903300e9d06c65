/* Prepares messages between nodes. See prepare.h. */
#include <assert.h>
#include "exec/prepare.h"
#include "exec/runtime.h"
#include "plan/program_verify.h"
#include "plan/tensors.h"
#include "util/mem.h"

/* Lets the kernel that computes the message of operation a write it in the receiver's memory. */
static void make_there(struct dlb_engine *e, struct step_op *a, int t, const struct dlb_node_program *there,
		       int place, char *arena)
{
	const struct dlb_op *o;
	struct step_op *made = a;

	while (made > e->step_op && made->kind == STEP_SEND)
		made--;
	if (made->kind != STEP_RUN || made->update || made->op != e->graph->tensor[t].producer ||
	    made->m != a->m || made->dest_choice ||
	    !dlb_tensor_goes_only_to(e->graph, e->view.program->plan->placement, t, a->peer))
		return;
	o = &e->graph->op[made->op];
	for (int k = 0; k < o->n_out; k++)
		if (o->out[k] == t && made->out[k] == a->p) {
			made->dest_choice = a->dest_choice = dlb_arena_alloc(&e->arena,
									     sizeof *a->dest_choice);
			*a->dest_choice = (struct dest_choice){
				.out = &made->out[k], .here = a->p, .there = a->there, .channel = a->channel
			};
			dlb_step_op_dynamic_copy(e, made, &made->dest_choice->here, e->np,
						 dlb_step_op_place_of(e, t, a->m), e->runtime->arena);
			dlb_step_op_dynamic_copy(e, made, &made->dest_choice->there, there, place, arena);
		}
}

/* Lets the receiver read the message of operation a in place, or copies it, whichever is faster. */
static void prepare_zero_copy(struct dlb_engine *e, struct step_op *a, int t)
{
	const struct step_op *made = a;

	while (made > e->step_op && made->kind == STEP_SEND)
		made--;
	a->zero_copy = dlb_arena_alloc(&e->arena, sizeof *a->zero_copy);
	*a->zero_copy = (struct zero_copy){ .compute = made->kind == STEP_RUN && !made->update &&
								       made->op ==
									       e->graph->tensor[t].producer &&
								       made->m == a->m ?
							       made->compute :
							       -1 };
}

void dlb_prepare_find_remote_srcs(struct dlb_engine *e)
{
	const struct dlb_runtime *g = e->runtime;

	for (int i = 0; i < e->np->n_instr && e->cell >= 0; i++) {
		const struct dlb_instr *in = &e->np->instr[i];
		const struct dlb_node_program *from;
		struct remote_src *l;
		int place;

		if (in->verb != DLB_POST || !in->zero_copy || !g->cell_of[in->peer])
			continue;
		if (!e->remote_src)
			e->remote_src = dlb_arena_array(&e->arena, (size_t)e->np->n_places + 1,
							sizeof *e->remote_src);
		from = &e->view.program->node[in->peer];
		place = dlb_program_find_place(from, in->tensor, in->micro_batch);
		assert(place >= 0);
		l = dlb_arena_alloc(&e->arena, sizeof *l);
		*l = (struct remote_src){ g->arena_of[in->peer] + from->place[place].offset,
					  dlb_place_bytes(from->place[place].bytes),
					  from->place[place].copies,
					  dlb_arena_array(&e->arena, (size_t)e->ring, sizeof(bool)) };
		e->remote_src[dlb_program_find_place(e->np, in->tensor, in->micro_batch)] = l;
	}
}

/* Gives a message its channel if the peer is on this host. */
static void find_channel(struct dlb_engine *e, const struct dlb_instr *in, struct step_op *a)
{
	struct dlb_runtime *g = e->runtime;
	int at = e->newest[in->tag], post = in->verb == DLB_POST, place;
	const struct dlb_node_program *np = &e->view.program->node[in->peer];

	if (e->cell < 0 || !g->cell_of[in->peer])
		return;
	while (at >= 0 && (e->step_op[at].peer != in->peer || e->step_op[at].kind != a->kind))
		at = e->older[at];
	a->channel = at >= 0 ? e->step_op[at].channel : &e->channel[e->n_step_ops];
	a->channel->wakeup = dlb_comm_wakeup(g->comm, in->peer);
	a->channel->cell = g->cell_of[post ? e->view.node : in->peer] + e->cell + in->tag;
	if (post) {
		if (e->remote_src)
			a->remote_src = e->remote_src[dlb_program_find_place(e->np, in->tensor,
									     in->micro_batch)];
		return;
	}
	place = dlb_program_find_place(np, in->tensor, in->micro_batch);
	assert(place >= 0);
	a->there = g->arena_of[in->peer] + np->place[place].offset;
	dlb_step_op_dynamic_copy(e, a, &a->there, np, place, g->arena_of[in->peer]);
	if (in->zero_copy)
		prepare_zero_copy(e, a, in->tensor);
	else
		make_there(e, a, in->tensor, np, place, g->arena_of[in->peer]);
}

int dlb_prepare_message(struct dlb_engine *e, const struct dlb_instr *in, struct dlb_error *err)
{
	struct step_op *a = &e->step_op[e->n_step_ops];

	a->kind = in->verb == DLB_POST ? STEP_POST :
		  in->verb == DLB_SEND ? STEP_SEND :
		  in->sent             ? STEP_WAIT_SENT :
					 STEP_WAIT;
	a->peer = in->peer;
	a->tag = in->tag;
	a->m = in->micro_batch;
	if (in->verb == DLB_WAIT) {
		if (!in->sent && !dlb_is_host_memory(e->runtime->be)) {
			/* when the bytes have arrived in the mirror, they are copied to this place */
			if (!(a->p = dlb_step_op_resolve(e, in->tensor, in->micro_batch, err)))
				return -1;
			dlb_step_op_dynamic_tensor(e, a, &a->p, in->tensor, in, false);
		}
		if (!in->sent && e->runtime->cost)
			a->xfer_s = dlb_cost_xfer_s(
				e->runtime->cost,
				dlb_tensor_bytes(&e->graph->tensor[in->tensor],
						 e->view.program
							 ->size[in->micro_batch < 0 ? 0 : in->micro_batch]),
				in->peer, e->view.node);
	} else {
		int64_t n = e->view.program->size[in->micro_batch < 0 ? 0 : in->micro_batch];

		a->bytes = (size_t)dlb_tensor_bytes(&e->graph->tensor[in->tensor], n);
		if (!(a->p = dlb_step_op_resolve(e, in->tensor, in->micro_batch, err)))
			return -1;
		if (in->micro_batch >= 0 || in->verb == DLB_POST)
			dlb_step_op_dynamic_tensor(e, a, &a->p, in->tensor, in, false);
		a->request = &e->request[(size_t)e->n_step_ops * (size_t)e->ring];
		find_channel(e, in, a);
		if (!dlb_is_host_memory(e->runtime->be) &&
		    !(a->mirror = dlb_transfers_alloc(e, (size_t)e->ring * a->bytes, err)))
			return -1;
		e->older[e->n_step_ops] = e->newest[in->tag];
		e->newest[in->tag] = e->n_step_ops;
	}
	e->n_step_ops++;
	return 0;
}

int dlb_prepare_match_waits(struct dlb_engine *e, struct dlb_error *err)
{
	for (int i = 0; i < e->n_step_ops; i++) {
		struct step_op *a = &e->step_op[i];
		int at;

		if (a->kind != STEP_WAIT && a->kind != STEP_WAIT_SENT && a->kind != STEP_RETURN)
			continue;
		/* One tensor may go to several nodes under one tag; the peer distinguishes them. */
		for (at = e->newest[a->tag]; at >= 0; at = e->older[at])
			if (e->step_op[at].peer == a->peer &&
			    (e->step_op[at].kind == STEP_SEND) == (a->kind == STEP_WAIT_SENT))
				break;
		if (at < 0)
			return dlb_fail(err, NULL, "node %d waits for a message that it never starts",
					e->view.node);
		if (a->kind == STEP_RETURN) {
			a->channel = e->step_op[at].channel;
			continue;
		}
		a->request = e->step_op[at].request;
		a->mirror = e->step_op[at].mirror;
		a->post = at;
		a->bytes = e->step_op[at].bytes;
		a->remote_src = a->kind == STEP_WAIT ? e->step_op[at].remote_src : NULL;
	}
	return 0;
}
