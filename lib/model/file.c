/* Maps whole files into memory: see file.h. */
#include "model/file.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "util/input.h"
#include "util/mapped.h"

int dlb_file_open(const char *path, struct dlb_file *f, struct dlb_error *err)
{
	uint64_t bytes;
	const int fd = dlb_input_open(path, &bytes, err);
	void *p = NULL;
	int why;

	*f = (struct dlb_file){ 0 };
	if (fd < 0)
		return -1;
	if (bytes)
		p = dlb_mapped_new(fd, (size_t)bytes, path);
	why = errno;
	close(fd);
	if (!bytes)
		return dlb_refuse(err, path, "was it written to the end?", "empty file");
	if (!p)
		return dlb_fail(err, NULL, "cannot map '%s': %s", path, strerror(why));
	*f = (struct dlb_file){ p, (size_t)bytes };
	return 0;
}

void dlb_file_close(struct dlb_file *f)
{
	dlb_mapped_free(f->data, f->n);
	*f = (struct dlb_file){ 0 };
}
