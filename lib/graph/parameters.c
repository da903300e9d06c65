/* Which initializers are parameters, and which of them are trained. For every float initializer, in this order:
 *
 *     1  --parameters names it: it is one. With that option nothing else is.
 *     2  It was found in the module's state_dict (state_dict.c).
 *     3  The exporter's list has its name: a parameter is one, a buffer or constant is not.
 *     4  Its role (role.h). Where there is no list, a name that is a place in a module ("encoder.pos_embedding") is as good,
 *        unless it is used as no parameter is: a mean that the samples are normalized by, frequencies, a table of sines.
 *
 * Where there is a list it also bounds what rule 4 may find. If every listed parameter is there by name, what has no name
 * of the list is none. If more are missing than have been found by their role, the others have been folded into
 * initializers without a role (a class token that was expanded, rows of a position table): these are what is left when
 * scalars, masks, tables of sines and uniform ones are taken away, provided they are no more than are missing.
 *
 * An initializer that is no parameter loses its mark `initial`; folding and autodiff then take it for the constant it is. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "graph/role.h"
#include "graph/rewrite.h"

struct choosing {
	struct dlb_graph *g;
	const struct dlb_parameter_choice *c;
	struct dlb_roles roles;
	struct dlb_name_map listed;	/* names to indices of the list */
	bool *placed;			/* [index of the list] an initializer has its name */
	bool *yes;			/* [tensor] a parameter */
	bool *statistics;		/* [tensor] of a BatchNormalization */
	int n_missing, n_folded;	/* parameters of the list without an initializer; those of BatchNormalizations among them */
	int n_by_role;			/* initializers that are parameters by their role */
};

static void decide(struct choosing *ch, int t, bool yes, enum dlb_by rule, const char *why)
{
	ch->yes[t] = yes;
	ch->g->tensor[t].rule = rule;
	ch->g->tensor[t].why = why;
}

/* -- names -- */

/* A place in a module, as PyTorch's older exporter names parameters and buffers: words with dots between them, none of its
 * own numbering ("onnx::MatMul_203", "/fc/Constant_output_0", "417", "val_12"). */
static bool is_place(const char *name)
{
	const size_t n = strlen(name);
	size_t digits = 0, dots = 0;

	for (size_t i = 0; i < n; i++) {
		if (!isalnum((unsigned char)name[i]) && name[i] != '_' && name[i] != '.')
			return false;
		dots += name[i] == '.' && i && i + 1 < n;
	}
	while (digits < n && isdigit((unsigned char)name[n - 1 - digits]))
		digits++;
	return dots || (digits < n && !(digits && name[n - 1 - digits] == '_'));
}

static bool by_name(struct choosing *ch, int t)
{
	struct dlb_graph *g = ch->g;
	const struct dlb_tensor *x = &g->tensor[t];

	if (g->n_listed || !is_place(x->name) || dlb_role_count(g, t) == 1)
		return false;
	if (dlb_values_sinusoid(x) || dlb_role_is_frequency(&ch->roles, t)) {
		decide(ch, t, false, DLB_BY_ROLE, "a table of sines, or their frequencies");
		return true;
	}
	if (dlb_role_is_preprocessing(&ch->roles, t)) {
		decide(ch, t, false, DLB_BY_ROLE, "normalizes the samples");
		return true;
	}
	decide(ch, t, true, DLB_BY_ROLE, "its name is a place in the module");
	return true;
}

/* -- the exporter's list -- */

static void read_list(struct choosing *ch)
{
	struct dlb_graph *g = ch->g;

	ch->placed = dlb_xcalloc((size_t)g->n_listed + 1, sizeof *ch->placed);
	for (int i = 0; i < g->n_listed; i++)
		dlb_name_map_add(&ch->listed, g->listed[i].name, i);
	for (int t = 0; t < g->n_tensors; t++) {
		const int at = dlb_name_map_get(&ch->listed, g->tensor[t].name);
		if (at >= 0 && g->tensor[t].kind == DLB_T_CONSTANT)
			ch->placed[at] = true;
	}
}

static bool by_list(struct choosing *ch, int t)
{
	static const char *const why[] = { "a parameter", "a buffer", "a constant" };
	const int at = dlb_name_map_get(&ch->listed, ch->g->tensor[t].name);

	if (at < 0)
		return false;
	const enum dlb_listed_kind kind = ch->g->listed[at].kind;
	decide(ch, t, kind == DLB_LISTED_PARAMETER, DLB_BY_LIST, why[kind]);
	return true;
}

/* The parameter belongs to a BatchNormalization: where it is missing, it was multiplied into a convolution. */
static bool is_of_batch_norm(struct choosing *ch, int at)
{
	const char *name = ch->g->listed[at].name, *dot = strrchr(name, '.');

	return dot && dlb_name_map_get(&ch->listed, dlb_arena_printf(&ch->g->arena, "%.*s.running_mean", (int)(dot - name), name)) >= 0;
}

static void count_missing(struct choosing *ch)
{
	for (int i = 0; i < ch->g->n_listed; i++)
		if (ch->g->listed[i].kind == DLB_LISTED_PARAMETER && !ch->placed[i]) {
			ch->n_missing++;
			ch->n_folded += is_of_batch_norm(ch, i);
		}
}

/* What is left over when parameters of the list are missing. */
static bool may_be_missing(struct choosing *ch, int t)
{
	const struct dlb_tensor *x = &ch->g->tensor[t];

	return !ch->yes[t] && x->rule == DLB_BY_ROLE && x->kind == DLB_T_CONSTANT && x->n_dims > 0 && dlb_role_count(ch->g, t) > 1 &&
		!dlb_values_uniform(x) && !dlb_values_mask(x) && !dlb_values_sinusoid(x) &&
		!dlb_role_is_preprocessing(&ch->roles, t) && !dlb_role_is_frequency(&ch->roles, t);
}

static void bound_by_list(struct choosing *ch)
{
	struct dlb_graph *g = ch->g;
	int n = 0;

	if (!g->n_listed)
		return;
	for (int t = 0; t < g->n_tensors; t++) {
		if (ch->yes[t] && g->tensor[t].rule == DLB_BY_ROLE && !ch->n_missing)
			decide(ch, t, false, DLB_BY_LIST, "every parameter of the list has an initializer of its own");
		n += may_be_missing(ch, t);
	}
	const int room = ch->n_missing - ch->n_folded - ch->n_by_role;
	if (n > room && room > 0)
		dlb_graph_note(g, "%d of %d initializers without a role may hold parameters of the exporter's list: none of them is "
			       "trained; --weights STATE.safetensors or --parameters tells which are", room, n);
	if (n > room)
		return;
	for (int t = 0; t < g->n_tensors; t++)
		if (room > 0 && may_be_missing(ch, t))
			decide(ch, t, true, DLB_BY_LIST, "a parameter is missing in the model, and no other initializer can hold it");
}

/* -- options -- */

static bool given(const struct dlb_patterns *p)
{
	return p->n > 0;
}

static int check_patterns(struct choosing *ch, const struct dlb_patterns *p, bool of_parameters, struct dlb_error *err)
{
	const struct dlb_graph *g = ch->g;
	const char **name = dlb_xcalloc((size_t)g->n_tensors + 1, sizeof *name);
	int n = 0;

	for (int t = 0; t < g->n_tensors; t++)
		if (of_parameters ? ch->yes[t] : dlb_role_is_candidate(g, t))
			name[n++] = g->tensor[t].name;
	const int rc = dlb_patterns_check(p, name, n, err);
	free(name);
	return rc;
}

static int take_options(struct choosing *ch, struct dlb_error *err)
{
	const struct dlb_parameter_choice *c = ch->c;
	struct dlb_graph *g = ch->g;

	if (check_patterns(ch, &c->train, false, err))
		return -1;
	for (int t = 0; t < g->n_tensors && given(&c->train); t++)
		if (dlb_role_is_candidate(g, t)) {
			const bool named = dlb_patterns_match(&c->train, g->tensor[t].name) >= 0;
			decide(ch, t, named, DLB_BY_OPTION, named ? "--parameters" : "not among --parameters");
		}
	if (check_patterns(ch, &c->freeze, true, err) || check_patterns(ch, &c->train_only, true, err))
		return -1;
	for (int t = 0; t < g->n_tensors; t++) {
		const char *name = g->tensor[t].name;
		const bool frozen = dlb_patterns_match(&c->freeze, name) >= 0;
		if (!ch->yes[t] || (!frozen && (!given(&c->train_only) || dlb_patterns_match(&c->train_only, name) >= 0)))
			continue;
		g->tensor[t].frozen = true;
		g->tensor[t].rule = DLB_BY_OPTION;
		g->tensor[t].why = frozen ? "--freeze" : "not among --train-only";
	}
	return 0;
}

/* -- all -- */

static void mark_statistics(struct choosing *ch)
{
	for (int i = 0; i < ch->g->n_ops; i++) {
		const struct dlb_op *o = &ch->g->op[i];
		for (int k = 3; k < o->n_in && !strcmp(o->type, "BatchNormalization") && !*o->domain; k++)
			if (o->in[k] >= 0)
				ch->statistics[o->in[k]] = true;
	}
}

static void choose(struct choosing *ch)
{
	struct dlb_graph *g = ch->g;
	const char *why;

	mark_statistics(ch);
	for (int t = 0; t < g->n_tensors; t++) {
		if (!dlb_role_is_candidate(g, t))
			continue;
		if (ch->statistics[t]) {
			decide(ch, t, false, DLB_BY_ROLE, "running statistics");
		} else if (!by_list(ch, t)) {
			const bool yes = dlb_role_find(&ch->roles, t, &why);
			if (yes || !by_name(ch, t)) {
				decide(ch, t, yes, DLB_BY_ROLE, why);
				ch->n_by_role += yes;
			}
		}
		if (ch->yes[t] && g->tensor[t].in_state) {
			ch->n_by_role -= g->tensor[t].rule == DLB_BY_ROLE;
			decide(ch, t, true, DLB_BY_STATE_DICT, g->tensor[t].in_model ? "by its name" : "by its values");
		}
	}
}

int dlb_graph_choose_parameters(struct dlb_graph *g, const struct dlb_parameter_choice *c, struct dlb_error *err)
{
	struct choosing ch = { .g = g, .c = c, .yes = dlb_xcalloc((size_t)g->n_tensors + 1, sizeof *ch.yes),
			       .statistics = dlb_xcalloc((size_t)g->n_tensors + 1, sizeof *ch.statistics) };

	dlb_roles_init(&ch.roles, g);
	read_list(&ch);
	count_missing(&ch);
	choose(&ch);
	bound_by_list(&ch);
	const int rc = take_options(&ch, err);
	for (int t = 0; t < g->n_tensors && !rc; t++)
		if (dlb_role_is_candidate(g, t)) {
			g->n_untrained += !ch.yes[t] && !ch.statistics[t] && g->tensor[t].kind == DLB_T_CONSTANT;
			g->tensor[t].initial = ch.yes[t];
		}
	dlb_roles_release(&ch.roles);
	dlb_name_map_release(&ch.listed);
	free(ch.placed);
	free(ch.yes);
	free(ch.statistics);
	return rc;
}
