/* Kept results of dlb-place's work on a document: first plans under all of its options, plans made again
 * under others, and under the weights and kappas of a balance; with each plan the warnings, or the message
 * why there is none. kept.h says how they are replaced. */
#include <jansson.h>
#include "place_worlds.h"
#include <stddef.h>
#include <unistd.h>
#include "balance/replan.h"
#include "graph/graph_json.h"
#include "plan/sharing.h"

static const char *const kept[] = {
#include "replan_kept.inc"
};
static const struct dlb_cli cli = { .tool = "test" };

/* A word of a case: option=value. */
#define TEXT(name, member) \
	{ \
		name, offsetof(struct dlb_replan, member) \
	}
static const struct text_option {
	const char *name;
	size_t at;
} texts[] = {
	TEXT("algorithm", algorithm),
	TEXT("schedule", schedule),
	TEXT("staleness", staleness),
	TEXT("in-place", in_place),
	TEXT("optimizer", optimizer),
	TEXT("replicas", replicas),
	TEXT("split", split),
	TEXT("batch", batch),
	TEXT("state-dtype", state_dtype),
	TEXT("zero", zero),
	TEXT("objective", objective),
	TEXT("priority", constraints.priority),
	TEXT("allreduce", sharing.allreduce),
	TEXT("compress", sharing.compress),
};

static const char *const cases[] = {
	"M=2",
	"M=2 schedule=auto",
	"schedule=auto replicas=auto",
	"replicas=2 zero=auto optimizer=adam | replicas=1 | zero=0 replicas=auto",
	"replicas=2 split=power M=2 | weights split=even | weights",
	"replicas=4 allreduce=ring | replicas=auto M=2 | weights",
	"batch=auto M=2 optimizer=adam | batch=8 | batch=auto replicas=2",
	"batch=24 M=3 algorithm=even | weights algorithm=auto | max-moves=2 | weights",
	"M=2 recompute=auto optimizer=adam | recompute=none | weights recompute=auto",
	"M=2 recompute=f1,f2 | weights | recompute=f*",
	"M=2 offload=auto optimizer=adam | offload=none | weights offload=auto",
	"M=2 offload=w*=pool optimizer=adam | weights",
	"M=2 offload=weights:w*=pool,activations:f*=pool | schedule=gpipe",
	"M=2 offload=activations:*=pool recompute=auto | M=4",
	"state-dtype=bf16 optimizer=adam | state-dtype=f32 | optimizer=sgd",
	"state-dtype=8bit optimizer=adamw M=2 | weights",
	("M=4 schedule=async algorithm=even staleness=stash | staleness=predict optimizer=momentum | "
	 "schedule=1f1b"),
	"M=4 schedule=interleaved chunks=3 | chunks=2 | algorithm=greedy priority=upward-rank",
	"pin=f1=1,f2=0 M=2 | exclude=0 pin=none | exclude=none weights | pin=f0=9",
	"algorithm=random seed=5 | seed=6 | algorithm=heft in-place=off | algorithm=peft",
	"front M=2 | weights front",
	"clip=1 M=2 optimizer=adam | clip=0.5 weights | replicas=2",
	"replicas=4 zero=3 optimizer=adam | weights | zero=1",
	"replicas=2 compress=auto allreduce=tree | compress=bf16 | weights compress=none",
	"M=32 | batch=4 M=4 | batch=3 M=2 | M=0",
	"objective=throughput | objective=step | staleness=stash | zero=1",
	"effort=2 M=2 | serve=20 weights | stay weights | keeps-shares replicas=2",
	"need M=2 optimizer=adam | need recompute=auto | need offload=auto zero=auto replicas=2",
};

static const struct options {
	const char *cluster;
	double memory; /* part of the model's bytes that a node has; 0: no limit */
	uint64_t seed;
	int n_forward;
} settings[] = {
	{ "cpu:2 host cpu:2*0.5 link=rack:1e-6,1e9", 0, 3, 7 },
	{ "cpu:3*2 cpu/2:1", .25, 4, 7 },
};

/* More than 500 ops, for which plans of less effort are tried too; a simple algorithm makes each. */
static const struct options many = { "cpu:2 host cpu:2*0.5 link=rack:1e-6,1e9", 0, 3, 206 };
static const char *const cases_of_many[] = {
	"replicas=2 algorithm=even effort=3 M=2 | weights algorithm=greedy effort=2",
};

struct world_doc {
	struct dag d;
	struct dlb_doc doc;
	double weight[4];
};

static void make(struct world_doc *w, const struct options *x)
{
	const struct dag_options o = { .seed = x->seed,
				       .n_forward = x->n_forward,
				       .training = true,
				       .chain = x->seed % 2,
				       .colocate = .5,
				       .cluster = x->cluster,
				       .batch = 16 };
	double all = 0;

	dag_init(&w->d, &o);
	round_costs(&w->d);
	for (int i = 0; i < w->d.g.n_tensors; i++)
		all += w->d.g.tensor[i].size_add + 16 * w->d.g.tensor[i].size_mul;
	for (int i = 0; i < w->d.cl.n_nodes; i++) {
		w->d.cl.node[i].memory_bytes = rint(all * x->memory * (1 + .25 * i));
		w->weight[i] = i % 2 ? 1.5 : 0.5;
	}
	const int m = dlb_cluster_add_memory(&w->d.cl, w->d.cl.node[0].group, "pool", "cxl", 1e7);
	w->d.cl.memory[m].bandwidth_Bps = 5e8;
	dlb_doc_init(&w->doc, "f.json");
	dlb_doc_set(&w->doc, "graph", dlb_graph_write(&w->d.g));
	dlb_doc_set(&w->doc, "cluster", dlb_cluster_write(&w->d.cl));
	dlb_doc_set(&w->doc, "cost", dlb_cost_write(&w->d.c));
}

static void add_items(struct dlb_strlist *list, char *value, const char **item)
{
	char *rest;

	list->item = item;
	for (char *word = strtok_r(value, ",", &rest); word && list->n < 4; word = strtok_r(NULL, ",", &rest))
		item[list->n++] = word;
}

/* Sets what a word of a case asks for. item: room for lists. */
static void set(struct world_doc *w, struct dlb_replan *o, struct dlb_memory_need *need, char *word,
		const char **item)
{
	char *value = strchr(word, '=');

	if (value)
		*value++ = '\0';
	for (int i = 0; i < DLB_LEN(texts); i++)
		if (!strcmp(word, texts[i].name))
			*(const char **)((char *)o + texts[i].at) = value;
	if (!strcmp(word, "M"))
		o->micro_batches = atoi(value), o->micro_batches_given = true;
	else if (!strcmp(word, "chunks"))
		o->chunks = atoi(value);
	else if (!strcmp(word, "seed"))
		o->seed = atoi(value), o->seed_given = true;
	else if (!strcmp(word, "effort"))
		o->effort = atoi(value);
	else if (!strcmp(word, "clip"))
		o->clip_norm = atof(value), o->clip_given = true;
	else if (!strcmp(word, "max-moves"))
		o->constraints.max_moves = atoi(value);
	else if (!strcmp(word, "serve"))
		o->constraints.serve_steps = atof(value);
	else if (!strcmp(word, "front"))
		o->front = true;
	else if (!strcmp(word, "stay"))
		o->stay = true;
	else if (!strcmp(word, "keeps-shares"))
		o->keeps_shares = true;
	else if (!strcmp(word, "need"))
		o->need = need;
	else if (!strcmp(word, "recompute"))
		add_items(&o->recompute, value, item);
	else if (!strcmp(word, "offload"))
		add_items(&o->offload, value, item);
	else if (!strcmp(word, "pin"))
		add_items(&o->constraints.pin, value, item);
	else if (!strcmp(word, "exclude"))
		add_items(&o->constraints.exclude, value, item);
	else if (!strcmp(word, "weights")) {
		json_t *weights = json_array(), *kappa = json_array();

		for (int i = 0; i < w->d.cl.n_nodes; i++) {
			json_array_append_new(weights, json_real(w->weight[i]));
			json_array_append_new(kappa, json_real(i == 2 ? 1.25 : 1));
			w->weight[i] = 2 - w->weight[i];
		}
		dlb_doc_put(&w->doc, "balance", json_pack("{s:o,s:o}", "weights", weights, "kappa", kappa));
	}
}

/* Makes the next plan; the text on stderr becomes part of the checksum. */
static int next_plan(struct world_doc *w, struct dlb_replan *o, struct dlb_error *err)
{
	char text[4000];
	FILE *f = tmpfile();

	fflush(stderr);
	const int terminal = dup(2);
	dup2(fileno(f), 2);
	int rc = dlb_replan_check(o);
	if (!rc && o->zero)
		rc = dlb_replan_take_zero(o);
	if (!rc)
		rc = dlb_replan(o, &w->doc, err);
	fflush(stderr);
	dup2(terminal, 2);
	close(terminal);
	rewind(f);
	const size_t n = fread(text, 1, sizeof text - 1, f);
	text[n] = '\0';
	fclose(f);
	kept_text(text);
	return rc;
}

static void step(struct world_doc *w, const char *name, char *words)
{
	const char *item[8][4];
	struct dlb_memory_need need[8] = { { 0 } };
	struct dlb_replan o = { .cli = &cli, .micro_batches = 1, .seed = 1, .constraints.max_moves = -1 };
	struct dlb_error err = { .what = "" };
	char *rest;
	int n = 0;

	for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
		set(w, &o, need, word, item[n++]);
	const int rc = next_plan(w, &o, &err);
	if (rc) {
		kept_line(name, "%d %s %s", rc, err.where, err.what);
		return;
	}
	json_t *plan = json_deep_copy(dlb_doc_section(&w->doc, "plan"));
	json_object_del(plan, "inputs");
	json_object_del(plan, "hash");
	kept_json(plan);
	kept_line(name, "%.5g s, bound %.5g s", json_number_value(json_object_get(plan, "value_s")),
		  json_number_value(json_object_get(plan, "bound_s")));
	json_decref(plan);
}

static void document(const struct options *x, int number, const char *words_of_case)
{
	struct world_doc w;
	char *text = strdup(words_of_case), *rest, name[120];

	make(&w, x);
	for (char *words = strtok_r(text, "|", &rest); words; words = strtok_r(NULL, "|", &rest)) {
		snprintf(name, sizeof name, "%d %.40s", number, words);
		step(&w, name, words);
	}
	dlb_doc_release(&w.doc);
	dag_release(&w.d);
	free(text);
}

static void documents(const struct options *x, int number)
{
	for (int i = 0; i < DLB_LEN(cases); i++) {
		/* with little memory, the ways to save it */
		static const char *const saves[] = { "zero",       "recompute=auto", "offload",
						     "batch=auto", "need",           "bit" };
		bool any = x->memory <= 0;

		if (!any && i == 3) /* a refusal, slowly */
			continue;

		for (int k = 0; k < DLB_LEN(saves); k++)
			any |= strstr(cases[i], saves[k]) != NULL;
		if (!any)
			continue;
		document(x, number, cases[i]);
	}
}

int main(int argc, char **argv)
{
	for (int i = 0; i < DLB_LEN(settings); i++)
		documents(&settings[i], i);
	for (int i = 0; i < DLB_LEN(cases_of_many); i++)
		document(&many, 9, cases_of_many[i]);
	return kept_end(argc, argv, kept, DLB_LEN(kept));
}
