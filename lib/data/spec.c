/* Parses the argument of --data: NAME[:FILE[,FILE...][,option=VALUE...]]. */
#define _XOPEN_SOURCE 700	/* realpath */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "data/source.h"
#include "data/spec.h"
#include "util/mem.h"

static const struct dlb_source_class *const classes[] = {
	&dlb_source_idx,    &dlb_source_npy,  &dlb_source_digits, &dlb_source_images,
	&dlb_source_tokens, &dlb_source_text, &dlb_source_random,
};

static const struct dlb_source_class *class_of(const char *text, struct dlb_error *err)
{
	size_t n = strcspn(text, ":");
	const char *names[DLB_LEN(classes)];
	char word[32];

	for (int i = 0; i < DLB_LEN(classes); i++) {
		const struct dlb_source_class *c = classes[i];

		if (strlen(c->name) == n && !memcmp(text, c->name, n))
			return c;
		names[i] = c->name;
	}
	snprintf(word, sizeof word, "%.*s", (int)(n < 31 ? n : 31), text);
	dlb_fail(err, NULL, "no data '%s'", text);
	dlb_hint_nearest(err, word, names, DLB_LEN(names),
			 "there are idx:, npy:, images:, tokens:, text:, digits and random");
	return NULL;
}

/* Returns the row of the option that begins at p; -1: none. */
static int option_at(const struct dlb_source_class *c, const char *p)
{
	for (int i = 0; i < DLB_MAX_SPEC_OPTIONS && c->option[i].name; i++) {
		size_t n = strlen(c->option[i].name);

		if (!strncmp(p, c->option[i].name, n) && p[n] == '=')
			return i;
	}
	return -1;
}

/* Removes options from the end of `rest`; the remainder is a path. */
static int take_options(struct dlb_spec *s, char *rest, struct dlb_error *err)
{
	char *comma;

	while ((comma = strrchr(rest, ','))) {
		int k = option_at(s->class, comma + 1);

		if (k < 0) {
			size_t word = strspn(comma + 1, "abcdefghijklmnopqrstuvwxyz");

			/* For sources of one file, "word=" after a comma is a misspelt
			 * option, unless a file has that name. */
			if (word && comma[1 + word] == '=' && s->class->max_files == 1 &&
			    access(rest, F_OK)) {
				dlb_fail(err, NULL, "data '%s:' have no option '%.*s'", s->class->name,
					 (int)word, comma + 1);
				return dlb_hint(err, "they are written %s", s->class->form);
			}
			break;
		}
		if (s->option[k])
			return dlb_fail(err, NULL, "data: '%s' twice", s->class->option[k].name);
		s->option[k] = dlb_xstrdup(strchr(comma, '=') + 1);
		*comma = '\0';
	}
	return 0;
}

static void add_file(struct dlb_spec *s, const char *p, size_t n)
{
	s->file[s->n_files++] = dlb_xprintf("%.*s", (int)n, p);
}

static int take_files(struct dlb_spec *s, const char *text, const char *rest, struct dlb_error *err)
{
	const char *comma = strrchr(rest, ',');

	if (s->class->max_files == 1) {
		add_file(s, rest, strlen(rest));
	} else if (s->class->max_files == 2) {
		if (!comma)
			return dlb_hint((dlb_fail(err, NULL, "data '%s': two files are needed", text), err),
					"%s", s->class->form);
		add_file(s, rest, (size_t)(comma - rest));
		add_file(s, comma + 1, strlen(comma + 1));
	} else {
		for (;; rest++) {
			size_t n = strcspn(rest, ",");

			if (s->n_files == DLB_MAX_SPEC_FILES)
				return dlb_fail(err, NULL, "data '%s' name more than %d files", text,
						DLB_MAX_SPEC_FILES);
			add_file(s, rest, n);
			rest += n;
			if (!*rest)
				break;
		}
	}
	for (int i = 0; i < s->n_files; i++)
		if (!*s->file[i])
			return dlb_hint((dlb_fail(err, NULL, "data '%s': a file's name is missing", text),
					 err),
					"%s", s->class->form);
	return 0;
}

int dlb_spec_parse(const char *text, struct dlb_spec *s, struct dlb_error *err)
{
	const char *colon = strchr(text, ':');
	char *rest;
	int rc = 0;

	memset(s, 0, sizeof *s);
	if (!(s->class = class_of(text, err)))
		return -1;
	if (!s->class->max_files) {
		s->word = colon ? dlb_xstrdup(colon + 1) : NULL;
		return 0;
	}
	if (!colon || !colon[1])
		return dlb_hint((dlb_fail(err, NULL, "data '%s': a file is needed", text), err), "%s",
				s->class->form);
	rest = dlb_xstrdup(colon + 1);
	rc = take_options(s, rest, err) || take_files(s, text, rest, err) ? -1 : 0;
	free(rest);
	if (rc)
		dlb_spec_release(s);
	return rc;
}

void dlb_spec_release(struct dlb_spec *s)
{
	for (int i = 0; i < s->n_files; i++)
		free(s->file[i]);
	for (int i = 0; i < DLB_MAX_SPEC_OPTIONS; i++)
		free(s->option[i]);
	free(s->word);
	memset(s, 0, sizeof *s);
}

static int absolute(char **path, struct dlb_error *err)
{
	char *p = realpath(*path, NULL);

	if (!p)
		return dlb_fail(err, NULL, "cannot open '%s': %s", *path, strerror(errno));
	free(*path);
	*path = p;
	return 0;
}

int dlb_data_absolute(const char *spec, char **out, struct dlb_error *err)
{
	struct dlb_spec s;
	char *text;
	int rc = -1;

	if (dlb_spec_parse(spec, &s, err))
		return -1;
	if (!s.class->max_files) {
		dlb_spec_release(&s);
		*out = dlb_xstrdup(spec);
		return 0;
	}
	text = dlb_xprintf("%s:", s.class->name);
	for (int i = 0; i < s.n_files + DLB_MAX_SPEC_OPTIONS; i++) {
		int k = i - s.n_files;
		char *was = text, **part = k < 0 ? &s.file[i] : &s.option[k];

		if (!*part)
			continue;
		if ((k < 0 || s.class->option[k].is_file) && absolute(part, err))
			goto out;
		text = dlb_xprintf("%s%s%s%s%s", was, i ? "," : "", k < 0 ? "" : s.class->option[k].name,
				   k < 0 ? "" : "=", *part);
		free(was);
	}
	*out = text;
	text = NULL;
	rc = 0;
out:
	free(text);
	dlb_spec_release(&s);
	return rc;
}
