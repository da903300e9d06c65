/* Finds how the loss reads the labels: see labels.h. The path of a sample's elements is found by running the
 * ops before the loss on one sample whose elements are numbered from 1. */
#include <stdlib.h>
#include <string.h>
#include "graph/labels.h"
#include "graph/order.h"
#include "graph/rewrite.h"
#include "tensor/backend.h"

enum { DEEPEST = 32 };

struct label_walk {
	const struct dlb_graph *g;
	struct dlb_backend be;
	struct dlb_arena *a, scratch;
	struct dlb_label_use *use;
};

static bool is_loss(const struct dlb_op *o)
{
	return o->phase == DLB_FORWARD && o->kind >= 0 && dlb_op_class_of(o->kind)->flags & DLB_OP_IS_LOSS;
}

/* The index of the loss's input that holds labels. */
static int label_input(const struct dlb_op *o)
{
	return !strcmp(o->type, "CrossEntropyJoin") ? 0 : 1;
}

/* Does the op only move elements of input 0 (and of constants) to its outputs? */
static bool moves(const struct dlb_op *o)
{
	const struct dlb_op_class *cls = dlb_op_class_of(o->kind);

	return o->phase == DLB_FORWARD && cls && o->n_out > 0 &&
	       (cls->flags & DLB_OP_VIEW || !strcmp(o->type, "Cast") ||
		(cls->work && !strcmp(cls->work, "move")));
}

/* The numbers in output 0 of op i if its input 0 holds at[]; NULL: unknown. */
static const int64_t *moved(struct label_walk *w, int i, const int64_t *at)
{
	struct dlb_error err = { .what = "" };
	struct dlb_op_io io;
	struct dlb_desc stated;
	void **out;

	dlb_graph_io(w->g, i, 1, &w->scratch, &io);
	stated = io.out[0];
	if (!at || !io.cls || !io.value)
		return NULL;
	((const void **)(uintptr_t)io.value)[0] = at;
	for (int k = 0; k < io.n_in; k++)
		if (io.in[k].n_dims >= 0 && !io.value[k])
			return NULL;
	io.in[0].dtype = DLB_I64;
	for (int k = 0; k < io.n_out; k++)
		io.out[k].dtype = DLB_I64;
	if (!strcmp(io.cls->name, "Cast"))
		return at;
	/* the next op reads as many numbers as the graph states; a document may state a wrong shape */
	if (io.cls->infer(&io, &err) || io.out[0].dtype != DLB_I64 ||
	    !dlb_desc_same_shape(&io.out[0], &stated))
		return NULL;
	out = dlb_arena_array(&w->scratch, (size_t)io.n_out + 1, sizeof *out);
	return dlb_graph_run_op(&w->be, &io, &w->scratch, out, &err) ? NULL : out[0];
}

static void take_weights(struct label_walk *w, const struct dlb_op *o)
{
	const struct dlb_tensor *t = o->n_in > 2 && o->in[2] >= 0 && !*o->domain ? &w->g->tensor[o->in[2]] :
										   NULL;
	const void *value = t && (t->data || t->is_fill) ? dlb_tensor_value(t, 1, &w->scratch) : NULL;
	double *weight;

	if (!value || t->n_dims != 1 || t->dim[0].mul || t->dim[0].add != w->use->classes)
		return;
	weight = dlb_arena_array(w->a, (size_t)w->use->classes, sizeof *weight);
	for (int64_t c = 0; c < w->use->classes; c++)
		weight[c] = dlb_value_real(value, t->dtype, c);
	w->use->weight = weight;
}

/* The walk has reached loss o, whose labels are the elements at[] of a sample: fills w->use. */
static void arrive(struct label_walk *w, const struct dlb_op *o, const int64_t *at)
{
	const struct dlb_tensor *labels = &w->g->tensor[o->in[label_input(o)]], *x = &w->g->tensor[o->in[0]];
	const struct dlb_attr *ignore = dlb_attr_find(o->attr, o->n_attr, "ignore_index");
	struct dlb_label_use *use = w->use;
	const struct dlb_desc d = dlb_tensor_desc(labels, 1);
	const int64_t n = dlb_desc_count(&d);
	bool *counted;

	use->has_ignore = ignore != NULL;
	use->ignore = ignore ? ignore->i : 0;
	use->classes = label_input(o) ? *o->domain || x->n_dims < 2 || x->dim[1].mul ? 0 : x->dim[1].add :
		dlb_attr_int(o->attr, o->n_attr, "classes", 0);
	take_weights(w, o);
	if (!at)
		return;
	counted = dlb_arena_array(w->a, (size_t)use->n + 1, sizeof *counted);
	for (int64_t i = 0; i < n; i++)
		if (at[i] > 0 && at[i] <= use->n)
			counted[at[i] - 1] = true;
	use->counted = counted;
	use->shifted = use->n > 1 && !counted[0] && counted[use->n - 1];
}

/* Follows tensor t, which holds the elements at[], to a loss; false: it reaches none. */
static bool walk(struct label_walk *w, int t, const int64_t *at, int depth)
{
	for (int i = 0; i < w->g->n_ops && depth < DEEPEST; i++) {
		const struct dlb_op *o = &w->g->op[i];
		const int labels = label_input(o);

		if (is_loss(o) && o->n_in > labels && o->in[labels] == t) {
			arrive(w, o, at);
			return true;
		}
		if (!moves(o) || o->in[0] != t || !walk(w, o->out[0], moved(w, i, at), depth + 1))
			continue;
		w->use->next_token |= !strcmp(o->type, "NextToken");
		return true;
	}
	return false;
}

bool dlb_graph_label_use(const struct dlb_graph *g, int t, struct dlb_arena *a, struct dlb_label_use *use)
{
	struct label_walk w = { .g = g, .a = a, .use = use };
	const struct dlb_desc d = dlb_tensor_desc(&g->tensor[t], 1);
	struct dlb_error err;
	int64_t *at = NULL;
	bool found;

	*use = (struct dlb_label_use){ .n = dlb_desc_count(&d) };
	if (dlb_backend_find("cpu")->open(0, 1, &w.be, &err))
		return false;
	if (dlb_dtype_is_int(g->tensor[t].dtype)) {
		at = dlb_arena_array(&w.scratch, (size_t)use->n + 1, sizeof *at);
		for (int64_t i = 0; i < use->n; i++)
			at[i] = i + 1;
	}
	found = walk(&w, t, at, 0);
	if (!found)
		*use = (struct dlb_label_use){ .n = use->n };
	w.be.ops->close(&w.be);
	dlb_arena_release(&w.scratch);
	return found;
}

/* -- bounds of integer inputs, for generated data -- */

static int64_t bound_of(const struct dlb_graph *g, int t, int depth)
{
	int64_t bound = 0;

	for (int r = g->reader_start[t]; r < g->reader_start[t + 1]; r++) {
		const struct dlb_op *o = &g->op[g->reader[r]];
		const struct dlb_op_class *cls = dlb_op_class_of(o->kind);
		int64_t b = 0;
		if (!strncmp(o->type, "Gather", 6) && o->n_in > 1 && o->in[1] == t) {
			const struct dlb_tensor *data = &g->tensor[o->in[0]];
			int64_t axis = dlb_attr_int(o->attr, o->n_attr, "axis", 0);
			axis += axis < 0 ? data->n_dims : 0;
			b = axis >= 0 && axis < data->n_dims && !data->dim[axis].mul ? data->dim[axis].add :
										       0;
		} else if (is_loss(o) && o->n_in > 1 && o->in[1] == t) {
			const struct dlb_tensor *x = &g->tensor[o->in[0]];
			b = !cls->domain && x->n_dims > 1 ? x->dim[1].add : 2;
		} else if (moves(o) && o->in[0] == t && depth < DEEPEST) {
			b = bound_of(g, o->out[0], depth + 1);
		}
		if (b > 0 && (!bound || b < bound))
			bound = b;
	}
	return bound;
}

void dlb_graph_set_bounds(struct dlb_graph *g)
{
	dlb_graph_index(g);
	for (int i = 0; i < g->n_inputs; i++)
		if (dlb_dtype_is_int(g->tensor[g->input[i]].dtype))
			g->tensor[g->input[i]].bound = bound_of(g, g->input[i], 0);
}

int dlb_graph_count_losses(const struct dlb_graph *g)
{
	int n = 0;

	for (int i = 0; i < g->n_ops; i++)
		n += is_loss(&g->op[i]);
	return n;
}
