/* Finds options without effect. See unused.h. */
#include <string.h>
#include "exec/unused.h"
#include "plan/plan_json.h"
#include "plan/schedule.h"
#include "plan/sharing.h"

/* Options that only a run of real steps uses, and that leave nothing in the document. */
static const char *const of_steps[] = {
	"epochs",           "until-step", "until",    "patience",   "readers",    "checkpoint",
	"checkpoint-every", "save",       "merge",    "loss-log",   "eval-every", "save-best",
	"timeout",          "heartbeat",  "on-event", "on-failure", "rejoin",     "allow-nonfinite",
	"metrics",          "freeze-at",  "no-gpu-graph"
};
/* Options that the run section keeps, and that a printed program does not show. */
static const char *const of_training[] = {
	"steps",     "data",         "test-data",       "transform",   "order",
	"lr",        "momentum",     "alpha",           "beta1",       "beta2",
	"eps",       "weight-decay", "group",           "damping",     "factor-decay",
	"kl-clip",   "variant",      "warmup",          "lr-schedule", "delay-discount",
	"seed",      "init",         "torch-batchnorm", "slow",        "dry-run",
	"max-state", "step-log",     "buddy-every"
};

/* Options of rounds, real or of a scenario. */
static const char *const of_rounds[] = { "rounds", "round-steps" };

/* Options of a simulated run that is no scenario. */
static const char *const of_one_run[] = { "steps", "step-log", "buddy-every" };

struct facts {
	int n_nodes, n_replicas;
	bool late, async, devices, dropout, statistics, drawn, images, adapters;
	const char *optimizer;
	struct dlb_sharing sharing;
};

static bool starts(const char *text, const char *word)
{
	return text && !strncmp(text, word, strlen(word));
}

/* Whether op is a BatchNormalization in training mode: only such a one outputs its running statistics. */
static bool takes_statistics(const json_t *op)
{
	const char *type = json_string_value(json_object_get(op, "type"));

	return type && !strcmp(type, "BatchNormalization") &&
	       json_array_size(json_object_get(op, "outputs")) > 1;
}

static bool names_device(const json_t *cluster)
{
	json_t *kind;
	size_t i;

	json_array_foreach(json_object_get(cluster, "kinds"), i, kind)
		if (!starts(json_string_value(json_object_get(kind, "backend")), "cpu"))
			return true;
	return false;
}

static void find_facts(const struct dlb_doc *doc, const struct dlb_exec_options *o, struct facts *f)
{
	struct dlb_ref plan = dlb_ref_root(doc, "plan");
	const char *schedule = json_string_value(json_object_get(plan.v, "schedule"));
	const struct dlb_schedule *s = schedule ? dlb_schedule_find(schedule) : NULL;
	struct dlb_error ignored = { .what = "" };
	json_t *op;
	size_t i;

	f->n_nodes = (int)json_array_size(json_object_get(dlb_doc_section(doc, "cluster"), "nodes"));
	f->n_replicas = dlb_plan_count_replicas(plan.v);
	const char *rule = json_string_value(json_object_get(plan.v, "staleness"));

	f->async = s && s->async;
	f->devices = names_device(dlb_doc_section(doc, "cluster"));
	f->late = s && s->async && !(rule && (!strcmp(rule, "2bw") || !strcmp(rule, "predict")));
	f->optimizer = json_string_value(
		json_object_get(json_object_get(dlb_doc_section(doc, "run"), "optimizer"), "name"));
	json_array_foreach(json_object_get(dlb_doc_section(doc, "graph"), "ops"), i, op) {
		const char *type = json_string_value(json_object_get(op, "type"));

		f->dropout |= type && (!strcmp(type, "Dropout") || !strcmp(type, "Bernoulli") ||
				       starts(type, "Random"));
		f->statistics |= takes_statistics(op);
	}
	f->adapters = json_array_size(json_object_get(dlb_doc_section(doc, "graph"), "adapters")) > 0;
	f->images = starts(o->data, "images:") || starts(o->test_data, "images:");
	dlb_sharing_init(&f->sharing);
	if (plan.v && dlb_sharing_read(&plan, &f->sharing, &ignored))
		dlb_sharing_init(&f->sharing);
	/* other uses of the seed: adapters, samples, their order, crops and flips, gossip, shards */
	f->drawn = f->dropout || (f->adapters && !o->init) || o->shuffled || starts(o->data, "random") ||
		   (o->transform && (strstr(o->transform, "random") || strstr(o->transform, "flip"))) ||
		   (f->n_replicas > 1 && (f->sharing.gossip > 0 || f->sharing.shards));
}

static int add(struct dlb_unused *row, int n, const char *const *option, int count, const char *why)
{
	for (int i = 0; i < count; i++)
		row[n++] = (struct dlb_unused){ option[i], true, why };
	return n;
}

void dlb_run_unused(const struct dlb_doc *doc, const struct dlb_exec_options *o, bool print_program,
		    const char *scenario, struct dlb_unused *row)
{
	struct facts f = { .n_nodes = 0 };
	int n = 0;

	find_facts(doc, o, &f);
	dlb_sharing_unused(&f.sharing, f.n_replicas, f.optimizer, f.statistics, row);
	while (row[n].option)
		n++;
	if (print_program || o->dry_run)
		n = add(row, n, of_steps, DLB_LEN(of_steps),
			print_program ? "--print-program runs nothing" : "--dry-run takes no real step");
	if (print_program || (o->dry_run && !scenario))
		n = add(row, n, of_rounds, DLB_LEN(of_rounds),
			print_program ? "--print-program runs nothing" :
					"--dry-run takes no real step; --scenario FILE simulates rounds");
	if (scenario && !print_program)
		n = add(row, n, of_one_run, DLB_LEN(of_one_run),
			"--scenario simulates rounds of --round-steps steps");
	row[n++] = (struct dlb_unused){ "scenario", print_program, "--print-program runs nothing" };
	if (print_program) {
		n = add(row, n, of_training, DLB_LEN(of_training),
			"it changes no instruction, and --print-program runs nothing");
	} else {
		const bool random = starts(o->data, "random");

		row[n++] = (struct dlb_unused){ "delay-discount", !f.late,
						"no weight is read more than one update late; asynchronous "
						"plans with --staleness stash or none have such" };
		row[n++] = (struct dlb_unused){
			"torch-batchnorm", !f.statistics,
			"no batch normalization of the model takes statistics of a batch"
		};
		row[n++] = (struct dlb_unused){ "merge", !f.adapters,
						"the graph has no adapters; dlb-profile --lora makes them" };
		row[n++] = (struct dlb_unused){ "merge", f.adapters && !o->save && !o->save_best,
						"nothing is saved; give --save FILE" };
		row[n++] = (struct dlb_unused){ "order", random, "random data have no order" };
		row[n++] = (struct dlb_unused){ "seed", !f.drawn && !o->dry_run,
						"the order is sequential, and nothing else is drawn" };
		row[n++] = (struct dlb_unused){ "release", f.n_nodes < 2,
						"there is one node, without which there is no run" };
		row[n++] = (struct dlb_unused){ "buddy-every", f.n_nodes < 2 && !(scenario && o->dry_run),
						"there is one node, without which there is no run" };
		if (!o->dry_run) {
			row[n++] = (struct dlb_unused){ "no-gpu-graph", !f.devices, "all nodes are CPUs" };
			row[n++] = (struct dlb_unused){ "no-gpu-graph", f.devices && f.async,
							"asynchronous plans start each kernel by itself" };
			row[n++] = (struct dlb_unused){ "rounds", f.n_nodes < 2,
							"there is one node, which has all ops" };
			row[n++] = (struct dlb_unused){ "round-steps", !o->rounds || f.n_nodes < 2,
							"there are no rounds; give --rounds N or auto" };
			row[n++] = (struct dlb_unused){ "checkpoint-every", !o->checkpoint,
							"no folder is given; give --checkpoint DIR" };
			row[n++] = (struct dlb_unused){ "readers", !f.images, "no images are decoded" };
			row[n++] = (struct dlb_unused){ "timeout", f.n_nodes < 2,
							"there is one node, which waits for none" };
			row[n++] = (struct dlb_unused){ "heartbeat", f.n_nodes < 2,
							"there is one node, and none to watch it" };
			row[n++] = (struct dlb_unused){ "on-failure", f.n_nodes < 2,
							"there is one node, without which there is no run" };
			row[n++] = (struct dlb_unused){ "rejoin", !o->replan || f.n_nodes < 2,
							f.n_nodes < 2 ? "there is one node, without which there is no run" :
									"a lost node ends the run; give --on-failure "
									"replan" };
			row[n++] = (struct dlb_unused){
				"buddy-every", f.n_nodes > 1 && !o->replan,
				"a lost node ends the run; give --on-failure replan"
			};
			row[n++] = (struct dlb_unused){ "on-event", f.n_nodes < 2,
							"there is one node, without which there is no run" };
		}
	}
	row[n] = (struct dlb_unused){ .option = NULL };
}
