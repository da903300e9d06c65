/* The step loop. A compiled program becomes a flat list of acts in which nothing is left to look up:
 * kernels are prepared once for each (op, size of micro-batch), operands are pointers into the arena or
 * the state, requests have their place by tag. Running it is one pass over the list.
 *
 * Between two kernels messages are given the chance to move: a long kernel would otherwise hold up a transfer
 * that only needs a nudge.
 *
 * Between ranks of one host a message is written into the receiver's place, in its arena (ground.c): copied there
 * once, or where nobody here reads the tensor and the place is posted in time, made there by the kernel itself. Stores
 * to lines that another core's cache holds may take longer than making it here and copying (comm/shared.h), so each
 * way is tried a few times now and then, and the faster one kept.
 *
 * Asynchronous programs (plan/async.c): an iteration of the loop holds acts of several steps. Each one works for the
 * step it belongs to; where that is none, it is left out. What differs from step to step, the copy of a place or the
 * version of a weight, is set right before the act is run: its picks.
 *
 * Time is taken around each kernel and each wait that really waits (about 25 ns a reading). --slow
 * stretches a kernel by (factor - 1) times the CPU time it took, so that a descheduled rank is not
 * stretched for time it did not have: by spinning where every rank has a core, else by sleeping, where
 * what the sleep took too long (or what was too short to sleep for) is carried over as a debt. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "exec/clip.h"
#include "exec/engine.h"
#include "exec/exchange.h"
#include "util/clock.h"
#include "util/mem.h"

enum act_kind { ACT_POST, ACT_WAIT, ACT_WAIT_SENT, ACT_SEND, ACT_RUN, ACT_COPY, ACT_SEED, ACT_COMPUTED, ACT_REDUCE, ACT_REDUCED, ACT_NORM };

/* A kernel's output that can be made here or over there. */
struct making {
	void **out;			/* the kernel's pointer to it */
	void *here, *there;
	struct dlb_channel *channel;
	double kernel_s, best_s[2];	/* of the last run; least so far of kernel and sending: made here, there */
	int n_tried[2];
	bool is_there;
};
enum { TRIES = 4, TRY_AGAIN = 512 };		/* each way; after so many sends: virtual cores move */

struct act {
	enum act_kind kind;
	struct dlb_request *request;
	struct dlb_channel *channel;	/* of a message through shared memory; NULL: MPI's */
	void *there;			/* where it goes, on the other side */
	struct making *making;		/* of a kernel and of the send of what it makes; NULL: it is made here */
	int peer, tag, m, compute, op;
	void *p;			/* where: message, copy */
	double xfer_s;			/* of a wait for what MPI brings: what that should take */
	size_t bytes, offset;		/* offset: of a copy's source in what was fed */
	struct dlb_kernel *kernel;
	void **in, **out;
	uint64_t vertex;
	int64_t first_sample;
	bool update;
	enum dlb_dtype dtype;		/* of a seed */
	int iteration, pick;		/* of instruction; first of its picks, -1 */
	int predict;			/* updates to foresee, at most; 0: not a prediction */
	int loss;			/* the output that is the loss of its micro-batch, -1: none */
};

/* A pointer that follows the step: to copy (step mod copies) of a place; or to a weight, whose newest version is that of
 * `live` updates before the step's, `version` the one wanted, and old or expected ones lie in copies. */
struct pick { void **at; char *base, *now; size_t stride; int copies, live, version, next; bool weight, expected; };

struct dlb_engine {
	struct dlb_engine_program view;	/* first: dlb_engine_view */
	struct dlb_ground *ground;
	const struct dlb_graph *graph;
	const struct dlb_node_program *np;
	const int *tensor_of;
	struct act *act; int n_acts;
	struct dlb_request *request;	/* [n_acts]; used by the acts that start a message */
	struct dlb_channel *channel;	/* [n_acts] likewise */
	int cell;			/* of tag 0 among the ground's; -1: all messages are MPI's */
	int *newest, *older;		/* [tag] newest act that starts such a message; [act] the one before; preparing */
	struct dlb_kernel **kernel; int n_kernels;
	struct dlb_kernel **of_op;	/* [first half?][op][class of size] while preparing */
	double **sums;			/* [op] of those in halves; NULL: none is */
	struct { int64_t n; } size[2];
	const void **loss;		/* [m], NULL: made elsewhere */
	struct pick *pick; int n_picks, cap_picks;
	int *update_at;			/* [tensor] asynchronous: instruction that updates the weight, -1 */
	int ring;			/* steps that may be under way: requests of an act, sums of losses */
	double *loss_sum;		/* [ring] */
	enum dlb_dtype loss_dtype;
	struct dlb_exchange *exchange;	/* with the other replicas; NULL: none */
	struct dlb_clip clip;
	struct dlb_arena arena;
};

static int size_class(const struct dlb_engine *e, int m)
{
	return e->view.program->size[m < 0 ? 0 : m] != e->size[0].n;
}

static bool lives_here(const struct dlb_engine *e, int t)
{
	const struct dlb_tensor *x = &e->graph->tensor[t];
	int own = e->tensor_of ? e->tensor_of[t] : t;

	return (x->kind == DLB_T_WEIGHT || x->kind == DLB_T_BUFFER) && own >= 0 && e->ground->state->value[own];
}

/* The place of tensor t of micro-batch m (-1: of the step), or -1. */
static int place_of(const struct dlb_engine *e, int t, int m)
{
	const struct dlb_tensor *x = &e->graph->tensor[t];
	int at;

	if (x->kind == DLB_T_WEIGHT || x->kind == DLB_T_BUFFER)
		m = -1;
	at = dlb_program_find_place(e->np, t, m);
	if (at < 0 && m >= 0)
		at = dlb_program_find_place(e->np, t, -1);
	if (at < 0 && dlb_graph_view_of(e->graph, t) >= 0)
		at = place_of(e, dlb_graph_view_of(e->graph, t), m);
	return at;
}

/* Where tensor t of micro-batch m (-1: of the step) lies on this node. */
static void *resolve(struct dlb_engine *e, int t, int m, struct dlb_error *err)
{
	const struct dlb_tensor *x = &e->graph->tensor[t];
	struct dlb_state *s = e->ground->state;
	int at;

	if (x->kind == DLB_T_CONSTANT)
		return dlb_state_constant(s, e->graph, t, e->view.program->size[m < 0 ? 0 : m], err);
	if (lives_here(e, t))
		return s->value[e->tensor_of ? e->tensor_of[t] : t];
	at = place_of(e, t, m);
	if (at >= 0)
		return e->ground->arena + e->np->place[at].offset;
	dlb_fail(err, NULL, "tensor '%s' of micro-batch %d has no place on node %d", x->name, m, e->view.node);
	return NULL;
}

static struct pick *add_pick(struct dlb_engine *e, struct act *a, void **at)
{
	DLB_GROW(e->pick, e->n_picks, e->cap_picks);
	e->pick[e->n_picks] = (struct pick){ .at = at, .next = a->pick };
	a->pick = e->n_picks;
	return &e->pick[e->n_picks++];
}

/* *at is in a place of np whose arena begins at `arena`. */
static void pick_copy(struct dlb_engine *e, struct act *a, void **at, const struct dlb_node_program *np, int place, char *arena)
{
	struct pick *p;

	if (place < 0 || np->place[place].copies < 2)
		return;
	p = add_pick(e, a, at);
	p->base = arena + np->place[place].offset;
	p->stride = dlb_place_bytes(np->place[place].bytes);
	p->copies = np->place[place].copies;
}

static const struct dlb_weight_copies *copies_of(const struct dlb_engine *e, int t)
{
	for (int k = 0; k < e->np->n_weights; k++)
		if (e->np->weight[k].tensor == t)
			return &e->np->weight[k];
	return NULL;
}

/* *at is tensor t of instruction `in`'s micro-batch; what of it follows the step? */
static void pick_tensor(struct dlb_engine *e, struct act *a, void **at, int t, const struct dlb_instr *in)
{
	const struct dlb_program *p = e->view.program;
	const struct dlb_weight_copies *w;
	struct pick *k;
	int i = (int)(in - e->np->instr);

	if (!p->depth || e->graph->tensor[t].kind == DLB_T_CONSTANT)
		return;
	if (!lives_here(e, t)) {
		pick_copy(e, a, at, e->np, place_of(e, t, in->micro_batch), e->ground->arena);
		return;
	}
	if (e->update_at[t] < 0 || !(w = copies_of(e, t)))
		return;
	k = add_pick(e, a, at);
	k->weight = true;
	k->now = *at;
	k->live = e->np->instr[e->update_at[t]].iteration - in->iteration - (i > e->update_at[t]);
	k->version = p->staleness == DLB_STALE_STASH || p->staleness == DLB_STALE_2BW ? in->version : k->live;
	k->expected = p->staleness == DLB_STALE_PREDICT && k->live > 0 && e->graph->op[in->op].phase == DLB_FORWARD;
	k->base = e->ground->state->copy[t];
	k->copies = w->n;
	k->stride = dlb_place_bytes((size_t)dlb_tensor_bytes(&e->graph->tensor[t], 1));
}

static int kept(struct dlb_engine *e, struct dlb_kernel *k)
{
	if (k->scratch_bytes > e->ground->scratch_bytes)
		e->ground->scratch_bytes = k->scratch_bytes;
	e->kernel[e->n_kernels++] = k;
	return 0;
}

static int lacks(const struct dlb_engine *e, int op, struct dlb_error *err)
{
	const struct dlb_op *o = &e->graph->op[op];

	return dlb_fail(err, NULL, "no kernel for %s '%s' on node %d", o->type, o->name, e->view.node);
}

/* ---- preparing ---- */

static int prepare_op(struct dlb_engine *e, const struct dlb_instr *in, struct act *a, struct dlb_error *err)
{
	const struct dlb_op *o = &e->graph->op[in->op];
	const bool halves = e->view.program->statistics && e->view.program->statistics[in->op] >= 0, first = in->what == DLB_RUN_SUMS;
	struct dlb_kernel **k = &e->of_op[2 * (in->op + (first ? e->graph->n_ops : 0)) + size_class(e, in->micro_batch)];
	struct dlb_backend *be = e->ground->be;
	int rc = 0;

	if (!*k) {
		struct dlb_op_io *io = dlb_arena_alloc(&e->arena, sizeof *io);

		if (o->kind < 0)
			return dlb_fail(err, NULL, "op %d of type %s ('%s') can be planned, not run", in->op, o->type, o->name);
		dlb_graph_io(e->graph, in->op, e->view.program->size[in->micro_batch < 0 ? 0 : in->micro_batch], &e->arena, io);
		rc = halves ? io->cls->half(be, io, !first, k, err) : io->cls->kernel ? io->cls->kernel(be, io, k, err) : DLB_NO_KERNEL;
		if (rc == DLB_NO_KERNEL)
			return lacks(e, in->op, err);
		if (rc || kept(e, *k))
			return -1;
	}
	a->kernel = *k;
	a->op = in->op;
	a->vertex = (uint64_t)(o->phase == DLB_BACKWARD && o->of >= 0 ? o->of : in->op);
	a->first_sample = e->view.program->first[in->micro_batch < 0 ? 0 : in->micro_batch];
	a->in = dlb_arena_array(&e->arena, (size_t)o->n_in + 1, sizeof *a->in);
	a->out = dlb_arena_array(&e->arena, (size_t)o->n_out + 1, sizeof *a->out);
	for (int i = 0; i < o->n_out && !first; i++) {
		if (o->out[i] < 0)
			continue;
		if (!(a->out[i] = resolve(e, o->out[i], in->micro_batch, err)))
			return -1;
		pick_tensor(e, a, &a->out[i], o->out[i], in);
	}
	if (halves)
		*(first ? a->out : a->in + o->n_in) = e->sums[in->op];
	for (int i = 0; i < o->n_in; i++) {	/* the first weight's pick is set last, and says which version is packed */
		if (o->in[i] < 0)
			continue;
		if (!(a->in[i] = resolve(e, o->in[i], in->micro_batch, err)))
			return -1;
		pick_tensor(e, a, &a->in[i], o->in[i], in);
	}
	return 0;
}

static int prepare_accumulate(struct dlb_engine *e, const struct dlb_instr *in, struct act *a, struct dlb_error *err)
{
	const struct dlb_tensor *x = &e->graph->tensor[in->tensor];
	struct dlb_desc d = dlb_tensor_desc(x, e->view.program->batch);
	const struct dlb_accumulate_desc desc = { .dtype = d.dtype, .count = dlb_desc_count(&d), .first = in->micro_batch == 0 };
	int rc = e->ground->be->ops->accumulate(e->ground->be, &desc, &a->kernel, err);

	if (rc)
		return rc == DLB_NO_KERNEL ? lacks(e, in->op, err) : -1;
	kept(e, a->kernel);
	a->in = dlb_arena_array(&e->arena, 1, sizeof *a->in);
	a->out = dlb_arena_array(&e->arena, 1, sizeof *a->out);
	a->out[0] = e->ground->state->sum[in->op];
	assert(a->out[0]);
	if (!(a->in[0] = resolve(e, in->tensor, in->micro_batch, err)))
		return -1;
	pick_tensor(e, a, &a->in[0], in->tensor, in);
	return 0;
}

/* The weight that an update op changes, and its gradient. */
static void update_operands(const struct dlb_graph *g, const struct dlb_op *o, int *weight, int *gradient)
{
	*weight = *gradient = -1;
	for (int i = 0; i < o->n_in; i++) {
		if (o->in[i] < 0)
			continue;
		if (g->tensor[o->in[i]].kind == DLB_T_WEIGHT && *weight < 0)
			*weight = o->in[i];
		else
			*gradient = o->in[i];
	}
}

/* Where the gradient of an update of this node lies: its sum, or the one micro-batch's. */
static void *gradient_at(struct dlb_engine *e, int op, struct dlb_error *err)
{
	int weight, gradient;

	if (dlb_program_sums(e->view.program, op))
		return e->ground->state->sum[op];
	update_operands(e->graph, &e->graph->op[op], &weight, &gradient);
	return resolve(e, gradient, 0, err);
}

static int prepare_update(struct dlb_engine *e, const struct dlb_instr *in, const struct dlb_optimizer_choice *c,
			  struct act *a, struct dlb_error *err)
{
	const struct dlb_op *o = &e->graph->op[in->op];
	struct dlb_state *s = e->ground->state;
	struct dlb_update_desc desc;
	struct dlb_desc d;
	int weight, gradient, rc;

	update_operands(e->graph, o, &weight, &gradient);
	if (weight < 0 || gradient < 0 || !s->value[weight])
		return dlb_fail(err, NULL, "update '%s' has no weight and gradient on node %d", o->name, e->view.node);
	d = dlb_tensor_desc(&e->graph->tensor[weight], 1);
	desc = dlb_optimizer_desc(c, d.dtype, dlb_desc_count(&d), DLB_UPDATE_WHOLE, NULL);
	rc = e->ground->be->ops->update(e->ground->be, &desc, &a->kernel, err);
	if (rc)
		return rc == DLB_NO_KERNEL ? lacks(e, in->op, err) : -1;
	kept(e, a->kernel);
	a->update = true;
	a->in = dlb_arena_array(&e->arena, 1, sizeof *a->in);
	a->out = dlb_arena_array(&e->arena, 1 + DLB_MAX_STATES, sizeof *a->out);
	a->out[0] = s->value[weight];
	for (int k = 0; k < s->n_slots; k++)
		a->out[1 + k] = s->slot[k][weight];
	if (!(a->in[0] = gradient_at(e, in->op, err)))
		return -1;
	if (!dlb_program_sums(e->view.program, in->op))
		pick_copy(e, a, &a->in[0], e->np, place_of(e, gradient, 0), e->ground->arena);
	return 0;
}

/* A copy of a weight before its update, or of what it is expected to be. */
static int prepare_copy_of_weight(struct dlb_engine *e, const struct dlb_instr *in, const struct dlb_optimizer_choice *c,
				  struct act *a, struct dlb_error *err)
{
	const struct dlb_op *o = &e->graph->op[in->op];
	struct dlb_state *s = e->ground->state;
	const struct dlb_backend_ops *ops = e->ground->be->ops;
	bool predict = in->what == DLB_RUN_PREDICT;
	int weight, gradient, rc;
	struct dlb_desc d;
	struct pick *p;

	update_operands(e->graph, o, &weight, &gradient);
	if (weight < 0 || !s->value[weight] || !s->copy[weight])
		return dlb_fail(err, NULL, "update '%s' has no weight with copies on node %d", o->name, e->view.node);
	d = dlb_tensor_desc(&e->graph->tensor[weight], 1);
	if (predict) {
		const struct dlb_update_desc desc = dlb_optimizer_desc(c, d.dtype, dlb_desc_count(&d), DLB_UPDATE_PREDICT, NULL);

		rc = ops->update(e->ground->be, &desc, &a->kernel, err);
		if (rc == DLB_NO_KERNEL)
			return dlb_fail(err, "/plan/staleness", "predict needs an optimizer that keeps a smoothed gradient, not %s",
					dlb_optimizers[c->rule].name);
	} else {
		const struct dlb_accumulate_desc desc = { .dtype = d.dtype, .count = dlb_desc_count(&d), .first = true };

		rc = ops->accumulate(e->ground->be, &desc, &a->kernel, err);
	}
	if (rc)
		return rc == DLB_NO_KERNEL ? lacks(e, in->op, err) : -1;
	kept(e, a->kernel);
	a->predict = predict ? in->version : 0;
	a->in = dlb_arena_array(&e->arena, 1 + DLB_MAX_STATES, sizeof *a->in);
	a->out = dlb_arena_array(&e->arena, 1, sizeof *a->out);
	a->in[0] = s->value[weight];
	for (int k = 0; k < s->n_slots && predict; k++)
		a->in[1 + k] = s->slot[k][weight];
	a->out[0] = s->copy[weight];
	p = add_pick(e, a, &a->out[0]);
	p->base = s->copy[weight];
	p->stride = dlb_place_bytes(dlb_desc_bytes(&d));
	p->copies = copies_of(e, weight)->n;
	return 0;
}

/* Which output of op is the loss, or what the loss is a view of; -1: none. */
static int loss_output(const struct dlb_engine *e, int op)
{
	int t = e->graph->loss;

	while (t >= 0 && dlb_graph_view_of(e->graph, t) >= 0)
		t = dlb_graph_view_of(e->graph, t);
	for (int k = 0; k < e->graph->op[op].n_out && t >= 0; k++)
		if (e->graph->op[op].out[k] == t)
			return k;
	return -1;
}

static int prepare_compute(struct dlb_engine *e, const struct dlb_instr *in, const struct dlb_optimizer_choice *c,
			   struct dlb_error *err)
{
	struct act *a = &e->act[e->n_acts];
	struct dlb_engine_program *v = &e->view;

	if (in->what == DLB_RUN_STEP_END || (in->what == DLB_RUN_OP && dlb_graph_is_view(e->graph, in->op)))
		return 0;
	a->kind = ACT_RUN;
	a->m = in->micro_batch;
	a->op = -1;
	a->loss = in->what == DLB_RUN_OP ? loss_output(e, in->op) : -1;
	if (in->what == DLB_RUN_KEEP || in->what == DLB_RUN_PREDICT ? prepare_copy_of_weight(e, in, c, a, err) :
	    in->what == DLB_RUN_OP || in->what == DLB_RUN_SUMS ? prepare_op(e, in, a, err) :
	    in->what == DLB_RUN_ACCUMULATE ? prepare_accumulate(e, in, a, err) : prepare_update(e, in, c, a, err))
		return -1;
	a->compute = v->n_computes++;
	v->compute_op[a->compute] = in->op;
	v->compute_m[a->compute] = in->micro_batch;
	v->compute_is_op[a->compute] = in->what == DLB_RUN_OP || in->what == DLB_RUN_UPDATE;
	e->n_acts++;
	return 0;
}

static int prepare_norm(struct dlb_engine *e, const struct dlb_optimizer_choice *c, struct dlb_error *err)
{
	const struct dlb_graph *g = e->graph;
	const struct dlb_program *p = e->view.program;
	const bool own = p->n_replicas > 1 && dlb_sharing_averages(&p->whole->sharing);
	void **gradient = dlb_arena_array(&e->arena, (size_t)g->n_ops + 1, sizeof *gradient);

	for (int op = 0; op < g->n_ops; op++)
		if (g->op[op].phase == DLB_UPDATE && p->plan->placement[op] == e->view.node &&
		    !(gradient[op] = gradient_at(e, op, err)))
			return -1;
	e->act[e->n_acts++].kind = ACT_NORM;
	return dlb_clip_init(&e->clip, g, e->ground->be, c->clip_norm, gradient, own ? p->n_replicas : 1, own ? p->replica : 0, &e->arena,
			     err);
}

/* A fed tensor: seeds are computed, the rest is copied from what the feeder laid out at `offset`. */
static int prepare_copy(struct dlb_engine *e, const struct dlb_instr *in, struct dlb_error *err)
{
	const struct dlb_program *p = e->view.program;
	const struct dlb_tensor *x = &e->graph->tensor[in->tensor];
	struct act *a = &e->act[e->n_acts];
	int m = in->micro_batch < 0 ? 0 : in->micro_batch;
	struct dlb_feed_item *f;

	if (!(a->p = resolve(e, in->tensor, in->micro_batch, err)))
		return -1;
	pick_tensor(e, a, &a->p, in->tensor, in);
	a->m = m;
	e->n_acts++;
	if (x->kind == DLB_T_SEED || in->tensor == e->graph->seed) {
		a->kind = ACT_SEED;
		a->dtype = x->dtype;
		return 0;
	}
	a->kind = ACT_COPY;
	a->bytes = (size_t)dlb_tensor_bytes(x, p->size[m]);
	a->offset = e->view.feed_bytes;
	f = &e->view.feed[e->view.n_feed++];
	*f = (struct dlb_feed_item){ .tensor = in->tensor, .micro_batch = m, .first = p->first[m], .n = p->size[m],
				     .bytes = a->bytes, .offset = a->offset };
	e->view.feed_bytes += (a->bytes + 63) / 64 * 64;
	return 0;
}

/* Whether tensor t, sent to peer, is read by nobody else, on no node. */
static bool goes_only_to(const struct dlb_engine *e, int t, int peer)
{
	const struct dlb_graph *g = e->graph;

	if (t == g->loss)
		return false;
	for (int i = 0; i < g->n_outputs; i++)
		if (g->output[i] == t)
			return false;
	for (int r = g->reader_start[t]; r < g->reader_start[t + 1]; r++)
		if (e->view.program->plan->placement[g->reader[r]] != peer)
			return false;
	return true;
}

/* The kernel that has just made what act a sends may write it over there. */
static void make_there(struct dlb_engine *e, struct act *a, int t, const struct dlb_node_program *there, int place, char *arena)
{
	const struct dlb_op *o;
	struct act *made = a;

	while (made > e->act && made->kind == ACT_SEND)
		made--;
	if (made->kind != ACT_RUN || made->update || made->op != e->graph->tensor[t].producer || made->m != a->m || made->making ||
	    !goes_only_to(e, t, a->peer))
		return;
	o = &e->graph->op[made->op];
	for (int k = 0; k < o->n_out; k++)
		if (o->out[k] == t && made->out[k] == a->p) {
			made->making = a->making = dlb_arena_alloc(&e->arena, sizeof *a->making);
			*a->making = (struct making){ .out = &made->out[k], .here = a->p, .there = a->there, .channel = a->channel };
			pick_copy(e, made, &made->making->here, e->np, place_of(e, t, a->m), e->ground->arena);
			pick_copy(e, made, &made->making->there, there, place, arena);
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
	a->channel->cell = g->cell_of[post ? e->view.node : in->peer] + e->cell + in->tag;
	if (post)
		return;
	place = dlb_program_find_place(np, in->tensor, in->micro_batch);
	assert(place >= 0);
	a->there = g->arena_of[in->peer] + np->place[place].offset;
	pick_copy(e, a, &a->there, np, place, g->arena_of[in->peer]);
	make_there(e, a, in->tensor, np, place, g->arena_of[in->peer]);
}

static int prepare_message(struct dlb_engine *e, const struct dlb_instr *in, struct dlb_error *err)
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
		if (!(a->p = resolve(e, in->tensor, in->micro_batch, err)))
			return -1;
		if (in->micro_batch >= 0 || in->verb == DLB_POST)
			pick_tensor(e, a, &a->p, in->tensor, in);
		a->request = &e->request[(size_t)e->n_acts * (size_t)e->ring];
		find_channel(e, in, a);
		e->older[e->n_acts] = e->newest[in->tag];
		e->newest[in->tag] = e->n_acts;
	}
	e->n_acts++;
	return 0;
}

/* Of the replicas; the end of the step is run.c's. */
static int prepare_collective(struct dlb_engine *e, const struct dlb_instr *in)
{
	static const enum act_kind kind[] = { [DLB_RUN_COMPUTED] = ACT_COMPUTED, [DLB_RUN_REDUCE] = ACT_REDUCE,
					      [DLB_RUN_REDUCED] = ACT_REDUCED };

	if (in->what == DLB_RUN_STEP_END)
		return 0;
	e->act[e->n_acts] = (struct act){ .kind = kind[in->what], .tag = in->tag, .iteration = in->iteration, .pick = -1 };
	if (in->what == DLB_RUN_COMPUTED)
		e->act[e->n_acts].p = dlb_arena_alloc(&e->arena, (size_t)dlb_comm_size(e->ground->comm));
	e->n_acts++;
	return 0;
}

/* Waits come before what they wait for where that is of an earlier iteration, so they are matched when all is there. */
static int match_waits(struct dlb_engine *e, struct dlb_error *err)
{
	for (int i = 0; i < e->n_acts; i++) {
		struct act *a = &e->act[i];
		int at;

		if (a->kind != ACT_WAIT && a->kind != ACT_WAIT_SENT)
			continue;
		/* One tensor may go to several nodes under one tag: the peer tells them apart. */
		for (at = e->newest[a->tag]; at >= 0; at = e->older[at])
			if (e->act[at].peer == a->peer && (e->act[at].kind == ACT_SEND) == (a->kind == ACT_WAIT_SENT))
				break;
		if (at < 0)
			return dlb_fail(err, NULL, "node %d waits for a message that it never starts", e->view.node);
		a->request = e->act[at].request;
	}
	return 0;
}

static void find_updates(struct dlb_engine *e)
{
	for (int t = 0; t < e->graph->n_tensors; t++)
		e->update_at[t] = -1;
	for (int i = 0; i < e->np->n_instr; i++) {
		int weight, gradient;

		if (e->np->instr[i].verb != DLB_COMPUTE || e->np->instr[i].what != DLB_RUN_UPDATE)
			continue;
		update_operands(e->graph, &e->graph->op[e->np->instr[i].op], &weight, &gradient);
		if (weight >= 0)
			e->update_at[weight] = i;
	}
}

static int prepare(struct dlb_engine *e, const struct dlb_optimizer_choice *c, struct dlb_error *err)
{
	if (e->view.program->depth)
		find_updates(e);
	for (int i = 0; i < e->np->n_instr; i++) {
		const struct dlb_instr *in = &e->np->instr[i];
		int rc = 0;

		e->act[e->n_acts].iteration = in->iteration;
		e->act[e->n_acts].pick = -1;

		switch (in->verb) {
		case DLB_POST:
		case DLB_WAIT:
		case DLB_SEND:
			rc = prepare_message(e, in, err);
			break;
		case DLB_COMPUTE:
			rc = prepare_compute(e, in, c, err);
			break;
		case DLB_COPY:
			rc = prepare_copy(e, in, err);
			break;
		case DLB_COLLECTIVE:		/* the step's end is run.c's */
			rc = in->what == DLB_RUN_NORM ? prepare_norm(e, c, err) : prepare_collective(e, in);
			break;
		default:			/* FREE: places were fixed when the program was compiled */
			break;
		}
		if (rc)
			return -1;
	}
	return match_waits(e, err);
}

/* Room for the sums of ops that run in halves. */
static void make_sums(struct dlb_engine *e)
{
	if (!e->view.program->statistics)
		return;
	e->sums = dlb_arena_array(&e->arena, (size_t)e->graph->n_ops + 1, sizeof *e->sums);
	for (int i = 0; i < e->np->n_buckets; i++) {
		const struct dlb_bucket *b = &e->np->bucket[i];

		if (b->cls == DLB_SUM_STATISTICS)
			e->sums[b->op[0]] = dlb_arena_array(&e->arena, (size_t)(b->n + b->n_own), sizeof(double));
	}
}

/* What the buckets sum, where it lies. */
static int open_exchange(struct dlb_engine *e, struct dlb_error *err)
{
	const struct dlb_program *p = e->view.program;
	void **summand = dlb_arena_array(&e->arena, (size_t)e->graph->n_ops + 1, sizeof *summand);

	for (int b = 0; b < e->np->n_buckets; b++) {
		for (int i = 0; i < e->np->bucket[b].n_ops; i++) {
			int op = e->np->bucket[b].op[i];

			summand[op] = e->np->bucket[b].cls == DLB_SUM_STATISTICS ? e->sums[op] :
				      dlb_program_sums(p, op) ? e->ground->state->sum[op] :
				      resolve(e, dlb_update_gradient(e->graph, op), 0, err);
			if (!summand[op])
				return -1;
		}
	}
	return dlb_exchange_new(&e->exchange, e->ground->comm, p, e->view.node, e->ground->cluster, summand, e->ground->average,
				e->ground->kept, e->ground->last_step, err);
}

int dlb_engine_new(struct dlb_engine **out, struct dlb_ground *ground, const struct dlb_program *p, int node,
		   const struct dlb_optimizer_choice *optimizer, const int *tensor_of, struct dlb_error *err)
{
	static const struct dlb_optimizer_choice none = { .rule = 0 };
	struct dlb_engine *e = dlb_xcalloc(1, sizeof *e);
	const struct dlb_graph *g = p->graph;
	size_t n = (size_t)p->node[node].n_instr + 1;
	struct dlb_error ignored;

	assert(ground->arena || !p->node[node].arena_bytes);
	/* kernels trust shapes; micro-batches have at most two sizes */
	if (dlb_graph_check_runnable(g, p->size[0], err) ||
	    (p->size[p->micro_batches - 1] != p->size[0] && dlb_graph_check_runnable(g, p->size[p->micro_batches - 1], err))) {
		free(e);
		return -1;
	}
	e->ground = ground;
	e->graph = g;
	e->np = &p->node[node];
	e->tensor_of = tensor_of;
	e->view.program = p;
	e->view.node = node;
	e->size[0].n = p->size[0];
	e->cell = dlb_ground_first_cell(ground, p, node);
	e->channel = dlb_xcalloc(n, sizeof *e->channel);
	e->act = dlb_xcalloc(n, sizeof *e->act);
	e->ring = p->depth + 1;
	e->request = dlb_xcalloc(n * (size_t)e->ring, sizeof *e->request);
	e->loss_sum = dlb_xcalloc((size_t)e->ring, sizeof *e->loss_sum);
	e->update_at = dlb_xcalloc((size_t)g->n_tensors + 1, sizeof *e->update_at);
	e->older = dlb_xcalloc(n, sizeof *e->older);
	e->newest = dlb_xcalloc((size_t)p->n_messages + 1, sizeof *e->newest);
	for (int i = 0; i < p->n_messages; i++)
		e->newest[i] = -1;
	e->kernel = dlb_xcalloc(n, sizeof *e->kernel);
	e->of_op = dlb_xcalloc(4 * (size_t)g->n_ops + 1, sizeof *e->of_op);
	make_sums(e);
	e->loss = dlb_xcalloc((size_t)p->micro_batches + 1, sizeof *e->loss);
	e->view.feed = dlb_xcalloc(n, sizeof *e->view.feed);
	e->view.compute_op = dlb_xcalloc(n, sizeof *e->view.compute_op);
	e->view.compute_m = dlb_xcalloc(n, sizeof *e->view.compute_m);
	e->view.compute_is_op = dlb_xcalloc(n, sizeof *e->view.compute_is_op);
	e->view.start_s = dlb_xcalloc(n, sizeof *e->view.start_s);
	e->view.end_s = dlb_xcalloc(n, sizeof *e->view.end_s);
	if (prepare(e, optimizer ? optimizer : &none, err)) {
		dlb_engine_free(e);
		return -1;
	}
	if (open_exchange(e, err)) {
		dlb_engine_free(e);
		return -1;
	}
	if (g->loss >= 0 && g->tensor[g->loss].producer >= 0 && p->plan->placement[g->tensor[g->loss].producer] == node) {
		e->loss_dtype = g->tensor[g->loss].dtype;
		for (int m = 0; m < p->micro_batches; m++)
			e->loss[m] = resolve(e, g->loss, m, &ignored);
	}
	for (int i = 0; i < e->n_acts; i++)
		if (e->act[i].kind == ACT_SEND)
			e->view.times.bytes_sent += (double)e->act[i].bytes;
	*out = e;
	return 0;
}

void dlb_engine_free(struct dlb_engine *e)
{
	if (!e)
		return;
	for (int i = 0; i < e->n_kernels; i++)
		dlb_kernel_free(e->kernel[i]);
	dlb_clip_release(&e->clip);
	free(e->act);
	free(e->request);
	free(e->loss_sum);
	free(e->update_at);
	free(e->pick);
	free(e->channel);
	free(e->older);
	free(e->newest);
	free(e->kernel);
	free(e->of_op);
	free(e->loss);
	free(e->view.feed);
	free(e->view.compute_op);
	free(e->view.compute_m);
	free(e->view.compute_is_op);
	free(e->view.start_s);
	free(e->view.end_s);
	dlb_exchange_free(e->exchange);
	dlb_arena_release(&e->arena);
	free(e);
}

struct dlb_engine_program *dlb_engine_view(struct dlb_engine *e)
{
	return &e->view;
}

const struct dlb_kernel *dlb_engine_kernel(const struct dlb_engine *e, int i)
{
	for (int k = 0; k < e->n_acts; k++)
		if (e->act[k].kind == ACT_RUN && e->act[k].compute == i)
			return e->act[k].kernel;
	dlb_bug("no compute %d", i);
}

/* Scratch grows while engines are prepared; it is taken when the first step needs it. */
static int scratch_ready(struct dlb_ground *g, struct dlb_error *err)
{
	if (g->scratch || !g->scratch_bytes)
		return 0;
	g->scratch = g->be->ops->alloc(g->be, g->scratch_bytes);
	return g->scratch ? 0 : dlb_fail(err, NULL, "no memory for %zu bytes of scratch on this device", g->scratch_bytes);
}

/* ---- running ---- */

/* Owes (factor - 1) * cpu_s and pays as much of it as makes sense now. */
static void stretch(struct dlb_ground *g, double cpu_s)
{
	double from;

	g->debt_s += cpu_s * (g->slow - 1.0);
	if (g->sleep) {
		if (g->debt_s < 100e-6)
			return;
		from = dlb_clock_s();
		dlb_sleep_s(g->debt_s);
		g->debt_s -= dlb_clock_s() - from;
		return;
	}
	from = dlb_clock_thread_cpu_s();
	while (dlb_clock_thread_cpu_s() - from < g->debt_s)
		;
	g->debt_s = 0.0;
}

static void choose_place(struct making *w)
{
	bool there = w->n_tried[1] < TRIES ? w->n_tried[1] <= w->n_tried[0] :
		     w->n_tried[0] < TRIES ? false : w->best_s[1] <= w->best_s[0];

	w->is_there = there && dlb_channel_ready(w->channel);
	*w->out = w->is_there ? w->there : w->here;
}

static void run_kernel(struct dlb_engine *e, const struct act *a, struct dlb_run *r, double origin_s)
{
	struct dlb_ground *g = e->ground;
	double cpu_s = 0.0, start_s = dlb_clock_s(), end_s;

	if (a->making)
		choose_place(a->making);
	r->in = a->in;
	r->out = a->out;
	r->vertex = a->vertex;
	r->first_sample = a->first_sample;
	if (g->slow > 1.0)
		cpu_s = dlb_clock_thread_cpu_s();
	a->kernel->run(a->kernel, r);
	g->be->ops->sync(g->be);
	if (g->slow > 1.0)
		stretch(g, dlb_clock_thread_cpu_s() - cpu_s);
	end_s = dlb_clock_s();
	e->view.start_s[a->compute] = start_s - origin_s;
	e->view.end_s[a->compute] = end_s - origin_s;
	e->view.times.busy_s += end_s - start_s;
	if (a->making)
		a->making->kernel_s = end_s - start_s;
}

static void run_send(struct dlb_engine *e, const struct act *a, struct dlb_request *request)
{
	struct making *w = a->making;
	double start_s = w ? dlb_clock_s() : 0.0, s;

	if (!a->channel) {
		dlb_comm_isend(e->ground->comm, a->p, a->bytes, a->peer, a->tag, request);
		return;
	}
	dlb_channel_send(e->ground->comm, a->channel, w ? *w->out : a->p, a->there, a->bytes, a->peer, request);
	if (!w || request->active)
		return;
	s = w->kernel_s + dlb_clock_s() - start_s;
	if (!w->n_tried[w->is_there]++ || s < w->best_s[w->is_there])
		w->best_s[w->is_there] = s;
	if (w->n_tried[0] + w->n_tried[1] == TRY_AGAIN)
		w->n_tried[0] = w->n_tried[1] = 0;
}

static int run_wait(struct dlb_engine *e, const struct act *a, struct dlb_request *request, enum dlb_wait kind, struct dlb_error *err)
{
	struct dlb_step_times *t = &e->view.times;
	double start_s, waited_s = 0.0;

	if (request->active && !dlb_comm_test(e->ground->comm, request)) {
		start_s = dlb_clock_s();
		if (dlb_comm_wait(e->ground->comm, request, err))
			return -1;
		waited_s = dlb_clock_s() - start_s;
		t->waits_s[kind] += waited_s;
	}
	if (a->xfer_s > 0.0 && !request->channel) {
		t->comm_s += a->xfer_s;
		t->comm_hidden_s += waited_s < a->xfer_s ? a->xfer_s - waited_s : 0.0;
	}
	return 0;
}

static double copied_s(const struct dlb_engine *e)
{
	double s = 0.0;

	for (int i = 0; i < e->n_acts; i++)
		s += e->channel[i].copied_s;
	return s;
}

/* What the updates multiply gradients by. */
static int run_norm(struct dlb_engine *e, struct dlb_run *r, struct dlb_error *err)
{
	struct dlb_step_times *t = &e->view.times;
	double start_s = dlb_clock_s(), cpu_s = dlb_clock_thread_cpu_s(), sum_s;

	dlb_clip_here(&e->clip);
	if (e->ground->slow > 1.0)
		stretch(e->ground, dlb_clock_thread_cpu_s() - cpu_s);
	sum_s = dlb_clock_s();
	t->busy_s += sum_s - start_s;
	if (dlb_clip_scale(&e->clip, e->ground->comm, e->clip.n_sets > 1 || e->view.program->replica == 0, &r->grad_scale, err))
		return -1;
	t->waits_s[DLB_WAIT_COLLECTIVE] += dlb_clock_s() - sum_s;
	return 0;
}

/* Points act a's pointers at what they are in `step` of a run (or what followed a drain) that began with step `first`. Returns
 * a number for the weights read, another one for other values: 2 v + 2 for those that v updates made, 2 v + 3 for those
 * expected of them; that of the step's own where it reads none of here. */
static uint64_t set_picks(struct dlb_engine *e, const struct act *a, int64_t step, int64_t first)
{
	uint64_t version = 2 * (uint64_t)step + 2;

	for (int i = a->pick; i >= 0; i = e->pick[i].next) {
		const struct pick *p = &e->pick[i];
		int64_t live = step - p->live, want = step - p->version;

		if (!p->weight) {
			*p->at = p->base + (size_t)(step % p->copies) * p->stride;
			continue;
		}
		live = live < first ? first : live;
		want = p->expected && live < step ? step : want < first ? first : want;
		*p->at = want == live || !p->copies ? p->now : p->base + (size_t)(want % p->copies) * p->stride;
		version = 2 * (uint64_t)(p->copies ? want : live) + 2 + (p->expected && live < step);
	}
	return version;
}

/* Weights `distance` steps on: by the smoothed gradient as it is now. */
static void predict(struct dlb_engine *e, const struct act *a, const struct dlb_step *s, int64_t first, struct dlb_run r, double origin_s)
{
	int64_t live = s->step - a->predict < first ? first : s->step - a->predict;

	if (live == s->step)		/* nothing to foresee: it is read as it is */
		return;
	r.distance = (double)(s->step - live);
	r.step = live > 0 ? (uint64_t)live : 1;
	run_kernel(e, a, &r, origin_s);
}

static void add_loss(struct dlb_engine *e, const struct act *a, const struct dlb_step *s)
{
	double *sum = &e->loss_sum[s->step % e->ring];
	char raw[8] = { 0 };

	e->ground->be->ops->download(e->ground->be, raw, a->out[a->loss], dlb_dtype_bytes(e->loss_dtype));
	*sum = (a->m ? *sum : 0.0) + s->fed->seed[a->m] * dlb_value_real(raw, e->loss_dtype, 0);
}

int dlb_engine_run(struct dlb_engine *e, const struct dlb_step *s, struct dlb_error *err)
{
	const struct dlb_window w = { .iteration = s->step, .first = s->step, .end = s->step + 1, .step = s, .n = 1 };

	return dlb_engine_run_iteration(e, &w, err);
}

int dlb_engine_run_iteration(struct dlb_engine *e, const struct dlb_window *w, struct dlb_error *err)
{
	struct dlb_ground *g = e->ground;
	struct dlb_step_times *t = &e->view.times;
	double origin_s = dlb_clock_s(), copied_before_s;
	struct dlb_run r = { .shrunk = &e->view.shrunk };
	bool several = e->view.program->depth > 0;

	if (scratch_ready(g, err))
		return -1;
	r.scratch = g->scratch;
	t->busy_s = t->comm_s = t->comm_hidden_s = 0.0;
	copied_before_s = copied_s(e);
	memset(t->waits_s, 0, sizeof t->waits_s);
	t->command_s = 0.0;
	if (e->exchange)
		dlb_exchange_begin(e->exchange, w->iteration);
	for (int i = 0; i < e->n_acts; i++) {
		const struct act *a = &e->act[i];
		const int64_t step = w->iteration - a->iteration;
		const struct dlb_step *s = &w->step[step > 0 ? step % w->n : 0];
		struct dlb_request *request;

		if (step < w->first || step >= w->end)
			continue;
		request = a->request ? a->request + (several ? step % e->ring : 0) : NULL;
		r.seed = s->seed;
		r.rate = s->rate;
		r.rate_before = s->rate_before;
		r.has_rate = s->has_rate;
		r.weight_version = several ? set_picks(e, a, step, w->first) : s->version;
		switch (a->kind) {
		case ACT_POST:
			if (a->channel)
				dlb_channel_post(a->channel, a->peer, request);
			else
				dlb_comm_irecv(g->comm, a->p, a->bytes, a->peer, a->tag, request);
			break;
		case ACT_SEND:
			run_send(e, a, request);
			break;
		case ACT_WAIT:
			if (run_wait(e, a, request, DLB_WAIT_STARVED, err))
				return -1;
			break;
		case ACT_WAIT_SENT:
			if (run_wait(e, a, request, DLB_WAIT_BACKPRESSURE, err))
				return -1;
			break;
		case ACT_COPY:
			g->be->ops->upload(g->be, a->p, s->fed->base + a->offset, a->bytes);
			break;
		case ACT_SEED:
			{
				double seed = 0.0;	/* bytes for any float type */

				dlb_value_set(&seed, a->dtype, 0, s->fed->seed[a->m]);
				g->be->ops->upload(g->be, a->p, &seed, dlb_dtype_bytes(a->dtype));
			}
			break;
		case ACT_NORM:
			if (run_norm(e, &r, err))
				return -1;
			break;
		case ACT_RUN:
			/* Updates count steps from 1 (bias correction). */
			r.step = (uint64_t)s->step + (a->update ? 1 : 0);
			if (a->predict)
				predict(e, a, s, w->first, r, origin_s);
			else
				run_kernel(e, a, &r, origin_s);
			if (e->view.program->async && a->loss >= 0)
				add_loss(e, a, s);
			dlb_comm_progress(g->comm);
			if (e->exchange)
				dlb_exchange_nudge(e->exchange);
			break;
		case ACT_COMPUTED:
			if (dlb_exchange_command(g->comm, a->p, &t->waits_s[DLB_WAIT_COLLECTIVE], &t->command_s, err))
				return -1;
			break;
		case ACT_REDUCE:
			dlb_exchange_start(e->exchange, a->tag);
			break;
		case ACT_REDUCED:
			if (dlb_exchange_wait(e->exchange, a->tag, &t->waits_s[DLB_WAIT_COLLECTIVE], err))
				return -1;
			break;
		}
	}
	t->comm_s += copied_s(e) - copied_before_s;
	if (e->exchange) {
		if (dlb_exchange_settle(e->exchange, err))
			return -1;
		const struct dlb_exchange_times *x = dlb_exchange_times(e->exchange);

		t->sum_s = x->time_s;
		t->sum_hidden_s = x->hidden_s;
		memcpy(t->class_s, x->class_s, sizeof t->class_s);
		memcpy(t->class_hidden_s, x->class_hidden_s, sizeof t->class_hidden_s);
	}
	return 0;
}

const struct dlb_exchange *dlb_engine_exchange(const struct dlb_engine *e)
{
	return e->exchange;
}

double dlb_engine_loss_of(const struct dlb_engine *e, const struct dlb_step *s)
{
	return e->view.program->async ? e->loss_sum[s->step % e->ring] : dlb_engine_loss(e, s->fed->seed);
}

double dlb_engine_loss(const struct dlb_engine *e, const double *seed)
{
	double sum = 0.0;

	for (int m = 0; m < e->view.program->micro_batches; m++) {
		double value = 0.0;
		char raw[8] = { 0 };

		if (!e->loss[m])
			return 0.0;
		e->ground->be->ops->download(e->ground->be, raw, e->loss[m], dlb_dtype_bytes(e->loss_dtype));
		value = dlb_value_real(raw, e->loss_dtype, 0);
		sum += seed[m] * value;
	}
	return sum;
}

const void *dlb_engine_at(const struct dlb_engine *e, int tensor, int m)
{
	struct dlb_error ignored;

	/* resolve only reads, but for constants, which nobody asks for here */
	return resolve((struct dlb_engine *)(uintptr_t)e, tensor, m, &ignored);
}
