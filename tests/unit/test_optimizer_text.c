/* Optimizers as text and in .run.optimizer: what is read, and word for word what is refused; which optimizer
 * uses which hyper-parameter; groups of weights; the factors of an exchange between replicas. */
#include <math.h>
#include "check.h"
#include "optim/optim.h"
#include "util/mem.h"

/* -- .run.optimizer -- */

static int read_from(const char *json, struct dlb_optimizer_choice *o, struct dlb_error *err)
{
	struct dlb_doc d;
	char *text = dlb_xprintf("{\"dlb\":\"1.0\",\"run\":{\"optimizer\":{%s}}}", json);

	assert(!dlb_doc_parse(&d, text, strlen(text), "t.json", err));
	const int rc = dlb_optimizer_read(&d, o, err);
	dlb_doc_release(&d);
	free(text);
	return rc;
}

#define AT "t.json: /run/optimizer"
#define GROUP(s) "'name':'sgd','groups':[{" s "}]"
#define MOST_SETTINGS "'lr':0.5,'glob':'*'"
/* ' stands for ". Refusals begin with AT. */
static const struct {
	const char *json, *where, *what, *hint;
} refused[] = {
	{ "'name':'adma'", "/name", "no optimizer 'adma'", "did you mean 'adam'?" },
	{ "'name':'newton'", "/name", "no optimizer 'newton'",
	  "there are sgd, momentum, nesterov, adagrad, rmsprop, adam, adamw, adabelief, max-adabelief, "
	  "kfac" },
	{ "'name':'adam','damping':1", "", "optimizer adam has no damping", "" },
	{ "'name':'adam','factor_decay':1", "", "optimizer adam has no factor_decay", "" },
	{ "'name':'sgd','inverse_every':1", "", "optimizer sgd has no inverse_every", "" },
	{ "'name':'adamw','kl_clip':1", "", "optimizer adamw has no kl_clip", "" },
	{ "'name':'kfac','inverse_every':2.5", "", "inverse_every is 2.5, not a whole number of steps", "" },
	{ "'name':'adam','variant':'corrected'", "", "optimizer adam has no variant", "" },
	{ "'name':'adam','max_state':'local'", "", "optimizer adam has no max_state", "" },
	{ "'name':'max-adabelief','variant':'right'", "/variant",
	  "no variant 'right'; there are corrected, denom_corrected, uncorrected and amsgrad", "" },
	{ "'name':'max-adabelief','max_state':'here'", "/max_state",
	  "'local' or 'merged' is expected, not 'here'", "" },
	{ "'name':'adam','reduce':'moments'", "/reduce", "optimizer adam exchanges gradients, not moments",
	  "max-adabelief can" },
	{ "'name':'max-adabelief','reduce':'moments:sum'", "/reduce",
	  "a merged maximum that is summed again at every step grows without bound",
	  "keep it local, or take moments:mean or moments:max" },
	{ "'name':'max-adabelief','reduce':'moments:sum','max_state':'merged'", "/reduce",
	  "a merged maximum that is summed again at every step grows without bound",
	  "keep it local, or take moments:mean or moments:max" },
	{ "'name':'sgd','reduce':'gradients:max'", "/reduce",
	  "cannot reduce 'gradients:max'; there are gradients[:mean|:sum] and moments[:mean|:sum|:max]", "" },
	{ "'name':'sgd','lr_schedule':'step:0:1'", "/lr_schedule",
	  "no learning-rate schedule 'step:0:1'; there are constant, cosine[:STEPS[:MIN]] and step:N:FACTOR",
	  "" },
	{ "'name':'sgd','lr_schedule':'cosine'", "/lr_schedule",
	  "a cosine must end at some step: cosine:STEPS, or --until-step or --steps", "" },
	{ "'name':'max-adabelief','reduce':'moments','clip_norm':2", "/clip_norm",
	  "where moments are exchanged there is no gradient of the whole batch to clip", "" },
	{ "'name':'sgd','warmup':20,'lr_schedule':'cosine:20'", "/lr_schedule",
	  "the cosine ends at step 20, in the warm-up of 20 steps", "" },
	{ GROUP("'glob':''"), "/groups/0", "a pattern of 1 to 199 characters is expected", "" },
	{ "'name':'kfac','groups':[{'glob':'a','weight_decay':1},{" MOST_SETTINGS "}]", "/groups/1",
	  "kfac's trust region is of one learning rate: a group of its weights has no lr of its own", "" },
	{ "'name':'sgd','lr':0,'groups':[{" MOST_SETTINGS "}]", "/groups/0",
	  "a group's lr is relative to the optimizer's, which is 0", "" },
};

static const char *quoted(const char *json)
{
	static char text[1 << 13];

	snprintf(text, sizeof text, "%s", json);
	for (char *p = text; *p; p++)
		*p = *p == '\'' ? '"' : *p;
	return text;
}

static void documents(void)
{
	struct dlb_optimizer_choice o = { .rule = 77 }, defaults;
	struct dlb_error e;
	char where[300], many[4000] = "'name':'sgd','groups':[";

	for (int i = 0; i < DLB_LEN(refused); i++) {
		e = (struct dlb_error){ .what = "" };
		snprintf(where, sizeof where, "%s%s", AT, refused[i].where);
		assert(IS(read_from(quoted(refused[i].json), &o, &e), ==, -1));
		assert(SAME(e.where, where) && SAME(e.what, refused[i].what) &&
		       SAME(e.hint, refused[i].hint));
		assert(IS(o.rule, ==, 77));
	}
	/* 1 below what is refused */
	assert(!read_from(quoted("'name':'sgd','warmup':19,'lr_schedule':'cosine:20'"), &o, &e) &&
	       IS(o.rate.steps, ==, 20) && IS(o.rate.warmup, ==, 19));
	assert(!read_from(quoted("'name':'max-adabelief','variant':'amsgrad','max_state':'local','reduce':"
				 "'moments:sum','clip_norm':0"),
			  &o, &e));
	assert(IS(o.variant, ==, DLB_VARIANT_AMSGRAD) && o.local_max &&
	       IS(o.reduce_by, ==, DLB_REDUCE_BY_SUM));
	assert(!read_from(quoted("'name':'max-adabelief','max_state':'merged','delay_discount':true"), &o,
			  &e) &&
	       !o.local_max && o.delay_discount);
	assert(!read_from(
		quoted("'name':'kfac','damping':0.5,'factor_decay':0.25,'inverse_every':7,'kl_clip':3,"
		       "'groups':[{'glob':'*bias','weight_decay':0}]"),
		&o, &e));
	assert(IS(o.hyper[DLB_HYPER_DAMPING], ==, 0.5) && IS(o.hyper[DLB_HYPER_FACTOR_DECAY], ==, 0.25) &&
	       IS(o.hyper[DLB_HYPER_INVERSE_EVERY], ==, 7) && IS(o.hyper[DLB_HYPER_KL_CLIP], ==, 3));
	assert(IS(o.n_groups, ==, 1) && SAME(o.group[0].glob, "*bias") && o.group[0].given[DLB_HYPER_DECAY] &&
	       !o.group[0].given[DLB_HYPER_LR] && IS(o.group[0].hyper[DLB_HYPER_DECAY], ==, 0));
	assert(!read_from(quoted("'name':'sgd','groups':[{" MOST_SETTINGS "},{'glob':'w','lr':0.25}]"), &o,
			  &e) &&
	       IS(o.n_groups, ==, 2) && IS(o.group[0].hyper[DLB_HYPER_LR], ==, 0.5) &&
	       IS(o.group[1].hyper[DLB_HYPER_LR], ==, 0.25));
	for (int i = 0; i <= DLB_MAX_GROUPS; i++) /* one too many, and then as many as there may be */
		snprintf(many + strlen(many), sizeof many - strlen(many), "{'glob':'%d'}%s", i,
			 i < DLB_MAX_GROUPS ? "," : "]");
	assert(read_from(quoted(many), &o, &e) && SAME(e.where, AT "/groups") &&
	       SAME(e.what, "33 groups; at most 32"));
	snprintf(strrchr(many, ','), 2, "]");
	assert(!read_from(quoted(many), &o, &e) && IS(o.n_groups, ==, 32) && SAME(o.group[31].glob, "31"));
	/* patterns of 199 and 200 characters */
	snprintf(many, sizeof many, GROUP("'glob':'%0199d'"), 1);
	assert(!read_from(quoted(many), &o, &e) && IS(strlen(o.group[0].glob), ==, 199));
	snprintf(many, sizeof many, GROUP("'glob':'%0200d'"), 1);
	assert(read_from(quoted(many), &o, &e) &&
	       SAME(e.what, "a pattern of 1 to 199 characters is expected"));
	dlb_optimizer_defaults(DLB_RULE_SGD, &defaults);
	assert(!read_from("", &o, &e) && !memcmp(&o, &defaults, sizeof o));
}

/* -- groups and schedules -- */

static void groups(void)
{
	static const char *const bad[] = {
		"",        "a",       "a:",        ":lr=1",    "a:lr",           "a:lr=",
		"a:lr=x",  "a:lr=-1", "a:lr=1e39", "a:lr=1,",  "a:,lr=1",        "a:eps=1",
		"a:lr=1x", "a:l=1",   "a:lr:1",    "a:lr=nan", "a:weight-decay", "a:lr=1,x=2"
	};
	struct dlb_optimizer_group g;
	struct dlb_optimizer_choice c, own;
	struct dlb_error e;
	char text[300];

	for (int i = 0; i < DLB_LEN(bad); i++) {
		snprintf(text, sizeof text, "--group wants GLOB:lr=X,weight-decay=Y, not '%s'", bad[i]);
		assert(IS(dlb_group_parse(bad[i], &g, &e), ==, -1) && SAME(e.what, text) &&
		       SAME(e.hint, "as in --group '*.bias:weight-decay=0'"));
	}
	assert(!dlb_group_parse("a:b*:weight-decay=0.5,lr=1e38", &g, &e) && SAME(g.glob, "a:b*"));
	assert(g.given[DLB_HYPER_LR] && g.given[DLB_HYPER_DECAY] && IS(g.hyper[DLB_HYPER_LR], ==, 1e38) &&
	       IS(g.hyper[DLB_HYPER_DECAY], ==, 0.5) && !g.given[DLB_HYPER_EPS]);
	assert(!dlb_group_parse("x:lr=0", &g, &e) && g.given[DLB_HYPER_LR] && !g.given[DLB_HYPER_DECAY]);
	snprintf(text, sizeof text, "%0199d:lr=1", 7);
	assert(!dlb_group_parse(text, &g, &e) && IS(strlen(g.glob), ==, 199));
	snprintf(text, sizeof text, "%0200d:lr=1", 7);
	assert(dlb_group_parse(text, &g, &e) == -1);
	/* the last group that matches counts, for each setting of its own */
	dlb_optimizer_defaults(DLB_RULE_ADAMW, &c);
	c.hyper[DLB_HYPER_LR] = 0.5;
	c.hyper[DLB_HYPER_DECAY] = 4;
	c.n_groups = 3;
	assert(!dlb_group_parse("*:lr=1,weight-decay=3", &c.group[0], &e) &&
	       !dlb_group_parse("b*:lr=0.125", &c.group[1], &e) &&
	       !dlb_group_parse("*s:weight-decay=2", &c.group[2], &e));
	assert(IS(dlb_optimizer_for(&c, "bias", &own), ==, 0.25) && IS(own.hyper[DLB_HYPER_LR], ==, 0.125) &&
	       IS(own.hyper[DLB_HYPER_DECAY], ==, 2) && IS(own.rule, ==, DLB_RULE_ADAMW));
	assert(IS(dlb_optimizer_for(&c, "w", &own), ==, 2) && IS(own.hyper[DLB_HYPER_DECAY], ==, 3));
	c.n_groups = 0;
	assert(IS(dlb_optimizer_for(&c, "w", &own), ==, 1) && IS(own.hyper[DLB_HYPER_DECAY], ==, 4));
	c.n_groups = 3;
	c.hyper[DLB_HYPER_LR] = 0;
	assert(IS(dlb_optimizer_for(&c, "w", &own), ==, 1));
}

static void schedules(void)
{
	static const char *const bad[] = { "cosine:",     "cosine:0",      "cosine:1.5",  "cosine:9:",
					   "cosine:9:-1", "cosine9",       "cosine:9:0:", "cosinex",
					   "cosine:1e16", "cosine:9:1e39", "step",        "step:9",
					   "step:9:",     "step:9:-1",     "step:1.5:1",  "step:9:1:1",
					   "step:1e16:1", "constantx",     "step:9:1e39", "linear" };
	static const struct {
		const char *text;
		int kind;
		int64_t steps;
		double min, factor;
	} good[] = {
		{ "constant", DLB_RATE_CONSTANT, 50, 0, 1 },
		{ "cosine", DLB_RATE_COSINE, 50, 0, 1 },
		{ "cosine:1", DLB_RATE_COSINE, 1, 0, 1 },
		{ "cosine:1e15:0", DLB_RATE_COSINE, 1000000000000000, 0, 1 },
		{ "cosine:7:1e38", DLB_RATE_COSINE, 7, 1e38, 1 },
		{ "step:1:0", DLB_RATE_STEP, 1, 0, 0 },
		{ "step:1e15:1e38", DLB_RATE_STEP, 1000000000000000, 0, 1e38 },
	};
	struct dlb_rate r = { .warmup = 3, .steps = -5 };
	struct dlb_error e;
	char text[200];

	for (int i = 0; i < DLB_LEN(bad); i++) {
		snprintf(text, sizeof text,
			 "no learning-rate schedule '%s'; there are constant, cosine[:STEPS[:MIN]] and "
			 "step:N:FACTOR",
			 bad[i]);
		assert(IS(dlb_rate_parse(bad[i], 50, &r, &e), ==, -1) && SAME(e.what, text) &&
		       IS(r.steps, ==, -5));
	}
	for (int i = 0; i < DLB_LEN(good); i++)
		assert(!dlb_rate_parse(good[i].text, 50, &r, &e) && IS((int)r.kind, ==, good[i].kind) &&
		       IS(r.steps, ==, good[i].steps) && IS(r.min, ==, good[i].min) &&
		       IS(r.factor, ==, good[i].factor) && IS(r.warmup, ==, 3));
}

/* -- what the rules use and exchange -- */

/* For each hyper-parameter, in their order, the optimizers that use it. */
static const struct {
	int hyper;
	const char *rules;
} uses[] = {
	{ DLB_HYPER_LR, "sgd momentum nesterov adagrad rmsprop adam adamw adabelief max-adabelief kfac" },
	{ DLB_HYPER_DECAY, "sgd momentum nesterov adagrad rmsprop adam adamw adabelief max-adabelief kfac" },
	{ DLB_HYPER_MOMENTUM, "momentum nesterov" },
	{ DLB_HYPER_ALPHA, "rmsprop" },
	{ DLB_HYPER_BETA1, "adam adamw adabelief max-adabelief" },
	{ DLB_HYPER_BETA2, "adam adamw adabelief max-adabelief" },
	{ DLB_HYPER_EPS, "adagrad rmsprop adam adamw adabelief max-adabelief" },
	{ DLB_HYPER_DAMPING, "kfac" },
	{ DLB_HYPER_FACTOR_DECAY, "kfac" },
	{ DLB_HYPER_INVERSE_EVERY, "kfac" },
	{ DLB_HYPER_KL_CLIP, "kfac" },
};

static void rules(void)
{
	struct dlb_error e;
	char list[200], name[40];

	assert(IS(DLB_LEN(uses), ==, DLB_N_HYPER));
	for (int i = 0; i < DLB_LEN(uses); i++)
		for (int r = 0; r < DLB_N_RULES; r++) {
			snprintf(list, sizeof list, " %s ", uses[i].rules);
			snprintf(name, sizeof name, " %s ", dlb_optimizers[r].name);
			assert(IS(dlb_optimizer_uses(r, uses[i].hyper), ==, (strstr(list, name) != NULL)));
		}
	for (int r = 0; r < DLB_N_RULES; r++) {
		const struct dlb_optimizer *o = &dlb_optimizers[r];
		const char *why = r == DLB_RULE_KFAC ? "keeps matrices, which stay f32" :
				  o->n_state         ? "needs the low bits of its states: they only grow" :
						       "keeps no state that could be smaller";
		const bool may = o->state_code[0] != DLB_CODE_F32;

		snprintf(list, sizeof list, "the optimizer %s %s", o->name, why);
		e = (struct dlb_error){ .what = "" };
		assert(!dlb_optimizer_check_states(r, DLB_STATE_F32, &e));
		assert(IS(dlb_optimizer_check_states(r, DLB_STATE_BF16, &e), ==, (may ? 0 : -1)));
		assert(may || (SAME(e.what, list) && SAME(e.where, "/plan/state_dtype") &&
			       SAME(e.hint, "take another --optimizer, or --state-dtype f32")));
		assert(IS(dlb_optimizer_code(r, DLB_STATE_F32, 0), ==, DLB_CODE_F32) &&
		       IS(dlb_optimizer_code(r, DLB_STATE_BF16, 0), ==, DLB_CODE_BF16) &&
		       IS(dlb_optimizer_code(r, DLB_STATE_8BIT, 1), ==, o->state_code[1]));
	}
}

/* A replica with a quarter of the batch: its gradient is a quarter of its own mean; a sum wants that mean. */
static void exchanges(void)
{
	static const struct {
		const char *reduce;
		struct dlb_optimizer_exchange e;
	} rows[] = {
		{ "gradients", { .n = 1, .in = 1, .out = { 1, 1 } } },
		{ "gradients:mean", { .n = 1, .in = 1, .out = { 1, 1 } } },
		{ "gradients:sum", { .n = 1, .in = 4, .out = { 1, 1 } } },
		{ "moments", { .n = 2, .moments = true, .in = 4, .out = { .25, .25 } } },
		{ "moments:mean", { .n = 2, .moments = true, .in = 4, .out = { .25, .25 } } },
		{ "moments:sum", { .n = 2, .moments = true, .in = 4, .out = { 1, 1 } } },
		{ "moments:max",
		  { .n = 2, .moments = true, .in = 4, .out = { .25, 1 }, .max = { false, true } } },
	};
	struct dlb_optimizer_choice o;
	struct dlb_optimizer_exchange e;
	struct dlb_update_desc d;
	struct dlb_error err;

	dlb_optimizer_defaults(DLB_RULE_MAX_ADABELIEF, &o);
	o.variant = DLB_VARIANT_UNCORRECTED;
	o.local_max = true;
	for (int i = 0; i < DLB_LEN(rows); i++) {
		const struct dlb_optimizer_exchange *w = &rows[i].e;

		assert(!dlb_reduce_parse(rows[i].reduce, &o.reduce, &o.reduce_by, &err));
		dlb_optimizer_exchange(&o, 0.25, &e);
		assert(IS(e.n, ==, w->n) && IS(e.moments, ==, w->moments) && IS(e.in, ==, w->in));
		for (int k = 0; k < DLB_MAX_MOMENTS; k++)
			assert(IS(e.out[k], ==, w->out[k]) && IS(e.max[k], ==, w->max[k]));
		d = dlb_optimizer_desc(&o, DLB_F32, 9, DLB_UPDATE_LOCAL, &e);
		assert(IS(d.scale[0], ==, w->in) && IS(d.scale[1], ==, w->out[0]) &&
		       IS(d.scale[2], ==, w->out[1]));
	}
	assert(IS(d.count, ==, 9) && IS(d.dtype, ==, DLB_F32) && IS(d.rule, ==, o.rule) && d.keep_local &&
	       IS(d.variant, ==, DLB_VARIANT_UNCORRECTED) && IS(d.stage, ==, DLB_UPDATE_LOCAL) &&
	       IS(d.hyper[DLB_HYPER_BETA2], ==, 0.999));
	d = dlb_optimizer_desc(&o, DLB_F64, 9, DLB_UPDATE_WHOLE, NULL);
	assert(IS(d.scale[0], ==, 0) && IS(d.scale[1], ==, 0));
	dlb_optimizer_defaults(DLB_RULE_ADAM, &o);
	o.state_dtype = DLB_STATE_8BIT;
	d = dlb_optimizer_desc(&o, DLB_F32, 9, DLB_UPDATE_WHOLE, NULL);
	assert(IS(d.code[0], ==, DLB_CODE_SIGNED_8) && IS(d.code[1], ==, DLB_CODE_UNSIGNED_8) &&
	       IS(d.code[2], ==, 0));
	assert(dlb_reduce_parse("moments:min", &o.reduce, &o.reduce_by, &err) == -1 &&
	       SAME(err.what, "cannot reduce 'moments:min'; there are gradients[:mean|:sum] and "
			      "moments[:mean|:sum|:max]"));
}

int main(void)
{
	documents();
	groups();
	schedules();
	rules();
	exchanges();
	printf("%d refusals of documents\n", DLB_LEN(refused));
	return 0;
}
