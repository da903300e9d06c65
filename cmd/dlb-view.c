/* dlb-view: a document as a table, picture, trace, page or graph; the differences between two documents. */
#include <string.h>
#include "util/cli.h"
#include "view/picture.h"

/* With -v: prints which sections the document has. */
static void say_what(const struct dlb_cli *cli, const struct dlb_view *v)
{
	dlb_cli_say(cli, "%s: graph of %d ops, %d nodes,%s%s%s%s%s", v->doc->name, v->graph.n_ops,
		    v->cluster.n_nodes, v->has_profile ? " profile" : "", v->has_cost ? " cost" : "",
		    v->has_plan ? " plan" : "", v->has_report ? " report" : "",
		    v->has_balance ? " balance" : "");
}

/* Reads the document at path and makes its view. */
static int read(const char *path, struct dlb_doc *doc, struct dlb_view *view, struct dlb_error *err)
{
	return dlb_doc_read(doc, path, err) || dlb_view_read(doc, view, err) ? -1 : 0;
}

int main(int argc, char **argv)
{
	const char *format = "table", *why = NULL, *first = NULL;
	bool transfers = false;
	const struct dlb_opt opts[] = {
		{ 'f', "format", DLB_OPT_STR, &format, "NAME",
		  "table, svg, trace, memory, front, dot or html (default table)", NULL, 0, 0 },
		{ 0, "why", DLB_OPT_STR, &why, "OP", "why the op (id or name) is on its node", NULL, 0, 0 },
		{ 0, "diff", DLB_OPT_STR, &first, "A", "show the differences between document A and FILE",
		  NULL, 0, 0 },
		{ 0, "transfers", DLB_OPT_FLAG, &transfers, NULL,
		  "draw messages between nodes as arrows in -f svg and -f html", NULL, 0, 0 },
	};
	struct dlb_cli cli = { .tool = "dlb-view", .usage = "[OPTION...] [FILE]",
		.summary = "show a document as a table, picture, trace, page or graph",
		.opts = opts, .n_opts = DLB_LEN(opts), .max_operands = 1 };
	const struct dlb_view_format *f;
	struct dlb_error err = { 0 };
	struct dlb_view view = { 0 }, before = { 0 };
	struct dlb_doc doc = { 0 }, doc_before = { 0 };
	int rc;

	if (dlb_cli_parse(&cli, argc, argv))
		return cli.status;
	f = dlb_view_format_find(format);
	if (!f)
		return dlb_cli_usage(&cli, "no format '%s': table, svg, trace, memory, front, dot or html",
				     format);
	if (why && first)
		return dlb_cli_usage(&cli, "--why and --diff exclude each other: give one of them");
	if (transfers && strcmp(f->name, "svg") && strcmp(f->name, "html"))
		return dlb_cli_usage(&cli, "--transfers draws arrows on a time-line: -f svg or -f html");
	const struct dlb_unused unused[] = { { "format", why, "--why answers in words" },
					     { "format", first, "--diff answers in words" },
					     { NULL, false, NULL } };
	dlb_cli_warn_unused(&cli, unused);
	rc = first ? read(first, &doc_before, &before, &err) : 0;
	if (!rc)
		rc = read(cli.n_operands ? cli.operands[0] : NULL, &doc, &view, &err);
	view.transfers = transfers;
	if (!rc && transfers && !dlb_view_has_sendings(&view))
		dlb_cli_warn(&cli,
			     "--transfers has no effect: there is no time-line with messages between nodes");
	if (!rc)
		say_what(&cli, &view);
	if (!rc)
		rc = first ? dlb_view_diff(&before, &view, stdout, &err) :
		     why   ? dlb_view_why(&view, why, stdout, &err) :
			     f->write(&view, stdout, &err);
	rc = rc ? dlb_cli_die(&cli, &err) : dlb_cli_close_stdout(&cli);
	dlb_view_release(&view);
	dlb_view_release(&before);
	dlb_doc_release(&doc);
	dlb_doc_release(&doc_before);
	dlb_cli_release(&cli);
	return rc;
}
