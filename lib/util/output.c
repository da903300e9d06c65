/* Writes output files: see output.h. All operations are relative to the folder, opened once, so
 * renaming the folder has no effect. */
#define _XOPEN_SOURCE 700	/* realpath */
#include "util/output.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/mem.h"

static int cannot_write(const char *path, struct dlb_error *err, const char *why)
{
	return dlb_fail(err, NULL, "cannot write '%s': %s", path, why);
}

static const char *type_of(mode_t mode)
{
	return S_ISDIR(mode)  ? "it is a folder" :
	       S_ISFIFO(mode) ? "it is a FIFO" :
	       S_ISSOCK(mode) ? "it is a socket" :
	       S_ISBLK(mode)  ? "it is a block device" :
				"it is no regular file";
}

/* A device is opened directly: a rename would replace it by a file. */
static int open_device(struct dlb_output *o, struct dlb_error *err)
{
	struct stat st;
	const int fd = open(o->path, O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		return cannot_write(o->path, err, strerror(errno));
	if (fstat(fd, &st) != 0 || !S_ISCHR(st.st_mode) || fcntl(fd, F_SETFL, 0) != 0 ||
	    !(o->f = fdopen(fd, "wb"))) {
		close(fd);
		return cannot_write(o->path, err, "it is no device any more");
	}
	return 0;
}

/* Opens the folder of `target`; the file's name in it is o->name. */
static int open_folder(struct dlb_output *o, const char *target, struct dlb_error *err)
{
	const char *slash = strrchr(target, '/');
	char *folder = slash ? dlb_xstrdup(target) : NULL;

	o->name = dlb_xstrdup(slash ? slash + 1 : target);
	if (folder)
		folder[slash == target ? 1 : slash - target] = '\0';
	o->folder = o->name[0] ? open(folder ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) :
				 (errno = EISDIR, -1);
	free(folder);
	return o->folder < 0 ? cannot_write(o->path, err, strerror(errno)) : 0;
}

bool dlb_output_number(uint64_t *number)
{
	return getrandom(number, sizeof *number, 0) == (ssize_t)sizeof *number;
}

bool dlb_output_is_aside(const char *name)
{
	return !strncmp(name, ".dlb-", 5) && strspn(name + 5, "0123456789abcdef") == 16 &&
	       !strcmp(name + 21, ".part");
}

/* Creates a temporary file with an unpredictable name. */
static int open_aside(struct dlb_output *o, const struct stat *old, struct dlb_error *err)
{
	int fd = -1;

	for (int i = 0; fd < 0 && i < 100; i++) {
		uint64_t number;

		if (!dlb_output_number(&number))
			return cannot_write(o->path, err, "no random numbers for a temporary name");
		free(o->aside);
		o->aside = dlb_xprintf(".dlb-%016" PRIx64 ".part", number);
		fd = openat(o->folder, o->aside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
		if (fd < 0 && errno != EEXIST)
			break;
	}
	if (fd < 0) {
		cannot_write(o->path, err, strerror(errno));
		free(o->aside);
		o->aside = NULL;	/* it is no file of this process */
		return -1;
	}
	/* if root writes over a user's file, the user still owns it */
	if (old && (old->st_uid != geteuid() || old->st_gid != getegid()) &&
	    fchown(fd, old->st_uid, old->st_gid) != 0)
		errno = 0;
	if ((old && fchmod(fd, old->st_mode & 0777) != 0) || !(o->f = fdopen(fd, "wb"))) {
		cannot_write(o->path, err, strerror(errno));
		close(fd);
		return -1;
	}
	return 0;
}

/* Opens an output whose `path` is a regular file or does not exist. */
static int open_file(struct dlb_output *o, const struct stat *old, struct dlb_error *err)
{
	char *target = old ? realpath(o->path, NULL) : dlb_xstrdup(o->path);
	struct stat st;
	int rc;

	if (!target)
		return cannot_write(o->path, err, strerror(errno));
	rc = open_folder(o, target, err);
	free(target);
	if (rc)
		return -1;
	if (fstatat(o->folder, o->name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		if (S_ISLNK(st.st_mode))
			return cannot_write(o->path, err, "it is a symbolic link to nothing");
		if (!S_ISREG(st.st_mode))
			return cannot_write(o->path, err, type_of(st.st_mode));
		if (faccessat(o->folder, o->name, W_OK, 0) != 0)
			return cannot_write(o->path, err, strerror(errno));
	} else if (errno != ENOENT) {
		return cannot_write(o->path, err, strerror(errno));
	}
	return open_aside(o, old, err);
}

int dlb_output_open(struct dlb_output *o, const char *path, struct dlb_error *err)
{
	struct stat st;
	int rc;

	*o = (struct dlb_output){ .path = dlb_xstrdup(path), .folder = -1 };
	if (stat(path, &st) != 0)
		rc = errno == ENOENT ? open_file(o, NULL, err) : cannot_write(path, err, strerror(errno));
	else if (S_ISREG(st.st_mode))
		rc = open_file(o, &st, err);
	else if (S_ISCHR(st.st_mode))
		rc = open_device(o, err);
	else
		rc = cannot_write(path, err, type_of(st.st_mode));
	if (rc)
		dlb_output_abort(o);
	return rc;
}

int dlb_output_check(const char *path, struct dlb_error *err)
{
	struct dlb_output o;

	if (dlb_output_open(&o, path, err))
		return -1;
	dlb_output_abort(&o);
	return 0;
}

int dlb_output_keep_lines(struct dlb_output *o, int64_t n, struct dlb_error *err)
{
	int fd, c = 0;
	FILE *f;

	if (!o->name || n <= 0)
		return 0;
	fd = openat(o->folder, o->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return 0;
	f = fd < 0 ? NULL : fdopen(fd, "rb");
	if (!f) {
		dlb_fail(err, NULL, "cannot read '%s': %s", o->path, strerror(errno));
		if (fd >= 0)
			close(fd);
		return -1;
	}
	for (int64_t lines = 0; lines < n && (c = getc(f)) != EOF; lines += c == '\n')
		putc(c, o->f);
	const int why = ferror(f) ? errno : 0;
	fclose(f);
	return why ? dlb_fail(err, NULL, "cannot read '%s': %s", o->path, strerror(why)) : 0;
}

/* Renames the temporary file, unless the name now belongs to an object that is no regular file. */
static int rename_it(struct dlb_output *o)
{
	struct stat st;

	if (fstatat(o->folder, o->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(st.st_mode)) {
		errno = EEXIST;
		return -1;
	}
	if (renameat(o->folder, o->aside, o->folder, o->name) != 0)
		return -1;
	o->placed = true;
	return 0;
}

int dlb_output_flush(struct dlb_output *o, struct dlb_error *err)
{
	errno = 0;
	if (fflush(o->f) == 0 && !ferror(o->f))
		return 0;
	return cannot_write(o->path, err, strerror(errno ? errno : EIO));
}

int dlb_output_place(struct dlb_output *o, struct dlb_error *err)
{
	if (dlb_output_flush(o, err))
		return -1;
	return o->name && rename_it(o) != 0 ? cannot_write(o->path, err, strerror(errno)) : 0;
}

/* The folder must be synced too for the rename to be durable. File systems that
 * cannot sync a folder are accepted. */
static int sync_folder(int folder)
{
	return fsync(folder) != 0 && errno != EINVAL && errno != ENOTSUP ? -1 : 0;
}

int dlb_output_commit(struct dlb_output *o, struct dlb_error *err)
{
	bool bad = fflush(o->f) != 0 || ferror(o->f) || (o->name && fsync(fileno(o->f)) != 0);
	int why = errno;

	if (fclose(o->f) != 0 && !bad) {
		bad = true;
		why = errno;
	}
	o->f = NULL;
	if (!bad && o->name && ((!o->placed && rename_it(o) != 0) || sync_folder(o->folder) != 0)) {
		bad = true;
		why = errno;
	}
	if (bad)
		cannot_write(o->path, err, strerror(why ? why : EIO));
	dlb_output_abort(o);
	return bad ? -1 : 0;
}

void dlb_output_abort(struct dlb_output *o)
{
	if (o->f)
		fclose(o->f);
	if (o->aside && !o->placed)
		unlinkat(o->folder, o->aside, 0);
	if (o->path && o->folder >= 0)
		close(o->folder);
	free(o->path);
	free(o->name);
	free(o->aside);
	*o = (struct dlb_output){ .folder = -1 };
}
