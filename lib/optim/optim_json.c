/* Reads .run.optimizer: {"name":"adam", "lr":0.001, "beta1":0.9, ..., "warmup":30,
 * "lr_schedule":"cosine:1000:1e-05", "clip_norm":1.0}; for max-adabelief also "variant":"corrected",
 * "reduce":"moments:mean", "max_state":"local"; for kfac "damping":0.01, "factor_decay":0.95,
 * "inverse_every":10, "kl_clip":0.001. Absent members have the optimizer's defaults. */
#include <math.h>
#include <string.h>

#include "optim/optim.h"
#include "util/mem.h"

void dlb_optimizer_defaults(int rule, struct dlb_optimizer_choice *o)
{
	memset(o, 0, sizeof *o);
	o->rule = rule;
	memcpy(o->hyper, dlb_optimizers[rule].hyper, sizeof dlb_optimizers[rule].hyper);
}

static int find_rule(const struct dlb_ref *r, const char *name, struct dlb_error *err)
{
	int rule = dlb_optimizer_find(name);

	if (rule >= 0)
		return rule;
	dlb_ref_fail(r, err, "no optimizer '%s'", name);
	return dlb_optimizer_hint(name, err);
}

int dlb_optimizer_hint(const char *name, struct dlb_error *err)
{
	const char *names[DLB_N_RULES], *near;
	char all[sizeof err->hint] = "";

	for (int i = 0; i < DLB_N_RULES; i++) {
		names[i] = dlb_optimizers[i].name;
		snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? ", " : "", names[i]);
	}
	near = dlb_nearest(name, names, DLB_N_RULES);
	return near ? dlb_hint(err, "did you mean '%s'?", near) : dlb_hint(err, "there are %.200s", all);
}

/* Moves an error of a text parser to member `key`. */
static int at_member(const struct dlb_ref *r, const char *key, struct dlb_error *err)
{
	struct dlb_ref at = dlb_ref_at(r, key);
	char what[sizeof err->what];

	memcpy(what, err->what, sizeof what);
	return dlb_ref_fail(&at, err, "%s", what);
}

static int read_variant(const struct dlb_ref *r, struct dlb_optimizer_choice *c, struct dlb_error *err)
{
	struct dlb_ref at = dlb_ref_at(r, "variant");
	const char *text = NULL, *state = NULL, *reduce = NULL;

	if (dlb_get_str(r, "variant", DLB_OPT, &text, err) ||
	    dlb_get_str(r, "max_state", DLB_OPT, &state, err) ||
	    dlb_get_str(r, "reduce", DLB_OPT, &reduce, err))
		return -1;
	if ((text || state) && c->rule != DLB_RULE_MAX_ADABELIEF)
		return dlb_ref_fail(r, err, "optimizer %s has no %s", dlb_optimizers[c->rule].name,
				    text ? "variant" : "max_state");
	if (text) {
		int v = 0;

		while (v < DLB_N_VARIANTS && strcmp(text, dlb_optimizer_variants[v]))
			v++;
		if (v == DLB_N_VARIANTS)
			return dlb_ref_fail(&at, err,
					    "no variant '%.100s'; there are corrected, denom_corrected, "
					    "uncorrected and amsgrad",
					    text);
		c->variant = (enum dlb_update_variant)v;
	}
	at = dlb_ref_at(r, "max_state");
	if (state && strcmp(state, "local") && strcmp(state, "merged"))
		return dlb_ref_fail(&at, err, "'local' or 'merged' is expected, not '%.100s'", state);
	c->local_max = state && !strcmp(state, "local");
	if (reduce && dlb_reduce_parse(reduce, &c->reduce, &c->reduce_by, err))
		return at_member(r, "reduce", err);
	at = dlb_ref_at(r, "reduce");
	if (c->reduce == DLB_REDUCE_MOMENTS && !dlb_optimizers[c->rule].n_moments)
		return dlb_hint((dlb_ref_fail(&at, err, "optimizer %s exchanges gradients, not moments",
					      dlb_optimizers[c->rule].name),
				 err),
				"max-adabelief can");
	if (c->reduce == DLB_REDUCE_MOMENTS && c->reduce_by == DLB_REDUCE_BY_SUM && !c->local_max)
		return dlb_hint(
			(dlb_ref_fail(
				 &at, err,
				 "a merged maximum that is summed again at every step grows without bound"),
			 err),
			"keep it local, or take moments:mean or moments:max");
	return 0;
}

static int read_rate(const struct dlb_ref *r, struct dlb_optimizer_choice *c, struct dlb_error *err)
{
	const char *text = NULL;
	struct dlb_ref at;

	if (dlb_get_int(r, "warmup", DLB_OPT, 0, (int64_t)1e15, &c->rate.warmup, err) ||
	    dlb_get_str(r, "lr_schedule", DLB_OPT, &text, err) ||
	    dlb_get_real(r, "clip_norm", DLB_OPT, 0, HUGE_VAL, &c->clip_norm, err) ||
	    dlb_get_bool(r, "delay_discount", DLB_OPT, &c->delay_discount, err))
		return -1;
	if (text && dlb_rate_parse(text, 0, &c->rate, err))
		return at_member(r, "lr_schedule", err);
	at = dlb_ref_at(r, "clip_norm");
	if (c->clip_norm > 0 && c->reduce == DLB_REDUCE_MOMENTS)
		return dlb_ref_fail(
			&at, err,
			"where moments are exchanged there is no gradient of the whole batch to clip");
	at = dlb_ref_at(r, "lr_schedule");
	if (c->rate.kind == DLB_RATE_COSINE && c->rate.steps <= c->rate.warmup)
		return dlb_ref_fail(&at, err, "the cosine ends at step %lld, in the warm-up of %lld steps",
				    (long long)c->rate.steps, (long long)c->rate.warmup);
	return 0;
}

static int read_group(const struct dlb_ref *r, const struct dlb_optimizer_choice *c,
		      struct dlb_optimizer_group *g, struct dlb_error *err)
{
	static const char *const known[] = { "glob", "lr", "weight_decay", NULL };
	static const struct {
		const char *key;
		int hyper;
	} own[] = { { "lr", DLB_HYPER_LR }, { "weight_decay", DLB_HYPER_DECAY } };
	const char *glob;

	*g = (struct dlb_optimizer_group){ .glob = "" };
	if (dlb_ref_known(r, known, err) || dlb_get_str(r, "glob", DLB_NEED, &glob, err))
		return -1;
	if (!*glob || strlen(glob) >= sizeof g->glob)
		return dlb_ref_fail(r, err, "a pattern of 1 to %zu characters is expected",
				    sizeof g->glob - 1);
	snprintf(g->glob, sizeof g->glob, "%s", glob);
	for (int i = 0; i < DLB_LEN(own); i++) {
		g->given[own[i].hyper] = json_object_get(r->v, own[i].key) != NULL;
		if (dlb_get_real(r, own[i].key, DLB_OPT, 0, HUGE_VAL, &g->hyper[own[i].hyper], err))
			return -1;
	}
	if (g->given[DLB_HYPER_LR] && c->rule == DLB_RULE_KFAC)
		return dlb_ref_fail(r, err,
				    "kfac's trust region is of one learning rate: a group of its weights has "
				    "no lr of its own");
	if (g->given[DLB_HYPER_LR] && c->hyper[DLB_HYPER_LR] <= 0)
		return dlb_ref_fail(r, err, "a group's lr is relative to the optimizer's, which is 0");
	return 0;
}

static int read_groups(const struct dlb_ref *r, struct dlb_optimizer_choice *c, struct dlb_error *err)
{
	struct dlb_ref list = dlb_ref_at(r, "groups");
	int n;

	if (!list.v)
		return 0;
	if (dlb_get_array(r, "groups", DLB_NEED, &list, &n, err))
		return -1;
	if (n > DLB_MAX_GROUPS)
		return dlb_ref_fail(&list, err, "%d groups; at most %d", n, DLB_MAX_GROUPS);
	for (int i = 0; i < n; i++) {
		const struct dlb_ref e = dlb_ref_index(&list, i);
		if (read_group(&e, c, &c->group[i], err))
			return -1;
	}
	c->n_groups = n;
	return 0;
}

int dlb_optimizer_read(const struct dlb_doc *d, struct dlb_optimizer_choice *o, struct dlb_error *err)
{
	static const char *const known[] = {
		"name",        "lr",           "momentum",       "alpha",   "beta1",
		"beta2",       "eps",          "weight_decay",   "variant", "warmup",
		"lr_schedule", "clip_norm",    "delay_discount", "reduce",  "max_state",
		"damping",     "factor_decay", "inverse_every",  "kl_clip", "groups",
		NULL
	};
	struct dlb_ref run = dlb_ref_root(d, "run"), r, name_at;
	const char *name = "sgd";
	struct dlb_optimizer_choice c;
	int rule;

	if (!run.v || !json_object_get(run.v, "optimizer")) {
		dlb_optimizer_defaults(DLB_RULE_SGD, o);
		return 0;
	}
	if (dlb_get_object(&run, "optimizer", DLB_NEED, &r, err) || dlb_ref_known(&r, known, err) ||
	    dlb_get_str(&r, "name", DLB_OPT, &name, err))
		return -1;
	name_at = dlb_ref_at(&r, "name");
	rule = find_rule(&name_at, name, err);
	if (rule < 0)
		return -1;
	dlb_optimizer_defaults(rule, &c);
	for (int h = 0; h < DLB_N_HYPER; h++)
		if (dlb_get_real(&r, dlb_hypers[h].key, DLB_OPT, dlb_hypers[h].min, dlb_hypers[h].max,
				 &c.hyper[h], err))
			return -1;
	for (int h = DLB_HYPER_DAMPING; h < DLB_N_HYPER; h++)
		if (json_object_get(r.v, dlb_hypers[h].key) && !dlb_optimizer_uses(rule, h))
			return dlb_ref_fail(&r, err, "optimizer %s has no %s", name, dlb_hypers[h].key);
	if (c.hyper[DLB_HYPER_INVERSE_EVERY] != floor(c.hyper[DLB_HYPER_INVERSE_EVERY]))
		return dlb_ref_fail(&r, err, "inverse_every is %g, not a whole number of steps",
				    c.hyper[DLB_HYPER_INVERSE_EVERY]);
	if (read_variant(&r, &c, err) || read_rate(&r, &c, err) || read_groups(&r, &c, err))
		return -1;
	*o = c;
	return 0;
}
