/* Prepares copies of offloaded tensors (plan/offload.h): weights, their states, and activations. The engine
 * owns the activations' room in the other memory. */
#include "exec/offload_store.h"
#include "exec/prepare.h"
#include "exec/runtime.h"
#include "plan/again.h"
#include "plan/offload.h"
#include "plan/program_verify.h"
#include "plan/tensors.h"
#include "util/mem.h"

/* The entry of a place in e->offloaded. */
static struct offloaded **entry(struct dlb_engine *e, int place)
{
	if (!e->offloaded)
		e->offloaded = dlb_arena_array(&e->arena, (size_t)e->np->n_places + 1, sizeof *e->offloaded);
	return &e->offloaded[place];
}

struct offloaded *dlb_prepare_states(struct dlb_engine *e, int weight)
{
	const struct dlb_program *p = e->view.program;
	const struct dlb_state *s = e->runtime->state;
	struct offloaded **at, *x;
	int place;

	if (!dlb_program_is_offloaded(p, weight))
		return NULL;
	place = dlb_program_find_place(e->np, weight, dlb_second_life(p, 0));
	at = entry(e, place);
	if (*at)
		return *at;
	x = *at = dlb_arena_alloc(&e->arena, sizeof *x);
	*x = (struct offloaded){ .n = s->n_slots, .bytes = dlb_state_slot_bytes(s, weight), .copy = -1 };
	for (int k = 0; k < x->n; k++) {
		x->near[k] = e->runtime->arena + e->np->place[place].offset +
			     (size_t)k * dlb_place_bytes(x->bytes);
		x->far[k] = s->slot[k][weight];
	}
	return x;
}

/* Prepares the copy of a weight in one of its places, where the following ops read it. */
static struct offloaded *prepare_weight(struct dlb_engine *e, const struct dlb_instr *in,
					struct dlb_error *err)
{
	const struct dlb_offload_copy copy = dlb_offload_copy_of(e->view.program, e->view.node, in);
	struct offloaded **at = entry(e, copy.place), *x = *at;
	struct dlb_state *s = e->runtime->state;

	e->whole[in->tensor] = copy.place;
	if (x)
		return x;
	void *far = e->graph->tensor[in->tensor].kind == DLB_T_CONSTANT ?
			    dlb_state_constant(s, in->tensor, 1, copy.memory, err) :
			    s->value[in->tensor];
	if (!far)
		return NULL;
	x = *at = dlb_arena_alloc(&e->arena, sizeof *x);
	*x = (struct offloaded){ .n = 1,
				 .near = { e->runtime->arena + e->np->place[copy.place].offset },
				 .far = { far },
				 .bytes = (size_t)copy.bytes,
				 .copy = -1 };
	return x;
}

/* Prepares the copy of an activation: STORE and STORED copy its first life, FETCH and FETCHED its second.
 * Both lives have the same place in the other memory. NULL with err. */
static struct offloaded *prepare_activation(struct dlb_engine *e, const struct dlb_instr *in,
					    struct dlb_error *err)
{
	const struct dlb_offload_copy copy = dlb_offload_copy_of(e->view.program, e->view.node, in);
	struct offloaded **at = entry(e, copy.place), *x = *at;
	const int first = dlb_program_find_place(e->np, in->tensor, in->micro_batch);

	if (x)
		return x;
	x = dlb_arena_alloc(&e->arena, sizeof *x);
	*x = (struct offloaded){ .n = 1, .bytes = (size_t)copy.bytes, .copy = -1 };
	e->store = e->runtime->state->store;
	x->near[0] = dlb_step_op_resolve(e, in->tensor, e->np->place[copy.place].micro_batch, err);
	x->far[0] = in->again ? (*entry(e, first))->far[0] :
				dlb_offload_store_alloc(e->store, copy.memory, x->bytes,
							e->graph->tensor[in->tensor].name, err);
	x->own = !in->again;
	if (!x->near[0] || !x->far[0])
		return NULL;
	return *at = x;
}

int dlb_prepare_offload(struct dlb_engine *e, const struct dlb_instr *in, struct dlb_error *err)
{
	static const enum step_op_kind kind[DLB_N_VERBS] = { [DLB_FETCH] = STEP_FETCH,
							     [DLB_FETCHED] = STEP_COPIED,
							     [DLB_STORE] = STEP_STORE,
							     [DLB_STORED] = STEP_COPIED };
	const bool is_weight = dlb_tensor_is_state(&e->graph->tensor[in->tensor]);
	struct offloaded *x = !is_weight ? prepare_activation(e, in, err) :
			      in->again  ? dlb_prepare_states(e, in->tensor) :
					   prepare_weight(e, in, err);

	if (!x)
		return -1;
	e->step_op[e->n_step_ops++] = (struct step_op){
		.kind = kind[in->verb], .offloaded = x, .iteration = in->iteration, .dynamic = -1
	};
	return 0;
}

void dlb_prepare_offload_release(struct dlb_engine *e)
{
	for (int k = 0; e->offloaded && k < e->np->n_places; k++)
		if (e->offloaded[k] && e->offloaded[k]->own)
			dlb_offload_store_release_room(e->store, e->offloaded[k]->far[0]);
}
