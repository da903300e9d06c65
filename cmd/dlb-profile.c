/* dlb-profile: an ONNX model -> graph and profile; --cluster -> the cluster section of this machine;
 * --check compares it with that of a document. The options; lib/exec/profile_command.h does the rest. */
#include <stdio.h>
#include <string.h>
#include "exec/launch.h"
#include "exec/profile_command.h"
#include "graph/passes.h"
#include "tensor/backend.h"

static int list(const struct dlb_cli *cli)
{
	const char *name;

	for (int i = 0; dlb_rewrites[i].name; i++)
		printf("%-20s %s\n", dlb_rewrites[i].name, dlb_rewrites[i].summary);
	for (int i = 0; (name = dlb_backend_name(i)); i++) {
		struct dlb_error err = { .what = "" };
		const struct dlb_backend_ops *ops = dlb_backend_load(name, &err);
		const int n = ops ? ops->n_devices(&err) : 0;

		if (ops)
			printf("%-20s back end: %d device%s%s%s\n", name, n, n == 1 ? "" : "s", ops->about ? "; " : "",
			       ops->about ? ops->about() : "");
		else
			printf("%-20s back end: cannot be used: %s%s%s\n", name, err.what, *err.hint ? "; " : "", err.hint);
	}
	return dlb_cli_close_stdout(cli);
}

/* Runs with --hosts: starts ranks on these hosts, which measure. This process is not one of the ranks. */
static int on_hosts(struct dlb_profile_command *w, int argc, char **argv)
{
	const struct dlb_cli *cli = w->cli;
	const char *path = cli->n_operands ? cli->operands[0] : NULL;
	const char **rest = dlb_xcalloc((size_t)argc + 1, sizeof *rest);
	struct dlb_error err = { .what = "" };
	struct dlb_doc doc = { .root = NULL };
	int n = 0, status;

	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], "--hosts"))
			i++;
		else if (argv[i] != path && strncmp(argv[i], "--hosts=", 8))
			rest[n++] = argv[i];
	int rc = dlb_profile_hosts(w, rest, path, &doc, &status, &err);
	if (!rc) {
		dlb_doc_provenance(&doc, cli->tool, argc, argv);
		rc = dlb_doc_write(&doc, stdout, &err);
	}
	free(rest);
	dlb_doc_release(&doc);
	if (rc && status > 0)
		return status;			/* a rank has printed the error */
	return rc ? dlb_cli_die(cli, &err) : dlb_cli_close_stdout(cli);
}

enum { MOST_OPTIONS = 40 };

/* Fills opts[MOST_OPTIONS]; returns the number of rows. */
static int fill_rows(struct dlb_opt *opts, struct dlb_profile_options *o)
{
	const struct dlb_opt rows[] = {
		{ 'b', "batch", DLB_OPT_INT, &o->batch, "N",
		  "global batch size (default: the model's own, else 32)", NULL, 1, 1 << 24 },
		{ 0, "loss", DLB_OPT_LIST, &o->loss, "LOSS",
		  "[OUTPUT=]NAME[*FACTOR]: cross-entropy, next-token, bce, mse, l1, huber, "
		  "smooth-l1, kl, sum or none (default: by the output); repeatable",
		  NULL, 0, 0 },
		{ 0, "inference", DLB_OPT_FLAG, &o->inference, NULL,
		  "forward ops only, as the trained model is used", NULL, 0, 0 },
		{ 0, "batchnorm", DLB_OPT_STR, &o->batchnorm, "HOW",
		  "train: by each batch; frozen: by the running statistics (default: train)", NULL, 0, 0 },
		{ 0, "dropout", DLB_OPT_LIST, &o->dropout, "PATTERN=P",
		  "insert Dropout after the vertices of this name; repeatable", NULL, 0, 0 },
		{ 'd', "device", DLB_OPT_LIST, &o->devices, "DEVICE",
		  "what to measure on, as cpu, cpu/4 or cuda (default: cpu); repeatable", NULL, 0, 0 },
		{ 0, "tf32", DLB_OPT_FLAG, &o->tf32, NULL,
		  "GPUs may round the operands of f32 products to TF32", NULL, 0, 0 },
		{ 0, "fast-math", DLB_OPT_FLAG, &o->fast_math, NULL,
		  "GPUs may add in any order, so that bits differ between runs", NULL, 0, 0 },
		{ 0, "analytic", DLB_OPT_FLAG, &o->analytic, NULL,
		  "measure nothing; dlb-costmodel predicts times from FLOP and bytes", NULL, 0, 0 },
		{ 0, "dtype", DLB_OPT_STR, &o->dtype, "TYPE",
		  "f32, bf16 (parameters stay f32) or f64 (default: f32)", NULL, 0, 0 },
		{ 0, "weights", DLB_OPT_STR, &o->weights, "FILE",
		  "weights to start from, ONNX or safetensors", NULL, 0, 0 },
		{ 0, "dim", DLB_OPT_LIST, &o->dims, "NAME=N",
		  "size of a dimension of an input that the model names; repeatable", NULL, 0, 0 },
		{ 0, "padding-row", DLB_OPT_LIST, &o->padding_rows, "GLOB=ROW",
		  "no gradient for this row of embeddings named like GLOB; repeatable", NULL, 0, 0 },
		{ 0, "parameters", DLB_OPT_LIST, &o->parameters, "FILE|GLOB",
		  "train these initializers and no others; repeatable", NULL, 0, 0 },
		{ 0, "freeze", DLB_OPT_LIST, &o->freeze, "GLOB", "do not train these parameters; repeatable",
		  NULL, 0, 0 },
		{ 0, "train-only", DLB_OPT_LIST, &o->train_only, "GLOB",
		  "train these parameters only; repeatable", NULL, 0, 0 },
		{ 0, "lora", DLB_OPT_LIST, &o->lora, "RANK[:GLOB]",
		  "train adapters of this rank instead of the weights; repeatable", NULL, 0, 0 },
		{ 0, "lora-alpha", DLB_OPT_REAL, &o->lora_alpha, "A",
		  "adapters count A / RANK times (default: RANK, so once)", NULL, 1e-6, 1e6 },
		{ 0, "untie", DLB_OPT_FLAG, &o->untie, NULL,
		  "train weights that are equal under two names as two weights", NULL, 0, 0 },
		{ 0, "no-rewrite", DLB_OPT_LIST, &o->no_rewrite, "NAME",
		  "leave out this rewrite of the graph, or all; repeatable", NULL, 0, 0 },
		{ 0, "list", DLB_OPT_FLAG, &o->list, NULL, "list the rewrites and the back ends", NULL, 0,
		  0 },
		{ 0, "cluster", DLB_OPT_FLAG, &o->cluster, NULL,
		  "write this machine as a cluster, without a model", NULL, 0, 0 },
		{ 0, "check", DLB_OPT_FLAG, &o->check, NULL,
		  "say how this machine differs from the one in FILE's cluster; write nothing", NULL, 0, 0 },
		{ 0, "hosts", DLB_OPT_STR, &o->hosts, "FILE",
		  "with --cluster: measure these hosts, which ssh reaches", NULL, 0, 0 },
		{ 0, "memory", DLB_OPT_LIST, &o->memories, "NAME=FOLDER",
		  "with --cluster: measure this folder as a memory for dlb-place --offload; repeatable", NULL,
		  0, 0 },
		{ 0, "topology", DLB_OPT_STR, &o->topology, "FILE",
		  "with --cluster: read the machine from hwloc XML", NULL, 0, 0 },
	};

	_Static_assert(DLB_LEN(rows) <= MOST_OPTIONS, "more options than MOST_OPTIONS");
	memcpy(opts, rows, sizeof rows);
	return DLB_LEN(rows);
}

/* Makes the measurements that the options ask for, and writes the document; returns the exit status. */
static int profile(struct dlb_profile_command *w, int argc, char **argv)
{
	const struct dlb_cli *cli = w->cli;
	const struct dlb_profile_options *o = w->o;
	struct dlb_error err = { .what = "" };
	struct dlb_doc doc = { .root = NULL };
	int status;

	dlb_graph_init(&w->training);
	dlb_graph_init(&w->eval);
	int rc = dlb_launch_joined() ? dlb_comm_new(&w->comm, 0, &err) : 0;
	const bool first = !dlb_profile_rank(w);
	if (first)
		dlb_profile_warn_unused(cli, o);
	if (!rc)
		rc = (o->check ? dlb_profile_check_machine :
		      o->cluster ?
				 dlb_profile_cluster :
				 dlb_profile_model)(w, cli->n_operands ? cli->operands[0] : NULL, &doc, &err);
	if (!rc && first && !o->check) {
		dlb_doc_provenance(&doc, cli->tool, argc, argv);
		rc = dlb_doc_write(&doc, stdout, &err);
	}
	/* under mpirun all ranks learn of a failure; the lowest rank that detected it prints it */
	status = rc && dlb_profile_rank(w) == w->who ? dlb_cli_die(cli, &err) : rc ? 2 : w->differs;
	if (!rc && first && !o->check)
		status = dlb_cli_close_stdout(cli);
	dlb_profile_close(w, &doc);
	return status;
}

int main(int argc, char **argv)
{
	struct dlb_profile_options o = { .dtype = "f32" };
	struct dlb_opt opts[MOST_OPTIONS];
	struct dlb_cli cli = { .tool = "dlb-profile",
			       .usage = "[OPTION...] [MODEL.onnx | FILE]",
			       .summary = "what a model computes and how long each op takes",
			       .opts = opts,
			       .n_opts = fill_rows(opts, &o),
			       .max_operands = 1 };
	struct dlb_profile_command w = { .cli = &cli, .o = &o };
	struct dlb_error err = { .what = "" };
	int status;

	if (dlb_cli_parse(&cli, argc, argv))
		return cli.status;
	if ((status = dlb_profile_check_options(&cli, &o)) != 0)
		return status;
	if (o.list)
		return list(&cli);
	if (o.hosts && dlb_launch_joined())
		return dlb_cli_usage(&cli, "--hosts starts ranks, and these have been started already");
	if (o.hosts)
		return on_hosts(&w, argc, argv);
	if (dlb_launch_check(0, &err))
		return dlb_launch_speaks() ? dlb_cli_die(&cli, &err) : 2;
	status = profile(&w, argc, argv);
	dlb_cli_release(&cli);
	return status;
}
