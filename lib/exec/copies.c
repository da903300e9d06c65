/* The folder for copies of state. See copies.h. */
#define _GNU_SOURCE
#include "exec/copies.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "exec/run_folder.h"
#include "util/mem.h"
#include "util/output.h"

#define TMPFS 0x01021994 /* statfs(2): f_type of a file system in memory */
#define MEMORY "/dev/shm"
#define PREFIX "dlb-copies."
#define LOCK "lock"
enum { RESTART_S = 600 }; /* longest time between two starts of the ranks */

static const char *place(void)
{
	struct statfs fs;

	return statfs(MEMORY, &fs) == 0 && fs.f_type == TMPFS && access(MEMORY, W_OK | X_OK) == 0 ?
		       MEMORY :
		       dlb_run_folder_parent();
}

int dlb_copies_name(char name[DLB_COPIES_NAME], struct dlb_error *err)
{
	uint64_t number;

	if (!dlb_output_number(&number))
		return dlb_fail(err, NULL, "no random numbers for the name of a folder");
	snprintf(name, DLB_COPIES_NAME, PREFIX "%016" PRIx64, number);
	return 0;
}

void dlb_copies_path(const char *name, char path[DLB_COPIES_PATH])
{
	char host[256] = "";

	gethostname(host, sizeof host - 1);
	snprintf(path, DLB_COPIES_PATH, "%.80s/%s.%.250s", place(), name, host);
}

/* ---- removing ---- */

/* Removes the files and subfolders of a folder, except the lock and names that begin with `keep`; NULL: all.
 * Takes fd. */
static void empty(int fd, const char *keep, int depth)
{
	DIR *dir = fdopendir(fd);

	for (struct dirent *d; dir && (d = readdir(dir));) {
		int inner;

		if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, "..") ||
		    (keep && (!strcmp(d->d_name, LOCK) || !strncmp(d->d_name, keep, strlen(keep)))))
			continue;
		if (unlinkat(fd, d->d_name, 0) == 0 || depth)
			continue;
		inner = openat(fd, d->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (inner < 0)
			continue;
		empty(inner, NULL, depth + 1);
		unlinkat(fd, d->d_name, AT_REMOVEDIR);
	}
	if (dir)
		closedir(dir);
	else
		close(fd);
}

static void remove_at(const char *path, const char *keep)
{
	const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return;
	empty(fd, keep, 0);
	if (!keep)
		rmdir(path);
}

void dlb_copies_remove(const char *name, const char *keep)
{
	char path[DLB_COPIES_PATH];

	dlb_copies_path(name, path);
	remove_at(path, keep);
}

/* Whether the run of this folder is dead: no process of it lives, and none will be started again. */
static bool is_dead(const char *path)
{
	char *name = dlb_xprintf("%s/" LOCK, path);
	const int fd = open(name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;
	bool dead = false;

	if (fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == geteuid() && flock(fd, LOCK_EX | LOCK_NB) == 0)
		dead = st.st_size > 0 || time(NULL) - st.st_mtime > RESTART_S;
	if (fd >= 0)
		close(fd);
	free(name);
	return dead;
}

/* Removes this host's folders of dead runs. */
static void sweep(void)
{
	DIR *dir = opendir(place());
	char host[256] = "", path[DLB_COPIES_PATH];

	gethostname(host, sizeof host - 1);
	for (struct dirent *d; dir && (d = readdir(dir));) {
		const size_t n = strlen(d->d_name), of_run = strlen(PREFIX) + 17;

		if (strncmp(d->d_name, PREFIX, strlen(PREFIX)) || n <= of_run ||
		    strcmp(d->d_name + of_run, host))
			continue;
		snprintf(path, sizeof path, "%.80s/%.300s", place(), d->d_name);
		if (is_dead(path))
			remove_at(path, NULL);
	}
	if (dir)
		closedir(dir);
}

int dlb_copies_open(const char *name, bool parent, struct dlb_error *err)
{
	char path[DLB_COPIES_PATH], *lock;
	int fd, rc;

	if (parent)
		sweep();
	dlb_copies_path(name, path);
	if (mkdir(path, 0700) && errno != EEXIST)
		return dlb_fail(err, NULL, "cannot make folder '%s': %s", path, strerror(errno));
	lock = dlb_xprintf("%s/" LOCK, path);
	fd = open(lock, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	rc = fd < 0 || flock(fd, LOCK_SH | LOCK_NB) || futimens(fd, NULL) ||
	     (parent && write(fd, "parent\n", 7) != 7);
	if (rc)
		dlb_fail(err, NULL, "cannot lock '%s': %s", lock, strerror(errno));
	free(lock);
	if (rc && fd >= 0)
		close(fd);
	return rc ? -1 : fd;
}
