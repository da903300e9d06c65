/* doc: reading, versions, unknown members, removal of dependent sections, hashes by value, printing,
 * references, bytes of sections. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "doc/doc.h"
#include "doc/print.h"
#include "util/clock.h"
#include "util/mem.h"
#include "util/rng.h"
#include "check.h"

static int parse(struct dlb_doc *d, const char *text, struct dlb_error *err)
{
	return dlb_doc_parse(d, text, strlen(text), "f.json", err);
}

static void expect(const char *text, const char *where, const char *what, const char *hint)
{
	struct dlb_doc d = { 0 };
	struct dlb_error err = { .status = 0 };

	assert(IS(parse(&d, text, &err), ==, -1) && !d.root && IS(err.status, ==, 2));
	if (!strstr(err.where, where) || !strstr(err.what, what) || !strstr(err.hint, hint)) {
		dlb_error_print(stderr, "expected otherwise", -1, &err);
		abort();
	}
}

static void test_bad(void)
{
	expect("", "f.json", "empty input", "did the previous command fail?");
	expect(" \n", "f.json", "empty input", "");
	expect("{\"dlb\":\"1.0\",\n  \"graph\": {]}", "f.json:2:", "", "");
	expect("{\"dlb\":\"1.0\"} x", "f.json:1:", "end of file expected", "");
	expect("{\"dlb\":\"1.0\",\"graph\":{},\"graph\":{}}", "f.json:1:", "duplicate", "");
	expect("[1]", "f.json", "not an object", "");
	expect("{}", "f.json", "no member 'dlb'", "");
	expect("{\"dlb\":1.0}", "/dlb", "not a version", "");
	expect("{\"dlb\":\"one\"}", "/dlb", "not a version", "");
	expect("{\"dlb\":\"2.0\"}", "/dlb", "version 2.0, but this dlb reads version 1", "");
	expect("{\"dlb\":\"1.0\",\"grahp\":{}}", "f.json", "unknown member 'grahp'", "did you mean 'graph'?");
	expect("{\"dlb\":\"1.0\",\"graph\":[]}", "f.json: /graph", "expected an object, found an array", "");
	expect("{\"dlb\":\"1.0\",\"provenance\":{}}", "f.json: /provenance", "expected an array", "");
	expect("{\"dlb\":\"1.0\",\"x-a\":\"\\u0000\"}", "f.json:1:", "", "");
	expect("{\"dlb\":\"1.0\",\"x-a\":1e999}", "f.json:1:", "", "");
	expect("{\"dlb\":\"1.0\",\"x-a\":99999999999999999999}", "f.json:1:", "", "");
	expect("{\"dlb\":\"1.0\",\"x-a\":\"\xff\"}", "f.json:1:", "", "");
}

static char *text_of(const struct dlb_doc *d)
{
	char *text = NULL;
	size_t n = 0;
	FILE *f = open_memstream(&text, &n);

	assert(!dlb_doc_write(d, f, NULL) && !fclose(f));
	return text;
}

static void test_write(void)
{
	struct dlb_doc d;
	struct dlb_error err;
	char *text, *again, *argv[] = { "dlb-x", "--lr", "1", NULL };
	FILE *full = fopen("/dev/full", "w");

	/* A newer minor: unknown members and the version itself pass. */
	assert(!parse(&d,
		      "{\"x-b\":{\"z\":1,\"a\":2},\"zebra\":1,\"plan\":{\"placement\":{\"0\":1,\"1\":0},"
		      "\"value_s\":0.1},"
		      "\"graph\":{\"ops\":[{\"id\":0},{\"id\":1}],\"ids\":[1,2]},\"dlb\":\"1.7\"}",
		      &err));
	assert(dlb_doc_is_newer(&d));
	dlb_doc_provenance(&d, "dlb-x", 3, argv);
	text = text_of(&d);
	assert(SAME(text, "{\n \"dlb\":\"1.7\",\n \"graph\":{\n  \"ops\":[\n   {\"id\":0},\n   "
			  "{\"id\":1}],\n  \"ids\":[1,2]},\n"
			  " \"plan\":{\n  \"placement\":{\n   \"0\":1,\n   \"1\":0},\n  "
			  "\"value_s\":0.10000000000000001},\n"
			  " \"provenance\":[\n  "
			  "{\"tool\":\"dlb-x\",\"version\":\"0.1.0\",\"arguments\":[\"--lr\",\"1\"]}],\n"
			  " \"x-b\":{\n  \"z\":1,\n  \"a\":2},\n \"zebra\":1}\n"));
	dlb_doc_release(&d);
	assert(!parse(&d, text, &err));
	again = text_of(&d);
	assert(SAME(text, again));
	if (full) {
		assert(IS(dlb_doc_write(&d, full, &err), ==, -1) && HAS(err.what, "cannot write"));
		fclose(full);
	}
	dlb_doc_release(&d);
	free(text);
	free(again);
	assert(IS(dlb_doc_read(&d, "/nonexistent", &err), ==, -1) &&
	       HAS(err.what, "cannot open '/nonexistent'"));
	assert(IS(dlb_doc_read(&d, "/tmp", &err), ==, -1) && HAS(err.what, "cannot read '/tmp'"));
}

/* Sets `section` on a document that has all; `left` are the first letters of what must remain
 * (graph profile Cluster coSt Balance pLan run rePort). */
static void drops(const char *section, const char *value, const char *left)
{
	static const char *const all[] = { "graph",   "profile", "cluster", "cost",
					   "balance", "plan",    "run",     "report" };
	struct dlb_doc d;

	assert(!parse(
		&d,
		"{\"dlb\":\"1.0\",\"graph\":{},\"profile\":{},\"cluster\":{\"nodes\":[{},{}]},\"cost\":{},"
		"\"balance\":{},\"plan\":{},\"run\":{},\"report\":{},\"x-mine\":1}",
		NULL));
	dlb_doc_set(&d, section, json_loads(value, 0, NULL));
	for (int i = 0; i < DLB_LEN(all); i++) {
		char word[20];

		snprintf(word, sizeof word, " %s ", all[i]);
		assert(!dlb_doc_section(&d, all[i]) == !strstr(left, word));
	}
	assert(json_object_get(d.root, "x-mine"));
	dlb_doc_release(&d);
}

static void test_sections(void)
{
	struct dlb_error err;
	struct dlb_doc d;
	json_t *v;

	drops("graph", "{}", " graph cluster balance run ");
	drops("profile", "{}", " graph profile cluster balance run ");
	drops("cluster", "{\"nodes\":[{},{}]}", " graph profile cluster balance run ");
	drops("cluster", "{\"nodes\":[{}]}", " graph profile cluster run ");
	drops("cost", "{}", " graph profile cluster cost balance run ");
	drops("plan", "{}", " graph profile cluster cost balance plan run ");
	drops("balance", "{}", " graph profile cluster cost balance plan run report ");
	drops("run", "{}", " graph profile cluster cost balance plan run report ");
	drops("report", "{}", " graph profile cluster cost balance plan run report ");
	dlb_doc_init(&d, "<stdin>");
	assert(IS(dlb_doc_need(&d, "plan", &v, &err), ==, -1) && HAS(err.what, "no section 'plan'") &&
	       HAS(err.hint, "dlb-place"));
	dlb_doc_put(&d, "plan", json_object());
	assert(!dlb_doc_need(&d, "plan", &v, &err) && v);
	dlb_doc_release(&d);
}

static uint64_t hash(const char *text, const char *const *skip)
{
	json_t *v = json_loads(text, JSON_DECODE_ANY, NULL);
	uint64_t h;

	assert(v);
	h = dlb_doc_hash(v, skip);
	json_decref(v);
	return h;
}

static void test_hash(void)
{
	static const char *const skip[] = { "optimizer", NULL };
	static const char *const inputs[] = { "graph", "cluster", NULL };
	struct dlb_error err;
	struct dlb_doc d;

	assert(hash("{\"a\":1,\"b\":[0.5,-0.0]}", NULL) == hash("{\"b\":[5e-1,0],\"a\":1.0}", NULL));
	assert(hash("{\"a\":{\"x-n\":3,\"optimizer\":1}}", skip) == hash("{\"a\":{\"optimizer\":2}}", skip));
	assert(hash("{\"a\":{\"optimizer\":1}}", NULL) != hash("{\"a\":{\"optimizer\":2}}", NULL));
	/* documents of earlier versions keep their hashes; the names begin alike */
	assert(IS(hash("{\"predicted_s\":1,\"predicted_bytes\":[2,true],\"predicted\":\"x\"}", NULL), ==,
		  (uint64_t)0x4164f41ee0c56835));
	assert(IS(hash("[[1],2]", NULL), !=, hash("[1,[2]]", NULL)) &&
	       IS(hash("\"1\"", NULL), !=, hash("1", NULL)));
	assert(IS(hash("[true]", NULL), !=, hash("[false]", NULL)) &&
	       IS(hash("0.1", NULL), !=, hash("0.10000000000000002", NULL)));
	assert(IS(hash("9007199254740993", NULL), !=, hash("9007199254740992", NULL)));

	assert(!parse(&d, "{\"dlb\":\"1.0\",\"graph\":{\"n\":1},\"plan\":{}}", NULL));
	json_object_set_new(dlb_doc_section(&d, "plan"), "inputs", dlb_doc_input_hashes(&d, inputs));
	assert(!dlb_doc_check_inputs(&d, "plan", &err) && !dlb_doc_check_inputs(&d, "cost", &err));
	json_object_set_new(dlb_doc_section(&d, "graph"), "n", json_real(1.0));
	json_object_set_new(dlb_doc_section(&d, "graph"), "x-n", json_real(2.0));
	assert(!dlb_doc_check_inputs(&d, "plan", &err));
	json_object_set_new(dlb_doc_section(&d, "graph"), "n", json_integer(2));
	assert(IS(dlb_doc_check_inputs(&d, "plan", &err), ==, -1) &&
	       HAS(err.what, "made from another graph"));
	dlb_doc_release(&d);
}

static void test_refs(void)
{
	static const char *const known[] = { "ops", "a/b~", "n", "x", NULL };
	struct dlb_error err;
	struct dlb_doc d;
	struct dlb_ref r, ops, op, odd;
	const char *s = NULL;
	char buf[100];
	int64_t i = -5;
	double x = 0;
	bool b = false;
	int n;

	assert(!parse(&d,
		      "{\"dlb\":\"1.0\",\"graph\":{\"ops\":[{\"id\":3,\"t\":\"Conv\",\"ok\":true,\"f\":2.0,"
		      "\"g\":2.5,\"t0\":0}],"
		      "\"a/b~\":{}}}",
		      NULL));
	r = dlb_ref_root(&d, "graph");
	assert(!dlb_get_array(&r, "ops", DLB_NEED, &ops, &n, &err) && IS(n, ==, 1));
	op = dlb_ref_index(&ops, 0);
	assert(!dlb_get_int(&op, "id", DLB_NEED, 0, 10, &i, &err) && IS(i, ==, 3));
	assert(!dlb_get_int(&op, "f", DLB_NEED, 0, 10, &i, &err) && IS(i, ==, 2));
	assert(!dlb_get_real(&op, "id", DLB_NEED, 0, 10, &x, &err) && IS(x, ==, 3));
	assert(!dlb_get_str(&op, "t", DLB_NEED, &s, &err) && SAME(s, "Conv"));
	assert(!dlb_get_bool(&op, "ok", DLB_NEED, &b, &err) && b);
	assert(!dlb_get_int(&op, "none", DLB_OPT, 0, 10, &i, &err) && IS(i, ==, 2));
	assert(IS(dlb_get_int(&op, "none", DLB_NEED, 0, 10, &i, &err), ==, -1) &&
	       SAME(err.what, "no member 'none'") && SAME(err.where, "f.json: /graph/ops/0"));
	assert(IS(dlb_get_int(&op, "g", DLB_NEED, 0, 10, &i, &err), ==, -1) &&
	       SAME(err.where, "f.json: /graph/ops/0/g"));
	assert(IS(dlb_get_int(&op, "id", DLB_NEED, 0, 2, &i, &err), ==, -1) &&
	       SAME(err.what, "3 is above 2"));
	assert(IS(dlb_get_real(&op, "g", DLB_NEED, 3, 9, &x, &err), ==, -1) &&
	       SAME(err.what, "2.5 is below 3"));
	assert(IS(dlb_get_real(&op, "t0", DLB_NEED, 1e-9, 1, &x, &err), ==, -1) &&
	       SAME(err.what, "0 is below 1e-09"));
	assert(IS(dlb_get_real(&op, "f", DLB_NEED, 0, 0.1, &x, &err), ==, -1) &&
	       SAME(err.what, "2 is above 0.1"));
	assert(IS(dlb_get_real(&op, "f", DLB_NEED, 0, 1.0 / 3, &x, &err), ==, -1) &&
	       SAME(err.what, "2 is above 0.3333333333333333"));
	assert(IS(dlb_get_str(&op, "id", DLB_NEED, &s, &err), ==, -1) &&
	       IS(dlb_get_bool(&op, "id", DLB_NEED, &b, &err), ==, -1));
	assert(IS(dlb_get_array(&op, "id", DLB_NEED, &odd, &n, &err), ==, -1) &&
	       IS(dlb_get_object(&op, "id", DLB_NEED, &odd, &err), ==, -1));
	assert(IS(dlb_get_int(&ops, "id", DLB_NEED, 0, 2, &i, &err), ==, -1) &&
	       HAS(err.what, "expected an object"));
	odd = dlb_ref_index(&ops, 7);
	assert(IS(dlb_ref_int(&odd, 0, 1, &i, &err), ==, -1) && HAS(err.what, "found nothing"));
	odd = dlb_ref_at(&r, "a/b~");
	dlb_ref_pointer(&odd, buf, sizeof buf);
	assert(SAME(buf, "/graph/a~1b~0"));
	dlb_ref_pointer(&odd, buf, 5);
	assert(SAME(buf, "/gra"));
	assert(!dlb_ref_known(&r, known, &err));
	assert(IS(dlb_ref_known(&op, known, &err), ==, -1) && HAS(err.what, "unknown member 'id'"));
	assert(IS(dlb_ref_known(&ops, known, &err), ==, -1) && HAS(err.what, "expected an object"));
	dlb_doc_release(&d);

	/* a line for each member or array of containers down to depth 3, and no further */
	char *text;
	assert(!parse(&d,
		      "{\"dlb\":\"1.0\",\"plan\":{\"a\":{\"b\":[[1],[{\"c\":2}]],\"d\":{\"e\":[]}},\"f\":[[1,"
		      "2],[]]}}",
		      NULL));
	text = text_of(&d);
	assert(SAME(text, "{\n \"dlb\":\"1.0\",\n \"plan\":{\n  \"a\":{\n   \"b\":[[1],[{\"c\":2}]],\n   "
			  "\"d\":{\"e\":[]}},\n"
			  "  \"f\":[\n   [1,2],\n   []]}}\n"));
	free(text);
	dlb_doc_release(&d);
}

/* Numbers at the ends of their ranges, and the message for each that is none or lies outside. */
static void test_ranges(void)
{
	static const struct {
		const char *value;
		bool real;
		double min, max;
		const char *what; /* NULL: accepted */
	} rows[] = {
		{ "3", false, 3, 3, NULL },
		{ "-4.0", false, -4, 3, NULL },
		{ "2", false, 3, 9, "2 is below 3" },
		{ "10", false, 3, 9, "10 is above 9" },
		{ "2.5", false, 0, 9, "expected an integer, found a number with a fraction" },
		{ "1e19", false, 0, 9, "expected an integer, found a number with a fraction" },
		{ "true", false, 0, 9, "expected an integer, found true" },
		{ "false", true, 0, 9, "expected a number, found false" },
		{ "null", true, 0, 9, "expected a number, found null" },
		{ "[1]", true, 0, 9, "expected a number, found an array" },
		{ "{}", false, 0, 9, "expected an integer, found an object" },
		{ "\"1\"", true, 0, 9, "expected a number, found a string" },
		{ "0.5", true, 0.5, 0.5, NULL },
		{ "7", true, 0, 7, NULL },
		{ "0.25", true, 0.5, 1, "0.25 is below 0.5" },
		{ "1.25", true, 0.5, 1, "1.25 is above 1" },
		{ "0.30000000000000004", true, 0, 0.3, "0.30000000000000004 is above 0.3" },
	};

	for (int i = 0; i < DLB_LEN(rows); i++) {
		char text[100];
		struct dlb_error err = { .what = "" };
		struct dlb_doc d;
		int64_t n = -99;
		double x = -99;

		snprintf(text, sizeof text, "{\"dlb\":\"1.0\",\"graph\":{\"v\":%s}}", rows[i].value);
		assert(!parse(&d, text, &err));
		const struct dlb_ref r = dlb_ref_root(&d, "graph");
		const int rc = rows[i].real ?
				       dlb_get_real(&r, "v", DLB_NEED, rows[i].min, rows[i].max, &x, &err) :
				       dlb_get_int(&r, "v", DLB_OPT, (int64_t)rows[i].min,
						   (int64_t)rows[i].max, &n, &err);
		assert(IS(rc, ==, rows[i].what ? -1 : 0));
		if (rc)
			assert(SAME(err.what, rows[i].what) && SAME(err.where, "f.json: /graph/v") &&
			       IS(n, ==, -99) && IS(x, ==, -99));
		else
			assert(IS(rows[i].real ? x : (double)n, ==, strtod(rows[i].value, NULL)));
		dlb_doc_release(&d);
	}
}

/* A word of a list, the nearest one if there is none, and members that there may be. */
static void test_members(void)
{
	static const char *const words[] = { "even", "greedy", "ring" };
	static const char *const known[] = { "a", "b", "word", NULL };
	struct dlb_error err = { .what = "" };
	struct dlb_doc d;
	struct dlb_ref r, out;
	int which = 7, n = 7;

	assert(!parse(&d, "{\"dlb\":\"1.0\",\"graph\":{\"word\":\"ring\",\"b\":\"greddy\",\"a\":[1,2]}}",
		      &err));
	r = dlb_ref_root(&d, "graph");
	assert(!dlb_get_name(&r, "none", DLB_OPT, words, 3, &which, &err) && IS(which, ==, 7));
	assert(IS(dlb_get_name(&r, "none", DLB_NEED, words, 3, &which, &err), ==, -1));
	assert(!dlb_get_name(&r, "word", DLB_NEED, words, 3, &which, &err) && IS(which, ==, 2));
	assert(IS(dlb_get_name(&r, "word", DLB_NEED, words, 2, &which, &err), ==, -1) &&
	       SAME(err.what, "no word 'ring'") && IS(which, ==, 2));
	assert(IS(dlb_get_name(&r, "b", DLB_NEED, words, 3, &which, &err), ==, -1) &&
	       SAME(err.where, "f.json: /graph/b") && SAME(err.what, "no b 'greddy'") &&
	       SAME(err.hint, "did you mean 'greedy'?"));
	assert(!dlb_get_array(&r, "a", DLB_NEED, &out, &n, &err) && IS(n, ==, 2));
	assert(!dlb_get_array(&r, "none", DLB_OPT, &out, &n, &err) && IS(n, ==, 0) && !out.v);
	assert(!dlb_get_object(&r, "none", DLB_OPT, &out, &err) && !out.v);
	assert(IS(dlb_get_object(&r, "none", DLB_NEED, &out, &err), ==, -1) &&
	       IS(dlb_get_array(&r, "none", DLB_NEED, &out, &n, &err), ==, -1));
	assert(!dlb_ref_known(&r, known, &err));
	json_object_set_new(r.v, "x-own", json_null());
	assert(!dlb_ref_known(&r, known, &err));
	json_object_set_new(r.v, "wrod", json_null());
	assert(IS(dlb_ref_known(&r, known, &err), ==, -1) && SAME(err.what, "unknown member 'wrod'") &&
	       SAME(err.hint, "did you mean 'word'?") && SAME(err.where, "f.json: /graph"));
	json_object_del(r.v, "wrod");
	json_object_set_new(r.v, "completely", json_null());
	assert(IS(dlb_ref_known(&r, known, &err), ==, -1) &&
	       SAME(err.hint, "members of your own begin with 'x-'"));
	dlb_doc_release(&d);
}

/* The order of members changes no hash, however many there are and however alike their names. */
static void test_orders(void)
{
	struct dlb_rng rng;

	dlb_rng_init(&rng, 4);
	for (int n = 1; n < 80; n++) {
		json_t *a = json_object(), *b = json_object();
		int order[80];

		for (int i = 0; i < n; i++)
			order[i] = i;
		for (int i = n - 1; i > 0; i--) {
			const int k = (int)dlb_rng_below(&rng, (uint64_t)i + 1), t = order[i];

			order[i] = order[k];
			order[k] = t;
		}
		for (int i = 0; i < n; i++)
			for (int k = 0; k < 2; k++) {
				const int m = k ? order[i] : i;
				char name[32];

				snprintf(name, sizeof name, m % 3 ? "predicted_%d" : "%d", m * 7);
				json_object_set_new(k ? b : a, name, json_integer(m));
			}
		assert(IS(dlb_doc_hash(a, NULL), ==, dlb_doc_hash(b, NULL)));
		json_object_set_new(b, "0", json_integer(99));
		assert(IS(dlb_doc_hash(a, NULL), !=, dlb_doc_hash(b, NULL)));
		json_decref(a);
		json_decref(b);
	}
}

/* The section to make again, by the section that was made from another input. */
static void test_again(void)
{
	static const struct {
		const char *section, *other, *hint;
	} rows[] = {
		{ "plan", "cost", "make it again: run the tools from dlb-place on" },
		{ "profile", "graph", "make it again: run the tools from dlb-profile on" },
		{ "cost", "graph", "make it again: run the tools from dlb-costmodel on" },
		{ "cost", "cluster",
		  "make it again: run the tools from dlb-costmodel on; costs imported by dlb-convert stay "
		  "valid "
		  "without this member: jq 'del(.cost.inputs)'" },
	};

	for (int i = 0; i < DLB_LEN(rows); i++) {
		const char *from[] = { rows[i].other, NULL };
		struct dlb_error err = { .what = "" };
		struct dlb_doc d;
		char what[80];

		assert(!parse(&d,
			      "{\"dlb\":\"1.0\",\"graph\":{},\"profile\":{},\"cluster\":{},\"cost\":{},"
			      "\"plan\":{}}",
			      &err));
		if (i == 3)
			json_object_del(d.root, "profile");
		json_object_set_new(dlb_doc_section(&d, rows[i].section), "inputs",
				    dlb_doc_input_hashes(&d, from));
		assert(!dlb_doc_check_inputs(&d, rows[i].section, &err));
		json_object_set_new(dlb_doc_section(&d, rows[i].other), "more", json_integer(1));
		snprintf(what, sizeof what, "made from another %s than the document has", rows[i].other);
		assert(IS(dlb_doc_check_inputs(&d, rows[i].section, &err), ==, -1) && SAME(err.what, what) &&
		       SAME(err.hint, rows[i].hint));
		dlb_doc_release(&d);
	}
}

/* A hundred thousand ops are read, hashed and printed in seconds. */
static void test_large(void)
{
	struct dlb_doc d, again;
	json_t *ops = json_array(), *placement = json_object(), *graph = json_object(), *plan = json_object();
	double start = dlb_clock_s();
	uint64_t h;
	char *text;

	for (int i = 0; i < 100000; i++) {
		char key[20];

		snprintf(key, sizeof key, "%d", i);
		json_object_set_new(placement, key, json_integer(i % 7));
		json_array_append_new(ops, json_pack("{s:i,s:s,s:s,s:[ii],s:[i],s:f}", "id", i, "type",
						     "Conv", "phase", "forward", "in", i, i + 1, "out", i + 2,
						     "flop", i * 1.1));
	}
	json_object_set_new(graph, "ops", ops);
	json_object_set_new(plan, "placement", placement);
	dlb_doc_init(&d, "f.json");
	dlb_doc_set(&d, "graph", graph);
	dlb_doc_set(&d, "plan", plan);
	h = dlb_doc_hash(d.root, NULL);
	text = text_of(&d);
	assert(!dlb_doc_parse(&again, text, strlen(text), "again", NULL) &&
	       IS(dlb_doc_hash(again.root, NULL), ==, h));
	free(text);
	dlb_doc_release(&d);
	dlb_doc_release(&again);
	assert(IS(dlb_clock_s() - start, <, 20));
	printf("doc: 100000 ops made, hashed, printed, parsed in %.2f s\n", dlb_clock_s() - start);
}

/* As jansson prints it. */
static void same_print(const json_t *v)
{
	static struct dlb_printer p;
	char *want = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17)), *got;
	size_t n;

	p.f = open_memstream(&got, &n);
	assert(want && p.f);
	assert(IS(dlb_print_compact(&p, v), ==, 0));
	dlb_print_flush(&p);
	fclose(p.f);
	if (strcmp(want, got))
		fprintf(stderr, "'%s' instead of '%s'\n", got, want);
	assert(SAME(want, got));
	free(want);
	free(got);
}

static void test_print(void)
{
	static const char *const texts[] = {
		("[0,-0.0,0.0,1,-1,9223372036854775807,-9223372036854775808,1.0,-2.5,1e15,999999999999999.0,"
		 "1e300,5e-324,0.1,123456789.0]"),
		"{\"a\":{},\"b\":[],\"\":null,\"c\":[true,false,[{}]]}",
		"[\"plain\",\"\\\"\\\\/\\u0001\\n\\u007f\",\"\\u00e9\\u4e2d\"]",
	};
	struct dlb_rng r;

	dlb_rng_init(&r, 1);
	for (int i = 0; i < 300 + DLB_LEN(texts); i++) {
		json_t *v = i < DLB_LEN(texts) ?
				    json_loads(texts[i], 0, NULL) :
				    json_pack("[f, f, I, f]",
					      (dlb_rng_uniform(&r) - 0.5) *
						      pow(10, (double)dlb_rng_below(&r, 40) - 20),
					      floor((dlb_rng_uniform(&r) - 0.5) *
						    pow(10, (double)dlb_rng_below(&r, 20))),
					      (json_int_t)dlb_rng_next(&r), dlb_rng_uniform(&r));

		assert(v);
		same_print(v);
		json_decref(v);
	}
	for (int e = -30; e < 25; e++) {	/* around powers of ten, and half units of the last digit */
		double x = pow(10, e), y = ldexp((double)(dlb_rng_next(&r) >> 11), 3 * e);

		for (int i = 0; i < 4; i++)
			x = nextafter(x, 0);
		for (int i = 0; i < 8; i++, x = nextafter(x, INFINITY)) {
			json_t *v = json_pack("[f, f, f]", x, -x, y / (1 << i));

			same_print(v);
			json_decref(v);
		}
	}
}

/* Bytes of heap that jansson holds: glibc adds 8 to each piece and takes a multiple of 16, at least 32. */
static double held;

static double piece(size_t n) { return n <= 24 ? 32 : (double)((n + 8 + 15) / 16 * 16); }

static void *counted_malloc(size_t n)
{
	size_t *p = malloc(n + 16);

	assert(p);
	*p = n;
	held += piece(n);
	return p + 2;
}

static void counted_free(void *p)
{
	if (!p)
		return;
	held -= piece(((size_t *)p)[-2]);
	free((size_t *)p - 2);
}

/* The bytes of sections are those that jansson asks for. */
static void test_heap(void)
{
	static const char *const sections[] = { "graph", "cost", "plan", NULL };
	static const char *const texts[] = {
		"{}",
		"{\"a\":1}",
		"{\"a key of 23 characters \":1,\"and one of 40 characters, which is more --\":2.5}",
		"{\"a\":null,\"b\":true,\"c\":[false,[],[1]],\"d\":{\"e\":{\"one that is long enough\":{}}}}",
		"{\"a\":[1,2,3,4,5,6,7,8],\"b\":[1.5,2.5,3.5,4,5,6,7,8,9]}",
		"{\"a\":\"\",\"b\":\"some words\",\"c\":\"a text of more words, which is 40 long --\"}",
		"{\"a\":0,\"b\":0,\"c\":0,\"d\":0,\"e\":0,\"f\":0,\"g\":0,\"h\":0}",
		"{\"a\":0,\"b\":0,\"c\":0,\"d\":0,\"e\":0,\"f\":0,\"g\":0,\"h\":0,\"i\":0}",
	};

	if (strncmp(JANSSON_VERSION, "2.14", 4)) {
		puts("doc: skip bytes of sections: jansson is not 2.14");
		return;
	}
	json_set_alloc_funcs(counted_malloc, counted_free);
	for (int i = 0; i < DLB_LEN(texts); i++) {
		const double before = held;
		json_t *graph = json_loads(texts[i], 0, NULL),
		       *plan = json_loads(texts[DLB_LEN(texts) - 1 - i], 0, NULL);
		const double want = held - before;
		struct dlb_doc d;

		assert(graph && plan);
		dlb_doc_init(&d, "f.json");
		dlb_doc_put(&d, "graph", graph);
		dlb_doc_put(&d, "plan", plan);
		assert(IS(dlb_doc_heap_bytes(&d, sections), ==, want) && IS(want, >=, 200));
		dlb_doc_release(&d);
		assert(IS(held, ==, before));
	}
	json_set_alloc_funcs(malloc, free);
}

/* A section that is no object is refused when the document is read, whoever reads it. */
static void test_types(void)
{
	static const char *const names[] = { "graph", "profile", "cluster", "cost", "balance", "plan", "run",
					     "report", "provenance" };

	for (int i = 0; i < DLB_LEN(names); i++) {
		char text[80], want[80];
		struct dlb_error err = { .what = "" };
		struct dlb_doc d;

		snprintf(text, sizeof text, "{\"dlb\": \"1.0\", \"%s\": 3}", names[i]);
		snprintf(want, sizeof want, "x: /%s", names[i]);
		assert(IS(dlb_doc_parse(&d, text, strlen(text), "x", &err), ==, -1));
		assert(SAME(err.where, want));
	}
}

int main(void)
{
	test_types();
	test_print();
	test_bad();
	test_write();
	test_sections();
	test_hash();
	test_refs();
	test_heap();
	test_ranges();
	test_members();
	test_orders();
	test_again();
	test_large();
	puts("doc: bad input, versions, members, dropped sections, hashes, printing, references, bytes");
	return 0;
}
