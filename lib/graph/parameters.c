/* Decides which initializers are parameters, and which of them are trained. For each float initializer the
 * first rule that applies counts:
 *
 *     1  --parameters names it: a parameter. With that option, there are no other parameters.
 *     2  It was found in the module's state_dict (state_dict.c): a parameter.
 *     3  The exporter's list has its name: a listed parameter is one, a buffer or constant is not.
 *     4  Its role (role.h). Without a list, a name that is a path in a module ("encoder.pos_embedding") counts
 *        like a role, unless its use excludes it: a mean that normalizes samples, frequencies, a table of sines.
 *
 * The list also limits rule 4. If every listed parameter is present by name, an initializer without a listed
 * name is no parameter. If more are missing than were found by role, the others were folded into initializers
 * without a role (an expanded class token, rows of a position table). These are the remaining initializers
 * that are not scalars, masks, tables of sines or uniform, provided that there are no more of them than
 * missing parameters.
 *
 * An initializer that is no parameter loses its mark `initial`; folding and autodiff then
 * treat it as a constant. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "graph/order.h"
#include "graph/passes.h"
#include "graph/role.h"
#include "graph/rewrite.h"

struct choosing {
	struct dlb_graph *g;
	const struct dlb_parameter_choice *c;
	struct dlb_roles roles;
	struct dlb_name_map listed;	/* names to indices in the list */
	bool *placed;			/* [index in the list] an initializer has its name */
	bool *alias;			/* [index in the list] not used by a vertex: the
					 * second name of a tied embedding */
	bool *yes;			/* [tensor] a parameter */
	bool *statistics;		/* [tensor] running statistics of a BatchNormalization */
	bool *lost;			/* [tensor] computed from a parameter that is not in the model */
	int n_missing, n_lost;		/* n_missing: listed parameters without an initializer of their name;
					 * n_lost: the missing ones that no initializer accounts for */
	bool told;			/* the exporter states which parameters vertices use */
	int n_buffers;			/* buffers of the list without an initializer */
	int n_by_role;			/* initializers that are parameters by their role */
};

static void decide(struct choosing *ch, int t, bool yes, enum dlb_by rule, const char *why)
{
	ch->yes[t] = yes;
	ch->g->tensor[t].rule = rule;
	ch->g->tensor[t].why = why;
}

/* -- names -- */

/* Is the name a path in a module, such as PyTorch's older exporter gives to parameters and buffers: words
 * separated by dots, and none of the exporter's numbered names ("onnx::MatMul_203",
 * "/fc/Constant_output_0", "417", "val_12")? */
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
	if (dlb_values_grid(x)) {
		decide(ch, t, false, DLB_BY_ROLE, "coordinates of a grid");
		return true;
	}
	if (dlb_role_is_preprocessing(&ch->roles, t)) {
		decide(ch, t, false, DLB_BY_ROLE, "normalizes the samples");
		return true;
	}
	if (dlb_role_is_mask(&ch->roles, t)) {
		decide(ch, t, false, DLB_BY_ROLE, "a mask");
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
	ch->alias = dlb_xcalloc((size_t)g->n_listed + 1, sizeof *ch->alias);
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

/* Does the parameter belong to a BatchNormalization? If it is missing, it was folded into a convolution. */
static bool is_of_batch_norm(struct choosing *ch, int at)
{
	const char *name = ch->g->listed[at].name, *dot = strrchr(name, '.');

	return dot && dlb_name_map_get(&ch->listed, dlb_arena_printf(&ch->g->arena, "%.*s.running_mean",
								     (int)(dot - name), name)) >= 0;
}

static bool uses(const struct dlb_op *o, int at)
{
	for (int i = 0; i < o->n_uses; i++)
		if (o->uses[i] == at)
			return true;
	return false;
}

/* Is operand k computed from initializers that may replace a missing parameter? Not if the
 * vertex uses it by its name. */
static bool stands_in(const struct choosing *ch, const struct dlb_op *o, int k)
{
	const int t = o->in[k], at = t < 0 ? -1 : dlb_name_map_get(&ch->listed, ch->g->tensor[t].name);

	if (t < 0 || (at >= 0 && uses(o, at)))
		return false;
	return ch->yes[t] || (ch->roles.from[t] && !(ch->roles.from[t] & DLB_FROM_SAMPLES));
}

/* Does the vertex, which uses the parameter, have an operand for it? A recurrent op packs several
 * parameters into one operand. Otherwise it needs an operand of its kind (bias or not), or as many
 * operands as missing parameters. */
static bool has_operand_for(const struct choosing *ch, const struct dlb_op *o, int at)
{
	const bool bias = dlb_role_word(ch->g->listed[at].name) == DLB_WORD_BIAS;
	int n_operands = 0, n_missing = 0, n_of_kind = 0;

	for (int k = 0; k < o->n_in; k++) {
		const bool stands = stands_in(ch, o, k);
		n_operands += stands;
		n_of_kind += stands && bias == (k == 2 || !strcmp(o->type, "Add"));
	}
	for (int i = 0; i < o->n_uses; i++)
		n_missing += !ch->placed[o->uses[i]] &&
			     ch->g->listed[o->uses[i]].kind == DLB_LISTED_PARAMETER;
	return n_operands &&
	       (n_of_kind || n_operands >= n_missing || !strcmp(o->type, "LSTM") || !strcmp(o->type, "GRU"));
}

/* Does some vertex use the parameter and read an initializer that can be the parameter under another name? An
 * alias is accounted for, too. */
static bool is_accounted_for(const struct choosing *ch, int at)
{
	const struct dlb_graph *g = ch->g;

	for (int i = 0; i < g->n_ops; i++)
		if (uses(&g->op[i], at) && has_operand_for(ch, &g->op[i], at))
			return true;
	return ch->alias[at];
}

/* Is parameter `at` an embedding table and a product's operand? Then it is tied, and has two names in the
 * module. */
static bool is_tied(const struct choosing *ch, int at)
{
	const struct dlb_graph *g = ch->g;
	bool table = false, layer = false;

	for (int i = 0; i < g->n_ops; i++) {
		table |= !strcmp(g->op[i].type, "Gather") && uses(&g->op[i], at);
		layer |= (!strcmp(g->op[i].type, "MatMul") || !strcmp(g->op[i].type, "Gemm")) &&
			 uses(&g->op[i], at);
	}
	return table && layer;
}

/* The exporter's uses mention only one name of a tied parameter; the other is a listed
 * parameter that no vertex uses. */
static void find_aliases(struct choosing *ch)
{
	const struct dlb_graph *g = ch->g;
	bool *used = dlb_xcalloc((size_t)g->n_listed + 1, sizeof *used);
	int n_tied = 0;

	for (int i = 0; i < g->n_ops; i++)
		for (int k = 0; k < g->op[i].n_uses; k++)
			used[g->op[i].uses[k]] = true;
	for (int i = 0; i < g->n_listed; i++)
		n_tied += used[i] && g->listed[i].kind == DLB_LISTED_PARAMETER && is_tied(ch, i);
	for (int i = 0; i < g->n_listed && n_tied; i++)
		if (!used[i] && !ch->placed[i] && g->listed[i].kind == DLB_LISTED_PARAMETER &&
		    dlb_role_word(g->listed[i].name) == DLB_WORD_WEIGHT) {
			ch->alias[i] = true;
			n_tied--;
		}
	free(used);
}

/* Counts the listed parameters without an initializer of their name (n_missing), and the missing ones that no
 * initializer accounts for (n_lost). */
static void count_missing(struct choosing *ch)
{
	const struct dlb_graph *g = ch->g;

	for (int i = 0; i < g->n_ops; i++)
		ch->told |= g->op[i].n_uses > 0;
	find_aliases(ch);
	for (int i = 0; i < g->n_listed; i++) {
		if (ch->placed[i])
			continue;
		if (g->listed[i].kind == DLB_LISTED_BUFFER)
			ch->n_buffers += !is_of_batch_norm(ch, i);
		if (g->listed[i].kind != DLB_LISTED_PARAMETER)
			continue;
		ch->n_missing++;
		ch->n_lost += !is_of_batch_norm(ch, i) && !(ch->told && is_accounted_for(ch, i));
	}
	if (!ch->told)
		ch->n_lost -= ch->n_by_role;
}

/* Do all readers add t to another tensor or concatenate it, as they do with tokens and position tables? */
static bool is_joined(const struct dlb_graph *g, int t)
{
	for (int i = g->reader_start[t]; i < g->reader_start[t + 1]; i++)
		if (strcmp(g->op[g->reader[i]].type, "Concat") && strcmp(g->op[g->reader[i]].type, "Add"))
			return false;
	return g->reader_start[t] < g->reader_start[t + 1];
}

/* Did the exporter name the initializer after torch operator `name`, which computed it? Its name is then
 * `name` or name_N. */
static bool is_called(const struct dlb_tensor *x, const char *name)
{
	const size_t n = strlen(name);
	const char *end = x->name + n;

	return !strncmp(x->name, name, n) &&
	       (!*end || (*end == '_' && end[1] && strspn(end + 1, "0123456789") == strlen(end + 1)));
}

/* Is x the output of a torch operator that creates a tensor without reading values, such as the first state
 * of a scan? */
static bool is_made(const struct dlb_tensor *x)
{
	static const char *const makers[] = { "zeros",    "zeros_like", "ones",      "ones_like",
					      "full",     "full_like",  "new_zeros", "new_ones",
					      "new_full", "arange",     "eye" };

	for (int i = 0; i < DLB_LEN(makers); i++)
		if (is_called(x, makers[i]))
			return true;
	return false;
}

/* Do all readers use t as a scale of a Resize, or only its shape? */
static bool is_setting(const struct dlb_graph *g, int t)
{
	static const struct { const char *type; int from; } settings[] = {
		{ "Resize", 1 }, { "Upsample", 1 }, { "RandomUniformLike", 0 }, { "RandomNormalLike", 0 }
	};

	for (int i = g->reader_start[t]; i < g->reader_start[t + 1]; i++) {
		const struct dlb_op *o = &g->op[g->reader[i]];
		bool set = false;
		for (int s = 0; s < DLB_LEN(settings); s++)
			set |= !strcmp(o->type, settings[s].type) && !(settings[s].from && o->in[0] == t);
		if (!set)
			return false;
	}
	return true;
}

/* May the exporter have computed t from a missing parameter? */
static bool may_be_lost(struct choosing *ch, int t)
{
	const struct dlb_tensor *x = &ch->g->tensor[t];

	return dlb_role_is_candidate(ch->g, t) && !ch->yes[t] && x->rule == DLB_BY_ROLE && !is_made(x) &&
	       !is_setting(ch->g, t) &&
	       x->kind == DLB_T_CONSTANT && x->n_dims > 0 && !ch->statistics[t] &&
	       dlb_role_count(ch->g, t) > 1 && !dlb_values_sinusoid(x) &&
	       (dlb_values_uniform(x) ? is_joined(ch->g, t) && !dlb_role_is_mask_of_scores(&ch->roles, t) :
					!dlb_values_mask(x)) &&
	       !dlb_role_is_preprocessing(&ch->roles, t) && !dlb_role_is_frequency(&ch->roles, t);
}

/* Is x the output of torch's embedding? */
static bool is_looked_up(const struct dlb_tensor *x)
{
	return is_called(x, "embedding");
}

/* Is x the output of an operator that has parameters, such as a recurrent cell's first state, positions,
 * constant tokens? */
static bool is_computed(const struct dlb_tensor *x)
{
	static const char *const by[] = { "embedding", "linear",     "conv1d",     "conv2d",
					  "conv3d",    "layer_norm", "group_norm", "rms_norm" };

	for (int i = 0; i < DLB_LEN(by); i++)
		if (is_called(x, by[i]))
			return true;
	return false;
}

/* Notes initializers that the exporter computed from parameters: they do not change when these are
 * trained. */
static void say_computed(struct choosing *ch)
{
	const struct dlb_graph *g = ch->g;
	const char *first = NULL;
	int n = 0;

	for (int t = 0; t < g->n_tensors; t++) {
		const struct dlb_tensor *x = &g->tensor[t];
		if (ch->yes[t] || !dlb_role_is_candidate(g, t) || !is_computed(x) ||
		    dlb_name_map_get(&ch->listed, x->name) >= 0)
			continue;
		first = first ? first : x->name;
		n++;
	}
	if (n)
		dlb_graph_note(ch->g,
			       "%d initializer%s ('%s'%s) %s computed from parameters by the exporter: not "
			       "trained, and %s as %s; "
			       "torch.onnx.export(model, args, FILE, optimize=False) keeps the computation",
			       n, n == 1 ? "" : "s", first, n == 1 ? "" : " ...", n == 1 ? "is" : "are",
			       n == 1 ? "it stays" : "they stay", n == 1 ? "it is" : "they are");
}

/* Notes parameters that the model holds only in part or in changed form: the used rows of a table, a
 * normalization folded into a layer. */
static void say_lost(struct choosing *ch, bool told)
{
	struct dlb_graph *g = ch->g;
	const char *first = NULL;
	int n = 0;

	for (int i = 0; i < g->n_listed; i++) {
		if (g->listed[i].kind != DLB_LISTED_PARAMETER || ch->placed[i] ||
		    (told && !is_of_batch_norm(ch, i) && is_accounted_for(ch, i)))
			continue;
		first = first ? first : g->listed[i].name;
		n++;
	}
	if (n && told)
		dlb_graph_note(g,
			       "%d parameter%s of the exporter's list %s not in the model as %s ('%s'%s): it "
			       "has what it computed from %s, or nothing; --weights STATE.safetensors counts "
			       "the elements; torch.onnx.export(model, args, FILE, optimize=False) keeps "
			       "them",
			       n, n == 1 ? "" : "s", n == 1 ? "is" : "are", n == 1 ? "it is" : "they are",
			       first, n == 1 ? "" : " ...", n == 1 ? "it" : "them");
}

/* Finds initializers that hold lost parameters: first rows that an embedding looked up by constant indices,
 * then the other candidates, if there are no more of them than lost parameters and none can be a buffer of
 * the list. */
static void find_lost(struct choosing *ch)
{
	struct dlb_graph *g = ch->g;
	int n = 0;

	for (int t = 0; t < g->n_tensors && ch->n_lost > 0; t++)
		if (may_be_lost(ch, t) && is_looked_up(&g->tensor[t])) {
			decide(ch, t, true, DLB_BY_LIST,
			       "rows of an embedding that the list has and the model has not");
			ch->lost[t] = true;
			ch->n_lost--;
		}
	for (int t = 0; t < g->n_tensors; t++)
		n += may_be_lost(ch, t);
	if (!n || ch->n_lost <= 0)
		return;
	if (n > ch->n_lost || ch->n_buffers) {
		dlb_graph_note(g,
			       "%d initializer%s without a role may hold %s of the exporter's list: not "
			       "trained; --weights STATE.safetensors or --parameters tells",
			       n, n == 1 ? "" : "s", n == 1 ? "a parameter" : "parameters");
		return;
	}
	for (int t = 0; t < g->n_tensors; t++)
		if (may_be_lost(ch, t)) {
			decide(ch, t, true, DLB_BY_LIST,
			       "a parameter of the list is missing in the model, and no other initializer "
			       "can hold it");
			ch->lost[t] = true;
		}
}

/* With a state_dict: notes trained initializers that are not in it; they were computed from
 * parameters missing in the model. */
static void say_in_place(struct choosing *ch)
{
	struct dlb_graph *g = ch->g;
	const char *first = NULL;
	int n = 0;

	for (int t = 0; t < g->n_tensors; t++)
		if (ch->yes[t] && !g->tensor[t].in_state &&
		    dlb_name_map_get(&ch->listed, g->tensor[t].name) < 0) {
			first = first ? first : g->tensor[t].name;
			n++;
		}
	if (n)
		dlb_graph_note(g,
			       "%d initializer%s ('%s'%s) that the state_dict has not %s trained as %s, and "
			       "saved beside its tensors: what the exporter computed from parameters; "
			       "load_state_dict() takes the others with strict=False",
			       n, n == 1 ? "" : "s", first, n == 1 ? "" : " ...", n == 1 ? "is" : "are",
			       n == 1 ? "it is" : "they are");
}

static void bound_by_list(struct choosing *ch)
{
	struct dlb_graph *g = ch->g;

	if (!g->n_listed)
		return;
	count_missing(ch);
	for (int t = 0; t < g->n_tensors && !ch->n_missing; t++)
		if (ch->yes[t] && g->tensor[t].rule == DLB_BY_ROLE)
			decide(ch, t, false, DLB_BY_LIST,
			       "every parameter of the list has an initializer of its own");
	if (!g->state_path) {		/* a state_dict would have identified them by their values */
		find_lost(ch);
		say_lost(ch, ch->told);
	}
	say_computed(ch);
	if (g->state_path)
		say_in_place(ch);
}

/* -- options -- */

static bool given(const struct dlb_patterns *p)
{
	return p->n > 0;
}

static int check_patterns(struct choosing *ch, const struct dlb_patterns *p, bool of_parameters,
			  struct dlb_error *err)
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
			decide(ch, t, named, DLB_BY_OPTION,
			       named ? "--parameters" : "not among --parameters");
		}
	if (check_patterns(ch, &c->freeze, true, err) || check_patterns(ch, &c->train_only, true, err))
		return -1;
	for (int t = 0; t < g->n_tensors; t++) {
		const char *name = g->tensor[t].name;
		const bool frozen = dlb_patterns_match(&c->freeze, name) >= 0;
		if (!ch->yes[t] ||
		    (!frozen && (!given(&c->train_only) || dlb_patterns_match(&c->train_only, name) >= 0)))
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

/* Does the exporter state that every reader uses the parameter of this name? Then no other parameter of equal
 * values was merged into it. */
static bool is_named_by_readers(const struct choosing *ch, int t)
{
	const struct dlb_graph *g = ch->g;
	const int at = dlb_name_map_get(&ch->listed, g->tensor[t].name);

	for (int i = g->reader_start[t]; i < g->reader_start[t + 1] && at >= 0; i++)
		if (!uses(&g->op[g->reader[i]], at))
			return false;
	return at >= 0;
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
			decide(ch, t, true, DLB_BY_STATE_DICT,
			       g->tensor[t].in_model ? "by its name" : "by its values");
		}
	}
}

int dlb_graph_choose_parameters(struct dlb_graph *g, const struct dlb_parameter_choice *c,
				struct dlb_error *err)
{
	struct choosing ch = { .g = g, .c = c, .yes = dlb_xcalloc((size_t)g->n_tensors + 1, sizeof *ch.yes),
			       .lost = dlb_xcalloc((size_t)g->n_tensors + 1, sizeof *ch.lost),
			       .statistics = dlb_xcalloc((size_t)g->n_tensors + 1, sizeof *ch.statistics) };

	dlb_roles_init(&ch.roles, g);
	read_list(&ch);
	choose(&ch);
	bound_by_list(&ch);
	int rc = take_options(&ch, err);
	for (int t = 0; t < g->n_tensors && !rc; t++)
		if (dlb_role_is_candidate(g, t)) {
			g->n_untrained += !ch.yes[t] && !ch.statistics[t] &&
					  g->tensor[t].kind == DLB_T_CONSTANT;
			g->tensor[t].initial = ch.yes[t];
			g->tensor[t].named_by_readers = is_named_by_readers(&ch, t);
		}
	for (int t = 0, n = g->n_tensors; t < n && !rc; t++)
		if (ch.lost[t])
			rc = dlb_graph_collapse(g, t, err);
	if (!rc)
		rc = dlb_graph_sort(g, err);
	dlb_roles_release(&ch.roles);
	dlb_name_map_release(&ch.listed);
	free(ch.placed);
	free(ch.alias);
	free(ch.yes);
	free(ch.statistics);
	free(ch.lost);
	return rc;
}
