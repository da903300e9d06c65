/* dlb-view: a document as a table, a picture, a trace or a graph. */
#include <string.h>
#include "util/cli.h"
#include "view/view.h"

/* Which sections are shown, for -v. */
static void say_what(const struct dlb_cli *cli, const struct dlb_view *v)
{
	dlb_cli_say(cli, "%s: graph of %d ops, %d nodes,%s%s%s%s%s", v->doc->name, v->graph.n_ops, v->cluster.n_nodes, v->has_profile ? " profile" : "",
		    v->has_cost ? " cost" : "", v->has_plan ? " plan" : "", v->has_report ? " report" : "", v->has_balance ? " balance" : "");
}

int main(int argc, char **argv)
{
	const char *format = "table", *why = NULL;
	const struct dlb_opt opts[] = {
		{ 'f', "format", DLB_OPT_STR, &format, "NAME", "table, svg, trace, memory or dot (default table)", NULL, 0, 0 },
		{ 0, "why", DLB_OPT_STR, &why, "OP", "why the op (id or name) is on its node", NULL, 0, 0 },
	};
	struct dlb_cli cli = { .tool = "dlb-view", .usage = "[OPTION...] [FILE]",
		.summary = "show a document as a table, picture, trace or graph",
		.opts = opts, .n_opts = DLB_LEN(opts), .max_operands = 1 };
	const struct dlb_view_format *f;
	struct dlb_error err = { 0 };
	struct dlb_view view = { 0 };
	struct dlb_doc doc = { 0 };
	int rc;

	if (dlb_cli_parse(&cli, argc, argv))
		return cli.status;
	f = dlb_view_format_find(format);
	if (!f)
		return dlb_cli_usage(&cli, "no format '%s': table, svg, trace, memory or dot", format);
	const struct dlb_unused unused[] = { { "format", why, "--why answers in words" }, { NULL, false, NULL } };
	dlb_cli_warn_unused(&cli, unused);
	rc = dlb_doc_read(&doc, cli.n_operands ? cli.operands[0] : NULL, &err);
	if (!rc)
		rc = dlb_view_read(&doc, &view, &err);
	if (!rc)
		say_what(&cli, &view);
	if (!rc)
		rc = why ? dlb_view_why(&view, why, stdout, &err) : f->write(&view, stdout, &err);
	rc = rc ? dlb_cli_die(&cli, &err) : dlb_cli_close_stdout(&cli);
	dlb_view_release(&view);
	dlb_doc_release(&doc);
	dlb_cli_release(&cli);
	return rc;
}
