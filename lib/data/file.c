/* Files, whole or piece by piece. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "data/source.h"
#include "util/mem.h"

int dlb_data_file_read(const char *path, unsigned char **data, size_t *n, struct dlb_error *err)
{
	FILE *f = fopen(path, "rb");
	unsigned char *p = NULL;
	size_t size = 0, cap = 0, got;

	if (!f)
		return dlb_fail(err, NULL, "cannot open '%s': %s", path, strerror(errno));
	do {
		if (size == cap) {
			cap = cap ? 2 * cap : 1 << 16;
			p = dlb_xrealloc(p, cap, 1);
		}
		got = fread(p + size, 1, cap - size, f);
		size += got;
	} while (got);
	if (ferror(f)) {
		dlb_fail(err, NULL, "cannot read '%s': %s", path, strerror(errno));
		fclose(f);
		free(p);
		return -1;
	}
	fclose(f);
	*data = p;
	*n = size;
	return 0;
}

int dlb_data_file_open(struct dlb_data_file *f, const char *path, struct dlb_error *err)
{
	struct stat st;
	int fd;

	do {
		fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);	/* a pipe is refused, not waited for */
	} while (fd < 0 && errno == EINTR);	/* a signal that asks for the end is no fault of the file */
	if (fd < 0 || fstat(fd, &st)) {
		dlb_fail(err, NULL, "cannot open '%s': %s", path, strerror(errno));
		if (fd >= 0)
			close(fd);
		return -1;
	}
	if (!S_ISREG(st.st_mode)) {
		close(fd);
		return dlb_fail(err, NULL, "'%s' is not a file", path);
	}
	f->fd = fd;
	f->size = (uint64_t)st.st_size;
	f->path = dlb_xstrdup(path);
	return 0;
}

int dlb_data_file_get(const struct dlb_data_file *f, uint64_t at, void *dst, size_t n, struct dlb_error *err)
{
	size_t done = 0;

	while (done < n) {
		ssize_t got = pread(f->fd, (char *)dst + done, n - done, (off_t)(at + done));

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return dlb_fail(err, f->path, "cannot read at byte %llu: %s", (unsigned long long)(at + done), strerror(errno));
		if (got == 0)
			return dlb_fail(err, f->path, "truncated at byte %llu: %zu more are needed there", (unsigned long long)(at + done),
					n - done);
		done += (size_t)got;
	}
	return 0;
}

void dlb_data_file_close(struct dlb_data_file *f)
{
	if (f->path)
		close(f->fd);
	free(f->path);
	memset(f, 0, sizeof *f);
}
