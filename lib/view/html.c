/* Writes a document as one self-contained HTML page: first style and script (page/, built into the library by
 * the Makefile), then the data as JSON in a script element that browsers do not run, then the drawing code.
 * Text of the document is only in the data, where nothing can end the element (page_json.h). The script
 * shows it as text, never as markup, and the page's policy forbids it to fetch anything. */
#include <string.h>
#include "view/page.h"

int dlb_view_html(const struct dlb_view *v, FILE *f, struct dlb_error *err);

extern const char dlb_page_css[], dlb_page_js[];	/* built from page/ */

static void data(const struct dlb_view *v, FILE *f)
{
	struct dlb_emit e = { .f = f };
	struct dlb_program program;
	/* a plan of another tool may have no program */
	bool has_program = v->has_plan && !dlb_view_program(v, &program, NULL);

	dlb_emit_open(&e, NULL, '{');
	dlb_page_summary(v, &e);
	dlb_page_cluster(v, &e);
	dlb_page_nodes(v, &e);
	dlb_page_times(v, has_program ? &program : NULL, &e);
	dlb_page_losses(v, &e);
	dlb_page_evaluations(v, &e);
	dlb_page_memory(v, has_program ? &program : NULL, &e);
	dlb_page_rounds(v, &e);
	dlb_page_graph(v, &e);
	dlb_page_why(v, &e);
	dlb_page_provenance(v, &e);
	dlb_emit_close(&e, '}');
	if (has_program)
		dlb_program_release(&program);
}

int dlb_view_html(const struct dlb_view *v, FILE *f, struct dlb_error *err)
{
	const char *path = v->has_graph && v->graph.model_path ? v->graph.model_path : v->doc->name;

	(void)err;
	fputs("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
	      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
	      "'unsafe-inline'; "
	      "script-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'\">\n"
	      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
	      "<meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" "
	      "href=\"data:,\">\n<title>",
	      f);
	const json_t *name = json_object_get(dlb_doc_section(v->doc, "run"), "name");
	if (json_is_string(name)) {
		dlb_view_escaped(f, json_string_value(name));
		fputs(": ", f);
	}
	dlb_view_escaped(f, strrchr(path, '/') ? strrchr(path, '/') + 1 : path);
	fputs(" - dlb</title>\n<style>\n", f);
	fputs(dlb_page_css, f);
	fputs("</style>\n</head>\n<body>\n<noscript><p>This page draws its pictures with JavaScript, which "
	      "is off. "
	      "dlb-view without -f html prints the same as a table.</p></noscript>\n"
	      "<script type=\"application/json\" id=\"document\">",
	      f);
	data(v, f);
	fputs("</script>\n<script>\n", f);
	fputs(dlb_page_js, f);
	fputs("</script>\n</body>\n</html>\n", f);
	return 0;
}
