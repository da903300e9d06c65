/* dlb-profile: checks the options, takes a model or a document, and measures it. */
#include <string.h>
#include "exec/agree.h"
#include "exec/profile_command.h"
#include "graph/graph_json.h"
#include "graph/order.h"
#include "graph/passes.h"

/* Why the i-th name of --no-rewrite has no effect; NULL: it has one. */
static const char *idle_rewrite(const struct dlb_profile_command *w, int i)
{
	const char *const *item = w->o->no_rewrite.item, *name = item[i];

	for (int k = 0; k < w->o->no_rewrite.n; k++)
		if (k != i &&
		    ((!strcmp(item[k], "all") && strcmp(name, "all")) || (k < i && !strcmp(item[k], name))))
			return "it is left out already";
	return dlb_graph_missed(&w->training, name) ? NULL :
						      "there is nothing in the model that it would change";
}

static void say_warnings(struct dlb_profile_command *w)
{
	const char **line;
	const int n = dlb_graph_warnings(w->g, &line);

	for (int i = 0; i < n; i++)
		dlb_cli_warn(w->cli, "%s", line[i]);
	for (int i = 0; i < w->o->no_rewrite.n; i++)
		if (idle_rewrite(w, i))
			dlb_cli_warn(w->cli, "--no-rewrite %s has no effect: %s", w->o->no_rewrite.item[i],
				     idle_rewrite(w, i));
	for (int i = 0; i < w->n_devices && w->g->dtype == DLB_BF16; i++)
		if (!w->device[i].be.fast_bf16)
			dlb_cli_warn(w->cli,
				     "%s has no instructions for bf16 here: it works, but slower than f32",
				     w->device[i].name);
}

static bool is_document(const char *path)
{
	const size_t n = path ? strlen(path) : 0;

	return !path || !strcmp(path, "-") || (n > 5 && !strcmp(path + n - 5, ".json"));
}

/* Checks that two samples together give the results that each gives alone. If not, the model mixes samples by
 * design, or its batch was found in the wrong dimension. In both cases it is read again, keeps the batch that
 * it was exported with, and is trained in one micro-batch. */
static int check_samples(struct dlb_profile_command *w, const char *path, struct dlb_doc *doc,
			 struct dlb_error *err)
{
	struct dlb_error ignored = { .what = "" };

	if (w->o->analytic || !dlb_samples_agree(&w->training, &w->device[0].be, err))
		return 0;
	dlb_graph_release(&w->eval);
	dlb_graph_release(&w->training);
	w->one_piece = true;
	if (dlb_profile_take_model(w, path, doc, &ignored))
		return dlb_error_at(err, path);
	dlb_graph_note(w->g, "the batch stays %lld, in one micro-batch and one replica: %s: %s",
		       (long long)w->g->batch, err->where, err->what);
	*err = (struct dlb_error){ .what = "" };
	return 0;
}

/* A model starts a document; a document with a graph is measured on further devices. */
static int take_input(struct dlb_profile_command *w, const char *path, struct dlb_doc *doc,
		      struct dlb_error *err)
{
	if (!is_document(path)) {
		dlb_doc_init(doc, path);
		if (dlb_profile_take_model(w, path, doc, err) || check_samples(w, path, doc, err))
			return -1;
		dlb_doc_set(doc, "graph", dlb_graph_write(w->g));
		return 0;
	}
	if (dlb_doc_read(doc, path, err) || dlb_graph_read(doc, &w->training, err))
		return -1;
	w->g = &w->training;
	const struct dlb_profile_options *o = w->o;
	if (o->batch || o->loss.n || o->inference || o->weights || o->no_rewrite.n || o->padding_rows.n ||
	    o->dims.n || strcmp(o->dtype, "f32") || o->batchnorm || o->dropout.n || o->parameters.n ||
	    o->freeze.n || o->train_only.n || o->untie || o->lora.n) {
		dlb_fail(err, doc->name, "the graph is made already: only --device and --analytic apply");
		return dlb_hint(err, "give the ONNX model");
	}
	if (dlb_graph_index(w->g) || dlb_graph_load_weights(w->g, NULL, err) ||
	    dlb_graph_check_runnable(w->g, w->g->batch, err))
		return -1;
	return dlb_doc_section(doc, "profile") ? dlb_profile_read(doc, w->g, &w->p, err) : 0;
}

int dlb_profile_model(struct dlb_profile_command *w, const char *path, struct dlb_doc *doc,
		      struct dlb_error *err)
{
	static const char *const inputs[] = { "graph", NULL };

	int rc = dlb_profile_open_devices(w, err) || take_input(w, path, doc, err) ? -1 : 0;
	if (w->comm)
		rc = dlb_comm_agree(w->comm, rc, err, &w->who);
	if (rc)
		return -1;
	if (!dlb_profile_rank(w))
		say_warnings(w);
	if (dlb_profile_run(w, err))
		return dlb_error_at(err, path ? path : "<stdin>");
	if (dlb_profile_rank(w))
		return 0;
	json_t *section = dlb_profile_write(&w->p);
	json_object_set_new(section, "inputs", dlb_doc_input_hashes(doc, inputs));
	dlb_doc_set(doc, "profile", section);
	dlb_profile_say(w);
	return 0;
}

/* The first option given that is not in `taken`, which ends with NULL; NULL: none. */
static const char *not_taken(const struct dlb_cli *cli, const char *const *taken)
{
	for (int i = 0; i < cli->n_given; i++) {
		bool known = false;
		for (int k = 0; taken[k]; k++)
			known |= !strcmp(cli->given[i], taken[k]);
		if (!known)
			return cli->given[i];
	}
	return NULL;
}

/* Warns of options without effect, in a line each. */
void dlb_profile_warn_unused(const struct dlb_cli *cli, const struct dlb_profile_options *o)
{
	static const char nothing[] = "--inference trains nothing";
	const struct dlb_unused row[] = {
		{ "device", o->analytic && !o->cluster, "--analytic measures on no device" },
		{ "tf32", o->analytic, "--analytic measures on no device; name the kind cuda+tf32 in the cluster" },
		{ "fast-math", o->analytic, "--analytic measures on no device; name the kind cuda+fast in the cluster" },
		{ "parameters", o->inference, nothing },
		{ "freeze", o->inference, nothing },
		{ "train-only", o->inference, nothing },
		{ "lora", o->inference, nothing },
		{ "lora-alpha", o->inference || !o->lora.n,
		  o->lora.n ? nothing : "there are no adapters; give --lora RANK" },
		{ "padding-row", o->inference, nothing },
		{ NULL, false, NULL },
	};

	dlb_cli_warn_unused(cli, row);
}

int dlb_profile_check_options(const struct dlb_cli *cli, const struct dlb_profile_options *o)
{
	static const char *const of_check[] = { "check", "max-document", "quiet", "verbose", NULL };
	static const char *const of_cluster[] = { "cluster", "topology", "device",    "max-document",
						  "hosts",   "tf32",     "fast-math", "quiet",
						  "verbose", "memory",   NULL };

	if (o->check && not_taken(cli, of_check))
		return dlb_cli_usage(
			cli, "--%s has no effect on --check, which compares this machine with a document's",
			not_taken(cli, of_check));
	if (strcmp(o->dtype, "f32") && strcmp(o->dtype, "f64") && strcmp(o->dtype, "bf16"))
		return dlb_cli_usage(cli, "no dtype '%s': f32, bf16 or f64", o->dtype);
	if (o->batchnorm && strcmp(o->batchnorm, "train") && strcmp(o->batchnorm, "frozen"))
		return dlb_cli_usage(cli, "no batchnorm '%s': train or frozen", o->batchnorm);
	if (o->inference && (o->batchnorm || o->dropout.n))
		return dlb_cli_usage(cli, "--%s is for training, and --inference for none",
				     o->batchnorm ? "batchnorm" : "dropout");
	if (o->lora.n && o->freeze.n)
		return dlb_cli_usage(cli, "--lora freezes all parameters, and --freeze none more; "
					  "--train-only GLOB trains some of them");
	if (o->inference && o->loss.n)
		return dlb_cli_usage(cli, "--loss is for training, and --inference for none");
	if (o->cluster && not_taken(cli, of_cluster))
		return dlb_cli_usage(cli, "--%s is for a model's profile, and --cluster makes none",
				     not_taken(cli, of_cluster));
	if (o->topology && !o->cluster)
		return dlb_cli_usage(cli, "--topology belongs to --cluster");
	if (o->hosts && (!o->cluster || o->topology))
		return dlb_cli_usage(cli, o->topology ?
						  "--topology describes one machine, and --hosts measures several" :
						  "--hosts belongs to --cluster");
	if (o->memories.n && (!o->cluster || o->topology || o->hosts))
		return dlb_cli_usage(cli, "--memory belongs to --cluster without --topology and --hosts");
	for (int i = 0; i < o->memories.n; i++)
		if (o->memories.item[i][0] == '=' || !strchr(o->memories.item[i], '=') ||
		    !strchr(o->memories.item[i], '=')[1])
			return dlb_cli_usage(cli, "--memory wants NAME=FOLDER, not '%s'",
					     o->memories.item[i]);
	struct dlb_graph g = { .n_ops = 0 };
	struct dlb_error err = { .what = "" };
	const int rc = dlb_profile_switch_rewrites(o, &g, &err) || dlb_profile_set_dims(o, &g, &err);
	dlb_arena_release(&g.arena);
	if (rc)
		return dlb_cli_usage(cli, "%s%s%s", err.what, *err.hint ? "; " : "", err.hint);
	return 0;
}

void dlb_profile_close(struct dlb_profile_command *w, struct dlb_doc *doc)
{
	dlb_doc_release(doc);
	dlb_profile_release(&w->p);
	dlb_graph_release(&w->eval);
	dlb_graph_release(&w->training);
	dlb_safetensors_release(&w->state);
	dlb_arena_release(&w->arena);
	for (int i = 0; i < w->n_devices; i++)
		w->device[i].be.ops->close(&w->device[i].be);
	dlb_comm_free(w->comm);
}
