/* Divided weights: each replica keeps a share of them (shares.h), or they are kept in another memory
 * (offload.h). Finds when they are gathered or fetched, and how long they are whole.
 *
 * A node reads its divided weights one after the other. Each weight is gathered while the one before it is
 * used: the gather starts before the first action that reads the one before. It is freed after its
 * last use before the node reads a further divided weight. If it is read again later, in the backward phase
 * or by another micro-batch, it is gathered again. So about two weights are whole at once, and every use
 * sends a weight's bytes again.
 *
 * All replicas have the same order of actions (dlb_plan_has_one_order), hence of gathers, so none waits
 * for ever. S. Rajbhandari et al., ZeRO: memory optimizations toward training trillion parameter models,
 * SC 2020. */
#include <stdlib.h>
#include "comm/allreduce.h"
#include "plan/compile.h"
#include "plan/offload.h"
#include "plan/shares.h"
#include "plan/tensors.h"

/* State of a walk over one node's actions. */
struct reading {
	int node, latest; /* latest: the last action that read a divided weight; -1: none */
	int before; /* the last action that read newly gathered weights; -1: none */
	int *open, *n_lives; /* [tensor] its newest gather, -1: none; its number of gathers so far */
};

/* Records that action a reads divided weight t. */
static void read_weight(struct compiler *c, struct reading *x, int t, int a)
{
	struct gathered *was = x->open[t] < 0 ? NULL : &c->gather[x->open[t]];

	if (was && (was->last == x->latest || was->last == a)) {
		was->last = a;
		return;
	}
	DLB_GROW(c->gather, c->n_gathers, c->cap_gathers);
	x->open[t] = c->n_gathers;
	c->gather[c->n_gathers++] = (struct gathered){ .node = x->node,
						       .tensor = t,
						       .life = dlb_gathered_life(c->out, x->n_lives[t]++),
						       .start = x->before > 0 ? x->before - 1 : 0,
						       .first = a,
						       .last = a,
						       .update = -1 };
}

/* The offloaded weight that action x updates; -1: none. */
static int far_update(const struct compiler *c, const struct action *x)
{
	const int t = c->g->op[x->op].phase == DLB_UPDATE ? dlb_update_weight(c->g, x->op) : -1;

	return t >= 0 && dlb_program_weight_is_far(c->out, t) ? t : -1;
}

static void read_weights(struct compiler *c, struct reading *x)
{
	const struct node_code *l = &c->code[x->node];

	for (int a = 0; a < l->n_actions; a++) {
		const struct action *at = &l->action[a];
		const int first = c->n_gathers;

		if (at->op < 0 || at->tensor >= 0)
			continue;
		const int updated = far_update(c, at);

		if (updated < 0 &&
		    (c->g->op[at->op].phase == DLB_UPDATE || !dlb_program_reads_gathered(c->out, at->op)))
			continue;
		if (updated >= 0) {
			read_weight(c, x, updated, a);
			c->gather[x->open[updated]].update = a;
		}
		for (int i = 0; updated < 0 && i < c->g->op[at->op].n_in; i++) {
			const int t = c->g->op[at->op].in[i];

			if (t >= 0 && dlb_program_gathers(c->out, t))
				read_weight(c, x, t, a);
		}
		x->latest = a;
		if (c->n_gathers > first)
			x->before = a;
	}
}

void dlb_compile_find_gathers(struct compiler *c)
{
	const size_t n = (size_t)c->g->n_tensors + 1;
	struct reading x = { .n_lives = NULL };

	if (!c->out->gathered)
		return;
	x.open = dlb_xcalloc(n, sizeof *x.open);
	x.n_lives = dlb_xcalloc(n, sizeof *x.n_lives);
	for (int t = 0; t < c->g->n_tensors; t++)
		x.open[t] = -1;
	for (x.node = 0; x.node < c->p->n_nodes; x.node++) {
		x.latest = x.before = -1;
		read_weights(c, &x);
	}
	free(x.open);
	free(x.n_lives);
}

int dlb_compile_count_gathers_of(const struct compiler *c, int node)
{
	int n = 0;

	for (int i = 0; i < c->n_gathers && !c->out->far_weight; i++)
		n += c->gather[i].node == node;
	return n;
}

void dlb_compile_add_gathers(struct compiler *c, int node)
{
	struct dlb_node_program *np = &c->out->node[node];

	for (int i = 0; i < c->n_gathers && !c->out->far_weight; i++) {
		const struct dlb_tensor *t = &c->g->tensor[c->gather[i].tensor];
		const struct dlb_desc d = dlb_tensor_desc(t, 1);

		if (c->gather[i].node != node)
			continue;
		c->gather[i].bucket = np->n_buckets;
		np->bucket[np->n_buckets++] = (struct dlb_bucket){ .cls = DLB_SUM_WEIGHTS,
								   .n = dlb_desc_count(&d),
								   .element_bytes = (int)dlb_dtype_bytes(
									   t->dtype),
								   .how = &dlb_ring_gather,
								   .ahead = true,
								   .weight = c->gather[i].tensor,
								   .life = c->gather[i].life };
	}
}

static int slot_of(const struct compiler *c, int gather)
{
	return c->inst_start[c->g->n_tensors] * c->M + gather;
}

static void add_copy(struct compiler *c, int gather, int action, int type)
{
	const struct gathered *x = &c->gather[gather];

	dlb_compile_add_hook(c, x->node,
			     (struct hook){ action, type, slot_of(c, gather), x->tensor, x->life, -1, -1,
					    false, false });
}

/* Adds the hooks of a fetch of an offloaded weight. stop: the action before which an updated weight must be
 * stored. */
static void hook_far(struct compiler *c, int gather, int stop)
{
	const struct gathered *x = &c->gather[gather];

	add_copy(c, gather, x->start > 0 ? x->start + 1 : 0, HOOK_FETCH);
	add_copy(c, gather, x->first, HOOK_FETCHED);
	if (x->update < 0) {
		add_copy(c, gather, x->last, HOOK_FREE_AFTER);
		return;
	}
	add_copy(c, gather, x->update, HOOK_STORE);
	add_copy(c, gather, stop, HOOK_STORED);
	add_copy(c, gather, stop, HOOK_FREE_BEFORE);
}

/* The list has the gathers of a node in the order of their first reads, so updates are in the order of the
 * list. */
static void hook_all_far(struct compiler *c)
{
	for (int i = c->n_gathers - 1, node = -1, next = 0, second = 0; i >= 0; i--) {
		const struct gathered *x = &c->gather[i];

		if (x->node != node) {
			node = x->node;
			next = second = c->code[node].n_actions - 1;
		}
		hook_far(c, i, second);
		if (x->update >= 0) {
			second = next;
			next = x->update;
		}
	}
}

void dlb_compile_hook_gathers(struct compiler *c)
{
	if (c->out->far_weight) {
		hook_all_far(c);
		return;
	}
	for (int i = 0; i < c->n_gathers; i++) {
		const struct gathered *x = &c->gather[i];
		const struct hook begin = { x->start, HOOK_REDUCE, slot_of(c, i), -1,   -1,
					    -1,       x->bucket,   false,         false },
				  end = { x->first, HOOK_REDUCED, -1, -1, -1, -1, x->bucket, false, false },
				  release = { x->last, HOOK_FREE_AFTER, slot_of(c, i), x->tensor, x->life, -1,
					      -1,      false,           false };

		dlb_compile_add_hook(c, x->node, begin);
		dlb_compile_add_hook(c, x->node, end);
		dlb_compile_add_hook(c, x->node, release);
	}
}

void dlb_compile_lay_out_gathers(struct compiler *c, int t)
{
	for (int i = 0; i < c->n_gathers; i++) {
		struct dlb_node_program *np = &c->out->node[c->gather[i].node];
		const struct slot *s = &c->slot[slot_of(c, i)];

		if (c->gather[i].tensor == t)
			np->place[np->n_places++] = (struct dlb_place){
				.tensor = t,
				.micro_batch = c->gather[i].life,
				.bytes = (size_t)dlb_tensor_bytes(&c->g->tensor[t], 1),
				.first = s->begin,
				.last = s->end,
				.of = -1,
				.of_m = -1,
				.copies = 1
			};
	}
}

/* whole weights that are alive at once */
enum { WHOLE_AT_ONCE = 2 };

void dlb_compile_count_gathers(struct compiler *c)
{
	for (int node = 0; c->out->gathered && node < c->p->n_nodes; node++) {
		double most[WHOLE_AT_ONCE] = { 0 };

		for (int t = 0; t < c->g->n_tensors; t++) {
			double bytes = dlb_tensor_bytes(&c->g->tensor[t], 1);

			if (!dlb_program_gathers(c->out, t) ||
			    dlb_weight_node(c->g, c->p->placement, t) != node)
				continue;
			for (int i = 0; i < WHOLE_AT_ONCE; i++) {
				const double less = bytes > most[i] ? most[i] : bytes;

				most[i] = bytes > most[i] ? bytes : most[i];
				bytes = less;
			}
		}
		for (int i = 0; i < WHOLE_AT_ONCE; i++)
			c->out->node[node].state_bytes += (size_t)most[i];
	}
}
