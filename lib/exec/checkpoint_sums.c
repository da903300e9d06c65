/* SHA256SUMS: a line "64 hex digits, two blanks, name" for each file, in the format of sha256sum(1). See
 * checkpoint_files.h. */
#define _XOPEN_SOURCE 700
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "exec/checkpoint_files.h"
#include "util/hash.h"
#include "util/input.h"
#include "util/output.h"

enum { HEX = 64 };

int dlb_sums_write(const char *dir, const struct dlb_sum *sum, int n, struct dlb_error *err)
{
	char *path = dlb_xprintf("%s/" DLB_CHECKPOINT_SUMS, dir);
	struct dlb_output o;
	int rc = dlb_output_open(&o, path, err);

	for (int i = 0; i < n && !rc; i++)
		fprintf(o.f, "%s  %s\n", sum[i].sha256, sum[i].name);
	rc = rc || dlb_output_commit(&o, err) ? -1 : 0;
	free(path);
	return rc;
}

/* Parses the line at p, of at most n bytes. Returns its length with the newline; 0: it is not a line of this
 * format. */
static size_t read_line(const char *p, size_t n, struct dlb_sum *s)
{
	const char *end = memchr(p, '\n', n);
	const size_t length = end ? (size_t)(end - p) : 0, name = length > HEX + 2 ? length - HEX - 2 : 0;

	if (!name || name >= sizeof s->name || strspn(p, "0123456789abcdef") != HEX || p[HEX] != ' ' ||
	    p[HEX + 1] != ' ')
		return 0;
	memcpy(s->sha256, p, HEX);
	s->sha256[HEX] = '\0';
	memcpy(s->name, p + HEX + 2, name);
	s->name[name] = '\0';
	return strchr(s->name, '/') ? 0 : length + 1;
}

int dlb_sums_read(const char *dir, struct dlb_sum **sum, int *n, bool *found, struct dlb_error *err)
{
	char *path = dlb_xprintf("%s/" DLB_CHECKPOINT_SUMS, dir);
	unsigned char *text = NULL;
	size_t bytes = 0, at = 0, length = 1;
	int rc = 0, cap = 0;

	*sum = NULL;
	*n = 0;
	*found = access(path, F_OK) == 0;
	if (*found)
		rc = dlb_input_read(path, &text, &bytes, err);
	while (!rc && at < bytes && length) {
		DLB_GROW(*sum, *n, cap);
		length = read_line((const char *)text + at, bytes - at, &(*sum)[*n]);
		at += length;
		*n += length > 0;
	}
	if (!rc && !length)
		rc = dlb_fail(err, path, "line %d is no checksum and name", *n + 1);
	free(text);
	free(path);
	return rc;
}

bool dlb_sums_have(const struct dlb_sum *sum, int n, const char *name)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(sum[i].name, name))
			return true;
	return false;
}

int dlb_sums_check(const char *dir, const struct dlb_sum *sum, int n, int rank, int n_ranks,
		   struct dlb_error *err)
{
	int rc = 0;

	for (int i = rank; i < n && !rc; i += n_ranks) {
		char *path = dlb_xprintf("%s/%s", dir, sum[i].name), is[HEX + 1];

		rc = dlb_sha256_file(path, is, err);
		if (!rc && strcmp(is, sum[i].sha256))
			rc = dlb_fail(err, path,
				      "damaged: its SHA-256 is not the one in " DLB_CHECKPOINT_SUMS);
		free(path);
	}
	return rc;
}
