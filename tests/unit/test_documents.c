/* Whole documents: each view of the kept documents of tests/data/view is the kept one, each export ends, and
 * each import is a document that can be read. Then the same documents, and files of other tools, with a value
 * missing, cut or of another type: taken or refused in words. Under the sanitizers nothing leaks, and nothing
 * is read behind its end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "convert/convert.h"
#include "convert/protobuf.h"
#include "graph/graph_json.h"
#include "util/mem.h"
#include "view/view.h"
#include "check.h"

static const char *const documents[] = { "front", "many", "replicas", "run" };

static char *text_of(const char *path, size_t *n)
{
	FILE *f = fopen(path, "rb");
	char *text;

	if (!f)
		return NULL;
	assert(!fseek(f, 0, SEEK_END) && IS(ftell(f), >=, 0));
	*n = (size_t)ftell(f);
	rewind(f);
	text = dlb_xcalloc(*n + 1, 1);
	assert(IS(fread(text, 1, *n, f), ==, *n) && !fclose(f));
	return text;
}

/* ---- views ---- */

/* What a format writes of v; NULL: refused, in words. */
static char *viewed(const struct dlb_view *v, const struct dlb_view_format *format)
{
	struct dlb_error err = { .what = "" };
	char *text;
	size_t n;
	FILE *f = open_memstream(&text, &n);
	const int rc = format->write(v, f, &err);

	fclose(f);
	if (!rc)
		return text;
	assert(err.what[0]);
	free(text);
	return NULL;
}

/* Each format, compared with its kept output, if that is the format's own text. Returns the number
 * compared. */
static int compare_views(const char *name, struct dlb_view *v)
{
	int n = 0;

	for (const struct dlb_view_format *f = dlb_view_formats; f->name; f++)
		for (int arrows = 0; arrows < 2; arrows++) {
			char path[200];
			size_t length;

			v->transfers = arrows;
			char *got = viewed(v, f);
			snprintf(path, sizeof path, "tests/data/view/out/%s%s.%s", name,
				 arrows ? "--transfers" : "", f->name);
			char *want = strcmp(f->name, "html") ? text_of(path, &length) : NULL;
			assert(got || !want);
			if (want) {
				assert(SAME(got, want));
				n++;
			}
			free(got);
			free(want);
		}
	return n;
}

static void ask_why(const struct dlb_view *v)
{
	for (int op = -1; op <= v->graph.n_ops; op++) {
		struct dlb_error err = { .what = "" };
		char number[16], *text;
		size_t n;
		FILE *f = open_memstream(&text, &n);

		snprintf(number, sizeof number, "%d", op);
		const int rc = dlb_view_why(v, number, f, &err);
		fclose(f);
		assert(IS(rc, ==, op < 0 || op == v->graph.n_ops ? -1 : 0) && IS(n > 0, ==, !rc) &&
		       IS(err.what[0] != 0, ==, rc != 0));
		free(text);
	}
}

static char *difference(const struct dlb_view *a, const struct dlb_view *b)
{
	struct dlb_error err = { .what = "" };
	char *text;
	size_t n;
	FILE *f = open_memstream(&text, &n);
	const int rc = dlb_view_diff(a, b, f, &err);

	fclose(f);
	assert(IS(rc == 0, ==, !err.what[0]));
	return text;
}

static int export_all(const struct dlb_doc *d)
{
	int n_made = 0;

	for (const struct dlb_format *f = dlb_formats; f->name; f++) {
		const struct dlb_convert_options o = { .accelerators = 0 };
		struct dlb_error err = { .what = "" };
		size_t n;
		char *text = f->export ? f->export(d, &o, &n, &err) : NULL;

		assert(!f->export || IS(text != NULL, ==, !err.what[0]));
		n_made += text != NULL;
		free(text);
	}
	return n_made;
}

/* What is written is read again, and written as before. */
static void write_and_read(const struct dlb_doc *d)
{
	char *text[2];
	size_t n[2];
	struct dlb_error err;
	struct dlb_doc again;

	for (int k = 0; k < 2; k++) {
		FILE *f = open_memstream(&text[k], &n[k]);

		assert(IS(dlb_doc_write(k ? &again : d, f, &err), ==, 0));
		fclose(f);
		if (!k)
			assert(IS(dlb_doc_parse(&again, text[0], n[0], "again", &err), ==, 0));
	}
	assert(SAME(text[0], text[1]));
	dlb_doc_release(&again);
	free(text[0]);
	free(text[1]);
}

/* ---- documents with a fault ---- */

enum fault { MISSING, SHORTER, NEGATIVE, TEXT, N_FAULTS };

/* Makes the fault in member `key` of o; false: it cannot have this fault. */
static bool spoil(json_t *o, const char *key, enum fault fault)
{
	json_t *was = json_object_get(o, key);

	switch (fault) {
	case MISSING:
		return !json_object_del(o, key);
	case SHORTER:
		return json_is_array(was) && !json_array_remove(was, json_array_size(was) - 1);
	case NEGATIVE:
		return json_is_number(was) && !json_object_set_new(o, key, json_integer(-7));
	default:
		return !json_object_set_new(o, key, json_string("x"));
	}
}

/* Reads and shows the document as `root`, which it takes; it may be refused, but in words. Returns whether it
 * can be read. */
static bool try_document(json_t *root)
{
	struct dlb_doc d = { .root = root, .name = "spoilt" };
	struct dlb_error err = { .what = "" };
	struct dlb_view v = { .doc = NULL };
	const bool good = dlb_view_read(&d, &v, &err) == 0;

	assert(IS(good, ==, !err.what[0]));
	if (good)
		free(viewed(&v, &dlb_view_formats[0]));
	dlb_view_release(&v);
	dlb_doc_release(&d);
	return good;
}

/* Counts of documents with a fault. */
struct tried {
	int n, n_refused;
};

/* Makes a fault in a member of a section; nth > 0: in the nth member of the first of its list. */
static void try_fault(const json_t *root, const char *section, const char *key, enum fault fault, int nth,
		      struct tried *t)
{
	json_t *copy = json_deep_copy(root), *o = json_object_get(copy, section),
	       *first = json_array_get(json_object_get(o, key), 0);
	void *at = json_object_iter(first);
	char name[100] = "";

	for (int k = 0; at && k < nth; k++)
		at = json_object_iter_next(first, at);
	if (at)
		snprintf(name, sizeof name, "%s", json_object_iter_key(at));
	if (!(nth ? at && spoil(first, name, fault) : spoil(o, key, fault))) {
		json_decref(copy);
		return;
	}
	t->n++;
	t->n_refused += !try_document(copy);
}

static void spoil_sections(json_t *root, bool deep, struct tried *t)
{
	for (void *s = json_object_iter(root); s; s = json_object_iter_next(root, s)) {
		json_t *section = json_object_iter_value(s);

		for (void *m = json_object_iter(section); m; m = json_object_iter_next(section, m))
			for (int k = 0; k < N_FAULTS; k++) {
				const char *in = json_object_iter_key(s), *key = json_object_iter_key(m);

				try_fault(root, in, key, (enum fault)k, 0, t);
				if (deep)
					try_fault(root, in, key, (enum fault)((k + 1) % N_FAULTS), k + 1, t);
			}
	}
}

/* Hashes of inputs would tell every change, before it is read. */
static void forget_hashes(json_t *root)
{
	const char *section;
	json_t *value;

	json_object_foreach(root, section, value) if (json_is_object(value) && strcmp(section, "graph"))
	{
		json_object_del(value, "inputs");
		json_object_del(value, "plan_hash");
	}
}

static void test_kept_documents(void)
{
	struct dlb_doc d[4];
	struct dlb_view v[4];
	struct dlb_error err = { .what = "" };
	int n_compared = 0, n_exported = 0;
	struct tried t = { 0, 0 };

	for (int i = 0; i < 4; i++) {
		char path[100];

		snprintf(path, sizeof path, "tests/data/view/%s.json", documents[i]);
		v[i] = (struct dlb_view){ .doc = NULL };
		assert(IS(dlb_doc_read(&d[i], path, &err), ==, 0) &&
		       IS(dlb_view_read(&d[i], &v[i], &err), ==, 0));
		n_compared += compare_views(documents[i], &v[i]);
		n_exported += export_all(&d[i]);
		write_and_read(&d[i]);
		char *same = difference(&v[i], &v[i]);
		assert(HAS(same, "nothing differs"));
		free(same);
		free(difference(&v[i], &v[0]));
	}
	ask_why(&v[2]);
	assert(IS(n_compared, ==, 12) && IS(n_exported, >=, 16));
	for (int i = 0; i < 4; i++) {
		dlb_view_release(&v[i]);
		forget_hashes(d[i].root);
		assert(try_document(json_deep_copy(d[i].root)));
		if (i > 1)
			spoil_sections(d[i].root, i > 2, &t);
		dlb_doc_release(&d[i]);
	}
	assert(IS(t.n, >, 200) && IS(t.n_refused, >, 100) && IS(t.n_refused, <, t.n));
}

/* ---- files of other tools ---- */

/* Imports n bytes, in a buffer of just that size. If they can be imported, the document can be read, and be
 * exported and imported again. */
static bool import(const char *format, const void *data, size_t n)
{
	const struct dlb_convert_options o = { .accelerators = 0 };
	struct dlb_error err = { .what = "" };
	char *exact = malloc(n ? n : 1);
	struct dlb_doc d;

	memcpy(exact, data, n);
	dlb_doc_init(&d, "made");
	const bool good = dlb_format_find(format)->import(exact, n, "file", &o, &d, &err) == 0;
	assert(IS(good, ==, !err.what[0]));
	free(exact);
	if (good) {
		struct dlb_view v = { .doc = NULL };

		assert(IS(dlb_view_read(&d, &v, &err), ==, 0));
		free(viewed(&v, &dlb_view_formats[0]));
		dlb_view_release(&v);
		export_all(&d);
		write_and_read(&d);
	}
	dlb_doc_release(&d);
	return good;
}

/* A trace of metadata and three nodes: lists packed and not, a size from shapes, and fields that only a later
 * version may know. */
static void make_trace(struct dlb_bytes *file)
{
	struct dlb_bytes m = { .n = 0 }, io = { .n = 0 }, attr = { .n = 0 };

	dlb_bytes_field(&m, 1, "0.0.4", 5);
	for (int i = 0; i < 4; i++) {
		if (i) {
			dlb_bytes_number(&m, 1, (uint64_t)(10 * i));
			dlb_bytes_field(&m, 2, &"abc"[i - 1], 1);
			dlb_bytes_number(&m, 3, 4);
			dlb_bytes_number(&m, 6, 77);
			dlb_bytes_number(&m, 7, (uint64_t)(5 * i));
			dlb_bytes_number(&m, 8, 3); /* of another type than inputs are */
			dlb_bytes_number(&m, 30, 1);
		}
		if (i > 1)
			dlb_bytes_number(&m, 4, (uint64_t)(10 * (i - 1)));
		if (i > 2)
			dlb_bytes_field(&m, 5, "\x0a\x14", 2);
		if (i == 1) {
			dlb_bytes_field(&io, 2, "[[2, 3], []]", 12);
			dlb_bytes_field(&io, 3, "['Tensor(float)', 'Int']", 24);
			dlb_bytes_field(&m, 9, io.s, io.n);
			dlb_bytes_field(&attr, 1, "is_cpu_op", 9);
			dlb_bytes_number(&attr, 27, 1);
			dlb_bytes_field(&m, 10, attr.s, attr.n);
		}
		dlb_bytes_varint(file, m.n);
		dlb_bytes_add(file, m.s, m.n);
		m.n = 0;
	}
	free(m.s);
	free(io.s);
	free(attr.s);
}

static void test_files(void)
{
	static const char
		graph[] = "node1 -- Input0 -- forward_compute_time=0.000, backward_compute_time=0.000, "
			  "activation_size=0.0, parameter_size=0.000\n"
			  "node2 -- Conv2d(3, 64) -- forward_compute_time=5.5, backward_compute_time=11.0, "
			  "activation_size=[64.0; 32.0], parameter_size=128.0\n"
			  "\tnode1 -- node2\n",
		network[] = "{\"maxSizePerFPGA\": 100, \"maxFPGAs\": 2, \"maxCPUs\": 1, \"nodes\": [{\"id\": "
			    "1, \"name\": \"a\", "
			    "\"supportedOnFpga\": 1, \"cpuLatency\": 2, \"fpgaLatency\": 1, "
			    "\"isBackwardNode\": 0, \"size\": 3, "
			    "\"colorClass\": 7}, {\"id\": 2, \"supportedOnFpga\": 0, \"cpuLatency\": 5, "
			    "\"fpgaLatency\": 1}], "
			    "\"edges\": [{\"sourceId\": 1, \"destId\": 2, \"cost\": 0.5, \"size\": 4}]}";
	struct dlb_bytes trace = { .n = 0 };
	size_t n_machine;
	char *machine = text_of("tests/data/machine.xml", &n_machine);

	make_trace(&trace);
	const struct {
		const char *format;
		const void *data;
		size_t n, stride;
	} rows[] = {
		{ "pipedream", graph, sizeof graph - 1, 1 },
		{ "dnn-partitioning", network, sizeof network - 1, 1 },
		{ "chakra", trace.s, trace.n, 1 },
		{ "hwloc", machine, n_machine, n_machine / 8 },
	};
	for (int i = 0; i < DLB_LEN(rows); i++) {
		int n_bad = 0;

		if (!import(rows[i].format, rows[i].data, rows[i].n)) {
			fprintf(stderr, "%s\n", rows[i].format);
			assert(false);
		}
		for (size_t n = 0; n < rows[i].n; n += rows[i].stride)
			n_bad += !import(rows[i].format, rows[i].data, n);
		assert(IS(n_bad, >, 5));
	}
	free(machine);
	free(trace.s);
}

int main(void)
{
	test_kept_documents();
	test_files();
	puts("documents: views, exports, imports, and what is wrong in them");
	return 0;
}
