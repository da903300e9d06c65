/* Whole files in memory: see file.h. */
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
