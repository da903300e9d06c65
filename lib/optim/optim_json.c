/* .run.optimizer: {"name":"adam", "lr":0.001, "beta1":0.9, ...}. What is not there is the optimizer's default. */
#include <math.h>
#include <string.h>

#include "optim/optim.h"
#include "util/mem.h"

static const struct { const char *key; int hyper; double min, max; } members[] = {
	{ "lr", DLB_HYPER_LR, 0, HUGE_VAL },
	{ "momentum", DLB_HYPER_MOMENTUM, 0, 1 },
	{ "beta1", DLB_HYPER_BETA1, 0, 1 - 0x1p-53 },
	{ "beta2", DLB_HYPER_BETA2, 0, 1 - 0x1p-53 },
	{ "eps", DLB_HYPER_EPS, 0, HUGE_VAL },
	{ "weight_decay", DLB_HYPER_DECAY, 0, HUGE_VAL },
};

void dlb_optimizer_defaults(int rule, struct dlb_optimizer_choice *o)
{
	memset(o, 0, sizeof *o);
	o->rule = rule;
	memcpy(o->hyper, dlb_optimizers[rule].hyper, sizeof dlb_optimizers[rule].hyper);
}

static int find_rule(const struct dlb_ref *r, const char *name, struct dlb_error *err)
{
	const char *names[DLB_N_RULES], *near;
	int rule = dlb_optimizer_find(name);

	if (rule >= 0)
		return rule;
	for (int i = 0; i < DLB_N_RULES; i++)
		names[i] = dlb_optimizers[i].name;
	near = dlb_nearest(name, names, DLB_N_RULES);
	dlb_ref_fail(r, err, "no optimizer '%s'", name);
	if (near)
		dlb_hint(err, "did you mean '%s'?", near);
	else
		dlb_hint(err, "there are sgd, momentum, nesterov, adam, adamw, adabelief");
	return -1;
}

int dlb_optimizer_read(const struct dlb_doc *d, struct dlb_optimizer_choice *o, struct dlb_error *err)
{
	static const char *const known[] = { "name", "lr", "momentum", "beta1", "beta2", "eps", "weight_decay", NULL };
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
	for (int i = 0; i < DLB_LEN(members); i++)
		if (dlb_get_real(&r, members[i].key, DLB_OPT, members[i].min, members[i].max, &c.hyper[members[i].hyper], err))
			return -1;
	*o = c;
	return 0;
}
