/* dlb-profile: an ONNX model -> graph and profile; --cluster -> the cluster section of where it runs; --check compares. */
#define _XOPEN_SOURCE 700	/* realpath */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/cluster.h"
#include "comm/comm.h"
#include "cost/profile.h"
#include "exec/agree.h"
#include "exec/launch.h"
#include "exec/machine_check.h"
#include "exec/probe.h"
#include "exec/profiling.h"
#include "graph/graph.h"
#include "model/onnx.h"
#include "model/weights.h"
#include "util/cli.h"
#include "util/hash.h"

enum { MAX_DEVICES = 16 };

struct device { struct dlb_backend be; const char *name; };
struct profile_options {
	int64_t batch;
	const char *dtype, *topology, *weights, *batchnorm;
	struct dlb_strlist devices, no_rewrite, padding_rows, loss, dropout, dims;
	struct dlb_strlist parameters, freeze, train_only;
	bool inference, analytic, cluster, check, list;
	bool untie;
};
struct profile_work {
	const struct dlb_cli *cli;
	struct dlb_comm *comm;			/* NULL: not under mpirun */
	const struct profile_options *o;
	struct device device[MAX_DEVICES];
	int n_devices;
	struct dlb_arena arena;
	struct dlb_graph training, eval, *g;	/* g: the one that is written; eval borrows from training */
	struct dlb_profile p;
	bool one_piece;				/* the model mixes samples: one micro-batch, as exported */
	struct dlb_safetensors state;		/* of --weights */
	int who;				/* the rank that failed */
	bool differs;				/* --check: the machine is not that of the document */
};

static int rank_of(const struct profile_work *w)
{
	return w->comm ? dlb_comm_rank(w->comm) : 0;
}

/* -- devices: "cpu" is one thread, "cpu/4" four -- */

static int open_device(struct profile_work *w, const char *text, struct dlb_error *err)
{
	char backend[32] = "";
	int threads = 1, used = 0;
	struct device *d = &w->device[w->n_devices];

	if (w->n_devices == MAX_DEVICES)
		return dlb_fail(err, NULL, "more than %d devices", MAX_DEVICES);
	if (sscanf(text, "%31[^/]%n", backend, &used) != 1 ||
	    (text[used] && (sscanf(text + used, "/%d%n", &threads, &used) != 1 || strchr(text, '/')[used] || threads < 1))) {
		dlb_fail(err, NULL, "no device '%s'", text);
		return dlb_hint(err, "devices are named as in cpu or cpu/4, which has 4 threads");
	}
	const struct dlb_backend_ops *ops = dlb_backend_find(backend);
	if (!ops) {
		dlb_fail(err, NULL, "no device '%s'", text);
		return dlb_hint(err, "there is 'cpu', and 'cpu/4' of 4 threads");
	}
	if (ops->open(0, threads, &d->be, err))
		return -1;
	d->name = dlb_cluster_kind_name(&w->arena, backend, threads);
	w->n_devices++;
	return 0;
}

static int open_devices(struct profile_work *w, struct dlb_error *err)
{
	if (!w->o->devices.n)
		return open_device(w, "cpu", err);
	for (int i = 0; i < w->o->devices.n; i++)
		if (open_device(w, w->o->devices.item[i], err))
			return -1;
	return 0;
}

/* -- the graph -- */

static bool is_state_dict(const char *path)
{
	const size_t n = strlen(path);

	return n > 12 && !strcmp(path + n - 12, ".safetensors");
}

/* As read, so that initializers are found in it. */
static int use_state_dict(struct profile_work *w, struct dlb_error *err)
{
	const char *path = w->o->weights;

	return path && is_state_dict(path) ? dlb_graph_take_state_file(&w->training, path, w->o->untie, &w->state, err) : 0;
}

/* Of another model: once the graph's weights are known, all of which must be there. */
static int use_weights(struct profile_work *w, struct dlb_doc *doc, struct dlb_error *err)
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

static int set_padding_rows(const struct profile_options *o, struct dlb_graph *g, struct dlb_error *err)
{
	for (int i = 0; i < o->padding_rows.n; i++)
		if (dlb_graph_set_padding_row(g, o->padding_rows.item[i], err))
			return -1;
	return 0;
}

static int set_dims(const struct profile_options *o, struct dlb_graph *g, struct dlb_error *err)
{
	for (int i = 0; i < o->dims.n; i++)
		if (dlb_graph_set_dim(g, o->dims.item[i], err))
			return -1;
	return 0;
}

/* Attention as one op has no kernel for bf16; its products have. */
static int switch_rewrites(const struct profile_options *o, struct dlb_graph *g, struct dlb_error *err)
{
	if (!strcmp(o->dtype, "bf16") && dlb_graph_no_rewrite(g, "attention", err))
		return -1;
	for (int i = 0; i < o->no_rewrite.n; i++)
		if (dlb_graph_no_rewrite(g, o->no_rewrite.item[i], err))
			return -1;
	return 0;
}

static int take_patterns(struct profile_work *w, const struct dlb_strlist *given, const char *option, struct dlb_patterns *p,
			 struct dlb_error *err)
{
	*p = (struct dlb_patterns){ .what = option };
	for (int i = 0; i < given->n; i++)
		if (dlb_patterns_add(p, given->item[i], &w->arena, err))
			return -1;
	return 0;
}

static int choose_parameters(struct profile_work *w, struct dlb_error *err)
{
	struct dlb_parameter_choice c = { .untie = w->o->untie };

	if (take_patterns(w, &w->o->parameters, "--parameters", &c.train, err) ||
	    take_patterns(w, &w->o->freeze, "--freeze", &c.freeze, err) ||
	    take_patterns(w, &w->o->train_only, "--train-only", &c.train_only, err))
		return -1;
	if (!w->training.state_path && dlb_graph_tie(&w->training, c.untie, err))
		return -1;
	return dlb_graph_choose_parameters(&w->training, &c, err);
}

static int attach_losses(const struct profile_options *o, struct dlb_graph *g, struct dlb_error *err)
{
	return o->inference ? dlb_graph_attach_loss(g, "none", err) : dlb_graph_attach_losses(g, o->loss.item, o->loss.n, err);
}

/* What an export for inference lost. */
static int set_training_mode(const struct profile_options *o, struct dlb_graph *g, struct dlb_error *err)
{
	bool norms = false;

	if (!g->training)
		return 0;
	for (int i = 0; i < g->n_ops && o->batchnorm; i++)
		norms |= !strcmp(g->op[i].type, "BatchNormalization");
	if (o->batchnorm && !norms)
		dlb_graph_note(g, "--batchnorm has no effect: the model has no BatchNormalization");
	dlb_graph_set_batchnorm(g, !o->batchnorm || !strcmp(o->batchnorm, "train"));
	for (int i = 0; i < o->dropout.n; i++)
		if (dlb_graph_add_dropout(g, o->dropout.item[i], err))
			return -1;
	dlb_graph_note_dropout(g);
	return 0;
}

/* As read, the graph is ONNX's; what is done to it stands in lib/graph, one file a step. */
static int rewrite(struct profile_work *w, struct dlb_error *err)
{
	const struct profile_options *o = w->o;
	struct dlb_graph *g = &w->training;
	int *op_of, *tensor_of;

	g->training = !o->inference;
	g->fixed_batch = w->one_piece;
	dlb_graph_upcast(g);
	if (choose_parameters(w, err))
		return -1;
	if (!strcmp(o->dtype, "f64"))
		dlb_graph_widen(g);
	if (switch_rewrites(o, g, err) || set_padding_rows(o, g, err) || set_dims(o, g, err) || dlb_graph_size_inputs(g, err) ||
	    dlb_graph_fold(g, o->batch, &w->device[0].be, err) || set_training_mode(o, g, err) || dlb_graph_find_parameters(g, err) ||
	    attach_losses(o, g, err) || dlb_graph_rewrite(g, err) ||
	    dlb_graph_choose_layout(g, err) ||
	    (!strcmp(o->dtype, "bf16") && dlb_graph_mix(g, err)) ||
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

/* Why --no-rewrite with its i-th name has nothing to do; NULL: it has. */
static const char *idle_rewrite(const struct profile_work *w, int i)
{
	const char *const *item = w->o->no_rewrite.item, *name = item[i];

	for (int k = 0; k < w->o->no_rewrite.n; k++)
		if (k != i && ((!strcmp(item[k], "all") && strcmp(name, "all")) || (k < i && !strcmp(item[k], name))))
			return "it is left out already";
	if (!strcmp(w->o->dtype, "bf16") && !strcmp(name, "attention"))
		return "--dtype bf16 leaves it out already";
	return dlb_graph_missed(&w->training, name) ? NULL : "there is nothing in the model that it would change";
}

static void say_warnings(struct profile_work *w)
{
	const char **line;
	const int n = dlb_graph_warnings(w->g, &line);

	for (int i = 0; i < n; i++)
		dlb_cli_warn(w->cli, "%s", line[i]);
	for (int i = 0; i < w->o->no_rewrite.n; i++)
		if (idle_rewrite(w, i))
			dlb_cli_warn(w->cli, "--no-rewrite %s has no effect: %s", w->o->no_rewrite.item[i], idle_rewrite(w, i));
	for (int i = 0; i < w->n_devices && w->g->dtype == DLB_BF16; i++)
		if (!w->device[i].be.fast_bf16)
			dlb_cli_warn(w->cli, "%s has no instructions for bf16 here: it works, but slower than f32", w->device[i].name);
}

/* -- measuring -- */

struct progress_bar { struct dlb_progress bar; const struct dlb_cli *cli; int done, total; };

static void show_progress(void *ctx, const char *kind, int64_t batch)
{
	struct progress_bar *s = ctx;
	char what[100];

	snprintf(what, sizeof what, "%s, batch %lld", kind, (long long)batch);
	/* a size for which there was no memory beside others comes again */
	dlb_progress_update(&s->bar, s->done < s->total ? s->done++ : s->total, s->total, what);
}

static void show_warning(void *ctx, const char *kind, int64_t batch, const struct dlb_error *err)
{
	struct progress_bar *s = ctx;

	dlb_cli_warn(s->cli, "batch %lld is not measured on %s: %s", (long long)batch, kind, err->what);
}

static int measure(struct profile_work *w, struct dlb_error *err)
{
	struct progress_bar s = { .cli = w->cli };
	const struct dlb_profile_watch watch = { .progress = show_progress, .warn = show_warning, .ctx = &s };
	struct dlb_profile_device d[MAX_DEVICES];

	if (!w->p.n_batches)
		dlb_profile_init(&w->p, w->g, w->g->batch);
	if (w->o->analytic)
		return 0;
	for (int i = 0; i < w->n_devices; i++)
		d[i] = (struct dlb_profile_device){ &w->device[i].be, w->device[i].name };
	s.total = w->n_devices * w->p.n_batches * (1 + DLB_PROFILE_TURNS);
	dlb_progress_start(&s.bar, "measuring", w->cli->quiet || rank_of(w));
	const int rc = dlb_profile_measure(&w->p, w->g, d, w->n_devices, w->comm, &watch, err);
	dlb_progress_end(&s.bar);
	return rc;
}

/* -- what -v shows -- */

static void print_summary(const struct profile_work *w)
{
	static const char *const phase[] = { "forward", "backward", "update" };
	double flop[DLB_N_PHASES] = { 0 }, weights = 0;
	int ops[DLB_N_PHASES] = { 0 };

	for (int i = 0; i < w->g->n_ops; i++) {
		ops[w->g->op[i].phase]++;
		flop[w->g->op[i].phase] += w->g->op[i].flop;
	}
	for (int t = 0; t < w->g->n_tensors; t++)
		if (w->g->tensor[t].kind == DLB_T_WEIGHT)
			weights += dlb_tensor_bytes(&w->g->tensor[t], 1) / (double)dlb_dtype_bytes(w->g->tensor[t].dtype);
	dlb_cli_say(w->cli, "batch %lld, %.0f parameters, %d distinct signatures", (long long)w->g->batch, weights, w->p.n_rows);
	for (int i = 0; i < DLB_N_PHASES; i++)
		if (ops[i])
			dlb_cli_say(w->cli, "%-8s %4d ops %10.4g GFLOP", phase[i], ops[i], flop[i] / 1e9);
	for (int k = 0; k < w->p.n_kinds; k++)
		if (isfinite(w->p.step_s[k]))
			dlb_cli_say(w->cli, "%s: %.4g s a step, %.4g GFLOP/s", w->p.kind[k], w->p.step_s[k],
				    (flop[0] + flop[1] + flop[2]) / w->p.step_s[k] / 1e9);
}

/* -- --cluster -- */

static int make_cluster(struct profile_work *w, const char *path, struct dlb_doc *doc, struct dlb_error *err)
{
	const char *topology = w->o->topology;
	struct dlb_cluster c;
	int rc = 0;

	if (path)
		rc = dlb_doc_read(doc, path, err);
	else
		dlb_doc_init(doc, "cluster");
	dlb_cluster_init(&c);
	rc = rc || open_devices(w, err) ? -1 : 0;
	if (w->comm)
		rc = dlb_comm_agree(w->comm, rc, err, &w->who);
	if (!rc)
		rc = topology ? dlb_cluster_discover(&c, topology, w->device[0].be.n_threads, err)
			: dlb_cluster_probe(w->comm, w->device[0].be.n_threads, &c, err);
	if (!rc)
		rc = dlb_cluster_check(&c, err);
	if (!rc)
		dlb_doc_set(doc, "cluster", dlb_cluster_write(&c));
	dlb_cluster_release(&c);
	return rc;
}

/* -- --check -- */

/* Writes nothing; what differs is a line each. */
static int check_machine(struct profile_work *w, const char *path, struct dlb_doc *doc, struct dlb_error *err)
{
	struct dlb_machine_check m = { .n_lines = 0 };
	int rc;

	if (w->comm && dlb_comm_size(w->comm) > 1 && (!path || !strcmp(path, "-")))
		rc = dlb_refuse(err, "<stdin>", "name its file", "--check by several ranks needs a document that each can read");
	else
		rc = dlb_doc_read(doc, path, err);
	if (w->comm)
		rc = dlb_comm_agree(w->comm, rc, err, &w->who);
	if (!rc && (rc = dlb_machine_check(doc, w->comm, &m, err)) != 0)
		dlb_error_at(err, doc->name);
	for (int i = 0; i < m.n_lines && !rc && !rank_of(w); i++)
		(m.line[i].verdict == DLB_MACHINE_EQUAL ? dlb_cli_say : dlb_cli_warn)(w->cli, "%s", m.line[i].text);
	w->differs = m.n_differences > 0;
	dlb_machine_check_release(&m);
	return rc;
}

/* -- the document -- */

static bool is_document(const char *path)
{
	const size_t n = path ? strlen(path) : 0;

	return !path || !strcmp(path, "-") || (n > 5 && !strcmp(path + n - 5, ".json"));
}

static int take_model(struct profile_work *w, const char *path, struct dlb_doc *doc, struct dlb_error *err)
{
	if (dlb_onnx_read(path, &w->training, err))
		return -1;
	if (dlb_graph_unmerge(&w->training, err) || use_state_dict(w, err))
		return -1;
	return rewrite(w, err) ? dlb_error_at(err, path) : use_weights(w, doc, err);
}

/* Two samples together must give what each gives alone. If they do not, either the model means that, and is trained in one
 * micro-batch, or its batch was found in the wrong dimension: then it is read again and left at the batch that it was
 * exported with. */
static int check_samples(struct profile_work *w, const char *path, struct dlb_doc *doc, struct dlb_error *err)
{
	struct dlb_error ignored = { .what = "" };

	if (w->o->analytic || !dlb_samples_agree(&w->training, &w->device[0].be, err))
		return 0;
	dlb_graph_release(&w->eval);
	dlb_graph_release(&w->training);
	w->one_piece = true;
	if (take_model(w, path, doc, &ignored))
		return dlb_error_at(err, path);
	dlb_graph_note(w->g, "the batch stays %lld, in one micro-batch and one replica: %s: %s", (long long)w->g->batch, err->where,
		       err->what);
	*err = (struct dlb_error){ .what = "" };
	return 0;
}

/* A model starts a document; a document with a graph gets further devices measured. */
static int take_input(struct profile_work *w, const char *path, struct dlb_doc *doc, struct dlb_error *err)
{
	if (!is_document(path)) {
		dlb_doc_init(doc, path);
		if (take_model(w, path, doc, err) || check_samples(w, path, doc, err))
			return -1;
		dlb_doc_set(doc, "graph", dlb_graph_write(w->g));
		return 0;
	}
	if (dlb_doc_read(doc, path, err) || dlb_graph_read(doc, &w->training, err))
		return -1;
	w->g = &w->training;
	const struct profile_options *o = w->o;
	if (o->batch || o->loss.n || o->inference || o->weights || o->no_rewrite.n || o->padding_rows.n || o->dims.n || strcmp(o->dtype, "f32") ||
	    o->batchnorm || o->dropout.n ||
	    o->parameters.n || o->freeze.n || o->train_only.n || o->untie) {
		dlb_fail(err, doc->name, "the graph is made already: only --device and --analytic apply");
		return dlb_hint(err, "give the ONNX model");
	}
	if (dlb_graph_index(w->g) || dlb_graph_load_weights(w->g, NULL, err) ||
	    dlb_graph_check_runnable(w->g, w->g->batch, err))
		return -1;
	return dlb_doc_section(doc, "profile") ? dlb_profile_read(doc, w->g, &w->p, err) : 0;
}

static int make_profile(struct profile_work *w, const char *path, struct dlb_doc *doc, struct dlb_error *err)
{
	static const char *const inputs[] = { "graph", NULL };

	int rc = open_devices(w, err) || take_input(w, path, doc, err) ? -1 : 0;
	if (w->comm)
		rc = dlb_comm_agree(w->comm, rc, err, &w->who);
	if (rc)
		return -1;
	if (!rank_of(w))
		say_warnings(w);
	if (measure(w, err))
		return dlb_error_at(err, path ? path : "<stdin>");
	if (rank_of(w))
		return 0;
	json_t *section = dlb_profile_write(&w->p);
	json_object_set_new(section, "inputs", dlb_doc_input_hashes(doc, inputs));
	dlb_doc_set(doc, "profile", section);
	print_summary(w);
	return 0;
}

static int list(const struct dlb_cli *cli)
{
	for (int i = 0; dlb_rewrites[i].name; i++)
		printf("%-20s %s\n", dlb_rewrites[i].name, dlb_rewrites[i].summary);
	return dlb_cli_close_stdout(cli);
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

/* Options that have nothing to do, a line each. */
static void warn_unused(const struct dlb_cli *cli, const struct profile_options *o)
{
	static const char nothing[] = "--inference trains nothing";
	const struct dlb_unused row[] = {
		{ "device", o->analytic && !o->cluster, "--analytic measures on no device" },
		{ "parameters", o->inference, nothing },
		{ "freeze", o->inference, nothing },
		{ "train-only", o->inference, nothing },
		{ "padding-row", o->inference, nothing },
		{ NULL, false, NULL },
	};

	dlb_cli_warn_unused(cli, row);
}

static int check_options(const struct dlb_cli *cli, const struct profile_options *o)
{
	static const char *const of_check[] = { "check", "max-document", "quiet", "verbose", NULL };
	static const char *const of_cluster[] = { "cluster", "topology", "device", "max-document", "quiet", "verbose", NULL };

	if (o->check && not_taken(cli, of_check))
		return dlb_cli_usage(cli, "--%s has no effect on --check, which compares this machine with a document's", not_taken(cli, of_check));
	if (strcmp(o->dtype, "f32") && strcmp(o->dtype, "f64") && strcmp(o->dtype, "bf16"))
		return dlb_cli_usage(cli, "no dtype '%s': f32, bf16 or f64", o->dtype);
	if (o->batchnorm && strcmp(o->batchnorm, "train") && strcmp(o->batchnorm, "frozen"))
		return dlb_cli_usage(cli, "no batchnorm '%s': train or frozen", o->batchnorm);
	if (o->inference && (o->batchnorm || o->dropout.n))
		return dlb_cli_usage(cli, "--%s is for training, and --inference for none", o->batchnorm ? "batchnorm" : "dropout");
	if (o->inference && o->loss.n)
		return dlb_cli_usage(cli, "--loss is for training, and --inference for none");
	if (o->cluster && not_taken(cli, of_cluster))
		return dlb_cli_usage(cli, "--%s is for a model's profile, and --cluster makes none", not_taken(cli, of_cluster));
	if (o->topology && !o->cluster)
		return dlb_cli_usage(cli, "--topology belongs to --cluster");
	struct dlb_graph g = { .n_ops = 0 };
	struct dlb_error err = { .what = "" };
	const int rc = switch_rewrites(o, &g, &err) || set_dims(o, &g, &err);
	dlb_arena_release(&g.arena);
	if (rc)
		return dlb_cli_usage(cli, "%s%s%s", err.what, *err.hint ? "; " : "", err.hint);
	return 0;
}

static void release(struct profile_work *w, struct dlb_doc *doc)
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

int main(int argc, char **argv)
{
	struct profile_options o = { .dtype = "f32" };
	const struct dlb_opt opts[] = {
		{ 'b', "batch", DLB_OPT_INT, &o.batch, "N", "global batch size (default: the model's own, else 32)", NULL, 1, 1 << 24 },
		{ 0, "loss", DLB_OPT_LIST, &o.loss, "LOSS", "[OUTPUT=]NAME[*FACTOR]: cross-entropy, next-token, bce, mse, l1, huber, "
		  "smooth-l1, kl, sum or none (default: by the output); repeatable", NULL, 0, 0 },
		{ 0, "inference", DLB_OPT_FLAG, &o.inference, NULL, "forward ops only, as the trained model is used", NULL, 0, 0 },
		{ 0, "batchnorm", DLB_OPT_STR, &o.batchnorm, "HOW", "train: by each batch; frozen: by the running statistics (default: train)",
		  NULL, 0, 0 },
		{ 0, "dropout", DLB_OPT_LIST, &o.dropout, "PATTERN=P", "put Dropout after the vertices of this name; repeatable", NULL, 0, 0 },
		{ 'd', "device", DLB_OPT_LIST, &o.devices, "DEVICE", "what to measure on, as cpu or cpu/4 (default: cpu); repeatable",
		  NULL, 0, 0 },
		{ 0, "analytic", DLB_OPT_FLAG, &o.analytic, NULL, "measure nothing: dlb-costmodel then reckons by FLOP and bytes",
		  NULL, 0, 0 },
		{ 0, "dtype", DLB_OPT_STR, &o.dtype, "TYPE", "f32, bf16 (parameters stay f32) or f64 (default: f32)", NULL, 0, 0 },
		{ 0, "weights", DLB_OPT_STR, &o.weights, "FILE", "weights to start from, ONNX or safetensors", NULL, 0, 0 },
		{ 0, "dim", DLB_OPT_LIST, &o.dims, "NAME=N", "size of a dimension of an input that the model names; repeatable", NULL, 0, 0 },
		{ 0, "padding-row", DLB_OPT_LIST, &o.padding_rows, "GLOB=ROW", "no gradient for this row of embeddings named like GLOB; repeatable",
		  NULL, 0, 0 },
		{ 0, "parameters", DLB_OPT_LIST, &o.parameters, "FILE|GLOB", "train exactly the initializers of these names; repeatable",
		  NULL, 0, 0 },
		{ 0, "freeze", DLB_OPT_LIST, &o.freeze, "GLOB", "do not train these parameters; repeatable", NULL, 0, 0 },
		{ 0, "train-only", DLB_OPT_LIST, &o.train_only, "GLOB", "train no other parameters than these; repeatable", NULL, 0, 0 },
		{ 0, "untie", DLB_OPT_FLAG, &o.untie, NULL, "weights with the same values under two names are two", NULL, 0, 0 },
		{ 0, "no-rewrite", DLB_OPT_LIST, &o.no_rewrite, "NAME", "leave out this rewrite of the graph, or all; repeatable", NULL, 0, 0 },
		{ 0, "list", DLB_OPT_FLAG, &o.list, NULL, "list the rewrites", NULL, 0, 0 },
		{ 0, "cluster", DLB_OPT_FLAG, &o.cluster, NULL, "write the cluster this runs on in place of a model's profile",
		  NULL, 0, 0 },
		{ 0, "check", DLB_OPT_FLAG, &o.check, NULL, "tell how this machine differs from the cluster's of FILE; write nothing", NULL, 0, 0 },
		{ 0, "topology", DLB_OPT_STR, &o.topology, "FILE", "with --cluster: hwloc XML in place of the real machine", NULL, 0, 0 },
	};
	struct dlb_cli cli = { .tool = "dlb-profile", .usage = "[OPTION...] [MODEL.onnx | FILE]",
			       .summary = "what a model computes and how long each op takes", .opts = opts,
			       .n_opts = DLB_LEN(opts), .max_operands = 1 };
	struct profile_work w = { .cli = &cli, .o = &o };
	struct dlb_error err = { .what = "" };
	struct dlb_doc doc = { .root = NULL };
	int status;

	if (dlb_cli_parse(&cli, argc, argv))
		return cli.status;
	if ((status = check_options(&cli, &o)) != 0)
		return status;
	if (o.list)
		return list(&cli);
	if (dlb_launch_check(0, &err))
		return dlb_launch_speaks() ? dlb_cli_die(&cli, &err) : 2;
	dlb_graph_init(&w.training);
	dlb_graph_init(&w.eval);
	int rc = dlb_launch_joined() ? dlb_comm_new(&w.comm, 0, &err) : 0;
	if (!rank_of(&w))
		warn_unused(&cli, &o);
	if (!rc)
		rc = (o.check ? check_machine : o.cluster ? make_cluster : make_profile)(&w, cli.n_operands ? cli.operands[0] : NULL, &doc, &err);
	if (!rc && !rank_of(&w) && !o.check) {
		dlb_doc_provenance(&doc, cli.tool, argc, argv);
		rc = dlb_doc_write(&doc, stdout, &err);
	}
	/* under mpirun all ranks know of a failure; the lowest that saw it says it */
	status = rc && rank_of(&w) == w.who ? dlb_cli_die(&cli, &err) : rc ? 2 : w.differs;
	if (!rc && !rank_of(&w) && !o.check)
		status = dlb_cli_close_stdout(&cli);
	release(&w, &doc);
	dlb_cli_release(&cli);
	return status;
}
