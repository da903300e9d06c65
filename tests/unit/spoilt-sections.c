/* Spoils every member of a section, one at a time, and prints what its reader answers:
 *     spoilt-sections DOC plan|report
 * Members with the same answers, by their JSON Pointers; then the values that they were given, by answer. A
 * refusal's numbers are #, names in quotes '. "same": read, and written again as it is; "other": read, and
 * written as something else, or not at all. Of arrays, and of objects whose members are numbers, the first
 * and the last member are spoilt. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "exec/job.h"
#include "plan/plan_json.h"
#include "plan/report.h"
#include "util/mem.h"

enum { MOST_ANSWERS = 40, MOST_MEMBERS = 1000 };
struct answer {
	char text[700], values[400];
};
/* A member's answers. */
static struct member {
	char *pointer, *answers;
} members[MOST_MEMBERS];
static int n_members;

static struct dlb_job job;
static struct dlb_doc doc;
static bool is_plan;

/* Numbers become #, names in quotes '; what a getter found instead is left out. */
static void plain(const char *text, char *to, size_t size)
{
	size_t n = 0;
	bool quoted = false;
	for (; *text && strncmp(text, ", found ", 8) && n + 1 < size; text++) {
		const bool digit = *text >= '0' && *text <= '9';
		if (*text == '\'')
			quoted = !quoted;
		if (quoted ? *text != '\'' : *text == '\'' || (digit && n && to[n - 1] == '#'))
			continue;
		to[n++] = digit ? '#' : *text;
	}
	to[n] = '\0';
}

/* The answer to the section as it is now. */
static void ask(const char *pointer, char *text, size_t size)
{
	struct dlb_error err = { .what = "" };
	struct dlb_plan p;
	struct dlb_report r;
	json_t *written, *section = dlb_doc_section(&doc, is_plan ? "plan" : "report");
	char what[600], *where = err.where + strlen(doc.name) + 2;
	if (is_plan ? dlb_plan_read(&doc, &job.cost, &p, NULL, &err) : dlb_report_read(&doc, &r, &err)) {
		plain(err.what, what, sizeof what);
		if (!strncmp(err.where, doc.name, strlen(doc.name)) && !strcmp(where, pointer))
			snprintf(text, size, "%s", what);
		else
			snprintf(text, size, "%s: %s",
				 strncmp(err.where, doc.name, strlen(doc.name)) ? err.where : where, what);
		return;
	}
	written = is_plan ? dlb_plan_write(&p) : dlb_report_write(&r);
	snprintf(text, size, "%s", json_equal(written, section) ? "same" : "other");
	json_decref(written);
	if (is_plan)
		dlb_plan_release(&p);
	else
		dlb_report_release(&r);
}

static void note(struct answer *list, int *n, const char *value, const char *pointer)
{
	char text[700];
	int i = 0;
	ask(pointer, text, sizeof text);
	while (i < *n && strcmp(list[i].text, text))
		i++;
	if (i == *n) {
		if (++*n > MOST_ANSWERS)
			dlb_bug("too many answers");
		snprintf(list[i].text, sizeof list[i].text, "%s", text);
		list[i].values[0] = '\0';
	}
	const size_t at = strlen(list[i].values);
	snprintf(list[i].values + at, sizeof list[i].values - at, " %s", value);
}

/* Sets a member of an object (key) or element `index` of an array. Takes value. */
static void set(json_t *up, const char *key, size_t index, json_t *value)
{
	if (key)
		json_object_set_new(up, key, value);
	else
		json_array_set_new(up, index, value);
}

static const char *const values[] = {
	"null",          "true", "false",   "\"x\"",   "[]",         "{}",         "-2",
	"-1.5",          "-1",   "0",       "1",       "1.5",        "2",          "3",
	"1024",          "1025", "1048576", "1048577", "2147483647", "2147483648", "1099511627776",
	"1099511627777", "1e18", "1.1e18",  "1e300"
};

/* The member absent, of each value, or with one part more or less. */
static void spoil(json_t *up, const char *key, size_t index, const char *pointer)
{
	json_t *good = key ? json_object_get(up, key) : json_array_get(up, index), *x;
	struct answer *list = dlb_xcalloc(MOST_ANSWERS + 1, sizeof *list);
	int n = 0;
	json_incref(good);
	if (key)
		json_object_del(up, key);
	else
		json_array_remove(up, index);
	note(list, &n, "absent", pointer);
	if (!key)
		json_array_insert(up, index, good);
	for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
		set(up, key, index, json_loads(values[i], JSON_DECODE_ANY, NULL));
		note(list, &n, values[i], pointer);
	}
	if (json_is_object(good)) {
		set(up, key, index, x = json_copy(good));
		json_object_set_new(x, "membre", json_integer(1));
		note(list, &n, "member", pointer);
	}
	if (json_array_size(good)) {
		set(up, key, index, x = json_copy(good));
		json_array_remove(x, json_array_size(x) - 1);
		note(list, &n, "less", pointer);
		set(up, key, index, x = json_copy(good));
		json_array_append(x, json_array_get(x, 0));
		note(list, &n, "more", pointer);
	}
	set(up, key, index, good);
	struct member *m = &members[n_members++];
	if (n_members == MOST_MEMBERS)
		dlb_bug("too many members");
	*m = (struct member){ dlb_xprintf("%s", pointer), dlb_xprintf("%s", "") };
	for (int i = 0; i < n; i++) {
		char *more = dlb_xprintf("%s\t%s:%s\n", m->answers, list[i].text, list[i].values);
		free(m->answers);
		m->answers = more;
	}
	free(list);
}

static void walk(json_t *v, const char *pointer);

static void descend(json_t *up, const char *key, size_t index, const char *pointer)
{
	char at[300], number[24];
	snprintf(number, sizeof number, "%zu", index);
	snprintf(at, sizeof at, "%.200s/%.60s", pointer, key ? key : number);
	spoil(up, key, index, at);
	walk(key ? json_object_get(up, key) : json_array_get(up, index), at);
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void walk(json_t *v, const char *pointer)
{
	const size_t n = json_is_object(v) ? json_object_size(v) : json_array_size(v);
	if (json_is_array(v)) {
		for (size_t i = 0; i<n; i += n> 2 && !i ? n - 1 : 1)
			descend(v, NULL, i, pointer);
		return;
	}
	if (!json_is_object(v))
		return;
	char **key = dlb_xcalloc(n + 1, sizeof *key);
	size_t k = 0;
	for (void *i = json_object_iter(v); i; i = json_object_iter_next(v, i))
		key[k++] = dlb_xprintf("%s", json_object_iter_key(i));
	qsort(key, n, sizeof *key, by_name);
	for (size_t i = 0; i < n; i++) {
		if (i == 0 || i == n - 1 || key[i][0] < '0' || key[i][0] > '9')
			descend(v, key[i], 0, pointer);
		free(key[i]);
	}
	free(key);
}

/* Prints members with the same answers together, in the order of the first of them. */
static void print_members(void)
{
	for (int i = 0; i < n_members; i++) {
		if (!members[i].pointer)
			continue;
		for (int k = i; k < n_members; k++) {
			if (!members[k].pointer || strcmp(members[k].answers, members[i].answers))
				continue;
			puts(members[k].pointer);
			free(members[k].pointer);
			members[k].pointer = NULL;
		}
		fputs(members[i].answers, stdout);
	}
	for (int i = 0; i < n_members; i++)
		free(members[i].answers);
}

int main(int argc, char **argv)
{
	struct dlb_exec_options o = {
		.steps = 1, .epochs = -1, .until_step = -1, .dry_run = true, .quiet = true
	};
	struct dlb_error err = { .what = "" };
	char text[700];
	if (argc != 3 || (strcmp(argv[2], "plan") && strcmp(argv[2], "report"))) {
		fputs("spoilt-sections DOC plan|report\n", stderr);
		return 2;
	}
	is_plan = !strcmp(argv[2], "plan");
	if (dlb_doc_read(&doc, argv[1], &err) || (is_plan && dlb_job_read(&job, &doc, &o, &err))) {
		dlb_error_print(stderr, "spoilt-sections", -1, &err);
		return 2;
	}
	snprintf(doc.name, sizeof doc.name, "doc");
	json_object_del(dlb_doc_section(&doc, argv[2]), "inputs");
	ask("", text, sizeof text);
	printf("the good section: %s\n", text);
	walk(dlb_doc_section(&doc, argv[2]), is_plan ? "/plan" : "/report");
	print_members();
	dlb_job_release(&job);
	dlb_doc_release(&doc);
	return 0;
}
