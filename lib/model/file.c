/* Whole files in memory, files written aside: see file.h. */
#include "model/file.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "util/mem.h"

static int read_all(int fd, struct dlb_file *f)
{
	size_t cap = 1 << 16;
	char *data = dlb_xmalloc(cap);
	size_t n = 0;
	for (ssize_t got; (got = read(fd, data + n, cap - n)) != 0;) {
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0) {
			free(data);
			return -1;
		}
		n += (size_t)got;
		if (n == cap)
			data = dlb_xrealloc(data, cap *= 2, 1);
	}
	*f = (struct dlb_file){ data, n, false };
	return 0;
}

int dlb_file_open(const char *path, struct dlb_file *f, struct dlb_error *err)
{
	*f = (struct dlb_file){ 0 };
	const int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	int rc = 0;
	if (fd < 0)
		return dlb_fail(err, NULL, "cannot open '%s': %s", path, strerror(errno));
	if (fstat(fd, &st) != 0) {
		rc = dlb_fail(err, NULL, "cannot read '%s': %s", path, strerror(errno));
	} else if (S_ISREG(st.st_mode) && st.st_size > 0) {
		void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
		if (p == MAP_FAILED)
			rc = dlb_fail(err, NULL, "cannot map '%s': %s", path, strerror(errno));
		else
			*f = (struct dlb_file){ p, (size_t)st.st_size, true };
	} else if (read_all(fd, f) != 0) {
		rc = dlb_fail(err, NULL, "cannot read '%s': %s", path, strerror(errno));
	}
	close(fd);
	if (!rc && f->n == 0) {
		dlb_file_close(f);
		rc = dlb_refuse(err, path, "was it written to the end?", "empty file");
	}
	return rc;
}

void dlb_file_close(struct dlb_file *f)
{
	if (f->mapped)
		munmap(f->data, f->n);
	else
		free(f->data);
	*f = (struct dlb_file){ 0 };
}

int dlb_aside_open(struct dlb_aside *a, const char *path, struct dlb_error *err)
{
	*a = (struct dlb_aside){ .path = dlb_xstrdup(path), .aside = dlb_xprintf("%s.%ld.part", path, (long)getpid()) };
	const int fd = open(a->aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	a->f = fd < 0 ? NULL : fdopen(fd, "wb");
	if (a->f)
		return 0;
	dlb_fail(err, NULL, "cannot write '%s': %s", path, strerror(errno));
	if (fd >= 0) {
		close(fd);
		unlink(a->aside);
	}
	dlb_aside_abort(a);
	return -1;
}

/* The rename is only safe on disk when the folder is. */
static int sync_folder(const char *path)
{
	char *folder = dlb_xstrdup(path);
	char *slash = strrchr(folder, '/');
	if (slash == folder)
		slash[1] = '\0';
	else if (slash)
		*slash = '\0';
	const int fd = open(slash ? folder : ".", O_RDONLY | O_CLOEXEC);
	free(folder);
	if (fd < 0)
		return -1;
	/* some file systems cannot sync a folder; that is theirs to answer for */
	const int rc = fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP ? -1 : 0;
	close(fd);
	return rc;
}

int dlb_aside_commit(struct dlb_aside *a, struct dlb_error *err)
{
	int bad = fflush(a->f) != 0 || ferror(a->f) || fsync(fileno(a->f)) != 0;
	int why = errno;
	if (fclose(a->f) != 0 && !bad) {
		bad = 1;
		why = errno;
	}
	a->f = NULL;
	if (!bad && (rename(a->aside, a->path) != 0 || sync_folder(a->path) != 0)) {
		bad = 1;
		why = errno;
	}
	if (bad)
		dlb_fail(err, NULL, "cannot write '%s': %s", a->path, strerror(why));
	else
		a->aside[0] = '\0';	/* renamed: nothing to remove */
	dlb_aside_abort(a);
	return bad ? -1 : 0;
}

void dlb_aside_abort(struct dlb_aside *a)
{
	if (a->f)
		fclose(a->f);
	if (a->aside && a->aside[0])
		unlink(a->aside);
	free(a->path);
	free(a->aside);
	*a = (struct dlb_aside){ 0 };
}
