/* Parameters that the exporter merged are taken apart again.
 *
 * PyTorch's exporter keeps one copy of initializers with equal values, so before training all biases of zeros of one size
 * are one initializer with the name of one of them, and so are the weights of a layer's clones. They are separate
 * parameters. The exporter says of each vertex which parameters it uses (dlb_op.uses): a vertex that reads an initializer
 * and uses a parameter that is not in the file, in place of the one that the initializer is named after, gets a copy with
 * that parameter's name. An initializer without a name of the list is copied for each parameter that its readers use.
 *
 * Parameters that are one in the framework are one in the list of uses too, and stay one. */
#include <stdlib.h>
#include <string.h>
#include "graph/role.h"
#include "graph/rewrite.h"

struct merging {
	struct dlb_graph *g;
	struct dlb_roles roles;
	int *place;			/* [index of the list] the tensor of that name, -1: none */
	int *listed;			/* [tensor, as read] its index in the list, -1 */
	int n_copies;
};

static const char *last_word(const char *name)
{
	const char *dot = strrchr(name, '.');

	return dot ? dot + 1 : name;
}

static bool uses(const struct dlb_op *o, int at)
{
	for (int i = 0; i < o->n_uses; i++)
		if (o->uses[i] == at)
			return true;
	return false;
}

/* What operand k of the vertex is used as: the one missing parameter that it can be; -1: none, or several. `like`: the name of
 * the initializer, or NULL; "weight" and "bias" are not mistaken for each other. */
static int missing_use(const struct merging *m, const struct dlb_op *o, int k, const char *like)
{
	const bool bias = !strcmp(o->type, "Add") || (k == 2 && strcmp(o->type, "LSTM") && strcmp(o->type, "GRU"));
	int found = -1;

	for (int i = 0; i < o->n_uses; i++) {
		const struct dlb_listed *p = &m->g->listed[o->uses[i]];
		if (p->kind != DLB_LISTED_PARAMETER || m->place[o->uses[i]] >= 0 || o->uses[i] == found)
			continue;
		const char *word = last_word(p->name);
		if (like ? strcmp(word, last_word(like)) != 0 : !strcmp(word, "bias") != bias && (!strcmp(word, "bias") || !strcmp(word, "weight")))
			continue;
		if (found >= 0)
			return -1;
		found = o->uses[i];
	}
	return found;
}

static void note(struct dlb_graph *g, const char *name, const char *of, const char *vertex)
{
	struct dlb_unmerged *all = dlb_arena_array(&g->arena, (size_t)g->n_unmerged + 1, sizeof *all);

	if (g->n_unmerged)
		memcpy(all, g->unmerged, (size_t)g->n_unmerged * sizeof *all);
	all[g->n_unmerged++] = (struct dlb_unmerged){ name, of, vertex };
	g->unmerged = all;
}

static int copy(struct merging *m, int t, const char *name)
{
	struct dlb_graph *g = m->g;
	const struct dlb_tensor from = g->tensor[t];
	const int c = dlb_graph_add_tensor(g, dlb_graph_tensor_name(g, name), DLB_T_CONSTANT);
	struct dlb_tensor *x = &g->tensor[c];
	const char *own = x->name;

	*x = from;
	x->name = own;
	x->from = from.from ? from.from : from.name;
	m->n_copies++;
	return c;
}

/* Operand k of op i becomes the copy. */
static void redirect(struct merging *m, int i, int k, int c)
{
	struct dlb_graph *g = m->g;
	struct dlb_op *o = &g->op[i];

	note(g, g->tensor[c].name, g->tensor[o->in[k]].name, o->name);
	o->in[k] = c;
}

/* An initializer of the list: readers that use another parameter read a copy of that one's name. */
static void split_named(struct merging *m, int t)
{
	struct dlb_graph *g = m->g;
	const int start = g->reader_start[t], end = g->reader_start[t + 1];

	for (int r = start; r < end; r++) {
		const int i = g->reader[r];
		for (int k = 0; k < g->op[i].n_in; k++) {
			if (g->op[i].in[k] != t || !g->op[i].n_uses || uses(&g->op[i], m->listed[t]))
				continue;
			const int p = missing_use(m, &g->op[i], k, g->tensor[t].name);
			if (p < 0)
				continue;
			const int c = copy(m, t, g->listed[p].name);
			for (int s = r; s < end; s++)		/* all that use it */
				for (int n = 0; n < g->op[g->reader[s]].n_in; n++)
					if (g->op[g->reader[s]].in[n] == t && uses(&g->op[g->reader[s]], p) &&
					    !uses(&g->op[g->reader[s]], m->listed[t]))
						redirect(m, g->reader[s], n, c);
			m->place[p] = c;
		}
	}
}

/* One that has no name of the list: its readers by the parameter that they use; the first ones keep it. */
static void split_nameless(struct merging *m, int t)
{
	struct dlb_graph *g = m->g;
	const int start = g->reader_start[t], end = g->reader_start[t + 1];
	struct { int p, c; } *done = dlb_xcalloc((size_t)(end - start) + 1, sizeof *done);
	const char *why;
	int n = 0;

	if (end - start > 1 && dlb_role_find(&m->roles, t, &why))
		for (int r = start; r < end; r++) {
			const int i = g->reader[r];
			for (int k = 0; k < g->op[i].n_in; k++) {
				const int p = g->op[i].in[k] == t ? missing_use(m, &g->op[i], k, NULL) : -1;
				int d = 0;
				while (d < n && done[d].p != p)
					d++;
				if (p < 0)
					continue;
				if (d == n) {
					done[n].p = p;
					done[n].c = n ? copy(m, t, g->tensor[t].name) : t;
					n++;
				}
				if (done[d].c != t)
					redirect(m, i, k, done[d].c);
			}
		}
	free(done);
}

void dlb_graph_unmerge(struct dlb_graph *g)
{
	const int n = g->n_tensors;
	struct dlb_name_map names = { 0 };
	struct merging m = { .g = g };

	if (!g->n_listed)
		return;
	dlb_roles_init(&m.roles, g);
	m.place = dlb_xcalloc((size_t)g->n_listed + 1, sizeof *m.place);
	m.listed = dlb_xcalloc((size_t)n + 1, sizeof *m.listed);
	for (int i = 0; i < g->n_listed; i++) {
		m.place[i] = -1;
		dlb_name_map_add(&names, g->listed[i].name, i);
	}
	for (int t = 0; t < n; t++) {
		m.listed[t] = dlb_name_map_get(&names, g->tensor[t].name);
		if (m.listed[t] >= 0)
			m.place[m.listed[t]] = t;
	}
	for (int t = 0; t < n; t++)
		if (dlb_role_is_candidate(g, t) && g->tensor[t].kind == DLB_T_CONSTANT && m.listed[t] >= 0)
			split_named(&m, t);
	for (int t = 0; t < n; t++)
		if (dlb_role_is_candidate(g, t) && g->tensor[t].kind == DLB_T_CONSTANT && m.listed[t] < 0 && g->tensor[t].n_dims > 0)
			split_nameless(&m, t);
	if (m.n_copies)
		dlb_graph_note(g, "%d parameter%s that the exporter merged with others of equal values %s trained apart", m.n_copies,
			       m.n_copies == 1 ? "" : "s", m.n_copies == 1 ? "is" : "are");
	dlb_roles_release(&m.roles);
	dlb_name_map_release(&names);
	free(m.place);
	free(m.listed);
	dlb_graph_index(g);
}
