/* Finds initializers in the module's state_dict, by name or by value.
 *
 * Under a name like val_12, an exporter that folds constants leaves a Linear's weight transposed, an LSTM's
 * weights with the gates in ONNX's order and its two biases joined, a class token repeated over the batch, or
 * a position table cut to the used rows. Such an initializer is searched among the entries of the state_dict.
 * If it is found, the graph gets the entry as a tensor of its own shape, and ops that compute the initializer
 * from it (derived.c): Slice, Transpose, Reshape, Concat, Expand. Rewrites after folding remove most of them.
 * The searches are in state_search.c.
 *
 * Entries with equal values (norms and biases before training, clones of a layer) are distinguished by the
 * uses that the exporter lists for each vertex (dlb_op.uses), else taken in the order of the file. A
 * remaining entry that equals a found one is another name of the same weight. */
#include <stdlib.h>
#include <string.h>
#include "graph/state_search.h"

/* -- targets -- */

/* Uniform values alone are weak evidence: they match only in the role of a parameter, or as a token or table
 * that is concatenated or added. */
static bool may_be_uniform(struct dict_matching *m, int t)
{
	const struct dlb_graph *g = m->g;
	const char *why;

	if (dlb_role_find(&m->roles, t, &why))
		return true;
	/* a reader that is no normalization uses an entry of this size that was not found yet: a scale */
	for (int i = g->reader_start[t]; i < g->reader_start[t + 1]; i++)
		for (int k = 0; k < g->op[g->reader[i]].n_uses &&
				strcmp(g->op[g->reader[i]].type, "InstanceNormalization");
		     k++) {
			const int e = dlb_name_map_get(&m->names,
						       g->listed[g->op[g->reader[i]].uses[k]].name);
			if (e >= 0 && m->entry[e].v && m->entry[e].tensor < 0 &&
			    m->entry[e].count == dlb_role_count(g, t))
				return true;
		}
	for (int i = g->reader_start[t]; i < g->reader_start[t + 1]; i++)
		if (strcmp(g->op[g->reader[i]].type, "Concat") && strcmp(g->op[g->reader[i]].type, "Add"))
			return false;
	return dlb_role_count(g, t) > 1;
}

static bool is_target(struct dict_matching *m, int t, struct target *x)
{
	const struct dlb_tensor *d = &m->g->tensor[t];

	if (d->kind != DLB_T_CONSTANT || !d->initial || d->in_state || !dlb_dtype_is_float(d->dtype) ||
	    !d->data || d->n_dims < 1 || m->g->reader_start[t] == m->g->reader_start[t + 1])
		return false;
	*x = (struct target){ .t = t,
			      .count = dlb_role_count(m->g, t),
			      .n_dims = d->n_dims,
			      .first_reader = m->g->reader[m->g->reader_start[t]] };
	if (x->count < 1)
		return false;
	for (int k = 0; k < d->n_dims; k++)
		x->dim[k] = d->dim[k].add;
	x->v = dlb_state_as_f32(&m->a, d->data, d->dtype, x->count);
	x->uniform = dlb_state_is_uniform(x->v, x->count);
	return !x->uniform || may_be_uniform(m, t);
}

static int replace(struct dict_matching *m, const struct target *x, struct dlb_error *err)
{
	struct dlb_derived d = { .name = m->g->tensor[x->t].name,
				 .n_dims = x->n_dims,
				 .axis = x->axis,
				 .function = m->function,
				 .n_index = m->n_index,
				 .index = m->index,
				 .part = m->part,
				 .n_parts = m->n_parts };
	int source[DLB_LEN(m->source)];

	memcpy(d.dim, x->dim, sizeof d.dim);
	memcpy(d.base, x->base, sizeof d.base);
	for (int i = 0; i < m->n_parts; i++)
		source[i] = dlb_state_tensor_of(m, m->source[i]);
	if (dlb_derived_add(m->g, x->t, &d, source, err))
		return -1;
	m->g->tensor[x->t].initial = false;
	return 0;
}

static int by_first_reader(const void *a, const void *b)
{
	const struct target *x = a, *y = b;

	return x->first_reader != y->first_reader ?
		       (x->first_reader > y->first_reader) - (x->first_reader < y->first_reader) :
		       (x->t > y->t) - (x->t < y->t);
}

static int by_value(struct dict_matching *m, struct dlb_error *err)
{
	static bool (*const searches[])(struct dict_matching * m,
					struct target * x) = { dlb_state_by_whole, dlb_state_by_joined,
							       dlb_state_by_rows, dlb_state_by_lookup,
							       dlb_state_by_function };
	const int n_tensors = m->g->n_tensors;
	struct target *x = dlb_xcalloc((size_t)n_tensors + 1, sizeof *x);
	int n = 0, rc = 0;

	for (int t = 0; t < n_tensors; t++)
		n += is_target(m, t, &x[n]);
	qsort(x, (size_t)n, sizeof *x, by_first_reader);
	for (int s = 0; s < DLB_LEN(searches) && !rc; s++)
		for (int i = 0; i < n && !rc; i++)
			if (x[i].t >= 0 && searches[s](m, &x[i])) {
				rc = replace(m, &x[i], err);
				m->function = DLB_DERIVED_SAME;
				m->index = NULL;
				x[i].t = -1;
			}
	free(x);
	return rc;
}

/* -- the remaining entries -- */

static bool uses_anything(const struct dlb_graph *g)
{
	for (int i = 0; i < g->n_ops; i++)
		if (g->op[i].n_uses)
			return true;
	return false;
}

static bool is_used_anywhere(const struct dlb_graph *g, const char *name)
{
	for (int i = 0; i < g->n_ops; i++)
		for (int k = 0; k < g->op[i].n_uses; k++)
			if (!strcmp(g->listed[g->op[i].uses[k]].name, name))
				return true;
	return false;
}

static void add_name(struct dlb_graph *g, struct dlb_tensor *t, const char *name)
{
	int n = 0;

	while (t->also && t->also[n])
		n++;
	const char **all = dlb_arena_array(&g->arena, (size_t)n + 2, sizeof *all);
	if (n)
		memcpy(all, t->also, (size_t)n * sizeof *all);
	all[n] = dlb_arena_strdup(&g->arena, name);
	t->also = all;
}

/* Do several vertices read the entry's tensor? */
static bool is_shared(const struct dlb_graph *g, const struct dict_entry *e)
{
	int n = 0;

	for (int i = 0; i < g->n_ops; i++)
		for (int k = 0; k < g->op[i].n_in; k++)
			n += g->op[i].in[k] == e->tensor;
	return n > 1;
}

/* The weight of which entry i, itself not found, is another name: a found entry with equal values, if several
 * vertices read it or some vertex uses the name of entry i. A clone that the model does not run is no other
 * name. NULL: none. */
static struct dict_entry *same_weight(const struct dict_matching *m, int i, bool told)
{
	const struct dict_entry *e = &m->entry[i];

	if (!e->v || e->tensor >= 0 || e->uniform || e->count < LEAST_TIED)
		return NULL;
	const bool used = !told || is_used_anywhere(m->g, e->e->name);
	for (int k = m->bucket[dlb_state_bucket_of(m, e->print, e->count)]; k >= 0; k = m->entry[k].next) {
		struct dict_entry *same = &m->entry[k];
		if (k != i && same->tensor >= 0 && same->print == e->print &&
		    dlb_desc_same_shape(&same->e->desc, &e->e->desc) &&
		    !memcmp(same->v, e->v, (size_t)e->count * sizeof *e->v) &&
		    (used || is_shared(m->g, same)))
			return same;
	}
	return NULL;
}

static void name_aliases(struct dict_matching *m)
{
	struct dlb_graph *g = m->g;
	const bool told = uses_anything(g);
	int n = 0;

	for (int i = 0; i < m->n_entries; i++) {
		struct dict_entry *e = &m->entry[i], *same = same_weight(m, i, told);
		m->parted |= same && m->untie;
		if (!same || m->untie)
			continue;
		add_name(g, &g->tensor[same->tensor], e->e->name);
		if (!n++)
			dlb_graph_note(
				g,
				"'%s' and '%s' of the state_dict are one weight: --untie trains them apart",
				same->e->name, e->e->name);
		e->tensor = same->tensor;
	}
}

static void say_untied(struct dlb_graph *g)
{
	dlb_graph_note(g, "--untie has no effect: no weight has the values of another, or was made of them");
}

/* Notes parameters of the state_dict that the model lacks, such as a normalization
 * folded into a convolution. */
static void say_missing(struct dict_matching *m)
{
	const char *first = NULL;
	int64_t elements = 0;
	int n = 0;

	for (int i = 0; i < m->n_entries; i++) {
		const struct dict_entry *e = &m->entry[i];
		if (e->tensor >= 0 || !e->v || !m->g->n_listed)
			continue;
		first = first ? first : e->e->name;
		elements += e->count;
		n++;
	}
	if (n)
		dlb_graph_note(m->g,
			       "%d parameter%s of the state_dict, of %lld elements, %s not in the model "
			       "('%s'%s): not trained, and saved as %s; torch.onnx.export(model, args, FILE, "
			       "optimize=False) keeps what the model uses",
			       n, n == 1 ? "" : "s", (long long)elements, n == 1 ? "is" : "are", first,
			       n == 1 ? "" : " ...", n == 1 ? "it is" : "they are");
}

int dlb_graph_take_state(struct dlb_graph *g, const struct dlb_named *entry, int n, bool untie,
			 struct dlb_error *err)
{
	struct dict_matching *m = dlb_xcalloc(1, sizeof *m);
	int found = 0, rc;

	m->g = g;
	m->untie = untie;
	m->folded_norms = dlb_state_has_folded_norms(g);
	m->n_indexed = g->n_tensors;
	dlb_roles_init(&m->roles, g);
	dlb_state_take_entries(m, entry, n);
	for (int t = 0; t < g->n_tensors; t++)
		if (g->tensor[t].kind == DLB_T_CONSTANT && g->tensor[t].initial)
			found += dlb_state_by_name(m, t);
	rc = by_value(m, err);
	for (int i = 0; i < n; i++)
		found += m->entry[i].tensor >= m->n_indexed;
	if (!rc && !found) {
		dlb_fail(err, NULL,
			 "none of the tensors of the state_dict is in the model, by name or by value");
		rc = dlb_hint(
			err,
			"it must be of the module that was exported: save_file(module.state_dict(), ...)");
	}
	if (m->n_changed)
		dlb_graph_note(
			g,
			"%d weight%s other values in the model than in the state_dict, since "
			"BatchNormalization was folded in: the "
			"model's are trained, and what is saved of them is no state_dict of the module",
			m->n_changed, m->n_changed == 1 ? " has" : "s have");
	if (!rc) {
		name_aliases(m);
		if (untie && !m->parted)
			say_untied(g);
		say_missing(m);
		rc = dlb_graph_sort(g, err);
	}
	dlb_roles_release(&m->roles);
	dlb_name_map_release(&m->names);
	dlb_arena_release(&m->a);
	free(m);
	return rc;
}

/* -- without a state_dict -- */

static bool is_in_list(const struct dlb_graph *g, const char *name)
{
	for (int i = 0; i < g->n_listed; i++)
		if (!strcmp(g->listed[i].name, name))
			return true;
	return false;
}

/* Takes as entries the initializers that others may equal: tables of lookups, and listed parameters. */
static void take_own_entries(struct dict_matching *m)
{
	struct dlb_graph *g = m->g;
	struct dlb_named *entry = dlb_arena_array(&m->a, (size_t)g->n_tensors + 1, sizeof *entry);
	int *tensor = dlb_arena_array(&m->a, (size_t)g->n_tensors + 1, sizeof *tensor), n = 0;

	for (int t = 0; t < g->n_tensors; t++)
		if (dlb_role_is_candidate(g, t) && g->tensor[t].kind == DLB_T_CONSTANT && g->tensor[t].data &&
		    (dlb_state_is_table(g, t) ||
		     (g->n_listed && dlb_state_is_listed_parameter(g, g->tensor[t].name)))) {
			entry[n] = (struct dlb_named){ g->tensor[t].name, dlb_tensor_desc(&g->tensor[t], 1),
						       g->tensor[t].data };
			tensor[n++] = t;
		}
	dlb_state_take_entries(m, entry, n);
	for (int i = 0; i < n; i++)
		m->entry[i].tensor = tensor[i];
}

static bool is_own_target(struct dict_matching *m, int t, struct target *x)
{
	const char *why;

	return is_target(m, t, x) && !x->uniform && !dlb_state_is_table(m->g, t) &&
	       !is_in_list(m->g, m->g->tensor[t].name) &&
	       (m->g->n_listed || dlb_role_find(&m->roles, t, &why));
}

/* An operand of a product that equals a table may be meant as a separate weight, so it is noted; a copy of a
 * parameter is only counted. Returns the new number of copies. */
static int say_own(struct dict_matching *m, const struct target *x, int n_copies)
{
	struct dlb_graph *g = m->g;

	for (int i = 0; i < m->n_parts; i++)
		if (!dlb_state_is_tied(m, &m->entry[m->source[i]], x->t))
			return n_copies + 1;
	dlb_graph_note(g, "'%s' has the values of '%s': they are one weight; --untie trains them apart",
		       g->tensor[x->t].name, m->entry[m->source[0]].e->name);
	return n_copies;
}

int dlb_graph_tie(struct dlb_graph *g, bool untie, struct dlb_error *err)
{
	struct dict_matching *m = dlb_xcalloc(1, sizeof *m);
	const char *first = NULL;
	int n_copies = 0, rc = 0;

	m->g = g;
	m->own = true;
	m->n_indexed = g->n_tensors;
	dlb_roles_init(&m->roles, g);
	take_own_entries(m);
	for (int t = 0; t < m->n_indexed && m->n_entries && !rc; t++) {
		struct target x;
		if (!is_own_target(m, t, &x) ||
		    !(dlb_state_by_whole(m, &x) ||
		      (g->n_listed && (dlb_state_by_joined(m, &x) || dlb_state_by_rows(m, &x)))))
			continue;
		m->parted = untie;
		if (untie)
			break;
		const int before = n_copies;
		n_copies = say_own(m, &x, n_copies);
		first = first || n_copies == before ? first : g->tensor[t].name;
		rc = replace(m, &x, err);
	}
	if (untie && !m->parted)
		say_untied(g);
	if (n_copies)
		dlb_graph_note(g,
			       "%d initializer%s ('%s'%s) %s made of weights that the model has too: %s one "
			       "with them; --untie parts them",
			       n_copies, n_copies == 1 ? "" : "s", first, n_copies == 1 ? "" : " ...",
			       n_copies == 1 ? "is" : "are", n_copies == 1 ? "it is" : "they are");
	dlb_roles_release(&m->roles);
	dlb_name_map_release(&m->names);
	dlb_arena_release(&m->a);
	free(m);
	return rc || dlb_graph_sort(g, err) ? -1 : 0;
}
