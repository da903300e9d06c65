/* The folder of checkpoints on rank 0. See checkpoint_files.h. Other programs may keep files in it. So
 * folders are opened by descriptors, links are never followed, and only regular files that a manifest of dlb
 * lists are removed. */
#define _XOPEN_SOURCE 700
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "exec/checkpoint_files.h"
#include "util/output.h"

int64_t dlb_checkpoint_step_of(const char *name)
{
	char *end;
	long long v;

	if (strncmp(name, "step-", 5) || name[5] < '0' || name[5] > '9')
		return -1;
	errno = 0;
	v = strtoll(name + 5, &end, 10);
	return *end || errno ? -1 : v;
}

static int descending(const void *a, const void *b)
{
	const int64_t *x = a, *y = b;

	return (*y > *x) - (*y < *x);
}

/* A stream over folder fd, which stays open. */
static DIR *entries_of(int folder)
{
	const int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (fd >= 0 && !d)
		close(fd);
	return d;
}

int64_t *dlb_checkpoint_steps(int folder, int *n)
{
	DIR *d = entries_of(folder);
	int64_t *step = NULL;
	int cap = 0;

	*n = 0;
	for (struct dirent *e; d && (e = readdir(d));) {
		if (dlb_checkpoint_step_of(e->d_name) < 0)
			continue;
		DLB_GROW(step, *n, cap);
		step[(*n)++] = dlb_checkpoint_step_of(e->d_name);
	}
	if (d)
		closedir(d);
	if (*n)
		qsort(step, (size_t)*n, sizeof *step, descending);
	return step;
}

char *dlb_checkpoint_newest(const char *dir)
{
	const int folder = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int n = 0;
	int64_t *step = folder < 0 ? NULL : dlb_checkpoint_steps(folder, &n);
	char *path = n ? dlb_xprintf("%s/step-%lld", dir, (long long)step[0]) : NULL;

	if (folder >= 0)
		close(folder);
	free(step);
	return path;
}

/* ---- removing ---- */

/* Whether name is `what` (with its dash), a number and ".safetensors". */
static bool numbered(const char *name, const char *what)
{
	const size_t n = strlen(what);
	const char *end;

	if (strncmp(name, what, n) || name[n] < '0' || name[n] > '9')
		return false;
	end = name + n + strspn(name + n, "0123456789");
	return !strcmp(end, ".safetensors");
}

static bool is_regular(int folder, const char *name)
{
	struct stat st;

	return fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
}

/* Reads the list of the manifest in folder fd; false: there is no manifest of dlb. */
static bool read_list(int folder, struct dlb_checkpoint_list *list)
{
	const int fd = openat(folder, DLB_CHECKPOINT_MANIFEST,
			      O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;
	bool ours = false;

	*list = (struct dlb_checkpoint_list){ .n = 0 };
	if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size < INT32_MAX) {
		char *text = dlb_xmalloc((size_t)st.st_size + 1);
		const ssize_t n = pread(fd, text, (size_t)st.st_size, 0);

		ours = n == st.st_size && dlb_checkpoint_manifest_list(text, (size_t)n, list);
		free(text);
	}
	if (fd >= 0)
		close(fd);
	return ours;
}

static bool listed(const struct dlb_checkpoint_list *list, const char *name)
{
	if (dlb_output_is_aside(name))		/* a temporary file of a killed run */
		return true;
	for (int i = 0; i < list->n; i++)
		if (!strcmp(list->name[i], name))
			return true;
	/* Manifests before 1.2 have no list; their files had these names. */
	return list->old && (numbered(name, "part-") || numbered(name, "kept-"));
}

/* Opens folder `name` if it has a manifest of dlb; else -1. */
static int open_ours(int folder, const char *name, struct dlb_checkpoint_list *list)
{
	int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd >= 0 && !read_list(fd, list)) {
		dlb_arena_release(&list->arena);
		close(fd);
		fd = -1;
	}
	return fd;
}

bool dlb_checkpoint_remove(int folder, const char *name)
{
	struct dlb_checkpoint_list list;
	const int fd = open_ours(folder, name, &list);
	DIR *d = fd < 0 ? NULL : entries_of(fd);

	for (struct dirent *e; d && (e = readdir(d));)
		if (listed(&list, e->d_name) && strcmp(e->d_name, DLB_CHECKPOINT_MANIFEST) &&
		    is_regular(fd, e->d_name))
			unlinkat(fd, e->d_name, 0);
	if (d)
		closedir(d);
	if (fd < 0)
		return false;
	/* the manifest goes last: if the run is killed before, a later run can remove the rest */
	unlinkat(fd, DLB_CHECKPOINT_MANIFEST, 0);
	close(fd);
	dlb_arena_release(&list.arena);
	return unlinkat(folder, name, AT_REMOVEDIR) == 0;
}

/* The number after the prefix in the name of a checkpoint that is being written or replaced; NULL: another
 * name. */
static const char *number_of(const char *name)
{
	static const char *const prefix[] = { DLB_CHECKPOINT_NEW, DLB_CHECKPOINT_OLD };

	for (int i = 0; i < 2; i++)
		if (!strncmp(name, prefix[i], strlen(prefix[i])))
			return name + strlen(prefix[i]);
	return NULL;
}

/* Removes a folder without a manifest: its run was killed before it wrote the manifest, or just after it
 * removed the manifest. The folder must have a name that this program gives, and hold nothing but temporary
 * files. */
static void remove_unlisted(int folder, const char *name)
{
	const char *number = number_of(name);
	const bool named = strspn(number, "0123456789abcdef") == 16 && !number[16];
	const int fd = named ? openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
	DIR *d = fd < 0 ? NULL : entries_of(fd);
	bool others = false;

	for (struct dirent *e; d && (e = readdir(d));)
		others |= strcmp(e->d_name, ".") && strcmp(e->d_name, "..") &&
			  !(dlb_output_is_aside(e->d_name) && is_regular(fd, e->d_name));
	if (d && !others) {
		rewinddir(d);
		for (struct dirent *e; (e = readdir(d));)
			if (dlb_output_is_aside(e->d_name))
				unlinkat(fd, e->d_name, 0);
		unlinkat(folder, name, AT_REMOVEDIR);
	}
	if (d)
		closedir(d);
	if (fd >= 0)
		close(fd);
}

void dlb_checkpoint_sweep(int folder)
{
	DIR *d = entries_of(folder);

	for (struct dirent *e; d && (e = readdir(d));)
		if (number_of(e->d_name) && !dlb_checkpoint_remove(folder, e->d_name))
			remove_unlisted(folder, e->d_name);
	if (d)
		closedir(d);
}

/* ---- putting in place ---- */

static bool is_ours(int folder, const char *name)
{
	struct dlb_checkpoint_list list;
	const int fd = open_ours(folder, name, &list);

	if (fd < 0)
		return false;
	close(fd);
	dlb_arena_release(&list.arena);
	return true;
}

/* Frees the name by renaming the folder that has it, to `old`: a checkpoint of dlb gets a name that marks it
 * for removal; anything else gets a visible name beside it. old "": the name was free. */
static int make_way(const struct dlb_checkpoint *c, const char *name, uint64_t number, char *old, size_t cap,
		    struct dlb_error *err)
{
	struct stat st;

	old[0] = '\0';
	if (fstatat(c->folder, name, &st, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT)
		return 0;
	if (is_ours(c->folder, name))
		snprintf(old, cap, DLB_CHECKPOINT_OLD "%016" PRIx64, number);
	else
		snprintf(old, cap, "%s.aside-%016" PRIx64, name, number);
	if (renameat(c->folder, name, c->folder, old) != 0)
		return dlb_fail(err, NULL, "cannot rename '%s/%s': %s", c->dir, name, strerror(errno));
	return 0;
}

static bool is_damaged(const struct dlb_checkpoint *c, int64_t step)
{
	for (int i = 0; i < c->n_damaged; i++)
		if (c->damaged[i] == step)
			return true;
	return false;
}

/* Removes whole checkpoints, except this one and the newest whole one before it. Damaged checkpoints stay.
 * All checkpoints after this one are damaged, since this run began at an older one. */
static void remove_older(const struct dlb_checkpoint *c, int64_t step)
{
	int n, kept = 0;
	int64_t *steps = dlb_checkpoint_steps(c->folder, &n);

	for (int i = 0; i < n; i++) {
		char name[40];

		if (steps[i] > step || (steps[i] != step && is_damaged(c, steps[i])) || kept++ < 2)
			continue;
		snprintf(name, sizeof name, "step-%lld", (long long)steps[i]);
		dlb_checkpoint_remove(c->folder, name);
	}
	free(steps);
}

int dlb_checkpoint_settle(struct dlb_checkpoint *c, const char *aside, int64_t step, char **path,
			  struct dlb_error *err)
{
	char name[40], old[80];
	uint64_t number;
	int fd;

	snprintf(name, sizeof name, "step-%lld", (long long)step);
	if (!dlb_output_number(&number))
		return dlb_fail(err, NULL, "no random numbers for a temporary name in '%s'", c->dir);
	fd = openat(c->folder, aside, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0) {
		fsync(fd);
		close(fd);
	}
	if (make_way(c, name, number, old, sizeof old, err))
		return -1;
	if (renameat(c->folder, aside, c->folder, name) != 0)
		return dlb_fail(err, NULL, "cannot rename '%s/%s' to '%s': %s", c->dir, aside, name,
				strerror(errno));
	fsync(c->folder);
	if (!strncmp(old, DLB_CHECKPOINT_OLD, strlen(DLB_CHECKPOINT_OLD)) &&
	    !dlb_checkpoint_remove(c->folder, old)) {
		/* the folder holds files of other programs: keep it visible */
		char kept[80];

		snprintf(kept, sizeof kept, "%s.aside-%016" PRIx64, name, number);
		renameat(c->folder, old, c->folder, kept);
	}
	remove_older(c, step);
	if (path)
		*path = dlb_xprintf("%s/%s", c->dir, name);
	return 0;
}
