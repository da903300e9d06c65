/* The folder of checkpoints: which steps it has, what is removed of killed runs and of older checkpoints,
 * what takes the place of what, and that the files of other programs stay. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exec/checkpoint_files.h"
#include "check.h"

#define LISTED "{\"dlb-checkpoint\": \"1.2\", \"files\": [\"part-0.safetensors\", \"SHA256SUMS\"]}"
#define OLD "{\"dlb-checkpoint\": \"1.1\"}"

static char folder[] = "/tmp/test_checkpoint_folder.XXXXXX";
static int fd;

/* ---- files ---- */

static void put(const char *path, const char *text)
{
	FILE *f;

	assert(!fchdir(fd));
	f = fopen(path, "w");
	assert(f && fputs(text, f) >= 0 && !fclose(f));
}

/* A folder with these files, which end with NULL; its manifest NULL: none. */
static void make(const char *name, const char *manifest, ...)
{
	char path[200];
	va_list files;

	assert(!mkdirat(fd, name, 0700));
	snprintf(path, sizeof path, "%s/manifest.json", name);
	if (manifest)
		put(path, manifest);
	va_start(files, manifest);
	for (const char *file; (file = va_arg(files, const char *));) {
		snprintf(path, sizeof path, "%s/%s", name, file);
		put(path, "x");
	}
	va_end(files);
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* The names in a folder below the test's, in order; random numbers as "#". */
static const char *names(const char *of)
{
	static char text[2000];
	char *name[64], *at;
	int n = 0;
	DIR *d = fdopendir(openat(fd, of, O_RDONLY | O_DIRECTORY));

	for (struct dirent *e; (e = readdir(d));)
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			name[n++] = strdup(e->d_name);
	closedir(d);
	qsort(name, (size_t)n, sizeof *name, by_name);
	*text = '\0';
	for (int i = 0; i < n; i++) {
		at = strstr(name[i], ".aside-");
		if (at && strspn(at + 7, "0123456789abcdef") == 16)
			strcpy(at + 7, "#");
		snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i ? " " : "", name[i]);
		free(name[i]);
	}
	return text;
}

static void clear(void)
{
	char command[200];

	snprintf(command, sizeof command, "find '%s' -mindepth 1 -delete", folder);
	assert(!system(command));
}

/* ---- tests ---- */

static void steps(void)
{
	static const struct {
		const char *name;
		int64_t step;
	} cases[] = {
		{ "step-0", 0 },   { "step-120", 120 },
		{ "step-007", 7 }, { "step-9223372036854775807", INT64_MAX },
		{ "step-", -1 },   { "step--1", -1 },
		{ "step-+1", -1 }, { "step-9223372036854775808", -1 },
		{ "step-1x", -1 }, { "step 1", -1 },
		{ "xstep-1", -1 }, { "step-1.aside-0", -1 },
		{ "step-:", -1 },
	};
	int n = 7;
	int64_t *found;
	char *newest, want[100];

	assert(!dlb_checkpoint_newest(folder) && !dlb_checkpoint_newest("/nonexistent"));
	assert(!dlb_checkpoint_steps(fd, &n) && IS(n, ==, 0));
	for (int i = 0; i < DLB_LEN(cases); i++) {
		assert(IS(dlb_checkpoint_step_of(cases[i].name), ==, cases[i].step));
		assert(cases[i].step == INT64_MAX || !mkdirat(fd, cases[i].name, 0700));
	}
	found = dlb_checkpoint_steps(fd, &n);
	assert(IS(n, ==, 3) && IS(found[0], ==, 120) && IS(found[1], ==, 7) && IS(found[2], ==, 0));
	free(found);
	newest = dlb_checkpoint_newest(folder);
	snprintf(want, sizeof want, "%s/step-120", folder);
	assert(SAME(newest, want));
	free(newest);
	clear();
}

static void removed(void)
{
	make("a", LISTED, "part-0.safetensors", "SHA256SUMS", NULL);
	assert(dlb_checkpoint_remove(fd, "a") && SAME(names("."), ""));
	make("a", LISTED, ".dlb-0123456789abcdef.part", NULL); /* a temporary file of a killed run */
	assert(dlb_checkpoint_remove(fd, "a") && SAME(names("."), ""));
	/* files that the list has not, and a folder with a name that it has */
	make("b", LISTED, "part-0.safetensors", "part-1.safetensors", "mine", NULL);
	assert(!mkdirat(fd, "b/SHA256SUMS", 0700));
	assert(!dlb_checkpoint_remove(fd, "b") && SAME(names("b"), "SHA256SUMS mine part-1.safetensors"));
	make("c", OLD, "part-0.safetensors", "part-12.safetensors", "kept-3.safetensors", "part-.safetensors",
	     "part-1.safetensorsx", "part-x.safetensors", "apart-0.safetensors", "SHA256SUMS", NULL);
	assert(!dlb_checkpoint_remove(fd, "c"));
	assert(SAME(
		names("c"),
		"SHA256SUMS apart-0.safetensors part-.safetensors part-1.safetensorsx part-x.safetensors"));
	/* without a manifest of dlb nothing goes */
	make("d", "{\"files\": [\"x\"]}", "x", NULL);
	make("e", NULL, "x", NULL);
	make("f", "not json", "x", NULL);
	assert(!dlb_checkpoint_remove(fd, "d") && SAME(names("d"), "manifest.json x"));
	assert(!dlb_checkpoint_remove(fd, "e") && SAME(names("e"), "x"));
	assert(!dlb_checkpoint_remove(fd, "f") && SAME(names("f"), "manifest.json x"));
	assert(!dlb_checkpoint_remove(fd, "g"));
	/* links are not followed */
	make("h", LISTED, "part-0.safetensors", NULL);
	assert(!symlinkat("h", fd, "link") && !dlb_checkpoint_remove(fd, "link"));
	assert(SAME(names("h"), "manifest.json part-0.safetensors"));
	make("i", NULL, "part-0.safetensors", NULL);
	assert(!symlinkat("../h/manifest.json", fd, "i/manifest.json") && !dlb_checkpoint_remove(fd, "i"));
	assert(SAME(names("i"), "manifest.json part-0.safetensors"));
	clear();
}

static void swept(void)
{
	make(".new-0123456789abcdef", LISTED, "part-0.safetensors", NULL);
	make(".old-fedcba9876543210", OLD, "part-0.safetensors", NULL);
	make(".new-0000000000000001", NULL, NULL);
	make(".new-000000000000000", NULL, NULL); /* one digit fewer, one more, none of them */
	make(".new-00000000000000001", NULL, NULL);
	make(".new-000000000000000g", NULL, NULL);
	make(".new-0000000000000002", NULL, "mine", NULL);
	make(".old-0000000000000002", NULL, ".dlb-0123456789abcdef.part", ".dlb-0000000000000000.part", NULL);
	make(".old-0000000000000003", NULL, ".dlb-0123456789abcdef.part", "mine", NULL);
	make(".old-0000000000000004", NULL, ".dlb-0123456789abcde.part", NULL);
	make(".old-0000000000000005", NULL, NULL);
	assert(!mkdirat(fd, ".old-0000000000000005/.dlb-0123456789abcdef.part", 0700));
	make("new-0000000000000003", NULL, NULL);
	make(".older-0000000000004", NULL, NULL);
	make("step-3", LISTED, "part-0.safetensors", NULL);
	put(".new-0000000000000005", "a file");
	dlb_checkpoint_sweep(fd);
	assert(SAME(names("."),
		    ".new-000000000000000 .new-00000000000000001 .new-0000000000000002 .new-0000000000000005 "
		    ".new-000000000000000g .old-0000000000000003 .old-0000000000000004 .old-0000000000000005 "
		    ".older-0000000000004 new-0000000000000003 step-3"));
	assert(SAME(names(".old-0000000000000003"), ".dlb-0123456789abcdef.part mine"));
	assert(SAME(names("step-3"), "manifest.json part-0.safetensors"));
	clear();
}

static void settle(struct dlb_checkpoint *c, int64_t step, const char *where)
{
	struct dlb_error err = { .what = "" };
	char *path = NULL, want[100];

	assert(IS(dlb_checkpoint_settle(c, where, step, &path, &err), ==, 0));
	snprintf(want, sizeof want, "%s/step-%d", folder, (int)step);
	assert(SAME(path, want));
	free(path);
}

/* The newest two whole checkpoints stay, and damaged ones; what has the name makes way. */
static void settled(void)
{
	int64_t damaged[] = { 4, 9 };
	struct dlb_checkpoint c = { .dir = folder, .folder = fd, .damaged = damaged, .n_damaged = 2 };
	struct dlb_error err = { .what = "" };

	for (int i = 1; i <= 5; i++) {
		char name[20];

		snprintf(name, sizeof name, "step-%d", i);
		make(name, LISTED, "part-0.safetensors", NULL);
	}
	make("step-9", LISTED, NULL);
	make("new", LISTED, "part-0.safetensors", NULL);
	settle(&c, 6, "new");
	assert(SAME(names("."), "step-4 step-5 step-6 step-9"));
	make("new", LISTED, "SHA256SUMS", NULL); /* in place of a checkpoint */
	settle(&c, 6, "new");
	assert(SAME(names("."), "step-4 step-5 step-6 step-9") &&
	       SAME(names("step-6"), "SHA256SUMS manifest.json"));
	make("new", LISTED, NULL);
	put("step-6/mine", "x"); /* with a file of somebody */
	settle(&c, 6, "new");
	assert(SAME(names("."), "step-4 step-5 step-6 step-6.aside-# step-9") &&
	       SAME(names("step-6"), "manifest.json"));
	make("new", LISTED, NULL);
	put("step-8", "a file");
	settle(&c, 8, "new");
	assert(SAME(names("."), "step-4 step-6 step-6.aside-# step-8 step-8.aside-# step-9"));
	assert(IS(dlb_checkpoint_settle(&c, "none", 10, NULL, &err), ==, -1) &&
	       HAS(err.what, "cannot rename '"));
	assert(HAS(err.what, "/none' to 'step-10': No such file"));
	clear();
}

int main(void)
{
	assert(mkdtemp(folder));
	fd = open(folder, O_RDONLY | O_DIRECTORY);
	assert(fd >= 0);
	steps();
	removed();
	swept();
	settled();
	close(fd);
	return rmdir(folder);
}
