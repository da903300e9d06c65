/* See checkpoint.h: the folder, and what all ranks do together. Errors of one rank are everyone's: each stage ends in
 * dlb_comm_agree. */
#define _XOPEN_SOURCE 700
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "exec/checkpoint_files.h"
#include "util/clock.h"

/* ---- the folder ---- */

static int make_dirs(const char *dir, struct dlb_error *err)
{
	char *p = dlb_xstrdup(dir);
	int rc = 0;

	for (char *q = p + 1; !rc; q++) {
		char c = *q;

		if (c && c != '/')
			continue;
		*q = '\0';
		if (mkdir(p, 0777) && errno != EEXIST)
			rc = dlb_fail(err, NULL, "cannot make folder '%s': %s", p, strerror(errno));
		*q = c;
		if (!c)
			break;
	}
	free(p);
	return rc;
}

/* The ranks of a run that was killed go with it, but need a moment: a lock is waited for that long. */
static int take_lock(int fd, struct flock *l)
{
	int rc;

	for (int i = 0; (rc = fcntl(fd, F_SETLK, l)) && (errno == EACCES || errno == EAGAIN) && i < 60; i++)
		dlb_sleep_s(0.05);
	return rc;
}

static int lock(struct dlb_checkpoint *c, const char *dir, struct dlb_error *err)
{
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	char *path;
	int rc = -1;

	if (make_dirs(dir, err))
		return -1;
	path = dlb_xprintf("%s/lock", dir);
	c->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	if (c->lock < 0) {
		dlb_fail(err, NULL, "cannot open '%s': %s", path, strerror(errno));
	} else if (take_lock(c->lock, &l)) {
		long pid = fcntl(c->lock, F_GETLK, &l) == 0 && l.l_type != F_UNLCK ? (long)l.l_pid : 0;

		dlb_fail(err, NULL, "checkpoint folder '%s' is in use by another run (process %ld)", dir, pid);
	} else {
		rc = 0;
	}
	free(path);
	return rc;
}

int dlb_checkpoint_open(struct dlb_checkpoint *c, const char *dir, struct dlb_comm *comm, struct dlb_error *err)
{
	int rc = 0;

	c->lock = -1;
	c->dir = dlb_xstrdup(dir);
	if (dlb_comm_rank(comm) == 0)
		rc = lock(c, dir, err);
	return dlb_comm_agree(comm, rc, err, NULL);
}

void dlb_checkpoint_close(struct dlb_checkpoint *c)
{
	if (!c->dir)
		return;
	if (c->lock >= 0)
		close(c->lock);
	free(c->dir);
	c->dir = NULL;
}

/* "step-120" -> 120, else -1. */
static int64_t step_of(const char *name)
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

/* The steps that have a checkpoint, newest first: returns new. */
static int64_t *steps_in(const char *dir, int *n)
{
	DIR *d = opendir(dir);
	int64_t *step = NULL;
	int cap = 0;

	*n = 0;
	for (struct dirent *e; d && (e = readdir(d));) {
		if (step_of(e->d_name) < 0)
			continue;
		DLB_GROW(step, *n, cap);
		step[(*n)++] = step_of(e->d_name);
	}
	if (d)
		closedir(d);
	if (*n)
		qsort(step, (size_t)*n, sizeof *step, descending);
	return step;
}

/* Removes a folder of plain files. */
static void remove_dir(const char *path)
{
	DIR *d = opendir(path);

	for (struct dirent *e; d && (e = readdir(d));) {
		char *p;

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		p = dlb_xprintf("%s/%s", path, e->d_name);
		unlink(p);
		free(p);
	}
	if (d)
		closedir(d);
	rmdir(path);
}

static void sync_dir(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0) {
		fsync(fd);
		close(fd);
	}
}

/* ---- saving and loading ---- */

/* Renames the complete folder into place and removes all but the newest two. */
static int settle(const char *dir, const char *aside, int64_t step, char **path, struct dlb_error *err)
{
	char *final = dlb_xprintf("%s/step-%lld", dir, (long long)step), *old = dlb_xprintf("%s/.old-%ld", dir, (long)getpid());
	int rc = 0, n;
	int64_t *steps;

	sync_dir(aside);
	if (rename(final, old) && errno != ENOENT)
		rc = dlb_fail(err, NULL, "cannot replace '%s': %s", final, strerror(errno));
	else if (rename(aside, final))
		rc = dlb_fail(err, NULL, "cannot rename '%s' to '%s': %s", aside, final, strerror(errno));
	sync_dir(dir);
	remove_dir(old);
	steps = rc ? NULL : steps_in(dir, &n);
	for (int i = 2; steps && i < n; i++) {
		char *p = dlb_xprintf("%s/step-%lld", dir, (long long)steps[i]);

		remove_dir(p);
		free(p);
	}
	free(steps);
	free(old);
	if (!rc && path)
		*path = final;
	else
		free(final);
	return rc;
}

int dlb_checkpoint_save(struct dlb_checkpoint *c, struct dlb_comm *comm, const struct dlb_state *s,
			const struct dlb_checkpoint_kept *kept, const struct dlb_progress_state *p, char **path, struct dlb_error *err)
{
	char *aside = dlb_xprintf("%s/.new-step-%lld", c->dir, (long long)p->step);
	int rank = dlb_comm_rank(comm), rc = 0;

	if (path)
		*path = NULL;
	if (rank == 0) {
		remove_dir(aside);		/* left by a run that was killed */
		if (mkdir(aside, 0777))
			rc = dlb_fail(err, NULL, "cannot make folder '%s': %s", aside, strerror(errno));
	}
	rc = dlb_comm_agree(comm, rc, err, NULL);
	if (!rc) {
		rc = dlb_checkpoint_write_part(aside, rank, s, err);
		if (!rc)
			rc = dlb_checkpoint_write_kept(aside, rank, kept, err);
		rc = dlb_comm_agree(comm, rc, err, NULL);
	}
	if (!rc) {
		if (rank == 0 && !(rc = dlb_checkpoint_write_manifest(aside, s, p, err)))
			rc = settle(c->dir, aside, p->step, path, err);
		rc = dlb_comm_agree(comm, rc, err, NULL);
	}
	if (rc && rank == 0)
		remove_dir(aside);
	free(aside);
	return rc;
}

int dlb_checkpoint_load(struct dlb_checkpoint *c, struct dlb_comm *comm, struct dlb_state *s, struct dlb_progress_state *p,
			bool *found, struct dlb_error *err)
{
	struct dlb_progress_state read = { 0 };
	int64_t newest = -1;
	int rc;

	if (dlb_comm_rank(comm) == 0) {
		int n;
		int64_t *steps = steps_in(c->dir, &n);

		if (n)
			newest = steps[0];
		free(steps);
	}
	if (dlb_comm_bcast(comm, &newest, sizeof newest, 0, err))
		return -1;
	*found = newest >= 0;
	if (!*found)
		return 0;
	rc = dlb_checkpoint_read(c->dir, newest, s, &read, err);
	rc = dlb_comm_agree(comm, rc, err, NULL);
	if (!rc)
		*p = read;
	return rc;
}
