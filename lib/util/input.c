/* Reads files with limits on time and memory: see input.h. */
#define _XOPEN_SOURCE 700
#include "util/input.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/mem.h"
#include "util/memory.h"

static uint64_t max_text = DLB_INPUT_MAX_TEXT;

void dlb_input_set_max_text(uint64_t bytes)
{
	max_text = bytes;
}

static const char *type_of(mode_t mode)
{
	return S_ISDIR(mode)  ? "a folder" :
	       S_ISFIFO(mode) ? "a FIFO" :
	       S_ISSOCK(mode) ? "a socket" :
				"a device";
}

int dlb_input_open(const char *path, uint64_t *bytes, struct dlb_error *err)
{
	struct stat st;
	int fd;

	do {
		/* O_NONBLOCK: opening a FIFO must not block; it is refused below */
		fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	} while (fd < 0 && errno == EINTR);	/* a signal is no fault of the file */
	if (fd < 0 && errno == ENXIO)
		return dlb_fail(err, NULL, "'%s' is not a file but a socket", path);
	if (fd < 0 || fstat(fd, &st) != 0) {
		dlb_fail(err, NULL, "cannot open '%s': %s", path, strerror(errno));
		if (fd >= 0)
			close(fd);
		return -1;
	}
	if (!S_ISREG(st.st_mode)) {
		close(fd);
		return dlb_fail(err, NULL, "'%s' is not a file but %s", path, type_of(st.st_mode));
	}
	*bytes = (uint64_t)st.st_size;
	return fd;
}

int dlb_input_get(int fd, uint64_t at, void *dst, size_t n, size_t *done)
{
	for (*done = 0; *done < n;) {
		const ssize_t got = pread(fd, (char *)dst + *done, n - *done, (off_t)(at + *done));

		if (got < 0 && errno == EINTR)
			continue;
		if (got == 0)
			errno = 0;
		if (got <= 0)
			return -1;
		*done += (size_t)got;
	}
	return 0;
}

int dlb_input_read(const char *path, unsigned char **data, size_t *n, struct dlb_error *err)
{
	uint64_t bytes;
	const int fd = dlb_input_open(path, &bytes, err);

	if (fd < 0)
		return -1;
	if ((double)bytes >= dlb_memory_bytes()) {
		close(fd);
		return dlb_fail(err, path, "its %" PRIu64 " bytes do not fit the %.0f of memory here", bytes,
				dlb_memory_bytes());
	}
	unsigned char *p = dlb_xmalloc((size_t)bytes + 1);
	if (dlb_input_get(fd, 0, p, (size_t)bytes, n) != 0 && errno) {
		dlb_fail(err, NULL, "cannot read '%s': %s", path, strerror(errno));
		free(p);
		close(fd);
		return -1;
	}
	close(fd);
	p[*n] = '\0';				/* the file may have become shorter */
	*data = p;
	return 0;
}

/* True if the first character after blanks is `begins` (0: any), or the text has only blanks so far. */
static bool may_be(const char *text, size_t n, char begins)
{
	size_t blank = 0;

	while (blank < n && text[blank] && strchr(" \t\r\n", text[blank]))
		blank++;
	return !begins || blank == n || text[blank] == begins;
}

int dlb_input_read_text(const char *path, char begins, char **out, size_t *n, struct dlb_error *err)
{
	FILE *f = path ? fopen(path, "rb") : stdin;
	const char *name = path ? path : "<stdin>";
	const size_t most = max_text < SIZE_MAX / 4 ? (size_t)max_text : SIZE_MAX / 4;
	size_t room = most < 1 << 16 ? most + 2 : 1 << 16, got;
	int why;

	if (!f)
		return dlb_fail(err, NULL, "cannot open '%s': %s", path, strerror(errno));
	char *text = dlb_xmalloc(room);
	*n = 0;
	errno = 0;
	while ((got = fread(text + *n, 1, room - 1 - *n, f)) > 0) {
		*n += got;
		if (*n > most || (*n == room - 1 && !may_be(text, *n, begins)))
			break;
		if (*n == room - 1) {
			room = room < most / 2 ? 2 * room : most + 2;
			text = dlb_xrealloc(text, room, 1);
		}
	}
	why = ferror(f) ? errno ? errno : EIO : 0;
	if (path)
		fclose(f);
	text[*n] = '\0';
	*out = text;
	if (!why && *n <= most && (!got || may_be(text, *n, begins)))
		return 0;
	free(text);
	*out = NULL;
	if (why)
		return dlb_fail(err, NULL, "cannot read '%s': %s", name, strerror(why));
	if (*n <= most)
		return dlb_fail(err, name, "it does not begin with '%c'", begins);
	dlb_fail(err, name, "more than %zu bytes", most);
	return dlb_hint(err, "if it is meant to be so long, allow more with --max-document");
}
