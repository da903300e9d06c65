/* Reads a data file whole or in pieces, over util/input.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "data/file.h"
#include "data/source.h"
#include "util/input.h"
#include "util/mem.h"

int dlb_data_file_read(const char *path, unsigned char **data, size_t *n, struct dlb_error *err)
{
	return dlb_input_read(path, data, n, err);
}

int dlb_data_file_open(struct dlb_data_file *f, const char *path, struct dlb_error *err)
{
	const int fd = dlb_input_open(path, &f->size, err);

	if (fd < 0)
		return -1;
	f->fd = fd;
	f->path = dlb_xstrdup(path);
	return 0;
}

int dlb_data_file_get(const struct dlb_data_file *f, uint64_t at, void *dst, size_t n, struct dlb_error *err)
{
	size_t done;

	if (dlb_input_get(f->fd, at, dst, n, &done) == 0)
		return 0;
	if (errno)
		return dlb_fail(err, f->path, "cannot read at byte %llu: %s", (unsigned long long)(at + done),
				strerror(errno));
	return dlb_fail(err, f->path, "truncated at byte %llu: %zu more are needed there",
			(unsigned long long)(at + done), n - done);
}

void dlb_data_file_close(struct dlb_data_file *f)
{
	if (f->path)
		close(f->fd);
	free(f->path);
	memset(f, 0, sizeof *f);
}
