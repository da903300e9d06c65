/* dlb-profile's graph of an ONNX model: applies the options to it, step by step. */
#define _XOPEN_SOURCE 700	/* realpath */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "exec/profile_command.h"
#include "graph/order.h"
#include "graph/passes.h"
#include "model/onnx.h"
#include "util/hash.h"

static bool is_state_dict(const char *path)
{
	const size_t n = strlen(path);

	return n > 12 && !strcmp(path + n - 12, ".safetensors");
}

/* Takes the state file of --weights. The graph must be as read, so that its initializers are found in the
 * file. */
static int use_state_dict(struct dlb_profile_command *w, struct dlb_error *err)
{
	const char *path = w->o->weights;

	return path && is_state_dict(path) ?
		       dlb_graph_take_state_file(&w->training, path, w->o->untie, &w->state, err) :
		       0;
}

/* Takes the weights of another model, which must have all weights of the graph. Called once these are
 * known. */
static int use_weights(struct dlb_profile_command *w, struct dlb_doc *doc, struct dlb_error *err)
{
	char sha[65];

	if (!w->o->weights || is_state_dict(w->o->weights))
		return 0;
	char *path = realpath(w->o->weights, NULL);
	if (!path)
		return dlb_fail(err, NULL, "cannot open '%s': %s", w->o->weights, strerror(errno));
	if (dlb_weights_sha256(path, sha, err)) {
		free(path);
		return -1;
	}
	json_t *run = json_object();
	json_object_set_new(run, "weights", json_pack("{s:s, s:s}", "path", path, "sha256", sha));
	dlb_doc_put(doc, "run", run);
	int rc = dlb_graph_load_weights(&w->training, path, err);
	free(path);
	return rc;
}

static int set_padding_rows(const struct dlb_profile_options *o, struct dlb_graph *g, struct dlb_error *err)
{
	for (int i = 0; i < o->padding_rows.n; i++)
		if (dlb_graph_set_padding_row(g, o->padding_rows.item[i], err))
			return -1;
	return 0;
}

int dlb_profile_set_dims(const struct dlb_profile_options *o, struct dlb_graph *g, struct dlb_error *err)
{
	for (int i = 0; i < o->dims.n; i++)
		if (dlb_graph_set_dim(g, o->dims.item[i], err))
			return -1;
	return 0;
}

int dlb_profile_switch_rewrites(const struct dlb_profile_options *o, struct dlb_graph *g,
				struct dlb_error *err)
{
	for (int i = 0; i < o->no_rewrite.n; i++)
		if (dlb_graph_no_rewrite(g, o->no_rewrite.item[i], err))
			return -1;
	return 0;
}

static int take_patterns(struct dlb_profile_command *w, const struct dlb_strlist *given, const char *option,
			 struct dlb_patterns *p, struct dlb_error *err)
{
	*p = (struct dlb_patterns){ .what = option };
	for (int i = 0; i < given->n; i++)
		if (dlb_patterns_add(p, given->item[i], &w->arena, err))
			return -1;
	return 0;
}

static int choose_parameters(struct dlb_profile_command *w, struct dlb_error *err)
{
	struct dlb_parameter_choice c = { .untie = w->o->untie };

	if (take_patterns(w, &w->o->parameters, "--parameters", &c.train, err) ||
	    take_patterns(w, &w->o->freeze, "--freeze", &c.freeze, err) ||
	    (!w->o->lora.n && take_patterns(w, &w->o->train_only, "--train-only", &c.train_only, err)))
		return -1;
	if (!w->training.state_path && dlb_graph_tie(&w->training, c.untie, err))
		return -1;
	return dlb_graph_choose_parameters(&w->training, &c, err);
}

/* With adapters, --train-only names the parameters that are trained besides them. */
static int add_adapters(struct dlb_profile_command *w, struct dlb_error *err)
{
	const struct dlb_profile_options *o = w->o;
	struct dlb_adapter_choice c = { .text = o->lora.item, .n = o->lora.n,
					.alpha = o->lora_alpha };

	if (!o->lora.n || !w->training.training)
		return 0;
	return take_patterns(w, &o->train_only, "--train-only", &c.train_only, err) ||
	       dlb_graph_add_adapters(&w->training, &c, err) ? -1 : 0;
}

static int attach_losses(const struct dlb_profile_options *o, struct dlb_graph *g, struct dlb_error *err)
{
	return o->inference ? dlb_graph_attach_loss(g, "none", err) :
			      dlb_graph_attach_losses(g, o->loss.item, o->loss.n, err);
}

/* Restores the training mode that an export for inference lost: of batch normalization, and dropout. */
static int set_training_mode(const struct dlb_profile_options *o, struct dlb_graph *g, struct dlb_error *err)
{
	bool norms = false;

	if (!g->training)
		return 0;
	for (int i = 0; i < g->n_ops && o->batchnorm; i++)
		norms |= !strcmp(g->op[i].type, "BatchNormalization");
	if (o->batchnorm && !norms)
		dlb_graph_note(g, "--batchnorm has no effect: the model has no BatchNormalization");
	dlb_graph_set_batchnorm(g, !o->batchnorm || !strcmp(o->batchnorm, "train"));
	dlb_graph_own_statistics(g);
	for (int i = 0; i < o->dropout.n; i++)
		if (dlb_graph_add_dropout(g, o->dropout.item[i], err))
			return -1;
	dlb_graph_note_dropout(g);
	return 0;
}

/* Turns the graph as read, which is ONNX's, into the graph to plan. Each step has a file in lib/graph. */
static int rewrite(struct dlb_profile_command *w, struct dlb_error *err)
{
	const struct dlb_profile_options *o = w->o;
	struct dlb_graph *g = &w->training;
	int *op_of, *tensor_of;

	g->training = !o->inference;
	g->fixed_batch = w->one_piece;
	dlb_graph_upcast(g);
	if (choose_parameters(w, err))
		return -1;
	if (!strcmp(o->dtype, "f64"))
		dlb_graph_widen(g);
	if (dlb_profile_switch_rewrites(o, g, err) || set_padding_rows(o, g, err) ||
	    dlb_profile_set_dims(o, g, err) || dlb_graph_size_inputs(g, err) ||
	    dlb_graph_fold(g, o->batch, &w->device[0].be, err) || set_training_mode(o, g, err) ||
	    dlb_graph_find_parameters(g, err) || add_adapters(w, err) || attach_losses(o, g, err) || dlb_graph_rewrite(g, err) ||
	    dlb_graph_choose_layout(g, err) || (!strcmp(o->dtype, "bf16") && dlb_graph_mix(g, err)) ||
	    (g->training && dlb_graph_differentiate(g, err)))
		return -1;
	w->g = g;
	if (!g->training) {
		if (dlb_graph_eval(g, &w->eval, &op_of, &tensor_of, err))
			return -1;
		w->g = &w->eval;
	}
	return dlb_graph_check(w->g, err) || dlb_graph_index(w->g) ? -1 : 0;
}

int dlb_profile_take_model(struct dlb_profile_command *w, const char *path, struct dlb_doc *doc,
			   struct dlb_error *err)
{
	if ((w->o->analytic ? dlb_onnx_skim : dlb_onnx_read)(path, &w->training, err))
		return -1;
	if (dlb_graph_unmerge(&w->training, err) || use_state_dict(w, err))
		return -1;
	return rewrite(w, err) ? dlb_error_at(err, path) : use_weights(w, doc, err);
}
