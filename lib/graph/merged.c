/* Separates parameters that the exporter merged.
 *
 * PyTorch's exporter keeps one copy of initializers with equal values. Before training, all zero biases of
 * one size are one initializer, named after one of them, and so are the weights of a layer's clones. But they
 * are separate parameters. The exporter lists the parameters that each vertex uses (dlb_op.uses). A vertex
 * that reads an initializer, but uses a parameter that is missing in the file instead of the one that the
 * initializer is named after, gets a copy with the missing parameter's name. An initializer that the list
 * does not name is copied for each parameter that its readers use. This includes initializers that the
 * exporter computed from a parameter, such as 1 + weight of Gemma's norms.
 *
 * For the same reason, Gemm and Conv get back a zero bias that they use but do not read. Initializers that
 * the exporter computed from one parameter, one for each vertex that uses it, become one initializer.
 *
 * Before training, the scale of a BatchNormalization equals its running variance (ones), and its bias the
 * running mean (zeros): running statistics that share an initializer get copies too, named after the
 * list's buffers.
 *
 * A parameter that several layers share in the framework has one name in the lists of uses, and stays one
 * parameter. */
#include <stdlib.h>
#include <string.h>
#include "graph/derived.h"
#include "graph/order.h"
#include "graph/passes.h"
#include "graph/role.h"
#include "graph/rewrite.h"

struct merging {
	struct dlb_graph *g;
	struct dlb_roles roles;
	int *place;			/* [index in the list] the tensor of that name, -1: none */
	int *listed;			/* [tensor, as read] its index in the list, -1 */
	bool *weight;			/* [tensor, as read] an initializer that the list does not name,
					 * with the role of a parameter */
	int n_copies, n_statistics;
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

static bool is_recurrent(const struct dlb_op *o)
{
	return !strcmp(o->type, "LSTM") || !strcmp(o->type, "GRU") || !strcmp(o->type, "RNN");
}

/* Can operand k of the vertex be `parameter`? `like`: the initializer's name, or NULL; `exactly`: the last
 * words of both names must be equal. A weight does not match a bias. */
static bool suits(const struct dlb_op *o, int k, const char *parameter, const char *like, bool exactly)
{
	const enum dlb_word word = dlb_role_word(parameter);

	if (like && (exactly || !word || word != dlb_role_word(like)))
		return !strcmp(last_word(parameter), last_word(like));
	return like || !word || is_recurrent(o) ||
	       (word == DLB_WORD_BIAS) == (k == 2 || !strcmp(o->type, "Add"));
}

/* The missing parameter that operand k of the vertex stands for, among the first n_uses parameters in the
 * vertex's list; -1: none, or several candidates. */
static int missing_of(const struct merging *m, const struct dlb_op *o, int k, const char *like, int n_uses)
{
	for (int exactly = like != NULL; exactly >= 0; exactly--) {
		int found = -1, n = 0;
		for (int i = 0; i < n_uses; i++) {
			const struct dlb_listed *p = &m->g->listed[o->uses[i]];
			if (p->kind != DLB_LISTED_PARAMETER || m->place[o->uses[i]] >= 0 ||
			    o->uses[i] == found || !suits(o, k, p->name, like, exactly))
				continue;
			found = o->uses[i];
			n++;
		}
		if (n)
			return n == 1 ? found : -1;
	}
	return -1;
}

static int missing_use(const struct merging *m, const struct dlb_op *o, int k, const char *like)
{
	return missing_of(m, o, k, like, o->n_uses);
}

static void note(struct dlb_graph *g, const char *name, const char *of, const char *vertex, int operand)
{
	struct dlb_unmerged *all = dlb_arena_array(&g->arena, (size_t)g->n_unmerged + 1, sizeof *all);

	if (g->n_unmerged)
		memcpy(all, g->unmerged, (size_t)g->n_unmerged * sizeof *all);
	all[g->n_unmerged++] = (struct dlb_unmerged){ name, of, vertex, operand };
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

/* Replaces operand k of op i by copy c, and records it. */
static void redirect(struct merging *m, int i, int k, int c)
{
	struct dlb_graph *g = m->g;
	struct dlb_op *o = &g->op[i];

	note(g, g->tensor[c].name, g->tensor[o->in[k]].name, o->name, 0);
	o->in[k] = c;
}

/* Makes operand k of op i a constant of its own: the ones of a decomposed GroupNormalization are no
 * parameter, even if a parameter has equal values. */
static void part_from_ones(struct merging *m, int i, int k)
{
	const int t = m->g->op[i].in[k],
		  c = copy(m, t, dlb_arena_printf(&m->g->arena, "%s.constant", m->g->op[i].name));

	redirect(m, i, k, c);
	m->g->tensor[c].initial = false;
	m->n_copies--;
}

/* The name of buffer `word` of the module whose parameter the vertex uses, if the list has it; else the
 * vertex's name with `word`. */
static const char *buffer_name(struct merging *m, const struct dlb_op *o, const char *word)
{
	struct dlb_graph *g = m->g;

	for (int u = 0; u < o->n_uses; u++) {
		const char *name = g->listed[o->uses[u]].name, *end = last_word(name);
		const char *want = dlb_arena_printf(&g->arena, "%.*s%s", (int)(end - name), name, word);
		for (int i = 0; i < g->n_listed; i++)
			if (g->listed[i].kind == DLB_LISTED_BUFFER && !strcmp(g->listed[i].name, want))
				return want;
	}
	return dlb_arena_printf(&g->arena, "%s.%s", o->name, word);
}

static int n_reads(const struct dlb_graph *g, int t)
{
	int n = 0;

	for (int i = 0; i < g->n_ops; i++)
		for (int k = 0; k < g->op[i].n_in; k++)
			n += g->op[i].in[k] == t;
	return n;
}

/* Gives the running statistics of BatchNormalization i initializers of their own. */
static void part_from_statistics(struct merging *m, int i)
{
	struct dlb_graph *g = m->g;

	if (strcmp(g->op[i].type, "BatchNormalization") || *g->op[i].domain || g->op[i].n_in < 5)
		return;
	for (int k = 3; k < 5; k++) {
		const int t = g->op[i].in[k];
		if (t < 0 || !dlb_role_is_candidate(g, t) || g->tensor[t].kind != DLB_T_CONSTANT ||
		    n_reads(g, t) == 1)
			continue;
		const char *name = buffer_name(m, &g->op[i], k == 3 ? "running_mean" : "running_var");
		if (!strcmp(g->tensor[t].name, name))
			continue;
		const int c = copy(m, t, name);
		note(g, g->tensor[c].name, g->tensor[t].name, g->op[i].name, k);
		g->op[i].in[k] = c;
		m->n_copies--;
		m->n_statistics++;
	}
}

/* For an initializer of the list: readers that use another parameter read a copy
 * named after that parameter. */
static void split_named(struct merging *m, int t)
{
	struct dlb_graph *g = m->g;
	const int start = g->reader_start[t], end = g->reader_start[t + 1];

	for (int r = start; r < end; r++) {
		const int i = g->reader[r];
		for (int k = 0; k < g->op[i].n_in; k++) {
			if (g->op[i].in[k] != t || !g->op[i].n_uses || uses(&g->op[i], m->listed[t]))
				continue;
			if (dlb_role_is_decomposed_group_norm(&m->roles, &g->op[i], t)) {
				part_from_ones(m, i, k);
				continue;
			}
			const int p = missing_use(m, &g->op[i], k, g->tensor[t].name);
			if (p < 0)
				continue;
			const int c = copy(m, t, g->listed[p].name);
			for (int s = r; s < end; s++)		/* redirects all readers of t that use p */
				for (int n = 0; n < g->op[g->reader[s]].n_in; n++)
					if (g->op[g->reader[s]].in[n] == t && uses(&g->op[g->reader[s]], p) &&
					    !dlb_role_is_decomposed_group_norm(&m->roles,
									       &g->op[g->reader[s]], t) &&
					    !uses(&g->op[g->reader[s]], m->listed[t]))
						redirect(m, g->reader[s], n, c);
			m->place[p] = c;
		}
	}
}

/* For an initializer that the list does not name: one copy for each parameter that readers use; the
 * first keeps the original. */
static void split_nameless(struct merging *m, int t)
{
	struct dlb_graph *g = m->g;
	const int start = g->reader_start[t], end = g->reader_start[t + 1];
	struct { int p, c; } *done = dlb_xcalloc((size_t)(end - start) + 1, sizeof *done);
	int n = 0;

	if (end - start > 1)
		for (int r = start; r < end; r++) {
			const int i = g->reader[r];
			for (int k = 0; k < g->op[i].n_in; k++) {
				int p = g->op[i].in[k] == t ? missing_use(m, &g->op[i], k, NULL) : -1, d = 0;
				if (p < 0 && g->op[i].in[k] == t)
					p = missing_of(m, &g->op[i], k, NULL, g->op[i].n_may_use);
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

/* -- zero biases, which the exporter omits in Gemm and Conv -- */

/* Output channels, from the weight's shape; 0: unknown. */
static int64_t channels(const struct dlb_graph *g, const struct dlb_op *o)
{
	const struct dlb_tensor *w = o->n_in > 1 && o->in[1] >= 0 ? &g->tensor[o->in[1]] : NULL;

	if (!w || w->kind != DLB_T_CONSTANT || w->n_dims < 2)
		return 0;
	if (!strcmp(o->type, "Gemm"))
		return w->dim[!dlb_attr_int(o->attr, o->n_attr, "transB", 0)].add;
	if (!strcmp(o->type, "ConvTranspose"))
		return w->dim[1].add * dlb_attr_int(o->attr, o->n_attr, "group", 1);
	return strcmp(o->type, "Conv") ? 0 : w->dim[0].add;
}

static bool add_bias(struct merging *m, int i)
{
	struct dlb_graph *g = m->g;
	const int64_t n = !*g->op[i].domain &&
					  (g->op[i].n_in == 2 || (g->op[i].n_in > 2 && g->op[i].in[2] < 0)) ?
				  channels(g, &g->op[i]) :
				  0;
	const int p = n ? missing_use(m, &g->op[i], 2, "bias") : -1;

	if (p < 0)
		return false;
	const int b = dlb_graph_add_tensor(g, dlb_graph_tensor_name(g, g->listed[p].name), DLB_T_CONSTANT);
	struct dlb_tensor *x = &g->tensor[b];
	x->dtype = g->tensor[g->op[i].in[1]].dtype;
	x->n_dims = 1;
	x->dim[0] = (struct dlb_dim){ 0, n };
	x->data = dlb_arena_array(&g->arena, (size_t)n, dlb_dtype_bytes(x->dtype));
	memset((void *)(uintptr_t)x->data, 0, (size_t)n * dlb_dtype_bytes(x->dtype));
	x->initial = true;
	int *in = dlb_arena_array(&g->arena, 3, sizeof *in);
	memcpy(in, g->op[i].in, 2 * sizeof *in);
	in[2] = b;
	g->op[i].in = in;
	g->op[i].n_in = 3;
	m->place[p] = b;
	note(g, x->name, "", g->op[i].name, 0);
	return true;
}

/* -- initializers that the exporter computed from one parameter, one for each reader -- */

static bool same_tensor(const struct dlb_graph *g, int a, int b)
{
	const struct dlb_desc x = dlb_tensor_desc(&g->tensor[a], 1), y = dlb_tensor_desc(&g->tensor[b], 1);

	return dlb_desc_same_shape(&x, &y) && x.dtype == y.dtype && g->tensor[a].data && g->tensor[b].data &&
		!memcmp(g->tensor[a].data, g->tensor[b].data, dlb_desc_bytes(&x));
}

/* The missing parameter that t stands for in all its readers; -1: none, or several. */
static int use_of(const struct merging *m, int t)
{
	const struct dlb_graph *g = m->g;
	int found = -1;

	for (int r = g->reader_start[t]; r < g->reader_start[t + 1]; r++)
		for (int k = 0; k < g->op[g->reader[r]].n_in; k++) {
			if (g->op[g->reader[r]].in[k] != t)
				continue;
			const int p = missing_use(m, &g->op[g->reader[r]], k, NULL);
			if (p < 0 || (found >= 0 && found != p))
				return -1;
			found = p;
		}
	return found;
}

static int join(struct merging *m, int t, int *first, struct dlb_error *err)
{
	struct dlb_graph *g = m->g;
	const int p = use_of(m, t);

	if (p < 0)
		return 0;
	if (first[p] < 0 || !same_tensor(g, first[p], t)) {
		first[p] = first[p] < 0 ? t : first[p];
		return 0;
	}
	const struct dlb_desc d = dlb_tensor_desc(&g->tensor[t], 1);
	struct dlb_part part = {
		.of = g->tensor[first[p]].name, .n_dims = d.n_dims, .count = d.dim[0], .length = d.dim[0]
	};
	struct dlb_derived whole = {
		.name = g->tensor[t].name, .n_dims = d.n_dims, .n_parts = 1, .part = &part
	};
	memcpy(part.dim, d.dim, sizeof part.dim);
	memcpy(whole.dim, d.dim, sizeof whole.dim);
	memcpy(whole.base, d.dim, sizeof whole.base);
	for (int k = 0; k < d.n_dims; k++)
		part.perm[k] = k;
	g->tensor[t].initial = false;
	return dlb_derived_add(g, t, &whole, &first[p], err);
}

static int join_all(struct merging *m, int n, struct dlb_error *err)
{
	struct dlb_graph *g = m->g;
	int *first = dlb_xcalloc((size_t)g->n_listed + 1, sizeof *first), rc = 0;

	for (int i = 0; i < g->n_listed; i++)
		first[i] = -1;
	for (int t = 0; t < n && !rc; t++)
		if (m->weight[t])
			rc = join(m, t, first, err);
	free(first);
	return rc;
}

/* To be called before copies are made: roles are found on the graph as read. */
static void find_weights(struct merging *m, int n)
{
	const struct dlb_graph *g = m->g;
	const char *why;

	for (int t = 0; t < n; t++)
		m->weight[t] = dlb_role_is_candidate(g, t) && g->tensor[t].kind == DLB_T_CONSTANT &&
			       m->listed[t] < 0 && g->tensor[t].n_dims > 0 &&
			       dlb_role_find(&m->roles, t, &why);
}

int dlb_graph_unmerge(struct dlb_graph *g, struct dlb_error *err)
{
	const int n = g->n_tensors;
	struct dlb_name_map names = { 0 };
	struct merging m = { .g = g };

	int rc, n_biases = 0;

	if (!g->n_listed)
		return 0;
	dlb_roles_init(&m.roles, g);
	m.place = dlb_xcalloc((size_t)g->n_listed + 1, sizeof *m.place);
	m.listed = dlb_xcalloc((size_t)n + 1, sizeof *m.listed);
	m.weight = dlb_xcalloc((size_t)n + 1, sizeof *m.weight);
	for (int i = 0; i < g->n_listed; i++) {
		m.place[i] = -1;
		dlb_name_map_add(&names, g->listed[i].name, i);
	}
	for (int t = 0; t < n; t++) {
		m.listed[t] = dlb_name_map_get(&names, g->tensor[t].name);
		if (m.listed[t] >= 0)
			m.place[m.listed[t]] = t;
	}
	for (int i = 0; i < g->n_ops; i++)
		part_from_statistics(&m, i);
	find_weights(&m, n);
	for (int t = 0; t < n; t++)
		if (dlb_role_is_candidate(g, t) && g->tensor[t].kind == DLB_T_CONSTANT && m.listed[t] >= 0)
			split_named(&m, t);
	for (int t = 0; t < n; t++)
		if (m.weight[t])
			split_nameless(&m, t);
	rc = join_all(&m, n, err);
	for (int i = 0; i < g->n_ops && !rc; i++)
		n_biases += add_bias(&m, i);
	if (n_biases)
		dlb_graph_note(g, "%d bias%s of zeros that the exporter left out %s trained", n_biases,
			       n_biases == 1 ? "" : "es", n_biases == 1 ? "is" : "are");
	if (m.n_copies)
		dlb_graph_note(g,
			       "%d parameter%s that the exporter merged with others of equal values %s "
			       "trained apart",
			       m.n_copies, m.n_copies == 1 ? "" : "s", m.n_copies == 1 ? "is" : "are");
	if (m.n_statistics)
		dlb_graph_note(g,
			       "%d running statistic%s of BatchNormalization that the exporter merged with "
			       "weights of equal values %s kept apart",
			       m.n_statistics, m.n_statistics == 1 ? "" : "s",
			       m.n_statistics == 1 ? "is" : "are");
	dlb_roles_release(&m.roles);
	dlb_name_map_release(&names);
	free(m.place);
	free(m.listed);
	free(m.weight);
	dlb_graph_index(g);
	return rc;
}
