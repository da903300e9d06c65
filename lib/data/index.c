/* Index of the images in a folder or tar file: every name ending in .jpg, .jpeg or .png, sorted by class,
 * then by name (bytes), so a folder and a tar of it give the same data. The leading folders that all names
 * share are removed; the first part of the remaining path is the class. Other files are ignored. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "data/file.h"
#include "data/image.h"
#include "data/index.h"
#include "data/source.h"
#include "data/tar.h"
#include "util/mem.h"

enum { MAX_DEPTH = 32 };

static void add(struct dlb_index *x, const char *name, uint64_t at, uint64_t size)
{
	DLB_GROW(x->entry, x->n, x->cap);
	x->entry[x->n++] = (struct dlb_index_entry){
		.name = dlb_arena_strdup(&x->arena, name), .at = at, .size = size, .label = -1
	};
}

/* ---- finding images ---- */

static int scan(struct dlb_index *x, const char *folder, const char *below, int depth, struct dlb_error *err)
{
	DIR *dir = opendir(folder);
	struct dirent *e;
	int rc = 0;

	if (!dir)
		return dlb_fail(err, NULL, "cannot open '%s': %s", folder, strerror(errno));
	while (!rc && (errno = 0, e = readdir(dir))) {
		char *path, *name;
		struct stat st;

		if (e->d_name[0] == '.')
			continue;
		path = dlb_xprintf("%s/%s", folder, e->d_name);
		name = dlb_xprintf("%s%s%s", below, *below ? "/" : "", e->d_name);
		if (stat(path, &st))
			rc = dlb_fail(err, NULL, "cannot open '%s': %s", path, strerror(errno));
		else if (S_ISDIR(st.st_mode) && depth == MAX_DEPTH)
			rc = dlb_hint((dlb_fail(err, NULL, "folders in '%s' are nested more than %d deep",
						x->root, MAX_DEPTH),
				       err),
				      "does a link lead back?");
		else if (S_ISDIR(st.st_mode))
			rc = scan(x, path, name, depth + 1, err);
		else if (S_ISREG(st.st_mode) && dlb_image_named(name))
			add(x, name, 0, (uint64_t)st.st_size);
		free(path);
		free(name);
	}
	if (!rc && errno)
		rc = dlb_fail(err, NULL, "cannot read '%s': %s", folder, strerror(errno));
	closedir(dir);
	return rc;
}

static int member(void *ctx, const struct dlb_tar_member *m, struct dlb_error *err)
{
	struct dlb_index *x = ctx;
	const char *name = m->name, *slash;

	while (!strncmp(name, "./", 2) || *name == '/')
		name += *name == '/' ? 1 : 2;
	slash = strrchr(name, '/');
	if (!dlb_image_named(name) || (slash ? slash[1] : *name) == '.')
		return 0;
	if (m->link)
		return dlb_hint((dlb_fail(err, x->tar.path, "byte %llu: member '%.180s' is a link or sparse",
					  (unsigned long long)m->header, name),
				 err),
				"make the tar file with --dereference --hard-dereference");
	add(x, name, m->at, m->size);
	return 0;
}

/* ---- classes ---- */

/* Length of the path prefix that all names share, including its last '/'. */
static size_t common_folders(const struct dlb_index *x)
{
	const char *first = x->entry[0].name;
	size_t n = strlen(first);

	for (int64_t i = 0; i < x->n; i++) {
		size_t k = 0;

		while (k < n && x->entry[i].name[k] == first[k])
			k++;
		n = k;
	}
	while (n && first[n - 1] != '/')
		n--;
	return n;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int class_find(const struct dlb_index *x, const char *name)
{
	char *const *at = x->n_classes ?
				  bsearch(&name, x->class, (size_t)x->n_classes, sizeof *x->class, by_text) :
				  NULL;

	return at ? (int)(at - x->class) : -1;
}

/* Sets x->class to the distinct names among name[n]. Takes ownership of the array. */
static void class_list(struct dlb_index *x, char **name, int64_t n)
{
	qsort(name, (size_t)n, sizeof *name, by_text);
	x->class = name;
	for (int64_t i = 0; i < n; i++)
		if (!x->n_classes || strcmp(name[i], x->class[x->n_classes - 1]))
			x->class[x->n_classes++] = name[i];
}

/* Test data use the classes of the training data. */
static void class_copy(struct dlb_index *x, const struct dlb_index *like)
{
	x->n_classes = like->n_classes;
	x->class = dlb_xcalloc((size_t)like->n_classes + 1, sizeof *x->class);
	for (int i = 0; i < like->n_classes; i++)
		x->class[i] = dlb_arena_strdup(&x->arena, like->class[i]);
}

static int unknown_class(const struct dlb_index *x, const char *where, const char *class,
			 struct dlb_error *err)
{
	dlb_fail(err, where, "class '%s' is not among the %d trained on", class, x->n_classes);
	return dlb_hint_nearest(err, class, (const char *const *)x->class, x->n_classes, NULL);
}

/* Labels each image by its folder. */
static int by_folder(struct dlb_index *x, const struct dlb_index *like, struct dlb_error *err)
{
	char **name = dlb_xcalloc((size_t)x->n + 1, sizeof *name);
	size_t skip = common_folders(x);
	int rc = 0;

	for (int64_t i = 0; i < x->n && !rc; i++) {
		const char *below = x->entry[i].name + skip, *slash = strchr(below, '/');

		if (slash)
			name[i] = dlb_arena_printf(&x->arena, "%.*s", (int)(slash - below), below);
		else
			rc = dlb_hint((dlb_fail(err, NULL, "image '%s' of '%s' is in no class folder",
						x->entry[i].name, x->root),
				       err),
				      "one folder a class, or images:PATH,labels=FILE with a line \"NAME "
				      "LABEL\" an image");
	}
	if (rc) {
		free(name);
		return -1;
	}
	if (like) {
		class_copy(x, like);
		for (int64_t i = 0; i < x->n && !rc; i++)
			if ((x->entry[i].label = class_find(x, name[i])) < 0)
				rc = unknown_class(x, x->root, name[i], err);
		free(name);
		return rc;
	}
	class_list(x, memcpy(dlb_xcalloc((size_t)x->n + 1, sizeof *name), name, (size_t)x->n * sizeof *name),
		   x->n);
	for (int64_t i = 0; i < x->n; i++)
		x->entry[i].label = class_find(x, name[i]);
	free(name);
	return 0;
}

/* ---- label file ---- */

struct line { char *name, *label; int64_t number; bool used; };

static int by_name(const void *a, const void *b)
{
	const struct line *p = a, *q = b;

	return strcmp(p->name, q->name);
}

/* Reads lines "NAME LABEL", split at the last blank, tab or comma. Empty lines and lines
 * beginning with '#' are skipped. */
static int lines_read(char *text, size_t n, const char *path, struct line **out, int64_t *n_out,
		      struct dlb_error *err)
{
	struct line *line = NULL;
	int64_t n_lines = 0, cap = 0, number = 0;
	char where[256];

	for (char *p = text, *next; p < text + n; p = next) {
		char *end = memchr(p, '\n', (size_t)(text + n - p)), *cut;

		next = end ? end + 1 : text + n;
		end = end ? end : text + n;
		number++;
		snprintf(where, sizeof where, "%.230s:%lld", path, (long long)number);
		if (memchr(p, '\0', (size_t)(end - p))) {
			free(line);
			return dlb_fail(err, where, "byte %zu: not a line of text", (size_t)(p - text));
		}
		while (end > p && strchr(" \t\r", end[-1]))
			end--;
		*end = '\0';		/* text has one extra byte at its end */
		if (end == p || *p == '#')
			continue;
		for (cut = end; cut > p && !strchr(" \t,", cut[-1]); cut--)
			;
		if (cut - p < 2 || cut == end) {
			free(line);
			return dlb_hint((dlb_fail(err, where, "byte %zu: no name and label",
						  (size_t)(p - text)),
					 err),
					"NAME LABEL, a line each");
		}
		cut[-1] = '\0';
		DLB_GROW(line, n_lines, cap);
		line[n_lines++] = (struct line){ .name = p, .label = cut, .number = number };
		for (char *q = cut - 2; q > p && strchr(" \t,", *q); q--)
			*q = '\0';
	}
	if (n_lines)
		qsort(line, (size_t)n_lines, sizeof *line, by_name);
	*out = line;
	*n_out = n_lines;
	return 0;
}

/* Returns the class number; -1 if the text is not a number. */
static int64_t as_number(const char *text)
{
	char *end;
	long long v;

	if (*text < '0' || *text > '9')
		return -1;
	errno = 0;
	v = strtoll(text, &end, 10);
	return *end || errno || v > INT32_MAX ? -1 : v;
}

static int label_of(struct dlb_index *x, const struct line *l, const char *path, bool words, int *out,
		    struct dlb_error *err)
{
	char where[256];

	*out = words ? class_find(x, l->label) : (int)as_number(l->label);
	if (*out >= 0)
		return 0;
	snprintf(where, sizeof where, "%.230s:%lld", path, (long long)l->number);
	return unknown_class(x, where, l->label, err);
}

static int join(struct dlb_index *x, struct line *line, int64_t n, const char *path, bool words,
		struct dlb_error *err)
{
	size_t skip = common_folders(x);
	char where[256];

	for (int64_t i = 1; i < n; i++)
		if (!strcmp(line[i].name, line[i - 1].name)) {
			int64_t second = line[i].number > line[i - 1].number ? line[i].number :
									       line[i - 1].number;

			snprintf(where, sizeof where, "%.230s:%lld", path, (long long)second);
			return dlb_fail(err, where, "a second label for '%s'", line[i].name);
		}
	for (int64_t i = 0; i < x->n; i++) {
		struct line key = { .name = x->entry[i].name }, below = { .name = x->entry[i].name + skip };
		struct line *l = n ? bsearch(&key, line, (size_t)n, sizeof *line, by_name) : NULL;

		l = l || !n ? l : bsearch(&below, line, (size_t)n, sizeof *line, by_name);
		if (!l)
			return dlb_fail(err, path, "no label for image '%s' of '%s'", x->entry[i].name,
					x->root);
		if (label_of(x, l, path, words, &x->entry[i].label, err))
			return -1;
		l->used = true;
	}
	for (int64_t i = 0; i < n; i++)
		if (!line[i].used) {
			snprintf(where, sizeof where, "%.230s:%lld", path, (long long)line[i].number);
			return dlb_fail(err, where, "no image '%s' in '%s'", line[i].name, x->root);
		}
	return 0;
}

static int by_file(struct dlb_index *x, const char *path, const struct dlb_index *like, struct dlb_error *err)
{
	unsigned char *text;
	struct line *line = NULL;
	int64_t n_lines = 0;
	bool words = false;
	size_t n;
	int rc;

	if (dlb_data_file_read(path, &text, &n, err))
		return -1;
	text = dlb_xrealloc(text, n + 1, 1);
	text[n] = '\0';
	rc = lines_read((char *)text, n, path, &line, &n_lines, err);
	for (int64_t i = 0; i < n_lines && !words; i++)
		words = as_number(line[i].label) < 0;
	if (!rc && words && like) {
		class_copy(x, like);
	} else if (!rc && words) {
		char **name = dlb_xcalloc((size_t)n_lines + 1, sizeof *name);

		for (int64_t i = 0; i < n_lines; i++)
			name[i] = dlb_arena_strdup(&x->arena, line[i].label);
		class_list(x, name, n_lines);
	}
	if (!rc)
		rc = join(x, line, n_lines, path, words, err);
	free(line);
	free(text);
	return rc;
}

/* ---- whole index ---- */

static int by_label_and_name(const void *a, const void *b)
{
	const struct dlb_index_entry *p = a, *q = b;

	return p->label != q->label ? (p->label > q->label) - (p->label < q->label) :
				      strcmp(p->name, q->name);
}

static int by_path(const void *a, const void *b)
{
	const struct dlb_index_entry *p = a, *q = b;

	return strcmp(p->name, q->name);
}

/* Sorts the entries. If a tar file holds a name twice, the last member counts, as when unpacking. */
static void settle(struct dlb_index *x)
{
	int64_t n = 0;

	qsort(x->entry, (size_t)x->n, sizeof *x->entry, by_label_and_name);
	for (int64_t i = 0; i < x->n; i++) {
		if (n && !strcmp(x->entry[n - 1].name, x->entry[i].name)) {
			if (x->entry[i].at > x->entry[n - 1].at)
				x->entry[n - 1] = x->entry[i];
			continue;
		}
		x->entry[n++] = x->entry[i];
	}
	x->n = n;
}

int dlb_index_read(struct dlb_index *x, const char *path, const char *labels, bool classes,
		   const struct dlb_index *like, struct dlb_error *err)
{
	struct stat st;

	if (stat(path, &st))
		return dlb_fail(err, NULL, "cannot open '%s': %s", path, strerror(errno));
	x->root = dlb_xstrdup(path);
	x->is_tar = !S_ISDIR(st.st_mode);
	if (x->is_tar ? dlb_data_file_open(&x->tar, path, err) || dlb_tar_walk(&x->tar, member, x, err) :
			scan(x, path, "", 0, err))
		return -1;
	if (!x->n)
		return dlb_fail(err, NULL, "no .jpg, .jpeg or .png in '%s'", path);
	/* the same error is reported in any directory order */
	qsort(x->entry, (size_t)x->n, sizeof *x->entry, by_path);
	if (labels ? by_file(x, labels, like, err) : classes && by_folder(x, like, err))
		return -1;
	settle(x);
	return 0;
}

void dlb_index_release(struct dlb_index *x)
{
	dlb_data_file_close(&x->tar);
	dlb_arena_release(&x->arena);
	free(x->entry);
	free(x->class);
	free(x->root);
	memset(x, 0, sizeof *x);
}
