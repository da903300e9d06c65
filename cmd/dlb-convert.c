/* dlb-convert: other tools' files -> document, document -> other tools' files. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/convert.h"
#include "util/cli.h"

static int list(const struct dlb_cli *cli)
{
	for (const struct dlb_format *f = dlb_formats; f->name; f++)
		printf("%-18s %-11s %s\n", f->name, f->import && f->export ? "from, to" : f->import ? "from" : "to", f->summary);
	return dlb_cli_close_stdout(cli);
}

/* The whole of a file or of standard input; returns new. */
static char *read_all(const char *path, size_t *n, struct dlb_error *err)
{
	FILE *f = path && strcmp(path, "-") ? fopen(path, "rb") : stdin;
	char *text = NULL;
	size_t room = 0, got;

	if (!f) {
		dlb_fail(err, NULL, "cannot open '%s': %s", path, strerror(errno));
		return NULL;
	}
	*n = 0;
	do {
		if (*n == room)
			text = dlb_xrealloc(text, room = room ? 2 * room : 65536, 1);
		got = fread(text + *n, 1, room - *n, f);
		*n += got;
	} while (got);
	int failed = ferror(f), why = errno;
	if (f != stdin)
		fclose(f);
	if (!failed && *n)
		return text;
	free(text);
	if (failed)
		dlb_fail(err, NULL, "cannot read '%s': %s", path ? path : "<stdin>", strerror(why));
	else
		dlb_fail(err, f == stdin ? "<stdin>" : path, "empty input; did the previous command fail?");
	return NULL;
}

static int from(const struct dlb_cli *cli, const struct dlb_format *f, const struct dlb_convert_options *o, int argc, char **argv)
{
	const char *path = cli->n_operands ? cli->operands[0] : NULL, *name = path && strcmp(path, "-") ? path : "<stdin>";
	struct dlb_error err = { .what = "" };
	struct dlb_doc doc;
	size_t n;
	char *text = read_all(path, &n, &err);

	if (!text)
		return dlb_cli_die(cli, &err);
	dlb_doc_init(&doc, name);
	int rc = f->import(text, n, name, o, &doc, &err);
	free(text);
	if (rc == 0) {
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
	fwrite(text, 1, n, stdout);		/* what fails shows when stdout is closed */
	free(text);
	return dlb_cli_close_stdout(cli);
}

int main(int argc, char **argv)
{
	const char *source = NULL, *target = NULL;
	struct dlb_convert_options o = { 0 };
	bool list_them = false;
	const struct dlb_opt opts[] = {
		{ 0, "from", DLB_OPT_STR, &source, "FORMAT", "read a file of another tool, write a document", NULL, 0, 0 },
		{ 0, "to", DLB_OPT_STR, &target, "FORMAT", "read a document, write a file of another tool", NULL, 0, 0 },
		{ 0, "accelerators", DLB_OPT_INT, &o.accelerators, "K", "where the file names none: accelerators (default 6)", NULL, 1, 4096 },
		{ 0, "hosts", DLB_OPT_INT, &o.hosts, "L", "where the file names none: host cores (default 1)", NULL, 1, 4096 },
		{ 0, "memory", DLB_OPT_REAL, &o.memory_bytes, "BYTES", "where the file names none: of an accelerator (default 16 GiB)", NULL, 1, 1e18 },
		{ 0, "bandwidth", DLB_OPT_REAL, &o.bandwidth_Bps, "BPS", "where the file names none: bytes per second of a port (default 2 GiB)", NULL, 1, 1e18 },
		{ 0, "rank", DLB_OPT_INT, &o.rank, "N", "to chakra: the node whose trace is meant (default 0)", &o.rank_given, 0, 1 << 20 },
		{ 0, "threads", DLB_OPT_INT, &o.threads, "N", "of hwloc: threads of a node (default 1)", NULL, 1, 65536 },
		{ 0, "list", DLB_OPT_FLAG, &list_them, NULL, "list the formats", NULL, 0, 0 },
	};
	struct dlb_cli cli = { .tool = "dlb-convert", .usage = "--from FORMAT | --to FORMAT [OPTION...] [FILE]",
			       .summary = "other tools' files to a document, and back", .opts = opts,
			       .n_opts = DLB_LEN(opts), .max_operands = 1 };

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
	return source ? from(&cli, f, &o, argc, argv) : to(&cli, f, &o);
}
