/* Errors and bugs: see error.h. Text from files is escaped when printed, so one error is always one line. */
#include "util/error.h"
#include "util/escape.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static void fill(struct dlb_error *err, int status, const char *where, const char *fmt, va_list ap)
{
	/* `where` and the arguments may be in err itself (a message that wraps another) */
	struct dlb_error e = { .status = status };

	snprintf(e.where, sizeof e.where, "%s", where ? where : "");
	vsnprintf(e.what, sizeof e.what, fmt, ap);
	*err = e;
}

int dlb_fail(struct dlb_error *err, const char *where, const char *fmt, ...)
{
	va_list ap;

	if (!err)
		return -1;
	va_start(ap, fmt);
	fill(err, 2, where, fmt, ap);
	va_end(ap);
	return -1;
}

int dlb_fail_no(struct dlb_error *err, const char *where, const char *fmt, ...)
{
	va_list ap;

	if (!err)
		return -1;
	va_start(ap, fmt);
	fill(err, 1, where, fmt, ap);
	va_end(ap);
	return -1;
}

int dlb_refuse(struct dlb_error *err, const char *where, const char *cure, const char *fmt, ...)
{
	va_list ap;

	if (!err)
		return -1;
	va_start(ap, fmt);
	fill(err, 2, where, fmt, ap);
	va_end(ap);
	return dlb_hint(err, "%s", cure);
}

int dlb_hint(struct dlb_error *err, const char *fmt, ...)
{
	char text[sizeof err->hint];
	va_list ap;

	if (!err)
		return -1;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	memcpy(err->hint, text, sizeof text);
	return -1;
}

int dlb_error_at(struct dlb_error *err, const char *prefix)
{
	char where[sizeof err->where];
	const char *between = ": ";

	if (!err)
		return -1;
	if (!err->where[0])
		between = "";
	else if (isdigit((unsigned char)err->where[0]))
		between = ":";		/* line:column of a file */
	if (snprintf(where, sizeof where, "%s%s%s", prefix, between, err->where) < 0)
		return -1;
	memcpy(err->where, where, sizeof where);
	return -1;
}

static void print_line(FILE *f, const char *tool, int rank, const struct dlb_error *err)
{
	fputs(tool, f);
	if (rank >= 0)
		fprintf(f, "[%d]", rank);
	fputs(": ", f);
	if (err->where[0]) {
		dlb_put_escaped(f, err->where);
		fputs(": ", f);
	}
	dlb_put_escaped(f, err->what[0] ? err->what : "failed");
	if (err->hint[0]) {
		fputs("; ", f);
		dlb_put_escaped(f, err->hint);
	}
	fputc('\n', f);
}

/* Prints the line by one write, so that lines of several ranks do not mix in their common stream. */
void dlb_error_print(FILE *f, const char *tool, int rank, const struct dlb_error *err)
{
	char *text = NULL;
	size_t n = 0;
	FILE *whole = open_memstream(&text, &n);

	if (!whole) {
		print_line(f, tool, rank, err);
		return;
	}
	print_line(whole, tool, rank, err);
	fclose(whole);
	fwrite(text, 1, n, f);
	free(text);
}

void dlb_bug_at(const char *file, int line, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "%s:%d: bug in dlb: ", file, line);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	abort();
}

/* Edit distance that counts a swap of neighbours as one edit and ignores case (optimal string alignment).
 * Names longer than LONG are not compared. O(|a| |b|). */
enum { LONG = 63 };
static int distance(const char *a, int n, const char *b, int m, int limit)
{
	int row[3][LONG + 1];

	for (int j = 0; j <= m; j++)
		row[0][j] = j;
	for (int i = 1; i <= n; i++) {
		int *now = row[i % 3], *last = row[(i + 2) % 3], *before = row[(i + 1) % 3], least = i;
		int x = tolower((unsigned char)a[i - 1]);

		now[0] = i;
		for (int j = 1; j <= m; j++) {
			int y = tolower((unsigned char)b[j - 1]), d = last[j - 1] + (x != y);

			if (last[j] + 1 < d)
				d = last[j] + 1;
			if (now[j - 1] + 1 < d)
				d = now[j - 1] + 1;
			if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) &&
			    y == tolower((unsigned char)a[i - 2]) && before[j - 2] + 1 < d)
				d = before[j - 2] + 1;
			now[j] = d;
			if (d < least)
				least = d;
		}
		if (least > limit)
			return limit + 1;
	}
	return row[n % 3][m];
}

const char *dlb_nearest(const char *name, const char *const *candidates, int n)
{
	size_t length = strlen(name);
	int limit = length < 3 ? 1 : length < 6 ? 2 : (int)length / 3 + 1, best = limit + 1;
	const char *found = NULL;

	if (length > LONG)
		return NULL;
	for (int i = 0; i < n; i++) {
		size_t m = candidates[i] ? strlen(candidates[i]) : LONG + 1;
		int d;

		if (m > LONG || m + (size_t)limit < length || length + (size_t)limit < m)
			continue;
		d = distance(name, (int)length, candidates[i], (int)m, best - 1);
		if (d < best && d < (int)(m > length ? m : length)) {
			best = d;
			found = candidates[i];
		}
	}
	return found;
}

int dlb_hint_nearest(struct dlb_error *err, const char *name, const char *const *candidates, int n,
		     const char *otherwise)
{
	const char *near = dlb_nearest(name, candidates, n);

	if (near)
		return dlb_hint(err, "did you mean '%s'?", near);
	return otherwise ? dlb_hint(err, "%s", otherwise) : -1;
}
