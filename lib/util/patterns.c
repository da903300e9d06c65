/* Name patterns from the command line: see patterns.h. */
#include "util/patterns.h"
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static void append(struct dlb_patterns *p, const char *text, struct dlb_arena *a)
{
	const char **item = dlb_arena_array(a, (size_t)p->n + 1, sizeof *item);

	if (p->n)
		memcpy(item, p->item, (size_t)p->n * sizeof *item);
	item[p->n++] = dlb_arena_strdup(a, text);
	p->item = item;
}

int dlb_patterns_add(struct dlb_patterns *p, const char *text, struct dlb_arena *a, struct dlb_error *err)
{
	char line[4096];
	struct stat st;
	const int before = p->n;

	if (stat(text, &st) != 0 || !S_ISREG(st.st_mode)) {
		append(p, text, a);
		return 0;
	}
	FILE *f = fopen(text, "r");
	if (!f)
		return dlb_fail(err, NULL, "cannot open '%s'", text);
	while (fgets(line, sizeof line, f)) {
		line[strcspn(line, "\r\n")] = '\0';
		if (*line && *line != '#')
			append(p, line, a);
	}
	fclose(f);
	return p->n > before ? 0 : dlb_fail(err, text, "no name in it");
}

bool dlb_pattern_matches(const char *pattern, const char *name)
{
	for (size_t i = 0; !strchr("*?[\\", pattern[i]); i++) /* strchr also finds the final zero */
		if (pattern[i] != name[i])
			return false;
	return !fnmatch(pattern, name, 0) || !strcmp(pattern, name);
}

int dlb_patterns_match(const struct dlb_patterns *p, const char *name)
{
	for (int i = 0; i < p->n; i++)
		if (dlb_pattern_matches(p->item[i], name))
			return i;
	return -1;
}

int dlb_patterns_check(const struct dlb_patterns *p, const char *const *names, int n, struct dlb_error *err)
{
	for (int i = 0; i < p->n; i++) {
		const struct dlb_patterns one = { .item = &p->item[i], .n = 1 };
		bool found = false;
		for (int k = 0; k < n && !found; k++)
			found = dlb_patterns_match(&one, names[k]) >= 0;
		if (found)
			continue;
		dlb_fail(err, NULL, "%s: no weight matches '%s'", p->what, p->item[i]);
		const char *near = dlb_nearest(p->item[i], names, n);
		return near ? dlb_hint(err, "did you mean '%s'?", near) :
		       n    ? dlb_hint(err, "there is '%s'", names[0]) :
			      -1;
	}
	return 0;
}
