/* Edits and reads the run section. See section.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "data/data.h"
#include "exec/section.h"
#include "plan/async.h"
#include "plan/schedule.h"
#include "util/mem.h"

/* Writes the optimizer settings of the command line into run's optimizer. */
static int edit_rate(json_t *o, const struct dlb_run_edit *e, struct dlb_error *err)
{
	struct dlb_rate r = { .warmup = 0 };
	int64_t steps = e->until_step > 0 ? e->until_step : e->steps > 0 ? e->steps : 0;

	if (e->warmup_given)
		dlb_set_int(o, "warmup", e->warmup);
	if (e->clip_given && e->clip_norm > 0)
		dlb_set_real(o, "clip_norm", e->clip_norm);
	else if (e->clip_given)
		json_object_del(o, "clip_norm");
	if (e->delay_discount && strcmp(e->delay_discount, "on") && strcmp(e->delay_discount, "off"))
		return dlb_fail(err, NULL, "--delay-discount wants on or off, not '%.40s'",
				e->delay_discount);
	if (e->delay_discount)
		dlb_set_bool(o, "delay_discount", !strcmp(e->delay_discount, "on"));
	dlb_set_str(o, "reduce", e->reduce);
	if (!e->lr_schedule)
		return 0;
	if (dlb_rate_parse(e->lr_schedule, steps, &r, err))
		return -1;
	/* stores the step at which the cosine ends, so that the rate is a function of the step alone */
	if (!strcmp(e->lr_schedule, "cosine"))
		json_object_set_new(o, "lr_schedule", json_sprintf("cosine:%lld", (long long)r.steps));
	else
		dlb_set_str(o, "lr_schedule", e->lr_schedule);
	return 0;
}

/* A new optimizer section for the rule; it keeps those members of the old one that hold for every
 * optimizer. */
static json_t *another(const json_t *old, int rule)
{
	static const char *const kept[] = { "warmup", "lr_schedule", "clip_norm", "delay_discount",
					    "groups" };
	json_t *o = json_object();

	dlb_set_str(o, "name", dlb_optimizers[rule].name);
	dlb_set_real(o, "lr", dlb_optimizers[rule].hyper[DLB_HYPER_LR]);
	for (int i = 0; i < DLB_LEN(kept); i++)
		if (json_object_get(old, kept[i]))
			json_object_set(o, kept[i], json_object_get(old, kept[i]));
	return o;
}

static int edit_groups(json_t *o, const struct dlb_run_edit *e, struct dlb_error *err)
{
	json_t *all = e->n_groups ? json_array() : NULL;

	for (int i = 0; i < e->n_groups; i++) {
		struct dlb_optimizer_group g;
		if (dlb_group_parse(e->group[i], &g, err)) {
			json_decref(all);
			return -1;
		}
		json_t *one = json_pack("{s:s}", "glob", g.glob);
		for (int h = 0; h < DLB_N_HYPER; h++)
			if (g.given[h])
				dlb_set_real(one, dlb_hypers[h].key, g.hyper[h]);
		json_array_append_new(all, one);
	}
	if (all)
		json_object_set_new(o, "groups", all);
	return 0;
}

/* If the run section has no optimizer, the one that the plan was made for is used. */
static int edit_optimizer(json_t *run, const json_t *plan, const struct dlb_run_edit *e,
			  struct dlb_error *err)
{
	json_t *o = json_object_get(run, "optimizer"),
	       *planned = o ? NULL : json_object_get(plan, "clip_norm");
	const char *was = json_string_value(json_object_get(o, "name")),
		   *of_plan = json_string_value(json_object_get(plan, "optimizer"));
	const char *name = e->optimizer ? e->optimizer : was ? was : of_plan && !o ? of_plan : "sgd";
	int rule = dlb_optimizer_find(name);

	if (rule < 0) {
		dlb_fail(err, NULL, "no optimizer '%s'", name);
		return dlb_optimizer_hint(name, err);
	}
	if (!o || (was && strcmp(was, name))) {		/* another optimizer starts with its own defaults */
		o = another(o, rule);
		json_object_set_new(run, "optimizer", o);
	}
	if (json_is_number(planned))
		json_object_set(o, "clip_norm", planned);
	for (int h = 0; h < DLB_N_HYPER; h++) {
		if (!e->hyper_given[h])
			continue;
		if (!dlb_optimizer_uses(rule, h))
			return dlb_fail(err, NULL, "optimizer %s has no %s", name, dlb_hypers[h].key);
		if (h == DLB_HYPER_INVERSE_EVERY && e->hyper[h] != floor(e->hyper[h]))
			return dlb_fail(err, NULL, "--inverse-every %g is not a whole number of steps",
					e->hyper[h]);
		json_object_set_new(o, dlb_hypers[h].key,
				    h == DLB_HYPER_INVERSE_EVERY ? json_integer((json_int_t)e->hyper[h]) :
								   json_real(e->hyper[h]));
	}
	dlb_set_str(o, "variant", e->variant);
	dlb_set_str(o, "max_state", e->max_state);
	return edit_groups(o, e, err) || edit_rate(o, e, err) ? -1 : 0;
}

static void name_updates(struct dlb_doc *doc)
{
	json_t *ops = json_object_get(dlb_doc_section(doc, "graph"), "ops"), *op;
	const char *name = json_string_value(
		json_object_get(json_object_get(dlb_doc_section(doc, "run"), "optimizer"), "name"));
	size_t i;

	json_array_foreach(ops, i, op) {
		const char *type = json_string_value(json_object_get(op, "type"));
		json_t *attr = json_object_get(op, "attributes");

		if (type && name && !strcmp(type, "Update") && json_object_get(attr, "optimizer"))
			dlb_set_str(attr, "optimizer", name);
	}
}

static int edit_data(json_t *run, const char *key, const char *spec, struct dlb_error *err)
{
	char *absolute;

	if (!spec)
		return 0;
	if (dlb_data_absolute(spec, &absolute, err))
		return -1;
	dlb_set_str(run, key, absolute);
	free(absolute);
	return 0;
}

/* Writes the staleness rule into the plan and marks it as given by the user. */
static int edit_staleness(struct dlb_doc *doc, const char *rule, struct dlb_error *err)
{
	json_t *plan = dlb_doc_section(doc, "plan");
	const char *name = json_string_value(json_object_get(plan, "schedule"));
	const struct dlb_schedule *schedule = name ? dlb_schedule_find(name) : NULL;

	if (!rule)
		return 0;
	if (dlb_staleness_find(rule) < 0)
		return dlb_fail(err, NULL, "no rule '%s'; there are 2bw, stash, predict and none", rule);
	if (!schedule || !schedule->async)
		return dlb_fail(err, NULL,
				"--staleness is for plans of dlb-place --schedule async; this one's is %s",
				name ? name : "not said");
	dlb_set_str(plan, "staleness", rule);
	json_object_set_new(plan, "staleness_given", json_true());
	return 0;
}

/* Sets the member; an empty text removes it. */
static int edit_text(json_t *run, const char *key, const char *text, struct dlb_error *err)
{
	json_t *v = text ? json_string(text) : NULL;

	if (text && !v)
		return dlb_fail(err, NULL, "--%s is not UTF-8", key);
	if (text && *text)
		json_object_set(run, key, v);
	else if (text)
		json_object_del(run, key);
	json_decref(v);
	return 0;
}

int dlb_run_section_edit(struct dlb_doc *doc, const struct dlb_run_edit *e, struct dlb_error *err)
{
	json_t *old = dlb_doc_section(doc, "run"),
	       *run = json_is_object(old) ? json_deep_copy(old) : json_object();
	char *end;

	if (edit_staleness(doc, e->staleness, err) || edit_data(run, "data", e->data, err) ||
	    edit_data(run, "test_data", e->test_data, err) ||
	    edit_optimizer(run, dlb_doc_section(doc, "plan"), e, err))
		goto bad;
	dlb_set_str(run, "transform", e->transform);
	if (e->order) {
		if (strcmp(e->order, "shuffled") && strcmp(e->order, "sequential")) {
			dlb_fail(err, NULL, "no order '%s'", e->order);
			dlb_hint(err, "there are shuffled and sequential");
			goto bad;
		}
		dlb_set_str(run, "order", e->order);
	}
	if (e->init) {
		long long v = strtoll(e->init, &end, 10);

		if (end == e->init || *end || v < 0) {
			dlb_fail(err, NULL, "--init wants a seed, not '%s'", e->init);
			goto bad;
		}
		dlb_set_int(run, "init", v);
	}
	if (edit_text(run, "name", e->name, err) || edit_text(run, "note", e->note, err))
		goto bad;
	if (e->torch_batchnorm)
		json_object_set_new(run, "torch_batchnorm", json_true());
	if (e->seed_given || !json_object_get(run, "seed"))
		dlb_set_int(run, "seed", e->seed_given ? e->seed : 1);
	if (!json_object_get(run, "order"))
		dlb_set_str(run, "order", "shuffled");
	dlb_doc_put(doc, "run", run);
	name_updates(doc);
	return 0;
bad:
	json_decref(run);
	return -1;
}

int dlb_run_section_read(const struct dlb_doc *doc, struct dlb_exec_options *o, char init_text[32],
			 struct dlb_error *err)
{
	static const char *const known[] = { "data", "test_data", "transform", "order",           "seed",
					     "init", "optimizer", "weights",   "torch_batchnorm", "name",
					     "note", NULL };
	struct dlb_ref run = dlb_ref_root(doc, "run"), at;
	const char *order = "shuffled";
	int64_t seed = 1, init = -1;

	if (!run.v)
		return 0;
	if (!json_is_object(run.v))
		return dlb_ref_fail(&run, err, "an object is expected");
	if (dlb_ref_known(&run, known, err) || dlb_get_str(&run, "data", DLB_OPT, &o->data, err) ||
	    dlb_get_str(&run, "test_data", DLB_OPT, &o->test_data, err) ||
	    dlb_get_str(&run, "transform", DLB_OPT, &o->transform, err) ||
	    dlb_get_str(&run, "order", DLB_OPT, &order, err) ||
	    dlb_get_int(&run, "seed", DLB_OPT, 0, INT64_MAX, &seed, err) ||
	    dlb_get_int(&run, "init", DLB_OPT, 0, INT64_MAX, &init, err) ||
	    dlb_get_bool(&run, "torch_batchnorm", DLB_OPT, &o->torch_batchnorm, err))
		return -1;
	at = dlb_ref_at(&run, "order");
	if (strcmp(order, "shuffled") && strcmp(order, "sequential"))
		return dlb_ref_fail(&at, err, "'shuffled' or 'sequential' is expected, not '%s'", order);
	o->shuffled = !strcmp(order, "shuffled");
	o->seed = (uint64_t)seed;
	o->init = NULL;
	if (init >= 0) {
		snprintf(init_text, 32, "%lld", (long long)init);
		o->init = init_text;
	}
	return 0;
}
