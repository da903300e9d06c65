/* Freezes weights of a graph that is trained: no gradient is computed for them, and no update changes them.
 *
 * Unlike the weights of dlb-profile --freeze, they stay weights and do not become constants: their values
 * come from the run, so they are state, which moves between nodes and is in checkpoints. Their home is the
 * first op that reads them. Backward ops and updates are made anew; the forward ops and all their tensors
 * keep their ids. */
#include <stdlib.h>
#include <string.h>
#include "graph/order.h"
#include "graph/passes.h"
#include "graph/slice.h"

/* Patterns match the name of the whole tensor: slices of one tensor of the model are frozen together. */
static const char *whole_name(const struct dlb_tensor *t) { return t->slice ? t->slice->of : t->name; }

static int64_t elements(const struct dlb_tensor *t)
{
	const struct dlb_desc d = dlb_tensor_desc(t, 1);

	return dlb_desc_count(&d);
}

static int check_names(const struct dlb_graph *g, const struct dlb_patterns *p, struct dlb_error *err)
{
	const char **name = dlb_xcalloc((size_t)g->n_tensors + 1, sizeof *name);
	int n = 0, rc;

	for (int t = 0; t < g->n_tensors; t++)
		if (g->tensor[t].kind == DLB_T_WEIGHT)
			name[n++] = whole_name(&g->tensor[t]);
	rc = dlb_patterns_check(p, name, n, err);
	free(name);
	return rc;
}

/* Marks the weights; returns how many weights are still trained. */
static int mark(struct dlb_graph *g, const struct dlb_patterns *p, struct dlb_frozen *f)
{
	int trained = 0;

	*f = (struct dlb_frozen){ 0, 0 };
	for (int t = 0; t < g->n_tensors; t++) {
		struct dlb_tensor *x = &g->tensor[t];

		if (x->kind != DLB_T_WEIGHT || x->frozen)
			continue;
		if (dlb_patterns_match(p, whole_name(x)) < 0) {
			trained++;
			continue;
		}
		x->frozen = true;
		x->why = dlb_arena_strdup(&g->arena, p->what);
		f->weights += !x->slice || !x->slice->first;
		f->elements += elements(x);
	}
	return trained;
}

int dlb_graph_freeze(struct dlb_graph *g, const struct dlb_patterns *p, struct dlb_frozen *f,
		     struct dlb_error *err)
{
	int n_forward;

	if (check_names(g, p, err))
		return -1;
	if (!mark(g, p, f))
		return dlb_refuse(err, NULL, "leave out a pattern",
				  "%s '%s': no weight would be trained any more", p->what, p->item[0]);
	if (!f->weights)
		return 0;
	dlb_graph_undifferentiate(g);
	n_forward = g->n_ops;
	if (dlb_graph_differentiate(g, err))
		return -1;
	/* ids of ops are keys of random numbers, and the data feed refers to inputs by id */
	for (int i = 0; i < n_forward; i++)
		if (i >= g->n_ops || g->op[i].phase != DLB_FORWARD)
			dlb_bug("freezing weights has dropped a forward op");
	return dlb_graph_check(g, err) || dlb_graph_index(g) ? -1 : 0;
}

void dlb_graph_ops_before(const struct dlb_graph *was, const struct dlb_graph *now, int *before)
{
	struct dlb_name_map id = { 0 };

	for (int i = 0; i < was->n_ops; i++)
		dlb_name_map_add(&id, was->op[i].name, i);
	for (int i = 0; i < now->n_ops; i++) {
		const struct dlb_op *o = &now->op[i];

		before[i] = dlb_name_map_get(&id, o->name);
		if (before[i] < 0 && o->of >= 0)
			before[i] = before[o->of];
		if (before[i] < 0)
			dlb_bug("op '%s' is of no op of the graph before", o->name);
	}
	dlb_name_map_release(&id);
}
