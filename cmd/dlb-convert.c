/* dlb-convert: other tools' files -> document, document -> other tools' files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/convert.h"
#include "util/cli.h"
#include "util/input.h"

static int list(const struct dlb_cli *cli)
{
	for (const struct dlb_format *f = dlb_formats; f->name; f++)
		printf("%-18s %-11s %s\n", f->name,
		       f->import && f->export ? "from, to" :
		       f->import              ? "from" :
						"to",
		       f->summary);
	return dlb_cli_close_stdout(cli);
}

static int from(const struct dlb_cli *cli, const struct dlb_format *f, const struct dlb_convert_options *o,
		int argc, char **argv)
{
	const char *path = cli->n_operands ? cli->operands[0] : NULL,
		   *name = path && strcmp(path, "-") ? path : "<stdin>";
	struct dlb_error err = { .what = "" };
	struct dlb_doc doc;
	char *text;
	size_t n;

	if (dlb_input_read_text(path && strcmp(path, "-") ? path : NULL, 0, &text, &n, &err))
		return dlb_cli_die(cli, &err);
	if (!n) {
		free(text);
		dlb_fail(&err, name, "empty input; did the previous command fail?");
		return dlb_cli_die(cli, &err);
	}
	dlb_doc_init(&doc, name);
	int rc = f->import(text, n, name, o, &doc, &err);
	free(text);
	if (rc == 0) {
		dlb_cli_say(cli, "%s: %d ops, %d nodes", name,
			    (int)json_array_size(json_object_get(dlb_doc_section(&doc, "graph"), "ops")),
			    (int)json_array_size(json_object_get(dlb_doc_section(&doc, "cluster"), "nodes")));
		dlb_doc_provenance(&doc, cli->tool, argc, argv);
		rc = dlb_doc_write(&doc, stdout, &err);
	}
	dlb_doc_release(&doc);
	return rc ? dlb_cli_die(cli, &err) : dlb_cli_close_stdout(cli);
}

static int to(const struct dlb_cli *cli, const struct dlb_format *f, const struct dlb_convert_options *o)
{
	struct dlb_error err = { .what = "" };
	struct dlb_doc doc;

	if (dlb_doc_read(&doc, cli->n_operands ? cli->operands[0] : NULL, &err))
		return dlb_cli_die(cli, &err);
	size_t n = 0;
	char *text = f->export(&doc, o, &n, &err), unsaid[400];
	const bool tell = text && dlb_format_unsaid(f, &doc, unsaid, sizeof unsaid);
	dlb_doc_release(&doc);
	if (!text)
		return dlb_cli_die(cli, &err);
	if (tell)
		dlb_cli_warn(cli, "%s", unsaid);
	dlb_cli_say(cli, "%s: %zu bytes", f->name, n);
	fwrite(text, 1, n, stdout);		/* dlb_cli_close_stdout reports a failure */
	free(text);
	return dlb_cli_close_stdout(cli);
}

/* Names of the options that describe a machine, used by some formats only. */
enum { OF_MACHINE = 4 };
static const char *const machine[OF_MACHINE] = { "accelerators", "hosts", "memory", "bandwidth" };

/* Refuses options that the format does not use. */
static int check_given(const struct dlb_cli *cli, const struct dlb_format *f, bool import,
		       const bool *given_machine, bool threads, const struct dlb_convert_options *o)
{
	const unsigned takes = import ? f->import_takes : f->export_takes;
	const char *wrong = o->rank_given && !(takes & DLB_TAKES_RANK) ? "rank" :
			    o->replan && !(takes & DLB_TAKES_REPLAN)   ? "replan" :
			    threads && !(takes & DLB_TAKES_THREADS)    ? "threads" :
									 NULL;

	for (int i = 0; i < OF_MACHINE && !wrong && !(takes & DLB_TAKES_MACHINE); i++)
		wrong = given_machine[i] ? machine[i] : NULL;
	return wrong ? dlb_cli_usage(cli, "--%s has no meaning with --%s %s", wrong, import ? "from" : "to",
				     f->name) :
		       0;
}

int main(int argc, char **argv)
{
	const char *source = NULL, *target = NULL;
	struct dlb_convert_options o = { 0 };
	bool list_them = false, given[OF_MACHINE + 1] = { false };
	const struct dlb_opt opts[] = {
		{ 0, "from", DLB_OPT_STR, &source, "FORMAT", "read a file of another tool, write a document",
		  NULL, 0, 0 },
		{ 0, "to", DLB_OPT_STR, &target, "FORMAT", "read a document, write a file of another tool",
		  NULL, 0, 0 },
		{ 0, machine[0], DLB_OPT_INT, &o.accelerators, "K",
		  "where the file names none: accelerators (default 6)", &given[0], 1, 4096 },
		{ 0, machine[1], DLB_OPT_INT, &o.hosts, "L",
		  "where the file names none: host cores (default 1)", &given[1], 1, 4096 },
		{ 0, machine[2], DLB_OPT_REAL, &o.memory_bytes, "BYTES",
		  "where the file names none: of an accelerator (default 16 GiB)", &given[2], 1, 1e18 },
		{ 0, machine[3], DLB_OPT_REAL, &o.bandwidth_Bps, "BPS",
		  "where the file names none: bytes per second of a port (default 2 GiB)", &given[3], 1,
		  1e18 },
		{ 0, "rank", DLB_OPT_INT, &o.rank, "N",
		  "to chakra: the node whose trace is written (default 0)", &o.rank_given, 0, 1 << 20 },
		{ 0, "replan", DLB_OPT_FLAG, &o.replan, NULL,
		  "to sbatch: the job goes on when a host is lost", NULL, 0, 0 },
		{ 0, "threads", DLB_OPT_INT, &o.threads, "N", "of hwloc: threads of a node (default 1)",
		  &given[OF_MACHINE], 1, 65536 },
		{ 0, "list", DLB_OPT_FLAG, &list_them, NULL, "list the formats", NULL, 0, 0 },
	};
	struct dlb_cli cli = { .tool = "dlb-convert",
			       .usage = "--from FORMAT | --to FORMAT [OPTION...] [FILE]",
			       .summary = "other tools' files to a document, and back",
			       .opts = opts,
			       .n_opts = DLB_LEN(opts),
			       .max_operands = 1 };

	if (dlb_cli_parse(&cli, argc, argv))
		return cli.status;
	if (list_them)
		return list(&cli);
	if (!source == !target)
		return dlb_cli_usage(&cli, "one of --from and --to is needed");
	const struct dlb_format *f = dlb_format_find(source ? source : target);
	if (!f)
		return dlb_cli_usage(&cli, "no format '%s'; --list names them", source ? source : target);
	if (source && !f->import)
		return dlb_cli_usage(&cli, "format '%s' can only be written", source);
	if (target && !f->export)
		return dlb_cli_usage(&cli, "format '%s' can only be read", target);
	if (check_given(&cli, f, source, given, given[OF_MACHINE], &o))
		return 2;
	return source ? from(&cli, f, &o, argc, argv) : to(&cli, f, &o);
}
