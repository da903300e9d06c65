/* The envelope of a document: reading, writing, versions, sections and their dependencies. See doc.h.
 *
 * jansson parses the whole text. print.c and the functions here write it: one line per member or array
 * element, down to the elements of a section's arrays, which are compact. So a diff shows the changed op, and
 * a hundred thousand ops are a hundred thousand lines, not millions. */
#include "doc/doc.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "doc/print.h"
#include "util/cli.h"
#include "util/hash.h"
#include "util/input.h"
#include "util/mem.h"

enum { OUR_MAJOR = 1, OUR_MINOR = 0 };

/* Members of the envelope in writing order. `on`: the sections from which this one is made; replacing one of
 * them drops it (dlb_doc_set has the rule for balance). `maker`: the tool that writes it. */
static const struct section { const char *name, *on, *maker; } sections[] = {
	{ "graph", "", "dlb-profile MODEL.onnx" },
	{ "profile", " graph ", "dlb-profile MODEL.onnx" },
	{ "cluster", "", "dlb-costmodel -c CLUSTER" },
	{ "cost", " graph profile cluster ", "dlb-costmodel" },
	{ "balance", "", "dlb-rebalance" },
	{ "plan", " graph profile cluster cost ", "dlb-place" },
	{ "run", "", "dlb-run" },
	{ "report", " graph profile cluster cost plan ", "dlb-run" },
};

static const struct section *find(const char *name)
{
	for (int i = 0; i < DLB_LEN(sections); i++)
		if (!strcmp(sections[i].name, name))
			return &sections[i];
	dlb_bug("no section '%s'", name);
}

/* ---- versions and members ---- */

bool dlb_doc_is_newer(const struct dlb_doc *d)
{
	const char *text = json_string_value(json_object_get(d->root, "dlb"));
	int major, minor;

	return text && sscanf(text, "%d.%d", &major, &minor) == 2 && minor > OUR_MINOR;
}

static int check_version(const struct dlb_doc *d, struct dlb_error *err)
{
	const json_t *v = json_object_get(d->root, "dlb");
	char rest;
	int major, minor;

	if (!v)
		return dlb_fail(err, d->name, "not a dlb document: no member 'dlb'");
	if (!json_is_string(v) || sscanf(json_string_value(v), "%9d.%9d%c", &major, &minor, &rest) != 2 ||
	    major < 0 || minor < 0) {
		dlb_fail(err, "/dlb", "not a version such as \"%d.%d\"", OUR_MAJOR, OUR_MINOR);
		return dlb_error_at(err, d->name);
	}
	if (major != OUR_MAJOR) {
		dlb_fail(err, "/dlb", "document of version %d.%d, but this dlb reads version %d", major,
			 minor, OUR_MAJOR);
		return dlb_error_at(err, d->name);
	}
	return 0;
}

static int check_envelope(const struct dlb_doc *d, struct dlb_error *err)
{
	const char *known[DLB_LEN(sections) + 3] = { "dlb" };
	struct dlb_ref root = dlb_ref_root(d, NULL);
	int n = 1;

	for (int i = 0; i < DLB_LEN(sections); i++)
		known[n++] = sections[i].name;
	known[n++] = "provenance";
	known[n] = NULL;
	if (dlb_ref_known(&root, known, err))
		return -1;
	for (int i = 0; i < DLB_LEN(sections); i++) {
		struct dlb_ref r;

		if (dlb_get_object(&root, sections[i].name, DLB_OPT, &r, err))
			return -1;
	}
	return dlb_get_array(&root, "provenance", DLB_OPT, &(struct dlb_ref){ 0 }, &(int){ 0 }, err);
}

/* ---- reading ---- */

int dlb_doc_parse(struct dlb_doc *d, const char *text, size_t n, const char *name, struct dlb_error *err)
{
	struct dlb_doc doc = { 0 };
	json_error_t e;
	size_t blank = 0;

	snprintf(doc.name, sizeof doc.name, "%s", name);
	while (blank < n && strchr(" \t\r\n", text[blank]) && text[blank])
		blank++;
	if (blank == n) {
		dlb_fail(err, doc.name, "empty input");
		return dlb_hint(err, "did the previous command fail?");
	}
	doc.root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
	if (!doc.root) {
		char where[sizeof doc.name + 32];

		snprintf(where, sizeof where, "%s:%d:%d", doc.name, e.line < 0 ? 1 : e.line,
			 e.column < 0 ? 1 : e.column);
		return dlb_fail(err, where, "%s", e.text);
	}
	if (!json_is_object(doc.root))
		dlb_fail(err, doc.name, "not a dlb document: not an object");
	else if (!check_version(&doc, err) && !check_envelope(&doc, err)) {
		*d = doc;
		return 0;
	}
	json_decref(doc.root);
	return -1;
}

int dlb_doc_read(struct dlb_doc *d, const char *path, struct dlb_error *err)
{
	bool is_stdin = !path || !strcmp(path, "-");
	char *text;
	size_t n;
	int rc;

	if (dlb_input_read_text(is_stdin ? NULL : path, '{', &text, &n, err))
		return err && err->where[0] && !err->hint[0] ? dlb_hint(err, "it is no dlb document") : -1;
	rc = dlb_doc_parse(d, text, n, is_stdin ? "<stdin>" : path, err);
	free(text);
	return rc;
}

void dlb_doc_init(struct dlb_doc *d, const char *name)
{
	char version[32];

	*d = (struct dlb_doc){ .root = json_object() };
	snprintf(d->name, sizeof d->name, "%s", name);
	snprintf(version, sizeof version, "%d.%d", OUR_MAJOR, OUR_MINOR);
	json_object_set_new(d->root, "dlb", json_string(version));
}

void dlb_doc_release(struct dlb_doc *d)
{
	if (!d)
		return;
	json_decref(d->root);
	d->root = NULL;
}

/* ---- writing ---- */

static void new_line(struct dlb_printer *p, int depth, bool first)
{
	dlb_print_text(p, &",\n    "[first], (size_t)(2 - first + depth));
}

static int put_key(struct dlb_printer *p, const char *key, int depth, bool *first)
{
	int rc;

	new_line(p, depth, *first);
	*first = false;
	rc = dlb_print_string(p, key, strlen(key));
	dlb_print_text(p, ":", 1);
	return rc;
}

static bool holds_containers(const json_t *array)
{
	for (size_t i = 0; i < json_array_size(array); i++) {
		const json_t *v = json_array_get(array, i);

		if (json_is_array(v) || json_is_object(v))
			return true;
	}
	return false;
}

/* Objects, and arrays of containers, get a line per member down to depth 3 (root 0, section 1). */
static int put(struct dlb_printer *p, json_t *v, int depth)
{
	const char *key;
	json_t *member;
	bool first = true;
	size_t i;
	int rc = 0;

	if (depth < 3 && json_is_object(v) && json_object_size(v)) {
		dlb_print_text(p, "{", 1);
		json_object_foreach(v, key, member) {
			rc |= put_key(p, key, depth + 1, &first);
			rc |= put(p, member, depth + 1);
		}
		dlb_print_text(p, "}", 1);
	} else if (depth < 3 && json_is_array(v) && holds_containers(v)) {
		dlb_print_text(p, "[", 1);
		json_array_foreach(v, i, member) {
			new_line(p, depth + 1, first);
			first = false;
			rc |= dlb_print_compact(p, member);
		}
		dlb_print_text(p, "]", 1);
	} else {
		rc = dlb_print_compact(p, v);
	}
	return rc;
}

static int put_member(struct dlb_printer *p, const struct dlb_doc *d, const char *key, bool *first)
{
	json_t *v = json_object_get(d->root, key);

	return v ? put_key(p, key, 1, first) | put(p, v, 1) : 0;
}

static bool is_ours(const char *key)
{
	for (int i = 0; i < DLB_LEN(sections); i++)
		if (!strcmp(sections[i].name, key))
			return true;
	return !strcmp(key, "dlb") || !strcmp(key, "provenance");
}

int dlb_doc_write(const struct dlb_doc *d, FILE *f, struct dlb_error *err)
{
	struct dlb_printer *p = dlb_xcalloc(1, sizeof *p);
	bool first = true;
	const char *key;
	json_t *v;
	int rc, e;

	p->f = f;
	dlb_print_text(p, "{", 1);
	rc = put_member(p, d, "dlb", &first);
	for (int i = 0; i < DLB_LEN(sections); i++)
		rc |= put_member(p, d, sections[i].name, &first);
	rc |= put_member(p, d, "provenance", &first);
	json_object_foreach(d->root, key, v)
		if (!is_ours(key))
			rc |= put_member(p, d, key, &first);
	dlb_print_text(p, "}\n", 2);
	dlb_print_flush(p);
	e = p->error;
	free(p);
	if (fflush(f) && !e)
		e = errno;
	if (e || ferror(f))
		return dlb_fail(err, NULL, "cannot write the document: %s", strerror(e ? e : EIO));
	if (rc)
		dlb_bug("a value of the document cannot be written (not finite, or not UTF-8)");
	return 0;
}

/* ---- sections ---- */

json_t *dlb_doc_section(const struct dlb_doc *d, const char *section)
{
	return json_object_get(d->root, find(section)->name);
}

int dlb_doc_need(const struct dlb_doc *d, const char *section, json_t **out, struct dlb_error *err)
{
	json_t *v = dlb_doc_section(d, section);

	if (!v) {
		dlb_fail(err, d->name, "no section '%s'", section);
		return dlb_hint(err, "it is made by %s", find(section)->maker);
	}
	*out = v;
	return 0;
}

void dlb_doc_put(struct dlb_doc *d, const char *section, json_t *value)
{
	if (!value || json_object_set_new(d->root, find(section)->name, value))
		dlb_bug("section '%s' cannot be set", section);
}

static size_t n_nodes(const json_t *cluster)
{
	return json_array_size(json_object_get(cluster, "nodes"));
}

void dlb_doc_set(struct dlb_doc *d, const char *section, json_t *value)
{
	char word[32];

	snprintf(word, sizeof word, " %s ", find(section)->name);
	for (int i = 0; i < DLB_LEN(sections); i++)
		if (strstr(sections[i].on, word))
			json_object_del(d->root, sections[i].name);
	/* weights belong to node ids 0 .. count - 1, which a cluster of another size does not have */
	if (!strcmp(section, "cluster") && n_nodes(value) != n_nodes(dlb_doc_section(d, "cluster")))
		json_object_del(d->root, "balance");
	dlb_doc_put(d, section, value);
}

void dlb_doc_provenance(struct dlb_doc *d, const char *tool, int argc, char **argv)
{
	json_t *list = json_object_get(d->root, "provenance"), *arguments = json_array();

	if (!json_is_array(list)) {
		list = json_array();
		json_object_set_new(d->root, "provenance", list);
	}
	for (int i = 1; i < argc; i++) {
		json_t *text = json_string(argv[i]);	/* NULL: not UTF-8 */

		json_array_append_new(arguments, text ? text : json_string("(not UTF-8)"));
	}
	json_array_append_new(list, json_pack("{s:s, s:s, s:o}", "tool", tool, "version", DLB_VERSION,
					      "arguments", arguments));
}

json_t *dlb_doc_number(double x)
{
	if (!isfinite(x))
		return json_null();
	return x == floor(x) && fabs(x) < 9e15 ? json_integer((json_int_t)x) : json_real(x);
}

void dlb_set_int(json_t *o, const char *key, int64_t v) { json_object_set_new(o, key, json_integer(v)); }
void dlb_set_bool(json_t *o, const char *key, bool v) { json_object_set_new(o, key, json_boolean(v)); }
void dlb_set_real(json_t *o, const char *key, double v) { json_object_set_new(o, key, json_real(v)); }
void dlb_set_number(json_t *o, const char *key, double v) { json_object_set_new(o, key, dlb_doc_number(v)); }

void dlb_set_finite(json_t *o, const char *key, double v)
{
	if (isfinite(v))
		dlb_set_number(o, key, v);
}

void dlb_set_str(json_t *o, const char *key, const char *v)
{
	if (v)
		json_object_set_new(o, key, json_string(v));
}
